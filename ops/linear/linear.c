/* linear.c: input times the rows of weight, plus bias. A row of weight is read once for up to CHUNK rows of the input. */
#include "../lines.h"

enum { CHUNK = 64 };

struct linear {
    const dv_tensor *input, *weight, *bias, *weight_scale;
    dv_tensor *out;
};

static int linear_reference(dv_context *ctx, const struct linear *a)
{
    const int64_t k = last_dim(a->input), n = a->weight->shape[0], rows = dv_numel_leading(a->input, a->input->ndim - 1);
    const int64_t chunk = rows < CHUNK ? rows : CHUNK;
    double *const row = dv_alloc(ctx, (size_t)(k + chunk * k + 1) * sizeof(double), 64), *const x = row + k;
    if (!row)
        return DV_ENOMEM;
    for (int64_t begin = 0; begin < rows; begin += CHUNK) {
        const int64_t some = rows - begin < CHUNK ? rows - begin : CHUNK;
        load(x, a->input, begin * k, some * k);
        for (int64_t i = 0; i < n; i++) {
            double bias = 0, scale = 1;
            load(row, a->weight, i * k, k);
            if (a->bias)
                load(&bias, a->bias, i, 1);
            if (a->weight_scale)
                load(&scale, a->weight_scale, i, 1);
            for (int64_t j = 0; j < k; j++)
                row[j] *= scale;
            for (int64_t r = 0; r < some; r++) {
                const double y = dot(x + r * k, row, k) + bias;
                store(a->out, (begin + r) * n + i, &y, 1);
            }
        }
    }
    return DV_OK;
}

/* ---- fast rows ----------------------------------------------------------------------------------------------------------- */

/* Rows of weight that are multiplied at once, and elements of them: a block stays in the first cache. */
enum { COLUMNS = 8, DEPTH = 512 };

struct product {
    const struct linear *a;
    const float *x; /* the chunk's rows as float, each filled up with zeros to `room` */
    int64_t k, room, begin, rows;
};

/* Adds to sums[rows][COLUMNS], a vector each: lane l has the products of elements l, l + lanes, ... of a row of x and a row of w.
 * Rows of x are `room` apart, those of w `stride`; `depth` is a multiple of DV_BLOCK. With 32 registers two rows of x share what
 * is loaded of w. */
#ifdef DV_TARGET_AVX2
#define IN_REGISTER(V) __asm__("" : "+v"(V)) /* gcc would load it once for each use */
#else
#define IN_REGISTER(V) (void)(V)
#endif
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define AT(P) (*(const lanes *)(const void *)(P))
#define BEGIN_ONE(C) lanes a##C = s[C];
#define ADD_ONE(C) a##C += u * AT(w + C * stride + i);
#define END_ONE(C) s[C] = a##C;
#define BEGIN_TWO(C) lanes a##C = s[C], b##C = s[COLUMNS + C];
#define ADD_TWO(C)                           \
    {                                        \
        lanes both = AT(w + C * stride + i); \
        IN_REGISTER(both);                   \
        a##C += u * both, b##C += v * both;  \
    }
#define END_TWO(C) s[C] = a##C, s[COLUMNS + C] = b##C;
#define DOTS(ISA, TARGET, BYTES)                                                                               \
    TARGET static void dots_##ISA(                                                                             \
        const float *x, int64_t room, int64_t rows, const float *w, int64_t stride, int64_t depth, void *sums) \
    {                                                                                                          \
        typedef float lanes __attribute__((vector_size(BYTES), aligned(4)));                                   \
        const int64_t step = BYTES / (int64_t)sizeof(float);                                                   \
        lanes *s = sums;                                                                                       \
        int64_t r = 0;                                                                                         \
        for (; BYTES == 64 && r + 2 <= rows; r += 2, s += 2 * COLUMNS, x += 2 * room) {                        \
            EACH(BEGIN_TWO)                                                                                    \
            for (int64_t i = 0; i < depth; i += step) {                                                        \
                const lanes u = AT(x + i), v = AT(x + room + i);                                               \
                EACH(ADD_TWO)                                                                                  \
            }                                                                                                  \
            EACH(END_TWO)                                                                                      \
        }                                                                                                      \
        for (; r < rows; r++, s += COLUMNS, x += room) {                                                       \
            EACH(BEGIN_ONE)                                                                                    \
            for (int64_t i = 0; i < depth; i += step) {                                                        \
                const lanes u = AT(x + i);                                                                     \
                EACH(ADD_ONE)                                                                                  \
            }                                                                                                  \
            EACH(END_ONE)                                                                                      \
        }                                                                                                      \
    }                                                                                                          \
    TARGET static int columns_##ISA(void *arg, int64_t begin, int64_t end)                                     \
    {                                                                                                          \
        return columns(arg, begin, end, BYTES, dots_##ISA);                                                    \
    }                                                                                                          \
    static int linear_row_##ISA(dv_context *ctx, const struct linear *a) { return linear_row(ctx, a, columns_##ISA); }

/* Elements of rows `from` to from + COLUMNS of weight, as float, with zeros behind the last element and the last row. */
DV_INLINE void load_block(float *to, const dv_tensor *weight, int64_t from, int64_t at, int64_t n)
{
    const int64_t rows = weight->shape[0], k = weight->shape[1];
    for (int64_t c = 0; c < COLUMNS; c++, to += DEPTH) {
        if (from + c >= rows)
            memset(to, 0, DEPTH * sizeof *to);
        else if (weight->dtype.bits != 8)
            load_line(to, weight, (from + c) * k + at, n, 0);
        else
            for (int64_t i = 0; i < line_room(n); i++)
                to[i] = i < n ? (float)((const int8_t *)weight->data)[(from + c) * k + at + i] : 0;
    }
}

DV_INLINE float number(const dv_tensor *t, int64_t i, float none)
{
    return t ? (float)dv_get_f64(t->data, i, dv_dtype_key(t->dtype)) : none;
}

typedef void (*dots_fn)(const float *x, int64_t room, int64_t rows, const float *w, int64_t stride, int64_t depth, void *sums);

/* COLUMNS columns of the result for the chunk's rows. */
DV_INLINE int columns(void *arg, int64_t begin, int64_t end, size_t bytes, dots_fn dots)
{
    const struct product *const p = arg;
    const int64_t n = p->a->weight->shape[0], lanes = (int64_t)(bytes / sizeof(float));
    _Alignas(64) float w[COLUMNS * DEPTH], sums[CHUNK * COLUMNS * 16];
    for (int64_t first = begin * COLUMNS; first < end * COLUMNS; first += COLUMNS) {
        memset(sums, 0, (size_t)(p->rows * COLUMNS) * bytes);
        for (int64_t at = 0; at < p->k; at += DEPTH) {
            const int64_t some = p->k - at < DEPTH ? p->k - at : DEPTH;
            const float *block = w;
            if (p->rows == 1 && p->a->weight->dtype.bits == 32 && some % DV_BLOCK == 0 && first + COLUMNS <= n)
                block = (const float *)p->a->weight->data + first * p->k + at; /* in place: each element is used once */
            else
                load_block(w, p->a->weight, first, at, some);
            dots(p->x + at, p->room, p->rows, block, block == w ? DEPTH : p->k, line_room(some), sums);
        }
        for (int64_t c = 0; c < COLUMNS && first + c < n; c++) {
            const float scale = number(p->a->weight_scale, first + c, 1), bias = number(p->a->bias, first + c, 0);
            for (int64_t r = 0; r < p->rows; r++) {
                float sum = 0;
                for (int64_t l = 0; l < lanes; l++)
                    sum += sums[(r * COLUMNS + c) * lanes + l];
                dv_put_f64(p->a->out->data, (p->begin + r) * n + first + c, dv_dtype_key(p->a->out->dtype),
                    (double)(sum * scale + bias));
            }
        }
    }
    return DV_OK;
}

static int linear_row(dv_context *ctx, const struct linear *a, dv_range_fn piece)
{
    const int64_t rows = dv_numel_leading(a->input, a->input->ndim - 1), n = a->weight->shape[0], k = last_dim(a->input),
                  room = line_room(k);
    float *const x = dv_alloc(ctx, (size_t)((rows < CHUNK ? rows : CHUNK) * room + 1) * sizeof(float), 64);
    int status = x ? DV_OK : DV_ENOMEM;
    for (int64_t begin = 0; !status && begin < rows; begin += CHUNK) {
        const int64_t some = rows - begin < CHUNK ? rows - begin : CHUNK;
        for (int64_t r = 0; r < some; r++)
            load_line(x + r * room, a->input, (begin + r) * k, k, 0);
        status = dv_parallel_for(ctx, 0, (n + COLUMNS - 1) / COLUMNS, 1 + 16384 / (k + 1), piece,
            &(struct product){ .a = a, .x = x, .k = k, .room = room, .begin = begin, .rows = some });
    }
    return status;
}
#ifdef DV_TARGET_AVX2
DOTS(avx512, DV_TARGET_AVX512, 64)
DOTS(avx2, DV_TARGET_AVX2, 32)
#endif
DOTS(base, , 16)

#define WEIGHT "transpose(if(present(weight_scale), type_as(weight * unsqueeze(weight_scale, 1), input), weight), 0, 1)"
#define PRODUCT "squeeze(matmul(unsqueeze(input, -2), " WEIGHT "), -2)"

DV_OPERATOR(linear, struct linear, (input, weight, bias, weight_scale, out),
    .schema = "linear(Tensor input, Tensor weight, Tensor? bias=None, Tensor? weight_scale=None) -> Tensor out",
    .contract = "input[*s k]:T, weight[n k]:W, bias[n]:T, weight_scale[n]:S -> out[*s n]:T; T in f32 f64 bf16 f16; S in f32 bf16 "
                "f16; W == T or W == i8; present(weight_scale) == (W == i8); parallel(*s); flops = numel(*s)*n*(2*k + 2)",
    .native = "if(present(bias), " PRODUCT " + bias, " PRODUCT ")",
    .doc = "input times the transposed weight, plus bias. int8 weights have a scale for each row.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct linear, linear_row, "f32 bf16 f16"),
        DV_KERNEL(struct linear, "cpu", NULL, linear_reference, .split = 16, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, linear, &dv_op_linear);
