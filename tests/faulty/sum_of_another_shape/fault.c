/* The fault: a sum is declared over a dim that the result has, as its argument's shape */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((float *)a->out->data)[i] = 2 * ((const float *)a->x->data)[i];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m k]:f32 -> out like(x); sum(k)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(sum_of_another_shape, &dv_op_f);
