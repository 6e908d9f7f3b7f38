/* Takes the sizes of the first tensor for those of all. */
#include <dovetail_op.h>
struct cat {
    dv_tensors xs;
    dv_tensor *out;
};
static int cat_f32(dv_context *ctx, const struct cat *a)
{
    float *out = a->out->data;
    const int64_t n = a->xs.data[0]->shape[0], total = a->out->shape[0];
    (void)ctx;
    for (int64_t i = 0; i < total; i++)
        out[i] = 0;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0; i < n && (int64_t)k * n + i < total; i++)
            out[(int64_t)k * n + i] = ((const float *)a->xs.data[k]->data)[i];
    return DV_OK;
}
DV_OPERATOR(cat, struct cat, (xs, out), .schema = "cat(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[n{i}]:T -> out[total(n)]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct cat, "cpu", "f32", cat_f32)));
DV_LIBRARY(faulty, &dv_op_cat);
