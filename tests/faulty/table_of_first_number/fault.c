/* The fault: the weights are computed again for another width, and kept for another sigma */
#include <dovetail_op.h>
#include <math.h>

struct blur {
    const dv_tensor *x;
    int64_t width;
    double sigma;
    dv_tensor *out;
};

static int blur_f64(dv_context *ctx, const struct blur *a)
{
    static _Thread_local double weights[64];
    static _Thread_local int64_t width;
    const int64_t n = a->x->shape[0];
    (void)ctx;
    if (width != a->width) {
        width = a->width;
        for (int64_t k = 0; k < width; k++)
            weights[k] = exp(-(double)(k * k) / (1 + a->sigma * a->sigma));
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < width && k <= i; k++)
            sum += weights[k] * ((const double *)a->x->data)[i - k];
        ((double *)a->out->data)[i] = sum;
    }
    return DV_OK;
}

DV_OPERATOR(blur, struct blur, (x, width, sigma, out), .schema = "blur(Tensor x, int width=3, float sigma=1.0) -> Tensor out",
    .contract = "x[n]:f64 -> out[n]:f64; width > 0; width <= 64",
    .kernels = DV_KERNELS(DV_KERNEL(struct blur, "cpu", "f64", blur_f64)));
DV_LIBRARY(faulty, &dv_op_blur);
