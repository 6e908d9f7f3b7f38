/* Calls inside a call: before an instruction of one thread's kernel another thread makes a whole call, as a scheduler may let it
 * at any time. What two calls share shows each time, not by luck. Where steps.h does nothing, nothing happens. */
#ifndef DV_CHECK_BETWEEN_H
#define DV_CHECK_BETWEEN_H

#include <dovetail.h>

#include "steps.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

enum { MOST_BETWEEN = 500, MOST_STEPPED = 50000, STEPPED_NS = 300000000, BETWEEN_NS = 5000000, FIRST_NS = 100000000, FIRST = 3 };

static struct {
    void (*call)(void *arg); /* the other call */
    void *arg;
    pthread_t id;
    sem_t wanted, made;
    bool under_way, ends;
    int64_t instructions, every; /* of the first call; 0: they are only counted */
    int64_t most, until;         /* no more of them, nor after this time in ns: some systems take 20 us for a step */
    int late;                    /* how many of the other calls did not end in time */
} between;

static inline int64_t between_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void *calls_between(void *unused)
{
    for (;;) {
        while (sem_wait(&between.wanted))
            ;
        if (between.ends)
            return unused;
        between.call(between.arg);
        sem_post(&between.made);
    }
}

/* A call that waits for the stopped one (a lock) does not hold it up: it ends later. The first ones get more time: on a busy
 * machine the other thread is late without a lock. */
static bool call_between(const uint8_t *instruction)
{
    const int error = errno;
    struct timespec until;
    (void)instruction;
    if (between.under_way && !sem_trywait(&between.made))
        between.under_way = false;
    if (between.every && !between.under_way && between.instructions % between.every == 0) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += between.late < FIRST ? FIRST_NS : BETWEEN_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        sem_post(&between.wanted);
        between.under_way = sem_timedwait(&between.made, &until);
        between.late += between.under_way;
    }
    errno = error;
    return ++between.instructions < between.most && (between.instructions % 64 || between_now() < between.until);
}

/* For dv_host.before_kernel and .after_kernel of the first call. */
static inline void between_begin(const dv_host *host)
{
    (void)host;
    between.instructions = 0;
    steps_begin(call_between);
}

static inline void between_end(const dv_host *host)
{
    (void)host;
    steps_end();
}

/* first() makes the first call, with that host: once to count its instructions, once with calls between them. False: no thread.
 */
static inline bool calls_inside(void (*first)(void *arg), void *first_arg, void (*other)(void *arg), void *other_arg)
{
    between.call = other;
    between.arg = other_arg;
    between.every = 0;
    between.ends = between.under_way = false;
    between.late = 0;
    sem_init(&between.wanted, 0, 0);
    sem_init(&between.made, 0, 0);
    if (pthread_create(&between.id, NULL, calls_between, NULL))
        return false;
    between.most = MOST_STEPPED;
    between.until = between_now() + STEPPED_NS;
    between.instructions = 0;
    first(first_arg);
    between.every = between.instructions / MOST_BETWEEN + 1;
    if (between.instructions)
        between.most = between.instructions, between.until = INT64_MAX;
    first(first_arg);
    between.ends = true;
    sem_post(&between.wanted);
    pthread_join(between.id, NULL);
    return true;
}

/* ---- Once ---- */

enum { DENSE = 32, MOST_WAITED = 64, COUNTED_NS = 100000000, LOCKED = 0xf0 };
static struct {
    void (*other)(void *arg); /* runs before instruction `at` of what is stepped through, in another thread */
    void *arg;
    int64_t at, instructions, all; /* all: of what is stepped through, counted when `at` is 0 */
    int64_t until;                 /* no more are counted after this time in ns */
    uintptr_t stack;               /* where that of what is stepped through begins; it grows down */
    pthread_t id;
    sem_t wanted, made;
    int waits; /* rather before the next instruction from there on that changes memory in place (1), or writes it (2) */
    bool asked;
    int late; /* how often it did not end in time */
    /* While instructions are only counted, told of writes, but not of those to the stack. Of one instruction it is told of the
     * first write, the second, the fourth, and so on. NULL: the others run before the first instruction that is counted. */
    void (*note)(const uint8_t *instruction, int64_t at);
} once;

static void *other_once(void *unused)
{
    while (sem_wait(&once.wanted))
        ;
    once.other(once.arg);
    sem_post(&once.made);
    return unused;
}

static inline bool is_rare(const uint8_t *instruction)
{
    enum { SEEN = 1024 };
    static struct {
        const uint8_t *at;
        uint32_t times;
    } all[SEEN];
    const size_t k = (uintptr_t)instruction % SEEN;
    if (all[k].at != instruction)
        all[k].at = instruction, all[k].times = 0;
    all[k].times++;
    return !(all[k].times & (all[k].times - 1));
}

/* An instruction that changes memory in place may read before the others run, and write after that: so it gets what was there. */
static bool stop_once(const uint8_t *instruction)
{
    const int error = errno;
    struct timespec until;
    size_t size = 0;
    const uintptr_t changed = once.asked ? 0 : changed_in_place(instruction, &size);
    const bool own = !changed || is_own_stack(changed, once.stack);
    const bool notes = once.note && !once.at;
    const uintptr_t stored = once.asked || (once.waits < 2 && !notes) ? 0 : stored_to(instruction);
    const bool stores = stored && !is_own_stack(stored, once.stack), found = once.waits < 2 ? !once.waits || !own : stores;
    if (notes && (stores || !own || *instruction == LOCKED) && is_rare(instruction))
        once.note(instruction, once.instructions);
    if (once.instructions++ >= once.at && !once.asked && !notes && (found || once.instructions > once.at + MOST_WAITED)) {
        uint64_t before = 0;
        once.asked = true;
        if (!own)
            memcpy(&before, (const void *)changed, size);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += once.late < FIRST ? FIRST_NS : BETWEEN_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        sem_post(&once.wanted);
        const bool late = sem_timedwait(&once.made, &until) != 0; /* it waits for a lock */
        once.late += late;
        if (!own && !late)
            memcpy((void *)changed, &before, size);
    }
    errno = error;
    return once.at ? !once.asked : once.instructions < MOST_STEPPED && (once.instructions % 64 || between_now() < once.until);
}

/* False: no thread. */
static inline bool once_begin(void (*other)(void *arg), void *arg)
{
    once.other = other;
    once.arg = arg;
    once.asked = false;
    once.instructions = 0;
    once.stack = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
    once.until = between_now() + COUNTED_NS;
    sem_init(&once.wanted, 0, 0);
    sem_init(&once.made, 0, 0);
    return !pthread_create(&once.id, NULL, other_once, NULL) && (steps_begin(stop_once), true);
}

static inline void once_end(void)
{
    steps_end();
    once.all = once.at ? once.all : once.instructions;
    if (!once.asked)
        sem_post(&once.wanted);
    pthread_join(once.id, NULL);
}

typedef struct other_steps {
    dv_range_fn fn;
    void *arg;
    int64_t begin, end;
} other_steps;
static void run_steps(void *of)
{
    const other_steps *s = of;
    s->fn(s->arg, s->begin, s->end);
}

/* For dv_host.parallel_for: before one instruction of the first step all others run. */
static inline int others_inside(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    other_steps others = { fn, arg, begin + 1, end };
    (void)host, (void)grain;
    if (end - begin < 2 || !once_begin(run_steps, &others))
        return fn(arg, begin, end);
    const int status = fn(arg, begin, begin + 1);
    once_end();
    return status;
}

/* The next instruction to stop before, ever more rarely; false: there are no more. */
static inline bool next_instruction(void)
{
    once.at += once.at / DENSE + 1;
    once.waits = (once.waits + 1) % 3;
    return once.at < once.all && once.late < FIRST;
}

#endif
