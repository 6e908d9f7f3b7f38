/* A loop that ends early: flops are the most that a call may do. */
#include <dovetail_op.h>
#include <math.h>

struct first_past {
    const dv_tensor *x;
    double limit;
    dv_tensor *out;
};

static int first_past_f64(dv_context *ctx, const struct first_past *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    const double *x = a->x->data;
    int64_t *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        double sum = 0;
        out[i] = 0;
        while (out[i] < n && (sum += fabs(x[i * n + out[i]])) <= a->limit)
            out[i]++;
    }
    return DV_OK;
}

DV_OPERATOR(first_past, struct first_past, (x, limit, out), .schema = "first_past(Tensor x, float limit=1.0) -> Tensor out",
    .contract = "x[m n]:f64 -> out[m]:i64; flops = m*n; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct first_past, "cpu", NULL, first_past_f64, .split = 16)));

/* The columns of a matrix until a flag ends them: whether any is computed depends on a tensor of one element. */
struct unless {
    const dv_tensor *x, *skip;
    dv_tensor *out;
};

static int unless_f64(dv_context *ctx, const struct unless *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    const double *x = a->x->data;
    double *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        out[i] = x[i * n] * 2;
        for (int64_t j = 0; j < n && *(const double *)a->skip->data == 0; j++)
            out[i] += x[i * n + j];
    }
    return DV_OK;
}

DV_OPERATOR(unless, struct unless, (x, skip, out), .schema = "unless(Tensor x, Tensor skip) -> Tensor out",
    .contract = "x[m n]:f64, skip[]:f64 -> out[m]:f64; n >= 1; flops = m*n; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct unless, "cpu", NULL, unless_f64)));

DV_LIBRARY(early, &dv_op_first_past, &dv_op_unless);
