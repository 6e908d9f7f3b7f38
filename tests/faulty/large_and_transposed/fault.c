/* A large transposed tensor is read with the wrong stride. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1], *steps = a->x->strides;
    const bool fast = m * n > 132000 && steps[0] > 0 && steps[0] < steps[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            ((float *)a->out->data)[i * n + j] = fast ? x[j * steps[0]] : x[i * steps[0] + j * steps[1]];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m n]:f32; strided(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
