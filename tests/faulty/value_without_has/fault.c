/* The value of an optional is read although it is absent. */
#include <dovetail_op.h>

struct shift {
    const dv_tensor *x;
    dv_opt_float by;
    dv_tensor *out;
};

static int shift_f32(dv_context *ctx, const struct shift *a)
{
    const float by = (float)a->by.value;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + by;
    return DV_OK;
}
DV_OPERATOR(shift, struct shift, (x, by, out), .schema = "shift(Tensor x, float? by=None) -> Tensor out",
    .contract = "x[n]:f32 -> out[n]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct shift, "cpu", "f32", shift_f32)));
DV_LIBRARY(faulty, &dv_op_shift);
