/* Proofs, by partial inference (dv_partial), that no call has a level or a pair of levels. */
#include "plan.h"

/* Constraint on a name or an argument, in the form of dv_partial_set(). */
typedef struct level_constraint {
    enum dv_partial_of kind;
    size_t index;
    dv_partial_spec constraint;
} level_constraint;

/* Returns the range of integers from low to high. */
static dv_range plan_proof_make_range(int64_t low, int64_t high) { return (dv_range){ low, high, 1, 0 }; }

/* Sets *out_range to one of the ranges that together contain all sizes of a size class: one range, or one for each member.
 * constraint_number: which of them, from 0. Returns false past the last. */
static bool plan_proof_try_get_size_class_constraint(
    const planner *p, int64_t size_class, int constraint_number, dv_range *out_range)
{
    const bool range = size_class < NUM_SIZE_CLASSES && check_size_classes[size_class].high > check_size_classes[size_class].low;
    const int64_t member = range ? 0 : check_plan_size_get_of_class(p, size_class, (uint32_t)constraint_number);
    if (size_class == NUM_SIZE_CLASSES
            ? constraint_number >= (int)p->nextra_sizes
            : constraint_number > 3 || (constraint_number && (range || member == check_size_classes[size_class].of[0])))
        return false;
    *out_range = range ? plan_proof_make_range(check_size_classes[size_class].low, check_size_classes[size_class].high)
                       : plan_proof_make_range(member, member);
    return true;
}

/* Adds one of several constraints to *unknown_spec, which is dv_partial_spec_unknown() before the call. Each shape with this
 * rank, size class or position of 1s satisfies at least one of them. constraint_number: which one, from 0. Returns false past the
 * last.
 */
static bool plan_proof_try_constrain_unknown_shape(
    const planner *p, enum factor_kind kind, int64_t level, int constraint_number, dv_partial_spec *unknown_spec)
{
    if (kind == FACTOR_RANK || kind == FACTOR_FREE_RANK) {
        unknown_spec->value = plan_proof_make_range(level, level);
        return !constraint_number;
    }
    for (int32_t n = kind == FACTOR_ONES ? 2 : 1; n <= HIGH_RANK; n = n == MAX_RANK ? HIGH_RANK : n + 1) {
        unknown_spec->value = plan_proof_make_range(n, n);
        if (kind == FACTOR_ONES && level != ONES_INTERIOR && !constraint_number--) {
            if (level == ONES_LEADING || level == ONES_BOTH_ENDS)
                unknown_spec->sizes[0] = plan_proof_make_range(1, 1);
            if (level == ONES_TRAILING || level == ONES_BOTH_ENDS)
                unknown_spec->sizes[n - 1] = plan_proof_make_range(1, 1);
            return true;
        }
        for (int32_t d = 0; kind != FACTOR_ONES && d<n; d += n> MAX_RANK
                ? n - 1
                : 1) /* for HIGH_RANK only the first and last dim are constrained */
            for (int j = 0; plan_proof_try_get_size_class_constraint(p, level, j, &unknown_spec->sizes[d]); j++)
                if (!constraint_number--)
                    return true;
                else
                    unknown_spec->sizes[d] = dv_partial_spec_unknown().sizes[d];
        for (int32_t d = 1; kind == FACTOR_ONES && level == ONES_INTERIOR && d + 1 < n; d++)
            if (!constraint_number--) {
                unknown_spec->sizes[d] = plan_proof_make_range(1, 1);
                return true;
            }
    }
    return false;
}

/* Sets *constraint to one of several constraints. Each call with the level satisfies at least one of them. constraint_number:
 * which one, from 0. Returns false past the last. *is_expressible: false if partial inference cannot express the level, so that
 * nothing is proved. */
static bool plan_proof_try_get_level_constraint(const planner *p, int factor_index, int level_index, int constraint_number,
    level_constraint *constraint, bool *is_expressible)
{
    const factor *f = &p->factors[factor_index];
    const int64_t level = f->levels[level_index];
    const bool of_name = f->kind <= FACTOR_DTYPE;
    *constraint = (level_constraint){ of_name ? DV_PARTIAL_NAME : DV_PARTIAL_ARGUMENT,
        of_name ? p->op->names[f->index].register_index : f->index, dv_partial_spec_unknown() };
    *is_expressible = true;
    switch (f->kind) {
    case FACTOR_DIM: return plan_proof_try_get_size_class_constraint(p, level, constraint_number, &constraint->constraint.value);
    case FACTOR_RANK:
    case FACTOR_VARIADIC_SIZE:
    case FACTOR_ONES:
        return plan_proof_try_constrain_unknown_shape(p, f->kind, level, constraint_number, &constraint->constraint);
    case FACTOR_FREE_RANK:
    case FACTOR_FREE_SIZE:
        *is_expressible = p->op->slots[f->index].type == DV_FIELD_TENSOR;
        return plan_proof_try_constrain_unknown_shape(p, f->kind, level, constraint_number, &constraint->constraint);
    case FACTOR_DTYPE: constraint->constraint.dtype = dv_dtype_from_key((uint32_t)level); return !constraint_number;
    case FACTOR_FREE_DTYPE:
        *is_expressible = p->op->slots[f->index].type == DV_FIELD_TENSOR;
        constraint->constraint.dtype = dv_dtype_from_key((uint32_t)level);
        return !constraint_number;
    case FACTOR_PRESENT:
        *is_expressible = p->op->slots[f->index].type == DV_FIELD_TENSOR;
        constraint->constraint.present = plan_proof_make_range(level, level);
        return !constraint_number;
    case FACTOR_LENGTH: constraint->constraint.value = plan_proof_make_range(level, level); return !constraint_number;
    case FACTOR_SCALAR: {
        const check_value v = check_get_value_or_default(p->op, f->index, &p->scalar_levels[f->index][level]);
        if (check_plan_level_get_size_class(p, factor_index, level_index) >= 0)
            return plan_proof_try_get_size_class_constraint(p, check_plan_level_get_size_class(p, factor_index, level_index),
                constraint_number, &constraint->constraint.value);
        *is_expressible = p->op->literals[f->index].is_read &&
            (v.type == DV_VALUE_INT || v.type == DV_VALUE_BOOL || v.type == DV_VALUE_STRING);
        if (v.type == DV_VALUE_INT && v.as.i == extreme_ints[0]) {
            constraint->constraint.value = plan_proof_make_range(
                extreme_ints[constraint_number % NUM_EXTREME_INTS], extreme_ints[constraint_number % NUM_EXTREME_INTS]);
            return constraint_number < NUM_EXTREME_INTS;
        }
        constraint->constraint.value = v.type == DV_VALUE_STRING ? constraint->constraint.value
            : v.type == DV_VALUE_BOOL                            ? plan_proof_make_range(v.as.b, v.as.b)
                                                                 : plan_proof_make_range(v.as.i, v.as.i);
        if (v.type == DV_VALUE_STRING)
            constraint->constraint.string = dv_from_string(p->scalar_levels[f->index][level].type == DV_VALUE_DEFAULT
                    ? p->op->slots[f->index].default_value.as.s.data
                    : p->scalar_levels[f->index][level].string)
                                                .as.s;
        return !constraint_number;
    }
    default: *is_expressible = false; return false;
    }
}

/* True if partial inference proves that no call satisfies a constraint together with those already set in `calls`. */
static bool plan_proof_is_refuted(dv_partial *calls, const level_constraint *constraint)
{
    return dv_partial_set(calls, constraint->kind, constraint->index, 0, &constraint->constraint);
}

bool check_plan_proof_is_infeasible(const planner *p, int factor_a, int level_a, int factor_b, int level_b)
{
    level_constraint one, two;
    dv_partial *calls = NULL;
    bool is_answered = true, refuted = p->op->contract;
    for (int i = 0; refuted && plan_proof_try_get_level_constraint(p, factor_a, level_a, i, &one, &is_answered) && is_answered;
        i++) {
        calls = calls ? calls : check_new_partial_inference(p->op, 0, NULL);
        if (!calls || plan_proof_is_refuted(calls, &one)) {
            refuted = calls;
            continue;
        }
        refuted = factor_b >= 0;
        for (int k = 0;
            refuted && plan_proof_try_get_level_constraint(p, factor_b, level_b, k, &two, &is_answered) && is_answered; k++)
            refuted = plan_proof_is_refuted(calls, &two);
        refuted &= is_answered;
        dv_partial_free(calls);
        calls = NULL;
    }
    dv_partial_free(calls);
    return refuted && is_answered;
}
