/* my_custom_op.c: output = param1 * input + param2. The document leaves the computation open. */
#include <dovetail_op.h>

struct my_custom_op {
    int64_t param1, param2;
    const dv_tensor *input;
    dv_tensor *output;
};

static int my_custom_op_i32(dv_context *ctx, const struct my_custom_op *a)
{
    const int32_t *input = a->input->data;
    int32_t *output = a->output->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->output); i < n; i++)
        output[i] = (int32_t)((uint32_t)a->param1 * (uint32_t)input[i] + (uint32_t)a->param2); /* wraps */
    return DV_OK;
}

DV_OPERATOR(my_custom_op, struct my_custom_op, (param1, param2, input, output),
    .schema = "my_custom_op(int param1, int param2, Tensor input, Tensor(a!) output) -> ()",
    .contract =
        "input[*s]:i32, output[*s]:i32; -2147483648 <= param1 <= 2147483647; -2147483648 <= param2 <= 2147483647; parallel(*s)",
    .doc = "My custom operator",
    .kernels = DV_KERNELS(DV_KERNEL(struct my_custom_op, "cpu", "i32", my_custom_op_i32, .split = 4096)));

DV_LIBRARY(npu_ops, &dv_op_my_custom_op);
