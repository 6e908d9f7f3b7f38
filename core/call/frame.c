/* The author's struct: filled from a call's values; and for calls made with a struct, each field converted to a value. A
 * struct with the layout that the operator's declaration has, the usual case, uses the operator's binding. Any other struct
 * is bound by the names of its fields, like a declaration. */
#include "call/frame.h"

#include "base/memory.h"

/* ---- From values to fields ---- */

/* Returns the byte with which a test fills those bytes of the kernel's struct that no field sets; 0 outside of tests and in
 * shape functions. */
static int frame_get_fill_byte(const dv__call *c)
{
    const dv_test_hooks *test = c->stage == DV__STAGE_KERNEL ? dv__test_hooks(c->host) : NULL;
    return test ? test->fill_byte : 0;
}

static dv_scalar frame_scalar_from_value(const dv__call *c, const dv_value *v)
{
    dv_scalar s;
    memset(&s, frame_get_fill_byte(c), sizeof s);
    s.kind = dv_to_scalar(v).kind;
    memcpy(&s.as, &v->as, dv_field_of_value(v->type)->size);
    return s;
}

static dv_mut_tensors frame_as_mut_tensors(dv_tensors list)
{
    return (dv_mut_tensors){ (dv_tensor *const *)(uintptr_t)list.data, list.size };
}

/* PUT_<form>: sets the field at p of a struct from the value v. A field for a list of tensors points to c->lists. Single
 * tensors are set elsewhere. */
#define FRAME_CONTENT(lvalue, member)                           \
    _Generic(&(lvalue),                                         \
        dv_scalar *: frame_scalar_from_value(c, v),             \
        dv_tensors *: c->lists[slot],                           \
        dv_mut_tensors *: frame_as_mut_tensors(c->lists[slot]), \
        dv_tensor * *: (dv_tensor *)(uintptr_t)v->as.tensor,    \
        default: v->as.member)
#define PUT_ONE(T, member) *(T *)p = FRAME_CONTENT(*(T *)p, member)
#define PUT_LIST PUT_ONE
#define PUT_NUMBER PUT_ONE
#define PUT_WRITTEN PUT_ONE
#define PUT_POINTER(T, member) *(T *)p = v->type == DV_VALUE_NONE ? NULL : v->as.member
#define PUT_OPTIONAL(T, member)                     \
    if ((((T *)p)->has = v->type != DV_VALUE_NONE)) \
    ((T *)p)->value = FRAME_CONTENT(((T *)p)->value, member)
#define PUT_RESULT(T, member) *(T *)p = result ? &result->as.member : NULL

/* Stores the value of a field's slot in the kernel's struct. */
static void frame_fill_field(dv__call *c, const dv__bound_field *f, char *frame)
{
    static const dv_value none = { .type = DV_VALUE_NONE };
    const size_t slot = f->slot, nargs = c->signature->nargs;
    const dv_value *v = slot < nargs ? &c->args[slot] : &none;
    dv_value *result = slot < nargs ? NULL : &c->outs[slot - nargs].value;
    void *p = frame + f->offset;
    switch (f->type) {
#define FIELD(name, number, T, word, form, of, value, member) \
    case number: PUT_##form(T, member); break;
        DV_FIELD_TYPES(FIELD)
#undef FIELD
    default: break; /* the binding has refused fields of other types */
    }
}

void dv__frame_fill(dv__call *c, const dv__binding *b, char *frame)
{
    if (b->n * sizeof(void *) != b->frame_size) /* otherwise every byte is written below: the struct holds only pointers */
        memset(frame, frame_get_fill_byte(c), b->frame_size);
    for (const dv__bound_field *f = b->fields, *end = f + b->n; f < end; f++) {
        assert(f->slot < c->signature->nargs + c->signature->nreturns && f->offset < b->frame_size);
        if (f->type == DV_FIELD_TENSOR || f->type == DV_FIELD_MUT_TENSOR)
            *(const dv_tensor **)(void *)(frame + f->offset) = c->tensors[f->slot];
        else
            frame_fill_field(c, f, frame);
    }
}

/* ---- From fields to values ---- */

/* True if the field is named like the slot, or like the slot with '_' appended, as a C keyword needs it. */
static bool frame_field_name_matches(const char *field_name, const char *slot_name)
{
    while (*slot_name && *field_name == *slot_name)
        field_name++, slot_name++;
    return !*slot_name && (!*field_name || (*field_name == '_' && !field_name[1]));
}

/* True if the fields have the layout of the declared struct: the same offsets and types for the same slots, in the same
 * order. */
static bool frame_has_declared_layout(const dv_operator *op, const dv_field_decl *const *fields, size_t frame_size)
{
    const dv__binding *b = op->binding;
    if (!b || b->frame_size != frame_size)
        return false;
    for (uint32_t i = 0; i < b->n; i++) {
        const dv_field_decl *f = fields[i];
        if (!f || f->offset != b->fields[i].offset || f->type != b->fields[i].type)
            return false;
        const size_t slot = b->fields[i].slot, nargs = op->schema->nargs;
        const char *name = slot < nargs ? op->schema->args[slot].name : op->schema->returns[slot - nargs].name;
        if (*name && !frame_field_name_matches(f->name, name))
            return false;
    }
    return !fields[b->n];
}

#define FRAME_LOAD_AT(T, p) (*(T const *)(const void *)(p))
/* clang-format off */
#define FRAME_LOAD(T) FRAME_LOAD_AT(T, p)
/* clang-format on */

/* Returns the number of the dv_scalar at `scalar`. The pointer has no type, since _Generic compiles this call for fields of all
 * types. */
static dv_value frame_value_from_scalar(const void *scalar)
{
    dv_scalar s;
    memcpy(&s, scalar, sizeof s);
    return dv_from_scalar(s);
}

/* FROM_<form>: sets v from the field at p of a struct. Lists of written tensors have the same layout as other lists of
 * tensors. */
#define FRAME_READ_VALUE(T, TYPE, member, from)                          \
    _Generic(&(from),                                                    \
        dv_scalar const *: (void)(v = frame_value_from_scalar(&(from))), \
        default: (void)(v.type = (TYPE), memcpy(&v.as.member, &(from), sizeof v.as.member)))
#define FROM_ONE(T, TYPE, member) FRAME_READ_VALUE(T, TYPE, member, FRAME_LOAD(T))
#define FROM_LIST FROM_ONE
#define FROM_NUMBER FROM_ONE
#define FROM_WRITTEN FROM_ONE
#define FROM_POINTER(T, TYPE, member) FRAME_LOAD(T) ? FROM_ONE(T, TYPE, member) : (void)0
#define FROM_OPTIONAL(T, TYPE, member) FRAME_LOAD(T).has ? FRAME_READ_VALUE(T, TYPE, member, FRAME_LOAD(T).value) : (void)0
#define FROM_RESULT(T, TYPE, member) v = dv_default() /* the result is written through the field's pointer after the call */

/* Returns the value of a field of a struct, as an argument of a call. */
static dv_value frame_value_from_field(uint32_t field_type, const char *p)
{
    dv_value v = dv_none();
    switch (field_type) {
#define FIELD(name, number, T, word, form, of, value, member) \
    case number: FROM_##form(T, DV_VALUE_##value, member); break;
        DV_FIELD_TYPES(FIELD)
#undef FIELD
    default: break;
    }
    return v;
}

/* Writes the results that are numbers to the addresses in the struct's pointer fields. A field that is NULL is skipped. */
static void frame_store_scalar_results(const dv__binding *b, const dv_operator *op, char *frame, const dv_value *results)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const size_t slot = b->fields[i].slot;
        void *p = frame + b->fields[i].offset;
        if (slot < op->schema->nargs)
            continue;
        const dv_value *v = &results[slot - op->schema->nargs];
        const dv_field_row *row = dv_field_at(b->fields[i].type);
        if (row->form == DV_FORM_RESULT && *(void **)p)
            memcpy(*(void **)p, &v->as, dv_field_at(row->of)->size);
    }
}

/* Calls an operator with the arguments in a struct, and stores results that are no tensors there. Returns a status. */
static int frame_call_with_binding(dv_operator *op, const dv__binding *b, char *frame, const dv_host *host, uint32_t nested_flags,
    dv__nested_call_fn nested_call)
{
    dv_value args[DV__MAX_SLOTS], results[DV__MAX_SLOTS];
    const size_t nargs = op->schema->nargs, nresults = op->schema->nreturns;
    if (nargs > DV__MAX_SLOTS || nresults > DV__MAX_SLOTS)
        return dv_fail(DV_ELIMIT, "%s: too many arguments for a call from a struct", op->name);
    for (size_t i = 0; i < nargs; i++)
        args[i].type = DV_VALUE_DEFAULT;
    for (size_t i = 0; i < nresults; i++)
        results[i].type = DV_VALUE_DEFAULT;
    for (uint32_t i = 0; i < b->n; i++) {
        const size_t slot = b->fields[i].slot;
        dv_value *v = slot < nargs ? &args[slot] : &results[slot - nargs];
        if (b->fields[i].type == DV_FIELD_TENSOR || b->fields[i].type == DV_FIELD_MUT_TENSOR) {
            v->as.tensor = FRAME_LOAD_AT(const dv_tensor *, frame + b->fields[i].offset);
            v->type = v->as.tensor ? DV_VALUE_TENSOR : DV_VALUE_NONE;
        } else {
            *v = frame_value_from_field(b->fields[i].type, frame + b->fields[i].offset);
        }
    }
    const int status = nested_call(op, args, nargs, results, nresults, host, nested_flags);
    if (!status)
        frame_store_scalar_results(b, op, frame, results);
    return status;
}

/* Fails unless every tensor result has a field in the struct: without a field nobody could free the tensor. A result that is
 * a written argument needs none. */
static int frame_check_result_fields(const dv_operator *op, const dv__binding *b)
{
    const dv__signature *signature = op->signature;
    for (size_t r = 0; r < signature->nreturns; r++) {
        const dv__slot *slot = &signature->slots[signature->nargs + r];
        bool bound = slot->value != DV_VALUE_TENSOR || (slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES));
        for (uint32_t i = 0; i < b->n; i++)
            bound |= b->fields[i].slot == signature->nargs + r;
        if (!bound)
            return dv_fail(DV_EINVAL, "%s: a call from a struct gives every result: result %zu has no field", op->name, r);
    }
    return DV_OK;
}

int dv__frame_call(dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host,
    uint32_t nested_flags, dv__nested_call_fn nested_call)
{
    if (!frame || !fields)
        return dv_fail(DV_EINVAL, "%s: a call from a struct needs the struct and its fields: found NULL", op->name);
    if (!atomic_load_explicit(&op->alive, memory_order_acquire))
        return dv_fail(DV_EUNLOADED, "%s: the operator's library was unloaded", op->name);
    if (frame_has_declared_layout(op, fields, frame_size))
        return frame_call_with_binding(op, op->binding, frame, host, nested_flags, nested_call);
    dv__arena arena = { NULL };
    dv__binding *b;
    int status = dv__binding_make(op->name, op->schema, fields, frame_size, true, &arena, &b);
    if (!status && !(status = frame_check_result_fields(op, b)))
        status = frame_call_with_binding(op, b, frame, host, nested_flags, nested_call);
    dv__arena_deinit(&arena);
    return status;
}

int dv__frame_call_by_name(const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields,
    const dv_host *host, uint32_t nested_flags, dv__nested_call_fn nested_call)
{
    dv_operator *op;
    int status = dv_find(name, &op);
    if (status)
        return status;
    status = dv__frame_call(op, frame, frame_size, fields, host, nested_flags, nested_call);
    dv_operator_unref(op);
    return status;
}
