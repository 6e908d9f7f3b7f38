/* The gradient forgets what comes back through the second tensor of a result that is a list. */
#include <dovetail_op.h>

struct added {
    const dv_tensor *x;
    dv_tensors ys;
    dv_mut_tensors outs;
};

static int added_f64(dv_context *ctx, const struct added *a)
{
    const double *x = a->x->data;
    (void)ctx;
    for (size_t k = 0; k < a->outs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
            ((double *)a->outs.data[k]->data)[i] = x[i] + ((const double *)a->ys.data[k]->data)[i];
    return DV_OK;
}

DV_OPERATOR(added, struct added, (x, ys, outs), .schema = "added(Tensor x, Tensor[] ys) -> Tensor[] outs",
    .contract = "x[*s]:T, ys{i}[*s]:T -> outs{i}[*s]:T; T in f64; len(ys) >= 1; len(ys) <= 2", .gradient = "x: grad[0]; ys: grad",
    .kernels = DV_KERNELS(DV_KERNEL(struct added, "cpu", "f64", added_f64)));
DV_LIBRARY(gradient_of_list, &dv_op_added);
