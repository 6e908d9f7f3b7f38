/* The median of each row, sorted in memory of a piece that has no room for the last element of a long row. */
#include <dovetail_op.h>
struct med {
    const dv_tensor *x;
    dv_tensor *out;
};
static int med_piece(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct med *a = arg;
    const int64_t n = a->x->shape[1];
    float *line = scratch;
    for (int64_t i = begin; i < end; i++) {
        const float *x = (const float *)a->x->data + i * n;
        for (int64_t j = 0; j < n; j++) {
            int64_t at = j;
            for (; at > 0 && line[at - 1] > x[j]; at--)
                line[at] = line[at - 1];
            line[at] = x[j];
        }
        ((float *)a->out->data)[i] = line[(n - 1) / 2];
    }
    return DV_OK;
}
static int med_f32(dv_context *ctx, const struct med *a)
{
    const int64_t n = a->x->shape[1], room = n > 100 ? n - 1 : n;
    return dv_parallel_scratch(ctx, 0, a->x->shape[0], 4, (size_t)room * sizeof(float), med_piece, (void *)(uintptr_t)a);
}
DV_OPERATOR(med, struct med, (x, out), .schema = "med(Tensor x) -> Tensor out",
    .contract = "x[r n]:f32 -> out[r]:f32; 0 < n <= 2048; parallel(r)",
    .kernels = DV_KERNELS(DV_KERNEL(struct med, "cpu", NULL, med_f32)));
DV_LIBRARY(scratch_too_small, &dv_op_med);
