/* Libraries and their lives, names, dispatch tables, rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define DV_STATIC
#include "registry/registry_internal.h"
#include "failing.h"

#include <stdio.h>

#define assert_ok(e) assert_int_equal_(e, #e)
static void assert_int_equal_(int status, const char *what)
{
    if (status)
        fail_msg("%s: %s: %s", what, dv_status_name(status), dv_last_error());
}

static void assert_message(const char *part)
{
    if (!strstr(dv_last_error(), part))
        fail_msg("'%s' is not in the message: %s", part, dv_last_error());
}

/* ---- A library and a vendor's ---- */

struct scale {
    const dv_tensor *x;
    double by;
    dv_tensor *out;
};
static int scale_any(dv_context *ctx, const struct scale *a)
{
    (void)ctx, (void)a;
    return DV_OK;
}
static int scale_fast(dv_context *ctx, const struct scale *a)
{
    (void)ctx, (void)a;
    return DV_OK;
}
static int scale_slow(dv_context *ctx, const struct scale *a)
{
    (void)ctx, (void)a;
    return DV_OK;
}
static int scale_npu(dv_context *ctx, const struct scale *a)
{
    (void)ctx, (void)a;
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, by, out), .schema = "scale(Tensor x, float by) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T", .doc = "x times a number",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_slow, .flags = DV_KERNEL_REFERENCE, .priority = 9),
        DV_KERNEL(struct scale, "cpu", "f32", scale_fast, .isa = "avx2", .when = "rank(x) < 3"),
        DV_KERNEL(struct scale, "cpu", NULL, scale_any), DV_KERNEL(struct scale, "npu", NULL, scale_npu)));
DV_OPERATOR(twice, struct scale, (x, by, out), .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", NULL, scale_any)));
DV_LIBRARY(lib_a, &dv_op_scale, &dv_op_twice);

/* Another layout of the same arguments, and a kernel for a processor of the future. */
struct vendor_scale {
    double by;
    dv_tensor *out;
    const dv_tensor *x;
};
static int vendor_cpu(dv_context *ctx, const struct vendor_scale *a)
{
    (void)ctx, (void)a;
    return DV_OK;
}
static int vendor_npu(dv_context *ctx, const struct vendor_scale *a)
{
    (void)ctx, (void)a;
    return DV_OK;
}
static const dv_operator_decl vendor_op = { .size = sizeof vendor_op,
    .name = "scale",
    .frame_size = sizeof(struct vendor_scale),
    .fields = DV_FIELDS(struct vendor_scale, by, out, x),
    .kernels = DV_KERNELS(DV_KERNEL(struct vendor_scale, "cpu", NULL, vendor_cpu),
        DV_KERNEL(struct vendor_scale, "npu", NULL, vendor_npu, .priority = -1),
        DV_KERNEL(struct vendor_scale, "cpu", NULL, vendor_cpu, .priority = 5, .isa = "quantum")) };
DV_LIBRARY_IMPL(lib_a, acme, &vendor_op);
#define dv_library_acme_decl dv_library_acme

static const dv_library_decl version_2 = { .size = sizeof version_2,
    .name = "lib_a",
    .version = "2.0",
    .operators = (const dv_operator_decl *const[]){ &dv_op_scale, NULL } };

static void row_names(const dv_operator *op, int key, char *out, size_t size)
{
    const dv__dispatch_entry *e = &atomic_load(&op->table)->entries[key];
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < e->nkernels; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? " " : "", e->kernels[i]->name);
}

static void test_load(void **state)
{
    (void)state;
    dv_library *lib, *again;
    dv_operator *op;
    char names[200];
    assert_ok(dv_load_static(&dv_library_lib_a, &lib));
    assert_string_equal(dv_library_name(lib), "lib_a");
    assert_null(dv_library_path(lib));
    assert_int_equal(dv_library_noperators(lib), 2);
    assert_ok(dv_find("lib_a::scale", &op));
    assert_ptr_equal(op, dv_library_operator(lib, 0));
    assert_null(dv_library_operator(lib, 2));
    assert_string_equal(dv_operator_name(op), "lib_a::scale");
    assert_string_equal(dv_operator_schema(op), "lib_a::scale(Tensor x, float by) -> Tensor out");
    assert_string_equal(dv_operator_schema(dv_library_operator(lib, 1)), "lib_a::twice(Tensor x, float by) -> Tensor out");
    assert_string_equal(dv_operator_doc(op), "x times a number");
    assert_int_equal(dv_operator_nargs(op), 2);
    assert_int_equal(dv_operator_nresults(op), 1);
    row_names(op, DV_KEY_CPU, names, sizeof names);
    assert_string_equal(names, "scale_fast scale_any scale_slow"); /* the reference last, whatever its priority */
    row_names(op, DV_KEY_PRIVATEUSE1, names, sizeof names);
    assert_string_equal(names, "scale_npu");
    const dv__kernel *row = atomic_load(&op->table)->entries[DV_KEY_CPU].kernels[0];
    assert_int_equal(row->isas, dv__isa_mask_of_names("avx2"));
    assert_string_equal(row->provider, "lib_a");
    assert_string_equal(row->when_text, "rank(x) < 3");
    assert_int_equal(row->binding->n, 3);
    assert_int_equal(row->binding->fields[1].slot, 1);
    assert_int_equal(row->binding->fields[1].offset, offsetof(struct scale, by));
    assert_int_equal(atomic_load(&op->table)->entries[DV_KEY_META].kind, DV__ENTRY_CONTRACT);
    assert_int_equal(atomic_load(&op->table)->entries[DV_KEY_CUDA].kind, DV__ENTRY_MISSING);
    assert_int_equal(dv_load_static(&dv_library_lib_a, &again), DV_EEXIST);
    assert_message("already loaded");
    assert_null(again);
    dv_library_free(lib);
    assert_false(atomic_load(&op->alive));
    assert_string_equal(dv_operator_name(op), "lib_a::scale"); /* a handle outlives its library */
    dv_operator_unref(op);
    assert_int_equal(dv_find("lib_a::scale", &op), DV_ENOENT);
    assert_null(op);
}

static void test_vendor(void **state)
{
    (void)state;
    dv_library *lib, *vendor;
    dv_operator *op;
    char names[200];
    for (int vendor_first = 0; vendor_first < 2; vendor_first++) {
        if (vendor_first)
            assert_ok(dv_load_static(&dv_library_acme, &vendor));
        assert_ok(dv_load_static(&dv_library_lib_a, &lib));
        if (!vendor_first)
            assert_ok(dv_load_static(&dv_library_acme, &vendor));
        assert_int_equal(dv_library_noperators(vendor), 0);
        assert_ok(dv_find("lib_a::scale", &op));
        row_names(op, DV_KEY_CPU, names, sizeof names);
        assert_string_equal(names, "vendor_cpu vendor_cpu scale_fast scale_any scale_slow");
        row_names(op, DV_KEY_PRIVATEUSE1, names, sizeof names);
        assert_string_equal(names, "scale_npu vendor_npu"); /* its priority is lower */
        const dv__kernel *row = atomic_load(&op->table)->entries[DV_KEY_CPU].kernels[0];
        assert_string_equal(row->provider, "acme");
        assert_int_equal(row->isas, 1u << DV__ISA_BASE | 1u << DV__ISA_UNKNOWN);
        assert_false(dv__isa_is_available(row->isas));
        row = atomic_load(&op->table)->entries[DV_KEY_CPU].kernels[1];
        assert_int_equal(row->binding->fields[0].slot, 1);
        assert_int_equal(row->binding->frame_size, sizeof(struct vendor_scale));
        dv_library_free(vendor);
        row_names(op, DV_KEY_CPU, names, sizeof names);
        assert_string_equal(names, "scale_fast scale_any scale_slow");
        dv_library_free(lib);
        dv_operator_unref(op);
    }
}

/* The two structs do not fit each other: an error for the vendor who comes second, a note when the library comes second. */
static void test_vendor_misfit(void **state)
{
    (void)state;
    struct wrong {
        const dv_tensor *x;
        int64_t by;
        dv_tensor *out;
    };
    const dv_operator_decl wrong_op = { .size = sizeof wrong_op,
        .name = "scale",
        .frame_size = sizeof(struct wrong),
        .fields = DV_FIELDS(struct wrong, x, by, out),
        .kernels = vendor_op.kernels };
    const dv_library_decl wrong_lib = { .size = sizeof wrong_lib,
        .kind = DV_LIBRARY_IMPL,
        .name = "lib_a",
        .provider = "wrong",
        .operators = (const dv_operator_decl *const[]){ &wrong_op, NULL } };
    dv_library *lib, *vendor;
    dv_operator *op;
    char names[200], *text;
    assert_ok(dv_load_static(&dv_library_lib_a, &lib));
    assert_int_equal(dv_load_static(&wrong_lib, &vendor), DV_ESCHEMA);
    assert_message("field 'by' is 'int64_t' but argument 'by' of type float needs 'double'");
    dv_library_free(lib);
    assert_ok(dv_load_static(&wrong_lib, &vendor));
    assert_ok(dv_load_static(&dv_library_lib_a, &lib));
    assert_ok(dv_find("lib_a::scale", &op));
    row_names(op, DV_KEY_CPU, names, sizeof names);
    assert_string_equal(names, "scale_fast scale_any scale_slow");
    assert_ok(dv_operator_describe(op, &text));
    assert_non_null(strstr(text, "wrong"));
    dv_free(text);
    dv_operator_unref(op);
    dv_library_free(lib);
    dv_library_free(vendor);
}

static void test_versions(void **state)
{
    (void)state;
    dv_library *one, *two, *other;
    dv_operator *a, *b, *found;
    assert_ok(dv_load_static(&dv_library_lib_a, &one));
    assert_ok(dv_load_static(&version_2, &two));
    assert_ok(dv_library_find(one, "scale", &a));
    assert_ok(dv_library_find(two, "lib_a::scale", &b));
    assert_ptr_not_equal(a, b);
    assert_ok(dv_find("lib_a::scale", &found));
    assert_ptr_equal(found, b);
    dv_operator_unref(found);
    assert_ok(dv__find_for_operator(a, "lib_a::scale", &found)); /* a formula of one version stays within it */
    assert_ptr_equal(found, a);
    dv_operator_unref(found);
    assert_ok(dv__find_for_operator(b, "lib_a::twice", &found)); /* not in its own library: the newest */
    dv_operator_unref(found);
    assert_int_equal(dv_library_find(two, "twice", &found), DV_ENOENT);
    assert_message("is not defined by library lib_a 2.0");
    assert_ok(dv_find("lib_a::twice", &found)); /* only the older one has it */
    dv_operator_unref(found);
    static const dv_library_decl same_version = { .size = sizeof same_version, .name = "lib_a", .version = "2.0" };
    assert_int_equal(dv_load_static(&same_version, &other), DV_EEXIST);
    assert_message("namespace lib_a is already defined by library lib_a 2.0");
    dv_library_free(two);
    assert_ok(dv_find("lib_a::scale", &found));
    assert_ptr_equal(found, a);
    dv_operator_unref(found);
    dv_operator_unref(a);
    dv_operator_unref(b);
    dv_library_free(one);
}

/* ---- By hand ---- */

static int boxed(
    void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host)
{
    (void)user, (void)op, (void)args, (void)nargs, (void)results, (void)nresults, (void)host;
    return DV_OK;
}

static void *user_of(const dv_operator *op, int key)
{
    const dv__dispatch_entry *e = &atomic_load(&op->table)->entries[key];
    return e->kind == DV__ENTRY_BOXED ? e->user : NULL;
}

static void test_by_hand(void **state)
{
    (void)state;
    int a, b;
    dv_library *def, *fragment, *impl, *other;
    dv_operator *op, *out;
    assert_ok(dv_library_new(DV_LIBRARY_IMPL, "hand", DV_KEY_CPU, &impl));
    assert_ok(dv_library_impl(impl, "f.out", DV_KEY_NONE, boxed, &a)); /* before anything is defined */
    assert_ok(dv_library_new(DV_LIBRARY_DEF, "hand", DV_KEY_NONE, &def));
    assert_ok(dv_library_define(def, "f(Tensor x) -> Tensor", "a b", &op));
    assert_ok(dv_library_new(DV_LIBRARY_FRAGMENT, "hand", DV_KEY_NONE, &fragment));
    assert_ok(dv_library_define(fragment, "hand::f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", NULL, &out));
    assert_null(user_of(op, DV_KEY_CPU));
    assert_ptr_equal(user_of(out, DV_KEY_CPU), &a);
    assert_ok(dv_library_impl(def, "f", DV_KEY_CPU, boxed, &a));
    assert_ptr_equal(user_of(op, DV_KEY_CPU), &a);
    assert_int_equal(dv_library_impl(def, "f", DV_KEY_CPU, boxed, &b), DV_EEXIST);
    assert_message("operator hand::f already has a kernel for CPU");
    assert_ok(dv_library_impl(impl, "f", DV_KEY_NONE, boxed, &b)); /* the newest wins */
    assert_ptr_equal(user_of(op, DV_KEY_CPU), &b);
    dv_library_free(impl);
    assert_ptr_equal(user_of(op, DV_KEY_CPU), &a); /* and leaves what was before */
    assert_null(user_of(out, DV_KEY_CPU));

    assert_int_equal(dv_library_define(fragment, "f(Tensor x) -> Tensor", NULL, NULL), DV_EEXIST);
    assert_message("operator hand::f is already defined by library hand");
    assert_int_equal(dv_library_new(DV_LIBRARY_DEF, "hand", DV_KEY_NONE, &other), DV_EEXIST);
    assert_int_equal(dv_library_new(DV_LIBRARY_DEF, "a b", DV_KEY_NONE, &other), DV_EINVAL);
    assert_message("a namespace is letters, digits and '_', not 'a b'");
    assert_int_equal(dv_library_new(7, "hand", DV_KEY_NONE, &other), DV_EINVAL);
    assert_int_equal(dv_library_new(DV_LIBRARY_DEF, "hand2", DV_KEY_CPU, &other), DV_EINVAL);
    assert_int_equal(dv_library_impl(def, "f", DV_KEY_NONE, boxed, NULL), DV_EINVAL);
    assert_message("needs a dispatch key");
    assert_int_equal(dv_library_impl(def, "other::f", DV_KEY_CPU, boxed, NULL), DV_EINVAL);
    assert_message("its namespace is not that of library hand");
    assert_int_equal(dv_library_impl(def, "f", DV_KEY_CUDA, NULL, NULL), DV_EINVAL);
    assert_int_equal(dv_library_define(def, "other::g(Tensor x) -> Tensor", NULL, NULL), DV_ESCHEMA);
    assert_message("the namespace is 'other' in the schema but 'hand' in the library");
    assert_int_equal(dv_library_define(def, "g(Tensor x -> Tensor", NULL, NULL), DV_ESYNTAX);
    assert_message("operator hand::g: schema: column");

    assert_ok(dv_library_new(DV_LIBRARY_IMPL, "hand", DV_KEY_CPU, &impl));
    assert_int_equal(dv_library_define(impl, "g(Tensor x) -> Tensor", NULL, NULL), DV_EINVAL);
    assert_int_equal(dv_library_impl(impl, "f", DV_KEY_CUDA, boxed, NULL), DV_EINVAL);
    assert_message("is for CPU only, not for CUDA");
    dv_library_free(impl);
    dv_library_free(fragment);
    dv_library_free(def);
    dv_library_free(NULL);
}

static void test_fallback(void **state)
{
    (void)state;
    int a;
    dv_library *def, *fallback, *other;
    dv_operator *before, *after;
    assert_ok(dv_library_new(DV_LIBRARY_DEF, "hand", DV_KEY_NONE, &def));
    assert_ok(dv_library_define(def, "before() -> ()", NULL, &before));
    assert_ok(dv_library_new(DV_LIBRARY_IMPL, "_", DV_KEY_NONE, &fallback));
    assert_ok(dv_library_new(DV_LIBRARY_IMPL, "_", DV_KEY_NONE, &other));
    assert_ok(dv_library_fallback(fallback, DV_KEY_CUDA, boxed, &a));
    assert_ok(dv_library_fallback(fallback, DV_KEY_CPU, NULL, NULL));
    assert_int_equal(dv_library_fallback(other, DV_KEY_CUDA, boxed, &a), DV_EEXIST);
    assert_int_equal(dv_library_fallback(other, DV_KEY_AUTOGRAD, boxed, &a), DV_EINVAL);
    assert_ok(dv_library_define(def, "after() -> ()", NULL, &after));
    dv_operator *both[] = { before, after };
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(user_of(both[i], DV_KEY_CUDA), &a);
        assert_int_equal(atomic_load(&both[i]->table)->entries[DV_KEY_CPU].kind, DV__ENTRY_FALLTHROUGH);
        assert_int_equal(atomic_load(&both[i]->table)->handled_keys & 1u << DV_KEY_CPU, 0);
        assert_int_not_equal(atomic_load(&both[i]->table)->handled_keys & 1u << DV_KEY_META, 0);
    }
    dv_library_free(fallback);
    for (int i = 0; i < 2; i++) {
        assert_null(user_of(both[i], DV_KEY_CUDA));
        assert_int_equal(atomic_load(&both[i]->table)->entries[DV_KEY_CPU].kind, DV__ENTRY_MISSING);
    }
    dv_library_free(other);
    dv_library_free(def);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *message;
    } rows[] = {
        { "scale", "operator scale not found: expected 'ns::name'; did you mean 'lib_a::scale'?" },
        { "lib_b::scale", "no library of namespace lib_b is loaded; namespaces: lib_a" },
        { "lib_a::scal", "operator lib_a::scal not found; did you mean 'lib_a::scale'?" },
        { "lib_a::scale.out", "operator lib_a::scale has no overload 'out'; there are: the default one" },
        { "lib_a::zzzzzzzzz", "operator lib_a::zzzzzzzzz not found" },
        { "", "operator  not found: expected 'ns::name'" },
        { "::", "no library of namespace  is loaded" },
    };
    dv_library *lib;
    dv_operator *op;
    assert_ok(dv_load_static(&dv_library_lib_a, &lib));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(dv_find(rows[i].name, &op), DV_ENOENT);
        assert_null(op);
        assert_message(rows[i].message);
    }
    dv_library_free(lib);
    assert_int_equal(dv_find("lib_a::scale", &op), DV_ENOENT);
    assert_message("namespaces: none");
}

static int collect(void *user, dv_operator *op)
{
    dv__strbuf *t = user;
    dv__strbuf_printf(t, "%s ", dv_operator_name(op));
    return strstr(dv_operator_name(op), "twice") ? 7 : 0;
}

static void test_each(void **state)
{
    (void)state;
    dv_library *lib, *hand;
    dv__strbuf t = { 0 };
    assert_ok(dv_load_static(&dv_library_lib_a, &lib));
    assert_ok(dv_library_new(DV_LIBRARY_FRAGMENT, "a", DV_KEY_NONE, &hand));
    assert_ok(dv_library_define(hand, "z() -> ()", NULL, NULL));
    assert_ok(dv_library_define(hand, "b.x() -> ()", NULL, NULL));
    assert_ok(dv_library_define(hand, "b() -> ()", NULL, NULL));
    assert_int_equal(dv_for_each_operator(collect, &t), 7);
    assert_string_equal(t.data, "a::b a::b.x a::z lib_a::scale lib_a::twice ");
    dv__strbuf_deinit(&t);
    dv_library_free(hand);
    dv_library_free(lib);
}

static void test_keys(void **state)
{
    (void)state;
    int key;
    for (int i = 0; i < DV_KEY_COUNT; i++) {
        assert_ok(dv_key_parse(dv_key_name(i), &key));
        assert_int_equal(key, i);
    }
    assert_int_equal(dv_key_parse("XLA", &key), DV_ENOENT);
    assert_message("unknown dispatch key 'XLA'; there are CPU, CUDA, PrivateUse1");
    assert_int_equal(dv__dispatch_keys_of_device(DV_CPU), 1u << DV_KEY_CPU | 1u << DV_KEY_AUTOGRAD_CPU);
    assert_int_equal(dv__dispatch_keys_of_device(DV_NPU), 1u << DV_KEY_PRIVATEUSE1 | 1u << DV_KEY_AUTOGRAD_PRIVATEUSE1);
    assert_int_equal(dv__dispatch_keys_of_device(DV_META), 1u << DV_KEY_META);
    assert_int_equal(dv__dispatch_keys_of_device(77), 0);
    /* A CUDA tensor with a CPU scalar: CUDA's keys, never AutogradCPU; excluding one autograd key excludes autograd. */
    const uint32_t cpu = dv__dispatch_keys_of_device(DV_CPU), cuda = dv__dispatch_keys_of_device(DV_CUDA),
                   meta = dv__dispatch_keys_of_device(DV_META);
    const dv_guard none = { 0, 0 }, no_autograd = { 0, 1u << DV_KEY_AUTOGRAD_CPU }, with_npu = { 1u << DV_KEY_PRIVATEUSE1, 0 };
    assert_int_equal(dv__dispatch_keys_of_call(cpu, none), cpu);
    assert_int_equal(dv__dispatch_keys_of_call(cpu | cuda, none), cuda);
    assert_int_equal(dv__dispatch_keys_of_call(cpu | meta, none), meta);
    assert_int_equal(dv__dispatch_keys_of_call(cuda, no_autograd), 1u << DV_KEY_CUDA);
    assert_int_equal(dv__dispatch_keys_of_call(cpu, with_npu), dv__dispatch_keys_of_device(DV_NPU));
    const dv_guard outer = dv_guard_push(1, 2), inner = dv_guard_push(4, 8);
    assert_int_equal(dv__guards()->included, 5);
    assert_int_equal(dv__guards()->excluded, 10);
    dv_guard_pop(inner);
    assert_int_equal(dv__guards()->included, 1);
    dv_guard_pop(outer);
    assert_int_equal(dv__guards()->included | dv__guards()->excluded, 0);
}

static void test_isa(void **state)
{
    (void)state;
    char has[128];
    snprintf(has, sizeof has, "%s", dv_get_isa());
    assert_true(dv__isa_is_available(dv__isa_mask_of_names("")));
    assert_true(dv__isa_is_available(dv__isa_mask_of_names(has)));
    assert_false(dv__isa_is_available(dv__isa_mask_of_names("amx")));
    assert_int_equal(dv__isa_mask_of_names(NULL), 1u << DV__ISA_BASE);
    assert_int_equal(dv__isa_mask_of_names("avx512"), 1u << DV__ISA_BASE | 1u << DV__ISA_AVX2 | 1u << DV__ISA_AVX512);
    assert_int_equal(dv__isa_mask_of_names("avx512bf16+avx2"), dv__isa_mask_of_names("avx512") | 1u << DV__ISA_AVX512BF16);
    assert_int_equal(dv__isa_mask_of_names(" neon,avx512 "), dv__isa_mask_of_names("avx512") | 1u << DV__ISA_NEON);
    assert_int_equal(dv__isa_mask_of_names("amx"), 1u << DV__ISA_BASE | 1u << DV__ISA_UNKNOWN);
    assert_int_equal(dv__isa_mask_of_names("avx5"), dv__isa_mask_of_names("amx"));
    assert_ok(dv_set_isa("base"));
    assert_string_equal(dv_get_isa(), "base");
    assert_false(dv__isa_is_available(dv__isa_mask_of_names("avx2")));
    assert_int_equal(dv_set_isa("mmx"), DV_EINVAL);
    assert_message("no instruction set 'mmx' on this architecture; there are base");
    assert_ok(dv_set_isa(NULL));
    assert_string_equal(dv_get_isa(), has);
#if defined(__x86_64__)
    static const char *const better[] = { "avx512bf16", "avx512vnni" };
    const bool avx512 = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    assert_int_equal(dv__isa_is_available(dv__isa_mask_of_names("avx2")), __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(dv__isa_is_available(dv__isa_mask_of_names("avx512")), avx512);
    assert_int_equal(dv__isa_is_available(dv__isa_mask_of_names(better[0])), __builtin_cpu_supports("avx512bf16") != 0);
    assert_int_equal(dv__isa_is_available(dv__isa_mask_of_names(better[1])), __builtin_cpu_supports("avx512vnni") != 0);
    assert_int_equal(dv_set_isa("neon"), DV_EINVAL);
    assert_false(dv__isa_is_available(dv__isa_mask_of_names("neon")));
    for (int i = 0; i < 2; i++) { /* each without the other */
        assert_ok(dv_set_isa(better[i]));
        assert_false(dv__isa_is_available(dv__isa_mask_of_names(better[!i])));
        if (avx512)
            assert_string_equal(dv_get_isa(), dv__isa_is_available(dv__isa_mask_of_names(better[i])) ? better[i] : "avx512");
    }
    assert_ok(dv_set_isa("avx512"));
    assert_false(dv__isa_is_available(dv__isa_mask_of_names(better[0])));
    assert_ok(dv_set_isa(NULL));
#endif
}

/* ---- Every allocation failed ---- */

static int load_and_unload(void *arg)
{
    (void)arg;
    dv_library *lib = NULL, *vendor = NULL, *two = NULL;
    int status = dv_load_static(&dv_library_acme, &vendor);
    if (!status)
        status = dv_load_static(&dv_library_lib_a, &lib);
    if (!status)
        status = dv_load_static(&version_2, &two);
    dv_operator *op;
    assert_int_equal(dv_find("lib_a::scale", &op) == DV_OK, lib != NULL); /* all of a library or nothing */
    dv_operator_unref(op);
    dv_library_free(vendor);
    dv_library_free(two);
    dv_library_free(lib);
    return status;
}

static int by_hand(void *arg)
{
    (void)arg;
    dv_library *def = NULL, *impl = NULL;
    dv_operator *op = NULL;
    int status = dv_library_new(DV_LIBRARY_DEF, "hand", DV_KEY_NONE, &def);
    if (!status)
        status = dv_library_new(DV_LIBRARY_IMPL, "hand", DV_KEY_NONE, &impl);
    if (!status)
        status = dv_library_impl(impl, "f", DV_KEY_CPU, boxed, NULL);
    if (!status)
        status = dv_library_define(def, "f(Tensor x) -> Tensor", "tag", &op);
    if (!status)
        status = dv_library_impl(impl, "f", DV_KEY_AUTOGRAD, boxed, NULL);
    if (!status)
        status = dv_library_fallback(impl, DV_KEY_CUDA, boxed, NULL);
    if (!status)
        status = dv_library_impl_fallthrough(def, "f", DV_KEY_CPU);
    if (op)
        dv_operator_ref(op);
    dv_library_free(impl);
    if (op) {
        assert_int_not_equal(atomic_load(&op->table)->entries[DV_KEY_CPU].kind, DV__ENTRY_BOXED);
        dv_operator_unref(op);
    }
    dv_library_free(def);
    return status;
}

static int ask(void *arg)
{
    dv_operator *op;
    char *text;
    (void)arg;
    dv_library *lib;
    int status = dv_load_static(&dv_library_lib_a, &lib);
    if (status)
        return status;
    assert_int_equal(dv_find("lib_a::scale", &op), DV_OK);
    if (!(status = dv_operator_json(op, &text))) {
        dv_free(text);
        if (!(status = dv_operator_describe(op, &text))) {
            dv_free(text);
            if (!(status = dv_operator_dump_table(op, &text)))
                dv_free(text);
        }
    }
    dv_operator_unref(op);
    dv_library_free(lib);
    return status;
}

/* From a file: a shipped operator with formulas over the base set, which stays loaded once it is needed. */
static int load_file(void *arg)
{
    dv_library *lib;
    const int status = dv_load(arg, &lib);
    if (status)
        return status;
    assert_int_equal(dv_library_noperators(lib) > 0, 1);
    assert_string_equal(strrchr(dv_library_path(lib), '/'), "/swiglu.so");
    dv_library_free(lib);
    return DV_OK;
}

static void test_failing_file(void **state)
{
    (void)state;
    dv_operator *op;
    assert_ok(dv__find_base_operator("silu", &op));
    dv_operator_unref(op);
    assert_int_equal(dv__find_base_operator("silly", &op), DV_ENOENT);
    assert_message("operator base::silly not found; did you mean 'base::silu'");
    failing_each(load_file, BUILD_DIR "/ops/swiglu.so");
}

static void test_failing(void **state)
{
    (void)state;
    failing_each(load_and_unload, NULL);
    failing_each(by_hand, NULL);
    failing_each(ask, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_vendor),
        cmocka_unit_test(test_vendor_misfit),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_failing),
        cmocka_unit_test(test_failing_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
