#include "call.h"
#include "leaks.h"

enum { CALLS = 250 };

static int question(dv_operator *op, dv_value *results)
{
    long long held[5][KINDS];
    again = 1;
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < (i ? CALLS : 20); k++) {
            nbuffers = 0;
            call(op, ROW, results);
        }
        for (int k = 0; k < (i ? 1 : 10); k++) /* looking takes some memory */
            look(held[i]);
    }
    for (int k = 0; k < KINDS; k++) {
        int grows = 1;
        for (int i = 0; i < 4; i++)
            grows &= held[i + 1][k] - held[i][k] >= (k == HEAP ? CALLS : CALLS / 2);
        if (grows)
            return fprintf(stderr, "%s leak: %lld, and after %d calls %lld\n", kinds[k], held[0][k], 4 * CALLS, held[4][k]), 1;
    }
    return puts("the fault does not show"), 0;
}
