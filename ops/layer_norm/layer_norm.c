/* layer_norm.c: (x - mean) / sqrt(variance + eps) * weight + bias over the last dim. */
#include "../numbers.h"
#include <math.h>

struct layer_norm {
    const dv_tensor *x, *weight, *bias;
    double eps;
    dv_tensor *out;
};

static int layer_norm_reference(dv_context *ctx, const struct layer_norm *a)
{
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1);
    double *const x = dv_alloc(ctx, (size_t)(3 * n + 1) * sizeof(double), 64), *const weight = x + n, *const bias = weight + n;
    if (!x)
        return DV_ENOMEM;
    for (int64_t i = 0; i < n; i++)
        weight[i] = 1, bias[i] = 0;
    if (a->weight)
        load(weight, a->weight, 0, n);
    if (a->bias)
        load(bias, a->bias, 0, n);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, squares = 0;
        load(x, a->x, r * n, n);
        for (int64_t i = 0; i < n; i++)
            mean += x[i];
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        const double scale = 1 / sqrt(squares / (double)n + a->eps);
        for (int64_t i = 0; i < n; i++)
            x[i] = (x[i] - mean) * scale * weight[i] + bias[i];
        store(a->out, r * n, x, n);
    }
    return DV_OK;
}

#define CENTRED "(x - mean(x, [-1], True))"
#define NORMAL CENTRED " * rsqrt(mean(" CENTRED " * " CENTRED ", [-1], True) + eps)"
#define WEIGHTED "if(present(weight), " NORMAL " * weight, " NORMAL ")"

DV_OPERATOR(layer_norm, struct layer_norm, (x, weight, bias, eps, out),
    .schema = "layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor out",
    .contract = "x[*s n]:T, weight[n]:T, bias[n]:T -> out[*s n]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native = "if(present(bias), " WEIGHTED " + bias, " WEIGHTED ")",
    .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over the last dim.",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct layer_norm, "cpu", NULL, layer_norm_reference, .split = 8, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, layer_norm, &dv_op_layer_norm);
