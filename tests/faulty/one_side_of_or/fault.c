/* The fault: the row of pairs leaves out an odd last column, and its predicate also takes an odd number of columns if the rows
 * are even */
#include <dovetail_op.h>

struct add {
    const dv_tensor *x, *y;
    dv_tensor *out;
};

static int add_columns(const struct add *a, int64_t columns)
{
    const int64_t m = a->x->shape[1];
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        for (int64_t k = 0; k < m; k++)
            ((int32_t *)a->out->data)[i * m + k] = ((const int32_t *)a->x->data)[i * m + k] +
                (k < columns ? ((const int32_t *)a->y->data)[i * m + k] : 0);
    return DV_OK;
}
static int add_pairs(dv_context *ctx, const struct add *a) { return (void)ctx, add_columns(a, a->x->shape[1] / 2 * 2); }
static int add_plain(dv_context *ctx, const struct add *a) { return (void)ctx, add_columns(a, a->x->shape[1]); }

DV_OPERATOR(add, struct add, (x, y, out), .schema = "add(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[n m]:i32, y[n m]:i32 -> out[n m]:i32",
    .kernels = DV_KERNELS(DV_KERNEL(struct add, "cpu", "i32", add_pairs, .when = "m % 2 == 0 or n % 2 == 0"),
        DV_KERNEL(struct add, "cpu", "i32", add_plain, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_add);
