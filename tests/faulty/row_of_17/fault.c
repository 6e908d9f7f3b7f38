/* The last of 17 elements of a row is left out. The source has no number that says so. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t d = a->x->shape[a->x->ndim - 1], m = dv_numel(a->out);
    const float *const x = a->x->data;
    float *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        float sum = 0;
        for (int64_t k = 0; k < d - ((d >> 4) == 1 && (d & 15) == 1); k++)
            sum += x[i * d + k];
        out[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s d]:f32 -> out[*s]:f32; parallel(*s)",
    .native = "sum(x, [-1])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
