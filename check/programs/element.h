#pragma once
#include "memory.h"

/* Elements as numbers. */

static double element(const dv_tensor *t, int64_t i) /* of complex numbers: parts */
{
    const dv_dtype part = { 2, (uint8_t)(t->dtype.bits / 2), 1 };
    return dv_element_get(t->data, i, t->dtype.code == 5 ? part : t->dtype);
}
