/* The fault: a static buffer is shared by all threads */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    static float buffer[64];
    for (int64_t i = 0; i < n; i += 64) {
        const int64_t m = n - i < 64 ? n - i : 64;
        for (int64_t k = 0; k < m; k++)
            buffer[k] = x[i + k] * 2;
        for (int64_t k = 0; k < m; k++)
            out[i + k] = buffer[m - 1 - k];
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(static_buffer, &dv_op_f);
