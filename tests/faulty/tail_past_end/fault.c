/* Eight elements at a time, also where fewer are left. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->out);
    for (int64_t i = 0; i < n; i += 8)
        for (int64_t k = 0; k < 8; k++)
            out[i + k] = 2 * x[i + k];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
