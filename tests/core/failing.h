/* Every allocation failed in turn. Include after cmocka.h.
 *
 *     static int parse(void *text)       // does the thing, checks the result, frees all that it made; returns the status
 *     {
 *         dv__schema *s;
 *         int status = dv__schema_parse(text, &s);
 *         dv__schema_free(s);
 *         return status;
 *     }
 *     static void test(void **state) { failing_each(parse, "f(Tensor x) -> Tensor"); }
 *
 * failing_each() runs it once as it is (it must give DV_OK; what is allocated once and kept, such as a cache, is allocated here),
 * then with the first allocation failing, the second, and so on until it passes; then the same with all later ones failing too. A
 * run in which an allocation failed must give DV_ENOMEM (or DV_OK, if the code can do without), and nothing may leak. */
#ifndef DV_TESTS_FAILING_H
#define DV_TESTS_FAILING_H

#include <stdlib.h>

#include "dovetail.h"

typedef struct failing {
    long n, fail_at, live;
    bool sticky, failed;
} failing;

static inline bool failing_now(failing *f)
{
    f->n++;
    if (f->n != f->fail_at && !(f->sticky && f->fail_at && f->n > f->fail_at))
        return false;
    f->failed = true;
    return true;
}

static inline void *failing_alloc(void *user, size_t size)
{
    failing *f = user;
    void *p = failing_now(f) ? NULL : malloc(size);
    f->live += p != NULL;
    return p;
}

static inline void *failing_realloc(void *user, void *old, size_t size)
{
    failing *f = user;
    void *p = failing_now(f) ? NULL : realloc(old, size);
    f->live += p && !old;
    return p;
}

static inline void failing_free(void *user, void *p)
{
    failing *f = user;
    f->live -= p != NULL;
    free(p);
}

/* One run with the fail_at-th allocation failing (0: none). Gives the status; *f tells the rest. */
static inline int failing_once(int (*fn)(void *arg), const void *arg, long fail_at, bool sticky, failing *f)
{
    memset(f, 0, sizeof *f);
    f->fail_at = fail_at;
    f->sticky = sticky;
    const dv_allocator a = { failing_alloc, failing_realloc, failing_free, f };
    dv_set_allocator(&a);
    const int status = fn((void *)(uintptr_t)arg);
    dv_set_allocator(NULL);
    return status;
}

/* Gives how many allocations a run takes. */
static inline long failing_each(int (*fn)(void *arg), const void *arg)
{
    failing f;
    int status = failing_once(fn, arg, 0, false, &f); /* caches fill here */
    if (status)
        fail_msg("without failing allocations: %s: %s", dv_status_name(status), dv_last_error());
    for (int sticky = 0; sticky < 2; sticky++)
        for (long n = 1;; n++) {
            dv_clear_error();
            status = failing_once(fn, arg, n, sticky, &f);
            if (f.live)
                fail_msg("allocation %ld failing%s: %ld blocks leak", n, sticky ? " and all later ones" : "", f.live);
            if (status && (!f.failed || status != DV_ENOMEM))
                fail_msg("allocation %ld failing%s: %s: %s", n, sticky ? " and all later ones" : "", dv_status_name(status),
                    dv_last_error());
            if (status && !*dv_last_error())
                fail_msg("allocation %ld failing: no message", n);
            if (!f.failed)
                break;
        }
    return f.n;
}

#endif
