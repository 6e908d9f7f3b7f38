/* Allocation, freeing and copying by the host, or by the embedded default. */
#include "call/host_tensor.h"

#include "base/error.h"
#include "call/call_error.h"

/* True if the host allocates this call's tensors of the device. A call that a kernel makes allocates CPU memory without the
 * host. */
static bool host_has_allocator_for(const dv__call *c, int32_t device_type)
{
    return DV__HOST_HAS(c->host, new_tensor) && !((c->nested_flags & DV__NESTED_IN_KERNEL) && dv__is_cpu_memory(device_type));
}

int dv__host_check_new_tensor(const dv__call *c, int status, dv_tensor **out)
{
    if (status)
        *out = NULL; /* the host may have left another value there */
    else if (!*out)
        return dv_fail(
            DV_EHOST, "%s: the host %s made no tensor and reported no error", c->op->name, c->host->name ? c->host->name : "");
    return status;
}

/* Makes a tensor by the host, or by the embedded default, which has memory of the CPU only. Returns a status, whose message
 * lacks the result. */
static int host_make_tensor_without_context(const dv__call *c, int result_index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    if (host_has_allocator_for(c, device.type)) {
        const int status = c->host->new_tensor(
            c->host, c->nested_flags & DV__NESTED_TEMPORARY ? -1 : result_index, dtype, device, ndim, shape, strides, out);
        return dv__host_check_new_tensor(c, status, out);
    }
    if (device.type == DV_META)
        return dv__tensor_new_without_data(dtype, device, ndim, shape, strides, out);
    if (!dv__is_cpu_memory(device.type))
        return dv_fail(DV_EHOST, "%s: a tensor on %s needs a host that allocates there; the embedded default has only the cpu",
            c->op->name, dv_device_name(device.type));
    return dv__tensor_new_strided(dtype, ndim, shape, strides, false, out);
}

int dv__new_result_tensor(const dv__call *c, int result_index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    *out = NULL;
    const int status = host_make_tensor_without_context(c, result_index, dtype, device, ndim, shape, strides, out);
    if (status == DV_ENOMEM && result_index >= 0) /* an allocator's message has the number of bytes only */
        dv__fail_add_slot_context(c, status, c->signature->nargs + (size_t)result_index, DV__NO_ELEMENT);
    return status;
}

void dv__free_host_tensor(const dv__call *c, dv_tensor *t)
{
    if (!t)
        return;
    if (!host_has_allocator_for(c, t->device.type))
        dv_tensor_unref(t);
    else if (DV__HOST_HAS(c->host, free_tensor))
        c->host->free_tensor(c->host, t);
}

int dv__host_copy(const dv_host *host, const dv_tensor *dst, const dv_tensor *src)
{
    if (dv__is_cpu_memory(dst->device.type) && dv__is_cpu_memory(src->device.type)) {
        dv__copy_elements(dst, src);
        return DV_OK;
    }
    if (DV__HOST_HAS(host, copy_tensor))
        return host->copy_tensor(host, dst, src);
    return dv_fail(DV_EHOST, "a copy from %s to %s needs a host that copies there", dv_device_name(src->device.type),
        dv_device_name(dst->device.type));
}
