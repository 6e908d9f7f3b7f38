/* The messages of wrong contracts: the operator, the column, what was expected; and of other errors in a declaration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "contract_call.h"

static const char *schema_of(char which)
{
    switch (which) {
    case 'A': return "f(Tensor x, Tensor y) -> Tensor out";
    case 'B': return "f(Tensor x, Tensor? z, int k, int[] ks, bool flag, str mode, float eps) -> Tensor out";
    case 'L': return "f(Tensor[] xs, int dim) -> Tensor";
    case 'N': return "f(Tensor x) -> (Tensor a, Tensor b)";
    case 'P': return "f(Tensor[] xs, Tensor[] ys, Tensor?[] zs, bool flag) -> Tensor";
    case 'Q': return "f(Tensor[] xs) -> Tensor[]";
    case 'S': return "f(Tensor[] xs, Tensor[] ys) -> Tensor[]";
    case 'T': return "f(Tensor[]? xs) -> Tensor[]";
    case 'R': return "f(Tensor x, Tensor? w) -> Tensor? a";
    case 'D': return "f(Tensor x, ScalarType? to) -> Tensor out";
    case 'V': return "f(Tensor(a) x, bool copy) -> Tensor(a)";
    case 'M': return "f(Tensor(a!) x) -> Tensor[]";
    default: return "f(Tensor x) -> ()";
    }
}

static const struct {
    char schema;
    const char *contract;
    int column;
    const char *message;
} rows[] = {
#include "contract_bad.h"
};

static void test_contracts(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[1000];
        dv__schema *schema = NULL;
        dv__contract *c = (dv__contract *)&rows;
        assert_int_equal(dv__schema_parse(schema_of(rows[i].schema), &schema), DV_OK);
        snprintf(expected, sizeof expected, "operator my::f: contract: column %d: %s\n", rows[i].column, rows[i].message);
        const int status = dv__contract_parse(rows[i].contract, "my::f", schema, &c);
        if (status != DV_ESYNTAX && status != DV_ECONTRACT) {
            print_error("%s\n  accepted, or a wrong status: %d\n", rows[i].contract, status);
            bad++;
        } else if (strncmp(dv_last_error(), expected, strlen(expected)) != 0) {
            print_error("%s\n  expected: %s  found:    %s\n", rows[i].contract, expected, dv_last_error());
            bad++;
        }
        if (status)
            assert_null(c);
        else
            dv__contract_free(c);
        dv__schema_free(schema);
    }
    assert_int_equal(bad, 0);
    assert_true(sizeof rows / sizeof *rows >= 120);
}

/* The caret stands under the column. */
static void test_caret(void **state)
{
    (void)state;
    dv__schema *schema;
    dv__contract *c;
    assert_int_equal(dv__schema_parse(schema_of('A'), &schema), DV_OK);
    assert_int_equal(dv__contract_parse("x[n]:T,\n  y[m q]:U -> [z]:T", "my::f", schema, &c), DV_ECONTRACT);
    assert_string_equal(dv_last_error(),
        "operator my::f: contract: column 24: unknown name 'z': no input has such a size or dtype, and the schema no such "
        "argument\n"
        "      y[m q]:U -> [z]:T\n"
        "                   ^");
    dv__schema_free(schema);
}

/* Limits are errors, not crashes. */
static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *before, *repeat, *after;
        int n;
        const char *message;
    } limits[] = {
        { "x[", "(", "", 5000, "nested deeper than 200" },
        { "x[n]:T, y[n]:T -> [", "-", "n]:T", 5000, "nested deeper than 200" },
        { "x[n]:T, y[n]:T -> [n", "+n", "]:T", 5000, "nested deeper than 200" },
        { "x[n]:T, y[n]:T -> [n]:T; ", "not ", "n > 0", 5000, "nested deeper than 200" },
        { "x[n]:T, y[n]:T -> [n]:T; ", "when x: ", "", 9, "" },
    };
    dv__schema *schema;
    assert_int_equal(dv__schema_parse(schema_of('A'), &schema), DV_OK);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        dv__strbuf t = { 0 };
        dv__contract *c;
        dv__strbuf_append_str(&t, limits[i].before);
        for (int k = 0; k < limits[i].n; k++)
            dv__strbuf_append_str(&t, limits[i].repeat);
        dv__strbuf_append_str(&t, limits[i].after);
        assert_true(dv__contract_parse(t.data, "my::f", schema, &c) < 0);
        assert_non_null(strstr(dv_last_error(), limits[i].message));
        dv__strbuf_deinit(&t);
    }
    /* 65 sizes, 17 runs, 17 dtypes */
    static const char *const forms[] = { "x[%s]:f32, y[...] -> [1]:f32", "x[%s]:f32, y[...] -> [1]:f32" };
    for (int form = 0; form < 2; form++) {
        char names[800] = "", text[1000];
        dv__contract *c;
        for (int k = 0; k < 65; k++)
            snprintf(names + strlen(names), sizeof names - strlen(names), form ? "*r%d " : "n%d ", k);
        snprintf(text, sizeof text, forms[form], names);
        assert_int_equal(dv__contract_parse(text, "my::f", schema, &c), DV_ELIMIT);
        assert_non_null(strstr(dv_last_error(), form ? "more than 16 variadic dims" : "more than 64 sizes"));
    }
    dv__schema_free(schema);
}

static const char contract[] = "x[*s n]:T, z[*s]:U -> [*s n]:T; T in f32 f64 bf16; strided(x)";

static void parse_good(dv__schema **schema, dv__contract **c)
{
    assert_int_equal(dv__schema_parse(schema_of('B'), schema), DV_OK);
    if (dv__contract_parse(contract, "my::f", *schema, c))
        fail_msg("%s", dv_last_error());
}

/* Predicates of rows, their dtypes, how they take tensors. */
static void test_rows(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } predicates[] = {
        { "n >", "operator my::f: predicate: column 4: expected a value, found the end" },
        { "n", "predicate: column 1: expected a boolean for a predicate, found an integer" },
        { "x.values > 1", "predicate: column 1: the values of tensors can be used in constraints only" },
        { "q > 1", "predicate: column 1: unknown name 'q'" },
        { "n > 1; n < 3", "predicate: column 6: expected the end of the predicate, found ';'" },
    }, dtypes[] = {
        { "f33", "operator my::f: dtypes of a kernel: column 1: expected a dtype such as f32, found 'f33'; did you mean 'f32'?" },
        { "i32", "column 1: expected a dtype that the contract allows, found 'i32'" },
        { "Q=f32", "column 1: expected a dtype variable of the contract, found 'Q'" },
        { "T=", "column 3: expected a dtype such as f32, found ''" },
        { "f32;", "column 4: expected ',' or the end, found ';'" },
        { "", "column 1: expected a dtype such as f32" },
    }, takes[] = {
        { "strided", "takes: column 8: expected '(', found the end" },
        { "strided(q)", "takes: column 9: expected an argument or return of the schema in strided(), found 'q'" },
        { "wide(x)", "takes: column 1: expected contiguous, last_contiguous, strided or align, found 'wide'" },
        { "align(x, 0)", "takes: column 10: expected an alignment that is a power of two" },
        { "strided(x) align(x, 4)", "takes: column 12: expected ','" },
    };
    dv__schema *schema;
    dv__contract *c;
    dv__arena arena = { 0 };
    dv__predicate *e;
    dv__dtype_sets *sets;
    dv__accepted_layout out[8];
    parse_good(&schema, &c);
    for (size_t i = 0; i < sizeof predicates / sizeof *predicates; i++) {
        assert_true(dv__predicate_parse(predicates[i].text, c, &arena, &e) < 0);
        if (!strstr(dv_last_error(), predicates[i].message))
            fail_msg("%s: %s", predicates[i].text, dv_last_error());
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        assert_true(dv__dtype_sets_parse(dtypes[i].text, c, &arena, &sets) < 0);
        if (!strstr(dv_last_error(), dtypes[i].message))
            fail_msg("%s: %s", dtypes[i].text, dv_last_error());
    }
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        assert_true(dv__contract_parse_accepted(c, takes[i].text, out) < 0);
        if (!strstr(dv_last_error(), takes[i].message))
            fail_msg("%s: %s", takes[i].text, dv_last_error());
    }
    dv__arena_deinit(&arena);
    dv__contract_free(c);
    dv__schema_free(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_contracts), cmocka_unit_test(test_caret),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
