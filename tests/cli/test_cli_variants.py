"""dovetail build warns where kernels for vector instruction sets run loops that are compiled for the base set; nowhere else."""
import os
import re
import shutil

import pytest
from cli_helpers import ROOT

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the variants are x86's")
COMPILERS = [c for c in ("gcc", "clang") if shutil.which(c)]

HEAD = """
#include <dovetail_elementwise.h>
struct f { const dv_tensor *x; dv_tensor *out; };
#define NOINLINE static __attribute__((noinline))
"""
TAIL = """
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; parallel(*s)",
    .kernels = DV_KERNELS(ROWS));
DV_LIBRARY(v, &dv_op_f);
"""
VARIANTS = "DV_VARIANTS(struct f, f_body, DTYPE)"
LOOP = """
ATTRIBUTE void loop(const struct f *a, int64_t begin, int64_t end)
{
    const TYPE *x = a->x->data;
    TYPE *out = a->out->data;
    for (int64_t i = begin; i < end; i++)
        out[i] = (TYPE)(VALUE);
}
"""
PIECE = "static int piece(void *arg, int64_t begin, int64_t end) { loop(arg, begin, end); return DV_OK; }\n"
PARALLEL = """
DV_INLINE int f_body(dv_context *ctx, const struct f *a, uint32_t dtype)
{
    (void)dtype;
    return dv_parallel_for(ctx, 0, dv_numel(a->out), 16384, piece, (void *)(uintptr_t)a);
}
"""
SCRATCH = PARALLEL.replace("dv_parallel_for(ctx, 0, dv_numel(a->out), 16384, piece,", "dv_parallel_scratch(ctx, 0, dv_numel(a->out), 16384, 64, piece,")
DIRECT = """
DV_INLINE int f_body(dv_context *ctx, const struct f *a, uint32_t dtype)
{
    (void)ctx, (void)dtype;
    loop(a, 0, dv_numel(a->out));
    return DV_OK;
}
"""
VALUES = {"f32": ("float", "x[i] * x[i] + 0.5f"), "f64": ("double", "x[i] / 3 + x[i]"), "i8": ("int8_t", "x[i] + 3"), "i16": ("int16_t", "x[i] * x[i]"),
          "i32": ("int32_t", "x[i] * 7 ^ x[i]"), "i64": ("int64_t", "x[i] * x[i] + 1"), "u8": ("uint8_t", "x[i] >> 1"), "u64": ("uint64_t", "x[i] % 7")}


def source(body, dtype="f32", value=None, attribute="DV_INLINE", rows=None):
    ctype, default = VALUES[dtype]
    text = HEAD + body + VARIANTS + TAIL.replace("ROWS", rows or "DV_VARIANT_KERNELS(struct f, f_body, (DTYPE), .split = 4096)" if "piece" not in body else
                                                 rows or "DV_VARIANT_KERNELS(struct f, f_body, (DTYPE))")
    return text.replace("ATTRIBUTE", attribute).replace("VALUE", value or default).replace("DTYPE", dtype).replace("TYPE", ctype)


def warnings(dovetail, text, *options, code=0):
    dovetail.write("v.c", text)
    return re.findall(r"v\.c:\d+: warning: operator f: kernels? (.*): the loops", dovetail("build", "v.c", *options, code=code).err)


BOTH = ["f_body_{0}_avx512 (avx512), f_body_{0}_avx2 (avx2)"]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("inline", [True, False])
def test_a_loop_in_a_piece(dovetail, dtype, inline, cc):
    text = source(LOOP + PIECE + PARALLEL, dtype, attribute="DV_INLINE" if inline else "NOINLINE")
    assert warnings(dovetail, text, "--cc", cc) == [BOTH[0].format(dtype)]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("kind", ["scratch", "direct", "math", "conversion", "sum", "prepared", "argument"])
def test_other_loops_of_the_base_set(dovetail, kind, cc):
    text = {
        "scratch": source(LOOP + PIECE.replace("int64_t end)", "int64_t end, void *scratch)", 1).replace("{ loop", "{ (void)scratch; loop") + SCRATCH),
        "direct": source(LOOP + DIRECT, attribute="NOINLINE"),
        "math": source("#include <math.h>\n" + LOOP + PIECE + PARALLEL, value="expf(x[i]) * tanhf(x[i])"),
        "conversion": source(LOOP + PIECE + PARALLEL, value="dv_get(x, i, DV__bf16)").replace("DV__bf16", "DV_D" "TYPE_bf16"),
        "sum": source("NOINLINE float sum(const float *x, int64_t n) { float s = 0; for (int64_t i = 0; i < n; i++) s += x[i]; return s; }\n" + DIRECT.replace(
            "loop(a, 0, dv_numel(a->out))", "*(float *)a->out->data = sum(a->x->data, dv_numel(a->x))")),
        # what it does before is no loop: a struct on the stack, filled by vector instructions
        "prepared": source("struct all { struct f f; int64_t four[4]; };\n" + LOOP + PIECE.replace("loop(arg,", "loop(&((struct all *)arg)->f,") + PARALLEL.replace(
            "return dv_parallel_for", "struct all all = { *a, { 0 } };\n    return dv_parallel_for").replace("(void *)(uintptr_t)a)", "&all)")),
        "argument": source(LOOP + PIECE + PARALLEL.replace("f_body(dv_context *ctx,", "inner(dv_parallel_fn fn, dv_context *ctx,").replace("piece,", "fn,").replace(
            "dv_parallel_fn", "int (*fn_)(void *, int64_t, int64_t)").replace("fn_)(void *, int64_t, int64_t) fn", "fn)(void *, int64_t, int64_t)")
            + DIRECT.replace("loop(a, 0, dv_numel(a->out));\n    return DV_OK", "return inner(piece, ctx, a, 0)")),
    }[kind]
    assert warnings(dovetail, text, "--cc", cc) == [BOTH[0].format("f32")]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("kind", ["inline", "integers", "copies", "loop for each set", "elementwise", "target", "clones", "table", "helper", "native", "debug", "one row"])
def test_no_warning(dovetail, kind, cc):
    if kind == "clones" and cc == "clang":
        pytest.skip("clang has target_clones only where the C library has ifunc resolvers in shared objects")
    options, rows, each = [], None, "DV_ISA_KERNELS(struct f, f_row, \"f32\")"
    per_set = """
#define EACH(SET, TARGET) TARGET static int piece_##SET(void *arg, int64_t begin, int64_t end) { loop(arg, begin, end); return DV_OK; }
EACH(avx512, DV_TARGET_AVX512) EACH(avx2, DV_TARGET_AVX2) EACH(base, )
#define ROW(SET) static int f_##SET(dv_context *ctx, const struct f *a) { return dv_parallel_for(ctx, 0, dv_numel(a->out), 9999, PIECE(SET), (void *)(uintptr_t)a); }
ROW(avx512) ROW(avx2) ROW(base)
"""
    three = ", ".join(f'DV_KERNEL(struct f, "cpu", "f32", f_{s}{f", .isa = {chr(34)}{s}{chr(34)}" if s != "base" else ""})' for s in ("avx512", "avx2", "base"))
    if kind == "inline":
        text = source(LOOP + DIRECT)
    elif kind == "integers":  # no vectors in the loop of any set
        text = source("""
DV_INLINE int f_body(dv_context *ctx, const struct f *a, uint32_t dtype)
{
    int64_t *out = a->out->data;
    const int64_t *x = a->x->data, n = dv_numel(a->x);
    (void)ctx, (void)dtype;
    for (int64_t i = 1; i < n; i++)
        out[i] = x[(out[i - 1] * 31 + x[i]) & 1];
    return DV_OK;
}
""", "i64")
    elif kind == "copies":
        text = source("static int piece(void *arg, int64_t begin, int64_t end) { const struct f *a = arg; memcpy((char *)a->out->data + begin, "
                      "(char *)a->x->data + begin, (size_t)(end - begin)); return DV_OK; }\n" + PARALLEL)
    elif kind == "loop for each set":
        text = source(LOOP + """
DV_INLINE int lines(void *arg, int64_t begin, int64_t end, void *scratch, const dv_isa_functions *isa) { (void)scratch, (void)isa; loop(arg, begin, end); return DV_OK; }
static int f_row(dv_context *ctx, const struct f *a, dv_scratch_fn fn) { return dv_parallel_scratch(ctx, 0, dv_numel(a->x), 1, 1, fn, (void *)(uintptr_t)a); }
DV_ISA_VARIANTS_LOOP(struct f, f_row, lines)
""", rows=each).replace("DV_VARIANTS(struct f, f_body, f32)", "")
    elif kind == "elementwise":
        text = HEAD + "DV_ELEMENTWISE(f_row, struct f, (x), (out), out = dv_exp(x))\n" + TAIL.replace("ROWS", 'DV_ELEMENTWISE_FLOATS(struct f, f_row, .split = 4096)')
    elif kind == "target":
        text = HEAD + LOOP.replace("ATTRIBUTE", "DV_INLINE").replace("VALUE", "x[i] * 2").replace("TYPE", "float") + per_set.replace("PIECE(SET)", "piece_##SET") + TAIL.replace("ROWS", three)
    elif kind == "clones":
        text = source(LOOP + PIECE + PARALLEL, attribute='__attribute__((target_clones("avx2", "default"))) static')
    elif kind == "table":
        text = HEAD + LOOP.replace("ATTRIBUTE", "DV_INLINE").replace("VALUE", "x[i] * 2").replace("TYPE", "float") + per_set.replace("ROW(avx512) ROW(avx2) ROW(base)", "").replace(
            "#define ROW", "static const struct { int level; int (*run)(void *, int64_t, int64_t); } pieces[] = { { 2, piece_avx512 }, { 1, piece_avx2 }, { 0, piece_base } };\n"
            "enum { of_avx512, of_avx2, of_base };\n#define ROW").replace("PIECE(SET)", "pieces[dv_numel(a->x) & 64 ? of_##SET : 0].run") + "ROW(avx512) ROW(avx2) ROW(base)\n" + TAIL.replace("ROWS", three)
    elif kind == "helper":  # the loop is inlined; another function of the base set has a loop, too
        text = source("NOINLINE float sum(const float *x, int64_t n) { float s = 0; for (int64_t i = 0; i < n; i++) s += x[i]; return s; }\n" + LOOP + DIRECT.replace(
            "loop(a", "if (dv_numel(a->x) == 7) *(float *)a->out->data = sum(a->x->data, 7);\n    loop(a"))
    elif kind == "native":
        text, options = source(LOOP + PIECE + PARALLEL), ["-X", "-march=x86-64-v3"]
    elif kind == "debug":  # functions are not inlined then
        text, options = source(LOOP + DIRECT, attribute="static"), ["-X", "-O0"]
    else:
        text = source(LOOP + PIECE + PARALLEL, rows='DV_KERNEL(struct f, "cpu", "f32", f_body_f32_base)').replace("DV_VARIANTS(struct f, f_body, f32)",
            "static int f_body_f32_base(dv_context *ctx, const struct f *a) { return f_body(ctx, a, 0); }")
    assert warnings(dovetail, text, "--cc", cc, "-X", "-Wno-unused-function", *options) == []


def test_it_is_a_warning_like_those_of_the_compiler(dovetail):
    text = source(LOOP + PIECE + PARALLEL)
    assert warnings(dovetail, text)
    r = dovetail("build", "v.c", "--json").json
    assert r["ok"] and re.match(r"v\.c:\d+: warning: operator f: kernels f_body_f32_avx512", r["messages"])
    before = (dovetail.folder / "v.so").read_bytes()
    r = dovetail("build", "v.c", "-W", "--json", code=1)
    assert "warnings are errors" in r.json["error"] and (dovetail.folder / "v.so").read_bytes() == before and not dovetail.leftovers()
    assert "DV_INLINE" in r.err and ".split" in r.err and "DV_ISA_VARIANTS_LOOP" in r.err
    assert "warning: operator f" in dovetail("build", "--cached", "v.c", env={"DOVETAIL_CACHE": str(dovetail.folder / "cache")}).err


def test_a_kernel_that_forgot_its_target(dovetail):
    text = HEAD + LOOP.replace("ATTRIBUTE", "DV_INLINE").replace("VALUE", "x[i] * 2").replace("TYPE", "float")
    text += "static int f_fast(dv_context *ctx, const struct f *a) { (void)ctx; loop(a, 0, dv_numel(a->x)); return DV_OK; }\n"
    text += TAIL.replace("ROWS", 'DV_KERNEL(struct f, "cpu", "f32", f_fast, .isa = "avx2")')
    assert warnings(dovetail, text) == ["f_fast (avx2)"]
    assert warnings(dovetail, text.replace("static int f_fast", "DV_TARGET_AVX2 static int f_fast")) == []


SHIPPED = ["my_ops", *sorted({p.parent.name for p in ROOT.glob("ops/*/*.c")} - {"base"})]
SAMPLE = ("my_ops", "gelu", "linear", "softmax")  # with the first compiler, in every run; the others in the slow suite


@pytest.mark.parametrize("cc, name", [pytest.param(cc, name, marks=[] if cc == COMPILERS[0] and name in SAMPLE else pytest.mark.slow) for cc in COMPILERS for name in SHIPPED])
def test_no_warning_for_what_is_shipped(dovetail, cc, name):
    if name == "my_ops":
        dovetail("new", name)
    err = dovetail("build", name if name == "my_ops" else str(ROOT / "ops" / name), "--cc", cc, "-o", "x.so", "-I", str(ROOT / "ops"), code=None).err
    assert "warning: operator" not in err
