/* Validates and converts the caller's values by the schema, with the rules of PyTorch's argument parser. An int or a bool is
 * accepted for a float, a bool never for an int, an int never for a bool. One int, or a list of one int, fills an int[3].
 *
 * In the usual case no argument is a list, and every argument has the schema's own type. Then one pass over the caller's
 * array suffices, and the array is used without a copy. */
#include "call/bind.h"

#include "base/memory.h"
#include "call/call_error.h"

static int bind_fail_type(const dv__call *c, size_t slot, const dv_value *v)
{
    return dv__fail_slot_type(c, DV_ETYPE, slot, v, "");
}

/* ---- Conversions ---- */

static bool bind_try_as_double(const dv_value *v, double *out)
{
    switch (v->type) {
    case DV_VALUE_FLOAT: *out = v->as.f; return true;
    case DV_VALUE_INT: *out = (double)v->as.i; return true;
    case DV_VALUE_BOOL: *out = v->as.b; return true;
    default: return false;
    }
}

bool dv__is_number_type(uint32_t type)
{
    return type == DV_VALUE_INT || type == DV_VALUE_FLOAT || type == DV_VALUE_BOOL || type == DV_VALUE_COMPLEX;
}

static void *bind_alloc_list(dv__call *c, size_t nelements, size_t element_size)
{
    return nelements > SIZE_MAX / 64 ? dv__calloc(nelements, element_size) : dv__arena_alloc(&c->arena, nelements * element_size);
}

/* Converts one number to a list of the slot's fixed size, as 3 to [3, 3] for int[2]. *converted: false if the slot's list
 * takes no such number. Fails with DV_ENOMEM. */
static int bind_broadcast_number_to_list(dv__call *c, const dv__slot *slot, const dv_value *v, dv_value *out, bool *converted)
{
    const size_t n = (size_t)slot->fixed_size;
    double f;
    *converted = false;
    if (slot->value == DV_VALUE_INTS && v->type == DV_VALUE_INT) {
        int64_t *data = bind_alloc_list(c, n, sizeof *data);
        if (!data)
            return DV_ENOMEM;
        for (size_t i = 0; i < n; i++)
            data[i] = v->as.i;
        out->as.ints.data = data;
    } else if (slot->value == DV_VALUE_FLOATS && v->type != DV_VALUE_BOOL && bind_try_as_double(v, &f)) {
        double *data = bind_alloc_list(c, n, sizeof *data);
        if (!data)
            return DV_ENOMEM;
        for (size_t i = 0; i < n; i++)
            data[i] = f;
        out->as.floats.data = data;
    } else {
        return DV_OK;
    }
    out->type = slot->value;
    out->as.ints.size = n; /* the lists of all element types have one layout, so ints.size is the size of any list */
    *converted = true;
    return DV_OK;
}

/* Converts a list of ints, floats or bools to the slot's list of floats, Scalars or complex numbers; an empty list is
 * converted to any list. *converted: false if no such conversion exists. Fails with DV_ENOMEM. */
static int bind_convert_list(dv__call *c, const dv__slot *slot, const dv_value *v, dv_value *out, bool *converted)
{
    const bool ints = v->type == DV_VALUE_INTS, floats = v->type == DV_VALUE_FLOATS;
    const size_t n = v->as.ints.size;
    *converted = true;
    out->type = slot->value;
    out->as.ints.size = n;
    if (!n) { /* an empty list has every type */
        out->as.ints.data = NULL;
        return DV_OK;
    }
    if (slot->value == DV_VALUE_FLOATS && ints) {
        double *data = bind_alloc_list(c, n, sizeof *data);
        for (size_t i = 0; data && i < n; i++)
            data[i] = (double)v->as.ints.data[i];
        out->as.floats.data = data;
        return data ? DV_OK : DV_ENOMEM;
    }
    if (slot->value == DV_VALUE_SCALARS && (ints || floats || v->type == DV_VALUE_BOOLS)) {
        dv_scalar *data = bind_alloc_list(c, n, sizeof *data);
        for (size_t i = 0; data && i < n; i++) {
            data[i].kind = ints ? DV_SCALAR_INT : floats ? DV_SCALAR_FLOAT : DV_SCALAR_BOOL;
            if (ints)
                data[i].as.i = v->as.ints.data[i];
            else if (floats)
                data[i].as.f = v->as.floats.data[i];
            else
                data[i].as.b = v->as.bools.data[i];
        }
        out->as.scalars.data = data;
        return data ? DV_OK : DV_ENOMEM;
    }
    if (slot->value == DV_VALUE_COMPLEXES && (ints || floats)) {
        dv_complex *data = bind_alloc_list(c, n, sizeof *data);
        for (size_t i = 0; data && i < n; i++)
            data[i].re = ints ? (double)v->as.ints.data[i] : v->as.floats.data[i];
        out->as.complexes.data = data;
        return data ? DV_OK : DV_ENOMEM;
    }
    *converted = false;
    return DV_OK;
}

static int bind_check_tensor_list(const dv__call *c, size_t slot_index, const dv__slot *slot, const dv_tensors *list)
{
    for (size_t k = 0; k < list->size; k++)
        if (!list->data[k] && !(slot->flags & DV__SLOT_ELEMENT_OPTIONAL))
            return dv__fail_slot_element(c, DV_ETYPE, slot_index, (int64_t)k, "expected Tensor, found None");
        else if (list->data[k] && !dv__tensor_is_valid(list->data[k]))
            return dv__check_slot_tensor(c, slot_index, (int64_t)k, list->data[k]);
    return DV_OK;
}

static bool bind_is_null_string(dv_string s) { return s.size && !s.data; }

int dv__check_value_has_data(const dv__call *c, size_t slot_index, const dv_value *v)
{
    if (v->type == DV_VALUE_STRING && bind_is_null_string(v->as.s))
        return dv__fail_slot(c, DV_EINVAL, slot_index, "a string of %zu bytes without data: found NULL", v->as.s.size);
    if (dv__value_type_is_list(v->type) && v->as.ints.size && !v->as.ints.data)
        return dv__fail_slot(c, DV_EINVAL, slot_index, "a list of %zu elements without data: found NULL", v->as.ints.size);
    for (size_t k = 0; v->type == DV_VALUE_STRINGS && k < v->as.strings.size; k++)
        if (bind_is_null_string(v->as.strings.data[k]))
            return dv__fail_slot_element(c, DV_EINVAL, slot_index, (int64_t)k, "a string of %zu bytes without data: found NULL",
                v->as.strings.data[k].size);
    return DV_OK;
}

/* True if the schema's default of argument i is an empty list, as in ATen's pooling: int[2] stride=[]. Whether the caller
 * passed the argument plays no part. An empty list is then accepted in place of N elements; the operator defines its
 * meaning. */
static bool schema_default_is_empty_list(const dv__call *c, size_t argument_index)
{
    const dv__argument *a = argument_index < c->signature->nargs ? &c->op->schema->args[argument_index] : NULL;
    return a && a->def.is_set && dv__value_type_is_list(a->def.value.type) && !a->def.value.as.ints.size;
}

int dv__check_or_extend_list(dv__call *c, size_t slot_index, dv_value *v)
{
    const dv__slot *slot = &c->signature->slots[slot_index];
    const size_t n = v->as.ints.size;
    const int missing = dv__check_value_has_data(c, slot_index, v);
    if (missing)
        return missing;
    if (slot->flags & DV__SLOT_TENSORS) {
        const int status = bind_check_tensor_list(c, slot_index, slot, &v->as.tensors);
        if (status)
            return status;
    }
    if (slot->fixed_size < 0 || slot->fixed_size == 1 ||
        n == (size_t)slot->fixed_size) /* an int[1] accepts a list of any length, as in PyTorch */
        return DV_OK;
    if (n == 1 &&
        (v->type == DV_VALUE_INTS ||
            v->type == DV_VALUE_FLOATS)) { /* a list of one number fills an int[3], as in PyTorch's convolutions */
        dv_value one = *v;
        bool done;
        one.type = v->type == DV_VALUE_INTS ? DV_VALUE_INT : DV_VALUE_FLOAT;
        if (v->type == DV_VALUE_INTS)
            one.as.i = v->as.ints.data[0];
        else
            one.as.f = v->as.floats.data[0];
        return bind_broadcast_number_to_list(c, slot, &one, v, &done);
    }
    if (!n && schema_default_is_empty_list(c, slot_index))
        return DV_OK;
    return dv__fail_slot(c, DV_ETYPE, slot_index, "expected a list of %d elements, found %zu", (int)slot->fixed_size, n);
}

/* Converts a value of another type than the slot's, or a default, to *out. Fails with a message if no conversion exists. */
static int bind_convert_value(dv__call *c, size_t slot_index, const dv_value *v, dv_value *out)
{
    const dv__slot *slot = &c->signature->slots[slot_index];
    double f;
    bool done;
    *out = *v;
    if (v->type == DV_VALUE_DEFAULT) {
        if (!(slot->flags & DV__SLOT_DEFAULT))
            return dv__fail_slot(c, DV_EINVAL, slot_index, "missing: it has no default");
        *out = c->op->schema->args[slot_index].def.value;
        if (out->type == slot->value || out->type == DV_VALUE_NONE)
            return DV_OK;
        v = &c->op->schema->args[slot_index]
                 .def.value; /* converts a default of another type, such as an int for an int[2] or a float */
    }
    if (v->type == DV_VALUE_NONE && (slot->flags & DV__SLOT_OPTIONAL))
        return DV_OK;
    if (!slot->value) {
        dv__strbuf type = { 0 };
        dv__type_print(c->op->schema->args[slot_index].type, &type);
        dv__fail_slot(c, DV_ENOTSUP, slot_index, "a value of type %s cannot be passed", type.data ? type.data : "?");
        dv__strbuf_deinit(&type);
        return DV_ENOTSUP;
    }
    if (slot->flags & DV__SLOT_SCALAR)
        return dv__is_number_type(v->type) ? DV_OK : bind_fail_type(c, slot_index, v);
    if (slot->value == DV_VALUE_FLOAT && bind_try_as_double(v, &f)) {
        out->type = DV_VALUE_FLOAT;
        out->as.f = f;
        return DV_OK;
    }
    if (slot->value == DV_VALUE_COMPLEX && v->type != DV_VALUE_BOOL && bind_try_as_double(v, &f)) {
        out->type = DV_VALUE_COMPLEX;
        out->as.c = (dv_complex){ f, 0 };
        return DV_OK;
    }
    if ((slot->flags & DV__SLOT_LIST) && slot->fixed_size > 0) {
        const int status = bind_broadcast_number_to_list(c, slot, v, out, &done);
        if (status || done)
            return status;
    }
    if ((slot->flags & DV__SLOT_LIST) && dv__value_type_is_list(v->type)) {
        int status = dv__check_value_has_data(c, slot_index, v);
        if (!status)
            status = bind_convert_list(c, slot, v, out, &done);
        if (!status && done)
            status = dv__check_or_extend_list(c, slot_index, out);
        if (status || done)
            return status;
    }
    return bind_fail_type(c, slot_index, v);
}

/* ---- Tensors ---- */

static uint32_t bind_dispatch_keys_of_value(const dv_value *v)
{
    uint32_t keys = 0;
    if (v->type == DV_VALUE_TENSOR)
        return dv__dispatch_keys_of_device(v->as.tensor->device.type);
    for (size_t i = 0; v->type == DV_VALUE_TENSORS && i < v->as.tensors.size; i++)
        if (v->as.tensors.data[i])
            keys |= dv__dispatch_keys_of_device(v->as.tensors.data[i]->device.type);
    return keys;
}

bool dv__try_record_tensor_span(dv__call *c, const dv_tensor *t, dv__span *span)
{
    int64_t n;
    if (!dv__tensor_try_find_span(t, span, &n))
        return false;
    c->all_contiguous &= dv__span_is_contiguous(*span);
    c->max_numel = n > c->max_numel ? n : c->max_numel;
    return true;
}

static int bind_check_tensor(dv__call *c, size_t slot, const dv_tensor *t)
{
    dv__span unused;
    return dv__try_record_tensor_span(c, t, slot < DV__MAX_SLOTS ? &c->spans[slot] : &unused)
        ? DV_OK
        : dv__check_slot_tensor(c, slot, DV__NO_ELEMENT, t);
}

/* Validates an argument, and stores it in *out, converted if it has another type than the slot. Returns a status. */
static int bind_value(dv__call *c, size_t slot_index, const dv_value *v, dv_value *out)
{
    const dv__slot *slot = &c->signature->slots[slot_index];
    *out = *v;
    if (v->type != slot->value || !v->type)
        return bind_convert_value(c, slot_index, v, out);
    if (slot->flags & DV__SLOT_LIST)
        return dv__check_or_extend_list(c, slot_index, out);
    return v->type == DV_VALUE_TENSOR ? bind_check_tensor(c, slot_index, v->as.tensor)
                                      : dv__check_value_has_data(c, slot_index, v);
}

int dv__bind_partial_value(dv__call *c, size_t slot_index, const dv_value *v, dv_value *out)
{
    const dv__slot *slot = &c->signature->slots[slot_index];
    const bool one = v->type == DV_VALUE_TENSOR, list = v->type == DV_VALUE_TENSORS;
    const size_t n = one ? 1 : list ? v->as.tensors.size : 0;
    *out = *v;
    if (v->type == DV_VALUE_UNKNOWN)
        return DV_OK;
    if (v->type != slot->value || (!one && !list))
        return bind_value(c, slot_index, v, out);
    const int missing = dv__check_value_has_data(c, slot_index, v);
    if (missing)
        return missing;
    for (size_t k = 0; k < n; k++) {
        const dv_tensor *t = one ? v->as.tensor : v->as.tensors.data[k];
        const int64_t element = one ? DV__NO_ELEMENT : (int64_t)k;
        if (!t && (one || !(slot->flags & DV__SLOT_ELEMENT_OPTIONAL)))
            return dv__fail_slot_element(c, DV_ETYPE, slot_index, element, "expected Tensor, found None");
        if (t && t->ndim > DV_MAX_NDIM)
            return dv__fail_slot_element(
                c, DV_EINVAL, slot_index, element, "expected at most %d dims, found %d", DV_MAX_NDIM, (int)t->ndim);
        if (t && t->ndim > 0 && !t->shape)
            return dv__fail_slot_element(c, DV_EINVAL, slot_index, element, "expected %d sizes, found NULL", (int)t->ndim);
    }
    return DV_OK;
}

/* Binds arguments of any number and types, with defaults for missing ones. Sets c->args. Returns a status. */
static int bind_values_slow_path(dv__call *c, const dv_value *args, size_t nargs)
{
    const size_t n = c->signature->nargs;
    const dv_value missing = { .type = DV_VALUE_DEFAULT };
    dv_value *values = c->values;
    if (nargs > n)
        return dv_fail(DV_EINVAL, "%s: expected at most %zu arguments, found %zu; the schema is %s", c->op->name, n, nargs,
            c->op->schema->text);
    if (nargs && !args)
        return dv_fail(DV_EINVAL, "%s: %zu arguments, but the array is NULL", c->op->name, nargs);
    if (n > DV__MAX_STACK_VALUES && !(values = DV__ARENA_ARRAY(&c->arena, dv_value, n)))
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const int status = bind_value(c, i, i < nargs ? &args[i] : &missing, &values[i]);
        if (status)
            return status;
        assert(values[i].type != DV_VALUE_DEFAULT);
    }
    c->args = values;
    return DV_OK;
}

/* Returns the bit mask of the dispatch keys of all tensor arguments; of a call without tensors, of its first Device
 * argument, else of the CPU. */
static uint32_t bind_dispatch_keys_of_call(const dv__call *c)
{
    uint32_t keys = 0;
    bool any = false;
    for (size_t i = 0; i < c->signature->nargs; i++) {
        keys |= bind_dispatch_keys_of_value(&c->args[i]);
        any |= c->args[i].type == DV_VALUE_TENSOR || (c->args[i].type == DV_VALUE_TENSORS && c->args[i].as.tensors.size);
    }
    if (any)
        return keys; /* 0 if the tensors' device is unknown */
    for (size_t i = 0; !keys && c->signature->has_device_argument && i < c->signature->nargs;
        i++) /* a call without tensors: its first Device argument selects the keys */
        if (c->args[i].type == DV_VALUE_DEVICE)
            keys = dv__dispatch_keys_of_device(c->args[i].as.device.type);
    return keys ? keys : dv__dispatch_keys_of_device(DV_CPU);
}

/* Fails if a value that the caller passed for a result has not the result's type, or is an invalid tensor. Records the
 * tensors' spans. */
static int bind_check_given_results(dv__call *c)
{
    int status = DV_OK;
    for (size_t r = 0; r < c->signature->nreturns && !status; r++) {
        const dv_value *v = &c->results[r];
        const size_t slot = c->signature->nargs + r;
        const uint32_t takes = c->signature->slots[slot].value;
        if (v->type == DV_VALUE_TENSOR && takes == DV_VALUE_TENSOR)
            status = bind_check_tensor(c, slot, v->as.tensor);
        else if (v->type != DV_VALUE_DEFAULT && v->type != takes && (takes == DV_VALUE_TENSORS || takes == DV_VALUE_TENSOR) &&
            !(v->type == DV_VALUE_NONE && takes == DV_VALUE_TENSOR))
            status = bind_fail_type(c, slot, v);
    }
    return status;
}

int dv__bind_values(dv__call *c, const dv_value *args, size_t nargs, uint32_t *keys)
{
    const dv__signature *signature = c->signature;
    bool all_cpu = true, any = false;
    c->all_contiguous = true;
    c->max_numel = 0;
    if (nargs != signature->nargs || nargs > DV__MAX_SLOTS || !args)
        goto slow;
    for (size_t i = 0; i < nargs; i++) {
        const dv__slot *slot = &signature->slots[i];
        if (args[i].type != slot->value || (slot->flags & DV__SLOT_LIST) || !slot->value)
            goto slow;
        if (slot->value == DV_VALUE_TENSOR) {
            if (!dv__try_record_tensor_span(c, args[i].as.tensor, &c->spans[i]))
                goto slow;
            any = true;
            all_cpu &= args[i].as.tensor->device.type == DV_CPU;
        } else if (slot->value == DV_VALUE_STRING && bind_is_null_string(args[i].as.s)) {
            goto slow;
        }
    }
    c->args = args;
    *keys = all_cpu && any ? (1u << DV_KEY_CPU | 1u << DV_KEY_AUTOGRAD_CPU) : bind_dispatch_keys_of_call(c);
    return bind_check_given_results(c);
slow:;
    const int status = bind_values_slow_path(c, args, nargs);
    if (!status)
        *keys = bind_dispatch_keys_of_call(c);
    return status ? status : bind_check_given_results(c);
}

/* ---- Contract ---- */

/* Sets c->device of a call without a contract to the device of its tensors, else to its first Device argument, else to the
 * CPU. Fails if two tensors are on different devices. */
static int bind_set_common_device(dv__call *c)
{
    const dv_tensor *first = NULL;
    size_t first_slot = 0;
    c->device = (dv_device){ DV_CPU, 0 };
    for (size_t i = 0; i < c->signature->nargs; i++) {
        const dv_value *v = &c->args[i];
        const size_t n = v->type == DV_VALUE_TENSOR ? 1 : v->type == DV_VALUE_TENSORS ? v->as.tensors.size : 0;
        if (v->type == DV_VALUE_DEVICE && !first)
            c->device = v->as.device;
        for (size_t k = 0; k < n; k++) {
            const dv_tensor *t = v->type == DV_VALUE_TENSOR ? v->as.tensor : v->as.tensors.data[k];
            if (!t)
                continue;
            if (first && (t->device.type != first->device.type || t->device.id != first->device.id))
                return dv__fail_slot(c, DV_EDEVICE, i, "is on %s:%d, but argument '%s' is on %s:%d",
                    dv_device_name(t->device.type), (int)t->device.id, c->op->schema->args[first_slot].name,
                    dv_device_name(first->device.type), (int)first->device.id);
            if (!first) {
                first = t;
                first_slot = i;
                c->device = t->device;
            }
        }
    }
    return DV_OK;
}

int dv__call_solve_contract(dv__call *c)
{
    if (!c->op->contract)
        return bind_set_common_device(c);
    const int status = dv__contract_solve(c->op->contract, c->args, &c->solution, dv__host_flags(c->host) & DV_HOST_CHECK);
    c->device = c->solution.device;
    return status;
}
