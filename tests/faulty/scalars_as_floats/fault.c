/* The numbers of a Scalar[] are read as integers, though they may be real. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_scalars by;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    double product = 1;
    (void)ctx;
    for (size_t k = 0; k < a->by.size; k++)
        product *= a->by.data[k].as.f;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = (float)((double)((const float *)a->x->data)[i] * product);
    return DV_OK;
}
static int f_reference(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        double x = (double)((const float *)a->x->data)[i];
        for (size_t k = 0; k < a->by.size; k++)
            switch (a->by.data[k].kind) {
            case DV_SCALAR_INT: x *= (double)a->by.data[k].as.i; break;
            case DV_SCALAR_BOOL: x *= a->by.data[k].as.b; break;
            default: x *= a->by.data[k].as.f;
            }
        ((float *)a->out->data)[i] = (float)x;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, by, out), .schema = "f(Tensor x, Scalar[] by) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
