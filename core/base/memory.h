/* Allocation. The library allocates by these functions only, so that a test can fail each allocation in turn. */
#ifndef DV_BASE_MEMORY_H
#define DV_BASE_MEMORY_H

#include "dovetail.h"

/* Each allocation function returns NULL if memory is out, with the thread's message set; its caller then returns DV_ENOMEM.
 * A size of zero gives a valid pointer. */
void *dv__alloc(size_t size);
void *dv__calloc(size_t count, size_t size);            /* fails as if memory were out if the size in bytes overflows */
void *dv__realloc(void *p, size_t size);                /* after a failure the block p is unchanged */
void *dv__alloc_aligned(size_t size, size_t alignment); /* the memory must be freed with dv__free_aligned() */
void dv__free(void *p);
void dv__free_aligned(void *p);
char *dv__strdup(const char *s);
char *dv__strndup(const char *s, size_t n);

/* An arena: many small allocations that are freed together. Zero-initialise. Allocations are zeroed and 16-byte aligned. */
typedef struct dv__arena { struct dv__arena_block *blocks; } dv__arena;
void *dv__arena_alloc(dv__arena *a, size_t size);
char *dv__arena_strndup(dv__arena *a, const char *s, size_t n);
void dv__arena_deinit(dv__arena *a);

#define DV__ARENA_NEW(arena, T) ((T *)dv__arena_alloc((arena), sizeof(T)))
#define DV__ARENA_ARRAY(arena, T, n) ((T *)dv__arena_alloc((arena), sizeof(T) * (n)))

#endif
