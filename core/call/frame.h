/* Frames: the author's struct, filled for a kernel, and read for a call that a kernel makes. */
#ifndef DV_CALL_FRAME_H
#define DV_CALL_FRAME_H

#include "call/call_state.h"

/* Fills the struct that a kernel gets, from the values of the call: each field of the binding. */
void dv__frame_fill(dv__call *c, const dv__binding *b, char *frame);
/* Calls an operator with the arguments in a struct, by nested_call, and writes the results to the struct. Returns a status. */
int dv__frame_call(dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host,
    uint32_t nested_flags, dv__nested_call_fn nested_call);
/* Finds the operator by its full name, then does as dv__frame_call(). */
int dv__frame_call_by_name(const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields,
    const dv_host *host, uint32_t nested_flags, dv__nested_call_fn nested_call);

#endif
