/* torch_npu as the framework: its current stream, its workspace allocator, its task queue, its tensors' formats. torch_npu has
 * C++ functions for these (torch_npu.def), the ones that its own EXEC_NPU_CMD calls; here they are called from C, with
 * libstdc++'s layouts of a std::string and a std::function. These functions may throw, so they run inside torch_parallel_for(), a
 * function of libtorch's C interface that turns an exception into a status.
 *
 * The order is that of EXEC_NPU_CMD with TASK_QUEUE_ENABLE=1: the first phase at once, then the workspace, then a task for the
 * second phase. torch_npu returns the workspace to its allocator at once; only later work of the same stream can get this memory.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../torch/call.h"
#include "ascend.h"

struct std_string { /* layout of a std::string of libstdc++ since GCC 5; the callee only reads the string */
    const char *data;
    size_t size, capacity, unused;
};

/* std::function<int()>: the held object, then the function that copies and destroys the object, then the function that calls it.
 */
typedef struct std_function {
    void *storage[2];
    bool (*manage)(struct std_function *to, const struct std_function *from, int what);
    int (*call)(const struct std_function *f);
} std_function;
enum { MANAGE_GET_TYPE, MANAGE_GET_POINTER, MANAGE_COPY, MANAGE_DESTROY };

static struct {
#define NPU(result, name, symbol, parameters) result(*name) parameters;
#include "torch_npu.def"
#undef NPU
    int32_t (*guarded)(int64_t begin, int64_t end, int64_t grain, void (*fn)(int64_t begin, int64_t end, void *arg), void *arg);
    const char *(*what)(void);
} npu;

/* ---- The task, shared by the copies of a std::function ---- */

typedef struct shared_task {
    atomic_int copies;
    atomic_bool ran;
    int (*task)(void *arg);
    void *arg;
} shared_task;

/* The manager of a std::function that holds a shared_task: copies it, destroys it or gives its address, by the MANAGE_ number
 * `action`. Always returns false. */
static bool std_function_manage(struct std_function *to, const struct std_function *from, int action)
{
    shared_task *s = from->storage[0];
    switch (action) {
    case MANAGE_GET_TYPE: to->storage[0] = NULL; break;
    case MANAGE_GET_POINTER: to->storage[0] = (void *)(uintptr_t)from; break;
    case MANAGE_COPY:
        to->storage[0] = s;
        atomic_fetch_add(&s->copies, 1);
        break;
    default: /* MANAGE_DESTROY: the destroyed std::function is `to` */
        s = to->storage[0];
        if (atomic_fetch_sub(&s->copies, 1) == 1)
            free(s);
        break;
    }
    return false;
}

/* The call of a std::function that holds a shared_task: runs the task once, and returns its value; 0 if the task has run before.
 */
static int shared_task_run(const struct std_function *f)
{
    shared_task *s = f->storage[0];
    return atomic_exchange(&s->ran, true) ? 0 : s->task(s->arg);
}

/* ---- Calls that may throw ---- */

typedef struct npu_request {
    enum { REQUEST_STREAM, REQUEST_WORKSPACE, REQUEST_RUN, REQUEST_FORMAT } what;
    uint64_t size;
    const struct std_string *name;
    const std_function *f;
    void *tensor, *pointer;
    int64_t number;
} npu_request;

/* Executes a request by one of torch_npu's C++ functions, which may throw. arg: the npu_request, which receives the value. */
static void npu_request_execute(int64_t begin, int64_t end, void *arg)
{
    npu_request *q = arg;
    (void)begin, (void)end;
    switch (q->what) {
    case REQUEST_STREAM: q->pointer = npu.current_stream(); break;
    case REQUEST_WORKSPACE: q->pointer = npu.workspace(q->size); break;
    case REQUEST_RUN: npu.run(q->name, q->f); break;
    case REQUEST_FORMAT: q->number = npu.format(q->tensor); break;
    }
}

static const char *npu_get_exception_text(void) { return npu.what ? npu.what() : "this torch has no text for it"; }

/* Executes a request; an exception of torch_npu becomes DV_EHOST with its text. Returns a status. */
static int npu_request_execute_guarded(npu_request *q)
{
    return npu.guarded(0, 1, 1, npu_request_execute, q) ? dv_fail(DV_EHOST, "torch_npu failed: %s", npu_get_exception_text())
                                                        : DV_OK;
}

/* ---- The framework ---- */

/* dv_ascend_framework.stream: finds torch_npu's current stream. */
static int npu_get_stream(const dv_ascend_framework *f, dv_device device, void **stream_out)
{
    npu_request q = { .what = REQUEST_STREAM };
    (void)f, (void)device; /* the call's host has made the device current */
    const int status = npu_request_execute_guarded(&q);
    *stream_out = q.pointer;
    return status;
}

/* dv_ascend_framework.workspace: allocates from torch_npu's workspace allocator. */
static int npu_allocate_workspace(const dv_ascend_framework *f, void *stream, uint64_t bytes, void **memory_out)
{
    npu_request q = { .what = REQUEST_WORKSPACE, .size = bytes };
    (void)f, (void)stream;
    const int status = npu_request_execute_guarded(&q);
    *memory_out = q.pointer;
    return status || q.pointer ? status
                               : dv_fail(DV_ENOMEM, "torch_npu gave no workspace of %llu bytes", (unsigned long long)bytes);
}

/* dv_ascend_framework.enqueue: puts a task into torch_npu's task queue. Returns DV_OK if the queue accepted the task, even if it
 * has failed by now. */
static int npu_enqueue(const dv_ascend_framework *f, void *stream, const char *name, int (*task)(void *arg), void *arg)
{
    (void)f, (void)stream;
    shared_task *s = malloc(sizeof *s);
    if (!s)
        return dv_fail(DV_ENOMEM, "out of memory");
    atomic_init(&s->copies, 1);
    atomic_init(&s->ran, false);
    s->task = task;
    s->arg = arg;
    const struct std_string std_string = { name, strlen(name), strlen(name), 0 };
    std_function task_function = { { s, NULL }, std_function_manage, shared_task_run };
    npu_request q = { .what = REQUEST_RUN, .name = &std_string, .f = &task_function };
    const bool threw = npu.guarded(0, 1, 1, npu_request_execute, &q);
    /* True if the queue has a copy of the function, or has moved it away, which leaves task_function without a manager; s may
     * then be freed. */
    const bool is_accepted = !task_function.manage || atomic_load(&s->ran) || atomic_load(&s->copies) > 1;
    if (task_function.manage)
        std_function_manage(&task_function, &task_function, MANAGE_DESTROY);
    if (is_accepted) /* a task that has failed already has set the error message */
        return DV_OK;
    if (threw)
        return dv_fail(DV_EHOST, "torch_npu did not take the task: %s", npu_get_exception_text());
    char why[1024]; /* without an exception: the queue drops every task after one has failed */
    dv__print_late_failure(why, sizeof why);
    return dv_fail(DV_EHOST, "torch_npu's task queue stopped after an earlier failure, and takes nothing more: %s",
        *why ? why : "torch_npu's log has the reason");
}

/* dv_ascend_framework.format: finds a torch tensor's memory format; tensors of other hosts have the format ND. */
static int npu_get_format(const dv_ascend_framework *f, const dv_host *host, const dv_tensor *t, int32_t *format_out)
{
    (void)f;
    *format_out = DV_ACL_FORMAT_ND;
    if (!host || !host->name || strcmp(host->name, "torch"))
        return DV_OK;
    npu_request q = { .what = REQUEST_FORMAT, .tensor = ((const struct dv__torch_tensor *)(const void *)t)->handle };
    const int status = npu_request_execute_guarded(&q);
    *format_out = (int32_t)q.number;
    return status;
}

static const dv_ascend_framework torch_npu = { sizeof torch_npu, 0, "torch_npu", npu_get_stream, npu_allocate_workspace,
    npu_enqueue, npu_get_format };

/* Stores the address of a library's symbol in the pointer at symbol_out; NULL: the library is NULL or lacks the symbol. */
static void npu_set_function_pointer(void *lib, const char *symbol, void *symbol_out)
{
    void *p = lib ? dlsym(lib, symbol) : NULL;
    memcpy(symbol_out, &p, sizeof p);
}

int dv_ascend_open_torch(void)
{
    void *lib = dlopen("libtorch_npu.so", RTLD_LAZY | RTLD_NOLOAD), *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!lib || !torch)
        return dv_fail(DV_ENOENT, "Ascend: torch_npu is not loaded: import torch_npu first");
#define NPU(result, name, symbol, parameters)         \
    npu_set_function_pointer(lib, symbol, &npu.name); \
    if (!npu.name)                                    \
        return dv_fail(DV_EABI, "Ascend: this torch_npu has no %s; 2.13 is the version that was tried", symbol);
#include "torch_npu.def"
#undef NPU
    npu_set_function_pointer(torch, "torch_parallel_for", &npu.guarded);
    npu_set_function_pointer(torch, "torch_exception_get_what_without_backtrace", &npu.what);
    return npu.guarded ? dv_ascend_open(&torch_npu)
                       : dv_fail(DV_EABI, "Ascend: libtorch has no torch_parallel_for (it came with 2.10)");
}
