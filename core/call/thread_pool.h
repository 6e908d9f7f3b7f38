/* Threads for the tasks of a call. */
#ifndef DV_CALL_THREAD_POOL_H
#define DV_CALL_THREAD_POOL_H

#include "call/call_state.h"

/* Runs fn(arg, i) once for each i in [0, ntasks), on the host's threads or the pool's, and waits. Returns the first non-zero
 * value of fn; tasks that have not begun then are skipped. Inside a task, dv__pool_run_tasks() runs its tasks one after
 * another on that task's thread. */
typedef int (*dv__pool_task_fn)(void *arg, int64_t i);
int dv__pool_run_tasks(const dv_host *host, int64_t ntasks, dv__pool_task_fn fn, void *arg);

#endif
