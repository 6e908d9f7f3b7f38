/* sigmoid.c: 1 / (1 + e^-x), and its gradient */
#include <dovetail_elementwise.h>

#define FLOATS "f32 f64 bf16 f16"

struct sigmoid {
    const dv_tensor *x;
    dv_tensor *out;
};
DV_ELEMENTWISE(sigmoid_row, struct sigmoid, (x), (out), out = dv_sigmoid(x))

DV_OPERATOR(sigmoid, struct sigmoid, (x, out), .schema = "sigmoid(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in " FLOATS "; parallel(*s)", .native = "base::sigmoid(x)",
    .gradient = "x: sigmoid_backward(grad, result)", .doc = "1 / (1 + exp(-x)), element by element.",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct sigmoid, sigmoid_row, .split = 16384)));

struct sigmoid_backward {
    const dv_tensor *grad_output, *output;
    dv_tensor *grad_input;
};
DV_ELEMENTWISE(sigmoid_backward_row, struct sigmoid_backward, (grad_output, output), (grad_input),
    grad_input = grad_output * (1 - output) * output)

DV_OPERATOR(sigmoid_backward, struct sigmoid_backward, (grad_output, output, grad_input),
    .schema = "sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor grad_input",
    .contract = "grad_output[*s]:T, output[*s]:T -> grad_input[*s]:T; T in " FLOATS "; parallel(*s)",
    .native = "grad_output * (1 - output) * output",
    .gradient = "grad_output: sigmoid_backward(grad, output); output: grad * grad_output * (1 - 2 * output)",
    .doc = "grad_output * output * (1 - output): the gradient of sigmoid, from its result.",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct sigmoid_backward, sigmoid_backward_row, .split = 16384)));

DV_LIBRARY_FRAGMENT(dovetail, sigmoid, &dv_op_sigmoid, &dv_op_sigmoid_backward);
