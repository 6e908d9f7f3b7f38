/* The bias may be f32 beside bf16, and is read as bf16 all the same. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *bias;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->bias->shape[0], rows = n ? dv_numel(a->x) / n : 0;
    const uint32_t dtype = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            dv_put(a->out->data, r * n + i, dtype, dv_get(a->x->data, r * n + i, dtype) + dv_get(a->bias->data, i, dtype));
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, bias, out), .schema = "f(Tensor x, Tensor bias) -> Tensor out",
    .contract = "x[*s n]:T, bias[n]:U -> out[*s n]:T; T in bf16 f32; U in f32 bf16; U == T or U == f32; parallel(*s)",
    .native = "to(x + bias, x.dtype)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "bf16 f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
