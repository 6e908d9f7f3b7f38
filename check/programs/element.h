#pragma once
#include "memory.h"

/* Elements as numbers. */

static double element(const dv_tensor *t, int64_t i)
{
    return dv_element_get(t->data, i, t->dtype);
} /* of complex numbers: parts */
