/* Functional forms: their schemas, what they give, what they leave alone, given results, lists, absent ones, errors, memory that
 * runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_ops.h"
#include "failing.h"

struct add_into {
    const dv_tensor *x;
    dv_tensor *residual, *out;
    int64_t *n;
};
static int add_into_f32(dv_context *ctx, const struct add_into *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++) {
        ((float *)a->out->data)[i] = 2 * ((const float *)a->x->data)[i];
        if (a->residual)
            ((float *)a->residual->data)[i] += ((const float *)a->x->data)[i];
    }
    *a->n = dv_numel(a->x);
    return a->x->shape[0] == 5 ? dv_error(ctx, DV_EINVAL, "five is too many") : DV_OK;
}
#define ADD_INTO DV_KERNELS(DV_KERNEL(struct add_into, "cpu", "f32", add_into_f32))
DV_OPERATOR(add_into, struct add_into, (x, residual, out, n),
    .schema = "add_into(Tensor x, Tensor(a!)? residual=None) -> (Tensor out, int n)",
    .contract = "x[*s]:f32, residual[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct add_into, "cpu", NULL, add_into_f32)));
DV_OPERATOR(late_own, struct add_into, (x, residual, out, n),
    .schema = "late_own(Tensor x, Tensor(a!) residual) -> (Tensor(a!), Tensor out, int n)",
    .contract = "x[*s]:f32, residual[*s]:f32 -> [*s]:f32, out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct add_into, "cpu", NULL, add_into_f32)));
struct peek { dv_tensor *x; };
DV_OPERATOR(peek, struct peek, (x), .schema = "peek(Tensor(a!) x) -> Tensor(a)", .contract = "x[n]:f32 -> view(x)");
DV_LIBRARY_FRAGMENT(tc, tc_functional, &dv_op_add_into, &dv_op_late_own, &dv_op_peek);

static dv_operator *form(const char *name)
{
    dv_operator *op;
    CALL_OK(dv_functional(find(name), &op));
    return op;
}

static const int64_t n4[] = { 4 };

static void schemas(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "scale_", "tc::scale__functional(Tensor x, float by=2.) -> Tensor x_out" },
        { "swap_", "tc::swap__functional(Tensor x, Tensor y) -> (Tensor x_out, Tensor y_out)" },
        { "swap_aliased", "tc::swap_aliased_functional(Tensor x, Tensor y) -> (Tensor x_out, Tensor y_out)" },
        { "fill_all", "tc::fill_all_functional(Tensor[] xs, float value) -> Tensor[] xs_out" },
        { "add_into", "tc::add_into_functional(Tensor x, Tensor? residual=None) -> (Tensor out, int n, Tensor residual_out)" },
        { "late_own", "tc::late_own_functional(Tensor x, Tensor residual) -> (Tensor out, int n, Tensor residual_out)" },
        { "swiglu", "tc::swiglu(Tensor gate, Tensor up) -> Tensor out" }, /* writes nothing: itself */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dv_operator *op = form(rows[i][0]);
        assert_string_equal(dv_operator_schema(op), rows[i][1]);
        dv_operator_unref(op);
    }
    dv_operator *op;
    CALL_FAILS(DV_ENOTSUP, "is a view of an argument that is written", dv_functional(find("peek"), &op));
    CALL_FAILS(DV_EINVAL, "NULL", dv_functional(NULL, &op));
}

static void described(void **state)
{
    (void)state;
    dv_operator *op = form("add_into");
    char *json, *words;
    CALL_OK(dv_operator_json(op, &json));
    assert_non_null(strstr(json, "\"functional_form_of\": \"tc::add_into\""));
    assert_non_null(strstr(json, "residual_out"));
    assert_non_null(strstr(json, "add_into_f32"));
    CALL_OK(dv_operator_describe(op, &words));
    assert_non_null(strstr(words, "the functional form of tc::add_into("));
    assert_true(dv_operator_has_kernels(op, DV_CPU));
    dv_free(json);
    dv_free(words);
    dv_operator_unref(op);
}

static void one_written(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n4, 1, 1);
    const dv_value args[1] = { dv_from_tensor(x) };
    dv_value result = dv_default();
    dv_operator *op = form("scale_");
    CALL_OK(dv_call(op, args, 1, &result, 1, NULL));
    assert_true(at(result.as.tensor, 3) == 8 && at(x, 3) == 4);
    dv_tensor *given = tensor_of(&result);
    CALL_OK(dv_call(op, args, 1, &result, 1, NULL)); /* given */
    assert_true(result.as.tensor == given && at(given, 0) == 2 && at(x, 0) == 1);
    result = dv_from_tensor(x); /* the argument itself */
    CALL_OK(dv_call(op, args, 1, &result, 1, NULL));
    assert_true(result.as.tensor == x && at(x, 0) == 2);
    dv_tensor part = *x; /* half of it, from another place */
    part.data = (float *)x->data + 1;
    result = dv_from_tensor(&part);
    CALL_FAILS(DV_EALIAS, "result 'x_out': would be written, but overlaps argument 'x'", dv_call(op, args, 1, &result, 1, NULL));
    const int64_t n5[] = { 5 };
    dv_tensor *five = floats(1, n5, 0, 0);
    result = dv_from_tensor(five);
    CALL_FAILS(DV_ESHAPE, "result 'x_out': expected size 4 in dim 0, found 5", dv_call(op, args, 1, &result, 1, NULL));
    result = dv_from_int(1);
    CALL_FAILS(DV_ETYPE, "expected Tensor, found int", dv_call(op, args, 1, &result, 1, NULL));
    dv_result_spec spec;
    CALL_OK(dv_infer(op, args, 1, &spec, 1));
    assert_true(spec.ndim == 1 && spec.shape[0] == 4 && !spec.flags);
    const dv_value bad[2] = { dv_from_tensor(x), dv_from_float((double)NAN) };
    result = dv_default();
    CALL_FAILS(DV_EINVAL, "by is not a number", dv_call(op, bad, 2, &result, 1, NULL)); /* what was made is freed: ASan */
    assert_int_equal(result.type, DV_VALUE_DEFAULT);
    dv_tensor_unref(five);
    dv_tensor_unref(given);
    dv_tensor_unref(x);
    dv_operator_unref(op);
}

static void two_written(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n4, 1, 0), *y = floats(1, n4, 2, 0);
    const dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(y) };
    dv_value two[2] = { dv_default(), dv_default() };
    dv_operator *op = form("swap_");
    CALL_OK(dv_call(op, args, 2, two, 2, NULL));
    assert_true(at(two[0].as.tensor, 0) == 2 && at(two[1].as.tensor, 0) == 1 && at(x, 0) == 1 && at(y, 0) == 2);
    dv_value crossed[2] = { dv_from_tensor(y), dv_from_tensor(x) };
    CALL_FAILS(DV_EALIAS, "result 'x_out': would be written, but overlaps argument 'y'", dv_call(op, args, 2, crossed, 2, NULL));
    dv_value own[2] = { dv_from_tensor(x), dv_from_tensor(y) };
    CALL_OK(dv_call(op, args, 2, own, 2, NULL));
    assert_true(at(x, 0) == 2 && at(y, 0) == 1);
    dv_tensor_unref(tensor_of(&two[0]));
    dv_tensor_unref(tensor_of(&two[1]));
    dv_tensor_unref(x);
    dv_tensor_unref(y);
    dv_operator_unref(op);
}

static void new_lists(void **state)
{
    (void)state;
    const dv_tensor *xs[2] = { floats(1, n4, 1, 0), floats(1, n4, 2, 0) }, *news[2] = { floats(1, n4, 0, 0), xs[1] };
    const dv_value args[2] = { dv_from_tensors(xs, 2), dv_from_float(7) };
    dv_value result = dv_from_tensors(news, 2);
    dv_operator *op = form("fill_all");
    CALL_OK(dv_call(op, args, 2, &result, 1, NULL));
    assert_true(at(news[0], 0) == 7 && at(xs[0], 0) == 1 && at(xs[1], 0) == 7);
    result = dv_from_tensors(news, 1);
    CALL_FAILS(DV_ETYPE, "expected 2 tensors given", dv_call(op, args, 2, &result, 1, NULL));
    result = dv_default();
    dv_result_spec specs[2];
    size_t n = 0;
    CALL_OK(dv_infer_list(op, args, 2, 0, specs, 2, &n));
    assert_true(n == 2 && specs[1].ndim == 1 && specs[1].shape[0] == 4 && dv_dtype_key(specs[1].dtype) == DV_DTYPE_f32);
    CALL_OK(dv_call(op, args, 2, &result, 1, NULL));
    assert_true(result.as.tensors.size == 2 && at(result.as.tensors.data[0], 3) == 7 && at(xs[0], 0) == 1);
    for (int k = 0; k < 2; k++)
        dv_tensor_unref((dv_tensor *)(uintptr_t)result.as.tensors.data[k]);
    dv_free((void *)(uintptr_t)result.as.tensors.data);
    for (int k = 0; k < 2; k++)
        dv_tensor_unref((dv_tensor *)(uintptr_t)xs[k]);
    dv_tensor_unref((dv_tensor *)(uintptr_t)news[0]);
    dv_operator_unref(op);
}

static int with_own_results(void *name)
{
    dv_operator *op = NULL;
    dv_value three[3] = { dv_default(), dv_default(), dv_default() };
    dv_tensor *x = NULL, *residual = NULL, *given = NULL;
    int status = dv_functional(find(name), &op);
    if (!status && !(status = dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f32), 1, n4, &x)) &&
        !(status = dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f32), 1, n4, &given)) &&
        !(status = dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f32), 1, n4, &residual))) {
        ((float *)x->data)[2] = 3;
        const dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(residual) };
        const bool late = !strcmp(name, "late_own");
        if (late)
            three[0] = dv_from_tensor(given);
        if (!(status = dv_call(op, args, 2, three, 3, NULL))) {
            assert_true(at(three[0].as.tensor, 2) == 6 && three[1].as.i == 4 && at(three[2].as.tensor, 2) == 3);
            assert_true(at(residual, 2) == 0);
            if (!late)
                dv_tensor_unref(tensor_of(&three[0]));
            dv_tensor_unref(tensor_of(&three[2]));
        }
    }
    dv_tensor_unref(given);
    dv_tensor_unref(x);
    dv_tensor_unref(residual);
    dv_operator_unref(op);
    return status;
}

static void own_results(void **state)
{
    (void)state;
    failing_each(with_own_results, "add_into");
    failing_each(with_own_results, "late_own");
    const int64_t n5[] = { 5 };
    dv_tensor *x = floats(1, n5, 1, 0), *residual = floats(1, n5, 1, 0);
    dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(residual) }, three[3] = { dv_default(), dv_default(), dv_default() };
    dv_operator *op = form("add_into");
    CALL_FAILS(DV_EINVAL, "five is too many", dv_call(op, args, 2, three, 3, NULL));
    assert_true(three[0].type == DV_VALUE_DEFAULT && three[2].type == DV_VALUE_DEFAULT && at(residual, 0) == 1);
    dv_operator_unref(op);
    op = form("late_own");
    CALL_FAILS(DV_ENOTSUP, "result 'out': must be given", dv_call(op, args, 2, three, 3, NULL));
    dv_operator_unref(op);
    dv_tensor_unref(x);
    dv_tensor_unref(residual);
}

static void absent_ones(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n4, 1, 0);
    const dv_value args[1] = { dv_from_tensor(x) };
    dv_value three[3] = { dv_default(), dv_default(), dv_default() };
    dv_operator *op = form("add_into");
    dv_result_spec specs[3];
    CALL_OK(dv_call(op, args, 1, three, 3, NULL));
    assert_true(at(three[0].as.tensor, 0) == 2 && three[2].type == DV_VALUE_NONE);
    CALL_OK(dv_infer(op, args, 1, specs, 3));
    assert_true(specs[0].ndim == 1 && specs[2].ndim == -1);
    three[2] = dv_from_tensor(x);
    CALL_FAILS(DV_EINVAL, "result 'residual_out': is absent", dv_call(op, args, 1, three, 3, NULL));
    dv_tensor_unref(tensor_of(&three[0]));
    dv_tensor_unref(x);
    dv_operator_unref(op);
}

static dv_library *more;
static int setup(void **state) { return load_tc(state) || dv_load_static(&dv_library_tc_functional, &more); }
static int teardown(void **state)
{
    dv_library_free(more);
    return unload_tc(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas),
        cmocka_unit_test(described),
        cmocka_unit_test(one_written),
        cmocka_unit_test(two_written),
        cmocka_unit_test(new_lists),
        cmocka_unit_test(own_results),
        cmocka_unit_test(absent_ones),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
