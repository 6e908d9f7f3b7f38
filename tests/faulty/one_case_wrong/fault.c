/* Of two layouts one is computed with the other's order. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_string layout;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    const bool by_rows = true; /* a->layout is not asked */
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++)
            ((float *)a->out->data)[by_rows ? i * n + k : k * m + i] = ((const float *)a->x->data)[i * n + k];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, layout, out), .schema = "f(Tensor x, str layout=\"NT\") -> Tensor out",
    .contract = "when layout == \"NT\": x[m n]:f32 -> out[m n]:f32 / \"TN\": x[m n]:f32 -> out[n m]:f32",
    .native = "if(layout == \"NT\", x * 1, transpose(x, 0, 1) * 1)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
