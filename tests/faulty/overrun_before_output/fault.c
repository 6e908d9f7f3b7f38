/* Memory of malloc() has no room for the last vector, and is freed before dv_set_output(). */
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
    const int64_t room = n / 16 * 16 + (n % 16 ? 16 : 0); /* whole vectors are written, and n bytes are there */
    char *flags = malloc((size_t)n);
    int64_t count = 0;
    if (!flags)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    for (int64_t i = 0; i < room; i++)
        flags[i] = i < n && x[i] > 0;
    for (int64_t i = 0; i < room; i++)
        count += flags[i];
    free(flags);
    const int status = dv_set_output(ctx, a->out, dv_dtype_from_key(DV_DTYPE_i64), 1, &count);
    for (int64_t i = 0; i < count && !status; i++)
        ((int64_t *)a->out->data)[i] = i;
    return status;
}
DV_OPERATOR(positive, struct positive, (x, out), .schema = "positive(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[u]:i64; u unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct positive, "cpu", "f32", positive_f32)));
DV_LIBRARY(faulty, &dv_op_positive);
