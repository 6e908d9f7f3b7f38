/* Shrinks a failing case, as delta debugging does (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input). Each
 * step makes one part of the case smaller and tries the result in a worker: it is accepted if it fails in the same way. Steps
 * are repeated until none helps or the time is up. With a contract, check_try_fit_case() makes the rest of the case follow each
 * step. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

enum {
    MAX_SECONDS = 4,
    MAX_SPECIAL_CONTENTS = 40,
    MAX_RANDOM_CONTENTS = 3,
    NUM_SMALL_SIZES = 4 /* sizes 0 to 3 are all tried */
};

typedef struct shrinker {
    check_job *job;
    check_case best, next;
    check_case tried; /* case that was given to the property, which may have made `best` from it */
    check_result *shared;
    double end_seconds;
    bool has_progress;
    bool found; /* true once the failure was reproduced */
} shrinker;

/* Returns the time of the monotonic clock in seconds. */
static double shrink_get_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Makes the failure in s->shared, which was just repeated, the best case and the job's message. */
static void shrink_set_best_from_result(shrinker *s)
{
    check_result *r = s->job->result;
    s->best = s->shared->current_case; /* the property may have changed the case that was tried */
    memcpy(r->message, s->shared->message, sizeof r->message);
    r->origin = s->shared->origin;
    r->has_preceding_case = s->shared->has_preceding_case;
    r->preceding_case = s->shared->preceding_case;
}

/* Tries s->next in a worker, and makes it the best case if it fails in the same way. Returns whether it does; false also if it
 * equals the best case or the time is up. */
static bool shrink_try_next_case(shrinker *s)
{
    if (!memcmp(&s->next, &s->best, sizeof s->best) || shrink_get_seconds() > s->end_seconds ||
        !check_case_fails_again(s->job, &s->next, s->shared))
        return false;
    s->tried = s->next;
    shrink_set_best_from_result(s);
    s->has_progress = true;
    return true;
}

/* Tries s->next with its own contents, then with other seeds if contents matter: a smaller tensor has other elements, and a
 * single NaN may be lost. Makes the first one that fails the best case. Returns whether one does. */
static bool shrink_try_next_with_other_contents(shrinker *s)
{
    bool random = false, special = false;
    for (size_t i = 0; i < s->best.ntensors; i++) {
        random |= s->best.tensors[i].present && s->best.tensors[i].fill != CHECK_FILL_SEQUENCE;
        special |= s->best.tensors[i].present && s->best.tensors[i].fill == CHECK_FILL_SPECIAL_VALUES;
    }
    const check_case first = s->next;
    if (shrink_try_next_case(s))
        return true;
    for (uint64_t k = 1; k <= (special ? MAX_SPECIAL_CONTENTS : random ? MAX_RANDOM_CONTENTS : 0); k++) {
        s->next = first;
        s->next.seed += 2 * k * 1000003; /* the seed's last bit stays, since it decides which special values are drawn */
        if (shrink_try_next_case(s))
            return true;
    }
    return false;
}

/* Fits s->next to the contract by check_try_fit_case(), and makes it the best case if it still fails. Returns whether it does. */
static bool shrink_try_next_fitted(shrinker *s)
{
    return !s->best.is_invalid && check_try_fit_case(s->job->op, &s->next, &s->best, NULL) &&
        shrink_try_next_with_other_contents(s);
}

/* Searches for the smallest size with which the case fails, and makes that the best case. Tries 0 to NUM_SMALL_SIZES - 1, then
 * steps down by a half, a quarter, and so on to 1. size_in_next: the size in s->next; size_in_best: the same size in s->best.
 * try_next: makes s->next the best case if it fails, and returns whether it does. */
static void shrink_size(shrinker *s, int64_t *size_in_next, const int64_t *size_in_best, bool (*try_next)(shrinker *))
{
    for (int64_t to = 0; to < NUM_SMALL_SIZES && to < *size_in_best; to++) {
        s->next = s->best;
        *size_in_next = to;
        if (try_next(s))
            return;
    }
    for (int64_t step = *size_in_best / 2; step > 0; step /= 2) {
        s->next = s->best;
        *size_in_next = *size_in_best - step;
        if (*size_in_next >= NUM_SMALL_SIZES)
            try_next(s);
    }
}

/* Removes dims of tensors, if there is a contract, and makes sizes smaller, one at a time. With a contract, other dims follow. */
static void shrink_dims(shrinker *s)
{
    bool (*const accept)(shrinker *) = s->best.is_invalid || !s->job->op->contract ? shrink_try_next_with_other_contents
                                                                                   : shrink_try_next_fitted;
    for (size_t i = 0; i < s->best.ntensors; i++) {
        check_tensor *next = &s->next.tensors[i], *best = &s->best.tensors[i];
        for (int32_t d = 0; d < best->ndim && best->present && accept == shrink_try_next_fitted;
            d++) { /* tries to remove the dim */
            s->next = s->best;
            memmove(&next->shape[d], &next->shape[d + 1], sizeof *next->shape * (size_t)(CHECK_MAX_DIMS - 1 - d));
            next->ndim--;
            d -= check_try_fit_case(s->job->op, &s->next, &s->best, NULL) && next->ndim < best->ndim &&
                shrink_try_next_with_other_contents(s);
        }
        for (int32_t d = 0; d < best->ndim && best->present; d++)
            shrink_size(s, &next->shape[d], &best->shape[d], accept);
    }
}

/* Replaces old_size by new_size everywhere in shapes and int arguments, which keeps equal sizes equal. Makes the case the best
 * one and returns true if it still fails. */
static bool shrink_try_size_replaced(shrinker *s, int64_t old_size, int64_t new_size)
{
    s->next = s->best;
    for (size_t i = 0; i < s->next.ntensors; i++)
        for (int32_t d = 0; d < s->next.tensors[i].ndim; d++)
            if (s->next.tensors[i].shape[d] == old_size)
                s->next.tensors[i].shape[d] = new_size;
    for (size_t a = 0; a < s->next.nargs; a++)
        if (s->next.args[a].type == DV_VALUE_INT && s->next.args[a].as.i == old_size)
            s->next.args[a].as.i = new_size;
    return shrink_try_next_with_other_contents(s);
}

/* Makes each size of the case smaller, everywhere it occurs, by the steps of shrink_size(). */
static void shrink_equal_sizes(shrinker *s)
{
    int64_t values[64];
    size_t n = 0;
    for (size_t i = 0; i < s->best.ntensors; i++)
        for (int32_t d = 0; d < s->best.tensors[i].ndim && s->best.tensors[i].present && n < 64; d++)
            values[n++] = s->best.tensors[i].shape[d];
    for (size_t k = 0; k < n; k++) {
        int64_t to = 0, value = values[k];
        while (to < NUM_SMALL_SIZES && to < value && !shrink_try_size_replaced(s, value, to))
            to++;
        for (int64_t step = to < NUM_SMALL_SIZES ? 0 : value / 2; step > 0; step /= 2)
            if (value - step >= NUM_SMALL_SIZES && shrink_try_size_replaced(s, value, value - step))
                value -= step;
    }
}

/* Simplifies each tensor as far as the case still fails: None if it is optional, contiguous, a sequence or random numbers. */
static void shrink_simplify_tensors(shrinker *s)
{
    for (size_t i = 0; i < s->best.ntensors; i++) {
        const size_t slot = check_find_tensor_slot(&s->best, i);
        s->next = s->best;
        s->next.tensors[i].present = !(s->job->op->slots[slot].flags & (DV_SLOT_OPTIONAL | DV_SLOT_ELEMENT_OPTIONAL)) &&
            s->best.tensors[i].present;
        if (shrink_try_next_case(s))
            continue;
        s->next = s->best;
        s->next.tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
        shrink_try_next_case(s);
        s->next = s->best;
        s->next.tensors[i].fill = CHECK_FILL_SEQUENCE;
        if (!shrink_try_next_case(s) && s->best.tensors[i].fill == CHECK_FILL_SPECIAL_VALUES) {
            s->next = s->best;
            s->next.tensors[i].fill = CHECK_FILL_RANDOM;
            shrink_try_next_case(s);
        }
    }
}

/* Shortens lists of tensors, sets arguments to their defaults, and makes int arguments smaller, as far as the case still fails.
 */
static void shrink_arguments(shrinker *s)
{
    for (size_t i = 0; i < s->best.nargs; i++) {
        check_value *v = &s->next.args[i];
        s->next = s->best;
        if (v->type == DV_VALUE_TENSORS && v->count > 1) {
            check_set_tensor_list_length(&s->next, i, v->count - 1);
            if (!shrink_try_next_fitted(s)) {
                s->next = s->best;
                check_set_tensor_list_length(&s->next, i, v->count - 1);
                shrink_try_next_case(s);
            }
            continue;
        }
        if (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS || v->type == DV_VALUE_DEFAULT)
            continue;
        if (s->job->op->slots[i].default_value.type != DV_VALUE_DEFAULT) {
            memset(v, 0, sizeof *v);
            if (shrink_try_next_case(s))
                continue;
        }
        if (s->best.args[i].type == DV_VALUE_INT)
            shrink_size(s, &v->as.i, &s->best.args[i].as.i, s->best.is_invalid ? shrink_try_next_case : shrink_try_next_fitted);
    }
}

/* ---- Failures that need a preceding call ---- */

/* Searches for a preceding call with which the case always fails: one of the last three cases before it, or the first. Sets
 * job->preceding_case to it and returns true; else returns false. */
static bool shrink_try_set_preceding_case(check_job *job, const check_case *failing_case, check_result *shared)
{
    static check_case before;
    const uint32_t at = job->result->plan_index, numbers[] = { at - 1, at - 2, at - 3, 0 };
    if (!job->property->test_case || !job->plan || !at)
        return false;
    job->preceding_case = &before;
    for (size_t k = 0; k < 2 * sizeof numbers / sizeof *numbers; k++) {
        int times = 0;
        const uint32_t number = numbers[k / 2];
        job->preceding_guard_side = k % 2 ? CHECK_GUARD_BEFORE : CHECK_GUARD_AFTER;
        if (number < at)
            check_copy_case_with_seed(&job->plan->cases[number], job->seed, &before);
        while (number < at && times < CHECK_REPEATS && check_case_fails_again(job, failing_case, shared))
            times++;
        if (times == CHECK_REPEATS)
            return true;
    }
    job->preceding_case = NULL;
    return false;
}

/* Sets job->key to the key of a case, and job->repeats, if the case that is parsed from the key fails in the same way. Returns
 * whether it does. */
static bool shrink_try_set_reproducing_key(check_job *job, const check_case *failing_case, check_result *shared)
{
    static check_repeat g, read;
    g = (check_repeat){ .property = job->property,
        .op = job->op,
        .kernel = job->kernel,
        .repeats_one_case = true,
        .has_preceding_case = job->preceding_case != NULL };
    g.preceding_guard_side = job->preceding_guard_side;
    g.repeated_case = *failing_case;
    if (g.has_preceding_case)
        g.preceding_case = *job->preceding_case;
    char *key = check_repeat_new_key(&g);
    const int tries = job->result->fault_kind == CHECK_FAULT_TIMEOUT
        ? 1
        : CHECK_REPEATS; /* one try for an endless call, which takes long */
    job->repeats = 0;
    if (key && !check_key_parse(key, job->op, 1, &read)) {
        job->preceding_case = g.has_preceding_case ? &read.preceding_case : NULL;
        for (int i = 0; i < tries && (i == 0 || job->repeats); i++)
            job->repeats += check_case_fails_again(job, &read.repeated_case, shared);
        job->repeats += job->repeats == tries ? CHECK_REPEATS - tries : 0;
    }
    if (job->repeats)
        job->key = key;
    else
        free(key);
    job->preceding_case = g.has_preceding_case ? &g.preceding_case : NULL;
    return job->repeats > 0;
}

static shrinker last_seen_case; /* state that the last check_try_shrink_case_fully() left */

void check_job_set_key(check_job *job)
{
    if (!last_seen_case.found)
        return;
    if (!shrink_try_set_reproducing_key(job, &job->result->current_case, last_seen_case.shared))
        shrink_try_set_reproducing_key(job, &last_seen_case.tried, last_seen_case.shared);
    if (job->preceding_case) {
        job->result->has_preceding_case = true;
        job->result->preceding_case = *job->preceding_case;
    }
    job->preceding_case = NULL;
}

bool check_try_shrink_case_fully(check_job *job)
{
    static check_result *shared;
    if (!shared)
        shared = check_map_shared_result();
    last_seen_case = (shrinker){
        .job = job, .best = job->result->current_case, .shared = shared, .end_seconds = shrink_get_seconds() + MAX_SECONDS
    };
    last_seen_case.tried = last_seen_case.best;
    if (!shared ||
        !(check_case_fails_again(job, &last_seen_case.best, shared) ||
            shrink_try_set_preceding_case(job, &last_seen_case.best, shared)))
        return true; /* the failure is not reproducible: the case stays as it was found */
    last_seen_case.found = true;
    shrink_set_best_from_result(&last_seen_case);
    do {
        last_seen_case.has_progress = false;
        shrink_dims(&last_seen_case);
        shrink_arguments(&last_seen_case);
        shrink_simplify_tensors(&last_seen_case);
        shrink_equal_sizes(&last_seen_case);
    } while (last_seen_case.has_progress && shrink_get_seconds() < last_seen_case.end_seconds);
    job->result->current_case = last_seen_case.best;
    return shrink_get_seconds() < last_seen_case.end_seconds;
}
