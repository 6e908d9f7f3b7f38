/* The backward kernel saturates in bf16, at 2; in f64 nothing is seen of it. */
#include <dovetail_math.h>
struct shift {
    const dv_tensor *x, *by;
    dv_tensor *out;
};
struct total {
    const dv_tensor *grad;
    dv_tensor *out;
};

static int shift_any(dv_context *ctx, const struct shift *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        dv_put_f64(a->out->data, i, t, dv_get_f64(a->x->data, i, t) + dv_get_f64(a->by->data, 0, t));
    return DV_OK;
}

static int total_any(dv_context *ctx, const struct total *a)
{
    const uint32_t t = dv_dtype_key(a->grad->dtype);
    (void)ctx;
    dv_put_f64(a->out->data, 0, t, 0);
    for (int64_t i = 0, n = dv_numel(a->grad); i < n; i++) {
        const double most = t == DV_DTYPE_bf16 ? 2 : 1e300,
                     sum = dv_get_f64(a->out->data, 0, t) + dv_get_f64(a->grad->data, i, t);
        dv_put_f64(a->out->data, 0, t, sum > most ? most : sum);
    }
    return DV_OK;
}

DV_OPERATOR(shift, struct shift, (x, by, out), .schema = "shift(Tensor x, Tensor by) -> Tensor out",
    .contract = "x[*s]:T, by[]:T -> out[*s]:T; T in f64 bf16", .gradient = "x: grad; by: total(grad)",
    .kernels = DV_KERNELS(DV_KERNEL(struct shift, "cpu", "f64 bf16", shift_any)));
DV_OPERATOR(total, struct total, (grad, out), .schema = "total(Tensor grad) -> Tensor out",
    .contract = "grad[*s]:T -> out[]:T; T in f64 bf16",
    .kernels = DV_KERNELS(DV_KERNEL(struct total, "cpu", "f64 bf16", total_any)));
DV_LIBRARY(faulty, &dv_op_shift, &dv_op_total);
