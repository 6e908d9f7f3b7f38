/* Calls of a kernel for slices of tensors that broadcast. */
#ifndef DV__BROADCAST_H
#define DV__BROADCAST_H

#include "dovetail_op.h"

/* Implements DV_FOR_EACH_SLICE(). outs and ins: at least one, and at most eight tensors, and where the frame has them. */
int dv__for_each_broadcast_slice(dv_context *ctx, const void *frame, size_t frame_size, dv_kernel_fn kernel,
    const dv_slice_field *outs, size_t nouts, const dv_slice_field *ins, size_t nins);

#endif
