/* Declarations: structs matched with schemas, and everything that is refused when a library is loaded, with its message. */
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

static int run(dv_context *ctx, const void *frame)
{
    (void)ctx, (void)frame;
    return DV_OK;
}

#define OP(FRAME, FIELDS, ...)                              \
    { .size = sizeof(dv_operator_decl),                     \
        .name = "f",                                        \
        .frame_size = sizeof(FRAME),                        \
        .fields = DV__FIELDS_OF(FRAME, DV__UNPAREN FIELDS), \
        __VA_ARGS__ }
/* clang-format off */
#define ROW(...) DV_KERNELS(&(const dv_kernel_decl){ .size = sizeof(dv_kernel_decl), .name = "k", .run = run, __VA_ARGS__ })
/* clang-format on */

struct unary {
    const dv_tensor *x;
    dv_tensor *out;
};
struct scaled {
    const dv_tensor *x;
    double by;
    dv_tensor *out;
};
struct counted {
    const dv_tensor *x;
    int64_t n;
    dv_tensor *out;
};
struct in_place { dv_tensor *x; };
struct two {
    const dv_tensor *x;
    dv_tensor *a, *b;
};
struct lists {
    dv_tensors xs;
    dv_ints n;
    dv_opt_ints m;
    dv_mut_tensors outs;
};
struct keyword {
    const dv_tensor *x;
    int64_t default_;
    dv_tensor *out_;
};
struct scalars {
    int64_t n;
    int64_t *a;
    double *b;
    bool *c;
};
struct all {
    const dv_tensor *t, *ot;
    dv_tensor *mt;
    int64_t i, si;
    double f, sf;
    bool b;
    dv_string s;
    dv_scalar sc;
    dv_complex c;
    dv_dtype dt;
    dv_device dev;
    dv_layout lay;
    dv_memory_format mf;
    const dv_generator *gen;
    dv_tensors ts, ots;
    dv_mut_tensors mts;
    dv_ints is_;
    dv_floats fs;
    dv_bools bs;
    dv_strings ss;
    dv_scalars scs;
    dv_complexes cs;
    dv_dtypes dts;
    dv_devices devs;
    dv_opt_int oi;
    dv_opt_float of_;
    dv_opt_bool ob;
    dv_opt_string os;
    dv_opt_scalar osc;
    dv_opt_dtype odt;
    dv_opt_device odev;
    dv_opt_layout olay;
    dv_opt_memory_format omf;
    dv_opt_tensors opts;
    dv_opt_ints ois;
    dv_opt_floats ofs;
    dv_opt_bools obs;
    dv_opt_strings oss;
    dv_tensor *out;
    dv_mut_tensors outs;
    int64_t *n;
    double *e;
    bool *yes;
};

/* ---- Accepted: slots in the order of the fields ---- */

static const struct good {
    dv_operator_decl op;
    const char *slots;
} good[] = {
    { OP(struct unary, (x, out), .schema = "f(Tensor x) -> Tensor"), "0 1" },
    { OP(struct unary, (out, x), .schema = "f(Tensor x) -> Tensor out"), "1 0" },
    { OP(struct unary, (x, out), .schema = "f(Tensor? x) -> Tensor"), "0 1" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"), "0 1" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x, Tensor(a!) out) -> ()"), "0 1" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x, Tensor(a!)? out=None) -> ()"), "0 1" },
    { OP(struct unary, (x, out), .schema = "f(Tensor(a) x) -> Tensor(a)"), "0 1" },
    { OP(struct in_place, (x), .schema = "f(Tensor(a!) x) -> Tensor(a!)"), "0" },
    { OP(struct two, (x, b, a), .schema = "f(Tensor x) -> (Tensor, Tensor)"), "0 1 2" }, /* unnamed: in the order of the fields */
    { OP(struct two, (x, b, a), .schema = "f(Tensor x) -> (Tensor a, Tensor b)"), "0 2 1" },
    { OP(struct two, (x, a, b), .schema = "f(Tensor x) -> (Tensor, Tensor b)"), "0 1 2" },
    { OP(struct lists, (xs, n, m, outs), .schema = "f(Tensor[] xs, SymInt[2] n, int[]? m=None) -> Tensor[]"), "0 1 2 3" },
    { OP(struct lists, (xs, n, m, outs), .schema = "f(Tensor?[] xs, int[] n, SymInt[]? m, Tensor(a!)[] outs) -> ()"), "0 1 2 3" },
    { OP(struct keyword, (x, default_, out_), .schema = "f(Tensor x, int default) -> Tensor out"), "0 1 2" },
    { OP(struct keyword, (x, default_, out_), .schema = "f(Tensor x, int default_) -> Tensor"), "0 1 2" },
    { OP(struct scalars, (n, a, b, c), .schema = "f(int n) -> (SymInt, float, bool)"), "0 1 2 3" },
    { OP(struct unary, (x, out)), "0 1" },
    { OP(struct in_place, (x), .mutates = "x"), "0" },
    { OP(struct all,
          (t, ot, mt, i, si, f, sf, b, s, sc, c, dt, dev, lay, mf, gen, ts, ots, mts, is_, fs, bs, ss, scs, cs, dts, devs, oi,
              of_, ob, os, osc, odt, odev, olay, omf, opts, ois, ofs, obs, oss, out, outs, n, e, yes),
          .schema =
              "f(Tensor t, Tensor? ot, Tensor(a!) mt, int i, SymInt si, float f, float sf, bool b, str s, Scalar sc, complex c, "
              "ScalarType dt, Device dev, Layout lay, MemoryFormat mf, Generator? gen, Tensor[] ts, Tensor?[] ots, Tensor(b!)[] "
              "mts, "
              "int[] is_, float[] fs, bool[] bs, str[] ss, Scalar[] scs, complex[] cs, ScalarType[] dts, Device[] devs, int? oi, "
              "float? of_, bool? ob, str? os, Scalar? osc, ScalarType? odt, Device? odev, Layout? olay, MemoryFormat? omf, "
              "Tensor[]? opts, SymInt[]? ois, float[]? ofs, bool[]? obs, str[]? oss) -> (Tensor, Tensor[], int, float, bool)"),
        "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 "
        "43 44 45" },
};

static int load_one(const dv_operator_decl *op, dv_library **lib)
{
    const dv_operator_decl *const ops[] = { op, NULL };
    const dv_library_decl decl = { .size = sizeof decl, .name = "decl", .operators = ops };
    return dv_load_static(&decl, lib);
}

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        dv_library *lib;
        dv__strbuf slots = { 0 };
        if (load_one(&good[i].op, &lib))
            fail_msg("row %zu: %s", i, dv_last_error());
        const dv__binding *b = dv_library_operator(lib, 0)->binding;
        for (uint32_t k = 0; k < b->n; k++) {
            dv__strbuf_printf(&slots, "%s%u", k ? " " : "", b->fields[k].slot);
            assert_int_equal(b->fields[k].offset, good[i].op.fields[k]->offset);
            assert_int_equal(b->fields[k].type, good[i].op.fields[k]->type);
        }
        if (strcmp(slots.data, good[i].slots) != 0)
            fail_msg("row %zu: slots %s, expected %s", i, slots.data, good[i].slots);
        dv__strbuf_deinit(&slots);
        dv_library_free(lib);
    }
}

/* ---- Refused ---- */

#define S "f(Tensor x) -> Tensor out"
#define C "x[*s]:T -> out[*s]:T"
static const dv_field_decl far = { sizeof far, DV_FIELD_TENSOR, "x", 4096 }, strange = { sizeof strange, 99, "x", 0 },
                           nameless = { sizeof nameless, DV_FIELD_TENSOR, "", 0 }, typeless = { sizeof typeless, 0, "x", 0 };
#define RAW(FIELD)                                                                                      \
    {                                                                                                   \
        .size = sizeof(dv_operator_decl), .name = "f", .frame_size = 16, .schema = "f(Tensor x) -> ()", \
        .fields = (const dv_field_decl *const[])                                                        \
        {                                                                                               \
            &FIELD, NULL                                                                                \
        }                                                                                               \
    }

static const struct bad {
    dv_operator_decl op;
    int status;
    const char *message;
} bad[] = {
    /* the struct against the schema */
    { OP(struct unary, (x, out), .schema = "f(Tensor x, Tensor y) -> Tensor"), DV_ESCHEMA,
        "operator decl::f: argument 'y' of type Tensor is not in DV_OPERATOR's list of fields; expected a field 'const dv_tensor "
        "*'" },
    { OP(struct unary, (x), .schema = S), DV_ESCHEMA,
        "result 'out' of type Tensor is not in DV_OPERATOR's list of fields; expected a field 'dv_tensor *'" },
    { OP(struct unary, (x), .schema = "f(Tensor x) -> Tensor"), DV_ESCHEMA, "result 0 of type Tensor is not in" },
    { OP(struct two, (x, a), .schema = "f(Tensor x) -> (Tensor, Tensor)"), DV_ESCHEMA, "result 1 of type Tensor is not in" },
    { OP(struct two, (x, a, b), .schema = "f(Tensor x) -> Tensor"), DV_ESCHEMA,
        "field 'b' is neither an argument nor a result of 'decl::f(Tensor x) -> Tensor'" },
    { OP(struct unary, (x, out), .schema = "f(Tensor y) -> Tensor out"), DV_ESCHEMA,
        "field 'x' is neither an argument nor a result" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, int num) -> Tensor out"), DV_ESCHEMA, "field 'n' is neither" },
    { OP(struct keyword, (x, default_, out_), .schema = "f(Tensor x, int defaults) -> Tensor"), DV_ESCHEMA,
        "did you mean 'defaults'?" },
    { OP(struct unary, (x, x, out), .schema = S), DV_ESCHEMA, "field 'x' is listed twice" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, float n) -> Tensor out"), DV_ESCHEMA,
        "field 'n' is 'int64_t' but argument 'n' of type float needs 'double'" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, int? n) -> Tensor out"), DV_ESCHEMA, "needs 'dv_opt_int'" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, Scalar n) -> Tensor out"), DV_ESCHEMA, "needs 'dv_scalar'" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, bool n) -> Tensor out"), DV_ESCHEMA, "needs 'bool'" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, str n) -> Tensor out"), DV_ESCHEMA, "needs 'dv_string'" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, ScalarType n) -> Tensor out"), DV_ESCHEMA, "needs 'dv_dtype'" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, int[] n) -> Tensor out"), DV_ESCHEMA, "needs 'dv_ints'" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, Dimname n) -> Tensor out"), DV_ESYNTAX, "found 'Dimname'" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x, Storage y) -> Tensor out"), DV_ESCHEMA,
        "argument 'y': an operator cannot have the type Storage" },
    { OP(struct unary, (x, out), .schema = "f(Tensor(a!) x) -> Tensor out"), DV_ESCHEMA,
        "field 'x' is 'const dv_tensor *' but argument 'x' of type Tensor, which is written needs 'dv_tensor *'" },
    { OP(struct in_place, (x), .schema = "f(Tensor x) -> ()"), DV_ESCHEMA,
        "field 'x' is 'dv_tensor *' but argument 'x' of type Tensor needs 'const dv_tensor *'" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x, Tensor out) -> ()"), DV_ESCHEMA,
        "field 'out' is 'dv_tensor *' but argument 'out' of type Tensor needs 'const dv_tensor *'" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x) -> int out"), DV_ESCHEMA, "result 'out' of type int needs 'int64_t *'" },
    { OP(struct unary, (x, out), .schema = "f(Tensor[] x) -> Tensor out"), DV_ESCHEMA, "needs 'dv_tensors'" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x) -> Tensor[] out"), DV_ESCHEMA, "needs 'dv_mut_tensors'" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x) -> str out"), DV_ESCHEMA,
        "result 'out' of type str cannot be held by a struct" },
    { OP(struct lists, (xs, n, m, outs), .schema = "f(Tensor(a!)[] xs, int[] n, int[]? m) -> Tensor[]"), DV_ESCHEMA,
        "needs 'dv_mut_tensors'" },
    { OP(struct lists, (xs, n, m, outs), .schema = "f(Tensor[] xs, int[]? n, int[]? m) -> Tensor[]"), DV_ESCHEMA,
        "needs 'dv_opt_ints'" },
    { RAW(far), DV_EBINARY, "field 'x' (8 bytes at 4096) is not inside its struct of 16 bytes" },
    { RAW(strange), DV_EABI, "operator f: field 'x' has type number 99" },
    { RAW(typeless), DV_EABI, "operator f: field 'x' has type number 0" },
    { RAW(nameless), DV_ESCHEMA, "operator decl::f: a field has no name" },
    /* the schema */
    { OP(struct unary, (x, out), .schema = "f(Tensor x) -> Tenso out"), DV_ESYNTAX, "schema" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x -> Tensor out"), DV_ESYNTAX, "operator decl::f: schema: column" },
    { OP(struct unary, (x, out), .schema = ""), DV_ESYNTAX, "operator decl::f: schema: column 1" },
    { OP(struct unary, (x, out), .schema = "f(Tensor x, Tensor x) -> Tensor out"), DV_ESCHEMA, "'x'" },
    { OP(struct counted, (x, n, out), .schema = "f(Tensor x, int n=1.5) -> Tensor out"), DV_ESCHEMA, "'n'" },
    { OP(struct unary, (x, out), .schema = "other::f(Tensor x) -> Tensor out"), DV_ESCHEMA,
        "the namespace is 'other' in the schema but 'decl' in the library" },
    { OP(struct unary, (x, out), .schema = S, .mutates = "out"), DV_ESCHEMA, "'mutates' is for operators without a schema" },
    { OP(struct unary, (x, out), .mutates = "y"), DV_ESCHEMA, "'y'" },
    { OP(struct unary, (x, out), .mutates = "x"), DV_ESCHEMA, "'x'" },
    { { .size = sizeof(dv_operator_decl), .name = "f" }, DV_ESCHEMA, "neither a schema nor a struct to infer one from" },
    { { .size = sizeof(dv_operator_decl), .schema = S }, DV_EBINARY, "operator 0: it has no name" },
    { { .size = sizeof(dv_operator_decl), .name = "f", .schema = S }, DV_ESCHEMA,
        "argument 'x' of type Tensor is not in DV_OPERATOR's list of fields" },
    /* the contract */
    { OP(struct unary, (x, out), .schema = S, .contract = "x[*s -> out[*s]:T"), DV_ESYNTAX,
        "operator decl::f: contract: column" },
    { OP(struct unary, (x, out), .schema = S, .contract = "y[*s]:T -> out[*s]:T"), DV_ECONTRACT, "y" },
    { OP(struct unary, (x, out), .schema = S, .contract = "x[*s]:T -> out[n]:T"), DV_ECONTRACT, "n" },
    /* rows */
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = NULL)), DV_EDEVICE,
        "kernel k: device: expected 'cpu', 'cuda' or 'npu', found none" },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "gpu")), DV_EDEVICE,
        "operator decl::f: kernel k: device: " },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cuda:1")), DV_EDEVICE,
        "a kernel is for all devices of a type" },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "meta")), DV_EDEVICE,
        "expected one that runs kernels" },
    { OP(struct unary, (x, out), .schema = S, .kernels = ROW(.device = "cpu", .dtypes = "f32")), DV_ECONTRACT,
        "dtypes: 'f32' needs a contract that has a dtype variable" },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .dtypes = "float")), DV_ECONTRACT,
        "operator decl::f: kernel k: dtypes of a kernel: column 1: expected a dtype such as f32, found 'float'" },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .dtypes = "U=f32")), DV_ECONTRACT,
        "kernel k: dtypes of a kernel: " },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .dtypes = "f32,,")), DV_ECONTRACT,
        "kernel k: dtypes of a kernel: column 5" },
    { OP(struct unary, (x, out), .schema = S, .kernels = ROW(.device = "cpu", .when = "n > 1")), DV_ECONTRACT,
        "when: 'n > 1' needs a contract" },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .when = "n > 1")), DV_ECONTRACT,
        "kernel k: predicate: " },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .when = "rank(x) >")), DV_ESYNTAX,
        "kernel k: predicate: " },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .takes = "strided(z)")), DV_ESYNTAX,
        "kernel k: takes: column 9: expected an argument or return" },
    { OP(struct unary, (x, out), .schema = S, .kernels = ROW(.device = "cpu", .takes = "strided(z)")), DV_ESYNTAX,
        "kernel k: takes: " },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .takes = "align(x, 3)")),
        DV_ECONTRACT, "kernel k: takes: " },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .split = -1)), DV_EBINARY,
        "'k': .split is -1, expected 0 or more" },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .split = 64)), DV_ECONTRACT,
        "kernel k: split: no dims of a parallel(...)" },
    { OP(struct unary, (x, out), .schema = S, .kernels = ROW(.device = "cpu", .split = 64)), DV_ECONTRACT,
        "kernel k: split: no dims of a parallel(...)" },
    { OP(struct unary, (x, out), .schema = S,
          .contract = "when dtype(x) == f32: x[m n]:f32, parallel(n) -> out[m n]:f32 / else: x[*s]:f64 -> out[*s]:f64",
          .kernels = ROW(.device = "cpu", .split = 64)),
        DV_ECONTRACT, "kernel k: split: no dims of a parallel(...)" },
    { OP(struct unary, (x, out), .schema = S, .contract = C "; parallel(*s)", .kernels = ROW(.device = "cuda", .split = 64)),
        DV_EINVAL, "kernel k: split: only kernels for the CPU are split" },
    { OP(struct unary, (x, out), .schema = S, .contract = C, .kernels = ROW(.device = "cpu", .flags = 6)), DV_EABI,
        "'k': flags 0x6 are not known to this runtime" },
    /* formulas */
    { OP(struct unary, (x, out), .schema = S, .native = "g(x"), DV_ESYNTAX, "operator decl::f: native: column 4" },
    { OP(struct unary, (x, out), .schema = S, .native = "there::g(z)"), DV_ESCHEMA,
        "operator decl::f: native: column 10: unknown name 'z'; there are: x" },
    { OP(struct unary, (x, out), .schema = S, .native = "3"), DV_ESCHEMA, "'out' takes Tensor, found int" },
    { OP(struct unary, (x, out), .schema = S, .native = "decl::g(x)"), DV_ENOENT,
        "native: column 1: operator decl::g is not defined by this library" },
    { OP(struct lists, (xs, n, m, outs), .schema = "f(Tensor[] xs, SymInt[2] n, int[]? m=None) -> Tensor[] outs",
          .contract = "xs{i}[...]:f32 -> outs{j < 2}[3]:f32", .native = "[xs[0]]"),
        DV_ESCHEMA, "native: result 'outs': expected as many tensors as the contract gives, 2, found 1" },
    { OP(struct lists, (xs, n, m, outs), .schema = "f(Tensor[] xs, SymInt[2] n, int[]? m=None) -> Tensor[] outs",
          .contract = "xs{i}[...]:f32 -> outs{j < 2}[3]:f32", .gradient = "xs: there::g(grad[0], grad[2])"),
        DV_ESCHEMA, "gradient: result 'outs': expected an index below 2, found 2" },
    { OP(struct unary, (x, out), .schema = S, .gradient = "z: grad"), DV_ESCHEMA,
        "operator decl::f: gradient: column 1: 'z' is not an argument of the operator; there are: x" },
    { OP(struct unary, (x, out), .schema = S, .gradient = "x: f(grad, grad)"), DV_ESCHEMA,
        "too many arguments: decl::f(Tensor x) -> Tensor out" },
    { OP(struct unary, (x, out), .schema = S, .gradient = "x: grad, x"), DV_ESYNTAX, "expected ';' or the end, found ','" },
    { OP(struct unary, (x, out), .schema = S, .tangent = "x: x_t"), DV_ESCHEMA,
        "operator decl::f: tangent: column 1: 'x' is not a result" },
};

static void test_bad(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dv_library *lib;
        dv_clear_error();
        const int status = load_one(&bad[i].op, &lib);
        if (status == bad[i].status && strstr(dv_last_error(), bad[i].message) && strstr(dv_last_error(), "operator ") && !lib)
            continue;
        print_message("row %zu (%s): %s: %s\n  expected %s: %s\n", i, bad[i].op.schema ? bad[i].op.schema : "no schema",
            dv_status_name(status), dv_last_error(), dv_status_name(bad[i].status), bad[i].message);
        wrong++;
        dv_library_free(lib);
    }
    assert_int_equal(wrong, 0);
    dv_operator *op;
    assert_int_equal(dv_find("decl::f", &op), DV_ENOENT); /* nothing of them is left */
}

/* ---- Libraries ---- */

static const dv_operator_decl plain = OP(struct unary, (x, out), .schema = S, .kernels = ROW(.device = "cpu"));
static const dv_operator_decl broken = OP(struct unary, (x), .schema = "g(Tensor x) -> Tensor out");
static const dv_operator_decl vendor_contract = OP(struct unary, (x, out), .contract = C, .kernels = ROW(.device = "cpu"));
static const dv_operator_decl vendor_nothing = OP(struct unary, (x, out));
static const dv_operator_decl vendor_elsewhere = OP(struct unary, (x, out), .schema = "else::f", .kernels = ROW(.device = "cpu"));
#define LIB(NAME, KIND, ...)                                                                                        \
    {                                                                                                               \
        .size = sizeof(dv_library_decl), .name = NAME, .kind = KIND, .operators = (const dv_operator_decl *const[]) \
        {                                                                                                           \
            __VA_ARGS__, NULL                                                                                       \
        }                                                                                                           \
    }

static const struct {
    dv_library_decl lib;
    int status;
    const char *message;
} bad_libraries[] = {
    { LIB("decl", DV_LIBRARY_DEF, &plain, &plain), DV_EEXIST, "operator decl::f is declared twice" },
    { LIB("decl", DV_LIBRARY_DEF, &plain, &broken), DV_ESCHEMA, "operator decl::g: result 'out'" },
    { LIB("de cl", DV_LIBRARY_DEF, &plain), DV_EINVAL, "a namespace is letters, digits and '_', not 'de cl'" },
    { LIB("", DV_LIBRARY_DEF, &plain), DV_EINVAL, "a namespace is" },
    { LIB("3d", DV_LIBRARY_DEF, &plain), DV_EINVAL, "a namespace is" },
    { LIB("decl", DV_LIBRARY_IMPL, &vendor_contract), DV_ESCHEMA,
        "operator decl::f: a library of kernels cannot say 'contract'" },
    { LIB("decl", DV_LIBRARY_IMPL, &vendor_nothing), DV_ESCHEMA,
        "operator decl::f: a library of kernels brings no kernel for it" },
    { LIB("decl", DV_LIBRARY_IMPL, &vendor_elsewhere), DV_ESCHEMA, "operator else::f: the library adds to namespace decl" },
};

static void test_bad_libraries(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_libraries / sizeof bad_libraries[0]; i++) {
        dv_library *lib;
        dv_operator *op;
        const int status = dv_load_static(&bad_libraries[i].lib, &lib);
        if (status != bad_libraries[i].status || !strstr(dv_last_error(), bad_libraries[i].message))
            fail_msg("row %zu: %s: %s\nexpected: %s", i, dv_status_name(status), dv_last_error(), bad_libraries[i].message);
        assert_int_equal(dv_find("decl::f", &op), DV_ENOENT);
    }
}

/* ---- Formulas that call operators of their own library, in any order, and of others ---- */

static void test_formulas(void **state)
{
    (void)state;
    const dv_operator_decl f = OP(
        struct unary, (x, out), .schema = S, .gradient = "x: f_grad(grad, x)", .native = "elsewhere::h(f_grad(x, x))");
    struct f_grad {
        const dv_tensor *grad_out, *x;
        dv_tensor *out;
    };
    const dv_operator_decl f_grad = OP(struct f_grad, (grad_out, x, out), .schema = "f_grad(Tensor grad_out, Tensor x) -> Tensor",
        .gradient = "grad_out: f_grad(grad, x)", .tangent = "result: f_grad(grad_out_t, x)", .kernels = ROW(.device = "cpu"));
    const dv_operator_decl wrong = OP(
        struct unary, (x, out), .schema = "wrong(Tensor x) -> Tensor out", .gradient = "x: f_grad(grad)");
    const dv_operator_decl *const ops[] = { &f, &f_grad, NULL }, *const with_wrong[] = { &f, &wrong, &f_grad, NULL };
    const dv_library_decl decl = { .size = sizeof decl, .name = "decl", .operators = ops };
    const dv_library_decl wrong_decl = { .size = sizeof decl, .name = "decl", .operators = with_wrong };
    dv_library *lib, *elsewhere;
    dv_operator *op;
    char *json;
    assert_int_equal(dv_load_static(&wrong_decl, &lib), DV_ESCHEMA);
    assert_non_null(strstr(
        dv_last_error(), "operator decl::wrong: gradient: column 4: argument 'x' is missing: decl::f_grad(Tensor grad_out"));
    if (dv_load_static(&decl, &lib))
        fail_msg("%s", dv_last_error());
    assert_int_equal(dv_find("decl::f", &op), DV_OK);
    assert_int_equal(dv_operator_json(op, &json), DV_OK);
    assert_non_null(strstr(json,
        "\"clauses\": [{\"targets\": [0], \"value\": [\"call\", \"decl::f_grad\", [\"grad\", 0], [\"arg\", \"x\"]]}], \"saves\": "
        "[1, 0]"));
    assert_non_null(strstr(json, "[\"call\", \"elsewhere::h\", [\"call\", \"decl::f_grad\""));
    dv_free(json);
    /* no kernel, a decomposition and a gradient: CompositeExplicitAutograd */
    assert_int_equal(atomic_load(&op->table)->entries[DV_KEY_CUDA].kind, DV__ENTRY_DECOMPOSITION);
    assert_string_equal(atomic_load(&op->table)->entries[DV_KEY_CUDA].from, "default backend kernel");
    assert_int_equal(atomic_load(&op->table)->entries[DV_KEY_AUTOGRAD_CUDA].kind, DV__ENTRY_FALLTHROUGH);
    dv_operator_unref(op);
    dv_library_free(lib);

    assert_int_equal(dv_library_new(DV_LIBRARY_DEF, "elsewhere", DV_KEY_NONE, &elsewhere), DV_OK);
    assert_int_equal(dv_library_define(elsewhere, "hh(Tensor x) -> Tensor", NULL, NULL), DV_OK);
    assert_int_equal(dv_load_static(&decl, &lib), DV_ENOENT); /* the namespace is there, the operator is not */
    assert_non_null(strstr(
        dv_last_error(), "operator decl::f: native: column 1: operator elsewhere::h not found; did you mean 'elsewhere::hh'?"));
    assert_int_equal(dv_library_define(elsewhere, "h(Tensor x, int n) -> Tensor", NULL, NULL), DV_OK);
    assert_int_equal(dv_load_static(&decl, &lib), DV_ESCHEMA);
    assert_non_null(strstr(dv_last_error(), "argument 'n' is missing: elsewhere::h(Tensor x, int n) -> Tensor"));
    dv_library_free(elsewhere);
}

/* ---- Structs of an older header ---- */

static void test_older(void **state)
{
    (void)state;
    dv_operator_decl op = OP(struct unary, (x, out), .schema = S, .kernels = ROW(.device = "cpu"));
    dv_library *lib;
    op.shape = (dv_shape_fn)(void (*)(void))run; /* past the end of what the size says */
    op.size = offsetof(dv_operator_decl, shape);
    const int status = load_one(&op, &lib);
    if (status) { /* version 1.0 is the first: nothing older exists, but the reader must not look past the end */
        assert_int_equal(status, DV_EABI);
        return;
    }
    assert_null(dv_library_operator(lib, 0)->shape);
    dv_library_free(lib);
}

/* ---- Every allocation failed ---- */

static const struct good full = { OP(struct unary, (x, out), .schema = S, .contract = C "; parallel(*s)",
                                      .native = "there::g(there::h(x, 2))", .gradient = "x: f(grad)", .tangent = "out: f(x_t)",
                                      .tags = "a b", .doc = "doc",
                                      .kernels = ROW(.device = "cpu", .dtypes = "f32 bf16", .when = "rank(x) > 1",
                                          .takes = "strided(x)", .isa = "avx2", .split = 8)),
    "" };

static int load_good(void *arg)
{
    const struct good *g = arg;
    dv_library *lib;
    const int status = load_one(&g->op, &lib);
    dv_library_free(lib);
    return status;
}

static void test_failing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        failing_each(load_good, &good[i]);
    failing_each(load_good, &full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_bad_libraries),
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_older),
        cmocka_unit_test(test_failing),
    };
    print_message("%zu refused declarations\n", sizeof bad / sizeof bad[0] + sizeof bad_libraries / sizeof bad_libraries[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
