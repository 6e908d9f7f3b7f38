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
#include <sys/resource.h>

#include "check.h"

enum {
    PAGE_BYTES = 4096,
    GUARD_BYTES = 16 * PAGE_BYTES,
    MAX_REGIONS = 4096,
    MAX_UNREUSED_REGIONS = 64, /* number of regions beyond which freed memory is used again within a call */
    GAP_BYTE = 0xc3,
    MIN_SPARSE_BYTES = 1 << 28,
    REGION_STRIDE = 1 << 18,
    SPARSE_CHUNK_BYTES = 1 << 24,
    MAX_MAPPED_BYTES = 1 << 26,
    FILLED_STACK_BYTES = 1 << 16,
    MAX_LEFT_BYTES = 1 << 16
};
/* Size of the reserved range. Tensors are placed from its middle on, so that an index that wraps at 2^32 elements stays inside
 * it. */
static const size_t MAX_AREA_BYTES = (size_t)1 << 36, MIN_AREA_BYTES = (size_t)1 << 30;

/* Uses of a region of guarded memory. For USE_SHAPE and USE_STRIDES, guarded_region.index is that of the tensor, or
 * FIRST_RESULT_INDEX + that of the result. USE_LIST_DATA: array or text of a list or string argument. */
enum region_use {
    USE_ARGUMENT,
    USE_RESULT,
    USE_TEMPORARY,
    USE_WORKSPACE,
    USE_KERNEL,
    USE_SCRATCH,
    USE_STAGING_COPY,
    USE_SHAPE,
    USE_STRIDES,
    USE_LIST_DATA
};
enum { FIRST_RESULT_INDEX = CHECK_MAX_TENSORS };
typedef struct guarded_region {
    uintptr_t begin, end;          /* addresses of the first page, and after the last one */
    uintptr_t data, first_element; /* data: address of the lowest byte; first_element: address of the element with index 0 */
    size_t bytes, sparse_margin;   /* sparse_margin: bytes reserved before and after sparse memory; 0: not sparse */
    enum region_use use;
    size_t index;     /* index of the case's tensor, of the result, or of the argument, by `use` */
    bool is_readonly; /* the pages of the region are write-protected */
    bool is_freed;    /* the memory was given back: its pages are inaccessible */
} guarded_region;

typedef struct host_tensor {
    dv_tensor t, as_allocated;
    int index;
    bool is_view;
    struct host_tensor *next;
    int64_t local_dims[]; /* for a temporary of a decomposition: its sizes, then its strides */
} host_tensor;

/* Address ranges of argument and result tensors of earlier calls, the last MAX_EARLIER_TENSORS of them. */
enum { MAX_EARLIER_TENSORS = 1024, NEAR_BYTES = 64 };
static struct {
    size_t n;
    struct address_range { uintptr_t begin, end; } of[MAX_EARLIER_TENSORS];
} earlier_tensors;

/* The host, and the state of the current call. */
static struct guarded_host {
    dv_host host;
    dv_test_hooks hooks; /* test hooks, to which `host` points */
    check_guarded_call *call;
    const check_case *c;
    uintptr_t area, area_begin, used_end,
        mapped_end; /* area: the reserved range; area_begin: its middle, where tensors begin; used_end: end of this call's
                       regions; mapped_end: end of accessible pages */
    size_t area_bytes;
    uintptr_t sparse_hint; /* address at which the next sparse memory is asked for, near the last one, since qemu keeps some bytes
                              for each page ever mapped */
    guarded_region regions[MAX_REGIONS];
    size_t nregions,
        nreusable; /* nregions: regions of this call; nreusable: regions in the array that still are as the last call left them */
    host_tensor *host_tensors;
    bool in_kernel, lacked_memory;
    check_values values;
    pthread_mutex_t lock;
    uint8_t
        left_scratch[MAX_LEFT_BYTES]; /* first bytes of the scratch that the last chunk of a call with reuse_scratch gave back */
    size_t left_scratch_bytes;
} guarded_host = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Reserves the range of addresses for guarded memory at the first call, as large as possible between MIN_AREA_BYTES and
 * MAX_AREA_BYTES. Returns false if none can be reserved. */
static bool guarded_try_reserve_area(struct guarded_host *m)
{
    if (m->area)
        return true;
    void *p = MAP_FAILED;
    for (size_t bytes = MAX_AREA_BYTES; p == MAP_FAILED && bytes >= MIN_AREA_BYTES; bytes /= 2) {
        p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        m->area_bytes = bytes;
    }
    if (p == MAP_FAILED)
        return false;
    m->area = (uintptr_t)p;
    m->used_end = m->area_begin = m->area + m->area_bytes / 2;
    return true;
}

/* Converts an address to a pointer. */
static void *guarded_as_pointer(uintptr_t p) { return (void *)p; }

/* Makes the pages [begin, end) inaccessible. Pages in the first MAX_MAPPED_BYTES keep their memory for the next call, since
 * mapping new pages takes most of the time. */
static void guarded_make_inaccessible(const struct guarded_host *m, uintptr_t begin, uintptr_t end)
{
    const uintptr_t stay = m->area_begin + MAX_MAPPED_BYTES, middle = end < stay ? end : begin > stay ? begin : stay;
    if (middle > begin)
        mprotect(guarded_as_pointer(begin), middle - begin, PROT_NONE);
    if (end > middle)
        mmap(guarded_as_pointer(middle), end - middle, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Makes all pages inaccessible that the last call left after this call's regions. */
static void guarded_discard_reusable_regions(struct guarded_host *m)
{
    if (m->mapped_end > m->used_end)
        guarded_make_inaccessible(m, m->used_end, m->mapped_end);
    m->mapped_end = m->used_end;
    m->nreusable = m->nregions;
}

/* Begins a call: frees the last call's result structs and sparse memory, notes the addresses of its tensors, and starts with no
 * regions. Other pages stay mapped for reuse. */
static void guarded_begin_call(struct guarded_host *m)
{
    for (host_tensor *t = m->host_tensors, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    m->host_tensors = NULL;
    m->nreusable = m->nreusable > m->nregions ? m->nreusable : m->nregions;
    m->mapped_end = m->mapped_end > m->used_end ? m->mapped_end : m->used_end;
    for (size_t i = m->nregions; i-- > 0;)
        if (m->regions[i].sparse_margin) {
            munmap(guarded_as_pointer(m->regions[i].begin - m->regions[i].sparse_margin),
                m->regions[i].end - m->regions[i].begin + 2 * m->regions[i].sparse_margin);
            m->sparse_hint = m->regions[i].begin - m->regions[i].sparse_margin;
            m->nreusable = i;
        }
    for (size_t i = 0; i < m->nregions; i++)
        if (m->regions[i].use == USE_ARGUMENT || m->regions[i].use == USE_RESULT)
            earlier_tensors.of[earlier_tensors.n++ % MAX_EARLIER_TENSORS] = (struct address_range){ m->regions[i].data,
                m->regions[i].data + m->regions[i].bytes };
    m->used_end = m->area_begin;
    m->nregions = 0;
}

/* True if an address is not near region r, but was inside an argument or result of an earlier call. */
static bool guarded_was_earlier_tensor_address(const guarded_region *r, uintptr_t address)
{
    bool was = false;
    for (size_t i = 0; i < MAX_EARLIER_TENSORS && i < earlier_tensors.n; i++)
        was |= address >= earlier_tensors.of[i].begin && address < earlier_tensors.of[i].end;
    return was && (address + NEAR_BYTES < r->data || address >= r->data + r->bytes + NEAR_BYTES);
}

const char *check_get_earlier_tensor_note(bool was_earlier)
{
    return was_earlier ? ", where an argument or result of an earlier call was" : "";
}

/* ---- Sparse memory: more addresses than bytes ---- */

enum sparse_access {
    ACCESS_NONE,
    ACCESS_READ_ZEROS,
    ACCESS_REPEATED_PAGES
}; /* access to sparse memory. ACCESS_READ_ZEROS: all bytes read as 0. ACCESS_REPEATED_PAGES: the same few pages are mapped again
      and again, except at the end */

/* Fills the addresses [begin, end) with mappings of the same SPARSE_CHUNK_BYTES, so that a huge tensor needs little memory.
 * Returns false if mmap() or mremap() fails. */
static bool guarded_try_map_repeated_pages(uintptr_t begin, uintptr_t end)
{
    void *chunk = mmap(NULL, SPARSE_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool done = chunk != MAP_FAILED;
    for (uintptr_t p = begin; p < end && done;
        p += SPARSE_CHUNK_BYTES) /* mremap() with an old size of 0 maps the shared pages once more, at p */
        done = mremap(chunk, 0, end - p < SPARSE_CHUNK_BYTES ? end - p : SPARSE_CHUNK_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
                   guarded_as_pointer(p)) != MAP_FAILED;
    if (chunk != MAP_FAILED)
        munmap(chunk, SPARSE_CHUNK_BYTES);
    return done;
}

/* Allocates a region of sparse memory that ends at a guard page. As many addresses as a wrong 32-bit index can reach are reserved
 * before and after it. Returns NULL if that fails. */
static guarded_region *guarded_alloc_sparse(
    struct guarded_host *m, size_t bytes, size_t element_size, enum region_use use, size_t index, enum sparse_access access)
{
    const size_t pages = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, margin = (element_size << 31) + GUARD_BYTES;
    struct rlimit limit;
    if (!getrlimit(RLIMIT_AS, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_AS, &limit);
    }
    if (m->nregions == MAX_REGIONS)
        return NULL;
    void *p = mmap(
        guarded_as_pointer(m->sparse_hint), pages + 2 * margin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    m->sparse_hint = (uintptr_t)p + pages + 2 * margin;
    guarded_region *r = &m->regions[m->nregions++];
    *r = (guarded_region){ .begin = (uintptr_t)p + margin,
        .end = (uintptr_t)p + margin + pages,
        .bytes = bytes,
        .sparse_margin = margin,
        .use = use,
        .index = index };
    r->data = r->first_element = r->end - bytes;
    if (access == ACCESS_READ_ZEROS && mprotect(guarded_as_pointer(r->begin), pages, PROT_READ))
        return NULL;
    const void *last = guarded_as_pointer(r->end - GUARD_BYTES);
    if (access == ACCESS_REPEATED_PAGES &&
        (!guarded_try_map_repeated_pages(r->begin, r->end) ||
            mmap((void *)(uintptr_t)last, GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                MAP_FAILED))
        return NULL;
    return r;
}

/* Calls mprotect() for the pages that hold elements of a tensor with a wide stride. Returns false if that fails. */
static bool guarded_try_protect_wide_stride_elements(
    const guarded_region *r, const check_tensor *t, const int64_t *strides, int protection)
{
    const int32_t dim = check_find_wide_stride_dim(t);
    const int64_t size = dv_dtype_bytes(t->dtype, 1), bytes = check_tensor_numel(t) / t->shape[dim] * size;
    for (int64_t k = 0; k < t->shape[dim]; k++) {
        const uintptr_t at = r->first_element + (uintptr_t)(k * strides[dim] * size), page = at / PAGE_BYTES * PAGE_BYTES;
        if (mprotect(guarded_as_pointer(page), at - page + (size_t)bytes, protection))
            return false;
    }
    return true;
}

/* Makes an argument tensor in sparse memory: one with a wide stride, which is filled, or a huge one, which reads as zeros or
 * repeated pages. Returns false if that fails. */
static bool guarded_try_make_sparse_argument(struct guarded_host *m, size_t tensor_index, size_t bytes, bool written)
{
    const check_tensor *t = &m->c->tensors[tensor_index];
    const bool has_wide_stride = t->layout == CHECK_LAYOUT_WIDE_STRIDE && check_find_wide_stride_dim(t) >= 0;
    guarded_region *r = guarded_alloc_sparse(m, bytes, (size_t)dv_dtype_bytes(t->dtype, 1), USE_ARGUMENT, tensor_index,
        has_wide_stride ? ACCESS_NONE
            : written   ? ACCESS_REPEATED_PAGES
                        : ACCESS_READ_ZEROS);
    if (!r)
        return false;
    m->values.tensors[tensor_index].data = guarded_as_pointer(r->first_element);
    if (!has_wide_stride)
        return true;
    if (!guarded_try_protect_wide_stride_elements(r, t, m->values.strides[tensor_index], PROT_READ | PROT_WRITE))
        return false;
    check_fill_tensor(t, m->c->seed + tensor_index, guarded_as_pointer(r->first_element), m->values.strides[tensor_index]);
    return written || guarded_try_protect_wide_stride_elements(r, t, m->values.strides[tensor_index], PROT_READ);
}

/* ---- Regions ---- */

/* Returns the address at which the region after r begins. */
static uintptr_t guarded_get_next_region_address(const guarded_region *r)
{
    return (r->end + GUARD_BYTES + REGION_STRIDE - 1) / REGION_STRIDE * REGION_STRIDE;
}

/* Reserves addresses for a region, and aligns its data. *reusable: receives the last call's region whose pages are at the same
 * place; its `begin` is 0 if there is none. Returns NULL if there are too many bytes or regions. */
static guarded_region *guarded_reserve_region(
    struct guarded_host *m, size_t bytes, size_t alignment, enum region_use use, size_t index, guarded_region *reusable)
{
    guarded_region *r = NULL;
    pthread_mutex_lock(&m->lock);
    /* Memory for a kernel is aligned as it asks, and in half of the cases no better. An argument is aligned to its element size
     * only, if check_uses_min_alignment() is true and always_ends_at_guard is not set. */
    bool min_aligned = m->call->guard_side == CHECK_GUARD_AFTER &&
        (use >= USE_WORKSPACE && use <= USE_SCRATCH
                ? m->c->seed & 2
                : use == USE_ARGUMENT && !m->call->always_ends_at_guard && check_uses_min_alignment(m->c));
    for (size_t i = 0; i < m->nregions && min_aligned; i++)
        min_aligned = !m->regions[i].sparse_margin; /* calls with sparse memory are few, so exact bounds matter more */
    const size_t pages = (bytes + (min_aligned ? 2 : 1) * alignment - 1 + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (m->nregions < MAX_REGIONS && bytes < m->area_bytes &&
        m->used_end + 2 * GUARD_BYTES + REGION_STRIDE + pages < m->area + m->area_bytes) {
        const uintptr_t begin = m->used_end + GUARD_BYTES, end = begin + (bytes ? pages : 0);
        guarded_region one = { .begin = begin, .end = end, .bytes = bytes, .use = use, .index = index };
        r = &m->regions[m->nregions];
        *reusable = *r;
        if (m->nregions >= m->nreusable || r->begin != begin ||
            guarded_get_next_region_address(r) != guarded_get_next_region_address(&one))
            guarded_discard_reusable_regions(m);
        else if (r->end != end && r->end > begin)
            guarded_make_inaccessible(m, begin, r->end);
        if (m->nregions >= m->nreusable || r->end != end)
            *reusable = (guarded_region){ .begin = 0 };
        *r = one;
        r->data = m->call->guard_side == CHECK_GUARD_AFTER ? (end - bytes) / alignment * alignment : begin;
        r->first_element = r->data -= min_aligned && r->data / alignment % 2 == 0 && r->data - alignment >= begin ? alignment : 0;
        m->nregions++;
        m->used_end = guarded_get_next_region_address(r);
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

/* Makes the pages of a region accessible, fills its data with fill_byte and the rest of its pages with GAP_BYTE. Returns false if
 * mprotect() fails. */
static bool guarded_try_map_and_fill_region(guarded_region *r, const guarded_region *reusable, int fill_byte)
{
    if (r->bytes && (!reusable->begin || reusable->is_readonly) &&
        mprotect(guarded_as_pointer(r->begin), r->end - r->begin, PROT_READ | PROT_WRITE)) {
        r->end = r->begin;
        return false;
    }
    memset(guarded_as_pointer(r->begin), GAP_BYTE, r->data - r->begin);
    memset(guarded_as_pointer(r->data), fill_byte, r->bytes);
    if (r->bytes)
        memset(guarded_as_pointer(r->data + r->bytes), GAP_BYTE, r->end - r->data - r->bytes);
    return true;
}

/* Makes the pages of a region read-only. Returns false if that fails. */
static bool guarded_try_make_readonly(guarded_region *r)
{
    r->is_readonly = r->bytes && !mprotect(guarded_as_pointer(r->begin), r->end - r->begin, PROT_READ);
    return r->is_readonly || !r->bytes;
}

/* True if the last call's region at the same place holds the same bytes and is read-only; then r needs no copy and is marked
 * read-only. */
static bool guarded_can_reuse_readonly_bytes(guarded_region *r, const guarded_region *reusable, const void *data)
{
    r->is_readonly = reusable->is_readonly && !reusable->is_freed && reusable->data == r->data && reusable->bytes == r->bytes &&
        !memcmp(guarded_as_pointer(r->data), data, r->bytes);
    return r->is_readonly;
}

/* Returns the byte that fills one kind of undefined memory in a call. */
static uint8_t guarded_get_poison(const check_guarded_call *call, enum check_undefined_memory memory)
{
    return memory && memory == call->other_memory ? call->other_poison_byte : call->poison_byte;
}

/* Allocates a region whose data is filled with the call's poison byte. Returns NULL if there are too many bytes or regions. */
static guarded_region *guarded_alloc_poisoned(
    struct guarded_host *m, size_t bytes, size_t alignment, enum region_use use, size_t index)
{
    static const enum check_undefined_memory memory[] = { [USE_RESULT] = CHECK_RESULT_MEMORY,
        [USE_WORKSPACE] = CHECK_WORKSPACE_MEMORY,
        [USE_KERNEL] = CHECK_DV_ALLOC_MEMORY,
        [USE_SCRATCH] = CHECK_SCRATCH_MEMORY };
    const bool is_known = (size_t)use < sizeof memory / sizeof *memory;
    guarded_region reusable, *r = guarded_reserve_region(m, bytes, alignment, use, index, &reusable);
    const uint8_t poison = guarded_get_poison(m->call, is_known ? memory[use] : CHECK_NO_MEMORY);
    return r && guarded_try_map_and_fill_region(r, &reusable, poison) ? r : NULL;
}

/* Returns a read-only copy of `bytes` bytes of data in guarded memory. Returns NULL if that fails. */
static const void *guarded_alloc_readonly_copy(
    struct guarded_host *m, const void *data, size_t bytes, size_t alignment, enum region_use use, size_t index)
{
    guarded_region reusable, *r = guarded_reserve_region(m, bytes, alignment, use, index, &reusable);
    if (r && !guarded_can_reuse_readonly_bytes(r, &reusable, data)) {
        if (!guarded_try_map_and_fill_region(r, &reusable, GAP_BYTE))
            return NULL;
        if (bytes)
            memcpy(guarded_as_pointer(r->data), data, bytes);
        guarded_try_make_readonly(r);
    }
    return r ? guarded_as_pointer(r->data) : NULL;
}

/* ---- The host ---- */

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
                              : guarded_alloc_readonly_copy(m, shape, bytes, sizeof *shape, USE_SHAPE, of);
    const int64_t *steps = !sizes ? NULL
        : temporary               ? t->local_dims + ndim
                                  : guarded_alloc_readonly_copy(m, strides, bytes, sizeof *strides, USE_STRIDES, of);
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
    struct guarded_host *m = &guarded_host;
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
    guarded_region *r = !t ? NULL
        : bytes < MIN_SPARSE_BYTES
        ? guarded_alloc_poisoned(m, (size_t)bytes, alignment, use, (size_t)index)
        : guarded_alloc_sparse(m, (size_t)bytes, (size_t)dv_dtype_bytes(dtype, 1), use, (size_t)index, ACCESS_REPEATED_PAGES);
    m->lacked_memory |= !r && index >= 0;
    if (!r)
        return dv_fail(DV_ENOMEM, "out of memory: %lld bytes", (long long)bytes);
    if (r->sparse_margin)
        memset(guarded_as_pointer(r->data + r->bytes - GUARD_BYTES), m->call->poison_byte, GUARD_BYTES);
    t->t.data = guarded_as_pointer(r->data);
    t->as_allocated = t->t;
    *out = &t->t;
    return DV_OK;
}

/* dv_host.new_view. */
static int guarded_host_new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    (void)host;
    host_tensor *t = guarded_alloc_tensor_struct(&guarded_host, index, base->dtype, base->device, ndim, shape, strides);
    if (!t)
        return dv_fail(DV_ENOMEM, "out of memory");
    t->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    t->as_allocated = t->t;
    t->is_view = true;
    *out = &t->t;
    return DV_OK;
}

static void guarded_host_free_tensor(const dv_host *host, dv_tensor *t) /* guarded_begin_call() frees the struct */
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
    struct guarded_host *m = &guarded_host;
    guarded_region *r = bytes < MIN_SPARSE_BYTES
        ? guarded_alloc_poisoned(m, bytes, alignment < PAGE_BYTES ? alignment : PAGE_BYTES, uses_by_kind[use], (size_t)slot)
        : NULL;
    if (r && r->use == USE_SCRATCH) {
        m->call->allocated_scratch = true;
        if (m->call->keep_scratch_contents)
            memcpy(guarded_as_pointer(r->data), m->left_scratch, bytes < m->left_scratch_bytes ? bytes : m->left_scratch_bytes);
    }
    return r ? guarded_as_pointer(r->data) : NULL;
}

/* True if some byte between a region's data and its page bounds changed. *first_changed: address of the first one. */
static bool guarded_has_changed_gap_byte(const guarded_region *r, const uint8_t **first_changed)
{
    *first_changed = check_find_first_unequal_byte(r->begin, r->data, GAP_BYTE);
    *first_changed = *first_changed ? *first_changed : check_find_first_unequal_byte(r->data + r->bytes, r->end, GAP_BYTE);
    return *first_changed;
}

/* dv_test_hooks.free: marks a region as freed. Most memory stays accessible until the next call. Scratch of a chunk becomes
 * inaccessible at once; with more than MAX_UNREUSED_REGIONS regions, other memory does, too, and the last regions are used again.
 * A region with changed bytes around it stays, so that the fault is reported. */
static void guarded_host_free(const dv_host *host, void *p)
{
    struct guarded_host *m = &guarded_host;
    const uint8_t *at;
    (void)host;
    pthread_mutex_lock(&m->lock);
    const size_t n = m->nregions;
    const uintptr_t used = m->used_end;
    for (size_t i = n; i-- > 0;) {
        guarded_region *r = &m->regions[i];
        if ((r->use != USE_SCRATCH && n <= MAX_UNREUSED_REGIONS) || r->data != (uintptr_t)p || r->is_freed)
            continue;
        if (guarded_has_changed_gap_byte(r, &at))
            break;
        if (m->call->keep_scratch_contents && r->use == USE_SCRATCH) {
            m->left_scratch_bytes = r->bytes < MAX_LEFT_BYTES ? r->bytes : MAX_LEFT_BYTES;
            memcpy(m->left_scratch, guarded_as_pointer(r->data), m->left_scratch_bytes);
        }
        r->is_readonly = (i < n - 1 || n <= MAX_UNREUSED_REGIONS) &&
            !mprotect(guarded_as_pointer(r->begin), r->end - r->begin, PROT_NONE);
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
    guarded_discard_reusable_regions(&guarded_host);
    if (guarded_host.call->poisoned_stack_bytes)
        guarded_fill_or_measure_stack(guarded_host.call->poisoned_stack_bytes, false);
    guarded_host.call->kernel_ran = guarded_host.in_kernel = true;
    check_heap_guard_begin(guarded_host.call->guard_side, guarded_get_poison(guarded_host.call, CHECK_MALLOC_MEMORY));
    errno = guarded_host.call->initial_errno;
    guarded_poison_stack(guarded_host.call->stack_poison_byte); /* a tail call: its frame begins where the kernel's frame will */
}

/* dv_host.after_kernel: ends the guarding of malloc(), and measures the stack that the kernel used. */
static void guarded_after_kernel(const dv_host *host)
{
    (void)host;
    guarded_host.in_kernel = false;
    check_heap_guard_end();
    if (guarded_host.call->poisoned_stack_bytes) {
        const size_t depth = guarded_fill_or_measure_stack(guarded_host.call->poisoned_stack_bytes, true);
        guarded_host.call->used_stack_bytes = depth > guarded_host.call->used_stack_bytes ? depth
                                                                                          : guarded_host.call->used_stack_bytes;
    }
}

/* ---- Calls ---- */

/* Elements that were last made for each argument tensor, because one case is called several times, and drawing elements takes
 * most of the time. */
static struct tensor_contents {
    check_tensor tensor;
    uint64_t seed;
    unsigned char *bytes;
    size_t size;
} tensor_contents[CHECK_MAX_TENSORS];

/* Multiplies each element by 1 + relative_change or 1 - relative_change, at random. relative_change 0: makes each square matrix
 * the identity. Elements that several indices share stay as they are, unless relative_change is 0. */
static void guarded_perturb_or_make_identity(const check_tensor *t, void *first, const int64_t *strides, double relative_change)
{
    const bool square = t->ndim > 1 && t->shape[t->ndim - 1] == t->shape[t->ndim - 2];
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    check_random r = { 1 };
    dv_dtype dtype = t->dtype;
    const int parts = check_get_component_count_and_dtype(&dtype);
    for (int64_t n = check_tensor_numel(t); n-- > 0;) {
        int64_t at = 0;
        bool is_aliased = false; /* several indices share the element, by a stride of 0 */
        for (int32_t d = 0; d < t->ndim; d++) {
            at += index[d] * strides[d];
            is_aliased |= index[d] && !strides[d];
        }
        for (int64_t k = at * parts; k < (at + 1) * parts && relative_change > 0 && !is_aliased; k++) {
            const double x = check_element_get(first, k, dtype);
            check_element_put(first, k, dtype, check_random_next(&r) & 1 ? x + relative_change * x : x - relative_change * x);
        }
        if (!(relative_change > 0) && square)
            check_element_put(first, at, t->dtype, index[t->ndim - 1] == index[t->ndim - 2]);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

bool check_can_replace_elements(const check_tensor *t)
{
    return check_is_float_dtype(t->dtype) ||
        (check_is_integer_dtype(t->dtype) && t->dtype.bits >= 8 && t->low < t->high && !check_has_positional_fill(t));
}

/* Adds a step, of any sign, to each integer, where the sum is in the range of range_dtype. Elements that several indices
 * share stay as they are. */
static void guarded_add_step_to_integers(
    const check_tensor *t, void *first, const int64_t *strides, dv_dtype range_dtype, double step)
{
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    for (int64_t n = check_tensor_numel(t); n-- > 0;) {
        int64_t at = 0;
        bool is_aliased = false;
        for (int32_t d = 0; d < t->ndim; d++) {
            at += index[d] * strides[d];
            is_aliased |= index[d] && !strides[d];
        }
        const double x = check_element_get(first, at, t->dtype) + step;
        if (!is_aliased && check_is_in_integer_range(range_dtype, x))
            check_element_put(first, at, t->dtype, x);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

/* Replaces each element of a tensor: floats by 2.5 or -0.5 times their value, at random, and integers by an end of their range.
 */
static void guarded_replace_elements(const check_tensor *t, void *first, const int64_t *strides)
{
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    if (check_is_float_dtype(t->dtype)) {
        guarded_perturb_or_make_identity(t, first, strides, 1.5);
        return;
    }
    for (int64_t n = check_tensor_numel(t); n-- > 0;) {
        int64_t at = 0;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * strides[d];
        check_element_put(first, at, t->dtype, check_element_get(first, at, t->dtype) > t->low ? t->low : t->high);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

/* Fills to_tensor with the elements that from_tensor, of the same shape, has with this seed, converted to the dtype of
 * to_tensor. Returns false if memory is out. */
static bool guarded_try_convert_elements(
    const check_tensor *from_tensor, uint64_t seed, const check_tensor *to_tensor, void *to_first, const int64_t *to_strides)
{
    int64_t from_strides[CHECK_MAX_DIMS], low, high, index[CHECK_MAX_DIMS] = { 0 };
    check_compute_strides(from_tensor, from_strides, &low, &high);
    const int64_t size = dv_dtype_bytes(from_tensor->dtype, 1);
    char *bytes = malloc((size_t)((high - low + 1) * size) + 1), *origin = bytes ? bytes - low * size : NULL;
    dv_dtype from_component = from_tensor->dtype, to_component = to_tensor->dtype;
    const int ncomponents = check_get_component_count_and_dtype(&from_component);
    check_get_component_count_and_dtype(&to_component);
    if (bytes)
        check_fill_tensor(from_tensor, seed, origin, from_strides);
    for (int64_t n = bytes ? check_tensor_numel(to_tensor) : 0; n-- > 0;) {
        int64_t at = 0, to = 0;
        for (int32_t d = 0; d < to_tensor->ndim; d++) {
            at += index[d] * from_strides[d];
            to += index[d] * to_strides[d];
        }
        if (dv_dtype_key(from_tensor->dtype) == dv_dtype_key(to_tensor->dtype))
            memcpy((char *)to_first + to * size, origin + at * size, (size_t)size);
        for (int k = 0; dv_dtype_key(from_tensor->dtype) != dv_dtype_key(to_tensor->dtype) && k < ncomponents; k++)
            check_element_put(
                to_first, to * ncomponents + k, to_component, check_element_get(origin, at * ncomponents + k, from_component));
        for (int32_t d = to_tensor->ndim; d-- > 0 && ++index[d] == to_tensor->shape[d];)
            index[d] = 0;
    }
    free(bytes);
    return bytes != NULL;
}

/* Fills an argument tensor with its elements: reuses the last call's pages, copies remembered bytes, or draws them. Then perturbs
 * or replaces elements if the call asks for that. reusable: the last call's region. Returns false if memory is out. */
static bool guarded_try_fill_argument_elements(
    struct guarded_host *m, size_t tensor_index, guarded_region *r, const guarded_region *reusable)
{
    struct tensor_contents *k = &tensor_contents[tensor_index];
    const check_tensor *t = &m->c->tensors[tensor_index];
    const check_case *as = m->call->contents_from;
    const bool known = !as && k->bytes && k->seed == m->c->seed + tensor_index && k->size == r->bytes &&
        !memcmp(&k->tensor, t, sizeof *t);
    const bool replaced = m->call->replaced_tensor_plus_1 == tensor_index + 1;
    const bool steps = (m->call->integer_step > 0 || m->call->integer_step < 0) && t->dtype.code < 2 && t->dtype.bits >= 8 &&
        !m->call->op->is_bounded[check_find_tensor_slot(m->c, tensor_index)];
    const bool moved = steps ||
        ((m->call->relative_perturbation > 0 || m->call->use_identity_matrices) && check_is_float_dtype(t->dtype)) ||
        (m->call->relative_perturbation > 0 && check_is_complex_dtype(t->dtype)) || (replaced && check_can_replace_elements(t));
    if (known && !moved && guarded_can_reuse_readonly_bytes(r, reusable, k->bytes))
        return true;
    if (!guarded_try_map_and_fill_region(r, reusable, GAP_BYTE))
        return false;
    if (known) {
        memcpy(guarded_as_pointer(r->data), k->bytes, r->bytes);
    } else if (as) {
        if (!guarded_try_convert_elements(&as->tensors[tensor_index], as->seed + tensor_index, t,
                guarded_as_pointer(r->first_element), m->values.strides[tensor_index]))
            return false;
    } else {
        check_fill_tensor(t, m->c->seed + tensor_index, guarded_as_pointer(r->first_element), m->values.strides[tensor_index]);
        free(k->bytes);
        *k = (struct tensor_contents){
            .tensor = *t, .seed = m->c->seed + tensor_index, .bytes = malloc(r->bytes + 1), .size = r->bytes
        };
        if (k->bytes)
            memcpy(k->bytes, guarded_as_pointer(r->data), r->bytes);
    }
    if (steps) {
        guarded_add_step_to_integers(t, guarded_as_pointer(r->first_element), m->values.strides[tensor_index],
            as ? as->tensors[tensor_index].dtype : t->dtype, m->call->integer_step);
    } else if (replaced && moved) {
        const double first = check_element_get(guarded_as_pointer(r->first_element), 0, t->dtype);
        guarded_replace_elements(t, guarded_as_pointer(r->first_element), m->values.strides[tensor_index]);
        if (m->call->keep_first_element)
            check_element_put(guarded_as_pointer(r->first_element), 0, t->dtype, first);
    } else if (moved) {
        guarded_perturb_or_make_identity(
            t, guarded_as_pointer(r->first_element), m->values.strides[tensor_index], m->call->relative_perturbation);
    }
    return true;
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
        return guarded_try_make_sparse_argument(m, tensor_index, (size_t)((high - low + 1) * size), written);
    guarded_region reusable,
        *r = guarded_reserve_region(m, (size_t)((high - low + 1) * size), (size_t)(t->dtype.code == 5 ? size / 2 : size),
            USE_ARGUMENT, tensor_index, &reusable);
    if (!r)
        return false;
    r->first_element = r->data + (uintptr_t)(-low * size);
    m->values.tensors[tensor_index].data = guarded_as_pointer(r->first_element);
    return guarded_try_fill_argument_elements(m, tensor_index, r, &reusable) &&
        (written || r->is_readonly || guarded_try_make_readonly(r));
}

/* Replaces the sizes and strides of an argument tensor by read-only guarded copies. Returns false if that fails. */
static bool guarded_try_make_readonly_shape_and_strides(struct guarded_host *m, size_t tensor_index)
{
    dv_tensor *t = &m->values.tensors[tensor_index];
    const size_t bytes = sizeof *t->shape * (size_t)t->ndim;
    const int64_t *sizes = guarded_alloc_readonly_copy(m, t->shape, bytes, sizeof *sizes, USE_SHAPE, tensor_index);
    const int64_t *steps = sizes ? guarded_alloc_readonly_copy(m, t->strides, bytes, sizeof *steps, USE_STRIDES, tensor_index)
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
        if (!(s->data = guarded_alloc_readonly_copy(m, s->data, s->size + 1, 1, USE_LIST_DATA, slot)))
            return false;
    }
    if (v->type == DV_VALUE_STRING) /* the copy includes the terminating 0 */
        return (v->as.s.data = guarded_alloc_readonly_copy(m, v->as.s.data, v->as.s.size + 1, 1, USE_LIST_DATA, slot)) != NULL;
    if (row->form != DV_FORM_LIST)
        return true;
    v->as.ints.data = guarded_alloc_readonly_copy(m, v->as.ints.data, v->as.ints.size * element->size, element->alignment,
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
    *(generator ? &guarded_host.call->used_given_generator : &guarded_host.call->used_default_generator) = true;
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
    struct guarded_host *m = &guarded_host;
    const int32_t kernel_index = call->kernel ? call->kernel->hook_index : 0;
    m->call = call;
    m->c = c;
    call->kernel_ran = call->kernel_declined = call->used_given_generator = call->used_default_generator = false;
    call->used_stack_bytes = 0;
    check_heap_forget_faults();
    for (size_t r = 0; r < CHECK_MAX_RESULTS; r++)
        call->results[r] = dv_default();
    const bool has_area = guarded_try_reserve_area(m);
    if (has_area) {
        guarded_begin_call(m);
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
    check_exit_if_kernel_forked();
    if (!check_try_move_result_lists(call->op, call->results, call->list_tensors))
        call->status = DV_ELIMIT;
    call->kernel_declined = call->status == DV_ENOKERNEL && !call->kernel_ran && kernel_index;
}

bool check_guarded_call_lacked_memory(void) { return guarded_host.lacked_memory; }

const dv_tensor *check_get_last_argument_tensors(void) { return guarded_host.values.tensors; }

const dv_tensor *check_get_last_tensor(size_t tensor) { return &guarded_host.values.tensors[tensor]; }

bool check_result_iterator_try_next(const check_guarded_call *call, check_result_iterator *iterator)
{
    for (; iterator->result < call->op->nresults; iterator->result++, iterator->next = 0) {
        const dv_value *v = &call->results[iterator->result];
        const bool list = v->type == DV_VALUE_TENSORS;
        const size_t n = list ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        while (iterator->next < n) {
            const dv_tensor *t = list ? v->as.tensors.data[iterator->next] : v->as.tensor;
            iterator->element = iterator->next++;
            for (const host_tensor *m = guarded_host.host_tensors; m; m = m->next)
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

/* Returns this call's region with this use and index; NULL if there is none. */
static const guarded_region *guarded_find_region(enum region_use use, size_t index)
{
    for (size_t i = 0; i < guarded_host.nregions; i++)
        if (guarded_host.regions[i].use == use && guarded_host.regions[i].index == index)
            return &guarded_host.regions[i];
    return NULL;
}

/* Sets is_element for each byte of a tensor's memory that belongs to an element. low: offset of the lowest element in elements.
 */
static void guarded_mark_element_bytes(const check_tensor *t, const int64_t *strides, int64_t size, int64_t low, bool *is_element)
{
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    for (int64_t n = check_tensor_numel(t); n-- > 0;) {
        int64_t at = -low;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * strides[d];
        memset(is_element + at * size, true, (size_t)size);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

bool check_has_write_between_elements(const check_case *c, size_t tensor, int64_t *offset)
{
    const guarded_region *r = guarded_find_region(USE_ARGUMENT, tensor);
    const check_tensor *t = &c->tensors[tensor];
    int64_t strides[CHECK_MAX_DIMS], low, high;
    if (!r || !r->bytes || (t->layout != CHECK_LAYOUT_SLICED && t->layout != CHECK_LAYOUT_PADDED))
        return false;
    bool *is_element = calloc(r->bytes, 1), changed = false;
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    check_compute_strides(t, strides, &low, &high);
    if (is_element)
        guarded_mark_element_bytes(t, strides, size, low, is_element);
    for (size_t i = 0; is_element && i < r->bytes && !changed; i++)
        if (!is_element[i] && ((const uint8_t *)guarded_as_pointer(r->data))[i] != GAP_BYTE) {
            *offset = (int64_t)i + low * size;
            changed = true;
        }
    free(is_element);
    return changed;
}

bool check_has_written_argument(size_t tensor)
{
    const guarded_region *r = guarded_find_region(USE_ARGUMENT, tensor);
    const struct tensor_contents *k = &tensor_contents[tensor];
    return !r || !k->bytes || r->bytes != k->size || memcmp(guarded_as_pointer(r->data), k->bytes, k->size) != 0;
}

/* Sets the name of a region's memory ("argument 'x'", "the workspace") and whether it is read-only, metadata or in a list result.
 */
static void guarded_describe_region(const guarded_region *r, check_memory_location *out)
{
    const check_op *op = guarded_host.call->op;
    const bool header = r->use == USE_SHAPE || r->use == USE_STRIDES,
               of_result = r->use == USE_RESULT || (header && r->index >= FIRST_RESULT_INDEX);
    const bool of_tensor = r->use == USE_ARGUMENT || (header && !of_result);
    const size_t slot = of_tensor ? check_find_tensor_slot(guarded_host.c, r->index)
        : of_result               ? op->nargs + r->index - (header ? FIRST_RESULT_INDEX : 0)
                                  : r->index;
    const bool list = slot < op->nargs && guarded_host.c->args[slot].type == DV_VALUE_TENSORS && of_tensor;
    const char *part = r->use == USE_SHAPE ? "the sizes of "
        : r->use == USE_STRIDES            ? "the strides of "
        : r->use == USE_STAGING_COPY       ? "the contiguous copy of "
        : r->use == USE_LIST_DATA          ? "the list or string of "
                                           : "";
    out->is_metadata = header || r->use == USE_LIST_DATA;
    out->is_in_result_list = r->use == USE_RESULT && op->slots[slot].type == DV_FIELD_TENSORS;
    switch (r->use) {
    case USE_WORKSPACE: snprintf(out->description, sizeof out->description, "the workspace"); return;
    case USE_KERNEL: snprintf(out->description, sizeof out->description, "memory of dv_alloc()"); return;
    case USE_SCRATCH:
        snprintf(out->description, sizeof out->description, "the scratch of a chunk%s", r->is_freed ? " that has returned" : "");
        return;
    case USE_TEMPORARY: snprintf(out->description, sizeof out->description, "a temporary of the decomposition"); return;
    case USE_STAGING_COPY:
    case USE_ARGUMENT:
    case USE_RESULT:
    case USE_SHAPE:
    case USE_STRIDES:
    case USE_LIST_DATA: break;
    }
    const char *name = slot < op->nargs + op->nresults ? op->slots[slot].name : "";
    const char *kind = slot < op->nargs ? "argument" : "result";
    if (list)
        snprintf(out->description, sizeof out->description, "%sargument '%s[%zu]'", part, name,
            r->index - guarded_host.c->args[slot].first_tensor);
    else if (*name)
        snprintf(out->description, sizeof out->description, "%s%s '%s'", part, kind, name);
    else
        snprintf(out->description, sizeof out->description, "%sresult %zu", part, slot - op->nargs);
    out->is_readonly = out->is_metadata || (r->use == USE_ARGUMENT && !(op->slots[slot].flags & DV_SLOT_WRITES));
}

bool check_has_write_next_to_memory(char *description, size_t size)
{
    for (size_t i = 0; i < guarded_host.nregions; i++) {
        const guarded_region *r = &guarded_host.regions[i];
        const uint8_t *p;
        if (!r->bytes || r->sparse_margin || r->use == USE_ARGUMENT || r->use >= USE_SHAPE || r->is_freed)
            continue;
        if (guarded_has_changed_gap_byte(r, &p)) {
            check_memory_location location = { .description = "" };
            guarded_describe_region(r, &location);
            snprintf(description, size, "%s, which has %zu bytes: byte %lld%s", location.description, r->bytes,
                (long long)((int64_t)(uintptr_t)p - (int64_t)r->data),
                check_get_earlier_tensor_note(guarded_was_earlier_tensor_address(r, (uintptr_t)p)));
            return true;
        }
    }
    return check_heap_has_write_next_to_block(description, size);
}

/* Returns the size in bytes of an element of an argument's region. */
static uintptr_t guarded_get_element_size(const guarded_region *argument)
{
    return (uintptr_t)dv_dtype_bytes(guarded_host.c->tensors[argument->index].dtype, 1);
}

bool check_is_in_kernel(void) { return guarded_host.in_kernel; }

bool check_has_empty_workspace(void)
{
    const check_json *workspace = guarded_host.call ? check_json_find_member(guarded_host.call->op->program, "workspace") : NULL;
    if (!workspace || workspace->kind == CHECK_JSON_NULL || !guarded_host.call->kernel_ran)
        return false;
    for (size_t i = 0; i < guarded_host.c->ntensors; i++)
        if (!guarded_host.c->tensors[i].present)
            return false;
    for (size_t i = 0; i < guarded_host.nregions; i++)
        if (guarded_host.regions[i].use == USE_WORKSPACE)
            return false;
    return true;
}

bool check_try_find_nearest_memory(const void *address, check_memory_location *out)
{
    const uintptr_t p = (uintptr_t)address;
    const guarded_region *best = NULL;
    uintptr_t nearest = UINTPTR_MAX;
    memset(out, 0, sizeof *out);
    if (check_heap_try_find_location(address, out))
        return true;
    bool ours = guarded_host.area && p >= guarded_host.area && p < guarded_host.area + guarded_host.area_bytes;
    for (size_t i = 0; i < guarded_host.nregions && !ours; i++) {
        const guarded_region *r = &guarded_host.regions[i];
        ours = r->sparse_margin && p >= r->begin - r->sparse_margin && p < r->end + r->sparse_margin;
    }
    if (!ours || !guarded_host.call)
        return false;
    for (size_t i = 0; i < guarded_host.nregions; i++)
        for (int wrapped = 0; wrapped < 3; wrapped++) { /* a wrong index may have lost or gained 2^32 elements */
            const guarded_region *r = &guarded_host.regions[i];
            const uintptr_t by = wrapped && r->use == USE_ARGUMENT ? guarded_get_element_size(r) << 32 : 0;
            const uintptr_t at = wrapped == 1 ? p - by : p + by;
            const uintptr_t distance = at < r->data ? r->data - at : at < r->data + r->bytes ? 0 : at - (r->data + r->bytes) + 1;
            if (distance < nearest)
                nearest = distance, best = r;
        }
    const bool inside = best && p >= best->data && p < best->data + best->bytes;
    if (!best)
        return false;
    guarded_describe_region(best, out);
    out->is_inside = inside;
    out->is_freed = best->is_freed;
    out->is_in_sparse_range = best->sparse_margin != 0;
    out->is_between_elements = inside && best->sparse_margin && best->use == USE_ARGUMENT &&
        guarded_host.c->tensors[best->index].layout == CHECK_LAYOUT_WIDE_STRIDE;
    out->is_earlier_tensor = guarded_was_earlier_tensor_address(best, p);
    out->offset = (int64_t)p - (int64_t)best->first_element;
    out->low = (int64_t)best->data - (int64_t)best->first_element;
    out->high = out->low + (int64_t)best->bytes;
    return true;
}
