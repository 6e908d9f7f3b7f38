/* Schemas as text, in the very form of str(torch._C.parse_schema(s)), and as JSON (docs/json.md). */
#include "base/error.h"
#include "lang/schema_internal.h"

void dv__type_print(const dv__type *t, dv__strbuf *to)
{
    switch (t->kind) {
    case DV__TYPE_LIST:
        dv__type_print(t->elems[0], to);
        if (t->fixed_size >= 0)
            dv__strbuf_printf(to, "[%lld]", (long long)t->fixed_size);
        else
            dv__strbuf_append_str(to, "[]");
        break;
    case DV__TYPE_OPTIONAL:
        dv__type_print(t->elems[0], to);
        dv__strbuf_append_str(to, "?");
        break;
    case DV__TYPE_TUPLE:
        dv__strbuf_append_str(to, "(");
        for (size_t i = 0; i < t->nelems; i++) {
            dv__strbuf_append_str(to, i ? ", " : "");
            dv__type_print(t->elems[i], to);
        }
        dv__strbuf_append_str(to, ")");
        break;
    default: dv__strbuf_append_str(to, t->name);
    }
}

/* Prints the names of an alias set, "a|b". */
static void alias_print_set(const char *const *names, size_t n, dv__strbuf *to)
{
    for (size_t i = 0; i < n; i++) {
        dv__strbuf_append_str(to, i ? "|" : "");
        dv__strbuf_append_str(to, names[i]);
    }
}

static bool names_contain(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

/* True if two lists have the same names, in any order. */
static bool names_are_equal_sets(const char *const *a, size_t na, const char *const *b, size_t nb)
{
    if (na != nb)
        return false;
    for (size_t i = 0; i < na; i++)
        if (!names_contain(b, nb, a[i]))
            return false;
    return true;
}

/* Prints an alias annotation, "(a! -> b)"; the part after "->" only if the sets differ. */
static void alias_print(const dv__alias *a, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "(");
    alias_print_set(a->before, a->nbefore, to);
    dv__strbuf_append_str(to, a->write ? "!" : "");
    if (!names_are_equal_sets(a->before, a->nbefore, a->after, a->nafter)) {
        dv__strbuf_append_str(to, " -> ");
        alias_print_set(a->after, a->nafter, to);
    }
    dv__strbuf_append_str(to, ")");
}

/* Prints an argument or return with its alias annotation, name and default. */
static void schema_print_argument(const dv__argument *a, dv__strbuf *to)
{
    const bool optional = a->type->kind == DV__TYPE_OPTIONAL;
    const dv__type *t = optional ? a->type->elems[0] : a->type;
    if (t->kind == DV__TYPE_LIST) {
        dv__type_print(t->elems[0], to);
        if (a->alias && a->alias->element)
            alias_print(a->alias->element, to);
        if (t->fixed_size >= 0)
            dv__strbuf_printf(to, "[%lld]", (long long)t->fixed_size);
        else
            dv__strbuf_append_str(to, "[]");
    } else {
        dv__type_print(t, to);
    }
    if (a->alias && a->alias->nbefore)
        alias_print(a->alias, to);
    dv__strbuf_append_str(to, optional ? "?" : "");
    if (*a->name)
        dv__strbuf_printf(to, " %s", a->name);
    if (a->def.is_set) {
        dv__strbuf_append_str(to, "=");
        dv__strbuf_append_str(to, a->def.text);
    }
}

/* True if a type's text begins with "(": a tuple, also as the element of lists and optionals. */
static bool type_begins_with_bracket(const dv__type *t)
{
    while (t->kind == DV__TYPE_LIST || t->kind == DV__TYPE_OPTIONAL)
        t = t->elems[0];
    return t->kind == DV__TYPE_TUPLE;
}

static void schema_print_returns(const dv__schema *s, dv__strbuf *to)
{
    const bool one = s->nreturns + s->varret == 1;
    const bool brackets = !one ||
        (s->nreturns &&
            type_begins_with_bracket(s->returns[0].type)); /* brackets around a single tuple tell it from several returns */
    dv__strbuf_append_str(to, brackets ? "(" : "");
    for (size_t i = 0; i < s->nreturns; i++) {
        dv__strbuf_append_str(to, i ? ", " : "");
        schema_print_argument(&s->returns[i], to);
    }
    if (s->varret)
        dv__strbuf_append_str(to, s->nreturns ? ", ..." : "...");
    dv__strbuf_append_str(to, brackets ? ")" : "");
}

void dv__schema_print(const dv__schema *s, dv__strbuf *to)
{
    dv__strbuf_printf(to, *s->ns ? "%s::%s" : "%s%s", s->ns, s->name);
    if (*s->overload)
        dv__strbuf_printf(to, ".%s", s->overload);
    dv__strbuf_append_str(to, "(");
    bool star = false;
    for (size_t i = 0; i < s->nargs; i++) {
        dv__strbuf_append_str(to, i ? ", " : "");
        if (s->args[i].kwarg_only && !star) {
            dv__strbuf_append_str(to, "*, ");
            star = true;
        }
        schema_print_argument(&s->args[i], to);
    }
    if (s->vararg)
        dv__strbuf_append_str(to, s->nargs ? ", ..." : "...");
    dv__strbuf_append_str(to, ") -> ");
    schema_print_returns(s, to);
}

/* ---- Equality ------------------------------------------------------------------------------------------------------------ */

bool dv__aliases_are_equal(const dv__alias *a, const dv__alias *b)
{
    if (!a || !b)
        return a == b;
    return a->write == b->write && names_are_equal_sets(a->before, a->nbefore, b->before, b->nbefore) &&
        names_are_equal_sets(a->after, a->nafter, b->after, b->nafter) && dv__aliases_are_equal(a->element, b->element);
}

static bool argument_is_equal(const dv__argument *a, const dv__argument *b)
{
    return !strcmp(a->name, b->name) && dv__types_are_equal(a->type, b->type) && dv__aliases_are_equal(a->alias, b->alias) &&
        a->kwarg_only == b->kwarg_only && a->def.is_set == b->def.is_set && (!a->def.is_set || !strcmp(a->def.text, b->def.text));
}

bool dv__schemas_are_equal(const dv__schema *a, const dv__schema *b)
{
    if (strcmp(a->ns, b->ns) || strcmp(a->name, b->name) || strcmp(a->overload, b->overload) || a->nargs != b->nargs ||
        a->nreturns != b->nreturns || a->vararg != b->vararg || a->varret != b->varret)
        return false;
    for (size_t i = 0; i < a->nargs; i++)
        if (!argument_is_equal(&a->args[i], &b->args[i]))
            return false;
    for (size_t i = 0; i < a->nreturns; i++)
        if (!argument_is_equal(&a->returns[i], &b->returns[i]))
            return false;
    return true;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static void schema_json_type(const dv__type *t, dv__strbuf *to)
{
    dv__strbuf_printf(to, "[\"%s\"", dv__type_rows[t->kind].json);
    if (t->kind == DV__TYPE_OTHER) {
        dv__json_write_member(to, NULL, t->name);
    } else {
        for (size_t i = 0; i < t->nelems; i++) {
            dv__json_write_key(to, NULL);
            schema_json_type(t->elems[i], to);
        }
        if (t->kind == DV__TYPE_LIST)
            dv__strbuf_printf(to, ", %lld", (long long)t->fixed_size);
    }
    dv__strbuf_append_str(to, "]");
}

static void schema_json_names(const char *const *names, size_t n, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "[");
    for (size_t i = 0; i < n; i++)
        dv__json_write_member(to, NULL, names[i]);
    dv__strbuf_append_str(to, "]");
}

static void schema_json_alias(const dv__alias *a, dv__strbuf *to)
{
    if (!a) {
        dv__strbuf_append_str(to, "null");
        return;
    }
    dv__strbuf_printf(to, "{\"write\": %s, \"before\": ", a->write ? "true" : "false");
    schema_json_names(a->before, a->nbefore, to);
    dv__strbuf_append_str(to, ", \"after\": ");
    schema_json_names(a->after, a->nafter, to);
    dv__strbuf_append_str(to, ", \"element\": ");
    schema_json_alias(a->element, to);
    dv__strbuf_append_str(to, "}");
}

static void schema_json_complex(dv_complex c, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "{\"complex\": [");
    dv__float_json(c.re, to);
    dv__strbuf_append_str(to, ", ");
    dv__float_json(c.im, to);
    dv__strbuf_append_str(to, "]}");
}

static void schema_json_value(const dv_value *v, dv__strbuf *to)
{
    switch (v->type) {
    case DV_VALUE_BOOL: dv__strbuf_append_str(to, v->as.b ? "true" : "false"); return;
    case DV_VALUE_INT: dv__strbuf_printf(to, "%lld", (long long)v->as.i); return;
    case DV_VALUE_FLOAT: dv__float_json(v->as.f, to); return;
    case DV_VALUE_COMPLEX: schema_json_complex(v->as.c, to); return;
    case DV_VALUE_STRING: dv__json_write_string(to, v->as.s.data, v->as.s.size); return;
    case DV_VALUE_DTYPE: dv__strbuf_printf(to, "{\"dtype\": \"%s\"}", dv_dtype_name(v->as.dtype)); return;
    case DV_VALUE_DEVICE: dv__strbuf_printf(to, "{\"device\": [%d, %d]}", (int)v->as.device.type, (int)v->as.device.id); return;
    case DV_VALUE_LAYOUT: dv__strbuf_printf(to, "{\"layout\": %d}", (int)v->as.layout.value); return;
    case DV_VALUE_MEMORY_FORMAT: dv__strbuf_printf(to, "{\"memory_format\": %d}", (int)v->as.memory_format.value); return;
    default: break;
    }
    if (!dv__value_type_is_list(v->type)) {
        dv__strbuf_append_str(to, "null");
        return;
    }
    dv__strbuf_append_str(to, "[");
    for (size_t i = 0; i < v->as.ints.size; i++) { /* all lists have one layout */
        const dv_value element = dv_value_element(v, i);
        dv__json_write_key(to, NULL);
        schema_json_value(&element, to);
    }
    dv__strbuf_append_str(to, "]");
}

static void schema_json_arguments(const char *key, const dv__argument *args, size_t n, dv__strbuf *to)
{
    dv__strbuf_printf(to, ", \"%s\": [", key);
    for (size_t i = 0; i < n; i++) {
        const dv__argument *a = &args[i];
        dv__json_write_key(to, NULL);
        dv__strbuf_append_str(to, "{");
        dv__json_write_member(to, "name", a->name);
        dv__strbuf_append_str(to, ", \"type\": ");
        schema_json_type(a->type, to);
        dv__strbuf_printf(to, ", \"kwarg_only\": %s, \"alias\": ", a->kwarg_only ? "true" : "false");
        schema_json_alias(a->alias, to);
        if (a->def.is_set) {
            dv__json_write_member(to, "default", a->def.text);
            dv__strbuf_append_str(to, ", \"default_value\": ");
            schema_json_value(&a->def.value, to);
        }
        dv__strbuf_append_str(to, "}");
    }
    dv__strbuf_append_str(to, "]");
}

void dv__schema_json(const dv__schema *s, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "{");
    dv__json_write_member(to, "text", s->text);
    dv__json_write_member(to, "ns", s->ns);
    dv__json_write_member(to, "name", s->name);
    dv__json_write_member(to, "overload", s->overload);
    schema_json_arguments("args", s->args, s->nargs, to);
    schema_json_arguments("returns", s->returns, s->nreturns, to);
    dv__strbuf_printf(to, ", \"vararg\": %s, \"varret\": %s}", s->vararg ? "true" : "false", s->varret ? "true" : "false");
}

/* ---- Public functions ---------------------------------------------------------------------------------------------------- */

int dv_schema_normalize(const char *schema, char **out)
{
    dv__schema *s;
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    int status = dv__schema_parse(schema, &s);
    if (status)
        return status;
    *out = dv__strdup(s->text);
    dv__schema_free(s);
    return *out ? DV_OK : DV_ENOMEM;
}

int dv_schema_json(const char *schema, char **out)
{
    dv__schema *s;
    dv__strbuf text = { 0 };
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    int status = dv__schema_parse(schema, &s);
    if (status)
        return status;
    dv__schema_json(s, &text);
    dv__schema_free(s);
    return dv__strbuf_detach(&text, out);
}
