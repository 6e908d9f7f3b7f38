/* Evaluates formulas by calling the operators that the formulas name. Equal calls in one formula are evaluated once. Results of
 * the calls are temporaries of the host, freed when the formula is done. */
#include "call/eval.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "call/call_error.h"
#include "call/host_tensor.h"

int dv__eval_fail(const dv__eval *ev, int status, const dv__expr *e, const char *what)
{
    dv__strbuf text = { 0 };
    dv__expr_print(e, &text);
    dv_fail(status, "%s: %s: %s: %s", ev->c->op->name, ev->formula_kind, text.data ? text.data : "?", what);
    dv__strbuf_deinit(&text);
    return status;
}

/* ---- Numbers, as in Python ----------------------------------------------------------------------------------------------- */

static bool eval_is_real_number(const dv_value *v)
{
    return v->type == DV_VALUE_INT || v->type == DV_VALUE_FLOAT || v->type == DV_VALUE_BOOL;
}
static double eval_as_double(const dv_value *v)
{
    return v->type == DV_VALUE_FLOAT ? v->as.f : v->type == DV_VALUE_BOOL ? v->as.b : (double)v->as.i;
}
static int64_t eval_as_int64(const dv_value *v) { return v->type == DV_VALUE_BOOL ? v->as.b : v->as.i; }

/* Sets *out to the truth of a number or of None, as Python does. Returns false for a value of another type. */
static bool eval_try_as_bool(const dv_value *v, bool *out)
{
    if (eval_is_real_number(v))
        *out = eval_as_double(v) != 0;
    else if (v->type == DV_VALUE_NONE)
        *out = false;
    else
        return false;
    return true;
}

/* Computes + - * // or % of integers. Fails for overflow and for a divisor of 0. */
static int eval_int_arithmetic(const dv__eval *ev, const dv__expr *e, int64_t a, int64_t b, dv_value *out)
{
    int64_t x = 0;
    bool fits = true;
    switch (e->kind) {
    case DV__EXPR_ADD: fits = !__builtin_add_overflow(a, b, &x); break;
    case DV__EXPR_SUB: fits = !__builtin_sub_overflow(a, b, &x); break;
    case DV__EXPR_MUL: fits = !__builtin_mul_overflow(a, b, &x); break;
    case DV__EXPR_FLOORDIV: fits = dv__int_try_floordiv(a, b, &x); break;
    case DV__EXPR_MOD: fits = dv__int_try_floormod(a, b, &x); break;
    default: break;
    }
    *out = dv_from_int(x);
    return fits ? DV_OK : dv__eval_fail(ev, DV_EINVAL, e, "overflow or division by zero");
}

/* Computes + - * / // or % of two numbers; with a float, or for /, as doubles. Returns a status. */
static int eval_arithmetic(const dv__eval *ev, const dv__expr *e, const dv_value *a, const dv_value *b, dv_value *out)
{
    if (!eval_is_real_number(a) || !eval_is_real_number(b))
        return dv__eval_fail(ev, DV_ETYPE, e, "expected numbers");
    const bool floats = a->type == DV_VALUE_FLOAT || b->type == DV_VALUE_FLOAT || e->kind == DV__EXPR_DIV;
    if (!floats)
        return eval_int_arithmetic(ev, e, eval_as_int64(a), eval_as_int64(b), out);
    const double x = eval_as_double(a), y = eval_as_double(b);
    if (y == 0 && (e->kind == DV__EXPR_DIV || e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD))
        return dv__eval_fail(ev, DV_EINVAL, e, "division by zero");
    double z = x / y;
    switch (e->kind) {
    case DV__EXPR_ADD: z = x + y; break;
    case DV__EXPR_SUB: z = x - y; break;
    case DV__EXPR_MUL: z = x * y; break;
    case DV__EXPR_FLOORDIV: z = floor(z); break;
    case DV__EXPR_MOD: z = x - y * floor(z); break;
    default: break;
    }
    *out = dv_from_float(z);
    return DV_OK;
}

/* True if two values are equal as numbers, or have one type and equal contents. Tensors and lists are never equal. */
static bool eval_values_are_equal(const dv_value *a, const dv_value *b)
{
    if (eval_is_real_number(a) && eval_is_real_number(b))
        return a->type == DV_VALUE_FLOAT || b->type == DV_VALUE_FLOAT ? eval_as_double(a) == eval_as_double(b)
                                                                      : eval_as_int64(a) == eval_as_int64(b);
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case DV_VALUE_NONE: return true;
    case DV_VALUE_STRING: return a->as.s.size == b->as.s.size && !memcmp(a->as.s.data, b->as.s.data, a->as.s.size);
    case DV_VALUE_DTYPE: return dv_dtype_key(a->as.dtype) == dv_dtype_key(b->as.dtype);
    case DV_VALUE_DEVICE: return a->as.device.type == b->as.device.type && a->as.device.id == b->as.device.id;
    default: return false;
    }
}

/* Computes a comparison, as a bool; an order with NaN is false. Fails if an order compares other values than numbers. */
static int eval_compare(const dv__eval *ev, const dv__expr *e, const dv_value *a, const dv_value *b, dv_value *out)
{
    bool holds;
    if (e->kind == DV__EXPR_EQ || e->kind == DV__EXPR_NE) {
        holds = eval_values_are_equal(a, b) == (e->kind == DV__EXPR_EQ);
    } else if (!eval_is_real_number(a) || !eval_is_real_number(b)) {
        return dv__eval_fail(ev, DV_ETYPE, e, "expected numbers");
    } else {
        const bool floats = a->type == DV_VALUE_FLOAT || b->type == DV_VALUE_FLOAT;
        const int order = floats ? (eval_as_double(a) > eval_as_double(b)) - (eval_as_double(a) < eval_as_double(b))
                                 : (eval_as_int64(a) > eval_as_int64(b)) - (eval_as_int64(a) < eval_as_int64(b));
        const bool ordered = !floats || (!isnan(eval_as_double(a)) && !isnan(eval_as_double(b)));
        holds = ordered &&
            (e->kind == DV__EXPR_LT          ? order < 0
                    : e->kind == DV__EXPR_LE ? order <= 0
                    : e->kind == DV__EXPR_GT ? order > 0
                                             : order >= 0);
    }
    *out = dv_from_bool(holds);
    return DV_OK;
}

/* Computes `not`, `and` or `or`; the second operand is evaluated only if the first does not decide. Returns a status. */
static int eval_logical(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    bool a, b;
    int status = dv__eval_expr(ev, e->args[0], out);
    if (status)
        return status;
    if (!eval_try_as_bool(out, &a))
        return dv__eval_fail(ev, DV_ETYPE, e, "expected a condition");
    if (e->kind == DV__EXPR_NOT || a == (e->kind == DV__EXPR_OR)) {
        *out = dv_from_bool(e->kind == DV__EXPR_NOT ? !a : a);
        return DV_OK;
    }
    if ((status = dv__eval_expr(ev, e->args[1], out)))
        return status;
    if (!eval_try_as_bool(out, &b))
        return dv__eval_fail(ev, DV_ETYPE, e, "expected a condition");
    *out = dv_from_bool(b);
    return DV_OK;
}

/* ---- Names, lists, attributes -------------------------------------------------------------------------------------------- */

/* Evaluates a name: an argument, a dtype, a result or a derivative. Returns a status. */
static int eval_name(const dv__eval *ev, const dv__expr *e, dv_value *out)
{
    if (e->role == DV__ROLE_ARGUMENT) {
        *out = ev->f64_args ? ev->f64_args[e->ref] : ev->c->args[e->ref];
        return DV_OK;
    }
    if (e->role == DV__ROLE_DTYPE) {
        *out = dv_none();
        out->type = DV_VALUE_DTYPE;
        return dv_dtype_parse(e->name, &out->as.dtype);
    }
    if (!ev->derivatives)
        return dv__eval_fail(ev, DV_ENOTSUP, e, "a decomposition can use arguments only");
    *out = e->role == DV__ROLE_RESULT ? ev->c->results[(size_t)e->ref - ev->c->signature->nargs] : ev->derivatives[e->ref];
    return DV_OK;
}

/* Evaluates a list. Its type follows from its elements: all ints, tensors or None, bools, strings, else floats. Fails for
 * other mixtures. */
static int eval_list(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    dv__arena *arena = &ev->c->arena;
    dv_value *elements = DV__ARENA_ARRAY(arena, dv_value, e->n + 1);
    if (!elements)
        return DV_ENOMEM;
    bool tensors = true, ints = true, bools = true, strings = true, numbers = true;
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = dv__eval_expr(ev, e->args[i], &elements[i]);
        if (status)
            return status;
        const uint32_t type = elements[i].type;
        tensors &= type == DV_VALUE_TENSOR || type == DV_VALUE_NONE;
        ints &= type == DV_VALUE_INT;
        bools &= type == DV_VALUE_BOOL;
        strings &= type == DV_VALUE_STRING;
        numbers &= type == DV_VALUE_INT || type == DV_VALUE_FLOAT;
    }
    *out = dv_none();
    out->as.ints.size = e->n;
    void *data = DV__ARENA_ARRAY(arena, dv_string, e->n + 1); /* dv_string is the largest type of an element */
    if (!data)
        return DV_ENOMEM;
    out->as.ints.data = data;
    out->type = ints ? DV_VALUE_INTS
        : tensors    ? DV_VALUE_TENSORS
        : bools      ? DV_VALUE_BOOLS
        : strings    ? DV_VALUE_STRINGS
                     : DV_VALUE_FLOATS;
    if (!ints && !tensors && !bools && !strings && !numbers)
        return dv__eval_fail(ev, DV_ETYPE, e, "elements of different types");
    const size_t size = dv_field_at(dv_field_of_value(out->type)->of)->size;
    for (uint32_t i = 0; i < e->n; i++) {
        elements[i] = out->type == DV_VALUE_FLOATS ? dv_from_float(eval_as_double(&elements[i]))
            : elements[i].type == DV_VALUE_NONE    ? dv_none() /* an absent tensor: a NULL pointer */
                                                   : elements[i];
        memcpy((char *)data + i * size, &elements[i].as, size);
    }
    return DV_OK;
}

/* Evaluates an attribute of a tensor: shape, ndim, numel, dtype or device. Returns a status. */
static int eval_attribute(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    dv_value v;
    const int status = dv__eval_expr(ev, e->args[0], &v);
    if (status)
        return status;
    if (v.type != DV_VALUE_TENSOR)
        return dv__eval_fail(ev, DV_ETYPE, e, "expected a tensor");
    const dv_tensor *t = v.as.tensor;
    *out = dv_none();
    if (!strcmp(e->name, "shape"))
        *out = dv_from_ints(t->shape, (size_t)t->ndim);
    else if (!strcmp(e->name, "ndim"))
        *out = dv_from_int(t->ndim);
    else if (!strcmp(e->name, "numel"))
        *out = dv_from_int(dv_numel(t));
    else if (!strcmp(e->name, "dtype"))
        *out = dv_from_dtype(t->dtype);
    else if (!strcmp(e->name, "device"))
        out->type = DV_VALUE_DEVICE, out->as.device = t->device;
    else
        return dv__eval_fail(ev, DV_ENOTSUP, e, "no such attribute");
    return DV_OK;
}

/* Reads the element of a list at an index; a negative index counts from the end. Returns a status. */
static int eval_list_element(const dv__eval *ev, const dv__expr *e, const dv_value *list, int64_t index, dv_value *out)
{
    const int64_t n = list->type >= DV_VALUE_TENSORS ? (int64_t)list->as.ints.size : 0;
    if (index < 0)
        index += n;
    if (index < 0 || index >= n)
        return dv__eval_fail(ev, DV_EINVAL, e, "the index is out of range");
    switch (list->type) {
    case DV_VALUE_INTS: *out = dv_from_int(list->as.ints.data[index]); return DV_OK;
    case DV_VALUE_FLOATS: *out = dv_from_float(list->as.floats.data[index]); return DV_OK;
    case DV_VALUE_BOOLS: *out = dv_from_bool(list->as.bools.data[index]); return DV_OK;
    case DV_VALUE_TENSORS: *out = dv_from_tensor(list->as.tensors.data[index]); return DV_OK;
    case DV_VALUE_STRINGS:
        *out = dv_none();
        out->type = DV_VALUE_STRING;
        out->as.s = list->as.strings.data[index];
        return DV_OK;
    default: return dv__eval_fail(ev, DV_ETYPE, e, "cannot be indexed");
    }
}

/* ---- Calls --------------------------------------------------------------------------------------------------------------- */

/* Finds the operator that a formula names: "ns::f" itself; "f" in the namespace of the formula's operator, else in the base
 * set. */
static int eval_find_operator(const dv__eval *ev, const char *name, dv_operator **out)
{
    char full[512];
    *out = NULL;
    if (strstr(name, "::"))
        return dv__find_for_operator(ev->c->op, name, out);
    snprintf(full, sizeof full, "%s::%s", ev->c->op->schema->ns, name);
    return dv__find_for_operator(ev->c->op, full, out) ? dv__find_base_operator(name, out) : DV_OK;
}

/* Evaluates the arguments of a call to args, in the order of op's schema; DV_VALUE_DEFAULT for those left out. Returns a
 * status. */
static int eval_evaluate_call_args(dv__eval *ev, const dv_operator *op, const dv__expr *e, dv_value *args)
{
    const size_t n = op->schema->nargs;
    for (size_t i = 0; i < n; i++)
        args[i] = dv_default();
    for (uint32_t i = 0; i < e->n; i++) {
        const dv__expr *a = e->args[i];
        const bool keyword = a->kind == DV__EXPR_KEYWORD;
        const int at = keyword ? dv__schema_find_argument_index(op->schema, a->name) : (int)i;
        if (at < 0 || (size_t)at >= n)
            return dv__eval_fail(ev, DV_EINVAL, e, keyword ? "no argument of that name" : "too many arguments");
        const int status = dv__eval_expr(ev, keyword ? a->args[0] : a, &args[at]);
        if (status)
            return status;
    }
    return DV_OK;
}

static bool eval_tensor_is_argument(const dv_value *args, size_t nargs, const dv_tensor *t)
{
    for (size_t i = 0; i < nargs; i++)
        if (args[i].type == DV_VALUE_TENSOR && args[i].as.tensor == t)
            return true;
    return false;
}

int dv__eval_add_temporary(dv__eval *ev, dv_tensor *t)
{
    dv__eval_temporary *o = DV__ARENA_NEW(&ev->c->arena, dv__eval_temporary);
    if (!o) {
        dv__free_host_tensor(ev->c, t);
        return DV_ENOMEM;
    }
    *o = (dv__eval_temporary){ ev->temporaries, t };
    ev->temporaries = o;
    return DV_OK;
}

/* Records each new tensor of a list as dv__eval_add_temporary() does, and moves the list's array to the arena. DV_ENOMEM: the
 * tensors that could not be recorded are freed. */
static int eval_add_list_as_temporaries(dv__eval *ev, dv_value *list)
{
    const size_t n = list->as.tensors.size;
    const dv_tensor **copy = DV__ARENA_ARRAY(&ev->c->arena, const dv_tensor *, n + 1);
    int status = copy ? DV_OK : DV_ENOMEM;
    for (size_t k = 0; k < n; k++) {
        dv_tensor *t = (dv_tensor *)(uintptr_t)list->as.tensors.data[k];
        if (t && status)
            dv__free_host_tensor(ev->c, t);
        else if (t)
            status = dv__eval_add_temporary(ev, t);
        if (!status)
            copy[k] = t;
    }
    dv__free((void *)(uintptr_t)list->as.tensors.data);
    list->as.tensors.data = copy;
    return status;
}

/* Records the new tensors among a call's results as temporaries. Arguments and `into_tensor` are not new. DV_ENOMEM: the
 * tensors that could not be recorded are freed. */
static int eval_add_new_results_as_temporaries(
    dv__eval *ev, const dv_operator *op, const dv_value *args, const dv_tensor *into_tensor, const dv__eval_memo *memo)
{
    int status = DV_OK;
    for (size_t i = 0; i < memo->nresults; i++) {
        const dv__slot *slot = &op->signature->slots[op->signature->nargs + i];
        const dv_tensor *t = memo->results[i].type == DV_VALUE_TENSOR ? memo->results[i].as.tensor : NULL;
        int added_status = DV_OK;
        if (t && t != into_tensor && !eval_tensor_is_argument(args, op->schema->nargs, t))
            added_status = dv__eval_add_temporary(ev, (dv_tensor *)(uintptr_t)t);
        else if (memo->results[i].type == DV_VALUE_TENSORS && !(slot->alias >= 0 && slot->flags & DV__SLOT_WRITES))
            added_status = eval_add_list_as_temporaries(ev, &memo->results[i]);
        status = status ? status : added_status;
    }
    return status;
}

/* Evaluates the arguments of the call e, calls the operator, and stores its results in memo. into_tensor: receives the only
 * result; NULL: the results are temporaries. Returns a status. */
static int eval_run_call(
    dv__eval *ev, const dv_operator *op, const dv__expr *e, const dv_tensor *into_tensor, dv__eval_memo *memo)
{
    dv__arena *arena = &ev->c->arena;
    dv_value *args = DV__ARENA_ARRAY(arena, dv_value, op->schema->nargs + 1);
    memo->nresults = op->schema->nreturns;
    memo->results = DV__ARENA_ARRAY(arena, dv_value, memo->nresults + 1);
    if (!args || !memo->results)
        return DV_ENOMEM;
    int status = eval_evaluate_call_args(ev, op, e, args);
    if (status)
        return status;
    if (into_tensor)
        memo->results[0] = dv_from_tensor(into_tensor);
    status = ev->c->nested_call((dv_operator *)(uintptr_t)op, args, op->schema->nargs, memo->results, memo->nresults, ev->c->host,
        (ev->c->nested_flags & DV__NESTED_IN_KERNEL) | DV__NESTED_TEMPORARY);
    if (!status)
        status = eval_add_new_results_as_temporaries(ev, op, args, into_tensor, memo);
    return status ? dv__fail_add_context(status, "%s: %s", ev->c->op->name, ev->formula_kind) : DV_OK;
}

int dv__eval_call_results(dv__eval *ev, const dv__expr *e, const dv_tensor *into_tensor, const dv__eval_memo **out)
{
    for (*out = ev->memos; *out; *out = (*out)->next)
        if (dv__exprs_are_equal((*out)->call_expr, e))
            return DV_OK;
    dv_operator *op;
    int status = eval_find_operator(ev, e->name, &op);
    if (status)
        return dv__fail_add_context(status, "%s: %s", ev->c->op->name, ev->formula_kind);
    dv__eval_memo *m = DV__ARENA_NEW(&ev->c->arena, dv__eval_memo);
    if (into_tensor && (op->schema->nreturns != 1 || op->schema->returns[0].alias))
        into_tensor = NULL; /* the result is an argument or a view, so it cannot be written into another tensor */
    status = m ? eval_run_call(ev, op, e, into_tensor, m) : DV_ENOMEM;
    dv_operator_unref(op);
    if (status)
        return status;
    m->call_expr = e;
    m->next = ev->memos;
    *out = ev->memos = m;
    return DV_OK;
}

/* Evaluates a built-in function of formulas: present(), if(), len() or needs(). Returns a status. */
static int eval_builtin(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    bool yes;
    int status;
    switch (e->ref) {
    case DV__FORMULA_PRESENT: *out = dv_from_bool(ev->c->args[e->args[0]->ref].type != DV_VALUE_NONE); return DV_OK;
    case DV__FORMULA_IF:
        if ((status = dv__eval_expr(ev, e->args[0], out)))
            return status;
        if (!eval_try_as_bool(out, &yes))
            return dv__eval_fail(ev, DV_ETYPE, e, "expected a condition");
        return dv__eval_expr(ev, e->args[yes ? 1 : 2], out);
    case DV__FORMULA_LEN:
        if ((status = dv__eval_expr(ev, e->args[0], out)))
            return status;
        if (out->type < DV_VALUE_TENSORS)
            return dv__eval_fail(ev, DV_ETYPE, e, "expected a list");
        *out = dv_from_int((int64_t)out->as.ints.size);
        return DV_OK;
    case DV__FORMULA_NEEDS: *out = dv_from_bool(!ev->wanted || ev->wanted[e->args[0]->ref]); return DV_OK;
    default: return dv__eval_fail(ev, DV_ENOTSUP, e, "not known here");
    }
}

/* Evaluates `call(...)[i]` to result i of the call, and `list[i]` to the element of a list. */
static int eval_subscript(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    dv_value i, of;
    int status = dv__eval_expr(ev, e->args[1], &i);
    if (status)
        return status;
    if (i.type != DV_VALUE_INT)
        return dv__eval_fail(ev, DV_ETYPE, e, "expected an int as index");
    if (e->args[0]->kind == DV__EXPR_CALL && e->args[0]->ref == DV__FORMULA_OPERATOR) {
        const dv__eval_memo *m;
        if ((status = dv__eval_call_results(ev, e->args[0], NULL, &m)))
            return status;
        if (m->nresults != 1 || m->results[0].type < DV_VALUE_TENSORS) {
            if (i.as.i < 0 || (size_t)i.as.i >= m->nresults)
                return dv__eval_fail(ev, DV_EINVAL, e, "the index is out of range");
            *out = m->results[i.as.i];
            return DV_OK;
        }
    }
    status = dv__eval_expr(ev, e->args[0], &of);
    return status ? status : eval_list_element(ev, e, &of, i.as.i, out);
}

int dv__eval_call_into(dv__eval *ev, const dv__expr *e, const dv_tensor *into_tensor, dv_value *out)
{
    const dv__eval_memo *m;
    const int status = dv__eval_call_results(ev, e, into_tensor, &m);
    if (status)
        return status;
    if (m->nresults != 1)
        return dv__eval_fail(ev, DV_ETYPE, e, "expected one result");
    *out = m->results[0];
    return DV_OK;
}

int dv__eval_expr(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    dv_value a, b;
    int status;
    switch (e->kind) {
    case DV__EXPR_INT: *out = dv_from_int(e->i); return DV_OK;
    case DV__EXPR_FLOAT: *out = dv_from_float(e->f); return DV_OK;
    case DV__EXPR_BOOL: *out = dv_from_bool(e->i != 0); return DV_OK;
    case DV__EXPR_STRING: *out = dv_from_string(e->name); return DV_OK;
    case DV__EXPR_NONE: *out = dv_none(); return DV_OK;
    case DV__EXPR_NAME: return eval_name(ev, e, out);
    case DV__EXPR_LIST: return eval_list(ev, e, out);
    case DV__EXPR_ATTR: return eval_attribute(ev, e, out);
    case DV__EXPR_SUBSCRIPT: return eval_subscript(ev, e, out);
    case DV__EXPR_CALL: return e->ref == DV__FORMULA_OPERATOR ? dv__eval_call_into(ev, e, NULL, out) : eval_builtin(ev, e, out);
    case DV__EXPR_AND:
    case DV__EXPR_OR:
    case DV__EXPR_NOT: return eval_logical(ev, e, out);
    case DV__EXPR_NEG:
        if ((status = dv__eval_expr(ev, e->args[0], &a)))
            return status;
        if (a.type == DV_VALUE_FLOAT)
            *out = dv_from_float(-a.as.f);
        else if (eval_is_real_number(&a) && eval_as_int64(&a) != INT64_MIN)
            *out = dv_from_int(-eval_as_int64(&a));
        else
            return dv__eval_fail(ev, DV_ETYPE, e, "expected a number");
        return DV_OK;
    case DV__EXPR_IN:
        if ((status = dv__eval_expr(ev, e->args[0], &a)))
            return status;
        *out = dv_from_bool(false);
        for (uint32_t i = 1; i < e->n && !out->as.b; i++) {
            if ((status = dv__eval_expr(ev, e->args[i], &b)))
                return status;
            out->as.b = eval_values_are_equal(&a, &b);
        }
        return DV_OK;
    default: break;
    }
    if (e->n != 2)
        return dv__eval_fail(ev, DV_ENOTSUP, e, "not known here");
    if ((status = dv__eval_expr(ev, e->args[0], &a)) || (status = dv__eval_expr(ev, e->args[1], &b)))
        return status;
    return e->kind >= DV__EXPR_EQ && e->kind <= DV__EXPR_GE ? eval_compare(ev, e, &a, &b, out)
                                                            : eval_arithmetic(ev, e, &a, &b, out);
}

void dv__eval_deinit(dv__eval *ev)
{
    for (const dv__eval_temporary *o = ev->temporaries; o; o = o->next)
        dv__free_host_tensor(ev->c, o->tensor);
}
