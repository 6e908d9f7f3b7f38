/* The functions that a kernel calls through its context. */
#ifndef DV_CALL_SERVICES_H
#define DV_CALL_SERVICES_H

#include "call/call_state.h"

/* One slice of a call, or a whole call that is not split. `ctx` is the context that the kernel gets. */
typedef struct dv__slice {
    dv_context ctx;
    dv__call *call;
    struct dv__slice_block *blocks; /* memory from dv_alloc(), freed with the slice */
    int64_t index;                  /* the slice's number; -1: the whole call */
    bool in_chunk_loop; /* true while a dv_parallel_for() runs; written by the slice's own thread only, before the first chunk and
                           after the last */
    uint64_t random_used; /* number of random numbers that this slice has used */
} dv__slice;

void dv__slice_init(dv__slice *s, dv__call *c);
void dv__slice_deinit(dv__slice *s);
/* Allocates memory that is freed with the slice. Returns NULL, with the call's error recorded, if memory is out or the
 * alignment is no power of two. memory_use: enum dv_memory_use, for test hooks; -1: memory that no kernel gets. */
void *dv__slice_alloc(dv__slice *s, int memory_use, size_t bytes, size_t alignment);

#endif
