#pragma once
#include "memory.h"

/* Loops over pieces in an order of our own. */

static inline int in_order(const dv_host *by, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)by, (void)grain;
    return fn(arg, begin, end);
}

static inline int in_reverse(const dv_host *by, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)by, (void)grain;
    for (int64_t i = end; i-- > begin;) {
        const int status = fn(arg, i, i + 1);
        if (status)
            return status;
    }
    return DV_OK;
}
