#pragma once
#include "memory.h"

/* The kernel's malloc(). */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void __libc_free(void *p);

static buffer *of_kernel(const void *p)
{
    for (size_t i = 0; i < nbuffers; i++)
        if (buffers[i].data == p && buffers[i].heap)
            return &buffers[i];
    return NULL;
}
void *malloc(size_t size)
{
    if (!guarding)
        return __libc_malloc(size);
    if (++allocations == fail_at)
        return NULL;
    void *p = guarded(size, 16, poison);
    buffers[nbuffers - 1].heap = 1;
    return p;
}
void *calloc(size_t count, size_t size)
{
    void *p = guarding ? malloc(count * size) : __libc_calloc(count, size);
    return guarding && p ? memset(p, 0, count * size) : p;
}
void free(void *p)
{
    buffer *b = of_kernel(p);
    if (!b) {
        __libc_free(p);
        return;
    }
    if (b->freed || beside(b))
        _exit(1); /* freed twice, or a byte beside it was written */
    b->freed = 1;
    mprotect(b->pages, b->room, PROT_NONE);
}
void *realloc(void *p, size_t size)
{
    const buffer *b = of_kernel(p);
    if (!b && (p || !guarding))
        return __libc_realloc(p, size);
    void *q = malloc(size);
    if (b && q)
        memcpy(q, p, b->bytes < size ? b->bytes : size);
    if (q)
        free(p);
    return q;
}

static inline int kept_blocks(void)
{
    int n = 0;
    for (size_t i = 0; i < nbuffers; i++)
        n += buffers[i].heap && !buffers[i].freed;
    return n;
}
