/* Operators that call themselves without end: DV_ELIMIT with a message, in any thread and on any stack. Calls work afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/sanitizer.h"
#include "dovetail.h"

/* Operator that makes n nested calls; n < 0: without end. */
struct rec {
    const dv_tensor *x;
    int64_t n;
    dv_tensor *out;
};

static int rec_run(dv_context *c, const struct rec *a)
{
    struct rec q = { a->x, a->n - 1, a->out };
    *(float *)a->out->data = (float)a->n;
    return a->n ? DV_CALL(c, "tn::rec", struct rec, (x, n, out), &q) : DV_OK;
}
DV_OPERATOR(rec, struct rec, (x, n, out), .schema = "rec(Tensor x, int n) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct rec, "cpu", "f32", rec_run)));

/* Two operators that call each other. */
static int ping_run(dv_context *c, const struct rec *a)
{
    struct rec q = { a->x, a->n - 1, a->out };
    return a->n ? DV_CALL(c, "tn::pong", struct rec, (x, n, out), &q) : DV_OK;
}
static int pong_run(dv_context *c, const struct rec *a)
{
    struct rec q = { a->x, a->n - 1, a->out };
    return a->n ? DV_CALL(c, "tn::ping", struct rec, (x, n, out), &q) : DV_OK;
}
DV_OPERATOR(ping, struct rec, (x, n, out), .schema = "ping(Tensor x, int n) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct rec, "cpu", "f32", ping_run)));
DV_OPERATOR(pong, struct rec, (x, n, out), .schema = "pong(Tensor x, int n) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct rec, "cpu", "f32", pong_run)));

/* Operator that calls itself from each chunk of a loop, in whichever thread the chunk runs. */
struct chunk {
    dv_context *c;
    const struct rec *a;
};
static int chunk_run(void *arg, int64_t begin, int64_t end)
{
    const struct chunk *k = arg;
    float x = 0, y;
    int64_t sizes[] = { 1 }, step[] = { 1 };
    dv_tensor in, out;
    (void)begin, (void)end;
    dv_tensor_init(&in, &x, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, sizes, step, NULL);
    dv_tensor_init(&out, &y, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, sizes, step, NULL);
    struct rec q = { &in, k->a->n - 1, &out };
    return DV_CALL(k->c, "tn::loop", struct rec, (x, n, out), &q);
}
static int loop_run(dv_context *c, const struct rec *a)
{
    struct chunk k = { c, a };
    *(float *)a->out->data = (float)a->n;
    return a->n ? dv_parallel_for(c, 0, 4, 1, chunk_run, &k) : DV_OK;
}
DV_OPERATOR(loop, struct rec, (x, n, out), .schema = "loop(Tensor x, int n) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct rec, "cpu", "f32", loop_run)));

/* Calls an operator whose decomposition calls the kernel's operator. */
static int under_run(dv_context *c, const struct rec *a)
{
    struct rec q = { a->x, a->n - 1, a->out };
    return a->n ? DV_CALL(c, "tn::composed", struct rec, (x, n, out), &q) : DV_OK;
}
DV_OPERATOR(under, struct rec, (x, n, out), .schema = "under(Tensor x, int n) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .gradient = "x: composed(grad, n)", .kernels = DV_KERNELS(DV_KERNEL(struct rec, "cpu", "f32", under_run)));
DV_OPERATOR(composed, struct rec, (x, n, out), .schema = "composed(Tensor x, int n) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T", .native = "under(x, n)");

/* Operator that calls itself, with 100 KiB of local variables in each call. */
static int large_run(dv_context *c, const struct rec *a)
{
    volatile char block[100 << 10];
    struct rec q = { a->x, a->n - 1, a->out };
    block[0] = block[sizeof block - 1] = 0;
    return a->n ? DV_CALL(c, "tn::large", struct rec, (x, n, out), &q) + block[0] : block[0];
}
DV_OPERATOR(large, struct rec, (x, n, out), .schema = "large(Tensor x, int n) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct rec, "cpu", "f32", large_run)));

DV_LIBRARY(tn, &dv_op_rec, &dv_op_ping, &dv_op_pong, &dv_op_loop, &dv_op_under, &dv_op_composed, &dv_op_large);

static int64_t four[] = { 4 }, one[] = { 1 };
static int call(const char *name, int64_t n)
{
    float memory[8] = { 0 };
    dv_operator *op;
    dv_tensor x, out;
    int status = dv_find(name, &op);
    if (status)
        return status;
    dv_tensor_init(&x, memory, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, four, one, NULL);
    dv_tensor_init(&out, memory + 4, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, four, one, NULL);
    const dv_value args[2] = { dv_from_tensor(&x), dv_from_int(n) };
    dv_value result = dv_from_tensor(&out);
    status = dv_call(op, args, 2, &result, 1, NULL);
    dv_operator_unref(op);
    return status;
}

static const char *const names[] = { "tn::rec", "tn::ping", "tn::loop", "tn::under", "tn::composed" };
enum { NAMES = sizeof names / sizeof *names };

/* True if the message is that of a limit; decompositions have their own, smaller one. */
static bool is_limit(const char *message)
{
    return strstr(message, "calls are nested") || strstr(message, "decompositions call each other more than");
}

static void expect_limit(const char *name)
{
    const int status = call(name, -1);
    if (status != DV_ELIMIT || !is_limit(dv_last_error()) || strncmp(dv_last_error(), "tn::", 4) != 0 ||
        strlen(dv_last_error()) > 600)
        fail_msg("%s: %s: %s", name, dv_status_name(status), dv_last_error());
    if (call(name, 1) != DV_OK)
        fail_msg("%s: a call after it: %s", name, dv_last_error());
}

static void without_end(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < NAMES; i++)
            expect_limit(names[i]);
}

static void a_few_are_fine(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++)
        if (call(names[i], i == 2 ? 3 : 20))
            fail_msg("%s: %s", names[i], dv_last_error());
}

static void *in_thread(void *with_all)
{
    for (size_t i = 0; i < NAMES; i++) {
        if (call(names[i], 0)) /* the outermost call is not refused */
            fail_msg("%s: %s", names[i], dv_last_error());
        if (with_all && call(names[i], -1) != DV_ELIMIT)
            fail_msg("%s: %s", names[i], dv_last_error());
    }
    return NULL;
}

/* Runs a kernel that calls its operator on stacks of growing size; the first has space for little more than one call. */
static void stacks_of_any_size(void **state)
{
    (void)state;
#if DV__SANITIZED
    static const size_t sizes[] = { 1024, 2048, 8192 };
#else
    static const size_t sizes[] = { 160, 192, 256, 512, 1024, 8192, 65536 };
#endif
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pthread_t thread;
        pthread_attr_t attributes;
        assert_int_equal(pthread_attr_init(&attributes), 0);
        assert_int_equal(pthread_attr_setstacksize(&attributes, sizes[i] << 10), 0);
        assert_int_equal(pthread_create(&thread, &attributes, in_thread, sizes[i] > 200 ? &four : NULL), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attributes);
    }
}

static void *large_in_thread(void *unused)
{
    (void)unused;
    for (int round = 0; round < 2; round++)
        if (call("tn::large", 0) || call("tn::large", -1) != DV_ELIMIT || !is_limit(dv_last_error()))
            fail_msg("%s", dv_last_error());
    return NULL;
}

/* A kernel with large local variables that calls its operator: the limit is what its calls took, not a constant. */
static void large_local_variables(void **state)
{
    (void)state;
    for (size_t kib = DV__SANITIZED ? 1024 : 192; kib <= 16384; kib += kib / 7) {
        pthread_t thread;
        pthread_attr_t attributes;
        assert_int_equal(pthread_attr_init(&attributes), 0);
        assert_int_equal(pthread_attr_setstacksize(&attributes, kib / 4 * 4 << 10), 0);
        assert_int_equal(pthread_create(&thread, &attributes, large_in_thread, NULL), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attributes);
    }
}

static void gradients(void **state)
{
    (void)state;
    float memory[4] = { 0 };
    dv_operator *op;
    dv_tensor x;
    assert_int_equal(dv_find("tn::under", &op), DV_OK);
    dv_tensor_init(&x, memory, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, four, one, NULL);
    const dv_value values[3] = { dv_from_tensor(&x), dv_from_int(-1), dv_from_tensor(&x) };
    const dv_value grads[3] = { dv_none(), dv_none(), dv_from_tensor(&x) };
    dv_value out[3];
    for (int i = 0; i < 3; i++)
        if (dv_gradient(op, values, grads, NULL, out, NULL) != DV_ELIMIT || !is_limit(dv_last_error()))
            fail_msg("%s", dv_last_error());
    dv_operator_unref(op);
}

static dv_library *lib;
static int setup(void **state) { return (void)state, dv_load_static(&dv_library_tn, &lib); }
static int teardown(void **state) { return (void)state, dv_library_free(lib), 0; }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_end),
        cmocka_unit_test(a_few_are_fine),
        cmocka_unit_test(stacks_of_any_size),
        cmocka_unit_test(large_local_variables),
        cmocka_unit_test(gradients),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
