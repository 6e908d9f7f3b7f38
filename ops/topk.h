/* topk.h: the k best of a stream of scores, in order: higher scores first, the lower index first among equals, NaN before all
 * numbers (as torch.topk has it). A heap whose root is the one to be thrown out next: n scores cost n log k. */
#ifndef OPS_TOPK_H
#define OPS_TOPK_H
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

/* ---- many of many: by digits, without comparing two scores ---------------------------------------------------------------- */

enum { TOP_DIGIT = 11, TOP_DIGITS = 1 << TOP_DIGIT, TOP_MANY = 64, TOP_LONG = 1024 };
typedef uint64_t top_word __attribute__((may_alias));

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

/* The rank of the `most` best that comes last; *equal becomes how many of that rank are among them. */
static inline uint32_t top_last_rank(const float *scores, int64_t n, int64_t *equal)
{
    uint32_t rank = 0, known = 0;
    for (int shift = 2 * TOP_DIGIT - 1; known != UINT32_MAX; shift = shift > TOP_DIGIT ? shift - TOP_DIGIT : 0) {
        const uint32_t digits = (shift ? TOP_DIGITS : TOP_DIGITS / 2) - 1;
        int64_t counts[TOP_DIGITS] = { 0 };
        uint32_t digit = 0;
        for (int64_t s = 0; s < n; s++) {
            const uint32_t r = top_rank(scores[s]);
            counts[r >> shift & digits] += !((r ^ rank) & known);
        }
        for (; counts[digit] < *equal; digit++)
            *equal -= counts[digit];
        rank |= digit << shift;
        known |= digits << shift;
    }
    return rank;
}

/* t->hits[0 .. t->most) become the best of n >= t->most finite scores, in order. */
static inline void top_choose(top *t, const float *scores, int64_t n)
{
    top_word *from = (top_word *)(void *)t->hits, *to = from + t->most; /* rank, then index */
    int64_t equal = t->most, m = 0;
    if (t->most < TOP_MANY || n < TOP_LONG) {
        for (int64_t s = 0; s < n; s++)
            top_add(t, (double)scores[s], s);
        top_sort(t);
        return;
    }
    const uint32_t last = top_last_rank(scores, n, &equal);
    for (int64_t s = 0; s < n && m < t->most; s++) {
        const uint32_t r = top_rank(scores[s]);
        const bool ties = r == last && equal > 0;
        from[m] = (uint64_t)r << 32 | (uint64_t)s;
        m += r < last || ties;
        equal -= ties;
    }
    for (int shift = 32; shift < 64; shift += TOP_DIGIT) { /* the indices ascend already */
        int64_t places[TOP_DIGITS + 1] = { 0 };
        for (int64_t i = 0; i < m; i++)
            places[(from[i] >> shift & (TOP_DIGITS - 1)) + 1]++;
        for (int digit = 0; digit < TOP_DIGITS; digit++)
            places[digit + 1] += places[digit];
        for (int64_t i = 0; i < m; i++)
            to[places[from[i] >> shift & (TOP_DIGITS - 1)]++] = from[i];
        top_word *const sorted = to;
        to = from, from = sorted;
    }
    for (int64_t i = 0; i < m; i++) /* from the upper half: never past what is still to be read */
        t->hits[i] = (top_hit){ .score = (double)top_score((uint32_t)(from[i] >> 32)), .index = (int64_t)(uint32_t)from[i] };
    t->size = m;
}
#endif
