/* Rows that call a function of another system (DV_KERNEL_LIST): the name is the call, "f(x, float(eps), k or 0)". It is an
 * expression, and its meaning for this operator is found when the library is loaded. */
#include <ctype.h>
#include <stdio.h>

#include "base/error.h"
#include "lang/expr.h"
#include "registry/internal.h"

typedef struct reader {
    const dv__schema *schema;
    const char *text;
    dv__arena *arena;
    dv_row_list *list;
} reader;

#define FAIL(r, status, e, ...) dv__fail_at(status, (r)->text, (e)->at, __VA_ARGS__)

static bool is_tensor(uint32_t type) { return type == DV_FIELD_TENSOR || type == DV_FIELD_TENSORS; }

static bool is_number(uint32_t type)
{
    return type == DV_FIELD_INT || type == DV_FIELD_FLOAT || type == DV_FIELD_BOOL || type == DV_FIELD_SCALAR;
}

/* ---- Arguments and results by name ---- */

/* An unnamed result is "result", of several "result0", "result1". */
static const char *name_of(const reader *r, size_t slot, const dv_slot_info *info, char buffer[32])
{
    const size_t nargs = r->schema->nargs;
    snprintf(buffer, 32, slot < nargs || r->schema->nreturns == 1 ? "result" : "result%zu", slot - nargs);
    return *info->name ? info->name : buffer;
}

static int take_slot(const reader *r, const dv__expr *e, size_t slot, const dv_slot_info *info, dv_row_item *to)
{
    char buffer[32];
    const char *name = name_of(r, slot, info, buffer);
    const bool result = slot >= r->schema->nargs;
    if (!(name = dv__arena_strndup(r->arena, name, strlen(name))))
        return DV_ENOMEM;
    *to = (dv_row_item){ .slot = (int32_t)slot, .type = info->type, .name = name };
    switch (info->type) {
    case DV_FIELD_TENSOR:
    case DV_FIELD_TENSORS: return DV_OK;
    case DV_FIELD_INT:
    case DV_FIELD_FLOAT:
    case DV_FIELD_BOOL:
    case DV_FIELD_STRING:
    case DV_FIELD_SCALAR:
    case DV_FIELD_DTYPE:
    case DV_FIELD_INTS:
    case DV_FIELD_FLOATS:
    case DV_FIELD_BOOLS:
    case DV_FIELD_SCALARS:
        return result ? FAIL(r, DV_ENOTSUP, e, "the result '%s' is no tensor: such a function gives tensors only", name) : DV_OK;
    default:
        return FAIL(r, DV_ENOTSUP, e,
            "the %s '%s' has a type that such a function has no parameter for: leave it out of the list",
            result ? "result" : "argument", name);
    }
}

static int take_name(const reader *r, const dv__expr *e, dv_row_item *to)
{
    char buffer[32];
    dv_slot_info info;
    for (size_t i = 0; i < r->schema->nargs + r->schema->nreturns; i++)
        if (!dv__slot_info(r->schema, i, &info) && !strcmp(name_of(r, i, &info, buffer), e->name))
            return take_slot(r, e, i, &info, to);
    return FAIL(r, DV_ENOENT, e, "expected an argument or result of %s, or a constant, found '%.60s'", r->schema->text, e->name);
}

/* Tensors, then other arguments, then results that are not arguments already. */
static int take_all(const reader *r, const dv__expr *e)
{
    const size_t nargs = r->schema->nargs, nslots = nargs + r->schema->nreturns;
    int status = DV_OK;
    for (int round = 0; round < 3; round++)
        for (size_t i = round < 2 ? 0 : nargs; i < (round < 2 ? nargs : nslots) && !status; i++) {
            dv_slot_info info;
            if ((status = dv__slot_info(r->schema, i, &info)))
                break;
            if (round == 2 ? info.alias < 0 : is_tensor(info.type) == (round == 0))
                status = take_slot(r, e, i, &info, (dv_row_item *)(uintptr_t)&r->list->items[r->list->n++]);
        }
    return status;
}

/* ---- Constants and converters ---- */

static bool take_constant(const dv__expr *e, dv_value *out)
{
    const bool minus = e->kind == DV__EXPR_NEG;
    const dv__expr *number = minus ? e->args[0] : e;
    switch (number->kind) {
    case DV__EXPR_INT: *out = dv_from_int(minus ? -number->i : number->i); return true;
    case DV__EXPR_FLOAT: *out = dv_from_float(minus ? -number->f : number->f); return true;
    case DV__EXPR_BOOL: *out = dv_from_bool(number->i); return !minus;
    case DV__EXPR_STRING: *out = dv_from_string(number->name); return !minus;
    case DV__EXPR_NONE: *out = dv_none(); return !minus;
    case DV__EXPR_NAME: *out = dv_none(); return !minus && !strcmp(number->name, "none");
    default: return false;
    }
}

/* The constant that stands for None of this type; dtypes have names only here. */
static bool take_absent(uint32_t type, const dv__expr *e, dv_value *out)
{
    const dv_dtype_row *row = type == DV_FIELD_DTYPE && e->kind == DV__EXPR_NAME ? dv_dtype_named(e->name) : NULL;
    if (row)
        return *out = dv_from_dtype(row->dtype), true;
    return take_constant(e, out);
}

static uint32_t type_of(const dv_value *constant)
{
    switch (constant->type) {
    case DV_VALUE_DTYPE: return DV_FIELD_DTYPE;
    case DV_VALUE_INT: return DV_FIELD_INT;
    case DV_VALUE_FLOAT: return DV_FIELD_FLOAT;
    case DV_VALUE_BOOL: return DV_FIELD_BOOL;
    case DV_VALUE_STRING: return DV_FIELD_STRING;
    default: return 0;
    }
}

/* A null pointer stands for an object of the other system; a number needs a number, and an integer an integer. */
static bool fits(uint32_t type, const dv_value *constant)
{
    const uint32_t given = type_of(constant);
    if (type == DV_FIELD_INT || type == DV_FIELD_BOOL)
        return given == DV_FIELD_INT || given == DV_FIELD_BOOL;
    if (type == DV_FIELD_FLOAT)
        return is_number(given);
    if (type == DV_FIELD_SCALAR)
        return !given || is_number(given);
    if (type == DV_FIELD_DTYPE)
        return given == type;
    return given ? type == DV_FIELD_STRING && given == type : !is_tensor(type);
}

/* For messages: what fits(), or what was found. */
static const char *constant_of(uint32_t type)
{
    switch (type) {
    case DV_FIELD_INT: return "an integer";
    case DV_FIELD_BOOL: return "a bool or an integer";
    case DV_FIELD_FLOAT: return "a number";
    case DV_FIELD_SCALAR: return "a number or none";
    case DV_FIELD_STRING: return "a text or none";
    case DV_FIELD_DTYPE: return "a dtype, such as f32,";
    default: return is_tensor(type) ? "nothing (a tensor that is None is a null pointer)" : "none";
    }
}

static const char *name_of_type(uint32_t type)
{
    switch (type) {
    case DV_FIELD_TENSOR: return "a tensor";
    case DV_FIELD_INT: return "an integer";
    case DV_FIELD_FLOAT: return "a float";
    case DV_FIELD_BOOL: return "a bool";
    case DV_FIELD_SCALAR: return "a Scalar";
    case DV_FIELD_STRING: return "a text";
    case DV_FIELD_DTYPE: return "a dtype";
    case 0: return "none";
    default: return "a list";
    }
}

static const struct {
    const char *word;
    uint32_t type;
    bool narrow;
} converters[] = { { "float", DV_FIELD_FLOAT, true }, { "double", DV_FIELD_FLOAT, false }, { "int64_t", DV_FIELD_INT, false },
    { "bool", DV_FIELD_BOOL, false }, { "scalar", DV_FIELD_SCALAR, false } };
enum { NCONVERTERS = sizeof converters / sizeof *converters };

static int take_item(const reader *r, const dv__expr *e, dv_row_item *to);

static int convert(const reader *r, const dv__expr *e, dv_row_item *to)
{
    size_t i = 0;
    while (i < NCONVERTERS && strcmp(e->name, converters[i].word))
        i++;
    if (i == NCONVERTERS || e->n != 1)
        return FAIL(r, DV_ESYNTAX, e, "expected float(x), double(x), int64_t(x), bool(x) or scalar(x), found '%.60s' of %u",
            e->name, (unsigned)e->n);
    const int status = take_item(r, e->args[0], to);
    if (status)
        return status;
    if (!is_number(to->type) || (converters[i].type == DV_FIELD_INT && to->type == DV_FIELD_FLOAT))
        return FAIL(r, DV_ESYNTAX, e->args[0], "%s() takes %s", e->name,
            converters[i].type == DV_FIELD_INT ? "an integer, a bool or a Scalar" : "a number");
    to->type = converters[i].type;
    to->narrow = converters[i].narrow;
    return DV_OK;
}

static int take_item(const reader *r, const dv__expr *e, dv_row_item *to)
{
    *to = (dv_row_item){ .slot = -1, .name = "a constant" };
    if (take_constant(e, &to->constant)) {
        to->type = type_of(&to->constant);
        return DV_OK;
    }
    if (e->kind == DV__EXPR_CALL)
        return convert(r, e, to);
    if (e->kind == DV__EXPR_NAME && !e->index)
        return take_name(r, e, to);
    if (e->kind != DV__EXPR_OR || e->n != 2)
        return FAIL(r, DV_ESYNTAX, e, "expected a name, a constant, a converter or 'name or constant'");
    const int status = take_item(r, e->args[0], to);
    if (status)
        return status;
    if (to->slot < 0 || to->constant.type != DV_VALUE_DEFAULT)
        return FAIL(r, DV_ESYNTAX, e->args[0], "expected one argument before 'or'");
    const bool constant = take_absent(to->type, e->args[1], &to->constant);
    if (constant && fits(to->type, &to->constant))
        return DV_OK;
    return FAIL(r, DV_ESYNTAX, e->args[1], "expected %s after '%s or', found %s", constant_of(to->type), to->name,
        constant ? name_of_type(type_of(&to->constant)) : "no constant");
}

/* ---- Launchers ---- */

static bool is_block_count(const dv_value *v) { return v->type == DV_VALUE_INT && v->as.i >= 1 && v->as.i <= UINT32_MAX; }

/* A launcher takes addresses and numbers, and its first parameter is the number of blocks. */
static int check_launcher(const reader *r, const dv__expr *e, size_t i)
{
    const dv_row_item *item = &r->list->items[i];
    const bool constant = item->slot < 0, or = item->constant.type != DV_VALUE_DEFAULT;
    const char *quote = constant ? "" : "'", *comma = constant ? "" : "', ";
    if (i == 0 && item->type != DV_FIELD_INT)
        return FAIL(r, DV_ESYNTAX, e, "blockDim: expected an integer from 1 to %u or an argument of type int, found %s%s%s%s",
            UINT32_MAX, quote, constant ? "" : item->name, comma, name_of_type(item->type));
    if (i == 0 && (constant || or) && !is_block_count(&item->constant))
        return FAIL(r, DV_ESYNTAX, e, "blockDim: expected an integer from 1 to %u, found %lld", UINT32_MAX,
            (long long)item->constant.as.i);
    if (item->type == DV_FIELD_SCALAR)
        return FAIL(r, DV_ENOTSUP, e, "a launcher takes no Scalar: convert it (float(x), double(x), int64_t(x))");
    if (name_of_type(item->type) == name_of_type(DV_FIELD_INTS) || item->type == DV_FIELD_STRING)
        return FAIL(r, DV_ENOTSUP, e, "a launcher takes tensors and numbers only, found %s%s%s%s: leave it out of the list",
            quote, constant ? "" : item->name, comma, name_of_type(item->type));
    return DV_OK;
}

/* ---- The whole ---- */

/* A function that is not given a result never computes it. */
static int check_written(const reader *r, const dv__expr *e)
{
    for (size_t slot = 0; slot < r->schema->nargs + r->schema->nreturns; slot++) {
        char buffer[32];
        dv_slot_info info;
        size_t i = 0;
        const int status = dv__slot_info(r->schema, slot, &info);
        if (status)
            return status;
        while (i < r->list->n && r->list->items[i].slot != (int32_t)slot)
            i++;
        const bool result = slot >= r->schema->nargs;
        if (i == r->list->n && (result ? info.alias < 0 : info.flags & DV_SLOT_WRITES))
            return FAIL(r, DV_EINVAL, e, "the %s '%s' is not in the list, so nobody writes it", result ? "result" : "argument",
                name_of(r, slot, &info, buffer));
    }
    return DV_OK;
}

/* A name of C. */
static bool is_function(const dv__expr *e)
{
    if (e->kind != DV__EXPR_CALL)
        return false;
    for (const char *c = e->name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            return false;
    return true;
}

static bool is_aclnn(const dv__expr *e) { return !strncmp(e->name, "aclnn", 5); }

/* DV_ACLNN puts "aclnn" before the name that it is given. */
static int check_aclnn(const char *text, const dv__expr *e)
{
    if (!is_aclnn(e))
        return DV_OK;
    if (!strncmp(e->name + 5, "aclnn", 5))
        return dv__fail_at(DV_ESYNTAX, text, e->at, "'%.60s': DV_ACLNN adds the first 'aclnn' itself: expected '%.60s'", e->name,
            *(e->name + 10) ? e->name + 10 : "a name");
    return isalpha((unsigned char)e->name[5])
        ? DV_OK
        : dv__fail_at(DV_ESYNTAX, text, e->at, "expected the name of a function after 'aclnn', found '%.60s'", e->name + 5);
}

int dv__row_list_parse(const char *text, const dv__schema *schema, dv__arena *arena, const dv_row_list **out)
{
    dv__expr *e = NULL;
    int status = dv__expr_parse_all(text, arena, "row", &e);
    if (status)
        return status;
    if (!is_function(e))
        return dv__fail_at(DV_ESYNTAX, text, e->at, "expected function(list)");
    if ((status = check_aclnn(text, e)))
        return status;
    const size_t n = e->n ? e->n : schema->nargs + schema->nreturns;
    dv_row_item *items = DV__ARENA_ARRAY(arena, dv_row_item, n);
    dv_row_list *list = DV__ARENA_NEW(arena, dv_row_list);
    if (!list || !items)
        return DV_ENOMEM;
    *list = (dv_row_list){ .size = sizeof *list, .function = e->name, .items = items };
    reader r = { schema, text, arena, list };
    if (n > DV_MOST_ROW_ITEMS)
        return FAIL(&r, DV_ELIMIT, e, "more than %d parameters", DV_MOST_ROW_ITEMS);
    if (!e->n)
        status = take_all(&r, e);
    for (size_t i = 0; i < e->n && !status; i++)
        if (!(status = take_item(&r, e->args[i], &items[list->n++])) && !is_aclnn(e))
            status = check_launcher(&r, e->args[i], i);
    if (!status)
        status = check_written(&r, e);
    *out = status ? NULL : list;
    return status;
}
