/* The author's struct: filled for a kernel, and read when it makes a call. */
#ifndef DV_CALL_FRAME_H
#define DV_CALL_FRAME_H

#include "call/state.h"

void dv__fill_frame(dv__call *c, const dv__binding *b, char *frame);
/* A call from a struct, by `enter`. */
int dv__call_frame(dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host,
    uint32_t inner, dv__enter_fn enter);
int dv__call_named(const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host,
    uint32_t inner, dv__enter_fn enter);

#endif
