/* An exclusive sum as the whole sum less the element: where that is infinite it is NaN. */
#include <dovetail_op.h>
struct scan {
    const dv_tensor *x;
    bool exclusive, reverse;
    dv_tensor *out;
};
static int scan_fast(dv_context *ctx, const struct scan *a)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)a->x->data + r * n;
        double *out = (double *)a->out->data + r * n, sum = 0;
        if (a->reverse) {
            for (int64_t i = n - 1; i >= 0; i--) {
                sum += x[i];
                out[i] = a->exclusive ? sum - x[i] : sum;
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                out[i] = a->exclusive ? sum : sum + x[i];
                sum += x[i];
            }
        }
    }
    return DV_OK;
}
static int scan_ref(dv_context *ctx, const struct scan *a)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)a->x->data + r * n;
        double *out = (double *)a->out->data + r * n, sum = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t i = a->reverse ? n - 1 - k : k;
            out[i] = a->exclusive ? sum : sum + x[i];
            sum += x[i];
        }
    }
    return DV_OK;
}
DV_OPERATOR(scan, struct scan, (x, exclusive, reverse, out),
    .schema = "scan(Tensor x, bool exclusive=False, bool reverse=False) -> Tensor out",
    .contract = "x[*s n]:f64 -> out[*s n]:f64; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct scan, "cpu", NULL, scan_fast, .split = 4),
        DV_KERNEL(struct scan, "cpu", NULL, scan_ref, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_scan);
