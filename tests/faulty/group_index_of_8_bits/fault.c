/* The number of a group is kept in 8 bits. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *w, *scales;
    int64_t group;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int8_t *w = a->w->data;
    const float *scales = a->scales->data;
    const int64_t m = a->w->shape[0], k = a->w->shape[1], groups = a->scales->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++) {
            const uint8_t at = (uint8_t)(j / a->group);
            ((float *)a->out->data)[i * k + j] = (float)w[i * k + j] * scales[i * groups + at];
        }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (w, scales, group, out), .schema = "f(Tensor w, Tensor scales, int group) -> Tensor out",
    .contract = "w[m k]:i8, scales[m ceildiv(k, group)]:f32 -> out[m k]:f32; group > 0; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
