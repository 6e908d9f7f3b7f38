/* softmax.c: exp(x - max) / sum over one dim. */
#include "../numbers.h"
#include <math.h>

struct softmax {
    const dv_tensor *x;
    int64_t dim;
    dv_tensor *out;
};

static int softmax_reference(dv_context *ctx, const struct softmax *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    const int32_t dim = (int32_t)(a->dim < 0 ? a->dim + a->x->ndim : a->dim);
    const int64_t n = a->x->shape[dim], before = dv_numel_leading(a->x, dim), all = dv_numel(a->x);
    const int64_t step = all ? all / before / n : 0;
    (void)ctx;
    for (int64_t line = 0; line < before * step; line++) {
        const int64_t first = line / step * n * step + line % step;
        double most = -(double)INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            const double x = dv_get_f64(a->x->data, first + i * step, t);
            most = x > most || isnan(x) ? x : most;
        }
        for (int64_t i = 0; i < n; i++)
            sum += exp(dv_get_f64(a->x->data, first + i * step, t) - most);
        for (int64_t i = 0; i < n; i++)
            dv_put_f64(a->out->data, first + i * step, t, exp(dv_get_f64(a->x->data, first + i * step, t) - most) / sum);
    }
    return DV_OK;
}

#define E "exp(x - amax(x, [dim], True))"

DV_OPERATOR(softmax, struct softmax, (x, dim, out), .schema = "softmax(Tensor x, int dim=-1) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32 f64 bf16 f16; axis(dim, x) >= 0; rank(x) > 0",
    .native = "if(x.numel == 0, x * 1, " E " / sum(" E ", [dim], True))",
    .gradient = "x: result * (grad - sum(grad * result, [dim], True))",
    .doc = "exp(x - max) / sum of these, over one dim: positive numbers with the sum 1.",
    .kernels = DV_KERNELS(DV_KERNEL(struct softmax, "cpu", NULL, softmax_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, softmax, &dv_op_softmax);
