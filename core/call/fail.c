/* Error messages of a call, about an argument or result, or from a kernel on any thread. */
#include "call/fail.h"

#include <stdio.h>

#include "base/error.h"

static void print_type_of(const dv_value *v, char *out, size_t size)
{
    const dv_field_row *row = dv_field_at(1);
    while (row->size && (row->value != v->type || row->form > DV_FORM_LIST))
        row = dv_field_at(row->type + 1);
    snprintf(out, size, "%s%s", row->word, row->form == DV_FORM_LIST ? "[]" : "");
}

void dv__print_value_type(const dv_value *v, char *out, size_t size)
{
    if (v->type == DV_VALUE_INT)
        snprintf(out, size, "int (%lld)", (long long)v->as.i);
    else if (v->type == DV_VALUE_FLOAT)
        snprintf(out, size, "float (%g)", v->as.f);
    else if (v->type == DV_VALUE_BOOL)
        snprintf(out, size, "bool (%s)", v->as.b ? "True" : "False");
    else if (v->type <= DV_VALUE_NONE)
        snprintf(out, size, "%s", v->type == DV_VALUE_NONE ? "None" : "nothing");
    else if (v->type < DV__VALUE_TYPES)
        print_type_of(v, out, size);
    else
        snprintf(out, size, "a value of type %u, which this runtime does not know", v->type);
}

const char *dv__slot_name(const dv__call *c, size_t slot, int64_t element, char *buffer, size_t size)
{
    const dv__schema *s = c->op->schema;
    const bool argument = slot < s->nargs;
    const char *name = argument ? s->args[slot].name : s->returns[slot - s->nargs].name;
    char place[24] = "";
    if (element >= 0)
        snprintf(place, sizeof place, "[%lld]", (long long)element);
    if (*name)
        snprintf(buffer, size, "%s '%s%s'", argument ? "argument" : "result", name, place);
    else
        snprintf(buffer, size, "result %zu%s", slot - s->nargs, place);
    return buffer;
}

int dv__fail_element(const dv__call *c, int status, size_t slot, int64_t element, const char *format, ...)
{
    char text[DV__ERROR_SIZE / 2], name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dv_fail(status, "%s: %s: %s", c->op->name, dv__slot_name(c, slot, element, name, sizeof name), text);
}

int dv__fail_in_slot(const dv__call *c, int status, size_t slot, int64_t element)
{
    char name[256];
    return dv__fail_in(status, "%s: %s", c->op->name, dv__slot_name(c, slot, element, name, sizeof name));
}

int dv__fail_type(const dv__call *c, int status, size_t slot, const dv_value *v, const char *from)
{
    const dv__schema *s = c->op->schema;
    char found[96];
    dv__text type = { 0 };
    dv__print_value_type(v, found, sizeof found);
    dv__type_print(slot < s->nargs ? s->args[slot].type : s->returns[slot - s->nargs].type, &type);
    dv__fail_argument(c, status, slot, "expected %s%s, found %s", type.data ? type.data : "another type", from, found);
    dv__text_deinit(&type);
    return status;
}

int dv__check_tensor(const dv__call *c, size_t slot, int64_t element, const dv_tensor *t)
{
    return dv__tensor_sound(t) ? DV_OK : dv__fail_in_slot(c, dv__tensor_check(t), slot, element);
}

/* ---- From kernels ---- */

int dv__vcall_error(dv__call *c, int status, const char *format, va_list args)
{
    if (!status)
        return DV_OK;
    int no = 0;
    if (atomic_compare_exchange_strong(&c->failing, &no, 1)) {
        vsnprintf(c->message, sizeof c->message, format, args);
        atomic_store_explicit(&c->status, status, memory_order_release);
    }
    return status;
}

int dv__call_error(dv__call *c, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    dv__vcall_error(c, status, format, args);
    va_end(args);
    return status;
}

int dv__report(dv__call *c, int status, const char *who)
{
    if (atomic_load_explicit(&c->failing, memory_order_acquire)) {
        const int own = atomic_load_explicit(&c->status, memory_order_acquire);
        const bool named = dv__error_is_in(c->message, c->op->name);
        return dv_fail(own ? own
                : status   ? status
                           : DV_EKERNEL,
            "%s%s%s", named ? "" : c->op->name, named ? "" : ": ", c->message);
    }
    if (!status)
        return DV_OK;
    const char *name = dv_status_name(status);
    if (status > 0 || !strcmp(name, "unknown status"))
        return dv_fail(DV_EKERNEL, "%s: %s returned %d, which is not a status", c->op->name, who, status);
    return dv_fail(status, "%s: %s failed with %s and no message", c->op->name, who, name);
}
