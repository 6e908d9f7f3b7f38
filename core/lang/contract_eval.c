/* Evaluates a contract's program on one call's arguments, with exact 64-bit integers and without allocating. For a correct call
 * only the fused program (contract_fused.h) is evaluated. If it stops, the program's own steps are evaluated one by one from the
 * section's beginning, except those that only messages read. When a check fails, these follow, and the message is built from
 * their results. Both programs go through eval_try_fused_steps(), whose cases are the rows of ops.def. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored \
    "-Wanalyzer-null-dereference" /* an empty list has no array; the static analyzer does not know that its length is 0 */
#endif

#include "lang/contract_internal.h"
#include "lang/contract_fused.h"

#include <math.h>

/* ---- Operands ------------------------------------------------------------------------------------------------------------ */

/* Returns the register or literal of the step's input with index i. */
static inline const dv__reg *eval_get_input(const dv__evaluator *r, const dv__step *s, uint32_t i)
{
    return dv__eval_get_operand(r, dv__step_get_operands(s)[i]);
}

/* Returns room for n dims in the solution's pool. NULL: the pool is full; the error message is set. */
int64_t *dv__solution_reserve_sizes(const dv__evaluator *r, int32_t n)
{
    dv__solution *s = r->s;
    if (n < 0 || s->pool_count + n > DV__SHAPE_POOL_SIZE) {
        dv_fail(DV_ELIMIT, "%s: the results have more than %d dims together", r->c->name, DV__SHAPE_POOL_SIZE / 2);
        return NULL;
    }
    int64_t *p = s->pool + s->pool_count;
    s->pool_count += n;
    return p;
}

bool dv__value_is_present(const dv_value *value) { return value->type != DV_VALUE_NONE && value->type != DV_VALUE_DEFAULT; }

/* Returns a tensor, or the first tensor of a list that is not None. NULL: there is none. */
const dv_tensor *dv__value_find_first_tensor(const dv_value *value)
{
    if (value->type == DV_VALUE_TENSOR)
        return value->as.tensor;
    if (value->type == DV_VALUE_TENSORS)
        for (size_t i = 0; i < value->as.tensors.size; i++)
            if (value->as.tensors.data[i])
                return value->as.tensors.data[i];
    return NULL;
}

/* ---- Arguments: functions return false if the value is of another type than the schema's --------------------------------- */

/* Loads a value as this type into a register. Returns false if the value is of another type; for a string, None is loaded
 * instead. */
static bool value_try_load_to_register(const dv_value *v, enum dv__type_kind type, dv__reg *to)
{
    memset(to, 0, sizeof *to);
    switch (type) {
    case DV__TYPE_INT: to->i = v->as.i; return v->type == DV_VALUE_INT;
    case DV__TYPE_BOOL: to->i = v->type == DV_VALUE_BOOL && v->as.b; return v->type == DV_VALUE_BOOL;
    case DV__TYPE_NUMBER:
        to->is_real = v->type == DV_VALUE_FLOAT;
        to->i = v->type == DV_VALUE_BOOL ? v->as.b : v->as.i;
        if (to->is_real)
            to->f = v->as.f;
        return v->type == DV_VALUE_INT || v->type == DV_VALUE_BOOL || v->type == DV_VALUE_FLOAT;
    case DV__TYPE_STRING:
        if (v->type == DV_VALUE_STRING)
            to->s = v->as.s.data, to->n = (int32_t)v->as.s.size;
        return true;
    case DV__TYPE_DTYPE: to->dtype = v->as.dtype; return v->type == DV_VALUE_DTYPE;
    case DV__TYPE_DEVICE: to->device = v->as.device; return v->type == DV_VALUE_DEVICE;
    default:
        if (v->type == DV_VALUE_INTS) {
            to->sizes = v->as.ints.data;
            to->n = v->as.ints.size > INT32_MAX ? INT32_MAX : (int32_t)v->as.ints.size;
        }
        return v->type == DV_VALUE_INTS;
    }
}

/* Returns the key of the dtype that a number counts as in promote(). */
static uint32_t number_value_get_dtype_key(const dv_value *value)
{
    switch (value->type) {
    case DV_VALUE_INT: return DV_DTYPE_i64;
    case DV_VALUE_BOOL: return DV_DTYPE_bool;
    case DV_VALUE_COMPLEX: return DV_DTYPE_c64;
    default: return DV_DTYPE_f32;
    }
}

/* Computes the length of a list. Returns false if the value is no list. */
static bool value_try_get_list_length(const dv_value *v, int64_t *out)
{
    const bool is_list = dv__value_type_is_list(v->type);
    *out = is_list ? (int64_t)v->as.ints.size : 0;
    return is_list;
}

/* Returns element i of a list of tensors. NULL: the element is None, i is out of range, or v is no list of tensors. A value
 * that is one tensor gives NULL too. */
static const dv_tensor *value_find_list_tensor(const dv_value *v, int64_t i)
{
    return v->type == DV_VALUE_TENSORS && i >= 0 && (uint64_t)i < v->as.tensors.size ? v->as.tensors.data[i] : NULL;
}

/* ---- Dims ---------------------------------------------------------------------------------------------------------------- */

bool dv__dims_are_equal(const dv__reg *a, const dv__reg *b)
{
    if (a->n != b->n)
        return false;
    for (int32_t i = 0; i < a->n; i++)
        if (a->sizes[i] != b->sizes[i])
            return false;
    return true;
}

/* Broadcasts n shapes into sizes (DV_MAX_NDIM entries), to which *out points; out may be NULL. Returns false if they do not
 * broadcast. conflict: two sizes and the dim, counted from the end from 1. */
bool dv__dims_try_broadcast(const dv__reg *const *shapes, uint32_t n, dv__reg *out, int64_t *sizes, int64_t conflict[3])
{
    int32_t rank = 0;
    for (uint32_t i = 0; i < n; i++)
        rank = shapes[i]->n > rank ? shapes[i]->n : rank;
    for (int32_t i = 0; i < rank; i++)
        sizes[i] = 1;
    for (uint32_t i = 0; i < n; i++) {
        const dv__reg *one = shapes[i];
        for (int32_t k = 1; k <= one->n; k++) { /* shapes are aligned at the last dim */
            int64_t *size = &sizes[rank - k];
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
        out->sizes = sizes, out->n = rank;
    return true;
}

/* Broadcasts the shapes that are a step's inputs, into `to`. Returns false if they do not broadcast. */
static __attribute__((noinline)) bool eval_try_broadcast(const dv__evaluator *r, const dv__step *s, dv__reg *out, int64_t *to)
{
    const dv__reg *shapes[256];
    int64_t conflict[3];
    for (uint32_t i = 0; i < s->ninputs; i++)
        shapes[i] = eval_get_input(r, s, i);
    return dv__dims_try_broadcast(shapes, s->ninputs, out, to, conflict);
}

bool dv__axis_is_valid(int64_t dim, int64_t rank) { return dim >= -(rank > 1 ? rank : 1) && dim < (rank > 1 ? rank : 1); }
/* Returns a dim counted from 0 instead of from the end; 0 for a number that is no dim of the rank. */
int64_t dv__axis_normalize(int64_t dim, int64_t rank)
{
    return !dv__axis_is_valid(dim, rank) ? 0 : dim < 0 ? dim + (rank > 1 ? rank : 1) : dim;
}

/* True if each integer of a list is a dim of the rank. */
static bool axes_are_valid(const dv__reg *axes, int64_t rank)
{
    for (int32_t i = 0; i < axes->n; i++)
        if (!dv__axis_is_valid(axes->sizes[i], rank))
            return false;
    return true;
}

/* True if no two integers of a list mean the same dim of the rank. */
static bool axes_are_distinct(const dv__reg *axes, int64_t rank)
{
    uint64_t seen = 0;
    for (int32_t i = 0; i < axes->n; i++) {
        const uint64_t bit = 1ull << (dv__axis_normalize(axes->sizes[i], rank) & 63);
        if (seen & bit)
            return false;
        seen |= bit;
    }
    return true;
}

/* Writes reduced(from, axes, keepdim) to `sizes`, and the number of dims to out->n; the caller sets out->sizes. Other steps check
 * the axes. An empty list of axes means all dims. */
static void eval_reduce_unchecked(const dv__reg *from, const dv__reg *axes, bool keepdim, dv__reg *out, int64_t *sizes)
{
    uint64_t reduced_bits = axes->n ? 0 : UINT64_MAX;
    for (int32_t i = 0; i < axes->n; i++)
        reduced_bits |= 1ull << (dv__axis_normalize(axes->sizes[i], from->n) & 63);
    out->n = 0;
    for (int32_t i = 0; i < from->n; i++)
        if (!(reduced_bits >> (i & 63) & 1) || keepdim)
            sizes[out->n++] = reduced_bits >> (i & 63) & 1 ? 1 : from->sizes[i];
}

/* Writes the dims of `from` in the order of `axes`, which other steps check, to `sizes`, and their number to out->n; the caller
 * sets out->sizes. A missing axis gives 0. */
static void eval_permute_unchecked(const dv__reg *from, const dv__reg *axes, dv__reg *out, int64_t *sizes)
{
    out->n = from->n;
    for (int32_t i = 0; i < from->n; i++)
        sizes[i] = i < axes->n ? from->sizes[dv__axis_normalize(axes->sizes[i], from->n)] : 0;
}

/* Computes SWAP (of the dims a and b), REPLACE (of the dim a by the size b) or DROP (of the dim a) of `from`, into `sizes`,
 * and the number of dims to out->n. */
static void eval_swap_replace_drop(enum dv__opcode op, const dv__reg *from, int64_t a, int64_t b, dv__reg *out, int64_t *sizes)
{
    const int32_t n = from->n;
    out->n = 0;
    for (int32_t i = 0; i < n; i++)
        if (op != DV__OP_DROP || i != a)
            sizes[out->n++] = from->sizes[i];
    if (op == DV__OP_SWAP && a < n && b < n)
        sizes[a] = from->sizes[b], sizes[b] = from->sizes[a];
    if (op == DV__OP_REPLACE && a < n)
        sizes[a] = b;
}

/* Concatenates integers and dims. Returns false if the result has too many dims. */
static bool eval_try_pack(const dv__evaluator *r, const dv__step *s, dv__reg *out, int64_t *packed)
{
    const dv__operand *in = dv__step_get_operands(s);
    int32_t n = 0;
    for (uint32_t i = 0; i < s->ninputs; i++) {
        const dv__reg *x = dv__eval_get_operand(r, in[i]);
        const bool dims = dv__eval_get_operand_type(r, in[i]) == DV__TYPE_DIMS;
        const int64_t *sizes = dims ? x->sizes : &x->i;
        const int32_t more = dims ? x->n : 1;
        if (more > DV_MAX_NDIM - n)
            return false;
        for (int32_t k = 0; k < more; k++)
            packed[n++] = sizes[k];
    }
    out->n = n;
    return true;
}

/* Evaluates an operation that makes new dims, in the solution's pool: at most DV_MAX_NDIM, for which the pool has spare
 * capacity. Returns false on an error. */
static __attribute__((noinline)) bool eval_try_make_dims(dv__evaluator *r, const dv__step *s, dv__reg *to)
{
    const dv__reg *from = s->ninputs ? eval_get_input(r, s, 0) : NULL;
    int64_t *buffer = r->s->pool + r->s->pool_count;
    bool fits = true;
    to->n = 0;
    if (s->op == DV__OP_PACK)
        fits = eval_try_pack(r, s, to, buffer);
    else if (s->op == DV__OP_BROADCAST)
        fits = eval_try_broadcast(r, s, to, buffer);
    else if (from->n > DV_MAX_NDIM)
        fits = true;
    else if (s->op == DV__OP_REDUCED)
        eval_reduce_unchecked(from, dv__eval_get_operand(r, s->in[1]), dv__eval_get_operand(r, s->in[2])->i != 0, to, buffer);
    else if (s->op == DV__OP_PERMUTE)
        eval_permute_unchecked(from, dv__eval_get_operand(r, s->in[1]), to, buffer);
    else
        eval_swap_replace_drop((enum dv__opcode)s->op, from, dv__eval_get_operand(r, s->in[1])->i,
            s->ninputs > 2 ? dv__eval_get_operand(r, s->in[2])->i : 0, to, buffer);
    to->sizes = buffer;
    if (!dv__solution_reserve_sizes(r, to->n))
        r->status = DV_ELIMIT;
    return fits && !r->status;
}

/* Multiplies the sizes. Returns false if the product does not fit 64 bits; a size of 0 gives 0 whatever the others are. */
static bool eval_try_numel(const dv__reg *dims, int64_t *out)
{
    bool overflows = false;
    *out = 1;
    for (int32_t i = 0; i < dims->n; i++)
        if (!dims->sizes[i]) {
            *out = 0;
            return true;
        }
    for (int32_t i = 0; i < dims->n; i++)
        overflows |= __builtin_mul_overflow(*out, dims->sizes[i], out);
    return !overflows;
}

/* Sets *out to n of the dims `from`, from index start on. A start or n outside of the dims is limited to them. */
void dv__dims_slice(const dv__reg *from, int64_t start, int64_t n, dv__reg *out)
{
    start = start < 0 ? 0 : start > from->n ? from->n : start;
    n = n < 0 ? 0 : n > from->n - start ? from->n - start : n;
    out->sizes = n ? from->sizes + start : NULL; /* a 0-d tensor may have no shape */
    out->n = (int32_t)n;
}

/* ---- Numbers: functions return false if the result does not fit ---------------------------------------------------------- */

/* Divides, rounding up. Returns false for a divisor of 0 or if the result does not fit. */
static bool eval_try_ceildiv(int64_t a, int64_t b, int64_t *out)
{
    int64_t rest;
    if (!dv__int_try_floordiv(a, b, out))
        return false;
    *out += dv__int_try_floormod(a, b, &rest) && rest;
    return true;
}

/* Computes an operation on integers by its row in ops.def. Returns false if the result does not fit. */
static bool eval_try_int_arithmetic(enum dv__opcode op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
#define ARITHMETIC(id, name, ints, ...) \
    case DV__OP_##id: return ints;
#include "lang/ops.def"
    default: return false;
    }
}

/* Returns the result of an operation on real numbers, by its row in ops.def. */
static double eval_real_arithmetic(enum dv__opcode op, double a, double b)
{
    switch (op) {
#define ARITHMETIC(id, name, ints, reals, ...) \
    case DV__OP_##id: return reals;
#include "lang/ops.def"
    default: return 0;
    }
}

static double number_reg_to_double(const dv__reg *x) { return x->is_real ? x->f : (double)x->i; }

/* Returns an operand of type INT or NUMBER as a real number. */
static double eval_operand_as_double(const dv__evaluator *r, dv__operand x)
{
    const dv__reg *a = dv__eval_get_operand(r, x);
    return dv__eval_get_operand_type(r, x) == DV__TYPE_INT ? (double)a->i : number_reg_to_double(a);
}

/* Evaluates an arithmetic step of any type of numbers. Returns false if the result does not fit. */
static __attribute__((noinline)) bool eval_try_arithmetic(const dv__evaluator *r, const dv__step *s, dv__reg *to)
{
    const dv__reg *a = dv__eval_get_operand(r, s->in[0]), *b = s->ninputs > 1 ? dv__eval_get_operand(r, s->in[1]) : a;
    const enum dv__opcode op = (enum dv__opcode)s->op;
    if (s->type == DV__TYPE_INT)
        return eval_try_int_arithmetic(op, a->i, b->i, &to->i);
    if (s->type == DV__TYPE_NUMBER && !a->is_real && !b->is_real && op != DV__OP_DIV) {
        to->is_real = 0;
        return eval_try_int_arithmetic(op, a->i, b->i, &to->i);
    }
    to->f = s->type == DV__TYPE_REAL ? eval_real_arithmetic(op, a->f, b->f)
                                     : eval_real_arithmetic(op, number_reg_to_double(a), number_reg_to_double(b));
    to->is_real = 1;
    return true;
}

enum { UNORDERED = 2 };

/* Compares two numbers exactly, also an integer with a real. Returns -1, 0, 1 or, for NaN, UNORDERED. */
static int number_regs_compare(const dv__reg *a, const dv__reg *b)
{
    if (!a->is_real && !b->is_real)
        return (a->i > b->i) - (a->i < b->i);
    if (a->is_real && b->is_real)
        return a->f != a->f || b->f != b->f ? UNORDERED : (a->f > b->f) - (a->f < b->f);
    if (a->is_real) {
        const int order = number_regs_compare(b, a);
        return order == UNORDERED ? UNORDERED : -order;
    }
    if (b->f != b->f)
        return UNORDERED;
    if (b->f >= 0x1p63 || b->f < -0x1p63)
        return b->f > 0 ? -1 : 1;
    const int64_t truncated = (int64_t)b->f; /* rounded towards zero */
    if (a->i != truncated)
        return a->i < truncated ? -1 : 1;
    const double rest = b->f - (double)truncated;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

/* Returns the result of a comparison step, EQ to GE, for two registers. Strings, dtypes and dims can only be equal or not. */
__attribute__((noinline)) bool dv__eval_comparison(const dv__step *s, const dv__reg *a, const dv__reg *b)
{
    int order;
    switch (s->type) {
    case DV__TYPE_INT:
    case DV__TYPE_BOOL: order = (a->i > b->i) - (a->i < b->i); break;
    case DV__TYPE_NUMBER:
    case DV__TYPE_REAL: order = number_regs_compare(a, b); break;
    case DV__TYPE_STRING: order = !a->s || !b->s || a->n != b->n || memcmp(a->s, b->s, (size_t)a->n) != 0; break;
    case DV__TYPE_DTYPE: order = dv_dtype_key(a->dtype) != dv_dtype_key(b->dtype); break;
    default: order = !dv__dims_are_equal(a, b);
    }
    if (order == UNORDERED)
        return s->op == DV__OP_NE;
    switch (s->op) {
#define COMPARISON(id, name, operator, infers) \
    case DV__OP_##id: return order operator 0;
#include "lang/ops.def"
    default: return false;
    }
}

/* True if the dtype that is the step's first input equals one of its other inputs. */
static __attribute__((noinline)) bool eval_is_one_of(const dv__evaluator *r, const dv__step *s)
{
    const uint32_t key = dv_dtype_key(eval_get_input(r, s, 0)->dtype);
    for (uint32_t i = 1; i < s->ninputs; i++)
        if (dv_dtype_key(eval_get_input(r, s, i)->dtype) == key)
            return true;
    return false;
}

/* Returns the key of the dtype to which a step's inputs promote; 0: they do not. */
static __attribute__((noinline)) uint32_t eval_promoted_dtype_key(const dv__evaluator *r, const dv__step *s)
{
    uint32_t keys[128];
    int64_t priorities[128];
    for (uint32_t i = 0; i < s->ninputs / 2u; i++) {
        keys[i] = dv_dtype_key(eval_get_input(r, s, 2 * i)->dtype);
        priorities[i] = eval_get_input(r, s, 2 * i + 1)->i;
    }
    return dv__dtype_promoted_key(keys, priorities, s->ninputs / 2u, NULL);
}

/* ---- Steps --------------------------------------------------------------------------------------------------------------- */

/* Marks the variable of a register as bound. Does nothing for a register that is no variable. */
void dv__solution_set_bound(const dv__evaluator *r, dv__operand reg)
{
    const dv__contract *c = r->c;
    const uint32_t i = (uint32_t)reg;
    if (i < c->ndims)
        r->s->bound_dims |= 1ull << i;
    else if (i < c->ndims + c->nvariadics)
        r->s->bound_variadics |= 1u << (i - c->ndims);
    else if (i < c->ndims + c->nvariadics + c->ndtypes)
        r->s->bound_dtypes |= 1u << (i - c->ndims - c->nvariadics);
}

/* Loads a tensor and its device, dtype and shape into the registers of a fused step. Returns false if x is NULL. */
DV_INLINE bool fused_try_load_tensor(const dv__fused_step *q, const dv_tensor *x, dv__reg *registers)
{
    if (!x)
        return false;
    registers[q->to].tensor = x;
    registers[q->device].device = x->device;
    registers[q->dtype].dtype = x->dtype;
    registers[q->rank].i = x->ndim;
    registers[q->shape].sizes = x->shape;
    registers[q->shape].n = x->ndim;
    return true;
}

static int eval_list_block(dv__evaluator *r, const dv__step *block);
static int eval_elements_block(dv__evaluator *r, const dv__step *block);

/* Evaluates steps of a fused program. Returns false if a step fails, as defined in ops.def. */
static bool eval_try_fused_steps(dv__evaluator *r, const dv__fused_step *q, const dv__fused_step *end)
{
    dv__reg *const registers = r->s->registers;
    const dv__reg *const constants = r->program->constants;
    for (; q < end; q++) {
        switch ((enum dv__opcode)q->op) {
#define OPERAND(x) ((x) >= 0 ? &registers[x] : &constants[-1 - (x)])
#define TO (&registers[q->to])
#define A OPERAND(q->a)
#define B OPERAND(q->b)
#define C OPERAND(q->c)
#define ARG (&r->args[q->slot])
#define SET(field, ...) (TO->field = (__VA_ARGS__), true)
#define OP(id, name, reads, does, infers) \
    case DV__OP_##id:                     \
        if (!(does))                      \
            return false;                 \
        break;
#define FUSED(id, does)   \
    case DV__FUSED_##id:  \
        if (!(does))      \
            return false; \
        break;
#include "lang/ops.def"
#define ARITHMETIC(id, name, ints, ...)   \
    case DV__FUSED_##id: {                \
        const int64_t a = A->i, b = B->i; \
        int64_t *const out = &TO->i;      \
        (void)b;                          \
        if (!(ints))                      \
            return false;                 \
        break;                            \
    }
#include "lang/ops.def"
        default: __builtin_unreachable();
        }
    }
    return true;
}

bool dv__try_eval_fused(dv__evaluator *r, uint32_t begin, uint32_t end)
{
    const dv__program *p = r->program;
    return eval_try_fused_steps(r, p->fused + p->fused_step_index[begin], p->fused + p->fused_step_index[end]);
}

/* Evaluates one step that is no block. Returns false if the step fails, as defined in ops.def. */
bool dv__try_eval_step(dv__evaluator *r, const dv__step *s)
{
    const dv__fused_step one = { s->op, s->to, s->in[0], s->in[1], s->in[2], 0, 0, 0, 0, s->slot, s };
    return eval_try_fused_steps(r, &one, &one + 1);
}

/* Evaluates the section's steps before index `end` that only messages read. */
static void eval_message_steps(dv__evaluator *r, uint32_t end)
{
    for (uint32_t i = r->section_begin_step; i < end; i++) {
        const dv__step *s = &r->program->steps[i];
        const bool block = dv__step_is_block(s);
        if (block && end > i + (uint32_t)s->body_size)
            i += (uint32_t)s->body_size; /* a block that has ended is skipped: its registers hold the last element's values */
        if (block || !(s->flags & DV__STEP_MESSAGE_ONLY) || !dv__eval_get_operand(r, s->guard)->i)
            continue;
        if (!dv__try_eval_step(r, s) && s->op != DV__OP_PRESENT && s->op != DV__OP_HOLDS_TENSOR)
            r->s->registers[s->to].i = 0;
    }
}

/* Fails with the status and message of a step, after the steps that its message reads. */
static int eval_fail_with_step_error(dv__evaluator *r, const dv__step *s)
{
    eval_message_steps(r, (uint32_t)(s - r->program->steps));
    return dv__step_error_raise(r, s->error);
}

static int eval_unfused_steps(dv__evaluator *r, uint32_t begin, uint32_t end);

/* Evaluates a block's body once, in the fused or the unfused form. Returns a status. */
static int eval_block_body(dv__evaluator *r, const dv__step *block)
{
    const uint32_t begin = (uint32_t)(block - r->program->steps) + 1, end = begin + (uint32_t)block->body_size;
    return r->is_unfused ? eval_unfused_steps(r, begin, end) : dv__try_eval_fused(r, begin, end) ? DV_OK : DV_EINVAL;
}

/* Evaluates a block EACH: its body for each tensor of a list, None left out, and its sums. Returns a status. */
static int eval_list_block(dv__evaluator *r, const dv__step *block)
{
    dv__reg *registers = r->s->registers;
    const dv_value *value = &r->args[block->slot];
    const size_t n = value->type == DV_VALUE_TENSORS ? value->as.tensors.size : 0;
    bool first = true;
    for (uint32_t i = 0; i < block->ncarry; i++) {
        registers[block->carry[i].to] = *dv__eval_get_operand(r, block->carry[i].from);
        dv__solution_set_bound(r, block->carry[i].to);
    }
    for (size_t i = 0; i < n; i++) {
        if (!value->as.tensors.data[i])
            continue;
        registers[block->to].tensor = value->as.tensors.data[i];
        registers[block->index].i = (int64_t)i;
        registers[block->first].i = first;
        const int status = eval_block_body(r, block);
        if (status)
            return status;
        for (uint32_t k = 0; k < block->ncarry; k++)
            registers[block->carry[k].to] = *dv__eval_get_operand(r, block->carry[k].next);
        first = false;
    }
    return DV_OK;
}

/* Evaluates the program's own steps from begin to end, except those that only messages read. Returns the first failed step's
 * status. */
static int eval_unfused_steps(dv__evaluator *r, uint32_t begin, uint32_t end)
{
    const dv__step *const steps = r->program->steps;
    for (const dv__step *s = steps + begin, *last = steps + end; s < last; s++) {
        if (s->flags & DV__STEP_MESSAGE_ONLY)
            continue;
        if (s->guard != DV__ALWAYS && !dv__eval_get_operand(r, s->guard)->i) {
            s += s->body_size;
            continue;
        }
        const int32_t body_size = s->body_size;
        const int status = s->op == DV__OP_EACH_TENSOR ? eval_list_block(r, s)
            : s->op == DV__OP_EACH_VALUE               ? eval_elements_block(r, s)
            : dv__try_eval_step(r, s)                  ? DV_OK
            : r->status                                ? r->status
            : s->error                                 ? eval_fail_with_step_error(r, s)
                                                       : DV_OK;
        if (status)
            return status;
        s += body_size;
    }
    return DV_OK;
}

/* ---- The elements of a tensor -------------------------------------------------------------------------------------------- */

/* Reads the element at an offset of a CPU tensor. Returns false for a dtype that cannot be read. */
static bool tensor_try_read_element_to_register(const dv_tensor *x, int64_t i, dv__reg *to)
{
    const uint32_t key = dv_dtype_key(x->dtype);
    to->is_real = 0;
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
        to->is_real = u > INT64_MAX;
        if (to->is_real)
            to->f = (double)u;
        else
            to->i = (int64_t)u;
        return true;
    }
    case DV_DTYPE_f64:
        to->is_real = 1;
        to->f = ((const double *)x->data)[i];
        return true;
    case DV_DTYPE_f32:
    case DV_DTYPE_f16:
    case DV_DTYPE_bf16:
        to->is_real = 1;
        to->f = (double)dv_get(x->data, i, key);
        return true;
    default: return false;
    }
}

/* Evaluates a block EACH_VALUE: its body for every element of a CPU tensor, in check mode only. Returns the first failed
 * check's status. */
static int eval_elements_block(dv__evaluator *r, const dv__step *block)
{
    const dv_tensor *x = dv__eval_get_operand(r, block->in[0])->tensor;
    int64_t index[DV_MAX_NDIM] = { 0 }, at = 0;
    dv__reg before = { 0 };
    if (!r->check_values || !x || x->device.type != DV_CPU || !x->data)
        return DV_OK;
    for (int32_t i = 0; i < x->ndim; i++)
        if (!x->shape[i])
            return DV_OK;
    r->element_index = index;
    r->element_ndim = x->ndim;
    for (;;) {
        if (!tensor_try_read_element_to_register(x, at, &r->s->registers[block->to]))
            return DV_OK;
        if (block->index >= 0)
            r->s->registers[block->index] = x->ndim && index[x->ndim - 1] ? before : r->s->registers[block->to];
        before = r->s->registers[block->to];
        const int status = eval_block_body(r, block);
        if (status)
            return status;
        int32_t d = x->ndim - 1; /* advances to the next element; the last dim is the fastest */
        for (; d >= 0 && ++index[d] == x->shape[d]; d--) {
            at -= (x->shape[d] - 1) * x->strides[d];
            index[d] = 0;
        }
        if (d < 0)
            return DV_OK;
        at += x->strides[d];
    }
}

/* Evaluates the steps from begin to end: the fused form, then, if that fails, the unfused steps, which give the error. Returns
 * a status. */
int dv__eval_steps(dv__evaluator *r, uint32_t begin, uint32_t end)
{
    const int32_t used = r->s->pool_count;
    r->is_unfused = false;
    if (dv__try_eval_fused(r, begin, end))
        return DV_OK;
    r->s->pool_count = used;
    r->is_unfused = true;
    r->status = DV_OK;
    r->section_begin_step = begin;
    return eval_unfused_steps(r, begin, end);
}

int dv__eval_section(dv__evaluator *r, const dv__section *section) { return dv__eval_steps(r, section->begin, section->end); }
