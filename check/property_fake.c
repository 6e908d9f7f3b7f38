/* Property fake: results have the shapes, dtypes and strides that dv_infer() predicts without running a kernel and without
 * reading contents. Compared are a real call, and one on tensors without memory (Meta). */
#include <string.h>

#include "check.h"

/* Formats dtype, shape and strides of a result: "f32[3] with strides (1)". */
static void fake_format_spec(const dv_result_spec *spec, char *text, size_t capacity)
{
    size_t length = (size_t)snprintf(text, capacity, "%s[", dv_dtype_name(spec->dtype));
    for (int32_t i = 0; i < spec->ndim && length < capacity; i++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%lld", i ? ", " : "", (long long)spec->shape[i]);
    length += length < capacity ? (size_t)snprintf(text + length, capacity - length, "] with strides (") : 0;
    for (int32_t i = 0; i < spec->ndim && length < capacity; i++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%lld", i ? ", " : "", (long long)spec->strides[i]);
    if (length < capacity)
        snprintf(text + length, capacity - length, ")");
}

/* Sets *spec to the dtype, shape and strides of a tensor, in the form in which dv_infer() gives predictions. */
static void fake_describe_tensor(const dv_tensor *tensor, dv_result_spec *spec)
{
    spec->dtype = tensor->dtype;
    spec->ndim = tensor->ndim;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        spec->shape[i] = tensor->shape[i];
        spec->strides[i] = tensor->strides[i];
    }
}

/* True if a real result has the rank, dtype, sizes and strides of its prediction; devices are not compared. Sizes that are upper
 * bounds may be smaller. Strides of dims of one element are not compared. */
static bool fake_matches_real_result(const dv_result_spec *predicted, const dv_result_spec *real)
{
    const bool is_upper_bound = predicted->flags & DV_SPEC_UNBACKED;
    bool is_empty = false;
    if (predicted->ndim != real->ndim || dv_dtype_key(predicted->dtype) != dv_dtype_key(real->dtype))
        return false;
    for (int32_t i = 0; i < predicted->ndim; i++) {
        is_empty |= !real->shape[i];
        if (is_upper_bound ? real->shape[i] > predicted->shape[i] : real->shape[i] != predicted->shape[i])
            return false;
    }
    for (int32_t i = 0; i < predicted->ndim && !is_upper_bound && !is_empty; i++)
        if (real->shape[i] != 1 && real->strides[i] != predicted->strides[i])
            return false;
    return true;
}

/* Fails the job if a tensor result of a call differs from the prediction of dv_infer(), or only one of both is absent.
 * message_end: added to the message, as " on the device meta". */
static void fake_check_results(check_job *job, const dv_result_spec *predicted, const dv_value *results, const char *message_end)
{
    char expected[400], found[400];
    static dv_result_spec real;
    for (size_t r = 0; r < job->op->nresults; r++) {
        const bool is_tensor = results[r].type == DV_VALUE_TENSOR && results[r].as.tensor;
        if (job->op->slots[job->op->nargs + r].type != DV_FIELD_TENSOR)
            continue;
        if (is_tensor != (predicted[r].ndim >= 0)) {
            check_fail(job, "presence", "result %zu: the fake function gives %s, and the call gave %s%s", r,
                predicted[r].ndim >= 0 ? "a tensor" : "None", is_tensor ? "a tensor" : "None", message_end);
            continue;
        }
        if (!is_tensor)
            continue;
        fake_describe_tensor(results[r].as.tensor, &real);
        if (fake_matches_real_result(&predicted[r], &real))
            continue;
        fake_format_spec(&predicted[r], expected, sizeof expected);
        fake_format_spec(&real, found, sizeof found);
        check_fail(job, "fake differs", "result %zu: the fake function gives %s, and the call gave %s%s", r, expected, found,
            message_end);
    }
}

/* Checks one case: compares the results of a real call, and of a call on the device meta, with what dv_infer() predicts. */
static void fake_test_case(check_job *job, const check_case *c)
{
    static dv_result_spec predicted[CHECK_MAX_RESULTS];
    static check_values values;
    static check_guarded_call call;
    dv_value results[CHECK_MAX_RESULTS];
    check_values_init_without_data(&values, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(job->op->op, values.values, c->nargs, predicted, job->op->nresults))
        return;
    call = (check_guarded_call){ .op = job->op, .guard_side = CHECK_GUARD_AFTER, .poison_byte = 0xa5 };
    check_guarded_call_run(&call, c);
    if (call.status)
        check_count_refusal(job);
    else
        fake_check_results(job, predicted, call.results, "");
    check_values_init_without_data(&values, c, (dv_device){ DV_META, 0 });
    for (size_t r = 0; r < job->op->nresults; r++)
        results[r] = dv_default();
    if (job->result->outcome == CHECK_OUTCOME_PASS &&
        !dv_call(job->op->op, values.values, c->nargs, results, job->op->nresults, NULL))
        fake_check_results(job, predicted, results, " on the device meta");
}

const check_property check_property_fake = {
    .name = "fake",
    .description = "sizes, dtypes and strides that dv_infer() and the device meta give are those that come",
    .reported_faults = CHECK_FAULT_FAKE_READ,
    .test_case = fake_test_case,
};
