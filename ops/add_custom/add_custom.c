/* add_custom.c: self + other, with broadcasting and promotion, and its gradient.
 *
 * Sums of floats are made by one line, in float or in double. Integers of one type are added as they lie. All others are read one
 * by one, by way of double (int64_t for integers, which then wrap). */
#include <dovetail_elementwise.h>

struct add_custom {
    const dv_tensor *self, *other;
    dv_tensor *out;
};

static bool is_float(dv_dtype t) { return t.code == 2 || t.code == 4; }

static double get_f64(const dv_tensor *t, int64_t i)
{
    switch (dv_dtype_key(t->dtype)) {
    case DV_DTYPE_i64: return (double)((const int64_t *)t->data)[i];
    case DV_DTYPE_i32: return ((const int32_t *)t->data)[i];
    case DV_DTYPE_i16: return ((const int16_t *)t->data)[i];
    case DV_DTYPE_i8: return ((const int8_t *)t->data)[i];
    case DV_DTYPE_u8: return ((const uint8_t *)t->data)[i];
    case DV_DTYPE_bool: return ((const uint8_t *)t->data)[i] != 0;
    default: return dv_get_f64(t->data, i, dv_dtype_key(t->dtype));
    }
}

static int64_t get_i64(const dv_tensor *t, int64_t i)
{
    return dv_dtype_key(t->dtype) == DV_DTYPE_i64 ? ((const int64_t *)t->data)[i] : (int64_t)get_f64(t, i);
}

static void put_i64(const dv_tensor *t, int64_t i, int64_t x)
{
    switch (dv_dtype_key(t->dtype)) {
    case DV_DTYPE_i64: ((int64_t *)t->data)[i] = x; break;
    case DV_DTYPE_i32: ((int32_t *)t->data)[i] = (int32_t)x; break;
    case DV_DTYPE_i16: ((int16_t *)t->data)[i] = (int16_t)x; break;
    case DV_DTYPE_i8: ((int8_t *)t->data)[i] = (int8_t)x; break;
    case DV_DTYPE_u8: ((uint8_t *)t->data)[i] = (uint8_t)x; break;
    case DV_DTYPE_bool: ((uint8_t *)t->data)[i] = x != 0; break;
    }
}

/* Where element `index` of the result comes from in t, which broadcasts to it. */
static int64_t source(const dv_tensor *t, const dv_tensor *out, int64_t index)
{
    int64_t at = 0, stride = 1;
    for (int32_t d = out->ndim - 1, e = t->ndim - 1; e >= 0; d--, e--) {
        if (t->shape[e] != 1)
            at += index % out->shape[d] * stride;
        stride *= t->shape[e];
        index /= out->shape[d];
    }
    return at;
}

/* Adds element `self` of one input and element `other` of the other one, to element `to` of the result. */
static void add_one(const struct add_custom *a, int64_t to, int64_t self, int64_t other)
{
    const uint32_t t = dv_dtype_key(a->out->dtype);
    if (!is_float(a->out->dtype))
        put_i64(a->out, to, (int64_t)((uint64_t)get_i64(a->self, self) + (uint64_t)get_i64(a->other, other)));
    else if (t == DV_DTYPE_f64)
        dv_put_f64(a->out->data, to, t, get_f64(a->self, self) + get_f64(a->other, other));
    else /* the sum is rounded as float arithmetic would, and then to the type */
        dv_put(a->out->data, to, t, (float)get_f64(a->self, self) + (float)get_f64(a->other, other));
}

static int add_custom_reference(dv_context *ctx, const struct add_custom *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        add_one(a, i, source(a->self, a->out, i), source(a->other, a->out, i));
    return DV_OK;
}

DV_ELEMENTWISE(add_reals, struct add_custom, (self, other), (out), out = self + other)

/* True if add_reals rounds t as PyTorch does. It computes i32 and i64 in double, and rounds once; PyTorch first rounds them to
 * the float type. */
static bool is_exact(const dv_tensor *t, const dv_tensor *out)
{
    return out->dtype.bits == 64 || is_float(t->dtype) || t->dtype.bits < 32;
}

/* Adds a slice of DV_FOR_EACH_SLICE(). */
static int add_any(dv_context *ctx, const struct add_custom *a)
{
    const uint32_t t = dv_dtype_key(a->out->dtype);
    const void *const x = a->self->data, *const y = a->other->data;
    void *const sums = a->out->data;
    const int64_t n = dv_numel(a->out), self_step = dv_numel(a->self) != 1, other_step = dv_numel(a->other) != 1;
    const bool one_type = dv_dtype_key(a->self->dtype) == t && dv_dtype_key(a->other->dtype) == t && t != DV_DTYPE_bool;
    (void)ctx;
#define ADD(TYPE)                                                                             \
    {                                                                                         \
        const TYPE *const many = self_step ? x : y, one = *(const TYPE *)(self_step ? y : x); \
        if (self_step && other_step)                                                          \
            for (int64_t i = 0; i < n; i++)                                                   \
                ((TYPE *)sums)[i] = (TYPE)(((const TYPE *)x)[i] + ((const TYPE *)y)[i]);      \
        else                                                                                  \
            for (int64_t i = 0; i < n; i++)                                                   \
                ((TYPE *)sums)[i] = (TYPE)(many[i] + one);                                    \
        return DV_OK;                                                                         \
    }
    switch (one_type && !is_float(a->out->dtype) ? a->out->dtype.bits : 0) {
    case 8: ADD(uint8_t)
    case 16: ADD(uint16_t)
    case 32: ADD(uint32_t)
    case 64: ADD(uint64_t)
    default: break;
    }
    for (int64_t i = 0; i < n; i++)
        add_one(a, i, i * self_step, i * other_step);
    return DV_OK;
}

static int add_custom_row(dv_context *ctx, const struct add_custom *a, int (*reals)(dv_context *, const struct add_custom *))
{
    const bool real = is_float(a->out->dtype) && is_exact(a->self, a->out) && is_exact(a->other, a->out);
    return DV_FOR_EACH_SLICE(ctx, struct add_custom, a, (self, other), (out), real ? reals : add_any);
}
DV_ISA_VARIANTS_OF(struct add_custom, add_custom_row, add_reals)

DV_OPERATOR(add_custom, struct add_custom, (self, other, out), .schema = "add_custom(Tensor self, Tensor other) -> Tensor out",
    .contract = "self[*a]:T, other[*b]:U -> out[broadcast(*a, *b)]:promote(T, U); "
                "T in f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool; U in f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool",
    .native = "self + other", .gradient = "self, other: add_custom_backward(grad, self.shape, other.shape)",
    .doc = "self + other, with broadcasting and PyTorch's promotion of element types.",
    .kernels = DV_KERNELS(DV_ISA_KERNELS(struct add_custom, add_custom_row, NULL),
        DV_KERNEL(struct add_custom, "cpu", NULL, add_custom_reference, .flags = DV_KERNEL_REFERENCE)));

/* Both inputs get the gradient; an input that was broadcast gets the sum over its copies. */
struct add_custom_backward {
    const dv_tensor *grad_output;
    dv_ints self_size, other_size;
    dv_tensor *grad_self, *grad_other;
};

static int sum_to(dv_context *ctx, const dv_tensor *grad, dv_tensor *out)
{
    const int64_t n = dv_numel(grad), m = dv_numel(out);
    const uint32_t t = dv_dtype_key(grad->dtype);
    if (n == m) {
        if (n)
            memcpy(out->data, grad->data, (size_t)n * (grad->dtype.bits / 8));
        return DV_OK;
    }
    double *const sum = dv_alloc(ctx, (size_t)m * sizeof(double), 64);
    if (!sum)
        return DV_ENOMEM;
    memset(sum, 0, (size_t)m * sizeof(double));
    const int64_t row = grad->shape[grad->ndim - 1], step = out->ndim && out->shape[out->ndim - 1] != 1;
    for (int64_t i = 0; i < n; i += row) {
        double *const to = sum + source(out, grad, i);
        for (int64_t j = 0; j < row; j++)
            to[j * step] += dv_get_f64(grad->data, i + j, t);
    }
    for (int64_t i = 0; i < m; i++)
        dv_put_f64(out->data, i, t, sum[i]);
    return DV_OK;
}

static int add_custom_backward_any(dv_context *ctx, const struct add_custom_backward *a)
{
    const int status = sum_to(ctx, a->grad_output, a->grad_self);
    return status ? status : sum_to(ctx, a->grad_output, a->grad_other);
}

DV_OPERATOR(add_custom_backward, struct add_custom_backward, (grad_output, self_size, other_size, grad_self, grad_other),
    .schema = "add_custom_backward(Tensor grad_output, SymInt[] self_size, SymInt[] other_size) -> (Tensor grad_self, Tensor "
              "grad_other)",
    .contract = "grad_output[broadcast(*self_size, *other_size)]:T -> grad_self[*self_size]:T, grad_other[*other_size]:T; T in "
                "f32 f64 bf16 f16",
    .native = "(sum_to_size(grad_output, self_size), sum_to_size(grad_output, other_size))",
    .gradient = "grad_output: grads[0] + grads[1]",
    .doc = "The gradients of add_custom: grad_output, summed over what broadcasting repeated.",
    .kernels = DV_KERNELS(DV_KERNEL(struct add_custom_backward, "cpu", "f32 f64 bf16 f16", add_custom_backward_any)));

DV_LIBRARY_FRAGMENT(dovetail, add_custom, &dv_op_add_custom, &dv_op_add_custom_backward);
