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

typedef struct call {
    dv_operator *op;
    const cli_values *values;
    dv_result_spec *specs; /* of the results */
    size_t n;
} call;

/* The tensors of result r, which is a list; the caller frees them. NULL: not said. */
static dv_result_spec *elements(const call *c, size_t r, size_t *n)
{
    if (dv_infer_list(c->op, c->values->data, c->values->n, r, NULL, 0, n))
        return NULL;
    dv_result_spec *specs = cli_alloc(NULL, *n + 1, sizeof *specs);
    if (!dv_infer_list(c->op, c->values->data, c->values->n, r, specs, *n, n))
        return specs;
    free(specs);
    return NULL;
}

static void describe_spec(const dv_result_spec *s, cli_text *t)
{
    if (s->ndim < 0) {
        cli_adds(t, s->flags & DV_SPEC_LIST ? "a list of tensors" : "not a tensor, or absent");
        return;
    }
    cli_add_shape(t, s->dtype, s->ndim, s->shape, s->strides);
    if (s->device.type != DV_CPU)
        cli_addf(t, " : %s:%d", dv_device_name(s->device.type), s->device.id);
    cli_adds(t, s->flags & DV_SPEC_UNBACKED ? " at most: the sizes depend on data" : "");
    cli_adds(t, s->flags & DV_SPEC_VIEW ? " (a view)" : "");
}

static void add_json_spec(const dv_result_spec *s, cli_text *t)
{
    const int64_t *const lists[] = { s->shape, s->strides };
    cli_addf(t, "\"dtype\": \"%s\", \"device\": \"%s\"", dv_dtype_name(s->dtype), dv_device_name(s->device.type));
    for (size_t k = 0; k < 2; k++) {
        cli_adds(t, k ? ", \"strides\": [" : ", \"shape\": [");
        for (int32_t d = 0; d < s->ndim; d++)
            cli_addf(t, "%s%lld", d ? ", " : "", (long long)lists[k][d]);
        cli_adds(t, "]");
    }
    cli_addf(t, ", \"unbacked\": %s, \"view\": %s", s->flags & DV_SPEC_UNBACKED ? "true" : "false",
        s->flags & DV_SPEC_VIEW ? "true" : "false");
}

static void add_json_specs(cli_text *t, const call *c)
{
    for (size_t i = 0; i < c->n; i++) {
        dv_slot_info info;
        size_t n = 0;
        dv_result_spec *list = c->specs[i].flags & DV_SPEC_LIST ? elements(c, i, &n) : NULL;
        dv_operator_slot(c->op, dv_operator_nargs(c->op) + i, &info);
        cli_adds(t, i ? ", {\"name\": " : "{\"name\": ");
        cli_add_json(t, info.name);
        if (c->specs[i].ndim >= 0) {
            cli_adds(t, ", ");
            add_json_spec(&c->specs[i], t);
        }
        for (size_t k = 0; list && k <= n; k++) {
            cli_adds(t, k == n ? n ? "}]" : ", \"list\": []" : k ? "}, {" : ", \"list\": [{");
            if (k < n)
                add_json_spec(&list[k], t);
        }
        free(list);
        cli_adds(t, "}");
    }
}

static void print_call(const dv_operator *op, const cli_values *values)
{
    printf("%s%s%s\n", cli_style(stdout, CLI_BOLD), dv_operator_schema(op), cli_style(stdout, CLI_PLAIN));
    for (size_t i = 0; i < values->n; i++) {
        dv_slot_info info;
        cli_text t = { 0 };
        dv_operator_slot(op, i, &info);
        if (values->data[i].type == DV_VALUE_DEFAULT)
            cli_addf(&t, "%s (the default)", info.default_text ? info.default_text : "");
        else
            cli_add_value(&t, &values->data[i]);
        printf("  %s = %s\n", info.name, t.data);
        cli_text_free(&t);
    }
}

static void print_results(const call *c)
{
    puts("");
    for (size_t i = 0; i < c->n; i++) {
        dv_slot_info info;
        cli_text t = { 0 };
        size_t n = 0;
        dv_result_spec *list = c->specs[i].flags & DV_SPEC_LIST ? elements(c, i, &n) : NULL;
        dv_operator_slot(c->op, dv_operator_nargs(c->op) + i, &info);
        if (!list)
            describe_spec(&c->specs[i], &t);
        for (size_t k = 0; list && k < n; k++) {
            cli_adds(&t, k ? ", " : "[");
            describe_spec(&list[k], &t);
        }
        printf("  %s%s-> %s%s\n", info.name, *info.name ? " " : "", t.data ? t.data : "[", list ? "]" : "");
        free(list);
        cli_text_free(&t);
    }
}

static int explain(dv_operator *op, const cli_values *values)
{
    call c = { .op = op, .values = values, .n = dv_operator_nresults(op) };
    rows all = { 0 };
    cli_text refused = { 0 };
    c.specs = cli_alloc(NULL, c.n, sizeof *c.specs);
    memset(c.specs, 0, c.n * sizeof *c.specs);
    if (dv_infer(op, values->data, values->n, c.specs, c.n))
        cli_adds(&refused, dv_last_error());
    if (dv_explain(op, values->data, values->n, add_row, &all) && !refused.size)
        cli_adds(&refused, dv_last_error());
    if (!refused.size && all.n && !all.taken) {
        cli_addf(&refused, "%s: no kernel fits", dv_operator_name(op));
        for (size_t i = 0; i < all.n; i++)
            cli_addf(&refused, "%s %s: %s", i ? ";" : ":", all.data[i].name ? all.data[i].name : "?",
                all.data[i].reason ? all.data[i].reason : "?");
    }
    if (cli_json && !refused.size) {
        cli_text t = { 0 };
        cli_adds(&t, "{\"ok\": true, \"operator\": ");
        cli_add_json(&t, dv_operator_name(op));
        cli_adds(&t, ", \"kernels\": [");
        add_json_rows(&t, &all);
        cli_adds(&t, "], \"results\": [");
        add_json_specs(&t, &c);
        printf("%s]}\n", t.data);
        cli_text_free(&t);
    } else if (!cli_json) {
        print_call(op, values);
        if (all.n)
            print_table(&all);
        if (!refused.size)
            print_results(&c);
    }
    const int status = refused.size ? cli_fail("this call would be refused: %s", refused.data) : CLI_OK;
    cli_text_free(&refused);
    free(c.specs);
    free(all.data);
    return status;
}

static int run(const cli_args *args)
{
    dv_operator *op;
    cli_values values = { 0 };
    size_t first = 0;
    const char *isa = cli_get(args, "isa");
    while (first < args->nwords && cli_is_binary(args->words[first]))
        if (cli_load(args->words[first++]))
            return CLI_FAILED;
    if (first >= args->nwords)
        return cli_usage(args->verb, "expected the name of an operator");
    if (isa && dv_set_isa(isa))
        return cli_usage(args->verb, "option '--isa': %s", dv_last_error());
    if (cli_find_one(args->words[first], &op))
        return CLI_FAILED;
    int status = cli_values_parse(args->verb, op, args->words + first + 1, args->nwords - first - 1, CLI_NO_MEMORY, &values);
    if (!status)
        status = explain(op, &values);
    cli_values_free(&values);
    return status;
}

static const cli_option options[] = {
    { 0, "isa", "NAME", "pretend that the processor has no more than this: base, avx2, avx512, neon, sve" },
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
    .usage = "[options] [FILE.so ...] NAMESPACE::OPERATOR [ARGUMENT | NAME=ARGUMENT ...]",
    .about = "Checks the arguments as a call would, prints each kernel row with its verdict, and the inferred results. Runs "
             "nothing and\n"
             "needs no memory for the tensors. A call that would be refused is explained, and the exit code is 1.\n\n"
             "Arguments:\n"
             "  f32[4,1024]          a tensor: element type and sizes; f32[] has no dims\n"
             "  f32[4,6]@[1,4]       with strides, in elements\n"
             "  f32[4,6]:cuda        on a device (explain only)\n"
             "  i64[8]=0..100        filled at random from 0 to 100, exclusive; i64[8]=3: with one value (bench only)\n"
             "  3  1e-5  true  1+2j  numbers\n"
             "  BSND  \"BSND\"         a string; an element type (bf16) or a device (cpu) where one is expected\n"
             "  [1,2]  [f32[2],none] lists\n"
             "  none  default        None, and the schema's default",
    .options = options,
    .examples = examples,
    .run = run,
};
