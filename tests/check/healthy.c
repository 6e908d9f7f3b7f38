/* Correct operators with behaviour that a checker might take for a fault. */
#define _GNU_SOURCE
#include <dovetail_op.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A table that is made once and kept; threads that make it at the same time have one of the two. */
struct one {
    const dv_tensor *x;
    dv_tensor *out;
};
static int table_kept(dv_context *ctx, const struct one *a)
{
    static float *_Atomic kept;
    const float *x = a->x->data;
    float *out = a->out->data, *table = atomic_load(&kept), *none = NULL;
    if (!table) {
        if (!(table = malloc(256 * sizeof *table)))
            return dv_error(ctx, DV_ENOMEM, "out of memory");
        for (int i = 0; i < 256; i++)
            table[i] = (float)i;
        if (!atomic_compare_exchange_strong(&kept, &none, table)) {
            free(table);
            table = none;
        }
    }
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = x[i] + table[(uint64_t)i % 256];
    return DV_OK;
}
DV_OPERATOR(table, struct one, (x, out), .schema = "table(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", table_kept)));

/* Indices are checked, and wrong ones are refused. */
struct pick {
    const dv_tensor *table, *ids;
    dv_tensor *out;
};
static int pick_any(dv_context *ctx, const struct pick *a)
{
    const float *table = a->table->data;
    const int64_t *ids = a->ids->data, m = a->table->shape[0];
    float *out = a->out->data;
    for (int64_t i = 0; i < a->ids->shape[0]; i++) {
        if (ids[i] < 0 || ids[i] >= m)
            return dv_error(ctx, DV_EINVAL, "id %lld is outside of 0 to %lld", (long long)ids[i], (long long)m);
        out[i] = table[ids[i]];
    }
    return DV_OK;
}
DV_OPERATOR(pick, struct pick, (table, ids, out), .schema = "pick(Tensor table, Tensor ids) -> Tensor out",
    .contract = "table[m]:T, ids[n]:i64 -> out[n]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct pick, "cpu", "f32", pick_any)));

/* Or the contract declares their range: then the kernel need not check them. */
static int pick_declared_any(dv_context *ctx, const struct pick *a)
{
    const float *table = a->table->data;
    const int64_t *ids = a->ids->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < a->ids->shape[0]; i++)
        out[i] = table[ids[i]];
    return DV_OK;
}
DV_OPERATOR(pick_declared, struct pick, (table, ids, out), .schema = "pick_declared(Tensor table, Tensor ids) -> Tensor out",
    .contract = "table[m]:T, ids[n]:i64 -> out[n]:T; T in f32; ids.values >= 0; ids.values < m",
    .kernels = DV_KERNELS(DV_KERNEL(struct pick, "cpu", "f32", pick_declared_any)));

/* Only the kernel knows how many elements the result has. */
static int positive_any(dv_context *ctx, const struct one *a)
{
    const float *x = a->x->data;
    int64_t n = 0, k = 0;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        n += x[i] > 0;
    const int status = dv_set_output(ctx, a->out, a->x->dtype, 1, &n);
    if (status)
        return status;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        if (x[i] > 0)
            ((float *)a->out->data)[k++] = x[i];
    return DV_OK;
}
DV_OPERATOR(positive, struct one, (x, out), .schema = "positive(Tensor x) -> Tensor out",
    .contract = "x[n]:T -> out[u]:T; T in f32; u unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", positive_any)));

/* Writes some elements of what it may write, with strides. */
struct set {
    dv_tensor *x;
    int64_t at;
};
static int set_any(dv_context *ctx, const struct set *a)
{
    (void)ctx;
    if (a->at < a->x->shape[0])
        ((float *)a->x->data)[a->at * a->x->strides[0]] = 7;
    return DV_OK;
}
DV_OPERATOR(set, struct set, (x, at), .schema = "set(Tensor(a!) x, int at) -> ()",
    .contract = "x[n]:T; T in f32; at >= 0; strided(x)", .kernels = DV_KERNELS(DV_KERNEL(struct set, "cpu", "f32", set_any)));

/* Gives another number in each call, as its tag declares. */
static int noise_any(dv_context *ctx, const struct one *a)
{
    uint64_t seed, offset;
    const int status = dv_random(ctx, NULL, (uint64_t)dv_numel(a->out), &seed, &offset);
    for (int64_t i = 0, n = dv_numel(a->out); i < n && !status; i++)
        ((float *)a->out->data)[i] = (float)((seed ^ (offset + (uint64_t)i)) % 1000);
    return status;
}
DV_OPERATOR(noise, struct one, (x, out), .schema = "noise(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; T in f32",
    .tags = "nondeterministic_seeded", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", noise_any)));

/* Allocates memory of odd sizes, also of size 0. */
static int scratch_any(dv_context *ctx, const struct one *a)
{
    const size_t n = (size_t)dv_numel(a->x);
    float *all = dv_alloc(ctx, n * sizeof *all, 4), *more = calloc(n, sizeof *more), *large = realloc(NULL, 3 * n + 4);
    if (!all || (n && !more) || !large) {
        free(more);
        free(large);
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    }
    large[0] = 0;
    memcpy(all, a->x->data, n * sizeof *all);
    for (size_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = all[i] + more[i];
    free(more);
    free(large);
    return DV_OK;
}
DV_OPERATOR(scratch, struct one, (x, out), .schema = "scratch(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", scratch_any)));

/* Costs: sums of products are two operations each; an exponential is many or one, as one likes. */
struct costs {
    const dv_tensor *a, *b;
    dv_tensor *out;
};
static int dot(dv_context *ctx, const struct costs *s)
{
    const float *a = s->a->data, *b = s->b->data;
    float lanes[8] = { 0 };
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(s->a); i < n; i++)
        lanes[i % 8] += a[i] * b[i];
    *(float *)s->out->data = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
    return DV_OK;
}
DV_OPERATOR(dot, struct costs, (a, b, out), .schema = "dot(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[n]:f32, b[n]:f32 -> out[]:f32; sum(n); flops = 2*n; bytes = 8*n + 4",
    .kernels = DV_KERNELS(DV_KERNEL(struct costs, "cpu", "f32", dot)));

static int exponentials(dv_context *ctx, const struct one *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        float term = 1, sum = 1;
        for (int k = 1; k < 20; k++)
            sum += term *= x[i] / (float)k;
        out[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(exponentials, struct one, (x, out), .schema = "exponentials(Tensor x) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; flops = numel(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", exponentials)));

/* ---- Each beside a reference, so that values are compared as well ---- */

#define TWO_ROWS(S, DTYPES, NAME) \
    DV_KERNELS(DV_KERNEL(S, "cpu", DTYPES, NAME), DV_KERNEL(S, "cpu", DTYPES, NAME##_reference, .flags = DV_KERNEL_REFERENCE))

/* A cache of keys: all slots are checked before the first is written, less than zero is not kept, and of equal ones the last
 * counts. */
struct keep {
    dv_tensor *cache;
    const dv_tensor *keys, *slots;
};
static int keep_some(dv_context *ctx, const struct keep *a)
{
    const int64_t n = a->cache->shape[0], t = a->slots->shape[0], *slots = a->slots->data;
    const size_t row = (size_t)a->cache->shape[1] * sizeof(float);
    for (int64_t i = 0; i < t; i++)
        if (slots[i] >= n)
            return dv_error(ctx, DV_EINVAL, "slot %lld is past the last of %lld", (long long)slots[i], (long long)n);
    for (int64_t i = 0; i < t; i++)
        if (slots[i] >= 0)
            memcpy((char *)a->cache->data + (size_t)slots[i] * row, (const char *)a->keys->data + (size_t)i * row, row);
    return DV_OK;
}
static int keep_some_reference(dv_context *ctx, const struct keep *a)
{
    const int64_t n = a->cache->shape[0], d = a->cache->shape[1], *slots = a->slots->data;
    for (int64_t i = 0; i < a->slots->shape[0]; i++)
        if (slots[i] >= n)
            return dv_error(ctx, DV_EINVAL, "slot %lld is past the last of %lld", (long long)slots[i], (long long)n);
    for (int64_t k = 0; k < a->slots->shape[0] * d; k++)
        if (slots[k / d] >= 0)
            ((float *)a->cache->data)[slots[k / d] * d + k % d] = ((const float *)a->keys->data)[k];
    return DV_OK;
}
DV_OPERATOR(keep, struct keep, (cache, keys, slots), .schema = "keep(Tensor(a!) cache, Tensor keys, Tensor slots) -> ()",
    .contract = "cache[n d]:f32, keys[t d]:f32, slots[t]:i64", .kernels = TWO_ROWS(struct keep, "f32", keep_some));

/* Indices less than zero count from the end; two types of them; everything else is refused. */
struct rows {
    const dv_tensor *table, *ids;
    dv_tensor *out;
};
static int64_t id_at(const dv_tensor *ids, int64_t i)
{
    return ids->dtype.bits == 64 ? ((const int64_t *)ids->data)[i] : ((const int32_t *)ids->data)[i];
}
static int rows_any(dv_context *ctx, const struct rows *a)
{
    const int64_t m = a->table->shape[0], n = dv_numel(a->ids);
    const size_t row = (size_t)(a->table->shape[1] * a->table->dtype.bits / 8);
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = id_at(a->ids, i);
        if (id < -m || id >= m)
            return dv_error(ctx, DV_EINVAL, "id %lld is outside of %lld to %lld", (long long)id, (long long)-m, (long long)m - 1);
        memcpy((char *)a->out->data + (size_t)i * row, (const char *)a->table->data + (size_t)(id < 0 ? id + m : id) * row, row);
    }
    return DV_OK;
}
static int rows_any_reference(dv_context *ctx, const struct rows *a)
{
    const int64_t m = a->table->shape[0], d = a->table->shape[1];
    for (int64_t k = 0, n = dv_numel(a->out); k < n; k++) {
        const int64_t id = id_at(a->ids, k / d);
        if (id < -m || id >= m)
            return dv_error(ctx, DV_EINVAL, "id %lld is out of range", (long long)id);
        const uint32_t t = dv_dtype_key(a->table->dtype);
        dv_put(a->out->data, k, t, dv_get(a->table->data, (id + m) % m * d + k % d, t));
    }
    for (int64_t i = 0, n = d ? 0 : dv_numel(a->ids); i < n; i++)
        if (id_at(a->ids, i) < -m || id_at(a->ids, i) >= m)
            return dv_error(ctx, DV_EINVAL, "id %lld is out of range", (long long)id_at(a->ids, i));
    return DV_OK;
}
DV_OPERATOR(rows, struct rows, (table, ids, out), .schema = "rows(Tensor table, Tensor ids) -> Tensor out",
    .contract = "table[m d]:T, ids[*k]:i32|i64 -> out[*k d]:T; T in f32 f16 bf16",
    .kernels = TWO_ROWS(struct rows, "f32 f16 bf16", rows_any));

/* In place, with any strides, and NaN stays NaN. */
struct rectify { dv_tensor *x; };
static int rectify_any(dv_context *ctx, const struct rectify *a)
{
    const dv_tensor *x = a->x;
    (void)ctx;
    for (int64_t i = 0; i < x->shape[0]; i++)
        for (int64_t k = 0; k < x->shape[1]; k++) {
            float *at = (float *)x->data + i * x->strides[0] + k * x->strides[1];
            *at = *at < 0 ? 0 : *at;
        }
    return DV_OK;
}
DV_OPERATOR(rectify, struct rectify, (x), .schema = "rectify(Tensor(a!) x) -> ()",
    .contract = "x[m n]:f32; strided(x); parallel(m)", .native = "x: relu(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct rectify, "cpu", "f32", rectify_any)));

/* Three results; of equal ones the first, and NaN counts as nothing. */
struct extremes {
    const dv_tensor *x;
    dv_tensor *low, *high, *where;
};
static int extremes_of(const struct extremes *a, int64_t lanes)
{
    const int64_t n = a->x->shape[1];
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        const float *x = (const float *)a->x->data + i * n;
        float low = x[0] == x[0] ? x[0] : 0, high = low;
        int64_t where = 0;
        for (int64_t lane = 0; lane < lanes; lane++)
            for (int64_t k = lane; k < n; k += lanes) {
                low = x[k] < low ? x[k] : low;
                if (x[k] > high || (x[k] == high && k < where))
                    high = x[k], where = k;
            }
        ((float *)a->low->data)[i] = low;
        ((float *)a->high->data)[i] = high;
        ((int64_t *)a->where->data)[i] = where;
    }
    return DV_OK;
}
static int extremes_lanes(dv_context *ctx, const struct extremes *a) { return (void)ctx, extremes_of(a, 4); }
static int extremes_lanes_reference(dv_context *ctx, const struct extremes *a) { return (void)ctx, extremes_of(a, 1); }
DV_OPERATOR(extremes, struct extremes, (x, low, high, where),
    .schema = "extremes(Tensor x) -> (Tensor low, Tensor high, Tensor where)",
    .contract = "x[m n]:f32 -> low[m]:f32, high[m]:f32, where[m]:i64; n > 0; parallel(m)",
    .kernels = TWO_ROWS(struct extremes, "f32", extremes_lanes));

/* What may be None. */
struct affine {
    const dv_tensor *x, *weight, *bias;
    double scale;
    dv_tensor *out;
};
static int affine_any(dv_context *ctx, const struct affine *a)
{
    const float *x = a->x->data, *weight = a->weight ? a->weight->data : NULL, *bias = a->bias ? a->bias->data : NULL;
    const int64_t n = dv_numel(a->x), d = a->x->shape[a->x->ndim - 1];
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        const float y = x[i] * (float)a->scale * (weight ? weight[i % d] : 1);
        ((float *)a->out->data)[i] = bias ? y + bias[i % d] : y;
    }
    return DV_OK;
}
DV_OPERATOR(affine, struct affine, (x, weight, bias, scale, out),
    .schema = "affine(Tensor x, Tensor? weight=None, Tensor? bias=None, float scale=1.0) -> Tensor out",
    .contract = "x[*s d]:f32, weight[d]:f32, bias[d]:f32 -> out[*s d]:f32; parallel(*s)",
    .native = "if(present(weight), x * weight, x) * scale + if(present(bias), bias, zeros_like(x))",
    .kernels = DV_KERNELS(DV_KERNEL(struct affine, "cpu", "f32", affine_any)));

/* Sums of columns in a workspace that is larger than it need be; a loop in pieces. */
struct columns {
    const dv_tensor *x;
    dv_tensor *out;
};
struct columns_part {
    const float *x;
    double *sums;
    float *out;
    int64_t m, n;
};
static int columns_piece(void *arg, int64_t begin, int64_t end)
{
    const struct columns_part *p = arg;
    for (int64_t k = begin; k < end; k++)
        p->sums[k] = 0;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = begin; k < end; k++)
            p->sums[k] += (double)p->x[i * p->n + k];
    for (int64_t k = begin; k < end; k++)
        p->out[k] = (float)p->sums[k];
    return DV_OK;
}
static int columns_any(dv_context *ctx, const struct columns *a)
{
    struct columns_part p = { a->x->data, ctx->workspace, a->out->data, a->x->shape[0], a->x->shape[1] };
    return dv_parallel_for(ctx, 0, p.n, 3, columns_piece, &p);
}
DV_OPERATOR(columns, struct columns, (x, out), .schema = "columns(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[n]:f32; workspace = 8*n + 64; parallel(n); sum(m)", .native = "sum(x, [0])",
    .kernels = DV_KERNELS(DV_KERNEL(struct columns, "cpu", "f32", columns_any)));

/* Bytes with a scale for each row; rows of zeros, NaN and infinities have a meaning, too. */
struct quantise {
    const dv_tensor *x;
    dv_tensor *out, *scale;
};
static int quantise_rows(dv_context *ctx, const struct quantise *a)
{
    const int64_t n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        const float *x = (const float *)a->x->data + i * n;
        float most = 0;
        for (int64_t k = 0; k < n; k++) {
            const float size = x[k] < 0 ? -x[k] : x[k];
            most = size > most && size < 1e30f ? size : most;
        }
        const float scale = most > 1e-30f ? most / 127 : 1;
        for (int64_t k = 0; k < n; k++) {
            const float v = x[k] / scale, clamped = v > 127 ? 127 : v >= -127 ? v : v < -127 ? -127 : 0;
            ((int8_t *)a->out->data)[i * n + k] = (int8_t)(int32_t)(clamped + (clamped < 0 ? -0.5f : 0.5f));
        }
        ((float *)a->scale->data)[i] = scale;
    }
    return DV_OK;
}
static int quantise_rows_reference(dv_context *ctx, const struct quantise *a) { return quantise_rows(ctx, a); }
DV_OPERATOR(quantise, struct quantise, (x, out, scale), .schema = "quantise(Tensor x) -> (Tensor out, Tensor scale)",
    .contract = "x[m n]:f32 -> out[m n]:i8, scale[m]:f32; parallel(m)",
    .kernels = TWO_ROWS(struct quantise, "f32", quantise_rows));

/* Halves, added up in f32 in eight lanes. */
struct half_dot {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int half_dot_lanes(dv_context *ctx, const struct half_dot *a)
{
    const int64_t n = a->x->shape[1];
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        float lanes[8] = { 0 }, sum = 0;
        for (int64_t k = 0; k < n; k++)
            lanes[k % 8] += dv_get(a->x->data, i * n + k, t) * dv_get(a->y->data, k, t);
        for (int l = 0; l < 8; l++)
            sum += lanes[l];
        dv_put(a->out->data, i, t, sum);
    }
    return DV_OK;
}
static int half_dot_lanes_reference(dv_context *ctx, const struct half_dot *a)
{
    const int64_t n = a->x->shape[1];
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += dv_get_f64(a->x->data, i * n + k, t) * dv_get_f64(a->y->data, k, t);
        dv_put(a->out->data, i, t, (float)sum);
    }
    return DV_OK;
}
DV_OPERATOR(half_dot, struct half_dot, (x, y, out), .schema = "half_dot(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[m n]:T, y[n]:T -> out[m]:T; T in f16 bf16; parallel(m)",
    .kernels = TWO_ROWS(struct half_dot, "f16 bf16", half_dot_lanes));

/* A word, a number and a bound: any shift is taken around the end, also the largest. */
struct shift {
    const dv_tensor *x;
    int64_t by;
    dv_string mode;
    double fill;
    dv_tensor *out;
};
static int shift_any(dv_context *ctx, const struct shift *a)
{
    const int64_t n = dv_numel(a->x);
    const bool around = a->mode.size == 6;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = i - a->by % n; /* within -n to 2n */
        const bool inside = around || (a->by > -n && a->by < n && from >= 0 && from < n);
        ((float *)a->out->data)[i] = inside ? ((const float *)a->x->data)[(from + n) % n] : (float)a->fill;
    }
    return DV_OK;
}
static int shift_any_reference(dv_context *ctx, const struct shift *a)
{
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = (float)a->fill;
    for (int64_t i = 0; i < n; i++) {
        if (!strcmp(a->mode.data, "around"))
            ((float *)a->out->data)[((i + a->by % n) % n + n) % n] = ((const float *)a->x->data)[i];
        else if (a->by > -n && a->by < n && i + a->by >= 0 && i + a->by < n)
            ((float *)a->out->data)[i + a->by] = ((const float *)a->x->data)[i];
    }
    return DV_OK;
}
DV_OPERATOR(shift, struct shift, (x, by, mode, fill, out),
    .schema = "shift(Tensor x, int by, str mode=\"around\", float fill=0.0) -> Tensor out",
    .contract = "x[n]:f32 -> out[n]:f32; mode in \"around\" \"fill\"", .kernels = TWO_ROWS(struct shift, "f32", shift_any));

/* A list of tensors of several sizes, which may be empty, one behind the other. */
struct joined {
    dv_tensors xs;
    dv_tensor *out;
};
static int joined_any(dv_context *ctx, const struct joined *a)
{
    char *to = a->out->data;
    (void)ctx;
    for (size_t i = 0; i < a->xs.size; i++) {
        const size_t bytes = (size_t)dv_numel(a->xs.data[i]) * sizeof(float);
        memcpy(to, a->xs.data[i]->data, bytes);
        to += bytes;
    }
    return DV_OK;
}
DV_OPERATOR(joined, struct joined, (xs, out), .schema = "joined(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[n{i}]:f32 -> out[total(n)]:f32; len(xs) >= 1", .native = "cat(xs, 0)",
    .kernels = DV_KERNELS(DV_KERNEL(struct joined, "cpu", "f32", joined_any)));

/* Lists in pairs; the last one is there in one case only. */
struct adamw {
    dv_mut_tensors params;
    dv_tensors grads;
    dv_mut_tensors means, squares, most;
    double lr;
    bool amsgrad;
};
static int adamw_any(dv_context *ctx, const struct adamw *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->params.size; k++)
        for (int64_t i = 0, n = dv_numel(a->params.data[k]); i < n; i++) {
            const float g = ((const float *)a->grads.data[k]->data)[i];
            float *m = (float *)a->means.data[k]->data + i, *v = (float *)a->squares.data[k]->data + i, root = *v;
            *m += (g - *m) * 0.1f;
            *v += (g * g - *v) * 0.001f;
            root = *v;
            if (a->amsgrad) {
                float *most = (float *)a->most.data[k]->data + i;
                *most = root = *v > *most ? *v : *most;
            }
            ((float *)a->params.data[k]->data)[i] -= (float)a->lr * *m / (sqrtf(root < 0 ? 0 : root) + 1e-8f);
        }
    return DV_OK;
}
DV_OPERATOR(adamw, struct adamw, (params, grads, means, squares, most, lr, amsgrad),
    .schema = "adamw(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] means, Tensor(c!)[] squares, Tensor(d!)[] most, float lr, "
              "bool amsgrad) -> ()",
    .contract = "params{i}[*s{i}]:f32, grads{i}[*s{i}]:f32, means{i}[*s{i}]:f32, squares{i}[*s{i}]:f32;"
                "when amsgrad: most{i}[*s{i}]:f32 / else: most{i}[...], len(most) == 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct adamw, "cpu", "f32", adamw_any)));

/* Refuses what has no answer, in the words of its contents: NaN has no rank, and such a matrix no factor. */
static int highest_any(dv_context *ctx, const struct one *a)
{
    const float *x = a->x->data;
    int64_t where = 0;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        if (x[i] != x[i])
            return dv_error(ctx, DV_EINVAL, "element %lld is NaN, which has no rank", (long long)i);
        where = x[i] > x[where] ? i : where;
    }
    *(int64_t *)a->out->data = where;
    return DV_OK;
}
DV_OPERATOR(highest, struct one, (x, out), .schema = "highest(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[]:i64; n > 0", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", highest_any)));
static int factor_any(dv_context *ctx, const struct one *a)
{
    const int64_t n = a->x->shape[0];
    const float *x = a->x->data;
    float *out = a->out->data;
    memset(out, 0, (size_t)(n * n) * sizeof *out);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k <= i; k++) {
            double sum = (double)x[i * n + k];
            for (int64_t j = 0; j < k; j++)
                sum -= (double)out[i * n + j] * (double)out[k * n + j];
            if (i == k && !(sum > 0))
                return dv_error(ctx, DV_EINVAL, "the matrix is not positive definite");
            out[i * n + k] = (float)(i == k ? sqrt(sum) : sum / (double)out[k * n + k]);
        }
    return DV_OK;
}
DV_OPERATOR(factor, struct one, (x, out), .schema = "factor(Tensor x) -> Tensor out", .contract = "x[n n]:f32 -> out[n n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", factor_any)));

/* Where numbers belong in an ascending list; another list is refused. */
struct placed {
    const dv_tensor *x, *list;
    dv_tensor *out;
};
static int placed_any(dv_context *ctx, const struct placed *a)
{
    const double *const list = a->list->data, *const x = a->x->data;
    const int64_t n = a->list->shape[0];
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(list[i]) || (i && list[i] <= list[i - 1]))
            return dv_error(ctx, DV_EINVAL, "argument 'list': expected finite, ascending numbers");
    for (int64_t i = 0, m = dv_numel(a->x); i < m; i++) {
        int64_t at = 0;
        while (at < n && list[at] < x[i])
            at++;
        ((int64_t *)a->out->data)[i] = at;
    }
    return DV_OK;
}
DV_OPERATOR(placed, struct placed, (x, list, out), .schema = "placed(Tensor x, Tensor list) -> Tensor out",
    .contract = "x[*s]:f64, list[n]:f64 -> out[*s]:i64; n > 0; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct placed, "cpu", NULL, placed_any)));

/* Counts its calls under a lock, and lets no signal in meanwhile. */
static int counting_any(dv_context *ctx, const struct one *a)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int64_t calls;
    sigset_t all, before;
    (void)ctx;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&lock);
    calls++;
    pthread_mutex_unlock(&lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = 2 * ((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(counting, struct one, (x, out), .schema = "counting(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", counting_any)));

/* The hyperbolic tangent by a rational function, as exact as it declares. */
static int rational(dv_context *ctx, const struct one *a)
{
    (void)ctx;
    const uint32_t dtype = dv_dtype_key(a->x->dtype);
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const double x = dv_get_f64(a->x->data, i, dtype), c = x > 4.97 ? 4.97 : x < -4.97 ? -4.97 : x, s = c * c;
        const double y = c * (135135 + s * (17325 + s * (378 + s))) / (135135 + s * (62370 + s * (3150 + 28 * s)));
        dv_put_f64(a->out->data, i, dtype, isnan(x) ? x : i % 8 ? y : y * 1.0002);
    }
    return DV_OK;
}
DV_OPERATOR(tangent, struct one, (x, out), .schema = "tangent(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; parallel(*s); T in f32 f64 bf16; rtol = 5e-4", .native = "tanh(x)",
    .gradient = "x: grad * (1 - result * result)", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32 f64 bf16", rational)));

/* One tensor may lie in the memory of the other: in which order it is copied depends on where. */
struct move_into {
    dv_tensor *to;
    const dv_tensor *from;
};
static int move_any(dv_context *ctx, const struct move_into *a)
{
    float *to = a->to->data;
    const float *from = a->from->data;
    const int64_t n = dv_numel(a->to);
    (void)ctx;
    for (int64_t i = 0; i < n && to <= from; i++)
        to[i] = from[i] / 2;
    for (int64_t i = n; i-- > 0 && to > from;)
        to[i] = from[i] / 2;
    return DV_OK;
}
DV_OPERATOR(move_into, struct move_into, (to, from), .schema = "move_into(Tensor(a!) to, Tensor(a) from) -> ()",
    .contract = "to[m n]:f32, from[m n]:f32", .native = "to: from / 2",
    .kernels = DV_KERNELS(DV_KERNEL(struct move_into, "cpu", "f32", move_any)));

/* Pieces of a loop count in the same memory, in turn. */
struct tally {
    const dv_tensor *x;
    atomic_llong counts[4];
};
static int tally_piece(void *arg, int64_t begin, int64_t end)
{
    struct tally *t = arg;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&t->counts[((const uint8_t *)t->x->data)[i] % 4], 1);
    return DV_OK;
}
static int tally_any(dv_context *ctx, const struct one *a)
{
    struct tally t = { .x = a->x };
    const int status = dv_parallel_for(ctx, 0, dv_numel(a->x), 300, tally_piece, &t);
    for (int k = 0; k < 4; k++)
        ((int64_t *)a->out->data)[k] = atomic_load(&t.counts[k]);
    return status;
}
DV_OPERATOR(tally, struct one, (x, out), .schema = "tally(Tensor x) -> Tensor out", .contract = "x[*s]:u8 -> out[4]:i64",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "u8", tally_any)));

/* Pieces of a loop know where to put what they find, since another loop over the same pieces has counted it: no two begin in one
 * stretch of the grain. */
enum { GRAIN = 700 };
struct places {
    const float *x;
    int64_t *found, *before; /* by begin / GRAIN */
};
static int places_counted(void *arg, int64_t begin, int64_t end)
{
    const struct places *p = arg;
    for (int64_t i = begin; i < end; i++)
        p->before[begin / GRAIN] += p->x[i] < 0;
    return DV_OK;
}
static int places_put(void *arg, int64_t begin, int64_t end)
{
    const struct places *p = arg;
    for (int64_t i = begin, at = p->before[begin / GRAIN]; i < end; i++)
        if (p->x[i] < 0)
            p->found[at++] = i;
    return DV_OK;
}
static int places_any(dv_context *ctx, const struct one *a)
{
    const int64_t n = dv_numel(a->x), stretches = n / GRAIN + 1;
    struct places p = { a->x->data, dv_alloc(ctx, (size_t)n * sizeof(int64_t) + 1, 64),
        dv_alloc(ctx, (size_t)stretches * sizeof(int64_t), 64) };
    int64_t all = 0;
    if (!p.found || !p.before)
        return DV_ENOMEM;
    memset(p.before, 0, (size_t)stretches * sizeof(int64_t));
    int status = dv_parallel_for(ctx, 0, n, GRAIN, places_counted, &p);
    for (int64_t k = 0; k < stretches; k++) {
        const int64_t here = p.before[k];
        p.before[k] = all;
        all += here;
    }
    status = status ? status : dv_parallel_for(ctx, 0, n, GRAIN, places_put, &p);
    status = status ? status : dv_set_output(ctx, a->out, dv_dtype_from_key(DV_DTYPE_i64), 1, &all);
    if (!status && all)
        memcpy(a->out->data, p.found, (size_t)all * sizeof(int64_t));
    return status;
}
DV_OPERATOR(places, struct one, (x, out), .schema = "places(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[k]:i64; k unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", places_any)));

/* Products of complex numbers: which NaN comes of infinities is the compiler's choice, in whole vectors and in what is left. */
struct conjugated {
    const dv_tensor *x, *y;
    bool conjugate;
    dv_tensor *out;
};
static int conjugated_c64(dv_context *ctx, const struct conjugated *a)
{
    const float *x = a->x->data, *y = a->y->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        const float part = a->conjugate ? -y[2 * i + 1] : y[2 * i + 1];
        out[2 * i] = x[2 * i] * y[2 * i] - x[2 * i + 1] * part;
        out[2 * i + 1] = x[2 * i] * part + x[2 * i + 1] * y[2 * i];
    }
    return DV_OK;
}
DV_OPERATOR(conjugated, struct conjugated, (x, y, conjugate, out),
    .schema = "conjugated(Tensor x, Tensor y, bool conjugate=False) -> Tensor out",
    .contract = "x[*s]:c64, y[*s]:c64 -> out[*s]:c64; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct conjugated, "cpu", NULL, conjugated_c64, .split = 64)));

/* Medians, sorted in memory of the pieces: a loop for each column, so a call has many of them, and each in pieces. */
struct medians {
    const dv_tensor *x;
    dv_string of;
    dv_tensor *out;
};
struct median_of {
    const struct medians *a;
    int64_t line, lines, n, step;
};
static int median_piece(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct median_of *m = arg;
    float *sorted = scratch;
    for (int64_t line = m->line + begin; line < m->line + end; line++) {
        const float *x = (const float *)m->a->x->data + (m->step == 1 ? line * m->n : line);
        for (int64_t j = 0; j < m->n; j++) {
            int64_t at = j;
            for (; at > 0 && sorted[at - 1] > x[j * m->step]; at--)
                sorted[at] = sorted[at - 1];
            sorted[at] = x[j * m->step];
        }
        ((float *)m->a->out->data)[line] = sorted[(m->n - 1) / 2];
    }
    return DV_OK;
}
static int medians_f32(dv_context *ctx, const struct medians *a)
{
    const int64_t rows = a->x->shape[0], columns = a->x->shape[1];
    const bool of_rows = a->of.data[0] == 'r';
    struct median_of m = { a, 0, of_rows ? rows : columns, of_rows ? columns : rows, of_rows ? 1 : columns };
    int status = DV_OK;
    for (; m.line < m.lines && !status; m.line += 64)
        status = dv_parallel_scratch(
            ctx, 0, m.lines - m.line < 64 ? m.lines - m.line : 64, 1, (size_t)m.n * sizeof(float), median_piece, &m);
    return status;
}
DV_OPERATOR(medians, struct medians, (x, of, out), .schema = "medians(Tensor x, str of) -> Tensor out",
    .contract =
        "when of == \"rows\": x[m n]:f32, parallel(m), 0 < n <= 300, -1e30 < x.values < 1e30 -> out[m]:f32 / \"columns\": x[m "
        "n]:f32, parallel(n), 0 < m <= 300, -1e30 < x.values < 1e30 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct medians, "cpu", "f32", medians_f32)));

/* How many are positive, times a weight that is added each time: equal terms, whose roundings all go one way. */
struct penalty {
    const dv_tensor *x;
    dv_tensor *out;
};
static int penalty_f32(dv_context *ctx, const struct penalty *a)
{
    const int64_t n = a->x->shape[1];
    const float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        float sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += x[i * n + k] > 0 ? 0.1f : 0;
        ((float *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
static int penalty_f32_reference(dv_context *ctx, const struct penalty *a)
{
    const int64_t n = a->x->shape[1];
    const float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++) {
        int64_t count = 0;
        for (int64_t k = 0; k < n; k++)
            count += x[i * n + k] > 0;
        ((float *)a->out->data)[i] = (float)((double)count * (double)0.1f);
    }
    return DV_OK;
}
DV_OPERATOR(penalty, struct penalty, (x, out), .schema = "penalty(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m]:f32; parallel(m); sum(n)", .kernels = TWO_ROWS(struct penalty, "f32", penalty_f32));

DV_LIBRARY(healthy, &dv_op_medians, &dv_op_conjugated, &dv_op_placed, &dv_op_move_into, &dv_op_tally, &dv_op_places,
    &dv_op_tangent, &dv_op_highest, &dv_op_factor, &dv_op_counting, &dv_op_table, &dv_op_pick, &dv_op_pick_declared,
    &dv_op_positive, &dv_op_set, &dv_op_noise, &dv_op_scratch, &dv_op_dot, &dv_op_exponentials, &dv_op_keep, &dv_op_rows,
    &dv_op_rectify, &dv_op_extremes, &dv_op_affine, &dv_op_columns, &dv_op_quantise, &dv_op_half_dot, &dv_op_shift, &dv_op_joined,
    &dv_op_adamw, &dv_op_penalty);
