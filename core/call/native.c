/* Formulas, run by calling the operators they name. A native form: what runs when the policy turns an operator off, when no
 * kernel fits, and for operators that have only a native form. Gradients and tangents, for those who ask.
 *
 * Each node that is a call is evaluated once. What the calls make are temporaries of the host; they live until the form is done.
 * The outermost calls write straight into the results where they can; arguments that are written get their new value last, when
 * nothing can fail but the copy. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "call/call.h"

enum { MAX_DEPTH = 48 }; /* of native forms that call operators that run their native forms */
enum { WIDE = -2 };      /* dv_host.row: in f64 */
static _Thread_local int depth;

typedef struct memo {
    struct memo *next;
    const dv__expr *e;
    dv_value *results;
    size_t n;
} memo;
typedef struct owned {
    struct owned *next;
    dv_tensor *t;
} owned;
typedef struct eval {
    dv__call *c;
    const char *what;      /* "native form": for messages */
    const dv_value *given; /* of gradients and tangents: for each slot what flows; NULL: a native form */
    const bool *wanted;    /* of gradients: for each argument; NULL: all */
    memo *memos;
    owned *temporaries; /* newest first: a view before its base */
    dv_value *wide;     /* the arguments, real tensors as f64; NULL: as they are */
} eval;

static int evaluate(eval *ev, const dv__expr *e, dv_value *out);

static int fail_expr(const eval *ev, int status, const dv__expr *e, const char *what)
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

static int integer_arithmetic(const eval *ev, const dv__expr *e, int64_t a, int64_t b, dv_value *out)
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
    return fits ? DV_OK : fail_expr(ev, DV_EINVAL, e, "overflow or division by zero");
}

static int arithmetic(const eval *ev, const dv__expr *e, const dv_value *a, const dv_value *b, dv_value *out)
{
    if (!is_real(a) || !is_real(b))
        return fail_expr(ev, DV_ETYPE, e, "expected numbers");
    const bool floats = a->type == DV_VALUE_FLOAT || b->type == DV_VALUE_FLOAT || e->kind == DV__EXPR_DIV;
    if (!floats)
        return integer_arithmetic(ev, e, integer(a), integer(b), out);
    const double x = real(a), y = real(b);
    if (y == 0 && (e->kind == DV__EXPR_DIV || e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD))
        return fail_expr(ev, DV_EINVAL, e, "division by zero");
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

static int compare(const eval *ev, const dv__expr *e, const dv_value *a, const dv_value *b, dv_value *out)
{
    bool holds;
    if (e->kind == DV__EXPR_EQ || e->kind == DV__EXPR_NE) {
        holds = equal(a, b) == (e->kind == DV__EXPR_EQ);
    } else if (!is_real(a) || !is_real(b)) {
        return fail_expr(ev, DV_ETYPE, e, "expected numbers");
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

static int logic(eval *ev, const dv__expr *e, dv_value *out)
{
    bool a, b;
    int status = evaluate(ev, e->args[0], out);
    if (status)
        return status;
    if (!truth(out, &a))
        return fail_expr(ev, DV_ETYPE, e, "expected a condition");
    if (e->kind == DV__EXPR_NOT || a == (e->kind == DV__EXPR_OR)) {
        *out = dv_from_bool(e->kind == DV__EXPR_NOT ? !a : a);
        return DV_OK;
    }
    if ((status = evaluate(ev, e->args[1], out)))
        return status;
    if (!truth(out, &b))
        return fail_expr(ev, DV_ETYPE, e, "expected a condition");
    *out = dv_from_bool(b);
    return DV_OK;
}

/* ---- Names, lists, attributes ---- */

static int name(const eval *ev, const dv__expr *e, dv_value *out)
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
        return fail_expr(ev, DV_ENOTSUP, e, "a native form knows arguments only");
    *out = e->role == DV__ROLE_RESULT ? ev->c->results[(size_t)e->ref - ev->c->plan->nargs] : ev->given[e->ref];
    return DV_OK;
}

static int list(eval *ev, const dv__expr *e, dv_value *out)
{
    dv__arena *arena = &ev->c->arena;
    dv_value *elements = DV__ARENA_ARRAY(arena, dv_value, e->n + 1);
    if (!elements)
        return DV_ENOMEM;
    bool tensors = true, ints = true, bools = true, strings = true, numbers = true;
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = evaluate(ev, e->args[i], &elements[i]);
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
        return fail_expr(ev, DV_ETYPE, e, "elements of different types");
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

static int attribute(eval *ev, const dv__expr *e, dv_value *out)
{
    dv_value v;
    const int status = evaluate(ev, e->args[0], &v);
    if (status)
        return status;
    if (v.type != DV_VALUE_TENSOR)
        return fail_expr(ev, DV_ETYPE, e, "expected a tensor");
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
        return fail_expr(ev, DV_ENOTSUP, e, "no such attribute");
    return DV_OK;
}

static int element(const eval *ev, const dv__expr *e, const dv_value *of, int64_t i, dv_value *out)
{
    const int64_t n = of->type >= DV_VALUE_TENSORS ? (int64_t)of->as.ints.size : 0;
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return fail_expr(ev, DV_EINVAL, e, "the index is out of range");
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
    default: return fail_expr(ev, DV_ETYPE, e, "cannot be indexed");
    }
}

/* ---- Calls ---- */

static int find(const eval *ev, const char *written, dv_operator **out)
{
    char full[512];
    *out = NULL;
    if (strstr(written, "::"))
        return dv__find_from(ev->c->op, written, out);
    snprintf(full, sizeof full, "%s::%s", ev->c->op->schema->ns, written);
    return dv__find_from(ev->c->op, full, out) ? dv__find_base(written, out) : DV_OK;
}

static int call_args(eval *ev, const dv_operator *op, const dv__expr *e, dv_value *args)
{
    const size_t n = op->schema->nargs;
    for (size_t i = 0; i < n; i++)
        args[i] = dv_default();
    for (uint32_t i = 0; i < e->n; i++) {
        const dv__expr *a = e->args[i];
        const bool keyword = a->kind == DV__EXPR_KEYWORD;
        const int at = keyword ? dv__schema_arg(op->schema, a->name) : (int)i;
        if (at < 0 || (size_t)at >= n)
            return fail_expr(ev, DV_EINVAL, e, keyword ? "no argument of that name" : "too many arguments");
        const int status = evaluate(ev, keyword ? a->args[0] : a, &args[at]);
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

/* Remember what a call made; on failure it is let go at once. */
static int keep(eval *ev, dv_tensor *t)
{
    owned *o = DV__ARENA_NEW(&ev->c->arena, owned);
    if (!o) {
        dv__free_tensor(ev->c, t);
        return DV_ENOMEM;
    }
    *o = (owned){ ev->temporaries, t };
    ev->temporaries = o;
    return DV_OK;
}

/* into: where its only result is to go; NULL: a temporary. */
static int run_call(eval *ev, const dv_operator *op, const dv__expr *e, const dv_tensor *into, memo *m)
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
    status = dv__call_values((dv_operator *)(uintptr_t)op, args, op->schema->nargs, m->results, m->n, ev->c->host,
        (ev->c->inner & DV__INNER_KERNEL) | DV__INNER_TEMPORARY);
    for (size_t i = 0; i < m->n && !status; i++) {
        const dv_tensor *t = m->results[i].type == DV_VALUE_TENSOR ? m->results[i].as.tensor : NULL;
        if (t && t != into && !is_argument(args, op->schema->nargs, t))
            status = keep(ev, (dv_tensor *)(uintptr_t)t);
    }
    return status ? dv__fail_in(status, "%s: %s", ev->c->op->name, ev->what) : DV_OK;
}

static int call(eval *ev, const dv__expr *e, const dv_tensor *into, const memo **out)
{
    for (*out = ev->memos; *out; *out = (*out)->next)
        if ((*out)->e == e)
            return DV_OK;
    dv_operator *op;
    int status = find(ev, e->name, &op);
    if (status)
        return dv__fail_in(status, "%s: %s", ev->c->op->name, ev->what);
    memo *m = DV__ARENA_NEW(&ev->c->arena, memo);
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

static int builtin(eval *ev, const dv__expr *e, dv_value *out)
{
    bool yes;
    int status;
    switch (e->ref) {
    case DV__FORMULA_PRESENT: *out = dv_from_bool(ev->c->args[e->args[0]->ref].type != DV_VALUE_NONE); return DV_OK;
    case DV__FORMULA_IF:
        if ((status = evaluate(ev, e->args[0], out)))
            return status;
        if (!truth(out, &yes))
            return fail_expr(ev, DV_ETYPE, e, "expected a condition");
        return evaluate(ev, e->args[yes ? 1 : 2], out);
    case DV__FORMULA_LEN:
        if ((status = evaluate(ev, e->args[0], out)))
            return status;
        if (out->type < DV_VALUE_TENSORS)
            return fail_expr(ev, DV_ETYPE, e, "expected a list");
        *out = dv_from_int((int64_t)out->as.ints.size);
        return DV_OK;
    case DV__FORMULA_NEEDS: *out = dv_from_bool(!ev->wanted || ev->wanted[e->args[0]->ref]); return DV_OK;
    default: return fail_expr(ev, DV_ENOTSUP, e, "not known here");
    }
}

static int indexed(eval *ev, const dv__expr *e, dv_value *out)
{
    dv_value i, of;
    int status = evaluate(ev, e->args[1], &i);
    if (status)
        return status;
    if (i.type != DV_VALUE_INT)
        return fail_expr(ev, DV_ETYPE, e, "expected an int as index");
    if (e->args[0]->kind == DV__EXPR_CALL && e->args[0]->ref == DV__FORMULA_OPERATOR) {
        const memo *m;
        if ((status = call(ev, e->args[0], NULL, &m)))
            return status;
        if (m->n != 1 || m->results[0].type < DV_VALUE_TENSORS) {
            if (i.as.i < 0 || (size_t)i.as.i >= m->n)
                return fail_expr(ev, DV_EINVAL, e, "the index is out of range");
            *out = m->results[i.as.i];
            return DV_OK;
        }
    }
    status = evaluate(ev, e->args[0], &of);
    return status ? status : element(ev, e, &of, i.as.i, out);
}

static int evaluate_call(eval *ev, const dv__expr *e, const dv_tensor *into, dv_value *out)
{
    const memo *m;
    const int status = call(ev, e, into, &m);
    if (status)
        return status;
    if (m->n != 1)
        return fail_expr(ev, DV_ETYPE, e, "expected one result");
    *out = m->results[0];
    return DV_OK;
}

static int evaluate(eval *ev, const dv__expr *e, dv_value *out)
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
    case DV__EXPR_CALL: return e->ref == DV__FORMULA_OPERATOR ? evaluate_call(ev, e, NULL, out) : builtin(ev, e, out);
    case DV__EXPR_AND:
    case DV__EXPR_OR:
    case DV__EXPR_NOT: return logic(ev, e, out);
    case DV__EXPR_NEG:
        if ((status = evaluate(ev, e->args[0], &a)))
            return status;
        if (a.type == DV_VALUE_FLOAT)
            *out = dv_from_float(-a.as.f);
        else if (is_real(&a) && integer(&a) != INT64_MIN)
            *out = dv_from_int(-integer(&a));
        else
            return fail_expr(ev, DV_ETYPE, e, "expected a number");
        return DV_OK;
    case DV__EXPR_IN:
        if ((status = evaluate(ev, e->args[0], &a)))
            return status;
        *out = dv_from_bool(false);
        for (uint32_t i = 1; i < e->n && !out->as.b; i++) {
            if ((status = evaluate(ev, e->args[i], &b)))
                return status;
            out->as.b = equal(&a, &b);
        }
        return DV_OK;
    default: break;
    }
    if (e->n != 2)
        return fail_expr(ev, DV_ENOTSUP, e, "not known here");
    if ((status = evaluate(ev, e->args[0], &a)) || (status = evaluate(ev, e->args[1], &b)))
        return status;
    return e->kind >= DV__EXPR_EQ && e->kind <= DV__EXPR_GE ? compare(ev, e, &a, &b, out) : arithmetic(ev, e, &a, &b, out);
}

/* ---- In f64, for tests of kernels ---- */

static bool is_real_tensor(const dv_tensor *t)
{
    const uint32_t key = t ? dv_dtype_key(t->dtype) : 0;
    return key == DV_DTYPE_f64 || key == DV_DTYPE_f32 || key == DV_DTYPE_f16 || key == DV_DTYPE_bf16;
}

/* base's to.dtype; into NULL: a temporary. */
static int convert(eval *ev, const dv_tensor *from, dv_dtype dtype, const dv_tensor *into, const dv_tensor **out)
{
    dv_operator *op;
    int status = dv__find_base("to.dtype", &op);
    if (status)
        return status;
    const dv_value args[] = { dv_from_tensor(from), dv_from_dtype(dtype), dv_default(), dv_from_bool(true) };
    dv_value result = into ? dv_from_tensor(into) : dv_default();
    status = dv__call_values(
        op, args, sizeof args / sizeof *args, &result, 1, ev->c->host, (ev->c->inner & DV__INNER_KERNEL) | DV__INNER_TEMPORARY);
    dv_operator_unref(op);
    if (!status && !into && !(status = keep(ev, (dv_tensor *)(uintptr_t)result.as.tensor)))
        *out = result.as.tensor;
    return status;
}

static int widen_tensor(eval *ev, const dv_tensor *t, const dv_tensor **out)
{
    const dv_dtype f64 = { .code = 2, .bits = 64, .lanes = 1 };
    *out = t;
    return is_real_tensor(t) && t->dtype.bits < 64 ? convert(ev, t, f64, NULL, out) : DV_OK;
}

static int widen_arguments(eval *ev)
{
    const size_t n = ev->c->plan->nargs;
    dv_value *wide = DV__ARENA_ARRAY(&ev->c->arena, dv_value, n + 1);
    int status = wide ? DV_OK : DV_ENOMEM;
    for (size_t i = 0; i < n && !status; i++) {
        wide[i] = ev->c->args[i];
        if (wide[i].type == DV_VALUE_TENSOR) {
            status = widen_tensor(ev, wide[i].as.tensor, &wide[i].as.tensor);
        } else if (wide[i].type == DV_VALUE_TENSORS) {
            const dv_tensor **list = DV__ARENA_ARRAY(&ev->c->arena, const dv_tensor *, wide[i].as.tensors.size + 1);
            status = list ? DV_OK : DV_ENOMEM;
            for (size_t k = 0; k < wide[i].as.tensors.size && !status; k++)
                status = widen_tensor(ev, wide[i].as.tensors.data[k], &list[k]);
            wide[i].as.tensors.data = list;
        }
    }
    ev->wide = wide;
    return status;
}

/* ---- Results ---- */

static int wrong_result(const eval *ev, size_t r, const dv_tensor *found, const dv_tensor *expected)
{
    dv__text have = { 0 }, want = { 0 };
    const struct {
        const dv_tensor *t;
        dv__text *to;
    } texts[] = { { found, &have }, { expected, &want } };
    for (int k = 0; k < 2; k++) {
        dv__text_add(texts[k].to, "%s[", dv_dtype_name(texts[k].t->dtype));
        for (int32_t i = 0; i < texts[k].t->ndim; i++)
            dv__text_add(texts[k].to, i ? " %lld" : "%lld", (long long)texts[k].t->shape[i]);
        dv__text_puts(texts[k].to, "]");
    }
    const int status = dv__fail_argument(ev->c, DV_ESHAPE, ev->c->plan->nargs + r, "the native form gives %s, but it must be %s",
        have.data ? have.data : "?", want.data ? want.data : "?");
    dv__text_deinit(&have);
    dv__text_deinit(&want);
    return status;
}

static bool same_sizes(const dv_tensor *a, const dv_tensor *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/* Evaluated in f64: it has to be rounded. */
static bool too_wide(const eval *ev, const dv_tensor *from, const dv_tensor *to)
{
    return ev->wide && from->dtype.bits > to->dtype.bits && is_real_tensor(from) && is_real_tensor(to);
}

static bool fits(const eval *ev, const dv_tensor *from, const dv_tensor *to)
{
    return same_sizes(from, to) && (dv_dtype_key(from->dtype) == dv_dtype_key(to->dtype) || too_wide(ev, from, to));
}

static int copy(eval *ev, const dv_tensor *to, const dv_tensor *from)
{
    return too_wide(ev, from, to) ? convert(ev, from, to->dtype, to, NULL) : dv__host_copy(ev->c->host, to, from);
}

static int copy_into(eval *ev, size_t r, const dv_tensor *to, const dv_tensor *from)
{
    return fits(ev, from, to) ? copy(ev, to, from) : wrong_result(ev, r, from, to);
}

/* A result that is not there yet: of the shape that the form gave. */
static int make_like(eval *ev, size_t r, const dv_tensor *from)
{
    dv__call *c = ev->c;
    dv__result *out = &c->outs[r];
    int64_t strides[DV_MAX_NDIM];
    int status = dv__shape_check(from->dtype, from->ndim, from->shape, strides);
    if (!status)
        status = dv__new_tensor(c, (int)r, from->dtype, from->device, from->ndim, from->shape, strides, &out->made);
    if (status)
        return status;
    out->origin = DV__RESULT_MADE;
    out->tensor = out->made;
    return copy_into(ev, r, out->tensor, from);
}

static int tensor_result(eval *ev, size_t r, const dv__expr *e)
{
    dv__call *c = ev->c;
    dv__result *out = &c->outs[r];
    const bool there = out->origin == DV__RESULT_GIVEN || out->origin == DV__RESULT_MADE;
    dv_value v;
    int status;
    if (out->origin == DV__RESULT_ABSENT || out->origin == DV__RESULT_ALIAS || out->view)
        return DV_OK;
    if (there && !ev->wide && e->kind == DV__EXPR_CALL && e->ref == DV__FORMULA_OPERATOR)
        status = evaluate_call(ev, e, out->tensor, &v);
    else
        status = evaluate(ev, e, &v);
    if (status)
        return status;
    if (v.type != DV_VALUE_TENSOR)
        return fail_expr(ev, DV_ETYPE, e, "expected a tensor");
    if (there)
        return v.as.tensor == out->tensor ? DV_OK : copy_into(ev, r, out->tensor, v.as.tensor);
    if (out->given) /* of a size that depended on data */
        return copy_into(ev, r, out->given, v.as.tensor);
    return make_like(ev, r, v.as.tensor);
}

static int value_result(eval *ev, size_t r, const dv__expr *e)
{
    dv_value v;
    dv__result *out = &ev->c->outs[r];
    const int status = evaluate(ev, e, &v);
    if (status)
        return status;
    if (out->value.type == DV_VALUE_FLOAT && v.type == DV_VALUE_INT)
        v = dv_from_float((double)v.as.i);
    if (v.type != out->value.type)
        return fail_expr(ev, DV_ETYPE, e, "gives a value of another type than the result has");
    out->value = v;
    return DV_OK;
}

/* What is to be written into arguments, evaluated before any of it is written. */
static int write_arguments(eval *ev)
{
    dv__call *c = ev->c;
    const dv__native *n = c->op->native;
    if (!n->writes)
        return DV_OK;
    dv_value *news = DV__ARENA_ARRAY(&c->arena, dv_value, c->plan->nargs + 1);
    if (!news)
        return DV_ENOMEM;
    for (size_t i = 0; i < c->plan->nargs; i++) {
        if (!n->writes[i] || c->args[i].type != DV_VALUE_TENSOR)
            continue;
        const int status = evaluate(ev, n->writes[i], &news[i]);
        if (status)
            return status;
        if (news[i].type != DV_VALUE_TENSOR || !fits(ev, news[i].as.tensor, c->args[i].as.tensor))
            return dv__fail_argument(c, DV_ESHAPE, i, "the native form gives it a value of another shape or dtype");
    }
    for (size_t i = 0; i < c->plan->nargs; i++)
        if (news[i].type == DV_VALUE_TENSOR && news[i].as.tensor != c->args[i].as.tensor) {
            const int status = copy(ev, c->args[i].as.tensor, news[i].as.tensor);
            if (status)
                return status;
        }
    return DV_OK;
}

/* Without a contract a result is made when it is known. */
static int expect_results(dv__call *c)
{
    if (c->op->contract || c->op->shape)
        return dv__make_results(c);
    dv__begin_results(c);
    for (size_t r = 0; r < c->nouts; r++) {
        const dv__slot *slot = &c->plan->slots[c->plan->nargs + r];
        dv__result *out = &c->outs[r];
        const dv_value *given = &c->results[r];
        memset(&out->value, 0, sizeof out->value);
        memset(&out->header, 0, sizeof out->header);
        out->value.type = slot->value;
        if (slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES) && c->args[slot->alias].type == DV_VALUE_TENSOR) {
            out->origin = DV__RESULT_ALIAS;
            out->tensor = (dv_tensor *)(uintptr_t)c->args[slot->alias].as.tensor;
        } else if (slot->value == DV_VALUE_TENSOR) {
            out->origin = given->type == DV_VALUE_TENSOR ? DV__RESULT_GIVEN : DV__RESULT_PENDING;
            out->tensor = given->type == DV_VALUE_TENSOR ? (dv_tensor *)(uintptr_t)given->as.tensor : NULL;
        } else if (slot->value == DV_VALUE_INT || slot->value == DV_VALUE_FLOAT || slot->value == DV_VALUE_BOOL) {
            out->origin = DV__RESULT_SCALAR;
        } else {
            return dv__fail_argument(c, DV_ENOTSUP, c->plan->nargs + r, "a result of this type cannot be made by a native form");
        }
    }
    return DV_OK;
}

static int run(eval *ev)
{
    dv__call *c = ev->c;
    const dv__native *n = c->op->native;
    int status = dv__gather_args(c);
    if (status || (status = expect_results(c)))
        return status;
    if ((status = dv__gather_results(c)) || (status = dv__check_overlaps(c)) ||
        (dv__asked_row(c) == WIDE && (status = widen_arguments(ev))))
        return status;
    for (size_t r = 0; r < c->plan->nreturns && r < n->n; r++)
        if ((status = c->outs[r].origin == DV__RESULT_SCALAR ? value_result(ev, r, n->results[r])
                                                             : tensor_result(ev, r, n->results[r])))
            return status;
    return write_arguments(ev);
}

int dv__run_native(dv__call *c)
{
    eval ev = { .c = c, .what = "native form" };
    if (depth >= MAX_DEPTH)
        return dv_fail(
            DV_ELIMIT, "%s: native forms call each other more than %d deep: is there a circle?", c->op->name, MAX_DEPTH);
    depth++;
    const int status = run(&ev);
    depth--;
    for (const owned *o = ev.temporaries; o; o = o->next)
        dv__free_tensor(c, o->t);
    return status;
}

/* ---- Gradients and tangents ---- */

/* One value for each of n targets: a call with as many results, a list of as many, or the only one. */
static int several(eval *ev, const dv__expr *e, size_t n, dv_value *out)
{
    int status = DV_OK;
    const memo *m = NULL;
    if (n == 1)
        return evaluate(ev, e, out);
    const bool is_call = e->kind == DV__EXPR_CALL && e->ref == DV__FORMULA_OPERATOR;
    if (is_call && (status = call(ev, e, NULL, &m)))
        return status;
    if ((m ? m->n : e->n) != n || (!is_call && e->kind != DV__EXPR_LIST))
        return fail_expr(ev, DV_ETYPE, e, "expected a value for each target");
    for (size_t i = 0; i < n && !status; i++)
        if (m)
            out[i] = m->results[i];
        else
            status = evaluate(ev, e->args[i], &out[i]);
    return status;
}

/* A tensor for the caller: what a call made is handed over, anything else (or a second time) is copied. */
static int hand_over(eval *ev, const dv_tensor *from, const dv_tensor **out)
{
    dv_tensor *made;
    int64_t strides[DV_MAX_NDIM];
    for (owned *o = ev->temporaries; o; o = o->next)
        if (o->t == from) {
            o->t = NULL;
            *out = from;
            return DV_OK;
        }
    int status = dv__shape_check(from->dtype, from->ndim, from->shape, strides);
    if (!status)
        status = dv__new_tensor(ev->c, -1, from->dtype, from->device, from->ndim, from->shape, strides, &made);
    if (status)
        return status;
    *out = made;
    if (!(status = dv__host_copy(ev->c->host, made, from)))
        return DV_OK;
    dv__free_tensor(ev->c, made);
    *out = NULL;
    return status;
}

/* from: in the arena. Its tensors become the caller's one by one; *to always holds those that did. */
static int publish(eval *ev, const dv__expr *e, const dv_value *from, dv_value *to)
{
    int status = DV_OK;
    if (from->type == DV_VALUE_NONE)
        return DV_OK;
    if (from->type == DV_VALUE_TENSOR) {
        if (!(status = hand_over(ev, from->as.tensor, &to->as.tensor)))
            to->type = DV_VALUE_TENSOR;
        return status;
    }
    if (from->type != DV_VALUE_TENSORS &&
        !(from->type == DV_VALUE_INTS && !from->as.ints.size)) /* an empty list is of any type */
        return fail_expr(ev, DV_ETYPE, e, "expected a tensor, a list of tensors or None");
    const size_t n = from->as.tensors.size;
    const dv_tensor **all = dv__calloc(n + 1, sizeof *all);
    if (!all)
        return DV_ENOMEM;
    *to = dv_from_tensors(all, n);
    for (size_t i = 0; i < n && !status; i++)
        if (from->as.tensors.data[i])
            status = hand_over(ev, from->as.tensors.data[i], &all[i]);
    return status;
}

static void take_back(const dv__call *c, dv_value *v)
{
    for (size_t i = 0; v->type == DV_VALUE_TENSORS && i < v->as.tensors.size; i++)
        dv__free_tensor(c, (dv_tensor *)(uintptr_t)v->as.tensors.data[i]);
    if (v->type == DV_VALUE_TENSORS)
        dv_free((void *)(uintptr_t)v->as.tensors.data);
    else if (v->type == DV_VALUE_TENSOR)
        dv__free_tensor(c, (dv_tensor *)(uintptr_t)v->as.tensor);
    *v = dv_none();
}

static bool is_wanted(const eval *ev, const dv__clause *k)
{
    bool any = !ev->wanted;
    for (size_t t = 0; t < k->ntargets && !any; t++)
        any = ev->wanted[k->targets[t]];
    return any && k->value;
}

static int run_clauses(eval *ev, const dv__formula *f, dv_value *out)
{
    int status = DV_OK;
    for (size_t i = 0; i < f->n && !status; i++) {
        const dv__clause *k = &f->clauses[i];
        dv_value *values = DV__ARENA_ARRAY(&ev->c->arena, dv_value, k->ntargets + 1);
        if (!values)
            return DV_ENOMEM;
        if (!is_wanted(ev, k))
            continue;
        status = several(ev, k->value, k->ntargets, values);
        for (size_t t = 0; t < k->ntargets && !status; t++)
            if (!ev->wanted || ev->wanted[k->targets[t]])
                status = publish(ev, k->value, &values[t], &out[k->targets[t]]);
    }
    return status;
}

/* Tensors of the slots from `first` on that are not arguments of the call, so that nothing has looked at them. */
static int check_slots(dv__call *c, size_t first, const dv_value *slots)
{
    int status = DV_OK;
    for (size_t i = first; i < c->plan->nargs + c->plan->nreturns && !status; i++)
        if (slots[i].type == DV_VALUE_TENSOR)
            status = dv__check_tensor(c, i, slots[i].as.tensor);
        else if (slots[i].type == DV_VALUE_TENSORS)
            for (size_t k = 0; k < slots[i].as.tensors.size && !status; k++)
                status = slots[i].as.tensors.data[k] ? dv__check_tensor(c, i, slots[i].as.tensors.data[k]) : DV_OK;
    return status;
}

static int differentiate(dv_operator *op, const char *what, const dv_value *values, const dv_value *given, const bool *wanted,
    dv_value *out, const dv_host *host)
{
    dv__call c;
    uint32_t keys;
    if (!op || !values || !given || !out)
        return dv_fail(DV_EINVAL, "%s: expected an operator, values and room for the %ss, found NULL", what, what);
    const dv__formula *f = *what == 'g' ? op->gradient : op->tangent;
    const size_t nargs = op->plan->nargs, n = nargs + op->plan->nreturns;
    for (size_t i = 0; i < n; i++)
        out[i] = dv_none();
    if (!f)
        return dv_fail(DV_ENOTSUP, "%s: it declares no %s", op->name, what);
    int status = dv__call_init(&c, op, (dv_value *)(uintptr_t)(values + nargs), op->plan->nreturns, host, 0);
    if (status)
        return status;
    eval ev = { .c = &c, .what = what, .given = given, .wanted = wanted };
    if (!(status = dv__bind_values(&c, values, nargs, &keys)) && !(status = check_slots(&c, nargs, values)) &&
        !(status = check_slots(&c, 0, given)))
        status = run_clauses(&ev, f, out);
    for (size_t i = 0; i < n && status; i++)
        take_back(&c, &out[i]);
    for (const owned *o = ev.temporaries; o; o = o->next)
        dv__free_tensor(&c, o->t);
    return dv__call_end(&c, status);
}

int dv_gradient(
    dv_operator *op, const dv_value *values, const dv_value *grads, const bool *wanted, dv_value *out, const dv_host *host)
{
    return differentiate(op, "gradient", values, grads, wanted, out, host);
}

int dv_tangent(dv_operator *op, const dv_value *values, const dv_value *tangents, dv_value *out, const dv_host *host)
{
    return differentiate(op, "tangent", values, tangents, NULL, out, host);
}
