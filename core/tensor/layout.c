/* Where a tensor's elements lie: contiguity, overlaps, copies.
 *
 * Overlap is tested without visiting elements. The answer "no overlap" is always right; "overlap" may be wrong. */
#include "tensor/tensor.h"

#include <stdlib.h>

#include "base/error.h"

bool dv_tensor_is_contiguous(const dv_tensor *t)
{
    return dv__tensor_is_valid(t) && dv__is_contiguous(t->ndim, t->shape, t->strides);
}

/* ---- Overlap ------------------------------------------------------------------------------------------------------------- */

typedef struct dim { int64_t size, stride; } dim; /* stride >= 0 */

/* Writes the dims of size above 1 to `sorted`, by the absolute value of their stride, smallest first. Returns their number;
 * -1 if the tensor is empty. */
static int overlap_sort_and_count_dims(const dv_tensor *t, dim *sorted)
{
    int n = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] == 0)
            return -1;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 1)
            continue;
        const dim d = { t->shape[i], t->strides[i] < 0 ? -t->strides[i] : t->strides[i] };
        int at = n++;
        for (; at > 0 && sorted[at - 1].stride > d.stride; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = d;
    }
    return n;
}

bool dv_tensor_overlaps_itself(const dv_tensor *t)
{
    if (!dv__tensor_is_valid(t))
        return true;
    dim dims[DV_MAX_NDIM];
    const int n = overlap_sort_and_count_dims(t, dims);
    int64_t reach = 0; /* the largest offset that the smaller dims reach */
    for (int i = 0; i < n; i++) {
        if (dims[i].stride <= reach)
            return true;
        reach += dims[i].stride * (dims[i].size - 1);
    }
    return false;
}

static int64_t overlap_gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Finds the address of the tensor's lowest byte, and one past that of its highest byte. Returns false for an empty tensor or
 * on overflow. */
static bool overlap_try_find_byte_range(const dv_tensor *t, uintptr_t *begin, uintptr_t *end)
{
    int64_t low, high;
    if (!dv__try_find_element_range(t->ndim, t->shape, t->strides, &low, &high) || high < low)
        return false;
    const int64_t bits = (int64_t)t->dtype.bits * t->dtype.lanes;
    const int64_t from = bits % 8 ? (low / 8 - (low % 8 != 0)) * bits
                                  : low * (bits / 8); /* the range of types smaller than a byte is rounded outwards */
    *begin = (uintptr_t)t->data + (uintptr_t)from;
    *end = (uintptr_t)t->data + (uintptr_t)dv_dtype_bytes(t->dtype, high + 1);
    return true;
}

/* True if two tensors interleave without sharing a byte, such as the two halves of each row of a matrix. All strides of at
 * least min_stride_bytes are multiples of some g, so each tensor stays in a window of addresses modulo g. The tensors are
 * disjoint if their windows are. */
static bool overlap_are_interleaved_disjoint(const dim *a, int ndims_a, int64_t element_size_a, const dim *b, int ndims_b,
    int64_t element_size_b, int64_t min_stride_bytes, uintptr_t bytes_from_a_to_b)
{
    int64_t g = 0, window_a = element_size_a, window_b = element_size_b;
    for (int i = 0; i < ndims_a; i++)
        if (a[i].stride * element_size_a >= min_stride_bytes)
            g = overlap_gcd(a[i].stride * element_size_a, g);
        else
            window_a += a[i].stride * element_size_a * (a[i].size - 1);
    for (int i = 0; i < ndims_b; i++)
        if (b[i].stride * element_size_b >= min_stride_bytes)
            g = overlap_gcd(b[i].stride * element_size_b, g);
        else
            window_b += b[i].stride * element_size_b * (b[i].size - 1);
    if (g <= 0)
        return false;
    const uintptr_t shift = bytes_from_a_to_b % (uintptr_t)g; /* where b's window begins, relative to a's */
    return shift >= (uintptr_t)window_a && shift + (uintptr_t)window_b <= (uintptr_t)g;
}

bool dv_tensor_overlaps(const dv_tensor *a, const dv_tensor *b)
{
    uintptr_t a_begin, a_end, b_begin, b_end;
    if (!dv__tensor_is_valid(a) || !dv__tensor_is_valid(b))
        return true;
    const bool host = dv__is_cpu_memory(a->device.type) && dv__is_cpu_memory(b->device.type);
    if (!host && (a->device.type != b->device.type || a->device.id != b->device.id))
        return false;
    if (!a->data || !b->data)
        return false;
    if (!overlap_try_find_byte_range(a, &a_begin, &a_end) || !overlap_try_find_byte_range(b, &b_begin, &b_end) ||
        a_end <= b_begin || b_end <= a_begin)
        return false;
    if (a->dtype.bits * a->dtype.lanes % 8 || b->dtype.bits * b->dtype.lanes % 8)
        return true;
    dim da[DV_MAX_NDIM], db[DV_MAX_NDIM];
    if (a_begin >
        b_begin) { /* swaps a and b, so that the tensor with the lower address comes first and the distance is not negative */
        const dv_tensor *t = a;
        a = b;
        b = t;
        const uintptr_t u = a_begin;
        a_begin = b_begin;
        b_begin = u;
    }
    const int na = overlap_sort_and_count_dims(a, da), nb = overlap_sort_and_count_dims(b, db);
    const int64_t size_a = dv_dtype_bytes(a->dtype, 1), size_b = dv_dtype_bytes(b->dtype, 1);
    const uintptr_t distance = b_begin - a_begin;
    for (int i = 0; i < na; i++)
        if (da[i].stride && overlap_are_interleaved_disjoint(da, na, size_a, db, nb, size_b, da[i].stride * size_a, distance))
            return false;
    for (int i = 0; i < nb; i++)
        if (db[i].stride && overlap_are_interleaved_disjoint(da, na, size_a, db, nb, size_b, db[i].stride * size_b, distance))
            return false;
    return true;
}

/* ---- Copy ---------------------------------------------------------------------------------------------------------------- */

typedef struct copy_dim { int64_t size, dst, src; } copy_dim; /* one dim of a copy; the strides are in elements, later in bytes */

/* Merges dims to the fewest that traverse both tensors, and writes them to `merged`, outermost first, by dst's strides.
 * Returns their number; 0: one element. Only for tensors with elements. */
static int copy_merge_and_count_dims(const dv_tensor *dst, const dv_tensor *src, copy_dim *merged)
{
    int n = 0;
    for (int32_t i = 0; i < dst->ndim; i++) {
        if (dst->shape[i] == 1)
            continue;
        const copy_dim d = { dst->shape[i], dst->strides[i], src->strides[i] };
        const int64_t key = d.dst < 0 ? -d.dst : d.dst;
        int at = n++;
        for (; at > 0 && (merged[at - 1].dst < 0 ? -merged[at - 1].dst : merged[at - 1].dst) < key; at--)
            merged[at] = merged[at - 1];
        merged[at] = d;
    }
    int m = 0;
    for (int i = 1; i < n; i++) {
        if (merged[m].dst == merged[i].dst * merged[i].size && merged[m].src == merged[i].src * merged[i].size) {
            merged[m].size *= merged[i].size;
            merged[m].dst = merged[i].dst;
            merged[m].src = merged[i].src;
        } else {
            merged[++m] = merged[i];
        }
    }
    return n ? m + 1 : 0;
}

#define COPY_LINE(T)                              \
    for (int64_t i = 0; i < n; i++) {             \
        T x;                                      \
        memcpy(&x, src + i * src_step, sizeof x); \
        memcpy(dst + i * dst_step, &x, sizeof x); \
    }

/* Copies n elements of element_size bytes each. dst_step, src_step: the distance of consecutive elements, in bytes. */
static void copy_elements_in_line(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t n, int64_t element_size)
{
    if (dst_step == element_size && src_step == element_size) {
        memcpy(dst, src, (size_t)(n * element_size));
        return;
    }
    switch (element_size) {
    case 1: COPY_LINE(uint8_t) break;
    case 2: COPY_LINE(uint16_t) break;
    case 4: COPY_LINE(uint32_t) break;
    case 8: COPY_LINE(uint64_t) break;
    case 16: COPY_LINE(dv_complex) break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(dst + i * dst_step, src + i * src_step, (size_t)element_size);
    }
}

/* Copies two dims in tiles of 32 by 32 elements, so that a transposed copy touches each cache line of either side once. */
static void copy_plane_in_tiles(char *dst, const char *src, const copy_dim *outer, const copy_dim *inner, int64_t element_size)
{
    enum { TILE = 32 };
    for (int64_t i = 0; i < outer->size; i += TILE)
        for (int64_t j = 0; j < inner->size; j += TILE) {
            const int64_t rows = outer->size - i < TILE ? outer->size - i : TILE,
                          n = inner->size - j < TILE ? inner->size - j : TILE;
            for (int64_t k = i; k < i + rows; k++)
                copy_elements_in_line(dst + k * outer->dst + j * inner->dst, inner->dst, src + k * outer->src + j * inner->src,
                    inner->src, n, element_size);
        }
}

/* Copies elements of element_size bytes over ndims dims, outermost first. Changes the strides in `dims` from elements to
 * bytes. */
static void copy_byte_elements(const dv_tensor *to, const dv_tensor *from, copy_dim *dims, int ndims, int64_t element_size)
{
    char *dst = to->data;
    const char *src = from->data;
    for (int i = 0; i < ndims; i++) {
        dims[i].dst *= element_size;
        dims[i].src *= element_size;
    }
    if (ndims == 0) {
        memcpy(dst, src, (size_t)element_size);
        return;
    }
    const copy_dim *inner = &dims[ndims - 1];
    const bool tiled = ndims >= 2 && inner->src != element_size &&
        llabs(inner->src) >
            llabs(dims[ndims - 2].src); /* src's smallest stride is in another dim than dst's: a transposed copy */
    const int loops = ndims - 1 - tiled;
    int64_t at[DV_MAX_NDIM] = { 0 };
    for (;;) {
        if (tiled)
            copy_plane_in_tiles(dst, src, &dims[ndims - 2], inner, element_size);
        else
            copy_elements_in_line(dst, inner->dst, src, inner->src, inner->size, element_size);
        int k = loops - 1;
        for (; k >= 0 && ++at[k] == dims[k].size; k--) {
            dst -= dims[k].dst * (dims[k].size - 1);
            src -= dims[k].src * (dims[k].size - 1);
            at[k] = 0;
        }
        if (k < 0)
            return;
        dst += dims[k].dst;
        src += dims[k].src;
    }
}

/* Copies elements of less than 8 bits, bit by bit from the low end of each byte, as DLPack packs such elements. */
static void copy_subbyte_elements(const dv_tensor *dst, const dv_tensor *src, int64_t element_bits)
{
    const int64_t n = dv_numel(dst);
    int64_t at[DV_MAX_NDIM] = { 0 }, d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t b = 0; b < element_bits; b++) {
            const int64_t to = d * element_bits + b, from = s * element_bits + b;
            uint8_t *byte = (uint8_t *)dst->data + (to >> 3);
            const unsigned bit = ((const uint8_t *)src->data)[from >> 3] >> (from & 7) & 1u;
            *byte = (uint8_t)((*byte & ~(1u << (to & 7))) | bit << (to & 7));
        }
        for (int32_t k = dst->ndim; k-- > 0;) {
            d += dst->strides[k];
            s += src->strides[k];
            if (++at[k] < dst->shape[k])
                break;
            d -= dst->strides[k] * dst->shape[k];
            s -= src->strides[k] * dst->shape[k];
            at[k] = 0;
        }
    }
}

void dv__copy_elements(const dv_tensor *dst, const dv_tensor *src)
{
    copy_dim p[DV_MAX_NDIM];
    const int64_t bits = (int64_t)dst->dtype.bits * dst->dtype.lanes, numel = dv_numel(dst);
    if (!numel)
        return;
    const int n = copy_merge_and_count_dims(dst, src, p);
    if (bits % 8 == 0)
        copy_byte_elements(dst, src, p, n, bits / 8);
    else if (n == 1 && p[0].dst == 1 && p[0].src == 1 && numel * bits % 8 == 0)
        memcpy(dst->data, src->data, (size_t)dv_dtype_bytes(dst->dtype, numel));
    else
        copy_subbyte_elements(dst, src, bits);
}

static bool copy_is_same_view(const dv_tensor *a, const dv_tensor *b)
{
    return a->data == b->data && !memcmp(a->strides, b->strides, sizeof *a->strides * (size_t)a->ndim);
}

int dv_tensor_copy(const dv_tensor *dst, const dv_tensor *src)
{
    int status = dv__tensor_check(dst);
    if (status || (status = dv__tensor_check(src)))
        return dv__fail_add_context(status, "copy");
    if (dst->ndim != src->ndim)
        return dv_fail(DV_ESHAPE, "copy: a tensor of %d dims to one of %d", (int)src->ndim, (int)dst->ndim);
    for (int32_t i = 0; i < dst->ndim; i++)
        if (dst->shape[i] != src->shape[i])
            return dv_fail(DV_ESHAPE, "copy: dim %d has size %lld in the source and %lld in the target", (int)i,
                (long long)src->shape[i], (long long)dst->shape[i]);
    if (dv_dtype_key(dst->dtype) != dv_dtype_key(src->dtype))
        return dv_fail(DV_EDTYPE, "copy: from %s to %s", dv_dtype_name(src->dtype), dv_dtype_name(dst->dtype));
    if (!dv__is_cpu_memory(dst->device.type) || !dv__is_cpu_memory(src->device.type))
        return dv_fail(DV_EDEVICE, "copy: from %s to %s: only memory of the cpu", dv_device_name(src->device.type),
            dv_device_name(dst->device.type));
    if (!dv_numel(dst) || copy_is_same_view(dst, src))
        return DV_OK;
    if (dv__tensor_is_read_only(dst))
        return dv_fail(DV_EINVAL, "copy: the target is read-only");
    if (dv_tensor_overlaps_itself(dst))
        return dv_fail(DV_EALIAS, "copy: two elements of the target share memory");
    if (dv_tensor_overlaps(dst, src))
        return dv_fail(DV_EALIAS, "copy: the source and the target overlap");
    dv__copy_elements(dst, src);
    return DV_OK;
}
