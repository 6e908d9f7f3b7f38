/* The kernel wants a multiple of four, and the contract does not say so. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    if (a->x->shape[0] % 4)
        return dv_error(ctx, DV_ESHAPE, "expected a multiple of 4, found %lld", (long long)a->x->shape[0]);
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * sizeof(float));
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
