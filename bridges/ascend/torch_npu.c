/* torch_npu as the framework: its current stream, its workspace allocator, its task queue, its tensors' formats. It has C++
 * functions for these (torch_npu.def), the ones that its own EXEC_NPU_CMD calls; here they are called from C, with libstdc++'s
 * layouts of a std::string and a std::function. They may throw, so they run inside torch_parallel_for(), a function of libtorch's
 * C interface that turns an exception into a status.
 *
 * The order is that of EXEC_NPU_CMD with TASK_QUEUE_ENABLE=1: the first phase at once, then the workspace, then a task for the
 * second phase. torch_npu gives the workspace back to its allocator at once; what is allocated from there is used by later work
 * of the stream. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../torch/call.h"
#include "ascend.h"

struct text { /* std::string of libstdc++ since GCC 5, read only */
    const char *data;
    size_t size, room, unused;
};

/* std::function<int()>: what it holds, then how that is copied and destroyed, then how it is called. */
typedef struct function {
    void *held[2];
    bool (*manage)(struct function *to, const struct function *from, int what);
    int (*call)(const struct function *f);
} function;
enum { GET_TYPE, GET_POINTER, COPY, DESTROY };

static struct {
#define NPU(result, name, symbol, parameters) result(*name) parameters;
#include "torch_npu.def"
#undef NPU
    int32_t (*guarded)(int64_t begin, int64_t end, int64_t grain, void (*fn)(int64_t begin, int64_t end, void *arg), void *arg);
    const char *(*what)(void);
} npu;

/* ---- The task, shared by the copies of a std::function ---- */

typedef struct shared {
    atomic_int copies;
    atomic_bool ran;
    int (*task)(void *arg);
    void *arg;
} shared;

static bool manage(struct function *to, const struct function *from, int what)
{
    shared *s = from->held[0];
    switch (what) {
    case GET_TYPE: to->held[0] = NULL; break;
    case GET_POINTER: to->held[0] = (void *)(uintptr_t)from; break;
    case COPY:
        to->held[0] = s;
        atomic_fetch_add(&s->copies, 1);
        break;
    default: /* the one that is destroyed comes as `to` */
        s = to->held[0];
        if (atomic_fetch_sub(&s->copies, 1) == 1)
            free(s);
        break;
    }
    return false;
}

static int run_shared(const struct function *f)
{
    shared *s = f->held[0];
    return atomic_exchange(&s->ran, true) ? 0 : s->task(s->arg);
}

/* ---- Calls that may throw ---- */

typedef struct question {
    enum { STREAM, WORKSPACE, RUN, FORMAT } what;
    uint64_t size;
    const struct text *name;
    const function *f;
    void *tensor, *pointer;
    int64_t number;
} question;

static void ask_inside(int64_t begin, int64_t end, void *arg)
{
    question *q = arg;
    (void)begin, (void)end;
    switch (q->what) {
    case STREAM: q->pointer = npu.current_stream(); break;
    case WORKSPACE: q->pointer = npu.workspace(q->size); break;
    case RUN: npu.run(q->name, q->f); break;
    case FORMAT: q->number = npu.format(q->tensor); break;
    }
}

static const char *what(void) { return npu.what ? npu.what() : "this torch has no text for it"; }

static int ask(question *q)
{
    return npu.guarded(0, 1, 1, ask_inside, q) ? dv_fail(DV_EHOST, "torch_npu failed: %s", what()) : DV_OK;
}

/* ---- The framework ---- */

static int stream(const dv_ascend_framework *f, dv_device device, void **out)
{
    question q = { .what = STREAM };
    (void)f, (void)device; /* the call's host has made it current */
    const int status = ask(&q);
    *out = q.pointer;
    return status;
}

static int workspace(const dv_ascend_framework *f, void *on, uint64_t bytes, void **out)
{
    question q = { .what = WORKSPACE, .size = bytes };
    (void)f, (void)on;
    const int status = ask(&q);
    *out = q.pointer;
    return status || q.pointer ? status
                               : dv_fail(DV_ENOMEM, "torch_npu gave no workspace of %llu bytes", (unsigned long long)bytes);
}

static int enqueue(const dv_ascend_framework *f, void *on, const char *name, int (*task)(void *arg), void *arg)
{
    (void)f, (void)on;
    shared *s = malloc(sizeof *s);
    if (!s)
        return dv_fail(DV_ENOMEM, "out of memory");
    atomic_init(&s->copies, 1);
    atomic_init(&s->ran, false);
    s->task = task;
    s->arg = arg;
    const struct text text = { name, strlen(name), strlen(name), 0 };
    function held = { { s, NULL }, manage, run_shared };
    question q = { .what = RUN, .name = &text, .f = &held };
    const bool threw = npu.guarded(0, 1, 1, ask_inside, &q);
    /* The queue has a copy, or has moved the function away, which leaves it without a manager; then s may be gone already. */
    const bool taken = !held.manage || atomic_load(&s->ran) || atomic_load(&s->copies) > 1;
    if (held.manage)
        manage(&held, &held, DESTROY);
    if (taken) /* a task that failed at once has set its own message */
        return DV_OK;
    if (threw)
        return dv_fail(DV_EHOST, "torch_npu did not take the task: %s", what());
    char why[1024]; /* without an exception, the queue drops tasks after one has failed */
    dv__late(why, sizeof why);
    return dv_fail(DV_EHOST, "torch_npu's task queue stopped after an earlier failure, and takes nothing more: %s",
        *why ? why : "torch_npu's log has the reason");
}

static int format(const dv_ascend_framework *f, const dv_host *host, const dv_tensor *t, int32_t *out)
{
    (void)f;
    *out = DV_ACL_FORMAT_ND;
    if (!host || !host->name || strcmp(host->name, "torch"))
        return DV_OK;
    question q = { .what = FORMAT, .tensor = ((const struct dv__torch_tensor *)(const void *)t)->handle };
    const int status = ask(&q);
    *out = (int32_t)q.number;
    return status;
}

static const dv_ascend_framework torch_npu = { sizeof torch_npu, 0, "torch_npu", stream, workspace, enqueue, format };

static void find(void *lib, const char *symbol, void *out)
{
    void *p = lib ? dlsym(lib, symbol) : NULL;
    memcpy(out, &p, sizeof p);
}

int dv_ascend_open_torch(void)
{
    void *lib = dlopen("libtorch_npu.so", RTLD_LAZY | RTLD_NOLOAD), *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!lib || !torch)
        return dv_fail(DV_ENOENT, "Ascend: torch_npu is not loaded: import torch_npu first");
#define NPU(result, name, symbol, parameters) \
    find(lib, symbol, &npu.name);             \
    if (!npu.name)                            \
        return dv_fail(DV_EABI, "Ascend: this torch_npu has no %s; 2.13 is the version that was tried", symbol);
#include "torch_npu.def"
#undef NPU
    find(torch, "torch_parallel_for", &npu.guarded);
    find(torch, "torch_exception_get_what_without_backtrace", &npu.what);
    return npu.guarded ? dv_ascend_open(&torch_npu)
                       : dv_fail(DV_EABI, "Ascend: libtorch has no torch_parallel_for (it came with 2.10)");
}
