/* A table is made by the first call, which says that it is made before it is. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static volatile double squares[64];
static volatile int made;
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    if (!made) {
        made = 1;
        for (int i = 0; i < 64; i++)
            squares[i] = (i + 1) * (i + 1);
    }
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] / squares[i % 64];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f64 -> out[*s]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_LIBRARY(faulty, &dv_op_f);
