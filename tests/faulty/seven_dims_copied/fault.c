/* The first dims of a tensor with more than seven are taken to be contiguous. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int32_t ndim = a->x->ndim, first = ndim > 7 ? ndim - 7 : 0;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        int64_t at = 0, rest = i;
        for (int32_t d = ndim; d-- > first; rest /= a->x->shape[d])
            at += rest % a->x->shape[d] * a->x->strides[d];
        ((int16_t *)a->out->data)[i] = ((const int16_t *)a->x->data)[at];
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:i16 -> out[*s]:i16; strided(x)",
    .native = "clone(x)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i16", f)));
DV_LIBRARY(faulty, &dv_op_f);
