/* Contracts that are right: what they bind and what the results are, and what a call that is wrong is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "contract_call.h"

struct row { const char *args, *result; };
struct operator { const char *schema, *contract; struct row rows[24]; };

static const struct operator operators[] = {
#include "contract_operators.h"
};

static int bad; /* rows that differ: all are shown before the test fails */

static void check_operator(const struct operator *op)
{
    dv__schema *schema = NULL;
    dv__contract *c = NULL;
    static call arguments;
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_operators) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
