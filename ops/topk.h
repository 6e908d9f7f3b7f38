/* topk.h: the k best of a stream of scores, in order: higher scores first, the lower index first among equals, NaN before all
 * numbers (as torch.topk has it). A heap whose root is the one to be thrown out next: n scores cost n log k. */
#ifndef OPS_TOPK_H
#define OPS_TOPK_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

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
#endif
