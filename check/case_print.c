/* The text of a case, its elements and its results in reports. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "check.h"

enum { MAX_PRINTED_ELEMENTS = 4 /* a report prints all elements of tensors with at most this many */ };

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
static void *case_print_new_dense_contents(const check_tensor *t, uint64_t seed, int64_t *strides)
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
static int64_t case_print_get_element_offset(const check_tensor *t, const int64_t *strides, int64_t element_number)
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
    void *memory = check_tensor_numel(t) > MAX_PRINTED_ELEMENTS ? case_print_new_dense_contents(t, c->seed + tensor, strides)
                                                                : NULL;
    if (memory) {
        const int64_t at = case_print_get_element_offset(t, strides, element_number);
        check_format_number(check_element_get(memory, at, t->dtype), memory, at, t->dtype, out, size);
    }
    free(memory);
    return memory != NULL;
}

/* Prints all elements of a tensor, as " {1, 2}", if it has at most MAX_PRINTED_ELEMENTS. Returns false if it has more or none, or
 * its dtype cannot be printed. */
static bool case_print_try_print_small_tensor_elements(const check_tensor *t, uint64_t seed, FILE *to)
{
    int64_t strides[CHECK_MAX_DIMS];
    char number[40];
    const int64_t n = check_tensor_numel(t);
    void *memory = n <= MAX_PRINTED_ELEMENTS ? case_print_new_dense_contents(t, seed, strides) : NULL;
    for (int64_t i = 0; memory && i < n; i++) {
        const int64_t at = case_print_get_element_offset(t, strides, i);
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
    void *memory = check_is_float_dtype(t->dtype) ? case_print_new_dense_contents(t, seed, strides) : NULL;
    for (int64_t i = 0; memory && i < n; i++) {
        const double x = check_element_get(memory, case_print_get_element_offset(t, strides, i), t->dtype);
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
        fprintf(to, " (%s)", layout_names[t->layout][check_get_layout_variant(t)]);
    if (case_print_try_print_small_tensor_elements(t, seed, to))
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
