/* The native form adds a matrix to a vector of the wrong size, which cannot be done but for square ones. */
#include <dovetail_op.h>
struct shifted {
    const dv_tensor *x, *by;
    dv_tensor *out;
};

static int shifted_f32(dv_context *ctx, const struct shifted *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++)
            ((float *)a->out->data)[i * n + k] = ((const float *)a->x->data)[i * n + k] + ((const float *)a->by->data)[i];
    return DV_OK;
}

DV_OPERATOR(shifted, struct shifted, (x, by, out), .schema = "shifted(Tensor x, Tensor by) -> Tensor out",
    .contract = "x[m n]:T, by[m]:T -> out[m n]:T; T in f32", .native = "x + by",
    .kernels = DV_KERNELS(DV_KERNEL(struct shifted, "cpu", "f32", shifted_f32)));
DV_LIBRARY(faulty, &dv_op_shifted);
