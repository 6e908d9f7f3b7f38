/* The facts of a schema that every call needs, in the smallest form. */
#include "registry/plan.h"

#include "registry/internal.h"

/* DV_FIELD_* of the plain input to the value that carries it; lists are told by being above TENSORS. */
static uint8_t value_of(uint32_t field)
{
    switch (field) {
#define SAME(name) \
    case DV_FIELD_##name: return DV_VALUE_##name;
        /* clang-format off */
        SAME(TENSOR) SAME(INT) SAME(FLOAT) SAME(BOOL) SAME(STRING) SAME(COMPLEX) SAME(DTYPE) SAME(DEVICE) SAME(LAYOUT)
        SAME(MEMORY_FORMAT) SAME(GENERATOR) SAME(TENSORS) SAME(INTS) SAME(FLOATS) SAME(BOOLS) SAME(STRINGS) SAME(SCALARS)
        SAME(COMPLEXES) SAME(DTYPES) SAME(DEVICES)
/* clang-format on */
#undef SAME
            case DV_FIELD_SCALAR:
        return DV_VALUE_FLOAT;
        default : return DV_VALUE_DEFAULT;
    }
}

/* Number of an alias set: its place among the names seen so far. Beyond 64 they count as none, which only refuses more. */
typedef struct sets {
    const char *names[64];
    size_t n;
} sets;

static uint64_t bit_of(sets *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->names[i], name))
            return UINT64_C(1) << i;
    if (s->n == 64)
        return 0;
    s->names[s->n] = name;
    return UINT64_C(1) << s->n++;
}

static uint64_t bits_of(sets *s, const dv__alias *a)
{
    uint64_t bits = 0;
    for (; a; a = a->element)
        for (size_t i = 0; i < a->nbefore; i++)
            if (strcmp(a->before[i], "*") != 0)
                bits |= bit_of(s, a->before[i]);
    return bits;
}

static atomic_uint_fast64_t last_serial;

int dv__plan_make(const dv__schema *schema, dv__arena *arena, const dv__plan **out)
{
    *out = NULL;
    const size_t n = schema->nargs + schema->nreturns;
    dv__plan *p = dv__arena_alloc(arena, sizeof *p + n * sizeof p->slots[0]);
    if (!p)
        return DV_ENOMEM;
    p->serial = atomic_fetch_add(&last_serial, 1) + 1;
    p->nargs = (uint32_t)schema->nargs;
    p->nreturns = (uint32_t)schema->nreturns;
    sets s = { .n = 0 };
    for (size_t i = 0; i < n; i++) {
        dv_slot_info info;
        const int status = dv__slot_info(schema, i, &info);
        if (status)
            return status;
        dv__slot *slot = &p->slots[i];
        slot->value = value_of(info.type);
        slot->flags = (uint8_t)(info.flags & (DV_SLOT_OPTIONAL | DV_SLOT_ELEMENT_OPTIONAL | DV_SLOT_WRITES));
        if (info.type == DV_FIELD_SCALAR)
            slot->flags |= DV__SLOT_SCALAR;
        if (info.type >= DV_FIELD_TENSORS)
            slot->flags |= DV__SLOT_LIST;
        if (info.type == DV_FIELD_TENSORS)
            slot->flags |= DV__SLOT_TENSORS;
        if (info.default_text)
            slot->flags |= DV__SLOT_DEFAULT;
        slot->alias = (int16_t)info.alias;
        slot->fixed_size = info.fixed_size < 0 || info.fixed_size > INT32_MAX ? -1 : (int32_t)info.fixed_size;
        slot->sets = bits_of(&s, i < schema->nargs ? schema->args[i].alias : schema->returns[i - schema->nargs].alias);
        if (i < schema->nargs) {
            p->writes |= slot->flags & DV__SLOT_WRITES;
            p->has_device |= info.type == DV_FIELD_DEVICE;
        }
    }
    *out = p;
    return DV_OK;
}
