/* The two phases of a call. The first phase runs at once, in the caller's thread: CANN checks the arguments and makes an
 * executor, which can be launched once. The second phase is a task that the framework runs in its own order. The task owns
 * everything that the launch needs: the executor, and the descriptors of tensors, which the executor points to until it has been
 * launched. The memory of tensors belongs to the framework, which keeps it for work that is already on the stream.
 *
 * A launcher of an AscendC kernel has one phase only, which is such a task; the task owns the words that the launcher is called
 * with.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

typedef struct launch_task {
    const char *name;                   /* the function's name for messages, such as "aclnnAddCustom"; owned by `op` */
    const dv__aclnn_function *function; /* NULL: a launcher */
    dv__any_function launcher;
    dv_operator *op; /* an owned reference, which keeps `name` alive */
    void *workspace, *stream;
    uint64_t size;
    size_t nwords;
    struct aclOpExecutor *executor;
    dv__acl_objects objects;
    dv__argument_word words[]; /* a launcher's arguments: those of the list, l2ctrl and the stream; none for an aclnn function */
} launch_task;

/* The failure of a task that ran after its call had returned. The next call reports the failure; its text stays for
 * dv__print_late_failure(). */
static struct {
    pthread_mutex_t lock;
    char text[1024];
    bool reported;
} late_failure = { .lock = PTHREAD_MUTEX_INITIALIZER };
static _Thread_local const launch_task
    *enqueued_task; /* the task of this thread's call while enqueue() runs, until the task has run; else NULL */

/* Stores the failure of a task whose call has returned, unless one that no call has reported yet is stored. */
static void task_set_late_failure(const launch_task *t, int32_t status)
{
    pthread_mutex_lock(&late_failure.lock);
    if (!*late_failure.text || late_failure.reported)
        snprintf(late_failure.text, sizeof late_failure.text, "%s: %s failed with %d after its call had returned: %s",
            dv_operator_name(t->op), t->name, status, dv__acl_get_last_message());
    late_failure.reported = false;
    pthread_mutex_unlock(&late_failure.lock);
}

void dv__print_late_failure(char *message_out, size_t capacity)
{
    pthread_mutex_lock(&late_failure.lock);
    snprintf(message_out, capacity, "%s", late_failure.text);
    pthread_mutex_unlock(&late_failure.lock);
}

/* Returns DV_EKERNEL with a message if a task failed after its call had returned, and no call has reported that yet; else DV_OK.
 */
static int task_fail_for_late_failure(dv_context *ctx)
{
    char text[sizeof late_failure.text];
    pthread_mutex_lock(&late_failure.lock);
    const bool told = late_failure.reported || !*late_failure.text;
    memcpy(text, late_failure.text, sizeof text);
    late_failure.reported = true;
    pthread_mutex_unlock(&late_failure.lock);
    return !told ? dv_error(ctx, DV_EKERNEL, "an earlier call failed: %s", text) : DV_OK;
}

static void task_free(launch_task *t)
{
    dv__acl_objects_destroy(&t->objects);
    dv_operator_unref(t->op);
    free(t);
}

/* Destroys the executor of a task that is not launched. CANN itself frees only executors that were launched. */
static void task_destroy_executor(launch_task *t)
{
    if (t->executor && dv__acl.aclSetAclOpExecutorRepeatable && dv__acl.aclDestroyAclOpExecutor &&
        !dv__acl.aclSetAclOpExecutorRepeatable(t->executor))
        dv__acl.aclDestroyAclOpExecutor(t->executor);
}

/* Calls a launcher, and returns the error that CANN has recorded for this thread since, or 0: a launcher returns nothing. */
static int32_t task_run_launcher(const launch_task *t)
{
    if (dv__acl.aclrtGetLastError)
        dv__acl.aclrtGetLastError(DV_ACL_RT_THREAD_LEVEL);
    dv__invoke_function(t->launcher, t->words, t->nwords);
    return dv__acl.aclrtGetLastError ? dv__acl.aclrtGetLastError(DV_ACL_RT_THREAD_LEVEL) : 0;
}

/* The function that the framework calls for a task: runs the second phase or the launcher, and frees the task. Returns 0, or
 * CANN's error number. A failure sets this thread's error if its call still waits, else the late failure. */
static int task_run(void *arg)
{
    launch_task *t = arg;
    const int32_t status = t->function ? t->function->launch(t->workspace, t->size, t->executor, t->stream)
                                       : task_run_launcher(t);
    if (status && enqueued_task == t)
        dv_fail(DV_EKERNEL, "%s failed with %d: %s", t->name, status, dv__acl_get_last_message());
    else if (status)
        task_set_late_failure(t, status);
    if (enqueued_task == t)
        enqueued_task = NULL; /* the task ran before enqueue() returned */
    task_free(t);
    return status;
}

/* Returns DV_ENOTSUP if a graph is being captured on the task's stream, else DV_OK. */
static int task_check_not_captured(const launch_task *t)
{
    int32_t status = DV_ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    void *model = NULL;
    if (!dv__acl.aclmdlRICaptureGetInfo || dv__acl.aclmdlRICaptureGetInfo(t->stream, &status, &model) ||
        status == DV_ACL_MODEL_RI_CAPTURE_STATUS_NONE)
        return DV_OK;
    return dv_fail(DV_ENOTSUP,
        "a graph is being captured on this stream, and %s would put the addresses of this call into it: call the operator "
        "outside "
        "of the capture",
        t->name);
}

/* Writes the tensors among the arguments to out, for a message: "self: f32[4, 8], other: f32[4, 8]". */
static void launch_describe_tensors(const dv_running_call *call, char *out, size_t capacity)
{
    size_t n = 0;
    *out = 0;
    for (size_t i = 0; i < call->list->n; i++) {
        const dv_foreign_arg *a = &call->list->items[i];
        const dv_tensor *t = a->type == DV_FIELD_TENSOR ? call->tensors[a->slot] : NULL;
        if (!t || n + 1 >= capacity)
            continue;
        n += (size_t)snprintf(out + n, capacity - n, "%s%s: %s[", n ? ", " : "", a->name, dv_dtype_name(t->dtype));
        for (int32_t k = 0; k < t->ndim && n + 1 < capacity; k++)
            n += (size_t)snprintf(out + n, capacity - n, "%s%lld", k ? ", " : "", (long long)t->shape[k]);
        if (n + 1 < capacity)
            n += (size_t)snprintf(out + n, capacity - n, "]");
    }
}

/* Fills a launcher's words, or calls the first phase of an aclnn function, which sets t->size and t->executor. Returns a status.
 */
static int task_fill_arguments(const dv_ascend_framework *f, const dv_running_call *call, launch_task *t)
{
    dv__argument_word words[DV__MAX_ARGUMENT_WORDS];
    const size_t n = call->list->n;
    if (!t->function)
        return dv__launcher_fill_arguments(f, call, t->stream, t->words, &t->objects);
    int status = dv__aclnn_fill_arguments(f, call, words, &t->objects);
    if (status)
        return status;
    words[n] = (dv__argument_word){ (uint64_t)(uintptr_t)&t->size, false };
    words[n + 1] = (dv__argument_word){ (uint64_t)(uintptr_t)&t->executor, false };
    const int32_t failed = dv__invoke_function(t->function->get_workspace_size, words, n + 2);
    if (!failed && t->executor)
        return DV_OK;
    char tensors[512];
    launch_describe_tensors(call, tensors, sizeof tensors);
    return dv_fail(DV_EKERNEL, "%sGetWorkspaceSize %s%d: %s (%s)", t->name,
        failed ? "failed with " : "made no executor: ", failed, dv__acl_get_last_message(), tensors);
}

/* Finds the stream for a kernel: the framework's, or the one of the call's host. Returns a status. */
static int launch_find_stream(const dv_ascend_framework *f, dv_context *ctx, void **stream_out)
{
    *stream_out = ctx->stream;
    return f->size >= offsetof(dv_ascend_framework, stream) + sizeof f->stream && f->stream
        ? f->stream(f, ctx->device, stream_out)
        : DV_OK;
}

/* Frees a task that will not run, with its executor. Returns status. */
static int task_free_unlaunched(launch_task *t, int status)
{
    task_destroy_executor(t);
    task_free(t);
    return status;
}

/* Gets the workspace and gives the task to the framework. Takes t. Returns a status, also of a task that has failed already. */
static int task_enqueue(const dv_ascend_framework *f, launch_task *t)
{
    int status = DV_OK;
    if (t->size && (status = DV__FRAMEWORK_ENTRY(f, workspace)(f, t->stream, t->size, &t->workspace)))
        return task_free_unlaunched(t, status);
    dv_clear_error();
    enqueued_task = t;
    status = DV__FRAMEWORK_ENTRY(f, enqueue)(f, t->stream, t->name, task_run, t);
    const bool ran = !enqueued_task;
    enqueued_task = NULL;
    if (ran) /* the task has freed t */
        return *dv_last_error() ? DV_EKERNEL : status;
    return status ? task_free_unlaunched(t, status) : DV_OK;
}

/* Prepares a task and gives it to the framework. Takes t: the framework owns it afterwards, or it is freed. Returns a status. */
static int task_launch(const dv_ascend_framework *f, dv_context *ctx, const dv_running_call *call, launch_task *t)
{
    int status = launch_find_stream(f, ctx, &t->stream);
    if (status || (status = task_check_not_captured(t)) || (status = task_fill_arguments(f, call, t))) {
        task_free(t);
        return status;
    }
    return task_enqueue(f, t);
}

/* Finds the call that runs this kernel. Fails if an earlier task has failed since its call returned, or if the binary was built
 * for another version. Returns a status. */
static int launch_check_and_find_call(dv_context *ctx, const dv_running_call **call_out)
{
    const dv_running_call *call = *call_out = dv_query(ctx, "dovetail.call");
    if (!call)
        return dv_error(ctx, DV_ENOTSUP, "a kernel for an NPU cannot be split");
    const int status = task_fail_for_late_failure(ctx);
    dv_clear_error();
    if (!status && (call->size < sizeof *call || !call->list))
        return dv_error(ctx, DV_EABI, "kernel %s was built with another version of dovetail_ascend.h: build its library again",
            call->kernel_name);
    return status;
}

/* Makes the task of a call and gives it to the framework. Either `function` or `launcher` is set. Returns a status. */
static int launch_run_task(
    dv_context *ctx, const dv_running_call *call, const dv__aclnn_function *function, dv__any_function launcher)
{
    const size_t nwords = function ? 0 : call->list->n + 2;
    launch_task *t = calloc(1, sizeof *t + nwords * sizeof *t->words);
    if (!t)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    t->name = call->list->function;
    t->function = function;
    t->launcher = launcher;
    t->nwords = nwords;
    t->op = dv_operator_ref(call->op);
    const int status = task_launch(dv__find_framework_of_host(call->host), ctx, call, t);
    return status ? dv_error(ctx, status, "%s", dv_last_error()) : DV_OK;
}

int dv__aclnn_run_kernel(dv_context *ctx)
{
    const dv_running_call *call;
    const dv__aclnn_function *function;
    int status = launch_check_and_find_call(ctx, &call);
    if (!status && (status = dv__aclnn_find_function(call->list->function, &function)))
        return dv_error(ctx, status, "%s", dv_last_error());
    return status ? status : launch_run_task(ctx, call, function, NULL);
}

int dv__launcher_run_kernel(dv_context *ctx, dv__any_function launcher)
{
    const dv_running_call *call;
    const int status = launch_check_and_find_call(ctx, &call);
    return status ? status : launch_run_task(ctx, call, NULL, launcher);
}
