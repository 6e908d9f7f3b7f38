/* The gradient of x is right with a bias, and half of it without. */
#include <dovetail_op.h>
struct twice {
    const dv_tensor *x, *bias;
    dv_tensor *out;
};

static int twice_f32(dv_context *ctx, const struct twice *a)
{
    const float *x = a->x->data, *bias = a->bias ? a->bias->data : NULL;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = 2 * x[i] + (bias ? bias[i] : 0);
    return DV_OK;
}

DV_OPERATOR(twice, struct twice, (x, bias, out), .schema = "twice(Tensor x, Tensor? bias=None) -> Tensor out",
    .contract = "x[*s]:f32, bias[*s]:f32 -> out[*s]:f32",
    .gradient = "x: if(present(bias), grad * 2, grad); bias: if(present(bias), grad, None)",
    .kernels = DV_KERNELS(DV_KERNEL(struct twice, "cpu", "f32", twice_f32)));
DV_LIBRARY(faulty, &dv_op_twice);
