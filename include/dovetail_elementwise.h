/* dovetail_elementwise.h: operators that compute each element from the same element of their inputs, and loops over elements.
 *
 * One line is the operator:
 *
 *     DV_ELEMENTWISE(swiglu_row, struct swiglu, (gate, up), (out), out = dv_silu(gate) * up)
 *
 * makes a function and a row for each instruction set, and a reference row that computes in double:
 *
 *     ... .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct swiglu, swiglu_row, .split = 16384))
 *
 * for f32, f64, bf16 and f16; DV_ELEMENTWISE_ROWS(struct f, row, "f32 i64", ...) is for other dtypes.
 *
 * The names in parentheses are fields of the struct: inputs, then results, one to eight of each. The line is C; it can be
 * several statements. It is compiled for float, for double, and for vectors of 16 floats, so each value in it has the type
 * dv_real, and it uses what dovetail_math.h has for all three: dv_exp, dv_log, dv_log1p, dv_sigmoid, dv_silu, dv_tanh, dv_sin,
 * dv_cos, dv_sqrt, dv_abs, dv_floor, dv_ceil, dv_trunc, dv_round, dv_min, dv_max, dv_select. Another function does not compile.
 *   - A number that is no small integer is written (dv_number)0.1: float or double. An attribute is (dv_number)frame.eps.
 *     Without (dv_number), 0.1 and frame.eps do not compile beside vectors, and 0.5 is a double in some rows.
 *     A result is a dv_real, and so is dv_all(frame.eps): `out = dv_all(0)`; `out = 0` does not compile.
 *   - `if` and `?:` are written dv_select(x > 0, x, y), with & and | between comparisons; of the frame alone,
 *     frame.flag ? x : y (dv_select(frame.flag, x, y) does not compile).
 *     As a number, a comparison is the int 1 or 0, and goes into a dv_real before it is added or multiplied: dv_real m = x > 0.
 *     A line that compares is left to the compiler's vectors; one that does not has vectors of its own for AVX-512, in which exp
 *     and its family are faster. gcc needs --param=max-unswitch-insns=100 for frame.flag, which `dovetail build` passes.
 *   - `continue` and `break` end the element. `return` would leave the rest of a block without results: do not use it.
 *   - A helper is a macro: #define square(x) ((x) * (x)).
 *   - A name in both lists is written in place: (p, grad), (p), p = p - (dv_number)frame.rate * grad.
 * DV_ELEMENTWISE_PLAIN has the same arguments. Its line is compiled for float and double only, so all of C may be in it: `if`,
 * loops, functions (those of <tgmath.h>, such as pow, have both types).
 * Rows may compute a * b + c with one rounding: x * x - y * y of equal numbers is not always 0 (dovetail build -X
 * -ffp-contract=off).
 * Each tensor is read and written by its own dtype (double to bf16 and f16 by way of float, as in PyTorch); f32, bf16, f16, f64,
 * i8, i16, i32, i64, u8 and bool may be mixed. The line is computed in double if a tensor is f64, i32 or i64, else in float:
 * integers are exact up to 2^53, and slower than in a loop of your own. A bool is 0 or 1, whatever its byte. A result that is an
 * integer is cut to its range. An input of one element stands for all; one with the shape of the last dims of the first result,
 * such as a bias of rows, is repeated: sizes count, not the contract's names. An output may be one of the inputs, but may not
 * overlap an input in another way. */
#ifndef DOVETAIL_ELEMENTWISE_H
#define DOVETAIL_ELEMENTWISE_H

#ifdef __cplusplus
#error "dovetail_elementwise.h is for C: compile this file as C"
#endif
#include "dovetail_math.h"

/* ---- 16 floats at once, as they lie in memory ---------------------------------------------------------------------------- */

enum { DV_BLOCK = 64, DV__MOST = 8 };
#define DV_BLOCK_LOOP DV__VECTOR_LOOP(i, DV_BLOCK)
typedef float dv_lanes __attribute__((vector_size(64), aligned(4), may_alias)); /* in memory, of any alignment */

#define DV__PAST (1u << 31) /* with a dtype of AVX-512's store: past the caches, to a multiple of the bytes of 16 elements */

/* What instruction sets do in their own ways: load 16 elements of f32, bf16 or f16 as float, store them, and exp(x - minus) of a
 * block; `to` may be `x`. Rows get one of these (DV_ISAS); its functions become part of the row. */
typedef struct dv_isa {
    void (*load)(dv_lanes *to, const void *from, uint32_t dtype);
    void (*store)(void *to, const dv_lanes *from, uint32_t dtype);
    void (*exp)(float *to, const float *x, float minus);
} dv_isa;

/* A block. */
DV_INLINE void dv_block_load(const dv_isa *isa, float *to, const uint16_t *from, uint32_t dtype)
{
    for (int i = 0; i < DV_BLOCK; i += 16)
        isa->load((dv_lanes *)(void *)(to + i), from + i, dtype);
}
DV_INLINE void dv_block_store(const dv_isa *isa, uint16_t *to, const float *from, uint32_t dtype)
{
    for (int i = 0; i < DV_BLOCK; i += 16)
        isa->store(to + i, (const dv_lanes *)(const void *)(from + i), dtype);
}
DV_INLINE void dv_block_exp(const dv_isa *isa, float *to, const float *x, float minus) { isa->exp(to, x, minus); }

/* In C, which the compiler makes vectors of. */
#define DV__EACH(TO, VALUE)    \
    {                          \
        DV__VECTOR_LOOP(i, 16) \
        (TO)[i] = VALUE;       \
    }
DV_INLINE void dv__load_base(dv_lanes *to, const void *from, uint32_t dtype)
{
    const uint16_t *const half = (const uint16_t *)from;
    if (dtype == DV_DTYPE_f32)
        memcpy(to, from, sizeof *to);
    else if (dtype == DV_DTYPE_bf16)
        DV__EACH((float *)to, dv_bf16_to_f32(half[i]))
    else
        DV__EACH((float *)to, dv_f16_to_f32(half[i]))
}
DV_INLINE void dv__store_base(void *to, const dv_lanes *from, uint32_t dtype)
{
    const float *const x = (const float *)from;
    if (dtype == DV_DTYPE_f32)
        memcpy(to, from, sizeof *from);
    else if (dtype == DV_DTYPE_bf16)
        DV__EACH((uint16_t *)to, dv_f32_to_bf16(x[i]))
    else
        DV__EACH((uint16_t *)to, dv_f32_to_f16(x[i]))
}
DV_INLINE void dv__exp_base(float *to, const float *x, float minus)
{
    DV_BLOCK_LOOP
    to[i] = dv_expf(x[i] - minus);
}
static const dv_isa dv_isa_base DV__UNUSED = { dv__load_base, dv__store_base, dv__exp_base };

#ifdef DV_TARGET_AVX2
typedef float dv__f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t dv__u32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint16_t dv__u16x8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t dv__u16x16 __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint16_t dv__u16x32 __attribute__((vector_size(64), aligned(2), may_alias));

/* f16 by the processor's instructions; they treat denormals as C does. Two vectors are copied one by one: the compiler would copy
 * them in smaller parts, for which whole vectors that are read next would have to wait. */
DV_TARGET_AVX2 DV_INLINE void dv__load_avx2(dv_lanes *to, const void *from, uint32_t dtype)
{
    dv__f32x8 *const x = (dv__f32x8 *)to;
    for (int i = 0; i < 2; i++) {
        const dv__u16x8 *const half = (const dv__u16x8 *)from + i;
        if (dtype == DV_DTYPE_f32) {
            x[i] = ((const dv__f32x8 *)from)[i];
        } else if (dtype == DV_DTYPE_f16) {
            __asm__("vcvtph2ps %1, %0" : "=x"(x[i]) : "m"(*half));
        } else {
            __asm__("vpmovzxwd %1, %0" : "=x"(x[i]) : "m"(*half));
            x[i] = (dv__f32x8)((dv__u32x8)x[i] << 16);
        }
    }
}
DV_TARGET_AVX2 DV_INLINE void dv__store_avx2(void *to, const dv_lanes *from, uint32_t dtype)
{
    for (int i = 0; i < 2; i++)
        if (dtype == DV_DTYPE_f16)
            __asm__("vcvtps2ph $0, %1, %0" : "=m"(((dv__u16x8 *)to)[i]) : "x"(((const dv__f32x8 *)from)[i]));
        else if (dtype == DV_DTYPE_f32)
            ((dv__f32x8 *)to)[i] = ((const dv__f32x8 *)from)[i];
    if (dtype == DV_DTYPE_bf16)
        dv__store_base(to, from, dtype);
}
static const dv_isa dv_isa_avx2 DV__UNUSED = { dv__load_avx2, dv__store_avx2, dv__exp_base };

DV__X16 void dv__load_avx512(dv_lanes *to, const void *from, uint32_t dtype)
{
    if (dtype == DV_DTYPE_f32) {
        *to = *(const dv_lanes *)from;
    } else if (dtype == DV_DTYPE_f16) {
        __asm__("vcvtph2ps %1, %0" : "=v"(*to) : "m"(*(const dv__u16x16 *)from));
    } else {
        __asm__("vpmovzxwd %1, %0" : "=v"(*to) : "m"(*(const dv__u16x16 *)from));
        *to = (dv_lanes)((dv__u32x16)*to << 16);
    }
}
/* To 16 bits. The instruction for bf16 takes denormals for 0: vectors that have some are rounded as without it. */
DV__X16 dv__u16x16 dv__f16_x16(dv_f32x16 x)
{
    dv__u16x16 half;
    __asm__("vcvtps2ph $0, %1, %0" : "=v"(half) : "v"(x));
    return half;
}
DV__X16 dv__u16x16 dv__bf16_x16(dv_f32x16 x, bool by_instruction)
{
    uint32_t denormal;
    dv__u16x16 half;
    if (by_instruction) {
        __asm__("vfpclassps $0x20, %1, %%k1\n\tkmovw %%k1, %0" : "=r"(denormal) : "v"(x) : "k1");
        __asm__("vcvtneps2bf16 %1, %0" : "=v"(half) : "v"(x));
        if (!DV__RARELY(denormal))
            return half;
    }
    const dv__u32x16 u = (dv__u32x16)x, high = u >> 16, quiet = high | 0x40;
    dv__u32x16 words = (u + 0x7fff + (high & 1)) >> 16;
    __asm__("vcmpunordps %1, %1, %%k1\n\tvmovdqa32 %2, %0%{%%k1%}" : "+v"(words) : "v"(x), "v"(quiet) : "k1"); /* NaN */
    __asm__("vpmovdw %1, %0" : "=v"(half) : "v"(words));
    return half;
}
DV__X16 dv__u16x32 dv__both_x16(dv__u16x16 first, dv__u16x16 second)
{
    dv__u16x32 both;
    __asm__("vinserti64x4 $1, %2, %g1, %0" : "=v"(both) : "v"(first), "v"(second));
    return both;
}
#define DV__STORE_X16(ISA, BY_INSTRUCTION)                                                                            \
    DV__X16 void dv__store_##ISA(void *to, const dv_lanes *from, uint32_t dtype)                                      \
    {                                                                                                                 \
        const dv_f32x16 x = (dv_f32x16)from[0];                                                                       \
        if (dtype == DV_DTYPE_f32)                                                                                    \
            *(dv_lanes *)to = (dv_lanes)x;                                                                            \
        else if (dtype == DV_DTYPE_f16)                                                                               \
            *(dv__u16x16 *)to = dv__f16_x16(x);                                                                       \
        else if (dtype == DV_DTYPE_bf16)                                                                              \
            *(dv__u16x16 *)to = dv__bf16_x16(x, BY_INSTRUCTION);                                                      \
        else if (dtype == (DV_DTYPE_f32 | DV__PAST))                                                                  \
            __asm__ volatile("vmovntps %1, (%0)" : : "r"(to), "v"(x) : "memory");                                     \
        else                                                                                                          \
            __asm__ volatile("vmovntdq %1, (%0)"                                                                      \
                :                                                                                                     \
                : "r"(to), "v"(dtype == (DV_DTYPE_f16 | DV__PAST) ? dv__f16_x16(x) : dv__bf16_x16(x, BY_INSTRUCTION)) \
                : "memory");                                                                                          \
    }
DV__STORE_X16(avx512, false)
DV__STORE_X16(avx512bf16, true)
DV_TARGET_AVX512 static inline void dv__exp_avx512(float *to, const float *x, float minus)
{
    for (int i = 0; i < DV_BLOCK; i += 16)
        *(dv_lanes *)(void *)(to + i) = (dv_lanes)dv__expf_x16((dv_f32x16) * (const dv_lanes *)(const void *)(x + i) - minus);
}
static const dv_isa dv_isa_avx512 DV__UNUSED = { dv__load_avx512, dv__store_avx512, dv__exp_avx512 };
static const dv_isa dv_isa_avx512bf16 DV__UNUSED = { dv__load_avx512, dv__store_avx512bf16, dv__exp_avx512 };
#endif

/* ---- Loops over elements ------------------------------------------------------------------------------------------------- */

/* For rows that DV_ELEMENTWISE cannot express, such as sums over a line. The step is written for float, and for double if f64 is
 * wanted. It computes exactly DV_BLOCK elements, so it compiles to vectors without a scalar remainder: the last elements are
 * computed in a copy.
 *
 *     DV_INLINE void step_f32(float *const *out, const float *const *in, void *with)
 *     {
 *         DV_BLOCK_LOOP
 *         out[0][i] = dv_sigmoidf(in[0][i]);
 *     }
 *     DV_INLINE int sigmoid_row(dv_context *ctx, const struct sigmoid *a, const dv_isa *isa)
 *     {
 *         dv_blocks(isa, dv_numel(a->x), DV_OUT(a->out), DV_IN(a->x), NULL, step_f32, step_f64);
 *         return DV_OK;
 *     }
 *     DV_ISAS(struct sigmoid, sigmoid_row)
 *
 * `with` is passed to the step, for parameters or sums. Without a step for float, all is computed in double. */
#define DV_OUT(...) (dv_tensor *const[]){ __VA_ARGS__ }, (int)(sizeof((dv_tensor *const[]){ __VA_ARGS__ }) / sizeof(void *))
#define DV_IN(...) \
    (const dv_tensor *const[]){ __VA_ARGS__ }, (int)(sizeof((const dv_tensor *const[]){ __VA_ARGS__ }) / sizeof(void *))
typedef void (*dv_step_f32)(float *const *out, const float *const *in, void *with);
typedef void (*dv_step_f64)(double *const *out, const double *const *in, void *with);

/* Elements of a block, in one of the two types. */
/* clang-format off */
typedef union dv__room { float f32[DV_BLOCK]; double f64[DV_BLOCK]; } dv__room;
/* clang-format on */
typedef struct dv__side { /* one tensor of a loop */
    char *data;
    uint32_t dtype;
    int item;
    bool same, half, one; /* of the type that is computed in; of 16 bits, for dv_isa to convert; one element */
    int64_t period;       /* its elements are those of the first so many, again and again; 0: each has its own */
} dv__side;
/* A block of another type, as float or double, and back: an integer of its range, 0 for NaN. Of a result only n elements are
 * written. f64, i32 and i64 are computed in double, and so is f32 beside them. */
/* clang-format off */
#define DV__SMALL_INTEGERS(X) X(i8, int8_t) X(i16, int16_t) X(u8, uint8_t)
#define DV__WIDEN(DTYPE, TYPE)  case DV_DTYPE_##DTYPE: DV_BLOCK_LOOP whole[i] = ((const TYPE *)data)[i]; break;
#define DV__NARROW(DTYPE, TYPE) case DV_DTYPE_##DTYPE: DV_BLOCK_LOOP ((TYPE *)to)[i] = (TYPE)whole[i]; break;
#define DV__AS_DOUBLE(DTYPE, TYPE) case DV_DTYPE_##DTYPE: DV_BLOCK_LOOP to->f64[i] = (double)((const TYPE *)data)[i]; return;
/* clang-format on */
DV__ONCE static void dv__read(dv__room *to, bool f64, const void *data, uint32_t dtype)
{
    int32_t whole[DV_BLOCK];
    switch (dtype) {
        DV__SMALL_INTEGERS(DV__WIDEN)
    case DV_DTYPE_bool:
        DV_BLOCK_LOOP
        whole[i] = ((const uint8_t *)data)[i] != 0;
        break;
        DV__AS_DOUBLE(i32, int32_t)
        DV__AS_DOUBLE(i64, int64_t)
        DV__AS_DOUBLE(f32, float)
    case DV_DTYPE_bf16:
    case DV_DTYPE_f16:
        for (int i = 0; i < DV_BLOCK; i++) {
            DV__NO_VECTOR(i);
            to->f64[i] = dv_get_f64(data, i, dtype);
        }
        return;
    default: memset(whole, 0, sizeof whole); /* none that a loop may have */
    }
    if (f64) {
        DV_BLOCK_LOOP
        to->f64[i] = (double)whole[i];
    } else {
        DV_BLOCK_LOOP
        to->f32[i] = (float)whole[i];
    }
}
#define DV__CUT(FROM, TYPE)                                                                          \
    DV_BLOCK_LOOP                                                                                    \
    {                                                                                                \
        const TYPE x = (FROM)[i], low = x > (TYPE)least ? x : (TYPE)least;                           \
        const int32_t all = (int32_t)(low < (TYPE)most ? low : (TYPE)most), one = (x < 0) | (x > 0); \
        whole[i] = x == x ? (truth ? one : all) : truth;                                             \
    }
DV__ONCE static void dv__write(const dv__side *side, int64_t at, int64_t n, const dv__room *from, bool f64)
{
    const bool truth = side->dtype == DV_DTYPE_bool, i8 = side->dtype == DV_DTYPE_i8, i16 = side->dtype == DV_DTYPE_i16;
    const int32_t least = i8 ? INT8_MIN : i16 ? INT16_MIN : side->item == 1 ? 0 : INT32_MIN;
    const int32_t most = i8 ? INT8_MAX : i16 ? INT16_MAX : side->item == 1 ? UINT8_MAX : INT32_MAX;
    dv__room part;
    void *const data = side->data + at * side->item, *const to = n == DV_BLOCK ? data : &part;
    float *const real = to;
    int64_t *const longs = to;
    int32_t whole[DV_BLOCK];
    switch (side->dtype) {
    case DV_DTYPE_f32:
        DV_BLOCK_LOOP
        real[i] = (float)from->f64[i];
        break;
    case DV_DTYPE_i64:
        for (int i = 0; i < DV_BLOCK; i++) {
            const double x = from->f64[i], low = x > (double)INT64_MIN ? x : (double)INT64_MIN;
            longs[i] = x != x ? 0 : low < (double)INT64_MAX ? (int64_t)low : INT64_MAX;
        }
        break;
    case DV_DTYPE_bf16:
    case DV_DTYPE_f16:
        for (int i = 0; i < DV_BLOCK; i++) {
            DV__NO_VECTOR(i);
            dv_put_f64(to, i, side->dtype, from->f64[i]);
        }
        break;
    default:
        if (f64)
            DV__CUT(from->f64, double)
        else
            DV__CUT(from->f32, float)
    }
    switch (side->dtype) {
        DV__SMALL_INTEGERS(DV__NARROW)
        DV__NARROW(bool, uint8_t)
        DV__NARROW(i32, int32_t)
    default: break;
    }
    if (n < DV_BLOCK)
        memcpy(data, to, (size_t)(n * side->item));
}

DV__ONCE static bool dv__wide(const dv_tensor *const *t, int n)
{
    for (int k = 0; k < n; k++) {
        const uint32_t dtype = dv_dtype_key(t[k]->dtype);
        if (dtype == DV_DTYPE_f64 || dtype == DV_DTYPE_i32 || dtype == DV_DTYPE_i64)
            return true;
    }
    return false;
}
DV__ONCE static void dv__sides_of(dv__side *to, const dv_tensor *const *t, int n, bool wide, int64_t elements)
{
    for (int k = 0; k < n; k++) {
        const int64_t own = dv_numel(t[k]);
        to[k].period = own < elements && own > 1 ? own : 0;
        to[k].data = (char *)t[k]->data;
        to[k].dtype = dv_dtype_key(t[k]->dtype);
        to[k].item = t[k]->dtype.bits / 8;
        to[k].same = to[k].dtype == (uint32_t)(wide ? DV_DTYPE_f64 : DV_DTYPE_f32);
        to[k].half = !wide && (to[k].dtype == DV_DTYPE_bf16 || to[k].dtype == DV_DTYPE_f16);
        to[k].one = true;
        for (int32_t i = 0; i < t[k]->ndim && to[k].one; i++)
            to[k].one = t[k]->shape[i] == 1;
    }
}
/* So many elements from `at` on, as they are; then 0 up to a whole block. */
DV__ONCE static void dv__copy(void *to, const dv__side *side, int64_t at, int64_t count)
{
    memset(to, 0, (size_t)(DV_BLOCK * side->item));
    for (int64_t i = 0, some = count; i < count; i += some) {
        const int64_t from = side->period ? (at + i) % side->period : at, left = side->period ? side->period - from : count;
        some = left < count - i ? left : count - i;
        memcpy((char *)to + i * side->item, side->data + from * side->item, (size_t)(some * side->item));
    }
}
/* An input's block from element `at` on, and the other way round; what is not where the step can use it. */
DV_INLINE void dv__fetch(const dv_isa *isa, dv__room *to, const dv__side *side, int64_t at, int64_t count, bool wide)
{
    dv__room part;
    const void *data = side->data + at * side->item;
    if (count < DV_BLOCK || side->period) {
        dv__room *const copy = side->same ? to : &part;
        dv__copy(copy, side, at, count);
        data = copy;
    }
    if (side->half)
        dv_block_load(isa, to->f32, (const uint16_t *)data, side->dtype);
    else if (!side->same)
        dv__read(to, wide, data, side->dtype);
}
DV_INLINE void dv__store(const dv_isa *isa, const dv__room *from, const dv__side *side, int64_t at, int64_t count, bool wide)
{
    void *const data = side->data + at * side->item;
    uint16_t part[DV_BLOCK];
    const void *rest = from;
    if (side->half) {
        dv_block_store(isa, count == DV_BLOCK ? (uint16_t *)data : part, from->f32, side->dtype);
        rest = part;
    }
    if (!side->half && !side->same)
        dv__write(side, at, count, from, wide);
    else if (count < DV_BLOCK)
        memcpy(data, rest, (size_t)(count * side->item));
}
DV__ONCE static void dv__fill(dv__room *to, const dv__side *side, bool wide) /* with the one element of an input */
{
    double x;
    dv_load_f64(&x, side->data, 0, 1, side->dtype);
    for (int i = 0; i < DV_BLOCK; i++)
        if (wide)
            to->f64[i] = x;
        else
            to->f32[i] = (float)x;
}

DV_INLINE void dv_blocks(const dv_isa *isa, int64_t n, dv_tensor *const *out, int nout, const dv_tensor *const *in, int nin,
    void *with, dv_step_f32 f32, dv_step_f64 f64)
{
    _Alignas(64) dv__room rest[2 * DV__MOST]; /* side by side: no two that a step uses are 4096 bytes apart, which is slow */
    dv__side from[DV__MOST], to[DV__MOST];
    const void *x[DV__MOST] = { NULL };
    void *y[DV__MOST] = { NULL };
    const dv_tensor *const *const results = (const dv_tensor *const *)out;
    const bool wide = f64 && (!f32 || dv__wide(in, nin) || dv__wide(results, nout));
    dv__sides_of(from, in, nin, wide, n);
    dv__sides_of(to, results, nout, wide, n);
    for (int k = 0; k < nin; k++)
        if (n > 1 && from[k].one)
            dv__fill(&rest[k], &from[k], wide);
    for (int64_t at = 0; at < n; at += DV_BLOCK) {
        const int64_t count = n - at < DV_BLOCK ? n - at : DV_BLOCK;
        for (int k = 0; k < nin; k++) {
            const bool direct = from[k].same && count == DV_BLOCK && !from[k].one && !from[k].period;
            x[k] = direct ? (const void *)(from[k].data + at * from[k].item) : (const void *)&rest[k];
            if (!direct && (n == 1 || !from[k].one))
                dv__fetch(isa, &rest[k], &from[k], at, count, wide);
        }
        for (int k = 0; k < nout; k++)
            y[k] = to[k].same && count == DV_BLOCK ? (void *)(to[k].data + at * to[k].item) : (void *)&rest[nin + k];
        if (wide)
            f64((double *const *)y, (const double *const *)x, with);
        else
            f32((float *const *)y, (const float *const *)x, with);
        for (int k = 0; k < nout; k++)
            if (!to[k].same || count < DV_BLOCK)
                dv__store(isa, &rest[nin + k], &to[k], at, count, wide);
    }
}

/* ---- Lines with vectors of 16 floats ------------------------------------------------------------------------------------- */

#ifdef DV_TARGET_AVX512
/* Elements of a tensor, or of a block. `large`: the results are larger, all together, than the last cache. Then they go past the
 * caches, and inputs are asked for ahead: in time, and beyond the next pages, where the processor does not look by itself. */
typedef struct dv__cells {
    char *at;
    int64_t item; /* bytes from one to the next; 0: the same 16, again and again */
    uint32_t dtype;
    bool bf16; /* there is an instruction for it */
    bool large;
} dv__cells;
typedef void (*dv__step_x16)(const dv__cells *out, const dv__cells *in, int64_t n, void *with);

/* 32 elements from i on. The dtype looks new each time: a loop for each would be much code. */
DV__X16 void dv__get_x16(dv_f32x16 *x, dv__cells from, int64_t i)
{
    enum { AHEAD = 16384 };
    dv_lanes first, second;
    const char *const at = from.at + i * from.item, *const next = at + 16 * from.item;
    __asm__("" : "+r"(from.dtype));
    if (DV__RARELY(from.large))
        __builtin_prefetch(at + AHEAD), __builtin_prefetch(from.item < 4 ? at + AHEAD : next + AHEAD);
    dv__load_avx512(&first, at, from.dtype);
    dv__load_avx512(&second, next, from.dtype);
    x[0] = (dv_f32x16)first, x[1] = (dv_f32x16)second;
}
DV__X16 void dv__put_x16(dv__cells to, int64_t i, const dv_f32x16 *x)
{
    char *const at = to.at + i * to.item;
    dv__u16x32 both;
    __asm__("" : "+r"(to.dtype));
    if (to.dtype == DV_DTYPE_f32) {
        for (int k = 0; k < 2; k++)
            if (DV__RARELY(to.large))
                __asm__("vmovntps %1, %0" : "=m"(((dv_lanes *)(void *)at)[k]) : "v"(x[k]));
            else
                ((dv_lanes *)(void *)at)[k] = (dv_lanes)x[k];
        return;
    }
    if (to.dtype == DV_DTYPE_f16) {
        both = dv__both_x16(dv__f16_x16(x[0]), dv__f16_x16(x[1]));
    } else {
        uint32_t denormal = 1;
        if (to.bf16)
            __asm__("vfpclassps $0x20, %1, %%k1\n\tvfpclassps $0x20, %2, %%k2\n\tkorw %%k1, %%k2, %%k1\n\tkmovw %%k1, %0"
                : "=r"(denormal)
                : "v"(x[0]), "v"(x[1])
                : "k1", "k2");
        if (!denormal)
            __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(x[0]), "v"(x[1]));
        else
            both = dv__both_x16(dv__bf16_x16(x[0], false), dv__bf16_x16(x[1], false));
    }
    if (DV__RARELY(to.large))
        __asm__("vmovntdq %1, %0" : "=m"(*(dv__u16x32 *)(void *)at) : "v"(both));
    else
        *(dv__u16x32 *)(void *)at = both;
}

/* A loop over all elements: its inputs, and then its results. Blocks that cannot be used where they lie are in `rest`: integers,
 * of which so many blocks are computed at once. */
enum { DV__AHEAD = 4 };
typedef struct dv__run {
    int nin, n;
    bool bf16, large; /* of cells */
    bool whole;       /* there are no integers: all blocks are computed at once */
    dv__side side[2 * DV__MOST];
    dv__cells cells[2 * DV__MOST];
    _Alignas(64) float rest[2 * DV__MOST][(DV__AHEAD + 1) * DV_BLOCK]; /* no two are 4096 bytes apart, which is slow */
} dv__run;
DV__ONCE static void dv__run_begin(dv__run *run, const dv_context *ctx, bool bf16, int64_t elements, dv_tensor *const *out,
    int nout, const dv_tensor *const *in, int nin)
{
    run->bf16 = bf16;
    run->nin = nin;
    run->n = nin + nout;
    run->whole = true;
    run->large = ctx->flags & DV_CTX_LARGE;
    dv__sides_of(run->side, in, nin, false, elements);
    dv__sides_of(run->side + nin, (const dv_tensor *const *)out, nout, false, elements);
    for (int k = 0; k < run->n; k++) {
        dv__side *const side = &run->side[k];
        side->one = side->one && elements > 1 && k < nin;
        if (side->one)
            dv__fill((dv__room *)(void *)run->rest[k], side, false);
        else
            run->whole = run->whole && (side->same || side->half);
    }
}
/* The cells of the next elements, from `at` on: so many. A run ends where an input that repeats begins again; a block around
 * that place is copied. */
DV__ONCE static int64_t dv__run_next(dv__run *run, int64_t at, int64_t left)
{
    const int64_t most = run->whole || left < DV__AHEAD * DV_BLOCK ? left : DV__AHEAD * DV_BLOCK;
    int64_t count = left < DV_BLOCK ? left : most / DV_BLOCK * DV_BLOCK;
    for (int k = 0; k < run->nin; k++) {
        const int64_t period = run->side[k].period, fits = period ? (period - at % period) / DV_BLOCK * DV_BLOCK : count;
        if (count > DV_BLOCK)
            count = fits < DV_BLOCK ? DV_BLOCK : fits < count ? fits : count;
    }
    for (int k = 0; k < run->n; k++) {
        const dv__side *const side = &run->side[k];
        const int64_t here = side->period ? at % side->period : at;
        const bool there = count >= DV_BLOCK && !(side->period && here + count > side->period), plain = side->same || side->half;
        dv__cells *const cells = &run->cells[k];
        dv__room part, *const copy = plain ? (dv__room *)(void *)run->rest[k] : &part;
        const char *data = side->data + here * side->item;
        *cells = (dv__cells){ (char *)&run->rest[k], side->one ? 0 : sizeof(float), DV_DTYPE_f32, run->bf16, false };
        if (side->one)
            continue;
        if (!there && k < run->nin) {
            dv__copy(copy, side, at, count);
            data = (const char *)copy;
        }
        if (plain) {
            cells->item = side->item, cells->dtype = side->dtype;
            if (there) {
                cells->at = side->data + here * side->item;
                cells->large = run->large && (k < run->nin ? !side->period : (uintptr_t)cells->at % 64 == 0);
            }
        } else {
            for (int64_t i = 0; i < count && k < run->nin; i += DV_BLOCK)
                dv__read((dv__room *)(void *)(run->rest[k] + i), false, data + i * side->item, side->dtype);
        }
    }
    return count;
}
DV__ONCE static void dv__run_store(dv__run *run, int64_t at, int64_t count) /* the results in `rest` */
{
    for (int k = run->nin; k < run->n; k++) {
        const dv__side *const side = &run->side[k];
        void *const data = side->data + at * side->item;
        if (run->cells[k].at != (char *)&run->rest[k])
            continue;
        if (side->same || side->half)
            memcpy(data, &run->rest[k], (size_t)(count * side->item));
        else
            for (int64_t i = 0; i < count; i += DV_BLOCK)
                dv__write(side, at + i, count - i < DV_BLOCK ? count - i : DV_BLOCK,
                    (const dv__room *)(const void *)(run->rest[k] + i), false);
    }
}
/* A step for float, as one for vectors. */
DV__X16 void dv__step_blocks(dv__run *run, int nout, int nin, int64_t n, void *with, dv_step_f32 f32)
{
    _Alignas(64) float own[2 * DV__MOST][DV_BLOCK];
    float *block[2 * DV__MOST];
    for (int64_t at = 0; at < n; at += DV_BLOCK) {
        for (int k = 0; k < nin + nout; k++) {
            const bool there = run->cells[k].dtype == DV_DTYPE_f32 && !run->cells[k].large;
            block[k] = there ? (float *)(void *)(run->cells[k].at + at * run->cells[k].item) : own[k];
            for (int i = 0; i < DV_BLOCK && k < nin && !there; i += 32)
                dv__get_x16((dv_f32x16 *)(own[k] + i), run->cells[k], at + i);
        }
        f32(block + nin, (const float *const *)block, with);
        for (int k = nin; k < nin + nout; k++)
            for (int i = 0; i < DV_BLOCK && block[k] == own[k]; i += 32)
                dv__put_x16(run->cells[k], at + i, (const dv_f32x16 *)(own[k] + i));
    }
}
/* dv_blocks() for float, with a step for vectors or, without that, one for blocks. */
DV__X16 void dv__blocks_x16(const dv_context *ctx, bool bf16, int64_t n, dv_tensor *const *out, int nout,
    const dv_tensor *const *in, int nin, void *with, dv__step_x16 x16, dv_step_f32 f32)
{
    dv__run run;
    dv__run_begin(&run, ctx, bf16, n, out, nout, in, nin);
    for (int64_t at = 0, count; at < n; at += count) {
        count = dv__run_next(&run, at, n - at);
        const int64_t blocks = count < DV_BLOCK ? DV_BLOCK : count;
        if (x16)
            x16(run.cells + nin, run.cells, blocks, with);
        else
            dv__step_blocks(&run, nout, nin, blocks, with, f32);
        dv__run_store(&run, at, count);
    }
    if (run.large)
        __builtin_ia32_sfence(); /* after it other threads see what went past the caches */
}
#endif

/* One function for all rows of DV_ELEMENTWISE of an instruction set, which calls the step for each block: a loop in each row
 * would take the compiler twice as long. */
typedef void (*dv__blocks_fn)(int64_t n, dv_tensor *const *out, int nout, const dv_tensor *const *in, int nin, void *with,
    dv_step_f32 f32, dv_step_f64 f64);
#define DV__BLOCKS_OF(TARGET, ISA)                                                                                       \
    TARGET DV__ONCE static void dv__blocks_##ISA(int64_t n, dv_tensor *const *out, int nout, const dv_tensor *const *in, \
        int nin, void *with, dv_step_f32 f32, dv_step_f64 f64)                                                           \
    {                                                                                                                    \
        dv_blocks(&dv_isa_##ISA, n, out, nout, in, nin, with, f32, f64);                                                 \
    }
DV__BLOCKS_OF(, base)
#ifdef DV_TARGET_AVX2
DV__BLOCKS_OF(DV_TARGET_AVX2, avx2)
#endif

/* ---- Rows for each instruction set --------------------------------------------------------------------------------------- */

/* From a body that handles all its dtypes itself:
 *
 *     DV_INLINE int swiglu_row(dv_context *ctx, const struct swiglu *a, const dv_isa *isa) { ... }
 *     DV_ISAS(struct swiglu, swiglu_row)
 *     ... .kernels = DV_KERNELS(DV_ISA_ROWS(struct swiglu, swiglu_row, "f32 bf16 f16", .split = 4096))
 *
 * Before DV_ISA_ROWS may stand DV_BF16_ROW(struct swiglu, swiglu_row, .split = 4096), the row for bf16 of processors with
 * avx512bf16. DV_ISAS_LOOP is for a body that runs its loop itself, by dv_parallel_scratch(): it gets the loop's piece, made for
 * the same instruction set.
 *
 *     DV_INLINE int lines(void *arg, int64_t begin, int64_t end, void *scratch, const dv_isa *isa) { ... }
 *     static int softmax_row(dv_context *ctx, const struct softmax *a, dv_scratch_fn piece)
 *     {
 *         return dv_parallel_scratch(ctx, 0, n, 1, bytes, piece, &x);
 *     }
 *     DV_ISAS_LOOP(struct softmax, softmax_row, lines)
 */
#define DV__ISA_LOOP(ISA, TARGET, FRAME, BODY, PIECE)                                     \
    TARGET static int PIECE##_##ISA(void *arg, int64_t begin, int64_t end, void *scratch) \
    {                                                                                     \
        return PIECE(arg, begin, end, scratch, &dv_isa_##ISA);                            \
    }                                                                                     \
    DV__UNUSED static int BODY##_##ISA(dv_context *ctx, const FRAME *a) { return BODY(ctx, a, PIECE##_##ISA); }
#define DV__INNER(ISA, NAME) , NAME##_##ISA
#define DV__ISA_OF(ISA, FRAME, BODY, ...)                               \
    DV__UNUSED static int BODY##_##ISA(dv_context *ctx, const FRAME *a) \
    {                                                                   \
        return BODY(ctx, a DV__MAP(DV__INNER, ISA, __VA_ARGS__));       \
    }
#define DV__ISA_ROW(ISA, TARGET, FRAME, BODY) \
    DV__UNUSED TARGET static int BODY##_##ISA(dv_context *ctx, const FRAME *a) { return BODY(ctx, a, &dv_isa_##ISA); }
#ifdef DV_TARGET_AVX2
#define DV_ISAS(FRAME, BODY)                               \
    DV__ISA_ROW(avx512bf16, DV_TARGET_AVX512, FRAME, BODY) \
    DV__ISA_ROW(avx512, DV_TARGET_AVX512, FRAME, BODY)     \
    DV__ISA_ROW(avx2, DV_TARGET_AVX2, FRAME, BODY)         \
    DV__ISA_ROW(base, , FRAME, BODY)
#define DV_ISAS_LOOP(FRAME, BODY, PIECE)                           \
    DV__ISA_LOOP(avx512bf16, DV_TARGET_AVX512, FRAME, BODY, PIECE) \
    DV__ISA_LOOP(avx512, DV_TARGET_AVX512, FRAME, BODY, PIECE)     \
    DV__ISA_LOOP(avx2, DV_TARGET_AVX2, FRAME, BODY, PIECE)         \
    DV__ISA_LOOP(base, , FRAME, BODY, PIECE)
/* BODY gets other functions that each instruction set has: DV_ISAS_OF(struct f, body, row, other) passes row_avx512 and
 * other_avx512, and so on. */
#define DV_ISAS_OF(FRAME, BODY, ...)                 \
    DV__ISA_OF(avx512bf16, FRAME, BODY, __VA_ARGS__) \
    DV__ISA_OF(avx512, FRAME, BODY, __VA_ARGS__)     \
    DV__ISA_OF(avx2, FRAME, BODY, __VA_ARGS__)       \
    DV__ISA_OF(base, FRAME, BODY, __VA_ARGS__)
/* The row for bf16 alone, with a comma behind it: DV_KERNELS(DV_BF16_ROW(...) DV_ISA_ROWS(...)). */
#define DV_BF16_ROW(FRAME, BODY, ...) DV_KERNEL(FRAME, "cpu", "bf16", BODY##_avx512bf16, .isa = "avx512bf16", __VA_ARGS__),
#define DV_ISA_ROWS(FRAME, BODY, DTYPES, ...)                                     \
    DV_KERNEL(FRAME, "cpu", DTYPES, BODY##_avx512, .isa = "avx512", __VA_ARGS__), \
        DV_KERNEL(FRAME, "cpu", DTYPES, BODY##_avx2, .isa = "avx2", __VA_ARGS__), \
        DV_KERNEL(FRAME, "cpu", DTYPES, BODY##_base, __VA_ARGS__)
#else
#define DV_ISAS(FRAME, BODY) DV__ISA_ROW(base, , FRAME, BODY)
#define DV_ISAS_LOOP(FRAME, BODY, PIECE) DV__ISA_LOOP(base, , FRAME, BODY, PIECE)
#define DV_ISAS_OF(FRAME, BODY, ...) DV__ISA_OF(base, FRAME, BODY, __VA_ARGS__)
#define DV_BF16_ROW(FRAME, BODY, ...)
#define DV_ISA_ROWS(FRAME, BODY, DTYPES, ...) DV_KERNEL(FRAME, "cpu", DTYPES, BODY##_base, __VA_ARGS__)
#endif

/* ---- One line for all rows ----------------------------------------------------------------------------------------------- */

#define DV__IN_NUMBER(x, NAME) dv__in_##NAME,
#define DV__OUT_NUMBER(x, NAME) dv__out_##NAME,
/* A name may stand in both lists: the result begins with the input's value, in a scope within the input's. */
#define DV__OUT_NONE(x, NAME) const dv_real dv__start_##NAME = { 0 };
#define DV__IN_VALUE(TYPE, NAME) const dv_real dv__start_##NAME = DV__GET_##TYPE(dv__from_##NAME, dv__i), NAME = dv__start_##NAME;
#define DV__OUT_VALUE(TYPE, NAME) dv_real NAME = dv__start_##NAME;
#define DV__OUT_STORE(TYPE, NAME) DV__PUT_##TYPE(dv__to_##NAME, dv__i, NAME);
#define DV__GET_f32(FROM, I) (FROM)[I]
#define DV__PUT_f32(TO, I, X) (TO)[I] = (X)
#define DV__GET_f64 DV__GET_f32
#define DV__PUT_f64 DV__PUT_f32
#define DV__GET_x16(FROM, I) (FROM)[I]
#define DV__PUT_x16(TO, I, X) (TO)[I] = (X)
#define DV__OUT_TO(x, NAME) dv_number *const dv__to_##NAME = dv__apart ? dv__kept[dv__out_##NAME] : dv__out[dv__out_##NAME];
#define DV__IN_PAIR(x, NAME)      \
    dv_f32x16 dv__from_##NAME[2]; \
    dv__get_x16(dv__from_##NAME, dv__all_##NAME, dv__at);
#define DV__OUT_PAIR(x, NAME) dv_f32x16 dv__to_##NAME[2];
#define DV__OUT_PUT(x, NAME) dv__put_x16(dv__out[dv__out_##NAME], dv__at, dv__to_##NAME);
#define DV__FROM_f32(NAME) dv__from_##NAME
#define DV__FROM_f64(NAME) dv__from_##NAME
#define DV__FROM_x16(NAME) dv__all_##NAME
#define DV__IN_FROM(TYPE, NAME) __typeof__(*dv__in) DV__FROM_##TYPE(NAME) = dv__in[dv__in_##NAME];
#define DV__OUT_COPY(x, NAME) memcpy(dv__out[dv__out_##NAME], dv__kept[dv__out_##NAME], sizeof dv__kept[0]);
#define DV__OF_FRAME(x, NAME) x->NAME,
/* clang-format off */
#define DV__MAP_OF(...) DV__MAP(__VA_ARGS__)
/* clang-format on */

/* x in all elements, in a line: of the type that the line is compiled for. */
#define dv_all(x) DV__NUMBER(dv_real, x)

/* The number k of "(x, y, z)". */
static inline int dv__name_of(const char *names, int k, const char **name)
{
    for (names++; k; k--)
        names += strcspn(names, ",") + 1;
    *name = names + strspn(names, " ");
    return (int)strcspn(*name, ", )");
}
static inline bool dv__is_read(uint32_t dtype)
{
    switch (dtype) {
    case DV_DTYPE_f32:
    case DV_DTYPE_f64:
    case DV_DTYPE_bf16:
    case DV_DTYPE_f16:
    case DV_DTYPE_i8:
    case DV_DTYPE_i16:
    case DV_DTYPE_i32:
    case DV_DTYPE_i64:
    case DV_DTYPE_u8:
    case DV_DTYPE_bool: return true;
    default: return false;
    }
}
/* Has t the shape of the last dims of `all`? Then its elements repeat. */
static inline bool dv__is_repeated(const dv_tensor *t, const dv_tensor *all)
{
    bool same = true;
    int32_t i = 0;
    while (i < t->ndim && t->shape[i] == 1)
        i++;
    if (t->ndim - i > all->ndim)
        return false;
    for (; i < t->ndim && same; i++)
        same = t->shape[i] == all->shape[all->ndim - t->ndim + i];
    return same;
}
/* A contract may accept what a line cannot compute: that is an error of the call. */
DV__ONCE static int dv__fits(dv_context *ctx, const dv_tensor *const *out, int nout, const char *outs, const dv_tensor *const *in,
    int nin, const char *ins)
{
    const int64_t n = out[0] ? dv_numel(out[0]) : 0;
    for (int i = 0; i < nout + nin; i++) {
        const bool result = i < nout;
        const dv_tensor *const t = result ? out[i] : in[i - nout];
        const bool fits = t && (dv_numel(t) == n || (!result && (dv_numel(t) == 1 || dv__is_repeated(t, out[0]))));
        if (fits && dv__is_read(dv_dtype_key(t->dtype)))
            continue;
        const char *name;
        const int size = dv__name_of(result ? outs : ins, result ? i : i - nout, &name);
        if (!t)
            return dv_error(ctx, DV_EINVAL, "an elementwise row needs '%.*s', which is None", size, name);
        if (!fits)
            return dv_error(ctx, DV_EINVAL,
                "an elementwise row needs as many elements of '%.*s' as of its first result: %lld%s, found %lld", size, name,
                (long long)n, result ? "" : " (or 1, or the shape of the last dims; with .split, of a part)",
                (long long)dv_numel(t));
        return dv_error(ctx, DV_EINVAL, "an elementwise row needs '%.*s' of a number type or bool, found type code %d of %d bits",
            size, name, t->dtype.code, t->dtype.bits);
    }
    return DV_OK;
}

/* Does the line, with its macros expanded, have a comparison, `!`, `~`, or braces? With vectors these do not mean what they mean
 * with numbers (x > 0 would be 0 or -1, (dv_real){ 1 } one 1), so that line is compiled for float. */
#define DV__TEXT(...) #__VA_ARGS__
#define DV__HAS_ANGLES(...) (__builtin_strstr(DV__TEXT(__VA_ARGS__), "dv__far") != 0) /* dv_sin, dv_cos */
#define DV__COMPARES(...) (__builtin_strpbrk(DV__TEXT(__VA_ARGS__), "<>!~{") || __builtin_strstr(DV__TEXT(__VA_ARGS__), "=="))

/* One pass of a line through a block. */
/* clang-format off */
#define DV__PASS(TYPE, LOOP, BEGIN, END, INS, OUTS, ...)                                                                        \
        LOOP {                                                                                                                  \
            BEGIN                                                                                                               \
            DV__MAP_OF(DV__OUT_NONE, , DV__UNPAREN OUTS) {                                                                      \
                DV__MAP_OF(DV__IN_VALUE, TYPE, DV__UNPAREN INS) {                                                               \
                    DV__MAP_OF(DV__OUT_VALUE, TYPE, DV__UNPAREN OUTS)                                                           \
                    do { __VA_ARGS__; } while (0);                                                                              \
                    DV__MAP_OF(DV__OUT_STORE, TYPE, DV__UNPAREN OUTS)                                                           \
                }                                                                                                               \
            }                                                                                                                   \
            END                                                                                                                 \
        }
/* The first pass notes which elements have a large angle. The second computes these, and no others: an element's bits do not
 * depend on its neighbours. Results that lie where inputs do are kept apart until then. */
#define DV__PASSES(TYPE, LOOP, INS, OUTS, ...)                                                                                  \
        bool dv__apart = false;                                                                                                 \
        for (int k = 0; DV__HAS_ANGLES(__VA_ARGS__) && k < (int)dv__outs * (int)dv__ins; k++)                                   \
            dv__apart |= (const void *)dv__out[k % (int)dv__outs] == (const void *)dv__in[k / (int)dv__outs];                   \
        dv_number dv__kept[dv__outs][DV_BLOCK];                                                                                 \
        int32_t dv__far_at[DV_BLOCK], dv__any = 0;                                                                              \
        DV__MAP_OF(DV__OUT_TO, , DV__UNPAREN OUTS)                                                                              \
        (void)dv__kept;                                                                                                         \
        DV__PASS(TYPE, LOOP, int32_t dv__far = 0;, dv__far_at[dv__i] = dv__far; dv__any |= dv__far;, INS, OUTS, __VA_ARGS__)    \
        if (dv__any) {                                                                                                          \
            DV__PASS(TYPE, for (int dv__i = 0; dv__i < DV_BLOCK; dv__i++), if (!dv__far_at[dv__i]) continue;, , INS, OUTS,      \
                __VA_ARGS__)                                                                                                    \
        }                                                                                                                       \
        if (dv__apart) { DV__MAP_OF(DV__OUT_COPY, , DV__UNPAREN OUTS) }
#define DV__PAIRS(TYPE, LOOP, INS, OUTS, ...)                                                                                   \
        LOOP {                                                                                                                  \
            DV__MAP_OF(DV__IN_PAIR, , DV__UNPAREN INS)                                                                          \
            DV__MAP_OF(DV__OUT_PAIR, , DV__UNPAREN OUTS)                                                                        \
            { enum { dv__i = 0 }; DV__PASS(TYPE, , , , INS, OUTS, __VA_ARGS__) }                                                \
            { enum { dv__i = 1 }; DV__PASS(TYPE, , , , INS, OUTS, __VA_ARGS__) }                                                \
            DV__MAP_OF(DV__OUT_PUT, , DV__UNPAREN OUTS)                                                                         \
        }
/* The step for one type: REAL is what the line computes with, NUMBER one of its numbers; LOOP goes through the elements. */
#define DV__STEP(TARGET, STEP, PARAMETERS, TYPE, NUMBER, REAL, LOOP, PASSES, FRAME, INS, OUTS, ...)                             \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wshadow\"")                                               \
    TARGET DV_INLINE void STEP PARAMETERS                                                                                       \
    {                                                                                                                           \
        typedef REAL dv_real DV__UNUSED;                                                                                        \
        typedef NUMBER dv_number DV__UNUSED;                                                                                    \
        const FRAME frame = *(const FRAME *)dv__with;                                                                           \
        enum { DV__MAP_OF(DV__IN_NUMBER, , DV__UNPAREN INS) dv__ins };                                                          \
        enum { DV__MAP_OF(DV__OUT_NUMBER, , DV__UNPAREN OUTS) dv__outs };                                                       \
        _Static_assert((int)dv__ins <= DV__MOST && (int)dv__outs <= DV__MOST, "at most eight inputs and eight results");        \
        (void)frame;                                                                                                            \
        DV__MAP_OF(DV__IN_FROM, TYPE, DV__UNPAREN INS)                                                                              \
        PASSES(TYPE, LOOP, INS, OUTS, __VA_ARGS__)                                                                              \
    }                                                                                                                           \
    _Pragma("GCC diagnostic pop")
#define DV__STEP_OF(TYPE, NUMBER, STEP, FRAME, INS, OUTS, ...)                                                                  \
    DV__STEP(, STEP, (NUMBER *const *dv__out, const NUMBER *const *dv__in, void *dv__with), TYPE, NUMBER, NUMBER,               \
        DV__VECTOR_LOOP(dv__i, DV_BLOCK), DV__PASSES, FRAME, INS, OUTS, __VA_ARGS__)
/* A row: its tensors, and then CALL with `out` and `in`. */
#define DV__ELEMENTWISE_ROW(INS, OUTS, ...)                                                                                     \
    {                                                                                                                           \
        dv_tensor *const out[] = { DV__MAP_OF(DV__OF_FRAME, a, DV__UNPAREN OUTS) };                                             \
        const dv_tensor *const in[] = { DV__MAP_OF(DV__OF_FRAME, a, DV__UNPAREN INS) };                                         \
        enum { OUT = sizeof out / sizeof *out, IN = sizeof in / sizeof *in };                                                   \
        const int status = dv__fits(ctx, (const dv_tensor *const *)out, OUT, #OUTS, in, IN, #INS);                              \
        if (!status) {                                                                                                          \
            __VA_ARGS__;                                                                                                        \
        }                                                                                                                       \
        return status;                                                                                                          \
    }
#define DV__ROW_TENSORS dv_numel(out[0]), out, OUT, in, IN, (void *)(uintptr_t)a
/* The rows for the instruction sets; X16 is the step of AVX-512. */
#ifdef DV_TARGET_AVX2
#define DV__STEP_FOR(TARGET, NAME, STEP, NUMBER)                                                                                \
    TARGET static void NAME(NUMBER *const *out, const NUMBER *const *in, void *with) { STEP(out, in, with); }
#define DV__ELEMENTWISE_ISAS(ROW, FRAME, INS, OUTS, X16)                                                                        \
    DV__STEP_FOR(DV_TARGET_AVX2, ROW##_avx2_f32, ROW##_step_f32, float)                                                         \
    DV__STEP_FOR(DV_TARGET_AVX2, ROW##_avx2_f64, ROW##_step_f64, double)                                                        \
    DV__STEP_FOR(DV_TARGET_AVX512, ROW##_avx512_f64, ROW##_step_f64, double)                                                    \
    DV_TARGET_AVX512 DV__ONCE static int ROW##_x16(dv_context *ctx, const FRAME *a, bool bf16)                                  \
        DV__ELEMENTWISE_ROW(INS, OUTS,                                                                                          \
            if (dv__wide(in, IN) || dv__wide((const dv_tensor *const *)out, OUT))                                               \
                dv__blocks_avx2(DV__ROW_TENSORS, NULL, ROW##_avx512_f64);                                                       \
            else                                                                                                                \
                dv__blocks_x16(ctx, bf16, DV__ROW_TENSORS, X16, ROW##_step_f32))                                                \
    DV__UNUSED static int ROW##_avx512bf16(dv_context *ctx, const FRAME *a) { return ROW##_x16(ctx, a, true); }                 \
    static int ROW##_avx512(dv_context *ctx, const FRAME *a) { return ROW##_x16(ctx, a, false); }                               \
    static int ROW##_avx2(dv_context *ctx, const FRAME *a)                                                                      \
    {                                                                                                                           \
        return ROW##_by(ctx, a, dv__blocks_avx2, ROW##_avx2_f32, ROW##_avx2_f64);                                                  \
    }
#define DV__STEP_X16(STEP, FRAME, INS, OUTS, ...)                                                                               \
    DV__STEP(DV_TARGET_AVX512, STEP, (const dv__cells *dv__out, const dv__cells *dv__in, int64_t dv__n, void *dv__with), x16,   \
        float, dv_f32x16, for (int64_t dv__at = 0; dv__at < dv__n; dv__at += 32), DV__PAIRS, FRAME, INS, OUTS, __VA_ARGS__)
#else
#define DV__ELEMENTWISE_ISAS(ROW, FRAME, INS, OUTS, X16)
#define DV__STEP_X16(STEP, FRAME, INS, OUTS, ...)
#endif
#define DV__ELEMENTWISE(ROW, FRAME, INS, OUTS, X16, ...)                                                                        \
    DV__STEP_OF(f32, float, ROW##_step_f32, FRAME, INS, OUTS, __VA_ARGS__)                                                      \
    DV__STEP_OF(f64, double, ROW##_step_f64, FRAME, INS, OUTS, __VA_ARGS__)                                                     \
    DV__ONCE static int ROW##_by(dv_context *ctx, const FRAME *a, dv__blocks_fn blocks, dv_step_f32 f32, dv_step_f64 f64)          \
        DV__ELEMENTWISE_ROW(INS, OUTS, blocks(DV__ROW_TENSORS, f32, f64))                                           \
    DV__ELEMENTWISE_ISAS(ROW, FRAME, INS, OUTS, X16)                                                                            \
    static int ROW##_base(dv_context *ctx, const FRAME *a)                                                                      \
    {                                                                                                                           \
        return ROW##_by(ctx, a, dv__blocks_base, ROW##_step_f32, ROW##_step_f64);                                                  \
    }                                                                                                                           \
    DV__UNUSED static int ROW##_reference(dv_context *ctx, const FRAME *a)                                                      \
    {                                                                                                                           \
        return ROW##_by(ctx, a, dv__blocks_base, NULL, ROW##_step_f64);                                                            \
    }
#define DV_ELEMENTWISE(ROW, FRAME, INS, OUTS, ...)                                                                              \
    DV__STEP_X16(ROW##_step_x16, FRAME, INS, OUTS, __VA_ARGS__)                                                                 \
    DV__ELEMENTWISE(ROW, FRAME, INS, OUTS, (DV__COMPARES(__VA_ARGS__) ? NULL : ROW##_step_x16), __VA_ARGS__)
#define DV_ELEMENTWISE_PLAIN(ROW, FRAME, INS, OUTS, ...) DV__ELEMENTWISE(ROW, FRAME, INS, OUTS, NULL, __VA_ARGS__)
/* clang-format on */
#define DV_ELEMENTWISE_ROWS(FRAME, ROW, DTYPES, ...) \
    DV_ISA_ROWS(FRAME, ROW, DTYPES, __VA_ARGS__), DV_KERNEL(FRAME, "cpu", DTYPES, ROW##_reference, .flags = DV_KERNEL_REFERENCE)
#define DV_ELEMENTWISE_FLOATS(FRAME, ROW, ...) \
    DV_BF16_ROW(FRAME, ROW, __VA_ARGS__) DV_ELEMENTWISE_ROWS(FRAME, ROW, "f32 f64 bf16 f16", __VA_ARGS__)

#endif
