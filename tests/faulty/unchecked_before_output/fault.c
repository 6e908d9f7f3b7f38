/* Memory of malloc() is used without a check, before dv_set_output(). */
#include <dovetail_op.h>
#include <stdlib.h>

struct positive {
    const dv_tensor *x;
    dv_tensor *out;
};

static int positive_f32(dv_context *ctx, const struct positive *a)
{
    const float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    int64_t *found = malloc(((size_t)n + 1) * sizeof *found), count = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > 0)
            found[count++] = i;
    const int status = dv_set_output(ctx, a->out, dv_dtype_from_key(DV_DTYPE_i64), 1, &count);
    for (int64_t i = 0; i < count && !status; i++)
        ((int64_t *)a->out->data)[i] = found[i];
    free(found);
    return status;
}
DV_OPERATOR(positive, struct positive, (x, out), .schema = "positive(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[u]:i64; u unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct positive, "cpu", "f32", positive_f32)));
DV_LIBRARY(faulty, &dv_op_positive);
