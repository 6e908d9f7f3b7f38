/* The expression tree: precedence, printing with as few parentheses as needed, JSON, floor division, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "failing.h"
#include "lang/expr.h"

static const struct {
    const char *text, *printed, *json;
} rows[] = {
    { "1", "1", "[\"int\", 1]" },
    { "1+2*3", "1 + 2*3", "[\"add\", [\"int\", 1], [\"mul\", [\"int\", 2], [\"int\", 3]]]" },
    { "(1+2)*3", "(1 + 2)*3", NULL },
    { "a-b-c", "a - b - c", "[\"sub\", [\"sub\", [\"name\", \"a\"], [\"name\", \"b\"]], [\"name\", \"c\"]]" },
    { "a-(b-c)", "a - (b - c)", NULL },
    { "a//b%c/d", "a//b%c/d", NULL },
    { "a//(b%c)", "a//(b%c)", NULL },
    { "-a*b", "-a*b", "[\"mul\", [\"neg\", [\"name\", \"a\"]], [\"name\", \"b\"]]" },
    { "-(a*b)", "-(a*b)", NULL },
    { "- -a", "--a", NULL },
    { "-x[1].y", "-x[1].y", "[\"neg\", [\"attr\", [\"index\", [\"name\", \"x\"], [\"int\", 1]], \"y\"]]" },
    { "not a and b or c", "not a and b or c",
        "[\"or\", [\"and\", [\"not\", [\"name\", \"a\"]], [\"name\", \"b\"]], [\"name\", \"c\"]]" },
    { "not (a and b)", "not (a and b)", NULL },
    { "a and (b or c)", "a and (b or c)", NULL },
    { "0 <= a < b", "0 <= a and a < b",
        "[\"and\", [\"le\", [\"int\", 0], [\"name\", \"a\"]], [\"lt\", [\"name\", \"a\"], [\"name\", \"b\"]]]" },
    { "(a < b) == c", "(a < b) == c", NULL },
    { "a in 1 2 -3", "a in 1 2 -3", "[\"in\", [\"name\", \"a\"], [\"int\", 1], [\"int\", 2], [\"neg\", [\"int\", 3]]]" },
    { "a not in \"x\" 'y'", "not a in \"x\" \"y\"", NULL },
    { "T in f32 f64 and n > 0", "T in f32 f64 and n > 0", NULL },
    { "f()", "f()", "[\"call\", \"f\"]" },
    { "ns::f.out(a, b=2,)", "ns::f.out(a, b=2)",
        "[\"call\", \"ns::f.out\", [\"name\", \"a\"], [\"keyword\", \"b\", [\"int\", 2]]]" },
    { "x.f", "x.f", NULL },
    { "[1, 2, [3]]", "[1, 2, [3]]", "[\"list\", [\"int\", 1], [\"int\", 2], [\"list\", [\"int\", 3]]]" },
    { "(1, 2)", "[1, 2]", NULL },
    { "()", "[]", "[\"list\"]" },
    { "True or false or None", "True or False or None", "[\"or\", [\"or\", [\"bool\", true], [\"bool\", false]], [\"none\"]]" },
    { "f(*s, *t)", "f(*s, *t)", "[\"call\", \"f\", [\"star\", \"s\"], [\"star\", \"t\"]]" },
    { "1.5e3 + .5 + 2.", "1.5e3 + .5 + 2.", "[\"add\", [\"add\", [\"float\", 1.5e3], [\"float\", 0.5]], [\"float\", 2.0]]" },
    { "\"a\\\"b\\\\\"", "\"a\\\"b\\\\\"", "[\"str\", \"a\\\"b\\\\\"]" },
    { "9223372036854775807", "9223372036854775807", NULL },
};

static char *print(const dv__expr *e, void (*how)(const dv__expr *, dv__strbuf *))
{
    dv__strbuf t = { 0 };
    char *s;
    how(e, &t);
    assert_int_equal(dv__strbuf_detach(&t, &s), DV_OK);
    return s;
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dv__arena arena = { 0 };
        dv__lexer lx;
        dv__expr *e, *again;
        dv__lexer_init(&lx, rows[i].text);
        if (dv__expr_parse(&lx, &arena, &e))
            fail_msg("%s: %s", rows[i].text, dv_last_error());
        assert_int_equal(lx.token.kind, DV__TOKEN_END);
        char *s = print(e, dv__expr_print), *json = print(e, dv__expr_json);
        assert_string_equal(s, rows[i].printed);
        if (rows[i].json)
            assert_string_equal(json, rows[i].json);
        dv__lexer_init(&lx, s);
        assert_int_equal(dv__expr_parse(&lx, &arena, &again), DV_OK);
        assert_true(dv__exprs_are_equal(e, again));
        dv__free(s);
        dv__free(json);
        dv__arena_deinit(&arena);
    }
}

/* In a list that spaces separate. */
static void test_sums(void **state)
{
    (void)state;
    static const struct {
        const char *text, *printed;
    } lists[] = {
        { "n co (h + 1)//2 *s x [3", "n|co|(h + 1)//2|*s|x|" }, /* "[3" is a list that never ends */
        { "2*n n * 2 n*m *m", "2*n|n*2|n*m|*m|" },
        { "f(a) f (a)", "f(a)|f|a|" },
        { "box[3]-box[1] box[2] - box[0]", "box[3] - box[1]|box[2] - box[0]|" },
        { "n -1 n - 1", "n - 1|n - 1|" },
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        dv__arena arena = { 0 };
        dv__lexer lx;
        dv__expr *e;
        dv__strbuf t = { 0 };
        dv__lexer_init(&lx, lists[i].text);
        while (lx.token.kind != DV__TOKEN_END && !dv__expr_parse_dim(&lx, &arena, &e)) {
            dv__expr_print(e, &t);
            dv__strbuf_append_str(&t, "|");
        }
        assert_string_equal(t.data, lists[i].printed);
        dv__strbuf_deinit(&t);
        dv__arena_deinit(&arena);
    }
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {
        { "", "column 1: expected a value, found the end" },
        { "a +", "column 4: expected a value, found the end" },
        { "a + or", "column 5: expected a value, found 'or'" },
        { "(a", "column 3: expected ',' or ')', found the end" },
        { "f(a b)", "column 5: expected ',' or ')', found 'b'" },
        { "x[1", "column 4: expected ']', found the end" },
        { "x.1", "column 2: expected the end, found '.1'" },
        { "x.(", "column 3: expected a name after '.', found '('" },
        { "a::", "column 4: expected a name after '::', found the end" },
        { "a::b", "column 5: expected '(' after 'a::b', found the end" },
        { "a in", "column 5: expected a value after 'in', found the end" },
        { "*", "column 2: expected a name after '*', found the end" },
        { "99999999999999999999", "column 1: expected an integer that fits 64 bits" },
        { "'a", "column 1: expected a value, found" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dv__arena arena = { 0 };
        dv__lexer lx;
        dv__expr *e;
        dv__lexer_init(&lx, wrong[i].text);
        int status = dv__expr_parse(&lx, &arena, &e);
        if (!status && lx.token.kind != DV__TOKEN_END)
            status = dv__lexer_fail_expected(&lx, "the end");
        assert_true(status < 0);
        if (strncmp(dv_last_error(), wrong[i].message, strlen(wrong[i].message)) != 0)
            fail_msg("%s: %s", wrong[i].text, dv_last_error());
        dv__arena_deinit(&arena);
    }
}

/* Python's // and %. */
static void test_floor(void **state)
{
    (void)state;
    static const struct {
        int64_t a, b, div, mod;
    } good[] = {
        { 7, 2, 3, 1 },
        { -7, 2, -4, 1 },
        { 7, -2, -4, -1 },
        { -7, -2, 3, -1 },
        { 6, 3, 2, 0 },
        { -6, 3, -2, 0 },
        { 0, -5, 0, 0 },
        { INT64_MIN, 1, INT64_MIN, 0 },
        { INT64_MIN, 2, INT64_MIN / 2, 0 },
        { INT64_MAX, INT64_MIN, -1, -1 },
        { INT64_MIN, INT64_MAX, -2, INT64_MAX - 1 },
    };
    int64_t out;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(dv__int_try_floordiv(good[i].a, good[i].b, &out) && out == good[i].div);
        assert_true(dv__int_try_floormod(good[i].a, good[i].b, &out) && out == good[i].mod);
    }
    assert_false(dv__int_try_floordiv(1, 0, &out));
    assert_false(dv__int_try_floormod(1, 0, &out));
    assert_false(dv__int_try_floordiv(INT64_MIN, -1, &out));
    assert_true(dv__int_try_floormod(INT64_MIN, -1, &out) && out == 0);
}

static int parse_and_print(void *text)
{
    dv__arena arena = { 0 };
    dv__lexer lx;
    dv__expr *e;
    dv__strbuf t = { 0 };
    dv__lexer_init(&lx, text);
    int status = dv__expr_parse(&lx, &arena, &e);
    if (!status) {
        char *s;
        dv__expr_print(e, &t);
        status = dv__strbuf_detach(&t, &s);
        dv__free(s);
    }
    dv__arena_deinit(&arena);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    failing_each(parse_and_print, "a + f(b, c=[1, 2.5, \"s\"])[3].x in 1 2 and not (q < r < s)");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_sums), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_floor), cmocka_unit_test(test_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
