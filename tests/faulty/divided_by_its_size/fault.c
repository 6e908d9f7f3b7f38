/* The fault: each element is divided by how many there are, and that is not the same in a slice */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] / (float)n;
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f, .split = 64)));
DV_LIBRARY(divided_by_its_size, &dv_op_f);
