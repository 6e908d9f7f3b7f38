/* Limits of nested calls: their depth and the stack that is left. The depth counts open calls, also across threads: a chunk of
 * dv_parallel_for() begins at the depth of its call. The stack is measured, because threads have stacks of any size, kernels
 * have local variables of any size, and frames are larger under a sanitizer.
 *
 * The outermost call is not refused: a thread with a small stack can run kernels that call nothing. */
#include "call/nesting.h"

#include <pthread.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sanitized.h"
#include "base/thread.h"

enum { MAX_DEPTH = 128 }; /* calls */
/* Bytes of stack for one call with its checks, a kernel with ordinary local variables, and the text of an error: a call that
 * checks everything takes 40 KiB. */
enum { MIN_STACK = DV__SANITIZED ? 256 << 10 : 56 << 10 };
enum { ERROR_STACK = MIN_STACK / 4 }; /* bytes of stack to refuse a call and to return from its kernel */

typedef struct nesting {
    int depth;
    bool measured;
    uintptr_t low, high; /* lowest and highest address of the thread's stack; both 0: unknown */
    uintptr_t last;      /* frame of the newest call, open or ended: never above the innermost open one */
    size_t most;         /* bytes of stack between two nested calls, the most since the outermost call */
} nesting;

static _Thread_local nesting of_thread;
DV__OF_THREAD static nesting *nesting_of_thread(void) { return &of_thread; }

/* Sets the bounds of this thread's stack, or leaves both 0 if the system does not report them. */
static void measure_stack(nesting *n)
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

/* Returns the bytes of stack below the frame `here`. SIZE_MAX: unknown, because the frame is outside the thread's stack, as in a
 * coroutine. */
static size_t stack_left(nesting *n, uintptr_t here)
{
    if (!n->measured)
        measure_stack(n);
    return here > n->low && here <= n->high ? here - n->low : SIZE_MAX;
}

/* Returns the bytes of stack that a call at the frame `here` needs. It may take as much as the calls around it have taken. */
static size_t stack_needed(nesting *n, uintptr_t here)
{
    if (n->depth == 1)
        n->most = 0;
    if (n->last > here && n->last <= n->high && n->last - here > n->most)
        n->most = n->last - here;
    return n->most + ERROR_STACK > MIN_STACK ? n->most + ERROR_STACK : MIN_STACK;
}

/* Fails with DV_ELIMIT. depth: number of open calls; left, needed: bytes of stack. */
static __attribute__((noinline)) int fail_too_deep(const dv_operator *op, int depth, size_t left, size_t needed)
{
    if (depth >= MAX_DEPTH)
        return dv_fail(DV_ELIMIT, "%s: calls are nested more than %d deep: does a kernel call its own operator without end?",
            op->name, MAX_DEPTH);
    return dv_fail(DV_ELIMIT,
        "%s: calls are nested %d deep, and %zu KiB of the thread's stack are left, where a call needs %zu: does a kernel call "
        "its "
        "own operator without end?",
        op->name, depth, left >> 10, needed >> 10);
}

int dv__nesting_begin(const dv_operator *op)
{
    nesting *n = nesting_of_thread();
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (__builtin_expect(n->depth > 0, 0)) {
        const size_t left = stack_left(n, here), needed = stack_needed(n, here);
        if (n->depth >= MAX_DEPTH || left < needed)
            return fail_too_deep(op, n->depth, left, needed);
    }
    n->last = here;
    n->depth++;
    return DV_OK;
}

void dv__nesting_end(void) { nesting_of_thread()->depth--; }

int dv__nesting_depth(void) { return nesting_of_thread()->depth; }

int dv__nesting_set_depth(int depth)
{
    nesting *n = nesting_of_thread();
    const int before = n->depth;
    n->depth = depth;
    return before;
}
