#include "far.h"
#include "call.h"
#include "tables.h"

static int question(dv_operator *op, dv_value *results)
{
    static int left[64];
    const result *r;
    int i;
    (void)is_written, (void)which;
    signal(SIGPROF, is_slow);
    setitimer(ITIMER_PROF, &(const struct itimerval){ .it_value = { 1, 0 } }, NULL);
    for (int turn = 0; turn < 2; turn++) {
        poison = turn ? 0x5a : 0xa5;
        if (call(op, ROW, results))
            return fprintf(stderr, "%s\n", dv_last_error()), 0;
        for (size_t k = 0; k < 64 && (r = (const void *)result_tensor(results, k, &i)); k++) {
            left[k] += !is_argument[i] && r->bytes >= FAR_BYTES && end_is_poison(r);
            if (left[k] == 2)
                return fprintf(stderr, "the end of result %d stays unwritten\n", i), 1;
        }
    }
    return puts("the fault does not show"), 0;
}
