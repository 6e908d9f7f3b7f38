/* The fault: y has no clause, though the result depends on it */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const double *x = a->x->data, *y = a->y->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((double *)a->out->data)[i] = x[i] + sin(y[i]);
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:f64, y[*s]:f64 -> out[*s]:f64; parallel(*s)", .native = "x + sin(y)", .gradient = "x: grad",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_LIBRARY(gradient_missing, &dv_op_f);
