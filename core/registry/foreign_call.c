/* Parses kernels that call a function of another system (DV_KERNEL_FOREIGN). The kernel's name is the call, "f(x,
 * float(eps), k or 0)", an expression. Its meaning for the operator is found when the library is loaded. */
#include <ctype.h>
#include <stdio.h>

#include "base/error.h"
#include "lang/expr.h"
#include "registry/registry_internal.h"

typedef struct foreign_call_parser {
    const dv__schema *schema;
    const char *text;
    dv__arena *arena;
    dv_foreign_call *list;
} foreign_call_parser;

#define FOREIGN_FAIL(r, status, e, ...) dv__fail_at_column(status, (r)->text, (e)->at, __VA_ARGS__)

static bool foreign_is_tensor_field(uint32_t field_type)
{
    return field_type == DV_FIELD_TENSOR || field_type == DV_FIELD_TENSORS;
}

static bool foreign_is_number_field(uint32_t field_type)
{
    return field_type == DV_FIELD_INT || field_type == DV_FIELD_FLOAT || field_type == DV_FIELD_BOOL ||
        field_type == DV_FIELD_SCALAR;
}

/* ---- Arguments and results by name ---- */

/* Returns the name by which an argument list refers to a slot. An unnamed result is "result", or "result0", "result1" if
 * there are several. */
static const char *foreign_get_slot_name(const foreign_call_parser *r, size_t slot, const dv_slot_info *info, char buffer[32])
{
    const size_t nargs = r->schema->nargs;
    snprintf(buffer, 32, slot < nargs || r->schema->nreturns == 1 ? "result" : "result%zu", slot - nargs);
    return *info->name ? info->name : buffer;
}

/* Sets *out to the argument that passes a slot. Fails for a type that such a function has no parameter for. */
static int foreign_arg_from_slot(
    const foreign_call_parser *r, const dv__expr *e, size_t slot, const dv_slot_info *info, dv_foreign_arg *out)
{
    char buffer[32];
    const char *name = foreign_get_slot_name(r, slot, info, buffer);
    const bool result = slot >= r->schema->nargs;
    if (!(name = dv__arena_strndup(r->arena, name, strlen(name))))
        return DV_ENOMEM;
    *out = (dv_foreign_arg){ .slot = (int32_t)slot, .type = info->type, .name = name };
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
        return result ? FOREIGN_FAIL(r, DV_ENOTSUP, e, "the result '%s' is no tensor: such a function gives tensors only", name)
                      : DV_OK;
    default:
        return FOREIGN_FAIL(r, DV_ENOTSUP, e,
            "the %s '%s' has a type that such a function has no parameter for: leave it out of the list",
            result ? "result" : "argument", name);
    }
}

static int foreign_arg_from_name(const foreign_call_parser *r, const dv__expr *e, dv_foreign_arg *out)
{
    char buffer[32];
    dv_slot_info info;
    for (size_t i = 0; i < r->schema->nargs + r->schema->nreturns; i++)
        if (!dv__slot_describe(r->schema, i, &info) && !strcmp(foreign_get_slot_name(r, i, &info, buffer), e->name))
            return foreign_arg_from_slot(r, e, i, &info, out);
    return FOREIGN_FAIL(
        r, DV_ENOENT, e, "expected an argument or result of %s, or a constant, found '%.60s'", r->schema->text, e->name);
}

/* Lists all slots, for a call with an empty list: first the tensors among the arguments, then the other arguments, then the
 * results that are not arguments already. */
static int foreign_list_all_slots(const foreign_call_parser *r, const dv__expr *e)
{
    const size_t nargs = r->schema->nargs, nslots = nargs + r->schema->nreturns;
    int status = DV_OK;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = pass < 2 ? 0 : nargs; i < (pass < 2 ? nargs : nslots) && !status; i++) {
            dv_slot_info info;
            if ((status = dv__slot_describe(r->schema, i, &info)))
                break;
            if (pass == 2 ? info.alias < 0 : foreign_is_tensor_field(info.type) == (pass == 0))
                status = foreign_arg_from_slot(r, e, i, &info, (dv_foreign_arg *)(uintptr_t)&r->list->items[r->list->n++]);
        }
    return status;
}

/* ---- Constants and converters ---- */

/* Converts a literal, a number perhaps with a minus sign, to *out. Returns false if e is no literal. */
static bool foreign_try_parse_constant(const dv__expr *e, dv_value *out)
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

/* Parses the constant that an optional argument passes in place of None, as 0 in "k or 0". A dtype's name is a constant only
 * here. Returns false if e is no constant for this type. */
static bool foreign_try_parse_constant_for_none(uint32_t field_type, const dv__expr *e, dv_value *out)
{
    const dv_dtype_row *type_row = field_type == DV_FIELD_DTYPE && e->kind == DV__EXPR_NAME ? dv_dtype_named(e->name) : NULL;
    if (type_row)
        return *out = dv_from_dtype(type_row->dtype), true;
    return foreign_try_parse_constant(e, out);
}

/* Returns the enum dv_field_type of a constant; 0: None. */
static uint32_t foreign_get_field_type_of_constant(const dv_value *constant)
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

/* True if a constant may replace None for an argument of this type. Numbers need a number, integers an integer or a bool,
 * dtypes a dtype, strings a string; a null pointer (none) may stand for other objects, but not for tensors. */
static bool foreign_may_replace_none(uint32_t field_type, const dv_value *constant)
{
    const uint32_t given = foreign_get_field_type_of_constant(constant);
    if (field_type == DV_FIELD_INT || field_type == DV_FIELD_BOOL)
        return given == DV_FIELD_INT || given == DV_FIELD_BOOL;
    if (field_type == DV_FIELD_FLOAT)
        return foreign_is_number_field(given);
    if (field_type == DV_FIELD_SCALAR)
        return !given || foreign_is_number_field(given);
    if (field_type == DV_FIELD_DTYPE)
        return given == field_type;
    return given ? field_type == DV_FIELD_STRING && given == field_type : !foreign_is_tensor_field(field_type);
}

/* Returns the description of the constants that foreign_may_replace_none() accepts for a type, for messages. */
static const char *foreign_get_constant_noun(uint32_t field_type)
{
    switch (field_type) {
    case DV_FIELD_INT: return "an integer";
    case DV_FIELD_BOOL: return "a bool or an integer";
    case DV_FIELD_FLOAT: return "a number";
    case DV_FIELD_SCALAR: return "a number or none";
    case DV_FIELD_STRING: return "a text or none";
    case DV_FIELD_DTYPE: return "a dtype, such as f32,";
    default: return foreign_is_tensor_field(field_type) ? "nothing (a tensor that is None is a null pointer)" : "none";
    }
}

/* Returns the description of a type with its article, for messages. */
static const char *foreign_get_type_noun(uint32_t field_type)
{
    switch (field_type) {
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

static int foreign_parse_argument(const foreign_call_parser *r, const dv__expr *e, dv_foreign_arg *out);

/* Parses "float(x)", "double(x)", "int64_t(x)", "bool(x)" or "scalar(x)", which passes the number x as that type of C. */
static int foreign_parse_conversion(const foreign_call_parser *r, const dv__expr *e, dv_foreign_arg *out)
{
    size_t i = 0;
    while (i < NCONVERTERS && strcmp(e->name, converters[i].word))
        i++;
    if (i == NCONVERTERS || e->n != 1)
        return FOREIGN_FAIL(r, DV_ESYNTAX, e,
            "expected float(x), double(x), int64_t(x), bool(x) or scalar(x), found '%.60s' of %u", e->name, (unsigned)e->n);
    const int status = foreign_parse_argument(r, e->args[0], out);
    if (status)
        return status;
    if (!foreign_is_number_field(out->type) || (converters[i].type == DV_FIELD_INT && out->type == DV_FIELD_FLOAT))
        return FOREIGN_FAIL(r, DV_ESYNTAX, e->args[0], "%s() takes %s", e->name,
            converters[i].type == DV_FIELD_INT ? "an integer, a bool or a Scalar" : "a number");
    out->type = converters[i].type;
    out->narrow = converters[i].narrow;
    return DV_OK;
}

/* Parses one argument of the foreign function: a slot's name, a constant, a conversion, or "name or constant". Returns a
 * status. */
static int foreign_parse_argument(const foreign_call_parser *r, const dv__expr *e, dv_foreign_arg *out)
{
    *out = (dv_foreign_arg){ .slot = -1, .name = "a constant" };
    if (foreign_try_parse_constant(e, &out->constant)) {
        out->type = foreign_get_field_type_of_constant(&out->constant);
        return DV_OK;
    }
    if (e->kind == DV__EXPR_CALL)
        return foreign_parse_conversion(r, e, out);
    if (e->kind == DV__EXPR_NAME && !e->index_name)
        return foreign_arg_from_name(r, e, out);
    if (e->kind != DV__EXPR_OR || e->n != 2)
        return FOREIGN_FAIL(r, DV_ESYNTAX, e, "expected a name, a constant, a converter or 'name or constant'");
    const int status = foreign_parse_argument(r, e->args[0], out);
    if (status)
        return status;
    if (out->slot < 0 || out->constant.type != DV_VALUE_DEFAULT)
        return FOREIGN_FAIL(r, DV_ESYNTAX, e->args[0], "expected one argument before 'or'");
    const bool constant = foreign_try_parse_constant_for_none(out->type, e->args[1], &out->constant);
    if (constant && foreign_may_replace_none(out->type, &out->constant))
        return DV_OK;
    return FOREIGN_FAIL(r, DV_ESYNTAX, e->args[1], "expected %s after '%s or', found %s", foreign_get_constant_noun(out->type),
        out->name, constant ? foreign_get_type_noun(foreign_get_field_type_of_constant(&out->constant)) : "no constant");
}

/* ---- Launchers ---- */

static bool foreign_is_block_count(const dv_value *v) { return v->type == DV_VALUE_INT && v->as.i >= 1 && v->as.i <= UINT32_MAX; }

/* Fails if a launcher cannot take argument argument_index: a launcher takes addresses and numbers, and its first parameter is the
 * number of blocks. */
static int foreign_check_launcher_argument(const foreign_call_parser *r, const dv__expr *e, size_t argument_index)
{
    const dv_foreign_arg *item = &r->list->items[argument_index];
    const bool constant = item->slot < 0, or = item->constant.type != DV_VALUE_DEFAULT;
    const char *quote = constant ? "" : "'", *comma = constant ? "" : "', ";
    if (argument_index == 0 && item->type != DV_FIELD_INT)
        return FOREIGN_FAIL(r, DV_ESYNTAX, e,
            "blockDim: expected an integer from 1 to %u or an argument of type int, found %s%s%s%s", UINT32_MAX, quote,
            constant ? "" : item->name, comma, foreign_get_type_noun(item->type));
    if (argument_index == 0 && (constant || or) && !foreign_is_block_count(&item->constant))
        return FOREIGN_FAIL(r, DV_ESYNTAX, e, "blockDim: expected an integer from 1 to %u, found %lld", UINT32_MAX,
            (long long)item->constant.as.i);
    if (item->type == DV_FIELD_SCALAR)
        return FOREIGN_FAIL(r, DV_ENOTSUP, e, "a launcher takes no Scalar: convert it (float(x), double(x), int64_t(x))");
    if (foreign_get_type_noun(item->type) == foreign_get_type_noun(DV_FIELD_INTS) || item->type == DV_FIELD_STRING)
        return FOREIGN_FAIL(r, DV_ENOTSUP, e,
            "a launcher takes tensors and numbers only, found %s%s%s%s: leave it out of the list", quote,
            constant ? "" : item->name, comma, foreign_get_type_noun(item->type));
    return DV_OK;
}

/* ---- The whole ---- */

/* Fails if the argument list leaves out a result or a written argument: the foreign function could then never write it. */
static int foreign_check_writes_are_listed(const foreign_call_parser *r, const dv__expr *e)
{
    for (size_t slot = 0; slot < r->schema->nargs + r->schema->nreturns; slot++) {
        char buffer[32];
        dv_slot_info info;
        size_t i = 0;
        const int status = dv__slot_describe(r->schema, slot, &info);
        if (status)
            return status;
        while (i < r->list->n && r->list->items[i].slot != (int32_t)slot)
            i++;
        const bool result = slot >= r->schema->nargs;
        if (i == r->list->n && (result ? info.alias < 0 : info.flags & DV_SLOT_WRITES))
            return FOREIGN_FAIL(r, DV_EINVAL, e, "the %s '%s' is not in the list, so nobody writes it",
                result ? "result" : "argument", foreign_get_slot_name(r, slot, &info, buffer));
    }
    return DV_OK;
}

/* True if the expression is a call of a function whose name is one of C. */
static bool foreign_is_c_call(const dv__expr *e)
{
    if (e->kind != DV__EXPR_CALL)
        return false;
    for (const char *c = e->name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            return false;
    return true;
}

static bool foreign_is_aclnn(const dv__expr *e) { return !strncmp(e->name, "aclnn", 5); }

/* Fails if the name of a DV_ACLNN kernel begins with "aclnn" twice, since the macro adds this prefix, or has no name after
 * it. */
static int foreign_check_aclnn_name(const char *text, const dv__expr *e)
{
    if (!foreign_is_aclnn(e))
        return DV_OK;
    if (!strncmp(e->name + 5, "aclnn", 5))
        return dv__fail_at_column(DV_ESYNTAX, text, e->at, "'%.60s': DV_ACLNN adds the first 'aclnn' itself: expected '%.60s'",
            e->name, *(e->name + 10) ? e->name + 10 : "a name");
    return isalpha((unsigned char)e->name[5]) ? DV_OK
                                              : dv__fail_at_column(DV_ESYNTAX, text, e->at,
                                                    "expected the name of a function after 'aclnn', found '%.60s'", e->name + 5);
}

int dv__foreign_call_parse(const char *text, const dv__schema *schema, dv__arena *arena, const dv_foreign_call **out)
{
    dv__expr *e = NULL;
    int status = dv__expr_parse_text(text, arena, "row", &e);
    if (status)
        return status;
    if (!foreign_is_c_call(e))
        return dv__fail_at_column(DV_ESYNTAX, text, e->at, "expected function(list)");
    if ((status = foreign_check_aclnn_name(text, e)))
        return status;
    const size_t n = e->n ? e->n : schema->nargs + schema->nreturns;
    dv_foreign_arg *items = DV__ARENA_ARRAY(arena, dv_foreign_arg, n);
    dv_foreign_call *list = DV__ARENA_NEW(arena, dv_foreign_call);
    if (!list || !items)
        return DV_ENOMEM;
    *list = (dv_foreign_call){ .size = sizeof *list, .function = e->name, .items = items };
    foreign_call_parser r = { schema, text, arena, list };
    if (n > DV_MAX_FOREIGN_ARGS)
        return FOREIGN_FAIL(&r, DV_ELIMIT, e, "more than %d parameters", DV_MAX_FOREIGN_ARGS);
    if (!e->n)
        status = foreign_list_all_slots(&r, e);
    for (size_t i = 0; i < e->n && !status; i++)
        if (!(status = foreign_parse_argument(&r, e->args[i], &items[list->n++])) && !foreign_is_aclnn(e))
            status = foreign_check_launcher_argument(&r, e->args[i], i);
    if (!status)
        status = foreign_check_writes_are_listed(&r, e);
    *out = status ? NULL : list;
    return status;
}
