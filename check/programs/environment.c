#include "call.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static int question(dv_operator *op, dv_value *results)
{
    fenv_t before, after;
    sigset_t mask, left;
    static struct sigaction handlers[NSIG], now;
    static char folder[1000], moved[1000];
    size_t variables = 0, others = 0;
    static char locale[1000];
    snprintf(locale, sizeof locale, "%s", setlocale(LC_ALL, NULL));
    fegetenv(&before);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &handlers[i]);
    for (char **v = environ; *v; v++)
        for (const char *p = *v; *p; p++)
            variables = variables * 31 + (unsigned char)*p;
    if (!getcwd(folder, sizeof folder))
        *folder = 0;
    cpu_set_t processors, bound;
    FILE *printed = tmpfile();
    const int out = dup(STDOUT_FILENO);
    sched_getaffinity(0, sizeof processors, &processors);
    if (printed)
        dup2(fileno(printed), STDOUT_FILENO);
    (void)call(op, ROW, results);
    fflush(stdout);
    const bool prints = printed && lseek(STDOUT_FILENO, 0, SEEK_CUR) > 0;
    dup2(out, STDOUT_FILENO);
    if (!waitid(P_ALL, 0, &(siginfo_t){ .si_pid = 0 }, WEXITED | WNOHANG | WNOWAIT))
        return fputs("a process was started that nobody waits for\n", stderr), 1;
    if (prints)
        return fputs("the call writes to stdout\n", stderr), 1;
    if (!sched_getaffinity(0, sizeof bound, &bound) && !CPU_EQUAL(&processors, &bound))
        return fputs("the thread is bound to other processors\n", stderr), 1;
    for (int i = 1; i < NSIG; i++)
        if (!sigaction(i, NULL, &now) && now.sa_handler != handlers[i].sa_handler)
            return fprintf(stderr, "signal %d has another handler\n", i), 1;
    for (char **v = environ; *v; v++)
        for (const char *p = *v; *p; p++)
            others = others * 31 + (unsigned char)*p;
    if (variables != others)
        return fputs("the environment variables are not as they were\n", stderr), 1;
    if (getcwd(moved, sizeof moved) && strcmp(folder, moved))
        return fputs("the current folder is another\n", stderr), 1;
    fegetenv(&after);
    sigprocmask(SIG_BLOCK, NULL, &left);
    if (before.__control_word != after.__control_word || (before.__mxcsr ^ after.__mxcsr) & 0xffc0)
        return fputs("the floating-point environment is not as it was\n", stderr), 1;
    if (strcmp(locale, setlocale(LC_ALL, NULL)))
        return fputs("the locale is not as it was\n", stderr), 1;
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&mask, i) != sigismember(&left, i))
            return fprintf(stderr, "the signal mask is not as it was: signal %d\n", i), 1;
    return puts("the fault does not show"), 0;
}
