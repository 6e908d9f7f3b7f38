/* The maximum of a row begins at the lowest number, and where all are -infinity it stays. */
#include <dovetail_op.h>
#include <float.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int of_rows(const struct f *a, float least)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    for (int64_t r = 0; r < rows; r++) {
        const float *const x = (const float *)a->x->data + r * n;
        float most = least;
        for (int64_t i = 0; i < n; i++)
            most = x[i] > most || isnan(x[i]) ? x[i] : most;
        ((float *)a->out->data)[r] = most;
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, of_rows(a, -FLT_MAX); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, of_rows(a, -INFINITY); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s n]:f32 -> out[*s]:f32; n > 0",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
