/* Overlap checks; contiguous copies (staging copies) and copying back. */
#ifndef DV_CALL_MEMORY_H
#define DV_CALL_MEMORY_H

#include "call/call_state.h"

/* dv__gather_args() and dv__gather_results() set c->tensors, c->lists and c->spans. Both fail if a tensor is invalid, or has
 * elements but no memory. */
int dv__gather_args(dv__call *c);
int dv__gather_results(dv__call *c);
/* True if the elements of a valid tensor can be reached: the tensor has no elements, has memory, or is on a device without
 * memory. */
bool dv__has_memory(const dv_tensor *t);
/* Fails with DV_EINVAL if the elements of a valid tensor cannot be reached, as dv__has_memory() tests. */
int dv__check_has_memory(const dv__call *c, size_t slot, int64_t element_index, const dv_tensor *t);
/* Fails if a tensor that the call writes is read-only, overlaps itself, or overlaps another tensor outside its alias set. */
int dv__check_overlaps(dv__call *c);
/* True if the addresses alone show that no tensor overlaps a written one, for calls with contiguous tensors and without
 * lists. False if this is not decided: then dv__check_overlaps() must decide. */
bool dv__spans_prove_disjoint(const dv__call *c);
/* dv__staging_make_copies() allocates copies for tensors whose layout the kernel does not accept, and puts them in
 * c->tensors and c->lists. dv__staging_copy_in() fills them before the kernel; dv__staging_copy_back() copies written ones
 * back after the kernel. */
int dv__staging_make_copies(dv__call *c, const dv__kernel *kernel);
int dv__staging_copy_in(dv__call *c);
int dv__staging_copy_back(dv__call *c);
void dv__staging_free_copies(dv__call *c);
/* A deferred copy is a staging copy without memory. The copy of an input is deferred if the kernel has .split, the call writes no
 * argument, and the memory is the CPU's; but not in a list, with a declared alignment, or with the test hooks' alloc().
 *
 * dv__staging_find_original_and_mark_cut() marks a deferred copy as cut: each slice then copies its own part. It returns the
 * original; NULL if `copy` is no deferred copy. dv__staging_fill_deferred() allocates and fills the deferred copies that are not
 * marked, and returns a status. */
const dv_tensor *dv__staging_find_original_and_mark_cut(dv__call *c, const dv_tensor *copy);
int dv__staging_fill_deferred(dv__call *c);

#endif
