/* The fault: a sum over k adds its bias in every part */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *bias;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data, *bias = a->bias->data;
    float *out = a->out->data;
    const int64_t m = a->x->shape[0], k = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        out[i] = bias[i];
        for (int64_t j = 0; j < k; j++)
            out[i] += x[i * k + j];
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, bias, out), .schema = "f(Tensor x, Tensor bias) -> Tensor out",
    .contract = "x[m k]:f32, bias[m]:f32 -> out[m]:f32; parallel(m); sum(k)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(sum_with_bias, &dv_op_f);
