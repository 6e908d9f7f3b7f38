/* What the files of property parallel share. property_parallel.c says in which order a case is checked. */
#ifndef DV_CHECK_PARALLEL_H
#define DV_CHECK_PARALLEL_H

#include "check.h"

enum { POISON_BYTE = 0xa5, NUM_THREADS = 4, MAX_WORK = 1 << 20 };
static const double MAX_RACE_SECONDS = 0.25; /* processor time in seconds for the tries to find a race by single-stepping */

/* ---- Calls (parallel_call.c) ---- */

/* Settings of the next calls of the kernel, and what former calls did. */
extern struct parallel_calls {
    check_result *result;      /* result of the job of the last call; NULL: there was no call */
    int64_t max_loop_steps;    /* number of steps of the largest loop that calls have run */
    int initial_errno;         /* errno before a call */
    uint64_t random_seed;      /* seed of dv_random() */
    bool reuse_scratch;        /* true: scratch of a chunk holds what another chunk left there */
    bool allocated_scratch;    /* true: the last call used scratch */
    bool continue_random;      /* true: random numbers continue after those of the last call */
    bool has_called_kernel;    /* true: this process has called the kernel */
    bool used_given_generator; /* true: some call of this process took random numbers from the Generator that was given */
} check_parallel_calls;
typedef int (*parallel_for_fn)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);
/* True if the job has an outcome other than pass. */
bool check_parallel_has_failed(const check_job *job);
/* Runs a loop as one chunk (function for dv_host.parallel_for). Raises max_loop_steps to the loop's steps, and records in the
 * job's result that some loop has several steps. Returns the status of the chunk. */
int check_parallel_run_loop_as_one_chunk(
    const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);
/* True if the last execution of a loop had more than one chunk of its grain. */
bool check_parallel_loop_has_several_chunks(const check_loop *loop);
/* Makes a guarded call of the kernel and copies results and written arguments to `outputs`. parallel_for: runs the kernel's
 * loops; NULL: the runtime's threads. no_split: the kernel function is called once, despite .split. Random numbers begin with the
 * same seed each time, unless continue_random. Returns false if the call was refused. */
bool check_parallel_try_call_kernel(const check_job *job, const check_case *c, enum check_guard_side guard_side,
    parallel_for_fn parallel_for, bool no_split, check_outputs *outputs);
/* Makes this property report crashes, bad accesses and timeouts, until also_reported_faults is set to 0 again. */
void check_parallel_report_faults_here(check_job *job);
/* Makes this property report timeouts, and no other faults, until also_reported_faults is 0 again: two calls may wait for each
 * other. condition: text for the message, such as "when another thread calls it". */
void check_parallel_report_timeouts_here(check_job *job, const char *condition);
/* Calls predicate(job, c) in a forked process, and returns its result. Returns false if a signal killed that process: the trap of
 * single-stepping kills a kernel that blocks signals. If a fault was reported there, this process exits, too. */
bool check_parallel_is_true_in_fork(
    check_job *job, const check_case *c, bool (*predicate)(const check_job *, const check_case *));
/* Returns the processor time in seconds of all forked processes that have ended. */
double check_parallel_get_forks_cpu_seconds(void);
/* True if no tensor of the case is filled with CHECK_FILL_SPECIAL_VALUES: NaN, infinities and extremes. */
bool check_parallel_has_no_special_values(const check_case *c);

/* ---- Slices (parallel_slices.c) ---- */

/* Returns the contract's name to which a fact's JSON refers: ["dim", "n"], or ["run", "s"] for variadic dims. NULL: the contract
 * has no such name. */
const check_name *check_parallel_find_fact_name(const check_op *op, const check_json *fact);
/* True if a fact of the contract stands outside of all groups of cases, or in the contract's case that this call selects.
 * fact_case: the fact's entry in the contract's JSON "places". */
bool check_parallel_fact_applies(const check_case *c, const check_json *fact_case);
/* Checks the facts parallel() and sum() of the contract that apply to the case, with each of their dims split at one position. */
void check_parallel_facts(check_job *job, const check_case *c);

/* ---- Threads (parallel_threads.c) ---- */

/* Checks that NUM_THREADS threads can call the kernel at once, each with its own data. A kernel that writes to static memory is
 * tried for longer. */
void check_parallel_simultaneous_calls(check_job *job, const check_case *c);
/* True if results change when the other chunks of a loop run before some instruction of its first chunk, in a forked process. */
bool check_parallel_has_chunk_race(check_job *job, const check_case *c);
/* True if the first call of a process changes the static memory of the operator's libraries. */
bool check_parallel_first_call_writes_static_memory(const check_job *job, const check_case *c);
/* True if another call during a process's first call changes a result, for calls of the same size, or for a small and a large
 * case. */
bool check_parallel_has_any_first_call_race(check_job *job, const check_case *c);
/* Checks that a call gives the same results while another thread calls the kernel with another argument or other sizes. */
void check_parallel_threads_with_other_arguments(check_job *job, const check_case *c);

/* ---- State (parallel_state.c) ---- */

/* Copies a case to `out` with the argument of a slot as case number plan_case_index of the plan has it. Returns false if that
 * argument is a tensor or the same as before, or the copy is not accepted. */
bool check_parallel_try_make_case_with_planned_argument(
    const check_job *job, const check_case *c, size_t slot, uint32_t plan_case_index, check_case *out);
/* Checks that results do not depend on a preceding call with another argument or other contents. Tries the first cases and the
 * first large ones, before this process has called the kernel; while shrinking only the given case. */
void check_parallel_state(check_job *job, const check_case *input_case);
/* Checks, after every 24 cases, that the first case still gives its first results. case_number: number of the current case,
 * from 1. */
void check_parallel_first_case_again(check_job *job, uint32_t case_number, const check_case *c);

/* ---- Loops (parallel_loops.c) ---- */

/* Checks that results stay the same if the chunks of a call's loops run in another order or on more threads. finds_races: also if
 * they run between the instructions of the first chunk. first_outputs: results of the ordinary call. */
void check_parallel_loops(check_job *job, const check_case *c, const check_outputs *first_outputs, bool finds_races);
/* Copies a case to `out` with one size so large that the work is shared among threads: that of a parallel dim, if the contract
 * has one. Returns false if no such case is accepted. */
bool check_parallel_try_make_large_case(const check_job *job, const check_case *c, check_case *out);
/* Returns `out`, a larger case that runs a loop in several chunks, if case c runs it in one. NULL: no loop needs such a case, or
 * none can be made. */
const check_case *check_parallel_find_chunked_case(const check_job *job, const check_case *c, check_case *out);
/* True if, in all cases, some loop of the kernel never had several chunks although its number of steps varies. */
bool check_parallel_has_unchunked_loop(void);

/* ---- Random numbers (parallel_random.c) ---- */

/* True if the operator has a Generator argument. */
bool check_parallel_has_generator(const check_op *op);
/* Checks a nondeterministic operator with random numbers from dv_random(): the seed decides them, no two calls or chunks have the
 * same, and each slice has its own in any order. */
void check_parallel_random(check_job *job, const check_case *c);

#endif
