/* What the host makes, frees and copies for a call. */
#ifndef DV_CALL_HOST_H
#define DV_CALL_HOST_H

#include "call/state.h"

int dv__new_tensor(const dv__call *c, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out);
/* What the host's function said of the tensor in *out: it is there, or the status is not DV_OK. */
int dv__made_by_host(const dv__call *c, int status, dv_tensor **out);
void dv__free_tensor(const dv__call *c, dv_tensor *t);
int dv__host_copy(const dv_host *host, const dv_tensor *dst, const dv_tensor *src);

#endif
