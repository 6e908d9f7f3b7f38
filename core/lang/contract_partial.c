/* A contract's program over arguments of which not everything is known.
 *
 * Each register, each literal and each part of an argument is a *thing*: what it may be in a call that succeeds and in which it
 * has a value. A step relates things, both ways: what its operands can be narrows its result, and the result narrows the
 * operands. Steps are gone through, up and down, until nothing changes. A step whose guard is not known narrows its result only;
 * where it cannot be done, its guard is false. Where all operands of a step are known, contract_run.c does it. A step is left out
 * while nothing that it relates has changed. */
#include <assert.h>

#include "lang/contract_internal.h"
#include "lang/range.h"

enum { PASSES = 64, OTHER_DTYPE = 63, NO_ROOM = -1, MOST_LOOKED_AT = 64 /* tensors of a list that is returned */ };

/* The parts of an argument, or of a list's tensor, one behind the other. */
enum part { PRESENT, VALUE, SHAPE, STRIDES, DTYPE, DEVICE, PARTS };

typedef struct thing {
    uint8_t type; /* enum dv__rtype */
    bool known;   /* of NUMBER, REAL, STRING, DEVICE: is `value`; of TENSOR: value.i is the first of its parts */
    bool sizes;   /* none of its dims is negative */
    int32_t room; /* of DIMS: where its elements are, as far as it has so many; NO_ROOM: nothing was known of them */
    dv_range i;   /* of INT and BOOL; of DIMS: how many */
    uint64_t dtypes;
    uint32_t other; /* the dtype that OTHER_DTYPE stands for; 0: any */
    dv__reg value;
} thing;

struct room {
    dv_range sizes[DV_MAX_NDIM];
    int64_t exact[DV_MAX_NDIM]; /* for steps that are done, and messages */
};

struct argument {
    uint32_t at, elements; /* its parts; those of a list's first tensor */
    int32_t n;             /* of a list: how many tensors; -1: not known */
};

/* A step that writes a variable, or the block in which something does. */
struct writer {
    uint32_t variable, step;
    bool block;
};

struct dv__partial {
    const dv__contract *c;
    dv__arena arena;
    thing *things;
    struct room *rooms;
    struct argument *arguments;
    struct writer *writers; /* by variable */
    uint32_t *blocks;       /* of a block's step: where what it has for each tensor is kept */
    bool *shown;            /* registers that messages can show */
    uint64_t *waiting;      /* a bit for each step: something that it relates has changed */
    uint64_t *outside;      /* not in a block */
    uint64_t *lists;        /* EACH: gone through in every pass */
    uint64_t *readers;      /* by register, then by argument: the steps that relate it */
    uint64_t *neighbours;   /* by step: those that relate something that it relates */
    uint32_t words;         /* of each */
    uint32_t *homes;        /* by register: its own place among the readers, or its argument's */
    uint32_t nthings, nrooms, nwriters;
    bool changed, no_memory;
    dv__words why; /* no call is left, where no check says it */
    const dv__step *failed;
    dv__run run;
    dv__solution solution;
};

/* ---- Dtypes as sets ------------------------------------------------------------------------------------------------------ */

static const uint32_t dtypes[] = {
#define KEY(name, ...) DV_DTYPE_##name,
    DV_DTYPES(KEY)
#undef KEY
};
enum { NDTYPES = sizeof dtypes / sizeof *dtypes };
_Static_assert((int)NDTYPES <= (int)OTHER_DTYPE, "a set of dtypes is 64 bits");

static uint64_t set_of(uint32_t key)
{
    for (uint32_t i = 0; i < NDTYPES; i++)
        if (dtypes[i] == key)
            return 1ull << i;
    return 1ull << OTHER_DTYPE;
}

/* 0: not known. */
static uint32_t only_dtype(const thing *t)
{
    if (!t->dtypes || t->dtypes & (t->dtypes - 1))
        return 0;
    return t->dtypes >> OTHER_DTYPE ? t->other : dtypes[__builtin_ctzll(t->dtypes)];
}

static uint64_t common_dtypes(const thing *a, const thing *b)
{
    const uint64_t both = a->dtypes & b->dtypes;
    return a->other && b->other && a->other != b->other ? both & ~(1ull << OTHER_DTYPE) : both;
}

/* ---- Things -------------------------------------------------------------------------------------------------------------- */

static thing *at(const dv__partial *p, dv__operand x)
{
    return &p->things[x >= 0 ? (uint32_t)x : p->c->program->nregisters + (uint32_t)(-1 - x)];
}

static thing any_of(enum dv__rtype type)
{
    thing t = { .type = (uint8_t)type, .room = NO_ROOM, .i = dv__any_int(), .dtypes = UINT64_MAX };
    if (type == DV__RTYPE_BOOL)
        t.i = dv__between(0, 1);
    if (type == DV__RTYPE_DIMS)
        t.i = dv__between(0, DV_MAX_NDIM);
    return t;
}

static bool is_range(const thing *t) { return t->type == DV__RTYPE_INT || t->type == DV__RTYPE_BOOL; }

static bool meet(dv__partial *p, dv_range *to, dv_range by) { return dv__range_meet(to, by, &p->changed); }

/* The elements of dims, once their number is known. */
static dv_range *sizes_of(const dv__partial *p, const thing *t)
{
    return t->room >= 0 && dv__is_exact(t->i) ? p->rooms[t->room].sizes : NULL;
}

static bool make_room(dv__partial *p, thing *t)
{
    if (t->room >= 0)
        return true;
    if (!(p->nrooms & (p->nrooms - 1))) { /* room for twice as many */
        struct room *more = dv__realloc(p->rooms, (p->nrooms ? 2 * p->nrooms : 1) * sizeof *more);
        if (!more) {
            p->no_memory = true;
            return false;
        }
        p->rooms = more;
    }
    t->room = (int32_t)p->nrooms++;
    for (int32_t i = 0; i < DV_MAX_NDIM; i++)
        p->rooms[t->room].sizes[i] = t->sizes ? dv__between(0, INT64_MAX) : dv__any_int();
    return true;
}

static bool meet_rank(dv__partial *p, thing *t, dv_range by)
{
    return meet(p, &t->i, by) && (!dv__is_exact(t->i) || make_room(p, t));
}

static bool same_value(const thing *a, const thing *b)
{
    const dv__reg *x = &a->value, *y = &b->value;
    switch (a->type) {
    case DV__RTYPE_STRING: return !x->s || !y->s ? !x->s && !y->s : x->n == y->n && !memcmp(x->s, y->s, (size_t)x->n);
    case DV__RTYPE_DEVICE: return dv__same_device(x->device, y->device);
    case DV__RTYPE_TENSOR: return x->i == y->i;
    default: return x->real == y->real && (x->real ? x->f == y->f || (x->f != x->f && y->f != y->f) : x->i == y->i);
    }
}

/* No value is in both. */
static bool apart(const dv__partial *p, const thing *a, const thing *b)
{
    if (a->type == DV__RTYPE_DTYPE)
        return !common_dtypes(a, b);
    if (!is_range(a) && a->type != DV__RTYPE_DIMS)
        return a->known && b->known && !same_value(a, b);
    if (dv__range_apart(a->i, b->i))
        return true;
    const dv_range *x = is_range(a) ? NULL : sizes_of(p, a), *y = is_range(a) ? NULL : sizes_of(p, b);
    for (int64_t k = 0; x && y && k < a->i.least; k++)
        if (dv__range_apart(x[k], y[k]))
            return true;
    return false;
}

/* to is this integer, or these dims. */
static bool meet_one(dv__partial *p, thing *to, const thing *from)
{
    if (is_range(to) ? !meet(p, &to->i, from->i) : !meet_rank(p, to, from->i))
        return false;
    dv_range *mine = is_range(to) ? NULL : sizes_of(p, to);
    const dv_range *sizes = mine ? sizes_of(p, from) : NULL;
    for (int64_t i = 0; mine && (sizes || from->sizes) && i < to->i.least; i++)
        if (!meet(p, &mine[i], sizes ? sizes[i] : dv__between(0, INT64_MAX)))
            return false;
    return true;
}

/* `to` equals one of these. */
static bool meet_one_of(dv__partial *p, thing *to, uint32_t n, thing *const *from)
{
    if (n == 1 && from[0]->type == to->type && (is_range(to) || to->type == DV__RTYPE_DIMS))
        return meet_one(p, to, from[0]);
    thing one = *from[0];
    bool same = one.known;
    for (uint32_t k = 1; k < n; k++) {
        one.i = dv__range_join(one.i, from[k]->i);
        one.other = one.other == from[k]->other ? one.other : 0;
        one.dtypes |= from[k]->dtypes;
        same = same && from[k]->known && same_value(&one, from[k]);
    }
    if (to->type != one.type)
        return true;
    if (is_range(to))
        return meet(p, &to->i, one.i);
    if (to->type == DV__RTYPE_DTYPE) {
        const uint64_t both = common_dtypes(to, &one);
        p->changed |= both != to->dtypes;
        to->dtypes = both ? both : to->dtypes;
        to->other = to->other ? to->other : one.other;
        return both != 0;
    }
    if (to->type != DV__RTYPE_DIMS) {
        if (same && to->known)
            return same_value(to, &one);
        if (same)
            to->known = p->changed = true, to->value = one.value;
        return true;
    }
    if (!meet_rank(p, to, one.i))
        return false;
    dv_range *sizes = sizes_of(p, to);
    for (int64_t i = 0; sizes && i < to->i.least; i++) {
        dv_range size = dv__any_int();
        for (uint32_t k = 0; k < n; k++) {
            const dv_range *here = sizes_of(p, from[k]);
            if (!here && from[k]->sizes)
                size = k ? dv__range_join(size, dv__between(0, INT64_MAX)) : dv__between(0, INT64_MAX);
            else if (!here)
                size = dv__any_int();
            else if (i < from[k]->i.least)
                size = k ? dv__range_join(size, here[i]) : here[i];
        }
        if (!meet(p, &sizes[i], size))
            return false;
    }
    return true;
}

/* Two things are equal: narrow the first by the second. back: narrow the second by the first, too. */
static bool link(dv__partial *p, thing *a, thing *b, bool back)
{
    return meet_one_of(p, a, 1, &b) && (!back || meet_one_of(p, b, 1, &a));
}

static bool say(dv__partial *p, dv__operand to, int64_t i) { return meet(p, &at(p, to)->i, dv__exactly(i)); }

/* ---- What is known completely -------------------------------------------------------------------------------------------- */

/* The value as contract_run.c has it. NULL: not all of it is known. */
static const dv__reg *exact(dv__partial *p, dv__operand x)
{
    const thing *t = at(p, x);
    if (x < 0)
        return &p->c->program->constants[-1 - x];
    dv__reg *to = &p->solution.registers[x];
    switch (t->type) {
    case DV__RTYPE_INT:
    case DV__RTYPE_BOOL: to->i = t->i.least; return dv__is_exact(t->i) ? to : NULL;
    case DV__RTYPE_DTYPE: to->dtype = dv_dtype_from_key(only_dtype(t)); return only_dtype(t) ? to : NULL;
    case DV__RTYPE_TENSOR: return NULL;
    case DV__RTYPE_DIMS: break;
    default: *to = t->value; return t->known ? to : NULL;
    }
    const dv_range *sizes = sizes_of(p, t);
    to->n = sizes ? (int32_t)t->i.least : 0;
    to->sizes = sizes ? p->rooms[t->room].exact : NULL;
    bool all = sizes != NULL;
    for (int32_t i = 0; i < to->n; i++) {
        p->rooms[t->room].exact[i] = dv__is_exact(sizes[i]) ? sizes[i].least : INT64_MIN;
        all &= dv__is_exact(sizes[i]);
    }
    return all ? to : NULL;
}

/* Convert what is known of a register (dims, an integer, ...) to its value. */
static bool learn(dv__partial *p, thing *to, const dv__reg *value)
{
    if (is_range(to))
        return meet(p, &to->i, dv__exactly(value->i));
    thing one = any_of((enum dv__rtype)to->type);
    thing *const from = &one;
    if (to->type == DV__RTYPE_DIMS) {
        int64_t sizes[DV_MAX_NDIM]; /* a slice lies in a room, and making one moves them */
        if (value->n < 0 || value->n > DV_MAX_NDIM)
            return false;
        for (int32_t i = 0; i < value->n; i++)
            sizes[i] = value->sizes[i];
        bool fits = meet_rank(p, to, dv__exactly(value->n));
        for (int32_t i = 0; fits && i < value->n; i++)
            fits = meet(p, &p->rooms[to->room].sizes[i], dv__exactly(sizes[i]));
        return fits;
    }
    if (to->type == DV__RTYPE_DTYPE)
        one.other = dv_dtype_key(value->dtype), one.dtypes = set_of(one.other);
    one.known = true;
    one.value = *value;
    return meet_one_of(p, to, 1, &from);
}

static const dv__operand *operands(const dv__step *s) { return s->many ? s->many : s->in; }

static bool all_exact(dv__partial *p, const dv__step *s)
{
    for (uint32_t i = 0; i < s->nin; i++)
        if (!exact(p, operands(s)[i]))
            return false;
    return true;
}

static bool operate(dv__partial *p, const dv__step *s)
{
    p->solution.pool_used = 0;
    p->run.status = DV_OK;
    if ((!dv__operate(&p->run, s) && s->fault) || p->run.status) {
        p->failed = s;
        return false;
    }
    return learn(p, at(p, s->to), &p->solution.registers[s->to]);
}

/* ---- Dims ---------------------------------------------------------------------------------------------------------------- */

/* The origin of one dim of a step's result. */
struct origin {
    dv__operand of;
    int32_t at; /* -1: the integer itself, -2: it is 1 */
};

static int32_t pack_origins(dv__partial *p, const dv__step *s, struct origin *out)
{
    int32_t n = 0;
    for (uint32_t k = 0; k < s->nin; k++) {
        const dv__operand x = operands(s)[k];
        const bool dims = at(p, x)->type == DV__RTYPE_DIMS;
        const int64_t more = dims ? at(p, x)->i.least : 1;
        if ((dims && !sizes_of(p, at(p, x))) || more > DV_MAX_NDIM - n)
            return -1;
        for (int32_t i = 0; i < more; i++)
            out[n++] = (struct origin){ x, dims ? i : -1 };
    }
    return n;
}

static int32_t reduced_origins(const dv__reg *axes, bool keep, dv__operand from, int32_t rank, struct origin *out)
{
    int32_t n = 0;
    uint64_t gone = axes->n ? 0 : UINT64_MAX;
    for (int32_t i = 0; i < axes->n; i++)
        gone |= 1ull << (dv__axis_from(axes->sizes[i], rank) & 63);
    for (int32_t i = 0; i < rank; i++)
        if (!(gone >> (i & 63) & 1) || keep)
            out[n++] = (struct origin){ from, gone >> (i & 63) & 1 ? -2 : i };
    return n;
}

/* The number of dims of the result of s, and the origin of each. -1: not known. */
static int32_t origins(dv__partial *p, const dv__step *s, struct origin *out)
{
    if (s->op == DV__OP_PACK)
        return pack_origins(p, s, out);
    const dv__operand from = s->in[0];
    const dv__reg *a = exact(p, s->in[1]), *b = s->nin > 2 ? exact(p, s->in[2]) : NULL;
    if (!sizes_of(p, at(p, from)) || !a)
        return -1;
    const int32_t rank = (int32_t)at(p, from)->i.least;
    int32_t n = 0;
    if (s->op == DV__OP_REDUCED)
        return b ? reduced_origins(a, b->i != 0, from, rank, out) : -1;
    if (s->op == DV__OP_PERMUTE) {
        for (int32_t i = 0; i < rank && a->n == rank; i++)
            out[n++] = (struct origin){ from, (int32_t)dv__axis_from(a->sizes[i], rank) };
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
            out[n++] = (struct origin){ from, i };
    if (s->op == DV__OP_SWAP && a->i >= 0 && b->i >= 0 && a->i < rank && b->i < rank)
        out[a->i].at = (int32_t)b->i, out[b->i].at = (int32_t)a->i;
    if (s->op == DV__OP_REPLACE && a->i >= 0 && a->i < rank)
        out[a->i] = (struct origin){ s->in[2], -1 };
    return n;
}

/* to == a + by, of ranks. */
static bool relate_ranks(dv__partial *p, thing *to, thing *a, dv_range by, bool sure)
{
    return meet_rank(p, to, dv__range_forward(DV__OP_ADD, a->i, by)) &&
        (!sure || meet_rank(p, a, dv__range_forward(DV__OP_SUB, to->i, by)));
}

static bool relate_packed_ranks(dv__partial *p, const dv__step *s, bool sure)
{
    thing *to = at(p, s->to);
    dv_range sum = dv__exactly(0);
    for (uint32_t turn = 0; turn < 1 + (sure ? s->nin : 0u); turn++) { /* all of them, then all but one */
        sum = dv__exactly(0);
        for (uint32_t k = 0; k < s->nin; k++)
            if (turn != k + 1)
                sum = dv__range_forward(
                    DV__OP_ADD, sum, at(p, operands(s)[k])->type == DV__RTYPE_DIMS ? at(p, operands(s)[k])->i : dv__exactly(1));
        thing *one = turn ? at(p, operands(s)[turn - 1]) : to;
        if (one->type == DV__RTYPE_DIMS && !meet_rank(p, one, turn ? dv__range_forward(DV__OP_SUB, to->i, sum) : sum))
            return false;
    }
    return true;
}

static bool relate_lengths(dv__partial *p, const dv__step *s, bool sure)
{
    thing *to = at(p, s->to), *from = s->op == DV__OP_PACK ? NULL : at(p, s->in[0]);
    switch (s->op) {
    case DV__OP_PACK: return relate_packed_ranks(p, s, sure);
    case DV__OP_SLICE: /* in a call that succeeds it has room */
        return meet_rank(p, to, at(p, s->in[2])->i) && (!sure || meet(p, &at(p, s->in[2])->i, to->i)) &&
            relate_ranks(p, to, from, dv__between(-DV_MAX_NDIM, 0), sure);
    case DV__OP_DROP: return relate_ranks(p, to, from, dv__exactly(-1), sure);
    case DV__OP_REDUCED: {
        const dv_range keep = at(p, s->in[2])->i;
        return relate_ranks(p, to, from, dv__between(keep.least == 1 ? 0 : -DV_MAX_NDIM, 0), sure);
    }
    default: return relate_ranks(p, to, from, dv__exactly(0), sure);
    }
}

static bool relate_dims(dv__partial *p, const dv__step *s, bool sure)
{
    struct origin from[DV_MAX_NDIM];
    const int32_t n = origins(p, s, from);
    thing *to = at(p, s->to);
    if (n < 0)
        return relate_lengths(p, s, sure);
    if (!meet_rank(p, to, dv__exactly(n)))
        return false;
    for (int32_t i = 0; i < n; i++) {
        dv_range *size = &p->rooms[to->room].sizes[i], one = dv__exactly(1);
        dv_range *other = from[i].at == -2 ? &one
            : from[i].at == -1             ? &at(p, from[i].of)->i
                                           : &sizes_of(p, at(p, from[i].of))[from[i].at];
        if (!meet(p, size, *other) || (sure && from[i].at > -2 && !meet(p, other, *size)))
            return false;
    }
    return true;
}

/* ---- Broadcasting -------------------------------------------------------------------------------------------------------- */

/* The size of a shape's dim, counted from the end from 1. NULL: it has none. */
static dv_range *from_end(const dv__partial *p, const dv__step *s, uint32_t k, int64_t dim)
{
    thing *t = at(p, operands(s)[k]);
    return dim <= t->i.least ? &p->rooms[t->room].sizes[t->i.least - dim] : NULL;
}

/* One dim of shapes that broadcast to `to`. */
static bool relate_broadcast_dim(dv__partial *p, const dv__step *s, int64_t dim, dv_range *to, bool *to_changed, bool sure)
{
    const dv_range one = dv__exactly(1);
    dv_range result = one, joined = one, *last = NULL;
    bool decided = false, any = false;
    uint32_t others = 0;
    for (uint32_t k = 0; k < s->nin; k++) {
        const dv_range *size = from_end(p, s, k, dim);
        if (!size)
            continue;
        if (dv__range_apart(*size, one)) { /* all that cannot be 1 are the result */
            bool changed = false;
            if (decided && !dv__range_meet(&result, *size, &changed))
                return false;
            result = decided ? result : *size;
            decided = true;
        }
        joined = any ? dv__range_join(joined, *size) : *size;
        any = true;
    }
    if (!dv__range_meet(to, decided ? result : joined, to_changed))
        return false;
    for (uint32_t k = 0; k < s->nin && sure; k++) {
        dv_range *size = from_end(p, s, k, dim);
        if (!size)
            continue;
        if (!meet(p, size, dv__range_apart(*size, one) ? *to : dv__range_join(*to, one)))
            return false;
        if (!dv__range_apart(*size, *to))
            others++, last = size;
    }
    return !sure || !dv__range_apart(*to, one) || others != 1 || meet(p, last, *to);
}

/* to: NULL if the step only asks whether they broadcast. */
static bool relate_broadcast(dv__partial *p, const dv__step *s, thing *to, bool sure)
{
    dv_range rank = dv__exactly(0);
    bool all = true;
    for (uint32_t k = 0; k < s->nin; k++) {
        rank = dv__range_forward(DV__OP_MAX, rank, at(p, operands(s)[k])->i);
        all &= sizes_of(p, at(p, operands(s)[k])) != NULL;
    }
    if (to && !meet_rank(p, to, rank))
        return false;
    for (uint32_t k = 0; k < s->nin && to && sure; k++)
        if (!meet_rank(p, at(p, operands(s)[k]), dv__between(0, to->i.most)))
            return false;
    for (int64_t dim = 1; all && dim <= rank.most; dim++) {
        dv_range nowhere = dv__any_int();
        bool unused = false;
        if (!relate_broadcast_dim(
                p, s, dim, to ? &p->rooms[to->room].sizes[rank.most - dim] : &nowhere, to ? &p->changed : &unused, sure))
            return false;
    }
    return true;
}

static bool relate_broadcasts(dv__partial *p, const dv__step *s, bool sure)
{
    const bool known = dv__is_exact(at(p, s->to)->i), yes = known && at(p, s->to)->i.least;
    if (known && !yes)
        return true;
    return relate_broadcast(p, s, NULL, sure && yes) || (!yes && say(p, s->to, 0));
}

/* ---- Integers ------------------------------------------------------------------------------------------------------------ */

static bool relate_arithmetic(dv__partial *p, const dv__step *s, bool sure)
{
    dv_range none = dv__exactly(0), *to = &at(p, s->to)->i, *a = &at(p, s->in[0])->i,
             *b = s->nin > 1 ? &at(p, s->in[1])->i : &none;
    if (s->type != DV__RTYPE_INT)
        return true;
    return meet(p, to, dv__range_forward((enum dv__op)s->op, *a, *b)) &&
        (!sure || dv__range_backward((enum dv__op)s->op, *to, a, b, &p->changed));
}

/* An element by a known index. */
static bool relate_element(dv__partial *p, const dv__step *s, bool sure)
{
    const thing *dims = at(p, s->in[0]), *index = at(p, s->in[1]);
    dv_range *sizes = sizes_of(p, dims), *to = &at(p, s->to)->i;
    if (!sizes)
        return !dims->sizes || meet(p, to, dv__between(0, INT64_MAX));
    if (!dv__is_exact(index->i))
        return true;
    const int64_t i = index->i.least < 0 ? index->i.least + dims->i.least : index->i.least;
    if (i < 0 || i >= dims->i.least)
        return meet(p, to, dv__exactly(0));
    return meet(p, to, sizes[i]) && (!sure || meet(p, &sizes[i], *to));
}

static bool relate_numel(dv__partial *p, const dv__step *s, bool sure)
{
    const thing *dims = at(p, s->in[0]);
    dv_range *sizes = sizes_of(p, dims), *to = &at(p, s->to)->i;
    const int64_t n = sizes ? dims->i.least : 0;
    for (int64_t skip = -1; sizes && skip < (sure && n <= 8 ? n : 0); skip++) {
        dv_range product = dv__exactly(1);
        for (int64_t i = 0; i < n; i++)
            if (i != skip)
                product = dv__range_forward(DV__OP_MUL, product, sizes[i]);
        if (skip < 0 ? !meet(p, to, product) : !dv__range_backward(DV__OP_MUL, *to, &sizes[skip], &product, &p->changed))
            return false;
    }
    return true;
}

static bool relate_negative(dv__partial *p, const dv__step *s, bool sure)
{
    dv_range *sizes = sizes_of(p, at(p, s->in[0]));
    const int64_t n = sizes ? at(p, s->in[0])->i.least : 0;
    bool none = sizes != NULL;
    for (int64_t i = 0; i < n; i++)
        none &= sizes[i].least >= 0;
    if (!meet(p, &at(p, s->to)->i, dv__between(none ? 0 : INT64_MIN, 0)))
        return false;
    for (int64_t i = 0; sure && !at(p, s->to)->i.least && i < n; i++)
        if (!meet(p, &sizes[i], dv__between(0, INT64_MAX)))
            return false;
    return true;
}

/* Is i a valid dim number for a tensor of that rank? */
static bool relate_is_axis(dv__partial *p, const dv__step *s, bool sure)
{
    dv_range *i = &at(p, s->in[0])->i;
    thing *rank = at(p, s->in[1]);
    const dv_range n = dv__range_forward(DV__OP_MAX, rank->i, dv__exactly(1));
    const dv_range to = at(p, s->to)->i;
    if (i->least >= -n.least && i->most < n.least)
        return say(p, s->to, 1);
    if (i->most < -n.most || i->least >= n.most)
        return say(p, s->to, 0);
    if (!sure || !to.least)
        return true;
    const int64_t least = i->least > 0 ? i->least + 1 : i->most < -1 ? -i->most : 0;
    return meet(p, i, dv__between(-n.most, n.most - 1)) && meet(p, &rank->i, dv__between(least, INT64_MAX));
}

/* The dim counted from 0. */
static bool relate_axis(dv__partial *p, const dv__step *s, bool sure)
{
    dv_range *i = &at(p, s->in[0])->i, *rank = &at(p, s->in[1])->i, *to = &at(p, s->to)->i;
    const dv_range n = dv__range_forward(DV__OP_MAX, *rank, dv__exactly(1));
    if (i->least >= 0)
        return meet(p, to, *i) && (!sure || meet(p, i, *to));
    if (i->most < 0) {
        const dv_range ranks = dv__range_forward(DV__OP_SUB, *to, *i);
        return meet(p, to, dv__range_forward(DV__OP_ADD, *i, n)) &&
            (!sure || (meet(p, i, dv__range_forward(DV__OP_SUB, *to, n)) && (ranks.least < 2 || meet(p, rank, ranks))));
    }
    return meet(p, to, dv__between(0, n.most - 1)) &&
        (!sure || !dv__is_exact(*to) || !dv__is_exact(n) ||
            meet(p, i, (dv_range){ to->least - n.least, to->least, n.least, to->least % n.least }));
}

static bool relate_are_axes(dv__partial *p, const dv__step *s, bool sure)
{
    dv_range *sizes = sizes_of(p, at(p, s->in[0]));
    const dv_range n = dv__range_forward(DV__OP_MAX, at(p, s->in[1])->i, dv__exactly(1));
    for (int64_t i = 0; sure && sizes && at(p, s->to)->i.least && i < at(p, s->in[0])->i.least; i++)
        if (!meet(p, &sizes[i], dv__between(-n.most, n.most - 1)))
            return false;
    return true;
}

/* ---- Conditions ---------------------------------------------------------------------------------------------------------- */

static bool relate_connection(dv__partial *p, const dv__step *s, bool sure)
{
    const int64_t decides = s->op == DV__OP_OR;
    dv_range *a = &at(p, s->in[0])->i, *b = &at(p, s->in[1])->i, *to = &at(p, s->to)->i;
    const dv_range yes = dv__exactly(decides), no = dv__exactly(!decides);
    const bool a_no = dv__range_apart(*a, yes), b_no = dv__range_apart(*b, yes);
    if (dv__range_apart(*a, no) || dv__range_apart(*b, no) ? !meet(p, to, yes) : a_no && b_no && !meet(p, to, no))
        return false;
    if (!sure || !dv__is_exact(*to))
        return true;
    if (to->least != decides)
        return meet(p, a, no) && meet(p, b, no);
    return (!b_no || meet(p, a, yes)) && (!a_no || meet(p, b, yes));
}

static bool relate_select(dv__partial *p, const dv__step *s, bool sure)
{
    thing *to = at(p, s->to), *chosen[] = { at(p, s->in[1]), at(p, s->in[2]) };
    dv_range *c = &at(p, s->in[0])->i;
    if (dv__is_exact(*c))
        return link(p, to, chosen[!c->least], sure);
    if (sure && apart(p, to, chosen[0]) && !meet(p, c, dv__exactly(0)))
        return false;
    if (sure && apart(p, to, chosen[1]) && !meet(p, c, dv__exactly(1)))
        return false;
    return dv__is_exact(*c) ? link(p, to, chosen[!c->least], sure) : meet_one_of(p, to, 2, chosen);
}

/* a != b, where one of them is known. */
static bool exclude(dv__partial *p, thing *a, const thing *b)
{
    if (a->type == DV__RTYPE_DTYPE && only_dtype(b) && !(set_of(only_dtype(b)) >> OTHER_DTYPE)) {
        const uint64_t left = a->dtypes & ~b->dtypes;
        p->changed |= left != a->dtypes;
        a->dtypes = left ? left : a->dtypes;
        return left != 0;
    }
    if (!is_range(a) || !dv__is_exact(b->i))
        return true;
    if (a->i.least == b->i.least && a->i.least < INT64_MAX)
        return meet(p, &a->i, dv__between(a->i.least + 1, INT64_MAX));
    return a->i.most != b->i.least || a->i.most == INT64_MIN || meet(p, &a->i, dv__between(INT64_MIN, a->i.most - 1));
}

static bool relate_equal(dv__partial *p, const dv__step *s, bool sure)
{
    thing *a = at(p, s->in[0]), *b = at(p, s->in[1]);
    const bool equal = s->op == DV__OP_EQ;
    if (s->type == DV__RTYPE_NUMBER || s->type == DV__RTYPE_REAL)
        return true; /* 2 is 2.0 */
    if (apart(p, a, b) && !say(p, s->to, !equal))
        return false;
    const dv_range to = at(p, s->to)->i;
    if (!sure || !dv__is_exact(to))
        return true;
    return to.least == equal ? link(p, a, b, true) : exclude(p, a, b) && exclude(p, b, a);
}

static bool relate_order(dv__partial *p, const dv__step *s, bool sure)
{
    const bool swapped = s->op == DV__OP_GT || s->op == DV__OP_GE, or_equal = s->op == DV__OP_LE || s->op == DV__OP_GE;
    dv_range *a = &at(p, s->in[swapped])->i, *b = &at(p, s->in[!swapped])->i;
    if (s->type != DV__RTYPE_INT)
        return true;
    if (a->most < b->least || (or_equal && a->most == b->least))
        return say(p, s->to, 1);
    if (a->least > b->most || (!or_equal && a->least == b->most))
        return say(p, s->to, 0);
    const dv_range to = at(p, s->to)->i;
    if (!sure || !dv__is_exact(to))
        return true;
    return to.least ? dv__range_order(a, b, or_equal, &p->changed) : dv__range_order(b, a, !or_equal, &p->changed);
}

static bool relate_one_of(dv__partial *p, const dv__step *s, bool sure)
{
    thing *x = at(p, s->in[0]), all = { .type = DV__RTYPE_DTYPE };
    if (s->many)
        x = at(p, s->many[0]);
    for (uint32_t i = 1; i < s->nin; i++)
        all.dtypes |= at(p, operands(s)[i])->dtypes;
    if (all.dtypes >> OTHER_DTYPE)
        return true;
    if (!(x->dtypes & all.dtypes) ? !say(p, s->to, 0) : !(x->dtypes & ~all.dtypes) && !say(p, s->to, 1))
        return false;
    const dv_range to = at(p, s->to)->i;
    const uint64_t left = to.least ? x->dtypes & all.dtypes : x->dtypes & ~all.dtypes;
    if (!sure || !dv__is_exact(to))
        return true;
    p->changed |= left != x->dtypes;
    x->dtypes = left ? left : x->dtypes;
    return left != 0;
}

/* Operands of the same dtype have that one, whichever of them have dims. */
static bool relate_promotion(dv__partial *p, const dv__step *s, bool sure)
{
    const uint32_t first = only_dtype(at(p, operands(s)[0]));
    bool same = first != 0;
    for (uint32_t i = 2; i < s->nin; i += 2)
        same &= only_dtype(at(p, operands(s)[i])) == first;
    if (!same || !sure)
        return true;
    return s->op == DV__OP_PROMOTES ? say(p, s->to, 1) : link(p, at(p, s->to), at(p, operands(s)[0]), true);
}

static bool relate_devices(dv__partial *p, const dv__step *s, bool sure)
{
    thing cpu = { .type = DV__RTYPE_DEVICE, .known = true, .value.device = { DV_CPU, 0 } };
    if (!sure || !at(p, s->to)->i.least)
        return true;
    return link(p, at(p, s->in[0]), s->op == DV__OP_ON_CPU ? &cpu : at(p, s->in[1]), s->op != DV__OP_ON_CPU);
}

/* ---- Steps --------------------------------------------------------------------------------------------------------------- */

static thing *part(const dv__partial *p, uint32_t parts, enum part which) { return &p->things[parts + which]; }

/* The first tensor of a list, the tensor of any other argument; of a list of which nothing is known, its own parts. */
static int64_t first_tensor(const dv__partial *p, int32_t slot)
{
    const struct argument *a = &p->arguments[slot];
    for (int32_t k = 0; k < a->n; k++)
        if (p->things[a->elements + (uint32_t)k * PARTS + PRESENT].i.least)
            return a->elements + (uint32_t)k * PARTS;
    return a->at;
}

static void set_parts(dv__partial *p, thing *tensor, int64_t parts)
{
    p->changed |= !tensor->known || tensor->value.i != parts;
    tensor->known = true;
    tensor->value.i = parts;
}

static bool relate_argument(dv__partial *p, const dv__step *s, bool sure)
{
    thing *to = at(p, s->to);
    const uint32_t parts = p->arguments[s->slot].at;
    if (s->op == DV__OP_TENSOR) {
        set_parts(p, to, first_tensor(p, s->slot));
        return true;
    }
    if (p->run.args[s->slot].type != DV_VALUE_UNKNOWN && !operate(p, s))
        return false;
    if (s->op == DV__OP_LEN)
        return meet(p, &to->i, dv__between(0, INT64_MAX)) && link(p, to, part(p, parts, VALUE), sure);
    if (s->op != DV__OP_PRESENT && s->op != DV__OP_ARGUMENT)
        return true;
    return link(p, to, part(p, parts, s->op == DV__OP_PRESENT ? PRESENT : VALUE), sure);
}

static bool relate_part(dv__partial *p, const dv__step *s, bool sure)
{
    const thing *tensor = at(p, s->in[0]);
    if (!tensor->known)
        return true;
    const uint32_t parts = (uint32_t)tensor->value.i;
    const enum part which = s->op == DV__OP_SHAPE ? SHAPE
        : s->op == DV__OP_STRIDES                 ? STRIDES
        : s->op == DV__OP_DTYPE_OF                ? DTYPE
                                                  : DEVICE;
    return (which != STRIDES || relate_ranks(p, part(p, parts, STRIDES), part(p, parts, SHAPE), dv__exactly(0), false)) &&
        link(p, at(p, s->to), part(p, parts, which), sure);
}

/* The tensor of a list with a known index. */
static void relate_list_element(dv__partial *p, const dv__step *s)
{
    const struct argument *a = &p->arguments[s->slot];
    const dv_range index = at(p, s->in[0])->i;
    if (!dv__is_exact(index) || index.least < 0 || index.least >= a->n)
        return;
    set_parts(p, at(p, s->to), a->elements + index.least * PARTS);
}

/* Narrow the registers of one step. sure: the step is done in every call. Returns false if no call can do the step. */
static bool relate(dv__partial *p, const dv__step *s, bool sure)
{
    switch ((enum dv__op)s->op) {
    case DV__OP_PRESENT:
    case DV__OP_HOLDS:
    case DV__OP_TENSOR:
    case DV__OP_ARGUMENT:
    case DV__OP_LEN:
    case DV__OP_NUMBER_DTYPE: return relate_argument(p, s, sure);
    case DV__OP_SHAPE:
    case DV__OP_STRIDES:
    case DV__OP_DTYPE_OF:
    case DV__OP_DEVICE_OF: return relate_part(p, s, sure);
    case DV__OP_COPY: return !sure || link(p, at(p, s->to), at(p, s->in[0]), true);
    case DV__OP_UNBACKED: return !sure || link(p, at(p, s->to), at(p, s->in[1]), true);
    case DV__OP_CHECK: return at(p, s->in[0])->i.most && (!sure || say(p, s->in[0], 1));
    case DV__OP_ELEMENT: relate_list_element(p, s); return true;
    default: break;
    }
    if (s->op != DV__OP_SELECT && s->op != DV__OP_AND && s->op != DV__OP_OR && all_exact(p, s))
        return operate(p, s);
    switch ((enum dv__op)s->op) { /* every operation has a line here: without one, compilers warn */
    case DV__OP_RANK:
        return meet(p, &at(p, s->to)->i, at(p, s->in[0])->i) && (!sure || meet_rank(p, at(p, s->in[0]), at(p, s->to)->i));
    case DV__OP_AT: return relate_element(p, s, sure);
    case DV__OP_NUMEL: return relate_numel(p, s, sure);
    case DV__OP_NEGATIVE: return relate_negative(p, s, sure);
    case DV__OP_PACK:
    case DV__OP_SLICE:
    case DV__OP_REDUCED:
    case DV__OP_SWAP:
    case DV__OP_PERMUTE:
    case DV__OP_REPLACE:
    case DV__OP_DROP: return relate_dims(p, s, sure);
    case DV__OP_BROADCAST: return relate_broadcast(p, s, at(p, s->to), sure);
    case DV__OP_BROADCASTS: return relate_broadcasts(p, s, sure);
    case DV__OP_IS_AXIS: return relate_is_axis(p, s, sure);
    case DV__OP_ARE_AXES: return relate_are_axes(p, s, sure);
    case DV__OP_AXIS: return relate_axis(p, s, sure);
    case DV__OP_NOT:
        return meet(p, &at(p, s->to)->i, dv__between(1 - at(p, s->in[0])->i.most, 1 - at(p, s->in[0])->i.least)) &&
            (!sure || meet(p, &at(p, s->in[0])->i, dv__between(1 - at(p, s->to)->i.most, 1 - at(p, s->to)->i.least)));
    case DV__OP_AND:
    case DV__OP_OR: return relate_connection(p, s, sure);
    case DV__OP_SELECT: return relate_select(p, s, sure);
    case DV__OP_EQ:
    case DV__OP_NE: return relate_equal(p, s, sure);
    case DV__OP_LT:
    case DV__OP_LE:
    case DV__OP_GT:
    case DV__OP_GE: return relate_order(p, s, sure);
    case DV__OP_ONE_OF: return relate_one_of(p, s, sure);
    case DV__OP_SAME_DEVICE:
    case DV__OP_ON_CPU: return relate_devices(p, s, sure);
    case DV__OP_ADD:
    case DV__OP_SUB:
    case DV__OP_MUL:
    case DV__OP_DIV:
    case DV__OP_FLOORDIV:
    case DV__OP_MOD:
    case DV__OP_CEILDIV:
    case DV__OP_MIN:
    case DV__OP_MAX:
    case DV__OP_ABS:
    case DV__OP_NEG: return relate_arithmetic(p, s, sure);
    case DV__OP_PROMOTES:
    case DV__OP_PROMOTE: return relate_promotion(p, s, sure);
    case DV__OP_DISTINCT_AXES: /* from here on: nothing is inferred unless all operands are known */
    case DV__OP_TO_NUMBER:
    case DV__OP_TO_REAL:
    case DV__OP_ACCUMULATE:
    case DV__OP_ITEMSIZE:
    case DV__OP_EACH_VALUE: /* values are never known */
    case DV__OP_PRESENT:    /* from here on: done above, or in relate_guarded() */
    case DV__OP_HOLDS:
    case DV__OP_TENSOR:
    case DV__OP_ARGUMENT:
    case DV__OP_LEN:
    case DV__OP_NUMBER_DTYPE:
    case DV__OP_SHAPE:
    case DV__OP_STRIDES:
    case DV__OP_DTYPE_OF:
    case DV__OP_DEVICE_OF:
    case DV__OP_COPY:
    case DV__OP_UNBACKED:
    case DV__OP_CHECK:
    case DV__OP_ELEMENT:
    case DV__OP_EACH:
    case DV__OP_COUNT: break;
    }
    return true;
}

/* ---- The program --------------------------------------------------------------------------------------------------------- */

/* The steps of a set are gone through again. */
static void wake(dv__partial *p, const uint64_t *steps)
{
    for (uint32_t w = 0; w < p->words; w++)
        p->waiting[w] |= steps[w];
}

static void wake_readers(dv__partial *p, uint32_t home) { wake(p, p->readers + (size_t)home * p->words); }

static uint32_t argument_home(const dv__partial *p, size_t argument) { return p->c->program->nregisters + (uint32_t)argument; }

static void find_homes(dv__partial *p)
{
    const dv__program *program = p->c->program;
    for (uint32_t i = 0; i < program->nregisters; i++)
        p->homes[i] = i;
    for (const dv__step *s = program->steps; s < program->steps + program->nsteps; s++)
        if (s->op == DV__OP_TENSOR || s->op == DV__OP_ELEMENT || s->op == DV__OP_EACH)
            p->homes[s->to] = argument_home(p, (size_t)s->slot);
}

/* f(home) for each thing that a step relates, but for its guard. */
static void for_each_home(dv__partial *p, uint32_t step, void (*f)(dv__partial *p, uint32_t step, uint32_t home))
{
    const dv__step *s = &p->c->program->steps[step];
    if (s->op != DV__OP_CHECK)
        f(p, step, p->homes[s->to]);
    if (s->op == DV__OP_PRESENT || s->op == DV__OP_ARGUMENT || s->op == DV__OP_LEN || s->op == DV__OP_EACH)
        f(p, step, argument_home(p, (size_t)s->slot));
    for (uint32_t i = 0; i < s->nin; i++)
        if (operands(s)[i] >= 0) /* literals do not change */
            f(p, step, p->homes[operands(s)[i]]);
    for (uint32_t c = 0; c < s->ncarry; c++)
        f(p, step, p->homes[s->carry[c].to]);
}

static void add_reader(dv__partial *p, uint32_t step, uint32_t home)
{
    p->readers[(size_t)home * p->words + step / 64] |= 1ull << step % 64;
}

/* Steps that are done where this guard holds. */
static void add_guarded(dv__partial *p, dv__operand guard, uint32_t begin, uint32_t end)
{
    for (uint32_t step = begin; step < end && guard >= 0; step++)
        add_reader(p, step, p->homes[guard]);
}

static void add_neighbours(dv__partial *p, uint32_t step, uint32_t home)
{
    for (uint32_t w = 0; w < p->words; w++)
        p->neighbours[(size_t)step * p->words + w] |= p->readers[(size_t)home * p->words + w];
}

static void find_readers(dv__partial *p)
{
    const dv__program *program = p->c->program;
    find_homes(p);
    for (uint32_t i = 0; i < program->nsteps; i++) {
        add_guarded(p, program->steps[i].guard, i, i + 1);
        for_each_home(p, i, add_reader);
    }
    for (uint32_t i = 0; i < program->nresults; i++) {
        const dv__result *r = &program->results[i];
        add_guarded(p, r->guard, r->section.begin, r->section.end);
        add_guarded(p, r->guard, r->count.begin, r->count.end);
    }
    for (uint32_t i = 0; i < program->nsteps; i++)
        for_each_home(p, i, add_neighbours);
    for (uint32_t i = 0; i < program->nsteps; i++) {
        p->outside[i / 64] |= (uint64_t)!(program->steps[i].flags & DV__STEP_DEAD) << i % 64;
        p->lists[i / 64] |= (uint64_t)(program->steps[i].op == DV__OP_EACH) << i % 64;
    }
    wake(p, p->outside);
}

static bool relate_all(dv__partial *p, uint32_t begin, uint32_t end, bool up, bool sure);

/* Exchange a block's registers with those that are kept for one tensor of its list. */
static void swap_one(dv__partial *p, dv__operand x, uint32_t *kept)
{
    const thing one = *at(p, x);
    *at(p, x) = p->things[*kept];
    p->things[(*kept)++] = one;
}

static uint32_t swap_block(dv__partial *p, const dv__step *s, uint32_t kept)
{
    for (int32_t i = 1; i <= s->body; i++)
        if (s[i].op != DV__OP_CHECK)
            swap_one(p, s[i].to, &kept);
    swap_one(p, s->to, &kept);
    swap_one(p, s->index, &kept);
    swap_one(p, s->first, &kept);
    for (uint32_t c = 0; c < s->ncarry; c++)
        swap_one(p, s->carry[c].to, &kept);
    return kept;
}

/* The sums over a list, from its last tensor to its first: what they can be narrows what each tensor adds. */
static bool relate_sums(dv__partial *p, const dv__step *s, dv_range *sums, uint32_t kept, uint32_t room)
{
    const uint32_t begin = (uint32_t)(s - p->c->program->steps) + 1, end = begin + (uint32_t)s->body;
    while (kept > p->blocks[begin - 1]) {
        kept -= room;
        swap_block(p, s, kept);
        for (uint32_t c = 0; c < s->ncarry; c++)
            if (!meet(p, &at(p, s->carry[c].next)->i, sums[c]))
                return false;
        if (!relate_all(p, begin, end, false, true))
            return false;
        for (uint32_t c = 0; c < s->ncarry; c++)
            sums[c] = at(p, s->carry[c].to)->i;
        swap_block(p, s, kept);
    }
    return true;
}

/* The body for each tensor of a list. */
static bool relate_each(dv__partial *p, const dv__step *s)
{
    const uint32_t begin = (uint32_t)(s - p->c->program->steps) + 1, end = begin + (uint32_t)s->body;
    const struct argument *a = &p->arguments[s->slot];
    uint32_t kept = p->blocks[begin - 1], room = 0;
    dv_range sums[DV_MAX_NDIM];
    bool first = true;
    if (a->n < 0 || s->ncarry > DV_MAX_NDIM)
        return true;
    for (uint32_t c = 0; c < s->ncarry; c++)
        sums[c] = at(p, s->carry[c].from)->i;
    for (int32_t k = 0; k < a->n; k++) {
        const uint32_t parts = a->elements + (uint32_t)k * PARTS;
        if (!p->things[parts + PRESENT].i.least)
            continue;
        swap_block(p, s, kept);
        at(p, s->to)->known = true;
        at(p, s->to)->value.i = parts;
        bool fits = say(p, s->index, k) && say(p, s->first, first);
        for (uint32_t c = 0; fits && c < s->ncarry; c++)
            fits = meet(p, &at(p, s->carry[c].to)->i, sums[c]);
        if (!fits || !relate_all(p, begin, end, true, true) || !relate_all(p, begin, end, false, true))
            return false;
        for (uint32_t c = 0; c < s->ncarry; c++)
            sums[c] = at(p, s->carry[c].next)->i;
        room = swap_block(p, s, kept) - kept;
        kept += room;
        first = false;
    }
    for (uint32_t c = 0; c < s->ncarry; c++) {
        if (!meet(p, &at(p, s->carry[c].to)->i, sums[c]))
            return false;
        sums[c] = at(p, s->carry[c].to)->i;
    }
    return !s->ncarry || relate_sums(p, s, sums, kept, room);
}

/* The check that uses a step's result: the steps that compute a condition stand before their check. NULL: the block has none. */
static const dv__step *check_after(const dv__partial *p, const dv__step *s)
{
    const dv__step *k = s, *last = p->c->program->steps + p->c->program->nsteps - 1;
    while (k < last && k->op != DV__OP_CHECK && k->op != DV__OP_EACH)
        k++;
    return k->op == DV__OP_CHECK && !((k->flags ^ s->flags) & DV__STEP_DEAD) ? k : NULL;
}

static bool relate_guarded(dv__partial *p, const dv__step *s, bool sure)
{
    thing *guard = at(p, s->guard);
    if (s->flags & DV__STEP_SAY || !guard->i.most)
        return true;
    sure = sure && guard->i.least;
    const bool changed = p->changed;
    p->changed = false;
    const bool fits = s->op == DV__OP_EACH ? !sure || relate_each(p, s) : relate(p, s, sure);
    if (p->changed)
        wake(p, p->neighbours + (size_t)(s - p->c->program->steps) * p->words);
    p->changed |= changed;
    if (fits)
        return true;
    if (!sure && !guard->i.least && !p->no_memory) {
        p->failed = NULL;
        wake_readers(p, p->homes[s->guard]);
        return meet(p, &guard->i, dv__exactly(0));
    }
    p->failed = p->failed ? p->failed : check_after(p, s);
    return false;
}

/* All steps of a block, or of a list's result, up or down. sure: they are done in every call; else only what they make is looked
 * at. */
static bool relate_all(dv__partial *p, uint32_t begin, uint32_t end, bool up, bool sure)
{
    const dv__step *steps = p->c->program->steps;
    const bool inside = begin < end && steps[begin].flags & DV__STEP_DEAD;
    for (uint32_t i = begin; i < end; i++) {
        const dv__step *s = &steps[up ? i : begin + end - 1 - i];
        if (inside == !!(s->flags & DV__STEP_DEAD) && !relate_guarded(p, s, sure))
            return false;
    }
    return true;
}

/* The first step of these that waits, or the last. -1: none does. */
static int64_t waiting_in(const dv__partial *p, int64_t begin, int64_t end, bool up)
{
    for (int64_t n, w = up ? begin / 64 : (end - 1) / 64; begin < end && w * 64 < end && w * 64 + 64 > begin; w += up ? 1 : -1) {
        uint64_t bits = p->waiting[w] & p->outside[w];
        bits &= (n = begin - w * 64) > 0 ? UINT64_MAX << n : UINT64_MAX;
        bits &= (n = w * 64 + 64 - end) > 0 ? UINT64_MAX >> n : UINT64_MAX;
        if (bits)
            return w * 64 + (up ? __builtin_ctzll(bits) : 63 - __builtin_clzll(bits));
    }
    return -1;
}

/* The steps that wait, up or down, a block as one. */
static bool relate_waiting(dv__partial *p, int64_t begin, int64_t end, bool up, bool sure)
{
    for (int64_t k; (k = waiting_in(p, begin, end, up)) >= 0; begin = up ? k + 1 : begin, end = up ? end : k) {
        p->waiting[k / 64] &= ~(1ull << k % 64);
        if (!relate_guarded(p, &p->c->program->steps[k], sure))
            return false;
    }
    return true;
}

/* A variable can have the values that one of its writers can still write. */
static bool relate_writers(dv__partial *p)
{
    for (uint32_t i = 0, n; i < p->nwriters; i += n) {
        thing *from[DV__MAX_DIM_VARS + 64], *variable = &p->things[p->writers[i].variable];
        uint32_t nfrom = 0;
        bool any = false;
        for (n = 0; i + n < p->nwriters && p->writers[i + n].variable == p->writers[i].variable; n++) {
            const struct writer *w = &p->writers[i + n];
            const dv__step *s = &p->c->program->steps[w->step];
            thing *guard = at(p, s->guard);
            if (!guard->i.most)
                continue;
            if (w->block || nfrom == sizeof from / sizeof *from) {
                any = true;
                continue;
            }
            from[nfrom] = at(p, s->in[s->op == DV__OP_UNBACKED]);
            if (!guard->i.least && apart(p, variable, from[nfrom])) {
                wake_readers(p, p->homes[s->guard]);
                if (!meet(p, &guard->i, dv__exactly(0)))
                    return false;
            }
            nfrom += guard->i.most != 0;
        }
        const bool changed = p->changed;
        p->changed = false;
        if (!any && nfrom)
            meet_one_of(p, variable, nfrom, from);
        if (p->changed)
            wake_readers(p, (uint32_t)(variable - p->things));
        p->changed |= changed;
    }
    return true;
}

/* May the bytes of such a tensor fit int64_t? Sizes of zero count as one, as in dv__shape_check(). */
static bool fits(const dv__partial *p, const thing *shape, const thing *dtype)
{
    const dv_range *sizes = sizes_of(p, shape);
    const uint32_t key = only_dtype(dtype);
    int64_t n = 1;
    for (int64_t i = 0; sizes && i < shape->i.least; i++)
        if (sizes[i].least > 1 && __builtin_mul_overflow(n, sizes[i].least, &n))
            return false;
    return dv_dtype_bytes(dv_dtype_from_key(key ? key : DV_DTYPE_u1), n) >= 0;
}

static bool too_large(dv__partial *p, const char *what, size_t index)
{
    p->why.n = 0;
    dv__say(&p->why, ": %s %zu would have more bytes than fit 64 bits", what, index);
    return false;
}

static bool arguments_fit(dv__partial *p)
{
    for (size_t i = 0; i < p->c->schema->nargs; i++) {
        const struct argument *a = &p->arguments[i];
        const bool list = dv__type_of_argument(p->c->schema->args[i].type) == DV__CTYPE_TENSORS;
        const thing *parts = &p->things[list ? a->elements : a->at];
        for (int32_t k = 0; k < (list ? a->n : 1); k++, parts += PARTS)
            if (parts[PRESENT].i.least && parts[SHAPE].type == DV__RTYPE_DIMS && !fits(p, &parts[SHAPE], &parts[DTYPE]))
                return too_large(p, "argument", i);
    }
    return true;
}

static bool result_fits(dv__partial *p, const dv__result *r)
{
    return (r->kind != DV__RESULT_NEW && r->kind != DV__RESULT_LIKE) || fits(p, at(p, r->shape), at(p, r->dtype)) ||
        too_large(p, "result", (size_t)r->slot - p->c->schema->nargs);
}

static bool is_list(const dv__result *r) { return r->count.value != DV__NEVER; }

static bool relate_results(dv__partial *p, bool up)
{
    const dv__program *program = p->c->program;
    for (uint32_t i = 0; i < program->nresults; i++) {
        const dv__result *r = &program->results[i];
        const thing *guard = at(p, r->guard);
        const dv__section *section = is_list(r) ? &r->count : &r->section; /* a list's tensors: relate_one() */
        if (r->kind != DV__RESULT_ARGUMENT && guard->i.most &&
            !(relate_waiting(p, section->begin, section->end, up, guard->i.least) && (is_list(r) || result_fits(p, r))) &&
            guard->i.least)
            return false;
    }
    return true;
}

/* Reset the registers for one tensor of a returned list. */
static void forget(dv__partial *p, dv__operand x)
{
    thing *t = at(p, x);
    const int32_t room = t->room;
    *t = any_of((enum dv__rtype)t->type);
    t->room = room;
    for (int32_t i = 0; room >= 0 && i < DV_MAX_NDIM; i++)
        p->rooms[room].sizes[i] = dv__any_int();
}

/* The tensor at this place of a list that is returned. False: there is no such call. */
static bool relate_one(dv__partial *p, const dv__result *r, dv_range place)
{
    for (uint32_t i = r->section.begin; i < r->section.end; i++)
        if (p->c->program->steps[i].op != DV__OP_CHECK)
            forget(p, p->c->program->steps[i].to);
    at(p, r->index)->i = place;
    return relate_all(p, r->section.begin, r->section.end, true, false) && result_fits(p, r);
}

/* Do the tensors of each list fit, as far as their number is known? */
static bool relate_lists(dv__partial *p)
{
    for (uint32_t i = 0; i < p->c->program->nresults; i++) {
        const dv__result *r = &p->c->program->results[i];
        if (!is_list(r) || !at(p, r->guard)->i.least)
            continue;
        const int64_t least = at(p, r->count.value)->i.least;
        for (int64_t k = 0; k < least && k < MOST_LOOKED_AT; k++)
            if (!relate_one(p, r, dv__exactly(k)))
                return false;
    }
    return true;
}

/* Up and down once. False: no call is left. */
static bool relate_program(dv__partial *p)
{
    const uint32_t end = p->c->program->solve_end;
    p->changed = false;
    wake(p, p->lists);
    return relate_waiting(p, 0, end, true, true) && relate_writers(p) && relate_results(p, true) && relate_results(p, false) &&
        relate_waiting(p, 0, end, false, true);
}

#ifndef NDEBUG
/* No step that was left out would have changed anything. */
static bool is_settled(dv__partial *p)
{
    wake(p, p->outside);
    return relate_program(p) && !p->changed;
}
#endif

/* False: no call is left. */
static bool propagate(dv__partial *p)
{
    p->failed = NULL;
    p->why.n = 0;
    p->changed = true;
    for (int pass = 0; pass < PASSES && p->changed; pass++)
        if (!relate_program(p))
            return false;
    assert(p->changed || is_settled(p));
    return relate_lists(p) && arguments_fit(p) && !p->no_memory;
}

/* ---- Messages ------------------------------------------------------------------------------------------------------------ */

/* What follows from the arguments and names alone: steps in order, without what checks add. */
static void derive(dv__partial *p, const dv__step *end)
{
    for (int pass = 0; pass < 3; pass++) { /* names are bound after the steps that read them */
        for (const dv__step *s = p->c->program->steps; s < end; s++)
            if (s->op == DV__OP_EACH && at(p, s->guard)->i.least)
                relate_each(p, s);
            else if (!s->flags && s->op != DV__OP_CHECK && s->op != DV__OP_EACH && at(p, s->guard)->i.most)
                relate(p, s, false);
        relate_writers(p);
    }
}

/* The message of the check s that no call passes, with ? for what is not known. begin() sets what is known without that check. */
static int refuse(dv__partial *p, bool (*begin)(dv__partial *p, void *user), void *user)
{
    const dv__step *s = p->failed;
    if (p->no_memory)
        return DV_ENOMEM;
    const bool inside = s && s->flags & DV__STEP_DEAD; /* of a block: its registers are those of the tensor that does not fit */
    const dv__step *block = s;
    if (!s || !s->fault)
        return dv_fail(DV_EINVAL, "%s: no call fits what is known of the arguments%s", p->c->name, p->why.n ? p->why.data : "");
    if (!inside && begin(p, user))
        derive(p, s);
    while (inside && block->op != DV__OP_EACH)
        block--;
    for (const dv__step *k = p->c->program->steps; k < s; k++)
        if (k->flags & DV__STEP_SAY && (!(k->flags & DV__STEP_DEAD) || (inside && k > block)) && at(p, k->guard)->i.least)
            relate(p, k, false);
    for (uint32_t i = 0; i < p->c->program->nregisters; i++)
        p->shown[i] = exact(p, (dv__operand)i) != NULL ||
            (at(p, (dv__operand)i)->type == DV__RTYPE_DIMS && sizes_of(p, at(p, (dv__operand)i)));
    return dv__fault_raise(&p->run, s->fault);
}

/* ---- The arguments ------------------------------------------------------------------------------------------------------- */

static uint32_t add_parts(dv__partial *p, enum dv__rtype value)
{
    static const enum dv__rtype types[] = { DV__RTYPE_BOOL, DV__RTYPE_INT, DV__RTYPE_DIMS, DV__RTYPE_DIMS, DV__RTYPE_DTYPE,
        DV__RTYPE_DEVICE };
    for (int i = 0; i < PARTS; i++)
        p->things[p->nthings + (uint32_t)i] = any_of(i == VALUE ? value : types[i]);
    p->things[p->nthings + SHAPE].sizes = true;
    p->nthings += PARTS;
    return p->nthings - PARTS;
}

static bool learn_dims(dv__partial *p, thing *to, const int64_t *sizes, int32_t n, bool unknown)
{
    if (n > DV_MAX_NDIM || !meet_rank(p, to, dv__exactly(n)))
        return false;
    for (int32_t i = 0; i < n; i++)
        if ((!unknown || sizes[i] >= 0) && !meet(p, &p->rooms[to->room].sizes[i], dv__exactly(sizes[i])))
            return false;
    return true;
}

static bool learn_tensor(dv__partial *p, uint32_t parts, const dv_tensor *x)
{
    thing *of = &p->things[parts];
    bool all = x && x->ndim >= 0;
    of[PRESENT].i = dv__exactly(x != NULL);
    if (!x)
        return true;
    for (int32_t i = 0; i < x->ndim; i++)
        all &= x->shape[i] >= 0;
    if (x->dtype.bits)
        of[DTYPE].other = dv_dtype_key(x->dtype), of[DTYPE].dtypes = set_of(of[DTYPE].other);
    if (x->device.type)
        of[DEVICE].known = true, of[DEVICE].value.device = x->device;
    return (x->ndim < 0 || learn_dims(p, &of[SHAPE], x->shape, x->ndim, true)) &&
        (!all || !x->strides || learn_dims(p, &of[STRIDES], x->strides, x->ndim, false));
}

static int learn_argument(dv__partial *p, uint32_t slot)
{
    const dv_value *v = &p->run.args[slot];
    struct argument *a = &p->arguments[slot];
    const bool list = v->type == DV_VALUE_TENSORS;
    if (v->type != DV_VALUE_UNKNOWN)
        p->things[a->at + PRESENT].i = dv__exactly(dv__is_present(v));
    else if (p->c->schema->args[slot].type->kind != DV__TYPE_OPTIONAL)
        p->things[a->at + PRESENT].i = dv__exactly(1);
    if (v->type == DV_VALUE_INT && is_range(&p->things[a->at + VALUE])) /* also if only steps on elements read it */
        p->things[a->at + VALUE].i = dv__exactly(v->as.i);
    bool fits = v->type != DV_VALUE_TENSOR || learn_tensor(p, a->at, v->as.tensor);
    if (list)
        fits = meet(p, &p->things[a->at + VALUE].i, dv__exactly(a->n));
    for (int32_t k = 0; k < a->n && fits; k++)
        fits = learn_tensor(p, a->elements + (uint32_t)k * PARTS, v->as.tensors.data[k]);
    return fits        ? DV_OK
        : p->no_memory ? DV_ENOMEM
                       : dv_fail(DV_ESHAPE, "%s: argument '%s': expected at most %d dims", p->c->name,
                             p->c->schema->args[slot].name, DV_MAX_NDIM);
}

/* Group them by variable. */
static void find_writers(dv__partial *p)
{
    const dv__program *program = p->c->program;
    for (dv__operand v = 0; v <= dv__device_register(p->c); v++)
        for (uint32_t i = 0; i < program->solve_end; i++) {
            const dv__step *s = &program->steps[i];
            bool writes = (s->op == DV__OP_COPY || s->op == DV__OP_UNBACKED) && s->to == v;
            for (uint32_t c = 0; c < s->ncarry; c++)
                writes |= s->op == DV__OP_EACH && s->carry[c].to == v;
            if (writes)
                p->writers[p->nwriters++] = (struct writer){ (uint32_t)v, i, s->op == DV__OP_EACH || s->flags & DV__STEP_DEAD };
        }
}

/* How many things there are at most: registers, literals, arguments, and what blocks keep. */
static uint32_t count_things(dv__partial *p)
{
    const dv__program *program = p->c->program;
    uint32_t n = program->nregisters + program->nconstants;
    for (uint32_t i = 0; i < p->c->schema->nargs; i++) {
        const dv_value *v = &p->run.args[i];
        p->arguments[i].n = v->type == DV_VALUE_TENSORS ? (int32_t)v->as.tensors.size : v->type == DV_VALUE_UNKNOWN ? -1 : 0;
        n += PARTS * (1 + (uint32_t)(p->arguments[i].n > 0 ? p->arguments[i].n : 0));
    }
    for (uint32_t i = 0; i < program->nsteps; i++) {
        const dv__step *s = &program->steps[i];
        if (s->op == DV__OP_EACH && p->arguments[s->slot].n > 0)
            n += (uint32_t)p->arguments[s->slot].n * ((uint32_t)s->body + 3 + s->ncarry);
    }
    return n;
}

/* The type of an argument that is not a tensor: as the program reads it. */
static enum dv__rtype type_read(const dv__program *program, uint32_t slot)
{
    for (uint32_t i = 0; i < program->nsteps; i++)
        if (program->steps[i].op == DV__OP_ARGUMENT && program->steps[i].slot == (int32_t)slot)
            return (enum dv__rtype)program->steps[i].type;
    return DV__RTYPE_INT;
}

static void forget_registers(dv__partial *p)
{
    for (uint32_t i = 0; i < p->c->program->nregisters; i++)
        p->things[i] = any_of((enum dv__rtype)p->c->program->types[i]);
}

static bool fill(dv__partial *p)
{
    const dv__program *program = p->c->program;
    forget_registers(p);
    p->nthings = program->nregisters;
    for (uint32_t i = 0; i < program->nconstants; i++) {
        p->things[p->nthings] = any_of((enum dv__rtype)program->constant_types[i]);
        if (!learn(p, &p->things[p->nthings++], &program->constants[i]))
            return false;
    }
    for (uint32_t i = 0; i < p->c->schema->nargs; i++) {
        p->arguments[i].at = add_parts(p, type_read(program, i));
        p->arguments[i].elements = p->nthings;
        for (int32_t k = 0; k < p->arguments[i].n; k++)
            add_parts(p, DV__RTYPE_INT);
    }
    for (uint32_t i = 0; i < program->nsteps; i++) {
        const dv__step *s = &program->steps[i];
        p->blocks[i] = p->nthings;
        for (int32_t k = 0; s->op == DV__OP_EACH && k < p->arguments[s->slot].n; k++) {
            p->nthings = swap_block(p, s, p->nthings);
            forget_registers(p);
        }
    }
    return true;
}

static int learn_arguments(dv__partial *p)
{
    int status = DV_OK;
    for (uint32_t i = 0; i < p->c->schema->nargs && !status; i++)
        status = learn_argument(p, i);
    return status;
}

static bool learn_again(dv__partial *p, void *user)
{
    (void)user;
    return fill(p) && !learn_arguments(p);
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
    dv_value *own = DV__ARENA_ARRAY(&p->arena, dv_value, nargs + 1);
    p->c = c;
    p->run = (dv__run){ .c = c, .program = program, .args = own, .s = &p->solution };
    p->arguments = DV__ARENA_ARRAY(&p->arena, struct argument, nargs + 1);
    p->blocks = DV__ARENA_ARRAY(&p->arena, uint32_t, program->nsteps + 1);
    p->writers = DV__ARENA_ARRAY(&p->arena, struct writer, program->solve_end * 2 + 1);
    p->words = program->nsteps / 64 + 1;
    p->waiting = DV__ARENA_ARRAY(&p->arena, uint64_t, p->words);
    p->outside = DV__ARENA_ARRAY(&p->arena, uint64_t, p->words);
    p->lists = DV__ARENA_ARRAY(&p->arena, uint64_t, p->words);
    p->neighbours = DV__ARENA_ARRAY(&p->arena, uint64_t, (size_t)program->nsteps * p->words);
    p->homes = DV__ARENA_ARRAY(&p->arena, uint32_t, program->nregisters + 1);
    p->run.shown = p->shown = DV__ARENA_ARRAY(&p->arena, bool, program->nregisters + 1);
    if (own && p->arguments && p->blocks && p->writers && p->shown && p->waiting && p->outside && p->lists && p->neighbours &&
        p->homes) {
        memcpy(own, args, nargs * sizeof *own);
        const uint32_t n = count_things(p);
        p->things = DV__ARENA_ARRAY(&p->arena, thing, n);
        p->readers = DV__ARENA_ARRAY(&p->arena, uint64_t, (program->nregisters + nargs) * p->words);
    }
    if (p->things && p->readers && fill(p)) {
        find_readers(p);
        status = DV_OK;
        find_writers(p);
        status = learn_arguments(p);
        if (!status && !propagate(p))
            status = refuse(p, learn_again, NULL);
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
    dv__free(p->rooms);
    dv__arena_deinit(&p->arena);
    dv__free(p);
}

/* ---- What is known ------------------------------------------------------------------------------------------------------- */

static void tell(const dv__partial *p, const thing *t, dv_known *out)
{
    const dv_range *sizes = t->type == DV__RTYPE_DIMS ? sizes_of(p, t) : NULL;
    if (is_range(t) || t->type == DV__RTYPE_DIMS)
        out->value = t->i;
    if (t->type == DV__RTYPE_NUMBER && t->known && !t->value.real)
        out->value = dv__exactly(t->value.i);
    if (t->type == DV__RTYPE_DTYPE)
        out->dtype = dv_dtype_from_key(only_dtype(t));
    if (t->type == DV__RTYPE_DEVICE && t->known)
        out->device = t->value.device;
    if (t->type == DV__RTYPE_STRING && t->known)
        out->string = (dv_string){ t->value.s, (size_t)t->value.n };
    for (int64_t i = 0; sizes && i < t->i.least; i++)
        out->sizes[i] = sizes[i];
}

static void tell_tensor(const dv__partial *p, const thing *parts, dv_known *out)
{
    out->present = parts[PRESENT].i;
    tell(p, &parts[SHAPE], out);
    tell(p, &parts[DTYPE], out);
    tell(p, &parts[DEVICE], out);
}

/* The strides in place of the sizes. */
static void tell_strides(const dv__partial *p, const dv__result *r, dv_known *out)
{
    const dv_range one = dv__exactly(1);
    const thing *t = r->kind == DV__RESULT_VIEW ? at(p, r->strides)
        : r->kind == DV__RESULT_ARGUMENT        ? &p->things[first_tensor(p, r->of) + STRIDES]
                                                : NULL;
    const dv_range *known = t ? sizes_of(p, t) : NULL;
    dv_range step = one;
    for (int64_t i = DV_MAX_NDIM; i-- > 0;) {
        const dv_range size = out->sizes[i];
        const bool there = dv__is_exact(out->value) && i < out->value.least;
        out->sizes[i] = there && known ? known[i] : there && r->kind == DV__RESULT_NEW ? step : dv__any_int();
        if (there)
            step = dv__range_forward(DV__OP_MUL, step, dv__range_forward(DV__OP_MAX, size, one));
    }
}

/* element: of a list; -1: how many. */
static void tell_output(dv__partial *p, const dv__result *r, int64_t element, bool strides, dv_known *out)
{
    *out = dv_unknown();
    if (r->kind == DV__RESULT_ARGUMENT) {
        tell_tensor(p, &p->things[first_tensor(p, r->of)], out);
        out->flags = DV_SPEC_VIEW;
        if (strides)
            tell_strides(p, r, out);
        return;
    }
    out->present = dv__exactly(r->kind != DV__RESULT_ABSENT);
    if (r->kind == DV__RESULT_ABSENT || r->kind == DV__RESULT_FUNCTION)
        return;
    out->flags = (r->pattern->unbacked ? DV_SPEC_UNBACKED : 0) | (r->kind == DV__RESULT_VIEW ? DV_SPEC_VIEW : 0);
    if (is_list(r) && element < 0) {
        out->flags |= DV_SPEC_LIST;
        out->value = at(p, r->count.value)->i;
        return;
    }
    if (is_list(r)) {
        const dv_range count = at(p, r->count.value)->i;
        out->present = dv__between(count.least > element, count.most > element);
        if (out->present.most && !relate_one(p, r, dv__exactly(element)))
            out->present = dv__exactly(0);
        if (!out->present.most)
            return;
    }
    tell(p, at(p, r->shape), out);
    tell(p, at(p, r->dtype), out);
    tell(p, at(p, r->device), out);
    for (int32_t i = 0; i < DV_MAX_NDIM; i++) {
        bool changed = false;
        dv__range_meet(&out->sizes[i], dv__between(0, INT64_MAX), &changed);
    }
    if (strides)
        tell_strides(p, r, out);
}

static void join(dv_known *to, const dv_known *other)
{
    to->present = dv__range_join(to->present, other->present);
    to->value = dv__range_join(to->value, other->value);
    for (int32_t i = 0; i < DV_MAX_NDIM; i++)
        to->sizes[i] = dv__range_join(to->sizes[i], other->sizes[i]);
    if (dv_dtype_key(to->dtype) != dv_dtype_key(other->dtype))
        to->dtype.bits = 0;
    if (!dv__same_device(to->device, other->device))
        to->device.type = 0;
    to->flags &= other->flags;
}

static void tell_result(dv__partial *p, size_t i, int64_t element, bool strides, dv_known *out)
{
    bool any = false, sure = false;
    for (uint32_t k = 0; k < p->c->program->nresults; k++) {
        const dv__result *r = &p->c->program->results[k];
        const dv_range guard = at(p, r->guard)->i;
        dv_known one;
        if (r->slot != (int32_t)(p->c->schema->nargs + i) || !guard.most)
            continue;
        tell_output(p, r, element, strides, any ? &one : out);
        if (any && one.present.most && out->present.most)
            join(out, &one);
        else if (any)
            one.present = dv__range_join(one.present, out->present), *out = out->present.most ? *out : one,
            out->present = one.present;
        any = true;
        sure |= guard.least;
    }
    if (!sure)
        out->present.least = 0;
    if (!any)
        out->present = dv__exactly(0);
}

/* What a name or an argument is kept in; of a tensor its parts. NULL: there is no such thing. */
static thing *find(const dv__partial *p, enum dv_partial_of of, size_t index, size_t element, bool *tensor)
{
    *tensor = false;
    if (of == DV_PARTIAL_NAME)
        return index < (size_t)dv__device_register(p->c) ? &p->things[index] : NULL;
    if (of == DV_PARTIAL_CASE)
        return index < p->c->ngroups && element < p->c->groups[index].n ? at(p, p->c->program->taken[index][element]) : NULL;
    if ((of != DV_PARTIAL_ARGUMENT && of != DV_PARTIAL_VALUES) || index >= p->c->schema->nargs)
        return NULL;
    const struct argument *a = &p->arguments[index];
    const enum dv__ctype type = dv__type_of_argument(p->c->schema->args[index].type);
    *tensor = type == DV__CTYPE_TENSOR || (type == DV__CTYPE_TENSORS && a->n >= 0);
    if (type == DV__CTYPE_TENSORS && a->n >= 0)
        return element < (size_t)a->n ? &p->things[a->elements + element * PARTS] : NULL;
    return element ? NULL : &p->things[a->at];
}

static int missing(const dv__partial *p, enum dv_partial_of of, size_t index, size_t element, bool set)
{
    static const char *const kinds[] = { "argument", "result", "name", "result", "argument", "result", "case of group" };
    const dv__schema *schema = p->c->schema;
    if ((unsigned)of >= sizeof kinds / sizeof *kinds)
        return dv_fail(DV_EINVAL, "%s: expected one of enum dv_partial_of, found %d", p->c->name, (int)of);
    if (set && of != DV_PARTIAL_ARGUMENT && of != DV_PARTIAL_NAME)
        return dv_fail(DV_EINVAL, "%s: only arguments and names can be set, found %s %zu", p->c->name,
            of == DV_PARTIAL_VALUES ? "the values of argument" : kinds[of], index);
    if (of == DV_PARTIAL_CASE)
        return dv_fail(DV_EINVAL, "%s: there is no case %zu of group %zu", p->c->name, element, index);
    const bool argument = of == DV_PARTIAL_ARGUMENT || of == DV_PARTIAL_VALUES;
    const size_t n = argument ? schema->nargs : of == DV_PARTIAL_NAME ? (size_t)dv__device_register(p->c) : schema->nreturns;
    if (index >= n)
        return dv_fail(DV_EINVAL, "%s: expected %s from 0 to %zu, found %zu", p->c->name, kinds[of], n - 1, index);
    if (of == DV_PARTIAL_NAME)
        return dv_fail(DV_EINVAL, "%s: name %zu: expected element 0, found %zu", p->c->name, index, element);
    if (of == DV_PARTIAL_VALUES && !element)
        return dv_fail(
            DV_EINVAL, "%s: argument '%s': expected a tensor, whose values facts narrow", p->c->name, schema->args[index].name);
    if (of == DV_PARTIAL_ELEMENT && schema->returns[index].type->kind != DV__TYPE_LIST)
        return dv_fail(DV_EINVAL, "%s: result %zu: expected a list of tensors, found one", p->c->name, index);
    if (!argument)
        return dv_fail(DV_EINVAL, "%s: result %zu: expected an element below 2^63 - 1, found %zu", p->c->name, index, element);
    return dv_fail(DV_EINVAL, "%s: argument '%s': expected an element below %d, found %zu", p->c->name, schema->args[index].name,
        p->arguments[index].n > 0 ? (int)p->arguments[index].n : 1, element);
}

/* A block on the elements of a tensor, and what they can still be. */
struct elements {
    const dv__partial *p;
    const dv__step *block;
    dv_range of;
};

/* The step of the block that makes a register. NULL: it is made elsewhere. */
static const dv__step *maker(const struct elements *e, dv__operand x)
{
    for (const dv__step *s = e->block + 1; s <= e->block + e->block->body; s++)
        if (s->to == x && s->op != DV__OP_CHECK)
            return s;
    return NULL;
}

static bool is_arithmetic(const dv__step *s) { return s && s->op != DV__OP_DIV && s->nin && s->nin <= 2 && !s->many; }

static dv_range number_range(const struct elements *e, dv__operand x)
{
    const thing *t = at(e->p, x);
    const dv__step *s = maker(e, x);
    if (x == e->block->to)
        return e->of;
    if (s && s->op == DV__OP_ARGUMENT)
        t = part(e->p, e->p->arguments[s->slot].at, VALUE);
    else if (s && s->op == DV__OP_TO_NUMBER)
        return number_range(e, s->in[0]);
    else if (is_arithmetic(s))
        return dv__range_forward((enum dv__op)s->op, number_range(e, s->in[0]), number_range(e, s->in[s->nin - 1]));
    return is_range(t) ? t->i : t->known && !t->value.real ? dv__exactly(t->value.i) : dv__any_int();
}

/* Narrow the elements so that a number is in this range. False: it cannot be. */
static bool narrow_number(struct elements *e, dv__operand x, dv_range by)
{
    const dv__step *s = maker(e, x);
    bool changed = false;
    if (x == e->block->to)
        return dv__range_meet(&e->of, by, &changed);
    if (dv__range_apart(number_range(e, x), by))
        return false;
    if (!is_arithmetic(s) || s->op == DV__OP_TO_NUMBER)
        return true;
    dv_range a = number_range(e, s->in[0]), b = number_range(e, s->in[s->nin - 1]);
    return dv__range_backward((enum dv__op)s->op, by, &a, &b, &changed) && narrow_number(e, s->in[0], a) &&
        (s->nin < 2 || narrow_number(e, s->in[1], b));
}

static bool narrow_order(struct elements *e, const dv__step *s, bool holds)
{
    const bool swapped = s->op == DV__OP_GT || s->op == DV__OP_GE, or_equal = s->op == DV__OP_LE || s->op == DV__OP_GE;
    const dv__operand low = s->in[swapped == holds], high = s->in[swapped != holds];
    dv_range a = number_range(e, low), b = number_range(e, high);
    bool changed = false;
    return dv__range_order(&a, &b, holds == or_equal, &changed) && narrow_number(e, low, a) && narrow_number(e, high, b);
}

/* Narrow the elements so that a condition holds, or does not. False: that cannot be. */
static bool narrow_condition(struct elements *e, dv__operand x, bool holds)
{
    const dv__step *s = maker(e, x);
    if (!s)
        return !dv__range_apart(at(e->p, x)->i, dv__exactly(holds));
    switch (s->op) {
    case DV__OP_NOT: return narrow_condition(e, s->in[0], !holds);
    case DV__OP_LT:
    case DV__OP_LE:
    case DV__OP_GT:
    case DV__OP_GE: return narrow_order(e, s, holds);
    case DV__OP_EQ:
    case DV__OP_NE:
        return holds != (s->op == DV__OP_EQ) ||
            (narrow_number(e, s->in[0], number_range(e, s->in[1])) && narrow_number(e, s->in[1], number_range(e, s->in[0])));
    case DV__OP_AND:
    case DV__OP_OR: break;
    default: return true;
    }
    if (holds == (s->op == DV__OP_AND))
        return narrow_condition(e, s->in[0], holds) && narrow_condition(e, s->in[1], holds);
    struct elements other = *e; /* one of two */
    const bool one = narrow_condition(e, s->in[0], holds), two = narrow_condition(&other, s->in[1], holds);
    e->of = one && two ? dv__range_join(e->of, other.of) : one ? e->of : other.of;
    return one || two;
}

/* What facts allow the elements of a tensor to be. */
static dv_range tell_elements(const dv__partial *p, const thing *parts)
{
    struct elements e = { .p = p, .of = dv__any_int() };
    for (uint32_t i = 0; i < p->c->program->solve_end; i++) {
        const dv__step *s = &p->c->program->steps[i];
        if (s->op != DV__OP_EACH_VALUE || !at(p, s->guard)->i.least || &p->things[at(p, s->in[0])->value.i] != parts)
            continue;
        e.block = s;
        for (int32_t k = 1; k <= s->body; k++)
            if (s[k].op == DV__OP_CHECK && !narrow_condition(&e, s[k].in[0], true))
                return dv__between(1, 0); /* none */
    }
    return e.of;
}

/* Is a name bound in these calls? */
static dv_range is_bound(const dv__partial *p, uint32_t variable)
{
    dv_range bound = dv__exactly(0);
    for (uint32_t i = 0; i < p->nwriters; i++)
        if (p->writers[i].variable == variable)
            bound = dv__range_forward(DV__OP_MAX, bound, at(p, p->c->program->steps[p->writers[i].step].guard)->i);
    return bound;
}

int dv__partial_get(const dv__partial *p, enum dv_partial_of of, size_t index, size_t element, dv_known *out)
{
    bool tensor;
    *out = dv_unknown();
    const bool strides = of == DV_PARTIAL_STRIDES, there = index < p->c->schema->nreturns && element < INT64_MAX;
    const bool of_list = there && (strides || of == DV_PARTIAL_ELEMENT) &&
        p->c->schema->returns[index].type->kind == DV__TYPE_LIST;
    if (of_list || (there && (strides || of == DV_PARTIAL_RESULT))) {
        tell_result((dv__partial *)(uintptr_t)p, index, of_list ? (int64_t)element : -1, strides, out); /* uses p's registers */
        return DV_OK;
    }
    const thing *t = find(p, of, index, element, &tensor);
    if (!t || (of == DV_PARTIAL_VALUES && !tensor))
        return missing(p, of, index, element, false);
    if (of == DV_PARTIAL_CASE) {
        out->value = t->i;
    } else if (of == DV_PARTIAL_VALUES) {
        out->value = tell_elements(p, t);
    } else if (tensor) {
        tell_tensor(p, t, out);
    } else if (of == DV_PARTIAL_ARGUMENT) {
        out->present = t[PRESENT].i;
        tell(p, &t[VALUE], out);
    } else {
        tell(p, t, out);
        out->present = is_bound(p, (uint32_t)index);
    }
    return DV_OK;
}

/* A step of 0 is as good as 1, so that { 8, 8 } is 8. */
static dv_range range_of(dv_range r)
{
    r.step += !r.step;
    return r;
}

static void say_range(dv__words *w, dv_range r)
{
    if (r.least == r.most)
        dv__say(w, "%lld", (long long)r.least);
    else if (r.least == INT64_MIN || r.most == INT64_MAX)
        dv__say(w, "at %s %lld", r.least == INT64_MIN ? "most" : "least", (long long)(r.least == INT64_MIN ? r.most : r.least));
    else
        dv__say(w, "%lld to %lld", (long long)r.least, (long long)r.most);
    if (r.step > 1)
        dv__say(w, " (%lld above a multiple of %lld)", (long long)r.rest, (long long)r.step);
}

/* What is set does not fit what is known. */
static bool clash(dv__partial *p, const char *what, int64_t dim, dv_range known, dv_range found)
{
    p->why.n = 0;
    dv__say(&p->why, dim < 0 ? "expected %s " : "expected %s %lld to be ", what, (long long)dim);
    say_range(&p->why, known);
    dv__say(&p->why, ", found ");
    say_range(&p->why, found);
    return false;
}

/* Also where their number is not known: then a size that cannot be is that of a dim which does not exist. */
static bool narrow_dims(dv__partial *p, thing *t, const dv_known *known)
{
    if (!meet_rank(p, t, range_of(known->value)))
        return clash(p, "a number of dims of", -1, t->i, range_of(known->value));
    for (int64_t i = 0; i < t->i.most; i++) {
        const dv_range by = range_of(known->sizes[i]);
        if (by.least == INT64_MIN && by.most == INT64_MAX && by.step == 1)
            continue;
        if (!make_room(p, t))
            return false;
        if (!meet(p, &p->rooms[t->room].sizes[i], by) && !meet_rank(p, t, dv__between(0, i)))
            return clash(p, "size", i, p->rooms[t->room].sizes[i], by);
    }
    return true;
}

static bool narrow(dv__partial *p, thing *t, const dv_known *known)
{
    dv__reg value = { 0 };
    p->why.n = 0;
    dv__say(&p->why, "its %s does not fit what is known",
        t->type == DV__RTYPE_DTYPE        ? "dtype"
            : t->type == DV__RTYPE_DEVICE ? "device"
                                          : "text");
    if (is_range(t))
        return meet(p, &t->i, range_of(known->value)) || clash(p, "a value of", -1, t->i, range_of(known->value));
    if (t->type == DV__RTYPE_DIMS)
        return narrow_dims(p, t, known);
    value.dtype = known->dtype;
    if (t->type == DV__RTYPE_DTYPE)
        return !known->dtype.bits || learn(p, t, &value);
    value.device = known->device;
    if (t->type == DV__RTYPE_DEVICE)
        return !known->device.type || learn(p, t, &value);
    if (t->type != DV__RTYPE_STRING || !known->string.data)
        return true;
    value.s = dv__arena_strndup(&p->arena, known->string.data, known->string.size);
    value.n = (int32_t)known->string.size;
    p->no_memory = !value.s;
    return value.s && learn(p, t, &value);
}

static bool narrow_all(dv__partial *p, thing *t, bool argument, bool tensor, const dv_known *known)
{
    if (!argument)
        return narrow(p, t, known);
    if (!meet(p, &t[PRESENT].i, range_of(known->present)))
        return clash(p, "its presence to be", -1, t[PRESENT].i, range_of(known->present));
    if (!tensor)
        return narrow(p, &t[VALUE], known);
    return narrow(p, &t[SHAPE], known) && narrow(p, &t[DTYPE], known) && narrow(p, &t[DEVICE], known);
}

/* A name or argument that is set, and all that was known before. */
struct setting {
    thing *t;
    bool argument, tensor;
    const dv_known *known;
    char *things, *rooms;
    uint32_t nrooms;
};

static void undo(dv__partial *p, const struct setting *s)
{
    memcpy(p->things, s->things, p->nthings * sizeof *p->things);
    if (s->nrooms)
        memcpy(p->rooms, s->rooms, s->nrooms * sizeof *p->rooms);
    p->nrooms = s->nrooms;
    p->no_memory = false;
    memset(p->waiting, 0, p->words * sizeof *p->waiting);
}

static bool set_again(dv__partial *p, void *user)
{
    const struct setting *s = user;
    undo(p, s);
    return narrow_all(p, s->t, s->argument, s->tensor, s->known);
}

static int cannot_set(const dv__partial *p, enum dv_partial_of of, size_t index)
{
    const dv__contract *c = p->c;
    const size_t runs = index - c->ndims, dtypes_at = runs - c->nruns;
    const char *name = of == DV_PARTIAL_ARGUMENT ? c->schema->args[index].name
        : index < c->ndims                       ? c->dims[index].name
        : runs < c->nruns                        ? c->runs[runs].name
                                                 : c->dtypes[dtypes_at].name;
    return dv_fail(DV_EINVAL, "%s: %s '%s': %s", c->name, of == DV_PARTIAL_ARGUMENT ? "argument" : "name", name, p->why.data);
}

int dv__partial_set(dv__partial *p, enum dv_partial_of of, size_t index, size_t element, const dv_known *known)
{
    struct setting s = { .argument = of == DV_PARTIAL_ARGUMENT, .known = known, .nrooms = p->nrooms };
    s.t = of == DV_PARTIAL_VALUES || of == DV_PARTIAL_CASE ? NULL : find(p, of, index, element, &s.tensor);
    if (!s.t)
        return missing(p, of, index, element, true);
    const size_t size = p->nthings * sizeof *p->things;
    s.things = dv__alloc(size + s.nrooms * sizeof *p->rooms);
    if (!s.things)
        return DV_ENOMEM;
    s.rooms = s.things + size;
    memcpy(s.things, p->things, size);
    if (s.nrooms)
        memcpy(s.rooms, p->rooms, s.nrooms * sizeof *p->rooms);
    int status = DV_OK;
    wake_readers(p, s.argument ? argument_home(p, index) : p->homes[index]);
    if (!narrow_all(p, s.t, s.argument, s.tensor, known))
        status = p->no_memory ? DV_ENOMEM : cannot_set(p, of, index);
    else if (!propagate(p))
        status = refuse(p, set_again, &s);
    if (status)
        undo(p, &s);
    dv__free(s.things);
    return status;
}
