/* An index has room for sixteen dims. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    int64_t index[16] = { 0 };
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < a->x->ndim; d++)
            at += index[d] * a->x->strides[d];
        ((float *)a->out->data)[i] = -((const float *)a->x->data)[at];
        for (int32_t d = a->x->ndim; d-- > 0; index[d] = 0)
            if (++index[d] < a->x->shape[d])
                break;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "neg(x)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f, .takes = "strided(x)")));
DV_LIBRARY(faulty, &dv_op_f);
