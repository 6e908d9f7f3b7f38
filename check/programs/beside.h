#pragma once
#include "memory.h"

/* Bytes beside a buffer. */

/* Was a byte of its pages written that does not belong to it? */
static int beside(const buffer *b)
{
    for (size_t k = 0; k < b->room && !b->freed; k++)
        if ((b->pages + k < b->data || b->pages + k >= b->data + b->bytes) && b->pages[k] != 0xc3)
            return 1;
    return 0;
}
