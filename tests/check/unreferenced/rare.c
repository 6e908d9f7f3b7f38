/* Right operators with a number that matters for empty rows, or for contents that random numbers hardly ever have. */
#include <dovetail_op.h>
#include <float.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    double other;
    dv_tensor *out;
};

/* The largest number of each row; `other` for an empty one. */
static int amax(dv_context *ctx, const struct f *a)
{
    const int64_t k = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        const float *x = (const float *)a->x->data + i * k;
        float y = k ? x[0] : (float)a->other;
        for (int64_t j = 1; j < k; j++)
            y = x[j] > y || isnan(x[j]) ? x[j] : y;
        ((float *)a->out->data)[i] = y;
    }
    return DV_OK;
}
DV_OPERATOR(amax, struct f, (x, other, out), .schema = "amax(Tensor x, float other=0.0) -> Tensor out",
    .contract = "x[n k]:f32 -> out[n]:f32; parallel(n)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, amax)));

/* Denormal numbers are replaced. */
static int flush(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const double x = ((const double *)a->x->data)[i];
        ((double *)a->out->data)[i] = fpclassify(x) == FP_SUBNORMAL ? a->other : x;
    }
    return DV_OK;
}
DV_OPERATOR(flush, struct f, (x, other, out), .schema = "flush(Tensor x, float other=0.0) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, flush)));

/* Replaces zeros below 0. */
static int positive_zero(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float x = ((const float *)a->x->data)[i];
        ((float *)a->out->data)[i] = fpclassify(x) == FP_ZERO && signbit(x) ? (float)a->other : x;
    }
    return DV_OK;
}
DV_OPERATOR(positive_zero, struct f, (x, other, out), .schema = "positive_zero(Tensor x, float other=0.0) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, positive_zero)));

/* The sum of each row; `other` for long rows that rise. */
static int unless_rising(dv_context *ctx, const struct f *a)
{
    const int64_t k = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        const double *x = (const double *)a->x->data + i * k;
        double sum = k ? x[0] : 0;
        bool rises = k > 6;
        for (int64_t j = 1; j < k; j++) {
            sum += x[j];
            rises &= x[j] > x[j - 1];
        }
        ((double *)a->out->data)[i] = rises ? a->other : sum;
    }
    return DV_OK;
}
DV_OPERATOR(unless_rising, struct f, (x, other, out), .schema = "unless_rising(Tensor x, float other=0.0) -> Tensor out",
    .contract = "x[n k]:f64 -> out[n]:f64; parallel(n)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, unless_rising)));

/* The sum of integers; the largest number if it does not fit. */
static int sum(dv_context *ctx, const struct f *a)
{
    int64_t sum = 0;
    bool fits = true;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        fits &= !__builtin_add_overflow(sum, ((const int64_t *)a->x->data)[i], &sum);
    *(double *)a->out->data = fits ? (double)sum : a->other;
    return DV_OK;
}
DV_OPERATOR(sum_or, struct f, (x, other, out), .schema = "sum_or(Tensor x, float other=0.0) -> Tensor out",
    .contract = "x[n]:i64 -> out[]:f64", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, sum)));

DV_LIBRARY(rare, &dv_op_amax, &dv_op_flush, &dv_op_positive_zero, &dv_op_unless_rising, &dv_op_sum_or);
