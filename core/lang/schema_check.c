/* Checks of a schema at registration, beyond the grammar; and whether a new version of a schema breaks callers of the old one. */
#include <stdio.h>

#include "base/error.h"
#include "lang/schema_types.h"

/* ---- Validation ---------------------------------------------------------------------------------------------------------- */

static int fail(const dv__schema *s, const dv__argument *a, const char *is, const char *format, ...) DV__PRINTF(4, 5);
static int fail(const dv__schema *s, const dv__argument *a, const char *is, const char *format, ...)
{
    char what[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return dv_fail(DV_ESCHEMA, "schema of %s%s%s%s%s: %s '%s': %s", s->ns, *s->ns ? "::" : "", s->name, *s->overload ? "." : "",
        s->overload, is, *a->name ? a->name : "(unnamed)", what);
}

static bool writes(const dv__alias *a) { return a && (a->write || writes(a->element)); }

static bool names_set(const dv__alias *a, const char *name)
{
    for (size_t i = 0; a && i < a->nbefore; i++)
        if (!strcmp(a->before[i], name))
            return true;
    return a && names_set(a->element, name);
}

/* Check alias sets: only tensors have them, and a return's set must be an argument's. Several arguments with one set, written or
 * not, may share memory. */
static int check_alias(const dv__schema *s, const dv__argument *a, bool is_return)
{
    const char *is = is_return ? "return" : "argument";
    if (!a->alias)
        return DV_OK;
    if (dv__type_bare(a->type)->kind != DV__TYPE_TENSOR)
        return fail(s, a, is, "only tensors have alias annotations");
    for (const dv__alias *x = a->alias; x; x = x->element)
        for (size_t i = 0; i < x->nbefore; i++) {
            const char *name = x->before[i];
            bool found = false;
            if (!strcmp(name, "*"))
                continue;
            for (size_t j = 0; j < s->nargs; j++) {
                const dv__argument *b = &s->args[j];
                if (b == a || !names_set(b->alias, name))
                    continue;
                found = true;
                if (is_return && writes(a->alias) && !writes(b->alias))
                    return fail(s, a, is, "alias set '%s' is written, and argument '%s' only reads it", name, b->name);
            }
            if (is_return && !found)
                return fail(s, a, is, "alias set '%s' is not the set of any argument", name);
        }
    return DV_OK;
}

/* N of int[N] or int[N]?; -1: none. */
static int64_t fixed_size(const dv__type *t)
{
    t = t->kind == DV__TYPE_OPTIONAL ? t->elems[0] : t;
    return t->kind == DV__TYPE_LIST ? t->fixed_size : -1;
}

static int64_t list_size(const dv_value *v) /* -1: no list */
{
    switch (v->type) {
    case DV_VALUE_INTS: return (int64_t)v->as.ints.size;
    case DV_VALUE_FLOATS: return (int64_t)v->as.floats.size;
    case DV_VALUE_BOOLS: return (int64_t)v->as.bools.size;
    case DV_VALUE_COMPLEXES: return (int64_t)v->as.complexes.size;
    case DV_VALUE_DTYPES: return (int64_t)v->as.dtypes.size;
    default: return -1;
    }
}

static int check_argument(const dv__schema *s, const dv__argument *a, bool is_return)
{
    const char *is = is_return ? "return" : "argument";
    const dv__type *t = dv__type_bare(a->type);
    if (t->kind == DV__TYPE_OTHER || t->kind == DV__TYPE_TUPLE) {
        dv__text name = { 0 };
        char hint[160] = "";
        dv__type_print(a->type, &name);
        const int status = fail(s, a, is, "an operator cannot have the type %s%s", name.failed ? "it has" : name.data,
            dv__type_is_unknown(t) ? dv__type_hint(t->name, hint, sizeof hint) : "");
        dv__text_deinit(&name);
        return status;
    }
    if (a->def.has && !dv__default_fits(&a->def, a->type)) {
        dv__text name = { 0 };
        dv__type_print(a->type, &name);
        const int status = fail(s, a, is, "the default %s does not fit the type %s", a->def.text, name.failed ? "" : name.data);
        dv__text_deinit(&name);
        return status;
    }
    const int64_t wanted = fixed_size(a->type), given = a->def.has ? list_size(&a->def.value) : -1;
    if (wanted > 0 && given > 0 && given != wanted)
        return fail(
            s, a, is, "the default %s has %lld elements, the type has %lld", a->def.text, (long long)given, (long long)wanted);
    return check_alias(s, a, is_return);
}

int dv__schema_validate(const dv__schema *s)
{
    enum { MAX_SLOTS = 1024 }; /* the checks compare each name with all others */
    int status;
    if (s->nargs > MAX_SLOTS || s->nreturns > MAX_SLOTS)
        return dv_fail(DV_ELIMIT, "schema of %s: an operator has at most %d arguments and %d returns, found %zu and %zu", s->name,
            MAX_SLOTS, MAX_SLOTS, s->nargs, s->nreturns);
    if (s->vararg || s->varret)
        return dv_fail(DV_ESCHEMA, "schema of %s: '...' is for PyTorch's own primitives", s->name);
    if (s->stars > 1)
        return dv_fail(DV_ESCHEMA, "schema of %s: '*' appears twice", s->name);
    if (s->stars && (!s->nargs || !s->args[s->nargs - 1].kwarg_only))
        return dv_fail(DV_ESCHEMA, "schema of %s: nothing follows '*'", s->name);
    for (size_t i = 0; i < s->nargs; i++) {
        const dv__argument *a = &s->args[i];
        if (dv__schema_arg(s, a->name) != (int)i)
            return fail(s, a, "argument", "another one has the same name");
        if ((status = check_argument(s, a, false)))
            return status;
    }
    for (size_t i = 0; i < s->nreturns; i++) {
        const dv__argument *r = &s->returns[i];
        for (size_t j = 0; *r->name && j < i; j++)
            if (!strcmp(r->name, s->returns[j].name))
                return fail(s, r, "return", "another one has the same name");
        const int arg = *r->name ? dv__schema_arg(s, r->name) : -1;
        if (arg >= 0 && !(r->alias && dv__alias_equal(r->alias, s->args[arg].alias)))
            return fail(s, r, "return", "an argument has this name, and the return is not annotated as its alias");
        if ((status = check_argument(s, r, true)))
            return status;
    }
    return DV_OK;
}

/* ---- Compatibility ------------------------------------------------------------------------------------------------------- */

/* PyTorch's interpreter treats SymInt, ScalarType, Layout and MemoryFormat as int and lets one replace the other. For callers of
 * our operators only int and SymInt are interchangeable. */
static bool may_replace(const dv__type *wide, const dv__type *narrow)
{
    const bool ints = (wide->kind == DV__TYPE_INT || wide->kind == DV__TYPE_SYMINT) &&
        (narrow->kind == DV__TYPE_INT || narrow->kind == DV__TYPE_SYMINT);
    if (ints)
        return true;
    if (wide->kind == DV__TYPE_OPTIONAL)
        return may_replace(wide->elems[0], narrow->kind == DV__TYPE_OPTIONAL ? narrow->elems[0] : narrow);
    if (wide->kind == DV__TYPE_LIST && narrow->kind == DV__TYPE_LIST) /* lists are not covariant */
        return wide->fixed_size == narrow->fixed_size && may_replace(wide->elems[0], narrow->elems[0]) &&
            may_replace(narrow->elems[0], wide->elems[0]);
    if (wide->kind == DV__TYPE_SCALAR)
        return narrow->kind == DV__TYPE_SCALAR || narrow->kind == DV__TYPE_INT || narrow->kind == DV__TYPE_SYMINT ||
            narrow->kind == DV__TYPE_FLOAT || narrow->kind == DV__TYPE_COMPLEX;
    if (wide->kind == DV__TYPE_OTHER || wide->kind == DV__TYPE_TUPLE)
        return dv__type_is_subtype(narrow, wide);
    return dv__type_equal(wide, narrow);
}

static int incompatible(const dv__schema *s, const char *is, const char *name, const char *why)
{
    return dv_fail(DV_ESCHEMA, "schema of %s%s%s is not compatible with its older version: %s '%s' %s", s->ns, *s->ns ? "::" : "",
        s->name, is, name, why);
}

static int check_same_argument(const dv__schema *s, const dv__argument *newer, const dv__argument *older)
{
    const char *why = NULL;
    if (strcmp(newer->name, older->name))
        why = "was renamed or moved";
    else if (!may_replace(newer->type, older->type) || fixed_size(newer->type) != fixed_size(older->type))
        why = "takes another type";
    else if (!dv__alias_equal(newer->alias, older->alias))
        why = "has another alias annotation";
    else if (newer->kwarg_only && !older->kwarg_only)
        why = "became keyword-only";
    else if (older->def.has && (!newer->def.has || strcmp(newer->def.text, older->def.text)))
        why = "lost its default or has another";
    return why ? incompatible(s, "argument", older->name, why) : DV_OK;
}

static bool is_out(const dv__argument *a) { return a->kwarg_only && a->alias && a->alias->write; }

static size_t first_out(const dv__schema *s)
{
    size_t i = 0;
    while (i < s->nargs && !is_out(&s->args[i]))
        i++;
    return i;
}

static int check_returns(const dv__schema *newer, const dv__schema *older)
{
    if (newer->nreturns != older->nreturns)
        return dv_fail(DV_ESCHEMA, "schema of %s is not compatible with its older version: %zu returns instead of %zu",
            newer->name, newer->nreturns, older->nreturns);
    for (size_t i = 0; i < newer->nreturns; i++) {
        const dv__argument *a = &newer->returns[i], *b = &older->returns[i];
        if (strcmp(a->name, b->name))
            return incompatible(newer, "return", b->name, "was renamed");
        if (!may_replace(b->type, a->type) || fixed_size(a->type) != fixed_size(b->type))
            return incompatible(newer, "return", b->name, "has another type");
        if (!dv__alias_equal(a->alias, b->alias))
            return incompatible(newer, "return", b->name, "has another alias annotation");
    }
    return DV_OK;
}

int dv__schema_check_compatible(const dv__schema *newer, const dv__schema *older)
{
    if (strcmp(newer->ns, older->ns) || strcmp(newer->name, older->name) || strcmp(newer->overload, older->overload))
        return dv_fail(DV_ESCHEMA, "'%s' and '%s' are different operators or overloads", newer->text, older->text);
    if (newer->vararg != older->vararg || newer->varret != older->varret)
        return dv_fail(
            DV_ESCHEMA, "schema of %s is not compatible with its older version: '...' was added or removed", newer->name);
    int status = check_returns(newer, older);
    if (status)
        return status;
    const size_t new_out = first_out(newer), old_out = first_out(older);
    if (new_out < old_out)
        return incompatible(newer, "argument", older->args[new_out].name, "was removed");
    for (size_t i = 0; i < old_out; i++)
        if ((status = check_same_argument(newer, &newer->args[i], &older->args[i])))
            return status;
    for (size_t i = old_out; i < new_out; i++)
        if (!newer->args[i].def.has)
            return incompatible(newer, "argument", newer->args[i].name, "is new and has no default");
    for (size_t i = old_out; i < older->nargs; i++) {
        const size_t j = i - old_out + new_out;
        if (j >= newer->nargs)
            return incompatible(newer, "argument", older->args[i].name, "was removed");
        if ((status = check_same_argument(newer, &newer->args[j], &older->args[i])))
            return status;
    }
    for (size_t j = older->nargs - old_out + new_out; j < newer->nargs; j++)
        if (!newer->args[j].def.has)
            return incompatible(newer, "argument", newer->args[j].name, "is new and has no default");
    return DV_OK;
}

int dv_schema_compatible(const char *new_schema, const char *old_schema)
{
    dv__schema *newer = NULL, *older = NULL;
    int status = dv__schema_parse(new_schema, &newer);
    if (!status)
        status = dv__schema_parse(old_schema, &older);
    if (!status)
        status = dv__schema_check_compatible(newer, older);
    dv__schema_free(newer);
    dv__schema_free(older);
    return status;
}
