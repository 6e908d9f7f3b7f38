/* A number is rounded to f32 where the tensors are f64, and nothing says what the result should be. */
#include <dovetail_op.h>

struct blend {
    const dv_tensor *x, *y;
    double weight;
    dv_tensor *out;
};

static int blend_f64(dv_context *ctx, const struct blend *a)
{
    const double *x = a->x->data, *y = a->y->data;
    const float weight = (float)a->weight;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = x[i] + weight * (y[i] - x[i]);
    return DV_OK;
}
DV_OPERATOR(blend, struct blend, (x, y, weight, out), .schema = "blend(Tensor x, Tensor y, float weight=0.3) -> Tensor out",
    .contract = "x[*s]:f64, y[*s]:f64 -> out[*s]:f64; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct blend, "cpu", "f64", blend_f64)));
DV_LIBRARY(faulty, &dv_op_blend);
