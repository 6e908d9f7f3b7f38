/* Cases of a plan: from wanted levels to a case that fits the contract. */
#include <string.h>

#include "plan.h"

enum { MAX_WORK_PER_ELEMENT = 10 };

check_case *check_plan_case_get_next(const planner *p) { return &p->plan->cases[p->plan->ncases]; }

/* Fills a list of ints that the contract reads with numbers near sizes of the case: dims, their neighbours and halves. Often the
 * first half of the list is small and the second large, as in the corners of a box. */
static void plan_case_set_ints_near_sizes(planner *p, const check_case *c, check_value *v)
{
    for (uint32_t i = 0; i < CHECK_MAX_LIST; i++) { /* all elements are set; the contract decides the length later */
        const check_name *name = p->op->nnames ? &p->op->names[(p->turn + i) % p->op->nnames] : NULL;
        const int64_t size = !name || name->kind == CHECK_NAME_DTYPE ? 3
            : name->kind == CHECK_NAME_VARIADIC ? c->names.variadics[name->value_index].sizes[i % CHECK_MAX_DIMS]
                                                : c->names.dims[name->value_index];
        const int64_t small[] = { 0, 1, 0, -1, 2, 0 }, large[] = { size, size - 1, size / 2, size + 1, 278, size + 7 };
        const uint64_t k = check_random_next(&p->random) % 6;
        v->ints[i] = p->turn % 3 == 2 ? (k % 2 ? small : large)[k] : (i % 4 < 2 ? small : large)[p->turn % 3 ? k : k % 3];
    }
}

/* Returns the index of the level for the list of numbers in `slot`. Returns the level whose list has MIXED_LIST_LENGTH elements
 * if lists of tensors in this case have partly empty tensors, since contracts often tie the lengths: scales[len(xs)]. Else
 * returns default_level. */
static int64_t plan_case_choose_level_for_list_length(const planner *p, size_t slot, int64_t default_level)
{
    for (int f = 0; f < p->nfactors && p->mixed_list_position; f++)
        for (uint32_t k = 0; p->factors[f].kind == FACTOR_SCALAR && p->factors[f].index == slot && k < p->factors[f].nlevels; k++)
            if (p->scalar_levels[slot][k].count == MIXED_LIST_LENGTH)
                return k;
    return default_level;
}

void check_plan_case_set_arguments_except_shapes(planner *p, const int *wanted_levels, bool others_small, check_case *c)
{
    c->nargs = (uint32_t)p->op->nargs;
    for (size_t i = 0; i < c->nargs; i++) {
        check_value *v = &c->args[i];
        const int64_t level = check_plan_level_get_wanted(p, wanted_levels, FACTOR_SCALAR, i),
                      length = check_plan_level_get_wanted(p, wanted_levels, FACTOR_LENGTH, i);
        if (!check_is_tensor_argument(p->op, i)) {
            if (level >= 0)
                *v = p->scalar_levels[i][plan_case_choose_level_for_list_length(p, i, level)];
            if (v->type == DV_VALUE_INT && v->count) {
                const int64_t size_class = (int64_t)v->count - 1;
                const uint32_t member = check_plan_size_find_rarest_rotation(
                    p, MAX_PLAN_NAMES + i, size_class, p->turn + (uint32_t)i);
                v->count = 0;
                v->as.i = check_plan_size_get_of_class(p, size_class, others_small && size_class <= SIZE_OTHER ? 0 : member);
            }
            if (v->type == DV_VALUE_INT && v->as.i == extreme_ints[0])
                v->as.i = extreme_ints[p->turn % (p->op->literals[i].is_read ? NUM_EXTREME_SIZES : NUM_EXTREME_INTS)];
            if (v->type == DV_VALUE_INTS && p->op->literals[i].is_read)
                plan_case_set_ints_near_sizes(p, c, v);
            continue;
        }
        const uint32_t free_tensors = CHECK_MAX_TENSORS - c->ntensors;
        v->type = p->op->slots[i].type == DV_FIELD_TENSOR ? DV_VALUE_TENSOR : DV_VALUE_TENSORS;
        v->count = v->type == DV_VALUE_TENSOR ? 1
            : p->mixed_list_position          ? MIXED_LIST_LENGTH
            : length < 0                      ? 1
                                              : (uint32_t)length;
        v->count = v->count > free_tensors ? free_tensors : v->count;
        v->first_tensor = c->ntensors;
        c->ntensors += v->count;
        for (uint32_t k = 0; k < v->count; k++)
            c->tensors[v->first_tensor + k].present = check_plan_level_get_wanted(p, wanted_levels, FACTOR_PRESENT, i) != 0 ||
                k % 2;
    }
}

/* Makes a shape of this rank with 1s at ones_position, and one dim of size_class. small_rotation and class_rotation select the
 * other dims' sizes and the member of size_class. ndim and shape receive the result. */
static void plan_case_make_shape(planner *p, int64_t rank, int64_t size_class, int64_t ones_position, uint32_t small_rotation,
    uint32_t class_rotation, bool others_small, int32_t *ndim, int64_t *shape)
{
    int32_t large = -1;
    const bool high = rank > MAX_RANK;
    *ndim = (int32_t)(rank < 0 ? 2 : rank);
    for (int32_t i = 0; i < CHECK_MAX_DIMS; i++)
        shape[i] = size_class == SIZE_ONE || (high && (i % 6 || size_class > SIZE_OTHER)) ? 1
            : others_small || high                                                        ? 2
                                   : check_plan_size_get_of_class(p, SIZE_FEW, small_rotation + (uint32_t)i);
    for (int32_t i = 0; i < *ndim; i++) {
        const bool first = i == 0, last = i + 1 == *ndim;
        const bool one = first ? ones_position == ONES_LEADING || ones_position == ONES_BOTH_ENDS
            : last             ? ones_position == ONES_TRAILING || ones_position == ONES_BOTH_ENDS
                               : ones_position == ONES_INTERIOR;
        if (one && *ndim > 1)
            shape[i] = 1;
        else if (large < 0 || small_rotation % 3)
            large = i;
    }
    if (size_class >= 0 && size_class != SIZE_FEW && size_class != SIZE_ONE && large >= 0)
        shape[large] = check_plan_size_get_of_class(p, size_class, others_small && size_class <= SIZE_OTHER ? 0 : class_rotation);
}

/* Returns the integer y nearest to x for which "y OPERATOR bound" holds. */
static int64_t plan_case_get_nearest_satisfying(int64_t x, const char *operator, int64_t bound)
{
    const int64_t low = !strcmp(operator, ">")               ? bound + 1
        : !strcmp(operator, ">=") || !strcmp(operator, "==") ? bound
                                                             : INT64_MIN;
    const int64_t high = !strcmp(operator, "<")              ? bound - 1
        : !strcmp(operator, "<=") || !strcmp(operator, "==") ? bound
                                                             : INT64_MAX;
    return x < low ? low : x > high ? high : x;
}

/* Changes the dim or the int argument of this name so that the comparison holds: "name % number == 0" for operator "%", else
 * "name OPERATOR number". Does nothing if there is no such name. */
static void plan_case_satisfy_comparison(const planner *p, const char *name, const char *operator, int64_t number, check_case *c)
{
    const check_name *dim = check_op_find_name(p->op, CHECK_NAME_DIM, name);
    size_t slot = 0;
    while (!dim && slot < p->op->nargs && strcmp(p->op->slots[slot].name, name) != 0)
        slot++;
    if (!dim && (slot == p->op->nargs || p->op->slots[slot].type != DV_FIELD_INT))
        return;
    check_value *const v = dim ? NULL : &c->args[slot];
    const int64_t x = dim         ? c->names.dims[dim->value_index]
        : v->type == DV_VALUE_INT ? v->as.i
                                  : p->op->slots[slot].default_value.as.i;
    const int64_t y = *operator == '%' ? (x + number - 1) / number * number
                                       : plan_case_get_nearest_satisfying(x, operator, number);
    if (dim)
        c->names.dims[dim->value_index] = y;
    else if (y != x)
        *v = (check_value){ .type = DV_VALUE_INT, .as.i = y };
}

void check_plan_case_satisfy_kernel_condition(const planner *p, check_case *c)
{
    const char *when = p->kernel && p->kernel->when ? p->kernel->when : "";
    const bool all = strchr(when, '(');
    char name[32], operator[3];
    uint32_t sides = 1, side = 0;
    int of;
    for (const char *s = when; (s = strstr(s, " or ")); s += 4)
        sides++;
    for (const char *s = when; *s; s += strcspn(s, " "), s += strspn(s, " (")) {
        side += !strncmp(s, "or ", 3);
        if (!all && side != p->turn % sides)
            continue;
        if (sscanf(s, "%31[A-Za-z0-9_] %% %d == 0", name, &of) == 2 && of > 0)
            plan_case_satisfy_comparison(p, name, "%", of, c);
        else if (sscanf(s, "%31[A-Za-z0-9_] %2[=<>] %d", name, operator, &of) == 3)
            plan_case_satisfy_comparison(p, name, operator, of, c);
    }
}

void check_plan_case_set_name_values(planner *p, const int *wanted_levels, bool others_small, check_case *c)
{
    for (size_t k = 0; k < p->op->nnames; k++) {
        const check_name *name = &p->op->names[k];
        const uint32_t turn = p->turn + (uint32_t)k;
        const int64_t size_class = check_plan_level_get_wanted(
                          p, wanted_levels, name->kind == CHECK_NAME_VARIADIC ? FACTOR_VARIADIC_SIZE : FACTOR_DIM, k),
                      d = check_plan_level_get_wanted(p, wanted_levels, FACTOR_DTYPE, k);
        const uint32_t member = check_plan_size_find_rarest_rotation(p, k, size_class, turn);
        if (name->kind == CHECK_NAME_DTYPE && d >= 0)
            c->names.dtypes[name->value_index] = dv_dtype_from_key((uint32_t)d);
        else if (name->kind == CHECK_NAME_VARIADIC)
            plan_case_make_shape(p, check_plan_level_get_wanted(p, wanted_levels, FACTOR_RANK, k), size_class,
                check_plan_level_get_wanted(p, wanted_levels, FACTOR_ONES, k), turn, member, others_small,
                &c->names.variadics[name->value_index].ndim, c->names.variadics[name->value_index].sizes);
        else if (name->kind == CHECK_NAME_DIM)
            c->names.dims[name->value_index] = check_plan_size_get_of_class(
                p, size_class < 0 ? SIZE_FEW : size_class, others_small && size_class <= SIZE_OTHER ? 0 : member);
    }
    for (size_t k = 0; k < p->op->nnames; k++)
        if (p->size_copied_from[k])
            c->names.dims[p->op->names[k].value_index] = c->names.dims[p->op->names[p->size_copied_from[k] - 1].value_index];
    if (p->nsolutions)
        memcpy(c->names.dims, p->solutions[p->turn % p->nsolutions], sizeof c->names.dims);
}

/* Returns the dtype of a tensor whose dtype no name of the contract decides. In every second case the tensors of one list get
 * different dtypes. */
static dv_dtype plan_case_get_free_tensor_dtype(const planner *p, const int *wanted_levels, size_t slot, size_t list_index)
{
    for (int k = 0; k < p->nfactors; k++)
        if (p->factors[k].kind == FACTOR_FREE_DTYPE && p->factors[k].index == slot && wanted_levels[k] >= 0)
            return dv_dtype_from_key((uint32_t)p->factors[k]
                    .levels[((size_t)wanted_levels[k] + (p->turn % 2 ? list_index : 0)) % p->factors[k].nlevels]);
    return dv_dtype_from_key(DV_DTYPE_f32);
}

void check_plan_case_set_free_tensors(planner *p, const int *wanted_levels, bool others_small, check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        const size_t slot = check_find_tensor_slot(c, i), element = i - c->args[slot].first_tensor;
        const bool mixed = p->mixed_list_position && c->args[slot].type == DV_VALUE_TENSORS;
        const bool empty = mixed && (p->mixed_list_position == element + 1) == p->mixed_tensor_is_empty;
        const int64_t rank = check_plan_level_get_wanted(p, wanted_levels, FACTOR_FREE_RANK, slot),
                      size_class = check_plan_level_get_wanted(p, wanted_levels, FACTOR_FREE_SIZE, slot);
        t->dtype = plan_case_get_free_tensor_dtype(p, wanted_levels, slot, element);
        plan_case_make_shape(p, mixed && rank == 0 ? 1 : rank, mixed ? SIZE_FEW : size_class, ONES_NONE,
            p->turn + (uint32_t)(slot + element), p->turn + (uint32_t)(slot + element), others_small, &t->ndim, t->shape);
        for (int32_t d = 0; d < CHECK_MAX_DIMS && empty;
            d++) /* all dims become 0; other names of the pattern decide later which of them stay, as in xs{i}[*a n{i} *b] */
            t->shape[d] = 0;
        if (i && !p->mixed_list_position && check_plan_level_get_wanted(p, wanted_levels, FACTOR_SAME_SHAPE, 0) == 1) {
            t->ndim = c->tensors[0].ndim;
            t->dtype = p->op->contract ? t->dtype : c->tensors[0].dtype;
            memcpy(t->shape, c->tensors[0].shape, sizeof t->shape);
        }
    }
}

enum check_verdict check_plan_case_make_and_classify(
    planner *p, const int *wanted_levels, int first_factor, int second_factor, bool others_small, check_case *c)
{
    dv_range facts[CHECK_MAX_TENSORS];
    check_fit_order order = { 0 };
    check_count_plan_progress();
    memset(c, 0, sizeof *c);
    c->plan_index = p->turn;
    check_plan_case_set_name_values(p, wanted_levels, others_small, c);
    check_plan_case_set_arguments_except_shapes(p, wanted_levels, others_small, c);
    check_plan_case_satisfy_kernel_condition(p, c);
    check_plan_case_set_free_tensors(p, wanted_levels, others_small, c);
    for (int k = 0; k < 2; k++) {
        const int of = k ? second_factor : first_factor;
        if (of >= 0 && p->factors[of].kind <= FACTOR_ONES)
            order.names[k] = &p->op->names[p->factors[of].index];
        order.ints_first |= of >= 0 && p->factors[of].kind == FACTOR_SCALAR;
    }
    if (!check_try_fit_case_in_order(p->op, c, &order, facts))
        return CHECK_VERDICT_REFUSED;
    enum check_verdict verdict = CHECK_VERDICT_TOO_LARGE;
    if (check_estimate_work(p->op, c) <= MAX_WORK_PER_ELEMENT * (double)check_max_elements) {
        check_plan_contents_set_with_layouts(p, wanted_levels, facts, true, c);
        verdict = check_classify_case(p->op, c);
    }
    if (verdict == CHECK_VERDICT_TOO_LARGE &&
        (!p->plan->smallest_too_large_numel || check_case_max_numel(c) < p->plan->smallest_too_large_numel))
        p->plan->smallest_too_large_numel = check_case_max_numel(c);
    if (verdict == CHECK_VERDICT_BAD_CONTENTS) { /* the contract forbids such large numbers: smaller ones are used */
        check_plan_contents_set_with_layouts(p, wanted_levels, facts, false, c);
        verdict = check_classify_case(p->op, c);
    }
    if (verdict == CHECK_VERDICT_REFUSED && !p->plan->has_stray_view_case && check_is_refused_for_stray_view(p->op, c)) {
        p->plan->has_stray_view_case = true;
        p->plan->stray_view_case = *c;
        p->plan->stray_view_case.is_invalid = true;
    }
    return verdict;
}

bool check_plan_case_has_empty_input_or_results(const planner *p, const check_case *c)
{
    static dv_result_spec specs[CHECK_MAX_RESULTS];
    static check_values v;
    bool empty = false, any = false, all = true;
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    const size_t n = dv_infer(p->op->op, v.values, c->nargs, specs, p->op->nresults) ? 0 : p->op->nresults;
    for (size_t r = 0; r < n; r++) {
        bool none = false;
        for (int32_t d = 0; d < specs[r].ndim; d++)
            none |= !specs[r].shape[d];
        any |= specs[r].ndim >= 0;
        all &= specs[r].ndim < 0 || none;
    }
    for (size_t i = 0; i < c->ntensors; i++)
        empty |= c->tensors[i].present && !check_tensor_numel(&c->tensors[i]);
    return empty || (any && all);
}
