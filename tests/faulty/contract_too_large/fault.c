/* The contract keeps a dim that the kernel reduces. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    for (int64_t i = 0; i < m; i++) {
        out[i] = 0;
        for (int64_t k = 0; k < n; k++)
            out[i] += x[i * n + k];
    }
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[m n]:T -> out[m n]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
