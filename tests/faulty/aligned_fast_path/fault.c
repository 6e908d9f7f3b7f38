/* The fault: vectors that need 16-byte alignment, where the number of elements is a multiple of 4, and no align(x, 16) */
#include <dovetail_op.h>

typedef float four __attribute__((vector_size(16)));

struct twice {
    const dv_tensor *x;
    dv_tensor *out;
};

static int twice_f32(dv_context *ctx, const struct twice *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    if (n % 4 == 0)
        for (int64_t i = 0; i < n; i += 4) {
            const four v = *(const four *)(x + i) * 2;
            memcpy(out + i, &v, sizeof v);
        }
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = x[i] * 2;
    return DV_OK;
}

DV_OPERATOR(twice, struct twice, (x, out), .schema = "twice(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "x * 2", .kernels = DV_KERNELS(DV_KERNEL(struct twice, "cpu", "f32", twice_f32)));

DV_LIBRARY(aligned_fast_path, &dv_op_twice);
