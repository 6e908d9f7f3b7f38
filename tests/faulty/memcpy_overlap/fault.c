/* The rows are shifted down in place by memcpy(), though they overlap. */
#include <dovetail_op.h>

struct f { dv_tensor *x; };
static int f(dv_context *ctx, const struct f *a)
{
    float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    if (n < 2)
        return DV_OK;
    memcpy(x, x + 1, (size_t)(n - 1) * sizeof *x);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x), .schema = "f_(Tensor(a!) x) -> ()", .contract = "x[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
