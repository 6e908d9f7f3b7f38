/* fake: the results are as dv_infer() predicts them, without running anything and without reading a tensor's contents. Under a
 * real call, and on tensors without memory (Meta). */
#include <string.h>

#include "check.h"

static void describe(const dv_result_spec *s, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s[", dv_dtype_name(s->dtype));
    for (int32_t i = 0; i < s->ndim && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? ", " : "", (long long)s->shape[i]);
    n += n < size ? (size_t)snprintf(out + n, size - n, "] with strides (") : 0;
    for (int32_t i = 0; i < s->ndim && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? ", " : "", (long long)s->strides[i]);
    if (n < size)
        snprintf(out + n, size - n, ")");
}

static void spec_of(const dv_tensor *t, dv_result_spec *s)
{
    s->dtype = t->dtype;
    s->ndim = t->ndim;
    for (int32_t i = 0; i < t->ndim; i++) {
        s->shape[i] = t->shape[i];
        s->strides[i] = t->strides[i];
    }
}

/* Sizes that are upper bounds may turn out smaller; strides of dims of one element mean nothing. */
static bool agrees(const dv_result_spec *fake, const dv_result_spec *real)
{
    const bool bound = fake->flags & DV_SPEC_UNBACKED;
    bool empty = false;
    if (fake->ndim != real->ndim || dv_dtype_key(fake->dtype) != dv_dtype_key(real->dtype))
        return false;
    for (int32_t i = 0; i < fake->ndim; i++) {
        empty |= !real->shape[i];
        if (bound ? real->shape[i] > fake->shape[i] : real->shape[i] != fake->shape[i])
            return false;
    }
    for (int32_t i = 0; i < fake->ndim && !bound && !empty; i++)
        if (real->shape[i] != 1 && real->strides[i] != fake->strides[i])
            return false;
    return true;
}

static void compare(check_job *job, const dv_result_spec *fakes, const dv_value *results, const char *where)
{
    char promised[400], found[400];
    static dv_result_spec real;
    for (size_t r = 0; r < job->op->nresults; r++) {
        const bool tensor = results[r].type == DV_VALUE_TENSOR && results[r].as.tensor;
        if (job->op->slots[job->op->nargs + r].type != DV_FIELD_TENSOR)
            continue;
        if (tensor != (fakes[r].ndim >= 0)) {
            check_fail(job, "presence", "result %zu: the fake says %s, and %s came%s", r,
                fakes[r].ndim >= 0 ? "a tensor" : "None", tensor ? "a tensor" : "None", where);
            continue;
        }
        if (!tensor)
            continue;
        spec_of(results[r].as.tensor, &real);
        if (agrees(&fakes[r], &real))
            continue;
        describe(&fakes[r], promised, sizeof promised);
        describe(&real, found, sizeof found);
        check_fail(job, "fake differs", "result %zu: the fake says %s, and %s came%s", r, promised, found, where);
    }
}

static void attempt(check_job *job, const check_case *c)
{
    static dv_result_spec fakes[CHECK_RESULTS];
    static check_values v;
    static check_call call;
    dv_value results[CHECK_RESULTS];
    job->how.show = CHECK_SHOW_FAKE;
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(job->op->op, v.values, c->nargs, fakes, job->op->nresults))
        return;
    call = (check_call){ .op = job->op, .end = CHECK_AT_END, .poison = 0xa5 };
    check_call_run(&call, c);
    if (call.status)
        check_refused(job);
    else
        compare(job, fakes, call.results, "");
    check_values_make(&v, c, (dv_device){ DV_META, 0 });
    for (size_t r = 0; r < job->op->nresults; r++)
        results[r] = dv_default();
    if (job->result->outcome == CHECK_PASS && !dv_call(job->op->op, v.values, c->nargs, results, job->op->nresults, NULL))
        compare(job, fakes, results, " on the device meta");
}

const check_property check_property_fake = {
    .name = "fake",
    .promise = "sizes, dtypes and strides that dv_infer() and the device meta give are those that come",
    .faults = CHECK_FAULT_LOOK,
    .attempt = attempt,
};
