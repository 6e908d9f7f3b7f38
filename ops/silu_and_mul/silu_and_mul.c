/* silu_and_mul.c: silu of the first half of the last dim, times its second half. */
#include "../numbers.h"
#include <dovetail_elementwise.h>

struct silu_and_mul {
    const dv_tensor *x;
    dv_tensor *out;
};

struct halves {
    const dv_tensor *gate, *up;
    dv_tensor *out;
};
DV_ELEMENTWISE(line, struct halves, (gate, up), (out), out = dv_silu(gate) * up)

static int silu_and_mul_row(dv_context *ctx, const struct silu_and_mul *a, int (*line)(dv_context *ctx, const struct halves *a))
{
    static const int64_t one = 1;
    const int64_t n = last_dim(a->out), rows = dv_numel_leading(a->out, a->out->ndim - 1);
    int status = DV_OK;
    for (int64_t r = 0; r < rows && !status; r++) {
        dv_tensor gate = row_of(a->x, 2 * r, n), up = row_of(a->x, 2 * r + 1, n), out = row_of(a->out, r, n);
        gate.shape = up.shape = out.shape = &n;
        gate.strides = up.strides = out.strides = &one;
        gate.ndim = up.ndim = out.ndim = 1;
        status = line(ctx, &(struct halves){ &gate, &up, &out });
    }
    return status;
}
DV_ISA_VARIANTS_OF(struct silu_and_mul, silu_and_mul_row, line)
static int silu_and_mul_row_reference(dv_context *ctx, const struct silu_and_mul *a)
{
    return silu_and_mul_row(ctx, a, line_reference);
}

#define FLOATS "f32 f64 bf16 f16"
#define HALF(begin) "narrow(x, -1, " begin ", x.shape[-1] // 2)"

DV_OPERATOR(silu_and_mul, struct silu_and_mul, (x, out), .schema = "silu_and_mul(Tensor x) -> Tensor out",
    .contract = "x[*s 2*n]:T -> out[*s n]:T; T in " FLOATS "; parallel(*s)",
    .native = "silu(" HALF("0") ") * " HALF("x.shape[-1] // 2"),
    .doc = "silu of the first half of the last dim, times its second half.",
    .kernels = DV_KERNELS(DV_BF16_KERNEL(struct silu_and_mul, silu_and_mul_row, .split = 16)
                              DV_ISA_KERNELS(struct silu_and_mul, silu_and_mul_row, FLOATS, .split = 16),
        DV_KERNEL(struct silu_and_mul, "cpu", FLOATS, silu_and_mul_row_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, silu_and_mul, &dv_op_silu_and_mul);
