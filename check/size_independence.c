/* Size independence: a test for operators without any reference. Two conditions are tested for many sizes of one dim, with
 * everything else the same.
 *
 * - Order: a permutation of all arguments along the dim permutes the results in the same way, or leaves them unchanged.
 * - Influence: each element of an argument along the dim changes a result that another element along it changes.
 *
 * Many operators violate a condition by their definition: a sum of all elements before, a pooling that leaves out a rest. They
 * violate it at small sizes, too, or from some size on. A kernel that satisfies it at small sizes, not at one size, and again at
 * one at least twice as large, treats that size differently: the elements behind the last whole vector, for example. So does a
 * kernel that satisfies it at all sizes up to 255 and not at larger ones, by an index that is too narrow. An influence counts
 * only if the result has the dim, too. Where integers of a tensor may select elements, only the last element is tested, where
 * all indices are the largest. */
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

enum {
    MAX_BASE_CASES = 24,      /* number of cases of a job whose sizes are varied ("bases") */
    MAX_BASE_ELEMENTS = 1024, /* limit on the elements of a tensor of such a base */
    MAX_ELEMENTS = CHECK_DEFAULT_MAX_ELEMENTS,
    SMALL_SIZE = 9,  /* up to this size, all elements along a dim are tested */
    MIN_HOLDING = 4, /* number of sizes, the smallest ones, that must satisfy a condition */
    MAX_8_BIT_SIZE = 255,
    MAX_SIZES = 40,
    CONFIRM_REPEATS = 8, /* number of other contents with which a violation is repeated */
    TESTED_ELEMENTS = 4  /* number of elements along a large dim whose influence is tested */
};
static const double MAX_BASE_SECONDS = 0.15, MAX_JOB_SECONDS = 1, MAX_MAGNITUDE = 0x1p60;

enum condition_verdict { CONDITION_UNKNOWN, CONDITION_HOLDS, CONDITION_VIOLATED };
enum { AXIS_UNSURE = -2 }; /* value of check_try_resize_case() for a tensor that changes in another way than by one dim */

/* One dim whose size is varied, and what is known of it in the current case. */
typedef struct varied_dim {
    const check_job *job;
    const check_case *c; /* the case, with contiguous tensors */
    check_varied_size varied;
    const char *name;
    int64_t size;
    bool has_largest_indices;           /* true: all indices that the contract bounds are the largest */
    size_t tensor;                      /* for influence conditions: the tensor whose elements are changed */
    int axes[CHECK_MAX_TENSORS];        /* by tensor: the dim that has the varied size; -1: none */
    int result_axes[CHECK_MAX_RESULTS]; /* by result: the dim that has the varied size; -1: none */
    bool knows_result_axes, knows_axes; /* knows_result_axes: `result_axes` is set; knows_axes: `axes` is set, too, and nothing
                                           else of the tensors changes with the size */
    char message[400];                  /* message that describes the violation */
    bool in_result;                     /* for influence conditions: the result that lacks the influence has the varied dim */
} varied_dim;
typedef enum condition_verdict condition_test(varied_dim *d);

static check_unguarded_call first_call, second_call;
static check_outputs first_outputs, second_outputs;

/* Makes an unguarded call and copies its outputs. Returns false if the call fails or outputs are missing. */
static bool sizes_try_call_and_copy_outputs(const varied_dim *d, check_unguarded_call *call, check_outputs *outputs)
{
    check_unguarded_call_run(call);
    if (call->status || call->is_incomplete)
        return false;
    check_outputs_copy(outputs, d->job->op, d->c, call->results, call->values.tensors);
    return !outputs->is_incomplete;
}

/* True if the operator writes the argument of this tensor. */
static bool sizes_is_written_tensor(const check_op *op, const check_case *c, size_t tensor)
{
    return op->slots[check_find_tensor_slot(c, tensor)].flags & DV_SLOT_WRITES;
}

/* Returns the row-major number of the element with index_along_axis in dim `axis`, and in the other dims the last index
 * (others_last) or the first. */
static int64_t sizes_get_element_number(const check_tensor *t, int axis, int64_t index_along_axis, bool others_last)
{
    int64_t at = 0;
    for (int32_t k = 0; k < t->ndim; k++)
        at = at * t->shape[k] + (k == axis ? index_along_axis : others_last ? t->shape[k] - 1 : 0);
    return at;
}

/* Returns the dim of an output that has the varied size; -1 if none has. */
static int sizes_get_varied_axis_of_output(const varied_dim *d, const check_output *o)
{
    const size_t nargs = d->job->op->nargs;
    return o->is_number_result ? -1
        : o->slot >= nargs     ? d->result_axes[o->slot - nargs]
                               : d->axes[d->c->args[o->slot].first_tensor + o->element];
}

/* ---- Order ---------------------------------------------------------------------------------------------------------------- */

static int32_t permutation[MAX_ELEMENTS]; /* permutation of the indices along the varied dim */

/* Sets `permutation` to a random permutation of nelements indices that moves the first. */
static void sizes_draw_permutation(int64_t nelements, uint64_t seed)
{
    check_random r = { seed };
    for (int64_t j = 0; j < nelements; j++)
        permutation[j] = (int32_t)j;
    for (int64_t j = nelements - 1; j > 0; j--) {
        const int64_t k = j == nelements - 1 ? 0 : (int64_t)(check_random_next(&r) % (uint64_t)(j + 1));
        const int32_t kept = permutation[j];
        permutation[j] = permutation[k];
        permutation[k] = kept;
    }
    if (!permutation[0]) {
        permutation[0] = permutation[nelements - 1];
        permutation[nelements - 1] = 0;
    }
}

/* Copies the elements of a contiguous tensor to `target`, permuted along dim `axis` by `permutation`; axis -1: unchanged. */
static void sizes_copy_permuted(const check_tensor *t, int axis, const char *source, char *target)
{
    const int64_t n = axis < 0 ? 1 : t->shape[axis];
    int64_t outer = 1, inner = dv_dtype_bytes(t->dtype, 1);
    for (int32_t k = 0; k < t->ndim; k++)
        *(k < axis ? &outer : &inner) *= k == axis ? 1 : t->shape[k];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < n; j++)
            memcpy(target + (o * n + (axis < 0 ? 0 : permutation[j])) * inner, source + (o * n + j) * inner, (size_t)inner);
}

/* True if an element of one output equals an element of another, up to the rounding of sums in another order. allow_int_rounding:
 * integers may differ by 1. */
static bool sizes_elements_agree(const check_op *op, const check_output *a, int64_t a_element, const check_output *b,
    int64_t b_element, double largest_magnitude, bool allow_int_rounding)
{
    enum { INT_ROUNDING = 1 };
    int part;
    const double tolerance = check_is_integer_dtype(a->t.dtype)
        ? (allow_int_rounding ? INT_ROUNDING : 0)
        : fmax(check_get_reorder_tolerance(op, a->t.dtype, largest_magnitude), 0x1p-9 * largest_magnitude);
    return !check_output_elements_differ(a, a_element, b, b_element, tolerance, &part);
}

/* Compares first_outputs with second_outputs, those of a call with permuted arguments. Returns CONDITION_VIOLATED, with
 * d->message, if an element is not where the permutation moves it. Returns CONDITION_UNKNOWN if all results are 0, huge or tiny.
 */
static enum condition_verdict sizes_judge_permutation(varied_dim *d, bool arguments_are_real)
{
    bool trivial = true;
    char where[200], x[40], y[40];
    if (first_outputs.noutputs != second_outputs.noutputs)
        return CONDITION_VIOLATED;
    for (size_t r = 0; r < first_outputs.noutputs; r++) {
        const check_output *a = &first_outputs.items[r], *b = &second_outputs.items[r];
        const int axis = sizes_get_varied_axis_of_output(d, a);
        const double largest = fmax(check_output_get_max_magnitude(a), check_output_get_max_magnitude(b));
        int64_t inner = 1;
        if (memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->t.ndim))
            return CONDITION_VIOLATED;
        for (int32_t k = axis + 1; axis >= 0 && k < a->t.ndim; k++)
            inner *= a->dims[k];
        if (!check_is_integer_dtype(a->t.dtype) && (largest > MAX_MAGNITUDE || (largest > 0 && largest < 1 / MAX_MAGNITUDE)))
            return CONDITION_UNKNOWN; /* products may have underflowed or overflowed in one of the two orders */
        trivial &= !(largest > 0);
        for (int64_t i = 0, n = dv_numel(&a->t); i < n; i++) {
            const int64_t j = i / inner % d->size, to = axis < 0 ? i : i + (permutation[j] - j) * inner;
            if (sizes_elements_agree(d->job->op, a, i, b, to, largest, arguments_are_real))
                continue;
            check_output_format_element_name(d->job->op, a, i, where, sizeof where);
            snprintf(d->message, sizeof d->message, "%s is %s, and in another order %s", where,
                check_output_format_number(a, i, 0, x, sizeof x), check_output_format_number(b, to, 0, y, sizeof y));
            return CONDITION_VIOLATED;
        }
    }
    return trivial ? CONDITION_UNKNOWN : CONDITION_HOLDS;
}

/* Tests the order condition with one random permutation. has_large_element: the last element of float tensors is much larger than
 * the others, so that a maximum or a sum shows it. */
static enum condition_verdict sizes_judge_one_order(varied_dim *d, uint64_t seed, bool has_large_element)
{
    const check_case *c = d->c;
    bool reals = false;
    sizes_draw_permutation(d->size, seed);
    if (!check_unguarded_call_try_init(&first_call, d->job->op, d->job->kernel, c) ||
        !check_unguarded_call_try_init(&second_call, d->job->op, d->job->kernel, c))
        return CONDITION_UNKNOWN;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        char *const data = first_call.values.tensors[i].data, *const to = second_call.values.tensors[i].data;
        if (!t->present)
            continue;
        if (d->axes[i] >= 0 && d->job->op->is_sorted[check_find_tensor_slot(c, i)])
            return CONDITION_UNKNOWN;
        reals |= check_is_float_dtype(t->dtype);
        if (d->axes[i] >= 0 && check_is_float_dtype(t->dtype) && has_large_element && !d->job->op->has_element_facts &&
            !sizes_is_written_tensor(d->job->op, c, i))
            check_element_put(data, check_tensor_numel(t) - 1, t->dtype, 64);
        sizes_copy_permuted(t, d->axes[i], data, to);
        if (sizes_is_written_tensor(d->job->op, c, i))
            memcpy((char *)(uintptr_t)second_call.saved[i].copy, to, second_call.saved[i].bytes);
    }
    if (!sizes_try_call_and_copy_outputs(d, &first_call, &first_outputs) ||
        !sizes_try_call_and_copy_outputs(d, &second_call, &second_outputs))
        return CONDITION_UNKNOWN;
    return sizes_judge_permutation(d, reals);
}

/* Tests the order condition for the current case with NUM_ORDERS permutations, since one permutation may leave a result unchanged
 * by chance. Stops at the first violation. In half of the base cases, each permutation but the second is tested with one large
 * element, beside which small differences count as rounding. Returns the verdict. */
static enum condition_verdict sizes_judge_order(varied_dim *d)
{
    enum { NUM_ORDERS = 3 };
    enum condition_verdict is = CONDITION_UNKNOWN;
    for (uint64_t k = 0; k < NUM_ORDERS && is != CONDITION_VIOLATED; k++) {
        const enum condition_verdict one_is = sizes_judge_one_order(d, 8 * d->c->seed + k + 1, d->c->plan_index % 2 && k != 1);
        is = one_is == CONDITION_UNKNOWN && k ? is : one_is;
    }
    return is;
}

/* ---- Influence ------------------------------------------------------------------------------------------------------------ */

/* Changes one element of d->tensor to other values, and sets changes[r] for each output r that changes. Returns false if the
 * element cannot be changed, or a call is refused. */
static bool sizes_try_find_changing_results(const varied_dim *d, int64_t element_number, bool *changes)
{
    const check_tensor *t = &d->c->tensors[d->tensor];
    void *const data = first_call.values.tensors[d->tensor].data;
    const double was = check_element_get(data, element_number, t->dtype);
    const bool real = check_is_float_dtype(t->dtype) && !d->job->op->has_element_facts,
               packed = check_is_integer_dtype(t->dtype) && t->dtype.code != 6 && t->dtype.bits < 64 &&
        !d->job->op->has_element_facts;
    const double far = 0x1p20, /* the same value at each size, since a kernel may clamp numbers */
        flipped = t->dtype.code == 1 ? check_get_max_integer(t->dtype) - was
                                     : -1 - was, /* all bits are flipped, since some bits may not matter */
        others[2][3] = { { packed ? flipped : t->low, t->high, t->low }, { far, -far, 0 } }, *to = others[real];
    bool any = false;
    memset(changes, 0, sizeof *changes * first_outputs.noutputs);
    for (int k = 0; k < 3; k++) {
        if (!(to[k] < was || to[k] > was))
            continue;
        check_element_put(data, element_number, t->dtype, to[k]);
        const bool ran = sizes_try_call_and_copy_outputs(d, &first_call, &second_outputs) &&
            second_outputs.noutputs == first_outputs.noutputs;
        check_element_put(data, element_number, t->dtype, was);
        if (!ran)
            return false;
        any = true;
        for (size_t r = 0; r < first_outputs.noutputs; r++) {
            const check_output *a = &first_outputs.items[r], *b = &second_outputs.items[r];
            changes[r] |= memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->t.ndim) != 0 ||
                memcmp(a->t.data, b->t.data, (size_t)dv_dtype_bytes(a->t.dtype, dv_numel(&a->t))) != 0;
        }
    }
    return any;
}

/* Tests whether elements of d->tensor along the dim change the same results: all elements of a small dim; of a large one the
 * last, the first, the middle and one other. Returns the verdict. */
static enum condition_verdict sizes_judge_all_influence(varied_dim *d)
{
    const check_case *c = d->c;
    const check_tensor *t = &c->tensors[d->tensor];
    const int axis = d->axes[d->tensor];
    const int64_t size = axis < 0 ? 0 : t->shape[axis], n = size <= SMALL_SIZE ? size : TESTED_ELEMENTS,
                  some[TESTED_ELEMENTS] = { size - 1, 0, size / 2, size * 5 / 7 };
    bool first[CHECK_MAX_RESULTS + CHECK_MAX_TENSORS], changes[CHECK_MAX_RESULTS + CHECK_MAX_TENSORS];
    char index[200], name[120];
    enum condition_verdict is = CONDITION_UNKNOWN;
    if (size < 2 || !check_unguarded_call_try_init(&first_call, d->job->op, d->job->kernel, c) ||
        !sizes_try_call_and_copy_outputs(d, &first_call, &first_outputs))
        return CONDITION_UNKNOWN;
    for (int64_t k = 0; k < n; k++) {
        const int64_t element = sizes_get_element_number(t, axis, size <= SMALL_SIZE ? k : some[k], c->plan_index % 2);
        if (!sizes_try_find_changing_results(d, element, changes))
            return CONDITION_UNKNOWN;
        if (!k)
            memcpy(first, changes, sizeof first);
        for (size_t r = 0; r < first_outputs.noutputs; r++) {
            is = first[r] && is == CONDITION_UNKNOWN ? CONDITION_HOLDS : is;
            if (first[r] == changes[r])
                continue;
            check_format_element_index(t->ndim, t->shape,
                first[r] ? element : sizes_get_element_number(t, axis, size <= SMALL_SIZE ? 0 : some[0], c->plan_index % 2),
                index, sizeof index);
            snprintf(d->message, sizeof d->message, "%s does not depend on element [%s] of argument '%s', as it does on others",
                check_output_format_name(d->job->op, &first_outputs.items[r], name, sizeof name), index,
                d->job->op->slots[check_find_tensor_slot(c, d->tensor)].name);
            d->in_result = d->knows_result_axes && sizes_get_varied_axis_of_output(d, &first_outputs.items[r]) >= 0;
            return CONDITION_VIOLATED;
        }
    }
    return is;
}

/* Tests whether the last element of d->tensor changes some result, where all indices are the largest that the contract allows.
 * Returns the verdict. */
static enum condition_verdict sizes_judge_last_influence(varied_dim *d)
{
    const check_tensor *t = &d->c->tensors[d->tensor];
    bool changes[CHECK_MAX_RESULTS + CHECK_MAX_TENSORS], any = false;
    char index[200];
    if (!check_tensor_numel(t) || !check_unguarded_call_try_init(&first_call, d->job->op, d->job->kernel, d->c) ||
        !sizes_try_call_and_copy_outputs(d, &first_call, &first_outputs) ||
        !sizes_try_find_changing_results(d, check_tensor_numel(t) - 1, changes))
        return CONDITION_UNKNOWN;
    for (size_t r = 0; r < first_outputs.noutputs; r++)
        any |= changes[r];
    check_format_element_index(t->ndim, t->shape, check_tensor_numel(t) - 1, index, sizeof index);
    snprintf(d->message, sizeof d->message,
        "no result depends on element [%s] of argument '%s' where all indices are the largest", index,
        d->job->op->slots[check_find_tensor_slot(d->c, d->tensor)].name);
    return any ? CONDITION_HOLDS : CONDITION_VIOLATED;
}

/* ---- Sizes ---------------------------------------------------------------------------------------------------------------- */

static const struct {
    condition_test *test;
    const char *kind, *violation;
} conditions[] = {
    { sizes_judge_order, "order at a size", "the order of elements along it matters" },
    { sizes_judge_all_influence, "influence at a size", "not all elements along it have an influence" },
    { sizes_judge_last_influence, "influence at a size", "the last element has no influence" },
};
enum { CONDITION_ORDER, CONDITION_ALL_INFLUENCE, CONDITION_LAST_INFLUENCE };

/* Copies a case to `out` as a base, whose sizes are then varied: contiguous, with real elements from 0.25 to 2 and integers from
 * 1 on, so that sums do not cancel and no factor is 0. Returns false if a tensor is empty, large, complex or below 8 bits, or the
 * contract refuses the base. */
static bool sizes_try_make_base_case(const check_op *op, const check_case *c, check_case *out)
{
    static check_case mild;
    *out = *c;
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &out->tensors[i];
        if (t->present &&
            (t->dtype.bits < 8 || t->dtype.code == 5 || !check_tensor_numel(t) || check_tensor_numel(t) > MAX_BASE_ELEMENTS))
            return false;
        t->layout = CHECK_LAYOUT_CONTIGUOUS;
        if (t->fill == CHECK_FILL_SPECIAL_VALUES || t->fill >= CHECK_FILL_LOW_PAYLOAD_NAN)
            t->fill = CHECK_FILL_RANDOM;
    }
    mild = *out;
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &mild.tensors[i];
        const bool real = check_is_float_dtype(t->dtype);
        if (t->dtype.code == 6)
            continue;
        t->fill = check_has_positional_fill(t) ? t->fill : CHECK_FILL_RANDOM;
        t->low = real ? 0.25 : fmax(t->low, 1);
        t->high = real ? 2 : fmax(t->high, 3);
    }
    if (check_is_accepted(op, &mild))
        *out = mild;
    return c->ntensors && check_is_accepted(op, out);
}

/* Sets d->result_axes by comparing the result shapes of the base with those of the case with another size. Returns false if they
 * cannot be known. */
static bool sizes_try_set_result_axes(varied_dim *d, const check_case *base, int64_t base_size)
{
    static dv_result_spec specs[2][CHECK_MAX_RESULTS];
    static check_values v;
    const check_op *op = d->job->op;
    for (int k = 0; k < 2; k++) {
        check_values_init_without_data(&v, k ? d->c : base, (dv_device){ DV_CPU, 0 });
        if (dv_infer(op->op, v.values, base->nargs, specs[k], op->nresults))
            return false;
    }
    for (size_t r = 0; r < op->nresults; r++) {
        const dv_result_spec *a = &specs[0][r], *b = &specs[1][r];
        d->result_axes[r] = -1;
        if ((a->flags | b->flags) & (DV_SPEC_UNBACKED | DV_SPEC_LIST) || a->ndim != b->ndim)
            return false;
        for (int32_t k = 0; k < a->ndim; k++) {
            if (a->shape[k] == b->shape[k])
                continue;
            if (d->result_axes[r] >= 0 || a->shape[k] != base_size || b->shape[k] != d->size)
                return false;
            d->result_axes[r] = k;
        }
    }
    return true;
}

/* Returns the size that is varied, as it is in the base. */
static int64_t sizes_get_varied_size(const varied_dim *d, const check_case *base)
{
    return d->varied.name ? check_name_find_sizes(d->varied.name, (check_case *)(uintptr_t)base)[d->varied.index_in_variadic]
                          : base->args[d->varied.argument_slot].as.i;
}

/* Makes *c, and sets d->axes, for one size of the varied dim, or the nearest size that the contract allows (d->size). Returns
 * false if it allows none, a tensor is too large, or the dim of a tensor is unknown, as it is if the base has the same size. */
static bool sizes_try_make_resized_case(varied_dim *d, const check_case *base, int64_t size, check_case *c)
{
    const int64_t base_size = sizes_get_varied_size(d, base);
    dv_range facts[CHECK_MAX_TENSORS];
    d->c = c;
    d->size = size;
    if (!check_try_resize_case(d->job->op, base, &d->varied, &d->size, c, d->axes) || d->size == base_size || d->size < 2 ||
        d->size > MAX_ELEMENTS || (d->has_largest_indices && !check_try_fit_case(d->job->op, c, base, facts)) ||
        check_case_max_numel(c) > MAX_ELEMENTS || check_estimate_work_with_ints(d->job->op, c) > 4.0 * MAX_ELEMENTS)
        return false;
    bool bounded = !d->has_largest_indices;
    for (size_t i = 0; i < c->ntensors && d->has_largest_indices; i++)
        if (check_is_integer_dtype(c->tensors[i].dtype) && facts[i].most < INT64_MAX && facts[i].least <= facts[i].most) {
            bounded = true;
            c->tensors[i].low = c->tensors[i].high = (double)facts[i].most;
            c->tensors[i].fill = CHECK_FILL_RANDOM;
        }
    if (!bounded || !check_is_accepted(d->job->op, c))
        return false;
    d->knows_axes = d->knows_result_axes = sizes_try_set_result_axes(d, base, base_size);
    for (size_t i = 0; i < c->ntensors; i++)
        d->knows_axes &= d->axes[i] != AXIS_UNSURE;
    if (d->tensor == SIZE_MAX)
        return d->knows_axes;
    for (int32_t k = 0; k < c->tensors[d->tensor].ndim && d->axes[d->tensor] == AXIS_UNSURE;
        k++) /* a dim of the tensor whose size is computed from the varied size, as ceildiv(n, 32) is */
        if (base->tensors[d->tensor].shape[k] != c->tensors[d->tensor].shape[k])
            d->axes[d->tensor] = k;
    return true;
}

/* Writes to `sizes`, ascending, the sizes that are compared: small ones, vector lengths and their neighbours, numbers of the
 * source and the next, and sizes past which a narrow index overflows. Returns their number. */
static size_t sizes_list_compared_sizes(const check_op *op, int64_t *sizes)
{
    static const int64_t usual[] = { 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 31, 33, 37, 64, 65, 94, 130, 255, 259, 517, 1030, 2063,
        4099, 8201, 32771, 65539 };
    size_t n = sizeof usual / sizeof *usual;
    memcpy(sizes, usual, sizeof usual);
    for (size_t k = 0; k < op->nextra_sizes && n + 2 < MAX_SIZES; k++)
        for (int64_t by = 0; by < 2; by++) {
            const int64_t x = op->extra_sizes[k] + by;
            size_t to = n;
            bool is = x <= SMALL_SIZE || x > MAX_ELEMENTS;
            for (size_t i = 0; i < n; i++)
                is |= sizes[i] == x;
            for (; !is && to && sizes[to - 1] > x; to--)
                sizes[to] = sizes[to - 1];
            if (!is)
                sizes[to] = x, n++;
        }
    return n;
}

/* True if some other read-only integer tensor may select elements, so that not all elements need have an influence. */
static bool sizes_has_selecting_index(const varied_dim *d, const check_case *c)
{
    size_t present = 0, selecting = 0;
    for (size_t i = 0; i < c->ntensors; i++) {
        const dv_dtype type = c->tensors[i].dtype;
        present += c->tensors[i].present;
        selecting += c->tensors[i].present && check_is_integer_dtype(type) && (type.bits >= 32 || type.code == 6) &&
            i != d->tensor && !sizes_is_written_tensor(d->job->op, c, i);
    }
    return selecting && present > 1;
}

/* True if an int argument is beyond 255 in magnitude, so that it may be a length, as of a window, that only large dims exceed. */
static bool sizes_has_int_beyond_8_bits(const check_op *op, const check_case *c)
{
    bool large = false;
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value v = check_get_value_or_default(op, i, &c->args[i]);
        const dv_value *by_default = &op->slots[i].default_value;
        large |= v.type == DV_VALUE_INT && (v.as.i > MAX_8_BIT_SIZE || v.as.i < -MAX_8_BIT_SIZE);
        large |= v.type == DV_VALUE_DEFAULT && by_default->type == DV_VALUE_INT && by_default->as.i > MAX_8_BIT_SIZE;
        for (uint32_t k = 0; k < v.count && v.type == DV_VALUE_INTS; k++)
            large |= v.ints[k] > MAX_8_BIT_SIZE;
    }
    return large;
}

/* True if the operator has an int, int list or Scalar argument besides the varied one. Such an argument may be a value to look
 * for, which small tensors seldom contain. Then the order of elements may rightly matter at large sizes only. */
static bool sizes_has_number_argument(const check_op *op, const check_varied_size *varied)
{
    bool any = false;
    for (size_t i = 0; i < op->nargs; i++) {
        const uint32_t type = op->slots[i].type;
        any |= (varied->name || varied->argument_slot != i) &&
            (type == DV_FIELD_INT || type == DV_FIELD_INTS || type == DV_FIELD_SCALAR);
    }
    return any;
}

/* True if the violation at sizes[violating] is the kernel's fault: the condition holds at a size at least twice as large
 * (*larger_holding_size, else 0), or may_be_narrow and it holds at all sizes up to 255. */
static bool sizes_is_kernel_fault(bool may_be_narrow, const int64_t *sizes, const enum condition_verdict *verdicts, size_t nsizes,
    size_t violating, int64_t *larger_holding_size)
{
    uint32_t smaller = 0;
    bool narrow = may_be_narrow && sizes[violating] > MAX_8_BIT_SIZE;
    *larger_holding_size = 0;
    for (size_t k = 0; k < nsizes; k++) {
        smaller += sizes[k] > SMALL_SIZE && sizes[k] <= MAX_8_BIT_SIZE && verdicts[k] == CONDITION_HOLDS;
        narrow &= verdicts[k] != CONDITION_VIOLATED || sizes[k] > MAX_8_BIT_SIZE;
        if (!*larger_holding_size && sizes[k] >= 2 * sizes[violating] && verdicts[k] == CONDITION_HOLDS)
            *larger_holding_size = sizes[k];
    }
    return *larger_holding_size || (narrow && smaller >= MIN_HOLDING);
}

/* True if a condition has expected_verdict also with other contents of the tensors: several random ones, and increasing ones. */
static bool sizes_is_confirmed_with_other_contents(
    varied_dim *d, condition_test *condition, enum condition_verdict expected_verdict, check_case *c)
{
    const uint64_t seed = c->seed;
    bool confirmed = true;
    char words[sizeof d->message];
    static check_case ascending;
    memcpy(words, d->message, sizeof words);
    for (uint64_t k = 1; k < CONFIRM_REPEATS && confirmed; k++) {
        c->seed = seed + 64 * k;
        confirmed = condition(d) == expected_verdict;
    }
    c->seed = seed;
    ascending = *c;
    for (size_t i = 0; i < c->ntensors; i++)
        if (check_is_float_dtype(c->tensors[i].dtype) && c->tensors[i].fill == CHECK_FILL_RANDOM)
            ascending.tensors[i].fill = CHECK_FILL_INCREASING;
    d->c = &ascending;
    confirmed = confirmed && check_is_accepted(d->job->op, &ascending) && condition(d) == expected_verdict;
    d->c = c;
    memcpy(d->message, words, sizeof words);
    return confirmed;
}

/* Tests whether the kernel also violates the condition at one of the two sizes after d->size. Two sizes are tried, since a kernel
 * may violate a condition at odd sizes alone. A violation at one size proves nothing: a kernel may rightly ignore a last block of
 * one element, whose softmax is always 1. Makes *c and d for the first size again, and keeps d->message. Returns false also if *c
 * cannot be made again. */
static bool sizes_try_confirm_at_next_sizes(const check_case *base, varied_dim *d, condition_test *condition, check_case *c)
{
    static check_case next;
    char words[sizeof d->message];
    const int64_t size = d->size;
    const bool in_result = d->in_result;
    memcpy(words, d->message, sizeof words);
    bool violated = false;
    for (int64_t more = 1; more <= 2 && !violated; more++)
        violated = sizes_try_make_resized_case(d, base, size + more, &next) && condition(d) == CONDITION_VIOLATED;
    const bool made = sizes_try_make_resized_case(d, base, size, c);
    d->in_result = in_result;
    memcpy(d->message, words, sizeof words);
    return violated && made;
}

/* Tests one condition for many sizes of a dim, and reports a failure for a size at which the kernel violates it by fault.
 * end_cpu_seconds: processor time at which to stop. */
static void sizes_test_condition_at_all_sizes(
    check_job *job, const check_case *base, varied_dim *d, size_t condition_index, double end_cpu_seconds)
{
    static check_case c, larger;
    char words[sizeof d->message];
    int64_t sizes[MAX_SIZES], also = 0;
    uint32_t holding = 0;
    const bool may_be_narrow = !sizes_has_int_beyond_8_bits(job->op, base) &&
        !(condition_index == CONDITION_ORDER && sizes_has_number_argument(job->op, &d->varied));
    enum condition_verdict verdicts[MAX_SIZES] = { CONDITION_UNKNOWN };
    char others[80] = "";
    const size_t all = condition_index != CONDITION_LAST_INFLUENCE && sizes_has_selecting_index(d, base)
        ? 0
        : sizes_list_compared_sizes(job->op, sizes);
    d->has_largest_indices = condition_index == CONDITION_LAST_INFLUENCE;
    size_t n = 0;
    double before = check_get_cpu_seconds(), took = 0;
    for (; n < all && check_get_cpu_seconds() < end_cpu_seconds; n++) {
        const double ratio = n ? (double)sizes[n] / (double)sizes[n - 1] : 1;
        if (took * ratio * ratio > MAX_BASE_SECONDS) /* the time of a kernel may grow with the square of the size */
            break;
        const bool made = sizes_try_make_resized_case(d, base, sizes[n], &c) && (!n || d->size > sizes[n - 1]);
        verdicts[n] = made ? conditions[condition_index].test(d) : CONDITION_UNKNOWN;
        sizes[n] = made ? d->size : n ? sizes[n - 1] : sizes[n];
        holding += verdicts[n] == CONDITION_HOLDS;
        took = check_get_cpu_seconds() - before;
        before += took;
        if ((verdicts[n] == CONDITION_VIOLATED && holding < MIN_HOLDING) || (n > MIN_HOLDING && !holding))
            return;
    }
    for (size_t k = 0; k < n && job->result->outcome == CHECK_OUTCOME_PASS; k++) {
        if (verdicts[k] != CONDITION_VIOLATED || !sizes_is_kernel_fault(may_be_narrow, sizes, verdicts, n, k, &also) ||
            !sizes_try_make_resized_case(d, base, sizes[k], &c) || conditions[condition_index].test(d) != CONDITION_VIOLATED ||
            (condition_index == CONDITION_ALL_INFLUENCE &&
                !sizes_try_confirm_at_next_sizes(base, d, conditions[condition_index].test, &c)) ||
            !sizes_is_confirmed_with_other_contents(d, conditions[condition_index].test, CONDITION_VIOLATED, &c))
            continue;
        memcpy(words, d->message, sizeof words);
        const bool in_result = d->in_result;
        if (also &&
            (!sizes_try_make_resized_case(d, base, also, &larger) ||
                !sizes_is_confirmed_with_other_contents(d, conditions[condition_index].test, CONDITION_HOLDS, &larger)))
            continue;
        if ((condition_index == CONDITION_ALL_INFLUENCE && !in_result) || (condition_index == CONDITION_LAST_INFLUENCE && also))
            continue; /* elements in a window or a rest that is left out may have no influence at some sizes */
        if (also)
            snprintf(others, sizeof others, " and for %lld", (long long)also);
        check_set_current_case(job, &c);
        check_fail(job, conditions[condition_index].kind, "with '%s' of %lld %s, and not for smaller sizes%s: %s", d->name,
            (long long)sizes[k], conditions[condition_index].violation, others, words);
    }
}

/* True if the contract declares parallel(...) for this name; property parallel tests such dims. */
static bool sizes_is_parallel_name(const check_op *op, const check_name *name)
{
    const check_json *parallel = check_json_find_member(op->contract, "parallel");
    bool is = false;
    for (const check_json *f = parallel ? parallel->child : NULL; f; f = f->next)
        is |= !strcmp(f->child->next->text, name->text);
    return is;
}

/* Tests the conditions for one dim. size_decides_more: other sizes or facts depend on this size, so that only the influence of
 * the last element is tested. */
static void sizes_check_one_dim(check_job *job, const check_case *base, check_varied_size varied_size, const char *name,
    bool size_decides_more, double end_cpu_seconds)
{
    varied_dim d = { .job = job, .varied = varied_size, .name = name, .tensor = SIZE_MAX };
    if (!size_decides_more)
        sizes_test_condition_at_all_sizes(job, base, &d, CONDITION_ORDER, end_cpu_seconds);
    for (size_t i = 0; i < base->ntensors && job->result->outcome == CHECK_OUTCOME_PASS; i++) {
        const check_tensor *t = &base->tensors[i];
        const bool fits = size_decides_more ? check_is_float_dtype(t->dtype)
                                            : t->dtype.bits >= 32 || check_is_integer_dtype(t->dtype);
        d.tensor = i;
        if (t->present && !sizes_is_written_tensor(job->op, base, i) && fits && !check_has_positional_fill(t))
            sizes_test_condition_at_all_sizes(
                job, base, &d, size_decides_more ? CONDITION_LAST_INFLUENCE : CONDITION_ALL_INFLUENCE, end_cpu_seconds);
    }
}

/* Tests the conditions for all dims of a base: sizes of names that are not declared parallel, and int arguments that decide
 * shapes. */
static void sizes_check_all_dims(check_job *job, const check_case *base)
{
    const check_op *op = job->op;
    const double end = check_get_cpu_seconds() + MAX_BASE_SECONDS;
    for (size_t k = 0; k < op->nnames && job->result->outcome == CHECK_OUTCOME_PASS; k++) {
        const check_name *name = &op->names[k];
        const int32_t n = name->kind == CHECK_NAME_DTYPE || !base->names.is_bound[k] || sizes_is_parallel_name(op, name) ? 0
            : name->kind == CHECK_NAME_VARIADIC ? base->names.variadics[name->value_index].ndim
                                                : 1;
        for (int32_t axis = 0; axis < n && job->result->outcome == CHECK_OUTCOME_PASS; axis++)
            sizes_check_one_dim(job, base, (check_varied_size){ .name = name, .index_in_variadic = axis }, name->text,
                check_name_has_dependents(op, name), end);
    }
    for (size_t i = 0; i < op->nargs && job->result->outcome == CHECK_OUTCOME_PASS; i++)
        if (op->literals[i].decides_shape && base->args[i].type == DV_VALUE_INT)
            sizes_check_one_dim(job, base, (check_varied_size){ .argument_slot = i }, op->slots[i].name, false, end);
}

/* Returns the processor time of all child processes, in seconds. */
static double sizes_get_children_cpu_seconds(void)
{
    struct rusage r;
    getrusage(RUSAGE_CHILDREN, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

void check_size_independence(check_job *job, const check_case *c)
{
    static check_case base;
    static uint32_t bases;
    static double spent;
    const double begin = sizes_get_children_cpu_seconds();
    if (!job->result->tried_cases || job->op->is_nondeterministic || !job->op->contract || bases >= MAX_BASE_CASES ||
        spent > MAX_JOB_SECONDS || !sizes_try_make_base_case(job->op, c, &base))
        return;
    bases++;
    /* Tests one base in a forked process, so that the state which large calls leave in the kernel does not reach later cases. The
     * process ends early if the kernel waits for threads, which a fork lacks; then fewer bases are tested. */
    if (!check_try_run_isolated(job, &base, sizes_check_all_dims))
        bases += MAX_BASE_CASES / 4;
    spent += sizes_get_children_cpu_seconds() - begin;
}
