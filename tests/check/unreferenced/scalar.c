/* Right operators with a Scalar: one refuses complex numbers, the other one uses both parts. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_scalar alpha;
    dv_tensor *out;
};

static double number(dv_scalar s)
{
    switch (s.kind) {
    case DV_SCALAR_INT: return (double)s.as.i;
    case DV_SCALAR_BOOL: return s.as.b;
    case DV_SCALAR_COMPLEX: return s.as.c.re;
    default: return s.as.f;
    }
}

static int scale(dv_context *ctx, const struct f *a)
{
    if (a->alpha.kind == DV_SCALAR_COMPLEX)
        return dv_error(ctx, DV_ETYPE, "alpha: expected a real number, found a complex one");
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = (float)(((const float *)a->x->data)[i] * number(a->alpha));
    return DV_OK;
}
DV_OPERATOR(scale, struct f, (x, alpha, out), .schema = "scale(Tensor x, Scalar alpha=1) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, scale)));

static int rotate(dv_context *ctx, const struct f *a)
{
    const double re = number(a->alpha), im = a->alpha.kind == DV_SCALAR_COMPLEX ? a->alpha.as.c.im : 0;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const double x = ((const float *)a->x->data)[i];
        ((float *)a->out->data)[2 * i] = (float)(x * re);
        ((float *)a->out->data)[2 * i + 1] = (float)(x * im);
    }
    return DV_OK;
}
DV_OPERATOR(rotate, struct f, (x, alpha, out), .schema = "rotate(Tensor x, Scalar alpha=1) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:c64", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, rotate)));

DV_LIBRARY(scalar, &dv_op_scale, &dv_op_rotate);
