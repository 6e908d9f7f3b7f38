/* dovetail explain: shows which kernel a call would take, why not the others, and the results' shapes. Runs no kernel. */
#include "cli.h"

#include <stdlib.h>

typedef struct rows {
    dv_row_report *data; /* strings are copies */
    size_t n;
    bool taken;
} rows;

static const char *copy(const char *s) { return s && *s ? cli_format("%s", s) : NULL; }

static void add_row(void *user, const dv_row_report *r)
{
    rows *all = user;
    all->data = cli_alloc(all->data, all->n + 1, sizeof *all->data);
    all->data[all->n++] = (dv_row_report){ copy(r->name), copy(r->provider), copy(r->device), copy(r->dtypes), copy(r->isa),
        copy(r->when), r->taken, copy(r->reason) };
    all->taken = all->taken || r->taken;
}

static void print_table(const rows *all)
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
    printf("\n  %s%-*s  %-*s  %-*s  %-*s  %-*s  verdict%s\n", cli_style(stdout, CLI_DIM), widths[0], heads[0], widths[1],
        heads[1], widths[2], heads[2], widths[3], heads[3], widths[4], heads[4], cli_style(stdout, CLI_PLAIN));
    for (size_t i = 0; i < all->n; i++) {
        const dv_row_report *r = &all->data[i];
        printf("%s%s %-*s  %-*s  %-*s  %-*s  %-*s  %s%s\n", r->taken ? cli_style(stdout, CLI_GREEN) : "", r->taken ? "*" : " ",
            widths[0], r->name ? r->name : "-", widths[1], r->device ? r->device : "-", widths[2], r->dtypes ? r->dtypes : "any",
            widths[3], r->isa ? r->isa : "-", widths[4], r->when ? r->when : "-", r->reason ? r->reason : "",
            r->taken ? cli_style(stdout, CLI_PLAIN) : "");
    }
}

static void add_json_rows(cli_text *t, const rows *all)
{
    static const char *const names[] = { "kernel", "provider", "device", "dtypes", "isa", "when", "reason" };
    for (size_t i = 0; i < all->n; i++) {
        const dv_row_report *r = &all->data[i];
        const char *const values[] = { r->name, r->provider, r->device, r->dtypes, r->isa, r->when, r->reason };
        cli_addf(t, "%s{\"taken\": %s", i ? ", " : "", r->taken ? "true" : "false");
        for (size_t k = 0; k < 7; k++) {
            cli_addf(t, ", \"%s\": ", names[k]);
            if (values[k])
                cli_add_json(t, values[k]);
            else
                cli_adds(t, "null");
        }
        cli_adds(t, "}");
    }
}

/* A result, or for a list each of its tensors. */
typedef struct result {
    const char *name;
    dv_result_spec spec, *list; /* list: NULL if it is not a list, or not said */
    size_t n;
} result;

static int infer(const dv_site *s, size_t nresults, result *out)
{
    dv_operator *op = dv_site_operator(s);
    const dv_value *args = dv_site_args(s);
    const size_t nargs = dv_operator_nargs(op);
    dv_result_spec *specs = cli_alloc(NULL, nresults, sizeof *specs);
    const int status = dv_site_infer(s, specs, nresults);
    for (size_t i = 0; i < nresults && !status; i++) {
        result *r = &out[i];
        dv_slot_info info;
        dv_operator_slot(op, nargs + i, &info);
        r->name = info.name;
        r->spec = specs[i];
        if (!(r->spec.flags & DV_SPEC_LIST) || dv_infer_list(op, args, nargs, i, NULL, 0, &r->n))
            continue;
        r->list = cli_alloc(NULL, r->n, sizeof *r->list);
        if (dv_infer_list(op, args, nargs, i, r->list, r->n, &r->n)) {
            free(r->list);
            r->list = NULL;
        }
    }
    free(specs);
    return status;
}

static void add_numbers(cli_text *t, const int64_t *data, int32_t n)
{
    cli_adds(t, "[");
    for (int32_t i = 0; i < n; i++)
        cli_addf(t, "%s%lld", i ? ", " : "", (long long)data[i]);
    cli_adds(t, "]");
}

static void add_spec(cli_text *t, const dv_result_spec *s)
{
    const dv_tensor like = { .ndim = s->ndim, .dtype = s->dtype, .shape = s->shape, .strides = s->strides };
    if (s->ndim < 0) {
        cli_adds(t, s->flags & DV_SPEC_LIST ? "a list of tensors" : "not a tensor, or absent");
        return;
    }
    cli_adds(t, dv_dtype_name(s->dtype));
    add_numbers(t, s->shape, s->ndim);
    if (!dv_tensor_is_contiguous(&like)) {
        cli_adds(t, " @ ");
        add_numbers(t, s->strides, s->ndim);
    }
    if (s->device.type != DV_CPU)
        cli_addf(t, " : %s:%d", dv_device_name(s->device.type), s->device.id);
    cli_adds(t, s->flags & DV_SPEC_UNBACKED ? " at most: the sizes depend on data" : "");
    cli_adds(t, s->flags & DV_SPEC_VIEW ? " (a view)" : "");
}

static void add_json_spec(cli_text *t, const dv_result_spec *s)
{
    cli_addf(t, "\"dtype\": \"%s\", \"device\": \"%s\", \"shape\": ", dv_dtype_name(s->dtype), dv_device_name(s->device.type));
    add_numbers(t, s->shape, s->ndim);
    cli_adds(t, ", \"strides\": ");
    add_numbers(t, s->strides, s->ndim);
    cli_addf(t, ", \"unbacked\": %s, \"view\": %s", s->flags & DV_SPEC_UNBACKED ? "true" : "false",
        s->flags & DV_SPEC_VIEW ? "true" : "false");
}

static void add_json_result(cli_text *t, const result *r)
{
    cli_adds(t, "{\"name\": ");
    cli_add_json(t, r->name);
    if (r->spec.ndim >= 0) {
        cli_adds(t, ", ");
        add_json_spec(t, &r->spec);
    }
    cli_adds(t, r->list ? ", \"list\": [" : "");
    for (size_t k = 0; r->list && k < r->n; k++) {
        cli_adds(t, k ? ", {" : "{");
        add_json_spec(t, &r->list[k]);
        cli_adds(t, "}");
    }
    cli_adds(t, r->list ? "]}" : "}");
}

static void add_result(cli_text *t, const result *r)
{
    cli_addf(t, "\n  %s%s-> %s", r->name, *r->name ? " " : "", r->list ? "[" : "");
    if (!r->list)
        add_spec(t, &r->spec);
    for (size_t k = 0; r->list && k < r->n; k++) {
        cli_adds(t, k ? ", " : "");
        add_spec(t, &r->list[k]);
    }
    cli_adds(t, r->list ? "]" : "");
}

static int explain(const dv_site *s)
{
    dv_operator *op = dv_site_operator(s);
    const size_t n = dv_operator_nresults(op);
    result *results = cli_alloc(NULL, n, sizeof *results);
    rows all = { 0 };
    cli_text refused = { 0 }, t = { 0 };
    memset(results, 0, n * sizeof *results);
    if (infer(s, n, results))
        cli_adds(&refused, dv_last_error());
    if (dv_explain(op, dv_site_args(s), dv_operator_nargs(op), add_row, &all) && !refused.size)
        cli_adds(&refused, dv_last_error());
    if (!refused.size && all.n && !all.taken) {
        cli_addf(&refused, "%s: no kernel fits", dv_operator_name(op));
        for (size_t i = 0; i < all.n; i++)
            cli_addf(&refused, "%s %s: %s", i ? ";" : ":", all.data[i].name ? all.data[i].name : "?",
                all.data[i].reason ? all.data[i].reason : "?");
    }
    if (cli_json && !refused.size) {
        cli_adds(&t, "{\"ok\": true, \"operator\": ");
        cli_add_json(&t, dv_operator_name(op));
        cli_adds(&t, ", \"kernels\": [");
        add_json_rows(&t, &all);
        cli_adds(&t, "], \"results\": [");
        for (size_t i = 0; i < n; i++) {
            cli_adds(&t, i ? ", " : "");
            add_json_result(&t, &results[i]);
        }
        printf("%s]}\n", t.data);
    } else if (!cli_json) {
        puts(dv_operator_schema(op));
        cli_print_site(s);
        if (all.n)
            print_table(&all);
        for (size_t i = 0; i < n && !refused.size; i++)
            add_result(&t, &results[i]);
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

static int run(const cli_args *args)
{
    dv_site *site;
    const size_t first = cli_count_binaries(args);
    const char *isa = cli_get(args, "isa");
    if (cli_load(args, first, true))
        return CLI_FAILED;
    if (isa && dv_set_isa(isa))
        return cli_usage(args->verb, "option '--isa': %s", dv_last_error());
    int status = cli_site(args, first, &site);
    if (!status)
        status = explain(site);
    dv_site_free(site);
    return status;
}

static const cli_option options[] = {
    { 0, "isa", "NAME", "pretend that the processor has no more than this: base, avx2, avx512, avx512bf16, ..." },
    { 0, "json", NULL, "as JSON: kernel rows with verdicts, results with shapes" },
    { 0 },
};

static const char *const examples[] = { "dovetail explain my_ops.so my_ops::swiglu 'f32[4,1024]' 'f32[4,1024]'",
    "which kernel runs, and the shape of the result",
    "dovetail explain my_ops.so my_ops::swiglu gate='f32[4,6]@[1,4]' up='f32[4,6]'", "arguments by name, the first with strides",
    NULL };

const cli_verb verb_explain = {
    .name = "explain",
    .purpose = "show which kernel a call takes and why, and what comes out",
    .usage = "[options] [FILE.so | FILE.c | FOLDER ...] NAMESPACE::OPERATOR [ARGUMENT | NAME=ARGUMENT ...]",
    .about =
        "Checks the arguments as a call would, prints each kernel row with its verdict, and the inferred results. Runs "
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
    .options = options,
    .builds = true,
    .examples = examples,
    .run = run,
};
