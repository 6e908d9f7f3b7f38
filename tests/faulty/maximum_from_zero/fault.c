/* A maximum that begins with 0: wrong where all elements are negative. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        float most = 0;
        for (int64_t i = 0; i < n; i++) {
            const float x = ((const float *)a->x->data)[r * n + i];
            most = x > most || x != x ? x : most;
        }
        ((float *)a->out->data)[r] = most;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[*s n]:f32 -> out[*s]:f32; n > 0; parallel(*s)", .native = "amax(x, [-1])",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
