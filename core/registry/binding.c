/* Matches a struct's fields with a schema: first by name, then the remaining fields of result types with the unnamed returns,
 * in order. A return that aliases an argument needs no field: the result is that argument. */
#include "registry/registry_internal.h"

/* Returns the field type (DV_FIELD_*) that a struct needs for this slot; 0: a struct cannot hold it. */
static uint32_t binding_get_expected_field_type(const dv__schema *schema, size_t slot)
{
    dv_slot_info info;
    if (dv__slot_describe(schema, slot, &info))
        return 0;
    if ((info.flags & DV_SLOT_ELEMENT_OPTIONAL) && info.type != DV_FIELD_TENSORS)
        return 0; /* the type is int?[], and an array of numbers cannot hold None */
    const bool is_single_tensor = info.type == DV_FIELD_TENSOR;
    if (slot >= schema->nargs)
        return (info.flags & DV_SLOT_OPTIONAL) && !is_single_tensor ? 0 : dv_field_with_form(info.type, DV_FORM_WRITTEN);
    if (info.flags & DV_SLOT_WRITES)
        return (info.flags & DV_SLOT_OPTIONAL) && !is_single_tensor ? 0 : dv_field_with_form(info.type, DV_FORM_WRITTEN);
    return info.flags & DV_SLOT_OPTIONAL ? dv_field_with_form(info.type, DV_FORM_OPTIONAL) : info.type;
}

static bool binding_is_result_type(uint32_t type) { return dv_field_at(type)->form >= DV_FORM_WRITTEN; }

typedef struct binder {
    const char *op_name;
    const dv__schema *schema;
    const dv_field_decl *const *fields;
    size_t nfields, frame_size;
    dv__bound_field *bound; /* by field: the bound slot */
    bool *is_bound;         /* by slot: some field is bound to it */
} binder;

enum { UNBOUND = 0xffff };

static size_t binding_nslots(const binder *b) { return b->schema->nargs + b->schema->nreturns; }

static const dv__argument *binding_get_argument(const dv__schema *s, size_t slot)
{
    return slot < s->nargs ? &s->args[slot] : &s->returns[slot - s->nargs];
}

static bool binding_argument_has_name(const dv__argument *a, const char *name, size_t name_size)
{
    return name_size && strlen(a->name) == name_size && !memcmp(a->name, name, name_size);
}

/* Returns the slot with this name; UNBOUND: none. */
static size_t binding_find_slot_index(const binder *b, const char *name, size_t name_size)
{
    for (size_t slot = 0; slot < binding_nslots(b); slot++)
        if (binding_argument_has_name(binding_get_argument(b->schema, slot), name, name_size))
            return slot;
    return UNBOUND;
}

/* Sets *out to text such as "argument 'x' of type Tensor", which the caller frees. Returns a status. */
static int binding_describe_slot(const binder *b, size_t slot, char **out)
{
    dv__strbuf t = { 0 };
    const dv__argument *a = binding_get_argument(b->schema, slot);
    const bool result = slot >= b->schema->nargs;
    if (*a->name)
        dv__strbuf_printf(&t, "%s '%s' of type ", result ? "result" : "argument", a->name);
    else
        dv__strbuf_printf(&t, "result %zu of type ", slot - b->schema->nargs);
    dv__type_print(a->type, &t);
    if (dv__argument_is_written(a))
        dv__strbuf_append_str(&t, ", which is written");
    return dv__strbuf_detach(&t, out);
}

/* Fails with DV_ESCHEMA: the field has another type than the slot needs. */
static int binding_fail_field_type(const binder *b, size_t slot, const dv_field_decl *f)
{
    const uint32_t wanted = binding_get_expected_field_type(b->schema, slot);
    char *what = NULL;
    if (binding_describe_slot(b, slot, &what))
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

/* Fails with DV_ESCHEMA: the struct has no field for the slot. */
static int binding_fail_missing_field(const binder *b, size_t slot)
{
    const uint32_t wanted = binding_get_expected_field_type(b->schema, slot);
    char *what = NULL;
    if (binding_describe_slot(b, slot, &what))
        return DV_ENOMEM;
    if (wanted)
        dv_fail(DV_ESCHEMA, "operator %s: %s is not in DV_OPERATOR's list of fields; expected a field '%s'", b->op_name, what,
            dv_field_at(wanted)->ctype);
    else
        dv_fail(DV_ESCHEMA, "operator %s: %s cannot be held by a struct", b->op_name, what);
    dv__free(what);
    return DV_ESCHEMA;
}

static int binding_fail_unknown_field(const binder *b, const dv_field_decl *f)
{
    char hint[512];
    dv__suggestions suggestions = { .wanted = f->name };
    for (size_t slot = 0; slot < binding_nslots(b); slot++)
        if (*binding_get_argument(b->schema, slot)->name)
            dv__suggest_add(&suggestions, binding_get_argument(b->schema, slot)->name);
    return dv_fail(DV_ESCHEMA, "operator %s: field '%s' is neither an argument nor a result of '%s'%s", b->op_name, f->name,
        b->schema->text, dv__suggest_print(&suggestions, hint, sizeof hint));
}

/* Binds a field to a slot. Fails with DV_ESCHEMA if the slot is bound already, or the field has another type than the slot
 * needs. */
static int binding_bind_field(binder *b, size_t field_index, size_t slot)
{
    const dv_field_decl *f = b->fields[field_index];
    if (b->is_bound[slot])
        return dv_fail(DV_ESCHEMA, "operator %s: field '%s' is listed twice", b->op_name, f->name);
    if (f->type != binding_get_expected_field_type(b->schema, slot))
        return binding_fail_field_type(b, slot, f);
    b->is_bound[slot] = true;
    b->bound[field_index] = (dv__bound_field){ (uint16_t)slot, (uint16_t)f->type, (uint32_t)f->offset };
    return DV_OK;
}

/* Checks that a field has a name, a known type and a place inside the struct. Fails with DV_ESCHEMA. */
static int binding_check_field(const binder *b, const dv_field_decl *f)
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

/* Binds each field to the slot of its name, or of its name without a final '_'. Fields without such a slot stay UNBOUND. */
static int binding_bind_fields_by_name(binder *b)
{
    for (size_t i = 0; i < b->nfields; i++) {
        const dv_field_decl *f = b->fields[i];
        int status = binding_check_field(b, f);
        if (status)
            return status;
        const size_t n = strlen(f->name);
        size_t slot = binding_find_slot_index(b, f->name, n);
        if (slot == UNBOUND && f->name[n - 1] == '_')
            slot = binding_find_slot_index(b, f->name, n - 1);
        b->bound[i].slot = UNBOUND;
        if (slot != UNBOUND && (status = binding_bind_field(b, i, slot)))
            return status;
    }
    return DV_OK;
}

static bool binding_slot_is_aliased_result(const binder *b, size_t slot)
{
    dv_slot_info info;
    return slot >= b->schema->nargs && !dv__slot_describe(b->schema, slot, &info) && info.alias >= 0;
}

/* Binds the remaining fields of result types, in order, to the returns without a name. Returns that are arguments are left
 * out if there are too few fields. */
static int binding_bind_unnamed_returns(binder *b)
{
    size_t left = 0, field = 0;
    for (size_t i = 0; i < b->nfields; i++)
        left += b->bound[i].slot == UNBOUND && binding_is_result_type(b->fields[i]->type);
    size_t unnamed = 0;
    for (size_t slot = b->schema->nargs; slot < binding_nslots(b); slot++)
        unnamed += !*binding_get_argument(b->schema, slot)->name;
    for (size_t slot = b->schema->nargs; slot < binding_nslots(b); slot++) {
        if (*binding_get_argument(b->schema, slot)->name)
            continue;
        if (left < unnamed-- && binding_slot_is_aliased_result(b, slot))
            continue;
        while (field < b->nfields && !(b->bound[field].slot == UNBOUND && binding_is_result_type(b->fields[field]->type)))
            field++;
        if (field == b->nfields)
            return DV_OK; /* binding_check_all_bound() reports the missing field */
        const int status = binding_bind_field(b, field, slot);
        if (status)
            return status;
        left--;
    }
    return DV_OK;
}

/* Fails if a field has no slot, or if a slot that is no aliased result has no field. may_lack_arguments: slots need no
 * field. */
static int binding_check_all_bound(const binder *b, bool may_lack_arguments)
{
    for (size_t i = 0; i < b->nfields; i++)
        if (b->bound[i].slot == UNBOUND)
            return binding_fail_unknown_field(b, b->fields[i]);
    for (size_t slot = 0; slot < binding_nslots(b) && !may_lack_arguments; slot++)
        if (!b->is_bound[slot] && !binding_slot_is_aliased_result(b, slot))
            return binding_fail_missing_field(b, slot);
    return DV_OK;
}

int dv__binding_make(const char *op_name, const dv__schema *schema, const dv_field_decl *const *fields, size_t frame_size,
    bool may_lack_arguments, dv__arena *arena, dv__binding **out)
{
    *out = NULL;
    binder b = { .op_name = op_name, .schema = schema, .fields = fields, .frame_size = frame_size };
    while (fields && fields[b.nfields])
        b.nfields++;
    if (schema->nargs + schema->nreturns >= UNBOUND || b.nfields >= UNBOUND || frame_size > UINT32_MAX)
        return dv_fail(DV_ELIMIT, "operator %s: too many arguments", op_name);
    dv__binding *binding = DV__ARENA_NEW(arena, dv__binding);
    b.bound = DV__ARENA_ARRAY(arena, dv__bound_field, b.nfields);
    b.is_bound = dv__calloc(binding_nslots(&b), sizeof *b.is_bound);
    int status = binding && b.bound && b.is_bound ? binding_bind_fields_by_name(&b) : DV_ENOMEM;
    if (!status)
        status = binding_bind_unnamed_returns(&b);
    if (!status)
        status = binding_check_all_bound(&b, may_lack_arguments);
    dv__free(b.is_bound);
    if (status)
        return status;
    binding->frame_size = (uint32_t)frame_size;
    binding->n = (uint32_t)b.nfields;
    binding->fields = b.bound;
    *out = binding;
    return DV_OK;
}
