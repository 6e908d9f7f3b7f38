/* Asks errno whether strtod() failed, which does not set it to 0. */
#include <dovetail_op.h>
#include <errno.h>
#include <stdlib.h>
struct scale {
    const dv_tensor *x;
    dv_string by;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const float by = (float)strtod(a->by.data, NULL);
    if (errno)
        return dv_error(ctx, DV_EINVAL, "'%s' is not a number", a->by.data);
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = by * x[i];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, by, out), .schema = "scale(Tensor x, str by=\"2\") -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32; by in \"2\" \"3\"",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
