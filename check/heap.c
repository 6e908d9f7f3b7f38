/* malloc() while a kernel runs: every block lies between guard pages, holds the poison, and cannot be touched once it was freed.
 *
 * The command defines malloc() and its family; outside of kernels, and for core, which allocates for each piece of a call, they
 * are libc's own. A block that a kernel keeps (a table that it makes once) stays as it is. Addresses are never used again. When
 * the addresses, the table of blocks or MAX_LIVE are used up, malloc() returns libc's own memory. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

/* A sanitizer has a malloc() of its own. gcc defines macros for it, clang has features. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

#if defined(__GLIBC__) && !defined(SANITIZED)

/* MAX_LIVE: guarded blocks that are not freed. Each splits a mapping in two, and Linux allows a process 65,530 mappings
 * (vm.max_map_count). A kernel that leaks must not use them up: mprotect() of the tensors' pages would fail. */
enum { PAGE = 4096, GUARD = 16 * PAGE, BLOCKS = 1 << 15, MAX_LIVE = 1 << 13, FILL = 0xc3 };
static const size_t AREA = (size_t)1 << 33;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);

typedef struct block {
    uintptr_t begin, end, data;
    size_t bytes;
    bool freed;
} block;
static block *blocks;         /* in the order of their addresses */
static size_t nblocks, nkept; /* that were asked for; of these not freed */
static uintptr_t area, used;
static atomic_bool active, zeroed, spoiled;
static enum check_end side;
static uint8_t poison;
static bool wrong_free;
static atomic_bool counting;
static atomic_size_t asked, refused_one; /* the number of allocations; the number of the one that fails, from 1 */
static struct {
    bool found;
    size_t bytes;
    int64_t offset;
} overrun;                        /* next to a block, where no guard page fits */
static atomic_size_t overlapping; /* bytes of a memcpy() of the kernel to memory that overlaps; 0: none */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *core_malloc(void *user, size_t size);
static void *core_realloc(void *user, void *p, size_t size);
static void core_free(void *user, void *p);

void check_heap_begin(enum check_end end, uint8_t with)
{
    if (!area) {
        dv_set_allocator(&(dv_allocator){ core_malloc, core_realloc, core_free, NULL });
        void *p = mmap(NULL, AREA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        blocks = mmap(NULL, BLOCKS * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED || blocks == MAP_FAILED)
            return;
        area = used = (uintptr_t)p;
    }
    side = end;
    poison = with;
    atomic_store(&active, true);
}

void check_heap_clear(void)
{
    overrun.found = false;
    atomic_store(&overlapping, 0);
}

void check_heap_end(void) { atomic_store(&active, false); }

void check_heap_count(size_t refuse)
{
    atomic_store(&asked, 0);
    atomic_store(&refused_one, refuse);
    atomic_store(&counting, true);
}

size_t check_heap_counted(void)
{
    atomic_store(&counting, false);
    return atomic_load(&asked);
}

/* This is the time. */
static bool refuses(void)
{
    if (!atomic_load_explicit(&counting, memory_order_relaxed) || atomic_fetch_add(&asked, 1) + 1 != atomic_load(&refused_one))
        return false;
    errno = ENOMEM;
    return true;
}

void check_heap_zeroed(void) { atomic_store(&zeroed, true); }

void check_heap_spoiled(void) { atomic_store(&spoiled, true); }

static bool is_ours(const void *p) { return area && (uintptr_t)p >= area && (uintptr_t)p < area + AREA; }

/* The last block that begins at or before an address; NULL: none. */
static block *block_before(uintptr_t p)
{
    size_t low = 0, high = nblocks;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (blocks[middle].begin <= p)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &blocks[low - 1] : NULL;
}

static void *new_block(size_t bytes, size_t alignment)
{
    const size_t room = (bytes + alignment + PAGE - 1) / PAGE * PAGE, step = alignment > PAGE ? alignment : PAGE;
    void *data = NULL;
    pthread_mutex_lock(&lock);
    const uintptr_t begin = (used + GUARD + step - 1) / step * step;
    const bool fits = bytes < AREA / 4 && nblocks < BLOCKS && nkept < MAX_LIVE && begin + room + GUARD < area + AREA;
    if (fits && !mprotect((void *)begin, room, PROT_READ | PROT_WRITE)) {
        block *b = &blocks[nblocks++];
        *b = (block){ .begin = begin, .end = begin + room, .data = begin, .bytes = bytes };
        if (side == CHECK_AT_END)
            b->data = (b->end - bytes) / alignment * alignment;
        used = b->end;
        nkept++;
        memset((void *)begin, FILL, room);
        data = memset((void *)b->data, poison, bytes);
    }
    pthread_mutex_unlock(&lock);
    return data;
}

/* The bytes around a block, up to the bounds of its pages. */
static void check_slack(const block *b)
{
    const uint8_t *p = check_first_other(b->begin, b->data, FILL);
    p = p ? p : check_first_other(b->data + b->bytes, b->end, FILL);
    if (!p || overrun.found)
        return;
    overrun.found = true;
    overrun.bytes = b->bytes;
    overrun.offset = (int64_t)((uintptr_t)p - b->data);
}

static void free_block(void *p)
{
    pthread_mutex_lock(&lock);
    block *b = block_before((uintptr_t)p);
    const bool wrong = !b || b->data != (uintptr_t)p || b->freed;
    if (!wrong) {
        check_slack(b);
        nkept--;
        b->freed = true; /* the pages are released and become inaccessible */
        mmap((void *)b->begin, b->end - b->begin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    pthread_mutex_unlock(&lock);
    if (wrong) { /* as libc does */
        wrong_free = true;
        abort();
    }
}

static bool guards(void) { return atomic_load_explicit(&active, memory_order_relaxed); }

static void *plain(size_t size)
{
    return atomic_load_explicit(&zeroed, memory_order_relaxed) ? __libc_calloc(1, size) : __libc_malloc(size);
}

DV_API void *malloc(size_t size)
{
    if (refuses())
        return NULL;
    void *p = guards() ? new_block(size, 16) : NULL;
    return p ? p : plain(size);
}

static void *core_malloc(void *user, size_t size)
{
    (void)user;
    return refuses() ? NULL : plain(size);
}

static void *core_realloc(void *user, void *p, size_t size)
{
    (void)user;
    return refuses() ? NULL : __libc_realloc(p, size);
}

static void core_free(void *user, void *p)
{
    (void)user;
    free(p);
}

DV_API void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (refuses())
        return NULL;
    void *p = guards() && !__builtin_mul_overflow(count, size, &bytes) ? new_block(bytes, 16) : NULL;
    return p ? memset(p, 0, bytes) : __libc_calloc(count, size);
}

DV_API void free(void *p)
{
    if (is_ours(p)) {
        free_block(p);
        return;
    }
    if (p && atomic_load_explicit(&spoiled, memory_order_relaxed))
        memset(p, FILL, malloc_usable_size(p));
    __libc_free(p);
}

static size_t size_of(const void *p)
{
    const block *b = block_before((uintptr_t)p);
    return b && b->data == (uintptr_t)p ? b->bytes : 0;
}

DV_API void *realloc(void *p, size_t size)
{
    if (!is_ours(p) && (p || !guards()))
        return refuses() ? NULL : __libc_realloc(p, size);
    void *q = malloc(size);
    if (q && p)
        memcpy(q, p, size_of(p) < size ? size_of(p) : size);
    if (q && p)
        free(p);
    return q;
}

DV_API void *memalign(size_t alignment, size_t size)
{
    if (refuses())
        return NULL;
    void *p = guards() && alignment && !(alignment & (alignment - 1)) ? new_block(size, alignment) : NULL;
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

/* Compilers copy whole structs onto themselves with it, and no libc minds. Without the standard's `restrict`, by which a compiler
 * would make this memmove() a memcpy() and so an endless loop. */
DV_API void *memcpy(void *to, const void *from, size_t size)
{
    const uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if (a != b && (a < b ? b - a : a - b) < size && guards())
        atomic_store(&overlapping, size);
    return memmove(to, from, size);
}

size_t check_heap_overlapping(void) { return atomic_load(&overlapping); }

bool check_heap_find(const void *address, check_place *out)
{
    const uintptr_t p = (uintptr_t)address;
    if (!is_ours(address))
        return false;
    const block *b = block_before(p), *next = b ? b + 1 : blocks;
    if (next < blocks + nblocks && (!b || next->begin - p < p - b->end))
        b = next;
    *out = (check_place){ .inside = b && p >= b->data && p < b->data + b->bytes };
    if (!b)
        return false;
    snprintf(out->what, sizeof out->what, "memory of malloc()%s", b->freed ? " that was freed" : "");
    out->heap = true;
    out->freed = b->freed;
    out->offset = (int64_t)(p - b->data);
    out->high = (int64_t)b->bytes;
    return true;
}

bool check_heap_slack_changed(char *what, size_t size)
{
    for (size_t i = nblocks > 256 ? nblocks - 256 : 0; i < nblocks; i++) /* those of this call that were kept */
        if (!blocks[i].freed)
            check_slack(&blocks[i]);
    if (overrun.found)
        snprintf(what, size, "memory of malloc(), which has %zu bytes: byte %lld", overrun.bytes, (long long)overrun.offset);
    return overrun.found;
}

bool check_heap_wrong_free(void) { return wrong_free; }

size_t check_heap_kept(void) { return nkept; }

#else /* another libc, or a sanitizer with its own malloc() */

void check_heap_begin(enum check_end end, uint8_t with) { (void)end, (void)with; }
void check_heap_clear(void) {}
void check_heap_end(void) {}
void check_heap_zeroed(void) {}
void check_heap_spoiled(void) {}
void check_heap_count(size_t refuse) { (void)refuse; }
size_t check_heap_counted(void) { return 0; }
bool check_heap_find(const void *address, check_place *out)
{
    (void)address, (void)out;
    return false;
}
bool check_heap_slack_changed(char *what, size_t size)
{
    (void)what, (void)size;
    return false;
}
bool check_heap_wrong_free(void) { return false; }
size_t check_heap_kept(void) { return 0; }
size_t check_heap_overlapping(void) { return 0; }

#endif
