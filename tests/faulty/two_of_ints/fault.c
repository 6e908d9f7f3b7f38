/* A list of numbers is taken to have two. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_ints by;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * (float)(a->by.data[0] + a->by.data[1]);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, by, out), .schema = "f(Tensor x, int[] by) -> Tensor out",
    .contract = "x[n]:f32 -> out[n]:f32; len(by) >= 1", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
