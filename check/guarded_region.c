/* Regions of guarded memory: pages between inaccessible pages in one reserved range of addresses, and sparse memory. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "guarded.h"

enum { REGION_STRIDE = 1 << 18, SPARSE_CHUNK_BYTES = 1 << 24, MAX_MAPPED_BYTES = 1 << 26 };
/* Size of the reserved range. Tensors are placed from its middle on, so that an index that wraps at 2^32 elements stays inside
 * it. */
static const size_t MAX_AREA_BYTES = (size_t)1 << 36, MIN_AREA_BYTES = (size_t)1 << 30;

/* Address ranges of argument and result tensors of earlier calls, the last MAX_EARLIER_TENSORS of them. */
enum { MAX_EARLIER_TENSORS = 1024, NEAR_BYTES = 64 };
static struct {
    size_t n;
    struct address_range { uintptr_t begin, end; } of[MAX_EARLIER_TENSORS];
} earlier_tensors;

struct guarded_host check_guarded_host = { .lock = PTHREAD_MUTEX_INITIALIZER };

bool check_guarded_try_reserve_area(struct guarded_host *m)
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

void *check_guarded_as_pointer(uintptr_t p) { return (void *)p; }

/* Makes the pages [begin, end) inaccessible. Pages in the first MAX_MAPPED_BYTES keep their memory for the next call, since
 * mapping new pages takes most of the time. */
static void guarded_region_make_inaccessible(const struct guarded_host *m, uintptr_t begin, uintptr_t end)
{
    const uintptr_t stay = m->area_begin + MAX_MAPPED_BYTES, middle = end < stay ? end : begin > stay ? begin : stay;
    if (middle > begin)
        mprotect(check_guarded_as_pointer(begin), middle - begin, PROT_NONE);
    if (end > middle)
        mmap(check_guarded_as_pointer(middle), end - middle, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
            -1, 0);
}

void check_guarded_discard_reusable_regions(struct guarded_host *m)
{
    if (m->mapped_end > m->used_end)
        guarded_region_make_inaccessible(m, m->used_end, m->mapped_end);
    m->mapped_end = m->used_end;
    m->nreusable = m->nregions;
}

void check_guarded_begin_call(struct guarded_host *m)
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
            munmap(check_guarded_as_pointer(m->regions[i].begin - m->regions[i].sparse_margin),
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

bool check_guarded_was_earlier_tensor_address(const guarded_region *r, uintptr_t address)
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

const guarded_region *check_guarded_find_region(enum region_use use, size_t index)
{
    for (size_t i = 0; i < check_guarded_host.nregions; i++)
        if (check_guarded_host.regions[i].use == use && check_guarded_host.regions[i].index == index)
            return &check_guarded_host.regions[i];
    return NULL;
}

/* ---- Sparse memory: more addresses than bytes ---- */

/* Fills the addresses [begin, end) with mappings of the same SPARSE_CHUNK_BYTES, so that a huge tensor needs little memory.
 * Returns false if mmap() or mremap() fails. */
static bool guarded_region_try_map_repeated_pages(uintptr_t begin, uintptr_t end)
{
    void *chunk = mmap(NULL, SPARSE_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool done = chunk != MAP_FAILED;
    for (uintptr_t p = begin; p < end && done;
        p += SPARSE_CHUNK_BYTES) /* mremap() with an old size of 0 maps the shared pages once more, at p */
        done = mremap(chunk, 0, end - p < SPARSE_CHUNK_BYTES ? end - p : SPARSE_CHUNK_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
                   check_guarded_as_pointer(p)) != MAP_FAILED;
    if (chunk != MAP_FAILED)
        munmap(chunk, SPARSE_CHUNK_BYTES);
    return done;
}

guarded_region *check_guarded_alloc_sparse(
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
    void *p = mmap(check_guarded_as_pointer(m->sparse_hint), pages + 2 * margin, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    if (access == ACCESS_READ_ZEROS && mprotect(check_guarded_as_pointer(r->begin), pages, PROT_READ))
        return NULL;
    const void *last = check_guarded_as_pointer(r->end - GUARD_BYTES);
    if (access == ACCESS_REPEATED_PAGES &&
        (!guarded_region_try_map_repeated_pages(r->begin, r->end) ||
            mmap((void *)(uintptr_t)last, GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                MAP_FAILED))
        return NULL;
    return r;
}

/* Calls mprotect() for the pages that hold elements of a tensor with a wide stride. Returns false if that fails. */
static bool guarded_region_try_protect_wide_stride_elements(
    const guarded_region *r, const check_tensor *t, const int64_t *strides, int protection)
{
    const int32_t dim = check_find_wide_stride_dim(t);
    const int64_t size = dv_dtype_bytes(t->dtype, 1), bytes = check_tensor_numel(t) / t->shape[dim] * size;
    for (int64_t k = 0; k < t->shape[dim]; k++) {
        const uintptr_t at = r->first_element + (uintptr_t)(k * strides[dim] * size), page = at / PAGE_BYTES * PAGE_BYTES;
        if (mprotect(check_guarded_as_pointer(page), at - page + (size_t)bytes, protection))
            return false;
    }
    return true;
}

bool check_guarded_try_make_sparse_argument(struct guarded_host *m, size_t tensor_index, size_t bytes, bool written)
{
    const check_tensor *t = &m->c->tensors[tensor_index];
    const bool has_wide_stride = t->layout == CHECK_LAYOUT_WIDE_STRIDE && check_find_wide_stride_dim(t) >= 0;
    guarded_region *r = check_guarded_alloc_sparse(m, bytes, (size_t)dv_dtype_bytes(t->dtype, 1), USE_ARGUMENT, tensor_index,
        has_wide_stride ? ACCESS_NONE
            : written   ? ACCESS_REPEATED_PAGES
                        : ACCESS_READ_ZEROS);
    if (!r)
        return false;
    m->values.tensors[tensor_index].data = check_guarded_as_pointer(r->first_element);
    if (!has_wide_stride)
        return true;
    if (!guarded_region_try_protect_wide_stride_elements(r, t, m->values.strides[tensor_index], PROT_READ | PROT_WRITE))
        return false;
    check_fill_tensor(t, m->c->seed + tensor_index, check_guarded_as_pointer(r->first_element), m->values.strides[tensor_index]);
    return written || guarded_region_try_protect_wide_stride_elements(r, t, m->values.strides[tensor_index], PROT_READ);
}

/* ---- Regions ---- */

/* Returns the address at which the region after r begins. */
static uintptr_t guarded_region_get_next_region_address(const guarded_region *r)
{
    return (r->end + GUARD_BYTES + REGION_STRIDE - 1) / REGION_STRIDE * REGION_STRIDE;
}

guarded_region *check_guarded_reserve_region(
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
            guarded_region_get_next_region_address(r) != guarded_region_get_next_region_address(&one))
            check_guarded_discard_reusable_regions(m);
        else if (r->end != end && r->end > begin)
            guarded_region_make_inaccessible(m, begin, r->end);
        if (m->nregions >= m->nreusable || r->end != end)
            *reusable = (guarded_region){ .begin = 0 };
        *r = one;
        r->data = m->call->guard_side == CHECK_GUARD_AFTER ? (end - bytes) / alignment * alignment : begin;
        r->first_element = r->data -= min_aligned && r->data / alignment % 2 == 0 && r->data - alignment >= begin ? alignment : 0;
        m->nregions++;
        m->used_end = guarded_region_get_next_region_address(r);
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

bool check_guarded_try_map_and_fill_region(guarded_region *r, const guarded_region *reusable, int fill_byte)
{
    if (r->bytes && (!reusable->begin || reusable->is_readonly) &&
        mprotect(check_guarded_as_pointer(r->begin), r->end - r->begin, PROT_READ | PROT_WRITE)) {
        r->end = r->begin;
        return false;
    }
    memset(check_guarded_as_pointer(r->begin), GAP_BYTE, r->data - r->begin);
    memset(check_guarded_as_pointer(r->data), fill_byte, r->bytes);
    if (r->bytes)
        memset(check_guarded_as_pointer(r->data + r->bytes), GAP_BYTE, r->end - r->data - r->bytes);
    return true;
}

bool check_guarded_try_make_readonly(guarded_region *r)
{
    r->is_readonly = r->bytes && !mprotect(check_guarded_as_pointer(r->begin), r->end - r->begin, PROT_READ);
    return r->is_readonly || !r->bytes;
}

bool check_guarded_can_reuse_readonly_bytes(guarded_region *r, const guarded_region *reusable, const void *data)
{
    r->is_readonly = reusable->is_readonly && !reusable->is_freed && reusable->data == r->data && reusable->bytes == r->bytes &&
        !memcmp(check_guarded_as_pointer(r->data), data, r->bytes);
    return r->is_readonly;
}

uint8_t check_guarded_get_poison(const check_guarded_call *call, enum check_undefined_memory memory)
{
    return memory && memory == call->other_memory ? call->other_poison_byte : call->poison_byte;
}

guarded_region *check_guarded_alloc_poisoned(
    struct guarded_host *m, size_t bytes, size_t alignment, enum region_use use, size_t index)
{
    static const enum check_undefined_memory memory[] = { [USE_RESULT] = CHECK_RESULT_MEMORY,
        [USE_WORKSPACE] = CHECK_WORKSPACE_MEMORY,
        [USE_KERNEL] = CHECK_DV_ALLOC_MEMORY,
        [USE_SCRATCH] = CHECK_SCRATCH_MEMORY };
    const bool is_known = (size_t)use < sizeof memory / sizeof *memory;
    guarded_region reusable, *r = check_guarded_reserve_region(m, bytes, alignment, use, index, &reusable);
    const uint8_t poison = check_guarded_get_poison(m->call, is_known ? memory[use] : CHECK_NO_MEMORY);
    return r && check_guarded_try_map_and_fill_region(r, &reusable, poison) ? r : NULL;
}

const void *check_guarded_alloc_readonly_copy(
    struct guarded_host *m, const void *data, size_t bytes, size_t alignment, enum region_use use, size_t index)
{
    guarded_region reusable, *r = check_guarded_reserve_region(m, bytes, alignment, use, index, &reusable);
    if (r && !check_guarded_can_reuse_readonly_bytes(r, &reusable, data)) {
        if (!check_guarded_try_map_and_fill_region(r, &reusable, GAP_BYTE))
            return NULL;
        if (bytes)
            memcpy(check_guarded_as_pointer(r->data), data, bytes);
        check_guarded_try_make_readonly(r);
    }
    return r ? check_guarded_as_pointer(r->data) : NULL;
}

bool check_guarded_has_changed_gap_byte(const guarded_region *r, const uint8_t **first_changed)
{
    *first_changed = check_find_first_unequal_byte(r->begin, r->data, GAP_BYTE);
    *first_changed = *first_changed ? *first_changed : check_find_first_unequal_byte(r->data + r->bytes, r->end, GAP_BYTE);
    return *first_changed;
}
