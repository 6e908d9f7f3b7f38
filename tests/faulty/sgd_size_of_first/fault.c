/* A fused step of SGD that takes the size of the first parameter for that of all. */
#include <dovetail_op.h>
struct sgd {
    dv_mut_tensors params;
    dv_tensors grads;
    double lr;
};
static int sgd_f32(dv_context *ctx, const struct sgd *a)
{
    const int64_t n = dv_numel(a->params.data[0]);
    (void)ctx;
    for (size_t k = 0; k < a->params.size; k++) {
        float *p = a->params.data[k]->data;
        const float *g = a->grads.data[k]->data;
        for (int64_t i = 0; i < n; i++)
            p[i] -= (float)a->lr * g[i];
    }
    return DV_OK;
}
DV_OPERATOR(sgd_, struct sgd, (params, grads, lr), .schema = "sgd_(Tensor(a!)[] params, Tensor[] grads, float lr) -> ()",
    .contract = "params{i}[*s{i}]:T, grads{i}[*s{i}]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct sgd, "cpu", "f32", sgd_f32)));
DV_LIBRARY(faulty, &dv_op_sgd_);
