/* The fault: a path for tensors that are reversed in both dims reads them in the order of memory. */
#include <dovetail_op.h>

struct negate {
    const dv_tensor *x;
    dv_tensor *out;
};

static int negate_f32(dv_context *ctx, const struct negate *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t *s = a->x->strides, m = a->x->shape[0], n = a->x->shape[1];
    const bool reversed = m > 1 && n > 1 && s[0] == -n && s[1] == -1;
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            out[i * n + j] = -(reversed ? x[i * n + j - (m * n - 1)] : x[i * s[0] + j * s[1]]);
    return DV_OK;
}

DV_OPERATOR(negate, struct negate, (x, out), .schema = "negate(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n]:f32; strided(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct negate, "cpu", "f32", negate_f32)));

DV_LIBRARY(reversed_in_all_dims, &dv_op_negate);
