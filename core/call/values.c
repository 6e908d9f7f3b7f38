/* The caller's values against the schema, by the rules of PyTorch's argument parser: an int or a bool is taken for a float, a
 * bool never for an int, an int never for a bool; one int fills an int[3]; a list of length one too.
 *
 * The usual case, every value of the schema's own type and all there, is one pass that copies nothing. */
#include "call/values.h"

#include "base/memory.h"
#include "call/fail.h"

static int mismatch(const dv__call *c, size_t slot, const dv_value *v) { return dv__fail_type(c, DV_ETYPE, slot, v, ""); }

/* ---- Conversions ---- */

static bool to_float(const dv_value *v, double *out)
{
    switch (v->type) {
    case DV_VALUE_FLOAT: *out = v->as.f; return true;
    case DV_VALUE_INT: *out = (double)v->as.i; return true;
    case DV_VALUE_BOOL: *out = v->as.b; return true;
    default: return false;
    }
}

bool dv__is_number(uint32_t type)
{
    return type == DV_VALUE_INT || type == DV_VALUE_FLOAT || type == DV_VALUE_BOOL || type == DV_VALUE_COMPLEX;
}

static void *list_room(dv__call *c, size_t n, size_t size)
{
    return n > SIZE_MAX / 64 ? dv__calloc(n, size) : dv__arena_alloc(&c->arena, n * size);
}

/* One number for a list of fixed size. */
static int broadcast(dv__call *c, const dv__slot *slot, const dv_value *v, dv_value *to, bool *done)
{
    const size_t n = (size_t)slot->fixed_size;
    double f;
    *done = false;
    if (slot->value == DV_VALUE_INTS && v->type == DV_VALUE_INT) {
        int64_t *data = list_room(c, n, sizeof *data);
        if (!data)
            return DV_ENOMEM;
        for (size_t i = 0; i < n; i++)
            data[i] = v->as.i;
        to->as.ints.data = data;
    } else if (slot->value == DV_VALUE_FLOATS && v->type != DV_VALUE_BOOL && to_float(v, &f)) {
        double *data = list_room(c, n, sizeof *data);
        if (!data)
            return DV_ENOMEM;
        for (size_t i = 0; i < n; i++)
            data[i] = f;
        to->as.floats.data = data;
    } else {
        return DV_OK;
    }
    to->type = slot->value;
    to->as.ints.size = n; /* all lists have one layout */
    *done = true;
    return DV_OK;
}

/* A list of ints (or floats) where floats, Scalars or complex numbers are wanted. */
static int convert_list(dv__call *c, const dv__slot *slot, const dv_value *v, dv_value *to, bool *done)
{
    const bool ints = v->type == DV_VALUE_INTS, floats = v->type == DV_VALUE_FLOATS;
    const size_t n = v->as.ints.size;
    *done = true;
    to->type = slot->value;
    to->as.ints.size = n;
    if (!n) { /* an empty list has every type */
        to->as.ints.data = NULL;
        return DV_OK;
    }
    if (slot->value == DV_VALUE_FLOATS && ints) {
        double *data = list_room(c, n, sizeof *data);
        for (size_t i = 0; data && i < n; i++)
            data[i] = (double)v->as.ints.data[i];
        to->as.floats.data = data;
        return data ? DV_OK : DV_ENOMEM;
    }
    if (slot->value == DV_VALUE_SCALARS && (ints || floats || v->type == DV_VALUE_BOOLS)) {
        dv_scalar *data = list_room(c, n, sizeof *data);
        for (size_t i = 0; data && i < n; i++) {
            data[i].kind = ints ? DV_SCALAR_INT : floats ? DV_SCALAR_FLOAT : DV_SCALAR_BOOL;
            if (ints)
                data[i].as.i = v->as.ints.data[i];
            else if (floats)
                data[i].as.f = v->as.floats.data[i];
            else
                data[i].as.b = v->as.bools.data[i];
        }
        to->as.scalars.data = data;
        return data ? DV_OK : DV_ENOMEM;
    }
    if (slot->value == DV_VALUE_COMPLEXES && (ints || floats)) {
        dv_complex *data = list_room(c, n, sizeof *data);
        for (size_t i = 0; data && i < n; i++)
            data[i].re = ints ? (double)v->as.ints.data[i] : v->as.floats.data[i];
        to->as.complexes.data = data;
        return data ? DV_OK : DV_ENOMEM;
    }
    *done = false;
    return DV_OK;
}

static int check_tensors(const dv__call *c, size_t i, const dv__slot *slot, const dv_tensors *list)
{
    for (size_t k = 0; k < list->size; k++)
        if (!list->data[k] && !(slot->flags & DV__SLOT_ELEMENT_OPTIONAL))
            return dv__fail_element(c, DV_ETYPE, i, (int64_t)k, "expected Tensor, found None");
        else if (list->data[k] && !dv__tensor_sound(list->data[k]))
            return dv__check_tensor(c, i, (int64_t)k, list->data[k]);
    return DV_OK;
}

static bool is_list(const dv_value *v) { return v->type >= DV_VALUE_TENSORS && v->type < DV__VALUE_TYPES; }
static bool is_missing(dv_string s) { return s.size && !s.data; }

int dv__check_data(const dv__call *c, size_t i, const dv_value *v)
{
    if (v->type == DV_VALUE_STRING && is_missing(v->as.s))
        return dv__fail_argument(c, DV_EINVAL, i, "a string of %zu bytes without data: found NULL", v->as.s.size);
    if (is_list(v) && v->as.ints.size && !v->as.ints.data)
        return dv__fail_argument(c, DV_EINVAL, i, "a list of %zu elements without data: found NULL", v->as.ints.size);
    for (size_t k = 0; v->type == DV_VALUE_STRINGS && k < v->as.strings.size; k++)
        if (is_missing(v->as.strings.data[k]))
            return dv__fail_element(
                c, DV_EINVAL, i, (int64_t)k, "a string of %zu bytes without data: found NULL", v->as.strings.data[k].size);
    return DV_OK;
}

/* True if the argument's default is an empty list, as in ATen's pooling: int[2] stride=[]. Then an empty list is accepted in the
 * place of N elements, with a meaning that the operator defines. */
static bool has_empty_default(const dv__call *c, size_t i)
{
    const dv__argument *a = i < c->plan->nargs ? &c->op->schema->args[i] : NULL;
    return a && a->def.has && is_list(&a->def.value) && !a->def.value.as.ints.size;
}

int dv__check_list(dv__call *c, size_t i, dv_value *v)
{
    const dv__slot *slot = &c->plan->slots[i];
    const size_t n = v->as.ints.size;
    const int missing = dv__check_data(c, i, v);
    if (missing)
        return missing;
    if (slot->flags & DV__SLOT_TENSORS) {
        const int status = check_tensors(c, i, slot, &v->as.tensors);
        if (status)
            return status;
    }
    if (slot->fixed_size < 0 || slot->fixed_size == 1 ||
        n == (size_t)slot->fixed_size) /* int[1] takes any length, as in PyTorch: one int will do as well */
        return DV_OK;
    if (n == 1 && (v->type == DV_VALUE_INTS || v->type == DV_VALUE_FLOATS)) { /* [2] for int[3], as in PyTorch's convolutions */
        dv_value one = *v;
        bool done;
        one.type = v->type == DV_VALUE_INTS ? DV_VALUE_INT : DV_VALUE_FLOAT;
        if (v->type == DV_VALUE_INTS)
            one.as.i = v->as.ints.data[0];
        else
            one.as.f = v->as.floats.data[0];
        return broadcast(c, slot, &one, v, &done);
    }
    if (!n && has_empty_default(c, i))
        return DV_OK;
    return dv__fail_argument(c, DV_ETYPE, i, "expected a list of %d elements, found %zu", (int)slot->fixed_size, n);
}

/* v, of another type than the slot's, into *to. */
static int convert(dv__call *c, size_t i, const dv_value *v, dv_value *to)
{
    const dv__slot *slot = &c->plan->slots[i];
    double f;
    bool done;
    *to = *v;
    if (v->type == DV_VALUE_DEFAULT) {
        if (!(slot->flags & DV__SLOT_DEFAULT))
            return dv__fail_argument(c, DV_EINVAL, i, "missing: it has no default");
        *to = c->op->schema->args[i].def.value;
        if (to->type == slot->value || to->type == DV_VALUE_NONE)
            return DV_OK;
        v = &c->op->schema->args[i].def.value; /* an int for an int[2] or a float */
    }
    if (v->type == DV_VALUE_NONE && (slot->flags & DV__SLOT_OPTIONAL))
        return DV_OK;
    if (!slot->value) {
        dv__text type = { 0 };
        dv__type_print(c->op->schema->args[i].type, &type);
        dv__fail_argument(c, DV_ENOTSUP, i, "a value of type %s cannot be passed", type.data ? type.data : "?");
        dv__text_deinit(&type);
        return DV_ENOTSUP;
    }
    if (slot->flags & DV__SLOT_SCALAR)
        return dv__is_number(v->type) ? DV_OK : mismatch(c, i, v);
    if (slot->value == DV_VALUE_FLOAT && to_float(v, &f)) {
        to->type = DV_VALUE_FLOAT;
        to->as.f = f;
        return DV_OK;
    }
    if (slot->value == DV_VALUE_COMPLEX && v->type != DV_VALUE_BOOL && to_float(v, &f)) {
        to->type = DV_VALUE_COMPLEX;
        to->as.c = (dv_complex){ f, 0 };
        return DV_OK;
    }
    if ((slot->flags & DV__SLOT_LIST) && slot->fixed_size > 0) {
        const int status = broadcast(c, slot, v, to, &done);
        if (status || done)
            return status;
    }
    if ((slot->flags & DV__SLOT_LIST) && is_list(v)) {
        int status = dv__check_data(c, i, v);
        if (!status)
            status = convert_list(c, slot, v, to, &done);
        if (!status && done)
            status = dv__check_list(c, i, to);
        if (status || done)
            return status;
    }
    return mismatch(c, i, v);
}

/* ---- Tensors ---- */

static uint32_t keys_of(const dv_value *v)
{
    uint32_t keys = 0;
    if (v->type == DV_VALUE_TENSOR)
        return dv__keys_of_device(v->as.tensor->device.type);
    for (size_t i = 0; v->type == DV_VALUE_TENSORS && i < v->as.tensors.size; i++)
        if (v->as.tensors.data[i])
            keys |= dv__keys_of_device(v->as.tensors.data[i]->device.type);
    return keys;
}

bool dv__look_at(dv__call *c, const dv_tensor *t, dv__span *span)
{
    int64_t n;
    if (!dv__tensor_span(t, span, &n))
        return false;
    c->all_contiguous &= dv__span_is_contiguous(*span);
    c->most = n > c->most ? n : c->most;
    return true;
}

static int bind_tensor(dv__call *c, size_t slot, const dv_tensor *t)
{
    dv__span unused;
    return dv__look_at(c, t, slot < DV__MAX_SLOTS ? &c->spans[slot] : &unused) ? DV_OK : dv__check_tensor(c, slot, DV__WHOLE, t);
}

static int bind_one(dv__call *c, size_t i, const dv_value *v, dv_value *to)
{
    const dv__slot *slot = &c->plan->slots[i];
    *to = *v;
    if (v->type != slot->value || !v->type)
        return convert(c, i, v, to);
    if (slot->flags & DV__SLOT_LIST)
        return dv__check_list(c, i, to);
    return v->type == DV_VALUE_TENSOR ? bind_tensor(c, i, v->as.tensor) : dv__check_data(c, i, v);
}

int dv__bind_partly_known(dv__call *c, size_t i, const dv_value *v, dv_value *to)
{
    const dv__slot *slot = &c->plan->slots[i];
    const bool one = v->type == DV_VALUE_TENSOR, list = v->type == DV_VALUE_TENSORS;
    const size_t n = one ? 1 : list ? v->as.tensors.size : 0;
    *to = *v;
    if (v->type == DV_VALUE_UNKNOWN)
        return DV_OK;
    if (v->type != slot->value || (!one && !list))
        return bind_one(c, i, v, to);
    const int missing = dv__check_data(c, i, v);
    if (missing)
        return missing;
    for (size_t k = 0; k < n; k++) {
        const dv_tensor *t = one ? v->as.tensor : v->as.tensors.data[k];
        const int64_t element = one ? DV__WHOLE : (int64_t)k;
        if (!t && (one || !(slot->flags & DV__SLOT_ELEMENT_OPTIONAL)))
            return dv__fail_element(c, DV_ETYPE, i, element, "expected Tensor, found None");
        if (t && t->ndim > DV_MAX_NDIM)
            return dv__fail_element(c, DV_EINVAL, i, element, "expected at most %d dims, found %d", DV_MAX_NDIM, (int)t->ndim);
        if (t && t->ndim > 0 && !t->shape)
            return dv__fail_element(c, DV_EINVAL, i, element, "expected %d sizes, found NULL", (int)t->ndim);
    }
    return DV_OK;
}

static int bind_slowly(dv__call *c, const dv_value *args, size_t nargs)
{
    const size_t n = c->plan->nargs;
    const dv_value missing = { .type = DV_VALUE_DEFAULT };
    dv_value *values = c->values;
    if (nargs > n)
        return dv_fail(DV_EINVAL, "%s: expected at most %zu arguments, found %zu; the schema is %s", c->op->name, n, nargs,
            c->op->schema->text);
    if (nargs && !args)
        return dv_fail(DV_EINVAL, "%s: %zu arguments, but the array is NULL", c->op->name, nargs);
    if (n > DV__STACK_VALUES && !(values = DV__ARENA_ARRAY(&c->arena, dv_value, n)))
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const int status = bind_one(c, i, i < nargs ? &args[i] : &missing, &values[i]);
        if (status)
            return status;
        assert(values[i].type != DV_VALUE_DEFAULT);
    }
    c->args = values;
    return DV_OK;
}

static uint32_t keys_of_all(const dv__call *c)
{
    uint32_t keys = 0;
    bool any = false;
    for (size_t i = 0; i < c->plan->nargs; i++) {
        keys |= keys_of(&c->args[i]);
        any |= c->args[i].type == DV_VALUE_TENSOR || (c->args[i].type == DV_VALUE_TENSORS && c->args[i].as.tensors.size);
    }
    if (any)
        return keys;                                                            /* none: a device that nothing can run on */
    for (size_t i = 0; !keys && c->plan->has_device && i < c->plan->nargs; i++) /* a factory */
        if (c->args[i].type == DV_VALUE_DEVICE)
            keys = dv__keys_of_device(c->args[i].as.device.type);
    return keys ? keys : dv__keys_of_device(DV_CPU);
}

static int bind_given(dv__call *c)
{
    int status = DV_OK;
    for (size_t r = 0; r < c->plan->nreturns && !status; r++) {
        const dv_value *v = &c->results[r];
        const size_t slot = c->plan->nargs + r;
        const uint32_t takes = c->plan->slots[slot].value;
        if (v->type == DV_VALUE_TENSOR && takes == DV_VALUE_TENSOR)
            status = bind_tensor(c, slot, v->as.tensor);
        else if (v->type != DV_VALUE_DEFAULT && v->type != takes && (takes == DV_VALUE_TENSORS || takes == DV_VALUE_TENSOR) &&
            !(v->type == DV_VALUE_NONE && takes == DV_VALUE_TENSOR))
            status = mismatch(c, slot, v);
    }
    return status;
}

int dv__bind_values(dv__call *c, const dv_value *args, size_t nargs, uint32_t *keys)
{
    const dv__plan *plan = c->plan;
    bool all_cpu = true, any = false;
    c->all_contiguous = true;
    c->most = 0;
    if (nargs != plan->nargs || nargs > DV__MAX_SLOTS || !args)
        goto slow;
    for (size_t i = 0; i < nargs; i++) {
        const dv__slot *slot = &plan->slots[i];
        if (args[i].type != slot->value || (slot->flags & DV__SLOT_LIST) || !slot->value)
            goto slow;
        if (slot->value == DV_VALUE_TENSOR) {
            if (!dv__look_at(c, args[i].as.tensor, &c->spans[i]))
                goto slow;
            any = true;
            all_cpu &= args[i].as.tensor->device.type == DV_CPU;
        } else if (slot->value == DV_VALUE_STRING && is_missing(args[i].as.s)) {
            goto slow;
        }
    }
    c->args = args;
    *keys = all_cpu && any ? (1u << DV_KEY_CPU | 1u << DV_KEY_AUTOGRAD_CPU) : keys_of_all(c);
    return bind_given(c);
slow:;
    const int status = bind_slowly(c, args, nargs);
    if (!status)
        *keys = keys_of_all(c);
    return status ? status : bind_given(c);
}

/* ---- Contract ---- */

/* Without a contract all that can be asked is that every tensor is on one device. */
static int one_device(dv__call *c)
{
    const dv_tensor *first = NULL;
    size_t first_slot = 0;
    c->device = (dv_device){ DV_CPU, 0 };
    for (size_t i = 0; i < c->plan->nargs; i++) {
        const dv_value *v = &c->args[i];
        const size_t n = v->type == DV_VALUE_TENSOR ? 1 : v->type == DV_VALUE_TENSORS ? v->as.tensors.size : 0;
        if (v->type == DV_VALUE_DEVICE && !first)
            c->device = v->as.device;
        for (size_t k = 0; k < n; k++) {
            const dv_tensor *t = v->type == DV_VALUE_TENSOR ? v->as.tensor : v->as.tensors.data[k];
            if (!t)
                continue;
            if (first && (t->device.type != first->device.type || t->device.id != first->device.id))
                return dv__fail_argument(c, DV_EDEVICE, i, "is on %s:%d, but argument '%s' is on %s:%d",
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

int dv__solve(dv__call *c)
{
    if (!c->op->contract)
        return one_device(c);
    const int status = dv__contract_solve(c->op->contract, c->args, &c->solution, dv__host_flags(c->host) & DV_HOST_CHECK);
    c->device = c->solution.device;
    return status;
}
