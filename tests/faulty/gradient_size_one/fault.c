/* The gradient is wrong where the last dim has one element, and right everywhere else. */
#include <dovetail_op.h>
struct mean_last {
    const dv_tensor *x;
    dv_tensor *out;
};

static int mean_last_f32(dv_context *ctx, const struct mean_last *a)
{
    const int64_t d = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    const float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < d; k++)
            sum += (double)x[i * d + k];
        ((float *)a->out->data)[i] = (float)(sum / (double)d);
    }
    return DV_OK;
}

DV_OPERATOR(mean_last, struct mean_last, (x, out), .schema = "mean_last(Tensor x) -> Tensor out",
    .contract = "x[*s d]:f32 -> out[*s]:f32; d > 0",
    .gradient = "x: expand(unsqueeze(grad / if(x.shape[-1] == 1, 2, x.shape[-1]), -1), x.shape)",
    .kernels = DV_KERNELS(DV_KERNEL(struct mean_last, "cpu", "f32", mean_last_f32)));
DV_LIBRARY(faulty, &dv_op_mean_last);
