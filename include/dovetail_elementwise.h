/* dovetail_elementwise.h: operators that compute each element from the same element of their inputs, and loops over elements.
 *
 * One line is the operator:
 *
 *     DV_ELEMENTWISE(swiglu_row, struct swiglu, (gate, up), (out), out = dv_silu(gate) * up)
 *
 * makes a function and a kernel for each instruction set, and a reference kernel that computes in double:
 *
 *     ... .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct swiglu, swiglu_row, .split = 16384))
 *
 * for f32, f64, bf16 and f16; DV_ELEMENTWISE_KERNELS(struct f, row, "f32 i64", ...) is for other dtypes.
 *
 * The names in parentheses are fields of the struct: inputs, then results, one to eight of each. The line is C; it can be
 * several statements. It is compiled for float, for double, and for vectors of 16 floats, so each value in it has the type
 * dv_real, and it uses what dovetail_math.h has for all three: dv_exp, dv_log, dv_log1p, dv_sigmoid, dv_silu, dv_tanh, dv_sin,
 * dv_cos, dv_sqrt, dv_abs, dv_floor, dv_ceil, dv_trunc, dv_round, dv_min, dv_max, dv_select. Another function does not compile.
 *   - A number that is no small integer is written (dv_number)0.1: float or double. An attribute is (dv_number)frame.eps.
 *     Without (dv_number), 0.1 and frame.eps do not compile beside vectors, and 0.5 is a double in some rows.
 *     A result is a dv_real, and so is dv_splat(frame.eps): `out = dv_splat(0)`; `out = 0` does not compile.
 *   - `if` and `?:` are written dv_select(x > 0, x, y), with & and | between comparisons; of the frame alone,
 *     frame.flag ? x : y (dv_select(frame.flag, x, y) does not compile).
 *     As a number, a comparison is the int 1 or 0, and goes into a dv_real before it is added or multiplied: dv_real m = x > 0.
 *     A line that compares is left to the compiler's vectors; one that does not has vectors of its own for AVX-512, in which exp
 *     and its family are faster. gcc needs --param=max-unswitch-insns=100 for frame.flag, which `dovetail build` passes.
 *   - `continue` and `break` end the element. `return` would leave the rest of a block without results: do not use it.
 *   - A helper is a macro: #define square(x) ((x) * (x)).
 *   - A name in both lists is written in place: (p, grad), (p), p = p - (dv_number)frame.rate * grad.
 * DV_ELEMENTWISE_SCALAR has the same arguments. Its line is compiled for float and double only, so all of C may be in it: `if`,
 * loops, functions (those of <tgmath.h>, such as pow, have both types).
 * Kernels may compute a * b + c with one rounding: x * x - y * y of equal numbers is not always 0 (dovetail build -X
 * -ffp-contract=off).
 * Each tensor is read and written by its own dtype (double to bf16 and f16 by way of float, as in PyTorch); f32, bf16, f16, f64,
 * i8, i16, i32, i64, u8 and bool may be mixed. The line is computed in double if a tensor is f64, i32 or i64, else in float:
 * integers are exact up to 2^53, and slower than in a loop of your own. A bool is 0 or 1, whatever its byte. A result that is an
 * integer is cut to its range. Inputs have the shape of the first result or broadcast to it, as a bias of rows does: sizes count,
 * not the contract's names. All tensors are contiguous; another one, which strided() or .takes lets through, is an error. An
 * output may be one of the inputs, but may not overlap an input in another way. */
#ifndef DOVETAIL_ELEMENTWISE_H
#define DOVETAIL_ELEMENTWISE_H

#ifdef __cplusplus
#error "dovetail_elementwise.h is for C: compile this file as C"
#endif
#include "dovetail_math.h"

/* ---- 16 floats at once, as they lie in memory ---------------------------------------------------------------------------- */

enum { DV_BLOCK = 64, DV__MAX_TENSORS = 8 };
#define DV_BLOCK_LOOP DV__VECTOR_LOOP(i, DV_BLOCK)
typedef float dv_lanes __attribute__((vector_size(64), aligned(4), may_alias)); /* 16 floats in memory, of any alignment */

#define DV__NON_TEMPORAL                                                                                                    \
    (1u << 31) /* flag beside the dtype of AVX-512's store: the store bypasses the caches; its address is a multiple of the \
                * bytes of 16 elements */

/* The functions that each instruction set implements: load 16 elements of f32, bf16 or f16 as float, store them, and exp(x -
 * minus) of a block, in which `to` may be `x`. Kernels get one such table (DV_ISA_VARIANTS); its functions become part of
 * the kernel. */
typedef struct dv_isa_functions {
    void (*load)(dv_lanes *to, const void *from, uint32_t dtype);
    void (*store)(void *to, const dv_lanes *from, uint32_t dtype);
    void (*exp)(float *to, const float *x, float minus);
} dv_isa_functions;

/* dv_block_load() loads, dv_block_store() stores, and dv_block_exp() computes exp(x - minus) of, a block of DV_BLOCK
 * elements. */
DV_INLINE void dv_block_load(const dv_isa_functions *isa, float *to, const uint16_t *from, uint32_t dtype)
{
    for (int i = 0; i < DV_BLOCK; i += 16)
        isa->load((dv_lanes *)(void *)(to + i), from + i, dtype);
}
DV_INLINE void dv_block_store(const dv_isa_functions *isa, uint16_t *to, const float *from, uint32_t dtype)
{
    for (int i = 0; i < DV_BLOCK; i += 16)
        isa->store(to + i, (const dv_lanes *)(const void *)(from + i), dtype);
}
DV_INLINE void dv_block_exp(const dv_isa_functions *isa, float *to, const float *x, float minus) { isa->exp(to, x, minus); }

/* The functions for the base instruction set, in C that the compiler vectorises. */
#define DV__FOR_EACH_LANE(TO, VALUE) \
    {                                \
        DV__VECTOR_LOOP(i, 16)       \
        (TO)[i] = VALUE;             \
    }
DV_INLINE void dv__load_base(dv_lanes *to, const void *from, uint32_t dtype)
{
    const uint16_t *const half = (const uint16_t *)from;
    if (dtype == DV_DTYPE_f32)
        memcpy(to, from, sizeof *to);
    else if (dtype == DV_DTYPE_bf16)
        DV__FOR_EACH_LANE((float *)to, dv_bf16_to_f32(half[i]))
    else
        DV__FOR_EACH_LANE((float *)to, dv_f16_to_f32(half[i]))
}
DV_INLINE void dv__store_base(void *to, const dv_lanes *from, uint32_t dtype)
{
    const float *const x = (const float *)from;
    if (dtype == DV_DTYPE_f32)
        memcpy(to, from, sizeof *from);
    else if (dtype == DV_DTYPE_bf16)
        DV__FOR_EACH_LANE((uint16_t *)to, dv_f32_to_bf16(x[i]))
    else
        DV__FOR_EACH_LANE((uint16_t *)to, dv_f32_to_f16(x[i]))
}
DV_INLINE void dv__exp_base(float *to, const float *x, float minus)
{
    DV_BLOCK_LOOP
    to[i] = dv_expf(x[i] - minus);
}
static const dv_isa_functions dv_isa_base DV__UNUSED = { dv__load_base, dv__store_base, dv__exp_base };

#ifdef DV_TARGET_AVX2
typedef float dv__f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t dv__u32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint16_t dv__u16x8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t dv__u16x16 __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint16_t dv__u16x32 __attribute__((vector_size(64), aligned(2), may_alias));

/* Loads 16 elements as float by the processor's instructions, which treat denormals as C does. Two vectors are copied one by
 * one: the compiler would copy them in smaller parts, for which a following load of whole vectors would have to wait. */
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
/* Rounds 8 floats to bf16, bit for bit as dv_f32_to_bf16() does. Returns 8 numbers of 32 bits, whose lower 16 bits are the bf16
 * and whose upper bits are 0. */
DV_TARGET_AVX2 DV_INLINE dv__u32x8 dv__bf16_in_u32_x8(dv__f32x8 x)
{
    const dv__u32x8 u = (dv__u32x8)x, high = u >> 16, nan = (dv__u32x8)(x != x);
    return (((u + 0x7fff + (high & 1)) >> 16) & ~nan) | ((high | 0x40) & nan);
}
DV_TARGET_AVX2 DV_INLINE void dv__store_avx2(void *to, const dv_lanes *from, uint32_t dtype)
{
    const dv__f32x8 *const x = (const dv__f32x8 *)from;
    for (int i = 0; i < 2; i++)
        if (dtype == DV_DTYPE_f16)
            __asm__("vcvtps2ph $0, %1, %0" : "=m"(((dv__u16x8 *)to)[i]) : "x"(x[i]));
        else if (dtype == DV_DTYPE_f32)
            ((dv__f32x8 *)to)[i] = x[i];
    if (dtype == DV_DTYPE_bf16) {
        dv__u16x16 both;
        __asm__("vpackusdw %2, %1, %0\n\tvpermq $0xd8, %0, %0"
            : "=x"(both)
            : "x"(dv__bf16_in_u32_x8(x[0])), "x"(dv__bf16_in_u32_x8(x[1])));
        *(dv__u16x16 *)to = both;
    }
}
static const dv_isa_functions dv_isa_avx2 DV__UNUSED = { dv__load_avx2, dv__store_avx2, dv__exp_base };

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
/* Rounds 16 floats to f16. The function after it rounds to bf16, whose instruction takes denormals for 0: vectors that have
 * some are rounded without it. */
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
        if (!DV__UNLIKELY(denormal))
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
#define DV__STORE_X16(ISA, BY_INSTRUCTION)                                                                                    \
    DV__X16 void dv__store_##ISA(void *to, const dv_lanes *from, uint32_t dtype)                                              \
    {                                                                                                                         \
        const dv_f32x16 x = (dv_f32x16)from[0];                                                                               \
        if (dtype == DV_DTYPE_f32)                                                                                            \
            *(dv_lanes *)to = (dv_lanes)x;                                                                                    \
        else if (dtype == DV_DTYPE_f16)                                                                                       \
            *(dv__u16x16 *)to = dv__f16_x16(x);                                                                               \
        else if (dtype == DV_DTYPE_bf16)                                                                                      \
            *(dv__u16x16 *)to = dv__bf16_x16(x, BY_INSTRUCTION);                                                              \
        else if (dtype == (DV_DTYPE_f32 | DV__NON_TEMPORAL))                                                                  \
            __asm__ volatile("vmovntps %1, (%0)" : : "r"(to), "v"(x) : "memory");                                             \
        else                                                                                                                  \
            __asm__ volatile("vmovntdq %1, (%0)"                                                                              \
                :                                                                                                             \
                : "r"(to), "v"(dtype == (DV_DTYPE_f16 | DV__NON_TEMPORAL) ? dv__f16_x16(x) : dv__bf16_x16(x, BY_INSTRUCTION)) \
                : "memory");                                                                                                  \
    }
DV__STORE_X16(avx512, false)
DV__STORE_X16(avx512bf16, true)
DV_TARGET_AVX512 static inline void dv__exp_avx512(float *to, const float *x, float minus)
{
    for (int i = 0; i < DV_BLOCK; i += 16)
        *(dv_lanes *)(void *)(to + i) = (dv_lanes)dv__expf_x16((dv_f32x16) * (const dv_lanes *)(const void *)(x + i) - minus);
}
static const dv_isa_functions dv_isa_avx512 DV__UNUSED = { dv__load_avx512, dv__store_avx512, dv__exp_avx512 };
static const dv_isa_functions dv_isa_avx512bf16 DV__UNUSED = { dv__load_avx512, dv__store_avx512bf16, dv__exp_avx512 };
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
 *     DV_INLINE int sigmoid_row(dv_context *ctx, const struct sigmoid *a, const dv_isa_functions *isa)
 *     {
 *         dv_for_each_block(isa, dv_numel(a->x), DV_OUT(a->out), DV_IN(a->x), NULL, step_f32, step_f64);
 *         return DV_OK;
 *     }
 *     DV_ISA_VARIANTS(struct sigmoid, sigmoid_row)
 *
 * `with` is passed to the step, for parameters or sums. Without a step for float, all is computed in double. */
#define DV_OUT(...) (dv_tensor *const[]){ __VA_ARGS__ }, (int)(sizeof((dv_tensor *const[]){ __VA_ARGS__ }) / sizeof(void *))
#define DV_IN(...) \
    (const dv_tensor *const[]){ __VA_ARGS__ }, (int)(sizeof((const dv_tensor *const[]){ __VA_ARGS__ }) / sizeof(void *))
typedef void (*dv_step_f32)(float *const *out, const float *const *in, void *with);
typedef void (*dv_step_f64)(double *const *out, const double *const *in, void *with);

/* The elements of a block, as float or as double. */
/* clang-format off */
typedef union dv__block_buffer { float f32[DV_BLOCK]; double f64[DV_BLOCK]; } dv__block_buffer;
/* clang-format on */
typedef struct dv__loop_tensor { /* one input or result of a loop */
    char *data;
    uint32_t dtype;
    int item_size;
    bool is_compute_type, is_16_bit, is_scalar; /* true if the dtype is the one that the loop computes in; true for 16 bits, which
                                                 * dv_isa_functions convert; true for a tensor of one element */
} dv__loop_tensor;
/* dv__block_read() converts a block of another dtype to float or double, and dv__block_write() converts it back: to an
 * integer of its range, 0 for NaN. Only n elements of a result are written. f64, i32 and i64 are computed in double, and so
 * is f32 beside them. */
/* clang-format off */
#define DV__SMALL_INTEGERS(X) X(i8, int8_t) X(i16, int16_t) X(u8, uint8_t)
#define DV__WIDEN(DTYPE, TYPE)  case DV_DTYPE_##DTYPE: DV_BLOCK_LOOP whole[i] = ((const TYPE *)data)[i]; break;
#define DV__NARROW(DTYPE, TYPE) case DV_DTYPE_##DTYPE: DV_BLOCK_LOOP ((TYPE *)to)[i] = (TYPE)whole[i]; break;
#define DV__AS_DOUBLE(DTYPE, TYPE) case DV_DTYPE_##DTYPE: DV_BLOCK_LOOP to->f64[i] = (double)((const TYPE *)data)[i]; return;
/* clang-format on */
DV__NOINLINE static void dv__block_read(dv__block_buffer *to, bool f64, const void *data, uint32_t dtype)
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
    default: memset(whole, 0, sizeof whole); /* dtypes that no loop has */
    }
    if (f64) {
        DV_BLOCK_LOOP
        to->f64[i] = (double)whole[i];
    } else {
        DV_BLOCK_LOOP
        to->f32[i] = (float)whole[i];
    }
}
#define DV__SATURATE(FROM, TYPE)                                                                     \
    DV_BLOCK_LOOP                                                                                    \
    {                                                                                                \
        const TYPE x = (FROM)[i], low = x > (TYPE)least ? x : (TYPE)least;                           \
        const int32_t all = (int32_t)(low < (TYPE)most ? low : (TYPE)most), one = (x < 0) | (x > 0); \
        whole[i] = x == x ? (truth ? one : all) : truth;                                             \
    }
DV__NOINLINE static void dv__block_write(
    const dv__loop_tensor *side, int64_t at, int64_t n, const dv__block_buffer *from, bool f64)
{
    const bool truth = side->dtype == DV_DTYPE_bool, i8 = side->dtype == DV_DTYPE_i8, i16 = side->dtype == DV_DTYPE_i16;
    const int32_t least = i8 ? INT8_MIN : i16 ? INT16_MIN : side->item_size == 1 ? 0 : INT32_MIN;
    const int32_t most = i8 ? INT8_MAX : i16 ? INT16_MAX : side->item_size == 1 ? UINT8_MAX : INT32_MAX;
    dv__block_buffer part;
    void *const data = side->data + at * side->item_size, *const to = n == DV_BLOCK ? data : &part;
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
            DV__SATURATE(from->f64, double)
        else
            DV__SATURATE(from->f32, float)
    }
    switch (side->dtype) {
        DV__SMALL_INTEGERS(DV__NARROW)
        DV__NARROW(bool, uint8_t)
        DV__NARROW(i32, int32_t)
    default: break;
    }
    if (n < DV_BLOCK)
        memcpy(data, to, (size_t)(n * side->item_size));
}

DV__NOINLINE static bool dv__needs_f64(const dv_tensor *const *t, int n)
{
    for (int k = 0; k < n; k++) {
        const uint32_t dtype = dv_dtype_key(t[k]->dtype);
        if (dtype == DV_DTYPE_f64 || dtype == DV_DTYPE_i32 || dtype == DV_DTYPE_i64)
            return true;
    }
    return false;
}
DV__NOINLINE static void dv__loop_tensors_init(dv__loop_tensor *to, const dv_tensor *const *t, int n, bool wide)
{
    for (int k = 0; k < n; k++) {
        to[k].data = (char *)t[k]->data;
        to[k].dtype = dv_dtype_key(t[k]->dtype);
        to[k].item_size = t[k]->dtype.bits / 8;
        to[k].is_compute_type = to[k].dtype == (uint32_t)(wide ? DV_DTYPE_f64 : DV_DTYPE_f32);
        to[k].is_16_bit = !wide && (to[k].dtype == DV_DTYPE_bf16 || to[k].dtype == DV_DTYPE_f16);
        to[k].is_scalar = true;
        for (int32_t i = 0; i < t[k]->ndim && to[k].is_scalar; i++)
            to[k].is_scalar = t[k]->shape[i] == 1;
    }
}
/* Copies `count` elements from element `at` on, unchanged, and fills the rest of the block with 0. */
DV__NOINLINE static void dv__block_copy(void *to, const dv__loop_tensor *side, int64_t at, int64_t count)
{
    memset(to, 0, (size_t)(DV_BLOCK * side->item_size));
    memcpy(to, side->data + at * side->item_size, (size_t)(count * side->item_size));
}
/* dv__block_fetch() converts an input's block from element `at` on to the loop's type, and dv__block_write_back() converts a
 * result's block back. Blocks that the step can use in place are left out. */
DV_INLINE void dv__block_fetch(
    const dv_isa_functions *isa, dv__block_buffer *to, const dv__loop_tensor *side, int64_t at, int64_t count, bool wide)
{
    dv__block_buffer part;
    const void *data = side->data + at * side->item_size;
    if (count < DV_BLOCK) {
        dv__block_buffer *const copy = side->is_compute_type ? to : &part;
        dv__block_copy(copy, side, at, count);
        data = copy;
    }
    if (side->is_16_bit)
        dv_block_load(isa, to->f32, (const uint16_t *)data, side->dtype);
    else if (!side->is_compute_type)
        dv__block_read(to, wide, data, side->dtype);
}
DV_INLINE void dv__block_write_back(
    const dv_isa_functions *isa, const dv__block_buffer *from, const dv__loop_tensor *side, int64_t at, int64_t count, bool wide)
{
    void *const data = side->data + at * side->item_size;
    uint16_t part[DV_BLOCK];
    const void *rest = from;
    if (side->is_16_bit) {
        dv_block_store(isa, count == DV_BLOCK ? (uint16_t *)data : part, from->f32, side->dtype);
        rest = part;
    }
    if (!side->is_16_bit && !side->is_compute_type)
        dv__block_write(side, at, count, from, wide);
    else if (count < DV_BLOCK)
        memcpy(data, rest, (size_t)(count * side->item_size));
}
DV__NOINLINE static void dv__block_fill(
    dv__block_buffer *to, const dv__loop_tensor *side, bool wide) /* fills a block with the single element of an input */
{
    double x;
    dv_load_f64(&x, side->data, 0, 1, side->dtype);
    for (int i = 0; i < DV_BLOCK; i++)
        if (wide)
            to->f64[i] = x;
        else
            to->f32[i] = (float)x;
}

/* Returns how many of the n elements a loop can read and write where they lie in the tensors, without conversion: n rounded down
 * to whole blocks if each tensor has the dtype that the loop computes in, or is an input of one element; else 0. */
DV__NOINLINE static int64_t dv__count_direct_elements(
    const dv__loop_tensor *in, int nin, const dv__loop_tensor *out, int nout, int64_t n)
{
    bool all = n > 1;
    for (int k = 0; k < nin; k++)
        all = all && (in[k].is_compute_type || in[k].is_scalar);
    for (int k = 0; k < nout; k++)
        all = all && out[k].is_compute_type;
    return all ? n / DV_BLOCK * DV_BLOCK : 0;
}

DV_INLINE void dv_for_each_block(const dv_isa_functions *isa, int64_t n, dv_tensor *const *out, int nout,
    const dv_tensor *const *in, int nin, void *with, dv_step_f32 f32, dv_step_f64 f64)
{
    _Alignas(64) dv__block_buffer
        rest[2 * DV__MAX_TENSORS]; /* adjacent buffers, so that no two of a step are 4096 bytes apart, which is slow */
    dv__loop_tensor from[DV__MAX_TENSORS], to[DV__MAX_TENSORS];
    const void *x[DV__MAX_TENSORS] = { NULL };
    void *y[DV__MAX_TENSORS] = { NULL };
    const dv_tensor *const *const results = (const dv_tensor *const *)out;
    const bool wide = f64 && (!f32 || dv__needs_f64(in, nin) || dv__needs_f64(results, nout));
    dv__loop_tensors_init(from, in, nin, wide);
    dv__loop_tensors_init(to, results, nout, wide);
    for (int k = 0; k < nin; k++)
        if (n > 1 && from[k].is_scalar)
            dv__block_fill(&rest[k], &from[k], wide);
    const size_t number_size = wide ? sizeof(double) : sizeof(float);
    const int64_t direct_elements = dv__count_direct_elements(from, nin, to, nout, n);
    int64_t at = 0;
    for (int k = 0; k < nin; k++)
        x[k] = from[k].is_scalar ? (const void *)&rest[k] : (const void *)from[k].data;
    for (int k = 0; k < nout; k++)
        y[k] = to[k].data;
    for (; at < direct_elements; at += DV_BLOCK) {
        if (wide)
            f64((double *const *)y, (const double *const *)x, with);
        else
            f32((float *const *)y, (const float *const *)x, with);
        for (int k = 0; k < nin; k++)
            x[k] = (const char *)x[k] + (from[k].is_scalar ? 0 : DV_BLOCK * number_size);
        for (int k = 0; k < nout; k++)
            y[k] = (char *)y[k] + DV_BLOCK * number_size;
    }
    for (; at < n; at += DV_BLOCK) {
        const int64_t count = n - at < DV_BLOCK ? n - at : DV_BLOCK;
        for (int k = 0; k < nin; k++) {
            const bool direct = from[k].is_compute_type && count == DV_BLOCK && !from[k].is_scalar;
            x[k] = direct ? (const void *)(from[k].data + at * from[k].item_size) : (const void *)&rest[k];
            if (!direct && (n == 1 || !from[k].is_scalar))
                dv__block_fetch(isa, &rest[k], &from[k], at, count, wide);
        }
        for (int k = 0; k < nout; k++)
            y[k] = to[k].is_compute_type && count == DV_BLOCK ? (void *)(to[k].data + at * to[k].item_size)
                                                              : (void *)&rest[nin + k];
        if (wide)
            f64((double *const *)y, (const double *const *)x, with);
        else
            f32((float *const *)y, (const float *const *)x, with);
        for (int k = 0; k < nout; k++)
            if (!to[k].is_compute_type || count < DV_BLOCK)
                dv__block_write_back(isa, &rest[nin + k], &to[k], at, count, wide);
    }
}

/* ---- Lines with vectors of 16 floats ------------------------------------------------------------------------------------- */

#ifdef DV_TARGET_AVX512
/* A position in a tensor's elements, or in a block. is_non_temporal: all results together are larger than the last-level
 * cache. Then results bypass the caches, and inputs are prefetched: far enough ahead, and beyond the next pages, where the
 * processor's own prefetcher does not look. */
typedef struct dv__element_cursor {
    char *at;
    int64_t item_size; /* bytes from one element to the next; 0: the same 16 elements are read again and again */
    uint32_t dtype;
    bool has_bf16_store; /* true if the processor has an instruction that converts to bf16 */
    bool is_non_temporal;
} dv__element_cursor;
typedef void (*dv__step_x16)(const dv__element_cursor *out, const dv__element_cursor *in, int64_t n, void *with);

/* dv__get_x16() loads, and dv__put_x16() stores, 32 elements from element i on. Each call tests the dtype: a loop for each
 * dtype would be much code. */
DV__X16 void dv__get_x16(dv_f32x16 *x, dv__element_cursor from, int64_t i)
{
    enum { PREFETCH_BYTES = 16384 };
    dv_lanes first, second;
    const char *const at = from.at + i * from.item_size, *const next = at + 16 * from.item_size;
    __asm__("" : "+r"(from.dtype));
    if (DV__UNLIKELY(from.is_non_temporal))
        __builtin_prefetch(at + PREFETCH_BYTES),
            __builtin_prefetch(from.item_size < 4 ? at + PREFETCH_BYTES : next + PREFETCH_BYTES);
    dv__load_avx512(&first, at, from.dtype);
    dv__load_avx512(&second, next, from.dtype);
    x[0] = (dv_f32x16)first, x[1] = (dv_f32x16)second;
}
DV__X16 void dv__put_x16(dv__element_cursor to, int64_t i, const dv_f32x16 *x)
{
    char *const at = to.at + i * to.item_size;
    dv__u16x32 both;
    __asm__("" : "+r"(to.dtype));
    if (to.dtype == DV_DTYPE_f32) {
        for (int k = 0; k < 2; k++)
            if (DV__UNLIKELY(to.is_non_temporal))
                __asm__("vmovntps %1, %0" : "=m"(((dv_lanes *)(void *)at)[k]) : "v"(x[k]));
            else
                ((dv_lanes *)(void *)at)[k] = (dv_lanes)x[k];
        return;
    }
    if (to.dtype == DV_DTYPE_f16) {
        both = dv__both_x16(dv__f16_x16(x[0]), dv__f16_x16(x[1]));
    } else {
        uint32_t denormal = 1;
        if (to.has_bf16_store)
            __asm__("vfpclassps $0x20, %1, %%k1\n\tvfpclassps $0x20, %2, %%k2\n\tkorw %%k1, %%k2, %%k1\n\tkmovw %%k1, %0"
                : "=r"(denormal)
                : "v"(x[0]), "v"(x[1])
                : "k1", "k2");
        if (!denormal)
            __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(x[0]), "v"(x[1]));
        else
            both = dv__both_x16(dv__bf16_x16(x[0], false), dv__bf16_x16(x[1], false));
    }
    if (DV__UNLIKELY(to.is_non_temporal))
        __asm__("vmovntdq %1, %0" : "=m"(*(dv__u16x32 *)(void *)at) : "v"(both));
    else
        *(dv__u16x32 *)(void *)at = both;
}

/* A loop over all elements, with the inputs first and then the results. Blocks of integers are converted in `rest`, at most
 * DV__MAX_INT_BLOCKS at once, and so are blocks that cannot be used in place. */
enum { DV__MAX_INT_BLOCKS = 4 };
typedef struct dv__x16_loop {
    int nin, n;
    bool has_bf16_store, is_non_temporal; /* copied to each of `cells` */
    bool is_one_pass;                     /* true if no tensor has integers, so that all blocks are computed in one pass */
    dv__loop_tensor side[2 * DV__MAX_TENSORS];
    dv__element_cursor cells[2 * DV__MAX_TENSORS];
    _Alignas(64) float rest[2 * DV__MAX_TENSORS][(DV__MAX_INT_BLOCKS + 1) *
        DV_BLOCK]; /* buffers of which no two are 4096 bytes apart, which is slow */
} dv__x16_loop;
DV__NOINLINE static void dv__x16_loop_begin(dv__x16_loop *run, const dv_context *ctx, bool bf16, int64_t elements,
    dv_tensor *const *out, int nout, const dv_tensor *const *in, int nin)
{
    run->has_bf16_store = bf16;
    run->nin = nin;
    run->n = nin + nout;
    run->is_one_pass = true;
    run->is_non_temporal = ctx->flags & DV_CTX_EXCEEDS_CACHE;
    dv__loop_tensors_init(run->side, in, nin, false);
    dv__loop_tensors_init(run->side + nin, (const dv_tensor *const *)out, nout, false);
    for (int k = 0; k < run->n; k++) {
        dv__loop_tensor *const side = &run->side[k];
        side->is_scalar = side->is_scalar && elements > 1 && k < nin;
        if (side->is_scalar)
            dv__block_fill((dv__block_buffer *)(void *)run->rest[k], side, false);
        else
            run->is_one_pass = run->is_one_pass && (side->is_compute_type || side->is_16_bit);
    }
}
/* Sets run->cells for the next elements, from `at` on, and returns their number, at most `left`. */
DV__NOINLINE static int64_t dv__x16_loop_next(dv__x16_loop *run, int64_t at, int64_t left)
{
    const int64_t most = run->is_one_pass || left < DV__MAX_INT_BLOCKS * DV_BLOCK ? left : DV__MAX_INT_BLOCKS * DV_BLOCK;
    const int64_t count = left < DV_BLOCK ? left : most / DV_BLOCK * DV_BLOCK;
    for (int k = 0; k < run->n; k++) {
        const dv__loop_tensor *const side = &run->side[k];
        const bool there = count >= DV_BLOCK, plain = side->is_compute_type || side->is_16_bit;
        dv__element_cursor *const cells = &run->cells[k];
        dv__block_buffer part, *const copy = plain ? (dv__block_buffer *)(void *)run->rest[k] : &part;
        const char *data = side->data + at * side->item_size;
        *cells = (dv__element_cursor){ (char *)&run->rest[k], side->is_scalar ? 0 : sizeof(float), DV_DTYPE_f32,
            run->has_bf16_store, false };
        if (side->is_scalar)
            continue;
        if (!there && k < run->nin) {
            dv__block_copy(copy, side, at, count);
            data = (const char *)copy;
        }
        if (plain) {
            cells->item_size = side->item_size, cells->dtype = side->dtype;
            if (there) {
                cells->at = side->data + at * side->item_size;
                cells->is_non_temporal = run->is_non_temporal && (k < run->nin || (uintptr_t)cells->at % 64 == 0);
            }
        } else {
            for (int64_t i = 0; i < count && k < run->nin; i += DV_BLOCK)
                dv__block_read((dv__block_buffer *)(void *)(run->rest[k] + i), false, data + i * side->item_size, side->dtype);
        }
    }
    return count;
}
DV__NOINLINE static void dv__x16_loop_store(
    dv__x16_loop *run, int64_t at, int64_t count) /* copies the results in run->rest to their tensors */
{
    for (int k = run->nin; k < run->n; k++) {
        const dv__loop_tensor *const side = &run->side[k];
        void *const data = side->data + at * side->item_size;
        if (run->cells[k].at != (char *)&run->rest[k])
            continue;
        if (side->is_compute_type || side->is_16_bit)
            memcpy(data, &run->rest[k], (size_t)(count * side->item_size));
        else
            for (int64_t i = 0; i < count; i += DV_BLOCK)
                dv__block_write(side, at + i, count - i < DV_BLOCK ? count - i : DV_BLOCK,
                    (const dv__block_buffer *)(const void *)(run->rest[k] + i), false);
    }
}
/* Runs a step for blocks of float over elements that run->cells describe. */
DV__X16 void dv__step_blocks(dv__x16_loop *run, int nout, int nin, int64_t n, void *with, dv_step_f32 f32)
{
    _Alignas(64) float own[2 * DV__MAX_TENSORS][DV_BLOCK];
    float *block[2 * DV__MAX_TENSORS];
    for (int64_t at = 0; at < n; at += DV_BLOCK) {
        for (int k = 0; k < nin + nout; k++) {
            const bool there = run->cells[k].dtype == DV_DTYPE_f32 && !run->cells[k].is_non_temporal;
            block[k] = there ? (float *)(void *)(run->cells[k].at + at * run->cells[k].item_size) : own[k];
            for (int i = 0; i < DV_BLOCK && k < nin && !there; i += 32)
                dv__get_x16((dv_f32x16 *)(own[k] + i), run->cells[k], at + i);
        }
        f32(block + nin, (const float *const *)block, with);
        for (int k = nin; k < nin + nout; k++)
            for (int i = 0; i < DV_BLOCK && block[k] == own[k]; i += 32)
                dv__put_x16(run->cells[k], at + i, (const dv_f32x16 *)(own[k] + i));
    }
}
/* Does as dv_for_each_block(), in float, with a step for vectors of 16, or with a step for blocks if x16 is NULL. */
DV__X16 void dv__blocks_x16(const dv_context *ctx, bool bf16, int64_t n, dv_tensor *const *out, int nout,
    const dv_tensor *const *in, int nin, void *with, dv__step_x16 x16, dv_step_f32 f32)
{
    dv__x16_loop run;
    dv__x16_loop_begin(&run, ctx, bf16, n, out, nout, in, nin);
    for (int64_t at = 0, count; at < n; at += count) {
        count = dv__x16_loop_next(&run, at, n - at);
        const int64_t blocks = count < DV_BLOCK ? DV_BLOCK : count;
        if (x16)
            x16(run.cells + nin, run.cells, blocks, with);
        else
            dv__step_blocks(&run, nout, nin, blocks, with, f32);
        dv__x16_loop_store(&run, at, count);
    }
    if (run.is_non_temporal)
        __builtin_ia32_sfence(); /* from here on other threads see the results that bypassed the caches */
}
#endif

/* One loop for all kernels of DV_ELEMENTWISE of an instruction set, which calls the kernel's step for each block: a loop in
 * each kernel would double the compile time. */
typedef void (*dv__blocks_fn)(int64_t n, dv_tensor *const *out, int nout, const dv_tensor *const *in, int nin, void *with,
    dv_step_f32 f32, dv_step_f64 f64);
#define DV__BLOCKS_OF(TARGET, ISA)                                                                                           \
    TARGET DV__NOINLINE static void dv__blocks_##ISA(int64_t n, dv_tensor *const *out, int nout, const dv_tensor *const *in, \
        int nin, void *with, dv_step_f32 f32, dv_step_f64 f64)                                                               \
    {                                                                                                                        \
        dv_for_each_block(&dv_isa_##ISA, n, out, nout, in, nin, with, f32, f64);                                             \
    }
DV__BLOCKS_OF(, base)
#ifdef DV_TARGET_AVX2
DV__BLOCKS_OF(DV_TARGET_AVX2, avx2)
#endif

/* ---- Kernels for each instruction set ---------------------------------------------------------------------------------------
 */

/* From a body that handles all its dtypes itself:
 *
 *     DV_INLINE int swiglu_row(dv_context *ctx, const struct swiglu *a, const dv_isa_functions *isa) { ... }
 *     DV_ISA_VARIANTS(struct swiglu, swiglu_row)
 *     ... .kernels = DV_KERNELS(DV_ISA_KERNELS(struct swiglu, swiglu_row, "f32 bf16 f16", .split = 4096))
 *
 * Before DV_ISA_KERNELS may stand DV_BF16_KERNEL(struct swiglu, swiglu_row, .split = 4096), the kernel for bf16 of processors
 * with avx512bf16. DV_ISA_VARIANTS_LOOP is for a body that runs its loop itself, by dv_parallel_scratch(): it gets the loop's
 * chunk, made for the same instruction set.
 *
 *     DV_INLINE int lines(void *arg, int64_t begin, int64_t end, void *scratch, const dv_isa_functions *isa) { ... }
 *     static int softmax_row(dv_context *ctx, const struct softmax *a, dv_scratch_fn chunk)
 *     {
 *         return dv_parallel_scratch(ctx, 0, n, 1, bytes, chunk, &x);
 *     }
 *     DV_ISA_VARIANTS_LOOP(struct softmax, softmax_row, lines)
 */
#define DV__ISA_LOOP(ISA, TARGET, FRAME, BODY, CHUNK)                                     \
    TARGET static int CHUNK##_##ISA(void *arg, int64_t begin, int64_t end, void *scratch) \
    {                                                                                     \
        return CHUNK(arg, begin, end, scratch, &dv_isa_##ISA);                            \
    }                                                                                     \
    DV__UNUSED static int BODY##_##ISA(dv_context *ctx, const FRAME *a) { return BODY(ctx, a, CHUNK##_##ISA); }
#define DV__INNER(ISA, NAME) , NAME##_##ISA
#define DV__ISA_OF(ISA, FRAME, BODY, ...)                               \
    DV__UNUSED static int BODY##_##ISA(dv_context *ctx, const FRAME *a) \
    {                                                                   \
        return BODY(ctx, a DV__MAP(DV__INNER, ISA, __VA_ARGS__));       \
    }
#define DV__ISA_KERNEL(ISA, TARGET, FRAME, BODY) \
    DV__UNUSED TARGET static int BODY##_##ISA(dv_context *ctx, const FRAME *a) { return BODY(ctx, a, &dv_isa_##ISA); }
#ifdef DV_TARGET_AVX2
#define DV_ISA_VARIANTS(FRAME, BODY)                          \
    DV__ISA_KERNEL(avx512bf16, DV_TARGET_AVX512, FRAME, BODY) \
    DV__ISA_KERNEL(avx512, DV_TARGET_AVX512, FRAME, BODY)     \
    DV__ISA_KERNEL(avx2, DV_TARGET_AVX2, FRAME, BODY)         \
    DV__ISA_KERNEL(base, , FRAME, BODY)
#define DV_ISA_VARIANTS_LOOP(FRAME, BODY, CHUNK)                   \
    DV__ISA_LOOP(avx512bf16, DV_TARGET_AVX512, FRAME, BODY, CHUNK) \
    DV__ISA_LOOP(avx512, DV_TARGET_AVX512, FRAME, BODY, CHUNK)     \
    DV__ISA_LOOP(avx2, DV_TARGET_AVX2, FRAME, BODY, CHUNK)         \
    DV__ISA_LOOP(base, , FRAME, BODY, CHUNK)
/* Kernels whose BODY gets other functions of each instruction set: DV_ISA_VARIANTS_OF(struct f, body, row, other) passes
 * row_avx512 and other_avx512, and so on. */
#define DV_ISA_VARIANTS_OF(FRAME, BODY, ...)         \
    DV__ISA_OF(avx512bf16, FRAME, BODY, __VA_ARGS__) \
    DV__ISA_OF(avx512, FRAME, BODY, __VA_ARGS__)     \
    DV__ISA_OF(avx2, FRAME, BODY, __VA_ARGS__)       \
    DV__ISA_OF(base, FRAME, BODY, __VA_ARGS__)
/* The kernel for bf16 only, with a comma after it: DV_KERNELS(DV_BF16_KERNEL(...) DV_ISA_KERNELS(...)). */
#define DV_BF16_KERNEL(FRAME, BODY, ...) DV_KERNEL(FRAME, "cpu", "bf16", BODY##_avx512bf16, .isa = "avx512bf16", __VA_ARGS__),
#define DV_ISA_KERNELS(FRAME, BODY, DTYPES, ...)                                  \
    DV_KERNEL(FRAME, "cpu", DTYPES, BODY##_avx512, .isa = "avx512", __VA_ARGS__), \
        DV_KERNEL(FRAME, "cpu", DTYPES, BODY##_avx2, .isa = "avx2", __VA_ARGS__), \
        DV_KERNEL(FRAME, "cpu", DTYPES, BODY##_base, __VA_ARGS__)
#else
#define DV_ISA_VARIANTS(FRAME, BODY) DV__ISA_KERNEL(base, , FRAME, BODY)
#define DV_ISA_VARIANTS_LOOP(FRAME, BODY, CHUNK) DV__ISA_LOOP(base, , FRAME, BODY, CHUNK)
#define DV_ISA_VARIANTS_OF(FRAME, BODY, ...) DV__ISA_OF(base, FRAME, BODY, __VA_ARGS__)
#define DV_BF16_KERNEL(FRAME, BODY, ...)
#define DV_ISA_KERNELS(FRAME, BODY, DTYPES, ...) DV_KERNEL(FRAME, "cpu", DTYPES, BODY##_base, __VA_ARGS__)
#endif

/* ---- One line for all kernels -----------------------------------------------------------------------------------------------
 */

#define DV__IN_NUMBER(x, NAME) dv__in_##NAME,
#define DV__OUT_NUMBER(x, NAME) dv__out_##NAME,
/* A name may be in both lists: the result then begins with the input's value, in a scope inside the input's. */
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
#define DV__OUT_TO(x, NAME) \
    dv_number *const dv__to_##NAME = dv__is_aliased ? dv__staged[dv__out_##NAME] : dv__out[dv__out_##NAME];
#define DV__IN_PAIR(x, NAME)      \
    dv_f32x16 dv__from_##NAME[2]; \
    dv__get_x16(dv__from_##NAME, dv__all_##NAME, dv__at);
#define DV__OUT_PAIR(x, NAME) dv_f32x16 dv__to_##NAME[2];
#define DV__OUT_PUT(x, NAME) dv__put_x16(dv__out[dv__out_##NAME], dv__at, dv__to_##NAME);
#define DV__FROM_f32(NAME) dv__from_##NAME
#define DV__FROM_f64(NAME) dv__from_##NAME
#define DV__FROM_x16(NAME) dv__all_##NAME
#define DV__IN_FROM(TYPE, NAME) __typeof__(*dv__in) DV__FROM_##TYPE(NAME) = dv__in[dv__in_##NAME];
#define DV__OUT_COPY(x, NAME) memcpy(dv__out[dv__out_##NAME], dv__staged[dv__out_##NAME], sizeof dv__staged[0]);
#define DV__OF_FRAME(x, NAME) x->NAME,
/* clang-format off */
#define DV__MAP_OF(...) DV__MAP(__VA_ARGS__)
/* clang-format on */

/* dv_splat(x) in a line: x in every element, in the type that the line is compiled for. */
#define dv_splat(x) DV__NUMBER(dv_real, x)

/* Finds name number k, from 0, of a list "(x, y, z)". *name: its first character. Returns its length. */
static inline int dv__elementwise_get_name(const char *names, int k, const char **name)
{
    for (names++; k; k--)
        names += strcspn(names, ",") + 1;
    *name = names + strspn(names, " ");
    return (int)strcspn(*name, ", )");
}
static inline bool dv__is_elementwise_dtype(uint32_t dtype)
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
static inline bool dv__is_contiguous(const dv_tensor *t)
{
    bool is_so = true;
    int64_t stride = 1;
    for (int32_t i = t->ndim; i-- > 0; stride *= t->shape[i])
        is_so = is_so && (t->strides[i] == stride || t->shape[i] <= 1);
    return is_so || stride == 0;
}
/* Fails if a tensor is None, has an unsupported dtype or layout, or a shape that the line cannot compute. A contract may accept
 * such tensors. */
DV__NOINLINE static int dv__elementwise_check_tensors(dv_context *ctx, const dv_tensor *const *out, int nout, const char *outs,
    const dv_tensor *const *in, int nin, const char *ins)
{
    static const char *const codes[] = { "i", "u", "f", "opaque", "bf", "c", "bool" }; /* DLPack's DLDataTypeCode */
    const int64_t n = out[0] ? dv_numel(out[0]) : 0;
    for (int i = 0; i < nout + nin; i++) {
        const bool result = i < nout;
        const dv_tensor *const t = result ? out[i] : in[i - nout];
        const bool fits = t && (result ? dv_numel(t) == n : dv_numel(t) == 1 || (out[0] && dv__can_broadcast(t, out[0])));
        if (fits && dv__is_elementwise_dtype(dv_dtype_key(t->dtype)) && dv__is_contiguous(t))
            continue;
        const char *name;
        const int size = dv__elementwise_get_name(result ? outs : ins, result ? i : i - nout, &name);
        if (!t)
            return dv_error(ctx, DV_EINVAL, "an elementwise kernel needs '%.*s', which is None", size, name);
        if (!fits && result)
            return dv_error(ctx, DV_EINVAL,
                "an elementwise kernel needs as many elements of '%.*s' as of its first result: %lld, found %lld", size, name,
                (long long)n, (long long)dv_numel(t));
        if (!fits) {
            char expected[256], found[256];
            dv__print_shape(out[0], expected, sizeof expected);
            dv__print_shape(t, found, sizeof found);
            return dv_error(ctx, DV_EINVAL,
                "an elementwise kernel: '%.*s' has the shape %s, which does not broadcast to %s, the shape of the first result "
                "(with .split, of "
                "a slice of it: name in the contract the dims that both have)",
                size, name, found, expected);
        }
        if (dv__is_elementwise_dtype(dv_dtype_key(t->dtype)))
            return dv_error(ctx, DV_EINVAL,
                "an elementwise kernel needs a contiguous '%.*s', found other strides: strided() and last_contiguous() in the "
                "contract, "
                "or .takes, allow them",
                size, name);
        return dv_error(ctx, DV_EINVAL, "an elementwise kernel needs '%.*s' of a number type or bool, found %s%d", size, name,
            t->dtype.code < 7 ? codes[t->dtype.code] : "another type of bits: ", t->dtype.bits);
    }
    return DV_OK;
}

/* True if each input has as many elements as the result, or one: the loops over blocks take no others. */
DV__NOINLINE static bool dv__is_plain(const dv_tensor *out, const dv_tensor *const *in, int nin)
{
    const int64_t n = dv_numel(out);
    bool is_so = true;
    for (int i = 0; i < nin && is_so; i++)
        is_so = dv_numel(in[i]) == n || dv_numel(in[i]) == 1;
    return is_so;
}

/* DV__COMPARES(...) is true if the line, with its macros expanded, has a comparison, `!`, `~`, or braces. With vectors these
 * do not mean what they mean with numbers (x > 0 would be 0 or -1, (dv_real){ 1 } one 1). So such a line is compiled for
 * float. */
#define DV__LINE_TEXT(...) #__VA_ARGS__
#define DV__HAS_ANGLES(...) (__builtin_strstr(DV__LINE_TEXT(__VA_ARGS__), "dv__large_angle") != 0) /* dv_sin, dv_cos */
#define DV__COMPARES(...) \
    (__builtin_strpbrk(DV__LINE_TEXT(__VA_ARGS__), "<>!~{") || __builtin_strstr(DV__LINE_TEXT(__VA_ARGS__), "=="))

/* Computes a line once for each element of a block. */
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
/* Computes a line in two passes if it has sines or cosines. The first pass records which elements have a large angle; the
 * second computes those elements only. So an element's bits do not depend on its neighbours. Results that share memory with
 * inputs are staged until the end. */
#define DV__PASSES(TYPE, LOOP, INS, OUTS, ...)                                                                                  \
        bool dv__is_aliased = false;                                                                                                 \
        for (int k = 0; DV__HAS_ANGLES(__VA_ARGS__) && k < (int)dv__outs * (int)dv__ins; k++)                                   \
            dv__is_aliased |= (const void *)dv__out[k % (int)dv__outs] == (const void *)dv__in[k / (int)dv__outs];                   \
        dv_number dv__staged[dv__outs][DV_BLOCK];                                                                                 \
        int32_t dv__large_angle_at[DV_BLOCK], dv__any = 0;                                                                              \
        DV__MAP_OF(DV__OUT_TO, , DV__UNPAREN OUTS)                                                                              \
        (void)dv__staged;                                                                                                         \
        DV__PASS(TYPE, LOOP, int32_t dv__large_angle = 0;, dv__large_angle_at[dv__i] = dv__large_angle; dv__any |= dv__large_angle;, INS, OUTS, __VA_ARGS__)    \
        if (dv__any) {                                                                                                          \
            DV__PASS(TYPE, for (int dv__i = 0; dv__i < DV_BLOCK; dv__i++), if (!dv__large_angle_at[dv__i]) continue;, , INS, OUTS,      \
                __VA_ARGS__)                                                                                                    \
        }                                                                                                                       \
        if (dv__is_aliased) { DV__MAP_OF(DV__OUT_COPY, , DV__UNPAREN OUTS) }
#define DV__PAIRS(TYPE, LOOP, INS, OUTS, ...)                                                                                   \
        LOOP {                                                                                                                  \
            DV__MAP_OF(DV__IN_PAIR, , DV__UNPAREN INS)                                                                          \
            DV__MAP_OF(DV__OUT_PAIR, , DV__UNPAREN OUTS)                                                                        \
            { enum { dv__i = 0 }; DV__PASS(TYPE, , , , INS, OUTS, __VA_ARGS__) }                                                \
            { enum { dv__i = 1 }; DV__PASS(TYPE, , , , INS, OUTS, __VA_ARGS__) }                                                \
            DV__MAP_OF(DV__OUT_PUT, , DV__UNPAREN OUTS)                                                                         \
        }
/* Defines the step for one type. REAL: the type that the line computes with; NUMBER: the type of one number; LOOP: iterates
 * over the elements. */
#define DV__STEP(TARGET, STEP, PARAMETERS, TYPE, NUMBER, REAL, LOOP, PASSES, FRAME, INS, OUTS, ...)                             \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wshadow\"")                                               \
    TARGET DV_INLINE void STEP PARAMETERS                                                                                       \
    {                                                                                                                           \
        typedef REAL dv_real DV__UNUSED;                                                                                        \
        typedef NUMBER dv_number DV__UNUSED;                                                                                    \
        const FRAME frame = *(const FRAME *)dv__with;                                                                           \
        enum { DV__MAP_OF(DV__IN_NUMBER, , DV__UNPAREN INS) dv__ins };                                                          \
        enum { DV__MAP_OF(DV__OUT_NUMBER, , DV__UNPAREN OUTS) dv__outs };                                                       \
        _Static_assert((int)dv__ins <= DV__MAX_TENSORS && (int)dv__outs <= DV__MAX_TENSORS, "at most eight inputs and eight results");        \
        (void)frame;                                                                                                            \
        DV__MAP_OF(DV__IN_FROM, TYPE, DV__UNPAREN INS)                                                                              \
        PASSES(TYPE, LOOP, INS, OUTS, __VA_ARGS__)                                                                              \
    }                                                                                                                           \
    _Pragma("GCC diagnostic pop")
#define DV__STEP_OF(TYPE, NUMBER, STEP, FRAME, INS, OUTS, ...)                                                                  \
    DV__STEP(, STEP, (NUMBER *const *dv__out, const NUMBER *const *dv__in, void *dv__with), TYPE, NUMBER, NUMBER,               \
        DV__VECTOR_LOOP(dv__i, DV_BLOCK), DV__PASSES, FRAME, INS, OUTS, __VA_ARGS__)
/* The body of a kernel function: lists and checks its tensors, then runs the last arguments with `out` and `in`. If an input
 * broadcasts, calls `whole`, the kernel that calls this function, for slices instead. */
#define DV__ELEMENTWISE_KERNEL(FRAME, INS, OUTS, ...)                                                                                     \
    {                                                                                                                           \
        dv_tensor *const out[] = { DV__MAP_OF(DV__OF_FRAME, a, DV__UNPAREN OUTS) };                                             \
        const dv_tensor *const in[] = { DV__MAP_OF(DV__OF_FRAME, a, DV__UNPAREN INS) };                                         \
        enum { OUT = sizeof out / sizeof *out, IN = sizeof in / sizeof *in };                                                   \
        const int status = dv__elementwise_check_tensors(ctx, (const dv_tensor *const *)out, OUT, #OUTS, in, IN, #INS);                              \
        if (!status && DV__UNLIKELY(!dv__is_plain(out[0], in, IN)))                                                  \
            return DV_FOR_EACH_SLICE(ctx, FRAME, a, INS, OUTS, whole);                                                           \
        if (!status) {                                                                                                          \
            __VA_ARGS__;                                                                                                        \
        }                                                                                                                       \
        return status;                                                                                                          \
    }
#define DV__KERNEL_TENSORS dv_numel(out[0]), out, OUT, in, IN, (void *)(uintptr_t)a
/* Defines the kernel functions for each instruction set. X16: the step of AVX-512; NULL: the line compares. */
#ifdef DV_TARGET_AVX2
#define DV__STEP_FOR(TARGET, NAME, STEP, NUMBER)                                                                                \
    TARGET static void NAME(NUMBER *const *out, const NUMBER *const *in, void *with) { STEP(out, in, with); }
#define DV__ELEMENTWISE_ISAS(ROW, FRAME, INS, OUTS, X16)                                                                        \
    DV__STEP_FOR(DV_TARGET_AVX2, ROW##_avx2_f32, ROW##_step_f32, float)                                                         \
    DV__STEP_FOR(DV_TARGET_AVX2, ROW##_avx2_f64, ROW##_step_f64, double)                                                        \
    DV__STEP_FOR(DV_TARGET_AVX512, ROW##_avx512_f64, ROW##_step_f64, double)                                                    \
    DV_TARGET_AVX512 DV__NOINLINE static int ROW##_x16(dv_context *ctx, const FRAME *a, bool bf16, int (*whole)(dv_context *, const FRAME *))                                  \
        DV__ELEMENTWISE_KERNEL(FRAME, INS, OUTS,                                                                                          \
            if (dv__needs_f64(in, IN) || dv__needs_f64((const dv_tensor *const *)out, OUT))                                               \
                dv__blocks_avx2(DV__KERNEL_TENSORS, NULL, ROW##_avx512_f64);                                                       \
            else                                                                                                                \
                dv__blocks_x16(ctx, bf16, DV__KERNEL_TENSORS, X16, ROW##_step_f32))                                                \
    DV__UNUSED static int ROW##_avx512bf16(dv_context *ctx, const FRAME *a) { return ROW##_x16(ctx, a, true, ROW##_avx512bf16); }                 \
    static int ROW##_avx512(dv_context *ctx, const FRAME *a) { return ROW##_x16(ctx, a, false, ROW##_avx512); }                               \
    static int ROW##_avx2(dv_context *ctx, const FRAME *a)                                                                      \
    {                                                                                                                           \
        return ROW##_by(ctx, a, dv__blocks_avx2, ROW##_avx2_f32, ROW##_avx2_f64, ROW##_avx2);                                                  \
    }
#define DV__STEP_X16(STEP, FRAME, INS, OUTS, ...)                                                                               \
    DV__STEP(DV_TARGET_AVX512, STEP, (const dv__element_cursor *dv__out, const dv__element_cursor *dv__in, int64_t dv__n, void *dv__with), x16,   \
        float, dv_f32x16, for (int64_t dv__at = 0; dv__at < dv__n; dv__at += 32), DV__PAIRS, FRAME, INS, OUTS, __VA_ARGS__)
#else
#define DV__ELEMENTWISE_ISAS(ROW, FRAME, INS, OUTS, X16)
#define DV__STEP_X16(STEP, FRAME, INS, OUTS, ...)
#endif
#define DV__ELEMENTWISE(ROW, FRAME, INS, OUTS, X16, ...)                                                                        \
    DV__STEP_OF(f32, float, ROW##_step_f32, FRAME, INS, OUTS, __VA_ARGS__)                                                      \
    DV__STEP_OF(f64, double, ROW##_step_f64, FRAME, INS, OUTS, __VA_ARGS__)                                                     \
    DV__NOINLINE static int ROW##_by(dv_context *ctx, const FRAME *a, dv__blocks_fn blocks, dv_step_f32 f32, dv_step_f64 f64, int (*whole)(dv_context *, const FRAME *))          \
        DV__ELEMENTWISE_KERNEL(FRAME, INS, OUTS, blocks(DV__KERNEL_TENSORS, f32, f64))                                           \
    DV__ELEMENTWISE_ISAS(ROW, FRAME, INS, OUTS, X16)                                                                            \
    static int ROW##_base(dv_context *ctx, const FRAME *a)                                                                      \
    {                                                                                                                           \
        return ROW##_by(ctx, a, dv__blocks_base, ROW##_step_f32, ROW##_step_f64, ROW##_base);                                                  \
    }                                                                                                                           \
    DV__UNUSED static int ROW##_reference(dv_context *ctx, const FRAME *a)                                                      \
    {                                                                                                                           \
        return ROW##_by(ctx, a, dv__blocks_base, NULL, ROW##_step_f64, ROW##_reference);                                                            \
    }
#define DV_ELEMENTWISE(ROW, FRAME, INS, OUTS, ...)                                                                              \
    DV__STEP_X16(ROW##_step_x16, FRAME, INS, OUTS, __VA_ARGS__)                                                                 \
    DV__ELEMENTWISE(ROW, FRAME, INS, OUTS, (DV__COMPARES(__VA_ARGS__) ? NULL : ROW##_step_x16), __VA_ARGS__)
#define DV_ELEMENTWISE_SCALAR(ROW, FRAME, INS, OUTS, ...) DV__ELEMENTWISE(ROW, FRAME, INS, OUTS, NULL, __VA_ARGS__)
/* clang-format on */
#define DV_ELEMENTWISE_KERNELS(FRAME, ROW, DTYPES, ...) \
    DV_ISA_KERNELS(FRAME, ROW, DTYPES, __VA_ARGS__),    \
        DV_KERNEL(FRAME, "cpu", DTYPES, ROW##_reference, .flags = DV_KERNEL_REFERENCE)
#define DV_ELEMENTWISE_FLOATS(FRAME, ROW, ...) \
    DV_BF16_KERNEL(FRAME, ROW, __VA_ARGS__) DV_ELEMENTWISE_KERNELS(FRAME, ROW, "f32 f64 bf16 f16", __VA_ARGS__)

#endif
