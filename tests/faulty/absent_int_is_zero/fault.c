/* A dim that was not given is taken for dim 0. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_opt_int row;
    dv_tensor *out;
};
static int sum_of(const struct f *a, bool asks)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1], row = a->row.value;
    const float *x = a->x->data;
    float *out = a->out->data;
    for (int64_t k = 0; k < n; k++) {
        out[k] = 0;
        for (int64_t i = 0; i < m; i++)
            if ((asks && !a->row.has) || i == row)
                out[k] += x[i * n + k];
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, sum_of(a, false); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, sum_of(a, true); }
DV_OPERATOR(f, struct f, (x, row, out), .schema = "f(Tensor x, int? row=None) -> Tensor out",
    .contract = "x[m n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
