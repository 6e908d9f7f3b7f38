/* It changes its input and puts it back: a reader beside it sees the change. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    float *x = a->x->data, *out = a->out->data;
    const int64_t n = a->x->shape[0];
    (void)ctx;
    if (n > 0) {
        const float first = x[0];
        x[0] = 0;
        for (int64_t i = 0; i < n; i++)
            out[i] = x[i];
        x[0] = first;
        out[0] = first;
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32", .native = "x * 1",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
