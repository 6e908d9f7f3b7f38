/* Reads two numbers into a variable for one: the compiler leaves out what it sees to be past it, or what lies behind it is lost.
 */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x, *by;
    dv_tensor *out;
};

static int scale_any(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const uint32_t t = dv_dtype_key(a->by->dtype);
    for (int64_t i = 0, n = a->x->shape[0]; i < n; i++) {
        double by;
        dv_load_f64(&by, a->by->data, i, i + 1 < n ? 2 : 1, t);
        ((float *)a->out->data)[i] = (float)(by * ((const float *)a->x->data)[i]);
    }
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, by, out), .schema = "scale(Tensor x, Tensor by) -> Tensor out",
    .contract = "x[n]:f32, by[n]:T -> out[n]:f32; T in f32 bf16 f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", NULL, scale_any)));
DV_LIBRARY(faulty, &dv_op_scale);
