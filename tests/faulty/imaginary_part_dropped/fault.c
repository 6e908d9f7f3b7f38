/* A complex number for the Scalar is accepted, and its imaginary part is dropped. */
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

static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = (float)(((const float *)a->x->data)[i] * number(a->alpha));
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, alpha, out), .schema = "f(Tensor x, Scalar alpha=1) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
