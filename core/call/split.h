/* Runs a kernel once, or on slices. */
#ifndef DV_CALL_SPLIT_H
#define DV_CALL_SPLIT_H

#include "call/call_state.h"

/* Runs the kernel function once for each slice, on several threads, if the kernel has .split and the call can be split; else
 * once for the whole call. Returns a status. After a failure the message may stand only in c, where
 * dv__call_report_recorded_error() finds it. */
int dv__run_kernel_in_slices_if_possible(
    dv__call *c, const dv__kernel *kernel, const void *frame, int64_t workspace, void *stream);
/* Runs the kernel function once, for the whole call. workspace: its size in bytes. Returns the kernel function's status. */
int dv__run_kernel_unsplit(dv__call *c, const dv__kernel *kernel, const void *frame, int64_t workspace, void *stream);

#endif
