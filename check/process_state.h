/* The state of this process that code of an operator must leave unchanged (process_state.c). */
#ifndef DV_CHECK_PROCESS_STATE_H
#define DV_CHECK_PROCESS_STATE_H

#include <fenv.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include "check.h"

/* Process state that a call must leave unchanged. */
typedef struct check_process_state {
    fenv_t floats;
    unsigned control; /* floating-point control bits, without the exception flags */
    int rounding;
    sigset_t mask;
    struct sigaction handlers[NSIG];
    uint64_t environment_hash; /* hash of the environment variables */
    char locale[256], directory[1024];
    cpu_set_t cpus;              /* processors on which the thread may run */
    int stdout_bytes;            /* bytes written to stdout */
    bool has_child;              /* true if there is a child process that was not waited for */
    bool has_intact_descriptors; /* true if the descriptors that the checker had opened are unchanged */
    bool has_descriptor;         /* true if the process can open one more descriptor */
    bool has_timer;              /* true if an alarm is set */
    mode_t umask_bits;
    struct rlimit limits[RLIM_NLIMITS];
    int modes[5]; /* results of personality(), of prctl() for dumpable, no new privileges and seccomp, and the number of filters
                     of system calls */
} check_process_state;
/* Reads the process state that a call must leave unchanged. */
void check_process_state_read(check_process_state *state);
/* Fails the job if the process states before and after a kernel differ. Restores the floating-point environment and the signal
 * mask of `before`. Returns true if the job has not failed. */
bool check_process_state_try_verify(check_job *job, const check_process_state *before, const check_process_state *after);
/* Signal mask, signal handlers and standard descriptors of the checker, saved before dv_load() and restored after it. */
typedef struct check_saved_process {
    sigset_t mask;
    struct sigaction actions[NSIG];
    int standard[3]; /* copies of descriptors 0, 1 and 2 */
} check_saved_process;
/* Saves signal mask, signal handlers and copies of the standard descriptors. */
void check_process_state_save(check_saved_process *state);
/* Restores signal mask, common signal handlers and standard descriptors, and cancels alarm(). */
void check_process_state_restore(const check_saved_process *state);

#endif
