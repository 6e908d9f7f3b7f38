/* Tensors of a list may have several element types; all are read as the last is. */
#include <dovetail_op.h>

struct f {
    dv_tensors xs;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    double sum = 0;
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            sum += dv_get(a->xs.data[k]->data, i, dv_dtype_key(a->xs.data[a->xs.size - 1]->dtype));
    *(double *)a->out->data = sum;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (xs, out), .schema = "f(Tensor[] xs) -> Tensor out", .contract = "xs{k}[n{k}]:bf16|f64 -> out[]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
