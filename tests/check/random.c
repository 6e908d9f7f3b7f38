/* Correct operators with random numbers that are few, are there twice on purpose, or are not taken in each call. */
#include <dovetail_random.h>
#include <time.h>

struct noise {
    const dv_tensor *x;
    double p;
    const dv_generator *generator;
    dv_tensor *out;
};
static float uniform(uint64_t seed, uint64_t at) { return dv_uniform_f32(dv_philox_at(seed, at)); }

struct job {
    const struct noise *a;
    uint64_t seed, offset;
};

/* All rows have one mask, and a piece is one row. */
static int locked_rows(void *arg, int64_t begin, int64_t end)
{
    const struct job *j = arg;
    const int64_t n = j->a->x->shape[1];
    for (int64_t i = begin * n; i < end * n; i++)
        ((float *)j->a->out->data)[i] = uniform(j->seed, j->offset + (uint64_t)(i % n)) < (float)j->a->p
            ? 0
            : ((const float *)j->a->x->data)[i];
    return DV_OK;
}
static int locked_any(dv_context *ctx, const struct noise *a)
{
    struct job j = { .a = a };
    const int status = dv_random(ctx, a->generator, (uint64_t)a->x->shape[1], &j.seed, &j.offset);
    return status ? status : dv_parallel_for(ctx, 0, a->x->shape[0], 1, locked_rows, &j);
}
DV_OPERATOR(locked, struct noise, (x, p, generator, out),
    .schema = "locked(Tensor x, float p=0.5, *, Generator? generator=None) -> Tensor out", .tags = "nondeterministic_seeded",
    .contract = "x[m n]:f32 -> out[m n]:f32; 0 <= p <= 1",
    .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f32", locked_any)));

/* Each piece has a sequence of its own: the numbers depend on how the loop is cut, which is the same in each call. */
static int in_sequences(void *arg, int64_t begin, int64_t end)
{
    const struct job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        uint32_t numbers[4];
        dv_philox(j->seed, (uint64_t)begin + 1, j->offset / 4 + (uint64_t)(i - begin), numbers);
        ((float *)j->a->out->data)[i] = ((const float *)j->a->x->data)[i] + (float)j->a->p * dv_uniform_f32(numbers[0]);
    }
    return DV_OK;
}
static int sequences_any(dv_context *ctx, const struct noise *a)
{
    struct job j = { .a = a };
    const int64_t n = dv_numel(a->x);
    const int status = dv_random(ctx, a->generator, 4 * (uint64_t)n, &j.seed, &j.offset);
    return status ? status : dv_parallel_for(ctx, 0, n, 300, in_sequences, &j);
}
DV_OPERATOR(sequences, struct noise, (x, p, generator, out),
    .schema = "sequences(Tensor x, float p=0.5, *, Generator? generator=None) -> Tensor out", .tags = "nondeterministic_seeded",
    .contract = "x[*s]:f32 -> out[*s]:f32; 0 <= p <= 1",
    .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f32", sequences_any)));

/* One number decides over all elements, of which some are the same again, and only some calls take it. The seed is a result. */
struct depth {
    const dv_tensor *x;
    double p;
    bool training;
    const dv_generator *generator;
    dv_tensor *out, *seeds, *kept;
};
static int depth_any(dv_context *ctx, const struct depth *a)
{
    const int64_t n = dv_numel(a->x);
    uint64_t seed = 0, offset = 0;
    const int status = a->training && a->p > 0 ? dv_random(ctx, a->generator, 1, &seed, &offset) : DV_OK;
    const bool kept = !a->training || a->p <= 0 || uniform(seed, offset) >= (float)a->p;
    for (int64_t i = 0; i < n && !status; i++) {
        ((float *)a->out->data)[i] = (float)(i % 8) + (kept ? ((const float *)a->x->data)[i] : 0);
        ((int64_t *)a->seeds->data)[i] = (int64_t)seed;
        ((bool *)a->kept->data)[i] = kept;
    }
    return status;
}
DV_OPERATOR(depth, struct depth, (x, p, training, generator, out, seeds, kept),
    .schema = "depth(Tensor x, float p=0.5, bool training=True, *, Generator? generator=None) -> "
              "(Tensor out, Tensor seeds, Tensor kept)",
    .tags = "nondeterministic_seeded", .contract = "x[*s]:f32 -> out[*s]:f32, seeds[*s]:i64, kept[*s]:bool; 0 <= p <= 1",
    .kernels = DV_KERNELS(DV_KERNEL(struct depth, "cpu", "f32", depth_any)));

/* True with a probability that is given. */
static int coins_any(dv_context *ctx, const struct noise *a)
{
    const int64_t n = dv_numel(a->x);
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    for (int64_t i = 0; i < n && !status; i++)
        ((bool *)a->out->data)[i] = uniform(seed, offset + (uint64_t)i) < ((const float *)a->x->data)[i];
    return status;
}
DV_OPERATOR(coins, struct noise, (x, p, generator, out),
    .schema = "coins(Tensor x, float p=0.5, *, Generator? generator=None) -> Tensor out", .tags = "nondeterministic_seeded",
    .contract = "x[*s]:f32 -> out[*s]:bool; x.values >= 0; x.values <= 1; parallel(*s); unused(p)",
    .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f32", coins_any, .split = 500)));

/* A permutation. */
static int shuffled_any(dv_context *ctx, const struct noise *a)
{
    const int64_t n = dv_numel(a->x);
    int64_t *out = a->out->data;
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    for (int64_t i = 0; i < n && !status; i++) {
        const int64_t k = dv_philox_at(seed, offset + (uint64_t)i) % (i + 1);
        out[i] = out[k];
        out[k] = i;
    }
    return status;
}
DV_OPERATOR(shuffled, struct noise, (x, p, generator, out),
    .schema = "shuffled(Tensor x, float p=0.5, *, Generator? generator=None) -> Tensor out", .tags = "nondeterministic_seeded",
    .contract = "x[n]:f32 -> out[n]:i64; unused(p)", .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f32", shuffled_any)));

/* Its numbers are not all of dv_random(), and its tag says so. */
static int timed_any(dv_context *ctx, const struct noise *a)
{
    const int64_t n = dv_numel(a->x);
    struct timespec now;
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    timespec_get(&now, TIME_UTC);
    for (int64_t i = 0; i < n && !status; i++)
        ((float *)a->out->data)[i] = uniform(seed ^ (uint64_t)now.tv_nsec, offset + (uint64_t)i);
    return status;
}
DV_OPERATOR(timed, struct noise, (x, p, generator, out),
    .schema = "timed(Tensor x, float p=0.5, *, Generator? generator=None) -> Tensor out", .tags = "nondeterministic_bitwise",
    .contract = "x[*s]:f32 -> out[*s]:f32; unused(p)", .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f32", timed_any)));

/* It keeps the state of its own generator, and takes nothing of dv_random(). */
static int own_state_any(dv_context *ctx, const struct noise *a)
{
    static _Thread_local uint64_t calls;
    (void)ctx;
    calls++;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = uniform(calls, (uint64_t)i);
    return DV_OK;
}
DV_OPERATOR(own_state, struct noise, (x, p, generator, out),
    .schema = "own_state(Tensor x, float p=0.5, *, Generator? generator=None) -> Tensor out", .tags = "nondeterministic_seeded",
    .contract = "x[*s]:f32 -> out[*s]:f32; unused(p)",
    .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f32", own_state_any)));

DV_LIBRARY(
    healthy_random, &dv_op_locked, &dv_op_sequences, &dv_op_depth, &dv_op_coins, &dv_op_shuffled, &dv_op_timed, &dv_op_own_state);
