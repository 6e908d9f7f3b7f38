/* sigmoid.c: 1 / (1 + e^-x), and its gradient */
#include <dovetail_math.h>
#include <math.h>

struct sigmoid {
    const dv_tensor *x;
    dv_tensor *out;
};

static int sigmoid_reference(dv_context *ctx, const struct sigmoid *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        dv_put_f64(a->out->data, i, t, 1 / (1 + exp(-dv_get_f64(a->x->data, i, t))));
    return DV_OK;
}

DV_INLINE void sigmoid_f32(float *const *out, const float *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    out[0][i] = dv_sigmoidf(in[0][i]);
}
DV_INLINE void sigmoid_f64(double *const *out, const double *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    out[0][i] = dv_sigmoid(in[0][i]);
}

DV_INLINE int sigmoid_row(dv_context *ctx, const struct sigmoid *a)
{
    (void)ctx;
    dv_blocks(a->x->dtype, dv_numel(a->x), DV_OUT(a->out), DV_IN(a->x), NULL, sigmoid_f32, sigmoid_f64);
    return DV_OK;
}
DV_ISAS(struct sigmoid, sigmoid_row)

DV_OPERATOR(sigmoid, struct sigmoid, (x, out), .schema = "sigmoid(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32 f64 bf16 f16; parallel(*s)", .native = "base::sigmoid(x)",
    .gradient = "x: sigmoid_backward(grad, result)", .doc = "1 / (1 + exp(-x)), element by element.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct sigmoid, sigmoid_row, "f32 f64 bf16 f16", .split = 16384),
        DV_KERNEL(struct sigmoid, "cpu", "f32 f64 bf16 f16", sigmoid_reference, .flags = DV_KERNEL_REFERENCE)));

struct sigmoid_backward {
    const dv_tensor *grad_output, *output;
    dv_tensor *grad_input;
};

static int sigmoid_backward_reference(dv_context *ctx, const struct sigmoid_backward *a)
{
    const uint32_t t = dv_dtype_key(a->output->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->output); i < n; i++) {
        const double g = dv_get_f64(a->grad_output->data, i, t), y = dv_get_f64(a->output->data, i, t);
        dv_put_f64(a->grad_input->data, i, t, g * y * (1 - y));
    }
    return DV_OK;
}

DV_INLINE void sigmoid_backward_f32(float *const *out, const float *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    out[0][i] = in[0][i] * (1 - in[1][i]) * in[1][i];
}
DV_INLINE void sigmoid_backward_f64(double *const *out, const double *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    out[0][i] = in[0][i] * (1 - in[1][i]) * in[1][i];
}

DV_INLINE int sigmoid_backward_row(dv_context *ctx, const struct sigmoid_backward *a)
{
    (void)ctx;
    dv_blocks(a->output->dtype, dv_numel(a->output), DV_OUT(a->grad_input), DV_IN(a->grad_output, a->output), NULL,
        sigmoid_backward_f32, sigmoid_backward_f64);
    return DV_OK;
}
DV_ISAS(struct sigmoid_backward, sigmoid_backward_row)

DV_OPERATOR(sigmoid_backward, struct sigmoid_backward, (grad_output, output, grad_input),
    .schema = "sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor grad_input",
    .contract = "grad_output[*s]:T, output[*s]:T -> grad_input[*s]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native = "grad_output * (1 - output) * output",
    .gradient = "grad_output: sigmoid_backward(grad, output); output: grad * grad_output * (1 - 2 * output)",
    .doc = "grad_output * output * (1 - output): the gradient of sigmoid, from its result.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct sigmoid_backward, sigmoid_backward_row, "f32 f64 bf16 f16", .split = 16384),
        DV_KERNEL(struct sigmoid_backward, "cpu", "f32 f64 bf16 f16", sigmoid_backward_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, sigmoid, &dv_op_sigmoid, &dv_op_sigmoid_backward);
