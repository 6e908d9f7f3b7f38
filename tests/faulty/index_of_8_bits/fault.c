/* An index is cut to 8 bits. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *idx;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->idx->shape[0], *const idx = a->idx->data;
    const float *const x = a->x->data;
    float *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = x[(uint8_t)idx[i]];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, idx, out), .schema = "f(Tensor x, Tensor idx) -> Tensor out",
    .contract = "x[m]:f32, idx[n]:i64 -> out[n]:f32; 0 <= idx.values < m; parallel(n)", .native = "index_select(x, 0, idx)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
