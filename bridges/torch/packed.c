/* Schemas of packed operators. libtorch's shims cannot carry some types, such as Scalar. An operator with such types is defined
 * by Python, and its Python kernel calls a packed operator, which passes values of these types as numbers or lists of numbers. A
 * packed operator has no defaults: its only caller passes every argument. */
#include "call.h"

#include <stdio.h>
#include <stdlib.h>

/* Prints the type of a slot as in a schema: "Tensor(a0!)?", "int[]". aliased_argument: the argument whose alias set the slot has,
 * or -1. */
static void packed_print_slot(FILE *f, const struct dv__torch_slot *s, int32_t aliased_argument, bool is_written)
{
    const dv_field_row *row = dv_field_at(s->field);
    fputs(row->word, f);
    if (aliased_argument >= 0)
        fprintf(f, "(a%d%s)", (int)aliased_argument, is_written ? "!" : "");
    fprintf(f, "%s%s%s", (s->info.flags & DV_SLOT_ELEMENT_OPTIONAL) ? "?" : "", row->form == DV_FORM_LIST ? "[]" : "",
        (s->info.flags & DV_SLOT_OPTIONAL) ? "?" : "");
}

/* True if some result of the operator aliases this argument. */
static bool packed_is_aliased(const struct dv__torch_op *o, size_t argument)
{
    for (size_t i = 0; i < o->nresults; i++)
        if (o->slots[o->nargs + i].info.alias == (int32_t)argument)
            return true;
    return false;
}

char *dv__torch_make_packed_schema(const struct dv__torch_op *o, const char *local_name, bool is_out_overload)
{
    const size_t n = o->nargs + (is_out_overload ? o->nresults : 0);
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, "%s(", local_name);
    for (size_t i = 0; i < n; i++) {
        const struct dv__torch_slot *s = &o->slots[i];
        fputs(i ? ", " : "", f);
        packed_print_slot(f, s, (s->info.flags & DV_SLOT_WRITES) || packed_is_aliased(o, i) ? (int32_t)i : -1,
            (s->info.flags & DV_SLOT_WRITES));
        fprintf(f, " a%zu", i);
    }
    fputs(") -> (", f);
    for (size_t i = 0; i < (is_out_overload && o->returns_list ? 0 : o->nresults); i++) {
        const struct dv__torch_slot *s = &o->slots[o->nargs + i];
        fputs(i ? ", " : "", f);
        packed_print_slot(f, s, is_out_overload ? (int32_t)(o->nargs + i) : s->info.alias,
            is_out_overload || (s->info.alias >= 0 && (o->slots[s->info.alias].info.flags & DV_SLOT_WRITES)));
    }
    fputs(")", f);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
