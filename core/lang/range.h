/* Integers of which not everything is known (dv_range in dovetail.h): bounds, and a remainder.
 *
 * Operations go both ways: forward, what a result can be; backward, what its operands can still be. Bounds that do not fit 64
 * bits end at the last number that does: an operation whose result does not fit fails. */
#ifndef DV_LANG_RANGE_H
#define DV_LANG_RANGE_H

#include "lang/contract_program.h"

static inline dv_range dv__between(int64_t least, int64_t most) { return (dv_range){ least, most, 1, 0 }; }
static inline dv_range dv__exactly(int64_t i) { return dv__between(i, i); }
static inline dv_range dv__any_int(void) { return dv__between(INT64_MIN, INT64_MAX); }
static inline bool dv__is_exact(dv_range r) { return r.least == r.most; }

/* What is in both. False: nothing, and *to stays as it is. *changed is set when *to gets smaller. */
bool dv__range_meet(dv_range *to, dv_range by, bool *changed);
bool dv__range_apart(dv_range a, dv_range b); /* nothing is in both */
dv_range dv__range_join(dv_range a, dv_range b);
/* ADD, SUB, MUL, DIV, FLOORDIV, MOD, CEILDIV, MIN, MAX, NEG, ABS (the last two have a alone). */
dv_range dv__range_forward(enum dv__op op, dv_range a, dv_range b);
bool dv__range_backward(enum dv__op op, dv_range result, dv_range *a, dv_range *b, bool *changed);
/* Narrow both so that a < b + by. */
bool dv__range_order(dv_range *a, dv_range *b, int64_t by, bool *changed);

#endif
