/* dovetail list: lists operators. */
#include "cli.h"

#include <stdlib.h>

typedef struct list_output {
    cli_text json;
    size_t n;
    int width;
} list_output;

/* Returns the first sentence of the operator's doc, or else its schema without the name. The caller frees it. */
static char *list_new_summary_line(const dv_operator *op)
{
    const char *doc = dv_operator_doc(op), *schema = dv_operator_schema(op), *open = strchr(schema, '(');
    if (!*doc)
        return cli_format("%s", open ? open : schema);
    const char *dot = strstr(doc, ". "), *colon = strchr(doc, '\n');
    size_t n = strlen(doc);
    if (dot && (size_t)(dot - doc) < n)
        n = (size_t)(dot - doc);
    if (colon && (size_t)(colon - doc) < n)
        n = (size_t)(colon - doc);
    if (n && doc[n - 1] == '.')
        n--;
    return cli_format("%.*s", (int)n, doc);
}

static void list_print_operator(list_output *to, const dv_operator *op, const char *path)
{
    if (cli_json_output) {
        const char *const names[] = { "name", "schema", "doc", "file" };
        const char *const values[] = { dv_operator_name(op), dv_operator_schema(op), dv_operator_doc(op), path };
        cli_text_append_str(&to->json, to->n++ ? ", {" : "{");
        for (size_t i = 0; i < 4; i++) {
            cli_text_appendf(&to->json, "%s\"%s\": ", i ? ", " : "", names[i]);
            if (values[i])
                cli_text_append_json(&to->json, values[i]);
            else
                cli_text_append_str(&to->json, "null");
        }
        cli_text_append_str(&to->json, "}");
        return;
    }
    char *text = list_new_summary_line(op);
    printf("  %s%-*s%s  %s\n", cli_get_escape_code(stdout, CLI_BOLD), to->width, dv_operator_name(op),
        cli_get_escape_code(stdout, CLI_STYLE_NONE), text);
    to->n++;
    free(text);
}

static int list_compare_by_name(const void *a, const void *b)
{
    return strcmp(dv_operator_name(*(dv_operator *const *)a), dv_operator_name(*(dv_operator *const *)b));
}

static void list_print_library(list_output *to, const dv_library *lib)
{
    const size_t n = dv_library_noperators(lib);
    const char *path = dv_library_path(lib);
    dv_operator **ops = cli_realloc_array(NULL, n, sizeof *ops);
    for (size_t i = 0; i < n; i++) {
        const int width = (int)strlen(dv_operator_name(ops[i] = dv_library_operator(lib, i)));
        to->width = width > to->width ? width : to->width;
    }
    qsort(ops, n, sizeof *ops, list_compare_by_name);
    if (!cli_json_output)
        printf("%s%s%s%s\n", to->n ? "\n" : "", cli_get_escape_code(stdout, CLI_DIM), path ? path : dv_library_name(lib),
            cli_get_escape_code(stdout, CLI_STYLE_NONE));
    for (size_t i = 0; i < n; i++)
        list_print_operator(to, ops[i], path);
    free(ops);
}

/* Loads the base set, unless a formula has loaded it already. */
static void list_load_base_set_if_missing(void)
{
    dv_library *base;
    char *path = cli_find_home() ? cli_join_path(cli_find_home(), "ops/base.so") : NULL;
    if (path)
        (void)dv_load(path, &base);
    free(path);
}

typedef struct list_search {
    dv_operator **found;
    size_t n;
} list_search;

static int list_collect_unlisted(void *user, dv_operator *op)
{
    list_search *o = user;
    dv_library *const *libraries;
    const size_t n = cli_list_libraries(&libraries);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < dv_library_noperators(libraries[i]); k++)
            if (dv_library_operator(libraries[i], k) == op)
                return 0;
    o->found = cli_realloc_array(o->found, o->n + 1, sizeof *o->found);
    o->found[o->n++] = dv_operator_ref(op);
    return 0;
}

static int cmd_list_run(const cli_args *args)
{
    list_output to = { 0 };
    dv_library *const *libraries;
    if (cli_load_binaries(args, args->noperands, false))
        return CLI_FAILED;
    const size_t nrequested = cli_list_libraries(&libraries);
    cli_load_shipped();
    const size_t n = cli_list_libraries(&libraries);
    for (size_t i = 0; i < n; i++) /* the requested operators are printed last, so that they stand near the prompt */
        list_print_library(&to, libraries[(i + nrequested) % n]);
    if (cli_has_option(args, "all")) {
        list_search o = { 0 };
        list_load_base_set_if_missing();
        dv_for_each_operator(list_collect_unlisted, &o);
        if (!cli_json_output && o.n)
            printf("\n%sbuilt in: the base set that decompositions use%s\n", cli_get_escape_code(stdout, CLI_DIM),
                cli_get_escape_code(stdout, CLI_STYLE_NONE));
        for (size_t i = 0; i < o.n; i++) {
            list_print_operator(&to, o.found[i], NULL);
            dv_operator_unref(o.found[i]);
        }
        free(o.found);
    }
    if (cli_json_output) {
        cli_text t = { 0 };
        cli_text_appendf(&t, "{\"ok\": true, \"operators\": [%s]}", to.json.data ? to.json.data : "");
        cli_print_document(t.data);
        cli_text_free(&t);
    }
    cli_text_free(&to.json);
    return CLI_OK;
}

static const cli_option list_options[] = {
    { 'a', "all", NULL, "also the base set that decompositions are written in" },
    { 0, "json", NULL, "as JSON: name, schema, doc and file of each" },
    { 0 },
};

static const char *const list_examples[] = { "dovetail list", "the shipped operators", "dovetail list my_ops.so",
    "and those of a binary", NULL };

const cli_verb verb_list = {
    .name = "list",
    .purpose = "list the shipped operators and those of your binaries",
    .usage = "[options] [FILE.so | FILE.c | FOLDER ...]",
    .about = "One line for each operator, grouped by the binary that holds it.",
    .options = list_options,
    .builds_sources = true,
    .examples = list_examples,
    .run_verb = cmd_list_run,
};
