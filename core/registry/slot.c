/* Information for hosts that register or call an operator: each argument and result, with the schema's type as enum
 * dv_field_type; tags; devices. */
#include "base/error.h"
#include "registry/internal.h"

static bool shares_set(const dv__alias *a, const dv__alias *b)
{
    for (size_t i = 0; i < a->nbefore; i++)
        for (size_t j = 0; j < b->nbefore; j++)
            if (!strcmp(a->before[i], b->before[j]) && strcmp(a->before[i], "*") != 0)
                return true;
    return false;
}

/* Of a list, the annotation is that of its elements. A list that is an argument, Tensor(a!)[], cannot be made: it has none here.
 */
static const dv__alias *annotation(const dv__argument *a)
{
    const dv__alias *element = a->alias ? a->alias->element : NULL;
    return !element ? a->alias : element->write ? NULL : element;
}

static int32_t alias_of(const dv__schema *schema, const dv__alias *alias)
{
    if (alias)
        for (size_t i = 0; i < schema->nargs; i++)
            if (annotation(&schema->args[i]) && shares_set(alias, annotation(&schema->args[i])))
                return (int32_t)i;
    return -1;
}

int dv__slot_info(const dv__schema *schema, size_t slot, dv_slot_info *out)
{
    memset(out, 0, sizeof *out);
    if (slot >= schema->nargs + schema->nreturns)
        return dv_fail(DV_EINVAL, "no slot %zu: there are %zu arguments and %zu results", slot, schema->nargs, schema->nreturns);
    const bool result = slot >= schema->nargs;
    const dv__argument *a = result ? &schema->returns[slot - schema->nargs] : &schema->args[slot];
    const dv__type *type = a->type;
    out->name = a->name ? a->name : "";
    out->fixed_size = -1;
    out->alias = result ? alias_of(schema, annotation(a)) : -1;
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
        out->type = dv_field_over(dv__type_field(element), DV_FORM_LIST);
    } else {
        out->type = dv__type_field(type);
    }
    if (a->kwarg_only)
        out->flags |= DV_SLOT_KWARG_ONLY;
    if (dv__argument_writes(a))
        out->flags |= DV_SLOT_WRITES;
    if (a->def.has) {
        out->default_text = a->def.text;
        out->default_value = a->def.value;
    }
    return DV_OK;
}

int dv_operator_slot(const dv_operator *op, size_t slot, dv_slot_info *out)
{
    DV__REQUIRE(op, "operator");
    DV__REQUIRE(out, "place for the result");
    const int status = dv__slot_info(op->schema, slot, out);
    if (status)
        return dv__fail_in(status, "%s", op->name);
    if (slot >= op->schema->nargs && out->type == DV_FIELD_TENSORS && !op->contract)
        out->flags |= DV_SLOT_GIVEN;
    return DV_OK;
}

const char *dv_operator_tags(const dv_operator *op) { return op && op->text.tags ? op->text.tags : ""; }

bool dv_operator_has_rows(const dv_operator *op, int32_t device_type)
{
    if (!op)
        return false;
    if (op->functional)
        op = op->functional;
    const dv__table *table = atomic_load_explicit(&((dv_operator *)(uintptr_t)op)->table, memory_order_acquire);
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++) {
        const dv__entry *e = &table->entries[key];
        for (size_t i = 0; e->kind == DV__ENTRY_ROWS && i < e->nrows; i++)
            if (e->rows[i]->device_type == device_type && e->rows[i]->run)
                return true;
    }
    return false;
}
