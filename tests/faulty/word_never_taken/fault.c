/* The contract names a word that the kernel does not know. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_string how;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    double of = 0;
    const bool low = !strcmp(a->how.data, "min");
    if (!low && strcmp(a->how.data, "max"))
        return dv_error(ctx, DV_ENOTSUP, "cannot reduce by '%s' yet", a->how.data);
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const double x = ((const double *)a->x->data)[i];
        of = !i || (low ? x < of : x > of) ? x : of;
    }
    *(double *)a->out->data = of;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, how, out), .schema = "f(Tensor x, str how=\"max\") -> Tensor out",
    .contract = "x[*s]:f64 -> out[]:f64; how in \"max\" \"min\" \"sum\"",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_LIBRARY(faulty, &dv_op_f);
