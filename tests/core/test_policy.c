/* Policy: words, layers, defaults, generations, counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

#define DV_STATIC
#include "registry/registry_internal.h"
#include "failing.h"

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f_any(dv_context *ctx, const struct f *a)
{
    (void)ctx, (void)a;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .native = "there::g(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f_any)));
DV_OPERATOR(f_out, struct f, (x, out), .schema = "f.other(Tensor x) -> Tensor out", .native = "there::g(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f_any)));
DV_OPERATOR(g, struct f, (x, out), .schema = "g(Tensor x) -> Tensor out", .native = "there::g(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f_any)));
DV_OPERATOR(plain, struct f, (x, out), .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f_any)));
DV_LIBRARY(pol, &dv_op_f, &dv_op_f_out, &dv_op_g, &dv_op_plain);

static dv_library *lib;
static dv_operator *f, *f_other, *g, *plain;

static int setup(void **state)
{
    (void)state;
    unsetenv("DOVETAIL_OPS");
    unsetenv("DOVETAIL_POLICY");
    if (dv_load_static(&dv_library_pol, &lib))
        fail_msg("%s", dv_last_error());
    f = dv_library_operator(lib, 0);
    f_other = dv_library_operator(lib, 1);
    g = dv_library_operator(lib, 2);
    plain = dv_library_operator(lib, 3);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dv_policy_set(NULL);
    dv_library_free(lib);
    return 0;
}

static void decisions(char out[9])
{
    dv_operator *ops[] = { f, f_other, g, plain };
    for (int i = 0; i < 4; i++)
        for (int fuses = 0; fuses < 2; fuses++) {
            const bool on = dv_policy_is_enabled(ops[i], fuses);
            out[i + 4 * fuses] = on ? '1' : '0';
            for (int again = 0; again < 2; again++)
                assert_int_equal(dv__policy_decide_if_enabled(ops[i], fuses), on);
        }
    out[8] = 0;
}

/* f, f.other, g, plain; then the same when the host fuses. plain has no decomposition: always on. */
static const struct {
    const char *text, *expected;
} rows[] = {
    { NULL, "11111111" },
    { "", "11111111" },
    { "vllm-default", "11110001" },
    { "vllm-default,-g", "11010001" },
    { "vllm-default,+g", "11110011" },
    { "all", "11111111" },
    { "none", "00010001" },
    { "all,-f", "00110011" },
    { "none,+f", "11011101" },
    { "none +pol::f", "11011101" },
    { "-g", "11011101" },
    { "+g", "11111111" },
    { "all,-f,+pol::f", "11111111" },
    { "+pol::f,all\n-f", "11111111" },
    { "none,+other::f", "00010001" },
    { "all,-fo", "11111111" },
    { "none,-plain", "00010001" },
    { "none # ,+f\n,+g", "00110011" },
    { "all,-g,-g", "11011101" },
    { "-unknown", "11111111" },
};

static void test_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char found[9];
        const uint64_t before = dv_policy_generation();
        if (dv_policy_set(rows[i].text))
            fail_msg("%s: %s", rows[i].text, dv_last_error());
        assert_true(dv_policy_generation() != before);
        decisions(found);
        if (strcmp(found, rows[i].expected) != 0)
            fail_msg("'%s' gives %s, expected %s", rows[i].text ? rows[i].text : "NULL", found, rows[i].expected);
    }
    assert_int_equal(dv_policy_set(NULL), DV_OK);
}

static void test_classes(void **state) /* without a first word they follow vllm-default */
{
    (void)state;
    static const struct {
        const char *text;
        bool on, fused;
    } rows_of[] = { { NULL, true, false }, { "-x", true, false }, { "vllm-default", true, false }, { "all", true, true },
        { "none", false, false }, { "none,+norm", true, true }, { "all,-norm", false, false }, { "+norm", true, true } };
    for (size_t i = 0; i < sizeof rows_of / sizeof rows_of[0]; i++) {
        assert_int_equal(dv_policy_set(rows_of[i].text), DV_OK);
        assert_int_equal(dv_policy_is_class_enabled("norm", false), rows_of[i].on);
        assert_int_equal(dv_policy_is_class_enabled("norm", true), rows_of[i].fused);
    }
    assert_false(dv_policy_is_class_enabled(NULL, false));
    assert_int_equal(dv_policy_set(NULL), DV_OK);
}

static void test_bad_words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "all,none", "policy: 'none' after 'all': expected one of all, none and vllm-default" },
        { "all all", "policy: 'all' after 'all'" },
        { "f", "expected all, none, vllm-default, +name or -name, found 'f'" },
        { "+", "'+' is not +name or +ns::name" },
        { "-a::b::c", "'-a::b::c' is not -name or -ns::name" },
        { "+a:b", "'+a:b' is not +name" },
        { "+a::", "'+a::' is not" },
        { "+f,-f", "both +f and -f" },
        { "every", "found 'every'" },
    };
    const uint64_t before = dv_policy_generation();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dv_policy_set(bad[i].text), DV_EINVAL);
        if (!strstr(dv_last_error(), bad[i].message))
            fail_msg("'%s' is not in: %s", bad[i].message, dv_last_error());
        assert_int_equal(dv_policy_set_thread(bad[i].text), DV_EINVAL);
    }
    assert_true(dv_policy_generation() == before);
}

static void *in_thread(void *arg)
{
    char *found = arg;
    decisions(found);
    assert_int_equal(dv_policy_set_thread("none,+g"), DV_OK); /* freed when the thread ends */
    decisions(found + 9);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    char found[9], other[18];
    pthread_t thread;
    assert_int_equal(dv_policy_set("all"), DV_OK);
    assert_int_equal(dv_policy_set_thread("none"), DV_OK);
    decisions(found);
    assert_string_equal(found, "00010001");
    assert_int_equal(pthread_create(&thread, NULL, in_thread, other), 0);
    pthread_join(thread, NULL);
    assert_string_equal(other, "11111111");
    assert_string_equal(other + 9, "00110011");
    decisions(found);
    assert_string_equal(found, "00010001");
    assert_int_equal(dv_policy_set_thread(NULL), DV_OK);
    decisions(found);
    assert_string_equal(found, "11111111");
    assert_int_equal(dv_policy_set(NULL), DV_OK);
}

static void test_file(void **state)
{
    (void)state;
    char found[9];
    FILE *file = fopen("test_policy.txt", "w");
    assert_non_null(file);
    fputs("# what runs here\nall\n-pol::f  # slow\n", file);
    fclose(file);
    assert_int_equal(dv_policy_load("test_policy.txt"), DV_OK);
    decisions(found);
    assert_string_equal(found, "00110011");
    file = fopen("test_policy.txt", "w");
    fputs("al\n", file);
    fclose(file);
    assert_int_equal(dv_policy_load("test_policy.txt"), DV_EINVAL);
    assert_non_null(strstr(dv_last_error(), "test_policy.txt: policy: expected all"));
    assert_int_equal(truncate("test_policy.txt", (1 << 20) + 5000), 0);
    assert_int_equal(dv_policy_load("test_policy.txt"), DV_ELIMIT);
    remove("test_policy.txt");
    assert_int_equal(dv_policy_load("test_policy.txt"), DV_EIO);
    assert_int_equal(mkfifo("test_policy.txt", 0600), 0); /* nothing is waited for */
    assert_int_equal(dv_policy_load("test_policy.txt"), DV_EIO);
    assert_non_null(strstr(dv_last_error(), "test_policy.txt cannot be read: it is not a regular file"));
    remove("test_policy.txt");
    assert_int_equal(dv_policy_load("/dev/zero"), DV_EIO);
    assert_int_equal(dv_policy_load("."), DV_EIO);
    decisions(found);
    assert_string_equal(found, "00110011"); /* a failure changes nothing */
    assert_int_equal(dv_policy_set(NULL), DV_OK);
}

/* The environment is read once: each row in a process of its own. */
static int child(const char *self, const char *ops, const char *policy, const char *what)
{
    const pid_t pid = fork();
    if (!pid) {
        if (ops)
            setenv("DOVETAIL_OPS", ops, 1);
        if (policy)
            setenv("DOVETAIL_POLICY", policy, 1);
        execl(self, self, what, (char *)NULL);
        _exit(99);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int in_child(const char *expected)
{
    char found[9];
    if (dv_load_static(&dv_library_pol, &lib))
        return strstr(dv_last_error(), expected) ? 0 : 1;
    f = dv_library_operator(lib, 0), f_other = dv_library_operator(lib, 1), g = dv_library_operator(lib, 2),
    plain = dv_library_operator(lib, 3);
    decisions(found);
    int status = strcmp(found, expected) != 0;
    dv_policy_set("all");
    decisions(found);
    status |= strcmp(found, "11111111") != 0;
    dv_library_free(lib);
    dv_policy_set(NULL);
    return status;
}

static void test_environment(void **state)
{
    (void)state;
    if (getenv("UNDER_QEMU"))
        skip(); /* which cannot start another program for its own processor */
    FILE *file = fopen("test_policy_env.txt", "w");
    assert_non_null(file);
    fputs("none,+g\n", file);
    fclose(file);
    const char *self = "/proc/self/exe";
    assert_int_equal(child(self, NULL, NULL, "11111111"), 0);
    assert_int_equal(child(self, "vllm-default", NULL, "11110001"), 0);
    assert_int_equal(child(self, "all,-g", NULL, "11011101"), 0);
    assert_int_equal(child(self, NULL, "test_policy_env.txt", "00110011"), 0);
    assert_int_equal(child(self, "all", "test_policy_env.txt", "11111111"), 0);
    assert_int_equal(child(self, "al", NULL, "DOVETAIL_OPS: policy: expected all, none"), 0);
    assert_int_equal(child(self, NULL, "no_such_file", "DOVETAIL_POLICY: policy file no_such_file cannot be read"), 0);
    remove("test_policy_env.txt");
}

static int count(void *user, const char *name, uint64_t enabled, uint64_t disabled)
{
    dv__strbuf *t = user;
    dv__strbuf_printf(t, "%s %llu %llu; ", name, (unsigned long long)enabled, (unsigned long long)disabled);
    return 0;
}

static void test_counts(void **state)
{
    (void)state;
    dv__strbuf t = { 0 };
    atomic_store(&f->enabled_calls, 0), atomic_store(&f->disabled_calls, 0), atomic_store(&g->enabled_calls, 0),
        atomic_store(&g->disabled_calls, 0);
    atomic_store(&plain->enabled_calls, 0), atomic_store(&f_other->enabled_calls, 0), atomic_store(&f_other->disabled_calls, 0);
    dv_policy_set("all,-g");
    for (int i = 0; i < 3; i++)
        dv__policy_decide_if_enabled(f, false);
    dv__policy_decide_if_enabled(g, true);
    dv__policy_decide_if_enabled(plain, true);
    dv_policy_set("vllm-default");
    dv__policy_decide_if_enabled(f, true);
    dv_policy_set(NULL);
    assert_int_equal(dv_policy_counts(count, &t), 0);
    assert_string_equal(t.data, "pol::f 3 1; pol::f.other 0 0; pol::g 0 1; pol::plain 1 0; ");
    dv__strbuf_deinit(&t);
}

static int set_and_unset(void *arg)
{
    (void)arg;
    int status = dv_policy_set("all,-f,+pol::g");
    if (!status)
        status = dv_policy_set_thread("none,+f");
    dv_policy_set_thread(NULL);
    dv_policy_set(NULL);
    return status;
}

static void test_failing(void **state)
{
    (void)state;
    failing_each(set_and_unset, NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return in_child(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_bad_words),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_failing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
