/* Unguarded calls: fast, from any thread, on slices of tensors.
 *
 * The arguments of a call lie in one reserved range of addresses. Everything that the host gives out (results, workspace,
 * dv_alloc()) lies in another, which each call uses from its beginning. So nothing is allocated, calls of several threads share
 * nothing, and the same call finds the same memory. Kernels that access memory out of bounds were found by guarded calls before.
 */
#include <string.h>

#include "check.h"

static const size_t ARGUMENT_BYTES = (size_t)64 << 20, HOST_BYTES = (size_t)128 << 20;

enum { ALIGNMENT = 64, PADDING_BYTES = 4096 };

/* ---- The host ---- */

/* Returns the unguarded call to which a host belongs. */
static check_unguarded_call *unguarded_get_call(const dv_host *host) { return (check_unguarded_call *)(uintptr_t)host; }

/* Returns zeroed memory from the call's own area; may be called in any thread. Returns NULL if this allocation is the one to
 * fail, or the area is used up. */
static void *unguarded_take_zeroed_memory(check_unguarded_call *p, size_t bytes, size_t alignment)
{
    const size_t count = __atomic_add_fetch(&p->allocations, 1, __ATOMIC_RELAXED);
    const size_t capacity = (bytes + alignment + PADDING_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (count == p->failing_allocation || bytes > HOST_BYTES)
        return NULL;
    const size_t at = __atomic_fetch_add(&p->host_memory_used, capacity, __ATOMIC_RELAXED);
    if (at + capacity > HOST_BYTES) {
        p->is_incomplete = true;
        return NULL;
    }
    void *memory = (void *)(((uintptr_t)p->host_memory + at + alignment - 1) / alignment * alignment);
    return memset(memory, 0, bytes);
}

typedef struct tensor_with_dims {
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
} tensor_with_dims;

/* Makes the struct of a result tensor without data. Returns NULL if memory is out. */
static tensor_with_dims *unguarded_alloc_tensor_struct(
    check_unguarded_call *p, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    tensor_with_dims *h = unguarded_take_zeroed_memory(p, sizeof *h, ALIGNMENT);
    if (!h)
        return NULL;
    memcpy(h->dims, shape, sizeof *shape * (size_t)ndim);
    memcpy(h->dims + DV_MAX_NDIM, strides, sizeof *strides * (size_t)ndim);
    h->t = (dv_tensor){ .device = device, .ndim = ndim, .dtype = dtype, .shape = h->dims, .strides = h->dims + DV_MAX_NDIM };
    return h;
}

/* dv_host.new_tensor: makes a result in the call's zeroed memory. */
static int unguarded_host_new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    int64_t last = 0;
    (void)index;
    for (int32_t i = 0; i < ndim; i++)
        last += (shape[i] - 1) * strides[i];
    const int64_t bytes = last < 0 ? 0 : dv_dtype_bytes(dtype, last + 1);
    tensor_with_dims *h = unguarded_alloc_tensor_struct(unguarded_get_call(host), dtype, device, ndim, shape, strides);
    if (!h || bytes < 0 || !(h->t.data = unguarded_take_zeroed_memory(unguarded_get_call(host), (size_t)bytes, ALIGNMENT)))
        return dv_fail(DV_ENOMEM, "out of memory: %lld bytes", (long long)bytes);
    *out = &h->t;
    return DV_OK;
}

/* dv_host.new_view: makes a result that is a view of `base`. */
static int unguarded_host_new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    (void)index;
    tensor_with_dims *h = unguarded_alloc_tensor_struct(
        unguarded_get_call(host), base->dtype, base->device, ndim, shape, strides);
    if (!h)
        return dv_fail(DV_ENOMEM, "out of memory");
    h->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    *out = &h->t;
    return DV_OK;
}

static void unguarded_host_free_tensor(
    const dv_host *host, dv_tensor *t) /* nothing is freed, because the next call reuses all memory */
{
    (void)host;
    (void)t;
}

/* dv_test_hooks.alloc: returns zeroed memory of the call. */
static void *unguarded_host_alloc(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)
{
    (void)use;
    (void)slot;
    return unguarded_take_zeroed_memory(unguarded_get_call(host), bytes, alignment < ALIGNMENT ? ALIGNMENT : alignment);
}

/* dv_test_hooks.free: does nothing, because the next call reuses all memory. */
static void unguarded_host_free(const dv_host *host, void *p)
{
    (void)host;
    (void)p;
}

/* dv_host.before_kernel: begins or continues to count the kernel's malloc() calls, since dv_set_output() interrupts a kernel
 * while the host allocates. */
static void unguarded_before_kernel(const dv_host *host)
{
    check_unguarded_call *p = unguarded_get_call(host);
    p->kernel_ran = true;
    if (p->counts_mallocs)
        check_heap_count_begin(p->failing_malloc > p->mallocs ? p->failing_malloc - p->mallocs : 0);
}

/* dv_host.after_kernel: stops counting the kernel's malloc() calls. */
static void unguarded_after_kernel(const dv_host *host)
{
    check_unguarded_call *p = unguarded_get_call(host);
    if (p->counts_mallocs)
        p->mallocs += check_heap_count_end();
}

/* ---- Calls ---- */

/* Prepares a call except for its argument tensors: host, hooks and values. Returns false if memory is out. */
static bool unguarded_try_init_without_arguments(
    check_unguarded_call *p, const check_op *op, const check_case *c, int32_t kernel_index)
{
    p->argument_memory = p->argument_memory ? p->argument_memory : check_reserve_memory(ARGUMENT_BYTES);
    p->host_memory = p->host_memory ? p->host_memory : check_reserve_memory(HOST_BYTES);
    p->op = op;
    p->c = c;
    p->argument_memory_used = 0;
    memset(p->saved, 0, sizeof p->saved);
    check_heap_zero_unguarded();
    p->failing_allocation = p->failing_malloc = 0;
    p->counts_mallocs = false;
    p->hooks = (dv_test_hooks){ .kernel_number = kernel_index, .alloc = unguarded_host_alloc, .free = unguarded_host_free };
    p->host = (dv_host){ .size = sizeof p->host,
        .name = "dovetail check",
        .new_tensor = unguarded_host_new_tensor,
        .free_tensor = unguarded_host_free_tensor,
        .new_view = unguarded_host_new_view,
        .before_kernel = unguarded_before_kernel,
        .after_kernel = unguarded_after_kernel,
        .test = &p->hooks };
    check_values_init_without_data(&p->values, c, (dv_device){ DV_CPU, 0 });
    return p->argument_memory && p->host_memory;
}

/* Returns memory for the data of one argument; NULL if the area for arguments is used up. */
static char *unguarded_take_argument_memory(check_unguarded_call *p, int64_t bytes)
{
    const size_t capacity = ((size_t)(bytes > 0 ? bytes : 0) + PADDING_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > (int64_t)ARGUMENT_BYTES || p->argument_memory_used + capacity > ARGUMENT_BYTES)
        return NULL;
    p->argument_memory_used += capacity;
    return p->argument_memory + p->argument_memory_used - capacity;
}

/* Keeps a copy of the contents of an argument if the operator writes it, so that each call can restore them. Returns false if
 * memory is out. */
static bool unguarded_try_save_written_contents(check_unguarded_call *p, size_t tensor, char *data, size_t bytes)
{
    const bool written = p->op->slots[check_find_tensor_slot(p->c, tensor)].flags & DV_SLOT_WRITES;
    char *copy = written ? unguarded_take_argument_memory(p, (int64_t)bytes) : NULL;
    if (copy)
        memcpy(copy, data, bytes);
    p->saved[tensor] = (check_saved_argument){ data, copy, copy ? bytes : 0 };
    return copy || !written;
}

bool check_unguarded_call_try_init(
    check_unguarded_call *call, const check_op *op, const check_kernel *kernel, const check_case *c)
{
    if (!unguarded_try_init_without_arguments(call, op, c, kernel ? kernel->hook_index : 0))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        int64_t low, high;
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        check_compute_strides(t, call->values.strides[i], &low, &high);
        const int64_t size = dv_dtype_bytes(t->dtype, 1);
        char *data = unguarded_take_argument_memory(call, (high - low + 1) * size);
        if (!data)
            return false;
        call->values.tensors[i].data = data - low * size;
        check_fill_tensor(t, c->seed + i, call->values.tensors[i].data, call->values.strides[i]);
        if (!unguarded_try_save_written_contents(call, i, data, (size_t)((high - low + 1) * size)))
            return false;
    }
    return true;
}

bool check_unguarded_call_try_init_overlap(check_unguarded_call *call, const check_op *op, const check_kernel *kernel,
    const check_case *c, size_t written, size_t read, int64_t distance)
{
    const int64_t n = check_tensor_numel(&c->tensors[written]), end = distance + check_tensor_numel(&c->tensors[read]),
                  size = dv_dtype_bytes(c->tensors[written].dtype, 1), low = distance < 0 ? distance : 0,
                  high = end > n ? end : n;
    char *const data = check_unguarded_call_try_init(call, op, kernel, c)
        ? unguarded_take_argument_memory(call, (high - low) * size)
        : NULL;
    if (!data)
        return false;
    call->values.tensors[written].data = data - low * size;
    call->values.tensors[read].data = data + (distance - low) * size;
    check_fill_tensor(&c->tensors[written], c->seed + written, call->values.tensors[written].data, call->values.strides[written]);
    check_fill_tensor(&c->tensors[read], c->seed + read, call->values.tensors[read].data, call->values.strides[read]);
    return unguarded_try_save_written_contents(call, written, data, (size_t)((high - low) * size));
}

bool check_unguarded_has_stray_write(const check_unguarded_call *call, size_t tensor)
{
    const check_saved_argument *w = &call->saved[tensor];
    const dv_tensor *t = &call->values.tensors[tensor];
    const size_t begin = (size_t)((const char *)t->data - w->data), end = begin + (size_t)dv_dtype_bytes(t->dtype, dv_numel(t));
    return memcmp(w->data, w->copy, begin) || memcmp(w->data + end, w->copy + end, w->bytes - end);
}

bool check_unguarded_call_try_init_slice(
    check_unguarded_call *call, const check_unguarded_call *whole_call, const int *axes, int64_t begin, int64_t end)
{
    const check_case *c = whole_call->c;
    if (!unguarded_try_init_without_arguments(call, whole_call->op, c, whole_call->hooks.kernel_number))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        if (!c->tensors[i].present)
            continue;
        dv_tensor from = whole_call->values.tensors[i], *to = &call->values.tensors[i];
        int64_t n = 1, *shape = call->slice_shapes[i], *strides = call->values.strides[i];
        const int64_t size = dv_dtype_bytes(from.dtype, 1);
        memcpy(shape, from.shape, sizeof *shape * (size_t)from.ndim);
        if (axes[i] >= 0) {
            shape[axes[i]] = end - begin;
            from.data = (char *)from.data + begin * from.strides[axes[i]] * size;
        }
        for (int32_t k = from.ndim; k-- > 0; n *= shape[k] ? shape[k] : 1)
            strides[k] = n;
        to->shape = from.shape = shape;
        if (!(to->data = unguarded_take_argument_memory(call, n * size)) || dv_tensor_copy(to, &from) ||
            !unguarded_try_save_written_contents(call, i, to->data, (size_t)(n * size)))
            return false;
    }
    return true;
}

void check_unguarded_call_run(check_unguarded_call *call)
{
    call->kernel_ran = call->is_incomplete = false;
    call->allocations = call->host_memory_used = call->mallocs = 0;
    for (size_t r = 0; r < call->op->nresults; r++)
        call->results[r] = dv_default();
    for (size_t i = 0; i < call->c->ntensors; i++)
        if (call->saved[i].bytes)
            memcpy(call->saved[i].data, call->saved[i].copy, call->saved[i].bytes);
    call->status = dv_call(call->op->op, call->values.values, call->c->nargs, call->results, call->op->nresults, &call->host);
    check_exit_if_kernel_left_process();
    if (!check_try_move_result_lists(call->op, call->results, call->list_tensors))
        call->status = DV_ELIMIT;
}
