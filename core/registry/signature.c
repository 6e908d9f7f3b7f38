/* Makes signatures: compact data about a schema, which every call needs. */
#include "registry/signature.h"

#include "registry/registry_internal.h"

/* Names of a schema's alias sets; the number of a set is the index of its name. Sets beyond 64 have no number, so that calls
 * whose tensors share memory through such a set are refused. */
typedef struct alias_set_names {
    const char *names[64];
    size_t n;
} alias_set_names;

/* Returns the bit of an alias set; a new name gets the next bit. 0: there are 64 sets already. */
static uint64_t alias_set_get_bit_of_name(alias_set_names *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->names[i], name))
            return UINT64_C(1) << i;
    if (s->n == 64)
        return 0;
    s->names[s->n] = name;
    return UINT64_C(1) << s->n++;
}

static uint64_t alias_set_mask(alias_set_names *s, const dv__alias *a)
{
    uint64_t bits = 0;
    for (; a; a = a->element)
        for (size_t i = 0; i < a->nbefore; i++)
            if (strcmp(a->before[i], "*") != 0)
                bits |= alias_set_get_bit_of_name(s, a->before[i]);
    return bits;
}

static atomic_uint_fast64_t last_serial;

int dv__signature_make(const dv__schema *schema, dv__arena *arena, const dv__signature **out)
{
    *out = NULL;
    const size_t n = schema->nargs + schema->nreturns;
    dv__signature *p = dv__arena_alloc(arena, sizeof *p + n * sizeof p->slots[0]);
    if (!p)
        return DV_ENOMEM;
    p->serial = atomic_fetch_add(&last_serial, 1) + 1;
    p->nargs = (uint32_t)schema->nargs;
    p->nreturns = (uint32_t)schema->nreturns;
    alias_set_names s = { .n = 0 };
    for (size_t i = 0; i < n; i++) {
        dv_slot_info info;
        const int status = dv__slot_describe(schema, i, &info);
        if (status)
            return status;
        dv__slot *slot = &p->slots[i];
        const dv_field_row *field = dv_field_at(info.type);
        slot->value = (uint8_t)field->value;
        slot->flags = (uint8_t)(info.flags & (DV_SLOT_OPTIONAL | DV_SLOT_ELEMENT_OPTIONAL | DV_SLOT_WRITES));
        if (info.type == DV_FIELD_SCALAR)
            slot->flags |= DV__SLOT_SCALAR;
        if (field->form == DV_FORM_LIST)
            slot->flags |= DV__SLOT_LIST;
        if (info.type == DV_FIELD_TENSORS)
            slot->flags |= DV__SLOT_TENSORS, p->has_tensor_lists = true;
        if (info.default_text)
            slot->flags |= DV__SLOT_DEFAULT;
        slot->alias = (int16_t)info.alias;
        slot->fixed_size = info.fixed_size < 0 || info.fixed_size > INT32_MAX ? -1 : (int32_t)info.fixed_size;
        slot->alias_sets = alias_set_mask(
            &s, i < schema->nargs ? schema->args[i].alias : schema->returns[i - schema->nargs].alias);
        if (i < schema->nargs) {
            p->writes_arguments |= slot->flags & DV__SLOT_WRITES;
            p->has_device_argument |= info.type == DV_FIELD_DEVICE;
        }
    }
    *out = p;
    return DV_OK;
}
