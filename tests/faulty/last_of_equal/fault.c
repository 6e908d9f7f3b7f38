/* Of equal elements the last one is taken, where the reference takes the first. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int largest(const struct f *a, bool last)
{
    const int64_t n = a->x->shape[0];
    const int32_t *x = a->x->data;
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (last ? x[i] >= x[at] : x[i] > x[at])
            at = i;
    *(int64_t *)a->out->data = at;
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, largest(a, true); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, largest(a, false); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:i32 -> out[]:i64; n > 0",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "i32", f), DV_KERNEL(struct f, "cpu", "i32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
