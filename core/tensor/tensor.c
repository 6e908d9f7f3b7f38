/* Tensors with a reference count.
 *
 * One allocation holds a counted tensor's struct, then its shape and strides, then its memory, if it owns any. DLPack's
 * struct has no place for a flag. So a tensor counts as a counted one if its shape pointer points exactly behind the struct,
 * and the mark stored there is right. */
#include "tensor/tensor.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/dlpack.h"

enum { TENSOR_ALIGNMENT = 64 };
static const uint64_t HEADER_MAGIC = 0x6c69617465766f64u; /* "dovetail" */

struct counted_tensor {
    dv_tensor t;
    uint64_t magic;
    atomic_uint refs;
    bool read_only;
    struct counted_tensor *base;              /* the tensor of which this one is a view, with a reference; NULL: none */
    struct DLManagedTensorVersioned *managed; /* an imported tensor's DLPack struct, which owns the memory; NULL: not imported */
    int64_t dims[];                           /* shape, then strides */
};

/* Returns the counted tensor that has t as its first member; NULL if t is a struct that a caller filled. */
static const struct counted_tensor *tensor_as_counted(const dv_tensor *t)
{
    const struct counted_tensor *o = (const struct counted_tensor *)(const void *)t;
    return t->shape == (const int64_t *)((const char *)t + offsetof(struct counted_tensor, dims)) && o->magic == HEADER_MAGIC
        ? o
        : NULL;
}

bool dv__tensor_is_counted(const dv_tensor *t) { return tensor_as_counted(t) != NULL; }

bool dv__tensor_is_read_only(const dv_tensor *t)
{
    const struct counted_tensor *o = tensor_as_counted(t);
    return o && o->read_only;
}

int dv__shape_check(dv_dtype dtype, int32_t ndim, const int64_t *shape, int64_t *contiguous_strides)
{
    if (!dv_dtype_find(dtype) || !dtype.lanes)
        return dv_fail(DV_EDTYPE, "unknown element type: %s", dv_dtype_name(dtype));
    if (ndim < 0 || ndim > DV_MAX_NDIM)
        return dv_fail(DV_ESHAPE, "a tensor has 0 to %d dims, not %d", DV_MAX_NDIM, (int)ndim);
    if (ndim && !shape)
        return dv_fail(DV_EINVAL, "a tensor of %d dims needs a shape, found NULL", (int)ndim);
    int64_t n = 1; /* sizes of zero count as one, so that no product of a subset of the sizes overflows either */
    for (int32_t i = ndim; i-- > 0;) {
        if (shape[i] < 0)
            return dv_fail(DV_ESHAPE, "dim %d has the negative size %lld", (int)i, (long long)shape[i]);
        if (contiguous_strides)
            contiguous_strides[i] = n;
        if (__builtin_mul_overflow(n, shape[i] ? shape[i] : 1, &n))
            return dv_fail(DV_ESHAPE, "the number of elements overflows: dim %d has size %lld", (int)i, (long long)shape[i]);
    }
    if (dv_dtype_bytes(dtype, n) < 0)
        return dv_fail(DV_ESHAPE, "the size in bytes overflows: %lld elements of %s", (long long)n, dv_dtype_name(dtype));
    return DV_OK;
}

bool dv__try_find_element_range(int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t *low, int64_t *high)
{
    int64_t lo = 0, hi = 0;
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return *low = 0, *high = -1, true;
    for (int32_t i = 0; i < ndim; i++) {
        int64_t reach;
        if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
            __builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi))
            return false;
    }
    *low = lo;
    *high = hi;
    return true;
}

/* True if the number of bytes from the lowest to the highest element fits int64_t. */
static bool tensor_extent_fits_int64(dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t low, high, n;
    return dv__try_find_element_range(ndim, shape, strides, &low, &high) && !__builtin_sub_overflow(high, low, &n) &&
        !__builtin_add_overflow(n, 1, &n) && dv_dtype_bytes(dtype, n) >= 0;
}

/* Fails with DV_ESHAPE if the bytes that a caller's strides span do not fit int64_t. */
static int tensor_check_strides(dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    return tensor_extent_fits_int64(dtype, ndim, shape, strides)
        ? DV_OK
        : dv_fail(DV_ESHAPE, "the strides reach beyond what an address can hold");
}

bool dv__tensor_try_find_span(const dv_tensor *t, dv__span *span, int64_t *numel)
{
    int64_t n = 1; /* sizes of zero count as one, as in dv__shape_check() */
    bool contiguous = true, empty = false;
    if (!t || t->ndim < 0 || t->ndim > DV_MAX_NDIM || (t->ndim && (!t->shape || !t->strides)))
        return false;
    for (int32_t i = t->ndim; i-- > 0;) {
        const int64_t size = t->shape[i];
        if (size == 1)
            continue;
        if (t->strides[i] != n)
            contiguous = false;
        if (size <= 0)
            empty = true;
        if (size < 0 || (size && __builtin_mul_overflow(n, size, &n)))
            return false;
    }
    const int64_t bytes = dv_dtype_bytes(t->dtype, n);
    if (bytes < 0)
        return false;
    *numel = empty ? 0 : n;
    *span = (dv__span){ (uintptr_t)t->data, (uintptr_t)t->data + (empty ? 0 : (uintptr_t)bytes) };
    if (contiguous || empty)
        return true;
    *span = (dv__span){ 0, UINTPTR_MAX };
    return tensor_extent_fits_int64(t->dtype, t->ndim, t->shape, t->strides);
}

bool dv__tensor_is_valid(const dv_tensor *t)
{
    dv__span span;
    int64_t numel;
    return dv__tensor_try_find_span(t, &span, &numel);
}

int dv__tensor_check(const dv_tensor *t)
{
    if (dv__tensor_is_valid(t))
        return DV_OK;
    if (!t)
        return dv_fail(DV_ETYPE, "expected Tensor, found NULL");
    if (t->ndim < 0 || t->ndim > DV_MAX_NDIM)
        return dv_fail(t->ndim < 0 ? DV_EINVAL : DV_ELIMIT, "expected %s%d dims, found %d", t->ndim < 0 ? "0 to " : "at most ",
            DV_MAX_NDIM, (int)t->ndim);
    if (t->ndim && (!t->shape || !t->strides))
        return dv_fail(DV_EINVAL, "a tensor of %d dims needs %s, found NULL", (int)t->ndim, t->shape ? "strides" : "a shape");
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0)
            return dv_fail(DV_ESHAPE, "dim %d has the negative size %lld", (int)i, (long long)t->shape[i]);
    return dv_fail(DV_ESHAPE, "its sizes and strides reach beyond what an address can hold");
}

static const int64_t no_dims[1]; /* the array to which a 0-d tensor's shape and strides point */

int dv_tensor_init(dv_tensor *t, void *data, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t *contiguous_strides)
{
    if (!t)
        return dv_fail(DV_EINVAL, "no tensor to fill: found NULL");
    memset(t, 0, sizeof *t);
    if (ndim > 0 && !strides && !contiguous_strides)
        return dv_fail(DV_EINVAL, "without strides, storage for %d contiguous ones is needed", (int)ndim);
    int status = dv__shape_check(dtype, ndim, shape, strides ? NULL : contiguous_strides);
    if (!status && strides)
        status = tensor_check_strides(dtype, ndim, shape, strides);
    if (status)
        return status;
    t->data = data;
    t->dtype = dtype;
    t->device = device;
    t->ndim = ndim;
    t->shape = ndim ? shape : no_dims;
    t->strides = !ndim ? no_dims : strides ? strides : contiguous_strides;
    return DV_OK;
}

/* Allocates a counted tensor with data_bytes of aligned memory behind its struct; its data pointer is not set. *memory
 * (unless NULL): the address of that memory. Returns NULL if memory is out. */
static struct counted_tensor *tensor_new_counted(int32_t ndim, int64_t data_bytes, void **memory)
{
    const size_t header_size = (sizeof(struct counted_tensor) + 2 * sizeof(int64_t) * (size_t)ndim + TENSOR_ALIGNMENT - 1) &
        ~(size_t)(TENSOR_ALIGNMENT - 1);
    struct counted_tensor *o = (uint64_t)data_bytes > SIZE_MAX / 2 - header_size
        ? NULL
        : dv__alloc_aligned(header_size + (size_t)data_bytes, TENSOR_ALIGNMENT);
    if (!o)
        return (void)dv_fail(DV_ENOMEM, "out of memory: a tensor of %lld bytes", (long long)data_bytes), NULL;
    memset(o, 0, sizeof *o);
    o->magic = HEADER_MAGIC;
    atomic_init(&o->refs, 1);
    o->t.ndim = ndim;
    o->t.shape = o->dims;
    o->t.strides = o->dims + ndim;
    if (memory)
        *memory = (char *)o + header_size;
    return o;
}

static void tensor_set_dims(struct counted_tensor *o, const int64_t *shape, const int64_t *strides)
{
    const size_t size = sizeof(int64_t) * (size_t)o->t.ndim;
    if (!size)
        return;
    memcpy(o->dims, shape, size);
    memcpy(o->dims + o->t.ndim, strides, size);
}

int dv__tensor_new_strided(dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, bool zero, dv_tensor **out)
{
    int64_t contiguous[DV_MAX_NDIM], low, high;
    *out = NULL;
    int status = dv__shape_check(dtype, ndim, shape, contiguous);
    if (!status && strides)
        status = tensor_check_strides(dtype, ndim, shape, strides);
    if (status)
        return status;
    if (!strides)
        strides = contiguous;
    if (!dv__try_find_element_range(ndim, shape, strides, &low, &high))
        return dv_fail(DV_ESHAPE, "the strides reach beyond what an address can hold");
    if (low && dtype.bits * dtype.lanes % 8)
        return dv_fail(DV_ENOTSUP, "a new tensor of %s cannot have negative strides: its elements are not whole bytes",
            dv_dtype_name(dtype));
    const int64_t bytes = dv_dtype_bytes(dtype, high - low + 1);
    if (bytes < 0)
        return dv_fail(DV_ESHAPE, "the size in bytes overflows");
    void *memory;
    struct counted_tensor *o = tensor_new_counted(ndim, bytes, &memory);
    if (!o)
        return DV_ENOMEM;
    if (zero)
        memset(memory, 0, (size_t)bytes);
    tensor_set_dims(o, shape, strides);
    o->t.data = (char *)memory + dv_dtype_bytes(dtype, -low);
    o->t.device.type = DV_CPU;
    o->t.dtype = dtype;
    *out = &o->t;
    return DV_OK;
}

int dv__tensor_new_without_data(
    dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    int64_t contiguous[DV_MAX_NDIM];
    *out = NULL;
    int status = dv__shape_check(dtype, ndim, shape, contiguous);
    if (!status && strides)
        status = tensor_check_strides(dtype, ndim, shape, strides);
    if (status)
        return status;
    struct counted_tensor *o = tensor_new_counted(ndim, 0, NULL);
    if (!o)
        return DV_ENOMEM;
    tensor_set_dims(o, shape, strides ? strides : contiguous);
    o->t.device = device;
    o->t.dtype = dtype;
    *out = &o->t;
    return DV_OK;
}

int dv_tensor_new(dv_dtype dtype, int32_t ndim, const int64_t *shape, dv_tensor **out)
{
    DV__REQUIRE(out, "pointer for the result");
    return dv__tensor_new_strided(dtype, ndim, shape, NULL, true, out);
}

int dv_tensor_view(dv_tensor *base, int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t offset, dv_tensor **out)
{
    int64_t contiguous[DV_MAX_NDIM], low, high, base_low, base_high;
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    int status = dv__tensor_check(base);
    if (status)
        return dv__fail_add_context(status, "the base of a view");
    status = dv__shape_check(base->dtype, ndim, shape, contiguous);
    if (!status && strides)
        status = tensor_check_strides(base->dtype, ndim, shape, strides);
    if (status)
        return status;
    if (!strides)
        strides = contiguous;
    if (!dv__try_find_element_range(base->ndim, base->shape, base->strides, &base_low, &base_high) ||
        !dv__try_find_element_range(ndim, shape, strides, &low, &high))
        return dv_fail(DV_ESHAPE, "the strides reach beyond what an address can hold");
    int64_t first, last;
    if (__builtin_add_overflow(offset, low, &first) || __builtin_add_overflow(offset, high, &last))
        return dv_fail(DV_ESHAPE, "the view's offset overflows: %lld", (long long)offset);
    if (first < base_low || last > base_high)
        return dv_fail(DV_ESHAPE, "the view reaches outside its base: elements %lld to %lld of %lld to %lld", (long long)first,
            (long long)last, (long long)base_low, (long long)base_high);
    const int64_t bits = (int64_t)base->dtype.bits * base->dtype.lanes;
    if (offset % 8 * (bits % 8) % 8)
        return dv_fail(DV_ENOTSUP, "a view of %s must begin on a whole byte: offset %lld does not", dv_dtype_name(base->dtype),
            (long long)offset);
    struct counted_tensor *o = tensor_new_counted(ndim, 0, NULL);
    if (!o)
        return DV_ENOMEM;
    tensor_set_dims(o, shape, strides);
    o->t.data = base->data ? (char *)base->data + (bits % 8 ? offset / 8 * bits + offset % 8 * bits / 8 : offset * (bits / 8))
                           : NULL;
    o->t.device = base->device;
    o->t.dtype = base->dtype;
    if (dv__tensor_is_counted(base)) {
        dv_tensor_ref(base);
        o->base = (struct counted_tensor *)(void *)base;
        o->read_only = o->base->read_only;
    }
    *out = &o->t;
    return DV_OK;
}

dv_tensor *dv_tensor_ref(dv_tensor *t)
{
    struct counted_tensor *o = (struct counted_tensor *)(void *)t;
    if (o)
        atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    return t;
}

void dv_tensor_unref(dv_tensor *t)
{
    struct counted_tensor *o = (struct counted_tensor *)(void *)t;
    while (o && atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1) {
        struct counted_tensor *base = o->base;
        if (o->managed && o->managed->deleter)
            o->managed->deleter(o->managed);
        o->magic = 0;
        dv__free_aligned(o);
        o = base; /* a chain of views is released without recursion */
    }
}

/* ---- DLPack -------------------------------------------------------------------------------------------------------------- */

/* Makes a counted tensor with the memory of m. The caller then sets ->managed to m, or still owns m after a failure. */
static int dlpack_import_borrowed(const DLManagedTensorVersioned *m, struct counted_tensor **out)
{
    const DLTensor *d = &m->dl_tensor;
    const dv_dtype dtype = { d->dtype.code, d->dtype.bits, d->dtype.lanes };
    int64_t contiguous[DV_MAX_NDIM];
    if (m->version.major != DLPACK_MAJOR_VERSION)
        return dv_fail(DV_EABI, "a tensor of DLPack %u.%u: this library reads %d.x", m->version.major, m->version.minor,
            DLPACK_MAJOR_VERSION);
    int status = dv__shape_check(dtype, d->ndim, d->shape, contiguous);
    if (!status && d->strides)
        status = tensor_check_strides(dtype, d->ndim, d->shape, d->strides);
    if (status)
        return status;
    if ((m->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) && dtype.bits % 8)
        return dv_fail(
            DV_ENOTSUP, "a DLPack tensor with padded elements of %s: only packed ones are supported", dv_dtype_name(dtype));
    const int32_t device = (int32_t)d->device.device_type;
    if (d->byte_offset && (device == kDLOpenCL || device == kDLVulkan || device == kDLMetal || device == kDLWebGPU))
        return dv_fail(DV_ENOTSUP, "a DLPack tensor on %s with a byte offset: its data is a handle", dv_device_name(device));
    struct counted_tensor *o = tensor_new_counted(d->ndim, 0, NULL);
    if (!o)
        return DV_ENOMEM;
    tensor_set_dims(o, d->shape, d->strides ? d->strides : contiguous);
    o->t.data = d->data ? (char *)d->data + d->byte_offset : NULL;
    o->t.device.type = device;
    o->t.device.id = d->device.device_id;
    o->t.dtype = dtype;
    o->read_only = m->flags & DLPACK_FLAG_BITMASK_READ_ONLY;
    *out = o;
    return DV_OK;
}

int dv_tensor_from_dlpack(DLManagedTensorVersioned *managed, dv_tensor **out)
{
    struct counted_tensor *o = NULL;
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    if (!managed)
        return dv_fail(DV_EINVAL, "no DLPack tensor given: found NULL");
    const int status = dlpack_import_borrowed(managed, &o);
    if (status) {
        if (managed->deleter)
            managed->deleter(managed);
        return status;
    }
    assert(o);
    o->managed = managed;
    *out = &o->t;
    return DV_OK;
}

static void dlpack_free_exported(DLManagedTensorVersioned *m)
{
    dv_tensor_unref(m->manager_ctx);
    dv__free(m);
}

int dv_tensor_to_dlpack(dv_tensor *t, DLManagedTensorVersioned **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    const struct counted_tensor *o = t ? tensor_as_counted(t) : NULL;
    if (!o)
        return dv_fail(
            DV_EINVAL, "only a tensor that this library made can be handed out by DLPack: nothing owns this one's memory");
    DLManagedTensorVersioned *m = dv__calloc(1, sizeof *m);
    if (!m)
        return DV_ENOMEM;
    m->version.major = DLPACK_MAJOR_VERSION;
    m->version.minor = DLPACK_MINOR_VERSION;
    m->manager_ctx = dv_tensor_ref(t);
    m->deleter = dlpack_free_exported;
    m->flags = o->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    m->dl_tensor.data = dv_numel(t) ? t->data : NULL; /* DLPack's standard requires NULL for a tensor without elements */
    m->dl_tensor.device.device_type = (DLDeviceType)t->device.type;
    m->dl_tensor.device.device_id = t->device.id;
    m->dl_tensor.ndim = t->ndim;
    m->dl_tensor.dtype.code = t->dtype.code;
    m->dl_tensor.dtype.bits = t->dtype.bits;
    m->dl_tensor.dtype.lanes = t->dtype.lanes;
    m->dl_tensor.shape = (int64_t *)(uintptr_t)t->shape; /* DLPack forbids consumers to write shape and strides */
    m->dl_tensor.strides = (int64_t *)(uintptr_t)t->strides;
    *out = m;
    return DV_OK;
}
