/* Overlap checks; contiguous copies (stand-ins) and copying back. */
#ifndef DV_CALL_MEMORY_H
#define DV_CALL_MEMORY_H

#include "call/state.h"

/* Find the tensors among arguments or results, and their extents. */
int dv__gather_args(dv__call *c);
int dv__gather_results(dv__call *c);
/* True if the elements of a valid tensor can be reached: the tensor has no elements, has memory, or is on a device without
 * memory. */
bool dv__has_memory(const dv_tensor *t);
int dv__check_memory(const dv__call *c, size_t slot, int64_t element, const dv_tensor *t);
int dv__check_overlaps(dv__call *c);
/* The usual call, at a glance: contiguous tensors, no lists, nothing overlaps what is written. False: look closely. */
bool dv__clearly_apart(const dv__call *c);
/* Make stand-ins for tensors whose layout the row does not accept; fill them; after the kernel, copy back. */
int dv__make_temps(dv__call *c, const dv__row *row);
int dv__copy_in(dv__call *c);
int dv__copy_back(dv__call *c);
void dv__free_temps(dv__call *c);

#endif
