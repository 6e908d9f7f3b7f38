#pragma once
#include "gradient.h"

/* The same numbers in f64. */

/* Arguments in f64, with the same numbers. */
static void widen(void)
{
    for (int i = 0; i < NTENSORS; i++) {
        dv_tensor *t = tensor(i), from;
        if (!t || !is_real(t->dtype))
            continue;
        from = *t;
        t->dtype = (dv_dtype){ 2, 64, 1 };
        t->data = guarded((size_t)dv_numel(t) * 8, 8, 0);
        for (int64_t k = 0, n = dv_numel(t); k < n; k++)
            ((double *)t->data)[k] = element(&from, k);
    }
    for (int i = 0; i < NARGS; i++)
        if (args[i].type == DV_VALUE_DTYPE && is_real(args[i].as.dtype))
            args[i].as.dtype = (dv_dtype){ 2, 64, 1 };
}
