/* Runs a kernel once, or on slices. */
#ifndef DV_CALL_SPLIT_H
#define DV_CALL_SPLIT_H

#include "call/state.h"

int dv__run_kernel(dv__call *c, const dv__row *row, const void *frame, int64_t workspace, void *stream); /* whole or in slices */
int dv__run_whole(dv__call *c, const dv__row *row, const void *frame, int64_t workspace, void *stream);

#endif
