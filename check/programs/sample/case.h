/* The arguments: here scale(Tensor x) of four f32. */
#pragma once
#include "memory.h"

static _Thread_local dv_tensor x_;
enum { NARGS = 1, NRESULTS = 1 };
static _Thread_local dv_value args[NARGS + 1];

static void make_arguments(void)
{
    static const float elements[][4] = { { 1, 2, 3, 4 } };
    static const int64_t dims[] = { 4, 1, 0 };
    const size_t bytes = 16;
    char *data = guarded(bytes, 4, 0);
    memcpy(data, elements[which], bytes);
    protect(data, PROT_READ);
    x_ = (dv_tensor){ data, cpu, 1, { 2, 32, 1 }, fixed(dims, sizeof *dims, sizeof *dims),
        fixed(dims + 1, sizeof *dims, sizeof *dims), 0 };
    args[0] = dv_from_tensor(&x_);
}

static inline void make_other_arguments(void) { make_arguments(); }
