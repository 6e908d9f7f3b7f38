/* Cases: layouts, contents, descriptions, and the values for dv_call(). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

enum {
    UNTOUCHABLE = 1 << 30,
    PRINTED = 4 /* elements of a tensor that a report lists */,
    MOST_APART = 8,
    MOST_SLICED = 4 /* dims */,
    LOWEST_BINADE = -8
};

uint64_t check_next(check_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15); /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t check_between(check_random *r, int64_t low, int64_t high)
{
    const uint64_t n = (uint64_t)high - (uint64_t)low + 1; /* 0: all integers */
    return high <= low ? low : (int64_t)((uint64_t)low + (n ? check_next(r) % n : check_next(r)));
}

int64_t check_numel(const check_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

bool check_has_forms(const check_tensor *t)
{
    int32_t wide = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        wide += t->shape[i] > 1;
    return wide > 1;
}

static int32_t form_of(const check_tensor *t) { return check_has_forms(t) ? t->form : 0; }

int32_t check_far_dim(const check_tensor *t)
{
    int32_t found = -1;
    for (int32_t i = 0; i < t->ndim && (found < 0 || t->form); i++)
        if (t->shape[i] > 1 && t->shape[i] <= MOST_APART)
            found = i;
    return found;
}

/* True if an expanded or reversed tensor has stride 0 or a negative stride in this dim: the last or the first one with more than
 * one element, or each. */
static bool is_changed(const check_tensor *t, int32_t dim)
{
    const int32_t form = form_of(t);
    bool is = dim >= 0 && t->shape[dim] > 1;
    for (int32_t i = 0; i < t->ndim; i++)
        is &= t->shape[i] <= 1 || form == 2 || (form ? i >= dim : i <= dim);
    return is;
}

/* Returns the dim that is number k in memory, from the innermost one. */
static int32_t dim_in_memory(const check_tensor *t, int32_t k)
{
    const int32_t form = form_of(t), swapped = t->ndim > 2 ? form % CHECK_FORMS : 0; /* 1: dims 1 and 2, 2: dims 0 and 1 */
    if (t->layout != CHECK_TRANSPOSED)
        return t->ndim - 1 - k;
    if (!swapped)
        return k;
    const int32_t low = swapped == 1;
    return t->ndim - 1 - (k == low ? low + 1 : k == low + 1 ? low : k);
}

/* Returns the distance of neighbours in dim number k of a sliced tensor, in elements of the tensor that it is a slice of. */
static int64_t step_of(const check_tensor *t, int32_t k)
{
    const int32_t form = form_of(t);
    return t->layout == CHECK_SLICED && (form ? k == form - 1 : k < MOST_SLICED) ? 2 : 1;
}

/* Returns the gap after dim number k of a padded tensor. n: elements of the tensor up to this dim. */
static int64_t gap_after(const check_tensor *t, int32_t k, int64_t n)
{
    const int32_t form = form_of(t);
    return t->layout != CHECK_PADDED || k != (form == 2 && t->ndim > 2) ? 0 : form ? 2 * n : 1;
}

void check_strides(const check_tensor *t, int64_t *strides, int64_t *low, int64_t *high)
{
    const int32_t far = t->layout == CHECK_FAR ? check_far_dim(t) : -1;
    int64_t n = 1;
    for (int32_t k = 0; k < t->ndim; k++) {
        const int32_t i = dim_in_memory(t, k);
        const bool expanded = t->layout == CHECK_EXPANDED && is_changed(t, i);
        const int64_t step = step_of(t, k);
        strides[i] = expanded ? 0 : i == far ? INT64_C(1) << 31 : n * step;
        n *= expanded || i == far ? 1 : (t->shape[i] > 0 ? t->shape[i] : 1) * step;
        n += gap_after(t, k, n);
        if (t->layout == CHECK_REVERSED && is_changed(t, i))
            strides[i] = -strides[i];
    }
    *low = *high = 0;
    for (int32_t i = 0; i < t->ndim; i++) {
        const int64_t reach = (t->shape[i] - 1) * strides[i];
        *low += reach < 0 ? reach : 0;
        *high += reach > 0 ? reach : 0;
    }
    if (!check_numel(t))
        *low = 0, *high = -1;
}

/* One of the numbers between the bounds, each with equal chance. */
static double between(const check_tensor *t, uint64_t bits)
{
    return t->low + (t->high - t->low) * ((double)(bits >> 11) * 0x1p-53);
}

static int64_t random_integer(const check_tensor *t, check_random *r)
{
    return check_between(r, t->low < 0x1p63 ? (int64_t)t->low : INT64_MAX, t->high < 0x1p63 ? (int64_t)t->high : INT64_MAX);
}

/* Every second one from the first on is an end of the range, a neighbour of it, or the first number past a narrow type. */
static int64_t spread_integer(const check_tensor *t, int64_t i, int64_t random)
{
    const int64_t low = (int64_t)t->low, high = (int64_t)t->high,
                  ends[] = { high, high - 1, low, low + 1, 1 << 7, 1 << 8, 1 << 15, 1 << 16 },
                  end = ends[i / 2 % (int64_t)(sizeof ends / sizeof *ends)];
    return i % 2 == 0 && end >= low && end <= high ? end : random;
}

/* The value of one element. SPECIAL: the first and a fifth of the other elements are special values, in turn; extremes in every
 * second tensor only. lone: the only element that is one; -1: it is not the only one. */
static double draw(const check_tensor *t, check_random *r, int64_t i, bool wild, int64_t lone, uint64_t *special)
{
    static const double mild[] = { NAN, INFINITY, -INFINITY, 0.0, -0.0, 100, -100, 1e-40, 1e-7 };
    static const double extreme[] = { NAN, INFINITY, -INFINITY, -0.0, -1e-310, 3e38, -3e38, 1e300, 65504 };
    if (check_is_integer(t->dtype)) {
        const int64_t random = random_integer(t, r);
        if (t->fill == CHECK_SPREAD)
            return (double)spread_integer(t, i, random);
        if (t->fill == CHECK_EXTREMES && i % 2 == 0) { /* at the same places in each tensor, and each beside each */
            const uint64_t which = check_next(r) % 3;
            return which == 0 ? t->low : which == 1 || t->low > -1 ? t->high : -1;
        }
        if (t->fill == CHECK_LAST && i + 1 == check_numel(t))
            return t->high > -t->low ? t->high : t->low;
        return (double)(t->fill == CHECK_RANDOM || t->fill == CHECK_EXTREMES ? random
                : t->low <= 0 && t->high >= 0                                ? 0
                                                                             : (int64_t)t->low);
    }
    const uint64_t bits = check_next(r);
    if (t->fill == CHECK_SIMPLE)
        return t->low <= 1 && t->high >= 1 ? (double)(i % 4 + 1) / (t->high >= 4 ? 1 : 4) : t->low;
    if (t->fill == CHECK_ASCENDING || t->fill == CHECK_RISING) {
        const double x = t->low + (t->high - t->low) * (double)(i + 1) / (double)(check_numel(t) + 1);
        return t->fill == CHECK_ASCENDING ? x : fmax(t->low, floor(4 * x) / 4);
    }
    if (t->fill == CHECK_SPECIAL && i == lone)
        return mild[*special % CHECK_LONE_KINDS];
    if (t->fill == CHECK_SPECIAL && lone < 0 && (!i || bits % 5 == 0))
        return (wild ? extreme : mild)[(*special)++ % (sizeof mild / sizeof *mild)];
    if (t->fill == CHECK_INFINITE && !i)
        return *special % 2 ? INFINITY : -INFINITY;
    if (t->fill == CHECK_LOWEST)
        return -INFINITY;
    if (t->fill == CHECK_BINADES) {
        const double e = (double)(bits >> 11) * 0x1p-53, x = exp2(LOWEST_BINADE + (log2(t->high) - LOWEST_BINADE) * e),
                     y = bits & 1 && -x >= t->low ? -x : x;
        return y >= t->low && y <= t->high ? y : between(t, bits); /* facts may leave no such number */
    }
    if (t->fill == CHECK_LAST && i + 1 == check_numel(t))
        return t->high;
    if (t->fill == CHECK_LAST)
        return t->low + 4 * ((double)(bits >> 11) * 0x1p-53);
    if (t->fill == CHECK_SIGNALLING && bits % 5 == 0)
        return NAN;
    const double x = between(t, bits);
    const double half = t->fill == CHECK_HALVES ? rint(2 * x) / 2 : x;
    return half >= t->low && half <= t->high ? half : x;
}

void check_seeded(const check_case *planned, uint64_t seed, check_case *out)
{
    check_random r = { seed * UINT64_C(0x2545f4914f6cdd1d) + planned->number };
    *out = *planned;
    out->seed = (check_next(&r) & ~UINT64_C(1)) | (planned->seed & 1); /* which decides whether special values are extremes */
}

/* The bits of a NaN: all set, or those of infinity and the last. */
static void put_nan(void *element, dv_dtype dtype, bool all)
{
    check_put(element, 0, dtype, INFINITY);
    *(unsigned char *)element |= 1;
    if (all)
        memset(element, 0xff, (size_t)dv_dtype_bytes(dtype, 1));
}

static bool is_counted(const check_tensor *t, const int64_t *index)
{
    bool is = true;
    for (int32_t d = 0; d < t->ndim; d++)
        is &= t->shape[d] < 256 || index[d] < t->shape[d] / 256 * 256;
    return is;
}

void check_fill_tensor(const check_tensor *t, uint64_t seed, void *first, const int64_t *strides)
{
    check_random r = { seed };
    uint64_t special = check_next(&r);
    int64_t index[CHECK_DIMS] = { 0 };
    const int64_t n = check_numel(t), bytes = dv_dtype_bytes(t->dtype, 1);
    const bool integer = check_is_integer(t->dtype);
    dv_dtype part = t->dtype;
    const int parts = check_numbers_in(&part);
    const bool plain = t->fill == CHECK_RANDOM && !integer && parts == 1; /* the most frequent: the same numbers, sooner */
    const bool placed = check_is_placed(t);
    const uint64_t which = seed / 4 % CHECK_LONE_WAYS, place = which / CHECK_LONE_KINDS;
    const int64_t lone = seed % 4 != CHECK_LONE || !n ? -1 : !place ? 0 : place == 1 ? n - 1 : (int64_t)(special % (uint64_t)n);
    special = lone < 0 ? special : which;
    for (int64_t i = 0, at = 0; i < n; i++) {
        char *const element = (char *)first + at * bytes;
        const double x = plain         ? between(t, check_next(&r))
            : integer && placed        ? check_placed(t, seed, i)
            : t->fill == CHECK_COUNTED ? is_counted(t, index)
                                       : draw(t, &r, i, seed % 2, lone, &special);
        check_put(first, at * parts, part, x);
        if (parts == 2)
            check_put(first, at * 2 + 1, part, t->fill == CHECK_SPECIAL ? -x / 2 : draw(t, &r, i + 1, false, -1, &special));
        if (integer && t->dtype.bits == 64 && fabs(x) >= 0x1p53 &&
            (t->fill == CHECK_RANDOM || (x > t->low && x < t->high))) /* no double has its last bits */
            *(int64_t *)element = random_integer(t, &r);
        if (isnan(x) && check_is_float(t->dtype) && t->dtype.bits > 8 && (t->fill == CHECK_SIGNALLING || special % 2))
            put_nan(element, t->dtype, t->fill != CHECK_SIGNALLING);
        for (int32_t d = t->ndim; d-- > 0; index[d] = 0, at -= t->shape[d] * strides[d]) {
            at += strides[d];
            if (++index[d] < t->shape[d])
                break;
        }
    }
}

size_t check_tensor_argument(const check_case *c, size_t tensor)
{
    for (size_t i = 0; i < c->nargs; i++)
        if ((c->args[i].type == DV_VALUE_TENSOR || c->args[i].type == DV_VALUE_TENSORS) && tensor >= c->args[i].first &&
            tensor < (size_t)c->args[i].first + c->args[i].count)
            return i;
    return SIZE_MAX;
}

bool check_arguments_apart(const check_case *c) { return c->number * 0x9e3779b1u >> 31; }

int64_t check_case_largest(const check_case *c)
{
    int64_t most = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && check_numel(&c->tensors[i]) > most)
            most = check_numel(&c->tensors[i]);
    return most;
}

/* ---- Words ---- */

const char *check_result_name(const struct check_op *op, size_t r, char *buffer, size_t size)
{
    const char *name = op->slots[op->nargs + r].name;
    if (*name)
        snprintf(buffer, size, "result '%s'", name);
    else
        snprintf(buffer, size, "result %zu", r);
    return buffer;
}

void check_index_print(int32_t ndim, const int64_t *shape, int64_t element, char *out, size_t size)
{
    int64_t index[DV_MAX_NDIM];
    size_t n = 0;
    for (int32_t i = ndim; i-- > 0; element /= shape[i] ? shape[i] : 1)
        index[i] = shape[i] ? element % shape[i] : 0;
    *out = 0;
    for (int32_t i = 0; i < ndim && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? ", " : "", (long long)index[i]);
}

static const char *const layouts[][CHECK_FORMS] = {
#define LAYOUT(name, ...) [CHECK_##name] = { __VA_ARGS__ },
    CHECK_LAYOUTS(LAYOUT)
#undef LAYOUT
};

void check_print_number(double x, const void *data, int64_t i, dv_dtype dtype, int digits, char *out, size_t size)
{
    if (dtype.bits == 64 && dtype.code < 2) /* more digits than a double has */
        snprintf(out, size, dtype.code ? "%" PRIu64 : "%" PRId64, ((const int64_t *)data)[i]);
    else if (isnan(x))
        snprintf(out, size, "NaN");
    else
        snprintf(out, size, "%.*g", check_is_integer(dtype) ? 17 : digits, x);
}

/* Returns a new block with the contents of a tensor, contiguous unless its layout is expanded. strides: receives the strides in
 * elements. The caller frees the block. NULL: the tensor has no elements, more than MAX_PRINTED bytes, or a dtype that
 * check_get() does not read; or out of memory. */
static void *new_contents(const check_tensor *t, uint64_t seed, int64_t *strides)
{
    enum { MAX_PRINTED = 1 << 24 };
    check_tensor plain = *t;
    int64_t low, high;
    const int64_t n = check_numel(t), bytes = dv_dtype_bytes(t->dtype, n);
    if (n < 1 || t->dtype.bits < 8 || t->dtype.code == 5 || bytes > MAX_PRINTED)
        return NULL;
    plain.layout = t->layout == CHECK_EXPANDED ? t->layout : CHECK_CONTIGUOUS; /* which changes what the elements are */
    check_strides(&plain, strides, &low, &high);
    void *memory = calloc(1, (size_t)bytes);
    if (memory)
        check_fill_tensor(&plain, seed, memory, strides);
    return memory;
}

/* Returns the offset of an element from the first one, in elements. element: its number in row-major order. */
static int64_t position_of(const check_tensor *t, const int64_t *strides, int64_t element)
{
    int64_t at = 0;
    for (int32_t d = t->ndim; d-- > 0; element /= t->shape[d])
        at += element % t->shape[d] * strides[d];
    return at;
}

bool check_element_print(const check_case *c, size_t tensor, int64_t element, char *out, size_t size)
{
    const check_tensor *t = &c->tensors[tensor];
    int64_t strides[CHECK_DIMS];
    void *memory = check_numel(t) > PRINTED ? new_contents(t, c->seed + tensor, strides) : NULL;
    if (memory) {
        const int64_t at = position_of(t, strides, element);
        check_print_number(check_get(memory, at, t->dtype), memory, at, t->dtype, 9, out, size);
    }
    free(memory);
    return memory != NULL;
}

/* Prints all elements of a tensor that has at most PRINTED of them. False: the tensor has more, or they cannot be printed. */
static bool print_elements(const check_tensor *t, uint64_t seed, FILE *to)
{
    int64_t strides[CHECK_DIMS];
    char number[40];
    const int64_t n = check_numel(t);
    void *memory = n <= PRINTED ? new_contents(t, seed, strides) : NULL;
    for (int64_t i = 0; memory && i < n; i++) {
        const int64_t at = position_of(t, strides, i);
        check_print_number(check_get(memory, at, t->dtype), memory, at, t->dtype, 6, number, sizeof number);
        fprintf(to, "%s%s", i ? ", " : " {", number);
    }
    free(memory);
    return memory && fputs("}", to) >= 0;
}

/* Prints where a tensor too large for print_elements() has NaN or infinities, since these often cause the failure. Example: with
 * NaN at [0, 3] and at 2 more. */
static void print_special(const check_tensor *t, uint64_t seed, FILE *to)
{
    static const char *const names[] = { "NaN", "inf", "-inf" };
    int64_t strides[CHECK_DIMS], first[3], count[3] = { 0 };
    char index[200];
    const int64_t n = check_numel(t);
    void *memory = check_is_float(t->dtype) ? new_contents(t, seed, strides) : NULL;
    for (int64_t i = 0; memory && i < n; i++) {
        const double x = check_get(memory, position_of(t, strides, i), t->dtype);
        const int kind = isnan(x) ? 0 : isinf(x) ? (x > 0 ? 1 : 2) : -1;
        if (kind >= 0 && !count[kind]++)
            first[kind] = i;
    }
    free(memory);
    const char *separator = " with";
    for (int kind = 0; kind < 3; kind++) {
        if (!count[kind])
            continue;
        check_index_print(t->ndim, t->shape, first[kind], index, sizeof index);
        fprintf(to, "%s %s at [%s]", separator, names[kind], index);
        if (count[kind] > 1)
            fprintf(to, " and at %lld more", (long long)count[kind] - 1);
        separator = ",";
    }
}

static void print_tensor(const check_tensor *t, uint64_t seed, FILE *to)
{
    const double usual = check_is_integer(t->dtype) ? 100 : 2;
    if (!t->present) {
        fputs("None", to);
        return;
    }
    fprintf(to, "%s[", dv_dtype_name(t->dtype));
    for (int32_t i = 0; i < t->ndim; i++)
        fprintf(to, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    fputs("]", to);
    if (t->layout)
        fprintf(to, " (%s)", layouts[t->layout][form_of(t)]);
    if (print_elements(t, seed, to))
        return;
    print_special(t, seed, to);
    if (check_is_integer(t->dtype) && check_numel(t) && t->low == t->high && t->fill != CHECK_COUNTED) /* exact: both are whole */
        fprintf(to, " of %lld", (long long)t->low);
    else if (t->fill == CHECK_LAST && check_numel(t))
        fprintf(to, " ending in %lld", (long long)(t->high > -t->low ? t->high : t->low));
    else if ((t->fill == CHECK_RANDOM || t->fill == CHECK_SPREAD || t->fill == CHECK_BINADES) && check_numel(t) &&
        t->dtype.bits > 8 && fmax(fabs(t->low), fabs(t->high)) > usual)
        fprintf(to, " from %.17g to %.17g", t->low, t->high);
}

static void print_value(const check_case *c, const check_value *v, FILE *to)
{
    switch (v->type) {
    case DV_VALUE_TENSOR: print_tensor(&c->tensors[v->first], c->seed + v->first, to); return;
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
            print_tensor(&c->tensors[v->first + i], c->seed + v->first + i, to);
        else if (v->type == DV_VALUE_INTS)
            fprintf(to, "%lld", (long long)v->ints[i]);
        else if (v->type == DV_VALUE_STRINGS)
            fprintf(to, "\"%s\"", check_string_of(v, i));
        else if (v->type == DV_VALUE_BOOLS || (v->type == DV_VALUE_SCALARS && v->ints[i] == DV_SCALAR_BOOL))
            fputs((v->type == DV_VALUE_BOOLS ? v->ints[i] != 0 : v->floats[i] > 0) ? "True" : "False", to);
        else if (v->type == DV_VALUE_SCALARS && v->ints[i] == DV_SCALAR_FLOAT && v->floats[i] == rint(v->floats[i]))
            fprintf(to, "%.1f", v->floats[i]);
        else
            fprintf(to, "%.17g", v->floats[i]);
    }
    fputs("]", to);
}

void check_case_print(const struct check_op *op, const check_case *c, FILE *to)
{
    bool any = false;
    for (size_t i = 0; i < c->nargs; i++) {
        if (c->args[i].type == DV_VALUE_DEFAULT)
            continue;
        fprintf(to, "%s%s: ", any ? ", " : "", op->slots[i].name);
        print_value(c, &c->args[i], to);
        any = true;
    }
    if (!any)
        fputs("no arguments", to);
}

/* ---- Values ---- */

/* The address of tensors without contents: reading it causes a fault. */
static char *untouchable;

bool check_is_untouchable(const void *address)
{
    return untouchable && (const char *)address >= untouchable - UNTOUCHABLE && (const char *)address < untouchable + UNTOUCHABLE;
}

static void *untouchable_memory(void)
{
    void *p = untouchable ? NULL
                          : mmap(NULL, 2 * (size_t)UNTOUCHABLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p && p != MAP_FAILED)
        untouchable = (char *)p + UNTOUCHABLE;
    return untouchable;
}

static void set_tensor(check_values *v, const check_case *c, size_t i, dv_device device)
{
    int64_t low, high;
    const check_tensor *t = &c->tensors[i];
    check_strides(t, v->strides[i], &low, &high);
    v->tensors[i] = (dv_tensor){ .data = device.type == DV_META ? NULL : untouchable_memory(),
        .device = device,
        .ndim = t->ndim,
        .dtype = t->dtype,
        .shape = t->shape,
        .strides = v->strides[i] };
}

const char *check_string_of(const check_value *v, uint32_t k)
{
    const char *s = v->string;
    while (k-- > 0)
        s += strlen(s) + 1;
    return s;
}

dv_scalar check_scalar_of(const check_value *v, uint32_t k)
{
    dv_scalar s;
    memset(&s, 0, sizeof s);
    s.kind = (uint32_t)v->ints[k];
    if (s.kind == DV_SCALAR_INT)
        s.as.i = (int64_t)v->floats[k];
    else if (s.kind == DV_SCALAR_BOOL)
        s.as.b = v->floats[k] > 0;
    else
        s.as.f = v->floats[k];
    return s;
}

void check_values_make(check_values *v, const check_case *c, dv_device device)
{
    for (size_t i = 0; i < c->ntensors; i++)
        set_tensor(v, c, i, device);
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *a = &c->args[i];
        dv_value *to = &v->values[i];
        memset(to, 0, sizeof *to);
        to->type = a->type;
        switch (a->type) {
        case DV_VALUE_TENSOR: *to = dv_from_tensor(c->tensors[a->first].present ? &v->tensors[a->first] : NULL); break;
        case DV_VALUE_TENSORS:
            for (uint32_t k = 0; k < a->count; k++)
                v->lists[a->first + k] = c->tensors[a->first + k].present ? &v->tensors[a->first + k] : NULL;
            to->as.tensors = (dv_tensors){ &v->lists[a->first], a->count };
            break;
        case DV_VALUE_INT: to->as.i = a->as.i; break;
        case DV_VALUE_FLOAT: to->as.f = a->as.f; break;
        case DV_VALUE_BOOL: to->as.b = a->as.b; break;
        case DV_VALUE_COMPLEX: to->as.c = a->as.c; break;
        case DV_VALUE_STRING: *to = dv_from_string(a->string); break;
        case DV_VALUE_DTYPE: to->as.dtype = a->as.dtype; break;
        case DV_VALUE_DEVICE: to->as.device = a->as.device; break;
        case DV_VALUE_LAYOUT: to->as.layout.value = a->as.number; break;
        case DV_VALUE_MEMORY_FORMAT: to->as.memory_format.value = a->as.number; break;
        case DV_VALUE_INTS: to->as.ints = (dv_ints){ a->ints, a->count }; break;
        case DV_VALUE_FLOATS: to->as.floats = (dv_floats){ a->floats, a->count }; break;
        case DV_VALUE_BOOLS:
            for (uint32_t k = 0; k < a->count; k++)
                v->bools[i][k] = a->ints[k] != 0;
            to->as.bools = (dv_bools){ v->bools[i], a->count };
            break;
        case DV_VALUE_STRINGS:
            for (uint32_t k = 0; k < a->count; k++)
                v->strings[i][k] = dv_from_string(check_string_of(a, k)).as.s;
            to->as.strings = (dv_strings){ v->strings[i], a->count };
            break;
        case DV_VALUE_SCALARS:
            for (uint32_t k = 0; k < a->count; k++)
                v->scalars[i][k] = check_scalar_of(a, k);
            to->as.scalars = (dv_scalars){ v->scalars[i], a->count };
            break;
        default: break; /* DEFAULT, NONE */
        }
    }
}
