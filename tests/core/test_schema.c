/* Schemas in C: structure, messages, validation, compatibility, inference. What is accepted and printed is compared with PyTorch
 * itself in tests/schema/test_oracle.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

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
    dv__schema *s = parsed("my::f.out(Tensor x, int[2]? k=3, *, SymInt n=1, float? e=2, ScalarType? t=half, Tensor(a!)[] out) -> Tensor(a!)[]");
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
    assert_true(dv__argument_writes(&s->args[5]));
    assert_string_equal(s->args[5].alias->element->before[0], "a");
    assert_int_equal(dv__schema_arg(s, "t"), 4);
    assert_int_equal(dv__schema_arg(s, "nothing"), -1);
    dv__schema_free(s);
}

/* ---- Every allocation failed in turn ------------------------------------------------------------------------------------------- */

static const char *const everything =
    "my::f.o(Tensor(a! -> b|a) x, Tensor(c)[]? y, (Tensor, SymInt?)[] z, Dict(str, int[]) d, Future(t) e, Union(int, str, None) u, "
    "__torch__.torch.classes.ns.Cls k, int[3] s=1, float[] g=[1, 2.5], str h='a\\001b', Device i='cuda:1', complex[] j=[2j], "
    "bool[2] l=[True, False], ScalarType[] m=[half, long], Scalar n=1.5, *, int[2]? w=2, Tensor! out) -> ((Tensor, int)[] p, ...)";

static int parse_and_print(void *text)
{
    dv__schema *s = NULL;
    dv__text print = { 0 }, json = { 0 };
    char *printed = NULL, *as_json = NULL;
    int status = dv__schema_parse(text, &s);
    if (!status) {
        dv__schema_print(s, &print);
        status = dv__text_take(&print, &printed);
    }
    if (!status) {
        dv__schema_json(s, &json);
        status = dv__text_take(&json, &as_json);
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

struct frame { const dv_tensor *x; dv_tensor *default_, *out; int64_t n; dv_ints sizes; double *sum; };

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
    assert_true(failing_each(infer, NULL) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_structure), cmocka_unit_test(test_allocations) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
