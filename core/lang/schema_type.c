/* Types and alias annotations of schemas.
 *
 * PyTorch keeps two types for an argument: the one written ("real": SymInt, ScalarType, Layout, MemoryFormat) and what its
 * interpreter sees ("fake": int). It prints the real one, but inside tuples, dicts, futures and unions only the fake one is left:
 * (SymInt, Tensor) prints as (int, Tensor). Here a type is the real one, and fake() makes the other where PyTorch does. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/near.h"
#include "lang/schema_types.h"

enum { MAX_DEPTH = 64, MAX_UNION = 256 };

void *dv__vec_add(dv__vec *v, dv__arena *arena, size_t size)
{
    if (v->n == v->room) {
        const size_t room = v->room ? v->room * 2 : 4;
        void *data = dv__arena_alloc(arena, room * size);
        if (!data)
            return NULL;
        if (v->n)
            memcpy(data, v->data, v->n * size);
        v->data = data;
        v->room = room;
    }
    return (char *)v->data + size * v->n++;
}

static bool is_keyword(dv__token t)
{
    static const char *const keywords[] = {
#define KEYWORD(word) word,
        DV__SCHEMA_KEYWORDS(KEYWORD)
#undef KEYWORD
    };
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (dv__token_is(t, keywords[i]))
            return true;
    return false;
}

int dv__schema_name(dv__lexer *lx, dv__arena *arena, const char *what, const char **out)
{
    if (lx->token.kind != DV__TOKEN_IDENT || is_keyword(lx->token))
        return dv__lexer_unexpected(lx, "%s", what);
    *out = dv__arena_strndup(arena, lx->token.start, lx->token.size);
    if (!*out)
        return DV_ENOMEM;
    dv__lexer_next(lx);
    return DV_OK;
}

/* ---- Making types -------------------------------------------------------------------------------------------------------- */

static dv__type *type_new(dv__arena *arena, enum dv__type_kind kind, const char *name)
{
    dv__type *t = DV__ARENA_NEW(arena, dv__type);
    if (t) {
        t->kind = kind;
        t->name = name;
        t->fixed_size = -1;
    }
    return t;
}

dv__type *dv__type_wrap(dv__arena *arena, enum dv__type_kind kind, const dv__type *elem, int64_t fixed_size)
{
    dv__type *t = type_new(arena, kind, NULL);
    const dv__type **elems = DV__ARENA_NEW(arena, const dv__type *);
    if (!t || !elems)
        return NULL;
    elems[0] = elem;
    t->elems = elems;
    t->nelems = 1;
    t->fixed_size = fixed_size;
    return t;
}

static bool is_other(const dv__type *t, const char *name) { return t->kind == DV__TYPE_OTHER && !strcmp(t->name, name); }

/* What PyTorch's interpreter sees of a type. */
static const dv__type *fake(dv__arena *arena, const dv__type *t)
{
    switch (t->kind) {
    case DV__TYPE_SYMINT:
    case DV__TYPE_SCALAR_TYPE:
    case DV__TYPE_LAYOUT:
    case DV__TYPE_MEMORY_FORMAT: return type_new(arena, DV__TYPE_INT, "int");
    case DV__TYPE_LIST:
    case DV__TYPE_OPTIONAL: {
        const dv__type *elem = fake(arena, t->elems[0]);
        return !elem ? NULL : elem == t->elems[0] ? t : dv__type_wrap(arena, t->kind, elem, t->fixed_size);
    }
    default: return t;
    }
}

bool dv__type_equal(const dv__type *a, const dv__type *b)
{
    if (a->kind != b->kind || a->nelems != b->nelems || a->fixed_size != b->fixed_size)
        return false;
    if (a->kind == DV__TYPE_OTHER && strcmp(a->name, b->name))
        return false;
    for (size_t i = 0; i < a->nelems; i++)
        if (!dv__type_equal(a->elems[i], b->elems[i]))
            return false;
    return true;
}

/* PyTorch's interpreter sees int in all of these. */
static enum dv__type_kind fake_kind(enum dv__type_kind kind)
{
    return kind == DV__TYPE_SYMINT || kind == DV__TYPE_SCALAR_TYPE || kind == DV__TYPE_LAYOUT || kind == DV__TYPE_MEMORY_FORMAT
        ? DV__TYPE_INT
        : kind;
}

static bool same(const dv__type *a, const dv__type *b) /* as fakes; sizes of lists do not matter */
{
    if (fake_kind(a->kind) != fake_kind(b->kind) || a->nelems != b->nelems)
        return false;
    if (a->kind == DV__TYPE_OTHER && strcmp(a->name, b->name))
        return false;
    for (size_t i = 0; i < a->nelems; i++)
        if (!same(a->elems[i], b->elems[i]))
            return false;
    return true;
}

bool dv__type_is_subtype(const dv__type *sub, const dv__type *super)
{
    const enum dv__type_kind kind = fake_kind(sub->kind);
    if (same(sub, super) || is_other(super, "Any"))
        return true;
    if (super->kind == DV__TYPE_OPTIONAL) {
        if (is_other(sub, "NoneType"))
            return true;
        return dv__type_is_subtype(kind == DV__TYPE_OPTIONAL ? sub->elems[0] : sub, super->elems[0]);
    }
    if (super->kind == DV__TYPE_SCALAR)
        return kind == DV__TYPE_INT || kind == DV__TYPE_FLOAT || kind == DV__TYPE_COMPLEX;
    if (super->kind == DV__TYPE_TUPLE && kind == DV__TYPE_TUPLE && sub->nelems == super->nelems) {
        for (size_t i = 0; i < sub->nelems; i++)
            if (!dv__type_is_subtype(sub->elems[i], super->elems[i]))
                return false;
        return true;
    }
    return false;
}

/* ---- Alias annotations --------------------------------------------------------------------------------------------------- */

/* a|b|*: after a wildcard PyTorch wants nothing more between the bars. The set is kept in the order in which PyTorch prints it:
 * the last comes first, as its hash set gives it for up to two names. */
static int parse_set(dv__lexer *lx, dv__arena *arena, const char *const **names, size_t *n)
{
    enum { MAX_NAMES = 64 };
    dv__vec v = { 0 };
    bool wildcard = false;
    int bars = 0;
    do {
        const char *name = NULL;
        if (v.n == MAX_NAMES)
            return dv__fail_at(DV_ELIMIT, lx->text, lx->token.start, "an alias set of more than %d names", MAX_NAMES);
        bars -= bars != 0;
        if (!bars && dv__lexer_accept(lx, "*")) {
            wildcard = true;
            name = "*";
        } else if (!wildcard) {
            int status = dv__schema_name(lx, arena, "the name of an alias set or '*'", &name);
            if (status)
                return status;
        }
        for (size_t i = 0; name && i < v.n; i++)
            if (!strcmp(((const char **)v.data)[i], name))
                name = NULL;
        if (name) {
            const char **slot = dv__vec_add(&v, arena, sizeof *slot);
            if (!slot)
                return DV_ENOMEM;
            *slot = name;
        }
        bars += dv__lexer_accept(lx, "|") ? 1 : wildcard && dv__lexer_accept(lx, "||") ? 2 : 0;
    } while (bars);
    const char **all = v.data;
    for (size_t i = 0; i < v.n / 2; i++) {
        const char *other = all[i];
        all[i] = all[v.n - 1 - i];
        all[v.n - 1 - i] = other;
    }
    *names = all;
    *n = v.n;
    return DV_OK;
}

int dv__alias_parse(dv__lexer *lx, dv__arena *arena, unsigned *fresh, dv__alias **out)
{
    *out = NULL;
    const bool brackets = dv__lexer_is(lx, "(");
    if (!brackets && !dv__lexer_is(lx, "!"))
        return DV_OK;
    dv__lexer_next(lx);
    dv__alias *a = DV__ARENA_NEW(arena, dv__alias);
    if (!a)
        return DV_ENOMEM;
    *out = a;
    if (!brackets) { /* Tensor!: a set of its own, empty afterwards */
        char name[24];
        snprintf(name, sizeof name, "$%u", (*fresh)++);
        const char **names = DV__ARENA_NEW(arena, const char *);
        if (!names || !(names[0] = dv__arena_strndup(arena, name, strlen(name))))
            return DV_ENOMEM;
        a->before = names;
        a->nbefore = 1;
        a->write = true;
        return DV_OK;
    }
    int status = parse_set(lx, arena, &a->before, &a->nbefore);
    if (status)
        return status;
    a->write = dv__lexer_accept(lx, "!");
    if (dv__lexer_accept(lx, "->"))
        status = parse_set(lx, arena, &a->after, &a->nafter);
    else
        a->after = a->before, a->nafter = a->nbefore;
    if (status)
        return status;
    if (!dv__lexer_is(lx, ")"))
        return dv__lexer_unexpected(lx,
            a->nafter && a->after != a->before ? "'|' or ')'"
                : a->write                     ? "'->' or ')'"
                                               : "'|', '!', '->' or ')'");
    dv__lexer_next(lx);
    return DV_OK;
}

int dv__alias_contain(dv__arena *arena, const dv__alias *element, dv__alias **container)
{
    if (!element)
        return DV_OK;
    if (!*container) {
        *container = DV__ARENA_NEW(arena, dv__alias);
        if (!*container)
            return DV_ENOMEM;
        (*container)->write = element->write;
    }
    (*container)->element = element;
    return DV_OK;
}

/* ---- Parsing ------------------------------------------------------------------------------------------------------------- */

typedef struct parser {
    dv__lexer *lx;
    dv__arena *arena;
    unsigned *fresh;
    int depth;
} parser;

static int parse_type(parser *p, const dv__type **type, const dv__alias **alias);

static int parse_inner(parser *p, const dv__type **out) /* a type inside another: its fake; its annotation is dropped */
{
    const dv__alias *alias;
    const int status = parse_type(p, out, &alias);
    if (status)
        return status;
    *out = fake(p->arena, *out);
    return *out ? DV_OK : DV_ENOMEM;
}

/* An OTHER whose name is its text: "Dict(str, int)". */
static int composite(parser *p, const char *word, const dv__vec *elems, const dv__type **out)
{
    dv__text text = { 0 };
    dv__text_add(&text, "%s(", word);
    for (size_t i = 0; i < elems->n; i++) {
        dv__text_puts(&text, i ? ", " : "");
        dv__type_print(((const dv__type **)elems->data)[i], &text);
    }
    dv__text_puts(&text, ")");
    const char *name = text.failed ? NULL : dv__arena_strndup(p->arena, text.data, text.size);
    dv__text_deinit(&text);
    dv__type *t = name ? type_new(p->arena, DV__TYPE_OTHER, name) : NULL;
    if (!t)
        return DV_ENOMEM;
    t->elems = elems->data;
    t->nelems = elems->n;
    *out = t;
    return DV_OK;
}

static int parse_elems(parser *p, dv__vec *elems, bool may_be_empty)
{
    int status = dv__lexer_expect(p->lx, "(");
    if (status)
        return status;
    if (may_be_empty && dv__lexer_accept(p->lx, ")"))
        return DV_OK;
    do {
        const dv__type **slot, *t;
        if ((status = parse_inner(p, &t)))
            return status;
        if (!(slot = dv__vec_add(elems, p->arena, sizeof *slot)))
            return DV_ENOMEM;
        *slot = t;
    } while (dv__lexer_accept(p->lx, ","));
    if (dv__lexer_accept(p->lx, ")"))
        return DV_OK;
    return dv__lexer_unexpected(p->lx, "',' or ')'");
}

static bool may_be_key(const dv__type *t)
{
    return t->kind == DV__TYPE_INT || t->kind == DV__TYPE_BOOL || t->kind == DV__TYPE_FLOAT || t->kind == DV__TYPE_COMPLEX ||
        t->kind == DV__TYPE_STR || t->kind == DV__TYPE_TENSOR || t->kind == DV__TYPE_DEVICE || is_other(t, "Any");
}

/* PyTorch's order of kinds, by which it sorts the members of a union. */
static int union_rank(const dv__type *t)
{
    switch (t->kind) {
    case DV__TYPE_TENSOR: return 3;
    case DV__TYPE_TUPLE: return 5;
    case DV__TYPE_LIST: return 6;
    case DV__TYPE_SCALAR: return 200; /* added after sorting */
    case DV__TYPE_FLOAT: return 9;
    case DV__TYPE_COMPLEX: return 10;
    case DV__TYPE_INT: return 14;
    case DV__TYPE_STR: return 16;
    case DV__TYPE_GENERATOR: return 17;
    case DV__TYPE_BOOL: return 19;
    case DV__TYPE_DEVICE: return 23;
    default: break;
    }
    static const struct {
        const char *prefix;
        int rank;
    } others[] = { { "Any", 0 }, { "AnyEnumType", 2 }, { "Storage", 4 }, { "Dict(", 7 }, { "Future(", 11 }, { "Await(", 12 },
        { "RRef(", 13 }, { "NoneType", 15 }, { "Quantizer", 18 }, { "Capsule", 22 }, { "Stream", 24 }, { "QScheme", 27 } };
    for (size_t i = sizeof others / sizeof *others; t->kind == DV__TYPE_OTHER && i-- > 0;)
        if (!strncmp(t->name, others[i].prefix, strlen(others[i].prefix)))
            return others[i].rank;
    return 100;
}

static int union_flatten(parser *p, const dv__type *t, dv__vec *to)
{
    if (t->kind == DV__TYPE_OPTIONAL || (t->kind == DV__TYPE_OTHER && !strncmp(t->name, "Union(", 6))) {
        for (size_t i = 0; i < t->nelems; i++)
            if (union_flatten(p, t->elems[i], to))
                return DV_ENOMEM;
        if (t->kind != DV__TYPE_OPTIONAL)
            return DV_OK;
        if (!(t = type_new(p->arena, DV__TYPE_OTHER, "NoneType")))
            return DV_ENOMEM;
    }
    const dv__type **slot = dv__vec_add(to, p->arena, sizeof *slot);
    if (!slot)
        return DV_ENOMEM;
    *slot = t;
    return DV_OK;
}

/* The union of flat types: without members that another one covers, sorted by kind; a union of T and None is T?. */
static int make_union(parser *p, const char *at, dv__vec *flat, const dv__type **out)
{
    dv__vec all = { 0 };
    const dv__type **f = flat->data;
    bool has_int = false, has_float = false, has_complex = false;
    for (size_t i = 0; i < flat->n; i++) {
        has_int |= f[i]->kind == DV__TYPE_INT;
        has_float |= f[i]->kind == DV__TYPE_FLOAT;
        has_complex |= f[i]->kind == DV__TYPE_COMPLEX;
    }
    if (has_int && has_float && has_complex) { /* all three: Scalar */
        const dv__type **slot = dv__vec_add(flat, p->arena, sizeof *slot);
        if (!slot || !(*slot = type_new(p->arena, DV__TYPE_SCALAR, "Scalar")))
            return DV_ENOMEM;
    }
    f = flat->data;
    for (size_t i = 0; i < flat->n; i++) {
        bool covered = false;
        for (size_t j = 0; j < flat->n && !covered; j++)
            covered = j != i && dv__type_is_subtype(f[i], f[j]) && (j < i || !same(f[i], f[j]));
        if (covered)
            continue;
        size_t k = all.n;
        if (!dv__vec_add(&all, p->arena, sizeof *f))
            return DV_ENOMEM;
        const dv__type **a = all.data;
        for (; k > 0 && union_rank(a[k - 1]) > union_rank(f[i]); k--)
            a[k] = a[k - 1];
        a[k] = f[i];
    }
    const dv__type **a = all.data;
    const bool one_is_none = all.n == 2 && (is_other(a[0], "NoneType") || is_other(a[1], "NoneType"));
    if (one_is_none)
        return (*out = dv__type_wrap(p->arena, DV__TYPE_OPTIONAL, a[is_other(a[0], "NoneType")], -1)) ? DV_OK : DV_ENOMEM;
    if (all.n == 1 && a[0]->kind != DV__TYPE_SCALAR)
        return dv__fail_at(DV_ESYNTAX, p->lx->text, at, "expected a union of different types");
    return composite(p, "Union", &all, out);
}

static int parse_union(parser *p, const char *at, const dv__type **out)
{
    dv__vec written = { 0 }, flat = { 0 };
    int status = parse_elems(p, &written, false);
    if (status)
        return status;
    for (size_t i = 0; i < written.n; i++)
        if (union_flatten(p, ((const dv__type **)written.data)[i], &flat))
            return DV_ENOMEM;
    if (flat.n > MAX_UNION)
        return dv__fail_at(DV_ELIMIT, p->lx->text, at, "a union of more than %d types", MAX_UNION);
    return make_union(p, at, &flat, out);
}

/* __torch__.torch.classes.ns.Name; which classes exist only PyTorch knows. */
static int parse_class(parser *p, const dv__type **out)
{
    dv__text name = { 0 };
    dv__text_puts(&name, "__torch__");
    for (int i = 0; i < 4; i++) {
        static const char *const fixed[] = { "torch", "classes", NULL, NULL };
        const char *part = NULL;
        int status = dv__lexer_expect(p->lx, ".");
        if (!status && fixed[i] && !dv__lexer_is(p->lx, fixed[i]))
            status = dv__lexer_unexpected(p->lx, "'%s'", fixed[i]);
        if (!status)
            status = dv__schema_name(p->lx, p->arena, i == 2 ? "a namespace of classes" : "the name of a class", &part);
        if (status) {
            dv__text_deinit(&name);
            return status;
        }
        dv__text_add(&name, ".%s", part);
    }
    const char *copy = name.failed ? NULL : dv__arena_strndup(p->arena, name.data, name.size);
    dv__text_deinit(&name);
    *out = copy ? type_new(p->arena, DV__TYPE_OTHER, copy) : NULL;
    return *out ? DV_OK : DV_ENOMEM;
}

/* . and a name: PyTorch's opaque types have dots. */
static bool at_dotted_name(const dv__lexer *lx)
{
    dv__lexer ahead = *lx;
    return dv__lexer_accept(&ahead, ".") && ahead.token.kind == DV__TOKEN_IDENT && !is_keyword(ahead.token);
}

static int join(dv__arena *arena, const char **name, const char *part)
{
    const size_t n = strlen(*name), m = strlen(part);
    char *joined = dv__arena_alloc(arena, n + m + 2);
    if (!joined)
        return DV_ENOMEM;
    memcpy(joined, *name, n);
    joined[n] = '.';
    memcpy(joined + n + 1, part, m);
    *name = joined;
    return DV_OK;
}

static const struct {
    const char *word;
    enum dv__type_kind kind;
    const char *name;
} base[] = {
#define BASE(word, kind, name) { word, DV__TYPE_##kind, name },
    DV__BASE_TYPES(BASE)
#undef BASE
};

const char *dv__type_hint(const char *name, char *buffer, size_t size)
{
    static const char *const others[][2] = { { "double", "float" }, { "long", "int" }, { "integer", "int" }, { "int64_t", "int" },
        { "string", "str" }, { "boolean", "bool" }, { "dtype", "ScalarType" } }; /* words of other languages */
    dv__near near = { .wanted = name };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i][0]))
            return snprintf(buffer, size, "; did you mean '%s'?", others[i][1]), buffer;
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        if (base[i].kind != DV__TYPE_OTHER && !strcmp(base[i].word, base[i].name))
            dv__near_add(&near, base[i].word);
    while (near.n && near.best[near.n - 1].distance > near.best[0].distance)
        near.n--;
    return dv__near_print(&near, buffer, size);
}

const dv__type *dv__type_bare(const dv__type *t)
{
    while (t->kind == DV__TYPE_OPTIONAL || t->kind == DV__TYPE_LIST)
        t = t->elems[0];
    return t;
}

bool dv__type_is_unknown(const dv__type *t) { return t->kind == DV__TYPE_OTHER && *t->name >= 'a' && *t->name <= 'z'; }

static int parse_base(parser *p, const dv__type **out)
{
    const dv__token t = p->lx->token;
    for (size_t i = 0; t.kind == DV__TOKEN_IDENT && i < sizeof base / sizeof *base; i++)
        if (dv__token_is(t, base[i].word)) {
            dv__lexer ahead = *p->lx;
            dv__lexer_next(&ahead);
            if (i && at_dotted_name(&ahead)) /* int.x is a name of its own; Tensor.x is not */
                break;
            dv__lexer_next(p->lx);
            *out = type_new(p->arena, base[i].kind, base[i].name);
            return *out ? DV_OK : DV_ENOMEM;
        }
    const char *name;
    char hint[160];
    int status = dv__schema_name(p->lx, p->arena, "a type", &name);
    if (status)
        return status;
    if (*name < 'a' || *name > 'z') /* lower case: a type variable */
        return dv__fail_at(DV_ESYNTAX, p->lx->text, t.start,
            "expected a type (Tensor, SymInt, int, float, bool, str, Scalar...), "
            "found '%.60s'%s",
            name, dv__type_hint(name, hint, sizeof hint));
    while (at_dotted_name(p->lx)) {
        const char *part;
        dv__lexer_next(p->lx);
        if ((status = dv__schema_name(p->lx, p->arena, "a type", &part)) || (status = join(p->arena, &name, part)))
            return status;
    }
    *out = type_new(p->arena, DV__TYPE_OTHER, name);
    return *out ? DV_OK : DV_ENOMEM;
}

/* A type without its ? and []. */
static int parse_head(parser *p, const dv__type **type, dv__alias **alias)
{
    dv__lexer *lx = p->lx;
    const char *at = lx->token.start;
    dv__vec elems = { 0 };
    int status;
    *alias = NULL;
    if (dv__lexer_is(lx, "(")) {
        if ((status = parse_elems(p, &elems, true)))
            return status;
        dv__type *t = type_new(p->arena, DV__TYPE_TUPLE, NULL);
        if (!t)
            return DV_ENOMEM;
        t->elems = elems.data;
        t->nelems = elems.n;
        *type = t;
        return DV_OK;
    }
    if (dv__lexer_is(lx, "Future") || dv__lexer_is(lx, "Await") || dv__lexer_is(lx, "RRef")) {
        const char *word = dv__lexer_is(lx, "Future") ? "Future" : dv__lexer_is(lx, "Await") ? "Await" : "RRef";
        dv__lexer_next(lx);
        if ((status = parse_elems(p, &elems, false)))
            return status;
        if (elems.n != 1)
            return dv__fail_at(DV_ESYNTAX, lx->text, at, "expected one type in %s(...), found %zu", word, elems.n);
        return composite(p, word, &elems, type);
    }
    if (dv__lexer_accept(lx, "__torch__"))
        return parse_class(p, type);
    if (dv__lexer_accept(lx, "Dict")) {
        if ((status = parse_elems(p, &elems, false)))
            return status;
        if (elems.n != 2)
            return dv__fail_at(
                DV_ESYNTAX, lx->text, at, "expected the types of key and value in Dict(...), found %zu types", elems.n);
        if (!may_be_key(*(const dv__type **)elems.data))
            return dv__fail_at(
                DV_ESYNTAX, lx->text, at, "expected a key of type int, float, complex, bool, str, Tensor or Device");
        status = composite(p, "Dict", &elems, type);
    } else if (dv__lexer_accept(lx, "Union")) {
        status = parse_union(p, at, type);
    } else {
        status = parse_base(p, type);
    }
    return status ? status : dv__alias_parse(lx, p->arena, p->fresh, alias);
}

static bool at_empty_brackets(const dv__lexer *lx)
{
    dv__lexer ahead = *lx;
    return dv__lexer_accept(&ahead, "[") && dv__lexer_is(&ahead, "]");
}

/* T?? is T?, Union(T, U, None)? is Union(T, U)? and a union that is Scalar becomes Scalar. */
static const dv__type *make_optional(parser *p, const dv__type *t)
{
    dv__vec some = { 0 };
    if (t->kind == DV__TYPE_OPTIONAL)
        return t;
    if (t->kind == DV__TYPE_OTHER && !strncmp(t->name, "Union(", 6)) {
        for (size_t i = 0; i < t->nelems; i++) {
            const dv__type **slot = is_other(t->elems[i], "NoneType") ? NULL : dv__vec_add(&some, p->arena, sizeof *slot);
            if (slot)
                *slot = t->elems[i];
            else if (!is_other(t->elems[i], "NoneType"))
                return NULL;
        }
        const dv__type *bare = *(const dv__type **)some.data;
        if (some.n != 1 && composite(p, "Union", &some, &bare))
            return NULL;
        t = bare;
    }
    return dv__type_wrap(p->arena, DV__TYPE_OPTIONAL, t, -1);
}

static int parse_suffixes(parser *p, const dv__type **type, dv__alias **alias)
{
    for (int n = 0;; n++) {
        if (n > MAX_DEPTH)
            return dv__fail_at(DV_ELIMIT, p->lx->text, p->lx->token.start, "types are nested more than %d deep", MAX_DEPTH);
        if (at_empty_brackets(p->lx)) {
            dv__alias *container;
            dv__lexer_next(p->lx);
            dv__lexer_next(p->lx);
            int status = dv__alias_parse(p->lx, p->arena, p->fresh, &container);
            if (!status)
                status = dv__alias_contain(p->arena, *alias, &container);
            if (status)
                return status;
            *alias = container;
            *type = dv__type_wrap(p->arena, DV__TYPE_LIST, *type, -1);
        } else if (dv__lexer_is(p->lx, "?")) {
            if (is_other(*type, "NoneType"))
                return dv__fail_at(DV_ESYNTAX, p->lx->text, p->lx->token.start, "NoneType cannot be optional");
            dv__lexer_next(p->lx);
            *type = make_optional(p, *type);
        } else {
            return DV_OK;
        }
        if (!*type)
            return DV_ENOMEM;
    }
}

static int parse_type(parser *p, const dv__type **type, const dv__alias **alias)
{
    dv__alias *own = NULL;
    if (p->depth >= MAX_DEPTH)
        return dv__fail_at(DV_ELIMIT, p->lx->text, p->lx->token.start, "types are nested more than %d deep", MAX_DEPTH);
    p->depth++;
    int status = parse_head(p, type, &own);
    if (!status)
        status = parse_suffixes(p, type, &own);
    p->depth--;
    *alias = own;
    return status;
}

int dv__type_parse(dv__lexer *lx, dv__arena *arena, unsigned *fresh, const dv__type **type, const dv__alias **alias)
{
    parser p = { lx, arena, fresh, 0 };
    return parse_type(&p, type, alias);
}
