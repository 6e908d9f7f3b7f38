/* Formulas: what is accepted, the tree that comes out (as JSON), and the message of what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/memory.h"
#include "lang/formula.h"
#include "failing.h"

#include <stdio.h>

static const char *const operators[] = {
    "base::mul.Tensor(Tensor self, Tensor other) -> Tensor",
    "base::mul.Scalar(Tensor self, Scalar other) -> Tensor",
    "base::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "base::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    "base::sub(Tensor self, Tensor other) -> Tensor",
    "base::rsub(Tensor self, Scalar other) -> Tensor",
    "base::div(Tensor self, Tensor other) -> Tensor",
    "base::neg(Tensor self) -> Tensor",
    "base::reciprocal(Tensor self) -> Tensor",
    "base::silu(Tensor self) -> Tensor",
    "base::cos(Tensor self) -> Tensor",
    "base::zeros_like(Tensor self) -> Tensor",
    "base::sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    "base::expand(Tensor self, SymInt[] size) -> Tensor",
    "base::to(Tensor self, ScalarType dtype) -> Tensor",
    "base::pool(Tensor self, int[2] size) -> Tensor",
    "base::cat(Tensor[] tensors, int dim=0) -> Tensor",
    "base::split(Tensor self, int n) -> Tensor[]",
    "my::f_grad(Tensor grad, Tensor x, Tensor? w, bool[2] mask) -> (Tensor, Tensor)",
    "my::three(Tensor x) -> (Tensor a, Tensor b, int n)",
    "my::writes(Tensor(a!) x) -> Tensor(a!)",
    "my::nothing(Tensor x) -> ()",
};
enum { N = sizeof operators / sizeof operators[0] };
static dv__schema *schemas[N];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < N; i++)
        if (dv__schema_parse(operators[i], &schemas[i]))
            fail_msg("%s: %s", operators[i], dv_last_error());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < N; i++)
        dv__schema_free(schemas[i]);
    return 0;
}

static int lookup(void *user, const char *name, size_t i, const dv__schema **out)
{
    (void)user;
    *out = NULL;
    if (!strcmp(name, "forbidden"))
        return dv_fail(DV_ENOENT, "no operator 'forbidden'; did you mean 'forgiven'?");
    for (size_t k = 0; k < N; k++)
        if (!strcmp(schemas[k]->name, name) && !i--) {
            *out = schemas[k];
            break;
        }
    return DV_OK;
}

enum which { NATIVE, GRADIENT, TANGENT };

static int run(enum which which, const char *schema_text, const char *text, char **json)
{
    dv__schema *schema;
    dv__arena arena = { 0 };
    dv__decomposition *native = NULL;
    dv__formula *formula = NULL;
    *json = NULL;
    int status = dv__schema_parse(schema_text, &schema);
    if (status)
        return status;
    if (which == NATIVE)
        status = dv__decomposition_parse(text, "my::f", schema, lookup, NULL, &arena, &native);
    else if (which == GRADIENT)
        status = dv__gradient_parse(text, "my::f", schema, lookup, NULL, &arena, &formula);
    else
        status = dv__tangent_parse(text, "my::f", schema, lookup, NULL, &arena, &formula);
    if (!status) {
        dv__strbuf to = { 0 };
        if (which == NATIVE)
            dv__decomposition_json(native, "", schema, &to);
        else
            dv__formula_json(formula, "", schema, &to);
        status = dv__strbuf_detach(&to, json);
    }
    dv__arena_deinit(&arena);
    dv__schema_free(schema);
    return status;
}

#define XY "f(Tensor x, Tensor y) -> Tensor"
#define XW "f(Tensor x, Tensor? w, int n, float e, int[] sizes) -> Tensor"
#define TWO "f(Tensor x) -> (Tensor a, Tensor b)"
#define INPLACE "f(Tensor x, Tensor(a!) out) -> ()"
#define RETURNED "f(Tensor(a!) x, Tensor y) -> Tensor(a!)"

/* ---- Accepted: the JSON without the text ---- */

static const struct good {
    enum which which;
    const char *schema, *text, *json;
} good[] = {
    { NATIVE, XY, "mul(silu(x), y)",
        "\"results\": [[\"call\", \"base::mul.Tensor\", [\"call\", \"base::silu\", [\"arg\", \"x\"]], [\"arg\", \"y\"]]], "
        "\"writes\": {}" },
    { NATIVE, XY, "x * y", "[[\"call\", \"base::mul.Tensor\", [\"arg\", \"x\"], [\"arg\", \"y\"]]]" },
    { NATIVE, XY, "x * 2", "[\"call\", \"base::mul.Scalar\", [\"arg\", \"x\"], [\"int\", 2]]" },
    { NATIVE, XY, "2.5 * x", "[\"call\", \"base::mul.Scalar\", [\"arg\", \"x\"], [\"float\", 2.5]]" },
    { NATIVE, XY, "1 - x", "[\"call\", \"base::rsub\", [\"arg\", \"x\"], [\"int\", 1]]" },
    { NATIVE, XY, "x - y", "[\"call\", \"base::sub\", [\"arg\", \"x\"], [\"arg\", \"y\"]]" },
    { NATIVE, XY, "-x", "[\"call\", \"base::neg\", [\"arg\", \"x\"]]" },
    { NATIVE, XY, "1 / x", "[\"call\", \"base::mul.Scalar\", [\"call\", \"base::reciprocal\", [\"arg\", \"x\"]], [\"int\", 1]]" },
    { NATIVE, XY, "x / y + 1",
        "[\"call\", \"base::add.Scalar\", [\"call\", \"base::div\", [\"arg\", \"x\"], [\"arg\", \"y\"]], [\"int\", 1]]" },
    { NATIVE, XY, "add(x, y, alpha=-2)",
        "[\"call\", \"base::add.Tensor\", [\"arg\", \"x\"], [\"arg\", \"y\"], [\"keyword\", \"alpha\", [\"neg\", [\"int\", "
        "2]]]]" },
    { NATIVE, XY, "sum(x, [0, 1], keepdim=True, dtype=f32)",
        "[\"list\", [\"int\", 0], [\"int\", 1]], [\"keyword\", \"keepdim\", [\"bool\", true]], [\"keyword\", \"dtype\", "
        "[\"dtype\", \"f32\"]]]" },
    { NATIVE, XY, "sum(x, 0, dtype=None)", "[\"int\", 0], [\"keyword\", \"dtype\", [\"none\"]]]" },
    { NATIVE, XY, "to(x, y.dtype)", "[\"attr\", [\"arg\", \"y\"], \"dtype\"]" },
    { NATIVE, XY, "expand(x, [y.shape[0], y.ndim, -1, len(y.shape) // 2])",
        "[\"index\", [\"attr\", [\"arg\", \"y\"], \"shape\"], [\"int\", 0]]" },
    { NATIVE, XY, "three(x)[1]", "[\"index\", [\"call\", \"my::three\", [\"arg\", \"x\"]], [\"int\", 1]]" },
    { NATIVE, XY, "unknown(x, 3, k=y)",
        "[\"call\", \"unknown\", [\"arg\", \"x\"], [\"int\", 3], [\"keyword\", \"k\", [\"arg\", \"y\"]]]" },
    { NATIVE, XY, "elsewhere::op.out(x) * y",
        "[\"call\", \"base::mul.Tensor\", [\"call\", \"elsewhere::op.out\", [\"arg\", \"x\"]], [\"arg\", \"y\"]]" },
    { NATIVE, XY, "cat([x, y], dim=x.ndim - 1)", "[\"sub\", [\"attr\", [\"arg\", \"x\"], \"ndim\"], [\"int\", 1]]" },
    { NATIVE, XY, "split(x, 2)[0]", "[\"index\", [\"call\", \"base::split\"" },
    { NATIVE, XW, "if(present(w), x * w, x)",
        "[\"if\", [\"present\", [\"arg\", \"w\"]], [\"call\", \"base::mul.Tensor\", [\"arg\", \"x\"], [\"arg\", \"w\"]], "
        "[\"arg\", \"x\"]]" },
    { NATIVE, XW, "if(present(w) and n > 0, mul(x, w), x * (n + e))",
        "[\"and\", [\"present\", [\"arg\", \"w\"]], [\"gt\", [\"arg\", \"n\"], [\"int\", 0]]]" },
    { NATIVE, XY, "if(x.shape[0] + 1 in 1 y.ndim, x, y)", "[\"in\", [\"add\"" },
    { NATIVE, XY, "if(x.device == y.device and x.dtype in f32 y.dtype, x, y)", "[\"in\", [\"attr\"" },
    { NATIVE, XW, "if(n in 1 2, x, x * n)", "[\"in\", [\"arg\", \"n\"], [\"int\", 1], [\"int\", 2]]" },
    { NATIVE, XW, "expand(x, sizes)", "[\"arg\", \"sizes\"]" },
    { NATIVE, XW, "x * e", "[\"call\", \"base::mul.Scalar\", [\"arg\", \"x\"], [\"arg\", \"e\"]]" },
    { NATIVE, XW, "pool(x, n)", "[\"call\", \"base::pool\", [\"arg\", \"x\"], [\"arg\", \"n\"]]" },
    { NATIVE, TWO, "(x, cos(x))", "\"results\": [[\"arg\", \"x\"], [\"call\", \"base::cos\", [\"arg\", \"x\"]]]" },
    { NATIVE, TWO, "x, cos(x)", "\"results\": [[\"arg\", \"x\"], [\"call\", \"base::cos\", [\"arg\", \"x\"]]]" },
    { NATIVE, TWO, "[x, cos(x)]", "\"results\": [[\"arg\", \"x\"], [\"call\", \"base::cos\", [\"arg\", \"x\"]]]" },
    { NATIVE, TWO, "b: cos(x); a: x", "\"results\": [[\"arg\", \"x\"], [\"call\", \"base::cos\", [\"arg\", \"x\"]]]" },
    { NATIVE, TWO, "f_grad(x, x, None, [True, False])", "\"results\": [[\"index\", [\"call\", \"my::f_grad\"" },
    { NATIVE, TWO, "a, b: f_grad(x, x, None, [True, False])", "[\"int\", 0]], [\"index\", [\"call\", \"my::f_grad\"" },
    { NATIVE, INPLACE, "cos(x)", "\"results\": [], \"writes\": {\"out\": [\"call\", \"base::cos\", [\"arg\", \"x\"]]}" },
    { NATIVE, INPLACE, "out: cos(x)", "\"results\": [], \"writes\": {\"out\": [\"call\", \"base::cos\", [\"arg\", \"x\"]]}" },
    { NATIVE, RETURNED, "x + y",
        "\"results\": [[\"call\", \"base::add.Tensor\", [\"arg\", \"x\"], [\"arg\", \"y\"]]], \"writes\": {\"x\": [\"call\", "
        "\"base::add.Tensor\"" },

    { GRADIENT, XY, "x: grad * y; y: grad * x",
        "\"clauses\": [{\"targets\": [0], \"value\": [\"call\", \"base::mul.Tensor\", [\"grad\", 0], [\"arg\", \"y\"]]}, "
        "{\"targets\": [1], \"value\": [\"call\", \"base::mul.Tensor\", [\"grad\", 0], [\"arg\", \"x\"]]}], \"saves\": [1, 1, "
        "0]" },
    { GRADIENT, XY, "x, y: f_grad(grad, x, y, [needs(x), needs(y)]);",
        "[\"list\", [\"needs\", [\"arg\", \"x\"]], [\"needs\", [\"arg\", \"y\"]]]" },
    { GRADIENT, XY, "x, y: [grad, grad]", "{\"targets\": [0, 1], \"value\": [\"list\", [\"grad\", 0], [\"grad\", 0]]}" },
    { GRADIENT, XY, "x: mul(grad, result); y: non_differentiable", "{\"targets\": [1], \"value\": null}], \"saves\": [0, 0, 1]" },
    { GRADIENT, XY, "x: expand(grad, x.shape)", "\"saves\": [2, 0, 0]" },
    { GRADIENT, XY, "x: expand(grad, x.shape) * x", "\"saves\": [1, 0, 0]" },
    { GRADIENT, XY, "x: zeros_like(x)", "\"saves\": [1, 0, 0]" },
    { GRADIENT, XW, "w: if(present(w), grad * x, None)", "\"saves\": [1, 2, 0, 0, 0, 0]" },
    { GRADIENT, XW, "x: grad * n", "\"saves\": [0, 0, 1, 0, 0, 0]" },
    { GRADIENT, TWO, "x: grads[0] * b + grads[1] * result0",
        "[\"call\", \"base::mul.Tensor\", [\"grad\", 0], [\"result\", 1]], [\"call\", \"base::mul.Tensor\", [\"grad\", 1], "
        "[\"result\", 0]]" },
    { GRADIENT, INPLACE, "x: grad * cos(x); out: zeros_like(out)", "[\"grad_of\", \"out\"]" },
    { GRADIENT, RETURNED, "x: grad; y: grad",
        "[{\"targets\": [0], \"value\": [\"grad\", 0]}, {\"targets\": [1], \"value\": [\"grad\", 0]}]" },
    { GRADIENT, "f(Tensor[] xs) -> Tensor", "xs: split(grad, len(xs))", "[\"len\", [\"arg\", \"xs\"]]" },
    { GRADIENT, "f(Tensor x, int[4] box) -> Tensor", "x: pool(grad, [box[0], box[1]])",
        "[\"index\", [\"arg\", \"box\"], [\"int\", 0]]" },
    { GRADIENT, "f(Tensor grad) -> Tensor", "grad: grads[0]", "{\"targets\": [0], \"value\": [\"grad\", 0]}" },

    { TANGENT, XY, "result: mul(x_t, y) + mul(x, y_t)",
        "\"clauses\": [{\"targets\": [2], \"value\": [\"call\", \"base::add.Tensor\", [\"call\", \"base::mul.Tensor\", "
        "[\"tangent\", \"x\"], [\"arg\", \"y\"]]" },
    { TANGENT, TWO, "a: x_t; result1: mul(x_t, a)", "[\"result\", 0]" },
    { TANGENT, INPLACE, "out: x_t * cos(x)", "{\"targets\": [1]" },
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char *json;
        const int status = run(good[i].which, good[i].schema, good[i].text, &json);
        if (status)
            fail_msg("'%s' was refused: %s", good[i].text, dv_last_error());
        if (!strstr(json, good[i].json))
            fail_msg("'%s'\n  gives    %s\n  expected %s", good[i].text, json, good[i].json);
        dv_free(json);
    }
}

/* ---- Refused: a part of the message ---- */

static const struct bad {
    enum which which;
    const char *schema, *text, *message;
} bad[] = {
    { NATIVE, XY, "", "operator my::f: native: column 1: expected a value, found the end" },
    { NATIVE, XY, "mul(x", "expected ',' or ')', found the end" },
    { NATIVE, XY, "x y", "column 3: expected the end, found 'y'" },
    { NATIVE, XY, "x, y", "there are no more results" },
    { NATIVE, XY, "z", "unknown name 'z'; there are: x, y" },
    { NATIVE, XY, "grad", "unknown name 'grad'" },
    { NATIVE, XY, "result", "unknown name 'result'" },
    { NATIVE, XY, "needs(x)", "needs() is known in gradients only" },
    { NATIVE, XY, "mul(x)", "no overload of mul takes (Tensor); there are: base::mul.Tensor(" },
    { NATIVE, XY, "silu(x, y)", "column 9: too many arguments: base::silu(Tensor self) -> Tensor" },
    { NATIVE, XY, "silu()", "argument 'self' is missing: base::silu(Tensor self)" },
    { NATIVE, XY, "silu(input=x)", "base::silu has no argument 'input'" },
    { NATIVE, XY, "silu(x, self=x)", "argument 'self' of base::silu is given twice" },
    { NATIVE, XY, "silu(2)", "argument 'self' of base::silu is Tensor, found int" },
    { NATIVE, XY, "silu(None)", "is Tensor, found None" },
    { NATIVE, XY, "silu([x, y])", "is Tensor, found [Tensor, Tensor]" },
    { NATIVE, XY, "silu(three(x))", "is Tensor, found 3 results" },
    { NATIVE, XY, "silu(nothing(x))", "is Tensor, found no result" },
    { NATIVE, XY, "writes(x)", "my::writes writes its argument 'x'; a formula may only call operators that write nothing" },
    { NATIVE, XY, "forbidden(x)", "column 1: no operator 'forbidden'; did you mean 'forgiven'?" },
    { NATIVE, XY, "cat(dim=0, [x])", "a positional argument may not follow a named one" },
    { NATIVE, XY, "cat([x, 1])", "is Tensor[], found [Tensor, int]" },
    { NATIVE, XY, "pool(x, [1, 2, 3])", "is int[2], found [int, int, int]" },
    { NATIVE, XY, "sum(x, keepdim=1)", "is bool, found int" },
    { NATIVE, XY, "to(x, \"f32\")", "is ScalarType, found str" },
    { NATIVE, XY, "2", "'result' takes Tensor, found int" },
    { NATIVE, XY, "None", "'result' takes Tensor, found None" },
    { NATIVE, XY, "three(x)", "expected 1 result, one for each target, found 3" },
    { NATIVE, XY, "three(x)[3]", "expected a literal index below 3" },
    { NATIVE, XY, "three(x)[2]", "'result' takes Tensor, found int" },
    { NATIVE, XY, "x[0]", "only a list, a shape or a call with several results has an index, found Tensor" },
    { NATIVE, XY, "x.shape[y]", "an index is int, found Tensor" },
    { NATIVE, XY, "x.size", "a tensor has no '.size'; there are .shape, .ndim" },
    { NATIVE, XY, "x // y", "only + - * / work on tensors" },
    { NATIVE, XY, "x + None", "arithmetic needs numbers and tensors: expected Tensor, found None" },
    { NATIVE, XY, "\"a\" * x", "arithmetic needs numbers and tensors" },
    { NATIVE, XY, "if(x > 0, x, y)", "a condition is about numbers, not about what is in a tensor" },
    { NATIVE, XY, "if(1, x, y)", "the condition of if() is bool, found int" },
    { NATIVE, XY, "if(True, x)", "if() takes a condition and two values" },
    { NATIVE, XY, "if(True, x, 1)", "the two branches of if() differ: expected Tensor, found int" },
    { NATIVE, XY, "if(x.ndim in 1, 2, x, y)", "found 4 operands: the values after 'in' are separated by spaces" },
    { NATIVE, XY, "present(x)", "'x' is always present: it is not optional" },
    { NATIVE, XY, "present(silu(x))", "present() takes the name of one argument" },
    { NATIVE, XY, "len(x)", "len() takes a list" },
    { NATIVE, XY, "*x", "expected a value" },
    { NATIVE, XY, "x in y", "a condition is about numbers, not about what is in a tensor" },
    { NATIVE, XY, "if(x.shape in 1 2, x, y)", "column 15: a list of integers cannot be compared" },
    { NATIVE, XY, "if(x.shape == [4], x, y)", "a list of integers cannot be compared" },
    { NATIVE, XY, "if(x.ndim in \"a\" \"b\", x, y)", "expected an integer, found a string: they can never be equal" },
    { NATIVE, XY, "if(x.dtype in f32 1, x, y)", "column 19: expected a dtype, found an integer: they can never be equal" },
    { NATIVE, XY, "if(x.device == 1, x, y)", "expected a device, found an integer: they can never be equal" },
    { NATIVE, XY, "if(x.ndim == None, x, y)", "expected an integer, found None: they can never be equal" },
    { NATIVE, XY, "if(x.ndim != True, x, y)", "expected an integer, found a boolean: they can never be equal" },
    { NATIVE, XY, "if(x.ndim < \"a\", x, y)", "expected a number, found a string" },
    { NATIVE, XY, "mul(x, x.ndim in 1 2)", "no overload of mul takes (Tensor, bool)" },
    { NATIVE, XY, "x * True", "arithmetic needs numbers and tensors: expected Tensor, found bool" },
    { NATIVE, XW, "mul(x, w)", "no overload of mul takes (Tensor, Tensor?)" },
    { NATIVE, XW, "silu(w)", "is Tensor, found Tensor?" },
    { NATIVE, XW, "if(present(w), x, silu(w))", "is Tensor, found Tensor?" },
    { NATIVE, TWO, "x", "expected 2 results, one for each target, found 1" },
    { NATIVE, TWO, "a: x", "'b', which is returned, has no clause; expected 'b: ...'" },
    { NATIVE, TWO, "a: x; a: x", "'a' has a formula already" },
    { NATIVE, TWO, "c: x; a: x", "'c' is not a result of the operator; there are: a, b" },
    { NATIVE, INPLACE, "x: x", "'x' is not a result of the operator; there are: out" },
    { NATIVE, "f(Tensor x, Tensor(a!) out) -> Tensor", "x", "'out', which is written, has no clause" },
    { NATIVE, "f(Tensor x) -> ()", "x", "neither returns nor writes anything" },

    { GRADIENT, XY, "", "operator my::f: gradient: column 1: expected an argument's name, found the end" },
    { GRADIENT, XY, "x", "expected ':', found the end" },
    { GRADIENT, XY, "x: ", "expected a value" },
    { GRADIENT, XY, "x: grad x: grad", "expected ';' or the end, found 'x'" },
    { GRADIENT, XY, "z: grad", "'z' is not an argument of the operator; there are: x, y" },
    { GRADIENT, XY, "result: grad", "'result' is not an argument" },
    { GRADIENT, XY, "x: grad; x: grad", "'x' has a formula already" },
    { GRADIENT, XY, "x, y: grad", "expected 2 results, one for each target, found 1" },
    { GRADIENT, XY, "x, y: three(grad)", "expected 2 results, one for each target, found 3" },
    { GRADIENT, XY, "x: f_grad(grad, x, y, [True, True])", "expected 1 result, one for each target, found 2" },
    { GRADIENT, XY, "x, y: [grad, 1]", "'y' takes Tensor, found int" },
    { GRADIENT, XY, "x: x_t", "unknown name 'x_t'; there are: x, y, result, grad" },
    { GRADIENT, XY, "x: grads", "'grads' needs an index" },
    { GRADIENT, XY, "x: grads[1]", "grads[1]: the operator has 1 outputs (results and written arguments)" },
    { GRADIENT, XY, "x: grads[x]", "grads needs a literal index" },
    { GRADIENT, XW, "n: grad", "'n' is int: only tensors have gradients" },
    { GRADIENT, XW, "x: n", "'x' takes Tensor, found int" },
    { GRADIENT, TWO, "x: grad",
        "the operator has 2 outputs (results and written arguments): expected grads[0], grads[1] ..., found 'grad'" },
    { GRADIENT, "f(Tensor grad) -> Tensor", "grad: grad", "'grad' is ambiguous" },
    { GRADIENT, "f(Tensor[] xs) -> Tensor", "xs: grad", "'xs' takes Tensor[], found Tensor" },

    { TANGENT, XY, "x: x_t", "'x' is not a result of the operator; there are: result" },
    { TANGENT, XY, "result: z_t", "unknown name 'z_t'; there are: x, y, result, x_t, y_t" },
    { TANGENT, XY, "result: grad", "unknown name 'grad'" },
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *json;
        const int status = run(bad[i].which, bad[i].schema, bad[i].text, &json);
        if (!status)
            fail_msg("'%s' was accepted: %s", bad[i].text, json);
        if (!strstr(dv_last_error(), bad[i].message))
            fail_msg("'%s'\n  says     %s\n  expected %s", bad[i].text, dv_last_error(), bad[i].message);
    }
}

/* What docs/formula.md shows: lines of "kind  schema  formula" in its blocks; the columns are two spaces apart. */
static void check_line(char *line)
{
    static const char *const kinds[] = { "native", "gradient", "tangent" };
    char *schema = strstr(line, "  "), *json;
    assert_non_null(schema);
    *schema++ = 0;
    schema += strspn(schema, " ");
    char *text = strstr(schema, "  ");
    assert_non_null(text);
    *text++ = 0;
    text += strspn(text, " ");
    text[strcspn(text, "\n")] = 0;
    enum which which = NATIVE;
    while (strcmp(line, kinds[which]) != 0)
        assert_in_range(++which, NATIVE, TANGENT);
    if (run(which, schema, text, &json))
        fail_msg("docs/formula.md: %s", dv_last_error());
    dv_free(json);
}

static void test_docs(void **state)
{
    (void)state;
    char line[500];
    bool inside = false;
    int n = 0;
    FILE *page = fopen(SOURCE_DIR "/docs/formula.md", "r");
    assert_non_null(page);
    while (fgets(line, sizeof line, page)) {
        const bool fence = !strncmp(line, "```", 3);
        if (inside && !fence) {
            check_line(line);
            n++;
        }
        inside = fence ? !strncmp(line, "```formula", 10) : inside;
    }
    fclose(page);
    assert_true(n > 10);
}

/* Deep nesting ends in an error, not in a crash. */
static void test_deep(void **state)
{
    (void)state;
    char text[4000] = "", *json;
    for (int i = 0; i < 300; i++)
        strcat(text, "1/(");
    strcat(text, "x");
    for (int i = 0; i < 300; i++)
        strcat(text, ")");
    assert_int_equal(run(NATIVE, XY, text, &json), DV_ELIMIT);
    text[0] = 0;
    for (int i = 0; i < 90; i++)
        strcat(text, "1/(");
    strcat(text, "x");
    for (int i = 0; i < 90; i++)
        strcat(text, ")");
    assert_int_equal(run(NATIVE, XY, text, &json), DV_OK);
    dv_free(json);
}

static int each_good(void *arg)
{
    const struct good *g = arg;
    char *json;
    const int status = run(g->which, g->schema, g->text, &json);
    dv_free(json);
    return status;
}

static void test_failing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        failing_each(each_good, &good[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_docs),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_failing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
