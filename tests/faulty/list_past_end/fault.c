/* The fault: one element more is written than the last tensor of the result, a list, has */
#include <dovetail_op.h>

struct f {
    dv_tensors xs, ys;
    dv_mut_tensors outs;
};

static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->outs.size; k++) {
        const float *x = a->xs.data[k]->data, *y = a->ys.data[k]->data;
        float *out = a->outs.data[k]->data;
        for (int64_t i = 0, n = dv_numel(a->outs.data[k]); i < n + (k + 1 == a->outs.size); i++)
            out[i] = i < n ? x[i] + y[i] : 0;
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (xs, ys, outs), .schema = "f(Tensor[] xs, Tensor[] ys) -> Tensor[] outs",
    .contract = "xs{i}[*s{i}]:T, ys{i}[*s{i}]:T -> outs{i}[*s{i}]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(list_past_end, &dv_op_f);
