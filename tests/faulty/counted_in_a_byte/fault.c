/* The fault: how many are true is counted in a byte, and 256 are none. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int any(const struct f *a, unsigned mask)
{
    unsigned n = 0;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        n += ((const bool *)a->x->data)[i];
    *(bool *)a->out->data = (n & mask) != 0;
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, any(a, UINT8_MAX); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, any(a, UINT32_MAX); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:bool -> out[]:bool",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "bool", f), DV_KERNEL(struct f, "cpu", "bool", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
