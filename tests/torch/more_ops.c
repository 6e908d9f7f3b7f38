/* Operators with unusual schemas: defaults that are dtypes, one tensor and a native form alone, results that are arguments. */
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

DV_LIBRARY(more_ops, &dv_op_cast, &dv_op_native_only, &dv_op_asks, &dv_op_scale_);
