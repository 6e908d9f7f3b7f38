/* A contract's program as JSON (docs/json.md). */
#include "lang/contract_internal.h"

/* ---- Operands ---------------------------------------------------------------------------------------------------------- */

static void put_literal(dv__text *to, enum dv__rtype type, const dv__reg *value)
{
    dv__text_add(to, "[\"%s\", ", dv__rtype_name(type));
    switch (type) {
    case DV__RTYPE_BOOL: dv__text_puts(to, value->i ? "true" : "false"); break;
    case DV__RTYPE_NUMBER:
    case DV__RTYPE_REAL:
        if (type == DV__RTYPE_NUMBER && !value->real)
            dv__text_add(to, "%lld", (long long)value->i);
        else
            dv__text_add(to, "%.17g", value->f);
        break;
    case DV__RTYPE_STRING: dv__text_json(to, value->s, (size_t)value->n); break;
    case DV__RTYPE_DTYPE: dv__text_add(to, "\"%s\"", dv_dtype_name(value->dtype)); break;
    case DV__RTYPE_DEVICE: dv__text_add(to, "\"%s\"", dv_device_name(value->device.type)); break;
    case DV__RTYPE_DIMS: dv__text_puts(to, "[]"); break;
    default: dv__text_add(to, "%lld", (long long)value->i);
    }
    dv__text_puts(to, "]");
}

static void put_operand(dv__text *to, const dv__program *p, dv__operand x)
{
    if (x >= 0)
        dv__text_add(to, "%d", (int)x);
    else
        put_literal(to, (enum dv__rtype)p->constant_types[-1 - x], &p->constants[-1 - x]);
}

static void put_named_operand(dv__text *to, const dv__program *p, const char *key, dv__operand x)
{
    dv__json_key(to, key);
    if (x == DV__NEVER)
        dv__text_puts(to, "null");
    else
        put_operand(to, p, x);
}

static void put_operands(dv__text *to, const dv__program *p, const dv__operand *in, uint32_t n)
{
    dv__text_puts(to, "[");
    for (uint32_t i = 0; i < n; i++) {
        dv__json_key(to, NULL);
        put_operand(to, p, in[i]);
    }
    dv__text_puts(to, "]");
}

/* ---- Messages ---------------------------------------------------------------------------------------------------------- */

static void put_parts(dv__text *to, const dv__program *p, const dv__part *part);

static void put_join(dv__text *to, const dv__program *p, const dv__part *join)
{
    dv__text_puts(to, "{\"join\": [");
    for (const dv__part *part = join->then; part; part = part->next) {
        dv__json_key(to, NULL);
        put_parts(to, p, part->then);
    }
    dv__text_puts(to, "]");
    dv__json_text(to, "open", join->text);
    dv__json_text(to, "between", ", ");
    dv__json_text(to, "close", join->close);
    dv__text_puts(to, "}");
}

static void put_part(dv__text *to, const dv__program *p, const dv__part *part)
{
    switch ((enum dv__part_kind)part->kind) {
    case DV__PART_JOIN: put_join(to, p, part); return;
    case DV__PART_SHOW:
        dv__text_puts(to, "{\"show\": ");
        put_operand(to, p, part->a);
        break;
    case DV__PART_IF:
        dv__text_puts(to, "{\"if\": ");
        put_operand(to, p, part->a);
        dv__text_puts(to, ", \"then\": ");
        put_parts(to, p, part->then);
        dv__text_puts(to, ", \"else\": ");
        put_parts(to, p, part->other);
        break;
    case DV__PART_ARGUMENT: dv__text_add(to, "{\"argument\": %d", (int)part->slot); break;
    case DV__PART_WRONG_AXIS:
    case DV__PART_TWICE:
        dv__text_puts(to, part->kind == DV__PART_TWICE ? "{\"repeated_axis\": " : "{\"wrong_axis\": ");
        put_operands(to, p, (dv__operand[]){ part->a, part->b }, 2);
        break;
    case DV__PART_CONFLICT:
        dv__text_puts(to, "{\"conflict\": ");
        put_operands(to, p, part->many, part->nmany);
        break;
    case DV__PART_DTYPES:
        dv__text_puts(to, "{\"dtypes\": ");
        put_operands(to, p, part->many, part->nmany);
        break;
    default: dv__text_puts(to, "{\"position\": true"); break;
    }
    dv__text_puts(to, "}");
}

static void put_parts(dv__text *to, const dv__program *p, const dv__part *part)
{
    dv__text_puts(to, "[");
    while (part) {
        dv__text text = { 0 }; /* texts that follow each other are one */
        dv__json_key(to, NULL);
        const bool is_text = part->kind == DV__PART_TEXT;
        for (; part && part->kind == DV__PART_TEXT; part = part->next)
            dv__text_puts(&text, part->text);
        if (is_text) {
            dv__text_json(to, text.size ? text.data : "", text.size);
            to->failed |= text.failed;
            dv__text_deinit(&text);
            continue;
        }
        put_part(to, p, part);
        part = part->next;
    }
    dv__text_puts(to, "]");
}

static const char *error_name(int status)
{
    switch (status) {
    case DV_ESHAPE: return "shape";
    case DV_EDTYPE: return "dtype";
    case DV_EDEVICE: return "device";
    default: return "value";
    }
}

/* ---- Steps ------------------------------------------------------------------------------------------------------------- */

static void put_steps(dv__text *to, const dv__contract *c, uint32_t begin, uint32_t end);

static bool reads_argument(enum dv__op op)
{
    return op == DV__OP_PRESENT || op == DV__OP_HOLDS || op == DV__OP_TENSOR || op == DV__OP_ARGUMENT || op == DV__OP_LEN ||
        op == DV__OP_NUMBER_DTYPE || op == DV__OP_ELEMENT;
}

static void put_block(dv__text *to, const dv__contract *c, const dv__step *s, uint32_t at)
{
    if (s->op == DV__OP_EACH) {
        dv__text_add(
            to, ", \"slot\": %d, \"index\": %d, \"first\": %d, \"carry\": [", (int)s->slot, (int)s->index, (int)s->first);
        for (uint32_t i = 0; i < s->ncarry; i++) {
            dv__json_key(to, NULL);
            dv__text_add(to, "{\"to\": %d, \"from\": ", (int)s->carry[i].to);
            put_operand(to, c->program, s->carry[i].from);
            dv__text_puts(to, ", \"next\": ");
            put_operand(to, c->program, s->carry[i].next);
            dv__text_puts(to, "}");
        }
        dv__text_puts(to, "]");
    }
    if (s->op == DV__OP_EACH_VALUE && s->index >= 0)
        dv__text_add(to, ", \"before\": %d", (int)s->index);
    dv__text_puts(to, ", \"steps\": ");
    put_steps(to, c, at + 1, at + 1 + (uint32_t)s->body);
}

static void put_step(dv__text *to, const dv__contract *c, uint32_t at)
{
    const dv__program *p = c->program;
    const dv__step *s = &p->steps[at];
    dv__text_add(to, "{\"op\": \"%s\"", dv__op_name(s->op));
    if (s->to >= 0)
        dv__text_add(to, ", \"to\": %d", (int)s->to);
    if (reads_argument(s->op))
        dv__text_add(to, ", \"slot\": %d", (int)s->slot);
    if (s->nin || s->op == DV__OP_PACK) {
        dv__text_puts(to, ", \"in\": ");
        put_operands(to, p, s->many ? s->many : s->in, s->nin);
    }
    if (s->guard != DV__ALWAYS)
        put_named_operand(to, p, "guard", s->guard);
    if (s->flags & DV__STEP_SAY)
        dv__text_puts(to, ", \"say\": true");
    if (s->fault) {
        dv__json_text(to, "error", error_name(s->fault->status));
        dv__text_puts(to, ", \"message\": ");
        put_parts(to, p, s->fault->message);
    }
    if (s->op == DV__OP_EACH || s->op == DV__OP_EACH_VALUE)
        put_block(to, c, s, at);
    dv__text_puts(to, "}");
}

static void put_steps(dv__text *to, const dv__contract *c, uint32_t begin, uint32_t end)
{
    dv__text_puts(to, "[");
    for (uint32_t i = begin; i < end; i++) {
        dv__json_key(to, NULL);
        put_step(to, c, i);
        i += (uint32_t)c->program->steps[i].body;
    }
    dv__text_puts(to, "]");
}

/* ---- The whole --------------------------------------------------------------------------------------------------------- */

static void put_variable(dv__text *to, uint32_t at, const char *kind, const char *name)
{
    dv__json_key(to, NULL);
    dv__text_add(to, "{\"register\": %u, \"kind\": \"%s\"", at, kind);
    dv__json_text(to, "name", name);
    dv__text_puts(to, "}");
}

static void put_variables(dv__text *to, const dv__contract *c)
{
    uint32_t at = 0;
    dv__text_puts(to, "\"variables\": [");
    for (uint32_t i = 0; i < c->ndims; i++, at++)
        put_variable(to, at, "dim", c->dims[i].name);
    for (uint32_t i = 0; i < c->nruns; i++, at++)
        if (!c->runs[i].index) /* *s{i}: no register holds it */
            put_variable(to, at, "run", c->runs[i].name);
    for (uint32_t i = 0; i < c->ndtypes; i++, at++)
        put_variable(to, at, "dtype", c->dtypes[i].name);
    put_variable(to, at, "device", "");
    dv__text_puts(to, "]");
}

static void put_result(dv__text *to, const dv__contract *c, const dv__result *r)
{
    static const char *const kinds[] = { "new", "like", "view", "argument", "absent", "function" };
    static const char *const transforms[] = { "swap", "permute", "narrow", "select" };
    const dv__program *p = c->program;
    dv__text_add(to, "{\"slot\": %d", (int)r->slot);
    put_named_operand(to, p, "guard", r->guard == DV__ALWAYS ? DV__NEVER : r->guard); /* null: always */
    dv__json_text(to, "kind", kinds[r->kind]);
    put_named_operand(to, p, "shape", r->shape);
    put_named_operand(to, p, "dtype", r->dtype);
    put_named_operand(to, p, "device", r->device);
    dv__text_puts(to, ", \"of\": ");
    if (r->of < 0)
        dv__text_puts(to, "null");
    else
        dv__text_add(to, "%d", (int)r->of);
    put_named_operand(to, p, "strides", r->strides);
    put_named_operand(to, p, "offset", r->offset);
    if (r->pattern->transform) {
        uint32_t n = 0;
        while (n < 3 && r->transform[n] != DV__NEVER)
            n++;
        dv__text_add(to, ", \"transform\": {\"op\": \"%s\", \"in\": ", transforms[r->pattern->transform->ref]);
        put_operands(to, p, r->transform, n);
        dv__text_puts(to, "}");
    } else {
        dv__text_puts(to, ", \"transform\": null");
    }
    if (r->count.value == DV__NEVER) {
        dv__text_puts(to, ", \"list\": null");
    } else {
        dv__text_puts(to, ", \"list\": {\"count\": ");
        put_operand(to, p, r->count.value);
        dv__text_add(to, ", \"index\": %d, \"steps\": ", (int)r->index);
        put_steps(to, c, r->count.begin, r->count.end);
        dv__text_puts(to, "}");
    }
    dv__text_add(to, ", \"unbacked\": %s, \"steps\": ", r->pattern->unbacked ? "true" : "false");
    put_steps(to, c, r->section.begin, r->section.end);
    dv__text_puts(to, "}");
}

static void put_cost(dv__text *to, const dv__contract *c, const char *key, const dv__section *s)
{
    dv__text_add(to, ", \"%s\": ", key);
    if (s->value == DV__ALWAYS) {
        dv__text_puts(to, "null");
        return;
    }
    dv__text_puts(to, "{\"value\": ");
    put_operand(to, c->program, s->value);
    dv__text_puts(to, ", \"steps\": ");
    put_steps(to, c, s->begin, s->end);
    dv__text_puts(to, "}");
}

void dv__program_json(const dv__contract *c, dv__text *to)
{
    const dv__program *p = c->program;
    dv__text_puts(to, "{\"version\": 1, \"registers\": [");
    for (uint32_t i = 0; i < p->nregisters; i++)
        dv__json_text(to, NULL, dv__rtype_name((enum dv__rtype)p->types[i]));
    dv__text_puts(to, "], ");
    put_variables(to, c);
    dv__text_puts(to, ", \"taken\": [");
    for (uint32_t g = 0; g < c->ngroups; g++) {
        dv__json_key(to, NULL);
        put_operands(to, p, p->taken[g], c->groups[g].n);
    }
    dv__text_puts(to, "], \"solve\": ");
    put_steps(to, c, 0, p->solve_end);
    dv__text_puts(to, ", \"results\": [");
    for (uint32_t i = 0; i < p->nresults; i++) {
        dv__json_key(to, NULL);
        put_result(to, c, &p->results[i]);
    }
    dv__text_puts(to, "]");
    put_cost(to, c, "workspace", &p->workspace);
    put_cost(to, c, "flops", &p->flops);
    put_cost(to, c, "bytes", &p->bytes);
    dv__text_puts(to, "}");
}
