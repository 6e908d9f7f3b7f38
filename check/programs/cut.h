#pragma once
#include "outs.h"
#include "tensors.h"
#include "axes.h"

/* Parts of tensors. */

static int64_t low, high; /* the current part */

/* [low, high) along an axis (-1: all of it), contiguous. */
static void cut(dv_tensor *t, int axis)
{
    int64_t *dims = guarded(2 * DV_MAX_NDIM * sizeof *dims, 8, 0), n = 1;
    dv_tensor from = *t;
    memcpy(dims, t->shape, (size_t)t->ndim * sizeof *dims);
    if (axis >= 0) {
        dims[axis] = high - low;
        from.data = (char *)t->data + low * t->strides[axis] * dv_dtype_bytes(t->dtype, 1);
    }
    for (int32_t i = t->ndim; i-- > 0; n *= dims[i] ? dims[i] : 1)
        dims[DV_MAX_NDIM + i] = n;
    from.shape = t->shape = dims;
    t->strides = dims + DV_MAX_NDIM;
    t->data = guarded((size_t)dv_dtype_bytes(t->dtype, dv_numel(t)), (size_t)dv_dtype_bytes(t->dtype, 1), 0);
    if (dv_tensor_copy(t, &from))
        exit(2);
}

static void cut_arguments(void)
{
    for (int i = 0; i < NTENSORS; i++)
        if (tensor(i))
            cut(tensor(i), axes[i]);
}

/* What the whole call writes, and each of its parts; 1: one was refused. */
static inline int take_parts(dv_operator *op, dv_value *results, outs *whole, outs *part)
{
    for (int i = -1; i < 2; i++) {
        change = i < 0 ? NULL : cut_arguments;
        low = i > 0 ? AT : 0;
        high = i > 0 ? SIZE : AT;
        if (call(op, ROW, results))
            return fprintf(stderr, "%s\n", dv_last_error()), 1;
        take(i < 0 ? whole : &part[i], results);
    }
    return 0;
}
