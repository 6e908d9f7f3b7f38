/* Right operators that treat the elements along a dim differently, some of them only from a size on. */
#include <dovetail_op.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements in blocks of 32 of a row are rounded to 127 steps of the block's largest. */
struct blocks {
    const dv_tensor *x;
    dv_tensor *out;
};
static int blocks_f32(dv_context *ctx, const struct blocks *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j += 32) {
            const float *x = (const float *)a->x->data + i * n + j;
            float most = 0, *out = (float *)a->out->data + i * n + j;
            for (int64_t k = 0; k < 32 && j + k < n; k++)
                most = fmaxf(most, fabsf(x[k]));
            for (int64_t k = 0; k < 32 && j + k < n; k++)
                out[k] = most > 0 ? rintf(x[k] / most * 127) * most / 127 : x[k];
        }
    return DV_OK;
}
DV_OPERATOR(blocks, struct blocks, (x, out), .schema = "blocks(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n]:f32; atol = 1e-2",
    .kernels = DV_KERNELS(DV_KERNEL(struct blocks, "cpu", "f32", blocks_f32)));

/* The mean of the elements that are at most `window` away. */
struct smooth {
    const dv_tensor *x;
    int64_t window;
    dv_tensor *out;
};
static int smooth_f32(dv_context *ctx, const struct smooth *a)
{
    const int64_t n = a->x->shape[0];
    const float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        const int64_t low = i > a->window ? i - a->window : 0, high = n - 1 - i > a->window ? i + a->window : n - 1;
        double sum = 0;
        for (int64_t k = low; k <= high; k++)
            sum += x[k];
        ((float *)a->out->data)[i] = (float)(sum / (double)(high - low + 1));
    }
    return DV_OK;
}
DV_OPERATOR(smooth, struct smooth, (x, window, out), .schema = "smooth(Tensor x, int window=512) -> Tensor out",
    .contract = "x[n]:f32 -> out[n]:f32; 0 <= window <= 600",
    .kernels = DV_KERNELS(DV_KERNEL(struct smooth, "cpu", "f32", smooth_f32)));

/* The larger of each two elements; a rest is left out. */
struct pool {
    const dv_tensor *x;
    dv_tensor *out;
};
static int pool_f32(dv_context *ctx, const struct pool *a)
{
    const int64_t n = a->x->shape[1], half = a->out->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        for (int64_t j = 0; j < half; j++) {
            const float *x = (const float *)a->x->data + i * n + 2 * j;
            ((float *)a->out->data)[i * half + j] = x[0] > x[1] || isnan(x[0]) ? x[0] : x[1];
        }
    return DV_OK;
}
DV_OPERATOR(pool, struct pool, (x, out), .schema = "pool(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n//2]:f32; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct pool, "cpu", "f32", pool_f32)));

/* `size` elements of x at equal distances: where x is longer, most are not read. */
struct nearest {
    const dv_tensor *x;
    int64_t size;
    dv_tensor *out;
};
static int nearest_f32(dv_context *ctx, const struct nearest *a)
{
    const int64_t n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        for (int64_t j = 0; j < a->size; j++)
            ((float *)a->out->data)[i * a->size + j] = ((const float *)a->x->data)[i * n + j * n / a->size];
    return DV_OK;
}
DV_OPERATOR(nearest, struct nearest, (x, size, out), .schema = "nearest(Tensor x, int size) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m size]:f32; n > 0; size > 0; size <= 4096; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct nearest, "cpu", "f32", nearest_f32)));

/* The weights in the order of the scores: equal scores keep their order. */
struct ranked {
    const dv_tensor *scores, *weights;
    dv_tensor *out;
};
static int ranked_f32(dv_context *ctx, const struct ranked *a)
{
    const float *scores = a->scores->data, *weights = a->weights->data;
    const int64_t n = a->scores->shape[0];
    int64_t *order = malloc(((size_t)n + 1) * sizeof *order);
    if (!order)
        return dv_error(ctx, DV_ENOMEM, "no memory for %lld numbers", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;
        for (; at > 0 && scores[order[at - 1]] < scores[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = weights[order[i]];
    free(order);
    return DV_OK;
}
DV_OPERATOR(ranked, struct ranked, (scores, weights, out), .schema = "ranked(Tensor scores, Tensor weights) -> Tensor out",
    .contract = "scores[n]:f32, weights[n]:f32 -> out[n]:f32; n <= 2048",
    .kernels = DV_KERNELS(DV_KERNEL(struct ranked, "cpu", "f32", ranked_f32)));

/* Rows go where slots say, the last one last; a slot of -1 is none. */
struct scatter {
    const dv_tensor *rows, *slots;
    dv_tensor *cache;
};
static int scatter_f32(dv_context *ctx, const struct scatter *a)
{
    const size_t size = (size_t)a->rows->shape[1] * sizeof(float);
    const int64_t *slots = a->slots->data, n = a->cache->shape[0];
    for (int64_t i = 0; i < a->rows->shape[0]; i++)
        if (slots[i] < -1 || slots[i] >= n)
            return dv_error(ctx, DV_EINVAL, "slots[%lld] is %lld", (long long)i, (long long)slots[i]);
    for (int64_t i = 0; i < a->rows->shape[0]; i++)
        if (slots[i] >= 0)
            memcpy((char *)a->cache->data + (size_t)slots[i] * size, (const char *)a->rows->data + (size_t)i * size, size);
    return DV_OK;
}
DV_OPERATOR(scatter, struct scatter, (rows, slots, cache), .schema = "scatter(Tensor rows, Tensor slots, Tensor(a!) cache) -> ()",
    .contract = "rows[m d]:f32, slots[m]:i64, cache[n d]:f32; -1 <= slots.values < n",
    .kernels = DV_KERNELS(DV_KERNEL(struct scatter, "cpu", "f32", scatter_f32)));

/* How many bounds are not above each number. */
struct place {
    const dv_tensor *bounds, *x;
    dv_tensor *out;
};
static int place_f32(dv_context *ctx, const struct place *a)
{
    const float *bounds = a->bounds->data, *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        int64_t low = 0, high = a->bounds->shape[0];
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (bounds[middle] <= x[i])
                low = middle + 1;
            else
                high = middle;
        }
        ((int64_t *)a->out->data)[i] = low;
    }
    return DV_OK;
}
DV_OPERATOR(place, struct place, (bounds, x, out), .schema = "place(Tensor bounds, Tensor x) -> Tensor out",
    .contract = "bounds[n]:f32, x[m]:f32 -> out[m]:i64; sorted(bounds); parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct place, "cpu", "f32", place_f32)));

/* n bits of the bytes of each row: of the last byte there may be only one. */
struct bits {
    const dv_tensor *packed;
    int64_t n;
    dv_tensor *out;
};
static int bits_u8(dv_context *ctx, const struct bits *a)
{
    const int64_t bytes = a->packed->shape[1];
    (void)ctx;
    for (int64_t r = 0; r < a->packed->shape[0]; r++)
        for (int64_t i = 0; i < a->n; i++)
            ((uint8_t *)a->out->data)[r * a->n + i] = ((const uint8_t *)a->packed->data)[r * bytes + i / 8] >> i % 8 & 1;
    return DV_OK;
}
DV_OPERATOR(bits, struct bits, (packed, n, out), .schema = "bits(Tensor packed, int n) -> Tensor out",
    .contract = "packed[m ceildiv(n, 8)]:u8 -> out[m n]:bool; n >= 0; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct bits, "cpu", NULL, bits_u8)));

/* Rows in steps of a scale for each group, and how many numbers were cut off. */
struct steps {
    const dv_tensor *x, *scale;
    int64_t group;
    dv_tensor *out, *cut;
};
static int steps_f32(dv_context *ctx, const struct steps *a)
{
    const int64_t m = a->x->shape[0], k = a->x->shape[1], groups = a->scale->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        int32_t *cut = (int32_t *)a->cut->data + i;
        *cut = 0;
        for (int64_t j = 0; j < k; j++) {
            const float x = rintf(
                ((const float *)a->x->data)[i * k + j] / ((const float *)a->scale->data)[i * groups + j / a->group]);
            *cut += !(x >= -128 && x <= 127);
            ((int8_t *)a->out->data)[i * k + j] = (int8_t)(isnan(x) ? 0 : fmaxf(-128, fminf(127, x)));
        }
    }
    return DV_OK;
}
DV_OPERATOR(steps, struct steps, (x, scale, group, out, cut),
    .schema = "steps(Tensor x, Tensor scale, int group) -> (Tensor out, Tensor cut)",
    .contract = "x[m k]:f32, scale[m ceildiv(k, group)]:f32 -> out[m k]:i8, cut[m]:i32; group > 0; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct steps, "cpu", "f32", steps_f32)));

/* The contract calls the hint unused, and so it is. */
struct copied {
    const dv_tensor *x, *lengths;
    int64_t hint;
    dv_tensor *out;
};
static int copied_f32(dv_context *ctx, const struct copied *a)
{
    (void)ctx;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * sizeof(float));
    return DV_OK;
}
DV_OPERATOR(copied, struct copied, (x, lengths, hint, out),
    .schema = "copied(Tensor x, Tensor lengths, int hint=0) -> Tensor out",
    .contract = "x[n]:f32, lengths[m]:i32 -> out[n]:f32; unused(hint, lengths)",
    .kernels = DV_KERNELS(DV_KERNEL(struct copied, "cpu", "f32", copied_f32)));

DV_LIBRARY(unreferenced, &dv_op_blocks, &dv_op_smooth, &dv_op_pool, &dv_op_nearest, &dv_op_ranked, &dv_op_scatter, &dv_op_place,
    &dv_op_bits, &dv_op_steps, &dv_op_copied);
