/* The maximum begins at 0: of a row far below 0 all exponentials are 0. */
#include <dovetail_op.h>
#include <math.h>
struct soft {
    const dv_tensor *x;
    dv_tensor *out;
};
static int soft_f32(dv_context *ctx, const struct soft *a)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    const float *x = a->x->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t r = 0; r < rows; r++, x += n, out += n) {
        float most = 0;
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            most = x[i] <= most ? most : x[i];
        for (int64_t i = 0; i < n; i++)
            sum += out[i] = expf(x[i] - most);
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(out[i] / sum);
    }
    return DV_OK;
}
DV_OPERATOR(soft, struct soft, (x, out), .schema = "soft(Tensor x) -> Tensor out",
    .contract = "x[*s n]:T -> out[*s n]:T; T in f32; n > 0; parallel(*s)",
    .native = "exp(x - amax(x, [-1], True)) / sum(exp(x - amax(x, [-1], True)), [-1], True)",
    .kernels = DV_KERNELS(DV_KERNEL(struct soft, "cpu", "f32", soft_f32, .split = 8)));
DV_LIBRARY(faulty, &dv_op_soft);
