/* Memory of property gradient: the host of its calls, and numbers that live as long as a case. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gradient.h"

enum { POOL_DOUBLES = 1 << 22 };

struct gradient_host check_gradient_host;
struct double_pool check_double_pool;

/* Returns a new tensor with the shape, strides and dtype of `like` and with `bytes` of zeroed, aligned memory. The tensor lives
 * until the next check_gradient_begin_call(). NULL: memory is out. */
static gradient_tensor_block *gradient_host_alloc_tensor_block(const dv_tensor *like, int64_t bytes)
{
    gradient_tensor_block *block = calloc(1, sizeof *block + 64 + (size_t)bytes);
    if (!block)
        return NULL;
    memcpy(block->dims, like->shape, sizeof *block->dims * (size_t)like->ndim);
    memcpy(block->dims + DV_MAX_NDIM, like->strides, sizeof *block->dims * (size_t)like->ndim);
    block->t = *like;
    block->t.shape = block->dims;
    block->t.strides = block->dims + DV_MAX_NDIM;
    block->t.data = (char *)(block + 1) + (64 - (uintptr_t)(block + 1) % 64) % 64;
    block->next = check_gradient_host.tensors;
    check_gradient_host.tensors = block;
    return block;
}

int check_gradient_host_new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    int64_t last = 0, n = 1;
    (void)host;
    (void)index;
    for (int32_t i = 0; i < ndim; i++) {
        last += (shape[i] - 1) * strides[i];
        n *= shape[i];
    }
    const dv_tensor as = { .device = device, .ndim = ndim, .dtype = dtype, .shape = shape, .strides = strides };
    gradient_tensor_block *m = gradient_host_alloc_tensor_block(&as, n ? dv_dtype_bytes(dtype, last + 1) : 0);
    *out = m ? &m->t : NULL;
    return m ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
}

/* Makes a view of `base`, which begins `offset` elements behind its first element. Function for dv_host.new_view: returns DV_OK,
 * or DV_ENOMEM with a message. */
static int gradient_host_new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    const dv_tensor as = { .device = base->device, .ndim = ndim, .dtype = base->dtype, .shape = shape, .strides = strides };
    gradient_tensor_block *m = gradient_host_alloc_tensor_block(&as, 0);
    (void)host;
    (void)index;
    *out = m ? &m->t : NULL;
    if (!m)
        return dv_fail(DV_ENOMEM, "out of memory");
    m->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    m->is_rounded = true;
    return DV_OK;
}

/* Does nothing, since check_gradient_begin_call() frees all tensors. Function for dv_host.free_tensor. */
static void gradient_host_free_tensor(const dv_host *host, dv_tensor *t)
{
    (void)host;
    (void)t;
}

/* Changes each element of new floating-point results by random noise, if check_gradient_host.noise > 0, and records the largest
 * magnitude. Function for dv_host.after_kernel. */
static void gradient_host_add_noise(const dv_host *host)
{
    (void)host;
    for (gradient_tensor_block *m = check_gradient_host.tensors; m && check_gradient_host.noise > 0; m = m->next) {
        if (m->is_rounded || !check_is_float_dtype(m->t.dtype))
            continue;
        m->is_rounded = true;
        for (int64_t i = 0, n = dv_numel(&m->t); i < n; i++) {
            const double x = check_element_get(m->t.data, i, m->t.dtype);
            check_gradient_host.max_magnitude = fabs(x) > check_gradient_host.max_magnitude ? fabs(x)
                                                                                            : check_gradient_host.max_magnitude;
            check_element_put(m->t.data, i, m->t.dtype,
                x *
                    (1 +
                        check_gradient_host.noise *
                            ((double)(check_random_next(&check_gradient_host.random) >> 11) * 0x1p-52 - 1)));
        }
    }
}

const dv_host *check_gradient_begin_call(void)
{
    for (gradient_tensor_block *m = check_gradient_host.tensors, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    check_gradient_host.tensors = NULL;
    check_gradient_host.host = (dv_host){ .size = sizeof check_gradient_host.host,
        .name = "dovetail check",
        .new_tensor = check_gradient_host_new_tensor,
        .free_tensor = gradient_host_free_tensor,
        .new_view = gradient_host_new_view,
        .after_kernel = gradient_host_add_noise };
    return &check_gradient_host.host;
}

double *check_gradient_alloc_doubles(int64_t count)
{
    if (!check_double_pool.d)
        check_double_pool.d = calloc(POOL_DOUBLES, sizeof *check_double_pool.d);
    if (!check_double_pool.d || count < 0 || (size_t)count > POOL_DOUBLES - check_double_pool.used)
        return NULL;
    check_double_pool.used += (size_t)count;
    return check_double_pool.d + check_double_pool.used - count;
}

void check_gradient_copy_elements(const dv_tensor *tensor, double *elements)
{
    int64_t index[DV_MAX_NDIM] = { 0 };
    for (int64_t i = 0, n = dv_numel(tensor); i < n; i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < tensor->ndim; d++)
            at += index[d] * tensor->strides[d];
        elements[i] = check_element_get(tensor->data, at, tensor->dtype);
        for (int32_t d = tensor->ndim; d-- > 0 && ++index[d] == tensor->shape[d];)
            index[d] = 0;
    }
}
