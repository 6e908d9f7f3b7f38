/* Partial inference: evaluates a contract's program on arguments of which not everything is known.
 *
 * Abstract interpretation with constraint propagation: each register, literal and property of an argument has an abstract value,
 * the set of values that it may have in a call that succeeds. A step propagates forward and backward: its operands narrow its
 * result, and its result narrows its operands. Passes in both directions repeat until a fixpoint. A step whose guard is unknown
 * narrows its result only; a step that cannot succeed makes its guard false. A step with exact operands is evaluated by
 * contract_eval.c. A worklist has the steps whose values have changed. */
#include <assert.h>

#include "lang/contract_internal.h"
#include "lang/range.h"

enum {
    MAX_PASSES = 64,
    OTHER_DTYPE_BIT = 63,
    NO_SIZES = -1,
    MAX_LIST_TENSORS_VISITED = 64 /* the most tensors of a returned list that are inferred */
};

/* Properties of an argument, or of one tensor of an argument that is a list. The NPROPERTIES abstract values of one argument or
 * tensor are consecutive in dv__partial.values. */
enum property {
    PROPERTY_PRESENT,
    PROPERTY_VALUE,
    PROPERTY_SHAPE,
    PROPERTY_STRIDES,
    PROPERTY_DTYPE,
    PROPERTY_DEVICE,
    NPROPERTIES
};

typedef struct abstract_value {
    uint8_t type;  /* enum dv__type_kind */
    bool is_known; /* NUMBER, REAL, STRING, DEVICE: `value` is exact; TENSOR: value.i is the index of the tensor's first property
                    */
    bool is_nonnegative;  /* DIMS: no size is negative */
    int32_t sizes_index;  /* DIMS: index in dims_pool of the ranges of the sizes, valid once the rank is exact
                           * (value_find_size_ranges()); NO_SIZES: nothing is known of any size */
    dv_range range;       /* INT and BOOL: range of the value; DIMS: range of the rank, which is the number of sizes */
    uint64_t dtype_bits;  /* DTYPE: a bit for each dtype that the value may be, by index in dtype_keys */
    uint32_t other_dtype; /* DTYPE: key of the dtype that OTHER_DTYPE_BIT stands for; 0: any that dtype_keys lacks */
    dv__reg value;        /* the exact value, if is_known is true */
} abstract_value;

struct dims_ranges {
    dv_range sizes[DV_MAX_NDIM];
    int64_t exact_sizes[DV_MAX_NDIM]; /* the sizes for dv__try_eval_step() and messages; INT64_MIN: not exact */
};

struct partial_argument {
    uint32_t first_property,
        first_list_property; /* indices in values: the argument's first property, and the first one of a list's first tensor */
    int32_t list_length;     /* number of tensors of a list; -1: not known */
};

/* One writer of a variable: a step that writes the variable, or the EACH block that carries the variable. */
struct variable_writer {
    uint32_t variable, step;
    bool is_in_block;
};

struct dv__partial {
    const dv__contract *c;
    dv__arena arena;
    abstract_value *values;
    struct dims_ranges *dims_pool;
    struct partial_argument *arguments;
    struct variable_writer *writers; /* by variable */
    uint32_t *block_stored_values; /* by step, for EACH blocks: index in `values` of the registers that are stored for each tensor
                                      of the list */
    bool *is_register_known;       /* by register: messages can print its value */
    uint64_t *worklist;            /* a bit for each step to propagate again: a value that it reads or writes has changed */
    uint64_t *is_step_outside_block; /* a bit for each step that is in no block */
    uint64_t *is_list_block_step;    /* a bit for each step EACH; such steps are propagated in every pass */
    uint64_t *readers; /* one row of bits for each register, then for each argument: the steps that read or write it */
    uint64_t
        *dependent_steps; /* one row of bits for each step: the steps that read or write a value that this step reads or writes */
    uint32_t nwords;      /* number of 64-bit words of a row of bits */
    uint32_t
        *reader_rows; /* by register: index of its row in readers; of a register with an argument's tensor, the argument's row */
    uint32_t nvalues, ndims_pool, nwriters;
    bool changed, is_out_of_memory;
    dv__fixed_text reason;       /* the reason why no call fits, if no check's message gives it */
    const dv__step *failed_step; /* the step at which propagation found that no call fits; NULL: none */
    dv__evaluator evaluator;
    dv__solution solution;
};

/* ---- Dtypes as sets ------------------------------------------------------------------------------------------------------ */

static const uint32_t dtype_keys[] = {
#define KEY(name, ...) DV_DTYPE_##name,
    DV_DTYPES(KEY)
#undef KEY
};
enum { NDTYPES = sizeof dtype_keys / sizeof *dtype_keys };
_Static_assert((int)NDTYPES <= (int)OTHER_DTYPE_BIT, "a set of dtypes is 64 bits");

/* Returns a set of dtypes, as bits, that has only the dtype with this key. */
static uint64_t dtype_key_to_bits(uint32_t key)
{
    for (uint32_t i = 0; i < NDTYPES; i++)
        if (dtype_keys[i] == key)
            return 1ull << i;
    return 1ull << OTHER_DTYPE_BIT;
}

/* Returns the key of the only dtype that the value may be. 0: several dtypes are possible, or the only one is unnamed. */
static uint32_t value_get_only_dtype_key(const abstract_value *value)
{
    if (!value->dtype_bits || value->dtype_bits & (value->dtype_bits - 1))
        return 0;
    return value->dtype_bits >> OTHER_DTYPE_BIT ? value->other_dtype : dtype_keys[__builtin_ctzll(value->dtype_bits)];
}

/* Returns the bits of the dtypes that both values may be. */
static uint64_t dtype_bits_intersect(const abstract_value *a, const abstract_value *b)
{
    const uint64_t both = a->dtype_bits & b->dtype_bits;
    return a->other_dtype && b->other_dtype && a->other_dtype != b->other_dtype ? both & ~(1ull << OTHER_DTYPE_BIT) : both;
}

/* ---- Abstract values ----------------------------------------------------------------------------------------------------- */

/* Returns the abstract value of a register or literal. */
static abstract_value *value_at(const dv__partial *p, dv__operand operand)
{
    return &p->values[operand >= 0 ? (uint32_t)operand : p->c->program->nregisters + (uint32_t)(-1 - operand)];
}

/* Returns an abstract value of this type that allows every value of the type. */
static abstract_value value_new_unknown(enum dv__type_kind type)
{
    abstract_value t = { .type = (uint8_t)type, .sizes_index = NO_SIZES, .range = dv__range_any(), .dtype_bits = UINT64_MAX };
    if (type == DV__TYPE_BOOL)
        t.range = dv__range_between(0, 1);
    if (type == DV__TYPE_DIMS)
        t.range = dv__range_between(0, DV_MAX_NDIM);
    return t;
}

static bool value_is_int_or_bool(const abstract_value *value)
{
    return value->type == DV__TYPE_INT || value->type == DV__TYPE_BOOL;
}

/* Narrows *to to the numbers that are in `by` too, and sets p->changed if *to got smaller. Returns false if no number is in
 * both. */
static bool range_try_narrow(dv__partial *p, dv_range *to, dv_range by) { return dv__range_try_intersect(to, by, &p->changed); }

/* Returns the array with the range of each size of a DIMS value. NULL: the rank is not exact, or no size is known. */
static dv_range *value_find_size_ranges(const dv__partial *p, const abstract_value *value)
{
    return value->sizes_index >= 0 && dv__range_is_exact(value->range) ? p->dims_pool[value->sizes_index].sizes : NULL;
}

/* Gives a DIMS value its array of size ranges, unless it has one. Returns false, and sets is_out_of_memory, if memory is
 * out. */
static bool value_try_allocate_size_ranges(dv__partial *p, abstract_value *value)
{
    if (value->sizes_index >= 0)
        return true;
    if (!(p->ndims_pool & (p->ndims_pool - 1))) { /* full at a power of two: doubles the capacity */
        struct dims_ranges *more = dv__realloc(p->dims_pool, (p->ndims_pool ? 2 * p->ndims_pool : 1) * sizeof *more);
        if (!more) {
            p->is_out_of_memory = true;
            return false;
        }
        p->dims_pool = more;
    }
    value->sizes_index = (int32_t)p->ndims_pool++;
    for (int32_t i = 0; i < DV_MAX_NDIM; i++)
        p->dims_pool[value->sizes_index].sizes[i] = value->is_nonnegative ? dv__range_between(0, INT64_MAX) : dv__range_any();
    return true;
}

/* Narrows the rank of a DIMS value to the range `by`. Returns false if no rank is left, or memory is out. */
static bool value_try_narrow_rank(dv__partial *p, abstract_value *value, dv_range by)
{
    return range_try_narrow(p, &value->range, by) &&
        (!dv__range_is_exact(value->range) || value_try_allocate_size_ranges(p, value));
}

/* True if two values of one type, both of them known, are equal. */
static bool known_value_is_equal(const abstract_value *a, const abstract_value *b)
{
    const dv__reg *x = &a->value, *y = &b->value;
    switch (a->type) {
    case DV__TYPE_STRING: return !x->s || !y->s ? !x->s && !y->s : x->n == y->n && !memcmp(x->s, y->s, (size_t)x->n);
    case DV__TYPE_DEVICE: return dv__devices_are_same(x->device, y->device);
    case DV__TYPE_TENSOR: return x->i == y->i;
    default: return x->is_real == y->is_real && (x->is_real ? x->f == y->f || (x->f != x->f && y->f != y->f) : x->i == y->i);
    }
}

/* True if no value is in both sets. False may also mean: not known. */
static bool value_is_disjoint(const dv__partial *p, const abstract_value *a, const abstract_value *b)
{
    if (a->type == DV__TYPE_DTYPE)
        return !dtype_bits_intersect(a, b);
    if (!value_is_int_or_bool(a) && a->type != DV__TYPE_DIMS)
        return a->is_known && b->is_known && !known_value_is_equal(a, b);
    if (dv__ranges_are_disjoint(a->range, b->range))
        return true;
    const dv_range *x = value_is_int_or_bool(a) ? NULL : value_find_size_ranges(p, a),
                   *y = value_is_int_or_bool(a) ? NULL : value_find_size_ranges(p, b);
    for (int64_t k = 0; x && y && k < a->range.least; k++)
        if (dv__ranges_are_disjoint(x[k], y[k]))
            return true;
    return false;
}

/* Narrows `to`, a value of type INT, BOOL or DIMS, to the values that are in `from` too. Returns false if none is left. */
static bool value_try_narrow_int_or_dims(dv__partial *p, abstract_value *to, const abstract_value *from)
{
    if (value_is_int_or_bool(to) ? !range_try_narrow(p, &to->range, from->range) : !value_try_narrow_rank(p, to, from->range))
        return false;
    dv_range *to_sizes = value_is_int_or_bool(to) ? NULL : value_find_size_ranges(p, to);
    const dv_range *from_sizes = to_sizes ? value_find_size_ranges(p, from) : NULL;
    for (int64_t i = 0; to_sizes && (from_sizes || from->is_nonnegative) && i < to->range.least; i++)
        if (!range_try_narrow(p, &to_sizes[i], from_sizes ? from_sizes[i] : dv__range_between(0, INT64_MAX)))
            return false;
    return true;
}

/* Narrows `to` to the values that at least one of the alternatives allows. Returns false if none is left. */
static bool value_try_narrow_to_union_of(
    dv__partial *p, abstract_value *to, uint32_t nalternatives, abstract_value *const *alternatives)
{
    if (nalternatives == 1 && alternatives[0]->type == to->type && (value_is_int_or_bool(to) || to->type == DV__TYPE_DIMS))
        return value_try_narrow_int_or_dims(p, to, alternatives[0]);
    abstract_value joined = *alternatives[0];
    bool same = joined.is_known;
    for (uint32_t k = 1; k < nalternatives; k++) {
        joined.range = dv__range_union(joined.range, alternatives[k]->range);
        joined.other_dtype = joined.other_dtype == alternatives[k]->other_dtype ? joined.other_dtype : 0;
        joined.dtype_bits |= alternatives[k]->dtype_bits;
        same = same && alternatives[k]->is_known && known_value_is_equal(&joined, alternatives[k]);
    }
    if (to->type != joined.type)
        return true;
    if (value_is_int_or_bool(to))
        return range_try_narrow(p, &to->range, joined.range);
    if (to->type == DV__TYPE_DTYPE) {
        const uint64_t both = dtype_bits_intersect(to, &joined);
        p->changed |= both != to->dtype_bits;
        to->dtype_bits = both ? both : to->dtype_bits;
        to->other_dtype = to->other_dtype ? to->other_dtype : joined.other_dtype;
        return both != 0;
    }
    if (to->type != DV__TYPE_DIMS) {
        if (same && to->is_known)
            return known_value_is_equal(to, &joined);
        if (same)
            to->is_known = p->changed = true, to->value = joined.value;
        return true;
    }
    if (!value_try_narrow_rank(p, to, joined.range))
        return false;
    dv_range *sizes = value_find_size_ranges(p, to);
    for (int64_t i = 0; sizes && i < to->range.least; i++) {
        dv_range size = dv__range_any();
        for (uint32_t k = 0; k < nalternatives; k++) {
            const dv_range *here = value_find_size_ranges(p, alternatives[k]);
            if (!here && alternatives[k]->is_nonnegative)
                size = k ? dv__range_union(size, dv__range_between(0, INT64_MAX)) : dv__range_between(0, INT64_MAX);
            else if (!here)
                size = dv__range_any();
            else if (i < alternatives[k]->range.least)
                size = k ? dv__range_union(size, here[i]) : here[i];
        }
        if (!range_try_narrow(p, &sizes[i], size))
            return false;
    }
    return true;
}

/* Narrows a, which equals b, by the values of b. is_mutual: narrows b by a, too. Returns false if no value is left. */
static bool value_try_narrow_by_equal(dv__partial *p, abstract_value *a, abstract_value *b, bool is_mutual)
{
    return value_try_narrow_to_union_of(p, a, 1, &b) && (!is_mutual || value_try_narrow_to_union_of(p, b, 1, &a));
}

/* Narrows an INT or BOOL operand to the integer i. Returns false if the operand cannot be i. */
static bool operand_try_narrow_to_int(dv__partial *p, dv__operand to, int64_t i)
{
    return range_try_narrow(p, &value_at(p, to)->range, dv__range_exactly(i));
}

/* ---- Exact values -------------------------------------------------------------------------------------------------------- */

/* Returns the exact value of an operand in the form that contract_eval.c reads. NULL: the value is not exact, or is a
 * tensor. */
static const dv__reg *operand_find_exact_reg(dv__partial *p, dv__operand operand)
{
    const abstract_value *value = value_at(p, operand);
    if (operand < 0)
        return &p->c->program->constants[-1 - operand];
    dv__reg *to = &p->solution.registers[operand];
    switch (value->type) {
    case DV__TYPE_INT:
    case DV__TYPE_BOOL: to->i = value->range.least; return dv__range_is_exact(value->range) ? to : NULL;
    case DV__TYPE_DTYPE:
        to->dtype = dv_dtype_from_key(value_get_only_dtype_key(value));
        return value_get_only_dtype_key(value) ? to : NULL;
    case DV__TYPE_TENSOR: return NULL;
    case DV__TYPE_DIMS: break;
    default: *to = value->value; return value->is_known ? to : NULL;
    }
    const dv_range *sizes = value_find_size_ranges(p, value);
    to->n = sizes ? (int32_t)value->range.least : 0;
    to->sizes = sizes ? p->dims_pool[value->sizes_index].exact_sizes : NULL;
    bool all = sizes != NULL;
    for (int32_t i = 0; i < to->n; i++) {
        p->dims_pool[value->sizes_index].exact_sizes[i] = dv__range_is_exact(sizes[i]) ? sizes[i].least : INT64_MIN;
        all &= dv__range_is_exact(sizes[i]);
    }
    return all ? to : NULL;
}

/* Narrows an abstract value to a register's concrete value. Returns false if the abstract value does not allow it. */
static bool value_try_narrow_to_reg(dv__partial *p, abstract_value *to, const dv__reg *reg)
{
    if (value_is_int_or_bool(to))
        return range_try_narrow(p, &to->range, dv__range_exactly(reg->i));
    abstract_value one = value_new_unknown((enum dv__type_kind)to->type);
    abstract_value *const from = &one;
    if (to->type == DV__TYPE_DIMS) {
        int64_t sizes[DV_MAX_NDIM]; /* a slice lies in dims_pool, which may move when it grows */
        if (reg->n < 0 || reg->n > DV_MAX_NDIM)
            return false;
        for (int32_t i = 0; i < reg->n; i++)
            sizes[i] = reg->sizes[i];
        bool fits = value_try_narrow_rank(p, to, dv__range_exactly(reg->n));
        for (int32_t i = 0; fits && i < reg->n; i++)
            fits = range_try_narrow(p, &p->dims_pool[to->sizes_index].sizes[i], dv__range_exactly(sizes[i]));
        return fits;
    }
    if (to->type == DV__TYPE_DTYPE)
        one.other_dtype = dv_dtype_key(reg->dtype), one.dtype_bits = dtype_key_to_bits(one.other_dtype);
    one.is_known = true;
    one.value = *reg;
    return value_try_narrow_to_union_of(p, to, 1, &from);
}

static bool step_has_exact_inputs(dv__partial *p, const dv__step *s)
{
    for (uint32_t i = 0; i < s->ninputs; i++)
        if (!operand_find_exact_reg(p, dv__step_get_operands(s)[i]))
            return false;
    return true;
}

/* Evaluates a step whose inputs are exact, and narrows the value of its result. Returns false, and sets failed_step, if the
 * step fails. */
static bool step_try_eval_exact(dv__partial *p, const dv__step *s)
{
    p->solution.pool_count = 0;
    p->evaluator.status = DV_OK;
    if ((!dv__try_eval_step(&p->evaluator, s) && s->error) || p->evaluator.status) {
        p->failed_step = s;
        return false;
    }
    return value_try_narrow_to_reg(p, value_at(p, s->to), &p->solution.registers[s->to]);
}

/* ---- Dims ---------------------------------------------------------------------------------------------------------------- */

/* The source of the size of one dim of a step's result. */
struct dim_source {
    dv__operand operand;
    int32_t at; /* the operand's dim; -1: the operand is an integer, which is the size; -2: the size is 1 */
};

/* Finds the source of each dim of a PACK step's result. Returns the number of dims; -1: not known, or too many. */
static int32_t pack_find_dim_sources(dv__partial *p, const dv__step *s, struct dim_source *out)
{
    int32_t n = 0;
    for (uint32_t k = 0; k < s->ninputs; k++) {
        const dv__operand x = dv__step_get_operands(s)[k];
        const bool dims = value_at(p, x)->type == DV__TYPE_DIMS;
        const int64_t more = dims ? value_at(p, x)->range.least : 1;
        if ((dims && !value_find_size_ranges(p, value_at(p, x))) || more > DV_MAX_NDIM - n)
            return -1;
        for (int32_t i = 0; i < more; i++)
            out[n++] = (struct dim_source){ x, dims ? i : -1 };
    }
    return n;
}

/* Finds the source of each dim of a REDUCED step's result. rank: the operand's. Returns the number of dims. */
static int32_t reduced_find_dim_sources(
    const dv__reg *axes, bool keepdim, dv__operand operand, int32_t rank, struct dim_source *out)
{
    int32_t n = 0;
    uint64_t gone = axes->n ? 0 : UINT64_MAX;
    for (int32_t i = 0; i < axes->n; i++)
        gone |= 1ull << (dv__axis_normalize(axes->sizes[i], rank) & 63);
    for (int32_t i = 0; i < rank; i++)
        if (!(gone >> (i & 63) & 1) || keepdim)
            out[n++] = (struct dim_source){ operand, gone >> (i & 63) & 1 ? -2 : i };
    return n;
}

/* Finds the operand and the dim from which each dim of the result of step s comes. Returns the result's rank; -1: not known. */
static int32_t step_find_dim_sources(dv__partial *p, const dv__step *s, struct dim_source *out)
{
    if (s->op == DV__OP_PACK)
        return pack_find_dim_sources(p, s, out);
    const dv__operand from = s->in[0];
    const dv__reg *a = operand_find_exact_reg(p, s->in[1]), *b = s->ninputs > 2 ? operand_find_exact_reg(p, s->in[2]) : NULL;
    if (!value_find_size_ranges(p, value_at(p, from)) || !a)
        return -1;
    const int32_t rank = (int32_t)value_at(p, from)->range.least;
    int32_t n = 0;
    if (s->op == DV__OP_REDUCED)
        return b ? reduced_find_dim_sources(a, b->i != 0, from, rank, out) : -1;
    if (s->op == DV__OP_PERMUTE) {
        for (int32_t i = 0; i < rank && a->n == rank; i++)
            out[n++] = (struct dim_source){ from, (int32_t)dv__axis_normalize(a->sizes[i], rank) };
        return a->n == rank ? n : -1;
    }
    if ((s->op == DV__OP_SLICE || s->op == DV__OP_SWAP) && !b)
        return -1;
    int32_t begin = 0, end = rank;
    if (s->op == DV__OP_SLICE) {
        if (a->i < 0 || b->i < 0 || a->i > rank || b->i > rank - a->i)
            return -1;
        begin = (int32_t)a->i, end = begin + (int32_t)b->i;
    }
    for (int32_t i = begin; i < end; i++)
        if (s->op != DV__OP_DROP || i != a->i)
            out[n++] = (struct dim_source){ from, i };
    if (s->op == DV__OP_SWAP && a->i >= 0 && b->i >= 0 && a->i < rank && b->i < rank)
        out[a->i].at = (int32_t)b->i, out[b->i].at = (int32_t)a->i;
    if (s->op == DV__OP_REPLACE && a->i >= 0 && a->i < rank)
        out[a->i] = (struct dim_source){ s->in[2], -1 };
    return n;
}

/* Propagates the equation rank(to) == rank(from) + difference. Returns false if no call is left. */
static bool partial_try_propagate_rank_difference(
    dv__partial *p, abstract_value *to, abstract_value *from, dv_range difference, bool always_runs)
{
    return value_try_narrow_rank(p, to, dv__range_forward(DV__OP_ADD, from->range, difference)) &&
        (!always_runs || value_try_narrow_rank(p, from, dv__range_forward(DV__OP_SUB, to->range, difference)));
}

/* Propagates ranks of a PACK step: the result's rank is the sum of the operands' ranks, of an integer 1. Returns false if no
 * call is left. */
static bool partial_try_propagate_pack_ranks(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value *to = value_at(p, s->to);
    dv_range sum = dv__range_exactly(0);
    for (uint32_t turn = 0; turn < 1 + (always_runs ? s->ninputs : 0u);
        turn++) { /* turn 0: the sum of all operands' ranks; turn k + 1: the sum of all but operand k, to narrow operand k */
        sum = dv__range_exactly(0);
        for (uint32_t k = 0; k < s->ninputs; k++)
            if (turn != k + 1)
                sum = dv__range_forward(DV__OP_ADD, sum,
                    value_at(p, dv__step_get_operands(s)[k])->type == DV__TYPE_DIMS
                        ? value_at(p, dv__step_get_operands(s)[k])->range
                        : dv__range_exactly(1));
        abstract_value *one = turn ? value_at(p, dv__step_get_operands(s)[turn - 1]) : to;
        if (one->type == DV__TYPE_DIMS &&
            !value_try_narrow_rank(p, one, turn ? dv__range_forward(DV__OP_SUB, to->range, sum) : sum))
            return false;
    }
    return true;
}

/* Propagates only ranks of a step whose result is DIMS, for steps of which more is not known. Returns false if no call is
 * left. */
static bool partial_try_propagate_dims_ranks(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value *to = value_at(p, s->to), *from = s->op == DV__OP_PACK ? NULL : value_at(p, s->in[0]);
    switch (s->op) {
    case DV__OP_PACK: return partial_try_propagate_pack_ranks(p, s, always_runs);
    case DV__OP_SLICE: /* in a call that succeeds the slice lies within the dims */
        return value_try_narrow_rank(p, to, value_at(p, s->in[2])->range) &&
            (!always_runs || range_try_narrow(p, &value_at(p, s->in[2])->range, to->range)) &&
            partial_try_propagate_rank_difference(p, to, from, dv__range_between(-DV_MAX_NDIM, 0), always_runs);
    case DV__OP_DROP: return partial_try_propagate_rank_difference(p, to, from, dv__range_exactly(-1), always_runs);
    case DV__OP_REDUCED: {
        const dv_range keep = value_at(p, s->in[2])->range;
        return partial_try_propagate_rank_difference(
            p, to, from, dv__range_between(keep.least == 1 ? 0 : -DV_MAX_NDIM, 0), always_runs);
    }
    default: return partial_try_propagate_rank_difference(p, to, from, dv__range_exactly(0), always_runs);
    }
}

/* Propagates the sizes of a step that rearranges dims, such as PACK, SLICE or PERMUTE. Returns false if no call is left. */
static bool partial_try_propagate_dims(dv__partial *p, const dv__step *s, bool always_runs)
{
    struct dim_source from[DV_MAX_NDIM];
    const int32_t n = step_find_dim_sources(p, s, from);
    abstract_value *to = value_at(p, s->to);
    if (n < 0)
        return partial_try_propagate_dims_ranks(p, s, always_runs);
    if (!value_try_narrow_rank(p, to, dv__range_exactly(n)))
        return false;
    for (int32_t i = 0; i < n; i++) {
        dv_range *size = &p->dims_pool[to->sizes_index].sizes[i], one = dv__range_exactly(1);
        dv_range *other = from[i].at == -2 ? &one
            : from[i].at == -1             ? &value_at(p, from[i].operand)->range
                                           : &value_find_size_ranges(p, value_at(p, from[i].operand))[from[i].at];
        if (!range_try_narrow(p, size, *other) || (always_runs && from[i].at > -2 && !range_try_narrow(p, other, *size)))
            return false;
    }
    return true;
}

/* ---- Broadcasting -------------------------------------------------------------------------------------------------------- */

/* Returns the range of a size of the step's input with this index. dim_from_end: 1 is the last dim. NULL: the input has no such
 * dim. */
static dv_range *input_find_size_from_end(const dv__partial *p, const dv__step *s, uint32_t input, int64_t dim_from_end)
{
    abstract_value *t = value_at(p, dv__step_get_operands(s)[input]);
    return dim_from_end <= t->range.least ? &p->dims_pool[t->sizes_index].sizes[t->range.least - dim_from_end] : NULL;
}

/* Propagates one dim of a broadcast between the inputs' sizes and the result's size. dim_from_end: 1 is the last dim. Returns
 * false if no call is left. */
static bool partial_try_propagate_broadcast_dim(
    dv__partial *p, const dv__step *s, int64_t dim_from_end, dv_range *result_size, bool *result_changed, bool always_runs)
{
    const dv_range one = dv__range_exactly(1);
    dv_range common = one, joined = one, *last = NULL;
    bool decided = false, any = false;
    uint32_t others = 0;
    for (uint32_t k = 0; k < s->ninputs; k++) {
        const dv_range *size = input_find_size_from_end(p, s, k, dim_from_end);
        if (!size)
            continue;
        if (dv__ranges_are_disjoint(*size, one)) { /* each size that cannot be 1 equals the result's size */
            bool changed = false;
            if (decided && !dv__range_try_intersect(&common, *size, &changed))
                return false;
            common = decided ? common : *size;
            decided = true;
        }
        joined = any ? dv__range_union(joined, *size) : *size;
        any = true;
    }
    if (!dv__range_try_intersect(result_size, decided ? common : joined, result_changed))
        return false;
    for (uint32_t k = 0; k < s->ninputs && always_runs; k++) {
        dv_range *size = input_find_size_from_end(p, s, k, dim_from_end);
        if (!size)
            continue;
        if (!range_try_narrow(p, size, dv__ranges_are_disjoint(*size, one) ? *result_size : dv__range_union(*result_size, one)))
            return false;
        if (!dv__ranges_are_disjoint(*size, *result_size))
            others++, last = size;
    }
    return !always_runs || !dv__ranges_are_disjoint(*result_size, one) || others != 1 || range_try_narrow(p, last, *result_size);
}

/* Propagates a broadcast of shapes to the resulting shape; result NULL: the step only tests whether the shapes broadcast.
 * Returns false if no call is left. */
static bool partial_try_propagate_broadcast_inputs(dv__partial *p, const dv__step *s, abstract_value *result, bool always_runs)
{
    dv_range rank = dv__range_exactly(0);
    bool all = true;
    for (uint32_t k = 0; k < s->ninputs; k++) {
        rank = dv__range_forward(DV__OP_MAX, rank, value_at(p, dv__step_get_operands(s)[k])->range);
        all &= value_find_size_ranges(p, value_at(p, dv__step_get_operands(s)[k])) != NULL;
    }
    if (result && !value_try_narrow_rank(p, result, rank))
        return false;
    for (uint32_t k = 0; k < s->ninputs && result && always_runs; k++)
        if (!value_try_narrow_rank(p, value_at(p, dv__step_get_operands(s)[k]), dv__range_between(0, result->range.most)))
            return false;
    for (int64_t dim = 1; all && dim <= rank.most; dim++) {
        dv_range unused_size = dv__range_any();
        bool unused = false;
        if (!partial_try_propagate_broadcast_dim(p, s, dim,
                result ? &p->dims_pool[result->sizes_index].sizes[rank.most - dim] : &unused_size, result ? &p->changed : &unused,
                always_runs))
            return false;
    }
    return true;
}

/* Propagates BROADCAST: the result is the shape to which the operands broadcast. Returns false if no call is left. */
static bool partial_try_propagate_broadcast(dv__partial *p, const dv__step *s, bool always_runs)
{
    return partial_try_propagate_broadcast_inputs(p, s, value_at(p, s->to), always_runs);
}

/* Propagates CAN_BROADCAST: the result is whether the shapes broadcast. Returns false if no call is left. */
static bool partial_try_propagate_can_broadcast(dv__partial *p, const dv__step *s, bool always_runs)
{
    const bool known = dv__range_is_exact(value_at(p, s->to)->range), yes = known && value_at(p, s->to)->range.least;
    if (known && !yes)
        return true;
    return partial_try_propagate_broadcast_inputs(p, s, NULL, always_runs && yes) ||
        (!yes && operand_try_narrow_to_int(p, s->to, 0));
}

/* ---- Integers ------------------------------------------------------------------------------------------------------------ */

/* Propagates arithmetic of integers by the operation's ranges in ops.def. Returns false if no call is left. */
static bool partial_try_propagate_arithmetic(dv__partial *p, const dv__step *s, bool always_runs)
{
    dv_range none = dv__range_exactly(0), *to = &value_at(p, s->to)->range, *a = &value_at(p, s->in[0])->range,
             *b = s->ninputs > 1 ? &value_at(p, s->in[1])->range : &none;
    if (s->type != DV__TYPE_INT)
        return true;
    return range_try_narrow(p, to, dv__range_forward((enum dv__opcode)s->op, *a, *b)) &&
        (!always_runs || dv__range_try_narrow_operands((enum dv__opcode)s->op, *to, a, b, &p->changed));
}

/* Propagates RANK: the result is the rank of the dims. Returns false if no call is left. */
static bool partial_try_propagate_rank(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value *dims = value_at(p, s->in[0]);
    return range_try_narrow(p, &value_at(p, s->to)->range, dims->range) &&
        (!always_runs || value_try_narrow_rank(p, dims, value_at(p, s->to)->range));
}

/* Propagates a step that reads one size of dims, if the size's index is known. Returns false if no call is left. */
static bool partial_try_propagate_size_at(dv__partial *p, const dv__step *s, bool always_runs)
{
    const abstract_value *dims = value_at(p, s->in[0]), *index = value_at(p, s->in[1]);
    dv_range *sizes = value_find_size_ranges(p, dims), *to = &value_at(p, s->to)->range;
    if (!sizes)
        return !dims->is_nonnegative || range_try_narrow(p, to, dv__range_between(0, INT64_MAX));
    if (!dv__range_is_exact(index->range))
        return true;
    const int64_t i = index->range.least < 0 ? index->range.least + dims->range.least : index->range.least;
    if (i < 0 || i >= dims->range.least)
        return range_try_narrow(p, to, dv__range_exactly(0));
    return range_try_narrow(p, to, sizes[i]) && (!always_runs || range_try_narrow(p, &sizes[i], *to));
}

/* Propagates NUMEL: the result is the product of the sizes. With always_runs and at most 8 dims, the result narrows each size,
 * too. Returns false if no call is left. */
static bool partial_try_propagate_numel(dv__partial *p, const dv__step *s, bool always_runs)
{
    const abstract_value *dims = value_at(p, s->in[0]);
    dv_range *sizes = value_find_size_ranges(p, dims), *to = &value_at(p, s->to)->range;
    const int64_t n = sizes ? dims->range.least : 0;
    for (int64_t skip = -1; sizes && skip < (always_runs && n <= 8 ? n : 0); skip++) {
        dv_range product = dv__range_exactly(1);
        for (int64_t i = 0; i < n; i++)
            if (i != skip)
                product = dv__range_forward(DV__OP_MUL, product, sizes[i]);
        if (skip < 0 ? !range_try_narrow(p, to, product)
                     : !dv__range_try_narrow_operands(DV__OP_MUL, *to, &sizes[skip], &product, &p->changed))
            return false;
    }
    return true;
}

/* Propagates FIRST_NEGATIVE: the result is the first negative size, or 0 if there is none. Returns false if no call is left. */
static bool partial_try_propagate_first_negative(dv__partial *p, const dv__step *s, bool always_runs)
{
    dv_range *sizes = value_find_size_ranges(p, value_at(p, s->in[0]));
    const int64_t n = sizes ? value_at(p, s->in[0])->range.least : 0;
    bool none = sizes != NULL;
    for (int64_t i = 0; i < n; i++)
        none &= sizes[i].least >= 0;
    if (!range_try_narrow(p, &value_at(p, s->to)->range, dv__range_between(none ? 0 : INT64_MIN, 0)))
        return false;
    for (int64_t i = 0; always_runs && !value_at(p, s->to)->range.least && i < n; i++)
        if (!range_try_narrow(p, &sizes[i], dv__range_between(0, INT64_MAX)))
            return false;
    return true;
}

/* Propagates the test whether a number is a valid dim of a rank, -rank <= i < rank. Returns false if no call is left. */
static bool partial_try_propagate_is_axis(dv__partial *p, const dv__step *s, bool always_runs)
{
    dv_range *i = &value_at(p, s->in[0])->range;
    abstract_value *rank = value_at(p, s->in[1]);
    const dv_range n = dv__range_forward(DV__OP_MAX, rank->range, dv__range_exactly(1));
    const dv_range to = value_at(p, s->to)->range;
    if (i->least >= -n.least && i->most < n.least)
        return operand_try_narrow_to_int(p, s->to, 1);
    if (i->most < -n.most || i->least >= n.most)
        return operand_try_narrow_to_int(p, s->to, 0);
    if (!always_runs || !to.least)
        return true;
    const int64_t least = i->least > 0 ? i->least + 1 : i->most < -1 ? -i->most : 0;
    return range_try_narrow(p, i, dv__range_between(-n.most, n.most - 1)) &&
        range_try_narrow(p, &rank->range, dv__range_between(least, INT64_MAX));
}

/* Propagates AXIS, which counts a dim from 0 instead of from the end. Returns false if no call is left. */
static bool partial_try_propagate_axis(dv__partial *p, const dv__step *s, bool always_runs)
{
    dv_range *i = &value_at(p, s->in[0])->range, *rank = &value_at(p, s->in[1])->range, *to = &value_at(p, s->to)->range;
    const dv_range n = dv__range_forward(DV__OP_MAX, *rank, dv__range_exactly(1));
    if (i->least >= 0)
        return range_try_narrow(p, to, *i) && (!always_runs || range_try_narrow(p, i, *to));
    if (i->most < 0) {
        const dv_range ranks = dv__range_forward(DV__OP_SUB, *to, *i);
        return range_try_narrow(p, to, dv__range_forward(DV__OP_ADD, *i, n)) &&
            (!always_runs ||
                (range_try_narrow(p, i, dv__range_forward(DV__OP_SUB, *to, n)) &&
                    (ranks.least < 2 || range_try_narrow(p, rank, ranks))));
    }
    return range_try_narrow(p, to, dv__range_between(0, n.most - 1)) &&
        (!always_runs || !dv__range_is_exact(*to) || !dv__range_is_exact(n) ||
            range_try_narrow(p, i, (dv_range){ to->least - n.least, to->least, n.least, to->least % n.least }));
}

/* Propagates ARE_AXES: where it is true, each integer of the list is a dim of the rank. Returns false if no call is left. */
static bool partial_try_propagate_are_axes(dv__partial *p, const dv__step *s, bool always_runs)
{
    dv_range *sizes = value_find_size_ranges(p, value_at(p, s->in[0]));
    const dv_range n = dv__range_forward(DV__OP_MAX, value_at(p, s->in[1])->range, dv__range_exactly(1));
    for (int64_t i = 0; always_runs && sizes && value_at(p, s->to)->range.least && i < value_at(p, s->in[0])->range.least; i++)
        if (!range_try_narrow(p, &sizes[i], dv__range_between(-n.most, n.most - 1)))
            return false;
    return true;
}

/* ---- Conditions ---------------------------------------------------------------------------------------------------------- */

/* Propagates NOT. Returns false if no call is left. */
static bool partial_try_propagate_not(dv__partial *p, const dv__step *s, bool always_runs)
{
    dv_range *a = &value_at(p, s->in[0])->range, *to = &value_at(p, s->to)->range;
    return range_try_narrow(p, to, dv__range_between(1 - a->most, 1 - a->least)) &&
        (!always_runs || range_try_narrow(p, a, dv__range_between(1 - to->most, 1 - to->least)));
}

/* Propagates AND and OR. Returns false if no call is left. */
static bool partial_try_propagate_and_or(dv__partial *p, const dv__step *s, bool always_runs)
{
    const int64_t deciding_value = s->op == DV__OP_OR;
    dv_range *a = &value_at(p, s->in[0])->range, *b = &value_at(p, s->in[1])->range, *to = &value_at(p, s->to)->range;
    const dv_range yes = dv__range_exactly(deciding_value), no = dv__range_exactly(!deciding_value);
    const bool a_no = dv__ranges_are_disjoint(*a, yes), b_no = dv__ranges_are_disjoint(*b, yes);
    if (dv__ranges_are_disjoint(*a, no) || dv__ranges_are_disjoint(*b, no) ? !range_try_narrow(p, to, yes)
                                                                           : a_no && b_no && !range_try_narrow(p, to, no))
        return false;
    if (!always_runs || !dv__range_is_exact(*to))
        return true;
    if (to->least != deciding_value)
        return range_try_narrow(p, a, no) && range_try_narrow(p, b, no);
    return (!b_no || range_try_narrow(p, a, yes)) && (!a_no || range_try_narrow(p, b, yes));
}

/* Propagates SELECT: the result is the second operand if the first one, a condition, is true, else the third. Returns false if
 * no call is left. */
static bool partial_try_propagate_select(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value *to = value_at(p, s->to), *chosen[] = { value_at(p, s->in[1]), value_at(p, s->in[2]) };
    dv_range *c = &value_at(p, s->in[0])->range;
    if (dv__range_is_exact(*c))
        return value_try_narrow_by_equal(p, to, chosen[!c->least], always_runs);
    if (always_runs && value_is_disjoint(p, to, chosen[0]) && !range_try_narrow(p, c, dv__range_exactly(0)))
        return false;
    if (always_runs && value_is_disjoint(p, to, chosen[1]) && !range_try_narrow(p, c, dv__range_exactly(1)))
        return false;
    return dv__range_is_exact(*c) ? value_try_narrow_by_equal(p, to, chosen[!c->least], always_runs)
                                  : value_try_narrow_to_union_of(p, to, 2, chosen);
}

/* Narrows a value by: it does not equal `excluded`. Returns false if no value is left. */
static bool value_try_narrow_by_unequal(dv__partial *p, abstract_value *value, const abstract_value *excluded)
{
    if (value->type == DV__TYPE_DTYPE && value_get_only_dtype_key(excluded) &&
        !(dtype_key_to_bits(value_get_only_dtype_key(excluded)) >> OTHER_DTYPE_BIT)) {
        const uint64_t left = value->dtype_bits & ~excluded->dtype_bits;
        p->changed |= left != value->dtype_bits;
        value->dtype_bits = left ? left : value->dtype_bits;
        return left != 0;
    }
    if (!value_is_int_or_bool(value) || !dv__range_is_exact(excluded->range))
        return true;
    if (value->range.least == excluded->range.least && value->range.least < INT64_MAX)
        return range_try_narrow(p, &value->range, dv__range_between(value->range.least + 1, INT64_MAX));
    return value->range.most != excluded->range.least || value->range.most == INT64_MIN ||
        range_try_narrow(p, &value->range, dv__range_between(INT64_MIN, value->range.most - 1));
}

/* Propagates EQ and NE. Returns false if no call is left. */
static bool partial_try_propagate_equal(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value *a = value_at(p, s->in[0]), *b = value_at(p, s->in[1]);
    const bool equal = s->op == DV__OP_EQ;
    if (s->type == DV__TYPE_NUMBER || s->type == DV__TYPE_REAL)
        return true; /* an int may equal a real: 2 is 2.0 */
    if (value_is_disjoint(p, a, b) && !operand_try_narrow_to_int(p, s->to, !equal))
        return false;
    const dv_range to = value_at(p, s->to)->range;
    if (!always_runs || !dv__range_is_exact(to))
        return true;
    return to.least == equal ? value_try_narrow_by_equal(p, a, b, true)
                             : value_try_narrow_by_unequal(p, a, b) && value_try_narrow_by_unequal(p, b, a);
}

/* Propagates <, <=, > and >= of integers. Returns false if no call is left. */
static bool partial_try_propagate_order(dv__partial *p, const dv__step *s, bool always_runs)
{
    const bool swapped = s->op == DV__OP_GT || s->op == DV__OP_GE, or_equal = s->op == DV__OP_LE || s->op == DV__OP_GE;
    dv_range *a = &value_at(p, s->in[swapped])->range, *b = &value_at(p, s->in[!swapped])->range;
    if (s->type != DV__TYPE_INT)
        return true;
    if (a->most < b->least || (or_equal && a->most == b->least))
        return operand_try_narrow_to_int(p, s->to, 1);
    if (a->least > b->most || (!or_equal && a->least == b->most))
        return operand_try_narrow_to_int(p, s->to, 0);
    const dv_range to = value_at(p, s->to)->range;
    if (!always_runs || !dv__range_is_exact(to))
        return true;
    return to.least ? dv__range_try_narrow_less(a, b, or_equal, &p->changed)
                    : dv__range_try_narrow_less(b, a, !or_equal, &p->changed);
}

/* Propagates ONE_OF: the result is whether a dtype is one of the others. Returns false if no call is left. */
static bool partial_try_propagate_one_of(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value *x = value_at(p, dv__step_get_operands(s)[0]), all = { .type = DV__TYPE_DTYPE };
    for (uint32_t i = 1; i < s->ninputs; i++)
        all.dtype_bits |= value_at(p, dv__step_get_operands(s)[i])->dtype_bits;
    if (all.dtype_bits >> OTHER_DTYPE_BIT)
        return true;
    if (!(x->dtype_bits & all.dtype_bits) ? !operand_try_narrow_to_int(p, s->to, 0)
                                          : !(x->dtype_bits & ~all.dtype_bits) && !operand_try_narrow_to_int(p, s->to, 1))
        return false;
    const dv_range to = value_at(p, s->to)->range;
    const uint64_t left = to.least ? x->dtype_bits & all.dtype_bits : x->dtype_bits & ~all.dtype_bits;
    if (!always_runs || !dv__range_is_exact(to))
        return true;
    p->changed |= left != x->dtype_bits;
    x->dtype_bits = left ? left : x->dtype_bits;
    return left != 0;
}

/* Propagates promotion of dtypes. If all operands have one dtype, that is the result's dtype, whichever operands have dims. */
static bool partial_try_propagate_promotion(dv__partial *p, const dv__step *s, bool always_runs)
{
    const uint32_t first = value_get_only_dtype_key(value_at(p, dv__step_get_operands(s)[0]));
    bool same = first != 0;
    for (uint32_t i = 2; i < s->ninputs; i += 2)
        same &= value_get_only_dtype_key(value_at(p, dv__step_get_operands(s)[i])) == first;
    if (!same || !always_runs)
        return true;
    return s->op == DV__OP_CAN_PROMOTE
        ? operand_try_narrow_to_int(p, s->to, 1)
        : value_try_narrow_by_equal(p, value_at(p, s->to), value_at(p, dv__step_get_operands(s)[0]), true);
}

/* Propagates ON_CPU and SAME_DEVICE, if the result is true. Returns false if no call is left. */
static bool partial_try_propagate_devices(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value cpu = { .type = DV__TYPE_DEVICE, .is_known = true, .value.device = { DV_CPU, 0 } };
    if (!always_runs || !value_at(p, s->to)->range.least)
        return true;
    return value_try_narrow_by_equal(
        p, value_at(p, s->in[0]), s->op == DV__OP_ON_CPU ? &cpu : value_at(p, s->in[1]), s->op != DV__OP_ON_CPU);
}

/* ---- Steps --------------------------------------------------------------------------------------------------------------- */

/* Returns the value of one property of a tensor. first_property: index in p->values of the tensor's properties. */
static abstract_value *tensor_get_property(const dv__partial *p, uint32_t first_property, enum property which)
{
    return &p->values[first_property + which];
}

/* Returns the index in p->values of the properties of a tensor argument, or of a list's first tensor that is present. Of an
 * unknown or empty list: of its own properties. */
static int64_t argument_index_of_tensor_properties(const dv__partial *p, int32_t slot)
{
    const struct partial_argument *a = &p->arguments[slot];
    for (int32_t k = 0; k < a->list_length; k++)
        if (p->values[a->first_list_property + (uint32_t)k * NPROPERTIES + PROPERTY_PRESENT].range.least)
            return a->first_list_property + (uint32_t)k * NPROPERTIES;
    return a->first_property;
}

/* Sets which tensor a TENSOR value is: the one whose properties begin at index first_property of p->values. */
static void value_set_tensor_properties(dv__partial *p, abstract_value *tensor, int64_t first_property)
{
    p->changed |= !tensor->is_known || tensor->value.i != first_property;
    tensor->is_known = true;
    tensor->value.i = first_property;
}

/* Propagates a step that reads an argument: its presence, value, length or tensor. Returns false if no call is left. */
static bool partial_try_propagate_argument(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value *to = value_at(p, s->to);
    const uint32_t properties = p->arguments[s->slot].first_property;
    if (s->op == DV__OP_TENSOR) {
        value_set_tensor_properties(p, to, argument_index_of_tensor_properties(p, s->slot));
        return true;
    }
    if (p->evaluator.args[s->slot].type != DV_VALUE_UNKNOWN && !step_try_eval_exact(p, s))
        return false;
    if (s->op == DV__OP_LEN)
        return range_try_narrow(p, &to->range, dv__range_between(0, INT64_MAX)) &&
            value_try_narrow_by_equal(p, to, tensor_get_property(p, properties, PROPERTY_VALUE), always_runs);
    if (s->op != DV__OP_PRESENT && s->op != DV__OP_ARGUMENT)
        return true;
    return value_try_narrow_by_equal(
        p, to, tensor_get_property(p, properties, s->op == DV__OP_PRESENT ? PROPERTY_PRESENT : PROPERTY_VALUE), always_runs);
}

/* Propagates a step that reads the shape, strides, dtype or device of a tensor, if it is known which tensor. Returns false if
 * no call is left. */
static bool partial_try_propagate_property(dv__partial *p, const dv__step *s, bool always_runs)
{
    const abstract_value *tensor = value_at(p, s->in[0]);
    if (!tensor->is_known)
        return true;
    const uint32_t properties = (uint32_t)tensor->value.i;
    const enum property which = s->op == DV__OP_SHAPE ? PROPERTY_SHAPE
        : s->op == DV__OP_STRIDES                     ? PROPERTY_STRIDES
        : s->op == DV__OP_DTYPE_OF                    ? PROPERTY_DTYPE
                                                      : PROPERTY_DEVICE;
    return (which != PROPERTY_STRIDES ||
               partial_try_propagate_rank_difference(p, tensor_get_property(p, properties, PROPERTY_STRIDES),
                   tensor_get_property(p, properties, PROPERTY_SHAPE), dv__range_exactly(0), false)) &&
        value_try_narrow_by_equal(p, value_at(p, s->to), tensor_get_property(p, properties, which), always_runs);
}

/* Propagates LIST_TENSOR, which reads the tensor of a list at an index, if the index is known. Always returns true. */
static bool partial_try_propagate_list_tensor(dv__partial *p, const dv__step *s, bool always_runs)
{
    const struct partial_argument *a = &p->arguments[s->slot];
    const dv_range index = value_at(p, s->in[0])->range;
    (void)always_runs;
    if (dv__range_is_exact(index) && index.least >= 0 && index.least < a->list_length)
        value_set_tensor_properties(p, value_at(p, s->to), a->first_list_property + index.least * NPROPERTIES);
    return true;
}

/* Propagates COPY and UNBACKED: the register that is written equals the last operand. Returns false if no call is left. */
static bool partial_try_propagate_copy(dv__partial *p, const dv__step *s, bool always_runs)
{
    return !always_runs || value_try_narrow_by_equal(p, value_at(p, s->to), value_at(p, s->in[s->ninputs - 1]), true);
}

/* Propagates CHECK: its condition is true. Returns false if no call is left. */
static bool partial_try_propagate_check(dv__partial *p, const dv__step *s, bool always_runs)
{
    return value_at(p, s->in[0])->range.most && (!always_runs || operand_try_narrow_to_int(p, s->in[0], 1));
}

/* Propagates nothing, for operations without a rule. Always returns true. */
static bool partial_try_propagate_nothing(dv__partial *p, const dv__step *s, bool always_runs)
{
    (void)p, (void)s, (void)always_runs;
    return true;
}

/* Narrows the registers of one step by its rule in ops.def. always_runs: every call runs the step, so its operands are narrowed
 * too. Returns false if no call can run the step. */
static bool partial_try_propagate_step(dv__partial *p, const dv__step *s, bool always_runs)
{
    static const struct rule {
        bool (*try_propagate)(dv__partial *p, const dv__step *s, bool always_runs);
        bool is_evaluated; /* where all operands are exact, the step is evaluated in place of try_propagate() */
    } rules[] = {
#define EXACT(rule) { partial_try_propagate_##rule, true }
#define DIRECT(rule) { partial_try_propagate_##rule, false }
#define OP(id, name, reads, does, ...) __VA_ARGS__,
#include "lang/ops.def"
    };
    const struct rule *rule = &rules[s->op];
    return rule->is_evaluated && step_has_exact_inputs(p, s) ? step_try_eval_exact(p, s) : rule->try_propagate(p, s, always_runs);
}

/* ---- The program --------------------------------------------------------------------------------------------------------- */

/* Adds the steps of a set, a bit for each step, to the worklist. */
static void worklist_add_steps(dv__partial *p, const uint64_t *step_bits)
{
    for (uint32_t w = 0; w < p->nwords; w++)
        p->worklist[w] |= step_bits[w];
}

/* Adds the steps that read or write a value to the worklist. reader_row: the value's row in p->readers. */
static void worklist_add_readers(dv__partial *p, uint32_t reader_row)
{
    worklist_add_steps(p, p->readers + (size_t)reader_row * p->nwords);
}

/* Returns the index of an argument's row in p->readers. */
static uint32_t argument_get_reader_row(const dv__partial *p, size_t argument)
{
    return p->c->program->nregisters + (uint32_t)argument;
}

/* Sets p->reader_rows: each register has a row of its own, but a register with an argument's tensor shares the argument's
 * row. */
static void readers_assign_rows(dv__partial *p)
{
    const dv__program *program = p->c->program;
    for (uint32_t i = 0; i < program->nregisters; i++)
        p->reader_rows[i] = i;
    for (const dv__step *s = program->steps; s < program->steps + program->nsteps; s++)
        if (s->op == DV__OP_TENSOR || s->op == DV__OP_LIST_TENSOR || s->op == DV__OP_EACH_TENSOR)
            p->reader_rows[s->to] = argument_get_reader_row(p, (size_t)s->slot);
}

/* Calls f for each reader row of a value that the step reads or writes. The step's guard is left out. */
static void step_for_each_reader_row(dv__partial *p, uint32_t step, void (*f)(dv__partial *p, uint32_t step, uint32_t row))
{
    const dv__step *s = &p->c->program->steps[step];
    if (s->op != DV__OP_CHECK)
        f(p, step, p->reader_rows[s->to]);
    if (dv__operation_rows[s->op].reads_slot)
        f(p, step, argument_get_reader_row(p, (size_t)s->slot));
    for (uint32_t i = 0; i < s->ninputs; i++)
        if (dv__step_get_operands(s)[i] >= 0) /* literals do not change */
            f(p, step, p->reader_rows[dv__step_get_operands(s)[i]]);
    for (uint32_t c = 0; c < s->ncarry; c++)
        f(p, step, p->reader_rows[s->carry[c].to]);
}

/* Records in a reader row that the step reads or writes the row's value. */
static void readers_add_step(dv__partial *p, uint32_t step, uint32_t row)
{
    p->readers[(size_t)row * p->nwords + step / 64] |= 1ull << step % 64;
}

/* Records the steps from begin to end as readers of their guard. A literal guard has no readers. */
static void readers_add_guard_of_steps(dv__partial *p, dv__operand guard, uint32_t begin, uint32_t end)
{
    for (uint32_t step = begin; step < end && guard >= 0; step++)
        readers_add_step(p, step, p->reader_rows[guard]);
}

/* Adds the readers of a row to the steps that depend on `step`. */
static void dependents_add_readers_of_row(dv__partial *p, uint32_t step, uint32_t row)
{
    for (uint32_t w = 0; w < p->nwords; w++)
        p->dependent_steps[(size_t)step * p->nwords + w] |= p->readers[(size_t)row * p->nwords + w];
}

/* Builds the tables of readers and dependent steps, and puts each step outside of blocks into the worklist. */
static void readers_build(dv__partial *p)
{
    const dv__program *program = p->c->program;
    readers_assign_rows(p);
    for (uint32_t i = 0; i < program->nsteps; i++) {
        readers_add_guard_of_steps(p, program->steps[i].guard, i, i + 1);
        step_for_each_reader_row(p, i, readers_add_step);
    }
    for (uint32_t i = 0; i < program->nresults; i++) {
        const dv__program_result *r = &program->results[i];
        readers_add_guard_of_steps(p, r->guard, r->section.begin, r->section.end);
        readers_add_guard_of_steps(p, r->guard, r->list_count.begin, r->list_count.end);
    }
    for (uint32_t i = 0; i < program->nsteps; i++)
        step_for_each_reader_row(p, i, dependents_add_readers_of_row);
    for (uint32_t i = 0; i < program->nsteps; i++) {
        p->is_step_outside_block[i / 64] |= (uint64_t)!(program->steps[i].flags & DV__STEP_IN_BLOCK) << i % 64;
        p->is_list_block_step[i / 64] |= (uint64_t)(program->steps[i].op == DV__OP_EACH_TENSOR) << i % 64;
    }
    worklist_add_steps(p, p->is_step_outside_block);
}

static bool partial_try_propagate_steps(dv__partial *p, uint32_t begin, uint32_t end, bool forward, bool always_runs);

/* Exchanges the abstract value of a register with the stored one at *stored_index of p->values, and advances *stored_index. */
static void block_swap_stored_value(dv__partial *p, dv__operand reg, uint32_t *stored_index)
{
    const abstract_value one = *value_at(p, reg);
    *value_at(p, reg) = p->values[*stored_index];
    p->values[(*stored_index)++] = one;
}

/* Exchanges the values of a block's registers with those that are stored for one tensor of its list, from stored_index on.
 * Returns the index after them. */
static uint32_t block_swap_stored_values_and_get_end(dv__partial *p, const dv__step *block, uint32_t stored_index)
{
    for (int32_t i = 1; i <= block->body_size; i++)
        if (block[i].op != DV__OP_CHECK)
            block_swap_stored_value(p, block[i].to, &stored_index);
    block_swap_stored_value(p, block->to, &stored_index);
    block_swap_stored_value(p, block->index, &stored_index);
    block_swap_stored_value(p, block->first, &stored_index);
    for (uint32_t c = 0; c < block->ncarry; c++)
        block_swap_stored_value(p, block->carry[c].to, &stored_index);
    return stored_index;
}

/* Propagates the sums over a list backward, from the last tensor to the first: the range of a sum narrows each tensor's addend.
 * stored_end: end of the stored values. Returns false if no call is left. */
static bool partial_try_propagate_sums_backward(
    dv__partial *p, const dv__step *block, dv_range *sums, uint32_t stored_end, uint32_t values_per_tensor)
{
    const uint32_t begin = (uint32_t)(block - p->c->program->steps) + 1, end = begin + (uint32_t)block->body_size;
    while (stored_end > p->block_stored_values[begin - 1]) {
        stored_end -= values_per_tensor;
        block_swap_stored_values_and_get_end(p, block, stored_end);
        for (uint32_t c = 0; c < block->ncarry; c++)
            if (!range_try_narrow(p, &value_at(p, block->carry[c].next)->range, sums[c]))
                return false;
        if (!partial_try_propagate_steps(p, begin, end, false, true))
            return false;
        for (uint32_t c = 0; c < block->ncarry; c++)
            sums[c] = value_at(p, block->carry[c].to)->range;
        block_swap_stored_values_and_get_end(p, block, stored_end);
    }
    return true;
}

/* Propagates the body of a block EACH for each tensor of its list. Returns false if no call is left. */
static bool partial_try_propagate_list_block(dv__partial *p, const dv__step *block)
{
    const uint32_t begin = (uint32_t)(block - p->c->program->steps) + 1, end = begin + (uint32_t)block->body_size;
    const struct partial_argument *a = &p->arguments[block->slot];
    uint32_t stored = p->block_stored_values[begin - 1], values_per_tensor = 0;
    dv_range sums[DV_MAX_NDIM];
    bool first = true;
    if (a->list_length < 0 || block->ncarry > DV_MAX_NDIM)
        return true;
    for (uint32_t c = 0; c < block->ncarry; c++)
        sums[c] = value_at(p, block->carry[c].from)->range;
    for (int32_t k = 0; k < a->list_length; k++) {
        const uint32_t properties = a->first_list_property + (uint32_t)k * NPROPERTIES;
        if (!p->values[properties + PROPERTY_PRESENT].range.least)
            continue;
        block_swap_stored_values_and_get_end(p, block, stored);
        value_at(p, block->to)->is_known = true;
        value_at(p, block->to)->value.i = properties;
        bool fits = operand_try_narrow_to_int(p, block->index, k) && operand_try_narrow_to_int(p, block->first, first);
        for (uint32_t c = 0; fits && c < block->ncarry; c++)
            fits = range_try_narrow(p, &value_at(p, block->carry[c].to)->range, sums[c]);
        if (!fits || !partial_try_propagate_steps(p, begin, end, true, true) ||
            !partial_try_propagate_steps(p, begin, end, false, true))
            return false;
        for (uint32_t c = 0; c < block->ncarry; c++)
            sums[c] = value_at(p, block->carry[c].next)->range;
        values_per_tensor = block_swap_stored_values_and_get_end(p, block, stored) - stored;
        stored += values_per_tensor;
        first = false;
    }
    for (uint32_t c = 0; c < block->ncarry; c++) {
        if (!range_try_narrow(p, &value_at(p, block->carry[c].to)->range, sums[c]))
            return false;
        sums[c] = value_at(p, block->carry[c].to)->range;
    }
    return !block->ncarry || partial_try_propagate_sums_backward(p, block, sums, stored, values_per_tensor);
}

/* Returns the first CHECK at or after a step, which tests the condition that the step helps to compute. NULL: none before the
 * next block, or not in the same block. */
static const dv__step *step_find_next_check(const dv__partial *p, const dv__step *step)
{
    const dv__step *check = step, *last = p->c->program->steps + p->c->program->nsteps - 1;
    while (check < last && check->op != DV__OP_CHECK && check->op != DV__OP_EACH_TENSOR)
        check++;
    return check->op == DV__OP_CHECK && !((check->flags ^ step->flags) & DV__STEP_IN_BLOCK) ? check : NULL;
}

/* Propagates one step under its guard. If the step cannot succeed, its guard becomes false. Returns false if the guard cannot
 * be false: no call is left. */
static bool partial_try_propagate_guarded_step(dv__partial *p, const dv__step *s, bool always_runs)
{
    abstract_value *guard = value_at(p, s->guard);
    if (s->flags & DV__STEP_MESSAGE_ONLY || !guard->range.most)
        return true;
    always_runs = always_runs && guard->range.least;
    const bool changed = p->changed;
    p->changed = false;
    const bool fits = s->op == DV__OP_EACH_TENSOR ? !always_runs || partial_try_propagate_list_block(p, s)
                                                  : partial_try_propagate_step(p, s, always_runs);
    if (p->changed)
        worklist_add_steps(p, p->dependent_steps + (size_t)(s - p->c->program->steps) * p->nwords);
    p->changed |= changed;
    if (fits)
        return true;
    if (!always_runs && !guard->range.least && !p->is_out_of_memory) {
        p->failed_step = NULL;
        worklist_add_readers(p, p->reader_rows[s->guard]);
        return range_try_narrow(p, &guard->range, dv__range_exactly(0));
    }
    p->failed_step = p->failed_step ? p->failed_step : step_find_next_check(p, s);
    return false;
}

/* Propagates the steps from begin to end, in order or (forward false) in reverse; if the first one is in a block, only steps in
 * blocks. always_runs: every call runs these steps, so that their operands are narrowed too; otherwise only their results.
 * Returns false if no call is left. */
static bool partial_try_propagate_steps(dv__partial *p, uint32_t begin, uint32_t end, bool forward, bool always_runs)
{
    const dv__step *steps = p->c->program->steps;
    const bool inside = begin < end && steps[begin].flags & DV__STEP_IN_BLOCK;
    for (uint32_t i = begin; i < end; i++) {
        const dv__step *s = &steps[forward ? i : begin + end - 1 - i];
        if (inside == !!(s->flags & DV__STEP_IN_BLOCK) && !partial_try_propagate_guarded_step(p, s, always_runs))
            return false;
    }
    return true;
}

/* Returns the index of the first (forward) or last step of the worklist from begin to end; -1: the worklist has none of
 * them. */
static int64_t worklist_find_step_index(const dv__partial *p, int64_t begin, int64_t end, bool forward)
{
    for (int64_t n, w = forward ? begin / 64 : (end - 1) / 64; begin < end && w * 64 < end && w * 64 + 64 > begin;
        w += forward ? 1 : -1) {
        uint64_t bits = p->worklist[w] & p->is_step_outside_block[w];
        bits &= (n = begin - w * 64) > 0 ? UINT64_MAX << n : UINT64_MAX;
        bits &= (n = w * 64 + 64 - end) > 0 ? UINT64_MAX >> n : UINT64_MAX;
        if (bits)
            return w * 64 + (forward ? __builtin_ctzll(bits) : 63 - __builtin_clzll(bits));
    }
    return -1;
}

/* Propagates the worklist's steps from begin to end and removes them, forward or in reverse; a block counts as one step.
 * Returns false if no call is left. */
static bool partial_try_propagate_worklist(dv__partial *p, int64_t begin, int64_t end, bool forward, bool always_runs)
{
    for (int64_t k; (k = worklist_find_step_index(p, begin, end, forward)) >= 0;
        begin = forward ? k + 1 : begin, end = forward ? end : k) {
        p->worklist[k / 64] &= ~(1ull << k % 64);
        if (!partial_try_propagate_guarded_step(p, &p->c->program->steps[k], always_runs))
            return false;
    }
    return true;
}

/* Narrows each variable to the values that its writers can still write. A writer that can write none of the variable's values
 * gets a false guard. Returns false if no call is left. */
static bool partial_try_propagate_writers_to_variables(dv__partial *p)
{
    for (uint32_t i = 0, n; i < p->nwriters; i += n) {
        abstract_value *from[DV__MAX_DIM_VARS + 64], *variable = &p->values[p->writers[i].variable];
        uint32_t nfrom = 0;
        bool any = false;
        for (n = 0; i + n < p->nwriters && p->writers[i + n].variable == p->writers[i].variable; n++) {
            const struct variable_writer *w = &p->writers[i + n];
            const dv__step *s = &p->c->program->steps[w->step];
            abstract_value *guard = value_at(p, s->guard);
            if (!guard->range.most)
                continue;
            if (w->is_in_block || nfrom == sizeof from / sizeof *from) {
                any = true;
                continue;
            }
            from[nfrom] = value_at(p, s->in[s->op == DV__OP_UNBACKED]);
            if (!guard->range.least && value_is_disjoint(p, variable, from[nfrom])) {
                worklist_add_readers(p, p->reader_rows[s->guard]);
                if (!range_try_narrow(p, &guard->range, dv__range_exactly(0)))
                    return false;
            }
            nfrom += guard->range.most != 0;
        }
        const bool changed = p->changed;
        p->changed = false;
        if (!any && nfrom)
            value_try_narrow_to_union_of(p, variable, nfrom, from);
        if (p->changed)
            worklist_add_readers(p, (uint32_t)(variable - p->values));
        p->changed |= changed;
    }
    return true;
}

/* True if the number of bytes of some tensor with this shape and dtype fits int64_t. A size of 0 counts as 1, as in
 * dv__shape_check(). */
static bool tensor_bytes_fit_int64(const dv__partial *p, const abstract_value *shape, const abstract_value *dtype)
{
    const dv_range *sizes = value_find_size_ranges(p, shape);
    const uint32_t key = value_get_only_dtype_key(dtype);
    int64_t n = 1;
    for (int64_t i = 0; sizes && i < shape->range.least; i++)
        if (sizes[i].least > 1 && __builtin_mul_overflow(n, sizes[i].least, &n))
            return false;
    return dv_dtype_bytes(dv_dtype_from_key(key ? key : DV_DTYPE_u1), n) >= 0;
}

/* Stores the reason that an argument or result (noun) has too many bytes. Always returns false, for the
 * caller to return. */
static bool partial_reject_too_large(dv__partial *p, const char *noun, size_t index)
{
    p->reason.n = 0;
    dv__fixed_text_add(&p->reason, ": %s %zu would have more bytes than fit 64 bits", noun, index);
    return false;
}

/* Returns false, and stores the reason, if some present tensor argument must have more bytes than fit int64_t. */
static bool arguments_try_accept_bytes(dv__partial *p)
{
    for (size_t i = 0; i < p->c->schema->nargs; i++) {
        const struct partial_argument *a = &p->arguments[i];
        const bool list = dv__type_get_contract_kind(p->c->schema->args[i].type) == DV__TYPE_TENSORS;
        const abstract_value *properties = &p->values[list ? a->first_list_property : a->first_property];
        for (int32_t k = 0; k < (list ? a->list_length : 1); k++, properties += NPROPERTIES)
            if (properties[PROPERTY_PRESENT].range.least && properties[PROPERTY_SHAPE].type == DV__TYPE_DIMS &&
                !tensor_bytes_fit_int64(p, &properties[PROPERTY_SHAPE], &properties[PROPERTY_DTYPE]))
                return partial_reject_too_large(p, "argument", i);
    }
    return true;
}

/* Returns false, and stores the reason, if a result that is allocated must have more bytes than fit int64_t. */
static bool result_try_accept_bytes(dv__partial *p, const dv__program_result *r)
{
    return (r->kind != DV__PROGRAM_RESULT_NEW && r->kind != DV__PROGRAM_RESULT_LIKE) ||
        tensor_bytes_fit_int64(p, value_at(p, r->shape), value_at(p, r->dtype)) ||
        partial_reject_too_large(p, "result", (size_t)r->slot - p->c->schema->nargs);
}

static bool result_is_list(const dv__program_result *r) { return r->list_count.value != DV__NEVER; }

/* Propagates the sections of all results; of a returned list, only its length. Returns false if no call is left. */
static bool partial_try_propagate_results(dv__partial *p, bool forward)
{
    const dv__program *program = p->c->program;
    for (uint32_t i = 0; i < program->nresults; i++) {
        const dv__program_result *r = &program->results[i];
        const abstract_value *guard = value_at(p, r->guard);
        const dv__section *section = result_is_list(r)
            ? &r->list_count
            : &r->section; /* partial_try_propagate_list_result() infers a list's tensors */
        if (r->kind != DV__PROGRAM_RESULT_ALIAS && guard->range.most &&
            !(partial_try_propagate_worklist(p, section->begin, section->end, forward, guard->range.least) &&
                (result_is_list(r) || result_try_accept_bytes(p, r))) &&
            guard->range.least)
            return false;
    }
    return true;
}

/* Resets a register to unknown before the next tensor of a returned list is inferred. Its entry in dims_pool is kept for
 * reuse. */
static void register_reset_for_next_tensor(dv__partial *p, dv__operand reg)
{
    abstract_value *value = value_at(p, reg);
    const int32_t sizes_index = value->sizes_index;
    *value = value_new_unknown((enum dv__type_kind)value->type);
    value->sizes_index = sizes_index;
    for (int32_t i = 0; sizes_index >= 0 && i < DV_MAX_NDIM; i++)
        p->dims_pool[sizes_index].sizes[i] = dv__range_any();
}

/* Infers the tensor of a returned list at an index in this range. Returns false if no call is left. */
static bool partial_try_propagate_list_result(dv__partial *p, const dv__program_result *r, dv_range index_in_list)
{
    for (uint32_t i = r->section.begin; i < r->section.end; i++)
        if (p->c->program->steps[i].op != DV__OP_CHECK)
            register_reset_for_next_tensor(p, p->c->program->steps[i].to);
    value_at(p, r->index)->range = index_in_list;
    return partial_try_propagate_steps(p, r->section.begin, r->section.end, true, false) && result_try_accept_bytes(p, r);
}

/* Infers the first tensors of each returned list: as many as the list's least length, at most MAX_LIST_TENSORS_VISITED. Returns
 * false if some tensor is impossible. */
static bool partial_try_propagate_list_results(dv__partial *p)
{
    for (uint32_t i = 0; i < p->c->program->nresults; i++) {
        const dv__program_result *r = &p->c->program->results[i];
        if (!result_is_list(r) || !value_at(p, r->guard)->range.least)
            continue;
        const int64_t least = value_at(p, r->list_count.value)->range.least;
        for (int64_t k = 0; k < least && k < MAX_LIST_TENSORS_VISITED; k++)
            if (!partial_try_propagate_list_result(p, r, dv__range_exactly(k)))
                return false;
    }
    return true;
}

/* Propagates once through the program, forward and then backward. Returns false if no call is left. */
static bool partial_try_propagate_pass(dv__partial *p)
{
    const uint32_t end = p->c->program->solve_end_step;
    p->changed = false;
    worklist_add_steps(p, p->is_list_block_step);
    return partial_try_propagate_worklist(p, 0, end, true, true) && partial_try_propagate_writers_to_variables(p) &&
        partial_try_propagate_results(p, true) && partial_try_propagate_results(p, false) &&
        partial_try_propagate_worklist(p, 0, end, false, true);
}

#ifndef NDEBUG
/* True if another pass over all steps outside of blocks changes no value. */
static bool partial_is_at_fixpoint(dv__partial *p)
{
    worklist_add_steps(p, p->is_step_outside_block);
    return partial_try_propagate_pass(p) && !p->changed;
}
#endif

/* Repeats passes until no value changes, at most MAX_PASSES. Returns false if no call is left, or memory is out. */
static bool partial_try_propagate_to_fixpoint(dv__partial *p)
{
    p->failed_step = NULL;
    p->reason.n = 0;
    p->changed = true;
    for (int pass = 0; pass < MAX_PASSES && p->changed; pass++)
        if (!partial_try_propagate_pass(p))
            return false;
    assert(p->changed || partial_is_at_fixpoint(p));
    return partial_try_propagate_list_results(p) && arguments_try_accept_bytes(p) && !p->is_out_of_memory;
}

/* ---- Messages ------------------------------------------------------------------------------------------------------------ */

/* Derives values from arguments and names alone, without the checks, from the steps before failed_step: the message of the
 * failed check prints them. */
static void partial_derive_for_message(dv__partial *p, const dv__step *failed_step)
{
    for (int pass = 0; pass < 3; pass++) { /* several passes, since some steps read names that later steps bind */
        for (const dv__step *s = p->c->program->steps; s < failed_step; s++)
            if (s->op == DV__OP_EACH_TENSOR && value_at(p, s->guard)->range.least)
                partial_try_propagate_list_block(p, s);
            else if (!s->flags && s->op != DV__OP_CHECK && s->op != DV__OP_EACH_TENSOR && value_at(p, s->guard)->range.most)
                partial_try_propagate_step(p, s, false);
        partial_try_propagate_writers_to_variables(p);
    }
}

/* Fails with the message of the check that no call passes; unknown values are printed as "?". try_restore(): sets the known
 * values as they were before that check, or returns false. Returns a status. */
static int partial_fail_with_check_message(dv__partial *p, bool (*try_restore)(dv__partial *p, void *user), void *user)
{
    const dv__step *s = p->failed_step;
    if (p->is_out_of_memory)
        return DV_ENOMEM;
    const bool inside = s &&
        s->flags & DV__STEP_IN_BLOCK; /* in a block the registers already have the values of the tensor that fails */
    const dv__step *block = s;
    if (!s || !s->error)
        return dv_fail(
            DV_EINVAL, "%s: no call fits what is known of the arguments%s", p->c->name, p->reason.n ? p->reason.data : "");
    if (!inside && try_restore(p, user))
        partial_derive_for_message(p, s);
    while (inside && block->op != DV__OP_EACH_TENSOR)
        block--;
    for (const dv__step *k = p->c->program->steps; k < s; k++)
        if (k->flags & DV__STEP_MESSAGE_ONLY && (!(k->flags & DV__STEP_IN_BLOCK) || (inside && k > block)) &&
            value_at(p, k->guard)->range.least)
            partial_try_propagate_step(p, k, false);
    for (uint32_t i = 0; i < p->c->program->nregisters; i++)
        p->is_register_known[i] = operand_find_exact_reg(p, (dv__operand)i) != NULL ||
            (value_at(p, (dv__operand)i)->type == DV__TYPE_DIMS && value_find_size_ranges(p, value_at(p, (dv__operand)i)));
    return dv__step_error_raise(&p->evaluator, s->error);
}

/* ---- The arguments ------------------------------------------------------------------------------------------------------- */

/* Adds the NPROPERTIES unknown values of one argument or tensor. value_type: the type of PROPERTY_VALUE. Returns the index of
 * the first one. */
static uint32_t values_append_properties_get_index(dv__partial *p, enum dv__type_kind value_type)
{
    static const enum dv__type_kind types[] = { DV__TYPE_BOOL, DV__TYPE_INT, DV__TYPE_DIMS, DV__TYPE_DIMS, DV__TYPE_DTYPE,
        DV__TYPE_DEVICE };
    for (int i = 0; i < NPROPERTIES; i++)
        p->values[p->nvalues + (uint32_t)i] = value_new_unknown(i == PROPERTY_VALUE ? value_type : types[i]);
    p->values[p->nvalues + PROPERTY_SHAPE].is_nonnegative = true;
    p->nvalues += NPROPERTIES;
    return p->nvalues - NPROPERTIES;
}

/* Narrows a DIMS value to n sizes. negative_is_unknown: a negative size narrows nothing. Returns false if that is
 * impossible. */
static bool value_try_narrow_to_sizes(
    dv__partial *p, abstract_value *to, const int64_t *sizes, int32_t n, bool negative_is_unknown)
{
    if (n > DV_MAX_NDIM || !value_try_narrow_rank(p, to, dv__range_exactly(n)))
        return false;
    for (int32_t i = 0; i < n; i++)
        if ((!negative_is_unknown || sizes[i] >= 0) &&
            !range_try_narrow(p, &p->dims_pool[to->sizes_index].sizes[i], dv__range_exactly(sizes[i])))
            return false;
    return true;
}

/* Sets the properties that begin at index first_property to what is known of a tensor. tensor NULL: it is absent. Returns false
 * if there are too many dims. */
static bool properties_try_narrow_to_tensor(dv__partial *p, uint32_t first_property, const dv_tensor *tensor)
{
    abstract_value *property = &p->values[first_property];
    bool all = tensor && tensor->ndim >= 0;
    property[PROPERTY_PRESENT].range = dv__range_exactly(tensor != NULL);
    if (!tensor)
        return true;
    for (int32_t i = 0; i < tensor->ndim; i++)
        all &= tensor->shape[i] >= 0;
    if (tensor->dtype.bits)
        property[PROPERTY_DTYPE].other_dtype = dv_dtype_key(tensor->dtype),
        property[PROPERTY_DTYPE].dtype_bits = dtype_key_to_bits(property[PROPERTY_DTYPE].other_dtype);
    if (tensor->device.type)
        property[PROPERTY_DEVICE].is_known = true, property[PROPERTY_DEVICE].value.device = tensor->device;
    return (tensor->ndim < 0 || value_try_narrow_to_sizes(p, &property[PROPERTY_SHAPE], tensor->shape, tensor->ndim, true)) &&
        (!all || !tensor->strides ||
            value_try_narrow_to_sizes(p, &property[PROPERTY_STRIDES], tensor->strides, tensor->ndim, false));
}

/* Narrows the values of one argument by the dv_value that the caller passed. Returns a status. */
static int argument_narrow_to_call_value(dv__partial *p, uint32_t slot)
{
    const dv_value *v = &p->evaluator.args[slot];
    struct partial_argument *a = &p->arguments[slot];
    const bool list = v->type == DV_VALUE_TENSORS;
    if (v->type != DV_VALUE_UNKNOWN)
        p->values[a->first_property + PROPERTY_PRESENT].range = dv__range_exactly(dv__value_is_present(v));
    else if (p->c->schema->args[slot].type->kind != DV__TYPE_OPTIONAL)
        p->values[a->first_property + PROPERTY_PRESENT].range = dv__range_exactly(1);
    if (v->type == DV_VALUE_INT &&
        value_is_int_or_bool(
            &p->values[a->first_property + PROPERTY_VALUE])) /* needed where only steps on elements read the argument */
        p->values[a->first_property + PROPERTY_VALUE].range = dv__range_exactly(v->as.i);
    bool fits = v->type != DV_VALUE_TENSOR || properties_try_narrow_to_tensor(p, a->first_property, v->as.tensor);
    if (list)
        fits = range_try_narrow(p, &p->values[a->first_property + PROPERTY_VALUE].range, dv__range_exactly(a->list_length));
    for (int32_t k = 0; k < a->list_length && fits; k++)
        fits = properties_try_narrow_to_tensor(p, a->first_list_property + (uint32_t)k * NPROPERTIES, v->as.tensors.data[k]);
    return fits               ? DV_OK
        : p->is_out_of_memory ? DV_ENOMEM
                              : dv_fail(DV_ESHAPE, "%s: argument '%s': expected at most %d dims", p->c->name,
                                    p->c->schema->args[slot].name, DV_MAX_NDIM);
}

/* Collects the writers of each variable, grouped by variable. */
static void writers_build(dv__partial *p)
{
    const dv__program *program = p->c->program;
    for (dv__operand v = 0; v <= dv__device_register(p->c); v++)
        for (uint32_t i = 0; i < program->solve_end_step; i++) {
            const dv__step *s = &program->steps[i];
            bool writes = (s->op == DV__OP_COPY || s->op == DV__OP_UNBACKED) && s->to == v;
            for (uint32_t c = 0; c < s->ncarry; c++)
                writes |= s->op == DV__OP_EACH_TENSOR && s->carry[c].to == v;
            if (writes)
                p->writers[p->nwriters++] = (struct variable_writer){ (uint32_t)v, i,
                    s->op == DV__OP_EACH_TENSOR || s->flags & DV__STEP_IN_BLOCK };
        }
}

/* Counts the abstract values: registers, literals, properties of arguments, and values stored for blocks. */
static uint32_t partial_count_values(dv__partial *p)
{
    const dv__program *program = p->c->program;
    uint32_t n = program->nregisters + program->nconstants;
    for (uint32_t i = 0; i < p->c->schema->nargs; i++) {
        const dv_value *v = &p->evaluator.args[i];
        p->arguments[i].list_length = v->type == DV_VALUE_TENSORS ? (int32_t)v->as.tensors.size
            : v->type == DV_VALUE_UNKNOWN                         ? -1
                                                                  : 0;
        n += NPROPERTIES * (1 + (uint32_t)(p->arguments[i].list_length > 0 ? p->arguments[i].list_length : 0));
    }
    for (uint32_t i = 0; i < program->nsteps; i++) {
        const dv__step *s = &program->steps[i];
        if (s->op == DV__OP_EACH_TENSOR && p->arguments[s->slot].list_length > 0)
            n += (uint32_t)p->arguments[s->slot].list_length * ((uint32_t)s->body_size + 3 + s->ncarry);
    }
    return n;
}

/* Returns the type of the register into which the program reads a non-tensor argument; INT if no step reads it. */
static enum dv__type_kind argument_find_reg_type(const dv__program *program, uint32_t slot)
{
    for (uint32_t i = 0; i < program->nsteps; i++)
        if (program->steps[i].op == DV__OP_ARGUMENT && program->steps[i].slot == (int32_t)slot)
            return (enum dv__type_kind)program->steps[i].type;
    return DV__TYPE_INT;
}

/* Sets all registers to unknown. */
static void partial_reset_registers(dv__partial *p)
{
    for (uint32_t i = 0; i < p->c->program->nregisters; i++)
        p->values[i] = value_new_unknown((enum dv__type_kind)p->c->program->types[i]);
}

/* Sets all abstract values to unknown, and literals to their value. Returns false if memory is out. */
static bool partial_try_init_values(dv__partial *p)
{
    const dv__program *program = p->c->program;
    partial_reset_registers(p);
    p->nvalues = program->nregisters;
    for (uint32_t i = 0; i < program->nconstants; i++) {
        p->values[p->nvalues] = value_new_unknown((enum dv__type_kind)program->constant_types[i]);
        if (!value_try_narrow_to_reg(p, &p->values[p->nvalues++], &program->constants[i]))
            return false;
    }
    for (uint32_t i = 0; i < p->c->schema->nargs; i++) {
        p->arguments[i].first_property = values_append_properties_get_index(p, argument_find_reg_type(program, i));
        p->arguments[i].first_list_property = p->nvalues;
        for (int32_t k = 0; k < p->arguments[i].list_length; k++)
            values_append_properties_get_index(p, DV__TYPE_INT);
    }
    for (uint32_t i = 0; i < program->nsteps; i++) {
        const dv__step *s = &program->steps[i];
        p->block_stored_values[i] = p->nvalues;
        for (int32_t k = 0; s->op == DV__OP_EACH_TENSOR && k < p->arguments[s->slot].list_length; k++) {
            p->nvalues = block_swap_stored_values_and_get_end(p, s, p->nvalues);
            partial_reset_registers(p);
        }
    }
    return true;
}

/* Narrows the values of all arguments by the caller's dv_values. Returns a status. */
static int partial_narrow_to_call_values(dv__partial *p)
{
    int status = DV_OK;
    for (uint32_t i = 0; i < p->c->schema->nargs && !status; i++)
        status = argument_narrow_to_call_value(p, i);
    return status;
}

/* Resets all values to what the caller's dv_values alone tell. Returns false if that fails. */
static bool partial_try_restore_arguments(dv__partial *p, void *user)
{
    (void)user;
    return partial_try_init_values(p) && !partial_narrow_to_call_values(p);
}

int dv__partial_new(const dv__contract *c, const dv_value *args, dv__partial **out)
{
    const dv__program *program = c->program;
    dv__partial *p = dv__calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return DV_ENOMEM;
    int status = DV_ENOMEM;
    const size_t nargs = c->schema->nargs;
    dv_value *args_copy = DV__ARENA_ARRAY(&p->arena, dv_value, nargs + 1);
    p->c = c;
    p->evaluator = (dv__evaluator){ .c = c, .program = program, .args = args_copy, .s = &p->solution };
    p->arguments = DV__ARENA_ARRAY(&p->arena, struct partial_argument, nargs + 1);
    p->block_stored_values = DV__ARENA_ARRAY(&p->arena, uint32_t, program->nsteps + 1);
    p->writers = DV__ARENA_ARRAY(&p->arena, struct variable_writer, program->solve_end_step * 2 + 1);
    p->nwords = program->nsteps / 64 + 1;
    p->worklist = DV__ARENA_ARRAY(&p->arena, uint64_t, p->nwords);
    p->is_step_outside_block = DV__ARENA_ARRAY(&p->arena, uint64_t, p->nwords);
    p->is_list_block_step = DV__ARENA_ARRAY(&p->arena, uint64_t, p->nwords);
    p->dependent_steps = DV__ARENA_ARRAY(&p->arena, uint64_t, (size_t)program->nsteps * p->nwords);
    p->reader_rows = DV__ARENA_ARRAY(&p->arena, uint32_t, program->nregisters + 1);
    p->evaluator.is_register_known = p->is_register_known = DV__ARENA_ARRAY(&p->arena, bool, program->nregisters + 1);
    if (args_copy && p->arguments && p->block_stored_values && p->writers && p->is_register_known && p->worklist &&
        p->is_step_outside_block && p->is_list_block_step && p->dependent_steps && p->reader_rows) {
        memcpy(args_copy, args, nargs * sizeof *args_copy);
        const uint32_t n = partial_count_values(p);
        p->values = DV__ARENA_ARRAY(&p->arena, abstract_value, n);
        p->readers = DV__ARENA_ARRAY(&p->arena, uint64_t, (program->nregisters + nargs) * p->nwords);
    }
    if (p->values && p->readers && partial_try_init_values(p)) {
        readers_build(p);
        status = DV_OK;
        writers_build(p);
        status = partial_narrow_to_call_values(p);
        if (!status && !partial_try_propagate_to_fixpoint(p))
            status = partial_fail_with_check_message(p, partial_try_restore_arguments, NULL);
    }
    if (status) {
        dv__partial_free(p);
        *out = NULL;
    }
    return status;
}

void dv__partial_free(dv__partial *p)
{
    if (!p)
        return;
    dv__free(p->dims_pool);
    dv__arena_deinit(&p->arena);
    dv__free(p);
}

/* ---- What is known ------------------------------------------------------------------------------------------------------- */

/* Copies what is known of one abstract value to the fields of *known that belong to its type. */
static void value_query_known(const dv__partial *p, const abstract_value *value, dv_partial_spec *known)
{
    const dv_range *sizes = value->type == DV__TYPE_DIMS ? value_find_size_ranges(p, value) : NULL;
    if (value_is_int_or_bool(value) || value->type == DV__TYPE_DIMS)
        known->value = value->range;
    if (value->type == DV__TYPE_NUMBER && value->is_known && !value->value.is_real)
        known->value = dv__range_exactly(value->value.i);
    if (value->type == DV__TYPE_DTYPE)
        known->dtype = dv_dtype_from_key(value_get_only_dtype_key(value));
    if (value->type == DV__TYPE_DEVICE && value->is_known)
        known->device = value->value.device;
    if (value->type == DV__TYPE_STRING && value->is_known)
        known->string = (dv_string){ value->value.s, (size_t)value->value.n };
    for (int64_t i = 0; sizes && i < value->range.least; i++)
        known->sizes[i] = sizes[i];
}

/* Copies presence, shape, dtype and device of a tensor to *known. properties: the tensor's first property. */
static void tensor_query_known(const dv__partial *p, const abstract_value *properties, dv_partial_spec *known)
{
    known->present = properties[PROPERTY_PRESENT].range;
    value_query_known(p, &properties[PROPERTY_SHAPE], known);
    value_query_known(p, &properties[PROPERTY_DTYPE], known);
    value_query_known(p, &properties[PROPERTY_DEVICE], known);
}

/* Replaces the sizes in *known by the result's strides, which it computes from them: known->value and known->sizes must hold the
 * rank and the sizes. A stride that is not known becomes an unlimited range. */
static void case_result_replace_sizes_by_strides(const dv__partial *p, const dv__program_result *r, dv_partial_spec *known)
{
    const dv_range one = dv__range_exactly(1);
    const abstract_value *t = r->kind == DV__PROGRAM_RESULT_VIEW ? value_at(p, r->strides)
        : r->kind == DV__PROGRAM_RESULT_ALIAS
        ? &p->values[argument_index_of_tensor_properties(p, r->source_slot) + PROPERTY_STRIDES]
        : NULL;
    const dv_range *ranges = t ? value_find_size_ranges(p, t) : NULL;
    dv_range step = one;
    for (int64_t i = DV_MAX_NDIM; i-- > 0;) {
        const dv_range size = known->sizes[i];
        const bool exists = dv__range_is_exact(known->value) && i < known->value.least;
        known->sizes[i] = exists && ranges ? ranges[i] : exists && r->kind == DV__PROGRAM_RESULT_NEW ? step : dv__range_any();
        if (exists)
            step = dv__range_forward(DV__OP_MUL, step, dv__range_forward(DV__OP_MAX, size, one));
    }
}

/* Writes to *known what is known of a return in the case that r describes. index_in_list: which tensor of a returned list; -1:
 * only the list's length. */
static void case_result_query_known(
    dv__partial *p, const dv__program_result *r, int64_t index_in_list, bool wants_strides, dv_partial_spec *known)
{
    *known = dv_partial_spec_unknown();
    if (r->kind == DV__PROGRAM_RESULT_ALIAS) {
        tensor_query_known(p, &p->values[argument_index_of_tensor_properties(p, r->source_slot)], known);
        known->flags = DV_SPEC_VIEW;
        if (wants_strides)
            case_result_replace_sizes_by_strides(p, r, known);
        return;
    }
    known->present = dv__range_exactly(r->kind != DV__PROGRAM_RESULT_ABSENT);
    if (r->kind == DV__PROGRAM_RESULT_ABSENT || r->kind == DV__PROGRAM_RESULT_SHAPE_FN)
        return;
    known->flags = (r->pattern->is_unbacked ? DV_SPEC_UNBACKED : 0) | (r->kind == DV__PROGRAM_RESULT_VIEW ? DV_SPEC_VIEW : 0);
    if (result_is_list(r) && index_in_list < 0) {
        known->flags |= DV_SPEC_LIST;
        known->value = value_at(p, r->list_count.value)->range;
        return;
    }
    if (result_is_list(r)) {
        const dv_range count = value_at(p, r->list_count.value)->range;
        known->present = dv__range_between(count.least > index_in_list, count.most > index_in_list);
        if (known->present.most && !partial_try_propagate_list_result(p, r, dv__range_exactly(index_in_list)))
            known->present = dv__range_exactly(0);
        if (!known->present.most)
            return;
    }
    value_query_known(p, value_at(p, r->shape), known);
    value_query_known(p, value_at(p, r->dtype), known);
    value_query_known(p, value_at(p, r->device), known);
    for (int32_t i = 0; i < DV_MAX_NDIM; i++) {
        bool changed = false;
        dv__range_try_intersect(&known->sizes[i], dv__range_between(0, INT64_MAX), &changed);
    }
    if (wants_strides)
        case_result_replace_sizes_by_strides(p, r, known);
}

/* Widens *known so that it allows what *other allows, too: for a return that either case may describe. */
static void known_join(dv_partial_spec *known, const dv_partial_spec *other)
{
    known->present = dv__range_union(known->present, other->present);
    known->value = dv__range_union(known->value, other->value);
    for (int32_t i = 0; i < DV_MAX_NDIM; i++)
        known->sizes[i] = dv__range_union(known->sizes[i], other->sizes[i]);
    if (dv_dtype_key(known->dtype) != dv_dtype_key(other->dtype))
        known->dtype.bits = 0;
    if (!dv__devices_are_same(known->device, other->device))
        known->device.type = 0;
    known->flags &= other->flags;
}

/* Writes to *known what is known of a return over all cases that may be selected. index_in_list: of a returned list; -1: only
 * its length. wants_strides: strides in place of the sizes. */
static void return_query_known(
    dv__partial *p, size_t return_index, int64_t index_in_list, bool wants_strides, dv_partial_spec *known)
{
    bool any = false, always_runs = false;
    for (uint32_t i = 0; i < p->c->program->nresults; i++) {
        const dv__program_result *r = &p->c->program->results[i];
        const dv_range guard = value_at(p, r->guard)->range;
        dv_partial_spec one;
        if (r->slot != (int32_t)(p->c->schema->nargs + return_index) || !guard.most)
            continue;
        case_result_query_known(p, r, index_in_list, wants_strides, any ? &one : known);
        if (any && one.present.most && known->present.most)
            known_join(known, &one);
        else if (any)
            one.present = dv__range_union(one.present, known->present), *known = known->present.most ? *known : one,
            known->present = one.present;
        any = true;
        always_runs |= guard.least;
    }
    if (!always_runs)
        known->present.least = 0;
    if (!any)
        known->present = dv__range_exactly(0);
}

/* Returns the value of a variable, case or argument; of a tensor (*is_tensor), its first property. NULL: there is none. */
static abstract_value *partial_find_queried_value(
    const dv__partial *p, enum dv_partial_of kind, size_t index, size_t element, bool *is_tensor)
{
    *is_tensor = false;
    if (kind == DV_PARTIAL_NAME)
        return index < (size_t)dv__device_register(p->c) ? &p->values[index] : NULL;
    if (kind == DV_PARTIAL_CASE)
        return index < p->c->ngroups && element < p->c->groups[index].n ? value_at(p, p->c->program->is_selected[index][element])
                                                                        : NULL;
    if ((kind != DV_PARTIAL_ARGUMENT && kind != DV_PARTIAL_VALUES) || index >= p->c->schema->nargs)
        return NULL;
    const struct partial_argument *a = &p->arguments[index];
    const enum dv__type_kind type = dv__type_get_contract_kind(p->c->schema->args[index].type);
    *is_tensor = type == DV__TYPE_TENSOR || (type == DV__TYPE_TENSORS && a->list_length >= 0);
    if (type == DV__TYPE_TENSORS && a->list_length >= 0)
        return element < (size_t)a->list_length ? &p->values[a->first_list_property + element * NPROPERTIES] : NULL;
    return element ? NULL : &p->values[a->first_property];
}

/* Fails with DV_EINVAL and the reason why dv__partial_get() or, if is_set_call, dv__partial_set() has no such value. */
static int partial_fail_invalid_query(
    const dv__partial *p, enum dv_partial_of kind, size_t index, size_t element, bool is_set_call)
{
    static const char *const kinds[] = { "argument", "result", "name", "result", "argument", "result", "case of group" };
    const dv__schema *schema = p->c->schema;
    if ((unsigned)kind >= sizeof kinds / sizeof *kinds)
        return dv_fail(DV_EINVAL, "%s: expected one of enum dv_partial_of, found %d", p->c->name, (int)kind);
    if (is_set_call && kind != DV_PARTIAL_ARGUMENT && kind != DV_PARTIAL_NAME)
        return dv_fail(DV_EINVAL, "%s: only arguments and names can be set, found %s %zu", p->c->name,
            kind == DV_PARTIAL_VALUES ? "the values of argument" : kinds[kind], index);
    if (kind == DV_PARTIAL_CASE)
        return dv_fail(DV_EINVAL, "%s: there is no case %zu of group %zu", p->c->name, element, index);
    const bool is_argument = kind == DV_PARTIAL_ARGUMENT || kind == DV_PARTIAL_VALUES;
    const size_t n = is_argument ? schema->nargs : kind == DV_PARTIAL_NAME ? (size_t)dv__device_register(p->c) : schema->nreturns;
    if (index >= n)
        return dv_fail(DV_EINVAL, "%s: expected %s from 0 to %zu, found %zu", p->c->name, kinds[kind], n - 1, index);
    if (kind == DV_PARTIAL_NAME)
        return dv_fail(DV_EINVAL, "%s: name %zu: expected element 0, found %zu", p->c->name, index, element);
    if (kind == DV_PARTIAL_VALUES && !element)
        return dv_fail(
            DV_EINVAL, "%s: argument '%s': expected a tensor, whose values facts narrow", p->c->name, schema->args[index].name);
    if (kind == DV_PARTIAL_ELEMENT && schema->returns[index].type->kind != DV__TYPE_LIST)
        return dv_fail(DV_EINVAL, "%s: result %zu: expected a list of tensors, found one", p->c->name, index);
    if (!is_argument)
        return dv_fail(DV_EINVAL, "%s: result %zu: expected an element below 2^63 - 1, found %zu", p->c->name, index, element);
    return dv_fail(DV_EINVAL, "%s: argument '%s': expected an element below %d, found %zu", p->c->name, schema->args[index].name,
        p->arguments[index].list_length > 0 ? (int)p->arguments[index].list_length : 1, element);
}

/* State of narrowing a tensor's elements: the EACH_VALUE block with facts on the elements, and the range that they allow. */
struct element_range {
    const dv__partial *p;
    const dv__step *block;
    dv_range range;
};

/* Returns the step of the block that writes a register; NULL: the block does not write it. */
static const dv__step *block_find_writer(const struct element_range *e, dv__operand reg)
{
    for (const dv__step *s = e->block + 1; s <= e->block + e->block->body_size; s++)
        if (s->to == reg && s->op != DV__OP_CHECK)
            return s;
    return NULL;
}

/* True if s is a step of one or two operands, except DIV, to which the rules of range.c may apply. False for NULL. */
static bool step_may_have_range_rule(const dv__step *s)
{
    return s && s->op != DV__OP_DIV && s->ninputs && s->ninputs <= 2 && !s->operands;
}

/* Returns the range of a number that a fact on elements computes from the element, whose range is e->range. */
static dv_range element_get_number_range(const struct element_range *e, dv__operand number)
{
    const abstract_value *value = value_at(e->p, number);
    const dv__step *s = block_find_writer(e, number);
    if (number == e->block->to)
        return e->range;
    if (s && s->op == DV__OP_ARGUMENT)
        value = tensor_get_property(e->p, e->p->arguments[s->slot].first_property, PROPERTY_VALUE);
    else if (s && s->op == DV__OP_TO_NUMBER)
        return element_get_number_range(e, s->in[0]);
    else if (step_may_have_range_rule(s))
        return dv__range_forward(
            (enum dv__opcode)s->op, element_get_number_range(e, s->in[0]), element_get_number_range(e, s->in[s->ninputs - 1]));
    return value_is_int_or_bool(value)             ? value->range
        : value->is_known && !value->value.is_real ? dv__range_exactly(value->value.i)
                                                   : dv__range_any();
}

/* Narrows the elements' range so that the number is in the range `wanted`. Returns false if no element can satisfy that. */
static bool element_try_narrow_number(struct element_range *e, dv__operand number, dv_range wanted)
{
    const dv__step *s = block_find_writer(e, number);
    bool changed = false;
    if (number == e->block->to)
        return dv__range_try_intersect(&e->range, wanted, &changed);
    if (dv__ranges_are_disjoint(element_get_number_range(e, number), wanted))
        return false;
    if (!step_may_have_range_rule(s) || s->op == DV__OP_TO_NUMBER)
        return true;
    dv_range a = element_get_number_range(e, s->in[0]), b = element_get_number_range(e, s->in[s->ninputs - 1]);
    return dv__range_try_narrow_operands((enum dv__opcode)s->op, wanted, &a, &b, &changed) &&
        element_try_narrow_number(e, s->in[0], a) && (s->ninputs < 2 || element_try_narrow_number(e, s->in[1], b));
}

/* Narrows the elements' range so that a comparison <, <=, > or >= is true (holds) or false. Returns false if no element can
 * satisfy that. */
static bool element_try_narrow_order(struct element_range *e, const dv__step *comparison, bool holds)
{
    const bool swapped = comparison->op == DV__OP_GT || comparison->op == DV__OP_GE,
               or_equal = comparison->op == DV__OP_LE || comparison->op == DV__OP_GE;
    const dv__operand low = comparison->in[swapped == holds], high = comparison->in[swapped != holds];
    dv_range a = element_get_number_range(e, low), b = element_get_number_range(e, high);
    bool changed = false;
    return dv__range_try_narrow_less(&a, &b, holds == or_equal, &changed) && element_try_narrow_number(e, low, a) &&
        element_try_narrow_number(e, high, b);
}

/* Narrows the range of a tensor's elements to those for which a condition is true (holds) or false (!holds). Returns false if
 * no element can satisfy that. */
static bool element_try_narrow_condition(struct element_range *e, dv__operand condition, bool holds)
{
    const dv__step *s = block_find_writer(e, condition);
    if (!s)
        return !dv__ranges_are_disjoint(value_at(e->p, condition)->range, dv__range_exactly(holds));
    switch (s->op) {
    case DV__OP_NOT: return element_try_narrow_condition(e, s->in[0], !holds);
    case DV__OP_LT:
    case DV__OP_LE:
    case DV__OP_GT:
    case DV__OP_GE: return element_try_narrow_order(e, s, holds);
    case DV__OP_EQ:
    case DV__OP_NE:
        return holds != (s->op == DV__OP_EQ) ||
            (element_try_narrow_number(e, s->in[0], element_get_number_range(e, s->in[1])) &&
                element_try_narrow_number(e, s->in[1], element_get_number_range(e, s->in[0])));
    case DV__OP_AND:
    case DV__OP_OR: break;
    default: return true;
    }
    if (holds == (s->op == DV__OP_AND))
        return element_try_narrow_condition(e, s->in[0], holds) && element_try_narrow_condition(e, s->in[1], holds);
    struct element_range other = *e; /* for the second operand of `or`, or of a false `and` */
    const bool one = element_try_narrow_condition(e, s->in[0], holds),
               two = element_try_narrow_condition(&other, s->in[1], holds);
    e->range = one && two ? dv__range_union(e->range, other.range) : one ? e->range : other.range;
    return one || two;
}

/* Returns the range of elements that the facts on a tensor allow. least > most: no element is allowed. */
static dv_range tensor_query_element_range(const dv__partial *p, const abstract_value *properties)
{
    struct element_range e = { .p = p, .range = dv__range_any() };
    for (uint32_t i = 0; i < p->c->program->solve_end_step; i++) {
        const dv__step *s = &p->c->program->steps[i];
        if (s->op != DV__OP_EACH_VALUE || !value_at(p, s->guard)->range.least ||
            &p->values[value_at(p, s->in[0])->value.i] != properties)
            continue;
        e.block = s;
        for (int32_t k = 1; k <= s->body_size; k++)
            if (s[k].op == DV__OP_CHECK && !element_try_narrow_condition(&e, s[k].in[0], true))
                return dv__range_between(1, 0); /* least > most: no element is allowed */
    }
    return e.range;
}

/* Returns the range of "variable is bound" as 0 or 1: exactly 1 if every call binds it, exactly 0 if none does, else 0 to 1. */
static dv_range variable_query_is_bound(const dv__partial *p, uint32_t variable)
{
    dv_range bound = dv__range_exactly(0);
    for (uint32_t i = 0; i < p->nwriters; i++)
        if (p->writers[i].variable == variable)
            bound = dv__range_forward(DV__OP_MAX, bound, value_at(p, p->c->program->steps[p->writers[i].step].guard)->range);
    return bound;
}

int dv__partial_get(const dv__partial *p, enum dv_partial_of kind, size_t index, size_t element, dv_partial_spec *out)
{
    bool is_tensor;
    *out = dv_partial_spec_unknown();
    const bool wants_strides = kind == DV_PARTIAL_STRIDES, exists = index < p->c->schema->nreturns && element < INT64_MAX;
    const bool of_list = exists && (wants_strides || kind == DV_PARTIAL_ELEMENT) &&
        p->c->schema->returns[index].type->kind == DV__TYPE_LIST;
    if (of_list || (exists && (wants_strides || kind == DV_PARTIAL_RESULT))) {
        return_query_known((dv__partial *)(uintptr_t)p, index, of_list ? (int64_t)element : -1, wants_strides,
            out); /* the query changes registers of p as scratch */
        return DV_OK;
    }
    const abstract_value *t = partial_find_queried_value(p, kind, index, element, &is_tensor);
    if (!t || (kind == DV_PARTIAL_VALUES && !is_tensor))
        return partial_fail_invalid_query(p, kind, index, element, false);
    if (kind == DV_PARTIAL_CASE) {
        out->value = t->range;
    } else if (kind == DV_PARTIAL_VALUES) {
        out->value = tensor_query_element_range(p, t);
    } else if (is_tensor) {
        tensor_query_known(p, t, out);
    } else if (kind == DV_PARTIAL_ARGUMENT) {
        out->present = t[PROPERTY_PRESENT].range;
        value_query_known(p, &t[PROPERTY_VALUE], out);
    } else {
        value_query_known(p, t, out);
        out->present = variable_query_is_bound(p, (uint32_t)index);
    }
    return DV_OK;
}

/* Returns the range with a step of 0 replaced by 1, so that the initializer { 8, 8 } means exactly 8. */
static dv_range range_replace_step_0(dv_range r)
{
    r.step += !r.step;
    return r;
}

/* Appends a range to a message: "8", "at least 2" or "2 to 8", and its step. */
static void reason_print_range(dv__fixed_text *w, dv_range r)
{
    if (r.least == r.most)
        dv__fixed_text_add(w, "%lld", (long long)r.least);
    else if (r.least == INT64_MIN || r.most == INT64_MAX)
        dv__fixed_text_add(
            w, "at %s %lld", r.least == INT64_MIN ? "most" : "least", (long long)(r.least == INT64_MIN ? r.most : r.least));
    else
        dv__fixed_text_add(w, "%lld to %lld", (long long)r.least, (long long)r.most);
    if (r.step > 1)
        dv__fixed_text_add(w, " (%lld above a multiple of %lld)", (long long)r.rest, (long long)r.step);
}

/* Stores the reason why a value cannot be set: the range that is known (expected) and the new one (found). dim: number after
 * the noun; -1: none. Always returns false, for the caller to return. */
static bool partial_reject_with_reason(dv__partial *p, const char *expected_noun, int64_t dim, dv_range expected, dv_range found)
{
    p->reason.n = 0;
    dv__fixed_text_add(&p->reason, dim < 0 ? "expected %s " : "expected %s %lld to be ", expected_noun, (long long)dim);
    reason_print_range(&p->reason, expected);
    dv__fixed_text_add(&p->reason, ", found ");
    reason_print_range(&p->reason, found);
    return false;
}

/* Narrows a DIMS value by known->value (the rank) and known->sizes, even if the rank is not exact. A size that is impossible
 * limits the rank. Returns false, with the reason, if no shape is left. */
static bool value_try_narrow_dims_by_known(dv__partial *p, abstract_value *value, const dv_partial_spec *known)
{
    if (!value_try_narrow_rank(p, value, range_replace_step_0(known->value)))
        return partial_reject_with_reason(p, "a number of dims of", -1, value->range, range_replace_step_0(known->value));
    for (int64_t i = 0; i < value->range.most; i++) {
        const dv_range by = range_replace_step_0(known->sizes[i]);
        if (by.least == INT64_MIN && by.most == INT64_MAX && by.step == 1)
            continue;
        if (!value_try_allocate_size_ranges(p, value))
            return false;
        if (!range_try_narrow(p, &p->dims_pool[value->sizes_index].sizes[i], by) &&
            !value_try_narrow_rank(p, value, dv__range_between(0, i)))
            return partial_reject_with_reason(p, "size", i, p->dims_pool[value->sizes_index].sizes[i], by);
    }
    return true;
}

/* Narrows a value by the fields of *known that belong to its type. Returns false, with the reason in p->reason, if no value is
 * left. */
static bool value_try_narrow_by_known(dv__partial *p, abstract_value *value, const dv_partial_spec *known)
{
    dv__reg reg = { 0 };
    p->reason.n = 0;
    dv__fixed_text_add(&p->reason, "its %s does not fit what is known",
        value->type == DV__TYPE_DTYPE        ? "dtype"
            : value->type == DV__TYPE_DEVICE ? "device"
                                             : "text");
    if (value_is_int_or_bool(value))
        return range_try_narrow(p, &value->range, range_replace_step_0(known->value)) ||
            partial_reject_with_reason(p, "a value of", -1, value->range, range_replace_step_0(known->value));
    if (value->type == DV__TYPE_DIMS)
        return value_try_narrow_dims_by_known(p, value, known);
    reg.dtype = known->dtype;
    if (value->type == DV__TYPE_DTYPE)
        return !known->dtype.bits || value_try_narrow_to_reg(p, value, &reg);
    reg.device = known->device;
    if (value->type == DV__TYPE_DEVICE)
        return !known->device.type || value_try_narrow_to_reg(p, value, &reg);
    if (value->type != DV__TYPE_STRING || !known->string.data)
        return true;
    reg.s = dv__arena_strndup(&p->arena, known->string.data, known->string.size);
    reg.n = (int32_t)known->string.size;
    p->is_out_of_memory = !reg.s;
    return reg.s && value_try_narrow_to_reg(p, value, &reg);
}

/* Narrows an argument (is_argument) or a variable by *known; an argument's presence, and a tensor's shape, dtype and device.
 * first_value: its value, or its first property. Returns false, with the reason, if no call is left. */
static bool argument_try_narrow_by_known(
    dv__partial *p, abstract_value *first_value, bool is_argument, bool is_tensor, const dv_partial_spec *known)
{
    if (!is_argument)
        return value_try_narrow_by_known(p, first_value, known);
    if (!range_try_narrow(p, &first_value[PROPERTY_PRESENT].range, range_replace_step_0(known->present)))
        return partial_reject_with_reason(
            p, "its presence to be", -1, first_value[PROPERTY_PRESENT].range, range_replace_step_0(known->present));
    if (!is_tensor)
        return value_try_narrow_by_known(p, &first_value[PROPERTY_VALUE], known);
    return value_try_narrow_by_known(p, &first_value[PROPERTY_SHAPE], known) &&
        value_try_narrow_by_known(p, &first_value[PROPERTY_DTYPE], known) &&
        value_try_narrow_by_known(p, &first_value[PROPERTY_DEVICE], known);
}

/* One dv__partial_set(): the argument or variable that is narrowed, and copies of all values from before. */
struct partial_setting {
    abstract_value *t;
    bool argument, tensor;
    const dv_partial_spec *known;
    char *values, *dims_pool;
    uint32_t ndims_pool;
};

/* Restores all values to their state before the dv__partial_set(), and empties the worklist. */
static void setting_restore_before(dv__partial *p, const struct partial_setting *s)
{
    memcpy(p->values, s->values, p->nvalues * sizeof *p->values);
    if (s->ndims_pool)
        memcpy(p->dims_pool, s->dims_pool, s->ndims_pool * sizeof *p->dims_pool);
    p->ndims_pool = s->ndims_pool;
    p->is_out_of_memory = false;
    memset(p->worklist, 0, p->nwords * sizeof *p->worklist);
}

/* Restores the state before the dv__partial_set() and applies only the new range, without propagation. user: the
 * partial_setting. */
static bool setting_try_restore_and_apply(dv__partial *p, void *user)
{
    const struct partial_setting *s = user;
    setting_restore_before(p, s);
    return argument_try_narrow_by_known(p, s->t, s->argument, s->tensor, s->known);
}

/* Fails with DV_EINVAL: the name of the argument or variable, and p->reason. */
static int setting_fail_with_reason(const dv__partial *p, enum dv_partial_of kind, size_t index)
{
    const dv__contract *c = p->c;
    const size_t variadic = index - c->ndims, dtypes_at = variadic - c->nvariadics;
    const char *name = kind == DV_PARTIAL_ARGUMENT ? c->schema->args[index].name
        : index < c->ndims                         ? c->dims[index].name
        : variadic < c->nvariadics                 ? c->variadics[variadic].name
                                                   : c->dtypes[dtypes_at].name;
    return dv_fail(
        DV_EINVAL, "%s: %s '%s': %s", c->name, kind == DV_PARTIAL_ARGUMENT ? "argument" : "name", name, p->reason.data);
}

int dv__partial_set(dv__partial *p, enum dv_partial_of kind, size_t index, size_t element, const dv_partial_spec *known)
{
    struct partial_setting s = { .argument = kind == DV_PARTIAL_ARGUMENT, .known = known, .ndims_pool = p->ndims_pool };
    s.t = kind == DV_PARTIAL_VALUES || kind == DV_PARTIAL_CASE ? NULL
                                                               : partial_find_queried_value(p, kind, index, element, &s.tensor);
    if (!s.t)
        return partial_fail_invalid_query(p, kind, index, element, true);
    const size_t size = p->nvalues * sizeof *p->values;
    s.values = dv__alloc(size + s.ndims_pool * sizeof *p->dims_pool);
    if (!s.values)
        return DV_ENOMEM;
    s.dims_pool = s.values + size;
    memcpy(s.values, p->values, size);
    if (s.ndims_pool)
        memcpy(s.dims_pool, p->dims_pool, s.ndims_pool * sizeof *p->dims_pool);
    int status = DV_OK;
    worklist_add_readers(p, s.argument ? argument_get_reader_row(p, index) : p->reader_rows[index]);
    if (!argument_try_narrow_by_known(p, s.t, s.argument, s.tensor, known))
        status = p->is_out_of_memory ? DV_ENOMEM : setting_fail_with_reason(p, kind, index);
    else if (!partial_try_propagate_to_fixpoint(p))
        status = partial_fail_with_check_message(p, setting_try_restore_and_apply, &s);
    if (status)
        setting_restore_before(p, &s);
    dv__free(s.values);
    return status;
}
