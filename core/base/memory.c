/* Allocation through three replaceable functions. The original pointer of aligned memory is stored just before it. */
#include "base/memory.h"

#include <stdlib.h>

static void *memory_default_alloc(void *user, size_t size)
{
    (void)user;
    return malloc(size);
}
static void *memory_default_realloc(void *user, void *p, size_t size)
{
    (void)user;
    return realloc(p, size);
}
static void memory_default_free(void *user, void *p)
{
    (void)user;
    free(p);
}

static dv_allocator current_allocator = { memory_default_alloc, memory_default_realloc, memory_default_free, NULL };

void dv_set_allocator(const dv_allocator *a)
{
    const dv_allocator standard = { memory_default_alloc, memory_default_realloc, memory_default_free, NULL };
    current_allocator = a ? *a : standard;
}

static void *memory_fail_out_of_memory(size_t size)
{
    dv_fail(DV_ENOMEM, "out of memory: %zu bytes", size);
    return NULL;
}

void *dv__alloc(size_t size)
{
    void *p = current_allocator.alloc(current_allocator.user, size ? size : 1);
    return p ? p : memory_fail_out_of_memory(size);
}

void *dv__calloc(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return memory_fail_out_of_memory(SIZE_MAX);
    void *p = dv__alloc(count * size);
    if (p)
        memset(p, 0, count * size);
    return p;
}

void *dv__realloc(void *p, size_t size)
{
    void *q = current_allocator.realloc(current_allocator.user, p, size ? size : 1);
    return q ? q : memory_fail_out_of_memory(size);
}

void dv__free(void *p)
{
    if (p)
        current_allocator.free(current_allocator.user, p);
}

void dv_free(void *p) { dv__free(p); }

void *dv__alloc_aligned(size_t size, size_t alignment)
{
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (size > SIZE_MAX - alignment - sizeof(void *))
        return memory_fail_out_of_memory(size);
    char *raw = dv__alloc(size + alignment + sizeof(void *));
    if (!raw)
        return NULL;
    uintptr_t at = ((uintptr_t)raw + sizeof(void *) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    void **aligned = (void **)at;
    aligned[-1] = raw;
    return aligned;
}

void dv__free_aligned(void *p)
{
    if (p)
        dv__free(((void **)p)[-1]);
}

char *dv__strndup(const char *s, size_t n)
{
    char *copy = dv__alloc(n + 1);
    if (copy) {
        memcpy(copy, s, n);
        copy[n] = 0;
    }
    return copy;
}

char *dv__strdup(const char *s) { return dv__strndup(s, strlen(s)); }

struct dv__arena_block {
    struct dv__arena_block *next;
    size_t used, size;
    _Alignas(16) char data[];
};

void *dv__arena_alloc(dv__arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return memory_fail_out_of_memory(size);
    size = (size + 15) & ~(size_t)15;
    struct dv__arena_block *b = a->blocks;
    if (!b || b->size - b->used < size) {
        const size_t capacity = size > 1000 ? size : 1000;
        b = dv__alloc(sizeof *b + capacity);
        if (!b)
            return NULL;
        b->next = a->blocks;
        b->used = 0;
        b->size = capacity;
        a->blocks = b;
    }
    void *p = b->data + b->used;
    b->used += size;
    memset(p, 0, size);
    return p;
}

char *dv__arena_strndup(dv__arena *a, const char *s, size_t n)
{
    char *copy = dv__arena_alloc(a, n + 1);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

void dv__arena_deinit(dv__arena *a)
{
    for (struct dv__arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        dv__free(b);
    }
    a->blocks = NULL;
}
