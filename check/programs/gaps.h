#pragma once
#include "memory.h"

/* Bytes between the elements of a tensor, only for sizes of which every second element is there. */

enum { GAP = 0xc3 };

/* Mark them; or, after a call: was one written? */
static int look_at_gaps(const dv_tensor *t, int mark)
{
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    int64_t last = 0;
    for (int32_t d = 0; d < t->ndim; d++)
        last += (t->shape[d] - 1) * t->strides[d];
    for (int64_t at = 0; at <= last; at++) {
        int64_t rest = at; /* strides are from large to small: an element's place is taken apart */
        int inside = 1;
        for (int32_t d = 0; d < t->ndim; d++) {
            const int64_t index = t->strides[d] ? rest / t->strides[d] : 0;
            inside &= index < t->shape[d];
            rest -= index * t->strides[d];
        }
        for (int64_t k = 0; k < size && (rest || !inside); k++) {
            unsigned char *byte = (unsigned char *)t->data + at * size + k;
            if (mark)
                *byte = GAP;
            else if (*byte != GAP)
                return 1;
        }
    }
    return 0;
}
