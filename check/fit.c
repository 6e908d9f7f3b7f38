/* Makes arguments that fit together, by partial inference (dv_partial): constraint propagation over the contract.
 *
 * Wanted values are set one after the other with dv_partial_set(). Each narrows what the others can be. A wanted value that core
 * refuses is replaced by another one. So a case satisfies its contract, however the contract ties sizes, numbers and strings
 * together. */
#include <string.h>

#include "check.h"

enum { NO_DIM = -1, MAX_RECENT_SIZES = 8 };

typedef struct case_fitter {
    const check_op *op;
    check_case *c;
    const check_case *from;
    const check_fit_order *order; /* NULL: none */
    bool fits_unchanged;          /* true: this pass sets values that equal those in `from`; false: the changed ones */
    dv_partial *p;
    int64_t recent_sizes[MAX_RECENT_SIZES]; /* recently set sizes, the last first; other sizes are often equal to them, or divide
                                               them */
} case_fitter;

/* True if a part of the case (address and size in bytes) is to be set in the current pass. Parts that differ from `from` are set
 * in the first pass, the others in the second. Without `from` all are set in one pass. */
static bool fit_is_set_in_this_pass(const case_fitter *f, const void *part, size_t size)
{
    return !f->from ||
        !memcmp(part, (const char *)f->from + ((const char *)part - (const char *)f->c), size) == f->fits_unchanged;
}
#define FIT_IS_SET_IN_THIS_PASS(f, wish) fit_is_set_in_this_pass(f, wish, sizeof *(wish))

/* Returns what the partial inference knows of one name or argument. element: index in a list of tensors. */
static dv_partial_spec fit_get_known(const case_fitter *f, enum dv_partial_of kind, size_t index, size_t element)
{
    dv_partial_spec k;
    dv_partial_get(f->p, kind, index, element, &k); /* cannot fail for existing parts */
    return k;
}

/* True if a range contains exactly one value. */
static bool fit_is_exact(dv_range r) { return r.least == r.most; }
/* Returns the range that contains only i. */
static dv_range fit_make_exact(int64_t i) { return (dv_range){ i, i, 1, 0 }; }

/* Returns the value in a range that is nearest to i. If the range has several multiples of a step and i is smaller than the step,
 * returns the first to third multiple instead. */
static int64_t fit_get_nearest_in_range(dv_range range, int64_t i)
{
    if (range.step >= 8 && i > 1 && i < range.step && !range.rest &&
        range.most / 3 >= range.step) /* the range has at least three multiples */
        i = (1 + i % 3) * range.step;
    i = i < range.least ? range.least : i > range.most ? range.most : i;
    int64_t over = (i % range.step - range.rest) % range.step;
    over += over < 0 ? range.step : 0;
    return !over ? i : i < range.most ? i - over + range.step : i - over;
}

/* ---- One part ---- */

/* Sets an int argument, a name's size, or size number `dim` of several, to *wanted_and_result or another possible value, which
 * *wanted_and_result receives. Returns false if no value that was tried is possible. */
static bool fit_try_set_int_or_size(
    case_fitter *f, enum dv_partial_of kind, size_t index, size_t element, int dim, int64_t max_value, int64_t *wanted_and_result)
{
    const dv_partial_spec k = fit_get_known(f, kind, index, element);
    dv_range r = dim == NO_DIM ? k.value : k.sizes[dim];
    int64_t tries[MAX_RECENT_SIZES + 6] = { *wanted_and_result };
    dv_partial_spec one = dv_partial_spec_unknown();
    if (!k.present.most)
        return true;
    if (kind == DV_PARTIAL_ARGUMENT)
        one.present = fit_make_exact(1); /* an argument whose int or size is set is not None */
    const bool is_known = fit_is_exact(r) && (fit_is_exact(k.present) || kind != DV_PARTIAL_ARGUMENT);
    r.most = r.most < max_value ? r.most : max_value;
    memcpy(tries + 1, f->recent_sizes, sizeof f->recent_sizes);
    memcpy(tries + 1 + MAX_RECENT_SIZES, (int64_t[]){ 1, 0, 2, r.least, r.most }, 5 * sizeof *tries);
    for (size_t i = 0; i < sizeof tries / sizeof *tries && r.least <= r.most; i++) {
        const int64_t value = fit_get_nearest_in_range(r, tries[i]);
        bool is_repeated = false;
        for (size_t earlier = 0; earlier < i; earlier++)
            is_repeated |= fit_get_nearest_in_range(r, tries[earlier]) == value;
        *(dim == NO_DIM ? &one.value : &one.sizes[dim]) = fit_make_exact(value);
        if (is_repeated || (!is_known && dv_partial_set(f->p, kind, index, element, &one)))
            continue;
        *wanted_and_result = value;
        if (dim != NO_DIM || kind == DV_PARTIAL_NAME) {
            memmove(f->recent_sizes + 1, f->recent_sizes, sizeof f->recent_sizes - sizeof *f->recent_sizes);
            f->recent_sizes[0] = value;
        }
        return true;
    }
    return false;
}

/* Sets the rank of a tensor or variadic dims, or the length of a list, to *wanted_and_result or another possible value, which
 * *wanted_and_result receives. Returns false if none is possible. */
static bool fit_try_set_rank_or_length(
    case_fitter *f, enum dv_partial_of kind, size_t index, size_t element, uint32_t *wanted_and_result)
{
    int64_t n = *wanted_and_result;
    const bool fits = fit_try_set_int_or_size(f, kind, index, element, NO_DIM, CHECK_MAX_DIMS, &n);
    *wanted_and_result = (uint32_t)n;
    return fits;
}

/* Sets whether a tensor is given or None, to *wanted_and_result or else the opposite, which *wanted_and_result receives. Returns
 * false if neither is possible. */
static bool fit_try_set_presence(case_fitter *f, size_t slot, bool *wanted_and_result)
{
    dv_partial_spec one = dv_partial_spec_unknown();
    one.present = fit_get_known(f, DV_PARTIAL_ARGUMENT, slot, 0).present;
    if (!fit_is_exact(one.present)) {
        one.present = fit_make_exact(*wanted_and_result);
        if (dv_partial_set(f->p, DV_PARTIAL_ARGUMENT, slot, 0, &one)) {
            one.present = fit_make_exact(!*wanted_and_result);
            if (dv_partial_set(f->p, DV_PARTIAL_ARGUMENT, slot, 0, &one))
                return false;
        }
    }
    *wanted_and_result = one.present.least;
    return true;
}

/* Sets a dtype to *wanted_and_result or another possible one, which *wanted_and_result receives. The case's plan_index selects
 * the order in which others are tried. Returns false if none is possible. */
static bool fit_try_set_dtype(case_fitter *f, enum dv_partial_of kind, size_t index, size_t element, dv_dtype *wanted_and_result)
{
    static const uint32_t all[] = {
#define KEY(name, ...) DV_DTYPE_##name,
        DV_DTYPES(KEY)
#undef KEY
    };
    const size_t n = sizeof all / sizeof *all, first = (size_t)f->c->plan_index % n;
    dv_partial_spec k = fit_get_known(f, kind, index, element);
    if (!k.present.most || k.dtype.bits) {
        *wanted_and_result = k.dtype.bits ? k.dtype : *wanted_and_result;
        return true;
    }
    k = dv_partial_spec_unknown();
    k.dtype = *wanted_and_result;
    for (size_t i = 0; i <= n && dv_partial_set(f->p, kind, index, element, &k); i++) {
        if (i == n)
            return false;
        k.dtype = f->c->names.dtypes[0]; /* the first dtype variable is tried first, because dtypes are often equal */
        if (i || !k.dtype.bits)
            k.dtype = dv_dtype_from_key(all[(f->c->plan_index & 1 ? first + i : first + n - i) % n]);
    }
    *wanted_and_result = k.dtype;
    return true;
}

/* Sets a string argument to its value, or else to one of the strings that the contract compares it with. Returns false if none is
 * possible. */
static bool fit_try_set_string(case_fitter *f, size_t slot, check_value *v)
{
    const check_literals *literals = &f->op->literals[slot];
    dv_partial_spec one = dv_partial_spec_unknown();
    one.string = dv_from_string(v->string).as.s;
    for (size_t i = 0; dv_partial_set(f->p, DV_PARTIAL_ARGUMENT, slot, 0, &one); i++) {
        while (i < literals->nequality_values && literals->equality_values[i]->kind != CHECK_JSON_STRING)
            i++;
        if (i >= literals->nequality_values)
            return false;
        one.string = dv_from_string(literals->equality_values[i]->text).as.s;
    }
    if (one.string.data != v->string)
        snprintf(v->string, sizeof v->string, "%s", one.string.data);
    return true;
}

/* ---- The parts of a case, in turn ---- */

/* Sets which tensors are None, and the strings and bools that the contract reads. Returns false if one has no possible value. */
static bool fit_try_set_presence_strings_bools(case_fitter *f)
{
    bool fits = true;
    for (size_t i = 0; i < f->c->nargs && fits; i++) {
        check_value *v = &f->c->args[i];
        int64_t b = v->type == DV_VALUE_BOOL && v->as.b;
        if (v->type == DV_VALUE_TENSOR) {
            fits = fit_try_set_presence(f, i, &f->c->tensors[v->first_tensor].present);
        } else if (v->type == DV_VALUE_STRING && f->op->literals[i].is_read) {
            fits = fit_try_set_string(f, i, v);
        } else if (v->type == DV_VALUE_BOOL && f->op->literals[i].is_read) {
            fits = fit_try_set_int_or_size(f, DV_PARTIAL_ARGUMENT, i, 0, NO_DIM, 1, &b);
            v->as.b = b != 0;
        }
    }
    return fits;
}

/* Sets the lengths of all lists of tensors. Returns false if one has no possible length. */
static bool fit_try_set_list_lengths(case_fitter *f)
{
    bool fits = true;
    for (size_t i = 0; i < f->c->nargs && fits; i++) {
        uint32_t n = f->c->args[i].count;
        if (f->c->args[i].type == DV_VALUE_TENSORS && (fits = fit_try_set_rank_or_length(f, DV_PARTIAL_ARGUMENT, i, 0, &n)))
            check_set_tensor_list_length(f->c, i, n);
    }
    return fits;
}

/* Sets all dtype variables of the contract. Returns false if one has no possible dtype. */
static bool fit_try_set_dtype_variables(case_fitter *f)
{
    bool fits = true;
    for (size_t k = 0; k < f->op->nnames && fits; k++) {
        const check_name *name = &f->op->names[k];
        if (name->kind == CHECK_NAME_DTYPE)
            fits = fit_try_set_dtype(f, DV_PARTIAL_NAME, name->register_index, 0, &f->c->names.dtypes[name->value_index]);
    }
    return fits;
}

/* True if names are set in the current pass. */
static bool fit_sets_names_in_this_pass(const case_fitter *f) { return !f->from || !f->fits_unchanged; }

/* Sets the rank of a name of variadic dims, if the name is one and it is its turn. Returns false if no rank is possible. */
static bool fit_try_set_variadic_rank(case_fitter *f, const check_name *name)
{
    check_shape *variadic_shape = &f->c->names.variadics[name->value_index];
    return name->kind != CHECK_NAME_VARIADIC ||
        !(FIT_IS_SET_IN_THIS_PASS(f, &variadic_shape->ndim) || FIT_IS_SET_IN_THIS_PASS(f, &variadic_shape->sizes)) ||
        fit_try_set_rank_or_length(f, DV_PARTIAL_NAME, name->register_index, 0, (uint32_t *)&variadic_shape->ndim);
}

/* Sets the size, or the sizes of the variadic dims, of a name, as far as it is their turn. Returns false if one has no possible
 * value. */
static bool fit_try_set_name_sizes(case_fitter *f, const check_name *name)
{
    bool fits = true;
    int64_t *size = check_name_find_sizes(name, f->c);
    const bool is_variadic = name->kind == CHECK_NAME_VARIADIC;
    const int32_t n = is_variadic ? f->c->names.variadics[name->value_index].ndim : 1;
    for (int32_t d = 0; size && d < n && fits; d++)
        if (FIT_IS_SET_IN_THIS_PASS(f, &size[d]))
            fits = fit_try_set_int_or_size(
                f, DV_PARTIAL_NAME, name->register_index, 0, is_variadic ? d : NO_DIM, INT64_MAX, &size[d]);
    return fits;
}

/* Calls fit_one() for each name if names are set in this pass. Returns false as soon as a call does. */
static bool fit_try_for_each_name(case_fitter *f, bool (*fit_one)(case_fitter *, const check_name *))
{
    bool fits = true;
    for (size_t k = 0; k < f->op->nnames && fits && fit_sets_names_in_this_pass(f); k++)
        fits = fit_one(f, &f->op->names[k]);
    return fits;
}

/* Sets ranks and sizes of the two names that f->order wants to be fixed first. Returns false if one has no possible value. */
static bool fit_try_set_names_of_order(case_fitter *f)
{
    bool fits = true;
    for (size_t k = 0; k < 2 && f->order && fits; k++)
        fits = !f->order->names[k] || fit_try_set_variadic_rank(f, f->order->names[k]);
    for (size_t k = 0; k < 2 && f->order && fits; k++)
        fits = !f->order->names[k] || fit_try_set_name_sizes(f, f->order->names[k]);
    return fits;
}

/* Sets the int arguments and lists of ints that the contract reads, as far as it is their turn. Returns false if one has no
 * possible value. */
static bool fit_try_set_ints(case_fitter *f)
{
    bool fits = true;
    for (size_t i = 0; i < f->c->nargs && fits; i++) {
        check_value *v = &f->c->args[i];
        if (!f->op->literals[i].is_read)
            continue;
        if (v->type == DV_VALUE_INT && FIT_IS_SET_IN_THIS_PASS(f, &v->as.i))
            fits = fit_try_set_int_or_size(f, DV_PARTIAL_ARGUMENT, i, 0, NO_DIM, INT64_MAX, &v->as.i);
        if (v->type == DV_VALUE_INTS)
            fits = fit_try_set_rank_or_length(f, DV_PARTIAL_ARGUMENT, i, 0, &v->count);
        for (uint32_t k = 0; v->type == DV_VALUE_INTS && k < v->count && fits; k++)
            if (FIT_IS_SET_IN_THIS_PASS(f, &v->ints[k]))
                fits = fit_try_set_int_or_size(f, DV_PARTIAL_ARGUMENT, i, 0, (int)k, INT64_MAX, &v->ints[k]);
    }
    return fits;
}

/* Sets what no name decides of each tensor: dtypes and ranks, or with fit_sizes_now sizes. Returns false if one has no possible
 * value. */
static bool fit_try_set_remaining_tensor_parts(case_fitter *f, bool fit_sizes_now)
{
    bool fits = true;
    for (size_t i = 0; i < f->c->ntensors && fits; i++) {
        check_tensor *t = &f->c->tensors[i];
        const size_t slot = check_find_tensor_slot(f->c, i), element = i - f->c->args[slot].first_tensor;
        if (!t->present)
            continue;
        if (!fit_sizes_now)
            fits = fit_try_set_dtype(f, DV_PARTIAL_ARGUMENT, slot, element, &t->dtype);
        if (!fit_sizes_now && fits &&
            (f->fits_unchanged || FIT_IS_SET_IN_THIS_PASS(f, &t->ndim) || FIT_IS_SET_IN_THIS_PASS(f, &t->shape)))
            fits = fit_try_set_rank_or_length(f, DV_PARTIAL_ARGUMENT, slot, element, (uint32_t *)&t->ndim);
        for (int32_t d = 0; d < t->ndim && fits && fit_sizes_now; d++)
            if (FIT_IS_SET_IN_THIS_PASS(f, &t->shape[d]))
                fits = fit_try_set_int_or_size(f, DV_PARTIAL_ARGUMENT, slot, element, d, INT64_MAX, &t->shape[d]);
    }
    return fits;
}

/* ---- All of them ---- */

/* The schema's default is used as the wanted value. fit_restore_unchanged_default() makes the argument a default again if the
 * value stays. */
check_value check_get_value_or_default(const check_op *op, size_t slot, const check_value *v)
{
    const dv_value *d = &op->slots[slot].default_value;
    check_value value = *v;
    if (v->type != DV_VALUE_DEFAULT || !op->literals[slot].is_read)
        return value;
    if (d->type == DV_VALUE_INT)
        value.as.i = d->as.i;
    else if (d->type == DV_VALUE_BOOL)
        value.as.b = d->as.b;
    else if (d->type == DV_VALUE_STRING && d->as.s.size < CHECK_MAX_STRING)
        snprintf(value.string, sizeof value.string, "%s", d->as.s.data);
    else
        return value;
    value.type = d->type;
    return value;
}

/* Makes *v a default again if the original argument was one and the fitted value equals it. */
static void fit_restore_unchanged_default(const check_op *op, size_t slot, const check_value *original_args, check_value *v)
{
    const check_value d = check_get_value_or_default(op, slot, original_args);
    if (original_args->type == DV_VALUE_DEFAULT && d.as.i == v->as.i && !strcmp(d.string, v->string))
        *v = *original_args;
}

/* Begins a partial inference in which all arguments that the contract reads are unknown. lists_are_unknown: lists of tensors are
 * unknown, too. Returns false if core refuses to begin. */
static bool fit_try_begin_inference(case_fitter *f, bool lists_are_unknown)
{
    static check_values v;
    check_values_init_without_data(&v, f->c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < f->c->ntensors; i++)
        v.tensors[i] = (dv_tensor){ .ndim = -1 };
    for (size_t i = 0; i < f->c->nargs; i++) {
        const uint32_t type = f->c->args[i].type;
        if (type == DV_VALUE_TENSOR || (type == DV_VALUE_TENSORS && lists_are_unknown) ||
            (f->op->literals[i].is_read &&
                (type == DV_VALUE_INT || type == DV_VALUE_BOOL || type == DV_VALUE_STRING || type == DV_VALUE_INTS)))
            v.values[i] = (dv_value){ .type = DV_VALUE_UNKNOWN };
    }
    dv_partial_free(f->p);
    f->p = NULL;
    return !dv_partial_new(f->op->op, v.values, f->c->nargs, &f->p);
}

/* Begins the partial inference and sets presence, strings and bools. Returns false if that fails. */
static bool fit_try_begin_with_presence(case_fitter *f, bool lists_are_unknown)
{
    return fit_try_begin_inference(f, lists_are_unknown) && fit_try_set_presence_strings_bools(f);
}

/* Begins the partial inference and sets the lengths of all lists of tensors, if there are any. Returns false if that fails. */
static bool fit_try_begin_with_list_lengths(case_fitter *f)
{
    bool any = false;
    for (size_t i = 0; i < f->c->nargs; i++)
        any |= f->c->args[i].type == DV_VALUE_TENSORS;
    return fit_try_begin_with_presence(f, any) &&
        (!any || (fit_try_set_list_lengths(f) && fit_try_begin_with_presence(f, false)));
}

/* Sets all remaining parts: ranks, ints, sizes and tensors, in two passes if there is an earlier case (f->from). Ints are set
 * before sizes or after them; those set first are changed least. Returns false if a part has no possible value. */
static bool fit_try_set_all_remaining_parts(case_fitter *f)
{
    const bool early = f->from || (f->order && f->order->ints_first) || f->c->plan_index >> 1 & 1;
    for (f->fits_unchanged = !f->from;; f->fits_unchanged = true) {
        if (!fit_try_set_names_of_order(f) || !fit_try_for_each_name(f, fit_try_set_variadic_rank) ||
            !fit_try_set_remaining_tensor_parts(f, false) || (early && !fit_try_set_ints(f)) ||
            !fit_try_for_each_name(f, fit_try_set_name_sizes) || (!early && !fit_try_set_ints(f)) ||
            !fit_try_set_remaining_tensor_parts(f, true))
            return false;
        if (f->fits_unchanged)
            return true;
    }
}

/* Reads a shape from partial inference into *ndim and sizes, with 0 for an unknown rank. Returns false if the shape is not
 * exactly known. */
static bool fit_try_read_known_shape(const dv_partial_spec *known, int32_t *ndim, int64_t *sizes)
{
    bool all = fit_is_exact(known->value) && known->value.least <= CHECK_MAX_DIMS;
    *ndim = all ? (int32_t)known->value.least : 0;
    for (int32_t d = 0; d < CHECK_MAX_DIMS; d++) {
        sizes[d] = d < *ndim ? known->sizes[d].least : 0;
        all &= d >= *ndim || fit_is_exact(known->sizes[d]);
    }
    return all;
}

/* Copies names, selected cases and tensor shapes from the partial inference into the case. Returns false if a tensor's shape is
 * not exactly known. */
static bool fit_try_read_names_and_shapes(case_fitter *f)
{
    bool all = true;
    for (size_t k = 0; k < f->op->nnames; k++) {
        const check_name *name = &f->op->names[k];
        const dv_partial_spec known = fit_get_known(f, DV_PARTIAL_NAME, name->register_index, 0);
        f->c->names.is_bound[k] = known.present.most;
        if (!known.present.most)
            continue;
        if (name->kind == CHECK_NAME_VARIADIC)
            fit_try_read_known_shape(
                &known, &f->c->names.variadics[name->value_index].ndim, f->c->names.variadics[name->value_index].sizes);
        else if (name->kind == CHECK_NAME_DIM)
            f->c->names.dims[name->value_index] = known.value.least;
        else if (known.dtype.bits)
            f->c->names.dtypes[name->value_index] = known.dtype;
    }
    const check_json *selected_cases = check_json_find_member(f->op->program, "taken"),
                     *group = selected_cases ? selected_cases->child : NULL;
    for (size_t g = 0; group && g < CHECK_MAX_CASE_GROUPS; g++, group = group->next) {
        size_t k = 0;
        for (const check_json *x = group->child; x && fit_get_known(f, DV_PARTIAL_CASE, g, k).value.least != 1; x = x->next)
            k++;
        f->c->names.selected_case[g] = (int32_t)k;
    }
    for (size_t i = 0; i < f->c->ntensors; i++) {
        check_tensor *t = &f->c->tensors[i];
        const size_t slot = check_find_tensor_slot(f->c, i);
        const dv_partial_spec known = fit_get_known(f, DV_PARTIAL_ARGUMENT, slot, i - f->c->args[slot].first_tensor);
        all &= !t->present || fit_try_read_known_shape(&known, &t->ndim, t->shape);
    }
    return all;
}

void check_clamp_element_range(check_tensor *t, dv_range allowed)
{
    const double least = (double)allowed.least, most = (double)allowed.most;
    if (least > most) /* the range is empty: the contract refuses the case, or the tensor has no elements */
        return;
    t->low = t->low < least ? least : t->low > most ? most : t->low;
    t->high = t->high > most ? most : t->high < least ? least : t->high;
}

/* Implements check_try_fit_case() and check_try_fit_case_in_order() with the options in f. Returns false if nothing fits. */
static bool fit_try_fit_case(case_fitter f, dv_range *element_ranges)
{
    const check_op *op = f.op;
    check_case *c = f.c;
    check_value original_args[CHECK_MAX_ARGS];
    memcpy(original_args, c->args, c->nargs * sizeof *original_args);
    for (size_t i = 0; i < c->nargs; i++)
        c->args[i] = check_get_value_or_default(op, i, &original_args[i]);
    const bool fits = !op->contract ||
        (fit_try_begin_with_list_lengths(&f) && fit_try_set_dtype_variables(&f) && fit_try_set_all_remaining_parts(&f) &&
            fit_try_read_names_and_shapes(&f));
    for (size_t i = 0; i < c->nargs; i++)
        fit_restore_unchanged_default(op, i, &original_args[i], &c->args[i]);
    check_update_bounds_from_sizes(c);
    for (size_t i = 0; i < c->ntensors && fits && op->contract; i++) {
        const size_t slot = check_find_tensor_slot(c, i);
        const dv_range r = fit_get_known(&f, DV_PARTIAL_VALUES, slot, i - c->args[slot].first_tensor).value;
        if (element_ranges)
            element_ranges[i] = r;
        else
            check_clamp_element_range(&c->tensors[i], r);
    }
    dv_partial_free(f.p);
    return fits;
}

void check_flag_free_tensors(const check_op *op, check_case *c, bool *shape_is_free, bool *dtype_is_free)
{
    case_fitter f = { .op = op, .c = c };
    const bool fits = op->contract && fit_try_begin_with_list_lengths(&f) && fit_try_set_dtype_variables(&f) &&
        fit_try_for_each_name(&f, fit_try_set_variadic_rank) && fit_try_set_ints(&f) &&
        fit_try_for_each_name(&f, fit_try_set_name_sizes);
    for (size_t i = 0; i < c->ntensors; i++) {
        const size_t slot = check_find_tensor_slot(c, i);
        check_shape ignored;
        dv_partial_spec known = dv_partial_spec_unknown();
        if (fits)
            known = fit_get_known(&f, DV_PARTIAL_ARGUMENT, slot, i - c->args[slot].first_tensor);
        shape_is_free[i] = fits ? known.present.most && !fit_try_read_known_shape(&known, &ignored.ndim, ignored.sizes)
                                : !op->contract;
        dtype_is_free[i] = fits ? known.present.most && !known.dtype.bits : !op->contract;
        c->tensors[i].dtype = known.dtype.bits ? known.dtype : c->tensors[i].dtype;
    }
    dv_partial_free(f.p);
}

dv_partial *check_new_partial_inference(const check_op *op, size_t slot, const check_value *known_value)
{
    static check_case c;
    case_fitter f = { .op = op, .c = &c };
    memset(&c, 0, sizeof c);
    c.nargs = (uint32_t)op->nargs;
    for (size_t i = 0; i < c.nargs; i++) { /* every argument that core can leave unknown is unknown */
        const dv_slot_info *s = &op->slots[i];
        const bool list = s->type == DV_FIELD_TENSORS;
        c.args[i] = (check_value){ .type = list ? DV_VALUE_TENSORS : DV_VALUE_DEFAULT };
        if (s->type == DV_FIELD_TENSOR)
            c.args[i] = (check_value){ .type = DV_VALUE_TENSOR, .first_tensor = c.ntensors++, .count = 1 };
        else if (op->literals[i].is_read && !list)
            c.args[i].type = s->type == DV_FIELD_BOOL ? DV_VALUE_BOOL
                : s->type == DV_FIELD_STRING          ? DV_VALUE_STRING
                : s->type == DV_FIELD_INTS            ? DV_VALUE_INTS
                : s->type == DV_FIELD_INT             ? DV_VALUE_INT
                                                      : DV_VALUE_DEFAULT;
        else if (known_value && i == slot)
            c.args[i] = *known_value;
    }
    return fit_try_begin_inference(&f, true) ? f.p : NULL;
}

bool check_try_fit_case(const check_op *op, check_case *c, const check_case *previous, dv_range *element_ranges)
{
    return fit_try_fit_case((case_fitter){ .op = op, .c = c, .from = previous }, element_ranges);
}

bool check_try_fit_case_in_order(const check_op *op, check_case *c, const check_fit_order *order, dv_range *element_ranges)
{
    return fit_try_fit_case((case_fitter){ .op = op, .c = c, .order = order }, element_ranges);
}

void check_set_tensor_list_length(check_case *c, size_t slot, uint32_t length)
{
    check_value *v = &c->args[slot];
    const uint32_t free_tensors = CHECK_MAX_TENSORS - c->ntensors, more = length > v->count ? length - v->count : 0;
    const uint32_t wanted = more > free_tensors ? v->count + free_tensors : length, end = v->first_tensor + v->count;
    const check_tensor last_tensor = c->tensors[v->count ? end - 1 : v->first_tensor < CHECK_MAX_TENSORS ? v->first_tensor : 0];
    memmove(&c->tensors[v->first_tensor + wanted], &c->tensors[end], sizeof *c->tensors * (c->ntensors - end));
    for (uint32_t k = v->count; k < wanted; k++)
        c->tensors[v->first_tensor + k] = last_tensor;
    for (size_t i = 0; i < c->nargs; i++)
        if ((c->args[i].type == DV_VALUE_TENSOR || c->args[i].type == DV_VALUE_TENSORS) && i != slot &&
            c->args[i].first_tensor >= end)
            c->args[i].first_tensor = c->args[i].first_tensor - v->count + wanted;
    c->ntensors = c->ntensors - v->count + wanted;
    v->count = wanted;
}
