/* The fault: the flags in scratch memory are never cleared; any memory but zeros makes them all look set */
#include <dovetail_op.h>

struct f {
    const dv_tensor *ids;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t *ids = a->ids->data, n = dv_numel(a->ids);
    bool *out = a->out->data;
    unsigned char *seen = dv_alloc(ctx, 256, 1);
    if (!seen)
        return DV_ENOMEM;
    for (int64_t i = 0; i < n; i++) {
        out[i] = !seen[ids[i] & 255];
        seen[ids[i] & 255] = 1;
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (ids, out), .schema = "is_first(Tensor ids) -> Tensor out",
    .contract = "ids[n]:i64 -> out[n]:bool; 0 <= ids.values < 256", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i64", f)));
DV_LIBRARY(faulty, &dv_op_f);
