/* numpy_sin.c: sin(input), written into an output that the caller gives */
#include <dovetail_elementwise.h>

struct numpy_sin {
    const dv_tensor *input;
    dv_tensor *output;
};

DV_ELEMENTWISE(numpy_sin_row, struct numpy_sin, (input), (output), output = dv_sin(input))

DV_OPERATOR(numpy_sin, struct numpy_sin, (input, output), .schema = "numpy_sin(Tensor input, Tensor(a!) output) -> ()",
    .contract = "input[*s]:T, output[*s]:T; T in f32 f64 bf16 f16; parallel(*s)", .native = "output: sin(input)",
    .gradient = "input: grads[0] * cos(input); output: zeros_like(grads[0])",
    .doc = "output = sin(input), in place: nothing is returned. For angles of any size.",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct numpy_sin, numpy_sin_row, .split = 16384)));

DV_LIBRARY_FRAGMENT(dovetail, numpy_sin, &dv_op_numpy_sin);
