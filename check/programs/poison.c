#include "outs.h"

static int question(dv_operator *op, dv_value *results)
{
    static const unsigned char poisons[] = { 0xa5, 0x5a, 0 };
    static outs first, now;
    for (int turn = 0; turn < 3; turn++) {
        poison = poisons[turn];
        if (call(op, ROW, results))
            return fprintf(stderr, "%s\n", dv_last_error()), 0;
        take(turn ? &now : &first, results);
        if (turn && differ(&first, &now, -1, -1, 0))
            return fputs("it depends on what undefined memory held\n", stderr), 1;
    }
    return puts("the fault does not show"), 0;
}
