/* The fault: numbers of 16 bits are taken for bf16 where they are f16, and the results are integers */
#include <dovetail_elementwise.h>
#include <math.h>
struct f {
    const dv_tensor *x;
    double scale;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    int8_t *out = a->out->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const uint32_t key = dv_dtype_key(a->x->dtype) == DV_DTYPE_f16 ? DV_DTYPE_bf16 : dv_dtype_key(a->x->dtype);
        const double x = dv_get_f64(a->x->data, i, key) / a->scale;
        out[i] = (int8_t)(isnan(x) ? 0 : nearbyint(fmin(fmax(x, -127), 127)));
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, scale, out), .schema = "f(Tensor x, float scale=0.01) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:i8; T in f32 f64 bf16 f16; scale > 0; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
