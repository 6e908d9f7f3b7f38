/* dovetail export: writes files about operators for other systems. The bridge's Python code makes the texts: without Python there
 * is no torchair either. */
#include "cli.h"

static int cmd_export_run(const cli_args *args)
{
    static const char *const kinds[] = { "torchair", "reg-op", "ge" };
    const char *what = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!cli_has_option(args, kinds[i]))
            continue;
        if (what)
            return cli_fail_usage(args->verb, "expected one of --%s and --%s", what, kinds[i]);
        what = kinds[i];
    }
    if (!what)
        return cli_fail_usage(args->verb, "expected --torchair, --reg-op or --ge");
    if (!args->noperands)
        return cli_fail_usage(args->verb, "expected a binary, or a source file");
    const char *out = cli_find_option_value(args, "out");
    return cli_run_bridge("torchair", what, out ? out : strcmp(what, "ge") ? "" : ".", args);
}

static const cli_option export_options[] = {
    { 0, "torchair", NULL, "converters for torchair: Python that needs torchair, and not Dovetail" },
    { 0, "reg-op", NULL, "the prototypes of their nodes for GE: a C++ header" },
    { 0, "ge", NULL, "the prototypes, and InferShape and InferDataType of each node: C++ for a package of CANN" },
    { 'o', "out", "PATH", "the file to write, with --ge the folder; default: standard output, the current folder" },
    { 0 },
};

static const char *const export_examples[] = { "dovetail export --reg-op my_ops.so", "prints REG_OP of each operator",
    "dovetail export --ge my_ops.so -o op_proto", "writes my_ops_proto.h, my_ops_infer.cpp and dovetail_ge.h", NULL };

const cli_verb verb_export = {
    .name = "export",
    .purpose = "write what Ascend's graphs need to know about operators",
    .usage = "--torchair | --reg-op | --ge [options] FILE.so ...",
    .about = "Writes, from the declarations, what torchair and GE (Ascend's graph engine) need for nodes of these operators:\n"
             "docs/torchair.md. Nothing of torchair or CANN needs to be installed.",
    .options = export_options,
    .examples = export_examples,
    .run_verb = cmd_export_run,
};
