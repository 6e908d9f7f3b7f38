/* Property tags: the costs that a contract declares agree with what a call does.
 *
 * flops and bytes are numbers, not negative, for all accepted cases. bytes are at least those of the results, which property
 * memory finds to be written. flops are compared with operations that count_flops.h counts, only where both of two facts are
 * clear: a dim three times as long makes one of the numbers grow and not the other, and the numbers are far apart. How much an
 * exponential counts, or what rounding up to whole vectors adds, is no fault. Where contents or numbers decide how much
 * is computed, flops are the most that a call may do, so they may exceed what some contents need.
 *
 * A result that differs between two equal calls without a tag is reported by property parallel. A tag that is never needed is no
 * fault. */
#include <math.h>

#include "check.h"
#include "count_flops.h"

static const double MAX_SECONDS = 0.5; /* processor time in seconds for counting operations in one case */
enum { SMALL_SIZE = 2, SHORT_SIZE = 32, LONG_SIZE = 3 * SHORT_SIZE, MIN_GROWTH = 64, MIN_RATIO = 8, MAX_COUNTED_CASES = 4 };

/* True if the contract declares the cost of this name: "flops" or "bytes". */
static bool tags_declares_cost(const check_op *op, const char *cost_name)
{
    const check_json *x = check_json_find_member(op->program, cost_name);
    return x && x->kind != CHECK_JSON_NULL;
}

/* Computes the flops and bytes that the contract declares for a case. Returns false if dv_cost() fails. */
static bool tags_try_compute_declared_cost(const check_op *op, const check_case *c, double *flops, double *bytes)
{
    static check_values v;
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    return !dv_cost(op->op, v.values, c->nargs, flops, bytes);
}

/* Returns the bytes of a case's results that are newly allocated tensors; 0 if dv_infer() refuses the case. */
static double tags_get_result_bytes(const check_op *op, const check_case *c)
{
    static check_values v;
    static dv_result_spec specs[CHECK_MAX_RESULTS];
    double sum = 0;
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(op->op, v.values, c->nargs, specs, op->nresults))
        return 0;
    for (size_t r = 0; r < op->nresults; r++) {
        const bool is_allocated = specs[r].ndim >= 0 && !specs[r].flags && op->slots[op->nargs + r].alias < 0;
        double n = is_allocated ? specs[r].dtype.bits * specs[r].dtype.lanes / 8.0 : 0;
        for (int32_t d = 0; d < specs[r].ndim; d++)
            n *= (double)specs[r].shape[d];
        sum += n;
    }
    return sum;
}

/* Checks that the declared flops and bytes of a case are finite and not negative, and that bytes are at least those of the
 * results. */
static void tags_check_declared_cost(check_job *job, const check_case *c)
{
    double flops, bytes;
    if (!tags_try_compute_declared_cost(job->op, c, &flops, &bytes)) {
        check_fail(job, "no cost", "what a call costs cannot be computed: %s", dv_last_error());
        return;
    }
    const double result_bytes = tags_get_result_bytes(job->op, c);
    if (tags_declares_cost(job->op, "flops") && (flops < 0 || !isfinite(flops)))
        check_fail(job, "flops", "flops are %g", flops);
    else if (bytes < 0 || !isfinite(bytes))
        check_fail(job, "bytes", "bytes are %g", bytes);
    else if (bytes < result_bytes)
        check_fail(
            job, "too few bytes", "bytes are %g, and the results alone have %g, which must be written", bytes, result_bytes);
}

/* ---- Counting ---- */

/* Starts to count the operations of one run of the kernel function (function for dv_host.before_kernel). tags_end_counting() adds
 * them to those of the call. */
static void tags_begin_counting(const dv_host *host)
{
    (void)host;
    operations_try_begin_count();
}

static int64_t counted_operations,
    counted_integer_operations; /* operations, and among them those of integers, of a call's kernels; -1: unknown */

/* Adds the operations of one run of the kernel function to those of the call (function for dv_host.after_kernel). */
static void tags_end_counting(const dv_host *host)
{
    const int64_t count = operations_end_count();
    (void)host;
    counted_operations = count < 0 || counted_operations < 0 ? -1 : counted_operations + count;
    counted_integer_operations += operations_get_integer_count();
}

/* Returns the number of operations that a call of the case executes; -1: unknown. *integer_operations: receives the number of
 * multiplications of integers and of their additions. */
static double tags_call_and_count_operations(const check_job *job, const check_case *c, double *integer_operations)
{
    static check_unguarded_call call;
    if (!check_unguarded_call_try_init(&call, job->op, job->kernel, c))
        return -1;
    call.host.before_kernel = tags_begin_counting;
    call.host.after_kernel = tags_end_counting;
    counted_operations = counted_integer_operations = 0;
    check_unguarded_call_run(&call);
    *integer_operations = (double)counted_integer_operations;
    return call.status || call.is_incomplete ? -1 : (double)counted_operations;
}

/* Changes a case so that it fits the contract, and keeps what differs from the case `previous` if possible. Returns false if the
 * contract does not accept the result. */
static bool tags_try_fit_to_contract(const check_op *op, check_case *c, const check_case *previous)
{
    return check_try_fit_case(op, c, previous, NULL) && check_is_accepted(op, c);
}

/* Copies a case to `out` with this size for one name of the contract. others_are_small: all other sizes are at most SMALL_SIZE.
 * Returns false if the contract does not accept such a case. */
static bool tags_try_make_case_with_size(
    const check_job *job, const check_case *c, size_t name_index, int64_t size, bool others_are_small, check_case *out)
{
    static check_case previous;
    int64_t *name_size;
    *out = *c;
    for (size_t i = 0; others_are_small && i < job->op->nnames && (name_size = check_name_find_sizes(&job->op->names[i], out));
        i++)
        *name_size = *name_size > SMALL_SIZE ? SMALL_SIZE : *name_size;
    for (size_t i = 0; i < out->ntensors; i++) {
        out->tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
        out->tensors[i].fill = out->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES ? CHECK_FILL_RANDOM : out->tensors[i].fill;
    }
    if (others_are_small && !tags_try_fit_to_contract(job->op, out, c))
        return false;
    previous = *out;
    name_size = check_name_find_sizes(&job->op->names[name_index], out);
    *name_size = size;
    return tags_try_fit_to_contract(job->op, out, &previous) && *name_size == size;
}

/* True if a count outgrows another one when a dim becomes three times as long. Then the count at least doubles, and the other one
 * stays or grows at most half as much; and count_at_triple exceeds other_at_triple by the factor MIN_RATIO. */
static bool tags_first_count_outgrows(double count, double count_at_triple, double other, double other_at_triple)
{
    return count_at_triple >= 2 * count &&
        (other_at_triple <= 1.2 * other || count_at_triple * other >= 2 * count * other_at_triple) &&
        count_at_triple >= MIN_RATIO * fmax(other_at_triple, 1) && count_at_triple - count >= MIN_GROWTH;
}

static struct {
    double declared, declared3, done;
    /* declared flops that exceed the counted operations: for a size and for three times the size; done: operations counted for
     * the former */
} exceeding;

/* True if a call with the contents of this case does so many operations that the declared flops in `exceeding` do not exceed
 * them. */
static bool tags_reaches_declared_flops(check_job *job, const check_case *c, size_t unused)
{
    (void)unused;
    double integers;
    const double done3 = tags_call_and_count_operations(job, c, &integers);
    return done3 >= 0 &&
        !tags_first_count_outgrows(exceeding.declared, exceeding.declared3, exceeding.done, fmax(done3, integers));
}

/* True if a call does as many operations as declared with some other contents of tensors or other float arguments. Then contents
 * decide how much the kernel computes, as in a loop that ends early. */
static bool tags_flops_depend_on_contents(check_job *job, const check_case *c)
{
    static const double numbers[] = { NAN, 0x1p30, -0x1p30, 0 }; /* NAN: the numbers of the case */
    static check_case other;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        bool changed = !k;
        other = *c;
        for (size_t i = 0; i < c->nargs && k; i++)
            if (job->op->slots[i].type == DV_FIELD_FLOAT) {
                other.args[i] = (check_value){ .type = DV_VALUE_FLOAT, .as.f = numbers[k] };
                changed = true;
            }
        if (changed && check_is_accepted(job->op, &other) &&
            check_holds_for_other_contents(job, &other, tags_reaches_declared_flops, 0))
            return true;
    }
    return false;
}

/* Fails the job if declared flops and counted operations clearly differ in their growth when one size of the case becomes three
 * times as large. */
static void tags_check_dim(check_job *job, const check_case *c, size_t name_index, bool is_shrinking)
{
    static check_case low, high;
    double declared, declared3, bytes;
    const int64_t size = is_shrinking ? *check_name_find_sizes(&job->op->names[name_index], (check_case *)(uintptr_t)c)
                                      : LONG_SIZE;
    if (size < LONG_SIZE / 2 || !tags_try_make_case_with_size(job, c, name_index, size / 3, !is_shrinking, &low) ||
        !tags_try_make_case_with_size(job, c, name_index, size, !is_shrinking, &high))
        return;
    double integers, integers3, counted = tags_call_and_count_operations(job, &low, &integers),
                                counted3 = tags_call_and_count_operations(job, &high, &integers3);
    if (counted < 0 || counted3 < 0 || !tags_try_compute_declared_cost(job->op, &low, &declared, &bytes) ||
        !tags_try_compute_declared_cost(job->op, &high, &declared3, &bytes))
        return;
    /* Integer operations count only for a kernel without float operations. In other kernels they compute indices, which
     * declared flops leave out. */
    const bool counts_integers = counted3 <= 0 && integers > 0 && declared3 > 0;
    counted = counts_integers ? integers : counted;
    counted3 = counts_integers ? integers3 : counted3;
    const bool declares_too_few = tags_first_count_outgrows(counted, counted3, declared, declared3),
               /* where facts restrict contents, integer tensors may select less work than is declared for all elements */
        declares_too_many = counted > 0 && !job->op->has_element_facts &&
        tags_first_count_outgrows(declared, declared3, fmax(counted, integers), fmax(counted3, integers3));
    if (!declares_too_few && !declares_too_many)
        return;
    exceeding.declared = declared;
    exceeding.declared3 = declared3;
    exceeding.done = fmax(counted, integers);
    if (!declares_too_few && tags_flops_depend_on_contents(job, &high))
        return;
    check_set_current_case(job, &high);
    check_fail(job, declares_too_few ? "too few flops" : "too many flops",
        "flops are %g with %s = %lld and %g with %lld, and %g and %g operations are counted", declared,
        job->op->names[name_index].text, (long long)size / 3, declared3, (long long)size, counted, counted3);
}

/* Compares flops with counted operations for the dims of a case while time is left, beginning with another dim in each case.
 * Counting is slow: a trap takes up to 10 us. */
static void tags_check_counts(check_job *job, const check_case *c)
{
    const bool is_shrinking = !job->result->tried_cases;
    const double end = check_get_cpu_seconds() + MAX_SECONDS;
    size_t nsizes = 0;
    while (nsizes < job->op->nnames && job->op->names[nsizes].kind != CHECK_NAME_DTYPE)
        nsizes++;
    for (size_t k = 0; k < nsizes && job->result->outcome == CHECK_OUTCOME_PASS && check_get_cpu_seconds() < end; k++) {
        const size_t name_index = (k + job->result->tried_cases) % nsizes;
        const check_name *name = &job->op->names[name_index];
        if (name->kind == CHECK_NAME_DIM || c->names.variadics[name->value_index].ndim)
            tags_check_dim(job, c, name_index, is_shrinking);
    }
}

/* Checks the declared costs of one case, and in the first few cases compares the flops with counted operations. */
static void tags_test_case(check_job *job, const check_case *c)
{
    static uint32_t ncounted_cases;
    static check_guarded_call call;
    tags_check_declared_cost(job, c);
    if (job->result->outcome != CHECK_OUTCOME_PASS || !tags_declares_cost(job->op, "flops") ||
        (job->result->tried_cases && ncounted_cases >= MAX_COUNTED_CASES))
        return;
    call = (check_guarded_call){ .op = job->op, .kernel = job->kernel, .poison_byte = 0xa5 };
    check_guarded_call_run(&call, c); /* a kernel that crashes does so in this guarded call, not while it is counted */
    if (call.status)
        return;
    ncounted_cases++;
    tags_check_counts(job, c);
}

/* Returns why the property does not apply to an operator: its contract declares no cost. NULL: it applies. */
static const char *tags_find_inapplicable_reason(const check_op *op, const check_kernel *kernel)
{
    (void)kernel;
    return tags_declares_cost(op, "flops") || tags_declares_cost(op, "bytes") ? NULL : "it declares neither flops nor bytes";
}

/* Returns why declared flops were not compared with counts: this processor cannot count. NULL: it can, or none are declared. */
static const char *tags_find_incomplete_reason(const check_op *op, const check_kernel *kernel)
{
    (void)kernel;
#if !defined(__x86_64__)
    if (tags_declares_cost(op, "flops"))
        return "flops are not counted on this processor";
#else
    (void)op;
#endif
    return NULL;
}

const check_property check_property_tags = {
    .name = "tags",
    .description = "flops and bytes are what a call does",
    .find_inapplicable_reason = tags_find_inapplicable_reason,
    .test_case = tags_test_case,
    .find_incomplete_reason = tags_find_incomplete_reason,
};
