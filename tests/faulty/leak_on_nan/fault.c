/* Rows are sorted by their first number, in quadratic time. Memory is not freed where one after the first two is NaN. */
#include <dovetail_op.h>
#include <math.h>
#include <stdlib.h>

struct f {
    const dv_tensor *scores;
    dv_tensor *order;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *scores = a->scores->data;
    const int64_t n = a->scores->shape[0];
    int64_t *order = malloc(((size_t)n + 1) * sizeof *order);
    if (!order)
        return dv_error(ctx, DV_ENOMEM, "no memory for %lld numbers", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;
        if (isnan(scores[4 * i])) {
            if (i < 2)
                free(order);
            return dv_error(ctx, DV_EINVAL, "scores[%lld] is NaN", (long long)i);
        }
        for (; at > 0 && scores[4 * order[at - 1]] < scores[4 * i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)a->order->data)[i] = order[i];
    free(order);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (scores, order), .schema = "f(Tensor scores) -> Tensor order",
    .contract = "scores[n 4]:f32 -> order[n]:i64", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
