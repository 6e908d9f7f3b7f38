/* The thread pool. A job is divided into numbered tasks; what a task does never depends on its thread.
 *
 * Each job lies on its caller's stack and is linked into one list. A worker takes tasks of the first job with tasks left. A
 * caller takes tasks of its own job, waits until no worker is inside the job, and unlinks the job under the lock before it
 * returns. Workers are started when a job first needs them. They are detached and never end. A forked child has no workers
 * until its first job. */
#include "call/thread_pool.h"

#include "call/nesting.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

typedef struct job {
    dv__pool_task_fn fn;
    void *arg;
    int64_t n;
    int depth;                     /* number of open calls around the job (nesting.h), which its workers take over */
    atomic_int_fast64_t next_task; /* number of the next task to run */
    atomic_int status;             /* status of the first task that failed; 0: none */
    int nworkers_inside;           /* number of workers that run tasks of this job; protected by pool_mutex */
    struct job *next_job;
} job;

static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_available = PTHREAD_COND_INITIALIZER, job_done = PTHREAD_COND_INITIALIZER;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static job *open_jobs;
static int nworkers;
static atomic_int requested_threads; /* the value of dv_set_threads(); 0: as many threads as CPUs */
static _Thread_local bool
    in_task; /* true while this thread runs a task: a job that the task starts then runs on this thread alone */

static void pool_before_fork(void) { pthread_mutex_lock(&pool_mutex); }
static void pool_after_fork_parent(void) { pthread_mutex_unlock(&pool_mutex); }
static void pool_after_fork_child(void)
{
    const pthread_cond_t new_condition = PTHREAD_COND_INITIALIZER;
    open_jobs = NULL; /* the child has no thread that waits for a job of the parent */
    nworkers = 0;
    work_available = new_condition; /* the inherited condition variables count the parent's workers as waiting */
    job_done = new_condition;
    pthread_mutex_unlock(&pool_mutex);
}
static void pool_register_fork_handlers(void) { pthread_atfork(pool_before_fork, pool_after_fork_parent, pool_after_fork_child); }

static int pool_count_cpus(void)
{
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set))
        return CPU_COUNT(&set);
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)(n < DV_MAX_THREADS ? n : DV_MAX_THREADS) : 1;
}

int dv_get_threads(void)
{
    const int n = atomic_load_explicit(&requested_threads, memory_order_relaxed);
    if (n)
        return n;
    static atomic_int all_cpus;
    int found = atomic_load_explicit(&all_cpus, memory_order_relaxed);
    if (!found) {
        found = pool_count_cpus();
        found = found < DV_MAX_THREADS ? found : DV_MAX_THREADS;
        atomic_store_explicit(&all_cpus, found, memory_order_relaxed);
    }
    return found;
}

int dv_set_threads(int n)
{
    if (n < 0 || n > DV_MAX_THREADS)
        return dv_fail(DV_EINVAL, "dv_set_threads: expected 0 to %d threads, found %d", DV_MAX_THREADS, n);
    atomic_store(&requested_threads, n);
    return DV_OK;
}

/* Runs tasks of a job on this thread until no task is left. After a failure the job's remaining tasks are skipped. */
static void pool_run_remaining_tasks(job *j)
{
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&j->next_task, 1, memory_order_relaxed);
        if (i >= j->n)
            return;
        const int status = j->fn(j->arg, i);
        if (status) {
            int none = 0;
            atomic_compare_exchange_strong(&j->status, &none, status);
            atomic_store_explicit(&j->next_task, j->n, memory_order_relaxed);
        }
    }
}

/* Returns the first job that has tasks left and fewer workers than dv_get_threads() - 1; NULL: none. Requires pool_mutex. */
static job *pool_find_open_job(void)
{
    for (job *j = open_jobs; j; j = j->next_job)
        if (atomic_load_explicit(&j->next_task, memory_order_relaxed) < j->n && j->nworkers_inside < dv_get_threads() - 1)
            return j;
    return NULL;
}

static void *pool_worker_main(void *unused)
{
    (void)unused;
    in_task = true;
    pthread_mutex_lock(&pool_mutex);
    for (;;) {
        job *j = pool_find_open_job();
        if (!j) {
            pthread_cond_wait(&work_available, &pool_mutex);
            continue;
        }
        j->nworkers_inside++;
        pthread_mutex_unlock(&pool_mutex);
        dv__nesting_set_depth(j->depth);
        pool_run_remaining_tasks(j);
        pthread_mutex_lock(&pool_mutex);
        if (!--j->nworkers_inside)
            pthread_cond_broadcast(&job_done);
    }
    return NULL;
}

/* Starts workers until the pool has `wanted`. Stops without an error if a thread cannot be started. Requires pool_mutex. */
static void pool_start_missing_workers(int wanted)
{
    sigset_t all_signals, before;
    pthread_attr_t detached;
    if (nworkers >= wanted || pthread_attr_init(&detached))
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all_signals); /* signals go to the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all_signals, &before);
    for (pthread_t id; nworkers < wanted && !pthread_create(&id, &detached, pool_worker_main, NULL); nworkers++)
        ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}

/* Runs a job on this thread and up to threads - 1 workers of the pool, and waits until no worker is inside the job. Returns
 * the first failure. */
static int pool_run_job(int64_t ntasks, dv__pool_task_fn fn, void *arg, int threads)
{
    job j = { .fn = fn, .arg = arg, .n = ntasks, .depth = dv__nesting_get_depth() };
    const int helpers = ntasks < threads ? (int)ntasks - 1 : threads - 1;
    pthread_once(&pool_once, pool_register_fork_handlers);
    pthread_mutex_lock(&pool_mutex);
    pool_start_missing_workers(helpers);
    j.next_job = open_jobs;
    open_jobs = &j;
    if (helpers >= nworkers)
        pthread_cond_broadcast(&work_available);
    for (int i = 0; i < helpers && helpers < nworkers; i++)
        pthread_cond_signal(&work_available);
    pthread_mutex_unlock(&pool_mutex);
    in_task = true;
    pool_run_remaining_tasks(&j);
    in_task = false;
    pthread_mutex_lock(&pool_mutex);
    while (j.nworkers_inside)
        pthread_cond_wait(&job_done, &pool_mutex);
    for (job **at = &open_jobs; *at; at = &(*at)->next_job)
        if (*at == &j) {
            *at = j.next_job;
            break;
        }
    assert(!j.nworkers_inside && atomic_load(&j.next_task) >= j.n);
    pthread_mutex_unlock(&pool_mutex);
    return atomic_load(&j.status);
}

/* ---- The host's threads ---- */

/* Runs tasks begin to end - 1 of a job on a thread of the host. Stops at the first failure. */
static int pool_run_host_range(void *arg, int64_t begin, int64_t end)
{
    job *j = arg;
    const bool outer = in_task;
    const int depth = dv__nesting_set_depth(j->depth);
    int status = 0;
    in_task = true;
    for (int64_t i = begin; i < end && !status && !atomic_load_explicit(&j->status, memory_order_relaxed); i++)
        status = j->fn(j->arg, i);
    in_task = outer;
    dv__nesting_set_depth(depth);
    if (status) {
        int none = 0;
        atomic_compare_exchange_strong(&j->status, &none, status);
    }
    return status;
}

int dv__pool_run_tasks(const dv_host *host, int64_t ntasks, dv__pool_task_fn fn, void *arg)
{
    if (ntasks > 1 && !in_task && DV__HOST_HAS(host, parallel_for)) {
        job j = { .fn = fn, .arg = arg, .n = ntasks, .depth = dv__nesting_get_depth() };
        const int status = host->parallel_for(host, 0, ntasks, 1, pool_run_host_range, &j);
        const int first = atomic_load(&j.status);
        return first ? first : status;
    }
    const int threads = ntasks > 1 && !in_task ? dv_get_threads() : 1;
    if (threads > 1)
        return pool_run_job(ntasks, fn, arg, threads);
    for (int64_t i = 0; i < ntasks; i++) {
        const int status = fn(arg, i);
        if (status)
            return status;
    }
    return DV_OK;
}
