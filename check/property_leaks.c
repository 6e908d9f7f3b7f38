/* leaks: calls release all resources that they take. The same call many times over, in plain memory: the memory of malloc(),
 * descriptors, threads and mappings grow in none, or not in every one, of four equal stretches. Calls that the kernel refuses
 * count as well as those that succeed, and a case after whose call more is held than before is always counted.
 * Then each allocation that the host makes for a call fails in turn, and each malloc() of the kernel's own: the call returns an
 * error, does not crash, and leaks nothing. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "programs/leaks.h"

enum {
    CALLS = 1000,
    FEWEST = 80,
    STRETCHES = 4,
    WARM = 20,
    SEEN = 10,
    FEW = 48,
    MOST_FAILING = 64,
    LARGEST = 4096,
    MOST_KEPT = 16,
    MOST_LARGE = 40000, /* elements of a large case, and how many of these */
    MANY_LARGE = 12,
    STEP = 4 /* by which a case may be larger than those that were quick: a kernel may be quadratic */
};
static const double SECONDS = 0.02;   /* for the calls of a case */
static const double MOST_SECONDS = 1; /* for its allocations that fail */

static double used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void call_often(check_plain *p, int n)
{
    while (n-- > 0)
        check_plain_call(p);
}

/* The number of calls in a stretch, from the available time. */
static int stretch_of(check_plain *p)
{
    const double begin = used();
    call_often(p, WARM);
    const double each = (used() - begin) / WARM, fit = each > 0 ? SECONDS / each : CALLS;
    return (fit > CALLS ? CALLS : fit < FEWEST ? FEWEST : (int)fit) / STRETCHES;
}

/* In stretches of n calls; 0: of as many as the time allows. */
static void check_growth(check_job *job, check_plain *p, int n)
{
    long long at[STRETCHES + 1][KINDS];
    job->how.show = n ? CHECK_SHOW_FAILING : CHECK_SHOW_LEAKS; /* n: something fails as well */
    if (n)
        call_often(p, WARM);
    else
        n = stretch_of(p);
    for (int i = 0; i < SEEN; i++) /* the measurement itself uses malloc(), which keeps some freed memory */
        look(at[0]);
    for (int i = 0; i < STRETCHES; i++) {
        call_often(p, n);
        look(at[i + 1]);
    }
    for (int k = 0; k < KINDS; k++) {
        bool grows = true;
        for (int i = 0; i < STRETCHES; i++)
            grows = grows && at[i + 1][k] - at[i][k] >= (k == HEAP ? n : n / 2);
        if (grows)
            check_fail(
                job, kinds[k], "%s leak: ever more are held, call after call%s", kinds[k], p->status ? ", when it fails" : "");
    }
}

/* Of a large case: is more held after a second call than after the first? */
static bool holds_more(check_plain *p)
{
    long long before[KINDS], after[KINDS];
    bool more = false;
    check_plain_call(p);
    for (int i = 0; i < 2; i++)
        look(before);
    check_plain_call(p);
    look(after);
    for (int k = 0; k < KINDS; k++)
        more |= after[k] > before[k];
    return more;
}

/* ---- Failing allocations ---- */

/* Allocation i of the host, or of the kernel's malloc(), fails repeatedly; nothing may leak. */
static void check_one_failing(check_job *job, check_plain *p, size_t i, bool own, const check_outs *whole)
{
    static check_outs now;
    char words[300];
    const char *which = own ? "malloc()" : "an allocation";
    p->fail_at = own ? 0 : i;
    p->malloc_fails_at = own ? i : 0;
    job->how.show = job->result->own_show = CHECK_SHOW_FAILING;
    snprintf(job->result->during, sizeof job->result->during, "when %s fails", own ? "its malloc()" : "one of its allocations");
    check_plain_call(p);
    if (!p->status) {
        check_outs_take(&now, job->op, p->c, p->results, p->values.tensors);
        if (!job->op->random && check_outs_differ(job->op, whole, &now, words, sizeof words))
            check_fail(job, "failed allocation", "%s fails, the call succeeds, and its result is another: %s", which, words);
    } else if (!*dv_last_error() || (p->status != DV_ENOMEM && strstr(dv_last_error(), "and no message"))) {
        check_fail(job, "failed allocation", "%s fails, and the error says nothing: %s", which, dv_last_error());
    }
    for (size_t r = 0; r < job->op->nresults; r++)
        if (p->status && p->results[r].type != DV_VALUE_DEFAULT)
            check_fail(job, "failed allocation", "%s fails, and a result is given all the same", which);
    if (job->result->outcome == CHECK_PASS && p->status)
        check_growth(job, p, FEW / STRETCHES);
}

static void check_failing(check_job *job, check_plain *p)
{
    static check_outs whole;
    p->counts_mallocs = true;
    check_plain_call(p);
    if (p->status || p->incomplete)
        return;
    check_outs_take(&whole, job->op, p->c, p->results, p->values.tensors);
    const size_t n = p->allocations, own = p->mallocs;
    const double until = used() + MOST_SECONDS;
    job->result->own = CHECK_FAULT_CRASH | CHECK_FAULT_TIME;
    for (size_t i = 1; i <= n && i <= MOST_FAILING && job->result->outcome == CHECK_PASS && used() < until; i++)
        check_one_failing(job, p, i, false, &whole);
    for (size_t i = 1; i <= own && i <= MOST_FAILING && job->result->outcome == CHECK_PASS && used() < until; i++)
        check_one_failing(job, p, i, true, &whole);
    p->fail_at = p->malloc_fails_at = 0;
    job->result->own = 0;
}

/* The ways through a kernel that a case can take: of each, one is counted; of plain cases, more. */
enum way { REFUSED = 1, EMPTY = 2, NONE = 4, STRIDED = 8, WAYS = 16 };
static uint32_t way_of(const check_case *c, bool is_refused)
{
    uint32_t way = is_refused ? REFUSED : 0;
    for (size_t i = 0; i < c->ntensors; i++)
        way |= !c->tensors[i].present ? NONE : !check_numel(&c->tensors[i]) ? EMPTY : c->tensors[i].layout ? STRIDED : 0;
    return way & EMPTY ? way & ~(uint32_t)STRIDED : way;
}

/* In a process of its own: a call with contents that a fact forbids, which the kernel refuses by itself. */
static void call_forbidden(check_job *job, const check_case *c)
{
    static check_call call;
    static check_plain p;
    call = (check_call){ .op = job->op, .row = job->row, .poison = 0xa5 };
    check_call_run(&call, c); /* what crashes, crashes here */
    if (call.status && call.kernel_ran && check_plain_make(&p, job->op, job->row, c))
        check_growth(job, &p, 0);
}

/* Makes a call in which one element is NaN or an infinity, which may take another way through the kernel, and repeats it if it
 * holds more than before. */
static void call_with_lone_special(check_job *job, const check_case *c)
{
    static check_case lone;
    static check_call call;
    static check_plain p;
    static uint32_t nkept;
    if (!check_with_lone_special(job->op, c, &lone))
        return;
    check_in_hand(job, &lone);
    call = (check_call){ .op = job->op, .row = job->row, .poison = 0xa5 };
    const size_t before = check_heap_kept();
    check_call_run(&call, &lone);
    if (check_heap_kept() > before && nkept++ < MOST_KEPT && check_plain_make(&p, job->op, job->row, &lone))
        check_growth(job, &p, 0);
    if (job->result->outcome == CHECK_PASS)
        check_in_hand(job, c);
}

static void attempt(check_job *job, const check_case *c)
{
    static check_call call;
    static check_plain p;
    enum { FORBIDDEN = 3 };
    static uint32_t counted[WAYS], nkept, nlarge, nheavy, nforbidden; /* cases */
    const bool again = !job->result->cases;
    if (c->broken) { /* one with forbidden contents, made smaller */
        if (check_judge(job->op, c) == CHECK_UNFIT)
            check_apart(job, c, call_forbidden);
        return;
    }
    if (check_case_largest(c) > LARGEST && !again) {
        static int64_t quick = LARGEST; /* the most elements with which a call was quick */
        const double begin = used();
        const int64_t n = check_case_largest(c);
        if (n > MOST_LARGE || n > STEP * quick || nlarge++ >= MANY_LARGE || !check_plain_make(&p, job->op, job->row, c))
            return;
        if (holds_more(&p) && nkept++ < MOST_KEPT)
            check_growth(job, &p, 0);
        if (used() - begin < SECONDS && n > quick)
            quick = n;
        return;
    }
    call = (check_call){ .op = job->op, .row = job->row, .poison = 0xa5 };
    const double begin = used();
    const size_t before = check_heap_kept();
    check_call_run(&call, c); /* what crashes, crashes here */
    const bool slow = used() - begin > SECONDS,
               heavy = used() - begin > SECONDS / 16 && nheavy++<WARM, kept = check_heap_kept()> before && nkept++ < MOST_KEPT;
    if (call.not_this_row) {
        job->result->cases--;
        return;
    }
    if (call.status)
        check_refused(job);
    if (!slow && !again)
        call_with_lone_special(job, c);
    if (job->result->outcome != CHECK_PASS)
        return;
    const uint32_t way = way_of(c, call.status);
    if (slow)
        check_left_out(job, "calls that take longer than 20 ms, which were not repeated");
    if (slow || (heavy && !kept && !again) || (counted[way] > !way && !again && !kept) ||
        !check_plain_make(&p, job->op, job->row, c))
        return;
    counted[way]++;
    check_growth(job, &p, 0);
    if (job->result->outcome == CHECK_PASS)
        check_failing(job, &p);
    if (!call.status && !(way & EMPTY) && nforbidden < FORBIDDEN)
        nforbidden += check_apart_forbidden(job, c, call_forbidden);
}

const check_property check_property_leaks = {
    .name = "leaks",
    .promise = "what calls take, they give back, also those that fail; a failing allocation is an error and no crash",
    .each_row = true,
    .attempt = attempt,
    .needs_sound_row = true,
};
