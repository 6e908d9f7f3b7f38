/* Types and alias annotations of schemas.
 *
 * PyTorch keeps two types for an argument: the one written ("real": SymInt, ScalarType, Layout, MemoryFormat) and what its
 * interpreter sees ("fake": int). It prints the real one, but inside tuples, dicts, futures and unions only the fake one is left:
 * (SymInt, Tensor) prints as (int, Tensor). Here a type is the real one, and type_to_fake() makes the other where PyTorch does.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/suggest.h"
#include "lang/schema_internal.h"

enum { MAX_TYPE_DEPTH = 64, MAX_UNION_TYPES = 256 };

/* Returns a zeroed new element at the end of an array. NULL: memory is out. */
void *dv__vec_push(dv__vec *v, dv__arena *arena, size_t element_size)
{
    if (v->n == v->capacity) {
        const size_t capacity = v->capacity ? v->capacity * 2 : 4;
        void *data = dv__arena_alloc(arena, capacity * element_size);
        if (!data)
            return NULL;
        if (v->n)
            memcpy(data, v->data, v->n * element_size);
        v->data = data;
        v->capacity = capacity;
    }
    return (char *)v->data + element_size * v->n++;
}

/* True if a token is one of TorchScript's keywords. */
static bool token_is_keyword(dv__token t)
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

int dv__schema_parse_name(dv__lexer *lx, dv__arena *arena, const char *expected, const char **out)
{
    if (lx->token.kind != DV__TOKEN_IDENT || token_is_keyword(lx->token))
        return dv__lexer_fail_expected(lx, "%s", expected);
    *out = dv__arena_strndup(arena, lx->token.start, lx->token.size);
    if (!*out)
        return DV_ENOMEM;
    dv__lexer_next(lx);
    return DV_OK;
}

/* ---- Making types -------------------------------------------------------------------------------------------------------- */

/* Returns a new type without elements. NULL: memory is out. */
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

dv__type *dv__type_new_container(dv__arena *arena, enum dv__type_kind kind, const dv__type *elem, int64_t fixed_size)
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

/* True if the type is OTHER with this name. */
static bool type_is_other_named(const dv__type *t, const char *name)
{
    return t->kind == DV__TYPE_OTHER && !strcmp(t->name, name);
}

/* Returns PyTorch's "fake" type of a schema type, the type in its interpreter: int for SymInt, ScalarType, Layout and
 * MemoryFormat, also as elements of lists and optionals; other types as they are. NULL: memory is out. */
static const dv__type *type_to_fake(dv__arena *arena, const dv__type *t)
{
    if (t->kind != DV__TYPE_LIST && t->kind != DV__TYPE_OPTIONAL)
        return dv__type_rows[t->kind].fake == t->kind ? t : &dv__type_rows[dv__type_rows[t->kind].fake].type;
    const dv__type *elem = type_to_fake(arena, t->elems[0]);
    return !elem ? NULL : elem == t->elems[0] ? t : dv__type_new_container(arena, t->kind, elem, t->fixed_size);
}

bool dv__types_are_equal(const dv__type *a, const dv__type *b)
{
    if (a->kind != b->kind || a->nelems != b->nelems || a->fixed_size != b->fixed_size)
        return false;
    if (a->kind == DV__TYPE_OTHER && strcmp(a->name, b->name))
        return false;
    for (size_t i = 0; i < a->nelems; i++)
        if (!dv__types_are_equal(a->elems[i], b->elems[i]))
            return false;
    return true;
}

/* True if the fake types of two types are equal. Sizes of lists do not matter. */
static bool types_have_same_fake(const dv__type *a, const dv__type *b)
{
    if (dv__type_rows[a->kind].fake != dv__type_rows[b->kind].fake || a->nelems != b->nelems)
        return false;
    if (a->kind == DV__TYPE_OTHER && strcmp(a->name, b->name))
        return false;
    for (size_t i = 0; i < a->nelems; i++)
        if (!types_have_same_fake(a->elems[i], b->elems[i]))
            return false;
    return true;
}

bool dv__type_is_subtype(const dv__type *sub, const dv__type *super)
{
    const unsigned kind = dv__type_rows[sub->kind].fake;
    if (types_have_same_fake(sub, super) || type_is_other_named(super, "Any"))
        return true;
    if (super->kind == DV__TYPE_OPTIONAL) {
        if (type_is_other_named(sub, "NoneType"))
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

/* Parses the names of an alias set, a|b|*. The names are stored in the order in which PyTorch prints them, the last one first.
 * After a wildcard PyTorch accepts no more names. Returns a status. */
static int alias_parse_set(dv__lexer *lx, dv__arena *arena, const char *const **names, size_t *n)
{
    enum { MAX_ALIAS_NAMES = 64 };
    dv__vec v = { 0 };
    bool wildcard = false;
    int bars = 0;
    do {
        const char *name = NULL;
        if (v.n == MAX_ALIAS_NAMES)
            return dv__fail_at_column(
                DV_ELIMIT, lx->text, lx->token.start, "an alias set of more than %d names", MAX_ALIAS_NAMES);
        bars -= bars != 0;
        if (!bars && dv__lexer_try_accept(lx, "*")) {
            wildcard = true;
            name = "*";
        } else if (!wildcard) {
            int status = dv__schema_parse_name(lx, arena, "the name of an alias set or '*'", &name);
            if (status)
                return status;
        }
        for (size_t i = 0; name && i < v.n; i++)
            if (!strcmp(((const char **)v.data)[i], name))
                name = NULL;
        if (name) {
            const char **slot = dv__vec_push(&v, arena, sizeof *slot);
            if (!slot)
                return DV_ENOMEM;
            *slot = name;
        }
        bars += dv__lexer_try_accept(lx, "|") ? 1 : wildcard && dv__lexer_try_accept(lx, "||") ? 2 : 0;
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

int dv__alias_parse(dv__lexer *lx, dv__arena *arena, unsigned *next_alias_id, dv__alias **out)
{
    *out = NULL;
    const bool brackets = dv__lexer_is_at(lx, "(");
    if (!brackets && !dv__lexer_is_at(lx, "!"))
        return DV_OK;
    dv__lexer_next(lx);
    dv__alias *a = DV__ARENA_NEW(arena, dv__alias);
    if (!a)
        return DV_ENOMEM;
    *out = a;
    if (!brackets) { /* Tensor! has a set of its own before the call and none after it */
        char name[24];
        snprintf(name, sizeof name, "$%u", (*next_alias_id)++);
        const char **names = DV__ARENA_NEW(arena, const char *);
        if (!names || !(names[0] = dv__arena_strndup(arena, name, strlen(name))))
            return DV_ENOMEM;
        a->before = names;
        a->nbefore = 1;
        a->write = true;
        return DV_OK;
    }
    int status = alias_parse_set(lx, arena, &a->before, &a->nbefore);
    if (status)
        return status;
    a->write = dv__lexer_try_accept(lx, "!");
    if (dv__lexer_try_accept(lx, "->"))
        status = alias_parse_set(lx, arena, &a->after, &a->nafter);
    else
        a->after = a->before, a->nafter = a->nbefore;
    if (status)
        return status;
    if (!dv__lexer_is_at(lx, ")"))
        return dv__lexer_fail_expected(lx,
            a->nafter && a->after != a->before ? "'|' or ')'"
                : a->write                     ? "'->' or ')'"
                                               : "'|', '!', '->' or ')'");
    dv__lexer_next(lx);
    return DV_OK;
}

int dv__alias_wrap_element(dv__arena *arena, const dv__alias *element, dv__alias **container)
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

typedef struct type_parser {
    dv__lexer *lx;
    dv__arena *arena;
    unsigned *next_alias_id;
    int depth;
} type_parser;

static int type_parse(type_parser *p, const dv__type **type, const dv__alias **alias);

/* Parses a type inside of another one: *out is its fake type, and its alias annotation is dropped. Returns a status. */
static int type_parse_nested(type_parser *p, const dv__type **out)
{
    const dv__alias *alias;
    const int status = type_parse(p, out, &alias);
    if (status)
        return status;
    *out = type_to_fake(p->arena, *out);
    return *out ? DV_OK : DV_ENOMEM;
}

/* Makes a type OTHER whose name is its text, "Dict(str, int)". Returns a status. */
static int type_new_composite(type_parser *p, const char *word, const dv__vec *elems, const dv__type **out)
{
    dv__strbuf text = { 0 };
    dv__strbuf_printf(&text, "%s(", word);
    for (size_t i = 0; i < elems->n; i++) {
        dv__strbuf_append_str(&text, i ? ", " : "");
        dv__type_print(((const dv__type **)elems->data)[i], &text);
    }
    dv__strbuf_append_str(&text, ")");
    const char *name = text.failed ? NULL : dv__arena_strndup(p->arena, text.data, text.size);
    dv__strbuf_deinit(&text);
    dv__type *t = name ? type_new(p->arena, DV__TYPE_OTHER, name) : NULL;
    if (!t)
        return DV_ENOMEM;
    t->elems = elems->data;
    t->nelems = elems->n;
    *out = t;
    return DV_OK;
}

/* Parses types in parentheses into an array. Returns a status. */
static int type_parse_element_types(type_parser *p, dv__vec *elems, bool may_be_empty)
{
    int status = dv__lexer_expect(p->lx, "(");
    if (status)
        return status;
    if (may_be_empty && dv__lexer_try_accept(p->lx, ")"))
        return DV_OK;
    do {
        const dv__type **slot, *t;
        if ((status = type_parse_nested(p, &t)))
            return status;
        if (!(slot = dv__vec_push(elems, p->arena, sizeof *slot)))
            return DV_ENOMEM;
        *slot = t;
    } while (dv__lexer_try_accept(p->lx, ","));
    if (dv__lexer_try_accept(p->lx, ")"))
        return DV_OK;
    return dv__lexer_fail_expected(p->lx, "',' or ')'");
}

/* Returns the number by which PyTorch sorts a member of a union. */
static int union_get_sort_key(const dv__type *t)
{
    static const struct {
        const char *prefix;
        int rank;
    } others[] = { { "Any", 0 }, { "AnyEnumType", 2 }, { "Storage", 4 }, { "Dict(", 7 }, { "Future(", 11 }, { "Await(", 12 },
        { "RRef(", 13 }, { "NoneType", 15 }, { "Quantizer", 18 }, { "Capsule", 22 }, { "Stream", 24 }, { "QScheme", 27 } };
    for (size_t i = sizeof others / sizeof *others; t->kind == DV__TYPE_OTHER && i-- > 0;)
        if (!strncmp(t->name, others[i].prefix, strlen(others[i].prefix)))
            return others[i].rank;
    return dv__type_rows[t->kind].order;
}

/* Adds a type to a union's members; of a union or an optional, its own members. Returns DV_OK or DV_ENOMEM. */
static int union_add_members(type_parser *p, const dv__type *type, dv__vec *members)
{
    if (type->kind == DV__TYPE_OPTIONAL || (type->kind == DV__TYPE_OTHER && !strncmp(type->name, "Union(", 6))) {
        for (size_t i = 0; i < type->nelems; i++)
            if (union_add_members(p, type->elems[i], members))
                return DV_ENOMEM;
        if (type->kind != DV__TYPE_OPTIONAL)
            return DV_OK;
        if (!(type = type_new(p->arena, DV__TYPE_OTHER, "NoneType")))
            return DV_ENOMEM;
    }
    const dv__type **slot = dv__vec_push(members, p->arena, sizeof *slot);
    if (!slot)
        return DV_ENOMEM;
    *slot = type;
    return DV_OK;
}

/* Makes the union of flat types: without members that another one covers, sorted by kind; a union of T and None is T?. Returns
 * a status. */
static int union_new(type_parser *p, const char *position_in_text, dv__vec *flat, const dv__type **out)
{
    dv__vec sorted = { 0 };
    const dv__type **f = flat->data;
    bool has_int = false, has_float = false, has_complex = false;
    for (size_t i = 0; i < flat->n; i++) {
        has_int |= f[i]->kind == DV__TYPE_INT;
        has_float |= f[i]->kind == DV__TYPE_FLOAT;
        has_complex |= f[i]->kind == DV__TYPE_COMPLEX;
    }
    if (has_int && has_float && has_complex) { /* a union with int, float and complex has Scalar too */
        const dv__type **slot = dv__vec_push(flat, p->arena, sizeof *slot);
        if (!slot)
            return DV_ENOMEM;
        *slot = DV__BASE_TYPE(SCALAR);
    }
    f = flat->data;
    for (size_t i = 0; i < flat->n; i++) {
        bool covered = false;
        for (size_t j = 0; j < flat->n && !covered; j++)
            covered = j != i && dv__type_is_subtype(f[i], f[j]) && (j < i || !types_have_same_fake(f[i], f[j]));
        if (covered)
            continue;
        size_t k = sorted.n;
        if (!dv__vec_push(&sorted, p->arena, sizeof *f))
            return DV_ENOMEM;
        const dv__type **a = sorted.data;
        for (; k > 0 && union_get_sort_key(a[k - 1]) > union_get_sort_key(f[i]); k--)
            a[k] = a[k - 1];
        a[k] = f[i];
    }
    const dv__type **a = sorted.data;
    const bool one_is_none = sorted.n == 2 && (type_is_other_named(a[0], "NoneType") || type_is_other_named(a[1], "NoneType"));
    if (one_is_none)
        return (*out = dv__type_new_container(p->arena, DV__TYPE_OPTIONAL, a[type_is_other_named(a[0], "NoneType")], -1))
            ? DV_OK
            : DV_ENOMEM;
    if (sorted.n == 1 && a[0]->kind != DV__TYPE_SCALAR)
        return dv__fail_at_column(DV_ESYNTAX, p->lx->text, position_in_text, "expected a union of different types");
    return type_new_composite(p, "Union", &sorted, out);
}

/* Parses the members of Union(...), which begins at `at`. Returns a status. */
static int type_parse_union(type_parser *p, const char *position_in_text, const dv__type **out)
{
    dv__vec written = { 0 }, flat = { 0 };
    int status = type_parse_element_types(p, &written, false);
    if (status)
        return status;
    for (size_t i = 0; i < written.n; i++)
        if (union_add_members(p, ((const dv__type **)written.data)[i], &flat))
            return DV_ENOMEM;
    if (flat.n > MAX_UNION_TYPES)
        return dv__fail_at_column(DV_ELIMIT, p->lx->text, position_in_text, "a union of more than %d types", MAX_UNION_TYPES);
    return union_new(p, position_in_text, &flat, out);
}

/* Parses __torch__.torch.classes.ns.Name after the first word. Only PyTorch knows which classes exist. Returns a status. */
static int type_parse_class(type_parser *p, const dv__type **out)
{
    dv__strbuf name = { 0 };
    dv__strbuf_append_str(&name, "__torch__");
    for (int i = 0; i < 4; i++) {
        static const char *const fixed[] = { "torch", "classes", NULL, NULL };
        const char *segment = NULL;
        int status = dv__lexer_expect(p->lx, ".");
        if (!status && fixed[i] && !dv__lexer_is_at(p->lx, fixed[i]))
            status = dv__lexer_fail_expected(p->lx, "'%s'", fixed[i]);
        if (!status)
            status = dv__schema_parse_name(p->lx, p->arena, i == 2 ? "a namespace of classes" : "the name of a class", &segment);
        if (status) {
            dv__strbuf_deinit(&name);
            return status;
        }
        dv__strbuf_printf(&name, ".%s", segment);
    }
    const char *copy = name.failed ? NULL : dv__arena_strndup(p->arena, name.data, name.size);
    dv__strbuf_deinit(&name);
    *out = copy ? type_new(p->arena, DV__TYPE_OTHER, copy) : NULL;
    return *out ? DV_OK : DV_ENOMEM;
}

/* True at a '.' and a name: names of PyTorch's opaque types have dots. */
static bool type_is_at_dotted_name(const dv__lexer *lx)
{
    dv__lexer ahead = *lx;
    return dv__lexer_try_accept(&ahead, ".") && ahead.token.kind == DV__TOKEN_IDENT && !token_is_keyword(ahead.token);
}

/* Replaces *name by "name.segment" in the arena. Returns DV_OK or DV_ENOMEM. */
static int name_append_segment(dv__arena *arena, const char **name, const char *segment)
{
    const size_t n = strlen(*name), m = strlen(segment);
    char *joined = dv__arena_alloc(arena, n + m + 2);
    if (!joined)
        return DV_ENOMEM;
    memcpy(joined, *name, n);
    joined[n] = '.';
    memcpy(joined + n + 1, segment, m);
    *name = joined;
    return DV_OK;
}

static const struct {
    const char *word;
    enum dv__type_kind kind;
    const char *name;
} base_types[] = {
#define TYPE(id, word, ...) { word, DV__TYPE_##id, word },
#define WORD(word, id, printed) { word, DV__TYPE_##id, printed },
#include "lang/types.def"
};

const char *dv__type_print_hint(const char *name, char *buffer, size_t size)
{
    static const char *const others[][2] = { { "double", "float" }, { "long", "int" }, { "integer", "int" }, { "int64_t", "int" },
        { "string", "str" }, { "boolean", "bool" }, { "dtype", "ScalarType" } }; /* names of types in other languages */
    dv__suggestions suggestions = { .wanted = name };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i][0]))
            return snprintf(buffer, size, "; did you mean '%s'?", others[i][1]), buffer;
    for (size_t i = 0; i < sizeof base_types / sizeof *base_types; i++)
        if (base_types[i].kind != DV__TYPE_OTHER && !strcmp(base_types[i].word, base_types[i].name))
            dv__suggest_add(&suggestions, base_types[i].word);
    while (suggestions.n && suggestions.best_matches[suggestions.n - 1].distance > suggestions.best_matches[0].distance)
        suggestions.n--;
    return dv__suggest_print(&suggestions, buffer, size);
}

const dv__type *dv__type_strip_lists_and_optionals(const dv__type *t)
{
    while (t->kind == DV__TYPE_OPTIONAL || t->kind == DV__TYPE_LIST)
        t = t->elems[0];
    return t;
}

bool dv__type_has_tensors(const dv__type *t) { return dv__type_strip_lists_and_optionals(t)->kind == DV__TYPE_TENSOR; }

bool dv__type_is_type_variable(const dv__type *t) { return t->kind == DV__TYPE_OTHER && *t->name >= 'a' && *t->name <= 'z'; }

/* Parses a type's first word, or a dotted name, to *out. Fails if no type has the name; a name in lower case is a type variable.
 * Returns a status. */
static int type_parse_base(type_parser *p, const dv__type **out)
{
    const dv__token t = p->lx->token;
    for (size_t i = 0; t.kind == DV__TOKEN_IDENT && i < sizeof base_types / sizeof *base_types; i++)
        if (dv__token_is(t, base_types[i].word)) {
            dv__lexer ahead = *p->lx;
            dv__lexer_next(&ahead);
            if (base_types[i].kind != DV__TYPE_TENSOR &&
                type_is_at_dotted_name(&ahead)) /* int.x is the name of an opaque type; Tensor.x is not */
                break;
            dv__lexer_next(p->lx);
            *out = base_types[i].kind == DV__TYPE_OTHER ? type_new(p->arena, DV__TYPE_OTHER, base_types[i].name)
                                                        : &dv__type_rows[base_types[i].kind].type;
            return *out ? DV_OK : DV_ENOMEM;
        }
    const char *name;
    char hint[160];
    int status = dv__schema_parse_name(p->lx, p->arena, "a type", &name);
    if (status)
        return status;
    if (*name < 'a' || *name > 'z') /* a name in lower case is a type variable */
        return dv__fail_at_column(DV_ESYNTAX, p->lx->text, t.start,
            "expected a type (Tensor, SymInt, int, float, bool, str, Scalar...), "
            "found '%.60s'%s",
            name, dv__type_print_hint(name, hint, sizeof hint));
    while (type_is_at_dotted_name(p->lx)) {
        const char *segment;
        dv__lexer_next(p->lx);
        if ((status = dv__schema_parse_name(p->lx, p->arena, "a type", &segment)) ||
            (status = name_append_segment(p->arena, &name, segment)))
            return status;
    }
    *out = type_new(p->arena, DV__TYPE_OTHER, name);
    return *out ? DV_OK : DV_ENOMEM;
}

/* Parses a type without its ? and [], and its alias annotation. Returns a status. */
static int type_parse_without_suffixes(type_parser *p, const dv__type **type, dv__alias **alias)
{
    dv__lexer *lx = p->lx;
    const char *at = lx->token.start;
    dv__vec elems = { 0 };
    int status;
    *alias = NULL;
    if (dv__lexer_is_at(lx, "(")) {
        if ((status = type_parse_element_types(p, &elems, true)))
            return status;
        dv__type *t = type_new(p->arena, DV__TYPE_TUPLE, NULL);
        if (!t)
            return DV_ENOMEM;
        t->elems = elems.data;
        t->nelems = elems.n;
        *type = t;
        return DV_OK;
    }
    if (dv__lexer_is_at(lx, "Future") || dv__lexer_is_at(lx, "Await") || dv__lexer_is_at(lx, "RRef")) {
        const char *word = dv__lexer_is_at(lx, "Future") ? "Future" : dv__lexer_is_at(lx, "Await") ? "Await" : "RRef";
        dv__lexer_next(lx);
        if ((status = type_parse_element_types(p, &elems, false)))
            return status;
        if (elems.n != 1)
            return dv__fail_at_column(DV_ESYNTAX, lx->text, at, "expected one type in %s(...), found %zu", word, elems.n);
        return type_new_composite(p, word, &elems, type);
    }
    if (dv__lexer_try_accept(lx, "__torch__"))
        return type_parse_class(p, type);
    if (dv__lexer_try_accept(lx, "Dict")) {
        if ((status = type_parse_element_types(p, &elems, false)))
            return status;
        if (elems.n != 2)
            return dv__fail_at_column(
                DV_ESYNTAX, lx->text, at, "expected the types of key and value in Dict(...), found %zu types", elems.n);
        const dv__type *key = *(const dv__type **)elems.data;
        if (!dv__type_rows[key->kind].can_be_key && !type_is_other_named(key, "Any"))
            return dv__fail_at_column(
                DV_ESYNTAX, lx->text, at, "expected a key of type int, float, complex, bool, str, Tensor or Device");
        status = type_new_composite(p, "Dict", &elems, type);
    } else if (dv__lexer_try_accept(lx, "Union")) {
        status = type_parse_union(p, at, type);
    } else {
        status = type_parse_base(p, type);
    }
    return status ? status : dv__alias_parse(lx, p->arena, p->next_alias_id, alias);
}

/* True at "[]". */
static bool type_is_at_empty_brackets(const dv__lexer *lx)
{
    dv__lexer ahead = *lx;
    return dv__lexer_try_accept(&ahead, "[") && dv__lexer_is_at(&ahead, "]");
}

/* Returns the optional of a type as PyTorch makes it: T?? is T?, Union(T, U, None)? is Union(T, U)?, and a union that is Scalar
 * becomes Scalar. NULL: memory is out. */
static const dv__type *type_make_optional(type_parser *p, const dv__type *t)
{
    dv__vec members = { 0 };
    if (t->kind == DV__TYPE_OPTIONAL)
        return t;
    if (t->kind == DV__TYPE_OTHER && !strncmp(t->name, "Union(", 6)) {
        for (size_t i = 0; i < t->nelems; i++) {
            const dv__type **slot = type_is_other_named(t->elems[i], "NoneType") ? NULL
                                                                                 : dv__vec_push(&members, p->arena, sizeof *slot);
            if (slot)
                *slot = t->elems[i];
            else if (!type_is_other_named(t->elems[i], "NoneType"))
                return NULL;
        }
        const dv__type *bare = *(const dv__type **)members.data;
        if (members.n != 1 && type_new_composite(p, "Union", &members, &bare))
            return NULL;
        t = bare;
    }
    return dv__type_new_container(p->arena, DV__TYPE_OPTIONAL, t, -1);
}

/* Parses the ? and [] after a type. Returns a status. */
static int type_parse_suffixes(type_parser *p, const dv__type **type, dv__alias **alias)
{
    for (int n = 0;; n++) {
        if (n > MAX_TYPE_DEPTH)
            return dv__fail_at_column(
                DV_ELIMIT, p->lx->text, p->lx->token.start, "types are nested more than %d deep", MAX_TYPE_DEPTH);
        if (type_is_at_empty_brackets(p->lx)) {
            dv__alias *container;
            dv__lexer_next(p->lx);
            dv__lexer_next(p->lx);
            int status = dv__alias_parse(p->lx, p->arena, p->next_alias_id, &container);
            if (!status)
                status = dv__alias_wrap_element(p->arena, *alias, &container);
            if (status)
                return status;
            *alias = container;
            *type = dv__type_new_container(p->arena, DV__TYPE_LIST, *type, -1);
        } else if (dv__lexer_is_at(p->lx, "?")) {
            if (type_is_other_named(*type, "NoneType"))
                return dv__fail_at_column(DV_ESYNTAX, p->lx->text, p->lx->token.start, "NoneType cannot be optional");
            dv__lexer_next(p->lx);
            *type = type_make_optional(p, *type);
        } else {
            return DV_OK;
        }
        if (!*type)
            return DV_ENOMEM;
    }
}

/* Parses a type with its suffixes; *alias receives its annotation, or NULL. Returns a status. */
static int type_parse(type_parser *p, const dv__type **type, const dv__alias **alias)
{
    dv__alias *annotation = NULL;
    if (p->depth >= MAX_TYPE_DEPTH)
        return dv__fail_at_column(
            DV_ELIMIT, p->lx->text, p->lx->token.start, "types are nested more than %d deep", MAX_TYPE_DEPTH);
    p->depth++;
    int status = type_parse_without_suffixes(p, type, &annotation);
    if (!status)
        status = type_parse_suffixes(p, type, &annotation);
    p->depth--;
    *alias = annotation;
    return status;
}

int dv__type_parse(dv__lexer *lx, dv__arena *arena, unsigned *next_alias_id, const dv__type **type, const dv__alias **alias)
{
    type_parser p = { lx, arena, next_alias_id, 0 };
    return type_parse(&p, type, alias);
}
