/* The rows of DV_FIELD_TYPES, and the schema types that they hold. */
#include "lang/schema.h"

static const dv_field_row rows[] = { [0] = { .name = "", .ctype = "a type that this runtime does not know", .word = "" },
#define ROW(name, number, ctype, word, form, of, value, member) \
    [number] = { #name, #ctype, word, sizeof(ctype), _Alignof(ctype), DV_FORM_##form, number, DV_FIELD_##of, DV_VALUE_##value },
    DV_FIELD_TYPES(ROW)
#undef ROW
};
enum { NROWS = sizeof rows / sizeof *rows };

const dv_field_row *dv_field_at(uint32_t type) { return &rows[type < NROWS ? type : 0]; }

uint32_t dv_field_over(uint32_t type, enum dv_field_form form)
{
    if (form == DV_FORM_OPTIONAL && dv_field_at(type)->form == DV_FORM_POINTER)
        return type;
    for (uint32_t i = 1; i < NROWS; i++)
        if (rows[i].of == type && i != type &&
            (rows[i].form == form || (rows[i].form >= DV_FORM_WRITTEN && form >= DV_FORM_WRITTEN)))
            return i;
    return 0;
}

bool dv__is_list(uint32_t value)
{
    for (uint32_t i = 1; i < NROWS; i++)
        if (rows[i].form == DV_FORM_LIST && rows[i].value == value)
            return true;
    return false;
}

uint32_t dv__type_field(const dv__type *t)
{
    static const uint32_t fields[] = {
#define KIND(name, json, field) [DV__TYPE_##name] = (field),
        DV__TYPE_KINDS(KIND)
#undef KIND
    };
    return fields[t->kind];
}
