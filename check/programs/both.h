#pragma once
#include "outs.h"

/* What the two rows give. A row that refuses does not differ: the program ends with 0. */
static void both(dv_operator *op, dv_value *results, outs *a, outs *b)
{
    for (int other = 0; other < 2; other++) {
        if (call(op, other ? OTHER_ROW : ROW, results)) {
            fprintf(stderr, "%s\n", dv_last_error());
            exit(0);
        }
        take(other ? b : a, results);
    }
}
