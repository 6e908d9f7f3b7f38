/* The thread pool. Work is divided into numbered pieces; a piece is the same on whichever thread it runs.
 *
 * Jobs lie on the stacks of their callers and in one list. A worker takes pieces of the first job that has some left; a caller
 * takes pieces of its own job and then waits until no worker is inside it. A job leaves the list before its caller returns, under
 * the lock. Workers are started when a job first needs them; they are detached and never end. A forked child starts without
 * workers. */
#include "call/pool.h"

#include "call/nesting.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

typedef struct job {
    dv__piece_fn fn;
    void *arg;
    int64_t n;
    int depth;                /* nesting depth of the call (nesting.h) */
    atomic_int_fast64_t next; /* the first piece that nobody has taken */
    atomic_int status;        /* the first failure */
    int inside;               /* workers; under the lock */
    struct job *link;
} job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static job *jobs;
static int nworkers;
static atomic_int wanted;               /* dv_set_threads(); 0: all */
static _Thread_local bool inside_piece; /* of any job: what it starts runs here */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void)
{
    const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;
    jobs = NULL; /* their callers are not here */
    nworkers = 0;
    work = fresh; /* the old ones count the parent's workers as waiting */
    done = fresh;
    pthread_mutex_unlock(&lock);
}
static void at_start(void) { pthread_atfork(before_fork, in_parent, in_child); }

static int available(void)
{
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set))
        return CPU_COUNT(&set);
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)(n < DV_MAX_THREADS ? n : DV_MAX_THREADS) : 1;
}

int dv_get_threads(void)
{
    const int n = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (n)
        return n;
    static atomic_int all;
    int found = atomic_load_explicit(&all, memory_order_relaxed);
    if (!found) {
        found = available();
        found = found < DV_MAX_THREADS ? found : DV_MAX_THREADS;
        atomic_store_explicit(&all, found, memory_order_relaxed);
    }
    return found;
}

int dv_set_threads(int n)
{
    if (n < 0 || n > DV_MAX_THREADS)
        return dv_fail(DV_EINVAL, "dv_set_threads: expected 0 to %d threads, found %d", DV_MAX_THREADS, n);
    atomic_store(&wanted, n);
    return DV_OK;
}

/* Take and run pieces until none is left. */
static void run_pieces(job *j)
{
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (i >= j->n)
            return;
        const int status = j->fn(j->arg, i);
        if (status) {
            int none = 0;
            atomic_compare_exchange_strong(&j->status, &none, status);
            atomic_store_explicit(&j->next, j->n, memory_order_relaxed);
        }
    }
}

/* Under the lock. */
static job *open_job(void)
{
    for (job *j = jobs; j; j = j->link)
        if (atomic_load_explicit(&j->next, memory_order_relaxed) < j->n && j->inside < dv_get_threads() - 1)
            return j;
    return NULL;
}

static void *worker(void *unused)
{
    (void)unused;
    inside_piece = true;
    pthread_mutex_lock(&lock);
    for (;;) {
        job *j = open_job();
        if (!j) {
            pthread_cond_wait(&work, &lock);
            continue;
        }
        j->inside++;
        pthread_mutex_unlock(&lock);
        dv__nesting_set_depth(j->depth);
        run_pieces(j);
        pthread_mutex_lock(&lock);
        if (!--j->inside)
            pthread_cond_broadcast(&done);
    }
    return NULL;
}

/* Under the lock. If a thread cannot be started, the job runs with fewer. */
static void start_workers(int n)
{
    sigset_t all, before;
    pthread_attr_t detached;
    if (nworkers >= n || pthread_attr_init(&detached))
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals go to the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (pthread_t id; nworkers < n && !pthread_create(&id, &detached, worker, NULL); nworkers++)
        ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}

static int run_on_pool(int64_t n, dv__piece_fn fn, void *arg, int threads)
{
    job j = { .fn = fn, .arg = arg, .n = n, .depth = dv__nesting_depth() };
    const int helpers = n < threads ? (int)n - 1 : threads - 1;
    pthread_once(&once, at_start);
    pthread_mutex_lock(&lock);
    start_workers(helpers);
    j.link = jobs;
    jobs = &j;
    if (helpers >= nworkers)
        pthread_cond_broadcast(&work);
    for (int i = 0; i < helpers && helpers < nworkers; i++)
        pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
    inside_piece = true;
    run_pieces(&j);
    inside_piece = false;
    pthread_mutex_lock(&lock);
    while (j.inside)
        pthread_cond_wait(&done, &lock);
    for (job **at = &jobs; *at; at = &(*at)->link)
        if (*at == &j) {
            *at = j.link;
            break;
        }
    assert(!j.inside && atomic_load(&j.next) >= j.n);
    pthread_mutex_unlock(&lock);
    return atomic_load(&j.status);
}

/* ---- The host's threads ---- */

static int run_range(void *arg, int64_t begin, int64_t end)
{
    job *j = arg;
    const bool outer = inside_piece;
    const int depth = dv__nesting_set_depth(j->depth);
    int status = 0;
    inside_piece = true;
    for (int64_t i = begin; i < end && !status && !atomic_load_explicit(&j->status, memory_order_relaxed); i++)
        status = j->fn(j->arg, i);
    inside_piece = outer;
    dv__nesting_set_depth(depth);
    if (status) {
        int none = 0;
        atomic_compare_exchange_strong(&j->status, &none, status);
    }
    return status;
}

int dv__parallel(const dv_host *host, int64_t n, dv__piece_fn fn, void *arg)
{
    if (n > 1 && !inside_piece && DV__HOST(host, parallel_for)) {
        job j = { .fn = fn, .arg = arg, .n = n, .depth = dv__nesting_depth() };
        const int status = host->parallel_for(host, 0, n, 1, run_range, &j);
        const int first = atomic_load(&j.status);
        return first ? first : status;
    }
    const int threads = n > 1 && !inside_piece ? dv_get_threads() : 1;
    if (threads > 1)
        return run_on_pool(n, fn, arg, threads);
    for (int64_t i = 0; i < n; i++) {
        const int status = fn(arg, i);
        if (status)
            return status;
    }
    return DV_OK;
}
