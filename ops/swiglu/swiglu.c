/* swiglu.c: silu(gate) * up, and its gradient */
#include <dovetail_elementwise.h>

#define FLOATS "f32 f64 bf16 f16"

struct swiglu {
    const dv_tensor *gate, *up;
    dv_tensor *out;
};
DV_ELEMENTWISE(swiglu_row, struct swiglu, (gate, up), (out), out = dv_silu(gate) * up)

DV_OPERATOR(swiglu, struct swiglu, (gate, up, out), .schema = "swiglu(Tensor gate, Tensor up) -> Tensor out",
    .contract = "gate[*s]:T, up[*s]:T -> out[*s]:T; T in " FLOATS "; parallel(*s)", .native = "silu(gate) * up",
    .gradient = "gate, up: swiglu_backward(grad, gate, up)",
    .doc = "silu(gate) * up, element by element: the gate of a SwiGLU feed-forward layer.",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct swiglu, swiglu_row, .split = 16384)));

/* With s = sigmoid(gate): d silu = s (1 + gate (1 - s)). */
struct swiglu_backward {
    const dv_tensor *grad_output, *gate, *up;
    dv_tensor *grad_gate, *grad_up;
};
DV_ELEMENTWISE(swiglu_backward_row, struct swiglu_backward, (grad_output, gate, up), (grad_gate, grad_up),
    const dv_real s = dv_sigmoid(gate);
    grad_gate = grad_output * up * (s * (1 + gate * (1 - s))); grad_up = grad_output * (gate * s))

DV_OPERATOR(swiglu_backward, struct swiglu_backward, (grad_output, gate, up, grad_gate, grad_up),
    .schema = "swiglu_backward(Tensor grad_output, Tensor gate, Tensor up) -> (Tensor grad_gate, Tensor grad_up)",
    .contract = "grad_output[*s]:T, gate[*s]:T, up[*s]:T -> grad_gate[*s]:T, grad_up[*s]:T; T in " FLOATS "; parallel(*s)",
    .native = "(silu_backward(grad_output * up, gate), grad_output * silu(gate))",
    .gradient = "grad_output: grads[0] * silu_backward(up, gate) + grads[1] * silu(gate); up: grads[0] * "
                "silu_backward(grad_output, gate); "
                "gate: grads[1] * silu_backward(grad_output, gate) + grads[0] * grad_output * up * (sigmoid(gate) * (1 - "
                "sigmoid(gate)) * "
                "(2 + gate * (1 - 2 * sigmoid(gate))))",
    .doc = "The gradients of swiglu with respect to gate and up.",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct swiglu_backward, swiglu_backward_row, .split = 16384)));

DV_LIBRARY_FRAGMENT(dovetail, swiglu, &dv_op_swiglu, &dv_op_swiglu_backward);
