/* The functions that a kernel calls through its context. A context is the first member of a dv__slice, which points to its
 * call.
 *
 * Errors and parallel_for may be used from any thread, the other functions from the kernel's own thread only. */
#include "call/services.h"

#include "base/memory.h"
#include "call/call_error.h"
#include "call/frame.h"
#include "call/host_tensor.h"
#include "call/broadcast.h"
#include "call/thread_pool.h"

static dv__slice *service_get_slice(dv_context *ctx) { return (dv__slice *)(void *)ctx; }

/* ---- Errors ---- */

static int service_record_error(dv_context *ctx, int status, const char *format, va_list args)
{
    return dv__call_vrecord_error(service_get_slice(ctx)->call, status, format, args);
}

/* ---- Memory ---- */

struct dv__slice_block {
    struct dv__slice_block *next;
    void *test_memory; /* memory from the test hooks' alloc(); NULL: the memory follows this struct */
};

void *dv__slice_alloc(dv__slice *s, int memory_use, size_t bytes, size_t alignment)
{
    const dv_test_hooks *test = dv__test_hooks(s->call->host);
    const bool use_test_alloc = memory_use >= 0 && test && test->alloc;
    if (alignment & (alignment - 1)) {
        dv__call_record_error(s->call, DV_EINVAL, "dv_alloc: the alignment must be a power of two, found %zu", alignment);
        return NULL;
    }
    if (alignment < _Alignof(max_align_t))
        alignment = _Alignof(max_align_t);
    const size_t header_size = (sizeof(struct dv__slice_block) + alignment - 1) & ~(alignment - 1);
    struct dv__slice_block *b = bytes > SIZE_MAX - header_size
        ? NULL
        : dv__alloc_aligned(use_test_alloc ? header_size : header_size + bytes, alignment);
    void *test_memory = b && use_test_alloc ? s->call->host->test->alloc(s->call->host, memory_use, -1, bytes, alignment) : NULL;
    if (!b || (use_test_alloc && !test_memory)) {
        dv__free_aligned(b);
        dv__call_record_error(s->call, DV_ENOMEM, "out of memory: dv_alloc of %zu bytes", bytes);
        return NULL;
    }
    b->next = s->blocks;
    b->test_memory = test_memory;
    s->blocks = b;
    return use_test_alloc ? test_memory : (char *)b + header_size;
}

static void *service_alloc(dv_context *ctx, size_t bytes, size_t alignment)
{
    dv__slice *const s = service_get_slice(ctx);
    if (s->in_chunk_loop) {
        dv__call_record_error(s->call, DV_EINVAL,
            "dv_alloc: called in a chunk of dv_parallel_for, which may run in another thread: allocate before the loop, or "
            "run it by dv_parallel_scratch");
        return NULL;
    }
    return dv__slice_alloc(s, DV_MEMORY_KERNEL, bytes, alignment);
}

/* ---- Threads ---- */

enum { MAX_CHUNKS = 256 }; /* largest number of chunks of a loop */

typedef struct chunk_loop {
    dv_range_fn fn;
    dv_scratch_fn fn_with_scratch;
    void *arg;
    int64_t begin, n;
    uint64_t size;
    dv__call *call;
    size_t bytes;            /* scratch bytes that each chunk gets */
    _Atomic(void *) *blocks; /* n pointers to scratch blocks; NULL: not allocated yet */
} chunk_loop;

/* Returns the first index of a chunk, if the loop's range is divided into n chunks whose sizes differ by at most one. chunk
 * == n: the end of the range. */
static int64_t chunk_first_index(const chunk_loop *loop, int64_t chunk)
{
    const uint64_t n = (uint64_t)loop->n, k = (uint64_t)chunk, each = loop->size / n, more = loop->size % n;
    return (int64_t)((uint64_t)loop->begin + k * each + (k < more ? k : more));
}

static int chunk_run_callback(void *loop_arg, int64_t chunk)
{
    const chunk_loop *p = loop_arg;
    return p->fn(p->arg, chunk_first_index(p, chunk), chunk_first_index(p, chunk + 1));
}

/* Divides [begin, end) into chunks of at least `grain` indices, at most MAX_CHUNKS. Returns the loop, without chunks if the
 * range is empty. callback_for_hooks: tells test hooks which loop it is. */
static chunk_loop chunk_loop_divide(
    dv_context *ctx, int64_t begin, int64_t end, int64_t grain, void (*callback_for_hooks)(void), void *arg)
{
    chunk_loop p = { .arg = arg,
        .begin = begin,
        .size = end > begin ? (uint64_t)end - (uint64_t)begin : 0,
        .call = service_get_slice(ctx)->call };
    const dv_test_hooks *test = dv__test_hooks(p.call->host);
    if (test && test->on_parallel_loop)
        test->on_parallel_loop(p.call->host, begin, end, grain, callback_for_hooks);
    const uint64_t each = test && test->no_split ? UINT64_MAX : grain < 1 ? 1 : (uint64_t)grain, n = p.size / each;
    p.n = !p.size ? 0 : n < 1 ? 1 : n > MAX_CHUNKS ? MAX_CHUNKS : (int64_t)n;
    return p;
}

/* Runs the chunks of a loop on the threads of the host or pool. Returns a status. */
static int chunk_loop_run(dv_context *ctx, dv__pool_task_fn run_chunk, chunk_loop *loop)
{
    dv__slice *const s = service_get_slice(ctx);
    const bool outer = !s->in_chunk_loop; /* false for a loop that a chunk of another loop starts */
    if (!loop->n)
        return DV_OK;
    if (outer)
        s->in_chunk_loop = true;
    const int status = dv__pool_run_tasks(loop->call->host, loop->n, run_chunk, loop);
    if (outer)
        s->in_chunk_loop = false;
    return status;
}

static int service_parallel_for(dv_context *ctx, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    chunk_loop p = chunk_loop_divide(ctx, begin, end, grain, (void (*)(void))fn, arg);
    p.fn = fn;
    return chunk_loop_run(ctx, chunk_run_callback, &p);
}

static void *chunk_alloc_scratch(const chunk_loop *loop)
{
    const dv_host *host = loop->call->host;
    const dv_test_hooks *test = dv__test_hooks(host);
    void *block = test && test->alloc ? test->alloc(host, DV_MEMORY_SCRATCH, -1, loop->bytes, 64)
                                      : dv__alloc_aligned(loop->bytes ? loop->bytes : 1, 64);
    if (!block)
        dv__call_record_error(loop->call, DV_ENOMEM, "out of memory: %zu bytes of scratch for a chunk of a loop", loop->bytes);
    return block;
}

static int chunk_run_with_test_scratch(void *loop_arg, int64_t chunk)
{
    const chunk_loop *p = loop_arg;
    void *block = chunk_alloc_scratch(p);
    const int status = block ? p->fn_with_scratch(p->arg, chunk_first_index(p, chunk), chunk_first_index(p, chunk + 1), block)
                             : DV_ENOMEM;
    if (block)
        p->call->host->test->free(p->call->host, block);
    return status;
}

/* Runs a chunk with a scratch block that no other running chunk uses, and allocates the block at its first use. There are as
 * many blocks as chunks, so one is always free. Returns a status. */
static int chunk_run_with_scratch(void *loop_arg, int64_t chunk)
{
    static char in_use;
    const chunk_loop *p = loop_arg;
    int64_t k = 0;
    void *block;
    while ((block = atomic_exchange(&p->blocks[k], &in_use)) == &in_use)
        k = (k + 1) % p->n;
    if (!block)
        block = chunk_alloc_scratch(p);
    const int status = block ? p->fn_with_scratch(p->arg, chunk_first_index(p, chunk), chunk_first_index(p, chunk + 1), block)
                             : DV_ENOMEM;
    atomic_store(&p->blocks[k], block);
    return status;
}

/* Implements dv_parallel_scratch(): runs fn() on chunks of [begin, end), each with scratch_bytes of memory. */
static int service_parallel_scratch(
    dv_context *ctx, int64_t begin, int64_t end, int64_t grain, size_t scratch_bytes, dv_scratch_fn fn, void *arg)
{
    _Atomic(void *) blocks[MAX_CHUNKS];
    chunk_loop p = chunk_loop_divide(ctx, begin, end, grain, (void (*)(void))fn, arg);
    const dv_test_hooks *test = dv__test_hooks(p.call->host);
    p.fn_with_scratch = fn;
    p.bytes = scratch_bytes;
    p.blocks = blocks;
    for (int64_t k = 0; k < p.n; k++)
        atomic_init(&blocks[k], NULL);
    const int status = chunk_loop_run(ctx, test && test->alloc ? chunk_run_with_test_scratch : chunk_run_with_scratch, &p);
    for (int64_t k = 0; k < p.n; k++)
        dv__free_aligned(atomic_load(&blocks[k]));
    return status;
}

/* ---- Results ---- */

/* Returns the result whose descriptor the kernel or shape function passed to dv_set_output(), and its index. NULL: another
 * tensor, or a result of known size. */
static dv__result *service_find_unsized_result(dv__call *c, const dv_tensor *descriptor, size_t *result_index)
{
    for (size_t r = 0; r < c->signature->nreturns; r++)
        if (descriptor == &c->outs[r].descriptor && (c->stage == DV__STAGE_SHAPE || c->outs[r].origin == DV__RESULT_PENDING)) {
            *result_index = r;
            return &c->outs[r];
        }
    return NULL;
}

/* Fails unless dtype and rank are the declared ones and no size exceeds the contract's upper bound. */
static int service_check_output_bounds(
    dv__call *c, size_t result_index, const dv__result *out, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    if (dv_dtype_key(dtype) != dv_dtype_key(out->descriptor.dtype))
        return dv__call_record_error(c, DV_EDTYPE, "dv_set_output: result %zu is %s, not %s", result_index,
            dv_dtype_name(out->descriptor.dtype), dv_dtype_name(dtype));
    if (ndim != out->descriptor.ndim)
        return dv__call_record_error(
            c, DV_ESHAPE, "dv_set_output: result %zu has %d dims, not %d", result_index, (int)out->descriptor.ndim, (int)ndim);
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] < 0 || shape[i] > out->max_sizes[i])
            return dv__call_record_error(c, DV_ESHAPE, "dv_set_output: dim %d of result %zu is at most %lld, not %lld", (int)i,
                result_index, (long long)out->max_sizes[i], (long long)shape[i]);
    return DV_OK;
}

/* Uses the tensor that the caller passed for a result whose size the kernel decides. Fails with DV_ESHAPE if it has another
 * shape. */
static int service_use_passed_result(dv__call *c, size_t result_index, dv__result *out, int32_t ndim, const int64_t *shape)
{
    bool same = out->passed->ndim == ndim;
    for (int32_t i = 0; i < ndim && same; i++)
        same = out->passed->shape[i] == shape[i];
    if (!same)
        return dv__call_record_error(c, DV_ESHAPE,
            "dv_set_output: the given tensor for result %zu has another shape than the result turned out to have", result_index);
    out->descriptor = *out->passed;
    return DV_OK;
}

/* Allocates the tensor of a result whose size the kernel sets now. The host's after_kernel() is called before the allocation
 * and before_kernel() after it, because the host allocates with its lock held. Returns a status. */
static int service_make_pending_result(
    dv__call *c, size_t result_index, dv__result *out, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t strides[DV_MAX_NDIM];
    int status = dv__shape_check(dtype, ndim, shape, strides);
    if (!status) {
        if (c->in_kernel && !(c->nested_flags & DV__NESTED_IN_KERNEL) && DV__HOST_HAS(c->host, after_kernel))
            c->host->after_kernel(c->host);
        status = dv__new_result_tensor(c, (int)result_index, dtype, c->device, ndim, shape, strides, &out->made);
        if (c->in_kernel && !(c->nested_flags & DV__NESTED_IN_KERNEL) && DV__HOST_HAS(c->host, before_kernel))
            c->host->before_kernel(c->host);
    }
    if (status)
        return dv__call_record_error(c, status, "%s", dv_last_error());
    out->descriptor = *out->made;
    return DV_OK;
}

/* Implements dv_set_output(): makes the result, whose size the kernel decides, or uses the passed tensor. In a shape function
 * only describes it. Returns a status. */
static int service_set_output(dv_context *ctx, dv_tensor *t, dv_dtype dtype, int32_t ndim, const int64_t *shape)
{
    dv__call *c = service_get_slice(ctx)->call;
    size_t r = 0;
    if (ndim < 0 || ndim > DV_MAX_NDIM || (ndim && !shape))
        return dv__call_record_error(c, DV_ESHAPE, "dv_set_output: %d dims", (int)ndim);
    dv__result *out = service_find_unsized_result(c, t, &r);
    if (!out)
        return dv__call_record_error(c, DV_EINVAL, "dv_set_output: the kernel does not decide the size of this result");
    if (out->output_was_set)
        return dv__call_record_error(c, DV_EINVAL, "dv_set_output: result %zu was set already", r);
    int status;
    if (c->stage == DV__STAGE_SHAPE) {
        int64_t *dims = DV__ARENA_ARRAY(&c->arena, int64_t, 2 * (size_t)ndim + 1);
        if (!dims)
            return dv__call_record_error(c, DV_ENOMEM, "%s", dv_last_error());
        if (ndim)
            memcpy(dims, shape, sizeof *dims * (size_t)ndim);
        if ((status = dv__shape_check(dtype, ndim, shape, dims + ndim)))
            return dv__call_record_error(c, status, "%s", dv_last_error());
        out->descriptor.dtype = dtype;
        out->descriptor.ndim = ndim;
        out->descriptor.shape = dims;
        out->descriptor.strides = dims + ndim;
    } else if ((status = service_check_output_bounds(c, r, out, dtype, ndim, shape)) ||
        (status = out->passed ? service_use_passed_result(c, r, out, ndim, shape)
                              : service_make_pending_result(c, r, out, dtype, ndim, shape))) {
        return status;
    }
    out->output_was_set = true;
    return DV_OK;
}

/* ---- Calling other operators ---- */

static int service_call_by_name(
    dv_context *ctx, const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields)
{
    dv__call *c = service_get_slice(ctx)->call;
    const int status = dv__frame_call_by_name(
        name, frame, frame_size, fields, c->host, c->nested_flags | DV__NESTED_IN_KERNEL, c->nested_call);
    return status ? dv__call_record_error(c, status, "%s", dv_last_error()) : DV_OK;
}

/* ---- Random numbers ---- */

/* Random state of the embedded default: one seed, and a count of the numbers used so far. */
static atomic_uint_fast64_t process_seed = UINT64_C(0x646f766574616969), process_random_offset;

int dv_set_seed(uint64_t seed)
{
    atomic_store(&process_seed, seed);
    atomic_store(&process_random_offset, 0);
    return DV_OK;
}

/* Reserves ndraws random numbers, rounded up to a multiple of four, from the host's generator, or else from the process's
 * state. *seed, *first_offset: where they begin. Returns a status. */
static int service_reserve_random(
    dv__call *c, const dv_generator *generator, uint64_t ndraws, uint64_t *seed, uint64_t *first_offset)
{
    ndraws = (ndraws + 3) & ~UINT64_C(3); /* rounded up to a multiple of four, because Philox makes four numbers at a time */
    if (DV__HOST_HAS(c->host, random)) {
        const int status = c->host->random(c->host, generator, ndraws, seed, first_offset);
        return status ? dv__call_record_error(c, status, "%s", dv_last_error()) : DV_OK;
    }
    if (generator)
        return dv__call_record_error(
            c, DV_ENOTSUP, "dv_random: the embedded default has one random state; a generator needs a host that knows it");
    *seed = atomic_load(&process_seed);
    *first_offset = atomic_fetch_add(&process_random_offset, ndraws);
    return DV_OK;
}

/* Returns SplitMix64's mixture of the bits of z, so that seeds of neighbouring slices are unrelated. */
static uint64_t splitmix64_mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Reserves ndraws random numbers for a kernel. The numbers of a slice must not depend on the order of slices. So a split
 * call reserves once, and each slice counts from that offset, with a seed of its own. Returns a status. */
static int service_reserve_random_for_slice(
    dv_context *ctx, const dv_generator *generator, uint64_t ndraws, uint64_t *seed, uint64_t *offset)
{
    dv__slice *s = service_get_slice(ctx);
    if (s->in_chunk_loop)
        return dv__call_record_error(s->call, DV_EINVAL,
            "dv_random: called in a chunk of dv_parallel_for, and chunks run in no fixed order: call it before the loop, for the "
            "numbers of all chunks");
    if (s->index < 0)
        return service_reserve_random(s->call, generator, ndraws, seed, offset);
    dv__call *c = s->call;
    uint64_t base = 0;
    /* The first slice that needs random numbers reserves them, and other slices spin until it is done. The states are listed
     * at random_state in call_state.h. */
    uint_fast64_t state = 0;
    if (atomic_compare_exchange_strong(&c->random_state, &state, 1)) {
        const int status = service_reserve_random(c, generator, UINT64_C(1) << 32, &c->random_seed, &base);
        atomic_store(&c->random_state, status ? UINT64_MAX : base + 2);
    }
    while ((state = atomic_load(&c->random_state)) == 1)
        ;
    if (state == UINT64_MAX)
        return atomic_load(&c->status);
    *seed = c->random_seed ^ splitmix64_mix((uint64_t)s->index + 1);
    *offset = state - 2 + s->random_used;
    s->random_used += (ndraws + 3) & ~UINT64_C(3);
    return DV_OK;
}

/* ---- The rest ---- */

/* Implements dv_object(). Returns NULL, with the error recorded, if the host has no object of this name. */
static const void *service_find_host_object(dv_context *ctx, const char *name)
{
    dv__call *c = service_get_slice(ctx)->call;
    const void *found = NULL;
    if (!DV__HOST_HAS(c->host, object)) {
        dv__call_record_error(c, DV_ENOENT, "dv_object: the host of this call provides no objects, '%s' neither", name);
        return NULL;
    }
    const int status = c->host->object(c->host, name, &found);
    if (status || !found) {
        dv__call_record_error(
            c, status ? status : DV_ENOENT, "dv_object: the host %s has no '%s'", c->host->name ? c->host->name : "", name);
        return NULL;
    }
    return found;
}

/* A query that a host has added to dv_query(). The list only grows; the newest query is first. */
typedef struct query_extension {
    const struct query_extension *next;
    const void *what;
    char name[];
} query_extension;
static _Atomic(const query_extension *) query_extensions;

int dv_register_query_extension(const char *name, const void *what)
{
    if (!name || !*name || !what)
        return dv_fail(DV_EINVAL, "dv_register_query_extension: expected a name and what it stands for, found %s",
            name && *name ? "NULL" : "no name");
    const size_t size = strlen(name) + 1;
    query_extension *e = dv__alloc(sizeof *e + size);
    if (!e)
        return DV_ENOMEM;
    memcpy(e->name, name, size);
    e->what = what;
    e->next = atomic_load(&query_extensions);
    while (!atomic_compare_exchange_weak(&query_extensions, &e->next, e))
        ;
    return DV_OK;
}

/* Collects the call's arguments and results as the host knows them: the originals of staging copies. Returns NULL if memory
 * is out. */
static const dv_value *service_collect_host_values(dv__call *c)
{
    const size_t n = c->signature->nargs;
    dv_value *values = DV__ARENA_ARRAY(&c->arena, dv_value, n + c->signature->nreturns);
    if (values && n)
        memcpy(values, c->args, n * sizeof *values);
    for (size_t r = 0; values && r < c->signature->nreturns; r++) {
        const dv__result *out = &c->outs[r];
        if (out->origin == DV__RESULT_LIST || out->origin == DV__RESULT_ALLOCATED_LIST || out->origin == DV__RESULT_SCALAR)
            values[n + r] = out->value;
        else if (out->tensor)
            values[n + r] = dv_from_tensor(out->tensor);
        else /* a cached call sets c->tensors only, and makes no staging copies */
            values[n + r] = c->tensors[n + r] ? dv_from_tensor(c->tensors[n + r]) : dv_none();
    }
    return values;
}

/* Returns the description of the running call for dv_query("dovetail.call"). NULL: in a slice, in a shape function, or if
 * memory is out. */
static const dv_running_call *service_describe_running_call(dv__slice *s)
{
    dv__call *c = s->call;
    if (s->index >= 0 || c->stage != DV__STAGE_KERNEL)
        return NULL;
    dv_running_call *r = DV__ARENA_ARRAY(&c->arena, dv_running_call, 1);
    const dv_value *values = service_collect_host_values(c);
    if (!r || !values)
        return NULL;
    *r = (dv_running_call){ sizeof *r, 0, c->op, c->kernel->name, c->host, values, c->tensors, c->lists,
        c->kernel->foreign_call };
    return r;
}

/* Implements dv_query(). Returns NULL if this runtime has no extension of this name. */
static const void *service_query(dv_context *ctx, const char *name)
{
    if (!strcmp(name, "dovetail.version"))
        return dv_version();
    if (!strcmp(name, "dovetail.call"))
        return service_describe_running_call(service_get_slice(ctx));
    for (const query_extension *e = atomic_load(&query_extensions); e; e = e->next)
        if (!strcmp(name, e->name))
            return e->what;
    return NULL;
}

static const dv_services all_services = { sizeof(dv_services), 0, service_record_error, service_alloc, service_parallel_for,
    service_set_output, service_call_by_name, service_reserve_random_for_slice, service_find_host_object, service_query,
    service_parallel_scratch, dv__for_each_broadcast_slice };

/* ---- Slices ---- */

void dv__slice_init(dv__slice *s, dv__call *c)
{
    const uint32_t flags = dv__host_flags(c->host);
    s->ctx.size = sizeof s->ctx;
    s->ctx.flags = (flags & DV_HOST_DETERMINISTIC ? DV_CTX_DETERMINISTIC : 0) | (flags & DV_HOST_CHECK ? DV_CTX_CHECK : 0) |
        (c->exceeds_cache ? DV_CTX_EXCEEDS_CACHE : 0);
    s->ctx.services = &all_services;
    s->ctx.workspace = NULL;
    s->ctx.workspace_size = 0;
    s->ctx.stream = NULL;
    s->ctx.device = c->device;
    s->ctx.origin = NULL;
    s->ctx.origin_ndim = 0;
    s->ctx.reserved = 0;
    s->call = c;
    s->blocks = NULL;
    s->index = -1;
    s->random_used = 0;
    s->in_chunk_loop = false;
}

void dv__slice_deinit(dv__slice *s)
{
    for (struct dv__slice_block *b = s->blocks, *next; b; b = next) {
        next = b->next;
        if (b->test_memory)
            s->call->host->test->free(s->call->host, b->test_memory);
        dv__free_aligned(b);
    }
    s->blocks = NULL;
}
