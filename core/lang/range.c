#include "lang/range.h"

enum { MOST_STEP = 1 << 20 }; /* larger remainders are forgotten */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* The remainder, never negative. */
static int64_t mod(int64_t a, int64_t by)
{
    const int64_t rest = a % by;
    return rest < 0 ? rest + by : rest;
}

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

static int64_t negative(int64_t a) { return a == INT64_MIN ? INT64_MAX : -a; }

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? ((a < 0) == (b < 0) ? INT64_MAX : INT64_MIN) : product;
}

static int64_t floor_of(int64_t a, int64_t b)
{
    if (a == INT64_MIN && b == -1)
        return INT64_MAX;
    return a / b - (a % b && (a < 0) != (b < 0));
}

static int64_t ceil_of(int64_t a, int64_t b)
{
    if (a == INT64_MIN && b == -1)
        return INT64_MAX;
    return a / b + (a % b && (a < 0) == (b < 0));
}

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Bounds that have the remainder. False: there is no such number. */
static bool tighten(dv_range *r)
{
    if (r->step > 1 &&
        (__builtin_add_overflow(r->least, mod(r->rest - mod(r->least, r->step), r->step), &r->least) ||
            __builtin_sub_overflow(r->most, mod(mod(r->most, r->step) - r->rest, r->step), &r->most)))
        return false;
    if (r->least == r->most)
        r->step = 1, r->rest = 0;
    return r->least <= r->most;
}

/* All its numbers are rest_of() above a multiple of this; 0: it is one number. */
static int64_t step_of(dv_range r) { return dv__is_exact(r) ? 0 : r.step; }
static int64_t rest_of(dv_range r) { return dv__is_exact(r) ? r.least : r.rest; }

/* From these bounds and rest above a multiple of step, if that is not too large. */
static dv_range make(int64_t least, int64_t most, int64_t step, int64_t rest)
{
    dv_range r = { least, most, 1, 0 };
    if (step > 1 && step <= MOST_STEP)
        r.step = step, r.rest = mod(rest, step);
    dv_range tight = r;
    return tighten(&tight) ? tight : dv__between(least, most);
}

/* Both remainders in one. False: no number has both. */
static bool both_remainders(dv_range *r, dv_range by)
{
    const int64_t common = gcd(r->step, by.step);
    if ((r->rest - by.rest) % common)
        return false;
    const int64_t times_more = by.step / common;
    if (times_more == 1)
        return true;
    if (r->step > MOST_STEP / times_more)
        return true;
    int64_t rest = r->rest;
    while (rest % by.step != by.rest)
        rest += r->step;
    r->step *= times_more;
    r->rest = rest;
    return true;
}

bool dv__range_meet(dv_range *to, dv_range by, bool *changed)
{
    if (to->least >= by.least && to->most <= by.most && (by.step == 1 || (by.step == to->step && by.rest == to->rest)))
        return true; /* most often: nothing new */
    dv_range r = { max(to->least, by.least), min(to->most, by.most), to->step, to->rest };
    if (r.least > r.most || !both_remainders(&r, by) || !tighten(&r))
        return false;
    *changed |= r.least != to->least || r.most != to->most || r.step != to->step;
    *to = r;
    return true;
}

bool dv__range_apart(dv_range a, dv_range b)
{
    bool changed = false;
    return !dv__range_meet(&a, b, &changed);
}

dv_range dv__range_join(dv_range a, dv_range b)
{
    int64_t apart, step = gcd(step_of(a), step_of(b));
    if (__builtin_sub_overflow(a.least, b.least, &apart) || apart == INT64_MIN)
        step = 1;
    else
        step = gcd(step, apart < 0 ? -apart : apart);
    return make(min(a.least, b.least), max(a.most, b.most), step, step ? mod(a.least, step) : 0);
}

/* ---- Forward ------------------------------------------------------------------------------------------------------------- */

static dv_range sum(dv_range a, dv_range b)
{
    const int64_t step = gcd(step_of(a), step_of(b));
    return make(add(a.least, b.least), add(a.most, b.most), step,
        step && step <= MOST_STEP ? mod(rest_of(a), step) + mod(rest_of(b), step) : 0);
}

static dv_range opposite(dv_range a)
{
    const int64_t most = a.least == INT64_MIN ? INT64_MAX : -a.least;
    return make(negative(a.most), most, step_of(a), a.step > 1 ? -a.rest : 0);
}

static dv_range hull(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return dv__between(min(min(a, b), min(c, d)), max(max(a, b), max(c, d)));
}

static dv_range product(dv_range a, dv_range b)
{
    const dv_range r = hull(times(a.least, b.least), times(a.least, b.most), times(a.most, b.least), times(a.most, b.most));
    const int64_t sa = step_of(a), sb = step_of(b), ra = rest_of(a), rb = rest_of(b);
    int64_t one, two, three, rest;
    if (__builtin_mul_overflow(sa, sb, &one) || __builtin_mul_overflow(sa, rb, &two) || __builtin_mul_overflow(sb, ra, &three) ||
        __builtin_mul_overflow(ra, rb, &rest) || two == INT64_MIN || three == INT64_MIN)
        return r;
    return make(r.least, r.most, gcd(one, gcd(two < 0 ? -two : two, three < 0 ? -three : three)), rest);
}

static dv_range quotient(enum dv__op op, dv_range a, dv_range b)
{
    int64_t (*const divide)(int64_t, int64_t) = op == DV__OP_CEILDIV ? ceil_of : floor_of;
    b.least += !b.least, b.most -= !b.most; /* never 0 */
    if (b.least > b.most)
        return dv__any_int();
    if (b.least <= 0 && b.most >= 0) { /* -1 and 1 give the largest */
        const int64_t most = max(negative(a.least), max(a.most, max(a.least, negative(a.most))));
        return dv__between(a.least == INT64_MIN ? INT64_MIN : negative(most), most);
    }
    const dv_range r = hull(divide(a.least, b.least), divide(a.least, b.most), divide(a.most, b.least), divide(a.most, b.most));
    if (dv__is_exact(b) && b.least > 1 && a.step > 1 && !(a.step % b.least))
        return make(r.least, r.most, a.step / b.least, divide(a.rest, b.least));
    return r;
}

static dv_range remainder_of(dv_range a, dv_range b)
{
    b.least += !b.least; /* never 0 */
    if (b.least < 1 || b.most < b.least)
        return b.least == INT64_MIN ? dv__any_int() : dv__between(min(b.least + 1, 0), max(b.most - 1, 0));
    if (a.least >= 0 && a.most < b.least)
        return a;
    if (!dv__is_exact(b))
        return dv__between(0, b.most - 1);
    if (a.step % b.least == 0)
        return dv__exactly(mod(a.rest, b.least));
    if (floor_of(a.least, b.least) == floor_of(a.most, b.least))
        return dv__between(mod(a.least, b.least), mod(a.most, b.least));
    return make(0, b.least - 1, gcd(a.step, b.least), a.rest);
}

static dv_range smaller_or_larger(enum dv__op op, dv_range a, dv_range b)
{
    const dv_range both = dv__range_join(a, b);
    if (op == DV__OP_MIN)
        return make(min(a.least, b.least), min(a.most, b.most), step_of(both), rest_of(both));
    return make(max(a.least, b.least), max(a.most, b.most), step_of(both), rest_of(both));
}

static dv_range absolute(dv_range a)
{
    if (a.least >= 0)
        return a;
    if (a.most <= 0)
        return opposite(a);
    return dv__between(0, max(negative(a.least), a.most));
}

dv_range dv__range_forward(enum dv__op op, dv_range a, dv_range b)
{
    switch (op) {
    case DV__OP_ADD: return sum(a, b);
    case DV__OP_SUB: return b.least == INT64_MIN ? dv__any_int() : sum(a, opposite(b));
    case DV__OP_MUL: return product(a, b);
    case DV__OP_NEG: return opposite(a);
    case DV__OP_ABS: return absolute(a);
    case DV__OP_DIV:
    case DV__OP_FLOORDIV:
    case DV__OP_CEILDIV: return quotient(op, a, b);
    case DV__OP_MOD: return remainder_of(a, b);
    case DV__OP_MIN:
    case DV__OP_MAX: return smaller_or_larger(op, a, b);
    default: return dv__any_int();
    }
}

/* ---- Backward ------------------------------------------------------------------------------------------------------------ */

/* a * b == result: what is known of a. */
static bool factor(dv_range result, dv_range *a, dv_range b, bool *changed)
{
    if (dv__is_exact(b) && b.least) {
        const bool up = b.least > 0;
        const dv_range r = dv__between(
            ceil_of(up ? result.least : result.most, b.least), floor_of(up ? result.most : result.least, b.least));
        return r.least <= r.most && dv__range_meet(a, r, changed);
    }
    if (b.least < 0 || a->least < 0 || result.least < 1)
        return true;
    return dv__range_meet(a, dv__between(b.most ? ceil_of(result.least, b.most) : 1, result.most / max(b.least, 1)), changed);
}

static bool undo_division(enum dv__op op, dv_range result, dv_range *a, dv_range b, bool *changed)
{
    if (!dv__is_exact(b) || b.least < 1)
        return true;
    if (op == DV__OP_FLOORDIV)
        return dv__range_meet(
            a, dv__between(times(result.least, b.least), add(times(result.most, b.least), b.least - 1)), changed);
    if (op == DV__OP_CEILDIV)
        return dv__range_meet(
            a, dv__between(add(times(result.least, b.least), 1 - b.least), times(result.most, b.least)), changed);
    if (!dv__is_exact(result) || b.least > MOST_STEP)
        return true;
    if (result.least < 0 || result.least >= b.least)
        return false;
    return dv__range_meet(a, (dv_range){ INT64_MIN, INT64_MAX, b.least, result.least }, changed);
}

static bool undo_choice(enum dv__op op, dv_range result, dv_range *a, dv_range *b, bool *changed)
{
    const dv_range bound = op == DV__OP_MIN ? dv__between(result.least, INT64_MAX) : dv__between(INT64_MIN, result.most);
    if (!dv__range_meet(a, bound, changed) || !dv__range_meet(b, bound, changed))
        return false;
    if (dv__range_apart(*a, result))
        return dv__range_meet(b, result, changed);
    return !dv__range_apart(*b, result) || dv__range_meet(a, result, changed);
}

bool dv__range_backward(enum dv__op op, dv_range result, dv_range *a, dv_range *b, bool *changed)
{
    switch (op) {
    case DV__OP_ADD:
        return dv__range_meet(a, dv__range_forward(DV__OP_SUB, result, *b), changed) &&
            dv__range_meet(b, dv__range_forward(DV__OP_SUB, result, *a), changed);
    case DV__OP_SUB:
        return dv__range_meet(a, sum(result, *b), changed) &&
            dv__range_meet(b, dv__range_forward(DV__OP_SUB, *a, result), changed);
    case DV__OP_MUL: return factor(result, a, *b, changed) && factor(result, b, *a, changed);
    case DV__OP_DIV: return dv__range_meet(a, product(result, *b), changed); /* there is no remainder */
    case DV__OP_NEG: return dv__range_meet(a, opposite(result), changed);
    case DV__OP_ABS: return dv__range_meet(a, dv__between(-max(result.most, 0), result.most), changed);
    case DV__OP_FLOORDIV:
    case DV__OP_CEILDIV:
    case DV__OP_MOD: return undo_division(op, result, a, *b, changed);
    case DV__OP_MIN:
    case DV__OP_MAX: return undo_choice(op, result, a, b, changed);
    default: return true;
    }
}

bool dv__range_order(dv_range *a, dv_range *b, int64_t by, bool *changed)
{
    return dv__range_meet(a, dv__between(INT64_MIN, add(b->most, by - 1)), changed) &&
        dv__range_meet(b, dv__between(add(a->least, 1 - by), INT64_MAX), changed);
}
