/* What is known of an operator, for people and for tools. */
#include "registry/internal.h"

const char *dv_operator_name(const dv_operator *op) { return op->name; }
const char *dv_operator_schema(const dv_operator *op) { return op->schema->text; }
const char *dv_operator_doc(const dv_operator *op) { return op->doc ? op->doc : ""; }
size_t dv_operator_nargs(const dv_operator *op) { return op->schema->nargs; }
size_t dv_operator_nresults(const dv_operator *op) { return op->schema->nreturns; }

/* ---- The dispatch table ---- */

static void dump_entry(const dv__entry *e, dv__text *to)
{
    switch (e->kind) {
    case DV__ENTRY_MISSING: dv__text_puts(to, "missing"); return;
    case DV__ENTRY_FALLTHROUGH: dv__text_puts(to, "fallthrough"); break;
    case DV__ENTRY_BOXED: dv__text_puts(to, "boxed"); break;
    case DV__ENTRY_NATIVE: dv__text_puts(to, "native form"); break;
    case DV__ENTRY_CONTRACT: dv__text_puts(to, "contract"); break;
    case DV__ENTRY_ROWS:
        for (size_t i = 0; i < e->nrows; i++)
            dv__text_add(to, "%s%s (%s)", i ? ", " : "", e->rows[i]->name, e->rows[i]->provider);
        break;
    }
    dv__text_add(to, " [%s]", e->from);
}

int dv_operator_dump_table(const dv_operator *op, char **out)
{
    *out = NULL;
    dv__text to = { 0 };
    const dv__table *table = atomic_load_explicit(&op->table, memory_order_acquire);
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++) {
        dv__text_add(&to, "%s: ", dv_key_name(key));
        dump_entry(&table->entries[key], &to);
        dv__text_puts(&to, "\n");
    }
    return dv__text_take(&to, out);
}
