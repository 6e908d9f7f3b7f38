/* Match a struct's fields with a schema: first by name; then the remaining fields of result types take the unnamed returns in
 * order. A return that aliases an argument needs no field of its own: the result is that argument. */
#include "registry/internal.h"

/* The one field type that may hold this slot; 0: a struct cannot hold it. */
static uint32_t wanted_type(const dv__schema *schema, size_t slot)
{
    dv_slot_info info;
    if (dv__slot_info(schema, slot, &info))
        return 0;
    if ((info.flags & DV_SLOT_ELEMENT_OPTIONAL) && info.type != DV_FIELD_TENSORS)
        return 0; /* int?[]: an array of numbers cannot hold None */
    const bool plain_tensor = info.type == DV_FIELD_TENSOR;
    if (slot >= schema->nargs)
        return (info.flags & DV_SLOT_OPTIONAL) && !plain_tensor ? 0 : dv_field_over(info.type, DV_FORM_WRITTEN);
    if (info.flags & DV_SLOT_WRITES)
        return (info.flags & DV_SLOT_OPTIONAL) && !plain_tensor ? 0 : dv_field_over(info.type, DV_FORM_WRITTEN);
    return info.flags & DV_SLOT_OPTIONAL ? dv_field_over(info.type, DV_FORM_OPTIONAL) : info.type;
}

static bool is_result_type(uint32_t type) { return dv_field_at(type)->form >= DV_FORM_WRITTEN; }

typedef struct binder {
    const char *op_name;
    const dv__schema *schema;
    const dv_field_decl *const *fields;
    size_t nfields, frame_size;
    dv__bound_field *bound; /* for each field */
    bool *taken;            /* for each slot */
} binder;

enum { UNBOUND = 0xffff };

static size_t nslots(const binder *b) { return b->schema->nargs + b->schema->nreturns; }

static const dv__argument *argument_at(const dv__schema *s, size_t slot)
{
    return slot < s->nargs ? &s->args[slot] : &s->returns[slot - s->nargs];
}

static bool named(const dv__argument *a, const char *name, size_t size)
{
    return size && strlen(a->name) == size && !memcmp(a->name, name, size);
}

static size_t slot_named(const binder *b, const char *name, size_t size)
{
    for (size_t slot = 0; slot < nslots(b); slot++)
        if (named(argument_at(b->schema, slot), name, size))
            return slot;
    return UNBOUND;
}

static int describe_slot(const binder *b, size_t slot, char **out)
{
    dv__text t = { 0 };
    const dv__argument *a = argument_at(b->schema, slot);
    const bool result = slot >= b->schema->nargs;
    if (*a->name)
        dv__text_add(&t, "%s '%s' of type ", result ? "result" : "argument", a->name);
    else
        dv__text_add(&t, "result %zu of type ", slot - b->schema->nargs);
    dv__type_print(a->type, &t);
    if (dv__argument_writes(a))
        dv__text_puts(&t, ", which is written");
    return dv__text_take(&t, out);
}

static int fail_type(const binder *b, size_t slot, const dv_field_decl *f)
{
    const uint32_t wanted = wanted_type(b->schema, slot);
    char *what = NULL;
    if (describe_slot(b, slot, &what))
        return DV_ENOMEM;
    if (wanted)
        dv_fail(DV_ESCHEMA, "operator %s: field '%s' is '%s' but %s needs '%s'", b->op_name, f->name, dv_field_at(f->type)->ctype,
            what, dv_field_at(wanted)->ctype);
    else
        dv_fail(DV_ESCHEMA, "operator %s: %s cannot be held by a struct (field '%s' is '%s')", b->op_name, what, f->name,
            dv_field_at(f->type)->ctype);
    dv__free(what);
    return DV_ESCHEMA;
}

static int fail_missing(const binder *b, size_t slot)
{
    const uint32_t wanted = wanted_type(b->schema, slot);
    char *what = NULL;
    if (describe_slot(b, slot, &what))
        return DV_ENOMEM;
    if (wanted)
        dv_fail(DV_ESCHEMA, "operator %s: %s is not in DV_OPERATOR's list of fields; expected a field '%s'", b->op_name, what,
            dv_field_at(wanted)->ctype);
    else
        dv_fail(DV_ESCHEMA, "operator %s: %s cannot be held by a struct", b->op_name, what);
    dv__free(what);
    return DV_ESCHEMA;
}

static int fail_unknown(const binder *b, const dv_field_decl *f)
{
    char hint[512];
    dv__near near = { .wanted = f->name };
    for (size_t slot = 0; slot < nslots(b); slot++)
        if (*argument_at(b->schema, slot)->name)
            dv__near_add(&near, argument_at(b->schema, slot)->name);
    return dv_fail(DV_ESCHEMA, "operator %s: field '%s' is neither an argument nor a result of '%s'%s", b->op_name, f->name,
        b->schema->text, dv__near_print(&near, hint, sizeof hint));
}

static int bind(binder *b, size_t field, size_t slot)
{
    const dv_field_decl *f = b->fields[field];
    if (b->taken[slot])
        return dv_fail(DV_ESCHEMA, "operator %s: field '%s' is listed twice", b->op_name, f->name);
    if (f->type != wanted_type(b->schema, slot))
        return fail_type(b, slot, f);
    b->taken[slot] = true;
    b->bound[field] = (dv__bound_field){ (uint16_t)slot, (uint16_t)f->type, (uint32_t)f->offset };
    return DV_OK;
}

static int check_field(const binder *b, const dv_field_decl *f)
{
    if (!f->name || !*f->name)
        return dv_fail(DV_ESCHEMA, "operator %s: a field has no name", b->op_name);
    const size_t size = dv_field_at(f->type)->size;
    if (!size)
        return dv_fail(DV_ESCHEMA, "operator %s: field '%s' is of type number %u, which this runtime does not know", b->op_name,
            f->name, f->type);
    if (f->offset > b->frame_size || size > b->frame_size - f->offset)
        return dv_fail(DV_ESCHEMA, "operator %s: field '%s' is at byte %zu of a struct of %zu bytes", b->op_name, f->name,
            f->offset, b->frame_size);
    return DV_OK;
}

static int bind_named(binder *b)
{
    for (size_t i = 0; i < b->nfields; i++) {
        const dv_field_decl *f = b->fields[i];
        int status = check_field(b, f);
        if (status)
            return status;
        const size_t n = strlen(f->name);
        size_t slot = slot_named(b, f->name, n);
        if (slot == UNBOUND && f->name[n - 1] == '_')
            slot = slot_named(b, f->name, n - 1);
        b->bound[i].slot = UNBOUND;
        if (slot != UNBOUND && (status = bind(b, i, slot)))
            return status;
    }
    return DV_OK;
}

static bool aliases_argument(const binder *b, size_t slot)
{
    dv_slot_info info;
    return slot >= b->schema->nargs && !dv__slot_info(b->schema, slot, &info) && info.alias >= 0;
}

static int bind_unnamed(binder *b)
{
    size_t left = 0, field = 0;
    for (size_t i = 0; i < b->nfields; i++)
        left += b->bound[i].slot == UNBOUND && is_result_type(b->fields[i]->type);
    size_t unnamed = 0;
    for (size_t slot = b->schema->nargs; slot < nslots(b); slot++)
        unnamed += !*argument_at(b->schema, slot)->name;
    for (size_t slot = b->schema->nargs; slot < nslots(b); slot++) {
        if (*argument_at(b->schema, slot)->name)
            continue;
        if (left < unnamed-- && aliases_argument(b, slot))
            continue;
        while (field < b->nfields && !(b->bound[field].slot == UNBOUND && is_result_type(b->fields[field]->type)))
            field++;
        if (field == b->nfields)
            return DV_OK; /* reported as missing */
        const int status = bind(b, field, slot);
        if (status)
            return status;
        left--;
    }
    return DV_OK;
}

static int check_complete(const binder *b, bool partial)
{
    for (size_t i = 0; i < b->nfields; i++)
        if (b->bound[i].slot == UNBOUND)
            return fail_unknown(b, b->fields[i]);
    for (size_t slot = 0; slot < nslots(b) && !partial; slot++)
        if (!b->taken[slot] && !aliases_argument(b, slot))
            return fail_missing(b, slot);
    return DV_OK;
}

int dv__binding_make(const char *op_name, const dv__schema *schema, const dv_field_decl *const *fields, size_t frame_size,
    bool partial, dv__arena *arena, dv__binding **out)
{
    *out = NULL;
    binder b = { .op_name = op_name, .schema = schema, .fields = fields, .frame_size = frame_size };
    while (fields && fields[b.nfields])
        b.nfields++;
    if (schema->nargs + schema->nreturns >= UNBOUND || b.nfields >= UNBOUND || frame_size > UINT32_MAX)
        return dv_fail(DV_ELIMIT, "operator %s: too many arguments", op_name);
    dv__binding *binding = DV__ARENA_NEW(arena, dv__binding);
    b.bound = DV__ARENA_ARRAY(arena, dv__bound_field, b.nfields);
    b.taken = dv__calloc(nslots(&b), sizeof *b.taken);
    int status = binding && b.bound && b.taken ? bind_named(&b) : DV_ENOMEM;
    if (!status)
        status = bind_unnamed(&b);
    if (!status)
        status = check_complete(&b, partial);
    dv__free(b.taken);
    if (status)
        return status;
    binding->frame_size = (uint32_t)frame_size;
    binding->n = (uint32_t)b.nfields;
    binding->fields = b.bound;
    *out = binding;
    return DV_OK;
}
