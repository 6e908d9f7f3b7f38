/* What the machine can do at best, for bench/bench_limits.py: rates of arithmetic in registers, and of passes over memory. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIMIT __attribute__((visibility("default")))

/* A pass reads a (and b), and writes c. It goes through STREAMS parts of them side by side: one stream alone waits at each page
 * of 4 KB. */
enum { STREAMS = 4, SUMS = 12 };
struct area {
    const char *a, *b;
    char *c;
    size_t part; /* bytes of a stream */
};

#define PASS(NAME, TARGET, V, ACTION)                                    \
    TARGET static void NAME(const struct area *w)                        \
    {                                                                    \
        V sum[STREAMS] = { 0 };                                          \
        for (size_t i = 0; i + sizeof(V) <= w->part; i += sizeof(V))     \
            _Pragma("GCC unroll 4") for (size_t k = 0; k < STREAMS; k++) \
            {                                                            \
                const size_t at = k * w->part + i;                       \
                ACTION;                                                  \
            }                                                            \
        for (int k = 0; k < STREAMS; k++)                                \
            __asm__ volatile("" ::"m"(sum[k]));                          \
    }
#define AT(V, p) (*(const V *)(const void *)(w->p + at))
#define TO(V) (*(V *)(void *)(w->c + at))
/* Two operations for each element of SUMS independent sums. */
#define SUM(NAME, TARGET, V, ACTION)                                                        \
    TARGET static void NAME(long n)                                                         \
    {                                                                                       \
        V sum[SUMS], x, y;                                                                  \
        memset(sum, 0, sizeof sum), memset(&x, 0x3c, sizeof x), memset(&y, 0x3c, sizeof y); \
        __asm__ volatile("" : "+m"(x), "+m"(y));                                            \
        for (; n > 0; n--)                                                                  \
            _Pragma("GCC unroll 12") for (int k = 0; k < SUMS; k++) { ACTION; }             \
        for (int k = 0; k < SUMS; k++)                                                      \
            __asm__ volatile("" ::"m"(sum[k]));                                             \
    }
#define ISA(NAME, TARGET, BYTES, FMA, STREAM)                                              \
    typedef float v_##NAME __attribute__((vector_size(BYTES)));                            \
    SUM(fma_##NAME, TARGET, v_##NAME, FMA)                                                 \
    PASS(read_##NAME, TARGET, v_##NAME, sum[k] += AT(v_##NAME, a))                         \
    PASS(copy_##NAME, TARGET, v_##NAME, TO(v_##NAME) = AT(v_##NAME, a))                    \
    PASS(triad_##NAME, TARGET, v_##NAME, TO(v_##NAME) = AT(v_##NAME, a) + AT(v_##NAME, b)) \
    PASS(copy_past_##NAME, TARGET, v_##NAME, STREAM(TO(v_##NAME), AT(v_##NAME, a)))        \
    PASS(triad_past_##NAME, TARGET, v_##NAME, STREAM(TO(v_##NAME), AT(v_##NAME, a) + AT(v_##NAME, b)))
typedef void pass_function(const struct area *);
typedef void sum_function(long);
struct isa {
    int bytes;
    sum_function *fma;
    pass_function *pass[2][3]; /* [past the cache][read, copy, triad] */
};
#define TABLE(NAME)                                                                                          \
    {                                                                                                        \
        sizeof(v_##NAME), fma_##NAME,                                                                        \
        {                                                                                                    \
            { read_##NAME, copy_##NAME, triad_##NAME }, { read_##NAME, copy_past_##NAME, triad_past_##NAME } \
        }                                                                                                    \
    }

#ifdef __x86_64__
#define TARGET(features) __attribute__((target(features)))
#define OP(name) __asm__(name " %2, %1, %0" : "+v"(sum[k]) : "v"(x), "v"(y))
#define PUT(name, to, value) __asm__ volatile(name " %1, %0" : "=m"(to) : "v"(value))
#define PUT_BASE(to, value) PUT("movntps", to, value)
#define PUT_AVX(to, value) PUT("vmovntps", to, value)
ISA(base, , 16, sum[k] = sum[k] * x + y, PUT_BASE)
ISA(avx2, TARGET("avx2,fma"), 32, OP("vfmadd231ps"), PUT_AVX)
ISA(avx512, TARGET("avx512f"), 64, OP("vfmadd231ps"), PUT_AVX)
SUM(bf16, TARGET("avx512f"), v_avx512, OP("vdpbf16ps"))
SUM(i8, TARGET("avx512f"), v_avx512, OP("vpdpbusd"))

static const struct isa *best_isa(void)
{
    static const struct isa base = TABLE(base), avx2 = TABLE(avx2), avx512 = TABLE(avx512);
    return __builtin_cpu_supports("avx512f") ? &avx512 : __builtin_cpu_supports("fma") ? &avx2 : &base;
}
static void drain(void) { __asm__ volatile("sfence" ::: "memory"); }
#else
#define PUT(to, value) to = value
ISA(base, , 16, sum[k] = sum[k] * x + y, PUT) /* CMakeLists.txt allows to contract it to one instruction */

static const struct isa *best_isa(void)
{
    static const struct isa base = TABLE(base);
    return &base;
}
static void drain(void) {}
#endif

/* One measurement: its threads do the same on parts of their own, `rounds` times. */
struct job {
    sum_function *sum;
    pass_function *pass;
    long count; /* of a sum's steps, or of passes, in a round */
    int rounds, threads;
    pthread_barrier_t barrier;
    double best; /* seconds of a round */
};
struct worker {
    struct job *job;
    struct area area;
    pthread_t thread;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work(struct worker *w, bool first)
{
    struct job *const job = w->job;
    for (int round = 0; round < job->rounds; round++) {
        pthread_barrier_wait(&job->barrier);
        const double begin = now();
        if (job->sum)
            job->sum(job->count);
        for (long i = 0; job->pass && i < job->count; i++)
            job->pass(&w->area);
        drain();
        pthread_barrier_wait(&job->barrier);
        const double seconds = now() - begin;
        if (first && round && seconds < job->best) /* the first round warms up */
            job->best = seconds;
    }
}
static void *run_worker(void *worker)
{
    work(worker, false);
    return NULL;
}

enum { MOST_THREADS = 256 };
static struct worker workers[MOST_THREADS];

/* The best seconds of a round; 0 if a thread cannot be made. */
static double run(struct job *job)
{
    job->best = 1e30;
    pthread_barrier_init(&job->barrier, NULL, (unsigned)job->threads);
    for (int i = 1; i < job->threads; i++)
        if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]))
            abort();
    work(&workers[0], true);
    for (int i = 1; i < job->threads; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&job->barrier);
    return job->best;
}

/* Operations a second of kind 0: multiply-adds of f32; 1: products of bf16 in pairs, added to f32; 2: of i8 in fours, added to
 * i32. 0 where the processor has no such instruction. The same unit counts as two operations for each product. */
LIMIT double limit_operations(int kind, int threads)
{
    const struct isa *isa = best_isa();
    struct job job = { .sum = isa->fma, .count = 20000, .rounds = 4, .threads = threads };
    double each = 2.0 * SUMS * isa->bytes / 4;
    if (threads < 1 || threads > MOST_THREADS)
        return 0;
#ifdef __x86_64__
    if (kind == 1)
        job.sum = __builtin_cpu_supports("avx512bf16") ? bf16 : NULL, each *= 2;
    if (kind == 2)
        job.sum = __builtin_cpu_supports("avx512vnni") ? i8 : NULL, each *= 4;
#else
    if (kind)
        job.sum = NULL;
#endif
    if (!job.sum)
        return 0;
    for (int i = 0; i < threads; i++)
        workers[i] = (struct worker){ .job = &job };
    return each * (double)job.count * threads / run(&job);
}

/* Bytes a second of passes that read `reads` areas and write `writes` (1 0, 1 1 or 2 1), of `bytes` in all. past: stores go past
 * the cache. 0 if there is no memory. */
LIMIT double limit_bytes(int reads, int writes, int past, double bytes, int threads)
{
    static char *memory;
    static size_t room;
    const size_t lead = 4096 + 640; /* so that no two areas have the same low bits of addresses */
    if (threads < 1 || threads > MOST_THREADS)
        return 0;
    const size_t part = (size_t)bytes / (size_t)(reads + writes) / (size_t)threads / STREAMS & ~(size_t)63;
    const size_t each = part * STREAMS * (size_t)threads, all = 3 * (each + lead);
    if (all > room) {
        free(memory), memory = NULL, room = 0;
        if (!part || posix_memalign((void **)&memory, 4096, all))
            return 0;
        memset(memory, 0, room = all);
    }
    const double moved = (double)each * (reads + writes);
    struct job job = { .pass = best_isa()->pass[past != 0][reads - 1 + writes], .rounds = 4, .threads = threads };
    job.count = 1 + (long)(16e6 / moved);
    for (int i = 0; i < threads; i++) {
        char *const a = memory + (size_t)i * part * STREAMS;
        workers[i] = (struct worker){ .job = &job, .area = { a, a + each + lead, a + 2 * (each + lead), part } };
    }
    return moved * (double)job.count / run(&job);
}
