/* Allocation, freeing and copying by the host, or by the embedded default. */
#include "call/host.h"

#include "base/error.h"
#include "call/fail.h"

/* Is the host's own allocator used for this device? */
static bool hosts_memory(const dv__call *c, int32_t device_type)
{
    return DV__HOST(c->host, new_tensor) && !((c->inner & DV__INNER_KERNEL) && dv__host_memory(device_type));
}

int dv__made_by_host(const dv__call *c, int status, dv_tensor **out)
{
    if (status)
        *out = NULL; /* whatever the host left there */
    else if (!*out)
        return dv_fail(
            DV_EHOST, "%s: the host %s made no tensor and reported no error", c->op->name, c->host->name ? c->host->name : "");
    return status;
}

static int make_tensor(const dv__call *c, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    if (hosts_memory(c, device.type)) {
        const int status = c->host->new_tensor(
            c->host, c->inner & DV__INNER_TEMPORARY ? -1 : index, dtype, device, ndim, shape, strides, out);
        return dv__made_by_host(c, status, out);
    }
    if (device.type == DV_META)
        return dv__tensor_new_meta(dtype, device, ndim, shape, strides, out);
    if (!dv__host_memory(device.type))
        return dv_fail(DV_EHOST, "%s: a tensor on %s needs a host that allocates there; the embedded default has only the cpu",
            c->op->name, dv_device_name(device.type));
    return dv__tensor_new_strided(dtype, ndim, shape, strides, false, out);
}

int dv__new_tensor(const dv__call *c, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    *out = NULL;
    const int status = make_tensor(c, index, dtype, device, ndim, shape, strides, out);
    if (status == DV_ENOMEM && index >= 0) /* an allocator knows the bytes only */
        dv__fail_in_slot(c, status, c->plan->nargs + (size_t)index, DV__WHOLE);
    return status;
}

void dv__free_tensor(const dv__call *c, dv_tensor *t)
{
    if (!t)
        return;
    if (!hosts_memory(c, t->device.type))
        dv_tensor_unref(t);
    else if (DV__HOST(c->host, free_tensor))
        c->host->free_tensor(c->host, t);
}

int dv__host_copy(const dv_host *host, const dv_tensor *dst, const dv_tensor *src)
{
    if (dv__host_memory(dst->device.type) && dv__host_memory(src->device.type)) {
        dv__copy_elements(dst, src);
        return DV_OK;
    }
    if (DV__HOST(host, copy_tensor))
        return host->copy_tensor(host, dst, src);
    return dv_fail(DV_EHOST, "a copy from %s to %s needs a host that copies there", dv_device_name(src->device.type),
        dv_device_name(dst->device.type));
}
