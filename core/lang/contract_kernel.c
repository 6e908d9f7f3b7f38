/* Conditions of kernels that refer to the contract: layouts, predicates, sets of dtypes. */
#include "lang/contract_internal.h"

#include <stdio.h>

/* ---- Accepted layouts ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    uint8_t kind;
    bool align;
} accepted_words[] = {
    { "contiguous", DV__ACCEPT_CONTIGUOUS, false },
    { "last_contiguous", DV__ACCEPT_LAST_CONTIGUOUS, false },
    { "strided", DV__ACCEPT_STRIDED, false },
    { "align", 0, true },
};
enum { NACCEPTED = sizeof accepted_words / sizeof *accepted_words };

/* True at one of the words contiguous, last_contiguous, strided and align. */
bool dv__is_at_accepted_layout(const dv__lexer *lx)
{
    for (int i = 0; i < NACCEPTED; i++)
        if (dv__lexer_is_at(lx, accepted_words[i].word))
            return true;
    return false;
}

/* Returns the slot of the argument or return with this name; -1: there is none. */
static int accepted_layout_find_slot_index(const dv__schema *schema, dv__token name)
{
    for (size_t i = 0; i < schema->nargs; i++)
        if (dv__token_is(name, schema->args[i].name))
            return (int)i;
    for (size_t i = 0; i < schema->nreturns; i++)
        if (*schema->returns[i].name && dv__token_is(name, schema->returns[i].name))
            return (int)(schema->nargs + i);
    return -1;
}

/* Parses one layout, such as "align(x, 64)", from its word on, into the entry of layouts for the slot. Returns a status. */
int dv__accepted_layout_parse(dv__lexer *lx, const dv__schema *schema, dv__accepted_layout *layouts)
{
    int word = 0;
    while (word < NACCEPTED && !dv__lexer_is_at(lx, accepted_words[word].word))
        word++;
    if (word == NACCEPTED)
        return dv__lexer_fail_expected(lx, "contiguous, last_contiguous, strided or align");
    dv__lexer_next(lx);
    int status = dv__lexer_expect(lx, "(");
    if (status)
        return status;
    const int slot = accepted_layout_find_slot_index(schema, lx->token);
    if (slot < 0)
        return dv__lexer_fail_expected(lx, "an argument or return of the schema in %s()", accepted_words[word].word);
    dv__lexer_next(lx);
    if (accepted_words[word].align) {
        const char *at;
        int64_t bytes;
        status = dv__lexer_expect(lx, ",");
        at = lx->token.start;
        if (!status)
            status = dv__lexer_read_int(lx, &bytes);
        if (status)
            return status;
        if (bytes <= 0 || bytes > 4096 || (bytes & (bytes - 1)))
            return dv__fail_at_column(DV_ECONTRACT, lx->text, at,
                "expected an alignment that is a power of two up to 4096, found %lld", (long long)bytes);
        layouts[slot].align_log2 = (uint8_t)__builtin_ctzll((unsigned long long)bytes);
    } else {
        layouts[slot].kind = accepted_words[word].kind;
    }
    return dv__lexer_expect(lx, ")");
}

/* Sets the layouts that a kernel's .takes names, as "strided(x), align(y, 64)"; other entries, which the caller must have set,
 * stay as they are. Returns a status. */
static int accepted_layouts_override(const char *text, const dv__schema *schema, dv__accepted_layout *layouts)
{
    dv__lexer lx;
    dv__lexer_init(&lx, text);
    while (lx.token.kind != DV__TOKEN_END) {
        const int status = dv__accepted_layout_parse(&lx, schema, layouts);
        if (status)
            return dv__fail_add_context(status, "takes");
        if (!dv__lexer_try_accept(&lx, ",") && !dv__lexer_try_accept(&lx, ";") && lx.token.kind != DV__TOKEN_END)
            return dv__fail_add_context(dv__lexer_fail_expected(&lx, "','"), "takes");
    }
    return DV_OK;
}

int dv__schema_parse_accepted(const char *text, const dv__schema *schema, dv__accepted_layout *out)
{
    memset(out, 0, (schema->nargs + schema->nreturns) * sizeof *out);
    return text ? accepted_layouts_override(text, schema, out) : DV_OK;
}

int dv__contract_parse_accepted(const dv__contract *c, const char *text, dv__accepted_layout *out)
{
    memcpy(out, c->accepted_layouts, (c->schema->nargs + c->schema->nreturns) * sizeof *out);
    return text ? accepted_layouts_override(text, c->schema, out) : DV_OK;
}

/* ---- Predicates ---------------------------------------------------------------------------------------------------------- */

int dv__predicate_parse(const char *text, const dv__contract *c, dv__arena *arena, dv__predicate **out)
{
    const char *copy = dv__arena_strndup(
        arena, text, strlen(text)); /* the expression tree points into the text, so the text is copied */
    *out = NULL;
    if (!copy)
        return DV_ENOMEM;
    dv__expr *e = NULL;
    int status = dv__expr_parse_text(copy, arena, "predicate", &e);
    if (!status)
        status = dv__resolve_expr_in_text_as(c, copy, e, DV__TYPE_BOOL, "a predicate");
    dv__predicate *p = status ? NULL : DV__ARENA_NEW(arena, dv__predicate);
    if (!status)
        status = p ? dv__predicate_build(c, p, e, arena) : DV_ENOMEM;
    if (status)
        return status == DV_ENOMEM ? status : dv__fail_add_context(status, "operator %s: predicate", c->name);
    *out = p;
    return DV_OK;
}

int dv__predicate_eval(const dv__contract *c, const dv__predicate *p, const dv_value *args, dv__solution *s, bool *out)
{
    dv__evaluator r = { .c = c, .program = &p->program, .args = args, .s = s };
    *out = false;
    if (!dv__var_set_is_subset(p->vars, dv__solution_get_bound_vars(s)))
        return DV_OK; /* a variable of the predicate is unbound, since an argument is absent: false */
    const int status = dv__eval_section(&r, &p->section);
    *out = !status && dv__eval_get_operand(&r, p->section.value)->i;
    return status;
}

/* ---- Dtypes -------------------------------------------------------------------------------------------------------------- */

/* The dtypes that a kernel accepts, for each dtype variable that its text names. */
struct dv__dtype_sets {
    struct dtype_set {
        int16_t var_index;
        dv__operand reg;
        uint32_t n;
        uint32_t *keys;
    } sets[DV__MAX_DTYPE_VARS];
    uint32_t n;
};

/* Fails with "<expected>, found <token>" and a hint, in the context of a kernel's dtypes. Returns a status. */
static int dtype_set_fail(const dv__contract *c, const dv__lexer *lx, const char *expected)
{
    char word[40], hint[160];
    snprintf(word, sizeof word, "%.*s", (int)lx->token.size, lx->token.start);
    const int status = dv__fail_at_column(DV_ECONTRACT, lx->text, lx->token.start, "%s, found '%s'%s", expected, word,
        dv__dtype_print_hint(word, hint, sizeof hint));
    return dv__fail_add_context(status, "operator %s: dtypes of a kernel", c->name);
}

/* True if a pattern has this dtype as a literal. Without dtype variables a kernel may only name such a dtype. */
static bool dtype_is_fixed_by_pattern(const dv__contract *c, uint32_t key)
{
    for (uint32_t i = 0; i < c->npatterns + c->nresult_patterns; i++) {
        const dv__dtype_spec *spec = i < c->npatterns ? &c->patterns[i].dtype : &c->result_patterns[i - c->npatterns].dtype;
        if (spec->kind == DV__DTYPE_SPEC_LITERAL && spec->key == key)
            return true;
    }
    return false;
}

/* Parses the dtypes of one set, "f32 bf16", which the contract must allow. Returns a status. */
static int dtype_set_parse_keys(dv__lexer *lx, const dv__contract *c, dv__arena *arena, struct dtype_set *set)
{
    uint32_t keys[64];
    set->n = 0;
    for (uint32_t key; lx->token.kind == DV__TOKEN_IDENT;) {
        char word[40];
        snprintf(word, sizeof word, "%.*s", (int)lx->token.size, lx->token.start);
        if (!dv__try_find_dtype_key(word, &key))
            return dtype_set_fail(c, lx, "expected a dtype such as f32");
        if (set->var_index < 0 && !dtype_is_fixed_by_pattern(c, key))
            return dtype_set_fail(c, lx, "expected a dtype that the contract names, since it has no dtype variable");
        if (set->var_index >= 0 && c->dtypes[set->var_index].allowed) {
            bool allowed = false;
            for (uint32_t i = 0; i < c->dtypes[set->var_index].nallowed; i++)
                allowed |= c->dtypes[set->var_index].allowed[i] == key;
            if (!allowed)
                return dtype_set_fail(c, lx, "expected a dtype that the contract allows");
        }
        if (set->n == 64)
            return dtype_set_fail(c, lx, "expected at most 64 dtypes");
        keys[set->n++] = key;
        dv__lexer_next(lx);
    }
    if (!set->n)
        return dtype_set_fail(c, lx, "expected a dtype such as f32");
    set->keys = DV__ARENA_ARRAY(arena, uint32_t, set->n);
    if (!set->keys)
        return DV_ENOMEM;
    memcpy(set->keys, keys, set->n * sizeof *keys);
    return DV_OK;
}

/* Parses one set, "T=f32 bf16" or "f32 bf16", which is for the first dtype variable of the contract's text. Returns a
 * status. */
static int dtype_set_parse(dv__lexer *lx, const dv__contract *c, dv__arena *arena, struct dtype_set *set)
{
    dv__lexer ahead = *lx;
    dv__lexer_next(&ahead);
    set->var_index = -1; /* without a name, the first dtype variable of the contract's text is meant */
    for (uint32_t i = 0; i < c->npatterns && set->var_index < 0; i++)
        if (c->patterns[i].dtype.kind == DV__DTYPE_SPEC_VAR)
            set->var_index = c->patterns[i].dtype.ref;
    if (dv__lexer_is_at(&ahead, "=")) {
        set->var_index = -1;
        for (uint32_t i = 0; i < c->ndtypes; i++)
            if (dv__token_is(lx->token, c->dtypes[i].name))
                set->var_index = (int16_t)i;
        if (set->var_index < 0)
            return dtype_set_fail(c, lx, "expected a dtype variable of the contract");
        dv__lexer_next(&ahead);
        *lx = ahead;
    }
    if (set->var_index >= 0)
        set->reg = dv__dtype_register(c, set->var_index);
    return dtype_set_parse_keys(lx, c, arena, set);
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
            return dtype_set_fail(c, &lx, "expected fewer sets of dtypes");
        const int status = dtype_set_parse(&lx, c, arena, &sets->sets[sets->n]);
        if (status)
            return status;
        sets->n++;
    } while (dv__lexer_try_accept(&lx, ","));
    if (lx.token.kind != DV__TOKEN_END)
        return dtype_set_fail(c, &lx, "expected ',' or the end");
    *out = sets;
    return DV_OK;
}

/* Returns the first set that does not contain the dtype of its variable. NULL: all sets match. */
static const struct dtype_set *dtype_sets_find_mismatch(const dv__dtype_sets *sets, const dv__solution *s)
{
    for (uint32_t i = 0; sets && i < sets->n; i++) {
        const struct dtype_set *set = &sets->sets[i];
        bool found = set->var_index < 0 || !(s->bound_dtypes >> set->var_index & 1);
        const uint32_t key = set->var_index < 0 ? 0 : dv_dtype_key(s->registers[set->reg].dtype);
        for (uint32_t k = 0; k < set->n && !found; k++)
            found = set->keys[k] == key;
        if (!found)
            return set;
    }
    return NULL;
}

bool dv__dtype_sets_match(const dv__dtype_sets *sets, const dv__solution *s) { return !dtype_sets_find_mismatch(sets, s); }

const char *dv__dtype_sets_print_mismatch(
    const dv__dtype_sets *sets, const dv__contract *c, const dv_value *args, const dv__solution *s, char *buffer, size_t size)
{
    const struct dtype_set *set = dtype_sets_find_mismatch(sets, s);
    const char *name = NULL, *found = set ? dv_dtype_name(s->registers[set->reg].dtype) : "";
    for (uint32_t i = 0; set && i < c->npatterns && !name; i++) { /* finds the first given tensor with this dtype variable */
        const dv__pattern *t = &c->patterns[i];
        if (t->dtype.kind == DV__DTYPE_SPEC_VAR && t->dtype.ref == set->var_index && args[t->slot].type != DV_VALUE_NONE)
            name = t->name;
    }
    snprintf(buffer, size, name ? "argument '%s' is %s" : "%s is %s",
        name      ? name
            : set ? c->dtypes[set->var_index].name
                  : "",
        found);
    return buffer;
}
