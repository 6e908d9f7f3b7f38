/* A call site: an operator with all of a call's arguments fixed, with its tensors given by dtype, shape, strides and device,
 * without memory until dv_site_alloc().
 *
 * A site's text: "my_ops::swiglu(gate=f32[4, 6] @ [1, 4] : cuda:0, up=none, dim=-1)". The schema's type of an argument decides
 * how its value is written. A site parsed from a printed text is equal to the printed site. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "call/call.h"
#include "call/bind.h"

/* Contents that a site's text gives a tensor, as numbers of the element type: n values in row-major order. n 0: random
 * values from `low` to `high` if is_range, else `low` for every element. */
typedef struct site_contents {
    dv_value low, high, *values;
    size_t n;
    bool is_range;
} site_contents;

typedef struct parsed_tensor { /* a tensor that was read from the text of a call site */
    dv_tensor t;
    site_contents *contents; /* the contents in the text; NULL: none */
} parsed_tensor;

struct dv_site {
    dv_operator *op; /* the operator; the site holds a reference */
    dv__arena arena; /* memory of the following fields */
    dv_value *args;  /* all arguments, with defaults and after conversions */
    size_t ntensors, nallocated;
    bool is_parsed; /* true while tensors are added that were read from a text */
    site_contents *
        *contents; /* by tensor: its contents in the text; NULL: none. The array is NULL if the site was made from values */
    dv_tensor **allocated; /* tensors with memory, made by dv_site_alloc(); NULL: none */
};

static const char *const memory_format_names[] = { "contiguous_format", "preserve_format", "channels_last", "channels_last_3d" };
enum { NMEMORY_FORMATS = sizeof memory_format_names / sizeof *memory_format_names };

/* Returns the row of the elements of a list of this value type. */
static const dv_field_row *site_get_element_row(uint32_t list_type) { return dv_field_at(dv_field_of_value(list_type)->of); }

static void site_set_element(dv_value *list, size_t i, const dv_value *v)
{
    const size_t size = site_get_element_row(list->type)->size;
    const dv_scalar s = dv_to_scalar(v);
    memcpy((char *)(uintptr_t)list->as.ints.data + i * size, list->type == DV_VALUE_SCALARS ? (const void *)&s : &v->as, size);
}

/* ---- Making one ---- */

static int site_copy_tensor(dv__arena *arena, const dv_tensor *t, const dv_tensor **out)
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

/* Grows a list in the arena so that it has memory for one more element. *data: the `used` elements so far, of element_size
 * bytes each; replaced if the list moves. Fails with DV_ENOMEM. */
static int site_reserve_element(dv__arena *arena, const void **data, size_t used, size_t element_size)
{
    if (used && (used & (used - 1))) /* unless n is a power of two, the list has a free element */
        return DV_OK;
    void *grown = dv__arena_alloc(arena, (used ? 2 * used : 1) * element_size);
    if (!grown)
        return DV_ENOMEM;
    if (used)
        memcpy(grown, *data, used * element_size);
    *data = grown;
    return DV_OK;
}

/* Appends the contents of a parsed tensor to the site's list of contents; does nothing for a site made from values. */
static int site_store_parsed_contents(dv_site *s, const dv_tensor *parsed)
{
    const void *all = s->contents;
    if (!s->is_parsed)
        return DV_OK;
    const int status = site_reserve_element(&s->arena, &all, s->ntensors, sizeof *s->contents);
    if (!status) {
        s->contents = (site_contents **)(uintptr_t)all;
        s->contents[s->ntensors] = ((const parsed_tensor *)(const void *)parsed)->contents;
    }
    return status;
}

/* Copies a value to the site's arena. Tensors are copied without data, and counted in s->ntensors. Fails for a generator. */
static int site_copy_value(dv_site *s, const dv_value *value, dv_value *copy)
{
    *copy = *value;
    if (value->type == DV_VALUE_TENSOR) {
        const int status = site_store_parsed_contents(s, value->as.tensor);
        if (status)
            return status;
        s->ntensors++;
        return site_copy_tensor(&s->arena, value->as.tensor, &copy->as.tensor);
    }
    if (value->type == DV_VALUE_STRING) {
        copy->as.s.data = dv__arena_strndup(&s->arena, value->as.s.size ? value->as.s.data : "", value->as.s.size);
        return copy->as.s.data ? DV_OK : DV_ENOMEM;
    }
    if (value->type == DV_VALUE_GENERATOR)
        return dv_fail(DV_ENOTSUP, "%s: a call site cannot keep a generator", s->op->name);
    if (!dv__value_type_is_list(value->type))
        return DV_OK;
    if (!(copy->as.ints.data = dv__arena_alloc(&s->arena, value->as.ints.size * site_get_element_row(value->type)->size + 1)))
        return DV_ENOMEM;
    for (size_t i = 0; i < value->as.ints.size; i++) {
        const dv_value was = dv_value_element(value, i);
        dv_value now;
        const int status = site_copy_value(s, &was, &now);
        if (status)
            return status;
        site_set_element(copy, i, &now);
    }
    return DV_OK;
}

/* Binds arguments as dv_call() does, and copies them to the site. Returns a status. */
static int site_bind_and_copy_args(dv_site *s, const dv_value *args, size_t nargs)
{
    static dv_value no_results[DV__MAX_RETURNS]; /* DV_VALUE_DEFAULT for each result; no kernel runs */
    dv__call c;
    uint32_t keys;
    int status = dv__call_init(&c, s->op, no_results, s->op->signature->nreturns, NULL, 0);
    if (status)
        return status;
    status = dv__bind_values(&c, args, nargs, &keys);
    for (size_t i = 0; i < s->op->signature->nargs && !status; i++)
        status = site_copy_value(s, &c.args[i], &s->args[i]);
    return dv__call_end(&c, status);
}

/* Sets *out to a new site if status is DV_OK; otherwise frees the site. Returns status. */
static int site_return_or_free(int status, dv_site *site, dv_site **out)
{
    if (status)
        dv_site_free(site);
    else
        *out = site;
    return status;
}

static dv_site *site_new_empty(dv_operator *op)
{
    dv_site *s = dv__calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->op = dv_operator_ref(op);
    if (!(s->args = DV__ARENA_ARRAY(&s->arena, dv_value, op->signature->nargs + 1))) {
        dv_site_free(s);
        return NULL;
    }
    return s;
}

int dv_site_new(dv_operator *op, const dv_value *args, size_t nargs, dv_site **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    dv_site *s = site_new_empty(op);
    return s ? site_return_or_free(site_bind_and_copy_args(s, args, nargs), s, out) : DV_ENOMEM;
}

void dv_site_free(dv_site *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->nallocated; i++)
        dv_tensor_unref(s->allocated[i]);
    dv_operator_unref(s->op);
    dv__arena_deinit(&s->arena);
    dv__free(s);
}

dv_operator *dv_site_operator(const dv_site *s) { return s ? s->op : NULL; }
const dv_value *dv_site_args(const dv_site *s) { return s ? s->args : NULL; }
size_t dv_site_ntensors(const dv_site *s) { return s ? s->ntensors : 0; }

/* ---- Memory ---- */

static double site_next_random_unit(uint64_t *state) /* splitmix64: a site has the same contents each time */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static bool site_is_integer_dtype(dv_dtype t) { return t.code == 0 || t.code == 1 || t.code == 6; }

static double site_as_double(const dv_value *v)
{
    return v->type == DV_VALUE_INT ? (double)v->as.i : v->type == DV_VALUE_BOOL ? v->as.b : v->as.f;
}

static void site_write_element(const dv_tensor *t, int64_t offset, const dv_value *v)
{
    if (t->dtype.code == 5) { /* a complex element is two floats of half its size */
        const dv_dtype part = { 2, t->dtype.bits / 2, 1 };
        dv_element_put(t->data, 2 * offset, part, v->type == DV_VALUE_COMPLEX ? v->as.c.re : site_as_double(v));
        dv_element_put(t->data, 2 * offset + 1, part, v->type == DV_VALUE_COMPLEX ? v->as.c.im : 0);
    } else if (t->dtype.bits == 64 && v->type == DV_VALUE_INT && site_is_integer_dtype(t->dtype)) {
        ((int64_t *)t->data)[offset] = v->as.i; /* written as an integer, since a double would lose the low bits */
    } else {
        dv_element_put(t->data, offset, t->dtype, site_as_double(v));
    }
}

/* Maps unit, from 0 to below 1, to a number of the range: an integer from low to high - 1, or a double from low to high. */
static dv_value site_map_unit_to_range(const site_contents *range, bool is_integer, double unit)
{
    if (!is_integer)
        return dv_from_float(site_as_double(&range->low) + unit * (site_as_double(&range->high) - site_as_double(&range->low)));
    const uint64_t span = (uint64_t)range->high.as.i - (uint64_t)range->low.as.i, step = (uint64_t)(unit * (double)span);
    return dv_from_int((int64_t)((uint64_t)range->low.as.i + (step < span ? step : span - 1)));
}

/* Fills a tensor with its contents from the site's text. contents NULL: random integers 0 and 1, or floats from -1 to 1. */
static void site_fill_tensor(const dv_tensor *t, const site_contents *contents, uint64_t seed)
{
    const bool boolean = t->dtype.code == 6, is_integer = site_is_integer_dtype(t->dtype);
    const site_contents made = { .low = is_integer ? dv_from_int(0) : dv_from_float(-1),
        .high = is_integer ? dv_from_int(2) : dv_from_float(1),
        .is_range = !is_integer || boolean };
    contents = contents ? contents : &made;
    const int64_t n = dv_numel(t);
    for (int64_t i = 0; i < n; i++) {
        const dv_value v = contents->n ? contents->values[i]
            : contents->is_range       ? site_map_unit_to_range(contents, is_integer, site_next_random_unit(&seed))
                                       : contents->low;
        int64_t at = 0, rest = i;
        for (int32_t d = t->ndim; d-- > 0; rest /= t->shape[d])
            at += rest % t->shape[d] * t->strides[d];
        site_write_element(t, at, &v);
    }
}

/* Replaces *tensor by a new one of the same form with the contents of the site. Fails with DV_EDEVICE for another device than
 * the CPU. */
static int site_alloc_tensor(dv_site *s, const dv_tensor **tensor)
{
    const site_contents *c = s->contents ? s->contents[s->nallocated] : NULL;
    dv_tensor **made = &s->allocated[s->nallocated];
    if ((*tensor)->device.type != DV_CPU)
        return dv_fail(DV_EDEVICE, "%s: a call site allocates tensors on the CPU, this one is on %s", s->op->name,
            dv_device_name((*tensor)->device.type));
    const int status = dv__tensor_new_strided(
        (*tensor)->dtype, (*tensor)->ndim, (*tensor)->shape, (*tensor)->strides, true, made);
    if (status)
        return dv__fail_add_context(status, "%s", s->op->name);
    site_fill_tensor(*made, c, s->nallocated++);
    *tensor = *made;
    return DV_OK;
}

int dv_site_alloc(dv_site *s)
{
    DV__REQUIRE(s, "call site");
    int status = DV_OK;
    if (s->nallocated < s->ntensors && !s->allocated && !(s->allocated = DV__ARENA_ARRAY(&s->arena, dv_tensor *, s->ntensors)))
        return DV_ENOMEM;
    for (size_t i = 0, nseen = 0; i < s->op->signature->nargs; i++) {
        dv_value *v = &s->args[i];
        const bool list = v->type == DV_VALUE_TENSORS;
        const dv_tensor **all = list ? (const dv_tensor **)(uintptr_t)v->as.tensors.data : &v->as.tensor;
        for (size_t k = 0, n = list ? v->as.tensors.size : v->type == DV_VALUE_TENSOR; k < n && !status; k++)
            if (all[k] && nseen++ >= s->nallocated)
                status = site_alloc_tensor(s, &all[k]);
    }
    return status;
}

/* ---- Printing ---- */

static void site_print_sizes(dv__strbuf *to, int32_t ndim, const int64_t *sizes)
{
    dv__strbuf_append_str(to, "[");
    for (int32_t i = 0; i < ndim; i++)
        dv__strbuf_printf(to, i ? ", %lld" : "%lld", (long long)sizes[i]);
    dv__strbuf_append_str(to, "]");
}

/* Prints a value. s: the value's site; *nprinted: the number of tensors printed before. Both are NULL for a value without
 * tensors. */
static void site_print_value(dv__strbuf *to, const dv_site *s, size_t *nprinted, const dv_value *v);

static void site_print_contents(dv__strbuf *to, const site_contents *contents)
{
    dv__strbuf_append_str(to, contents->n ? " = [" : " = ");
    for (size_t i = 0; i < contents->n; i++) {
        dv__strbuf_append_str(to, i ? ", " : "");
        site_print_value(to, NULL, NULL, &contents->values[i]);
    }
    if (!contents->n)
        site_print_value(to, NULL, NULL, &contents->low);
    if (!contents->n && contents->is_range) {
        dv__strbuf_append_str(to, "..");
        site_print_value(to, NULL, NULL, &contents->high);
    }
    dv__strbuf_append_str(to, contents->n ? "]" : "");
}

static void site_print_tensor(dv__strbuf *to, const dv_site *s, size_t tensor_index, const dv_tensor *t)
{
    const site_contents *c = s->contents ? s->contents[tensor_index] : NULL;
    dv__strbuf_append_str(to, dv_dtype_name(t->dtype));
    site_print_sizes(to, t->ndim, t->shape);
    int64_t step = 1;
    bool is_contiguous = true; /* true if the strides are exactly those of a new tensor, also in dims of size 0 or 1 */
    for (int32_t i = t->ndim; i-- > 0; step *= t->shape[i] ? t->shape[i] : 1)
        is_contiguous &= t->strides[i] == step;
    if (!is_contiguous) {
        dv__strbuf_append_str(to, " @ ");
        site_print_sizes(to, t->ndim, t->strides);
    }
    if (t->device.type != DV_CPU || t->device.id)
        dv__strbuf_printf(to, " : %s:%d", dv_device_name(t->device.type), (int)t->device.id);
    if (c)
        site_print_contents(to, c);
}

/* Appends the shorter of %.15g and %.17g that parses back to the same value. A finite value gets ".0" if its text would be read
 * as an integer. */
static void site_print_float(dv__strbuf *to, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    if (strtod(text, NULL) != x)
        snprintf(text, sizeof text, "%.17g", x);
    dv__strbuf_append_str(to, isnan(x) ? "nan" : text);
    if (isfinite(x) && !strpbrk(text, ".e"))
        dv__strbuf_append_str(to, ".0");
}

static void site_print_string(dv__strbuf *to, dv_string s)
{
    dv__strbuf_append_str(to, "\"");
    for (size_t i = 0; i < s.size; i++) {
        const unsigned char c = (unsigned char)s.data[i];
        if (c == '"' || c == '\\')
            dv__strbuf_printf(to, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            dv__strbuf_printf(to, "\\x%02x", c);
        else
            dv__strbuf_append(to, &s.data[i], 1);
    }
    dv__strbuf_append_str(to, "\"");
}

static void site_print_value(dv__strbuf *to, const dv_site *s, size_t *nprinted, const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_TENSOR: site_print_tensor(to, s, (*nprinted)++, v->as.tensor); return;
    case DV_VALUE_INT: dv__strbuf_printf(to, "%lld", (long long)v->as.i); return;
    case DV_VALUE_FLOAT: site_print_float(to, v->as.f); return;
    case DV_VALUE_BOOL: dv__strbuf_append_str(to, v->as.b ? "true" : "false"); return;
    case DV_VALUE_COMPLEX:
        site_print_float(to, v->as.c.re);
        dv__strbuf_append_str(to, signbit(v->as.c.im) && !isnan(v->as.c.im) ? "" : "+");
        site_print_float(to, v->as.c.im);
        dv__strbuf_append_str(to, "j");
        return;
    case DV_VALUE_STRING: site_print_string(to, v->as.s); return;
    case DV_VALUE_DTYPE: dv__strbuf_append_str(to, dv_dtype_name(v->as.dtype)); return;
    case DV_VALUE_DEVICE: dv__strbuf_printf(to, "%s:%d", dv_device_name(v->as.device.type), (int)v->as.device.id); return;
    case DV_VALUE_LAYOUT: dv__strbuf_printf(to, v->as.layout.value ? "layout:%d" : "strided", (int)v->as.layout.value); return;
    case DV_VALUE_MEMORY_FORMAT:
        if (v->as.memory_format.value >= 0 && v->as.memory_format.value < NMEMORY_FORMATS)
            dv__strbuf_append_str(to, memory_format_names[v->as.memory_format.value]);
        else
            dv__strbuf_printf(to, "format:%d", (int)v->as.memory_format.value);
        return;
    default: break;
    }
    if (!dv__value_type_is_list(v->type)) {
        dv__strbuf_append_str(to, "none");
        return;
    }
    dv__strbuf_append_str(to, "[");
    for (size_t i = 0; i < v->as.ints.size; i++) {
        const dv_value one = dv_value_element(v, i);
        dv__strbuf_append_str(to, i ? ", " : "");
        site_print_value(to, s, nprinted, &one);
    }
    dv__strbuf_append_str(to, "]");
}

int dv_site_print(const dv_site *s, char **out)
{
    dv__strbuf to = { 0 };
    size_t number = 0;
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(s, "call site");
    dv__strbuf_printf(&to, "%s(", s->op->name);
    for (size_t i = 0; i < s->op->signature->nargs; i++) {
        dv__strbuf_printf(&to, "%s%s=", i ? ", " : "", s->op->schema->args[i].name);
        site_print_value(&to, s, &number, &s->args[i]);
    }
    dv__strbuf_append_str(&to, ")");
    return dv__strbuf_detach(&to, out);
}

/* ---- Parsing ---- */

typedef struct site_reader {
    const char *text, *p;
    dv_site *site; /* the site that is read; its arena holds all values */
    const dv_operator *op;
    const char *argument; /* name of the argument that is read, for messages; NULL: no argument yet */
} site_reader;

static int site_fail_expected(const site_reader *r, const char *expected)
{
    const char *name = r->op ? r->op->name : "a call site";
    return dv_fail(DV_ESYNTAX, "%s: %s%s%scolumn %d: expected %s, found %s%.20s%s\n    %s", name, r->argument ? "argument '" : "",
        r->argument ? r->argument : "", r->argument ? "': " : "", (int)(r->p - r->text) + 1, expected, *r->p ? "'" : "the end",
        r->p, *r->p ? "'" : "", r->text);
}

static void site_skip_space(site_reader *r) { r->p += strspn(r->p, " \t\r\n"); }

static bool site_try_accept_char(site_reader *r, char c)
{
    site_skip_space(r);
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

static size_t site_word_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

static bool site_try_accept_word(site_reader *r, const char *word)
{
    site_skip_space(r);
    const size_t n = strlen(word);
    if (strncmp(r->p, word, n) != 0 || site_word_length(r->p) != n)
        return false;
    r->p += n;
    return true;
}

static int site_read_int(site_reader *r, int64_t *out, const char *expected)
{
    char *end;
    site_skip_space(r);
    errno = 0;
    const long long x = strtoll(r->p, &end, 10);
    if (end == r->p || errno || isspace((unsigned char)*r->p))
        return site_fail_expected(r, expected);
    *out = x;
    r->p = end;
    return DV_OK;
}

/* Reads the bracket that begins a list: "[1, 2]" or, as Python writes tuples, "(1, 2)". Returns the bracket that ends the
 * list; 0: no list begins here. */
static char site_accept_opening_and_get_closing(site_reader *r)
{
    return site_try_accept_char(r, '[') ? ']' : site_try_accept_char(r, '(') ? ')' : 0;
}

/* Reads the comma before the next element of a list, and the closing bracket if it follows, also after a comma. nread:
 * number of elements read so far. *ended: true if the list has ended. Fails if both are missing. */
static int site_read_separator(site_reader *r, size_t nread, char closing, bool *ended)
{
    const bool comma = nread && site_try_accept_char(r, ',');
    *ended = site_try_accept_char(r, closing);
    return *ended || !nread || comma ? DV_OK : site_fail_expected(r, closing == ']' ? "',' or ']'" : "',' or ')'");
}

/* Reads sizes or strides in brackets to out, and sets *ndim to their number. Returns a status. */
static int site_read_sizes(site_reader *r, int64_t *out, int32_t *ndim)
{
    bool ended = false;
    const char closing = site_accept_opening_and_get_closing(r);
    *ndim = 0;
    if (!closing)
        return site_fail_expected(r, "'['");
    for (;;) {
        int status = site_read_separator(r, (size_t)*ndim, closing, &ended);
        if (status || ended)
            return status;
        if (*ndim == DV_MAX_NDIM)
            return site_fail_expected(r, "at most 64 dims");
        if ((status = site_read_int(r, &out[(*ndim)++], "a size")))
            return status;
    }
}

/* Reads a device, as "cuda:1". Returns a status. */
static int site_read_device(site_reader *r, dv_device *out)
{
    char name[64];
    site_skip_space(r);
    size_t n = site_word_length(r->p);
    if (n && r->p[n] == ':')
        n += 1 + strspn(r->p + n + 1, "0123456789");
    snprintf(name, sizeof name, "%.*s", (int)n, r->p);
    if (!n || n >= sizeof name || dv_device_parse(name, out))
        return site_fail_expected(r, "a device such as cpu or cuda:1");
    r->p += n;
    return DV_OK;
}

static int site_read_dtype(site_reader *r, dv_dtype *out)
{
    char name[64];
    site_skip_space(r);
    const size_t n = site_word_length(r->p);
    snprintf(name, sizeof name, "%.*s", (int)n, r->p);
    if (!n || n >= sizeof name || dv_dtype_parse(name, out))
        return site_fail_expected(r, "an element type such as f32");
    r->p += n;
    return DV_OK;
}

static int site_read_float(site_reader *r, double *out)
{
    char *end;
    site_skip_space(r);
    errno = 0;
    if (isspace((unsigned char)*r->p) || ((*out = strtod(r->p, &end)), end == r->p))
        return site_fail_expected(r, "a number");
    if (errno && isinf(*out))
        return site_fail_expected(r, "a number that fits a double");
    r->p = end - (end[-1] == '.' && *end == '.'); /* strtod() also takes the first dot of "0..8", which is left in the text */
    return DV_OK;
}

/* Reads a number or boolean: 3, 3.0, 1.5+2j, 2j, true. The value's type follows from the text. */
static int site_read_number(site_reader *r, dv_value *out)
{
    double re, im;
    if (site_try_accept_word(r, "true") || site_try_accept_word(r, "True"))
        return *out = dv_from_bool(true), DV_OK;
    if (site_try_accept_word(r, "false") || site_try_accept_word(r, "False"))
        return *out = dv_from_bool(false), DV_OK;
    site_skip_space(r);
    const char *begin = r->p;
    int status = site_read_float(r, &re);
    if (status)
        return status;
    if (*r->p == 'j' || ((*r->p == '+' || *r->p == '-') && strchr("0123456789.in", r->p[1]))) {
        const bool both = *r->p != 'j';
        im = re;
        if (both && (status = site_read_float(r, &im)))
            return status;
        if (*r->p++ != 'j')
            return r->p--, site_fail_expected(r, "'j' after the imaginary part");
        *out = dv_none();
        out->type = DV_VALUE_COMPLEX;
        out->as.c = (dv_complex){ both ? re : 0, im };
        return DV_OK;
    }
    *out = dv_from_float(re);
    bool is_integer = true;
    for (const char *at = begin; at < r->p; at++)
        is_integer = is_integer && !strchr(".eEinxX", *at);
    if (is_integer) {
        int64_t i;
        r->p = begin;
        if (!(status = site_read_int(r, &i, "an integer of 64 bits")))
            *out = dv_from_int(i);
    }
    return status;
}

static double site_round_to_dtype(dv_dtype dtype, double x)
{
    double buffer[2] = { 0 };
    dv_element_put(buffer, 0, dtype, x);
    return dv_element_get(buffer, 0, dtype);
}

/* True if the element type cannot represent x up to rounding: a finite x would become an infinity, or x becomes the nearest
 * number of a type without infinities, NaN, zero or signs. */
static bool site_dtype_cannot_hold(dv_dtype dtype, double x)
{
    const double y = site_round_to_dtype(dtype, x);
    const dv_dtype_row *row = dv_dtype_find(dtype);
    int exponent;
    if (!isfinite(x) || !isfinite(y))
        return !(x == y || (isnan(x) && isnan(y)));
    (void)frexp(y, &exponent);
    const double half = row ? ldexp(1, exponent - row->mantissa - 2) : 0; /* half a unit in the last place */
    return y != 0 && (x == 0 || (x < 0) != (y < 0) || (fabs(x) > fabs(y) + half && site_round_to_dtype(dtype, 2 * x) == y));
}

/* Reads a number that the dtype can hold: for integers an integer in range; a complex number only for complex types.
 * is_range_end: the number may also be one past the largest integer. Returns a status. */
static int site_read_number_for_dtype(site_reader *r, dv_dtype dtype, bool is_range_end, dv_value *out)
{
    site_skip_space(r);
    const char *begin = r->p;
    const int status = site_read_number(r, out);
    if (status)
        return status;
    const unsigned bits = dtype.code == 6 ? 1 : dtype.code == 0 ? dtype.bits - 1u : dtype.bits;
    const int64_t most = bits < 63 ? (INT64_C(1) << bits) - 1 : INT64_MAX, least = dtype.code == 0 ? -most - 1 : 0;
    const int64_t i = out->type == DV_VALUE_BOOL ? out->as.b : out->as.i;
    char expected[64] = "a real number";
    if (site_is_integer_dtype(dtype) &&
        ((out->type != DV_VALUE_INT && out->type != DV_VALUE_BOOL) || i < least || i - (is_range_end && i > 0) > most))
        snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)least, (long long)most);
    else if (!site_is_integer_dtype(dtype) &&
        (out->type == DV_VALUE_COMPLEX && dtype.code == 5
                ? site_dtype_cannot_hold(dtype, out->as.c.re) || site_dtype_cannot_hold(dtype, out->as.c.im)
                : out->type != DV_VALUE_COMPLEX && site_dtype_cannot_hold(dtype, site_as_double(out))))
        snprintf(expected, sizeof expected, "a number that %s can hold", dv_dtype_name(dtype));
    else if (site_is_integer_dtype(dtype) || dtype.code == 5 || out->type != DV_VALUE_COMPLEX)
        return DV_OK;
    r->p = begin;
    return site_fail_expected(r, expected);
}

/* Reads the contents of a tensor, which follow "=": one value "3", a range "0..8", or a list "[1, 2, 3]" with a value for
 * each element. */
static int site_read_contents(site_reader *r, const dv_tensor *t, site_contents **out)
{
    site_contents *c = DV__ARENA_NEW(&r->site->arena, site_contents);
    int status;
    if (!c)
        return DV_ENOMEM;
    *out = c;
    const char closing = site_accept_opening_and_get_closing(r);
    for (bool ended = false; closing && !ended;) {
        const void *values = c->values;
        if ((status = site_read_separator(r, c->n, closing, &ended)) ||
            (!ended && (status = site_reserve_element(&r->site->arena, &values, c->n, sizeof *c->values))))
            return status;
        c->values = (dv_value *)(uintptr_t)values;
        if (!ended && (status = site_read_number_for_dtype(r, t->dtype, false, &c->values[c->n++])))
            return status;
    }
    if (closing)
        return (int64_t)c->n == dv_numel(t) ? DV_OK : site_fail_expected(r, "as many values as elements");
    if ((status = site_read_number_for_dtype(r, t->dtype, false, &c->low)))
        return status;
    c->high = c->low;
    if (strncmp(r->p, "..", 2) != 0)
        return DV_OK;
    r->p += 2;
    if ((status = site_read_number_for_dtype(r, t->dtype, true, &c->high)))
        return status;
    c->is_range = true;
    const bool complex = c->low.type == DV_VALUE_COMPLEX || c->high.type == DV_VALUE_COMPLEX;
    const bool above = c->low.type == DV_VALUE_INT && c->high.type == DV_VALUE_INT
        ? c->low.as.i < c->high.as.i
        : site_as_double(&c->low) < site_as_double(&c->high);
    return above && !complex ? DV_OK : site_fail_expected(r, "a range of real numbers that ends above its beginning");
}

/* Reads a tensor, as "f32[2, 3]@[3, 1]:cuda = [...]": dtype and sizes, then strides, device and contents if they are given.
 * Returns a status. */
static int site_read_tensor(site_reader *r, dv_value *out)
{
    parsed_tensor *x = DV__ARENA_NEW(&r->site->arena, parsed_tensor);
    dv_tensor *t = x ? &x->t : NULL;
    int64_t *dims = DV__ARENA_ARRAY(&r->site->arena, int64_t, 2 * DV_MAX_NDIM);
    dv_dtype dtype;
    dv_device device = { DV_CPU, 0 };
    int32_t ndim, nstrides = -1;
    if (!t || !dims)
        return DV_ENOMEM;
    int status = site_read_dtype(r, &dtype);
    if (status || (status = site_read_sizes(r, dims, &ndim)))
        return status;
    if (site_try_accept_char(r, '@') && (status = site_read_sizes(r, dims + DV_MAX_NDIM, &nstrides)))
        return status;
    if (nstrides >= 0 && nstrides != ndim)
        return site_fail_expected(r, "as many strides as sizes");
    if (site_try_accept_char(r, ':') && (status = site_read_device(r, &device)))
        return status;
    status = dv_tensor_init(t, NULL, dtype, device, ndim, dims, nstrides < 0 ? NULL : dims + DV_MAX_NDIM, dims + DV_MAX_NDIM);
    if (status)
        return dv__fail_add_context(status, "%s: argument '%s'", r->op->name, r->argument);
    *out = dv_from_tensor(t);
    return site_try_accept_char(r, '=') ? site_read_contents(r, t, &x->contents) : DV_OK;
}

static int site_hex_digit_value(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : -1;
}

/* Reads a string in quotes, with escapes, or a bare word that begins with a letter. */
static int site_read_string(site_reader *r, dv_value *out)
{
    site_skip_space(r);
    const char quote = *r->p;
    const size_t bare = isdigit((unsigned char)quote) || !site_word_length(r->p) ? 0 : strcspn(r->p, ",()[]{}'\" \t\r\n");
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
        return site_fail_expected(r, "a word, or a string in quotes");
    for (r->p++; *r->p != quote; r->p++) {
        if (!*r->p)
            return site_fail_expected(r, "a closing quote");
        data[n] = *r->p;
        if (*r->p == '\\') {
            const bool code = r->p[1] == 'x' && site_hex_digit_value(r->p[2]) >= 0 && site_hex_digit_value(r->p[3]) >= 0;
            if (!code && (!r->p[1] || !strchr("\\\"'", r->p[1])))
                return site_fail_expected(r, "\\\\, \\\" or \\x and two digits after a backslash");
            data[n] = code ? (char)(site_hex_digit_value(r->p[2]) * 16 + site_hex_digit_value(r->p[3])) : r->p[1];
            r->p += code ? 3 : 1;
        }
        n++;
    }
    r->p++;
    data[n] = 0;
    out->as.s.size = n;
    return DV_OK;
}

/* Reads the number after a prefix, as 0 of "layout:0". Returns a status. */
static int site_read_number_after_prefix(site_reader *r, const char *prefix, int32_t *out)
{
    int64_t i;
    site_skip_space(r);
    const size_t n = strlen(prefix);
    if (strncmp(r->p, prefix, n) != 0)
        return site_fail_expected(r, *prefix == 'l' ? "strided" : "a memory format such as contiguous_format");
    r->p += n;
    const int status = site_read_int(r, &i, "a number");
    *out = (int32_t)i;
    return status;
}

static int site_read_value(site_reader *r, uint32_t value_type, dv_value *out)
{
    *out = dv_none();
    int status = DV_OK;
    switch (value_type) {
    case DV_VALUE_TENSOR: return site_read_tensor(r, out);
    case DV_VALUE_STRING: return site_read_string(r, out);
    case DV_VALUE_DTYPE: status = site_read_dtype(r, &out->as.dtype); break;
    case DV_VALUE_DEVICE: status = site_read_device(r, &out->as.device); break;
    case DV_VALUE_LAYOUT:
        if (!site_try_accept_word(r, "strided"))
            status = site_read_number_after_prefix(r, "layout:", &out->as.layout.value);
        break;
    case DV_VALUE_MEMORY_FORMAT:
        for (int32_t i = 0; i < NMEMORY_FORMATS; i++)
            if (site_try_accept_word(r, memory_format_names[i])) {
                out->type = value_type;
                out->as.memory_format.value = i;
                return DV_OK;
            }
        status = site_read_number_after_prefix(r, "format:", &out->as.memory_format.value);
        break;
    case DV_VALUE_GENERATOR: return site_fail_expected(r, "none: a generator cannot be written");
    default: return site_read_number(r, out);
    }
    out->type = value_type;
    return status;
}

static int site_read_list(site_reader *r, uint32_t list_type, bool elements_optional, dv_value *out)
{
    const char *begin = r->p, closing = site_accept_opening_and_get_closing(r);
    *out = dv_none();
    out->type = list_type;
    out->as.ints.data = NULL;
    out->as.ints.size = 0;
    if (!closing)
        return site_fail_expected(r, "a list such as [1, 2]");
    for (;;) {
        dv_value one = dv_none();
        bool ended = false;
        const void *data = out->as.ints.data;
        int status = site_read_separator(r, out->as.ints.size, closing, &ended);
        if (status || ended ||
            (status = site_reserve_element(&r->site->arena, &data, out->as.ints.size, site_get_element_row(list_type)->size)))
            return status;
        out->as.ints.data = data;
        begin = r->p;
        if (!(elements_optional && (site_try_accept_word(r, "none") || site_try_accept_word(r, "None"))))
            status = site_read_value(r, site_get_element_row(list_type)->value, &one);
        if (status)
            return status;
        if (list_type == DV_VALUE_FLOATS && one.type == DV_VALUE_INT)
            one = dv_from_float((double)one.as.i);
        if (list_type == DV_VALUE_COMPLEXES && (one.type == DV_VALUE_INT || one.type == DV_VALUE_FLOAT)) {
            const double re = one.type == DV_VALUE_INT ? (double)one.as.i : one.as.f;
            one.type = DV_VALUE_COMPLEX;
            one.as.c = (dv_complex){ re, 0 };
        }
        if (list_type != DV_VALUE_TENSORS && list_type != DV_VALUE_SCALARS &&
            one.type != site_get_element_row(list_type)->value) {
            r->p = begin;
            return site_fail_expected(r,
                list_type == DV_VALUE_INTS        ? "an integer"
                    : list_type == DV_VALUE_BOOLS ? "true or false"
                                                  : "a number");
        }
        site_set_element(out, out->as.ints.size++, &one);
    }
}

/* Reads the value of an argument by its slot's type: none, default, a list, or one value. */
static int site_read_argument_value(site_reader *r, size_t argument_index, dv_value *out)
{
    const dv__slot *slot = &r->op->signature->slots[argument_index];
    r->argument = r->op->schema->args[argument_index].name;
    site_skip_space(r);
    const char *begin = r->p;
    const bool none = site_try_accept_word(r, "none") || site_try_accept_word(r, "None"),
               other = !none && site_try_accept_word(r, "default");
    if (slot->value == DV_VALUE_STRING &&
        ((none && !(slot->flags & DV__SLOT_OPTIONAL)) || (other && !(slot->flags & DV__SLOT_DEFAULT))))
        return dv_fail(DV_ETYPE, "%s: argument '%s': expected str, found %s; the text is written \"%.*s\", with its quotes",
            r->op->name, r->argument, none ? "None" : "no default", (int)(r->p - begin), begin);
    if (none || other)
        return *out = none ? dv_none() : dv_default(), DV_OK;
    if ((slot->flags & DV__SLOT_LIST) && (*r->p == '[' || *r->p == '(' || slot->fixed_size < 0))
        return site_read_list(r, slot->value, slot->flags & DV__SLOT_ELEMENT_OPTIONAL, out);
    return site_read_value(r, slot->flags & DV__SLOT_LIST ? site_get_element_row(slot->value)->value : slot->value, out);
}

/* Finds which argument comes next in the text: the one named by "name=", else the one at *next_position, which is then
 * counted up. Fails if the name is unknown, no argument is left, or the argument was given already. */
static int site_select_argument(site_reader *r, size_t *next_position, const bool *given, size_t *argument_index)
{
    site_skip_space(r);
    const size_t n = site_word_length(r->p);
    const char *after = r->p + n + strspn(r->p + n, " ");
    r->argument = NULL;
    if (n && *after == '=') {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)n, r->p);
        const int found = dv__schema_find_argument_index(r->op->schema, name);
        if (found < 0)
            return site_fail_expected(r, "an argument's name");
        *argument_index = (size_t)found;
        r->p = after + 1;
    } else {
        *argument_index = (*next_position)++;
        if (*argument_index >= r->op->signature->nargs)
            return site_fail_expected(r, "')': there are no more arguments");
    }
    return given[*argument_index] ? site_fail_expected(r, "an argument that is not given twice") : DV_OK;
}

static int site_read_arguments(site_reader *r, dv_value *args)
{
    const size_t n = r->op->signature->nargs;
    bool *given = DV__ARENA_ARRAY(&r->site->arena, bool, n + 1);
    size_t next = 0, at = 0;
    if (!given)
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        args[i] = dv_default();
    for (bool any = false; !site_try_accept_char(r, ')'); any = true) {
        if (any && !site_try_accept_char(r, ','))
            return site_fail_expected(r, "',' or ')'");
        int status = site_select_argument(r, &next, given, &at);
        if (status || (status = site_read_argument_value(r, at, &args[at])))
            return status;
        given[at] = true;
    }
    site_skip_space(r);
    r->argument = NULL;
    return *r->p ? site_fail_expected(r, "the end") : DV_OK;
}

/* Parses the arguments of a call of op to a new site. Returns a status. */
static int site_parse_arguments(site_reader *r, dv_operator *op, dv_site **out)
{
    r->op = op;
    if (!(r->site = site_new_empty(op)))
        return DV_ENOMEM;
    dv_value *args = DV__ARENA_ARRAY(&r->site->arena, dv_value, op->signature->nargs + 1);
    int status = args ? site_read_arguments(r, args) : DV_ENOMEM;
    r->site->is_parsed = true;
    if (!status)
        status = site_bind_and_copy_args(r->site, args, op->signature->nargs);
    return site_return_or_free(status, r->site, out);
}

/* Parses a call site. op: the operator, whatever name the text has; NULL: the operator is found by the name in the text.
 * Returns a status. */
static int site_parse(dv_operator *op, const char *text, dv_site **out)
{
    site_reader r = { .text = text, .p = text };
    dv_operator *named = NULL;
    site_skip_space(&r);
    char *name = dv__strndup(r.p, strcspn(r.p, "( \t\r\n"));
    if (!name)
        return DV_ENOMEM;
    r.p += strlen(name);
    int status = !site_try_accept_char(&r, '(') ? site_fail_expected(&r, "'(' after the operator's name")
        : op                                    ? DV_OK
                                                : dv_find(name, &named);
    dv__free(name);
    if (!status)
        status = site_parse_arguments(&r, op ? op : named, out);
    dv_operator_unref(named);
    return status;
}

int dv_site_parse(const char *text, dv_site **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(text, "text");
    return site_parse(NULL, text, out);
}

int dv_site_parse_for(dv_operator *op, const char *text, dv_site **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    DV__REQUIRE(text, "text");
    return site_parse(op, text, out);
}

/* ---- Using one ---- */

int dv_site_infer(const dv_site *s, dv_result_spec *specs, size_t nspecs)
{
    DV__REQUIRE(s, "call site");
    return dv_infer(s->op, s->args, s->op->signature->nargs, specs, nspecs);
}

/* Fills `args` with the site's arguments, in which `tensors`, in order, replace the site's tensors. */
static int site_make_args_with_tensors(const dv_site *site, const dv_tensor *const *tensors, dv__arena *arena, dv_value *args)
{
    size_t used = 0;
    for (size_t i = 0; i < site->op->signature->nargs; i++) {
        args[i] = site->args[i];
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
    assert(used == site->ntensors);
    return DV_OK;
}

int dv_site_call(
    const dv_site *s, const dv_tensor *const *tensors, size_t ntensors, dv_value *results, size_t nresults, const dv_host *host)
{
    dv__arena arena = { NULL };
    DV__REQUIRE(s, "call site");
    if (ntensors != s->ntensors || (ntensors && !tensors))
        return dv_fail(DV_EINVAL, "%s: this call site takes %zu tensors, found %zu", s->op->name, s->ntensors, ntensors);
    dv_value *args = DV__ARENA_ARRAY(&arena, dv_value, s->op->signature->nargs + 1);
    int status = args ? site_make_args_with_tensors(s, tensors, &arena, args) : DV_ENOMEM;
    if (!status)
        status = dv_call(s->op, args, s->op->signature->nargs, results, nresults, host);
    dv__arena_deinit(&arena);
    return status;
}
