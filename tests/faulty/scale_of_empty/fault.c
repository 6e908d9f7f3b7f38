/* The fault: an empty tensor of the list is skipped without its number */
#include <dovetail_op.h>

struct scaled {
    dv_tensors xs;
    dv_floats scales;
    dv_tensor *out;
};

static int join(const struct scaled *a, bool good)
{
    float *out = a->out->data;
    for (size_t t = 0, k = 0; t < a->xs.size; t++) {
        const int64_t n = dv_numel(a->xs.data[t]);
        if (!n && !good)
            continue;
        for (int64_t i = 0; i < n; i++)
            *out++ = ((const float *)a->xs.data[t]->data)[i] * (float)a->scales.data[k];
        k++;
    }
    return DV_OK;
}
static int scaled_row(dv_context *ctx, const struct scaled *a) { return (void)ctx, join(a, false); }
static int scaled_reference(dv_context *ctx, const struct scaled *a) { return (void)ctx, join(a, true); }

DV_OPERATOR(scaled, struct scaled, (xs, scales, out), .schema = "scaled(Tensor[] xs, float[] scales) -> Tensor out",
    .contract = "xs{i}[n{i}]:f32, scales[len(xs)] -> out[total(n)]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scaled, "cpu", "f32", scaled_row),
        DV_KERNEL(struct scaled, "cpu", "f32", scaled_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY(scale_of_empty, &dv_op_scaled);
