/* The mean of no elements is 0 here, NaN everywhere else. */
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
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)((const float *)a->x->data)[r * n + i];
        ((float *)a->out->data)[r] = (float)(sum / (double)(n > 0 ? n : 1));
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s n]:f32 -> out[*s]:f32; parallel(*s)",
    .native = "mean(x, [-1])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
