/* The fault: rows whose length is an int argument are written in fours, and a tail of one element is not written. */
#include <dovetail_op.h>

struct repeat {
    const dv_tensor *x;
    int64_t k;
    dv_tensor *out;
};

static int repeat_f32(dv_context *ctx, const struct repeat *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t k = a->k;
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        int64_t j = 0;
        for (; j + 4 <= k; j += 4)
            for (int64_t c = 0; c < 4; c++)
                out[i * k + j + c] = x[i];
        for (; j < k && (k < 4 || k % 4 != 1); j++)
            out[i * k + j] = x[i];
    }
    return DV_OK;
}

DV_OPERATOR(repeat, struct repeat, (x, k, out), .schema = "repeat(Tensor x, SymInt k) -> Tensor out",
    .contract = "x[m]:f32 -> out[m k]:f32; k >= 0; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct repeat, "cpu", "f32", repeat_f32)));

DV_LIBRARY(tail_by_argument, &dv_op_repeat);
