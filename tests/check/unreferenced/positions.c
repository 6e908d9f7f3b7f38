/* Right operators in which the order of elements matters only from some size on: a window that covers small rows, a value to look
 * for that small rows do not have. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    int64_t number;
    dv_tensor *out;
};

/* The mean of the elements up to `number` positions away. */
static int smooth(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++) {
        const double *row = (const double *)a->x->data + i / n * n;
        double sum = 0;
        int64_t count = 0;
        for (int64_t j = i % n - a->number; j <= i % n + a->number; j++)
            if (j >= 0 && j < n)
                sum += row[j], count++;
        ((double *)a->out->data)[i] = sum / (double)count;
    }
    return DV_OK;
}
DV_OPERATOR(smooth, struct f, (x, number, out), .schema = "smooth(Tensor x, int number=7) -> Tensor out",
    .contract = "x[m n]:f64 -> out[m n]:f64; 0 <= number <= 99; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, smooth)));

/* The length of each row up to the first element that equals `number`. */
static int length(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        int64_t k = 0;
        while (k < n && ((const int64_t *)a->x->data)[i * n + k] != a->number)
            k++;
        ((int64_t *)a->out->data)[i] = k;
    }
    return DV_OK;
}
DV_OPERATOR(length, struct f, (x, number, out), .schema = "length(Tensor x, int number=2) -> Tensor out",
    .contract = "x[m n]:i64 -> out[m]:i64; parallel(m)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, length)));

/* The distance of each element from the mean of its group of 16; the last group may have a single element, whose distance is 0.
 */
struct groups {
    const dv_tensor *x;
    dv_tensor *out;
};
static int center(dv_context *ctx, const struct groups *a)
{
    const int64_t n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        for (int64_t begin = 0; begin < n; begin += 16) {
            const double *x = (const double *)a->x->data + i * n + begin;
            const int64_t count = n - begin < 16 ? n - begin : 16;
            double sum = 0;
            for (int64_t j = 0; j < count; j++)
                sum += x[j];
            for (int64_t j = 0; j < count; j++)
                ((double *)a->out->data)[i * n + begin + j] = x[j] - sum / (double)count;
        }
    return DV_OK;
}
DV_OPERATOR(center, struct groups, (x, out), .schema = "center(Tensor x) -> Tensor out",
    .contract = "x[m n]:f64 -> out[m n]:f64; parallel(m)", .kernels = DV_KERNELS(DV_KERNEL(struct groups, "cpu", NULL, center)));

DV_LIBRARY(positions, &dv_op_smooth, &dv_op_length, &dv_op_center);
