/* Comparison of a dim's sizes: a test for operators without any reference. Two conditions are looked at for many sizes of one
 * dim, with all else the same.
 *
 * - Order: the same permutation of all arguments along the dim permutes the results, or leaves them as they are.
 * - Influence: each element of an argument along the dim changes a result that another element along it changes.
 *
 * Many operators violate a condition by what they compute: a sum of all elements before, a pooling that leaves out a rest. They
 * violate it at small sizes, too, or from some size on. A kernel that satisfies it at small sizes, not at one size, and again at
 * one at least twice as large, treats that size in another way: the elements behind the last whole vector, for example. So does
 * a kernel that satisfies it at all sizes up to 255 and not at larger ones, by an index that is too narrow; an influence
 * counts only if the result has the dim, too. Where integers of a tensor may select elements nothing is looked at, but for
 * the last element where all indices are the largest. */
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

enum {
    BASES = 24,           /* cases of a job whose sizes are varied */
    BASE_ELEMENTS = 1024, /* of each tensor of such a case */
    MAX_ELEMENTS = CHECK_MOST_ELEMENTS,
    SMALL = 9,       /* dims up to this size are tested whole */
    MIN_HOLDING = 4, /* so many of the smallest sizes must satisfy a condition */
    NARROW = 255,
    SIZES = 40,
    CONFIRMED = 8, /* contents with which a violation is repeated */
    TESTED = 4     /* elements along a large dim whose influence is tested */
};
static const double BASE_SECONDS = 0.15, JOB_SECONDS = 1, LARGE = 0x1p60;

enum verdict { UNKNOWN, HOLDS, VIOLATED };
enum { UNSURE = -2 }; /* of check_resize() */

/* One dim of the contract in a case. */
typedef struct dim {
    const check_job *job;
    const check_case *c; /* with contiguous tensors */
    check_varied of;
    const char *name;
    int64_t size;
    bool last;                  /* all indices that the contract bounds are the largest */
    size_t tensor;              /* influence: the tensor whose elements are changed */
    int axes[CHECK_TENSORS];    /* dim of each tensor that has the size; -1: none */
    int results[CHECK_RESULTS]; /* the same of each result */
    bool placed, known;         /* placed: `results` is known; known: `axes` too, and nothing else changes */
    char words[400];            /* of a violation */
    bool in_result;             /* influence: the result that lacks it has the dim */
} dim;
typedef enum verdict condition(dim *d);

static check_plain one, other;
static check_outs found, now;

/* Calls the kernel and takes its results. False: it refused the call. */
static bool call(const dim *d, check_plain *p, check_outs *to)
{
    check_plain_call(p);
    if (p->status || p->incomplete)
        return false;
    check_outs_take(to, d->job->op, d->c, p->results, p->values.tensors);
    return !to->incomplete;
}

static bool is_written(const check_op *op, const check_case *c, size_t tensor)
{
    return op->slots[check_tensor_argument(c, tensor)].flags & DV_SLOT_WRITES;
}

/* Returns the number of the element that has index j along an axis, and in the other dims the last index or the first. */
static int64_t element_at(const check_tensor *t, int axis, int64_t j, bool last)
{
    int64_t at = 0;
    for (int32_t k = 0; k < t->ndim; k++)
        at = at * t->shape[k] + (k == axis ? j : last ? t->shape[k] - 1 : 0);
    return at;
}

/* Returns the dim of a result or written argument that has the size; -1: none. */
static int axis_of(const dim *d, const check_out *o)
{
    const size_t nargs = d->job->op->nargs;
    return o->number ? -1 : o->slot >= nargs ? d->results[o->slot - nargs] : d->axes[d->c->args[o->slot].first + o->element];
}

/* ---- Order ---------------------------------------------------------------------------------------------------------------- */

static int32_t order[MAX_ELEMENTS]; /* the places of elements in another order */

/* Sets a random order of n elements, in which the first is not the first. */
static void set_order(int64_t n, uint64_t seed)
{
    check_random r = { seed };
    for (int64_t j = 0; j < n; j++)
        order[j] = (int32_t)j;
    for (int64_t j = n - 1; j > 0; j--) {
        const int64_t k = j == n - 1 ? 0 : (int64_t)(check_next(&r) % (uint64_t)(j + 1));
        const int32_t kept = order[j];
        order[j] = order[k];
        order[k] = kept;
    }
    if (!order[0]) {
        order[0] = order[n - 1];
        order[n - 1] = 0;
    }
}

/* Writes the elements of `from` to `to`, permuted along an axis of this size. Both are contiguous. */
static void permute(const check_tensor *t, int axis, const char *from, char *to)
{
    const int64_t n = axis < 0 ? 1 : t->shape[axis];
    int64_t outer = 1, inner = dv_dtype_bytes(t->dtype, 1);
    for (int32_t k = 0; k < t->ndim; k++)
        *(k < axis ? &outer : &inner) *= k == axis ? 1 : t->shape[k];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < n; j++)
            memcpy(to + (o * n + (axis < 0 ? 0 : order[j])) * inner, from + (o * n + j) * inner, (size_t)inner);
}

/* True if element i of one result and element k of another are the same, up to the rounding of sums in another order. */
static bool is_near(const check_op *op, const check_out *a, int64_t i, const check_out *b, int64_t k, double largest, bool reals)
{
    enum { ROUNDED = 1 };
    int part;
    const double tolerance = check_is_integer(a->t.dtype) ? (reals ? ROUNDED : 0)
                                                          : fmax(check_rounding(op, a->t.dtype, largest), 0x1p-9 * largest);
    return !check_out_far(a, i, b, k, tolerance, &part);
}

/* Compares results with those of permuted arguments. */
static enum verdict compare_permuted(dim *d, bool reals)
{
    bool trivial = true;
    char where[200];
    if (found.n != now.n)
        return VIOLATED;
    for (size_t r = 0; r < found.n; r++) {
        const check_out *a = &found.of[r], *b = &now.of[r];
        const int axis = axis_of(d, a);
        const double largest = fmax(check_out_largest(a), check_out_largest(b));
        int64_t inner = 1;
        if (memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->t.ndim))
            return VIOLATED;
        for (int32_t k = axis + 1; axis >= 0 && k < a->t.ndim; k++)
            inner *= a->dims[k];
        if (!check_is_integer(a->t.dtype) && (largest > LARGE || (largest > 0 && largest < 1 / LARGE)))
            return UNKNOWN; /* products may have underflowed or overflowed, in one order */
        trivial &= !(largest > 0);
        for (int64_t i = 0, n = dv_numel(&a->t); i < n; i++) {
            const int64_t j = i / inner % d->size, to = axis < 0 ? i : i + (order[j] - j) * inner;
            if (is_near(d->job->op, a, i, b, to, largest, reals))
                continue;
            check_out_element(d->job->op, a, i, where, sizeof where);
            snprintf(d->words, sizeof d->words, "%s is %.9g, and in another order %.9g", where, check_out_number(a, i, 0),
                check_out_number(b, to, 0));
            return VIOLATED;
        }
    }
    return trivial ? UNKNOWN : HOLDS;
}

/* In half of the bases the last element of a tensor is much larger than the others, so that a maximum or a sum shows it. */
static enum verdict keeps_one_order(dim *d, uint64_t seed)
{
    const check_case *c = d->c;
    bool reals = false;
    set_order(d->size, seed);
    if (!check_plain_make(&one, d->job->op, d->job->row, c) || !check_plain_make(&other, d->job->op, d->job->row, c))
        return UNKNOWN;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        char *const data = one.values.tensors[i].data, *const to = other.values.tensors[i].data;
        if (!t->present)
            continue;
        if (d->axes[i] >= 0 && d->job->op->sorted[check_tensor_argument(c, i)])
            return UNKNOWN;
        reals |= check_is_float(t->dtype);
        if (d->axes[i] >= 0 && check_is_float(t->dtype) && c->number % 2 && !d->job->op->looks_inside &&
            !is_written(d->job->op, c, i))
            check_put(data, check_numel(t) - 1, t->dtype, 64);
        permute(t, d->axes[i], data, to);
        if (is_written(d->job->op, c, i))
            memcpy((char *)(uintptr_t)other.written[i].copy, to, other.written[i].bytes);
    }
    if (!call(d, &one, &found) || !call(d, &other, &now))
        return UNKNOWN;
    return compare_permuted(d, reals);
}

/* Tries several orders: one may leave a result as it is by chance. */
static enum verdict keeps_order(dim *d)
{
    enum { ORDERS = 3 };
    enum verdict is = UNKNOWN;
    for (uint64_t k = 0; k < ORDERS && is != VIOLATED; k++) {
        const enum verdict one_is = keeps_one_order(d, 8 * d->c->seed + k + 1);
        is = one_is == UNKNOWN && k ? is : one_is;
    }
    return is;
}

/* ---- Influence ------------------------------------------------------------------------------------------------------------ */

/* Sets which results change when an element of the tensor does. False: its contents cannot be changed, or the call is refused. */
static bool find_influence(const dim *d, int64_t element, bool *changes)
{
    const check_tensor *t = &d->c->tensors[d->tensor];
    void *const data = one.values.tensors[d->tensor].data;
    const double was = check_get(data, element, t->dtype);
    const bool real = check_is_float(t->dtype) && !d->job->op->looks_inside,
               packed = check_is_integer(t->dtype) && t->dtype.code != 6 && t->dtype.bits < 64 && !d->job->op->looks_inside;
    const double far = 0x1p20, /* the same at each size: a kernel may cut numbers off */
        flipped = t->dtype.code == 1 ? ldexp(1, t->dtype.bits) - 1 - was : -1 - was, /* some bits may not matter */
        others[2][3] = { { packed ? flipped : t->low, t->high, t->low }, { far, -far, 0 } }, *to = others[real];
    bool any = false;
    memset(changes, 0, sizeof *changes * found.n);
    for (int k = 0; k < 3; k++) {
        if (!(to[k] < was || to[k] > was))
            continue;
        check_put(data, element, t->dtype, to[k]);
        const bool ran = call(d, &one, &now) && now.n == found.n;
        check_put(data, element, t->dtype, was);
        if (!ran)
            return false;
        any = true;
        for (size_t r = 0; r < found.n; r++) {
            const check_out *a = &found.of[r], *b = &now.of[r];
            changes[r] |= memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->t.ndim) != 0 ||
                memcmp(a->t.data, b->t.data, (size_t)dv_dtype_bytes(a->t.dtype, dv_numel(&a->t))) != 0;
        }
    }
    return any;
}

/* All elements along a small dim; along a large one the last, the first, the middle and another. */
static enum verdict all_have_influence(dim *d)
{
    const check_case *c = d->c;
    const check_tensor *t = &c->tensors[d->tensor];
    const int axis = d->axes[d->tensor];
    const int64_t size = axis < 0 ? 0 : t->shape[axis], n = size <= SMALL ? size : TESTED,
                  some[TESTED] = { size - 1, 0, size / 2, size * 5 / 7 };
    bool first[CHECK_RESULTS + CHECK_TENSORS], changes[CHECK_RESULTS + CHECK_TENSORS];
    char index[200], name[120];
    enum verdict is = UNKNOWN;
    if (size < 2 || !check_plain_make(&one, d->job->op, d->job->row, c) || !call(d, &one, &found))
        return UNKNOWN;
    for (int64_t k = 0; k < n; k++) {
        const int64_t element = element_at(t, axis, size <= SMALL ? k : some[k], c->number % 2);
        if (!find_influence(d, element, changes))
            return UNKNOWN;
        if (!k)
            memcpy(first, changes, sizeof first);
        for (size_t r = 0; r < found.n; r++) {
            is = first[r] && is == UNKNOWN ? HOLDS : is;
            if (first[r] == changes[r])
                continue;
            check_index_print(t->ndim, t->shape,
                first[r] ? element : element_at(t, axis, size <= SMALL ? 0 : some[0], c->number % 2), index, sizeof index);
            snprintf(d->words, sizeof d->words, "%s does not depend on element [%s] of argument '%s', as it does on others",
                check_out_name(d->job->op, &found.of[r], name, sizeof name), index,
                d->job->op->slots[check_tensor_argument(c, d->tensor)].name);
            d->in_result = d->placed && axis_of(d, &found.of[r]) >= 0;
            return VIOLATED;
        }
    }
    return is;
}

/* The last element, where all indices are the largest that the contract allows. */
static enum verdict last_has_influence(dim *d)
{
    const check_tensor *t = &d->c->tensors[d->tensor];
    bool changes[CHECK_RESULTS + CHECK_TENSORS], any = false;
    char index[200];
    if (!check_numel(t) || !check_plain_make(&one, d->job->op, d->job->row, d->c) || !call(d, &one, &found) ||
        !find_influence(d, check_numel(t) - 1, changes))
        return UNKNOWN;
    for (size_t r = 0; r < found.n; r++)
        any |= changes[r];
    check_index_print(t->ndim, t->shape, check_numel(t) - 1, index, sizeof index);
    snprintf(d->words, sizeof d->words, "no result depends on element [%s] of argument '%s' where all indices are the largest",
        index, d->job->op->slots[check_tensor_argument(d->c, d->tensor)].name);
    return any ? HOLDS : VIOLATED;
}

/* ---- Sizes ---------------------------------------------------------------------------------------------------------------- */

static const struct {
    condition *is;
    const char *kind, *what;
} conditions[] = {
    { keeps_order, "order at a size", "the order of elements along it matters" },
    { all_have_influence, "influence at a size", "not all elements along it have an influence" },
    { last_has_influence, "influence at a size", "the last element has no influence" },
};
enum { ORDER, ALL, LAST };

/* A case whose sizes are varied: contiguous, with real elements between 0.25 and 2 and integers from 1 on, so that sums do not
 * cancel and no factor hides another. False: the contract does not accept it, or it is empty or large. */
static bool make_base(const check_op *op, const check_case *c, check_case *out)
{
    static check_case mild;
    *out = *c;
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &out->tensors[i];
        if (t->present && (t->dtype.bits < 8 || t->dtype.code == 5 || !check_numel(t) || check_numel(t) > BASE_ELEMENTS))
            return false;
        t->layout = CHECK_CONTIGUOUS;
        if (t->fill == CHECK_SPECIAL || t->fill >= CHECK_SIGNALLING)
            t->fill = CHECK_RANDOM;
    }
    mild = *out;
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &mild.tensors[i];
        const bool real = check_is_float(t->dtype);
        if (t->dtype.code == 6)
            continue;
        t->fill = check_is_placed(t) ? t->fill : CHECK_RANDOM;
        t->low = real ? 0.25 : fmax(t->low, 1);
        t->high = real ? 2 : fmax(t->high, 3);
    }
    if (check_accepts(op, &mild))
        *out = mild;
    return c->ntensors && check_accepts(op, out);
}

/* Sets which dim of each result has the size, from the shapes of a case with another size. False: it is unknown. */
static bool find_results(dim *d, const check_case *base, int64_t base_size)
{
    static dv_result_spec specs[2][CHECK_RESULTS];
    static check_values v;
    const check_op *op = d->job->op;
    for (int k = 0; k < 2; k++) {
        check_values_make(&v, k ? d->c : base, (dv_device){ DV_CPU, 0 });
        if (dv_infer(op->op, v.values, base->nargs, specs[k], op->nresults))
            return false;
    }
    for (size_t r = 0; r < op->nresults; r++) {
        const dv_result_spec *a = &specs[0][r], *b = &specs[1][r];
        d->results[r] = -1;
        if ((a->flags | b->flags) & (DV_SPEC_UNBACKED | DV_SPEC_LIST) || a->ndim != b->ndim)
            return false;
        for (int32_t k = 0; k < a->ndim; k++) {
            if (a->shape[k] == b->shape[k])
                continue;
            if (d->results[r] >= 0 || a->shape[k] != base_size || b->shape[k] != d->size)
                return false;
            d->results[r] = k;
        }
    }
    return true;
}

static int64_t size_of(const dim *d, const check_case *base)
{
    return d->of.name ? check_name_size(d->of.name, (check_case *)(uintptr_t)base)[d->of.axis] : base->args[d->of.slot].as.i;
}

/* Sets the case and the axes for one size of a dim, or the nearest size that the contract allows. False: it allows none, or a
 * tensor is too large. */
static bool resize(dim *d, const check_case *base, int64_t size, check_case *c)
{
    const int64_t base_size = size_of(d, base);
    dv_range facts[CHECK_TENSORS];
    d->c = c;
    d->size = size;
    if (!check_resize(d->job->op, base, &d->of, &d->size, c, d->axes) || d->size < 2 || d->size > MAX_ELEMENTS ||
        (d->last && !check_fit(d->job->op, c, base, facts)) || check_case_largest(c) > MAX_ELEMENTS ||
        check_work_with_numbers(d->job->op, c) > 4.0 * MAX_ELEMENTS)
        return false;
    bool bounded = !d->last;
    for (size_t i = 0; i < c->ntensors && d->last; i++)
        if (check_is_integer(c->tensors[i].dtype) && facts[i].most < INT64_MAX && facts[i].least <= facts[i].most) {
            bounded = true;
            c->tensors[i].low = c->tensors[i].high = (double)facts[i].most;
            c->tensors[i].fill = CHECK_RANDOM;
        }
    if (!bounded || !check_accepts(d->job->op, c))
        return false;
    d->known = d->placed = find_results(d, base, base_size);
    for (size_t i = 0; i < c->ntensors; i++)
        d->known &= d->axes[i] != UNSURE;
    if (d->tensor == SIZE_MAX)
        return d->known;
    for (int32_t k = 0; k < c->tensors[d->tensor].ndim && d->axes[d->tensor] == UNSURE; k++) /* as of ceildiv(n, 32) */
        if (base->tensors[d->tensor].shape[k] != c->tensors[d->tensor].shape[k])
            d->axes[d->tensor] = k;
    return true;
}

/* The sizes that are compared, ascending: small ones, vectors and their neighbours, numbers of the source and their neighbours,
 * and those past which a narrow index ends. */
static size_t list_sizes(const check_op *op, int64_t *sizes)
{
    static const int64_t usual[] = { 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 31, 33, 37, 64, 65, 94, 130, 255, 259, 517, 1030, 2063,
        4099, 8201, 32771, 65539 };
    size_t n = sizeof usual / sizeof *usual;
    memcpy(sizes, usual, sizeof usual);
    for (size_t k = 0; k < op->nspecial && n + 2 < SIZES; k++)
        for (int64_t by = 0; by < 2; by++) {
            const int64_t x = op->special[k] + by;
            size_t to = n;
            bool is = x <= SMALL || x > MAX_ELEMENTS;
            for (size_t i = 0; i < n; i++)
                is |= sizes[i] == x;
            for (; !is && to && sizes[to - 1] > x; to--)
                sizes[to] = sizes[to - 1];
            if (!is)
                sizes[to] = x, n++;
        }
    return n;
}

/* True if integers of one tensor that is only read may select elements of another: then some have an influence and others none.
 */
static bool may_select(const dim *d, const check_case *c)
{
    size_t present = 0, selecting = 0;
    for (size_t i = 0; i < c->ntensors; i++) {
        const dv_dtype type = c->tensors[i].dtype;
        present += c->tensors[i].present;
        selecting += c->tensors[i].present && check_is_integer(type) && (type.bits >= 32 || type.code == 6) && i != d->tensor &&
            !is_written(d->job->op, c, i);
    }
    return selecting && present > 1;
}

/* True if a number of the call may be a length that only large dims exceed, as a window. */
static bool has_large_number(const check_op *op, const check_case *c)
{
    bool large = false;
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value v = check_default_of(op, i, &c->args[i]);
        const dv_value *by_default = &op->slots[i].default_value;
        large |= v.type == DV_VALUE_INT && (v.as.i > NARROW || v.as.i < -NARROW);
        large |= v.type == DV_VALUE_DEFAULT && by_default->type == DV_VALUE_INT && by_default->as.i > NARROW;
        for (uint32_t k = 0; k < v.count && v.type == DV_VALUE_INTS; k++)
            large |= v.ints[k] > NARROW;
    }
    return large;
}

/* True if the violation at sizes[at] is the kernel's fault, by what holds at the other sizes. */
static bool is_fault(bool may_be_narrow, const int64_t *sizes, const enum verdict *verdicts, size_t n, size_t at, int64_t *also)
{
    uint32_t smaller = 0;
    bool narrow = may_be_narrow && sizes[at] > NARROW;
    *also = 0;
    for (size_t k = 0; k < n; k++) {
        smaller += sizes[k] > SMALL && sizes[k] <= NARROW && verdicts[k] == HOLDS;
        narrow &= verdicts[k] != VIOLATED || sizes[k] > NARROW;
        if (!*also && sizes[k] >= 2 * sizes[at] && verdicts[k] == HOLDS)
            *also = sizes[k];
    }
    return *also || (narrow && smaller >= MIN_HOLDING);
}

/* Repeats a condition with other contents, the last time with elements of which each is larger than the one before. True: the
 * verdict is the same each time. */
static bool is_confirmed(dim *d, condition *is, enum verdict verdict, check_case *c)
{
    const uint64_t seed = c->seed;
    bool confirmed = true;
    char words[sizeof d->words];
    static check_case ascending;
    memcpy(words, d->words, sizeof words);
    for (uint64_t k = 1; k < CONFIRMED && confirmed; k++) {
        c->seed = seed + 64 * k;
        confirmed = is(d) == verdict;
    }
    c->seed = seed;
    ascending = *c;
    for (size_t i = 0; i < c->ntensors; i++)
        if (check_is_float(c->tensors[i].dtype) && c->tensors[i].fill == CHECK_RANDOM)
            ascending.tensors[i].fill = CHECK_ASCENDING;
    d->c = &ascending;
    confirmed = confirmed && check_accepts(d->job->op, &ascending) && is(d) == verdict;
    d->c = c;
    memcpy(d->words, words, sizeof words);
    return confirmed;
}

/* Compares the sizes of one dim by one condition. */
static void compare_sizes(check_job *job, const check_case *base, dim *d, size_t which, double end)
{
    static check_case c, larger;
    char words[sizeof d->words];
    int64_t sizes[SIZES], also = 0;
    uint32_t holding = 0;
    const bool may_be_narrow = !has_large_number(job->op, base);
    enum verdict verdicts[SIZES] = { UNKNOWN };
    char others[80] = "";
    const size_t all = which != LAST && may_select(d, base) ? 0 : list_sizes(job->op, sizes);
    d->last = which == LAST;
    size_t n = 0;
    double before = check_used(), took = 0;
    for (; n < all && check_used() < end; n++) {
        const double ratio = n ? (double)sizes[n] / (double)sizes[n - 1] : 1;
        if (took * ratio * ratio > BASE_SECONDS) /* a kernel may be quadratic */
            break;
        const bool made = resize(d, base, sizes[n], &c) && (!n || d->size > sizes[n - 1]);
        verdicts[n] = made ? conditions[which].is(d) : UNKNOWN;
        sizes[n] = made ? d->size : n ? sizes[n - 1] : sizes[n];
        holding += verdicts[n] == HOLDS;
        took = check_used() - before;
        before += took;
        if ((verdicts[n] == VIOLATED && holding < MIN_HOLDING) || (n > MIN_HOLDING && !holding))
            return;
    }
    for (size_t k = 0; k < n && job->result->outcome == CHECK_PASS; k++) {
        if (verdicts[k] != VIOLATED || !is_fault(may_be_narrow, sizes, verdicts, n, k, &also) || !resize(d, base, sizes[k], &c) ||
            conditions[which].is(d) != VIOLATED || !is_confirmed(d, conditions[which].is, VIOLATED, &c))
            continue;
        memcpy(words, d->words, sizeof words);
        const bool in_result = d->in_result;
        if (also && (!resize(d, base, also, &larger) || !is_confirmed(d, conditions[which].is, HOLDS, &larger)))
            continue;
        if ((which == ALL && !in_result) || (which == LAST && also))
            continue; /* a window or a rest that is left out may have no influence at some sizes */
        if (also)
            snprintf(others, sizeof others, " and for %lld", (long long)also);
        job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
        check_in_hand_with_results(job, &c);
        check_fail(job, conditions[which].kind, "with '%s' of %lld %s, and not for smaller sizes%s: %s", d->name,
            (long long)sizes[k], conditions[which].what, others, words);
    }
}

/* True if the contract says that results along this name are independent, which property parallel checks. */
static bool is_parallel(const check_op *op, const check_name *name)
{
    const check_json *parallel = check_json_get(op->contract, "parallel");
    bool is = false;
    for (const check_json *f = parallel ? parallel->child : NULL; f; f = f->next)
        is |= !strcmp(f->child->next->text, name->text);
    return is;
}

/* Compares the sizes of one dim by each condition. */
static void check_dim(check_job *job, const check_case *base, check_varied of, const char *name, bool decides, double end)
{
    dim d = { .job = job, .of = of, .name = name, .tensor = SIZE_MAX };
    if (!decides)
        compare_sizes(job, base, &d, ORDER, end);
    for (size_t i = 0; i < base->ntensors && job->result->outcome == CHECK_PASS; i++) {
        const check_tensor *t = &base->tensors[i];
        const bool fits = decides ? check_is_float(t->dtype) : t->dtype.bits >= 32 || check_is_integer(t->dtype);
        d.tensor = i;
        if (t->present && !is_written(job->op, base, i) && fits && !check_is_placed(t))
            compare_sizes(job, base, &d, decides ? LAST : ALL, end);
    }
}

/* Compares the sizes of all dims of a base. */
static void check_all_dims(check_job *job, const check_case *base)
{
    const check_op *op = job->op;
    const double end = check_used() + BASE_SECONDS;
    for (size_t k = 0; k < op->nnames && job->result->outcome == CHECK_PASS; k++) {
        const check_name *name = &op->names[k];
        const int32_t n = name->kind == CHECK_NAME_DTYPE || !base->names.bound[k] || is_parallel(op, name) ? 0
            : name->kind == CHECK_NAME_RUN ? base->names.runs[name->at].n
                                           : 1;
        for (int32_t axis = 0; axis < n && job->result->outcome == CHECK_PASS; axis++)
            check_dim(job, base, (check_varied){ .name = name, .axis = axis }, name->text, check_name_decides(op, name), end);
    }
    for (size_t i = 0; i < op->nargs && job->result->outcome == CHECK_PASS; i++)
        if (op->literals[i].sizes && base->args[i].type == DV_VALUE_INT)
            check_dim(job, base, (check_varied){ .slot = i }, op->slots[i].name, false, end);
}

static double used_by_children(void)
{
    struct rusage r;
    getrusage(RUSAGE_CHILDREN, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

void check_sizes(check_job *job, const check_case *c)
{
    static check_case base;
    static uint32_t bases;
    static double spent;
    const double begin = used_by_children();
    if (!job->result->cases || job->op->random || !job->op->contract || bases >= BASES || spent > JOB_SECONDS ||
        !make_base(job->op, c, &base))
        return;
    bases++;
    if (!check_apart(
            job, &base, check_all_dims)) /* so what large calls change is not there when the case of the plan is looked at */
        bases += BASES / 4;              /* perhaps its threads are missing there, and it waits for them */
    spent += used_by_children() - begin;
}
