/* The public functions, called with headers that hold anything: every one of them gives a status and a message, under UBSan and
 * ASan too. The numbers are drawn from few values near the limits, by a generator with a fixed seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_ops.h"
#include "tensor/tensor.h"

static uint64_t state_of_draw = 42;
static uint32_t draw(uint32_t n)
{
    state_of_draw = state_of_draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state_of_draw >> 33) % n;
}

static const int64_t sizes[] = { 0, 1, 2, 3, 4, 4, 4, -1, INT64_MIN, INT64_MAX, (int64_t)1 << 40, (int64_t)1 << 62 };
static const int64_t steps[] = { 0, 1, 1, 4, -1, 2, INT64_MIN, INT64_MAX, (int64_t)1 << 62, -((int64_t)1 << 62), INT64_MIN + 1 };
static const int32_t ndims[] = { 1, 1, 2, 2, 2, 3, 0, -1, 64, 65, INT32_MIN, INT32_MAX };
#define ONE_OF(list) (list)[draw(sizeof(list) / sizeof *(list))]

enum { ROOM = 4096, LIMIT = 64, MOST = 80 };
typedef struct odd {
    dv_tensor t;
    int64_t shape[MOST], strides[MOST];
    _Alignas(64) char data[ROOM];
} odd;

/* What a kernel could touch must be there: a header that is sound and reaches far has no memory. */
static void make(odd *o, bool tame)
{
    static const uint32_t keys[] = { DV_DTYPE_f32, DV_DTYPE_f32, DV_DTYPE_f32, DV_DTYPE_f64, DV_DTYPE_i4, DV_DTYPE_bool, 0 };
    int64_t low, high, step = 1; /* of a contiguous tensor, while it is tame */
    memset(&o->t, 0, sizeof o->t);
    o->t.ndim = tame ? (int32_t)draw(3) : ONE_OF(ndims);
    o->t.dtype = dv_dtype_from_key(tame ? DV_DTYPE_f32 : ONE_OF(keys));
    o->t.device.type = tame || draw(4) ? DV_CPU : (int32_t)draw(40) - 2;
    const int32_t n = o->t.ndim < 0 ? 0 : o->t.ndim < MOST ? o->t.ndim : MOST;
    for (int32_t i = n; i-- > 0; step *= tame ? 4 : 1) {
        o->shape[i] = tame ? 4 : ONE_OF(sizes);
        o->strides[i] = tame ? step : ONE_OF(steps);
    }
    o->t.shape = !tame && !draw(8) ? NULL : o->shape;
    o->t.strides = !tame && !draw(8) ? NULL : o->strides;
    o->t.data = o->data + ROOM / 2;
    if (dv__tensor_is_valid(&o->t) && dv__try_find_element_range(o->t.ndim, o->t.shape, o->t.strides, &low, &high) &&
        (low < -LIMIT || high > LIMIT))
        o->t.data = NULL;
}

static odd pool[12];
static const dv_tensor *lists[6][3];

static dv_value value(size_t i, uint32_t type, bool result)
{
    odd *o = &pool[i % 12];
    make(o, draw(3) != 0);
    if (type == DV_FIELD_TENSORS) {
        for (size_t k = 0; k < 3; k++)
            lists[i % 6][k] = &pool[(i + k) % 12].t;
        return dv_from_tensors(draw(9) ? lists[i % 6] : NULL, draw(4));
    }
    if (result && draw(2))
        return dv_default();
    if (type != DV_FIELD_TENSOR)
        return draw(3) ? dv_default() : dv_from_int(ONE_OF(sizes));
    const dv_value null_tensor = { .type = DV_VALUE_TENSOR };
    return draw(20) ? dv_from_tensor(&o->t) : null_tensor;
}

static void free_new(dv_value *results, const dv_value *before, size_t n)
{
    for (size_t r = 0; r < n; r++)
        if (before[r].type == DV_VALUE_DEFAULT && results[r].type == DV_VALUE_TENSOR &&
            dv__tensor_is_counted(results[r].as.tensor))
            dv_tensor_unref((dv_tensor *)(uintptr_t)results[r].as.tensor);
}

static void tell(void *user, const dv_kernel_report *row) { *(size_t *)user += strlen(row->reason); }

static size_t well, badly;
static void expect_message(int status, const char *what)
{
    if (!status) {
        well++;
        return;
    }
    badly++;
    if (!strcmp(dv_status_name(status), "unknown status") || !*dv_last_error())
        fail_msg("%s gives %d without a message", what, status);
    dv_clear_error();
}

static void calls(void **state)
{
    (void)state;
    static const char *const names[] = { "swiglu", "scale_", "swap_", "cat", "copy_all", "nonzero", "transposed", "repeat",
        "halves", "column", "sum_rows", "sum_rows_strided", "composed", "unsaid", "scale_all" };
    dv_value args[8], results[4], before[4], out[12];
    for (int round = 0; round < 30000; round++) {
        dv_operator *op = find(ONE_OF(names)), *form = NULL;
        if (!draw(4) && !dv_functional(op, &form))
            op = form;
        const size_t nargs = dv_operator_nargs(op), nresults = dv_operator_nresults(op);
        dv_slot_info slot;
        for (size_t i = 0; i < nargs + nresults; i++) {
            CALL_OK(dv_operator_slot(op, i, &slot));
            *(i < nargs ? &args[i] : &results[i - nargs]) = value(i, slot.type, i >= nargs);
        }
        memcpy(before, results, sizeof before);
        double flops, bytes;
        size_t told = 0;
        dv_result_spec specs[4];
        expect_message(dv_infer(op, args, nargs, specs, nresults), "dv_infer");
        expect_message(dv_cost(op, args, nargs, &flops, &bytes), "dv_cost");
        expect_message(dv_explain(op, args, nargs, tell, &told), "dv_explain");
        memcpy(out, args, nargs * sizeof *args);
        memcpy(out + nargs, results, nresults * sizeof *results);
        dv_value gradients[12];
        expect_message(dv_gradient(op, out, out, NULL, gradients, NULL), "dv_gradient");
        for (int again = 0; again < 2; again++) { /* what a thread remembers is asked the same */
            memcpy(results, before, sizeof before);
            expect_message(dv_call(op, args, nargs, results, nresults, NULL), "dv_call");
            free_new(results, before, nresults);
        }
        dv_operator_unref(form);
    }
    assert_true(well > 1000 && badly > 100000);
}

static void tensors(void **state)
{
    (void)state;
    for (int round = 0; round < 50000; round++) {
        dv_tensor t, *view;
        int64_t strides[DV_MAX_NDIM];
        odd *a = &pool[0], *b = &pool[1];
        make(a, false);
        make(b, draw(2));
        dv_tensor_is_contiguous(&a->t);
        dv_tensor_overlaps_itself(&a->t);
        if (dv_tensor_overlaps(&a->t, &b->t) != dv_tensor_overlaps(&b->t, &a->t))
            fail_msg("round %d: dv_tensor_overlaps() depends on the order", round);
        expect_message(dv_tensor_copy(&b->t, &a->t), "dv_tensor_copy");
        expect_message(
            dv_tensor_init(&t, a->data, a->t.dtype, a->t.device, a->t.ndim, a->t.shape, a->t.strides, strides), "init");
        if (!dv_tensor_view(&b->t, a->t.ndim, a->t.shape, a->t.strides, ONE_OF(steps), &view))
            dv_tensor_unref(view);
        make(b, false);
        if (!dv_tensor_view(&b->t, a->t.ndim, a->t.shape, a->t.strides, ONE_OF(steps), &view))
            dv_tensor_unref(view);
        if (dv_dtype_bytes(a->t.dtype, ONE_OF(sizes)) < -1)
            fail_msg("round %d: a negative number of bytes", round);
    }
}

static void nothing_given(void **state)
{
    (void)state;
    int key;

    dv_tensor *t;
    dv_result_spec spec;
    double number;
    size_t told = 0;
    struct DLManagedTensorVersioned *managed;
    dv_operator *op = find("swiglu");
    CALL_FAILS(DV_EINVAL, "found NULL", dv_key_parse(NULL, &key));
    CALL_FAILS(DV_EINVAL, "found NULL", dv_key_parse("CPU", NULL));
    CALL_FAILS(DV_EINVAL, "found NULL", dv_library_new(DV_LIBRARY_DEF, "nothing", DV_KEY_NONE, NULL));
    CALL_FAILS(DV_EINVAL, "found NULL", dv_library_define(NULL, "f() -> ()", NULL, NULL));
    CALL_FAILS(DV_EINVAL, "found NULL", dv_library_impl(NULL, "f", DV_KEY_CPU, NULL, NULL));
    CALL_FAILS(DV_EINVAL, "found NULL", dv_library_impl_fallthrough(NULL, "f", DV_KEY_CPU));
    CALL_FAILS(DV_EINVAL, "found NULL", dv_library_fallback(NULL, DV_KEY_CPU, NULL, NULL));
    assert_false(dv_policy_is_enabled(NULL, false));
    assert_false(dv_tensor_is_contiguous(NULL));
    assert_true(dv_tensor_overlaps_itself(NULL) && dv_tensor_overlaps(NULL, NULL));
    CALL_FAILS(DV_ETYPE, "NULL", dv_tensor_copy(NULL, NULL));
    CALL_FAILS(DV_ETYPE, "NULL", dv_tensor_view(NULL, 0, NULL, NULL, 0, &t));
    CALL_FAILS(DV_EINVAL, "only a tensor that this library made", dv_tensor_to_dlpack(NULL, &managed));
    CALL_FAILS(
        DV_EINVAL, "NULL", dv_tensor_init(NULL, NULL, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ 1, 0 }, 0, NULL, NULL, NULL));
    CALL_FAILS(DV_EINVAL, "NULL", dv_infer(op, NULL, 0, NULL, 1));
    CALL_FAILS(DV_EINVAL, "NULL", dv_infer(NULL, NULL, 0, &spec, 1));
    CALL_FAILS(DV_EINVAL, "NULL", dv_cost(op, NULL, 0, NULL, &number));
    CALL_FAILS(DV_EINVAL, "NULL", dv_explain(op, NULL, 0, NULL, NULL));
    CALL_FAILS(DV_EINVAL, "missing", dv_explain(op, NULL, 0, tell, &told));
    CALL_FAILS(DV_EINVAL, "NULL", dv_call_frame(op, NULL, 0, NULL, NULL));
    dv_tensor_unref(NULL);
    dv_library_free(NULL);
    dv_free(NULL);
}

/* X(call): calls with each pointer of each public function NULL in turn, where NULL is not allowed. At the end: strings and lists
 * without data. The status is DV_EINVAL, and the message names the NULL pointer. */
/* clang-format off */
#define REFUSED(X) \
    X(dv_dtype_parse("f32", NULL)) \
    X(dv_device_parse("cpu", NULL)) \
    X(dv_tensor_new(f32, 1, four, NULL)) \
    X(dv_tensor_new(f32, 1, NULL, &t)) \
    X( dv_tensor_view(x, 1, NULL, four, 0, &t)) \
    X(dv_tensor_view(x, 1, four, four, 0, NULL)) \
    X(dv_tensor_from_dlpack(NULL, &t)) \
    X(dv_tensor_to_dlpack(x, NULL)) \
    X(dv_folder_check(NULL, 0)) \
    X(dv_load(NULL, &lib)) \
    X(dv_load("x", NULL)) \
    X(dv_load_static(&dv_library_tc, NULL)) \
    X(dv_file_content_hash(NULL, hash)) \
    X(dv_file_content_hash("x", NULL)) \
    X(dv_find(NULL, &op)) \
    X(dv_find("tc::swiglu", NULL)) \
    X(dv_library_find(NULL, "swiglu", &op)) \
    X(dv_library_find(tc, NULL, &op)) \
    X(dv_library_find(tc, "swiglu", NULL)) \
    X(dv_library_define(tc, NULL, NULL, &op)) \
    X(dv_for_each_operator(NULL, NULL)) \
    X(dv_functional(NULL, &op)) \
    X( dv_functional(swiglu, NULL)) \
    X(dv_operator_binary(NULL, &text, hash)) \
    X(dv_operator_binary(swiglu, NULL, hash)) \
    X(dv_operator_binary(swiglu, &text, NULL)) \
    X(dv_operator_slot(NULL, 0, &slot)) \
    X(dv_operator_slot(swiglu, 0, NULL)) \
    X(dv_operator_json(NULL, &text)) \
    X(dv_operator_json(swiglu, NULL)) \
    X(dv_operator_describe(NULL, &text)) \
    X( dv_operator_describe(swiglu, NULL)) \
    X(dv_operator_dump_table(NULL, &text)) \
    X(dv_operator_dump_table(swiglu, NULL)) \
    X(dv_schema_normalize("f() -> ()", NULL)) \
    X(dv_schema_json("f() -> ()", NULL)) \
    X(dv_call(NULL, args, 2, out, 1, NULL)) \
    X(dv_call(swiglu, NULL, 2, out, 1, NULL)) \
    X(dv_call(swiglu, args, 2, NULL, 1, NULL)) \
    X(dv_call_frame(NULL, frame, 8, NULL, NULL)) \
    X( dv_call_frame(swiglu, frame, 8, NULL, NULL)) \
    X(dv_infer(NULL, args, 2, specs, 1)) \
    X(dv_infer(swiglu, NULL, 2, specs, 1)) \
    X(dv_infer(swiglu, args, 2, NULL, 1)) \
    X(dv_infer_list(NULL, args, 2, 0, specs, 1, &n)) \
    X(dv_infer_list(swiglu, args, 2, 0, NULL, 1, &n)) \
    X( dv_infer_list(swiglu, args, 2, 0, specs, 1, NULL)) \
    X(dv_infer_partial(NULL, args, 2, known, 1)) \
    X(dv_infer_partial(swiglu, NULL, 2, known, 1)) \
    X(dv_infer_partial(swiglu, args, 2, NULL, 1)) \
    X( dv_partial_new(NULL, args, 2, &partial)) \
    X(dv_partial_new(swiglu, NULL, 2, &partial)) \
    X(dv_partial_new(swiglu, args, 2, NULL)) \
    X(dv_partial_get(NULL, DV_PARTIAL_RESULT, 0, 0, known)) \
    X(dv_partial_get(some, DV_PARTIAL_RESULT, 0, 0, NULL)) \
    X(dv_partial_set( NULL, DV_PARTIAL_ARGUMENT, 0, 0, known)) \
    X(dv_partial_set(some, DV_PARTIAL_ARGUMENT, 0, 0, NULL)) \
    X(dv_site_new(NULL, args, 2, &site)) \
    X(dv_site_new(swiglu, NULL, 2, &site)) \
    X(dv_site_new(swiglu, args, 2, NULL)) \
    X(dv_site_parse(NULL, &site)) \
    X( dv_site_parse("x", NULL)) \
    X(dv_site_parse_for(NULL, "x()", &site)) \
    X(dv_site_parse_for(swiglu, NULL, &site)) \
    X(dv_site_parse_for(swiglu, "x()", NULL)) \
    X(dv_site_print(NULL, &text)) \
    X(dv_site_print(one, NULL)) \
    X(dv_site_alloc(NULL)) \
    X(dv_site_infer(NULL, specs, 1)) \
    X(dv_site_infer(one, NULL, 1)) \
    X(dv_site_call(NULL, NULL, 0, out, 1, NULL)) \
    X(dv_cost(NULL, args, 2, &number, &number)) \
    X(dv_cost(swiglu, args, 2, &number, NULL)) \
    X(dv_gradient(NULL, args, args, NULL, out, NULL)) \
    X(dv_gradient(swiglu, NULL, args, NULL, out, NULL)) \
    X(dv_gradient(swiglu, args, NULL, NULL, out, NULL)) \
    X( dv_gradient(swiglu, args, args, NULL, NULL, NULL)) \
    X(dv_tangent(NULL, args, args, out, NULL)) \
    X( dv_tangent(swiglu, args, NULL, out, NULL)) \
    X(dv_explain(NULL, args, 2, tell, &n)) \
    X( dv_explain(swiglu, args, 2, NULL, NULL)) \
    X(dv_policy_load(NULL)) \
    X(dv_policy_counts(NULL, NULL)) \
    X(dv_call(every, strings, 9, out, 4, NULL)) \
    X(dv_infer(every, strings, 9, specs, 4)) \
    X(dv_site_new(every, strings, 9, &site)) \
    X(dv_infer_partial(every, strings, 9, known, 4)) \
    X(dv_partial_new(every, strings, 9, &partial)) \
    X(dv_explain(every, strings, 9, tell, &n)) \
    X(dv_cost(every, strings, 9, &number, &number)) \
    X(dv_call(every, in_list, 4, out, 4, NULL)) \
    X(dv_site_new(every, in_list, 4, &site)) \
    X(dv_infer_partial(every, in_list, 4, known, 4)) \
    X(dv_call(every, lists_of, 3, out, 4, NULL)) \
    X(dv_site_new(every, lists_of, 3, &site)) \
    X(dv_infer_partial(every, lists_of, 3, known, 4))
/* clang-format on */

static void each_pointer(void **state)
{
    (void)state;
    const dv_dtype f32 = dv_dtype_from_key(DV_DTYPE_f32);
    static const int64_t four[] = { 4 };
    dv_tensor *t, *x;
    dv_library *lib;
    dv_operator *op, *const swiglu = find("swiglu"), *const every = find("every");
    dv_slot_info slot;
    dv_site *site, *one;
    dv_partial *partial, *some;
    dv_result_spec specs[4];
    dv_partial_spec known[4];
    char *text, hash[33];
    double number;
    size_t n = 0;
    int64_t frame[8] = { 0 };
    CALL_OK(dv_tensor_new(f32, 1, four, &x));
    dv_value args[8] = { dv_from_tensor(x), dv_from_tensor(x), dv_from_tensor(x) }, out[40] = { dv_default() };
    dv_value no_string = dv_from_string(""), no_list = dv_from_ints(NULL, 3), no_tensors = dv_from_tensors(NULL, 3);
    no_string.as.s = (dv_string){ NULL, 1 };
    const dv_value empty = dv_from_tensors(NULL, 0);
    const dv_value strings[9] = { dv_from_tensor(x), empty, empty, empty, dv_none(), dv_from_int(1), dv_from_float(1),
        dv_from_bool(true), no_string };
    dv_value list_of_strings = { .type = DV_VALUE_STRINGS };
    list_of_strings.as.strings.data = &no_string.as.s;
    list_of_strings.as.strings.size = 1;
    const dv_value in_list[4] = { dv_from_tensor(x), empty, empty, list_of_strings };
    const dv_value lists_of[3] = { dv_from_tensor(x), no_tensors, no_list };
    CALL_OK(dv_site_new(swiglu, args, 2, &one));
    CALL_OK(dv_partial_new(swiglu, args, 2, &some));
#define ROW(call)                                                \
    dv_clear_error();                                            \
    if ((call) != DV_EINVAL || !strstr(dv_last_error(), "NULL")) \
        fail_msg("%s: %s", #call, dv_last_error());
    REFUSED(ROW)
#undef ROW
    assert_false(dv_dtype_named(NULL) || dv_library_path(NULL) || dv_library_content_hash(NULL) || dv_library_noperators(NULL));
    assert_false(dv_library_operator(NULL, 0) || dv_operator_ref(NULL) || dv_operator_nargs(NULL) || dv_operator_nresults(NULL));
    assert_false(dv_operator_has_kernels(NULL, DV_CPU) || dv_site_operator(NULL) || dv_site_args(NULL) || dv_site_ntensors(NULL));
    assert_false(*dv_library_name(NULL) || *dv_operator_name(NULL) || *dv_operator_schema(NULL) || *dv_operator_doc(NULL) ||
        *dv_operator_tags(NULL));
    assert_true(dv_element_get(NULL, 3, f32) == 0);
    dv_element_put(NULL, 3, f32, 1);
    dv_operator_unref(NULL);
    dv_site_free(NULL);
    dv_partial_free(NULL);
    dv_partial_free(some);
    dv_site_free(one);
    dv_tensor_unref(x);
}

/* An allocator that is soon out of memory: sanitizers end the process when asked for terabytes. */
static void *some_more(void *user, void *p, size_t n) { return (void)user, n < (1 << 24) ? realloc(p, n) : NULL; }
static void *some(void *user, size_t n) { return some_more(user, NULL, n); }
static void give_back(void *user, void *p)
{
    (void)user;
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls),
        cmocka_unit_test(tensors),
        cmocka_unit_test(nothing_given),
        cmocka_unit_test(each_pointer),
    };
    const dv_allocator small = { some, some_more, give_back, NULL };
    dv_set_allocator(&small);
    return cmocka_run_group_tests(tests, load_tc, unload_tc);
}
