/* Contracts that are right: what they bind, their results, and the messages of wrong calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "contract_call.h"
#include "lang/contract_internal.h"

struct row { const char *args, *result; };
struct operator {
    const char *schema, *contract;
    struct row rows[24];
};

static const struct operator operators[] = {
#include "contract_operators.h"
};

static int bad; /* rows that differ: all are shown before the test fails */
static call arguments;

/* The quick steps alone take a call that is right, and no other. */
static void check_quick(const dv__contract *c, const char *name, const char *args, bool values)
{
    static dv__solution s;
    dv__evaluator r = { .c = c, .program = c->program, .args = arguments.values, .s = &s, .check_values = values };
    const bool right = !dv__contract_solve(c, arguments.values, &s, values);
    memset(&s, 0xa5, sizeof s);
    s.pool_count = 0;
    if (dv__try_eval_fused(&r, 0, c->program->solve_end_step) != right)
        print_error("%s(%s)\n  the quick steps %s it\n", name, args, right ? "refuse" : "take"), bad++;
}

static void check_operator(const struct operator *op)
{
    dv__schema *schema = NULL;
    dv__contract *c = NULL;
    if (dv__schema_parse(op->schema, &schema))
        fail_msg("%s", dv_last_error());
    char name[100];
    snprintf(name, sizeof name, "my::%s", schema->name);
    if (dv__contract_parse(op->contract, name, schema, &c))
        fail_msg("%s\n%s", op->contract, dv_last_error());
    for (const struct row *r = op->rows; r->args; r++) {
        call_parse(&arguments, r->args);
        if (arguments.n != schema->nargs)
            fail_msg("%s: %zu arguments of %zu: %s", name, arguments.n, schema->nargs, r->args);
        const bool values = strchr(r->args, '=') != NULL;
        char *got = call_run(c, schema, &arguments, values);
        const bool error = !strncmp(r->result, "error: ", 7);
        if (error ? strncmp(got, "error: ", 7) || !strstr(got, r->result + 7) : strcmp(got, r->result) != 0)
            print_error("%s(%s)\n  expected: %s\n  found:    %s\n", name, r->args, r->result, got), bad++;
        dv__free(got);
        check_quick(c, name, r->args, values);
    }
    dv__contract_free(c);
    dv__schema_free(schema);
}

static void test_operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        check_operator(&operators[i]);
    assert_int_equal(bad, 0);
}

/* For tests/lang: lines "schema|contract" and then "  arguments" on stdin, a line of result for each call. */
static int answer_calls(bool partly)
{
    static char line[20000];
    dv__schema *schema = NULL;
    dv__contract *c = NULL;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (*line == ' ') {
            call_parse(&arguments, line);
            char *got = partly ? call_run_partly(c, schema, &arguments) : call_run(c, schema, &arguments, true);
            puts(got);
            dv__free(got);
            continue;
        }
        char *text = strchr(line, '|');
        dv__contract_free(c);
        dv__schema_free(schema);
        *text++ = 0;
        c = NULL;
        if (dv__schema_parse(line, &schema) || dv__contract_parse(text, "my::f", schema, &c)) {
            fprintf(stderr, "%s\n%s\n", text, dv_last_error());
            return 1;
        }
    }
    dv__contract_free(c);
    dv__schema_free(schema);
    return 0;
}

/* The JSON of every operator of the table, a line each. */
static int print_json(void)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        dv__schema *schema;
        dv__contract *c;
        dv__strbuf t = { 0 };
        if (dv__schema_parse(operators[i].schema, &schema) || dv__contract_parse(operators[i].contract, "my::f", schema, &c))
            return 1;
        dv__contract_json(c, &t);
        puts(t.data);
        dv__strbuf_deinit(&t);
        dv__contract_free(c);
        dv__schema_free(schema);
    }
    return 0;
}

/* Lines "schema|contract" on stdin: the JSON of both, or the error, a line each. */
static int describe_contracts(void)
{
    static char line[20000];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *text = strchr(line, '|');
        dv__schema *schema = NULL;
        dv__contract *c = NULL;
        dv__strbuf t = { 0 };
        *text++ = 0;
        if (dv__schema_parse(line, &schema) || dv__contract_parse(text, "my::f", schema, &c)) {
            dv__strbuf_append_str(&t, "{\"error\": ");
            dv__json_write_string(&t, dv_last_error(), strlen(dv_last_error()));
        } else {
            dv__strbuf_append_str(&t, "{\"schema\": ");
            dv__schema_json(schema, &t);
            dv__strbuf_append_str(&t, ", \"contract\": ");
            dv__contract_json(c, &t);
        }
        printf("%s}\n", t.data);
        dv__strbuf_deinit(&t);
        dv__contract_free(c);
        dv__schema_free(schema);
    }
    return 0;
}

/* ns to solve the first call of each operator and say its outputs: the best of many. */
static int print_times(void)
{
    enum { REPEATS = 60, CALLS = 4000 };
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        dv__schema *schema;
        dv__contract *c;
        dv__solution s;
        dv__result_metadata out;
        double best = 1e30;
        if (dv__schema_parse(operators[i].schema, &schema) || dv__contract_parse(operators[i].contract, "my::f", schema, &c))
            return 1;
        call_parse(&arguments, operators[i].rows[0].args);
        for (int r = 0; r < REPEATS; r++) {
            struct timespec from, to;
            clock_gettime(CLOCK_MONOTONIC, &from);
            for (int k = 0; k < CALLS; k++) {
                int status = dv__contract_solve(c, arguments.values, &s, false);
                for (size_t j = 0; j < schema->nreturns && !status; j++)
                    status = dv__contract_eval_result(c, arguments.values, &s, j, &out);
                __asm__ volatile("" ::"r"(&out), "r"(&s) : "memory");
            }
            clock_gettime(CLOCK_MONOTONIC, &to);
            const double ns = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / CALLS;
            best = ns < best ? ns : best;
        }
        printf("%8.1f ns  %s(%s)\n", best, schema->name, operators[i].rows[0].args);
        dv__contract_free(c);
        dv__schema_free(schema);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--time"))
        return print_times();
    if (argc > 1 && !strcmp(argv[1], "--json"))
        return print_json();
    if (argc > 1 && !strcmp(argv[1], "--describe"))
        return describe_contracts();
    if (argc > 1 && !strcmp(argv[1], "--answer"))
        return answer_calls(false);
    if (argc > 1 && !strcmp(argv[1], "--partly"))
        return answer_calls(true);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_operators) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
