/* It sorts the tensors of a list where they lie. */
#include <dovetail_op.h>

struct f {
    dv_tensors xs;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    float *out = a->out->data;
    const int64_t n = dv_numel(a->out);
    (void)ctx;
    memset(out, 0, (size_t)n * sizeof *out);
    for (size_t k = 0; k < a->xs.size; k++) {
        float *x = a->xs.data[k]->data;
        for (int64_t i = 0; i < n; i++) {
            if (x[i] < 0)
                x[i] = 0;
            out[i] += x[i];
        }
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (xs, out), .schema = "f(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[n]:f32 -> out[n]:f32; len(xs) >= 1", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
