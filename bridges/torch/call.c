/* One call from torch: stack -> dv_value -> dv_call -> stack.
 *
 * Invariant: this code owns every handle on the stack until release_arguments() has released it; that needs only the schema, so
 * it works after a failure at any point. Nothing is owned when an exception is thrown. bump_version() may throw through this
 * code: the cleanup attribute then releases everything.
 */
#include "autograd.h"

#include <stdatomic.h>
#include <stdlib.h>

static void *take(struct dv__torch_call *c, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size > (size_t)(c->end - c->at)) {
        const size_t most = size > 4096 ? size : 4096;
        struct dv__torch_block *b = malloc(sizeof(struct dv__torch_block) + 16 + most);
        if (!b)
            return dv_fail(DV_ENOMEM, "%s: out of memory", c->op->name), NULL;
        b->next = c->blocks;
        c->blocks = b;
        c->at = (char *)b + 16;
        c->end = c->at + most;
    }
    void *p = c->at;
    c->at += size;
    return p;
}

/* ---- which types there are ----------------------------------------------------------------------------------------------- */

const char *dv__torch_cannot_carry(const struct dv__torch_shims *t, const dv_slot_info *info, bool result)
{
    const dv_field_row *row = dv_field_at(info->type);
    const dv_field_row *element = row->form == DV_FORM_LIST ? dv_field_at(row->of) : row;
    switch (element->type) {
    case DV_FIELD_TENSOR:
        return info->flags & DV_SLOT_GIVEN ? "a list of tensors cannot be made: no contract says how many there are" : NULL;
    case DV_FIELD_INT:
    case DV_FIELD_FLOAT:
    case DV_FIELD_BOOL:
        if (row == element)
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
    return result ? "only tensors and numbers can be returned" : NULL;
}

uint8_t dv__torch_packs_as(uint8_t field)
{
    switch (field) {
    case DV_FIELD_SCALAR:                         /* its kind, and the bits of one or two numbers */
    case DV_FIELD_SCALARS: return DV_FIELD_INTS;  /* three for each */
    case DV_FIELD_GENERATOR: return DV_FIELD_INT; /* a seed */
    case DV_FIELD_COMPLEX:
    case DV_FIELD_COMPLEXES: return DV_FIELD_FLOATS;
    default: return 0;
    }
}

static uint8_t element_of(uint8_t field)
{
    const dv_field_row *row = dv_field_at(field);
    return row->form == DV_FORM_LIST ? (uint8_t)row->of : 0;
}

static void *handle_of(uint64_t cell) { return (void *)(uintptr_t)cell; }
static uint64_t cell_of(const void *handle) { return (uint64_t)(uintptr_t)handle; }

/* ---- giving back --------------------------------------------------------------------------------------------------------- */

static void release(const struct dv__torch_shims *t, uint8_t field, bool optional, bool element_optional, uint64_t cell)
{
    if (optional) {
        if (!cell)
            return;
        uint64_t *box = handle_of(cell);
        release(t, field, false, element_optional, *box);
        if (t->torch_delete_stable_ivalue)
            t->torch_delete_stable_ivalue(box);
        else
            t->operator_delete(box);
        return;
    }
    if (field == DV_FIELD_TENSOR) {
        t->aoti_torch_delete_tensor_object(handle_of(cell));
        return;
    }
    if (field == DV_FIELD_STRING) {
        t->torch_delete_string(handle_of(cell));
        return;
    }
    if (field == DV_FIELD_GENERATOR) {
        t->torch_delete_generator(handle_of(cell));
        return;
    }
    const uint8_t element = element_of(field);
    if (!element)
        return;
    if (element_optional || element == DV_FIELD_TENSOR || element == DV_FIELD_STRING) {
        size_t n = 0;
        uint64_t item;
        t->torch_list_size(handle_of(cell), &n);
        for (size_t i = 0; i < n; i++)
            if (!t->torch_list_get_item(handle_of(cell), i, &item))
                release(t, element, element_optional, false, item);
    }
    t->torch_delete_list(handle_of(cell));
}

void dv__torch_release(const struct dv__torch_op *op, size_t slot, uint64_t cell)
{
    const struct dv__torch_slot *s = &op->slots[slot];
    release(op->t, s->field, s->optional, s->element_optional, cell);
}

void dv__torch_release_arguments(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs)
{
    for (size_t i = 0; i < nargs; i++)
        dv__torch_release(op, i, stack[i]);
}

static void release_arguments(struct dv__torch_call *c)
{
    if (c->stack)
        dv__torch_release_arguments(c->op, c->stack, c->nargs);
    c->stack = NULL;
}

static void *handle_of_tensor(const dv_tensor *t) { return ((const struct dv__torch_tensor *)(const void *)t)->handle; }

/* A list that dv_call made, and its tensors from begin on. */
static void free_list(struct dv__torch_call *c, const dv_tensors *list, size_t begin)
{
    for (size_t k = begin; k < list->size; k++)
        c->t->aoti_torch_delete_tensor_object(handle_of_tensor(list->data[k]));
    dv_free((void *)(uintptr_t)(const void *)list->data);
}

static void release_spare(struct dv__torch_call *c)
{
    while (c->nspare) {
        const dv_value *v = &c->spare[--c->nspare];
        if (v->type == DV_VALUE_TENSORS)
            free_list(c, &v->as.tensors, 0);
        else
            c->t->aoti_torch_delete_tensor_object(handle_of_tensor(v->as.tensor));
    }
}

void dv__torch_call_end(struct dv__torch_call *c)
{
    if (c->guard)
        c->t->aoti_torch_delete_device_guard(c->guard);
    while (c->blocks) {
        struct dv__torch_block *b = c->blocks;
        c->blocks = b->next;
        free(b);
    }
}

static void release_call(struct dv__torch_call *c)
{
    release_spare(c);
    release_arguments(c);
    dv__torch_call_end(c);
}

/* ---- arguments ----------------------------------------------------------------------------------------------------------- */

static int bad_tensor(const struct dv__torch_call *c, const struct dv__torch_slot *s)
{
    return dv_fail(DV_EHOST, "%s: argument '%s': libtorch: %s", c->op->name, s->name, dv__torch_what(c->t));
}

/* Is this tensor on a device for which the operator has no rows, while torch can run its native form there? */
static bool is_elsewhere(const struct dv__torch_call *c, void *handle)
{
    int32_t n;
    if (!(c->host.flags & DV_HOST_OWN_NATIVE) || c->t->aoti_torch_get_device_type(handle, &n))
        return false;
    const int32_t type = dv__torch_device_type_from(c->t, n);
    return type != DV_CPU && type != DV_META && !(type && dv_operator_has_rows(c->op->op, type));
}

int dv__torch_view(struct dv__torch_call *c, struct dv__torch_tensor *x, bool writes, const struct dv__torch_slot *s)
{
    const struct dv__torch_shims *t = c->t;
    if (dv__torch_read(x->handle, &x->t))
        return DV_OK;
    if (is_elsewhere(c, x->handle))
        return c->elsewhere = true, DV_OK;
    int64_t ndim, *sizes, *strides;
    int32_t dtype, device, index;
    if (t->aoti_torch_get_dim(x->handle, &ndim) || t->aoti_torch_get_sizes(x->handle, &sizes) ||
        t->aoti_torch_get_strides(x->handle, &strides) || t->aoti_torch_get_dtype(x->handle, &dtype) ||
        t->aoti_torch_get_device_type(x->handle, &device))
        return bad_tensor(c, s);
    x->t.ndim = (int32_t)ndim;
    x->t.shape = sizes;
    x->t.strides = strides;
    x->t.byte_offset = 0;
    if (!dv__torch_dtype_from(t, dtype, &x->t.dtype))
        return dv_fail(
            DV_EDTYPE, "%s: argument '%s': torch's dtype number %d has no counterpart here", c->op->name, s->name, (int)dtype);
    x->t.device.type = dv__torch_device_type_from(t, device);
    x->t.device.id = 0;
    if (!x->t.device.type)
        return dv_fail(
            DV_EDEVICE, "%s: argument '%s': torch's device number %d has no counterpart here", c->op->name, s->name, (int)device);
    if (x->t.device.type != DV_CPU) {
        if (t->aoti_torch_get_device_index(x->handle, &index))
            return bad_tensor(c, s);
        x->t.device.id = index < 0 ? 0 : index;
    }
    x->t.data = NULL;
    if (x->t.device.type != DV_CPU && x->t.device.type != DV_META && !c->guard && t->aoti_torch_create_device_guard &&
        t->aoti_torch_create_device_guard(x->t.device.id, &c->guard))
        return bad_tensor(c, s);
    if (x->t.device.type == DV_META)
        return DV_OK; /* no memory: the contract reports that devices are mixed */
    /* Reading must not materialise a lazy copy, writing must. */
    const void *data = NULL;
    const int32_t failed = writes ? t->torch_get_mutable_data_ptr(x->handle, &x->t.data)
                                  : t->torch_get_const_data_ptr(x->handle, &data);
    if (failed)
        return bad_tensor(c, s);
    if (!writes)
        memcpy(&x->t.data, &data, sizeof data);
    return DV_OK;
}

static int decode_tensor(struct dv__torch_call *c, const struct dv__torch_slot *s, bool optional, uint64_t cell, dv_value *v)
{
    bool defined = false;
    if (c->t->aoti_torch_is_defined(handle_of(cell), &defined))
        return bad_tensor(c, s);
    if (!defined) {
        if (!optional)
            return dv_fail(DV_ETYPE, "%s: argument '%s': expected a tensor, found None", c->op->name, s->name);
        v->type = DV_VALUE_NONE;
        return DV_OK;
    }
    struct dv__torch_tensor *x = take(c, sizeof *x);
    if (!x)
        return DV_ENOMEM;
    x->handle = handle_of(cell);
    v->type = DV_VALUE_TENSOR;
    v->as.tensor = &x->t;
    return dv__torch_view(c, x, s->writes, s);
}

static int decode(
    struct dv__torch_call *c, const struct dv__torch_slot *s, uint8_t field, bool optional, uint64_t cell, dv_value *v);

static int decode_list(struct dv__torch_call *c, const struct dv__torch_slot *s, uint8_t field, uint64_t cell, dv_value *v)
{
    size_t n;
    if (c->t->torch_list_size(handle_of(cell), &n))
        return bad_tensor(c, s);
    const dv_field_row *row = dv_field_at(field), *element = dv_field_at(row->of);
    if (row->form != DV_FORM_LIST) /* refused at load */
        return dv_fail(DV_EHOST, "%s: argument '%s': unexpected type", c->op->name, s->name);
    char *data = take(c, n * element->size);
    if (!data)
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        dv_value e = dv_none();
        uint64_t item;
        if (c->t->torch_list_get_item(handle_of(cell), i, &item))
            return bad_tensor(c, s);
        const int status = decode(c, s, (uint8_t)element->type, s->element_optional, item, &e);
        if (status)
            return status;
        memcpy(data + i * element->size, &e.as, element->size);
    }
    v->type = row->value;
    v->as.ints.data = (const int64_t *)(const void *)data; /* every list is a pointer and a size */
    v->as.ints.size = n;
    return DV_OK;
}

static int decode_memory_format(struct dv__torch_call *c, const struct dv__torch_slot *s, int32_t n, dv_value *v)
{
    const int32_t numbers[] = { c->t->contiguous_format, c->t->preserve_format, c->t->channels_last, c->t->channels_last_3d };
    for (int32_t i = 0; i < 4; i++)
        if (numbers[i] == n) {
            v->type = DV_VALUE_MEMORY_FORMAT;
            v->as.memory_format.value = i;
            return DV_OK;
        }
    return dv_fail(
        DV_ETYPE, "%s: argument '%s': torch's memory format number %d has no counterpart here", c->op->name, s->name, (int)n);
}

/* The struct behind a kernel's dv_generator in this host. */
struct generator {
    void *handle;  /* torch's; NULL: of a twin */
    uint64_t seed; /* a twin's, drawn in Python */
    _Atomic uint64_t used;
};

static int decode_generator(struct dv__torch_call *c, void *handle, uint64_t seed, dv_value *v)
{
    struct generator *g = take(c, sizeof *g);
    if (!g)
        return DV_ENOMEM;
    g->handle = handle;
    g->seed = seed;
    atomic_init(&g->used, 0);
    v->type = DV_VALUE_GENERATOR;
    v->as.generator = (const dv_generator *)(const void *)g;
    return DV_OK;
}

static dv_scalar unpack_scalar(const int64_t *n)
{
    dv_scalar s = { .kind = (uint32_t)n[0] };
    switch ((enum dv_scalar_kind)n[0]) {
    case DV_SCALAR_INT: s.as.i = n[1]; break;
    case DV_SCALAR_BOOL: s.as.b = n[1] != 0; break;
    case DV_SCALAR_FLOAT: memcpy(&s.as.f, &n[1], sizeof s.as.f); break;
    case DV_SCALAR_COMPLEX: memcpy(&s.as.c, &n[1], sizeof s.as.c); break;
    }
    return s;
}

static void value_of_scalar(dv_scalar s, dv_value *v)
{
    switch ((enum dv_scalar_kind)s.kind) {
    case DV_SCALAR_INT: v->type = DV_VALUE_INT, v->as.i = s.as.i; break;
    case DV_SCALAR_BOOL: v->type = DV_VALUE_BOOL, v->as.b = s.as.b; break;
    case DV_SCALAR_FLOAT: v->type = DV_VALUE_FLOAT, v->as.f = s.as.f; break;
    case DV_SCALAR_COMPLEX: v->type = DV_VALUE_COMPLEX, v->as.c = s.as.c; break;
    }
}

/* Convert a twin's argument, which was passed as v. */
static int unpack(struct dv__torch_call *c, const struct dv__torch_slot *s, dv_value *v)
{
    const dv_ints n = v->as.ints;
    const dv_floats f = v->as.floats;
    const size_t each = s->packed == DV_FIELD_SCALAR || s->packed == DV_FIELD_SCALARS ? 3 : 2;
    const bool one = s->packed != DV_FIELD_SCALARS && s->packed != DV_FIELD_COMPLEXES;
    if (v->type == DV_VALUE_NONE)
        return DV_OK;
    if (s->packed == DV_FIELD_GENERATOR)
        return decode_generator(c, NULL, (uint64_t)v->as.i, v);
    if (one ? n.size != each : n.size % each != 0)
        return dv_fail(
            DV_ETYPE, "%s: argument '%s': %zu numbers do not encode a value of its type", c->op->name, s->name, n.size);
    switch (s->packed) {
    case DV_FIELD_SCALAR: value_of_scalar(unpack_scalar(n.data), v); return DV_OK;
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
    dv_scalar *scalars = take(c, n.size / each * sizeof *scalars);
    if (!scalars)
        return DV_ENOMEM;
    for (size_t i = 0; i < n.size / each; i++)
        scalars[i] = unpack_scalar(n.data + each * i);
    v->type = DV_VALUE_SCALARS;
    v->as.scalars = (dv_scalars){ scalars, n.size / each };
    return DV_OK;
}

/* The caller zeroes v. An optional is a pointer to a cell, or NULL for None. */
static int decode(
    struct dv__torch_call *c, const struct dv__torch_slot *s, uint8_t field, bool optional, uint64_t cell, dv_value *v)
{
    if (optional) {
        v->type = DV_VALUE_NONE;
        if (!cell)
            return DV_OK;
        cell = *(uint64_t *)handle_of(cell);
    }
    switch (field) {
    case DV_FIELD_TENSOR: return decode_tensor(c, s, optional, cell, v);
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
        if (c->t->torch_string_c_str(handle_of(cell), &v->as.s.data) || c->t->torch_string_length(handle_of(cell), &v->as.s.size))
            return bad_tensor(c, s);
        return DV_OK;
    case DV_FIELD_DTYPE:
        v->type = DV_VALUE_DTYPE;
        if (!dv__torch_dtype_from(c->t, (int32_t)cell, &v->as.dtype))
            return dv_fail(
                DV_EDTYPE, "%s: argument '%s': torch's dtype number %d has no counterpart here", c->op->name, s->name, (int)cell);
        return DV_OK;
    case DV_FIELD_DEVICE: /* index in the low half (-1: the current one), type in the high half */
        v->type = DV_VALUE_DEVICE;
        v->as.device.type = dv__torch_device_type_from(c->t, (int32_t)(cell >> 32));
        v->as.device.id = (int32_t)(uint32_t)cell < 0 ? 0 : (int32_t)(uint32_t)cell;
        if (!v->as.device.type)
            return dv_fail(DV_EDEVICE, "%s: argument '%s': torch's device number %d has no counterpart here", c->op->name,
                s->name, (int)(cell >> 32));
        return DV_OK;
    case DV_FIELD_LAYOUT: /* these are torch's numbers, also in the schema's defaults */
        v->type = DV_VALUE_LAYOUT;
        v->as.layout.value = (int32_t)cell;
        return DV_OK;
    case DV_FIELD_MEMORY_FORMAT: return decode_memory_format(c, s, (int32_t)cell, v);
    case DV_FIELD_GENERATOR: return decode_generator(c, handle_of(cell), 0, v);
    default: return decode_list(c, s, field, cell, v);
    }
}

static int decode_argument(struct dv__torch_call *c, const struct dv__torch_slot *s, uint64_t cell, dv_value *v)
{
    const int status = decode(c, s, s->field, s->optional, cell, v);
    return status || !s->packed ? status : unpack(c, s, v);
}

/* ---- what dv_call asks of us --------------------------------------------------------------------------------------------- */

static struct dv__torch_call *call_of(const dv_host *host)
{
    struct dv__torch_call *c;
    memcpy(&c, &host, sizeof c); /* the host is the first member of the call, which is not const */
    return c;
}

/* Make a tensor from a new handle, and own the handle even on failure. */
static int adopt(struct dv__torch_call *c, void *take_handle, int index, dv_tensor **out)
{
    static const struct dv__torch_slot temporary = { .name = "a temporary" };
    struct dv__torch_tensor *x = take(c, sizeof *x);
    int status = DV_ENOMEM;
    if (x) {
        x->handle = take_handle;
        status = dv__torch_view(c, x, true, index < 0 ? &temporary : &c->op->slots[c->op->nargs + (size_t)index]);
    }
    if (status)
        c->t->aoti_torch_delete_tensor_object(take_handle);
    else
        *out = &x->t;
    return status;
}

static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    struct dv__torch_call *c = call_of(host);
    const struct dv__torch_shims *t = c->t;
    void *handle;
    *out = NULL;
    const int32_t number = dv__torch_dtype(t, dtype), type = dv__torch_device_type(t, device.type);
    if (number < 0)
        return dv_fail(DV_EDTYPE, "%s: torch has no dtype %s", c->op->name, dv_dtype_name(dtype));
    if (type < 0)
        return dv_fail(DV_EDEVICE, "%s: torch has no device %s", c->op->name, dv_device_name(device.type));
    if (t->aoti_torch_empty_strided(ndim, shape, strides, number, type, device.type == DV_CPU ? 0 : device.id, &handle))
        return dv_fail(DV_EHOST, "%s: libtorch could not make a tensor: %s", c->op->name, dv__torch_what(t));
    return adopt(c, handle, index, out);
}

/* base is one of this call's tensors: an argument, or one that this code made. */
static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    struct dv__torch_call *c = call_of(host);
    void *handle;
    *out = NULL;
    if (c->t->aoti_torch__reinterpret_tensor(
            ((const struct dv__torch_tensor *)(const void *)base)->handle, ndim, shape, strides, offset, &handle))
        return dv_fail(DV_EHOST, "%s: libtorch could not make a view: %s", c->op->name, dv__torch_what(c->t));
    return adopt(c, handle, index, out);
}

static void free_tensor(const dv_host *host, dv_tensor *t)
{
    struct dv__torch_tensor *x = (struct dv__torch_tensor *)(void *)t;
    call_of(host)->t->aoti_torch_delete_tensor_object(x->handle);
}

/* A handle to memory that a dv_tensor describes, without ownership of the memory. */
static int borrow(const struct dv__torch_shims *t, const dv_tensor *x, void **out)
{
    return t->aoti_torch_create_tensor_from_blob(x->data, x->ndim, x->shape, x->strides, 0, dv__torch_dtype(t, x->dtype),
        dv__torch_device_type(t, x->device.type), x->device.id, out);
}

static int copy_tensor(const dv_host *host, const dv_tensor *to, const dv_tensor *from)
{
    const struct dv__torch_call *c = call_of(host);
    void *a = NULL, *b = NULL;
    int status = DV_OK;
    if (borrow(c->t, to, &a) || borrow(c->t, from, &b) || c->t->aoti_torch_copy_(a, b, 0))
        status = dv_fail(DV_EHOST, "%s: libtorch could not copy a tensor: %s", c->op->name, dv__torch_what(c->t));
    if (b)
        c->t->aoti_torch_delete_tensor_object(b);
    if (a)
        c->t->aoti_torch_delete_tensor_object(a);
    return status;
}

/* The range is cut into pieces here, by the grain alone, so results do not depend on the number of threads. torch shares them out
 * before it begins; each of its threads takes the next one instead, so that none waits for another's long pieces. */
struct pieces {
    int64_t begin, end, grain, n;
    dv_range_fn fn;
    void *arg;
    atomic_int_fast64_t next; /* that nobody has taken */
    atomic_int status;
};

static void run_pieces(int64_t first, int64_t last, void *arg)
{
    struct pieces *p = arg;
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

static int parallel_for(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    const struct dv__torch_call *c = call_of(host);
    if (begin >= end)
        return DV_OK;
    const int64_t each = grain < 1 ? 1 : grain;
    struct pieces p = { begin, end, each, (end - begin - 1) / each + 1, fn, arg, 0, DV_OK };
    if (p.n == 1)
        return fn(arg, begin, end);
    if (c->t->torch_parallel_for(0, p.n, 1, run_pieces, &p))
        return dv_fail(DV_EHOST, "%s: torch's threads failed: %s", c->op->name, dv__torch_what(c->t));
    return atomic_load(&p.status);
}

/* The current stream of a backend on PrivateUse1, in the backend's own type; NULL if it has none. */
static int accelerator_stream(const struct dv__torch_call *c, int32_t index, void **out)
{
    void *current = NULL;
    if (!c->t->aoti_torch_get_current_stream || !c->t->torch_stream_native_handle || !c->t->aoti_torch_delete_stream)
        return DV_OK;
    if (c->t->aoti_torch_get_current_stream(index, &current))
        return dv_fail(DV_EHOST, "%s: no current stream: %s", c->op->name, dv__torch_what(c->t));
    if (c->t->torch_stream_native_handle(current, out))
        *out = NULL;
    c->t->aoti_torch_delete_stream(current);
    return DV_OK;
}

static int stream(const dv_host *host, dv_device device, void **out)
{
    const struct dv__torch_call *c = call_of(host);
    *out = NULL;
    if (device.type == DV_NPU)
        return accelerator_stream(c, device.id, out);
    if (device.type != DV_CUDA || !c->t->current_cuda_stream)
        return DV_OK;
    if (c->t->current_cuda_stream(device.id, out))
        return dv_fail(DV_EHOST, "%s: no current stream: %s", c->op->name, dv__torch_what(c->t));
    return DV_OK;
}

/* Draw a seed from a generator of torch, so that torch.manual_seed() has effect: the given generator, else the CPU's default.
 * Drawing on an accelerator synchronises, which torch refuses while a graph is captured. */
static int draw_seed(const struct dv__torch_call *c, const struct generator *g, uint64_t *seed)
{
    const struct dv__torch_shims *t = c->t;
    const int64_t one = 1;
    int32_t device = t->cpu, index = 0, dtype = dv__torch_dtype(t, dv_dtype_from_key(DV_DTYPE_i64)), failed;
    void *drawn = NULL, *here = NULL, *data = NULL, *handle = g ? g->handle : NULL;
    if (handle && t->torch_generator_get_device(handle, &device, &index))
        return dv_fail(DV_EHOST, "%s: libtorch: %s", c->op->name, dv__torch_what(t));
    if (device == t->cpu)
        failed = handle ? t->aoti_torch_cpu_randint_generator(INT64_MAX, &one, 1, &handle, &dtype, NULL, NULL, 0, NULL, &drawn)
                        : t->aoti_torch_cpu_randint(INT64_MAX, &one, 1, &dtype, NULL, NULL, 0, NULL, &drawn);
    else if (device == t->cuda && t->cuda_randint_generator)
        failed = t->cuda_randint_generator(INT64_MAX, &one, 1, &handle, &dtype, NULL, &device, index, NULL, &drawn);
    else
        return dv_fail(DV_EDEVICE, "%s: a generator of torch's device number %d cannot be drawn from", c->op->name, (int)device);
    if (!failed && device == t->cpu)
        here = drawn;
    else if (!failed)
        failed = t->aoti_torch_empty_strided(1, &one, &one, dtype, t->cpu, 0, &here) || t->aoti_torch_copy_(here, drawn, 0);
    if (!failed && !(failed = t->torch_get_mutable_data_ptr(here, &data)))
        memcpy(seed, data, sizeof *seed);
    if (here && here != drawn)
        t->aoti_torch_delete_tensor_object(here);
    if (drawn)
        t->aoti_torch_delete_tensor_object(drawn);
    return failed ? dv_fail(DV_EHOST, "%s: no random number from torch: %s", c->op->name, dv__torch_what(t)) : DV_OK;
}

/* Is the call captured in a CUDA graph? A seed is a number on the host, so every replay of the graph would use the same. guard is
 * set if a tensor of the call is on an accelerator; work on the CPU is never captured. */
static bool is_captured(const struct dv__torch_call *c)
{
    void *current;
    int status = 0;
    if (!c->guard || !c->t->current_cuda_stream || !c->t->stream_is_capturing || c->t->current_cuda_stream(-1, &current))
        return false;
    return !c->t->stream_is_capturing(current, &status) && status;
}

static int random_numbers(const dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    struct generator *g = (struct generator *)(uintptr_t)(const void *)generator;
    *offset = 0;
    if (is_captured(call_of(host)))
        return dv_fail(DV_ENOTSUP,
            "%s: dv_random: a CUDA graph is being captured, and every replay would have the same random numbers: "
            "call the operator outside of the graph, or give it the numbers as a tensor",
            call_of(host)->op->name);
    if (!g || g->handle)
        return draw_seed(call_of(host), g, seed);
    *seed = g->seed;
    *offset = atomic_fetch_add(&g->used, count);
    return DV_OK;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

/* Is this result a newly made tensor, and not an argument? */
static bool was_made(const struct dv__torch_call *c, const struct dv__torch_slot *s, const dv_value *args, const dv_value *v)
{
    const size_t slot = (size_t)(s - c->op->slots),
                 argument = c->nargs > c->op->nargs ? slot
        : s->alias < 0                              ? SIZE_MAX
                                                    : (size_t)s->alias;
    return v->type == DV_VALUE_TENSOR && (argument == SIZE_MAX || v->as.tensor != args[argument].as.tensor);
}

static int encode_tensor(
    struct dv__torch_call *c, const struct dv__torch_slot *s, const dv_value *args, const dv_value *v, uint64_t *cell)
{
    void *handle = NULL;
    if (v->type != DV_VALUE_TENSOR) { /* absent with these arguments: in Python, None */
        if (c->t->aoti_torch_new_uninitialized_tensor(&handle))
            return dv_fail(DV_EHOST, "%s: libtorch: %s", c->op->name, dv__torch_what(c->t));
    } else if (was_made(c, s, args, v))
        handle = handle_of_tensor(v->as.tensor);
    else if (c->t->aoti_torch_new_tensor_handle(handle_of_tensor(v->as.tensor), &handle))
        return dv_fail(DV_EHOST, "%s: libtorch: %s", c->op->name, dv__torch_what(c->t));
    *cell = cell_of(handle);
    return DV_OK;
}

/* A list that dv_call made: torch's list takes the handles. */
static int encode_list(struct dv__torch_call *c, const dv_tensors *made, uint64_t *cell)
{
    void *list = NULL;
    size_t k = 0;
    int failed = c->t->torch_new_list_reserve_size(made->size, &list);
    for (; k < made->size && !failed; k++)
        failed = c->t->torch_list_push_back(list, cell_of(handle_of_tensor(made->data[k])));
    if (failed) {
        if (list)
            release(c->t, DV_FIELD_TENSORS, false, false, cell_of(list));
        free_list(c, made, k ? k - 1 : 0);
        return dv_fail(DV_EHOST, "%s: libtorch could not make a list: %s", c->op->name, dv__torch_what(c->t));
    }
    free_list(c, made, made->size);
    *cell = cell_of(list);
    return DV_OK;
}

int dv__torch_box(const struct dv__torch_op *op, uint64_t *cell)
{
    uint64_t *b = NULL;
    if (op->t->torch_new_stable_ivalue ? op->t->torch_new_stable_ivalue(&b) : (b = op->t->operator_new(sizeof *b), 0))
        return dv_fail(DV_ENOMEM, "%s: out of memory", op->name);
    *b = *cell;
    *cell = cell_of(b);
    return DV_OK;
}

static int encode(
    struct dv__torch_call *c, const struct dv__torch_slot *s, const dv_value *args, const dv_value *v, uint64_t *cell)
{
    int status = DV_OK;
    *cell = 0;
    if (s->optional && (v->type == DV_VALUE_NONE || v->type == DV_VALUE_DEFAULT))
        return DV_OK;
    switch (s->field) {
    case DV_FIELD_TENSOR: status = encode_tensor(c, s, args, v, cell); break;
    case DV_FIELD_TENSORS: status = encode_list(c, &v->as.tensors, cell); break;
    case DV_FIELD_INT: *cell = (uint64_t)v->as.i; break;
    case DV_FIELD_FLOAT: memcpy(cell, &v->as.f, sizeof *cell); break;
    case DV_FIELD_BOOL: *cell = v->as.b; break;
    default: break; /* refused at load */
    }
    return !status && s->optional ? dv__torch_box(c->op, cell) : status;
}

/* Push all results, or none: on failure those that dv_call made are freed. */
static int encode_results(struct dv__torch_call *c, const dv_value *args, const dv_value *results, uint64_t *cells)
{
    const struct dv__torch_slot *s = c->op->slots + c->op->nargs;
    size_t i;
    int status = DV_OK;
    for (i = 0; i < c->op->nresults; i++)
        if ((status = encode(c, &s[i], args, &results[i], &cells[i])))
            break;
    if (!status)
        return DV_OK;
    for (size_t j = 0; j < c->op->nresults; j++)
        if (j < i)
            dv__torch_release(c->op, c->op->nargs + j, cells[j]);
        else if (was_made(c, &s[j], args, &results[j]))
            c->t->aoti_torch_delete_tensor_object(handle_of_tensor(results[j].as.tensor));
        else if (j > i && results[j].type == DV_VALUE_TENSORS)
            free_list(c, &results[j].as.tensors, 0);
    return status;
}

/* ---- the call ------------------------------------------------------------------------------------------------------------ */

static size_t tensors_of(const dv_value *v, const dv_tensor *const **all)
{
    *all = v->type == DV_VALUE_TENSORS ? v->as.tensors.data : &v->as.tensor;
    return v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR ? 1 : 0;
}

/* An out= overload has no kernel on the Autograd keys. */
static int refuse_gradient(const struct dv__torch_call *c, const dv_value *args)
{
    const dv_tensor *const *all;
    if (!c->t->requires_grad || !c->t->aoti_torch_grad_mode_is_enabled())
        return DV_OK;
    for (size_t i = 0; i < c->nargs; i++)
        for (size_t k = 0, n = tensors_of(&args[i], &all); k < n; k++)
            if (all[k] && c->t->requires_grad(*(void **)handle_of_tensor(all[k])))
                return dv_fail(DV_EINVAL,
                    "%s(): functions with out=... arguments don't support automatic differentiation, but one of the "
                    "arguments requires grad.",
                    c->op->name);
    return DV_OK;
}

/* Raise the version counters of written tensors, so that a backward that saved one fails with an error. torch's own operators do
 * it on the key ADInplaceOrView; a caller that has raised the counters excludes this key. This comes before the kernel: for an
 * inference tensor bump_version throws, and the data must be unchanged. */
static void announce_writes(struct dv__torch_call *c, const dv_value *args)
{
    const struct dv__torch_op *op = c->op;
    const dv_tensor *const *all;
    if (!c->t->bump_version || (c->t->key_excluded && c->t->key_excluded(c->t->inplace_or_view_key)))
        return;
    for (size_t i = 0; i < c->nargs; i++) {
        const size_t n = op->slots[i].writes ? tensors_of(&args[i], &all) : 0;
        for (size_t k = 0; k < n; k++)
            if (all[k])
                c->t->bump_version(handle_of_tensor(all[k]));
    }
}

/* Can a tensor given by out= take its result? It may have another shape. */
static int check_out(struct dv__torch_call *c, const dv_tensor *out, const dv_tensor *made, const struct dv__torch_slot *s)
{
    if (dv_dtype_key(out->dtype) != dv_dtype_key(made->dtype))
        return dv_fail(DV_EDTYPE, "%s: argument '%s': expected dtype %s, found %s", c->op->name, s->name,
            dv_dtype_name(made->dtype), dv_dtype_name(out->dtype));
    if (out->device.type != made->device.type || out->device.id != made->device.id)
        return dv_fail(DV_EDEVICE, "%s: argument '%s': expected a tensor on %s, found one on %s", c->op->name, s->name,
            dv_device_name(made->device.type), dv_device_name(out->device.type));
    return DV_OK;
}

/* Resize it to the shape of its result, as torch does, with torch's warning if it had elements. May throw. */
static int resize_out(struct dv__torch_call *c, const dv_tensor *out, const dv_tensor *made, const struct dv__torch_slot *s)
{
    (void)s;
    if (c->t->resize_output)
        c->t->resize_output(handle_of_tensor(out), made->shape, (size_t)made->ndim);
    return DV_OK;
}

/* Before and after they grow, tensors to write to overlap neither arguments nor each other. A storage that grew is elsewhere, for
 * all tensors that have it. */
static int check_apart(struct dv__torch_call *c, const dv_value *args)
{
    const dv_tensor *const *all, *const *others;
    int status = DV_OK;
    for (size_t i = 0; i < c->nargs; i++)
        for (size_t k = 0, n = tensors_of(&args[i], &all); k < n && !status; k++)
            if (all[k])
                status = dv__torch_view(c, (struct dv__torch_tensor *)(uintptr_t)all[k], i >= c->op->nargs, &c->op->slots[i]);
    if (status)
        return status;
    for (size_t i = c->op->nargs; i < c->nargs; i++)
        for (size_t k = 0, n = tensors_of(&args[i], &all); k < n; k++)
            for (size_t j = 0; j <= i; j++) {
                const size_t m = tensors_of(&args[j], &others);
                for (size_t l = 0; l < (j < i ? m : k); l++)
                    if (all[k] && others[l] && dv_tensor_overlaps(all[k], others[l]))
                        return dv_fail(DV_EALIAS, "%s: argument '%s': would be written, but overlaps argument '%s'", c->op->name,
                            c->op->slots[i].name, c->op->slots[j].name);
            }
    return DV_OK;
}

static int copy_out(struct dv__torch_call *c, const dv_tensor *out, const dv_tensor *made, const struct dv__torch_slot *s)
{
    if (c->t->aoti_torch_copy_(handle_of_tensor(out), handle_of_tensor(made), 0))
        return dv_fail(DV_EHOST, "%s: argument '%s': libtorch: %s", c->op->name, s->name, dv__torch_what(c->t));
    return DV_OK;
}

typedef int (*out_fn)(struct dv__torch_call *c, const dv_tensor *out, const dv_tensor *made, const struct dv__torch_slot *s);
static int each_out(
    struct dv__torch_call *c, const dv_value *out, const dv_value *made, const struct dv__torch_slot *s, out_fn of_one)
{
    const dv_tensor *const *outs, *const *results;
    const size_t n = tensors_of(out, &outs), expected = tensors_of(made, &results);
    if (n != expected)
        return dv_fail(DV_EINVAL, "%s: argument '%s': expected %zu tensors, found %zu", c->op->name, s->name, expected, n);
    int status = DV_OK;
    for (size_t i = 0; !status && i < n; i++)
        status = of_one(c, outs[i], results[i], s);
    return status;
}

/* Write results to the tensors given by out=. If a shape differs, the result is made first and then copied. */
static int call_out(struct dv__torch_call *c, dv_value *args, dv_value *results)
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
    c->spare = results;
    c->nspare = op->nresults;
    static const out_fn steps[] = { check_out, resize_out, copy_out }; /* nothing is written before all are checked */
    for (size_t i = 0; !status && i < 3 * op->nresults; i++) {
        const size_t r = i % op->nresults;
        if (i == op->nresults || i == 2 * op->nresults)
            status = check_apart(c, args);
        if (!status)
            status = each_out(c, &outs[r], &results[r], &op->slots[op->nargs + r], steps[i / op->nresults]);
    }
    release_spare(c);
    memcpy(results, outs, op->nresults * sizeof *results);
    return status;
}

/* torch.use_deterministic_algorithms() */
static uint32_t host_flags(const struct dv__torch_op *op)
{
    const struct dv__torch_shims *t = op->t;
    return (t->context && t->deterministic(t->context) ? DV_HOST_DETERMINISTIC : 0u) |
        (atomic_load_explicit(&op->native, memory_order_relaxed) ? DV_HOST_OWN_NATIVE : 0u);
}

void dv__torch_call_begin(struct dv__torch_call *c, const struct dv__torch_op *op, char *room, size_t size)
{
    c->host = (dv_host){ .size = sizeof(dv_host),
        .flags = DV_HOST_NO_DISPATCH | host_flags(op),
        .name = "torch",
        .new_tensor = new_tensor,
        .free_tensor = free_tensor,
        .copy_tensor = copy_tensor,
        .parallel_for = parallel_for,
        .stream = stream,
        .random = random_numbers,
        .new_view = new_view };
    c->t = op->t;
    c->op = op;
    c->stack = NULL;
    c->nargs = op->nargs;
    c->nspare = 0;
    c->elsewhere = false;
    c->guard = NULL;
    c->at = room;
    c->end = room + size;
    c->blocks = NULL;
}

static int run(const struct dv__torch_op *op, uint64_t *stack, size_t nargs)
{
    __attribute__((cleanup(release_call))) struct dv__torch_call c;
    _Alignas(16) char room[4096];
    dv__torch_call_begin(&c, op, room, sizeof room);
    c.stack = stack;
    c.nargs = nargs;

    dv_value *args = take(&c, (nargs + op->nresults) * sizeof *args), *results = args + nargs;
    uint64_t *cells = take(&c, op->nresults * sizeof *cells);
    int status = args && cells ? DV_OK : DV_ENOMEM;
    if (!status)
        memset(args, 0, (nargs + op->nresults) * sizeof *args);
    for (size_t i = 0; !status && i < nargs; i++)
        status = decode_argument(&c, &op->slots[i], stack[i], &args[i]);
    const bool out = nargs > op->nargs, pushes = op->nresults && !(out && op->lists);
    if (!status && out)
        status = refuse_gradient(&c, args);
    if (!status && (op->mutates || out))
        announce_writes(&c, args);
    if (!status && c.elsewhere)
        status = dv_fail(DV_ENATIVE, "%s: no kernel for this device, and its native form needs Python here", op->name);
    if (!status)
        status = out ? call_out(&c, args, results) : dv_call(op->op, args, op->nargs, results, op->nresults, &c.host);
    if (status == DV_ENATIVE && dv__torch_into_python()) {
        c.stack = NULL; /* Python takes the arguments */
        return status;
    }
    if (!status && pushes)
        status = encode_results(&c, args, results, cells);
    release_arguments(&c);
    if (!status && pushes)
        memcpy(stack, cells, op->nresults * sizeof *cells);
    return status;
}

void dv__torch_call(const struct dv__torch_op *op, uint64_t *stack, uint64_t nargs)
{
    const int status = run(op, stack, nargs);
    const dv__torch_python python = status == DV_ENATIVE ? dv__torch_into_python() : NULL;
    if (python)
        python(op, DV__TORCH_NATIVE, stack, nargs);
    else if (status)
        op->t->aoti_torch_check(false, op->name, "dovetail", 0, dv_last_error());
}
