/* Calls of a kernel for slices of contiguous tensors that broadcast. A tensor that does not broadcast is an error.
 *
 * Each tensor gets a stride for each dim of the result, 0 where the tensor is repeated. Two neighbouring dims are joined if one
 * stride steps through both in every tensor, as in PyTorch's TensorIterator. If the last joined dim has LONG_ROW elements or
 * more, a slice lies in one row, and nothing is copied: there an input has consecutive elements, or one element. Otherwise a
 * slice has at most SLICE_ELEMENTS elements of the result, and each input with fewer elements than the result is copied for each
 * slice. */
#include "call/broadcast.h"

#include <string.h>

#include "dovetail.h"

enum {
    MAX_TENSORS = 8,       /* of the inputs, and of the results */
    SLICE_ELEMENTS = 512,  /* of a slice whose inputs are copied */
    LONG_ROW = 256,        /* elements of a row that is not copied */
    PARALLEL_GRAIN = 32768 /* least elements of a chunk of dv_parallel_for(), as PyTorch's */
};

typedef struct broadcast_tensor {
    const dv_tensor *t;
    size_t frame_offset;          /* offset of the tensor's pointer in the frame, in bytes */
    int64_t item_size;            /* bytes of an element */
    bool is_dense;                /* true if the tensor has an element for each one of the result, in the same order */
    int64_t strides[DV_MAX_NDIM]; /* in elements, for the dims of broadcast_loop.shape */
} broadcast_tensor;

typedef struct broadcast_loop {
    dv_context *ctx;
    const void *frame;
    size_t frame_size;
    dv_kernel_fn kernel;
    size_t n;
    broadcast_tensor tensors[2 * MAX_TENSORS];
    bool has_long_rows; /* true if each slice lies in one row, and nothing is copied */
    int32_t ndim;
    int64_t shape[DV_MAX_NDIM]; /* the result's dims after joining */
} broadcast_loop;

static size_t broadcast_round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Sets the strides of a tensor for the dims of the result. A dense one has those of the result. */
static void broadcast_set_strides(broadcast_tensor *p, const dv_tensor *out)
{
    int64_t stride = 1;
    for (int32_t d = out->ndim, e = p->is_dense ? d : p->t->ndim; d-- > 0;) {
        const int64_t size = p->is_dense ? out->shape[d] : --e < 0 ? 1 : p->t->shape[e];
        p->strides[d] = size == 1 ? 0 : stride;
        stride *= size;
    }
}

/* Joins each dim with the one before it if the two are one dim for all tensors, and leaves out dims of size 1. */
static void broadcast_join_dims(broadcast_loop *loop)
{
    int32_t last = -1;
    for (int32_t d = 0; d < loop->ndim; d++) {
        bool joins = last >= 0;
        if (loop->shape[d] == 1)
            continue;
        for (size_t k = 0; k < loop->n && joins; k++)
            joins = loop->tensors[k].strides[last] == loop->tensors[k].strides[d] * loop->shape[d];
        last += !joins;
        loop->shape[last] = joins ? loop->shape[last] * loop->shape[d] : loop->shape[d];
        for (size_t k = 0; k < loop->n; k++)
            loop->tensors[k].strides[last] = loop->tensors[k].strides[d];
    }
    loop->ndim = last + 1;
}

/* Sets index[] to the indices of an element of the result, in the joined dims. Returns the offset, in elements, of the
 * corresponding element of p's tensor. */
static int64_t broadcast_locate(const broadcast_loop *loop, const broadcast_tensor *p, int64_t element, int64_t *index)
{
    int64_t offset = 0;
    for (int32_t d = loop->ndim; d-- > 0; element /= loop->shape[d]) {
        index[d] = element % loop->shape[d];
        offset += index[d] * p->strides[d];
    }
    return offset;
}

/* Copies one element to n places. */
static void broadcast_fill(char *to, const char *from, int64_t n, int64_t item_size)
{
#define FILL(TYPE)                                                        \
    {                                                                     \
        TYPE value;                                                       \
        memcpy(&value, from, sizeof value);                               \
        for (int64_t i = 0; i < n; i++)                                   \
            memcpy(to + i * (int64_t)sizeof value, &value, sizeof value); \
    }
    switch (item_size) {
    case 1: memset(to, *from, (size_t)n); break;
    case 2: FILL(uint16_t) break;
    case 4: FILL(uint32_t) break;
    case 8: FILL(uint64_t) break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * item_size, from, (size_t)item_size);
    }
}

/* Copies an input's elements for `count` elements of the result, from the one at `begin` on. */
static void broadcast_copy(const broadcast_loop *loop, const broadcast_tensor *p, int64_t begin, int64_t count, char *to)
{
    const int32_t last = loop->ndim - 1;
    int64_t index[DV_MAX_NDIM], offset = broadcast_locate(loop, p, begin, index);
    for (int64_t n; count; count -= n, to += n * p->item_size) {
        const int64_t left = loop->shape[last] - index[last];
        const char *const from = (const char *)p->t->data + offset * p->item_size;
        n = left < count ? left : count;
        if (p->strides[last])
            memcpy(to, from, (size_t)(n * p->item_size));
        else
            broadcast_fill(to, from, n, p->item_size);
        offset -= index[last] * p->strides[last];
        index[last] = 0;
        for (int32_t d = last; d-- > 0;) { /* to the next row */
            offset += p->strides[d];
            if (++index[d] < loop->shape[d])
                break;
            offset -= loop->shape[d] * p->strides[d];
            index[d] = 0;
        }
    }
}

/* Calls the kernel for the slices of elements [begin, end) of the result. scratch: room for a frame and the copies. */
static int broadcast_run_range(void *arg, int64_t begin, int64_t end, void *scratch)
{
    static const int64_t one = 1;
    const broadcast_loop *loop = arg;
    dv_tensor views[2 * MAX_TENSORS];
    int64_t count, index[DV_MAX_NDIM];
    memcpy(scratch, loop->frame, loop->frame_size);
    for (size_t k = 0; k < loop->n; k++) {
        dv_tensor *const view = &views[k];
        *view = *loop->tensors[k].t;
        view->ndim = 1;
        view->strides = &one;
        memcpy((char *)scratch + loop->tensors[k].frame_offset, &view, sizeof view);
    }
    for (int64_t at = begin; at < end; at += count) {
        const int64_t row = loop->shape[loop->ndim - 1], most = loop->has_long_rows ? row - at % row : SLICE_ELEMENTS;
        char *copy = (char *)scratch + broadcast_round_up(loop->frame_size);
        count = end - at < most ? end - at : most;
        for (size_t k = 0; k < loop->n; k++) {
            const broadcast_tensor *p = &loop->tensors[k];
            int64_t offset = at;
            views[k].shape = &count;
            if (!p->is_dense && loop->has_long_rows) {
                offset = broadcast_locate(loop, p, at, index);
                views[k].shape = p->strides[loop->ndim - 1] ? &count : &one;
            }
            views[k].data = (char *)p->t->data + offset * p->item_size;
            if (!p->is_dense && !loop->has_long_rows) {
                broadcast_copy(loop, p, at, count, copy);
                views[k].data = copy;
                copy += broadcast_round_up((size_t)(SLICE_ELEMENTS * p->item_size));
            }
        }
        const int status = loop->kernel(loop->ctx, scratch);
        if (status)
            return status;
    }
    return DV_OK;
}

int dv__for_each_broadcast_slice(dv_context *ctx, const void *frame, size_t frame_size, dv_kernel_fn kernel,
    const dv_slice_field *outs, size_t nouts, const dv_slice_field *ins, size_t nins)
{
    broadcast_loop loop; /* 9 KB: only the part that is used is set */
    const dv_tensor *const out = nouts ? outs->tensor : NULL;
    const int64_t n = out ? dv_numel(out) : 0;
    bool is_whole = n <= PARALLEL_GRAIN; /* true if one call of the kernel with the whole tensors is enough */
    size_t bytes = broadcast_round_up(frame_size);
    if (!nouts || nouts > MAX_TENSORS || nins > MAX_TENSORS || (out && out->ndim > DV_MAX_NDIM))
        return dv_error(ctx, DV_EINVAL, "DV_FOR_EACH_SLICE: expected 1 to 8 results, at most 8 inputs and at most 64 dims");
    loop.ctx = ctx, loop.frame = frame, loop.frame_size = frame_size, loop.kernel = kernel, loop.n = nouts + nins;
    for (size_t k = 0; k < loop.n; k++) {
        const dv_slice_field *const given = k < nouts ? &outs[k] : &ins[k - nouts];
        broadcast_tensor *const p = &loop.tensors[k];
        p->t = given->tensor;
        p->frame_offset = given->offset;
        if (!p->t)
            return dv_error(ctx, DV_EINVAL, "DV_FOR_EACH_SLICE: tensor %zu is None", k);
        p->item_size = p->t->dtype.bits * p->t->dtype.lanes / 8;
        p->is_dense = dv_numel(p->t) == n;
        if (!p->is_dense && (k < nouts || !dv__can_broadcast(p->t, out)))
            return dv_error(
                ctx, DV_ESHAPE, "DV_FOR_EACH_SLICE: tensor %zu does not broadcast to the shape of the first result", k);
        is_whole = is_whole && (p->is_dense || dv_numel(p->t) == 1);
        if (!p->is_dense)
            bytes += broadcast_round_up((size_t)(SLICE_ELEMENTS * p->item_size));
    }
    if (!n || is_whole)
        return n ? kernel(ctx, frame) : DV_OK;
    loop.ndim = out->ndim;
    memcpy(loop.shape, out->shape, sizeof *loop.shape * (size_t)out->ndim);
    for (size_t k = 0; k < loop.n; k++)
        broadcast_set_strides(&loop.tensors[k], out);
    broadcast_join_dims(&loop);
    loop.has_long_rows = loop.shape[loop.ndim - 1] >= LONG_ROW;
    return dv_parallel_scratch(ctx, 0, n, PARALLEL_GRAIN, bytes, broadcast_run_range, &loop);
}
