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

/* Views. */
struct unbind {
    const dv_tensor *x;
    int64_t dim;
    dv_mut_tensors out;
};
DV_OPERATOR(unbind, struct unbind, (x, dim, out), .schema = "unbind(Tensor(a) x, int dim=0) -> Tensor(a)[] out",
    .contract = "x[...] -> out{i < size(x, dim)} view(x, select(dim, i)); rank(x) > 0");
struct transpose_all {
    dv_tensors xs;
    dv_mut_tensors out;
};
DV_OPERATOR(transpose_all, struct transpose_all, (xs, out), .schema = "transpose_all(Tensor(a)[] xs) -> Tensor(a)[] out",
    .contract = "xs{i}[n{i} m{i}] -> out{i} view(xs, swap(0, 1))");

/* What each tensor has of its own: dtype, strides, sizes. */
struct clone_all {
    dv_tensors xs;
    dv_mut_tensors out;
};
static int clone_all(dv_context *ctx, const struct clone_all *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        memcpy(a->out.data[k]->data, a->xs.data[k]->data, (size_t)dv_numel(a->xs.data[k]) * a->xs.data[k]->dtype.bits / 8);
    return DV_OK;
}
DV_OPERATOR(clone_all, struct clone_all, (xs, out), .schema = "clone_all(Tensor[] xs) -> Tensor[] out",
    .contract = "xs{i}[*s{i}] -> out{i}[*s{i}]:dtype(xs{i})",
    .kernels = DV_KERNELS(DV_KERNEL(struct clone_all, "cpu", NULL, clone_all)));
DV_OPERATOR(like_all, struct clone_all, (xs, out), .schema = "like_all(Tensor[] xs) -> Tensor[] out",
    .contract = "xs{i}[...] -> out{i} like(xs); strided(xs), strided(out)",
    .kernels = DV_KERNELS(DV_KERNEL(struct clone_all, "cpu", NULL, clone_all)));
static int twice(dv_context *ctx, const struct clone_all *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int r = 0; r < 2; r++)
            memcpy((char *)a->out.data[k]->data + (size_t)r * (size_t)dv_numel(a->xs.data[k]) * 4, a->xs.data[k]->data,
                (size_t)dv_numel(a->xs.data[k]) * 4);
    return DV_OK;
}
DV_OPERATOR(twice, struct clone_all, (xs, out), .schema = "twice(Tensor[] xs) -> Tensor[] out",
    .contract = "xs{i}[n{i} *s{i}]:f32 -> out{i}[2*n{i} *s{i}]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct clone_all, "cpu", NULL, twice)));
struct scale {
    dv_mut_tensors xs;
    double by;
};
static int scale_all_run(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0; i < dv_numel(a->xs.data[k]); i++)
            ((float *)a->xs.data[k]->data)[i] *= (float)a->by;
    return DV_OK;
}
DV_OPERATOR(scale_all_, struct scale, (xs, by), .schema = "scale_all_(Tensor(a!)[] xs, float by) -> ()",
    .contract = "xs{i}[...]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", NULL, scale_all_run)));
struct ranges {
    const dv_tensor *like;
    int64_t n;
    dv_mut_tensors out;
};
static int ranges(dv_context *ctx, const struct ranges *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->out.size; k++)
        for (int64_t i = 0; i < dv_numel(a->out.data[k]); i++)
            ((float *)a->out.data[k]->data)[i] = (float)i;
    return DV_OK;
}
DV_OPERATOR(ranges, struct ranges, (like, n, out), .schema = "ranges(Tensor? like, int n) -> Tensor[] out",
    .contract = "like[...] -> out{i < n}[i]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct ranges, "cpu", NULL, ranges)));
struct windows {
    const dv_tensor *x;
    int64_t step;
    dv_mut_tensors out;
};
DV_OPERATOR(windows, struct windows, (x, step, out), .schema = "windows(Tensor(a) x, int step) -> Tensor(a)[] out",
    .contract = "x[n] -> out{i < 2}[2] view(x) strides[1] offset(i * step)");
DV_LIBRARY(list_ops, &dv_op_foreach_mul, &dv_op_foreach_add, &dv_op_split_copy, &dv_op_adamw_, &dv_op_unbind,
    &dv_op_transpose_all, &dv_op_clone_all, &dv_op_like_all, &dv_op_twice, &dv_op_scale_all_, &dv_op_ranges, &dv_op_windows);
