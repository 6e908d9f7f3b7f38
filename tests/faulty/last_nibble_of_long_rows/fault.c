/* The last number of all long rows with an odd number of them comes from the byte before. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *packed;
    int64_t k;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const uint8_t *packed = a->packed->data;
    const int64_t m = a->out->shape[0], k = a->k, bytes = a->packed->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++) {
            const uint8_t byte = packed[i * bytes + j / 2 - (k > 64 && k % 2 && j == k - 1)];
            ((int8_t *)a->out->data)[i * k + j] = (int8_t)(j % 2 ? byte >> 4 : byte & 15);
        }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (packed, k, out), .schema = "f(Tensor packed, int k) -> Tensor out",
    .contract = "packed[m ceildiv(k, 2)]:u8 -> out[m k]:i8; k >= 0; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
