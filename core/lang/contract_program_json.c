/* A contract's program as JSON (docs/json.md). */
#include "lang/contract_internal.h"

/* ---- Operands ------------------------------------------------------------------------------------------------------------ */

static void program_json_literal(dv__strbuf *to, enum dv__type_kind type, const dv__reg *value)
{
    dv__strbuf_printf(to, "[\"%s\", ", dv__type_rows[type].json);
    switch (type) {
    case DV__TYPE_BOOL: dv__strbuf_append_str(to, value->i ? "true" : "false"); break;
    case DV__TYPE_NUMBER:
    case DV__TYPE_REAL:
        if (type == DV__TYPE_NUMBER && !value->is_real)
            dv__strbuf_printf(to, "%lld", (long long)value->i);
        else
            dv__strbuf_printf(to, "%.17g", value->f);
        break;
    case DV__TYPE_STRING: dv__json_write_string(to, value->s, (size_t)value->n); break;
    case DV__TYPE_DTYPE: dv__strbuf_printf(to, "\"%s\"", dv_dtype_name(value->dtype)); break;
    case DV__TYPE_DEVICE: dv__strbuf_printf(to, "\"%s\"", dv_device_name(value->device.type)); break;
    case DV__TYPE_DIMS: dv__strbuf_append_str(to, "[]"); break;
    default: dv__strbuf_printf(to, "%lld", (long long)value->i);
    }
    dv__strbuf_append_str(to, "]");
}

/* Writes an operand: a register's number, or a literal as [type, value]. */
static void program_json_operand(dv__strbuf *to, const dv__program *p, dv__operand operand)
{
    if (operand >= 0)
        dv__strbuf_printf(to, "%d", (int)operand);
    else
        program_json_literal(to, (enum dv__type_kind)p->constant_types[-1 - operand], &p->constants[-1 - operand]);
}

/* Writes a member with an operand; DV__NEVER gives null. */
static void program_json_operand_or_null(dv__strbuf *to, const dv__program *p, const char *key, dv__operand operand)
{
    dv__json_write_key(to, key);
    if (operand == DV__NEVER)
        dv__strbuf_append_str(to, "null");
    else
        program_json_operand(to, p, operand);
}

static void program_json_operands(dv__strbuf *to, const dv__program *p, const dv__operand *in, uint32_t n)
{
    dv__strbuf_append_str(to, "[");
    for (uint32_t i = 0; i < n; i++) {
        dv__json_write_key(to, NULL);
        program_json_operand(to, p, in[i]);
    }
    dv__strbuf_append_str(to, "]");
}

/* ---- Messages ------------------------------------------------------------------------------------------------------------ */

static void program_json_parts(dv__strbuf *to, const dv__program *p, const dv__message_part *part);

static void program_json_join(dv__strbuf *to, const dv__program *p, const dv__message_part *join)
{
    dv__strbuf_append_str(to, "{\"join\": [");
    for (const dv__message_part *part = join->then; part; part = part->next) {
        dv__json_write_key(to, NULL);
        program_json_parts(to, p, part->then);
    }
    dv__strbuf_append_str(to, "]");
    dv__json_write_member(to, "open", join->text);
    dv__json_write_member(to, "between", ", ");
    dv__json_write_member(to, "close", join->close);
    dv__strbuf_append_str(to, "}");
}

static void program_json_part(dv__strbuf *to, const dv__program *p, const dv__message_part *part)
{
    switch ((enum dv__message_part_kind)part->kind) {
    case DV__PART_JOIN: program_json_join(to, p, part); return;
    case DV__PART_REGISTER:
        dv__strbuf_append_str(to, "{\"show\": ");
        program_json_operand(to, p, part->a);
        break;
    case DV__PART_IF:
        dv__strbuf_append_str(to, "{\"if\": ");
        program_json_operand(to, p, part->a);
        dv__strbuf_append_str(to, ", \"then\": ");
        program_json_parts(to, p, part->then);
        dv__strbuf_append_str(to, ", \"else\": ");
        program_json_parts(to, p, part->other);
        break;
    case DV__PART_ARGUMENT: dv__strbuf_printf(to, "{\"argument\": %d", (int)part->slot); break;
    case DV__PART_WRONG_AXIS:
    case DV__PART_REPEATED_AXIS:
        dv__strbuf_append_str(to, part->kind == DV__PART_REPEATED_AXIS ? "{\"repeated_axis\": " : "{\"wrong_axis\": ");
        program_json_operands(to, p, (dv__operand[]){ part->a, part->b }, 2);
        break;
    case DV__PART_BROADCAST_CONFLICT:
        dv__strbuf_append_str(to, "{\"conflict\": ");
        program_json_operands(to, p, part->operands, part->noperands);
        break;
    case DV__PART_DTYPES:
        dv__strbuf_append_str(to, "{\"dtypes\": ");
        program_json_operands(to, p, part->operands, part->noperands);
        break;
    default: dv__strbuf_append_str(to, "{\"position\": true"); break;
    }
    dv__strbuf_append_str(to, "}");
}

/* Writes a list of message parts. Adjacent parts of text become one string. */
static void program_json_parts(dv__strbuf *to, const dv__program *p, const dv__message_part *part)
{
    dv__strbuf_append_str(to, "[");
    while (part) {
        dv__strbuf text = { 0 }; /* adjacent parts of text, joined into one JSON string */
        dv__json_write_key(to, NULL);
        const bool is_text = part->kind == DV__PART_TEXT;
        for (; part && part->kind == DV__PART_TEXT; part = part->next)
            dv__strbuf_append_str(&text, part->text);
        if (is_text) {
            dv__json_write_string(to, text.size ? text.data : "", text.size);
            to->failed |= text.failed;
            dv__strbuf_deinit(&text);
            continue;
        }
        program_json_part(to, p, part);
        part = part->next;
    }
    dv__strbuf_append_str(to, "]");
}

/* Returns the name of an error's kind in JSON: "shape", "dtype", "device" or "value". */
static const char *status_get_json_name(int status)
{
    switch (status) {
    case DV_ESHAPE: return "shape";
    case DV_EDTYPE: return "dtype";
    case DV_EDEVICE: return "device";
    default: return "value";
    }
}

/* ---- Steps --------------------------------------------------------------------------------------------------------------- */

static void program_json_steps(dv__strbuf *to, const dv__contract *c, uint32_t begin, uint32_t end);

/* Writes the members of a step that is a block: its registers, sums and body. */
static void program_json_block(dv__strbuf *to, const dv__contract *c, const dv__step *s, uint32_t step_index)
{
    if (s->op == DV__OP_EACH_TENSOR) {
        dv__strbuf_printf(to, ", \"index\": %d, \"first\": %d, \"carry\": [", (int)s->index, (int)s->first);
        for (uint32_t i = 0; i < s->ncarry; i++) {
            dv__json_write_key(to, NULL);
            dv__strbuf_printf(to, "{\"to\": %d, \"from\": ", (int)s->carry[i].to);
            program_json_operand(to, c->program, s->carry[i].from);
            dv__strbuf_append_str(to, ", \"next\": ");
            program_json_operand(to, c->program, s->carry[i].next);
            dv__strbuf_append_str(to, "}");
        }
        dv__strbuf_append_str(to, "]");
    }
    if (s->op == DV__OP_EACH_VALUE && s->index >= 0)
        dv__strbuf_printf(to, ", \"before\": %d", (int)s->index);
    dv__strbuf_append_str(to, ", \"steps\": ");
    program_json_steps(to, c, step_index + 1, step_index + 1 + (uint32_t)s->body_size);
}

static void program_json_step(dv__strbuf *to, const dv__contract *c, uint32_t step_index)
{
    const dv__program *p = c->program;
    const dv__step *s = &p->steps[step_index];
    dv__strbuf_printf(to, "{\"op\": \"%s\"", dv__operation_rows[s->op].name);
    if (s->to >= 0)
        dv__strbuf_printf(to, ", \"to\": %d", (int)s->to);
    if (dv__operation_rows[s->op].reads_slot)
        dv__strbuf_printf(to, ", \"slot\": %d", (int)s->slot);
    if (s->ninputs || s->op == DV__OP_PACK) {
        dv__strbuf_append_str(to, ", \"in\": ");
        program_json_operands(to, p, dv__step_get_operands(s), s->ninputs);
    }
    if (s->guard != DV__ALWAYS)
        program_json_operand_or_null(to, p, "guard", s->guard);
    if (s->flags & DV__STEP_MESSAGE_ONLY)
        dv__strbuf_append_str(to, ", \"say\": true");
    if (s->error) {
        dv__json_write_member(to, "error", status_get_json_name(s->error->status));
        dv__strbuf_append_str(to, ", \"message\": ");
        program_json_parts(to, p, s->error->message);
    }
    if (dv__step_is_block(s))
        program_json_block(to, c, s, step_index);
    dv__strbuf_append_str(to, "}");
}

/* Writes the steps from begin to end as a list; a block's body is inside of its step. */
static void program_json_steps(dv__strbuf *to, const dv__contract *c, uint32_t begin, uint32_t end)
{
    dv__strbuf_append_str(to, "[");
    for (uint32_t i = begin; i < end; i++) {
        dv__json_write_key(to, NULL);
        program_json_step(to, c, i);
        i += (uint32_t)c->program->steps[i].body_size;
    }
    dv__strbuf_append_str(to, "]");
}

/* ---- Variables, results and costs ---------------------------------------------------------------------------------------- */

static void program_json_variable(dv__strbuf *to, uint32_t reg, const char *kind, const char *name)
{
    dv__json_write_key(to, NULL);
    dv__strbuf_printf(to, "{\"register\": %u, \"kind\": \"%s\"", reg, kind);
    dv__json_write_member(to, "name", name);
    dv__strbuf_append_str(to, "}");
}

static void program_json_variables(dv__strbuf *to, const dv__contract *c)
{
    uint32_t at = 0;
    dv__strbuf_append_str(to, "\"variables\": [");
    for (uint32_t i = 0; i < c->ndims; i++, at++)
        program_json_variable(to, at, "dim", c->dims[i].name);
    for (uint32_t i = 0; i < c->nvariadics; i++, at++)
        if (!c->variadics[i].index_name) /* *s{i} has no value in a register, so it is left out */
            program_json_variable(to, at, "run", c->variadics[i].name);
    for (uint32_t i = 0; i < c->ndtypes; i++, at++)
        program_json_variable(to, at, "dtype", c->dtypes[i].name);
    program_json_variable(to, at, "device", "");
    dv__strbuf_append_str(to, "]");
}

static void program_json_result(dv__strbuf *to, const dv__contract *c, const dv__program_result *r)
{
    static const char *const kinds[] = { "new", "like", "view", "argument", "absent", "function" };
    const dv__program *p = c->program;
    dv__strbuf_printf(to, "{\"slot\": %d", (int)r->slot);
    program_json_operand_or_null(
        to, p, "guard", r->guard == DV__ALWAYS ? DV__NEVER : r->guard); /* a guard that always holds is null */
    dv__json_write_member(to, "kind", kinds[r->kind]);
    program_json_operand_or_null(to, p, "shape", r->shape);
    program_json_operand_or_null(to, p, "dtype", r->dtype);
    program_json_operand_or_null(to, p, "device", r->device);
    dv__strbuf_append_str(to, ", \"of\": ");
    if (r->source_slot < 0)
        dv__strbuf_append_str(to, "null");
    else
        dv__strbuf_printf(to, "%d", (int)r->source_slot);
    program_json_operand_or_null(to, p, "strides", r->strides);
    program_json_operand_or_null(to, p, "offset", r->offset);
    if (r->pattern->view_transform) {
        dv__strbuf_printf(to, ", \"transform\": {\"op\": \"%s\", \"in\": ", r->pattern->view_transform->name);
        program_json_operands(to, p, r->transform, r->pattern->view_transform->n);
        dv__strbuf_append_str(to, "}");
    } else {
        dv__strbuf_append_str(to, ", \"transform\": null");
    }
    if (r->list_count.value == DV__NEVER) {
        dv__strbuf_append_str(to, ", \"list\": null");
    } else {
        dv__strbuf_append_str(to, ", \"list\": {\"count\": ");
        program_json_operand(to, p, r->list_count.value);
        dv__strbuf_printf(to, ", \"index\": %d, \"steps\": ", (int)r->index);
        program_json_steps(to, c, r->list_count.begin, r->list_count.end);
        dv__strbuf_append_str(to, "}");
    }
    dv__strbuf_printf(to, ", \"unbacked\": %s, \"steps\": ", r->pattern->is_unbacked ? "true" : "false");
    program_json_steps(to, c, r->section.begin, r->section.end);
    dv__strbuf_append_str(to, "}");
}

/* Writes a member with the section of a cost; null if it is not declared. */
static void program_json_cost(dv__strbuf *to, const dv__contract *c, const char *key, const dv__section *s)
{
    dv__strbuf_printf(to, ", \"%s\": ", key);
    if (s->value == DV__ALWAYS) {
        dv__strbuf_append_str(to, "null");
        return;
    }
    dv__strbuf_append_str(to, "{\"value\": ");
    program_json_operand(to, c->program, s->value);
    dv__strbuf_append_str(to, ", \"steps\": ");
    program_json_steps(to, c, s->begin, s->end);
    dv__strbuf_append_str(to, "}");
}

void dv__program_json(const dv__contract *c, dv__strbuf *to)
{
    const dv__program *p = c->program;
    dv__strbuf_append_str(to, "{\"version\": 1, \"registers\": [");
    for (uint32_t i = 0; i < p->nregisters; i++)
        dv__json_write_member(to, NULL, dv__type_rows[p->types[i]].json);
    dv__strbuf_append_str(to, "], ");
    program_json_variables(to, c);
    dv__strbuf_append_str(to, ", \"taken\": [");
    for (uint32_t g = 0; g < c->ngroups; g++) {
        dv__json_write_key(to, NULL);
        program_json_operands(to, p, p->is_selected[g], c->groups[g].n);
    }
    dv__strbuf_append_str(to, "], \"solve\": ");
    program_json_steps(to, c, 0, p->solve_end_step);
    dv__strbuf_append_str(to, ", \"results\": [");
    for (uint32_t i = 0; i < p->nresults; i++) {
        dv__json_write_key(to, NULL);
        program_json_result(to, c, &p->results[i]);
    }
    dv__strbuf_append_str(to, "]");
    program_json_cost(to, c, "workspace", &p->workspace);
    program_json_cost(to, c, "flops", &p->flops);
    program_json_cost(to, c, "bytes", &p->bytes);
    dv__strbuf_append_str(to, "}");
}
