/* shape.c: operators that move elements without looking at them. Each is one or two copies of a box (base_copy): what differs is
 * where the box begins and how it is walked through. */
#include "base.h"

/* clang-format off */
#define ROW(FRAME, FN) DV_KERNELS(DV_KERNEL(FRAME, "cpu", NULL, FN))
/* clang-format on */

static int bad_axis(dv_context *ctx, int64_t dim, const dv_tensor *t)
{
    return dv_error(ctx, DV_EINVAL, "dim %lld is out of range for a tensor of %d dims", (long long)dim, t->ndim);
}

static void copy_all(const dv_tensor *dst, const dv_tensor *src)
{
    const size_t bytes = (size_t)dv_numel(src) * base_item(src->dtype);
    if (bytes)
        memcpy(dst->data, src->data, bytes);
}

/* ---- the same elements in another order or shape ------------------------------------------------------------------------- */

/* out's dim d walks through self with stride[d]. */
static void gather(const dv_tensor *out, const dv_tensor *self, const int64_t *stride, int64_t offset)
{
    int64_t out_strides[64];
    base_byte_strides(out, out_strides);
    base_copy(base_item(out->dtype), out->ndim, out->shape, out->data, out_strides, (const char *)self->data + offset, stride);
}

struct transpose {
    const dv_tensor *self;
    int64_t dim0, dim1;
    dv_tensor *out;
};

static int transpose_any(dv_context *ctx, const struct transpose *a)
{
    int64_t stride[64];
    const int32_t i = base_axis(a->dim0, a->self->ndim), j = base_axis(a->dim1, a->self->ndim);
    if (i < 0 || j < 0)
        return bad_axis(ctx, i < 0 ? a->dim0 : a->dim1, a->self);
    base_byte_strides(a->self, stride);
    if (a->self->ndim) {
        const int64_t kept = stride[i];
        stride[i] = stride[j];
        stride[j] = kept;
    }
    gather(a->out, a->self, stride, 0);
    return DV_OK;
}

DV_OPERATOR(transpose_int, struct transpose, (self, dim0, dim1, out),
    .schema = "transpose.int(Tensor self, int dim0, int dim1) -> Tensor out",
    .contract = "self[*s]:T -> out[swap(*s, dim0, dim1)]:T", .gradient = "self: transpose(grad, dim0, dim1)",
    .kernels = ROW(struct transpose, transpose_any));

struct reshape {
    const dv_tensor *self;
    dv_ints shape;
    dv_tensor *out;
};

static int reshape_shape(dv_context *ctx, const void *frame)
{
    const struct reshape *a = frame;
    int64_t shape[64], known = 1, hole = -1;
    if (a->shape.size > 64)
        return dv_error(ctx, DV_ELIMIT, "argument 'shape': more than 64 dims");
    for (size_t i = 0; i < a->shape.size; i++) {
        const int64_t size = shape[i] = a->shape.data[i];
        if (size == -1 && hole < 0)
            hole = (int64_t)i;
        else if (size < 0)
            return dv_error(ctx, DV_ESHAPE, "argument 'shape': %lld is not a size", (long long)size);
        else if (__builtin_mul_overflow(known, size, &known))
            return dv_error(ctx, DV_ESHAPE, "argument 'shape': too large");
    }
    const int64_t n = dv_numel(a->self);
    if (hole >= 0 && known)
        shape[hole] = n / known;
    if (hole >= 0 && known ? n % known : hole >= 0 || n != known)
        return dv_error(ctx, DV_ESHAPE, "argument 'shape': does not hold the %lld elements of 'self'", (long long)n);
    return dv_set_output(ctx, a->out, a->self->dtype, (int32_t)a->shape.size, shape);
}

static int reshape_any(dv_context *ctx, const struct reshape *a)
{
    (void)ctx;
    copy_all(a->out, a->self);
    return DV_OK;
}

DV_OPERATOR(reshape, struct reshape, (self, shape, out), .schema = "reshape(Tensor self, SymInt[] shape) -> Tensor out",
    .contract = "self[*s]:T -> out[...]:T", .gradient = "self: reshape(grad, self.shape)", .shape = reshape_shape,
    .kernels = ROW(struct reshape, reshape_any));

struct expand {
    const dv_tensor *self;
    dv_ints size;
    bool implicit;
    dv_tensor *out;
};

static int expand_shape(dv_context *ctx, const void *frame)
{
    const struct expand *a = frame;
    int64_t shape[64];
    const int64_t extra = (int64_t)a->size.size - a->self->ndim;
    if (a->size.size > 64 || extra < 0)
        return dv_error(ctx, DV_ESHAPE, "argument 'size': %zu dims for a tensor of %d", a->size.size, a->self->ndim);
    for (int64_t d = 0; d < (int64_t)a->size.size; d++) {
        const int64_t have = d < extra ? -1 : a->self->shape[d - extra], want = a->size.data[d];
        shape[d] = want == -1 ? have : want;
        if (shape[d] < 0 || (d >= extra && have != 1 && have != shape[d]))
            return dv_error(
                ctx, DV_ESHAPE, "argument 'size': dim %lld cannot be expanded to %lld", (long long)d, (long long)want);
    }
    return dv_set_output(ctx, a->out, a->self->dtype, (int32_t)a->size.size, shape);
}

static int expand_any(dv_context *ctx, const struct expand *a)
{
    const int32_t extra = a->out->ndim - a->self->ndim;
    int64_t from[64], stride[64] = { 0 };
    (void)ctx;
    base_byte_strides(a->self, from);
    for (int32_t d = extra; d < a->out->ndim; d++)
        stride[d] = a->self->shape[d - extra] == 1 ? 0 : from[d - extra];
    gather(a->out, a->self, stride, 0);
    return DV_OK;
}

DV_OPERATOR(expand, struct expand, (self, size, implicit, out),
    .schema = "expand(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor out",
    .contract = "self[*s]:T -> out[...]:T; unused(implicit)", .gradient = "self: sum_to_size(grad, self.shape)",
    .shape = expand_shape, .kernels = ROW(struct expand, expand_any));

struct unsqueeze {
    const dv_tensor *self;
    int64_t dim;
    dv_tensor *out;
};

static int unsqueeze_shape(dv_context *ctx, const void *frame)
{
    const struct unsqueeze *a = frame;
    int64_t shape[64];
    const int32_t at = a->self->ndim < 64 ? base_axis(a->dim, a->self->ndim + 1) : -1;
    if (at < 0)
        return bad_axis(ctx, a->dim, a->self);
    for (int32_t d = 0; d <= a->self->ndim; d++)
        shape[d] = d < at ? a->self->shape[d] : d == at ? 1 : a->self->shape[d - 1];
    return dv_set_output(ctx, a->out, a->self->dtype, a->self->ndim + 1, shape);
}

static int unsqueeze_any(dv_context *ctx, const struct unsqueeze *a)
{
    (void)ctx;
    copy_all(a->out, a->self);
    return DV_OK;
}

DV_OPERATOR(unsqueeze, struct unsqueeze, (self, dim, out), .schema = "unsqueeze(Tensor self, int dim) -> Tensor out",
    .contract = "self[*s]:T -> out[...]:T", .gradient = "self: reshape(grad, self.shape)", .shape = unsqueeze_shape,
    .kernels = ROW(struct unsqueeze, unsqueeze_any));

static int squeeze_shape(dv_context *ctx, const void *frame)
{
    const struct unsqueeze *a = frame;
    int64_t shape[64];
    int32_t n = 0;
    const int32_t at = base_axis(a->dim, a->self->ndim);
    if (at < 0)
        return bad_axis(ctx, a->dim, a->self);
    for (int32_t d = 0; d < a->self->ndim; d++)
        if (d != at || a->self->shape[d] != 1)
            shape[n++] = a->self->shape[d];
    return dv_set_output(ctx, a->out, a->self->dtype, n, shape);
}

DV_OPERATOR(squeeze_dim, struct unsqueeze, (self, dim, out), .schema = "squeeze.dim(Tensor self, int dim) -> Tensor out",
    .contract = "self[*s]:T -> out[...]:T", .gradient = "self: reshape(grad, self.shape)", .shape = squeeze_shape,
    .kernels = ROW(struct unsqueeze, unsqueeze_any));

struct flip {
    const dv_tensor *self;
    dv_ints dims;
    dv_tensor *out;
};

static int flip_any(dv_context *ctx, const struct flip *a)
{
    int64_t stride[64], offset = 0;
    bool flipped[64] = { false };
    base_byte_strides(a->self, stride);
    for (size_t i = 0; i < a->dims.size; i++) {
        const int32_t d = base_axis(a->dims.data[i], a->self->ndim);
        if (d < 0)
            return bad_axis(ctx, a->dims.data[i], a->self);
        if (flipped[d])
            return dv_error(ctx, DV_EINVAL, "argument 'dims': dim %d appears twice", d);
        flipped[d] = true;
        if (!a->self->ndim)
            continue;
        offset += a->self->shape[d] ? (a->self->shape[d] - 1) * stride[d] : 0;
        stride[d] = -stride[d];
    }
    gather(a->out, a->self, stride, offset);
    return DV_OK;
}

DV_OPERATOR(flip, struct flip, (self, dims, out), .schema = "flip(Tensor self, int[] dims) -> Tensor out",
    .contract = "self[*s]:T -> out[*s]:T", .gradient = "self: flip(grad, dims)", .kernels = ROW(struct flip, flip_any));

/* ---- a part of a tensor -------------------------------------------------------------------------------------------------- */

struct range { int64_t start, step, n; };

/* Python's rules for a slice of an axis of `size`. */
static struct range slice_range(dv_opt_int start, dv_opt_int end, int64_t step, int64_t size)
{
    struct range r = { start.has ? start.value : 0, step, 0 };
    int64_t stop = end.has ? end.value : size;
    r.start += r.start < 0 ? size : 0;
    stop += stop < 0 ? size : 0;
    r.start = r.start < 0 ? 0 : r.start > size ? size : r.start;
    stop = stop < r.start ? r.start : stop > size ? size : stop;
    r.n = (stop - r.start) / step + ((stop - r.start) % step != 0);
    return r;
}

/* Between `whole` and `part`, which is the range r of whole's dim: into part, or (scatter) out of it. */
static void move_part(const dv_tensor *whole, const dv_tensor *part, int32_t dim, struct range r, bool scatter)
{
    int64_t whole_strides[64], part_strides[64];
    base_byte_strides(whole, whole_strides);
    base_byte_strides(part, part_strides);
    char *const at = (char *)whole->data + r.start * whole_strides[dim];
    whole_strides[dim] *= r.step;
    if (scatter)
        base_copy(base_item(part->dtype), part->ndim, part->shape, at, whole_strides, part->data, part_strides);
    else
        base_copy(base_item(part->dtype), part->ndim, part->shape, part->data, part_strides, at, whole_strides);
}

struct slice {
    const dv_tensor *self;
    int64_t dim;
    dv_opt_int start, end;
    int64_t step;
    dv_tensor *out;
};

static int slice_shape(dv_context *ctx, const void *frame)
{
    const struct slice *a = frame;
    int64_t shape[64];
    const int32_t dim = a->self->ndim ? base_axis(a->dim, a->self->ndim) : -1;
    if (dim < 0)
        return bad_axis(ctx, a->dim, a->self);
    if (a->step <= 0)
        return dv_error(ctx, DV_EINVAL, "argument 'step': expected at least 1, found %lld", (long long)a->step);
    for (int32_t d = 0; d < a->self->ndim; d++)
        shape[d] = a->self->shape[d];
    shape[dim] = slice_range(a->start, a->end, a->step, shape[dim]).n;
    return dv_set_output(ctx, a->out, a->self->dtype, a->self->ndim, shape);
}

static int slice_any(dv_context *ctx, const struct slice *a)
{
    const int32_t dim = base_axis(a->dim, a->self->ndim);
    (void)ctx;
    move_part(a->self, a->out, dim, slice_range(a->start, a->end, a->step, a->self->shape[dim]), false);
    return DV_OK;
}

DV_OPERATOR(slice_Tensor, struct slice, (self, dim, start, end, step, out),
    .schema = "slice.Tensor(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor out",
    .contract = "self[*s]:T -> out[...]:T", .gradient = "self: slice_scatter(zeros_like(self), grad, dim, start, end, step)",
    .shape = slice_shape, .kernels = ROW(struct slice, slice_any));

struct slice_scatter {
    const dv_tensor *self, *src;
    int64_t dim;
    dv_opt_int start, end;
    int64_t step;
    dv_tensor *out;
};

static int slice_scatter_any(dv_context *ctx, const struct slice_scatter *a)
{
    const int32_t dim = a->self->ndim ? base_axis(a->dim, a->self->ndim) : -1;
    if (dim < 0)
        return bad_axis(ctx, a->dim, a->self);
    if (a->step <= 0)
        return dv_error(ctx, DV_EINVAL, "argument 'step': expected at least 1, found %lld", (long long)a->step);
    const struct range r = slice_range(a->start, a->end, a->step, a->self->shape[dim]);
    for (int32_t d = 0; d < a->self->ndim; d++)
        if (a->src->shape[d] != (d == dim ? r.n : a->self->shape[d]))
            return dv_error(ctx, DV_ESHAPE, "argument 'src': dim %d has size %lld, expected %lld", d, (long long)a->src->shape[d],
                (long long)(d == dim ? r.n : a->self->shape[d]));
    copy_all(a->out, a->self);
    move_part(a->out, a->src, dim, r, true);
    return DV_OK;
}

DV_OPERATOR(slice_scatter, struct slice_scatter, (self, src, dim, start, end, step, out),
    .schema =
        "slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor out",
    .contract = "self[*s]:T, src[*r]:T -> out[*s]:T; rank(*r) == rank(*s)",
    .gradient = "self: slice_scatter(grad, zeros_like(src), dim, start, end, step); src: slice(grad, dim, start, end, step)",
    .kernels = ROW(struct slice_scatter, slice_scatter_any));

struct narrow {
    const dv_tensor *self;
    int64_t dim, start, length;
    dv_tensor *out;
};

static int narrow_shape(dv_context *ctx, const void *frame)
{
    const struct narrow *a = frame;
    int64_t shape[64];
    const int32_t dim = a->self->ndim ? base_axis(a->dim, a->self->ndim) : -1;
    if (dim < 0)
        return bad_axis(ctx, a->dim, a->self);
    const int64_t size = a->self->shape[dim], start = a->start + (a->start < 0 ? size : 0);
    if (start < 0 || start > size || a->length < 0 || a->length > size - start)
        return dv_error(ctx, DV_EINVAL, "start %lld and length %lld are outside dim %d, of size %lld", (long long)a->start,
            (long long)a->length, dim, (long long)size);
    for (int32_t d = 0; d < a->self->ndim; d++)
        shape[d] = d == dim ? a->length : a->self->shape[d];
    return dv_set_output(ctx, a->out, a->self->dtype, a->self->ndim, shape);
}

static int narrow_any(dv_context *ctx, const struct narrow *a)
{
    const int32_t dim = base_axis(a->dim, a->self->ndim);
    (void)ctx;
    move_part(a->self, a->out, dim, (struct range){ a->start + (a->start < 0 ? a->self->shape[dim] : 0), 1, a->length }, false);
    return DV_OK;
}

DV_OPERATOR(narrow, struct narrow, (self, dim, start, length, out),
    .schema = "narrow(Tensor self, int dim, SymInt start, SymInt length) -> Tensor out", .contract = "self[*s]:T -> out[...]:T",
    .gradient = "self: slice_scatter(zeros_like(self), grad, dim, start % self.shape[dim], start % self.shape[dim] + length)",
    .shape = narrow_shape, .kernels = ROW(struct narrow, narrow_any));

/* ---- frames and rows ----------------------------------------------------------------------------------------------------- */

struct pad {
    const dv_tensor *self;
    dv_ints pad;
    dv_scalar value;
    dv_tensor *out;
};

/* pad: before and after the last dim, then the one before it, ...; a negative one cuts off. */
static int64_t before(const struct pad *a, int32_t dim)
{
    const size_t i = (size_t)(a->self->ndim - 1 - dim) * 2;
    return i < a->pad.size ? a->pad.data[i] : 0;
}

static int pad_shape(dv_context *ctx, const void *frame)
{
    const struct pad *a = frame;
    int64_t shape[64];
    if (a->pad.size % 2 || a->pad.size / 2 > (size_t)a->self->ndim)
        return dv_error(ctx, DV_EINVAL, "argument 'pad': expected two numbers a dim for at most %d dims, found %zu",
            a->self->ndim, a->pad.size);
    for (int32_t d = 0; d < a->self->ndim; d++) {
        const size_t i = (size_t)(a->self->ndim - 1 - d) * 2;
        int64_t size = a->self->shape[d];
        if (i < a->pad.size &&
            (__builtin_add_overflow(size, a->pad.data[i], &size) || __builtin_add_overflow(size, a->pad.data[i + 1], &size)))
            size = -1;
        if (size < 0)
            return dv_error(
                ctx, DV_ESHAPE, "argument 'pad': dim %d, of size %lld, gets no valid size", d, (long long)a->self->shape[d]);
        shape[d] = size;
    }
    return dv_set_output(ctx, a->out, a->self->dtype, a->self->ndim, shape);
}

static int fill_with(dv_context *ctx, const dv_tensor *out, dv_scalar value);

static int pad_any(dv_context *ctx, const struct pad *a)
{
    int64_t from[64], to[64], shape[64], src = 0, dst = 0;
    const int status = fill_with(ctx, a->out, a->value);
    if (status)
        return status;
    base_byte_strides(a->self, from);
    base_byte_strides(a->out, to);
    for (int32_t d = 0; d < a->self->ndim; d++) {
        const int64_t b = before(a, d), skip = b < 0 ? -b : 0, lead = b > 0 ? b : 0;
        const int64_t have = a->self->shape[d] - skip, room = a->out->shape[d] - lead;
        shape[d] = have < room ? have : room;
        if (shape[d] <= 0)
            return DV_OK;
        src += skip * from[d];
        dst += lead * to[d];
    }
    base_copy(
        base_item(a->out->dtype), a->out->ndim, shape, (char *)a->out->data + dst, to, (const char *)a->self->data + src, from);
    return DV_OK;
}

DV_OPERATOR(constant_pad_nd, struct pad, (self, pad, value, out),
    .schema = "constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor out",
    .contract = "self[*s]:T -> out[...]:T; " BASE_NUMBERS,
    .gradient =
        "self: if(len(pad) == 0, grad, constant_pad_nd(grad, if(len(pad) == 2, [-pad[0], -pad[1]], "
        "if(len(pad) == 4, [-pad[0], -pad[1], -pad[2], -pad[3]], [-pad[0], -pad[1], -pad[2], -pad[3], -pad[4], -pad[5]]))))",
    .doc = "Adds elements around the last dims, or takes them away (negative numbers). The gradient knows up to three dims.",
    .shape = pad_shape, .kernels = ROW(struct pad, pad_any));

struct cat {
    dv_tensors tensors;
    int64_t dim;
    dv_tensor *out;
};

static int cat_any(dv_context *ctx, const struct cat *a)
{
    const int32_t dim = base_axis(a->dim, a->out->ndim);
    struct range r = { 0, 1, 0 };
    if (dim < 0)
        return bad_axis(ctx, a->dim, a->out);
    for (size_t i = 0; i < a->tensors.size; i++) {
        r.n = a->tensors.data[i]->shape[dim];
        move_part(a->out, a->tensors.data[i], dim, r, true);
        r.start += r.n;
    }
    return DV_OK;
}

DV_OPERATOR(cat, struct cat, (tensors, dim, out), .schema = "cat(Tensor[] tensors, int dim=0) -> Tensor out",
    .contract = "tensors{i}[*a n{i} *b]:T -> out[*a total(n) *b]:T; rank(*a) == axis(dim, tensors)",
    .gradient = "tensors: cat_backward(grad, tensors, dim)", .doc = "Tensors one after the other along a dim.",
    .kernels = ROW(struct cat, cat_any));

struct cat_backward {
    const dv_tensor *grad;
    dv_tensors tensors;
    int64_t dim;
    dv_mut_tensors out;
};

static int cat_backward_any(dv_context *ctx, const struct cat_backward *a)
{
    const int32_t dim = base_axis(a->dim, a->grad->ndim);
    struct range r = { 0, 1, 0 };
    if (dim < 0)
        return bad_axis(ctx, a->dim, a->grad);
    for (size_t i = 0; i < a->out.size; i++) {
        r.n = a->out.data[i]->shape[dim];
        move_part(a->grad, a->out.data[i], dim, r, false);
        r.start += r.n;
    }
    return DV_OK;
}

DV_OPERATOR(cat_backward, struct cat_backward, (grad, tensors, dim, out),
    .schema = "cat_backward(Tensor grad, Tensor[] tensors, int dim) -> Tensor[] out",
    .contract = "tensors{i}[*a n{i} *b]:T, grad[*a total(n) *b]:T -> out{i}[*a n{i} *b]:T; rank(*a) == axis(dim, tensors)",
    .gradient = "grad: cat(grads[0], dim)", .tangent = "out: cat_backward(grad_t, tensors, dim)",
    .doc = "The parts of a gradient of cat's result that belong to each of the tensors.",
    .kernels = ROW(struct cat_backward, cat_backward_any));

struct index_select {
    const dv_tensor *self;
    int64_t dim;
    const dv_tensor *index;
    dv_tensor *out;
};

static int64_t index_at(const dv_tensor *index, int64_t i)
{
    return dv_dtype_key(index->dtype) == DV_DTYPE_i32 ? ((const int32_t *)index->data)[i] : ((const int64_t *)index->data)[i];
}

/* `whole` is [before, size, after] around dim. */
struct around { int64_t before, size, after; };

static int look_around(dv_context *ctx, const dv_tensor *whole, int64_t dim, const dv_tensor *index, struct around *out)
{
    const int32_t at = base_axis(dim, whole->ndim);
    if (at < 0)
        return bad_axis(ctx, dim, whole);
    out->before = dv_numel_leading(whole, at);
    out->size = whole->ndim ? whole->shape[at] : 1;
    out->after = 1;
    for (int32_t d = at + 1; d < whole->ndim; d++)
        out->after *= whole->shape[d];
    for (int64_t i = 0, n = dv_numel(index); i < n; i++)
        if (index_at(index, i) < 0 || index_at(index, i) >= out->size)
            return dv_error(ctx, DV_EINVAL, "argument 'index': %lld is out of range for dim %d, of size %lld",
                (long long)index_at(index, i), at, (long long)out->size);
    return DV_OK;
}

static int index_select_any(dv_context *ctx, const struct index_select *a)
{
    struct around w;
    const int status = look_around(ctx, a->self, a->dim, a->index, &w);
    if (status)
        return status;
    const int64_t n = dv_numel(a->index);
    const size_t bytes = (size_t)w.after * base_item(a->self->dtype);
    if (!bytes)
        return DV_OK;
    char *out = a->out->data;
    for (int64_t b = 0; b < w.before; b++)
        for (int64_t i = 0; i < n; i++, out += bytes)
            memcpy(out, (const char *)a->self->data + (size_t)(b * w.size + index_at(a->index, i)) * bytes, bytes);
    return DV_OK;
}

DV_OPERATOR(index_select, struct index_select, (self, dim, index, out),
    .schema = "index_select(Tensor self, int dim, Tensor index) -> Tensor out",
    .contract = "self[*a n *b]:T, index[k]:i64|i32 -> out[*a k *b]:T; rank(*a) == axis(dim, self)",
    .gradient = "self: index_add(zeros_like(self), dim, index, grad); index: non_differentiable",
    .kernels = ROW(struct index_select, index_select_any));

struct index_add {
    const dv_tensor *self;
    int64_t dim;
    const dv_tensor *index, *source;
    dv_scalar alpha;
    dv_tensor *out;
};

/* Copies n dense elements, with another dtype. c: a compute type that holds both. */
static void convert_elements(void *to, dv_dtype to_dtype, const void *from, dv_dtype from_dtype, int64_t n, enum base_compute c)
{
    base_buffer elements;
    for (int64_t at = 0; at < n; at += BASE_CHUNK) {
        const int64_t m = n - at < BASE_CHUNK ? n - at : BASE_CHUNK;
        base_load(&elements, c, from, from_dtype, at, m);
        base_store(to, to_dtype, at, c, &elements, m);
    }
}

/* A row at a time, as out + alpha * source in the compute type. */
static int index_add_any(dv_context *ctx, const struct index_add *a)
{
    struct around w;
    const enum base_compute c = base_compute_of(a->self->dtype);
    base_buffer sum, term;
    const int status = look_around(ctx, a->self, a->dim, a->index, &w);
    if (status)
        return status;
    if (a->alpha.kind == DV_SCALAR_COMPLEX)
        return dv_error(ctx, DV_EINVAL, "argument 'alpha': expected a real number, found a complex one");
    const int64_t n = dv_numel(a->index), all = dv_numel(a->out);
    const double alpha = a->alpha.kind == DV_SCALAR_FLOAT ? a->alpha.as.f
        : a->alpha.kind == DV_SCALAR_INT                  ? (double)a->alpha.as.i
                                                          : a->alpha.as.b;
    const int64_t whole_alpha = a->alpha.kind == DV_SCALAR_INT ? a->alpha.as.i : (int64_t)alpha;
    const dv_dtype type = c == BASE_F32 ? (dv_dtype){ 2, 32, 1 } : a->out->dtype; /* of the sums: f16 and bf16 would round each */
    void *const sums = type.bits == a->out->dtype.bits ? a->out->data : dv_alloc(ctx, (size_t)all * sizeof(float) + 1, 64);
    if (!sums)
        return DV_ENOMEM;
    convert_elements(sums, type, a->self->data, a->self->dtype, all, c);
    for (int64_t b = 0; b < w.before; b++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < w.after; j += BASE_CHUNK) {
                const int64_t m = w.after - j < BASE_CHUNK ? w.after - j : BASE_CHUNK;
                const int64_t at = (b * w.size + index_at(a->index, i)) * w.after + j;
                base_load(&sum, c, sums, type, at, m);
                base_load(&term, c, a->source->data, a->source->dtype, (b * n + i) * w.after + j, m);
                for (int64_t k = 0; k < m; k++)
                    switch (c) {
                    case BASE_F32: sum.f32[k] += (float)alpha * term.f32[k]; break;
                    case BASE_F64: sum.f64[k] += alpha * term.f64[k]; break;
                    case BASE_I64:
                        sum.i64[k] = (int64_t)((uint64_t)sum.i64[k] + (uint64_t)whole_alpha * (uint64_t)term.i64[k]);
                        break;
                    }
                base_store(sums, type, at, c, &sum, m);
            }
    if (sums != a->out->data)
        convert_elements(a->out->data, a->out->dtype, sums, type, all, c);
    return DV_OK;
}

DV_OPERATOR(index_add, struct index_add, (self, dim, index, source, alpha, out),
    .schema = "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor out",
    .contract =
        "self[*a n *b]:T, index[k]:i64|i32, source[*a k *b]:T -> out[*a n *b]:T; rank(*a) == axis(dim, self); " BASE_NUMBERS,
    .gradient = "self: grad; index: non_differentiable; source: mul(index_select(grad, dim, index), alpha)",
    .kernels = ROW(struct index_add, index_add_any));

/* ---- new tensors, other types -------------------------------------------------------------------------------------------- */

static void pass(void *out, size_t item, const void *x, int64_t n) { memcpy(out, x, (size_t)n * item); }
static void pass_f32(void *out, const void *const *in, int64_t n) { pass(out, sizeof(float), in[0], n); }
static void pass_f64(void *out, const void *const *in, int64_t n) { pass(out, sizeof(double), in[0], n); }
static void pass_i64(void *out, const void *const *in, int64_t n) { pass(out, sizeof(int64_t), in[0], n); }
static const base_function same = { { pass_f32, pass_f64, pass_i64 } };

static int fill_with(dv_context *ctx, const dv_tensor *out, dv_scalar value)
{
    const base_input in[] = { base_number(value) };
    return base_elementwise(ctx, out, &same, out->dtype, in, 1);
}

struct like {
    const dv_tensor *self;
    dv_opt_dtype dtype;
    dv_opt_layout layout;
    dv_opt_device device;
    dv_opt_bool pin_memory;
    dv_opt_memory_format memory_format;
    dv_tensor *out;
};
struct full_like {
    const dv_tensor *self;
    dv_scalar fill_value;
    dv_opt_dtype dtype;
    dv_opt_layout layout;
    dv_opt_device device;
    dv_opt_bool pin_memory;
    dv_opt_memory_format memory_format;
    dv_tensor *out;
};
#define OPTIONS \
    "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None"
#define LIKE \
    "self[*s]:T -> out[*s]:if(present(dtype), dtype, T); unused(self, pin_memory); " BASE_NUMBERS BASE_MAYBE_TO "; parallel(*s)"

static int zeros_like_any(dv_context *ctx, const struct like *a)
{
    const size_t bytes = (size_t)dv_numel(a->out) * base_item(a->out->dtype);
    (void)ctx;
    if (bytes)
        memset(a->out->data, 0, bytes);
    return DV_OK;
}
static int ones_like_any(dv_context *ctx, const struct like *a)
{
    return fill_with(ctx, a->out, (dv_scalar){ DV_SCALAR_INT, { .i = 1 } });
}
static int full_like_any(dv_context *ctx, const struct full_like *a) { return fill_with(ctx, a->out, a->fill_value); }

DV_OPERATOR(zeros_like, struct like, (self, dtype, layout, device, pin_memory, memory_format, out),
    .schema = "zeros_like(Tensor self, *, " OPTIONS ") -> Tensor out", .contract = LIKE, .gradient = "self: non_differentiable",
    .kernels = ROW(struct like, zeros_like_any));
DV_OPERATOR(ones_like, struct like, (self, dtype, layout, device, pin_memory, memory_format, out),
    .schema = "ones_like(Tensor self, *, " OPTIONS ") -> Tensor out", .contract = LIKE, .gradient = "self: non_differentiable",
    .kernels = ROW(struct like, ones_like_any));
DV_OPERATOR(full_like, struct full_like, (self, fill_value, dtype, layout, device, pin_memory, memory_format, out),
    .schema = "full_like(Tensor self, Scalar fill_value, *, " OPTIONS ") -> Tensor out", .contract = LIKE,
    .gradient = "self: non_differentiable", .kernels = ROW(struct full_like, full_like_any));

struct to {
    const dv_tensor *self;
    dv_dtype dtype;
    bool non_blocking, copy;
    dv_opt_memory_format memory_format;
    dv_tensor *out;
};
struct type_as {
    const dv_tensor *self, *other;
    dv_tensor *out;
};
struct clone {
    const dv_tensor *self;
    dv_opt_memory_format memory_format;
    dv_tensor *out;
};

/* By way of whichever of the two types loses nothing: an integer is read as an integer, a float as a float of its width. */
static int convert(dv_context *ctx, const dv_tensor *self, const dv_tensor *out)
{
    const base_input in[] = { base_tensor(self) };
    return base_elementwise(ctx, out, &same, self->dtype, in, 1);
}
static int to_any(dv_context *ctx, const struct to *a) { return convert(ctx, a->self, a->out); }
static int type_as_any(dv_context *ctx, const struct type_as *a) { return convert(ctx, a->self, a->out); }
static int clone_any(dv_context *ctx, const struct clone *a)
{
    (void)ctx;
    copy_all(a->out, a->self);
    return DV_OK;
}

DV_OPERATOR(to_dtype, struct to, (self, dtype, non_blocking, copy, memory_format, out),
    .schema = "to.dtype(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, "
              "MemoryFormat? memory_format=None) -> Tensor out",
    .contract = "self[*s]:T -> out[*s]:dtype; unused(non_blocking, copy); " BASE_NUMBERS BASE_TO "; parallel(*s)",
    .gradient = "self: type_as(grad, self)", .kernels = ROW(struct to, to_any));
DV_OPERATOR(type_as, struct type_as, (self, other, out), .schema = "type_as(Tensor self, Tensor other) -> Tensor out",
    .contract = "self[*s]:T, other[...]:U -> out[*s]:U; unused(other); " BASE_PAIRS,
    .gradient = "self: type_as(grad, self); other: non_differentiable", .kernels = ROW(struct type_as, type_as_any));
DV_OPERATOR(clone, struct clone, (self, memory_format, out),
    .schema = "clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor out", .contract = "self[*s]:T -> out[*s]:T",
    .gradient = "self: grad", .kernels = ROW(struct clone, clone_any));
