/* Guarded calls: each tensor lies against an inaccessible page.
 *
 * One large range of addresses is reserved. Each tensor of a call gets pages of its own in it, with inaccessible pages on both
 * sides, and touches one of them; in another call the other. Inputs are made read-only after they are filled, and so are sizes,
 * strides, lists and strings. A kernel that reads sizes of a dim that is not there, or past the end of a list, faults as well.
 * The workspace and memory of dv_alloc() come from here through the host's hooks; malloc() is in guarded_heap.c. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "guarded.h"

enum {
    MAX_UNREUSED_REGIONS = 64, /* number of regions beyond which freed memory is used again within a call */
    MIN_SPARSE_BYTES = 1 << 28,
    FILLED_STACK_BYTES = 1 << 16
};

/* Makes the struct of a result tensor with read-only sizes and strides, without data. index < 0: a temporary of a decomposition.
 * Returns NULL if memory is out. */
static host_tensor *guarded_alloc_tensor_struct(struct guarded_host *m, int index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides)
{
    const size_t bytes = sizeof *shape * (size_t)ndim, of = FIRST_RESULT_INDEX + (size_t)index;
    const bool temporary = index <
        0; /* a decomposition made the tensor: only kernels of the base operators see it, and no checked kernel */
    host_tensor *t = calloc(1, sizeof *t + (temporary ? 2 * bytes : 0));
    const int64_t *sizes = !t ? NULL
        : temporary           ? t->local_dims
                              : check_guarded_alloc_readonly_copy(m, shape, bytes, sizeof *shape, USE_SHAPE, of);
    const int64_t *steps = !sizes ? NULL
        : temporary               ? t->local_dims + ndim
                                  : check_guarded_alloc_readonly_copy(m, strides, bytes, sizeof *strides, USE_STRIDES, of);
    if (!steps) {
        free(t);
        return NULL;
    }
    if (temporary && ndim) {
        memcpy(t->local_dims, shape, bytes);
        memcpy(t->local_dims + ndim, strides, bytes);
    }
    t->t = (dv_tensor){ .device = device, .ndim = ndim, .dtype = dtype, .shape = sizes, .strides = steps };
    t->index = index;
    t->next = m->host_tensors;
    m->host_tensors = t;
    return t;
}

/* dv_host.new_tensor: allocates a result in guarded or sparse memory. */
static int guarded_host_new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    struct guarded_host *m = &check_guarded_host;
    int64_t last = 0, n = 1;
    (void)host;
    for (int32_t i = 0; i < ndim; i++) {
        last += (shape[i] - 1) * strides[i];
        n *= shape[i];
    }
    const int64_t bytes = n ? dv_dtype_bytes(dtype, last + 1) : 0;
    host_tensor *t = guarded_alloc_tensor_struct(m, index, dtype, device, ndim, shape, strides);
    const size_t alignment = dtype.bits >= 8 ? dtype.bits / 8u : 1;
    const enum region_use use = index < 0 ? USE_TEMPORARY : USE_RESULT;
    guarded_region *r = !t         ? NULL
        : bytes < MIN_SPARSE_BYTES ? check_guarded_alloc_poisoned(m, (size_t)bytes, alignment, use, (size_t)index)
                                   : check_guarded_alloc_sparse(m, (size_t)bytes, (size_t)dv_dtype_bytes(dtype, 1), use,
                                         (size_t)index, ACCESS_REPEATED_PAGES);
    m->lacked_memory |= !r && index >= 0;
    if (!r)
        return dv_fail(DV_ENOMEM, "out of memory: %lld bytes", (long long)bytes);
    if (r->sparse_margin)
        memset(check_guarded_as_pointer(r->data + r->bytes - GUARD_BYTES), m->call->poison_byte, GUARD_BYTES);
    t->t.data = check_guarded_as_pointer(r->data);
    t->as_allocated = t->t;
    *out = &t->t;
    return DV_OK;
}

/* dv_host.new_view. */
static int guarded_host_new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    (void)host;
    host_tensor *t = guarded_alloc_tensor_struct(&check_guarded_host, index, base->dtype, base->device, ndim, shape, strides);
    if (!t)
        return dv_fail(DV_ENOMEM, "out of memory");
    t->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    t->as_allocated = t->t;
    t->is_view = true;
    *out = &t->t;
    return DV_OK;
}

static void guarded_host_free_tensor(const dv_host *host, dv_tensor *t) /* check_guarded_begin_call() frees the struct */
{
    (void)host;
    (void)t;
}

/* dv_test_hooks.alloc: returns guarded memory for staging copies, workspace, dv_alloc() or scratch; NULL if that fails. */
static void *guarded_host_alloc(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)
{
    (void)host;
    static const enum region_use uses_by_kind[] = { [DV_MEMORY_STAGING_COPY] = USE_STAGING_COPY,
        [DV_MEMORY_WORKSPACE] = USE_WORKSPACE,
        [DV_MEMORY_KERNEL] = USE_KERNEL,
        [DV_MEMORY_SCRATCH] = USE_SCRATCH };
    struct guarded_host *m = &check_guarded_host;
    guarded_region *r = bytes < MIN_SPARSE_BYTES
        ? check_guarded_alloc_poisoned(m, bytes, alignment < PAGE_BYTES ? alignment : PAGE_BYTES, uses_by_kind[use], (size_t)slot)
        : NULL;
    if (r && r->use == USE_SCRATCH) {
        m->call->allocated_scratch = true;
        if (m->call->keep_scratch_contents)
            memcpy(check_guarded_as_pointer(r->data), m->left_scratch,
                bytes < m->left_scratch_bytes ? bytes : m->left_scratch_bytes);
    }
    return r ? check_guarded_as_pointer(r->data) : NULL;
}

/* dv_test_hooks.free: marks a region as freed. Most memory stays accessible until the next call. Scratch of a chunk becomes
 * inaccessible at once; with more than MAX_UNREUSED_REGIONS regions, other memory does, too, and the last regions are used again.
 * A region with changed bytes around it stays, so that the fault is reported. */
static void guarded_host_free(const dv_host *host, void *p)
{
    struct guarded_host *m = &check_guarded_host;
    const uint8_t *at;
    (void)host;
    pthread_mutex_lock(&m->lock);
    const size_t n = m->nregions;
    const uintptr_t used = m->used_end;
    for (size_t i = n; i-- > 0;) {
        guarded_region *r = &m->regions[i];
        if ((r->use != USE_SCRATCH && n <= MAX_UNREUSED_REGIONS) || r->data != (uintptr_t)p || r->is_freed)
            continue;
        if (check_guarded_has_changed_gap_byte(r, &at))
            break;
        if (m->call->keep_scratch_contents && r->use == USE_SCRATCH) {
            m->left_scratch_bytes = r->bytes < MAX_LEFT_BYTES ? r->bytes : MAX_LEFT_BYTES;
            memcpy(m->left_scratch, check_guarded_as_pointer(r->data), m->left_scratch_bytes);
        }
        r->is_readonly = (i < n - 1 || n <= MAX_UNREUSED_REGIONS) &&
            !mprotect(check_guarded_as_pointer(r->begin), r->end - r->begin, PROT_NONE);
        r->is_freed = true;
        break;
    }
    while (m->nregions > MAX_UNREUSED_REGIONS && m->regions[m->nregions - 1].is_freed)
        m->used_end = m->regions[--m->nregions].begin - GUARD_BYTES;
    if (m->nregions < n) {
        m->nreusable = n;
        m->mapped_end = used;
    }
    pthread_mutex_unlock(&m->lock);
}

/* Fills the stack below this frame, where the kernel's variables will be, with the byte `poison`. */
__attribute__((noinline)) static void guarded_poison_stack(uint8_t poison)
{
    uint8_t below[FILLED_STACK_BYTES];
    memset(below, poison, sizeof below);
    __asm__ volatile("" ::"r"(below) : "memory"); /* keeps the compiler from removing the memset() */
}

/* Fills `bytes` bytes of the stack below with a pattern and returns 0. With `measure`, fills nothing and returns how many of
 * these bytes were changed since: the stack depth of the call in between. */
__attribute__((noinline)) static size_t guarded_fill_or_measure_stack(size_t bytes, bool measure)
{
    unsigned char *const below = __builtin_alloca(bytes);
    size_t same = 0;
    __asm__ volatile("" ::"r"(below) : "memory");
    if (!measure)
        memset(below, GAP_BYTE, bytes);
    while (measure && same < bytes && below[same] == GAP_BYTE)
        same++;
    __asm__ volatile("" ::"r"(below) : "memory");
    return bytes - same;
}

/* dv_host.before_kernel: begins to guard malloc(), and sets errno and the contents of the stack. Core also calls it when a kernel
 * continues after dv_set_output(). */
static void guarded_before_kernel(const dv_host *host)
{
    (void)host;
    check_guarded_discard_reusable_regions(&check_guarded_host);
    if (check_guarded_host.call->poisoned_stack_bytes)
        guarded_fill_or_measure_stack(check_guarded_host.call->poisoned_stack_bytes, false);
    check_guarded_host.call->kernel_ran = check_guarded_host.in_kernel = true;
    check_heap_guard_begin(
        check_guarded_host.call->guard_side, check_guarded_get_poison(check_guarded_host.call, CHECK_MALLOC_MEMORY));
    errno = check_guarded_host.call->initial_errno;
    guarded_poison_stack(
        check_guarded_host.call->stack_poison_byte); /* a tail call: its frame begins where the kernel's frame will */
}

/* dv_host.after_kernel: ends the guarding of malloc(), and measures the stack that the kernel used. */
static void guarded_after_kernel(const dv_host *host)
{
    (void)host;
    check_guarded_host.in_kernel = false;
    check_heap_guard_end();
    if (check_guarded_host.call->poisoned_stack_bytes) {
        const size_t depth = guarded_fill_or_measure_stack(check_guarded_host.call->poisoned_stack_bytes, true);
        check_guarded_host.call->used_stack_bytes = depth > check_guarded_host.call->used_stack_bytes
            ? depth
            : check_guarded_host.call->used_stack_bytes;
    }
}

/* Makes one argument tensor in guarded memory, write-protected if the schema only reads it. Returns false if that fails. */
static bool guarded_try_make_argument(struct guarded_host *m, size_t tensor_index)
{
    const check_tensor *t = &m->c->tensors[tensor_index];
    const bool written = m->call->op->slots[check_find_tensor_slot(m->c, tensor_index)].flags & DV_SLOT_WRITES;
    int64_t low, high, *strides = m->values.strides[tensor_index];
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    if (!t->present)
        return true;
    check_compute_strides(t, strides, &low, &high);
    if ((high - low + 1) * size >= MIN_SPARSE_BYTES)
        return check_guarded_try_make_sparse_argument(m, tensor_index, (size_t)((high - low + 1) * size), written);
    guarded_region reusable,
        *r = check_guarded_reserve_region(m, (size_t)((high - low + 1) * size), (size_t)(t->dtype.code == 5 ? size / 2 : size),
            USE_ARGUMENT, tensor_index, &reusable);
    if (!r)
        return false;
    r->first_element = r->data + (uintptr_t)(-low * size);
    m->values.tensors[tensor_index].data = check_guarded_as_pointer(r->first_element);
    return check_guarded_try_fill_argument_elements(m, tensor_index, r, &reusable) &&
        (written || r->is_readonly || check_guarded_try_make_readonly(r));
}

/* Replaces the sizes and strides of an argument tensor by read-only guarded copies. Returns false if that fails. */
static bool guarded_try_make_readonly_shape_and_strides(struct guarded_host *m, size_t tensor_index)
{
    dv_tensor *t = &m->values.tensors[tensor_index];
    const size_t bytes = sizeof *t->shape * (size_t)t->ndim;
    const int64_t *sizes = check_guarded_alloc_readonly_copy(m, t->shape, bytes, sizeof *sizes, USE_SHAPE, tensor_index);
    const int64_t *steps = sizes
        ? check_guarded_alloc_readonly_copy(m, t->strides, bytes, sizeof *steps, USE_STRIDES, tensor_index)
        : NULL;
    t->shape = sizes;
    t->strides = steps;
    return steps != NULL;
}

/* Replaces the array or text of a list or string argument by a read-only guarded copy. Returns false if that fails. */
static bool guarded_try_make_readonly_list_data(struct guarded_host *m, size_t slot)
{
    dv_value *v = &m->values.values[slot];
    const dv_field_row *row = dv_field_of_value(v->type), *element = dv_field_at(row->of);
    for (size_t k = 0; v->type == DV_VALUE_STRINGS && k < v->as.strings.size; k++) {
        dv_string *s = &m->values.strings[slot][k];
        if (!(s->data = check_guarded_alloc_readonly_copy(m, s->data, s->size + 1, 1, USE_LIST_DATA, slot)))
            return false;
    }
    if (v->type == DV_VALUE_STRING) /* the copy includes the terminating 0 */
        return (v->as.s.data = check_guarded_alloc_readonly_copy(m, v->as.s.data, v->as.s.size + 1, 1, USE_LIST_DATA, slot)) !=
            NULL;
    if (row->form != DV_FORM_LIST)
        return true;
    v->as.ints.data = check_guarded_alloc_readonly_copy(m, v->as.ints.data, v->as.ints.size * element->size, element->alignment,
        USE_LIST_DATA, slot); /* all lists have one layout */
    return v->as.ints.data != NULL;
}

static const unsigned char given_generator;

/* dv_host.random: notes whether the kernel uses a Generator argument or the default generator, and returns seed 1 and offset 0.
 */
static int guarded_host_random(
    const dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    (void)host;
    (void)count;
    *(generator ? &check_guarded_host.call->used_given_generator : &check_guarded_host.call->used_default_generator) = true;
    *seed = 1;
    *offset = 0;
    return DV_OK;
}

/* Makes all arguments of a case in guarded memory. Returns false if memory is out. */
static bool guarded_try_make_arguments(struct guarded_host *m, const check_case *c)
{
    bool made = true;
    for (size_t i = 0; i < c->ntensors && made; i++)
        made = guarded_try_make_argument(m, i) && guarded_try_make_readonly_shape_and_strides(m, i);
    for (size_t i = 0; i < c->nargs && made; i++)
        made = guarded_try_make_readonly_list_data(m, i);
    return made;
}

void check_guarded_call_run(check_guarded_call *call, const check_case *c)
{
    struct guarded_host *m = &check_guarded_host;
    const int32_t kernel_index = call->kernel ? call->kernel->hook_index : 0;
    m->call = call;
    m->c = c;
    call->kernel_ran = call->kernel_declined = call->used_given_generator = call->used_default_generator = false;
    call->used_stack_bytes = 0;
    check_heap_forget_faults();
    for (size_t r = 0; r < CHECK_MAX_RESULTS; r++)
        call->results[r] = dv_default();
    const bool has_area = check_guarded_try_reserve_area(m);
    if (has_area) {
        check_guarded_begin_call(m);
        check_values_init_without_data(&m->values, c, (dv_device){ DV_CPU, 0 });
    }
    if (!has_area || !guarded_try_make_arguments(m, c)) {
        m->lacked_memory = true;
        call->status = dv_fail(DV_ENOMEM, "no memory for the arguments");
        return;
    }
    for (size_t i = 0; i < c->nargs && call->pass_generator_values; i++)
        if (call->op->slots[i].type == DV_FIELD_GENERATOR)
            m->values.values[i] = (dv_value){ .type = DV_VALUE_GENERATOR,
                .as.generator = (const dv_generator *)&given_generator };
    m->hooks = (dv_test_hooks){ .kernel_number = kernel_index,
        .no_split = call->ignore_split,
        .alloc = guarded_host_alloc,
        .free = guarded_host_free,
        .on_parallel_loop = call->loop,
        .fill_byte = call->number_poison_byte,
        .watch = call->watch_field,
        .watched_slot = call->watched_slot };
    m->host = (dv_host){ .size = sizeof m->host,
        .flags = call->host_flags,
        .name = "dovetail check",
        .new_tensor = guarded_host_new_tensor,
        .free_tensor = guarded_host_free_tensor,
        .new_view = guarded_host_new_view,
        .before_kernel = guarded_before_kernel,
        .after_kernel = guarded_after_kernel,
        .parallel_for = call->parallel_for,
        .random = call->pass_generator_values ? guarded_host_random : NULL,
        .test = &m->hooks };
    call->status = dv_call(call->op->op, m->values.values, c->nargs, call->results, call->op->nresults, &m->host);
    check_exit_if_kernel_left_process();
    if (!check_try_move_result_lists(call->op, call->results, call->list_tensors))
        call->status = DV_ELIMIT;
    call->kernel_declined = call->status == DV_ENOKERNEL && !call->kernel_ran && kernel_index;
}

bool check_guarded_call_lacked_memory(void) { return check_guarded_host.lacked_memory; }

const dv_tensor *check_get_last_argument_tensors(void) { return check_guarded_host.values.tensors; }

const dv_tensor *check_get_last_tensor(size_t tensor) { return &check_guarded_host.values.tensors[tensor]; }

bool check_result_iterator_try_next(const check_guarded_call *call, check_result_iterator *iterator)
{
    for (; iterator->result < call->op->nresults; iterator->result++, iterator->next = 0) {
        const dv_value *v = &call->results[iterator->result];
        const bool list = v->type == DV_VALUE_TENSORS;
        const size_t n = list ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        while (iterator->next < n) {
            const dv_tensor *t = list ? v->as.tensors.data[iterator->next] : v->as.tensor;
            iterator->element = iterator->next++;
            for (const host_tensor *m = check_guarded_host.host_tensors; m; m = m->next)
                if (t == &m->t && !m->is_view) {
                    iterator->t = t;
                    iterator->as_allocated = &m->as_allocated;
                    return true;
                }
        }
    }
    return false;
}

const char *check_format_result_tensor(
    const check_guarded_call *call, const check_result_iterator *iterator, char *buffer, size_t size)
{
    const bool list = call->results[iterator->result].type == DV_VALUE_TENSORS;
    const int n = list ? snprintf(buffer, size, "element %zu of ", iterator->element) : 0;
    check_format_result_name(call->op, iterator->result, buffer + n, size - (size_t)n);
    return buffer;
}
