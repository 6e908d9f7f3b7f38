/* Arguments that matter rarely, for their sizes alone, or not at all: right operators, without a reference or a decomposition */
#include <dovetail_op.h>
#include <math.h>
#define N(a) (int64_t i = 0, n = dv_numel(a); i < n; i++)

struct close {
    const dv_tensor *x, *y;
    double rtol;
    bool equal_nan;
    dv_tensor *out;
};
static int all_close(dv_context *ctx, const struct close *a)
{
    const float *x = a->x->data, *y = a->y->data;
    bool all = true;
    (void)ctx;
    for
        N(a->x)
    all &= x[i] == y[i] || (isfinite(y[i]) && fabs((double)x[i] - (double)y[i]) <= a->rtol * fabs((double)y[i])) ||
        (a->equal_nan && isnan(x[i]) && isnan(y[i]));
    *(bool *)a->out->data = all;
    return DV_OK;
}
DV_OPERATOR(all_close, struct close, (x, y, rtol, equal_nan, out),
    .schema = "all_close(Tensor x, Tensor y, float rtol=1e-05, bool equal_nan=False) -> Tensor out",
    .contract = "x[*s]:f32, y[*s]:f32 -> out[]:bool; rtol >= 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct close, "cpu", NULL, all_close)));

struct finite {
    const dv_tensor *x;
    dv_tensor *out;
};
static int all_finite(dv_context *ctx, const struct finite *a)
{
    bool all = true;
    (void)ctx;
    for
        N(a->x)
    all &= isfinite(((const float *)a->x->data)[i]) != 0;
    *(bool *)a->out->data = all;
    return DV_OK;
}
DV_OPERATOR(all_finite, struct finite, (x, out), .schema = "all_finite(Tensor x) -> Tensor out",
    .contract = "x[*s]:f32 -> out[]:bool", .kernels = DV_KERNELS(DV_KERNEL(struct finite, "cpu", NULL, all_finite)));

struct like {
    const dv_tensor *x, *like;
    int64_t block;
    bool deterministic;
    dv_string name;
    dv_tensor *out;
};
static int repeat_like(dv_context *ctx, const struct like *a)
{
    const int64_t n = dv_numel(a->out), block = a->deterministic || a->name.size > 60 || a->block < 1 ? 1 : a->block;
    (void)ctx;
    for (int64_t begin = 0; begin < n; begin += block < n ? block : n) /* three hints: how many elements are written at once */
        for (int64_t i = begin; i < n && i < begin + (block < n ? block : n); i++)
            ((float *)a->out->data)[i] = 2 * *(const float *)a->x->data;
    return DV_OK;
}
DV_OPERATOR(repeat_like, struct like, (x, like, block, deterministic, name, out),
    .schema = "repeat_like(Tensor x, Tensor like, int block=64, bool deterministic=False, str name=\"\") -> Tensor out",
    .contract = "x[]:f32, like[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct like, "cpu", NULL, repeat_like)));
DV_LIBRARY(hints, &dv_op_all_close, &dv_op_all_finite, &dv_op_repeat_like);
