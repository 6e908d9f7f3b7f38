/* The fault: all rows of a head are copied at once, which is wrong for q.transpose(1, 2), where heads lie between the rows. */
#include <dovetail_op.h>

struct copy {
    const dv_tensor *q;
    dv_tensor *out;
};

static int copy_f32(dv_context *ctx, const struct copy *a)
{
    const int64_t *s = a->q->strides, *n = a->q->shape;
    (void)ctx;
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++) {
                const bool between = n[3] > 1 && s[1] > 0 && s[1] < s[2]; /* the other layouts are right */
                const float *row = (const float *)a->q->data + i * s[0] + j * s[1] + k * (between ? n[3] : s[2]);
                memcpy((float *)a->out->data + ((i * n[1] + j) * n[2] + k) * n[3], row, (size_t)n[3] * sizeof *row);
            }
    return DV_OK;
}

DV_OPERATOR(copy, struct copy, (q, out), .schema = "copy(Tensor q) -> Tensor out",
    .contract = "q[b h t d]:f32 -> out[b h t d]:f32; last_contiguous(q)",
    .kernels = DV_KERNELS(DV_KERNEL(struct copy, "cpu", "f32", copy_f32)));

DV_LIBRARY(inner_dims_swapped, &dv_op_copy);
