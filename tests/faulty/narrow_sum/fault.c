/* Bytes are added up in a byte. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    int8_t sum = 0;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        sum = (int8_t)(sum + ((const int8_t *)a->x->data)[i]);
    *(int64_t *)a->out->data = sum;
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:i8 -> out[]:i64; sum(n)",
    .native = "sum(x, [0])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i8", f)));
DV_LIBRARY(faulty, &dv_op_f);
