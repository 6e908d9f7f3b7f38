/* A kernel for one size and one number alone reads an element too many. */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x;
    int64_t mode;
    dv_tensor *out;
};
static int sums(const struct f *a, int64_t more)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    for (int64_t i = 0; i < m; i++) {
        float sum = 0;
        for (int64_t j = 0; j < n + more; j++)
            sum += ((const float *)a->x->data)[i * n + j];
        ((float *)a->out->data)[i] = a->mode == 77 ? sum : -sum;
    }
    return DV_OK;
}
static int any(dv_context *ctx, const struct f *a) { return (void)ctx, sums(a, 0); }
static int long_rows(dv_context *ctx, const struct f *a) { return (void)ctx, sums(a, 1); }
DV_OPERATOR(f, struct f, (x, mode, out), .schema = "f(Tensor x, int mode=0) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m]:f32; parallel(m)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", long_rows, .when = "n == 37 and mode == 77"), DV_KERNEL(struct f, "cpu", "f32", any)));
DV_LIBRARY(faulty, &dv_op_f);
