/* Right for one layout; in the other the two leading dims are taken for one another. */
#include <dovetail_op.h>
struct rows {
    const dv_tensor *x;
    dv_string layout;
    dv_tensor *out;
};
static int rows_f32(dv_context *ctx, const struct rows *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const bool batch_first = a->layout.data[0] == 'B';
    const int64_t b = a->x->shape[batch_first ? 0 : 1], s = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < b; i++) {
        out[i] = 0;
        for (int64_t k = 0; k < s; k++)
            out[i] += x[i * s + k];
    }
    return DV_OK;
}
DV_OPERATOR(rows, struct rows, (x, layout, out), .schema = "rows(Tensor x, str layout=\"BS\") -> Tensor out",
    .contract = "when layout == \"BS\": x[b s]:T -> out[b]:T / \"SB\": x[s b]:T -> out[b]:T; T in f32; layout in \"BS\" \"SB\"",
    .kernels = DV_KERNELS(DV_KERNEL(struct rows, "cpu", "f32", rows_f32)));
DV_LIBRARY(faulty, &dv_op_rows);
