/* Verdicts on cases (accepted, refused, too large, bad contents), and cases made from an accepted one: with a tensor of more
 * than 2^31 elements, and just outside the contract. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

int64_t check_max_elements = CHECK_DEFAULT_MAX_ELEMENTS;

/* ---- Verdicts ---- */

/* True if a shape has at most check_max_elements elements (--max-elements). */
static bool variant_is_within_max_elements(int32_t ndim, const int64_t *shape)
{
    double n = 1;
    for (int32_t d = 0; d < ndim; d++)
        n *= (double)shape[d];
    return n <= (double)check_max_elements;
}

/* True if each tensor of a case that is not None has at most check_max_elements elements. */
static bool variant_has_tensors_within_limit(const check_case *c)
{
    bool small = true;
    for (size_t i = 0; i < c->ntensors; i++)
        small &= !c->tensors[i].present || variant_is_within_max_elements(c->tensors[i].ndim, c->tensors[i].shape);
    return small;
}

/* True if the elements of the case's tensors satisfy the contract's facts. A call with DV_HOST_CHECK tests the facts; it asks for
 * a kernel that does not exist, so that no kernel runs. */
static bool variant_has_valid_contents(const check_op *op, const check_case *c)
{
    static const check_kernel no_kernel = { .name = "", .hook_index = INT32_MAX };
    static check_guarded_call call;
    if (!op->has_element_facts)
        return true;
    call = (check_guarded_call){ .op = op, .kernel = &no_kernel, .host_flags = DV_HOST_CHECK };
    check_guarded_call_run(&call, c);
    return !call.status || call.kernel_declined;
}

/* Sets dv_last_error() to a message that a tensor exceeds --max-elements, and returns CHECK_VERDICT_TOO_LARGE. */
static enum check_verdict variant_set_error_return_too_large(const check_op *op)
{
    dv_fail(DV_EINVAL, "%s: a tensor has more than %lld elements (--max-elements)", op->name, (long long)check_max_elements);
    return CHECK_VERDICT_TOO_LARGE;
}

enum check_verdict check_classify_case(const check_op *op, const check_case *c)
{
    static dv_result_spec specs[CHECK_MAX_RESULTS];
    static check_values v;
    bool any = !c->ntensors;
    for (size_t i = 0; i < c->ntensors; i++)
        any |= c->tensors[i].present;
    if (!any) { /* the case is refused, because a call without a tensor has no device */
        dv_fail(DV_EINVAL, "%s: all tensors are None", op->name);
        return CHECK_VERDICT_BAD_CONTENTS;
    }
    if (!variant_has_tensors_within_limit(c))
        return variant_set_error_return_too_large(op);
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(op->op, v.values, c->nargs, specs, op->nresults))
        return CHECK_VERDICT_REFUSED;
    for (size_t r = 0; r < op->nresults; r++)
        if (specs[r].ndim >= 0 && !variant_is_within_max_elements(specs[r].ndim, specs[r].shape))
            return variant_set_error_return_too_large(op);
    return variant_has_valid_contents(op, c) ? CHECK_VERDICT_ACCEPTED : CHECK_VERDICT_BAD_CONTENTS;
}

bool check_is_refused_for_stray_view(const check_op *op, const check_case *c)
{
    bool numbers = false;
    for (size_t i = 0; i < op->nargs; i++)
        numbers |= op->literals[i].is_read && (op->slots[i].type == DV_FIELD_INT || op->slots[i].type == DV_FIELD_INTS);
    return !numbers && check_classify_case(op, c) == CHECK_VERDICT_REFUSED && strstr(dv_last_error(), "expected a view inside");
}

bool check_is_accepted(const check_op *op, const check_case *c) { return check_classify_case(op, c) == CHECK_VERDICT_ACCEPTED; }

/* ---- More than 2^31 elements ---- */

/* Returns the number of elements that a tensor has in `before`: the largest of the tensors that have more elements in `after`.
 * Returns 0 if no tensor is larger in `after`. */
static int64_t variant_get_old_numel_of_largest_grown(const check_case *before, const check_case *after)
{
    int64_t most = 0;
    for (size_t i = 0; i < after->ntensors; i++)
        if (after->tensors[i].present && check_tensor_numel(&after->tensors[i]) > check_tensor_numel(&before->tensors[i]) &&
            check_tensor_numel(&before->tensors[i]) > most)
            most = check_tensor_numel(&before->tensors[i]);
    return most;
}

/* Limits all sizes of the contract's names, except the first size of names[name_index]: larger ones are set to `limit`; with
 * is_lower_limit, smaller ones other than 0 are. Returns false if nothing changes, or the contract refuses the case. */
static bool variant_try_limit_other_dims(
    const check_op *op, check_case *c, uint32_t name_index, int64_t limit, bool is_lower_limit)
{
    static check_case from;
    bool changed = false;
    from = *c;
    for (uint32_t i = 0; i < op->nnames && check_name_find_sizes(&op->names[i], c); i++) {
        int64_t *const size = check_name_find_sizes(&op->names[i], c);
        const int32_t n = op->names[i].kind == CHECK_NAME_VARIADIC ? c->names.variadics[op->names[i].value_index].ndim : 1;
        for (int32_t d = i == name_index; d < n; d++) {
            const bool change = is_lower_limit ? size[d] > 0 && size[d] < limit : size[d] > limit;
            changed |= change;
            size[d] = change ? limit : size[d];
        }
    }
    return changed && check_try_fit_case(op, c, &from, NULL);
}

bool check_try_enlarge_case_past_2_31(
    const check_op *op, check_case *c, uint32_t attempt, bool *output_is_oversized, bool *no_more_names)
{
    static check_case from, one, two;
    static dv_result_spec specs[CHECK_MAX_RESULTS];
    static check_values v;
    enum { SMALL_INDEX = 7, SMALL_SIZE = 4 };
    const int64_t wanted_numel = INT64_C(3) << 30, most = INT64_C(1) << 33;
    const uint32_t name = attempt / 4, turn = attempt % 4;
    int64_t *size = name < op->nnames ? check_name_find_sizes(&op->names[name], c) : NULL;
    bool has_ints = false, integers = false;
    *no_more_names = !size;
    *output_is_oversized = false;
    if (!size || !*size || (turn == 2 && !variant_try_limit_other_dims(op, c, name, 1, false)))
        return false;
    if (turn == 3)
        variant_try_limit_other_dims(op, c, name, SMALL_SIZE, true);
    one = two = from = *c;
    *check_name_find_sizes(&op->names[name], &one) = 1;
    *check_name_find_sizes(&op->names[name], &two) = 2;
    if (!check_try_fit_case(op, &one, &from, NULL) || !check_try_fit_case(op, &two, &from, NULL) ||
        !variant_get_old_numel_of_largest_grown(&one, &two))
        return false;
    *size = (wanted_numel / variant_get_old_numel_of_largest_grown(&one, &two) + 64) / 64 *
        64; /* contracts often require a multiple of a power of two */
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        t->layout = CHECK_LAYOUT_CONTIGUOUS;
        integers |= t->dtype.code == 0 && t->dtype.bits >= 32;
        if (t->dtype.code == 0 && t->dtype.bits >= 32) { /* integers of 32 or 64 bits may be indices */
            t->low = 0;
            t->high = turn == 3 ? SMALL_INDEX : t->dtype.bits == 32 && *size > INT32_MAX ? INT32_MAX : (double)(*size - 1);
            t->fill = turn == 3 ? CHECK_FILL_RANDOM : t->fill;
        }
    }
    for (size_t i = 0; i < c->nargs && turn == 1; i++)
        if (c->args[i].type == DV_VALUE_INT && op->literals[i].is_read) {
            c->args[i].as.i = *size - 1;
            has_ints = true;
        }
    if ((turn == 1 && !has_ints) || (turn == 3 && !integers) || !check_try_fit_case(op, c, &from, NULL))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const bool written = op->slots[check_find_tensor_slot(c, i)].flags & DV_SLOT_WRITES;
        if (c->tensors[i].present && check_tensor_numel(&c->tensors[i]) > most)
            return false;
        *output_is_oversized |= written && c->tensors[i].present && check_tensor_numel(&c->tensors[i]) > INT32_MAX;
    }
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(op->op, v.values, c->nargs, specs, op->nresults))
        return false;
    for (size_t r = 0; r < op->nresults; r++) {
        double n = specs[r].ndim < 0 ? 0 : 1;
        for (int32_t d = 0; d < specs[r].ndim; d++)
            n *= (double)specs[r].shape[d];
        if (n > (double)most)
            return false;
        *output_is_oversized |= n > INT32_MAX;
    }
    return true;
}

/* ---- Cases just outside the contract ---- */

typedef struct case_mutator {
    check_case *c;
    char *description;
    size_t size;
    uint32_t changes_left;
} case_mutator;

/* Counts down one possible change; true if it is the requested one. */
static bool variant_is_requested_change(case_mutator *mutator) { return mutator->changes_left-- == 0; }

/* Counts the possible changes of one tensor: each dim, the rank, the dtype, None. Makes the requested change, with its
 * description, and returns true if it is among them. */
static bool variant_try_make_requested_tensor_change(case_mutator *mutator, const check_op *op, size_t tensor_index)
{
    check_tensor *t = &mutator->c->tensors[tensor_index];
    const size_t slot = check_find_tensor_slot(mutator->c, tensor_index);
    const char *name = op->slots[slot].name;
    if (!t->present)
        return false;
    for (int32_t d = 0; d < t->ndim; d++)
        if (variant_is_requested_change(mutator)) {
            t->shape[d]++;
            snprintf(mutator->description, mutator->size, "dim %d of '%s' is one larger", (int)d, name);
            return true;
        }
    if (t->ndim < CHECK_MAX_DIMS && variant_is_requested_change(mutator)) {
        t->shape[t->ndim++] = 2;
        snprintf(mutator->description, mutator->size, "'%s' has one dim more", name);
        return true;
    }
    if (t->ndim && variant_is_requested_change(mutator)) {
        t->ndim--;
        snprintf(mutator->description, mutator->size, "'%s' has one dim less", name);
        return true;
    }
    if (variant_is_requested_change(mutator)) {
        dv_dtype_parse(dv_dtype_key(t->dtype) == DV_DTYPE_u16 ? "i16" : "u16", &t->dtype);
        snprintf(mutator->description, mutator->size, "'%s' has another dtype", name);
        return true;
    }
    if (mutator->c->args[slot].type == DV_VALUE_TENSOR && variant_is_requested_change(mutator)) {
        t->present = false;
        snprintf(mutator->description, mutator->size, "'%s' is None", name);
        return true;
    }
    return false;
}

/* Counts the possible changes of one int or string argument: numbers out of range, an unknown string. Makes the requested change,
 * with its description, and returns true if it is among them. */
static bool variant_try_make_requested_argument_change(case_mutator *mutator, const check_op *op, size_t slot)
{
    static const int64_t numbers[] = { -1, 0, 1, 7, INT64_C(1) << 40, INT64_MIN };
    check_value *v = &mutator->c->args[slot];
    const char *name = op->slots[slot].name;
    const bool is_int = op->slots[slot].type == DV_FIELD_INT;
    for (size_t k = 0; is_int && k < sizeof numbers / sizeof *numbers; k++)
        if (variant_is_requested_change(mutator)) {
            memset(v, 0, sizeof *v);
            v->type = DV_VALUE_INT;
            v->as.i = numbers[k];
            snprintf(mutator->description, mutator->size, "'%s' is %lld", name, (long long)numbers[k]);
            return true;
        }
    for (int64_t by = -1; is_int && v->type == DV_VALUE_INT && by <= 1; by += 2)
        if (v->as.i < INT64_MAX && v->as.i > INT64_MIN && variant_is_requested_change(mutator)) {
            v->as.i += by;
            snprintf(mutator->description, mutator->size, "'%s' is %lld", name, (long long)v->as.i);
            return true;
        }
    if (op->slots[slot].type == DV_FIELD_STRING && variant_is_requested_change(mutator)) {
        *v = (check_value){ .type = DV_VALUE_STRING, .string = "no such word" };
        snprintf(mutator->description, mutator->size, "'%s' is \"no such word\"", name);
        return true;
    }
    return false;
}

bool check_try_make_invalid_case(
    const check_op *op, const check_case *accepted, uint32_t number, check_case *out, char *violated_rule, size_t size)
{
    case_mutator b = { out, violated_rule, size, number };
    *out = *accepted;
    out->is_invalid = true;
    for (size_t t = 0; t < out->ntensors; t++)
        if (variant_try_make_requested_tensor_change(&b, op, t))
            return true;
    for (size_t a = 0; a < out->nargs; a++)
        if (variant_try_make_requested_argument_change(&b, op, a))
            return true;
    return false;
}

bool check_try_make_forbidden_case(const check_op *op, const check_case *accepted, check_case *out)
{
    for (size_t i = 0; i < accepted->ntensors && op->has_element_facts; i++) {
        *out = *accepted;
        check_tensor *t = &out->tensors[i];
        if (!t->present || !check_is_integer_dtype(t->dtype) || t->dtype.code == 6)
            continue;
        t->fill = CHECK_FILL_LAST_EXTREME;
        t->high = ldexp(1, t->dtype.bits > 32 ? 40 : t->dtype.bits - 2);
        out->is_invalid = true;
        if (check_classify_case(op, out) == CHECK_VERDICT_BAD_CONTENTS)
            return true;
    }
    return false;
}

bool check_try_run_forbidden_isolated(check_job *job, const check_case *c, check_case_fn *fn)
{
    static check_case forbidden;
    if (job->result->outcome != CHECK_OUTCOME_PASS || !check_try_make_forbidden_case(job->op, c, &forbidden))
        return false;
    check_set_current_case(job, &forbidden);
    check_try_run_isolated(job, &forbidden, fn);
    if (job->result->outcome == CHECK_OUTCOME_PASS)
        check_set_current_case(job, c);
    return true;
}
