/* The author's struct: filled from a call's values; and for calls made with a struct, each field converted to a value. A struct
 * with the layout of the operator's own, the usual case, needs no lookup; another one is bound like a declaration. */
#include "call/frame.h"

#include "base/memory.h"

/* ---- From values to fields ---- */

/* Returns the byte that a test wants where the kernel's struct has no meaning; 0 outside of tests and in shape functions. */
static int fill_of(const dv__call *c)
{
    const dv_test_hooks *test = c->stage == DV__STAGE_KERNEL ? dv__test_hooks(c->host) : NULL;
    return test ? test->fill : 0;
}

static dv_scalar scalar_of(const dv__call *c, const dv_value *v)
{
    dv_scalar s;
    memset(&s, fill_of(c), sizeof s);
    switch (v->type) {
    case DV_VALUE_INT: s.kind = DV_SCALAR_INT, s.as.i = v->as.i; break;
    case DV_VALUE_FLOAT: s.kind = DV_SCALAR_FLOAT, s.as.f = v->as.f; break;
    case DV_VALUE_BOOL: s.kind = DV_SCALAR_BOOL, s.as.b = v->as.b; break;
    default: s.kind = DV_SCALAR_COMPLEX, s.as.c = v->as.c; break;
    }
    return s;
}

static dv_mut_tensors to_write(dv_tensors list)
{
    return (dv_mut_tensors){ (dv_tensor *const *)(uintptr_t)list.data, list.size };
}

/* Fill a field of each form, except plain tensors. Lists of tensors are views that the call has made. */
#define CONTENT(lvalue, member)                              \
    _Generic(&(lvalue),                                      \
        dv_scalar *: scalar_of(c, v),                        \
        dv_tensors *: c->lists[slot],                        \
        dv_mut_tensors *: to_write(c->lists[slot]),          \
        dv_tensor * *: (dv_tensor *)(uintptr_t)v->as.tensor, \
        default: v->as.member)
#define PUT_ONE(T, member) *(T *)p = CONTENT(*(T *)p, member)
#define PUT_LIST PUT_ONE
#define PUT_WRITTEN PUT_ONE
#define PUT_POINTER(T, member) *(T *)p = v->type == DV_VALUE_NONE ? NULL : v->as.member
#define PUT_OPTIONAL(T, member)                     \
    if ((((T *)p)->has = v->type != DV_VALUE_NONE)) \
    ((T *)p)->value = CONTENT(((T *)p)->value, member)
#define PUT_RESULT(T, member) *(T *)p = result ? &result->as.member : NULL

static void fill_field(dv__call *c, const dv__bound_field *f, char *frame)
{
    static const dv_value none = { .type = DV_VALUE_NONE };
    const size_t slot = f->slot, nargs = c->plan->nargs;
    const dv_value *v = slot < nargs ? &c->args[slot] : &none;
    dv_value *result = slot < nargs ? NULL : &c->outs[slot - nargs].value;
    void *p = frame + f->offset;
    switch (f->type) {
#define FIELD(name, number, T, word, form, of, value, member) \
    case number: PUT_##form(T, member); break;
        DV_FIELD_TYPES(FIELD)
#undef FIELD
    default: break; /* the binding has refused others */
    }
}

void dv__fill_frame(dv__call *c, const dv__binding *b, char *frame)
{
    if (b->n * sizeof(void *) != b->frame_size) /* otherwise every byte is written below: the struct holds only pointers */
        memset(frame, fill_of(c), b->frame_size);
    for (const dv__bound_field *f = b->fields, *end = f + b->n; f < end; f++) {
        assert(f->slot < c->plan->nargs + c->plan->nreturns && f->offset < b->frame_size);
        if (f->type == DV_FIELD_TENSOR || f->type == DV_FIELD_MUT_TENSOR)
            *(const dv_tensor **)(void *)(frame + f->offset) = c->tensors[f->slot];
        else
            fill_field(c, f, frame);
    }
}

/* ---- From fields to values ---- */

static bool same_name(const char *field, const char *slot)
{
    while (*slot && *field == *slot)
        field++, slot++;
    return !*slot && (!*field || (*field == '_' && !field[1]));
}

/* Does it have the layout of the declared struct, with the same fields for the same slots? */
static bool is_own(const dv_operator *op, const dv_field_decl *const *fields, size_t frame_size)
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
        if (*name && !same_name(f->name, name))
            return false;
    }
    return !fields[b->n];
}

#define GET_AT(T, p) (*(T const *)(const void *)(p))
/* clang-format off */
#define GET(T) GET_AT(T, p)
/* clang-format on */

static void from_scalar(const dv_scalar *s, dv_value *v)
{
    switch (s->kind) {
    case DV_SCALAR_INT: *v = dv_from_int(s->as.i); return;
    case DV_SCALAR_FLOAT: *v = dv_from_float(s->as.f); return;
    case DV_SCALAR_BOOL: *v = dv_from_bool(s->as.b); return;
    case DV_SCALAR_COMPLEX: v->type = DV_VALUE_COMPLEX, v->as.c = s->as.c; return;
    default: return;
    }
}

/* Read a value from the field of each form. Lists of written tensors have the same layout as other lists of tensors. */
#define TAKE(T, TYPE, member, from)                                \
    _Generic(&(from),                                              \
        dv_scalar const *: from_scalar((const void *)&(from), &v), \
        default: (void)(v.type = (TYPE), memcpy(&v.as.member, &(from), sizeof v.as.member)))
#define FROM_ONE(T, TYPE, member) TAKE(T, TYPE, member, GET(T))
#define FROM_LIST FROM_ONE
#define FROM_WRITTEN FROM_ONE
#define FROM_POINTER(T, TYPE, member) GET(T) ? FROM_ONE(T, TYPE, member) : (void)0
#define FROM_OPTIONAL(T, TYPE, member) GET(T).has ? TAKE(T, TYPE, member, GET(T).value) : (void)0
#define FROM_RESULT(T, TYPE, member) v = dv_default() /* comes back through the pointer */

static dv_value value_of(uint32_t type, const char *p)
{
    dv_value v = dv_none();
    switch (type) {
#define FIELD(name, number, T, word, form, of, value, member) \
    case number: FROM_##form(T, DV_VALUE_##value, member); break;
        DV_FIELD_TYPES(FIELD)
#undef FIELD
    default: break;
    }
    return v;
}

static void give_back(const dv__binding *b, const dv_operator *op, char *frame, const dv_value *results)
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

static int call_bound(dv_operator *op, const dv__binding *b, char *frame, const dv_host *host, uint32_t inner, dv__enter_fn enter)
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
            v->as.tensor = GET_AT(const dv_tensor *, frame + b->fields[i].offset);
            v->type = v->as.tensor ? DV_VALUE_TENSOR : DV_VALUE_NONE;
        } else {
            *v = value_of(b->fields[i].type, frame + b->fields[i].offset);
        }
    }
    const int status = enter(op, args, nargs, results, nresults, host, inner);
    if (!status)
        give_back(b, op, frame, results);
    return status;
}

/* Every tensor result must have a field: otherwise nobody could free the tensor. */
static int check_results(const dv_operator *op, const dv__binding *b)
{
    const dv__plan *plan = op->plan;
    for (size_t r = 0; r < plan->nreturns; r++) {
        const dv__slot *slot = &plan->slots[plan->nargs + r];
        bool bound = slot->value != DV_VALUE_TENSOR || (slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES));
        for (uint32_t i = 0; i < b->n; i++)
            bound |= b->fields[i].slot == plan->nargs + r;
        if (!bound)
            return dv_fail(DV_EINVAL, "%s: a call from a struct gives every result: result %zu has no field", op->name, r);
    }
    return DV_OK;
}

int dv__call_frame(dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host,
    uint32_t inner, dv__enter_fn enter)
{
    if (!frame || !fields)
        return dv_fail(DV_EINVAL, "%s: a call from a struct needs the struct and its fields: found NULL", op->name);
    if (!atomic_load_explicit(&op->alive, memory_order_acquire))
        return dv_fail(DV_EUNLOADED, "%s: the operator's library was unloaded", op->name);
    if (is_own(op, fields, frame_size))
        return call_bound(op, op->binding, frame, host, inner, enter);
    dv__arena arena = { NULL };
    dv__binding *b;
    int status = dv__binding_make(op->name, op->schema, fields, frame_size, true, &arena, &b);
    if (!status && !(status = check_results(op, b)))
        status = call_bound(op, b, frame, host, inner, enter);
    dv__arena_deinit(&arena);
    return status;
}

int dv__call_named(const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host,
    uint32_t inner, dv__enter_fn enter)
{
    dv_operator *op;
    int status = dv_find(name, &op);
    if (status)
        return status;
    status = dv__call_frame(op, frame, frame_size, fields, host, inner, enter);
    dv_operator_unref(op);
    return status;
}
