/* Operators on lists whose tensors share their shapes in pairs, as torch._foreach_* and torch.optim's fused steps do. */
#include <dovetail_op.h>
#include <math.h>

struct foreach_add {
    dv_tensors xs, ys;
    double alpha;
    dv_mut_tensors out;
};
static int foreach_add_f32(dv_context *ctx, const struct foreach_add *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++) {
        const float *x = a->xs.data[k]->data, *y = a->ys.data[k]->data;
        float *out = a->out.data[k]->data;
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            out[i] = x[i] + (float)a->alpha * y[i];
    }
    return DV_OK;
}
DV_OPERATOR(foreach_add, struct foreach_add, (xs, ys, alpha, out),
    .schema = "foreach_add(Tensor[] xs, Tensor[] ys, *, float alpha=1) -> Tensor[] out",
    .contract = "xs{i}[*s{i}]:f32, ys{i}[*s{i}]:f32 -> out{i}[*s{i}]:f32",
    .gradient = "xs: grad; ys: list_ops::foreach_mul(grad, alpha)",
    .kernels = DV_KERNELS(DV_KERNEL(struct foreach_add, "cpu", "f32", foreach_add_f32)));

struct foreach_mul {
    dv_tensors xs;
    double by;
    dv_mut_tensors out;
};
static int foreach_mul_f32(dv_context *ctx, const struct foreach_mul *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((float *)a->out.data[k]->data)[i] = (float)a->by * ((const float *)a->xs.data[k]->data)[i];
    return DV_OK;
}
DV_OPERATOR(foreach_mul, struct foreach_mul, (xs, by, out), .schema = "foreach_mul(Tensor[] xs, float by) -> Tensor[] out",
    .contract = "xs{i}[*s{i}]:f32 -> out{i}[*s{i}]:f32", .gradient = "xs: list_ops::foreach_mul(grad, by)",
    .kernels = DV_KERNELS(DV_KERNEL(struct foreach_mul, "cpu", "f32", foreach_mul_f32)));

/* The pieces are copies. */
struct split {
    const dv_tensor *x;
    int64_t size;
    dv_mut_tensors parts;
};
static int split_f32(dv_context *ctx, const struct split *a)
{
    const float *x = a->x->data;
    (void)ctx;
    for (size_t k = 0; k < a->parts.size; k++)
        for (int64_t i = 0, n = dv_numel(a->parts.data[k]); i < n; i++)
            ((float *)a->parts.data[k]->data)[i] = *x++;
    return DV_OK;
}
DV_OPERATOR(split_copy, struct split, (x, size, parts), .schema = "split_copy(Tensor x, SymInt size) -> Tensor[] parts",
    .contract = "x[n *s]:f32 -> parts{i < ceildiv(n, size)}[min(size, n - i*size) *s]:f32; size > 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct split, "cpu", "f32", split_f32)));

/* torch.optim.AdamW(fused=True)'s step, in place. */
struct adamw {
    dv_mut_tensors params;
    dv_tensors grads;
    dv_mut_tensors exp_avgs, exp_avg_sqs, max_exp_avg_sqs;
    int64_t step;
    double lr, beta1, beta2, eps, weight_decay;
    bool amsgrad;
};
static void adamw_one(const struct adamw *a, size_t k)
{
    float *p = a->params.data[k]->data, *m = a->exp_avgs.data[k]->data, *v = a->exp_avg_sqs.data[k]->data;
    const float *g = a->grads.data[k]->data;
    float *most = a->amsgrad ? a->max_exp_avg_sqs.data[k]->data : NULL;
    const double c1 = 1 - pow(a->beta1, (double)a->step), c2 = 1 - pow(a->beta2, (double)a->step);
    for (int64_t i = 0, n = dv_numel(a->params.data[k]); i < n; i++) {
        const double q = p[i] * (1 - a->lr * a->weight_decay);
        m[i] = (float)(m[i] + (g[i] - m[i]) * (1 - a->beta1));
        v[i] = (float)(v[i] * a->beta2 + (1 - a->beta2) * g[i] * g[i]);
        if (most && v[i] > most[i])
            most[i] = v[i];
        p[i] = (float)(q - a->lr / c1 * m[i] / (sqrt(most ? most[i] : v[i]) / sqrt(c2) + a->eps));
    }
}
static int adamw_f32(dv_context *ctx, const struct adamw *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->params.size; k++)
        adamw_one(a, k);
    return DV_OK;
}
DV_OPERATOR(adamw_, struct adamw,
    (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, step, lr, beta1, beta2, eps, weight_decay, amsgrad),
    .schema = "adamw_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
              "Tensor(d!)[] max_exp_avg_sqs, int step, float lr, float beta1, float beta2, float eps, float weight_decay, "
              "bool amsgrad) -> ()",
    .contract = "params{i}[*s{i}]:f32, grads{i}[*s{i}]:f32, exp_avgs{i}[*s{i}]:f32, exp_avg_sqs{i}[*s{i}]:f32;"
                "when amsgrad: max_exp_avg_sqs{i}[*s{i}]:f32 / else: max_exp_avg_sqs{i}[...], len(max_exp_avg_sqs) == 0;"
                "step > 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct adamw, "cpu", "f32", adamw_f32)));

DV_LIBRARY(list_ops, &dv_op_foreach_mul, &dv_op_foreach_add, &dv_op_split_copy, &dv_op_adamw_);
