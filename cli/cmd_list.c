/* dovetail list: lists operators. */
#include "cli.h"

#include <stdlib.h>

typedef struct listing {
    cli_text json;
    size_t n;
    int width;
} listing;

/* The first sentence of the doc, or the schema after the name. */
static char *summary(const dv_operator *op)
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

static void show(listing *to, const dv_operator *op, const char *path)
{
    if (cli_json) {
        const char *const names[] = { "name", "schema", "doc", "file" };
        const char *const values[] = { dv_operator_name(op), dv_operator_schema(op), dv_operator_doc(op), path };
        cli_adds(&to->json, to->n++ ? ", {" : "{");
        for (size_t i = 0; i < 4; i++) {
            cli_addf(&to->json, "%s\"%s\": ", i ? ", " : "", names[i]);
            if (values[i])
                cli_add_json(&to->json, values[i]);
            else
                cli_adds(&to->json, "null");
        }
        cli_adds(&to->json, "}");
        return;
    }
    char *text = summary(op);
    printf("  %s%-*s%s  %s\n", cli_style(stdout, CLI_BOLD), to->width, dv_operator_name(op), cli_style(stdout, CLI_PLAIN), text);
    to->n++;
    free(text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(dv_operator_name(*(dv_operator *const *)a), dv_operator_name(*(dv_operator *const *)b));
}

static void show_library(listing *to, const dv_library *lib)
{
    const size_t n = dv_library_size(lib);
    const char *path = dv_library_path(lib);
    dv_operator **ops = cli_alloc(NULL, n, sizeof *ops);
    for (size_t i = 0; i < n; i++) {
        const int width = (int)strlen(dv_operator_name(ops[i] = dv_library_operator(lib, i)));
        to->width = width > to->width ? width : to->width;
    }
    qsort(ops, n, sizeof *ops, by_name);
    if (!cli_json)
        printf("%s%s%s%s\n", to->n ? "\n" : "", cli_style(stdout, CLI_DIM), path ? path : dv_library_name(lib),
            cli_style(stdout, CLI_PLAIN));
    for (size_t i = 0; i < n; i++)
        show(to, ops[i], path);
    free(ops);
}

/* The base set is already loaded if a formula needs it. */
static void load_base(void)
{
    dv_library *base;
    char *path = cli_home() ? cli_join(cli_home(), "ops/base.so") : NULL;
    if (path)
        (void)dv_load(path, &base);
    free(path);
}

typedef struct others {
    dv_operator **found;
    size_t n;
} others;

static int collect_other(void *user, dv_operator *op)
{
    others *o = user;
    dv_library *const *libraries;
    const size_t n = cli_libraries(&libraries);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < dv_library_size(libraries[i]); k++)
            if (dv_library_operator(libraries[i], k) == op)
                return 0;
    o->found = cli_alloc(o->found, o->n + 1, sizeof *o->found);
    o->found[o->n++] = dv_operator_ref(op);
    return 0;
}

static int run(const cli_args *args)
{
    listing to = { 0 };
    dv_library *const *libraries;
    if (cli_load(args, args->nwords, false))
        return CLI_FAILED;
    const size_t given = cli_libraries(&libraries);
    cli_load_shipped();
    const size_t n = cli_libraries(&libraries);
    for (size_t i = 0; i < n; i++) /* the requested operators come last, near the prompt */
        show_library(&to, libraries[(i + given) % n]);
    if (cli_has(args, "all")) {
        others o = { 0 };
        load_base();
        dv_each_operator(collect_other, &o);
        if (!cli_json && o.n)
            printf(
                "\n%sbuilt in: the base set that native forms use%s\n", cli_style(stdout, CLI_DIM), cli_style(stdout, CLI_PLAIN));
        for (size_t i = 0; i < o.n; i++) {
            show(&to, o.found[i], NULL);
            dv_operator_unref(o.found[i]);
        }
        free(o.found);
    }
    if (cli_json)
        printf("{\"ok\": true, \"operators\": [%s]}\n", to.json.data ? to.json.data : "");
    cli_text_free(&to.json);
    return CLI_OK;
}

static const cli_option options[] = {
    { 'a', "all", NULL, "also the base set that native forms are written in" },
    { 0, "json", NULL, "as JSON: name, schema, doc and file of each" },
    { 0 },
};

static const char *const examples[] = { "dovetail list", "the shipped operators", "dovetail list my_ops.so",
    "and those of a binary", NULL };

const cli_verb verb_list = {
    .name = "list",
    .purpose = "list the shipped operators and those of your binaries",
    .usage = "[options] [FILE.so | FILE.c | FOLDER ...]",
    .about = "One line for each operator, grouped by the binary that holds it.",
    .options = options,
    .builds = true,
    .examples = examples,
    .run = run,
};
