/* One call from torch: stack -> dv_value -> dv_call -> stack.
 *
 * Invariant: this code owns every handle on the stack until call_release_arguments() has released it. A release needs only the
 * schema, so it works after a failure at any point. Before an exception is thrown, all is released. bump_version() may throw
 * through this code: the cleanup attribute then releases all handles and memory. */
#include "call.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Returns `size` bytes that live until dv__torch_call_free_memory(); NULL with the error set if memory is out. */
static void *call_alloc(struct dv__torch_call *c, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size > (size_t)(c->end - c->next_free)) {
        const size_t most = size > 4096 ? size : 4096;
        struct dv__torch_block *b = malloc(sizeof(struct dv__torch_block) + 16 + most);
        if (!b)
            return dv_fail(DV_ENOMEM, "%s: out of memory", c->op->name), NULL;
        b->next = c->blocks;
        c->blocks = b;
        c->next_free = (char *)b + 16;
        c->end = c->next_free + most;
    }
    void *p = c->next_free;
    c->next_free += size;
    return p;
}

/* ---- types --------------------------------------------------------------------------------------------------------------- */

const char *dv__torch_get_unsupported_reason(const struct dv__torch_shims *t, const dv_slot_info *info, bool is_result)
{
    const dv_field_row *type = dv_field_at(info->type);
    const dv_field_row *element = type->form == DV_FORM_LIST ? dv_field_at(type->of) : type;
    switch (element->type) {
    case DV_FIELD_TENSOR:
        return info->flags & DV_SLOT_GIVEN ? "a list of tensors cannot be made: no contract says how many there are" : NULL;
    case DV_FIELD_INT:
    case DV_FIELD_FLOAT:
    case DV_FIELD_BOOL:
        if (type == element)
            return NULL;
        break;
    case DV_FIELD_STRING:
    case DV_FIELD_DTYPE:
    case DV_FIELD_DEVICE:
    case DV_FIELD_LAYOUT:
    case DV_FIELD_MEMORY_FORMAT: break;
    case DV_FIELD_SCALAR: return "torch's C shims carry no Scalar; use int or float";
    case DV_FIELD_COMPLEX: return "torch's C shims carry no complex numbers; use two floats";
    case DV_FIELD_GENERATOR: return t->torch_delete_generator ? NULL : "torch's C shims carry no Generator before torch 2.13";
    default: return "torch's C shims do not carry this type";
    }
    return is_result ? "only tensors and numbers can be returned" : NULL;
}

uint8_t dv__torch_get_packed_type(uint8_t schema_type)
{
    switch (schema_type) {
    case DV_FIELD_SCALAR:                         /* three ints: the Scalar's kind, and the bits of one or two numbers */
    case DV_FIELD_SCALARS: return DV_FIELD_INTS;  /* three ints for each Scalar */
    case DV_FIELD_GENERATOR: return DV_FIELD_INT; /* a seed drawn from the generator */
    case DV_FIELD_COMPLEX:
    case DV_FIELD_COMPLEXES: return DV_FIELD_FLOATS;
    default: return 0;
    }
}

/* Returns the enum dv_field_type of a list type's elements; 0: the type is not a list. */
static uint8_t field_get_element_type(uint8_t type)
{
    const dv_field_row *row = dv_field_at(type);
    return row->form == DV_FORM_LIST ? (uint8_t)row->of : 0;
}

static void *cell_to_handle(uint64_t cell) { return (void *)(uintptr_t)cell; }
static uint64_t handle_to_cell(const void *handle) { return (uint64_t)(uintptr_t)handle; }

/* ---- release ------------------------------------------------------------------------------------------------------------- */

/* Releases what one stack cell owns: a tensor, string, generator, list or optional, with everything inside. A number owns
 * nothing. */
static void cell_release(const struct dv__torch_shims *t, uint8_t type, bool optional, bool element_optional, uint64_t cell)
{
    if (optional) {
        if (!cell)
            return;
        uint64_t *box = cell_to_handle(cell);
        cell_release(t, type, false, element_optional, *box);
        if (t->torch_delete_stable_ivalue)
            t->torch_delete_stable_ivalue(box);
        else
            t->operator_delete(box);
        return;
    }
    if (type == DV_FIELD_TENSOR) {
        t->aoti_torch_delete_tensor_object(cell_to_handle(cell));
        return;
    }
    if (type == DV_FIELD_STRING) {
        t->torch_delete_string(cell_to_handle(cell));
        return;
    }
    if (type == DV_FIELD_GENERATOR) {
        t->torch_delete_generator(cell_to_handle(cell));
        return;
    }
    const uint8_t element = field_get_element_type(type);
    if (!element)
        return;
    if (element_optional || element == DV_FIELD_TENSOR || element == DV_FIELD_STRING) {
        size_t n = 0;
        uint64_t item;
        t->torch_list_size(cell_to_handle(cell), &n);
        for (size_t i = 0; i < n; i++)
            if (!t->torch_list_get_item(cell_to_handle(cell), i, &item))
                cell_release(t, element, element_optional, false, item);
    }
    t->torch_delete_list(cell_to_handle(cell));
}

void dv__torch_release_cell(const struct dv__torch_op *op, size_t slot_index, uint64_t cell)
{
    const struct dv__torch_slot *s = &op->slots[slot_index];
    cell_release(op->t, s->field, s->info.flags & DV_SLOT_OPTIONAL, s->info.flags & DV_SLOT_ELEMENT_OPTIONAL, cell);
}

void dv__torch_release_arguments(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs)
{
    for (size_t i = 0; i < nargs; i++)
        dv__torch_release_cell(op, i, stack[i]);
}

/* Releases the arguments on the stack, unless they were released before. */
static void call_release_arguments(struct dv__torch_call *c)
{
    if (c->stack)
        dv__torch_release_arguments(c->op, c->stack, c->nargs);
    c->stack = NULL;
}

static void *tensor_get_handle(const dv_tensor *t) { return ((const struct dv__torch_tensor *)(const void *)t)->handle; }

/* Frees the array of a list that dv_call() returned, and the list's tensors from index `first_owned` on. torch owns the tensors
 * before it. */
static void call_free_result_list(struct dv__torch_call *c, const dv_tensors *list, size_t first_owned)
{
    for (size_t k = first_owned; k < list->size; k++)
        c->t->aoti_torch_delete_tensor_object(tensor_get_handle(list->data[k]));
    dv_free((void *)(uintptr_t)(const void *)list->data);
}

/* Frees the results that still wait to be copied to the tensors of out=. */
static void call_release_temporary_results(struct dv__torch_call *c)
{
    while (c->ntemporary_results) {
        const dv_value *v = &c->temporary_results[--c->ntemporary_results];
        if (v->type == DV_VALUE_TENSORS)
            call_free_result_list(c, &v->as.tensors, 0);
        else
            c->t->aoti_torch_delete_tensor_object(tensor_get_handle(v->as.tensor));
    }
}

void dv__torch_call_free_memory(struct dv__torch_call *c)
{
    if (c->device_guard)
        c->t->aoti_torch_delete_device_guard(c->device_guard);
    while (c->blocks) {
        struct dv__torch_block *b = c->blocks;
        c->blocks = b->next;
        free(b);
    }
}

/* Ends a call of torch's dispatcher, also a failed one: releases results, arguments on the stack, device guard and memory. */
static void call_release_all(struct dv__torch_call *c)
{
    call_release_temporary_results(c);
    call_release_arguments(c);
    dv__torch_call_free_memory(c);
}

/* ---- arguments ----------------------------------------------------------------------------------------------------------- */

/* Sets the error "operator: argument 'x': libtorch: ..." with libtorch's last message. Returns DV_EHOST. */
static int call_fail_with_libtorch_error(const struct dv__torch_call *c, const struct dv__torch_slot *s)
{
    return dv_fail(DV_EHOST, "%s: argument '%s': libtorch: %s", c->op->name, s->info.name, dv__torch_get_last_error(c->t));
}

/* True if torch can and must run the decomposition: the tensor is on an accelerator for which the operator has no kernels. */
static bool call_tensor_needs_decomposition(const struct dv__torch_call *c, void *handle)
{
    int32_t n;
    if (!(c->host.flags & DV_HOST_RUNS_NATIVE) || c->t->aoti_torch_get_device_type(handle, &n))
        return false;
    const int32_t type = dv__torch_find_device_type_by_number(c->t, n);
    return type != DV_CPU && type != DV_META && !(type && dv_operator_has_kernels(c->op->op, type));
}

int dv__torch_describe_tensor(
    struct dv__torch_call *c, struct dv__torch_tensor *x, bool is_written, const struct dv__torch_slot *slot_for_message)
{
    const struct dv__torch_shims *t = c->t;
    if (dv__torch_try_read_tensor(x->handle, &x->t))
        return DV_OK;
    if (call_tensor_needs_decomposition(c, x->handle))
        return c->needs_decomposition = true, DV_OK;
    int64_t ndim, *sizes, *strides;
    int32_t dtype, device, index;
    if (t->aoti_torch_get_dim(x->handle, &ndim) || t->aoti_torch_get_sizes(x->handle, &sizes) ||
        t->aoti_torch_get_strides(x->handle, &strides) || t->aoti_torch_get_dtype(x->handle, &dtype) ||
        t->aoti_torch_get_device_type(x->handle, &device))
        return call_fail_with_libtorch_error(c, slot_for_message);
    x->t.ndim = (int32_t)ndim;
    x->t.shape = sizes;
    x->t.strides = strides;
    x->t.byte_offset = 0;
    if (!dv__torch_try_find_dtype_by_number(t, dtype, &x->t.dtype))
        return dv_fail(DV_EDTYPE, "%s: argument '%s': torch's dtype number %d has no counterpart here", c->op->name,
            slot_for_message->info.name, (int)dtype);
    x->t.device.type = dv__torch_find_device_type_by_number(t, device);
    x->t.device.id = 0;
    if (!x->t.device.type)
        return dv_fail(DV_EDEVICE, "%s: argument '%s': torch's device number %d has no counterpart here", c->op->name,
            slot_for_message->info.name, (int)device);
    if (x->t.device.type != DV_CPU) {
        if (t->aoti_torch_get_device_index(x->handle, &index))
            return call_fail_with_libtorch_error(c, slot_for_message);
        x->t.device.id = index < 0 ? 0 : index;
    }
    x->t.data = NULL;
    if (x->t.device.type != DV_CPU && x->t.device.type != DV_META && !c->device_guard && t->aoti_torch_create_device_guard &&
        t->aoti_torch_create_device_guard(x->t.device.id, &c->device_guard))
        return call_fail_with_libtorch_error(c, slot_for_message);
    if (x->t.device.type == DV_META)
        return DV_OK; /* a meta tensor has no memory; mixed devices are reported by the contract later */
    /* A lazy copy (copy on write) must be materialised by a call that writes, and not by one that only reads. */
    const void *data = NULL;
    const int32_t failed = is_written ? t->torch_get_mutable_data_ptr(x->handle, &x->t.data)
                                      : t->torch_get_const_data_ptr(x->handle, &data);
    if (failed)
        return call_fail_with_libtorch_error(c, slot_for_message);
    if (!is_written)
        memcpy(&x->t.data, &data, sizeof data);
    return DV_OK;
}

/* Converts the tensor in a cell to v. An undefined tensor becomes None for an optional argument, and else fails. Returns a
 * status. */
static int call_decode_tensor(struct dv__torch_call *c, const struct dv__torch_slot *s, bool optional, uint64_t cell, dv_value *v)
{
    bool defined = false;
    if (c->t->aoti_torch_is_defined(cell_to_handle(cell), &defined))
        return call_fail_with_libtorch_error(c, s);
    if (!defined) {
        if (!optional)
            return dv_fail(DV_ETYPE, "%s: argument '%s': expected a tensor, found None", c->op->name, s->info.name);
        v->type = DV_VALUE_NONE;
        return DV_OK;
    }
    struct dv__torch_tensor *x = call_alloc(c, sizeof *x);
    if (!x)
        return DV_ENOMEM;
    x->handle = cell_to_handle(cell);
    v->type = DV_VALUE_TENSOR;
    v->as.tensor = &x->t;
    return dv__torch_describe_tensor(c, x, s->info.flags & DV_SLOT_WRITES, s);
}

static int call_decode_cell(
    struct dv__torch_call *c, const struct dv__torch_slot *s, uint8_t field, bool optional, uint64_t cell, dv_value *v);

/* Converts the list in a cell to v, with its elements in memory of the call. Returns a status. */
static int call_decode_list(struct dv__torch_call *c, const struct dv__torch_slot *s, uint8_t field, uint64_t cell, dv_value *v)
{
    size_t n;
    if (c->t->torch_list_size(cell_to_handle(cell), &n))
        return call_fail_with_libtorch_error(c, s);
    const dv_field_row *row = dv_field_at(field), *element = dv_field_at(row->of);
    if (row->form != DV_FORM_LIST) /* refused at load */
        return dv_fail(DV_EHOST, "%s: argument '%s': unexpected type", c->op->name, s->info.name);
    char *data = call_alloc(c, n * element->size);
    if (!data)
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        dv_value e = dv_none();
        uint64_t item;
        if (c->t->torch_list_get_item(cell_to_handle(cell), i, &item))
            return call_fail_with_libtorch_error(c, s);
        const int status = call_decode_cell(c, s, (uint8_t)element->type, s->info.flags & DV_SLOT_ELEMENT_OPTIONAL, item, &e);
        if (status)
            return status;
        memcpy(data + i * element->size, &e.as, element->size);
    }
    v->type = row->value;
    v->as.ints.data = (const int64_t *)(const void *)data; /* all list types of dv_value have this form: a pointer and a size */
    v->as.ints.size = n;
    return DV_OK;
}

/* Converts torch's number of a memory format to v. Returns DV_ETYPE for an unknown number. */
static int call_decode_memory_format(struct dv__torch_call *c, const struct dv__torch_slot *s, int32_t torch_number, dv_value *v)
{
    const int32_t numbers[] = { c->t->contiguous_format, c->t->preserve_format, c->t->channels_last, c->t->channels_last_3d };
    for (int32_t i = 0; i < 4; i++)
        if (numbers[i] == torch_number) {
            v->type = DV_VALUE_MEMORY_FORMAT;
            v->as.memory_format.value = i;
            return DV_OK;
        }
    return dv_fail(DV_ETYPE, "%s: argument '%s': torch's memory format number %d has no counterpart here", c->op->name,
        s->info.name, (int)torch_number);
}

/* The struct behind a kernel's dv_generator in this host. */
struct call_generator {
    void *handle;  /* torch's generator; NULL in a call of a packed operator */
    uint64_t seed; /* in a call of a packed operator: a seed drawn in Python */
    _Atomic uint64_t used;
};

/* Sets v to a new generator of this call, which draws from torch's `handle`; handle NULL: the generator starts with `seed`.
 * Returns a status. */
static int call_make_generator_value(struct dv__torch_call *c, void *handle, uint64_t seed, dv_value *v)
{
    struct call_generator *g = call_alloc(c, sizeof *g);
    if (!g)
        return DV_ENOMEM;
    g->handle = handle;
    g->seed = seed;
    atomic_init(&g->used, 0);
    v->type = DV_VALUE_GENERATOR;
    v->as.generator = (const dv_generator *)(const void *)g;
    return DV_OK;
}

/* Returns the Scalar that a packed operator passes as three ints: its kind, and the bits of one number or of a complex pair. */
static dv_scalar scalar_from_three_ints(const int64_t *ints)
{
    dv_scalar s = { .kind = (uint32_t)ints[0] };
    switch ((enum dv_scalar_kind)ints[0]) {
    case DV_SCALAR_INT: s.as.i = ints[1]; break;
    case DV_SCALAR_BOOL: s.as.b = ints[1] != 0; break;
    case DV_SCALAR_FLOAT: memcpy(&s.as.f, &ints[1], sizeof s.as.f); break;
    case DV_SCALAR_COMPLEX: memcpy(&s.as.c, &ints[1], sizeof s.as.c); break;
    }
    return s;
}

/* Converts an argument of a packed operator in place: v, one number or a list of numbers, becomes the Scalar, complex number or
 * generator that it encodes. None stays None. Returns a status. */
static int call_unpack_argument(struct dv__torch_call *c, const struct dv__torch_slot *s, dv_value *v)
{
    const dv_ints n = v->as.ints;
    const dv_floats f = v->as.floats;
    const size_t each = s->info.type == DV_FIELD_SCALAR || s->info.type == DV_FIELD_SCALARS ? 3 : 2;
    const bool one = s->info.type != DV_FIELD_SCALARS && s->info.type != DV_FIELD_COMPLEXES;
    if (v->type == DV_VALUE_NONE)
        return DV_OK;
    if (s->info.type == DV_FIELD_GENERATOR)
        return call_make_generator_value(c, NULL, (uint64_t)v->as.i, v);
    if (one ? n.size != each : n.size % each != 0)
        return dv_fail(
            DV_ETYPE, "%s: argument '%s': %zu numbers do not encode a value of its type", c->op->name, s->info.name, n.size);
    switch (s->info.type) {
    case DV_FIELD_SCALAR: *v = dv_from_scalar(scalar_from_three_ints(n.data)); return DV_OK;
    case DV_FIELD_COMPLEX:
        v->type = DV_VALUE_COMPLEX;
        v->as.c = (dv_complex){ f.data[0], f.data[1] };
        return DV_OK;
    case DV_FIELD_COMPLEXES: /* pairs already */
        v->type = DV_VALUE_COMPLEXES;
        v->as.complexes = (dv_complexes){ (const dv_complex *)(const void *)f.data, f.size / each };
        return DV_OK;
    default: break;
    }
    dv_scalar *scalars = call_alloc(c, n.size / each * sizeof *scalars);
    if (!scalars)
        return DV_ENOMEM;
    for (size_t i = 0; i < n.size / each; i++)
        scalars[i] = scalar_from_three_ints(n.data + each * i);
    v->type = DV_VALUE_SCALARS;
    v->as.scalars = (dv_scalars){ scalars, n.size / each };
    return DV_OK;
}

/* Converts a stack cell of a type to v, which the caller has zeroed. optional: the cell is a pointer to another cell, or NULL for
 * None. Returns a status. */
static int call_decode_cell(
    struct dv__torch_call *c, const struct dv__torch_slot *s, uint8_t field, bool optional, uint64_t cell, dv_value *v)
{
    if (optional) {
        v->type = DV_VALUE_NONE;
        if (!cell)
            return DV_OK;
        cell = *(uint64_t *)cell_to_handle(cell);
    }
    switch (field) {
    case DV_FIELD_TENSOR: return call_decode_tensor(c, s, optional, cell, v);
    case DV_FIELD_INT:
        v->type = DV_VALUE_INT;
        v->as.i = (int64_t)cell;
        return DV_OK;
    case DV_FIELD_FLOAT:
        v->type = DV_VALUE_FLOAT;
        memcpy(&v->as.f, &cell, sizeof cell);
        return DV_OK;
    case DV_FIELD_BOOL:
        v->type = DV_VALUE_BOOL;
        v->as.b = (cell & 255) != 0;
        return DV_OK;
    case DV_FIELD_STRING:
        v->type = DV_VALUE_STRING;
        if (c->t->torch_string_c_str(cell_to_handle(cell), &v->as.s.data) ||
            c->t->torch_string_length(cell_to_handle(cell), &v->as.s.size))
            return call_fail_with_libtorch_error(c, s);
        return DV_OK;
    case DV_FIELD_DTYPE:
        v->type = DV_VALUE_DTYPE;
        if (!dv__torch_try_find_dtype_by_number(c->t, (int32_t)cell, &v->as.dtype))
            return dv_fail(DV_EDTYPE, "%s: argument '%s': torch's dtype number %d has no counterpart here", c->op->name,
                s->info.name, (int)cell);
        return DV_OK;
    case DV_FIELD_DEVICE: /* index in the low half (-1: the current one), type in the high half */
        v->type = DV_VALUE_DEVICE;
        v->as.device.type = dv__torch_find_device_type_by_number(c->t, (int32_t)(cell >> 32));
        v->as.device.id = (int32_t)(uint32_t)cell < 0 ? 0 : (int32_t)(uint32_t)cell;
        if (!v->as.device.type)
            return dv_fail(DV_EDEVICE, "%s: argument '%s': torch's device number %d has no counterpart here", c->op->name,
                s->info.name, (int)(cell >> 32));
        return DV_OK;
    case DV_FIELD_LAYOUT: /* dv_layout has torch's numbers, also in the schema's defaults */
        v->type = DV_VALUE_LAYOUT;
        v->as.layout.value = (int32_t)cell;
        return DV_OK;
    case DV_FIELD_MEMORY_FORMAT: return call_decode_memory_format(c, s, (int32_t)cell, v);
    case DV_FIELD_GENERATOR: return call_make_generator_value(c, cell_to_handle(cell), 0, v);
    default: return call_decode_list(c, s, field, cell, v);
    }
}

/* Converts the stack cell of one argument to v; an argument of a packed operator is unpacked too. Returns a status. */
static int call_decode_argument(struct dv__torch_call *c, const struct dv__torch_slot *s, uint64_t cell, dv_value *v)
{
    const int status = call_decode_cell(c, s, s->field, s->info.flags & DV_SLOT_OPTIONAL, cell, v);
    return status || s->field == s->info.type ? status : call_unpack_argument(c, s, v);
}

/* ---- the dv_host that dv_call() uses ------------------------------------------------------------------------------------- */

/* Returns the call that holds this dv_host. */
static struct dv__torch_call *call_from_host(const dv_host *host)
{
    struct dv__torch_call *c;
    memcpy(&c, &host, sizeof c); /* the host is the first member of the call, which is not const */
    return c;
}

/* Makes a dv_tensor from a new handle, for the result with this index or for a temporary (-1). Takes ownership of the handle, and
 * releases it after a failure. Returns a status. */
static int call_adopt_handle(struct dv__torch_call *c, void *take_handle, int result_index, dv_tensor **out)
{
    static const struct dv__torch_slot temporary = { .info.name = "a temporary" };
    struct dv__torch_tensor *x = call_alloc(c, sizeof *x);
    int status = DV_ENOMEM;
    if (x) {
        x->handle = take_handle;
        status = dv__torch_describe_tensor(
            c, x, true, result_index < 0 ? &temporary : &c->op->slots[c->op->nargs + (size_t)result_index]);
    }
    if (status)
        c->t->aoti_torch_delete_tensor_object(take_handle);
    else
        *out = &x->t;
    return status;
}

/* dv_host.new_tensor: makes an uninitialised torch tensor for the result with this index, or for a temporary (-1). Returns a
 * status. */
static int call_new_tensor(const dv_host *host, int result_index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    struct dv__torch_call *c = call_from_host(host);
    const struct dv__torch_shims *t = c->t;
    void *handle;
    *out = NULL;
    const int32_t number = dv__torch_get_dtype_number(t, dtype), type = dv__torch_get_device_type_number(t, device.type);
    if (number < 0)
        return dv_fail(DV_EDTYPE, "%s: torch has no dtype %s", c->op->name, dv_dtype_name(dtype));
    if (type < 0)
        return dv_fail(DV_EDEVICE, "%s: torch has no device %s", c->op->name, dv_device_name(device.type));
    if (t->aoti_torch_empty_strided(ndim, shape, strides, number, type, device.type == DV_CPU ? 0 : device.id, &handle))
        return dv_fail(DV_EHOST, "%s: libtorch could not make a tensor: %s", c->op->name, dv__torch_get_last_error(t));
    return call_adopt_handle(c, handle, result_index, out);
}

/* dv_host.new_view: makes a view of base, which is an argument or a tensor that this call made. Returns a status. */
static int call_new_view(const dv_host *host, int result_index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    struct dv__torch_call *c = call_from_host(host);
    void *handle;
    *out = NULL;
    if (c->t->aoti_torch__reinterpret_tensor(
            ((const struct dv__torch_tensor *)(const void *)base)->handle, ndim, shape, strides, offset, &handle))
        return dv_fail(DV_EHOST, "%s: libtorch could not make a view: %s", c->op->name, dv__torch_get_last_error(c->t));
    return call_adopt_handle(c, handle, result_index, out);
}

/* dv_host.free_tensor: deletes a tensor that call_new_tensor() or call_new_view() made. */
static void call_free_tensor(const dv_host *host, dv_tensor *t)
{
    struct dv__torch_tensor *x = (struct dv__torch_tensor *)(void *)t;
    call_from_host(host)->t->aoti_torch_delete_tensor_object(x->handle);
}

/* Makes a torch tensor over the memory of a dv_tensor, which keeps owning the memory. The caller deletes the handle. Returns 0;
 * not 0: libtorch has failed. */
static int call_make_borrowed_handle(const struct dv__torch_shims *t, const dv_tensor *x, void **handle_out)
{
    return t->aoti_torch_create_tensor_from_blob(x->data, x->ndim, x->shape, x->strides, 0,
        dv__torch_get_dtype_number(t, x->dtype), dv__torch_get_device_type_number(t, x->device.type), x->device.id, handle_out);
}

/* dv_host.copy_tensor: copies the elements of `from` to `to` by torch, also between devices. Returns a status. */
static int call_copy_tensor(const dv_host *host, const dv_tensor *to, const dv_tensor *from)
{
    const struct dv__torch_call *c = call_from_host(host);
    void *a = NULL, *b = NULL;
    int status = DV_OK;
    if (call_make_borrowed_handle(c->t, to, &a) || call_make_borrowed_handle(c->t, from, &b) || c->t->aoti_torch_copy_(a, b, 0))
        status = dv_fail(DV_EHOST, "%s: libtorch could not copy a tensor: %s", c->op->name, dv__torch_get_last_error(c->t));
    if (b)
        c->t->aoti_torch_delete_tensor_object(b);
    if (a)
        c->t->aoti_torch_delete_tensor_object(a);
    return status;
}

/* A range that is cut into chunks. The chunks depend on the grain alone, so that results do not depend on the number of
 * threads. torch would assign chunks to threads in advance. Instead each of torch's threads takes the next chunk, so that none
 * waits for a thread with long chunks. */
struct chunks {
    int64_t begin, end, grain, n;
    dv_range_fn fn;
    void *arg;
    atomic_int_fast64_t next; /* index of the first chunk that no thread has taken */
    atomic_int status;
};

/* Runs chunks on one of torch's threads until none is left or some chunk has failed. The range that torch assigns is ignored. */
static void chunks_run_on_thread(int64_t first, int64_t last, void *arg)
{
    struct chunks *p = arg;
    (void)first, (void)last;
    while (!atomic_load_explicit(&p->status, memory_order_relaxed)) {
        const int64_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->n)
            return;
        const int64_t begin = p->begin + i * p->grain;
        const int64_t end = p->end - begin > p->grain ? begin + p->grain : p->end;
        int none = DV_OK;
        const int status = p->fn(p->arg, begin, end);
        if (status)
            atomic_compare_exchange_strong(&p->status, &none, status);
    }
}

/* dv_host.parallel_for: runs fn on chunks of at most `grain` elements, on torch's threads. Returns the status of the first chunk
 * that failed. */
static int call_parallel_for(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    const struct dv__torch_call *c = call_from_host(host);
    if (begin >= end)
        return DV_OK;
    const int64_t each = grain < 1 ? 1 : grain;
    struct chunks p = { begin, end, each, (end - begin - 1) / each + 1, fn, arg, 0, DV_OK };
    if (p.n == 1)
        return fn(arg, begin, end);
    if (c->t->torch_parallel_for(0, p.n, 1, chunks_run_on_thread, &p))
        return dv_fail(DV_EHOST, "%s: torch's threads failed: %s", c->op->name, dv__torch_get_last_error(c->t));
    return atomic_load(&p.status);
}

/* Finds the current stream of a PrivateUse1 backend, in the backend's own type. *out: NULL if the backend has no streams.
 * Returns a status. */
static int call_get_accelerator_stream(const struct dv__torch_call *c, int32_t device_index, void **stream_out)
{
    void *current = NULL;
    if (!c->t->aoti_torch_get_current_stream || !c->t->torch_stream_native_handle || !c->t->aoti_torch_delete_stream)
        return DV_OK;
    if (c->t->aoti_torch_get_current_stream(device_index, &current))
        return dv_fail(DV_EHOST, "%s: no current stream: %s", c->op->name, dv__torch_get_last_error(c->t));
    if (c->t->torch_stream_native_handle(current, stream_out))
        *stream_out = NULL;
    c->t->aoti_torch_delete_stream(current);
    return DV_OK;
}

/* dv_host.stream: finds the current stream of a CUDA or NPU device. *stream_out: NULL for other devices or without streams.
 * Returns a status. */
static int call_get_stream(const dv_host *host, dv_device device, void **stream_out)
{
    const struct dv__torch_call *c = call_from_host(host);
    *stream_out = NULL;
    if (device.type == DV_NPU)
        return call_get_accelerator_stream(c, device.id, stream_out);
    if (device.type != DV_CUDA || !c->t->current_cuda_stream)
        return DV_OK;
    if (c->t->current_cuda_stream(device.id, stream_out))
        return dv_fail(DV_EHOST, "%s: no current stream: %s", c->op->name, dv__torch_get_last_error(c->t));
    return DV_OK;
}

/* Draws a seed from a generator of torch, so that torch.manual_seed() has effect. generator NULL, or without a handle: the CPU's
 * default generator. A draw on an accelerator synchronises, which torch refuses while a graph is captured. Returns a status. */
static int call_draw_seed(const struct dv__torch_call *c, const struct call_generator *generator, uint64_t *seed_out)
{
    const struct dv__torch_shims *t = c->t;
    const int64_t one = 1;
    int32_t device = t->cpu, index = 0, dtype = dv__torch_get_dtype_number(t, dv_dtype_from_key(DV_DTYPE_i64)), failed;
    void *drawn = NULL, *cpu_tensor = NULL, *data = NULL, *handle = generator ? generator->handle : NULL;
    if (handle && t->torch_generator_get_device(handle, &device, &index))
        return dv_fail(DV_EHOST, "%s: libtorch: %s", c->op->name, dv__torch_get_last_error(t));
    if (device == t->cpu)
        failed = handle ? t->aoti_torch_cpu_randint_generator(INT64_MAX, &one, 1, &handle, &dtype, NULL, NULL, 0, NULL, &drawn)
                        : t->aoti_torch_cpu_randint(INT64_MAX, &one, 1, &dtype, NULL, NULL, 0, NULL, &drawn);
    else if (device == t->cuda && t->cuda_randint_generator)
        failed = t->cuda_randint_generator(INT64_MAX, &one, 1, &handle, &dtype, NULL, &device, index, NULL, &drawn);
    else
        return dv_fail(DV_EDEVICE, "%s: a generator of torch's device number %d cannot be drawn from", c->op->name, (int)device);
    if (!failed && device == t->cpu)
        cpu_tensor = drawn;
    else if (!failed)
        failed = t->aoti_torch_empty_strided(1, &one, &one, dtype, t->cpu, 0, &cpu_tensor) ||
            t->aoti_torch_copy_(cpu_tensor, drawn, 0);
    if (!failed && !(failed = t->torch_get_mutable_data_ptr(cpu_tensor, &data)))
        memcpy(seed_out, data, sizeof *seed_out);
    if (cpu_tensor && cpu_tensor != drawn)
        t->aoti_torch_delete_tensor_object(cpu_tensor);
    if (drawn)
        t->aoti_torch_delete_tensor_object(drawn);
    return failed ? dv_fail(DV_EHOST, "%s: no random number from torch: %s", c->op->name, dv__torch_get_last_error(t)) : DV_OK;
}

/* True if the call is captured in a CUDA graph. A seed is a number on the host, so every replay of the graph would use one
 * seed. c->device_guard is set if a tensor of the call is on an accelerator; work on the CPU is never captured. */
static bool call_is_captured_in_graph(const struct dv__torch_call *c)
{
    void *current;
    int status = 0;
    if (!c->device_guard || !c->t->current_cuda_stream || !c->t->stream_is_capturing || c->t->current_cuda_stream(-1, &current))
        return false;
    return !c->t->stream_is_capturing(current, &status) && status;
}

/* dv_host.random: gives a seed and an offset for `count` random numbers. A torch generator gives a new seed and offset 0; the
 * generator of a packed operator keeps its seed and counts the offset. Returns a status. */
static int call_draw_random(const dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    struct call_generator *g = (struct call_generator *)(uintptr_t)(const void *)generator;
    *offset = 0;
    if (call_is_captured_in_graph(call_from_host(host)))
        return dv_fail(DV_ENOTSUP,
            "%s: dv_random: a CUDA graph is being captured, and every replay would have the same random numbers: "
            "call the operator outside of the graph, or give it the numbers as a tensor",
            call_from_host(host)->op->name);
    if (!g || g->handle)
        return call_draw_seed(call_from_host(host), g, seed);
    *seed = g->seed;
    *offset = atomic_fetch_add(&g->used, count);
    return DV_OK;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

/* True if the value v of result s is a new tensor: not the argument that the result aliases, nor a tensor passed as out=. */
static bool call_is_new_result(
    const struct dv__torch_call *c, const struct dv__torch_slot *s, const dv_value *args, const dv_value *v)
{
    const size_t slot = (size_t)(s - c->op->slots),
                 argument = c->nargs > c->op->nargs ? slot
        : s->info.alias < 0                         ? SIZE_MAX
                                                    : (size_t)s->info.alias;
    return v->type == DV_VALUE_TENSOR && (argument == SIZE_MAX || v->as.tensor != args[argument].as.tensor);
}

/* Stores a handle of a tensor result in a cell: the handle of a new tensor, a further handle of an argument, or an undefined
 * tensor for an absent result. Returns a status. */
static int call_encode_tensor(
    struct dv__torch_call *c, const struct dv__torch_slot *s, const dv_value *args, const dv_value *v, uint64_t *cell)
{
    void *handle = NULL;
    if (v->type != DV_VALUE_TENSOR) { /* the result is absent with these arguments; in Python it is None */
        if (c->t->aoti_torch_new_uninitialized_tensor(&handle))
            return dv_fail(DV_EHOST, "%s: libtorch: %s", c->op->name, dv__torch_get_last_error(c->t));
    } else if (call_is_new_result(c, s, args, v))
        handle = tensor_get_handle(v->as.tensor);
    else if (c->t->aoti_torch_new_tensor_handle(tensor_get_handle(v->as.tensor), &handle))
        return dv_fail(DV_EHOST, "%s: libtorch: %s", c->op->name, dv__torch_get_last_error(c->t));
    *cell = handle_to_cell(handle);
    return DV_OK;
}

/* Stores a torch list of the result's tensors in a cell. The list takes the handles; the result's array is freed, also after a
 * failure. Returns a status. */
static int call_encode_list(struct dv__torch_call *c, const dv_tensors *result, uint64_t *cell)
{
    void *list = NULL;
    size_t k = 0;
    int failed = c->t->torch_new_list_reserve_size(result->size, &list);
    for (; k < result->size && !failed; k++)
        failed = c->t->torch_list_push_back(list, handle_to_cell(tensor_get_handle(result->data[k])));
    if (failed) {
        if (list)
            cell_release(c->t, DV_FIELD_TENSORS, false, false, handle_to_cell(list));
        call_free_result_list(c, result, k ? k - 1 : 0);
        return dv_fail(DV_EHOST, "%s: libtorch could not make a list: %s", c->op->name, dv__torch_get_last_error(c->t));
    }
    call_free_result_list(c, result, result->size);
    *cell = handle_to_cell(list);
    return DV_OK;
}

int dv__torch_box_optional(const struct dv__torch_op *op, uint64_t *cell)
{
    uint64_t *b = NULL;
    if (op->t->torch_new_stable_ivalue ? op->t->torch_new_stable_ivalue(&b) : (b = op->t->operator_new(sizeof *b), 0))
        return dv_fail(DV_ENOMEM, "%s: out of memory", op->name);
    *b = *cell;
    *cell = handle_to_cell(b);
    return DV_OK;
}

/* Stores one result in a cell, as its type on the stack requires. Returns a status; after a failure the cell owns nothing. */
static int call_encode_result(
    struct dv__torch_call *c, const struct dv__torch_slot *s, const dv_value *args, const dv_value *v, uint64_t *cell)
{
    int status = DV_OK;
    *cell = 0;
    if ((s->info.flags & DV_SLOT_OPTIONAL) && (v->type == DV_VALUE_NONE || v->type == DV_VALUE_DEFAULT))
        return DV_OK;
    switch (s->field) {
    case DV_FIELD_TENSOR: status = call_encode_tensor(c, s, args, v, cell); break;
    case DV_FIELD_TENSORS: status = call_encode_list(c, &v->as.tensors, cell); break;
    case DV_FIELD_INT: *cell = (uint64_t)v->as.i; break;
    case DV_FIELD_FLOAT: memcpy(cell, &v->as.f, sizeof *cell); break;
    case DV_FIELD_BOOL: *cell = v->as.b; break;
    default: break; /* refused at load */
    }
    return !status && (s->info.flags & DV_SLOT_OPTIONAL) ? dv__torch_box_optional(c->op, cell) : status;
}

/* Encodes all results into stack cells. After a failure no cell holds a result, and the new tensors are freed. Returns a
 * status. */
static int call_encode_results(struct dv__torch_call *c, const dv_value *args, const dv_value *results, uint64_t *cells)
{
    const struct dv__torch_slot *s = c->op->slots + c->op->nargs;
    size_t i;
    int status = DV_OK;
    for (i = 0; i < c->op->nresults; i++)
        if ((status = call_encode_result(c, &s[i], args, &results[i], &cells[i])))
            break;
    if (!status)
        return DV_OK;
    for (size_t j = 0; j < c->op->nresults; j++)
        if (j < i)
            dv__torch_release_cell(c->op, c->op->nargs + j, cells[j]);
        else if (call_is_new_result(c, &s[j], args, &results[j]))
            c->t->aoti_torch_delete_tensor_object(tensor_get_handle(results[j].as.tensor));
        else if (j > i && results[j].type == DV_VALUE_TENSORS)
            call_free_result_list(c, &results[j].as.tensors, 0);
    return status;
}

/* ---- the call ------------------------------------------------------------------------------------------------------------ */

/* Sets *tensors to the array of a value's tensors, and returns their number: 1 for a tensor, 0 for a value of another type. */
static size_t value_get_tensors_and_count(const dv_value *v, const dv_tensor *const **tensors)
{
    *tensors = v->type == DV_VALUE_TENSORS ? v->as.tensors.data : &v->as.tensor;
    return v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR ? 1 : 0;
}

/* Returns DV_EINVAL, with torch's message, if a gradient is enabled and some tensor requires one: an out= overload has no kernel
 * on the Autograd keys. */
static int out_fail_if_gradient_wanted(const struct dv__torch_call *c, const dv_value *args)
{
    const dv_tensor *const *all;
    if (!c->t->requires_grad || !c->t->aoti_torch_grad_mode_is_enabled())
        return DV_OK;
    for (size_t i = 0; i < c->nargs; i++)
        for (size_t k = 0, n = value_get_tensors_and_count(&args[i], &all); k < n; k++)
            if (all[k] && c->t->requires_grad(*(void **)tensor_get_handle(all[k])))
                return dv_fail(DV_EINVAL,
                    "%s(): functions with out=... arguments don't support automatic differentiation, but one of the "
                    "arguments requires grad.",
                    c->op->name);
    return DV_OK;
}

/* Raises the version counters of written tensors, so that a backward that saved one of them fails with an error. torch's own
 * operators raise counters on the key ADInplaceOrView, and a caller that has raised them excludes this key: then nothing is
 * done. Must be called before the kernel: bump_version throws for an inference tensor, whose data must then be unchanged. */
static void call_bump_written_versions(struct dv__torch_call *c, const dv_value *args)
{
    const struct dv__torch_op *op = c->op;
    const dv_tensor *const *all;
    if (!c->t->bump_version || (c->t->key_excluded && c->t->key_excluded(c->t->inplace_or_view_key)))
        return;
    for (size_t i = 0; i < c->nargs; i++) {
        const size_t n = (op->slots[i].info.flags & DV_SLOT_WRITES) ? value_get_tensors_and_count(&args[i], &all) : 0;
        for (size_t k = 0; k < n; k++)
            if (all[k])
                c->t->bump_version(tensor_get_handle(all[k]));
    }
}

/* Checks that a tensor of out= has the dtype and device of its result. The shape may differ. Returns a status. */
static int out_check_dtype_and_device(
    struct dv__torch_call *c, const dv_tensor *out, const dv_tensor *result, const struct dv__torch_slot *s)
{
    if (dv_dtype_key(out->dtype) != dv_dtype_key(result->dtype))
        return dv_fail(DV_EDTYPE, "%s: argument '%s': expected dtype %s, found %s", c->op->name, s->info.name,
            dv_dtype_name(result->dtype), dv_dtype_name(out->dtype));
    if (out->device.type != result->device.type || out->device.id != result->device.id)
        return dv_fail(DV_EDEVICE, "%s: argument '%s': expected a tensor on %s, found one on %s", c->op->name, s->info.name,
            dv_device_name(result->device.type), dv_device_name(out->device.type));
    return DV_OK;
}

/* Resizes a tensor of out= to the shape of its result, as torch does, with torch's warning if the tensor had elements. May
 * throw. */
static int out_resize_to_result(
    struct dv__torch_call *c, const dv_tensor *out, const dv_tensor *result, const struct dv__torch_slot *s)
{
    (void)s;
    if (c->t->resize_output)
        c->t->resize_output(tensor_get_handle(out), result->shape, (size_t)result->ndim);
    return DV_OK;
}

/* Fails if a tensor of out= overlaps an argument or another tensor of out=. Must be called before and after they are resized: a
 * storage that grows moves, for all tensors that share it. */
static int out_check_disjoint(struct dv__torch_call *c, const dv_value *args)
{
    const dv_tensor *const *all, *const *others;
    int status = DV_OK;
    for (size_t i = 0; i < c->nargs; i++)
        for (size_t k = 0, n = value_get_tensors_and_count(&args[i], &all); k < n && !status; k++)
            if (all[k])
                status = dv__torch_describe_tensor(
                    c, (struct dv__torch_tensor *)(uintptr_t)all[k], i >= c->op->nargs, &c->op->slots[i]);
    if (status)
        return status;
    for (size_t i = c->op->nargs; i < c->nargs; i++)
        for (size_t k = 0, n = value_get_tensors_and_count(&args[i], &all); k < n; k++)
            for (size_t j = 0; j <= i; j++) {
                const size_t m = value_get_tensors_and_count(&args[j], &others);
                for (size_t l = 0; l < (j < i ? m : k); l++)
                    if (all[k] && others[l] && dv_tensor_overlaps(all[k], others[l]))
                        return dv_fail(DV_EALIAS, "%s: argument '%s': would be written, but overlaps argument '%s'", c->op->name,
                            c->op->slots[i].info.name, c->op->slots[j].info.name);
            }
    return DV_OK;
}

/* Copies a result to its tensor of out=. Returns a status. */
static int out_copy_from_result(
    struct dv__torch_call *c, const dv_tensor *out, const dv_tensor *result, const struct dv__torch_slot *s)
{
    if (c->t->aoti_torch_copy_(tensor_get_handle(out), tensor_get_handle(result), 0))
        return dv_fail(DV_EHOST, "%s: argument '%s': libtorch: %s", c->op->name, s->info.name, dv__torch_get_last_error(c->t));
    return DV_OK;
}

typedef int (*out_step_fn)(
    struct dv__torch_call *c, const dv_tensor *out, const dv_tensor *result, const struct dv__torch_slot *s);
/* Calls `step` for each tensor of an out= argument with the tensor of its result. Fails if their lists differ in length. Returns
 * the first step's status that is not DV_OK. */
static int out_for_each_tensor_pair(
    struct dv__torch_call *c, const dv_value *out, const dv_value *result, const struct dv__torch_slot *s, out_step_fn step)
{
    const dv_tensor *const *outs, *const *results;
    const size_t n = value_get_tensors_and_count(out, &outs), expected = value_get_tensors_and_count(result, &results);
    if (n != expected)
        return dv_fail(DV_EINVAL, "%s: argument '%s': expected %zu tensors, found %zu", c->op->name, s->info.name, expected, n);
    int status = DV_OK;
    for (size_t i = 0; !status && i < n; i++)
        status = step(c, outs[i], results[i], s);
    return status;
}

/* Runs a call of the out= overload. If a tensor of out= has another shape than its result, all results are made first, then
 * copied. Returns a status. */
static int call_run_out_overload(struct dv__torch_call *c, dv_value *args, dv_value *results)
{
    const struct dv__torch_op *op = c->op;
    dv_value *outs = args + op->nargs;
    memcpy(results, outs, op->nresults * sizeof *results);
    int status = dv_call(op->op, args, op->nargs, results, op->nresults, &c->host);
    if (status != DV_ESHAPE)
        return status;
    memset(results, 0, op->nresults * sizeof *results);
    if ((status = dv_call(op->op, args, op->nargs, results, op->nresults, &c->host)))
        return status;
    c->temporary_results = results;
    c->ntemporary_results = op->nresults;
    static const out_step_fn steps[] = { out_check_dtype_and_device, out_resize_to_result,
        out_copy_from_result }; /* each step runs for all results before the next: nothing is written until all are checked */
    for (size_t i = 0; !status && i < 3 * op->nresults; i++) {
        const size_t r = i % op->nresults;
        if (i == op->nresults || i == 2 * op->nresults)
            status = out_check_disjoint(c, args);
        if (!status)
            status = out_for_each_tensor_pair(c, &outs[r], &results[r], &op->slots[op->nargs + r], steps[i / op->nresults]);
    }
    call_release_temporary_results(c);
    memcpy(results, outs, op->nresults * sizeof *results);
    return status;
}

/* Returns the host's flags: DETERMINISTIC by torch.use_deterministic_algorithms(), RUNS_NATIVE if torch can run the
 * decomposition. */
static uint32_t call_get_host_flags(const struct dv__torch_op *op)
{
    const struct dv__torch_shims *t = op->t;
    return (t->context && t->deterministic(t->context) ? DV_HOST_DETERMINISTIC : 0u) |
        (atomic_load_explicit(&op->decomposition, memory_order_relaxed) ? DV_HOST_RUNS_NATIVE : 0u);
}

static _Atomic(dv__torch_python_fn) into_python;

void dv__torch_set_python_fn(dv__torch_python_fn fn) { atomic_store(&into_python, fn); }

dv__torch_python_fn dv__torch_get_python_fn(void) { return atomic_load(&into_python); }

void dv__torch_call_begin(struct dv__torch_call *c, const struct dv__torch_op *op, char *buffer, size_t buffer_size)
{
    c->host = (dv_host){ .size = sizeof(dv_host),
        .flags = DV_HOST_NO_DISPATCH | call_get_host_flags(op),
        .name = "torch",
        .new_tensor = call_new_tensor,
        .free_tensor = call_free_tensor,
        .copy_tensor = call_copy_tensor,
        .parallel_for = call_parallel_for,
        .stream = call_get_stream,
        .random = call_draw_random,
        .new_view = call_new_view };
    c->t = op->t;
    c->op = op;
    c->stack = NULL;
    c->nargs = op->nargs;
    c->ntemporary_results = 0;
    c->needs_decomposition = false;
    c->device_guard = NULL;
    c->next_free = buffer;
    c->end = buffer + buffer_size;
    c->blocks = NULL;
}

/* Runs one call of torch's dispatcher: decodes the stack, calls the operator, and leaves the results on the stack. Returns a
 * status. After DV_ENATIVE in a process with Python the arguments stay on the stack, for the decomposition; otherwise they are
 * released. */
static int call_run(const struct dv__torch_op *op, uint64_t *stack, size_t nargs)
{
    __attribute__((cleanup(call_release_all))) struct dv__torch_call c;
    _Alignas(16) char buffer[4096];
    dv__torch_call_begin(&c, op, buffer, sizeof buffer);
    c.stack = stack;
    c.nargs = nargs;

    dv_value *args = call_alloc(&c, (nargs + op->nresults) * sizeof *args), *results = args + nargs;
    uint64_t *cells = call_alloc(&c, op->nresults * sizeof *cells);
    int status = args && cells ? DV_OK : DV_ENOMEM;
    if (!status)
        memset(args, 0, (nargs + op->nresults) * sizeof *args);
    for (size_t i = 0; !status && i < nargs; i++)
        status = call_decode_argument(&c, &op->slots[i], stack[i], &args[i]);
    const bool out = nargs > op->nargs, pushes = op->nresults && !(out && op->returns_list);
    if (!status && out)
        status = out_fail_if_gradient_wanted(&c, args);
    if (!status && (op->mutates || out))
        call_bump_written_versions(&c, args);
    if (!status && c.needs_decomposition)
        status = dv_fail(DV_ENATIVE, "%s: no kernel for this device, and its decomposition needs Python here", op->name);
    if (!status)
        status = out ? call_run_out_overload(&c, args, results)
                     : dv_call(op->op, args, op->nargs, results, op->nresults, &c.host);
    if (status == DV_ENATIVE && dv__torch_get_python_fn()) {
        c.stack = NULL; /* Python takes the arguments */
        return status;
    }
    if (!status && pushes)
        status = call_encode_results(&c, args, results, cells);
    call_release_arguments(&c);
    if (!status && pushes)
        memcpy(stack, cells, op->nresults * sizeof *cells);
    return status;
}

void dv__torch_call(const struct dv__torch_op *op, uint64_t *stack, uint64_t nargs)
{
    const int status = call_run(op, stack, nargs);
    const dv__torch_python_fn python = status == DV_ENATIVE ? dv__torch_get_python_fn() : NULL;
    if (python)
        python(op, DV__TORCH_PATH_DECOMPOSITION, stack, nargs);
    else if (status)
        op->t->aoti_torch_check(false, op->name, "dovetail", 0, dv_last_error());
}
