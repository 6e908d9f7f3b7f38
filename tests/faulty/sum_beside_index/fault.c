/* The fault: it says that it is a sum over k, and adds the start once for the whole; one of its tensors holds integers */
#include <dovetail_op.h>

struct gathered {
    const dv_tensor *start, *x, *rows;
    dv_tensor *out;
};

static int gathered_f32(dv_context *ctx, const struct gathered *a)
{
    const int64_t k = a->x->shape[0], n = a->out->shape[0];
    const int64_t *rows = a->rows->data;
    const float *start = a->start->data, *x = a->x->data;
    float *out = a->out->data;
    for (int64_t j = 0; j < n; j++)
        out[j] = start[j];
    for (int64_t i = 0; i < k; i++) {
        if (rows[i] < 0 || rows[i] >= n)
            return dv_error(ctx, DV_EINVAL, "rows[%lld] is not one of %lld rows", (long long)i, (long long)n);
        out[rows[i]] += x[i];
    }
    return DV_OK;
}

DV_OPERATOR(gathered, struct gathered, (start, x, rows, out),
    .schema = "gathered(Tensor start, Tensor x, Tensor rows) -> Tensor out",
    .contract = "start[n]:f32, x[k]:f32, rows[k]:i64 -> out[n]:f32; 0 <= rows.values < n; sum(k)",
    .kernels = DV_KERNELS(DV_KERNEL(struct gathered, "cpu", "f32", gathered_f32)));

DV_LIBRARY(sum_beside_index, &dv_op_gathered);
