/* Ranges of integers, for partial inference (dv_range in dovetail.h): bounds, and a remainder modulo a step.
 *
 * Operations propagate forward (what a result can be) and backward (what its operands can still be). Bounds that do not fit 64
 * bits end at the last number that does: an operation whose result does not fit fails. */
#ifndef DV_LANG_RANGE_H
#define DV_LANG_RANGE_H

#include "lang/contract_program.h"

static inline dv_range dv__range_between(int64_t least, int64_t most) { return (dv_range){ least, most, 1, 0 }; }
static inline dv_range dv__range_exactly(int64_t i) { return dv__range_between(i, i); }
static inline dv_range dv__range_any(void) { return dv__range_between(INT64_MIN, INT64_MAX); }
static inline bool dv__range_is_exact(dv_range r) { return r.least == r.most; }

/* Narrows *to to the numbers that are in `allowed` too, and sets *changed if *to gets smaller. Returns false, and leaves *to as
 * it is, if there is none. */
bool dv__range_try_intersect(dv_range *to, dv_range allowed, bool *changed);
bool dv__ranges_are_disjoint(dv_range a, dv_range b); /* true if no number is in both */
dv_range dv__range_union(dv_range a, dv_range b);     /* returns the smallest range that has all numbers of both */
/* Returns the range of the results of an arithmetic operation on numbers of a and b; NEG and ABS ignore b. Another operation
 * gives all numbers. */
dv_range dv__range_forward(enum dv__opcode op, dv_range a, dv_range b);
/* Narrows a and b to numbers with which the operation can give the result. Sets *changed if a range gets smaller. Returns false
 * if that is impossible. */
bool dv__range_try_narrow_operands(enum dv__opcode op, dv_range result, dv_range *a, dv_range *b, bool *changed);
/* Narrows both ranges so that a < b + slack can hold. Sets *changed if a range gets smaller. Returns false if that is
 * impossible. */
bool dv__range_try_narrow_less(dv_range *a, dv_range *b, int64_t slack, bool *changed);

#endif
