/* Registration racing with use: to be run under ThreadSanitizer (-DDOVETAIL_SANITIZE=thread). Some threads load and unload
 * kernels, libraries, fallbacks and policies; others look operators up, walk their tables, decide and call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>

#define DV_STATIC
#include "registry/registry_internal.h"

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int copy(const struct f *a, float by)
{
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((float *)a->out->data)[i] = by * ((const float *)a->x->data)[i];
    return DV_OK;
}
static int f_any(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    return copy(a, 2);
}
static int f_fast(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    return copy(a, 3);
}
static int g_any(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    return copy(a, 4);
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "h(x)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f_any)));
DV_OPERATOR(h, struct f, (x, out), .schema = "h(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f_any)));
DV_LIBRARY(race, &dv_op_f, &dv_op_h);
static const dv_operator_decl vendor_f = { .size = sizeof vendor_f,
    .name = "f",
    .frame_size = sizeof(struct f),
    .fields = DV_FIELDS(struct f, x, out),
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f_fast), DV_KERNEL(struct f, "npu", NULL, f_fast)) };
DV_LIBRARY_IMPL(race, fast, &vendor_f);
DV_OPERATOR(g, struct f, (x, out), .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, g_any)));
DV_LIBRARY(comes_and_goes, &dv_op_g);

enum { ROUNDS = 300 };
static atomic_bool done;
static atomic_int failures;

static void expect(bool good)
{
    if (!good)
        atomic_fetch_add(&failures, 1);
}

static int boxed(
    void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host)
{
    (void)user;
    return dv_redispatch(op, DV_KEY_AUTOGRAD_CPU, args, nargs, results, nresults, host);
}

static void *vendors(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        dv_library *lib;
        expect(!dv_load_static(&dv_library_fast, &lib));
        dv_library_free(lib);
    }
    return NULL;
}

static void *libraries(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        dv_library *lib, *impl;
        expect(!dv_library_new(DV_LIBRARY_IMPL, "comes_and_goes", DV_KEY_NONE, &impl));
        expect(!dv_library_impl(impl, "g", DV_KEY_AUTOGRAD, boxed, NULL));
        expect(!dv_load_static(&dv_library_comes_and_goes, &lib));
        expect(!dv_library_fallback(impl, DV_KEY_CUDA, boxed, NULL));
        dv_library_free(lib);
        dv_library_free(impl);
    }
    return NULL;
}

static void *settings(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        expect(!dv_policy_set(i % 2 ? "all,-f" : "none,+f"));
        expect(!dv_policy_set_thread(i % 3 ? NULL : "all"));
        expect(!dv_set_isa(i % 2 ? "base" : NULL));
    }
    dv_policy_set_thread(NULL);
    return NULL;
}

/* What a call does with an operator. */
static void use(dv_operator *op)
{
    const dv__dispatch_table *t = atomic_load_explicit(&op->table, memory_order_acquire);
    size_t n = 0;
    for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++)
        for (size_t i = 0; i < t->entries[key].nkernels; i++) {
            const dv__kernel *row = t->entries[key].kernels[i];
            n += dv__isa_is_available(row->isas) && row->run && row->binding->n == 2 && *row->provider;
        }
    expect(n > 0);
    dv__policy_decide_if_enabled(op, false);
}

/* A call gives one of the results that it may, or says that the operator is gone. */
static void call(dv_operator *op, float may, float may_too)
{
    float x[4] = { 1, 2, 3, 4 }, y[4] = { 0 };
    const int64_t shape[] = { 4 };
    int64_t strides[2][1];
    dv_tensor in, out;
    expect(!dv_tensor_init(&in, x, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, shape, NULL, strides[0]));
    expect(!dv_tensor_init(&out, y, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, shape, NULL, strides[1]));
    const dv_value arg = dv_from_tensor(&in);
    dv_value result = dv_from_tensor(&out);
    const int status = dv_call(op, &arg, 1, &result, 1, NULL);
    expect(status == DV_OK || (status == DV_EUNLOADED && !atomic_load(&op->alive)));
    expect(status || y[3] == 4 * may || y[3] == 4 * may_too);
}

static void *callers(void *arg)
{
    (void)arg;
    while (!atomic_load(&done)) {
        dv_operator *f, *g;
        char *text;
        expect(!dv_find("race::f", &f));
        use(f);
        call(f, 2, 3);
        if (!dv_find("comes_and_goes::g", &g)) {
            expect(!dv_operator_dump_table(g, &text));
            dv_free(text);
            use(g); /* also when it is unloaded meanwhile */
            call(g, 4, 4);
            dv_operator_unref(g);
        }
        expect(!dv_operator_json(f, &text));
        dv_free(text);
        dv_operator_unref(f);
    }
    return NULL;
}

static int count(void *user, dv_operator *op)
{
    ++*(int *)user;
    expect(strlen(dv_operator_name(op)) > 3);
    return 0;
}

static void *listers(void *arg)
{
    (void)arg;
    while (!atomic_load(&done)) {
        int n = 0;
        expect(!dv_for_each_operator(count, &n));
        expect(n == 2 || n == 3);
    }
    return NULL;
}

static void test_race(void **state)
{
    (void)state;
    dv_library *lib;
    assert_int_equal(dv_load_static(&dv_library_race, &lib), DV_OK);
    void *(*const writers[])(void *) = { vendors, libraries, settings };
    void *(*const readers[])(void *) = { callers, callers, listers };
    pthread_t w[3], r[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&r[i], NULL, readers[i], NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&w[i], NULL, writers[i], NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(w[i], NULL);
    atomic_store(&done, true);
    for (int i = 0; i < 3; i++)
        pthread_join(r[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
    dv_policy_set(NULL);
    dv_set_isa(NULL);
    dv_library_free(lib);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_race) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
