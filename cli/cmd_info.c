/* dovetail info: prints the declarations of operators. */
#include "cli.h"

#include <stdlib.h>

static void add(dv_operator ***all, size_t *n, dv_operator *op)
{
    for (size_t i = 0; i < *n; i++)
        if ((*all)[i] == op)
            return;
    *all = cli_alloc(*all, *n + 1, sizeof **all);
    (*all)[(*n)++] = op;
}

/* A binary stands for all its operators; but if names are given too, it is only loaded. */
static int gather(const cli_args *args, dv_operator ***all, size_t *n)
{
    bool named = false;
    for (size_t i = 0; i < args->nwords; i++)
        named = named || !cli_is_binary(args->words[i]);
    if (cli_load(args, args->nwords, true))
        return CLI_FAILED;
    for (size_t i = 0; i < args->nwords; i++) {
        dv_operator **found;
        size_t count;
        if (cli_is_binary(args->words[i]))
            continue;
        if (cli_find_all(args->words[i], &found, &count))
            return CLI_FAILED;
        for (size_t k = 0; k < count; k++)
            add(all, n, found[k]);
        free(found);
    }
    dv_library *const *libraries;
    const size_t nlibraries = cli_libraries(&libraries);
    for (size_t i = 0; !named && i < nlibraries; i++)
        for (size_t k = 0; k < dv_library_size(libraries[i]); k++)
            add(all, n, dv_library_operator(libraries[i], k));
    return CLI_OK;
}

static int print_json(dv_operator *const *all, size_t n)
{
    cli_text out = { 0 };
    cli_adds(&out, "{\"ok\": true, \"operators\": [");
    for (size_t i = 0; i < n; i++) {
        char *json;
        if (dv_operator_json(all[i], &json))
            return cli_fail("%s", dv_last_error());
        cli_adds(&out, i ? ", " : "");
        cli_adds(&out, json);
        dv_free(json);
    }
    cli_adds(&out, "]}");
    puts(out.data);
    cli_text_free(&out);
    return CLI_OK;
}

static int print_text(dv_operator *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *text;
        if (dv_operator_describe(all[i], &text))
            return cli_fail("%s", dv_last_error());
        const size_t first = strcspn(text, "\n");
        printf("%s%s%.*s%s%s", i ? "\n" : "", cli_style(stdout, CLI_BOLD), (int)first, text, cli_style(stdout, CLI_PLAIN),
            text + first);
        if (!*text || text[strlen(text) - 1] != '\n')
            puts("");
        dv_free(text);
    }
    return CLI_OK;
}

static int run(const cli_args *args)
{
    dv_operator **all = NULL;
    size_t n = 0;
    if (!args->nwords)
        return cli_usage(args->verb, "expected a binary or the name of an operator");
    int status = gather(args, &all, &n);
    if (!status)
        status = cli_json ? print_json(all, n) : print_text(all, n);
    free(all);
    return status;
}

static const cli_option options[] = {
    { 0, "json", NULL, "everything as one JSON document (docs/json.md)" },
    { 0 },
};

static const char *const examples[] = { "dovetail info my_ops.so", "every operator of a binary",
    "dovetail info my_ops.so my_ops::swiglu", "one of them", "dovetail info --json my_ops.so",
    "for programs: schema, contract and formulas as trees, kernel rows", NULL };

const cli_verb verb_info = {
    .name = "info",
    .purpose = "show what operators declare: schema, contract, kernels, gradient",
    .usage = "[options] FILE.so | FILE.c | FOLDER | NAMESPACE | NAMESPACE::OPERATOR ...",
    .about =
        "Prints an operator's schema, what it is, its contract in words with the order in which sizes are solved, its gradient\n"
        "and native form, and its kernel rows in the order in which they are tried. Binaries are loaded first; the shipped\n"
        "operators are known by name.",
    .options = options,
    .builds = true,
    .examples = examples,
    .run = run,
};
