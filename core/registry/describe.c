/* Descriptions of an operator, as text and as JSON. */
#include "base/error.h"
#include "registry/internal.h"

const char *dv_operator_name(const dv_operator *op) { return op ? op->name : ""; }
const char *dv_operator_schema(const dv_operator *op) { return op ? op->schema->text : ""; }
const char *dv_operator_doc(const dv_operator *op) { return op && op->text.doc ? op->text.doc : ""; }
size_t dv_operator_nargs(const dv_operator *op) { return op ? op->schema->nargs : 0; }
size_t dv_operator_nresults(const dv_operator *op) { return op ? op->schema->nreturns : 0; }

static const dv__table *table_of(const dv_operator *op)
{
    return atomic_load_explicit(
        &(op->functional ? op->functional : op)->table, memory_order_acquire); /* its calls are the operator's */
}

/* ---- The dispatch table ---- */

static const char *entry_kind(const dv__entry *e)
{
    switch (e->kind) {
    case DV__ENTRY_FALLTHROUGH: return "fallthrough";
    case DV__ENTRY_ROWS: return "rows";
    case DV__ENTRY_BOXED: return "boxed";
    case DV__ENTRY_NATIVE: return "native form";
    case DV__ENTRY_CONTRACT: return "contract";
    case DV__ENTRY_MISSING: break;
    }
    return "missing";
}

static void dump_entry(const dv__entry *e, dv__text *to)
{
    if (e->kind == DV__ENTRY_BOXED)
        dv__text_add(to, "boxed, user %p", e->user);
    else if (e->kind != DV__ENTRY_ROWS)
        dv__text_puts(to, entry_kind(e));
    for (size_t i = 0; i < e->nrows; i++)
        dv__text_add(to, "%s%s (%s)", i ? ", " : "", e->rows[i]->name, e->rows[i]->provider);
    if (e->kind != DV__ENTRY_MISSING)
        dv__text_add(to, " [%s]", e->from);
}

int dv_operator_dump_table(const dv_operator *op, char **out)
{
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    dv__text to = { 0 };
    const dv__table *table = table_of(op);
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++) {
        dv__text_add(&to, "%s: ", dv_key_name(key));
        dump_entry(&table->entries[key], &to);
        dv__text_puts(&to, "\n");
    }
    return dv__text_take(&to, out);
}

/* ---- In words ---- */

static void describe_row(const dv__row *row, dv__text *to)
{
    dv__text_add(to, "  %-5s %-10s %s", row->device, *row->dtypes_text ? row->dtypes_text : "any dtype", row->name);
    if (*row->isa_text)
        dv__text_add(to, ", needs %s%s", row->isa_text, dv__isa_available(row->isas) ? "" : " (not here)");
    if (*row->when_text)
        dv__text_add(to, ", when %s", row->when_text);
    if (*row->takes_text)
        dv__text_add(to, ", takes %s", row->takes_text);
    if (row->priority)
        dv__text_add(to, ", priority %d", (int)row->priority);
    if (row->split)
        dv__text_add(to, ", split over threads by %lld", (long long)row->split);
    if (row->flags & DV_KERNEL_REFERENCE)
        dv__text_puts(to, ", the reference");
    dv__text_add(to, "  [%s]\n", row->provider);
}

static void describe_rows(const dv_operator *op, dv__text *to)
{
    const dv__table *table = table_of(op);
    size_t n = 0;
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++)
        for (size_t i = 0; i < table->entries[key].nrows; i++) {
            if (!n++)
                dv__text_puts(to, "kernels, in the order in which they are tried\n");
            describe_row(table->entries[key].rows[i], to);
        }
    if (!n)
        dv__text_add(to, "no kernels of its own%s\n", op->native ? ": its native form runs" : "");
}

/* Kernels of vendors' libraries that do not fit the operator. */
static void describe_problems(const dv_operator *op, dv__text *to)
{
    if (!op->registration)
        return;
    dv__registry_lock();
    for (const dv__attachment *a = op->registration->attached; a; a = a->next)
        if (a->problem)
            dv__text_add(to, "left out: kernels of %s: %s\n", a->wish->library->label, a->problem);
    dv__registry_unlock();
}

static void describe_text(const char *what, const char *text, dv__text *to)
{
    if (text)
        dv__text_add(to, "%s\n  %s\n", what, text);
}

int dv_operator_describe(const dv_operator *op, char **out)
{
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    dv__text to = { 0 };
    dv__text_add(&to, "%s\n", op->schema->text);
    if (op->text.doc && *op->text.doc)
        dv__text_add(&to, "  %s\n", op->text.doc);
    if (op->contract) {
        dv__text_puts(&to, "contract\n");
        dv__contract_describe(op->contract, &to);
        if (to.size && to.data[to.size - 1] != '\n')
            dv__text_puts(&to, "\n");
    }
    if (op->functional)
        dv__text_add(&to, "the functional form of %s\n", op->functional->schema->text);
    describe_text("native form", op->text.native, &to);
    describe_text("gradient", op->text.gradient, &to);
    describe_text("tangent", op->text.tangent, &to);
    describe_text("tags", op->text.tags && *op->text.tags ? op->text.tags : NULL, &to);
    describe_rows(op, &to);
    describe_problems(op, &to);
    if (op->text.file)
        dv__text_add(&to, "declared in %s:%u\n", op->text.file, op->line);
    if (!atomic_load(&op->alive))
        dv__text_puts(&to, "its library was unloaded\n");
    return dv__text_take(&to, out);
}

/* ---- As JSON ---- */

static void put_bool(const char *key, bool value, dv__text *to)
{
    dv__text_add(to, ", \"%s\": %s", key, value ? "true" : "false");
}

/* Tags are separated by spaces or commas. */
static void put_tags(const char *tags, dv__text *to)
{
    dv__text_puts(to, ", \"tags\": [");
    for (const char *at = tags ? tags : ""; *at;) {
        const size_t n = strcspn(at, " ,\t\n");
        if (n) {
            dv__json_key(to, NULL);
            dv__text_json(to, at, n);
        }
        at += n ? n : 1;
    }
    dv__text_puts(to, "]");
}

static const char *or_null(const char *text) { return text && *text ? text : NULL; }

static void put_row(const dv__row *row, int key, dv__text *to)
{
    dv__json_key(to, NULL);
    dv__text_puts(to, "{");
    dv__json_text(to, "name", row->name);
    dv__json_text(to, "provider", or_null(row->provider));
    dv__json_text(to, "device", row->device);
    dv__json_text(to, "key", dv_key_name(key));
    dv__json_text(to, "dtypes", or_null(row->dtypes_text));
    dv__json_text(to, "isa", or_null(row->isa_text));
    put_bool("isa_available", dv__isa_available(row->isas), to);
    dv__json_text(to, "when", or_null(row->when_text));
    dv__json_text(to, "takes", or_null(row->takes_text));
    dv__text_add(to, ", \"priority\": %d, \"split\": %lld", (int)row->priority, (long long)row->split);
    put_bool("reference", row->flags & DV_KERNEL_REFERENCE, to);
    put_bool("vendor", row->vendor, to);
    dv__text_puts(to, "}");
}

static void put_table(const dv_operator *op, dv__text *to)
{
    const dv__table *table = table_of(op);
    dv__text_puts(to, ", \"kernels\": [");
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++)
        for (size_t i = 0; i < table->entries[key].nrows; i++)
            put_row(table->entries[key].rows[i], key, to);
    dv__text_puts(to, "], \"table\": {");
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++)
        dv__text_add(to, "%s\"%s\": {\"kind\": \"%s\", \"from\": \"%s\"}", key ? ", " : "", dv_key_name(key),
            entry_kind(&table->entries[key]), table->entries[key].from);
    dv__text_puts(to, "}");
}

int dv_operator_json(const dv_operator *op, char **out)
{
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    dv__text to = { 0 };
    dv__text_puts(&to, "{");
    dv__json_text(&to, "name", op->name);
    dv__json_text(&to, "doc", op->text.doc ? op->text.doc : "");
    dv__text_puts(&to, ", \"schema\": ");
    dv__schema_json(op->schema, &to);
    dv__text_puts(&to, ", \"contract\": ");
    if (op->contract)
        dv__contract_json(op->contract, &to);
    else
        dv__text_puts(&to, "null");
    dv__text_puts(&to, ", \"native\": ");
    dv__native_json(op->native, op->text.native, op->schema, &to);
    dv__text_puts(&to, ", \"gradient\": ");
    dv__formula_json(op->gradient, op->text.gradient, op->schema, &to);
    dv__text_puts(&to, ", \"tangent\": ");
    dv__formula_json(op->tangent, op->text.tangent, op->schema, &to);
    put_tags(op->text.tags, &to);
    put_bool("shape_function", op->shape != NULL, &to);
    put_table(op, &to);
    dv__json_text(&to, "functional_form_of", op->functional ? op->functional->name : NULL);
    dv__json_text(&to, "file", op->text.file);
    dv__text_add(&to, ", \"line\": %u", op->line);
    put_bool("alive", atomic_load(&op->alive), &to);
    dv__text_puts(&to, "}");
    return dv__text_take(&to, out);
}
