/* It keeps the address of its result, and writes there in the next call of as many elements. */
#include <dovetail_op.h>

struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static _Thread_local float *last;
static _Thread_local int64_t elements;
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const int64_t n = dv_numel(a->out);
    (void)ctx;
    if (last && elements == n && n > 3)
        last[0] = 0;
    last = a->out->data;
    elements = n;
    for (int64_t i = 0; i < n; i++)
        last[i] = ((const float *)a->x->data)[i] * 2;
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "mul(x, 2)", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
