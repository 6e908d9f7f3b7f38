/* Allocation, freeing and copying by the host. */
#ifndef DV_CALL_HOST_H
#define DV_CALL_HOST_H

#include "call/state.h"

int dv__new_tensor(const dv__call *c, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out);
/* Check the status and *out of a host's function: on DV_OK, *out is not NULL; otherwise the status is an error. */
int dv__made_by_host(const dv__call *c, int status, dv_tensor **out);
void dv__free_tensor(const dv__call *c, dv_tensor *t);
int dv__host_copy(const dv_host *host, const dv_tensor *dst, const dv_tensor *src);

#endif
