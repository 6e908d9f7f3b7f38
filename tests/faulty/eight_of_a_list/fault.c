/* Tensors past the eighth are left out. */
#include <dovetail_op.h>
struct f {
    dv_tensors xs;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        float sum = 0;
        for (size_t k = 0; k < a->xs.size && k < 8; k++)
            sum += ((const float *)a->xs.data[k]->data)[i];
        ((float *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (xs, out), .schema = "f(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[*s]:f32 -> out[*s]:f32; len(xs) >= 1; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
