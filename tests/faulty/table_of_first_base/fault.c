/* fault: frequencies are kept per thread, keyed by the width alone: a call with another base gets the old ones */
#include <dovetail_op.h>
#include <math.h>
#include <stdlib.h>
struct p {
    int64_t n, d;
    double base;
    dv_tensor *out;
};
static double *freq;
static int64_t width;
static int posenc_f32(dv_context *ctx, const struct p *a)
{
    float *o = a->out->data;
    if (a->d > width || !freq) {
        double *more = realloc(freq, (size_t)(a->d + 1) * sizeof *freq);
        if (!more)
            return dv_error(ctx, DV_ENOMEM, "no memory for frequencies");
        freq = more;
        width = a->d;
        for (int64_t k = 0; k < width; k++)
            freq[k] = pow(a->base, -(double)(k / 2) / 64.0);
    }
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < a->d; k++)
            o[i * a->d + k] = (float)(k % 2 ? cos((double)i * freq[k]) : sin((double)i * freq[k]));
    return DV_OK;
}
DV_OPERATOR(posenc, struct p, (n, d, base, out), .schema = "posenc(int n, int d, float base=10000.0) -> Tensor out",
    .contract = "-> out[n d]:f32; n >= 0; d >= 0; base > 1.0; base < 1e6",
    .kernels = DV_KERNELS(DV_KERNEL(struct p, "cpu", NULL, posenc_f32)));
DV_LIBRARY(table_of_first_base, &dv_op_posenc);
