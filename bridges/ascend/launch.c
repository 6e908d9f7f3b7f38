/* The two phases of a call. The first runs at once, in the caller's thread: CANN checks the arguments and makes an executor,
 * which is good for one launch. The second is a task in the framework's order. The task owns everything that the launch needs:
 * the executor, and the descriptors, which CANN's executor points to until it has been launched. Memory of tensors belongs to the
 * framework, which keeps it for work that is on the stream already.
 *
 * A launcher of an AscendC kernel has one phase only, in the framework's order; the task owns the words that it is called with.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

typedef struct task {
    const char *name;                   /* of the function, for messages: "aclnnAddCustom" */
    const dv__aclnn_function *function; /* NULL: a launcher */
    dv__function launcher;
    dv_operator *op; /* a reference: the launcher's name is the operator's */
    void *workspace, *stream;
    uint64_t size;
    size_t nwords;
    struct aclOpExecutor *executor;
    dv__objects objects;
    dv__word words[]; /* of a launcher: the list, l2ctrl and the stream */
} task;

/* The failure of a task that ran after its call had returned: the next call reports it, and it stays for dv__late(). */
static struct {
    pthread_mutex_t lock;
    char text[1024];
    bool told;
} late = { .lock = PTHREAD_MUTEX_INITIALIZER };
static _Thread_local const task *own; /* the task of this thread's call, while it is being enqueued */

static void set_late(const task *t, int32_t status)
{
    pthread_mutex_lock(&late.lock);
    if (!*late.text || late.told)
        snprintf(late.text, sizeof late.text, "%s: %s failed with %d after its call had returned: %s", dv_operator_name(t->op),
            t->name, status, dv__acl_message());
    late.told = false;
    pthread_mutex_unlock(&late.lock);
}

void dv__late(char *out, size_t room)
{
    pthread_mutex_lock(&late.lock);
    snprintf(out, room, "%s", late.text);
    pthread_mutex_unlock(&late.lock);
}

static int take_late(dv_context *ctx)
{
    char text[sizeof late.text];
    pthread_mutex_lock(&late.lock);
    const bool told = late.told || !*late.text;
    memcpy(text, late.text, sizeof text);
    late.told = true;
    pthread_mutex_unlock(&late.lock);
    return !told ? dv_error(ctx, DV_EKERNEL, "an earlier call failed: %s", text) : DV_OK;
}

static void task_free(task *t)
{
    dv__objects_destroy(&t->objects);
    dv_operator_unref(t->op);
    free(t);
}

/* An executor that is not launched: CANN frees only executors that were launched, or were made repeatable. */
static void drop_executor(task *t)
{
    if (t->executor && dv__acl.aclSetAclOpExecutorRepeatable && dv__acl.aclDestroyAclOpExecutor &&
        !dv__acl.aclSetAclOpExecutorRepeatable(t->executor))
        dv__acl.aclDestroyAclOpExecutor(t->executor);
}

/* A launcher returns nothing: what failed in it is the thread's last error. An older one of this thread is not its fault. */
static int32_t run_launcher(const task *t)
{
    if (dv__acl.aclrtGetLastError)
        dv__acl.aclrtGetLastError(DV_ACL_RT_THREAD_LEVEL);
    dv__invoke(t->launcher, t->words, t->nwords);
    return dv__acl.aclrtGetLastError ? dv__acl.aclrtGetLastError(DV_ACL_RT_THREAD_LEVEL) : 0;
}

static int run_task(void *arg)
{
    task *t = arg;
    const int32_t status = t->function ? t->function->launch(t->workspace, t->size, t->executor, t->stream) : run_launcher(t);
    if (status && own == t)
        dv_fail(DV_EKERNEL, "%s failed with %d: %s", t->name, status, dv__acl_message());
    else if (status)
        set_late(t, status);
    if (own == t)
        own = NULL; /* it ran before enqueue() returned */
    task_free(t);
    return status;
}

static int check_stream(const task *t)
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

/* "self: f32[4, 8], other: f32[4, 8]", for a message. */
static void describe(const dv_running *call, char *out, size_t room)
{
    size_t n = 0;
    *out = 0;
    for (size_t i = 0; i < call->list->n; i++) {
        const dv_row_item *a = &call->list->items[i];
        const dv_tensor *t = a->type == DV_FIELD_TENSOR ? call->tensors[a->slot] : NULL;
        if (!t || n + 1 >= room)
            continue;
        n += (size_t)snprintf(out + n, room - n, "%s%s: %s[", n ? ", " : "", a->name, dv_dtype_name(t->dtype));
        for (int32_t k = 0; k < t->ndim && n + 1 < room; k++)
            n += (size_t)snprintf(out + n, room - n, "%s%lld", k ? ", " : "", (long long)t->shape[k]);
        if (n + 1 < room)
            n += (size_t)snprintf(out + n, room - n, "]");
    }
}

static int first_phase(const dv_ascend_framework *f, const dv_running *call, task *t)
{
    dv__word words[DV__MAX_WORDS];
    const size_t n = call->list->n;
    if (!t->function)
        return dv__launcher_arguments(f, call, t->stream, t->words, &t->objects);
    int status = dv__aclnn_arguments(f, call, words, &t->objects);
    if (status)
        return status;
    words[n] = (dv__word){ (uint64_t)(uintptr_t)&t->size, false };
    words[n + 1] = (dv__word){ (uint64_t)(uintptr_t)&t->executor, false };
    const int32_t failed = dv__invoke(t->function->sizes, words, n + 2);
    if (!failed && t->executor)
        return DV_OK;
    char tensors[512];
    describe(call, tensors, sizeof tensors);
    return dv_fail(DV_EKERNEL, "%sGetWorkspaceSize %s%d: %s (%s)", t->name,
        failed ? "failed with " : "made no executor: ", failed, dv__acl_message(), tensors);
}

static int find_stream(const dv_ascend_framework *f, dv_context *ctx, void **out)
{
    *out = ctx->stream;
    return f->size >= offsetof(dv_ascend_framework, stream) + sizeof f->stream && f->stream ? f->stream(f, ctx->device, out)
                                                                                            : DV_OK;
}

static int refuse(task *t, int status)
{
    drop_executor(t);
    task_free(t);
    return status;
}

static int second_phase(const dv_ascend_framework *f, task *t)
{
    int status = DV_OK;
    if (t->size && (status = DV__FRAMEWORK(f, workspace)(f, t->stream, t->size, &t->workspace)))
        return refuse(t, status);
    dv_clear_error();
    own = t;
    status = DV__FRAMEWORK(f, enqueue)(f, t->stream, t->name, run_task, t);
    const bool ran = !own;
    own = NULL;
    if (ran) /* and freed t */
        return *dv_last_error() ? DV_EKERNEL : status;
    return status ? refuse(t, status) : DV_OK;
}

/* After this, t is the framework's or freed. */
static int launch(const dv_ascend_framework *f, dv_context *ctx, const dv_running *call, task *t)
{
    int status = find_stream(f, ctx, &t->stream);
    if (status || (status = check_stream(t)) || (status = first_phase(f, call, t))) {
        task_free(t);
        return status;
    }
    return second_phase(f, t);
}

/* The call of this kernel, unless an earlier one has failed. */
static int begin(dv_context *ctx, const dv_running **out)
{
    const dv_running *call = *out = dv_query(ctx, "dovetail.call");
    if (!call)
        return dv_error(ctx, DV_ENOTSUP, "a row for an NPU cannot be split");
    const int status = take_late(ctx);
    dv_clear_error();
    if (!status && (call->size < sizeof *call || !call->list))
        return dv_error(
            ctx, DV_EABI, "row %s was built with another version of dovetail_ascend.h: build its library again", call->row);
    return status;
}

static int start(dv_context *ctx, const dv_running *call, const dv__aclnn_function *function, dv__function launcher)
{
    const size_t nwords = function ? 0 : call->list->n + 2;
    task *t = calloc(1, sizeof *t + nwords * sizeof *t->words);
    if (!t)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    t->name = call->list->function;
    t->function = function;
    t->launcher = launcher;
    t->nwords = nwords;
    t->op = dv_operator_ref(call->op);
    const int status = launch(dv__framework_of(call->host), ctx, call, t);
    return status ? dv_error(ctx, status, "%s", dv_last_error()) : DV_OK;
}

int dv__aclnn_run(dv_context *ctx)
{
    const dv_running *call;
    const dv__aclnn_function *function;
    int status = begin(ctx, &call);
    if (!status && (status = dv__aclnn_function_of(call->list->function, &function)))
        return dv_error(ctx, status, "%s", dv_last_error());
    return status ? status : start(ctx, call, function, NULL);
}

int dv__launcher_run(dv_context *ctx, dv__function launcher)
{
    const dv_running *call;
    const int status = begin(ctx, &call);
    return status ? status : start(ctx, call, NULL, launcher);
}
