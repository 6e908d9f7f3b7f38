/* Names and types of formulas. One walk from the leaves up: each node gets its meaning (role, ref) and a type; a call is matched
 * with its callee's overloads in order; arithmetic that touches a tensor is replaced by the call that means it. Types are only as
 * exact as error messages need: the result of an operator that is not known yet fits every type. */
#include <stdio.h>

#include "lang/contract_internal.h"
#include "lang/formula_internal.h"

const dv__type dv__formula_types[] = {
    [T_TENSOR] = { DV__TYPE_TENSOR, -1, "Tensor", NULL, 0 },
    [T_INT] = { DV__TYPE_INT, -1, "int", NULL, 0 },
    [T_FLOAT] = { DV__TYPE_FLOAT, -1, "float", NULL, 0 },
    [T_BOOL] = { DV__TYPE_BOOL, -1, "bool", NULL, 0 },
    [T_STR] = { DV__TYPE_STR, -1, "str", NULL, 0 },
    [T_DTYPE] = { DV__TYPE_SCALAR_TYPE, -1, "ScalarType", NULL, 0 },
    [T_DEVICE] = { DV__TYPE_DEVICE, -1, "Device", NULL, 0 },
    [T_SCALAR] = { DV__TYPE_SCALAR, -1, "Scalar", NULL, 0 },
    [T_INTS] = { DV__TYPE_LIST, -1, NULL, (const dv__type *const[]){ &dv__formula_types[T_INT] }, 1 },
};
#define TYPE(name) (&dv__formula_types[T_##name])

value *dv__formula_value(checker *c, enum value_kind kind, const dv__type *type)
{
    value *v = DV__ARENA_NEW(&c->scratch, value);
    if (v) {
        v->kind = kind;
        v->type = type;
    }
    return v;
}

static int give(checker *c, enum value_kind kind, const dv__type *type, const value **out)
{
    *out = dv__formula_value(c, kind, type);
    return *out ? DV_OK : DV_ENOMEM;
}

dv__expr *dv__formula_node(checker *c, enum dv__expr_kind kind, const char *at, uint32_t n)
{
    dv__expr *e = DV__ARENA_NEW(c->arena, dv__expr);
    if (!e || (n && !(e->args = DV__ARENA_ARRAY(c->arena, dv__expr *, n))))
        return NULL;
    e->kind = kind;
    e->at = at;
    e->n = n;
    return e;
}

void dv__formula_value_print(const value *v, dv__text *to)
{
    switch (v->kind) {
    case VALUE_KNOWN: dv__type_print(v->type, to); return;
    case VALUE_UNKNOWN: dv__text_puts(to, "a value of unknown type"); return;
    case VALUE_NONE: dv__text_puts(to, "None"); return;
    case VALUE_TUPLE: dv__text_add(to, "%zu results", v->callee->nreturns); return;
    case VALUE_NOTHING: dv__text_puts(to, "no result"); return;
    case VALUE_LIST: break;
    }
    dv__text_puts(to, "[");
    for (size_t i = 0; i < v->n; i++) {
        dv__text_puts(to, i ? ", " : "");
        dv__formula_value_print(v->elems[i], to);
    }
    dv__text_puts(to, "]");
}

int dv__formula_mismatch(checker *c, const dv__expr *e, const char *what, const dv__type *wanted, const value *found)
{
    dv__text want = { 0 }, have = { 0 };
    dv__type_print(wanted, &want);
    dv__formula_value_print(found, &have);
    const int status = dv__fail_at(
        DV_ESCHEMA, c->text, e->at, "%s %s, found %s", what, want.data ? want.data : "?", have.data ? have.data : "?");
    dv__text_deinit(&want);
    dv__text_deinit(&have);
    return status;
}

/* ---- Types ---- */

static bool is_int(const dv__type *t) { return t->kind == DV__TYPE_INT || t->kind == DV__TYPE_SYMINT; }
static bool is_float(const dv__type *t) { return t->kind == DV__TYPE_FLOAT || t->kind == DV__TYPE_SYMFLOAT; }
static bool is_bool(const dv__type *t) { return t->kind == DV__TYPE_BOOL || t->kind == DV__TYPE_SYMBOOL; }
static bool is_number(const dv__type *t)
{
    return is_int(t) || is_float(t) || t->kind == DV__TYPE_SCALAR || t->kind == DV__TYPE_COMPLEX;
}

static bool same_type(const dv__type *a, const dv__type *b)
{
    if ((is_int(a) && is_int(b)) || (is_float(a) && is_float(b)) || (is_bool(a) && is_bool(b)))
        return true;
    if (a->kind != b->kind)
        return false;
    if (a->kind == DV__TYPE_LIST || a->kind == DV__TYPE_OPTIONAL)
        return same_type(a->elems[0], b->elems[0]);
    return a->kind != DV__TYPE_OTHER || !strcmp(a->name, b->name);
}

static bool converts(const dv__type *wanted, const dv__type *found)
{
    if (same_type(wanted, found))
        return true;
    if (wanted->kind == DV__TYPE_OPTIONAL)
        return converts(wanted->elems[0], found->kind == DV__TYPE_OPTIONAL ? found->elems[0] : found);
    if (is_float(wanted) || wanted->kind == DV__TYPE_SCALAR)
        return is_int(found) || is_float(found) || (wanted->kind == DV__TYPE_SCALAR && found->kind == DV__TYPE_COMPLEX);
    if (wanted->kind == DV__TYPE_LIST && found->kind == DV__TYPE_LIST)
        return converts(wanted->elems[0], found->elems[0]);
    return wanted->kind == DV__TYPE_LIST && wanted->fixed_size > 0 && converts(wanted->elems[0], found); /* one int for int[2] */
}

bool dv__formula_fits(const dv__type *wanted, const value *v)
{
    switch (v->kind) {
    case VALUE_UNKNOWN: return true;
    case VALUE_KNOWN: return converts(wanted, v->type);
    case VALUE_NONE: return wanted->kind == DV__TYPE_OPTIONAL;
    case VALUE_LIST:
        if (wanted->kind == DV__TYPE_OPTIONAL)
            wanted = wanted->elems[0];
        if (wanted->kind != DV__TYPE_LIST || (wanted->fixed_size > 1 && (size_t)wanted->fixed_size != v->n))
            return false; /* int[1] takes any length, as in ATen's int[1] dim: it only means that a single int is accepted */
        for (size_t i = 0; i < v->n; i++)
            if (!dv__formula_fits(wanted->elems[0], v->elems[i]))
                return false;
        return true;
    case VALUE_TUPLE:
    case VALUE_NOTHING: break;
    }
    return false;
}

static bool known(const value *v, bool (*is)(const dv__type *)) { return v->kind == VALUE_KNOWN && is(v->type); }
static bool is_tensor_type(const dv__type *t) { return t->kind == DV__TYPE_TENSOR; }
static bool maybe_tensor(const value *v) { return v->kind == VALUE_UNKNOWN || known(v, is_tensor_type); }
static bool maybe(const value *v, bool (*is)(const dv__type *)) { return v->kind == VALUE_UNKNOWN || known(v, is); }

/* ---- Names ---- */

/* Record what backward must keep; keeping the value includes keeping the shape. */
static void save(checker *c, int32_t slot, uint8_t how)
{
    if (c->saves && c->saves[slot] != 1)
        c->saves[slot] = how;
}

static int set_name(checker *c, dv__expr *e, int role, int32_t slot, const dv__type *type, const value **out)
{
    e->role = (uint8_t)role;
    e->ref = slot;
    return give(c, VALUE_KNOWN, type, out);
}

static int32_t argument_named(const checker *c, const char *name)
{
    for (size_t i = 0; i < c->schema->nargs; i++)
        if (!strcmp(c->schema->args[i].name, name))
            return (int32_t)i;
    return -1;
}

static int32_t result_named(const checker *c, const char *name)
{
    for (size_t i = 0; i < c->schema->nreturns; i++) {
        char plain[32];
        snprintf(plain, sizeof plain, "result%zu", i);
        if (!strcmp(name, plain) || (*name && !strcmp(name, c->schema->returns[i].name)) ||
            (c->schema->nreturns == 1 && !strcmp(name, "result")))
            return (int32_t)(c->schema->nargs + i);
    }
    return -1;
}

static const dv__type *type_at(const checker *c, int32_t slot)
{
    const dv__schema *s = c->schema;
    return slot < (int32_t)s->nargs ? s->args[slot].type : s->returns[slot - (int32_t)s->nargs].type;
}

/* The gradient of the i-th output, or an error. */
static int check_grad(checker *c, dv__expr *e, int64_t i, bool indexed, const value **out)
{
    int32_t *slots = DV__ARENA_ARRAY(&c->scratch, int32_t, c->schema->nargs + c->schema->nreturns);
    if (!slots)
        return DV_ENOMEM;
    const size_t n = dv__formula_outputs(c->schema, slots);
    if (c->mode != MODE_GRADIENT)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "'grad' is known in gradients only");
    if (!indexed && argument_named(c, "grad") >= 0)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at,
            "'grad' is ambiguous: an argument has that name too; rename the argument, or write grads[0] for the gradient");
    if (!n)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "the operator returns no tensor and writes none, so there is no 'grad'");
    if (!indexed && n != 1)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at,
            "the operator has %zu outputs (results and written arguments): expected grads[0], grads[1] ..., found 'grad'", n);
    if (i < 0 || (size_t)i >= n)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at,
            "grads[%lld]: the operator has %zu outputs (results and written arguments)", (long long)i, n);
    const dv__type *type = type_at(c, slots[i]);
    return set_name(c, e, DV__ROLE_GRAD, slots[i], type->kind == DV__TYPE_OPTIONAL ? type->elems[0] : type, out);
}

/* x_t: the tangent of x. -1: no such name. */
static int32_t tangent_named(const checker *c, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < c->schema->nargs && n > 2 && !strcmp(name + n - 2, "_t"); i++)
        if (strlen(c->schema->args[i].name) == n - 2 && !strncmp(c->schema->args[i].name, name, n - 2))
            return (int32_t)i;
    return -1;
}

static int fail_name(checker *c, const dv__expr *e)
{
    dv__text names = { 0 };
    for (size_t i = 0; i < c->schema->nargs; i++)
        dv__text_add(&names, "%s%s", i ? ", " : "", c->schema->args[i].name);
    if (c->mode != MODE_NATIVE && c->schema->nreturns == 1)
        dv__text_puts(&names, ", result");
    for (size_t i = 0; i < c->schema->nreturns && c->mode != MODE_NATIVE && c->schema->nreturns > 1; i++)
        dv__text_add(&names, ", result%zu", i);
    if (c->mode == MODE_GRADIENT)
        dv__text_puts(&names, ", grad");
    for (size_t i = 0; i < c->schema->nargs && c->mode == MODE_TANGENT; i++)
        dv__text_add(&names, ", %s_t", c->schema->args[i].name);
    const int status = dv__fail_at(
        DV_ESCHEMA, c->text, e->at, "unknown name '%s'; there are: %s", e->name, names.data ? names.data : "none");
    dv__text_deinit(&names);
    return status;
}

static int check_name(checker *c, dv__expr *e, bool only_described, const value **out)
{
    const uint8_t how = only_described ? 2 : 1;
    if (e->index)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "%s{%s} is for contracts: expected %s[...]", e->name, e->index, e->name);
    if (c->mode == MODE_GRADIENT && !strcmp(e->name, "grad"))
        return check_grad(c, e, 0, false, out);
    if (c->mode == MODE_GRADIENT && !strcmp(e->name, "grads"))
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "'grads' needs an index: expected grads[0], grads[1] ...");
    int32_t slot = argument_named(c, e->name);
    if (slot >= 0) {
        const dv__type *type = type_at(c, slot);
        save(c, slot, how);
        return set_name(
            c, e, DV__ROLE_ARG, slot, type->kind == DV__TYPE_OPTIONAL && c->present[slot] ? type->elems[0] : type, out);
    }
    if (c->mode != MODE_NATIVE && (slot = result_named(c, e->name)) >= 0) {
        save(c, slot, how);
        return set_name(c, e, DV__ROLE_RESULT, slot, type_at(c, slot), out);
    }
    if (c->mode == MODE_TANGENT && (slot = tangent_named(c, e->name)) >= 0) {
        const dv__type *type = type_at(c, slot);
        return set_name(
            c, e, DV__ROLE_TANGENT, slot, type->kind == DV__TYPE_OPTIONAL && c->present[slot] ? type->elems[0] : type, out);
    }
    if (dv_dtype_named(e->name))
        return set_name(c, e, DV__ROLE_DTYPE, 0, TYPE(DTYPE), out);
    return fail_name(c, e);
}

/* ---- Built in ---- */

static int argument_operand(checker *c, const dv__expr *call, int32_t *slot)
{
    const dv__expr *x = call->n == 1 ? call->args[0] : NULL;
    *slot = x && x->kind == DV__EXPR_NAME && !x->index ? argument_named(c, x->name) : -1;
    if (*slot >= 0)
        return DV_OK;
    return dv__fail_at(DV_ESCHEMA, c->text, x ? x->at : call->at, "%s() takes the name of one argument", call->name);
}

static int check_present(checker *c, dv__expr *e, const value **out)
{
    int32_t slot;
    int status = argument_operand(c, e, &slot);
    if (status)
        return status;
    if (c->schema->args[slot].type->kind != DV__TYPE_OPTIONAL)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "'%s' is always present: it is not optional", c->schema->args[slot].name);
    save(c, slot, 2);
    e->ref = DV__FORMULA_PRESENT;
    e->args[0]->role = DV__ROLE_ARG;
    e->args[0]->ref = slot;
    return give(c, VALUE_KNOWN, TYPE(BOOL), out);
}

static int check_needs(checker *c, dv__expr *e, const value **out)
{
    int32_t slot;
    int status = argument_operand(c, e, &slot);
    if (status)
        return status;
    if (c->mode != MODE_GRADIENT)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "needs() is known in gradients only");
    e->ref = DV__FORMULA_NEEDS;
    e->args[0]->role = DV__ROLE_ARG;
    e->args[0]->ref = slot;
    return give(c, VALUE_KNOWN, TYPE(BOOL), out);
}

static int check_len(checker *c, dv__expr *e, const value **out)
{
    const value *v;
    if (e->n != 1 || e->args[0]->kind == DV__EXPR_KEYWORD)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "len() takes one list");
    const int status = dv__formula_check(c, &e->args[0], &v);
    if (status)
        return status;
    if (v->kind != VALUE_UNKNOWN && v->kind != VALUE_LIST && !(v->kind == VALUE_KNOWN && v->type->kind == DV__TYPE_LIST))
        return dv__fail_at(DV_ESCHEMA, c->text, e->args[0]->at, "len() takes a list");
    e->ref = DV__FORMULA_LEN;
    return give(c, VALUE_KNOWN, TYPE(INT), out);
}

/* Mark the optional arguments that are present if the condition holds. */
static void assume(checker *c, const dv__expr *condition, bool *set)
{
    if (condition->kind == DV__EXPR_AND) {
        assume(c, condition->args[0], set);
        assume(c, condition->args[1], set);
    } else if (condition->kind == DV__EXPR_CALL && condition->ref == DV__FORMULA_PRESENT) {
        set[condition->args[0]->ref] = true;
    }
}

/* The type of the elements of two written lists, whatever their lengths: [a, b] and [a, b, c]. NULL: not all of one type. */
static const dv__type *common_element(const value *a, const value *b)
{
    const dv__type *common = a->n && a->elems[0]->kind == VALUE_KNOWN ? a->elems[0]->type : NULL;
    for (size_t i = 0; common && i < a->n + b->n; i++) {
        const value *v = i < a->n ? a->elems[i] : b->elems[i - a->n];
        if (v->kind != VALUE_KNOWN || !same_type(common, v->type))
            common = NULL;
    }
    return common;
}

static int merge(checker *c, const dv__expr *e, const value *a, const value *b, const value **out)
{
    if (a->kind == VALUE_UNKNOWN || b->kind == VALUE_UNKNOWN)
        return give(c, VALUE_UNKNOWN, NULL, out);
    if (a->kind == VALUE_NONE && b->kind == VALUE_NONE)
        return give(c, VALUE_NONE, NULL, out);
    const value *one = a->kind == VALUE_NONE ? b : a, *other = a->kind == VALUE_NONE ? a : b;
    if (one->kind == VALUE_KNOWN && other->kind == VALUE_NONE) {
        if (one->type->kind == DV__TYPE_OPTIONAL)
            return give(c, VALUE_KNOWN, one->type, out);
        dv__type *optional = DV__ARENA_NEW(&c->scratch, dv__type);
        const dv__type **elem = DV__ARENA_NEW(&c->scratch, const dv__type *);
        if (!optional || !elem)
            return DV_ENOMEM;
        *elem = one->type;
        *optional = (dv__type){ DV__TYPE_OPTIONAL, -1, NULL, elem, 1 };
        return give(c, VALUE_KNOWN, optional, out);
    }
    if (one->kind == VALUE_KNOWN && other->kind == VALUE_KNOWN) {
        if (converts(one->type, other->type))
            return give(c, VALUE_KNOWN, one->type, out);
        if (converts(other->type, one->type))
            return give(c, VALUE_KNOWN, other->type, out);
    }
    if (a->kind == VALUE_LIST && b->kind == VALUE_LIST && common_element(a, b)) {
        dv__type *list = DV__ARENA_NEW(&c->scratch, dv__type);
        const dv__type **elem = DV__ARENA_NEW(&c->scratch, const dv__type *);
        if (!list || !elem)
            return DV_ENOMEM;
        *elem = common_element(a, b);
        *list = (dv__type){ DV__TYPE_LIST, -1, NULL, elem, 1 };
        return give(c, VALUE_KNOWN, list, out);
    }
    if (one->kind == VALUE_LIST && other->kind == VALUE_KNOWN && dv__formula_fits(other->type, one))
        return give(c, VALUE_KNOWN, other->type, out);
    if (one->kind == VALUE_KNOWN && other->kind == VALUE_LIST && dv__formula_fits(one->type, other))
        return give(c, VALUE_KNOWN, one->type, out);
    if (one->kind == VALUE_KNOWN)
        return dv__formula_mismatch(c, e, "the two branches of if() differ: expected", one->type, other);
    return dv__fail_at(DV_ESCHEMA, c->text, e->at, "the two branches of if() differ");
}

static int check_if(checker *c, dv__expr *e, const value **out)
{
    const value *condition, *yes, *no;
    if (e->n != 3)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "if() takes a condition and two values, found %u operands%s", e->n,
            e->n > 3 && e->args[0]->kind == DV__EXPR_IN ? ": the values after 'in' are separated by spaces" : "");
    int status = dv__formula_check(c, &e->args[0], &condition);
    if (status)
        return status;
    if (!maybe(condition, is_bool))
        return dv__formula_mismatch(c, e->args[0], "the condition of if() is", TYPE(BOOL), condition);
    bool *outer = c->present, *inner = DV__ARENA_ARRAY(&c->scratch, bool, c->schema->nargs);
    if (!inner)
        return DV_ENOMEM;
    memcpy(inner, outer, c->schema->nargs * sizeof *inner);
    assume(c, e->args[0], inner);
    c->present = inner;
    status = dv__formula_check(c, &e->args[1], &yes);
    c->present = outer;
    if (!status)
        status = dv__formula_check(c, &e->args[2], &no);
    if (status)
        return status;
    e->ref = DV__FORMULA_IF;
    return merge(c, e->args[2], yes, no, out);
}

/* ---- Calls ---- */

typedef struct call {
    dv__expr *e;
    const value **values;
    size_t npositional;
} call;

static int32_t parameter(const dv__schema *callee, const call *k, size_t i)
{
    if (i < k->npositional)
        return i < callee->nargs && !callee->args[i].kwarg_only ? (int32_t)i : -1;
    for (size_t p = 0; p < callee->nargs; p++)
        if (!strcmp(callee->args[p].name, k->e->args[i]->name))
            return (int32_t)p;
    return -1;
}

static const char *full_name(const dv__schema *s, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s%s%s%s%s", s->ns, *s->ns ? "::" : "", s->name, *s->overload ? "." : "", s->overload);
    return buffer;
}

static int fail_parameter(checker *c, const dv__schema *callee, const call *k, size_t i)
{
    char name[256];
    const dv__expr *e = k->e->args[i];
    if (i < k->npositional)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "too many arguments: %s", callee->text);
    return dv__fail_at(
        DV_ESCHEMA, c->text, e->at, "%s has no argument '%s': %s", full_name(callee, name, sizeof name), e->name, callee->text);
}

/* Whether the call fits this callee; with the reason in the error message. */
static int match(checker *c, const dv__schema *callee, const call *k)
{
    char name[256], what[512];
    full_name(callee, name, sizeof name);
    bool *given = DV__ARENA_ARRAY(&c->scratch, bool, callee->nargs);
    if (!given)
        return DV_ENOMEM;
    for (size_t p = 0; p < callee->nargs; p++)
        if (dv__argument_writes(&callee->args[p]))
            return dv__fail_at(DV_ESCHEMA, c->text, k->e->at,
                "%s writes its argument '%s'; a formula may only call operators that write nothing", name, callee->args[p].name);
    for (size_t i = 0; i < k->e->n; i++) {
        const int32_t p = parameter(callee, k, i);
        if (p < 0)
            return fail_parameter(c, callee, k, i);
        const dv__expr *e = i < k->npositional ? k->e->args[i] : k->e->args[i]->args[0];
        if (given[p])
            return dv__fail_at(DV_ESCHEMA, c->text, e->at, "argument '%s' of %s is given twice", callee->args[p].name, name);
        given[p] = true;
        if (!dv__formula_fits(callee->args[p].type, k->values[i])) {
            snprintf(what, sizeof what, "argument '%.100s' of %.200s is", callee->args[p].name, name);
            return dv__formula_mismatch(c, e, what, callee->args[p].type, k->values[i]);
        }
    }
    for (size_t p = 0; p < callee->nargs; p++)
        if (!given[p] && !callee->args[p].def.has)
            return dv__fail_at(DV_ESCHEMA, c->text, k->e->at, "argument '%s' is missing: %s", callee->args[p].name, callee->text);
    return DV_OK;
}

static int take_callee(checker *c, const dv__schema *callee, const call *k, const value **out)
{
    char name[512];
    full_name(callee, name, sizeof name);
    k->e->name = dv__arena_strndup(c->arena, name, strlen(name));
    if (!k->e->name)
        return DV_ENOMEM;
    for (size_t i = k->npositional; i < k->e->n; i++)
        k->e->args[i]->ref = parameter(callee, k, i);
    if (callee->nreturns == 1)
        return give(c, VALUE_KNOWN, callee->returns[0].type, out);
    value *v = dv__formula_value(c, callee->nreturns ? VALUE_TUPLE : VALUE_NOTHING, NULL);
    if (!v)
        return DV_ENOMEM;
    v->callee = callee;
    *out = v;
    return DV_OK;
}

static int no_overload(checker *c, const call *k, size_t n)
{
    dv__text types = { 0 };
    for (size_t i = 0; i < k->e->n; i++) {
        dv__text_puts(&types, i ? ", " : "");
        if (i >= k->npositional)
            dv__text_add(&types, "%s=", k->e->args[i]->name);
        dv__formula_value_print(k->values[i], &types);
    }
    dv__text all = { 0 };
    for (size_t i = 0; i < n; i++) {
        const dv__schema *candidate = NULL;
        if (!c->lookup(c->user, k->e->name, i, &candidate) && candidate)
            dv__text_add(&all, "%s%s", i ? "; " : "", candidate->text);
    }
    const int status = dv__fail_at(DV_ESCHEMA, c->text, k->e->at, "no overload of %s takes (%s); there are: %s", k->e->name,
        types.data ? types.data : "", all.data ? all.data : "?");
    dv__text_deinit(&types);
    dv__text_deinit(&all);
    return status;
}

static int check_operator(checker *c, const call *k, const value **out)
{
    int status = DV_OK;
    k->e->ref = DV__FORMULA_OPERATOR;
    for (size_t i = 0;; i++) {
        const dv__schema *callee = NULL;
        const int found = c->lookup ? c->lookup(c->user, k->e->name, i, &callee) : DV_OK;
        if (found)
            return found == DV_ENOMEM ? found : dv__fail_at(found, c->text, k->e->at, "%s", dv_last_error());
        if (!callee)
            return !i ? give(c, VALUE_UNKNOWN, NULL, out) : i == 1 ? status : no_overload(c, k, i);
        if (!(status = match(c, callee, k)))
            return take_callee(c, callee, k, out);
        if (status == DV_ENOMEM)
            return status;
    }
}

static int check_call(checker *c, dv__expr *e, const value **out)
{
    static const struct {
        const char *name;
        int (*check)(checker *, dv__expr *, const value **);
    } builtins[] = {
        { "if", check_if },
        { "present", check_present },
        { "needs", check_needs },
        { "len", check_len },
    };
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (!strcmp(e->name, builtins[i].name))
            return builtins[i].check(c, e, out);
    call k = { .e = e, .values = DV__ARENA_ARRAY(&c->scratch, const value *, e->n) };
    if (!k.values)
        return DV_ENOMEM;
    for (size_t i = 0; i < e->n; i++) {
        const bool keyword = e->args[i]->kind == DV__EXPR_KEYWORD;
        if (!keyword && k.npositional < i)
            return dv__fail_at(DV_ESCHEMA, c->text, e->args[i]->at, "a positional argument may not follow a named one");
        k.npositional += !keyword;
        const int status = dv__formula_check(c, keyword ? &e->args[i]->args[0] : &e->args[i], &k.values[i]);
        if (status)
            return status;
    }
    return check_operator(c, &k, out);
}

/* ---- Arithmetic ---- */

/* Replace *e by name(a, b); b NULL: name(a). */
static int become_call(
    checker *c, dv__expr **e, const char *name, dv__expr *a, const value *va, dv__expr *b, const value *vb, const value **out)
{
    dv__expr *made = dv__formula_node(c, DV__EXPR_CALL, (*e)->at, b ? 2 : 1);
    const value **values = DV__ARENA_ARRAY(&c->scratch, const value *, 2);
    if (!made || !values || !(made->name = dv__arena_strndup(c->arena, name, strlen(name))))
        return DV_ENOMEM;
    made->args[0] = a;
    values[0] = va;
    if (b) {
        made->args[1] = b;
        values[1] = vb;
    }
    made->depth = (uint16_t)((b && b->depth > a->depth ? b->depth : a->depth) + 1);
    *e = made;
    const call k = { made, values, made->n };
    return check_operator(c, &k, out);
}

static int tensor_arithmetic(checker *c, dv__expr **e, const value *a, const value *b, const value **out)
{
    const enum dv__expr_kind kind = (*e)->kind;
    dv__expr *x = (*e)->args[0], *y = (*e)->args[1];
    const bool number_first = !maybe_tensor(a);
    if (!number_first && !maybe_tensor(b) && !known(b, is_number))
        return dv__formula_mismatch(c, y, "arithmetic needs numbers and tensors: expected", TYPE(TENSOR), b);
    if (number_first && !known(a, is_number))
        return dv__formula_mismatch(c, x, "arithmetic needs numbers and tensors: expected", TYPE(TENSOR), a);
    switch (kind) {
    case DV__EXPR_ADD:
        return number_first ? become_call(c, e, "add", y, b, x, a, out) : become_call(c, e, "add", x, a, y, b, out);
    case DV__EXPR_MUL:
        return number_first ? become_call(c, e, "mul", y, b, x, a, out) : become_call(c, e, "mul", x, a, y, b, out);
    case DV__EXPR_SUB:
        return number_first ? become_call(c, e, "rsub", y, b, x, a, out) : become_call(c, e, "sub", x, a, y, b, out);
    case DV__EXPR_DIV:
        if (!number_first)
            return become_call(c, e, "div", x, a, y, b, out);
        const value *inverse;
        const int status = become_call(c, e, "reciprocal", y, b, NULL, NULL, &inverse);
        return status ? status : become_call(c, e, "mul", *e, inverse, x, a, out);
    default: break;
    }
    return dv__fail_at(DV_ESCHEMA, c->text, (*e)->at, "only + - * / work on tensors; expected a call");
}

static int check_arithmetic(checker *c, dv__expr **e, const value **out)
{
    const value *a, *b = NULL;
    int status = dv__formula_check(c, &(*e)->args[0], &a);
    if (!status && (*e)->n == 2)
        status = dv__formula_check(c, &(*e)->args[1], &b);
    if (status)
        return status;
    const enum dv__expr_kind kind = (*e)->kind;
    if (maybe_tensor(a) || (b && maybe_tensor(b)))
        return kind == DV__EXPR_NEG ? become_call(c, e, "neg", (*e)->args[0], a, NULL, NULL, out)
                                    : tensor_arithmetic(c, e, a, b, out);
    if (!known(a, is_number))
        return dv__formula_mismatch(c, (*e)->args[0], "arithmetic needs numbers and tensors: expected", TYPE(SCALAR), a);
    if (b && !known(b, is_number))
        return dv__formula_mismatch(c, (*e)->args[1], "arithmetic needs numbers and tensors: expected", TYPE(SCALAR), b);
    if (a->type->kind == DV__TYPE_SCALAR || a->type->kind == DV__TYPE_COMPLEX)
        return give(c, VALUE_KNOWN, a->type, out);
    if (b && (b->type->kind == DV__TYPE_SCALAR || b->type->kind == DV__TYPE_COMPLEX))
        return give(c, VALUE_KNOWN, b->type, out);
    const bool floating = kind == DV__EXPR_DIV || is_float(a->type) || (b && is_float(b->type));
    return give(c, VALUE_KNOWN, floating ? TYPE(FLOAT) : TYPE(INT), out);
}

/* Only values of one class can be equal. A Scalar is a number here, and may be a boolean too. */
static enum dv__ctype class_of(const value *v)
{
    switch (v->kind) {
    case VALUE_KNOWN: return dv__type_of_argument(v->type);
    case VALUE_LIST: return DV__CTYPE_LIST;
    case VALUE_NONE: return DV__CTYPE_NONE;
    default: return DV__CTYPE_OTHER;
    }
}

static bool is_device(const dv__type *t) { return (t->kind == DV__TYPE_OPTIONAL ? t->elems[0] : t)->kind == DV__TYPE_DEVICE; }
static bool is_scalar(const dv__type *t) { return (t->kind == DV__TYPE_OPTIONAL ? t->elems[0] : t)->kind == DV__TYPE_SCALAR; }
static bool is_optional(const dv__type *t) { return t->kind == DV__TYPE_OPTIONAL; }
static bool counts(const value *v) { return class_of(v) == DV__CTYPE_INT || class_of(v) == DV__CTYPE_NUMBER; }

static const char *class_text(const value *v)
{
    const enum dv__ctype class = class_of(v);
    return class == DV__CTYPE_NONE ? "None"
        : known(v, is_device)      ? "a device"
        : class == DV__CTYPE_OTHER ? "a value that cannot be compared"
                                   : dv__ctype_text(class);
}

/* Whether b, at e, can be compared with a. */
static int check_classes(checker *c, bool ordered, const value *a, const dv__expr *e, const value *b)
{
    const enum dv__ctype class = class_of(a);
    if (a->kind == VALUE_UNKNOWN || b->kind == VALUE_UNKNOWN || (counts(a) && counts(b)))
        return DV_OK;
    if (ordered)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "expected a number, found %s", class_text(counts(a) ? b : a));
    if ((b->kind == VALUE_NONE && known(a, is_optional)) || (a->kind == VALUE_NONE && known(b, is_optional)) ||
        (class == DV__CTYPE_BOOL && known(b, is_scalar)) || (class_of(b) == DV__CTYPE_BOOL && known(a, is_scalar)))
        return DV_OK;
    const bool device = known(a, is_device);
    if (class >= DV__CTYPE_RUN && !device)
        return dv__fail_at(DV_ESCHEMA, c->text, e->at, "%s cannot be compared", class_text(a));
    if (class != class_of(b) || device != known(b, is_device))
        return dv__fail_at(
            DV_ESCHEMA, c->text, e->at, "expected %s, found %s: they can never be equal", class_text(a), class_text(b));
    return DV_OK;
}

/* a == b, a < b, and a in b c: the first operand with each other one. */
static int check_comparison(checker *c, dv__expr *e, const value **out)
{
    const value *first = NULL, *v;
    const bool ordered = e->kind != DV__EXPR_EQ && e->kind != DV__EXPR_NE && e->kind != DV__EXPR_IN;
    for (uint32_t i = 0; i < e->n; i++) {
        int status = dv__formula_check(c, &e->args[i], &v);
        if (!status && known(v, is_tensor_type))
            status = dv__fail_at(
                DV_ESCHEMA, c->text, e->args[i]->at, "a condition is about numbers, not about what is in a tensor");
        if (!status && first)
            status = check_classes(c, ordered, first, e->args[i], v);
        if (status)
            return status;
        first = first ? first : v;
    }
    return give(c, VALUE_KNOWN, TYPE(BOOL), out);
}

static int check_logic(checker *c, dv__expr *e, const value **out)
{
    for (uint32_t i = 0; i < e->n; i++) {
        const value *v;
        const int status = dv__formula_check(c, &e->args[i], &v);
        if (status)
            return status;
        if (!maybe(v, is_bool))
            return dv__formula_mismatch(c, e->args[i], "expected", TYPE(BOOL), v);
    }
    return give(c, VALUE_KNOWN, TYPE(BOOL), out);
}

/* ---- Parts ---- */

static int check_attribute(checker *c, dv__expr *e, const value **out)
{
    static const struct {
        const char *name;
        int type;
    } attributes[] = {
        { "shape", T_INTS },
        { "ndim", T_INT },
        { "dtype", T_DTYPE },
        { "device", T_DEVICE },
        { "numel", T_INT },
    };
    const value *of;
    const int status = e->args[0]->kind == DV__EXPR_NAME ? check_name(c, e->args[0], true, &of)
                                                         : dv__formula_check(c, &e->args[0], &of);
    if (status)
        return status;
    if (!maybe_tensor(of))
        return dv__formula_mismatch(c, e, "expected", TYPE(TENSOR), of);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
        if (!strcmp(e->name, attributes[i].name))
            return give(c, VALUE_KNOWN, &dv__formula_types[attributes[i].type], out);
    return dv__fail_at(
        DV_ESCHEMA, c->text, e->at, "a tensor has no '.%s'; there are .shape, .ndim, .dtype, .device, .numel", e->name);
}

/* A literal integer, also negative. */
static bool literal(const dv__expr *e, int64_t *i)
{
    if (e->kind == DV__EXPR_NEG && e->args[0]->kind == DV__EXPR_INT)
        *i = -e->args[0]->i;
    else if (e->kind == DV__EXPR_INT)
        *i = e->i;
    else
        return false;
    return true;
}

static int check_index(checker *c, dv__expr **at, const value **out)
{
    dv__expr *e = *at, *of = e->args[0];
    int64_t i = 0;
    const bool is_literal = literal(e->args[1], &i);
    if (c->mode == MODE_GRADIENT && of->kind == DV__EXPR_NAME && !strcmp(of->name, "grads") && argument_named(c, "grads") < 0) {
        if (!is_literal)
            return dv__fail_at(DV_ESCHEMA, c->text, e->args[1]->at, "grads needs a literal index");
        *at = of;
        return check_grad(c, of, i, true, out);
    }
    const value *list, *index;
    int status = dv__formula_check(c, &e->args[0], &list);
    if (!status)
        status = dv__formula_check(c, &e->args[1], &index);
    if (status)
        return status;
    if (!maybe(index, is_int))
        return dv__formula_mismatch(c, e->args[1], "an index is", TYPE(INT), index);
    if (list->kind == VALUE_UNKNOWN)
        return give(c, VALUE_UNKNOWN, NULL, out);
    if (list->kind == VALUE_TUPLE || list->kind == VALUE_LIST) {
        const size_t n = list->kind == VALUE_LIST ? list->n : list->callee->nreturns;
        if (!is_literal || i < 0 || (size_t)i >= n)
            return dv__fail_at(DV_ESCHEMA, c->text, e->args[1]->at, "expected a literal index below %zu", n);
        if (list->kind == VALUE_TUPLE)
            return give(c, VALUE_KNOWN, list->callee->returns[i].type, out);
        *out = list->elems[i];
        return DV_OK;
    }
    if (list->kind == VALUE_KNOWN && list->type->kind == DV__TYPE_LIST)
        return give(c, VALUE_KNOWN, list->type->elems[0], out);
    dv__text found = { 0 };
    dv__formula_value_print(list, &found);
    status = dv__fail_at(DV_ESCHEMA, c->text, e->at, "only a list, a shape or a call with several results has an index, found %s",
        found.data ? found.data : "?");
    dv__text_deinit(&found);
    return status;
}

static int check_list(checker *c, dv__expr *e, const value **out)
{
    const value **elems = DV__ARENA_ARRAY(&c->scratch, const value *, e->n);
    value *v = dv__formula_value(c, VALUE_LIST, NULL);
    if (!elems || !v)
        return DV_ENOMEM;
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = dv__formula_check(c, &e->args[i], &elems[i]);
        if (status)
            return status;
    }
    v->elems = elems;
    v->n = e->n;
    *out = v;
    return DV_OK;
}

int dv__formula_check(checker *c, dv__expr **at, const value **out)
{
    dv__expr *e = *at;
    switch (e->kind) {
    case DV__EXPR_INT: return give(c, VALUE_KNOWN, TYPE(INT), out);
    case DV__EXPR_FLOAT: return give(c, VALUE_KNOWN, TYPE(FLOAT), out);
    case DV__EXPR_STRING: return give(c, VALUE_KNOWN, TYPE(STR), out);
    case DV__EXPR_BOOL: return give(c, VALUE_KNOWN, TYPE(BOOL), out);
    case DV__EXPR_NONE: return give(c, VALUE_NONE, NULL, out);
    case DV__EXPR_NAME: return check_name(c, e, false, out);
    case DV__EXPR_ATTR: return check_attribute(c, e, out);
    case DV__EXPR_INDEX: return check_index(c, at, out);
    case DV__EXPR_CALL: return check_call(c, e, out);
    case DV__EXPR_LIST: return check_list(c, e, out);
    case DV__EXPR_NEG:
    case DV__EXPR_ADD:
    case DV__EXPR_SUB:
    case DV__EXPR_MUL:
    case DV__EXPR_DIV:
    case DV__EXPR_FLOORDIV:
    case DV__EXPR_MOD: return check_arithmetic(c, at, out);
    case DV__EXPR_EQ:
    case DV__EXPR_NE:
    case DV__EXPR_LT:
    case DV__EXPR_LE:
    case DV__EXPR_GT:
    case DV__EXPR_GE:
    case DV__EXPR_IN: return check_comparison(c, e, out);
    case DV__EXPR_AND:
    case DV__EXPR_OR:
    case DV__EXPR_NOT: return check_logic(c, e, out);
    case DV__EXPR_STAR:
    case DV__EXPR_KEYWORD: break;
    }
    return dv__fail_at(DV_ESYNTAX, c->text, e->at, "expected a value");
}
