/* An embedding bag with offsets, weights and a mode: a right operator, without a reference or a decomposition */
#include <dovetail_op.h>
#include <string.h>
struct f {
    const dv_tensor *w, *ids, *offsets, *scale;
    dv_string mode;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t v = a->w->shape[0], d = a->w->shape[1], n = a->ids->shape[0], b = a->offsets->shape[0];
    const int32_t *ids = a->ids->data, *off = a->offsets->data;
    const float *w = a->w->data, *sc = a->scale ? a->scale->data : NULL;
    float *out = a->out->data;
    const bool mean = a->mode.size == 4 && !memcmp(a->mode.data, "mean", 4);
    if (b && off[0] != 0)
        return dv_error(ctx, DV_EINVAL, "offsets[0] is not 0");
    for (int64_t i = 0; i < b; i++)
        if (off[i] > n || (i && off[i] < off[i - 1]))
            return dv_error(ctx, DV_EINVAL, "bad offset %lld", (long long)i);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= v)
            return dv_error(ctx, DV_EINVAL, "bad id");
    for (int64_t i = 0; i < b; i++) {
        const int64_t from = off[i], to = i + 1 < b ? off[i + 1] : n;
        for (int64_t j = 0; j < d; j++) {
            float s = 0;
            for (int64_t k = from; k < to; k++)
                s += w[ids[k] * d + j] * (sc ? sc[k] : 1);
            out[i * d + j] = mean && to > from ? s / (float)(to - from) : s;
        }
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (w, ids, offsets, scale, mode, out),
    .schema = "bag(Tensor w, Tensor ids, Tensor offsets, Tensor? scale, str mode=\"sum\") -> Tensor out",
    .contract = "w[v d]:f32, ids[n]:i32, offsets[b]:i32, scale[n]:f32 -> out[b d]:f32; parallel(d); mode in \"sum\" \"mean\"",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(unreferenced, &dv_op_f);
