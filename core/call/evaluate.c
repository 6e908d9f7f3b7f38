/* Evaluates formulas by calling the operators that they name. Equal calls are one: they are evaluated once, as in the hosts'
 * formulas. Results of the calls are the host's temporaries, which live until the formula is done. */
#include "call/evaluate.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "call/fail.h"
#include "call/host.h"

int dv__fail_expr(const dv__eval *ev, int status, const dv__expr *e, const char *what)
{
    dv__text text = { 0 };
    dv__expr_print(e, &text);
    dv_fail(status, "%s: %s: %s: %s", ev->c->op->name, ev->what, text.data ? text.data : "?", what);
    dv__text_deinit(&text);
    return status;
}

/* ---- Numbers, as in Python ---- */

static bool is_real(const dv_value *v)
{
    return v->type == DV_VALUE_INT || v->type == DV_VALUE_FLOAT || v->type == DV_VALUE_BOOL;
}
static double real(const dv_value *v)
{
    return v->type == DV_VALUE_FLOAT ? v->as.f : v->type == DV_VALUE_BOOL ? v->as.b : (double)v->as.i;
}
static int64_t integer(const dv_value *v) { return v->type == DV_VALUE_BOOL ? v->as.b : v->as.i; }

static bool truth(const dv_value *v, bool *out)
{
    if (is_real(v))
        *out = real(v) != 0;
    else if (v->type == DV_VALUE_NONE)
        *out = false;
    else
        return false;
    return true;
}

static int integer_arithmetic(const dv__eval *ev, const dv__expr *e, int64_t a, int64_t b, dv_value *out)
{
    int64_t x = 0;
    bool fits = true;
    switch (e->kind) {
    case DV__EXPR_ADD: fits = !__builtin_add_overflow(a, b, &x); break;
    case DV__EXPR_SUB: fits = !__builtin_sub_overflow(a, b, &x); break;
    case DV__EXPR_MUL: fits = !__builtin_mul_overflow(a, b, &x); break;
    case DV__EXPR_FLOORDIV: fits = dv__floordiv(a, b, &x); break;
    case DV__EXPR_MOD: fits = dv__floormod(a, b, &x); break;
    default: break;
    }
    *out = dv_from_int(x);
    return fits ? DV_OK : dv__fail_expr(ev, DV_EINVAL, e, "overflow or division by zero");
}

static int arithmetic(const dv__eval *ev, const dv__expr *e, const dv_value *a, const dv_value *b, dv_value *out)
{
    if (!is_real(a) || !is_real(b))
        return dv__fail_expr(ev, DV_ETYPE, e, "expected numbers");
    const bool floats = a->type == DV_VALUE_FLOAT || b->type == DV_VALUE_FLOAT || e->kind == DV__EXPR_DIV;
    if (!floats)
        return integer_arithmetic(ev, e, integer(a), integer(b), out);
    const double x = real(a), y = real(b);
    if (y == 0 && (e->kind == DV__EXPR_DIV || e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD))
        return dv__fail_expr(ev, DV_EINVAL, e, "division by zero");
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

static bool equal(const dv_value *a, const dv_value *b)
{
    if (is_real(a) && is_real(b))
        return a->type == DV_VALUE_FLOAT || b->type == DV_VALUE_FLOAT ? real(a) == real(b) : integer(a) == integer(b);
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

static int compare(const dv__eval *ev, const dv__expr *e, const dv_value *a, const dv_value *b, dv_value *out)
{
    bool holds;
    if (e->kind == DV__EXPR_EQ || e->kind == DV__EXPR_NE) {
        holds = equal(a, b) == (e->kind == DV__EXPR_EQ);
    } else if (!is_real(a) || !is_real(b)) {
        return dv__fail_expr(ev, DV_ETYPE, e, "expected numbers");
    } else {
        const bool floats = a->type == DV_VALUE_FLOAT || b->type == DV_VALUE_FLOAT;
        const int order = floats ? (real(a) > real(b)) - (real(a) < real(b))
                                 : (integer(a) > integer(b)) - (integer(a) < integer(b));
        const bool ordered = !floats || (!isnan(real(a)) && !isnan(real(b)));
        holds = ordered &&
            (e->kind == DV__EXPR_LT          ? order < 0
                    : e->kind == DV__EXPR_LE ? order <= 0
                    : e->kind == DV__EXPR_GT ? order > 0
                                             : order >= 0);
    }
    *out = dv_from_bool(holds);
    return DV_OK;
}

static int logic(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    bool a, b;
    int status = dv__evaluate(ev, e->args[0], out);
    if (status)
        return status;
    if (!truth(out, &a))
        return dv__fail_expr(ev, DV_ETYPE, e, "expected a condition");
    if (e->kind == DV__EXPR_NOT || a == (e->kind == DV__EXPR_OR)) {
        *out = dv_from_bool(e->kind == DV__EXPR_NOT ? !a : a);
        return DV_OK;
    }
    if ((status = dv__evaluate(ev, e->args[1], out)))
        return status;
    if (!truth(out, &b))
        return dv__fail_expr(ev, DV_ETYPE, e, "expected a condition");
    *out = dv_from_bool(b);
    return DV_OK;
}

/* ---- Names, lists, attributes ---- */

static int name(const dv__eval *ev, const dv__expr *e, dv_value *out)
{
    if (e->role == DV__ROLE_ARG) {
        *out = ev->wide ? ev->wide[e->ref] : ev->c->args[e->ref];
        return DV_OK;
    }
    if (e->role == DV__ROLE_DTYPE) {
        *out = dv_none();
        out->type = DV_VALUE_DTYPE;
        return dv_dtype_parse(e->name, &out->as.dtype);
    }
    if (!ev->given)
        return dv__fail_expr(ev, DV_ENOTSUP, e, "a native form knows arguments only");
    *out = e->role == DV__ROLE_RESULT ? ev->c->results[(size_t)e->ref - ev->c->plan->nargs] : ev->given[e->ref];
    return DV_OK;
}

static int list(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    dv__arena *arena = &ev->c->arena;
    dv_value *elements = DV__ARENA_ARRAY(arena, dv_value, e->n + 1);
    if (!elements)
        return DV_ENOMEM;
    bool tensors = true, ints = true, bools = true, strings = true, numbers = true;
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = dv__evaluate(ev, e->args[i], &elements[i]);
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
    void *data = DV__ARENA_ARRAY(arena, dv_string, e->n + 1); /* large enough for any of them */
    if (!data)
        return DV_ENOMEM;
    out->as.ints.data = data;
    out->type = ints ? DV_VALUE_INTS
        : tensors    ? DV_VALUE_TENSORS
        : bools      ? DV_VALUE_BOOLS
        : strings    ? DV_VALUE_STRINGS
                     : DV_VALUE_FLOATS;
    if (!ints && !tensors && !bools && !strings && !numbers)
        return dv__fail_expr(ev, DV_ETYPE, e, "elements of different types");
    for (uint32_t i = 0; i < e->n; i++) {
        const dv_value *v = &elements[i];
        switch (out->type) {
        case DV_VALUE_INTS: ((int64_t *)data)[i] = v->as.i; break;
        case DV_VALUE_TENSORS: ((const dv_tensor **)data)[i] = v->type == DV_VALUE_TENSOR ? v->as.tensor : NULL; break;
        case DV_VALUE_BOOLS: ((bool *)data)[i] = v->as.b; break;
        case DV_VALUE_STRINGS: ((dv_string *)data)[i] = v->as.s; break;
        default: ((double *)data)[i] = real(v); break;
        }
    }
    return DV_OK;
}

static int attribute(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    dv_value v;
    const int status = dv__evaluate(ev, e->args[0], &v);
    if (status)
        return status;
    if (v.type != DV_VALUE_TENSOR)
        return dv__fail_expr(ev, DV_ETYPE, e, "expected a tensor");
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
        return dv__fail_expr(ev, DV_ENOTSUP, e, "no such attribute");
    return DV_OK;
}

static int element(const dv__eval *ev, const dv__expr *e, const dv_value *of, int64_t i, dv_value *out)
{
    const int64_t n = of->type >= DV_VALUE_TENSORS ? (int64_t)of->as.ints.size : 0;
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return dv__fail_expr(ev, DV_EINVAL, e, "the index is out of range");
    switch (of->type) {
    case DV_VALUE_INTS: *out = dv_from_int(of->as.ints.data[i]); return DV_OK;
    case DV_VALUE_FLOATS: *out = dv_from_float(of->as.floats.data[i]); return DV_OK;
    case DV_VALUE_BOOLS: *out = dv_from_bool(of->as.bools.data[i]); return DV_OK;
    case DV_VALUE_TENSORS: *out = dv_from_tensor(of->as.tensors.data[i]); return DV_OK;
    case DV_VALUE_STRINGS:
        *out = dv_none();
        out->type = DV_VALUE_STRING;
        out->as.s = of->as.strings.data[i];
        return DV_OK;
    default: return dv__fail_expr(ev, DV_ETYPE, e, "cannot be indexed");
    }
}

/* ---- Calls ---- */

static int find(const dv__eval *ev, const char *written, dv_operator **out)
{
    char full[512];
    *out = NULL;
    if (strstr(written, "::"))
        return dv__find_from(ev->c->op, written, out);
    snprintf(full, sizeof full, "%s::%s", ev->c->op->schema->ns, written);
    return dv__find_from(ev->c->op, full, out) ? dv__find_base(written, out) : DV_OK;
}

static int call_args(dv__eval *ev, const dv_operator *op, const dv__expr *e, dv_value *args)
{
    const size_t n = op->schema->nargs;
    for (size_t i = 0; i < n; i++)
        args[i] = dv_default();
    for (uint32_t i = 0; i < e->n; i++) {
        const dv__expr *a = e->args[i];
        const bool keyword = a->kind == DV__EXPR_KEYWORD;
        const int at = keyword ? dv__schema_arg(op->schema, a->name) : (int)i;
        if (at < 0 || (size_t)at >= n)
            return dv__fail_expr(ev, DV_EINVAL, e, keyword ? "no argument of that name" : "too many arguments");
        const int status = dv__evaluate(ev, keyword ? a->args[0] : a, &args[at]);
        if (status)
            return status;
    }
    return DV_OK;
}

static bool is_argument(const dv_value *args, size_t n, const dv_tensor *t)
{
    for (size_t i = 0; i < n; i++)
        if (args[i].type == DV_VALUE_TENSOR && args[i].as.tensor == t)
            return true;
    return false;
}

/* Records a call's result, to be freed after the evaluation. On failure it is freed at once. */
int dv__eval_keep(dv__eval *ev, dv_tensor *t)
{
    dv__owned *o = DV__ARENA_NEW(&ev->c->arena, dv__owned);
    if (!o) {
        dv__free_tensor(ev->c, t);
        return DV_ENOMEM;
    }
    *o = (dv__owned){ ev->temporaries, t };
    ev->temporaries = o;
    return DV_OK;
}

/* Records each new tensor of a list as dv__eval_keep() does, and moves the list's array to the arena. DV_ENOMEM: the tensors that
 * could not be recorded are freed. */
static int keep_list(dv__eval *ev, dv_value *list)
{
    const size_t n = list->as.tensors.size;
    const dv_tensor **copy = DV__ARENA_ARRAY(&ev->c->arena, const dv_tensor *, n + 1);
    int status = copy ? DV_OK : DV_ENOMEM;
    for (size_t k = 0; k < n; k++) {
        dv_tensor *t = (dv_tensor *)(uintptr_t)list->as.tensors.data[k];
        if (t && status)
            dv__free_tensor(ev->c, t);
        else if (t)
            status = dv__eval_keep(ev, t);
        if (!status)
            copy[k] = t;
    }
    dv__free((void *)(uintptr_t)list->as.tensors.data);
    list->as.tensors.data = copy;
    return status;
}

/* Records the results that a successful call has made; those that cannot be recorded are freed. Arguments and `into` are not made
 * by the call and are skipped. */
static int keep_results(dv__eval *ev, const dv_operator *op, const dv_value *args, const dv_tensor *into, const dv__memo *m)
{
    int status = DV_OK;
    for (size_t i = 0; i < m->n; i++) {
        const dv__slot *slot = &op->plan->slots[op->plan->nargs + i];
        const dv_tensor *t = m->results[i].type == DV_VALUE_TENSOR ? m->results[i].as.tensor : NULL;
        int kept = DV_OK;
        if (t && t != into && !is_argument(args, op->schema->nargs, t))
            kept = dv__eval_keep(ev, (dv_tensor *)(uintptr_t)t);
        else if (m->results[i].type == DV_VALUE_TENSORS && !(slot->alias >= 0 && slot->flags & DV__SLOT_WRITES))
            kept = keep_list(ev, &m->results[i]);
        status = status ? status : kept;
    }
    return status;
}

/* into: the tensor that gets its only result; NULL: a temporary. */
static int run_call(dv__eval *ev, const dv_operator *op, const dv__expr *e, const dv_tensor *into, dv__memo *m)
{
    dv__arena *arena = &ev->c->arena;
    dv_value *args = DV__ARENA_ARRAY(arena, dv_value, op->schema->nargs + 1);
    m->n = op->schema->nreturns;
    m->results = DV__ARENA_ARRAY(arena, dv_value, m->n + 1);
    if (!args || !m->results)
        return DV_ENOMEM;
    int status = call_args(ev, op, e, args);
    if (status)
        return status;
    if (into)
        m->results[0] = dv_from_tensor(into);
    status = ev->c->enter((dv_operator *)(uintptr_t)op, args, op->schema->nargs, m->results, m->n, ev->c->host,
        (ev->c->inner & DV__INNER_KERNEL) | DV__INNER_TEMPORARY);
    if (!status)
        status = keep_results(ev, op, args, into, m);
    return status ? dv__fail_in(status, "%s: %s", ev->c->op->name, ev->what) : DV_OK;
}

int dv__evaluate_node(dv__eval *ev, const dv__expr *e, const dv_tensor *into, const dv__memo **out)
{
    for (*out = ev->memos; *out; *out = (*out)->next)
        if (dv__expr_equal((*out)->e, e))
            return DV_OK;
    dv_operator *op;
    int status = find(ev, e->name, &op);
    if (status)
        return dv__fail_in(status, "%s: %s", ev->c->op->name, ev->what);
    dv__memo *m = DV__ARENA_NEW(&ev->c->arena, dv__memo);
    if (into && (op->schema->nreturns != 1 || op->schema->returns[0].alias))
        into = NULL; /* what it gives is not made by it */
    status = m ? run_call(ev, op, e, into, m) : DV_ENOMEM;
    dv_operator_unref(op);
    if (status)
        return status;
    m->e = e;
    m->next = ev->memos;
    *out = ev->memos = m;
    return DV_OK;
}

static int builtin(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    bool yes;
    int status;
    switch (e->ref) {
    case DV__FORMULA_PRESENT: *out = dv_from_bool(ev->c->args[e->args[0]->ref].type != DV_VALUE_NONE); return DV_OK;
    case DV__FORMULA_IF:
        if ((status = dv__evaluate(ev, e->args[0], out)))
            return status;
        if (!truth(out, &yes))
            return dv__fail_expr(ev, DV_ETYPE, e, "expected a condition");
        return dv__evaluate(ev, e->args[yes ? 1 : 2], out);
    case DV__FORMULA_LEN:
        if ((status = dv__evaluate(ev, e->args[0], out)))
            return status;
        if (out->type < DV_VALUE_TENSORS)
            return dv__fail_expr(ev, DV_ETYPE, e, "expected a list");
        *out = dv_from_int((int64_t)out->as.ints.size);
        return DV_OK;
    case DV__FORMULA_NEEDS: *out = dv_from_bool(!ev->wanted || ev->wanted[e->args[0]->ref]); return DV_OK;
    default: return dv__fail_expr(ev, DV_ENOTSUP, e, "not known here");
    }
}

static int indexed(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    dv_value i, of;
    int status = dv__evaluate(ev, e->args[1], &i);
    if (status)
        return status;
    if (i.type != DV_VALUE_INT)
        return dv__fail_expr(ev, DV_ETYPE, e, "expected an int as index");
    if (e->args[0]->kind == DV__EXPR_CALL && e->args[0]->ref == DV__FORMULA_OPERATOR) {
        const dv__memo *m;
        if ((status = dv__evaluate_node(ev, e->args[0], NULL, &m)))
            return status;
        if (m->n != 1 || m->results[0].type < DV_VALUE_TENSORS) {
            if (i.as.i < 0 || (size_t)i.as.i >= m->n)
                return dv__fail_expr(ev, DV_EINVAL, e, "the index is out of range");
            *out = m->results[i.as.i];
            return DV_OK;
        }
    }
    status = dv__evaluate(ev, e->args[0], &of);
    return status ? status : element(ev, e, &of, i.as.i, out);
}

int dv__evaluate_call(dv__eval *ev, const dv__expr *e, const dv_tensor *into, dv_value *out)
{
    const dv__memo *m;
    const int status = dv__evaluate_node(ev, e, into, &m);
    if (status)
        return status;
    if (m->n != 1)
        return dv__fail_expr(ev, DV_ETYPE, e, "expected one result");
    *out = m->results[0];
    return DV_OK;
}

int dv__evaluate(dv__eval *ev, const dv__expr *e, dv_value *out)
{
    dv_value a, b;
    int status;
    switch (e->kind) {
    case DV__EXPR_INT: *out = dv_from_int(e->i); return DV_OK;
    case DV__EXPR_FLOAT: *out = dv_from_float(e->f); return DV_OK;
    case DV__EXPR_BOOL: *out = dv_from_bool(e->i != 0); return DV_OK;
    case DV__EXPR_STRING: *out = dv_from_string(e->name); return DV_OK;
    case DV__EXPR_NONE: *out = dv_none(); return DV_OK;
    case DV__EXPR_NAME: return name(ev, e, out);
    case DV__EXPR_LIST: return list(ev, e, out);
    case DV__EXPR_ATTR: return attribute(ev, e, out);
    case DV__EXPR_INDEX: return indexed(ev, e, out);
    case DV__EXPR_CALL: return e->ref == DV__FORMULA_OPERATOR ? dv__evaluate_call(ev, e, NULL, out) : builtin(ev, e, out);
    case DV__EXPR_AND:
    case DV__EXPR_OR:
    case DV__EXPR_NOT: return logic(ev, e, out);
    case DV__EXPR_NEG:
        if ((status = dv__evaluate(ev, e->args[0], &a)))
            return status;
        if (a.type == DV_VALUE_FLOAT)
            *out = dv_from_float(-a.as.f);
        else if (is_real(&a) && integer(&a) != INT64_MIN)
            *out = dv_from_int(-integer(&a));
        else
            return dv__fail_expr(ev, DV_ETYPE, e, "expected a number");
        return DV_OK;
    case DV__EXPR_IN:
        if ((status = dv__evaluate(ev, e->args[0], &a)))
            return status;
        *out = dv_from_bool(false);
        for (uint32_t i = 1; i < e->n && !out->as.b; i++) {
            if ((status = dv__evaluate(ev, e->args[i], &b)))
                return status;
            out->as.b = equal(&a, &b);
        }
        return DV_OK;
    default: break;
    }
    if (e->n != 2)
        return dv__fail_expr(ev, DV_ENOTSUP, e, "not known here");
    if ((status = dv__evaluate(ev, e->args[0], &a)) || (status = dv__evaluate(ev, e->args[1], &b)))
        return status;
    return e->kind >= DV__EXPR_EQ && e->kind <= DV__EXPR_GE ? compare(ev, e, &a, &b, out) : arithmetic(ev, e, &a, &b, out);
}

void dv__eval_deinit(dv__eval *ev)
{
    for (const dv__owned *o = ev->temporaries; o; o = o->next)
        dv__free_tensor(ev->c, o->t);
}
