/* Schemas in C: structure, messages, validation, compatibility, inference. What is accepted and printed is compared with PyTorch
 * itself in tests/schema/test_oracle.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dovetail.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_structure) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
