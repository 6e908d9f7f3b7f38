/* parallel: what an operator says about parts and threads holds, and a call's results depend on its arguments alone.
 *
 * Of an operator that writes to static memory, first a call after one with another number, each in a new process. Then guarded
 * calls, in this order: other contents at the same addresses; the case; the case elsewhere; the case again. The
 * second and the last are the same call, so their bits are the same, unless the operator keeps something from call to call. Then
 * the pieces of a parallel loop in reverse order (so that a sum without a lock shows without a race), then 2 and 4 threads. Then
 * parts in plain memory: slices along `parallel` dims, and partitions of `sum` dims. At last the other pieces of a loop between
 * the instructions of one, a call of another thread during the first one of a process, a whole call of another thread between the
 * instructions of a call, then four threads at once, each with its own data, while a fifth stops them. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "programs/between.h"

enum {
    POISON = 0xa5,
    STRESSED = 4,
    OTHERS = 6,  /* values of an argument */
    SMALL = 512, /* elements */
    LARGE = 4200,
    RACED = 3,
    GROWN = 2,
    SHARED = 2000,
    THREADS = 4,
    MOST_STATIC = 1 << 20,
    NUMBERED = 3, /* cases, and so many with more elements */
    LARGE_NUMBERED = 5,
    FEW_ELEMENTS = 24,
    MOST_WORK = 1 << 20,
    FIRST_STOP = 16,
    LAST_STOP = 16384
};

static const double MOST_RACED = 0.25; /* seconds, after which no other case's pieces are stepped through */

static bool failed(const check_job *job) { return job->result->outcome != CHECK_PASS; }

/* ---- The same call again ---- */

typedef int (*loop_fn)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);

static check_result *result; /* of this child's job */
static int64_t pieces;       /* of the largest loop of a call */

static int in_order(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)host;
    (void)grain;
    pieces = end - begin > pieces ? end - begin : pieces;
    result->in_pieces |= pieces > 1;
    return fn(arg, begin, end);
}

static int in_reverse(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)host;
    (void)grain;
    for (int64_t i = end; i-- > begin;) {
        const int status = fn(arg, i, i + 1);
        if (status)
            return status;
    }
    return DV_OK;
}

/* ---- Loops of dv_parallel_for() ---- */

static bool is_cut(const check_loop *l) { return l->steps / (l->grain > 1 ? l->grain : 1) > 1; }

static void note_loop(const dv_host *host, int64_t begin, int64_t end, int64_t grain, void (*fn)(void))
{
    (void)host;
    for (check_loop *l = result->loops; l < result->loops + CHECK_LOOPS && end > begin; l++) {
        if (l->fn && l->fn != fn)
            continue;
        l->one = (!l->fn || l->one) && end - begin == 1;
        l->fn = fn;
        l->steps = end - begin;
        l->grain = grain;
        l->seen = result->cases;
        l->cut += is_cut(l) && l->at != l->seen;
        l->at = is_cut(l) ? l->seen : l->at;
        return;
    }
}

static int error;         /* errno before a call */
static uint64_t seed = 1; /* of dv_random() */
static bool used_scratch; /* pieces get memory as pieces left it */
static bool lent_scratch; /* the last call's pieces got memory */
static bool goes_on_now;  /* its numbers are those after the last call's */

/* False: it was refused. Random numbers begin with the same seed each time. */
static bool run(const check_job *job, const check_case *c, enum check_end end, loop_fn loop, bool whole, check_outs *outs)
{
    static check_call call;
    if (job->op->random && !goes_on_now)
        dv_set_seed(seed);
    call = (check_call){ .op = job->op,
        .row = job->row,
        .end = end,
        .poison = POISON,
        .error = error,
        .parallel_for = loop,
        .loop = note_loop,
        .whole = whole,
        .used_scratch = used_scratch };
    result = job->result;
    check_call_run(&call, c);
    lent_scratch = call.lent_scratch;
    if (call.status)
        return false;
    check_outs_take(outs, job->op, c, call.results, check_call_tensors());
    return true;
}

static double largest_rounding(const check_op *op, const check_outs *o)
{
    double most = 0;
    for (size_t i = 0; i < o->n; i++)
        most = fmax(most, check_out_rounding(op, &o->of[i]));
    return most;
}

static void check_again_and_elsewhere(check_job *job, const check_case *c, const check_outs *first)
{
    static check_outs elsewhere, last, again;
    char words[300];
    if (!run(job, c, CHECK_AT_BEGIN, in_order, false, &elsewhere) || !run(job, c, CHECK_AT_END, NULL, false, &last))
        return;
    job->how = (check_how){ .show = CHECK_SHOW_SAME, .atol = largest_rounding(job->op, first) };
    if (check_outs_differ(job->op, first, &last, words, sizeof words)) {
        const bool settled = run(job, c, CHECK_AT_END, NULL, false, &again) &&
            !check_outs_differ(job->op, &last, &again, words, sizeof words);
        check_outs_differ(job->op, first, &last, words, sizeof words);
        if (settled)
            check_fail(job, "keeps something",
                "the same call gives another result after other calls, so something is kept from call to call: %s", words);
        else
            check_fail(job, "not deterministic",
                "the same call made again gives another result, and no tag says nondeterministic: %s", words);
    } else if (check_outs_far(job->op, first, &elsewhere, words, sizeof words)) {
        check_fail(job, "depends on addresses", "the same arguments at other addresses give another result: %s", words);
    }
    if (failed(job))
        return;
    error = ERANGE;
    job->how = (check_how){ .show = CHECK_SHOW_ERRNO };
    if (!run(job, c, CHECK_AT_END, NULL, false, &again))
        check_fail(job, "depends on errno", "the call fails when errno is not 0 before it: %s", dv_last_error());
    else if (check_outs_differ(job->op, &last, &again, words, sizeof words))
        check_fail(job, "depends on errno", "another errno before the call gives another result: %s", words);
    error = 0;
}

/* Memory of pieces holds anything at first, which may be what a piece of another call left there. */
static void check_used_scratch(check_job *job, const check_case *before, const check_case *c, const check_outs *first)
{
    static check_outs other;
    char words[300];
    if (failed(job) || !lent_scratch)
        return;
    used_scratch = true;
    run(job, before, CHECK_AT_END, in_order, false, &other);
    job->how = (check_how){ .show = CHECK_SHOW_SCRATCH };
    if (run(job, c, CHECK_AT_END, in_order, false, &other) && check_outs_differ(job->op, first, &other, words, sizeof words))
        check_fail(job, "used scratch",
            "the result depends on what a piece of another call left in the memory of dv_parallel_scratch(), which holds "
            "anything at first: %s",
            words);
    used_scratch = false;
}

/* ---- Pieces and threads ---- */

/* From now on, until `own` is 0: crashes and bad accesses are these calls' own, and a program shows them in this way. */
static void begin_own(check_job *job, enum check_show show)
{
    job->how = (check_how){ .show = show };
    job->result->own_show = show;
    job->result->own = CHECK_FAULT_CRASH | CHECK_FAULT_MEMORY | CHECK_FAULT_TIME;
}

/* The same of calls that wait for each other. */
static void begin_wait(check_job *job, const char *during)
{
    job->result->own = CHECK_FAULT_TIME;
    job->result->own_show = CHECK_SHOW_NOTHING;
    snprintf(job->result->during, sizeof job->result->during, "%s", during);
}

static void check_pieces(check_job *job, const check_case *c, const check_outs *first)
{
    static check_outs other;
    char words[300], *during = job->result->during;
    begin_own(job, CHECK_SHOW_PIECES);
    snprintf(during, sizeof job->result->during, "when its pieces run in reverse order");
    if (run(job, c, CHECK_AT_END, in_reverse, false, &other) &&
        check_outs_disagree(job->op, c, first, &other, words, sizeof words))
        check_fail(job, "order of pieces",
            "the result depends on the order in which threads take the pieces of a parallel loop: %s", words);
    snprintf(during, sizeof job->result->during, "when the row is not cut at multiples of .split");
    if (!failed(job) && job->row->split && !job->op->random && run(job, c, CHECK_AT_END, NULL, true, &other) &&
        check_outs_disagree(job->op, c, &other, first, words, sizeof words))
        check_fail(job, "split differs",
            "the row says .split = %lld, and cut at multiples of this grain it gives another result than whole: %s",
            (long long)job->row->split, words);
    job->result->own = 0;
}

/* Its pieces at the same time: what they share without a lock shows by luck. */
static void check_at_once(check_job *job, const check_case *c, const check_outs *first)
{
    static check_outs other;
    char words[300], *during = job->result->during;
    if (failed(job))
        return;
    begin_own(job, CHECK_SHOW_PIECES);
    for (int threads = 2; threads <= THREADS && !failed(job); threads *= 2) {
        dv_set_threads(threads);
        snprintf(during, sizeof job->result->during, "when its pieces run on %d threads", threads);
        if (run(job, c, CHECK_AT_END, NULL, false, &other) && check_outs_disagree(job->op, c, first, &other, words, sizeof words))
            check_fail(job, "number of threads", "on %d threads the result is not the same as on one: %s", threads, words);
    }
    dv_set_threads(1);
    job->result->own = 0;
}

/* ---- Parts ---- */

/* A name along which a case is cut in two: [0, at) and [at, size) of it. */
typedef struct cutter {
    const check_op *op;
    const check_case *c;
    const check_name *name;
    int32_t axis; /* of a run: which of its dims */
    int64_t at, size;
    int axes[CHECK_TENSORS]; /* along which each tensor is cut */
} cutter;

enum { NOT_CUT = -1, UNSURE = -2 };

/* The dim that is `whole` in one shape and `part` in the other, where nothing else differs. */
static int cut_dim(
    const cutter *k, int64_t part, int32_t n, const int64_t *whole_shape, int32_t part_n, const int64_t *part_shape)
{
    int axis = NOT_CUT;
    if (n != part_n)
        return UNSURE;
    for (int32_t d = 0; d < n; d++)
        if (whole_shape[d] != part_shape[d])
            axis = axis == NOT_CUT && whole_shape[d] == k->size && part_shape[d] == part ? d : UNSURE;
    return axis;
}

bool check_resize(const check_op *op, const check_case *whole, const check_varied *of, int64_t *size, check_case *c, int *axes)
{
    *c = *whole;
    int64_t *const resized = of->name ? check_name_size(of->name, c) + of->axis : &c->args[of->slot].as.i;
    const cutter k = { .op = op, .c = whole, .size = *resized };
    *resized = *size;
    if (!check_fit(op, c, whole, NULL) || c->ntensors != whole->ntensors)
        return false;
    *size = *resized;
    for (size_t i = 0; i < c->nargs; i++)
        if (c->args[i].type == DV_VALUE_INT && c->args[i].as.i != whole->args[i].as.i && (of->name || i != of->slot))
            return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *from = &whole->tensors[i], *t = &c->tensors[i];
        axes[i] = t->present ? cut_dim(&k, *size, from->ndim, from->shape, t->ndim, t->shape) : NOT_CUT;
        if (t->present != from->present)
            return false;
    }
    return true;
}

/* The axes of tensors, by the case that check_fit() makes of a part; false: it cannot be said, or no tensor is cut. */
static bool axes_of_part(const cutter *k, int64_t part, int *axes)
{
    static check_case c;
    const check_varied of = { .name = k->name, .axis = k->axis };
    int64_t size = part;
    bool any = false, sure = check_resize(k->op, k->c, &of, &size, &c, axes) && size == part;
    for (size_t i = 0; i < k->c->ntensors && sure; i++) {
        any |= axes[i] >= 0;
        sure = axes[i] != UNSURE;
    }
    return any && sure;
}

static bool find_axes(cutter *k)
{
    int other[CHECK_TENSORS];
    return axes_of_part(k, k->at, k->axes) && axes_of_part(k, k->size - k->at, other) &&
        !memcmp(k->axes, other, sizeof *other * k->c->ntensors);
}

static bool all_random(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && c->tensors[i].fill == CHECK_SPECIAL)
            return false;
    return true;
}

/* The part against [low, ...) of the whole; false: they differ by more than rounding. */
static bool same_part(
    const check_op *op, const check_out *whole, const check_out *part, int axis, int64_t low, char *words, size_t room)
{
    const int64_t n = dv_numel(&part->t), size = whole->dims[axis], mine = part->dims[axis];
    const double tolerance = check_rounding(op, whole->t.dtype, check_out_largest(whole));
    char where[200];
    int64_t inner = 1;
    for (int32_t i = axis + 1; i < part->t.ndim; i++)
        inner *= part->dims[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i / inner % mine, at = (i / inner / mine * size + low + k) * inner + i % inner;
        int number;
        if (!check_out_far(part, i, whole, at, tolerance, &number))
            continue;
        check_out_element(op, whole, at, where, sizeof where);
        snprintf(words, room, "%s is %.9g%s in the whole and %.9g in the slice", where, check_out_number(whole, at, number),
            number ? " (imaginary)" : "", check_out_number(part, i, number));
        return false;
    }
    return true;
}

typedef struct parts {
    check_plain whole, part[2];
    check_outs outs[3];
} parts;
static parts p;

/* Results of the whole and of two parts that are cut at `at`; false: one was refused. */
static bool run_parts(cutter *k, const check_job *job)
{
    if (!find_axes(k) || !check_plain_make(&p.whole, job->op, job->row, k->c) ||
        !check_plain_part(&p.part[0], &p.whole, k->axes, 0, k->at) ||
        !check_plain_part(&p.part[1], &p.whole, k->axes, k->at, k->size))
        return false;
    for (int i = 0; i < 3; i++) {
        check_plain *call = i ? &p.part[i - 1] : &p.whole;
        check_plain_call(call);
        if (call->status)
            return false;
        check_outs_take(&p.outs[i], job->op, k->c, call->results, call->values.tensors);
        if (p.outs[i].incomplete || p.outs[i].n != p.outs[0].n)
            return false;
    }
    return true;
}

/* How a part of the call is shown. */
static void show_parts(check_job *job, enum check_show show, const cutter *k, const check_out *of, double tolerance)
{
    job->how = (check_how){ .show = show, .atol = tolerance, .slot = (int32_t)of->slot, .at = k->at, .size = k->size };
    for (size_t i = 0; i < k->c->ntensors; i++)
        job->how.axes[i] = (int8_t)k->axes[i];
}

static void check_slices(check_job *job, cutter *k)
{
    char words[300];
    if (!run_parts(k, job))
        return;
    for (int part = 0; part < 2; part++)
        for (size_t i = 0; i < p.outs[0].n && !failed(job); i++) {
            const check_out *whole = &p.outs[0].of[i], *mine = &p.outs[1 + part].of[i];
            const int64_t low = part ? k->at : 0, high = part ? k->size : k->at;
            const int axis = cut_dim(k, high - low, whole->t.ndim, whole->dims, mine->t.ndim, mine->dims);
            show_parts(job, CHECK_SHOW_PARTS, k, whole, check_rounding(job->op, whole->t.dtype, check_out_largest(whole)));
            job->how.axis = axis;
            if (axis >= 0 && !same_part(job->op, whole, mine, axis, low, words, sizeof words))
                check_fail(job, "not parallel",
                    "parallel(%s%s) does not hold: of the slice [%lld, %lld) alone the result is another than that slice of the "
                    "whole: %s",
                    k->name->kind == CHECK_NAME_RUN ? "*" : "", k->name->text, (long long)low, (long long)high, words);
        }
}

/* Returns the largest product of an element of each tensor, at least 1. *terms: how many such products a sum may have. */
static double largest_product(const check_case *c, double *terms)
{
    double product = 1;
    *terms = 1;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        product *= fmax(1, fmax(fabs(t->low), fabs(t->high)));
        *terms = fmax(*terms, (double)check_numel(t));
    }
    return product;
}

/* The tolerance of a sum of products in another order, with each real argument as a factor. A kernel that rounds every step to a
 * small type has inaccurate values, but its result is still a sum, so the largest rounding error is allowed. */
static double sum_rounding(const check_op *op, const check_case *c, dv_dtype dtype, double largest)
{
    double terms;
    const double product = largest_product(c, &terms);
    const double order = dtype.bits >= 64 ? 8 * 0x1p-53 : dtype.bits >= 32 ? 8 * 0x1p-24 : terms * check_unit(dtype);
    const double one_by_one = dtype.bits >= 32 ? terms * check_unit(dtype) * largest
                                               : 0; /* equal terms are rounded the same way */
    return check_rounding(op, dtype, fmax(largest, product)) + order * terms * product + one_by_one;
}

/* True if element i of the whole is the sum of the parts' elements. Integers wrap, so they are compared modulo 2^bits. */
static bool adds_up(const check_out *whole, const check_out *a, const check_out *b, int64_t i)
{
    const size_t size = (size_t)dv_dtype_bytes(whole->t.dtype, 1);
    uint64_t w = 0, x = 0, y = 0;
    memcpy(&w, (const char *)whole->t.data + (size_t)i * size, size);
    memcpy(&x, (const char *)a->t.data + (size_t)i * size, size);
    memcpy(&y, (const char *)b->t.data + (size_t)i * size, size);
    const uint64_t difference = x + y - w;
    return !memcmp(&difference, &(uint64_t){ 0 }, size);
}

/* True if a sum of products, with an element of each tensor and each number as factors, may be too large for this integer dtype:
 * an operator may saturate it. */
static bool may_overflow(const check_case *c, dv_dtype dtype)
{
    double terms, product = largest_product(c, &terms);
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *v = &c->args[i];
        product *= fmax(1, fabs(v->type == DV_VALUE_INT ? (double)v->as.i : v->type == DV_VALUE_FLOAT ? v->as.f : 1));
    }
    return !(product * terms < ldexp(1, dtype.bits - (dtype.code == 0)));
}

/* SMALL_TERMS: from -1 to 1. LARGE_TERMS: all are the end of a dtype of 8 or 16 bits that is farther from 0. */
enum terms { SMALL_TERMS, LARGE_TERMS };

/* Copies a case to `out` with such integers. False: the contract does not accept it, or a sum may be too large for `dtype`. */
static bool with_terms(const check_job *job, const check_case *c, enum terms terms, dv_dtype dtype, check_case *out)
{
    *out = *c;
    for (size_t i = 0; i < out->ntensors; i++) {
        check_tensor *t = &out->tensors[i];
        const bool large = terms == LARGE_TERMS;
        if (!t->present || !check_is_integer(t->dtype) || t->dtype.bits < 8 || (large && t->dtype.bits > 16) ||
            check_is_placed(t))
            continue;
        t->fill = CHECK_RANDOM;
        t->span = 0;
        t->low = large ? t->dtype.code ? ldexp(1, t->dtype.bits) - 1 : -ldexp(1, t->dtype.bits - 1) : fmax(t->low, -1);
        t->high = large ? t->low : fmin(t->high, 1);
        if (t->low > t->high || (large && t->dtype.code == 6))
            *t = c->tensors[i];
    }
    return !may_overflow(out, dtype) && check_accepts(job->op, out);
}

static bool is_whole_number(const check_out *o)
{
    return check_is_integer(o->t.dtype) && o->t.dtype.code != 6 && o->t.dtype.bits >= 8;
}

/* Returns the dtype of the last integer result whose sum is not exact and may have overflowed; bits 0: there is none. */
static dv_dtype compare_sums(check_job *job, const cutter *k)
{
    char where[200];
    dv_dtype large = { .bits = 0 };
    for (size_t i = 0; i < p.outs[0].n && !failed(job); i++) {
        const check_out *whole = &p.outs[0].of[i], *a = &p.outs[1].of[i], *b = &p.outs[2].of[i];
        const bool whole_numbers = is_whole_number(whole);
        if (whole->slot < job->op->nargs || whole->number || !(whole_numbers || check_is_float(whole->t.dtype)))
            continue;
        const bool same = !memcmp(whole->dims, a->dims, sizeof a->dims) && !memcmp(whole->dims, b->dims, sizeof a->dims);
        const check_json *unbacked = check_json_get(job->op->contract, "unbacked");
        if (!same && !(unbacked && unbacked->child)) {
            job->how = (check_how){ .show = CHECK_SHOW_NOTHING }; /* the contract shows it */
            check_fail(job, "not a sum", "sum(%s%s) does not hold: result '%s' has another shape for [0, %lld) alone",
                k->name->kind == CHECK_NAME_RUN ? "*" : "", k->name->text, job->op->slots[whole->slot].name, (long long)k->at);
        }
        if (!same)
            continue;
        const double largest = fmax(check_out_largest(whole), fmax(check_out_largest(a), check_out_largest(b)));
        const double tolerance = whole_numbers ? 0 : sum_rounding(job->op, k->c, whole->t.dtype, largest);
        const bool overflows = whole_numbers && may_overflow(k->c, whole->t.dtype);
        show_parts(job, CHECK_SHOW_SUM, k, whole, tolerance);
        for (int64_t n = 0, all = dv_numel(&whole->t); n < all && !failed(job); n++) {
            const double w = check_get(whole->t.data, n, whole->t.dtype), x = check_get(a->t.data, n, a->t.dtype),
                         y = check_get(b->t.data, n, b->t.dtype);
            if (whole_numbers ? adds_up(whole, a, b, n) : !isfinite(w) || !isfinite(x + y) || fabs(x + y - w) <= tolerance)
                continue;
            if (overflows) {
                large = whole->t.dtype;
                break;
            }
            check_out_element(job->op, whole, n, where, sizeof where);
            check_fail(job, "not a sum",
                "sum(%s%s) does not hold: of [0, %lld) and [%lld, %lld) alone %s is %.9g and %.9g, and of the whole %.9g",
                k->name->kind == CHECK_NAME_RUN ? "*" : "", k->name->text, (long long)k->at, (long long)k->at, (long long)k->size,
                where, x, y, w);
        }
    }
    return large;
}

/* Compares sums of the same case with other integers. at: where it is cut. */
static void check_other_sum(check_job *job, const cutter *k, const check_case *c, int64_t at)
{
    static check_case own;
    cutter other = *k;
    own = *k->c;
    other.c = c;
    other.at = at;
    check_in_hand(job, c);
    if (run_parts(&other, job))
        compare_sums(job, &other);
    if (!failed(job))
        check_in_hand(job, &own);
}

/* Compares a whole with the sum of its parts. Integers add up exactly, also the largest ones: a kernel may add them in a type
 * that is too narrow. */
static void check_sum(check_job *job, cutter *k)
{
    static check_case other;
    dv_dtype integers = { .bits = 0 };
    if (!run_parts(k, job))
        return;
    for (size_t i = 0; i < p.outs[0].n; i++)
        integers = is_whole_number(&p.outs[0].of[i]) ? p.outs[0].of[i].t.dtype : integers;
    const dv_dtype large = compare_sums(job, k);
    if (large.bits && !failed(job)) {
        if (with_terms(job, k->c, SMALL_TERMS, large, &other))
            check_other_sum(job, k, &other, k->at);
        else
            check_left_out(job, "large sums of integers, which may overflow the dtype of the result");
    }
    if (integers.bits && !failed(job) && with_terms(job, k->c, LARGE_TERMS, integers, &other))
        check_other_sum(job, k, &other, 1);
}

/* The name in ["dim", "n"] or ["run", "s"]. */
static const check_name *name_of(const check_op *op, const check_json *f)
{
    return check_op_name(op, check_json_is(f, "run") ? CHECK_NAME_RUN : CHECK_NAME_DIM, f->child->next->text);
}

static void check_cut(check_job *job, const check_case *c, const check_name *name, void (*check)(check_job *, cutter *))
{
    const bool run = name && name->kind == CHECK_NAME_RUN;
    if (!name || check_name_decides(job->op, name)) /* a part of the call may mean something else */
        return;
    for (int32_t axis = 0; axis < (run ? c->names.runs[name->at].n : 1) && !failed(job); axis++) {
        cutter k = { .op = job->op, .c = c, .name = name, .axis = axis };
        k.size = run ? c->names.runs[name->at].d[axis] : c->names.dims[name->at];
        k.at = k.size > 1 ? 1 + (int64_t)(c->seed % (uint64_t)(k.size - 1)) : 0;
        if (k.at)
            check(job, &k);
    }
}

/* Does a fact hold in this case? place: its entry of "places". */
static bool holds(const check_case *c, const check_json *place)
{
    const check_json *when = check_json_get(place, "case"), *group = when && when->kind == CHECK_ARRAY ? when->child : NULL;
    return !group || (group->i < CHECK_GROUPS && c->names.taken[group->i] == group->next->i);
}

/* Every dim that a fact names, cut at one place. */
static void check_parts(check_job *job, const check_case *c)
{
    const check_json *places = check_json_get(job->op->contract, "places"), *place = places ? places->child : NULL;
    for (int sums = 0; sums < 2; sums++) {
        const check_json *facts = check_json_get(job->op->contract, sums ? "sum" : "parallel");
        for (const check_json *f = facts ? facts->child : NULL; f && !failed(job); f = f->next, place = place->next)
            if (holds(c, place))
                check_cut(job, c, name_of(job->op, f), sums ? check_sum : check_slices);
    }
}

/* ---- Four threads at once ---- */

typedef struct stressed {
    check_plain plain;
    check_case c;
    check_outs alone, now;
    pthread_t id;
    atomic_bool *stop;
    bool differs;
} stressed;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_ns(long ns)
{
    const struct timespec t = { 0, ns };
    nanosleep(&t, NULL);
}

/* Stop one thread while the others continue. */
static void on_stop(int number)
{
    (void)number;
    sleep_ns(30000);
}

static void call_once(void *arg)
{
    stressed *s = arg;
    char words[300];
    check_plain_call(&s->plain);
    if (s->plain.status)
        return;
    check_outs_take(&s->now, s->plain.op, &s->c, s->plain.results, s->plain.values.tensors);
    s->differs |= check_outs_differ(s->plain.op, &s->alone, &s->now, words, sizeof words);
}

static void *stress(void *arg)
{
    stressed *s = arg;
    while (!atomic_load_explicit(s->stop, memory_order_relaxed)) {
        call_once(s);
        if (s->differs)
            atomic_store(s->stop, true);
    }
    return NULL;
}

/* ---- Who writes to static memory is looked at for longer ---- */

static bool is_of_system(const char *file)
{
    static const char *const others[] = { "/libdovetail", "/libc.", "/libm.", "/ld-linux", "linux-vdso" };
    bool is = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        is |= strstr(file, others[i]) != NULL;
    return is;
}

static int add_writable(struct dl_phdr_info *info, size_t size, void *sum)
{
    uint64_t *h = sum;
    const bool counts = *info->dlpi_name && !is_of_system(info->dlpi_name);
    (void)size;
    for (int i = 0; counts && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *s = &info->dlpi_phdr[i];
        const bool of_thread = s->p_type == PT_TLS;
        const unsigned char *from = of_thread ? info->dlpi_tls_data : (const void *)(uintptr_t)(info->dlpi_addr + s->p_vaddr);
        if (from && (of_thread || (s->p_type == PT_LOAD && s->p_flags & PF_W)) && s->p_memsz <= MOST_STATIC)
            for (size_t k = 0; k < s->p_memsz; k++)
                *h = (*h ^ from[k]) * UINT64_C(0x100000001b3);
    }
    return 0;
}

static uint64_t static_memory(void)
{
    uint64_t sum = 0;
    dl_iterate_phdr(add_writable, &sum);
    return sum;
}

static stressed threads[THREADS];

/* Its call alone; false: it is refused. */
static bool prepare_thread(const check_job *job, const check_case *c, uint64_t number, stressed *s)
{
    s->c = *c;
    s->c.seed += number;
    s->differs = false;
    if (!check_plain_make(&s->plain, job->op, job->row, &s->c))
        return false;
    check_plain_call(&s->plain);
    if (s->plain.status)
        return false;
    check_outs_take(&s->alone, job->op, &s->c, s->plain.results, s->plain.values.tensors);
    return !s->alone.incomplete;
}

/* The number of threads whose call succeeds alone. */
static int prepare_threads(const check_job *job, const check_case *c)
{
    int n = 0;
    for (int i = 0; i < THREADS; i++)
        n += prepare_thread(job, c, (uint64_t)i * 1000, &threads[n]);
    return n;
}

static bool called; /* this process has called the kernel */

/* One call between the instructions of another. */
static bool step_through(const check_job *job, const check_case *c)
{
    (void)c;
    check_plain_call(&threads[0].plain);
    job->result->apart = false; /* it has not waited for threads that are not there */
    check_heap_spoiled();
    const dv_host host = threads[0].plain.host;
    threads[0].plain.host.before_kernel = between_begin;
    threads[0].plain.host.after_kernel = between_end;
    calls_inside(call_once, &threads[0], call_once, &threads[1]);
    threads[0].plain.host = host;
    return threads[0].differs || threads[1].differs;
}

/* Does it differ, in a process of its own? The trap after each instruction ends one that blocks signals, which is no fault. */
static bool differs_elsewhere(check_job *job, const check_case *c, bool (*differs)(const check_job *, const check_case *))
{
    int status = 0;
    struct itimerval left;
    getitimer(ITIMER_PROF, &left);
    job->result->apart = called;
    const pid_t pid = check_fork();
    if (!pid) {
        setitimer(ITIMER_PROF, &left, NULL);
        _exit(differs(job, c));
    }
    job->result->helper = (int32_t)(pid > 0 ? pid : 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    job->result->helper = 0;
    job->result->apart = false;
    if (WIFEXITED(status) && WEXITSTATUS(status) > 1) /* of a fault's handler */
        _exit(WEXITSTATUS(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

/* Zeroed memory that they share with this one; NULL: there is none. */
static void *shared_page(size_t size)
{
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? NULL : page;
}

/* Seconds of processor time of all processes of their own so far. */
static double used_elsewhere(void)
{
    struct rusage of;
    getrusage(RUSAGE_CHILDREN, &of);
    return (double)(of.ru_utime.tv_sec + of.ru_stime.tv_sec) + 1e-6 * (double)(of.ru_utime.tv_usec + of.ru_stime.tv_usec);
}

static void stop_them(int n, double seconds, const atomic_bool *stop)
{
    const double end = now() + seconds;
    for (int i = 0; !atomic_load_explicit(stop, memory_order_relaxed) && now() < end; i++) {
        pthread_kill(threads[i % n].id, SIGUSR1);
        sleep_ns(20000);
    }
}

static void check_threads(check_job *job, const check_case *c)
{
    const struct sigaction action = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
    struct sigaction before;
    static atomic_bool stop;
    int started = 0;
    const int n = prepare_threads(job, c);
    if (n < 2)
        return;
    const uint64_t sum = static_memory();
    check_plain_call(&threads[0].plain);
    const bool written = static_memory() != sum;
    begin_own(job, CHECK_SHOW_THREADS);
    snprintf(job->result->during, sizeof job->result->during, "when %d threads call it at once, each with its own data", n);
    if (written || !job->result->cases)
        threads[0].differs |= CAN_STEP && differs_elsewhere(job, c, step_through);
    prctl(PR_SET_TIMERSLACK, 1);
    sigaction(SIGUSR1, &action, &before);
    atomic_store(&stop, threads[0].differs || threads[1].differs);
    for (; started < n; started++) {
        threads[started].stop = &stop;
        if (pthread_create(&threads[started].id, NULL, stress, &threads[started]))
            break;
    }
    if (started)
        stop_them(started, job->result->cases ? written ? 0.06 : 0.004 : 0.03, &stop);
    atomic_store(&stop, true);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i].id, NULL);
    sigaction(SIGUSR1, &before, NULL);
    job->result->own = 0;
    for (int i = 0; i < started; i++)
        if (threads[i].differs)
            check_fail(job, "not thread-safe",
                "%d threads called it at once, each with its own data, and a result is not the one that the same call gives "
                "alone%s",
                started, written ? ": the kernel writes to static memory" : "");
}

/* The case of the plan with most elements up to so many, but more or fewer than this one has; false: there is none. */
static bool with_other_sizes(const check_job *job, const check_case *c, int64_t up_to, check_case *out)
{
    int64_t most = 0;
    for (uint32_t k = 0; job->plan && k < job->plan->n; k++) {
        const check_case *of = &job->plan->cases[k];
        const int64_t n = check_case_largest(of);
        if (n > most && n <= up_to && n != check_case_largest(c) && all_random(of) && !job->plan->dropped[k] &&
            !check_is_huge(job->op, of)) {
            most = n;
            *out = *of;
        }
    }
    return most > 0;
}

/* ---- Pieces, and first calls, inside each other ---- */

/* The other pieces between the instructions of the first: in many calls, once in each. */
static bool pieces_race(const check_job *job, const check_case *c)
{
    enum { MOST_STEPS = CLOCKS_PER_SEC / 4 };
    static check_outs whole, other;
    char words[300];
    if (!run(job, c, CHECK_AT_END, NULL, false, &whole))
        return false;
    job->result->apart = false;
    const clock_t begin = clock();
    once.at = 0;
    once.waits = 0;
    do {
        if (run(job, c, CHECK_AT_END, others_inside, false, &other) &&
            check_outs_disagree(job->op, c, &whole, &other, words, sizeof words))
            return true;
    } while (next_instruction() && clock() - begin < MOST_STEPS);
    return false;
}

/* What processes with a first call leave to the next ones. */
enum { WRITES = 1000 };
static struct {
    int late;    /* how many of the other calls did not end in time */
    int64_t all; /* instructions of the first call */
    size_t n;    /* of its writes */
    struct {
        const uint8_t *by;
        int64_t at;
    } writes[WRITES];
} *told;

static void note_write(const uint8_t *by, int64_t at)
{
    if (told->n < WRITES) {
        told->writes[told->n].by = by;
        told->writes[told->n++].at = at;
    }
}

static void first_begin(const dv_host *host)
{
    (void)host;
    once.late = told->late;
    once.note = note_write;
    once_begin(call_once, &threads[1]);
}

static void first_end(const dv_host *host)
{
    (void)host;
    once_end();
    told->late = once.late;
    told->all = once.all;
}

static const check_case *second; /* NULL: of the same sizes */

/* In a process that has not called it: before instruction once.at of the first call another call is made, and both again. */
static bool first_call_differs(const check_job *job, const check_case *c)
{
    char words[300];
    bool differs = false;
    check_heap_spoiled();
    for (int i = 0; i < 2; i++) {
        threads[i].c = i && second ? *second : *c;
        threads[i].c.seed += (uint64_t)i * 1000;
        if (!check_plain_make(&threads[i].plain, job->op, job->row, &threads[i].c))
            return false;
    }
    threads[0].plain.host.before_kernel = first_begin;
    threads[0].plain.host.after_kernel = first_end;
    call_once(&threads[0]);
    threads[0].plain.host.before_kernel = threads[0].plain.host.after_kernel = NULL;
    for (int i = 0; i < 2 && !differs; i++) {
        stressed *s = &threads[i];
        check_plain_call(&s->plain);
        if (s->plain.status || s->now.incomplete)
            return false;
        check_outs_take(&s->alone, job->op, &s->c, s->plain.results, s->plain.values.tensors);
        differs = s->now.n == s->alone.n && check_outs_differ(job->op, &s->alone, &s->now, words, sizeof words);
    }
    return differs;
}

static bool first_call_writes(const check_job *job, const check_case *c)
{
    const bool made = check_plain_make(&threads[0].plain, job->op, job->row, c);
    const uint64_t sum = static_memory();
    if (made)
        check_plain_call(&threads[0].plain);
    return made && static_memory() != sum;
}

/* Is this a write of the operator's own code, or the first one of a function that it calls? Others are those of malloc(). */
static bool is_own_write(size_t k)
{
    bool own[2] = { false, true };
    for (size_t i = 0; i < 2 && k >= i; i++) {
        Dl_info info;
        own[i] = !dladdr(told->writes[k - i].by, &info) || !is_of_system(info.dli_fname);
    }
    return own[0] || own[1];
}

static bool differs_before(check_job *job, const check_case *c, int64_t instruction)
{
    once.at = instruction;
    return differs_elsewhere(job, c, first_call_differs);
}

/* Before instructions, ever more rarely: the functions that a first call calls take thousands of them. And before each of the
 * first writes: a flag may be set in the instruction before the one that stores its data. */
static bool first_call_races(check_job *job, const check_case *c, const check_case *with)
{
    if (!told && !(told = shared_page(sizeof *told)))
        return false;
    second = with;
    once.waits = 0;
    memset(told, 0, sizeof *told);
    begin_wait(job, "when another thread calls it during its first call");
    bool differs = differs_before(job, c, 0);
    for (int64_t at = FIRST_STOP; at < told->all && at < LAST_STOP && !differs; at += at / 4)
        differs = differs_before(job, c, at);
    const double begin = used_elsewhere();
    for (size_t k = 0; k < told->n && used_elsewhere() - begin < MOST_RACED && !differs; k++)
        differs = is_own_write(k) && differs_before(job, c, told->writes[k].at);
    job->result->own = 0;
    return differs;
}

static bool first_calls_race(check_job *job, const check_case *c)
{
    static check_case small, large;
    return first_call_races(job, c, NULL) ||
        (with_other_sizes(job, c, SMALL, &small) && with_other_sizes(job, &small, LARGE, &large) &&
            first_call_races(job, &small, &large));
}

/* ---- After a call with another number ---- */

static struct {
    const check_case *before; /* NULL: none */
    uint64_t *sum;            /* of what the call wrote */
    enum check_end end;       /* of the call before */
} kept;

static bool sum_after(const check_job *job, const check_case *c)
{
    static check_outs outs;
    check_result *r = job->result;
    r->has_before = kept.before;
    if (kept.before) {
        r->failing = *kept.before;
        run(job, kept.before, kept.end, NULL, false, &outs);
    }
    r->failing = *c;
    if (!run(job, c, CHECK_AT_END, NULL, false, &outs))
        return false;
    *kept.sum = 0;
    for (size_t i = 0; i < outs.n; i++) {
        const dv_tensor *t = &outs.of[i].t;
        const unsigned char *data = t->data;
        for (int64_t k = dv_numel(t) * dv_dtype_bytes(t->dtype, 1); k-- > 0;)
            *kept.sum = (*kept.sum ^ data[k]) * UINT64_C(0x100000001b3);
    }
    return !outs.incomplete;
}

/* Is the result of a call another one after this call, each time? Both in a process that has made no call. */
static bool depends_on(check_job *job, const check_case *before, const check_case *c)
{
    uint64_t sums[4];
    for (int i = 0; i < 4; i++) {
        kept.before = i % 2 ? before : NULL;
        if (!differs_elsewhere(job, c, sum_after))
            return false;
        sums[i] = *kept.sum;
        if (i == 1 && sums[0] == sums[1])
            return false;
    }
    return sums[0] == sums[2] && sums[1] == sums[3];
}

/* The case with an argument, not a tensor, as case k of the plan has it; false: it has the same, or that does not fit. */
static bool with_argument_of(const check_job *job, const check_case *c, size_t arg, uint32_t k, check_case *out)
{
    const check_value *v = &job->plan->cases[k].args[arg];
    if (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS || !memcmp(v, &c->args[arg], sizeof *v))
        return false;
    *out = *c;
    out->args[arg] = *v;
    return !check_is_huge(job->op, out) && check_accepts(job->op, out);
}

/* The case with another number, flag or word, as some case of the plan has it, or with a number that differs in its fraction
 * only; false: there is none that fits. */
static bool with_another(const check_job *job, const check_case *c, size_t arg, bool fraction, check_case *out)
{
    const check_value *v = &c->args[arg];
    if (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS)
        return false;
    if (fraction) {
        const dv_value *by_default = &job->op->slots[arg].default_value;
        const bool given = v->type == DV_VALUE_FLOAT;
        *out = *c;
        out->args[arg] = (check_value){ .type = DV_VALUE_FLOAT, .as.f = (given ? v->as.f : by_default->as.f) + 0.25 };
        return (given || (v->type == DV_VALUE_DEFAULT && by_default->type == DV_VALUE_FLOAT)) && check_accepts(job->op, out);
    }
    for (uint32_t k = 0; job->plan && k < job->plan->n; k++)
        if (with_argument_of(job, c, arg, k, out))
            return true;
    return false;
}

/* Does what the kernel keeps depend on which of the two was called last? Then each must not take what is kept for the other. */
static bool differs_between(check_job *job, const check_case *c, const check_case *other)
{
    if (!prepare_thread(job, c, 0, &threads[0]))
        return false;
    const uint64_t sum = static_memory();
    return prepare_thread(job, other, 0, &threads[1]) && static_memory() != sum && differs_elsewhere(job, c, step_through);
}

static void check_unlike_threads(check_job *job, const check_case *c)
{
    static check_case other;
    const char *argument = NULL;
    begin_wait(job, "when another thread calls it with other arguments");
    for (size_t arg = 0; arg < job->op->nargs && CAN_STEP && !argument; arg++)
        for (uint32_t k = 0, tries = 0; job->plan && k < job->plan->n && tries < OTHERS && !argument; k++)
            if (with_argument_of(job, c, arg, k, &other)) {
                tries++;
                argument = differs_between(job, c, &other) ? job->op->slots[arg].name : NULL;
            }
    const bool differs = argument || (CAN_STEP && with_other_sizes(job, c, LARGE, &other) && differs_between(job, c, &other));
    job->result->own = 0;
    if (!differs)
        return;
    job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
    check_fail(job, "not thread-safe with others",
        "during the call another thread calls it with %s%s%s, and a result is not the one that the same call gives alone: the "
        "kernel writes to static memory",
        argument ? "another '" : "other sizes", argument ? argument : "", argument ? "'" : "");
}

/* The case with other contents, or with low ones. */
static bool with_other_contents(const check_job *job, const check_case *c, bool low, check_case *out)
{
    *out = *c;
    out->seed += 2000; /* even: it also says which extremes there are */
    for (size_t i = 0; i < out->ntensors && low; i++) {
        check_tensor *t = &out->tensors[i];
        t->high = check_is_integer(t->dtype) ? t->low : t->low + (t->high - t->low) / 4;
    }
    return c->ntensors && check_accepts(job->op, out);
}

/* Of the first cases and the first large ones, all before the first call; or of the one that is made smaller. */
static void check_numbers(check_job *job, const check_case *drawn)
{
    static check_case own, c, other;
    const bool again = !job->result->cases;
    own = *drawn;
    kept.sum = kept.sum ? kept.sum : shared_page(sizeof *kept.sum);
    for (uint32_t k = 0, large = 0; k < (again ? 1 : job->plan->n) && (k < NUMBERED || large < LARGE_NUMBERED) && kept.sum; k++) {
        if (again)
            c = own;
        else
            check_seeded(&job->plan->cases[k], job->result->seed, &c);
        const double work = check_work_with_numbers(job->op, &c); /* what is kept may not show in a few elements */
        const bool is_large = work >= FEW_ELEMENTS && work <= MOST_WORK;
        large += is_large;
        if (!again && k >= NUMBERED && !is_large)
            continue;
        for (size_t k2 = 0; k2 < 2 * (c.nargs + 1) && check_accepts(job->op, &c); k2++) {
            const size_t i = k2 / 2;
            const bool contents = i == c.nargs;
            kept.end = contents ? CHECK_AT_BEGIN : CHECK_AT_END; /* what is kept for an address is found below */
            if (!(contents ? with_other_contents(job, &c, k2 % 2, &other) : with_another(job, &c, i, k2 % 2, &other)) ||
                !depends_on(job, &other, &c) || (contents && depends_on(job, &c, &c))) /* any call changes it */
                continue;
            job->result->before = other;
            job->how = (check_how){ .show = CHECK_SHOW_KEPT };
            check_fail(job, "keeps something",
                "the same call gives another result after a call with %s%s%s, so something is kept from call to call",
                contents ? "other contents" : "another '", contents ? "" : job->op->slots[i].name, contents ? "" : "'");
            return;
        }
    }
    job->result->has_before = false;
    job->result->failing = own;
}

/* ---- All of it ---- */

/* The case with so many steps that work is shared among threads; false: it cannot be made. */
static bool grow(const check_job *job, const check_case *c, check_case *out)
{
    const check_json *parallel = check_json_get(job->op->contract, "parallel"), *f = parallel ? parallel->child : NULL;
    const check_json *places = check_json_get(job->op->contract, "places");
    for (const check_json *place = places ? places->child : NULL; f && !holds(c, place); place = place->next)
        f = f->next;
    const check_name *name = f ? name_of(job->op, f) : job->op->nnames ? &job->op->names[0] : NULL;
    for (size_t k = 0; k < job->op->nnames && !f; k++)
        if (job->op->names[k].kind == CHECK_NAME_RUN && name->kind != CHECK_NAME_RUN)
            name = &job->op->names[k];
    const int64_t wanted = job->row->split ? 5 * job->row->split / 2 + 3 : SHARED;
    *out = *c;
    if (!name || name->kind == CHECK_NAME_DTYPE || (!f && check_case_largest(c) > SHARED / 4))
        return false;
    const bool run = name->kind == CHECK_NAME_RUN;
    int64_t steps = 1, *first = check_name_size(name, out);
    for (int32_t k = 1; run && k < c->names.runs[name->at].n; k++)
        steps *= first[k];
    if (!steps || (run && !c->names.runs[name->at].n) || *first * steps > wanted)
        return false;
    *first = wanted / steps + 1;
    return check_fit(job->op, out, c, NULL) && check_work(job->op, out) <= MOST_WORK && check_accepts(job->op, out);
}

/* The case with this size or number so much larger; NULL: it is none, or the case cannot be made. */
static const check_case *enlarged(const check_job *job, const check_case *c, size_t k, int64_t times, check_case *out)
{
    const check_name *name = k < job->op->nnames ? &job->op->names[k] : NULL;
    const size_t arg = k - job->op->nnames;
    *out = *c;
    int64_t *size = name ? check_name_size(name, out) : c->args[arg].type == DV_VALUE_INT ? &out->args[arg].as.i : NULL;
    const bool none = name && (!c->names.bound[k] || (name->kind == CHECK_NAME_RUN && !c->names.runs[name->at].n));
    if (!size || none || *size < 1 || *size > MOST_WORK / times)
        return NULL;
    *size = *size * times + 1;
    return check_fit(job->op, out, c, NULL) && check_work(job->op, out) <= MOST_WORK && check_accepts(job->op, out) ? out : NULL;
}

/* The case so large that this loop has several pieces; false: it cannot be made. Its steps may be as many as a size, or grow with
 * it more slowly. */
static bool cut(const check_job *job, const check_case *c, const check_loop *l, check_case *out)
{
    enum { MORE = 16, FEW = 2, MANY = 18, ALL = 258 }; /* ALL: more grains than a loop has pieces */
    static check_outs outs;
    const int64_t grain = l->grain < MOST_WORK ? l->grain : MOST_WORK, most = l->cut > 1 ? FEW : l->cut ? ALL : MANY;
    for (int64_t wanted = most; wanted; wanted = wanted > FEW ? FEW : 0) /* few may have a place each */
        for (int64_t times = wanted * grain / l->steps + 1; times <= MOST_WORK; times *= MORE)
            for (size_t k = 0; k < job->op->nnames + c->nargs; k++)
                if (enlarged(job, c, k, times, out) && run(job, out, CHECK_AT_END, NULL, false, &outs) && is_cut(l))
                    return true;
    return false;
}

/* The case with several pieces of a loop of which it had one; NULL: none needs it, or it cannot be made. */
static const check_case *with_pieces(const check_job *job, const check_case *c, check_case *out)
{
    enum { CASES = 3, TRIES = 12, MOST_TIME = CLOCKS_PER_SEC / 4 };
    static clock_t spent;
    const clock_t begin = clock();
    bool made = false;
    for (check_loop *l = result->loops; l < result->loops + CHECK_LOOPS && l->fn && !made; l++)
        made = l->seen == result->cases && l->at != l->seen && l->cut < CASES && spent < MOST_TIME && l->tried++ < TRIES &&
            cut(job, c, l, out);
    spent += clock() - begin;
    return made ? out : NULL;
}

static bool has_uncut_loop(void)
{
    bool any = false;
    for (size_t i = 0; result && i < CHECK_LOOPS; i++)
        any |= result->loops[i].fn && !result->loops[i].cut && !result->loops[i].one;
    return any;
}

/* ---- Random numbers ---- */

/* Tensors of real numbers that are all between these bounds; false: the contract says more about them. */
static bool with_contents(const check_job *job, const check_case *c, double low, double high, check_case *out)
{
    *out = *c;
    for (size_t i = 0; i < out->ntensors; i++)
        if (!check_is_integer(out->tensors[i].dtype)) {
            out->tensors[i].fill = CHECK_RANDOM;
            out->tensors[i].low = low;
            out->tensors[i].high = high;
        }
    return !job->op->looks_inside && check_accepts(job->op, out);
}

static bool no_negative_number(const check_case *c)
{
    bool none = true;
    for (size_t i = 0; i < c->nargs; i++)
        none &= !(c->args[i].type == DV_VALUE_FLOAT && c->args[i].as.f < 0) &&
            !(c->args[i].type == DV_VALUE_INT && c->args[i].as.i < 0) && c->args[i].type != DV_VALUE_FLOATS &&
            c->args[i].type != DV_VALUE_SCALARS;
    return none;
}

/* Do results depend on the seed of dv_random()? first: those of the current one. */
static bool has_random_numbers(const check_job *job, const check_case *c, const check_outs *first)
{
    static check_outs other;
    char words[300];
    seed++;
    const bool differs = !run(job, c, CHECK_AT_END, in_order, false, &other) ||
        check_outs_differ(job->op, first, &other, words, sizeof words);
    seed--;
    return differs;
}

static check_outs ones, others; /* of two calls */

static bool have_both(size_t r)
{
    return r < ones.n && r < others.n && !ones.incomplete && !others.incomplete && ones.of[r].t.dtype.bits >= 8 &&
        dv_numel(&ones.of[r].t) == dv_numel(&others.of[r].t);
}

/* From which element on `a` has what `b` has from its beginning: up to its end; or where both are one, half as many as are
 * before. -1: from none. hash: of what they have. */
static int64_t repeats(const check_out *a, const check_out *b, uint64_t *hash)
{
    enum { MOST = 1 << 16, CHANGES = 24 };
    const int64_t all = dv_numel(&a->t), n = all < MOST ? all : MOST, size = dv_dtype_bytes(a->t.dtype, 1);
    const char *x = a->t.data, *y = b->t.data;
    int64_t least = 1;
    for (int changes = 0; least < n && changes < CHANGES; least++) /* numbers that are all alike are no random ones */
        changes += memcmp(y + least * size, y + (least - 1) * size, (size_t)size) != 0;
    for (int64_t from = a == b ? 2 * least : 0; least < n; from++) {
        const int64_t in = a == b ? from / 2 : n - from;
        if (in < least || from + in > n)
            break;
        if (memcmp(x + from * size, y, (size_t)(in * size)))
            continue;
        *hash = 0;
        for (int64_t i = 0; i < in * size; i++)
            *hash = (*hash ^ (unsigned char)y[i]) * UINT64_C(0x100000001b3);
        return from;
    }
    return -1;
}

/* In result r of a call, what the next one's begins with. */
static int64_t again_in_next_call(const check_job *job, const check_case *c, size_t r, uint64_t *hash)
{
    bool ran = run(job, c, CHECK_AT_END, NULL, false, &ones);
    goes_on_now = true;
    ran = ran && run(job, c, CHECK_AT_END, NULL, false, &others);
    goes_on_now = false;
    return ran && have_both(r) ? repeats(&ones.of[r], &others.of[r], hash) : -1;
}

/* In result r, what it begins with, and not so when the loop is not cut. */
static int64_t again_in_other_piece(const check_job *job, const check_case *c, size_t r, uint64_t *hash)
{
    const bool ran = run(job, c, CHECK_AT_END, NULL, true, &others) && run(job, c, CHECK_AT_END, NULL, false, &ones);
    const int64_t from = ran && have_both(r) ? repeats(&ones.of[r], &ones.of[r], hash) : -1;
    if (from < 0)
        return -1;
    const int64_t size = dv_dtype_bytes(others.of[r].t.dtype, 1);
    const char *whole = others.of[r].t.data;
    return memcmp(whole, whole + from * size, (size_t)(from / 2 * size)) ? from : -1;
}

/* From which element on numbers of result r are there again, whatever the seed; -1: they are not. Of independent numbers each
 * order of the second ones is as likely, so the chance that they fit is one in so many as there are orders. */
static int64_t always_again(const check_job *job, const check_case *c, size_t r,
    int64_t (*again)(const check_job *, const check_case *, size_t, uint64_t *))
{
    enum { SEEDS = 32, CONSTANT = 4 };
    static const double never = 1e-18; /* there are as many places from which on they may be as elements */
    check_random random = { 1 };
    uint64_t hashes[SEEDS] = { 0 };
    double chance = 1;
    int64_t from = -1;
    for (int k = 0; k < SEEDS && chance > never && !(k == CONSTANT && chance >= 1); k++) {
        int alike = 1;
        seed = check_next(&random);
        const int64_t is = again(job, c, r, &hashes[k]);
        if (is < 0 || (k && is != from))
            break;
        from = is;
        for (int i = 0; i < k; i++)
            alike += hashes[i] == hashes[k];
        chance *= (double)alike / (k + 1);
    }
    seed = 1;
    return chance > never ? -1 : from;
}

/* Of positive numbers come numbers. */
static void check_numbers_made(check_job *job, const check_case *c)
{
    static check_case plain;
    static check_outs outs;
    char where[200];
    if (!no_negative_number(c) || !with_contents(job, c, 0.25, 2, &plain) || !run(job, &plain, CHECK_AT_END, NULL, false, &outs))
        return;
    for (size_t k = 0; k < outs.n && !failed(job); k++)
        for (int64_t i = 0, n = dv_numel(&outs.of[k].t); i < n && !failed(job); i++) {
            if (!isnan(check_out_number(&outs.of[k], i, 0)))
                continue;
            check_out_element(job->op, &outs.of[k], i, where, sizeof where);
            check_in_hand(job, &plain);
            check_fail(job, "NaN", "all that goes in is between 0.25 and 2, no number is negative, and %s is NaN", where);
        }
}

static bool took_given, took_any; /* a call of this child */

static bool has_generator(const check_op *op)
{
    for (size_t i = 0; i < op->nargs; i++)
        if (op->slots[i].type == DV_FIELD_GENERATOR)
            return true;
    return false;
}

/* Numbers come from the Generator that is given, if one is. */
static void check_generator(check_job *job, const check_case *c)
{
    static check_call call;
    call = (check_call){ .op = job->op, .row = job->row, .end = CHECK_AT_END, .poison = POISON, .generators = true };
    check_call_run(&call, c);
    took_given |= call.took_given;
    took_any |= call.took_given || call.took_default;
    if (call.took_default && has_generator(job->op))
        check_fail(job, "generator",
            "a Generator is given, and the kernel takes random numbers of the default one: it calls dv_random() with NULL in the "
            "place of its argument");
}

/* What a call has taken of dv_random(), the next does not take again, nor does another piece of its loop. */
static void check_numbers_taken(check_job *job, const check_case *c)
{
    static check_case plain;
    const check_case *alike = with_contents(job, c, 0.7, 0.7, &plain) ? &plain : c; /* in most dtypes 0.7 has to be rounded */
    for (size_t r = 0; (!r || r < ones.n) && !failed(job); r++) {
        const int64_t next = always_again(job, alike, r, again_in_next_call),
                      piece = next < 0 && pieces > 1 ? always_again(job, alike, r, again_in_other_piece) : -1;
        if (!next)
            check_fail(job, "numbers taken twice",
                "a call and the next one have the same random numbers, whatever the seed: it does not begin at the offset that "
                "dv_random() gives, or reserves no number");
        else if (next > 0)
            check_fail(job, "numbers taken twice",
                "a call and the next one have random numbers in common: what the first gives from element %lld on is what the "
                "next gives from its beginning, so it takes more numbers than it reserves with dv_random()",
                (long long)next);
        else if (piece > 0)
            check_fail(job, "numbers taken twice",
                "pieces of a parallel loop have the same random numbers: what a call gives from element %lld on is what it gives "
                "from its beginning, and it is not when the loop is not cut",
                (long long)piece);
    }
}

/* Checks a call whose loops have several pieces: runs the pieces in another order, inside each other and on more threads. race:
 * also looks for races between pieces. */
static void look_at_pieces(check_job *job, const check_case *c, const check_outs *first, bool race)
{
    static int raced;
    check_pieces(job, c, first);
    if (!failed(job) && race && CAN_STEP && raced++ < RACED && used_elsewhere() < MOST_RACED &&
        differs_elsewhere(job, c, pieces_race))
        check_fail(job, "pieces race",
            "pieces of a parallel loop share memory that they change without a lock: the result is another when the other pieces "
            "run before an instruction of the first, or inside one that reads and writes");
    check_at_once(job, c, first);
}

/* Of an operator with random numbers, as far as they come from dv_random(): a seed decides them, no two calls or pieces have the
 * same, and each slice has its own, whatever order they run in. */
static void compare_random(check_job *job, const check_case *c)
{
    static check_outs first, again;
    char words[300];
    pieces = 0;
    job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
    check_generator(job, c);
    if (!failed(job))
        check_numbers_made(job, c);
    if (failed(job) || !run(job, c, CHECK_AT_END, in_order, false, &first) || !run(job, c, CHECK_AT_END, in_order, false, &again))
        return;
    const bool settled = !check_outs_differ(job->op, &first, &again, words, sizeof words);
    if (!settled && took_any && job->op->seeded)
        check_fail(job, "not seeded",
            "with the same seed again the same call gives another result, so its random numbers are not those of dv_random() "
            "alone: %s",
            words);
    if (!failed(job) && took_any)
        check_numbers_taken(job, c);
    if (failed(job) || !settled || pieces <= 1)
        return;
    look_at_pieces(job, c, &first, !job->op->seeded);
    job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
    if (!failed(job) && job->row->split && !has_random_numbers(job, c, &first) && run(job, c, CHECK_AT_END, NULL, true, &again) &&
        check_outs_differ(job->op, &again, &first, words, sizeof words))
        check_fail(job, "split differs",
            "the row says .split = %lld, its numbers are not those of dv_random(), and cut at multiples of this grain it gives "
            "another result than whole: %s",
            (long long)job->row->split, words);
}

/* After many other calls the first case gives what it gave. */
static void check_first_again(check_job *job, uint32_t number, const check_case *c)
{
    enum { EVERY = 24 };
    static check_case early;
    static check_outs first, late;
    static bool known;
    char words[300];
    if (number == 1) {
        early = *c;
        known = run(job, c, CHECK_AT_END, NULL, false, &first);
    } else if (known && number % EVERY == 0 && run(job, &early, CHECK_AT_END, NULL, false, &late) &&
        check_outs_differ(job->op, &first, &late, words, sizeof words)) {
        check_in_hand(job, &early);
        job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
        check_fail(job, "keeps something",
            "the first call gives another result after those of %u other cases, so something is kept from call to call: %s",
            number - 1, words);
    }
}

static const char *incomplete(const check_op *op, const check_row *row)
{
    return op->random && has_generator(op) && !took_given
        ? "no case took random numbers of the Generator that is given (its slices in another order and on more threads passed)"
        : op->random ? "it is nondeterministic (only the random numbers that it takes were looked at, and its slices in another "
                       "order and on more threads)"
        : has_uncut_loop()
        ? "no case had two pieces of a loop of dv_parallel_for(), so their order was not looked at (all else passed)"
        : row->split && result && !result->in_pieces
        ? "no case was so large that its .split cuts it, so the order of slices was not looked at (all else passed)"
        : NULL;
}

/* The same of the case made so large that its loops have several. */
static void look_at_more_pieces(check_job *job, const check_case *drawn)
{
    static check_case own, large;
    static check_outs first;
    own = *drawn;
    if (!with_pieces(job, &own, &large))
        return;
    check_in_hand(job, &large);
    if (job->op->random)
        compare_random(job, &large);
    else if (run(job, &large, CHECK_AT_END, NULL, false, &first))
        look_at_pieces(job, &large, &first, true);
    if (!failed(job))
        check_in_hand(job, &own);
}

static void attempt(check_job *job, const check_case *drawn)
{
    static check_case before, grown;
    static check_outs first;
    static bool keeps_any;
    const check_case *c = drawn;
    const uint32_t number = job->result->cases; /* 0: it is being made smaller */
    if (number > 1 && number <= 1 + GROWN && grow(job, drawn, &grown)) {
        c = &grown;
        check_in_hand(job, c);
    }
    if (job->op->random) {
        called = true;
        compare_random(job, c);
        if (number && !failed(job))
            look_at_more_pieces(job, c);
        return;
    }
    const bool keeps = number <= 1 && differs_elsewhere(job, c, first_call_writes),
               race = CAN_STEP && keeps && first_calls_race(job, c);
    keeps_any |= keeps;
    if (keeps)
        check_numbers(job, c);
    if (failed(job))
        return;
    called = true;
    before = *c;
    before.seed ^= 0x5555;
    run(job, &before, CHECK_AT_END, NULL, false, &first);
    if (!run(job, c, CHECK_AT_END, NULL, false, &first)) {
        static check_call call; /* why */
        call = (check_call){ .op = job->op, .row = job->row, .poison = POISON };
        check_call_run(&call, c);
        if (call.not_this_row)
            job->result->cases--;
        else if (call.status)
            check_refused(job);
        return;
    }
    pieces = 0;
    check_again_and_elsewhere(job, c, &first);
    check_used_scratch(job, &before, c, &first);
    if (number && keeps_any && !failed(job))
        check_first_again(job, number, c);
    if (pieces > 1 && !failed(job))
        look_at_pieces(job, c, &first, true);
    if (!failed(job) && all_random(c))
        check_parts(job, c);
    if (!failed(job) && number <= STRESSED) {
        check_threads(job, c);
        if (!failed(job) && (!number || number == (job->cases < STRESSED ? job->cases : STRESSED)))
            check_unlike_threads(job, c);
    }
    if (!failed(job) && race) {
        job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
        check_fail(job, "first calls race",
            "in a new process another thread called it during the first call, and a result is not the one that the same call "
            "gives later: what the first call makes is used before it is made, or taken away while it is used");
    }
    if (number && !failed(job))
        look_at_more_pieces(job, c);
}

const check_property check_property_parallel = {
    .name = "parallel",
    .promise = "slices and sums are what is declared; a result depends neither on earlier calls nor on addresses nor on threads",
    .each_row = true,
    .attempt = attempt,
    .incomplete = incomplete,
    .needs_sound_row = true,
};
