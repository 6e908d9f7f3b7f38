/* Patterns create variables: a name in the dims or the dtype of an input that is not an argument of the schema is a size, a run
 * or a dtype variable; everywhere else a name must exist (contract_type.c). Then each part of the contract is resolved and
 * completed. */
#include <assert.h>

#include "lang/contract_internal.h"

#define wrong(c, e, ...) dv__fail_at(DV_ECONTRACT, (c)->text, (e)->at, __VA_ARGS__)

/* ---- Variables ----------------------------------------------------------------------------------------------------------- */

/* One name, one meaning. */
static int check_free(const dv__contract *c, const dv__expr *e, const char *as)
{
    uint32_t key;
    const char *already = dv__schema_arg(c->schema, e->name) >= 0 ? "an argument"
        : dv__dtype_lookup(e->name, &key)                         ? "a dtype"
        : dv__find_dim(c, e->name) >= 0                           ? "a size"
        : dv__find_run(c, e->name) >= 0                           ? "a run of dims"
        : dv__find_dtype_var(c, e->name) >= 0                     ? "a dtype variable"
                                                                  : NULL;
    return already ? wrong(c, e, "'%s' is %s: it cannot be %s too", e->name, already, as) : DV_OK;
}

static int add_dim(dv__contract *c, const dv__expr *e, const char *index, const char *as, int *out)
{
    const int status = check_free(c, e, as);
    if (status)
        return status;
    if (c->ndims == DV__MAX_DIM_VARS)
        return dv__fail_at(DV_ELIMIT, c->text, e->at, "more than %d sizes", DV__MAX_DIM_VARS);
    *out = (int)c->ndims;
    c->dims[c->ndims++] = (dv__dim_var){ .name = e->name, .at = e->at, .index = index };
    return DV_OK;
}

static int add_run(dv__contract *c, const dv__expr *e, const char *index)
{
    const int status = check_free(c, e, "a run of dims");
    if (status)
        return status;
    if (c->nruns == DV__MAX_RUNS)
        return dv__fail_at(DV_ELIMIT, c->text, e->at, "more than %d runs of dims", DV__MAX_RUNS);
    c->runs[c->nruns++] = (dv__run_var){ e->name, index };
    return DV_OK;
}

/* Make variables of the names in an input's dim. */
static int create_in(dv__contract *c, const dv__expr *e)
{
    int status = DV_OK, dim;
    if (e->index)
        return wrong(c, e, "%s%s{%s} may only stand alone in the pattern of an argument", e->kind == DV__EXPR_STAR ? "*" : "",
            e->name, e->index);
    if (e->kind == DV__EXPR_NAME && dv__schema_arg(c->schema, e->name) < 0 && dv__find_dim(c, e->name) < 0)
        return add_dim(c, e, NULL, "a size", &dim);
    if (e->kind == DV__EXPR_STAR && dv__schema_arg(c->schema, e->name) < 0 && dv__find_run(c, e->name) < 0)
        return add_run(c, e, NULL);
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = create_in(c, e->args[i]);
    return status;
}

/* Does an item of another list have this name already? */
static const dv__pattern *list_with(const dv__contract *c, const dv__pattern *before, const dv__expr *e)
{
    for (const dv__pattern *t = c->patterns; t < before; t++)
        for (uint32_t k = 0; k < t->dims.n; k++)
            if (t->dims.items[k].e->role == e->role && !strcmp(t->dims.items[k].e->name, e->name))
                return t;
    return NULL;
}

/* n{i}, *s{i}: the first list that has the name binds it, for each tensor; lists of the same index may have it too. */
static int create_element(dv__contract *c, const dv__pattern *t, dv__item *item)
{
    dv__expr *e = item->e;
    const bool run = e->role == DV__ROLE_ELEMENT_RUN;
    const char *star = run ? "*" : "";
    if (t->kind != DV__PATTERN_LIST)
        return wrong(c, e, "%s%s{i} is for lists of tensors, and '%s' is not one", star, e->name, t->name);
    const dv__pattern *other = list_with(c, t, e);
    int ref = run ? dv__find_run(c, e->name) : dv__find_dim(c, e->name), status = DV_OK;
    const char *index = ref < 0 ? NULL : run ? c->runs[ref].index : c->dims[ref].index;
    assert(!other || index); /* that list's names were created before */
    if (ref >= 0 && !other)
        return wrong(
            c, e, "'%s%s' has a meaning already: %s%s{%s} needs a name of its own", star, e->name, star, e->name, t->index);
    if (other && strcmp(index, t->index) != 0)
        return wrong(c, e, "%s%s{%s} belongs to the lists with index %s: '%s' has index %s", star, e->name, index, index, t->name,
            t->index);
    if (other && (other->may_be_empty || t->may_be_empty))
        return wrong(c, e, "'%s' may hold None: it cannot share %s%s{%s} with another list",
            other->may_be_empty ? other->name : t->name, star, e->name, index);
    if (ref < 0 && run)
        status = add_run(c, e, t->index), ref = (int)c->nruns - 1;
    else if (ref < 0)
        status = add_dim(c, e, t->index, "a size of each tensor", &ref);
    if (status)
        return status;
    e->ref = ref;
    e->type = run ? DV__CTYPE_RUN : DV__CTYPE_INT;
    return DV_OK;
}

static int create_dtype_var(dv__contract *c, dv__expr *e)
{
    uint32_t key;
    const int slot = dv__schema_arg(c->schema, e->name);
    if (dv__dtype_lookup(e->name, &key) || dv__find_dtype_var(c, e->name) >= 0)
        return DV_OK;
    if (slot >= 0 && dv__type_of_argument(c->schema->args[slot].type) == DV__CTYPE_DTYPE)
        return DV_OK;
    const int status = check_free(c, e, "a dtype variable");
    if (status)
        return status;
    char hint[160];
    if (dv__looks_like_dtype(e->name))
        return wrong(c, e, "expected a dtype such as f32, found '%s'%s (a variable of that name needs '%s in ...')", e->name,
            dv__dtype_hint(e->name, hint, sizeof hint), e->name);
    if (c->ndtypes == DV__MAX_DTYPE_VARS)
        return dv__fail_at(DV_ELIMIT, c->text, e->at, "more than %d dtype variables", DV__MAX_DTYPE_VARS);
    c->dtypes[c->ndtypes++] = (dv__dtype_var){ e->name, e->at, NULL, 0 };
    return DV_OK;
}

/* ---- Patterns ------------------------------------------------------------------------------------------------------------ */

static int add_aside(dv__contract *c, int pattern, int item, const char *at, int8_t *bit)
{
    if (c->nasides == DV__MAX_ASIDES)
        return dv__fail_at(DV_ELIMIT, c->text, at, "more than %d computed dims", DV__MAX_ASIDES);
    c->asides[c->nasides] = (dv__aside){ (int16_t)pattern, (int16_t)item };
    *bit = (int8_t)c->nasides++;
    return DV_OK;
}

/* pattern: its index for inputs, -1 for outputs. */
static int resolve_item(dv__contract *c, dv__item *item, int pattern, int index, const dv__pattern *list)
{
    dv__expr *e = item->e;
    const bool each = e->index && pattern >= 0; /* create_element() has resolved it */
    if (!each) {
        const int status = dv__resolve(c, e, list);
        if (status)
            return status;
        if (e->type != DV__CTYPE_INT && e->type != DV__CTYPE_RUN)
            return wrong(c, e,
                e->type == DV__CTYPE_INTS ? "expected a dim, found %s: a run of its elements is written *%s"
                                          : "expected a dim, found %s",
                dv__ctype_text(e->type), e->name ? e->name : "");
    }
    item->text = dv__contract_text_of(c, e);
    item->needs = dv__contract_needs(c, e);
    if (!item->text)
        return DV_ENOMEM;
    item->ref = (int16_t)e->ref;
    item->kind = e->role == DV__ROLE_ELEMENT ? DV__ITEM_ELEMENT
        : e->role == DV__ROLE_ELEMENT_RUN    ? DV__ITEM_ELEMENT_RUN
        : e->role == DV__ROLE_DIM            ? DV__ITEM_VAR
        : e->kind == DV__EXPR_INT            ? DV__ITEM_INT
        : e->role == DV__ROLE_RUN            ? DV__ITEM_RUN
        : e->type == DV__CTYPE_RUN           ? DV__ITEM_RUNS
                                             : DV__ITEM_EXPR;
    item->value = e->i;
    if (e->kind == DV__EXPR_NEG && e->args[0]->kind == DV__EXPR_INT && e->args[0]->i)
        return wrong(c, e, "expected a size, found the negative %s", item->text);
    if (item->kind == DV__ITEM_EXPR && pattern >= 0 && item->needs.dims)
        return add_aside(c, pattern, index, e->at, &item->aside);
    return DV_OK;
}

static int resolve_dims(dv__contract *c, dv__dims *dims, int pattern, const dv__pattern *list)
{
    for (uint32_t i = 0; i < dims->n; i++) {
        const int status = resolve_item(c, &dims->items[i], pattern, (int)i, list);
        if (status)
            return status;
        dims->singles += dims->items[i].e->type == DV__CTYPE_INT;
    }
    return DV_OK;
}

static int resolve_dtype(dv__contract *c, dv__dtype_spec *spec, const dv__pattern *list)
{
    for (uint32_t i = 0; i < spec->n; i++) {
        dv__expr *e = spec->alternatives[i];
        const int status = dv__resolve_as(c, e, DV__CTYPE_DTYPE, list);
        if (status)
            return status;
        if (spec->n > 1 && e->role != DV__ROLE_DTYPE)
            return wrong(c, e, "expected dtypes around '|', found '%s'", e->name ? e->name : "an expression");
        if (spec->n == 1 && e->role == DV__ROLE_DTYPE)
            spec->kind = DV__DTYPE_ONE, spec->one = (uint32_t)e->i;
        else if (spec->n == 1 && e->role == DV__ROLE_DTYPE_VAR)
            spec->kind = DV__DTYPE_VAR, spec->ref = (int16_t)e->ref;
    }
    return DV_OK;
}

/* Variables first, in all inputs, so that an earlier pattern may use a later one's. */
static int create_variables(dv__contract *c)
{
    int status = DV_OK;
    for (uint32_t i = 0; i < c->npatterns; i++) {
        dv__pattern *t = &c->patterns[i];
        for (uint32_t k = 0; k < t->dims.n && !status; k++) {
            dv__item *item = &t->dims.items[k];
            status = item->e->role ? create_element(c, t, item) : create_in(c, item->e);
        }
        for (uint32_t k = 0; k < t->dtype.n && !status; k++)
            if (t->dtype.alternatives[k]->kind == DV__EXPR_NAME)
                status = create_dtype_var(c, t->dtype.alternatives[k]);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < c->ndefinitions; i++) {
        dv__definition *d = &c->definitions[i];
        const dv__expr name = { .kind = DV__EXPR_NAME, .name = d->name, .at = d->at };
        int dim = dv__find_dim(c, d->name);
        if (dim < 0)
            status = add_dim(c, &name, NULL, "a definition", &dim);
        if (status)
            return status;
        d->var = (int16_t)dim;
        c->dims[dim].defined = true;
        for (uint32_t k = 0; k < i; k++)
            if (c->definitions[k].var == dim && dv__when_meet(c->definitions[k].when, d->when))
                return dv__fail_at(DV_ECONTRACT, c->text, d->at, "'%s' is given twice; write == for a condition on it", d->name);
    }
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        const dv__expr name = { .kind = DV__EXPR_NAME, .name = c->unbacked[i].name, .at = c->unbacked[i].at };
        int dim;
        status = add_dim(c, &name, NULL, "an unbacked size", &dim);
        if (status)
            return status;
        c->unbacked[i].var = (int16_t)dim;
        c->dims[dim].unbacked = true;
    }
    return DV_OK;
}

static int resolve_inputs(dv__contract *c)
{
    for (uint32_t i = 0; i < c->npatterns; i++) {
        dv__pattern *t = &c->patterns[i];
        int status = resolve_dims(c, &t->dims, (int)i, NULL);
        if (!status)
            status = resolve_dtype(c, &t->dtype, NULL);
        if (status)
            return status;
        if (t->kind == DV__PATTERN_INTS && !t->dims.any && (t->dims.n != 1 || t->dims.singles != 1))
            return dv__fail_at(
                DV_ECONTRACT, c->text, t->at, "'%s' is not a list of tensors: its pattern has one dim, its length", t->name);
    }
    for (uint32_t i = 0; i < c->ndefinitions; i++) {
        dv__definition *d = &c->definitions[i];
        int status = dv__contract_resolve_expr(c, c->text, d->e, DV__CTYPE_INT, "a definition");
        if (!status)
            status = add_aside(c, -1, (int)i, d->at, &d->aside);
        if (status)
            return status;
        d->needs = dv__contract_needs(c, d->e);
    }
    return DV_OK;
}

/* ---- Outputs ------------------------------------------------------------------------------------------------------------- */

/* Make a call of a function on an argument, for parts that like(x) and view(x) leave out. */
static dv__expr *call_on(dv__contract *c, enum dv__function fn, int slot, const dv__pattern *t)
{
    dv__expr *call = DV__ARENA_NEW(&c->arena, dv__expr), *arg = DV__ARENA_NEW(&c->arena, dv__expr);
    dv__expr **args = DV__ARENA_ARRAY(&c->arena, dv__expr *, 1);
    if (!call || !arg || !args)
        return NULL;
    arg->kind = DV__EXPR_NAME;
    arg->name = c->schema->args[slot].name;
    arg->at = call->at = t->at;
    if (dv__type_of_argument(c->schema->args[slot].type) == DV__CTYPE_TENSORS)
        arg->index = t->index;
    call->kind = DV__EXPR_CALL;
    call->name = dv__function_name(fn);
    call->args = args;
    call->n = call->depth = 1;
    args[0] = arg;
    return call;
}

static int complete_output(dv__contract *c, dv__pattern *t)
{
    const int source = t->view_of >= 0 ? t->view_of : t->like;
    if (t->presence == DV__ABSENT || t->is_argument >= 0 || source < 0)
        return DV_OK;
    if (!t->dims.given && !t->transform) {
        int status = dv__contract_grow(c, &t->dims.items, 0, sizeof *t->dims.items);
        if (status)
            return status;
        memset(t->dims.items, 0, sizeof *t->dims.items);
        t->dims.items[0].aside = -1;
        t->dims.items[0].e = call_on(c, DV__FN_SHAPE, source, t);
        t->dims.n = 1;
        if (!t->dims.items[0].e)
            return DV_ENOMEM;
    }
    if (!t->dtype.n) {
        const int status = dv__contract_grow(c, &t->dtype.alternatives, 0, sizeof *t->dtype.alternatives);
        if (status)
            return status;
        t->dtype.alternatives[0] = call_on(c, DV__FN_DTYPE, source, t);
        t->dtype.kind = DV__DTYPE_EXPR;
        t->dtype.n = 1;
        if (!t->dtype.alternatives[0])
            return DV_ENOMEM;
    }
    return DV_OK;
}

/* swap(d0, d1), permute(dims), narrow(dim, start, length), select(dim, index) */
static int resolve_transform(dv__contract *c, dv__expr *e, const dv__pattern *list)
{
    static const struct {
        const char *name;
        uint32_t n;
    } transforms[] = { { "swap", 2 }, { "permute", 1 }, { "narrow", 3 }, { "select", 2 } };
    for (int i = 0; i < 4; i++) {
        if (e->kind != DV__EXPR_CALL || strcmp(e->name, transforms[i].name) != 0)
            continue;
        if (e->n != transforms[i].n)
            return wrong(c, e, "expected %u operands of %s() in a view, found %u", transforms[i].n, e->name, e->n);
        e->ref = i;
        for (uint32_t k = 0; k < e->n; k++) {
            const int status = dv__resolve_as(c, e->args[k], i == 1 ? DV__CTYPE_INTS : DV__CTYPE_INT, list);
            if (status)
                return status;
        }
        return DV_OK;
    }
    return wrong(c, e, "expected swap(d0, d1), permute(dims), narrow(dim, start, length) or select(dim, index) in view()");
}

/* How many tensors a returned list has. Its index is a name of its own, or that of lists of arguments, which say how many. */
static int resolve_count(dv__contract *c, dv__pattern *t)
{
    bool lists = false;
    if (!t->index)
        return DV_OK;
    const dv__expr index = { .kind = DV__EXPR_NAME, .name = t->index, .at = t->at };
    const int status = check_free(c, &index, "the index of a list");
    if (status)
        return status;
    for (uint32_t i = 0; i < c->npatterns; i++) {
        const dv__pattern *list = &c->patterns[i];
        const bool source = list->slot == t->like || list->slot == t->view_of;
        lists |= list->kind == DV__PATTERN_LIST && list->index && (!list->dims.any || source) && !strcmp(list->index, t->index);
    }
    if (t->count && lists)
        return dv__fail_at(DV_ECONTRACT, c->text, t->count->at,
            "%s is the index of an input list and already counts its tensors: a count needs another index", t->index);
    if (!t->count && !lists)
        return dv__fail_at(DV_ECONTRACT, c->text, t->at,
            "no list of the inputs has the index %s: expected {%s < count}, how many tensors are returned", t->index, t->index);
    if (!t->count)
        return DV_OK;
    t->count_needs = (dv__needs){ 0, 0, 0 };
    const int wrong_type = dv__contract_resolve_expr(c, c->text, t->count, DV__CTYPE_INT, "a number of tensors");
    if (!wrong_type)
        t->count_needs = dv__contract_needs(c, t->count);
    return wrong_type;
}

static bool has_set(const char *const *sets, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(sets[i], name) || !strcmp(sets[i], "*"))
            return true;
    return false;
}

/* Does the schema declare that the return may share the argument's memory? Hosts believe the schema. */
static bool is_alias(const dv__argument *ret, const dv__argument *arg)
{
    for (const dv__alias *r = ret->alias; r; r = r->element)
        for (const dv__alias *a = arg->alias; a; a = a->element)
            for (size_t i = 0; i < r->nbefore; i++)
                if (has_set(a->before, a->nbefore, r->before[i]) || has_set(a->after, a->nafter, r->before[i]))
                    return true;
    return false;
}

/* Does it share the memory of an argument that it does not write? */
static bool is_declared_view(const dv__argument *ret)
{
    for (const dv__alias *r = ret->alias; r; r = r->element)
        if (r->nbefore && !r->write)
            return true;
    return false;
}

static int resolve_output(dv__contract *c, dv__pattern *t)
{
    const dv__pattern *list = t->index ? t : NULL;
    int status = complete_output(c, t);
    if (!status)
        status = resolve_count(c, t);
    if (!status)
        status = resolve_dims(c, &t->dims, -1, list);
    if (!status)
        status = resolve_dims(c, &t->strides, -1, list);
    if (!status)
        status = resolve_dtype(c, &t->dtype, list);
    if (!status && t->transform)
        status = resolve_transform(c, t->transform, list);
    if (!status && t->offset)
        status = dv__resolve_as(c, t->offset, DV__CTYPE_INT, list);
    if (status)
        return status;
    const bool said = t->dims.any || t->presence == DV__ABSENT || t->is_argument >= 0;
    if (!said && t->dtype.kind == DV__DTYPE_ANY)
        return dv__fail_at(DV_ECONTRACT, c->text, t->at, "an output needs a dtype: expected ':' and a dtype after '%s'", t->text);
    if (t->dtype.kind == DV__DTYPE_SET)
        return dv__fail_at(DV_ECONTRACT, c->text, t->at, "an output has one dtype, found '%s'", t->text);
    for (uint32_t i = 0; i < t->dims.n; i++)
        for (uint32_t u = 0; u < c->nunbacked; u++)
            t->unbacked |= (t->dims.items[i].needs.dims >> c->unbacked[u].var & 1) != 0;
    for (uint32_t u = 0; u < c->nunbacked && t->kind == DV__PATTERN_LIST; u++)
        if (t->unbacked || t->count_needs.dims >> c->unbacked[u].var & 1)
            return dv__fail_at(DV_ECONTRACT, c->text, t->at,
                "'%s' is unbacked: the sizes and the number of a list's tensors are known before the "
                "kernel runs",
                c->unbacked[u].name);
    if (t->has_strides && (t->strides.singles != t->strides.n || !t->dims.given))
        return dv__fail_at(DV_ECONTRACT, c->text, t->at, "strides[...] need dims, and have one stride for each");
    const dv__schema *schema = c->schema;
    const dv__argument *ret = &schema->returns[(size_t)t->slot - schema->nargs];
    if (t->view_of < 0 && t->presence != DV__ABSENT && is_declared_view(ret))
        return dv__fail_at(DV_ECONTRACT, c->text, t->at,
            "the schema declares what is returned as a view of an argument: expected view(...) in each case, found '%s'",
            t->text);
    if (t->view_of >= 0 && !is_alias(ret, &schema->args[t->view_of]))
        return dv__fail_at(DV_ECONTRACT, c->text, t->at,
            "the schema does not declare this view: expected Tensor(a) as the types of '%s' and of what is returned",
            schema->args[t->view_of].name);
    return DV_OK;
}

/* The argument that a return Tensor(a!) is, or -1. */
static int aliased_argument(const dv__schema *s, const dv__argument *ret)
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

/* Returns that are arguments need no pattern: they get one here. */
static int add_aliased_outputs(dv__contract *c)
{
    const dv__schema *s = c->schema;
    for (size_t i = 0; i < s->nreturns; i++) {
        const int argument = aliased_argument(s, &s->returns[i]);
        bool found = false;
        for (uint32_t k = 0; k < c->noutputs; k++)
            if (c->outputs[k].slot == (int32_t)(s->nargs + i)) {
                c->outputs[k].is_argument = argument;
                found = true;
            }
        if (argument < 0 || found)
            continue;
        const int status = dv__contract_grow(c, &c->outputs, c->noutputs, sizeof *c->outputs);
        if (status)
            return status;
        dv__pattern *t = &c->outputs[c->noutputs++];
        memset(t, 0, sizeof *t);
        t->when.group = -1;
        t->slot = (int32_t)(s->nargs + i);
        t->name = s->returns[i].name;
        t->at = c->text;
        t->text = s->args[argument].name;
        t->like = t->view_of = -1;
        t->is_argument = argument;
        t->dims.any = true;
    }
    return DV_OK;
}

/* ---- Facts --------------------------------------------------------------------------------------------------------------- */

static int find_values(const dv__contract *c, const dv__expr *e, int32_t *slot)
{
    if (e->kind == DV__EXPR_ATTR || (e->kind == DV__EXPR_CALL && e->ref == DV__FN_SORTED)) {
        if (*slot >= 0 && *slot != e->args[0]->ref)
            return wrong(c, e, "a constraint can test the values of one tensor only");
        *slot = e->args[0]->ref;
    }
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = find_values(c, e->args[i], slot);
    return status;
}

/* rank(*a) == e, either way round */
static void note_run_rank(dv__contract *c, const dv__constraint *k)
{
    if (k->e->kind != DV__EXPR_EQ || k->when.group >= 0)
        return;
    for (int side = 0; side < 2; side++) {
        const dv__expr *rank = k->e->args[side];
        if (rank->kind != DV__EXPR_CALL || rank->ref != DV__FN_RANK || rank->args[0]->role != DV__ROLE_RUN)
            continue;
        dv__run_rank *r = &c->run_ranks[rank->args[0]->ref];
        dv__expr *other = k->e->args[1 - side];
        const dv__needs needs = dv__contract_needs(c, other);
        if (r->e || needs.runs >> rank->args[0]->ref & 1)
            continue;
        r->e = other;
        r->text = k->text;
        r->needs = needs;
        return;
    }
}

static int resolve_constraints(dv__contract *c)
{
    for (uint32_t i = 0; i < c->nconstraints; i++) {
        dv__constraint *k = &c->constraints[i];
        int status = dv__resolve_constraint(c, k->e);
        if (!status)
            status = find_values(c, k->e, &k->values);
        if (status)
            return status;
        k->needs = dv__contract_needs(c, k->e);
        note_run_rank(c, k);
    }
    return DV_OK;
}

static int resolve_named(dv__contract *c, dv__named *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const int ref = list[i].run ? dv__find_run(c, list[i].name) : dv__find_dim(c, list[i].name);
        if (ref < 0)
            return dv__fail_at(DV_ECONTRACT, c->text, list[i].at, "expected a size or a run of an input, found '%s%s'",
                list[i].run ? "*" : "", list[i].name);
        if (list[i].run ? c->runs[ref].index : c->dims[ref].index)
            return dv__fail_at(DV_ECONTRACT, c->text, list[i].at,
                "'%s%s' differs from tensor to tensor: no fact holds for all of them", list[i].run ? "*" : "", list[i].name);
        list[i].ref = (int16_t)ref;
        for (uint32_t k = 0; k < i; k++)
            if (list[k].run == list[i].run && list[k].ref == ref && dv__when_meet(list[k].when, list[i].when))
                return dv__fail_at(DV_ECONTRACT, c->text, list[i].at, "'%s' is given twice%s", list[i].name,
                    list[k].when.group == list[i].when.group
                        ? ""
                        : ", and both may hold: a fact stands in cases of one group, or outside of all cases");
    }
    return DV_OK;
}

static int check_tolerance(const dv__contract *c, const dv__expr *e, const char *what)
{
    const bool whole = e && e->kind == DV__EXPR_INT && e->i == 0;
    if (!e || whole || (e->kind == DV__EXPR_FLOAT && e->f < 1))
        return DV_OK;
    return wrong(c, e, "%s: expected a number from 0 to below 1, such as %s", what, strcmp(what, "rounded") ? "1e-3" : "0.5");
}

/* What no call could find right. */
static int check_constants(const dv__contract *c)
{
    int64_t least, most;
    int status = check_tolerance(c, c->rtol, "rtol");
    if (!status)
        status = check_tolerance(c, c->atol, "atol");
    if (!status)
        status = check_tolerance(c, c->rounded, "rounded");
    if (status)
        return status;
    if (c->workspace && dv__constant(c->workspace, &least) && least < 0)
        return wrong(c, c->workspace, "workspace: expected a size, found the negative %lld", (long long)least);
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        const dv__unbacked *u = &c->unbacked[i];
        const bool two = dv__constant(u->max, &most) && dv__constant(u->min, &least);
        if (dv__constant(u->max, &most) && most < 0)
            return wrong(c, u->max, "expected a size as the upper bound of '%s', found %lld", u->name, (long long)most);
        if (two && least > most)
            return wrong(
                c, u->min, "'%s' has no possible size: %lld is greater than %lld", u->name, (long long)least, (long long)most);
    }
    return DV_OK;
}

static int resolve_facts(dv__contract *c)
{
    const struct {
        dv__expr *e;
        enum dv__ctype type;
        const char *what;
    } costs[] = {
        { c->workspace, DV__CTYPE_INT, "workspace" },
        { c->flops, DV__CTYPE_NUMBER, "flops" },
        { c->bytes, DV__CTYPE_NUMBER, "bytes" },
    };
    int status = resolve_named(c, c->parallel, c->nparallel);
    if (!status)
        status = resolve_named(c, c->sums, c->nsums);
    for (size_t i = 0; i < sizeof costs / sizeof *costs && !status; i++)
        if (costs[i].e)
            status = dv__contract_resolve_expr(c, c->text, costs[i].e, costs[i].type, costs[i].what);
    for (uint32_t i = 0; i < c->nunbacked && !status; i++) {
        status = dv__contract_resolve_expr(c, c->text, c->unbacked[i].min, DV__CTYPE_INT, "a bound");
        if (!status)
            status = dv__contract_resolve_expr(c, c->text, c->unbacked[i].max, DV__CTYPE_INT, "a bound");
    }
    return status ? status : check_constants(c);
}

/* Cases are chosen before anything is bound. */
static int check_case(const dv__contract *c, const dv__expr *e)
{
    const bool call = e->kind == DV__EXPR_CALL;
    if (e->role == DV__ROLE_ARG && e->type != DV__CTYPE_STRING && e->type != DV__CTYPE_BOOL)
        return wrong(c, e, "'when' tests strings, booleans, presence, dtypes and ranks, never a size: found '%s'", e->name);
    if (e->role == DV__ROLE_DTYPE_VAR)
        return wrong(c, e, "cases are chosen before anything is bound: expected dtype(argument), found '%s'", e->name);
    if (call && (e->ref == DV__FN_RANK || e->ref == DV__FN_DTYPE) && e->args[0]->type == DV__CTYPE_TENSOR) {
        const dv__argument *a = &c->schema->args[e->args[0]->ref];
        return a->type->kind != DV__TYPE_OPTIONAL ? DV_OK
                                                  : wrong(c, e, "'%s' is optional: cases can ask for its presence only", a->name);
    }
    if (e->role == DV__ROLE_ARG || e->role == DV__ROLE_DTYPE || (call && (e->ref == DV__FN_PRESENT || e->ref == DV__FN_ABSENT)))
        return DV_OK;
    if (e->kind != DV__EXPR_STRING && e->kind != DV__EXPR_INT && e->kind != DV__EXPR_BOOL && e->kind != DV__EXPR_AND &&
        e->kind != DV__EXPR_OR && e->kind != DV__EXPR_NOT && e->kind != DV__EXPR_IN &&
        (e->kind < DV__EXPR_EQ || e->kind > DV__EXPR_GE))
        return wrong(c, e, "'when' tests strings, booleans, presence, dtypes and ranks, never a size");
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = check_case(c, e->args[i]);
    return status;
}

static int resolve_case(const dv__contract *c, dv__expr *e)
{
    const int status = dv__contract_resolve_expr(c, c->text, e, DV__CTYPE_BOOL, "a case");
    return status ? status : check_case(c, e);
}

int dv__contract_resolve(dv__contract *c)
{
    int status = create_variables(c);
    if (!status)
        status = resolve_inputs(c);
    for (uint32_t g = 0; g < c->ngroups && !status; g++)
        for (uint32_t i = 0; i < c->groups[g].n && !status; i++)
            if (c->groups[g].cases[i].e)
                status = resolve_case(c, c->groups[g].cases[i].e);
    if (!status)
        status = resolve_constraints(c);
    if (!status)
        status = add_aliased_outputs(c);
    for (uint32_t i = 0; i < c->noutputs && !status; i++)
        status = resolve_output(c, &c->outputs[i]);
    if (!status)
        status = resolve_facts(c);
    return status;
}
