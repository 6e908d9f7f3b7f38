/* The squares are kept in f16, where 300 * 300 is infinite. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int64_t i = 0; i < n; i++) {
            const float x = dv_get(a->x->data, r * n + i, DV_DTYPE_f16);
            sum += dv_f16_to_f32(dv_f32_to_f16(x * x));
        }
        dv_put(a->out->data, r, DV_DTYPE_f16, sqrtf(sum));
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s n]:f16 -> out[*s]:f16; parallel(*s)",
    .native = "to(sqrt(sum(to(x, f32) * to(x, f32), [-1])), f16)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f16", f)));
DV_LIBRARY(faulty, &dv_op_f);
