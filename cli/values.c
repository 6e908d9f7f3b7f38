/* Arguments of an operator from words of the command line, and values as text.
 *
 * A word is read without knowing the schema (number, string, list, tensor), then turned into what the argument takes. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum node_kind { NODE_NONE, NODE_DEFAULT, NODE_BOOL, NODE_INT, NODE_FLOAT, NODE_COMPLEX, NODE_STRING, NODE_LIST, NODE_TENSOR };

typedef struct node {
    enum node_kind kind;
    bool quoted; /* of STRING */
    int64_t i;
    dv_complex c; /* FLOAT: c.re */
    char *text;   /* STRING: its content */
    struct node *items;
    size_t nitems;
    dv_dtype dtype; /* TENSOR */
    dv_device device;
    int32_t ndim;
    int64_t shape[DV_MAX_NDIM], strides[DV_MAX_NDIM];
    bool has_strides, has_fill;
    double low, high;
} node;

typedef struct reader {
    const char *p, *begin;
    char message[200];
} reader;

static int wrong(reader *r, const char *expected)
{
    if (!r->message[0])
        snprintf(r->message, sizeof r->message, "column %d: expected %s, found %s%.20s%s", (int)(r->p - r->begin) + 1, expected,
            *r->p ? "'" : "the end", r->p, *r->p ? "'" : "");
    return CLI_USAGE;
}

static void skip(reader *r) { r->p += strspn(r->p, " \t"); }

static bool take(reader *r, char c)
{
    skip(r);
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

static void node_free(node *n)
{
    for (size_t i = 0; i < n->nitems; i++)
        node_free(&n->items[i]);
    free(n->items);
    free(n->text);
}

/* "[1, 2]": up to DV_MAX_NDIM integers. */
static int read_sizes(reader *r, int64_t *out, int32_t *n)
{
    *n = 0;
    if (!take(r, '['))
        return wrong(r, "'['");
    while (!take(r, ']')) {
        if (*n && !take(r, ','))
            return wrong(r, "',' or ']'");
        if (*n && take(r, ']'))
            return CLI_OK;
        skip(r);
        char *end;
        errno = 0;
        const long long value = strtoll(r->p, &end, 10);
        if (end == r->p || errno)
            return wrong(r, "a size");
        if (*n >= DV_MAX_NDIM)
            return wrong(r, "at most 64 dims");
        out[(*n)++] = value;
        r->p = end;
    }
    return CLI_OK;
}

static int read_number(reader *r, double *out)
{
    char text[64], *end; /* up to "..": strtod would read its first dot */
    skip(r);
    const char *range = strstr(r->p, "..");
    snprintf(text, sizeof text, "%.*s", range ? (int)(range - r->p) : (int)strlen(r->p), r->p);
    *out = strtod(text, &end);
    if (end == text)
        return wrong(r, "a number");
    r->p += end - text;
    return CLI_OK;
}

/* After "f32": "[4, 6] @ [1, 4] : cuda = 0..8". */
static int read_tensor(reader *r, node *out)
{
    int32_t n;
    out->kind = NODE_TENSOR;
    out->device = (dv_device){ DV_CPU, 0 };
    if (read_sizes(r, out->shape, &out->ndim))
        return CLI_USAGE;
    if (take(r, '@')) {
        out->has_strides = true;
        if (read_sizes(r, out->strides, &n))
            return CLI_USAGE;
        if (n != out->ndim)
            return wrong(r, "as many strides as sizes");
    }
    if (take(r, ':')) {
        const size_t size = strspn(r->p, "abcdefghijklmnopqrstuvwxyz:0123456789");
        char *name = cli_format("%.*s", (int)size, r->p);
        const int status = dv_device_parse(name, &out->device);
        free(name);
        if (status)
            return wrong(r, "a device such as cpu or cuda:1");
        r->p += size;
    }
    if (take(r, '=')) {
        out->has_fill = true;
        if (read_number(r, &out->low))
            return CLI_USAGE;
        out->high = out->low;
        if (!strncmp(r->p, "..", 2)) {
            r->p += 2;
            if (read_number(r, &out->high))
                return CLI_USAGE;
        }
    }
    return CLI_OK;
}

static int read_quoted(reader *r, node *out)
{
    const char quote = *r->p, *end = strchr(r->p + 1, quote);
    if (!end)
        return wrong(r, "a closing quote");
    out->kind = NODE_STRING;
    out->quoted = true;
    out->text = cli_format("%.*s", (int)(end - r->p - 1), r->p + 1);
    r->p = end + 1;
    return CLI_OK;
}

/* Length of a number's text at p; 0: there is none. "1..2" is not one: ranges belong to tensors. */
static size_t number_at(const char *p, node *out)
{
    char *end;
    errno = 0;
    const long long i = strtoll(p, &end, 10);
    if (end != p && !errno && (!*end || strchr(", \t]", *end))) {
        out->kind = NODE_INT;
        out->i = i;
        return (size_t)(end - p);
    }
    const double re = strtod(p, &end);
    if (end == p)
        return 0;
    out->kind = NODE_FLOAT;
    out->c = (dv_complex){ re, 0 };
    if (*end == 'j') {
        out->kind = NODE_COMPLEX;
        out->c = (dv_complex){ 0, re };
        end++;
    } else if (*end == '+' || *end == '-') {
        char *last;
        const double im = strtod(end, &last);
        if (last != end && *last == 'j') {
            out->kind = NODE_COMPLEX;
            out->c.im = im;
            end = last + 1;
        }
    }
    return !*end || strchr(", \t]", *end) ? (size_t)(end - p) : 0;
}

static int read_node(reader *r, node *out, int depth);

static int read_list(reader *r, node *out, int depth)
{
    out->kind = NODE_LIST;
    r->p++;
    while (!take(r, ']')) {
        if (out->nitems && !take(r, ','))
            return wrong(r, "',' or ']'");
        out->items = cli_alloc(out->items, out->nitems + 1, sizeof *out->items);
        memset(&out->items[out->nitems], 0, sizeof *out->items);
        if (read_node(r, &out->items[out->nitems++], depth - 1))
            return CLI_USAGE;
    }
    return CLI_OK;
}

static int read_word(reader *r, node *out)
{
    const size_t size = strcspn(r->p, ", \t[]");
    if (!size)
        return wrong(r, "a value");
    char *word = cli_format("%.*s", (int)size, r->p);
    if (r->p[size] == '[') {
        const int status = dv_dtype_parse(word, &out->dtype);
        free(word);
        if (status)
            return wrong(r, "an element type such as f32 before '['");
        r->p += size;
        return read_tensor(r, out);
    }
    r->p += size;
    out->text = word;
    out->kind = !strcmp(word, "none") || !strcmp(word, "None")                                               ? NODE_NONE
        : !strcmp(word, "default")                                                                           ? NODE_DEFAULT
        : !strcmp(word, "true") || !strcmp(word, "True") || !strcmp(word, "false") || !strcmp(word, "False") ? NODE_BOOL
                                                                                                             : NODE_STRING;
    out->i = *word == 't' || *word == 'T';
    return CLI_OK;
}

static int read_node(reader *r, node *out, int depth)
{
    skip(r);
    if (*r->p == '"' || *r->p == '\'')
        return read_quoted(r, out);
    if (*r->p == '[')
        return depth ? read_list(r, out, depth) : wrong(r, "lists in at most two levels");
    const size_t size = number_at(r->p, out);
    r->p += size;
    return size ? CLI_OK : read_word(r, out);
}

/* ---- Values -------------------------------------------------------------------------------------------------------------- */

typedef struct target {
    cli_values *to;
    enum cli_memory memory;
    const dv_slot_info *slot;
    char message[400];
} target;

static int refuse(target *t, const char *expected)
{
    if (!t->message[0])
        snprintf(t->message, sizeof t->message, "expected %s", expected);
    return CLI_USAGE;
}

static void *own(cli_values *v, size_t n, size_t size)
{
    v->owned = cli_alloc(v->owned, v->nowned + 1, sizeof *v->owned);
    void *p = v->owned[v->nowned++] = cli_alloc(NULL, n, size);
    memset(p, 0, n * size);
    return p;
}

static uint64_t next_random(uint64_t *state) /* splitmix64: the same contents every time */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A value in [low, high): of a float, at random; of an integer, at random among the integers. */
static void fill(void *data, dv_dtype dtype, int64_t n, const node *spec)
{
    uint64_t state = (uint64_t)n;
    const bool integer = dtype.code == 0 || dtype.code == 1;
    const double low = spec->has_fill ? spec->low : dtype.code == 6 ? 0 : integer ? 0 : -1;
    const double high = spec->has_fill ? spec->high : dtype.code == 6 ? 2 : integer ? 0 : 1;
    for (int64_t i = 0; i < n; i++) {
        const double unit = (double)(next_random(&state) >> 11) * 0x1p-53;
        const double x = integer || dtype.code == 6 ? floor(low + unit * (high - low)) : low + unit * (high - low);
        dv_element_put(data, i, dtype, x);
    }
}

/* The number of elements from the first to the last that strides reach; -1: negative strides or too many. */
static int64_t extent(const node *n)
{
    int64_t last = 0;
    for (int32_t i = 0; i < n->ndim; i++) {
        int64_t step;
        if (n->shape[i] == 0)
            return 0;
        if (n->strides[i] < 0 || n->shape[i] < 0 || __builtin_mul_overflow(n->shape[i] - 1, n->strides[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return -1;
    }
    return last + 1;
}

static int make_tensor(target *t, const node *n, const dv_tensor **out)
{
    cli_values *v = t->to;
    dv_tensor *base = NULL, *tensor = NULL;
    const int64_t elements = n->has_strides ? extent(n) : 0;
    if (elements < 0)
        return refuse(t, "sizes and strides that are not negative and not too large");
    if (t->memory == CLI_NO_MEMORY) {
        tensor = own(v, 1, sizeof *tensor);
        int64_t *numbers = own(v, 2 * (size_t)n->ndim + 1, sizeof *numbers);
        memcpy(numbers, n->shape, (size_t)n->ndim * sizeof *numbers);
        memcpy(numbers + n->ndim, n->strides, (size_t)n->ndim * sizeof *numbers);
        if (dv_tensor_init(tensor, (void *)(v->next_address += 1u << 30), n->dtype, n->device, n->ndim, numbers,
                n->has_strides ? numbers + n->ndim : NULL, numbers + n->ndim))
            return snprintf(t->message, sizeof t->message, "%s", dv_last_error()), CLI_USAGE;
        *out = tensor;
        return CLI_OK;
    }
    if (n->device.type != DV_CPU)
        return refuse(t, "a tensor on the CPU");
    if (n->has_strides ? dv_tensor_new(n->dtype, 1, &elements, &base) : dv_tensor_new(n->dtype, n->ndim, n->shape, &tensor))
        return snprintf(t->message, sizeof t->message, "%s", dv_last_error()), CLI_USAGE;
    if (base) {
        fill(base->data, n->dtype, dv_numel(base), n);
        const int status = dv_tensor_view(base, n->ndim, n->shape, n->strides, 0, &tensor);
        dv_tensor_unref(base);
        if (status)
            return snprintf(t->message, sizeof t->message, "%s", dv_last_error()), CLI_USAGE;
    } else {
        fill(tensor->data, n->dtype, dv_numel(tensor), n);
    }
    v->tensors = cli_alloc(v->tensors, v->ntensors + 1, sizeof *v->tensors);
    v->tensors[v->ntensors++] = tensor;
    *out = tensor;
    return CLI_OK;
}

static int to_tensor(target *t, const node *n, const dv_tensor **out)
{
    *out = NULL;
    if (n->kind == NODE_NONE)
        return CLI_OK;
    return n->kind == NODE_TENSOR ? make_tensor(t, n, out) : refuse(t, "a tensor such as f32[4,8]");
}

static int to_int(target *t, const node *n, int64_t *out)
{
    *out = n->i;
    return n->kind == NODE_INT ? CLI_OK : refuse(t, "an integer");
}

static int to_float(target *t, const node *n, double *out)
{
    *out = n->kind == NODE_INT ? (double)n->i : n->c.re;
    return n->kind == NODE_INT || n->kind == NODE_FLOAT ? CLI_OK : refuse(t, "a number");
}

static int to_bool(target *t, const node *n, bool *out)
{
    *out = n->i != 0;
    return n->kind == NODE_BOOL ? CLI_OK : refuse(t, "true or false");
}

static int to_complex(target *t, const node *n, dv_complex *out)
{
    *out = n->kind == NODE_INT ? (dv_complex){ (double)n->i, 0 } : n->c;
    return n->kind == NODE_INT || n->kind == NODE_FLOAT || n->kind == NODE_COMPLEX ? CLI_OK : refuse(t, "a number such as 1+2j");
}

static int to_string(target *t, const node *n, dv_string *out)
{
    if (!n->text)
        return refuse(t, "a string (in quotes where it looks like something else)");
    char *copy = own(t->to, strlen(n->text) + 1, 1);
    memcpy(copy, n->text, strlen(n->text));
    *out = (dv_string){ copy, strlen(copy) };
    return CLI_OK;
}

static int to_dtype(target *t, const node *n, dv_dtype *out)
{
    return n->kind == NODE_STRING && !dv_dtype_parse(n->text, out) ? CLI_OK : refuse(t, "an element type such as f32");
}

static int to_device(target *t, const node *n, dv_device *out)
{
    return n->kind == NODE_STRING && !dv_device_parse(n->text, out) ? CLI_OK : refuse(t, "a device such as cpu or cuda:1");
}

static int to_scalar(target *t, const node *n, dv_scalar *out)
{
    switch (n->kind) {
    case NODE_INT: out->kind = DV_SCALAR_INT, out->as.i = n->i; return CLI_OK;
    case NODE_FLOAT: out->kind = DV_SCALAR_FLOAT, out->as.f = n->c.re; return CLI_OK;
    case NODE_BOOL: out->kind = DV_SCALAR_BOOL, out->as.b = n->i != 0; return CLI_OK;
    case NODE_COMPLEX: out->kind = DV_SCALAR_COMPLEX, out->as.c = n->c; return CLI_OK;
    default: return refuse(t, "a number");
    }
}

static int scalar_value(target *t, const node *n, dv_value *out)
{
    dv_scalar s;
    if (to_scalar(t, n, &s))
        return CLI_USAGE;
    switch (s.kind) {
    case DV_SCALAR_INT: *out = dv_from_int(s.as.i); break;
    case DV_SCALAR_FLOAT: *out = dv_from_float(s.as.f); break;
    case DV_SCALAR_BOOL: *out = dv_from_bool(s.as.b); break;
    default: out->type = DV_VALUE_COMPLEX, out->as.c = s.as.c;
    }
    return CLI_OK;
}

static int to_number(target *t, const node *n, int32_t *out, const char *const *names, size_t count, const char *expected)
{
    for (size_t i = 0; n->kind == NODE_STRING && i < count; i++)
        if (!strcmp(n->text, names[i]))
            return *out = (int32_t)i, CLI_OK;
    return refuse(t, expected);
}

/* X(field type, value type, member, element's C type, converter): alone, and as a list. */
#define PLAIN(X)                         \
    X(TENSOR, TENSOR, tensor, to_tensor) \
    X(INT, INT, i, to_int)               \
    X(FLOAT, FLOAT, f, to_float)         \
    X(BOOL, BOOL, b, to_bool)            \
    X(STRING, STRING, s, to_string)      \
    X(COMPLEX, COMPLEX, c, to_complex)   \
    X(DTYPE, DTYPE, dtype, to_dtype)     \
    X(DEVICE, DEVICE, device, to_device)
#define LISTS(X)                                      \
    X(TENSORS, tensors, const dv_tensor *, to_tensor) \
    X(INTS, ints, int64_t, to_int)                    \
    X(FLOATS, floats, double, to_float)               \
    X(BOOLS, bools, bool, to_bool)                    \
    X(STRINGS, strings, dv_string, to_string)         \
    X(SCALARS, scalars, dv_scalar, to_scalar)         \
    X(COMPLEXES, complexes, dv_complex, to_complex)   \
    X(DTYPES, dtypes, dv_dtype, to_dtype)             \
    X(DEVICES, devices, dv_device, to_device)

static int convert(target *t, const node *n, dv_value *out)
{
    static const char *const layouts[] = { "strided" },
                             *const formats[] = { "contiguous_format", "preserve_format", "channels_last", "channels_last_3d" };
    *out = n->kind == NODE_DEFAULT ? dv_default() : dv_none();
    if (n->kind == NODE_DEFAULT || n->kind == NODE_NONE)
        return CLI_OK;
    switch (t->slot->type) {
#define CASE(field, value, member, converter) \
    case DV_FIELD_##field: out->type = DV_VALUE_##value; return converter(t, n, &out->as.member);
        PLAIN(CASE)
#undef CASE
#define CASE(field, member, T, converter)              \
    case DV_FIELD_##field: {                           \
        if (n->kind != NODE_LIST)                      \
            return refuse(t, "a list such as [1,2]");  \
        T *data = own(t->to, n->nitems, sizeof *data); \
        for (size_t i = 0; i < n->nitems; i++)         \
            if (converter(t, &n->items[i], &data[i]))  \
                return CLI_USAGE;                      \
        out->type = DV_VALUE_##field;                  \
        out->as.member.data = data;                    \
        out->as.member.size = n->nitems;               \
        return CLI_OK;                                 \
    }
        LISTS(CASE)
#undef CASE
    case DV_FIELD_SCALAR: return scalar_value(t, n, out);
    case DV_FIELD_LAYOUT: out->type = DV_VALUE_LAYOUT; return to_number(t, n, &out->as.layout.value, layouts, 1, "'strided'");
    case DV_FIELD_MEMORY_FORMAT:
        out->type = DV_VALUE_MEMORY_FORMAT;
        return to_number(t, n, &out->as.memory_format.value, formats, 4,
            "contiguous_format, preserve_format, channels_last or channels_last_3d");
    default: return refuse(t, "none: this type cannot be written on a command line");
    }
}

static int slot_named(const dv_operator *op, const char *name, size_t size)
{
    dv_slot_info info;
    for (size_t i = 0; i < dv_operator_nargs(op); i++)
        if (!dv_operator_slot(op, i, &info) && strlen(info.name) == size && !memcmp(info.name, name, size))
            return (int)i;
    return -1;
}

/* "name=" at the beginning: its length; else 0. */
static size_t name_size(const char *word)
{
    size_t n = 0;
    if (!isalpha((unsigned char)*word) && *word != '_')
        return 0;
    while (isalnum((unsigned char)word[n]) || word[n] == '_')
        n++;
    return word[n] == '=' ? n : 0;
}

static int parse_word(const cli_verb *verb, const dv_operator *op, const char *word, const char *text, size_t slot,
    enum cli_memory memory, cli_values *out)
{
    node n = { 0 };
    reader r = { .p = text, .begin = word };
    dv_slot_info info;
    dv_operator_slot(op, slot, &info);
    target t = { .to = out, .memory = memory, .slot = &info };
    int status = read_node(&r, &n, 2);
    skip(&r);
    if (!status && *r.p)
        status = wrong(&r, "the end of the argument");
    if (status)
        cli_usage(verb, "argument '%s': %s", word, r.message);
    else if ((status = convert(&t, &n, &out->data[slot])))
        cli_usage(verb, "%s: argument '%s': %s, found '%s'", dv_operator_name(op), info.name, t.message, text);
    node_free(&n);
    return status;
}

int cli_values_parse(
    const cli_verb *verb, const dv_operator *op, const char *const *words, size_t nwords, enum cli_memory memory, cli_values *out)
{
    *out = (cli_values){ .n = dv_operator_nargs(op), .next_address = 1u << 30 };
    out->data = cli_alloc(NULL, out->n, sizeof *out->data);
    for (size_t i = 0; i < out->n; i++)
        out->data[i] = dv_default();
    bool *given = own(out, out->n, sizeof *given);
    for (size_t i = 0, next = 0; i < nwords; i++) {
        const size_t size = name_size(words[i]);
        const int slot = size ? slot_named(op, words[i], size) : next < out->n ? (int)next++ : -1;
        if (slot < 0)
            return size ? cli_usage(verb, "%s has no argument '%.*s': %s", dv_operator_name(op), (int)size, words[i],
                              dv_operator_schema(op))
                        : cli_usage(verb, "%s takes %zu arguments, '%s' is one too many: %s", dv_operator_name(op), out->n,
                              words[i], dv_operator_schema(op));
        if (given[slot])
            return cli_usage(verb, "%s: argument '%s' is given twice", dv_operator_name(op), words[i]);
        given[slot] = true;
        if (parse_word(verb, op, words[i], words[i] + (size ? size + 1 : 0), (size_t)slot, memory, out))
            return CLI_USAGE;
    }
    for (size_t i = 0; i < out->n; i++) {
        dv_slot_info info;
        if (!given[i] && !dv_operator_slot(op, i, &info) && !info.default_text)
            return cli_usage(verb, "%s: argument '%s' is missing: %s", dv_operator_name(op), info.name, dv_operator_schema(op));
    }
    return CLI_OK;
}

void cli_values_free(cli_values *v)
{
    for (size_t i = 0; i < v->ntensors; i++)
        dv_tensor_unref(v->tensors[i]);
    for (size_t i = 0; i < v->nowned; i++)
        free(v->owned[i]);
    free(v->tensors);
    free(v->owned);
    free(v->data);
    memset(v, 0, sizeof *v);
}

/* ---- As text ------------------------------------------------------------------------------------------------------------- */

static void add_numbers(cli_text *t, const int64_t *data, size_t n)
{
    cli_adds(t, "[");
    for (size_t i = 0; i < n; i++)
        cli_addf(t, "%s%lld", i ? ", " : "", (long long)data[i]);
    cli_adds(t, "]");
}

void cli_add_shape(cli_text *t, dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    cli_adds(t, dv_dtype_name(dtype));
    add_numbers(t, shape, (size_t)ndim);
    int64_t expected = 1;
    for (int32_t i = ndim - 1; strides && i >= 0; i--) {
        if (shape[i] != 1 && strides[i] != expected) {
            cli_adds(t, " @ ");
            add_numbers(t, strides, (size_t)ndim);
            break;
        }
        expected *= shape[i];
    }
}

static void add_tensor(cli_text *t, const dv_tensor *x)
{
    if (!x) {
        cli_adds(t, "none");
        return;
    }
    cli_add_shape(t, x->dtype, x->ndim, x->shape, x->strides);
    if (x->device.type != DV_CPU)
        cli_addf(t, " : %s:%d", dv_device_name(x->device.type), x->device.id);
}

static void add_string(cli_text *t, dv_string s) { cli_addf(t, "\"%.*s\"", (int)s.size, s.data); }

#define ADD_LIST(MEMBER, STATEMENT)                  \
    cli_adds(t, "[");                                \
    for (size_t i = 0; i < v->as.MEMBER.size; i++) { \
        cli_adds(t, i ? ", " : "");                  \
        STATEMENT;                                   \
    }                                                \
    cli_adds(t, "]");                                \
    break

void cli_add_value(cli_text *t, const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_DEFAULT: cli_adds(t, "default"); break;
    case DV_VALUE_TENSOR: add_tensor(t, v->as.tensor); break;
    case DV_VALUE_INT: cli_addf(t, "%lld", (long long)v->as.i); break;
    case DV_VALUE_FLOAT: cli_addf(t, "%g", v->as.f); break;
    case DV_VALUE_BOOL: cli_adds(t, v->as.b ? "true" : "false"); break;
    case DV_VALUE_COMPLEX: cli_addf(t, "%g%+gj", v->as.c.re, v->as.c.im); break;
    case DV_VALUE_STRING: add_string(t, v->as.s); break;
    case DV_VALUE_DTYPE: cli_adds(t, dv_dtype_name(v->as.dtype)); break;
    case DV_VALUE_DEVICE: cli_addf(t, "%s:%d", dv_device_name(v->as.device.type), v->as.device.id); break;
    case DV_VALUE_INTS: add_numbers(t, v->as.ints.data, v->as.ints.size); break;
    case DV_VALUE_FLOATS: ADD_LIST(floats, cli_addf(t, "%g", v->as.floats.data[i]));
    case DV_VALUE_BOOLS: ADD_LIST(bools, cli_adds(t, v->as.bools.data[i] ? "true" : "false"));
    case DV_VALUE_STRINGS: ADD_LIST(strings, add_string(t, v->as.strings.data[i]));
    case DV_VALUE_TENSORS: ADD_LIST(tensors, add_tensor(t, v->as.tensors.data[i]));
    case DV_VALUE_DTYPES: ADD_LIST(dtypes, cli_adds(t, dv_dtype_name(v->as.dtypes.data[i])));
    case DV_VALUE_NONE: cli_adds(t, "none"); break;
    default: cli_adds(t, "..."); break;
    }
}
