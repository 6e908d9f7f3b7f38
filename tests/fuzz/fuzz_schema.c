/* A schema that parses prints as one that parses to the same structure, and everything else that is done with a schema is safe.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lang/schema.h"

static void require(bool condition, const char *what, const char *text)
{
    if (condition)
        return;
    fprintf(stderr, "%s: %s\n%s\n", what, text, dv_last_error());
    abort();
}

/* PyTorch prints some schemas that it cannot read again, and here they print the same: a device, an imaginary number or a
 * misplaced string as default, Tensor!, `b|*` (printed `*|b`), an annotation inside a list of lists or of optionals, a union that
 * is Scalar (docs/schema.md). */
static bool readable(const dv__argument *a)
{
    const dv_value *v = &a->def.value;
    const dv__type *t = a->type->kind == DV__TYPE_OPTIONAL ? a->type->elems[0] : a->type;
    if (a->def.is_set &&
        (v->type == DV_VALUE_DEVICE || v->type == DV_VALUE_COMPLEX || v->type == DV_VALUE_COMPLEXES ||
            (v->type == DV_VALUE_STRING && t->kind != DV__TYPE_STRING)))
        return false;
    for (const dv__alias *x = a->alias; x; x = x->element)
        if ((x->nbefore && x->before[0][0] == '$') || (x->nafter > 1 && !strcmp(x->after[0], "*")))
            return false;
    return !(
        a->alias && a->alias->element && t->kind == DV__TYPE_LIST && t->elems[0]->nelems && t->elems[0]->kind != DV__TYPE_OTHER);
}

static bool all_readable(const dv__schema *s)
{
    for (size_t i = 0; i < s->nargs; i++)
        if (!readable(&s->args[i]))
            return false;
    for (size_t i = 0; i < s->nreturns; i++)
        if (!readable(&s->returns[i]))
            return false;
    return !strstr(s->text, "Union(Scalar)");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    dv__schema *s, *again;
    dv__strbuf json = { 0 };
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (dv__schema_parse(text, &s)) {
        require(*dv_last_error() != 0, "no message", text);
        free(text);
        return 0;
    }
    dv__schema_json(s, &json);
    dv__schema_validate(s);
    require(!dv__schema_check_compatible(s, s), "not compatible with itself", text);
    if (!dv__schema_parse(s->text, &again)) {
        require(dv__schemas_are_equal(s, again) || !all_readable(s), "reads back as something else", text);
        dv__schema_free(again);
    } else {
        require(!all_readable(s), "does not read back", text);
    }
    dv__strbuf_deinit(&json);
    dv__schema_free(s);
    free(text);
    return 0;
}
