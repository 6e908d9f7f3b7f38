/* tags: what a contract declares of costs. flops and bytes are numbers, not negative, for all that is accepted; bytes are at
 * least what the results hold, which memory finds to be written. flops are held against what is counted (operations.h), only
 * where both of two things are plain: three times as long a dim makes the one grow and the other not, and they are far apart. How
 * much an exponential counts, or what rounding up to vectors adds, is nobody's fault.
 *
 * A result that differs between two equal calls without a tag is parallel's to report; a tag that is never used is no fault. */
#include <math.h>

#include "check.h"
#include "programs/operations.h"

static const double SECONDS = 0.5; /* of processor time */
enum { SMALL = 2, SHORT = 32, LONG = 3 * SHORT, FEWEST = 64, APART = 8, COUNTED = 4 };

static bool declares(const check_op *op, const char *cost)
{
    const check_json *x = check_json_get(op->program, cost);
    return x && x->kind != CHECK_NULL;
}

static bool cost(const check_op *op, const check_case *c, double *flops, double *bytes)
{
    static check_values v;
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    return !dv_cost(op->op, v.values, c->nargs, flops, bytes);
}

/* Bytes of the results that are tensors of their own. */
static double result_bytes(const check_op *op, const check_case *c)
{
    static check_values v;
    static dv_result_spec specs[CHECK_RESULTS];
    double sum = 0;
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(op->op, v.values, c->nargs, specs, op->nresults))
        return 0;
    for (size_t r = 0; r < op->nresults; r++) {
        const bool own = specs[r].ndim >= 0 && !specs[r].flags && op->slots[op->nargs + r].alias < 0;
        double n = own ? specs[r].dtype.bits * specs[r].dtype.lanes / 8.0 : 0;
        for (int32_t d = 0; d < specs[r].ndim; d++)
            n *= (double)specs[r].shape[d];
        sum += n;
    }
    return sum;
}

static void check_numbers(check_job *job, const check_case *c)
{
    double flops, bytes;
    job->how = (check_how){ .show = CHECK_SHOW_COST, .at = declares(job->op, "flops") };
    if (!cost(job->op, c, &flops, &bytes)) {
        check_fail(job, "no cost", "what a call costs cannot be computed: %s", dv_last_error());
        return;
    }
    const double written = result_bytes(job->op, c);
    if (declares(job->op, "flops") && (flops < 0 || !isfinite(flops)))
        check_fail(job, "flops", "flops are %g", flops);
    else if (bytes < 0 || !isfinite(bytes))
        check_fail(job, "bytes", "bytes are %g", bytes);
    else if (bytes < written)
        check_fail(job, "too few bytes", "bytes are %g, and the results alone have %g, which must be written", bytes, written);
}

/* ---- Counting ---- */

static void begin_steps(const dv_host *host)
{
    (void)host;
    operations_begin();
}

static int64_t found, found_integers; /* operations, and integer operations, of a call's kernels; -1: unknown */

static void end_steps(const dv_host *host)
{
    const int64_t n = operations_end();
    (void)host;
    found = n < 0 || found < 0 ? -1 : found + n;
    found_integers += operations_of_integers();
}

/* Returns the number of operations of a call; -1: unknown. *integers: multiplications of integers and their additions. */
static double count(const check_job *job, const check_case *c, double *integers)
{
    static check_plain p;
    if (!check_plain_make(&p, job->op, job->row, c))
        return -1;
    p.host.before_kernel = begin_steps;
    p.host.after_kernel = end_steps;
    found = found_integers = 0;
    check_plain_call(&p);
    *integers = (double)found_integers;
    return p.status || p.incomplete ? -1 : (double)found;
}

static bool fits(const check_op *op, check_case *c, const check_case *from)
{
    return check_fit(op, c, from, NULL) && check_accepts(op, c);
}

/* The case with this size of name `at`, and with small ones for all others unless it is a failing one; false: it cannot be. */
static bool with_size(const check_job *job, const check_case *c, size_t at, int64_t size, bool small, check_case *out)
{
    static check_case from;
    int64_t *p;
    *out = *c;
    for (size_t i = 0; small && i < job->op->nnames && (p = check_name_size(&job->op->names[i], out)); i++)
        *p = *p > SMALL ? SMALL : *p;
    for (size_t i = 0; i < out->ntensors; i++) {
        out->tensors[i].layout = CHECK_CONTIGUOUS;
        out->tensors[i].fill = out->tensors[i].fill == CHECK_SPECIAL ? CHECK_RANDOM : out->tensors[i].fill;
    }
    if (small && !fits(job->op, out, c))
        return false;
    from = *out;
    p = check_name_size(&job->op->names[at], out);
    *p = size;
    return fits(job->op, out, &from) && *p == size;
}

/* True if a count outgrows another one when a dim becomes three times as long. a and b are the counts before, a3 and b3 after.
 * Then a at least doubles, and b stays or grows at most half as much. Also, a3 exceeds b3 by the factor APART. */
static bool outgrows(double a, double a3, double b, double b3)
{
    return a3 >= 2 * a && (b3 <= 1.2 * b || a3 * b >= 2 * a * b3) && a3 >= APART * fmax(b3, 1) && a3 - a >= FEWEST;
}

static void check_dim(check_job *job, const check_case *c, size_t at, bool again)
{
    static check_case low, high;
    double declared, declared3, bytes;
    const int64_t size = again ? *check_name_size(&job->op->names[at], (check_case *)(uintptr_t)c) : LONG;
    if (size < LONG / 2 || !with_size(job, c, at, size / 3, !again, &low) || !with_size(job, c, at, size, !again, &high))
        return;
    double integers, integers3, done = count(job, &low, &integers), done3 = count(job, &high, &integers3);
    if (done < 0 || done3 < 0 || !cost(job->op, &low, &declared, &bytes) || !cost(job->op, &high, &declared3, &bytes))
        return;
    const bool of_integers = done3 <= 0 && integers > 0 && declared3 > 0; /* those of indices are none that are declared */
    done = of_integers ? integers : done;
    done3 = of_integers ? integers3 : done3;
    const bool less = outgrows(done, done3, declared, declared3),
               more = done > 0 && outgrows(declared, declared3, fmax(done, integers), fmax(done3, integers3));
    if (!less && !more)
        return;
    check_in_hand(job, &high);
    job->how = (check_how){ .show = CHECK_SHOW_FLOPS };
    check_fail(job, less ? "too few flops" : "too many flops",
        "flops are %g with %s = %lld and %g with %lld, and %g and %g operations are counted", declared, job->op->names[at].text,
        (long long)size / 3, declared3, (long long)size, done, done3);
}

/* Another dim first in each case: a trap takes up to 10 us, and a case has its time. */
static void check_counts(check_job *job, const check_case *c)
{
    const bool again = !job->result->cases;
    const double end = check_used() + SECONDS;
    size_t n = 0;
    while (n < job->op->nnames && job->op->names[n].kind != CHECK_NAME_DTYPE)
        n++;
    for (size_t k = 0; k < n && job->result->outcome == CHECK_PASS && check_used() < end; k++) {
        const size_t i = (k + job->result->cases) % n;
        const check_name *name = &job->op->names[i];
        if (name->kind == CHECK_NAME_DIM || c->names.runs[name->at].n)
            check_dim(job, c, i, again);
    }
}

static void attempt(check_job *job, const check_case *c)
{
    static uint32_t counts;
    static check_call call;
    check_numbers(job, c);
    if (job->result->outcome != CHECK_PASS || !declares(job->op, "flops") || (job->result->cases && counts >= COUNTED))
        return;
    call = (check_call){ .op = job->op, .row = job->row, .poison = 0xa5 };
    check_call_run(&call, c); /* what crashes, crashes here */
    if (call.status)
        return;
    counts++;
    check_counts(job, c);
}

static const char *applies(const check_op *op, const check_row *row)
{
    (void)row;
    return declares(op, "flops") || declares(op, "bytes") ? NULL : "it declares neither flops nor bytes";
}

static const char *incomplete(const check_op *op, const check_row *row)
{
    (void)row;
#if !defined(__x86_64__)
    if (declares(op, "flops"))
        return "flops are not counted on this processor";
#else
    (void)op;
#endif
    return NULL;
}

const check_property check_property_tags = {
    .name = "tags",
    .promise = "flops and bytes are what a call does",
    .applies = applies,
    .attempt = attempt,
    .incomplete = incomplete,
};
