/* Right operators in which the last item of a list often has no influence. */
#include <dovetail_op.h>
#include <math.h>

struct most {
    dv_tensors xs;
    dv_tensor *out;
};
/* The elementwise maximum of a list of tensors. */
static int most(dv_context *ctx, const struct most *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        float y = -INFINITY;
        for (size_t k = 0; k < a->xs.size; k++) {
            const float x = ((const float *)a->xs.data[k]->data)[i];
            y = isnan(y) || x < y ? y : x;
        }
        ((float *)a->out->data)[i] = y;
    }
    return DV_OK;
}
DV_OPERATOR(most, struct most, (xs, out), .schema = "most(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[*s]:f32 -> out[*s]:f32; len(xs) >= 1", .kernels = DV_KERNELS(DV_KERNEL(struct most, "cpu", NULL, most)));

struct bucket {
    const dv_tensor *x;
    dv_floats edges;
    dv_tensor *out;
};
/* How many edges an element reaches, up to the first that it does not: edges that are not ascending have no influence. */
static int bucket(dv_context *ctx, const struct bucket *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        int64_t k = 0;
        while (k < (int64_t)a->edges.size && ((const float *)a->x->data)[i] >= a->edges.data[k])
            k++;
        ((int64_t *)a->out->data)[i] = k;
    }
    return DV_OK;
}
DV_OPERATOR(bucket, struct bucket, (x, edges, out), .schema = "bucket(Tensor x, float[] edges) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:i64; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct bucket, "cpu", NULL, bucket)));

struct polynomial {
    const dv_tensor *x;
    dv_floats c;
    dv_tensor *out;
};
/* c[0] + c[1] x + c[2] x^2 + ...: high powers of small numbers have little influence. */
static int polynomial(dv_context *ctx, const struct polynomial *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        double y = 0;
        for (size_t k = a->c.size; k-- > 0;)
            y = y * ((const float *)a->x->data)[i] + a->c.data[k];
        ((float *)a->out->data)[i] = (float)y;
    }
    return DV_OK;
}
DV_OPERATOR(polynomial, struct polynomial, (x, c, out), .schema = "polynomial(Tensor x, float[] c) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct polynomial, "cpu", NULL, polynomial)));

DV_LIBRARY(lists, &dv_op_most, &dv_op_bucket, &dv_op_polynomial);
