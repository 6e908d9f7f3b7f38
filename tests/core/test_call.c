#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_ops.h"

#define DV_STATIC 1
DV_LIBRARY(tc, &dv_op_swiglu);

static void first(void **state)
{
    (void)state;
    dv_library *lib;
    dv_operator *op;
    if (dv_load_static(&dv_library_tc, &lib))
        fail_msg("%s", dv_last_error());
    assert_int_equal(dv_find("tc::swiglu", &op), 0);
    const int64_t shape[] = { 100, 1000 };
    dv_tensor *gate, *up;
    dv_dtype f32 = { 2, 32, 1 };
    dv_tensor_new(f32, 2, shape, &gate);
    dv_tensor_new(f32, 2, shape, &up);
    for (int i = 0; i < 100000; i++)
        ((float *)gate->data)[i] = 1, ((float *)up->data)[i] = (float)i;
    dv_value args[2] = { dv_from_tensor(gate), dv_from_tensor(up) }, result = dv_default();
    if (dv_call(op, args, 2, &result, 1, NULL))
        fail_msg("%s", dv_last_error());
    dv_tensor *out = (dv_tensor *)(uintptr_t)result.as.tensor;
    for (int i = 0; i < 100000; i++)
        assert_float_equal(((float *)out->data)[i], (float)i * 0.7310585786f, 1e-2);
    dv_tensor_unref(out);
    dv_tensor_unref(gate);
    dv_tensor_unref(up);
    dv_operator_unref(op);
    dv_library_free(lib);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(first) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
