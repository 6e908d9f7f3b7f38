/* Defaults of arguments.
 *
 * PyTorch's parser takes almost any constant for almost any scalar type (int a=1.5, bool b="x"): the constant is kept as parsed,
 * for printing, together with its value converted to the argument's type, if it converts. dv__schema_validate() refuses defaults
 * that do not convert. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "lang/schema_types.h"

enum { MAX_REPEAT = 1 << 20 };

typedef struct constants {
    dv__lexer *lx;
    dv__arena *arena;
    const char *at; /* where the default begins */
} constants;

/* ---- Numbers ------------------------------------------------------------------------------------------------------------- */

/* strtod of the first n characters, with '.' whatever the process's locale says. false: out of range, as C++'s std::stod. */
static bool to_double(const char *s, size_t n, double *out)
{
    char copy[512];
    const char *point = localeconv()->decimal_point;
    size_t m = 0;
    for (size_t i = 0; i < n && m < sizeof copy - 8; i++) {
        if (s[i] == '.' && strlen(point) < 8)
            for (const char *p = point; *p; p++)
                copy[m++] = *p;
        else
            copy[m++] = s[i];
    }
    copy[m] = 0;
    char *end;
    errno = 0;
    *out = strtod(copy, &end);
    return end != copy && errno != ERANGE;
}

/* The decimal digits that n characters begin with, as C++'s std::stoll. */
static bool to_int(const char *s, size_t n, int64_t *out)
{
    const bool negative = n && *s == '-';
    int64_t v = 0;
    size_t i = negative;
    for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, s[i] - '0', &v))
            return false;
    if (i == negative || (!negative && v == INT64_MIN))
        return false;
    *out = negative ? v : -v;
    return true;
}

static int parse_number(constants *c, enum dv__type_kind kind, dv_value *out)
{
    char text[500] = "-";
    const char *at = c->lx->token.start;
    const bool negative = dv__lexer_accept(c->lx, "-");
    const dv__token t = c->lx->token;
    if (t.kind != DV__TOKEN_INT && t.kind != DV__TOKEN_FLOAT)
        return dv__lexer_unexpected(c->lx, negative ? "a number" : "a value");
    if (t.size >= sizeof text - 1)
        return dv__fail_at(DV_ELIMIT, c->lx->text, at, "a number of more than %zu characters", sizeof text - 2);
    memcpy(text + negative, t.start, t.size);
    const size_t n = t.size + negative;
    bool good;
    if (kind == DV__TYPE_COMPLEX || memchr(text, 'j', n)) {
        out->type = DV_VALUE_COMPLEX;
        good = text[n - 1] == 'j' && to_double(text, n - 1, &out->as.c.im); /* PyTorch drops the last digit where there is no j */
    } else if (kind == DV__TYPE_FLOAT || memchr(text, '.', n) || memchr(text, 'e', n)) {
        out->type = DV_VALUE_FLOAT;
        good = to_double(text, n, &out->as.f);
    } else {
        out->type = DV_VALUE_INT;
        good = to_int(text, n, &out->as.i);
    }
    if (!good && out->type == DV_VALUE_COMPLEX)
        return dv__fail_at(DV_ESYNTAX, c->lx->text, at, "expected an imaginary number such as 2j, found %.*s", (int)n, text);
    if (!good)
        return dv__fail_at(DV_ESYNTAX, c->lx->text, at, "expected a number that %s holds, found %.*s",
            out->type == DV_VALUE_INT ? "int" : "float", (int)n, text);
    dv__lexer_next(c->lx);
    return DV_OK;
}

void dv__float_print(double d, dv__text *to)
{
    if (fabs(d) < 0x1p63 && d == (double)(int64_t)d) {
        dv__text_add(to, "%lld.", (long long)d);
        return;
    }
    char digits[40];
    snprintf(digits, sizeof digits, "%.17g", d);
    const char *point = localeconv()->decimal_point;
    char *at = *point && strcmp(point, ".") ? strstr(digits, point) : NULL;
    if (at) {
        *at = '.';
        memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
    }
    dv__text_puts(to, digits);
}

void dv__float_json(double d, dv__text *to)
{
    if (isnan(d) || isinf(d))
        dv__text_puts(to, isnan(d) ? "null" : d > 0 ? "1e999" : "-1e999");
    else if (d == 0 && signbit(d))
        dv__text_puts(to, "-0.0");
    else {
        dv__float_print(d, to);
        if (to->size && to->data[to->size - 1] == '.')
            dv__text_puts(to, "0");
    }
}

/* ---- Strings and words --------------------------------------------------------------------------------------------------- */

static int octal(const char *p) /* three octal digits below 256, or -1 */
{
    int v = 0;
    for (int i = 0; i < 3; i++) {
        if (p[i] < '0' || p[i] > '7')
            return -1;
        v = v * 8 + (p[i] - '0');
    }
    return v < 256 ? v : -1;
}

static int parse_string(constants *c, dv_string *out)
{
    const dv__token t = c->lx->token;
    if (t.kind != DV__TOKEN_STRING)
        return dv__lexer_unexpected(c->lx, "a string");
    const size_t quotes = t.size >= 6 && t.start[1] == *t.start && t.start[2] == *t.start ? 3 : 1;
    const char *p = t.start + quotes, *end = t.start + t.size - quotes;
    char *to = dv__arena_alloc(c->arena, (size_t)(end - p) + 1);
    if (!to)
        return DV_ENOMEM;
    out->data = to;
    while (p < end) {
        static const char from[] = "\\'\"\nabfnvt", become[] = "\\'\"\n\a\b\f\n\v\t";
        const char *known;
        if (*p != '\\') {
            *to++ = *p++;
        } else if (p[1] && (known = strchr(from, p[1]))) {
            *to++ = become[known - from];
            p += 2;
        } else if (end - p >= 4 && octal(p + 1) >= 0) {
            *to++ = (char)octal(p + 1);
            p += 4;
        } else {
            return dv__fail_at(DV_ESYNTAX, c->lx->text, p,
                "expected an escape (one of \\\\ \\' \\\" \\a \\b \\f \\n \\t \\v or three octal "
                "digits), found \\%.1s",
                p + 1);
        }
    }
    out->size = (size_t)(to - out->data);
    dv__lexer_next(c->lx);
    return DV_OK;
}

/* "cuda:1" as PyTorch takes and prints it: an index is one signed byte there. */
static int parse_device(constants *c, dv_value *out, const char **text)
{
    static const struct {
        const char *name;
        int32_t type;
    } devices[] = {
#define DEVICE(name, type) { name, type },
        DV__DEVICES(DEVICE)
#undef DEVICE
    };
    const char *at = c->lx->token.start;
    dv_string s;
    int status = parse_string(c, &s);
    if (status)
        return status;
    const size_t n = strcspn(s.data, ":");
    const bool has_index = n < s.size;
    int64_t index = -1;
    if (has_index) {
        const char *digits = s.data + n + 1;
        const size_t size = s.size - n - 1;
        const bool leading_zero = size > 1 && *digits == '0';
        if (!size || leading_zero || strspn(digits, "0123456789") != size || !to_int(digits, size, &index) || index > INT32_MAX)
            return dv__fail_at(DV_ESYNTAX, c->lx->text, at, "expected a device such as 'cpu' or 'cuda:1', found '%.60s'", s.data);
    }
    index = (int8_t)index;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (strlen(devices[i].name) != n || memcmp(devices[i].name, s.data, n))
            continue;
        char canonical[64];
        snprintf(canonical, sizeof canonical, index == -1 ? "%s" : "%s:%d", devices[i].name, (int)index);
        *text = dv__arena_strndup(c->arena, canonical, strlen(canonical));
        out->type = DV_VALUE_DEVICE;
        out->as.device.type = devices[i].type;
        out->as.device.id = (int32_t)(index == -1 && devices[i].type == DV_CPU ? 0 : index);
        return *text ? DV_OK : DV_ENOMEM;
    }
    return dv__fail_at(DV_ESYNTAX, c->lx->text, at, "expected a device such as 'cpu' or 'cuda:1', found '%.60s'", s.data);
}

static bool is_scalar_type(const dv__type *t)
{
    return t->kind == DV__TYPE_SCALAR_TYPE || (t->kind == DV__TYPE_OPTIONAL && is_scalar_type(t->elems[0]));
}

/* PyTorch's element types. Without bits: DLPack has no such type. */
static const struct {
    int number;
    dv_dtype dtype;
    const char *words;
} scalar_types[] = {
#define DTYPE(name, code, bits, exponent, mantissa, bias, form, torch, names) { torch, { code, bits, 1 }, names },
    DV_DTYPES(DTYPE)
#undef DTYPE
#define OTHER(number, name) { number, { 0, 0, 0 }, name },
        DV__OTHER_SCALAR_TYPES(OTHER)
#undef OTHER
            { 45, { 17, 4, 2 }, "float4_e2m1fn_x2" },
};
enum { NSCALAR_TYPES = sizeof scalar_types / sizeof *scalar_types };

/* The words that stand for numbers. */
static int parse_word(constants *c, const dv__type *type, dv_value *out)
{
    static const struct {
        const char *word;
        int number;
    } words[] = { { "float", 6 }, { "complex", 9 }, { "long", 4 }, { "strided", 0 }, { "Mean", 1 }, { "contiguous_format", 0 } };
    int number = -1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (dv__token_is(c->lx->token, words[i].word))
            number = words[i].number;
    for (size_t i = 0; number < 0 && is_scalar_type(type) && i < NSCALAR_TYPES; i++)
        if (dv__has_word(scalar_types[i].words, c->lx->token.start, c->lx->token.size))
            number = scalar_types[i].number;
    if (number < 0)
        return dv__lexer_unexpected(c->lx, is_scalar_type(type) ? "a dtype such as float or int64" : "a value");
    out->type = DV_VALUE_INT;
    out->as.i = number;
    dv__lexer_next(c->lx);
    return DV_OK;
}

static int parse_constant(constants *c, const dv__type *type, dv_value *out)
{
    dv__lexer *lx = c->lx;
    memset(out, 0, sizeof *out);
    const bool is_true = dv__lexer_is(lx, "True");
    if (is_true || dv__lexer_is(lx, "False")) {
        out->type = DV_VALUE_BOOL;
        out->as.b = is_true;
        dv__lexer_next(lx);
        return DV_OK;
    }
    if (dv__lexer_accept(lx, "None")) {
        out->type = DV_VALUE_NONE;
        return DV_OK;
    }
    if (lx->token.kind == DV__TOKEN_STRING) {
        out->type = DV_VALUE_STRING;
        return parse_string(c, &out->as.s);
    }
    if (lx->token.kind == DV__TOKEN_IDENT)
        return parse_word(c, type, out);
    return parse_number(c, type->kind, out);
}

/* ---- Printing ------------------------------------------------------------------------------------------------------------ */

static void print_quoted(dv_string s, dv__text *to)
{
    dv__text_puts(to, "\"");
    for (size_t i = 0; i < s.size; i++) {
        static const char from[] = "\\'\"\a\b\f\n\t\v", become[] = "\\'\"abfntv";
        const unsigned char c = (unsigned char)s.data[i];
        const char *known = c ? strchr(from, c) : NULL;
        if (known)
            dv__text_add(to, "\\%c", become[known - from]);
        else if (c < 0x20 || c >= 0x7f) /* PyTorch cannot read its own escapes of these above 127, and of \r */
            dv__text_add(to, "\\%03o", c);
        else
            dv__text_put(to, s.data + i, 1);
    }
    dv__text_puts(to, "\"");
}

static void print_constant(const dv_value *v, bool quote, dv__text *to)
{
    switch (v->type) {
    case DV_VALUE_BOOL: dv__text_puts(to, v->as.b ? "True" : "False"); break;
    case DV_VALUE_INT: dv__text_add(to, "%lld", (long long)v->as.i); break;
    case DV_VALUE_FLOAT: dv__float_print(v->as.f, to); break;
    case DV_VALUE_COMPLEX:
        dv__text_puts(to, v->as.c.im >= 0 ? "0.+" : "0.-");
        dv__float_print(fabs(v->as.c.im), to);
        dv__text_puts(to, "j");
        break;
    case DV_VALUE_STRING:
        if (quote)
            print_quoted(v->as.s, to);
        else
            dv__text_put(to, v->as.s.data, v->as.s.size);
        break;
    default: dv__text_puts(to, "None");
    }
}

static int take_text(constants *c, dv__text *text, dv__default *out)
{
    dv__text_put(text, "", 0);
    out->text = text->failed ? NULL : dv__arena_strndup(c->arena, text->data, text->size);
    dv__text_deinit(text);
    return out->text ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
}

/* ---- Conversion ---------------------------------------------------------------------------------------------------------- */

static bool to_dtype(int64_t number, dv_dtype *out)
{
    for (size_t i = 0; i < NSCALAR_TYPES; i++)
        if (number >= 0 && scalar_types[i].number == number && scalar_types[i].dtype.bits)
            return *out = scalar_types[i].dtype, true;
    return false;
}

/* Convert to the type that a frame holds; a value that does not convert is unchanged. */
static void convert(const dv__type *type, dv_value *v)
{
    if (v->type != DV_VALUE_INT)
        return;
    const int64_t i = v->as.i;
    dv_dtype dtype;
    switch (type->kind) {
    case DV__TYPE_FLOAT:
        v->type = DV_VALUE_FLOAT;
        v->as.f = (double)i;
        break;
    case DV__TYPE_SCALAR_TYPE:
        if (to_dtype(i, &dtype)) {
            v->type = DV_VALUE_DTYPE;
            v->as.dtype = dtype;
        }
        break;
    case DV__TYPE_LAYOUT:
    case DV__TYPE_MEMORY_FORMAT:
        if (i >= 0 && i < 16) {
            v->type = type->kind == DV__TYPE_LAYOUT ? DV_VALUE_LAYOUT : DV_VALUE_MEMORY_FORMAT;
            v->as.layout.value = (int32_t)i;
        }
        break;
    default: break;
    }
}

/* Constants of one type to a list in the arena; n == 0 is fine. */
static int to_list(constants *c, const dv__type *elem, const dv_value *v, size_t n, dv_value *out)
{
    memset(out, 0, sizeof *out);
#define LIST(KIND, field, T, member)                                         \
    do {                                                                     \
        T *data = DV__ARENA_ARRAY(c->arena, T, n ? n : 1);                   \
        if (!data)                                                           \
            return DV_ENOMEM;                                                \
        for (size_t i = 0; i < n; i++)                                       \
            data[i] = v[i].as.member;                                        \
        out->type = KIND, out->as.field.data = data, out->as.field.size = n; \
        return DV_OK;                                                        \
    } while (0)
    switch (elem->kind) {
    case DV__TYPE_FLOAT: LIST(DV_VALUE_FLOATS, floats, double, f);
    case DV__TYPE_BOOL: LIST(DV_VALUE_BOOLS, bools, bool, b);
    case DV__TYPE_COMPLEX: LIST(DV_VALUE_COMPLEXES, complexes, dv_complex, c);
    case DV__TYPE_SCALAR_TYPE:
        if (!n || v[0].type == DV_VALUE_DTYPE)
            LIST(DV_VALUE_DTYPES, dtypes, dv_dtype, dtype);
        return DV_OK; /* raw numbers: stays a default without a value, which validation refuses */
    default: LIST(DV_VALUE_INTS, ints, int64_t, i);
    }
#undef LIST
}

/* ---- Lists --------------------------------------------------------------------------------------------------------------- */

/* The kind of constant in a list of this element type; 0: PyTorch has no defaults for such lists. */
static uint32_t element_value(const dv__type *elem)
{
    switch (elem->kind) {
    case DV__TYPE_INT:
    case DV__TYPE_SYMINT:
    case DV__TYPE_SCALAR_TYPE:
    case DV__TYPE_LAYOUT:
    case DV__TYPE_MEMORY_FORMAT: return DV_VALUE_INT;
    case DV__TYPE_FLOAT: return DV_VALUE_FLOAT;
    case DV__TYPE_BOOL: return DV_VALUE_BOOL;
    case DV__TYPE_COMPLEX: return DV_VALUE_COMPLEX;
    default: return 0;
    }
}

static void print_list(const dv__type *elem, const dv_value *v, size_t n, dv__text *to)
{
    bool equal = elem->kind == DV__TYPE_INT && n > 1; /* int[2] x=1: PyTorch prints one number, for int only */
    for (size_t i = 1; i < n && equal; i++)
        equal = v[i].as.i == v[0].as.i;
    if (equal) {
        print_constant(&v[0], false, to);
        return;
    }
    dv__text_puts(to, "[");
    for (size_t i = 0; i < n; i++) {
        dv__text_puts(to, i ? ", " : "");
        print_constant(&v[i], false, to);
    }
    dv__text_puts(to, "]");
}

static int finish_list(constants *c, const dv__type *elem, dv_value *v, size_t n, dv__default *out)
{
    const uint32_t wanted = element_value(elem);
    if (!wanted)
        return dv__fail_at(DV_ESYNTAX, c->lx->text, c->at, "only lists of int, float, bool and complex can have a default");
    for (size_t i = 0; i < n; i++)
        if (v[i].type != wanted)
            return dv__fail_at(DV_ESYNTAX, c->lx->text, c->at, "expected a list of %s",
                wanted == DV_VALUE_INT         ? "integers"
                    : wanted == DV_VALUE_FLOAT ? "floats"
                    : wanted == DV_VALUE_BOOL  ? "booleans"
                                               : "imaginary numbers");
    dv__text text = { 0 };
    print_list(elem, v, n, &text);
    int status = take_text(c, &text, out);
    for (size_t i = 0; i < n; i++)
        convert(elem, &v[i]);
    return status ? status : to_list(c, elem, v, n, &out->value);
}

static int repeat(constants *c, const dv__type *elem, const dv_value *one, int64_t size, dv__default *out)
{
    if (size > MAX_REPEAT)
        return dv__fail_at(DV_ELIMIT, c->lx->text, c->at, "a default for more than %d elements", MAX_REPEAT);
    dv_value *v = dv__calloc((size_t)size, sizeof *v);
    if (!v)
        return DV_ENOMEM;
    for (int64_t i = 0; i < size; i++)
        v[i] = *one;
    const int status = finish_list(c, elem, v, (size_t)size, out);
    dv__free(v);
    return status;
}

static int parse_list(constants *c, const dv__type *list, dv__default *out)
{
    const dv__type *elem = list->elems[0];
    dv_value one;
    int status;
    /* A bare word is refused here, though [long] is fine: PyTorch wants None there and takes no None either. */
    if (list->fixed_size >= 0 && !dv__lexer_is(c->lx, "[") &&
        (c->lx->token.kind != DV__TOKEN_IDENT || dv__lexer_is(c->lx, "True") || dv__lexer_is(c->lx, "False") ||
            dv__lexer_is(c->lx, "None"))) {
        if ((status = parse_constant(c, elem, &one)))
            return status;
        return repeat(c, elem, &one, list->fixed_size, out);
    }
    if (!dv__lexer_accept(c->lx, "["))
        return dv__lexer_unexpected(c->lx, list->fixed_size >= 0 ? "a value or '['" : "'['");
    dv__vec v = { 0 };
    if (!dv__lexer_is(c->lx, "]"))
        do {
            dv_value *slot = dv__vec_add(&v, c->arena, sizeof *slot);
            if (!slot)
                return DV_ENOMEM;
            if ((status = parse_constant(c, elem, slot)))
                return status;
        } while (dv__lexer_accept(c->lx, ","));
    if (!dv__lexer_accept(c->lx, "]"))
        return dv__lexer_unexpected(c->lx, "',' or ']'");
    return finish_list(c, elem, v.data, v.n, out);
}

/* ---- Entry --------------------------------------------------------------------------------------------------------------- */

static int parse_none(constants *c, dv__default *out)
{
    if (!dv__lexer_accept(c->lx, "None"))
        return dv__lexer_unexpected(c->lx, "None");
    out->value = dv_none();
    out->text = "None";
    return DV_OK;
}

static int parse_scalar(constants *c, const dv__type *type, dv__default *out)
{
    const dv__type *bare = type->kind == DV__TYPE_OPTIONAL ? type->elems[0] : type;
    int status = parse_constant(c, type, &out->value);
    if (status)
        return status;
    dv__text text = { 0 };
    print_constant(&out->value, bare->kind == DV__TYPE_STR, &text);
    if ((status = take_text(c, &text, out)))
        return status;
    if (bare->kind == DV__TYPE_LIST && bare->fixed_size >= 0 && out->value.type == element_value(bare->elems[0])) {
        dv__default list = { 0 }; /* int[2]? x=1 */
        const dv_value one = out->value;
        if ((status = repeat(c, bare->elems[0], &one, bare->fixed_size, &list)))
            return status;
        out->value = list.value;
        return DV_OK;
    }
    convert(bare, &out->value);
    return DV_OK;
}

/* Fails: a type that does not exist has no default. PyTorch takes its name for a type variable. */
static int fail_unknown(const constants *c, const dv__type *bare)
{
    char hint[160];
    return dv__fail_at(DV_ESYNTAX, c->lx->text, c->at, "a default of the unknown type '%.60s'%s", bare->name,
        dv__type_hint(bare->name, hint, sizeof hint));
}

int dv__default_parse(dv__lexer *lx, dv__arena *arena, const dv__type *type, dv__default *out)
{
    constants c = { lx, arena, lx->token.start };
    const dv__type *bare = dv__type_bare(type);
    int status = DV_OK;
    memset(out, 0, sizeof *out);
    out->has = true;
    switch (type->kind) {
    case DV__TYPE_TENSOR:
    case DV__TYPE_GENERATOR: return parse_none(&c, out);
    case DV__TYPE_DEVICE: return parse_device(&c, &out->value, &out->text);
    case DV__TYPE_LIST:
        status = parse_list(&c, type, out);
        return status == DV_ESYNTAX && dv__type_is_unknown(bare) ? fail_unknown(&c, bare) : status;
    case DV__TYPE_SYMBOOL:
    case DV__TYPE_TUPLE: break;
    case DV__TYPE_OTHER:
        if (!strcmp(type->name, "Quantizer"))
            return parse_none(&c, out);
        if (dv__type_is_unknown(type))
            return fail_unknown(&c, type);
        break;
    default: return parse_scalar(&c, type, out);
    }
    return dv__fail_at(DV_ESYNTAX, lx->text, c.at, "an argument of this type cannot have a default");
}

bool dv__default_fits(const dv__default *def, const dv__type *type)
{
    const uint32_t v = def->value.type;
    switch (type->kind) {
    case DV__TYPE_OPTIONAL: return v == DV_VALUE_NONE || dv__default_fits(def, type->elems[0]);
    case DV__TYPE_SCALAR: return v == DV_VALUE_INT || v == DV_VALUE_FLOAT || v == DV_VALUE_BOOL || v == DV_VALUE_COMPLEX;
    case DV__TYPE_DEVICE: return v == DV_VALUE_DEVICE && def->value.as.device.type != 0;
    case DV__TYPE_LIST:
        return v == DV_VALUE_INTS || v == DV_VALUE_FLOATS || v == DV_VALUE_BOOLS || v == DV_VALUE_COMPLEXES ||
            v == DV_VALUE_DTYPES;
    default: return dv__type_field(type) && v == dv_field_at(dv__type_field(type))->value;
    }
}
