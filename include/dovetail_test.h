/* dovetail_test.h: for programs that TEST kernels, such as `dovetail check`.
 *
 * UNSTABLE: unlike dovetail_op.h and dovetail.h, this header may change in any release, and nothing in it is kept. A program that
 * uses it runs with the library of the release that it was compiled for.
 *
 *     dv_test_hooks hooks = { .row = 2 };
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
    DV_MEMORY_STAND_IN,  /* a contiguous copy of a tensor that the row does not take as it is */
    DV_MEMORY_WORKSPACE, /* the contract's workspace, for each slice */
    DV_MEMORY_KERNEL,    /* dv_alloc() */
    DV_MEMORY_SCRATCH,   /* of a piece of dv_parallel_scratch(): each piece gets new memory */
};

/* Zero-initialise it; an entry that is 0 or NULL changes nothing. Borrowed for the call. */
typedef struct dv_test_hooks {
    /* Which row runs. 0: the best one that fits, or what the policy says; n: the nth of the rows for this device, in the order of
     * "kernels" in the operator's JSON, whatever the policy says (DV_ENOKERNEL when it does not fit); -1: the native form; -2:
     * the native form with its real tensors in f64, rounded at the end. */
    int32_t row;
    bool whole; /* neither a row with .split nor a kernel's own loop is cut */
    /* Memory on the CPU that a kernel sees and that is neither an argument nor a result; use is an enum dv_memory_use, slot the
     * argument's (nargs + r: result r's) of a stand-in, else -1. Both entries or none; called from any thread. NULL: out of
     * memory, which is how a test lets each allocation fail in turn. */
    void *(*alloc)(const dv_host *host, int use, int slot, size_t bytes, size_t alignment);
    void (*free)(const dv_host *host, void *p);
    /* A kernel has called dv_parallel_for() or dv_parallel_scratch(), whether the loop is cut into pieces or not. fn tells loops
     * apart. */
    void (*loop)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, void (*fn)(void));
    /* The byte that int and float results hold before the kernel runs, and its lowest bit bool results. The kernel's struct holds
     * it where it has no meaning: `value` of an absent optional, and members of a Scalar that are not of its kind. */
    uint8_t fill;
} dv_test_hooks;

#ifdef __cplusplus
}
#endif
#endif
