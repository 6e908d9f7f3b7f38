/* Tensors inside the core: functions that are not public. */
#ifndef DV_TENSOR_TENSOR_H
#define DV_TENSOR_TENSOR_H

#include "dovetail.h"

/* Makes a CPU tensor as dv_tensor_new() does, with strides, which may be negative; NULL: contiguous. out->data points to
 * element 0. zero: clear the memory. Returns a status. */
int dv__tensor_new_strided(
    dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, bool zero, dv_tensor **out);

/* Makes a counted tensor for a device, without memory: its data pointer is NULL. strides: NULL for contiguous. Returns a
 * status. */
int dv__tensor_new_without_data(
    dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out);

/* True if this library made the tensor, with a reference count (imported tensors, too, which may be read-only). False for a
 * struct that a caller filled. */
bool dv__tensor_is_counted(const dv_tensor *t);
/* True for an imported tensor that its owner marked read-only, and for its views. */
bool dv__tensor_is_read_only(const dv_tensor *t);

/* Validates a dtype and a shape, and writes the shape's contiguous strides (NULL: not wanted). Fails with DV_EDTYPE,
 * DV_EINVAL or DV_ESHAPE, as dv_tensor_init() does. */
int dv__shape_check(dv_dtype dtype, int32_t ndim, const int64_t *shape, int64_t *contiguous_strides);

/* Addresses of a tensor's bytes: [begin, end) of a contiguous tensor, begin == end of an empty one. The span of any other
 * layout is all addresses. */
typedef struct dv__span { uintptr_t begin, end; } dv__span;
static inline bool dv__span_is_contiguous(dv__span s) { return s.end != UINTPTR_MAX; }
static inline bool dv__spans_overlap(dv__span a, dv__span b) { return a.begin < b.end && b.begin < a.end; }

/* True if a tensor is valid, since a caller's dv_tensor can hold anything. A valid tensor has 0 to DV_MAX_NDIM dims with
 * shape and strides, and no negative size. Its byte counts fit int64_t, both of all elements and from the lowest to the
 * highest element. *span, *numel: found in the same pass. The functions below require a valid tensor. */
bool dv__tensor_try_find_span(const dv_tensor *t, dv__span *span, int64_t *numel);
bool dv__tensor_is_valid(const dv_tensor *t);
/* Fails with a message if a tensor is invalid: DV_ETYPE (t is NULL), DV_ELIMIT, DV_EINVAL or DV_ESHAPE. */
int dv__tensor_check(const dv_tensor *t);

/* Finds the lowest and the highest element that the strides reach, relative to data; 0 and -1 for an empty tensor. Returns
 * false on overflow. */
bool dv__try_find_element_range(int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t *low, int64_t *high);

/* Copies all elements, without checks: shapes and dtypes must be equal, the memory accessible by the CPU, and nothing may
 * overlap. */
void dv__copy_elements(const dv_tensor *dst, const dv_tensor *src);

static inline bool dv__is_cpu_memory(int32_t device_type) { return device_type == DV_CPU || device_type == DV_CUDA_HOST; }

/* True if the strides are contiguous for the shape. Dims of size one, and empty tensors, may have any strides. */
static inline bool dv__is_contiguous(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t step = 1;
    for (int32_t i = ndim; i-- > 0;) {
        if (strides[i] != step && shape[i] != 1) {
            for (int32_t j = 0; j < ndim; j++)
                if (shape[j] == 0)
                    return true;
            return false;
        }
        step *= shape[i];
    }
    return true;
}

#endif
