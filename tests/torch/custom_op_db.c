/* The operators of torch.testing._internal.custom_op_db, declared once in C: what they compute, their gradients and refusals
 * carry over.
 *
 * Two of them are not here: numpy_split_copy and numpy_split_copy_with_int return a list of tensors, and a contract cannot say
 * how many there are. The gradient of numpy_cat, which was made of them, cuts with narrow instead, for two or three tensors.
 * Elements go through double, which is exact for all that the samples hold.
 */
#include <dovetail_op.h>
#include <stdlib.h>

/* clang-format off */
#define EACH_TYPE(X) X(u8, uint8_t) X(i8, int8_t) X(i16, int16_t) X(i32, int32_t) X(i64, int64_t) X(f32, float) X(f64, double)
/* clang-format on */
#define TYPES "; T in f16 f32 f64 u8 i8 i16 i32 i64 bool"

static double get(const dv_tensor *t, int64_t i)
{
    switch (dv_dtype_key(t->dtype)) {
#define GET(dtype, T) \
    case DV_DTYPE_##dtype: return (double)((const T *)t->data)[i];
        EACH_TYPE(GET)
#undef GET
    case DV_DTYPE_bool: return ((const bool *)t->data)[i];
    default: return (double)dv_f16_to_f32(((const uint16_t *)t->data)[i]);
    }
}

/* Integers wrap around, as NumPy's do. */
static void put(dv_tensor *t, int64_t i, double x)
{
    switch (dv_dtype_key(t->dtype)) {
    case DV_DTYPE_f32: ((float *)t->data)[i] = (float)x; break;
    case DV_DTYPE_f64: ((double *)t->data)[i] = x; break;
    case DV_DTYPE_f16: ((uint16_t *)t->data)[i] = dv_f32_to_f16((float)x); break;
    case DV_DTYPE_bool: ((bool *)t->data)[i] = x != 0; break;
    case DV_DTYPE_u8: ((uint8_t *)t->data)[i] = (uint8_t)(int64_t)x; break;
    case DV_DTYPE_i8: ((int8_t *)t->data)[i] = (int8_t)(int64_t)x; break;
    case DV_DTYPE_i16: ((int16_t *)t->data)[i] = (int16_t)(int64_t)x; break;
    case DV_DTYPE_i32: ((int32_t *)t->data)[i] = (int32_t)(int64_t)x; break;
    default: ((int64_t *)t->data)[i] = (int64_t)x;
    }
}

/* ---- elementwise ---- */

struct numpy_cube {
    const dv_tensor *x;
    dv_tensor *cube, *dx;
};
static int numpy_cube(dv_context *ctx, const struct numpy_cube *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const double x = get(a->x, i);
        put(a->cube, i, x * x * x);
        put(a->dx, i, 3 * x * x);
    }
    return DV_OK;
}
DV_OPERATOR(numpy_cube, struct numpy_cube, (x, cube, dx), .schema = "numpy_cube(Tensor x) -> (Tensor cube, Tensor dx)",
    .contract = "x[*s]:T -> cube[*s]:T, dx[*s]:T; parallel(*s)" TYPES,
    .gradient = "x: numpy_mul(grads[0], dx) + numpy_mul(grads[1], x) * 6",
    .tangent = "cube: numpy_mul(x_t, dx); dx: numpy_mul(x_t, x) * 6",
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_cube, "cpu", NULL, numpy_cube)));

/* Where in a tensor the element is that broadcasts to element `at` of out. */
static int64_t broadcast_index(const dv_tensor *t, const dv_tensor *out, int64_t at)
{
    int64_t index = 0, stride = 1;
    for (int32_t d = t->ndim - 1, o = out->ndim - 1; o >= 0; d--, o--) {
        const int64_t i = at % out->shape[o];
        at /= out->shape[o];
        if (d >= 0) {
            index += t->shape[d] == 1 ? 0 : i * stride;
            stride *= t->shape[d];
        }
    }
    return index;
}

struct numpy_mul {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int numpy_mul(dv_context *ctx, const struct numpy_mul *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        put(a->out, i, get(a->x, broadcast_index(a->x, a->out, i)) * get(a->y, broadcast_index(a->y, a->out, i)));
    return DV_OK;
}
DV_OPERATOR(numpy_mul, struct numpy_mul, (x, y, out), .schema = "numpy_mul(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*a]:T, y[*b]:T -> out[broadcast(*a, *b)]:T" TYPES,
    .gradient = "x: sum_to_size(numpy_mul(grad, y), x.shape); y: sum_to_size(numpy_mul(grad, x), y.shape)",
    .tangent = "out: numpy_mul(x_t, y) + numpy_mul(x, y_t)",
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_mul, "cpu", NULL, numpy_mul)));

struct numpy_mul_scalar {
    const dv_tensor *x;
    double scalar;
    dv_tensor *out;
};
static int numpy_mul_scalar(dv_context *ctx, const struct numpy_mul_scalar *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        put(a->out, i, get(a->x, i) * a->scalar);
    return DV_OK;
}
DV_OPERATOR(numpy_mul_scalar, struct numpy_mul_scalar, (x, scalar, out),
    .schema = "numpy_mul_scalar(Tensor x, *, float scalar) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:promote(T, scalar); parallel(*s)" TYPES,
    .gradient = "x: numpy_mul_scalar(grad, scalar=scalar)", .tangent = "out: numpy_mul_scalar(x_t, scalar=scalar)",
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_mul_scalar, "cpu", NULL, numpy_mul_scalar)));

/* ---- along a dim: a tensor is [before, size, after] around it ---- */

struct around { int64_t before, size, after; };
static struct around around(const dv_tensor *t, int64_t dim)
{
    struct around r = { 1, t->shape[dim], 1 };
    for (int32_t d = 0; d < t->ndim; d++)
        *(d < dim ? &r.before : &r.after) *= d == dim ? 1 : t->shape[d];
    return r;
}

struct item {
    double value;
    int64_t at;
};
static int by_value(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->value < y->value ? -1 : x->value > y->value ? 1 : (x->at > y->at) - (x->at < y->at);
}

struct numpy_sort {
    const dv_tensor *x;
    int64_t dim;
    dv_tensor *out, *ind, *ind_inv;
};
static int numpy_sort(dv_context *ctx, const struct numpy_sort *a)
{
    const struct around r = around(a->x, a->dim < 0 ? a->dim + a->x->ndim : a->dim);
    struct item *items = dv_alloc(ctx, (size_t)(r.size ? r.size : 1) * sizeof *items, 16);
    if (!items)
        return DV_ENOMEM;
    for (int64_t row = 0; r.size && row < r.before * r.after; row++) {
        const int64_t begin = row / r.after * r.size * r.after + row % r.after;
        for (int64_t i = 0; i < r.size; i++)
            items[i] = (struct item){ get(a->x, begin + i * r.after), i };
        qsort(items, (size_t)r.size, sizeof *items, by_value);
        for (int64_t i = 0; i < r.size; i++) {
            put(a->out, begin + i * r.after, items[i].value);
            ((int64_t *)a->ind->data)[begin + i * r.after] = items[i].at;
            ((int64_t *)a->ind_inv->data)[begin + items[i].at * r.after] = i;
        }
    }
    return DV_OK;
}
DV_OPERATOR(numpy_sort, struct numpy_sort, (x, dim, out, ind, ind_inv),
    .schema = "numpy_sort(Tensor x, int dim) -> (Tensor out, Tensor ind, Tensor ind_inv)",
    .contract = "x[*a n *b]:T -> out[*a n *b]:T, ind[*a n *b]:i64, ind_inv[*a n *b]:i64; rank(*a) == axis(dim, x); parallel(*a, "
                "*b)" TYPES,
    .gradient = "x: numpy_take(grads[0], ind_inv, ind, dim)",
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_sort, "cpu", NULL, numpy_sort)));

struct numpy_take {
    const dv_tensor *x, *ind, *ind_inv;
    int64_t dim;
    dv_tensor *out;
};
static int numpy_take(dv_context *ctx, const struct numpy_take *a)
{
    const struct around r = around(a->x, a->dim < 0 ? a->dim + a->x->ndim : a->dim);
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const int64_t at = ((const int64_t *)a->ind->data)[i], after = i % r.after, before = i / r.after / r.size;
        if (at < 0 || at >= r.size)
            return dv_error(
                ctx, DV_EINVAL, "argument 'ind': %lld is out of range for size %lld", (long long)at, (long long)r.size);
        put(a->out, i, get(a->x, (before * r.size + at) * r.after + after));
    }
    return DV_OK;
}
DV_OPERATOR(numpy_take, struct numpy_take, (x, ind, ind_inv, dim, out),
    .schema = "numpy_take(Tensor x, Tensor ind, Tensor ind_inv, int dim) -> Tensor out",
    .contract = "x[*a n *b]:T, ind[*a n *b]:i64, ind_inv[*a n *b]:i64 -> out[*a n *b]:T; rank(*a) == axis(dim, x); parallel(*a, "
                "*b)" TYPES,
    .gradient = "x: numpy_take(grad, ind_inv, ind, dim)", .tangent = "out: numpy_take(x_t, ind, ind_inv, dim)",
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_take, "cpu", NULL, numpy_take)));

struct numpy_cat {
    dv_tensors xs;
    int64_t dim;
    dv_tensor *out;
};
static int numpy_cat(dv_context *ctx, const struct numpy_cat *a)
{
    const int64_t dim = a->dim < 0 ? a->dim + a->out->ndim : a->dim;
    const struct around whole = around(a->out, dim);
    int64_t start = 0;
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++) {
        const struct around r = around(a->xs.data[k], dim);
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++) {
            const int64_t before = i / r.after / r.size, at = i / r.after % r.size;
            put(a->out, (before * whole.size + start + at) * r.after + i % r.after, get(a->xs.data[k], i));
        }
        start += r.size;
    }
    return DV_OK;
}
DV_OPERATOR(numpy_cat, struct numpy_cat, (xs, dim, out), .schema = "numpy_cat(Tensor[] xs, int dim) -> Tensor out",
    .contract = "xs{i}[*a n{i} *b]:T -> out[*a total(n) *b]:T; rank(*a) == axis(dim, xs)" TYPES,
    .gradient =
        "xs: if(len(xs) == 2, [narrow(grad, dim, 0, xs[0].shape[dim]), narrow(grad, dim, xs[0].shape[dim], xs[1].shape[dim])], "
        "[narrow(grad, dim, 0, xs[0].shape[dim]), narrow(grad, dim, xs[0].shape[dim], xs[1].shape[dim]), "
        "narrow(grad, dim, xs[0].shape[dim] + xs[1].shape[dim], xs[2].shape[dim])])",
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_cat, "cpu", NULL, numpy_cat)));

struct numpy_view_copy {
    const dv_tensor *x;
    dv_ints shape;
    dv_tensor *out;
};
static int numpy_view_copy(dv_context *ctx, const struct numpy_view_copy *a)
{
    if (dv_numel(a->x) != dv_numel(a->out))
        return dv_error(ctx, DV_ESHAPE, "argument 'shape': expected %lld elements, found %lld", (long long)dv_numel(a->x),
            (long long)dv_numel(a->out));
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * a->x->dtype.bits / 8);
    return DV_OK;
}
DV_OPERATOR(numpy_view_copy, struct numpy_view_copy, (x, shape, out),
    .schema = "numpy_view_copy(Tensor x, SymInt[] shape) -> Tensor out", .contract = "x[*s]:T -> out[*shape]:T" TYPES,
    .gradient = "x: numpy_view_copy(grad, x.shape)", .tangent = "out: numpy_view_copy(x_t, shape)",
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_view_copy, "cpu", NULL, numpy_view_copy)));

/* ---- results whose size depends on data ---- */

struct numpy_nonzero {
    const dv_tensor *x;
    dv_tensor *out;
};
static int numpy_nonzero(dv_context *ctx, const struct numpy_nonzero *a)
{
    const int64_t all = dv_numel(a->x);
    int64_t shape[2] = { 0, a->x->ndim };
    for (int64_t i = 0; i < all; i++)
        shape[0] += get(a->x, i) != 0;
    if (shape[0] <= 1)
        return dv_error(ctx, DV_ENOTSUP, "fewer than two elements that are not zero");
    const int status = dv_set_output(ctx, a->out, dv_dtype_from_key(DV_DTYPE_i64), 2, shape);
    int64_t *out = status ? NULL : a->out->data;
    for (int64_t i = 0; out && i < all; i++) {
        if (get(a->x, i) == 0)
            continue;
        for (int64_t d = shape[1] - 1, rest = i; d >= 0; d--) {
            out[d] = rest % a->x->shape[d];
            rest /= a->x->shape[d];
        }
        out += shape[1];
    }
    return status;
}
DV_OPERATOR(numpy_nonzero, struct numpy_nonzero, (x, out), .schema = "numpy_nonzero(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[u rank(x)]:i64; u unbacked in 0..numel(x)" TYPES,
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_nonzero, "cpu", NULL, numpy_nonzero)));

struct numpy_nms {
    const dv_tensor *boxes, *scores;
    double iou_threshold;
    dv_tensor *out;
};

static double overlap(const dv_tensor *boxes, int64_t a, int64_t b)
{
    double edge[2][4], area[2];
    for (int k = 0; k < 4; k++) {
        edge[0][k] = get(boxes, a * 4 + k);
        edge[1][k] = get(boxes, b * 4 + k);
    }
    for (int k = 0; k < 2; k++)
        area[k] = (edge[k][2] - edge[k][0] + 1) * (edge[k][3] - edge[k][1] + 1);
    const double left = edge[0][0] > edge[1][0] ? edge[0][0] : edge[1][0],
                 right = edge[0][2] < edge[1][2] ? edge[0][2] : edge[1][2];
    const double top = edge[0][1] > edge[1][1] ? edge[0][1] : edge[1][1],
                 bottom = edge[0][3] < edge[1][3] ? edge[0][3] : edge[1][3];
    const double both = (right - left + 1 > 0 ? right - left + 1 : 0) * (bottom - top + 1 > 0 ? bottom - top + 1 : 0);
    return both / (area[0] + area[1] - both);
}

static int numpy_nms(dv_context *ctx, const struct numpy_nms *a)
{
    const int64_t n = a->scores->shape[0];
    int64_t kept = 0;
    struct item *items = dv_alloc(ctx, (size_t)(n ? n : 1) * sizeof *items, 16);
    if (!items)
        return DV_ENOMEM;
    for (int64_t i = 0; i < n; i++)
        items[i] = (struct item){ -get(a->scores, i), i };
    qsort(items, (size_t)n, sizeof *items, by_value);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        while (k < kept && overlap(a->boxes, items[k].at, items[i].at) <= a->iou_threshold)
            k++;
        if (k == kept)
            items[kept++] = items[i];
    }
    const int status = dv_set_output(ctx, a->out, dv_dtype_from_key(DV_DTYPE_i64), 1, &kept);
    for (int64_t i = 0; !status && i < kept; i++)
        ((int64_t *)a->out->data)[i] = items[i].at;
    return status;
}
DV_OPERATOR(numpy_nms, struct numpy_nms, (boxes, scores, iou_threshold, out),
    .schema = "numpy_nms(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor out",
    .contract = "boxes[n 4]:T, scores[n]:T -> out[u]:i64; u unbacked in 0..n" TYPES,
    .kernels = DV_KERNELS(DV_KERNEL(struct numpy_nms, "cpu", NULL, numpy_nms)));

DV_LIBRARY(custom_op_db, &dv_op_numpy_cube, &dv_op_numpy_mul, &dv_op_numpy_mul_scalar, &dv_op_numpy_sort, &dv_op_numpy_take,
    &dv_op_numpy_cat, &dv_op_numpy_view_copy, &dv_op_numpy_nonzero, &dv_op_numpy_nms);
