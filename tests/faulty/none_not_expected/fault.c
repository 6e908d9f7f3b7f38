/* Uses an optional tensor as if it were always there. */
#include <dovetail_op.h>
struct add {
    const dv_tensor *x, *bias;
    dv_tensor *out;
};
static int add_f32(dv_context *ctx, const struct add *a)
{
    const float *x = a->x->data, *bias = a->bias->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = x[i] + bias[i];
    return DV_OK;
}
DV_OPERATOR(add, struct add, (x, bias, out), .schema = "add(Tensor x, Tensor? bias=None) -> Tensor out",
    .contract = "x[*s]:T, bias[*s]:T -> out[*s]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct add, "cpu", "f32", add_f32)));
DV_LIBRARY(faulty, &dv_op_add);
