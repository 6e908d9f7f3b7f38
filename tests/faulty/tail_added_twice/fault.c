/* The last vector overlaps the one before it; what is added in place is added twice there. */
#include <dovetail_op.h>

struct f {
    dv_tensor *x;
    const dv_tensor *y;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = dv_numel(a->x);
    float *x = a->x->data;
    const float *y = a->y->data;
    (void)ctx;
    if (n < 8) {
        for (int64_t i = 0; i < n; i++)
            x[i] += y[i];
        return DV_OK;
    }
    for (int64_t i = 0; i < n; i += 8) {
        const int64_t at = i + 8 <= n ? i : n - 8;
        for (int64_t k = at; k < at + 8; k++)
            x[k] += y[k];
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, y), .schema = "f(Tensor(a!) x, Tensor y) -> ()", .contract = "x[*s]:f32, y[*s]:f32",
    .native = "x + y", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
