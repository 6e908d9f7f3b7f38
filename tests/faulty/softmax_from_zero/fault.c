/* The largest of a row is looked for from 0 on: with all numbers far below, exp() gives zeros and the division NaN. */
#include <dovetail_op.h>
#include <math.h>

struct softmax {
    const dv_tensor *x;
    dv_tensor *out;
};

static int softmax_f32(dv_context *ctx, const struct softmax *a)
{
    const int64_t d = a->x->shape[a->x->ndim - 1], rows = d ? dv_numel(a->x) / d : 0;
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)a->x->data + r * d;
        float *out = (float *)a->out->data + r * d, largest = 0, sum = 0;
        for (int64_t i = 0; i < d; i++)
            largest = fmaxf(largest, x[i]);
        for (int64_t i = 0; i < d; i++)
            sum += out[i] = expf(x[i] - largest);
        for (int64_t i = 0; i < d; i++)
            out[i] /= sum;
    }
    return DV_OK;
}

DV_OPERATOR(softmax, struct softmax, (x, out), .schema = "softmax(Tensor x) -> Tensor out",
    .contract = "x[*s d]:T -> out[*s d]:T; T in f32; d > 0; parallel(*s)",
    .native = "div(exp(sub(x, amax(x, [-1], True))), sum(exp(sub(x, amax(x, [-1], True))), [-1], True))",
    .kernels = DV_KERNELS(DV_KERNEL(struct softmax, "cpu", "f32", softmax_f32)));
DV_LIBRARY(faulty, &dv_op_softmax);
