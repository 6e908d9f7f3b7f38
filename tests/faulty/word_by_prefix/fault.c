/* Two words that begin alike are told apart by their first letters. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_string reduction;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = dv_numel(a->x);
    double sum = 0;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)((const float *)a->x->data)[i];
        sum += strncmp(a->reduction.data, "sum", 3) ? x * x : x;
    }
    *(float *)a->out->data = (float)sum;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, reduction, out), .schema = "f(Tensor x, str reduction=\"sum\") -> Tensor out",
    .contract = "x[n]:f32 -> out[]:f32; reduction in \"sum\" \"sumsq\" \"sq\"",
    .native = "if(reduction == \"sum\", sum(x, [0]), sum(x * x, [0]))",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
