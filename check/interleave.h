/* Calls inside a call: before an instruction of one thread's kernel, another thread makes a whole call, as a scheduler may let it
 * at any time. Shared state of the two calls so shows in every run, without luck. Where single_step.h has no effect, nothing
 * happens. */
#ifndef DV_CHECK_INTERLEAVE_H
#define DV_CHECK_INTERLEAVE_H

#include <dovetail.h>

#include "single_step.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

enum {
    MAX_INTERLEAVED_CALLS = 500,
    MAX_STEPPED_INSTRUCTIONS = 50000,
    MAX_STEPPED_NS = 300000000,
    CALL_TIMEOUT_NS = 5000000,
    FIRST_CALL_TIMEOUT_NS = 100000000,
    NUM_FIRST_TIMEOUTS = 3
};

static struct {
    void (*call_operator)(void *arg); /* makes the call in the other thread */
    void *arg;
    pthread_t id;
    sem_t wanted, done;
    bool is_running, must_end;
    int64_t instructions, interval;   /* instructions: counted in the first call; interval: the other call is made before every so
                                         many instructions; 0: instructions are only counted */
    int64_t max_instructions, end_ns; /* max_instructions, end_ns: stepping ends at this number of instructions, or at this
                                         monotonic time in ns, since some systems take 20 us for a step */
    int timeouts;                     /* number of calls of the other thread that did not end in time */
} interleaving;

/* Returns the time of the monotonic clock in ns. */
static inline int64_t interleave_get_monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Main function of the other thread: calls interleaving.call_operator() whenever it is wanted, until must_end. */
static void *interleave_run_other_thread(void *unused)
{
    for (;;) {
        while (sem_wait(&interleaving.wanted))
            ;
        if (interleaving.must_end)
            return unused;
        interleaving.call_operator(interleaving.arg);
        sem_post(&interleaving.done);
    }
}

/* Callback before each instruction: at every `interval`-th lets the other thread make its call, and waits for it. A call that
 * waits for a lock of the stopped one ends later. The first calls get more time, since a busy machine delays the other thread.
 * Returns false, which ends stepping, at a limit. */
static bool interleave_make_other_call_and_may_continue(const uint8_t *instruction)
{
    const int error = errno;
    struct timespec until;
    (void)instruction;
    if (interleaving.is_running && !sem_trywait(&interleaving.done))
        interleaving.is_running = false;
    if (interleaving.interval && !interleaving.is_running && interleaving.instructions % interleaving.interval == 0) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += interleaving.timeouts < NUM_FIRST_TIMEOUTS ? FIRST_CALL_TIMEOUT_NS : CALL_TIMEOUT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        sem_post(&interleaving.wanted);
        interleaving.is_running = sem_timedwait(&interleaving.done, &until);
        interleaving.timeouts += interleaving.is_running;
    }
    errno = error;
    return ++interleaving.instructions < interleaving.max_instructions &&
        (interleaving.instructions % 64 || interleave_get_monotonic_ns() < interleaving.end_ns);
}

/* dv_host.before_kernel of the first call: begins stepping. interleave_end_stepping() is its dv_host.after_kernel. */
static inline void interleave_begin_stepping(const dv_host *host)
{
    (void)host;
    interleaving.instructions = 0;
    single_step_try_begin(interleave_make_other_call_and_may_continue);
}

/* dv_host.after_kernel of the first call: ends stepping. */
static inline void interleave_end_stepping(const dv_host *host)
{
    (void)host;
    single_step_end();
}

/* Calls make_first_call() twice: once to count the instructions of its kernel, once with calls of make_other_call() in another
 * thread between them. Returns false if no thread could be started. */
static inline bool interleave_try_calls(
    void (*make_first_call)(void *arg), void *first_arg, void (*make_other_call)(void *arg), void *other_arg)
{
    interleaving.call_operator = make_other_call;
    interleaving.arg = other_arg;
    interleaving.interval = 0;
    interleaving.must_end = interleaving.is_running = false;
    interleaving.timeouts = 0;
    sem_init(&interleaving.wanted, 0, 0);
    sem_init(&interleaving.done, 0, 0);
    if (pthread_create(&interleaving.id, NULL, interleave_run_other_thread, NULL))
        return false;
    interleaving.max_instructions = MAX_STEPPED_INSTRUCTIONS;
    interleaving.end_ns = interleave_get_monotonic_ns() + MAX_STEPPED_NS;
    interleaving.instructions = 0;
    make_first_call(first_arg);
    interleaving.interval = interleaving.instructions / MAX_INTERLEAVED_CALLS + 1;
    if (interleaving.instructions)
        interleaving.max_instructions = interleaving.instructions, interleaving.end_ns = INT64_MAX;
    make_first_call(first_arg);
    interleaving.must_end = true;
    sem_post(&interleaving.wanted);
    pthread_join(interleaving.id, NULL);
    return true;
}

/* ---- Once ---- */

enum { STOP_GROWTH = 32, MAX_WAITED_INSTRUCTIONS = 64, MAX_COUNTED_NS = 100000000, LOCK_PREFIX = 0xf0 };
static struct {
    void (*other)(void *arg); /* called in the other thread before instruction `position` of the stepped code */
    void *arg;
    int64_t position, instructions,
        total;       /* instructions: counted so far; total: number in the stepped code, counted when `position` is 0 */
    int64_t end_ns;  /* counting ends at this monotonic time in ns */
    uintptr_t stack; /* upper end of the stepped code's stack, which grows down */
    pthread_t id;
    sem_t wanted, done;
    int stop_condition; /* 0: stop at `position`; 1: at the next instruction that changes memory in place; 2: at the next one
                         * that writes memory */
    bool other_was_started;
    int timeouts; /* number of times that the other thread did not end in time */
    /* Called for an instruction that writes memory other than the stack, while instructions are only counted: at its first,
     * second, fourth, eighth, ... write. NULL: not called, and the other call is made before the first counted instruction. */
    void (*on_write)(const uint8_t *instruction, int64_t at);
} single_stop;

/* Main function of the other thread: calls single_stop.other() once, when it is wanted. */
static void *single_stop_run_other_thread(void *unused)
{
    while (sem_wait(&single_stop.wanted))
        ;
    single_stop.other(single_stop.arg);
    sem_post(&single_stop.done);
    return unused;
}

/* Counts how often an instruction was passed. True the first, second, fourth, eighth, ... time. */
static inline bool single_stop_count_is_power_of_two(const uint8_t *instruction)
{
    enum { TABLE_SIZE = 1024 };
    static struct {
        const uint8_t *position;
        uint32_t times;
    } all[TABLE_SIZE];
    const size_t k = (uintptr_t)instruction % TABLE_SIZE;
    if (all[k].position != instruction)
        all[k].position = instruction, all[k].times = 0;
    all[k].times++;
    return !(all[k].times & (all[k].times - 1));
}

/* Callback before each instruction: lets the other thread make its call before the chosen one. If the chosen instruction changes
 * memory in place, the old contents are put back after that call, as if the instruction had read them before. Returns false when
 * stepping is to end. */
static bool single_stop_run_other_and_may_continue(const uint8_t *instruction)
{
    const int error = errno;
    struct timespec until;
    size_t size = 0;
    const uintptr_t changed = single_stop.other_was_started ? 0 : single_step_get_changed_memory(instruction, &size);
    const bool own = !changed || single_step_is_in_stack_frames(changed, single_stop.stack);
    const bool notes = single_stop.on_write && !single_stop.position;
    const uintptr_t stored = single_stop.other_was_started || (single_stop.stop_condition < 2 && !notes)
        ? 0
        : single_step_get_stored_memory(instruction);
    const bool stores = stored && !single_step_is_in_stack_frames(stored, single_stop.stack),
               found = single_stop.stop_condition < 2 ? !single_stop.stop_condition || !own : stores;
    if (notes && (stores || !own || *instruction == LOCK_PREFIX) && single_stop_count_is_power_of_two(instruction))
        single_stop.on_write(instruction, single_stop.instructions);
    if (single_stop.instructions++ >= single_stop.position && !single_stop.other_was_started && !notes &&
        (found || single_stop.instructions > single_stop.position + MAX_WAITED_INSTRUCTIONS)) {
        uint64_t before = 0;
        single_stop.other_was_started = true;
        if (!own)
            memcpy(&before, (const void *)changed, size);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += single_stop.timeouts < NUM_FIRST_TIMEOUTS ? FIRST_CALL_TIMEOUT_NS : CALL_TIMEOUT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        sem_post(&single_stop.wanted);
        const bool late = sem_timedwait(&single_stop.done, &until) != 0; /* true: the other call waits for a lock */
        single_stop.timeouts += late;
        if (!own && !late)
            memcpy((void *)changed, &before, size);
    }
    errno = error;
    return single_stop.position ? !single_stop.other_was_started
                                : single_stop.instructions < MAX_STEPPED_INSTRUCTIONS &&
            (single_stop.instructions % 64 || interleave_get_monotonic_ns() < single_stop.end_ns);
}

/* Begins to step through the code of this thread, in which make_other_call(arg) runs once in another thread. Returns false if
 * stepping or a thread cannot be started. */
static inline bool single_stop_try_begin(void (*make_other_call)(void *arg), void *arg)
{
    single_stop.other = make_other_call;
    single_stop.arg = arg;
    single_stop.other_was_started = false;
    single_stop.instructions = 0;
    single_stop.stack = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
    single_stop.end_ns = interleave_get_monotonic_ns() + MAX_COUNTED_NS;
    sem_init(&single_stop.wanted, 0, 0);
    sem_init(&single_stop.done, 0, 0);
    return !pthread_create(&single_stop.id, NULL, single_stop_run_other_thread, NULL) &&
        (single_step_try_begin(single_stop_run_other_and_may_continue), true);
}

/* Ends stepping, lets the other thread make its call if it has not yet, and waits for its end. */
static inline void single_stop_end(void)
{
    single_step_end();
    single_stop.total = single_stop.position ? single_stop.total : single_stop.instructions;
    if (!single_stop.other_was_started)
        sem_post(&single_stop.wanted);
    pthread_join(single_stop.id, NULL);
}

typedef struct loop_rest {
    dv_range_fn fn;
    void *arg;
    int64_t begin, end;
} loop_rest;
/* Runs the remaining steps [begin, end) of a parallel loop. */
static void interleave_run_remaining_loop(void *rest)
{
    const loop_rest *s = rest;
    s->fn(s->arg, s->begin, s->end);
}

/* dv_host.parallel_for: runs the first step of a loop, and all others in another thread before one instruction of it. Returns the
 * status of the first step. */
static inline int interleave_parallel_for_inside_first(
    const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    loop_rest others = { fn, arg, begin + 1, end };
    (void)host, (void)grain;
    if (end - begin < 2 || !single_stop_try_begin(interleave_run_remaining_loop, &others))
        return fn(arg, begin, end);
    const int status = fn(arg, begin, begin + 1);
    single_stop_end();
    return status;
}

/* Advances single_stop.position to the next instruction to stop before, at growing distances. Returns false after the last one,
 * or if the other thread was late too often. */
static inline bool single_stop_try_select_next_position(void)
{
    single_stop.position += single_stop.position / STOP_GROWTH + 1;
    single_stop.stop_condition = (single_stop.stop_condition + 1) % 3;
    return single_stop.position < single_stop.total && single_stop.timeouts < NUM_FIRST_TIMEOUTS;
}

#endif
