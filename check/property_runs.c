/* runs: what the contract accepts runs to its end. A kernel may refuse a case with a message (what is inside tensors is the
 * kernel's to check); it may not crash, end the process or loop, fail without a message, or because it does
 * not do what its declaration says about its results. */
#include <string.h>

#include "check.h"

static void attempt(check_job *job, const check_case *c)
{
    static check_call call;
    call = (check_call){ .op = job->op, .row = job->row, .end = CHECK_AT_END, .poison = 0xa5 };
    check_call_run(&call, c);
    if (call.not_this_row) {
        job->result->cases--;
        return;
    }
    if (!call.status)
        return;
    check_refused(job);
    job->how.show = CHECK_SHOW_ACCEPT;
    if (call.kernel_ran && (strstr(dv_last_error(), "dv_set_output") || strstr(dv_last_error(), "dv_alloc: the alignment")))
        check_fail(job, "against its declaration", "the kernel does not keep to what it declares: %s", dv_last_error());
    else if (call.kernel_ran && strstr(dv_last_error(), "and no message"))
        check_fail(job, "no message", "the kernel fails without a message: %s", dv_last_error());
    else if (call.kernel_ran && strstr(dv_last_error(), "which is not a status"))
        check_fail(job, "no status", "%s", dv_last_error());
}

const check_property check_property_runs = {
    .name = "runs",
    .promise = "what the contract accepts runs to its end: no crash, no endless loop, no error without a message",
    .each_row = true,
    .faults = CHECK_FAULT_CRASH | CHECK_FAULT_TIME,
    .attempt = attempt,
};
