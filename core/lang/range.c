#include "lang/range.h"

enum { MAX_STEP = 1 << 20 }; /* the greatest step of a range: larger steps are dropped, which widens the range */

/* Returns the greatest common divisor; the sign is that of the operands. */
static int64_t int_gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Returns the remainder of a division by a positive number, from 0 to divisor - 1. */
static int64_t int_mod_nonnegative(int64_t a, int64_t divisor)
{
    const int64_t rest = a % divisor;
    return rest < 0 ? rest + divisor : rest;
}

/* Returns a + b, limited to 64 bits. */
static int64_t saturating_add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

static int64_t saturating_negate(int64_t a) { return a == INT64_MIN ? INT64_MAX : -a; }

static int64_t saturating_multiply(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? ((a < 0) == (b < 0) ? INT64_MAX : INT64_MIN) : product;
}

/* Returns a / b rounded down, for b other than 0; limited to 64 bits. */
static int64_t int_floor_div_saturating(int64_t a, int64_t b)
{
    if (a == INT64_MIN && b == -1)
        return INT64_MAX;
    return a / b - (a % b && (a < 0) != (b < 0));
}

/* Returns a / b rounded up, for b other than 0; limited to 64 bits. */
static int64_t int_ceil_div_saturating(int64_t a, int64_t b)
{
    if (a == INT64_MIN && b == -1)
        return INT64_MAX;
    return a / b + (a % b && (a < 0) == (b < 0));
}

static int64_t int_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t int_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Rounds the bounds of a range inward to numbers that have its remainder. Returns false if the range has no number. */
static bool range_try_round_bounds_to_remainder(dv_range *r)
{
    if (r->step > 1 &&
        (__builtin_add_overflow(
             r->least, int_mod_nonnegative(r->rest - int_mod_nonnegative(r->least, r->step), r->step), &r->least) ||
            __builtin_sub_overflow(
                r->most, int_mod_nonnegative(int_mod_nonnegative(r->most, r->step) - r->rest, r->step), &r->most)))
        return false;
    if (r->least == r->most)
        r->step = 1, r->rest = 0;
    return r->least <= r->most;
}

/* Returns the step of a range: each of its numbers is range_get_remainder() above a multiple of it. 0: the range is one
 * number. */
static int64_t range_get_step(dv_range r) { return dv__range_is_exact(r) ? 0 : r.step; }
/* Returns the remainder of a range's numbers modulo its step; of a single number, the number. */
static int64_t range_get_remainder(dv_range r) { return dv__range_is_exact(r) ? r.least : r.rest; }

/* Returns the range of the numbers between the bounds that are `rest` above a multiple of step. A step above MAX_STEP is
 * dropped. */
static dv_range range_make(int64_t least, int64_t most, int64_t step, int64_t rest)
{
    dv_range r = { least, most, 1, 0 };
    if (step > 1 && step <= MAX_STEP)
        r.step = step, r.rest = int_mod_nonnegative(rest, step);
    dv_range tight = r;
    return range_try_round_bounds_to_remainder(&tight) ? tight : dv__range_between(least, most);
}

/* Narrows r to numbers that have the remainder of `allowed`, too; bounds are left alone. Returns false if no number has both
 * remainders. */
static bool range_try_intersect_remainders(dv_range *r, dv_range allowed)
{
    const int64_t common = int_gcd(r->step, allowed.step);
    if ((r->rest - allowed.rest) % common)
        return false;
    const int64_t times_more = allowed.step / common;
    if (times_more == 1)
        return true;
    if (r->step > MAX_STEP / times_more)
        return true;
    int64_t rest = r->rest;
    while (rest % allowed.step != allowed.rest)
        rest += r->step;
    r->step *= times_more;
    r->rest = rest;
    return true;
}

bool dv__range_try_intersect(dv_range *to, dv_range allowed, bool *changed)
{
    if (to->least >= allowed.least && to->most <= allowed.most &&
        (allowed.step == 1 || (allowed.step == to->step && allowed.rest == to->rest)))
        return true; /* the most frequent case: all numbers of *to are allowed */
    dv_range r = { int_max(to->least, allowed.least), int_min(to->most, allowed.most), to->step, to->rest };
    if (r.least > r.most || !range_try_intersect_remainders(&r, allowed) || !range_try_round_bounds_to_remainder(&r))
        return false;
    *changed |= r.least != to->least || r.most != to->most || r.step != to->step;
    *to = r;
    return true;
}

bool dv__ranges_are_disjoint(dv_range a, dv_range b)
{
    bool changed = false;
    return !dv__range_try_intersect(&a, b, &changed);
}

dv_range dv__range_union(dv_range a, dv_range b)
{
    int64_t distance, step = int_gcd(range_get_step(a), range_get_step(b));
    if (__builtin_sub_overflow(a.least, b.least, &distance) || distance == INT64_MIN)
        step = 1;
    else
        step = int_gcd(step, distance < 0 ? -distance : distance);
    return range_make(int_min(a.least, b.least), int_max(a.most, b.most), step, step ? int_mod_nonnegative(a.least, step) : 0);
}

/* ---- Forward ------------------------------------------------------------------------------------------------------------- */

static dv_range range_add(dv_range a, dv_range b)
{
    const int64_t step = int_gcd(range_get_step(a), range_get_step(b));
    return range_make(saturating_add(a.least, b.least), saturating_add(a.most, b.most), step,
        step && step <= MAX_STEP
            ? int_mod_nonnegative(range_get_remainder(a), step) + int_mod_nonnegative(range_get_remainder(b), step)
            : 0);
}

static dv_range range_negate(dv_range a)
{
    const int64_t most = a.least == INT64_MIN ? INT64_MAX : -a.least;
    return range_make(saturating_negate(a.most), most, range_get_step(a), a.step > 1 ? -a.rest : 0);
}

/* Returns the range from the least to the greatest of four numbers. */
static dv_range range_hull_of_four(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return dv__range_between(int_min(int_min(a, b), int_min(c, d)), int_max(int_max(a, b), int_max(c, d)));
}

static dv_range range_multiply(dv_range a, dv_range b)
{
    const dv_range r = range_hull_of_four(saturating_multiply(a.least, b.least), saturating_multiply(a.least, b.most),
        saturating_multiply(a.most, b.least), saturating_multiply(a.most, b.most));
    const int64_t sa = range_get_step(a), sb = range_get_step(b), ra = range_get_remainder(a), rb = range_get_remainder(b);
    int64_t one, two, three, rest;
    if (__builtin_mul_overflow(sa, sb, &one) || __builtin_mul_overflow(sa, rb, &two) || __builtin_mul_overflow(sb, ra, &three) ||
        __builtin_mul_overflow(ra, rb, &rest) || two == INT64_MIN || three == INT64_MIN)
        return r;
    return range_make(r.least, r.most, int_gcd(one, int_gcd(two < 0 ? -two : two, three < 0 ? -three : three)), rest);
}

static dv_range range_subtract(dv_range a, dv_range b)
{
    return b.least == INT64_MIN ? dv__range_any() : range_add(a, range_negate(b));
}

/* Returns the range of quotients; divide() rounds down or up. */
static dv_range range_divide(int64_t (*divide)(int64_t, int64_t), dv_range a, dv_range b)
{
    b.least += !b.least, b.most -= !b.most; /* a call that succeeds never divides by 0 */
    if (b.least > b.most)
        return dv__range_any();
    if (b.least <= 0 && b.most >= 0) { /* the divisors -1 and 1 give the largest quotients */
        const int64_t most = int_max(saturating_negate(a.least), int_max(a.most, int_max(a.least, saturating_negate(a.most))));
        return dv__range_between(a.least == INT64_MIN ? INT64_MIN : saturating_negate(most), most);
    }
    const dv_range r = range_hull_of_four(
        divide(a.least, b.least), divide(a.least, b.most), divide(a.most, b.least), divide(a.most, b.most));
    if (dv__range_is_exact(b) && b.least > 1 && a.step > 1 && !(a.step % b.least))
        return range_make(r.least, r.most, a.step / b.least, divide(a.rest, b.least));
    return r;
}

/* Returns the range of a % b, which has the sign of b. */
static dv_range range_modulo(dv_range a, dv_range b)
{
    b.least += !b.least; /* a call that succeeds never divides by 0 */
    if (b.least < 1 || b.most < b.least)
        return b.least == INT64_MIN ? dv__range_any() : dv__range_between(int_min(b.least + 1, 0), int_max(b.most - 1, 0));
    if (a.least >= 0 && a.most < b.least)
        return a;
    if (!dv__range_is_exact(b))
        return dv__range_between(0, b.most - 1);
    if (a.step % b.least == 0)
        return dv__range_exactly(int_mod_nonnegative(a.rest, b.least));
    if (int_floor_div_saturating(a.least, b.least) == int_floor_div_saturating(a.most, b.least))
        return dv__range_between(int_mod_nonnegative(a.least, b.least), int_mod_nonnegative(a.most, b.least));
    return range_make(0, b.least - 1, int_gcd(a.step, b.least), a.rest);
}

/* Returns the range of min(a, b) or max(a, b); choose() is int_min or int_max. */
static dv_range range_min_or_max(int64_t (*choose)(int64_t, int64_t), dv_range a, dv_range b)
{
    const dv_range both = dv__range_union(a, b);
    return range_make(choose(a.least, b.least), choose(a.most, b.most), range_get_step(both), range_get_remainder(both));
}

static dv_range range_abs(dv_range a)
{
    if (a.least >= 0)
        return a;
    if (a.most <= 0)
        return range_negate(a);
    return dv__range_between(0, int_max(saturating_negate(a.least), a.most));
}

dv_range dv__range_forward(enum dv__opcode op, dv_range a, dv_range b)
{
    switch (op) {
#define ARITHMETIC(id, name, ints, reals, forward, backward) \
    case DV__OP_##id: return forward;
#include "lang/ops.def"
    default: return dv__range_any();
    }
}

/* ---- Backward ------------------------------------------------------------------------------------------------------------ */

/* Narrows a, where a * b == result. Returns false if a has no number left. */
static bool range_try_narrow_one_factor(dv_range result, dv_range *a, dv_range b, bool *changed)
{
    if (dv__range_is_exact(b) && b.least) {
        const bool up = b.least > 0;
        const dv_range r = dv__range_between(int_ceil_div_saturating(up ? result.least : result.most, b.least),
            int_floor_div_saturating(up ? result.most : result.least, b.least));
        return r.least <= r.most && dv__range_try_intersect(a, r, changed);
    }
    if (b.least < 0 || a->least < 0 || result.least < 1)
        return true;
    return dv__range_try_intersect(a,
        dv__range_between(b.most ? int_ceil_div_saturating(result.least, b.most) : 1, result.most / int_max(b.least, 1)),
        changed);
}

/* Narrows a and b, where a * b == result. Returns false if one has no number left. */
static bool range_try_narrow_factors(dv_range result, dv_range *a, dv_range *b, bool *changed)
{
    return range_try_narrow_one_factor(result, a, *b, changed) && range_try_narrow_one_factor(result, b, *a, changed);
}

/* Narrows a and b, where a + b == result. Returns false if one has no number left. */
static bool range_try_narrow_sum(dv_range result, dv_range *a, dv_range *b, bool *changed)
{
    return dv__range_try_intersect(a, range_subtract(result, *b), changed) &&
        dv__range_try_intersect(b, range_subtract(result, *a), changed);
}

/* Narrows a and b, where a - b == result. Returns false if one has no number left. */
static bool range_try_narrow_difference(dv_range result, dv_range *a, dv_range *b, bool *changed)
{
    return dv__range_try_intersect(a, range_add(result, *b), changed) &&
        dv__range_try_intersect(b, range_subtract(*a, result), changed);
}

/* Narrows a, where a / b, rounded down or (is_up) up, is the result, if b is exact and positive. Returns false if a has no
 * number left. */
static bool range_try_narrow_quotient(dv_range result, dv_range *a, dv_range b, bool is_up, bool *changed)
{
    if (!dv__range_is_exact(b) || b.least < 1)
        return true;
    const int64_t least = saturating_multiply(result.least, b.least), most = saturating_multiply(result.most, b.least);
    return dv__range_try_intersect(a,
        is_up ? dv__range_between(saturating_add(least, 1 - b.least), most)
              : dv__range_between(least, saturating_add(most, b.least - 1)),
        changed);
}

/* Narrows a, where a % b == result, if both are exact and b is positive. Returns false if a has no number left. */
static bool range_try_narrow_remainder(dv_range result, dv_range *a, dv_range b, bool *changed)
{
    if (!dv__range_is_exact(b) || b.least < 1 || !dv__range_is_exact(result) || b.least > MAX_STEP)
        return true;
    if (result.least < 0 || result.least >= b.least)
        return false;
    return dv__range_try_intersect(a, (dv_range){ INT64_MIN, INT64_MAX, b.least, result.least }, changed);
}

/* Narrows a and b, whose minimum or maximum is the result. bound: a range that the result implies for both. Returns false if
 * one has no number left. */
static bool range_try_narrow_min_max(dv_range result, dv_range bound, dv_range *a, dv_range *b, bool *changed)
{
    if (!dv__range_try_intersect(a, bound, changed) || !dv__range_try_intersect(b, bound, changed))
        return false;
    if (dv__ranges_are_disjoint(*a, result))
        return dv__range_try_intersect(b, result, changed);
    return !dv__ranges_are_disjoint(*b, result) || dv__range_try_intersect(a, result, changed);
}

bool dv__range_try_narrow_operands(enum dv__opcode op, dv_range result, dv_range *a, dv_range *b, bool *changed)
{
    switch (op) {
#define ARITHMETIC(id, name, ints, reals, forward, backward) \
    case DV__OP_##id: return backward;
#include "lang/ops.def"
    default: return true;
    }
}

bool dv__range_try_narrow_less(dv_range *a, dv_range *b, int64_t slack, bool *changed)
{
    return dv__range_try_intersect(a, dv__range_between(INT64_MIN, saturating_add(b->most, slack - 1)), changed) &&
        dv__range_try_intersect(b, dv__range_between(saturating_add(a->least, 1 - slack), INT64_MAX), changed);
}
