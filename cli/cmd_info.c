/* dovetail info: prints the declarations of operators. */
#include "cli.h"

#include <stdlib.h>

static void info_append_operator_to_list(dv_operator ***all, size_t *n, dv_operator *op)
{
    for (size_t i = 0; i < *n; i++)
        if ((*all)[i] == op)
            return;
    *all = cli_realloc_array(*all, *n + 1, sizeof **all);
    (*all)[(*n)++] = op;
}

/* Gathers the operators of the command line: all operators of the given binaries, or those of the given names, for which binaries
 * are only loaded. The caller frees the list. Returns a status. */
static int info_gather_operators(const cli_args *args, dv_operator ***all, size_t *n)
{
    bool named = false;
    for (size_t i = 0; i < args->noperands; i++)
        named = named || !cli_is_binary_operand(args->operands[i]);
    if (cli_load_binaries(args, args->noperands, true))
        return CLI_FAILED;
    for (size_t i = 0; i < args->noperands; i++) {
        dv_operator **found;
        size_t count;
        if (cli_is_binary_operand(args->operands[i]))
            continue;
        if (cli_find_operators(args->operands[i], &found, &count))
            return CLI_FAILED;
        for (size_t k = 0; k < count; k++)
            info_append_operator_to_list(all, n, found[k]);
        free(found);
    }
    dv_library *const *libraries;
    const size_t nlibraries = cli_list_libraries(&libraries);
    for (size_t i = 0; !named && i < nlibraries; i++)
        for (size_t k = 0; k < dv_library_noperators(libraries[i]); k++)
            info_append_operator_to_list(all, n, dv_library_operator(libraries[i], k));
    return CLI_OK;
}

static int info_print_json(dv_operator *const *all, size_t n)
{
    cli_text out = { 0 };
    cli_text_append_str(&out, "{\"ok\": true, \"operators\": [");
    for (size_t i = 0; i < n; i++) {
        char *json;
        if (dv_operator_json(all[i], &json))
            return cli_fail("%s", dv_last_error());
        cli_text_append_str(&out, i ? ", " : "");
        cli_text_append_str(&out, json);
        dv_free(json);
    }
    cli_text_append_str(&out, "]}");
    cli_print_document(out.data);
    cli_text_free(&out);
    return CLI_OK;
}

static int info_print_text(dv_operator *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *text;
        if (dv_operator_describe(all[i], &text))
            return cli_fail("%s", dv_last_error());
        const size_t first = strcspn(text, "\n");
        printf("%s%s%.*s%s%s", i ? "\n" : "", cli_get_escape_code(stdout, CLI_BOLD), (int)first, text,
            cli_get_escape_code(stdout, CLI_STYLE_NONE), text + first);
        if (!*text || text[strlen(text) - 1] != '\n')
            puts("");
        dv_free(text);
    }
    return CLI_OK;
}

static int cmd_info_run(const cli_args *args)
{
    dv_operator **all = NULL;
    size_t n = 0;
    if (!args->noperands)
        return cli_fail_usage(args->verb, "expected a binary or the name of an operator");
    int status = info_gather_operators(args, &all, &n);
    if (!status)
        status = cli_json_output ? info_print_json(all, n) : info_print_text(all, n);
    free(all);
    return status;
}

static const cli_option info_options[] = {
    { 0, "json", NULL, "everything as one JSON document (docs/json.md)" },
    { 0 },
};

static const char *const info_examples[] = { "dovetail info my_ops.so", "every operator of a binary",
    "dovetail info my_ops.so my_ops::swiglu", "one of them", "dovetail info --json my_ops.so",
    "for programs: schema, contract and formulas as trees, kernels", NULL };

const cli_verb verb_info = {
    .name = "info",
    .purpose = "show what operators declare: schema, contract, kernels, gradient",
    .usage = "[options] FILE.so | FILE.c | FOLDER | NAMESPACE | NAMESPACE::OPERATOR ...",
    .about =
        "Prints an operator's schema, what it is, its contract in words with the order in which sizes are solved, its gradient\n"
        "and decomposition, and its kernels in the order in which they are tried. Binaries are loaded first; the shipped\n"
        "operators are known by name.",
    .options = info_options,
    .builds_sources = true,
    .examples = info_examples,
    .run_verb = cmd_info_run,
};
