/* The elements of the tensors of a case. They are drawn one by one from the seed, by the tensor's fill (check_fill_tensor()), so
 * that a case needs no memory for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { MIN_BINADE_EXPONENT = -8 };

/* Returns t->low + (t->high - t->low) * f, where f in [0, 1) is made of the upper 53 bits of random_bits. Equal bounds are
 * returned as they are: infinities and -0, too. */
static double case_fill_scale_bits_to_range(const check_tensor *t, uint64_t random_bits)
{
    return t->low < t->high || t->low > t->high ? t->low + (t->high - t->low) * ((double)(random_bits >> 11) * 0x1p-53) : t->low;
}

/* Returns a random integer from t->low to t->high, both included. */
static int64_t case_fill_draw_integer(const check_tensor *t, check_random *r)
{
    return check_random_between(
        r, t->low < 0x1p63 ? (int64_t)t->low : INT64_MAX, t->high < 0x1p63 ? (int64_t)t->high : INT64_MAX);
}

/* Returns element i of a tensor filled by CHECK_FILL_RANGE_ENDS. Every second element is an end of the range, a neighbour of an
 * end, or 2^7, 2^8, 2^15 or 2^16. The other elements are `random`. */
static int64_t case_fill_draw_range_end_element(const check_tensor *t, int64_t i, int64_t random)
{
    const int64_t low = (int64_t)t->low, high = (int64_t)t->high,
                  ends[] = { high, high - 1, low, low + 1, 1 << 7, 1 << 8, 1 << 15, 1 << 16 },
                  end = ends[i / 2 % (int64_t)(sizeof ends / sizeof *ends)];
    return i % 2 == 0 && end >= low && end <= high ? end : random;
}

/* Returns element i of numbers that rise evenly from the lower bound to the upper; they fall if the lower bound is larger. */
static double case_fill_get_increasing(const check_tensor *t, int64_t i)
{
    return t->low + (t->high - t->low) * (double)(i + 1) / (double)(check_tensor_numel(t) + 1);
}

/* Draws element i by the tensor's fill. For CHECK_FILL_SPECIAL_VALUES, element 0 and a fifth of the others are NaN, infinities
 * and the like, in turn by *special_value_counter. use_extreme_values: extreme finite numbers are among them. lone_index: index
 * of the only special element; -1: there are several. */
static double case_fill_draw_element(const check_tensor *t, check_random *r, int64_t i, bool use_extreme_values,
    int64_t lone_index, uint64_t *special_value_counter)
{
    static const double common_values[] = { NAN, INFINITY, -INFINITY, 0.0, -0.0, 100, -100, 1e-40, 1e-7 };
    static const double extreme_values[] = { NAN, INFINITY, -INFINITY, -0.0, -1e-310, 3e38, -3e38, 1e300, 65504 };
    if (check_is_integer_dtype(t->dtype)) {
        const int64_t random = case_fill_draw_integer(t, r);
        if (t->fill == CHECK_FILL_RANGE_ENDS)
            return (double)case_fill_draw_range_end_element(t, i, random);
        if (t->fill == CHECK_FILL_RANGE_BOUNDS &&
            i % 2 == 0) { /* the bounds are at the same indices of each tensor, so that kernels meet all combinations of them */
            const uint64_t which = check_random_next(r) % 3;
            return which == 0 ? t->low : which == 1 || t->low > -1 ? t->high : -1;
        }
        if (t->fill == CHECK_FILL_LAST_EXTREME && i + 1 == check_tensor_numel(t))
            return t->high > -t->low ? t->high : t->low;
        if (t->fill == CHECK_FILL_INCREASING)
            return (double)(int64_t)case_fill_get_increasing(t, i);
        return (double)(t->fill == CHECK_FILL_RANDOM || t->fill == CHECK_FILL_RANGE_BOUNDS ? random
                : t->low <= 0 && t->high >= 0                                              ? 0
                                                                                           : (int64_t)t->low);
    }
    const uint64_t bits = check_random_next(r);
    if (t->fill == CHECK_FILL_SEQUENCE)
        return t->low <= 1 && t->high >= 1 ? (double)(i % 4 + 1) / (t->high >= 4 ? 1 : 4) : t->low;
    if (t->fill == CHECK_FILL_RANGE_ENDS)
        return i % 2 ? t->high : t->low;
    if (t->fill == CHECK_FILL_INCREASING)
        return case_fill_get_increasing(t, i);
    if (t->fill == CHECK_FILL_NONDECREASING)
        return fmax(t->low, floor(4 * case_fill_get_increasing(t, i)) / 4);
    if (t->fill == CHECK_FILL_SPECIAL_VALUES && i == lone_index)
        return common_values[*special_value_counter % CHECK_LONE_VALUES];
    if (t->fill == CHECK_FILL_SPECIAL_VALUES && lone_index < 0 && (!i || bits % 5 == 0))
        return (use_extreme_values ? extreme_values
                                   : common_values)[(*special_value_counter)++ % (sizeof common_values / sizeof *common_values)];
    if (t->fill == CHECK_FILL_FIRST_INFINITE && !i)
        return *special_value_counter % 2 ? INFINITY : -INFINITY;
    if (t->fill == CHECK_FILL_NEGATIVE_INFINITY)
        return -INFINITY;
    if (t->fill == CHECK_FILL_BINADES) {
        const double e = (double)(bits >> 11) * 0x1p-53,
                     x = exp2(MIN_BINADE_EXPONENT + (log2(t->high) - MIN_BINADE_EXPONENT) * e),
                     y = bits & 1 && -x >= t->low ? -x : x;
        return y >= t->low && y <= t->high
            ? y
            : case_fill_scale_bits_to_range(t, bits); /* the contract's facts may exclude all such numbers */
    }
    if (t->fill == CHECK_FILL_LAST_EXTREME && i + 1 == check_tensor_numel(t))
        return t->high;
    if (t->fill == CHECK_FILL_LAST_EXTREME)
        return t->low + 4 * ((double)(bits >> 11) * 0x1p-53);
    if (t->fill == CHECK_FILL_LOW_PAYLOAD_NAN && bits % 5 == 0)
        return NAN;
    const double x = case_fill_scale_bits_to_range(t, bits);
    const double half = t->fill == CHECK_FILL_HALVES ? rint(2 * x) / 2 : x;
    return half >= t->low && half <= t->high ? half : x;
}

/* Writes a NaN of a float dtype: with all bits set (all_bits), else with the bits of infinity and the lowest bit. */
static void case_fill_write_nan(void *element, dv_dtype dtype, bool all_bits)
{
    check_element_put(element, 0, dtype, INFINITY);
    *(unsigned char *)element |= 1;
    if (all_bits)
        memset(element, 0xff, (size_t)dv_dtype_bytes(dtype, 1));
}

/* True if the element with this index is true in a tensor filled by CHECK_FILL_COUNT_WRAPS. */
static bool case_fill_is_true_in_count_wraps_fill(const check_tensor *t, const int64_t *index)
{
    bool result = true;
    for (int32_t d = 0; d < t->ndim; d++)
        result &= t->shape[d] < 256 || index[d] < t->shape[d] / 256 * 256;
    return result;
}

void check_fill_tensor(const check_tensor *t, uint64_t seed, void *first, const int64_t *strides)
{
    check_random r = { seed };
    uint64_t special = check_random_next(&r);
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    const int64_t n = check_tensor_numel(t), bytes = dv_dtype_bytes(t->dtype, 1);
    const bool integer = check_is_integer_dtype(t->dtype);
    dv_dtype component_dtype = t->dtype;
    const int ncomponents = check_get_component_count_and_dtype(&component_dtype);
    const bool is_simple = t->fill == CHECK_FILL_RANDOM && !integer &&
        ncomponents == 1; /* most frequent kind of tensor: a faster way to the same numbers */
    const bool is_positional = check_has_positional_fill(t);
    const uint64_t which = seed / 4 % CHECK_LONE_VARIANTS, position_class = which / CHECK_LONE_VALUES;
    const int64_t lone = seed % 4 != CHECK_SEED_LONE_SPECIAL || !n ? -1
        : !position_class                                          ? 0
        : position_class == 1                                      ? n - 1
                                                                   : (int64_t)(special % (uint64_t)n);
    special = lone < 0 ? special : which;
    for (int64_t i = 0, at = 0; i < n; i++) {
        char *const element = (char *)first + at * bytes;
        const double x = is_simple              ? case_fill_scale_bits_to_range(t, check_random_next(&r))
            : integer && is_positional          ? check_get_positional_element(t, seed, i)
            : t->fill == CHECK_FILL_COUNT_WRAPS ? case_fill_is_true_in_count_wraps_fill(t, index)
                                                : case_fill_draw_element(t, &r, i, seed % 2, lone, &special);
        check_element_put(first, at * ncomponents, component_dtype, x);
        if (ncomponents == 2)
            check_element_put(first, at * 2 + 1, component_dtype,
                t->fill == CHECK_FILL_SPECIAL_VALUES ? -x / 2 : case_fill_draw_element(t, &r, i + 1, false, -1, &special));
        if (integer && t->dtype.bits == 64 && fabs(x) >= 0x1p53 &&
            (t->fill == CHECK_FILL_RANDOM ||
                (x > t->low && x < t->high))) /* a double lacks the last bits of such integers, so they are drawn as integers */
            *(int64_t *)element = case_fill_draw_integer(t, &r);
        if (isnan(x) && check_is_float_dtype(t->dtype) && t->dtype.bits > 8 &&
            (t->fill == CHECK_FILL_LOW_PAYLOAD_NAN || special % 2))
            case_fill_write_nan(element, t->dtype, t->fill != CHECK_FILL_LOW_PAYLOAD_NAN);
        for (int32_t d = t->ndim; d-- > 0; index[d] = 0, at -= t->shape[d] * strides[d]) {
            at += strides[d];
            if (++index[d] < t->shape[d])
                break;
        }
    }
}

unsigned char *check_new_tensor_contents(const check_case *c, size_t tensor, int64_t *nelements, int64_t *first_index)
{
    enum { MAX_BYTES = 1 << 20 };
    const check_tensor *t = &c->tensors[tensor];
    int64_t strides[CHECK_MAX_DIMS], low, high;
    check_compute_strides(t, strides, &low, &high);
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    *nelements = high - low + 1;
    *first_index = -low;
    if (t->dtype.bits < 8 || (double)*nelements * (double)size > MAX_BYTES)
        return NULL;
    unsigned char *memory = calloc((size_t)*nelements + 1, (size_t)size);
    if (memory)
        check_fill_tensor(t, c->seed + tensor, memory + *first_index * size, strides);
    return memory;
}
