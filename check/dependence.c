/* Dependence of the results on the arguments. An argument is reported as ignored if no result depends on it in many cases; in a
 * single case it may have no influence. Tested are:
 *
 * - arguments with another accepted value: a number, a flag, a string, a list, or None for an optional tensor;
 * - the elements of a tensor: all together, and those after the first where results depend on the first;
 * - the last item of a list, where results depend on the first;
 * - the imaginary part of a complex Scalar that the kernel accepts, where results depend on the real part.
 *
 * Failures are only an optional tensor, a real number, and elements or items after the first. Any other argument may be a hint,
 * and an operator may need only the sizes of a required tensor. Arguments that the contract reads are not tested. For arguments
 * that the contract calls unused, the opposite is tested. */
#include <math.h>
#include <string.h>

#include "check.h"

enum {
    MIN_SAME_CASES = 24,     /* number of cases in which an argument has no influence, after which it is reported */
    MIN_SAME_NUMBERS = 12,   /* number of such cases for the last number of a list */
    MIN_SAME_LONG_LISTS = 4, /* number of such cases for the last tensor of a list of LONG_LIST_LENGTH tensors or more */
    LONG_LIST_LENGTH = 4,
    MIN_LAST_ELEMENTS = 16, /* least number of elements of that tensor; a small one often has no influence on a maximum */
    MIN_DROPPED_PARTS = 4,  /* number of cases without influence of an imaginary part, after which it is reported */
    MAX_COMPLEX_CASES = 24, /* number of cases that get a complex Scalar */
    MAX_ELEMENTS = 1 << 13
};

enum replaced_elements { REPLACE_NONE, REPLACE_ALL, REPLACE_ALL_BUT_FIRST };

/* Calls the kernel with the case's arguments, after replacing elements of one tensor (all, or all but the first), and copies its
 * outputs. Returns false if the call fails or outputs are missing. */
static bool dependence_try_call_and_copy(
    const check_job *job, const check_case *c, enum replaced_elements replaced, size_t replaced_tensor, check_outputs *outputs)
{
    static check_guarded_call call;
    call = (check_guarded_call){
        .op = job->op, .kernel = job->kernel, .poison_byte = 0xa5, .keep_first_element = replaced == REPLACE_ALL_BUT_FIRST
    };
    if (replaced != REPLACE_NONE)
        call.replaced_tensor_plus_1 = 1 + replaced_tensor;
    check_guarded_call_run(&call, c);
    if (call.status)
        return false;
    check_outputs_copy(outputs, job->op, c, call.results, check_get_last_argument_tensors());
    return !outputs->is_incomplete;
}

/* True if a call with replaced elements of one tensor gives other outputs than `expected`, or fails. */
static bool dependence_results_differ(const check_job *job, const check_case *c, enum replaced_elements replaced,
    size_t replaced_tensor, const check_outputs *expected)
{
    static check_outputs other;
    char words[300];
    return !dependence_try_call_and_copy(job, c, replaced, replaced_tensor, &other) ||
        check_outputs_differ(job->op, expected, &other, words, sizeof words);
}

/* True if a case has tensors, and each has from 1 to MAX_ELEMENTS elements. */
static bool dependence_is_small_case(const check_case *c) { return c->ntensors && check_has_small_tensors(c, MAX_ELEMENTS); }

/* True if some tensor has a fill with NaN or infinities, which may hide a dependence. */
static bool dependence_has_special_values(const check_case *c)
{
    bool result = false;
    for (size_t i = 0; i < c->ntensors; i++)
        result |= c->tensors[i].present &&
            (c->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES || c->tensors[i].fill >= CHECK_FILL_LOW_PAYLOAD_NAN);
    return result;
}

/* True for types of arguments that are values: no tensors, no devices and no generators. */
static bool dependence_is_value_type(uint32_t type)
{
    return type != DV_FIELD_TENSOR && type != DV_FIELD_TENSORS && type != DV_FIELD_DEVICE && type != DV_FIELD_GENERATOR;
}

/* Copies a case to `out` with another value of one argument: None for a tensor, else the first different value in another case of
 * the plan, searched from case first_case on. Returns false if no other value is found, or the contract refuses it. */
static bool dependence_try_make_case_with_other_value(
    const check_job *job, const check_case *c, size_t slot, uint32_t first_case, check_case *out)
{
    const check_plan *plan = job->plan;
    *out = *c;
    if (job->op->slots[slot].type == DV_FIELD_TENSOR) {
        out->tensors[c->args[slot].first_tensor].present = false;
        return check_is_accepted(job->op, out);
    }
    for (uint32_t k = 0; plan && k < plan->ncases && dependence_is_value_type(job->op->slots[slot].type); k++) {
        const check_value *v = &plan->cases[(k + first_case) % plan->ncases].args[slot];
        const bool huge = v->type == DV_VALUE_INT && (v->as.i > INT16_MAX || v->as.i < INT16_MIN);
        if (v->type == DV_VALUE_DEFAULT || v->type == DV_VALUE_NONE || huge || !memcmp(v, &c->args[slot], sizeof *v))
            continue;
        out->args[slot] = *v;
        return check_is_accepted(job->op, out);
    }
    return false;
}

/* True if the influence of this argument is tested by another value, or by None for an optional tensor that is given. False: by
 * replaced elements, or not at all. */
static bool dependence_is_tested_by_other_value(const check_op *op, const check_case *c, size_t slot)
{
    const dv_slot_info *s = &op->slots[slot];
    if (s->type == DV_FIELD_TENSOR)
        return s->flags & DV_SLOT_OPTIONAL && c->tensors[c->args[slot].first_tensor].present && !(s->flags & DV_SLOT_WRITES);
    return dependence_is_value_type(s->type) && !op->literals[slot].is_read && c->args[slot].type != DV_VALUE_NONE;
}

/* True if some output has a float dtype. */
static bool dependence_has_real_results(const check_outputs *outputs)
{
    bool real = false;
    for (size_t k = 0; k < outputs->noutputs; k++)
        real |= check_is_float_dtype(outputs->items[k].t.dtype);
    return real;
}

/* Reports an argument that had no influence in MIN_SAME_CASES cases. An optional tensor, or a float of an operator with float
 * results, is a failure. Any other argument is appended to ignored_arguments, since it may be a hint or a threshold. */
static void dependence_report_ignored_argument(check_job *job, size_t slot, const check_outputs *outputs)
{
    const dv_slot_info *s = &job->op->slots[slot];
    const bool optional = s->type == DV_FIELD_TENSOR && s->flags & DV_SLOT_OPTIONAL;
    if (!optional && (s->type != DV_FIELD_FLOAT || !dependence_has_real_results(outputs))) {
        char *const list = job->result->ignored_arguments;
        const size_t n = strlen(list);
        snprintf(list + n, sizeof job->result->ignored_arguments - n, "%s%s", n ? ", " : "", s->name);
        return;
    }
    check_fail(job, "ignored argument",
        "no result depends on argument '%s': in %d cases it is the same with %s; if that is intended, declare unused(%s)",
        s->name, MIN_SAME_CASES, s->type == DV_FIELD_TENSOR ? "None" : "another value", s->name);
}

/* True if the argument is a tensor that the kernel only reads, and its elements can be replaced by other valid ones. */
static bool dependence_can_replace_argument_elements(const check_op *op, const check_case *c, size_t slot)
{
    const check_tensor *t = &c->tensors[c->args[slot].first_tensor];
    return op->slots[slot].type == DV_FIELD_TENSOR && !(op->slots[slot].flags & DV_SLOT_WRITES) && !op->is_sorted[slot] &&
        t->present && check_can_replace_elements(t);
}

void check_unused_arguments(check_job *job, const check_case *c)
{
    static check_outputs found, other;
    static check_case changed;
    char words[300], ignored[300];
    const check_op *op = job->op;
    for (size_t i = 0;
        i < c->nargs && !op->is_nondeterministic && dependence_is_small_case(c) && job->result->outcome == CHECK_OUTCOME_PASS;
        i++)
        for (int elements = 0; elements < 2 && op->is_unused[i] && job->result->outcome == CHECK_OUTCOME_PASS; elements++)
            if ((elements ? dependence_can_replace_argument_elements(op, c, i)
                          : dependence_try_make_case_with_other_value(job, c, i, job->result->tried_cases, &changed)) &&
                dependence_try_call_and_copy(job, c, REPLACE_NONE, 0, &found) &&
                dependence_try_call_and_copy(
                    job, elements ? c : &changed, elements ? REPLACE_ALL : REPLACE_NONE, c->args[i].first_tensor, &other) &&
                check_outputs_differ(op, &found, &other, words, sizeof words) &&
                dependence_try_call_and_copy(job, c, REPLACE_NONE, 0, &other) &&
                !check_outputs_differ(op, &found, &other, ignored, sizeof ignored)) {
                check_fail(job, "unused argument", "the contract says unused(%s), and with another '%s' %s", op->slots[i].name,
                    op->slots[i].name, words);
            }
}

/* True if the outputs change when one number of a list becomes `number`. *is_testable: false if the contract does not accept it;
 * then false is returned. */
static bool dependence_has_number_effect(const check_job *job, const check_case *c, size_t slot, uint32_t index, double number,
    const check_outputs *expected, bool *is_testable)
{
    static check_case changed;
    changed = *c;
    changed.args[slot].floats[index] = number;
    *is_testable = check_is_accepted(job->op, &changed);
    return *is_testable && dependence_results_differ(job, &changed, REPLACE_NONE, 0, expected);
}

/* True if the outputs change when one item of a list, a tensor or a float, changes. *is_testable: false if the contract does not
 * accept another number. */
static bool dependence_has_item_effect(
    const check_job *job, const check_case *c, size_t slot, uint32_t index, const check_outputs *expected, bool *is_testable)
{
    *is_testable = true;
    if (c->args[slot].type == DV_VALUE_TENSORS)
        return dependence_results_differ(job, c, REPLACE_ALL, c->args[slot].first_tensor + index, expected);
    const double x = c->args[slot].floats[index];
    return dependence_has_number_effect(job, c, slot, index, x < 0 || x > 0 ? 1.5 * x : 0.5, expected, is_testable);
}

/* True if an output depends on the last item of a list: a tensor, or a float that is tried larger and smaller, too. */
static bool dependence_has_last_item_effect(check_job *job, const check_case *c, size_t slot)
{
    static const double numbers[] = { 0x1p60, -0x1p60, 0 };
    static check_outputs found;
    const check_value *v = &c->args[slot];
    bool known;
    if (!v->count || !dependence_try_call_and_copy(job, c, REPLACE_NONE, 0, &found))
        return false;
    bool matters = dependence_has_item_effect(job, c, slot, v->count - 1, &found, &known);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers && !matters && v->type == DV_VALUE_FLOATS; k++)
        matters = dependence_has_number_effect(job, c, slot, v->count - 1, numbers[k], &found, &known);
    return matters;
}

/* True if the outputs change without an optional tensor, with other elements of a tensor, or with another value of the argument.
 * *is_testable: false if none of these can be tried. */
static bool dependence_has_argument_effect(
    const check_job *job, const check_case *c, size_t slot, const check_outputs *expected, bool *is_testable)
{
    static check_case changed;
    const bool other_value = dependence_is_tested_by_other_value(job->op, c, slot);
    *is_testable = other_value ? dependence_try_make_case_with_other_value(job, c, slot, job->result->tried_cases, &changed)
                               : dependence_can_replace_argument_elements(job->op, c, slot);
    return *is_testable &&
        dependence_results_differ(
            job, other_value ? &changed : c, other_value ? REPLACE_NONE : REPLACE_ALL, c->args[slot].first_tensor, expected);
}

/* Calls the kernel once unchanged, and returns whether outputs depend on the argument, as a check_predicate. */
static bool dependence_has_argument_effect_alone(check_job *job, const check_case *c, size_t slot)
{
    static check_outputs found;
    bool known;
    return dependence_try_call_and_copy(job, c, REPLACE_NONE, 0, &found) &&
        dependence_has_argument_effect(job, c, slot, &found, &known);
}

/* Counts a case if the last item of a list has no influence and the first has. Reports the list as a failure after
 * MIN_SAME_LONG_LISTS cases of long lists of tensors, MIN_SAME_CASES of other lists of tensors, or MIN_SAME_NUMBERS of floats.
 * Floats count only if the operator has float results, since they may be thresholds otherwise. */
static void dependence_report_last_item_if_ignored(
    check_job *job, const check_case *c, size_t slot, const check_outputs *expected)
{
    static uint32_t same_counts[CHECK_MAX_ARGS][2];
    static bool matters[CHECK_MAX_ARGS][2];
    const check_value *v = &c->args[slot];
    const bool tensors = v->type == DV_VALUE_TENSORS, is_long = tensors && v->count >= LONG_LIST_LENGTH;
    const check_tensor *last = tensors && v->count ? &c->tensors[v->first_tensor + v->count - 1] : NULL;
    const uint32_t enough = is_long ? MIN_SAME_LONG_LISTS : tensors ? MIN_SAME_CASES : MIN_SAME_NUMBERS;
    if (v->count < 2 || (!tensors && (v->type != DV_VALUE_FLOATS || !dependence_has_real_results(expected))) ||
        matters[slot][is_long] || job->op->slots[slot].flags & DV_SLOT_WRITES ||
        (last &&
            (!last->present || !check_can_replace_elements(last) || (is_long && check_tensor_numel(last) < MIN_LAST_ELEMENTS))))
        return;
    bool known, first_known;
    if (dependence_has_item_effect(job, c, slot, v->count - 1, expected, &known))
        matters[slot][is_long] = true;
    else if (known && dependence_has_item_effect(job, c, slot, 0, expected, &first_known) &&
        ++same_counts[slot][is_long] >= enough &&
        !(matters[slot][is_long] = check_holds_for_other_contents(job, c, dependence_has_last_item_effect, slot)))
        check_fail(job, "ignored item",
            "the results depend on the first of the %s in argument '%s' and not on the last, in %u cases; does a loop end too "
            "early?",
            tensors ? "tensors" : "numbers", job->op->slots[slot].name, enough);
}

/* Calls the kernel with a complex number for a Scalar. Returns false if the contract or the kernel refuses it. */
static bool dependence_try_call_with_complex(
    const check_job *job, const check_case *c, size_t slot, double re, double im, check_outputs *outputs)
{
    static check_case changed;
    changed = *c;
    changed.args[slot] = (check_value){ .type = DV_VALUE_COMPLEX, .as.c = { re, im } };
    return check_is_accepted(job->op, &changed) && dependence_try_call_and_copy(job, &changed, REPLACE_NONE, 0, outputs);
}

/* True if a result depends on the imaginary part of a Scalar, or the kernel refuses some complex numbers. */
static bool dependence_result_depends_on_imaginary_part(check_job *job, const check_case *c, size_t slot)
{
    static check_outputs found, other;
    char words[300];
    return dependence_try_call_with_complex(job, c, slot, 0.75, 0.5, &found) &&
        (!dependence_try_call_with_complex(job, c, slot, 0.75, -3, &other) ||
            check_outputs_differ_beyond_rounding(job->op, &found, &other, words, sizeof words));
}

/* Reports a kernel that accepts complex numbers for a Scalar and drops their imaginary part. */
static void dependence_count_dropped_part(check_job *job, const check_case *c, size_t slot)
{
    static uint32_t cases[CHECK_MAX_ARGS], dropped[CHECK_MAX_ARGS];
    static check_outputs found, other;
    char words[300];
    if (job->op->slots[slot].type != DV_FIELD_SCALAR || cases[slot] >= MAX_COMPLEX_CASES)
        return;
    cases[slot]++;
    if (!dependence_try_call_with_complex(job, c, slot, 0.75, 0.5, &found) ||
        !dependence_try_call_with_complex(job, c, slot, -1.5, 0.5, &other) ||
        !check_outputs_differ(job->op, &found, &other, words, sizeof words))
        return;
    if (dependence_result_depends_on_imaginary_part(job, c, slot))
        cases[slot] = MAX_COMPLEX_CASES;
    else if (++dropped[slot] == MIN_DROPPED_PARTS &&
        !check_holds_for_other_cases(job, dependence_result_depends_on_imaginary_part, slot))
        check_fail(job, "dropped imaginary part",
            "the kernel accepts a complex number for the Scalar '%s', and no result depends on its imaginary part; expected an "
            "error for the kind DV_SCALAR_COMPLEX",
            job->op->slots[slot].name);
}

void check_dependence(check_job *job, const check_case *c)
{
    static uint32_t same_counts[CHECK_MAX_ARGS], same_rest_counts[CHECK_MAX_ARGS], first_matters_counts[CHECK_MAX_ARGS];
    static bool has_effect[CHECK_MAX_ARGS], rest_has_effect[CHECK_MAX_ARGS];
    static check_outputs found;
    const bool special = dependence_has_special_values(c);
    if (!job->result->tried_cases || job->op->is_nondeterministic || !dependence_is_small_case(c) ||
        !dependence_try_call_and_copy(job, c, REPLACE_NONE, 0, &found) || !found.used_bytes)
        return;
    for (size_t i = 0; i < c->nargs && job->result->outcome == CHECK_OUTCOME_PASS; i++) {
        const dv_slot_info *s = &job->op->slots[i];
        if (job->op->is_unused[i])
            continue;
        bool known = false;
        if (!has_effect[i] && !(has_effect[i] = dependence_has_argument_effect(job, c, i, &found, &known)) && known && !special &&
            ++same_counts[i] == MIN_SAME_CASES &&
            !(has_effect[i] = check_holds_for_other_cases(job, dependence_has_argument_effect_alone, i)))
            dependence_report_ignored_argument(job, i, &found);
        if (!special && job->result->outcome == CHECK_OUTCOME_PASS)
            dependence_report_last_item_if_ignored(job, c, i, &found);
        if (!special && job->result->outcome == CHECK_OUTCOME_PASS)
            dependence_count_dropped_part(job, c, i);
        const check_tensor *t = s->type == DV_FIELD_TENSOR ? &c->tensors[c->args[i].first_tensor] : NULL;
        if (t && !special && !rest_has_effect[i] && t->present && check_is_float_dtype(t->dtype) && check_tensor_numel(t) > 2 &&
            t->layout != CHECK_LAYOUT_EXPANDED && !(s->flags & DV_SLOT_WRITES) && job->result->outcome == CHECK_OUTCOME_PASS) {
            rest_has_effect[i] = dependence_results_differ(job, c, REPLACE_ALL_BUT_FIRST, c->args[i].first_tensor, &found);
            same_rest_counts[i]++;
            first_matters_counts[i] += !rest_has_effect[i] &&
                dependence_results_differ(job, c, REPLACE_ALL, c->args[i].first_tensor, &found);
            if (!rest_has_effect[i] && same_rest_counts[i] >= MIN_SAME_CASES && first_matters_counts[i] > same_rest_counts[i] / 2)
                check_fail(job, "ignored elements",
                    "no result depends on an element of argument '%s' but the first: in %d cases it is the same with other "
                    "elements; if that is intended, declare unused(%s)",
                    s->name, MIN_SAME_CASES, s->name);
        }
    }
}
