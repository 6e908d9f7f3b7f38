/* The remainder of a negative number is negative in C: an index before the start. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    int64_t shift;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[0];
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[(i - a->shift % n) % n];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, shift, out), .schema = "f(Tensor x, int shift) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
