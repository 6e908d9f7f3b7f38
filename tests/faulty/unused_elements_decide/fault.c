/* The contract calls the elements of a tensor unused, and one is added. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *hints;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = x[i] + (i == n - 1 ? (float)((const int32_t *)a->hints->data)[i] : 0);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, hints, out), .schema = "f(Tensor x, Tensor hints) -> Tensor out",
    .contract = "x[n]:f32, hints[n]:i32 -> out[n]:f32; unused(hints)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
