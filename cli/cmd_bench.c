/* dovetail bench: measures the time of a call, for each requested instruction set and number of threads.
 *
 * A sample is a run of calls that takes at least 20 us; after a warm-up, samples are taken for a while. The best time shows what
 * the kernel can do, the median what is usual. Result tensors are passed in, so allocation is not measured (unless --alloc). */
#include "cli.h"

#include <stdlib.h>

typedef struct bench_timing {
    double best, median;
    size_t samples;
    int64_t calls;
} bench_timing;

typedef struct bench {
    const cli_args *args;
    dv_operator *op;
    dv_site *site;
    const dv_value *values; /* the arguments of the call site, borrowed */
    size_t nvalues;
    dv_value *results;
    size_t nresults;
    bool alloc;
    double seconds, flops, bytes; /* seconds of measuring; floating-point operations and bytes of one call, negative if unknown */
    cli_text json;
    size_t nruns;
} bench;

/* Frees the results of the last call, so that the next call allocates new ones. */
static void bench_reset_results(bench *b)
{
    for (size_t i = 0; i < b->nresults; i++) {
        dv_value *r = &b->results[i];
        bool argument = false; /* a result Tensor(a!) is the argument itself, and not freed */
        for (size_t k = 0; k < b->nvalues; k++)
            argument = argument || (b->values[k].type == DV_VALUE_TENSOR && b->values[k].as.tensor == r->as.tensor);
        if (r->type == DV_VALUE_TENSOR && !argument)
            dv_tensor_unref((dv_tensor *)(uintptr_t)r->as.tensor);
        *r = dv_default();
    }
}

/* Calls the operator; with --alloc the results of the call before are freed first. Returns a status of the library. */
static int bench_call_once(bench *b)
{
    if (b->alloc)
        bench_reset_results(b);
    return dv_call(b->op, b->values, b->nvalues, b->results, b->nresults, NULL);
}

static int bench_compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Warms up, then measures samples of several calls each for b->seconds. Returns a status. */
static int bench_measure_calls(bench *b, bench_timing *out)
{
    enum { MAX_SAMPLES = 100000 };
    double *samples = NULL;
    size_t n = 0;
    int64_t calls = 1;
    if (bench_call_once(b))
        return cli_fail("%s", dv_last_error());
    for (const double start = cli_get_seconds();
        cli_get_seconds() - start < b->seconds / 10;) /* warm up, and find the number of calls in a sample */
        for (;;) {
            const double t = cli_get_seconds();
            for (int64_t i = 0; i < calls; i++)
                if (bench_call_once(b))
                    return cli_fail("%s", dv_last_error());
            if (cli_get_seconds() - t >= 20e-6 || calls >= 1 << 20)
                break;
            calls *= 2;
        }
    samples = cli_realloc_array(NULL, MAX_SAMPLES, sizeof *samples);
    for (const double start = cli_get_seconds(); n < 5 || (n < MAX_SAMPLES && cli_get_seconds() - start < b->seconds); n++) {
        const double t = cli_get_seconds();
        for (int64_t i = 0; i < calls; i++)
            (void)bench_call_once(b);
        samples[n] = (cli_get_seconds() - t) / (double)calls;
    }
    qsort(samples, n, sizeof *samples, bench_compare_doubles);
    *out = (bench_timing){ samples[0], n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2, n, calls };
    free(samples);
    return CLI_OK;
}

/* For dv_explain(): stores a copy of the first selected kernel's name in *name_out, a char * that is NULL before. The caller of
 * dv_explain() frees it. */
static void bench_copy_selected_kernel_name(void *name_out, const dv_kernel_report *r)
{
    char **name = name_out;
    if (r->selected && !*name)
        *name = cli_format("%s", r->name ? r->name : "?");
}

/* Writes amount / seconds in units of 1e9 per second, or "-" if the amount is unknown. */
static void bench_format_rate(char out[32], double amount, double seconds)
{
    if (amount > 0)
        snprintf(out, 32, "%.1f", amount / seconds * 1e-9);
    else
        snprintf(out, 32, "-");
}

/* Prints a line of the table, or adds an object to the JSON document. */
static void bench_print_timing(bench *b, const char *kernel, const char *isa, int threads, const bench_timing *t)
{
    if (cli_json_output) {
        cli_text_appendf(&b->json, "%s{\"kernel\": ", b->nruns ? ", " : "");
        cli_text_append_json(&b->json, kernel);
        cli_text_appendf(&b->json,
            ", \"isa\": \"%s\", \"threads\": %d, \"best_us\": %.4f, \"median_us\": %.4f, \"samples\": %zu, \"calls_per_sample\": "
            "%lld",
            isa, threads, t->best * 1e6, t->median * 1e6, t->samples, (long long)t->calls);
        if (b->bytes > 0)
            cli_text_appendf(&b->json, ", \"bytes\": %.0f, \"gb_per_s\": %.3f", b->bytes, b->bytes / t->best * 1e-9);
        if (b->flops > 0)
            cli_text_appendf(&b->json, ", \"flops\": %.0f, \"gflop_per_s\": %.3f", b->flops, b->flops / t->best * 1e-9);
        cli_text_append_str(&b->json, "}");
    } else {
        char bandwidth[32], speed[32];
        bench_format_rate(bandwidth, b->bytes, t->best);
        bench_format_rate(speed, b->flops, t->best);
        if (!b->nruns)
            printf("  %s%-28s  %-21s  %7s  %11s  %11s  %8s  %8s%s\n", cli_get_escape_code(stdout, CLI_DIM), "kernel", "isa",
                "threads", "best us", "median us", "GB/s", "GFLOP/s", cli_get_escape_code(stdout, CLI_STYLE_NONE));
        printf("  %-28s  %-21s  %7d  %11.3f  %11.3f  %8s  %8s\n", kernel, isa, threads, t->best * 1e6, t->median * 1e6, bandwidth,
            speed);
        fflush(stdout);
    }
    b->nruns++;
}

/* Measures with an instruction set and a number of threads; isa NULL, threads 0: unchanged. Returns a status. */
static int bench_run_configuration(bench *b, const char *isa, int threads)
{
    bench_timing t = { 0 };
    char *kernel = NULL;
    if (dv_set_isa(isa))
        return cli_fail_usage(b->args->verb, "option '--isa': %s", dv_last_error());
    if (threads && dv_set_threads(threads))
        return cli_fail("%s", dv_last_error());
    if (dv_explain(b->op, b->values, b->nvalues, bench_copy_selected_kernel_name, &kernel))
        return cli_fail("%s", dv_last_error());
    const int status = bench_measure_calls(b, &t);
    if (!status)
        bench_print_timing(b, kernel ? kernel : "decomposition", dv_get_isa(), dv_get_threads(), &t);
    free(kernel);
    return status;
}

/* Returns the next word of a list "a,b,c", and moves *list behind it; NULL at the end. The caller frees the word. */
static char *bench_take_next_word(const char **list)
{
    if (!*list || !**list)
        return NULL;
    const size_t n = strcspn(*list, ",");
    char *word = cli_format("%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return word;
}

/* Measures an instruction set with each number of --threads. Returns a status. */
static int bench_run_all_threads(bench *b, const char *isa)
{
    const char *list = cli_find_option_value(b->args, "threads");
    if (!list)
        return bench_run_configuration(b, isa, 0);
    for (char *word; (word = bench_take_next_word(&list));) {
        const int status = bench_run_configuration(b, isa, atoi(word));
        free(word);
        if (status)
            return status;
    }
    return CLI_OK;
}

/* Checks that --threads is a list of numbers in range. Returns CLI_OK, or CLI_USAGE with the message printed. */
static int bench_check_threads_option(const cli_args *args)
{
    const char *list = cli_find_option_value(args, "threads");
    int status = CLI_OK;
    for (char *word; list && !status && (word = bench_take_next_word(&list)); free(word)) {
        char *end;
        const long n = strtol(word, &end, 10);
        if (!*word || *end || n < 1 || n > DV_MAX_THREADS)
            status = cli_fail_usage(
                args->verb, "option '--threads': expected numbers from 1 to %d such as 1,4, found '%s'", DV_MAX_THREADS, word);
    }
    return status;
}

/* Measures each instruction set of --isa. Returns a status. */
static int bench_run_all_isas(bench *b)
{
    const char *list = cli_find_option_value(b->args, "isa");
    if (!list)
        return bench_run_all_threads(b, NULL);
    for (char *word; (word = bench_take_next_word(&list));) {
        const int status = bench_run_all_threads(b, word);
        free(word);
        if (status)
            return status;
    }
    return CLI_OK;
}

static int cmd_bench_run(const cli_args *args)
{
    int64_t milliseconds;
    const size_t first = cli_count_binary_operands(args);
    bench b = { .args = args, .alloc = cli_has_option(args, "alloc"), .flops = -1, .bytes = -1 };
    if (cli_parse_option_int(args, "time", 1, 1000000, 300, &milliseconds) || bench_check_threads_option(args))
        return CLI_USAGE;
    b.seconds = (double)milliseconds * 1e-3;
    if (cli_load_binaries(args, first, true))
        return CLI_FAILED;
    int status = cli_make_call_site(args, first, &b.site);
    if (status)
        return status;
    b.op = dv_site_operator(b.site);
    b.nresults = dv_operator_nresults(b.op);
    b.results = cli_realloc_array(NULL, b.nresults, sizeof *b.results);
    for (size_t i = 0; i < b.nresults; i++)
        b.results[i] = dv_default();
    if (!cli_json_output)
        cli_print_site(b.site);
    if (dv_site_alloc(b.site))
        status = cli_fail_usage(args->verb, "%s", dv_last_error());
    if (!status) {
        b.values = dv_site_args(b.site);
        b.nvalues = dv_operator_nargs(b.op);
        if (dv_cost(b.op, b.values, b.nvalues, &b.flops, &b.bytes))
            b.flops = b.bytes = -1;
        status = bench_run_all_isas(&b);
    }
    if (!status && cli_json_output) {
        cli_text t = { 0 };
        cli_text_append_str(&t, "{\"ok\": true, \"operator\": ");
        cli_text_append_json(&t, dv_operator_name(b.op));
        cli_text_appendf(&t, ", \"runs\": [%s]}", b.json.data ? b.json.data : "");
        cli_print_document(t.data);
        cli_text_free(&t);
    }
    bench_reset_results(&b);
    free(b.results);
    dv_site_free(b.site);
    cli_text_free(&b.json);
    return status;
}

static const cli_option bench_options[] = {
    { 0, "isa", "LIST", "one run for each: base, avx2, avx512bf16, ... (default: the best available)" },
    { 0, "threads", "LIST", "one run for each number of threads, such as 1,4 (default: as many as the process may use)" },
    { 0, "time", "MS", "milliseconds to measure in each run (default: 300)" },
    { 0, "alloc", NULL, "also measure the allocation of results (otherwise they are given)" },
    { 0, "json", NULL, "as JSON: a list of runs" },
    { 0 },
};

static const char *const bench_examples[] = { "dovetail bench my_ops.so my_ops::swiglu 'f32[64,4096]' 'f32[64,4096]'",
    "time of one call, and the bandwidth that it reaches",
    "dovetail bench --isa base,avx2 --threads 1,2 my_ops.so swiglu 'f32[1000000]' 'f32[1000000]'",
    "instruction sets and threads side by side", NULL };

const cli_verb verb_bench = {
    .name = "bench",
    .purpose = "time an operator: microseconds, GB/s, GFLOP/s",
    .usage = "[options] [FILE.so | FILE.c | FOLDER ...] NAMESPACE::OPERATOR [ARGUMENT | NAME=ARGUMENT ...]",
    .about = "Calls the operator through the registry, checks included, on tensors with random contents (integers: zeros, unless "
             "a range\n"
             "is given, as in i64[8]=0..100). 'dovetail explain --help' has the syntax of arguments. GB/s and GFLOP/s are "
             "computed from\n"
             "the bytes and flops of the contract, and the best time.",
    .options = bench_options,
    .builds_sources = true,
    .examples = bench_examples,
    .run_verb = cmd_bench_run,
};
