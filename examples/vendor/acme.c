/* acme.c: a kernel for my_ops::swiglu, which someone else declared. No fork of their library, no change to its users:
 *
 *     dovetail build acme.c
 *     dovetail explain my_ops.so acme.so my_ops::swiglu 'f32[8]' 'f32[8]'
 *
 * Only the struct and the rows are given: the schema, the contract and the gradient are those of the operator. */
#include <dovetail_op.h>
#include <math.h>

struct swiglu {
    const dv_tensor *gate, *up;
    dv_tensor *out;
};

static int acme_swiglu_f32(dv_context *ctx, const struct swiglu *a)
{
    const float *gate = a->gate->data, *up = a->up->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = up[i] * gate[i] * 0.5f * (1 + tanhf(0.5f * gate[i])); /* the same function, written another way */
    return DV_OK;
}

DV_OPERATOR(swiglu, struct swiglu, (gate, up, out),
    .kernels = DV_KERNELS(DV_KERNEL(struct swiglu, "cpu", "f32", acme_swiglu_f32, .priority = 10, .split = 4096)));

DV_LIBRARY_IMPL(my_ops, acme, &dv_op_swiglu);
