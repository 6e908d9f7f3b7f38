/* Names and types of formulas. One walk from the leaves up gives each node its meaning (role, ref) and a type. A call is matched
 * with its callee's overloads in order. Arithmetic with a tensor operand is replaced by a call, such as add(a, b). Types are only
 * as exact as error messages need: the result of an operator that is not known yet fits every type. */
#include <stdio.h>

#include "lang/contract_internal.h"
#include "lang/formula_internal.h"

/* Returns a new value in the scratch arena. NULL: memory is out. */
formula_value *dv__formula_value_new(formula_checker *c, enum formula_value_kind kind, const dv__type *type)
{
    formula_value *v = DV__ARENA_NEW(&c->scratch, formula_value);
    if (v) {
        v->kind = kind;
        v->type = type;
    }
    return v;
}

/* Makes a value without elements in *out. Returns DV_OK or DV_ENOMEM. */
static int formula_make_value(formula_checker *c, enum formula_value_kind kind, const dv__type *type, const formula_value **out)
{
    *out = dv__formula_value_new(c, kind, type);
    return *out ? DV_OK : DV_ENOMEM;
}

/* Returns a new node with room for this number of operands. NULL: memory is out. */
dv__expr *dv__formula_expr_new(formula_checker *c, enum dv__expr_kind kind, const char *position_in_text, uint32_t noperands)
{
    dv__expr *e = DV__ARENA_NEW(c->arena, dv__expr);
    if (!e || (noperands && !(e->args = DV__ARENA_ARRAY(c->arena, dv__expr *, noperands))))
        return NULL;
    e->kind = kind;
    e->at = position_in_text;
    e->n = noperands;
    return e;
}

/* Prints the type of a value for a message, such as "Tensor", "None" or "2 results". */
void dv__formula_value_print_type(const formula_value *v, dv__strbuf *to)
{
    switch (v->kind) {
    case VALUE_TYPED: dv__type_print(v->type, to); return;
    case VALUE_UNKNOWN: dv__strbuf_append_str(to, "a value of unknown type"); return;
    case VALUE_NONE: dv__strbuf_append_str(to, "None"); return;
    case VALUE_TUPLE: dv__strbuf_printf(to, "%zu results", v->callee->nreturns); return;
    case VALUE_VOID: dv__strbuf_append_str(to, "no result"); return;
    case VALUE_LIST: break;
    }
    dv__strbuf_append_str(to, "[");
    for (size_t i = 0; i < v->n; i++) {
        dv__strbuf_append_str(to, i ? ", " : "");
        dv__formula_value_print_type(v->elems[i], to);
    }
    dv__strbuf_append_str(to, "]");
}

/* Fails with "<message_begin> <wanted>, found <type of found>" at e. Returns DV_ESCHEMA. */
int dv__formula_fail_wrong_type(
    formula_checker *c, const dv__expr *e, const char *message_begin, const dv__type *wanted, const formula_value *found)
{
    dv__strbuf want = { 0 }, have = { 0 };
    dv__type_print(wanted, &want);
    dv__formula_value_print_type(found, &have);
    const int status = dv__fail_at_column(
        DV_ESCHEMA, c->text, e->at, "%s %s, found %s", message_begin, want.data ? want.data : "?", have.data ? have.data : "?");
    dv__strbuf_deinit(&want);
    dv__strbuf_deinit(&have);
    return status;
}

/* ---- Types --------------------------------------------------------------------------------------------------------------- */

static bool type_is_int(const dv__type *t) { return t->kind == DV__TYPE_INT || t->kind == DV__TYPE_SYMINT; }
static bool type_is_float(const dv__type *t) { return t->kind == DV__TYPE_FLOAT; }
static bool type_is_bool(const dv__type *t) { return t->kind == DV__TYPE_BOOL || t->kind == DV__TYPE_SYMBOOL; }
static bool type_is_number(const dv__type *t)
{
    return type_is_int(t) || type_is_float(t) || t->kind == DV__TYPE_SCALAR || t->kind == DV__TYPE_COMPLEX;
}

/* True if two types are the same in a formula, where SymInt is int, SymFloat is float and SymBool is bool. */
static bool formula_types_are_same(const dv__type *a, const dv__type *b)
{
    if ((type_is_int(a) && type_is_int(b)) || (type_is_float(a) && type_is_float(b)) || (type_is_bool(a) && type_is_bool(b)))
        return true;
    if (a->kind != b->kind)
        return false;
    if (a->kind == DV__TYPE_LIST || a->kind == DV__TYPE_OPTIONAL)
        return formula_types_are_same(a->elems[0], b->elems[0]);
    return a->kind != DV__TYPE_OTHER || !strcmp(a->name, b->name);
}

/* True if a value of type `found` may be passed where `wanted` is expected, as an int for a float or for int[2]. */
static bool type_accepts(const dv__type *wanted, const dv__type *found)
{
    if (formula_types_are_same(wanted, found))
        return true;
    if (wanted->kind == DV__TYPE_OPTIONAL)
        return type_accepts(wanted->elems[0], found->kind == DV__TYPE_OPTIONAL ? found->elems[0] : found);
    if (type_is_float(wanted) || wanted->kind == DV__TYPE_SCALAR)
        return type_is_int(found) || type_is_float(found) || (wanted->kind == DV__TYPE_SCALAR && found->kind == DV__TYPE_COMPLEX);
    if (wanted->kind == DV__TYPE_LIST && found->kind == DV__TYPE_LIST)
        return type_accepts(wanted->elems[0], found->elems[0]);
    return wanted->kind == DV__TYPE_LIST && wanted->fixed_size > 0 &&
        type_accepts(wanted->elems[0], found); /* a single int is accepted for int[2] */
}

/* True if a value may be passed where the type `wanted` is expected. A value of unknown type always may. */
bool dv__formula_type_accepts_value(const dv__type *wanted, const formula_value *v)
{
    switch (v->kind) {
    case VALUE_UNKNOWN: return true;
    case VALUE_TYPED: return type_accepts(wanted, v->type);
    case VALUE_NONE: return wanted->kind == DV__TYPE_OPTIONAL;
    case VALUE_LIST:
        if (wanted->kind == DV__TYPE_OPTIONAL)
            wanted = wanted->elems[0];
        if (wanted->kind != DV__TYPE_LIST || (wanted->fixed_size > 1 && (size_t)wanted->fixed_size != v->n))
            return false; /* int[1] accepts a list of any length, as in ATen's int[1] dim; the 1 only means that a single int is
                             accepted too */
        for (size_t i = 0; i < v->n; i++)
            if (!dv__formula_type_accepts_value(wanted->elems[0], v->elems[i]))
                return false;
        return true;
    case VALUE_TUPLE:
    case VALUE_VOID: break;
    }
    return false;
}

/* True if the type of a value is known and the predicate holds for it. */
static bool value_type_satisfies(const formula_value *v, bool (*predicate)(const dv__type *))
{
    return v->kind == VALUE_TYPED && predicate(v->type);
}
static bool type_is_tensor(const dv__type *t) { return t->kind == DV__TYPE_TENSOR; }
/* True if a value is a Tensor or its type is unknown. */
static bool value_can_be_tensor(const formula_value *v)
{
    return v->kind == VALUE_UNKNOWN || value_type_satisfies(v, type_is_tensor);
}
/* True if the predicate holds for the type of a value, or the type is unknown. */
static bool value_can_satisfy(const formula_value *v, bool (*predicate)(const dv__type *))
{
    return v->kind == VALUE_UNKNOWN || value_type_satisfies(v, predicate);
}

/* ---- Names --------------------------------------------------------------------------------------------------------------- */

/* Records which part of a slot's value backward must save: 1 the value, 2 only its shape, dtype or device. To save the value
 * includes the rest. */
static void formula_record_saved_part(formula_checker *c, int32_t slot, uint8_t part)
{
    if (c->saved_parts && c->saved_parts[slot] != 1)
        c->saved_parts[slot] = part;
}

/* Sets what a name means (role and slot), and its type in *out. Returns a status. */
static int formula_resolve_name(
    formula_checker *c, dv__expr *e, int role, int32_t slot, const dv__type *type, const formula_value **out)
{
    e->role = (uint8_t)role;
    e->ref = slot;
    return formula_make_value(c, VALUE_TYPED, type, out);
}

/* Returns the slot of the argument with this name; -1: there is none. */
static int32_t formula_find_argument_slot(const formula_checker *c, const char *name)
{
    for (size_t i = 0; i < c->schema->nargs; i++)
        if (!strcmp(c->schema->args[i].name, name))
            return (int32_t)i;
    return -1;
}

/* Returns the slot of the result with this name, or of `result` or `result1`; -1: there is none. */
static int32_t formula_find_result_slot(const formula_checker *c, const char *name)
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

/* Returns the schema's type of an argument or return. */
static const dv__type *formula_get_slot_type(const formula_checker *c, int32_t slot)
{
    const dv__schema *s = c->schema;
    return slot < (int32_t)s->nargs ? s->args[slot].type : s->returns[slot - (int32_t)s->nargs].type;
}

/* Resolves `grad`, or grads[output_index] if is_indexed, the gradient of an output. Returns a status, an error outside of
 * gradients. */
static int formula_check_grad(formula_checker *c, dv__expr *e, int64_t output_index, bool is_indexed, const formula_value **out)
{
    int32_t *slots = DV__ARENA_ARRAY(&c->scratch, int32_t, c->schema->nargs + c->schema->nreturns);
    if (!slots)
        return DV_ENOMEM;
    const size_t n = dv__formula_list_and_count_outputs(c->schema, slots);
    if (c->mode != MODE_GRADIENT)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "'grad' is known in gradients only");
    if (!is_indexed && formula_find_argument_slot(c, "grad") >= 0)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at,
            "'grad' is ambiguous: an argument has that name too; rename the argument, or write grads[0] for the gradient");
    if (!n)
        return dv__fail_at_column(
            DV_ESCHEMA, c->text, e->at, "the operator returns no tensor and writes none, so there is no 'grad'");
    if (!is_indexed && n != 1)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at,
            "the operator has %zu outputs (results and written arguments): expected grads[0], grads[1] ..., found 'grad'", n);
    if (output_index < 0 || (size_t)output_index >= n)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at,
            "grads[%lld]: the operator has %zu outputs (results and written arguments)", (long long)output_index, n);
    const dv__type *type = formula_get_slot_type(c, slots[output_index]);
    return formula_resolve_name(
        c, e, DV__ROLE_GRAD, slots[output_index], type->kind == DV__TYPE_OPTIONAL ? type->elems[0] : type, out);
}

/* Returns the slot of the argument x for the name x_t of its tangent; -1: there is no such argument. */
static int32_t formula_find_tangent_argument_slot(const formula_checker *c, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < c->schema->nargs && n > 2 && !strcmp(name + n - 2, "_t"); i++)
        if (strlen(c->schema->args[i].name) == n - 2 && !strncmp(c->schema->args[i].name, name, n - 2))
            return (int32_t)i;
    return -1;
}

/* Fails with "unknown name" and the names that the formula may use. Returns DV_ESCHEMA. */
static int formula_fail_unknown_name(formula_checker *c, const dv__expr *e)
{
    dv__strbuf names = { 0 };
    for (size_t i = 0; i < c->schema->nargs; i++)
        dv__strbuf_printf(&names, "%s%s", i ? ", " : "", c->schema->args[i].name);
    if (c->mode != MODE_DECOMPOSITION && c->schema->nreturns == 1)
        dv__strbuf_append_str(&names, ", result");
    for (size_t i = 0; i < c->schema->nreturns && c->mode != MODE_DECOMPOSITION && c->schema->nreturns > 1; i++)
        dv__strbuf_printf(&names, ", result%zu", i);
    if (c->mode == MODE_GRADIENT)
        dv__strbuf_append_str(&names, ", grad");
    for (size_t i = 0; i < c->schema->nargs && c->mode == MODE_TANGENT; i++)
        dv__strbuf_printf(&names, ", %s_t", c->schema->args[i].name);
    const int status = dv__fail_at_column(
        DV_ESCHEMA, c->text, e->at, "unknown name '%s'; there are: %s", e->name, names.data ? names.data : "none");
    dv__strbuf_deinit(&names);
    return status;
}

/* Resolves a name and finds its type. only_metadata: the formula reads only the shape, dtype or device. Returns a status. */
static int formula_check_name(formula_checker *c, dv__expr *e, bool only_metadata, const formula_value **out)
{
    const uint8_t saved_part = only_metadata ? 2 : 1;
    if (e->index_name)
        return dv__fail_at_column(
            DV_ESCHEMA, c->text, e->at, "%s{%s} is for contracts: expected %s[...]", e->name, e->index_name, e->name);
    if (c->mode == MODE_GRADIENT && !strcmp(e->name, "grad"))
        return formula_check_grad(c, e, 0, false, out);
    if (c->mode == MODE_GRADIENT && !strcmp(e->name, "grads"))
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "'grads' needs an index: expected grads[0], grads[1] ...");
    int32_t slot = formula_find_argument_slot(c, e->name);
    if (slot >= 0) {
        const dv__type *type = formula_get_slot_type(c, slot);
        formula_record_saved_part(c, slot, saved_part);
        return formula_resolve_name(
            c, e, DV__ROLE_ARGUMENT, slot, type->kind == DV__TYPE_OPTIONAL && c->is_present[slot] ? type->elems[0] : type, out);
    }
    if (c->mode != MODE_DECOMPOSITION && (slot = formula_find_result_slot(c, e->name)) >= 0) {
        formula_record_saved_part(c, slot, saved_part);
        return formula_resolve_name(c, e, DV__ROLE_RESULT, slot, formula_get_slot_type(c, slot), out);
    }
    if (c->mode == MODE_TANGENT && (slot = formula_find_tangent_argument_slot(c, e->name)) >= 0) {
        const dv__type *type = formula_get_slot_type(c, slot);
        return formula_resolve_name(
            c, e, DV__ROLE_TANGENT, slot, type->kind == DV__TYPE_OPTIONAL && c->is_present[slot] ? type->elems[0] : type, out);
    }
    if (dv_dtype_named(e->name))
        return formula_resolve_name(c, e, DV__ROLE_DTYPE, 0, DV__BASE_TYPE(DTYPE), out);
    return formula_fail_unknown_name(c, e);
}

/* ---- Built-in functions -------------------------------------------------------------------------------------------------- */

/* Checks that the only operand of a built-in call is an argument's name. *slot: the argument. Fails with DV_ESCHEMA. */
static int formula_check_only_operand_is_argument(formula_checker *c, const dv__expr *call, int32_t *slot)
{
    const dv__expr *x = call->n == 1 ? call->args[0] : NULL;
    *slot = x && x->kind == DV__EXPR_NAME && !x->index_name ? formula_find_argument_slot(c, x->name) : -1;
    if (*slot >= 0)
        return DV_OK;
    return dv__fail_at_column(DV_ESCHEMA, c->text, x ? x->at : call->at, "%s() takes the name of one argument", call->name);
}

/* Checks present(x): x must be an optional argument. Returns a status. */
static int formula_check_present(formula_checker *c, dv__expr *e, const formula_value **out)
{
    int32_t slot;
    int status = formula_check_only_operand_is_argument(c, e, &slot);
    if (status)
        return status;
    if (c->schema->args[slot].type->kind != DV__TYPE_OPTIONAL)
        return dv__fail_at_column(
            DV_ESCHEMA, c->text, e->at, "'%s' is always present: it is not optional", c->schema->args[slot].name);
    formula_record_saved_part(c, slot, 2);
    e->ref = DV__FORMULA_PRESENT;
    e->args[0]->role = DV__ROLE_ARGUMENT;
    e->args[0]->ref = slot;
    return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(BOOL), out);
}

/* Checks needs(x), which is known in gradients only. Returns a status. */
static int formula_check_needs(formula_checker *c, dv__expr *e, const formula_value **out)
{
    int32_t slot;
    int status = formula_check_only_operand_is_argument(c, e, &slot);
    if (status)
        return status;
    if (c->mode != MODE_GRADIENT)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "needs() is known in gradients only");
    e->ref = DV__FORMULA_NEEDS;
    e->args[0]->role = DV__ROLE_ARGUMENT;
    e->args[0]->ref = slot;
    return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(BOOL), out);
}

/* Checks len(x): x must be a list. Returns a status. */
static int formula_check_len(formula_checker *c, dv__expr *e, const formula_value **out)
{
    const formula_value *v;
    if (e->n != 1 || e->args[0]->kind == DV__EXPR_KEYWORD)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "len() takes one list");
    const int status = dv__formula_check(c, &e->args[0], &v);
    if (status)
        return status;
    if (v->kind != VALUE_UNKNOWN && v->kind != VALUE_LIST && !(v->kind == VALUE_TYPED && v->type->kind == DV__TYPE_LIST))
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->args[0]->at, "len() takes a list");
    e->ref = DV__FORMULA_LEN;
    return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(INT), out);
}

/* Marks in `is_present`, by argument, the optional arguments that are present if the condition holds. */
static void formula_mark_present_where(formula_checker *c, const dv__expr *condition, bool *is_present)
{
    if (condition->kind == DV__EXPR_AND) {
        formula_mark_present_where(c, condition->args[0], is_present);
        formula_mark_present_where(c, condition->args[1], is_present);
    } else if (condition->kind == DV__EXPR_CALL && condition->ref == DV__FORMULA_PRESENT) {
        is_present[condition->args[0]->ref] = true;
    }
}

/* Returns the type that all elements of two written lists have, whatever the lists' lengths: [a, b] and [a, b, c]. NULL: they
 * differ. */
static const dv__type *formula_find_common_element_type(const formula_value *a, const formula_value *b)
{
    const dv__type *common = a->n && a->elems[0]->kind == VALUE_TYPED ? a->elems[0]->type : NULL;
    for (size_t i = 0; common && i < a->n + b->n; i++) {
        const formula_value *v = i < a->n ? a->elems[i] : b->elems[i - a->n];
        if (v->kind != VALUE_TYPED || !formula_types_are_same(common, v->type))
            common = NULL;
    }
    return common;
}

/* Sets *out to the type of if(): the type that accepts both branches. Fails at e if there is none. Returns a status. */
static int formula_join_branch_types(
    formula_checker *c, const dv__expr *e, const formula_value *if_true, const formula_value *if_false, const formula_value **out)
{
    if (if_true->kind == VALUE_UNKNOWN || if_false->kind == VALUE_UNKNOWN)
        return formula_make_value(c, VALUE_UNKNOWN, NULL, out);
    if (if_true->kind == VALUE_NONE && if_false->kind == VALUE_NONE)
        return formula_make_value(c, VALUE_NONE, NULL, out);
    const formula_value *one = if_true->kind == VALUE_NONE ? if_false : if_true,
                        *other = if_true->kind == VALUE_NONE ? if_true : if_false;
    if (one->kind == VALUE_TYPED && other->kind == VALUE_NONE) {
        if (one->type->kind == DV__TYPE_OPTIONAL)
            return formula_make_value(c, VALUE_TYPED, one->type, out);
        dv__type *optional = DV__ARENA_NEW(&c->scratch, dv__type);
        const dv__type **elem = DV__ARENA_NEW(&c->scratch, const dv__type *);
        if (!optional || !elem)
            return DV_ENOMEM;
        *elem = one->type;
        *optional = (dv__type){ DV__TYPE_OPTIONAL, -1, NULL, elem, 1 };
        return formula_make_value(c, VALUE_TYPED, optional, out);
    }
    if (one->kind == VALUE_TYPED && other->kind == VALUE_TYPED) {
        if (type_accepts(one->type, other->type))
            return formula_make_value(c, VALUE_TYPED, one->type, out);
        if (type_accepts(other->type, one->type))
            return formula_make_value(c, VALUE_TYPED, other->type, out);
    }
    if (if_true->kind == VALUE_LIST && if_false->kind == VALUE_LIST && formula_find_common_element_type(if_true, if_false)) {
        dv__type *list = DV__ARENA_NEW(&c->scratch, dv__type);
        const dv__type **elem = DV__ARENA_NEW(&c->scratch, const dv__type *);
        if (!list || !elem)
            return DV_ENOMEM;
        *elem = formula_find_common_element_type(if_true, if_false);
        *list = (dv__type){ DV__TYPE_LIST, -1, NULL, elem, 1 };
        return formula_make_value(c, VALUE_TYPED, list, out);
    }
    if (one->kind == VALUE_LIST && other->kind == VALUE_TYPED && dv__formula_type_accepts_value(other->type, one))
        return formula_make_value(c, VALUE_TYPED, other->type, out);
    if (one->kind == VALUE_TYPED && other->kind == VALUE_LIST && dv__formula_type_accepts_value(one->type, other))
        return formula_make_value(c, VALUE_TYPED, one->type, out);
    if (one->kind == VALUE_TYPED)
        return dv__formula_fail_wrong_type(c, e, "the two branches of if() differ: expected", one->type, other);
    return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "the two branches of if() differ");
}

/* Checks if(condition, a, b). In a, the optional arguments that the condition tests are present. Returns a status. */
static int formula_check_if(formula_checker *c, dv__expr *e, const formula_value **out)
{
    const formula_value *condition, *yes, *no;
    if (e->n != 3)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "if() takes a condition and two values, found %u operands%s", e->n,
            e->n > 3 && e->args[0]->kind == DV__EXPR_IN ? ": the values after 'in' are separated by spaces" : "");
    int status = dv__formula_check(c, &e->args[0], &condition);
    if (status)
        return status;
    if (!value_can_satisfy(condition, type_is_bool))
        return dv__formula_fail_wrong_type(c, e->args[0], "the condition of if() is", DV__BASE_TYPE(BOOL), condition);
    bool *outer = c->is_present, *inner = DV__ARENA_ARRAY(&c->scratch, bool, c->schema->nargs);
    if (!inner)
        return DV_ENOMEM;
    memcpy(inner, outer, c->schema->nargs * sizeof *inner);
    formula_mark_present_where(c, e->args[0], inner);
    c->is_present = inner;
    status = dv__formula_check(c, &e->args[1], &yes);
    c->is_present = outer;
    if (!status)
        status = dv__formula_check(c, &e->args[2], &no);
    if (status)
        return status;
    e->ref = DV__FORMULA_IF;
    return formula_join_branch_types(c, e->args[2], yes, no, out);
}

/* ---- Calls --------------------------------------------------------------------------------------------------------------- */

/* A call in a formula, with the values of its operands. */
typedef struct formula_call {
    dv__expr *e;
    const formula_value **values; /* by operand */
    size_t npositional;           /* the number of operands without name=, which come first */
} formula_call;

/* Returns the index of the callee's argument that an operand of the call gives; -1: there is no such argument. */
static int32_t formula_find_parameter_index_of_operand(const dv__schema *callee, const formula_call *call, size_t operand)
{
    if (operand < call->npositional)
        return operand < callee->nargs && !callee->args[operand].kwarg_only ? (int32_t)operand : -1;
    for (size_t p = 0; p < callee->nargs; p++)
        if (!strcmp(callee->args[p].name, call->e->args[operand]->name))
            return (int32_t)p;
    return -1;
}

/* Prints "ns::name.overload". Returns buffer. */
static const char *schema_print_full_name(const dv__schema *s, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s%s%s%s%s", s->ns, *s->ns ? "::" : "", s->name, *s->overload ? "." : "", s->overload);
    return buffer;
}

/* Fails with the message that the callee has no argument for an operand. Returns DV_ESCHEMA. */
static int formula_fail_no_parameter(formula_checker *c, const dv__schema *callee, const formula_call *call, size_t operand)
{
    char name[256];
    const dv__expr *e = call->e->args[operand];
    if (operand < call->npositional)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "too many arguments: %s", callee->text);
    return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "%s has no argument '%s': %s",
        schema_print_full_name(callee, name, sizeof name), e->name, callee->text);
}

/* Checks that a call fits this callee: each operand's name and type, and all required arguments. Fails with the reason. */
static int formula_check_fits_callee(formula_checker *c, const dv__schema *callee, const formula_call *call)
{
    char name[256], what[512];
    schema_print_full_name(callee, name, sizeof name);
    bool *given = DV__ARENA_ARRAY(&c->scratch, bool, callee->nargs);
    if (!given)
        return DV_ENOMEM;
    for (size_t p = 0; p < callee->nargs; p++)
        if (dv__argument_is_written(&callee->args[p]))
            return dv__fail_at_column(DV_ESCHEMA, c->text, call->e->at,
                "%s writes its argument '%s'; a formula may only call operators that write nothing", name, callee->args[p].name);
    for (size_t i = 0; i < call->e->n; i++) {
        const int32_t p = formula_find_parameter_index_of_operand(callee, call, i);
        if (p < 0)
            return formula_fail_no_parameter(c, callee, call, i);
        const dv__expr *e = i < call->npositional ? call->e->args[i] : call->e->args[i]->args[0];
        if (given[p])
            return dv__fail_at_column(
                DV_ESCHEMA, c->text, e->at, "argument '%s' of %s is given twice", callee->args[p].name, name);
        given[p] = true;
        if (!dv__formula_type_accepts_value(callee->args[p].type, call->values[i])) {
            snprintf(what, sizeof what, "argument '%.100s' of %.200s is", callee->args[p].name, name);
            return dv__formula_fail_wrong_type(c, e, what, callee->args[p].type, call->values[i]);
        }
    }
    for (size_t p = 0; p < callee->nargs; p++)
        if (!given[p] && !callee->args[p].def.is_set)
            return dv__fail_at_column(
                DV_ESCHEMA, c->text, call->e->at, "argument '%s' is missing: %s", callee->args[p].name, callee->text);
    return DV_OK;
}

/* Sets the call's full operator name and which argument each named operand gives; *out: the type of its result. Returns a
 * status. */
static int formula_set_callee(formula_checker *c, const dv__schema *callee, const formula_call *call, const formula_value **out)
{
    char name[512];
    schema_print_full_name(callee, name, sizeof name);
    call->e->name = dv__arena_strndup(c->arena, name, strlen(name));
    if (!call->e->name)
        return DV_ENOMEM;
    for (size_t i = call->npositional; i < call->e->n; i++)
        call->e->args[i]->ref = formula_find_parameter_index_of_operand(callee, call, i);
    if (callee->nreturns == 1)
        return formula_make_value(c, VALUE_TYPED, callee->returns[0].type, out);
    formula_value *v = dv__formula_value_new(c, callee->nreturns ? VALUE_TUPLE : VALUE_VOID, NULL);
    if (!v)
        return DV_ENOMEM;
    v->callee = callee;
    *out = v;
    return DV_OK;
}

/* Fails with the types of the operands and the schemas of all overloads, of which none fits. Returns DV_ESCHEMA. */
static int formula_fail_no_overload(formula_checker *c, const formula_call *call, size_t noverloads)
{
    dv__strbuf types = { 0 };
    for (size_t i = 0; i < call->e->n; i++) {
        dv__strbuf_append_str(&types, i ? ", " : "");
        if (i >= call->npositional)
            dv__strbuf_printf(&types, "%s=", call->e->args[i]->name);
        dv__formula_value_print_type(call->values[i], &types);
    }
    dv__strbuf all = { 0 };
    for (size_t i = 0; i < noverloads; i++) {
        const dv__schema *candidate = NULL;
        if (!c->lookup(c->user, call->e->name, i, &candidate) && candidate)
            dv__strbuf_printf(&all, "%s%s", i ? "; " : "", candidate->text);
    }
    const int status = dv__fail_at_column(DV_ESCHEMA, c->text, call->e->at, "no overload of %s takes (%s); there are: %s",
        call->e->name, types.data ? types.data : "", all.data ? all.data : "?");
    dv__strbuf_deinit(&types);
    dv__strbuf_deinit(&all);
    return status;
}

/* Finds the first overload that the call fits; *out: the type of its result. An operator that is not known yet fits. Returns a
 * status. */
static int formula_check_operator_call(formula_checker *c, const formula_call *call, const formula_value **out)
{
    int status = DV_OK;
    call->e->ref = DV__FORMULA_OPERATOR;
    for (size_t i = 0;; i++) {
        const dv__schema *callee = NULL;
        const int found = c->lookup ? c->lookup(c->user, call->e->name, i, &callee) : DV_OK;
        if (found)
            return found == DV_ENOMEM ? found : dv__fail_at_column(found, c->text, call->e->at, "%s", dv_last_error());
        if (!callee)
            return !i ? formula_make_value(c, VALUE_UNKNOWN, NULL, out) : i == 1 ? status : formula_fail_no_overload(c, call, i);
        if (!(status = formula_check_fits_callee(c, callee, call)))
            return formula_set_callee(c, callee, call, out);
        if (status == DV_ENOMEM)
            return status;
    }
}

/* Checks a call of a built-in function or of an operator. Returns a status. */
static int formula_check_call(formula_checker *c, dv__expr *e, const formula_value **out)
{
    static const struct {
        const char *name;
        int (*check)(formula_checker *, dv__expr *, const formula_value **);
    } builtins[] = {
        { "if", formula_check_if },
        { "present", formula_check_present },
        { "needs", formula_check_needs },
        { "len", formula_check_len },
    };
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (!strcmp(e->name, builtins[i].name))
            return builtins[i].check(c, e, out);
    formula_call k = { .e = e, .values = DV__ARENA_ARRAY(&c->scratch, const formula_value *, e->n) };
    if (!k.values)
        return DV_ENOMEM;
    for (size_t i = 0; i < e->n; i++) {
        const bool keyword = e->args[i]->kind == DV__EXPR_KEYWORD;
        if (!keyword && k.npositional < i)
            return dv__fail_at_column(DV_ESCHEMA, c->text, e->args[i]->at, "a positional argument may not follow a named one");
        k.npositional += !keyword;
        const int status = dv__formula_check(c, keyword ? &e->args[i]->args[0] : &e->args[i], &k.values[i]);
        if (status)
            return status;
    }
    return formula_check_operator_call(c, &k, out);
}

/* ---- Arithmetic ---------------------------------------------------------------------------------------------------------- */

/* Replaces *e by the call name(a, b); b NULL: name(a). Returns a status. */
static int formula_replace_by_call(formula_checker *c, dv__expr **e, const char *name, dv__expr *a, const formula_value *va,
    dv__expr *b, const formula_value *vb, const formula_value **out)
{
    dv__expr *replacement = dv__formula_expr_new(c, DV__EXPR_CALL, (*e)->at, b ? 2 : 1);
    const formula_value **values = DV__ARENA_ARRAY(&c->scratch, const formula_value *, 2);
    if (!replacement || !values || !(replacement->name = dv__arena_strndup(c->arena, name, strlen(name))))
        return DV_ENOMEM;
    replacement->args[0] = a;
    values[0] = va;
    if (b) {
        replacement->args[1] = b;
        values[1] = vb;
    }
    replacement->depth = (uint16_t)((b && b->depth > a->depth ? b->depth : a->depth) + 1);
    *e = replacement;
    const formula_call k = { replacement, values, replacement->n };
    return formula_check_operator_call(c, &k, out);
}

/* Replaces *e, arithmetic with a tensor operand, by calls such as add(x, y). Returns a status. */
static int formula_check_tensor_arithmetic(
    formula_checker *c, dv__expr **e, const formula_value *a, const formula_value *b, const formula_value **out)
{
    const enum dv__expr_kind kind = (*e)->kind;
    dv__expr *x = (*e)->args[0], *y = (*e)->args[1];
    const bool number_first = !value_can_be_tensor(a);
    if (!number_first && !value_can_be_tensor(b) && !value_type_satisfies(b, type_is_number))
        return dv__formula_fail_wrong_type(c, y, "arithmetic needs numbers and tensors: expected", DV__BASE_TYPE(TENSOR), b);
    if (number_first && !value_type_satisfies(a, type_is_number))
        return dv__formula_fail_wrong_type(c, x, "arithmetic needs numbers and tensors: expected", DV__BASE_TYPE(TENSOR), a);
    switch (kind) {
    case DV__EXPR_ADD:
        return number_first ? formula_replace_by_call(c, e, "add", y, b, x, a, out)
                            : formula_replace_by_call(c, e, "add", x, a, y, b, out);
    case DV__EXPR_MUL:
        return number_first ? formula_replace_by_call(c, e, "mul", y, b, x, a, out)
                            : formula_replace_by_call(c, e, "mul", x, a, y, b, out);
    case DV__EXPR_SUB:
        return number_first ? formula_replace_by_call(c, e, "rsub", y, b, x, a, out)
                            : formula_replace_by_call(c, e, "sub", x, a, y, b, out);
    case DV__EXPR_DIV:
        if (!number_first)
            return formula_replace_by_call(c, e, "div", x, a, y, b, out);
        const formula_value *inverse;
        const int status = formula_replace_by_call(c, e, "reciprocal", y, b, NULL, NULL, &inverse);
        return status ? status : formula_replace_by_call(c, e, "mul", *e, inverse, x, a, out);
    default: break;
    }
    return dv__fail_at_column(DV_ESCHEMA, c->text, (*e)->at, "only + - * / work on tensors; expected a call");
}

/* Checks arithmetic. With a tensor operand *e becomes a call. Returns a status. */
static int formula_check_arithmetic(formula_checker *c, dv__expr **e, const formula_value **out)
{
    const formula_value *a, *b = NULL;
    int status = dv__formula_check(c, &(*e)->args[0], &a);
    if (!status && (*e)->n == 2)
        status = dv__formula_check(c, &(*e)->args[1], &b);
    if (status)
        return status;
    const enum dv__expr_kind kind = (*e)->kind;
    if (value_can_be_tensor(a) || (b && value_can_be_tensor(b)))
        return kind == DV__EXPR_NEG ? formula_replace_by_call(c, e, "neg", (*e)->args[0], a, NULL, NULL, out)
                                    : formula_check_tensor_arithmetic(c, e, a, b, out);
    if (!value_type_satisfies(a, type_is_number))
        return dv__formula_fail_wrong_type(
            c, (*e)->args[0], "arithmetic needs numbers and tensors: expected", DV__BASE_TYPE(SCALAR), a);
    if (b && !value_type_satisfies(b, type_is_number))
        return dv__formula_fail_wrong_type(
            c, (*e)->args[1], "arithmetic needs numbers and tensors: expected", DV__BASE_TYPE(SCALAR), b);
    if (a->type->kind == DV__TYPE_SCALAR || a->type->kind == DV__TYPE_COMPLEX)
        return formula_make_value(c, VALUE_TYPED, a->type, out);
    if (b && (b->type->kind == DV__TYPE_SCALAR || b->type->kind == DV__TYPE_COMPLEX))
        return formula_make_value(c, VALUE_TYPED, b->type, out);
    const bool floating = kind == DV__EXPR_DIV || type_is_float(a->type) || (b && type_is_float(b->type));
    return formula_make_value(c, VALUE_TYPED, floating ? DV__BASE_TYPE(FLOAT) : DV__BASE_TYPE(INT), out);
}

/* Returns a class of values for comparisons: only values of one class can be equal. A Scalar is of the class of numbers, and
 * may be a boolean too. */
static enum dv__type_kind value_get_comparison_class(const formula_value *v)
{
    switch (v->kind) {
    case VALUE_TYPED: return dv__type_get_contract_kind(v->type);
    case VALUE_LIST: return DV__TYPE_LIST;
    case VALUE_NONE: return DV__TYPE_NONE;
    default: return DV__TYPE_OTHER;
    }
}

/* True for Device and Device?. */
static bool type_is_device_or_optional_device(const dv__type *t)
{
    return (t->kind == DV__TYPE_OPTIONAL ? t->elems[0] : t)->kind == DV__TYPE_DEVICE;
}
/* True for Scalar and Scalar?. */
static bool type_is_scalar_or_optional_scalar(const dv__type *t)
{
    return (t->kind == DV__TYPE_OPTIONAL ? t->elems[0] : t)->kind == DV__TYPE_SCALAR;
}
static bool type_is_optional(const dv__type *t) { return t->kind == DV__TYPE_OPTIONAL; }
static bool value_is_number(const formula_value *v)
{
    return value_get_comparison_class(v) == DV__TYPE_INT || value_get_comparison_class(v) == DV__TYPE_NUMBER;
}

/* Returns a noun for messages, such as "an integer". */
static const char *value_class_get_noun(const formula_value *v)
{
    const enum dv__type_kind class = value_get_comparison_class(v);
    return class == DV__TYPE_NONE                                    ? "None"
        : value_type_satisfies(v, type_is_device_or_optional_device) ? "a device"
        : class == DV__TYPE_OTHER                                    ? "a value that cannot be compared"
                                                                     : dv__type_rows[class].text;
}

/* Checks that a value b, at expression e, can be compared with a. is_ordered: by < or >, which needs numbers. Fails with the
 * reason. */
static int formula_check_comparable(
    formula_checker *c, bool is_ordered, const formula_value *a, const dv__expr *e, const formula_value *b)
{
    const enum dv__type_kind class = value_get_comparison_class(a);
    if (a->kind == VALUE_UNKNOWN || b->kind == VALUE_UNKNOWN || (value_is_number(a) && value_is_number(b)))
        return DV_OK;
    if (is_ordered)
        return dv__fail_at_column(
            DV_ESCHEMA, c->text, e->at, "expected a number, found %s", value_class_get_noun(value_is_number(a) ? b : a));
    if ((b->kind == VALUE_NONE && value_type_satisfies(a, type_is_optional)) ||
        (a->kind == VALUE_NONE && value_type_satisfies(b, type_is_optional)) ||
        (class == DV__TYPE_BOOL && value_type_satisfies(b, type_is_scalar_or_optional_scalar)) ||
        (value_get_comparison_class(b) == DV__TYPE_BOOL && value_type_satisfies(a, type_is_scalar_or_optional_scalar)))
        return DV_OK;
    const bool device = value_type_satisfies(a, type_is_device_or_optional_device);
    if (class != DV__TYPE_NONE && !dv__type_kind_is_scalar(class) && !device)
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "%s cannot be compared", value_class_get_noun(a));
    if (class != value_get_comparison_class(b) || device != value_type_satisfies(b, type_is_device_or_optional_device))
        return dv__fail_at_column(DV_ESCHEMA, c->text, e->at, "expected %s, found %s: they can never be equal",
            value_class_get_noun(a), value_class_get_noun(b));
    return DV_OK;
}

/* Checks a == b, a < b and `a in b c`: the first operand is compared with each later one. Returns a status. */
static int formula_check_comparison(formula_checker *c, dv__expr *e, const formula_value **out)
{
    const formula_value *first = NULL, *v;
    const bool ordered = e->kind != DV__EXPR_EQ && e->kind != DV__EXPR_NE && e->kind != DV__EXPR_IN;
    for (uint32_t i = 0; i < e->n; i++) {
        int status = dv__formula_check(c, &e->args[i], &v);
        if (!status && value_type_satisfies(v, type_is_tensor))
            status = dv__fail_at_column(
                DV_ESCHEMA, c->text, e->args[i]->at, "a condition is about numbers, not about what is in a tensor");
        if (!status && first)
            status = formula_check_comparable(c, ordered, first, e->args[i], v);
        if (status)
            return status;
        first = first ? first : v;
    }
    return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(BOOL), out);
}

/* Checks and, or, not: all operands must be booleans. Returns a status. */
static int formula_check_logic(formula_checker *c, dv__expr *e, const formula_value **out)
{
    for (uint32_t i = 0; i < e->n; i++) {
        const formula_value *v;
        const int status = dv__formula_check(c, &e->args[i], &v);
        if (status)
            return status;
        if (!value_can_satisfy(v, type_is_bool))
            return dv__formula_fail_wrong_type(c, e->args[i], "expected", DV__BASE_TYPE(BOOL), v);
    }
    return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(BOOL), out);
}

/* ---- Attributes, subscripts and lists ------------------------------------------------------------------------------------ */

/* Checks x.shape, .ndim, .dtype, .device or .numel of a tensor. Returns a status. */
static int formula_check_attribute(formula_checker *c, dv__expr *e, const formula_value **out)
{
    static const dv__type *const element = DV__BASE_TYPE(INT);
    static const dv__type ints = { DV__TYPE_LIST, -1, NULL, &element, 1 };
    static const struct {
        const char *name;
        const dv__type *type;
    } attributes[] = {
        { "shape", &ints },
        { "ndim", DV__BASE_TYPE(INT) },
        { "dtype", DV__BASE_TYPE(DTYPE) },
        { "device", DV__BASE_TYPE(DEVICE) },
        { "numel", DV__BASE_TYPE(INT) },
    };
    const formula_value *of;
    const int status = e->args[0]->kind == DV__EXPR_NAME ? formula_check_name(c, e->args[0], true, &of)
                                                         : dv__formula_check(c, &e->args[0], &of);
    if (status)
        return status;
    if (!value_can_be_tensor(of))
        return dv__formula_fail_wrong_type(c, e, "expected", DV__BASE_TYPE(TENSOR), of);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
        if (!strcmp(e->name, attributes[i].name))
            return formula_make_value(c, VALUE_TYPED, attributes[i].type, out);
    return dv__fail_at_column(
        DV_ESCHEMA, c->text, e->at, "a tensor has no '.%s'; there are .shape, .ndim, .dtype, .device, .numel", e->name);
}

/* Stores a literal integer, also a negative one, in *i. Returns false for any other expression. */
static bool expr_try_get_literal_int(const dv__expr *e, int64_t *i)
{
    if (e->kind == DV__EXPR_NEG && e->args[0]->kind == DV__EXPR_INT)
        *i = -e->args[0]->i;
    else if (e->kind == DV__EXPR_INT)
        *i = e->i;
    else
        return false;
    return true;
}

/* Checks x[i] of a list, a shape or a call with several results, and grads[i], by which *place is replaced. Returns a
 * status. */
static int formula_check_subscript(formula_checker *c, dv__expr **place, const formula_value **out)
{
    dv__expr *e = *place, *of = e->args[0];
    int64_t i = 0;
    const bool is_literal = expr_try_get_literal_int(e->args[1], &i);
    if (c->mode == MODE_GRADIENT && of->kind == DV__EXPR_NAME && !strcmp(of->name, "grads") &&
        formula_find_argument_slot(c, "grads") < 0) {
        if (!is_literal)
            return dv__fail_at_column(DV_ESCHEMA, c->text, e->args[1]->at, "grads needs a literal index");
        *place = of;
        return formula_check_grad(c, of, i, true, out);
    }
    const formula_value *list, *index;
    int status = dv__formula_check(c, &e->args[0], &list);
    if (!status)
        status = dv__formula_check(c, &e->args[1], &index);
    if (status)
        return status;
    if (!value_can_satisfy(index, type_is_int))
        return dv__formula_fail_wrong_type(c, e->args[1], "an index is", DV__BASE_TYPE(INT), index);
    if (list->kind == VALUE_UNKNOWN)
        return formula_make_value(c, VALUE_UNKNOWN, NULL, out);
    if (list->kind == VALUE_TUPLE || list->kind == VALUE_LIST) {
        const size_t n = list->kind == VALUE_LIST ? list->n : list->callee->nreturns;
        if (!is_literal || i < 0 || (size_t)i >= n)
            return dv__fail_at_column(DV_ESCHEMA, c->text, e->args[1]->at, "expected a literal index below %zu", n);
        if (list->kind == VALUE_TUPLE)
            return formula_make_value(c, VALUE_TYPED, list->callee->returns[i].type, out);
        *out = list->elems[i];
        return DV_OK;
    }
    if (list->kind == VALUE_TYPED && list->type->kind == DV__TYPE_LIST)
        return formula_make_value(c, VALUE_TYPED, list->type->elems[0], out);
    dv__strbuf found = { 0 };
    dv__formula_value_print_type(list, &found);
    status = dv__fail_at_column(DV_ESCHEMA, c->text, e->at,
        "only a list, a shape or a call with several results has an index, found %s", found.data ? found.data : "?");
    dv__strbuf_deinit(&found);
    return status;
}

/* Checks the elements of a written list [a, b]. Returns a status. */
static int formula_check_list(formula_checker *c, dv__expr *e, const formula_value **out)
{
    const formula_value **elems = DV__ARENA_ARRAY(&c->scratch, const formula_value *, e->n);
    formula_value *v = dv__formula_value_new(c, VALUE_LIST, NULL);
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

int dv__formula_check(formula_checker *c, dv__expr **at, const formula_value **out)
{
    dv__expr *e = *at;
    switch (e->kind) {
    case DV__EXPR_INT: return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(INT), out);
    case DV__EXPR_FLOAT: return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(FLOAT), out);
    case DV__EXPR_STRING: return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(STRING), out);
    case DV__EXPR_BOOL: return formula_make_value(c, VALUE_TYPED, DV__BASE_TYPE(BOOL), out);
    case DV__EXPR_NONE: return formula_make_value(c, VALUE_NONE, NULL, out);
    case DV__EXPR_NAME: return formula_check_name(c, e, false, out);
    case DV__EXPR_ATTR: return formula_check_attribute(c, e, out);
    case DV__EXPR_SUBSCRIPT: return formula_check_subscript(c, at, out);
    case DV__EXPR_CALL: return formula_check_call(c, e, out);
    case DV__EXPR_LIST: return formula_check_list(c, e, out);
    case DV__EXPR_NEG:
    case DV__EXPR_ADD:
    case DV__EXPR_SUB:
    case DV__EXPR_MUL:
    case DV__EXPR_DIV:
    case DV__EXPR_FLOORDIV:
    case DV__EXPR_MOD: return formula_check_arithmetic(c, at, out);
    case DV__EXPR_EQ:
    case DV__EXPR_NE:
    case DV__EXPR_LT:
    case DV__EXPR_LE:
    case DV__EXPR_GT:
    case DV__EXPR_GE:
    case DV__EXPR_IN: return formula_check_comparison(c, e, out);
    case DV__EXPR_AND:
    case DV__EXPR_OR:
    case DV__EXPR_NOT: return formula_check_logic(c, e, out);
    case DV__EXPR_VARIADIC:
    case DV__EXPR_KEYWORD: break;
    }
    return dv__fail_at_column(DV_ESYNTAX, c->text, e->at, "expected a value");
}
