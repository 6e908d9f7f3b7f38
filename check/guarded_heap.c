/* malloc() while a kernel runs: every block lies between guard pages, is filled with the poison byte, and cannot be accessed
 * after it is freed.
 *
 * The command defines malloc() and its family. Outside of kernels, and for core, which allocates for each chunk of a call, they
 * are libc's own. A block that a kernel keeps, such as a table that it makes once, stays as it is. Addresses are never reused.
 * When the addresses, the table of blocks or MAX_LIVE_BLOCKS are used up, malloc() returns libc's own memory. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

const uint8_t *check_find_first_unequal_byte(uintptr_t begin, uintptr_t end, uint8_t expected)
{
    const uint8_t *p = (const void *)begin, *const last = (const void *)end;
    if (begin >= end ||
        (*p == expected &&
            !memcmp(
                p, p + 1, end - begin - 1))) /* the first byte is `expected`, and each further one equals the byte before it */
        return NULL;
    while (p < last && *p == expected)
        p++;
    return p;
}

/* Defined where a sanitizer brings its own malloc(). gcc defines macros for sanitizers, clang has features. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

#if defined(__GLIBC__) && !defined(SANITIZED)

/* MAX_LIVE_BLOCKS: limit on guarded blocks that are not freed. Each splits a mapping in two, and Linux allows a process 65,530
 * mappings (vm.max_map_count). If a kernel that leaks used them up, mprotect() of the tensors' pages would fail. */
enum { PAGE_BYTES = 4096, GUARD_BYTES = 16 * PAGE_BYTES, MAX_BLOCKS = 1 << 15, MAX_LIVE_BLOCKS = 1 << 13, MARGIN_BYTE = 0xc3 };
static const size_t AREA_BYTES = (size_t)1 << 33;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);

typedef struct heap_block {
    uintptr_t begin, end, data;
    size_t bytes;
    bool freed;
} heap_block;
static heap_block *blocks;           /* sorted by their addresses */
static size_t nblocks, nlive_blocks; /* number of guarded blocks; number of those that are not freed */
static uintptr_t area_begin, area_used_end;
static atomic_bool guards_are_active, zero_unguarded, overwrite_freed;
static enum check_guard_side guard_side;
static uint8_t poison_byte;
static bool has_wrong_free;
static atomic_bool is_counting;
static atomic_size_t allocation_count, failing_allocation; /* allocation_count: number of allocations since the count began;
                                                              failing_allocation: number of the one that fails, from 1; 0: none */
static struct {
    bool found;
    size_t bytes;
    int64_t offset;
} has_overrun;                      /* first write next to a block that was found, where no guard page fits */
static atomic_size_t overlap_bytes; /* size in bytes of the kernel's last memcpy() to overlapping memory; 0: none */
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;

static void *heap_core_malloc(void *user, size_t size);
static void *heap_core_realloc(void *user, void *p, size_t size);
static void heap_core_free(void *user, void *p);

void check_heap_guard_begin(enum check_guard_side guarded_side, uint8_t poison)
{
    if (!area_begin) {
        dv_set_allocator(&(dv_allocator){ heap_core_malloc, heap_core_realloc, heap_core_free, NULL });
        void *p = mmap(NULL, AREA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        blocks = mmap(
            NULL, MAX_BLOCKS * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED || blocks == MAP_FAILED)
            return;
        area_begin = area_used_end = (uintptr_t)p;
    }
    guard_side = guarded_side;
    poison_byte = poison;
    atomic_store(&guards_are_active, true);
}

void check_heap_forget_faults(void)
{
    has_overrun.found = false;
    atomic_store(&overlap_bytes, 0);
}

void check_heap_guard_end(void) { atomic_store(&guards_are_active, false); }

void check_heap_count_begin(size_t failing_call)
{
    atomic_store(&allocation_count, 0);
    atomic_store(&failing_allocation, failing_call);
    atomic_store(&is_counting, true);
}

size_t check_heap_count_end(void)
{
    atomic_store(&is_counting, false);
    return atomic_load(&allocation_count);
}

/* Counts an allocation, and returns true and sets errno if it is the one that must fail. */
static bool heap_count_allocation_and_must_fail(void)
{
    if (!atomic_load_explicit(&is_counting, memory_order_relaxed) ||
        atomic_fetch_add(&allocation_count, 1) + 1 != atomic_load(&failing_allocation))
        return false;
    errno = ENOMEM;
    return true;
}

void check_heap_zero_unguarded(void) { atomic_store(&zero_unguarded, true); }

void check_heap_overwrite_freed(void) { atomic_store(&overwrite_freed, true); }

/* True if an address is in the area of guarded blocks. */
static bool heap_is_guarded_address(const void *address)
{
    return area_begin && (uintptr_t)address >= area_begin && (uintptr_t)address < area_begin + AREA_BYTES;
}

/* Returns the last guarded block that begins at or before an address; NULL if there is none. */
static heap_block *heap_find_block_at_or_before(uintptr_t address)
{
    size_t low = 0, high = nblocks;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (blocks[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &blocks[low - 1] : NULL;
}

/* Allocates a block between guard pages, filled with the poison byte. Returns NULL if addresses, the table of blocks or
 * MAX_LIVE_BLOCKS are used up. */
static void *heap_alloc_guarded_block(size_t bytes, size_t alignment)
{
    const size_t block_bytes = (bytes + alignment + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES,
                 step = alignment > PAGE_BYTES ? alignment : PAGE_BYTES;
    void *data = NULL;
    pthread_mutex_lock(&heap_lock);
    const uintptr_t begin = (area_used_end + GUARD_BYTES + step - 1) / step * step;
    const bool fits = bytes < AREA_BYTES / 4 && nblocks < MAX_BLOCKS && nlive_blocks < MAX_LIVE_BLOCKS &&
        begin + block_bytes + GUARD_BYTES < area_begin + AREA_BYTES;
    if (fits && !mprotect((void *)begin, block_bytes, PROT_READ | PROT_WRITE)) {
        heap_block *b = &blocks[nblocks++];
        *b = (heap_block){ .begin = begin, .end = begin + block_bytes, .data = begin, .bytes = bytes };
        if (guard_side == CHECK_GUARD_AFTER)
            b->data = (b->end - bytes) / alignment * alignment;
        area_used_end = b->end;
        nlive_blocks++;
        memset((void *)begin, MARGIN_BYTE, block_bytes);
        data = memset((void *)b->data, poison_byte, bytes);
    }
    pthread_mutex_unlock(&heap_lock);
    return data;
}

/* Records an overrun if a byte between a block and the bounds of its pages has changed. Only the first overrun is kept. */
static void heap_record_overrun_if_changed(const heap_block *b)
{
    const uint8_t *p = check_find_first_unequal_byte(b->begin, b->data, MARGIN_BYTE);
    p = p ? p : check_find_first_unequal_byte(b->data + b->bytes, b->end, MARGIN_BYTE);
    if (!p || has_overrun.found)
        return;
    has_overrun.found = true;
    has_overrun.bytes = b->bytes;
    has_overrun.offset = (int64_t)((uintptr_t)p - b->data);
}

/* Frees a guarded block and makes its pages inaccessible. Aborts, as libc does, if the address is not that of a live block. */
static void heap_free_guarded_block(void *p)
{
    pthread_mutex_lock(&heap_lock);
    heap_block *b = heap_find_block_at_or_before((uintptr_t)p);
    const bool wrong = !b || b->data != (uintptr_t)p || b->freed;
    if (!wrong) {
        heap_record_overrun_if_changed(b);
        nlive_blocks--;
        b->freed = true; /* releases the pages and makes them inaccessible */
        mmap((void *)b->begin, b->end - b->begin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    pthread_mutex_unlock(&heap_lock);
    if (wrong) { /* libc also aborts here */
        has_wrong_free = true;
        abort();
    }
}

/* True between check_heap_guard_begin() and check_heap_guard_end(), while a kernel runs. */
static bool heap_is_guarding_active(void) { return atomic_load_explicit(&guards_are_active, memory_order_relaxed); }

/* Allocates a block by libc's malloc(), or calloc() after check_heap_zero_unguarded(). */
static void *heap_malloc_by_libc(size_t size)
{
    return atomic_load_explicit(&zero_unguarded, memory_order_relaxed) ? __libc_calloc(1, size) : __libc_malloc(size);
}

DV_API void *malloc(size_t size)
{
    if (heap_count_allocation_and_must_fail())
        return NULL;
    void *p = heap_is_guarding_active() ? heap_alloc_guarded_block(size, 16) : NULL;
    return p ? p : heap_malloc_by_libc(size);
}

/* dv_allocator.malloc: allocates core's memory by libc without guards, and counts the call. */
static void *heap_core_malloc(void *user, size_t size)
{
    (void)user;
    return heap_count_allocation_and_must_fail() ? NULL : heap_malloc_by_libc(size);
}

/* dv_allocator.realloc: reallocates core's memory by libc without guards, and counts the call. */
static void *heap_core_realloc(void *user, void *p, size_t size)
{
    (void)user;
    return heap_count_allocation_and_must_fail() ? NULL : __libc_realloc(p, size);
}

/* dv_allocator.free: frees core's memory by free(). */
static void heap_core_free(void *user, void *p)
{
    (void)user;
    free(p);
}

DV_API void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (heap_count_allocation_and_must_fail())
        return NULL;
    void *p = heap_is_guarding_active() && !__builtin_mul_overflow(count, size, &bytes) ? heap_alloc_guarded_block(bytes, 16)
                                                                                        : NULL;
    return p ? memset(p, 0, bytes) : __libc_calloc(count, size);
}

DV_API void free(void *p)
{
    if (heap_is_guarded_address(p)) {
        heap_free_guarded_block(p);
        return;
    }
    if (p && atomic_load_explicit(&overwrite_freed, memory_order_relaxed))
        memset(p, MARGIN_BYTE, malloc_usable_size(p));
    __libc_free(p);
}

/* Returns the size in bytes of the guarded block at an address; 0 if there is none. */
static size_t heap_get_guarded_block_size(const void *p)
{
    const heap_block *b = heap_find_block_at_or_before((uintptr_t)p);
    return b && b->data == (uintptr_t)p ? b->bytes : 0;
}

DV_API void *realloc(void *p, size_t size)
{
    if (!heap_is_guarded_address(p) && (p || !heap_is_guarding_active()))
        return heap_count_allocation_and_must_fail() ? NULL : __libc_realloc(p, size);
    void *q = malloc(size);
    if (q && p)
        memcpy(q, p, heap_get_guarded_block_size(p) < size ? heap_get_guarded_block_size(p) : size);
    if (q && p)
        free(p);
    return q;
}

DV_API void *memalign(size_t alignment, size_t size)
{
    if (heap_count_allocation_and_must_fail())
        return NULL;
    void *p = heap_is_guarding_active() && alignment && !(alignment & (alignment - 1)) ? heap_alloc_guarded_block(size, alignment)
                                                                                       : NULL;
    return p ? p : __libc_memalign(alignment, size);
}

DV_API void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

DV_API int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (alignment % sizeof(void *) || !alignment || alignment & (alignment - 1))
        return EINVAL;
    *out = memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}

/* memcpy() that records overlapping memory while a kernel runs, and copies as memmove() does. A copy of a block onto itself is
 * allowed, as compilers use it. The parameters lack the standard's `restrict`, with which a compiler would make memmove() a
 * memcpy() and so an endless loop. */
DV_API void *memcpy(void *to, const void *from, size_t size)
{
    const uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if (a != b && (a < b ? b - a : a - b) < size && heap_is_guarding_active())
        atomic_store(&overlap_bytes, size);
    return memmove(to, from, size);
}

size_t check_heap_get_overlap_bytes(void) { return atomic_load(&overlap_bytes); }

bool check_heap_try_find_location(const void *address, check_memory_location *out)
{
    const uintptr_t p = (uintptr_t)address;
    if (!heap_is_guarded_address(address))
        return false;
    const heap_block *b = heap_find_block_at_or_before(p), *next = b ? b + 1 : blocks;
    if (next < blocks + nblocks && (!b || next->begin - p < p - b->end))
        b = next;
    *out = (check_memory_location){ .is_inside = b && p >= b->data && p < b->data + b->bytes };
    if (!b)
        return false;
    snprintf(out->description, sizeof out->description, "memory of malloc()%s", b->freed ? " that was freed" : "");
    out->is_heap = true;
    out->is_freed = b->freed;
    out->offset = (int64_t)(p - b->data);
    out->high = (int64_t)b->bytes;
    return true;
}

bool check_heap_has_write_next_to_block(char *description, size_t size)
{
    for (size_t i = nblocks > 256 ? nblocks - 256 : 0; i < nblocks;
        i++) /* only the last 256 blocks are searched: they include all of this call */
        if (!blocks[i].freed)
            heap_record_overrun_if_changed(&blocks[i]);
    if (has_overrun.found)
        snprintf(description, size, "memory of malloc(), which has %zu bytes: byte %lld", has_overrun.bytes,
            (long long)has_overrun.offset);
    return has_overrun.found;
}

bool check_heap_has_wrong_free(void) { return has_wrong_free; }

size_t check_heap_count_live_blocks(void) { return nlive_blocks; }

#else /* another libc, or a sanitizer with its own malloc() */

void check_heap_guard_begin(enum check_guard_side guarded_side, uint8_t poison) { (void)guarded_side, (void)poison; }
void check_heap_forget_faults(void) {}
void check_heap_guard_end(void) {}
void check_heap_zero_unguarded(void) {}
void check_heap_overwrite_freed(void) {}
void check_heap_count_begin(size_t failing_call) { (void)failing_call; }
size_t check_heap_count_end(void) { return 0; }
bool check_heap_try_find_location(const void *address, check_memory_location *out)
{
    (void)address, (void)out;
    return false;
}
bool check_heap_has_write_next_to_block(char *description, size_t size)
{
    (void)description, (void)size;
    return false;
}
bool check_heap_has_wrong_free(void) { return false; }
size_t check_heap_count_live_blocks(void) { return 0; }
size_t check_heap_get_overlap_bytes(void) { return 0; }

#endif
