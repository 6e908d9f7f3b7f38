/* Error messages of a call, about an argument or result, or from a kernel on any thread. */
#include "call/call_error.h"

#include <stdio.h>

#include "base/error.h"

void dv__print_value_type(const dv_value *v, char *out, size_t size)
{
    const dv_field_row *row = dv_field_of_value(v->type);
    if (v->type == DV_VALUE_INT)
        snprintf(out, size, "int (%lld)", (long long)v->as.i);
    else if (v->type == DV_VALUE_FLOAT)
        snprintf(out, size, "float (%g)", v->as.f);
    else if (v->type == DV_VALUE_BOOL)
        snprintf(out, size, "bool (%s)", v->as.b ? "True" : "False");
    else if (v->type <= DV_VALUE_NONE)
        snprintf(out, size, "%s", v->type == DV_VALUE_NONE ? "None" : "nothing");
    else if (row->size)
        snprintf(out, size, "%s%s", row->word, row->form == DV_FORM_LIST ? "[]" : "");
    else
        snprintf(out, size, "a value of type %u, which this runtime does not know", v->type);
}

const char *dv__print_slot_name(const dv__call *c, size_t slot, int64_t element_index, char *buffer, size_t size)
{
    const dv__schema *s = c->op->schema;
    const bool argument = slot < s->nargs;
    const char *name = argument ? s->args[slot].name : s->returns[slot - s->nargs].name;
    char place[24] = "";
    if (element_index >= 0)
        snprintf(place, sizeof place, "[%lld]", (long long)element_index);
    if (*name)
        snprintf(buffer, size, "%s '%s%s'", argument ? "argument" : "result", name, place);
    else
        snprintf(buffer, size, "result %zu%s", slot - s->nargs, place);
    return buffer;
}

int dv__fail_slot_element(const dv__call *c, int status, size_t slot, int64_t element_index, const char *format, ...)
{
    char text[DV__ERROR_SIZE / 2], name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dv_fail(status, "%s: %s: %s", c->op->name, dv__print_slot_name(c, slot, element_index, name, sizeof name), text);
}

int dv__fail_add_slot_context(const dv__call *c, int status, size_t slot, int64_t element_index)
{
    char name[256];
    return dv__fail_add_context(status, "%s: %s", c->op->name, dv__print_slot_name(c, slot, element_index, name, sizeof name));
}

int dv__fail_slot_type(const dv__call *c, int status, size_t slot, const dv_value *v, const char *provider_text)
{
    const dv__schema *s = c->op->schema;
    char found[96];
    dv__strbuf type = { 0 };
    dv__print_value_type(v, found, sizeof found);
    dv__type_print(slot < s->nargs ? s->args[slot].type : s->returns[slot - s->nargs].type, &type);
    dv__fail_slot(c, status, slot, "expected %s%s, found %s", type.data ? type.data : "another type", provider_text, found);
    dv__strbuf_deinit(&type);
    return status;
}

int dv__check_slot_tensor(const dv__call *c, size_t slot, int64_t element_index, const dv_tensor *t)
{
    return dv__tensor_is_valid(t) ? DV_OK : dv__fail_add_slot_context(c, dv__tensor_check(t), slot, element_index);
}

/* ---- From kernels ---- */

int dv__call_vrecord_error(dv__call *c, int status, const char *format, va_list args)
{
    int expected = 0;
    status = status ? status : DV_EKERNEL;
    if (atomic_compare_exchange_strong(&c->has_error, &expected, 1)) {
        vsnprintf(c->message, sizeof c->message, format, args);
        atomic_store_explicit(&c->status, status, memory_order_release);
    }
    return status;
}

int dv__call_record_error(dv__call *c, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    dv__call_vrecord_error(c, status, format, args);
    va_end(args);
    return status;
}

int dv__call_report_recorded_error(dv__call *c, int status, const char *kernel_name)
{
    if (atomic_load_explicit(&c->has_error, memory_order_acquire)) {
        const int recorded_status = atomic_load_explicit(&c->status, memory_order_acquire);
        const bool named = dv__error_has_context(c->message, c->op->name);
        return dv_fail(recorded_status ? recorded_status
                : status               ? status
                                       : DV_EKERNEL,
            "%s%s%s", named ? "" : c->op->name, named ? "" : ": ", c->message);
    }
    if (!status)
        return DV_OK;
    const char *name = dv_status_name(status);
    if (status > 0 || !strcmp(name, "unknown status"))
        return dv_fail(DV_EKERNEL, "%s: %s returned %d, which is not a status", c->op->name, kernel_name, status);
    return dv_fail(status, "%s: %s failed with %s and no message", c->op->name, kernel_name, name);
}
