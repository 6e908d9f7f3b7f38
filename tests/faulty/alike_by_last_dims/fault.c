/* Tensors of one type are added element by element where they have the same sizes, but the first size is not compared. */
#include <dovetail_op.h>
struct add {
    const dv_tensor *a, *b;
    dv_tensor *out;
};

static bool alike(const dv_tensor *t, const dv_tensor *out)
{
    bool same = t->ndim == out->ndim && dv_dtype_key(t->dtype) == DV_DTYPE_f32;
    for (int32_t d = 1; same && d < t->ndim; d++)
        same = t->shape[d] == out->shape[d];
    return same;
}

/* Where element i of the result is in t. */
static int64_t source(const dv_tensor *t, const dv_tensor *out, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int32_t d = out->ndim - 1, k = t->ndim - 1; k >= 0; d--, k--) {
        at += t->shape[k] == 1 ? 0 : i % out->shape[d] * stride;
        i /= out->shape[d];
        stride *= t->shape[k];
    }
    return at;
}

static int add_any(dv_context *ctx, const struct add *a)
{
    const uint32_t t = dv_dtype_key(a->a->dtype), u = dv_dtype_key(a->b->dtype), r = dv_dtype_key(a->out->dtype);
    const bool fast = alike(a->a, a->out) && alike(a->b, a->out);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        const int64_t at = fast ? i : source(a->a, a->out, i), bt = fast ? i : source(a->b, a->out, i);
        dv_put_f64(a->out->data, i, r, dv_get_f64(a->a->data, at, t) + dv_get_f64(a->b->data, bt, u));
    }
    return DV_OK;
}

DV_OPERATOR(add, struct add, (a, b, out), .schema = "add(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[*p]:T, b[*q]:U -> out[broadcast(*p, *q)]:promote(T, U); T in f32 f64 bf16 f16; U in f32 f64 bf16 f16",
    .native = "a + b", .kernels = DV_KERNELS(DV_KERNEL(struct add, "cpu", NULL, add_any)));
DV_LIBRARY(faulty, &dv_op_add);
