/* Arguments that fit together: what is wished for goes into a partial inference (dv_partial_set()), one part after the other, and
 * each narrows what the others can be. A wish that is refused gives way to another value. So a case follows its contract, however
 * the contract ties sizes, numbers and words together. */
#include <string.h>

#include "check.h"

enum { VALUE = -1, MOST_USED = 8 };

typedef struct fitter {
    const check_op *op;
    check_case *c;
    const check_case *from;
    const check_order *order; /* NULL: none */
    bool rest;                /* it is the turn of what is as in from */
    dv_partial *p;
    int64_t used[MOST_USED]; /* sizes, the last first: others are often equal, or divide them */
} fitter;

/* Is it the turn of this part of the case? */
static bool in_turn(const fitter *f, const void *wish, size_t size)
{
    return !f->from || !memcmp(wish, (const char *)f->from + ((const char *)wish - (const char *)f->c), size) == f->rest;
}
#define IN_TURN(f, wish) in_turn(f, wish, sizeof *(wish))

static dv_known known(const fitter *f, enum dv_partial_of of, size_t index, size_t element)
{
    dv_known k;
    dv_partial_get(f->p, of, index, element, &k); /* always of what there is */
    return k;
}

static bool is_exact(dv_range r) { return r.least == r.most; }
static dv_range exactly(int64_t i) { return (dv_range){ i, i, 1, 0 }; }

/* The next multiple, if there is one: rather two groups than none. */
static int64_t nearest(dv_range r, int64_t i)
{
    if (r.step >= 8 && i > 1 && i < r.step && !r.rest && r.most / 3 >= r.step) /* several multiples */
        i = (1 + i % 3) * r.step;
    i = i < r.least ? r.least : i > r.most ? r.most : i;
    int64_t over = (i % r.step - r.rest) % r.step;
    over += over < 0 ? r.step : 0;
    return !over ? i : i < r.most ? i - over + r.step : i - over;
}

/* ---- One part -------------------------------------------------------------------------------------------------------------- */

/* An integer, or one of several sizes. False: nothing that was tried is possible. */
static bool fit(fitter *f, enum dv_partial_of of, size_t index, size_t element, int dim, int64_t most, int64_t *wish)
{
    const dv_known k = known(f, of, index, element);
    dv_range r = dim == VALUE ? k.value : k.sizes[dim];
    int64_t tries[MOST_USED + 6] = { *wish };
    dv_known one = dv_unknown();
    if (!k.present.most)
        return true;
    r.most = r.most < most ? r.most : most;
    memcpy(tries + 1, f->used, sizeof f->used);
    memcpy(tries + 1 + MOST_USED, (int64_t[]){ 1, 0, 2, r.least, r.most }, 5 * sizeof *tries);
    for (size_t i = 0; i < sizeof tries / sizeof *tries && r.least <= r.most; i++) {
        const int64_t value = nearest(r, tries[i]);
        bool again = false;
        for (size_t earlier = 0; earlier < i; earlier++)
            again |= nearest(r, tries[earlier]) == value;
        *(dim == VALUE ? &one.value : &one.sizes[dim]) = exactly(value);
        if (again || (!is_exact(r) && dv_partial_set(f->p, of, index, element, &one)))
            continue;
        *wish = value;
        if (dim != VALUE || of == DV_PARTIAL_NAME) {
            memmove(f->used + 1, f->used, sizeof f->used - sizeof *f->used);
            f->used[0] = value;
        }
        return true;
    }
    return false;
}

/* How many dims or elements there are. */
static bool fit_count(fitter *f, enum dv_partial_of of, size_t index, size_t element, uint32_t *wish)
{
    int64_t n = *wish;
    const bool fits = fit(f, of, index, element, VALUE, CHECK_DIMS, &n);
    *wish = (uint32_t)n;
    return fits;
}

static bool fit_present(fitter *f, size_t slot, bool *wish)
{
    dv_known one = dv_unknown();
    one.present = known(f, DV_PARTIAL_ARGUMENT, slot, 0).present;
    if (!is_exact(one.present)) {
        one.present = exactly(*wish);
        if (dv_partial_set(f->p, DV_PARTIAL_ARGUMENT, slot, 0, &one)) {
            one.present = exactly(!*wish);
            if (dv_partial_set(f->p, DV_PARTIAL_ARGUMENT, slot, 0, &one))
                return false;
        }
    }
    *wish = one.present.least;
    return true;
}

static bool fit_dtype(fitter *f, enum dv_partial_of of, size_t index, size_t element, dv_dtype *wish)
{
    static const uint32_t all[] = {
#define KEY(name, ...) DV_DTYPE_##name,
        DV_DTYPES(KEY)
#undef KEY
    };
    const size_t n = sizeof all / sizeof *all, first = (size_t)f->c->number % n;
    dv_known k = known(f, of, index, element);
    if (!k.present.most || k.dtype.bits) {
        *wish = k.dtype.bits ? k.dtype : *wish;
        return true;
    }
    k = dv_unknown();
    k.dtype = *wish;
    for (size_t i = 0; i <= n && dv_partial_set(f->p, of, index, element, &k); i++) {
        if (i == n)
            return false;
        k.dtype = f->c->names.dtypes[0]; /* several are often the same */
        if (i || !k.dtype.bits)
            k.dtype = dv_dtype_from_key(all[(f->c->number & 1 ? first + i : first + n - i) % n]);
    }
    *wish = k.dtype;
    return true;
}

static bool fit_string(fitter *f, size_t slot, check_value *v)
{
    const check_literals *literals = &f->op->literals[slot];
    dv_known one = dv_unknown();
    one.string = dv_from_string(v->string).as.s;
    for (size_t i = 0; dv_partial_set(f->p, DV_PARTIAL_ARGUMENT, slot, 0, &one); i++) {
        while (i < literals->n && literals->of[i]->kind != CHECK_TEXT)
            i++;
        if (i >= literals->n)
            return false;
        one.string = dv_from_string(literals->of[i]->text).as.s;
    }
    if (one.string.data != v->string)
        snprintf(v->string, sizeof v->string, "%s", one.string.data);
    return true;
}

/* ---- The parts of a case, in turn ------------------------------------------------------------------------------------------ */

static bool fit_words(fitter *f)
{
    bool fits = true;
    for (size_t i = 0; i < f->c->nargs && fits; i++) {
        check_value *v = &f->c->args[i];
        int64_t b = v->as.b;
        if (v->type == DV_VALUE_TENSOR) {
            fits = fit_present(f, i, &f->c->tensors[v->first].present);
        } else if (v->type == DV_VALUE_STRING && f->op->literals[i].read) {
            fits = fit_string(f, i, v);
        } else if (v->type == DV_VALUE_BOOL && f->op->literals[i].read) {
            fits = fit(f, DV_PARTIAL_ARGUMENT, i, 0, VALUE, 1, &b);
            v->as.b = b != 0;
        }
    }
    return fits;
}

static bool fit_lengths(fitter *f)
{
    bool fits = true;
    for (size_t i = 0; i < f->c->nargs && fits; i++) {
        uint32_t n = f->c->args[i].count;
        if (f->c->args[i].type == DV_VALUE_TENSORS && (fits = fit_count(f, DV_PARTIAL_ARGUMENT, i, 0, &n)))
            check_set_count(f->c, i, n);
    }
    return fits;
}

static bool fit_dtypes(fitter *f)
{
    bool fits = true;
    for (size_t k = 0; k < f->op->nnames && fits; k++) {
        const check_name *name = &f->op->names[k];
        if (name->kind == CHECK_NAME_DTYPE)
            fits = fit_dtype(f, DV_PARTIAL_NAME, name->index, 0, &f->c->names.dtypes[name->at]);
    }
    return fits;
}

static bool names_in_turn(const fitter *f) { return !f->from || !f->rest; }

static bool fit_rank(fitter *f, const check_name *name)
{
    check_shape *run = &f->c->names.runs[name->at];
    return name->kind != CHECK_NAME_RUN || !(IN_TURN(f, &run->n) || IN_TURN(f, &run->d)) ||
        fit_count(f, DV_PARTIAL_NAME, name->index, 0, (uint32_t *)&run->n);
}

static bool fit_sizes(fitter *f, const check_name *name)
{
    bool fits = true;
    int64_t *size = check_name_size(name, f->c);
    const bool run = name->kind == CHECK_NAME_RUN;
    const int32_t n = run ? f->c->names.runs[name->at].n : 1;
    for (int32_t d = 0; size && d < n && fits; d++)
        if (IN_TURN(f, &size[d]))
            fits = fit(f, DV_PARTIAL_NAME, name->index, 0, run ? d : VALUE, INT64_MAX, &size[d]);
    return fits;
}

static bool fit_names(fitter *f, bool (*part)(fitter *, const check_name *))
{
    bool fits = true;
    for (size_t k = 0; k < f->op->nnames && fits && names_in_turn(f); k++)
        fits = part(f, &f->op->names[k]);
    return fits;
}

/* The names that come first. */
static bool fit_first(fitter *f)
{
    bool fits = true;
    for (size_t k = 0; k < 2 && f->order && fits; k++)
        fits = !f->order->names[k] || fit_rank(f, f->order->names[k]);
    for (size_t k = 0; k < 2 && f->order && fits; k++)
        fits = !f->order->names[k] || fit_sizes(f, f->order->names[k]);
    return fits;
}

static bool fit_numbers(fitter *f)
{
    bool fits = true;
    for (size_t i = 0; i < f->c->nargs && fits; i++) {
        check_value *v = &f->c->args[i];
        if (!f->op->literals[i].read)
            continue;
        if (v->type == DV_VALUE_INT && IN_TURN(f, &v->as.i))
            fits = fit(f, DV_PARTIAL_ARGUMENT, i, 0, VALUE, INT64_MAX, &v->as.i);
        if (v->type == DV_VALUE_INTS)
            fits = fit_count(f, DV_PARTIAL_ARGUMENT, i, 0, &v->count);
        for (uint32_t k = 0; v->type == DV_VALUE_INTS && k < v->count && fits; k++)
            if (IN_TURN(f, &v->ints[k]))
                fits = fit(f, DV_PARTIAL_ARGUMENT, i, 0, (int)k, INT64_MAX, &v->ints[k]);
    }
    return fits;
}

/* What the names have left open of tensors: dtypes, then ranks, or sizes. */
static bool fit_tensors(fitter *f, bool sizes)
{
    bool fits = true;
    for (size_t i = 0; i < f->c->ntensors && fits; i++) {
        check_tensor *t = &f->c->tensors[i];
        const size_t slot = check_tensor_argument(f->c, i), element = i - f->c->args[slot].first;
        if (!t->present)
            continue;
        if (!sizes)
            fits = fit_dtype(f, DV_PARTIAL_ARGUMENT, slot, element, &t->dtype);
        if (!sizes && fits && (f->rest || IN_TURN(f, &t->ndim) || IN_TURN(f, &t->shape)))
            fits = fit_count(f, DV_PARTIAL_ARGUMENT, slot, element, (uint32_t *)&t->ndim);
        for (int32_t d = 0; d < t->ndim && fits && sizes; d++)
            if (IN_TURN(f, &t->shape[d]))
                fits = fit(f, DV_PARTIAL_ARGUMENT, slot, element, d, INT64_MAX, &t->shape[d]);
    }
    return fits;
}

/* ---- All of them ----------------------------------------------------------------------------------------------------------- */

/* A default is a wish like any other: here its value, ... */
check_value check_default_of(const check_op *op, size_t slot, const check_value *v)
{
    const dv_value *d = &op->slots[slot].default_value;
    check_value is = *v;
    if (v->type != DV_VALUE_DEFAULT || !op->literals[slot].read)
        return is;
    if (d->type == DV_VALUE_INT)
        is.as.i = d->as.i;
    else if (d->type == DV_VALUE_BOOL)
        is.as.b = d->as.b;
    else if (d->type == DV_VALUE_STRING && d->as.s.size < CHECK_STRING)
        snprintf(is.string, sizeof is.string, "%s", d->as.s.data);
    else
        return is;
    is.type = d->type;
    return is;
}

/* ... and the default again, if it has stayed. */
static void keep_default(const check_op *op, size_t slot, const check_value *was, check_value *v)
{
    const check_value d = check_default_of(op, slot, was);
    if (was->type == DV_VALUE_DEFAULT && d.as.i == v->as.i && !strcmp(d.string, v->string))
        *v = *was;
}

/* What is not known of the arguments is unknown. lists: of lists, too. */
static bool begin_unknown(fitter *f, bool lists)
{
    static check_values v;
    check_values_make(&v, f->c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < f->c->ntensors; i++)
        v.tensors[i] = (dv_tensor){ .ndim = -1 };
    for (size_t i = 0; i < f->c->nargs; i++) {
        const uint32_t type = f->c->args[i].type;
        if (type == DV_VALUE_TENSOR || (type == DV_VALUE_TENSORS && lists) ||
            (f->op->literals[i].read &&
                (type == DV_VALUE_INT || type == DV_VALUE_BOOL || type == DV_VALUE_STRING || type == DV_VALUE_INTS)))
            v.values[i] = (dv_value){ .type = DV_VALUE_UNKNOWN };
    }
    dv_partial_free(f->p);
    f->p = NULL;
    return !dv_partial_new(f->op->op, v.values, f->c->nargs, &f->p);
}

static bool begin(fitter *f, bool lists) { return begin_unknown(f, lists) && fit_words(f); }

static bool begin_with_lists(fitter *f)
{
    bool any = false;
    for (size_t i = 0; i < f->c->nargs; i++)
        any |= f->c->args[i].type == DV_VALUE_TENSORS;
    return begin(f, any) && (!any || (fit_lengths(f) && begin(f, false)));
}

/* Sizes before numbers give way to them, or the other way round. */
static bool fit_all(fitter *f)
{
    const bool early = f->from || (f->order && f->order->numbers) || f->c->number >> 1 & 1;
    for (f->rest = !f->from;; f->rest = true) {
        if (!fit_first(f) || !fit_names(f, fit_rank) || !fit_tensors(f, false) || (early && !fit_numbers(f)) ||
            !fit_names(f, fit_sizes) || (!early && !fit_numbers(f)) || !fit_tensors(f, true))
            return false;
        if (f->rest)
            return true;
    }
}

static bool read_shape(const dv_known *k, int32_t *n, int64_t *sizes)
{
    bool all = is_exact(k->value) && k->value.least <= CHECK_DIMS;
    *n = all ? (int32_t)k->value.least : 0;
    for (int32_t d = 0; d < CHECK_DIMS; d++) {
        sizes[d] = d < *n ? k->sizes[d].least : 0;
        all &= d >= *n || is_exact(k->sizes[d]);
    }
    return all;
}

static bool read_all(fitter *f)
{
    bool all = true;
    for (size_t k = 0; k < f->op->nnames; k++) {
        const check_name *name = &f->op->names[k];
        const dv_known is = known(f, DV_PARTIAL_NAME, name->index, 0);
        f->c->names.bound[k] = is.present.most;
        if (!is.present.most)
            continue;
        if (name->kind == CHECK_NAME_RUN)
            read_shape(&is, &f->c->names.runs[name->at].n, f->c->names.runs[name->at].d);
        else if (name->kind == CHECK_NAME_DIM)
            f->c->names.dims[name->at] = is.value.least;
        else if (is.dtype.bits)
            f->c->names.dtypes[name->at] = is.dtype;
    }
    const check_json *taken = check_json_get(f->op->program, "taken"), *group = taken ? taken->child : NULL;
    for (size_t g = 0; group && g < CHECK_GROUPS; g++, group = group->next) {
        size_t k = 0;
        for (const check_json *x = group->child; x && known(f, DV_PARTIAL_CASE, g, k).value.least != 1; x = x->next)
            k++;
        f->c->names.taken[g] = (int32_t)k;
    }
    for (size_t i = 0; i < f->c->ntensors; i++) {
        check_tensor *t = &f->c->tensors[i];
        const size_t slot = check_tensor_argument(f->c, i);
        const dv_known is = known(f, DV_PARTIAL_ARGUMENT, slot, i - f->c->args[slot].first);
        all &= !t->present || read_shape(&is, &t->ndim, t->shape);
    }
    return all;
}

void check_narrow(check_tensor *t, dv_range by)
{
    const double least = (double)by.least, most = (double)by.most;
    if (least > most) /* no element is allowed: the contract refuses the case, or the tensor is empty */
        return;
    t->low = t->low < least ? least : t->low > most ? most : t->low;
    t->high = t->high > most ? most : t->high < least ? least : t->high;
}

static bool fit_case(fitter f, dv_range *elements)
{
    const check_op *op = f.op;
    check_case *c = f.c;
    check_value was[CHECK_ARGS];
    memcpy(was, c->args, c->nargs * sizeof *was);
    for (size_t i = 0; i < c->nargs; i++)
        c->args[i] = check_default_of(op, i, &was[i]);
    const bool fits = !op->contract || (begin_with_lists(&f) && fit_dtypes(&f) && fit_all(&f) && read_all(&f));
    for (size_t i = 0; i < c->nargs; i++)
        keep_default(op, i, &was[i], &c->args[i]);
    check_follow_spans(c);
    for (size_t i = 0; i < c->ntensors && fits && op->contract; i++) {
        const size_t slot = check_tensor_argument(c, i);
        const dv_range r = known(&f, DV_PARTIAL_VALUES, slot, i - c->args[slot].first).value;
        if (elements)
            elements[i] = r;
        else
            check_narrow(&c->tensors[i], r);
    }
    dv_partial_free(f.p);
    return fits;
}

void check_free(const check_op *op, check_case *c, bool *shapes, bool *dtypes)
{
    fitter f = { .op = op, .c = c };
    const bool fits = op->contract && begin_with_lists(&f) && fit_dtypes(&f) && fit_names(&f, fit_rank) && fit_numbers(&f) &&
        fit_names(&f, fit_sizes);
    for (size_t i = 0; i < c->ntensors; i++) {
        const size_t slot = check_tensor_argument(c, i);
        check_shape ignored;
        dv_known is = dv_unknown();
        if (fits)
            is = known(&f, DV_PARTIAL_ARGUMENT, slot, i - c->args[slot].first);
        shapes[i] = fits ? is.present.most && !read_shape(&is, &ignored.n, ignored.d) : !op->contract;
        dtypes[i] = fits ? is.present.most && !is.dtype.bits : !op->contract;
        c->tensors[i].dtype = is.dtype.bits ? is.dtype : c->tensors[i].dtype;
    }
    dv_partial_free(f.p);
}

dv_partial *check_unknown(const check_op *op, size_t slot, const check_value *but)
{
    static check_case c;
    fitter f = { .op = op, .c = &c };
    memset(&c, 0, sizeof c);
    c.nargs = (uint32_t)op->nargs;
    for (size_t i = 0; i < c.nargs; i++) { /* all unknown that core can leave unknown */
        const dv_slot_info *s = &op->slots[i];
        const bool list = s->type == DV_FIELD_TENSORS;
        c.args[i] = (check_value){ .type = list ? DV_VALUE_TENSORS : DV_VALUE_DEFAULT };
        if (s->type == DV_FIELD_TENSOR)
            c.args[i] = (check_value){ .type = DV_VALUE_TENSOR, .first = c.ntensors++, .count = 1 };
        else if (op->literals[i].read && !list)
            c.args[i].type = s->type == DV_FIELD_BOOL ? DV_VALUE_BOOL
                : s->type == DV_FIELD_STRING          ? DV_VALUE_STRING
                : s->type == DV_FIELD_INTS            ? DV_VALUE_INTS
                : s->type == DV_FIELD_INT             ? DV_VALUE_INT
                                                      : DV_VALUE_DEFAULT;
        else if (but && i == slot)
            c.args[i] = *but;
    }
    return begin_unknown(&f, true) ? f.p : NULL;
}

bool check_fit(const check_op *op, check_case *c, const check_case *from, dv_range *elements)
{
    return fit_case((fitter){ .op = op, .c = c, .from = from }, elements);
}

bool check_fit_in_order(const check_op *op, check_case *c, const check_order *order, dv_range *elements)
{
    return fit_case((fitter){ .op = op, .c = c, .order = order }, elements);
}

void check_set_count(check_case *c, size_t list, uint32_t n)
{
    check_value *v = &c->args[list];
    const uint32_t room = CHECK_TENSORS - c->ntensors, more = n > v->count ? n - v->count : 0;
    const uint32_t wanted = more > room ? v->count + room : n, end = v->first + v->count;
    const check_tensor like = c->tensors[v->count ? end - 1 : v->first < CHECK_TENSORS ? v->first : 0];
    memmove(&c->tensors[v->first + wanted], &c->tensors[end], sizeof *c->tensors * (c->ntensors - end));
    for (uint32_t k = v->count; k < wanted; k++)
        c->tensors[v->first + k] = like;
    for (size_t i = 0; i < c->nargs; i++)
        if ((c->args[i].type == DV_VALUE_TENSOR || c->args[i].type == DV_VALUE_TENSORS) && i != list && c->args[i].first >= end)
            c->args[i].first = c->args[i].first - v->count + wanted;
    c->ntensors = c->ntensors - v->count + wanted;
    v->count = wanted;
}
