/* The backward kernel clips the gradient, as a guard against overflow: it is not linear, where grad is larger than 1000. */
#include <dovetail_op.h>
#include <math.h>
struct one {
    const dv_tensor *x;
    dv_tensor *out;
};

static int times(const struct one *a, double by, double most)
{
    const double *x = a->x->data;
    double *out = a->out->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = by * (x[i] > most ? most : x[i] < -most ? -most : x[i]);
    return DV_OK;
}

static int triple_f64(dv_context *ctx, const struct one *a)
{
    (void)ctx;
    return times(a, 3, INFINITY);
}

static int back_f64(dv_context *ctx, const struct one *a)
{
    (void)ctx;
    return times(a, 3, 1000);
}

DV_OPERATOR(triple, struct one, (x, out), .schema = "triple(Tensor x) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)", .native = "3 * x", .gradient = "x: triple_back(grad)",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f64", triple_f64)));
DV_OPERATOR(triple_back, struct one, (x, out), .schema = "triple_back(Tensor x) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f64", back_f64)));
DV_LIBRARY(faulty, &dv_op_triple, &dv_op_triple_back);
