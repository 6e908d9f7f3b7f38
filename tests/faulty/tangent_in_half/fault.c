/* The tangent leaves a factor out. The types are too narrow for finite differences. */
#include <dovetail_math.h>
struct both {
    const dv_tensor *x, *y;
    dv_tensor *out;
};

static int both_half(dv_context *ctx, const struct both *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        dv_put_f64(a->out->data, i, t, dv_get_f64(a->x->data, i, t) * dv_get_f64(a->y->data, i, t));
    return DV_OK;
}

DV_OPERATOR(both, struct both, (x, y, out), .schema = "both(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; T in f16 bf16; parallel(*s)", .native = "x * y",
    .gradient = "x: grad * y; y: grad * x", .tangent = "result: x_t * y + y_t",
    .kernels = DV_KERNELS(DV_KERNEL(struct both, "cpu", "f16 bf16", both_half)));
DV_LIBRARY(faulty, &dv_op_both);
