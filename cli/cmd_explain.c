/* dovetail explain: shows which kernel a call would take, why not the others, and the results' shapes. Runs no kernel. */
#include "cli.h"

#include <stdlib.h>

typedef struct kernel_reports {
    dv_kernel_report *data; /* strings are copies */
    size_t n;
    bool has_selected;
} kernel_reports;

/* Returns a copy of the text, which is never freed; NULL for NULL or "". */
static const char *explain_copy_text(const char *s) { return s && *s ? cli_format("%s", s) : NULL; }

/* For dv_explain(): adds a copy of the report to the kernel_reports `user`. */
static void explain_copy_kernel_report(void *user, const dv_kernel_report *r)
{
    kernel_reports *all = user;
    all->data = cli_realloc_array(all->data, all->n + 1, sizeof *all->data);
    all->data[all->n++] = (dv_kernel_report){ explain_copy_text(r->name), explain_copy_text(r->provider),
        explain_copy_text(r->device), explain_copy_text(r->dtypes), explain_copy_text(r->isa), explain_copy_text(r->when),
        r->selected, explain_copy_text(r->reason) };
    all->has_selected = all->has_selected || r->selected;
}

static void explain_print_kernels(const kernel_reports *all)
{
    static const char *const heads[] = { "kernel", "device", "dtypes", "isa", "when" };
    int widths[5];
    for (size_t k = 0; k < 5; k++)
        widths[k] = (int)strlen(heads[k]);
    for (size_t i = 0; i < all->n; i++) {
        const char *const cells[] = { all->data[i].name, all->data[i].device, all->data[i].dtypes, all->data[i].isa,
            all->data[i].when };
        for (size_t k = 0; k < 5; k++)
            if (cells[k] && (int)strlen(cells[k]) > widths[k])
                widths[k] = (int)strlen(cells[k]);
    }
    printf("\n  %s%-*s  %-*s  %-*s  %-*s  %-*s  verdict%s\n", cli_get_escape_code(stdout, CLI_DIM), widths[0], heads[0],
        widths[1], heads[1], widths[2], heads[2], widths[3], heads[3], widths[4], heads[4],
        cli_get_escape_code(stdout, CLI_STYLE_NONE));
    for (size_t i = 0; i < all->n; i++) {
        const dv_kernel_report *r = &all->data[i];
        printf("%s%s %-*s  %-*s  %-*s  %-*s  %-*s  %s%s\n", r->selected ? cli_get_escape_code(stdout, CLI_GREEN) : "",
            r->selected ? "*" : " ", widths[0], r->name ? r->name : "-", widths[1], r->device ? r->device : "-", widths[2],
            r->dtypes ? r->dtypes : "any", widths[3], r->isa ? r->isa : "-", widths[4], r->when ? r->when : "-",
            r->reason ? r->reason : "", r->selected ? cli_get_escape_code(stdout, CLI_STYLE_NONE) : "");
    }
}

static void explain_append_kernels_json(cli_text *t, const kernel_reports *all)
{
    static const char *const names[] = { "kernel", "provider", "device", "dtypes", "isa", "when", "reason" };
    for (size_t i = 0; i < all->n; i++) {
        const dv_kernel_report *r = &all->data[i];
        const char *const values[] = { r->name, r->provider, r->device, r->dtypes, r->isa, r->when, r->reason };
        cli_text_appendf(t, "%s{\"selected\": %s", i ? ", " : "", r->selected ? "true" : "false");
        for (size_t k = 0; k < 7; k++) {
            cli_text_appendf(t, ", \"%s\": ", names[k]);
            if (values[k])
                cli_text_append_json(t, values[k]);
            else
                cli_text_append_str(t, "null");
        }
        cli_text_append_str(t, "}");
    }
}

/* What is inferred about a result; for a list of tensors, about each of its tensors. */
typedef struct explain_result {
    const char *name;
    dv_result_spec spec, *list; /* list: n specs; NULL if the result is not a list, or its length is unknown */
    size_t n;
} explain_result;

/* Infers all results of the call site without running a kernel. Returns a status of the library. */
static int explain_infer_results(const dv_site *s, size_t nresults, explain_result *out)
{
    dv_operator *op = dv_site_operator(s);
    const dv_value *args = dv_site_args(s);
    const size_t nargs = dv_operator_nargs(op);
    dv_result_spec *specs = cli_realloc_array(NULL, nresults, sizeof *specs);
    const int status = dv_site_infer(s, specs, nresults);
    for (size_t i = 0; i < nresults && !status; i++) {
        explain_result *r = &out[i];
        dv_slot_info info;
        dv_operator_slot(op, nargs + i, &info);
        r->name = info.name;
        r->spec = specs[i];
        if (!(r->spec.flags & DV_SPEC_LIST) || dv_infer_list(op, args, nargs, i, NULL, 0, &r->n))
            continue;
        r->list = cli_realloc_array(NULL, r->n, sizeof *r->list);
        if (dv_infer_list(op, args, nargs, i, r->list, r->n, &r->n)) {
            free(r->list);
            r->list = NULL;
        }
    }
    free(specs);
    return status;
}

static void explain_append_sizes(cli_text *t, const int64_t *data, int32_t n)
{
    cli_text_append_str(t, "[");
    for (int32_t i = 0; i < n; i++)
        cli_text_appendf(t, "%s%lld", i ? ", " : "", (long long)data[i]);
    cli_text_append_str(t, "]");
}

static void explain_append_result_spec(cli_text *t, const dv_result_spec *s)
{
    const dv_tensor like = { .ndim = s->ndim, .dtype = s->dtype, .shape = s->shape, .strides = s->strides };
    if (s->ndim < 0) {
        cli_text_append_str(t, s->flags & DV_SPEC_LIST ? "a list of tensors" : "not a tensor, or absent");
        return;
    }
    cli_text_append_str(t, dv_dtype_name(s->dtype));
    explain_append_sizes(t, s->shape, s->ndim);
    if (!dv_tensor_is_contiguous(&like)) {
        cli_text_append_str(t, " @ ");
        explain_append_sizes(t, s->strides, s->ndim);
    }
    if (s->device.type != DV_CPU)
        cli_text_appendf(t, " : %s:%d", dv_device_name(s->device.type), s->device.id);
    cli_text_append_str(t, s->flags & DV_SPEC_UNBACKED ? " at most: the sizes depend on data" : "");
    cli_text_append_str(t, s->flags & DV_SPEC_VIEW ? " (a view)" : "");
}

static void explain_append_result_spec_json(cli_text *t, const dv_result_spec *s)
{
    cli_text_appendf(
        t, "\"dtype\": \"%s\", \"device\": \"%s\", \"shape\": ", dv_dtype_name(s->dtype), dv_device_name(s->device.type));
    explain_append_sizes(t, s->shape, s->ndim);
    cli_text_append_str(t, ", \"strides\": ");
    explain_append_sizes(t, s->strides, s->ndim);
    cli_text_appendf(t, ", \"unbacked\": %s, \"view\": %s", s->flags & DV_SPEC_UNBACKED ? "true" : "false",
        s->flags & DV_SPEC_VIEW ? "true" : "false");
}

static void explain_append_result_json(cli_text *t, const explain_result *r)
{
    cli_text_append_str(t, "{\"name\": ");
    cli_text_append_json(t, r->name);
    if (r->spec.ndim >= 0) {
        cli_text_append_str(t, ", ");
        explain_append_result_spec_json(t, &r->spec);
    }
    cli_text_append_str(t, r->list ? ", \"list\": [" : "");
    for (size_t k = 0; r->list && k < r->n; k++) {
        cli_text_append_str(t, k ? ", {" : "{");
        explain_append_result_spec_json(t, &r->list[k]);
        cli_text_append_str(t, "}");
    }
    cli_text_append_str(t, r->list ? "]}" : "}");
}

static void explain_append_result(cli_text *t, const explain_result *r)
{
    cli_text_appendf(t, "\n  %s%s-> %s", r->name, *r->name ? " " : "", r->list ? "[" : "");
    if (!r->list)
        explain_append_result_spec(t, &r->spec);
    for (size_t k = 0; r->list && k < r->n; k++) {
        cli_text_append_str(t, k ? ", " : "");
        explain_append_result_spec(t, &r->list[k]);
    }
    cli_text_append_str(t, r->list ? "]" : "");
}

/* Prints the verdict on each kernel and the inferred results, as text or JSON. Returns CLI_FAILED, with the message printed, if
 * the call would be refused. */
static int explain_call_site(const dv_site *s)
{
    dv_operator *op = dv_site_operator(s);
    const size_t n = dv_operator_nresults(op);
    explain_result *results = cli_realloc_array(NULL, n, sizeof *results);
    kernel_reports all = { 0 };
    cli_text refused = { 0 }, t = { 0 };
    memset(results, 0, n * sizeof *results);
    if (explain_infer_results(s, n, results))
        cli_text_append_str(&refused, dv_last_error());
    if (dv_explain(op, dv_site_args(s), dv_operator_nargs(op), explain_copy_kernel_report, &all) && !refused.size)
        cli_text_append_str(&refused, dv_last_error());
    if (!refused.size && all.n && !all.has_selected) {
        cli_text_appendf(&refused, "%s: no kernel fits", dv_operator_name(op));
        for (size_t i = 0; i < all.n; i++)
            cli_text_appendf(&refused, "%s %s: %s", i ? ";" : ":", all.data[i].name ? all.data[i].name : "?",
                all.data[i].reason ? all.data[i].reason : "?");
    }
    if (cli_json_output && !refused.size) {
        cli_text_append_str(&t, "{\"ok\": true, \"operator\": ");
        cli_text_append_json(&t, dv_operator_name(op));
        cli_text_append_str(&t, ", \"kernels\": [");
        explain_append_kernels_json(&t, &all);
        cli_text_append_str(&t, "], \"results\": [");
        for (size_t i = 0; i < n; i++) {
            cli_text_append_str(&t, i ? ", " : "");
            explain_append_result_json(&t, &results[i]);
        }
        cli_text_append_str(&t, "]}");
        cli_print_document(t.data);
    } else if (!cli_json_output) {
        puts(dv_operator_schema(op));
        cli_print_site(s);
        if (all.n)
            explain_print_kernels(&all);
        for (size_t i = 0; i < n && !refused.size; i++)
            explain_append_result(&t, &results[i]);
        if (t.size)
            puts(t.data);
    }
    const int status = refused.size ? cli_fail("this call would be refused: %s", refused.data) : CLI_OK;
    for (size_t i = 0; i < n; i++)
        free(results[i].list);
    cli_text_free(&refused);
    cli_text_free(&t);
    free(results);
    free(all.data);
    return status;
}

static int cmd_explain_run(const cli_args *args)
{
    dv_site *site;
    const size_t first = cli_count_binary_operands(args);
    const char *isa = cli_find_option_value(args, "isa");
    if (cli_load_binaries(args, first, true))
        return CLI_FAILED;
    if (isa && dv_set_isa(isa))
        return cli_fail_usage(args->verb, "option '--isa': %s", dv_last_error());
    int status = cli_make_call_site(args, first, &site);
    if (!status)
        status = explain_call_site(site);
    dv_site_free(site);
    return status;
}

static const cli_option explain_options[] = {
    { 0, "isa", "NAME", "pretend that the processor has no more than this: base, avx2, avx512, avx512bf16, ..." },
    { 0, "json", NULL, "as JSON: kernels with verdicts, results with shapes" },
    { 0 },
};

static const char *const explain_examples[] = { "dovetail explain my_ops.so my_ops::swiglu 'f32[4,1024]' 'f32[4,1024]'",
    "which kernel runs, and the shape of the result",
    "dovetail explain my_ops.so my_ops::swiglu gate='f32[4,6]@[1,4]' up='f32[4,6]'", "arguments by name, the first with strides",
    NULL };

const cli_verb verb_explain = {
    .name = "explain",
    .purpose = "show which kernel a call takes and why, and what comes out",
    .usage = "[options] [FILE.so | FILE.c | FOLDER ...] NAMESPACE::OPERATOR [ARGUMENT | NAME=ARGUMENT ...]",
    .about =
        "Checks the arguments as a call would, prints each kernel with its verdict, and the inferred results. Runs "
        "nothing and\n"
        "needs no memory for the tensors. A call that would be refused is explained, and the exit code is 1.\n\n"
        "Arguments:\n"
        "  f32[4,1024]          a tensor: element type and sizes; f32[] has no dims\n"
        "  f32[4,6]@[1,4]       with strides, in elements\n"
        "  f32[4,6]:cuda        on a device (explain only)\n"
        "  i64[8]=0..100        filled at random from 0 to 100, exclusive; i64[2]=[5,7]; i64[8]=3: with one value (bench only)\n"
        "  3  1e-5  true  1+2j  numbers\n"
        "  BSND  \"BSND\"         a string; an element type (bf16) or a device (cpu) where one is expected\n"
        "  [1,2]  [f32[2],none] lists\n"
        "  none  default        None, and the schema's default",
    .options = explain_options,
    .builds_sources = true,
    .examples = explain_examples,
    .run_verb = cmd_explain_run,
};
