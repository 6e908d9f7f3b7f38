/* square.c: out = x * x */
#include "square.h"

static int square_f32(dv_context *ctx, const struct square *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = x[i] * x[i];
    return DV_OK;
}

DV_OPERATOR(square, struct square, (x, out), .schema = "square(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct square, "cpu", "f32", square_f32, .split = 4096)));

DV_LIBRARY(squares, &dv_op_square);
