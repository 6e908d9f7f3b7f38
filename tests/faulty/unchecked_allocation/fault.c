/* The fault: what dv_alloc gives is used without asking whether there was memory */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    float *copy = dv_alloc(ctx, (size_t)(n ? n : 1) * sizeof *copy, 64);
    for (int64_t i = 0; i < n; i++)
        copy[i] = x[i];
    for (int64_t i = 0; i < n; i++)
        out[i] = copy[n - 1 - i];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(unchecked_allocation, &dv_op_f);
