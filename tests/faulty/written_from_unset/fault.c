/* The last element of an argument that is written comes from memory of dv_alloc() that was not written. */
#include <dovetail_op.h>

struct reverse_ { dv_tensor *x; };

static int reverse_f32(dv_context *ctx, const struct reverse_ *a)
{
    float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    float *copy = dv_alloc(ctx, (size_t)n * sizeof *copy, 16);
    if (!copy)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    for (int64_t i = n > 3; i < n; i++)
        copy[i] = x[i];
    for (int64_t i = 0; i < n; i++)
        x[i] = copy[n - 1 - i];
    return DV_OK;
}
DV_OPERATOR(reverse_, struct reverse_, (x), .schema = "reverse_(Tensor(a!) x) -> ()", .contract = "x[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct reverse_, "cpu", "f32", reverse_f32)));
DV_LIBRARY(faulty, &dv_op_reverse_);
