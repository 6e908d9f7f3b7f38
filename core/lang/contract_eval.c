/* Trees over one call's arguments and what has been bound: exact 64-bit integers, every overflow an error. */
#include "lang/contract_internal.h"

#include <math.h>
#include <stdio.h>

void dv__say(dv__words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(w->data + w->n, sizeof w->data - w->n, format, args);
    va_end(args);
    if (n > 0)
        w->n = w->n + (size_t)n < sizeof w->data ? w->n + (size_t)n : sizeof w->data - 1;
}

int dv__wrong(const dv__env *v, int status, const char *format, ...)
{
    dv__words what = { 0 };
    va_list args;
    va_start(args, format);
    vsnprintf(what.data, sizeof what.data, format, args);
    va_end(args);
    if (v->who)
        return dv_fail(status, "%s: argument '%s': %s: %s", v->c->name, v->who, v->where, what.data);
    return dv_fail(status, "%s: %s: %s", v->c->name, v->where, what.data);
}

void dv__say_sizes(dv__words *w, const int64_t *sizes, int32_t n)
{
    dv__say(w, "[");
    for (int32_t i = 0; i < n; i++)
        dv__say(w, "%s%lld", i ? ", " : "", (long long)sizes[i]);
    dv__say(w, "]");
}

bool dv__is_present(const dv_value *value) { return value->type != DV_VALUE_NONE && value->type != DV_VALUE_DEFAULT; }

const dv_tensor *dv__tensor_of(const dv__env *v, int32_t slot)
{
    const dv_value *value = &v->args[slot];
    if (value->type == DV_VALUE_TENSOR)
        return value->as.tensor;
    if (value->type == DV_VALUE_TENSORS)
        for (size_t i = 0; i < value->as.tensors.size; i++)
            if (value->as.tensors.data[i])
                return value->as.tensors.data[i];
    return NULL;
}

static int no_value(const dv__env *v, const dv__expr *e, const char *wanted)
{
    return dv_fail(DV_EINVAL, "%s: argument '%s': expected %s for %s, found %s", v->c->name, v->c->schema->args[e->ref].name,
        wanted, v->where, dv__is_present(&v->args[e->ref]) ? "another type" : "None");
}

static int overflow(const dv__env *v) { return dv__wrong(v, DV_ESHAPE, "the result does not fit 64 bits"); }

/* ---- Integers ------------------------------------------------------------------------------------------------------------ */

static int get_ints(const dv__env *v, const dv__expr *e, dv_ints *out)
{
    const dv_value *value = &v->args[e->ref];
    if (value->type != DV_VALUE_INTS)
        return no_value(v, e, "a list of integers");
    *out = value->as.ints;
    return DV_OK;
}

static int eval_name(const dv__env *v, const dv__expr *e, int64_t *out)
{
    if (e->role == DV__ROLE_ARG) {
        const dv_value *value = &v->args[e->ref];
        *out = value->as.i;
        return value->type == DV_VALUE_INT ? DV_OK : no_value(v, e, "an integer");
    }
    *out = v->s->dims[e->ref];
    if (!(v->s->bound_dims >> e->ref & 1))
        return dv__wrong(v, DV_ESHAPE, "nothing that is present binds '%s'", e->name);
    return DV_OK;
}

static int eval_index(const dv__env *v, const dv__expr *e, int64_t *out)
{
    dv_ints list = { NULL, 0 };
    int64_t i = 0;
    int status = get_ints(v, e->args[0], &list);
    if (!status)
        status = dv__eval_int(v, e->args[1], &i);
    if (status)
        return status;
    const int64_t n = (int64_t)list.size;
    if (i < -n || i >= n)
        return dv_fail(DV_EINVAL, "%s: argument '%s': expected at least %lld elements for %s, found %lld", v->c->name,
            e->args[0]->name, (long long)(i < 0 ? -i : i + 1), v->where, (long long)n);
    *out = list.data[i < 0 ? i + n : i];
    return DV_OK;
}

/* The shape of a tensor argument, of the first tensor of a list, or a run. */
static int eval_extent(const dv__env *v, const dv__expr *e, dv__sizes *out)
{
    if (e->type == DV__CTYPE_RUN)
        return dv__eval_sizes(v, e, out);
    const dv_tensor *t = dv__tensor_of(v, e->ref);
    if (!t)
        return dv_fail(DV_EINVAL, "%s: argument '%s': expected a tensor for %s, found None", v->c->name, e->name, v->where);
    out->data = t->shape;
    out->n = t->ndim;
    return DV_OK;
}

/* The dim that may count from the end; 0-d tensors take 0 and -1. what: for the message. */
static int wrap(const dv__env *v, const dv__expr *e, int64_t dim, int32_t rank, int64_t *out)
{
    const int64_t n = rank ? rank : 1;
    if (dim < -n || dim >= n) {
        dv__words who = { 0 };
        if (e->role == DV__ROLE_ARG)
            dv__say(&who, "argument '%s'", e->name);
        else
            dv__say(&who, "%s", v->where);
        return dv_fail(DV_EINVAL, "%s: %s: expected a dim from %lld to %lld, found %lld", v->c->name, who.data, (long long)-n,
            (long long)(n - 1), (long long)dim);
    }
    *out = dim < 0 ? dim + n : dim;
    return DV_OK;
}

static int eval_extreme(const dv__env *v, const dv__expr *e, int64_t *out)
{
    int status = dv__eval_int(v, e->args[0], out);
    for (uint32_t i = 1; i < e->n && !status; i++) {
        int64_t x = 0;
        status = dv__eval_int(v, e->args[i], &x);
        if (!status && (e->ref == DV__FN_MIN ? x < *out : x > *out))
            *out = x;
    }
    return status;
}

static int eval_numel(const dv__env *v, const dv__expr *e, int64_t *out)
{
    dv__sizes sizes;
    const int status = eval_extent(v, e, &sizes);
    int64_t n = 1;
    bool zero = false, over = false;
    for (int32_t i = 0; !status && i < sizes.n; i++) {
        zero |= !sizes.data[i];
        over |= __builtin_mul_overflow(n, sizes.data[i], &n);
    }
    *out = zero ? 0 : n;
    return status ? status : over && !zero ? overflow(v) : DV_OK;
}

static int eval_size(const dv__env *v, const dv__expr *e, int64_t *out)
{
    dv__sizes sizes;
    int64_t dim = 0;
    int status = eval_extent(v, e->args[0], &sizes);
    if (!status)
        status = dv__eval_int(v, e->args[1], &dim);
    if (!status)
        status = wrap(v, e->args[1], dim, sizes.n, &dim);
    if (!status && !sizes.n)
        status = dv__wrong(v, DV_ESHAPE, "expected at least one dim, found none");
    if (!status)
        *out = e->ref == DV__FN_SIZE ? sizes.data[dim] : dv__tensor_of(v, e->args[0]->ref)->strides[dim];
    return status;
}

static int eval_len(const dv__env *v, const dv__expr *e, int64_t *out)
{
    const dv_value *value = &v->args[e->ref];
    if (value->type != DV_VALUE_INTS && value->type != DV_VALUE_TENSORS)
        return no_value(v, e, "a list");
    *out = (int64_t)(value->type == DV_VALUE_INTS ? value->as.ints.size : value->as.tensors.size);
    return DV_OK;
}

static int ceildiv(const dv__env *v, int64_t a, int64_t b, int64_t *out)
{
    if (!b)
        return dv__wrong(v, DV_ESHAPE, "division by zero");
    if (!dv__floordiv(a, b, out)) /* INT64_MIN / -1 */
        return overflow(v);
    *out += a % b != 0;
    return DV_OK;
}

static int eval_call(const dv__env *v, const dv__expr *e, int64_t *out)
{
    int status;
    int64_t a = 0, b = 0;
    dv__sizes sizes;
    switch (e->ref) {
    case DV__FN_MIN:
    case DV__FN_MAX: return eval_extreme(v, e, out);
    case DV__FN_ABS:
        status = dv__eval_int(v, e->args[0], &a);
        if (!status && a == INT64_MIN)
            return overflow(v);
        *out = a < 0 ? -a : a;
        return status;
    case DV__FN_CEILDIV:
        status = dv__eval_int(v, e->args[0], &a);
        if (!status)
            status = dv__eval_int(v, e->args[1], &b);
        return status ? status : ceildiv(v, a, b, out);
    case DV__FN_IF: {
        bool yes;
        status = dv__eval_bool(v, e->args[0], &yes);
        return status ? status : dv__eval_int(v, e->args[yes ? 1 : 2], out);
    }
    case DV__FN_LEN: return eval_len(v, e->args[0], out);
    case DV__FN_RANK:
        status = eval_extent(v, e->args[0], &sizes);
        *out = status ? 0 : sizes.n;
        return status;
    case DV__FN_NUMEL: return eval_numel(v, e->args[0], out);
    case DV__FN_SIZE:
    case DV__FN_STRIDE: return eval_size(v, e, out);
    case DV__FN_TOTAL: return eval_name(v, e->args[0], out);
    case DV__FN_AXIS:
        status = dv__eval_int(v, e->args[0], &a);
        if (!status)
            status = eval_extent(v, e->args[1], &sizes);
        return status ? status : wrap(v, e->args[0], a, sizes.n, out);
    default: { /* itemsize */
        dv_dtype type;
        status = dv__eval_dtype(v, e->args[0], &type);
        *out = status ? 0 : dv_dtype_bytes(type, 1);
        return status;
    }
    }
}

static int arithmetic(const dv__env *v, enum dv__expr_kind kind, int64_t a, int64_t b, int64_t *out)
{
    switch (kind) {
    case DV__EXPR_ADD: return __builtin_add_overflow(a, b, out) ? overflow(v) : DV_OK;
    case DV__EXPR_SUB: return __builtin_sub_overflow(a, b, out) ? overflow(v) : DV_OK;
    case DV__EXPR_MUL: return __builtin_mul_overflow(a, b, out) ? overflow(v) : DV_OK;
    default: break;
    }
    if (!b)
        return dv__wrong(v, DV_ESHAPE, "division by zero");
    if (kind == DV__EXPR_MOD)
        return dv__floormod(a, b, out) ? DV_OK : overflow(v);
    int64_t rest = 0;
    dv__floormod(a, b, &rest);
    if (kind == DV__EXPR_DIV && rest)
        return dv__wrong(v, DV_ESHAPE, "%lld is not divisible by %lld", (long long)a, (long long)b);
    return dv__floordiv(a, b, out) ? DV_OK : overflow(v);
}

int dv__eval_int(const dv__env *v, const dv__expr *e, int64_t *out)
{
    int64_t a = 0, b = 0;
    int status;
    switch (e->kind) {
    case DV__EXPR_INT: *out = e->i; return DV_OK;
    case DV__EXPR_NAME: return eval_name(v, e, out);
    case DV__EXPR_INDEX: return eval_index(v, e, out);
    case DV__EXPR_CALL: return eval_call(v, e, out);
    case DV__EXPR_NEG: status = dv__eval_int(v, e->args[0], &a); return status ? status : arithmetic(v, DV__EXPR_SUB, 0, a, out);
    default:
        status = dv__eval_int(v, e->args[0], &a);
        if (!status)
            status = dv__eval_int(v, e->args[1], &b);
        return status ? status : arithmetic(v, e->kind, a, b, out);
    }
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------------- */

static int eval_number_argument(const dv__env *v, const dv__expr *e, dv__scalar *out)
{
    const dv_value *value = &v->args[e->ref];
    out->real = value->type != DV_VALUE_INT && value->type != DV_VALUE_BOOL;
    switch (value->type) {
    case DV_VALUE_INT: out->i = value->as.i; return DV_OK;
    case DV_VALUE_BOOL: out->i = value->as.b; return DV_OK;
    case DV_VALUE_FLOAT: out->f = value->as.f; return DV_OK;
    default: return no_value(v, e, "a real number");
    }
}

int dv__eval_scalar(const dv__env *v, const dv__expr *e, dv__scalar *out)
{
    out->real = false;
    if (e->type == DV__CTYPE_INT)
        return dv__eval_int(v, e, &out->i);
    if (e->kind == DV__EXPR_ATTR) {
        out->real = v->element_real;
        out->i = v->element_i;
        out->f = v->element_f;
        return DV_OK;
    }
    if (e->kind == DV__EXPR_NAME)
        return eval_number_argument(v, e, out);
    if (e->kind == DV__EXPR_CALL) { /* if */
        bool yes;
        const int status = dv__eval_bool(v, e->args[0], &yes);
        return status ? status : dv__eval_scalar(v, e->args[yes ? 1 : 2], out);
    }
    dv__scalar a, b;
    if (e->kind != DV__EXPR_FLOAT && e->kind != DV__EXPR_DIV) { /* integers stay exact: x.values + 1 */
        int status = dv__eval_scalar(v, e->args[0], &a);
        if (!status && e->n > 1)
            status = dv__eval_scalar(v, e->args[1], &b);
        if (status)
            return status;
        if (!a.real && (e->n == 1 || !b.real))
            return e->n == 1 ? arithmetic(v, DV__EXPR_SUB, 0, a.i, &out->i) : arithmetic(v, e->kind, a.i, b.i, &out->i);
    }
    out->real = true;
    return dv__eval_real(v, e, &out->f);
}

int dv__eval_real(const dv__env *v, const dv__expr *e, double *out)
{
    dv__scalar s;
    double a = 0, b = 0;
    int status;
    switch (e->kind) {
    case DV__EXPR_FLOAT: *out = e->f; return DV_OK;
    case DV__EXPR_NEG:
        status = dv__eval_real(v, e->args[0], &a);
        *out = -a;
        return status;
    case DV__EXPR_ADD:
    case DV__EXPR_SUB:
    case DV__EXPR_MUL:
    case DV__EXPR_DIV:
    case DV__EXPR_FLOORDIV:
        status = dv__eval_real(v, e->args[0], &a);
        if (!status)
            status = dv__eval_real(v, e->args[1], &b);
        if (!status && b == 0 && (e->kind == DV__EXPR_DIV || e->kind == DV__EXPR_FLOORDIV))
            status = dv__wrong(v, DV_ESHAPE, "division by zero");
        if (!status)
            *out = e->kind == DV__EXPR_ADD ? a + b
                : e->kind == DV__EXPR_SUB  ? a - b
                : e->kind == DV__EXPR_MUL  ? a * b
                : e->kind == DV__EXPR_DIV  ? a / b
                                           : floor(a / b);
        return status;
    case DV__EXPR_CALL:
        if (e->ref == DV__FN_IF) {
            bool yes;
            status = dv__eval_bool(v, e->args[0], &yes);
            return status ? status : dv__eval_real(v, e->args[yes ? 1 : 2], out);
        }
        break;
    default: break;
    }
    status = dv__eval_scalar(v, e, &s);
    *out = status ? 0 : s.real ? s.f : (double)s.i;
    return status;
}

/* ---- Booleans ------------------------------------------------------------------------------------------------------------ */

/* Exact between an integer and a real: -1, 0, 1; 2 when unordered. */
static int compare_scalars(dv__scalar a, dv__scalar b)
{
    if (!a.real && !b.real)
        return (a.i > b.i) - (a.i < b.i);
    if (a.real && b.real)
        return a.f != a.f || b.f != b.f ? 2 : (a.f > b.f) - (a.f < b.f);
    if (a.real) {
        const int r = compare_scalars(b, a);
        return r == 2 ? 2 : -r;
    }
    if (b.f != b.f)
        return 2;
    if (b.f >= 0x1p63 || b.f < -0x1p63)
        return b.f > 0 ? -1 : 1;
    const int64_t whole = (int64_t)b.f; /* towards zero */
    if (a.i != whole)
        return a.i < whole ? -1 : 1;
    const double rest = b.f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static bool holds(enum dv__expr_kind kind, int order)
{
    switch (kind) {
    case DV__EXPR_EQ:
    case DV__EXPR_IN: return order == 0;
    case DV__EXPR_NE: return order != 0;
    case DV__EXPR_LT: return order == -1;
    case DV__EXPR_LE: return order == -1 || order == 0;
    case DV__EXPR_GT: return order == 1;
    default: return order == 1 || order == 0;
    }
}

static bool get_string(const dv__env *v, const dv__expr *e, dv_string *out)
{
    if (e->kind == DV__EXPR_STRING) {
        out->data = e->name;
        out->size = strlen(e->name);
        return true;
    }
    *out = v->args[e->ref].as.s;
    return v->args[e->ref].type == DV_VALUE_STRING;
}

/* *equal for operands that have no order. */
static int equal(const dv__env *v, const dv__expr *a, const dv__expr *b, bool *out)
{
    int status = DV_OK;
    if (a->type == DV__CTYPE_STRING) {
        dv_string x, y;
        *out = get_string(v, a, &x) && get_string(v, b, &y) && x.size == y.size &&
            !memcmp(x.data, y.data, x.size); /* None equals nothing */
    } else if (a->type == DV__CTYPE_DTYPE) {
        dv_dtype x = { 0, 0, 0 }, y = { 0, 0, 0 };
        status = dv__eval_dtype(v, a, &x);
        if (!status)
            status = dv__eval_dtype(v, b, &y);
        *out = dv_dtype_key(x) == dv_dtype_key(y);
    } else if (a->type == DV__CTYPE_BOOL) {
        bool x = false, y = false;
        status = dv__eval_bool(v, a, &x);
        if (!status)
            status = dv__eval_bool(v, b, &y);
        *out = x == y;
    } else {
        dv__sizes x, y;
        status = dv__eval_sizes(v, a, &x);
        if (!status)
            status = dv__eval_sizes(v, b, &y);
        *out = !status && x.n == y.n && (!x.n || !memcmp(x.data, y.data, (size_t)x.n * sizeof *x.data));
    }
    return status;
}

static int eval_comparison(const dv__env *v, const dv__expr *e, bool *out)
{
    const dv__expr *a = e->args[0];
    const bool number = a->type == DV__CTYPE_INT || a->type == DV__CTYPE_NUMBER;
    dv__scalar x = { 0 };
    int status = number ? dv__eval_scalar(v, a, &x) : DV_OK;
    *out = false;
    for (uint32_t i = 1; i < e->n && !status && !*out; i++) { /* one operand, or those of `in` */
        dv__scalar y = { 0 };
        if (number) {
            status = dv__eval_scalar(v, e->args[i], &y);
            *out = !status && holds(e->kind, compare_scalars(x, y));
        } else {
            status = equal(v, a, e->args[i], out);
            if (e->kind == DV__EXPR_NE)
                *out = !*out;
        }
    }
    return status;
}

int dv__eval_bool(const dv__env *v, const dv__expr *e, bool *out)
{
    int status;
    *out = false;
    switch (e->kind) {
    case DV__EXPR_BOOL: *out = e->i != 0; return DV_OK;
    case DV__EXPR_NAME:
        *out = v->args[e->ref].as.b;
        return v->args[e->ref].type == DV_VALUE_BOOL ? DV_OK : no_value(v, e, "a boolean");
    case DV__EXPR_NOT:
        status = dv__eval_bool(v, e->args[0], out);
        *out = !*out;
        return status;
    case DV__EXPR_AND:
    case DV__EXPR_OR:
        status = dv__eval_bool(v, e->args[0], out);
        return status || *out == (e->kind == DV__EXPR_OR) ? status : dv__eval_bool(v, e->args[1], out);
    case DV__EXPR_CALL:
        if (e->ref == DV__FN_IF) {
            status = dv__eval_bool(v, e->args[0], out);
            return status ? status : dv__eval_bool(v, e->args[*out ? 1 : 2], out);
        }
        *out = dv__is_present(&v->args[e->args[0]->ref]) == (e->ref == DV__FN_PRESENT);
        return DV_OK;
    default: return eval_comparison(v, e, out);
    }
}

/* ---- Runs of dims -------------------------------------------------------------------------------------------------------- */

static int no_broadcast(const dv__env *v, const dv__expr *e, int64_t a, int64_t b, int32_t dim)
{
    dv__words w = { 0 };
    for (uint32_t i = 0; i < e->n; i++) {
        dv__sizes one;
        if (dv__eval_sizes(v, e->args[i], &one))
            break;
        dv__say(&w, i ? " and " : "");
        dv__say_sizes(&w, one.data, one.n);
        const char *who = e->args[i]->role == DV__ROLE_RUN ? dv__binder_of(v, true, e->args[i]->ref) : NULL;
        if (who)
            dv__say(&w, " ('*%s' is bound by '%s')", e->args[i]->name, who);
    }
    return dv__wrong(
        v, DV_ESHAPE, "shapes %s do not broadcast: %lld and %lld at dim -%d", w.data, (long long)a, (long long)b, (int)dim);
}

static int eval_broadcast(const dv__env *v, const dv__expr *e, dv__sizes *out)
{
    out->n = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        dv__sizes one;
        const int status = dv__eval_sizes(v, e->args[i], &one);
        if (status)
            return status;
        if (one.n > out->n) { /* align at the end */
            memmove(out->room + (one.n - out->n), out->room, (size_t)out->n * sizeof *out->room);
            memcpy(out->room, one.data, (size_t)(one.n - out->n) * sizeof *out->room);
            out->n = one.n;
        }
        for (int32_t k = 1; k <= one.n; k++) {
            int64_t *to = &out->room[out->n - k];
            const int64_t from = one.data[one.n - k];
            if (from == *to || from == 1)
                continue;
            if (*to != 1)
                return no_broadcast(v, e, *to, from, k);
            *to = from;
        }
    }
    out->data = out->room;
    return DV_OK;
}

/* dim may be an int, an int[], or None and empty for all, as in torch.sum. */
static int eval_reduced(const dv__env *v, const dv__expr *e, dv__sizes *out)
{
    dv__sizes from;
    bool keep = false;
    uint64_t gone = 0;
    const dv__expr *which = e->args[1];
    int64_t one = 0;
    dv_ints list = { NULL, 0 };
    int status = dv__eval_sizes(v, e->args[0], &from);
    if (!status)
        status = dv__eval_bool(v, e->args[2], &keep);
    if (status)
        return status;
    const bool all = which->role == DV__ROLE_ARG && !dv__is_present(&v->args[which->ref]);
    if (!all && which->type == DV__CTYPE_INTS) {
        status = get_ints(v, which, &list);
    } else if (!all) {
        status = dv__eval_int(v, which, &one);
        list.data = &one;
        list.size = 1;
    }
    if (status)
        return status;
    if (all || !list.size)
        gone = UINT64_MAX;
    for (size_t i = 0; i < list.size; i++) {
        int64_t dim;
        status = wrap(v, which, list.data[i], from.n, &dim);
        if (status)
            return status;
        if (gone >> dim & 1)
            return dv_fail(DV_EINVAL, "%s: argument '%s': dim %lld appears more than once", v->c->name,
                which->name ? which->name : v->where, (long long)dim);
        gone |= 1ull << dim;
    }
    out->n = 0;
    for (int32_t i = 0; i < from.n; i++)
        if (!(gone >> i & 1) || keep)
            out->room[out->n++] = gone >> i & 1 ? 1 : from.data[i];
    out->data = out->room;
    return DV_OK;
}

static int eval_permuted(const dv__env *v, const dv__expr *e, dv__sizes *out)
{
    dv__sizes from;
    int status = dv__eval_sizes(v, e->args[0], &from);
    if (status)
        return status;
    out->n = from.n;
    out->data = out->room;
    if (e->ref == DV__FN_SWAP) {
        int64_t a = 0, b = 0;
        status = dv__eval_int(v, e->args[1], &a);
        if (!status)
            status = dv__eval_int(v, e->args[2], &b);
        if (!status)
            status = wrap(v, e->args[1], a, from.n, &a);
        if (!status)
            status = wrap(v, e->args[2], b, from.n, &b);
        if (status || !from.n)
            return status;
        memcpy(out->room, from.data, (size_t)from.n * sizeof *from.data);
        out->room[a] = from.data[b];
        out->room[b] = from.data[a];
        return DV_OK;
    }
    dv_ints order = { NULL, 0 };
    uint64_t seen = 0;
    status = get_ints(v, e->args[1], &order);
    if (!status && order.size != (size_t)from.n)
        status = dv_fail(
            DV_EINVAL, "%s: argument '%s': expected %d dims, found %zu", v->c->name, e->args[1]->name, (int)from.n, order.size);
    for (int32_t i = 0; i < from.n && !status; i++) {
        int64_t dim = 0;
        status = wrap(v, e->args[1], order.data[i], from.n, &dim);
        if (!status && seen >> dim & 1)
            status = dv_fail(
                DV_EINVAL, "%s: argument '%s': dim %lld appears more than once", v->c->name, e->args[1]->name, (long long)dim);
        seen |= 1ull << dim;
        out->room[i] = from.data[dim];
    }
    return status;
}

int dv__eval_sizes(const dv__env *v, const dv__expr *e, dv__sizes *out)
{
    if (e->role == DV__ROLE_RUN) {
        if (!(v->s->bound_runs >> e->ref & 1))
            return dv__wrong(v, DV_ESHAPE, "nothing that is present binds '*%s'", e->name);
        out->data = v->s->runs[e->ref].sizes;
        out->n = v->s->runs[e->ref].ndim;
        return DV_OK;
    }
    if (e->role == DV__ROLE_LIST) {
        dv_ints list = { NULL, 0 };
        const int status = get_ints(v, e, &list);
        if (status)
            return status;
        if (list.size > DV_MAX_NDIM)
            return dv_fail(
                DV_ESHAPE, "%s: argument '%s': expected at most %d dims, found %zu", v->c->name, e->name, DV_MAX_NDIM, list.size);
        out->data = list.data;
        out->n = (int32_t)list.size;
        return DV_OK;
    }
    switch (e->ref) {
    case DV__FN_BROADCAST: return eval_broadcast(v, e, out);
    case DV__FN_REDUCED: return eval_reduced(v, e, out);
    case DV__FN_SHAPE: return eval_extent(v, e->args[0], out);
    default: return eval_permuted(v, e, out);
    }
}
