#pragma once
#include "outs.h"
#include "between.h"

/* Threads that call at the same time. */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 4, STOPS = 2000 };
static dv_operator *stressed;
static atomic_int stop, differs, calls, stops;
static outs alone[THREADS];

static void sleep_ns(long ns)
{
    const struct timespec t = { 0, ns };
    nanosleep(&t, NULL);
}

/* A thread stays where it is until another one has made a whole call, unless that one waits for it. */
static void on_stop(int number)
{
    const int enough = calls + THREADS;
    (void)number;
    for (int i = 0; i < 100 && calls < enough && !stop; i++)
        sleep_ns(20000);
    stops++;
}

/* This thread's next call, with its own contents in its own memory. */
static void call_as(int i, const dv_host *host)
{
    static _Thread_local dv_value results[NRESULTS + 1];
    static _Thread_local outs now;
    static _Thread_local size_t made;
    int written = 0;
    which = i;
    again = 1;
    for (int k = 0; k < NARGS; k++)
        written |= is_written[k];
    if (!made || written) { /* its contents again */
        nbuffers = 0;
        make_arguments();
        made = nbuffers;
    }
    nbuffers = made;
    for (int k = 0; k < NRESULTS; k++)
        results[k] = dv_default();
    calls++;
    if (dv_call(stressed, args, NARGS, results, NRESULTS, host))
        return;
    take(&now, results);
    if (differ(&alone[which], &now, -1, -1, 0))
        differs = stop = 1;
}

static void *stress(void *arg)
{
    const dv_host host = host_of(ROW);
    while (!stop)
        call_as((int)(intptr_t)arg, &host);
    return NULL;
}

/* In one thread, stopped before each instruction of its kernel, and in another one meanwhile. */
static void stepped_call(void *arg)
{
    dv_host host = host_of(ROW);
    host.before_kernel = between_begin;
    host.after_kernel = between_end;
    (void)arg, call_as(0, &host);
}
static void other_call(void *arg)
{
    const dv_host host = host_of(ROW);
    (void)arg, call_as(1, &host);
}
