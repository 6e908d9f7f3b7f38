/* A call from a struct: each field becomes a value. When the struct is the operator's own, which it nearly always is, nothing is
 * looked up; otherwise it is bound like a declaration. */
#include <stdio.h>

#include "base/memory.h"
#include "call/call.h"

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

static int call_bound(dv_operator *op, const dv__binding *b, char *frame, const dv_host *host, uint32_t inner)
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
    const int status = dv__call_values(op, args, nargs, results, nresults, host, inner);
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

static int call_frame(
    dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host, uint32_t inner)
{
    if (!frame || !fields)
        return dv_fail(DV_EINVAL, "%s: a call from a struct needs the struct and its fields: found NULL", op->name);
    if (!atomic_load_explicit(&op->alive, memory_order_acquire))
        return dv_fail(DV_EUNLOADED, "%s: the operator's library was unloaded", op->name);
    if (is_own(op, fields, frame_size))
        return call_bound(op, op->binding, frame, host, inner);
    dv__arena arena = { NULL };
    dv__binding *b;
    int status = dv__binding_make(op->name, op->schema, fields, frame_size, true, &arena, &b);
    if (!status && !(status = check_results(op, b)))
        status = call_bound(op, b, frame, host, inner);
    dv__arena_deinit(&arena);
    return status;
}

int dv_call_frame(dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host)
{
    if (!op)
        return dv_fail(DV_EINVAL, "dv_call_frame: no operator given: found NULL");
    return call_frame(op, frame, frame_size, fields, host, 0);
}

int dv__call_named(
    const char *name, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host, uint32_t inner)
{
    dv_operator *op;
    int status = dv_find(name, &op);
    if (status)
        return status;
    status = call_frame(op, frame, frame_size, fields, host, inner);
    dv_operator_unref(op);
    return status;
}
