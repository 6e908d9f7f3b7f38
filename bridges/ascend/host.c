/* The framework and the host for programs without a framework, with streams and memory of aclrt. Also dv_ascend_host(),
 * dv_ascend_wait() and dv_ascend_close(). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

enum { MAX_DEVICES = 64, MAX_STREAMS = 256 };

/* A workspace for each stream. Kernels of one stream run one after the other, so all of them use one block. A block that became
 * too small stays until dv_ascend_close(), since a kernel that is about to start may still use it. Each block is at least twice
 * as large as the one before, so that all blocks of a stream together take less than twice the largest. */
typedef struct workspace_block {
    struct workspace_block *next; /* the next smaller block of the same stream */
    void *stream, *memory;
    uint64_t size;
} workspace_block;

static struct {
    pthread_mutex_t lock;
    void *streams[MAX_DEVICES];
    workspace_block *blocks[MAX_STREAMS];
    size_t nblocks;
} library_state = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Sets the error "Ascend: what failed with status" and CANN's message. Returns DV_EHOST. */
static int host_fail_with_acl_error(const char *what, int32_t acl_status)
{
    return dv_fail(DV_EHOST, "Ascend: %s failed with %d: %s", what, acl_status, dv__acl_get_last_message());
}

/* ---- Workspace ---- */

/* Puts a new block of at least `bytes` bytes before the stream's blocks in *newest. Returns a status; after a failure *newest is
 * unchanged. */
static int workspace_add_block(workspace_block **newest, void *stream, uint64_t bytes)
{
    const uint64_t twice = *newest ? 2 * (*newest)->size : 0;
    workspace_block *b = malloc(sizeof *b);
    if (!b)
        return dv_fail(DV_ENOMEM, "Ascend: out of memory");
    *b = (workspace_block){ *newest, stream, NULL, bytes > twice ? bytes : twice };
    const int32_t status = dv__acl.aclrtMalloc(&b->memory, b->size, DV_ACL_MEM_MALLOC_HUGE_FIRST);
    if (status) {
        free(b);
        return host_fail_with_acl_error("aclrtMalloc of a workspace", status);
    }
    *newest = b;
    return DV_OK;
}

/* The default framework's workspace: memory of at least `bytes` bytes for the next kernel of a stream. Returns a status. */
static int workspace_allocate_for_stream(const dv_ascend_framework *f, void *stream, uint64_t bytes, void **memory_out)
{
    size_t i = 0;
    int status = DV_OK;
    (void)f;
    pthread_mutex_lock(&library_state.lock);
    while (i < library_state.nblocks && library_state.blocks[i]->stream != stream)
        i++;
    if (i == MAX_STREAMS)
        status = dv_fail(DV_ELIMIT, "Ascend: workspaces for more than %d streams", MAX_STREAMS);
    else if (i == library_state.nblocks || library_state.blocks[i]->size < bytes)
        status = workspace_add_block(&library_state.blocks[i], stream, bytes);
    if (!status) {
        library_state.nblocks += i == library_state.nblocks;
        *memory_out = library_state.blocks[i]->memory;
    }
    pthread_mutex_unlock(&library_state.lock);
    return status;
}

/* The default framework's enqueue: runs the task at once. Always returns DV_OK. */
static int default_run_at_once(const dv_ascend_framework *f, void *stream, const char *name, int (*task)(void *arg), void *arg)
{
    (void)f, (void)stream, (void)name;
    task(arg); /* a task that fails has set the error */
    return DV_OK;
}

/* The default framework's format: every tensor has the format ND. */
static int default_get_format(const dv_ascend_framework *f, const dv_host *host, const dv_tensor *t, int32_t *format_out)
{
    (void)f, (void)host, (void)t;
    *format_out = DV_ACL_FORMAT_ND;
    return DV_OK;
}

const dv_ascend_framework dv__default_framework = { .size = sizeof dv__default_framework,
    .name = "none",
    .workspace = workspace_allocate_for_stream,
    .enqueue = default_run_at_once,
    .format = default_get_format };

/* ---- The host for C programs ---- */

typedef struct npu_tensor {
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
} npu_tensor;

/* dv_host.stream: makes the device current and finds this library's stream there, which the first call makes. *stream_out: NULL
 * for a device that is not an NPU. Returns a status. */
static int npu_get_stream(const dv_host *host, dv_device device, void **stream_out)
{
    int32_t status = 0;
    (void)host;
    *stream_out = NULL;
    if (device.type != DV_NPU)
        return DV_OK;
    if (device.id < 0 || device.id >= MAX_DEVICES)
        return dv_fail(DV_EDEVICE, "Ascend: expected a device from 0 to %d, found %d", MAX_DEVICES - 1, device.id);
    if ((status = dv__acl.aclrtSetDevice(device.id)))
        return host_fail_with_acl_error("aclrtSetDevice", status);
    pthread_mutex_lock(&library_state.lock);
    if (!library_state.streams[device.id])
        status = dv__acl.aclrtCreateStream(&library_state.streams[device.id]);
    *stream_out = library_state.streams[device.id];
    pthread_mutex_unlock(&library_state.lock);
    return status ? host_fail_with_acl_error("aclrtCreateStream", status) : DV_OK;
}

/* Returns the number of bytes from a tensor's first element to the end of its last; 0 for a tensor without elements. */
static size_t npu_measure_tensor_bytes(const dv_tensor *t)
{
    int64_t last = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        last += (t->shape[i] - 1) * t->strides[i];
    return dv_numel(t) ? (size_t)dv_dtype_bytes(t->dtype, last + 1) : 0;
}

/* dv_host.new_tensor: makes a tensor with uninitialised memory on the NPU, or zeroed memory on the CPU. Returns a status. */
static int npu_new_tensor(const dv_host *host, int unused_index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    (void)host, (void)unused_index;
    npu_tensor *m = calloc(1, sizeof *m);
    if (!m)
        return dv_fail(DV_ENOMEM, "Ascend: out of memory");
    for (int32_t i = 0; i < ndim; i++)
        m->dims[i] = shape[i], m->dims[DV_MAX_NDIM + i] = strides[i];
    m->t = (dv_tensor){ .device = device, .ndim = ndim, .dtype = dtype, .shape = m->dims, .strides = m->dims + DV_MAX_NDIM };
    const size_t size = npu_measure_tensor_bytes(&m->t);
    int status = DV_OK;
    void *stream;
    if (device.type != DV_NPU)
        m->t.data = calloc(1, size + 1), status = m->t.data ? DV_OK : dv_fail(DV_ENOMEM, "Ascend: out of memory");
    else if (size && !(status = npu_get_stream(host, device, &stream)) &&
        (status = dv__acl.aclrtMalloc(&m->t.data, size, DV_ACL_MEM_MALLOC_HUGE_FIRST)))
        status = host_fail_with_acl_error("aclrtMalloc of a tensor", status);
    if (status)
        free(m);
    else
        *out = &m->t;
    return status;
}

/* dv_host.free_tensor: waits for the device's stream first, since a kernel that was launched may still use the memory. */
static void npu_free_tensor(const dv_host *host, dv_tensor *t)
{
    (void)host;
    if (t && t->device.type == DV_NPU && t->data) {
        dv_ascend_wait(t->device.id);
        dv__acl.aclrtFree(t->data);
    } else if (t) {
        free(t->data);
    }
    free(t);
}

/* dv_host.copy_tensor: copies between contiguous tensors on the same kind of device, in the stream's order. Other copies fail
 * with DV_ENOTSUP. Returns a status. */
static int npu_copy_tensor(const dv_host *host, const dv_tensor *dst, const dv_tensor *src)
{
    void *stream;
    const size_t size = npu_measure_tensor_bytes(dst);
    if (!dv_tensor_is_contiguous(dst) || !dv_tensor_is_contiguous(src) || dst->device.type != src->device.type)
        return dv_fail(DV_ENOTSUP,
            "Ascend: a copy between layouts needs a framework: give the kernel .takes = \"strided(x)\", or the call "
            "contiguous tensors");
    int status = npu_get_stream(host, dst->device, &stream);
    if (!status && size &&
        (status = dv__acl.aclrtMemcpyAsync(dst->data, size, src->data, size, DV_ACL_MEMCPY_DEVICE_TO_DEVICE, stream)))
        status = host_fail_with_acl_error("aclrtMemcpyAsync", status);
    return status;
}

static const dv_host program_host = { .size = sizeof program_host,
    .name = "Ascend",
    .new_tensor = npu_new_tensor,
    .free_tensor = npu_free_tensor,
    .copy_tensor = npu_copy_tensor,
    .stream = npu_get_stream };

/* ---- MindSpore ---- */

/* Finds this library's stream on a device, for a framework that does not report a stream of its own. Returns a status. */
static int mindspore_get_stream(const dv_ascend_framework *f, dv_device device, void **stream_out)
{
    (void)f;
    return npu_get_stream(NULL, device, stream_out);
}

/* Runs a task at once and waits until its kernel has ended. Returns a status; DV_OK after a task that failed, since the task has
 * set the error. */
static int mindspore_enqueue_and_wait(
    const dv_ascend_framework *f, void *stream, const char *name, int (*task)(void *arg), void *arg)
{
    (void)f, (void)name;
    if (task(arg))
        return DV_OK; /* a task that fails has set the error */
    const int32_t status = dv__acl.aclrtSynchronizeStream(stream);
    return status ? host_fail_with_acl_error("aclrtSynchronizeStream", status) : DV_OK;
}

/* Framework for MindSpore, which does not report its stream. A call runs on this library's stream and returns when its kernel has
 * ended. Before the call, the bridge in Python waits for MindSpore's streams. */
static const dv_ascend_framework mindspore_framework = {
    .size = sizeof mindspore_framework, .name = "mindspore", .stream = mindspore_get_stream, .enqueue = mindspore_enqueue_and_wait
};

/* ---- The framework in use, and closing ---- */

static _Atomic(const dv_ascend_framework *) framework;

const dv_ascend_framework *dv__get_framework(void) { return atomic_load(&framework); }

const dv_ascend_framework *dv__exchange_framework(const dv_ascend_framework *new_framework)
{
    return atomic_exchange(&framework, new_framework);
}

const dv_ascend_framework *dv__find_framework_of_host(const dv_host *host)
{
    return host && host->name && !strcmp(host->name, mindspore_framework.name) ? &mindspore_framework : dv__get_framework();
}

const dv_host *dv_ascend_host(void) { return dv__get_framework() ? &program_host : NULL; }

int dv_ascend_wait(int32_t device)
{
    void *stream;
    int status = dv__get_framework() ? npu_get_stream(NULL, (dv_device){ DV_NPU, device }, &stream)
                                     : dv_fail(DV_EINVAL, "Ascend: dv_ascend_open() comes first");
    if (!status && (status = dv__acl.aclrtSynchronizeStream(stream)))
        status = host_fail_with_acl_error("aclrtSynchronizeStream", status);
    return status;
}

/* Waits for all streams that have a workspace, and frees their blocks. Returns the first error number of CANN, or 0. The lock
 * must be held. */
static int32_t workspace_free_all(void)
{
    int32_t status = 0;
    while (library_state.nblocks) {
        workspace_block *b = library_state.blocks[--library_state.nblocks];
        const int32_t failed = dv__acl.aclrtSynchronizeStream(b->stream);
        status = status ? status : failed;
        for (workspace_block *next; b; b = next) {
            next = b->next;
            dv__acl.aclrtFree(b->memory);
            free(b);
        }
        library_state.blocks[library_state.nblocks] = NULL;
    }
    return status;
}

int dv_ascend_close(void)
{
    if (!dv__get_framework())
        return DV_OK;
    pthread_mutex_lock(&library_state.lock);
    int32_t status = workspace_free_all();
    for (int32_t i = 0; i < MAX_DEVICES; i++) {
        if (!library_state.streams[i])
            continue;
        const int32_t waited = dv__acl.aclrtSynchronizeStream(library_state.streams[i]),
                      gone = dv__acl.aclrtDestroyStream(library_state.streams[i]);
        status = status ? status : waited ? waited : gone;
        library_state.streams[i] = NULL;
    }
    pthread_mutex_unlock(&library_state.lock);
    return status ? host_fail_with_acl_error("giving back streams", status) : DV_OK;
}
