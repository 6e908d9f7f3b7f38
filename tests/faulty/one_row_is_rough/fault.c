/* The row for AVX2 takes a rougher exponential than the tolerance of f32 allows. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f_reference(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = (float)exp((double)((const float *)a->x->data)[i]);
    return DV_OK;
}

static int f_fast(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float x = ((const float *)a->x->data)[i];
        ((float *)a->out->data)[i] = powf(1 + x / 4096, 4096);
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_fast, .isa = "avx2"),
        DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
