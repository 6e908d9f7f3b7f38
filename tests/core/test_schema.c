/* Schemas in C: structure, messages, validation, compatibility, inference. What is accepted and printed is compared with PyTorch
 * itself in tests/schema/test_oracle.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdio.h>

#include "dovetail.h"
#include "failing.h"
#include "lang/schema.h"

static dv__schema *parsed(const char *text)
{
    dv__schema *s;
    if (dv__schema_parse(text, &s))
        fail_msg("%s", dv_last_error());
    return s;
}

static void test_structure(void **state)
{
    (void)state;
    dv__schema *s = parsed(
        "my::f.out(Tensor x, int[2]? k=3, *, SymInt n=1, float? e=2, ScalarType? t=half, Tensor(a!)[] out) -> Tensor(a!)[]");
    assert_string_equal(s->ns, "my");
    assert_string_equal(s->name, "f");
    assert_string_equal(s->overload, "out");
    assert_int_equal(s->nargs, 6);
    assert_int_equal(s->args[1].type->kind, DV__TYPE_OPTIONAL);
    assert_int_equal(s->args[1].type->elems[0]->kind, DV__TYPE_LIST);
    assert_int_equal(s->args[1].type->elems[0]->fixed_size, 2);
    assert_int_equal(s->args[1].def.value.type, DV_VALUE_INTS);
    assert_int_equal(s->args[1].def.value.as.ints.size, 2);
    assert_int_equal(s->args[1].def.value.as.ints.data[1], 3);
    assert_false(s->args[1].kwarg_only);
    assert_true(s->args[2].kwarg_only);
    assert_int_equal(s->args[3].def.value.type, DV_VALUE_FLOAT);
    assert_true(s->args[3].def.value.as.f == 2);
    assert_int_equal(s->args[4].def.value.type, DV_VALUE_DTYPE);
    assert_int_equal(dv_dtype_key(s->args[4].def.value.as.dtype), DV_DTYPE_f16);
    assert_true(dv__argument_is_written(&s->args[5]));
    assert_string_equal(s->args[5].alias->element->before[0], "a");
    assert_int_equal(dv__schema_find_argument_index(s, "t"), 4);
    assert_int_equal(dv__schema_find_argument_index(s, "nothing"), -1);
    dv__schema_free(s);
}

/* ---- Messages ------------------------------------------------------------------------------------------------------------ */

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        int column;
        const char *expected;
    } rows[] = {
        { "", 1, "expected the name of an operator, found the end" },
        { "f", 2, "expected '(', found the end" },
        { "f(Tensor x)", 12, "expected '->', found the end" },
        { "f(Tensor x) -> ", 16, "expected a type, found the end" },
        { "f(Tensor) -> ()", 9, "expected the name of the argument, found ')'" },
        { "f(Tensor x,) -> ()", 12, "expected a type, found ')'" },
        { "f(Tensor x y) -> ()", 12, "expected ',' or ')', found 'y'" },
        { "f(Tensor x; Tensor y) -> ()", 11, "expected ',' or ')', found ';'" },
        { "f(Tensr x) -> ()", 3,
            "expected a type (Tensor, SymInt, int, float, bool, str, Scalar...), found 'Tensr'; did you mean 'Tensor'?" },
        { "f(floaat k=2.0) -> ()", 12, "a default of the unknown type 'floaat'; did you mean 'float'?" },
        { "f(Tensor x) \u2192 Tensor", 13, "expected '->', found '\u2192'; write ->" },
        { "f(innt[2] k=1) -> ()", 13, "a default of the unknown type 'innt'; did you mean 'int'?" },
        { "f(Tensor in) -> ()", 10, "expected the name of the argument (no keyword), found 'in'" },
        { "class(Tensor x) -> ()", 1, "expected the name of an operator, found 'class'" },
        { "a::b::c(Tensor x) -> ()", 5, "expected '(', found '::'" },
        { "f.default(Tensor x) -> ()", 3, "'default' cannot be the name of an overload" },
        { "f.__init__(Tensor x) -> ()", 3, "'__init__' cannot be the name of an overload" },
        { "f.1(Tensor x) -> ()", 2, "expected '(', found '.1'" },
        { "f(Tensor(a x) -> ()", 12, "expected '|', '!', '->' or ')', found 'x'" },
        { "f(Tensor(a!|b) x) -> ()", 12, "expected '->' or ')', found '|'" },
        { "f(Tensor() x) -> ()", 10, "expected the name of an alias set or '*', found ')'" },
        { "f(Tensor?(a!) x) -> ()", 10, "expected the name of the argument, found '('" },
        { "f(int[x] a) -> ()", 7, "expected ']' or the size of the list, found 'x'" },
        { "f(int[3 a) -> ()", 9, "expected ']', found 'a'" },
        { "f(int[99999999999] a) -> ()", 7, "expected the size of a list, found 99999999999" },
        { "f(int a=) -> ()", 9, "expected a value, found ')'" },
        { "f(int a=-) -> ()", 10, "expected a number, found ')'" },
        { "f(int a=abc) -> ()", 9, "expected a value, found 'abc'" },
        { "f(int a=99999999999999999999) -> ()", 9, "expected a number that int holds, found 99999999999999999999" },
        { "f(float a=1e999) -> ()", 11, "expected a number that float holds, found 1e999" },
        { "f(complex a=1) -> ()", 13, "expected an imaginary number such as 2j, found 1" },
        { "f(str a='x) -> ()", 9, "expected a value, found '''" },
        { "f(str a='\\q') -> ()", 10, "found \\q" },
        { "f(ScalarType a=flaot) -> ()", 16, "expected a dtype such as float or int64, found 'flaot'" },
        { "f(Device a='gpu') -> ()", 12, "expected a device such as 'cpu' or 'cuda:1', found 'gpu'" },
        { "f(Device a='cuda:01') -> ()", 12, "found 'cuda:01'" },
        { "f(Device a=cpu) -> ()", 12, "expected a string, found 'cpu'" },
        { "f(Tensor a=1) -> ()", 12, "expected None, found '1'" },
        { "f(Tensor[] a=[]) -> ()", 14, "only lists of int, float, bool and complex can have a default" },
        { "f(int[] a=[1.5]) -> ()", 11, "expected a list of integers" },
        { "f(int[] a=1) -> ()", 11, "expected '[', found '1'" },
        { "f(int[] a=[1 2]) -> ()", 14, "expected ',' or ']', found '2'" },
        { "f(int[2000000] a=1) -> ()", 18, "a default for more than 1048576 elements" },
        { "f(Storage a=1) -> ()", 13, "an argument of this type cannot have a default" },
        { "f(Dict(int) a) -> ()", 3, "expected the types of key and value in Dict(...), found 1 types" },
        { "f(Dict(Layout[], int) a) -> ()", 3, "expected a key of type int" },
        { "f(Future(int, int) a) -> ()", 3, "expected one type in Future(...), found 2" },
        { "f(Union(int, int) a) -> ()", 3, "expected a union of different types" },
        { "f(NoneType? a) -> ()", 11, "NoneType cannot be optional" },
        { "f(__torch__.classes.a.b x) -> ()", 13, "expected 'torch', found 'classes'" },
        { "f(..., int a) -> ()", 8, "expected ')': '...' ends the arguments" },
        { "f() -> (..., int)", 14, "expected ')': '...' ends the returns" },
        { "f() -> int, int", 11, "expected the end, found ','" },
        { "f() -> int x=1", 13, "expected the end, found '='" },
        { "f(Tensor a)\n-> Tensor", 12, "expected '->', found the end of the line" },
        { "f(Tensor a) -> Tensor\ng() -> ()", 22, "expected the end, found the end of the line" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dv__schema *s;
        char column[32];
        const int status = dv__schema_parse(rows[i].text, &s);
        snprintf(column, sizeof column, "column %d: ", rows[i].column);
        assert_null(s);
        const char *m = dv_last_error();
        if ((status != DV_ESYNTAX && status != DV_ELIMIT) || strncmp(m, column, strlen(column)) || !strstr(m, rows[i].expected))
            fail_msg("%s\n%s: %s\nexpected %s%s", rows[i].text, dv_status_name(status), m, column, rows[i].expected);
        const char *caret = strrchr(m, '^'), *line = strrchr(m, '\n'); /* the caret is under the column, in its line */
        assert_non_null(caret);
        const char *start = rows[i].text + rows[i].column - 1;
        while (start > rows[i].text && start[-1] != '\n')
            start--;
        assert_int_equal(caret - line - 1 - 4, rows[i].text + rows[i].column - 1 - start);
    }
}

static void test_refused_as_a_whole(void **state)
{
    dv__schema *s;
    char *text;
    (void)state;
    assert_int_equal(dv_schema_normalize(NULL, &text), DV_EINVAL);
    assert_int_equal(dv_schema_json(NULL, &text), DV_EINVAL);
    assert_int_equal(dv_schema_compatible(NULL, "f() -> ()"), DV_EINVAL);
    assert_int_equal(dv__schema_parse("f(int a=1, int b) -> ()", &s), DV_ESYNTAX);
    assert_non_null(strstr(dv_last_error(), "argument 'b' has no default but follows 'a', which has one"));
    assert_int_equal(dv__schema_parse("f(int a=1, ...) -> ()", &s), DV_ESYNTAX);
    assert_non_null(strstr(dv_last_error(), "argument 'a' has a default, which is not allowed beside '...'"));
}

static void test_deep(void **state) /* deep nesting does not use up the stack */
{
    static char text[1 << 18];
    static const char *const openings[] = { "(", "Future(", "Union(int, ", "Dict(str, " };
    dv__schema *s;
    (void)state;
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        size_t n = (size_t)snprintf(text, sizeof text, "f(");
        while (n < sizeof text - 100)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", openings[i]);
        assert_int_equal(dv__schema_parse(text, &s), DV_ELIMIT);
    }
    size_t n = (size_t)snprintf(text, sizeof text, "f(int");
    while (n < sizeof text - 100)
        n += (size_t)snprintf(text + n, sizeof text - n, "[]");
    snprintf(text + n, sizeof text - n, " a) -> ()");
    assert_int_equal(dv__schema_parse(text, &s), DV_ELIMIT);
    assert_non_null(strstr(dv_last_error(), "types are nested more than 64 deep"));
}

static void test_many(void **state) /* thousands of arguments are fine */
{
    static char text[1 << 18];
    size_t n = (size_t)snprintf(text, sizeof text, "f(int a0");
    (void)state;
    for (int i = 1; i < 10000; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ", int a%d", i);
    snprintf(text + n, sizeof text - n, ") -> ()");
    dv__schema *s = parsed(text);
    assert_int_equal(s->nargs, 10000);
    assert_string_equal(s->text, text);
    dv__schema_free(s);
}

/* ---- Validation ---------------------------------------------------------------------------------------------------------- */

static void test_validate(void **state)
{
    static const struct {
        const char *text, *expected; /* NULL: fine */
    } rows[] = {
        { "f(Tensor x) -> Tensor", NULL },
        { "my::f.o(Tensor(a!) x, Tensor? y=None, int[2] k=1, *, SymInt? n=None, Device? d=None, ScalarType t=float) -> "
          "Tensor(a!)",
            NULL },
        { "f(Tensor(a) x) -> Tensor(a)", NULL },
        { "f(Tensor(a) x, Tensor(a) y) -> Tensor(a)", NULL },
        { "f(Tensor(a!) x) -> Tensor(a!) x", NULL },
        { "f(Tensor(a -> *) x) -> Tensor(a)[]", NULL },
        { "f(*, Tensor(a!)[] out) -> ()", NULL },
        { "f(float? x=1, Scalar s=2, Scalar? b=True, complex c=1j) -> ()", NULL },
        { "f(Layout? l=strided, MemoryFormat? m=contiguous_format, Device d='cuda:1', bool[2] b=[True, False]) -> ()", NULL },
        { "f(Tensor x, Tensor x) -> ()", "argument 'x': another one has the same name" },
        { "f() -> (Tensor a, Tensor a)", "return 'a': another one has the same name" },
        { "f(Tensor a) -> Tensor a", "return 'a': an argument has this name" },
        { "f(int a=1.5) -> ()", "argument 'a': the default 1.5 does not fit the type int" },
        { "f(int a=True) -> ()", "the default True does not fit the type int" },
        { "f(int a=None) -> ()", "the default None does not fit the type int" },
        { "f(bool a=1) -> ()", "the default 1 does not fit the type bool" },
        { "f(bool? a=1) -> ()", "the default 1 does not fit the type bool?" },
        { "f(int? a=1.0) -> ()", "the default 1. does not fit the type int?" },
        { "f(int? a='x') -> ()", "does not fit the type int?" },
        { "f(str a=1) -> ()", "does not fit the type str" },
        { "f(str a=None) -> ()", "does not fit the type str" },
        { "f(Tensor a=None) -> ()", "does not fit the type Tensor" },
        { "f(Tensor? a=1) -> ()", "does not fit the type Tensor?" },
        { "f(Device? a='cpu') -> ()", "does not fit the type Device?" },
        { "f(Device a='xla') -> ()", "does not fit the type Device" },
        { "f(ScalarType a=qint8) -> ()", "does not fit the type ScalarType" },
        { "f(ScalarType a=99) -> ()", "does not fit the type ScalarType" },
        { "f(int[2] a=[1, 2, 3]) -> ()", "the default [1, 2, 3] has 3 elements, the type has 2" },
        { "f(int[]? a=1) -> ()", "the default 1 does not fit the type int[]?" },
        { "f(float[2] a=[1, 2, 3]) -> ()", "has 3 elements, the type has 2" },
        { "f(int(a) x) -> ()", "only tensors have alias annotations" },
        { "f(int(a!) x) -> ()", "only tensors have alias annotations" },
        { "f(Tensor x) -> Tensor(a)", "alias set 'a' is not the set of any argument" },
        { "f(Tensor(a) x) -> Tensor(a!)", "alias set 'a' is written, and argument 'x' only reads it" },
        { "f(*, Tensor a, *, Tensor b) -> ()", "'*' appears twice" },
        { "f(Tensor a, *) -> ()", "nothing follows '*'" },
        { "f(t x) -> t", "argument 'x': an operator cannot have the type t" },
        { "f(floaat[] x) -> ()", "an operator cannot have the type floaat[]; did you mean 'float'?" },
        { "f(double? k=1.0) -> ()", "an operator cannot have the type double?; did you mean 'float'?" },
        { "f(double x) -> ()", "an operator cannot have the type double; did you mean 'float'?" },
        { "f(Dict(str, int) x) -> ()", "an operator cannot have the type Dict(str, int)" },
        { "f((int, int) x) -> ()", "an operator cannot have the type (int, int)" },
        { "f(Storage[] x) -> ()", "an operator cannot have the type Storage[]" },
        { "f(Any x) -> ()", "an operator cannot have the type Any" },
        { "f() -> NoneType", "an operator cannot have the type NoneType" },
        { "f(...) -> ()", "'...' is for PyTorch's own primitives" },
        { "f() -> ...", "'...' is for PyTorch's own primitives" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dv__schema *s = parsed(rows[i].text);
        const int status = dv__schema_validate(s);
        if (status != (rows[i].expected ? DV_ESCHEMA : DV_OK) || (rows[i].expected && !strstr(dv_last_error(), rows[i].expected)))
            fail_msg("%s\n%s: %s\nexpected %s", rows[i].text, dv_status_name(status), dv_last_error(),
                rows[i].expected ? rows[i].expected : "nothing");
        dv__schema_free(s);
    }
}

/* ---- Inference ----------------------------------------------------------------------------------------------------------- */

struct all {
    const dv_tensor *x;
    dv_tensor *m, *out;
    int64_t i;
    double d;
    bool b;
    dv_string s;
    dv_scalar c;
    dv_complex z;
    dv_dtype t;
    dv_device v;
    dv_layout l;
    dv_memory_format f;
    const dv_generator *g;
    dv_tensors xs;
    dv_mut_tensors ms, outs;
    dv_ints ns;
    dv_floats ds;
    dv_bools bs;
    dv_strings ss;
    dv_scalars cs;
    dv_complexes zs;
    dv_dtypes ts;
    dv_devices vs;
    dv_opt_int oi;
    dv_opt_float od;
    dv_opt_bool ob;
    dv_opt_string os;
    dv_opt_scalar oc;
    dv_opt_complex oz;
    dv_opt_dtype ot;
    dv_opt_device ov;
    dv_opt_layout ol;
    dv_opt_memory_format of;
    dv_opt_tensors oxs;
    dv_opt_ints ois;
    dv_opt_floats ods;
    dv_opt_bools obs;
    dv_opt_strings oss;
    dv_opt_scalars ocs;
    int64_t *ri;
    double *rd;
    bool *rb;
};
struct words {
    const dv_tensor *default_, *in_x;
    dv_tensor *short_;
    int64_t keep_, for_;
};

static void infer_is(const dv_field_decl *const *fields, const char *mutates, const char *expected)
{
    char *text;
    if (dv__schema_infer("f", fields, mutates, &text))
        fail_msg("%s", dv_last_error());
    assert_string_equal(text, expected);
    dv_free(text);
}

static void infer_fails(const dv_field_decl *const *fields, const char *mutates, const char *expected)
{
    char *text;
    assert_int_not_equal(dv__schema_infer("f", fields, mutates, &text), DV_OK);
    assert_null(text);
    if (!strstr(dv_last_error(), expected))
        fail_msg("%s, expected %s", dv_last_error(), expected);
}

static void test_infer(void **state)
{
    (void)state;
    infer_is(DV_FIELDS(struct all, x, m, out, i, d, b, s, c, z, t, v, l, f, g, xs, ms, outs, ns, ds, bs, ss, cs, zs, ts, vs, oi,
                 od, ob, os, oc, oz, ot, ov, ol, of, oxs, ois, ods, obs, oss, ocs, ri, rd, rb),
        "m, ms",
        "f(Tensor x, Tensor(a!) m, SymInt i, float d, bool b, str s, Scalar c, complex z, ScalarType t, Device v, Layout l, "
        "MemoryFormat f, "
        "Generator? g, Tensor[] xs, Tensor(b!)[] ms, SymInt[] ns, float[] ds, bool[] bs, str[] ss, Scalar[] cs, complex[] zs, "
        "ScalarType[] ts, "
        "Device[] vs, SymInt? oi, float? od, bool? ob, str? os, Scalar? oc, complex? oz, ScalarType? ot, Device? ov, Layout? ol, "
        "MemoryFormat? of, Tensor[]? oxs, SymInt[]? ois, float[]? ods, bool[]? obs, str[]? oss, Scalar[]? ocs) -> "
        "(Tensor out, Tensor[] outs, SymInt ri, float rd, bool rb)");
    infer_is(DV_FIELDS(struct all, x, out), NULL, "f(Tensor x) -> Tensor out");
    infer_is(DV_FIELDS(struct all, x, out), "", "f(Tensor x) -> Tensor out");
    infer_is(DV_FIELDS(struct all, m, out), "out m", "f(Tensor(a!) m, Tensor(b!) out) -> ()");
    infer_is(DV_FIELDS(struct words, default_, in_x, short_, keep_, for_), NULL, /* for is a word of schemas, too */
        "f(Tensor default, Tensor in_x, SymInt keep_, SymInt for_) -> Tensor short");
    infer_fails(DV_FIELDS(struct all, x, out), "y", "operator f: .mutates names 'y', which is not a field of its struct");
    infer_fails(DV_FIELDS(struct all, x, out), "x", "which the struct does not let the kernel write");
    infer_fails(DV_FIELDS(struct all, i), "i", "which the struct does not let the kernel write");
    const dv_field_decl odd = { sizeof odd, 77, "odd", 0 };
    infer_fails((const dv_field_decl *const[]){ &odd, NULL }, NULL, "field 'odd' has a type (number 77)");
}

/* ---- Every allocation failed in turn ------------------------------------------------------------------------------------- */

static const char *const everything =
    "my::f.o(Tensor(a! -> b|a) x, Tensor(c)[]? y, (Tensor, SymInt?)[] z, Dict(str, int[]) d, Future(t) e, Union(int, str, None) "
    "u, "
    "__torch__.torch.classes.ns.Cls k, int[3] s=1, float[] g=[1, 2.5], str h='a\\001b', Device i='cuda:1', complex[] j=[2j], "
    "bool[2] l=[True, False], ScalarType[] m=[half, long], Scalar n=1.5, *, int[2]? w=2, Tensor! out) -> ((Tensor, int)[] p, "
    "...)";

static int parse_and_print(void *text)
{
    dv__schema *s = NULL;
    dv__strbuf print = { 0 }, json = { 0 };
    char *printed = NULL, *as_json = NULL;
    int status = dv__schema_parse(text, &s);
    if (!status) {
        dv__schema_print(s, &print);
        status = dv__strbuf_detach(&print, &printed);
    }
    if (!status) {
        dv__schema_json(s, &json);
        status = dv__strbuf_detach(&json, &as_json);
    }
    if (!status)
        assert_string_equal(printed, s->text);
    dv_free(printed);
    dv_free(as_json);
    dv__schema_free(s);
    return status;
}

static int use_public(void *text)
{
    char *a = NULL, *b = NULL;
    int status = dv_schema_normalize(text, &a);
    if (!status)
        status = dv_schema_json(text, &b);
    if (!status)
        status = dv_schema_compatible(text, text);
    dv_free(a);
    dv_free(b);
    return status;
}

struct frame {
    const dv_tensor *x;
    dv_tensor *default_, *out;
    int64_t n;
    dv_ints sizes;
    double *sum;
};

static int infer(void *unused)
{
    char *text;
    (void)unused;
    int status = dv__schema_infer("f", DV_FIELDS(struct frame, x, default_, out, n, sizes, sum), "default_", &text);
    if (!status)
        assert_string_equal(text, "f(Tensor x, Tensor(a!) default, SymInt n, SymInt[] sizes) -> (Tensor out, float sum)");
    dv_free(text);
    return status;
}

static void test_allocations(void **state)
{
    (void)state;
    assert_true(failing_each(parse_and_print, everything) > 10);
    assert_true(failing_each(use_public, everything) > 10);
    assert_true(failing_each(infer, NULL) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_as_a_whole),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_validate),
        cmocka_unit_test(test_infer),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
