/* Property parallel: the facts of the contract about slices and threads hold, and the results of a call depend on its arguments
 * only.
 *
 * In this order, for each case:
 * - If the operator writes to static memory: a call after one with another argument, each in a new process.
 * - Guarded calls: other contents at the same addresses; the case; the case at other addresses; the case again. The second and
 *   the last are the same call, so their bits are equal unless the operator keeps state.
 * - The chunks of parallel loops in reverse order, which shows a sum without a lock; then 2 and 4 threads.
 * - Unguarded calls of slices along `parallel` dims, and of partitions of `sum` dims.
 * - The other chunks of a loop between the instructions of the first; a call of another thread during the first call of a
 *   process; a call of another thread between the instructions of a call.
 * - Four threads at once, each with its own data, while a fifth pauses them in turn. */
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
#include "interleave.h"

enum {
    POISON_BYTE = 0xa5,
    MAX_STRESSED_CASES = 4,
    MAX_OTHER_VALUES = 6,     /* number of other values that are tried for an argument */
    MAX_SMALL_ELEMENTS = 512, /* of one tensor */
    MAX_LARGE_ELEMENTS = 4200,
    MAX_RACED_CASES = 3,
    NUM_GROWN_CASES = 2,
    MIN_SHARED_STEPS = 2000,
    NUM_THREADS = 4,
    MAX_STATIC_BYTES = 1 << 20,
    /* number of first cases that are checked for state; NUM_LARGE_STATE_CASES: of first cases with much work */
    NUM_STATE_CASES = 3,
    NUM_LARGE_STATE_CASES = 5,
    MIN_STATE_WORK = 24,
    MAX_WORK = 1 << 20,
    FIRST_INTERRUPTED = 16,
    MAX_INTERRUPTED = 16384
};

static const double MAX_RACE_SECONDS = 0.25; /* processor time in seconds for the tries to find a race by single-stepping */

/* True if the job has an outcome other than pass. */
static bool parallel_has_failed(const check_job *job) { return job->result->outcome != CHECK_OUTCOME_PASS; }

/* ---- Repeated calls ---- */

typedef int (*parallel_for_fn)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);

static check_result *job_result; /* result of this child's job */
static int64_t max_loop_steps;   /* number of steps of the largest loop that calls have run */

/* Runs a loop as one chunk (function for dv_host.parallel_for). Raises max_loop_steps to the loop's steps, and records in the
 * job's result that some loop has several steps. Returns the status of the chunk. */
static int parallel_run_loop_as_one_chunk(
    const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)host;
    (void)grain;
    max_loop_steps = end - begin > max_loop_steps ? end - begin : max_loop_steps;
    job_result->ran_loop_in_chunks |= max_loop_steps > 1;
    return fn(arg, begin, end);
}

/* Runs each step of a loop as a chunk, from the last step to the first (function for dv_host.parallel_for). Stops at the first
 * error, and returns its status. */
static int parallel_run_loop_in_reverse(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
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

/* True if the last execution of a loop had more than one chunk of its grain. */
static bool parallel_loop_has_several_chunks(const check_loop *loop)
{
    return loop->steps / (loop->grain > 1 ? loop->grain : 1) > 1;
}

/* Records a loop of the kernel in the job's result: its steps and grain, and whether the case ran it in several chunks. The hook
 * of a guarded call for each loop of dv_parallel_for(). */
static void parallel_record_loop(const dv_host *host, int64_t begin, int64_t end, int64_t grain, void (*fn)(void))
{
    (void)host;
    for (check_loop *l = job_result->loops; l < job_result->loops + CHECK_MAX_LOOPS && end > begin; l++) {
        if (l->fn && l->fn != fn)
            continue;
        l->never_had_two_steps = (!l->fn || l->never_had_two_steps) && end - begin == 1;
        l->fn = fn;
        l->steps = end - begin;
        l->grain = grain;
        l->last_case = job_result->tried_cases;
        l->split_cases += parallel_loop_has_several_chunks(l) && l->last_split_case != l->last_case;
        l->last_split_case = parallel_loop_has_several_chunks(l) ? l->last_case : l->last_split_case;
        return;
    }
}

static int initial_errno;        /* errno before a call */
static uint64_t random_seed = 1; /* seed of dv_random() */
static bool reuse_scratch;       /* true: scratch of a chunk holds what another chunk left there */
static bool allocated_scratch;   /* the last call used scratch */
static bool continue_random;     /* true: random numbers continue after those of the last call */

/* Makes a guarded call of the kernel and copies results and written arguments to `outputs`. parallel_for: runs the kernel's
 * loops; NULL: the runtime's threads. no_split: the kernel function is called once, despite .split. Random numbers begin with the
 * same seed each time, unless continue_random. Returns false if the call was refused. */
static bool parallel_try_call_kernel(const check_job *job, const check_case *c, enum check_guard_side guard_side,
    parallel_for_fn parallel_for, bool no_split, check_outputs *outputs)
{
    static check_guarded_call call;
    if (job->op->is_nondeterministic && !continue_random)
        dv_set_seed(random_seed);
    call = (check_guarded_call){ .op = job->op,
        .kernel = job->kernel,
        .guard_side = guard_side,
        .poison_byte = POISON_BYTE,
        .initial_errno = initial_errno,
        .parallel_for = parallel_for,
        .loop = parallel_record_loop,
        .ignore_split = no_split,
        .keep_scratch_contents = reuse_scratch };
    job_result = job->result;
    check_guarded_call_run(&call, c);
    allocated_scratch = call.allocated_scratch;
    if (call.status)
        return false;
    check_outputs_copy(outputs, job->op, c, call.results, check_get_last_argument_tensors());
    return true;
}

/* Checks that a call made again gives the same bits, also with another errno, and at other addresses the same values up to
 * rounding. first_outputs: outputs of the call made before. */
static void parallel_check_repeated_calls(check_job *job, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs elsewhere, last, repeated;
    char words[300];
    if (!parallel_try_call_kernel(job, c, CHECK_GUARD_BEFORE, parallel_run_loop_as_one_chunk, false, &elsewhere) ||
        !parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &last))
        return;
    if (check_outputs_differ(job->op, first_outputs, &last, words, sizeof words)) {
        const bool is_repeatable = parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &repeated) &&
            !check_outputs_differ(job->op, &last, &repeated, words, sizeof words);
        check_outputs_differ(job->op, first_outputs, &last, words, sizeof words);
        if (is_repeatable)
            check_fail(job, "keeps state",
                "the same call gives another result after other calls, so something is kept from call to call: %s", words);
        else
            check_fail(job, "not deterministic",
                "the same call made again gives another result, and no tag says nondeterministic: %s", words);
    } else if (check_outputs_differ_beyond_rounding(job->op, first_outputs, &elsewhere, words, sizeof words)) {
        check_fail(job, "depends on addresses", "the same arguments at other addresses give another result: %s", words);
    }
    if (parallel_has_failed(job))
        return;
    initial_errno = ERANGE;
    if (!parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &repeated))
        check_fail(job, "depends on errno", "the call fails when errno is not 0 before it: %s", dv_last_error());
    else if (check_outputs_differ(job->op, &last, &repeated, words, sizeof words))
        check_fail(job, "depends on errno", "another errno before the call gives another result: %s", words);
    initial_errno = 0;
}

/* Checks that results do not depend on what chunks of another call, that of preceding_case, left in scratch. first_outputs: what
 * the call gives without this. Does nothing if the kernel uses no scratch. */
static void parallel_check_scratch_contents(
    check_job *job, const check_case *preceding_case, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs other;
    char words[300];
    if (parallel_has_failed(job) || !allocated_scratch)
        return;
    reuse_scratch = true;
    parallel_try_call_kernel(job, preceding_case, CHECK_GUARD_AFTER, parallel_run_loop_as_one_chunk, false, &other);
    if (parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, parallel_run_loop_as_one_chunk, false, &other) &&
        check_outputs_differ(job->op, first_outputs, &other, words, sizeof words))
        check_fail(job, "used scratch",
            "the result depends on what a chunk of another call left in the memory of dv_parallel_scratch(), which holds "
            "anything at first: %s",
            words);
    reuse_scratch = false;
}

/* ---- Chunks and threads ---- */

/* Makes this property report crashes, bad accesses and timeouts, until also_reported_faults is set to 0 again. */
static void parallel_report_faults_here(check_job *job)
{
    job->result->also_reported_faults = CHECK_FAULT_CRASH | CHECK_FAULT_MEMORY | CHECK_FAULT_TIMEOUT;
}

/* Makes this property report timeouts, and no other faults, until also_reported_faults is 0 again: two calls may wait for each
 * other. condition: text for the message, such as "when another thread calls it". */
static void parallel_report_timeouts_here(check_job *job, const char *condition)
{
    job->result->also_reported_faults = CHECK_FAULT_TIMEOUT;
    snprintf(job->result->fault_condition, sizeof job->result->fault_condition, "%s", condition);
}

/* Checks that results stay the same up to rounding if chunks run in reverse order, and if a kernel with .split is called once for
 * the whole call. first_outputs: outputs of the ordinary call. */
static void parallel_check_chunk_order(check_job *job, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs other;
    char words[300], *condition = job->result->fault_condition;
    parallel_report_faults_here(job);
    snprintf(condition, sizeof job->result->fault_condition, "when its chunks run in reverse order");
    if (parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, parallel_run_loop_in_reverse, false, &other) &&
        check_outputs_differ_unordered(job->op, c, first_outputs, &other, words, sizeof words))
        check_fail(job, "order of chunks",
            "the result depends on the order in which threads take the chunks of a parallel loop: %s", words);
    snprintf(condition, sizeof job->result->fault_condition, "when the kernel is not split at multiples of .split");
    if (!parallel_has_failed(job) && job->kernel->split && !job->op->is_nondeterministic &&
        parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, true, &other) &&
        check_outputs_differ_unordered(job->op, c, &other, first_outputs, words, sizeof words))
        check_fail(job, "split differs",
            "the kernel says .split = %lld, and split at multiples of this grain it gives another result than whole: %s",
            (long long)job->kernel->split, words);
    job->result->also_reported_faults = 0;
}

/* Checks that results on 2 and on 4 threads are the same as first_outputs, those on one thread, up to rounding. Memory that
 * chunks share without a lock shows only by chance. */
static void parallel_check_thread_counts(check_job *job, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs other;
    char words[300], *condition = job->result->fault_condition;
    if (parallel_has_failed(job))
        return;
    parallel_report_faults_here(job);
    for (int threads = 2; threads <= NUM_THREADS && !parallel_has_failed(job); threads *= 2) {
        dv_set_threads(threads);
        snprintf(condition, sizeof job->result->fault_condition, "when its chunks run on %d threads", threads);
        if (parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &other) &&
            check_outputs_differ_unordered(job->op, c, first_outputs, &other, words, sizeof words))
            check_fail(job, "number of threads", "on %d threads the result is not the same as on one: %s", threads, words);
    }
    dv_set_threads(1);
    job->result->also_reported_faults = 0;
}

/* ---- Slices ---- */

/* A split of a case into two slices, [0, position) and [position, size), along the dim that has a name of the contract. */
typedef struct slice_cut {
    const check_op *op;
    const check_case *c;
    const check_name *name;
    int32_t axis; /* index of the dim within variadic dims *s; 0 for other names */
    int64_t position, size;
    /* for each tensor the dim along which it is split; AXIS_NONE: the slices get the whole tensor */
    int axes[CHECK_MAX_TENSORS];
} slice_cut;

enum { AXIS_NONE = -1, AXIS_UNKNOWN = -2 };

/* Returns the only dim in which the shape of a whole tensor and of its slice differ, if it is cut->size in the whole and
 * slice_size in the slice. AXIS_NONE: the shapes are equal. AXIS_UNKNOWN: they differ in another way. */
static int parallel_find_slice_dim_index(const slice_cut *cut, int64_t slice_size, int32_t whole_ndim, const int64_t *whole_shape,
    int32_t slice_ndim, const int64_t *slice_shape)
{
    int axis = AXIS_NONE;
    if (whole_ndim != slice_ndim)
        return AXIS_UNKNOWN;
    for (int32_t d = 0; d < whole_ndim; d++)
        if (whole_shape[d] != slice_shape[d])
            axis = axis == AXIS_NONE && whole_shape[d] == cut->size && slice_shape[d] == slice_size ? d : AXIS_UNKNOWN;
    return axis;
}

bool check_try_resize_case(const check_op *op, const check_case *original_case, const check_varied_size *varied_size,
    int64_t *wanted_size, check_case *resized_case, int *axes)
{
    *resized_case = *original_case;
    int64_t *const resized = varied_size->name
        ? check_name_find_sizes(varied_size->name, resized_case) + varied_size->index_in_variadic
        : &resized_case->args[varied_size->argument_slot].as.i;
    const slice_cut k = { .op = op, .c = original_case, .size = *resized };
    *resized = *wanted_size;
    if (!check_try_fit_case(op, resized_case, original_case, NULL) || resized_case->ntensors != original_case->ntensors)
        return false;
    *wanted_size = *resized;
    for (size_t i = 0; i < resized_case->nargs; i++)
        if (resized_case->args[i].type == DV_VALUE_INT && resized_case->args[i].as.i != original_case->args[i].as.i &&
            (varied_size->name || i != varied_size->argument_slot))
            return false;
    for (size_t i = 0; i < resized_case->ntensors; i++) {
        const check_tensor *original = &original_case->tensors[i], *resized_tensor = &resized_case->tensors[i];
        axes[i] = resized_tensor->present ? parallel_find_slice_dim_index(&k, *wanted_size, original->ndim, original->shape,
                                                resized_tensor->ndim, resized_tensor->shape)
                                          : AXIS_NONE;
        if (resized_tensor->present != original->present)
            return false;
    }
    return true;
}

/* Sets axes[i] to the dim along which tensor i is split for a slice of slice_size, or AXIS_NONE. Returns false if the dim of some
 * tensor is not clear, or no tensor is split. */
static bool parallel_try_find_slice_axes(const slice_cut *cut, int64_t slice_size, int *axes)
{
    static check_case c;
    const check_varied_size of = { .name = cut->name, .index_in_variadic = cut->axis };
    int64_t size = slice_size;
    bool is_split = false, is_clear = check_try_resize_case(cut->op, cut->c, &of, &size, &c, axes) && size == slice_size;
    for (size_t i = 0; i < cut->c->ntensors && is_clear; i++) {
        is_split |= axes[i] >= 0;
        is_clear = axes[i] != AXIS_UNKNOWN;
    }
    return is_split && is_clear;
}

/* Sets cut->axes to the dim along which each tensor is split. Returns false if the two slices split tensors along different dims,
 * or no tensor. */
static bool parallel_try_set_split_axes(slice_cut *cut)
{
    int other[CHECK_MAX_TENSORS];
    return parallel_try_find_slice_axes(cut, cut->position, cut->axes) &&
        parallel_try_find_slice_axes(cut, cut->size - cut->position, other) &&
        !memcmp(cut->axes, other, sizeof *other * cut->c->ntensors);
}

/* True if no tensor of the case is filled with CHECK_FILL_SPECIAL_VALUES: NaN, infinities and extremes. */
static bool parallel_has_no_special_values(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES)
            return false;
    return true;
}

/* True if the output of a slice's call equals, up to rounding, the elements from slice_begin on along `axis` of the whole call's
 * output. Otherwise `message` receives the first difference. */
static bool parallel_slice_equals_part_of_whole(const check_op *op, const check_output *whole_output,
    const check_output *slice_output, int axis, int64_t slice_begin, char *message, size_t capacity)
{
    const int64_t n = dv_numel(&slice_output->t), size = whole_output->dims[axis], slice_size = slice_output->dims[axis];
    const double tolerance = check_get_reorder_tolerance(op, whole_output->t.dtype, check_output_get_max_magnitude(whole_output));
    char where[200], a[40], b[40];
    int64_t inner = 1;
    for (int32_t i = axis + 1; i < slice_output->t.ndim; i++)
        inner *= slice_output->dims[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i / inner % slice_size, at = (i / inner / slice_size * size + slice_begin + k) * inner + i % inner;
        int number;
        if (!check_output_elements_differ(slice_output, i, whole_output, at, tolerance, &number))
            continue;
        check_output_format_element_name(op, whole_output, at, where, sizeof where);
        snprintf(message, capacity, "%s is %s%s in the whole and %s in the slice", where,
            check_output_format_number(whole_output, at, number, a, sizeof a), number ? " (imaginary)" : "",
            check_output_format_number(slice_output, i, number, b, sizeof b));
        return false;
    }
    return true;
}

typedef struct slice_calls {
    check_unguarded_call whole_call, slices[2];
    check_outputs outputs[3];
} slice_calls;
static slice_calls sliced_calls;

/* Makes the whole call and the calls of its two slices, and copies their outputs to sliced_calls. Returns false if it is not
 * clear how tensors are split, or a call was refused. */
static bool parallel_try_call_slices(slice_cut *cut, const check_job *job)
{
    if (!parallel_try_set_split_axes(cut) ||
        !check_unguarded_call_try_init(&sliced_calls.whole_call, job->op, job->kernel, cut->c) ||
        !check_unguarded_call_try_init_slice(&sliced_calls.slices[0], &sliced_calls.whole_call, cut->axes, 0, cut->position) ||
        !check_unguarded_call_try_init_slice(
            &sliced_calls.slices[1], &sliced_calls.whole_call, cut->axes, cut->position, cut->size))
        return false;
    for (int i = 0; i < 3; i++) {
        check_unguarded_call *call = i ? &sliced_calls.slices[i - 1] : &sliced_calls.whole_call;
        check_unguarded_call_run(call);
        if (call->status)
            return false;
        check_outputs_copy(&sliced_calls.outputs[i], job->op, cut->c, call->results, call->values.tensors);
        if (sliced_calls.outputs[i].is_incomplete || sliced_calls.outputs[i].noutputs != sliced_calls.outputs[0].noutputs)
            return false;
    }
    return true;
}

/* Checks a declared parallel(name): the call of each slice alone gives that slice of the whole call's results. */
static void parallel_check_slices(check_job *job, slice_cut *cut)
{
    char words[300];
    if (!parallel_try_call_slices(cut, job))
        return;
    for (int slice_number = 0; slice_number < 2; slice_number++)
        for (size_t i = 0; i < sliced_calls.outputs[0].noutputs && !parallel_has_failed(job); i++) {
            const check_output *whole_output = &sliced_calls.outputs[0].items[i],
                               *slice_output = &sliced_calls.outputs[1 + slice_number].items[i];
            const int64_t low = slice_number ? cut->position : 0, high = slice_number ? cut->size : cut->position;
            const int axis = parallel_find_slice_dim_index(
                cut, high - low, whole_output->t.ndim, whole_output->dims, slice_output->t.ndim, slice_output->dims);
            if (axis >= 0 &&
                !parallel_slice_equals_part_of_whole(job->op, whole_output, slice_output, axis, low, words, sizeof words))
                check_fail(job, "not parallel",
                    "parallel(%s%s) does not hold: of the slice [%lld, %lld) alone the result is another than that slice of the "
                    "whole: %s",
                    cut->name->kind == CHECK_NAME_VARIADIC ? "*" : "", cut->name->text, (long long)low, (long long)high, words);
        }
}

/* Returns an upper bound of |product| of one element of each tensor; each factor counts as at least 1. *max_terms receives the
 * number of such products that one sum may have, which is the largest tensor's number of elements. */
static double parallel_get_max_product(const check_case *c, double *max_terms)
{
    double product = 1;
    *max_terms = 1;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        product *= fmax(1, fmax(fabs(t->low), fabs(t->high)));
        *max_terms = fmax(*max_terms, (double)check_tensor_numel(t));
    }
    return product;
}

/* Returns how far a sum may lie from the same sum in another order. Its terms are products with an element of each tensor as a
 * factor. max_magnitude: of the results. A kernel that rounds every step to a narrow dtype has inaccurate values, but its result
 * is still a sum, so the largest rounding error is allowed. */
static double parallel_get_sum_tolerance(const check_op *op, const check_case *c, dv_dtype dtype, double max_magnitude)
{
    double terms;
    const double product = parallel_get_max_product(c, &terms);
    const double order = dtype.bits >= 64 ? 8 * 0x1p-53 : dtype.bits >= 32 ? 8 * 0x1p-24 : terms * check_get_unit_roundoff(dtype);
    const double one_by_one = dtype.bits >= 32 ? terms * check_get_unit_roundoff(dtype) * max_magnitude
                                               : 0; /* the roundings of a sum of equal terms all have one sign */
    return check_get_reorder_tolerance(op, dtype, fmax(max_magnitude, product)) + order * terms * product + one_by_one;
}

/* True if an integer element of the whole call's output is the sum of the same element of both slices' outputs. Integers wrap, so
 * the sum is compared modulo 2^bits. */
static bool parallel_is_exact_sum(
    const check_output *whole_output, const check_output *first_slice, const check_output *second_slice, int64_t element_index)
{
    const size_t size = (size_t)dv_dtype_bytes(whole_output->t.dtype, 1);
    uint64_t w = 0, x = 0, y = 0;
    memcpy(&w, (const char *)whole_output->t.data + (size_t)element_index * size, size);
    memcpy(&x, (const char *)first_slice->t.data + (size_t)element_index * size, size);
    memcpy(&y, (const char *)second_slice->t.data + (size_t)element_index * size, size);
    const uint64_t difference = x + y - w;
    return !memcmp(&difference, &(uint64_t){ 0 }, size);
}

/* True if an integer result of this dtype may overflow: a sum of products, with an element of each tensor and each number
 * argument as factors. An operator may saturate it. */
static bool parallel_sum_may_overflow(const check_case *c, dv_dtype dtype)
{
    double terms, product = parallel_get_max_product(c, &terms);
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *v = &c->args[i];
        product *= fmax(1, fabs(v->type == DV_VALUE_INT ? (double)v->as.i : v->type == DV_VALUE_FLOAT ? v->as.f : 1));
    }
    return !(product * terms < ldexp(1, dtype.bits - (dtype.code == 0)));
}

/* Size of the integers that a sum adds. TERMS_SMALL: from -1 to 1. TERMS_LARGE: all are the bound of an 8 or 16 bit dtype that is
 * farther from 0. */
enum term_size { TERMS_SMALL, TERMS_LARGE };

/* Copies a case to `out` with integers of this size as elements of its tensors. Returns false if the contract does not accept the
 * copy, or a sum in sum_dtype may overflow. */
static bool parallel_try_make_case_with_integer_terms(
    const check_job *job, const check_case *c, enum term_size size_of_terms, dv_dtype sum_dtype, check_case *out)
{
    *out = *c;
    for (size_t i = 0; i < out->ntensors; i++) {
        check_tensor *t = &out->tensors[i];
        const bool large = size_of_terms == TERMS_LARGE;
        if (!t->present || !check_is_integer_dtype(t->dtype) || t->dtype.bits < 8 || (large && t->dtype.bits > 16) ||
            check_has_positional_fill(t))
            continue;
        t->fill = CHECK_FILL_RANDOM;
        t->high_size_code = 0;
        t->low = large ? t->dtype.code ? ldexp(1, t->dtype.bits) - 1 : -ldexp(1, t->dtype.bits - 1) : fmax(t->low, -1);
        t->high = large ? t->low : fmin(t->high, 1);
        if (t->low > t->high || (large && t->dtype.code == 6))
            *t = c->tensors[i];
    }
    return !parallel_sum_may_overflow(out, sum_dtype) && check_is_accepted(job->op, out);
}

/* True if an output has integers of at least 8 bits; bool does not count. */
static bool parallel_is_integer_output(const check_output *output)
{
    return check_is_integer_dtype(output->t.dtype) && output->t.dtype.code != 6 && output->t.dtype.bits >= 8;
}

/* Fails the job if the results of the slices in sliced_calls do not add up to those of the whole call. Returns the dtype of the
 * last integer result whose sum is not exact and may have overflowed, which is no failure; bits 0: there is none. */
static dv_dtype parallel_check_sums_and_get_overflowed_dtype(check_job *job, const slice_cut *cut)
{
    char where[200];
    dv_dtype large = { .bits = 0 };
    for (size_t i = 0; i < sliced_calls.outputs[0].noutputs && !parallel_has_failed(job); i++) {
        const check_output *whole_output = &sliced_calls.outputs[0].items[i], *a = &sliced_calls.outputs[1].items[i],
                           *b = &sliced_calls.outputs[2].items[i];
        const bool whole_numbers = parallel_is_integer_output(whole_output);
        if (whole_output->slot < job->op->nargs || whole_output->is_number_result ||
            !(whole_numbers || check_is_float_dtype(whole_output->t.dtype)))
            continue;
        const bool same = !memcmp(whole_output->dims, a->dims, sizeof a->dims) &&
            !memcmp(whole_output->dims, b->dims, sizeof a->dims);
        const check_json *unbacked = check_json_find_member(job->op->contract, "unbacked");
        if (!same && !(unbacked && unbacked->child)) {
            check_fail(job, "not a sum", "sum(%s%s) does not hold: result '%s' has another shape for [0, %lld) alone",
                cut->name->kind == CHECK_NAME_VARIADIC ? "*" : "", cut->name->text, job->op->slots[whole_output->slot].name,
                (long long)cut->position);
        }
        if (!same)
            continue;
        const double largest = fmax(check_output_get_max_magnitude(whole_output),
            fmax(check_output_get_max_magnitude(a), check_output_get_max_magnitude(b)));
        const double tolerance = whole_numbers ? 0 : parallel_get_sum_tolerance(job->op, cut->c, whole_output->t.dtype, largest);
        const bool overflows = whole_numbers && parallel_sum_may_overflow(cut->c, whole_output->t.dtype);
        for (int64_t n = 0, all = dv_numel(&whole_output->t); n < all && !parallel_has_failed(job); n++) {
            const double w = check_element_get(whole_output->t.data, n, whole_output->t.dtype),
                         x = check_element_get(a->t.data, n, a->t.dtype), y = check_element_get(b->t.data, n, b->t.dtype);
            if (whole_numbers ? parallel_is_exact_sum(whole_output, a, b, n)
                              : !isfinite(w) || !isfinite(x + y) || fabs(x + y - w) <= tolerance)
                continue;
            if (overflows) {
                large = whole_output->t.dtype;
                break;
            }
            check_output_format_element_name(job->op, whole_output, n, where, sizeof where);
            check_fail(job, "not a sum",
                "sum(%s%s) does not hold: of [0, %lld) and [%lld, %lld) alone %s is %.9g and %.9g, and of the whole %.9g",
                cut->name->kind == CHECK_NAME_VARIADIC ? "*" : "", cut->name->text, (long long)cut->position,
                (long long)cut->position, (long long)cut->size, where, x, y, w);
        }
    }
    return large;
}

/* Checks a declared sum once more, with a case that has other integers in its tensors and is split at `position`. Restores the
 * current case unless the check fails. */
static void parallel_check_sum_with_integers(
    check_job *job, const slice_cut *cut, const check_case *case_with_integers, int64_t position)
{
    static check_case original_case;
    slice_cut other = *cut;
    original_case = *cut->c;
    other.c = case_with_integers;
    other.position = position;
    check_set_current_case(job, case_with_integers);
    if (parallel_try_call_slices(&other, job))
        parallel_check_sums_and_get_overflowed_dtype(job, &other);
    if (!parallel_has_failed(job))
        check_set_current_case(job, &original_case);
}

/* Checks a declared sum(name): the results of two slices add up to those of the whole call. Integers must add up exactly, the
 * largest ones too: a kernel may add them in a dtype that is too narrow. */
static void parallel_check_sum(check_job *job, slice_cut *cut)
{
    static check_case other;
    dv_dtype integers = { .bits = 0 };
    if (!parallel_try_call_slices(cut, job))
        return;
    for (size_t i = 0; i < sliced_calls.outputs[0].noutputs; i++)
        integers = parallel_is_integer_output(&sliced_calls.outputs[0].items[i]) ? sliced_calls.outputs[0].items[i].t.dtype
                                                                                 : integers;
    const dv_dtype large = parallel_check_sums_and_get_overflowed_dtype(job, cut);
    if (large.bits && !parallel_has_failed(job)) {
        if (parallel_try_make_case_with_integer_terms(job, cut->c, TERMS_SMALL, large, &other))
            parallel_check_sum_with_integers(job, cut, &other, cut->position);
        else
            check_set_omitted(job, "large sums of integers, which may overflow the dtype of the result");
    }
    if (integers.bits && !parallel_has_failed(job) &&
        parallel_try_make_case_with_integer_terms(job, cut->c, TERMS_LARGE, integers, &other))
        parallel_check_sum_with_integers(job, cut, &other, 1);
}

/* Returns the contract's name to which a fact's JSON refers: ["dim", "n"], or ["run", "s"] for variadic dims. NULL: the contract
 * has no such name. */
static const check_name *parallel_find_fact_name(const check_op *op, const check_json *fact)
{
    return check_op_find_name(
        op, check_json_is_expr(fact, "run") ? CHECK_NAME_VARIADIC : CHECK_NAME_DIM, fact->child->next->text);
}

/* Calls check_cut() for each dim of more than one element that a name stands for, split into two slices. Does nothing if the name
 * is NULL, or if facts on elements or other names depend on it. */
static void parallel_check_cuts_of_name(
    check_job *job, const check_case *c, const check_name *name, void (*check_cut)(check_job *, slice_cut *))
{
    const bool is_variadic = name && name->kind == CHECK_NAME_VARIADIC;
    /* a slice need not be a valid call if something else depends on the size */
    if (!name || check_name_has_dependents(job->op, name))
        return;
    for (int32_t axis = 0; axis < (is_variadic ? c->names.variadics[name->value_index].ndim : 1) && !parallel_has_failed(job);
        axis++) {
        slice_cut cut = { .op = job->op, .c = c, .name = name, .axis = axis };
        cut.size = is_variadic ? c->names.variadics[name->value_index].sizes[axis] : c->names.dims[name->value_index];
        cut.position = cut.size > 1 ? 1 + (int64_t)(c->seed % (uint64_t)(cut.size - 1)) : 0;
        if (cut.position)
            check_cut(job, &cut);
    }
}

/* True if a fact of the contract stands outside of all groups of cases, or in the contract's case that this call selects.
 * fact_case: the fact's entry in the contract's JSON "places". */
static bool parallel_fact_applies(const check_case *c, const check_json *fact_case)
{
    const check_json *when = check_json_find_member(fact_case, "case"),
                     *group = when && when->kind == CHECK_JSON_ARRAY ? when->child : NULL;
    return !group ||
        (group->int_value < CHECK_MAX_CASE_GROUPS && c->names.selected_case[group->int_value] == group->next->int_value);
}

/* Checks the facts parallel() and sum() of the contract that apply to the case, with each of their dims split at one position. */
static void parallel_check_facts(check_job *job, const check_case *c)
{
    const check_json *places = check_json_find_member(job->op->contract, "places"), *fact_case = places ? places->child : NULL;
    for (int sums = 0; sums < 2; sums++) {
        const check_json *facts = check_json_find_member(job->op->contract, sums ? "sum" : "parallel");
        for (const check_json *fact = facts ? facts->child : NULL; fact && !parallel_has_failed(job);
            fact = fact->next, fact_case = fact_case->next)
            if (parallel_fact_applies(c, fact_case))
                parallel_check_cuts_of_name(
                    job, c, parallel_find_fact_name(job->op, fact), sums ? parallel_check_sum : parallel_check_slices);
    }
}

/* ---- Four threads at once ---- */

typedef struct thread_call {
    check_unguarded_call call;
    check_case c;
    check_outputs expected, found;
    pthread_t id;
    atomic_bool *stop;
    bool differs;
} thread_call;

/* Sleeps for ns nanoseconds. */
static void parallel_sleep_ns(long ns)
{
    const struct timespec t = { 0, ns };
    nanosleep(&t, NULL);
}

/* Pauses this thread for 30 us while the others continue. Handler of SIGUSR1. */
static void parallel_on_pause_signal(int signal_number)
{
    (void)signal_number;
    parallel_sleep_ns(30000);
}

/* Makes a thread's call, and sets thread_call.differs if its outputs differ from the expected ones. A refused call changes
 * nothing. */
static void parallel_call_and_compare(void *thread_call_arg)
{
    thread_call *thread = thread_call_arg;
    char words[300];
    check_unguarded_call_run(&thread->call);
    if (thread->call.status)
        return;
    check_outputs_copy(&thread->found, thread->call.op, &thread->c, thread->call.results, thread->call.values.tensors);
    thread->differs |= check_outputs_differ(thread->call.op, &thread->expected, &thread->found, words, sizeof words);
}

/* Repeats a thread's call until a result differs or another thread stops all threads. Main function of the threads; returns NULL.
 */
static void *parallel_repeat_call_until_stopped(void *thread_call_arg)
{
    thread_call *thread = thread_call_arg;
    while (!atomic_load_explicit(thread->stop, memory_order_relaxed)) {
        parallel_call_and_compare(thread);
        if (thread->differs)
            atomic_store(thread->stop, true);
    }
    return NULL;
}

/* ---- Static memory: kernels that write to it are checked for longer ---- */

/* True if a path names Dovetail's own library, the C library, libm, the loader or the vDSO. */
static bool parallel_is_system_library(const char *path)
{
    static const char *const others[] = { "/libdovetail", "/libc.", "/libm.", "/ld-linux", "linux-vdso" };
    bool result = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        result |= strstr(path, others[i]) != NULL;
    return result;
}

/* Updates *hash, a uint64_t, with the writable and thread-local segments of one loaded library, unless it is a system library or
 * a segment is larger than MAX_STATIC_BYTES. Callback of dl_iterate_phdr(); returns 0. */
static int parallel_hash_segments(struct dl_phdr_info *info, size_t size, void *hash)
{
    uint64_t *h = hash;
    const bool counts = *info->dlpi_name && !parallel_is_system_library(info->dlpi_name);
    (void)size;
    for (int i = 0; counts && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *s = &info->dlpi_phdr[i];
        const bool of_thread = s->p_type == PT_TLS;
        const unsigned char *from = of_thread ? info->dlpi_tls_data : (const void *)(uintptr_t)(info->dlpi_addr + s->p_vaddr);
        if (from && (of_thread || (s->p_type == PT_LOAD && s->p_flags & PF_W)) && s->p_memsz <= MAX_STATIC_BYTES)
            for (size_t k = 0; k < s->p_memsz; k++)
                *h = (*h ^ from[k]) * UINT64_C(0x100000001b3);
    }
    return 0;
}

/* Returns a hash of the static memory of all loaded libraries except the system's and Dovetail's. */
static uint64_t parallel_hash_static_memory(void)
{
    uint64_t hash = 0;
    dl_iterate_phdr(parallel_hash_segments, &hash);
    return hash;
}

static thread_call thread_calls[NUM_THREADS];

/* Prepares a thread's call with its own contents (seed_offset is added to the seed): makes it alone and stores the expected
 * outputs. Returns false if the call is refused. */
static bool parallel_try_prepare_thread_call(const check_job *job, const check_case *c, uint64_t seed_offset, thread_call *thread)
{
    thread->c = *c;
    thread->c.seed += seed_offset;
    thread->differs = false;
    if (!check_unguarded_call_try_init(&thread->call, job->op, job->kernel, &thread->c))
        return false;
    check_unguarded_call_run(&thread->call);
    if (thread->call.status)
        return false;
    check_outputs_copy(&thread->expected, job->op, &thread->c, thread->call.results, thread->call.values.tensors);
    return !thread->expected.is_incomplete;
}

/* Prepares the calls of NUM_THREADS threads, each with other contents. Returns the number of calls that succeed alone. */
static int parallel_prepare_and_count_thread_calls(const check_job *job, const check_case *c)
{
    int n = 0;
    for (int i = 0; i < NUM_THREADS; i++)
        n += parallel_try_prepare_thread_call(job, c, (uint64_t)i * 1000, &thread_calls[n]);
    return n;
}

static bool has_called_kernel; /* true if this process has called the kernel */

/* True if a result changes when thread_calls[1] is called between the instructions of thread_calls[0]. The case itself is unused.
 */
static bool parallel_differs_when_interleaved(const check_job *job, const check_case *c)
{
    (void)c;
    check_unguarded_call_run(&thread_calls[0].call);
    job->result->forked_after_call = false; /* the call has just ended, so it waits for no thread that a forked process lacks */
    check_heap_overwrite_freed();
    const dv_host host = thread_calls[0].call.host;
    thread_calls[0].call.host.before_kernel = interleave_begin_stepping;
    thread_calls[0].call.host.after_kernel = interleave_end_stepping;
    interleave_try_calls(parallel_call_and_compare, &thread_calls[0], parallel_call_and_compare, &thread_calls[1]);
    thread_calls[0].call.host = host;
    return thread_calls[0].differs || thread_calls[1].differs;
}

/* Calls predicate(job, c) in a forked process, and returns its result. Returns false if a signal killed that process: the trap of
 * single-stepping kills a kernel that blocks signals. If a fault was reported there, this process exits, too. */
static bool parallel_is_true_in_fork(
    check_job *job, const check_case *c, bool (*predicate)(const check_job *, const check_case *))
{
    int status = 0;
    struct itimerval remaining;
    getitimer(ITIMER_PROF, &remaining);
    job->result->forked_after_call = has_called_kernel;
    const pid_t pid = check_fork();
    if (!pid) {
        setitimer(ITIMER_PROF, &remaining, NULL);
        _exit(predicate(job, c));
    }
    job->result->helper_pid = (int32_t)(pid > 0 ? pid : 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    job->result->helper_pid = 0;
    job->result->forked_after_call = false;
    if (WIFEXITED(status) && WEXITSTATUS(status) > 1) /* an exit status above 1: a fault was reported in the forked process */
        _exit(WEXITSTATUS(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

/* Returns the processor time in seconds of all forked processes that have ended. */
static double parallel_get_forks_cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
        1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* Interrupts the threads in turn with SIGUSR1, which pauses each for a moment. Returns after so many seconds, or when *stop is
 * set because a result differs. */
static void parallel_pause_threads(int nthreads, double seconds, const atomic_bool *stop)
{
    const double end = check_get_monotonic_seconds() + seconds;
    for (int i = 0; !atomic_load_explicit(stop, memory_order_relaxed) && check_get_monotonic_seconds() < end; i++) {
        pthread_kill(thread_calls[i % nthreads].id, SIGUSR1);
        parallel_sleep_ns(20000);
    }
}

/* Checks that NUM_THREADS threads can call the kernel at once, each with its own data. A kernel that writes to static memory is
 * tried for longer. */
static void parallel_check_simultaneous_calls(check_job *job, const check_case *c)
{
    const struct sigaction action = { .sa_handler = parallel_on_pause_signal, .sa_flags = SA_RESTART };
    struct sigaction before;
    static atomic_bool stop;
    int started = 0;
    const int nthreads = parallel_prepare_and_count_thread_calls(job, c);
    if (nthreads < 2)
        return;
    const uint64_t hash = parallel_hash_static_memory();
    check_unguarded_call_run(&thread_calls[0].call);
    const bool writes_static_memory = parallel_hash_static_memory() != hash;
    parallel_report_faults_here(job);
    snprintf(job->result->fault_condition, sizeof job->result->fault_condition,
        "when %d threads call it at once, each with its own data", nthreads);
    if (writes_static_memory || !job->result->tried_cases)
        thread_calls[0].differs |= CAN_SINGLE_STEP && parallel_is_true_in_fork(job, c, parallel_differs_when_interleaved);
    prctl(PR_SET_TIMERSLACK, 1);
    sigaction(SIGUSR1, &action, &before);
    atomic_store(&stop, thread_calls[0].differs || thread_calls[1].differs);
    for (; started < nthreads; started++) {
        thread_calls[started].stop = &stop;
        if (pthread_create(&thread_calls[started].id, NULL, parallel_repeat_call_until_stopped, &thread_calls[started]))
            break;
    }
    if (started)
        parallel_pause_threads(started, job->result->tried_cases ? writes_static_memory ? 0.06 : 0.004 : 0.03, &stop);
    atomic_store(&stop, true);
    for (int i = 0; i < started; i++)
        pthread_join(thread_calls[i].id, NULL);
    sigaction(SIGUSR1, &before, NULL);
    job->result->also_reported_faults = 0;
    for (int i = 0; i < started; i++)
        if (thread_calls[i].differs)
            check_fail(job, "not thread-safe",
                "%d threads called it at once, each with its own data, and a result is not the one that the same call gives "
                "alone%s",
                started, writes_static_memory ? ": the kernel writes to static memory" : "");
}

/* Copies to `out` the case of the plan with the most elements up to max_elements, but with another number of elements than case
 * c. Returns false if the plan has no such case. */
static bool parallel_try_copy_case_of_other_numel(
    const check_job *job, const check_case *c, int64_t max_elements, check_case *out)
{
    int64_t most = 0;
    for (uint32_t k = 0; job->plan && k < job->plan->ncases; k++) {
        const check_case *planned_case = &job->plan->cases[k];
        const int64_t n = check_case_max_numel(planned_case);
        if (n > most && n <= max_elements && n != check_case_max_numel(c) && parallel_has_no_special_values(planned_case) &&
            !job->plan->dropped[k] && !check_has_endless_int(job->op, planned_case)) {
            most = n;
            *out = *planned_case;
        }
    }
    return most > 0;
}

/* ---- Chunks and first calls inside each other ---- */

/* True if results change when the other chunks of a loop run before some instruction of its first chunk. Tries one instruction in
 * each call, for at most a quarter of a second. */
static bool parallel_has_chunk_race(const check_job *job, const check_case *c)
{
    enum { MAX_CLOCKS = CLOCKS_PER_SEC / 4 };
    static check_outputs uncut_outputs, other;
    char words[300];
    if (!parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &uncut_outputs))
        return false;
    job->result->forked_after_call = false;
    const clock_t begin = clock();
    single_stop.position = 0;
    single_stop.stop_condition = 0;
    do {
        if (parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, interleave_parallel_for_inside_first, false, &other) &&
            check_outputs_differ_unordered(job->op, c, &uncut_outputs, &other, words, sizeof words))
            return true;
    } while (single_stop_try_select_next_position() && clock() - begin < MAX_CLOCKS);
    return false;
}

/* Shared memory in which a process that makes a first call leaves data for the next such process. */
enum { MAX_WRITES = 1000 };
static struct {
    int late;    /* number of other threads' calls that did not end in time */
    int64_t all; /* instructions of the first call */
    size_t n;    /* number of recorded writes */
    struct {
        const uint8_t *by;
        int64_t at;
    } writes[MAX_WRITES];
} *first_call_record;

/* Records a write to memory of the first call: the address of the instruction, and its number in the call. Writes past MAX_WRITES
 * are not recorded. */
static void parallel_record_write(const uint8_t *instruction, int64_t instruction_number)
{
    if (first_call_record->n < MAX_WRITES) {
        first_call_record->writes[first_call_record->n].by = instruction;
        first_call_record->writes[first_call_record->n++].at = instruction_number;
    }
}

/* Begins single-stepping of a process's first call (function for dv_host.before_kernel). Before instruction number
 * single_stop.position another thread makes a call, which finds races in lazy initialization. Each write is recorded. */
static void parallel_begin_stepping_first_call(const dv_host *host)
{
    (void)host;
    single_stop.timeouts = first_call_record->late;
    single_stop.on_write = parallel_record_write;
    single_stop_try_begin(parallel_call_and_compare, &thread_calls[1]);
}

/* Ends single-stepping of the first call (function for dv_host.after_kernel). Records the number of instructions and of late
 * calls for the next process. */
static void parallel_end_stepping_first_call(const dv_host *host)
{
    (void)host;
    single_stop_end();
    first_call_record->late = single_stop.timeouts;
    first_call_record->all = single_stop.total;
}

static const check_case *second_case; /* case of the other thread's call; NULL: the first call's case with other contents */

/* True if a result of either call differs when another thread makes a call before instruction number single_stop.position of a
 * process's first call. Each call is repeated alone for comparison. */
static bool parallel_differs_in_first_call(const check_job *job, const check_case *c)
{
    char words[300];
    bool differs = false;
    check_heap_overwrite_freed();
    for (int i = 0; i < 2; i++) {
        thread_calls[i].c = i && second_case ? *second_case : *c;
        thread_calls[i].c.seed += (uint64_t)i * 1000;
        if (!check_unguarded_call_try_init(&thread_calls[i].call, job->op, job->kernel, &thread_calls[i].c))
            return false;
    }
    thread_calls[0].call.host.before_kernel = parallel_begin_stepping_first_call;
    thread_calls[0].call.host.after_kernel = parallel_end_stepping_first_call;
    parallel_call_and_compare(&thread_calls[0]);
    thread_calls[0].call.host.before_kernel = thread_calls[0].call.host.after_kernel = NULL;
    for (int i = 0; i < 2 && !differs; i++) {
        thread_call *thread = &thread_calls[i];
        check_unguarded_call_run(&thread->call);
        if (thread->call.status || thread->found.is_incomplete)
            return false;
        check_outputs_copy(&thread->expected, job->op, &thread->c, thread->call.results, thread->call.values.tensors);
        differs = thread->found.noutputs == thread->expected.noutputs &&
            check_outputs_differ(job->op, &thread->expected, &thread->found, words, sizeof words);
    }
    return differs;
}

/* True if the first call of a process changes the static memory of the operator's libraries. */
static bool parallel_first_call_writes_static_memory(const check_job *job, const check_case *c)
{
    const bool is_ready = check_unguarded_call_try_init(&thread_calls[0].call, job->op, job->kernel, c);
    const uint64_t hash = parallel_hash_static_memory();
    if (is_ready)
        check_unguarded_call_run(&thread_calls[0].call);
    return is_ready && parallel_hash_static_memory() != hash;
}

/* True if a recorded write was made by the operator's code, or follows directly on a write of it, as the first one in a function
 * that it calls. Other writes, such as those of malloc(), are not tried. */
static bool parallel_is_operator_write(size_t write_index)
{
    bool is_operator_code[2] = { false, true };
    for (size_t i = 0; i < 2 && write_index >= i; i++) {
        Dl_info info;
        is_operator_code[i] = !dladdr(first_call_record->writes[write_index - i].by, &info) ||
            !parallel_is_system_library(info.dli_fname);
    }
    return is_operator_code[0] || is_operator_code[1];
}

/* True if a result differs when the other thread's call is made before this instruction of a first call. Runs in a forked
 * process. */
static bool parallel_differs_at_instruction(check_job *job, const check_case *c, int64_t instruction_number)
{
    single_stop.position = instruction_number;
    return parallel_is_true_in_fork(job, c, parallel_differs_in_first_call);
}

/* True if another thread's call during a process's first call changes a result. The other call is made before ever fewer
 * instructions, since a first call may have thousands of them, and before each of the first writes: a flag may be set just before
 * the data that it announces is stored. */
static bool parallel_has_first_call_race(check_job *job, const check_case *c, const check_case *other_thread_case)
{
    if (!first_call_record && !(first_call_record = check_map_shared_memory(sizeof *first_call_record)))
        return false;
    second_case = other_thread_case;
    single_stop.stop_condition = 0;
    memset(first_call_record, 0, sizeof *first_call_record);
    parallel_report_timeouts_here(job, "when another thread calls it during its first call");
    bool differs = parallel_differs_at_instruction(job, c, 0);
    for (int64_t instruction_number = FIRST_INTERRUPTED;
        instruction_number < first_call_record->all && instruction_number < MAX_INTERRUPTED && !differs;
        instruction_number += instruction_number / 4)
        differs = parallel_differs_at_instruction(job, c, instruction_number);
    const double begin = parallel_get_forks_cpu_seconds();
    for (size_t write_index = 0;
        write_index < first_call_record->n && parallel_get_forks_cpu_seconds() - begin < MAX_RACE_SECONDS && !differs;
        write_index++)
        differs = parallel_is_operator_write(write_index) &&
            parallel_differs_at_instruction(job, c, first_call_record->writes[write_index].at);
    job->result->also_reported_faults = 0;
    return differs;
}

/* True if another call during a process's first call changes a result, for calls of the same size, or for a small and a large
 * case. */
static bool parallel_has_any_first_call_race(check_job *job, const check_case *c)
{
    static check_case small, large;
    return parallel_has_first_call_race(job, c, NULL) ||
        (parallel_try_copy_case_of_other_numel(job, c, MAX_SMALL_ELEMENTS, &small) &&
            parallel_try_copy_case_of_other_numel(job, &small, MAX_LARGE_ELEMENTS, &large) &&
            parallel_has_first_call_race(job, &small, &large));
}

/* ---- State that a call leaves ---- */

static struct {
    const check_case *before;  /* NULL: no call before */
    uint64_t *sum;             /* receives a hash of what the call wrote */
    enum check_guard_side end; /* guard side of the preceding call's arguments */
} state_probe;

/* Calls the kernel with state_probe.before, unless it is NULL, and then with case c. Stores a hash of the second call's outputs
 * in *state_probe.sum. Returns false if that call was refused, or an output could not be copied. */
static bool parallel_try_hash_outputs_after_preceding(const check_job *job, const check_case *c)
{
    static check_outputs outputs;
    check_result *result = job->result;
    result->has_preceding_case = state_probe.before;
    if (state_probe.before) {
        result->current_case = *state_probe.before;
        parallel_try_call_kernel(job, state_probe.before, state_probe.end, NULL, false, &outputs);
    }
    result->current_case = *c;
    if (!parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &outputs))
        return false;
    *state_probe.sum = 0;
    for (size_t i = 0; i < outputs.noutputs; i++) {
        const dv_tensor *t = &outputs.items[i].t;
        const unsigned char *data = t->data;
        for (int64_t k = dv_numel(t) * dv_dtype_bytes(t->dtype, 1); k-- > 0;)
            *state_probe.sum = (*state_probe.sum ^ data[k]) * UINT64_C(0x100000001b3);
    }
    return !outputs.is_incomplete;
}

/* True if a call gives other results after a call with preceding_case than without, in two tries. Each try runs in a process that
 * has made no call. */
static bool parallel_depends_on_preceding_call(check_job *job, const check_case *preceding_case, const check_case *c)
{
    uint64_t sums[4];
    for (int i = 0; i < 4; i++) {
        state_probe.before = i % 2 ? preceding_case : NULL;
        if (!parallel_is_true_in_fork(job, c, parallel_try_hash_outputs_after_preceding))
            return false;
        sums[i] = *state_probe.sum;
        if (i == 1 && sums[0] == sums[1])
            return false;
    }
    return sums[0] == sums[2] && sums[1] == sums[3];
}

/* Copies a case to `out` with the argument of a slot as case number plan_case_index of the plan has it. Returns false if that
 * argument is a tensor or the same as before, or the copy is not accepted. */
static bool parallel_try_make_case_with_planned_argument(
    const check_job *job, const check_case *c, size_t slot, uint32_t plan_case_index, check_case *out)
{
    const check_value *value = &job->plan->cases[plan_case_index].args[slot];
    if (value->type == DV_VALUE_TENSOR || value->type == DV_VALUE_TENSORS || !memcmp(value, &c->args[slot], sizeof *value))
        return false;
    *out = *c;
    out->args[slot] = *value;
    return !check_has_endless_int(job->op, out) && check_is_accepted(job->op, out);
}

/* Copies a case to `out` with another value for one argument, taken from some case of the plan. only_fraction: instead a float
 * argument grows by 0.25. Returns false if the argument is a tensor or a list of tensors, or no such copy is accepted. */
static bool parallel_try_make_case_with_other_argument(
    const check_job *job, const check_case *c, size_t slot, bool only_fraction, check_case *out)
{
    const check_value *value = &c->args[slot];
    if (value->type == DV_VALUE_TENSOR || value->type == DV_VALUE_TENSORS)
        return false;
    if (only_fraction) {
        const dv_value *by_default = &job->op->slots[slot].default_value;
        const bool given = value->type == DV_VALUE_FLOAT;
        *out = *c;
        out->args[slot] = (check_value){ .type = DV_VALUE_FLOAT, .as.f = (given ? value->as.f : by_default->as.f) + 0.25 };
        return (given || (value->type == DV_VALUE_DEFAULT && by_default->type == DV_VALUE_FLOAT)) &&
            check_is_accepted(job->op, out);
    }
    for (uint32_t k = 0; job->plan && k < job->plan->ncases; k++)
        if (parallel_try_make_case_with_planned_argument(job, c, slot, k, out))
            return true;
    return false;
}

/* True if a call of the other case changes static memory, and a call of one case between the instructions of a call of the other
 * changes a result. */
static bool parallel_interleaved_cases_differ(check_job *job, const check_case *c, const check_case *other)
{
    if (!parallel_try_prepare_thread_call(job, c, 0, &thread_calls[0]))
        return false;
    const uint64_t hash = parallel_hash_static_memory();
    return parallel_try_prepare_thread_call(job, other, 0, &thread_calls[1]) && parallel_hash_static_memory() != hash &&
        parallel_is_true_in_fork(job, c, parallel_differs_when_interleaved);
}

/* Checks that a call gives the same results while another thread calls the kernel with another argument or other sizes. */
static void parallel_check_threads_with_other_arguments(check_job *job, const check_case *c)
{
    static check_case other;
    const char *argument = NULL;
    parallel_report_timeouts_here(job, "when another thread calls it with other arguments");
    for (size_t slot = 0; slot < job->op->nargs && CAN_SINGLE_STEP && !argument; slot++)
        for (uint32_t k = 0, tries = 0; job->plan && k < job->plan->ncases && tries < MAX_OTHER_VALUES && !argument; k++)
            if (parallel_try_make_case_with_planned_argument(job, c, slot, k, &other)) {
                tries++;
                argument = parallel_interleaved_cases_differ(job, c, &other) ? job->op->slots[slot].name : NULL;
            }
    const bool differs = argument ||
        (CAN_SINGLE_STEP && parallel_try_copy_case_of_other_numel(job, c, MAX_LARGE_ELEMENTS, &other) &&
            parallel_interleaved_cases_differ(job, c, &other));
    job->result->also_reported_faults = 0;
    if (!differs)
        return;
    check_fail(job, "not thread-safe with others",
        "during the call another thread calls it with %s%s%s, and a result is not the one that the same call gives alone: the "
        "kernel writes to static memory",
        argument ? "another '" : "other sizes", argument ? argument : "", argument ? "'" : "");
}

/* Copies a case to `out` with other random contents of its tensors. has_low_elements: real numbers are from the lowest quarter of
 * their range, integers are all the lowest. Returns false if the case has no tensor, or the copy is not accepted. */
static bool parallel_try_make_case_with_other_contents(
    const check_job *job, const check_case *c, bool has_low_elements, check_case *out)
{
    *out = *c;
    out->seed += 2000; /* a multiple of 4, since the seed modulo 4 also selects the kind of special values */
    for (size_t i = 0; i < out->ntensors && has_low_elements; i++) {
        check_tensor *t = &out->tensors[i];
        t->high = check_is_integer_dtype(t->dtype) ? t->low : t->low + (t->high - t->low) / 4;
    }
    return c->ntensors && check_is_accepted(job->op, out);
}

/* Checks that results do not depend on a preceding call with another argument or other contents. Tries the first cases and the
 * first large ones, before this process has called the kernel; while shrinking only the given case. */
static void parallel_check_state(check_job *job, const check_case *input_case)
{
    static check_case original_case, c, other;
    const bool is_shrinking = !job->result->tried_cases;
    const double end = check_get_cpu_seconds() + job->result->cpu_limit_ms / 4e3;
    original_case = *input_case;
    state_probe.sum = state_probe.sum ? state_probe.sum : check_map_shared_memory(sizeof *state_probe.sum);
    for (uint32_t k = 0, large = 0;
        k < (is_shrinking ? 1 : job->plan->ncases) && (k < NUM_STATE_CASES || large < NUM_LARGE_STATE_CASES) && state_probe.sum;
        k++) {
        if (is_shrinking)
            c = original_case;
        else
            check_copy_case_with_seed(&job->plan->cases[k], job->result->seed, &c);
        if (!is_shrinking && (job->plan->dropped[k] || check_get_cpu_seconds() > end))
            continue;
        /* only cases with much work count as large: state may not show in a few elements */
        const double work = check_estimate_work_with_ints(job->op, &c);
        const bool is_large = work >= MIN_STATE_WORK && work <= MAX_WORK;
        large += is_large;
        if (!is_shrinking && k >= NUM_STATE_CASES && !is_large)
            continue;
        for (size_t variant = 0; variant < 2 * (c.nargs + 1) && check_is_accepted(job->op, &c); variant++) {
            const size_t slot = variant / 2;
            const bool changes_contents = slot == c.nargs;
            /* other contents are at other addresses: what a kernel stores by address is checked elsewhere */
            state_probe.end = changes_contents ? CHECK_GUARD_BEFORE : CHECK_GUARD_AFTER;
            /* excluded: a preceding call with the same contents changes the result, too */
            if (!(changes_contents ? parallel_try_make_case_with_other_contents(job, &c, variant % 2, &other)
                                   : parallel_try_make_case_with_other_argument(job, &c, slot, variant % 2, &other)) ||
                !parallel_depends_on_preceding_call(job, &other, &c) ||
                (changes_contents && parallel_depends_on_preceding_call(job, &c, &c)))
                continue;
            job->result->preceding_case = other;
            check_fail(job, "keeps state",
                "the same call gives another result after a call with %s%s%s, so something is kept from call to call",
                changes_contents ? "other contents" : "another '", changes_contents ? "" : job->op->slots[slot].name,
                changes_contents ? "" : "'");
            return;
        }
    }
    job->result->has_preceding_case = false;
    job->result->current_case = original_case;
}

/* ---- Larger cases and the property ---- */

/* Copies a case to `out` with one size so large that the work is shared among threads: that of a parallel dim, if the contract
 * has one. Returns false if no such case is accepted. */
static bool parallel_try_make_large_case(const check_job *job, const check_case *c, check_case *out)
{
    const check_json *parallel = check_json_find_member(job->op->contract, "parallel"), *fact = parallel ? parallel->child : NULL;
    const check_json *places = check_json_find_member(job->op->contract, "places");
    for (const check_json *fact_case = places ? places->child : NULL; fact && !parallel_fact_applies(c, fact_case);
        fact_case = fact_case->next)
        fact = fact->next;
    const check_name *name = fact ? parallel_find_fact_name(job->op, fact) : job->op->nnames ? &job->op->names[0] : NULL;
    for (size_t k = 0; k < job->op->nnames && !fact; k++)
        if (job->op->names[k].kind == CHECK_NAME_VARIADIC && name->kind != CHECK_NAME_VARIADIC)
            name = &job->op->names[k];
    const int64_t wanted_size = job->kernel->split ? 5 * job->kernel->split / 2 + 3 : MIN_SHARED_STEPS;
    *out = *c;
    if (!name || name->kind == CHECK_NAME_DTYPE || (!fact && check_case_max_numel(c) > MIN_SHARED_STEPS / 4))
        return false;
    const bool is_variadic = name->kind == CHECK_NAME_VARIADIC;
    int64_t steps = 1, *sizes = check_name_find_sizes(name, out);
    for (int32_t k = 1; is_variadic && k < c->names.variadics[name->value_index].ndim; k++)
        steps *= sizes[k];
    if (!steps || (is_variadic && !c->names.variadics[name->value_index].ndim) || *sizes * steps > wanted_size)
        return false;
    *sizes = wanted_size / steps + 1;
    return check_try_fit_case(job->op, out, c, NULL) && check_estimate_work(job->op, out) <= MAX_WORK &&
        check_is_accepted(job->op, out);
}

/* Returns `out`, a copy of the case in which one size is multiplied by `factor`, plus 1. size_index: index of a name of the
 * contract, or the number of names plus an int argument's slot. NULL: the case has no such size, or the copy is not accepted. */
static const check_case *parallel_find_case_with_multiplied_size(
    const check_job *job, const check_case *c, size_t size_index, int64_t factor, check_case *out)
{
    const check_name *name = size_index < job->op->nnames ? &job->op->names[size_index] : NULL;
    const size_t slot = size_index - job->op->nnames;
    *out = *c;
    int64_t *size = name ? check_name_find_sizes(name, out) : c->args[slot].type == DV_VALUE_INT ? &out->args[slot].as.i : NULL;
    const bool is_missing = name &&
        (!c->names.is_bound[size_index] || (name->kind == CHECK_NAME_VARIADIC && !c->names.variadics[name->value_index].ndim));
    if (!size || is_missing || *size < 1 || *size > MAX_WORK / factor)
        return NULL;
    *size = *size * factor + 1;
    return check_try_fit_case(job->op, out, c, NULL) && check_estimate_work(job->op, out) <= MAX_WORK &&
            check_is_accepted(job->op, out)
        ? out
        : NULL;
}

/* Copies a case to `out` so large that this loop of the kernel has several chunks. The loop's steps may be as many as a size, or
 * grow more slowly. Returns false if no such case was found. */
static bool parallel_try_make_chunked_case(const check_job *job, const check_case *c, const check_loop *loop, check_case *out)
{
    enum {
        SIZE_FACTOR = 16,
        FEW_CHUNKS = 2,
        MANY_CHUNKS = 18,
        ALL_CHUNKS = 258
    }; /* ALL_CHUNKS: more grains than the 256 chunks that the runtime makes of a loop */
    static check_outputs outputs;
    const int64_t grain = loop->grain < MAX_WORK ? loop->grain : MAX_WORK,
                  max_wanted = loop->split_cases > 1 ? FEW_CHUNKS
        : loop->split_cases                          ? ALL_CHUNKS
                                                     : MANY_CHUNKS;
    /* few chunks are tried last: each of them may have a buffer of its own */
    for (int64_t wanted = max_wanted; wanted; wanted = wanted > FEW_CHUNKS ? FEW_CHUNKS : 0)
        for (int64_t factor = wanted * grain / loop->steps + 1; factor <= MAX_WORK; factor *= SIZE_FACTOR)
            for (size_t size_index = 0; size_index < job->op->nnames + c->nargs; size_index++)
                if (parallel_find_case_with_multiplied_size(job, c, size_index, factor, out) &&
                    parallel_try_call_kernel(job, out, CHECK_GUARD_AFTER, NULL, false, &outputs) &&
                    parallel_loop_has_several_chunks(loop))
                    return true;
    return false;
}

/* Returns `out`, a larger case that runs a loop in several chunks, if case c runs it in one. NULL: no loop needs such a case, or
 * none can be made. */
static const check_case *parallel_find_chunked_case(const check_job *job, const check_case *c, check_case *out)
{
    enum { MAX_SPLIT_CASES = 3, MAX_SPLIT_ATTEMPTS = 12, MAX_SPLIT_CLOCKS = CLOCKS_PER_SEC / 4 };
    static clock_t spent;
    const clock_t begin = clock();
    bool is_made = false;
    for (check_loop *loop = job_result->loops; loop < job_result->loops + CHECK_MAX_LOOPS && loop->fn && !is_made; loop++)
        is_made = loop->last_case == job_result->tried_cases && loop->last_split_case != loop->last_case &&
            loop->split_cases < MAX_SPLIT_CASES && spent < MAX_SPLIT_CLOCKS && loop->split_attempts++ < MAX_SPLIT_ATTEMPTS &&
            parallel_try_make_chunked_case(job, c, loop, out);
    spent += clock() - begin;
    return is_made ? out : NULL;
}

/* True if, in all cases, some loop of the kernel never had several chunks although its number of steps varies. */
static bool parallel_has_unchunked_loop(void)
{
    bool any = false;
    for (size_t i = 0; job_result && i < CHECK_MAX_LOOPS; i++)
        any |= job_result->loops[i].fn && !job_result->loops[i].split_cases && !job_result->loops[i].never_had_two_steps;
    return any;
}

/* ---- Random numbers ---- */

/* Copies a case to `out` with real elements drawn from [low, high]. Returns false if the contract has facts on contents, or
 * refuses the copy. */
static bool parallel_try_make_case_with_contents_range(
    const check_job *job, const check_case *c, double low, double high, check_case *out)
{
    *out = *c;
    for (size_t i = 0; i < out->ntensors; i++)
        if (!check_is_integer_dtype(out->tensors[i].dtype)) {
            out->tensors[i].fill = CHECK_FILL_RANDOM;
            out->tensors[i].low = low;
            out->tensors[i].high = high;
        }
    return !job->op->has_element_facts && check_is_accepted(job->op, out);
}

/* True if no int or float argument is negative. False, too, if an argument is a list of floats or scalars, which is not examined.
 */
static bool parallel_has_no_negative_number(const check_case *c)
{
    bool none = true;
    for (size_t i = 0; i < c->nargs; i++)
        none &= !(c->args[i].type == DV_VALUE_FLOAT && c->args[i].as.f < 0) &&
            !(c->args[i].type == DV_VALUE_INT && c->args[i].as.i < 0) && c->args[i].type != DV_VALUE_FLOATS &&
            c->args[i].type != DV_VALUE_SCALARS;
    return none;
}

/* True if results change, or the call is refused, with another seed of dv_random(). first_outputs: outputs with the current seed.
 */
static bool parallel_depends_on_seed(const check_job *job, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs other;
    char words[300];
    random_seed++;
    const bool differs = !parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, parallel_run_loop_as_one_chunk, false, &other) ||
        check_outputs_differ(job->op, first_outputs, &other, words, sizeof words);
    random_seed--;
    return differs;
}

static check_outputs first_call_outputs, second_call_outputs; /* outputs of two calls */

/* True if first_call_outputs and second_call_outputs both have this result, with the same number of elements of at least 8 bits.
 */
static bool parallel_has_comparable_result(size_t result_index)
{
    return result_index < first_call_outputs.noutputs && result_index < second_call_outputs.noutputs &&
        !first_call_outputs.is_incomplete && !second_call_outputs.is_incomplete &&
        first_call_outputs.items[result_index].t.dtype.bits >= 8 &&
        dv_numel(&first_call_outputs.items[result_index].t) == dv_numel(&second_call_outputs.items[result_index].t);
}

/* Returns the index from which on `output` repeats the beginning of `repeated`, up to its own end. If both are the same output:
 * an index i such that the i / 2 elements from i on repeat the first ones. -1: no index. *hash: hash of the repeated
 * elements. */
static int64_t parallel_find_repetition(const check_output *output, const check_output *repeated, uint64_t *hash)
{
    enum { MAX_COMPARED_ELEMENTS = 1 << 16, MIN_CHANGES = 24 };
    const int64_t all = dv_numel(&output->t), n = all < MAX_COMPARED_ELEMENTS ? all : MAX_COMPARED_ELEMENTS,
                  size = dv_dtype_bytes(output->t.dtype, 1);
    const char *x = output->t.data, *y = repeated->t.data;
    int64_t least = 1;
    for (int changes = 0; least < n && changes < MIN_CHANGES; least++) /* equal elements are not random */
        changes += memcmp(y + least * size, y + (least - 1) * size, (size_t)size) != 0;
    for (int64_t from = output == repeated ? 2 * least : 0; least < n; from++) {
        const int64_t in = output == repeated ? from / 2 : n - from;
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

/* Returns the index from which on a result repeats the beginning of the same result of the next call, up to the end. -1: it does
 * not. *hash: hash of the repeated elements. */
static int64_t parallel_find_reuse_in_next_call(const check_job *job, const check_case *c, size_t result_index, uint64_t *hash)
{
    bool is_accepted = parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &first_call_outputs);
    continue_random = true;
    is_accepted = is_accepted && parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &second_call_outputs);
    continue_random = false;
    return is_accepted && parallel_has_comparable_result(result_index)
        ? parallel_find_repetition(&first_call_outputs.items[result_index], &second_call_outputs.items[result_index], hash)
        : -1;
}

/* Returns an index i such that the i / 2 elements of a result from i on repeat the first ones, though not when its loop has one
 * chunk. -1: there is none. *hash: hash of the repeated elements. */
static int64_t parallel_find_reuse_in_other_chunk(const check_job *job, const check_case *c, size_t result_index, uint64_t *hash)
{
    const bool is_accepted = parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, true, &second_call_outputs) &&
        parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &first_call_outputs);
    const int64_t from = is_accepted && parallel_has_comparable_result(result_index)
        ? parallel_find_repetition(&first_call_outputs.items[result_index], &first_call_outputs.items[result_index], hash)
        : -1;
    if (from < 0)
        return -1;
    const int64_t size = dv_dtype_bytes(second_call_outputs.items[result_index].t.dtype, 1);
    const char *uncut_data = second_call_outputs.items[result_index].t.data;
    return memcmp(uncut_data, uncut_data + from * size, (size_t)(from / 2 * size)) ? from : -1;
}

/* Returns the index that find_reuse() finds in a result for all of up to 32 seeds; -1: for some seed another one or none. Of
 * independent numbers each order is equally likely, so the chance of a coincidence is one in the number of orders. */
static int64_t parallel_find_stable_reuse(const check_job *job, const check_case *c, size_t result_index,
    int64_t (*find_reuse)(const check_job *, const check_case *, size_t, uint64_t *))
{
    enum { NUM_SEEDS = 32, MAX_CONSTANT_SEEDS = 4 };
    static const double max_chance = 1e-18; /* so small because a repetition may begin at any element */
    check_random random = { 1 };
    uint64_t hashes[NUM_SEEDS] = { 0 };
    double chance = 1;
    int64_t from = -1;
    for (int k = 0; k < NUM_SEEDS && chance > max_chance && !(k == MAX_CONSTANT_SEEDS && chance >= 1); k++) {
        int nequal = 1;
        random_seed = check_random_next(&random);
        const int64_t position = find_reuse(job, c, result_index, &hashes[k]);
        if (position < 0 || (k && position != from))
            break;
        from = position;
        for (int i = 0; i < k; i++)
            nequal += hashes[i] == hashes[k];
        chance *= (double)nequal / (k + 1);
    }
    random_seed = 1;
    return chance > max_chance ? -1 : from;
}

/* Fails the job if a result is NaN although all real elements are between 0.25 and 2 and no number argument is negative. */
static void parallel_check_no_nan(check_job *job, const check_case *c)
{
    static check_case positive_case;
    static check_outputs outputs;
    char where[200];
    if (!parallel_has_no_negative_number(c) || !parallel_try_make_case_with_contents_range(job, c, 0.25, 2, &positive_case) ||
        !parallel_try_call_kernel(job, &positive_case, CHECK_GUARD_AFTER, NULL, false, &outputs))
        return;
    for (size_t k = 0; k < outputs.noutputs && !parallel_has_failed(job); k++)
        for (int64_t i = 0, n = dv_numel(&outputs.items[k].t); i < n && !parallel_has_failed(job); i++) {
            if (!isnan(check_output_get_number(&outputs.items[k], i, 0)))
                continue;
            check_output_format_element_name(job->op, &outputs.items[k], i, where, sizeof where);
            check_set_current_case(job, &positive_case);
            check_fail(job, "NaN", "all that goes in is between 0.25 and 2, no number is negative, and %s is NaN", where);
        }
}

/* true if some call of this process took random numbers: from the Generator that was given; from any */
static bool used_given_generator, used_random_numbers;

/* True if the operator has a Generator argument. */
static bool parallel_has_generator(const check_op *op)
{
    for (size_t i = 0; i < op->nargs; i++)
        if (op->slots[i].type == DV_FIELD_GENERATOR)
            return true;
    return false;
}

/* Checks that a kernel whose operator has a Generator argument takes its random numbers from the Generator that is given. */
static void parallel_check_generator(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    call = (check_guarded_call){ .op = job->op,
        .kernel = job->kernel,
        .guard_side = CHECK_GUARD_AFTER,
        .poison_byte = POISON_BYTE,
        .pass_generator_values = true };
    check_guarded_call_run(&call, c);
    used_given_generator |= call.used_given_generator;
    used_random_numbers |= call.used_given_generator || call.used_default_generator;
    if (call.used_default_generator && parallel_has_generator(job->op))
        check_fail(job, "generator",
            "a Generator is given, and the kernel takes random numbers of the default one: it calls dv_random() with NULL in the "
            "place of its argument");
}

/* Checks that neither the next call nor another chunk of a loop uses the random numbers of a call again. */
static void parallel_check_random_offsets(check_job *job, const check_case *c)
{
    static check_case uniform_case;
    const check_case *constant_case = parallel_try_make_case_with_contents_range(job, c, 0.7, 0.7, &uniform_case)
        ? &uniform_case
        : c; /* 0.7 is inexact in all float dtypes, so that random rounding shows */
    for (size_t result_index = 0; (!result_index || result_index < first_call_outputs.noutputs) && !parallel_has_failed(job);
        result_index++) {
        const int64_t next = parallel_find_stable_reuse(job, constant_case, result_index, parallel_find_reuse_in_next_call),
                      chunk_position = next < 0 && max_loop_steps > 1
            ? parallel_find_stable_reuse(job, constant_case, result_index, parallel_find_reuse_in_other_chunk)
            : -1;
        if (!next)
            check_fail(job, "random numbers reused",
                "a call and the next one have the same random numbers, whatever the seed: it does not begin at the offset that "
                "dv_random() gives, or reserves no number");
        else if (next > 0)
            check_fail(job, "random numbers reused",
                "a call and the next one have random numbers in common: what the first gives from element %lld on is what the "
                "next gives from its beginning, so it takes more numbers than it reserves with dv_random()",
                (long long)next);
        else if (chunk_position > 0)
            check_fail(job, "random numbers reused",
                "chunks of a parallel loop have the same random numbers: what a call gives from element %lld on is what it gives "
                "from its beginning, and it is not when the loop is not split",
                (long long)chunk_position);
    }
}

/* Checks that results stay the same if the chunks of a call's loops run in another order or on more threads. finds_races: also if
 * they run between the instructions of the first chunk. first_outputs: results of the ordinary call. */
static void parallel_check_loops(check_job *job, const check_case *c, const check_outputs *first_outputs, bool finds_races)
{
    static int nraced_cases;
    parallel_check_chunk_order(job, c, first_outputs);
    if (!parallel_has_failed(job) && finds_races && CAN_SINGLE_STEP && nraced_cases++ < MAX_RACED_CASES &&
        parallel_get_forks_cpu_seconds() < MAX_RACE_SECONDS && parallel_is_true_in_fork(job, c, parallel_has_chunk_race))
        check_fail(job, "chunks race",
            "chunks of a parallel loop share memory that they change without a lock: the result is another when the other chunks "
            "run before an instruction of the first, or inside one that reads and writes");
    parallel_check_thread_counts(job, c, first_outputs);
}

/* Checks a nondeterministic operator with random numbers from dv_random(): the seed decides them, no two calls or chunks have the
 * same, and each slice has its own in any order. */
static void parallel_check_random(check_job *job, const check_case *c)
{
    static check_outputs first_outputs, repeated;
    char words[300];
    max_loop_steps = 0;
    parallel_check_generator(job, c);
    if (!parallel_has_failed(job))
        parallel_check_no_nan(job, c);
    if (parallel_has_failed(job) ||
        !parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, parallel_run_loop_as_one_chunk, false, &first_outputs) ||
        !parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, parallel_run_loop_as_one_chunk, false, &repeated))
        return;
    const bool is_repeatable = !check_outputs_differ(job->op, &first_outputs, &repeated, words, sizeof words);
    if (!is_repeatable && used_random_numbers && job->op->is_seeded)
        check_fail(job, "not seeded",
            "with the same seed again the same call gives another result, so its random numbers are not those of dv_random() "
            "alone: %s",
            words);
    if (!parallel_has_failed(job) && used_random_numbers)
        parallel_check_random_offsets(job, c);
    if (parallel_has_failed(job) || !is_repeatable || max_loop_steps <= 1)
        return;
    parallel_check_loops(job, c, &first_outputs, !job->op->is_seeded);
    if (!parallel_has_failed(job) && job->kernel->split && !parallel_depends_on_seed(job, c, &first_outputs) &&
        parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, true, &repeated) &&
        check_outputs_differ(job->op, &repeated, &first_outputs, words, sizeof words))
        check_fail(job, "split differs",
            "the kernel says .split = %lld, its numbers are not those of dv_random(), and split at multiples of this grain it "
            "gives "
            "another result than whole: %s",
            (long long)job->kernel->split, words);
}

/* Checks, after every 24 cases, that the first case still gives its first results. number: number of the current case, from 1. */
static void parallel_check_first_case_again(check_job *job, uint32_t case_number, const check_case *c)
{
    enum { FIRST_CASE_INTERVAL = 24 };
    static check_case early;
    static check_outputs first, late;
    static bool is_known;
    char words[300];
    if (case_number == 1) {
        early = *c;
        is_known = parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &first);
    } else if (is_known && case_number % FIRST_CASE_INTERVAL == 0 &&
        parallel_try_call_kernel(job, &early, CHECK_GUARD_AFTER, NULL, false, &late) &&
        check_outputs_differ(job->op, &first, &late, words, sizeof words)) {
        check_set_current_case(job, &early);
        check_fail(job, "keeps state",
            "the first call gives another result after those of %u other cases, so something is kept from call to call: %s",
            case_number - 1, words);
    }
}

/* Returns what no case of this kernel checked, such as the order of chunks. NULL: everything was checked. */
static const char *parallel_find_incomplete_reason(const check_op *op, const check_kernel *kernel)
{
    return op->is_nondeterministic && parallel_has_generator(op) && !used_given_generator
        ? "no case took random numbers of the Generator that is given (its slices in another order and on more threads passed)"
        : op->is_nondeterministic
        ? "it is nondeterministic (only the random numbers that it takes were looked at, and its slices in another "
          "order and on more threads)"
        : parallel_has_unchunked_loop()
        ? "no case had two chunks of a loop of dv_parallel_for(), so their order was not looked at (all else passed)"
        : kernel->split && job_result && !job_result->ran_loop_in_chunks
        ? "no case was so large that its .split cuts it, so the order of slices was not looked at (all else passed)"
        : NULL;
}

/* Checks a copy of the case that is so large that its loops have several chunks: their order, races and random numbers. Does
 * nothing if no loop needs such a copy, or none can be made. */
static void parallel_check_larger_loops(check_job *job, const check_case *input_case)
{
    static check_case original_case, large_case;
    static check_outputs first_outputs;
    original_case = *input_case;
    if (!parallel_find_chunked_case(job, &original_case, &large_case))
        return;
    check_set_current_case(job, &large_case);
    if (job->op->is_nondeterministic)
        parallel_check_random(job, &large_case);
    else if (parallel_try_call_kernel(job, &large_case, CHECK_GUARD_AFTER, NULL, false, &first_outputs))
        parallel_check_loops(job, &large_case, &first_outputs, true);
    if (!parallel_has_failed(job))
        check_set_current_case(job, &original_case);
}

/* Checks one case, in the order that the head comment of this file lists. */
static void parallel_test_case(check_job *job, const check_case *input_case)
{
    static check_case before, larger_case;
    static check_outputs first_outputs;
    static bool any_writes_static_memory;
    const check_case *c = input_case;
    const uint32_t case_number =
        job->result->tried_cases; /* number of cases tried so far; 0 while a failing case is being shrunk */
    const double slow = job->plan ? job->plan->min_slow_work : 0;
    if (case_number > 1 && case_number <= 1 + NUM_GROWN_CASES && parallel_try_make_large_case(job, input_case, &larger_case) &&
        (slow <= 0 || check_estimate_work_with_ints(job->op, &larger_case) < slow / 2)) {
        c = &larger_case;
        check_set_current_case(job, c);
    }
    if (job->op->is_nondeterministic) {
        has_called_kernel = true;
        parallel_check_random(job, c);
        if (case_number && !parallel_has_failed(job))
            parallel_check_larger_loops(job, c);
        return;
    }
    const bool writes_static_memory = case_number <= 1 &&
        parallel_is_true_in_fork(job, c, parallel_first_call_writes_static_memory),
               has_first_call_race = CAN_SINGLE_STEP && writes_static_memory && parallel_has_any_first_call_race(job, c);
    any_writes_static_memory |= writes_static_memory;
    if (writes_static_memory)
        parallel_check_state(job, c);
    if (parallel_has_failed(job))
        return;
    has_called_kernel = true;
    before = *c;
    before.seed ^= 0x5555;
    parallel_try_call_kernel(job, &before, CHECK_GUARD_AFTER, NULL, false, &first_outputs);
    if (!parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &first_outputs)) {
        static check_guarded_call call; /* why */
        call = (check_guarded_call){ .op = job->op, .kernel = job->kernel, .poison_byte = POISON_BYTE };
        check_guarded_call_run(&call, c);
        if (call.kernel_declined)
            job->result->tried_cases--;
        else if (call.status)
            check_count_refusal(job);
        return;
    }
    max_loop_steps = 0;
    parallel_check_repeated_calls(job, c, &first_outputs);
    parallel_check_scratch_contents(job, &before, c, &first_outputs);
    if (case_number && any_writes_static_memory && !parallel_has_failed(job))
        parallel_check_first_case_again(job, case_number, c);
    if (max_loop_steps > 1 && !parallel_has_failed(job))
        parallel_check_loops(job, c, &first_outputs, true);
    if (!parallel_has_failed(job) && parallel_has_no_special_values(c))
        parallel_check_facts(job, c);
    if (!parallel_has_failed(job) && case_number <= MAX_STRESSED_CASES) {
        parallel_check_simultaneous_calls(job, c);
        if (!parallel_has_failed(job) &&
            (!case_number || case_number == (job->max_cases < MAX_STRESSED_CASES ? job->max_cases : MAX_STRESSED_CASES)))
            parallel_check_threads_with_other_arguments(job, c);
    }
    if (!parallel_has_failed(job) && has_first_call_race) {
        check_fail(job, "first calls race",
            "in a new process another thread called it during the first call, and a result is not the one that the same call "
            "gives later: what the first call makes is used before it is made, or taken away while it is used");
    }
    if (case_number && !parallel_has_failed(job))
        parallel_check_larger_loops(job, c);
}

const check_property check_property_parallel = {
    .name = "parallel",
    .description =
        "slices and sums are what is declared; a result depends neither on earlier calls nor on addresses nor on threads",
    .per_kernel = true,
    .test_case = parallel_test_case,
    .find_incomplete_reason = parallel_find_incomplete_reason,
    .is_unchecked_if_kernel_unsound = true,
};
