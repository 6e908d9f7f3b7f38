#pragma once
#include "memory.h"
#include "case.h"

/* One call. */

/* NULL: the host's. */
static int (*loop)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);
/* The kernel's memory. */
static void *(*alloc)(const dv_host *host, int use, int slot, size_t bytes, size_t alignment) = lend;
static void (*take_back)(const dv_host *host, void *p) = keep;
static void (*change)(void); /* of the arguments, before a call */
static bool uncut;           /* rows with .split are not cut */

static dv_host host_of(int row)
{
    static _Thread_local dv_test_hooks hooks;
    hooks = (dv_test_hooks){ .row = row, .whole = uncut, .alloc = alloc, .free = take_back, .fill = poison };
    return (dv_host){ .size = sizeof(dv_host),
        .name = "repro",
        .new_tensor = new_tensor,
        .free_tensor = keep_tensor,
        .new_view = new_view,
        .before_kernel = before_kernel,
        .after_kernel = after_kernel,
        .parallel_for = loop,
        .test = &hooks };
}

static int call(dv_operator *op, int row, dv_value *results)
{
    const dv_host host = host_of(row);
    for (int i = 0; i < NRESULTS; i++)
        results[i] = dv_default();
    make_arguments();
    if (change)
        change();
    mallopt(M_PERTURB, poison);
    kernel_ran = allocations = 0;
    dv_set_seed(1);
    alarm(20); /* it must end */
    const int status = dv_call(op, args, NARGS, results, NRESULTS, &host);
    alarm(0);
    return status;
}

/* Tensor k of the results, those of lists too, and which result it is of; NULL: no more. */
static inline const dv_tensor *result_tensor(const dv_value *results, size_t k, int *of)
{
    for (*of = 0; *of < NRESULTS; ++*of) {
        const dv_value *v = &results[*of];
        const size_t n = v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR && v->as.tensor;
        if (k < n)
            return v->type == DV_VALUE_TENSORS ? v->as.tensors.data[k] : v->as.tensor;
        k -= n;
    }
    return NULL;
}
