/* Runs a contract's program on one call's arguments, with exact 64-bit integers and without allocating. For a correct call only
 * the quick steps (contract_quick.h) run. If they stop, the plain steps run from the section's beginning, except those that only
 * messages read; when a check fails, these run too, and the message is built from their results. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored \
    "-Wanalyzer-null-dereference" /* an empty list has no array; the static analyzer does not know that its length is 0 */
#endif

#include "lang/contract_internal.h"
#include "lang/contract_quick.h"

#include <math.h>

/* ---- Operands ---------------------------------------------------------------------------------------------------------- */

static inline const dv__reg *operand(const dv__run *r, const dv__step *s, uint32_t i)
{
    return dv__read(r, s->many ? s->many[i] : s->in[i]);
}

/* Room for n dims, or NULL: an error. */
int64_t *dv__reserve(const dv__run *r, int32_t n)
{
    dv__solution *s = r->s;
    if (n < 0 || s->pool_used + n > DV__SHAPE_POOL) {
        dv_fail(DV_ELIMIT, "%s: the outputs have more than %d dims together", r->c->name, DV__SHAPE_POOL / 2);
        return NULL;
    }
    int64_t *p = s->pool + s->pool_used;
    s->pool_used += n;
    return p;
}

bool dv__is_present(const dv_value *value) { return value->type != DV_VALUE_NONE && value->type != DV_VALUE_DEFAULT; }

const dv_tensor *dv__first_tensor(const dv_value *value)
{
    if (value->type == DV_VALUE_TENSOR)
        return value->as.tensor;
    if (value->type == DV_VALUE_TENSORS)
        for (size_t i = 0; i < value->as.tensors.size; i++)
            if (value->as.tensors.data[i])
                return value->as.tensors.data[i];
    return NULL;
}

/* ---- Arguments: false where the value is of another type than the schema's ----------------------------------------------- */

static bool load_argument(const dv_value *v, enum dv__rtype type, dv__reg *to)
{
    memset(to, 0, sizeof *to);
    switch (type) {
    case DV__RTYPE_INT: to->i = v->as.i; return v->type == DV_VALUE_INT;
    case DV__RTYPE_BOOL: to->i = v->type == DV_VALUE_BOOL && v->as.b; return v->type == DV_VALUE_BOOL;
    case DV__RTYPE_NUMBER:
        to->real = v->type == DV_VALUE_FLOAT;
        to->i = v->type == DV_VALUE_BOOL ? v->as.b : v->as.i;
        if (to->real)
            to->f = v->as.f;
        return v->type == DV_VALUE_INT || v->type == DV_VALUE_BOOL || v->type == DV_VALUE_FLOAT;
    case DV__RTYPE_STRING:
        if (v->type == DV_VALUE_STRING)
            to->s = v->as.s.data, to->n = (int32_t)v->as.s.size;
        return true;
    case DV__RTYPE_DTYPE: to->dtype = v->as.dtype; return v->type == DV_VALUE_DTYPE;
    case DV__RTYPE_DEVICE: to->device = v->as.device; return v->type == DV_VALUE_DEVICE;
    default:
        if (v->type == DV_VALUE_INTS) {
            to->sizes = v->as.ints.data;
            to->n = v->as.ints.size > INT32_MAX ? INT32_MAX : (int32_t)v->as.ints.size;
        }
        return v->type == DV_VALUE_INTS;
    }
}

static uint32_t type_of_number(const dv_value *value)
{
    switch (value->type) {
    case DV_VALUE_INT: return DV_DTYPE_i64;
    case DV_VALUE_BOOL: return DV_DTYPE_bool;
    case DV_VALUE_COMPLEX: return DV_DTYPE_c64;
    default: return DV_DTYPE_f32;
    }
}

static bool load(const dv__run *r, const dv__step *s, dv__reg *to)
{
    const dv_value *v = &r->args[s->slot];
    switch (s->op) {
    case DV__OP_PRESENT: to->i = dv__is_present(v); return true;
    case DV__OP_HOLDS: to->i = dv__first_tensor(v) != NULL; return v->type == DV_VALUE_TENSORS;
    case DV__OP_TENSOR: to->tensor = dv__first_tensor(v); return v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS;
    case DV__OP_LEN: to->i = dv__is_list(v->type) ? (int64_t)v->as.ints.size : 0; return dv__is_list(v->type);
    case DV__OP_NUMBER_DTYPE: to->dtype = dv_dtype_from_key(type_of_number(v)); return true;
    default: return load_argument(v, (enum dv__rtype)s->type, to);
    }
}

/* ---- Dims ---------------------------------------------------------------------------------------------------------------- */

bool dv__same_dims(const dv__reg *a, const dv__reg *b)
{
    if (a->n != b->n)
        return false;
    for (int32_t i = 0; i < a->n; i++)
        if (a->sizes[i] != b->sizes[i])
            return false;
    return true;
}

/* to: room for DV_MAX_NDIM. conflict: on failure, two sizes and the dim. */
bool dv__broadcast(const dv__reg *const *shapes, uint32_t n, dv__reg *out, int64_t *to, int64_t conflict[3])
{
    int32_t rank = 0;
    for (uint32_t i = 0; i < n; i++)
        rank = shapes[i]->n > rank ? shapes[i]->n : rank;
    for (int32_t i = 0; i < rank; i++)
        to[i] = 1;
    for (uint32_t i = 0; i < n; i++) {
        const dv__reg *one = shapes[i];
        for (int32_t k = 1; k <= one->n; k++) { /* aligned at the end */
            int64_t *size = &to[rank - k];
            const int64_t from = one->sizes[one->n - k];
            if (from == *size || from == 1)
                continue;
            if (*size != 1) {
                conflict[0] = *size, conflict[1] = from, conflict[2] = k;
                return false;
            }
            *size = from;
        }
    }
    if (out)
        out->sizes = to, out->n = rank;
    return true;
}

static bool broadcast(const dv__run *r, const dv__step *s, dv__reg *out, int64_t *to)
{
    const dv__reg *shapes[256];
    int64_t conflict[3];
    for (uint32_t i = 0; i < s->nin; i++)
        shapes[i] = operand(r, s, i);
    return dv__broadcast(shapes, s->nin, out, to, conflict);
}

bool dv__is_axis(int64_t dim, int64_t rank) { return dim >= -(rank > 1 ? rank : 1) && dim < (rank > 1 ? rank : 1); }
int64_t dv__axis_from(int64_t dim, int64_t rank)
{
    return !dv__is_axis(dim, rank) ? 0 : dim < 0 ? dim + (rank > 1 ? rank : 1) : dim;
}

static bool are_axes(const dv__reg *axes, int64_t rank)
{
    for (int32_t i = 0; i < axes->n; i++)
        if (!dv__is_axis(axes->sizes[i], rank))
            return false;
    return true;
}

static bool distinct_axes(const dv__reg *axes, int64_t rank)
{
    uint64_t seen = 0;
    for (int32_t i = 0; i < axes->n; i++) {
        const uint64_t bit = 1ull << (dv__axis_from(axes->sizes[i], rank) & 63);
        if (seen & bit)
            return false;
        seen |= bit;
    }
    return true;
}

static void reduced(const dv__reg *from, const dv__reg *axes, bool keep, dv__reg *out, int64_t *to)
{
    uint64_t gone = axes->n ? 0 : UINT64_MAX;
    for (int32_t i = 0; i < axes->n; i++)
        gone |= 1ull << (dv__axis_from(axes->sizes[i], from->n) & 63);
    out->n = 0;
    for (int32_t i = 0; i < from->n; i++)
        if (!(gone >> (i & 63) & 1) || keep)
            to[out->n++] = gone >> (i & 63) & 1 ? 1 : from->sizes[i];
    out->sizes = to;
}

static void permuted(const dv__reg *from, const dv__reg *axes, dv__reg *out, int64_t *to)
{
    out->n = from->n;
    for (int32_t i = 0; i < from->n; i++)
        to[i] = i < axes->n ? from->sizes[dv__axis_from(axes->sizes[i], from->n)] : 0;
}

/* SWAP, REPLACE: from with two dims changed; DROP: without the dim a. */
static void changed(enum dv__op op, const dv__reg *from, int64_t a, int64_t b, dv__reg *out, int64_t *to)
{
    const int32_t n = from->n;
    out->n = 0;
    for (int32_t i = 0; i < n; i++)
        if (op != DV__OP_DROP || i != a)
            to[out->n++] = from->sizes[i];
    if (op == DV__OP_SWAP && a < n && b < n)
        to[a] = from->sizes[b], to[b] = from->sizes[a];
    if (op == DV__OP_REPLACE && a < n)
        to[a] = b;
}

/* Concatenate integers and dims. False: too many. */
static bool pack(const dv__run *r, const dv__step *s, dv__reg *out, int64_t *to)
{
    const dv__operand *in = s->many ? s->many : s->in;
    int32_t n = 0;
    for (uint32_t i = 0; i < s->nin; i++) {
        const dv__reg *x = dv__read(r, in[i]);
        const bool dims = dv__operand_type(r, in[i]) == DV__RTYPE_DIMS;
        const int64_t *sizes = dims ? x->sizes : &x->i;
        const int32_t more = dims ? x->n : 1;
        if (more > DV_MAX_NDIM - n)
            return false;
        for (int32_t k = 0; k < more; k++)
            to[n++] = sizes[k];
    }
    out->n = n;
    return true;
}

/* Operations that make new dims, in the solution's pool: at most DV_MAX_NDIM, for which the pool has spare room. */
bool dv__make_dims(dv__run *r, const dv__step *s)
{
    dv__reg *to = &r->s->registers[s->to];
    const dv__reg *from = s->nin ? operand(r, s, 0) : NULL;
    int64_t *room = r->s->pool + r->s->pool_used;
    bool fits = true;
    to->n = 0;
    if (s->op == DV__OP_PACK)
        fits = pack(r, s, to, room);
    else if (s->op == DV__OP_BROADCAST)
        fits = broadcast(r, s, to, room);
    else if (from->n > DV_MAX_NDIM)
        fits = true;
    else if (s->op == DV__OP_REDUCED)
        reduced(from, dv__read(r, s->in[1]), dv__read(r, s->in[2])->i != 0, to, room);
    else if (s->op == DV__OP_PERMUTE)
        permuted(from, dv__read(r, s->in[1]), to, room);
    else
        changed((enum dv__op)s->op, from, dv__read(r, s->in[1])->i, s->nin > 2 ? dv__read(r, s->in[2])->i : 0, to, room);
    to->sizes = room;
    if (!dv__reserve(r, to->n))
        r->status = DV_ELIMIT;
    return fits;
}

static bool numel(const dv__reg *dims, int64_t *out)
{
    bool over = false;
    *out = 1;
    for (int32_t i = 0; i < dims->n; i++)
        if (!dims->sizes[i]) {
            *out = 0;
            return true;
        }
    for (int32_t i = 0; i < dims->n; i++)
        over |= __builtin_mul_overflow(*out, dims->sizes[i], out);
    return !over;
}

void dv__slice(const dv__reg *from, int64_t start, int64_t n, dv__reg *out)
{
    start = start < 0 ? 0 : start > from->n ? from->n : start;
    n = n < 0 ? 0 : n > from->n - start ? from->n - start : n;
    out->sizes = n ? from->sizes + start : NULL; /* a 0-d tensor may have no shape */
    out->n = (int32_t)n;
}

/* ---- Numbers: false when the result does not fit --------------------------------------------------------------------------- */

static bool integer(enum dv__op op, int64_t a, int64_t b, int64_t *out)
{
    int64_t rest;
    switch (op) {
    case DV__OP_ADD: return !__builtin_add_overflow(a, b, out);
    case DV__OP_SUB: return !__builtin_sub_overflow(a, b, out);
    case DV__OP_MUL: return !__builtin_mul_overflow(a, b, out);
    case DV__OP_NEG: return !__builtin_sub_overflow(0, a, out);
    case DV__OP_ABS: *out = a; return a >= 0 || !__builtin_sub_overflow(0, a, out);
    case DV__OP_MIN: *out = a < b ? a : b; return true;
    case DV__OP_MAX: *out = a > b ? a : b; return true;
    case DV__OP_MOD: return dv__floormod(a, b, out);
    case DV__OP_FLOORDIV: return dv__floordiv(a, b, out);
    default: /* CEILDIV */
        if (!dv__floordiv(a, b, out))
            return false;
        *out += dv__floormod(a, b, &rest) && rest;
        return true;
    }
}

static double real(enum dv__op op, double a, double b)
{
    switch (op) {
    case DV__OP_ADD: return a + b;
    case DV__OP_SUB: return a - b;
    case DV__OP_MUL: return a * b;
    case DV__OP_NEG: return -a;
    case DV__OP_FLOORDIV: return floor(a / b);
    default: return a / b;
    }
}

static double as_real(const dv__reg *x) { return x->real ? x->f : (double)x->i; }

static bool arithmetic(const dv__run *r, const dv__step *s, dv__reg *to)
{
    const dv__reg *a = dv__read(r, s->in[0]), *b = s->nin > 1 ? dv__read(r, s->in[1]) : a;
    if (s->type == DV__RTYPE_INT)
        return integer((enum dv__op)s->op, a->i, b->i, &to->i);
    if (s->type == DV__RTYPE_NUMBER && !a->real && !b->real && s->op != DV__OP_DIV) {
        to->real = 0;
        return integer((enum dv__op)s->op, a->i, b->i, &to->i);
    }
    to->f = s->type == DV__RTYPE_REAL ? real((enum dv__op)s->op, a->f, b->f) : real((enum dv__op)s->op, as_real(a), as_real(b));
    to->real = 1;
    return true;
}

/* Exact between an integer and a real: -1, 0, 1; 2 when unordered. */
static int compare_numbers(const dv__reg *a, const dv__reg *b)
{
    if (!a->real && !b->real)
        return (a->i > b->i) - (a->i < b->i);
    if (a->real && b->real)
        return a->f != a->f || b->f != b->f ? 2 : (a->f > b->f) - (a->f < b->f);
    if (a->real) {
        const int order = compare_numbers(b, a);
        return order == 2 ? 2 : -order;
    }
    if (b->f != b->f)
        return 2;
    if (b->f >= 0x1p63 || b->f < -0x1p63)
        return b->f > 0 ? -1 : 1;
    const int64_t whole = (int64_t)b->f; /* towards zero */
    if (a->i != whole)
        return a->i < whole ? -1 : 1;
    const double rest = b->f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

bool dv__compare(const dv__step *s, const dv__reg *a, const dv__reg *b)
{
    int order;
    switch (s->type) {
    case DV__RTYPE_INT:
    case DV__RTYPE_BOOL: order = (a->i > b->i) - (a->i < b->i); break;
    case DV__RTYPE_NUMBER:
    case DV__RTYPE_REAL: order = compare_numbers(a, b); break;
    case DV__RTYPE_STRING: order = !a->s || !b->s || a->n != b->n || memcmp(a->s, b->s, (size_t)a->n) != 0; break;
    case DV__RTYPE_DTYPE: order = dv_dtype_key(a->dtype) != dv_dtype_key(b->dtype); break;
    default: order = !dv__same_dims(a, b);
    }
    switch (s->op) {
    case DV__OP_EQ: return order == 0;
    case DV__OP_NE: return order != 0;
    case DV__OP_LT: return order == -1;
    case DV__OP_LE: return order == -1 || order == 0;
    case DV__OP_GT: return order == 1;
    default: return order == 1 || order == 0;
    }
}

static bool one_of(const dv__run *r, const dv__step *s)
{
    const uint32_t key = dv_dtype_key(operand(r, s, 0)->dtype);
    for (uint32_t i = 1; i < s->nin; i++)
        if (dv_dtype_key(operand(r, s, i)->dtype) == key)
            return true;
    return false;
}

static uint32_t promoted(const dv__run *r, const dv__step *s)
{
    uint32_t keys[128];
    int64_t sorts[128];
    for (uint32_t i = 0; i < s->nin / 2u; i++) {
        keys[i] = dv_dtype_key(operand(r, s, 2 * i)->dtype);
        sorts[i] = operand(r, s, 2 * i + 1)->i;
    }
    return dv__promote(keys, sorts, s->nin / 2u, NULL);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------------------- */

void dv__note_bound(const dv__run *r, dv__operand to)
{
    const dv__contract *c = r->c;
    const uint32_t i = (uint32_t)to;
    if (i < c->ndims)
        r->s->bound_dims |= 1ull << i;
    else if (i < c->ndims + c->nruns)
        r->s->bound_runs |= 1u << (i - c->ndims);
    else if (i < c->ndims + c->nruns + c->ndtypes)
        r->s->bound_dtypes |= 1u << (i - c->ndims - c->nruns);
}

/* Run one step that is neither a check nor a block. False: the result does not fit, or there is no value. Another error is in
 * r->status.
 */
bool dv__operate(dv__run *r, const dv__step *s)
{
    dv__reg *to = &r->s->registers[s->to];
    const dv__reg *a = s->nin ? operand(r, s, 0) : NULL;
    switch ((enum dv__op)s->op) {
    case DV__OP_SHAPE:
    case DV__OP_STRIDES:
        to->n = a->tensor ? a->tensor->ndim : 0;
        to->sizes = !a->tensor ? NULL : s->op == DV__OP_SHAPE ? a->tensor->shape : a->tensor->strides;
        return true;
    case DV__OP_DTYPE_OF: to->dtype = a->tensor ? a->tensor->dtype : dv_dtype_from_key(DV_DTYPE_bool); return true;
    case DV__OP_DEVICE_OF: to->device = a->tensor ? a->tensor->device : (dv_device){ DV_CPU, 0 }; return true;
    case DV__OP_ELEMENT: {
        const dv_value *list = &r->args[s->slot];
        to->tensor = list->type == DV_VALUE_TENSORS && a->i >= 0 && (uint64_t)a->i < list->as.tensors.size
            ? list->as.tensors.data[a->i]
            : NULL;
        return true;
    }
#define TO to
#define A a
#define B dv__read(r, s->in[1])
#define C dv__read(r, s->in[2])
#define SIMPLE(id, statement) \
    case DV__OP_##id: statement; return true;
        DV__SIMPLE_OPS(SIMPLE)
    case DV__OP_AT: to->i = dv__size_at(a, dv__read(r, s->in[1])->i); return true;
    case DV__OP_SAME_DEVICE: to->i = dv__same_device(a->device, dv__read(r, s->in[1])->device); return true;
    case DV__OP_COPY:
        *to = *a;
        dv__note_bound(r, s->to);
        return true;
    case DV__OP_NUMEL: return numel(a, &to->i);
    case DV__OP_BROADCASTS: to->i = broadcast(r, s, NULL, r->s->pool + r->s->pool_used); return true;
    case DV__OP_PACK:
    case DV__OP_BROADCAST:
    case DV__OP_REDUCED:
    case DV__OP_SWAP:
    case DV__OP_PERMUTE:
    case DV__OP_REPLACE:
    case DV__OP_DROP: return dv__make_dims(r, s);
    case DV__OP_ARE_AXES: to->i = are_axes(a, dv__read(r, s->in[1])->i); return true;
    case DV__OP_DISTINCT_AXES: to->i = distinct_axes(a, dv__read(r, s->in[1])->i); return true;
    case DV__OP_TO_NUMBER:
        to->i = a->i;
        to->real = 0;
        return true;
    case DV__OP_TO_REAL:
        to->f = dv__operand_type(r, s->in[0]) == DV__RTYPE_INT ? (double)a->i : as_real(a);
        to->real = 1;
        return true;
    case DV__OP_EQ:
    case DV__OP_NE:
    case DV__OP_LT:
    case DV__OP_LE:
    case DV__OP_GT:
    case DV__OP_GE: to->i = dv__compare(s, a, dv__read(r, s->in[1])); return true;
    case DV__OP_ONE_OF: to->i = one_of(r, s); return true;
    case DV__OP_ON_CPU: to->i = a->device.type == DV_CPU; return true;
    case DV__OP_PROMOTES: to->i = promoted(r, s) != 0; return true;
    case DV__OP_PROMOTE: to->dtype = dv_dtype_from_key(promoted(r, s)); return dv_dtype_key(to->dtype) != 0;
    case DV__OP_ACCUMULATE: to->dtype = dv_dtype_from_key(dv__accumulate(dv_dtype_key(a->dtype))); return true;
    case DV__OP_ITEMSIZE: to->i = dv_dtype_bytes(a->dtype, 1); return true;
    case DV__OP_UNBACKED:
        *to = *dv__read(r, s->in[1]);
        dv__note_bound(r, s->to);
        return true;
    case DV__OP_PRESENT:
    case DV__OP_HOLDS:
    case DV__OP_TENSOR:
    case DV__OP_ARGUMENT:
    case DV__OP_LEN:
    case DV__OP_NUMBER_DTYPE: return load(r, s, to);
    default: return arithmetic(r, s, to);
    }
}

/* Run the steps before `at` that only messages read, if they have not run yet. */
static void do_the_rest(dv__run *r, uint32_t at)
{
    for (uint32_t i = r->begin; i < at; i++) {
        const dv__step *s = &r->program->steps[i];
        const bool block = s->op == DV__OP_EACH || s->op == DV__OP_EACH_VALUE;
        if (block && at > i + (uint32_t)s->body)
            i += (uint32_t)s->body; /* its registers are not what they were */
        if (block || !(s->flags & DV__STEP_SAY) || !dv__read(r, s->guard)->i)
            continue;
        if (!dv__operate(r, s) && s->op != DV__OP_PRESENT && s->op != DV__OP_HOLDS)
            r->s->registers[s->to].i = 0;
    }
}

static int fail(dv__run *r, const dv__step *s)
{
    do_the_rest(r, (uint32_t)(s - r->program->steps));
    return dv__fault_raise(r, s->fault);
}

static int run_steps(dv__run *r, uint32_t begin, uint32_t end);

static int run_body(dv__run *r, const dv__step *s)
{
    const uint32_t begin = (uint32_t)(s - r->program->steps) + 1, end = begin + (uint32_t)s->body;
    return r->plainly ? run_steps(r, begin, end) : dv__run_quick(r, begin, end) ? DV_OK : DV_EINVAL;
}

static int run_each(dv__run *r, const dv__step *s)
{
    dv__reg *registers = r->s->registers;
    const dv_value *value = &r->args[s->slot];
    const size_t n = value->type == DV_VALUE_TENSORS ? value->as.tensors.size : 0;
    bool first = true;
    for (uint32_t i = 0; i < s->ncarry; i++) {
        registers[s->carry[i].to] = *dv__read(r, s->carry[i].from);
        dv__note_bound(r, s->carry[i].to);
    }
    for (size_t i = 0; i < n; i++) {
        if (!value->as.tensors.data[i])
            continue;
        registers[s->to].tensor = value->as.tensors.data[i];
        registers[s->index].i = (int64_t)i;
        registers[s->first].i = first;
        const int status = run_body(r, s);
        if (status)
            return status;
        for (uint32_t k = 0; k < s->ncarry; k++)
            registers[s->carry[k].to] = *dv__read(r, s->carry[k].next);
        first = false;
    }
    return DV_OK;
}

static int run_steps(dv__run *r, uint32_t begin, uint32_t end)
{
    const dv__step *const steps = r->program->steps;
    for (const dv__step *s = steps + begin, *last = steps + end; s < last; s++) {
        if (s->flags & DV__STEP_SAY)
            continue;
        if (s->guard != DV__ALWAYS && !dv__read(r, s->guard)->i) {
            s += s->body;
            continue;
        }
        int status = DV_OK;
        if (s->op == DV__OP_CHECK) {
            if (!dv__read(r, s->in[0])->i)
                return fail(r, s);
            continue;
        }
        if (s->op == DV__OP_EACH || s->op == DV__OP_EACH_VALUE) {
            status = dv__run_block(r, s);
            s += s->body;
        } else if (!dv__operate(r, s) && s->fault) {
            return fail(r, s);
        }
        if (status || r->status)
            return status ? status : r->status;
    }
    return DV_OK;
}

/* ---- The values of a tensor ------------------------------------------------------------------------------------------------ */

static bool read_element(const dv_tensor *x, int64_t i, dv__reg *to)
{
    const uint32_t key = dv_dtype_key(x->dtype);
    to->real = 0;
    switch (key) {
#define INTEGER(name, T) \
    case DV_DTYPE_##name: to->i = (int64_t)((const T *)x->data)[i]; return true;
        /* clang-format off */
    INTEGER(i8, int8_t) INTEGER(i16, int16_t) INTEGER(i32, int32_t) INTEGER(i64, int64_t)
    INTEGER(u8, uint8_t) INTEGER(u16, uint16_t) INTEGER(u32, uint32_t) INTEGER(bool, uint8_t)
/* clang-format on */
#undef INTEGER
            case DV_DTYPE_u64: {
        const uint64_t u = ((const uint64_t *)x->data)[i];
        to->real = u > INT64_MAX;
        if (to->real)
            to->f = (double)u;
        else
            to->i = (int64_t)u;
        return true;
    }
    case DV_DTYPE_f64:
        to->real = 1;
        to->f = ((const double *)x->data)[i];
        return true;
    case DV_DTYPE_f32:
    case DV_DTYPE_f16:
    case DV_DTYPE_bf16:
        to->real = 1;
        to->f = (double)dv_get(x->data, i, key);
        return true;
    default: return false;
    }
}

/* Run the body for every element of a CPU tensor. */
static int run_values(dv__run *r, const dv__step *s)
{
    const dv_tensor *x = dv__read(r, s->in[0])->tensor;
    int64_t index[DV_MAX_NDIM] = { 0 }, at = 0;
    dv__reg before = { 0 };
    if (!r->values || !x || x->device.type != DV_CPU || !x->data)
        return DV_OK;
    for (int32_t i = 0; i < x->ndim; i++)
        if (!x->shape[i])
            return DV_OK;
    r->position = index;
    r->position_rank = x->ndim;
    for (;;) {
        if (!read_element(x, at, &r->s->registers[s->to]))
            return DV_OK;
        if (s->index >= 0)
            r->s->registers[s->index] = x->ndim && index[x->ndim - 1] ? before : r->s->registers[s->to];
        before = r->s->registers[s->to];
        const int status = run_body(r, s);
        if (status)
            return status;
        int32_t d = x->ndim - 1; /* the next index, last dim fastest */
        for (; d >= 0 && ++index[d] == x->shape[d]; d--) {
            at -= (x->shape[d] - 1) * x->strides[d];
            index[d] = 0;
        }
        if (d < 0)
            return DV_OK;
        at += x->strides[d];
    }
}

int dv__run_block(dv__run *r, const dv__step *s) { return s->op == DV__OP_EACH ? run_each(r, s) : run_values(r, s); }

int dv__run_steps(dv__run *r, uint32_t begin, uint32_t end)
{
    const int32_t used = r->s->pool_used;
    r->plainly = false;
    if (dv__run_quick(r, begin, end))
        return DV_OK;
    r->s->pool_used = used;
    r->plainly = true;
    r->status = DV_OK;
    r->begin = begin;
    return run_steps(r, begin, end);
}

int dv__run_section(dv__run *r, const dv__section *section) { return dv__run_steps(r, section->begin, section->end); }
