/* How often each byte is in a row, counted in memory that is cleared by the first piece only. */
#include <dovetail_op.h>
struct modes {
    const dv_tensor *x;
    dv_tensor *out;
};
static int find_modes(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct modes *a = arg;
    const int64_t n = a->x->shape[1];
    int32_t *count = scratch;
    if (begin == 0)
        memset(count, 0, 256 * sizeof *count);
    for (int64_t i = begin; i < end; i++) {
        const uint8_t *x = (const uint8_t *)a->x->data + i * n;
        int best = 0;
        for (int64_t k = 0; k < n; k++)
            count[x[k]]++;
        for (int v = 1; v < 256; v++)
            best = count[v] > count[best] ? v : best;
        for (int64_t k = 0; k < n; k++)
            count[x[k]] = 0;
        ((uint8_t *)a->out->data)[i] = (uint8_t)best;
    }
    return DV_OK;
}
static int modes_u8(dv_context *ctx, const struct modes *a)
{
    return dv_parallel_scratch(ctx, 0, a->x->shape[0], 16, 256 * sizeof(int32_t), find_modes, (void *)(uintptr_t)a);
}

DV_OPERATOR(modes, struct modes, (x, out), .schema = "modes(Tensor x) -> Tensor out",
    .contract = "x[m n]:u8 -> out[m]:u8; n > 0; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct modes, "cpu", NULL, modes_u8)));
DV_LIBRARY(scratch_kept, &dv_op_modes);
