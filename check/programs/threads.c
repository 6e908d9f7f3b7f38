#include "stress.h"

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
    if (!calls_inside(stepped_call, NULL, other_call, NULL))
        return 2;
    sigaction(SIGUSR1, &action, NULL);
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, stress, (void *)i))
            return 2;
    const int most = between.instructions ? STOPS / 10 : STOPS; /* fewer where calls_inside() looked already */
    for (int i = 0; !stop && i < most; i++) {                   /* one at a time */
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
