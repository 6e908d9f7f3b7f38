/* The references of a kernel, and their calls (property values). */
#include <float.h>
#include <string.h>

#include "values.h"

const check_kernel check_contiguous_kernel = { .name = "the same kernel on contiguous tensors", .hook_index = 0 };
const check_kernel check_decomposition_kernel = { .name = "the decomposition", .hook_index = -1 },
                   check_decomposition_f64_kernel = { .name = "the decomposition in f64", .hook_index = -2 };

bool check_values_has_reference_kernel(const check_op *op)
{
    bool any = false;
    for (size_t i = 0; i < op->nkernels; i++)
        any |= op->kernels[i].is_reference && op->kernels[i].is_available;
    return any;
}

bool check_values_has_decomposition(const check_op *op)
{
    const check_json *form = check_json_find_member(op->json, "native");
    return form && form->kind == CHECK_JSON_OBJECT;
}

bool check_values_has_view_result(const check_op *op)
{
    bool any = false;
    for (size_t r = 0; r < op->nresults; r++) {
        const dv_slot_info *s = &op->slots[op->nargs + r];
        any |= s->alias >= 0 && !(op->slots[s->alias].flags & DV_SLOT_WRITES);
    }
    return any;
}

size_t check_values_list_references(const check_op *op, const check_kernel *kernel, const check_kernel **references)
{
    size_t n = 0;
    for (size_t i = 0; i < op->nkernels && n < MAX_CANDIDATES - 2; i++)
        if (&op->kernels[i] != kernel && op->kernels[i].is_reference && op->kernels[i].is_available)
            references[n++] = &op->kernels[i];
    if (check_values_has_decomposition(op) && (kernel->hook_index >= 0 || check_values_has_view_result(op)))
        references[n++] = &check_decomposition_f64_kernel;
    /* the result of the decomposition would be the same view, so a comparison would show nothing */
    if (check_values_has_decomposition(op) && kernel->hook_index >= 0 && !check_values_has_view_result(op))
        references[n++] = &check_decomposition_kernel;
    const bool others = !n && kernel->hook_index >= 0 && !kernel->is_reference;
    for (size_t i = op->nkernels; i-- > 0 && others && n < MAX_CANDIDATES;)
        if (&op->kernels[i] != kernel && op->kernels[i].is_available && op->kernels[i].hook_index >= 0)
            references[n++] = &op->kernels[i];
    return n;
}

const check_case *check_values_get_contiguous_copy(const check_case *c)
{
    static check_case out;
    out = *c;
    for (size_t i = 0; i < out.ntensors; i++)
        out.tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
    return &out;
}

size_t check_values_call_references(check_job *job, const check_case *c, value_outputs *reference_outputs, comparison *m)
{
    static check_guarded_call call;
    const check_kernel *kernels[MAX_CANDIDATES];
    const size_t n = check_values_list_references(job->op, job->kernel, kernels);
    m->n = 0;
    for (size_t o = 0; o < n; o++)
        if (kernels[o]->hook_index > 0 && m->n)
            continue;
        else if (check_values_try_call_kernel(job, kernels[o], c, &reference_outputs[m->n], &call)) {
            m->reference_kernels[m->n] = kernels[o];
            m->references[m->n] = &reference_outputs[m->n];
            m->n++;
        } else if ((kernels[o] == &check_decomposition_kernel || kernels[o]->is_reference) && !call.kernel_declined &&
            call.status != DV_ENOMEM) {
            check_fail(job, kernels[o] == &check_decomposition_kernel ? "decomposition fails" : "reference fails",
                "this kernel computes what %s refuses: %s",
                kernels[o] == &check_decomposition_kernel ? "the decomposition" : "the reference kernel", dv_last_error());
        } else if (!call.kernel_declined) {
            snprintf(job->result->last_refusal, sizeof job->result->last_refusal, "%s: %s", kernels[o]->name, dv_last_error());
        }
    return m->n;
}

bool check_values_differ_beyond_noise(check_job *job, comparison *m, value_difference *difference)
{
    const check_case *c = m->reference_case;
    static check_guarded_call call;
    static check_case in_f32;
    static value_outputs perturbed_outputs, unperturbed_outputs;
    const check_kernel *reference = m->reference_kernels[0] == &check_contiguous_kernel ? job->kernel : m->reference_kernels[0];
    bool wide_inputs = true, expanded = false;
    if (!check_values_outputs_differ(m, difference))
        return false;
    if (strcmp(difference->kind, "other value"))
        return true;
    /* elements of an expanded tensor share memory, so they would be perturbed together */
    for (size_t i = 0; i < c->ntensors; i++)
        expanded |= c->tensors[i].present && c->tensors[i].layout == CHECK_LAYOUT_EXPANDED;
    for (size_t i = 0; i < c->ntensors; i++)
        wide_inputs &= !check_is_float_dtype(c->tensors[i].dtype) || check_get_max_finite(c->tensors[i].dtype) > FLT_MAX;
    const check_case *const perturbed_case = expanded ? check_values_get_contiguous_copy(c) : c;
    const double perturbation = wide_inputs ? 0x1p-51 : 0x1p-22;
    if (check_try_widen_16_bit_floats(job->op, perturbed_case, &in_f32) &&
        check_values_try_call_with_contents(job, reference, &in_f32, m->c, CHECK_GUARD_AFTER, 0, &unperturbed_outputs, &call) &&
        check_values_try_call_with_contents(job, reference, &in_f32, m->c, CHECK_GUARD_AFTER, perturbation, &perturbed_outputs,
            &call)) { /* 16-bit floats are converted to f32 first: rounding to 16 bits would undo so small a change */
        m->perturbed_reference = &perturbed_outputs;
        m->unperturbed_reference = &unperturbed_outputs;
    } else if (check_values_try_call_with_contents(
                   job, reference, perturbed_case, m->c, CHECK_GUARD_AFTER, perturbation, &perturbed_outputs, &call)) {
        m->perturbed_reference = &perturbed_outputs;
        m->unperturbed_reference = m->references[0];
    }
    return check_values_outputs_differ(m, difference);
}
