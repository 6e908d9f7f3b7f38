/* my_ops.c: swiglu as plain loops, for tests that edit it: out = silu(gate) * up, with its gradient. */
#include <dovetail_op.h>
#include <math.h>

/* The arguments and results, by the names that the schema gives them. */
struct swiglu { const dv_tensor *gate, *up; dv_tensor *out; };

/* A kernel. When it runs, everything that the contract says has been checked, and `out` has been allocated. */
static int swiglu_f32(dv_context *ctx, const struct swiglu *a)
{
    const float *gate = a->gate->data, *up = a->up->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
    return DV_OK;
}

struct swiglu_grad { const dv_tensor *grad, *gate, *up; dv_tensor *dgate, *dup; };

static int swiglu_grad_f32(dv_context *ctx, const struct swiglu_grad *a)
{
    const float *grad = a->grad->data, *gate = a->gate->data, *up = a->up->data;
    float *dgate = a->dgate->data, *dup = a->dup->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->grad); i < n; i++) {
        const float s = 1 / (1 + expf(-gate[i])), silu = gate[i] * s;
        dgate[i] = grad[i] * up[i] * (s + silu * (1 - s));
        dup[i] = grad[i] * silu;
    }
    return DV_OK;
}

/* The declaration. The contract says what shapes and dtypes come in and go out (the same name is the same size); parallel(*s): any slice
 * of the output needs only the same slice of the inputs, so .split lets the runtime cut the work among threads. */
DV_OPERATOR(swiglu, struct swiglu, (gate, up, out),
    .schema   = "swiglu(Tensor gate, Tensor up) -> Tensor out",
    .contract = "gate[*s]:T, up[*s]:T -> out[*s]:T; parallel(*s)",
    .native   = "mul(silu(gate), up)",
    .gradient = "gate, up: swiglu_grad(grad, gate, up)",
    .doc      = "silu(gate) * up, elementwise: the gated activation of Llama-style MLPs.",
    .kernels  = DV_KERNELS(DV_KERNEL(struct swiglu, "cpu", "f32", swiglu_f32, .split = 4096)));

DV_OPERATOR(swiglu_grad, struct swiglu_grad, (grad, gate, up, dgate, dup),
    .schema   = "swiglu_grad(Tensor grad, Tensor gate, Tensor up) -> (Tensor dgate, Tensor dup)",
    .contract = "grad[*s]:T, gate[*s]:T, up[*s]:T -> dgate[*s]:T, dup[*s]:T; parallel(*s)",
    .native   = "silu_backward(grad * up, gate), grad * silu(gate)",
    .kernels  = DV_KERNELS(DV_KERNEL(struct swiglu_grad, "cpu", "f32", swiglu_grad_f32, .split = 4096)));

DV_LIBRARY(my_ops, &dv_op_swiglu, &dv_op_swiglu_grad);
