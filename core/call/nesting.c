/* Limits of nested calls: the depth of calls and the unused bytes of the stack. The depth counts open calls, also across
 * threads: a chunk of dv_parallel_for() begins at the depth of its call. The stack is measured, because threads have stacks of
 * any size, kernels have local variables of any size, and frames are larger under a sanitizer.
 *
 * The outermost call is never refused: a thread with a small stack can run kernels that call no operator. */
#include "call/nesting.h"

#include <pthread.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sanitizer.h"
#include "base/tls.h"

enum { MAX_CALL_DEPTH = 128 }; /* calls */
/* Least number of stack bytes that a nested call needs: for its checks, a kernel with ordinary local variables, and the text
 * of an error. A call that checks everything takes 40 KiB. */
enum { MIN_STACK_BYTES = DV__SANITIZED ? 256 << 10 : 56 << 10 };
enum { ERROR_STACK_BYTES = MIN_STACK_BYTES / 4 }; /* bytes of stack to refuse a call and to return from its kernel */

typedef struct nesting {
    int depth;
    bool measured;
    uintptr_t low, high;   /* lowest and highest address of the thread's stack; both 0: unknown */
    uintptr_t last_frame;  /* frame of the newest call, open or ended; never above the frame of the innermost open call */
    size_t max_call_bytes; /* largest number of stack bytes between two nested calls since the outermost call began */
} nesting;

static _Thread_local nesting thread_nesting;
DV__TLS_ACCESSOR static nesting *nesting_get(void) { return &thread_nesting; }

/* Sets the bounds of this thread's stack, or leaves both 0 if the system does not report them. */
static void nesting_measure_stack(nesting *n)
{
    n->measured = true;
#if defined(__linux__)
    pthread_attr_t attributes;
    void *low;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes))
        return;
    if (!pthread_attr_getstack(&attributes, &low, &size)) {
        n->low = (uintptr_t)low;
        n->high = n->low + size;
    }
    pthread_attr_destroy(&attributes);
#endif
}

/* Returns the bytes of stack below `frame`. SIZE_MAX: unknown, because the frame is outside the thread's stack, as in a
 * coroutine. */
static size_t nesting_stack_bytes_left(nesting *n, uintptr_t frame)
{
    if (!n->measured)
        nesting_measure_stack(n);
    return frame > n->low && frame <= n->high ? frame - n->low : SIZE_MAX;
}

/* Returns the bytes of stack that must be left for a call at `frame`: as many as any enclosing call took, plus those of an
 * error. */
static size_t nesting_stack_bytes_needed(nesting *n, uintptr_t frame)
{
    if (n->depth == 1)
        n->max_call_bytes = 0;
    if (n->last_frame > frame && n->last_frame <= n->high && n->last_frame - frame > n->max_call_bytes)
        n->max_call_bytes = n->last_frame - frame;
    return n->max_call_bytes + ERROR_STACK_BYTES > MIN_STACK_BYTES ? n->max_call_bytes + ERROR_STACK_BYTES : MIN_STACK_BYTES;
}

/* Sets the message and returns DV_ELIMIT. depth: number of open calls; stack_left, stack_needed: bytes. */
static __attribute__((noinline)) int nesting_fail_too_deep(
    const dv_operator *op, int depth, size_t stack_left, size_t stack_needed)
{
    if (depth >= MAX_CALL_DEPTH)
        return dv_fail(DV_ELIMIT, "%s: calls are nested more than %d deep: does a kernel call its own operator without end?",
            op->name, MAX_CALL_DEPTH);
    return dv_fail(DV_ELIMIT,
        "%s: calls are nested %d deep, and %zu KiB of the thread's stack are left, where a call needs %zu: does a kernel call "
        "its "
        "own operator without end?",
        op->name, depth, stack_left >> 10, stack_needed >> 10);
}

int dv__nesting_begin(const dv_operator *op)
{
    nesting *n = nesting_get();
    const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    if (__builtin_expect(n->depth > 0, 0)) {
        const size_t left = nesting_stack_bytes_left(n, frame), needed = nesting_stack_bytes_needed(n, frame);
        if (n->depth >= MAX_CALL_DEPTH || left < needed)
            return nesting_fail_too_deep(op, n->depth, left, needed);
    }
    n->last_frame = frame;
    n->depth++;
    return DV_OK;
}

void dv__nesting_end(void) { nesting_get()->depth--; }

int dv__nesting_get_depth(void) { return nesting_get()->depth; }

int dv__nesting_set_depth(int depth)
{
    nesting *n = nesting_get();
    const int before = n->depth;
    n->depth = depth;
    return before;
}
