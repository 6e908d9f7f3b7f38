/* The row takes any strides, keeps to those of the rows, and takes each row for contiguous. */
#include <dovetail_op.h>
struct fill { dv_tensor *x; };
static int fill_f32(dv_context *ctx, const struct fill *a)
{
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        for (int64_t k = 0; k < a->x->shape[1]; k++)
            if (a->x->strides[0] > 0 && a->x->strides[1] > 0 && a->x->strides[0] >= a->x->shape[1])
                ((float *)a->x->data)[i * a->x->strides[0] + k] = 1;
    return DV_OK;
}
DV_OPERATOR(fill, struct fill, (x), .schema = "fill(Tensor(a!) x) -> ()", .contract = "x[m n]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct fill, "cpu", "f32", fill_f32, .takes = "strided(x)")));
DV_LIBRARY(faulty, &dv_op_fill);
