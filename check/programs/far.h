#pragma once
#include "memory.h"

/* Tensors larger than memory, or with elements that far apart. */

#include <signal.h>
#include <sys/time.h>

enum { CHUNK = 1 << 24 };

/* To be read: zeros. To be written: the same few pages again and again, but for the last ones. On both sides are as many
 * addresses as an index of 32 bits can be wrong by. */
static void *map_far(size_t bytes, size_t size, int protection, int fill)
{
    const size_t room = (bytes + PAGE - 1) / PAGE * PAGE, margin = (size << 31) + GUARD;
    char *p = mmap(NULL, room + 2 * margin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
         *end = p + margin + room;
    void *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || chunk == MAP_FAILED || mprotect(p + margin, room, protection))
        exit(2);
    for (char *q = p + margin; protection & PROT_WRITE && q < end;
        q += CHUNK) /* of shared pages, an old size of 0 maps them once more */
        if (mremap(chunk, 0, end - q < CHUNK ? (size_t)(end - q) : CHUNK, MREMAP_MAYMOVE | MREMAP_FIXED, q) == MAP_FAILED)
            exit(2);
    munmap(chunk, CHUNK);
    if (protection & PROT_WRITE) {
        if (mmap(end - GUARD, GUARD, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            exit(2);
        memset(end - GUARD, fill, GUARD);
    }
    return end - bytes;
}

/* Only where there are elements it may be touched. */
static inline void put_far(const dv_tensor *t, const void *elements, int protection)
{
    const int64_t n = dv_numel(t), size = dv_dtype_bytes(t->dtype, 1);
    for (int64_t i = 0; i < 2 * n; i++) { /* first all are written */
        int64_t at = 0, rest = i % n;
        for (int32_t d = t->ndim; d-- > 0; rest /= t->shape[d])
            at += rest % t->shape[d] * t->strides[d];
        char *p = (char *)t->data + at * size;
        if (mprotect(p - (uintptr_t)p % PAGE, PAGE, i < n ? PROT_READ | PROT_WRITE : protection))
            exit(2);
        if (i < n)
            memcpy(p, (const char *)elements + i * size, (size_t)size);
    }
}

static void is_slow(int number)
{
    (void)number;
    _exit(0); /* what fails here fails at once */
}

static inline int end_is_poison(const result *r)
{
    int n = 0;
    while (n < 256 && ((const unsigned char *)r->made)[r->bytes - 1 - (size_t)n] == poison)
        n++;
    return n == 256;
}
