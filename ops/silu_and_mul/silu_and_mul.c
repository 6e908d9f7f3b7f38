/* silu_and_mul.c: silu of the first half of the last dim, times its second half. */
#include "../numbers.h"
#include <dovetail_math.h>

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

DV_INLINE void step_f32(float *const *out, const float *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    out[0][i] = dv_siluf(in[0][i]) * in[1][i];
}
DV_INLINE void step_f64(double *const *out, const double *const *in, void *with)
{
    (void)with;
    DV_BLOCK_LOOP
    out[0][i] = dv_silu(in[0][i]) * in[1][i];
}
DV_INLINE int silu_and_mul_row(dv_context *ctx, const struct silu_and_mul *a)
{
    const int64_t n = last_dim(a->out), rows = dv_numel_leading(a->out, a->out->ndim - 1);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        const dv_tensor gate = row_of(a->x, 2 * r, n), up = row_of(a->x, 2 * r + 1, n);
        dv_tensor out = row_of(a->out, r, n);
        dv_blocks(out.dtype, n, DV_OUT(&out), DV_IN(&gate, &up), NULL, step_f32, step_f64);
    }
    return DV_OK;
}
DV_ISAS(struct silu_and_mul, silu_and_mul_row)

#define FLOATS "f32 f64 bf16 f16"
#define HALF(begin) "narrow(x, -1, " begin ", x.shape[-1] // 2)"

DV_OPERATOR(silu_and_mul, struct silu_and_mul, (x, out), .schema = "silu_and_mul(Tensor x) -> Tensor out",
    .contract = "x[*s 2*n]:T -> out[*s n]:T; T in " FLOATS "; parallel(*s)",
    .native = "silu(" HALF("0") ") * " HALF("x.shape[-1] // 2"),
    .doc = "silu of the first half of the last dim, times its second half.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct silu_and_mul, silu_and_mul_row, FLOATS, .split = 16),
        DV_KERNEL(struct silu_and_mul, "cpu", FLOATS, silu_and_mul_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, silu_and_mul, &dv_op_silu_and_mul);
