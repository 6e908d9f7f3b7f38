#include "far.h"
#include "call.h"
#include "tables.h"

static int question(dv_operator *op, dv_value *results)
{
    static int left[NRESULTS + 1];
    (void)is_written, (void)which;
    signal(SIGPROF, is_slow);
    setitimer(ITIMER_PROF, &(const struct itimerval){ .it_value = { 1, 0 } }, NULL);
    for (int turn = 0; turn < 2; turn++) {
        poison = turn ? 0x5a : 0xa5;
        if (call(op, ROW, results))
            return fprintf(stderr, "%s\n", dv_last_error()), 0;
        for (int i = 0; i < NRESULTS; i++) {
            const result *r = results[i].type == DV_VALUE_TENSOR && !is_argument[i] ? (const void *)results[i].as.tensor : NULL;
            left[i] += r && r->bytes >= FAR_BYTES && end_is_poison(r);
            if (left[i] == 2)
                return fprintf(stderr, "the end of result %d stays unwritten\n", i), 1;
        }
    }
    return puts("the fault does not show"), 0;
}
