/* The author's struct: filled from a call's values, and a call made from one: each field becomes a value. When the struct is the
 * operator's own, which it nearly always is, nothing is looked up; otherwise it is bound like a declaration. */
#include "call/frame.h"

#include "base/memory.h"

/* ---- From values to fields ---- */

#define PUT(T, x) (*(T *)(void *)(frame + b->fields[i].offset) = (x))
#define PUT_OPTIONAL(T, member)                            \
    if (v->type != DV_VALUE_NONE) {                        \
        T *o = (T *)(void *)(frame + b->fields[i].offset); \
        o->has = true;                                     \
        o->value = v->as.member;                           \
    }                                                      \
    break

static dv_scalar scalar_of(const dv_value *v)
{
    dv_scalar s;
    memset(&s, 0, sizeof s);
    switch (v->type) {
    case DV_VALUE_INT: s.kind = DV_SCALAR_INT, s.as.i = v->as.i; break;
    case DV_VALUE_FLOAT: s.kind = DV_SCALAR_FLOAT, s.as.f = v->as.f; break;
    case DV_VALUE_BOOL: s.kind = DV_SCALAR_BOOL, s.as.b = v->as.b; break;
    default: s.kind = DV_SCALAR_COMPLEX, s.as.c = v->as.c; break;
    }
    return s;
}

/* Fields that are not a plain tensor. */
static void fill_field(dv__call *c, const dv__binding *b, size_t i, char *frame)
{
    static const dv_value none = { .type = DV_VALUE_NONE };
    const size_t slot = b->fields[i].slot, nargs = c->plan->nargs;
    const dv_value *v = slot < nargs ? &c->args[slot] : &none;
    dv_value *result = slot < nargs ? NULL : &c->outs[slot - nargs].value;
    switch (b->fields[i].type) {
    case DV_FIELD_INT: PUT(int64_t, v->as.i); break;
    case DV_FIELD_FLOAT: PUT(double, v->as.f); break;
    case DV_FIELD_BOOL: PUT(bool, v->as.b); break;
    case DV_FIELD_STRING: PUT(dv_string, v->as.s); break;
    case DV_FIELD_SCALAR: PUT(dv_scalar, scalar_of(v)); break;
    case DV_FIELD_COMPLEX: PUT(dv_complex, v->as.c); break;
    case DV_FIELD_DTYPE: PUT(dv_dtype, v->as.dtype); break;
    case DV_FIELD_DEVICE: PUT(dv_device, v->as.device); break;
    case DV_FIELD_LAYOUT: PUT(dv_layout, v->as.layout); break;
    case DV_FIELD_MEMORY_FORMAT: PUT(dv_memory_format, v->as.memory_format); break;
    case DV_FIELD_GENERATOR: PUT(const dv_generator *, v->type == DV_VALUE_NONE ? NULL : v->as.generator); break;
    case DV_FIELD_TENSORS: PUT(dv_tensors, c->lists[slot]); break;
    case DV_FIELD_MUT_TENSORS:
        PUT(dv_mut_tensors, ((dv_mut_tensors){ (dv_tensor *const *)(uintptr_t)c->lists[slot].data, c->lists[slot].size }));
        break;
    case DV_FIELD_INTS: PUT(dv_ints, v->as.ints); break;
    case DV_FIELD_FLOATS: PUT(dv_floats, v->as.floats); break;
    case DV_FIELD_BOOLS: PUT(dv_bools, v->as.bools); break;
    case DV_FIELD_STRINGS: PUT(dv_strings, v->as.strings); break;
    case DV_FIELD_SCALARS: PUT(dv_scalars, v->as.scalars); break;
    case DV_FIELD_COMPLEXES: PUT(dv_complexes, v->as.complexes); break;
    case DV_FIELD_DTYPES: PUT(dv_dtypes, v->as.dtypes); break;
    case DV_FIELD_DEVICES: PUT(dv_devices, v->as.devices); break;
    case DV_FIELD_OPT_INT: PUT_OPTIONAL(dv_opt_int, i);
    case DV_FIELD_OPT_FLOAT: PUT_OPTIONAL(dv_opt_float, f);
    case DV_FIELD_OPT_BOOL: PUT_OPTIONAL(dv_opt_bool, b);
    case DV_FIELD_OPT_STRING: PUT_OPTIONAL(dv_opt_string, s);
    case DV_FIELD_OPT_SCALAR:
        if (v->type != DV_VALUE_NONE)
            PUT(dv_opt_scalar, ((dv_opt_scalar){ true, scalar_of(v) }));
        break;
    case DV_FIELD_OPT_COMPLEX: PUT_OPTIONAL(dv_opt_complex, c);
    case DV_FIELD_OPT_DTYPE: PUT_OPTIONAL(dv_opt_dtype, dtype);
    case DV_FIELD_OPT_DEVICE: PUT_OPTIONAL(dv_opt_device, device);
    case DV_FIELD_OPT_LAYOUT: PUT_OPTIONAL(dv_opt_layout, layout);
    case DV_FIELD_OPT_MEMORY_FORMAT: PUT_OPTIONAL(dv_opt_memory_format, memory_format);
    case DV_FIELD_OPT_TENSORS:
        if (v->type != DV_VALUE_NONE)
            PUT(dv_opt_tensors, ((dv_opt_tensors){ true, c->lists[slot] }));
        break;
    case DV_FIELD_OPT_INTS: PUT_OPTIONAL(dv_opt_ints, ints);
    case DV_FIELD_OPT_FLOATS: PUT_OPTIONAL(dv_opt_floats, floats);
    case DV_FIELD_OPT_BOOLS: PUT_OPTIONAL(dv_opt_bools, bools);
    case DV_FIELD_OPT_STRINGS: PUT_OPTIONAL(dv_opt_strings, strings);
    case DV_FIELD_OPT_SCALARS: PUT_OPTIONAL(dv_opt_scalars, scalars);
    case DV_FIELD_INT_RESULT: PUT(int64_t *, result ? &result->as.i : NULL); break;
    case DV_FIELD_FLOAT_RESULT: PUT(double *, result ? &result->as.f : NULL); break;
    case DV_FIELD_BOOL_RESULT: PUT(bool *, result ? &result->as.b : NULL); break;
    default: assert(!"a field type that no binding has");
    }
}

void dv__fill_frame(dv__call *c, const dv__binding *b, char *frame)
{
    if (b->n * sizeof(void *) != b->frame_size) /* else every byte is written below: as many pointers as fit */
        memset(frame, 0, b->frame_size);
    for (uint32_t i = 0; i < b->n; i++) {
        assert(b->fields[i].slot < c->plan->nargs + c->plan->nreturns && b->fields[i].offset < b->frame_size);
        if (b->fields[i].type == DV_FIELD_TENSOR || b->fields[i].type == DV_FIELD_MUT_TENSOR)
            PUT(const dv_tensor *, c->tensors[b->fields[i].slot]);
        else
            fill_field(c, b, i, frame);
    }
}

/* ---- From fields to values ---- */

static bool same_name(const char *field, const char *slot)
{
    while (*slot && *field == *slot)
        field++, slot++;
    return !*slot && (!*field || (*field == '_' && !field[1]));
}

/* Is it laid out as the declared struct, with the same fields for the same slots? */
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
#define OPTIONAL(T, TYPE, member)   \
    if (GET(T).has) {               \
        v.type = TYPE;              \
        v.as.member = GET(T).value; \
    }                               \
    break
#define PLAIN(T, TYPE, member) \
    v.type = TYPE;             \
    v.as.member = GET(T);      \
    break

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

static dv_value value_of(uint32_t type, const char *p)
{
    dv_value v = dv_none();
    switch (type) {
    case DV_FIELD_INT: PLAIN(int64_t, DV_VALUE_INT, i);
    case DV_FIELD_FLOAT: PLAIN(double, DV_VALUE_FLOAT, f);
    case DV_FIELD_BOOL: PLAIN(bool, DV_VALUE_BOOL, b);
    case DV_FIELD_STRING: PLAIN(dv_string, DV_VALUE_STRING, s);
    case DV_FIELD_SCALAR: from_scalar(&GET(dv_scalar), &v); break;
    case DV_FIELD_COMPLEX: PLAIN(dv_complex, DV_VALUE_COMPLEX, c);
    case DV_FIELD_DTYPE: PLAIN(dv_dtype, DV_VALUE_DTYPE, dtype);
    case DV_FIELD_DEVICE: PLAIN(dv_device, DV_VALUE_DEVICE, device);
    case DV_FIELD_LAYOUT: PLAIN(dv_layout, DV_VALUE_LAYOUT, layout);
    case DV_FIELD_MEMORY_FORMAT: PLAIN(dv_memory_format, DV_VALUE_MEMORY_FORMAT, memory_format);
    case DV_FIELD_GENERATOR:
        if (GET(const dv_generator *)) {
            v.type = DV_VALUE_GENERATOR;
            v.as.generator = GET(const dv_generator *);
        }
        break;
    case DV_FIELD_TENSORS:
    case DV_FIELD_MUT_TENSORS: PLAIN(dv_tensors, DV_VALUE_TENSORS, tensors); /* the two have one layout */
    case DV_FIELD_INTS: PLAIN(dv_ints, DV_VALUE_INTS, ints);
    case DV_FIELD_FLOATS: PLAIN(dv_floats, DV_VALUE_FLOATS, floats);
    case DV_FIELD_BOOLS: PLAIN(dv_bools, DV_VALUE_BOOLS, bools);
    case DV_FIELD_STRINGS: PLAIN(dv_strings, DV_VALUE_STRINGS, strings);
    case DV_FIELD_SCALARS: PLAIN(dv_scalars, DV_VALUE_SCALARS, scalars);
    case DV_FIELD_COMPLEXES: PLAIN(dv_complexes, DV_VALUE_COMPLEXES, complexes);
    case DV_FIELD_DTYPES: PLAIN(dv_dtypes, DV_VALUE_DTYPES, dtypes);
    case DV_FIELD_DEVICES: PLAIN(dv_devices, DV_VALUE_DEVICES, devices);
    case DV_FIELD_OPT_INT: OPTIONAL(dv_opt_int, DV_VALUE_INT, i);
    case DV_FIELD_OPT_FLOAT: OPTIONAL(dv_opt_float, DV_VALUE_FLOAT, f);
    case DV_FIELD_OPT_BOOL: OPTIONAL(dv_opt_bool, DV_VALUE_BOOL, b);
    case DV_FIELD_OPT_STRING: OPTIONAL(dv_opt_string, DV_VALUE_STRING, s);
    case DV_FIELD_OPT_SCALAR:
        if (GET(dv_opt_scalar).has)
            from_scalar(&GET(dv_opt_scalar).value, &v);
        break;
    case DV_FIELD_OPT_COMPLEX: OPTIONAL(dv_opt_complex, DV_VALUE_COMPLEX, c);
    case DV_FIELD_OPT_DTYPE: OPTIONAL(dv_opt_dtype, DV_VALUE_DTYPE, dtype);
    case DV_FIELD_OPT_DEVICE: OPTIONAL(dv_opt_device, DV_VALUE_DEVICE, device);
    case DV_FIELD_OPT_LAYOUT: OPTIONAL(dv_opt_layout, DV_VALUE_LAYOUT, layout);
    case DV_FIELD_OPT_MEMORY_FORMAT: OPTIONAL(dv_opt_memory_format, DV_VALUE_MEMORY_FORMAT, memory_format);
    case DV_FIELD_OPT_TENSORS: OPTIONAL(dv_opt_tensors, DV_VALUE_TENSORS, tensors);
    case DV_FIELD_OPT_INTS: OPTIONAL(dv_opt_ints, DV_VALUE_INTS, ints);
    case DV_FIELD_OPT_FLOATS: OPTIONAL(dv_opt_floats, DV_VALUE_FLOATS, floats);
    case DV_FIELD_OPT_BOOLS: OPTIONAL(dv_opt_bools, DV_VALUE_BOOLS, bools);
    case DV_FIELD_OPT_STRINGS: OPTIONAL(dv_opt_strings, DV_VALUE_STRINGS, strings);
    case DV_FIELD_OPT_SCALARS: OPTIONAL(dv_opt_scalars, DV_VALUE_SCALARS, scalars);
    default: v = dv_default(); break; /* a number that comes back through a pointer */
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
        if (b->fields[i].type == DV_FIELD_INT_RESULT && *(int64_t **)p)
            **(int64_t **)p = v->as.i;
        else if (b->fields[i].type == DV_FIELD_FLOAT_RESULT && *(double **)p)
            **(double **)p = v->as.f;
        else if (b->fields[i].type == DV_FIELD_BOOL_RESULT && *(bool **)p)
            **(bool **)p = v->as.b;
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

/* Every tensor result must have its field: nobody could free what a callee makes. */
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
