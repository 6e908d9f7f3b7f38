/* The smallest failing case. Each step makes one thing smaller and asks a child whether it still fails in the same way; steps are
 * tried until none helps or the time is up. With a contract check_fit() makes the rest of the case follow each step. */
#include <string.h>
#include <time.h>

#include "check.h"

enum { SECONDS = 4, MOST_SPECIAL = 40, MOST_RANDOM = 3, SURE = 3, MIN_SIZES = 4 /* 0 to 3, each of which is tried */ };

typedef struct shrinker {
    check_job *job;
    check_case best, next;
    check_result *shared;
    double end;
    bool moved;
} shrinker;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* s->next instead of s->best, if it fails as well. */
static bool keep_if_fails(shrinker *s)
{
    if (!memcmp(&s->next, &s->best, sizeof s->best) || seconds() > s->end || !check_again(s->job, &s->next, s->shared))
        return false;
    s->best = s->shared->failing; /* which may be one that was made from it */
    check_result *r = s->job->result;
    memcpy(r->message, s->shared->message, sizeof r->message);
    r->how = s->shared->how;
    memcpy(r->made, s->shared->made, sizeof r->made);
    r->origin = s->shared->origin;
    r->has_before = s->shared->has_before;
    r->before = s->shared->before;
    s->moved = true;
    return true;
}

/* A smaller tensor has other contents. If contents matter, several are tried: in one of them its only element may be NaN.
 */
static bool keep_with_contents(shrinker *s)
{
    bool random = false, special = false;
    for (size_t i = 0; i < s->best.ntensors; i++) {
        random |= s->best.tensors[i].present && s->best.tensors[i].fill != CHECK_SIMPLE;
        special |= s->best.tensors[i].present && s->best.tensors[i].fill == CHECK_SPECIAL;
    }
    const check_case first = s->next;
    if (keep_if_fails(s))
        return true;
    for (uint64_t k = 1; k <= (special ? MOST_SPECIAL : random ? MOST_RANDOM : 0); k++) {
        s->next = first;
        s->next.seed += 2 * k * 1000003; /* whether it is even decides what is drawn */
        if (keep_if_fails(s))
            return true;
    }
    return false;
}

static bool fitted(shrinker *s)
{
    return !s->best.broken && check_fit(s->job->op, &s->next, &s->best, NULL) && keep_with_contents(s);
}

/* Searches for the smallest size that fails. Tries 0 to MIN_SIZES - 1, then steps down by a half, a quarter, and so on to 1. at:
 * the size in s->next; in_best: the same size in s->best. take: makes s->next the best case if it fails. */
static void smaller_size(shrinker *s, int64_t *at, const int64_t *in_best, bool (*take)(shrinker *))
{
    for (int64_t to = 0; to < MIN_SIZES && to < *in_best; to++) {
        s->next = s->best;
        *at = to;
        if (take(s))
            return;
    }
    for (int64_t step = *in_best / 2; step > 0; step /= 2) {
        s->next = s->best;
        *at = *in_best - step;
        if (*at >= MIN_SIZES)
            take(s);
    }
}

/* Single dims: with a contract the others follow. */
static void smaller_dims(shrinker *s)
{
    bool (*const take)(shrinker *) = s->best.broken || !s->job->op->contract ? keep_with_contents : fitted;
    for (size_t i = 0; i < s->best.ntensors; i++) {
        check_tensor *next = &s->next.tensors[i], *best = &s->best.tensors[i];
        for (int32_t d = 0; d < best->ndim && best->present && take == fitted; d++) { /* fewer of them */
            s->next = s->best;
            memmove(&next->shape[d], &next->shape[d + 1], sizeof *next->shape * (size_t)(CHECK_DIMS - 1 - d));
            next->ndim--;
            d -= check_fit(s->job->op, &s->next, &s->best, NULL) && next->ndim < best->ndim && keep_with_contents(s);
        }
        for (int32_t d = 0; d < best->ndim && best->present; d++)
            smaller_size(s, &next->shape[d], &best->shape[d], take);
    }
}

/* Replaces one size everywhere it occurs, in shapes and numbers: this keeps equal sizes equal without a contract, or across
 * names. Returns true if the case still fails. */
static bool replace_size(shrinker *s, int64_t from, int64_t to)
{
    s->next = s->best;
    for (size_t i = 0; i < s->next.ntensors; i++)
        for (int32_t d = 0; d < s->next.tensors[i].ndim; d++)
            if (s->next.tensors[i].shape[d] == from)
                s->next.tensors[i].shape[d] = to;
    for (size_t a = 0; a < s->next.nargs; a++)
        if (s->next.args[a].type == DV_VALUE_INT && s->next.args[a].as.i == from)
            s->next.args[a].as.i = to;
    return keep_with_contents(s);
}

/* Makes each size of the case smaller, everywhere it occurs, by the steps of smaller_size(). */
static void smaller_everywhere(shrinker *s)
{
    int64_t values[64];
    size_t n = 0;
    for (size_t i = 0; i < s->best.ntensors; i++)
        for (int32_t d = 0; d < s->best.tensors[i].ndim && s->best.tensors[i].present && n < 64; d++)
            values[n++] = s->best.tensors[i].shape[d];
    for (size_t k = 0; k < n; k++) {
        int64_t to = 0, value = values[k];
        while (to < MIN_SIZES && to < value && !replace_size(s, value, to))
            to++;
        for (int64_t step = to < MIN_SIZES ? 0 : value / 2; step > 0; step /= 2)
            if (value - step >= MIN_SIZES && replace_size(s, value, value - step))
                value -= step;
    }
}

static void plainer_tensors(shrinker *s)
{
    for (size_t i = 0; i < s->best.ntensors; i++) {
        const size_t slot = check_tensor_argument(&s->best, i);
        s->next = s->best;
        s->next.tensors[i].present = !(s->job->op->slots[slot].flags & (DV_SLOT_OPTIONAL | DV_SLOT_ELEMENT_OPTIONAL)) &&
            s->best.tensors[i].present;
        if (keep_if_fails(s))
            continue;
        s->next = s->best;
        s->next.tensors[i].layout = CHECK_CONTIGUOUS;
        keep_if_fails(s);
        s->next = s->best;
        s->next.tensors[i].fill = CHECK_SIMPLE;
        if (!keep_if_fails(s) && s->best.tensors[i].fill == CHECK_SPECIAL) {
            s->next = s->best;
            s->next.tensors[i].fill = CHECK_RANDOM;
            keep_if_fails(s);
        }
    }
}

static void plainer_arguments(shrinker *s)
{
    for (size_t i = 0; i < s->best.nargs; i++) {
        check_value *v = &s->next.args[i];
        s->next = s->best;
        if (v->type == DV_VALUE_TENSORS && v->count > 1) {
            check_set_count(&s->next, i, v->count - 1);
            if (!fitted(s)) {
                s->next = s->best;
                check_set_count(&s->next, i, v->count - 1);
                keep_if_fails(s);
            }
            continue;
        }
        if (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS || v->type == DV_VALUE_DEFAULT)
            continue;
        if (s->job->op->slots[i].default_value.type != DV_VALUE_DEFAULT) {
            memset(v, 0, sizeof *v);
            if (keep_if_fails(s))
                continue;
        }
        if (s->best.args[i].type == DV_VALUE_INT)
            smaller_size(s, &v->as.i, &s->best.args[i].as.i, s->best.broken ? keep_if_fails : fitted);
    }
}

/* ---- Failures that take a call before ---- */

/* Set the preceding case to this one of the plan. */
static struct {
    const check_property *property;
    uint32_t number;
    enum check_end end;
} pair;

static void attempt_after_another(check_job *job, const check_case *c)
{
    static check_case own;
    check_call call = { .op = job->op, .row = job->row, .end = pair.end, .poison = 0xa5 };
    own = *c;
    check_seeded(&job->plan->cases[pair.number], job->seed, &job->result->before);
    check_call_run(&call, &job->result->before);
    job->result->has_before = true;
    check_in_hand(job, &own);
    pair.property->attempt(job, &own);
}

/* One of the last cases before it, or the first one, such that it fails after it, each time. *after is the job to try then. */
static bool fails_after_another(const check_job *job, const check_case *c, check_result *shared, check_job *after)
{
    static check_property property;
    const uint32_t at = job->result->at, numbers[] = { at - 1, at - 2, at - 3, 0 };
    if (!job->property->attempt || !job->plan || !at)
        return false;
    property = *job->property;
    property.attempt = attempt_after_another;
    *after = *job;
    after->property = &property;
    pair.property = job->property;
    for (size_t k = 0; k < 2 * sizeof numbers / sizeof *numbers; k++) {
        int times = 0;
        pair.number = numbers[k / 2];
        pair.end = k % 2 ? CHECK_AT_BEGIN : CHECK_AT_END;
        while (pair.number < at && times < SURE && check_again(after, c, shared) && shared->has_before)
            times++;
        if (times == SURE)
            return true;
    }
    return false;
}

bool check_shrink(check_job *job)
{
    static shrinker s;
    static check_result *shared;
    static check_job after;
    if (!shared)
        shared = check_shared();
    s = (shrinker){ .job = job, .best = job->result->failing, .shared = shared, .end = seconds() + SECONDS };
    const bool alone = shared && check_again(job, &s.best, shared);
    if (!alone &&
        (!shared ||
            !fails_after_another(job, &s.best, shared, &after))) { /* not reproducible: it stays as found, without a program */
        if (job->result->how.show != CHECK_SHOW_FAR)               /* whose size is beyond check_again() */
            job->result->how.show = CHECK_SHOW_NOTHING;
        return true;
    }
    if (!alone) {
        s.job = &after;
        job->result->how = shared->how;
    }
    job->result->has_before = shared->has_before;
    job->result->before = shared->before;
    s.best = shared->failing;
    do {
        s.moved = false;
        smaller_dims(&s);
        plainer_arguments(&s);
        plainer_tensors(&s);
        smaller_everywhere(&s);
    } while (s.moved && seconds() < s.end);
    job->result->failing = s.best;
    return seconds() < s.end;
}
