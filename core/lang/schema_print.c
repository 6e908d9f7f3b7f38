/* Schemas as text, in the very form of str(torch._C.parse_schema(s)), and as JSON (docs/json.md). */
#include "base/error.h"
#include "lang/schema_types.h"

void dv__type_print(const dv__type *t, dv__text *to)
{
    switch (t->kind) {
    case DV__TYPE_LIST:
        dv__type_print(t->elems[0], to);
        if (t->fixed_size >= 0)
            dv__text_add(to, "[%lld]", (long long)t->fixed_size);
        else
            dv__text_puts(to, "[]");
        break;
    case DV__TYPE_OPTIONAL:
        dv__type_print(t->elems[0], to);
        dv__text_puts(to, "?");
        break;
    case DV__TYPE_TUPLE:
        dv__text_puts(to, "(");
        for (size_t i = 0; i < t->nelems; i++) {
            dv__text_puts(to, i ? ", " : "");
            dv__type_print(t->elems[i], to);
        }
        dv__text_puts(to, ")");
        break;
    default: dv__text_puts(to, t->name);
    }
}

static void print_set(const char *const *names, size_t n, dv__text *to)
{
    for (size_t i = 0; i < n; i++) {
        dv__text_puts(to, i ? "|" : "");
        dv__text_puts(to, names[i]);
    }
}

static bool has(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

static bool same_set(const char *const *a, size_t na, const char *const *b, size_t nb)
{
    if (na != nb)
        return false;
    for (size_t i = 0; i < na; i++)
        if (!has(b, nb, a[i]))
            return false;
    return true;
}

static void print_alias(const dv__alias *a, dv__text *to)
{
    dv__text_puts(to, "(");
    print_set(a->before, a->nbefore, to);
    dv__text_puts(to, a->write ? "!" : "");
    if (!same_set(a->before, a->nbefore, a->after, a->nafter)) {
        dv__text_puts(to, " -> ");
        print_set(a->after, a->nafter, to);
    }
    dv__text_puts(to, ")");
}

static void print_argument(const dv__argument *a, dv__text *to)
{
    const bool optional = a->type->kind == DV__TYPE_OPTIONAL;
    const dv__type *t = optional ? a->type->elems[0] : a->type;
    if (t->kind == DV__TYPE_LIST) {
        dv__type_print(t->elems[0], to);
        if (a->alias && a->alias->element)
            print_alias(a->alias->element, to);
        if (t->fixed_size >= 0)
            dv__text_add(to, "[%lld]", (long long)t->fixed_size);
        else
            dv__text_puts(to, "[]");
    } else {
        dv__type_print(t, to);
    }
    if (a->alias && a->alias->nbefore)
        print_alias(a->alias, to);
    dv__text_puts(to, optional ? "?" : "");
    if (*a->name)
        dv__text_add(to, " %s", a->name);
    if (a->def.has) {
        dv__text_puts(to, "=");
        dv__text_puts(to, a->def.text);
    }
}

static bool begins_with_bracket(const dv__type *t)
{
    while (t->kind == DV__TYPE_LIST || t->kind == DV__TYPE_OPTIONAL)
        t = t->elems[0];
    return t->kind == DV__TYPE_TUPLE;
}

static void print_returns(const dv__schema *s, dv__text *to)
{
    const bool one = s->nreturns + s->varret == 1;
    const bool brackets = !one || (s->nreturns && begins_with_bracket(s->returns[0].type)); /* a tuple is not several returns */
    dv__text_puts(to, brackets ? "(" : "");
    for (size_t i = 0; i < s->nreturns; i++) {
        dv__text_puts(to, i ? ", " : "");
        print_argument(&s->returns[i], to);
    }
    if (s->varret)
        dv__text_puts(to, s->nreturns ? ", ..." : "...");
    dv__text_puts(to, brackets ? ")" : "");
}

void dv__schema_print(const dv__schema *s, dv__text *to)
{
    dv__text_add(to, *s->ns ? "%s::%s" : "%s%s", s->ns, s->name);
    if (*s->overload)
        dv__text_add(to, ".%s", s->overload);
    dv__text_puts(to, "(");
    bool star = false;
    for (size_t i = 0; i < s->nargs; i++) {
        dv__text_puts(to, i ? ", " : "");
        if (s->args[i].kwarg_only && !star) {
            dv__text_puts(to, "*, ");
            star = true;
        }
        print_argument(&s->args[i], to);
    }
    if (s->vararg)
        dv__text_puts(to, s->nargs ? ", ..." : "...");
    dv__text_puts(to, ") -> ");
    print_returns(s, to);
}

/* ---- Equality ------------------------------------------------------------------------------------------------------------ */

bool dv__alias_equal(const dv__alias *a, const dv__alias *b)
{
    if (!a || !b)
        return a == b;
    return a->write == b->write && same_set(a->before, a->nbefore, b->before, b->nbefore) &&
        same_set(a->after, a->nafter, b->after, b->nafter) && dv__alias_equal(a->element, b->element);
}

static bool argument_equal(const dv__argument *a, const dv__argument *b)
{
    return !strcmp(a->name, b->name) && dv__type_equal(a->type, b->type) && dv__alias_equal(a->alias, b->alias) &&
        a->kwarg_only == b->kwarg_only && a->def.has == b->def.has && (!a->def.has || !strcmp(a->def.text, b->def.text));
}

bool dv__schema_equal(const dv__schema *a, const dv__schema *b)
{
    if (strcmp(a->ns, b->ns) || strcmp(a->name, b->name) || strcmp(a->overload, b->overload) || a->nargs != b->nargs ||
        a->nreturns != b->nreturns || a->vararg != b->vararg || a->varret != b->varret)
        return false;
    for (size_t i = 0; i < a->nargs; i++)
        if (!argument_equal(&a->args[i], &b->args[i]))
            return false;
    for (size_t i = 0; i < a->nreturns; i++)
        if (!argument_equal(&a->returns[i], &b->returns[i]))
            return false;
    return true;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static void json_type(const dv__type *t, dv__text *to)
{
    static const char *const names[] = {
#define KIND(kind, json, field) [DV__TYPE_##kind] = json,
        DV__TYPE_KINDS(KIND)
#undef KIND
    };
    dv__text_add(to, "[\"%s\"", names[t->kind]);
    if (t->kind == DV__TYPE_OTHER) {
        dv__json_text(to, NULL, t->name);
    } else {
        for (size_t i = 0; i < t->nelems; i++) {
            dv__json_key(to, NULL);
            json_type(t->elems[i], to);
        }
        if (t->kind == DV__TYPE_LIST)
            dv__text_add(to, ", %lld", (long long)t->fixed_size);
    }
    dv__text_puts(to, "]");
}

static void json_set(const char *const *names, size_t n, dv__text *to)
{
    dv__text_puts(to, "[");
    for (size_t i = 0; i < n; i++)
        dv__json_text(to, NULL, names[i]);
    dv__text_puts(to, "]");
}

static void json_alias(const dv__alias *a, dv__text *to)
{
    if (!a) {
        dv__text_puts(to, "null");
        return;
    }
    dv__text_add(to, "{\"write\": %s, \"before\": ", a->write ? "true" : "false");
    json_set(a->before, a->nbefore, to);
    dv__text_puts(to, ", \"after\": ");
    json_set(a->after, a->nafter, to);
    dv__text_puts(to, ", \"element\": ");
    json_alias(a->element, to);
    dv__text_puts(to, "}");
}

static void json_complex(dv_complex c, dv__text *to)
{
    dv__text_puts(to, "{\"complex\": [");
    dv__float_json(c.re, to);
    dv__text_puts(to, ", ");
    dv__float_json(c.im, to);
    dv__text_puts(to, "]}");
}

static void json_value(const dv_value *v, dv__text *to)
{
#define LIST(field, PRINT)                              \
    do {                                                \
        dv__text_puts(to, "[");                         \
        for (size_t i = 0; i < v->as.field.size; i++) { \
            dv__json_key(to, NULL);                     \
            PRINT;                                      \
        }                                               \
        dv__text_puts(to, "]");                         \
    } while (0)
    switch (v->type) {
    case DV_VALUE_BOOL: dv__text_puts(to, v->as.b ? "true" : "false"); break;
    case DV_VALUE_INT: dv__text_add(to, "%lld", (long long)v->as.i); break;
    case DV_VALUE_FLOAT: dv__float_json(v->as.f, to); break;
    case DV_VALUE_COMPLEX: json_complex(v->as.c, to); break;
    case DV_VALUE_STRING: dv__text_json(to, v->as.s.data, v->as.s.size); break;
    case DV_VALUE_DTYPE: dv__text_add(to, "{\"dtype\": \"%s\"}", dv_dtype_name(v->as.dtype)); break;
    case DV_VALUE_DEVICE: dv__text_add(to, "{\"device\": [%d, %d]}", (int)v->as.device.type, (int)v->as.device.id); break;
    case DV_VALUE_LAYOUT: dv__text_add(to, "{\"layout\": %d}", (int)v->as.layout.value); break;
    case DV_VALUE_MEMORY_FORMAT: dv__text_add(to, "{\"memory_format\": %d}", (int)v->as.memory_format.value); break;
    case DV_VALUE_INTS: LIST(ints, dv__text_add(to, "%lld", (long long)v->as.ints.data[i])); break;
    case DV_VALUE_FLOATS: LIST(floats, dv__float_json(v->as.floats.data[i], to)); break;
    case DV_VALUE_BOOLS: LIST(bools, dv__text_puts(to, v->as.bools.data[i] ? "true" : "false")); break;
    case DV_VALUE_COMPLEXES: LIST(complexes, json_complex(v->as.complexes.data[i], to)); break;
    case DV_VALUE_DTYPES: LIST(dtypes, dv__text_add(to, "{\"dtype\": \"%s\"}", dv_dtype_name(v->as.dtypes.data[i]))); break;
    default: dv__text_puts(to, "null");
    }
#undef LIST
}

static void json_arguments(const char *key, const dv__argument *args, size_t n, dv__text *to)
{
    dv__text_add(to, ", \"%s\": [", key);
    for (size_t i = 0; i < n; i++) {
        const dv__argument *a = &args[i];
        dv__json_key(to, NULL);
        dv__text_puts(to, "{");
        dv__json_text(to, "name", a->name);
        dv__text_puts(to, ", \"type\": ");
        json_type(a->type, to);
        dv__text_add(to, ", \"kwarg_only\": %s, \"alias\": ", a->kwarg_only ? "true" : "false");
        json_alias(a->alias, to);
        if (a->def.has) {
            dv__json_text(to, "default", a->def.text);
            dv__text_puts(to, ", \"default_value\": ");
            json_value(&a->def.value, to);
        }
        dv__text_puts(to, "}");
    }
    dv__text_puts(to, "]");
}

void dv__schema_json(const dv__schema *s, dv__text *to)
{
    dv__text_puts(to, "{");
    dv__json_text(to, "text", s->text);
    dv__json_text(to, "ns", s->ns);
    dv__json_text(to, "name", s->name);
    dv__json_text(to, "overload", s->overload);
    json_arguments("args", s->args, s->nargs, to);
    json_arguments("returns", s->returns, s->nreturns, to);
    dv__text_add(to, ", \"vararg\": %s, \"varret\": %s}", s->vararg ? "true" : "false", s->varret ? "true" : "false");
}

/* ---- Public -------------------------------------------------------------------------------------------------------------- */

int dv_schema_normalize(const char *schema, char **out)
{
    dv__schema *s;
    DV__REQUIRE(out, "place for the result");
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
    dv__text text = { 0 };
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    int status = dv__schema_parse(schema, &s);
    if (status)
        return status;
    dv__schema_json(s, &text);
    dv__schema_free(s);
    return dv__text_take(&text, out);
}
