/* Allocation, freeing and copying by the host. */
#ifndef DV_CALL_HOST_TENSOR_H
#define DV_CALL_HOST_TENSOR_H

#include "call/call_state.h"

/* Allocates a tensor by the host, or by the embedded default for the cpu, for Meta and in a kernel. result_index: the result
 * that it is for; -1: another tensor. Returns a status. */
int dv__new_result_tensor(const dv__call *c, int result_index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out);
/* Validates a tensor that a host's function made. status: the function's. Returns it, or DV_EHOST if it is DV_OK and *out is
 * NULL. After an error *out is NULL. */
int dv__host_check_new_tensor(const dv__call *c, int status, dv_tensor **out);
/* Frees a tensor that dv__new_result_tensor() made; NULL is allowed. */
void dv__free_host_tensor(const dv__call *c, dv_tensor *t);
/* Copies all elements of src to dst, which has the same shape and dtype and does not overlap it. Returns a status. */
int dv__host_copy(const dv_host *host, const dv_tensor *dst, const dv_tensor *src);

#endif
