/* What the text of a row means: "aclnnAddCustom(self, other, float(eps), result)" against the operator's schema. Parsed at the
 * first call and kept in a table that only grows. */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

enum { BUCKETS = 256 };
static struct {
    pthread_mutex_t lock;
    const dv__aclnn_row *buckets[BUCKETS];
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

typedef struct parser {
    dv_operator *op;
    const char *text, *at;
    dv__aclnn_row *row;
    char *strings; /* room for names and texts, with the row */
} parser;

static int bad(const parser *p, const char *what, const char *found, size_t n)
{
    return dv_fail(DV_ESYNTAX, "kernel row %s: %s, found '%.*s'", p->text, what, (int)n, found);
}

/* ---- Arguments by name ---- */

static enum dv__pass pass_of(uint32_t type)
{
    switch (type) {
    case DV_FIELD_TENSOR: return DV__PASS_TENSOR;
    case DV_FIELD_TENSORS: return DV__PASS_TENSORS;
    case DV_FIELD_INT: return DV__PASS_INT;
    case DV_FIELD_FLOAT: return DV__PASS_DOUBLE;
    case DV_FIELD_BOOL: return DV__PASS_BOOL;
    case DV_FIELD_STRING: return DV__PASS_TEXT;
    case DV_FIELD_SCALAR: return DV__PASS_SCALAR;
    case DV_FIELD_DTYPE: return DV__PASS_DTYPE;
    case DV_FIELD_INTS: return DV__PASS_INTS;
    case DV_FIELD_FLOATS: return DV__PASS_FLOATS;
    case DV_FIELD_BOOLS: return DV__PASS_BOOLS;
    case DV_FIELD_SCALARS: return DV__PASS_SCALARS;
    default: return DV__PASS_NULL;
    }
}

static bool is_tensor(uint32_t type) { return type == DV_FIELD_TENSOR || type == DV_FIELD_TENSORS; }

static bool is_named(const parser *p, size_t slot, const dv_slot_info *info, const char *name, size_t n)
{
    char numbered[32] = "result";
    const size_t nargs = dv_operator_nargs(p->op);
    if (!n)
        return false;
    if (strlen(info->name) == n && !memcmp(info->name, name, n))
        return true;
    if (slot < nargs || *info->name)
        return false;
    if (n == 6 && !memcmp(name, "result", 6))
        return dv_operator_nresults(p->op) == 1;
    snprintf(numbered, sizeof numbered, "result%zu", slot - nargs);
    return strlen(numbered) == n && !memcmp(numbered, name, n);
}

static int find_slot(const parser *p, const char *name, size_t n, dv_slot_info *info)
{
    const size_t nslots = dv_operator_nargs(p->op) + dv_operator_nresults(p->op);
    for (size_t i = 0; i < nslots; i++)
        if (!dv_operator_slot(p->op, i, info) && is_named(p, i, info, name, n))
            return (int)i;
    return -1;
}

static char *keep(parser *p, const char *text, size_t n)
{
    char *kept = p->strings;
    memcpy(kept, text, n);
    kept[n] = 0;
    p->strings += n + 1;
    return kept;
}

static int take_slot(parser *p, size_t slot, const dv_slot_info *info, dv__parameter *to)
{
    const char *schema = dv_operator_schema(p->op);
    *to = (dv__parameter){ .pass = pass_of(info->type), .slot = (int)slot, .name = *info->name ? info->name : "result" };
    if (to->pass == DV__PASS_NULL)
        return dv_fail(DV_ENOTSUP,
            "kernel row %s: argument '%s' of %s: aclnn has no parameter of this type; leave it out of the list", p->text,
            to->name, schema);
    if (slot >= dv_operator_nargs(p->op) && !is_tensor(info->type))
        return dv_fail(DV_ENOTSUP, "kernel row %s: the result '%s' of %s: aclnn gives tensors only", p->text, to->name, schema);
    return DV_OK;
}

/* Tensors, then other arguments, then results that are not arguments already. */
static int take_all(parser *p)
{
    const size_t nargs = dv_operator_nargs(p->op), nslots = nargs + dv_operator_nresults(p->op);
    int status = DV_OK;
    for (int round = 0; round < 3 && !status; round++)
        for (size_t i = round < 2 ? 0 : nargs; i < (round < 2 ? nargs : nslots) && !status; i++) {
            dv_slot_info info;
            if ((status = dv_operator_slot(p->op, i, &info)))
                break;
            const bool wanted = round == 2 ? info.alias < 0 : is_tensor(info.type) == (round == 0);
            if (wanted && p->row->n == DV__MAX_PARAMETERS)
                return dv_fail(DV_ELIMIT, "kernel row %s: more than %d parameters", p->text, DV__MAX_PARAMETERS);
            if (wanted)
                status = take_slot(p, i, &info, &p->row->parameters[p->row->n++]);
        }
    return status;
}

/* ---- The list ---- */

static void skip(parser *p)
{
    while (isspace((unsigned char)*p->at))
        p->at++;
}

static bool take(parser *p, const char *token)
{
    skip(p);
    const size_t n = strlen(token);
    if (strncmp(p->at, token, n))
        return false;
    p->at += n;
    return true;
}

static size_t word_size(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

static bool is_word(const char *s, size_t n, const char *word) { return strlen(word) == n && !memcmp(s, word, n); }

/* A constant; false if there is none. */
static bool take_constant(parser *p, dv_value *out)
{
    skip(p);
    const char *start = p->at;
    char *end;
    const size_t n = word_size(start);
    if (*start == '"') {
        const char *stop = strchr(start + 1, '"');
        if (!stop)
            return false;
        p->at = stop + 1;
        *out = dv_from_string(keep(p, start + 1, (size_t)(stop - start - 1)));
    } else if (is_word(start, n, "none")) {
        *out = dv_none();
        p->at += n;
    } else if (is_word(start, n, "true") || is_word(start, n, "false")) {
        *out = dv_from_bool(*start == 't');
        p->at += n;
    } else if (isdigit((unsigned char)*start) || *start == '-' || *start == '.') {
        const double f = strtod(start, &end);
        const bool whole = !memchr(start, '.', (size_t)(end - start)) && !memchr(start, 'e', (size_t)(end - start));
        if (end == start)
            return false;
        errno = 0;
        *out = whole ? dv_from_int(strtoll(start, &end, 0)) : dv_from_float(f);
        if (whole && errno)
            return false;
        p->at = end;
    } else {
        return false;
    }
    return true;
}

static enum dv__pass pass_of_constant(const dv_value *v)
{
    switch (v->type) {
    case DV_VALUE_INT: return DV__PASS_INT;
    case DV_VALUE_FLOAT: return DV__PASS_DOUBLE;
    case DV_VALUE_BOOL: return DV__PASS_BOOL;
    case DV_VALUE_STRING: return DV__PASS_TEXT;
    default: return DV__PASS_NULL;
    }
}

static const struct {
    const char *word;
    enum dv__pass pass;
} converters[] = { { "float", DV__PASS_FLOAT }, { "double", DV__PASS_DOUBLE }, { "int64_t", DV__PASS_INT },
    { "bool", DV__PASS_BOOL }, { "scalar", DV__PASS_SCALAR } };

/* "float(" before an item; false: none. */
static bool take_converter(parser *p, enum dv__pass *out)
{
    skip(p);
    const size_t n = word_size(p->at);
    for (size_t i = 0; n && p->at[n] == '(' && i < sizeof converters / sizeof *converters; i++)
        if (is_word(p->at, n, converters[i].word)) {
            *out = converters[i].pass;
            p->at += n + 1;
            return true;
        }
    return false;
}

static bool is_number(enum dv__pass pass)
{
    return pass == DV__PASS_INT || pass == DV__PASS_DOUBLE || pass == DV__PASS_FLOAT || pass == DV__PASS_BOOL ||
        pass == DV__PASS_SCALAR;
}

/* What stands for None is of the parameter's own kind; nothing stands for a tensor or a list. */
static bool fits(enum dv__pass pass, const dv_value *v)
{
    const bool number = v->type == DV_VALUE_INT || v->type == DV_VALUE_FLOAT || v->type == DV_VALUE_BOOL;
    if (v->type == DV_VALUE_NONE)
        return pass != DV__PASS_TENSOR && pass != DV__PASS_TENSORS;
    if (pass == DV__PASS_INT || pass == DV__PASS_BOOL)
        return number && v->type != DV_VALUE_FLOAT;
    return is_number(pass) ? number : pass == DV__PASS_TEXT && v->type == DV_VALUE_STRING;
}

static int take_name(parser *p, dv__parameter *to)
{
    dv_slot_info info;
    const size_t n = word_size(p->at);
    const int slot = find_slot(p, p->at, n, &info);
    if (slot < 0)
        return dv_fail(DV_ENOENT, "kernel row %s: expected an argument or result of %s, or a constant, found '%.*s'", p->text,
            dv_operator_schema(p->op), (int)(n ? n : 1), p->at);
    p->at += n;
    return take_slot(p, (size_t)slot, &info, to);
}

static int take_item(parser *p, dv__parameter *to)
{
    enum dv__pass converted = DV__PASS_NULL;
    const char *other = NULL, *stop = NULL;
    int status = DV_OK;
    skip(p);
    const char *start = p->at;
    const bool converts = take_converter(p, &converted);
    *to = (dv__parameter){ .slot = -1 };
    if (take_constant(p, &to->constant)) {
        to->pass = pass_of_constant(&to->constant);
        to->name = keep(p, start, (size_t)(p->at - start));
    } else {
        status = take_name(p, to);
        if (!status && take(p, "or ")) {
            skip(p);
            other = p->at;
            if (!take_constant(p, &to->constant))
                status = bad(p, "expected a constant after 'or'", other, word_size(other));
            stop = p->at;
        }
    }
    if (!status && converts && !take(p, ")"))
        return bad(p, "expected ')'", p->at, strlen(p->at));
    if (!status && converts && !is_number(to->pass))
        return bad(p, "a converter takes a number", start, (size_t)(p->at - start));
    if (!status && converts)
        to->pass = converted;
    if (!status && other && !fits(to->pass, &to->constant))
        return bad(p, "expected a constant of the parameter's type after 'or'", other, (size_t)(stop - other));
    return status;
}

static int take_list(parser *p)
{
    const char *open = strchr(p->text, '(');
    if (!open || p->text[strlen(p->text) - 1] != ')')
        return bad(p, "expected name(list)", p->text, strlen(p->text));
    p->row->name = keep(p, p->text, (size_t)(open - p->text));
    p->at = open + 1;
    if (take(p, ")"))
        return take_all(p);
    do {
        if (p->row->n == DV__MAX_PARAMETERS)
            return dv_fail(DV_ELIMIT, "kernel row %s: more than %d parameters", p->text, DV__MAX_PARAMETERS);
        const int status = take_item(p, &p->row->parameters[p->row->n++]);
        if (status)
            return status;
    } while (take(p, ","));
    return take(p, ")") && !*p->at ? DV_OK : bad(p, "expected ',' or ')'", p->at, strlen(p->at));
}

/* ---- The table ---- */

static int find_functions(dv__aclnn_row *row)
{
    char sizes[512];
    snprintf(sizes, sizeof sizes, "%sGetWorkspaceSize", row->name);
    row->sizes = dv__acl_find(sizes);
    row->launch = (dv_aclnn_launch)dv__acl_find(row->name);
    if (row->sizes && row->launch)
        return DV_OK;
    return dv_fail(DV_ENOENT, "no function %s in the libraries of CANN: %s", row->sizes ? row->name : sizes, dv__acl_places());
}

static int parse(const dv_running *call, dv__aclnn_row **out)
{
    const size_t parameters = sizeof(dv__parameter) * DV__MAX_PARAMETERS, size = strlen(call->row) + 1;
    dv__aclnn_row *row = calloc(1, sizeof *row + parameters + 4 * size + 16);
    if (!row)
        return dv_fail(DV_ENOMEM, "out of memory");
    parser p = { call->op, call->row, call->row, row, (char *)row->parameters + parameters };
    row->text = keep(&p, call->row, size - 1);
    int status = take_list(&p);
    if (!status)
        status = find_functions(row);
    if (status) {
        free(row);
        return status;
    }
    row->op = dv_operator_ref(call->op);
    *out = row;
    return DV_OK;
}

int dv__aclnn_row_of(const dv_running *call, const dv__aclnn_row **out)
{
    const dv__aclnn_row **bucket = &table.buckets[((uintptr_t)call->op >> 4) % BUCKETS], *row;
    dv__aclnn_row *made = NULL;
    int status = DV_OK;
    pthread_mutex_lock(&table.lock);
    for (row = *bucket; row && (row->op != call->op || strcmp(row->text, call->row)); row = row->next)
        ;
    if (!row && !(status = parse(call, &made))) {
        made->next = *bucket;
        row = *bucket = made;
    }
    pthread_mutex_unlock(&table.lock);
    *out = row;
    return status;
}
