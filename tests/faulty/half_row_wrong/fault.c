/* The row for bf16 has another factor than the one for f32. They share no dtype, and there is no native form. */
#include <dovetail_math.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_by(const struct scale *a, double by)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        dv_put_f64(a->out->data, i, t, by * dv_get_f64(a->x->data, i, t));
    return DV_OK;
}

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    return scale_by(a, 1.702);
}

static int scale_bf16(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    return scale_by(a, 1.602);
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32 bf16; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32), DV_KERNEL(struct scale, "cpu", "bf16", scale_bf16)));
DV_LIBRARY(faulty, &dv_op_scale);
