/* Calls that succeed: values, defaults, results of every kind, layouts, decompositions, calls from structs, questions about
 * calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_ops.h"
#include "dovetail_test.h"

static const int64_t n4[] = { 4 }, n34[] = { 3, 4 }, n6[] = { 6 };
static const dv_device cpu = { DV_CPU, 0 };

static void plain(void **state)
{
    (void)state;
    const int64_t shape[] = { 100, 1000 };
    dv_tensor *gate = floats(2, shape, 1, 0), *up = floats(2, shape, 0, 1), *given = floats(2, shape, 0, 0);
    const dv_value args[2] = { dv_from_tensor(gate), dv_from_tensor(up) };
    dv_value results[2] = { dv_default(), dv_from_tensor(given) };
    atomic_store(&swiglu_slices, 0);
    for (int k = 0; k < 2; k++) {
        CALL_OK(dv_call(find("swiglu"), args, 2, &results[k], 1, NULL));
        const dv_tensor *out = results[k].as.tensor;
        for (int i = 0; i < 100000; i++)
            assert_float_equal(at(out, i), (float)i * 0.7310585786f, 1e-2);
    }
    assert_ptr_equal(results[1].as.tensor, given);
    assert_int_equal(atomic_load(&swiglu_slices), 2 * 25); /* of 4096 */
    dv_tensor_unref(tensor_of(&results[0]));
    dv_tensor_unref(given);
    dv_tensor_unref(gate);
    dv_tensor_unref(up);
}

static void empty_and_0d(void **state)
{
    (void)state;
    const int64_t none[] = { 0, 5 };
    dv_tensor *x = floats(2, none, 0, 0), *y = floats(0, NULL, 3, 0);
    dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(x) }, result = dv_default();
    CALL_OK(dv_call(find("swiglu"), args, 2, &result, 1, NULL));
    assert_int_equal(dv_numel(result.as.tensor), 0);
    dv_tensor_unref(tensor_of(&result));
    args[0] = args[1] = dv_from_tensor(y);
    result = dv_default();
    CALL_OK(dv_call(find("swiglu"), args, 2, &result, 1, NULL));
    assert_int_equal(result.as.tensor->ndim, 0);
    assert_float_equal(at(result.as.tensor, 0), 9 * 0.952574f, 1e-4);
    dv_tensor_unref(tensor_of(&result));
    dv_tensor_unref(x);
    dv_tensor_unref(y);
}

static void defaults_and_conversions(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n4, 0, 1);
    dv_value args[27], results[4] = { dv_default(), dv_default(), dv_default(), dv_default() };
    const struct every *s = &every_seen;
    args[0] = dv_from_tensor(x);
    args[1] = args[2] = args[3] = dv_from_ints(NULL, 0); /* an empty list has every type */
    CALL_OK(dv_call(find("every"), args, 4, results, 4, NULL));
    assert_ptr_equal(s->x, x);
    assert_null(s->bias);
    assert_int_equal(s->n, 1);
    assert_true(s->f == 2);
    assert_true(s->b);
    assert_string_equal(s->s.data, "mode");
    assert_int_equal(s->scalar.kind, DV_SCALAR_INT);
    assert_int_equal(s->scalar.as.i, 3);
    assert_true(s->z.re == 0 && s->z.im == 1);
    assert_int_equal(dv_dtype_key(s->dtype), DV_DTYPE_f32);
    assert_int_equal(s->device.type, DV_CPU);
    assert_int_equal(s->sizes.size, 3);
    assert_int_equal(s->sizes.data[2], 4);
    assert_int_equal(s->weights.size, 0);
    assert_int_equal(s->mask.size, 2);
    assert_true(s->mask.data[0] && !s->mask.data[1]);
    assert_false(s->opt_int.has || s->opt_float.has || s->opt_bool.has || s->opt_string.has || s->opt_scalar.has ||
        s->opt_dtype.has || s->opt_ints.has || s->opt_list.has);
    assert_int_equal(s->list.size, 0);
    assert_null(s->generator);
    assert_int_equal(results[1].as.i, 4);
    assert_true(results[2].type == DV_VALUE_FLOAT && results[2].as.f == 0.5);
    assert_true(results[3].type == DV_VALUE_BOOL && results[3].as.b);
    dv_tensor_unref(tensor_of(&results[0]));

    const int64_t ints[] = { 7, 8, 9 }, one[] = { 6 };
    const bool bools[] = { false, true };
    const dv_tensor *list[] = { x, NULL };
    for (int i = 0; i < 27; i++)
        args[i] = dv_default();
    args[3] = dv_from_ints(NULL, 0);
    args[0] = args[4] = dv_from_tensor(x);
    args[5] = dv_from_int(-5);
    args[6] = dv_from_int(3); /* int for float */
    args[7] = dv_from_bool(false);
    args[8] = dv_from_string("other");
    args[9] = dv_from_bool(true);  /* bool for Scalar */
    args[10] = dv_from_float(1.5); /* float for complex */
    args[11] = dv_from_dtype(dv_dtype_from_key(DV_DTYPE_bf16));
    args[13] = dv_from_ints(ints, 3);
    args[14] = dv_from_ints(ints, 3); /* ints for float[] */
    args[15] = dv_none();
    args[15].type = DV_VALUE_BOOLS, args[15].as.bools = (dv_bools){ bools, 2 };
    args[16] = dv_from_int(1);
    args[17] = dv_from_bool(true); /* bool for float, as PyTorch */
    args[18] = dv_from_bool(true);
    args[19] = dv_from_string("s");
    args[20] = dv_from_float(0.25);
    args[21] = dv_from_dtype(dv_dtype_from_key(DV_DTYPE_i4));
    args[22] = dv_from_ints(one, 1); /* [6] for int[2] */
    args[1] = dv_from_tensors(list, 2);
    args[23] = dv_from_tensors(list, 1);
    args[2] = dv_from_ints(ints, 2); /* ints for Scalar[] */
    results[0] = results[1] = results[2] = results[3] = dv_default();
    CALL_OK(dv_call(find("every"), args, 27, results, 4, NULL));
    assert_ptr_equal(s->bias, x);
    assert_int_equal(s->n, -5);
    assert_true(s->f == 3);
    assert_false(s->b);
    assert_string_equal(s->s.data, "other");
    assert_true(s->scalar.kind == DV_SCALAR_BOOL && s->scalar.as.b);
    assert_true(s->z.re == 1.5 && s->z.im == 0);
    assert_int_equal(dv_dtype_key(s->dtype), DV_DTYPE_bf16);
    assert_int_equal(s->sizes.data[1], 8);
    assert_true(s->weights.size == 3); /* the values lived for the call */
    assert_true(s->mask.data[1] && !s->mask.data[0]);
    assert_true(s->opt_int.has && s->opt_int.value == 1);
    assert_true(s->opt_float.has && s->opt_float.value == 1);
    assert_true(s->opt_bool.has && s->opt_bool.value);
    assert_string_equal(s->opt_string.value.data, "s");
    assert_true(s->opt_scalar.value.kind == DV_SCALAR_FLOAT && s->opt_scalar.value.as.f == 0.25);
    assert_int_equal(dv_dtype_key(s->opt_dtype.value), DV_DTYPE_i4);
    assert_true(s->opt_ints.has && s->opt_ints.value.size == 2);
    assert_true(s->list.size == 2 && s->list.data[0] == x && !s->list.data[1]);
    assert_true(s->opt_list.has && s->opt_list.value.size == 1);
    assert_true(s->scalars.size == 2);
    dv_tensor_unref(tensor_of(&results[0]));
    dv_tensor_unref(x);
}

static void mutation(void **state)
{
    (void)state;
    dv_tensor *x = floats(2, n34, 0, 1), *column, *back;
    const int64_t n3[] = { 3 }, by4[] = { 4 }, reversed[] = { -1 };
    dv_value args[2] = { dv_from_tensor(x), dv_from_float(10) }, result = dv_default();
    CALL_OK(dv_call(find("scale_"), args, 2, &result, 1, NULL));
    assert_ptr_equal(result.as.tensor, x); /* gives the argument back */
    assert_true(at(x, 11) == 110);
    CALL_OK(dv_tensor_view(x, 1, n3, by4, 1, &column)); /* copied in, copied back */
    args[0] = dv_from_tensor(column);
    result = dv_from_tensor(column); /* may be given if it is the argument */
    CALL_OK(dv_call(find("scale_"), args, 1, &result, 1, NULL));
    assert_true(at(x, 1) == 20 && at(x, 5) == 100 && at(x, 9) == 180 && at(x, 2) == 20 && at(x, 0) == 0);
    CALL_OK(dv_tensor_view(x, 1, n4, reversed, 3, &back));
    args[0] = dv_from_tensor(back);
    result = dv_default();
    CALL_OK(dv_call(find("scale_"), args, 1, &result, 1, NULL));
    assert_ptr_equal(result.as.tensor, back);
    assert_true(at(x, 1) == 40 && at(x, 3) == 60 && at(x, 4) == 40);
    args[1] = dv_from_float(NAN); /* fails after writing its copy: the tensor stays as it was */
    CALL_FAILS(DV_EINVAL, "tc::scale_: by is not a number", dv_call(find("scale_"), args, 2, &result, 1, NULL));
    assert_true(at(x, 1) == 40);
    dv_tensor_unref(column);
    dv_tensor_unref(back);
    dv_tensor_unref(x);
}

static void layouts(void **state)
{
    (void)state;
    dv_tensor *x = floats(2, n34, 0, 1), *t, *out, *column, *expanded;
    const int64_t n43[] = { 4, 3 }, turned[] = { 1, 4 }, n42[] = { 4, 2 }, two[] = { 2 }, rows0[] = { 0, 1 };
    const float sums[] = { 12, 15, 18, 21 };
    CALL_OK(dv_tensor_view(x, 2, n43, turned, 0, &t));
    out = floats(2, n42, -1, 0);
    CALL_OK(dv_tensor_view(out, 1, n4, two, 1, &column)); /* a given result that is not contiguous */
    dv_value args[1] = { dv_from_tensor(t) };
    const struct {
        const char *name;
        bool copied, transposed;
    } rows[] = {
        { "sum_rows", true, true },
        { "sum_rows_strided", false, true },
        { "sum_rows_last", true, true },
        { "sum_rows_aligned", true, true },
        { "sum_rows_last", false, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dv_value result = dv_from_tensor(column);
        args[0] = dv_from_tensor(t);
        if (!rows[i].transposed) { /* rows with a gap: the last dim is contiguous */
            dv_tensor *wide;
            const int64_t gap[] = { 2, 1 }, n22[] = { 4, 2 };
            dv_value fresh = dv_default();
            CALL_OK(dv_tensor_view(x, 2, n22, gap, 0, &wide));
            args[0] = dv_from_tensor(wide);
            CALL_OK(dv_call(find(rows[i].name), args, 1, &fresh, 1, NULL));
            assert_ptr_equal(sum_rows_saw.data, wide->data);
            dv_tensor_unref(tensor_of(&fresh));
            dv_tensor_unref(wide);
            continue;
        }
        CALL_OK(dv_call(find(rows[i].name), args, 1, &result, 1, NULL));
        assert_int_equal(sum_rows_saw.data != t->data, rows[i].copied);
        if (!strcmp(rows[i].name, "sum_rows_aligned"))
            assert_int_equal((uintptr_t)sum_rows_saw.data % 256, 0);
        for (int k = 0; k < 4; k++) {
            assert_true(at(out, 2 * k + 1) == sums[k]);
            assert_true(at(out, 2 * k) == -1);
        }
    }
    CALL_OK(dv_tensor_view(x, 2, n43, rows0, 1, &expanded)); /* read through a zero stride */
    args[0] = dv_from_tensor(expanded);
    dv_value result = dv_default();
    CALL_OK(dv_call(find("sum_rows"), args, 1, &result, 1, NULL));
    assert_true(at(result.as.tensor, 3) == 6);
    dv_tensor_unref(tensor_of(&result));
    dv_tensor_unref(expanded);
    dv_tensor_unref(column);
    dv_tensor_unref(out);
    dv_tensor_unref(t);
    dv_tensor_unref(x);
}

static void lists(void **state)
{
    (void)state;
    const int64_t n2[] = { 2 }, two[] = { 2 };
    dv_tensor *x = floats(1, n4, 0, 1), *every_other, *y = floats(1, n4, 10, 1);
    CALL_OK(dv_tensor_view(x, 1, n2, two, 1, &every_other));
    const dv_tensor *list[] = { x, every_other, y };
    dv_value args[2] = { dv_from_tensors(list, 3), dv_from_float(7) }, result = dv_default();
    CALL_OK(dv_call(find("cat"), args, 1, &result, 1, NULL));
    const float expected[] = { 0, 1, 2, 3, 1, 3, 10, 11, 12, 13 };
    assert_memory_equal(result.as.tensor->data, expected, sizeof expected);
    dv_tensor_unref(tensor_of(&result));
    args[0] = dv_from_tensors(list + 1, 2); /* mutated elements, one of them copied */
    CALL_OK(dv_call(find("fill_all"), args, 2, NULL, 0, NULL));
    assert_true(at(x, 0) == 0 && at(x, 1) == 7 && at(x, 2) == 2 && at(x, 3) == 7 && at(y, 3) == 7);
    dv_tensor *a = floats(1, n4, 0, 0), *b = floats(1, n2, 0, 0);
    const dv_tensor *outs[] = { a, b };
    args[0] = dv_from_tensors(list, 2);
    result = dv_from_tensors(outs, 2);
    CALL_OK(dv_call(find("copy_all"), args, 1, &result, 1, NULL));
    assert_true(at(a, 3) == 7 && at(b, 0) == 7);
    dv_tensor_unref(a);
    dv_tensor_unref(b);
    dv_tensor_unref(every_other);
    dv_tensor_unref(x);
    dv_tensor_unref(y);
}

/* The tensors are made for the call, and so is the array: both are the caller's. */
static void lists_are_made(void **state)
{
    (void)state;
    const int64_t n2[] = { 2 };
    dv_tensor *x = floats(1, n4, 1, 1), *y = floats(1, n2, 10, 1);
    const dv_tensor *list[] = { x, y };
    const dv_value args[2] = { dv_from_tensors(list, 2), dv_from_float(3) };
    dv_value result = dv_default();
    for (int again = 0; again < 3; again++) {
        result = dv_default();
        CALL_OK(dv_call(find("scale_all"), args, 2, &result, 1, NULL));
        assert_true(result.type == DV_VALUE_TENSORS && result.as.tensors.size == 2);
        assert_true(at(result.as.tensors.data[0], 3) == 12 && at(result.as.tensors.data[1], 1) == 33);
        for (size_t k = 0; k < 2; k++)
            dv_tensor_unref((dv_tensor *)(uintptr_t)result.as.tensors.data[k]);
        dv_free((void *)(uintptr_t)result.as.tensors.data);
    }
    dv_result_spec specs[2];
    size_t n;
    CALL_OK(dv_infer(find("scale_all"), args, 2, specs, 1));
    assert_true(specs[0].ndim == -1 && specs[0].flags == DV_SPEC_LIST);
    CALL_OK(dv_infer_list(find("scale_all"), args, 2, 0, specs, 1, &n));
    assert_true(n == 2 && specs[0].ndim == 1 && specs[0].shape[0] == 4 && specs[0].flags == 0);
    CALL_OK(dv_infer_list(find("unbind"), &(dv_value){ .type = DV_VALUE_TENSOR, .as.tensor = x }, 1, 0, specs, 1, &n));
    assert_true(n == 4 && specs[0].ndim == 0 && specs[0].flags == DV_SPEC_VIEW);
    CALL_FAILS(DV_EINVAL, "result 0 is not a list", dv_infer_list(find("cat"), args, 1, 0, specs, 1, &n));
    CALL_FAILS(DV_EINVAL, "found NULL", dv_infer_list(find("scale_all"), args, 2, 0, specs, 1, NULL));
    double flops, bytes;
    CALL_OK(dv_cost(find("scale_all"), args, 2, &flops, &bytes));
    assert_true(bytes == 48);
    const dv_value thirteen[2] = { args[0], dv_from_float(13) };
    result = dv_default();
    CALL_FAILS(DV_EKERNEL, "thirteen", dv_call(find("scale_all"), thirteen, 2, &result, 1, NULL));
    dv_tensor *a = floats(1, n4, 0, 0), *b = floats(1, n2, 0, 0);
    const dv_tensor *outs[] = { a, b };
    result = dv_from_tensors(outs, 2);
    CALL_OK(dv_call(find("scale_all"), args, 2, &result, 1, NULL));
    assert_true(at(a, 3) == 12 && at(b, 1) == 33);
    result = dv_from_tensors(outs, 1);
    CALL_FAILS(DV_EINVAL, "result 'out': expected 2 tensors, found 1", dv_call(find("scale_all"), args, 2, &result, 1, NULL));
    outs[0] = b, outs[1] = a;
    result = dv_from_tensors(outs, 2);
    CALL_FAILS(DV_ESHAPE, "expected shape [4], found [2]", dv_call(find("scale_all"), args, 2, &result, 1, NULL));
    dv_tensor_unref(a);
    dv_tensor_unref(b);
    dv_tensor_unref(x);
    dv_tensor_unref(y);
}

static void results(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n6, 0, 0), *given;
    ((float *)x->data)[1] = ((float *)x->data)[4] = 1;
    dv_value args[3] = { dv_from_tensor(x) }, result = dv_default();
    CALL_OK(dv_call(find("nonzero"), args, 1, &result, 1, NULL));
    assert_int_equal(result.as.tensor->shape[0], 2);
    assert_int_equal(((int64_t *)result.as.tensor->data)[1], 4);
    dv_tensor_unref(tensor_of(&result));
    const int64_t n21[] = { 2, 1 }, n31[] = { 3, 1 };
    CALL_OK(dv_tensor_new(dv_dtype_from_key(DV_DTYPE_i64), 2, n21, &given));
    result = dv_from_tensor(given);
    CALL_OK(dv_call(find("nonzero"), args, 1, &result, 1, NULL));
    assert_int_equal(((int64_t *)given->data)[1], 4);
    dv_tensor_unref(given);
    CALL_OK(dv_tensor_new(dv_dtype_from_key(DV_DTYPE_i64), 2, n31, &given));
    result = dv_from_tensor(given);
    CALL_FAILS(DV_ESHAPE, "another shape", dv_call(find("nonzero"), args, 1, &result, 1, NULL));
    dv_tensor_unref(given);
    result = dv_default();
    ((float *)x->data)[0] = 1;
    CALL_FAILS(DV_EKERNEL, "did not make it", dv_call(find("nonzero"), args, 1, &result, 1, NULL));
    ((float *)x->data)[2] = 1;
    CALL_FAILS(DV_ESHAPE, "at most 6, not 1000", dv_call(find("nonzero"), args, 1, &result, 1, NULL));
    ((float *)x->data)[3] = 1;
    CALL_FAILS(
        DV_EKERNEL, "five is too many", dv_call(find("nonzero"), args, 1, &result, 1, NULL)); /* what was made is freed: ASan */
    assert_int_equal(result.type, DV_VALUE_DEFAULT);

    dv_value two[2] = { dv_default(), dv_default() };
    args[1] = dv_from_bool(true);
    CALL_OK(dv_call(find("maybe"), args, 2, two, 2, NULL));
    assert_int_equal(two[1].as.tensor->shape[0], 12);
    dv_tensor_unref(tensor_of(&two[0]));
    dv_tensor_unref(tensor_of(&two[1]));
    dv_tensor_unref(x);

    x = floats(2, n34, 0, 1);
    args[0] = dv_from_tensor(x);
    args[1] = dv_from_int(0);
    args[2] = dv_from_int(-1);
    result = dv_default();
    CALL_OK(dv_call(find("transposed"), args, 3, &result, 1, NULL)); /* has no kernel, and needs none */
    dv_tensor_unref(x);
    assert_int_equal(result.as.tensor->strides[0], 1);
    assert_true(at(result.as.tensor, 4) == 4); /* keeps its base */
    dv_tensor_unref(tensor_of(&result));

    x = floats(1, n4, 0, 1);
    args[0] = dv_from_tensor(x);
    args[1] = dv_from_int(3);
    result = dv_default();
    CALL_OK(dv_call(find("repeat"), args, 2, &result, 1, NULL));
    assert_true(result.as.tensor->shape[0] == 12 && at(result.as.tensor, 7) == 3);
    args[1] = dv_from_int(-1);
    CALL_FAILS(DV_EINVAL, "tc::repeat: times is negative: -1", dv_call(find("repeat"), args, 2, &result, 1, NULL));
    args[1] = dv_from_int(99);
    CALL_FAILS(DV_EKERNEL, "did not set it", dv_call(find("repeat"), args, 2, &result, 1, NULL));
    args[1] = dv_from_int(2); /* the given one has 12 */
    CALL_FAILS(DV_ESHAPE, "expected size 8 in dim 0, found 12", dv_call(find("repeat"), args, 2, &result, 1, NULL));
    dv_tensor_unref(tensor_of(&result));
    result = dv_default();
    CALL_FAILS(DV_EINVAL, "must be given", dv_call(find("bare"), args, 1, &result, 1, NULL));
    given = floats(1, n4, 0, 0);
    result = dv_from_tensor(given);
    CALL_OK(dv_call(find("bare"), args, 1, &result, 1, NULL));
    assert_true(at(given, 3) == 3);
    dv_tensor_unref(given);
    dv_tensor_unref(x);
}

/* What a call leaves on the stack must not be read by the next. */
static void dirty_stack(void)
{
    volatile char dirt[200000];
    for (size_t i = 0; i < sizeof dirt; i++)
        dirt[i] = (char)0xa5;
}

static void shape_functions_that_fail(void **state)
{
    (void)state;
    static const struct {
        int64_t how;
        int status;
        const char *message;
    } ways[] = { { 0, DV_OK, NULL }, { 1, DV_EKERNEL, "result 'low': the shape function did not set it" },
        { 2, DV_EKERNEL, "result 'high': the shape function did not set it" }, { 3, DV_EINVAL, "three is too many" },
        { -1, DV_EINVAL, "the kernel fails with both made" } };
    dv_tensor *x = floats(1, n6, 0, 1);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const dv_value args[2] = { dv_from_tensor(x), dv_from_int(ways[i].how) };
        dv_value two[2] = { dv_default(), dv_default() };
        dirty_stack();
        const int status = dv_call(find("halves"), args, 2, two, 2, NULL);
        assert_int_equal(status, ways[i].status);
        if (status) {
            assert_non_null(strstr(dv_last_error(), ways[i].message));
            assert_true(two[0].type == DV_VALUE_DEFAULT && two[1].type == DV_VALUE_DEFAULT);
            continue;
        }
        assert_true(at(two[0].as.tensor, 2) == 2 && at(two[1].as.tensor, 0) == 3);
        dv_tensor_unref(tensor_of(&two[0]));
        dv_tensor_unref(tensor_of(&two[1]));
    }
    dv_tensor_unref(x);
}

/* A row that takes no strided tensor gets a copy of what the view shows, and nothing is copied back: here it could not be. */
static void views_are_read(void **state)
{
    (void)state;
    static const float fixed[6] = { 1, 2, 3, 4, 5, 6 };
    const int64_t n23[] = { 2, 3 }, strides[] = { 3, 1 };
    dv_tensor x;
    CALL_OK(dv_tensor_init(&x, (void *)(uintptr_t)fixed, dv_dtype_from_key(DV_DTYPE_f32), cpu, 2, n23, strides, NULL));
    const dv_value args[1] = { dv_from_tensor(&x) };
    dv_value two[2] = { dv_default(), dv_default() };
    CALL_OK(dv_call(find("column"), args, 1, two, 2, NULL));
    assert_true(at(two[1].as.tensor, 0) == 5);
    assert_ptr_equal(two[0].as.tensor->data, fixed);
    dv_tensor_unref(tensor_of(&two[0]));
    dv_tensor_unref(tensor_of(&two[1]));
}

static void from_structs(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n4, 1, 1), *out = floats(1, n4, 0, 0);
    struct swiglu own = { x, x, out };
    CALL_OK(dv_call_frame(find("swiglu"), &own, sizeof own, DV_FIELDS(struct swiglu, gate, up, out), NULL));
    assert_float_equal(at(out, 0), 0.731058f, 1e-5);
    struct other {
        double by;
        dv_tensor *x;
    } other = { 3, x }; /* another layout: bound anew */
    CALL_OK(dv_call_frame(find("scale_"), &other, sizeof other, DV_FIELDS(struct other, by, x), NULL));
    assert_true(at(x, 3) == 12);
    struct only { dv_tensor *x; } only = { x }; /* by has its default */
    CALL_OK(dv_call_frame(find("scale_"), &only, sizeof only, DV_FIELDS(struct only, x), NULL));
    assert_true(at(x, 3) == 24);
    int64_t count = 0;
    double mean = 0;
    bool any = false;
    struct part {
        const dv_tensor *x;
        dv_tensors list;
        dv_scalars scalars;
        dv_strings strings;
        dv_tensor *out;
        int64_t *count;
        double *mean;
        bool *any;
    };
    struct part part = { .x = x, .out = out, .count = &count, .mean = &mean, .any = &any };
    CALL_OK(dv_call_frame(
        find("every"), &part, sizeof part, DV_FIELDS(struct part, x, list, scalars, strings, out, count, mean, any), NULL));
    assert_true(count == 4 && mean == 0.5 && any);
    struct every all = every_seen; /* and with every field, as it came */
    all.opt_int = (dv_opt_int){ true, 11 };
    all.opt_string = (dv_opt_string){ true, { "z", 1 } };
    all.count = &count, all.mean = &mean, all.any = &any;
    CALL_OK(dv_call_frame(find("every"), &all, sizeof all, dv_op_every.fields, NULL));
    assert_true(
        every_seen.opt_int.has && every_seen.opt_int.value == 11 && every_seen.sizes.size == 3 && every_seen.layout.value == 0);
    struct swiglu missing = { x, x, NULL };
    CALL_FAILS(DV_EINVAL, "found None",
        dv_call_frame(find("swiglu"), &missing, sizeof missing, DV_FIELDS(struct swiglu, gate, up, out), NULL));
    struct few { const dv_tensor *gate, *up; } few = { x, x };
    CALL_FAILS(DV_EINVAL, "has no field", dv_call_frame(find("swiglu"), &few, sizeof few, DV_FIELDS(struct few, gate, up), NULL));
    struct wrong {
        const dv_tensor *gate;
        int64_t up;
        dv_tensor *out;
    } wrong = { x, 1, out };
    CALL_FAILS(
        DV_ESCHEMA, "up", dv_call_frame(find("swiglu"), &wrong, sizeof wrong, DV_FIELDS(struct wrong, gate, up, out), NULL));

    const dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(x) };
    dv_value result = dv_from_tensor(out);
    CALL_OK(dv_call(find("outer"), args, 2, &result, 1, NULL)); /* an operator that calls another */
    assert_float_equal(at(out, 3), 24 * 24, 1e-3);
    dv_tensor *y = floats(1, n6, 0, 0);
    const dv_value bad[2] = { dv_from_tensor(x), dv_from_tensor(y) };
    CALL_FAILS(DV_ESHAPE, "tc::outer: tc::swiglu: argument 'up'", dv_call(find("outer"), bad, 2, &result, 1, NULL));
    dv_tensor_unref(y);
    dv_tensor_unref(x);
    dv_tensor_unref(out);
}

static void native_forms(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n4, 1, 1);
    dv_value args[2] = { dv_from_tensor(x), dv_from_bool(true) }, two[2] = { dv_default(), dv_default() }, result = dv_default();
    CALL_OK(dv_call(find("pairs"), args, 2, two, 2, NULL)); /* has no kernel */
    assert_true(at(two[0].as.tensor, 3) == 8 && at(two[1].as.tensor, 3) == 9);
    dv_tensor_unref(tensor_of(&two[1]));
    two[1] = dv_default();
    CALL_OK(dv_call(find("pairs"), args, 1, two, 2, NULL)); /* the first is given now; the second is a copy of x */
    assert_true(at(two[1].as.tensor, 3) == 4 && two[1].as.tensor->data != x->data);
    dv_tensor_unref(tensor_of(&two[0]));
    dv_tensor_unref(tensor_of(&two[1]));
    CALL_OK(dv_call(find("composed"), args, 1, &result, 1, NULL));
    assert_true(at(result.as.tensor, 1) == -1);
    CALL_OK(dv_policy_set_thread("none"));
    CALL_OK(dv_call(find("composed"), args, 1, &result, 1, NULL));
    assert_true(at(result.as.tensor, 1) == 5);
    CALL_OK(dv_policy_set_thread(NULL));
    dv_tensor_unref(tensor_of(&result));
    result = dv_default();
    CALL_FAILS(DV_ESHAPE, "decomposition", dv_call(find("wrong_native"), args, 1, &result, 1, NULL));
    CALL_OK(dv_call(find("double_"), args, 1, &result, 1, NULL));
    assert_ptr_equal(result.as.tensor, x);
    assert_true(at(x, 3) == 8);
    dv_tensor_unref(x);
}

static void lists_of_any_length(void **state)
{
    (void)state;
    const int64_t dims[] = { 0, 1, 2 };
    dv_tensor *x = floats(1, n4, 1, 1), *out = floats(0, NULL, -1, 0);
    dv_value args[2] = { dv_from_tensor(x), dv_from_int(7) }, result = dv_from_tensor(out);
    CALL_OK(dv_call(find("count"), args, 2, &result, 1, NULL)); /* one int */
    assert_true(at(out, 0) == 1);
    for (size_t n = 0; n <= 3; n++) {
        args[1] = dv_from_ints(dims, n);
        CALL_OK(dv_call(find("count"), args, 2, &result, 1, NULL));
        assert_true(at(out, 0) == (float)n);
    }
    dv_tensor_unref(x);
    dv_tensor_unref(out);
}

/* ---- Rows and their verdicts ---- */

typedef struct told { char text[4096]; } told;
static void tell(void *user, const dv_kernel_report *r)
{
    told *t = user;
    const size_t n = strlen(t->text);
    snprintf(t->text + n, sizeof t->text - n, "%s%s: %s\n", r->selected ? "*" : "", r->name, r->reason);
}

static void rows(void **state)
{
    (void)state;
    const int64_t n8[] = { 8 };
    dv_tensor *x = floats(1, n8, 0, 1), *ints;
    dv_value args[2] = { dv_from_tensor(x), dv_from_int(1) }, result = dv_default();
    told t = { "" };
    CALL_OK(dv_set_isa("base"));
    CALL_OK(dv_call(find("pick"), args, 2, &result, 1, NULL));
    assert_string_equal(picked, "pick_f32");
    CALL_OK(dv_explain(find("pick"), args, 2, tell, &t));
    const char *said[] = { "\npick_neon: this processor has no neon",
        "pick_unknown: this runtime does not know the instruction set quantum",
        "pick_f32_big: its condition n % 8 == 0 and k > 3 does not hold", "pick_avx2: this processor has no avx2",
        "*pick_f32: selected", "pick_i64: it is for i64, and argument 'x' is f32",
        "pick_cuda: it is for cuda, and the tensors are on cpu" };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (!strstr(t.text, said[i]))
            fail_msg("'%s' is missing in\n%s", said[i], t.text);
    args[1] = dv_from_int(4);
    CALL_OK(dv_call(find("pick"), args, 2, &result, 1, NULL));
    assert_string_equal(picked, "pick_f32_big");
    assert_null(picked_stream);
    CALL_OK(dv_set_isa(NULL));
    args[1] = dv_from_int(1);
    CALL_OK(dv_call(find("pick"), args, 2, &result, 1, NULL));
    assert_string_equal(picked, !strcmp(dv_get_isa(), "base") ? "pick_f32" : PICK_ISA);
    CALL_OK(dv_tensor_new(dv_dtype_from_key(DV_DTYPE_i32), 1, n8, &ints));
    args[0] = dv_from_tensor(ints);
    CALL_FAILS(DV_ENOKERNEL, "pick_i64: it is for i64", dv_call(find("pick"), args, 2, &result, 1, NULL));
    dv_tensor_unref(ints);
    t.text[0] = 0;
    args[0] = dv_from_tensor(x);
    CALL_OK(dv_policy_set_thread("none"));
    CALL_OK(dv_explain(find("composed"), args, 1, tell, &t));
    CALL_OK(dv_policy_set_thread(NULL));
    assert_non_null(strstr(t.text, "composed_f32: the policy turns"));
    assert_non_null(strstr(t.text, "*decomposition: selected"));
    dv_tensor_unref(tensor_of(&result));
    dv_tensor_unref(x);
}

static void questions(void **state)
{
    (void)state;
    static dv_result_spec specs[4];
    dv_tensor *x = floats(2, n34, 0, 1);
    dv_value args[3] = { dv_from_tensor(x), dv_from_tensor(x), dv_from_int(1) };
    CALL_OK(dv_infer(find("swiglu"), args, 2, specs, 1));
    assert_true(specs[0].ndim == 2 && specs[0].shape[1] == 4 && specs[0].strides[0] == 4 && !specs[0].flags);
    args[1] = dv_from_int(0);
    CALL_OK(dv_infer(find("transposed"), args, 3, specs, 1));
    assert_true(specs[0].shape[0] == 4 && specs[0].strides[0] == 1 && specs[0].flags == DV_SPEC_VIEW);
    CALL_OK(dv_infer(find("scale_"), args, 1, specs, 1));
    assert_true(specs[0].flags == DV_SPEC_VIEW && specs[0].ndim == 2);
    args[1] = dv_from_int(3);
    CALL_OK(dv_infer(find("repeat"), args, 2, specs, 1));
    assert_true(specs[0].shape[0] == 36 && specs[0].ndim == 1);
    dv_value many[4] = { args[0], dv_from_ints(NULL, 0), dv_from_ints(NULL, 0), dv_from_ints(NULL, 0) };
    CALL_OK(dv_infer(find("every"), many, 4, specs, 4));
    assert_true(specs[1].ndim == -1 && specs[0].ndim == 2);
    CALL_FAILS(DV_ENOTSUP, "neither a contract", dv_infer(find("bare"), args, 1, specs, 1));
    args[1] = dv_from_tensor(x);
    CALL_FAILS(DV_EINVAL, "expected 1 results", dv_infer(find("swiglu"), args, 2, specs, 2));
    double flops, bytes;
    args[1] = dv_from_tensor(x);
    CALL_OK(dv_cost(find("swiglu"), args, 2, &flops, &bytes));
    assert_true(flops == -1 && bytes == 3 * 48);
    CALL_FAILS(DV_ENOTSUP, "no contract", dv_cost(find("bare"), args, 1, &flops, &bytes));
    dv_tensor *small = floats(1, n6, 1, 0);
    args[0] = dv_from_tensor(small);
    CALL_OK(dv_infer(find("nonzero"), args, 1, specs, 1));
    assert_true(specs[0].flags == DV_SPEC_UNBACKED && specs[0].shape[0] == 6);
    dv_tensor_unref(small);
    dv_tensor_unref(x);
}

/* ---- Hosts ---- */

typedef struct my_host {
    dv_host host;
    int made, freed, before, after, views, streams, copies;
    bool refuse, in_kernel;
} my_host;
static int host_new(const dv_host *h, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    my_host *m = (my_host *)(uintptr_t)h;
    (void)strides;
    assert_true(index >= -1 && !m->in_kernel);
    if (m->refuse && m->made)
        return dv_fail(DV_EHOST, "the host has no more memory");
    m->made++;
    const int status = dv_tensor_new(dtype, ndim, shape, out);
    if (!status)
        (*out)->device = device;
    return status;
}
static void host_free(const dv_host *h, dv_tensor *t)
{
    ((my_host *)(uintptr_t)h)->freed++;
    dv_tensor_unref(t);
}
static void host_before(const dv_host *h)
{
    ((my_host *)(uintptr_t)h)->before++;
    ((my_host *)(uintptr_t)h)->in_kernel = true;
}
static void host_after(const dv_host *h)
{
    ((my_host *)(uintptr_t)h)->after++;
    ((my_host *)(uintptr_t)h)->in_kernel = false;
}
static int host_copy(const dv_host *h, const dv_tensor *dst, const dv_tensor *src)
{
    dv_tensor a = *dst, b = *src;
    ((my_host *)(uintptr_t)h)->copies++;
    a.device = b.device = cpu;
    return dv_tensor_copy(&a, &b);
}
static int host_stream(const dv_host *h, dv_device device, void **out)
{
    ((my_host *)(uintptr_t)h)->streams++;
    assert_int_equal(device.type, DV_CUDA);
    *out = (void *)(uintptr_t)0x5eed;
    return DV_OK;
}

/* A host that asks for one row, and lends the memory that kernels see. */
typedef struct test_host {
    dv_host host;
    dv_test_hooks hooks;
    int lent[3], back, slot, left;
} test_host;
static void *host_lends(const dv_host *h, int use, int slot, size_t bytes, size_t alignment)
{
    test_host *m = (test_host *)(uintptr_t)h;
    if (m->left-- == 0)
        return NULL;
    m->lent[use]++;
    m->slot = slot;
    return aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}
static void host_takes(const dv_host *h, void *p)
{
    ((test_host *)(uintptr_t)h)->back++;
    free(p);
}

static void hosts_for_tests(void **state)
{
    (void)state;
    test_host m = { .hooks = { .alloc = host_lends, .free = host_takes }, .left = -1 };
    m.host = (dv_host){ .size = sizeof(dv_host), .name = "test", .test = &m.hooks };
    dv_tensor *x = floats(1, n6, 0, 1);
    dv_value args[2] = { dv_from_tensor(x) }, result = dv_default();
    m.hooks.kernel_number = 5;
    for (int again = 0; again < 2; again++) { /* nor is the row of a call before remembered */
        CALL_OK(dv_call(find("pick"), args, 1, &result, 1, NULL));
        dv_tensor_unref(tensor_of(&result));
        result = dv_default();
        CALL_OK(dv_call(find("pick"), args, 1, &result, 1, &m.host));
        assert_string_equal(picked, "pick_f32");
        dv_tensor_unref(tensor_of(&result));
        result = dv_default();
    }
    m.hooks.kernel_number = 6;
    CALL_FAILS(DV_ENOKERNEL, "requests kernel pick_i64, but it is for i64", dv_call(find("pick"), args, 1, &result, 1, &m.host));
    m.hooks.kernel_number = 7;
    CALL_FAILS(DV_ENOKERNEL, "requests kernel 7, and there are 6", dv_call(find("pick"), args, 1, &result, 1, &m.host));
    m.hooks.kernel_number = -1;
    CALL_OK(dv_call(find("composed"), args, 1, &result, 1, &m.host));
    dv_tensor_unref(tensor_of(&result));
    m.hooks.kernel_number = 0;

    const int64_t n2[] = { 3, 2 }, swapped[] = { 1, 3 };
    dv_tensor *base = floats(2, n2, 0, 1), *y;
    CALL_OK(dv_tensor_view(base, 2, n2, swapped, 0, &y)); /* a copy stands in for it */
    args[0] = args[1] = dv_from_tensor(y);
    result = dv_default();
    CALL_OK(dv_call(find("swiglu"), args, 2, &result, 1, &m.host));
    assert_true(m.lent[DV_MEMORY_STAGING_COPY] == 2 && m.back == 2 && m.slot == 1);
    dv_tensor_unref(tensor_of(&result));
    result = dv_default();
    m.left = 1; /* the second time there is no memory: what was lent goes back */
    CALL_FAILS(DV_ENOMEM, "tc::swiglu: argument 'up': out of memory", dv_call(find("swiglu"), args, 2, &result, 1, &m.host));
    assert_true(m.back == 3 && result.type == DV_VALUE_DEFAULT);
    dv_tensor_unref(y);
    dv_tensor_unref(base);
    dv_tensor_unref(x);
}

static void hosts(void **state)
{
    (void)state;
    my_host m = { .host = { .size = sizeof(dv_host),
                      .name = "mine",
                      .new_tensor = host_new,
                      .free_tensor = host_free,
                      .before_kernel = host_before,
                      .after_kernel = host_after,
                      .copy_tensor = host_copy,
                      .stream = host_stream } };
    dv_tensor *x = floats(1, n6, 0, 1);
    dv_value args[3] = { dv_from_tensor(x), dv_from_tensor(x) }, result = dv_default(), two[2] = { dv_default(), dv_default() };
    CALL_OK(dv_call(find("swiglu"), args, 2, &result, 1, &m.host));
    assert_true(m.made == 1 && !m.freed && m.before == 1 && m.after == 1);
    dv_tensor_unref(tensor_of(&result));
    args[1] = dv_from_int(1);
    result = dv_default();
    CALL_FAILS(DV_EINVAL, "how is 1", dv_call(find("fail_with"), args, 2, &result, 1, &m.host));
    assert_true(m.made == 2 && m.freed == 1 && m.after == 2 && result.type == DV_VALUE_DEFAULT); /* given back */
    m.refuse = true;
    CALL_FAILS(DV_EHOST, "no more memory", dv_call(find("pairs"), args, 1, two, 2, &m.host));
    m.made = m.freed = 0;
    CALL_FAILS(DV_EHOST, "no more memory", dv_call(find("maybe"), args, 1, two, 2, &m.host));
    assert_true(m.made == 1 && m.freed == 1 && two[0].type == DV_VALUE_DEFAULT && two[1].type == DV_VALUE_DEFAULT);
    m.refuse = false;
    m.made = m.freed = 0;
    CALL_FAILS(
        DV_EKERNEL, "five", dv_call(find("nonzero"), args, 1, &result, 1, &m.host)); /* made inside the kernel, with the lock */
    assert_true(m.made == 1 && m.freed == 1);
    CALL_OK(dv_call(find("composed"), args, 1, &result, 1, &m.host));
    m.made = m.freed = 0;
    CALL_OK(dv_policy_set_thread("none")); /* one temporary, given back */
    CALL_OK(dv_call(find("composed"), args, 1, &result, 1, &m.host));
    CALL_OK(dv_policy_set_thread(NULL));
    assert_true(m.made == 1 && m.freed == 1);
    dv_tensor_unref(tensor_of(&result));
    args[1] = args[2] = dv_from_int(0);
    result = dv_default();
    CALL_FAILS(DV_ENOTSUP, "cannot make views", dv_call(find("transposed"), args, 3, &result, 1, &m.host));
    m.host.size = offsetof(dv_host, new_tensor); /* an older host: its tail is not read */
    CALL_OK(dv_call(find("composed"), args, 1, &result, 1, &m.host));
    assert_true(m.made == 1);
    dv_tensor_unref(tensor_of(&result));
    m.host.size = 0;
    CALL_FAILS(DV_EINVAL, "size is not set", dv_call(find("composed"), args, 1, &result, 1, &m.host));
    m.host.size = sizeof m.host;

    x->device.type = DV_CUDA; /* a device that is only pretended */
    result = dv_default();
    CALL_FAILS(DV_EHOST, "needs a host", dv_call(find("pick"), args, 1, &result, 1, NULL));
    m.made = 0;
    CALL_OK(dv_call(find("pick"), args, 1, &result, 1, &m.host));
    assert_string_equal(picked, "pick_cuda");
    assert_ptr_equal(picked_stream, (void *)(uintptr_t)0x5eed); /* the row gets what the host gave */
    assert_true(m.made == 1 && m.streams == 1 && result.as.tensor->device.type == DV_CUDA);
    dv_tensor *half;
    const int64_t n3[] = { 3 }, by2[] = { 2 };
    CALL_OK(dv_tensor_view(x, 1, n3, by2, 0, &half)); /* copied by the host */
    args[0] = dv_from_tensor(half);
    dv_value fresh = dv_default();
    CALL_OK(dv_call(find("pick"), args, 1, &fresh, 1, &m.host));
    assert_int_equal(m.copies, 1);
    m.host.copy_tensor = NULL;
    dv_tensor_unref(tensor_of(&fresh));
    fresh = dv_default();
    CALL_FAILS(DV_EHOST, "needs a host that copies", dv_call(find("pick"), args, 1, &fresh, 1, &m.host));
    dv_tensor_unref(half);
    dv_tensor_unref(tensor_of(&result));
    x->device.type = DV_META; /* shapes only */
    x->data = NULL;
    args[0] = args[1] = dv_from_tensor(x);
    result = dv_default();
    CALL_OK(dv_call(find("swiglu"), args, 2, &result, 1, NULL));
    assert_true(result.as.tensor->device.type == DV_META && !result.as.tensor->data && result.as.tensor->shape[0] == 6);
    dv_tensor_unref(tensor_of(&result));
    result = dv_default();
    CALL_FAILS(DV_ENOTSUP, "depends on data", dv_call(find("nonzero"), args, 1, &result, 1, NULL));
    dv_tensor_unref(x);
}

/* ---- Dispatch ---- */

static int seen_key;
static int on_autograd(
    void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *r, size_t nr, const dv_host *host)
{
    seen_key++;
    (void)user;
    return dv_redispatch(op, DV_KEY_AUTOGRAD_CPU, args, nargs, r, nr, host);
}
static int half_done(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *r, size_t nr, const dv_host *host)
{
    (void)user, (void)op, (void)args, (void)nargs, (void)nr, (void)host;
    r[0] = dv_from_int(3);
    return dv_fail(DV_EINVAL, "half done");
}

static void dispatch(void **state)
{
    (void)state;
    dv_library *lib;
    dv_tensor *x = floats(1, n4, 0, 1);
    dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(x) }, result = dv_default();
    CALL_OK(dv_library_new(DV_LIBRARY_IMPL, "tc", DV_KEY_NONE, &lib));
    CALL_OK(dv_library_impl(lib, "swiglu", DV_KEY_AUTOGRAD_CPU, on_autograd, NULL));
    CALL_OK(dv_library_impl(lib, "twice", DV_KEY_AUTOGRAD_CPU, half_done, NULL));
    CALL_OK(dv_call(find("swiglu"), args, 2, &result, 1, NULL));
    assert_int_equal(seen_key, 1);
    const dv_guard before = dv_guard_push(0, 1u << DV_KEY_AUTOGRAD_CPU);
    CALL_OK(dv_call(find("swiglu"), args, 2, &result, 1, NULL));
    assert_int_equal(seen_key, 1);
    dv_guard_pop(before);
    dv_host host = { .size = sizeof host, .flags = DV_HOST_NO_DISPATCH };
    CALL_OK(dv_call(find("swiglu"), args, 2, &result, 1, &host));
    assert_int_equal(seen_key, 1);
    dv_tensor_unref(tensor_of(&result));
    result = dv_default();
    CALL_FAILS(DV_EINVAL, "half done", dv_call(find("twice"), args, 1, &result, 1, NULL));
    assert_int_equal(result.type, DV_VALUE_DEFAULT); /* nothing half-published */
    CALL_FAILS(DV_EINVAL, "a key", dv_redispatch(find("twice"), 99, args, 1, &result, 1, NULL));
    dv_library_free(lib);
    dv_tensor_unref(x);
}

/* The message says what hides the kernel. */
static void hidden_kernels(void **state)
{
    (void)state;
    dv_tensor *x = floats(1, n4, 0, 1);
    dv_value arg = dv_from_tensor(x), result = dv_default();
    const struct {
        dv_guard guard;
        const char *message;
    } rows[] = {
        { { 0, ~0u },
            "tc::twice: no kernel for CPU, which a guard of this thread excludes (dv_guard_push); there are kernels for: " },
        { { 0, 1u << DV_KEY_CUDA }, "no kernel for CPU: a guard of this thread excludes kernels of devices" },
        { { 1u << DV_KEY_CUDA, 0 }, "no kernel for CUDA, which a guard of this thread includes (dv_guard_push)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const dv_guard before = dv_guard_push(rows[i].guard.included, rows[i].guard.excluded);
        CALL_FAILS(DV_ENOKERNEL, rows[i].message, dv_call(find("twice"), &arg, 1, &result, 1, NULL));
        dv_guard_pop(before);
    }
    CALL_FAILS(DV_ENOKERNEL, "no kernel for CPU, below which dv_redispatch() looks",
        dv_redispatch(find("twice"), DV_KEY_CPU, &arg, 1, &result, 1, NULL));
    dv_tensor_unref(x);
}

static int leave(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *r, size_t nr, const dv_host *host)
{
    const int what = *(const int *)user;
    (void)op, (void)args, (void)nargs, (void)nr, (void)host;
    if (what == 1)
        r[0] = dv_from_int(3);
    return what < 0 ? what : DV_OK;
}

static int leave_one(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *r, size_t nr, const dv_host *host)
{
    (void)user, (void)op, (void)args, (void)nargs, (void)nr, (void)host;
    r[0] = dv_from_tensor(floats(1, n4, 0, 1));
    r[1] = dv_from_int(3);
    return DV_OK;
}

static void boxed_results(void **state)
{
    (void)state;
    dv_library *lib;
    int what = 0;
    dv_tensor *x = floats(1, n4, 0, 1);
    dv_value arg = dv_from_tensor(x), results[2] = { dv_default(), dv_default() };
    CALL_OK(dv_library_new(DV_LIBRARY_IMPL, "tc", DV_KEY_CPU, &lib));
    CALL_OK(dv_library_impl(lib, "twice", DV_KEY_NONE, leave, &what));
    CALL_OK(dv_library_impl(lib, "maybe", DV_KEY_NONE, leave_one, NULL));
    results[0] = dv_from_int(4);
    CALL_FAILS(
        DV_ETYPE, "tc::twice: result 'out': expected Tensor, found int (4)", dv_call(find("twice"), &arg, 1, results, 1, NULL));
    results[0].type = 777;
    CALL_FAILS(DV_ETYPE, "tc::twice: result 'out': expected Tensor, found", dv_call(find("twice"), &arg, 1, results, 1, NULL));
    results[0] = dv_default();
    CALL_FAILS(DV_EKERNEL, "tc::twice: result 'out': expected Tensor from the boxed kernel, found nothing",
        dv_call(find("twice"), &arg, 1, results, 1, NULL));
    what = 1;
    CALL_FAILS(
        DV_EKERNEL, "expected Tensor from the boxed kernel, found int (3)", dv_call(find("twice"), &arg, 1, results, 1, NULL));
    what = -99;
    CALL_FAILS(DV_EKERNEL, "tc::twice: the boxed kernel returned -99, which is not a status",
        dv_call(find("twice"), &arg, 1, results, 1, NULL));
    what = DV_ESHAPE;
    CALL_FAILS(
        DV_ESHAPE, "the boxed kernel failed with ESHAPE and no message", dv_call(find("twice"), &arg, 1, results, 1, NULL));
    CALL_FAILS(DV_EKERNEL, "result", dv_call(find("maybe"), &arg, 1, results, 2, NULL)); /* the first is freed */
    assert_int_equal(results[0].type, DV_VALUE_DEFAULT);
    dv_library_free(lib);
    dv_tensor_unref(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(empty_and_0d),
        cmocka_unit_test(defaults_and_conversions),
        cmocka_unit_test(mutation),
        cmocka_unit_test(layouts),
        cmocka_unit_test(lists),
        cmocka_unit_test(lists_are_made),
        cmocka_unit_test(lists_of_any_length),
        cmocka_unit_test(results),
        cmocka_unit_test(shape_functions_that_fail),
        cmocka_unit_test(views_are_read),
        cmocka_unit_test(from_structs),
        cmocka_unit_test(native_forms),
        cmocka_unit_test(rows),
        cmocka_unit_test(questions),
        cmocka_unit_test(hosts),
        cmocka_unit_test(hosts_for_tests),
        cmocka_unit_test(dispatch),
        cmocka_unit_test(hidden_kernels),
        cmocka_unit_test(boxed_results),
    };
    return cmocka_run_group_tests(tests, load_tc, unload_tc);
}
