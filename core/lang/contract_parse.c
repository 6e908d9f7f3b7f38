/* Parses a contract's text to patterns and unresolved expressions. contract_resolve.c finds the meaning of names. Only the
 * schema's arguments and returns are looked up here, because the syntax depends on them. */
#include "lang/contract_internal.h"

#include <stdio.h>

struct contract_parser {
    dv__contract *c;
    dv__lexer lx;
    dv__case_ref when;      /* the case of the patterns and facts that are being parsed */
    size_t next_result;     /* the return that the next unnamed result describes */
    const char *index_name; /* the index i of the list xs{i} whose pattern is being parsed; NULL: not a list */
};

/* Grows *(void **)array, which has n elements, so that one more fits. Returns DV_OK or DV_ENOMEM. */
int dv__arena_reserve_next(dv__arena *arena, void *array, uint32_t n, size_t element_size)
{
    if (n && (n < 4 || (n & (n - 1))))
        return DV_OK; /* the capacity, 4, 8, 16..., is not used up */
    void *old, *grown = dv__arena_alloc(arena, (n ? n * 2 : 4) * element_size);
    if (!grown)
        return DV_ENOMEM;
    memcpy(&old, array, sizeof old);
    if (n)
        memcpy(grown, old, n * element_size);
    memcpy(array, &grown, sizeof grown);
    return DV_OK;
}

/* Grows *(void **)array, which has n elements in the contract's arena, so that one more fits. Returns DV_OK or DV_ENOMEM. */
int dv__contract_reserve_next(dv__contract *c, void *array, uint32_t n, size_t element_size)
{
    return dv__arena_reserve_next(&c->arena, array, n, element_size);
}

#define contract_parse_fail(p, at, ...) dv__fail_at_column(DV_ECONTRACT, (p)->c->text, at, __VA_ARGS__)

/* Copies the text from `start` up to the current token, without spaces at its end, to the arena. Returns a status. */
static int contract_parse_copy_text_from(struct contract_parser *p, const char *start, const char **out)
{
    const char *end = p->lx.token.start;
    while (end > start && strchr(" \t\r\n", end[-1]))
        end--;
    *out = dv__arena_strndup(&p->c->arena, start, (size_t)(end - start));
    return *out ? DV_OK : DV_ENOMEM;
}

/* Copies the current token's text to the arena. Returns a status. */
static int contract_parse_copy_current_token(struct contract_parser *p, const char **out)
{
    *out = dv__arena_strndup(&p->c->arena, p->lx.token.start, p->lx.token.size);
    return *out ? DV_OK : DV_ENOMEM;
}

/* Returns the index of the argument or return with this name; -1: there is none. */
static int contract_parse_find_index_by_name(const dv__argument *list, size_t n, dv__token name)
{
    for (size_t i = 0; i < n; i++)
        if (*list[i].name && dv__token_is(name, list[i].name))
            return (int)i;
    return -1;
}

/* Prints the names of arguments or returns, "'a', 'b', 'c'", for messages. */
static void contract_parse_print_names(char *to, size_t capacity, const dv__argument *list, size_t n)
{
    size_t used = 0;
    *to = 0;
    for (size_t i = 0; i < n && used < capacity; i++)
        used += (size_t)snprintf(to + used, capacity - used, "%s'%s'", i ? ", " : "", list[i].name);
}

/* Returns the type without the optional around it. */
static const dv__type *contract_parse_strip_optional(const dv__type *type)
{
    return type->kind == DV__TYPE_OPTIONAL && type->nelems ? type->elems[0] : type;
}

/* ---- Dims and patterns --------------------------------------------------------------------------------------------------- */

/* Appends an item with this expression to dims. Returns a status. */
static int contract_parse_add_item(struct contract_parser *p, dv__dims *dims, dv__expr *e)
{
    int status = dv__contract_reserve_next(p->c, &dims->items, dims->n, sizeof *dims->items);
    if (status)
        return status;
    dv__dim_item *item = &dims->items[dims->n++];
    memset(item, 0, sizeof *item);
    item->e = e;
    item->deferred_bit = -1;
    return DV_OK;
}

/* Parses "i}" of xs{i}, behind the brace. expected: noun for the message of a failure. Returns a status. */
static int contract_parse_index_name(struct contract_parser *p, const char *expected, const char **index_name)
{
    if (p->lx.token.kind != DV__TOKEN_IDENT)
        return dv__lexer_fail_expected(&p->lx, "%s", expected);
    const int status = contract_parse_copy_current_token(p, index_name);
    dv__lexer_next(&p->lx);
    return status ? status : dv__lexer_expect(&p->lx, "}");
}

/* True if the current token can begin a dim. */
static bool contract_parse_is_at_dim(const dv__lexer *lx)
{
    return lx->token.kind == DV__TOKEN_IDENT || lx->token.kind == DV__TOKEN_INT || dv__lexer_is_at(lx, "*") ||
        dv__lexer_is_at(lx, "(") || dv__lexer_is_at(lx, "-");
}

/* Parses [dims] or [...]. Returns a status. */
static int contract_parse_dims(struct contract_parser *p, dv__dims *dims)
{
    int status = dv__lexer_expect(&p->lx, "[");
    if (status)
        return status;
    dims->is_written = true;
    if (dv__lexer_try_accept(&p->lx, "...")) {
        dims->is_any_shape = true;
        return dv__lexer_expect(&p->lx, "]");
    }
    while (!dv__lexer_try_accept(&p->lx, "]")) {
        dv__expr *e = NULL;
        if (!contract_parse_is_at_dim(&p->lx))
            return dv__lexer_fail_expected(&p->lx, "a dim or ']'");
        status = dv__expr_parse_dim(&p->lx, &p->c->arena, &e);
        if (!status)
            status = contract_parse_add_item(p, dims, e);
        if (status)
            return status;
        if (e->index_name && p->index_name && strcmp(e->index_name, p->index_name) != 0)
            return contract_parse_fail(
                p, strchr(e->at, '{'), "expected {%s}, the index of this list, found {%s}", p->index_name, e->index_name);
        if (e->index_name)
            e->role = e->kind == DV__EXPR_VARIADIC ? DV__ROLE_PER_TENSOR_VARIADIC : DV__ROLE_PER_TENSOR_DIM;
        if (dv__lexer_try_accept(&p->lx, ",") && dv__lexer_is_at(&p->lx, "]"))
            return dv__lexer_fail_expected(&p->lx, "a dim after ','");
    }
    return DV_OK;
}

/* Parses the dtype after ':': T, f32, f32|bf16, promote(T, U) or any. Returns a status. */
static int contract_parse_dtype(struct contract_parser *p, dv__dtype_spec *spec)
{
    if (dv__lexer_try_accept(&p->lx, "any"))
        return DV_OK;
    do {
        dv__expr *e = NULL;
        if (p->lx.token.kind != DV__TOKEN_IDENT)
            return dv__lexer_fail_expected(&p->lx, "a dtype or a dtype variable");
        int status = dv__expr_parse_primary(&p->lx, &p->c->arena, &e);
        if (!status)
            status = dv__contract_reserve_next(p->c, &spec->alternatives, spec->n, sizeof *spec->alternatives);
        if (status)
            return status;
        spec->alternatives[spec->n++] = e;
    } while (dv__lexer_try_accept(&p->lx, "|"));
    spec->kind = spec->n > 1 ? DV__DTYPE_SPEC_SET : DV__DTYPE_SPEC_EXPR; /* resolving may change the kind to VAR or LITERAL */
    return DV_OK;
}

/* Parses the name of a tensor argument in like() or view() of a result; for a returned list, xs or xs{i} too. where: "like()"
 * or "view()", for messages. Sets *slot and returns a status. */
static int contract_parse_tensor_argument(struct contract_parser *p, const dv__pattern *result, const char *where, int32_t *slot)
{
    const dv__schema *s = p->c->schema;
    if (p->lx.token.kind != DV__TOKEN_IDENT)
        return dv__lexer_fail_expected(&p->lx, "a tensor argument's name for %s", where);
    const int i = contract_parse_find_index_by_name(s->args, s->nargs, p->lx.token);
    const enum dv__type_kind type = i < 0 ? DV__TYPE_NONE : dv__type_get_contract_kind(s->args[i].type);
    if (type != DV__TYPE_TENSOR && (type != DV__TYPE_TENSORS || result->kind != DV__PATTERN_LIST))
        return contract_parse_fail(p, p->lx.token.start, "expected a tensor argument of the schema in %s, found '%.*s'", where,
            (int)p->lx.token.size, p->lx.token.start);
    dv__lexer_next(&p->lx);
    *slot = i;
    const char *at = p->lx.token.start, *index = NULL;
    if (type != DV__TYPE_TENSORS || !dv__lexer_try_accept(&p->lx, "{"))
        return DV_OK;
    const int status = contract_parse_index_name(p, "the list's index", &index);
    if (!status && strcmp(index, result->index_name) != 0)
        return contract_parse_fail(p, at + 1, "expected {%s}, the index of this list, found {%s}", result->index_name, index);
    return status;
}

/* Parses like(x), view(x) or view(x, transform); the current token is the first word. Returns a status. */
static int contract_parse_like_or_view(struct contract_parser *p, dv__pattern *result)
{
    const bool view = dv__lexer_is_at(&p->lx, "view");
    int32_t *slot = view ? &result->viewed_slot : &result->like_slot;
    if (result->like_slot >= 0 || result->viewed_slot >= 0)
        return contract_parse_fail(p, p->lx.token.start, "a result can have one like() or view()");
    dv__lexer_next(&p->lx);
    int status = dv__lexer_expect(&p->lx, "(");
    if (!status)
        status = contract_parse_tensor_argument(p, result, view ? "view()" : "like()", slot);
    if (!status && view && dv__lexer_try_accept(&p->lx, ",")) {
        if (result->dims.is_written)
            return contract_parse_fail(
                p, p->lx.token.start, "a view with dims of its own takes strides[...] instead of a transform");
        status = dv__expr_parse(&p->lx, &p->c->arena, &result->view_transform);
    }
    return status ? status : dv__lexer_expect(&p->lx, ")");
}

/* Parses what may follow the dtype of a pattern: @device, present, like(), view(), strides[...], offset(...). Returns a
 * status. */
static int contract_parse_pattern_suffixes(struct contract_parser *p, dv__pattern *pattern, bool is_result)
{
    int status = DV_OK;
    for (;;) {
        if (dv__lexer_try_accept(&p->lx, "@")) {
            const int device = contract_parse_find_index_by_name(p->c->schema->args, p->c->schema->nargs, p->lx.token);
            if (dv__lexer_is_at(&p->lx, "cpu"))
                pattern->device_spec = DV__DEVICE_SPEC_CPU;
            else if (dv__lexer_is_at(&p->lx, "any") && !is_result)
                pattern->device_spec = DV__DEVICE_SPEC_ANY;
            else if (device >= 0 && is_result &&
                contract_parse_strip_optional(p->c->schema->args[device].type)->kind == DV__TYPE_DEVICE)
                pattern->device_spec = DV__DEVICE_SPEC_ARGUMENT, pattern->device_slot = (int16_t)device;
            else
                return dv__lexer_fail_expected(&p->lx, is_result ? "cpu or a Device argument after '@'" : "cpu or any after '@'");
            dv__lexer_next(&p->lx);
        } else if (!is_result && dv__lexer_try_accept(&p->lx, "present")) {
            pattern->presence = DV__PRESENCE_PRESENT;
        } else if (is_result && (dv__lexer_is_at(&p->lx, "like") || dv__lexer_is_at(&p->lx, "view"))) {
            status = contract_parse_like_or_view(p, pattern);
        } else if (is_result && pattern->viewed_slot >= 0 && dv__lexer_try_accept(&p->lx, "strides")) {
            pattern->has_strides = true;
            status = contract_parse_dims(p, &pattern->strides);
        } else if (is_result && pattern->viewed_slot >= 0 && dv__lexer_try_accept(&p->lx, "offset")) {
            status = dv__lexer_expect(&p->lx, "(");
            if (!status)
                status = dv__expr_parse(&p->lx, &p->c->arena, &pattern->offset);
            if (!status)
                status = dv__lexer_expect(&p->lx, ")");
        } else {
            return DV_OK;
        }
        if (status)
            return status;
    }
}

/* Initialises a pattern that begins at the current token. */
static void contract_parse_init_pattern(const struct contract_parser *p, dv__pattern *t)
{
    memset(t, 0, sizeof *t);
    t->when = p->when;
    t->at = p->lx.token.start;
    t->like_slot = t->viewed_slot = t->aliased_slot = -1;
}

/* Parses the pattern of an argument: name[dims]:dtype, name{i}[dims]:dtype, name present or name absent. Returns a status. */
static int contract_parse_argument_pattern(struct contract_parser *p)
{
    dv__contract *c = p->c;
    const dv__schema *schema = c->schema;
    int status = dv__contract_reserve_next(c, &c->patterns, c->npatterns, sizeof *c->patterns);
    if (status)
        return status;
    dv__pattern *t = &c->patterns[c->npatterns];
    contract_parse_init_pattern(p, t);
    t->slot = contract_parse_find_index_by_name(schema->args, schema->nargs, p->lx.token);
    if (t->slot < 0) {
        char names[300];
        contract_parse_print_names(names, sizeof names, schema->args, schema->nargs);
        return contract_parse_fail(
            p, t->at, "expected an argument of the schema (%s), found '%.*s'", names, (int)p->lx.token.size, t->at);
    }
    t->name_token = p->lx.token;
    t->name = schema->args[t->slot].name;
    const dv__type *type = schema->args[t->slot].type, *bare = contract_parse_strip_optional(type);
    const dv__type *element = bare->kind == DV__TYPE_LIST ? contract_parse_strip_optional(bare->elems[0]) : bare;
    t->kind = bare->kind != DV__TYPE_LIST  ? DV__PATTERN_TENSOR
        : element->kind == DV__TYPE_TENSOR ? DV__PATTERN_LIST
                                           : DV__PATTERN_LIST_LENGTH;
    t->presence = type->kind == DV__TYPE_OPTIONAL ? DV__PRESENCE_OPTIONAL : DV__PRESENCE_REQUIRED;
    t->can_be_empty = t->kind == DV__PATTERN_LIST && bare->elems[0]->kind == DV__TYPE_OPTIONAL;
    if (t->kind != DV__PATTERN_LIST_LENGTH && element->kind != DV__TYPE_TENSOR)
        return contract_parse_fail(p, t->at, "'%s' is not a tensor or a list: a pattern cannot describe it", t->name);
    dv__lexer_next(&p->lx);
    if (dv__lexer_is_at(&p->lx, "absent") || dv__lexer_is_at(&p->lx, "present")) {
        if (t->presence != DV__PRESENCE_OPTIONAL)
            return contract_parse_fail(p, p->lx.token.start, "'%s' is not optional: it is always present", t->name);
        t->presence = dv__lexer_is_at(&p->lx, "absent") ? DV__PRESENCE_ABSENT : DV__PRESENCE_PRESENT;
        t->dims.is_any_shape = true;
        dv__lexer_next(&p->lx);
    } else {
        if (dv__lexer_is_at(&p->lx, "{") != (t->kind == DV__PATTERN_LIST))
            return contract_parse_fail(p, p->lx.token.start,
                t->kind == DV__PATTERN_LIST ? "'%s' is a list of tensors: expected %s{i}[...]"
                                            : "'%s' is not a list of tensors: expected %s[...]",
                t->name, t->name);
        if (dv__lexer_try_accept(&p->lx, "{"))
            status = contract_parse_index_name(p, "an index name such as i", &t->index_name);
        p->index_name = t->index_name;
        if (!status)
            status = contract_parse_dims(p, &t->dims);
        t->can_be_empty |= t->kind == DV__PATTERN_LIST && t->dims.is_any_shape;
        if (!status && dv__lexer_is_at(&p->lx, ":") && t->kind == DV__PATTERN_LIST_LENGTH)
            status = contract_parse_fail(p, p->lx.token.start, "'%s' is not a list of tensors: it has no dtype", t->name);
        if (!status && dv__lexer_try_accept(&p->lx, ":"))
            status = contract_parse_dtype(p, &t->dtype);
        const char *suffix = p->lx.token.start;
        const bool present = dv__lexer_is_at(&p->lx, "present");
        if (!status && present && t->presence != DV__PRESENCE_OPTIONAL)
            status = contract_parse_fail(p, suffix, "'%s' is not optional: it is always present", t->name);
        if (!status)
            status = contract_parse_pattern_suffixes(p, t, false);
    }
    if (!status)
        status = contract_parse_copy_text_from(p, t->at, &t->text);
    c->npatterns += !status;
    return status;
}

/* Finds the return that a pattern describes: the one with this name or, for an empty name, the next tensor return. Sets the
 * pattern's slot, name and kind. Returns a status. */
static int contract_parse_assign_return(struct contract_parser *p, dv__pattern *pattern, dv__token name)
{
    const dv__schema *s = p->c->schema;
    size_t i = p->next_result;
    if (name.size) {
        const int found = contract_parse_find_index_by_name(s->returns, s->nreturns, name);
        if (found < 0) {
            char names[300];
            contract_parse_print_names(names, sizeof names, s->returns, s->nreturns);
            if (contract_parse_find_index_by_name(s->args, s->nargs, name) >= 0)
                return contract_parse_fail(p, name.start,
                    "'%.*s' is an argument: after '->' stand only new results (a return that is an argument needs no pattern)",
                    (int)name.size, name.start);
            return contract_parse_fail(
                p, name.start, "expected a return of the schema (%s), found '%.*s'", names, (int)name.size, name.start);
        }
        i = (size_t)found;
        if (!dv__type_is_tensor_or_list(s->returns[i].type))
            return contract_parse_fail(
                p, name.start, "return '%.*s' is not a tensor: a pattern cannot describe it", (int)name.size, name.start);
    } else {
        while (i < s->nreturns && !dv__type_is_tensor_or_list(s->returns[i].type))
            i++;
        if (i == s->nreturns)
            return contract_parse_fail(p, pattern->at, "the schema has no return for this output: it returns %zu value%s",
                s->nreturns, s->nreturns == 1 ? "" : "s");
    }
    p->next_result = i + 1;
    pattern->slot = (int32_t)(s->nargs + i);
    pattern->name = s->returns[i].name;
    pattern->kind = s->returns[i].type->kind == DV__TYPE_LIST ? DV__PATTERN_LIST : DV__PATTERN_TENSOR;
    return DV_OK;
}

/* Parses {i} or {i < count} before the dims of a returned list. Returns a status. */
static int contract_parse_result_list_index(struct contract_parser *p, dv__pattern *t)
{
    const bool list = t->kind == DV__PATTERN_LIST;
    if (dv__lexer_is_at(&p->lx, "{") != list)
        return contract_parse_fail(p, p->lx.token.start,
            list ? "a list of tensors is returned: expected {i}[dims] or {i < count}[dims]"
                 : "one tensor is returned, not a list: expected [dims]");
    if (!dv__lexer_try_accept(&p->lx, "{"))
        return DV_OK;
    if (p->lx.token.kind != DV__TOKEN_IDENT)
        return dv__lexer_fail_expected(&p->lx, "an index name such as i");
    int status = contract_parse_copy_current_token(p, &t->index_name);
    dv__lexer_next(&p->lx);
    p->index_name = t->index_name;
    if (!status && dv__lexer_try_accept(&p->lx, "<"))
        status = dv__expr_parse(&p->lx, &p->c->arena, &t->list_count);
    if (!status)
        status = dv__lexer_expect(&p->lx, "}");
    if (!status && !dv__lexer_is_at(&p->lx, "[") && !dv__lexer_is_at(&p->lx, "like") && !dv__lexer_is_at(&p->lx, "view"))
        status = dv__lexer_fail_expected(&p->lx, "'[', like() or view() after the list's index");
    return status;
}

/* Parses the pattern of a result: [dims]:dtype with suffixes, view(...), like(x) or absent, with or without a name before it.
 * Returns a status. */
static int contract_parse_result_pattern(struct contract_parser *p)
{
    dv__contract *c = p->c;
    int status = dv__contract_reserve_next(c, &c->result_patterns, c->nresult_patterns, sizeof *c->result_patterns);
    if (status)
        return status;
    dv__pattern *t = &c->result_patterns[c->nresult_patterns];
    contract_parse_init_pattern(p, t);
    p->index_name = NULL;
    dv__lexer ahead = p->lx;
    dv__lexer_next(&ahead);
    const bool absent = dv__lexer_is_at(&p->lx, "absent") &&
        contract_parse_find_index_by_name(c->schema->returns, c->schema->nreturns, p->lx.token) < 0;
    const bool word = p->lx.token.kind == DV__TOKEN_IDENT && !dv__lexer_is_at(&ahead, "(") && !absent;
    if (!word && !absent && !dv__lexer_is_at(&p->lx, "[") && !dv__lexer_is_at(&p->lx, "{") && !dv__lexer_is_at(&p->lx, "view") &&
        !dv__lexer_is_at(&p->lx, "like"))
        return dv__lexer_fail_expected(&p->lx, "a result: [dims]:dtype, name[dims]:dtype, like(x), view(x) or absent");
    dv__token name = p->lx.token;
    if (word)
        dv__lexer_next(&p->lx);
    else
        name.size = 0;
    t->name_token = name;
    status = contract_parse_assign_return(p, t, name);
    if (status)
        return status;
    if (dv__lexer_is_at(&p->lx, "absent") && t->kind == DV__PATTERN_LIST)
        return contract_parse_fail(p, p->lx.token.start,
            "a return of type Tensor[] is never absent: expected a list without tensors, such as {j < 0}[1]:f32");
    if (dv__lexer_try_accept(&p->lx, "absent")) {
        t->presence = DV__PRESENCE_ABSENT;
    } else if (dv__lexer_is_at(&p->lx, "[") || dv__lexer_is_at(&p->lx, "{") || t->kind == DV__PATTERN_LIST) {
        status = contract_parse_result_list_index(p, t);
        if (!status && (!t->index_name || dv__lexer_is_at(&p->lx, "[")))
            status = contract_parse_dims(p, &t->dims);
        if (!status && dv__lexer_try_accept(&p->lx, ":"))
            status = contract_parse_dtype(p, &t->dtype);
        if (!status && t->kind == DV__PATTERN_LIST && t->dims.is_any_shape)
            status = contract_parse_fail(p, t->at, "a list that is returned needs dims: [...] is for one tensor");
    } else if (!dv__lexer_is_at(&p->lx, "view") && !dv__lexer_is_at(&p->lx, "like")) {
        status = dv__lexer_fail_expected(&p->lx, "'[' after the output's name");
    }
    if (!status)
        status = contract_parse_pattern_suffixes(p, t, true);
    if (!status)
        status = contract_parse_copy_text_from(p, t->at, &t->text);
    c->nresult_patterns += !status;
    return status;
}

/* ---- Facts --------------------------------------------------------------------------------------------------------------- */

/* Parses a condition that every call checks, such as `m >= d`. Returns a status. */
static int contract_parse_constraint(struct contract_parser *p)
{
    dv__contract *c = p->c;
    int status = dv__contract_reserve_next(c, &c->constraints, c->nconstraints, sizeof *c->constraints);
    if (status)
        return status;
    dv__constraint *k = &c->constraints[c->nconstraints];
    memset(k, 0, sizeof *k);
    k->when = p->when;
    k->at = p->lx.token.start;
    k->values_slot = -1;
    status = (p->when.group >= 0 ? dv__expr_parse_until_slash : dv__expr_parse)(&p->lx, &c->arena, &k->e);
    if (!status)
        status = contract_parse_copy_text_from(p, k->at, &k->text);
    c->nconstraints += !status;
    return status;
}

/* Parses a definition, name = expression. Returns a status. */
static int contract_parse_definition(struct contract_parser *p)
{
    dv__contract *c = p->c;
    int status = dv__contract_reserve_next(c, &c->definitions, c->ndefinitions, sizeof *c->definitions);
    if (status)
        return status;
    dv__definition *d = &c->definitions[c->ndefinitions];
    memset(d, 0, sizeof *d);
    d->when = p->when;
    d->at = p->lx.token.start;
    status = contract_parse_copy_current_token(p, &d->name);
    if (status)
        return status;
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* = */
    status = (p->when.group >= 0 ? dv__expr_parse_until_slash : dv__expr_parse)(&p->lx, &c->arena, &d->e);
    if (!status)
        status = contract_parse_copy_text_from(p, d->at, &d->text);
    c->ndefinitions += !status;
    return status;
}

/* True if the current token is a name and the next one is this punctuation or word. */
static bool contract_parse_is_name_followed_by(const struct contract_parser *p, const char *punct_or_word)
{
    dv__lexer ahead = p->lx;
    dv__lexer_next(&ahead);
    return p->lx.token.kind == DV__TOKEN_IDENT && dv__lexer_is_at(&ahead, punct_or_word);
}

/* True at parallel(...) and sum(...). */
static bool contract_parse_is_at_dim_fact(const struct contract_parser *p)
{
    return contract_parse_is_name_followed_by(p, "(") && (dv__lexer_is_at(&p->lx, "parallel") || dv__lexer_is_at(&p->lx, "sum"));
}

/* Parses parallel(b, *s) or sum(k). Returns a status. */
static int contract_parse_dim_fact(struct contract_parser *p)
{
    const bool parallel = dv__lexer_is_at(&p->lx, "parallel");
    dv__dim_fact **list = parallel ? &p->c->parallel_dims : &p->c->summed_dims;
    uint32_t *n = parallel ? &p->c->nparallel_dims : &p->c->nsummed_dims;
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* ( */
    do {
        int status = dv__contract_reserve_next(p->c, list, *n, sizeof **list);
        if (status)
            return status;
        dv__dim_fact *name = &(*list)[*n];
        memset(name, 0, sizeof *name);
        name->when = p->when;
        name->at = p->lx.token.start;
        name->is_variadic = dv__lexer_try_accept(&p->lx, "*");
        if (p->lx.token.kind != DV__TOKEN_IDENT)
            return dv__lexer_fail_expected(&p->lx, "a dim or *name");
        status = contract_parse_copy_current_token(p, &name->name);
        if (status)
            return status;
        dv__lexer_next(&p->lx);
        ++*n;
    } while (dv__lexer_try_accept(&p->lx, ","));
    return dv__lexer_expect(&p->lx, ")");
}

/* Parses unused(x, y). Returns a status. */
static int contract_parse_unused_fact(struct contract_parser *p)
{
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* ( */
    do {
        const int slot = contract_parse_find_index_by_name(p->c->schema->args, p->c->schema->nargs, p->lx.token);
        if (slot < 0)
            return dv__lexer_fail_expected(&p->lx, "an argument of the schema in unused()");
        p->c->is_argument_unused[slot] = true;
        dv__lexer_next(&p->lx);
    } while (dv__lexer_try_accept(&p->lx, ","));
    return dv__lexer_expect(&p->lx, ")");
}

/* Parses the dtypes that a variable may be, T in f32 f64 bf16. Returns a status. */
static int contract_parse_allowed_dtypes(struct contract_parser *p)
{
    enum { MAX_DTYPES = 64 }; /* more than there are dtypes; also the limit for a kernel's dtypes */
    dv__contract *c = p->c;
    const char *name, *at = p->lx.token.start;
    int status = contract_parse_copy_current_token(p, &name);
    if (status)
        return status;
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* in */
    uint32_t *keys = NULL, n = 0;
    for (uint32_t key; p->lx.token.kind == DV__TOKEN_IDENT; n++) {
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)p->lx.token.size, p->lx.token.start);
        char hint[160];
        if (!dv__try_find_dtype_key(word, &key))
            return contract_parse_fail(p, p->lx.token.start, "expected a dtype such as f32, found '%s'%s", word,
                dv__dtype_print_hint(word, hint, sizeof hint));
        if (n == MAX_DTYPES)
            return dv__fail_at_column(
                DV_ELIMIT, c->text, p->lx.token.start, "more than %d dtypes for the variable '%s'", MAX_DTYPES, name);
        status = dv__contract_reserve_next(c, &keys, n, sizeof *keys);
        if (status)
            return status;
        keys[n] = key;
        dv__lexer_next(&p->lx);
        dv__lexer_try_accept(&p->lx, ",");
    }
    for (uint32_t i = 0; i < c->ndtypes; i++)
        if (!strcmp(c->dtypes[i].name, name) && c->dtypes[i].allowed)
            return contract_parse_fail(p, at, "'%s in ...' is given twice", name);
    if (c->ndtypes == DV__MAX_DTYPE_VARS)
        return dv__fail_at_column(DV_ELIMIT, c->text, at, "more than %d dtype variables", DV__MAX_DTYPE_VARS);
    c->dtypes[c->ndtypes++] = (dv__dtype_var){ name, at, keys, n }; /* resolving checks that a pattern binds the variable */
    return DV_OK;
}

/* Parses `u unbacked in a..b`. Returns a status. */
static int contract_parse_unbacked_size(struct contract_parser *p)
{
    dv__contract *c = p->c;
    int status = dv__contract_reserve_next(c, &c->unbacked, c->nunbacked, sizeof *c->unbacked);
    if (status)
        return status;
    dv__unbacked_size *u = &c->unbacked[c->nunbacked];
    memset(u, 0, sizeof *u);
    u->at = p->lx.token.start;
    status = contract_parse_copy_current_token(p, &u->name);
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* unbacked */
    if (!status)
        status = dv__lexer_expect(&p->lx, "in");
    if (!status)
        status = dv__expr_parse(&p->lx, &c->arena, &u->min);
    if (!status)
        status = dv__lexer_expect(&p->lx, "..");
    if (!status)
        status = dv__expr_parse(&p->lx, &c->arena, &u->max);
    c->nunbacked += !status;
    return status;
}

/* Parses `out: like(x)`, for the result with this name in all cases. Returns a status. */
static int contract_parse_like_fact(struct contract_parser *p)
{
    dv__contract *c = p->c;
    const dv__token name = p->lx.token;
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* : */
    if (!dv__lexer_is_at(&p->lx, "like"))
        return dv__lexer_fail_expected(&p->lx, "like(argument) after '%.*s:'", (int)name.size, name.start);
    bool found = false;
    const dv__lexer here = p->lx;
    for (uint32_t i = 0; i < c->nresult_patterns; i++) {
        if (!dv__token_is(name, c->result_patterns[i].name))
            continue;
        p->lx = here;
        const int status = contract_parse_like_or_view(p, &c->result_patterns[i]);
        if (status)
            return status;
        found = true;
    }
    return found ? DV_OK
                 : contract_parse_fail(p, name.start, "expected the name of a result, found '%.*s'", (int)name.size, name.start);
}

/* True at "T in f32 ...": a name that is no argument, `in` and a dtype. */
static bool contract_parse_is_at_allowed_dtypes(const struct contract_parser *p)
{
    if (!contract_parse_is_name_followed_by(p, "in") ||
        contract_parse_find_index_by_name(p->c->schema->args, p->c->schema->nargs, p->lx.token) >= 0)
        return false;
    dv__lexer ahead = p->lx;
    dv__lexer_next(&ahead);
    dv__lexer_next(&ahead);
    char word[32];
    uint32_t key;
    snprintf(word, sizeof word, "%.*s", (int)ahead.token.size, ahead.token.start);
    return ahead.token.kind == DV__TOKEN_IDENT && dv__try_find_dtype_key(word, &key);
}

/* Returns where to store the expression of workspace = ..., flops, bytes, rtol, atol or rounded. NULL: the current token begins
 * none of these facts. */
static dv__expr **contract_parse_find_value_fact(const struct contract_parser *p)
{
    dv__contract *c = p->c;
    const struct {
        const char *name;
        dv__expr **e;
    } costs[] = { { "workspace", &c->workspace }, { "flops", &c->flops }, { "bytes", &c->bytes }, { "rtol", &c->rtol },
        { "atol", &c->atol }, { "rounded", &c->rounded } };
    for (size_t i = 0; i < sizeof costs / sizeof *costs && contract_parse_is_name_followed_by(p, "="); i++)
        if (dv__lexer_is_at(&p->lx, costs[i].name))
            return costs[i].e;
    return NULL;
}

/* Parses the fact that contract_parse_find_value_fact() has found, and stores its expression in *out. Returns a status. */
static int contract_parse_value_fact(struct contract_parser *p, dv__expr **out)
{
    if (*out)
        return contract_parse_fail(p, p->lx.token.start, "'%.*s' is given twice", (int)p->lx.token.size, p->lx.token.start);
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* = */
    return dv__expr_parse(&p->lx, &p->c->arena, out);
}

/* Parses one fact, which may be of any kind. Returns a status. */
static int contract_parse_fact(struct contract_parser *p)
{
    dv__contract *c = p->c;
    if (contract_parse_is_at_dim_fact(p))
        return contract_parse_dim_fact(p);
    if (contract_parse_is_name_followed_by(p, "(") && dv__lexer_is_at(&p->lx, "unused"))
        return contract_parse_unused_fact(p);
    if (contract_parse_is_name_followed_by(p, "(") && dv__is_at_accepted_layout(&p->lx)) {
        int status;
        do
            status = dv__accepted_layout_parse(&p->lx, c->schema, c->accepted_layouts);
        while (!status && dv__lexer_try_accept(&p->lx, ","));
        return status;
    }
    dv__expr **cost = contract_parse_find_value_fact(p);
    if (cost)
        return contract_parse_value_fact(p, cost);
    if (contract_parse_is_name_followed_by(p, "="))
        return contract_parse_definition(p);
    if (contract_parse_is_name_followed_by(p, ":"))
        return contract_parse_like_fact(p);
    if (contract_parse_is_name_followed_by(p, "unbacked"))
        return contract_parse_unbacked_size(p);
    if (contract_parse_is_at_allowed_dtypes(p))
        return contract_parse_allowed_dtypes(p);
    return contract_parse_constraint(p);
}

/* ---- Sections ------------------------------------------------------------------------------------------------------------ */

/* True at the end of the text, ';' and '/'. */
static bool contract_parse_is_at_signature_end(const dv__lexer *lx)
{
    return lx->token.kind == DV__TOKEN_END || dv__lexer_is_at(lx, ";") || dv__lexer_is_at(lx, "/");
}

/* True at a pattern. A name with brackets is a pattern unless an operator follows: `box[4]` is a pattern, `box[4] > 0` is a
 * condition. */
static bool contract_parse_is_at_pattern(const struct contract_parser *p)
{
    dv__lexer ahead = p->lx;
    if (ahead.token.kind != DV__TOKEN_IDENT)
        return false;
    const bool argument = contract_parse_find_index_by_name(p->c->schema->args, p->c->schema->nargs, ahead.token) >= 0;
    dv__lexer_next(&ahead);
    if ((argument && dv__lexer_is_at(&ahead, "{")) || dv__lexer_is_at(&ahead, "present") || dv__lexer_is_at(&ahead, "absent"))
        return true;
    if (!dv__lexer_is_at(&ahead, "["))
        return false;
    int depth = 0;
    do {
        depth += dv__lexer_is_at(&ahead, "[") - dv__lexer_is_at(&ahead, "]");
        dv__lexer_next(&ahead);
    } while (depth && ahead.token.kind != DV__TOKEN_END);
    static const char *const followers[] = { ":", ",", "->", "@", "present" };
    for (size_t i = 0; i < sizeof followers / sizeof *followers; i++)
        if (dv__lexer_is_at(&ahead, followers[i]))
            return true;
    return depth || contract_parse_is_at_signature_end(&ahead);
}

/* Parses patterns, conditions, definitions and dim facts, then perhaps "->" and results. Returns a status. */
static int contract_parse_signature(struct contract_parser *p)
{
    int status = DV_OK;
    if (!contract_parse_is_at_signature_end(&p->lx) && !dv__lexer_is_at(&p->lx, "->")) {
        do {
            if (contract_parse_is_at_pattern(p))
                status = contract_parse_argument_pattern(p);
            else if (contract_parse_find_value_fact(p))
                status = contract_parse_fail(p, p->lx.token.start,
                    "'%.*s' is a fact of its own, for all cases; write ';' before it", (int)p->lx.token.size, p->lx.token.start);
            else if (contract_parse_is_name_followed_by(p, "="))
                status = contract_parse_definition(p);
            else if (contract_parse_is_at_dim_fact(p))
                status = contract_parse_dim_fact(p);
            else
                status = contract_parse_constraint(p);
        } while (!status && dv__lexer_try_accept(&p->lx, ","));
        if (!status && !contract_parse_is_at_signature_end(&p->lx) && !dv__lexer_is_at(&p->lx, "->"))
            status = dv__lexer_fail_expected(&p->lx, "',', '->' or ';'");
    }
    if (status || !dv__lexer_try_accept(&p->lx, "->"))
        return status;
    p->next_result = 0;
    if (dv__lexer_try_accept(&p->lx, "("))
        return dv__lexer_expect(&p->lx, ")");
    do
        status = contract_parse_result_pattern(p);
    while (!status && dv__lexer_try_accept(&p->lx, ","));
    return status;
}

/* True for a value that a case can name: an integer, a string, a bool or the name of a dtype; no float. */
static bool contract_parse_is_case_value(const dv__expr *e)
{
    uint32_t key;
    return e->kind == DV__EXPR_STRING || e->kind == DV__EXPR_INT || e->kind == DV__EXPR_BOOL ||
        (e->kind == DV__EXPR_NAME && dv__try_find_dtype_key(e->name, &key));
}

/* Returns the subject of a case's condition `subject == A` or `subject in A B`. NULL: the condition has another form. */
static dv__expr *contract_parse_find_switch_value(const dv__expr *e)
{
    if (e->kind != DV__EXPR_EQ && e->kind != DV__EXPR_IN)
        return NULL;
    for (uint32_t i = 1; i < e->n; i++)
        if (!contract_parse_is_case_value(e->args[i]))
            return NULL;
    return e->args[0];
}

/* Parses the values of a case after "/", A B, and makes the condition `subject == A` or `subject in A B` of them. Returns a
 * status. */
static int contract_parse_case_values(struct contract_parser *p, dv__expr *subject, dv__expr **out)
{
    dv__expr *e = DV__ARENA_NEW(&p->c->arena, dv__expr), **values = NULL;
    if (!e)
        return DV_ENOMEM;
    e->at = p->lx.token.start;
    uint32_t n = 0;
    int status = dv__contract_reserve_next(p->c, &values, n, sizeof *values);
    if (status)
        return status;
    values[n++] = subject;
    while (!dv__lexer_is_at(&p->lx, ":")) {
        dv__expr *value = NULL;
        status = dv__expr_parse_primary(&p->lx, &p->c->arena, &value);
        if (!status && !contract_parse_is_case_value(value))
            status = dv__fail_at_column(DV_ECONTRACT, p->c->text, value->at, "expected a value or ':'");
        if (!status)
            status = dv__contract_reserve_next(p->c, &values, n, sizeof *values);
        if (status)
            return status;
        values[n++] = value;
    }
    e->kind = n == 2 ? DV__EXPR_EQ : DV__EXPR_IN;
    e->args = values;
    e->n = n;
    e->depth = (uint16_t)(subject->depth + 1);
    *out = e;
    return DV_OK;
}

/* True if the current token is a value that a case can name. */
static bool contract_parse_is_at_case_value(const struct contract_parser *p)
{
    char word[32];
    uint32_t key;
    snprintf(word, sizeof word, "%.*s", (int)p->lx.token.size, p->lx.token.start);
    return p->lx.token.kind == DV__TOKEN_STRING || p->lx.token.kind == DV__TOKEN_INT || dv__lexer_is_at(&p->lx, "True") ||
        dv__lexer_is_at(&p->lx, "False") || (p->lx.token.kind == DV__TOKEN_IDENT && dv__try_find_dtype_key(word, &key));
}

/* Parses a group: when condition: patterns / condition: patterns / else: patterns. Returns a status. */
static int contract_parse_case_group(struct contract_parser *p)
{
    dv__contract *c = p->c;
    if (c->ngroups == DV__MAX_CASE_GROUPS)
        return dv__fail_at_column(DV_ELIMIT, c->text, p->lx.token.start, "more than %d groups of cases", DV__MAX_CASE_GROUPS);
    dv__lexer_next(&p->lx);
    int status = dv__contract_reserve_next(c, &c->groups, c->ngroups, sizeof *c->groups);
    if (status)
        return status;
    dv__case_group *g = &c->groups[c->ngroups];
    memset(g, 0, sizeof *g);
    do {
        if (g->n == DV__MAX_CASES)
            return dv__fail_at_column(DV_ELIMIT, c->text, p->lx.token.start, "more than %d cases in a group", DV__MAX_CASES);
        dv__case *k = &g->cases[g->n];
        k->at = p->lx.token.start;
        if (g->n && !g->cases[g->n - 1].e)
            return contract_parse_fail(p, k->at, "'else' must be the last case");
        k->text = "no other case holds";
        if (g->n && dv__lexer_try_accept(&p->lx, "else"))
            k->e = NULL;
        else if (g->n && g->switch_value && contract_parse_is_at_case_value(p))
            status = contract_parse_case_values(p, g->switch_value, &k->e);
        else
            status = dv__expr_parse(&p->lx, &c->arena, &k->e);
        if (!status && !dv__lexer_is_at(&p->lx, ":"))
            status = dv__lexer_fail_expected(&p->lx, "':' after the case's condition");
        if (!status && k->e && !(k->text = dv__contract_copy_expr_text(c, k->e)))
            status = DV_ENOMEM;
        if (status)
            return status;
        dv__lexer_next(&p->lx);
        dv__expr *subject = k->e ? contract_parse_find_switch_value(k->e) : NULL;
        if (!g->n)
            g->switch_value = subject;
        else if (!subject || !g->switch_value || !dv__exprs_are_equal(subject, g->switch_value))
            g->switch_value = NULL;
        p->when.group = (int8_t)c->ngroups;
        p->when.index = (int8_t)g->n++;
        status = contract_parse_signature(p);
        if (status)
            return status;
    } while (dv__lexer_try_accept(&p->lx, "/"));
    p->when.group = -1;
    c->ngroups++;
    return DV_OK;
}

/* Parses the whole contract: signature, groups of cases and facts, separated by ';'. Returns a status. */
static int contract_parse_statements(struct contract_parser *p)
{
    int status = DV_OK;
    bool signature = false;
    while (!status) {
        while (dv__lexer_try_accept(&p->lx, ";"))
            ;
        if (p->lx.token.kind == DV__TOKEN_END)
            return DV_OK;
        if (dv__lexer_is_at(&p->lx, "when"))
            status = contract_parse_case_group(p);
        else if (contract_parse_is_at_pattern(p) || dv__lexer_is_at(&p->lx, "->") ||
            (!signature && contract_parse_is_name_followed_by(p, "[")))
            status = contract_parse_signature(p);
        else
            status = contract_parse_fact(p);
        signature = true;
        if (!status && !dv__lexer_is_at(&p->lx, ";") && p->lx.token.kind != DV__TOKEN_END)
            status = dv__lexer_fail_expected(&p->lx, "';'");
    }
    return status;
}

int dv__contract_parse(const char *text, const char *name, const dv__schema *schema, dv__contract **out)
{
    *out = NULL;
    dv__contract *c = dv__calloc(1, sizeof *c);
    if (!c)
        return DV_ENOMEM;
    struct contract_parser p = { .c = c, .when = { -1, 0 } };
    int status = DV_ENOMEM;
    c->schema = schema;
    c->name = dv__arena_strndup(&c->arena, name, strlen(name));
    c->text = dv__arena_strndup(&c->arena, text, strlen(text));
    c->accepted_layouts = DV__ARENA_ARRAY(&c->arena, dv__accepted_layout, schema->nargs + schema->nreturns);
    c->is_argument_unused = DV__ARENA_ARRAY(&c->arena, bool, schema->nargs + 1);
    if (!c->name || !c->text || !c->accepted_layouts || !c->is_argument_unused)
        goto fail;
    dv__lexer_init(&p.lx, c->text);
    if (!(status = dv__lexer_check_ascii(c->text)))
        status = contract_parse_statements(&p);
    if (!status)
        status = dv__contract_resolve(c);
    if (!status)
        status = dv__contract_analyze(c);
    if (!status)
        status = dv__contract_build(c);
    if (!status) {
        *out = c;
        return DV_OK;
    }
fail:
    dv__contract_free(c);
    return status == DV_ENOMEM ? status : dv__fail_add_context(status, "operator %s: contract", name);
}

void dv__contract_free(dv__contract *c)
{
    if (!c)
        return;
    dv__arena arena = c->arena; /* c->arena holds everything but c itself */
    dv__arena_deinit(&arena);
    dv__free(c);
}
