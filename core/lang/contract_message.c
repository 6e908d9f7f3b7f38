/* Builds the message of a failed check from its parts, in a fixed buffer: failing never allocates. */
#include "lang/contract_internal.h"

#include <stdio.h>

/* Appends formatted text. What does not fit is cut off. */
void dv__fixed_text_add(dv__fixed_text *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(w->data + w->n, sizeof w->data - w->n, format, args);
    va_end(args);
    if (n > 0)
        w->n = w->n + (size_t)n < sizeof w->data ? w->n + (size_t)n : sizeof w->data - 1;
}

/* Prints sizes as "4, 6", without brackets. A size that partial inference does not know (INT64_MIN) is "?". */
static void message_print_sizes_unbracketed(dv__fixed_text *w, const int64_t *sizes, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (sizes[i] == INT64_MIN)
            dv__fixed_text_add(w, "%s?", i ? ", " : "");
        else
            dv__fixed_text_add(w, "%s%lld", i ? ", " : "", (long long)sizes[i]);
}

/* Appends sizes as "[4, 6]". */
void dv__fixed_text_add_sizes(dv__fixed_text *w, const int64_t *sizes, int32_t n)
{
    dv__fixed_text_add(w, "[");
    message_print_sizes_unbracketed(w, sizes, n);
    dv__fixed_text_add(w, "]");
}

/* Prints a device as "cpu" or "cuda:0". */
static void message_print_device(dv__fixed_text *w, dv_device d)
{
    dv__fixed_text_add(w, "%s", dv_device_name(d.type));
    if (d.type != DV_CPU && d.type != DV_META)
        dv__fixed_text_add(w, ":%d", (int)d.id);
}

/* Prints the value of a register or literal, by its type. A value that partial inference does not know is "?". */
static void message_print_register(dv__fixed_text *w, const dv__evaluator *r, dv__operand operand)
{
    const dv__reg *value = dv__eval_get_operand(r, operand);
    if (operand >= 0 && r->is_register_known && !r->is_register_known[operand]) {
        dv__fixed_text_add(w, "?");
        return;
    }
    switch (dv__eval_get_operand_type(r, operand)) {
    case DV__TYPE_BOOL: dv__fixed_text_add(w, "%s", value->i ? "True" : "False"); break;
    case DV__TYPE_DIMS: message_print_sizes_unbracketed(w, value->sizes, value->n); break;
    case DV__TYPE_DTYPE: dv__fixed_text_add(w, "%s", dv_dtype_name(value->dtype)); break;
    case DV__TYPE_DEVICE: message_print_device(w, value->device); break;
    case DV__TYPE_STRING:
        if (value->s)
            dv__fixed_text_add(w, "\"%.*s\"", value->n > 60 ? 60 : (int)value->n, value->s);
        else
            dv__fixed_text_add(w, "None");
        break;
    case DV__TYPE_REAL: dv__fixed_text_add(w, "%g", value->f); break;
    case DV__TYPE_NUMBER:
        if (value->is_real) {
            dv__fixed_text_add(w, "%g", value->f);
            break;
        } /* fall through */
    default: dv__fixed_text_add(w, "%lld", (long long)value->i);
    }
}

/* Prints an argument as "n = 3", a tensor as "x of rank 2". */
static void message_print_argument(dv__fixed_text *w, const dv__evaluator *r, int32_t slot)
{
    const dv_value *value = &r->args[slot];
    const char *name = r->c->schema->args[slot].name;
    switch (value->type) {
    case DV_VALUE_INT: dv__fixed_text_add(w, "%s = %lld", name, (long long)value->as.i); break;
    case DV_VALUE_FLOAT: dv__fixed_text_add(w, "%s = %g", name, value->as.f); break;
    case DV_VALUE_BOOL: dv__fixed_text_add(w, "%s = %s", name, value->as.b ? "True" : "False"); break;
    case DV_VALUE_UNKNOWN: dv__fixed_text_add(w, "%s = ?", name); break;
    case DV_VALUE_TENSOR:
        if (value->as.tensor->ndim < 0)
            dv__fixed_text_add(w, "%s of rank ?", name);
        else
            dv__fixed_text_add(w, "%s of rank %d", name, (int)value->as.tensor->ndim);
        break;
    case DV_VALUE_STRING:
        dv__fixed_text_add(w, "%s = \"%.*s\"", name, (int)(value->as.s.size > 40 ? 40 : value->as.s.size), value->as.s.data);
        break;
    case DV_VALUE_INTS:
        if (!value->as.ints.size) {
            dv__fixed_text_add(
                w, "%s = a value", name); /* Python passes an empty list of any type as an int[], so the type is not named */
            break;
        }
        dv__fixed_text_add(w, "%s = ", name);
        dv__fixed_text_add_sizes(w, value->as.ints.data, (int32_t)(value->as.ints.size < 64 ? value->as.ints.size : 64));
        break;
    case DV_VALUE_DTYPE: dv__fixed_text_add(w, "%s = %s", name, dv_dtype_name(value->as.dtype)); break;
    default: dv__fixed_text_add(w, "%s = %s", name, dv__value_is_present(value) ? "a value" : "None");
    }
}

/* Prints the first integer of an int[] that is no dim of the rank or, for DV__PART_REPEATED_AXIS, the first dim that appears
 * twice. */
static void message_print_wrong_or_repeated_axis(dv__fixed_text *w, const dv__evaluator *r, const dv__message_part *p)
{
    const dv__reg *axes = dv__eval_get_operand(r, p->a);
    const int64_t rank = dv__eval_get_operand(r, p->b)->i;
    uint64_t seen = 0;
    for (int32_t i = 0; i < axes->n; i++) {
        const int64_t axis = dv__axis_normalize(axes->sizes[i], rank);
        if (p->kind == DV__PART_WRONG_AXIS ? !dv__axis_is_valid(axes->sizes[i], rank) : seen >> (axis & 63) & 1) {
            dv__fixed_text_add(w, "%lld", (long long)(p->kind == DV__PART_WRONG_AXIS ? axes->sizes[i] : axis));
            return;
        }
        seen |= 1ull << (axis & 63);
    }
}

/* Prints the two sizes and the dim where shapes do not broadcast, "4 and 3 at dim -1". */
static void message_print_broadcast_conflict(dv__fixed_text *w, const dv__evaluator *r, const dv__message_part *p)
{
    const dv__reg *shapes[256];
    int64_t broadcast_sizes[DV_MAX_NDIM], conflict[3] = { 0, 0, 0 };
    for (uint32_t i = 0; i < p->noperands; i++)
        shapes[i] = dv__eval_get_operand(r, p->operands[i]);
    dv__dims_try_broadcast(shapes, p->noperands, NULL, broadcast_sizes, conflict);
    dv__fixed_text_add(w, "%lld and %lld at dim -%d", (long long)conflict[0], (long long)conflict[1], (int)conflict[2]);
}

/* Prints the dtypes of promote() up to the one that does not promote, at most 7. */
static void message_print_unpromotable_dtypes(dv__fixed_text *w, const dv__evaluator *r, const dv__message_part *p)
{
    uint32_t keys[128], nvisited = 0, nprinted = 0;
    int64_t priorities[128];
    for (uint32_t i = 0; i < p->noperands / 2u; i++) {
        keys[i] = dv_dtype_key(dv__eval_get_operand(r, p->operands[2 * i])->dtype);
        priorities[i] = dv__eval_get_operand(r, p->operands[2 * i + 1])->i;
    }
    dv__dtype_promoted_key(keys, priorities, p->noperands / 2u, &nvisited);
    for (uint32_t i = 0; i < nvisited && nprinted < 7; i++)
        if (priorities[i] < DV__PRIORITY_ABSENT)
            dv__fixed_text_add(w, "%s%s", nprinted++ ? ", " : "", dv_dtype_name(dv_dtype_from_key(keys[i])));
    if (!nprinted)
        dv__fixed_text_add(w, "none");
}

static void message_print_parts(dv__fixed_text *w, const dv__evaluator *r, const dv__message_part *p);

/* Prints the parts of a JOIN that are not empty, with ", " between them and the JOIN's texts around them. */
static void message_print_join(dv__fixed_text *w, const dv__evaluator *r, const dv__message_part *join)
{
    const char *before = join->text;
    const size_t start = w->n;
    for (const dv__message_part *p = join->then; p; p = p->next) {
        const size_t at = w->n;
        dv__fixed_text_add(w, "%s", before);
        const size_t begun = w->n;
        message_print_parts(w, r, p->then);
        if (w->n == begun)
            w->n = at, w->data[at] = 0;
        else
            before = ", ";
    }
    if (w->n != start)
        dv__fixed_text_add(w, "%s", join->close);
}

static void message_print_part(dv__fixed_text *w, const dv__evaluator *r, const dv__message_part *p)
{
    switch ((enum dv__message_part_kind)p->kind) {
    case DV__PART_TEXT: dv__fixed_text_add(w, "%s", p->text); break;
    case DV__PART_REGISTER: message_print_register(w, r, p->a); break;
    case DV__PART_IF: message_print_parts(w, r, dv__eval_get_operand(r, p->a)->i ? p->then : p->other); break;
    case DV__PART_JOIN: message_print_join(w, r, p); break;
    case DV__PART_GROUP: message_print_parts(w, r, p->then); break;
    case DV__PART_ARGUMENT: message_print_argument(w, r, p->slot); break;
    case DV__PART_WRONG_AXIS:
    case DV__PART_REPEATED_AXIS: message_print_wrong_or_repeated_axis(w, r, p); break;
    case DV__PART_BROADCAST_CONFLICT: message_print_broadcast_conflict(w, r, p); break;
    case DV__PART_DTYPES: message_print_unpromotable_dtypes(w, r, p); break;
    case DV__PART_ELEMENT_INDEX: dv__fixed_text_add_sizes(w, r->element_index, r->element_ndim); break;
    }
}

static void message_print_parts(dv__fixed_text *w, const dv__evaluator *r, const dv__message_part *p)
{
    for (; p; p = p->next)
        message_print_part(w, r, p);
}

/* Fails with the status and message of a failed step; the message begins with the operator's name. Returns the status. */
int dv__step_error_raise(const dv__evaluator *r, const dv__step_error *error)
{
    dv__fixed_text w = { 0 };
    message_print_parts(&w, r, error->message);
    return dv_fail(error->status, "%s: %s", r->c->name, w.data);
}
