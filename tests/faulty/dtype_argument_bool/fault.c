/* The result has the dtype that is asked for; of booleans only 0 and 1 may be written. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_dtype dtype;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        switch (dv_dtype_key(a->out->dtype)) {
        case DV_DTYPE_f32: ((float *)a->out->data)[i] = x[i]; break;
        case DV_DTYPE_f64: ((double *)a->out->data)[i] = (double)x[i]; break;
        case DV_DTYPE_i32: ((int32_t *)a->out->data)[i] = x[i] > -2e9f && x[i] < 2e9f ? (int32_t)x[i] : 0; break;
        case DV_DTYPE_bool: ((uint8_t *)a->out->data)[i] = x[i] > -128 && x[i] < 127 ? (uint8_t)(int8_t)x[i] : 1; break;
        default: return dv_error(ctx, DV_EDTYPE, "f: expected dtype f32, f64, i32 or bool");
        }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, dtype, out), .schema = "f(Tensor x, *, ScalarType dtype) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:dtype; parallel(*s)", .native = "to.dtype(x, dtype)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
