/* A call site: an operator with all of a call's arguments fixed, with its tensors given by dtype, shape, strides and device,
 * without memory until dv_site_alloc().
 *
 * As text, "my_ops::swiglu(gate=f32[4, 6] @ [1, 4] : cuda:0, up=none, dim=-1)". The form of a value follows from the argument's
 * type, and parsing a printed site gives an equal one. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "call/call.h"
#include "call/values.h"

/* The contents that the text gives a tensor, as numbers of its element type: n values in the order of the indices; for n == 0 a
 * range, or one value twice. */
typedef struct contents {
    dv_value low, high, *values;
    size_t n;
    bool is_range;
} contents;

typedef struct read_tensor { /* tensor as read from the text of a call site */
    dv_tensor t;
    contents *contents; /* NULL: none are given */
} read_tensor;

struct dv_site {
    dv_operator *op; /* with a reference */
    dv__arena arena; /* everything below */
    dv_value *args;  /* all of them: converted and completed */
    size_t ntensors, nmade;
    bool is_read;        /* true while tensors are added that were read from a text */
    contents **contents; /* contents of each tensor, in order, or NULL; NULL: the site was made from values */
    dv_tensor **made;    /* the tensors with memory; NULL: there are none */
};

static const char *const formats[] = { "contiguous_format", "preserve_format", "channels_last", "channels_last_3d" };
enum { FORMATS = sizeof formats / sizeof *formats };

/* X(list, member, its elements as values) */
#define LISTS(X)                     \
    X(TENSORS, tensors, TENSOR)      \
    X(INTS, ints, INT)               \
    X(FLOATS, floats, FLOAT)         \
    X(BOOLS, bools, BOOL)            \
    X(STRINGS, strings, STRING)      \
    X(SCALARS, scalars, DEFAULT)     \
    X(COMPLEXES, complexes, COMPLEX) \
    X(DTYPES, dtypes, DTYPE)         \
    X(DEVICES, devices, DEVICE)

static size_t element_size(uint32_t type)
{
    const dv_value *v = NULL;
    switch (type) {
#define SIZE(LIST, member, ELEMENT) \
    case DV_VALUE_##LIST: return sizeof v->as.member.data[0];
        LISTS(SIZE)
#undef SIZE
    default: return 0;
    }
}

/* The value type of an element of such a list; DV_VALUE_DEFAULT: a Scalar. */
static uint32_t element_type(uint32_t type)
{
    switch (type) {
#define TYPE(LIST, member, ELEMENT) \
    case DV_VALUE_##LIST: return DV_VALUE_##ELEMENT;
        LISTS(TYPE)
#undef TYPE
    default: return DV_VALUE_NONE;
    }
}

static dv_value from_scalar(const dv_scalar *s)
{
    dv_value v = s->kind == DV_SCALAR_INT ? dv_from_int(s->as.i)
        : s->kind == DV_SCALAR_FLOAT      ? dv_from_float(s->as.f)
        : s->kind == DV_SCALAR_BOOL       ? dv_from_bool(s->as.b)
                                          : dv_none();
    if (s->kind == DV_SCALAR_COMPLEX)
        v.type = DV_VALUE_COMPLEX, v.as.c = s->as.c;
    return v;
}

static dv_value element(const dv_value *list, size_t i)
{
    dv_value v = dv_none();
    switch (list->type) {
    case DV_VALUE_TENSORS: return dv_from_tensor(list->as.tensors.data[i]);
    case DV_VALUE_SCALARS: return from_scalar(&list->as.scalars.data[i]);
    case DV_VALUE_BOOLS: return dv_from_bool(list->as.bools.data[i]);
    default:
        v.type = element_type(list->type);
        memcpy(&v.as, (const char *)list->as.ints.data + i * element_size(list->type), element_size(list->type));
        return v;
    }
}

static void set_element(dv_value *list, size_t i, const dv_value *v)
{
    char *data = (char *)(uintptr_t)list->as.ints.data;
    dv_scalar s = { .kind = v->type == DV_VALUE_INT ? DV_SCALAR_INT
            : v->type == DV_VALUE_FLOAT             ? DV_SCALAR_FLOAT
            : v->type == DV_VALUE_BOOL              ? DV_SCALAR_BOOL
                                                    : DV_SCALAR_COMPLEX };
    switch (list->type) {
    case DV_VALUE_TENSORS: ((const dv_tensor **)(void *)data)[i] = v->type == DV_VALUE_TENSOR ? v->as.tensor : NULL; return;
    case DV_VALUE_SCALARS:
        memcpy(&s.as, &v->as, sizeof s.as);
        ((dv_scalar *)(void *)data)[i] = s;
        return;
    default: memcpy(data + i * element_size(list->type), &v->as, element_size(list->type)); return;
    }
}

static bool is_list(const dv_value *v) { return element_size(v->type) != 0; }

/* ---- Making one ---- */

static int keep_tensor(dv__arena *arena, const dv_tensor *t, const dv_tensor **out)
{
    dv_tensor *copy = DV__ARENA_NEW(arena, dv_tensor);
    int64_t *dims = DV__ARENA_ARRAY(arena, int64_t, 2 * (size_t)t->ndim + 1);
    if (!copy || !dims)
        return DV_ENOMEM;
    *copy = *t;
    for (int32_t i = 0; i < t->ndim; i++) {
        dims[i] = t->shape[i];
        dims[t->ndim + i] = t->strides[i];
    }
    copy->data = NULL;
    copy->shape = dims;
    copy->strides = dims + t->ndim;
    *out = copy;
    return DV_OK;
}

/* Grows a list in the arena so that element n fits. *data: the n elements so far, of `size` bytes each; replaced if the list
 * moves. DV_ENOMEM on failure. */
static int grow_list(dv__arena *arena, const void **data, size_t n, size_t size)
{
    if (n && (n & (n - 1))) /* no power of two: it has room */
        return DV_OK;
    void *grown = dv__arena_alloc(arena, (n ? 2 * n : 1) * size);
    if (!grown)
        return DV_ENOMEM;
    if (n)
        memcpy(grown, *data, n * size);
    *data = grown;
    return DV_OK;
}

static int keep_contents(dv_site *s, const dv_tensor *from)
{
    const void *all = s->contents;
    if (!s->is_read)
        return DV_OK;
    const int status = grow_list(&s->arena, &all, s->ntensors, sizeof *s->contents);
    if (!status) {
        s->contents = (contents **)(uintptr_t)all;
        s->contents[s->ntensors] = ((const read_tensor *)(const void *)from)->contents;
    }
    return status;
}

static int keep(dv_site *s, const dv_value *from, dv_value *to)
{
    *to = *from;
    if (from->type == DV_VALUE_TENSOR) {
        const int status = keep_contents(s, from->as.tensor);
        if (status)
            return status;
        s->ntensors++;
        return keep_tensor(&s->arena, from->as.tensor, &to->as.tensor);
    }
    if (from->type == DV_VALUE_STRING) {
        to->as.s.data = dv__arena_strndup(&s->arena, from->as.s.size ? from->as.s.data : "", from->as.s.size);
        return to->as.s.data ? DV_OK : DV_ENOMEM;
    }
    if (from->type == DV_VALUE_GENERATOR)
        return dv_fail(DV_ENOTSUP, "%s: a call site cannot keep a generator", s->op->name);
    if (!is_list(from))
        return DV_OK;
    if (!(to->as.ints.data = dv__arena_alloc(&s->arena, from->as.ints.size * element_size(from->type) + 1)))
        return DV_ENOMEM;
    for (size_t i = 0; i < from->as.ints.size; i++) {
        const dv_value was = element(from, i);
        dv_value now;
        const int status = keep(s, &was, &now);
        if (status)
            return status;
        set_element(to, i, &now);
    }
    return DV_OK;
}

static int fill(dv_site *s, const dv_value *args, size_t nargs)
{
    static dv_value no_results[DV__MAX_RETURNS]; /* nothing is called */
    dv__call c;
    uint32_t keys;
    int status = dv__call_init(&c, s->op, no_results, s->op->plan->nreturns, NULL, 0);
    if (status)
        return status;
    status = dv__bind_values(&c, args, nargs, &keys);
    for (size_t i = 0; i < s->op->plan->nargs && !status; i++)
        status = keep(s, &c.args[i], &s->args[i]);
    return dv__call_end(&c, status);
}

/* Give *made, or free it. */
static int finish(int status, dv_site *made, dv_site **out)
{
    if (status)
        dv_site_free(made);
    else
        *out = made;
    return status;
}

static dv_site *empty(dv_operator *op)
{
    dv_site *s = dv__calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->op = dv_operator_ref(op);
    if (!(s->args = DV__ARENA_ARRAY(&s->arena, dv_value, op->plan->nargs + 1))) {
        dv_site_free(s);
        return NULL;
    }
    return s;
}

int dv_site_new(dv_operator *op, const dv_value *args, size_t nargs, dv_site **out)
{
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    dv_site *s = empty(op);
    return s ? finish(fill(s, args, nargs), s, out) : DV_ENOMEM;
}

void dv_site_free(dv_site *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->nmade; i++)
        dv_tensor_unref(s->made[i]);
    dv_operator_unref(s->op);
    dv__arena_deinit(&s->arena);
    dv__free(s);
}

dv_operator *dv_site_operator(const dv_site *s) { return s ? s->op : NULL; }
const dv_value *dv_site_args(const dv_site *s) { return s ? s->args : NULL; }
size_t dv_site_ntensors(const dv_site *s) { return s ? s->ntensors : 0; }

/* ---- Memory ---- */

static double random_unit(uint64_t *state) /* splitmix64: the same contents every time */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static bool is_whole(dv_dtype t) { return t.code == 0 || t.code == 1 || t.code == 6; }

static double as_double(const dv_value *v)
{
    return v->type == DV_VALUE_INT ? (double)v->as.i : v->type == DV_VALUE_BOOL ? v->as.b : v->as.f;
}

static void put(const dv_tensor *t, int64_t at, const dv_value *v)
{
    if (t->dtype.code == 5) { /* complex: two floats of half the size */
        const dv_dtype part = { 2, t->dtype.bits / 2, 1 };
        dv_element_put(t->data, 2 * at, part, v->type == DV_VALUE_COMPLEX ? v->as.c.re : as_double(v));
        dv_element_put(t->data, 2 * at + 1, part, v->type == DV_VALUE_COMPLEX ? v->as.c.im : 0);
    } else if (t->dtype.bits == 64 && v->type == DV_VALUE_INT && is_whole(t->dtype)) {
        ((int64_t *)t->data)[at] = v->as.i; /* a double would lose the low bits */
    } else {
        dv_element_put(t->data, at, t->dtype, as_double(v));
    }
}

/* A number of a range: an integer for integers, else a double. */
static dv_value between(const contents *c, bool whole, double unit)
{
    if (!whole)
        return dv_from_float(as_double(&c->low) + unit * (as_double(&c->high) - as_double(&c->low)));
    const uint64_t span = (uint64_t)c->high.as.i - (uint64_t)c->low.as.i, step = (uint64_t)(unit * (double)span);
    return dv_from_int((int64_t)((uint64_t)c->low.as.i + (step < span ? step : span - 1)));
}

static void fill_elements(const dv_tensor *t, const contents *c, uint64_t seed)
{
    const bool boolean = t->dtype.code == 6, whole = is_whole(t->dtype);
    const contents made = { .low = whole ? dv_from_int(0) : dv_from_float(-1),
        .high = whole ? dv_from_int(2) : dv_from_float(1),
        .is_range = !whole || boolean };
    c = c ? c : &made;
    const int64_t n = dv_numel(t);
    for (int64_t i = 0; i < n; i++) {
        const dv_value v = c->n ? c->values[i] : c->is_range ? between(c, whole, random_unit(&seed)) : c->low;
        int64_t at = 0, rest = i;
        for (int32_t d = t->ndim; d-- > 0; rest /= t->shape[d])
            at += rest % t->shape[d] * t->strides[d];
        put(t, at, &v);
    }
}

static int alloc_tensor(dv_site *s, const dv_tensor **t)
{
    const contents *c = s->contents ? s->contents[s->nmade] : NULL;
    dv_tensor **made = &s->made[s->nmade];
    if ((*t)->device.type != DV_CPU)
        return dv_fail(DV_EDEVICE, "%s: a call site allocates tensors on the CPU, this one is on %s", s->op->name,
            dv_device_name((*t)->device.type));
    const int status = dv__tensor_new_strided((*t)->dtype, (*t)->ndim, (*t)->shape, (*t)->strides, true, made);
    if (status)
        return dv__fail_in(status, "%s", s->op->name);
    fill_elements(*made, c, s->nmade++);
    *t = *made;
    return DV_OK;
}

int dv_site_alloc(dv_site *s)
{
    DV__REQUIRE(s, "call site");
    int status = DV_OK;
    if (s->nmade < s->ntensors && !s->made && !(s->made = DV__ARENA_ARRAY(&s->arena, dv_tensor *, s->ntensors)))
        return DV_ENOMEM;
    for (size_t i = 0, met = 0; i < s->op->plan->nargs; i++) {
        dv_value *v = &s->args[i];
        const bool list = v->type == DV_VALUE_TENSORS;
        const dv_tensor **all = list ? (const dv_tensor **)(uintptr_t)v->as.tensors.data : &v->as.tensor;
        for (size_t k = 0, n = list ? v->as.tensors.size : v->type == DV_VALUE_TENSOR; k < n && !status; k++)
            if (all[k] && met++ >= s->nmade)
                status = alloc_tensor(s, &all[k]);
    }
    return status;
}

/* ---- Printing ---- */

static void print_sizes(dv__text *to, int32_t n, const int64_t *sizes)
{
    dv__text_puts(to, "[");
    for (int32_t i = 0; i < n; i++)
        dv__text_add(to, i ? ", %lld" : "%lld", (long long)sizes[i]);
    dv__text_puts(to, "]");
}

/* Prints a value. s: its site; number: the count of tensors printed before. Both are NULL for values without tensors. */
static void print_value(dv__text *to, const dv_site *s, size_t *number, const dv_value *v);

static void print_contents(dv__text *to, const contents *c)
{
    dv__text_puts(to, c->n ? " = [" : " = ");
    for (size_t i = 0; i < c->n; i++) {
        dv__text_puts(to, i ? ", " : "");
        print_value(to, NULL, NULL, &c->values[i]);
    }
    if (!c->n)
        print_value(to, NULL, NULL, &c->low);
    if (!c->n && c->is_range) {
        dv__text_puts(to, "..");
        print_value(to, NULL, NULL, &c->high);
    }
    dv__text_puts(to, c->n ? "]" : "");
}

static void print_tensor(dv__text *to, const dv_site *s, size_t number, const dv_tensor *t)
{
    const contents *c = s->contents ? s->contents[number] : NULL;
    dv__text_puts(to, dv_dtype_name(t->dtype));
    print_sizes(to, t->ndim, t->shape);
    int64_t step = 1;
    bool plain = true; /* exactly the strides of a new tensor, also in dims of size 0 or 1 */
    for (int32_t i = t->ndim; i-- > 0; step *= t->shape[i] ? t->shape[i] : 1)
        plain &= t->strides[i] == step;
    if (!plain) {
        dv__text_puts(to, " @ ");
        print_sizes(to, t->ndim, t->strides);
    }
    if (t->device.type != DV_CPU || t->device.id)
        dv__text_add(to, " : %s:%d", dv_device_name(t->device.type), (int)t->device.id);
    if (c)
        print_contents(to, c);
}

/* The shortest text that reads back to the same value, and never that of an integer. */
static void print_float(dv__text *to, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    if (strtod(text, NULL) != x)
        snprintf(text, sizeof text, "%.17g", x);
    dv__text_puts(to, isnan(x) ? "nan" : text);
    if (isfinite(x) && !strpbrk(text, ".e"))
        dv__text_puts(to, ".0");
}

static void print_string(dv__text *to, dv_string s)
{
    dv__text_puts(to, "\"");
    for (size_t i = 0; i < s.size; i++) {
        const unsigned char c = (unsigned char)s.data[i];
        if (c == '"' || c == '\\')
            dv__text_add(to, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            dv__text_add(to, "\\x%02x", c);
        else
            dv__text_put(to, &s.data[i], 1);
    }
    dv__text_puts(to, "\"");
}

static void print_value(dv__text *to, const dv_site *s, size_t *number, const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_TENSOR: print_tensor(to, s, (*number)++, v->as.tensor); return;
    case DV_VALUE_INT: dv__text_add(to, "%lld", (long long)v->as.i); return;
    case DV_VALUE_FLOAT: print_float(to, v->as.f); return;
    case DV_VALUE_BOOL: dv__text_puts(to, v->as.b ? "true" : "false"); return;
    case DV_VALUE_COMPLEX:
        print_float(to, v->as.c.re);
        dv__text_puts(to, signbit(v->as.c.im) && !isnan(v->as.c.im) ? "" : "+");
        print_float(to, v->as.c.im);
        dv__text_puts(to, "j");
        return;
    case DV_VALUE_STRING: print_string(to, v->as.s); return;
    case DV_VALUE_DTYPE: dv__text_puts(to, dv_dtype_name(v->as.dtype)); return;
    case DV_VALUE_DEVICE: dv__text_add(to, "%s:%d", dv_device_name(v->as.device.type), (int)v->as.device.id); return;
    case DV_VALUE_LAYOUT: dv__text_add(to, v->as.layout.value ? "layout:%d" : "strided", (int)v->as.layout.value); return;
    case DV_VALUE_MEMORY_FORMAT:
        if (v->as.memory_format.value >= 0 && v->as.memory_format.value < FORMATS)
            dv__text_puts(to, formats[v->as.memory_format.value]);
        else
            dv__text_add(to, "format:%d", (int)v->as.memory_format.value);
        return;
    default: break;
    }
    if (!is_list(v)) {
        dv__text_puts(to, "none");
        return;
    }
    dv__text_puts(to, "[");
    for (size_t i = 0; i < v->as.ints.size; i++) {
        const dv_value one = element(v, i);
        dv__text_puts(to, i ? ", " : "");
        print_value(to, s, number, &one);
    }
    dv__text_puts(to, "]");
}

int dv_site_print(const dv_site *s, char **out)
{
    dv__text to = { 0 };
    size_t number = 0;
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(s, "call site");
    dv__text_add(&to, "%s(", s->op->name);
    for (size_t i = 0; i < s->op->plan->nargs; i++) {
        dv__text_add(&to, "%s%s=", i ? ", " : "", s->op->schema->args[i].name);
        print_value(&to, s, &number, &s->args[i]);
    }
    dv__text_puts(&to, ")");
    return dv__text_take(&to, out);
}

/* ---- Parsing ---- */

typedef struct reader {
    const char *text, *p;
    dv_site *site; /* what is read lies in its arena */
    const dv_operator *op;
    const char *argument; /* NULL: before them */
} reader;

static int wrong(const reader *r, const char *expected)
{
    const char *name = r->op ? r->op->name : "a call site";
    return dv_fail(DV_ESYNTAX, "%s: %s%s%scolumn %d: expected %s, found %s%.20s%s\n    %s", name, r->argument ? "argument '" : "",
        r->argument ? r->argument : "", r->argument ? "': " : "", (int)(r->p - r->text) + 1, expected, *r->p ? "'" : "the end",
        r->p, *r->p ? "'" : "", r->text);
}

static void skip(reader *r) { r->p += strspn(r->p, " \t\r\n"); }

static bool take(reader *r, char c)
{
    skip(r);
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

static size_t word_size(const char *p) { return strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"); }

static bool take_word(reader *r, const char *word)
{
    skip(r);
    const size_t n = strlen(word);
    if (strncmp(r->p, word, n) != 0 || word_size(r->p) != n)
        return false;
    r->p += n;
    return true;
}

static int read_int(reader *r, int64_t *out, const char *expected)
{
    char *end;
    skip(r);
    errno = 0;
    const long long x = strtoll(r->p, &end, 10);
    if (end == r->p || errno || isspace((unsigned char)*r->p))
        return wrong(r, expected);
    *out = x;
    r->p = end;
    return DV_OK;
}

/* Takes the bracket that begins a list: "[1, 2]" or, as Python writes tuples, "(1, 2)". Returns the bracket that ends the list;
 * 0: no list begins here. */
static char take_opening(reader *r) { return take(r, '[') ? ']' : take(r, '(') ? ')' : 0; }

/* Takes the comma before element i of a list, and the closing bracket if it follows, also after a comma. *ended: true if the list
 * has ended. Fails if both are missing. */
static int read_separator(reader *r, size_t i, char closing, bool *ended)
{
    const bool comma = i && take(r, ',');
    *ended = take(r, closing);
    return *ended || !i || comma ? DV_OK : wrong(r, closing == ']' ? "',' or ']'" : "',' or ')'");
}

static int read_sizes(reader *r, int64_t *out, int32_t *n)
{
    bool ended = false;
    const char closing = take_opening(r);
    *n = 0;
    if (!closing)
        return wrong(r, "'['");
    for (;;) {
        int status = read_separator(r, (size_t)*n, closing, &ended);
        if (status || ended)
            return status;
        if (*n == DV_MAX_NDIM)
            return wrong(r, "at most 64 dims");
        if ((status = read_int(r, &out[(*n)++], "a size")))
            return status;
    }
}

static int read_device(reader *r, dv_device *out)
{
    char name[64];
    skip(r);
    size_t n = word_size(r->p);
    if (n && r->p[n] == ':')
        n += 1 + strspn(r->p + n + 1, "0123456789");
    snprintf(name, sizeof name, "%.*s", (int)n, r->p);
    if (!n || n >= sizeof name || dv_device_parse(name, out))
        return wrong(r, "a device such as cpu or cuda:1");
    r->p += n;
    return DV_OK;
}

static int read_dtype(reader *r, dv_dtype *out)
{
    char name[64];
    skip(r);
    const size_t n = word_size(r->p);
    snprintf(name, sizeof name, "%.*s", (int)n, r->p);
    if (!n || n >= sizeof name || dv_dtype_parse(name, out))
        return wrong(r, "an element type such as f32");
    r->p += n;
    return DV_OK;
}

static int read_float(reader *r, double *out)
{
    char *end;
    skip(r);
    errno = 0;
    if (isspace((unsigned char)*r->p) || ((*out = strtod(r->p, &end)), end == r->p))
        return wrong(r, "a number");
    if (errno && isinf(*out))
        return wrong(r, "a number that fits a double");
    r->p = end - (end[-1] == '.' && *end == '.'); /* of "0..8" strtod() takes the first dot */
    return DV_OK;
}

/* 3, 3.0, 1.5+2j, 2j, true: the type follows from the text. */
static int read_number(reader *r, dv_value *out)
{
    double re, im;
    if (take_word(r, "true") || take_word(r, "True"))
        return *out = dv_from_bool(true), DV_OK;
    if (take_word(r, "false") || take_word(r, "False"))
        return *out = dv_from_bool(false), DV_OK;
    skip(r);
    const char *begin = r->p;
    int status = read_float(r, &re);
    if (status)
        return status;
    if (*r->p == 'j' || ((*r->p == '+' || *r->p == '-') && strchr("0123456789.in", r->p[1]))) {
        const bool both = *r->p != 'j';
        im = re;
        if (both && (status = read_float(r, &im)))
            return status;
        if (*r->p++ != 'j')
            return r->p--, wrong(r, "'j' after the imaginary part");
        *out = dv_none();
        out->type = DV_VALUE_COMPLEX;
        out->as.c = (dv_complex){ both ? re : 0, im };
        return DV_OK;
    }
    *out = dv_from_float(re);
    bool whole = true;
    for (const char *at = begin; at < r->p; at++)
        whole = whole && !strchr(".eEinxX", *at);
    if (whole) {
        int64_t i;
        r->p = begin;
        if (!(status = read_int(r, &i, "an integer of 64 bits")))
            *out = dv_from_int(i);
    }
    return status;
}

static double as_element(dv_dtype t, double x)
{
    double room[2] = { 0 };
    dv_element_put(room, 0, t, x);
    return dv_element_get(room, 0, t);
}

/* Is a number not merely rounded: a finite one infinite as an element, or of a type without infinities, NaN, zero or signs the
 * nearest number that the type has? */
static bool is_out_of_range(dv_dtype t, double x)
{
    const double y = as_element(t, x);
    const dv_dtype_row *row = dv_dtype_find(t);
    int exponent;
    if (!isfinite(x) || !isfinite(y))
        return !(x == y || (isnan(x) && isnan(y)));
    (void)frexp(y, &exponent);
    const double half = row ? ldexp(1, exponent - row->mantissa - 2) : 0; /* half a unit */
    return y != 0 && (x == 0 || (x < 0) != (y < 0) || (fabs(x) > fabs(y) + half && as_element(t, 2 * x) == y));
}

/* A number that the element type can hold: an integer in its range for integers, complex only for complex. The end of a range
 * may be one past the largest. */
static int read_element(reader *r, dv_dtype t, bool is_end, dv_value *out)
{
    skip(r);
    const char *begin = r->p;
    const int status = read_number(r, out);
    if (status)
        return status;
    const unsigned bits = t.code == 6 ? 1 : t.code == 0 ? t.bits - 1u : t.bits;
    const int64_t most = bits < 63 ? (INT64_C(1) << bits) - 1 : INT64_MAX, least = t.code == 0 ? -most - 1 : 0;
    const int64_t i = out->type == DV_VALUE_BOOL ? out->as.b : out->as.i;
    char expected[64] = "a real number";
    if (is_whole(t) && ((out->type != DV_VALUE_INT && out->type != DV_VALUE_BOOL) || i < least || i - (is_end && i > 0) > most))
        snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)least, (long long)most);
    else if (!is_whole(t) &&
        (out->type == DV_VALUE_COMPLEX && t.code == 5 ? is_out_of_range(t, out->as.c.re) || is_out_of_range(t, out->as.c.im)
                                                      : out->type != DV_VALUE_COMPLEX && is_out_of_range(t, as_double(out))))
        snprintf(expected, sizeof expected, "a number that %s can hold", dv_dtype_name(t));
    else if (is_whole(t) || t.code == 5 || out->type != DV_VALUE_COMPLEX)
        return DV_OK;
    r->p = begin;
    return wrong(r, expected);
}

/* After "=": "3", "0..8", "[1, 2, 3]". */
static int read_contents(reader *r, const dv_tensor *t, contents **out)
{
    contents *c = DV__ARENA_NEW(&r->site->arena, contents);
    int status;
    if (!c)
        return DV_ENOMEM;
    *out = c;
    const char closing = take_opening(r);
    for (bool ended = false; closing && !ended;) {
        const void *values = c->values;
        if ((status = read_separator(r, c->n, closing, &ended)) ||
            (!ended && (status = grow_list(&r->site->arena, &values, c->n, sizeof *c->values))))
            return status;
        c->values = (dv_value *)(uintptr_t)values;
        if (!ended && (status = read_element(r, t->dtype, false, &c->values[c->n++])))
            return status;
    }
    if (closing)
        return (int64_t)c->n == dv_numel(t) ? DV_OK : wrong(r, "as many values as elements");
    if ((status = read_element(r, t->dtype, false, &c->low)))
        return status;
    c->high = c->low;
    if (strncmp(r->p, "..", 2) != 0)
        return DV_OK;
    r->p += 2;
    if ((status = read_element(r, t->dtype, true, &c->high)))
        return status;
    c->is_range = true;
    const bool complex = c->low.type == DV_VALUE_COMPLEX || c->high.type == DV_VALUE_COMPLEX;
    const bool above = c->low.type == DV_VALUE_INT && c->high.type == DV_VALUE_INT ? c->low.as.i < c->high.as.i
                                                                                   : as_double(&c->low) < as_double(&c->high);
    return above && !complex ? DV_OK : wrong(r, "a range of real numbers that ends above its beginning");
}

static int read_one_tensor(reader *r, dv_value *out)
{
    read_tensor *x = DV__ARENA_NEW(&r->site->arena, read_tensor);
    dv_tensor *t = x ? &x->t : NULL;
    int64_t *dims = DV__ARENA_ARRAY(&r->site->arena, int64_t, 2 * DV_MAX_NDIM);
    dv_dtype dtype;
    dv_device device = { DV_CPU, 0 };
    int32_t ndim, nstrides = -1;
    if (!t || !dims)
        return DV_ENOMEM;
    int status = read_dtype(r, &dtype);
    if (status || (status = read_sizes(r, dims, &ndim)))
        return status;
    if (take(r, '@') && (status = read_sizes(r, dims + DV_MAX_NDIM, &nstrides)))
        return status;
    if (nstrides >= 0 && nstrides != ndim)
        return wrong(r, "as many strides as sizes");
    if (take(r, ':') && (status = read_device(r, &device)))
        return status;
    status = dv_tensor_init(t, NULL, dtype, device, ndim, dims, nstrides < 0 ? NULL : dims + DV_MAX_NDIM, dims + DV_MAX_NDIM);
    if (status)
        return dv__fail_in(status, "%s: argument '%s'", r->op->name, r->argument);
    *out = dv_from_tensor(t);
    return take(r, '=') ? read_contents(r, t, &x->contents) : DV_OK;
}

static int hex(char c) { return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : -1; }

static int read_string(reader *r, dv_value *out)
{
    skip(r);
    const char quote = *r->p;
    const size_t bare = isdigit((unsigned char)quote) || !word_size(r->p) ? 0 : strcspn(r->p, ",()[]{}'\" \t\r\n");
    size_t n = 0, size = bare;
    while (!bare && r->p[size] && (!size || r->p[size] != quote))
        size += r->p[size] == '\\' && r->p[size + 1] ? 2 : 1;
    char *data = dv__arena_strndup(&r->site->arena, r->p, size);
    if (!data)
        return DV_ENOMEM;
    *out = dv_from_string(data);
    if (bare)
        return r->p += bare, DV_OK;
    if (quote != '"' && quote != '\'')
        return wrong(r, "a word, or a string in quotes");
    for (r->p++; *r->p != quote; r->p++) {
        if (!*r->p)
            return wrong(r, "a closing quote");
        data[n] = *r->p;
        if (*r->p == '\\') {
            const bool code = r->p[1] == 'x' && hex(r->p[2]) >= 0 && hex(r->p[3]) >= 0;
            if (!code && (!r->p[1] || !strchr("\\\"'", r->p[1])))
                return wrong(r, "\\\\, \\\" or \\x and two digits after a backslash");
            data[n] = code ? (char)(hex(r->p[2]) * 16 + hex(r->p[3])) : r->p[1];
            r->p += code ? 3 : 1;
        }
        n++;
    }
    r->p++;
    data[n] = 0;
    out->as.s.size = n;
    return DV_OK;
}

static int read_named_number(reader *r, const char *prefix, int32_t *out)
{
    int64_t i;
    skip(r);
    const size_t n = strlen(prefix);
    if (strncmp(r->p, prefix, n) != 0)
        return wrong(r, *prefix == 'l' ? "strided" : "a memory format such as contiguous_format");
    r->p += n;
    const int status = read_int(r, &i, "a number");
    *out = (int32_t)i;
    return status;
}

static int read_value(reader *r, uint32_t type, dv_value *out)
{
    *out = dv_none();
    int status = DV_OK;
    switch (type) {
    case DV_VALUE_TENSOR: return read_one_tensor(r, out);
    case DV_VALUE_STRING: return read_string(r, out);
    case DV_VALUE_DTYPE: status = read_dtype(r, &out->as.dtype); break;
    case DV_VALUE_DEVICE: status = read_device(r, &out->as.device); break;
    case DV_VALUE_LAYOUT:
        if (!take_word(r, "strided"))
            status = read_named_number(r, "layout:", &out->as.layout.value);
        break;
    case DV_VALUE_MEMORY_FORMAT:
        for (int32_t i = 0; i < FORMATS; i++)
            if (take_word(r, formats[i])) {
                out->type = type;
                out->as.memory_format.value = i;
                return DV_OK;
            }
        status = read_named_number(r, "format:", &out->as.memory_format.value);
        break;
    case DV_VALUE_GENERATOR: return wrong(r, "none: a generator cannot be written");
    default: return read_number(r, out);
    }
    out->type = type;
    return status;
}

static int read_list(reader *r, uint32_t type, bool optional, dv_value *out)
{
    const char *begin = r->p, closing = take_opening(r);
    *out = dv_none();
    out->type = type;
    out->as.ints.data = NULL;
    out->as.ints.size = 0;
    if (!closing)
        return wrong(r, "a list such as [1, 2]");
    for (;;) {
        dv_value one = dv_none();
        bool ended = false;
        const void *data = out->as.ints.data;
        int status = read_separator(r, out->as.ints.size, closing, &ended);
        if (status || ended || (status = grow_list(&r->site->arena, &data, out->as.ints.size, element_size(type))))
            return status;
        out->as.ints.data = data;
        begin = r->p;
        if (!(optional && (take_word(r, "none") || take_word(r, "None"))))
            status = read_value(r, element_type(type), &one);
        if (status)
            return status;
        if (type == DV_VALUE_FLOATS && one.type == DV_VALUE_INT)
            one = dv_from_float((double)one.as.i);
        if (type == DV_VALUE_COMPLEXES && (one.type == DV_VALUE_INT || one.type == DV_VALUE_FLOAT)) {
            const double re = one.type == DV_VALUE_INT ? (double)one.as.i : one.as.f;
            one.type = DV_VALUE_COMPLEX;
            one.as.c = (dv_complex){ re, 0 };
        }
        if (type != DV_VALUE_TENSORS && type != DV_VALUE_SCALARS && one.type != element_type(type)) {
            r->p = begin;
            return wrong(r, type == DV_VALUE_INTS ? "an integer" : type == DV_VALUE_BOOLS ? "true or false" : "a number");
        }
        set_element(out, out->as.ints.size++, &one);
    }
}

static int read_argument(reader *r, size_t i, dv_value *out)
{
    const dv__slot *slot = &r->op->plan->slots[i];
    r->argument = r->op->schema->args[i].name;
    skip(r);
    const char *begin = r->p;
    const bool none = take_word(r, "none") || take_word(r, "None"), other = !none && take_word(r, "default");
    if (slot->value == DV_VALUE_STRING &&
        ((none && !(slot->flags & DV__SLOT_OPTIONAL)) || (other && !(slot->flags & DV__SLOT_DEFAULT))))
        return dv_fail(DV_ETYPE, "%s: argument '%s': expected str, found %s; the text is written \"%.*s\", with its quotes",
            r->op->name, r->argument, none ? "None" : "no default", (int)(r->p - begin), begin);
    if (none || other)
        return *out = none ? dv_none() : dv_default(), DV_OK;
    if ((slot->flags & DV__SLOT_LIST) && (*r->p == '[' || *r->p == '(' || slot->fixed_size < 0))
        return read_list(r, slot->value, slot->flags & DV__SLOT_ELEMENT_OPTIONAL, out);
    return read_value(r, slot->flags & DV__SLOT_LIST ? element_type(slot->value) : slot->value, out);
}

/* "name=" of an argument, or the next one. */
static int which(reader *r, size_t *next, const bool *given, size_t *out)
{
    skip(r);
    const size_t n = word_size(r->p);
    const char *after = r->p + n + strspn(r->p + n, " ");
    r->argument = NULL;
    if (n && *after == '=') {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)n, r->p);
        const int found = dv__schema_arg(r->op->schema, name);
        if (found < 0)
            return wrong(r, "an argument's name");
        *out = (size_t)found;
        r->p = after + 1;
    } else {
        *out = (*next)++;
        if (*out >= r->op->plan->nargs)
            return wrong(r, "')': there are no more arguments");
    }
    return given[*out] ? wrong(r, "an argument that is not given twice") : DV_OK;
}

static int read_arguments(reader *r, dv_value *args)
{
    const size_t n = r->op->plan->nargs;
    bool *given = DV__ARENA_ARRAY(&r->site->arena, bool, n + 1);
    size_t next = 0, at = 0;
    if (!given)
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        args[i] = dv_default();
    for (bool any = false; !take(r, ')'); any = true) {
        if (any && !take(r, ','))
            return wrong(r, "',' or ')'");
        int status = which(r, &next, given, &at);
        if (status || (status = read_argument(r, at, &args[at])))
            return status;
        given[at] = true;
    }
    skip(r);
    r->argument = NULL;
    return *r->p ? wrong(r, "the end") : DV_OK;
}

static int parse(reader *r, dv_operator *op, dv_site **out)
{
    r->op = op;
    if (!(r->site = empty(op)))
        return DV_ENOMEM;
    dv_value *args = DV__ARENA_ARRAY(&r->site->arena, dv_value, op->plan->nargs + 1);
    int status = args ? read_arguments(r, args) : DV_ENOMEM;
    r->site->is_read = true;
    if (!status)
        status = fill(r->site, args, op->plan->nargs);
    return finish(status, r->site, out);
}

/* Read the name, and the operator of that name unless there is one already. */
static int parse_call(dv_operator *op, const char *text, dv_site **out)
{
    reader r = { .text = text, .p = text };
    dv_operator *named = NULL;
    skip(&r);
    char *name = dv__strndup(r.p, strcspn(r.p, "( \t\r\n"));
    if (!name)
        return DV_ENOMEM;
    r.p += strlen(name);
    int status = !take(&r, '(') ? wrong(&r, "'(' after the operator's name") : op ? DV_OK : dv_find(name, &named);
    dv__free(name);
    if (!status)
        status = parse(&r, op ? op : named, out);
    dv_operator_unref(named);
    return status;
}

int dv_site_parse(const char *text, dv_site **out)
{
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(text, "text");
    return parse_call(NULL, text, out);
}

int dv_site_parse_for(dv_operator *op, const char *text, dv_site **out)
{
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    DV__REQUIRE(text, "text");
    return parse_call(op, text, out);
}

/* ---- Using one ---- */

int dv_site_infer(const dv_site *s, dv_result_spec *specs, size_t nspecs)
{
    DV__REQUIRE(s, "call site");
    return dv_infer(s->op, s->args, s->op->plan->nargs, specs, nspecs);
}

static int put_tensors(const dv_site *s, const dv_tensor *const *tensors, dv__arena *arena, dv_value *args)
{
    size_t used = 0;
    for (size_t i = 0; i < s->op->plan->nargs; i++) {
        args[i] = s->args[i];
        if (args[i].type == DV_VALUE_TENSOR)
            args[i] = (dv_value){ .type = DV_VALUE_TENSOR, .as.tensor = tensors[used++] };
        if (args[i].type != DV_VALUE_TENSORS)
            continue;
        const dv_tensors was = args[i].as.tensors;
        const dv_tensor **now = DV__ARENA_ARRAY(arena, const dv_tensor *, was.size + 1);
        if (!now)
            return DV_ENOMEM;
        for (size_t k = 0; k < was.size; k++)
            now[k] = was.data[k] ? tensors[used++] : NULL;
        args[i].as.tensors.data = now;
    }
    assert(used == s->ntensors);
    return DV_OK;
}

int dv_site_call(
    const dv_site *s, const dv_tensor *const *tensors, size_t ntensors, dv_value *results, size_t nresults, const dv_host *host)
{
    dv__arena arena = { NULL };
    DV__REQUIRE(s, "call site");
    if (ntensors != s->ntensors || (ntensors && !tensors))
        return dv_fail(DV_EINVAL, "%s: this call site takes %zu tensors, found %zu", s->op->name, s->ntensors, ntensors);
    dv_value *args = DV__ARENA_ARRAY(&arena, dv_value, s->op->plan->nargs + 1);
    int status = args ? put_tensors(s, tensors, &arena, args) : DV_ENOMEM;
    if (!status)
        status = dv_call(s->op, args, s->op->plan->nargs, results, nresults, host);
    dv__arena_deinit(&arena);
    return status;
}
