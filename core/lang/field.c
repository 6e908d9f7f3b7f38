/* The tables of types: the rows of DV_FIELD_TYPES and of types.def. */
#include "lang/schema.h"

static const dv_field_row field_rows[] = { [0] = { .name = "", .ctype = "a type that this runtime does not know", .word = "" },
#define FIELD_ROW(name, number, ctype, word, form, of, value, member) \
    [number] = { #name, #ctype, word, sizeof(ctype), _Alignof(ctype), DV_FORM_##form, number, DV_FIELD_##of, DV_VALUE_##value },
    DV_FIELD_TYPES(FIELD_ROW)
#undef FIELD_ROW
};
enum { NFIELD_ROWS = sizeof field_rows / sizeof *field_rows };

const dv_field_row *dv_field_at(uint32_t type) { return &field_rows[type < NFIELD_ROWS ? type : 0]; }

uint32_t dv_field_with_form(uint32_t type, enum dv_field_form form)
{
    if (form == DV_FORM_OPTIONAL && dv_field_at(type)->form == DV_FORM_POINTER)
        return type;
    for (uint32_t i = 1; i < NFIELD_ROWS; i++)
        if (field_rows[i].of == type && i != type &&
            (field_rows[i].form == form || (field_rows[i].form >= DV_FORM_WRITTEN && form >= DV_FORM_WRITTEN)))
            return i;
    return 0;
}

const dv_field_row *dv_field_of_value(uint32_t type)
{
    static const uint8_t fields[] = {
#define DV__VALUE(name, ctype, member) [DV_VALUE_##name] = DV_FIELD_##name,
        DV_VALUES
#undef DV__VALUE
    };
    return &field_rows[type < sizeof fields ? fields[type] : 0];
}

dv_value dv_value_element(const dv_value *list, size_t i)
{
    const dv_field_row *row = dv_field_at(dv_field_of_value(list->type)->of);
    const char *element = (const char *)list->as.ints.data + i * row->size; /* all lists have one layout */
    dv_value v = dv_none();
    if (list->type == DV_VALUE_TENSORS)
        return dv_from_tensor(list->as.tensors.data[i]);
    if (list->type == DV_VALUE_SCALARS)
        return dv_from_scalar(list->as.scalars.data[i]);
    v.type = row->value;
    memcpy(&v.as, element, row->size);
    return v;
}

const dv__type_row dv__type_rows[] = {
#define TYPE(id, word, field, json, text, contract, fake, order, key)                                   \
    [DV__TYPE_##id] = { json, text, DV_FIELD_##field, DV__TYPE_##contract, DV__TYPE_##fake, order, key, \
        { DV__TYPE_##id, -1, word, NULL, 0 } },
#define KIND(id, name, what, place) \
    [DV__TYPE_##id] = { .json = name, .text = what, .contract = DV__TYPE_OTHER, .fake = DV__TYPE_##id, .order = place },
#include "lang/types.def"
};
