/* The number that it returns counts its calls as well. */
#include <dovetail_op.h>

struct total {
    const dv_tensor *x;
    double *total;
};

static int total_f32(dv_context *ctx, const struct total *a)
{
    static int64_t calls;
    const float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    double sum = 0;
    (void)ctx;
    calls++;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    *a->total = sum + (double)calls;
    return DV_OK;
}
DV_OPERATOR(total, struct total, (x, total), .schema = "total(Tensor x) -> float total", .contract = "x[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct total, "cpu", "f32", total_f32)));
DV_LIBRARY(faulty, &dv_op_total);
