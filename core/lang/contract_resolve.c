/* Resolves all names of a contract. Only patterns of arguments create variables: a name in their dims or dtype that is no
 * argument of the schema becomes a size, a variadic or a dtype variable. Everywhere else a name must exist
 * (contract_resolve_expr.c). Then each part of the contract is resolved and completed. */
#include <assert.h>

#include "lang/contract_internal.h"

#define resolve_fail(c, e, ...) dv__fail_at_column(DV_ECONTRACT, (c)->text, (e)->at, __VA_ARGS__)

/* ---- Variables ----------------------------------------------------------------------------------------------------------- */

/* Fails if a name has another meaning already. meaning: noun for the new meaning, in the message. */
static int resolve_check_name_is_new(const dv__contract *c, const dv__expr *e, const char *meaning)
{
    uint32_t key;
    const char *existing = dv__schema_find_argument_index(c->schema, e->name) >= 0 ? "an argument"
        : dv__try_find_dtype_key(e->name, &key)                                    ? "a dtype"
        : dv__contract_find_dim_index(c, e->name) >= 0                             ? "a size"
        : dv__contract_find_variadic_index(c, e->name) >= 0                        ? "variadic dims"
        : dv__contract_find_dtype_var_index(c, e->name) >= 0                       ? "a dtype variable"
                                                                                   : NULL;
    return existing ? resolve_fail(c, e, "'%s' is %s: it cannot be %s too", e->name, existing, meaning) : DV_OK;
}

/* Adds a size variable with the name of e, *out receives its index. index_name: i of n{i}, or NULL. meaning: noun for messages.
 * Returns a status. */
static int resolve_add_dim_var(dv__contract *c, const dv__expr *e, const char *index_name, const char *meaning, int *out)
{
    const int status = resolve_check_name_is_new(c, e, meaning);
    if (status)
        return status;
    if (c->ndims == DV__MAX_DIM_VARS)
        return dv__fail_at_column(DV_ELIMIT, c->text, e->at, "more than %d sizes", DV__MAX_DIM_VARS);
    *out = (int)c->ndims;
    c->dims[c->ndims++] = (dv__dim_var){ .name = e->name, .at = e->at, .index_name = index_name };
    return DV_OK;
}

/* Adds a variadic with the name of e. index_name: i of *s{i}, or NULL. Returns a status. */
static int resolve_add_variadic_var(dv__contract *c, const dv__expr *e, const char *index_name)
{
    const int status = resolve_check_name_is_new(c, e, "variadic dims");
    if (status)
        return status;
    if (c->nvariadics == DV__MAX_VARIADIC_VARS)
        return dv__fail_at_column(DV_ELIMIT, c->text, e->at, "more than %d variadic dims", DV__MAX_VARIADIC_VARS);
    c->variadics[c->nvariadics++] = (dv__variadic_var){ e->name, index_name };
    return DV_OK;
}

/* Makes variables of the new names in a dim of an argument's pattern. Returns a status. */
static int resolve_create_vars_of_dim(dv__contract *c, const dv__expr *e)
{
    int status = DV_OK, dim;
    if (e->index_name)
        return resolve_fail(c, e, "%s%s{%s} may only stand alone in the pattern of an argument",
            e->kind == DV__EXPR_VARIADIC ? "*" : "", e->name, e->index_name);
    if (e->kind == DV__EXPR_NAME && dv__schema_find_argument_index(c->schema, e->name) < 0 &&
        dv__contract_find_dim_index(c, e->name) < 0)
        return resolve_add_dim_var(c, e, NULL, "a size", &dim);
    if (e->kind == DV__EXPR_VARIADIC && dv__schema_find_argument_index(c->schema, e->name) < 0 &&
        dv__contract_find_variadic_index(c, e->name) < 0)
        return resolve_add_variadic_var(c, e, NULL);
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = resolve_create_vars_of_dim(c, e->args[i]);
    return status;
}

/* Returns the first list pattern before `before` that has this n{i} or *s{i}. NULL: there is none. */
static const dv__pattern *resolve_find_earlier_list_with(
    const dv__contract *c, const dv__pattern *before, const dv__expr *per_tensor_name)
{
    for (const dv__pattern *t = c->patterns; t < before; t++)
        for (uint32_t k = 0; k < t->dims.n; k++)
            if (t->dims.items[k].e->role == per_tensor_name->role && !strcmp(t->dims.items[k].e->name, per_tensor_name->name))
                return t;
    return NULL;
}

/* Resolves n{i} or *s{i} in a list's pattern: the first list with the name creates the variable; later lists with the same
 * index may use it. Returns a status. */
static int resolve_create_per_tensor_var(dv__contract *c, const dv__pattern *list, dv__dim_item *item)
{
    dv__expr *e = item->e;
    const bool is_variadic = e->role == DV__ROLE_PER_TENSOR_VARIADIC;
    const char *star = is_variadic ? "*" : "";
    if (list->kind != DV__PATTERN_LIST)
        return resolve_fail(c, e, "%s%s{i} is for lists of tensors, and '%s' is not one", star, e->name, list->name);
    const dv__pattern *other = resolve_find_earlier_list_with(c, list, e);
    int ref = is_variadic ? dv__contract_find_variadic_index(c, e->name) : dv__contract_find_dim_index(c, e->name),
        status = DV_OK;
    const char *index = ref < 0 ? NULL : is_variadic ? c->variadics[ref].index_name : c->dims[ref].index_name;
    assert(!other || index); /* the earlier list has created the variable */
    if (ref >= 0 && !other)
        return resolve_fail(c, e, "'%s%s' has a meaning already: %s%s{%s} needs a name of its own", star, e->name, star, e->name,
            list->index_name);
    if (other && strcmp(index, list->index_name) != 0)
        return resolve_fail(c, e, "%s%s{%s} belongs to the lists with index %s: '%s' has index %s", star, e->name, index, index,
            list->name, list->index_name);
    if (other && (other->can_be_empty || list->can_be_empty))
        return resolve_fail(c, e, "'%s' may hold None: it cannot share %s%s{%s} with another list",
            other->can_be_empty ? other->name : list->name, star, e->name, index);
    if (ref < 0 && is_variadic)
        status = resolve_add_variadic_var(c, e, list->index_name), ref = (int)c->nvariadics - 1;
    else if (ref < 0)
        status = resolve_add_dim_var(c, e, list->index_name, "a size of each tensor", &ref);
    if (status)
        return status;
    e->ref = ref;
    e->type = is_variadic ? DV__TYPE_DIMS : DV__TYPE_INT;
    return DV_OK;
}

/* Makes a dtype variable of a name that is no dtype, no variable yet and no ScalarType argument. Returns a status. */
static int resolve_create_dtype_var(dv__contract *c, dv__expr *e)
{
    uint32_t key;
    const int slot = dv__schema_find_argument_index(c->schema, e->name);
    if (dv__try_find_dtype_key(e->name, &key) || dv__contract_find_dtype_var_index(c, e->name) >= 0)
        return DV_OK;
    if (slot >= 0 && dv__type_get_contract_kind(c->schema->args[slot].type) == DV__TYPE_DTYPE)
        return DV_OK;
    const int status = resolve_check_name_is_new(c, e, "a dtype variable");
    if (status)
        return status;
    char hint[160];
    if (dv__name_looks_like_dtype(e->name))
        return resolve_fail(c, e, "expected a dtype such as f32, found '%s'%s (a variable of that name needs '%s in ...')",
            e->name, dv__dtype_print_hint(e->name, hint, sizeof hint), e->name);
    if (c->ndtypes == DV__MAX_DTYPE_VARS)
        return dv__fail_at_column(DV_ELIMIT, c->text, e->at, "more than %d dtype variables", DV__MAX_DTYPE_VARS);
    c->dtypes[c->ndtypes++] = (dv__dtype_var){ e->name, e->at, NULL, 0 };
    return DV_OK;
}

/* ---- Patterns ------------------------------------------------------------------------------------------------------------ */

/* Adds an item that may be deferred, *bit receives its bit. pattern_index -1: item_index is that of a definition. Returns a
 * status. */
static int resolve_add_deferred_item(
    dv__contract *c, int pattern_index, int item_index, const char *position_in_text, int8_t *bit)
{
    if (c->ndeferred == DV__MAX_DEFERRED)
        return dv__fail_at_column(DV_ELIMIT, c->text, position_in_text, "more than %d computed dims", DV__MAX_DEFERRED);
    c->deferred[c->ndeferred] = (dv__deferred_item){ (int16_t)pattern_index, (int16_t)item_index };
    *bit = (int8_t)c->ndeferred++;
    return DV_OK;
}

/* Resolves one item of dims and finds its kind. pattern_index: the argument pattern's index; -1 for results. Returns a
 * status. */
static int resolve_dim_item(
    dv__contract *c, dv__dim_item *item, int pattern_index, int item_index, const dv__pattern *returned_list)
{
    dv__expr *e = item->e;
    const bool each = e->index_name &&
        pattern_index >= 0; /* resolve_create_per_tensor_var() has resolved n{i} and *s{i} already */
    if (!each) {
        const int status = dv__resolve_expr(c, e, returned_list);
        if (status)
            return status;
        if (e->type != DV__TYPE_INT && e->type != DV__TYPE_DIMS)
            return resolve_fail(c, e,
                e->type == DV__TYPE_INTS ? "expected a dim, found %s: a run of its elements is written *%s"
                                         : "expected a dim, found %s",
                dv__type_rows[e->type].text, e->name ? e->name : "");
    }
    item->text = dv__contract_copy_expr_text(c, e);
    item->vars = dv__expr_collect_vars(c, e);
    if (!item->text)
        return DV_ENOMEM;
    item->ref = (int16_t)e->ref;
    item->kind = e->role == DV__ROLE_PER_TENSOR_DIM ? DV__DIM_PER_TENSOR
        : e->role == DV__ROLE_PER_TENSOR_VARIADIC   ? DV__DIM_PER_TENSOR_VARIADIC
        : e->role == DV__ROLE_DIM                   ? DV__DIM_VAR
        : e->kind == DV__EXPR_INT                   ? DV__DIM_LITERAL
        : e->role == DV__ROLE_VARIADIC              ? DV__DIM_VARIADIC
        : e->type == DV__TYPE_DIMS                  ? DV__DIM_COMPUTED_VARIADIC
                                                    : DV__DIM_COMPUTED;
    item->value = e->i;
    if (e->kind == DV__EXPR_NEG && e->args[0]->kind == DV__EXPR_INT && e->args[0]->i)
        return resolve_fail(c, e, "expected a size, found the negative %s", item->text);
    if (item->kind == DV__DIM_COMPUTED && pattern_index >= 0 && item->vars.dims)
        return resolve_add_deferred_item(c, pattern_index, item_index, e->at, &item->deferred_bit);
    return DV_OK;
}

/* Resolves all items of dims. pattern_index: the argument pattern's index; -1 for results. Returns a status. */
static int resolve_dims(dv__contract *c, dv__dims *dims, int pattern_index, const dv__pattern *returned_list)
{
    for (uint32_t i = 0; i < dims->n; i++) {
        const int status = resolve_dim_item(c, &dims->items[i], pattern_index, (int)i, returned_list);
        if (status)
            return status;
        dims->nsingle_dims += dims->items[i].e->type == DV__TYPE_INT;
    }
    return DV_OK;
}

/* Resolves the dtype of a pattern and finds its kind. Returns a status. */
static int resolve_dtype(dv__contract *c, dv__dtype_spec *spec, const dv__pattern *returned_list)
{
    for (uint32_t i = 0; i < spec->n; i++) {
        dv__expr *e = spec->alternatives[i];
        const int status = dv__resolve_expr_as(c, e, DV__TYPE_DTYPE, returned_list);
        if (status)
            return status;
        if (spec->n > 1 && e->role != DV__ROLE_DTYPE)
            return resolve_fail(c, e, "expected dtypes around '|', found '%s'", e->name ? e->name : "an expression");
        if (spec->n == 1 && e->role == DV__ROLE_DTYPE)
            spec->kind = DV__DTYPE_SPEC_LITERAL, spec->key = (uint32_t)e->i;
        else if (spec->n == 1 && e->role == DV__ROLE_DTYPE_VAR)
            spec->kind = DV__DTYPE_SPEC_VAR, spec->ref = (int16_t)e->ref;
    }
    return DV_OK;
}

/* Makes the variables of all arguments' patterns before any item is resolved, so that an earlier pattern may use a later one's
 * variables. */
static int resolve_create_variables(dv__contract *c)
{
    int status = DV_OK;
    for (uint32_t i = 0; i < c->npatterns; i++) {
        dv__pattern *t = &c->patterns[i];
        for (uint32_t k = 0; k < t->dims.n && !status; k++) {
            dv__dim_item *item = &t->dims.items[k];
            status = item->e->role ? resolve_create_per_tensor_var(c, t, item) : resolve_create_vars_of_dim(c, item->e);
        }
        for (uint32_t k = 0; k < t->dtype.n && !status; k++)
            if (t->dtype.alternatives[k]->kind == DV__EXPR_NAME)
                status = resolve_create_dtype_var(c, t->dtype.alternatives[k]);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < c->ndefinitions; i++) {
        dv__definition *d = &c->definitions[i];
        const dv__expr name = { .kind = DV__EXPR_NAME, .name = d->name, .at = d->at };
        int dim = dv__contract_find_dim_index(c, d->name);
        if (dim < 0)
            status = resolve_add_dim_var(c, &name, NULL, "a definition", &dim);
        if (status)
            return status;
        d->var_index = (int16_t)dim;
        c->dims[dim].defined = true;
        for (uint32_t k = 0; k < i; k++)
            if (c->definitions[k].var_index == dim && dv__case_refs_can_both_hold(c->definitions[k].when, d->when))
                return dv__fail_at_column(
                    DV_ECONTRACT, c->text, d->at, "'%s' is given twice; write == for a condition on it", d->name);
    }
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        const dv__expr name = { .kind = DV__EXPR_NAME, .name = c->unbacked[i].name, .at = c->unbacked[i].at };
        int dim;
        status = resolve_add_dim_var(c, &name, NULL, "an unbacked size", &dim);
        if (status)
            return status;
        c->unbacked[i].var_index = (int16_t)dim;
        c->dims[dim].is_unbacked = true;
    }
    return DV_OK;
}

/* Resolves the dims and dtypes of all arguments' patterns, and the definitions. Returns a status. */
static int resolve_argument_patterns(dv__contract *c)
{
    for (uint32_t i = 0; i < c->npatterns; i++) {
        dv__pattern *t = &c->patterns[i];
        int status = resolve_dims(c, &t->dims, (int)i, NULL);
        if (!status)
            status = resolve_dtype(c, &t->dtype, NULL);
        if (status)
            return status;
        if (t->kind == DV__PATTERN_LIST_LENGTH && !t->dims.is_any_shape && (t->dims.n != 1 || t->dims.nsingle_dims != 1))
            return dv__fail_at_column(
                DV_ECONTRACT, c->text, t->at, "'%s' is not a list of tensors: its pattern has one dim, its length", t->name);
    }
    for (uint32_t i = 0; i < c->ndefinitions; i++) {
        dv__definition *d = &c->definitions[i];
        int status = dv__resolve_expr_in_text_as(c, c->text, d->e, DV__TYPE_INT, "a definition");
        if (!status)
            status = resolve_add_deferred_item(c, -1, (int)i, d->at, &d->deferred_bit);
        if (status)
            return status;
        d->vars = dv__expr_collect_vars(c, d->e);
    }
    return DV_OK;
}

/* ---- Results ------------------------------------------------------------------------------------------------------------- */

/* Returns a new expression function(argument), for the dims or dtype that like(x) and view(x) leave out. NULL: memory is
 * out. */
static dv__expr *resolve_new_call_on_argument(
    dv__contract *c, enum dv__contract_function function, int slot, const dv__pattern *result)
{
    dv__expr *call = DV__ARENA_NEW(&c->arena, dv__expr), *arg = DV__ARENA_NEW(&c->arena, dv__expr);
    dv__expr **args = DV__ARENA_ARRAY(&c->arena, dv__expr *, 1);
    if (!call || !arg || !args)
        return NULL;
    arg->kind = DV__EXPR_NAME;
    arg->name = c->schema->args[slot].name;
    arg->at = call->at = result->at;
    if (dv__type_get_contract_kind(c->schema->args[slot].type) == DV__TYPE_TENSORS)
        arg->index_name = result->index_name;
    call->kind = DV__EXPR_CALL;
    call->name = dv__contract_get_function_name(function);
    call->args = args;
    call->n = call->depth = 1;
    args[0] = arg;
    return call;
}

/* Adds the dims and the dtype of the source to a result that is like() or a view() and leaves them out. Returns a status. */
static int resolve_add_left_out_dims_and_dtype(dv__contract *c, dv__pattern *result)
{
    const int source = result->viewed_slot >= 0 ? result->viewed_slot : result->like_slot;
    if (result->presence == DV__PRESENCE_ABSENT || result->aliased_slot >= 0 || source < 0)
        return DV_OK;
    if (!result->dims.is_written && !result->view_transform) {
        int status = dv__contract_reserve_next(c, &result->dims.items, 0, sizeof *result->dims.items);
        if (status)
            return status;
        memset(result->dims.items, 0, sizeof *result->dims.items);
        result->dims.items[0].deferred_bit = -1;
        result->dims.items[0].e = resolve_new_call_on_argument(c, DV__FN_SHAPE, source, result);
        result->dims.n = 1;
        if (!result->dims.items[0].e)
            return DV_ENOMEM;
    }
    if (!result->dtype.n) {
        const int status = dv__contract_reserve_next(c, &result->dtype.alternatives, 0, sizeof *result->dtype.alternatives);
        if (status)
            return status;
        result->dtype.alternatives[0] = resolve_new_call_on_argument(c, DV__FN_DTYPE, source, result);
        result->dtype.kind = DV__DTYPE_SPEC_EXPR;
        result->dtype.n = 1;
        if (!result->dtype.alternatives[0])
            return DV_ENOMEM;
    }
    return DV_OK;
}

/* Resolves the transform of a view: swap(d0, d1), permute(dims), narrow(dim, start, length) or select(dim, index). Returns a
 * status. */
static int resolve_view_transform(dv__contract *c, dv__expr *transform, const dv__pattern *returned_list)
{
    static const struct {
        const char *name;
        uint32_t n;
    } transforms[] = {
#define TRANSFORM_ROW(id, name, operands) { name, operands },
        DV__VIEW_TRANSFORMS(TRANSFORM_ROW)
#undef TRANSFORM_ROW
    };
    for (int i = 0; i < DV__VIEW_COUNT; i++) {
        if (transform->kind != DV__EXPR_CALL || strcmp(transform->name, transforms[i].name) != 0)
            continue;
        if (transform->n != transforms[i].n)
            return resolve_fail(
                c, transform, "expected %u operands of %s() in a view, found %u", transforms[i].n, transform->name, transform->n);
        transform->ref = i;
        for (uint32_t k = 0; k < transform->n; k++) {
            const int status = dv__resolve_expr_as(
                c, transform->args[k], i == DV__VIEW_PERMUTE ? DV__TYPE_INTS : DV__TYPE_INT, returned_list);
            if (status)
                return status;
        }
        return DV_OK;
    }
    return resolve_fail(
        c, transform, "expected swap(d0, d1), permute(dims), narrow(dim, start, length) or select(dim, index) in view()");
}

/* Resolves the length of a returned list. Its index is a new name with a count, or the index of argument lists, which give the
 * length. Returns a status. */
static int resolve_returned_list_length(dv__contract *c, dv__pattern *returned_list)
{
    bool has_argument_lists = false;
    if (!returned_list->index_name)
        return DV_OK;
    const dv__expr index = { .kind = DV__EXPR_NAME, .name = returned_list->index_name, .at = returned_list->at };
    const int status = resolve_check_name_is_new(c, &index, "the index of a list");
    if (status)
        return status;
    for (uint32_t i = 0; i < c->npatterns; i++) {
        const dv__pattern *list = &c->patterns[i];
        const bool source = list->slot == returned_list->like_slot || list->slot == returned_list->viewed_slot;
        has_argument_lists |= list->kind == DV__PATTERN_LIST && list->index_name && (!list->dims.is_any_shape || source) &&
            !strcmp(list->index_name, returned_list->index_name);
    }
    if (returned_list->list_count && has_argument_lists)
        return dv__fail_at_column(DV_ECONTRACT, c->text, returned_list->list_count->at,
            "%s is the index of an input list and already counts its tensors: a count needs another index",
            returned_list->index_name);
    if (!returned_list->list_count && !has_argument_lists)
        return dv__fail_at_column(DV_ECONTRACT, c->text, returned_list->at,
            "no list of the inputs has the index %s: expected {%s < count}, how many tensors are returned",
            returned_list->index_name, returned_list->index_name);
    if (!returned_list->list_count)
        return DV_OK;
    returned_list->list_count_vars = (dv__var_set){ 0, 0, 0 };
    const int wrong_type = dv__resolve_expr_in_text_as(
        c, c->text, returned_list->list_count, DV__TYPE_INT, "a number of tensors");
    if (!wrong_type)
        returned_list->list_count_vars = dv__expr_collect_vars(c, returned_list->list_count);
    return wrong_type;
}

/* True if a list of alias sets has the set with this name, or the wildcard. */
static bool alias_sets_contain(const char *const *sets, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(sets[i], name) || !strcmp(sets[i], "*"))
            return true;
    return false;
}

/* True if the schema declares that a return may share an argument's memory. Hosts rely on the schema. */
static bool return_is_alias_of(const dv__argument *ret, const dv__argument *arg)
{
    for (const dv__alias *r = ret->alias; r; r = r->element)
        for (const dv__alias *a = arg->alias; a; a = a->element)
            for (size_t i = 0; i < r->nbefore; i++)
                if (alias_sets_contain(a->before, a->nbefore, r->before[i]) ||
                    alias_sets_contain(a->after, a->nafter, r->before[i]))
                    return true;
    return false;
}

/* True if a return shares the memory of an argument without being written, and so is a view. */
static bool return_is_view(const dv__argument *ret)
{
    for (const dv__alias *r = ret->alias; r; r = r->element)
        if (r->nbefore && !r->write)
            return true;
    return false;
}

/* Resolves and checks the pattern of a result. Returns a status. */
static int resolve_result(dv__contract *c, dv__pattern *result)
{
    const dv__pattern *returned_list = result->index_name ? result : NULL;
    int status = resolve_add_left_out_dims_and_dtype(c, result);
    if (!status)
        status = resolve_returned_list_length(c, result);
    if (!status)
        status = resolve_dims(c, &result->dims, -1, returned_list);
    if (!status)
        status = resolve_dims(c, &result->strides, -1, returned_list);
    if (!status)
        status = resolve_dtype(c, &result->dtype, returned_list);
    if (!status && result->view_transform)
        status = resolve_view_transform(c, result->view_transform, returned_list);
    if (!status && result->offset)
        status = dv__resolve_expr_as(c, result->offset, DV__TYPE_INT, returned_list);
    if (status)
        return status;
    const bool is_undescribed = result->dims.is_any_shape || result->presence == DV__PRESENCE_ABSENT || result->aliased_slot >= 0;
    if (!is_undescribed && result->dtype.kind == DV__DTYPE_SPEC_ANY)
        return dv__fail_at_column(
            DV_ECONTRACT, c->text, result->at, "a result needs a dtype: expected ':' and a dtype after '%s'", result->text);
    if (result->dtype.kind == DV__DTYPE_SPEC_SET)
        return dv__fail_at_column(DV_ECONTRACT, c->text, result->at, "a result has one dtype, found '%s'", result->text);
    for (uint32_t i = 0; i < result->dims.n; i++)
        for (uint32_t u = 0; u < c->nunbacked; u++)
            result->is_unbacked |= (result->dims.items[i].vars.dims >> c->unbacked[u].var_index & 1) != 0;
    for (uint32_t u = 0; u < c->nunbacked && result->kind == DV__PATTERN_LIST; u++)
        if (result->is_unbacked || result->list_count_vars.dims >> c->unbacked[u].var_index & 1)
            return dv__fail_at_column(DV_ECONTRACT, c->text, result->at,
                "'%s' is unbacked: the sizes and the number of a list's tensors are known before the "
                "kernel runs",
                c->unbacked[u].name);
    if (result->has_strides && (result->strides.nsingle_dims != result->strides.n || !result->dims.is_written))
        return dv__fail_at_column(DV_ECONTRACT, c->text, result->at, "strides[...] need dims, and have one stride for each");
    const dv__schema *schema = c->schema;
    const dv__argument *ret = &schema->returns[(size_t)result->slot - schema->nargs];
    if (result->viewed_slot < 0 && result->presence != DV__PRESENCE_ABSENT && return_is_view(ret))
        return dv__fail_at_column(DV_ECONTRACT, c->text, result->at,
            "the schema declares what is returned as a view of an argument: expected view(...) in each case, found '%s'",
            result->text);
    if (result->viewed_slot >= 0 && !return_is_alias_of(ret, &schema->args[result->viewed_slot]))
        return dv__fail_at_column(DV_ECONTRACT, c->text, result->at,
            "the schema does not declare this view: expected Tensor(a) as the types of '%s' and of what is returned",
            schema->args[result->viewed_slot].name);
    return DV_OK;
}

/* Returns the index of the argument that a return Tensor(a!) is; -1: the return is no argument. */
static int return_find_aliased_argument_index(const dv__schema *s, const dv__argument *ret)
{
    if (!ret->alias || !ret->alias->write || !ret->alias->nbefore || ret->type->kind != DV__TYPE_TENSOR)
        return -1;
    for (size_t i = 0; i < s->nargs; i++) {
        const dv__alias *a = s->args[i].alias;
        if (a && a->write && a->nbefore && !strcmp(a->before[0], ret->alias->before[0]) &&
            s->args[i].type->kind == DV__TYPE_TENSOR)
            return (int)i;
    }
    return -1;
}

/* Sets aliased_slot of the patterns of returns that are arguments, Tensor(a!), and adds a pattern to such a return that has
 * none. Returns a status. */
static int resolve_add_patterns_of_aliases(dv__contract *c)
{
    const dv__schema *s = c->schema;
    for (size_t i = 0; i < s->nreturns; i++) {
        const int argument = return_find_aliased_argument_index(s, &s->returns[i]);
        bool found = false;
        for (uint32_t k = 0; k < c->nresult_patterns; k++)
            if (c->result_patterns[k].slot == (int32_t)(s->nargs + i)) {
                c->result_patterns[k].aliased_slot = argument;
                found = true;
            }
        if (argument < 0 || found)
            continue;
        const int status = dv__contract_reserve_next(c, &c->result_patterns, c->nresult_patterns, sizeof *c->result_patterns);
        if (status)
            return status;
        dv__pattern *t = &c->result_patterns[c->nresult_patterns++];
        memset(t, 0, sizeof *t);
        t->when.group = -1;
        t->slot = (int32_t)(s->nargs + i);
        t->name = s->returns[i].name;
        t->at = c->text;
        t->text = s->args[argument].name;
        t->like_slot = t->viewed_slot = -1;
        t->aliased_slot = argument;
        t->dims.is_any_shape = true;
    }
    return DV_OK;
}

/* ---- Facts --------------------------------------------------------------------------------------------------------------- */

/* Sets *slot, which is -1 or the tensor found before, to the tensor whose elements a condition tests, as in ids.values or
 * sorted(ids). Fails if the condition tests several tensors. */
static int constraint_set_values_slot(const dv__contract *c, const dv__expr *e, int32_t *slot)
{
    if (e->kind == DV__EXPR_ATTR || (e->kind == DV__EXPR_CALL && e->ref == DV__FN_SORTED)) {
        if (*slot >= 0 && *slot != e->args[0]->ref)
            return resolve_fail(c, e, "a constraint can test the values of one tensor only");
        *slot = e->args[0]->ref;
    }
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = constraint_set_values_slot(c, e->args[i], slot);
    return status;
}

/* Stores e of a fact rank(*a) == e, or e == rank(*a), as the rank of *a. Other constraints are ignored. */
static void resolve_set_variadic_rank(dv__contract *c, const dv__constraint *constraint)
{
    if (constraint->e->kind != DV__EXPR_EQ || constraint->when.group >= 0)
        return;
    for (int side = 0; side < 2; side++) {
        const dv__expr *rank = constraint->e->args[side];
        if (rank->kind != DV__EXPR_CALL || rank->ref != DV__FN_RANK || rank->args[0]->role != DV__ROLE_VARIADIC)
            continue;
        dv__variadic_rank *r = &c->variadic_ranks[rank->args[0]->ref];
        dv__expr *other = constraint->e->args[1 - side];
        const dv__var_set vars = dv__expr_collect_vars(c, other);
        if (r->e || vars.variadics >> rank->args[0]->ref & 1)
            continue;
        r->e = other;
        r->text = constraint->text;
        r->vars = vars;
        return;
    }
}

/* Resolves all conditions among the facts. Returns a status. */
static int resolve_constraints(dv__contract *c)
{
    for (uint32_t i = 0; i < c->nconstraints; i++) {
        dv__constraint *k = &c->constraints[i];
        int status = dv__resolve_constraint(c, k->e);
        if (!status)
            status = constraint_set_values_slot(c, k->e, &k->values_slot);
        if (status)
            return status;
        k->vars = dv__expr_collect_vars(c, k->e);
        resolve_set_variadic_rank(c, k);
    }
    return DV_OK;
}

/* Resolves the names in parallel(...) or sum(...), and refuses repeated ones. Returns a status. */
static int resolve_dim_facts(dv__contract *c, dv__dim_fact *facts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const int ref = facts[i].is_variadic ? dv__contract_find_variadic_index(c, facts[i].name)
                                             : dv__contract_find_dim_index(c, facts[i].name);
        if (ref < 0)
            return dv__fail_at_column(DV_ECONTRACT, c->text, facts[i].at, "expected a size or a run of an input, found '%s%s'",
                facts[i].is_variadic ? "*" : "", facts[i].name);
        if (facts[i].is_variadic ? c->variadics[ref].index_name : c->dims[ref].index_name)
            return dv__fail_at_column(DV_ECONTRACT, c->text, facts[i].at,
                "'%s%s' differs from tensor to tensor: no fact holds for all of them", facts[i].is_variadic ? "*" : "",
                facts[i].name);
        facts[i].ref = (int16_t)ref;
        for (uint32_t k = 0; k < i; k++)
            if (facts[k].is_variadic == facts[i].is_variadic && facts[k].ref == ref &&
                dv__case_refs_can_both_hold(facts[k].when, facts[i].when))
                return dv__fail_at_column(DV_ECONTRACT, c->text, facts[i].at, "'%s' is given twice%s", facts[i].name,
                    facts[k].when.group == facts[i].when.group
                        ? ""
                        : ", and both may hold: a fact stands in cases of one group, or outside of all cases");
    }
    return DV_OK;
}

/* Fails unless the value of rtol, atol or rounded is a literal from 0 to below 1. e NULL: not given. */
static int resolve_check_tolerance(const dv__contract *c, const dv__expr *e, const char *fact_name)
{
    const bool is_zero = e && e->kind == DV__EXPR_INT && e->i == 0;
    if (!e || is_zero || (e->kind == DV__EXPR_FLOAT && e->f < 1))
        return DV_OK;
    return resolve_fail(
        c, e, "%s: expected a number from 0 to below 1, such as %s", fact_name, strcmp(fact_name, "rounded") ? "1e-3" : "0.5");
}

/* Checks constants of facts: tolerances, a negative workspace, and bounds of unbacked sizes that no call can satisfy. Returns a
 * status. */
static int resolve_check_constants(const dv__contract *c)
{
    int64_t least, most;
    int status = resolve_check_tolerance(c, c->rtol, "rtol");
    if (!status)
        status = resolve_check_tolerance(c, c->atol, "atol");
    if (!status)
        status = resolve_check_tolerance(c, c->rounded, "rounded");
    if (status)
        return status;
    if (c->workspace && dv__expr_try_fold_constant(c->workspace, &least) && least < 0)
        return resolve_fail(c, c->workspace, "workspace: expected a size, found the negative %lld", (long long)least);
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        const dv__unbacked_size *u = &c->unbacked[i];
        const bool has_both_bounds = dv__expr_try_fold_constant(u->max, &most) && dv__expr_try_fold_constant(u->min, &least);
        if (dv__expr_try_fold_constant(u->max, &most) && most < 0)
            return resolve_fail(c, u->max, "expected a size as the upper bound of '%s', found %lld", u->name, (long long)most);
        if (has_both_bounds && least > most)
            return resolve_fail(
                c, u->min, "'%s' has no possible size: %lld is greater than %lld", u->name, (long long)least, (long long)most);
    }
    return DV_OK;
}

/* Resolves all facts but conditions and definitions. Returns a status. */
static int resolve_facts(dv__contract *c)
{
    const struct {
        dv__expr *e;
        enum dv__type_kind type;
        const char *what;
    } costs[] = {
        { c->workspace, DV__TYPE_INT, "workspace" },
        { c->flops, DV__TYPE_NUMBER, "flops" },
        { c->bytes, DV__TYPE_NUMBER, "bytes" },
    };
    int status = resolve_dim_facts(c, c->parallel_dims, c->nparallel_dims);
    if (!status)
        status = resolve_dim_facts(c, c->summed_dims, c->nsummed_dims);
    for (size_t i = 0; i < sizeof costs / sizeof *costs && !status; i++)
        if (costs[i].e)
            status = dv__resolve_expr_in_text_as(c, c->text, costs[i].e, costs[i].type, costs[i].what);
    for (uint32_t i = 0; i < c->nunbacked && !status; i++) {
        status = dv__resolve_expr_in_text_as(c, c->text, c->unbacked[i].min, DV__TYPE_INT, "a bound");
        if (!status)
            status = dv__resolve_expr_in_text_as(c, c->text, c->unbacked[i].max, DV__TYPE_INT, "a bound");
    }
    return status ? status : resolve_check_constants(c);
}

/* Fails if a case's condition reads a size or variable: cases are selected before anything is bound. */
static int resolve_check_case_condition(const dv__contract *c, const dv__expr *e)
{
    const bool call = e->kind == DV__EXPR_CALL;
    if (e->role == DV__ROLE_ARGUMENT && e->type != DV__TYPE_STRING && e->type != DV__TYPE_BOOL)
        return resolve_fail(
            c, e, "'when' tests strings, booleans, presence, dtypes and ranks, never a size: found '%s'", e->name);
    if (e->role == DV__ROLE_DTYPE_VAR)
        return resolve_fail(c, e, "cases are chosen before anything is bound: expected dtype(argument), found '%s'", e->name);
    if (call && (e->ref == DV__FN_RANK || e->ref == DV__FN_DTYPE) && e->args[0]->type == DV__TYPE_TENSOR) {
        const dv__argument *a = &c->schema->args[e->args[0]->ref];
        return a->type->kind != DV__TYPE_OPTIONAL
            ? DV_OK
            : resolve_fail(c, e, "'%s' is optional: cases can ask for its presence only", a->name);
    }
    if (e->role == DV__ROLE_ARGUMENT || e->role == DV__ROLE_DTYPE ||
        (call && (e->ref == DV__FN_PRESENT || e->ref == DV__FN_ABSENT)))
        return DV_OK;
    if (e->kind != DV__EXPR_STRING && e->kind != DV__EXPR_INT && e->kind != DV__EXPR_BOOL && e->kind != DV__EXPR_AND &&
        e->kind != DV__EXPR_OR && e->kind != DV__EXPR_NOT && e->kind != DV__EXPR_IN &&
        (e->kind < DV__EXPR_EQ || e->kind > DV__EXPR_GE))
        return resolve_fail(c, e, "'when' tests strings, booleans, presence, dtypes and ranks, never a size");
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = resolve_check_case_condition(c, e->args[i]);
    return status;
}

/* Resolves the condition of a case. Returns a status. */
static int resolve_case(const dv__contract *c, dv__expr *e)
{
    const int status = dv__resolve_expr_in_text_as(c, c->text, e, DV__TYPE_BOOL, "a case");
    return status ? status : resolve_check_case_condition(c, e);
}

/* Resolves all names of a parsed contract, and checks types. Fails with DV_ECONTRACT. */
int dv__contract_resolve(dv__contract *c)
{
    int status = resolve_create_variables(c);
    if (!status)
        status = resolve_argument_patterns(c);
    for (uint32_t g = 0; g < c->ngroups && !status; g++)
        for (uint32_t i = 0; i < c->groups[g].n && !status; i++)
            if (c->groups[g].cases[i].e)
                status = resolve_case(c, c->groups[g].cases[i].e);
    if (!status)
        status = resolve_constraints(c);
    if (!status)
        status = resolve_add_patterns_of_aliases(c);
    for (uint32_t i = 0; i < c->nresult_patterns && !status; i++)
        status = resolve_result(c, &c->result_patterns[i]);
    if (!status)
        status = resolve_facts(c);
    return status;
}
