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
    if (dv__tensor_sound(&o->t) && dv__extent(o->t.ndim, o->t.shape, o->t.strides, &low, &high) && (low < -LIMIT || high > LIMIT))
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
        if (before[r].type == DV_VALUE_DEFAULT && results[r].type == DV_VALUE_TENSOR && dv__tensor_is_ours(results[r].as.tensor))
            dv_tensor_unref((dv_tensor *)(uintptr_t)results[r].as.tensor);
}

static void tell(void *user, const dv_row_report *row) { *(size_t *)user += strlen(row->reason); }

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
    assert_false(dv_policy_enabled(NULL, false));
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
    };
    const dv_allocator small = { some, some_more, give_back, NULL };
    dv_set_allocator(&small);
    return cmocka_run_group_tests(tests, load_tc, unload_tc);
}
