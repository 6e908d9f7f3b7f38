/* engine.c: walking over elements: compute types, broadcasting, copies of boxes. */
#include "base.h"

enum base_compute base_compute_of(dv_dtype t)
{
    switch (dv_dtype_key(t)) {
    case DV_DTYPE_f64: return BASE_F64;
    case DV_DTYPE_f32:
    case DV_DTYPE_bf16:
    case DV_DTYPE_f16: return BASE_F32;
    default: return BASE_I64;
    }
}

size_t base_item(dv_dtype t) { return (size_t)t.bits * t.lanes / 8; }

/* ---- promotion ----------------------------------------------------------------------------------------------------------- */

enum category { BOOLEAN, INTEGER, FLOATING };

static enum category category(dv_dtype t)
{
    const uint32_t key = dv_dtype_key(t);
    return key == DV_DTYPE_bool ? BOOLEAN : base_compute_of(t) == BASE_I64 ? INTEGER : FLOATING;
}

/* Of two dtypes of one category. */
static dv_dtype promote(dv_dtype a, dv_dtype b)
{
    const enum category ca = category(a), cb = category(b);
    if (dv_dtype_key(a) == dv_dtype_key(b) || ca > cb)
        return a;
    if (ca < cb)
        return b;
    if (ca == FLOATING)
        return a.bits == b.bits ? dv_dtype_from_key(DV_DTYPE_f32) : a.bits > b.bits ? a : b; /* f16 with bf16 is f32 */
    if (a.code == b.code)
        return a.bits > b.bits ? a : b;
    return a.bits == b.bits ? dv_dtype_from_key(DV_DTYPE_i16)
        : a.bits > b.bits   ? a
                            : b; /* u8 with i8 is i16; u8 is the only unsigned */
}

dv_dtype base_promote(const dv_tensor *a, const dv_tensor *b)
{
    /* A tensor without dims gives way to one with dims unless it is of a higher category. */
    const enum category ca = category(a->dtype), cb = category(b->dtype);
    if (a->ndim && !b->ndim && cb <= ca)
        return a->dtype;
    if (b->ndim && !a->ndim && ca <= cb)
        return b->dtype;
    return a->ndim && !b->ndim ? promote(b->dtype, a->dtype) : promote(a->dtype, b->dtype);
}

dv_dtype base_promote_scalar(const dv_tensor *a, dv_scalar b)
{
    const enum category cb = b.kind == DV_SCALAR_FLOAT ? FLOATING : b.kind == DV_SCALAR_INT ? INTEGER : BOOLEAN;
    if (cb <= category(a->dtype))
        return a->dtype;
    return dv_dtype_from_key(cb == FLOATING ? DV_DTYPE_f32 : DV_DTYPE_i64);
}

/* ---- conversion ---------------------------------------------------------------------------------------------------------- */

#define EACH(TYPE, VALUE)                               \
    for (int64_t i = 0; i < n; i++) {                   \
        const TYPE x = ((const TYPE *)data)[start + i]; \
        out[i] = VALUE;                                 \
    }                                                   \
    break
#define LOAD(NAME, C)                                                                                         \
    static void load_##NAME(C *restrict out, const void *restrict data, dv_dtype t, int64_t start, int64_t n) \
    {                                                                                                         \
        switch (dv_dtype_key(t)) {                                                                            \
        case DV_DTYPE_f32: EACH(float, (C)x);                                                                 \
        case DV_DTYPE_f64: EACH(double, (C)x);                                                                \
        case DV_DTYPE_bf16: EACH(uint16_t, (C)dv_bf16_to_f32(x));                                             \
        case DV_DTYPE_f16: EACH(uint16_t, (C)dv_f16_to_f32(x));                                               \
        case DV_DTYPE_i64: EACH(int64_t, (C)x);                                                               \
        case DV_DTYPE_i32: EACH(int32_t, (C)x);                                                               \
        case DV_DTYPE_i16: EACH(int16_t, (C)x);                                                               \
        case DV_DTYPE_i8: EACH(int8_t, (C)x);                                                                 \
        case DV_DTYPE_u8: EACH(uint8_t, (C)x);                                                                \
        case DV_DTYPE_bool: EACH(uint8_t, (C)(x != 0));                                                       \
        }                                                                                                     \
    }
LOAD(f32, float)
LOAD(f64, double)

/* A float outside the range of int64_t gives the smallest one, as the processor does, and is not undefined. */
static int64_t to_i64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }

#undef LOAD
#undef EACH
static void load_i64(int64_t *restrict out, const void *restrict data, dv_dtype t, int64_t start, int64_t n)
{
    switch (dv_dtype_key(t)) {
#define EACH(KEY, TYPE, VALUE)                              \
    case DV_DTYPE_##KEY:                                    \
        for (int64_t i = 0; i < n; i++) {                   \
            const TYPE x = ((const TYPE *)data)[start + i]; \
            out[i] = VALUE;                                 \
        }                                                   \
        break;
        EACH(i64, int64_t, x)
        EACH(i32, int32_t, x)
        EACH(i16, int16_t, x)
        EACH(i8, int8_t, x)
        EACH(u8, uint8_t, x)
        EACH(bool, uint8_t, x != 0)
        EACH(f32, float, to_i64((double)x))
        EACH(f64, double, to_i64(x))
        EACH(bf16, uint16_t, to_i64((double)dv_bf16_to_f32(x)))
        EACH(f16, uint16_t, to_i64((double)dv_f16_to_f32(x)))
#undef EACH
    }
}

void base_load(void *to, enum base_compute c, const void *data, dv_dtype t, int64_t start, int64_t n)
{
    switch (c) {
    case BASE_F32: load_f32(to, data, t, start, n); break;
    case BASE_F64: load_f64(to, data, t, start, n); break;
    case BASE_I64: load_i64(to, data, t, start, n); break;
    }
}

/* Integers wrap; a float goes to an integer by way of int64_t. */
void base_store(void *data, dv_dtype t, int64_t start, enum base_compute c, const void *from, int64_t n)
{
    const float *const f32 = from;
    const double *const f64 = from;
    const int64_t *const i64 = from;
    switch (dv_dtype_key(t)) {
#define EACH(KEY, TYPE, OF_F32, OF_F64, OF_I64)    \
    case DV_DTYPE_##KEY: {                         \
        TYPE *restrict out = (TYPE *)data + start; \
        if (c == BASE_F32)                         \
            for (int64_t i = 0; i < n; i++)        \
                out[i] = OF_F32;                   \
        else if (c == BASE_F64)                    \
            for (int64_t i = 0; i < n; i++)        \
                out[i] = OF_F64;                   \
        else                                       \
            for (int64_t i = 0; i < n; i++)        \
                out[i] = OF_I64;                   \
        break;                                     \
    }
        EACH(f32, float, f32[i], (float)f64[i], (float)i64[i])
        EACH(f64, double, (double)f32[i], f64[i], (double)i64[i])
        EACH(bf16, uint16_t, dv_f32_to_bf16(f32[i]), dv_f32_to_bf16((float)f64[i]), dv_f32_to_bf16((float)i64[i]))
        EACH(f16, uint16_t, dv_f32_to_f16(f32[i]), dv_f32_to_f16((float)f64[i]), dv_f32_to_f16((float)i64[i]))
        EACH(i64, int64_t, to_i64((double)f32[i]), to_i64(f64[i]), i64[i])
        EACH(i32, int32_t, (int32_t)to_i64((double)f32[i]), (int32_t)to_i64(f64[i]), (int32_t)i64[i])
        EACH(i16, int16_t, (int16_t)to_i64((double)f32[i]), (int16_t)to_i64(f64[i]), (int16_t)i64[i])
        EACH(i8, int8_t, (int8_t)to_i64((double)f32[i]), (int8_t)to_i64(f64[i]), (int8_t)i64[i])
        EACH(u8, uint8_t, (uint8_t)to_i64((double)f32[i]), (uint8_t)to_i64(f64[i]), (uint8_t)i64[i])
        EACH(bool, uint8_t, f32[i] != 0, f64[i] != 0, i64[i] != 0)
#undef EACH
    }
}

/* ---- broadcasting -------------------------------------------------------------------------------------------------------- */

/* The dims of the result that are left after dropping those of size 1 and merging neighbours that every input walks through as
 * one. stride[k] is 0 where input k broadcasts. Invariant: in the last dim every stride is 0 or 1, since inputs are contiguous.
 */
struct walk {
    int32_t ndim;
    int64_t shape[64], stride[BASE_MAX_INPUTS][64];
};

static void plan(struct walk *w, const dv_tensor *out, const base_input *in, int32_t n)
{
    w->ndim = 0;
    for (int32_t d = 0; d < out->ndim; d++) {
        int64_t stride[BASE_MAX_INPUTS] = { 0 };
        if (out->shape[d] == 1)
            continue;
        for (int32_t k = 0; k < n; k++) {
            const dv_tensor *t = in[k].tensor;
            const int32_t at = t ? d - (out->ndim - t->ndim) : -1;
            if (at < 0 || t->shape[at] == 1)
                continue;
            stride[k] = 1;
            for (int32_t j = at + 1; j < t->ndim; j++)
                stride[k] *= t->shape[j];
        }
        bool merges = w->ndim > 0;
        for (int32_t k = 0; merges && k < n; k++)
            merges = w->stride[k][w->ndim - 1] == stride[k] * out->shape[d];
        if (merges)
            w->shape[w->ndim - 1] *= out->shape[d];
        else
            w->shape[w->ndim++] = out->shape[d];
        for (int32_t k = 0; k < n; k++)
            w->stride[k][w->ndim - 1] = stride[k];
    }
    if (!w->ndim) {
        w->ndim = 1;
        w->shape[0] = 1;
        for (int32_t k = 0; k < n; k++)
            w->stride[k][0] = 0;
    }
}

static void fill(base_buffer *b, enum base_compute c, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        switch (c) {
        case BASE_F32: b->f32[i] = b->f32[0]; break;
        case BASE_F64: b->f64[i] = b->f64[0]; break;
        case BASE_I64: b->i64[i] = b->i64[0]; break;
        }
}

static void load_number(base_buffer *b, enum base_compute c, dv_scalar s)
{
    const double f = s.kind == DV_SCALAR_FLOAT ? s.as.f : s.kind == DV_SCALAR_INT ? (double)s.as.i : (double)s.as.b;
    switch (c) {
    case BASE_F32: b->f32[0] = s.kind == DV_SCALAR_INT ? (float)s.as.i : (float)f; break;
    case BASE_F64: b->f64[0] = f; break;
    case BASE_I64: b->i64[0] = s.kind == DV_SCALAR_FLOAT ? to_i64(f) : s.kind == DV_SCALAR_INT ? s.as.i : s.as.b; break;
    }
}

/* Integers that are taken as elements of a narrower type wrap first: u8 against a number below zero. */
static void narrow(base_buffer *b, dv_dtype as, int64_t n)
{
    base_buffer narrowed;
    base_store(&narrowed, as, 0, BASE_I64, b, n);
    base_load(b, BASE_I64, &narrowed, as, 0, n);
}

/* Element `start` (and n - 1 more) of an input, as elements of type `as`. */
static void take(base_buffer *b, enum base_compute c, dv_dtype as, base_input in, int64_t start, int64_t n)
{
    const bool integers = c == BASE_I64 && dv_dtype_key(as) != DV_DTYPE_bool;
    if (in.tensor)
        base_load(b, c, in.tensor->data, in.tensor->dtype, start, n);
    else
        load_number(b, c, in.scalar);
    if (integers && (in.tensor ? in.tensor->dtype.bits > as.bits || (in.tensor->dtype.code == 0 && as.code == 1) : as.bits < 64))
        narrow(b, as, n);
}

int base_elementwise(
    dv_context *ctx, const dv_tensor *out, const base_function *f, dv_dtype compute, const base_input *in, int32_t n)
{
    const enum base_compute c = base_compute_of(compute);
    base_buffer buffer[BASE_MAX_INPUTS], result;
    const void *inputs[BASE_MAX_INPUTS] = { &buffer[0], &buffer[1], &buffer[2] };
    struct walk w;
    int64_t index[64] = { 0 }, offset[BASE_MAX_INPUTS] = { 0 }, done = 0;
    const int64_t total = dv_numel(out);

    if (!f->of[c] || out->dtype.code == 5) /* a complex number made the result complex */
        return dv_error(ctx, DV_EDTYPE, "not defined for elements of this type");
    plan(&w, out, in, n);
    const int32_t last = w.ndim - 1;
    const int64_t inner = w.shape[last];
    for (int32_t k = 0; k < n; k++)
        if (!in[k].tensor) {
            take(&buffer[k], c, compute, in[k], 0, 1);
            fill(&buffer[k], c, inner < BASE_CHUNK ? inner : BASE_CHUNK);
        }
    while (done < total) {
        for (int64_t begin = 0; begin < inner; begin += BASE_CHUNK) {
            const int64_t m = inner - begin < BASE_CHUNK ? inner - begin : BASE_CHUNK;
            for (int32_t k = 0; k < n; k++)
                if (in[k].tensor && w.stride[k][last]) {
                    take(&buffer[k], c, compute, in[k], offset[k] + begin, m);
                } else if (in[k].tensor && !begin) {
                    take(&buffer[k], c, compute, in[k], offset[k], 1);
                    fill(&buffer[k], c, m);
                }
            f->of[c](&result, inputs, m);
            base_store(out->data, out->dtype, done + begin, c, &result, m);
        }
        done += inner;
        for (int32_t d = last - 1; d >= 0; d--) { /* the next row */
            for (int32_t k = 0; k < n; k++)
                offset[k] += w.stride[k][d];
            if (++index[d] < w.shape[d])
                break;
            for (int32_t k = 0; k < n; k++)
                offset[k] -= w.stride[k][d] * w.shape[d];
            index[d] = 0;
        }
    }
    return DV_OK;
}

/* ---- moving elements ----------------------------------------------------------------------------------------------------- */

static void copy_line(
    size_t item, int64_t n, char *restrict dst, int64_t dst_stride, const char *restrict src, int64_t src_stride)
{
    if (dst_stride == (int64_t)item && src_stride == (int64_t)item) {
        memcpy(dst, src, (size_t)n * item);
        return;
    }
    switch (item) {
#define LINE(SIZE)                                                    \
    case SIZE:                                                        \
        for (int64_t i = 0; i < n; i++)                               \
            memcpy(dst + i * dst_stride, src + i * src_stride, SIZE); \
        break;
        /* clang-format off */
        LINE(1) LINE(2) LINE(4) LINE(8)
/* clang-format on */
#undef LINE
            default : for (int64_t i = 0; i < n; i++) memcpy(dst + i * dst_stride, src + i * src_stride, item);
    }
}

void base_copy(size_t item, int32_t ndim, const int64_t *shape, char *dst, const int64_t *dst_strides, const char *src,
    const int64_t *src_strides)
{
    int64_t index[64] = { 0 };
    for (int32_t d = 0; d < ndim; d++)
        if (!shape[d])
            return;
    if (!ndim) {
        memcpy(dst, src, item);
        return;
    }
    for (const int32_t last = ndim - 1;;) {
        copy_line(item, shape[last], dst, dst_strides[last], src, src_strides[last]);
        int32_t d = last - 1;
        for (; d >= 0; d--) {
            dst += dst_strides[d];
            src += src_strides[d];
            if (++index[d] < shape[d])
                break;
            dst -= dst_strides[d] * shape[d];
            src -= src_strides[d] * shape[d];
            index[d] = 0;
        }
        if (d < 0)
            return;
    }
}

int32_t base_axis(int64_t dim, int32_t rank)
{
    const int32_t n = rank ? rank : 1;
    return dim < -n || dim >= n ? -1 : (int32_t)(dim < 0 ? dim + n : dim);
}

void base_byte_strides(const dv_tensor *t, int64_t *strides)
{
    int64_t stride = (int64_t)base_item(t->dtype);
    for (int32_t d = t->ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= t->shape[d];
    }
}
