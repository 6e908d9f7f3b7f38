/* What a program without a framework has: streams and memory of aclrt. Also dv_ascend_open() and its kind. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

enum { MOST_DEVICES = 64, MOST_STREAMS = 256 };

/* A workspace for each stream. Kernels of one stream run one after the other, so all of them use one block. A block that became
 * too small stays until the end, since a kernel that is about to start may still use it. Each is twice as large as the last, so
 * that all blocks of a stream together take less than twice the largest. */
typedef struct block {
    struct block *next; /* smaller ones of the same stream */
    void *stream, *memory;
    uint64_t size;
} block;

static struct {
    pthread_mutex_t lock;
    void *streams[MOST_DEVICES];
    block *blocks[MOST_STREAMS];
    size_t nblocks;
} own = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int acl_fail(const char *what, int32_t status)
{
    return dv_fail(DV_EHOST, "Ascend: %s failed with %d: %s", what, status, dv__acl_message());
}

/* ---- Workspace ---- */

static int grow(block **to, void *stream, uint64_t bytes)
{
    const uint64_t twice = *to ? 2 * (*to)->size : 0;
    block *b = malloc(sizeof *b);
    if (!b)
        return dv_fail(DV_ENOMEM, "Ascend: out of memory");
    *b = (block){ *to, stream, NULL, bytes > twice ? bytes : twice };
    const int32_t status = dv__acl.aclrtMalloc(&b->memory, b->size, DV_ACL_MEM_MALLOC_HUGE_FIRST);
    if (status) {
        free(b);
        return acl_fail("aclrtMalloc of a workspace", status);
    }
    *to = b;
    return DV_OK;
}

static int workspace(const dv_ascend_framework *f, void *stream, uint64_t bytes, void **out)
{
    size_t i = 0;
    int status = DV_OK;
    (void)f;
    pthread_mutex_lock(&own.lock);
    while (i < own.nblocks && own.blocks[i]->stream != stream)
        i++;
    if (i == MOST_STREAMS)
        status = dv_fail(DV_ELIMIT, "Ascend: workspaces for more than %d streams", MOST_STREAMS);
    else if (i == own.nblocks || own.blocks[i]->size < bytes)
        status = grow(&own.blocks[i], stream, bytes);
    if (!status) {
        own.nblocks += i == own.nblocks;
        *out = own.blocks[i]->memory;
    }
    pthread_mutex_unlock(&own.lock);
    return status;
}

static int enqueue(const dv_ascend_framework *f, void *stream, const char *name, int (*task)(void *arg), void *arg)
{
    (void)f, (void)stream, (void)name;
    task(arg); /* it has set the error */
    return DV_OK;
}

static int format(const dv_ascend_framework *f, const dv_host *host, const dv_tensor *t, int32_t *out)
{
    (void)f, (void)host, (void)t;
    *out = DV_ACL_FORMAT_ND;
    return DV_OK;
}

const dv_ascend_framework dv__no_framework = {
    .size = sizeof dv__no_framework, .name = "none", .workspace = workspace, .enqueue = enqueue, .format = format
};

/* ---- The host for C programs ---- */

typedef struct made {
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
} made;

static int stream_of(const dv_host *host, dv_device device, void **out)
{
    int32_t status = 0;
    (void)host;
    *out = NULL;
    if (device.type != DV_NPU)
        return DV_OK;
    if (device.id < 0 || device.id >= MOST_DEVICES)
        return dv_fail(DV_EDEVICE, "Ascend: expected a device from 0 to %d, found %d", MOST_DEVICES - 1, device.id);
    if ((status = dv__acl.aclrtSetDevice(device.id)))
        return acl_fail("aclrtSetDevice", status);
    pthread_mutex_lock(&own.lock);
    if (!own.streams[device.id])
        status = dv__acl.aclrtCreateStream(&own.streams[device.id]);
    *out = own.streams[device.id];
    pthread_mutex_unlock(&own.lock);
    return status ? acl_fail("aclrtCreateStream", status) : DV_OK;
}

static size_t bytes_of(const dv_tensor *t)
{
    int64_t last = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        last += (t->shape[i] - 1) * t->strides[i];
    return dv_numel(t) ? (size_t)dv_dtype_bytes(t->dtype, last + 1) : 0;
}

static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    (void)host, (void)index;
    made *m = calloc(1, sizeof *m);
    if (!m)
        return dv_fail(DV_ENOMEM, "Ascend: out of memory");
    for (int32_t i = 0; i < ndim; i++)
        m->dims[i] = shape[i], m->dims[DV_MAX_NDIM + i] = strides[i];
    m->t = (dv_tensor){ .device = device, .ndim = ndim, .dtype = dtype, .shape = m->dims, .strides = m->dims + DV_MAX_NDIM };
    const size_t size = bytes_of(&m->t);
    int status = DV_OK;
    void *stream;
    if (device.type != DV_NPU)
        m->t.data = calloc(1, size + 1), status = m->t.data ? DV_OK : dv_fail(DV_ENOMEM, "Ascend: out of memory");
    else if (size && !(status = stream_of(host, device, &stream)) &&
        (status = dv__acl.aclrtMalloc(&m->t.data, size, DV_ACL_MEM_MALLOC_HUGE_FIRST)))
        status = acl_fail("aclrtMalloc of a tensor", status);
    if (status)
        free(m);
    else
        *out = &m->t;
    return status;
}

/* A kernel that was launched may still use the memory. */
static void free_tensor(const dv_host *host, dv_tensor *t)
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

static int copy_tensor(const dv_host *host, const dv_tensor *dst, const dv_tensor *src)
{
    void *stream;
    const size_t size = bytes_of(dst);
    if (!dv_tensor_is_contiguous(dst) || !dv_tensor_is_contiguous(src) || dst->device.type != src->device.type)
        return dv_fail(DV_ENOTSUP,
            "Ascend: a copy between layouts needs a framework: give the row .takes = \"strided(x)\", or the call "
            "contiguous tensors");
    int status = stream_of(host, dst->device, &stream);
    if (!status && size &&
        (status = dv__acl.aclrtMemcpyAsync(dst->data, size, src->data, size, DV_ACL_MEMCPY_DEVICE_TO_DEVICE, stream)))
        status = acl_fail("aclrtMemcpyAsync", status);
    return status;
}

static const dv_host host_of_programs = { .size = sizeof host_of_programs,
    .name = "Ascend",
    .new_tensor = new_tensor,
    .free_tensor = free_tensor,
    .copy_tensor = copy_tensor,
    .stream = stream_of };

/* ---- MindSpore ---- */

/* Returns the stream of this library on a device, for a framework that does not report its own. */
static int own_stream(const dv_ascend_framework *f, dv_device device, void **out)
{
    (void)f;
    return stream_of(NULL, device, out);
}

/* Runs a task and waits until its kernel has ended. */
static int enqueue_and_wait(const dv_ascend_framework *f, void *stream, const char *name, int (*task)(void *arg), void *arg)
{
    (void)f, (void)name;
    if (task(arg))
        return DV_OK; /* it has set the error */
    const int32_t status = dv__acl.aclrtSynchronizeStream(stream);
    return status ? acl_fail("aclrtSynchronizeStream", status) : DV_OK;
}

/* Framework for MindSpore, which does not report its stream. A call runs on this library's stream and returns when its kernel has
 * ended. Before the call, the bridge waits for MindSpore's streams. */
static const dv_ascend_framework mindspore = {
    .size = sizeof mindspore, .name = "mindspore", .stream = own_stream, .enqueue = enqueue_and_wait
};

/* ---- Opening and closing ---- */

static _Atomic(const dv_ascend_framework *) framework;
static const dv_aclnn aclnn = { sizeof aclnn, 0, dv__aclnn_run, dv__launcher_run };

const dv_ascend_framework *dv__framework(void) { return atomic_load(&framework); }

const dv_ascend_framework *dv__framework_of(const dv_host *host)
{
    return host && host->name && !strcmp(host->name, mindspore.name) ? &mindspore : dv__framework();
}

int dv_ascend_open(const dv_ascend_framework *f)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int status = dv__acl_open();
    const dv_ascend_framework *before = atomic_exchange(&framework, status ? atomic_load(&framework) : f ? f : &dv__no_framework);
    if (!status && !before && (status = dv_extend("dovetail.aclnn", &aclnn)))
        atomic_store(&framework, NULL);
    pthread_mutex_unlock(&lock);
    return status;
}

const dv_host *dv_ascend_host(void) { return dv__framework() ? &host_of_programs : NULL; }

int dv_ascend_wait(int32_t device)
{
    void *stream;
    int status = dv__framework() ? stream_of(NULL, (dv_device){ DV_NPU, device }, &stream)
                                 : dv_fail(DV_EINVAL, "Ascend: dv_ascend_open() comes first");
    if (!status && (status = dv__acl.aclrtSynchronizeStream(stream)))
        status = acl_fail("aclrtSynchronizeStream", status);
    return status;
}

static int32_t free_blocks(void)
{
    int32_t status = 0;
    while (own.nblocks) {
        block *b = own.blocks[--own.nblocks];
        const int32_t failed = dv__acl.aclrtSynchronizeStream(b->stream);
        status = status ? status : failed;
        for (block *next; b; b = next) {
            next = b->next;
            dv__acl.aclrtFree(b->memory);
            free(b);
        }
        own.blocks[own.nblocks] = NULL;
    }
    return status;
}

int dv_ascend_close(void)
{
    if (!dv__framework())
        return DV_OK;
    pthread_mutex_lock(&own.lock);
    int32_t status = free_blocks();
    for (int32_t i = 0; i < MOST_DEVICES; i++) {
        if (!own.streams[i])
            continue;
        const int32_t waited = dv__acl.aclrtSynchronizeStream(own.streams[i]), gone = dv__acl.aclrtDestroyStream(own.streams[i]);
        status = status ? status : waited ? waited : gone;
        own.streams[i] = NULL;
    }
    pthread_mutex_unlock(&own.lock);
    return status ? acl_fail("giving back streams", status) : DV_OK;
}
