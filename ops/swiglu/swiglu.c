/* swiglu.c: silu(gate) * up, and its gradient */
#include <dovetail_math.h>
#include <math.h>

struct swiglu { const dv_tensor *gate, *up; dv_tensor *out; };

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

DV_INLINE int swiglu_row(dv_context *ctx, const struct swiglu *a, uint32_t dtype)
{
    const void *restrict gate = a->gate->data, *restrict up = a->up->data;
    void *restrict out = a->out->data;
    const int64_t n = dv_numel(a->gate);
    (void)ctx;
    if (dtype == DV_DTYPE_f64)
        for (int64_t i = 0; i < n; i++)
            ((double *)out)[i] = dv_silu(((const double *)gate)[i]) * ((const double *)up)[i];
    else
        for (int64_t i = 0; i < n; i++)
            dv_put(out, i, dtype, dv_siluf(dv_get(gate, i, dtype)) * dv_get(up, i, dtype));
    return DV_OK;
}
DV_VARIANTS(struct swiglu, swiglu_row, f32, bf16, f16, f64)

DV_OPERATOR(swiglu, struct swiglu, (gate, up, out),
    .schema   = "swiglu(Tensor gate, Tensor up) -> Tensor out",
    .contract = "gate[*s]:T, up[*s]:T -> out[*s]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native   = "silu(gate) * up",
    .gradient = "gate, up: swiglu_backward(grad, gate, up)",
    .doc      = "silu(gate) * up, element by element: the gate of a SwiGLU feed-forward layer.",
    .kernels  = DV_KERNELS(DV_VARIANT_ROWS(struct swiglu, swiglu_row, (f32, bf16, f16, f64), .split = 16384),
        DV_KERNEL(struct swiglu, "cpu", "f32 f64 bf16 f16", swiglu_reference, .flags = DV_KERNEL_REFERENCE)));

/* With s = sigmoid(gate): d silu = s (1 + gate (1 - s)). */
struct swiglu_backward { const dv_tensor *grad_output, *gate, *up; dv_tensor *grad_gate, *grad_up; };

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

DV_INLINE int swiglu_backward_row(dv_context *ctx, const struct swiglu_backward *a, uint32_t dtype)
{
    const void *restrict grad = a->grad_output->data, *restrict gate = a->gate->data, *restrict up = a->up->data;
    void *restrict grad_gate = a->grad_gate->data, *restrict grad_up = a->grad_up->data;
    const int64_t n = dv_numel(a->gate);
    (void)ctx;
    if (dtype == DV_DTYPE_f64)
        for (int64_t i = 0; i < n; i++) {
            const double d = ((const double *)grad)[i], g = ((const double *)gate)[i], s = dv_sigmoid(g);
            ((double *)grad_gate)[i] = d * ((const double *)up)[i] * (s * (1 + g * (1 - s)));
            ((double *)grad_up)[i] = d * (g * s);
        }
    else
        for (int64_t i = 0; i < n; i++) {
            const float d = dv_get(grad, i, dtype), g = dv_get(gate, i, dtype), s = dv_sigmoidf(g);
            dv_put(grad_gate, i, dtype, d * dv_get(up, i, dtype) * (s * (1 + g * (1 - s))));
            dv_put(grad_up, i, dtype, d * (g * s));
        }
    return DV_OK;
}
DV_VARIANTS(struct swiglu_backward, swiglu_backward_row, f32, bf16, f16, f64)

DV_OPERATOR(swiglu_backward, struct swiglu_backward, (grad_output, gate, up, grad_gate, grad_up),
    .schema   = "swiglu_backward(Tensor grad_output, Tensor gate, Tensor up) -> (Tensor grad_gate, Tensor grad_up)",
    .contract = "grad_output[*s]:T, gate[*s]:T, up[*s]:T -> grad_gate[*s]:T, grad_up[*s]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native   = "(silu_backward(grad_output * up, gate), grad_output * silu(gate))",
    .gradient = "grad_output: grads[0] * silu_backward(up, gate) + grads[1] * silu(gate); up: grads[0] * silu_backward(grad_output, gate); "
                "gate: grads[1] * silu_backward(grad_output, gate) + grads[0] * grad_output * up * (sigmoid(gate) * (1 - sigmoid(gate)) * "
                "(2 + gate * (1 - 2 * sigmoid(gate))))",
    .doc      = "The gradients of swiglu with respect to gate and up.",
    .kernels  = DV_KERNELS(DV_VARIANT_ROWS(struct swiglu_backward, swiglu_backward_row, (f32, bf16, f16, f64), .split = 16384),
        DV_KERNEL(struct swiglu_backward, "cpu", "f32 f64 bf16 f16", swiglu_backward_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, swiglu, &dv_op_swiglu, &dv_op_swiglu_backward);
