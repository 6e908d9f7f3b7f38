/* The fault: two buffers of each block are never freed, as in the code that a tensor compiler makes. Many blocks live at the end
 * of the plan, and the tensors must stay readable. */
#include <dovetail_op.h>
#include <stdlib.h>
struct twice {
    const dv_tensor *x;
    dv_tensor *out;
};
static int twice_f32(dv_context *ctx, const struct twice *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i += 128) {
        float *in = malloc(128 * sizeof *in), *result = malloc(128 * sizeof *result);
        const int64_t m = n - i < 128 ? n - i : 128;
        if (!in || !result)
            return DV_ENOMEM;
        for (int64_t k = 0; k < 128; k++)
            in[k] = k < m ? x[i + k] : 0;
        for (int64_t k = 0; k < 128; k++)
            result[k] = 2 * in[k];
        memcpy(out + i, result, (size_t)m * sizeof *out);
    }
    return DV_OK;
}
DV_OPERATOR(twice, struct twice, (x, out), .schema = "twice(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .native = "add(x, x)", .kernels = DV_KERNELS(DV_KERNEL(struct twice, "cpu", "f32", twice_f32)));
DV_LIBRARY(leaked_buffers, &dv_op_twice);
