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
#include "lang/schema_internal.h"

enum { MAX_REPEAT = 1 << 20 }; /* the greatest N of int[N] x=0, whose default is N elements */

typedef struct default_parser {
    dv__lexer *lx;
    dv__arena *arena;
    const char *at; /* where the default begins */
} default_parser;

/* ---- Numbers ------------------------------------------------------------------------------------------------------------- */

/* Parses the first n characters as a real number with a '.', whatever the process's locale is. Returns false if it is out of
 * range, as C++'s std::stod. */
static bool default_try_parse_double(const char *s, size_t n, double *out)
{
    char copy[512];
    const char *point = localeconv()->decimal_point;
    size_t length = 0;
    for (size_t i = 0; i < n && length < sizeof copy - 8; i++) {
        if (s[i] == '.' && strlen(point) < 8)
            for (const char *p = point; *p; p++)
                copy[length++] = *p;
        else
            copy[length++] = s[i];
    }
    copy[length] = 0;
    char *end;
    errno = 0;
    *out = strtod(copy, &end);
    return end != copy && errno != ERANGE;
}

/* Parses the decimal digits that n characters begin with, as C++'s std::stoll does. Returns false without digits and on
 * overflow. */
static bool default_try_parse_int(const char *s, size_t n, int64_t *out)
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

/* Parses a number, which becomes complex, float or int by its form and by `kind`, the argument's type. Returns a status. */
static int default_parse_number(default_parser *c, enum dv__type_kind kind, dv_value *out)
{
    char text[500] = "-";
    const char *at = c->lx->token.start;
    const bool negative = dv__lexer_try_accept(c->lx, "-");
    const dv__token t = c->lx->token;
    if (t.kind != DV__TOKEN_INT && t.kind != DV__TOKEN_FLOAT)
        return dv__lexer_fail_expected(c->lx, negative ? "a number" : "a value");
    if (t.size >= sizeof text - 1)
        return dv__fail_at_column(DV_ELIMIT, c->lx->text, at, "a number of more than %zu characters", sizeof text - 2);
    memcpy(text + negative, t.start, t.size);
    const size_t n = t.size + negative;
    bool is_valid;
    if (kind == DV__TYPE_COMPLEX || memchr(text, 'j', n)) {
        out->type = DV_VALUE_COMPLEX;
        is_valid = text[n - 1] == 'j' &&
            default_try_parse_double(
                text, n - 1, &out->as.c.im); /* without a j PyTorch would drop the last digit: it is refused */
    } else if (kind == DV__TYPE_FLOAT || memchr(text, '.', n) || memchr(text, 'e', n)) {
        out->type = DV_VALUE_FLOAT;
        is_valid = default_try_parse_double(text, n, &out->as.f);
    } else {
        out->type = DV_VALUE_INT;
        is_valid = default_try_parse_int(text, n, &out->as.i);
    }
    if (!is_valid && out->type == DV_VALUE_COMPLEX)
        return dv__fail_at_column(
            DV_ESYNTAX, c->lx->text, at, "expected an imaginary number such as 2j, found %.*s", (int)n, text);
    if (!is_valid)
        return dv__fail_at_column(DV_ESYNTAX, c->lx->text, at, "expected a number that %s holds, found %.*s",
            out->type == DV_VALUE_INT ? "int" : "float", (int)n, text);
    dv__lexer_next(c->lx);
    return DV_OK;
}

void dv__float_print(double d, dv__strbuf *to)
{
    if (fabs(d) < 0x1p63 && d == (double)(int64_t)d) {
        dv__strbuf_printf(to, "%lld.", (long long)d);
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
    dv__strbuf_append_str(to, digits);
}

void dv__float_json(double d, dv__strbuf *to)
{
    if (isnan(d) || isinf(d))
        dv__strbuf_append_str(to, isnan(d) ? "null" : d > 0 ? "1e999" : "-1e999");
    else if (d == 0 && signbit(d))
        dv__strbuf_append_str(to, "-0.0");
    else {
        dv__float_print(d, to);
        if (to->size && to->data[to->size - 1] == '.')
            dv__strbuf_append_str(to, "0");
    }
}

/* ---- Strings and words --------------------------------------------------------------------------------------------------- */

/* Returns the value of three octal digits at p; -1: there are no such digits, or the value is above 255. */
static int default_get_octal_escape_value(const char *p)
{
    int v = 0;
    for (int i = 0; i < 3; i++) {
        if (p[i] < '0' || p[i] > '7')
            return -1;
        v = v * 8 + (p[i] - '0');
    }
    return v < 256 ? v : -1;
}

/* Parses a string literal with Python's escapes, without prefixes. Returns a status. */
static int default_parse_string(default_parser *c, dv_string *out)
{
    const dv__token t = c->lx->token;
    if (t.kind != DV__TOKEN_STRING)
        return dv__lexer_fail_expected(c->lx, "a string");
    const size_t quotes = t.size >= 6 && t.start[1] == *t.start && t.start[2] == *t.start ? 3 : 1;
    const char *p = t.start + quotes, *end = t.start + t.size - quotes;
    char *to = dv__arena_alloc(c->arena, (size_t)(end - p) + 1);
    if (!to)
        return DV_ENOMEM;
    out->data = to;
    while (p < end) {
        static const char from[] = "\\'\"\nabfnvt", replacements[] = "\\'\"\n\a\b\f\n\v\t";
        const char *known;
        if (*p != '\\') {
            *to++ = *p++;
        } else if (p[1] && (known = strchr(from, p[1]))) {
            *to++ = replacements[known - from];
            p += 2;
        } else if (end - p >= 4 && default_get_octal_escape_value(p + 1) >= 0) {
            *to++ = (char)default_get_octal_escape_value(p + 1);
            p += 4;
        } else {
            return dv__fail_at_column(DV_ESYNTAX, c->lx->text, p,
                "expected an escape (one of \\\\ \\' \\\" \\a \\b \\f \\n \\t \\v or three octal "
                "digits), found \\%.1s",
                p + 1);
        }
    }
    out->size = (size_t)(to - out->data);
    dv__lexer_next(c->lx);
    return DV_OK;
}

/* Parses a device such as "cuda:1" as PyTorch does, where an index is one signed byte. *text: as PyTorch prints it. Returns a
 * status. */
static int default_parse_device(default_parser *c, dv_value *out, const char **text)
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
    int status = default_parse_string(c, &s);
    if (status)
        return status;
    const size_t n = strcspn(s.data, ":");
    const bool has_index = n < s.size;
    int64_t index = -1;
    if (has_index) {
        const char *digits = s.data + n + 1;
        const size_t size = s.size - n - 1;
        const bool leading_zero = size > 1 && *digits == '0';
        if (!size || leading_zero || strspn(digits, "0123456789") != size || !default_try_parse_int(digits, size, &index) ||
            index > INT32_MAX)
            return dv__fail_at_column(
                DV_ESYNTAX, c->lx->text, at, "expected a device such as 'cpu' or 'cuda:1', found '%.60s'", s.data);
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
    return dv__fail_at_column(DV_ESYNTAX, c->lx->text, at, "expected a device such as 'cpu' or 'cuda:1', found '%.60s'", s.data);
}

/* True for ScalarType and ScalarType?. */
static bool type_is_scalar_type(const dv__type *t)
{
    return t->kind == DV__TYPE_DTYPE || (t->kind == DV__TYPE_OPTIONAL && type_is_scalar_type(t->elems[0]));
}

/* PyTorch's element types: number, dtype and names. A dtype with 0 bits: DLPack has no such type. */
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

/* Parses a word that stands for a number, such as `long` or `contiguous_format`; for a ScalarType, also a dtype's name. Returns
 * a status. */
static int default_parse_word(default_parser *c, const dv__type *type, dv_value *out)
{
    static const struct {
        const char *word;
        int number;
    } words[] = { { "float", 6 }, { "complex", 9 }, { "long", 4 }, { "strided", 0 }, { "Mean", 1 }, { "contiguous_format", 0 } };
    int number = -1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (dv__token_is(c->lx->token, words[i].word))
            number = words[i].number;
    for (size_t i = 0; number < 0 && type_is_scalar_type(type) && i < NSCALAR_TYPES; i++)
        if (dv__has_word(scalar_types[i].words, c->lx->token.start, c->lx->token.size))
            number = scalar_types[i].number;
    if (number < 0)
        return dv__lexer_fail_expected(c->lx, type_is_scalar_type(type) ? "a dtype such as float or int64" : "a value");
    out->type = DV_VALUE_INT;
    out->as.i = number;
    dv__lexer_next(c->lx);
    return DV_OK;
}

/* Parses one constant: True, False, None, a string, a word or a number. Returns a status. */
static int default_parse_constant(default_parser *c, const dv__type *type, dv_value *out)
{
    dv__lexer *lx = c->lx;
    memset(out, 0, sizeof *out);
    const bool is_true = dv__lexer_is_at(lx, "True");
    if (is_true || dv__lexer_is_at(lx, "False")) {
        out->type = DV_VALUE_BOOL;
        out->as.b = is_true;
        dv__lexer_next(lx);
        return DV_OK;
    }
    if (dv__lexer_try_accept(lx, "None")) {
        out->type = DV_VALUE_NONE;
        return DV_OK;
    }
    if (lx->token.kind == DV__TOKEN_STRING) {
        out->type = DV_VALUE_STRING;
        return default_parse_string(c, &out->as.s);
    }
    if (lx->token.kind == DV__TOKEN_IDENT)
        return default_parse_word(c, type, out);
    return default_parse_number(c, type->kind, out);
}

/* ---- Printing ------------------------------------------------------------------------------------------------------------ */

/* Prints a string in double quotes, with escapes as PyTorch prints them. */
static void default_print_quoted(dv_string s, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "\"");
    for (size_t i = 0; i < s.size; i++) {
        static const char from[] = "\\'\"\a\b\f\n\t\v", replacements[] = "\\'\"abfntv";
        const unsigned char c = (unsigned char)s.data[i];
        const char *known = c ? strchr(from, c) : NULL;
        if (known)
            dv__strbuf_printf(to, "\\%c", replacements[known - from]);
        else if (c < 0x20 || c >= 0x7f) /* PyTorch prints these escapes too, but cannot read those of \r and of bytes above 127 */
            dv__strbuf_printf(to, "\\%03o", c);
        else
            dv__strbuf_append(to, s.data + i, 1);
    }
    dv__strbuf_append_str(to, "\"");
}

/* Prints a constant as PyTorch does. quote: strings are in double quotes. */
static void default_print_constant(const dv_value *v, bool quote, dv__strbuf *to)
{
    switch (v->type) {
    case DV_VALUE_BOOL: dv__strbuf_append_str(to, v->as.b ? "True" : "False"); break;
    case DV_VALUE_INT: dv__strbuf_printf(to, "%lld", (long long)v->as.i); break;
    case DV_VALUE_FLOAT: dv__float_print(v->as.f, to); break;
    case DV_VALUE_COMPLEX:
        dv__strbuf_append_str(to, v->as.c.im >= 0 ? "0.+" : "0.-");
        dv__float_print(fabs(v->as.c.im), to);
        dv__strbuf_append_str(to, "j");
        break;
    case DV_VALUE_STRING:
        if (quote)
            default_print_quoted(v->as.s, to);
        else
            dv__strbuf_append(to, v->as.s.data, v->as.s.size);
        break;
    default: dv__strbuf_append_str(to, "None");
    }
}

/* Sets out->text to a copy of *text in the arena, and frees *text. Returns a status. */
static int default_take_text(default_parser *c, dv__strbuf *text, dv__default *out)
{
    dv__strbuf_append(text, "", 0);
    out->text = text->failed ? NULL : dv__arena_strndup(c->arena, text->data, text->size);
    dv__strbuf_deinit(text);
    return out->text ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
}

/* ---- Conversion ---------------------------------------------------------------------------------------------------------- */

/* Finds the dtype of PyTorch's number of an element type. Returns false if there is none in DLPack. */
static bool default_try_find_dtype_of_scalar_type(int64_t number, dv_dtype *out)
{
    for (size_t i = 0; i < NSCALAR_TYPES; i++)
        if (number >= 0 && scalar_types[i].number == number && scalar_types[i].dtype.bits)
            return *out = scalar_types[i].dtype, true;
    return false;
}

/* Converts a default to the type that a frame holds. A value that cannot be converted is left as it is. */
static void default_convert_to_type(const dv__type *type, dv_value *value)
{
    if (value->type != DV_VALUE_INT)
        return;
    const int64_t i = value->as.i;
    dv_dtype dtype;
    switch (type->kind) {
    case DV__TYPE_FLOAT:
        value->type = DV_VALUE_FLOAT;
        value->as.f = (double)i;
        break;
    case DV__TYPE_DTYPE:
        if (default_try_find_dtype_of_scalar_type(i, &dtype)) {
            value->type = DV_VALUE_DTYPE;
            value->as.dtype = dtype;
        }
        break;
    case DV__TYPE_LAYOUT:
    case DV__TYPE_MEMORY_FORMAT:
        if (i >= 0 && i < 16) {
            value->type = type->kind == DV__TYPE_LAYOUT ? DV_VALUE_LAYOUT : DV_VALUE_MEMORY_FORMAT;
            value->as.layout.value = (int32_t)i;
        }
        break;
    default: break;
    }
}

/* Converts n constants of one type to a list in the arena; n may be 0. Returns DV_OK or DV_ENOMEM. */
static int default_convert_list(default_parser *c, const dv__type *elem, const dv_value *v, size_t n, dv_value *out)
{
    const unsigned kind = elem->kind == DV__TYPE_DTYPE ? DV__TYPE_DTYPE : dv__type_rows[elem->kind].fake;
    const dv_field_row *one = dv_field_at(dv__type_rows[kind].field),
                       *list = dv_field_at(dv_field_with_form(one->type, DV_FORM_LIST));
    memset(out, 0, sizeof *out);
    if (kind == DV__TYPE_DTYPE && n && v[0].type != DV_VALUE_DTYPE)
        return DV_OK; /* numbers of dtypes that DLPack lacks: the default has no value, which validation refuses */
    char *data = dv__arena_alloc(c->arena, (n ? n : 1) * one->size);
    if (!data)
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        memcpy(data + i * one->size, &v[i].as, one->size);
    out->type = list->value;
    out->as.ints.data = (const int64_t *)(const void *)data; /* all lists have one layout */
    out->as.ints.size = n;
    return DV_OK;
}

/* ---- Lists --------------------------------------------------------------------------------------------------------------- */

/* Returns the type (enum dv_value_type) of the constants in a list with this element type; 0: PyTorch has no defaults for such
 * lists. */
static uint32_t type_get_default_element_type(const dv__type *elem)
{
    const unsigned kind = dv__type_rows[elem->kind].fake;
    return kind == DV__TYPE_INT || kind == DV__TYPE_FLOAT || kind == DV__TYPE_BOOL || kind == DV__TYPE_COMPLEX
        ? dv_field_at(dv__type_rows[kind].field)->value
        : 0;
}

/* Prints a list as PyTorch does; n equal ints as one number. */
static void default_print_list(const dv__type *elem, const dv_value *v, size_t n, dv__strbuf *to)
{
    bool equal = elem->kind == DV__TYPE_INT && n > 1; /* PyTorch prints int[2] x=[1, 1] as x=1, but only for int */
    for (size_t i = 1; i < n && equal; i++)
        equal = v[i].as.i == v[0].as.i;
    if (equal) {
        default_print_constant(&v[0], false, to);
        return;
    }
    dv__strbuf_append_str(to, "[");
    for (size_t i = 0; i < n; i++) {
        dv__strbuf_append_str(to, i ? ", " : "");
        default_print_constant(&v[i], false, to);
    }
    dv__strbuf_append_str(to, "]");
}

/* Sets the default to a list of n constants. Fails if one has another type than the list's elements. */
static int default_set_list(default_parser *c, const dv__type *elem, dv_value *v, size_t n, dv__default *out)
{
    const uint32_t wanted = type_get_default_element_type(elem);
    if (!wanted)
        return dv__fail_at_column(
            DV_ESYNTAX, c->lx->text, c->at, "only lists of int, float, bool and complex can have a default");
    for (size_t i = 0; i < n; i++)
        if (v[i].type != wanted)
            return dv__fail_at_column(DV_ESYNTAX, c->lx->text, c->at, "expected a list of %s",
                wanted == DV_VALUE_INT         ? "integers"
                    : wanted == DV_VALUE_FLOAT ? "floats"
                    : wanted == DV_VALUE_BOOL  ? "booleans"
                                               : "imaginary numbers");
    dv__strbuf text = { 0 };
    default_print_list(elem, v, n, &text);
    int status = default_take_text(c, &text, out);
    for (size_t i = 0; i < n; i++)
        default_convert_to_type(elem, &v[i]);
    return status ? status : default_convert_list(c, elem, v, n, &out->value);
}

/* Sets the default to a list of `size` equal elements. Returns a status. */
static int default_set_repeated(default_parser *c, const dv__type *elem, const dv_value *element, int64_t size, dv__default *out)
{
    if (size > MAX_REPEAT)
        return dv__fail_at_column(DV_ELIMIT, c->lx->text, c->at, "a default for more than %d elements", MAX_REPEAT);
    dv_value *v = dv__calloc((size_t)size, sizeof *v);
    if (!v)
        return DV_ENOMEM;
    for (int64_t i = 0; i < size; i++)
        v[i] = *element;
    const int status = default_set_list(c, elem, v, (size_t)size, out);
    dv__free(v);
    return status;
}

/* Parses the default of a list: [a, b], or one constant for int[2]. Returns a status. */
static int default_parse_list(default_parser *c, const dv__type *list, dv__default *out)
{
    const dv__type *elem = list->elems[0];
    dv_value one;
    int status;
    /* int[2] x=3 stands for [3, 3]. An identifier in place of the number is refused, though `int[2] x=[long, long]` is
     * accepted. PyTorch's parser expects the keyword None in place of an identifier here, and refuses None as an element. */
    if (list->fixed_size >= 0 && !dv__lexer_is_at(c->lx, "[") &&
        (c->lx->token.kind != DV__TOKEN_IDENT || dv__lexer_is_at(c->lx, "True") || dv__lexer_is_at(c->lx, "False") ||
            dv__lexer_is_at(c->lx, "None"))) {
        if ((status = default_parse_constant(c, elem, &one)))
            return status;
        return default_set_repeated(c, elem, &one, list->fixed_size, out);
    }
    if (!dv__lexer_try_accept(c->lx, "["))
        return dv__lexer_fail_expected(c->lx, list->fixed_size >= 0 ? "a value or '['" : "'['");
    dv__vec v = { 0 };
    if (!dv__lexer_is_at(c->lx, "]"))
        do {
            dv_value *slot = dv__vec_push(&v, c->arena, sizeof *slot);
            if (!slot)
                return DV_ENOMEM;
            if ((status = default_parse_constant(c, elem, slot)))
                return status;
        } while (dv__lexer_try_accept(c->lx, ","));
    if (!dv__lexer_try_accept(c->lx, "]"))
        return dv__lexer_fail_expected(c->lx, "',' or ']'");
    return default_set_list(c, elem, v.data, v.n, out);
}

/* ---- Defaults of any type ------------------------------------------------------------------------------------------------ */

/* Parses None, the only default of a Tensor or Generator. Returns a status. */
static int default_parse_none(default_parser *c, dv__default *out)
{
    if (!dv__lexer_try_accept(c->lx, "None"))
        return dv__lexer_fail_expected(c->lx, "None");
    out->value = dv_none();
    out->text = "None";
    return DV_OK;
}

/* Parses the default of any type but a list. For int[2]?, one constant stands for all elements. Returns a status. */
static int default_parse_scalar(default_parser *c, const dv__type *type, dv__default *out)
{
    const dv__type *bare = type->kind == DV__TYPE_OPTIONAL ? type->elems[0] : type;
    int status = default_parse_constant(c, type, &out->value);
    if (status)
        return status;
    dv__strbuf text = { 0 };
    default_print_constant(&out->value, bare->kind == DV__TYPE_STRING, &text);
    if ((status = default_take_text(c, &text, out)))
        return status;
    if (bare->kind == DV__TYPE_LIST && bare->fixed_size >= 0 &&
        out->value.type == type_get_default_element_type(bare->elems[0])) {
        dv__default list = { 0 }; /* int[2]? x=1 means [1, 1] */
        const dv_value one = out->value;
        if ((status = default_set_repeated(c, bare->elems[0], &one, bare->fixed_size, &list)))
            return status;
        out->value = list.value;
        return DV_OK;
    }
    default_convert_to_type(bare, &out->value);
    return DV_OK;
}

/* Fails because a type that does not exist has no default. PyTorch takes such a name for a type variable. */
static int default_fail_unknown_type(const default_parser *c, const dv__type *bare)
{
    char hint[160];
    return dv__fail_at_column(DV_ESYNTAX, c->lx->text, c->at, "a default of the unknown type '%.60s'%s", bare->name,
        dv__type_print_hint(bare->name, hint, sizeof hint));
}

int dv__default_parse(dv__lexer *lx, dv__arena *arena, const dv__type *type, dv__default *out)
{
    default_parser c = { lx, arena, lx->token.start };
    const dv__type *bare = dv__type_strip_lists_and_optionals(type);
    int status = DV_OK;
    memset(out, 0, sizeof *out);
    out->is_set = true;
    switch (type->kind) {
    case DV__TYPE_TENSOR:
    case DV__TYPE_GENERATOR: return default_parse_none(&c, out);
    case DV__TYPE_DEVICE: return default_parse_device(&c, &out->value, &out->text);
    case DV__TYPE_LIST:
        status = default_parse_list(&c, type, out);
        return status == DV_ESYNTAX && dv__type_is_type_variable(bare) ? default_fail_unknown_type(&c, bare) : status;
    case DV__TYPE_SYMBOOL:
    case DV__TYPE_TUPLE: break;
    case DV__TYPE_OTHER:
        if (!strcmp(type->name, "Quantizer"))
            return default_parse_none(&c, out);
        if (dv__type_is_type_variable(type))
            return default_fail_unknown_type(&c, type);
        break;
    default: return default_parse_scalar(&c, type, out);
    }
    return dv__fail_at_column(DV_ESYNTAX, lx->text, c.at, "an argument of this type cannot have a default");
}

bool dv__default_fits_type(const dv__default *def, const dv__type *type)
{
    const uint32_t v = def->value.type;
    switch (type->kind) {
    case DV__TYPE_OPTIONAL: return v == DV_VALUE_NONE || dv__default_fits_type(def, type->elems[0]);
    case DV__TYPE_SCALAR: return v == DV_VALUE_INT || v == DV_VALUE_FLOAT || v == DV_VALUE_BOOL || v == DV_VALUE_COMPLEX;
    case DV__TYPE_DEVICE: return v == DV_VALUE_DEVICE && def->value.as.device.type != 0;
    case DV__TYPE_LIST:
        return v == DV_VALUE_INTS || v == DV_VALUE_FLOATS || v == DV_VALUE_BOOLS || v == DV_VALUE_COMPLEXES ||
            v == DV_VALUE_DTYPES;
    default: return dv__type_rows[type->kind].field && v == dv_field_at(dv__type_rows[type->kind].field)->value;
    }
}
