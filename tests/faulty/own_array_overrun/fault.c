/* Counts signs in an array of its own that has no place for zero: what is behind it on the stack belongs to no tensor. */
#include <dovetail_op.h>
struct signs {
    const dv_tensor *x;
    dv_tensor *out;
};

static int signs_f32(dv_context *ctx, const struct signs *a)
{
    (void)ctx;
    const float *x = a->x->data;
    int64_t *out = a->out->data, count[3] = { 0 };
    for (int64_t i = 0, n = a->x->shape[0]; i < n; i++)
        count[x[i] > 0 ? 1 : x[i] < 0 ? 0 : x[i] == 0 ? 2 : 3]++; /* NaN: the fourth of three */
    for (int k = 0; k < 3; k++)
        out[k] = count[k];
    return DV_OK;
}

DV_OPERATOR(signs, struct signs, (x, out), .schema = "signs(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[3]:i64",
    .kernels = DV_KERNELS(DV_KERNEL(struct signs, "cpu", "f32", signs_f32)));
DV_LIBRARY(faulty, &dv_op_signs);
