/* Time for long texts: a text of twice the length takes no more than about twice the time, or is refused with DV_ELIMIT. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/sanitizer.h"
#include "call_ops.h"

/* ---- Texts of n parts ---- */

static char *text;
static size_t size, capacity;

static void put(const char *s)
{
    const size_t n = strlen(s);
    while (size + n + 1 > capacity)
        text = realloc(text, capacity = capacity ? 2 * capacity : 1024);
    memcpy(text + size, s, n + 1);
    size += n;
}

/* Returns `before`, n copies of `part` with their number in the place of #, separated, and `after`. */
static const char *repeat(const char *before, const char *part, const char *separator, int n, const char *after)
{
    size = 0;
    put(before);
    for (int i = 0; i < n; i++) {
        char one[100];
        const char *mark = strchr(part, '#');
        put(i ? separator : "");
        snprintf(one, sizeof one, "%.*s%d%s", (int)(mark ? mark - part : 0), part, i, mark ? mark + 1 : "");
        put(mark ? one : part);
    }
    put(after);
    return text;
}

/* ---- Uses of a text ---- */

static int define_with(const char *schema, const char *tags)
{
    static unsigned count;
    char ns[32];
    dv_library *lib;
    dv_operator *op;
    snprintf(ns, sizeof ns, "scaling%u", count++);
    int status = dv_library_new(DV_LIBRARY_DEF, ns, DV_KEY_NONE, &lib);
    if (status)
        return status;
    if (!(status = dv_library_define(lib, schema, tags, &op))) {
        char *out;
        dv_operator *form;
        CALL_OK(dv_operator_json(op, &out));
        dv_free(out);
        if (!dv_functional(op, &form))
            dv_operator_unref(form);
    }
    dv_library_free(lib);
    return status;
}
static int define(const char *schema) { return define_with(schema, NULL); }
static int tagged(const char *tags) { return define_with("f(Tensor x) -> Tensor", tags); }

static int parse(const char *schema)
{
    char *out;
    const int status = dv_schema_json(schema, &out);
    dv_free(out);
    return status ? status : dv_schema_compatible(schema, schema);
}

static int policy(const char *words)
{
    const int status = dv_policy_set(words);
    dv_policy_set(NULL);
    return status;
}

static int site(const char *call)
{
    dv_site *s;
    char *out;
    int status = dv_site_parse(call, &s);
    if (status)
        return status;
    status = dv_site_print(s, &out);
    dv_free(out);
    status = status ? status : dv_site_alloc(s);
    dv_site_free(s);
    return status;
}

struct plain {
    const dv_tensor *x;
    dv_tensor *out;
};
static int plain_run(dv_context *c, const struct plain *a) { return (void)c, (void)a, DV_OK; }
DV_OPERATOR(plain, struct plain, (x, out), .schema = "plain(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct plain, "cpu", "f32", plain_run)));
DV_LIBRARY(scaling, &dv_op_plain);

enum field { CONTRACT, NATIVE, GRADIENT, DTYPES, WHEN };
static int load_with(enum field field, const char *value)
{
    dv_operator_decl op = dv_op_plain;
    dv_kernel_decl kernel = *op.kernels[0];
    *(field == CONTRACT         ? &op.contract
            : field == NATIVE   ? &op.native
            : field == GRADIENT ? &op.gradient
            : field == DTYPES   ? &kernel.dtypes
                                : &kernel.when) = value;
    const dv_kernel_decl *const kernels[] = { &kernel, NULL };
    op.kernels = kernels;
    const dv_operator_decl *const operators[] = { &op, NULL };
    dv_library_decl decl = dv_library_scaling;
    decl.operators = operators;
    dv_library *lib;
    const int status = dv_load_static(&decl, &lib);
    if (!status)
        dv_library_free(lib);
    return status;
}
static int contract(const char *value) { return load_with(CONTRACT, value); }
static int native(const char *value) { return load_with(NATIVE, value); }
static int gradient(const char *value) { return load_with(GRADIENT, value); }
static int dtypes(const char *value) { return load_with(DTYPES, value); }
static int when(const char *value) { return load_with(WHEN, value); }

static const struct row {
    int (*use)(const char *text);
    const char *before, *part, *separator, *after;
} rows[] = {
    { parse, "f(", "Tensor a#", ", ", ") -> Tensor" },
    { parse, "f(Tensor x) -> (", "Tensor a#", ", ", ")" },
    { parse, "f(Tensor(", "a#", "|", ") x) -> Tensor" },
    { parse, "f(Tensor(", "a", "|", ") x) -> Tensor" },
    { parse, "f(int[] x=[", "#", ", ", "]) -> Tensor" },
    { parse, "f(str x='", "\\n", "", "') -> Tensor" },
    { define, "f(", "Tensor a#", ", ", ") -> Tensor" },
    { define, "f(*, ", "int a#=1", ", ", ") -> Tensor" },
    { define, "f(", "Tensor(a#!) a#", ", ", ") -> ()" },
    { define, "f(Tensor x) -> (", "Tensor a#", ", ", ")" },
    { define, "f(Tensor(", "a#", "|", ") x) -> Tensor" },
    { define, "f(int[] x=[", "#", ", ", "]) -> Tensor" },
    { tagged, "", "t#", " ", "" },
    { policy, "none,", "+n#", ",", "" },
    { policy, "all ", "-scaling::n#", " ", "" },
    { policy, "all,", "-gelu", ",", "" },
    { site, "tc::cat([", "f32[1]", ", ", "])" },
    { site, "tc::cat([", "f32[1] = [1]", ", ", "])" },
    { site, "tc::cat([f32[4] = 1, ", "f32[1] = 0..3", ", ", "])" },
    { site, "tc::every(f32[1], [], [", "#", ", ", "], [])" },
    { site, "tc::every(f32[1], [], [], [", "\"a#\"", ", ", "])" },
    { contract, "x[n]:T -> out[n]:T; T in ", "f32", " ", "" },
    { contract, "x[n]:T -> out[n]:T", "; n > #", "", "" },
    { contract, "x[n]:T -> out[n]:T; n in ", "#", " ", "" },
    { contract, "x[n]:T -> out[max(", "n + #", ", ", ")]:T" },
    { native, "cat([", "x", ", ", "])" },
    { gradient, "x: cat([", "mul(grad, #)", ", ", "])" },
    { dtypes, "", "f32", " ", "" },
    { when, "", "numel(x) > #", " and ", "" },
};

static double seconds(int (*use)(const char *), const char *value, int *status)
{
    double best = 1e9;
    for (int i = 0; i < 2; i++) {
        const clock_t begin = clock();
        *status = use(value);
        const double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
        best = took < best ? took : best;
    }
    return best;
}

/* Checks how the time grows. n grows until a use takes 20 ms; then twice that n may take a little more than 3 times as long.
 * Quadratic time would be 4 times as long. A row that is slow by chance is measured again. */
static void check_row(const struct row *r)
{
    enum { LONGEST = 1 << 17 };
    const bool slowed = DV__SANITIZED ||
        getenv("UNDER_QEMU"); /* these slow some steps more than others: only the status counts */
    double before = 0, took = 0;
    for (int attempt = 0; attempt < 4; attempt++) {
        bool grows = false;
        for (int n = 500; n <= LONGEST && took < 1; n *= 2) {
            int status;
            const char *value = repeat(r->before, r->part, r->separator, n, r->after);
            if (size > 1 << 20) /* the longest text that a binary may have */
                break;
            before = took;
            took = seconds(r->use, value, &status);
            if (status == DV_ELIMIT || status == DV_ESYNTAX || (r->use == dtypes && status == DV_ECONTRACT))
                break;
            if (status)
                fail_msg("%s%s%s...: %s: %s", r->before, r->part, r->separator, dv_status_name(status), dv_last_error());
            grows = !slowed && before > 0.02 && took > 3 * before + 0.02;
            if (grows)
                break;
        }
        if (took < 2 && !grows)
            return;
        took = 0;
    }
    fail_msg("%s%s%s...: %g s after %g s for half of it", r->before, r->part, r->separator, took, before);
}

static void texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(texts) };
    return cmocka_run_group_tests(tests, load_tc, unload_tc);
}
