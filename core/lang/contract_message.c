/* Builds the message of a failed check from its parts, in a fixed buffer: failing never allocates. */
#include "lang/contract_internal.h"

#include <stdio.h>

void dv__say(dv__words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(w->data + w->n, sizeof w->data - w->n, format, args);
    va_end(args);
    if (n > 0)
        w->n = w->n + (size_t)n < sizeof w->data ? w->n + (size_t)n : sizeof w->data - 1;
}

static void say_dims(dv__words *w, const int64_t *sizes, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (sizes[i] == INT64_MIN) /* of a call that is partly known */
            dv__say(w, "%s?", i ? ", " : "");
        else
            dv__say(w, "%s%lld", i ? ", " : "", (long long)sizes[i]);
}

void dv__say_sizes(dv__words *w, const int64_t *sizes, int32_t n)
{
    dv__say(w, "[");
    say_dims(w, sizes, n);
    dv__say(w, "]");
}

static void say_device(dv__words *w, dv_device d)
{
    dv__say(w, "%s", dv_device_name(d.type));
    if (d.type != DV_CPU && d.type != DV_META)
        dv__say(w, ":%d", (int)d.id);
}

static void say_register(dv__words *w, const dv__run *r, dv__operand x)
{
    const dv__reg *value = dv__read(r, x);
    if (x >= 0 && r->shown && !r->shown[x]) {
        dv__say(w, "?");
        return;
    }
    switch (dv__operand_type(r, x)) {
    case DV__RTYPE_BOOL: dv__say(w, "%s", value->i ? "True" : "False"); break;
    case DV__RTYPE_DIMS: say_dims(w, value->sizes, value->n); break;
    case DV__RTYPE_DTYPE: dv__say(w, "%s", dv_dtype_name(value->dtype)); break;
    case DV__RTYPE_DEVICE: say_device(w, value->device); break;
    case DV__RTYPE_STRING:
        if (value->s)
            dv__say(w, "\"%.*s\"", value->n > 60 ? 60 : (int)value->n, value->s);
        else
            dv__say(w, "None");
        break;
    case DV__RTYPE_REAL: dv__say(w, "%g", value->f); break;
    case DV__RTYPE_NUMBER:
        if (value->real) {
            dv__say(w, "%g", value->f);
            break;
        } /* fall through */
    default: dv__say(w, "%lld", (long long)value->i);
    }
}

/* "n = 3" */
static void say_argument(dv__words *w, const dv__run *r, int32_t slot)
{
    const dv_value *value = &r->args[slot];
    const char *name = r->c->schema->args[slot].name;
    switch (value->type) {
    case DV_VALUE_INT: dv__say(w, "%s = %lld", name, (long long)value->as.i); break;
    case DV_VALUE_FLOAT: dv__say(w, "%s = %g", name, value->as.f); break;
    case DV_VALUE_BOOL: dv__say(w, "%s = %s", name, value->as.b ? "True" : "False"); break;
    case DV_VALUE_UNKNOWN: dv__say(w, "%s = ?", name); break;
    case DV_VALUE_TENSOR:
        if (value->as.tensor->ndim < 0)
            dv__say(w, "%s of rank ?", name);
        else
            dv__say(w, "%s of rank %d", name, (int)value->as.tensor->ndim);
        break;
    case DV_VALUE_STRING:
        dv__say(w, "%s = \"%.*s\"", name, (int)(value->as.s.size > 40 ? 40 : value->as.s.size), value->as.s.data);
        break;
    case DV_VALUE_INTS:
        if (!value->as.ints.size) {
            dv__say(w, "%s = a value", name); /* Python cannot tell an empty list of integers from another one */
            break;
        }
        dv__say(w, "%s = ", name);
        dv__say_sizes(w, value->as.ints.data, (int32_t)(value->as.ints.size < 64 ? value->as.ints.size : 64));
        break;
    case DV_VALUE_DTYPE: dv__say(w, "%s = %s", name, dv_dtype_name(value->as.dtype)); break;
    default: dv__say(w, "%s = %s", name, dv__is_present(value) ? "a value" : "None");
    }
}

/* The first axis that is out of range, or that repeats. */
static void say_axis(dv__words *w, const dv__run *r, const dv__part *p)
{
    const dv__reg *axes = dv__read(r, p->a);
    const int64_t rank = dv__read(r, p->b)->i;
    uint64_t seen = 0;
    for (int32_t i = 0; i < axes->n; i++) {
        const int64_t axis = dv__axis_from(axes->sizes[i], rank);
        if (p->kind == DV__PART_WRONG_AXIS ? !dv__is_axis(axes->sizes[i], rank) : seen >> (axis & 63) & 1) {
            dv__say(w, "%lld", (long long)(p->kind == DV__PART_WRONG_AXIS ? axes->sizes[i] : axis));
            return;
        }
        seen |= 1ull << (axis & 63);
    }
}

static void say_conflict(dv__words *w, const dv__run *r, const dv__part *p)
{
    const dv__reg *shapes[256];
    int64_t room[DV_MAX_NDIM], conflict[3] = { 0, 0, 0 };
    for (uint32_t i = 0; i < p->nmany; i++)
        shapes[i] = dv__read(r, p->many[i]);
    dv__broadcast(shapes, p->nmany, NULL, room, conflict);
    dv__say(w, "%lld and %lld at dim -%d", (long long)conflict[0], (long long)conflict[1], (int)conflict[2]);
}

static void say_dtypes(dv__words *w, const dv__run *r, const dv__part *p)
{
    uint32_t keys[128], tried = 0, said = 0;
    int64_t sorts[128];
    for (uint32_t i = 0; i < p->nmany / 2u; i++) {
        keys[i] = dv_dtype_key(dv__read(r, p->many[2 * i])->dtype);
        sorts[i] = dv__read(r, p->many[2 * i + 1])->i;
    }
    dv__promote(keys, sorts, p->nmany / 2u, &tried);
    for (uint32_t i = 0; i < tried && said < 7; i++)
        if (sorts[i] < 3)
            dv__say(w, "%s%s", said++ ? ", " : "", dv_dtype_name(dv_dtype_from_key(keys[i])));
    if (!said)
        dv__say(w, "none");
}

static void say_parts(dv__words *w, const dv__run *r, const dv__part *p);

static void say_join(dv__words *w, const dv__run *r, const dv__part *join)
{
    const char *before = join->text;
    const size_t start = w->n;
    for (const dv__part *p = join->then; p; p = p->next) {
        const size_t at = w->n;
        dv__say(w, "%s", before);
        const size_t begun = w->n;
        say_parts(w, r, p->then);
        if (w->n == begun)
            w->n = at, w->data[at] = 0;
        else
            before = ", ";
    }
    if (w->n != start)
        dv__say(w, "%s", join->close);
}

static void say_part(dv__words *w, const dv__run *r, const dv__part *p)
{
    switch ((enum dv__part_kind)p->kind) {
    case DV__PART_TEXT: dv__say(w, "%s", p->text); break;
    case DV__PART_SHOW: say_register(w, r, p->a); break;
    case DV__PART_IF: say_parts(w, r, dv__read(r, p->a)->i ? p->then : p->other); break;
    case DV__PART_JOIN: say_join(w, r, p); break;
    case DV__PART_ALL: say_parts(w, r, p->then); break;
    case DV__PART_ARGUMENT: say_argument(w, r, p->slot); break;
    case DV__PART_WRONG_AXIS:
    case DV__PART_TWICE: say_axis(w, r, p); break;
    case DV__PART_CONFLICT: say_conflict(w, r, p); break;
    case DV__PART_DTYPES: say_dtypes(w, r, p); break;
    case DV__PART_POSITION: dv__say_sizes(w, r->position, r->position_rank); break;
    }
}

static void say_parts(dv__words *w, const dv__run *r, const dv__part *p)
{
    for (; p; p = p->next)
        say_part(w, r, p);
}

int dv__fault_raise(const dv__run *r, const dv__fault *fault)
{
    dv__words w = { 0 };
    say_parts(&w, r, fault->message);
    return dv_fail(fault->status, "%s: %s", r->c->name, w.data);
}
