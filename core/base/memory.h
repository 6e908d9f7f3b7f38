/* Allocation: everything the library allocates goes through here, so that a test can fail each allocation in turn. */
#ifndef DV_BASE_MEMORY_H
#define DV_BASE_MEMORY_H

#include "dovetail.h"

/* NULL when out of memory, with the error already set: return DV_ENOMEM. Sizes of zero give a valid pointer. */
void *dv__alloc(size_t size);
void *dv__calloc(size_t count, size_t size);            /* an overflow of count * size counts as out of memory */
void *dv__realloc(void *p, size_t size);                /* on failure p stays as it was */
void *dv__alloc_aligned(size_t size, size_t alignment); /* freed with dv__free_aligned only */
void dv__free(void *p);
void dv__free_aligned(void *p);
char *dv__strdup(const char *s);
char *dv__strndup(const char *s, size_t n);

/* An arena: many small pieces that are freed together. Zero-initialise. Pieces are zeroed and 16-byte aligned. */
typedef struct dv__arena { struct dv__arena_block *blocks; } dv__arena;
void *dv__arena_alloc(dv__arena *a, size_t size);
char *dv__arena_strndup(dv__arena *a, const char *s, size_t n);
void dv__arena_deinit(dv__arena *a);

#define DV__ARENA_NEW(arena, T) ((T *)dv__arena_alloc((arena), sizeof(T)))
#define DV__ARENA_ARRAY(arena, T, n) ((T *)dv__arena_alloc((arena), sizeof(T) * (n)))

#endif
