/* out is overwritten, so nothing flows to its old value; the gradient says that all of it does. */
#include <dovetail_op.h>
#include <math.h>
struct sine {
    const dv_tensor *x;
    dv_tensor *out;
};

static int sine_f64(dv_context *ctx, const struct sine *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = sin(((const double *)a->x->data)[i]);
    return DV_OK;
}

DV_OPERATOR(sine, struct sine, (x, out), .schema = "sine(Tensor x, Tensor(a!) out) -> ()", .contract = "x[*s]:f64, out[*s]:f64",
    .gradient = "x: grad * cos(x); out: grad", .kernels = DV_KERNELS(DV_KERNEL(struct sine, "cpu", "f64", sine_f64)));
DV_LIBRARY(faulty, &dv_op_sine);
