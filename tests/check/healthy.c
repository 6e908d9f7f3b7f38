/* What good operators do and a checker might take for a fault. */
#include <dovetail_op.h>
#include <stdlib.h>

/* A table that is made once and kept. */
struct one { const dv_tensor *x; dv_tensor *out; };
static int table_kept(dv_context *ctx, const struct one *a)
{
    static float *table;
    const float *x = a->x->data;
    float *out = a->out->data;
    if (!table) {
        if (!(table = malloc(256 * sizeof *table)))
            return dv_error(ctx, DV_ENOMEM, "out of memory");
        for (int i = 0; i < 256; i++)
            table[i] = (float)i;
    }
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = x[i] + table[(uint64_t)i % 256];
    return DV_OK;
}
DV_OPERATOR(table, struct one, (x, out), .schema = "table(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", table_kept)));

/* Indices are looked at, and refused. */
struct pick { const dv_tensor *table, *ids; dv_tensor *out; };
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
    .contract = "table[m]:T, ids[n]:i64 -> out[n]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct pick, "cpu", "f32", pick_any)));

/* Or they are declared: then the kernel need not look. */
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

/* How many there are only the kernel knows. */
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
    .contract = "x[n]:T -> out[u]:T; T in f32; u unbacked in 0..n", .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", positive_any)));

/* Writes some elements of what it may write, with strides. */
struct set { dv_tensor *x; int64_t at; };
static int set_any(dv_context *ctx, const struct set *a)
{
    (void)ctx;
    if (a->at < a->x->shape[0])
        ((float *)a->x->data)[a->at * a->x->strides[0]] = 7;
    return DV_OK;
}
DV_OPERATOR(set, struct set, (x, at), .schema = "set(Tensor(a!) x, int at) -> ()", .contract = "x[n]:T; T in f32; at >= 0; strided(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct set, "cpu", "f32", set_any)));

/* Another number in each call, and says so. */
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

/* Memory of its own of odd sizes, also none. */
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
DV_OPERATOR(scratch, struct one, (x, out), .schema = "scratch(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", scratch_any)));

/* Costs: sums of products are two operations each; an exponential is many or one, as one likes. */
struct costs { const dv_tensor *a, *b; dv_tensor *out; };
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
    .contract = "a[n]:f32, b[n]:f32 -> out[]:f32; sum(n); flops = 2*n; bytes = 8*n + 4", .kernels = DV_KERNELS(DV_KERNEL(struct costs, "cpu", "f32", dot)));

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
DV_OPERATOR(exponentials, struct one, (x, out), .schema = "exponentials(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; flops = numel(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", "f32", exponentials)));

DV_LIBRARY(healthy, &dv_op_table, &dv_op_pick, &dv_op_pick_declared, &dv_op_positive, &dv_op_set, &dv_op_noise, &dv_op_scratch, &dv_op_dot, &dv_op_exponentials);
