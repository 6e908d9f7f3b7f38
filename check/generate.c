/* Whether a case is accepted, or too large; and cases made from another: with a tensor of more than 2^31 elements,
 * and just outside the contract. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

int64_t check_most_elements = CHECK_MOST_ELEMENTS;

/* ---- What dv_infer() says -------------------------------------------------------------------------------------------------- */

static bool small_enough(int32_t ndim, const int64_t *shape)
{
    double n = 1;
    for (int32_t d = 0; d < ndim; d++)
        n *= (double)shape[d];
    return n <= (double)check_most_elements;
}

static bool is_small(const check_case *c)
{
    bool small = true;
    for (size_t i = 0; i < c->ntensors; i++)
        small &= !c->tensors[i].present || small_enough(c->tensors[i].ndim, c->tensors[i].shape);
    return small;
}

/* The contract's conditions on contents are checked by a check-mode call that asks for a row that does not exist, so no kernel
 * runs.
 */
static bool contents_hold(const check_op *op, const check_case *c)
{
    static const check_row nowhere = { .name = "", .index = INT32_MAX };
    static check_call call;
    if (!op->looks_inside)
        return true;
    call = (check_call){ .op = op, .row = &nowhere, .flags = DV_HOST_CHECK };
    check_call_run(&call, c);
    return !call.status || call.not_this_row;
}

static enum check_verdict too_large(const check_op *op)
{
    dv_fail(DV_EINVAL, "%s: a tensor has more than %lld elements (--max-elements)", op->name, (long long)check_most_elements);
    return CHECK_TOO_LARGE;
}

enum check_verdict check_judge(const check_op *op, const check_case *c)
{
    static dv_result_spec specs[CHECK_RESULTS];
    static check_values v;
    bool any = !c->ntensors;
    for (size_t i = 0; i < c->ntensors; i++)
        any |= c->tensors[i].present;
    if (!any) { /* without a tensor there is no device */
        dv_fail(DV_EINVAL, "%s: all tensors are None", op->name);
        return CHECK_UNFIT;
    }
    if (!is_small(c))
        return too_large(op);
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(op->op, v.values, c->nargs, specs, op->nresults))
        return CHECK_REFUSED;
    for (size_t r = 0; r < op->nresults; r++)
        if (specs[r].ndim >= 0 && !small_enough(specs[r].ndim, specs[r].shape))
            return too_large(op);
    return contents_hold(op, c) ? CHECK_ACCEPTED : CHECK_UNFIT;
}

bool check_is_stray(const check_op *op, const check_case *c)
{
    bool numbers = false;
    for (size_t i = 0; i < op->nargs; i++)
        numbers |= op->literals[i].read && (op->slots[i].type == DV_FIELD_INT || op->slots[i].type == DV_FIELD_INTS);
    return !numbers && check_judge(op, c) == CHECK_REFUSED && strstr(dv_last_error(), "expected a view inside");
}

bool check_accepts(const check_op *op, const check_case *c) { return check_judge(op, c) == CHECK_ACCEPTED; }

/* ---- More than 2^31 elements ---- */

/* Elements of the largest tensor that is larger than in the other case. */
static int64_t largest_grown(const check_case *from, const check_case *to)
{
    int64_t most = 0;
    for (size_t i = 0; i < to->ntensors; i++)
        if (to->tensors[i].present && check_numel(&to->tensors[i]) > check_numel(&from->tensors[i]) &&
            check_numel(&from->tensors[i]) > most)
            most = check_numel(&from->tensors[i]);
    return most;
}

/* Sets all dims but the first of this name to one size where they are larger (least false) or smaller (true). False: nothing
 * changes, or the contract refuses it. */
static bool set_others(const check_op *op, check_case *c, uint32_t name, int64_t to, bool least)
{
    static check_case from;
    bool changed = false;
    from = *c;
    for (uint32_t i = 0; i < op->nnames && check_name_size(&op->names[i], c); i++) {
        int64_t *const size = check_name_size(&op->names[i], c);
        const int32_t n = op->names[i].kind == CHECK_NAME_RUN ? c->names.runs[op->names[i].at].n : 1;
        for (int32_t d = i == name; d < n; d++) {
            const bool change = least ? size[d] > 0 && size[d] < to : size[d] > to;
            changed |= change;
            size[d] = change ? to : size[d];
        }
    }
    return changed && check_fit(op, c, &from, NULL);
}

bool check_enlarge(const check_op *op, check_case *c, uint32_t k, bool *wide, bool *end)
{
    static check_case from, one, two;
    static dv_result_spec specs[CHECK_RESULTS];
    static check_values v;
    enum { SMALL_INDEX = 7, SMALL_SIZE = 4 };
    const int64_t beyond = INT64_C(3) << 30, most = INT64_C(1) << 33;
    const uint32_t name = k / 4, turn = k % 4;
    int64_t *size = name < op->nnames ? check_name_size(&op->names[name], c) : NULL;
    bool numbers = false, integers = false;
    *end = !size;
    *wide = false;
    if (!size || !*size || (turn == 2 && !set_others(op, c, name, 1, false)))
        return false;
    if (turn == 3)
        set_others(op, c, name, SMALL_SIZE, true);
    one = two = from = *c;
    *check_name_size(&op->names[name], &one) = 1;
    *check_name_size(&op->names[name], &two) = 2;
    if (!check_fit(op, &one, &from, NULL) || !check_fit(op, &two, &from, NULL) || !largest_grown(&one, &two))
        return false;
    *size = (beyond / largest_grown(&one, &two) + 64) / 64 * 64; /* often a multiple of something is wanted */
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        t->layout = CHECK_CONTIGUOUS;
        integers |= t->dtype.code == 0 && t->dtype.bits >= 32;
        if (t->dtype.code == 0 && t->dtype.bits >= 32) { /* indices, maybe */
            t->low = 0;
            t->high = turn == 3 ? SMALL_INDEX : t->dtype.bits == 32 && *size > INT32_MAX ? INT32_MAX : (double)(*size - 1);
            t->fill = turn == 3 ? CHECK_RANDOM : t->fill;
        }
    }
    for (size_t i = 0; i < c->nargs && turn == 1; i++)
        if (c->args[i].type == DV_VALUE_INT && op->literals[i].read) {
            c->args[i].as.i = *size - 1;
            numbers = true;
        }
    if ((turn == 1 && !numbers) || (turn == 3 && !integers) || !check_fit(op, c, &from, NULL))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const bool written = op->slots[check_tensor_argument(c, i)].flags & DV_SLOT_WRITES;
        if (c->tensors[i].present && check_numel(&c->tensors[i]) > most)
            return false;
        *wide |= written && c->tensors[i].present && check_numel(&c->tensors[i]) > INT32_MAX;
    }
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(op->op, v.values, c->nargs, specs, op->nresults))
        return false;
    for (size_t r = 0; r < op->nresults; r++) {
        double n = specs[r].ndim < 0 ? 0 : 1;
        for (int32_t d = 0; d < specs[r].ndim; d++)
            n *= (double)specs[r].shape[d];
        if (n > (double)most)
            return false;
        *wide |= n > INT32_MAX;
    }
    return true;
}

/* ---- Just outside ---- */

typedef struct breaker {
    check_case *c;
    char *what;
    size_t size;
    uint32_t left;
} breaker;

/* True if this change is the requested one. */
static bool turn(breaker *b) { return b->left-- == 0; }

static bool break_tensor(breaker *b, const check_op *op, size_t i)
{
    check_tensor *t = &b->c->tensors[i];
    const size_t slot = check_tensor_argument(b->c, i);
    const char *name = op->slots[slot].name;
    if (!t->present)
        return false;
    for (int32_t d = 0; d < t->ndim; d++)
        if (turn(b)) {
            t->shape[d]++;
            snprintf(b->what, b->size, "dim %d of '%s' is one larger", (int)d, name);
            return true;
        }
    if (t->ndim < CHECK_DIMS && turn(b)) {
        t->shape[t->ndim++] = 2;
        snprintf(b->what, b->size, "'%s' has one dim more", name);
        return true;
    }
    if (t->ndim && turn(b)) {
        t->ndim--;
        snprintf(b->what, b->size, "'%s' has one dim less", name);
        return true;
    }
    if (turn(b)) {
        dv_dtype_parse(dv_dtype_key(t->dtype) == DV_DTYPE_u16 ? "i16" : "u16", &t->dtype);
        snprintf(b->what, b->size, "'%s' has another dtype", name);
        return true;
    }
    if (b->c->args[slot].type == DV_VALUE_TENSOR && turn(b)) {
        t->present = false;
        snprintf(b->what, b->size, "'%s' is None", name);
        return true;
    }
    return false;
}

static bool break_argument(breaker *b, const check_op *op, size_t slot)
{
    static const int64_t numbers[] = { -1, 0, 1, 7, INT64_C(1) << 40, INT64_MIN };
    check_value *v = &b->c->args[slot];
    const char *name = op->slots[slot].name;
    const bool is_int = op->slots[slot].type == DV_FIELD_INT;
    for (size_t k = 0; is_int && k < sizeof numbers / sizeof *numbers; k++)
        if (turn(b)) {
            memset(v, 0, sizeof *v);
            v->type = DV_VALUE_INT;
            v->as.i = numbers[k];
            snprintf(b->what, b->size, "'%s' is %lld", name, (long long)numbers[k]);
            return true;
        }
    for (int64_t by = -1; is_int && v->type == DV_VALUE_INT && by <= 1; by += 2)
        if (v->as.i < INT64_MAX && v->as.i > INT64_MIN && turn(b)) {
            v->as.i += by;
            snprintf(b->what, b->size, "'%s' is %lld", name, (long long)v->as.i);
            return true;
        }
    if (op->slots[slot].type == DV_FIELD_STRING && turn(b)) {
        *v = (check_value){ .type = DV_VALUE_STRING, .string = "no such word" };
        snprintf(b->what, b->size, "'%s' is \"no such word\"", name);
        return true;
    }
    return false;
}

bool check_break(const check_op *op, const check_case *accepted, uint32_t i, check_case *out, char *what, size_t size)
{
    breaker b = { out, what, size, i };
    *out = *accepted;
    out->broken = true;
    for (size_t t = 0; t < out->ntensors; t++)
        if (break_tensor(&b, op, t))
            return true;
    for (size_t a = 0; a < out->nargs; a++)
        if (break_argument(&b, op, a))
            return true;
    return false;
}

bool check_forbid(const check_op *op, const check_case *accepted, check_case *out)
{
    for (size_t i = 0; i < accepted->ntensors && op->looks_inside; i++) {
        *out = *accepted;
        check_tensor *t = &out->tensors[i];
        if (!t->present || !check_is_integer(t->dtype) || t->dtype.code == 6)
            continue;
        t->fill = CHECK_LAST;
        t->high = ldexp(1, t->dtype.bits > 32 ? 40 : t->dtype.bits - 2);
        out->broken = true;
        if (check_judge(op, out) == CHECK_UNFIT)
            return true;
    }
    return false;
}
