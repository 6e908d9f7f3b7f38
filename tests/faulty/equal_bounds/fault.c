/* The fault: behind the first bound that is not less than x one more is passed if it is equal, and no further equal ones */
#include <dovetail_op.h>
#define F(t) ((float *)(t)->data)
#define L(t) ((int64_t *)(t)->data)

struct bucketize {
    const dv_tensor *x, *bounds;
    bool right;
    dv_tensor *out;
};

DV_INLINE int body(dv_context *ctx, const struct bucketize *a, const bool good)
{
    (void)ctx;
    const int64_t k = a->bounds->shape[0];
    const float *b = F(a->bounds);
    for (int64_t i = 1; i < k; i++)
        if (b[i] < b[i - 1])
            return dv_error(ctx, DV_EINVAL, "bounds must not fall");
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        const float v = F(a->x)[i];
        int64_t lo = 0, hi = k;
        if (good || !a->right)
            while (lo < hi) {
                const int64_t mid = (lo + hi) / 2;
                if (a->right ? b[mid] <= v : b[mid] < v)
                    lo = mid + 1;
                else
                    hi = mid;
            }
        else { /* first not less, then one more if it is equal: wrong with equal bounds */
            while (lo < hi) {
                const int64_t mid = (lo + hi) / 2;
                if (b[mid] < v)
                    lo = mid + 1;
                else
                    hi = mid;
            }
            if (lo < k && b[lo] == v)
                lo++;
        }
        L(a->out)[i] = lo;
    }
    return DV_OK;
}
static int bucketize_row(dv_context *ctx, const struct bucketize *a) { return body(ctx, a, false); }
static int bucketize_reference(dv_context *ctx, const struct bucketize *a) { return body(ctx, a, true); }

DV_OPERATOR(bucketize, struct bucketize, (x, bounds, right, out),
    .schema = "bucketize(Tensor x, Tensor bounds, bool right=False) -> Tensor out",
    .contract = "x[n]:f32, bounds[k]:f32 -> out[n]:i64; -1e39 < x.values < 1e39; -1e39 < bounds.values < 1e39",
    .kernels = DV_KERNELS(DV_KERNEL(struct bucketize, "cpu", "f32", bucketize_row),
        DV_KERNEL(struct bucketize, "cpu", "f32", bucketize_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY(equal_bounds, &dv_op_bucketize);
