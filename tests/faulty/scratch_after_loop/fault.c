/* Sums of the columns: each piece leaves its sums in its memory, and they are added after the loop, when it is freed. */
#include <dovetail_op.h>
struct sums {
    const dv_tensor *x;
    dv_tensor *out;
};
struct job {
    const struct sums *a;
    const float *of_piece[256];
};
static int add_rows(void *arg, int64_t begin, int64_t end, void *scratch)
{
    struct job *job = arg;
    const int64_t n = job->a->x->shape[1];
    float *sum = scratch;
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = 0; k < n; k++)
            sum[k] += ((const float *)job->a->x->data)[i * n + k];
    job->of_piece[begin / 8] = sum;
    return DV_OK;
}
static int sums_f32(dv_context *ctx, const struct sums *a)
{
    struct job job = { .a = a };
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    float *out = a->out->data;
    const int status = dv_parallel_scratch(ctx, 0, m, 8, (size_t)n * sizeof(float), add_rows, &job);
    for (int64_t k = 0; k < n; k++)
        out[k] = 0;
    for (int64_t p = 0; p < 256; p++)
        for (int64_t k = 0; k < n && job.of_piece[p]; k++)
            out[k] += job.of_piece[p][k];
    return status;
}

DV_OPERATOR(sums, struct sums, (x, out), .schema = "sums(Tensor x) -> Tensor out",
    .contract = "x[m n]:T -> out[n]:T; T in f32; m <= 2048; sum(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct sums, "cpu", "f32", sums_f32)));
DV_LIBRARY(scratch_after_loop, &dv_op_sums);
