/* Property values: a kernel computes what the reference kernel and the decomposition compute, in every layout, and leaves the
 * process state (signal mask, locale, floating-point environment) unchanged.
 *
 * The references of a case are the reference kernel, the decomposition, and the decomposition in f64 with one rounding at the
 * end. An element is checked where the references agree whether it is finite, which infinity, or NaN; for integers, where they
 * agree on the number. It must be within the tolerance of tolerance.c, widened by the distance between the references. Numbers
 * whose squares overflow may overflow or not. Errors of a narrow dtype must not all have one sign, however small they are.
 * Without a reference a kernel is compared with another kernel. A single kernel is compared with itself on contiguous tensors of
 * the same elements, which checks layouts only. */

#include "process_state.h"
#include "values.h"

/* largest tensor of a case that is compared with references: decompositions are slow. Larger cases only compare layouts */
enum { MAX_ELEMENTS = 1 << 17 };

/* Returns a copy of a case with NaNs of CHECK_FILL_LOW_PAYLOAD_NAN in place of other special values, and makes it the job's
 * current case. Returns c itself unless squares of its numbers overflow, and for every second such case. */
static const check_case *values_select_case_with_low_payload_nan(check_job *job, const check_case *c)
{
    static check_case out;
    const comparison m = check_values_make_comparison(job, c, NULL);
    if (!m.has_overflow || c->seed / 2 % 2)
        return c;
    out = *c;
    for (size_t i = 0; i < out.ntensors; i++)
        if (out.tensors[i].fill == CHECK_FILL_SPECIAL_VALUES)
            out.tensors[i].fill = CHECK_FILL_LOW_PAYLOAD_NAN;
    check_set_current_case(job, &out);
    return &out;
}

/* True if all tensors of a case are contiguous. */
static bool values_has_contiguous_layouts(const check_case *c)
{
    bool is_contiguous = true;
    for (size_t i = 0; i < c->ntensors; i++)
        is_contiguous &= !c->tensors[i].present || !c->tensors[i].layout;
    return is_contiguous;
}

/* Fails the job with a difference. is_layout_fault: the kernel is right for contiguous tensors, so the layout is reported as the
 * cause. */
static void values_report_difference(check_job *job, const value_difference *difference, bool is_layout_fault)
{
    check_fail(job, is_layout_fault ? "layout" : difference->kind, "%s%s", difference->message,
        is_layout_fault ? "; with contiguous tensors the kernel is right: it depends on the layout" : "");
}

/* True if the kernel, called with the same elements in contiguous tensors, agrees with the references of `m`. False, too, if this
 * call fails. */
static bool values_is_right_when_contiguous(check_job *job, const check_case *c, const comparison *m)
{
    static check_guarded_call call;
    static value_outputs contiguous_outputs;
    value_difference d;
    comparison other = *m;
    other.found = &contiguous_outputs;
    return check_values_try_call_with_contents(
               job, job->kernel, check_values_get_contiguous_copy(c), c, CHECK_GUARD_AFTER, 0, &contiguous_outputs, &call) &&
        !check_values_outputs_differ(&other, &d);
}

/* Fails the job if the kernel's outputs `found` differ from its outputs for contiguous tensors of the same elements. Does nothing
 * for a nondeterministic operator, or if all tensors are contiguous already. other: memory for the outputs of further calls. */
static void values_check_layouts(check_job *job, const check_case *c, const value_outputs *found, value_outputs *other_outputs)
{
    static check_guarded_call call;
    value_difference difference;
    if (job->op->is_nondeterministic || values_has_contiguous_layouts(c) ||
        !check_values_try_call_with_contents(
            job, job->kernel, check_values_get_contiguous_copy(c), c, CHECK_GUARD_AFTER, 0, other_outputs, &call))
        return;
    comparison m = check_values_make_comparison(job, c, found);
    m.reference_case = check_values_get_contiguous_copy(c);
    m.references[0] = other_outputs;
    m.reference_kernels[0] = &check_contiguous_kernel;
    m.n = 1;
    if (!check_values_differ_beyond_noise(job, &m, &difference))
        return;
    value_difference differs_elsewhere;
    /* if the same call at other addresses differs, too, the layout is not the cause */
    if (check_values_try_call_with_contents(job, job->kernel, c, c, CHECK_GUARD_BEFORE, 0, other_outputs, &call) &&
        !check_values_outputs_differ(&m, &differs_elsewhere))
        values_report_difference(job, &difference, true);
}

static uint32_t compared_cases; /* number of this child's cases in which elements were compared with a reference */

/* Fails the job if a bool element is a byte other than 0 and 1, since hosts add booleans or compare them with 1. Returns true if
 * such a byte was reported. */
static bool values_try_report_invalid_boolean(check_job *job, const value_outputs *found)
{
    for (size_t k = 0; k < found->n; k++) {
        const value_output *t = &found->t[k];
        for (int64_t i = 0; i < t->n && t->dtype.code == 6 && t->dtype.bits == 8; i++)
            if (check_values_get_bytes(found, k)[i] > 1) {
                char index[200];
                check_format_element_index(t->ndim, t->shape, i, index, sizeof index);
                check_fail(job, "no boolean", "element [%s] of %s (bool) is the byte %d: true is 1, and no other byte", index,
                    t->name, check_values_get_bytes(found, k)[i]);
                return true;
            }
    }
    return false;
}

/* Checks one case: calls the kernel, and compares the process state before and after, and the outputs with references or with
 * contiguous layouts. Without a reference it also runs the checks of dependence.c, wider_dtypes.c and size_independence.c. */
static void values_check_one_case(check_job *job, const check_case *input_case)
{
    static check_guarded_call call;
    static value_outputs found, reference_outputs[MAX_REFERENCES];
    value_difference difference;
    check_process_state before, after;
    const bool is_large = check_case_max_numel(input_case) > MAX_ELEMENTS;
    if (is_large && values_has_contiguous_layouts(input_case)) {
        job->result->tried_cases--;
        if (job->repeat && job->repeat->repeats_one_case) {
            check_report_unchecked(job,
                "values checks tensors of more than %d elements only in layouts that are not contiguous: give the case smaller "
                "tensors",
                MAX_ELEMENTS);
            job->result->nothing_checked = true;
        }
        return;
    }
    const check_case *c = values_select_case_with_low_payload_nan(job, input_case);
    check_process_state_read(&before);
    const bool is_accepted = check_values_try_call_kernel(job, job->kernel, c, &found, &call);
    check_process_state_read(&after);
    if (call.kernel_declined) {
        job->result->tried_cases--;
        return;
    }
    if (!check_process_state_try_verify(job, &before, &after))
        return;
    if (!is_accepted) {
        check_count_refusal(job);
        return;
    }
    comparison m = check_values_make_comparison(job, c, &found);
    const bool no_reference = !check_values_has_reference_kernel(job->op) && !check_values_has_decomposition(job->op);
    if (job->kernel->hook_index > 0 && no_reference && found.size)
        check_unread_arguments(job, c);
    if (job->op->is_nondeterministic || found.size > 8 * (size_t)(is_large ? CHECK_DEFAULT_MAX_ELEMENTS : MAX_ELEMENTS))
        return;
    if (is_large) {
        values_check_layouts(job, c, &found, &reference_outputs[0]);
        return;
    }
    if (!check_values_call_references(job, c, reference_outputs, &m))
        values_check_layouts(job, c, &found, &reference_outputs[0]);
    else if (check_values_differ_beyond_noise(job, &m, &difference))
        values_report_difference(
            job, &difference, !values_has_contiguous_layouts(c) && values_is_right_when_contiguous(job, c, &m));
    else
        check_values_bias(job, &m), check_values_measure_accuracy(&m);
    if (job->result->outcome == CHECK_OUTCOME_PASS && !values_try_report_invalid_boolean(job, &found) &&
        job->kernel->hook_index >= 0)
        check_overlapping_arguments(job, c);
    if (job->result->outcome == CHECK_OUTCOME_PASS && job->kernel->hook_index > 0)
        check_unused_arguments(job, c);
    if (job->kernel->hook_index > 0 && no_reference) {
        if (job->result->outcome == CHECK_OUTCOME_PASS)
            check_dependence(job, c);
        if (job->result->outcome == CHECK_OUTCOME_PASS)
            check_wider_dtypes(job, c);
        if (job->result->outcome == CHECK_OUTCOME_PASS)
            check_size_independence(job, c);
    }
    compared_cases += m.n && found.size;
    if (m.n && no_reference)
        check_set_omitted(job, "a reference: values were compared among kernels only");
}

/* Checks a case, and if it passes, a copy with one NaN or infinity. While a failing case is being shrunk, there is no copy. */
static void values_test_case(check_job *job, const check_case *input_case)
{
    static check_case lone_special_case;
    const uint32_t ncases = job->result->tried_cases; /* number of cases tried so far; 0 while a failing case is being shrunk */
    values_check_one_case(job, input_case);
    const uint32_t nrefused = job->result->refused_cases;
    if (!ncases || job->result->outcome != CHECK_OUTCOME_PASS || job->result->tried_cases != ncases ||
        !check_try_make_lone_special_case(job->op, input_case, &lone_special_case))
        return;
    check_set_current_case(job, &lone_special_case);
    values_check_one_case(job, &lone_special_case);
    job->result->refused_cases = nrefused;
}

/* Returns why no element of this kernel was compared with a reference. NULL: elements were compared. */
static const char *values_find_incomplete_reason(const check_op *op, const check_kernel *kernel)
{
    const check_kernel *kernels[MAX_CANDIDATES];
    if (op->is_nondeterministic)
        return "it is nondeterministic";
    if (!check_values_list_references(op, kernel, kernels))
        return kernel->is_reference
            ? "it is the reference, and there is no decomposition to compare it with (only layouts were compared)"
            : "there is nothing to compare with: no reference kernel and no decomposition (only layouts were "
              "compared)";
    return compared_cases
        ? NULL
        : "no case had a result with an element and another kernel, or a decomposition, that takes the same arguments";
}

/* Returns why the property does not apply to a kernel: the decomposition is what kernels are compared with. NULL: the property
 * applies. */
static const char *values_find_inapplicable_reason(const check_op *op, const check_kernel *kernel)
{
    return kernel->hook_index < 0 && !check_values_has_view_result(op) ? "the decomposition is what kernels are compared with"
                                                                       : NULL;
}

const check_property check_property_values = {
    .name = "values",
    .description = "each kernel gives what the reference kernel and the decomposition give, within tolerance, in every layout",
    .per_kernel = true,
    .find_inapplicable_reason = values_find_inapplicable_reason,
    .test_case = values_test_case,
    .find_incomplete_reason = values_find_incomplete_reason,
    .is_unchecked_if_kernel_unsound = true,
};
