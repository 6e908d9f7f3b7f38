/* Where a tensor's elements lie: contiguity, overlaps, copies.
 *
 * Overlap is tested without visiting elements. The answer "no overlap" is always right; "overlap" may be wrong. */
#include "tensor/tensor.h"

#include <stdlib.h>

#include "base/error.h"

bool dv_tensor_is_contiguous(const dv_tensor *t) { return dv__tensor_sound(t) && dv__contiguous(t->ndim, t->shape, t->strides); }

/* ---- Overlap ------------------------------------------------------------------------------------------------------------- */

typedef struct dim { int64_t size, stride; } dim; /* stride >= 0 */

/* The dims of size above 1, by stride, smallest first; -1 when the tensor is empty. */
static int sorted_dims(const dv_tensor *t, dim *dims)
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
        for (; at > 0 && dims[at - 1].stride > d.stride; at--)
            dims[at] = dims[at - 1];
        dims[at] = d;
    }
    return n;
}

bool dv_tensor_overlaps_itself(const dv_tensor *t)
{
    if (!dv__tensor_sound(t))
        return true;
    dim dims[DV_MAX_NDIM];
    const int n = sorted_dims(t, dims);
    int64_t reach = 0; /* the largest offset that the smaller dims reach */
    for (int i = 0; i < n; i++) {
        if (dims[i].stride <= reach)
            return true;
        reach += dims[i].stride * (dims[i].size - 1);
    }
    return false;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* The address of the tensor's lowest byte, and one past its highest. */
static bool range(const dv_tensor *t, uintptr_t *begin, uintptr_t *end)
{
    int64_t low, high;
    if (!dv__extent(t->ndim, t->shape, t->strides, &low, &high) || high < low)
        return false;
    const int64_t bits = (int64_t)t->dtype.bits * t->dtype.lanes;
    const int64_t from = bits % 8 ? (low / 8 - (low % 8 != 0)) * bits
                                  : low * (bits / 8); /* of sub-byte types: rounded outwards */
    *begin = (uintptr_t)t->data + (uintptr_t)from;
    *end = (uintptr_t)t->data + (uintptr_t)dv_dtype_bytes(t->dtype, high + 1);
    return true;
}

/* Two tensors that interleave, such as the two halves of each row of a matrix: the strides of at least step bytes of both tensors
 * are multiples of some g, so that each tensor stays in a window of addresses modulo g. The tensors are disjoint if the windows
 * are. */
static bool windows_apart(
    const dim *a, int na, int64_t size_a, const dim *b, int nb, int64_t size_b, int64_t step, uintptr_t distance)
{
    int64_t g = 0, window_a = size_a, window_b = size_b;
    for (int i = 0; i < na; i++)
        if (a[i].stride * size_a >= step)
            g = gcd(a[i].stride * size_a, g);
        else
            window_a += a[i].stride * size_a * (a[i].size - 1);
    for (int i = 0; i < nb; i++)
        if (b[i].stride * size_b >= step)
            g = gcd(b[i].stride * size_b, g);
        else
            window_b += b[i].stride * size_b * (b[i].size - 1);
    if (g <= 0)
        return false;
    const uintptr_t shift = distance % (uintptr_t)g; /* where b's window begins, relative to a's */
    return shift >= (uintptr_t)window_a && shift + (uintptr_t)window_b <= (uintptr_t)g;
}

bool dv_tensor_overlaps(const dv_tensor *a, const dv_tensor *b)
{
    uintptr_t a_begin, a_end, b_begin, b_end;
    if (!dv__tensor_sound(a) || !dv__tensor_sound(b))
        return true;
    const bool host = dv__host_memory(a->device.type) && dv__host_memory(b->device.type);
    if (!host && (a->device.type != b->device.type || a->device.id != b->device.id))
        return false;
    if (!a->data || !b->data)
        return false;
    if (!range(a, &a_begin, &a_end) || !range(b, &b_begin, &b_end) || a_end <= b_begin || b_end <= a_begin)
        return false;
    if (a->dtype.bits * a->dtype.lanes % 8 || b->dtype.bits * b->dtype.lanes % 8)
        return true;
    dim da[DV_MAX_NDIM], db[DV_MAX_NDIM];
    if (a_begin > b_begin) { /* the lower one first, so that the distance is not negative */
        const dv_tensor *t = a;
        a = b;
        b = t;
        const uintptr_t u = a_begin;
        a_begin = b_begin;
        b_begin = u;
    }
    const int na = sorted_dims(a, da), nb = sorted_dims(b, db);
    const int64_t size_a = dv_dtype_bytes(a->dtype, 1), size_b = dv_dtype_bytes(b->dtype, 1);
    const uintptr_t distance = b_begin - a_begin;
    for (int i = 0; i < na; i++)
        if (da[i].stride && windows_apart(da, na, size_a, db, nb, size_b, da[i].stride * size_a, distance))
            return false;
    for (int i = 0; i < nb; i++)
        if (db[i].stride && windows_apart(da, na, size_a, db, nb, size_b, db[i].stride * size_b, distance))
            return false;
    return true;
}

/* ---- Copy ---------------------------------------------------------------------------------------------------------------- */

typedef struct pair { int64_t size, dst, src; } pair; /* one dim: strides in elements, later in bytes */

/* Merge dims to the fewest that traverse both tensors, outermost first, in the order of dst's strides; 0: one element. */
static int joint_dims(const dv_tensor *dst, const dv_tensor *src, pair *p)
{
    int n = 0;
    for (int32_t i = 0; i < dst->ndim; i++) {
        if (dst->shape[i] == 1)
            continue;
        const pair d = { dst->shape[i], dst->strides[i], src->strides[i] };
        const int64_t key = d.dst < 0 ? -d.dst : d.dst;
        int at = n++;
        for (; at > 0 && (p[at - 1].dst < 0 ? -p[at - 1].dst : p[at - 1].dst) < key; at--)
            p[at] = p[at - 1];
        p[at] = d;
    }
    int m = 0;
    for (int i = 1; i < n; i++) {
        if (p[m].dst == p[i].dst * p[i].size && p[m].src == p[i].src * p[i].size) {
            p[m].size *= p[i].size;
            p[m].dst = p[i].dst;
            p[m].src = p[i].src;
        } else {
            p[++m] = p[i];
        }
    }
    return n ? m + 1 : 0;
}

#define LINE(T)                                   \
    for (int64_t i = 0; i < n; i++) {             \
        T x;                                      \
        memcpy(&x, src + i * src_step, sizeof x); \
        memcpy(dst + i * dst_step, &x, sizeof x); \
    }

/* n elements of size bytes, at steps in bytes. */
static void copy_line(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t n, int64_t size)
{
    if (dst_step == size && src_step == size) {
        memcpy(dst, src, (size_t)(n * size));
        return;
    }
    switch (size) {
    case 1: LINE(uint8_t) break;
    case 2: LINE(uint16_t) break;
    case 4: LINE(uint32_t) break;
    case 8: LINE(uint64_t) break;
    case 16: LINE(dv_complex) break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(dst + i * dst_step, src + i * src_step, (size_t)size);
    }
}

/* The two inner dims in tiles: a transposed copy then touches each cache line of either side once. */
static void copy_plane(char *dst, const char *src, const pair *outer, const pair *inner, int64_t size)
{
    enum { TILE = 32 };
    for (int64_t i = 0; i < outer->size; i += TILE)
        for (int64_t j = 0; j < inner->size; j += TILE) {
            const int64_t rows = outer->size - i < TILE ? outer->size - i : TILE,
                          n = inner->size - j < TILE ? inner->size - j : TILE;
            for (int64_t k = i; k < i + rows; k++)
                copy_line(dst + k * outer->dst + j * inner->dst, inner->dst, src + k * outer->src + j * inner->src, inner->src, n,
                    size);
        }
}

static void copy_bytes(const dv_tensor *to, const dv_tensor *from, pair *p, int n, int64_t size)
{
    char *dst = to->data;
    const char *src = from->data;
    for (int i = 0; i < n; i++) {
        p[i].dst *= size;
        p[i].src *= size;
    }
    if (n == 0) {
        memcpy(dst, src, (size_t)size);
        return;
    }
    const pair *inner = &p[n - 1];
    const bool tiled = n >= 2 && inner->src != size && llabs(inner->src) > llabs(p[n - 2].src); /* src runs the other way */
    const int loops = n - 1 - tiled;
    int64_t at[DV_MAX_NDIM] = { 0 };
    for (;;) {
        if (tiled)
            copy_plane(dst, src, &p[n - 2], inner, size);
        else
            copy_line(dst, inner->dst, src, inner->src, inner->size, size);
        int k = loops - 1;
        for (; k >= 0 && ++at[k] == p[k].size; k--) {
            dst -= p[k].dst * (p[k].size - 1);
            src -= p[k].src * (p[k].size - 1);
            at[k] = 0;
        }
        if (k < 0)
            return;
        dst += p[k].dst;
        src += p[k].src;
    }
}

/* Elements of less than a byte: copied bit by bit from the low end, as DLPack packs them. Simple, because rare. */
static void copy_bits(const dv_tensor *dst, const dv_tensor *src, int64_t bits)
{
    const int64_t n = dv_numel(dst);
    int64_t at[DV_MAX_NDIM] = { 0 }, d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t b = 0; b < bits; b++) {
            const int64_t to = d * bits + b, from = s * bits + b;
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
    pair p[DV_MAX_NDIM];
    const int64_t bits = (int64_t)dst->dtype.bits * dst->dtype.lanes, numel = dv_numel(dst);
    if (!numel)
        return;
    const int n = joint_dims(dst, src, p);
    if (bits % 8 == 0)
        copy_bytes(dst, src, p, n, bits / 8);
    else if (n == 1 && p[0].dst == 1 && p[0].src == 1 && numel * bits % 8 == 0)
        memcpy(dst->data, src->data, (size_t)dv_dtype_bytes(dst->dtype, numel));
    else
        copy_bits(dst, src, bits);
}

static bool same_view(const dv_tensor *a, const dv_tensor *b)
{
    return a->data == b->data && !memcmp(a->strides, b->strides, sizeof *a->strides * (size_t)a->ndim);
}

int dv_tensor_copy(const dv_tensor *dst, const dv_tensor *src)
{
    int status = dv__tensor_check(dst);
    if (status || (status = dv__tensor_check(src)))
        return dv__fail_in(status, "copy");
    if (dst->ndim != src->ndim)
        return dv_fail(DV_ESHAPE, "copy: a tensor of %d dims to one of %d", (int)src->ndim, (int)dst->ndim);
    for (int32_t i = 0; i < dst->ndim; i++)
        if (dst->shape[i] != src->shape[i])
            return dv_fail(DV_ESHAPE, "copy: dim %d has size %lld in the source and %lld in the target", (int)i,
                (long long)src->shape[i], (long long)dst->shape[i]);
    if (dv_dtype_key(dst->dtype) != dv_dtype_key(src->dtype))
        return dv_fail(DV_EDTYPE, "copy: from %s to %s", dv_dtype_name(src->dtype), dv_dtype_name(dst->dtype));
    if (!dv__host_memory(dst->device.type) || !dv__host_memory(src->device.type))
        return dv_fail(DV_EDEVICE, "copy: from %s to %s: only memory of the cpu", dv_device_name(src->device.type),
            dv_device_name(dst->device.type));
    if (!dv_numel(dst) || same_view(dst, src))
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
