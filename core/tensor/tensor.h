/* Tensors inside the core: functions that are not public. */
#ifndef DV_TENSOR_TENSOR_H
#define DV_TENSOR_TENSOR_H

#include "dovetail.h"

/* dv_tensor_new() with strides (NULL: contiguous; negative ones are fine, data points to element 0) and the choice not to clear.
 */
int dv__tensor_new_strided(
    dv_dtype dtype, int32_t ndim, const int64_t *shape, const int64_t *strides, bool zero, dv_tensor **out);

/* The same without memory, on DV_META. */
int dv__tensor_new_meta(
    dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides, dv_tensor **out);

/* Is it made by this library, with a reference count? (It may be read-only, if it was imported so.) False for a caller's own
 * struct. */
bool dv__tensor_is_ours(const dv_tensor *t);
bool dv__tensor_is_read_only(const dv_tensor *t);

/* Number of elements and contiguous strides of a shape; DV_ESHAPE as dv_tensor_init() says. strides may be NULL. */
int dv__shape_check(dv_dtype dtype, int32_t ndim, const int64_t *shape, int64_t *strides);

/* Bytes that a tensor can touch: all addresses, unless it is contiguous. empty: begin == end. */
typedef struct dv__span { uintptr_t begin, end; } dv__span;
static inline bool dv__span_is_contiguous(dv__span s) { return s.end != UINTPTR_MAX; }
static inline bool dv__spans_meet(dv__span a, dv__span b) { return a.begin < b.end && b.begin < a.end; }

/* A caller's own dv_tensor can hold anything. Is it valid: 0 to DV_MAX_NDIM dims with a shape and strides, no negative size, and
 * the bytes of all elements, and those between the lowest and the highest element, fit int64_t? The functions below require it.
 * The same pass finds the span and the number of elements. */
bool dv__tensor_span(const dv_tensor *t, dv__span *span, int64_t *numel);
bool dv__tensor_sound(const dv_tensor *t);
int dv__tensor_check(const dv_tensor *t); /* the same, with a message: DV_ETYPE (NULL), DV_ELIMIT, DV_EINVAL, DV_ESHAPE */

/* The lowest and the highest element, relative to data, that the tensor can reach (0, -1 when it is empty); false on overflow. */
bool dv__extent(int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t *low, int64_t *high);

/* Copy without checks: shapes and dtypes are equal, this process can access the memory, and nothing overlaps. */
void dv__copy_elements(const dv_tensor *dst, const dv_tensor *src);

static inline bool dv__host_memory(int32_t device_type) { return device_type == DV_CPU || device_type == DV_CUDA_HOST; }

/* dv_tensor_is_contiguous() for a shape and its strides; strides of dims of size one, and of empty tensors, do not matter. */
static inline bool dv__contiguous(int32_t ndim, const int64_t *shape, const int64_t *strides)
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
