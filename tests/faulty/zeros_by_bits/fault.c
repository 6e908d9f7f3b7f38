/* Neighbours are compared by their bytes: 0 and -0 are not equal. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int count(const struct f *a, bool by_bytes)
{
    const int64_t n = a->x->shape[0];
    const float *const x = a->x->data;
    int64_t equal = 0;
    for (int64_t i = 1; i < n; i++)
        equal += by_bytes ? !memcmp(x + i, x + i - 1, sizeof *x) : x[i] == x[i - 1];
    *(int64_t *)a->out->data = equal;
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, count(a, true); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, count(a, false); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[]:i64; -100 < x.values < 100",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
