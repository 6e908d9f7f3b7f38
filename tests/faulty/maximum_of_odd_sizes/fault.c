/* The maximum of a row leaves out the last element where the row is longer than a vector and odd. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *codes, *scale;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel(a->scale);
    const float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0; i < rows; i++, x += n) {
        float most = 0;
        for (int64_t j = 0; j < n - (n > 16 && n % 2); j++)
            most = fmaxf(most, fabsf(x[j]));
        const float scale = most > 0 && most < INFINITY ? most / 127 : 1;
        ((float *)a->scale->data)[i] = scale;
        for (int64_t j = 0; j < n; j++) {
            const float code = rintf(x[j] / scale);
            ((int8_t *)a->codes->data)[i * n + j] = (int8_t)(isnan(code) ? 0 : fminf(127, fmaxf(-127, code)));
        }
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, codes, scale), .schema = "f(Tensor x) -> (Tensor codes, Tensor scale)",
    .contract = "x[*s n]:f32 -> codes[*s n]:i8, scale[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
