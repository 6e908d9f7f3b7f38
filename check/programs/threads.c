#include "stress.h"
#include <sys/wait.h>

/* Calls inside a call, in a process of its own: the trap after each instruction ends one whose kernel blocks signals. */
enum { DIFFER = 1, NOT_LOOKED = 3, MOST_S = 60 }; /* calls may wait for each other */
static int look_inside(void)
{
    int status = 0;
    const pid_t pid = fork();
    alarm(MOST_S); /* in both */
    if (!pid) {
        calls_inside(stepped_call, NULL, other_call, NULL);
        _exit(differs ? DIFFER : between.instructions ? 0 : NOT_LOOKED);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status) == SIGTRAP ? NOT_LOOKED : DIFFER;
}

static int question(dv_operator *op, dv_value *results)
{
    const struct sigaction action = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
    pthread_t threads[THREADS];
    stressed = op;
    for (which = 0; which < THREADS; which++) {
        if (call(op, ROW, results))
            return fprintf(stderr, "%s\n", dv_last_error()), 0;
        take(&alone[which], results);
    }
    nbuffers = 0;
    const int looked = look_inside();
    if (looked == DIFFER)
        return 1;
    sigaction(SIGUSR1, &action, NULL);
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, stress, (void *)i))
            return 2;
    const int most = looked ? STOPS : STOPS / 10;
    for (int i = 0; !stop && i < most; i++) { /* one at a time */
        pthread_kill(threads[i % THREADS], SIGUSR1);
        while (!stop && stops <= i)
            sleep_ns(1000);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (differs)
        return 1;
    return puts("the fault does not show"), 0;
}
