/* Comparison of a call with the same call in other dtypes: a test for operators without any reference. A call in bf16, f16 or f32
 * must give the results of the same call in f32 or f64, up to rounding; c64 those of c128. A call in f64 or c128 must be more
 * precise than f32: its results must follow changes of the arguments that f32 cannot represent. Results that are integers, and
 * all results of integers, must be those of two wider dtypes, if these two agree.
 *
 * An operator may round intermediate results, and may have jumps, where rounding chooses a side. So a difference is reported only
 * in the third case that has one. Results are not compared after they jumped in three cases when the arguments moved by the
 * rounding of the narrow type. */
#include <math.h>
#include <string.h>

#include "check.h"

enum {
    MAX_ELEMENTS = 1 << 14,
    MAX_CASES = 64,     /* of a job */
    MIN_DIFFERENT = 3,  /* cases with a difference before it is reported */
    MIN_MOVED = 8,      /* elements that do not follow a small change of the arguments, before it is reported */
    UNITS = 8,          /* tolerance for intermediate rounding, in units of the narrow type, of the result or the arguments */
    JUMP = 64,          /* change in the same units that only a jump explains */
    MAX_MAGNITUDE = 20, /* of elements: their squares are finite in f16 */
};

enum { OUTS = CHECK_RESULTS + CHECK_TENSORS };
enum changed { TENSORS, NUMBERS, CHANGED }; /* what look_for_f32() changes: all tensors, or all numbers */

/* What was found so far: [1] in cases of which a dim was made long, [0] in the others. */
static struct counts {
    uint32_t wider, two;        /* cases compared with a wider dtype, and with two */
    uint32_t different, unlike; /* cases in which results were different, and unlike those of two dtypes */
    uint32_t jumps[OUTS];       /* cases in which a result was seen to jump */
    uint32_t tries[CHANGED], rough_cases[CHANGED][OUTS];
    int64_t rough[CHANGED][OUTS], all[CHANGED][OUTS];
} counts_of[2], *counts = counts_of;

static const check_row any_row = { .name = "", .index = 0 };

/* Returns the next wider float or complex dtype: f32 for 16 bits, f64 for f32. Other dtypes are returned unchanged. */
static dv_dtype wider(dv_dtype d)
{
    dv_dtype wide = d;
    if (check_is_float(d) && d.bits == 16)
        dv_dtype_parse("f32", &wide);
    if (dv_dtype_key(d) == DV_DTYPE_f32)
        dv_dtype_parse("f64", &wide);
    if (check_is_complex(d) && d.bits < 128)
        wide.bits = (uint8_t)(2 * d.bits);
    return wide;
}

/* Returns a signed dtype of so many bits for an integer dtype of fewer. Other dtypes are returned unchanged. */
static dv_dtype wider_integer(dv_dtype d, uint8_t bits)
{
    return d.code < 2 && d.bits >= 8 && d.bits < bits ? (dv_dtype){ 0, bits, 1 } : d;
}
static dv_dtype to_32_bits(dv_dtype d) { return wider_integer(d, 32); }
static dv_dtype to_64_bits(dv_dtype d) { return wider_integer(d, 64); }

/* True if only rounding can make the numbers of a case differ between dtypes. Then its tensors are not empty or large, and real
 * elements are neither special nor larger than MAX_MAGNITUDE. */
static bool is_mild(const check_case *c)
{
    bool mild = true;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        const bool plain = t->fill == CHECK_RANDOM || t->fill == CHECK_SIMPLE || t->fill == CHECK_HALVES ||
            t->fill == CHECK_RISING || t->fill == CHECK_ASCENDING;
        mild &= !t->present || (check_is_integer(t->dtype) || (plain && fmax(-t->low, t->high) <= MAX_MAGNITUDE));
        mild &= !t->present || (check_numel(t) && check_numel(t) <= MAX_ELEMENTS);
    }
    return mild;
}

/* Returns check_unit() of a number, or of a part of a complex number. */
static double unit_of(dv_dtype d)
{
    check_numbers_in(&d);
    return check_unit(d);
}

/* Copies a case to `out` with the dtypes that `change` returns. *unit: the largest rounding unit of a float dtype that was
 * changed. False: no tensor changes, or the contract does not accept the new case. */
static bool with_dtypes(const check_op *op, const check_case *c, dv_dtype (*change)(dv_dtype), check_case *out, double *unit)
{
    bool any = false;
    *unit = 0;
    *out = *c;
    for (size_t k = 0; k < op->nnames; k++)
        if (op->names[k].kind == CHECK_NAME_DTYPE && c->names.bound[k]) {
            dv_dtype *d = &out->names.dtypes[op->names[k].at];
            *d = change(*d);
        }
    for (size_t i = 0; i < c->nargs; i++) /* a dtype that is an argument, as of a result */
        if (out->args[i].type == DV_VALUE_DTYPE)
            out->args[i].as.dtype = change(out->args[i].as.dtype);
    if (!check_fit(op, out, c, NULL))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *a = &c->tensors[i], *b = &out->tensors[i];
        const bool same = dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype);
        if (a->present != b->present || a->ndim != b->ndim || memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim))
            return false;
        if (a->present && !same && dv_dtype_key(change(a->dtype)) != dv_dtype_key(b->dtype))
            return false;
        any |= a->present && !same;
        *unit = a->present && !same && !check_is_integer(a->dtype) ? fmax(*unit, unit_of(a->dtype)) : *unit;
    }
    return any && check_accepts(op, out);
}

static bool widen(const check_op *op, const check_case *c, check_case *out, double *unit)
{
    return with_dtypes(op, c, wider, out, unit);
}

/* Returns f32 for a float dtype of 16 bits, and c64 for c32. Other dtypes are returned unchanged. */
static dv_dtype from_16_bits(dv_dtype d)
{
    dv_dtype part = d;
    check_numbers_in(&part);
    return check_is_float(part) && part.bits == 16 ? wider(d) : d;
}

bool check_widen_16_bits(const check_op *op, const check_case *c, check_case *out)
{
    double unit;
    return with_dtypes(op, c, from_16_bits, out, &unit);
}

static bool call_and_take(
    const check_job *job, const check_row *row, const check_case *c, const check_case *contents, double moved, check_outs *to)
{
    static check_call call;
    call = (check_call){ .op = job->op, .row = row, .poison = 0xa5, .contents = contents == c ? NULL : contents, .moved = moved };
    check_call_run(&call, c);
    if (call.status)
        return false;
    check_outs_take(to, job->op, c, call.results, check_call_tensors());
    return !to->incomplete;
}

/* True if an output holds real or complex numbers, which may be rounded. */
static bool is_real(const check_out *o)
{
    return ((check_is_float(o->t.dtype) && o->t.dtype.bits >= 16) || check_is_complex(o->t.dtype)) && !o->number;
}

/* Returns how many numbers an output holds: a complex element has two. */
static int64_t numbers_of(const check_out *o)
{
    dv_dtype dtype = o->t.dtype;
    return dv_numel(&o->t) * check_numbers_in(&dtype);
}

static double number_of(const check_out *o, int64_t i)
{
    dv_dtype dtype = o->t.dtype;
    const int parts = check_numbers_in(&dtype);
    return check_out_number(o, i / parts, (int)(i % parts));
}

/* Prints the element that number i of an output belongs to. */
static void print_element(const check_op *op, const check_out *o, int64_t i, char *words, size_t size)
{
    check_out_element(op, o, i / (numbers_of(o) / dv_numel(&o->t)), words, size);
}

static bool same_shapes(const check_outs *a, const check_outs *b)
{
    bool same = a->n == b->n;
    for (size_t k = 0; k < a->n && same; k++)
        same = a->of[k].slot == b->of[k].slot && a->of[k].t.ndim == b->of[k].t.ndim &&
            !memcmp(a->of[k].dims, b->of[k].dims, sizeof *a->of[k].dims * (size_t)a->of[k].t.ndim);
    return same;
}

/* Returns the largest magnitude within the bounds of the case's real tensors. */
static double largest_real(const check_case *c)
{
    double most = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && !check_is_integer(c->tensors[i].dtype))
            most = fmax(most, fmax(fabs(c->tensors[i].low), fabs(c->tensors[i].high)));
    return most;
}

/* Returns the largest finite number of a float dtype, or of a part of a complex one. */
static double largest_of(dv_dtype d)
{
    check_numbers_in(&d);
    return check_largest(d);
}

/* ---- Narrow and wide ------------------------------------------------------------------------------------------------------ */

static void compare_with_wider(check_job *job, const check_case *c)
{
    static check_case wide;
    static check_outs found, expected, up, down;
    char where[200];
    double unit;
    const uint32_t needed = job->result->cases ? MIN_DIFFERENT : 1; /* 1: it is being made smaller */
    if (!widen(job->op, c, &wide, &unit) || (job->result->cases && counts->wider++ >= MAX_CASES) ||
        !call_and_take(job, job->row, c, c, 0, &found) || !call_and_take(job, &any_row, &wide, c, 0, &expected) ||
        !call_and_take(job, &any_row, &wide, c, unit, &up) || !call_and_take(job, &any_row, &wide, c, unit / 4, &down) ||
        !same_shapes(&found, &expected) || !same_shapes(&expected, &up) || !same_shapes(&expected, &down))
        return;
    for (size_t k = 0; k < found.n; k++) {
        const check_out *a = &found.of[k], *b = &expected.of[k];
        const double largest = fmax(check_out_largest(a), check_out_largest(b)), last = fmax(unit, unit_of(a->t.dtype));
        const int64_t n = numbers_of(a);
        const check_tolerance t = check_tolerance_of(job->op, c, a->t.dtype, n, true);
        const double numbers = largest_real(c), scale = fmax(largest, numbers);
        bool jump = false;
        if (!is_real(a) || !is_real(b))
            continue;
        for (int64_t i = 0; i < n && !jump; i++) {
            const double moved = fmax(
                fabs(number_of(&up.of[k], i) - number_of(b, i)), fabs(number_of(&down.of[k], i) - number_of(b, i)));
            jump = !(moved <= JUMP * last * scale);
        }
        counts->jumps[k] += jump;
        for (int64_t i = 0; i < n && !jump && counts->jumps[k] < MIN_DIFFERENT; i++) {
            const double x = number_of(a, i), y = number_of(b, i);
            const double moved = fmax(fabs(number_of(&up.of[k], i) - y), fabs(number_of(&down.of[k], i) - y));
            const double allowed = t.atol + t.rtol * fabs(y) + UNITS * last * fmax(fabs(y), numbers) + UNITS * moved;
            if ((isfinite(x) && isfinite(y) && fabs(x - y) <= allowed) || (isnan(x) && isnan(y)) || x == y)
                continue;
            if (!isfinite(x) && !isfinite(y) && !isnan(x) == !isnan(y))
                continue;
            if (fabs(x) >= largest_of(a->t.dtype) && fabs(y) + allowed > largest_of(a->t.dtype) && !signbit(x) == !signbit(y))
                continue; /* the narrow dtype has no such number: infinity, or its limit */
            if (++counts->different < needed)
                return;
            print_element(job->op, a, i, where, sizeof where);
            job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
            check_fail(job, "other dtype",
                "%s (%s) is %.9g, and with the same numbers in wider dtypes it is %.9g (%s); rounding explains %.3g", where,
                dv_dtype_name(a->t.dtype), x, y, dv_dtype_name(b->t.dtype), allowed);
            return;
        }
    }
}

/* ---- Integers ------------------------------------------------------------------------------------------------------------- */

/* True if an output of an integer dtype can hold this number. */
static bool holds(dv_dtype d, double x)
{
    const double most = d.code == 6 ? 1 : ldexp(1, d.bits - (d.code == 0)) - 1;
    return x <= most && x >= (d.code == 0 ? -most - 1 : 0);
}

/* True if each number of the call fits into each integer dtype of its tensors: an operator may convert it to that dtype, and in a
 * wider one another number would come of one that does not fit. */
static bool numbers_fit(const check_op *op, const check_case *c)
{
    bool fit = true;
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *v = &c->args[i];
        const dv_value *d = v->type == DV_VALUE_DEFAULT ? &op->slots[i].default_value : NULL;
        const uint32_t type = d ? d->type : v->type;
        const double x = type == DV_VALUE_INT ? (double)(d ? d->as.i : v->as.i)
            : type == DV_VALUE_FLOAT          ? (d ? d->as.f : v->as.f)
                                              : 0;
        for (size_t k = 0; k < c->ntensors; k++)
            fit &= !c->tensors[k].present || c->tensors[k].dtype.code > 1 || holds(c->tensors[k].dtype, x);
    }
    return fit;
}

/* Compares integers, or all results of integers, with those of the same call in two wider dtypes, where these two agree: what
 * depends on the width of a dtype by its nature (a hash, the leading zeros) differs there, too. `change`, `more`: the dtypes. */
static void compare_with_two(check_job *job, const check_case *c, dv_dtype (*change)(dv_dtype), dv_dtype (*more)(dv_dtype))
{
    static check_case wide, widest;
    static check_outs found, expected, second, up, down;
    char where[200];
    double unit, next;
    const uint32_t needed = job->result->cases ? MIN_DIFFERENT : 1; /* 1: it is being made smaller */
    if (!numbers_fit(job->op, c) || (job->result->cases && counts->two >= MAX_CASES) ||
        !with_dtypes(job->op, c, change, &wide, &unit) ||
        !with_dtypes(job->op, change == more ? &wide : c, more, &widest, &next) ||
        !call_and_take(job, job->row, c, c, 0, &found) || !call_and_take(job, &any_row, &wide, c, 0, &expected) ||
        !call_and_take(job, &any_row, &widest, c, 0, &second) || !same_shapes(&found, &expected) ||
        !same_shapes(&expected, &second))
        return;
    const bool moves = unit > 0;
    if (moves &&
        (!call_and_take(job, &any_row, &widest, c, UNITS * unit, &up) || !same_shapes(&second, &up) ||
            !call_and_take(job, &any_row, &widest, c, unit, &down) || !same_shapes(&second, &down)))
        return;
    counts->two += job->result->cases > 0;
    for (size_t k = 0; k < found.n; k++) {
        const check_out *a = &found.of[k], *b = &expected.of[k];
        const int64_t n = numbers_of(a);
        const check_tolerance t = check_tolerance_of(job->op, c, a->t.dtype, n, true);
        const bool real = !check_is_integer(a->t.dtype);
        int64_t compared = 0, wrong = 0, first = -1;
        bool steady = true; /* no number follows a small change of real arguments */
        if (real ? moves || !is_real(a) || !is_real(b) : !check_is_integer(b->t.dtype))
            continue;
        for (int64_t i = 0; i < n; i++) {
            const double x = number_of(a, i), y = number_of(b, i), z = number_of(&second.of[k], i);
            const bool moved = moves && (number_of(&up.of[k], i) != z || number_of(&down.of[k], i) != z);
            steady &= !moved;
            if (moved || y != z || (!real && !holds(a->t.dtype, y)))
                continue;
            compared++;
            if (x == y || (isnan(x) && isnan(y)) || (real && fabs(x - y) <= t.atol + t.rtol * fabs(y)))
                continue;
            wrong++;
            first = first < 0 || (fabs(x - y) > 1 && fabs(number_of(a, first) - number_of(b, first)) <= 1) ? i : first;
        }
        if (!wrong || (!steady && (2 * wrong < compared || fabs(number_of(a, first) - number_of(b, first)) <= 1)) ||
            ++counts->unlike < needed)
            continue;
        print_element(job->op, a, first, where, sizeof where);
        job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
        size_t i = 0;
        while (dv_dtype_key(c->tensors[i].dtype) == dv_dtype_key(wide.tensors[i].dtype))
            i++;
        check_fail(job, "other dtype", "%s (%s) is %.9g where '%s' is %s, and %.9g with the same numbers in %s and in %s", where,
            dv_dtype_name(a->t.dtype), number_of(a, first), job->op->slots[check_tensor_argument(c, i)].name,
            dv_dtype_name(c->tensors[i].dtype), number_of(b, first), dv_dtype_name(wide.tensors[i].dtype),
            dv_dtype_name(widest.tensors[i].dtype));
        return;
    }
}

/* ---- f64 ------------------------------------------------------------------------------------------------------------------ */

/* True for f64 and c128. */
static bool has_64_bits(dv_dtype d)
{
    check_numbers_in(&d);
    return dv_dtype_key(d) == DV_DTYPE_f64;
}

/* True if the case has real or complex tensors and all of them are f64 or c128. */
static bool is_all_f64(const check_case *c)
{
    bool any = false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present || check_is_integer(t->dtype))
            continue;
        if (!has_64_bits(t->dtype))
            return false;
        any = true;
    }
    return any;
}

/* Copies a case to `out` with real numbers that are nearer to 0 by this part of their value. False: it has none, or the contract
 * does not accept them. */
static bool with_moved_numbers(const check_op *op, const check_case *c, double by, check_case *out)
{
    bool any = false;
    *out = *c;
    for (size_t i = 0; i < c->nargs; i++) {
        check_value *v = &out->args[i];
        const dv_value *by_default = &op->slots[i].default_value;
        if (v->type == DV_VALUE_DEFAULT && by_default->type == DV_VALUE_FLOAT)
            *v = (check_value){ .type = DV_VALUE_FLOAT, .as.f = by_default->as.f };
        if (op->slots[i].type == DV_FIELD_SCALAR && v->type == DV_VALUE_INT)
            *v = (check_value){ .type = DV_VALUE_FLOAT, .as.f = (double)v->as.i };
        any |= v->type == DV_VALUE_FLOAT || v->type == DV_VALUE_FLOATS || v->type == DV_VALUE_SCALARS;
        if (v->type == DV_VALUE_FLOAT)
            v->as.f -= by * v->as.f;
        for (uint32_t k = 0; k < v->count; k++)
            if (v->type == DV_VALUE_FLOATS || (v->type == DV_VALUE_SCALARS && v->ints[k] == DV_SCALAR_FLOAT))
                v->floats[k] -= by * v->floats[k];
    }
    return any && check_accepts(op, out);
}

static bool call_changed(const check_job *job, const check_case *c, enum changed what, double by, check_outs *to)
{
    static check_case moved;
    return what == TENSORS ? call_and_take(job, job->row, c, c, by, to)
                           : with_moved_numbers(job->op, c, by, &moved) && call_and_take(job, job->row, &moved, &moved, 0, to);
}

/* Reports a result in f64 that is computed in f32 somewhere. Arguments are changed by 2^-34 and by 2^-20 of their values: the
 * first change of the result must be 2^-14 of the second. A step that is rounded to f32 hides the small change, or enlarges
 * it. */
static void look_for_f32(check_job *job, const check_case *c, enum changed what)
{
    static check_outs found, near, far;
    int64_t *rough = counts->rough[what], *all = counts->all[what];
    uint32_t *cases = counts->rough_cases[what];
    const bool first = job->result->cases; /* else it is being made smaller */
    if (job->op->rtol > 0 || job->op->atol > 0 || !is_all_f64(c) || (first && counts->tries[what] >= MAX_CASES) ||
        !call_changed(job, c, what, 0x1p-34, &near) || !call_changed(job, c, what, 0x1p-20, &far) ||
        !call_changed(job, c, what, 0, &found) || !same_shapes(&found, &near) || !same_shapes(&found, &far))
        return;
    counts->tries[what]++;
    for (size_t k = 0; k < found.n; k++) {
        const check_out *o = &found.of[k];
        const int64_t n = has_64_bits(o->t.dtype) && !o->number ? numbers_of(o) : 0;
        const check_tolerance t = check_tolerance_of(job->op, c, o->t.dtype, n, true); /* what f64 itself loses */
        double most = 0;
        int64_t now = 0;
        for (int64_t i = 0; i < n; i++) {
            const double by = fabs(number_of(&far.of[k], i) - number_of(o, i));
            most = isfinite(by) ? fmax(most, by) : INFINITY;
        }
        if (!(most > 0) || most > 0x1p-10 * check_out_largest(o)) /* it is flat, or jumps, or nearly divides by zero */
            continue;
        for (int64_t i = 0; i < n; i++) {
            const double x = number_of(o, i), by = number_of(&far.of[k], i) - x, small = number_of(&near.of[k], i) - x;
            all[k] += fabs(by) > 0x1p-6 * most;
            now += fabs(by) > 0x1p-6 * most && fabs(by - 0x1p14 * small) > 0x1p-4 * most + 0x1p14 * (t.atol + t.rtol * fabs(x));
        }
        rough[k] += now;
        cases[k] += now > 0;
        if (!now || (first && (rough[k] < MIN_MOVED || cases[k] < MIN_DIFFERENT || 4 * rough[k] < all[k])))
            continue;
        job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
        check_fail(job, "f64 in f32",
            "%lld elements of %s %s (%s) do not follow when each %s changes by 2^-34 of it, as they do when by 2^-20: "
            "something is "
            "computed in f32",
            (long long)now, o->slot < job->op->nargs ? "argument" : "result", job->op->slots[o->slot].name,
            dv_dtype_name(o->t.dtype), what == TENSORS ? "argument" : "number");
        return;
    }
}

/* Copies a case to `out` with positive numbers, whose sums grow: a narrow type loses the small terms of a long sum. Integers
 * change only if there are no other numbers, since some may be indices. False: the case has no dim of LONG or more, or the
 * contract does not accept positive numbers. */
static bool with_positive(const check_op *op, const check_case *c, check_case *out)
{
    enum { LONG = 256 };
    bool any = false, integers = true;
    *out = *c;
    for (size_t i = 0; i < c->ntensors; i++)
        integers &= !c->tensors[i].present || check_is_integer(c->tensors[i].dtype);
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &out->tensors[i];
        for (int32_t d = 0; d < t->ndim; d++)
            any |= t->present && t->shape[d] >= LONG;
        if (!t->present || (check_is_integer(t->dtype) && (!integers || check_is_placed(t))))
            continue;
        t->fill = CHECK_RANDOM;
        t->low = integers ? 1 : 0.25;
        t->high = integers ? 3 : 2;
    }
    return any && check_accepts(op, out);
}

/* Makes all comparisons of one case. */
static void compare(check_job *job, const check_case *c)
{
    static check_case positive, wide, widest;
    double unit;
    compare_with_wider(job, c);
    if (job->result->outcome == CHECK_PASS)
        compare_with_two(job, c, wider, wider);
    if (job->result->outcome == CHECK_PASS)
        compare_with_two(job, c, to_32_bits, to_64_bits);
    if (job->result->outcome == CHECK_PASS && job->result->cases && with_positive(job->op, c, &positive)) {
        compare_with_wider(job, &positive);
        if (job->result->outcome == CHECK_PASS)
            compare_with_two(job, &positive, to_32_bits, to_64_bits);
        if (job->result->outcome != CHECK_PASS)
            check_in_hand(job, &positive);
    }
    const check_case *f64 = is_all_f64(c) ? c : NULL; /* or the same call in f64, if the row takes it */
    if (!f64 && job->result->cases && widen(job->op, c, &wide, &unit))
        f64 = is_all_f64(&wide) ? &wide : widen(job->op, &wide, &widest, &unit) ? &widest : NULL;
    for (int what = 0; f64 && what < CHANGED && job->result->outcome == CHECK_PASS; what++) {
        look_for_f32(job, f64, (enum changed)what);
        if (job->result->outcome != CHECK_PASS && f64 != c)
            check_in_hand(job, f64);
    }
}

/* Copies a case to `out` with another size of a dim. False: the contract has no such size, or the tensors are too large. */
static bool with_size(const check_op *op, const check_case *c, const check_varied *of, int64_t size, check_case *out)
{
    const int64_t least = size / 2;
    int axes[CHECK_TENSORS];
    return check_resize(op, c, of, &size, out, axes) && size >= least && is_mild(out);
}

/* Compares a case with one dim made long, which a chunk of a kernel or a narrow sum shows. A kernel that would take too long, as
 * one whose time grows with the cube of the dim, is left out: a shorter dim tells. */
static void compare_long(check_job *job, const check_case *c, const check_varied *of)
{
    enum { SHORT = 331, LENGTH = 2063 }; /* LENGTH: more than any chunk that a kernel is likely to have */
    static const double most = 0.2;      /* seconds of one call */
    static check_case along;
    static check_outs outs;
    if (!with_size(job->op, c, of, SHORT, &along))
        return;
    const double begin = check_now();
    const bool ran = call_and_take(job, job->row, &along, &along, 0, &outs);
    if (!ran || (check_now() - begin) * pow((double)LENGTH / SHORT, 3) > most || !with_size(job->op, c, of, LENGTH, &along))
        return;
    counts = &counts_of[1];
    compare(job, &along);
    counts = &counts_of[0];
    if (job->result->outcome != CHECK_PASS)
        check_in_hand_with_results(job, &along);
}

void check_other_dtypes(check_job *job, const check_case *c)
{
    enum { MAX_LONG = 12 }; /* cases of which each dim is made long */
    static uint32_t longs;
    if (job->op->random || !is_mild(c))
        return;
    compare(job, c);
    if (!job->result->cases || job->result->outcome != CHECK_PASS || longs++ >= MAX_LONG)
        return;
    for (size_t k = 0; k < job->op->nnames && job->result->outcome == CHECK_PASS; k++) {
        const check_name *name = &job->op->names[k];
        const int32_t n = name->kind == CHECK_NAME_DTYPE || !c->names.bound[k] ? 0
            : name->kind == CHECK_NAME_RUN                                     ? c->names.runs[name->at].n
                                                                               : 1;
        for (int32_t axis = 0; axis < n && job->result->outcome == CHECK_PASS; axis++)
            compare_long(job, c, &(check_varied){ .name = name, .axis = axis });
    }
}
