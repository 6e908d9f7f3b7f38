/* dovetail_test.h: for programs that TEST kernels, such as `dovetail check`.
 *
 * UNSTABLE: unlike dovetail_op.h and dovetail.h, this header may change in any release, without a version for old programs. A
 * program that uses it runs with the library of the release that it was compiled for.
 *
 *     dv_test_hooks hooks = { .kernel_number = 2 };
 *     dv_host host = { .size = sizeof host, .test = &hooks };
 *     dv_call(op, args, nargs, results, nresults, &host);
 */
#ifndef DOVETAIL_TEST_H
#define DOVETAIL_TEST_H

#include "dovetail.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dv_memory_use {
    DV_MEMORY_STAGING_COPY, /* a staging copy: a contiguous copy of a tensor whose layout the kernel does not accept */
    DV_MEMORY_WORKSPACE,    /* the workspace that the contract declares, of each slice */
    DV_MEMORY_KERNEL,       /* memory from dv_alloc() */
    DV_MEMORY_SCRATCH,      /* scratch of a chunk of dv_parallel_scratch(): each chunk gets new memory */
};

/* Hooks by which a test changes how the kernel of a call runs. Zero-initialise the struct; an entry that is 0 or NULL
 * changes nothing. Borrowed for the call. */
typedef struct dv_test_hooks {
    /* The kernel that runs. 0: the first that fits, or what the policy decides. n: kernel number n, from 1, of the kernels
     * for this device, in the order of "kernels" in the operator's JSON, whatever the policy decides (DV_ENOKERNEL if it
     * does not fit). -1: the decomposition. -2: the decomposition with its real tensors in f64, rounded at the end. */
    int32_t kernel_number;
    bool no_split; /* true: the whole call is one slice, and a kernel's own loops are one chunk */
    /* alloc() allocates memory on the CPU that a kernel gets besides arguments and results. use: enum dv_memory_use. slot:
     * the slot of a staging copy's tensor; -1 for other uses. It returns NULL if memory is out, which is how a test lets
     * each allocation fail in turn. Set both alloc and free, or neither. Both are called from any thread. */
    void *(*alloc)(const dv_host *host, int use, int slot, size_t bytes, size_t alignment);
    void (*free)(const dv_host *host, void *p);
    /* Called when a kernel calls dv_parallel_for() or dv_parallel_scratch(), whether the loop is cut into chunks or not. fn:
     * the loop's callback, which identifies the loop. */
    void (*on_parallel_loop)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, void (*fn)(void));
    /* The byte that fills int and float results before the kernel runs; its lowest bit is the value of bool results. The
     * byte also fills the parts of the kernel's struct without a meaning: `value` of an absent optional, and members of a
     * Scalar that are not of its kind. */
    uint8_t fill_byte;
    /* Called before the kernel with its struct, and the field of slot `watched_slot` in it: offset and size in bytes.
     * Returns the struct that the kernel gets: `frame`, or a copy. NULL: not called. Not called either if the kernel's
     * struct has no field for the slot. */
    void *(*watch)(const dv_host *host, void *frame, size_t size, size_t field_offset, size_t field_size);
    int32_t watched_slot;
} dv_test_hooks;

#ifdef __cplusplus
}
#endif
#endif
