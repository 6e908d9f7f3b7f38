/* What else a contract answers: given outputs, costs, splitting, how tensors are taken, predicates and dtypes of rows, words and
 * JSON; and every allocation failed in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "contract_call.h"
#include "failing.h"

static call arguments;

static dv__contract *parse(const char *schema_text, const char *text, dv__schema **schema)
{
    dv__contract *c;
    if (dv__schema_parse(schema_text, schema))
        fail_msg("%s: %s", schema_text, dv_last_error());
    if (dv__contract_parse(text, "my::f", *schema, &c))
        fail_msg("%s: %s", text, dv_last_error());
    return c;
}

static void solve(const dv__contract *c, const char *args, dv__solution *s)
{
    call_parse(&arguments, args);
    if (dv__contract_solve(c, arguments.values, s, false))
        fail_msg("%s: %s", args, dv_last_error());
}

static void test_given(void **state)
{
    (void)state;
    dv__schema *schema;
    dv__contract *c = parse(
        "f(Tensor x, Tensor y) -> (Tensor out, Tensor)", "x[n]:T, y[m]:U -> out[n m]:T, [u]:i64; u unbacked in 0..n", &schema);
    static const struct {
        size_t i;
        const char *given, *message;
    } rows[] = {
        { 0, "f32[2,3]", NULL },
        { 0, "f32[2,3]/(1,2)", NULL },
        { 0, "f32[3,2]", "my::f: result 'out': expected shape [2, 3], found [3, 2]" },
        { 0, "f64[2,3]", "my::f: result 'out': expected dtype f32, found f64" },
        { 0, "f32[2,3]@cuda", "my::f: result 'out': expected a tensor on cpu:0, found one on cuda:0" },
        { 1, "i64[0]", NULL },
        { 1, "i64[1,1]", "my::f: result 1: expected shape [2], found [1, 1]" },
    };
    dv__solution s;
    solve(c, "f32[2] i8[3]", &s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static call given;
        call_parse(&given, rows[i].given);
        const int32_t used = s.pool_count;
        const int status = dv__contract_check_out(c, arguments.values, &s, rows[i].i, -1, given.values[0].as.tensor);
        assert_int_equal(used, s.pool_count);
        if (rows[i].message) {
            assert_true(status < 0);
            assert_string_equal(dv_last_error(), rows[i].message);
        } else if (status) {
            fail_msg("%s: %s", rows[i].given, dv_last_error());
        }
    }
    dv__contract_free(c);
    dv__schema_free(schema);
}

static void test_costs(void **state)
{
    (void)state;
    dv__schema *schema;
    dv__contract *c = parse("f(Tensor x, Tensor(a!) y, float p) -> Tensor",
        "x[m k]:f32, y[k n]:bf16 -> [m n]:f64; workspace = 4*m*n - 100; flops = 2*m*n*k*0.5 + ceildiv(n, 2)", &schema);
    dv__solution s;
    int64_t bytes;
    double real;
    solve(c, "f32[10,3] bf16[3,7] 0.5", &s);
    assert_int_equal(dv__contract_eval_workspace(c, arguments.values, &s, &bytes), DV_OK);
    assert_int_equal(bytes, 180);
    assert_int_equal(dv__contract_eval_flops(c, arguments.values, &s, &real), DV_OK);
    assert_true(real == 214);
    assert_int_equal(dv__contract_eval_bytes(c, arguments.values, &s, &real), DV_OK);
    assert_true(real == 120 + 2 * 42 + 560);
    solve(c, "f32[2,3] bf16[3,7] 0.5", &s);
    assert_int_equal(dv__contract_eval_workspace(c, arguments.values, &s, &bytes), DV_ESHAPE);
    assert_string_equal(dv_last_error(), "my::f: workspace: expected a size, found -44");
    solve(c, "f32[3037000500,0] bf16[0,3037000500] 0.5", &s);
    assert_int_equal(dv__contract_eval_workspace(c, arguments.values, &s, &bytes), DV_ESHAPE);
    assert_int_equal(dv__contract_eval_flops(c, arguments.values, &s, &real), DV_OK); /* real arithmetic */
    dv__contract_free(c);
    dv__schema_free(schema);
    c = parse("f(Tensor x) -> ()", "x[n]", &schema);
    solve(c, "f32[10]", &s);
    assert_int_equal(dv__contract_eval_workspace(c, arguments.values, &s, &bytes), DV_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(dv__contract_eval_flops(c, arguments.values, &s, &real), DV_OK);
    assert_true(real == -1);
    dv__contract_free(c);
    dv__schema_free(schema);
}

static void test_split(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *contract, *args, *leading;
        bool flattens;
    } rows[] = {
        { "f(Tensor x, Tensor y) -> Tensor", "x[*s]:T, y[*s]:T -> [*s]:T; parallel(*s)", "f32[4,6] f32[4,6]", "2 2 2", true },
        { "f(Tensor x, Tensor y) -> Tensor", "x[*s]:T, y[*s]:T -> [*s]:T", "f32[4,6] f32[4,6]", "no", false },
        { "f(Tensor x, Tensor? r, Tensor w) -> Tensor", "x[*s d]:T, r[*s d]:T, w[d]:T -> [*s d]:T; parallel(*s)",
            "f32[4,6,8] - f32[8]", "2 2 0 2", true },
        { "f(Tensor x, Tensor w, float k) -> Tensor", "x[m k_]:T, w[e k_]:T -> [m e]:T; parallel(m)", "f32[4,6] f32[8,6] 1.5",
            "1 0 0 1", false },
        /* y knows b but does not begin with it */
        { "f(Tensor x, Tensor y) -> Tensor", "x[b n]:T, y[n b]:T -> [b n]:T; parallel(b)", "f32[4,6] f32[6,4]", "no", false },
        /* mask knows b only, so s cannot be cut with it */
        { "f(Tensor x, Tensor mask) -> Tensor", "x[b s d]:T, mask[b]:T -> [b s d]:T; parallel(b, s)", "f32[4,6,2] f32[4]",
            "1 1 1", false },
        { "f(Tensor x, Tensor mask) -> Tensor", "x[b s d]:T, mask[d]:T -> [b s d]:T; parallel(b, s)", "f32[4,6,2] f32[2]",
            "2 0 2", false },
        { "f(Tensor x, Tensor y) -> Tensor", "x[b *s]:T, y[*s]:T -> [b *s]:T; parallel(b, *s)", "f32[4,6,2] f32[6,2]", "1 0 1",
            false },
        { "f(Tensor(a!) x, Tensor y) -> ()", "x[n]:T, y[n]:T; parallel(n)", "f32[4] f32[4]", "1 1", false },
        { "f(Tensor(a!) x, Tensor y) -> Tensor(a!)", "x[n]:T, y[n]:T; parallel(n)", "f32[4] f32[4]", "1 1 1", false },
        { "f(Tensor x, bool t) -> Tensor", "when t: x[b n]:T -> [b n]:T / else: x[n b]:T -> [n b]:T; parallel(b)",
            "f32[4,6] True", "1 0 1", false },
        { "f(Tensor x, bool t) -> Tensor", "when t: x[b n]:T -> [b n]:T / else: x[n b]:T -> [n b]:T; parallel(b)",
            "f32[4,6] False", "no", false },
        { "f(Tensor x, bool t) -> Tensor", "when t: x[b n]:T, parallel(b) -> [b n]:T / else: x[n b]:T, sum(n) -> [b]:T",
            "f32[4,6] True", "1 0 1", false },
        { "f(Tensor x, bool t) -> Tensor", "when t: x[b n]:T, parallel(b) -> [b n]:T / else: x[n b]:T, sum(n) -> [b]:T",
            "f32[4,6] False", "no", false },
        { "f(Tensor x, bool t) -> Tensor", "when t: x[b n]:T, parallel(b) -> [b n]:T / else: x[*s]:T, parallel(*s) -> [*s]:T",
            "f32[4,6] False", "2 0 2", true },
        { "f(Tensor x) -> Tensor", "x[b n]:T, parallel(b) -> [b n]:T", "f32[4,6]", "1 1", false },
        { "f(Tensor[] xs, Tensor y) -> Tensor", "xs{i}[d]:T, y[b d]:T -> [b d]:T; parallel(b)", "{f32[3]} f32[4,3]", "0 1 1",
            false },
        { "f(Tensor(a) x) -> Tensor(a)", "x[b n]:T -> [b n]:T view(x); parallel(b)", "f32[4,6]", "no", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dv__schema *schema;
        dv__solution s;
        dv__contract *c = parse(rows[i].schema, rows[i].contract, &schema);
        char got[100] = "";
        solve(c, rows[i].args, &s);
        for (size_t slot = 0; slot < schema->nargs + schema->nreturns; slot++) {
            int32_t leading;
            if (!dv__contract_try_get_split_dims(c, &s, slot, &leading)) {
                strcpy(got, "no");
                break;
            }
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", slot ? " " : "", (int)leading);
        }
        assert_string_equal(got, rows[i].leading);
        assert_int_equal(dv__contract_can_flatten_split(c, &s), rows[i].flattens);
        dv__contract_free(c);
        dv__schema_free(schema);
    }
}

static void test_takes(void **state)
{
    (void)state;
    dv__schema *schema;
    dv__contract *c = parse("f(Tensor x, Tensor y) -> Tensor out",
        "x[n], y[n] -> out[n]:f32; strided(x), align(x, 32); last_contiguous(out); unused(y)", &schema);
    dv__accepted_layout takes[3];
    dv__strbuf json = { 0 }, words = { 0 };
    dv__contract_json(c, &json);
    assert_non_null(strstr(json.data, "\"unused\": [\"y\"]"));
    dv__strbuf_deinit(&json);
    dv__contract_describe(c, &words);
    assert_non_null(strstr(words.data, "no result depends on 'y'"));
    dv__strbuf_deinit(&words);
    assert_int_equal(dv__contract_parse_accepted(c, NULL, takes), DV_OK);
    assert_int_equal(takes[0].kind, DV__ACCEPT_STRIDED);
    assert_int_equal(takes[0].align_log2, 5);
    assert_int_equal(takes[1].kind, DV__ACCEPT_CONTIGUOUS);
    assert_int_equal(takes[2].kind, DV__ACCEPT_LAST_CONTIGUOUS);
    assert_int_equal(dv__contract_parse_accepted(c, "contiguous(x), align(y, 4096)", takes), DV_OK);
    assert_int_equal(takes[0].kind, DV__ACCEPT_CONTIGUOUS);
    assert_int_equal(takes[0].align_log2, 5);
    assert_int_equal(takes[1].align_log2, 12);
    assert_int_equal(dv__schema_parse_accepted("strided(y)", schema, takes), DV_OK);
    assert_int_equal(takes[0].kind, DV__ACCEPT_CONTIGUOUS);
    assert_int_equal(takes[1].kind, DV__ACCEPT_STRIDED);
    dv__contract_free(c);
    dv__schema_free(schema);
}

static void test_rows(void **state)
{
    (void)state;
    dv__schema *schema;
    dv__contract *c = parse(
        "f(Tensor x, Tensor? z, int k, str mode) -> Tensor", "x[*s n]:T, z[m]:U -> [*s n]:T; U in i8 i32", &schema);
    static const struct {
        const char *text;
        bool without, with;
    } predicates[] = {
        { "n % 4 == 0", true, true },
        { "n > 8 or rank(*s) == 1", true, true },
        { "m == 3", false, true },
        { "present(z)", false, true },
        { "T == bf16 and mode == \"fast\" and k in 1 2", true, true },
        { "mode in \"slow\"", false, false },
        { "U in f16 i8", false, true },
    };
    static const struct {
        const char *text;
        bool without, with;
    } dtypes[] = {
        { "bf16", true, true }, /* about T, the first in the text: the fact about U does not count */
        { "f32 f64", false, false },
        { "f32 bf16", true, true },
        { "T=bf16, U=i8", true, true },
        { "U=i32", true, false },
    };
    dv__arena arena = { 0 };
    for (int with = 0; with < 2; with++) {
        dv__solution s;
        solve(c, with ? "bf16[3,8] i8[3] 2 'fast'" : "bf16[3,8] - 2 'fast'", &s);
        for (size_t i = 0; i < sizeof predicates / sizeof *predicates; i++) {
            dv__predicate *e;
            bool yes = false;
            if (dv__predicate_parse(predicates[i].text, c, &arena, &e) || dv__predicate_eval(c, e, arguments.values, &s, &yes))
                fail_msg("%s: %s", predicates[i].text, dv_last_error());
            if (yes != (with ? predicates[i].with : predicates[i].without))
                fail_msg("%s: %d", predicates[i].text, yes);
        }
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            dv__dtype_sets *sets;
            if (dv__dtype_sets_parse(dtypes[i].text, c, &arena, &sets))
                fail_msg("%s: %s", dtypes[i].text, dv_last_error());
            if (dv__dtype_sets_match(sets, &s) != (with ? dtypes[i].with : dtypes[i].without))
                fail_msg("%s", dtypes[i].text);
        }
    }
    dv__dtype_sets *none = (dv__dtype_sets *)&arena;
    assert_int_equal(dv__dtype_sets_parse(NULL, c, &arena, &none), DV_OK);
    assert_null(none);
    dv__arena_deinit(&arena);
    dv__contract_free(c);
    dv__schema_free(schema);
}

static void test_words(void **state)
{
    (void)state;
    dv__schema *schema;
    dv__contract *c = parse("f(Tensor x, Tensor w1, Tensor w2, bool up) -> Tensor out",
        "x[m k]:T, w1[e 2*n k]:T, w2[e k n]:T -> out[m n]:T; T in f32 bf16; k % 2 == 0; when up: m > 3 / else: m < 9; "
        "parallel(m); sum(k);\n"
        "strided(x); workspace = 4*m*n; j = m + 1",
        &schema);
    dv__strbuf words = { 0 }, json = { 0 };
    dv__contract_describe(c, &words);
    assert_string_equal(words.data,
        "  solved in this order:\n"
        "    x[m k]:T binds m, k, T\n"
        "    w1[e 2*n k]:T binds e; checks k, T; defers 2*n\n"
        "    w2[e k n]:T binds n; checks e, k, T\n"
        "    2*n of 'w1' is checked\n"
        "    j = m + 1\n"
        "    k % 2 == 0 is checked\n"
        "    when up: m > 3 is checked\n"
        "    when no other case holds: m < 9 is checked\n"
        "  T is one of f32 bf16\n"
        "  then the results:\n"
        "    out[m n]:T\n"
        "  parallel over m\n"
        "  a sum over k\n"
        "  takes 'x' strided\n"
        "  workspace = 4*m*n\n");
    dv__contract_json(c, &json);
    assert_non_null(strstr(json.data,
        "{\"name\": \"k\", \"case\": null, \"asked\": \"size\", \"at\": [{\"slot\": 0, \"case\": null, \"axis\": 1, \"after\": "
        "[]}"));
    assert_non_null(strstr(json.data, "\"takes\": [{\"slot\": 0, \"kind\": \"strided\", \"align\": 1}]"));
    dv__strbuf_deinit(&words);
    dv__strbuf_deinit(&json);
    dv__contract_free(c);
    dv__schema_free(schema);
}

static int everything(void *text)
{
    dv__schema *schema = NULL;
    dv__contract *c = NULL;
    dv__arena arena = { 0 };
    dv__predicate *e;
    dv__dtype_sets *sets;
    dv__strbuf t = { 0 };
    char *s = NULL;
    int status = dv__schema_parse("f(Tensor x, Tensor? z, Tensor[] xs, int[] ks, str mode) -> (Tensor out, Tensor)", &schema);
    if (!status)
        status = dv__contract_parse(text, "my::f", schema, &c);
    if (!status)
        status = dv__predicate_parse("n > 3 and T == f32", c, &arena, &e);
    if (!status)
        status = dv__dtype_sets_parse("f32 f64", c, &arena, &sets);
    if (!status) {
        dv__contract_describe(c, &t);
        dv__contract_json(c, &t);
        status = dv__strbuf_detach(&t, &s);
    }
    dv__free(s);
    dv__arena_deinit(&arena);
    dv__contract_free(c);
    dv__schema_free(schema);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    failing_each(everything,
        "x[*s 2*n]:T, z[n q]:U, xs{i}[*a n_{i} *b]:T, ks[3]; T in f32 f64; rank(*a) == 1; n > 2; h = n//2;\n"
        "when mode == \"a\": -> [*s h]:promote(T, f64), like(x) / \"b\" \"c\": -> [*a total(n_) *b]:T, [u]:i64; u unbacked in "
        "0..n;\n"
        "flops = 2*n; workspace = 4*n; align(x, 64)");
}

/* Solving and what comes after allocate nothing. */
static void test_no_allocation(void **state)
{
    (void)state;
    dv__schema *schema;
    dv__contract *c = parse("f(Tensor x, Tensor? z, Tensor[] xs) -> (Tensor, Tensor)",
        "x[*s 2*n]:T, z[n q]:U, xs{i}[*a k{i} *b]:T -> [broadcast(*s, *a)]:promote(T, f64), [*a total(k) *b]:T; rank(*a) == 1; n "
        "> 0",
        &schema);
    call_parse(&arguments, "f32[3,8] i8[4,2] {f32[3,4] f32[3,5]}");
    failing f;
    memset(&f, 0, sizeof f);
    const dv_allocator a = { failing_alloc, failing_realloc, failing_free, &f };
    dv__solution s;
    dv__result_metadata out;
    dv_set_allocator(&a);
    int status = dv__contract_solve(c, arguments.values, &s, true);
    for (size_t i = 0; i < 2 && !status; i++)
        status = dv__contract_eval_result(c, arguments.values, &s, i, &out);
    dv_set_allocator(NULL);
    if (status)
        fail_msg("%s", dv_last_error());
    assert_int_equal(f.n, 0);
    dv__contract_free(c);
    dv__schema_free(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_given), cmocka_unit_test(test_costs), cmocka_unit_test(test_split),
        cmocka_unit_test(test_takes), cmocka_unit_test(test_rows), cmocka_unit_test(test_words), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_allocation) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
