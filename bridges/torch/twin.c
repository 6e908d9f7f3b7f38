/* The schema of a twin, which replaces an operator whose types the shims cannot carry and is called by its Python kernel. It has
 * no defaults: its only caller passes every argument. */
#include "call.h"

#include <stdio.h>
#include <stdlib.h>

/* alias: the argument whose alias set the slot has, or -1. */
static void print_slot(FILE *f, const struct dv__torch_slot *s, int32_t alias, bool writes)
{
    const dv_field_row *row = dv_field_at(s->field);
    fputs(row->word, f);
    if (alias >= 0)
        fprintf(f, "(a%d%s)", (int)alias, writes ? "!" : "");
    fprintf(f, "%s%s%s", s->element_optional ? "?" : "", row->form == DV_FORM_LIST ? "[]" : "", s->optional ? "?" : "");
}

static bool is_aliased(const struct dv__torch_op *o, size_t argument)
{
    for (size_t i = 0; i < o->nresults; i++)
        if (o->slots[o->nargs + i].alias == (int32_t)argument)
            return true;
    return false;
}

char *dv__torch_twin_schema(const struct dv__torch_op *o, const char *local, bool out)
{
    const size_t n = o->nargs + (out ? o->nresults : 0);
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, "%s(", local);
    for (size_t i = 0; i < n; i++) {
        const struct dv__torch_slot *s = &o->slots[i];
        fputs(i ? ", " : "", f);
        print_slot(f, s, s->writes || is_aliased(o, i) ? (int32_t)i : -1, s->writes);
        fprintf(f, " a%zu", i);
    }
    fputs(") -> (", f);
    for (size_t i = 0; i < (out && o->lists ? 0 : o->nresults); i++) {
        const struct dv__torch_slot *s = &o->slots[o->nargs + i];
        fputs(i ? ", " : "", f);
        print_slot(f, s, out ? (int32_t)(o->nargs + i) : s->alias, out || (s->alias >= 0 && o->slots[s->alias].writes));
    }
    fputs(")", f);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
