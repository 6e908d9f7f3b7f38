/* Calls a kernel function once for each slice of tensors that broadcast. All tensors are contiguous; a tensor that does not
 * broadcast to the first result is an error. A slice here is a range of the result's elements.
 *
 * For each dim of the result a tensor has a stride: 0 where the tensor is broadcast. Two neighbouring dims are joined if in every
 * tensor one stride steps through both, as in PyTorch's TensorIterator. For each slice the function gets, of an input,
 *   - one element, if the input has only one;
 *   - a pointer into the input, if the input's shape is the last dims of the result, as a bias's is, or all of them. A bias of at
 *     most SLICE_ELEMENTS is repeated in a buffer, once for each chunk, and the pointer points into the buffer;
 *   - else a copy of the elements that the slice needs.
 * If some input would be copied and the last joined dim has LONG_ROW elements or more, no slice goes beyond a row of that dim.
 * Within a row each input has stride 1 or 0, so no buffer is needed. */
#include "call/broadcast.h"

#include <string.h>

#include "dovetail.h"

enum {
    MAX_TENSORS = 8,       /* of the inputs, and of the results */
    SLICE_ELEMENTS = 2048, /* most elements of a slice if some input is in a buffer, and the longest bias that is repeated */
    LONG_ROW = 1024,
    FILL_BYTES = 32,
    PARALLEL_GRAIN = 32768 /* least elements of a chunk of dv_parallel_for(), as PyTorch's */
};

typedef struct broadcast_tensor {
    const dv_tensor *t;
    size_t frame_offset; /* offset of the tensor's pointer in the frame, in bytes */
    int64_t item_size;   /* bytes of an element */
    int64_t period;      /* element i of the result uses element i % period of the tensor: 1 for a tensor of one element, and the
                            result's number of elements for a tensor that has as many; 0: there is no such period */
    int64_t strides[DV_MAX_NDIM]; /* in elements, for the dims of broadcast_loop.shape */
} broadcast_tensor;

typedef struct broadcast_loop {
    dv_context *ctx;
    const void *frame;
    size_t frame_size;
    dv_kernel_fn kernel;
    size_t n; /* number of tensors */
    broadcast_tensor tensors[2 * MAX_TENSORS];
    int64_t size;     /* number of elements of the result */
    int64_t slice;    /* most elements of a slice */
    int64_t boundary; /* no slice goes beyond a multiple of this number of elements */
    bool is_by_row;   /* true if no slice goes beyond a row of the last joined dim, so that nothing is copied */
    int32_t ndim;
    int64_t shape[DV_MAX_NDIM]; /* the result's dims after joining */
} broadcast_loop;

static size_t broadcast_round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Returns the size of a tensor's buffer in bytes. */
static size_t broadcast_get_buffer_size(const broadcast_tensor *p)
{
    return broadcast_round_up((size_t)((p->period + SLICE_ELEMENTS) * p->item_size) + FILL_BYTES);
}

/* Sets the strides of a tensor for the dims of the result. A tensor with as many elements as the result has those of the result.
 */
static void broadcast_set_strides(broadcast_tensor *p, const dv_tensor *out)
{
    const bool has_all = dv_numel(p->t) == dv_numel(out);
    int64_t stride = 1;
    for (int32_t d = out->ndim, e = has_all ? d : p->t->ndim; d-- > 0;) {
        const int64_t size = has_all ? out->shape[d] : --e < 0 ? 1 : p->t->shape[e];
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
    loop->ndim = last < 0 ? 1 : last + 1;
    for (size_t k = 0; k < loop->n && last < 0; k++) /* one element */
        loop->shape[0] = 1, loop->tensors[k].strides[0] = 0;
}

/* Returns the period of a tensor: the product of the last joined dims, if the tensor has all their elements and is broadcast
 * along the others; 1 for a tensor of one element; 0: there is none. */
static int64_t broadcast_get_period(const broadcast_loop *loop, const broadcast_tensor *p)
{
    int64_t period = 1;
    int32_t d = loop->ndim;
    while (d > 0 && p->strides[d - 1] == period)
        period *= loop->shape[--d];
    while (d > 0 && p->strides[d - 1] == 0)
        d--;
    return d ? 0 : period;
}

/* True if the kernel function gets this input from a buffer of the chunk, as repetitions or as a copy. */
static bool broadcast_needs_buffer(const broadcast_loop *loop, const broadcast_tensor *p)
{
    return !loop->is_by_row && p->period != 1 && p->period != loop->size && p->period <= SLICE_ELEMENTS;
}

/* Sets the periods of the tensors, and with them the size and the boundary of slices. */
static void broadcast_set_slices(broadcast_loop *loop)
{
    const int64_t row = loop->shape[loop->ndim - 1];
    bool has_buffer = false;
    loop->is_by_row = false;
    for (size_t k = 0; k < loop->n; k++) {
        loop->tensors[k].period = broadcast_get_period(loop, &loop->tensors[k]);
        loop->is_by_row |= !loop->tensors[k].period && row >= LONG_ROW;
    }
    loop->boundary = loop->is_by_row ? row : loop->size;
    for (size_t k = 0; k < loop->n; k++) {
        const broadcast_tensor *const p = &loop->tensors[k];
        const bool is_buffered = broadcast_needs_buffer(loop, p);
        has_buffer |= is_buffered;
        if (!is_buffered && p->period > 1 && p->period < loop->boundary)
            loop->boundary = p->period;
    }
    const int64_t slices = has_buffer ? (loop->boundary + SLICE_ELEMENTS - 1) / SLICE_ELEMENTS : 1; /* up to a boundary */
    loop->slice = (loop->boundary + slices - 1) / slices;
}

/* Returns the bytes of scratch for each chunk: its copy of the frame, and its buffers. */
static size_t broadcast_get_scratch_size(const broadcast_loop *loop)
{
    size_t bytes = broadcast_round_up(loop->frame_size);
    for (size_t k = 0; k < loop->n; k++)
        bytes += broadcast_needs_buffer(loop, &loop->tensors[k]) ? broadcast_get_buffer_size(&loop->tensors[k]) : 0;
    return bytes;
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

/* The first `size` bytes of the buffer are filled: repeats them until `total` bytes are. */
static void broadcast_repeat(char *buffer, size_t size, size_t total)
{
    for (size_t filled = size, more; filled < total; filled += more) {
        more = filled < total - filled ? filled : total - filled;
        memcpy(buffer + filled, buffer, more);
    }
}

/* Copies one element to n adjacent places. The buffer needs FILL_BYTES - 1 spare bytes after the last place, which may be
 * overwritten. */
static void broadcast_fill(char *to, const char *from, int64_t n, int64_t item_size)
{
    uint64_t word = 0; /* the element, repeated */
    uint32_t four = 0;
    uint16_t two = 0;
    switch (item_size) {
    case 1: word = *(const uint8_t *)from * 0x0101010101010101; break;
    case 2: memcpy(&two, from, sizeof two), word = two * 0x0001000100010001; break;
    case 4: memcpy(&four, from, sizeof four), word = four * 0x0000000100000001; break;
    case 8: memcpy(&word, from, sizeof word); break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * item_size, from, (size_t)item_size);
        return;
    }
    const uint64_t words[FILL_BYTES / sizeof word] = { word, word, word, word };
    for (int64_t i = 0; i < n * item_size; i += FILL_BYTES)
        memcpy(to + i, words, FILL_BYTES);
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

/* Sets the view of a tensor for the slice of `count` elements at element `at` of the result. buffer: NULL if the tensor has none.
 */
static void broadcast_set_view(
    const broadcast_loop *loop, const broadcast_tensor *p, int64_t at, const int64_t *count, char *buffer, dv_tensor *view)
{
    static const int64_t one = 1;
    int64_t index[DV_MAX_NDIM];
    view->shape = count;
    if (p->period == 1) {
        view->shape = &one;
        view->data = p->t->data;
    } else if (p->period) {
        view->data = (buffer ? buffer : (char *)p->t->data) + at % p->period * p->item_size;
    } else if (buffer) {
        broadcast_copy(loop, p, at, *count, buffer);
        view->data = buffer;
    } else {
        view->data = (char *)p->t->data + broadcast_locate(loop, p, at, index) * p->item_size;
        view->shape = p->strides[loop->ndim - 1] ? count : &one;
    }
}

/* Calls the kernel for the slices of elements [begin, end) of the result. scratch: room for a frame and the buffers. */
static int broadcast_run_range(void *arg, int64_t begin, int64_t end, void *scratch)
{
    static const int64_t one = 1;
    const broadcast_loop *loop = arg;
    dv_tensor views[2 * MAX_TENSORS];
    char *buffers[2 * MAX_TENSORS], *room = (char *)scratch + broadcast_round_up(loop->frame_size);
    int64_t count;
    memcpy(scratch, loop->frame, loop->frame_size);
    for (size_t k = 0; k < loop->n; k++) {
        const broadcast_tensor *const p = &loop->tensors[k];
        dv_tensor *const view = &views[k];
        *view = *p->t;
        view->ndim = 1;
        view->strides = &one;
        memcpy((char *)scratch + p->frame_offset, &view, sizeof view);
        buffers[k] = broadcast_needs_buffer(loop, p) ? room : NULL;
        if (buffers[k])
            room += broadcast_get_buffer_size(p);
        if (buffers[k] && p->period) {
            const int64_t most = end - begin < loop->slice ? end - begin : loop->slice;
            memcpy(buffers[k], p->t->data, (size_t)(p->period * p->item_size));
            broadcast_repeat(buffers[k], (size_t)(p->period * p->item_size), (size_t)((p->period + most) * p->item_size));
        }
    }
    for (int64_t at = begin; at < end; at += count) {
        const int64_t after_boundary = at % loop->boundary, in_slice = after_boundary % loop->slice;
        count = loop->slice - in_slice;
        count = loop->boundary - after_boundary < count ? loop->boundary - after_boundary : count;
        count = end - at < count ? end - at : count;
        for (size_t k = 0; k < loop->n; k++)
            broadcast_set_view(loop, &loop->tensors[k], at, &count, buffers[k], &views[k]);
        const int status = loop->kernel(loop->ctx, scratch);
        if (status)
            return status;
    }
    return DV_OK;
}

/* Fails if the tensor of a field does not fit the first result: an input must broadcast to its shape, another result must have
 * its number of elements. Returns a status. */
static int broadcast_check_field(dv_context *ctx, const dv_slice_field *field, const dv_slice_field *first, bool is_result)
{
    const dv_tensor *const t = field->tensor, *const out = first->tensor;
    char found[128], expected[128];
    if (!t)
        return dv_error(ctx, DV_EINVAL, "DV_FOR_EACH_SLICE: expected a tensor '%s', found None", field->name);
    if (t->dtype.bits * t->dtype.lanes % 8)
        return dv_error(ctx, DV_EINVAL, "DV_FOR_EACH_SLICE: expected elements of whole bytes in '%s', found %s", field->name,
            dv_dtype_name(t->dtype));
    if (!dv_tensor_is_contiguous(t))
        return dv_error(ctx, DV_EINVAL, "DV_FOR_EACH_SLICE: expected a contiguous '%s', found other strides", field->name);
    if (is_result ? dv_numel(t) == dv_numel(out) : dv_numel(t) == 1 || dv__can_broadcast(t, out))
        return DV_OK;
    dv__print_shape(t, found, sizeof found);
    dv__print_shape(out, expected, sizeof expected);
    return dv_error(ctx, DV_ESHAPE,
        is_result ? "DV_FOR_EACH_SLICE: expected '%s' with as many elements as '%s', which has the shape %s, found %s"
                  : "DV_FOR_EACH_SLICE: expected '%s' of a shape that broadcasts to that of '%s', %s, found %s",
        field->name, first->name, expected, found);
}

int dv__for_each_broadcast_slice(dv_context *ctx, const void *frame, size_t frame_size, dv_kernel_fn kernel,
    const dv_slice_field *outs, size_t nouts, const dv_slice_field *ins, size_t nins)
{
    broadcast_loop loop; /* 9 KB: only the part that is used is set */
    const dv_tensor *const out = nouts ? outs->tensor : NULL;
    const int64_t n = out ? dv_numel(out) : 0;
    if (!nouts || nouts > MAX_TENSORS || nins > MAX_TENSORS || (out && out->ndim > DV_MAX_NDIM))
        return dv_error(ctx, DV_EINVAL, "DV_FOR_EACH_SLICE: expected 1 to 8 results, at most 8 inputs and at most 64 dims");
    loop.ctx = ctx, loop.frame = frame, loop.frame_size = frame_size, loop.kernel = kernel, loop.n = nouts + nins, loop.size = n;
    for (size_t k = 0; k < loop.n; k++) {
        const dv_slice_field *const given = k < nouts ? &outs[k] : &ins[k - nouts];
        broadcast_tensor *const p = &loop.tensors[k];
        const int status = broadcast_check_field(ctx, given, outs, k < nouts);
        if (status)
            return status;
        p->t = given->tensor;
        p->frame_offset = given->offset;
        p->item_size = p->t->dtype.bits * p->t->dtype.lanes / 8;
    }
    if (!n)
        return DV_OK;
    loop.ndim = out->ndim;
    memcpy(loop.shape, out->shape, sizeof *loop.shape * (size_t)out->ndim);
    for (size_t k = 0; k < loop.n; k++)
        broadcast_set_strides(&loop.tensors[k], out);
    broadcast_join_dims(&loop);
    broadcast_set_slices(&loop);
    return dv_parallel_scratch(ctx, 0, n, PARALLEL_GRAIN, broadcast_get_scratch_size(&loop), broadcast_run_range, &loop);
}
