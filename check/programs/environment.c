#include "call.h"
#include <signal.h>

static int question(dv_operator *op, dv_value *results)
{
    fenv_t before, after;
    sigset_t mask, left;
    static char locale[1000];
    snprintf(locale, sizeof locale, "%s", setlocale(LC_ALL, NULL));
    fegetenv(&before);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    (void)call(op, ROW, results);
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
