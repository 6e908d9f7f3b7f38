/* Descriptions of an operator, as text and as JSON. */
#include "base/error.h"
#include "registry/registry_internal.h"

const char *dv_operator_name(const dv_operator *op) { return op ? op->name : ""; }
const char *dv_operator_schema(const dv_operator *op) { return op ? op->schema->text : ""; }
const char *dv_operator_doc(const dv_operator *op) { return op && op->text.doc ? op->text.doc : ""; }
size_t dv_operator_nargs(const dv_operator *op) { return op ? op->schema->nargs : 0; }
size_t dv_operator_nresults(const dv_operator *op) { return op ? op->schema->nreturns : 0; }

static const dv__dispatch_table *describe_get_dispatch_table(const dv_operator *op)
{
    return atomic_load_explicit(&(op->functional_form_of ? op->functional_form_of : op)->table,
        memory_order_acquire); /* calls of a functional form use the operator's table */
}

/* ---- The dispatch table ---- */

static const char *describe_get_entry_kind_name(const dv__dispatch_entry *e)
{
    switch (e->kind) {
    case DV__ENTRY_FALLTHROUGH: return "fallthrough";
    case DV__ENTRY_KERNELS: return "kernels";
    case DV__ENTRY_BOXED: return "boxed";
    case DV__ENTRY_DECOMPOSITION: return "decomposition";
    case DV__ENTRY_CONTRACT: return "contract";
    case DV__ENTRY_MISSING: break;
    }
    return "missing";
}

static void describe_print_table_entry(const dv__dispatch_entry *e, dv__strbuf *to)
{
    if (e->kind == DV__ENTRY_BOXED)
        dv__strbuf_printf(to, "boxed, user %p", e->user);
    else if (e->kind != DV__ENTRY_KERNELS)
        dv__strbuf_append_str(to, describe_get_entry_kind_name(e));
    for (size_t i = 0; i < e->nkernels; i++)
        dv__strbuf_printf(to, "%s%s (%s)", i ? ", " : "", e->kernels[i]->name, e->kernels[i]->provider);
    if (e->kind != DV__ENTRY_MISSING)
        dv__strbuf_printf(to, " [%s]", e->from);
}

int dv_operator_dump_table(const dv_operator *op, char **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    dv__strbuf to = { 0 };
    const dv__dispatch_table *table = describe_get_dispatch_table(op);
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++) {
        dv__strbuf_printf(&to, "%s: ", dv_key_name(key));
        describe_print_table_entry(&table->entries[key], &to);
        dv__strbuf_append_str(&to, "\n");
    }
    return dv__strbuf_detach(&to, out);
}

/* ---- In words ---- */

static void describe_print_kernel(const dv__kernel *kernel, dv__strbuf *text)
{
    dv__strbuf_printf(
        text, "  %-5s %-10s %s", kernel->device, *kernel->dtypes_text ? kernel->dtypes_text : "any dtype", kernel->name);
    if (*kernel->isa_text)
        dv__strbuf_printf(text, ", needs %s%s", kernel->isa_text, dv__isa_is_available(kernel->isas) ? "" : " (not here)");
    if (*kernel->when_text)
        dv__strbuf_printf(text, ", when %s", kernel->when_text);
    if (*kernel->takes_text)
        dv__strbuf_printf(text, ", takes %s", kernel->takes_text);
    if (kernel->priority)
        dv__strbuf_printf(text, ", priority %d", (int)kernel->priority);
    if (kernel->split)
        dv__strbuf_printf(text, ", split over threads by %lld", (long long)kernel->split);
    if (kernel->flags & DV_KERNEL_REFERENCE)
        dv__strbuf_append_str(text, ", the reference");
    dv__strbuf_printf(text, "  [%s]\n", kernel->provider);
}

static void describe_print_all_kernels(const dv_operator *op, dv__strbuf *to)
{
    const dv__dispatch_table *table = describe_get_dispatch_table(op);
    size_t n = 0;
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++)
        for (size_t i = 0; i < table->entries[key].nkernels; i++) {
            if (!n++)
                dv__strbuf_append_str(to, "kernels, in the order in which they are tried\n");
            describe_print_kernel(table->entries[key].kernels[i], to);
        }
    if (!n)
        dv__strbuf_printf(to, "no kernels of its own%s\n", op->decomposition ? ": its decomposition runs" : "");
}

/* Prints which vendors' kernels are left out, because they do not fit the operator, and why. */
static void describe_print_misfit_kernels(const dv_operator *op, dv__strbuf *to)
{
    if (!op->registry_record)
        return;
    dv__registry_lock();
    for (const dv__attachment *a = op->registry_record->attached; a; a = a->next)
        if (a->problem)
            dv__strbuf_printf(to, "left out: kernels of %s: %s\n", a->named_registration->library->label, a->problem);
    dv__registry_unlock();
}

static void describe_print_section(const char *title, const char *text, dv__strbuf *to)
{
    if (text)
        dv__strbuf_printf(to, "%s\n  %s\n", title, text);
}

int dv_operator_describe(const dv_operator *op, char **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    dv__strbuf to = { 0 };
    dv__strbuf_printf(&to, "%s\n", op->schema->text);
    if (op->text.doc && *op->text.doc)
        dv__strbuf_printf(&to, "  %s\n", op->text.doc);
    if (op->contract) {
        dv__strbuf_append_str(&to, "contract\n");
        dv__contract_describe(op->contract, &to);
        if (to.size && to.data[to.size - 1] != '\n')
            dv__strbuf_append_str(&to, "\n");
    }
    if (op->functional_form_of)
        dv__strbuf_printf(&to, "the functional form of %s\n", op->functional_form_of->schema->text);
    describe_print_section("decomposition", op->text.native, &to);
    describe_print_section("gradient", op->text.gradient, &to);
    describe_print_section("tangent", op->text.tangent, &to);
    describe_print_section("tags", op->text.tags && *op->text.tags ? op->text.tags : NULL, &to);
    describe_print_all_kernels(op, &to);
    describe_print_misfit_kernels(op, &to);
    if (op->text.file)
        dv__strbuf_printf(&to, "declared in %s:%u\n", op->text.file, op->line);
    if (!atomic_load(&op->alive))
        dv__strbuf_append_str(&to, "its library was unloaded\n");
    return dv__strbuf_detach(&to, out);
}

/* ---- As JSON ---- */

static void describe_json_add_bool(const char *key, bool value, dv__strbuf *to)
{
    dv__strbuf_printf(to, ", \"%s\": %s", key, value ? "true" : "false");
}

/* Adds the member "tags", a list of the tags in a text, which are separated by spaces, commas, tabs or newlines. */
static void describe_json_add_tags(const char *tags, dv__strbuf *to)
{
    dv__strbuf_append_str(to, ", \"tags\": [");
    for (const char *at = tags ? tags : ""; *at;) {
        const size_t n = strcspn(at, " ,\t\n");
        if (n) {
            dv__json_write_key(to, NULL);
            dv__json_write_string(to, at, n);
        }
        at += n ? n : 1;
    }
    dv__strbuf_append_str(to, "]");
}

static const char *describe_null_if_empty(const char *text) { return text && *text ? text : NULL; }

static void describe_json_add_kernel(const dv__kernel *kernel, int key, dv__strbuf *to)
{
    dv__json_write_key(to, NULL);
    dv__strbuf_append_str(to, "{");
    dv__json_write_member(to, "name", kernel->name);
    dv__json_write_member(to, "provider", describe_null_if_empty(kernel->provider));
    dv__json_write_member(to, "device", kernel->device);
    dv__json_write_member(to, "key", dv_key_name(key));
    dv__json_write_member(to, "dtypes", describe_null_if_empty(kernel->dtypes_text));
    dv__json_write_member(to, "isa", describe_null_if_empty(kernel->isa_text));
    describe_json_add_bool("isa_available", dv__isa_is_available(kernel->isas), to);
    dv__json_write_member(to, "when", describe_null_if_empty(kernel->when_text));
    dv__json_write_member(to, "takes", describe_null_if_empty(kernel->takes_text));
    dv__strbuf_printf(to, ", \"priority\": %d, \"split\": %lld", (int)kernel->priority, (long long)kernel->split);
    describe_json_add_bool("reference", kernel->flags & DV_KERNEL_REFERENCE, to);
    describe_json_add_bool("vendor", kernel->is_from_vendor, to);
    dv__strbuf_append_str(to, "}");
}

static void describe_json_add_kernels_and_table(const dv_operator *op, dv__strbuf *to)
{
    const dv__dispatch_table *table = describe_get_dispatch_table(op);
    dv__strbuf_append_str(to, ", \"kernels\": [");
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++)
        for (size_t i = 0; i < table->entries[key].nkernels; i++)
            describe_json_add_kernel(table->entries[key].kernels[i], key, to);
    dv__strbuf_append_str(to, "], \"table\": {");
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++)
        dv__strbuf_printf(to, "%s\"%s\": {\"kind\": \"%s\", \"from\": \"%s\"}", key ? ", " : "", dv_key_name(key),
            describe_get_entry_kind_name(&table->entries[key]), table->entries[key].from);
    dv__strbuf_append_str(to, "}");
}

int dv_operator_json(const dv_operator *op, char **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    dv__strbuf to = { 0 };
    dv__strbuf_append_str(&to, "{");
    dv__json_write_member(&to, "name", op->name);
    dv__json_write_member(&to, "doc", op->text.doc ? op->text.doc : "");
    dv__strbuf_append_str(&to, ", \"schema\": ");
    dv__schema_json(op->schema, &to);
    dv__strbuf_append_str(&to, ", \"contract\": ");
    if (op->contract)
        dv__contract_json(op->contract, &to);
    else
        dv__strbuf_append_str(&to, "null");
    dv__strbuf_append_str(&to, ", \"native\": ");
    dv__decomposition_json(op->decomposition, op->text.native, op->schema, &to);
    dv__strbuf_append_str(&to, ", \"gradient\": ");
    dv__formula_json(op->gradient, op->text.gradient, op->schema, &to);
    dv__strbuf_append_str(&to, ", \"tangent\": ");
    dv__formula_json(op->tangent, op->text.tangent, op->schema, &to);
    describe_json_add_tags(op->text.tags, &to);
    describe_json_add_bool("shape_function", op->shape != NULL, &to);
    describe_json_add_kernels_and_table(op, &to);
    dv__json_write_member(&to, "functional_form_of", op->functional_form_of ? op->functional_form_of->name : NULL);
    dv__json_write_member(&to, "file", op->text.file);
    dv__strbuf_printf(&to, ", \"line\": %u", op->line);
    describe_json_add_bool("alive", atomic_load(&op->alive), &to);
    dv__strbuf_append_str(&to, "}");
    return dv__strbuf_detach(&to, out);
}
