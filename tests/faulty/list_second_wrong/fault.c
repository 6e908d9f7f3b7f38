/* The fault: the second tensor of the result, a list, has another value */
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
        for (int64_t i = 0; i < dv_numel(a->outs.data[k]); i++)
            out[i] = x[i] + (k == 1 ? 2 : 1) * y[i];
    }
    return DV_OK;
}

static int right(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->outs.size; k++) {
        const float *x = a->xs.data[k]->data, *y = a->ys.data[k]->data;
        float *out = a->outs.data[k]->data;
        for (int64_t i = 0; i < dv_numel(a->outs.data[k]); i++)
            out[i] = x[i] + y[i];
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (xs, ys, outs), .schema = "f(Tensor[] xs, Tensor[] ys) -> Tensor[] outs",
    .contract = "xs{i}[*s{i}]:T, ys{i}[*s{i}]:T -> outs{i}[*s{i}]:T",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", right, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(list_second_wrong, &dv_op_f);
