/* The fault: strides as unsigned 32-bit numbers: a tensor that was flipped has negative ones */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    const uint32_t s = (uint32_t)a->x->strides[0], t = (uint32_t)a->x->strides[1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++)
            out[i * n + k] = -x[(size_t)i * s + (size_t)k * t];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m n]:f32; strided(x)",
    .native = "-x", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
