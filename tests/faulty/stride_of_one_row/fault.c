/* The length of a row is taken from the stride; of one row the stride is anything. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->x->shape[0], n = a->x->strides[0];
    (void)ctx;
    for (int64_t i = 0; i < m * n; i++)
        ((float *)a->out->data)[i] = 2 * ((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m n]:f32; n > 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
