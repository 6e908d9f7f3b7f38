/* Threads: slices, the first error, calls from many threads, fork, random numbers that do not depend on who ran what. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "call_ops.h"
#include "failing.h"

/* Under ThreadSanitizer the forked child may start threads. */
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static const int64_t n5000[] = { 5000 };

static void slices_are_cut_by_shape(void **state)
{
    (void)state;
    const int64_t shape[] = { 10, 500 };
    dv_tensor *x = floats(2, shape, 0, 1);
    for (int threads = 1; threads <= 4; threads++) {
        CALL_OK(dv_set_threads(threads));
        assert_int_equal(dv_get_threads(), threads);
        atomic_store(&slices_run, 0);
        dv_value args[1] = { dv_from_tensor(x) }, result = dv_default();
        CALL_OK(dv_call(find("slices"), args, 1, &result, 1, NULL));
        assert_int_equal(atomic_load(&slices_run), 10); /* of 512: whatever the number of threads */
        for (int i = 0; i < 5000; i++)
            assert_true(at(result.as.tensor, i) == (float)i + 1);
        dv_tensor_unref(tensor_of(&result));
    }
    assert_int_equal(atomic_load(&slices_wrong), 0);
    CALL_FAILS(DV_EINVAL, "0 to 256", dv_set_threads(-1));
    CALL_FAILS(DV_EINVAL, "found 1000", dv_set_threads(1000));
    CALL_OK(dv_set_threads(0));
    assert_true(dv_get_threads() >= 1);
    dv_tensor_unref(x);
}

static void boxes_of_several_dims(void **state)
{
    (void)state;
    CALL_OK(dv_set_threads(3));
    static const struct {
        int64_t b, h;
        int boxes;
    } rows[] = { { 4, 5, 8 }, { 7, 2, 4 }, { 1, 7, 3 }, { 7, 1, 3 }, { 3, 3, 3 }, { 1, 3, 1 }, { 0, 9, 1 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t shape[] = { rows[i].b, rows[i].h, 3 }, d3[] = { 3 };
        dv_tensor *x = floats(3, shape, 0, 1), *w = floats(1, d3, 2, 0);
        dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(w) }, result = dv_default();
        atomic_store(&rows_run, 0);
        CALL_OK(dv_call(find("rows"), args, 2, &result, 1, NULL));
        assert_int_equal(atomic_load(&rows_run), rows[i].boxes);
        for (int64_t k = 0; k < dv_numel(x); k++)
            assert_true(at(result.as.tensor, k) == (float)(2 * k + k / 3 / rows[i].h * 1000 + k / 3 % rows[i].h));
        dv_tensor_unref(tensor_of(&result));
        dv_tensor_unref(x);
        dv_tensor_unref(w);
    }
    assert_int_equal(atomic_load(&rows_wrong), 0);
}

static void first_error_wins(void **state)
{
    (void)state;
    CALL_OK(dv_set_threads(4));
    dv_tensor *x = floats(1, n5000, 0, 1);
    for (int round = 0; round < 200; round++) {
        const int64_t where = round % 10 * 512;
        char expected[64];
        dv_value args[2] = { dv_from_tensor(x), dv_from_int(where) }, result = dv_default();
        snprintf(expected, sizeof expected, "tc::slices: slice %lld failed", (long long)where);
        CALL_FAILS(DV_EINVAL, expected, dv_call(find("slices"), args, 2, &result, 1, NULL));
        assert_int_equal(result.type, DV_VALUE_DEFAULT);
        args[1] = dv_from_int(6); /* every piece fails: one message, whole */
        CALL_FAILS(DV_EINVAL, "tc::fail_with: piece ", dv_call(find("fail_with"), args, 2, &result, 1, NULL));
        assert_non_null(strstr(dv_last_error(), "0 failed"));
    }
    dv_tensor_unref(x);
}

static atomic_int wrong_results;
static void *many_calls(void *arg)
{
    const int me = (int)(intptr_t)arg;
    dv_operator *swiglu, *slices_op, *scale;
    if (dv_find("tc::swiglu", &swiglu) || dv_find("tc::slices", &slices_op) || dv_find("tc::scale_", &scale)) {
        atomic_fetch_add(&wrong_results, 1000);
        return NULL;
    }
    const int64_t shape[] = { 4 + me };
    dv_tensor *x, *big;
    dv_dtype f32 = dv_dtype_from_key(DV_DTYPE_f32);
    if (dv_tensor_new(f32, 1, shape, &x) || dv_tensor_new(f32, 1, n5000, &big))
        return NULL;
    for (int i = 0; i < 5000; i++)
        ((float *)big->data)[i] = (float)i;
    for (int i = 0; i < 300; i++) {
        ((float *)x->data)[0] = 1;
        dv_value args[2] = { dv_from_tensor(x), dv_from_tensor(x) }, result = dv_default();
        int status = dv_call(swiglu, args, 2, &result, 1, NULL);
        if (status || fabsf(at(result.as.tensor, 0) - 0.731058f) > 1e-5f)
            atomic_fetch_add(&wrong_results, 1);
        dv_tensor_unref(tensor_of(&result));
        args[1] = dv_from_float(3);
        result = dv_default();
        if (dv_call(scale, args, 2, &result, 1, NULL) || at(x, 0) != 3)
            atomic_fetch_add(&wrong_results, 1);
        if (i % 10)
            continue;
        args[0] = dv_from_tensor(big);
        args[1] = dv_from_int(i % 20 ? 512 : -1);
        result = dv_default();
        status = dv_call(slices_op, args, 2, &result, 1, NULL);
        if (status != (i % 20 ? DV_EINVAL : DV_OK) || (status && !strstr(dv_last_error(), "slice 512 failed")))
            atomic_fetch_add(&wrong_results, 1);
        if (!status) {
            if (at(result.as.tensor, 4999) != 5000)
                atomic_fetch_add(&wrong_results, 1);
            dv_tensor_unref(tensor_of(&result));
        }
    }
    dv_tensor_unref(x);
    dv_tensor_unref(big);
    dv_operator_unref(swiglu);
    dv_operator_unref(slices_op);
    dv_operator_unref(scale);
    return NULL;
}

static int use_memory_of_pieces(dv_tensor *x, int how, dv_value *result)
{
    dv_value args[2] = { dv_from_tensor(x), dv_from_int(how) };
    *result = dv_default();
    return dv_call(find("scratched"), args, 2, result, 1, NULL);
}

static void memory_of_pieces(void **state)
{
    (void)state;
    const int64_t n = 1000;
    dv_tensor *x = floats(1, &n, 0, 1);
    dv_value result;
    for (int threads = 1; threads <= 4; threads++) {
        static const int right[] = { 0, 1, 4 };
        CALL_OK(dv_set_threads(threads));
        for (size_t k = 0; k < sizeof right / sizeof *right; k++) {
            CALL_OK(use_memory_of_pieces(x, right[k], &result));
            for (int64_t i = 0; i < n; i++)
                assert_true(at(result.as.tensor, i) == 1);
            dv_tensor_unref(tensor_of(&result));
        }
        CALL_FAILS(DV_EINVAL, "tc::scratched: a piece with memory failed", use_memory_of_pieces(x, 2, &result));
        CALL_FAILS(DV_ENOMEM, "tc::scratched: out of memory: 18446744073709551607 bytes", use_memory_of_pieces(x, 3, &result));
        CALL_FAILS(DV_ENOMEM, "tc::scratched: out of memory: 18446744073709551607 bytes", use_memory_of_pieces(x, 5, &result));
    }
    failing counted = { 0 };
    const dv_allocator counting = { failing_alloc, failing_realloc, failing_free, &counted };
    CALL_OK(dv_set_threads(1));
    dv_set_allocator(&counting);
    CALL_OK(use_memory_of_pieces(x, 0, &result));
    dv_tensor_unref(tensor_of(&result));
    dv_set_allocator(NULL);
    assert_in_range(counted.n, 2, 20); /* 256 pieces and one block; and the result, and what the call itself needs */
    assert_int_equal(atomic_load(&scratch_wrong), 0);
    CALL_OK(dv_set_threads(0));
    dv_tensor_unref(x);
}

static void calls_from_many_threads(void **state)
{
    (void)state;
    pthread_t threads[6];
    CALL_OK(dv_set_threads(3));
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_calls, (void *)(intptr_t)i), 0);
    for (int n = 1; n < 5; n++)
        CALL_OK(dv_set_threads(n)); /* may change at any time */
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong_results), 0);
}

/* A forked child has no workers of its parent's, and starts its own. */
static void fork_then_call(void **state)
{
    (void)state;
    if (getenv("UNDER_QEMU"))
        skip(); /* 7.2 fails an assertion of its own when a program with threads forks */
    CALL_OK(dv_set_threads(4));
    dv_tensor *x = floats(1, n5000, 0, 1);
    dv_operator *op = find("slices");
    for (int round = 0; round < 5; round++) {
        dv_value args[1] = { dv_from_tensor(x) }, result = dv_default();
        CALL_OK(dv_call(op, args, 1, &result, 1, NULL));
        dv_tensor_unref(tensor_of(&result));
        const pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            int wrong = 0;
            for (int i = 0; i < 20; i++) {
                result = dv_default();
                wrong |= dv_call(op, args, 1, &result, 1, NULL) || at(result.as.tensor, 4999) != 5000;
                dv_tensor_unref(tensor_of(&result));
            }
            _exit(wrong);
        }
        int ended;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFEXITED(ended) && !WEXITSTATUS(ended));
    }
    dv_tensor_unref(x);
}

static void random_numbers_are_reproducible(void **state)
{
    (void)state;
    static uint64_t seen[5][5000];
    dv_tensor *x = floats(1, n5000, 0, 0);
    dv_value args[2] = { dv_from_tensor(x), dv_default() };
    for (int round = 0; round < 5; round++) {
        CALL_OK(dv_set_threads(1 + round % 4));
        CALL_OK(dv_set_seed(round == 4 ? 8 : 7));
        dv_value one = dv_default(), two = dv_default();
        CALL_OK(dv_call(find("noise_split"), args, 1, &one, 1, NULL));
        memcpy(seen[round], one.as.tensor->data, sizeof seen[round]);
        CALL_OK(dv_call(find("noise_split"), args, 1, &two, 1, NULL));
        assert_memory_not_equal(one.as.tensor->data, two.as.tensor->data, sizeof seen[0]); /* the state goes on */
        dv_tensor_unref(tensor_of(&one));
        dv_tensor_unref(tensor_of(&two));
    }
    for (int round = 1; round < 4; round++)
        assert_memory_equal(seen[round], seen[0], sizeof seen[0]);
    assert_memory_not_equal(seen[4], seen[0], sizeof seen[0]);
    dv_value whole = dv_default(), again = dv_default();
    CALL_OK(dv_call(find("noise"), args, 1, &whole, 1, NULL));
    CALL_OK(dv_call(find("noise"), args, 1, &again, 1, NULL));
    assert_memory_not_equal(whole.as.tensor->data, again.as.tensor->data, sizeof seen[0]);
    int token;
    args[1] = dv_none();
    args[1].type = DV_VALUE_GENERATOR, args[1].as.generator = (const dv_generator *)(const void *)&token;
    CALL_FAILS(DV_ENOTSUP, "needs a host that knows it", dv_call(find("noise"), args, 2, &again, 1, NULL));
    dv_tensor_unref(tensor_of(&whole));
    dv_tensor_unref(tensor_of(&again));
    dv_tensor_unref(x);
}

/* ---- Every allocation failed in turn ---- */

typedef struct planned {
    const char *op;
    dv_value args[8];
    size_t nargs, nresults;
    int expected;
    bool native;
} planned;

static int run_planned(void *arg)
{
    const planned *p = arg;
    dv_value results[4] = { dv_default(), dv_default(), dv_default(), dv_default() };
    dv_operator *op = find(p->op);
    int status = dv_call(op, p->args, p->nargs, results, p->nresults, NULL);
    for (size_t i = 0; i < p->nresults; i++) {
        if (status && results[i].type != DV_VALUE_DEFAULT)
            fail_msg("%s: result %zu is published on failure", p->op, i);
        if (results[i].type == DV_VALUE_TENSOR && results[i].as.tensor != p->args[0].as.tensor)
            dv_tensor_unref(tensor_of(&results[i]));
    }
    if (status == p->expected)
        return DV_OK;
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    CALL_OK(dv_set_threads(1)); /* each run makes its allocations in one order */
    const int64_t n34[] = { 3, 4 }, n43[] = { 4, 3 }, turned[] = { 1, 4 }, n6[] = { 6 }, n600[] = { 600 };
    dv_tensor *x = floats(2, n34, 1, 1), *t, *v = floats(1, n6, 0, 1), *big = floats(1, n600, 0, 1), *half;
    const int64_t n3[] = { 3 }, two[] = { 2 }, ints[] = { 1, 2, 3 };
    CALL_OK(dv_tensor_view(x, 2, n43, turned, 0, &t));
    CALL_OK(dv_tensor_view(v, 1, n3, two, 0, &half));
    const dv_tensor *list[] = { half, v };
    dv_value empty = dv_from_ints(NULL, 0);
    planned plans[] = {
        { "swiglu", { dv_from_tensor(t), dv_from_tensor(t) }, 2, 1, 0, false },
        { "scale_", { dv_from_tensor(t), dv_from_float(1) }, 2, 1, 0, false },
        { "scale_", { dv_from_tensor(t), dv_from_float(NAN) }, 2, 1, DV_EINVAL, false },
        { "every", { dv_from_tensor(x), empty, dv_from_ints(ints, 3), empty }, 4, 4, 0, false },
        { "cat", { dv_from_tensors(list, 2) }, 1, 1, 0, false },
        { "fill_all", { dv_from_tensors(list, 1), dv_from_float(2) }, 2, 0, 0, false },
        { "maybe", { dv_from_tensor(v), dv_from_bool(true) }, 2, 2, 0, false },
        { "transposed", { dv_from_tensor(x), dv_from_int(0), dv_from_int(1) }, 3, 1, 0, false },
        { "repeat", { dv_from_tensor(half), dv_from_int(3) }, 2, 1, 0, false },
        { "slices", { dv_from_tensor(big) }, 1, 1, 0, false },
        { "slices", { dv_from_tensor(big), dv_from_int(512) }, 2, 1, DV_EINVAL, false },
        { "fail_with", { dv_from_tensor(half), dv_from_int(4) }, 2, 1, DV_EINVAL, false },
        { "outer", { dv_from_tensor(half), dv_from_tensor(half) }, 2, 1, 0, false },
        { "pairs", { dv_from_tensor(half), dv_from_bool(true) }, 2, 2, 0, false },
        { "composed", { dv_from_tensor(v) }, 1, 1, 0, true },
        { "double_", { dv_from_tensor(half) }, 1, 1, 0, false },
        { "wrong_native", { dv_from_tensor(v) }, 1, 1, DV_ESHAPE, false },
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        if (plans[i].native)
            CALL_OK(dv_policy_set_thread("none"));
        failing_each(run_planned, &plans[i]);
        if (plans[i].native)
            CALL_OK(dv_policy_set_thread(NULL));
        for (int k = 0; k < 6; k++)
            ((float *)v->data)[k] = (float)k;
    }
    dv_tensor_unref(half);
    dv_tensor_unref(t);
    dv_tensor_unref(x);
    dv_tensor_unref(v);
    dv_tensor_unref(big);
}

static int make_tensors(void *unused)
{
    (void)unused;
    const int64_t shape[] = { 3, 4 };
    dv_tensor *t = NULL, *v = NULL, *back = NULL;
    struct DLManagedTensorVersioned *m = NULL;
    int status = dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f32), 2, shape, &t);
    if (!status)
        status = dv_tensor_view(t, 0, NULL, NULL, 3, &v);
    if (!status)
        status = dv_tensor_to_dlpack(v, &m);
    if (!status)
        status = dv_tensor_from_dlpack(m, &back);
    dv_tensor_unref(back);
    dv_tensor_unref(v);
    dv_tensor_unref(t);
    return status;
}
static void failing_tensors(void **state)
{
    (void)state;
    assert_int_equal(failing_each(make_tensors, NULL), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_cut_by_shape),
        cmocka_unit_test(boxes_of_several_dims),
        cmocka_unit_test(first_error_wins),
        cmocka_unit_test(memory_of_pieces),
        cmocka_unit_test(calls_from_many_threads),
        cmocka_unit_test(fork_then_call),
        cmocka_unit_test(random_numbers_are_reproducible),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(failing_tensors),
    };
    return cmocka_run_group_tests(tests, load_tc, unload_tc);
}
