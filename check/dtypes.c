/* Comparison of a call with the same call in other dtypes: a test for operators without any reference. A call in bf16, f16 or f32
 * must give the results of the same call in f32 or f64, up to rounding. A call in f64 must be more precise than f32: its results
 * must follow changes of the arguments that f32 cannot represent.
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

static const check_row any_row = { .name = "", .index = 0 };

/* Returns the next wider float dtype: f32 for 16 bits, f64 for f32. Other dtypes are returned unchanged. */
static dv_dtype wider(dv_dtype d)
{
    dv_dtype wide = d;
    if (check_is_float(d) && d.bits == 16)
        dv_dtype_parse("f32", &wide);
    if (dv_dtype_key(d) == DV_DTYPE_f32)
        dv_dtype_parse("f64", &wide);
    return wide;
}

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

/* Copies a case to `out` with wider dtypes. *unit: rounding unit of the narrowest type that was widened. False: no tensor can be
 * widened, or the contract does not accept the new case. */
static bool widen(const check_op *op, const check_case *c, check_case *out, double *unit)
{
    bool any = false;
    *unit = 0;
    *out = *c;
    for (size_t k = 0; k < op->nnames; k++)
        if (op->names[k].kind == CHECK_NAME_DTYPE && c->names.bound[k]) {
            dv_dtype *d = &out->names.dtypes[op->names[k].at];
            *d = wider(*d);
        }
    for (size_t i = 0; i < c->nargs; i++) /* a dtype that is an argument, as of a result */
        if (out->args[i].type == DV_VALUE_DTYPE)
            out->args[i].as.dtype = wider(out->args[i].as.dtype);
    if (!check_fit(op, out, c, NULL))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *a = &c->tensors[i], *b = &out->tensors[i];
        const bool same = dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype);
        if (a->present != b->present || a->ndim != b->ndim || memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim))
            return false;
        if (a->present && !same && dv_dtype_key(wider(a->dtype)) != dv_dtype_key(b->dtype))
            return false;
        any |= a->present && !same;
        *unit = a->present && !same ? fmax(*unit, check_unit(a->dtype)) : *unit;
    }
    return any && check_accepts(op, out);
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

static bool is_real(const check_out *o) { return check_is_float(o->t.dtype) && o->t.dtype.bits >= 16 && !o->number; }

static bool same_shapes(const check_outs *a, const check_outs *b)
{
    bool same = a->n == b->n;
    for (size_t k = 0; k < a->n && same; k++)
        same = a->of[k].slot == b->of[k].slot && a->of[k].t.ndim == b->of[k].t.ndim &&
            !memcmp(a->of[k].dims, b->of[k].dims, sizeof *a->of[k].dims * (size_t)a->of[k].t.ndim) &&
            is_real(&a->of[k]) == is_real(&b->of[k]);
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

/* ---- Narrow and wide ------------------------------------------------------------------------------------------------------ */

static void compare_with_wider(check_job *job, const check_case *c)
{
    static check_case wide;
    static check_outs found, expected, up, down;
    static uint32_t jumps[CHECK_RESULTS + CHECK_TENSORS]; /* in how many cases a result was seen to jump */
    static uint32_t different, tried;
    char where[200];
    double unit;
    const uint32_t needed = job->result->cases ? MIN_DIFFERENT : 1; /* 1: it is being made smaller */
    if (!widen(job->op, c, &wide, &unit) || (job->result->cases && tried++ >= MAX_CASES) ||
        !call_and_take(job, job->row, c, c, 0, &found) || !call_and_take(job, &any_row, &wide, c, 0, &expected) ||
        !call_and_take(job, &any_row, &wide, c, unit, &up) || !call_and_take(job, &any_row, &wide, c, unit / 4, &down) ||
        !same_shapes(&found, &expected) || !same_shapes(&expected, &up) || !same_shapes(&expected, &down))
        return;
    for (size_t k = 0; k < found.n; k++) {
        const check_out *a = &found.of[k], *b = &expected.of[k];
        const double largest = fmax(check_out_largest(a), check_out_largest(b)), last = fmax(unit, check_unit(a->t.dtype));
        const int64_t n = dv_numel(&a->t);
        const check_tolerance t = check_tolerance_of(job->op, c, a->t.dtype, n, true);
        const double numbers = largest_real(c), scale = fmax(largest, numbers);
        bool jump = false;
        if (!is_real(a))
            continue;
        for (int64_t i = 0; i < n && !jump; i++) {
            const double moved = fmax(fabs(check_out_number(&up.of[k], i, 0) - check_out_number(b, i, 0)),
                fabs(check_out_number(&down.of[k], i, 0) - check_out_number(b, i, 0)));
            jump = !(moved <= JUMP * last * scale);
        }
        jumps[k] += jump;
        for (int64_t i = 0; i < n && !jump && jumps[k] < MIN_DIFFERENT; i++) {
            const double x = check_out_number(a, i, 0), y = check_out_number(b, i, 0);
            const double moved = fmax(fabs(check_out_number(&up.of[k], i, 0) - y), fabs(check_out_number(&down.of[k], i, 0) - y));
            const double allowed = t.atol + t.rtol * fabs(y) + UNITS * last * fmax(fabs(y), numbers) + UNITS * moved;
            if ((isfinite(x) && isfinite(y) && fabs(x - y) <= allowed) || (isnan(x) && isnan(y)) || x == y)
                continue;
            if (!isfinite(x) && !isfinite(y) && !isnan(x) == !isnan(y))
                continue;
            if (isinf(x) && fabs(y) + allowed > check_largest(a->t.dtype) && !signbit(x) == !signbit(y))
                continue; /* the narrow dtype has no such number */
            if (++different < needed)
                return;
            check_out_element(job->op, a, i, where, sizeof where);
            job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
            check_fail(job, "other dtype",
                "%s (%s) is %.9g, and with the same numbers in wider dtypes it is %.9g (%s); rounding explains %.3g", where,
                dv_dtype_name(a->t.dtype), x, y, dv_dtype_name(b->t.dtype), allowed);
            return;
        }
    }
}

/* ---- f64 ------------------------------------------------------------------------------------------------------------------ */

/* True if the case has real tensors and all of them are f64. */
static bool is_all_f64(const check_case *c)
{
    bool any = false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present || check_is_integer(t->dtype))
            continue;
        if (dv_dtype_key(t->dtype) != DV_DTYPE_f64)
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

/* What look_for_f32() changes: all tensors, or all numbers. */
enum changed { TENSORS, NUMBERS, CHANGED };

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
    enum { OUTS = CHECK_RESULTS + CHECK_TENSORS };
    static check_outs found, near, far;
    static int64_t roughs[CHANGED][OUTS], alls[CHANGED][OUTS];
    static uint32_t counts[CHANGED][OUTS], tries[CHANGED];
    int64_t *rough = roughs[what], *all = alls[what];
    uint32_t *cases = counts[what];
    const bool first = job->result->cases; /* else it is being made smaller */
    if (job->op->rtol > 0 || job->op->atol > 0 || !is_all_f64(c) || (first && tries[what] >= MAX_CASES) ||
        !call_changed(job, c, what, 0x1p-34, &near) || !call_changed(job, c, what, 0x1p-20, &far) ||
        !call_changed(job, c, what, 0, &found) || !same_shapes(&found, &near) || !same_shapes(&found, &far))
        return;
    tries[what]++;
    for (size_t k = 0; k < found.n; k++) {
        const check_out *o = &found.of[k];
        const int64_t n = dv_dtype_key(o->t.dtype) == DV_DTYPE_f64 && !o->number ? dv_numel(&o->t) : 0;
        const check_tolerance t = check_tolerance_of(job->op, c, o->t.dtype, n, true); /* what f64 itself loses */
        double most = 0;
        int64_t now = 0;
        for (int64_t i = 0; i < n; i++) {
            const double by = fabs(check_out_number(&far.of[k], i, 0) - check_out_number(o, i, 0));
            most = isfinite(by) ? fmax(most, by) : INFINITY;
        }
        if (!(most > 0) || most > 0x1p-10 * check_out_largest(o)) /* it is flat, or jumps, or nearly divides by zero */
            continue;
        for (int64_t i = 0; i < n; i++) {
            const double x = check_out_number(o, i, 0), by = check_out_number(&far.of[k], i, 0) - x,
                         small = check_out_number(&near.of[k], i, 0) - x;
            all[k] += fabs(by) > 0x1p-6 * most;
            now += fabs(by) > 0x1p-6 * most && fabs(by - 0x1p14 * small) > 0x1p-4 * most + 0x1p14 * (t.atol + t.rtol * fabs(x));
        }
        rough[k] += now;
        cases[k] += now > 0;
        if (!now || (first && (rough[k] < MIN_MOVED || cases[k] < MIN_DIFFERENT || 4 * rough[k] < all[k])))
            continue;
        job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
        check_fail(job, "f64 in f32",
            "%lld elements of %s %s (f64) do not follow when each %s changes by 2^-34 of it, as they do when by 2^-20: "
            "something is "
            "computed in f32",
            (long long)now, o->slot < job->op->nargs ? "argument" : "result", job->op->slots[o->slot].name,
            what == TENSORS ? "argument" : "number");
        return;
    }
}

/* Copies a case to `out` with positive numbers, whose sums grow: a narrow type loses the small terms of a long sum. False: the
 * case has no dim of LONG or more, or the contract does not accept positive numbers. */
static bool with_positive(const check_op *op, const check_case *c, check_case *out)
{
    enum { LONG = 256 };
    bool any = false;
    *out = *c;
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &out->tensors[i];
        for (int32_t d = 0; d < t->ndim; d++)
            any |= t->present && t->shape[d] >= LONG;
        if (!t->present || check_is_integer(t->dtype))
            continue;
        t->fill = CHECK_RANDOM;
        t->low = 0.25;
        t->high = 2;
    }
    return any && check_accepts(op, out);
}

void check_other_dtypes(check_job *job, const check_case *c)
{
    static check_case positive, wide, wider_still;
    double unit;
    if (job->op->random || !is_mild(c))
        return;
    compare_with_wider(job, c);
    if (job->result->outcome == CHECK_PASS && job->result->cases && with_positive(job->op, c, &positive)) {
        compare_with_wider(job, &positive);
        if (job->result->outcome != CHECK_PASS)
            check_in_hand(job, &positive);
    }
    const check_case *f64 = is_all_f64(c) ? c : NULL; /* or the same call in f64, if the row takes it */
    if (!f64 && job->result->cases && widen(job->op, c, &wide, &unit))
        f64 = is_all_f64(&wide) ? &wide : widen(job->op, &wide, &wider_still, &unit) ? &wider_still : NULL;
    for (int what = 0; f64 && what < CHANGED && job->result->outcome == CHECK_PASS; what++) {
        look_for_f32(job, f64, (enum changed)what);
        if (job->result->outcome != CHECK_PASS && f64 != c)
            check_in_hand(job, f64);
    }
}
