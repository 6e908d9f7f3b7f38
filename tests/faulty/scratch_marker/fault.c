/* Rows times softplus(w). A table of it is made once for each piece of memory, which a mark tells; the mark of another call, with
 * another w, is taken for its own. */
#include <dovetail_op.h>
#include <math.h>
enum { MARK = 0x7ab1e };
struct scaled {
    const dv_tensor *x, *w;
    dv_tensor *out;
};
static int scale_rows(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct scaled *a = arg;
    const int64_t n = a->w->shape[0];
    const float *x = a->x->data, *w = a->w->data;
    float *table = scratch, *out = a->out->data;
    int32_t *mark = (int32_t *)(table + n);
    if (*mark != MARK)
        for (int64_t k = 0; k < n; k++)
            table[k] = log1pf(expf(w[k]));
    *mark = MARK;
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = 0; k < n; k++)
            out[i * n + k] = x[i * n + k] * table[k];
    return DV_OK;
}
static int scaled_f32(dv_context *ctx, const struct scaled *a)
{
    return dv_parallel_scratch(
        ctx, 0, a->x->shape[0], 4, ((size_t)a->w->shape[0] + 1) * sizeof(float), scale_rows, (void *)(uintptr_t)a);
}

DV_OPERATOR(scaled, struct scaled, (x, w, out), .schema = "scaled(Tensor x, Tensor w) -> Tensor out",
    .contract = "x[m n]:f32, w[n]:f32 -> out[m n]:f32; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct scaled, "cpu", NULL, scaled_f32)));
DV_LIBRARY(scratch_marker, &dv_op_scaled);
