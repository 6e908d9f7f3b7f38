/* Of several tensors the last one is left out. */
#include <dovetail_op.h>
struct halve { dv_mut_tensors xs; };
static int halve(dv_context *ctx, const struct halve *a)
{
    (void)ctx;
    for (size_t k = 0; k + (a->xs.size > 1) < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((float *)a->xs.data[k]->data)[i] *= 0.5f;
    return DV_OK;
}
DV_OPERATOR(halve, struct halve, (xs), .schema = "halve_(Tensor(a!)[] xs) -> ()", .contract = "xs{i}[*s{i}]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct halve, "cpu", NULL, halve)));
DV_LIBRARY(faulty, &dv_op_halve);
