/* The functions that a kernel calls through its context. */
#ifndef DV_CALL_SERVICES_H
#define DV_CALL_SERVICES_H

#include "call/state.h"

/* One slice of a call, or all of it. Its context is what the kernel sees. */
typedef struct dv__slice {
    dv_context ctx;
    dv__call *call;
    struct dv__block *blocks; /* dv_alloc() */
    int64_t index;            /* -1: not split */
    bool in_pieces;           /* a loop runs; written by the slice's own thread only, before its first piece and after its last */
    uint64_t random_used;
} dv__slice;

void dv__slice_init(dv__slice *s, dv__call *c);
void dv__slice_deinit(dv__slice *s);
/* Memory that is freed with the slice: NULL with the call's error set. use: enum dv_memory_use, or -1 for memory that no kernel
 * sees. */
void *dv__slice_alloc(dv__slice *s, int use, size_t bytes, size_t alignment);

#endif
