/* Selects a kernel for bound arguments and runs it. */
#ifndef DV_CALL_KERNEL_SELECT_H
#define DV_CALL_KERNEL_SELECT_H

#include "call/call_state.h"

/* Solves the contract, then selects and runs a kernel of the entry. Runs the decomposition if the policy turns kernels off
 * or no kernel fits. Returns a status. */
int dv__select_and_run_kernel(dv__call *c, const dv__dispatch_entry *entry);
/* Makes the results without a kernel if all of them are views. *all_views: false if some result is no view; then nothing was
 * done. */
int dv__make_results_if_all_views(dv__call *c, bool *all_views);
/* Makes the results by the contract and runs no kernel, for tensors on Meta; fails if a size depends on data. */
int dv__make_results_without_kernel(dv__call *c);
/* Returns the first kernel of the entry that fits the call, or the kernel that the test hooks request; NULL: none. *status:
 * an error if a predicate could not be evaluated, or if the requested kernel does not fit. */
const dv__kernel *dv__kernel_select(dv__call *c, const dv__dispatch_entry *entry, int *status);
/* Prints to buffer why a kernel does not match this call, and returns buffer. Returns NULL if the kernel matches. */
const char *dv__kernel_print_mismatch_reason(dv__call *c, const dv__kernel *kernel, char *buffer, size_t size);
/* Returns DV_ENOKERNEL; the message has each kernel's reason. */
int dv__fail_no_kernel(dv__call *c, const dv__dispatch_entry *entry);

#endif
