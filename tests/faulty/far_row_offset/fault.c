/* The fault: the offset of a row in bytes is cut to 32 bits. Only ids that are not 0 show it. */
#include <dovetail_op.h>

struct gather0 {
    const dv_tensor *x, *ids;
    dv_tensor *out;
};

static int gather0_any(dv_context *ctx, const struct gather0 *a)
{
    const int64_t v = a->x->shape[0], n = dv_numel(a->ids), s = a->x->strides[0];
    const int32_t *ids = a->ids->data;
    const size_t size = a->x->dtype.bits / 8, row = (size_t)a->x->shape[1] * size;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        char *to = (char *)a->out->data + (size_t)i * row;
        if (ids[i] < 0 || ids[i] >= v)
            memset(to, 0, row);
        else
            memcpy(to, (const char *)a->x->data + (int32_t)(ids[i] * s * (int64_t)size), row);
    }
    return DV_OK;
}

DV_OPERATOR(gather0, struct gather0, (x, ids, out), .schema = "gather0(Tensor x, Tensor ids) -> Tensor out",
    .contract = "x[v d]:T, ids[*s]:i32 -> out[*s d]:T; last_contiguous(x); parallel(*s); T in f32 f64 i8",
    .kernels = DV_KERNELS(DV_KERNEL(struct gather0, "cpu", NULL, gather0_any, .split = 64)));

DV_LIBRARY(lib_ga, &dv_op_gather0);
