/* Cases: layouts, contents, their text in reports, and the values for dv_call().
 *
 * The layout of a tensor gives its strides (check_compute_strides()). Its elements are drawn one by one from the seed, by the
 * tensor's fill (check_fill_tensor()), so that a case needs no memory for them. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

enum {
    INACCESSIBLE_BYTES = 1 << 30,
    MAX_PRINTED_ELEMENTS = 4 /* a report prints all elements of tensors with at most this many */,
    MAX_WIDE_STRIDE_DIM = 8,
    MAX_SLICED_DIMS = 4 /* dims */,
    MIN_BINADE_EXPONENT = -8
};

int64_t check_tensor_numel(const check_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

bool check_has_small_tensors(const check_case *c, int64_t max_numel)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        const int64_t n = c->tensors[i].present ? check_tensor_numel(&c->tensors[i]) : 1;
        if (n < 1 || n > max_numel)
            return false;
    }
    return true;
}

bool check_has_layout_variants(const check_tensor *t)
{
    int32_t wide = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        wide += t->shape[i] > 1;
    return wide > 1;
}

/* Returns the variant of a tensor's layout; 0 if the tensor has too few long dims for variants. */
static int32_t case_get_layout_variant(const check_tensor *t) { return check_has_layout_variants(t) ? t->layout_variant : 0; }

int32_t check_find_wide_stride_dim(const check_tensor *t)
{
    int32_t found = -1;
    for (int32_t i = 0; i < t->ndim && (found < 0 || t->layout_variant); i++)
        if (t->shape[i] > 1 && t->shape[i] <= MAX_WIDE_STRIDE_DIM)
            found = i;
    return found;
}

/* True if this dim of an expanded tensor has stride 0, or of a reversed tensor a negative stride. The layout variant selects the
 * dim: the last or the first one with more than one element, or all of them. */
static bool case_is_expanded_or_reversed_dim(const check_tensor *t, int32_t dim)
{
    const int32_t form = case_get_layout_variant(t);
    bool result = dim >= 0 && t->shape[dim] > 1;
    for (int32_t i = 0; i < t->ndim; i++)
        result &= t->shape[i] <= 1 || form == 2 || (form ? i >= dim : i <= dim);
    return result;
}

/* Returns the dim of a tensor that comes at this place in ascending order of strides, from 0. */
static int32_t case_get_dim_by_stride_order(const check_tensor *t, int32_t order)
{
    const int32_t form = case_get_layout_variant(t),
                  swapped = t->ndim > 2
        ? form % CHECK_LAYOUT_VARIANTS
        : 0; /* 0: all dims in reverse order; 1: the second and third innermost dim are swapped; 2: the two innermost */
    if (t->layout != CHECK_LAYOUT_TRANSPOSED)
        return t->ndim - 1 - order;
    if (!swapped)
        return order;
    const int32_t low = swapped == 1;
    return t->ndim - 1 - (order == low ? low + 1 : order == low + 1 ? low : order);
}

/* Returns the distance between neighbours in the dim with this place in the order of strides, for a sliced tensor, in elements of
 * the tensor that is sliced: 1 or 2. */
static int64_t case_get_slice_step(const check_tensor *t, int32_t stride_order)
{
    const int32_t form = case_get_layout_variant(t);
    return t->layout == CHECK_LAYOUT_SLICED && (form ? stride_order == form - 1 : stride_order < MAX_SLICED_DIMS) ? 2 : 1;
}

/* Returns how many elements of padding follow the dim with this place in the order of strides; 0 if the tensor is not padded
 * there. numel_up_to_dim: number of elements up to and including the dim. */
static int64_t case_get_padding_after_dim(const check_tensor *t, int32_t stride_order, int64_t numel_up_to_dim)
{
    const int32_t form = case_get_layout_variant(t);
    return t->layout != CHECK_LAYOUT_PADDED || stride_order != (form == 2 && t->ndim > 2) ? 0 : form ? 2 * numel_up_to_dim : 1;
}

void check_compute_strides(const check_tensor *t, int64_t *strides, int64_t *low, int64_t *high)
{
    const int32_t wide_stride_dim = t->layout == CHECK_LAYOUT_WIDE_STRIDE ? check_find_wide_stride_dim(t) : -1;
    int64_t n = 1;
    for (int32_t k = 0; k < t->ndim; k++) {
        const int32_t i = case_get_dim_by_stride_order(t, k);
        const bool expanded = t->layout == CHECK_LAYOUT_EXPANDED && case_is_expanded_or_reversed_dim(t, i);
        const int64_t step = case_get_slice_step(t, k);
        strides[i] = expanded ? 0 : i == wide_stride_dim ? INT64_C(1) << 31 : n * step;
        n *= expanded || i == wide_stride_dim ? 1 : (t->shape[i] > 0 ? t->shape[i] : 1) * step;
        n += case_get_padding_after_dim(t, k, n);
        if (t->layout == CHECK_LAYOUT_REVERSED && case_is_expanded_or_reversed_dim(t, i))
            strides[i] = -strides[i];
    }
    *low = *high = 0;
    for (int32_t i = 0; i < t->ndim; i++) {
        const int64_t reach = (t->shape[i] - 1) * strides[i];
        *low += reach < 0 ? reach : 0;
        *high += reach > 0 ? reach : 0;
    }
    if (!check_tensor_numel(t))
        *low = 0, *high = -1;
}

/* Returns t->low + (t->high - t->low) * f, where f in [0, 1) is made of the upper 53 bits of random_bits. Equal bounds are
 * returned as they are: infinities and -0, too. */
static double case_scale_bits_to_range(const check_tensor *t, uint64_t random_bits)
{
    return t->low < t->high || t->low > t->high ? t->low + (t->high - t->low) * ((double)(random_bits >> 11) * 0x1p-53) : t->low;
}

/* Returns a random integer from t->low to t->high, both included. */
static int64_t case_draw_integer(const check_tensor *t, check_random *r)
{
    return check_random_between(
        r, t->low < 0x1p63 ? (int64_t)t->low : INT64_MAX, t->high < 0x1p63 ? (int64_t)t->high : INT64_MAX);
}

/* Returns element i of a tensor filled by CHECK_FILL_RANGE_ENDS. Every second element is an end of the range, a neighbour of an
 * end, or 2^7, 2^8, 2^15 or 2^16. The other elements are `random`. */
static int64_t case_draw_range_end_element(const check_tensor *t, int64_t i, int64_t random)
{
    const int64_t low = (int64_t)t->low, high = (int64_t)t->high,
                  ends[] = { high, high - 1, low, low + 1, 1 << 7, 1 << 8, 1 << 15, 1 << 16 },
                  end = ends[i / 2 % (int64_t)(sizeof ends / sizeof *ends)];
    return i % 2 == 0 && end >= low && end <= high ? end : random;
}

/* Returns element i of numbers that rise evenly from the lower bound to the upper; they fall if the lower bound is larger. */
static double case_get_increasing(const check_tensor *t, int64_t i)
{
    return t->low + (t->high - t->low) * (double)(i + 1) / (double)(check_tensor_numel(t) + 1);
}

/* Draws element i by the tensor's fill. For CHECK_FILL_SPECIAL_VALUES, element 0 and a fifth of the others are NaN, infinities
 * and the like, in turn by *special_value_counter. use_extreme_values: extreme finite numbers are among them. lone_index: index
 * of the only special element; -1: there are several. */
static double case_draw_element(const check_tensor *t, check_random *r, int64_t i, bool use_extreme_values, int64_t lone_index,
    uint64_t *special_value_counter)
{
    static const double common_values[] = { NAN, INFINITY, -INFINITY, 0.0, -0.0, 100, -100, 1e-40, 1e-7 };
    static const double extreme_values[] = { NAN, INFINITY, -INFINITY, -0.0, -1e-310, 3e38, -3e38, 1e300, 65504 };
    if (check_is_integer_dtype(t->dtype)) {
        const int64_t random = case_draw_integer(t, r);
        if (t->fill == CHECK_FILL_RANGE_ENDS)
            return (double)case_draw_range_end_element(t, i, random);
        if (t->fill == CHECK_FILL_RANGE_BOUNDS &&
            i % 2 == 0) { /* the bounds are at the same indices of each tensor, so that kernels meet all combinations of them */
            const uint64_t which = check_random_next(r) % 3;
            return which == 0 ? t->low : which == 1 || t->low > -1 ? t->high : -1;
        }
        if (t->fill == CHECK_FILL_LAST_EXTREME && i + 1 == check_tensor_numel(t))
            return t->high > -t->low ? t->high : t->low;
        if (t->fill == CHECK_FILL_INCREASING)
            return (double)(int64_t)case_get_increasing(t, i);
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
        return case_get_increasing(t, i);
    if (t->fill == CHECK_FILL_NONDECREASING)
        return fmax(t->low, floor(4 * case_get_increasing(t, i)) / 4);
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
            : case_scale_bits_to_range(t, bits); /* the contract's facts may exclude all such numbers */
    }
    if (t->fill == CHECK_FILL_LAST_EXTREME && i + 1 == check_tensor_numel(t))
        return t->high;
    if (t->fill == CHECK_FILL_LAST_EXTREME)
        return t->low + 4 * ((double)(bits >> 11) * 0x1p-53);
    if (t->fill == CHECK_FILL_LOW_PAYLOAD_NAN && bits % 5 == 0)
        return NAN;
    const double x = case_scale_bits_to_range(t, bits);
    const double half = t->fill == CHECK_FILL_HALVES ? rint(2 * x) / 2 : x;
    return half >= t->low && half <= t->high ? half : x;
}

void check_copy_case_with_seed(const check_case *planned, uint64_t seed, check_case *out)
{
    check_random r = { seed * UINT64_C(0x2545f4914f6cdd1d) + planned->plan_index };
    *out = *planned;
    out->seed = (check_random_next(&r) & ~UINT64_C(1)) |
        (planned->seed & 1); /* the last bit of the seed decides whether special values include extreme numbers */
}

/* Writes a NaN of a float dtype: with all bits set (all_bits), else with the bits of infinity and the lowest bit. */
static void case_write_nan(void *element, dv_dtype dtype, bool all_bits)
{
    check_element_put(element, 0, dtype, INFINITY);
    *(unsigned char *)element |= 1;
    if (all_bits)
        memset(element, 0xff, (size_t)dv_dtype_bytes(dtype, 1));
}

/* True if the element with this index is true in a tensor filled by CHECK_FILL_COUNT_WRAPS. */
static bool case_is_true_in_count_wraps_fill(const check_tensor *t, const int64_t *index)
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
        const double x = is_simple              ? case_scale_bits_to_range(t, check_random_next(&r))
            : integer && is_positional          ? check_get_positional_element(t, seed, i)
            : t->fill == CHECK_FILL_COUNT_WRAPS ? case_is_true_in_count_wraps_fill(t, index)
                                                : case_draw_element(t, &r, i, seed % 2, lone, &special);
        check_element_put(first, at * ncomponents, component_dtype, x);
        if (ncomponents == 2)
            check_element_put(first, at * 2 + 1, component_dtype,
                t->fill == CHECK_FILL_SPECIAL_VALUES ? -x / 2 : case_draw_element(t, &r, i + 1, false, -1, &special));
        if (integer && t->dtype.bits == 64 && fabs(x) >= 0x1p53 &&
            (t->fill == CHECK_FILL_RANDOM ||
                (x > t->low && x < t->high))) /* a double lacks the last bits of such integers, so they are drawn as integers */
            *(int64_t *)element = case_draw_integer(t, &r);
        if (isnan(x) && check_is_float_dtype(t->dtype) && t->dtype.bits > 8 &&
            (t->fill == CHECK_FILL_LOW_PAYLOAD_NAN || special % 2))
            case_write_nan(element, t->dtype, t->fill != CHECK_FILL_LOW_PAYLOAD_NAN);
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

size_t check_find_tensor_slot(const check_case *c, size_t tensor)
{
    for (size_t i = 0; i < c->nargs; i++)
        if ((c->args[i].type == DV_VALUE_TENSOR || c->args[i].type == DV_VALUE_TENSORS) && tensor >= c->args[i].first_tensor &&
            tensor < (size_t)c->args[i].first_tensor + c->args[i].count)
            return i;
    return SIZE_MAX;
}

bool check_uses_min_alignment(const check_case *c) { return c->plan_index * 0x9e3779b1u >> 31; }

int64_t check_case_max_numel(const check_case *c)
{
    int64_t most = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && check_tensor_numel(&c->tensors[i]) > most)
            most = check_tensor_numel(&c->tensors[i]);
    return most;
}

/* ---- Text in reports ---- */

const char *check_format_result_name(const struct check_op *op, size_t result, char *buffer, size_t size)
{
    const char *name = op->slots[op->nargs + result].name;
    if (*name)
        snprintf(buffer, size, "result '%s'", name);
    else
        snprintf(buffer, size, "result %zu", result);
    return buffer;
}

void check_format_element_index(int32_t ndim, const int64_t *shape, int64_t element_number, char *out, size_t size)
{
    int64_t index[DV_MAX_NDIM];
    size_t n = 0;
    for (int32_t i = ndim; i-- > 0; element_number /= shape[i] ? shape[i] : 1)
        index[i] = shape[i] ? element_number % shape[i] : 0;
    *out = 0;
    for (int32_t i = 0; i < ndim && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? ", " : "", (long long)index[i]);
}

static const char *const layout_names[][CHECK_LAYOUT_VARIANTS] = {
#define LAYOUT(name, ...) [CHECK_LAYOUT_##name] = { __VA_ARGS__ },
    CHECK_LAYOUTS(LAYOUT)
#undef LAYOUT
};

char *check_format_real(double x, dv_dtype dtype, char *out, size_t size)
{
    check_get_component_count_and_dtype(&dtype);
    const bool is_double = dtype.bits > 32 || check_is_integer_dtype(dtype);
    int digits = is_double ? DBL_DIG : FLT_DIG; /* every text with so few digits is printed again as it was read */
    if (isnan(x))
        snprintf(out, size, "NaN");
    else
        do
            snprintf(out, size, "%.*g", digits, x);
        while (digits++ < DBL_DECIMAL_DIG && (is_double ? strtod(out, NULL) : (double)strtof(out, NULL)) != x);
    return out;
}

char *check_format_number(double x, const void *data, int64_t index, dv_dtype dtype, char *out, size_t size)
{
    if (dtype.bits != 64 || dtype.code > 1)
        return check_format_real(x, dtype, out, size);
    snprintf(out, size, dtype.code ? "%" PRIu64 : "%" PRId64, ((const int64_t *)data)[index]); /* a double has fewer digits */
    return out;
}

/* Returns a new block with the elements of a tensor, contiguous unless its layout is expanded, and sets strides, in elements. The
 * caller frees the block. Returns NULL if the tensor has no elements, more than MAX_FORMATTED_BYTES bytes, a complex dtype or one
 * below 8 bits, or memory is out. */
static void *case_new_dense_contents(const check_tensor *t, uint64_t seed, int64_t *strides)
{
    enum { MAX_FORMATTED_BYTES = 1 << 24 };
    check_tensor dense = *t;
    int64_t low, high;
    const int64_t n = check_tensor_numel(t), bytes = dv_dtype_bytes(t->dtype, n);
    if (n < 1 || t->dtype.bits < 8 || t->dtype.code == 5 || bytes > MAX_FORMATTED_BYTES)
        return NULL;
    dense.layout = t->layout == CHECK_LAYOUT_EXPANDED ? t->layout : CHECK_LAYOUT_CONTIGUOUS; /* an expanded layout decides which
                                                                                              * elements are equal */
    check_compute_strides(&dense, strides, &low, &high);
    void *memory = calloc(1, (size_t)bytes);
    if (memory)
        check_fill_tensor(&dense, seed, memory, strides);
    return memory;
}

/* Returns the offset of an element from the first one, in elements. element_number: its position in row-major order. */
static int64_t case_get_element_offset(const check_tensor *t, const int64_t *strides, int64_t element_number)
{
    int64_t at = 0;
    for (int32_t d = t->ndim; d-- > 0; element_number /= t->shape[d])
        at += element_number % t->shape[d] * strides[d];
    return at;
}

bool check_try_format_element(const check_case *c, size_t tensor, int64_t element_number, char *out, size_t size)
{
    const check_tensor *t = &c->tensors[tensor];
    int64_t strides[CHECK_MAX_DIMS];
    void *memory = check_tensor_numel(t) > MAX_PRINTED_ELEMENTS ? case_new_dense_contents(t, c->seed + tensor, strides) : NULL;
    if (memory) {
        const int64_t at = case_get_element_offset(t, strides, element_number);
        check_format_number(check_element_get(memory, at, t->dtype), memory, at, t->dtype, out, size);
    }
    free(memory);
    return memory != NULL;
}

/* Prints all elements of a tensor, as " {1, 2}", if it has at most MAX_PRINTED_ELEMENTS. Returns false if it has more or none, or
 * its dtype cannot be printed. */
static bool case_try_print_small_tensor_elements(const check_tensor *t, uint64_t seed, FILE *to)
{
    int64_t strides[CHECK_MAX_DIMS];
    char number[40];
    const int64_t n = check_tensor_numel(t);
    void *memory = n <= MAX_PRINTED_ELEMENTS ? case_new_dense_contents(t, seed, strides) : NULL;
    for (int64_t i = 0; memory && i < n; i++) {
        const int64_t at = case_get_element_offset(t, strides, i);
        check_format_number(check_element_get(memory, at, t->dtype), memory, at, t->dtype, number, sizeof number);
        fprintf(to, "%s%s", i ? ", " : " {", number);
    }
    free(memory);
    return memory && fputs("}", to) >= 0;
}

/* Prints the first position of NaN, inf and -inf in a tensor, and how many more there are, since these often cause a failure: "
 * with NaN at [0, 3] and at 2 more". */
static void case_print_special_values(const check_tensor *t, uint64_t seed, FILE *to)
{
    static const char *const names[] = { "NaN", "inf", "-inf" };
    int64_t strides[CHECK_MAX_DIMS], first[3], count[3] = { 0 };
    char index[200];
    const int64_t n = check_tensor_numel(t);
    void *memory = check_is_float_dtype(t->dtype) ? case_new_dense_contents(t, seed, strides) : NULL;
    for (int64_t i = 0; memory && i < n; i++) {
        const double x = check_element_get(memory, case_get_element_offset(t, strides, i), t->dtype);
        const int kind = isnan(x) ? 0 : isinf(x) ? (x > 0 ? 1 : 2) : -1;
        if (kind >= 0 && !count[kind]++)
            first[kind] = i;
    }
    free(memory);
    const char *separator = " with";
    for (int kind = 0; kind < 3; kind++) {
        if (!count[kind])
            continue;
        check_format_element_index(t->ndim, t->shape, first[kind], index, sizeof index);
        fprintf(to, "%s %s at [%s]", separator, names[kind], index);
        if (count[kind] > 1)
            fprintf(to, " and at %lld more", (long long)count[kind] - 1);
        separator = ",";
    }
}

/* Prints a tensor of a case: dtype, shape, layout, and its elements, or else special values and the range. */
static void case_print_tensor(const check_tensor *t, uint64_t seed, FILE *to)
{
    const double max_usual_magnitude = check_is_integer_dtype(t->dtype) ? 100 : 2;
    if (!t->present) {
        fputs("None", to);
        return;
    }
    fprintf(to, "%s[", dv_dtype_name(t->dtype));
    for (int32_t i = 0; i < t->ndim; i++)
        fprintf(to, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    fputs("]", to);
    if (t->layout)
        fprintf(to, " (%s)", layout_names[t->layout][case_get_layout_variant(t)]);
    if (case_try_print_small_tensor_elements(t, seed, to))
        return;
    case_print_special_values(t, seed, to);
    if (check_is_integer_dtype(t->dtype) && check_tensor_numel(t) && t->low == t->high &&
        t->fill != CHECK_FILL_COUNT_WRAPS) /* the comparison is exact, since both bounds are integers */
        fprintf(to, " of %lld", (long long)t->low);
    else if (t->fill == CHECK_FILL_LAST_EXTREME && check_tensor_numel(t))
        fprintf(to, " ending in %lld", (long long)(t->high > -t->low ? t->high : t->low));
    else if ((t->fill == CHECK_FILL_RANDOM || t->fill == CHECK_FILL_RANGE_ENDS || t->fill == CHECK_FILL_BINADES) &&
        check_tensor_numel(t) && t->dtype.bits > 8 && fmax(fabs(t->low), fabs(t->high)) > max_usual_magnitude)
        fprintf(to, " from %.17g to %.17g", t->low, t->high);
}

/* Prints the value of an argument in Python's notation; tensors as case_print_tensor() does. */
static void case_print_value(const check_case *c, const check_value *v, FILE *to)
{
    switch (v->type) {
    case DV_VALUE_TENSOR: case_print_tensor(&c->tensors[v->first_tensor], c->seed + v->first_tensor, to); return;
    case DV_VALUE_INT: fprintf(to, "%lld", (long long)v->as.i); return;
    case DV_VALUE_FLOAT: fprintf(to, "%.17g", v->as.f); return;
    case DV_VALUE_BOOL: fputs(v->as.b ? "True" : "False", to); return;
    case DV_VALUE_COMPLEX: fprintf(to, "%g%+gj", v->as.c.re, v->as.c.im); return;
    case DV_VALUE_STRING: fprintf(to, "\"%s\"", v->string); return;
    case DV_VALUE_DTYPE: fputs(dv_dtype_name(v->as.dtype), to); return;
    case DV_VALUE_DEVICE: fputs(dv_device_name(v->as.device.type), to); return;
    case DV_VALUE_LAYOUT:
    case DV_VALUE_MEMORY_FORMAT: fprintf(to, "%d", (int)v->as.number); return;
    case DV_VALUE_NONE: fputs("None", to); return;
    default: break;
    }
    fputs("[", to);
    for (uint32_t i = 0; i < v->count; i++) {
        fputs(i ? ", " : "", to);
        if (v->type == DV_VALUE_TENSORS)
            case_print_tensor(&c->tensors[v->first_tensor + i], c->seed + v->first_tensor + i, to);
        else if (v->type == DV_VALUE_INTS)
            fprintf(to, "%lld", (long long)v->ints[i]);
        else if (v->type == DV_VALUE_STRINGS)
            fprintf(to, "\"%s\"", check_value_get_string(v, i));
        else if (v->type == DV_VALUE_BOOLS || (v->type == DV_VALUE_SCALARS && v->ints[i] == DV_SCALAR_BOOL))
            fputs((v->type == DV_VALUE_BOOLS ? v->ints[i] != 0 : v->floats[i] > 0) ? "True" : "False", to);
        else if (v->type == DV_VALUE_SCALARS && v->ints[i] == DV_SCALAR_FLOAT && v->floats[i] == rint(v->floats[i]))
            fprintf(to, "%.1f", v->floats[i]);
        else
            fprintf(to, "%.17g", v->floats[i]);
    }
    fputs("]", to);
}

void check_print_case(const struct check_op *op, const check_case *c, FILE *to)
{
    bool any = false;
    for (size_t i = 0; i < c->nargs; i++) {
        if (c->args[i].type == DV_VALUE_DEFAULT)
            continue;
        fprintf(to, "%s%s: ", any ? ", " : "", op->slots[i].name);
        case_print_value(c, &c->args[i], to);
        any = true;
    }
    if (!any)
        fputs("no arguments", to);
}

void check_job_print_case(const check_job *job, FILE *to)
{
    check_print_case(job->op, &job->result->current_case, to);
    if (!job->result->has_preceding_case)
        return;
    fputs(", after a call with ", to);
    check_print_case(job->op, &job->result->preceding_case, to);
}

/* ---- Values ---- */

/* Middle of a reserved, inaccessible range: the data address of tensors without contents. Reading it faults. */
static char *inaccessible_middle;

bool check_is_inaccessible_data(const void *address)
{
    return inaccessible_middle && (const char *)address >= inaccessible_middle - INACCESSIBLE_BYTES &&
        (const char *)address < inaccessible_middle + INACCESSIBLE_BYTES;
}

/* Returns the data address for tensors without contents, and reserves the inaccessible range around it at the first call. Returns
 * NULL if that fails. */
static void *case_reserve_inaccessible_address(void)
{
    void *p = inaccessible_middle
        ? NULL
        : mmap(NULL, 2 * (size_t)INACCESSIBLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p && p != MAP_FAILED)
        inaccessible_middle = (char *)p + INACCESSIBLE_BYTES;
    return inaccessible_middle;
}

/* Sets one dv_tensor of v from the case's tensor: shape, strides and dtype, with an inaccessible data address (NULL on Meta). */
static void case_set_tensor_without_data(check_values *v, const check_case *c, size_t tensor_index, dv_device device)
{
    int64_t low, high;
    const check_tensor *t = &c->tensors[tensor_index];
    check_compute_strides(t, v->strides[tensor_index], &low, &high);
    v->tensors[tensor_index] = (dv_tensor){ .data = device.type == DV_META ? NULL : case_reserve_inaccessible_address(),
        .device = device,
        .ndim = t->ndim,
        .dtype = t->dtype,
        .shape = t->shape,
        .strides = v->strides[tensor_index] };
}

const char *check_value_get_string(const check_value *v, uint32_t index)
{
    const char *s = v->string;
    while (index-- > 0)
        s += strlen(s) + 1;
    return s;
}

/* Returns one element of a list of scalars. */
static dv_scalar value_get_list_scalar(const check_value *v, uint32_t index)
{
    dv_scalar s;
    memset(&s, 0, sizeof s);
    s.kind = (uint32_t)v->ints[index];
    if (s.kind == DV_SCALAR_INT)
        s.as.i = (int64_t)v->floats[index];
    else if (s.kind == DV_SCALAR_BOOL)
        s.as.b = v->floats[index] > 0;
    else
        s.as.f = v->floats[index];
    return s;
}

void check_values_init_without_data(check_values *v, const check_case *c, dv_device device)
{
    for (size_t i = 0; i < c->ntensors; i++)
        case_set_tensor_without_data(v, c, i, device);
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *a = &c->args[i];
        dv_value *to = &v->values[i];
        memset(to, 0, sizeof *to);
        to->type = a->type;
        switch (a->type) {
        case DV_VALUE_TENSOR:
            *to = dv_from_tensor(c->tensors[a->first_tensor].present ? &v->tensors[a->first_tensor] : NULL);
            break;
        case DV_VALUE_TENSORS:
            for (uint32_t k = 0; k < a->count; k++)
                v->list_tensors[a->first_tensor + k] = c->tensors[a->first_tensor + k].present ? &v->tensors[a->first_tensor + k]
                                                                                               : NULL;
            to->as.tensors = (dv_tensors){ &v->list_tensors[a->first_tensor], a->count };
            break;
        case DV_VALUE_STRING: *to = dv_from_string(a->string); break;
        case DV_VALUE_INTS: to->as.ints = (dv_ints){ a->ints, a->count }; break;
        case DV_VALUE_FLOATS: to->as.floats = (dv_floats){ a->floats, a->count }; break;
        case DV_VALUE_BOOLS:
            for (uint32_t k = 0; k < a->count; k++)
                v->bools[i][k] = a->ints[k] != 0;
            to->as.bools = (dv_bools){ v->bools[i], a->count };
            break;
        case DV_VALUE_STRINGS:
            for (uint32_t k = 0; k < a->count; k++)
                v->strings[i][k] = dv_from_string(check_value_get_string(a, k)).as.s;
            to->as.strings = (dv_strings){ v->strings[i], a->count };
            break;
        case DV_VALUE_SCALARS:
            for (uint32_t k = 0; k < a->count; k++)
                v->scalars[i][k] = value_get_list_scalar(a, k);
            to->as.scalars = (dv_scalars){ v->scalars[i], a->count };
            break;
        default: memcpy(&to->as, &a->as, sizeof a->as);
        }
    }
}
