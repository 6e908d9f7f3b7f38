/* The parts of kernel rows that refer to the contract: layouts, predicates, sets of dtypes. */
#include "lang/contract_internal.h"

#include <stdio.h>

/* ---- How tensors are taken ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    uint8_t kind;
    bool align;
} takes_words[] = {
    { "contiguous", DV__TAKES_CONTIGUOUS, false },
    { "last_contiguous", DV__TAKES_LAST_CONTIGUOUS, false },
    { "strided", DV__TAKES_STRIDED, false },
    { "align", 0, true },
};
enum { NTAKES = sizeof takes_words / sizeof *takes_words };

bool dv__at_takes(const dv__lexer *lx)
{
    for (int i = 0; i < NTAKES; i++)
        if (dv__lexer_is(lx, takes_words[i].word))
            return true;
    return false;
}

static int find_slot(const dv__schema *schema, dv__token word)
{
    for (size_t i = 0; i < schema->nargs; i++)
        if (dv__token_is(word, schema->args[i].name))
            return (int)i;
    for (size_t i = 0; i < schema->nreturns; i++)
        if (*schema->returns[i].name && dv__token_is(word, schema->returns[i].name))
            return (int)(schema->nargs + i);
    return -1;
}

int dv__takes_parse(dv__lexer *lx, const dv__schema *schema, dv__takes *takes)
{
    int word = 0;
    while (word < NTAKES && !dv__lexer_is(lx, takes_words[word].word))
        word++;
    if (word == NTAKES)
        return dv__lexer_unexpected(lx, "contiguous, last_contiguous, strided or align");
    dv__lexer_next(lx);
    int status = dv__lexer_expect(lx, "(");
    if (status)
        return status;
    const int slot = find_slot(schema, lx->token);
    if (slot < 0)
        return dv__lexer_unexpected(lx, "an argument or return of the schema in %s()", takes_words[word].word);
    dv__lexer_next(lx);
    if (takes_words[word].align) {
        const char *at;
        int64_t bytes;
        status = dv__lexer_expect(lx, ",");
        at = lx->token.start;
        if (!status)
            status = dv__lexer_int(lx, &bytes);
        if (status)
            return status;
        if (bytes <= 0 || bytes > 4096 || (bytes & (bytes - 1)))
            return dv__fail_at(DV_ECONTRACT, lx->text, at, "expected an alignment that is a power of two up to 4096, found %lld",
                (long long)bytes);
        takes[slot].align_log2 = (uint8_t)__builtin_ctzll((unsigned long long)bytes);
    } else {
        takes[slot].kind = takes_words[word].kind;
    }
    return dv__lexer_expect(lx, ")");
}

static int takes_of(const char *text, const dv__schema *schema, dv__takes *out)
{
    dv__lexer lx;
    dv__lexer_init(&lx, text);
    while (lx.token.kind != DV__TOKEN_END) {
        const int status = dv__takes_parse(&lx, schema, out);
        if (status)
            return dv__fail_in(status, "takes");
        if (!dv__lexer_accept(&lx, ",") && !dv__lexer_accept(&lx, ";") && lx.token.kind != DV__TOKEN_END)
            return dv__fail_in(dv__lexer_unexpected(&lx, "','"), "takes");
    }
    return DV_OK;
}

int dv__schema_takes(const char *text, const dv__schema *schema, dv__takes *out)
{
    memset(out, 0, (schema->nargs + schema->nreturns) * sizeof *out);
    return text ? takes_of(text, schema, out) : DV_OK;
}

int dv__contract_takes(const dv__contract *c, const char *text, dv__takes *out)
{
    memcpy(out, c->takes, (c->schema->nargs + c->schema->nreturns) * sizeof *out);
    return text ? takes_of(text, c->schema, out) : DV_OK;
}

/* ---- Predicates ---------------------------------------------------------------------------------------------------------- */

int dv__predicate_parse(const char *text, const dv__contract *c, dv__arena *arena, dv__predicate **out)
{
    const char *copy = dv__arena_strndup(arena, text, strlen(text)); /* trees point into it */
    *out = NULL;
    if (!copy)
        return DV_ENOMEM;
    dv__expr *e = NULL;
    int status = dv__expr_parse_all(copy, arena, "predicate", &e);
    if (!status)
        status = dv__contract_resolve_expr(c, copy, e, DV__CTYPE_BOOL, "a predicate");
    dv__predicate *p = status ? NULL : DV__ARENA_NEW(arena, dv__predicate);
    if (!status)
        status = p ? dv__predicate_build(c, p, e, arena) : DV_ENOMEM;
    if (status)
        return status == DV_ENOMEM ? status : dv__fail_in(status, "operator %s: predicate", c->name);
    *out = p;
    return DV_OK;
}

int dv__predicate_eval(const dv__contract *c, const dv__predicate *p, const dv_value *args, dv__solution *s, bool *out)
{
    dv__run r = { .c = c, .program = &p->program, .args = args, .s = s };
    *out = false;
    if (!dv__needs_within(p->needs, dv__solution_bound(s)))
        return DV_OK; /* it refers to a size that only absent arguments have */
    const int status = dv__run_section(&r, &p->section);
    *out = !status && dv__read(&r, p->section.value)->i;
    return status;
}

/* ---- Dtypes -------------------------------------------------------------------------------------------------------------- */

/* For each named variable the dtypes that a row takes. */
struct dv__dtype_sets {
    struct one_set {
        int16_t var;
        dv__operand reg;
        uint32_t n;
        uint32_t *keys;
    } sets[DV__MAX_DTYPE_VARS];
    uint32_t n;
};

static int wrong(const dv__contract *c, const dv__lexer *lx, const char *what)
{
    char word[40], hint[160];
    snprintf(word, sizeof word, "%.*s", (int)lx->token.size, lx->token.start);
    const int status = dv__fail_at(
        DV_ECONTRACT, lx->text, lx->token.start, "%s, found '%s'%s", what, word, dv__dtype_hint(word, hint, sizeof hint));
    return dv__fail_in(status, "operator %s: dtypes of a row", c->name);
}

/* A contract without dtype variables: the row may only repeat a dtype that a pattern fixes. */
static bool is_fixed(const dv__contract *c, uint32_t key)
{
    for (uint32_t i = 0; i < c->npatterns + c->noutputs; i++) {
        const dv__dtype_spec *spec = i < c->npatterns ? &c->patterns[i].dtype : &c->outputs[i - c->npatterns].dtype;
        if (spec->kind == DV__DTYPE_ONE && spec->one == key)
            return true;
    }
    return false;
}

static int parse_keys(dv__lexer *lx, const dv__contract *c, dv__arena *arena, struct one_set *set)
{
    uint32_t keys[64];
    set->n = 0;
    for (uint32_t key; lx->token.kind == DV__TOKEN_IDENT;) {
        char word[40];
        snprintf(word, sizeof word, "%.*s", (int)lx->token.size, lx->token.start);
        if (!dv__dtype_lookup(word, &key))
            return wrong(c, lx, "expected a dtype such as f32");
        if (set->var < 0 && !is_fixed(c, key))
            return wrong(c, lx, "expected a dtype that the contract names, since it has no dtype variable");
        if (set->var >= 0 && c->dtypes[set->var].allowed) {
            bool allowed = false;
            for (uint32_t i = 0; i < c->dtypes[set->var].nallowed; i++)
                allowed |= c->dtypes[set->var].allowed[i] == key;
            if (!allowed)
                return wrong(c, lx, "expected a dtype that the contract allows");
        }
        if (set->n == 64)
            return wrong(c, lx, "expected at most 64 dtypes");
        keys[set->n++] = key;
        dv__lexer_next(lx);
    }
    if (!set->n)
        return wrong(c, lx, "expected a dtype such as f32");
    set->keys = DV__ARENA_ARRAY(arena, uint32_t, set->n);
    if (!set->keys)
        return DV_ENOMEM;
    memcpy(set->keys, keys, set->n * sizeof *keys);
    return DV_OK;
}

static int parse_set(dv__lexer *lx, const dv__contract *c, dv__arena *arena, struct one_set *set)
{
    dv__lexer ahead = *lx;
    dv__lexer_next(&ahead);
    set->var = -1; /* the first in the text */
    for (uint32_t i = 0; i < c->npatterns && set->var < 0; i++)
        if (c->patterns[i].dtype.kind == DV__DTYPE_VAR)
            set->var = c->patterns[i].dtype.ref;
    if (dv__lexer_is(&ahead, "=")) {
        set->var = -1;
        for (uint32_t i = 0; i < c->ndtypes; i++)
            if (dv__token_is(lx->token, c->dtypes[i].name))
                set->var = (int16_t)i;
        if (set->var < 0)
            return wrong(c, lx, "expected a dtype variable of the contract");
        dv__lexer_next(&ahead);
        *lx = ahead;
    }
    if (set->var >= 0)
        set->reg = dv__dtype_register(c, set->var);
    return parse_keys(lx, c, arena, set);
}

int dv__dtype_sets_parse(const char *text, const dv__contract *c, dv__arena *arena, dv__dtype_sets **out)
{
    *out = NULL;
    if (!text)
        return DV_OK;
    dv__dtype_sets *sets = DV__ARENA_NEW(arena, dv__dtype_sets);
    if (!sets)
        return DV_ENOMEM;
    dv__lexer lx;
    dv__lexer_init(&lx, text);
    do {
        if (sets->n == DV__MAX_DTYPE_VARS)
            return wrong(c, &lx, "expected fewer sets of dtypes");
        const int status = parse_set(&lx, c, arena, &sets->sets[sets->n]);
        if (status)
            return status;
        sets->n++;
    } while (dv__lexer_accept(&lx, ","));
    if (lx.token.kind != DV__TOKEN_END)
        return wrong(c, &lx, "expected ',' or the end");
    *out = sets;
    return DV_OK;
}

/* Returns the first set that does not contain the dtype of its variable, or NULL. */
static const struct one_set *find_mismatch(const dv__dtype_sets *sets, const dv__solution *s)
{
    for (uint32_t i = 0; sets && i < sets->n; i++) {
        const struct one_set *set = &sets->sets[i];
        bool found = set->var < 0 || !(s->bound_dtypes >> set->var & 1);
        const uint32_t key = set->var < 0 ? 0 : dv_dtype_key(s->registers[set->reg].dtype);
        for (uint32_t k = 0; k < set->n && !found; k++)
            found = set->keys[k] == key;
        if (!found)
            return set;
    }
    return NULL;
}

bool dv__dtype_sets_match(const dv__dtype_sets *sets, const dv__solution *s) { return !find_mismatch(sets, s); }

const char *dv__dtype_sets_reason(
    const dv__dtype_sets *sets, const dv__contract *c, const dv_value *args, const dv__solution *s, char *buffer, size_t size)
{
    const struct one_set *set = find_mismatch(sets, s);
    const char *name = NULL, *found = set ? dv_dtype_name(s->registers[set->reg].dtype) : "";
    for (uint32_t i = 0; set && i < c->npatterns && !name; i++) { /* the first tensor with this dtype variable */
        const dv__pattern *t = &c->patterns[i];
        if (t->dtype.kind == DV__DTYPE_VAR && t->dtype.ref == set->var && args[t->slot].type != DV_VALUE_NONE)
            name = t->name;
    }
    snprintf(buffer, size, name ? "argument '%s' is %s" : "%s is %s", name ? name : set ? c->dtypes[set->var].name : "", found);
    return buffer;
}
