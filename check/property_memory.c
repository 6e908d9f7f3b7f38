/* memory: a kernel accesses only its tensors, writes only and all of what it declares, and reads no unwritten memory.
 *
 * Three calls: exactly against the upper guard page, the same with other contents of what is undefined, and against the lower
 * guard page. An element of a result that holds the old contents in both of the first was not written. A result or a written
 * argument that differs between the first two, though the inputs are the same and lie at the same place, depends on undefined
 * memory, unless it differs without that as well. The third call finds zeros in what is undefined: a flag that nobody clears
 * looks set in the first two. Its results may differ because addresses do, so a difference is looked for again at the upper guard
 * page. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { POISON = 0xa5, OTHER_POISON = 0x5a, ZEROS = 0, ENOUGH = 24, PLACES = 4 };

static check_outs first, second, again; /* what calls left in results and written arguments */

static bool run(check_job *job, const check_case *c, enum check_end end, int poison, check_call *call)
{
    const uint8_t byte = (uint8_t)poison;
    *call = (check_call){
        .op = job->op, .row = job->row, .end = end, .ends_at_guard = true, .poison = byte, .stack = byte, .fill = byte
    };
    job->how.end = end;
    job->how.ends_at_guard = true;
    check_call_run(call, c);
    return !call->status;
}

static void take(check_outs *outs, const check_job *job, const check_case *c, const check_call *call)
{
    check_outs_take(outs, job->op, c, call->results, check_call_tensors());
}

/* A kernel gets the result's own header: it may not put another address or shape into it. */
static void check_headers(check_job *job, const check_call *call, const check_case *c)
{
    char name[120];
    for (check_fresh of = { 0 }; check_call_fresh(call, &of);) {
        if (!memcmp(of.t, of.made, sizeof *of.t))
            continue;
        check_fresh_name(call, &of, name, sizeof name);
        for (size_t i = 0; i < c->ntensors; i++)
            if (c->tensors[i].present && of.t->data == check_call_tensor(i)->data && of.t->data != of.made->data)
                check_fail(job, "undeclared alias",
                    "%s shares the memory of argument '%s', and the schema declares no alias: the kernel changed the "
                    "address in its header",
                    name, job->op->slots[check_tensor_argument(c, i)].name);
        check_fail(job, "changed header", "the kernel changed the header of %s: its %s", name,
            of.t->data != of.made->data ? "address" : "shape or dtype");
    }
}

static bool is_poison(const unsigned char *p, size_t size, unsigned char poison)
{
    while (size && *p == poison)
        p++, size--;
    return !size;
}

/* True if the first call's result holds POISON in this element, and the second call's OTHER_POISON. */
static bool is_unwritten(const check_out *a, const check_out *b, int64_t i)
{
    const size_t size = (size_t)dv_dtype_bytes(a->t.dtype, 1), at = (size_t)i * size;
    return is_poison((const unsigned char *)a->t.data + at, size, POISON) &&
        is_poison((const unsigned char *)b->t.data + at, size, OTHER_POISON);
}

static bool all_written(check_job *job)
{
    char name[120], index[200];
    for (size_t k = 0; k < first.n && k < second.n; k++) {
        const check_out *a = &first.of[k], *b = &second.of[k];
        const int64_t n = a->t.dtype.bits < 8 ? dv_dtype_bytes(a->t.dtype, dv_numel(&a->t)) : dv_numel(&a->t);
        int64_t missing = 0, which = -1;
        if (a->slot < job->op->nargs || dv_numel(&a->t) != dv_numel(&b->t))
            continue;
        for (int64_t i = 0; i < n; i++)
            if (is_unwritten(a, b, i)) {
                missing++;
                which = which < 0 ? i : which;
            }
        if (!missing)
            continue;
        check_out_name(job->op, a, name, sizeof name);
        if (a->number) {
            job->how.show = CHECK_SHOW_STACK;
            check_fail(job, "unwritten", "the kernel does not set %s", name);
        }
        check_index_print(a->t.ndim, a->t.shape, which, index, sizeof index);
        check_fail(job, "unwritten", "the kernel leaves %lld of the %lld elements of %s unwritten, the first at [%s]",
            (long long)missing, (long long)n, name, index);
        return false;
    }
    return true;
}

static bool same(const check_job *job, const check_outs *a, const check_outs *b)
{
    char words[300];
    return !check_outs_differ(job->op, a, b, words, sizeof words);
}

/* True if such a call's results equal the first call's. */
static bool is_as_first(check_job *job, const check_case *c, check_call call)
{
    static check_call now;
    now = call;
    now.op = job->op;
    now.row = job->row;
    now.ends_at_guard = true;
    check_call_run(&now, c);
    take(&again, job, c, &now);
    return !now.status && same(job, &first, &again);
}

/* Reports the first element that differs between the first and the second call. poison: the second call's fill of undefined
 * memory. */
static void check_undefined(check_job *job, const check_case *c, uint8_t poison)
{
    char words[300];
    if (!check_outs_differ(job->op, &first, &second, words, sizeof words))
        return;
    if (is_as_first(job, c, (check_call){ .poison = poison, .stack = POISON, .fill = poison })) {
        job->how.show = CHECK_SHOW_STACK;
        check_fail(job, "variable not set",
            "what the kernel writes depends on a variable of the kernel that was never set: %s when only what the stack held "
            "differs",
            words);
    } else if (is_as_first(job, c, (check_call){ .poison = poison, .stack = poison, .fill = POISON })) {
        job->how.show = CHECK_SHOW_STACK;
        check_fail(job, "number not set",
            "what the kernel gives depends on a number that nobody set (a result that is an int, float or bool, `value` of an "
            "optional without `has`, or a member of a Scalar of another kind): %s when only that differs",
            words);
    }
    check_fail(job, "uninitialised",
        "what the kernel writes depends on memory that nobody wrote (the workspace, scratch, dv_alloc(), malloc() or the result "
        "itself): %s when only that differs",
        words);
}

/* True if repeated calls always give the first call's results with POISON in undefined memory, and the second call's results with
 * `poison`. Else the results also differ without it, for example by a count of calls. The order of the calls has no period. */
static bool follows_poison(check_job *job, const check_case *c, uint8_t poison, check_call *call)
{
    static const char order[] = "abbabaabbaab";
    for (const char *p = order; *p; p++) {
        if (!run(job, c, CHECK_AT_END, *p == 'a' ? POISON : poison, call))
            return false;
        take(&again, job, c, call);
        if (!same(job, *p == 'a' ? &first : &second, &again))
            return false;
    }
    return true;
}

static void check_gaps(check_job *job, const check_case *c)
{
    int64_t offset;
    char what[160];
    job->how.show = CHECK_SHOW_GAPS;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && check_call_gaps_changed(c, i, &offset))
            check_fail(job, "write between elements",
                "the kernel writes between the elements of argument '%s', which is not contiguous: byte %lld",
                job->op->slots[check_tensor_argument(c, i)].name, (long long)offset);
    job->how.show = CHECK_SHOW_BOUNDS;
    if (check_heap_slack_changed(what, sizeof what))
        job->how.show = CHECK_SHOW_HEAP;
    const bool changed = check_call_slack_changed(what, sizeof what);
    if (changed && strstr(what, check_earlier(true))) /* a program makes one call */
        job->how.show = CHECK_SHOW_NOTHING;
    if (changed)
        check_fail(job, "writes past the end", "the kernel writes outside %s", what);
}

/* ---- Indices past 2^31 ---- */

enum { FAR_CASES = 2, FAR_ELEMENTS = 256, FAR_MS = 50, TOO_SLOW = 78, NO_MEMORY = 79, MOST_DATA = 1 << 30 };
enum beyond { LOOKED, NOTHING_TO_TRY, REFUSED_MEMORY, SLOW }; /* the last that holds counts */
static const char *const without[] = {
    [NOTHING_TO_TRY] = "indices past 2^31: no small case could be made so large",
    [REFUSED_MEMORY] = "indices past 2^31: neither the system nor a call had memory for them",
    [SLOW] = "indices past 2^31 beyond what a call touches in its first 50 ms",
};

static void too_slow(int number)
{
    (void)number;
    _exit(TOO_SLOW);
}

/* The last elements of a result that is larger than any memory hold what they held before. */
static bool end_is(const dv_tensor *t, unsigned char poison)
{
    const int64_t bytes = dv_dtype_bytes(t->dtype, 1), n = dv_numel(t);
    return is_poison((const unsigned char *)t->data + (n - FAR_ELEMENTS) * bytes, (size_t)(FAR_ELEMENTS * bytes), poison);
}

static void call_beyond(check_job *job, const check_case *c)
{
    static check_call call;
    char name[120];
    bool left[CHECK_RESULTS + CHECK_TENSORS] = { false };
    for (int turn = 0; turn < 2; turn++) {
        const int poison = turn ? OTHER_POISON : POISON;
        if (!run(job, c, CHECK_AT_END, poison, &call)) {
            if (call.status == DV_ENOMEM)
                _exit(NO_MEMORY);
            return;
        }
        job->how.show = CHECK_SHOW_FAR;
        size_t k = 0;
        for (check_fresh of = { 0 }; check_call_fresh(&call, &of); k++) {
            left[k] = dv_numel(of.t) > INT32_MAX && end_is(of.t, (unsigned char)poison) && (!turn || left[k]);
            if (turn && left[k])
                check_fail(job, "unwritten",
                    "the kernel leaves the end of %s unwritten, which has %lld elements: more than 32 bits can count",
                    check_fresh_name(&call, &of, name, sizeof name), (long long)dv_numel(of.t));
        }
    }
}

/* In a process of its own, and for a short time: what is found in it is found at once or not at all. */
static enum beyond try_beyond(check_job *job, const check_case *c)
{
    check_result *r = job->result;
    int status = 0;
    const pid_t pid = check_fork();
    if (pid < 0)
        return REFUSED_MEMORY;
    if (!pid) {
        const struct itimerval t = { .it_value = { 0, FAR_MS * 1000 } };
        setrlimit(
            RLIMIT_DATA, &(struct rlimit){ MOST_DATA, MOST_DATA }); /* of what it asks for itself there is no more than usual */
        signal(SIGPROF, too_slow);
        setitimer(ITIMER_PROF, &t, NULL);
        call_beyond(job, c);
        _exit(0);
    }
    r->helper = (int32_t)pid;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    r->helper = 0;
    r->how.show = CHECK_SHOW_FAR;
    const bool other_fault = r->fault && r->fault != CHECK_FAULT_MEMORY;
    if (other_fault) { /* perhaps an allocation of the operator failed: no failure of this property */
        r->fault = 0;
        r->outcome = CHECK_PASS;
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : NO_MEMORY;
    return code == TOO_SLOW ? SLOW : code == NO_MEMORY || other_fault ? REFUSED_MEMORY : LOOKED;
}

/* Calls the kernel for each tensor that can have elements 2^31 apart. turn: selects the dim, as check_tensor.form. */
static enum beyond go_apart(check_job *job, const check_case *c, uint32_t turn)
{
    static check_case far;
    static check_call call;
    enum beyond done = NOTHING_TO_TRY;
    for (size_t i = 0; i < c->ntensors && job->result->outcome == CHECK_PASS; i++)
        if (c->tensors[i].present && check_numel(&c->tensors[i]) && check_numel(&c->tensors[i]) <= FAR_ELEMENTS &&
            check_far_dim(&c->tensors[i]) >= 0) {
            far = *c;
            far.tensors[i].layout = CHECK_FAR;
            far.tensors[i].form = turn % 2;
            check_in_hand(job, &far);
            done = !run(job, &far, CHECK_AT_END, POISON, &call) && call.status == DV_ENOMEM ? REFUSED_MEMORY : LOOKED;
        }
    return done;
}

/* A size so large that a tensor has more than 2^31 elements: first where only what is read has. */
static enum beyond go_beyond(check_job *job, const check_case *c)
{
    static check_case far;
    bool wide, end = false;
    enum beyond done = NOTHING_TO_TRY;
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t k = 0; job->result->outcome == CHECK_PASS; k++) {
            far = *c;
            const bool made = check_enlarge(job->op, &far, k, &wide, &end);
            if (end)
                break;
            if (made && wide == turn) {
                check_in_hand(job, &far);
                const enum beyond now = try_beyond(job, &far);
                done = done == NOTHING_TO_TRY || now > done ? now : done;
            }
        }
    return done;
}

static check_case early[ENOUGH]; /* small cases from before the first look */
static uint32_t nearly;

/* Tries indices past 2^31, after some plain cases. Far elements take little time, and show little where indices are zero or sizes
 * equal: each small case has them. Few cases are made so large. */
static void look_past_32_bits(check_job *job, const check_case *c)
{
    static enum beyond apart = NOTHING_TO_TRY, beyond = NOTHING_TO_TRY;
    static uint32_t aparts, beyonds;
    static check_case small;
    enum beyond done;
    small = *c;
    for (bool last = false; !last && apart != REFUSED_MEMORY && job->result->outcome == CHECK_PASS;) {
        last = !nearly;
        done = go_apart(job, last ? &small : &early[--nearly], aparts);
        aparts += done != NOTHING_TO_TRY;
        apart = done == NOTHING_TO_TRY ? apart : done;
    }
    if (job->result->outcome != CHECK_PASS)
        return;
    if (beyonds < FAR_CASES && (done = go_beyond(job, &small)) != NOTHING_TO_TRY) {
        beyond = done;
        beyonds = done != REFUSED_MEMORY ? beyonds + 1 : FAR_CASES;
    }
    const enum beyond worst = apart == REFUSED_MEMORY || (beyond == NOTHING_TO_TRY && apart != NOTHING_TO_TRY) ? apart : beyond;
    check_left_out(job, worst == LOOKED ? NULL : without[worst]);
}

/* An argument that is declared to be written, or an element of a list by its place, and no case changes it. */
static void check_unchanged(check_job *job, const check_case *c)
{
    static uint32_t seen[CHECK_ARGS][PLACES], changed[CHECK_ARGS][PLACES];
    for (size_t i = 0; i < c->ntensors && job->result->outcome == CHECK_PASS; i++) {
        const size_t slot = check_tensor_argument(c, i), place = i - c->args[slot].first;
        const bool list = c->args[slot].type == DV_VALUE_TENSORS;
        char at[24] = "";
        if (place >= PLACES || !c->tensors[i].present || check_numel(&c->tensors[i]) < 2 ||
            !(job->op->slots[slot].flags & DV_SLOT_WRITES))
            continue;
        changed[slot][place] += check_call_changed(i);
        if (++seen[slot][place] < ENOUGH || changed[slot][place])
            continue;
        job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
        if (list)
            snprintf(at, sizeof at, "[%zu]", place);
        check_fail(job, "never written",
            "the schema says that the kernel writes argument '%s', and none of %d cases changes %s%s", job->op->slots[slot].name,
            ENOUGH, list ? job->op->slots[slot].name : "it", at);
    }
}

/* Compares the first call with one at the same addresses that finds zeros in undefined memory, and reports a difference. */
static void check_zeros(check_job *job, const check_case *c)
{
    static check_call call;
    if (!run(job, c, CHECK_AT_END, ZEROS, &call))
        return;
    take(&second, job, c, &call);
    if (!same(job, &first, &second) && follows_poison(job, c, ZEROS, &call))
        check_undefined(job, c, ZEROS);
}

static void attempt(check_job *job, const check_case *c)
{
    static uint32_t attempts;
    static check_call call;
    if (!attempts++)
        check_left_out(job, without[NOTHING_TO_TRY]);
    const bool ran = run(job, c, CHECK_AT_END, POISON, &call);
    if (call.not_this_row) {
        job->result->cases--;
        return;
    }
    check_gaps(job, c);
    job->how.show = CHECK_SHOW_NOTHING;
    if (check_heap_overlapping())
        check_fail(job, "overlapping copy", "the kernel copies %zu bytes by memcpy() to memory that overlaps with where they are",
            check_heap_overlapping());
    job->how.show = CHECK_SHOW_HEADER;
    if (!ran)
        check_refused(job);
    else if (job->result->cases) /* not while it is made smaller */
        check_unchanged(job, c);
    check_headers(job, &call, c);
    if (job->result->outcome != CHECK_PASS)
        return;
    job->how.show = CHECK_SHOW_POISON;
    take(&first, job, c, &call);
    if (ran && run(job, c, CHECK_AT_END, OTHER_POISON, &call)) {
        take(&second, job, c, &call);
        if (all_written(job) && !job->op->random && !same(job, &first, &second) && follows_poison(job, c, OTHER_POISON, &call))
            check_undefined(job, c, OTHER_POISON);
    }
    if (job->result->outcome != CHECK_PASS)
        return;
    if (run(job, c, CHECK_AT_BEGIN, ZEROS, &call)) {
        take(&second, job, c, &call);
        check_gaps(job, c);
        if (ran && !job->op->random && !same(job, &first, &second))
            check_zeros(job, c);
    }
    if (!job->cases || job->result->outcome != CHECK_PASS || !job->op->contract || !ran || check_case_largest(c) <= 1 ||
        check_case_largest(c) > FAR_ELEMENTS)
        return;
    if (attempts > (job->cases / 2 < ENOUGH ? job->cases / 2 : ENOUGH))
        look_past_32_bits(job, c);
    else
        early[nearly++] = *c;
}

static const char *applies(const check_op *op, const check_row *row)
{
    (void)op;
    return row->index < 0 ? "the native form has no memory of its own" : NULL;
}

const check_property check_property_memory = {
    .name = "memory",
    .promise = "nothing is read or written outside the tensors, no input is written, every element of a result is, nothing "
               "undefined is read",
    .each_row = true,
    .faults = CHECK_FAULT_MEMORY,
    .applies = applies,
    .attempt = attempt,
};
