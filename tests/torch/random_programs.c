/* Declared operators of test_random_programs.py. The result of each one changes if an argument that it reads lies in memory that
 * it writes. */
#include <dovetail_op.h>

struct rev {
    const dv_tensor *src;
    dv_tensor *dst;
};
static int rev_f32(dv_context *ctx, const struct rev *a)
{
    const float *src = a->src->data;
    float *dst = a->dst->data;
    const int64_t n = dv_numel(a->src);
    (void)ctx;
    for (int64_t k = 0; k < n; k++)
        dst[n - 1 - k] = src[k];
    return DV_OK;
}
DV_OPERATOR(rev, struct rev, (src, dst), .schema = "rev(Tensor src, Tensor(a!) dst) -> ()",
    .contract = "src[*s]:f32, dst[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct rev, "cpu", "f32", rev_f32)));

struct rev_key {
    dv_tensor *dst;
    const dv_tensor *src, *more;
};
static int rev_key_f32(dv_context *ctx, const struct rev_key *a)
{
    const int64_t n = dv_numel(a->src);
    (void)ctx;
    for (int64_t k = 0; k < n; k++)
        ((float *)a->dst->data)[n - 1 - k] = ((const float *)a->src->data)[k] + (a->more ? ((const float *)a->more->data)[k] : 1);
    return DV_OK;
}
DV_OPERATOR(rev_key, struct rev_key, (dst, src, more),
    .schema = "rev_key(Tensor(a!) dst, *, Tensor src, Tensor? more=None) -> ()",
    .contract = "dst[*s]:f32, src[*s]:f32, more[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct rev_key, "cpu", "f32", rev_key_f32)));

struct two { dv_tensor *x, *y; };
static int two_f32(dv_context *ctx, const struct two *a)
{
    float *x = a->x->data, *y = a->y->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        x[i] += 1;
    for (int64_t i = 0, n = dv_numel(a->y); i < n; i++)
        y[i] += 2;
    return DV_OK;
}
DV_OPERATOR(two, struct two, (x, y), .schema = "two(Tensor(a!) x, Tensor(b!) y) -> ()", .contract = "x[*s]:f32, y[*t]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct two, "cpu", "f32", two_f32)));

struct all {
    dv_mut_tensors xs;
    dv_tensors ys;
};
static int all_f32(dv_context *ctx, const struct all *a)
{
    (void)ctx;
    for (size_t j = 0; j < a->xs.size; j++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[j]); i < n; i++)
            ((float *)a->xs.data[j]->data)[i] = ((const float *)a->ys.data[j]->data)[n - 1 - i] + (float)j;
    return DV_OK;
}
DV_OPERATOR(all, struct all, (xs, ys), .schema = "all(Tensor(a!)[] xs, Tensor[] ys) -> ()",
    .contract = "xs{i}[*s{i}]:f32, ys{i}[*s{i}]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct all, "cpu", "f32", all_f32)));

struct turned {
    const dv_tensor *x;
    dv_tensor *out;
};
static int turned_f32(dv_context *ctx, const struct turned *a)
{
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    for (int64_t k = 0; k < n; k++)
        ((float *)a->out->data)[n - 1 - k] = ((const float *)a->x->data)[k];
    return DV_OK;
}
DV_OPERATOR(turned, struct turned, (x, out), .schema = "turned(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct turned, "cpu", "f32", turned_f32)));

DV_LIBRARY(random_programs, &dv_op_rev, &dv_op_rev_key, &dv_op_two, &dv_op_all, &dv_op_turned);
