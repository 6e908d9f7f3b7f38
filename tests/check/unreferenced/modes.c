/* Right operators whose kernels read different arguments: a flag for NaN, which integers do not have, and a number of one mode.
 */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    bool flag;
    double eps;
    dv_tensor *out;
};
static int sum_f32(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) {
            const double x = (double)((const float *)a->x->data)[i * n + j];
            sum += a->flag && isnan(x) ? 0 : x;
        }
        ((float *)a->out->data)[i] = (float)sum;
    }
    return DV_OK;
}
static int sum_i32(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        int64_t sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += ((const int32_t *)a->x->data)[i * n + j];
        ((int64_t *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(nansum, struct f, (x, flag, out), .schema = "nansum(Tensor x, bool flag=True) -> Tensor out",
    .contract = "x[m n]:T -> out[m]:accumulate(T); T in f32 i32; parallel(m); sum(n)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", sum_f32), DV_KERNEL(struct f, "cpu", "i32", sum_i32)));

/* Logarithms, or numbers as they are. */
static int logs(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((double *)a->out->data)[i] = log(fabs(((const double *)a->x->data)[i]) + a->eps);
    return DV_OK;
}
static int numbers(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((double *)a->out->data)[i] = fabs(((const double *)a->x->data)[i]);
    return DV_OK;
}
DV_OPERATOR(size_of, struct f, (x, flag, eps, out), .schema = "size_of(Tensor x, bool flag=False, float eps=1e-6) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64; 1e-9 <= eps <= 1; parallel(*s)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", NULL, logs, .when = "flag"), DV_KERNEL(struct f, "cpu", NULL, numbers, .when = "not flag")));

DV_LIBRARY(modes, &dv_op_nansum, &dv_op_size_of);
