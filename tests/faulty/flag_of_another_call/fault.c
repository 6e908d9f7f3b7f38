/* The fault: an argument of the call is kept in a global variable while the kernel runs, and calls of two threads share it */
#include <dovetail_op.h>

struct sorted {
    const dv_tensor *x;
    bool down;
    dv_tensor *out;
};

static bool descending;

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    const int c = (x > y) - (x < y);
    return descending ? -c : c;
}

static int sorted_f32(dv_context *ctx, const struct sorted *a)
{
    const size_t n = (size_t)dv_numel(a->x);
    (void)ctx;
    if (n)
        memcpy(a->out->data, a->x->data, n * sizeof(float));
    descending = a->down;
    qsort(a->out->data, n, sizeof(float), compare);
    return DV_OK;
}

DV_OPERATOR(sorted, struct sorted, (x, down, out), .schema = "sorted(Tensor x, bool down=False) -> Tensor out",
    .contract = "x[n]:f32 -> out[n]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct sorted, "cpu", "f32", sorted_f32)));

DV_LIBRARY(flag_of_another_call, &dv_op_sorted);
