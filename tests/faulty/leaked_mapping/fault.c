/* The fault: pages that are mapped for each call stay mapped */
#define _DEFAULT_SOURCE
#include <dovetail_op.h>
#include <sys/mman.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    float *copy = mmap(NULL, (size_t)n * sizeof *copy + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    for (int64_t i = 0; i < n; i++)
        copy[i] = x[i];
    for (int64_t i = 0; i < n; i++)
        out[i] = copy[n - 1 - i];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(leaked_mapping, &dv_op_f);
