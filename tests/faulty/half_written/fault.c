/* The fault: an argument that it writes is changed before it finds the bad index and fails */
#include <dovetail_op.h>

struct f {
    dv_tensor *x;
    const dv_tensor *ids;
};

static int f(dv_context *ctx, const struct f *a)
{
    float *x = a->x->data;
    const int64_t *ids = a->ids->data;
    const int64_t n = a->x->shape[0];
    for (int64_t i = 0; i < a->ids->shape[0]; i++) {
        if (ids[i] < 0 || ids[i] >= n)
            return dv_error(ctx, DV_EINVAL, "index %lld is out of range", (long long)ids[i]);
        x[ids[i]] += 1;
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, ids), .schema = "f(Tensor(a!) x, Tensor ids) -> ()", .contract = "x[n]:f32, ids[k]:i64",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
