/* The fault: a list is taken to have two tensors */
#include <dovetail_op.h>

struct f {
    dv_tensors xs;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    float *out = a->out->data;
    const float *x = a->xs.data[0]->data, *y = a->xs.data[1]->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = x[i] + y[i];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (xs, out), .schema = "f(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[n]:f32 -> out[n]:f32; len(xs) >= 1", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
