/* What the machine can do at best, for limits.py: rates of arithmetic in registers, and of passes over memory. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIMIT __attribute__((visibility("default")))

/* A pass reads a (and b), and writes c. It goes through four streams side by side: one alone waits at each page of 4 KB. */
enum { STREAMS = 4, SUMS = 12 };
struct area {
    const char *a, *b;
    char *c;
    size_t part; /* bytes of a stream */
};
LIMIT _Thread_local char limit_result[64]; /* visible, so that no sum is left out */

/* Sums are variables of their own: gcc keeps an array in memory. */
#define PASS(NAME, TARGET, V, ACTION)                            \
    TARGET static void NAME(const struct area *w)                \
    {                                                            \
        const size_t n = w->part;                                \
        V s0 = { 0 }, s1 = s0, s2 = s0, s3 = s0;                 \
        for (size_t i = 0; i + sizeof(V) <= n; i += sizeof(V)) { \
            ACTION(V, s0, i);                                    \
            ACTION(V, s1, n + i);                                \
            ACTION(V, s2, 2 * n + i);                            \
            ACTION(V, s3, 3 * n + i);                            \
        }                                                        \
        s0 += s1 + s2 + s3;                                      \
        memcpy(limit_result, &s0, sizeof(V));                    \
    }
#define A(V, at) (*(const V *)(const void *)(w->a + (at)))
#define B(V, at) (*(const V *)(const void *)(w->b + (at)))
#define C(V, at) (*(V *)(void *)(w->c + (at)))
#define READ(V, s, at) s += A(V, at)
#define COPY(V, s, at) C(V, at) = A(V, at)
#define TRIAD(V, s, at) C(V, at) = A(V, at) + B(V, at)
/* The same for DRAM: what is read is asked for ahead, and stores go past the cache. */
#define AHEAD(p, at) __builtin_prefetch(w->p + (at) + 1024, 0, 3)
#define READ_PAST(V, s, at) __builtin_prefetch(w->a + (at) + 2048, 0, 2), s += A(V, at)
#define COPY_PAST(V, s, at)      \
    do {                         \
        AHEAD(a, at);            \
        PUT(C(V, at), A(V, at)); \
    } while (0)
#define TRIAD_PAST(V, s, at)                \
    do {                                    \
        AHEAD(a, at), AHEAD(b, at);         \
        PUT(C(V, at), A(V, at) + B(V, at)); \
    } while (0)

/* n times one operation on each of SUMS independent sums. */
#define SUM(NAME, TARGET, V, OP)                                                                        \
    TARGET static void NAME(long n)                                                                     \
    {                                                                                                   \
        V a = { 0 }, b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a, x, y; \
        memset(&x, 0x3c, sizeof x), memset(&y, 0x3c, sizeof y);                                         \
        __asm__ volatile("" : "+m"(x), "+m"(y));                                                        \
        for (; n > 0; n--) {                                                                            \
            OP(a), OP(b), OP(c), OP(d), OP(e), OP(f), OP(g), OP(h), OP(i), OP(j), OP(k), OP(l);         \
        }                                                                                               \
        a += b + c + d + e + f + g + h + i + j + k + l;                                                 \
        memcpy(limit_result, &a, sizeof(V));                                                            \
    }
#define ISA(NAME, TARGET, BYTES, OP)                            \
    typedef float v_##NAME __attribute__((vector_size(BYTES))); \
    SUM(fma_##NAME, TARGET, v_##NAME, OP)                       \
    PASS(read_##NAME, TARGET, v_##NAME, READ)                   \
    PASS(copy_##NAME, TARGET, v_##NAME, COPY)                   \
    PASS(triad_##NAME, TARGET, v_##NAME, TRIAD)                 \
    PASS(read_past_##NAME, TARGET, v_##NAME, READ_PAST)         \
    PASS(copy_past_##NAME, TARGET, v_##NAME, COPY_PAST)         \
    PASS(triad_past_##NAME, TARGET, v_##NAME, TRIAD_PAST)
typedef void pass_function(const struct area *);
typedef void sum_function(long);
struct isa {
    int bytes;
    sum_function *fma;
    pass_function *pass[2][3]; /* [past the cache][read, copy, triad] */
};
#define TABLE(NAME)                                                                                               \
    {                                                                                                             \
        sizeof(v_##NAME), fma_##NAME,                                                                             \
        {                                                                                                         \
            { read_##NAME, copy_##NAME, triad_##NAME }, { read_past_##NAME, copy_past_##NAME, triad_past_##NAME } \
        }                                                                                                         \
    }

/* CMakeLists.txt allows to contract it to one instruction; the empty one hides that all sums are equal. */
#ifdef __aarch64__
#define PLAIN(s)               \
    __extension__({            \
        s = s * x + y;         \
        __asm__("" : "+w"(s)); \
    })
#else
#define PLAIN(s)               \
    __extension__({            \
        s = s * x + y;         \
        __asm__("" : "+x"(s)); \
    })
#endif
#ifdef __x86_64__
#define TARGET(features) __attribute__((target(features)))
#define ASM(name, s) __extension__({ __asm__(name " %2, %1, %0" : "+v"(s) : "v"(x), "v"(y)); })
#define FMA(s) ASM("vfmadd231ps", s)
#define DOT_BF16(s) ASM("vdpbf16ps", s)
#define DOT_I8(s) ASM("vpdpbusd", s)
#define PUT(to, value) __asm__ volatile("movntps %1, %0" : "=m"(to) : "x"(value))
ISA(base, , 16, PLAIN)
#undef PUT
#define PUT(to, value) __asm__ volatile("vmovntps %1, %0" : "=m"(to) : "v"(value))
ISA(avx2, TARGET("avx2,fma"), 32, FMA)
ISA(avx512, TARGET("avx512f"), 64, FMA)
SUM(bf16, TARGET("avx512f"), v_avx512, DOT_BF16)
SUM(i8, TARGET("avx512f"), v_avx512, DOT_I8)

/* AMX: products of squares of 16 x 16 words, with four squares of sums. */
#define SQUARES(NAME, OP)                                                                                                    \
    static void NAME(long n)                                                                                                 \
    {                                                                                                                        \
        static const struct {                                                                                                \
            uint8_t palette, none[15];                                                                                       \
            uint16_t bytes[16];                                                                                              \
            uint8_t rows[16];                                                                                                \
        } config = { 1, { 0 }, { 64, 64, 64, 64, 64, 64, 64, 64 }, { 16, 16, 16, 16, 16, 16, 16, 16 } };                     \
        __asm__ volatile("ldtilecfg %0" : : "m"(config));                                                                    \
        for (; n > 0; n--)                                                                                                   \
            __asm__ volatile(OP " %%tmm6, %%tmm4, %%tmm0\n" OP " %%tmm6, %%tmm5, %%tmm1\n" OP " %%tmm7, %%tmm4, %%tmm2\n" OP \
                                " %%tmm7, %%tmm5, %%tmm3" ::);                                                               \
        __asm__ volatile("tilerelease");                                                                                     \
    }
SQUARES(squares_bf16, "tdpbf16ps")
SQUARES(squares_i8, "tdpbssd")

/* Linux keeps the registers only for processes that ask (ARCH_REQ_XCOMP_PERM). */
static bool has_squares(void)
{
    unsigned a = 7, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (d >> 22 & 1) && (d >> 24 & 3) == 3 && !syscall(SYS_arch_prctl, 0x1023, 18);
}

static const struct isa *best_isa(void)
{
    static const struct isa base = TABLE(base), avx2 = TABLE(avx2), avx512 = TABLE(avx512);
    return __builtin_cpu_supports("avx512f") ? &avx512 : __builtin_cpu_supports("fma") ? &avx2 : &base;
}
static void drain(void) { __asm__ volatile("sfence" ::: "memory"); }
#else
#define PUT(to, value) to = value
ISA(base, , 16, PLAIN)

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

/* Operations a second of kind 0: multiply-adds of f32; 1: products of bf16, added to f32; 2: of i8, added to i32; by AMX where
 * there is one, else by vectors. 0 where the processor has no such instruction. Each product counts as two operations. */
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
    if (kind && job.sum && has_squares())
        job.sum = kind == 1 ? squares_bf16 : squares_i8, each = kind * 4.0 * 2 * 16 * 16 * 32;
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

/* Bytes a second of passes that read `reads` areas and write `writes` (1 0, 1 1 or 2 1), of `bytes` in all. past: for DRAM.
 * large: on pages of 2 MB, if the system gives them; else on those that every program has. 0 if there is no memory. */
LIMIT double limit_bytes(int reads, int writes, int past, int large, double bytes, int threads)
{
    static struct {
        char *memory;
        size_t room;
    } kept[2];
    char **const memory = &kept[large != 0].memory;
    size_t *const room = &kept[large != 0].room;
    const size_t lead = 4096 + 640; /* so that no two areas have the same low bits of addresses */
    if (threads < 1 || threads > MOST_THREADS)
        return 0;
    const size_t part = (size_t)bytes / (size_t)(reads + writes) / (size_t)threads / STREAMS & ~(size_t)63;
    const size_t each = part * STREAMS * (size_t)threads, all = 3 * (each + lead);
    if (all > *room) {
        free(*memory), *memory = NULL, *room = 0;
        if (!part || posix_memalign((void **)memory, 1 << 21, all))
            return 0;
        if (large)
            madvise(*memory, all, MADV_HUGEPAGE);
        memset(*memory, 0, *room = all);
    }
    const double moved = (double)each * (reads + writes);
    struct job job = { .pass = best_isa()->pass[past != 0][reads - 1 + writes], .rounds = 4, .threads = threads };
    job.count = 1 + (long)(16e6 / moved);
    /* Not all pages are equally fast: areas change their roles. */
    static unsigned turn;
    char *const first = *memory + turn % 3 * (each + lead), *const second = *memory + (turn + 1) % 3 * (each + lead);
    char *const third = *memory + (turn + 2) % 3 * (each + lead);
    turn++;
    for (int i = 0; i < threads; i++) {
        const size_t at = (size_t)i * part * STREAMS;
        workers[i] = (struct worker){ .job = &job, .area = { first + at, second + at, third + at, part } };
    }
    return moved * (double)job.count / run(&job);
}
