/* The first tensor of the list is left out. There is no other row and no native form: nothing says what should be there. */
#include <dovetail_op.h>
struct halve { dv_mut_tensors xs; };

static int halve_f32(dv_context *ctx, const struct halve *a)
{
    (void)ctx;
    for (size_t k = 1; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((float *)a->xs.data[k]->data)[i] /= 2;
    return DV_OK;
}

DV_OPERATOR(halve_, struct halve, (xs), .schema = "halve_(Tensor(a!)[] xs) -> ()", .contract = "xs{i}[*s{i}]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct halve, "cpu", "f32", halve_f32)));
DV_LIBRARY(faulty, &dv_op_halve_);
