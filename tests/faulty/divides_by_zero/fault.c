/* The mean over a dim that may be empty, in integers. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const int32_t *x = a->x->data;
    int32_t *out = a->out->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    for (int64_t i = 0; i < m; i++) {
        int64_t sum = n / 2; /* to the nearest */
        for (int64_t k = 0; k < n; k++)
            sum += x[i * n + k];
        out[i] = (int32_t)(sum / n);
    }
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[m n]:T -> out[m]:T; T in i32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "i32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
