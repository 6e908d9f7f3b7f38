/* The declaration of an operator, read from its JSON; and the values of its contract's expressions for a case that is being
 * made. */
#include <string.h>
#include <stdlib.h>

#include "check.h"

/* ---- The operator ---- */

static int read_rows(check_op *op)
{
    const check_json *kernels = check_json_get(op->json, "kernels");
    op->rows = calloc(check_json_size(kernels) + 1, sizeof *op->rows);
    if (!op->rows)
        return -1;
    int32_t index = 0;
    for (const check_json *k = kernels ? kernels->child : NULL; k; k = k->next) {
        const char *key = check_json_text(k, "key");
        if (!key || strcmp(key, "CPU"))
            continue;
        const check_json *split = check_json_get(k, "split");
        op->rows[op->nrows++] = (check_row){ .name = check_json_text(k, "name"),
            .provider = check_json_text(k, "provider"),
            .dtypes = check_json_text(k, "dtypes"),
            .isa = check_json_text(k, "isa"),
            .when = check_json_text(k, "when"),
            .takes = check_json_text(k, "takes"),
            .index = ++index,
            .available = check_json_true(k, "isa_available"),
            .reference = check_json_true(k, "reference"),
            .split = split ? split->i : 0 };
    }
    const check_json *native = check_json_get(op->json, "native");
    if (!op->nrows && native && native->kind == CHECK_OBJECT)
        op->rows[op->nrows++] = (check_row){ .name = "native form", .index = -1, .available = true };
    return 0;
}

static bool has_tag(const check_op *op, const char *tag)
{
    const check_json *tags = check_json_get(op->json, "tags");
    for (const check_json *t = tags ? tags->child : NULL; t; t = t->next)
        if (t->text && !strcmp(t->text, tag))
            return true;
    return false;
}

int check_op_init(check_op *op, dv_operator *o)
{
    char *text;
    memset(op, 0, sizeof *op);
    op->op = o;
    op->name = dv_operator_name(o);
    op->nargs = dv_operator_nargs(o);
    op->nresults = dv_operator_nresults(o);
    if (op->nargs > CHECK_ARGS || op->nresults > CHECK_RESULTS)
        op->too_large = "it has more arguments or results than the checker handles";
    for (size_t i = 0; !op->too_large && i < op->nargs + op->nresults; i++)
        if (dv_operator_slot(o, i, &op->slots[i]))
            return -1;
    if (dv_operator_json(o, &text))
        return -1;
    op->json = check_json_parse(text);
    dv_free(text);
    if (!op->json)
        return dv_fail(DV_EINVAL, "%s: its JSON cannot be read", op->name), -1;
    const check_json *contract = check_json_get(op->json, "contract");
    op->contract = contract && contract->kind == CHECK_OBJECT ? contract : NULL;
    op->random = has_tag(op, "nondeterministic_seeded") || has_tag(op, "nondeterministic_bitwise");
    op->shape_function = check_json_true(op->json, "shape_function");
    return read_rows(op);
}

size_t check_op_slot(const check_op *op, const char *name)
{
    for (size_t i = 0; i < op->nargs; i++)
        if (!strcmp(op->slots[i].name, name))
            return i;
    return SIZE_MAX;
}

int check_name_index(const check_json *names, const char *name)
{
    int i = 0;
    for (const check_json *n = names ? names->child : NULL; n; n = n->next, i++) {
        const char *text = n->kind == CHECK_OBJECT ? check_json_text(n, "name") : n->text;
        if (text && !strcmp(text, name))
            return i;
    }
    return -1;
}

/* ---- Values of expressions ---- */

typedef struct value {
    enum { NOTHING, NUMBER, STRING, DTYPE, SHAPE } kind;
    int64_t i;
    const char *s;
    dv_dtype dtype;
    check_shape shape;
} value;

static value eval(const check_env *e, const check_json *x);

static value number(int64_t i) { return (value){ .kind = NUMBER, .i = i }; }
static const check_json *operand(const check_json *x, size_t i) { return check_json_at(x, i + 1); }
static const char *name_of(const check_json *x) { return operand(x, 0) && operand(x, 0)->text ? operand(x, 0)->text : ""; }

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/* The tensor that ["arg", x] names; NULL: None, a list, or no tensor. */
static const check_tensor *tensor_of(const check_env *e, const check_json *x)
{
    const size_t slot = check_json_is(x, "arg") ? check_op_slot(e->op, name_of(x)) : SIZE_MAX;
    if (slot >= e->c->nargs)
        return NULL;
    const check_value *v = &e->c->args[slot];
    if ((v->type != DV_VALUE_TENSOR && v->type != DV_VALUE_TENSORS) || !v->count || !e->c->tensors[v->first].present)
        return NULL;
    return &e->c->tensors[v->first];
}

static value default_of(const dv_slot_info *slot)
{
    const dv_value *d = &slot->default_value;
    switch (d->type) {
    case DV_VALUE_INT: return number(d->as.i);
    case DV_VALUE_BOOL: return number(d->as.b);
    case DV_VALUE_STRING: return (value){ .kind = STRING, .s = d->as.s.data };
    default: return (value){ 0 };
    }
}

static value argument(const check_env *e, const char *name)
{
    const size_t slot = check_op_slot(e->op, name);
    if (slot >= e->c->nargs)
        return (value){ 0 };
    const check_value *v = &e->c->args[slot];
    switch (v->type) {
    case DV_VALUE_DEFAULT: return default_of(&e->op->slots[slot]);
    case DV_VALUE_INT: return number(v->as.i);
    case DV_VALUE_BOOL: return number(v->as.b);
    case DV_VALUE_STRING: return (value){ .kind = STRING, .s = v->string };
    case DV_VALUE_DTYPE: return (value){ .kind = DTYPE, .dtype = v->as.dtype };
    case DV_VALUE_INTS: {
        value list = { .kind = SHAPE };
        for (uint32_t i = 0; i < v->count && i < CHECK_DIMS; i++)
            list.shape.d[list.shape.n++] = v->ints[i];
        return list;
    }
    default: return (value){ 0 };
    }
}

static value of_shape(const check_tensor *t)
{
    value v = { .kind = SHAPE, .shape.n = t->ndim };
    memcpy(v.shape.d, t->shape, sizeof v.shape.d);
    return v;
}

/* A run, a shape or a tensor, as sizes. */
static bool sizes_of(const check_env *e, const check_json *x, check_shape *out)
{
    const check_tensor *t = tensor_of(e, x);
    const value v = t ? of_shape(t) : eval(e, x);
    *out = v.shape;
    return v.kind == SHAPE;
}

static value broadcast(const check_env *e, const check_json *x)
{
    value v = { .kind = SHAPE };
    for (const check_json *a = operand(x, 1); a; a = a->next) {
        check_shape s;
        if (!sizes_of(e, a, &s))
            return (value){ 0 };
        while (v.shape.n < s.n) { /* ones in front */
            memmove(v.shape.d + 1, v.shape.d, sizeof *v.shape.d * (CHECK_DIMS - 1));
            v.shape.d[0] = 1;
            v.shape.n++;
        }
        for (int32_t i = 0; i < s.n; i++) {
            int64_t *to = &v.shape.d[v.shape.n - s.n + i];
            if (*to == 1)
                *to = s.d[i];
            else if (s.d[i] != 1 && s.d[i] != *to)
                return (value){ 0 };
        }
    }
    return v;
}

static value call(const check_env *e, const check_json *x)
{
    const char *f = name_of(x);
    const check_json *a = operand(x, 1), *b = operand(x, 2);
    check_shape s;
    if (!strcmp(f, "broadcast"))
        return broadcast(e, x);
    if (!strcmp(f, "present") || !strcmp(f, "absent")) {
        const size_t slot = check_op_slot(e->op, name_of(a));
        const check_value *v = slot < e->c->nargs ? &e->c->args[slot] : NULL;
        const bool there = v &&
            (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS ? tensor_of(e, a) != NULL
                    : v->type == DV_VALUE_DEFAULT                      ? e->op->slots[slot].default_value.type != DV_VALUE_NONE
                                                                       : v->type != DV_VALUE_NONE);
        return number(there == !strcmp(f, "present"));
    }
    if (!strcmp(f, "dtype")) {
        const check_tensor *t = tensor_of(e, a);
        return t ? (value){ .kind = DTYPE, .dtype = t->dtype } : eval(e, a);
    }
    if (!strcmp(f, "if")) {
        const value c = eval(e, a);
        return c.kind != NUMBER ? c : eval(e, c.i ? b : operand(x, 3));
    }
    if (!strcmp(f, "itemsize")) {
        const value d = eval(e, a);
        return d.kind == DTYPE ? number(dv_dtype_bytes(d.dtype, 1)) : (value){ 0 };
    }
    if (!strcmp(f, "len")) {
        const size_t slot = check_op_slot(e->op, name_of(a));
        return slot < e->c->nargs ? number(e->c->args[slot].count) : (value){ 0 };
    }
    if (!strcmp(f, "total")) { /* sizes of elements are kept as the value of the name */
        const int i = check_name_index(check_json_get(e->op->contract, "dims"), name_of(a));
        return i >= 0 ? number(e->c->names.dims[i]) : (value){ 0 };
    }
    if (!strcmp(f, "rank") || !strcmp(f, "numel") || !strcmp(f, "size") || !strcmp(f, "axis") || !strcmp(f, "shape")) {
        const bool axis = !strcmp(f, "axis");
        const value d = a && b ? eval(e, axis ? a : b) : number(0);
        if (!sizes_of(e, axis ? b : a, &s))
            return (value){ 0 };
        if (!strcmp(f, "shape"))
            return (value){ .kind = SHAPE, .shape = s };
        if (!strcmp(f, "rank"))
            return number(s.n);
        int64_t n = 1;
        for (int32_t i = 0; i < s.n; i++)
            n *= s.d[i];
        if (!strcmp(f, "numel"))
            return number(n);
        const int64_t at = d.i < 0 ? d.i + s.n : d.i;
        if (d.kind != NUMBER || at < 0 || at >= s.n)
            return (value){ 0 };
        return number(axis ? at : s.d[at]);
    }
    const value p = a ? eval(e, a) : (value){ 0 };
    if (p.kind != NUMBER)
        return (value){ 0 };
    if (!strcmp(f, "abs"))
        return number(p.i < 0 ? -p.i : p.i);
    value best = p;
    for (const check_json *k = b; k; k = k->next) {
        const value q = eval(e, k);
        if (q.kind != NUMBER)
            return q;
        if (!strcmp(f, "ceildiv"))
            return q.i ? number(-floor_div(-p.i, q.i)) : (value){ 0 };
        if (!strcmp(f, "min") ? q.i < best.i : q.i > best.i)
            best = q;
    }
    return !strcmp(f, "min") || !strcmp(f, "max") ? best : (value){ 0 };
}

static bool same(const value *a, const value *b)
{
    switch (a->kind) {
    case NUMBER: return a->i == b->i;
    case STRING: return !strcmp(a->s, b->s);
    case DTYPE: return dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype);
    case SHAPE: return a->shape.n == b->shape.n && !memcmp(a->shape.d, b->shape.d, sizeof *a->shape.d * (size_t)a->shape.n);
    case NOTHING: break;
    }
    return false;
}

/* Two operands of a comparison or of arithmetic. */
static value binary(const char *f, const value *a, const value *b)
{
    if (a->kind == NOTHING || a->kind != b->kind)
        return (value){ 0 };
    if (!strcmp(f, "eq") || !strcmp(f, "ne"))
        return number(same(a, b) == !strcmp(f, "eq"));
    if (a->kind != NUMBER)
        return (value){ 0 };
    const int64_t x = a->i, y = b->i;
    int64_t z;
    if (!strcmp(f, "lt"))
        return number(x < y);
    if (!strcmp(f, "le"))
        return number(x <= y);
    if (!strcmp(f, "gt"))
        return number(x > y);
    if (!strcmp(f, "ge"))
        return number(x >= y);
    if (!strcmp(f, "add"))
        return __builtin_add_overflow(x, y, &z) ? (value){ 0 } : number(z);
    if (!strcmp(f, "sub"))
        return __builtin_sub_overflow(x, y, &z) ? (value){ 0 } : number(z);
    if (!strcmp(f, "mul"))
        return __builtin_mul_overflow(x, y, &z) ? (value){ 0 } : number(z);
    if (!y || (x == INT64_MIN && y == -1))
        return (value){ 0 };
    if (!strcmp(f, "floordiv"))
        return number(floor_div(x, y));
    if (!strcmp(f, "mod"))
        return number(x - floor_div(x, y) * y);
    return !strcmp(f, "div") && x % y == 0 ? number(x / y) : (value){ 0 };
}

static value eval_in(const check_env *e, const check_json *x)
{
    const value a = eval(e, operand(x, 0));
    for (const check_json *k = operand(x, 1); k && a.kind; k = k->next) {
        const value b = eval(e, k);
        if (b.kind == a.kind && same(&a, &b))
            return number(1);
    }
    return a.kind ? number(0) : a;
}

static value name_value(const check_env *e, const char *kind, const char *name)
{
    if (!strcmp(kind, "arg") || !strcmp(kind, "list"))
        return argument(e, name);
    if (!strcmp(kind, "str"))
        return (value){ .kind = STRING, .s = name };
    if (!strcmp(kind, "dtype")) {
        value v = { .kind = DTYPE };
        return dv_dtype_parse(name, &v.dtype) ? (value){ 0 } : v;
    }
    if (!strcmp(kind, "element_run")) {
        const int own = check_name_index(check_json_get(e->op->contract, "element_runs"), name);
        return own < 0 || own > 1 ? (value){ 0 } : (value){ .kind = SHAPE, .shape = e->c->names.element_runs[e->element][own] };
    }
    const char *const where = !strcmp(kind, "run") ? "runs" : !strcmp(kind, "dtype_var") ? "dtypes" : "dims";
    const int i = check_name_index(check_json_get(e->op->contract, where), name);
    if (i < 0)
        return (value){ 0 };
    if (!strcmp(kind, "run"))
        return (value){ .kind = SHAPE, .shape = e->c->names.runs[i] };
    if (!strcmp(kind, "dtype_var"))
        return (value){ .kind = DTYPE, .dtype = e->c->names.dtypes[i] };
    const int k = strcmp(kind, "element") ? -1 : check_name_index(check_json_get(e->op->contract, "elements"), name);
    return number(k >= 0 && k < 4 ? e->c->names.elements[e->element][k] : e->c->names.dims[i]);
}

static value eval(const check_env *e, const check_json *x)
{
    if (!x || x->kind != CHECK_ARRAY || !x->child || x->child->kind != CHECK_TEXT)
        return (value){ 0 };
    const char *kind = x->child->text;
    const check_json *a = operand(x, 0), *b = operand(x, 1);
    if (!strcmp(kind, "int"))
        return number(a->i);
    if (!strcmp(kind, "bool"))
        return number(a->kind == CHECK_TRUE);
    if (!strcmp(kind, "call"))
        return call(e, x);
    if (!strcmp(kind, "in"))
        return eval_in(e, x);
    if (!strcmp(kind, "index")) {
        const value list = eval(e, a), at = eval(e, b);
        const int64_t i = at.i < 0 ? at.i + list.shape.n : at.i;
        return list.kind == SHAPE && at.kind == NUMBER && i >= 0 && i < list.shape.n ? number(list.shape.d[i]) : (value){ 0 };
    }
    if (a && a->kind == CHECK_TEXT)
        return name_value(e, kind, a->text);
    const value p = a ? eval(e, a) : (value){ 0 };
    if (!strcmp(kind, "not"))
        return p.kind == NUMBER ? number(!p.i) : p;
    if (!strcmp(kind, "neg"))
        return p.kind == NUMBER && p.i != INT64_MIN ? number(-p.i) : (value){ 0 };
    if (!strcmp(kind, "and") && p.kind == NUMBER && !p.i)
        return p;
    if (!strcmp(kind, "or") && p.kind == NUMBER && p.i)
        return p;
    const value q = b ? eval(e, b) : (value){ 0 };
    if (!strcmp(kind, "and") || !strcmp(kind, "or"))
        return p.kind == NUMBER && q.kind == NUMBER ? number(q.i != 0) : (value){ 0 };
    return binary(kind, &p, &q);
}

bool check_eval(const check_env *e, const check_json *expr, int64_t *out)
{
    const value v = eval(e, expr);
    *out = v.i;
    return v.kind == NUMBER;
}

bool check_eval_dtype(const check_env *e, const check_json *expr, dv_dtype *out)
{
    const value v = eval(e, expr);
    *out = v.dtype;
    return v.kind == DTYPE;
}

bool check_eval_dims(const check_env *e, const check_json *dims, check_shape *out)
{
    out->n = 0;
    for (const check_json *d = dims ? dims->child : NULL; d; d = d->next) {
        const value v = eval(e, d);
        const int32_t n = v.kind == SHAPE ? v.shape.n : 1;
        if (v.kind == NUMBER && v.i < 0)
            return false;
        if ((v.kind != NUMBER && v.kind != SHAPE) || out->n + n > CHECK_DIMS)
            return false;
        if (v.kind == NUMBER)
            out->d[out->n++] = v.i;
        for (int32_t i = 0; i < n && v.kind == SHAPE; i++)
            out->d[out->n++] = v.shape.d[i];
    }
    return true;
}
