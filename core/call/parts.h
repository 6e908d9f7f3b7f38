/* Calls of a kernel for parts of tensors that broadcast. */
#ifndef DV__PARTS_H
#define DV__PARTS_H

#include "dovetail_op.h"

/* Implements DV_FOR_EACH_PART(). outs and ins: at least one, and at most eight tensors, and where the frame has them. */
int dv__for_each_part_of_frame(dv_context *ctx, const void *frame, size_t frame_size, dv_kernel_fn kernel,
    const dv_part_field *outs, size_t nouts, const dv_part_field *ins, size_t nins);

#endif
