/* A stride of 0 takes a fast path, which takes the first row for all of them. There is one row, and no native form. */
#include <dovetail_op.h>
struct square {
    const dv_tensor *x;
    dv_tensor *out;
};

static int square_f32(dv_context *ctx, const struct square *a)
{
    const int64_t *shape = a->x->shape, *strides = a->x->strides;
    (void)ctx;
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t k = 0; k < shape[1]; k++) {
            const float x = ((const float *)a->x->data)[strides[1] ? i * strides[0] + k * strides[1] : 0];
            ((float *)a->out->data)[i * shape[1] + k] = x * x;
        }
    return DV_OK;
}

DV_OPERATOR(square, struct square, (x, out), .schema = "square(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n]:f32; strided(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct square, "cpu", "f32", square_f32)));
DV_LIBRARY(faulty, &dv_op_square);
