/* topk.h: the k best of a stream of scores, in order: higher scores first, the lower index first among equals, NaN before all
 * numbers (as torch.topk has it). A heap whose root is the one to be thrown out next: n scores cost n log k. */
#ifndef OPS_TOPK_H
#define OPS_TOPK_H
#include <dovetail_op.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct top_hit {
    double score;
    int64_t index;
} top_hit;
typedef struct top {
    top_hit *hits; /* room for `most` */
    int64_t size, most;
} top;

static inline bool top_before(top_hit a, top_hit b)
{
    if (isnan(a.score) || isnan(b.score))
        return isnan(a.score) && (!isnan(b.score) || a.index < b.index);
    return a.score > b.score || (a.score == b.score && a.index < b.index);
}
static inline void top_sink(top_hit *heap, int64_t n, int64_t i)
{
    const top_hit moved = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && top_before(heap[child], heap[child + 1]))
            child++;
        if (!top_before(moved, heap[child]))
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}
static inline void top_heapify(top *t)
{
    for (int64_t i = t->size / 2 - 1; i >= 0; i--)
        top_sink(t->hits, t->size, i);
}
static inline void top_add(top *t, double score, int64_t index)
{
    const top_hit hit = { score, index };
    if (t->size < t->most) {
        t->hits[t->size++] = hit;
        if (t->size == t->most)
            top_heapify(t);
    } else if (t->most && top_before(hit, t->hits[0])) {
        t->hits[0] = hit;
        top_sink(t->hits, t->size, 0);
    }
}
/* After the last: hits[0 .. size) are in order. */
static inline void top_sort(top *t)
{
    if (t->size < t->most)
        top_heapify(t);
    for (int64_t end = t->size - 1; end > 0; end--) {
        const top_hit last = t->hits[0];
        t->hits[0] = t->hits[end];
        t->hits[end] = last;
        top_sink(t->hits, end, 0);
    }
}

/* ---- many of many: by digits, without comparing two scores ----------------------------------------------------------------
 *
 * A sample gives a bound that slightly more scores than wanted should reach. These candidates are sorted by digits, and the best
 * are taken. If too few or too many reach the bound, the exact bound is found by counting digits of all scores. The result is the
 * same. */

enum { TOP_DIGIT = 11, TOP_DIGITS = 1 << TOP_DIGIT, TOP_MANY = 64, TOP_LONG = 1024, TOP_STEP = 64 };
typedef uint64_t top_word __attribute__((may_alias)); /* a rank, then an index */
typedef uint32_t top_index __attribute__((may_alias));
typedef float top_float __attribute__((may_alias));

/* Writes the indices of scores that reach the bound, in ascending order, and returns how many. It stops when there are more than
 * `most`; the array has room for TOP_STEP more. */
typedef int64_t (*top_reach_fn)(top_index *found, int64_t most, const float *scores, int64_t n, float bound);

static inline int64_t top_reach(top_index *found, int64_t most, const float *scores, int64_t n, float bound)
{
    int64_t m = 0;
    for (int64_t s = 0; s < n && m <= most;)
        for (const int64_t stop = n - s < TOP_STEP ? n : s + TOP_STEP; s < stop; s++) {
            found[m] = (uint32_t)s;
            m += scores[s] >= bound;
        }
    return m;
}
#ifdef DV_TARGET_AVX2
/* Indices are compressed in a register: compressing into memory is slow on some processors. */
DV_TARGET_AVX512 static inline int64_t top_reach_avx512(
    top_index *found, int64_t most, const float *scores, int64_t n, float bound)
{
    typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
    typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
    const lanes bounds = bound - (lanes){ 0 };
    words indices = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }, some;
    int64_t m = 0, s = 0;
    for (; s + 16 <= n && m <= most; s += 16, indices += 16) {
        uint16_t reached;
        __asm__("vcmpleps %2, %1, %0" : "=Yk"(reached) : "v"(bounds), "m"(*(const lanes *)(const void *)(scores + s)));
        __asm__("vpcompressd %1, %0%{%2%}%{z%}" : "=v"(some) : "v"(indices), "Yk"(reached));
        *(words *)(void *)(found + m) = some;
        m += __builtin_popcount(reached);
    }
    for (; s < n && m <= most; s++) {
        found[m] = (uint32_t)s;
        m += scores[s] >= bound;
    }
    return m;
}
#endif

/* The better a score, the smaller; the same for both zeros. */
static inline uint32_t top_rank(float score)
{
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : 0x7fffffff - bits;
}
static inline float top_score(uint32_t rank)
{
    const uint32_t bits = rank >> 31 ? rank : 0x7fffffff - rank;
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* The rank of the *equal best that comes last; *equal becomes how many of that rank are among them. With fewer than three digits
 * it is the worst rank with the same first digits. */
static inline uint32_t top_last_rank(const top_float *scores, int64_t n, int64_t *equal, int digits)
{
    static const int shifts[] = { 2 * TOP_DIGIT - 1, TOP_DIGIT - 1, 0 };
    uint32_t rank = 0, known = 0;
    for (int d = 0; d < digits; d++) {
        const uint32_t mask = (d < 2 ? TOP_DIGITS : TOP_DIGITS / 2) - 1;
        uint32_t counts[TOP_DIGITS] = { 0 }, digit = 0;
        for (int64_t s = 0; s < n; s++) {
            const uint32_t r = top_rank(scores[s]);
            counts[r >> shifts[d] & mask] += !((r ^ rank) & known);
        }
        for (; counts[digit] < *equal; digit++)
            *equal -= counts[digit];
        rank |= digit << shifts[d];
        known |= mask << shifts[d];
    }
    return rank | ~known;
}

/* A bound for the `most` best: from a sample, one score of each stretch, with a margin of four standard deviations. */
static inline float top_guess(top_float *sample, int64_t room, const float *scores, int64_t n, int64_t most)
{
    const int64_t all = n / 32 + 256, size = all < room ? all : room, stretch = n / size;
    const double mean = (double)most / (double)stretch;
    int64_t place = (int64_t)(mean + 4 * sqrt(mean)) + 1;
    uint32_t random = 1;
    if (place >= size)
        return -INFINITY;
    for (int64_t i = 0; i < size; i++) {
        random = random * 1664525 + 1013904223;
        sample[i] = scores[i * stretch + (int64_t)((uint64_t)stretch * random >> 32)];
    }
    return top_score(top_last_rank(sample, size, &place, 2));
}

/* The indices of the `most` best, in ascending order, when the guess was wrong. */
static inline void top_count(top_index *found, const float *scores, int64_t n, int64_t most)
{
    int64_t equal = most, m = 0;
    const uint32_t last = top_last_rank(scores, n, &equal, 3);
    for (int64_t s = 0; s < n && m < most; s++) {
        const uint32_t r = top_rank(scores[s]);
        const bool ties = r == last && equal > 0;
        found[m] = (uint32_t)s;
        m += r < last || ties;
        equal -= ties;
    }
}

/* How many candidates are sorted at most, and the bytes that top_choose() needs at t->hits. */
static inline int64_t top_candidates(int64_t most) { return 2 * most + 2048; }
static inline size_t top_room(int64_t most)
{
    return (size_t)top_candidates(most) * (2 * sizeof(top_word) + sizeof(top_index)) + TOP_STEP * sizeof(top_index);
}

/* Sorts m words by the differences of their ranks from `first`, which have so many bits. Indices ascend already, and stay so
 * among equals. The words are in `from` before, and in `to` after an odd number of passes. */
static inline void top_sort_words(top_word *from, top_word *to, int64_t m, uint32_t first, int bits, int passes)
{
    const int width = (bits + passes - 1) / passes;
    for (int shift = 0; shift < width * passes; shift += width) {
        uint32_t places[TOP_DIGITS + 1];
        const uint32_t digits = 1u << width;
        memset(places, 0, (digits + 1) * sizeof *places);
        for (int64_t i = 0; i < m; i++)
            places[(((uint32_t)(from[i] >> 32) - first) >> shift & (digits - 1)) + 1]++;
        for (uint32_t digit = 0; digit < digits; digit++)
            places[digit + 1] += places[digit];
        for (int64_t i = 0; i < m; i++)
            to[places[((uint32_t)(from[i] >> 32) - first) >> shift & (digits - 1)]++] = from[i];
        top_word *const sorted = to;
        to = from, from = sorted;
    }
}

/* t->hits[0 .. t->most) become the best of n >= t->most finite scores, in order. */
static inline void top_choose(top *t, const float *scores, int64_t n, top_reach_fn reach)
{
    if (t->most < TOP_MANY || n < TOP_LONG) {
        for (int64_t s = 0; s < n; s++)
            top_add(t, (double)scores[s], s);
        top_sort(t);
        return;
    }
    const int64_t room = top_candidates(t->most);
    top_word *const words = (top_word *)(void *)t->hits, *const last = words + room;
    top_index *const found = (top_index *)(void *)(last + room);
    int64_t m = reach(found, room, scores, n, top_guess((top_float *)(void *)words, 4 * room, scores, n, t->most));
    if (m < t->most || m > room) {
        top_count(found, scores, n, t->most);
        m = t->most;
    }
    uint32_t least = UINT32_MAX, largest = 0;
    for (int64_t i = 0; i < m; i++) {
        const uint32_t rank = top_rank(scores[found[i]]);
        least = rank < least ? rank : least;
        largest = rank > largest ? rank : largest;
    }
    const int bits = 32 - __builtin_clz((largest - least) | 1), passes = (bits + TOP_DIGIT - 1) / TOP_DIGIT;
    top_word *const from = passes % 2 ? words : last; /* sorted, they are in `last` */
    for (int64_t i = 0; i < m; i++)
        from[i] = (uint64_t)top_rank(scores[found[i]]) << 32 | found[i];
    top_sort_words(from, passes % 2 ? last : words, m, least, bits, passes);
    for (int64_t i = 0; i < t->most; i++) /* never past what is still to be read */
        t->hits[i] = (top_hit){ .score = (double)top_score((uint32_t)(last[i] >> 32)), .index = (int64_t)(uint32_t)last[i] };
    t->size = t->most;
}
#endif
