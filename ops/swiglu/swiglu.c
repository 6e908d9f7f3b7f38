/* swiglu.c: silu(gate) * up, and its gradient */
#include <dovetail_math.h>
#include <math.h>

struct swiglu {
    const dv_tensor *gate, *up;
    dv_tensor *out;
};

static int swiglu_reference(dv_context *ctx, const struct swiglu *a)
{
    const uint32_t t = dv_dtype_key(a->gate->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->gate); i < n; i++) {
        const double g = dv_get_f64(a->gate->data, i, t), u = dv_get_f64(a->up->data, i, t);
        dv_put_f64(a->out->data, i, t, g / (1 + exp(-g)) * u);
    }
    return DV_OK;
}

DV_INLINE void swiglu_f32(float *const *out, const float *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    out[0][i] = dv_siluf(in[0][i]) * in[1][i];
}
DV_INLINE void swiglu_f64(double *const *out, const double *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    out[0][i] = dv_silu(in[0][i]) * in[1][i];
}

DV_INLINE int swiglu_row(dv_context *ctx, const struct swiglu *a)
{
    (void)ctx;
    dv_blocks(a->gate->dtype, dv_numel(a->gate), DV_OUT(a->out), DV_IN(a->gate, a->up), NULL, swiglu_f32, swiglu_f64);
    return DV_OK;
}
DV_ISAS(struct swiglu, swiglu_row)

DV_OPERATOR(swiglu, struct swiglu, (gate, up, out), .schema = "swiglu(Tensor gate, Tensor up) -> Tensor out",
    .contract = "gate[*s]:T, up[*s]:T -> out[*s]:T; T in f32 f64 bf16 f16; parallel(*s)", .native = "silu(gate) * up",
    .gradient = "gate, up: swiglu_backward(grad, gate, up)",
    .doc = "silu(gate) * up, element by element: the gate of a SwiGLU feed-forward layer.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct swiglu, swiglu_row, "f32 f64 bf16 f16", .split = 16384),
        DV_KERNEL(struct swiglu, "cpu", "f32 f64 bf16 f16", swiglu_reference, .flags = DV_KERNEL_REFERENCE)));

/* With s = sigmoid(gate): d silu = s (1 + gate (1 - s)). */
struct swiglu_backward {
    const dv_tensor *grad_output, *gate, *up;
    dv_tensor *grad_gate, *grad_up;
};

static int swiglu_backward_reference(dv_context *ctx, const struct swiglu_backward *a)
{
    const uint32_t t = dv_dtype_key(a->gate->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->gate); i < n; i++) {
        const double d = dv_get_f64(a->grad_output->data, i, t), g = dv_get_f64(a->gate->data, i, t);
        const double u = dv_get_f64(a->up->data, i, t), s = 1 / (1 + exp(-g));
        dv_put_f64(a->grad_gate->data, i, t, d * u * (s * (1 + g * (1 - s))));
        dv_put_f64(a->grad_up->data, i, t, d * (g * s));
    }
    return DV_OK;
}

DV_INLINE void swiglu_backward_f32(float *const *out, const float *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    {
        const float d = in[0][i], g = in[1][i], u = in[2][i], s = dv_sigmoidf(g);
        out[0][i] = d * u * (s * (1 + g * (1 - s)));
        out[1][i] = d * (g * s);
    }
}
DV_INLINE void swiglu_backward_f64(double *const *out, const double *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    {
        const double d = in[0][i], g = in[1][i], u = in[2][i], s = dv_sigmoid(g);
        out[0][i] = d * u * (s * (1 + g * (1 - s)));
        out[1][i] = d * (g * s);
    }
}

DV_INLINE int swiglu_backward_row(dv_context *ctx, const struct swiglu_backward *a)
{
    (void)ctx;
    dv_blocks(a->gate->dtype, dv_numel(a->gate), DV_OUT(a->grad_gate, a->grad_up), DV_IN(a->grad_output, a->gate, a->up), NULL,
        swiglu_backward_f32, swiglu_backward_f64);
    return DV_OK;
}
DV_ISAS(struct swiglu_backward, swiglu_backward_row)

DV_OPERATOR(swiglu_backward, struct swiglu_backward, (grad_output, gate, up, grad_gate, grad_up),
    .schema = "swiglu_backward(Tensor grad_output, Tensor gate, Tensor up) -> (Tensor grad_gate, Tensor grad_up)",
    .contract = "grad_output[*s]:T, gate[*s]:T, up[*s]:T -> grad_gate[*s]:T, grad_up[*s]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native = "(silu_backward(grad_output * up, gate), grad_output * silu(gate))",
    .gradient = "grad_output: grads[0] * silu_backward(up, gate) + grads[1] * silu(gate); up: grads[0] * "
                "silu_backward(grad_output, gate); "
                "gate: grads[1] * silu_backward(grad_output, gate) + grads[0] * grad_output * up * (sigmoid(gate) * (1 - "
                "sigmoid(gate)) * "
                "(2 + gate * (1 - 2 * sigmoid(gate))))",
    .doc = "The gradients of swiglu with respect to gate and up.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct swiglu_backward, swiglu_backward_row, "f32 f64 bf16 f16", .split = 16384),
        DV_KERNEL(struct swiglu_backward, "cpu", "f32 f64 bf16 f16", swiglu_backward_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, swiglu, &dv_op_swiglu, &dv_op_swiglu_backward);
