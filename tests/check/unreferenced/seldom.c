/* Right operators with an argument that matters for few contents of the others. */
#include <dovetail_op.h>
#include <math.h>
#include <string.h>

struct first_valid {
    dv_tensors xs;
    dv_tensor *out;
};
/* Element by element the first number that is not NaN; NaN if there is none. */
static int first_valid(dv_context *ctx, const struct first_valid *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        float y = NAN;
        for (size_t k = 0; k < a->xs.size && isnan(y); k++)
            y = ((const float *)a->xs.data[k]->data)[i];
        ((float *)a->out->data)[i] = y;
    }
    return DV_OK;
}
DV_OPERATOR(first_valid, struct first_valid, (xs, out), .schema = "first_valid(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct first_valid, "cpu", NULL, first_valid)));

struct coalesce {
    const dv_tensor *like;
    dv_tensors xs;
    dv_tensor *out;
};
/* The first tensor that is given; zeros if there is none. */
static int coalesce(dv_context *ctx, const struct coalesce *a)
{
    const size_t bytes = (size_t)dv_numel(a->out) * sizeof(float);
    size_t k = 0;
    (void)ctx;
    while (k < a->xs.size && !a->xs.data[k])
        k++;
    if (bytes && k < a->xs.size)
        memcpy(a->out->data, a->xs.data[k]->data, bytes);
    else if (bytes)
        memset(a->out->data, 0, bytes);
    return DV_OK;
}
DV_OPERATOR(coalesce, struct coalesce, (like, xs, out), .schema = "coalesce(Tensor like, Tensor?[] xs) -> Tensor out",
    .contract = "like[*s]:f32, xs{i}[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct coalesce, "cpu", NULL, coalesce)));

struct level {
    const dv_tensor *x;
    dv_floats cuts;
    dv_tensor *out;
};
/* The first of the cuts that is not below the element; the element if all are. */
static int level(dv_context *ctx, const struct level *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float x = ((const float *)a->x->data)[i];
        size_t k = 0;
        while (k < a->cuts.size && !((float)a->cuts.data[k] >= x))
            k++;
        ((float *)a->out->data)[i] = k < a->cuts.size ? (float)a->cuts.data[k] : x;
    }
    return DV_OK;
}
DV_OPERATOR(level, struct level, (x, cuts, out), .schema = "level(Tensor x, float[] cuts) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct level, "cpu", NULL, level)));

struct sgd {
    dv_tensor *p;
    const dv_tensor *grad, *found_inf;
    double lr;
};
/* A step, left out if found_inf is not 0, as in mixed precision. */
static int sgd(dv_context *ctx, const struct sgd *a)
{
    (void)ctx;
    for (int64_t i = 0, n = *(const float *)a->found_inf->data > 0 || *(const float *)a->found_inf->data < 0 ? 0 : dv_numel(a->p);
        i < n; i++)
        ((float *)a->p->data)[i] -= (float)a->lr * ((const float *)a->grad->data)[i];
    return DV_OK;
}
DV_OPERATOR(sgd_, struct sgd, (p, grad, found_inf, lr),
    .schema = "sgd_(Tensor(a!) p, Tensor grad, Tensor found_inf, float lr=0.1) -> Tensor(a!)",
    .contract = "p[*s]:f32, grad[*s]:f32, found_inf[]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct sgd, "cpu", NULL, sgd)));

struct repair {
    dv_tensor *x;
    double by;
};
/* Replaces NaN. */
static int repair(dv_context *ctx, const struct repair *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        if (isnan(((float *)a->x->data)[i]))
            ((float *)a->x->data)[i] = (float)a->by;
    return DV_OK;
}
DV_OPERATOR(repair_, struct repair, (x, by), .schema = "repair_(Tensor(a!) x, float by=0.0) -> Tensor(a!)",
    .contract = "x[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct repair, "cpu", NULL, repair)));

struct unit {
    const dv_tensor *x;
    double fill;
    dv_tensor *out;
};
/* Rows of length 1; `fill` in the place of rows of zeros. */
static int unit(dv_context *ctx, const struct unit *a)
{
    const int64_t n = a->x->shape[a->x->ndim - 1];
    (void)ctx;
    for (int64_t i = 0, m = dv_numel_leading(a->x, a->x->ndim - 1); i < m; i++) {
        const float *x = (const float *)a->x->data + i * n;
        float *out = (float *)a->out->data + i * n;
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += (double)x[j] * x[j];
        for (int64_t j = 0; j < n; j++)
            out[j] = sum > 0 || isnan(sum) ? (float)(x[j] / sqrt(sum)) : (float)a->fill;
    }
    return DV_OK;
}
DV_OPERATOR(unit, struct unit, (x, fill, out), .schema = "unit(Tensor x, float fill=0.0) -> Tensor out",
    .contract = "x[*s n]:f32 -> out[*s n]:f32; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct unit, "cpu", NULL, unit)));

DV_LIBRARY(seldom, &dv_op_first_valid, &dv_op_coalesce, &dv_op_level, &dv_op_sgd_, &dv_op_repair_, &dv_op_unit);
