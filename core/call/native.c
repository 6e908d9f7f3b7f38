/* Native forms: what runs when the policy turns an operator off, when no kernel fits, and for operators that have only a native
 * form. The outermost calls write directly into the results where possible. Written arguments get their new value last, when only
 * the copy can still fail. */
#include "call/native.h"

#include "base/memory.h"
#include "call/evaluate.h"
#include "call/fail.h"
#include "call/host.h"
#include "call/memory.h"
#include "call/results.h"

enum { MAX_DEPTH = 48 }; /* nesting of native forms whose calls run native forms themselves */
enum { WIDE = -2 };      /* dv_test_hooks.row: in f64 */
static _Thread_local int depth;

/* ---- In f64, for tests of kernels ---- */

static bool is_real_tensor(const dv_tensor *t)
{
    const uint32_t key = t ? dv_dtype_key(t->dtype) : 0;
    return key == DV_DTYPE_f64 || key == DV_DTYPE_f32 || key == DV_DTYPE_f16 || key == DV_DTYPE_bf16;
}

/* Call an operator of the base set; into NULL: *out is a temporary. */
static int call_base(
    dv__eval *ev, const char *name, const dv_value *args, size_t nargs, const dv_tensor *into, const dv_tensor **out)
{
    dv_operator *op;
    int status = dv__find_base(name, &op);
    if (status)
        return status;
    dv_value result = into ? dv_from_tensor(into) : dv_default();
    status = ev->c->enter(op, args, nargs, &result, 1, ev->c->host, (ev->c->inner & DV__INNER_KERNEL) | DV__INNER_TEMPORARY);
    dv_operator_unref(op);
    if (!status && !into && !(status = dv__eval_keep(ev, (dv_tensor *)(uintptr_t)result.as.tensor)))
        *out = result.as.tensor;
    return status;
}

static int convert(dv__eval *ev, const dv_tensor *from, dv_dtype dtype, const dv_tensor *into, const dv_tensor **out)
{
    const dv_value args[] = { dv_from_tensor(from), dv_from_dtype(dtype), dv_default(), dv_from_bool(true) };
    return call_base(ev, "to.dtype", args, sizeof args / sizeof *args, into, out);
}

static int widen_tensor(dv__eval *ev, const dv_tensor *t, const dv_tensor **out)
{
    const dv_dtype f64 = { .code = 2, .bits = 64, .lanes = 1 };
    *out = t;
    return is_real_tensor(t) && t->dtype.bits < 64 ? convert(ev, t, f64, NULL, out) : DV_OK;
}

static int widen_arguments(dv__eval *ev)
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

static int wrong_result(const dv__eval *ev, size_t r, const dv_tensor *found, const dv_tensor *expected)
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
static bool too_wide(const dv__eval *ev, const dv_tensor *from, const dv_tensor *to)
{
    return ev->wide && from->dtype.bits > to->dtype.bits && is_real_tensor(from) && is_real_tensor(to);
}

static bool fits(const dv__eval *ev, const dv_tensor *from, const dv_tensor *to)
{
    return same_sizes(from, to) && (dv_dtype_key(from->dtype) == dv_dtype_key(to->dtype) || too_wide(ev, from, to));
}

static int copy(dv__eval *ev, const dv_tensor *to, const dv_tensor *from)
{
    return too_wide(ev, from, to) ? convert(ev, from, to->dtype, to, NULL) : dv__host_copy(ev->c->host, to, from);
}

static int copy_into(dv__eval *ev, size_t r, const dv_tensor *to, const dv_tensor *from)
{
    return fits(ev, from, to) ? copy(ev, to, from) : wrong_result(ev, r, from, to);
}

/* Allocate a result with the shape that the form computed. */
static int make_like(dv__eval *ev, size_t r, const dv_tensor *from, dv_dtype dtype)
{
    dv__call *c = ev->c;
    dv__result *out = &c->outs[r];
    int64_t strides[DV_MAX_NDIM];
    int status = dv__shape_check(dtype, from->ndim, from->shape, strides);
    if (!status)
        status = dv__new_tensor(c, (int)r, dtype, from->device, from->ndim, from->shape, strides, &out->made);
    if (status)
        return status;
    out->origin = DV__RESULT_MADE;
    out->tensor = out->made;
    return copy_into(ev, r, out->tensor, from);
}

static int tensor_result(dv__eval *ev, size_t r, const dv__expr *e)
{
    dv__call *c = ev->c;
    dv__result *out = &c->outs[r];
    const bool there = out->origin == DV__RESULT_GIVEN || out->origin == DV__RESULT_MADE;
    dv_value v;
    int status;
    if (out->origin == DV__RESULT_ABSENT || out->origin == DV__RESULT_ALIAS || (out->view && !ev->wide))
        return DV_OK;
    if (there && !ev->wide && e->kind == DV__EXPR_CALL && e->ref == DV__FORMULA_OPERATOR)
        status = dv__evaluate_call(ev, e, out->tensor, &v);
    else
        status = dv__evaluate(ev, e, &v);
    if (status)
        return status;
    if (v.type != DV_VALUE_TENSOR)
        return dv__fail_expr(ev, DV_ETYPE, e, "expected a tensor");
    if (out->view) { /* the contract makes it, and the form may say something else: a test sees both */
        const dv_dtype dtype = out->made->dtype;
        dv__free_tensor(c, out->made);
        out->made = NULL;
        return make_like(ev, r, v.as.tensor, dtype);
    }
    if (there)
        return v.as.tensor == out->tensor ? DV_OK : copy_into(ev, r, out->tensor, v.as.tensor);
    if (out->given) /* of a size that depended on data */
        return copy_into(ev, r, out->given, v.as.tensor);
    return make_like(ev, r, v.as.tensor, v.as.tensor->dtype);
}

static int list_result(dv__eval *ev, size_t r, const dv__expr *e)
{
    const dv_tensors to = ev->c->outs[r].value.as.tensors;
    dv_value v;
    int status = dv__evaluate(ev, e, &v);
    if (status)
        return status;
    if (v.type != DV_VALUE_TENSORS || v.as.tensors.size != to.size)
        return dv__fail_argument(ev->c, DV_ETYPE, ev->c->plan->nargs + r, "expected %zu tensors from the native form, found %zu",
            to.size, v.type == DV_VALUE_TENSORS ? v.as.tensors.size : 1);
    for (size_t k = 0; k < to.size && !status; k++)
        status = copy_into(ev, r, to.data[k], v.as.tensors.data[k]);
    return status;
}

static int value_result(dv__eval *ev, size_t r, const dv__expr *e)
{
    dv_value v;
    dv__result *out = &ev->c->outs[r];
    const int status = dv__evaluate(ev, e, &v);
    if (status)
        return status;
    if (out->value.type == DV_VALUE_FLOAT && v.type == DV_VALUE_INT)
        v = dv_from_float((double)v.as.i);
    if (v.type != out->value.type)
        return dv__fail_expr(ev, DV_ETYPE, e, "gives a value of another type than the result has");
    out->value = v;
    return DV_OK;
}

static int one_result(dv__eval *ev, size_t r, const dv__expr *e)
{
    switch (ev->c->outs[r].origin) {
    case DV__RESULT_SCALAR: return value_result(ev, r, e);
    case DV__RESULT_LIST:
    case DV__RESULT_MADE_LIST: return list_result(ev, r, e);
    default: return tensor_result(ev, r, e);
    }
}

static size_t tensors_of(const dv_value *v, const dv_tensor *const **list)
{
    *list = v->type == DV_VALUE_TENSORS ? v->as.tensors.data : &v->as.tensor;
    return v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
}

/* A value that is a written argument would be written before it is read: it is copied. */
static int apart(dv__eval *ev, const dv_tensor **t)
{
    const dv__call *c = ev->c;
    bool shared = false;
    for (size_t i = 0; i < c->plan->nargs; i++) {
        const dv_tensor *const *list;
        for (size_t k = 0, n = c->op->native->writes[i] ? tensors_of(&c->args[i], &list) : 0; k < n; k++)
            shared = shared || list[k] == *t;
    }
    const dv_value arg = dv_from_tensor(*t);
    return shared ? call_base(ev, "clone", &arg, 1, NULL, t) : DV_OK;
}

/* Evaluate the new values of written arguments before any is written. */
static int write_arguments(dv__eval *ev)
{
    dv__call *c = ev->c;
    const dv__native *n = c->op->native;
    if (!n->writes)
        return DV_OK;
    const dv_tensor ***news = DV__ARENA_ARRAY(&c->arena, const dv_tensor **, c->plan->nargs + 1);
    if (!news)
        return DV_ENOMEM;
    for (size_t i = 0; i < c->plan->nargs; i++) {
        const dv_tensor *const *to, *const *from;
        const size_t count = n->writes[i] ? tensors_of(&c->args[i], &to) : 0;
        dv_value v;
        int status = count ? dv__evaluate(ev, n->writes[i], &v) : DV_OK;
        if (status)
            return status;
        if (count && (v.type != c->args[i].type || tensors_of(&v, &from) != count))
            return dv__fail_argument(
                c, DV_ETYPE, i, "expected %zu tensors from the native form, found %zu", count, tensors_of(&v, &from));
        if (count && !(news[i] = DV__ARENA_ARRAY(&c->arena, const dv_tensor *, count)))
            return DV_ENOMEM;
        for (size_t k = 0; k < count; k++) {
            news[i][k] = from[k];
            if (!to[k] || !from[k] || !fits(ev, from[k], to[k]))
                return dv__fail_argument(c, DV_ESHAPE, i, "the native form gives it a value of another shape or dtype");
            if (from[k] != to[k] && (status = apart(ev, &news[i][k])))
                return status;
        }
    }
    for (size_t i = 0; i < c->plan->nargs; i++) {
        const dv_tensor *const *to;
        const size_t count = n->writes[i] ? tensors_of(&c->args[i], &to) : 0;
        for (size_t k = 0; k < count; k++) {
            const int status = news[i][k] == to[k] ? DV_OK : copy(ev, to[k], news[i][k]);
            if (status)
                return status;
        }
    }
    return DV_OK;
}

/* Without a contract a result is allocated when its value is known. */
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

static int run(dv__eval *ev)
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
        if ((status = one_result(ev, r, n->results[r])))
            return status;
    return write_arguments(ev);
}

int dv__run_native(dv__call *c)
{
    dv__eval ev = { .c = c, .what = "native form" };
    if (!c->inner && dv__host_flags(c->host) & DV_HOST_OWN_NATIVE && !dv__host_memory(c->device.type))
        return dv_fail(DV_ENATIVE, "%s: the host runs its native form on %s", c->op->name, dv_device_name(c->device.type));
    if (depth >= MAX_DEPTH)
        return dv_fail(
            DV_ELIMIT, "%s: decompositions call each other more than %d deep: is there a cycle?", c->op->name, MAX_DEPTH);
    depth++;
    const int status = run(&ev);
    depth--;
    dv__eval_deinit(&ev);
    return status;
}
