/* Infers the schema of an operator that declares none: each field of its struct is an argument, but a writable tensor that
 * .mutates does not name is a result. */
#include <stdio.h>

#include "base/error.h"
#include "lang/schema_internal.h"

/* Prints the schema type of a field: "SymInt[]?". alias_set: of a written argument; NULL: not written. An int is SymInt, since
 * most ints are sizes. */
static void infer_print_type(const dv_field_row *row, const char *alias_set, dv__strbuf *to)
{
    const bool optional = row->form == DV_FORM_OPTIONAL || row->of == DV_FIELD_GENERATOR;
    const dv_field_row *list = row->form == DV_FORM_LIST ? row : dv_field_at(row->of);
    dv__strbuf_append_str(to, strcmp(row->word, "int") ? row->word : "SymInt");
    if (alias_set)
        dv__strbuf_printf(to, "(%s!)", alias_set);
    dv__strbuf_printf(to, "%s%s", list->form == DV_FORM_LIST ? "[]" : "", optional ? "?" : "");
}

/* Returns the number of characters of a field's name in the schema: default_ is default. for_ stays, since "for" is a keyword
 * of TorchScript too and cannot be a name in a schema. */
static size_t infer_get_name_size(const char *field)
{
    static const char *const keywords[] = { "auto", "case", "char", "const", "default", "do", "double", "enum", "extern", "float",
        "goto", "inline", "int", "long", "register", "restrict", "short", "signed", "sizeof", "static", "struct", "switch",
        "typedef", "union", "unsigned", "void", "volatile" };
    const size_t n = strlen(field);
    for (size_t i = 0; n && field[n - 1] == '_' && i < sizeof keywords / sizeof *keywords; i++)
        if (strlen(keywords[i]) == n - 1 && !memcmp(keywords[i], field, n - 1))
            return n - 1;
    return n;
}

/* True if a word of n characters is in a list of words, which spaces or commas separate. words NULL: an empty list. */
static bool words_contain(const char *words, const char *word, size_t n)
{
    for (const char *p = words ? words : ""; *p;) {
        const size_t gap = strspn(p, ", \t\n"), size = strcspn(p + gap, ", \t\n");
        if (size == n && n && !memcmp(p + gap, word, n))
            return true;
        p += gap + size;
    }
    return false;
}

/* Fails unless every word of .mutates is a field that can be written. */
static int infer_check_mutates(const char *op, const dv_field_decl *const *fields, const char *mutates)
{
    for (const char *p = mutates ? mutates : ""; *p;) {
        const size_t gap = strspn(p, ", \t\n"), n = strcspn(p + gap, ", \t\n");
        const dv_field_decl *found = NULL;
        p += gap;
        for (size_t i = 0; fields[i] && !found; i++)
            if (strlen(fields[i]->name) == n && !memcmp(fields[i]->name, p, n))
                found = fields[i];
        if (n && !found)
            return dv_fail(DV_ESCHEMA, "operator %s: .mutates names '%.*s', which is not a field of its struct", op, (int)n, p);
        if (n && dv_field_at(found->type)->form != DV_FORM_WRITTEN)
            return dv_fail(DV_ESCHEMA,
                "operator %s: .mutates names '%.*s', which the struct does not let the kernel write "
                "(expected dv_tensor * or dv_mut_tensors)",
                op, (int)n, p);
        p += n;
    }
    return DV_OK;
}

int dv__schema_infer(const char *name, const dv_field_decl *const *fields, const char *mutates, char **text)
{
    dv__strbuf schema = { 0 }, results = { 0 };
    size_t nargs = 0, nresults = 0, nsets = 0;
    *text = NULL;
    int status = infer_check_mutates(name, fields, mutates);
    if (status)
        return status;
    dv__strbuf_printf(&schema, "%s(", name);
    for (size_t i = 0; fields[i]; i++) {
        const dv_field_decl *f = fields[i];
        const dv_field_row *row = dv_field_at(f->type);
        const bool mutated = words_contain(mutates, f->name, strlen(f->name));
        if (!row->size) {
            status = dv_fail(DV_ESCHEMA, "operator %s: field '%s' has a type (number %u) that this runtime does not know", name,
                f->name, f->type);
            goto fail;
        }
        const bool result = !mutated && row->form >= DV_FORM_WRITTEN;
        dv__strbuf *to = result ? &results : &schema;
        dv__strbuf_append_str(to, (result ? nresults++ : nargs++) ? ", " : "");
        if (mutated) {
            char set[24] = { (char)('a' + nsets % 26), 0 };
            if (nsets >= 26) /* b1, c1, ... */
                snprintf(set + 1, sizeof set - 1, "%zu", nsets / 26);
            nsets++;
            infer_print_type(row, set, to);
        } else {
            infer_print_type(row, NULL, to);
        }
        dv__strbuf_printf(to, " %.*s", (int)infer_get_name_size(f->name), f->name);
    }
    dv__strbuf_printf(&schema, nresults == 1 ? ") -> %s" : ") -> (%s)", results.data ? results.data : "");
    schema.failed |= results.failed;
    dv__strbuf_deinit(&results);
    return dv__strbuf_detach(&schema, text);
fail:
    dv__strbuf_deinit(&schema);
    dv__strbuf_deinit(&results);
    return status;
}
