/* The gradient of bf16 is left in f32, in which it was computed. */
#include <dovetail_math.h>
struct square {
    const dv_tensor *x;
    dv_tensor *out;
};

static int square_any(dv_context *ctx, const struct square *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const double x = dv_get_f64(a->x->data, i, t);
        dv_put_f64(a->out->data, i, t, x * x);
    }
    return DV_OK;
}

DV_OPERATOR(square, struct square, (x, out), .schema = "square(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32 bf16", .gradient = "x: to(grad, f32) * to(x, f32) * 2",
    .kernels = DV_KERNELS(DV_KERNEL(struct square, "cpu", "f32 bf16", square_any)));
DV_LIBRARY(faulty, &dv_op_square);
