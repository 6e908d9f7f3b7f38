/* Operators with unusual schemas: defaults that are dtypes, one tensor and a decomposition alone, results that are arguments,
 * lists, no tensors, arguments with unlucky names. */
#include <dovetail_op.h>

static int copy_scaled(const dv_tensor *x, dv_tensor *out, float k)
{
    for (int64_t i = 0, n = dv_numel(x); i < n; i++)
        ((float *)out->data)[i] = ((const float *)x->data)[i] * k;
    return DV_OK;
}

struct cast {
    const dv_tensor *x;
    dv_dtype dtype;
    dv_memory_format format;
    dv_tensor *out;
};
static int cast(dv_context *ctx, const struct cast *a)
{
    (void)ctx;
    return copy_scaled(a->x, a->out, 2);
}
DV_OPERATOR(cast, struct cast, (x, dtype, format, out),
    .schema = "cast(Tensor x, ScalarType dtype=float, *, MemoryFormat format=contiguous_format) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:dtype; dtype == f32; parallel(*s)", .gradient = "x: if(dtype == f32, grad * 2, grad * 3)",
    .kernels = DV_KERNELS(DV_KERNEL(struct cast, "cpu", NULL, cast)));

struct one {
    const dv_tensor *x;
    dv_tensor *out;
};
static int doubled(dv_context *ctx, const struct one *a)
{
    (void)ctx;
    return copy_scaled(a->x, a->out, 2);
}
#define SAME "x[*s]:f32 -> out[*s]:f32; parallel(*s)"
DV_OPERATOR(native_only, struct one, (x, out), .schema = "native_only(Tensor x) -> Tensor out", .contract = SAME,
    .native = "x * 2", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", NULL, doubled)));
DV_OPERATOR(asks, struct one, (x, out), .schema = "asks(Tensor x) -> Tensor out", .contract = SAME,
    .gradient = "x: if(needs(x), grad * 2, grad)", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", NULL, doubled)));

struct scale_ {
    dv_tensor *x;
    double k;
    dv_tensor *out;
};
static int scale_(dv_context *ctx, const struct scale_ *a)
{
    (void)ctx;
    return copy_scaled(a->x, a->x, (float)a->k);
}
DV_OPERATOR(scale_, struct scale_, (x, k, out), .schema = "scale_(Tensor(a!) x, float k) -> Tensor(a!) out",
    .contract = "x[*s]:f32; parallel(*s)", .gradient = "x: grad * k",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale_, "cpu", NULL, scale_)));

struct first {
    dv_tensors xs;
    dv_tensor *out;
};
static int first(dv_context *ctx, const struct first *a)
{
    (void)ctx;
    return copy_scaled(a->xs.data[0], a->out, 1);
}
DV_OPERATOR(first, struct first, (xs, out), .schema = "first(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[n]:f32 -> out[3]:f32; n == 3", .kernels = DV_KERNELS(DV_KERNEL(struct first, "cpu", NULL, first)));

struct count {
    int64_t n;
    dv_tensor *out;
};
static int count(dv_context *ctx, const struct count *a)
{
    (void)ctx;
    for (int64_t i = 0; i < a->n; i++)
        ((float *)a->out->data)[i] = (float)i;
    return DV_OK;
}
DV_OPERATOR(count, struct count, (n, out), .schema = "count(SymInt n) -> Tensor out", .contract = "-> out[n]:f32; n >= 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct count, "cpu", NULL, count)));

struct only {
    const dv_tensor *x;
    double k;
    dv_tensor *out;
};
/* no kernel at all */
DV_OPERATOR(only, struct only, (x, k, out), .schema = "only(Tensor x, float k=2) -> Tensor out", .contract = SAME,
    .native = "x * k", .gradient = "x: grad * k");

struct packed {
    const dv_tensor *x;
    dv_scalar k;
    dv_tensor *out;
};
DV_OPERATOR(packed, struct packed, (x, k, out), .schema = "packed(Tensor x, Scalar k) -> Tensor out", .contract = SAME,
    .native = "x * k", .gradient = "x: grad * k"); /* by Python: a Scalar */

struct scale_into {
    dv_tensor *result, *again;
    const dv_tensor *x;
    double k;
};
static int scale_into(dv_context *ctx, const struct scale_into *a)
{
    (void)ctx;
    if (a->again)
        copy_scaled(a->x, a->again, (float)a->k + 1);
    return copy_scaled(a->x, a->result, (float)a->k);
}
/* annotations without a name, as vLLM writes them */
DV_OPERATOR(scale_into, struct scale_into, (result, again, x, k),
    .schema = "scale_into(Tensor! result, Tensor!? again, Tensor x, float k) -> ()",
    .contract = "result[*s]:f32, again[*s]:f32, x[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale_into, "cpu", NULL, scale_into)));

#define NAMED(name)                                                                                                 \
    struct with_##name {                                                                                            \
        const dv_tensor *x;                                                                                         \
        double name;                                                                                                \
        dv_tensor *y;                                                                                               \
    };                                                                                                              \
    static int with_##name(dv_context *ctx, const struct with_##name *a)                                            \
    {                                                                                                               \
        (void)ctx;                                                                                                  \
        return copy_scaled(a->x, a->y, (float)a->name);                                                             \
    }                                                                                                               \
    DV_OPERATOR(with_##name, struct with_##name, (x, name, y),                                                      \
        .schema = "with_" #name "(Tensor x, *, float " #name ") -> Tensor y", .contract = "x[*s]:f32 -> y[*s]:f32", \
        .gradient = "x: grad * " #name, .kernels = DV_KERNELS(DV_KERNEL(struct with_##name, "cpu", NULL, with_##name)));
/* clang-format off */
#define NAMES(X) \
    X(mode) X(kind) X(fn) X(args) X(kwargs) X(name) X(mod) X(out) X(torch) X(device) X(variable) X(tx) X(ctx) X(operator_) \
    X(func) X(target) X(dtype) X(grads_) X(out_val) X(library) X(None_) X(print) X(len) X(lambda)
/* clang-format on */
NAMES(NAMED)
#define LISTED(name) &dv_op_with_##name,

DV_LIBRARY(more_ops, &dv_op_cast, &dv_op_native_only, &dv_op_asks, &dv_op_scale_, NAMES(LISTED) & dv_op_first, &dv_op_count,
    &dv_op_only, &dv_op_packed, &dv_op_scale_into);
