#pragma once
#include "memory.h"
#include "operations.h"

/* Operations counted while the kernel runs. */

static int64_t counted_operations, counted_integers;
static void begin_steps(const dv_host *by) { (void)by, operations_begin(); }
static void end_steps(const dv_host *by)
{
    (void)by, counted_operations += operations_end(), counted_integers += operations_of_integers();
}
