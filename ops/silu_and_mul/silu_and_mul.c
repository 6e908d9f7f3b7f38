/* silu_and_mul.c: silu of the first half of the last dim, times its second half. */
#include "../numbers.h"
#include <math.h>

struct silu_and_mul {
    const dv_tensor *x;
    dv_tensor *out;
};

static int silu_and_mul_reference(dv_context *ctx, const struct silu_and_mul *a)
{
    const int64_t n = last_dim(a->out);
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0, m = dv_numel(a->out); i < m; i++) {
        const double gate = dv_get_f64(a->x->data, i + i / n * n, t), up = dv_get_f64(a->x->data, i + i / n * n + n, t);
        dv_put_f64(a->out->data, i, t, gate / (1 + exp(-gate)) * up);
    }
    return DV_OK;
}

#define HALF(begin) "narrow(x, -1, " begin ", x.shape[-1] // 2)"

DV_OPERATOR(silu_and_mul, struct silu_and_mul, (x, out), .schema = "silu_and_mul(Tensor x) -> Tensor out",
    .contract = "x[*s 2*n]:T -> out[*s n]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native = "silu(" HALF("0") ") * " HALF("x.shape[-1] // 2"),
    .doc = "silu of the first half of the last dim, times its second half.",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct silu_and_mul, "cpu", NULL, silu_and_mul_reference, .split = 16, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, silu_and_mul, &dv_op_silu_and_mul);
