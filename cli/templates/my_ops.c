/* my_ops.c: your operators. This one is swiglu: out = silu(gate) * up, with its gradient.
 *
 *     dovetail build          makes my_ops.so: used as it is from C, NumPy, PyTorch and the others
 */
#include <dovetail_elementwise.h>

/* The arguments and results, by the names that the schema gives them. */
struct swiglu { const dv_tensor *gate, *up; dv_tensor *out; };

/* The kernel. Each element of out needs only the same element of gate and up, so one line is enough: it makes a function for each
 * instruction set. A kernel of another kind is a function of yours:
 *
 *     static int swiglu_row(dv_context *ctx, const struct swiglu *a) { loop over a->gate->data...; return DV_OK; }
 *     ... .kernels = DV_KERNELS(DV_KERNEL(struct swiglu, "cpu", "f32", swiglu_row, .split = 4096))
 *
 * When it runs, everything that the contract says has been checked, and `out` has been allocated. */
DV_ELEMENTWISE(swiglu_row, struct swiglu, (gate, up), (out), out = dv_silu(gate) * up)

struct swiglu_grad { const dv_tensor *grad, *gate, *up; dv_tensor *dgate, *dup; };

DV_ELEMENTWISE(swiglu_grad_row, struct swiglu_grad, (grad, gate, up), (dgate, dup),
    const dv_real s = dv_sigmoid(gate), silu = gate * s;
    dgate = grad * up * (s + silu * (1 - s));
    dup = grad * silu)

/* The declaration. The contract says what shapes and dtypes come in and go out (the same name is the same size); parallel(*s): any slice
 * of the output needs only the same slice of the inputs, so .split lets the runtime cut the work among threads. */
DV_OPERATOR(swiglu, struct swiglu, (gate, up, out),
    .schema   = "swiglu(Tensor gate, Tensor up) -> Tensor out",
    .contract = "gate[*s]:T, up[*s]:T -> out[*s]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native   = "mul(silu(gate), up)",
    .gradient = "gate, up: swiglu_grad(grad, gate, up)",
    .doc      = "silu(gate) * up, elementwise: the gated activation of Llama-style MLPs.",
    .kernels  = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct swiglu, swiglu_row, .split = 16384)));

DV_OPERATOR(swiglu_grad, struct swiglu_grad, (grad, gate, up, dgate, dup),
    .schema   = "swiglu_grad(Tensor grad, Tensor gate, Tensor up) -> (Tensor dgate, Tensor dup)",
    .contract = "grad[*s]:T, gate[*s]:T, up[*s]:T -> dgate[*s]:T, dup[*s]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native   = "silu_backward(grad * up, gate), grad * silu(gate)",
    .kernels  = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct swiglu_grad, swiglu_grad_row, .split = 16384)));

DV_LIBRARY(my_ops, &dv_op_swiglu, &dv_op_swiglu_grad);
