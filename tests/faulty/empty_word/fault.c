/* The fault: the last character of a word is looked at, also of the empty word */
#include <dovetail_op.h>

struct scale {
    const dv_tensor *x;
    dv_string unit;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const float by = a->unit.data[a->unit.size - 1] == '%' ? 0.01f : 1;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = by * ((const float *)a->x->data)[i];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, unit, out), .schema = "scale(Tensor x, str unit=\"m\") -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
