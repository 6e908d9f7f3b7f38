/* Calls inside a call: before an instruction of one thread's kernel another thread makes a whole call, as a scheduler may let it
 * at any time. What two calls share shows each time, not by luck. Where steps.h does nothing, nothing happens. */
#ifndef DV_CHECK_BETWEEN_H
#define DV_CHECK_BETWEEN_H

#include <dovetail.h>

#include "steps.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { MOST_BETWEEN = 500, MOST_STEPPED = 50000, BETWEEN_NS = 5000000, FIRST_NS = 100000000, FIRST = 3 };

static struct {
    void (*call)(void *arg); /* the other call */
    void *arg;
    pthread_t id;
    sem_t wanted, made;
    bool under_way, ends;
    int64_t instructions, every; /* of the first call; 0: they are only counted */
    int late;                    /* how many of the other calls did not end in time */
} between;

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
    return ++between.instructions < MOST_STEPPED;
}

/* For dv_host.before_kernel and .after_kernel of the first call. */
static void between_begin(const dv_host *host)
{
    (void)host;
    between.instructions = 0;
    steps_begin(call_between);
}

static void between_end(const dv_host *host)
{
    (void)host;
    steps_end();
}

/* first() makes the first call, with that host: once to count its instructions, once with calls between them. False: no thread.
 */
static bool calls_inside(void (*first)(void *arg), void *first_arg, void (*other)(void *arg), void *other_arg)
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
    first(first_arg);
    between.every = between.instructions / MOST_BETWEEN + 1;
    first(first_arg);
    between.ends = true;
    sem_post(&between.wanted);
    pthread_join(between.id, NULL);
    return true;
}

#endif
