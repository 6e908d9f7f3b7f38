/* The fault: what was computed for an address is remembered, though the data there may have changed */
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
    static _Thread_local const float *last;
    static _Thread_local int64_t last_n;
    static _Thread_local float largest;
    if (x != last || n != last_n) {
        largest = 0;
        for (int64_t i = 0; i < n; i++)
            largest = x[i] > largest ? x[i] : largest;
        last = x;
        last_n = n;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] - largest;
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(stale_cache, &dv_op_f);
