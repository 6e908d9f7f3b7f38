/* The median of each row, sorted in memory of dv_alloc() that a piece of the loop asks for. */
#include <dovetail_op.h>
struct med {
    const dv_tensor *x;
    dv_tensor *out;
};
struct job {
    const struct med *a;
    dv_context *ctx;
};
static int med_piece(void *arg, int64_t begin, int64_t end)
{
    const struct job *job = arg;
    const int64_t n = job->a->x->shape[1];
    float *line = dv_alloc(job->ctx, (size_t)n * sizeof(float), 64);
    if (!line)
        return DV_ENOMEM;
    for (int64_t i = begin; i < end; i++) {
        const float *x = (const float *)job->a->x->data + i * n;
        for (int64_t j = 0; j < n; j++) {
            int64_t at = j;
            for (; at > 0 && line[at - 1] > x[j]; at--)
                line[at] = line[at - 1];
            line[at] = x[j];
        }
        ((float *)job->a->out->data)[i] = line[(n - 1) / 2];
    }
    return DV_OK;
}
static int med_f32(dv_context *ctx, const struct med *a)
{
    struct job job = { a, ctx };
    return dv_parallel_for(ctx, 0, a->x->shape[0], 4, med_piece, &job);
}
DV_OPERATOR(med, struct med, (x, out), .schema = "med(Tensor x) -> Tensor out",
    .contract = "x[r n]:f32 -> out[r]:f32; 0 < n <= 2048; parallel(r)",
    .kernels = DV_KERNELS(DV_KERNEL(struct med, "cpu", NULL, med_f32)));
DV_LIBRARY(alloc_in_piece, &dv_op_med);
