/* dovetail bench: measures the time of a call, for each requested instruction set and number of threads.
 *
 * A sample is a run of calls that takes at least 20 us; after a warm-up, samples are taken for a while. The best time shows what
 * the kernel can do, the median what is usual. Result tensors are passed in, so allocation is not measured (unless --alloc). */
#include "cli.h"

#include <stdlib.h>

typedef struct timing {
    double best, median;
    size_t samples;
    int64_t calls;
} timing;

typedef struct bench {
    const cli_args *args;
    dv_operator *op;
    dv_site *site;
    const dv_value *values; /* the site's */
    size_t nvalues;
    dv_value *results;
    size_t nresults;
    bool alloc;
    double seconds, flops, bytes; /* flops and bytes of one call; negative: not known */
    cli_text json;
    size_t nruns;
} bench;

static void free_results(bench *b)
{
    for (size_t i = 0; i < b->nresults; i++) {
        dv_value *r = &b->results[i];
        bool argument = false; /* Tensor(a!) results are the argument itself */
        for (size_t k = 0; k < b->nvalues; k++)
            argument = argument || (b->values[k].type == DV_VALUE_TENSOR && b->values[k].as.tensor == r->as.tensor);
        if (r->type == DV_VALUE_TENSOR && !argument)
            dv_tensor_unref((dv_tensor *)(uintptr_t)r->as.tensor);
        *r = dv_default();
    }
}

static int call(bench *b)
{
    if (b->alloc)
        free_results(b);
    return dv_call(b->op, b->values, b->nvalues, b->results, b->nresults, NULL);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(bench *b, timing *out)
{
    enum { MOST = 100000 };
    double *samples = NULL;
    size_t n = 0;
    int64_t calls = 1;
    if (call(b))
        return cli_fail("%s", dv_last_error());
    for (const double start = cli_now();
        cli_now() - start < b->seconds / 10;) /* warm up, and find the number of calls in a sample */
        for (;;) {
            const double t = cli_now();
            for (int64_t i = 0; i < calls; i++)
                if (call(b))
                    return cli_fail("%s", dv_last_error());
            if (cli_now() - t >= 20e-6 || calls >= 1 << 20)
                break;
            calls *= 2;
        }
    samples = cli_alloc(NULL, MOST, sizeof *samples);
    for (const double start = cli_now(); n < 5 || (n < MOST && cli_now() - start < b->seconds); n++) {
        const double t = cli_now();
        for (int64_t i = 0; i < calls; i++)
            (void)call(b);
        samples[n] = (cli_now() - t) / (double)calls;
    }
    qsort(samples, n, sizeof *samples, compare);
    *out = (timing){ samples[0], n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2, n, calls };
    free(samples);
    return CLI_OK;
}

static void find_taken(void *user, const dv_row_report *r)
{
    char **name = user;
    if (r->taken && !*name)
        *name = cli_format("%s", r->name ? r->name : "?");
}

static void rate(char out[32], double amount, double seconds)
{
    if (amount > 0)
        snprintf(out, 32, "%.1f", amount / seconds * 1e-9);
    else
        snprintf(out, 32, "-");
}

static void report(bench *b, const char *kernel, const char *isa, int threads, const timing *t)
{
    if (cli_json) {
        cli_addf(&b->json, "%s{\"kernel\": ", b->nruns ? ", " : "");
        cli_add_json(&b->json, kernel);
        cli_addf(&b->json,
            ", \"isa\": \"%s\", \"threads\": %d, \"best_us\": %.4f, \"median_us\": %.4f, \"samples\": %zu, \"calls_per_sample\": "
            "%lld",
            isa, threads, t->best * 1e6, t->median * 1e6, t->samples, (long long)t->calls);
        if (b->bytes > 0)
            cli_addf(&b->json, ", \"bytes\": %.0f, \"gb_per_s\": %.3f", b->bytes, b->bytes / t->best * 1e-9);
        if (b->flops > 0)
            cli_addf(&b->json, ", \"flops\": %.0f, \"gflop_per_s\": %.3f", b->flops, b->flops / t->best * 1e-9);
        cli_adds(&b->json, "}");
    } else {
        char bandwidth[32], speed[32];
        rate(bandwidth, b->bytes, t->best);
        rate(speed, b->flops, t->best);
        if (!b->nruns)
            printf("  %s%-28s  %-21s  %7s  %11s  %11s  %8s  %8s%s\n", cli_style(stdout, CLI_DIM), "kernel", "isa", "threads",
                "best us", "median us", "GB/s", "GFLOP/s", cli_style(stdout, CLI_PLAIN));
        printf("  %-28s  %-21s  %7d  %11.3f  %11.3f  %8s  %8s\n", kernel, isa, threads, t->best * 1e6, t->median * 1e6, bandwidth,
            speed);
        fflush(stdout);
    }
    b->nruns++;
}

static int run_one(bench *b, const char *isa, int threads)
{
    timing t = { 0 };
    char *kernel = NULL;
    if (dv_set_isa(isa))
        return cli_usage(b->args->verb, "option '--isa': %s", dv_last_error());
    if (threads && dv_set_threads(threads))
        return cli_fail("%s", dv_last_error());
    if (dv_explain(b->op, b->values, b->nvalues, find_taken, &kernel))
        return cli_fail("%s", dv_last_error());
    const int status = measure(b, &t);
    if (!status)
        report(b, kernel ? kernel : "native form", dv_get_isa(), dv_get_threads(), &t);
    free(kernel);
    return status;
}

/* The next word of a list "a,b,c"; NULL at the end. The caller frees it. */
static char *next_word(const char **list)
{
    if (!*list || !**list)
        return NULL;
    const size_t n = strcspn(*list, ",");
    char *word = cli_format("%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return word;
}

static int run_threads(bench *b, const char *isa)
{
    const char *list = cli_get(b->args, "threads");
    if (!list)
        return run_one(b, isa, 0);
    for (char *word; (word = next_word(&list));) {
        const int status = run_one(b, isa, atoi(word));
        free(word);
        if (status)
            return status;
    }
    return CLI_OK;
}

static int check_threads(const cli_args *args)
{
    const char *list = cli_get(args, "threads");
    int status = CLI_OK;
    for (char *word; list && !status && (word = next_word(&list)); free(word)) {
        char *end;
        const long n = strtol(word, &end, 10);
        if (!*word || *end || n < 1 || n > DV_MAX_THREADS)
            status = cli_usage(
                args->verb, "option '--threads': expected numbers from 1 to %d such as 1,4, found '%s'", DV_MAX_THREADS, word);
    }
    return status;
}

static int run_all(bench *b)
{
    const char *list = cli_get(b->args, "isa");
    if (!list)
        return run_threads(b, NULL);
    for (char *word; (word = next_word(&list));) {
        const int status = run_threads(b, word);
        free(word);
        if (status)
            return status;
    }
    return CLI_OK;
}

static int run(const cli_args *args)
{
    int64_t milliseconds;
    const size_t first = cli_count_binaries(args);
    bench b = { .args = args, .alloc = cli_has(args, "alloc"), .flops = -1, .bytes = -1 };
    if (cli_get_int(args, "time", 1, 1000000, 300, &milliseconds) || check_threads(args))
        return CLI_USAGE;
    b.seconds = (double)milliseconds * 1e-3;
    if (cli_load(args, first, true))
        return CLI_FAILED;
    int status = cli_site(args, first, &b.site);
    if (status)
        return status;
    b.op = dv_site_operator(b.site);
    b.nresults = dv_operator_nresults(b.op);
    b.results = cli_alloc(NULL, b.nresults, sizeof *b.results);
    for (size_t i = 0; i < b.nresults; i++)
        b.results[i] = dv_default();
    if (!cli_json)
        cli_print_site(b.site);
    if (dv_site_alloc(b.site))
        status = cli_usage(args->verb, "%s", dv_last_error());
    if (!status) {
        b.values = dv_site_args(b.site);
        b.nvalues = dv_operator_nargs(b.op);
        if (dv_cost(b.op, b.values, b.nvalues, &b.flops, &b.bytes))
            b.flops = b.bytes = -1;
        status = run_all(&b);
    }
    if (!status && cli_json) {
        cli_text name = { 0 };
        cli_add_json(&name, dv_operator_name(b.op));
        printf("{\"ok\": true, \"operator\": %s, \"runs\": [%s]}\n", name.data, b.json.data ? b.json.data : "");
        cli_text_free(&name);
    }
    free_results(&b);
    free(b.results);
    dv_site_free(b.site);
    cli_text_free(&b.json);
    return status;
}

static const cli_option options[] = {
    { 0, "isa", "LIST", "one run for each: base, avx2, avx512bf16, ... (default: the best available)" },
    { 0, "threads", "LIST", "one run for each number of threads, such as 1,4 (default: as many as the process may use)" },
    { 0, "time", "MS", "milliseconds to measure in each run (default: 300)" },
    { 0, "alloc", NULL, "also measure the allocation of results (otherwise they are given)" },
    { 0, "json", NULL, "as JSON: a list of runs" },
    { 0 },
};

static const char *const examples[] = { "dovetail bench my_ops.so my_ops::swiglu 'f32[64,4096]' 'f32[64,4096]'",
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
    .options = options,
    .builds = true,
    .examples = examples,
    .run = run,
};
