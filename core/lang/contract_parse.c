/* From text to patterns and unresolved trees. contract_resolve.c finds the meaning of names; here only the schema's arguments and
 * returns are looked up, because the syntax depends on them. */
#include "lang/contract_internal.h"

#include <stdio.h>

struct parser {
    dv__contract *c;
    dv__lexer lx;
    dv__when when;      /* of what is being parsed */
    size_t next_output; /* the return that the next unnamed output describes */
    const char *index;  /* of the list whose pattern is being parsed; NULL: not a list */
};

int dv__arena_grow(dv__arena *arena, void *array, uint32_t n, size_t size)
{
    if (n && (n < 4 || (n & (n - 1))))
        return DV_OK; /* room for 4, 8, 16... */
    void *old, *grown = dv__arena_alloc(arena, (n ? n * 2 : 4) * size);
    if (!grown)
        return DV_ENOMEM;
    memcpy(&old, array, sizeof old);
    if (n)
        memcpy(grown, old, n * size);
    memcpy(array, &grown, sizeof grown);
    return DV_OK;
}

int dv__contract_grow(dv__contract *c, void *array, uint32_t n, size_t size) { return dv__arena_grow(&c->arena, array, n, size); }

#define fail(p, at, ...) dv__fail_at(DV_ECONTRACT, (p)->c->text, at, __VA_ARGS__)

/* A copy in the arena of the text from start to the current token (excluded). */
static int slice(struct parser *p, const char *start, const char **out)
{
    const char *end = p->lx.token.start;
    while (end > start && strchr(" \t\r\n", end[-1]))
        end--;
    *out = dv__arena_strndup(&p->c->arena, start, (size_t)(end - start));
    return *out ? DV_OK : DV_ENOMEM;
}

static int copy_word(struct parser *p, const char **out)
{
    *out = dv__arena_strndup(&p->c->arena, p->lx.token.start, p->lx.token.size);
    return *out ? DV_OK : DV_ENOMEM;
}

static int find_word(const dv__argument *list, size_t n, dv__token word)
{
    for (size_t i = 0; i < n; i++)
        if (*list[i].name && dv__token_is(word, list[i].name))
            return (int)i;
    return -1;
}

/* "a, b or c": the valid names, for messages. */
static void list_names(char *to, size_t room, const dv__argument *list, size_t n)
{
    size_t used = 0;
    *to = 0;
    for (size_t i = 0; i < n && used < room; i++)
        used += (size_t)snprintf(to + used, room - used, "%s'%s'", i ? ", " : "", list[i].name);
}

static const dv__type *plain_type(const dv__type *t) { return t->kind == DV__TYPE_OPTIONAL && t->nelems ? t->elems[0] : t; }

/* ---- Dims and patterns ----------------------------------------------------------------------------------------------- */

static int add_item(struct parser *p, dv__dims *dims, dv__expr *e)
{
    int status = dv__contract_grow(p->c, &dims->items, dims->n, sizeof *dims->items);
    if (status)
        return status;
    dv__item *item = &dims->items[dims->n++];
    memset(item, 0, sizeof *item);
    item->e = e;
    item->aside = -1;
    return DV_OK;
}

/* {i}: the current token is behind the brace. */
static int parse_index(struct parser *p, const char *what, const char **index)
{
    if (p->lx.token.kind != DV__TOKEN_IDENT)
        return dv__lexer_unexpected(&p->lx, "%s", what);
    const int status = copy_word(p, index);
    dv__lexer_next(&p->lx);
    return status ? status : dv__lexer_expect(&p->lx, "}");
}

static bool begins_dim(const dv__lexer *lx)
{
    return lx->token.kind == DV__TOKEN_IDENT || lx->token.kind == DV__TOKEN_INT || dv__lexer_is(lx, "*") ||
        dv__lexer_is(lx, "(") || dv__lexer_is(lx, "-");
}

static int parse_dims(struct parser *p, dv__dims *dims)
{
    int status = dv__lexer_expect(&p->lx, "[");
    if (status)
        return status;
    dims->given = true;
    if (dv__lexer_accept(&p->lx, "...")) {
        dims->any = true;
        return dv__lexer_expect(&p->lx, "]");
    }
    while (!dv__lexer_accept(&p->lx, "]")) {
        dv__expr *e = NULL;
        if (!begins_dim(&p->lx))
            return dv__lexer_unexpected(&p->lx, "a dim or ']'");
        status = dv__expr_parse_sum(&p->lx, &p->c->arena, &e);
        if (!status)
            status = add_item(p, dims, e);
        if (status)
            return status;
        if (e->index && p->index && strcmp(e->index, p->index) != 0)
            return fail(p, strchr(e->at, '{'), "expected {%s}, the index of this list, found {%s}", p->index, e->index);
        if (e->index)
            e->role = e->kind == DV__EXPR_STAR ? DV__ROLE_ELEMENT_RUN : DV__ROLE_ELEMENT;
        if (dv__lexer_accept(&p->lx, ",") && dv__lexer_is(&p->lx, "]"))
            return dv__lexer_unexpected(&p->lx, "a dim after ','");
    }
    return DV_OK;
}

/* T, f32, f32|bf16, promote(T, U), any */
static int parse_dtype(struct parser *p, dv__dtype_spec *spec)
{
    if (dv__lexer_accept(&p->lx, "any"))
        return DV_OK;
    do {
        dv__expr *e = NULL;
        if (p->lx.token.kind != DV__TOKEN_IDENT)
            return dv__lexer_unexpected(&p->lx, "a dtype or a dtype variable");
        int status = dv__expr_parse_primary(&p->lx, &p->c->arena, &e);
        if (!status)
            status = dv__contract_grow(p->c, &spec->alternatives, spec->n, sizeof *spec->alternatives);
        if (status)
            return status;
        spec->alternatives[spec->n++] = e;
    } while (dv__lexer_accept(&p->lx, "|"));
    spec->kind = spec->n > 1 ? DV__DTYPE_SET : DV__DTYPE_EXPR; /* resolving refines this */
    return DV_OK;
}

/* x, of a list that is returned also xs or xs{i} */
static int parse_tensor_argument(struct parser *p, const dv__pattern *out, const char *what, int32_t *slot)
{
    const dv__schema *s = p->c->schema;
    if (p->lx.token.kind != DV__TOKEN_IDENT)
        return dv__lexer_unexpected(&p->lx, "a tensor argument's name for %s", what);
    const int i = find_word(s->args, s->nargs, p->lx.token);
    const enum dv__ctype type = i < 0 ? DV__CTYPE_NONE : dv__type_of_argument(s->args[i].type);
    if (type != DV__CTYPE_TENSOR && (type != DV__CTYPE_TENSORS || out->kind != DV__PATTERN_LIST))
        return fail(p, p->lx.token.start, "expected a tensor argument of the schema in %s, found '%.*s'", what,
            (int)p->lx.token.size, p->lx.token.start);
    dv__lexer_next(&p->lx);
    *slot = i;
    const char *at = p->lx.token.start, *index = NULL;
    if (type != DV__CTYPE_TENSORS || !dv__lexer_accept(&p->lx, "{"))
        return DV_OK;
    const int status = parse_index(p, "the list's index", &index);
    if (!status && strcmp(index, out->index) != 0)
        return fail(p, at + 1, "expected {%s}, the index of this list, found {%s}", out->index, index);
    return status;
}

/* like(x), or view(x), view(x, transform): the current token is the word. */
static int parse_like_or_view(struct parser *p, dv__pattern *out)
{
    const bool view = dv__lexer_is(&p->lx, "view");
    int32_t *slot = view ? &out->view_of : &out->like;
    if (out->like >= 0 || out->view_of >= 0)
        return fail(p, p->lx.token.start, "an output can have one like() or view()");
    dv__lexer_next(&p->lx);
    int status = dv__lexer_expect(&p->lx, "(");
    if (!status)
        status = parse_tensor_argument(p, out, view ? "view()" : "like()", slot);
    if (!status && view && dv__lexer_accept(&p->lx, ",")) {
        if (out->dims.given)
            return fail(p, p->lx.token.start, "a view with dims of its own takes strides[...] instead of a transform");
        status = dv__expr_parse(&p->lx, &p->c->arena, &out->transform);
    }
    return status ? status : dv__lexer_expect(&p->lx, ")");
}

/* What may follow the dtype. */
static int parse_suffixes(struct parser *p, dv__pattern *t, bool output)
{
    int status = DV_OK;
    for (;;) {
        if (dv__lexer_accept(&p->lx, "@")) {
            const int device = find_word(p->c->schema->args, p->c->schema->nargs, p->lx.token);
            if (dv__lexer_is(&p->lx, "cpu"))
                t->on = DV__ON_CPU;
            else if (dv__lexer_is(&p->lx, "any") && !output)
                t->on = DV__ON_ANY;
            else if (device >= 0 && output && plain_type(p->c->schema->args[device].type)->kind == DV__TYPE_DEVICE)
                t->on = DV__ON_ARGUMENT, t->on_slot = (int16_t)device;
            else
                return dv__lexer_unexpected(&p->lx, output ? "cpu or a Device argument after '@'" : "cpu or any after '@'");
            dv__lexer_next(&p->lx);
        } else if (!output && dv__lexer_accept(&p->lx, "present")) {
            t->presence = DV__PRESENT;
        } else if (output && (dv__lexer_is(&p->lx, "like") || dv__lexer_is(&p->lx, "view"))) {
            status = parse_like_or_view(p, t);
        } else if (output && t->view_of >= 0 && dv__lexer_accept(&p->lx, "strides")) {
            t->has_strides = true;
            status = parse_dims(p, &t->strides);
        } else if (output && t->view_of >= 0 && dv__lexer_accept(&p->lx, "offset")) {
            status = dv__lexer_expect(&p->lx, "(");
            if (!status)
                status = dv__expr_parse(&p->lx, &p->c->arena, &t->offset);
            if (!status)
                status = dv__lexer_expect(&p->lx, ")");
        } else {
            return DV_OK;
        }
        if (status)
            return status;
    }
}

static void pattern_init(const struct parser *p, dv__pattern *t)
{
    memset(t, 0, sizeof *t);
    t->when = p->when;
    t->at = p->lx.token.start;
    t->like = t->view_of = t->is_argument = -1;
}

/* name[dims]:dtype, name{i}[dims]:dtype, name absent */
static int parse_pattern(struct parser *p)
{
    dv__contract *c = p->c;
    const dv__schema *schema = c->schema;
    int status = dv__contract_grow(c, &c->patterns, c->npatterns, sizeof *c->patterns);
    if (status)
        return status;
    dv__pattern *t = &c->patterns[c->npatterns];
    pattern_init(p, t);
    t->slot = find_word(schema->args, schema->nargs, p->lx.token);
    if (t->slot < 0) {
        char names[300];
        list_names(names, sizeof names, schema->args, schema->nargs);
        return fail(p, t->at, "expected an argument of the schema (%s), found '%.*s'", names, (int)p->lx.token.size, t->at);
    }
    t->word = p->lx.token;
    t->name = schema->args[t->slot].name;
    const dv__type *type = schema->args[t->slot].type, *plain = plain_type(type);
    const dv__type *element = plain->kind == DV__TYPE_LIST ? plain_type(plain->elems[0]) : plain;
    t->kind = plain->kind != DV__TYPE_LIST ? DV__PATTERN_TENSOR
        : element->kind == DV__TYPE_TENSOR ? DV__PATTERN_LIST
                                           : DV__PATTERN_INTS;
    t->presence = type->kind == DV__TYPE_OPTIONAL ? DV__OPTIONAL : DV__REQUIRED;
    t->may_be_empty = t->kind == DV__PATTERN_LIST && plain->elems[0]->kind == DV__TYPE_OPTIONAL;
    if (t->kind != DV__PATTERN_INTS && element->kind != DV__TYPE_TENSOR)
        return fail(p, t->at, "'%s' is not a tensor or a list: a pattern cannot describe it", t->name);
    dv__lexer_next(&p->lx);
    if (dv__lexer_is(&p->lx, "absent") || dv__lexer_is(&p->lx, "present")) {
        if (t->presence != DV__OPTIONAL)
            return fail(p, p->lx.token.start, "'%s' is not optional: it is always present", t->name);
        t->presence = dv__lexer_is(&p->lx, "absent") ? DV__ABSENT : DV__PRESENT;
        t->dims.any = true;
        dv__lexer_next(&p->lx);
    } else {
        if (dv__lexer_is(&p->lx, "{") != (t->kind == DV__PATTERN_LIST))
            return fail(p, p->lx.token.start,
                t->kind == DV__PATTERN_LIST ? "'%s' is a list of tensors: expected %s{i}[...]"
                                            : "'%s' is not a list of tensors: expected %s[...]",
                t->name, t->name);
        if (dv__lexer_accept(&p->lx, "{"))
            status = parse_index(p, "an index name such as i", &t->index);
        p->index = t->index;
        if (!status)
            status = parse_dims(p, &t->dims);
        t->may_be_empty |= t->kind == DV__PATTERN_LIST && t->dims.any;
        if (!status && dv__lexer_is(&p->lx, ":") && t->kind == DV__PATTERN_INTS)
            status = fail(p, p->lx.token.start, "'%s' is not a list of tensors: it has no dtype", t->name);
        if (!status && dv__lexer_accept(&p->lx, ":"))
            status = parse_dtype(p, &t->dtype);
        const char *suffix = p->lx.token.start;
        const bool present = dv__lexer_is(&p->lx, "present");
        if (!status && present && t->presence != DV__OPTIONAL)
            status = fail(p, suffix, "'%s' is not optional: it is always present", t->name);
        if (!status)
            status = parse_suffixes(p, t, false);
    }
    if (!status)
        status = slice(p, t->at, &t->text);
    c->npatterns += !status;
    return status;
}

static int find_output(struct parser *p, dv__pattern *t, dv__token name)
{
    const dv__schema *s = p->c->schema;
    size_t i = p->next_output;
    if (name.size) {
        const int found = find_word(s->returns, s->nreturns, name);
        if (found < 0) {
            char names[300];
            list_names(names, sizeof names, s->returns, s->nreturns);
            if (find_word(s->args, s->nargs, name) >= 0)
                return fail(p, name.start,
                    "'%.*s' is an argument: after '->' stand only new results (a return that is an argument needs no pattern)",
                    (int)name.size, name.start);
            return fail(p, name.start, "expected a return of the schema (%s), found '%.*s'", names, (int)name.size, name.start);
        }
        i = (size_t)found;
        if (!dv__is_tensors(s->returns[i].type))
            return fail(p, name.start, "return '%.*s' is not a tensor: a pattern cannot describe it", (int)name.size, name.start);
    } else {
        while (i < s->nreturns && !dv__is_tensors(s->returns[i].type))
            i++;
        if (i == s->nreturns)
            return fail(p, t->at, "the schema has no return for this output: it returns %zu value%s", s->nreturns,
                s->nreturns == 1 ? "" : "s");
    }
    p->next_output = i + 1;
    t->slot = (int32_t)(s->nargs + i);
    t->name = s->returns[i].name;
    t->kind = s->returns[i].type->kind == DV__TYPE_LIST ? DV__PATTERN_LIST : DV__PATTERN_TENSOR;
    return DV_OK;
}

/* {i}, {i < count} before the dims of a list. */
static int parse_count(struct parser *p, dv__pattern *t)
{
    const bool list = t->kind == DV__PATTERN_LIST;
    if (dv__lexer_is(&p->lx, "{") != list)
        return fail(p, p->lx.token.start,
            list ? "a list of tensors is returned: expected {i}[dims] or {i < count}[dims]"
                 : "one tensor is returned, not a list: expected [dims]");
    if (!dv__lexer_accept(&p->lx, "{"))
        return DV_OK;
    if (p->lx.token.kind != DV__TOKEN_IDENT)
        return dv__lexer_unexpected(&p->lx, "an index name such as i");
    int status = copy_word(p, &t->index);
    dv__lexer_next(&p->lx);
    p->index = t->index;
    if (!status && dv__lexer_accept(&p->lx, "<"))
        status = dv__expr_parse(&p->lx, &p->c->arena, &t->count);
    if (!status)
        status = dv__lexer_expect(&p->lx, "}");
    if (!status && !dv__lexer_is(&p->lx, "[") && !dv__lexer_is(&p->lx, "like") && !dv__lexer_is(&p->lx, "view"))
        status = dv__lexer_unexpected(&p->lx, "'[', like() or view() after the list's index");
    return status;
}

/* [name] ( [dims]:dtype suffixes | view(...) | like(x) | absent ); the name may be missing */
static int parse_output(struct parser *p)
{
    dv__contract *c = p->c;
    int status = dv__contract_grow(c, &c->outputs, c->noutputs, sizeof *c->outputs);
    if (status)
        return status;
    dv__pattern *t = &c->outputs[c->noutputs];
    pattern_init(p, t);
    p->index = NULL;
    dv__lexer ahead = p->lx;
    dv__lexer_next(&ahead);
    const bool absent = dv__lexer_is(&p->lx, "absent") && find_word(c->schema->returns, c->schema->nreturns, p->lx.token) < 0;
    const bool word = p->lx.token.kind == DV__TOKEN_IDENT && !dv__lexer_is(&ahead, "(") && !absent;
    if (!word && !absent && !dv__lexer_is(&p->lx, "[") && !dv__lexer_is(&p->lx, "{") && !dv__lexer_is(&p->lx, "view") &&
        !dv__lexer_is(&p->lx, "like"))
        return dv__lexer_unexpected(&p->lx, "an output: [dims]:dtype, name[dims]:dtype, like(x), view(x) or absent");
    dv__token name = p->lx.token;
    if (word)
        dv__lexer_next(&p->lx);
    else
        name.size = 0;
    t->word = name;
    status = find_output(p, t, name);
    if (status)
        return status;
    if (dv__lexer_is(&p->lx, "absent") && t->kind == DV__PATTERN_LIST)
        return fail(p, p->lx.token.start,
            "a return of type Tensor[] is never absent: expected a list without tensors, such as {j < 0}[1]:f32");
    if (dv__lexer_accept(&p->lx, "absent")) {
        t->presence = DV__ABSENT;
    } else if (dv__lexer_is(&p->lx, "[") || dv__lexer_is(&p->lx, "{") || t->kind == DV__PATTERN_LIST) {
        status = parse_count(p, t);
        if (!status && (!t->index || dv__lexer_is(&p->lx, "[")))
            status = parse_dims(p, &t->dims);
        if (!status && dv__lexer_accept(&p->lx, ":"))
            status = parse_dtype(p, &t->dtype);
        if (!status && t->kind == DV__PATTERN_LIST && t->dims.any)
            status = fail(p, t->at, "a list that is returned needs dims: [...] is for one tensor");
    } else if (!dv__lexer_is(&p->lx, "view") && !dv__lexer_is(&p->lx, "like")) {
        status = dv__lexer_unexpected(&p->lx, "'[' after the output's name");
    }
    if (!status)
        status = parse_suffixes(p, t, true);
    if (!status)
        status = slice(p, t->at, &t->text);
    c->noutputs += !status;
    return status;
}

/* ---- Facts ------------------------------------------------------------------------------------------------------------- */

static int parse_constraint(struct parser *p)
{
    dv__contract *c = p->c;
    int status = dv__contract_grow(c, &c->constraints, c->nconstraints, sizeof *c->constraints);
    if (status)
        return status;
    dv__constraint *k = &c->constraints[c->nconstraints];
    memset(k, 0, sizeof *k);
    k->when = p->when;
    k->at = p->lx.token.start;
    k->values = -1;
    status = (p->when.group >= 0 ? dv__expr_parse_no_div : dv__expr_parse)(&p->lx, &c->arena, &k->e);
    if (!status)
        status = slice(p, k->at, &k->text);
    c->nconstraints += !status;
    return status;
}

static int parse_definition(struct parser *p)
{
    dv__contract *c = p->c;
    int status = dv__contract_grow(c, &c->definitions, c->ndefinitions, sizeof *c->definitions);
    if (status)
        return status;
    dv__definition *d = &c->definitions[c->ndefinitions];
    memset(d, 0, sizeof *d);
    d->when = p->when;
    d->at = p->lx.token.start;
    status = copy_word(p, &d->name);
    if (status)
        return status;
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* = */
    status = (p->when.group >= 0 ? dv__expr_parse_no_div : dv__expr_parse)(&p->lx, &c->arena, &d->e);
    if (!status)
        status = slice(p, d->at, &d->text);
    c->ndefinitions += !status;
    return status;
}

static bool next_is(const struct parser *p, const char *what)
{
    dv__lexer ahead = p->lx;
    dv__lexer_next(&ahead);
    return p->lx.token.kind == DV__TOKEN_IDENT && dv__lexer_is(&ahead, what);
}

/* parallel(b, *s), sum(k) */
static bool at_named(const struct parser *p)
{
    return next_is(p, "(") && (dv__lexer_is(&p->lx, "parallel") || dv__lexer_is(&p->lx, "sum"));
}

static int parse_named(struct parser *p)
{
    const bool parallel = dv__lexer_is(&p->lx, "parallel");
    dv__named **list = parallel ? &p->c->parallel : &p->c->sums;
    uint32_t *n = parallel ? &p->c->nparallel : &p->c->nsums;
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* ( */
    do {
        int status = dv__contract_grow(p->c, list, *n, sizeof **list);
        if (status)
            return status;
        dv__named *name = &(*list)[*n];
        memset(name, 0, sizeof *name);
        name->when = p->when;
        name->at = p->lx.token.start;
        name->run = dv__lexer_accept(&p->lx, "*");
        if (p->lx.token.kind != DV__TOKEN_IDENT)
            return dv__lexer_unexpected(&p->lx, "a dim or *run");
        status = copy_word(p, &name->name);
        if (status)
            return status;
        dv__lexer_next(&p->lx);
        ++*n;
    } while (dv__lexer_accept(&p->lx, ","));
    return dv__lexer_expect(&p->lx, ")");
}

/* Parses "unused(x, y)". */
static int parse_unused(struct parser *p)
{
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* ( */
    do {
        const int slot = find_word(p->c->schema->args, p->c->schema->nargs, p->lx.token);
        if (slot < 0)
            return dv__lexer_unexpected(&p->lx, "an argument of the schema in unused()");
        p->c->unused[slot] = true;
        dv__lexer_next(&p->lx);
    } while (dv__lexer_accept(&p->lx, ","));
    return dv__lexer_expect(&p->lx, ")");
}

/* T in f32 f64 bf16 */
static int parse_allowed(struct parser *p)
{
    enum { MAX_DTYPES = 64 }; /* as a kernel has: more than there are */
    dv__contract *c = p->c;
    const char *name, *at = p->lx.token.start;
    int status = copy_word(p, &name);
    if (status)
        return status;
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* in */
    uint32_t *keys = NULL, n = 0;
    for (uint32_t key; p->lx.token.kind == DV__TOKEN_IDENT; n++) {
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)p->lx.token.size, p->lx.token.start);
        char hint[160];
        if (!dv__dtype_lookup(word, &key))
            return fail(p, p->lx.token.start, "expected a dtype such as f32, found '%s'%s", word,
                dv__dtype_hint(word, hint, sizeof hint));
        if (n == MAX_DTYPES)
            return dv__fail_at(
                DV_ELIMIT, c->text, p->lx.token.start, "more than %d dtypes for the variable '%s'", MAX_DTYPES, name);
        status = dv__contract_grow(c, &keys, n, sizeof *keys);
        if (status)
            return status;
        keys[n] = key;
        dv__lexer_next(&p->lx);
        dv__lexer_accept(&p->lx, ",");
    }
    for (uint32_t i = 0; i < c->ndtypes; i++)
        if (!strcmp(c->dtypes[i].name, name) && c->dtypes[i].allowed)
            return fail(p, at, "'%s in ...' is given twice", name);
    if (c->ndtypes == DV__MAX_DTYPE_VARS)
        return dv__fail_at(DV_ELIMIT, c->text, at, "more than %d dtype variables", DV__MAX_DTYPE_VARS);
    c->dtypes[c->ndtypes++] = (dv__dtype_var){ name, at, keys, n }; /* resolving checks that a pattern binds it */
    return DV_OK;
}

static int parse_unbacked(struct parser *p)
{
    dv__contract *c = p->c;
    int status = dv__contract_grow(c, &c->unbacked, c->nunbacked, sizeof *c->unbacked);
    if (status)
        return status;
    dv__unbacked *u = &c->unbacked[c->nunbacked];
    memset(u, 0, sizeof *u);
    u->at = p->lx.token.start;
    status = copy_word(p, &u->name);
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

/* out: like(x) */
static int parse_output_fact(struct parser *p)
{
    dv__contract *c = p->c;
    const dv__token name = p->lx.token;
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* : */
    if (!dv__lexer_is(&p->lx, "like"))
        return dv__lexer_unexpected(&p->lx, "like(argument) after '%.*s:'", (int)name.size, name.start);
    bool found = false;
    const dv__lexer here = p->lx;
    for (uint32_t i = 0; i < c->noutputs; i++) {
        if (!dv__token_is(name, c->outputs[i].name))
            continue;
        p->lx = here;
        const int status = parse_like_or_view(p, &c->outputs[i]);
        if (status)
            return status;
        found = true;
    }
    return found ? DV_OK : fail(p, name.start, "expected the name of an output, found '%.*s'", (int)name.size, name.start);
}

/* T in f32 ...: an unknown name, and a dtype after "in". */
static bool at_allowed(const struct parser *p)
{
    if (!next_is(p, "in") || find_word(p->c->schema->args, p->c->schema->nargs, p->lx.token) >= 0)
        return false;
    dv__lexer ahead = p->lx;
    dv__lexer_next(&ahead);
    dv__lexer_next(&ahead);
    char word[32];
    uint32_t key;
    snprintf(word, sizeof word, "%.*s", (int)ahead.token.size, ahead.token.start);
    return ahead.token.kind == DV__TOKEN_IDENT && dv__dtype_lookup(word, &key);
}

/* workspace = ..., and the other facts of this form: where its expression belongs; NULL: it is none of them. */
static dv__expr **cost_of(const struct parser *p)
{
    dv__contract *c = p->c;
    const struct {
        const char *name;
        dv__expr **e;
    } costs[] = { { "workspace", &c->workspace }, { "flops", &c->flops }, { "bytes", &c->bytes }, { "rtol", &c->rtol },
        { "atol", &c->atol }, { "rounded", &c->rounded } };
    for (size_t i = 0; i < sizeof costs / sizeof *costs && next_is(p, "="); i++)
        if (dv__lexer_is(&p->lx, costs[i].name))
            return costs[i].e;
    return NULL;
}

static int parse_cost(struct parser *p, dv__expr **out)
{
    if (*out)
        return fail(p, p->lx.token.start, "'%.*s' is given twice", (int)p->lx.token.size, p->lx.token.start);
    dv__lexer_next(&p->lx);
    dv__lexer_next(&p->lx); /* = */
    return dv__expr_parse(&p->lx, &p->c->arena, out);
}

static int parse_fact(struct parser *p)
{
    dv__contract *c = p->c;
    if (at_named(p))
        return parse_named(p);
    if (next_is(p, "(") && dv__lexer_is(&p->lx, "unused"))
        return parse_unused(p);
    if (next_is(p, "(") && dv__at_takes(&p->lx)) {
        int status;
        do
            status = dv__takes_parse(&p->lx, c->schema, c->takes);
        while (!status && dv__lexer_accept(&p->lx, ","));
        return status;
    }
    dv__expr **cost = cost_of(p);
    if (cost)
        return parse_cost(p, cost);
    if (next_is(p, "="))
        return parse_definition(p);
    if (next_is(p, ":"))
        return parse_output_fact(p);
    if (next_is(p, "unbacked"))
        return parse_unbacked(p);
    if (at_allowed(p))
        return parse_allowed(p);
    return parse_constraint(p);
}

/* ---- Sections ------------------------------------------------------------------------------------------------------------ */

static bool at_end_of_part(const dv__lexer *lx)
{
    return lx->token.kind == DV__TOKEN_END || dv__lexer_is(lx, ";") || dv__lexer_is(lx, "/");
}

/* A name with brackets is a pattern unless an operator follows: "box[4]" is a pattern, "box[4] > 0" is a condition.
 */
static bool at_pattern(const struct parser *p)
{
    dv__lexer ahead = p->lx;
    if (ahead.token.kind != DV__TOKEN_IDENT)
        return false;
    const bool argument = find_word(p->c->schema->args, p->c->schema->nargs, ahead.token) >= 0;
    dv__lexer_next(&ahead);
    if ((argument && dv__lexer_is(&ahead, "{")) || dv__lexer_is(&ahead, "present") || dv__lexer_is(&ahead, "absent"))
        return true;
    if (!dv__lexer_is(&ahead, "["))
        return false;
    int depth = 0;
    do {
        depth += dv__lexer_is(&ahead, "[") - dv__lexer_is(&ahead, "]");
        dv__lexer_next(&ahead);
    } while (depth && ahead.token.kind != DV__TOKEN_END);
    static const char *const followers[] = { ":", ",", "->", "@", "present" };
    for (size_t i = 0; i < sizeof followers / sizeof *followers; i++)
        if (dv__lexer_is(&ahead, followers[i]))
            return true;
    return depth || at_end_of_part(&ahead);
}

/* Patterns, constraints, definitions, parallel and summed dims, then perhaps "->" and outputs. */
static int parse_signature(struct parser *p)
{
    int status = DV_OK;
    if (!at_end_of_part(&p->lx) && !dv__lexer_is(&p->lx, "->")) {
        do {
            if (at_pattern(p))
                status = parse_pattern(p);
            else if (cost_of(p))
                status = fail(p, p->lx.token.start, "'%.*s' is a fact of its own, for all cases; write ';' before it",
                    (int)p->lx.token.size, p->lx.token.start);
            else if (next_is(p, "="))
                status = parse_definition(p);
            else if (at_named(p))
                status = parse_named(p);
            else
                status = parse_constraint(p);
        } while (!status && dv__lexer_accept(&p->lx, ","));
        if (!status && !at_end_of_part(&p->lx) && !dv__lexer_is(&p->lx, "->"))
            status = dv__lexer_unexpected(&p->lx, "',', '->' or ';'");
    }
    if (status || !dv__lexer_accept(&p->lx, "->"))
        return status;
    p->next_output = 0;
    if (dv__lexer_accept(&p->lx, "("))
        return dv__lexer_expect(&p->lx, ")");
    do
        status = parse_output(p);
    while (!status && dv__lexer_accept(&p->lx, ","));
    return status;
}

/* True for a value that a case can name: an integer, a string, a bool or the name of a dtype; no float. */
static bool is_case_value(const dv__expr *e)
{
    uint32_t key;
    return e->kind == DV__EXPR_STRING || e->kind == DV__EXPR_INT || e->kind == DV__EXPR_BOOL ||
        (e->kind == DV__EXPR_NAME && dv__dtype_lookup(e->name, &key));
}

/* subject == A, or subject in A B: the subject; else NULL. */
static dv__expr *subject_of(const dv__expr *e)
{
    if (e->kind != DV__EXPR_EQ && e->kind != DV__EXPR_IN)
        return NULL;
    for (uint32_t i = 1; i < e->n; i++)
        if (!is_case_value(e->args[i]))
            return NULL;
    return e->args[0];
}

/* Values after "/": subject in A B... */
static int parse_values(struct parser *p, dv__expr *subject, dv__expr **out)
{
    dv__expr *e = DV__ARENA_NEW(&p->c->arena, dv__expr), **values = NULL;
    if (!e)
        return DV_ENOMEM;
    e->at = p->lx.token.start;
    uint32_t n = 0;
    int status = dv__contract_grow(p->c, &values, n, sizeof *values);
    if (status)
        return status;
    values[n++] = subject;
    while (!dv__lexer_is(&p->lx, ":")) {
        dv__expr *value = NULL;
        status = dv__expr_parse_primary(&p->lx, &p->c->arena, &value);
        if (!status && !is_case_value(value))
            status = dv__fail_at(DV_ECONTRACT, p->c->text, value->at, "expected a value or ':'");
        if (!status)
            status = dv__contract_grow(p->c, &values, n, sizeof *values);
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

static bool at_literal(const struct parser *p)
{
    char word[32];
    uint32_t key;
    snprintf(word, sizeof word, "%.*s", (int)p->lx.token.size, p->lx.token.start);
    return p->lx.token.kind == DV__TOKEN_STRING || p->lx.token.kind == DV__TOKEN_INT || dv__lexer_is(&p->lx, "True") ||
        dv__lexer_is(&p->lx, "False") || (p->lx.token.kind == DV__TOKEN_IDENT && dv__dtype_lookup(word, &key));
}

/* when condition: patterns / condition: patterns / else: patterns */
static int parse_group(struct parser *p)
{
    dv__contract *c = p->c;
    if (c->ngroups == DV__MAX_CASE_GROUPS)
        return dv__fail_at(DV_ELIMIT, c->text, p->lx.token.start, "more than %d groups of cases", DV__MAX_CASE_GROUPS);
    dv__lexer_next(&p->lx);
    int status = dv__contract_grow(c, &c->groups, c->ngroups, sizeof *c->groups);
    if (status)
        return status;
    dv__group *g = &c->groups[c->ngroups];
    memset(g, 0, sizeof *g);
    do {
        if (g->n == DV__MAX_CASES)
            return dv__fail_at(DV_ELIMIT, c->text, p->lx.token.start, "more than %d cases in a group", DV__MAX_CASES);
        dv__case *k = &g->cases[g->n];
        k->at = p->lx.token.start;
        if (g->n && !g->cases[g->n - 1].e)
            return fail(p, k->at, "'else' must be the last case");
        k->text = "no other case holds";
        if (g->n && dv__lexer_accept(&p->lx, "else"))
            k->e = NULL;
        else if (g->n && g->subject && at_literal(p))
            status = parse_values(p, g->subject, &k->e);
        else
            status = dv__expr_parse(&p->lx, &c->arena, &k->e);
        if (!status && !dv__lexer_is(&p->lx, ":"))
            status = dv__lexer_unexpected(&p->lx, "':' after the case's condition");
        if (!status && k->e && !(k->text = dv__contract_text_of(c, k->e)))
            status = DV_ENOMEM;
        if (status)
            return status;
        dv__lexer_next(&p->lx);
        dv__expr *subject = k->e ? subject_of(k->e) : NULL;
        if (!g->n)
            g->subject = subject;
        else if (!subject || !g->subject || !dv__expr_equal(subject, g->subject))
            g->subject = NULL;
        p->when.group = (int8_t)c->ngroups;
        p->when.index = (int8_t)g->n++;
        status = parse_signature(p);
        if (status)
            return status;
    } while (dv__lexer_accept(&p->lx, "/"));
    p->when.group = -1;
    c->ngroups++;
    return DV_OK;
}

static int parse_parts(struct parser *p)
{
    int status = DV_OK;
    bool signature = false;
    while (!status) {
        while (dv__lexer_accept(&p->lx, ";"))
            ;
        if (p->lx.token.kind == DV__TOKEN_END)
            return DV_OK;
        if (dv__lexer_is(&p->lx, "when"))
            status = parse_group(p);
        else if (at_pattern(p) || dv__lexer_is(&p->lx, "->") || (!signature && next_is(p, "[")))
            status = parse_signature(p);
        else
            status = parse_fact(p);
        signature = true;
        if (!status && !dv__lexer_is(&p->lx, ";") && p->lx.token.kind != DV__TOKEN_END)
            status = dv__lexer_unexpected(&p->lx, "';'");
    }
    return status;
}

int dv__contract_parse(const char *text, const char *name, const dv__schema *schema, dv__contract **out)
{
    *out = NULL;
    dv__contract *c = dv__calloc(1, sizeof *c);
    if (!c)
        return DV_ENOMEM;
    struct parser p = { .c = c, .when = { -1, 0 } };
    int status = DV_ENOMEM;
    c->schema = schema;
    c->name = dv__arena_strndup(&c->arena, name, strlen(name));
    c->text = dv__arena_strndup(&c->arena, text, strlen(text));
    c->takes = DV__ARENA_ARRAY(&c->arena, dv__takes, schema->nargs + schema->nreturns);
    c->unused = DV__ARENA_ARRAY(&c->arena, bool, schema->nargs + 1);
    if (!c->name || !c->text || !c->takes || !c->unused)
        goto fail;
    dv__lexer_init(&p.lx, c->text);
    if (!(status = dv__lexer_check(c->text)))
        status = parse_parts(&p);
    if (!status)
        status = dv__contract_resolve(c);
    if (!status)
        status = dv__contract_prepare(c);
    if (!status)
        status = dv__contract_build(c);
    if (!status) {
        *out = c;
        return DV_OK;
    }
fail:
    dv__contract_free(c);
    return status == DV_ENOMEM ? status : dv__fail_in(status, "operator %s: contract", name);
}

void dv__contract_free(dv__contract *c)
{
    if (!c)
        return;
    dv__arena arena = c->arena; /* c->arena holds everything but c itself */
    dv__arena_deinit(&arena);
    dv__free(c);
}
