/* Information for hosts that register or call an operator: each argument and result, with the schema's type as enum
 * dv_field_type; tags; devices with kernels. */
#include "base/error.h"
#include "registry/registry_internal.h"

static bool slot_aliases_share_a_set(const dv__alias *a, const dv__alias *b)
{
    for (size_t i = 0; i < a->nbefore; i++)
        for (size_t j = 0; j < b->nbefore; j++)
            if (!strcmp(a->before[i], b->before[j]) && strcmp(a->before[i], "*") != 0)
                return true;
    return false;
}

/* Returns the alias annotation of an argument or return; of a list, that of its elements. NULL: none, or a written list
 * Tensor(a!)[], of which no return can be an alias. */
static const dv__alias *slot_find_alias_annotation(const dv__argument *a)
{
    const dv__alias *element = a->alias ? a->alias->element : NULL;
    return !element ? a->alias : element->write ? NULL : element;
}

/* Returns the index of the first argument with an alias set of the annotation; -1: none. */
static int32_t slot_find_aliased_argument_index(const dv__schema *schema, const dv__alias *alias)
{
    if (alias)
        for (size_t i = 0; i < schema->nargs; i++)
            if (slot_find_alias_annotation(&schema->args[i]) &&
                slot_aliases_share_a_set(alias, slot_find_alias_annotation(&schema->args[i])))
                return (int32_t)i;
    return -1;
}

int dv__slot_describe(const dv__schema *schema, size_t slot, dv_slot_info *out)
{
    memset(out, 0, sizeof *out);
    if (slot >= schema->nargs + schema->nreturns)
        return dv_fail(DV_EINVAL, "no slot %zu: there are %zu arguments and %zu results", slot, schema->nargs, schema->nreturns);
    const bool result = slot >= schema->nargs;
    const dv__argument *a = result ? &schema->returns[slot - schema->nargs] : &schema->args[slot];
    const dv__type *type = a->type;
    out->name = a->name ? a->name : "";
    out->fixed_size = -1;
    out->alias = result ? slot_find_aliased_argument_index(schema, slot_find_alias_annotation(a)) : -1;
    if (type->kind == DV__TYPE_OPTIONAL) {
        out->flags |= DV_SLOT_OPTIONAL;
        type = type->elems[0];
    }
    if (type->kind == DV__TYPE_LIST) {
        const dv__type *element = type->elems[0];
        out->fixed_size = type->fixed_size;
        if (element->kind == DV__TYPE_OPTIONAL) {
            out->flags |= DV_SLOT_ELEMENT_OPTIONAL;
            element = element->elems[0];
        }
        out->type = dv_field_with_form(dv__type_rows[element->kind].field, DV_FORM_LIST);
    } else {
        out->type = dv__type_rows[type->kind].field;
    }
    if (a->kwarg_only)
        out->flags |= DV_SLOT_KWARG_ONLY;
    if (dv__argument_is_written(a))
        out->flags |= DV_SLOT_WRITES;
    if (a->def.is_set) {
        out->default_text = a->def.text;
        out->default_value = a->def.value;
    }
    return DV_OK;
}

int dv_operator_slot(const dv_operator *op, size_t slot, dv_slot_info *out)
{
    DV__REQUIRE(op, "operator");
    DV__REQUIRE(out, "pointer for the result");
    const int status = dv__slot_describe(op->schema, slot, out);
    if (status)
        return dv__fail_add_context(status, "%s", op->name);
    if (slot >= op->schema->nargs && out->type == DV_FIELD_TENSORS && !op->contract)
        out->flags |= DV_SLOT_GIVEN;
    return DV_OK;
}

const char *dv_operator_tags(const dv_operator *op) { return op && op->text.tags ? op->text.tags : ""; }

bool dv_operator_has_kernels(const dv_operator *op, int32_t device_type)
{
    if (!op)
        return false;
    if (op->functional_form_of)
        op = op->functional_form_of;
    const dv__dispatch_table *table = atomic_load_explicit(&((dv_operator *)(uintptr_t)op)->table, memory_order_acquire);
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++) {
        const dv__dispatch_entry *e = &table->entries[key];
        for (size_t i = 0; e->kind == DV__ENTRY_KERNELS && i < e->nkernels; i++)
            if (e->kernels[i]->device_type == device_type && e->kernels[i]->run)
                return true;
    }
    return false;
}
