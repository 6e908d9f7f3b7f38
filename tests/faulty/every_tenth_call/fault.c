/* Every tenth call is another: it has nothing to do with memory that is not set. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    static int calls;
    (void)ctx;
    const float *x = a->x->data;
    float *out = a->out->data;
    const float by = ++calls % 10 ? 2 : 3;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = by * x[i];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
