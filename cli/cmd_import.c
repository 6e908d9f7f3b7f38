/* dovetail import: makes declarations of operators from files of other systems. The bridge's Python code reads the files. */
#include "cli.h"

static int cmd_import_run(const cli_args *args)
{
    if (!cli_has_option(args, "reg-op"))
        return cli_fail_usage(args->verb, "expected --reg-op");
    if (!args->noperands)
        return cli_fail_usage(args->verb, "expected a header with REG_OP");
    const char *out = cli_find_option_value(args, "out");
    return cli_run_bridge("torchair", cli_has_option(args, "builders") ? "builders" : "import", out ? out : ".", args);
}

static const cli_option import_options[] = {
    { 0, "reg-op", NULL, "read prototypes of GE: C++ headers with REG_OP" },
    { 0, "builders", NULL, "only the Python functions" },
    { 'o', "out", "FOLDER", "where to write; default: the current folder" },
    { 0 },
};

static const char *const import_examples[] = { "dovetail import --reg-op custom_reg_op.h",
    "writes auto_generated_ge_raw_custom_ops.py and custom_reg_op.c", NULL };

const cli_verb verb_import = {
    .name = "import",
    .purpose = "begin from prototypes of Ascend's graphs",
    .usage = "--reg-op [options] HEADER ...",
    .about =
        "Reads REG_OP and writes auto_generated_ge_raw_custom_ops.py, whose functions build a graph's nodes with torchair, and\n"
        "for each header a C file with a declaration of each operator, to start from. A C file that exists stays as it is.",
    .options = import_options,
    .examples = import_examples,
    .run_verb = cmd_import_run,
};
