/* Checks of a schema at registration, beyond the grammar; and whether a new version of a schema breaks callers of the old one. */
#include <stdio.h>

#include "base/error.h"
#include "lang/schema_internal.h"

/* ---- Validation ---------------------------------------------------------------------------------------------------------- */

static int schema_fail_validation(const dv__schema *s, const dv__argument *a, const char *role, const char *format, ...)
    DV__PRINTF(4, 5);
static int schema_fail_validation(const dv__schema *s, const dv__argument *a, const char *role, const char *format, ...)
{
    char what[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return dv_fail(DV_ESCHEMA, "schema of %s%s%s%s%s: %s '%s': %s", s->ns, *s->ns ? "::" : "", s->name, *s->overload ? "." : "",
        s->overload, role, *a->name ? a->name : "(unnamed)", what);
}

/* True if an alias annotation, or that of a list's elements, has a '!'. False for NULL. */
static bool alias_is_written(const dv__alias *a) { return a && (a->write || alias_is_written(a->element)); }

/* True if an alias annotation, or that of a list's elements, has the set with this name. */
static bool alias_names_set(const dv__alias *a, const char *name)
{
    for (size_t i = 0; a && i < a->nbefore; i++)
        if (!strcmp(a->before[i], name))
            return true;
    return a && alias_names_set(a->element, name);
}

/* Checks alias sets: only tensors have them, and a return's set must be an argument's. Several arguments with one set, written
 * or not, may share memory. */
static int schema_validate_alias(const dv__schema *s, const dv__argument *a, bool is_return)
{
    const char *role = is_return ? "return" : "argument";
    if (!a->alias)
        return DV_OK;
    if (dv__type_strip_lists_and_optionals(a->type)->kind != DV__TYPE_TENSOR)
        return schema_fail_validation(s, a, role, "only tensors have alias annotations");
    for (const dv__alias *x = a->alias; x; x = x->element)
        for (size_t i = 0; i < x->nbefore; i++) {
            const char *name = x->before[i];
            bool found = false;
            if (!strcmp(name, "*"))
                continue;
            for (size_t j = 0; j < s->nargs; j++) {
                const dv__argument *b = &s->args[j];
                if (b == a || !alias_names_set(b->alias, name))
                    continue;
                found = true;
                if (is_return && alias_is_written(a->alias) && !alias_is_written(b->alias))
                    return schema_fail_validation(
                        s, a, role, "alias set '%s' is written, and argument '%s' only reads it", name, b->name);
            }
            if (is_return && !found)
                return schema_fail_validation(s, a, role, "alias set '%s' is not the set of any argument", name);
        }
    return DV_OK;
}

/* Returns N of int[N] or int[N]?; -1: the type has no fixed size. */
static int64_t type_get_fixed_size(const dv__type *t)
{
    t = t->kind == DV__TYPE_OPTIONAL ? t->elems[0] : t;
    return t->kind == DV__TYPE_LIST ? t->fixed_size : -1;
}

/* Checks the type, the default and the alias annotation of an argument or return. Fails with the reason. */
static int schema_validate_argument(const dv__schema *s, const dv__argument *a, bool is_return)
{
    const char *role = is_return ? "return" : "argument";
    const dv__type *t = dv__type_strip_lists_and_optionals(a->type);
    if (t->kind == DV__TYPE_OTHER || t->kind == DV__TYPE_TUPLE) {
        dv__strbuf name = { 0 };
        char hint[160] = "";
        dv__type_print(a->type, &name);
        const int status = schema_fail_validation(s, a, role, "an operator cannot have the type %s%s",
            name.failed ? "it has" : name.data,
            dv__type_is_type_variable(t) ? dv__type_print_hint(t->name, hint, sizeof hint) : "");
        dv__strbuf_deinit(&name);
        return status;
    }
    if (a->def.is_set && !dv__default_fits_type(&a->def, a->type)) {
        dv__strbuf name = { 0 };
        dv__type_print(a->type, &name);
        const int status = schema_fail_validation(
            s, a, role, "the default %s does not fit the type %s", a->def.text, name.failed ? "" : name.data);
        dv__strbuf_deinit(&name);
        return status;
    }
    const int64_t wanted = type_get_fixed_size(a->type),
                  given = dv__value_type_is_list(a->def.value.type) ? (int64_t)a->def.value.as.ints.size : -1;
    if (wanted > 0 && given > 0 && given != wanted)
        return schema_fail_validation(
            s, a, role, "the default %s has %lld elements, the type has %lld", a->def.text, (long long)given, (long long)wanted);
    return schema_validate_alias(s, a, is_return);
}

int dv__schema_validate(const dv__schema *s)
{
    enum { MAX_SLOTS = 1024 }; /* a limit, since the checks compare each name with all others */
    int status;
    if (s->nargs > MAX_SLOTS || s->nreturns > MAX_SLOTS)
        return dv_fail(DV_ELIMIT, "schema of %s: an operator has at most %d arguments and %d returns, found %zu and %zu", s->name,
            MAX_SLOTS, MAX_SLOTS, s->nargs, s->nreturns);
    if (s->vararg || s->varret)
        return dv_fail(DV_ESCHEMA, "schema of %s: '...' is for PyTorch's own primitives", s->name);
    if (s->nstars > 1)
        return dv_fail(DV_ESCHEMA, "schema of %s: '*' appears twice", s->name);
    if (s->nstars && (!s->nargs || !s->args[s->nargs - 1].kwarg_only))
        return dv_fail(DV_ESCHEMA, "schema of %s: nothing follows '*'", s->name);
    for (size_t i = 0; i < s->nargs; i++) {
        const dv__argument *a = &s->args[i];
        if (dv__schema_find_argument_index(s, a->name) != (int)i)
            return schema_fail_validation(s, a, "argument", "another one has the same name");
        if ((status = schema_validate_argument(s, a, false)))
            return status;
    }
    for (size_t i = 0; i < s->nreturns; i++) {
        const dv__argument *r = &s->returns[i];
        for (size_t j = 0; *r->name && j < i; j++)
            if (!strcmp(r->name, s->returns[j].name))
                return schema_fail_validation(s, r, "return", "another one has the same name");
        const int arg = *r->name ? dv__schema_find_argument_index(s, r->name) : -1;
        if (arg >= 0 && !(r->alias && dv__aliases_are_equal(r->alias, s->args[arg].alias)))
            return schema_fail_validation(
                s, r, "return", "an argument has this name, and the return is not annotated as its alias");
        if ((status = schema_validate_argument(s, r, true)))
            return status;
    }
    return DV_OK;
}

/* ---- Compatibility ------------------------------------------------------------------------------------------------------- */

/* True if callers that pass or expect `narrow` can be given `wide`. In PyTorch's interpreter SymInt, ScalarType, Layout and
 * MemoryFormat are all int; here only int and SymInt may replace each other. */
static bool type_can_replace(const dv__type *wide, const dv__type *narrow)
{
    const bool ints = (wide->kind == DV__TYPE_INT || wide->kind == DV__TYPE_SYMINT) &&
        (narrow->kind == DV__TYPE_INT || narrow->kind == DV__TYPE_SYMINT);
    if (ints)
        return true;
    if (wide->kind == DV__TYPE_OPTIONAL)
        return type_can_replace(wide->elems[0], narrow->kind == DV__TYPE_OPTIONAL ? narrow->elems[0] : narrow);
    if (wide->kind == DV__TYPE_LIST && narrow->kind == DV__TYPE_LIST) /* lists are not covariant */
        return wide->fixed_size == narrow->fixed_size && type_can_replace(wide->elems[0], narrow->elems[0]) &&
            type_can_replace(narrow->elems[0], wide->elems[0]);
    if (wide->kind == DV__TYPE_SCALAR)
        return narrow->kind == DV__TYPE_SCALAR || narrow->kind == DV__TYPE_INT || narrow->kind == DV__TYPE_SYMINT ||
            narrow->kind == DV__TYPE_FLOAT || narrow->kind == DV__TYPE_COMPLEX;
    if (wide->kind == DV__TYPE_OTHER || wide->kind == DV__TYPE_TUPLE)
        return dv__type_is_subtype(narrow, wide);
    return dv__types_are_equal(wide, narrow);
}

/* Fails with "schema of ... is not compatible with its older version" and the reason. Returns DV_ESCHEMA. */
static int schema_fail_incompatible(const dv__schema *s, const char *role, const char *name, const char *reason)
{
    return dv_fail(DV_ESCHEMA, "schema of %s%s%s is not compatible with its older version: %s '%s' %s", s->ns, *s->ns ? "::" : "",
        s->name, role, name, reason);
}

/* Fails unless callers of the older argument can also call the newer one. */
static int schema_check_argument_compatible(const dv__schema *s, const dv__argument *newer, const dv__argument *older)
{
    const char *why = NULL;
    if (strcmp(newer->name, older->name))
        why = "was renamed or moved";
    else if (!type_can_replace(newer->type, older->type) || type_get_fixed_size(newer->type) != type_get_fixed_size(older->type))
        why = "takes another type";
    else if (!dv__aliases_are_equal(newer->alias, older->alias))
        why = "has another alias annotation";
    else if (newer->kwarg_only && !older->kwarg_only)
        why = "became keyword-only";
    else if (older->def.is_set && (!newer->def.is_set || strcmp(newer->def.text, older->def.text)))
        why = "lost its default or has another";
    return why ? schema_fail_incompatible(s, "argument", older->name, why) : DV_OK;
}

/* True for a keyword-only argument that is written, such as `out`. */
static bool argument_is_out(const dv__argument *a) { return a->kwarg_only && a->alias && a->alias->write; }

/* Returns the index of the first `out` argument; nargs if there is none. */
static size_t schema_find_first_out_argument_index(const dv__schema *s)
{
    size_t i = 0;
    while (i < s->nargs && !argument_is_out(&s->args[i]))
        i++;
    return i;
}

/* Fails unless the returns of the newer schema can replace those of the older one. */
static int schema_check_returns_compatible(const dv__schema *newer, const dv__schema *older)
{
    if (newer->nreturns != older->nreturns)
        return dv_fail(DV_ESCHEMA, "schema of %s is not compatible with its older version: %zu returns instead of %zu",
            newer->name, newer->nreturns, older->nreturns);
    for (size_t i = 0; i < newer->nreturns; i++) {
        const dv__argument *a = &newer->returns[i], *b = &older->returns[i];
        if (strcmp(a->name, b->name))
            return schema_fail_incompatible(newer, "return", b->name, "was renamed");
        if (!type_can_replace(b->type, a->type) || type_get_fixed_size(a->type) != type_get_fixed_size(b->type))
            return schema_fail_incompatible(newer, "return", b->name, "has another type");
        if (!dv__aliases_are_equal(a->alias, b->alias))
            return schema_fail_incompatible(newer, "return", b->name, "has another alias annotation");
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
    int status = schema_check_returns_compatible(newer, older);
    if (status)
        return status;
    const size_t new_out = schema_find_first_out_argument_index(newer), old_out = schema_find_first_out_argument_index(older);
    if (new_out < old_out)
        return schema_fail_incompatible(newer, "argument", older->args[new_out].name, "was removed");
    for (size_t i = 0; i < old_out; i++)
        if ((status = schema_check_argument_compatible(newer, &newer->args[i], &older->args[i])))
            return status;
    for (size_t i = old_out; i < new_out; i++)
        if (!newer->args[i].def.is_set)
            return schema_fail_incompatible(newer, "argument", newer->args[i].name, "is new and has no default");
    for (size_t i = old_out; i < older->nargs; i++) {
        const size_t j = i - old_out + new_out;
        if (j >= newer->nargs)
            return schema_fail_incompatible(newer, "argument", older->args[i].name, "was removed");
        if ((status = schema_check_argument_compatible(newer, &newer->args[j], &older->args[i])))
            return status;
    }
    for (size_t j = older->nargs - old_out + new_out; j < newer->nargs; j++)
        if (!newer->args[j].def.is_set)
            return schema_fail_incompatible(newer, "argument", newer->args[j].name, "is new and has no default");
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
