"""dovetail build: what it makes, what it says when it cannot, and that no interruption leaves a broken binary."""
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import dovetail as package
import numpy
import pytest
from cli_helpers import BUILD, COMMAND, ROOT, Dovetail, symbols

COMPILERS = [c for c in ("gcc", "clang") if shutil.which(c)]
SLOW_CC = """#!{python}
import os, sys, time
open({mark!r}, "w").write(str(os.getpid()))
{before}
os.execvp("gcc", ["gcc", *sys.argv[1:]])
"""


def compiler(folder, name, before="", mark="started"):
    """A compiler that does something first."""
    path = folder / name
    path.write_text(SLOW_CC.format(python=sys.executable, mark=str(folder / mark), before=before))
    path.chmod(0o755)
    return path


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.mark.parametrize("cc", COMPILERS)
def test_build(project, cc):
    r = project("build", "--cc", cc, "--json").json
    assert r["ok"] and r["out"] == "my_ops.so" and r["library"] == "my_ops" and r["messages"] == ""
    assert symbols(project.folder / "my_ops.so") == ["dovetail_library_1"]
    assert r["bytes"] == (project.folder / "my_ops.so").stat().st_size <= 40 * 1024
    assert set(r["needs"]) <= {"libm.so.6", "libc.so.6"}
    assert [op["name"] for op in r["operators"]] == ["my_ops::swiglu", "my_ops::swiglu_grad"]
    lines = (project.folder / "my_ops.c").read_text().splitlines()
    for op in r["operators"]:  # __LINE__ in a macro of several lines: the first to gcc, the last to clang
        first = next(i for i, s in enumerate(lines, 1) if s.startswith(f"DV_OPERATOR({op['name'][8:]},"))
        last = next(i for i, s in enumerate(lines, 1) if i > first and s.endswith(");"))
        assert op["line"] == (first if cc == "gcc" else last) and op["file"] == "my_ops.c"
    assert not project.leftovers()


def test_the_schemas_name_is_the_operators(project):
    text = (project.folder / "my_ops.c").read_text()
    project.write("my_ops.c", text.replace('"swiglu(', '"gated.v2('))
    assert project("build", "--json").json["operators"][0]["name"] == "my_ops::gated.v2"
    assert "  my_ops::gated.v2  " in project("build").out and "my_ops::swiglu " not in project("build").out


def test_same_source_same_binary(project):
    project("build", "-o", "a.so")
    project("build", "-o", "b.so")
    assert (project.folder / "a.so").read_bytes() == (project.folder / "b.so").read_bytes()


VARIANTS = """
#include <dovetail_op.h>
struct half { const dv_tensor *x; dv_tensor *out; };
DV_INLINE int half_body(dv_context *ctx, const struct half *a, uint32_t dtype)
{
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        dv_put(a->out->data, i, dtype, dv_get(a->x->data, i, dtype) * 0.5f);
    return DV_OK;
}
DV_VARIANTS(struct half, half_body, f32, bf16)
DV_OPERATOR(half, struct half, (x, out),
    .schema = "half(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; parallel(*s)",
    .kernels = DV_KERNELS(DV_VARIANT_KERNELS(struct half, half_body, (f32, bf16), .split = 4096)));
DV_LIBRARY(halves, &dv_op_half);
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the variants are x86's")
def test_reports_instruction_sets(dovetail):
    dovetail.write("half.c", VARIANTS)
    assert "halves::half  cpu f32 [avx512 avx2 base], cpu bf16 [avx512 avx2 base]" in dovetail("build").out
    rows = dovetail("build", "--json").json["operators"][0]["kernels"]
    assert [(r["dtypes"], r["isa"]) for r in rows] == [(t, i) for t in ("f32", "bf16") for i in ("avx512", "avx2", None)]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the variants are x86's")
def test_old_names_of_macros(dovetail):
    dovetail.write("half.c", VARIANTS.replace("DV_VARIANT_KERNELS", "DV_VARIANT_ROWS"))
    assert "half.c:13: DV_VARIANT_ROWS is now DV_VARIANT_KERNELS\n" in dovetail("build", code=1).err


def test_says_what_runs_an_operator_without_kernels(dovetail):
    text = ('#include <dovetail_op.h>\nstruct f { const dv_tensor *x; dv_tensor *y; };\n'
            'DV_OPERATOR(f, struct f, (x, y), .schema = "f(Tensor x) -> Tensor y", .contract = "x[*s]:T -> y[*s]:T"NATIVE);\nDV_LIBRARY(bare, &dv_op_f);\n')
    for native, said in ((', .native = "x + 1"', "decomposition only"), ("", "no kernel and no decomposition: it cannot run")):
        dovetail.write("bare.c", text.replace("NATIVE", native))
        assert f"bare::f  {said}\n" in dovetail("build").out


@pytest.mark.parametrize("cc", COMPILERS)
def test_a_variant_of_a_dtype_that_is_not_read_as_float(dovetail, cc):
    """dv_get() and dv_put() would read its bytes as those of a float: it does not compile. dv_get_f64() reads f64."""
    def source(dtype):
        return VARIANTS.replace("(f32, bf16)", f"(f32, {dtype})").replace("f32, bf16)", f"f32, {dtype})")
    for dtype in ("i32", "f64"):
        dovetail.write("half.c", source(dtype))
        assert "are for f32, bf16 and f16; dv_get_f64() and dv_put_f64() also for f64" in dovetail("build", "--cc", cc, code=1).err
    dovetail.write("half.c", source("f64").replace("dv_get(", "dv_get_f64(").replace("dv_put(", "dv_put_f64(").replace("0.5f", "0.5"))
    dovetail("build", "--cc", cc)
    dovetail.write("half.c", source("f16"))
    dovetail("build", "--cc", cc)


def test_finds_operator_files(project):
    """With no file named: those that include dovetail_op.h; main.c does not."""
    project.write("helper.c", "int helper(void);\nint helper(void) { return 1; }\n")
    project.write("notes.c", '/* #include <dovetail_op.h> */ this is not C\n')
    project("build", "-v")
    assert (project.folder / "my_ops.so").exists()
    (project.folder / "empty").mkdir()
    empty = Dovetail(project.folder / "empty")
    assert "no file to build" in empty("build", code=1).err and "dovetail new" in empty("build", code=1).err


def test_several_files(dovetail, source):
    a, b = two_files(source)
    dovetail.write("a.c", a), dovetail.write("b.c", b)
    dovetail("build", "a.c", "b.c", "-o", "both.so")
    assert symbols(dovetail.folder / "both.so") == ["dovetail_library_1"]


def two_files(source):
    """One library in two files."""
    first, second = source.split("DV_OPERATOR(swiglu,")[0], "DV_OPERATOR(swiglu," + source.split("DV_OPERATOR(swiglu,")[1]
    grad = first.index("struct swiglu_grad")
    declaration = second.index("DV_OPERATOR(swiglu_grad")
    head = "#include <dovetail_op.h>\n#include <math.h>\n"
    return first[:grad] + second[:declaration], head + "DV__HIDDEN extern const dv_operator_decl dv_op_swiglu;\n" + first[grad:] + second[declaration:]


def test_a_library_over_several_files(dovetail, source):
    """By their names, or by their folder: the binary has the library's name."""
    a, b = two_files(source)
    dovetail.write("ops/a.c", a), dovetail.write("ops/b.c", b), dovetail.write("ops/other.c", "int not_an_operator;\n")
    for words in (["ops/a.c", "ops/b.c"], ["ops"], ["./ops/"]):
        assert dovetail("build", "--json", *words).json["out"] == "my_ops.so"
        assert symbols(dovetail.folder / "my_ops.so") == ["dovetail_library_1"] and not (dovetail.folder / "a.so").exists()
        (dovetail.folder / "my_ops.so").unlink()
    here = Dovetail(dovetail.folder / "ops")
    here("build")
    assert (here.folder / "my_ops.so").exists()
    (here.folder / "my_ops.so").unlink()
    os.mkfifo(here.folder / "my_ops.so")
    assert "it is a pipe" in here("build", code=1).err
    dovetail("build", "ops", "-o", "both.so")
    (dovetail.folder / "empty").mkdir()
    assert "none of the .c, .cpp, .cu or .cce files in empty includes" in dovetail("build", "empty", code=1).err


def test_every_verb_takes_a_library_of_several_files(dovetail, source):
    """By their names, or by their folder, in any place; two libraries stay two."""
    a, b = two_files(source)
    dovetail.write("ops/a.c", a), dovetail.write("ops/b.c", b), dovetail.write("ops/other.c", "int not_an_operator;\n")
    call = ["my_ops::swiglu", "f32[2]", "f32[2]"]
    env = {"DOVETAIL_CACHE": str(dovetail.folder / "cache"), "DOVETAIL_PYTHON": ""}
    for words in (["ops"], ["./ops/"], ["ops/a.c", "ops/b.c"]):
        assert {op["name"] for op in dovetail("info", "--json", *words, env=env).json["operators"]} == {"my_ops::swiglu", "my_ops::swiglu_grad"}
        assert dovetail("info", "swiglu_grad", *words, env=env).out.startswith("my_ops::swiglu_grad(")
        assert "my_ops::swiglu_grad" in dovetail("list", *words, env=env).out
        assert "selected" in dovetail("explain", *words, *call, env=env).out
        assert dovetail("bench", "--json", "--time", "1", *words, *call, env=env).json["ok"]
        assert dovetail("check", "--json", "--only", "binding", *words, env=env).json["ok"]
    dovetail.write("one/one.c", source.replace("DV_LIBRARY(my_ops", "DV_LIBRARY(ones"))
    names = {op["name"] for op in dovetail("info", "--json", "one/one.c", "ops", env=env).json["operators"]}
    assert names == {op["name"] for op in dovetail("info", "--json", "one", "ops", env=env).json["operators"]} and len(names) == 4
    dovetail.write("two.c", source.replace("DV_LIBRARY(my_ops", "DV_LIBRARY(twos"))
    assert len(dovetail("info", "--json", "one/one.c", "two.c", env=env).json["operators"]) == 4
    (dovetail.folder / "empty").mkdir()
    assert "in empty/ includes <dovetail_op.h>" in dovetail("info", "empty/", code=1, env=env).err
    assert "operator empty not found" in dovetail("info", "empty", code=1, env=env).err


def test_a_header_of_a_folder_that_is_not_named(dovetail, source):
    """The message names the header that is missing, and none that the compiler finds."""
    dovetail.write("ops/a.c", '#include <stddef.h>\n#include "mine.h"\n' + source.replace("#include <dovetail_op.h>", ""))
    dovetail.write("ops/mine.h", "#include <common/all.h>\n#include <math.h>\n"), dovetail.write("headers/common/all.h", "#include <dovetail_op.h>\n")
    assert "not found: common/all.h (name their folder with -I)" in dovetail("build", "ops", code=1).err
    dovetail("build", "ops", "-I", "headers")


def test_the_name_of_a_library_that_was_not_made(dovetail, source):
    """It has the library's name, which the message does not guess from the first file."""
    a, b = two_files(source)
    dovetail.write("ops/a.c", a), dovetail.write("ops/b.c", b)
    for words in ([], ["-W", "-X", "-Wno-such-warning"]):
        err = dovetail("build", "ops", "-l", "nonexist", *words, code=1).err
        assert "no binary was made" in err and "a.so" not in err
    assert "'mine.so' was not made" in dovetail("build", "ops", "-o", "mine.so", "-l", "nonexist", code=1).err


CPP = """
#include <dovetail_op.h>
#include <stdexcept>
#include <vector>
struct add { const dv_tensor *x; dv_tensor *out; };
extern "C" __attribute__((visibility("hidden"))) int add_cpp(dv_context *, const struct add *a)
{
    try {
        std::vector<float> v(3, 1.f);
        if (!a->x) throw std::runtime_error("none");
        for (int64_t i = 0; i < dv_numel(a->x); i++)
            static_cast<float *>(a->out->data)[i] = static_cast<const float *>(a->x->data)[i] + v.at(0);
    } catch (const std::exception &) {
        return DV_EKERNEL;
    }
    return DV_OK;
}
"""
ADD = """
#include <dovetail_op.h>
struct add { const dv_tensor *x; dv_tensor *out; };
DV__HIDDEN int FUNCTION(dv_context *, const struct add *);
DV_OPERATOR(add, struct add, (x, out), .schema = "add(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct add, "cpu", "f32", FUNCTION)));
DV_LIBRARY(cpp_ops, &dv_op_add);
"""


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
@pytest.mark.parametrize("statement", ["std::cerr << 1 << std::endl;", 'std::vector<std::string> w; w.emplace_back("abc"); s = w[0];',
                                       "std::ostringstream o; o << 2.5; s = o.str();", 'std::regex_match(s, std::regex("a+"));', "s = std::to_string(*std::make_shared<int>(3));"])
def test_cpp_of_the_standard_library(dovetail, statement):
    """Its templates are visible whatever -fvisibility says; the binary exports only its own symbol."""
    headers = "".join(f"#include <{name}>\n" for name in ("iostream", "memory", "regex", "sstream", "string", "vector"))
    dovetail.write("add.c", ADD.replace("FUNCTION", "add_cpp"))
    dovetail.write("kernel.cpp", headers + CPP.replace("try {", "try {\n std::string s;\n" + statement))
    dovetail("build")
    assert symbols(dovetail.folder / "cpp_ops.so") == ["dovetail_library_1"]


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_cpp(dovetail):
    """A kernel in C++ beside its declaration in C; the binary still needs libc and libm only."""
    dovetail.write("add.c", ADD.replace("FUNCTION", "add_cpp")), dovetail.write("kernel.cpp", CPP)
    r = dovetail("build", "--json", "-v", "-X", "c++:-DONLY_CPP", "-X", "c:-DONLY_C", "-X", "-arch=sm_90", "-X", "-DALL").json
    assert r["out"] == "cpp_ops.so" and set(r["needs"]) <= {"libm.so.6", "libc.so.6", "ld-linux-x86-64.so.2"}
    assert symbols(dovetail.folder / "cpp_ops.so") == ["dovetail_library_1"]
    lines = dovetail("build", "-v", "-X", "c++:-DONLY_CPP", "-X", "c:-DONLY_C", "-X", "-arch=sm_90", "-X", "-DALL").err.splitlines()
    of = lambda name: next(line for line in lines if line.endswith(name))
    assert "-DONLY_C " in of("add.c") and "-DONLY_CPP" not in of("add.c") and "-DALL" in of("add.c")
    assert "-DONLY_CPP" in of("kernel.cpp") and "-DONLY_C " not in of("kernel.cpp") and "-std=c++17" in of("kernel.cpp")
    assert not any("-arch" in line for line in lines)
    assert "no compiler 'nosuch' (from $CXX)" in dovetail("build", env={"CXX": "nosuch"}, code=1).err


def test_languages_of_vendors(dovetail):
    """Their compilers get their own flags; without ccec the message says what is missing."""
    dovetail.write("add.c", ADD.replace("FUNCTION", "add_v"))
    kernel = dovetail.write("kernel.txt", ADD.split("DV__HIDDEN")[0] + "DV__HIDDEN int add_v(dv_context *c, const struct add *a);\nint add_v(dv_context *c, const struct add *a) { (void)c; (void)a; return 0; }\n")
    for end, option in ((".cu", "--nvcc"), (".cce", "--ccec")):
        (dovetail.folder / f"kernel{end}").write_text(kernel.read_text())
    assert "no AscendC compiler 'noccec': it is needed for .cce files; install the CANN toolkit, or name one with --ccec" in \
        dovetail("build", "add.c", "kernel.cce", "--ccec", "noccec", code=1).err
    fake = dovetail.write("fake", f"""#!{sys.executable}
import os, subprocess, sys
open({str(dovetail.folder / 'seen')!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
if "-c" in sys.argv:
    sys.exit(subprocess.call(["gcc", "-x", "c", "-fPIC", "-I", {str(BUILD / 'include')!r}, "-c", "-o", sys.argv[sys.argv.index("-o") + 1], sys.argv[-1]]))
files = [a for a in sys.argv if a.endswith(".o")]
sys.exit(subprocess.call(["gcc", "-shared", "-o", sys.argv[sys.argv.index("-o") + 1], *files, "-lm"]))
""")
    fake.chmod(0o755)
    for end, option in ((".cu", "--nvcc"), (".cce", "--ccec")):
        (dovetail.folder / "seen").unlink(missing_ok=True)
        dovetail("build", "add.c", f"kernel{end}", option, "./fake", "-X", "-arch=sm_90", "-X", "cuda:-lineinfo", "-X", "ascendc:--cce-x", "-X", "c:-Wshadow")
        seen = (dovetail.folder / "seen").read_text().splitlines()[0]
        assert ("-arch=sm_90" in seen, "-lineinfo" in seen, "--cce-x" in seen) == ((True, True, False) if end == ".cu" else (False, False, True))
        assert "-Wshadow" not in seen


# ---- Names that nothing knows ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("old, new, message", [
    (".native ", '.tags = "pt2_compliant_tag, pointwsie", .native ', "unknown tag 'pointwsie' (did you mean 'pointwise'?)"),
    (".split = 4096", '.isa = "avx215", .split = 4096', "unknown instruction set 'avx215' (did you mean 'avx2'?)"),
    (".split = 4096", '.isa = "AVX2", .split = 4096', "unknown instruction set 'AVX2'")])
def test_unknown_names(project, source, old, new, message):
    text = source.replace(old, new, 1)
    assert text != source
    project.write("my_ops.c", text)
    err = project("build", code=1).err
    assert message in err and "my_ops.c:" in err and "operator swiglu" in err and "--allow-unknown" in err
    assert not (project.folder / "my_ops.so").exists()
    project("build", "--allow-unknown")
    if "instruction" in message:  # the row is never taken
        out = project("explain", "./my_ops.so", "my_ops::swiglu", "f32[4]", "f32[4]").out
        assert "this runtime does not know the instruction set" in out


@pytest.mark.parametrize("fact, message", [("z = 4, z == 5", "expected z == 5"), ("rank(gate) > 4, rank(gate) < 3", "expected rank(gate) > 4")])
def test_a_contract_that_no_call_fits(project, source, fact, message):
    text = source.replace("up[*s]:T -> out", f"up[*s]:T, {fact} -> out", 1)
    assert text != source
    project.write("my_ops.c", text)
    err = project("build", code=1).err
    assert "no call fits the contract" in err and message in err and "my_ops.c:" in err
    assert not (project.folder / "my_ops.so").exists()


def test_known_names(project, source):
    project.write("my_ops.c", source.replace(".native ", '.tags = "pointwise core,autocast_f32", .native ', 1))
    project("build")


def test_options_reach_the_compiler(project):
    source = (project.folder / "my_ops.c").read_text()
    project.write("inc/scale.h", "#define SCALE_OF(x) (x)\n")
    project.write("my_ops.c", "#include <scale.h>\n#if SCALE_OF(FACTOR) != 3\n#error factor\n#endif\n" + source)
    project("build", code=1)
    project("build", "-Iinc", "-DFACTOR=3")
    project("build", "--include", "inc", "--define=FACTOR=3", "-X", "-O0", "--flag=-g0")
    r = project("build", "-I", "inc", "-DFACTOR=3", "-v", "-g")
    assert "-O1" in r.err and "-g" in r.err.split()
    assert "-s" not in r.err.split()


def test_werror(project):
    source = (project.folder / "my_ops.c").read_text()
    project.write("my_ops.c", source.replace("    (void)ctx;\n", "    int unused_one;\n", 1))
    r = project("build", "--json")
    assert "unused_one" in r.err and "unused_one" in r.json["messages"]
    assert "unused_one" in project("build", "-W", code=1).err


# ---- What the author did wrong ------------------------------------------------------------------------------------------------------

ERRORS = [
    ("a kernel of another frame", '"cpu", "f32", swiglu_f32', '"cpu", "f32", swiglu_grad_f32', '"cpu", "f32", swiglu_grad_f32',
     "takes 'const struct swiglu_grad *', which is not the struct that the kernel names"),
    ("a kernel that could write its frame", "const struct swiglu *a)", "struct swiglu *a)", '"cpu", "f32", swiglu_f32',
     "must take its struct as const: 'const struct swiglu *'"),
    ("a kernel with another result", "static int swiglu_f32", "static long swiglu_f32", '"cpu", "f32", swiglu_f32',
     "expected 'static int kernel(dv_context *ctx, const struct ... *a)'"),
    ("a float field", "dv_tensor *out; };", "dv_tensor *out; float scale; };", "struct swiglu {", "has the type 'float': a number is a double"),
    ("an int field", "dv_tensor *out; };", "dv_tensor *out; int scale; };", "struct swiglu {", "an integer is an int64_t"),
    ("a char * field", "dv_tensor *out; };", "dv_tensor *out; const char *scale; };", "struct swiglu {", "a string is a dv_string"),
    ("a data pointer", "dv_tensor *out; };", "dv_tensor *out; float *scale; };", "struct swiglu {", "a tensor is a const dv_tensor *"),
    ("a field that is not there", "(gate, up, out)", "(gate, upp, out)", "(gate, upp, out)", "names one that the struct does not have"),
    ("a struct that is not there", "DV_OPERATOR(swiglu, struct swiglu,", "DV_OPERATOR(swiglu, struct swigloo,", "DV_OPERATOR(swiglu, struct swigloo,",
     "the struct that the declaration names does not exist"),
    ("a misspelt part", ".native  ", ".natvie  ", ".natvie", "an operator has no such member; it has .schema"),
    ("a misspelt row option", "swiglu_f32, .split", "swiglu_f32, .spilt", ".spilt", "a kernel has no such member"),
    ("an operator that is not declared", "&dv_op_swiglu_grad);", "&dv_op_swiglu_back);", "DV_LIBRARY(", "no DV_OPERATOR above it"),
]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("what, old, new, at, message", ERRORS, ids=[e[0] for e in ERRORS])
def test_mistakes_are_explained_at_the_author_s_line(project, source, cc, what, old, new, at, message):
    assert old in source
    text = source.replace(old, new, 1)
    if "scale" in new:
        text = text.replace("(gate, up, out)", "(gate, up, out, scale)", 1)
    project.write("my_ops.c", text)
    r = project("build", "--cc", cc, code=1)
    explained = r.err.split("What is wrong:\n")[1]
    line = next(i for i, s in enumerate(text.splitlines(), 1) if at in s)
    assert any(s.startswith(f"  my_ops.c:{line}: ") and message in s for s in explained.splitlines()), explained
    assert "my_ops.c:" in r.err.split("What is wrong:")[0], "the compiler's own message is passed on"
    assert not (project.folder / "my_ops.so").exists() and not project.leftovers()


ELEMENTWISE = (ROOT / "cli" / "templates" / "my_ops.c").read_text()
LINE = "out = dv_silu(gate) * up)"


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("line, message", [
    ("out = expf(gate) * up)", "call only what dovetail_elementwise.h lists"),
    ("out = log(gate) * up)", "call only what dovetail_elementwise.h lists"),
    ("out = dv_erf(gate))", "a function must be one that dovetail_elementwise.h lists"),
    ("out = gate % 2)", "this cannot be done with vectors"),
    ("out = !gate)", "write (x > 0) == 0"),
    ("out = gate > 0 ? gate : up)", "write dv_select(x > 0, a, b)"),
    ("out = gate * 0.1)", "write (dv_number)0.1"),
    ("if (gate > 0) out = up)", "DV_ELEMENTWISE_SCALAR, which takes all of C"),
    ("out = gate > 0 && up > 0)", "write dv_select(x > 0, a, b)"),
    ("out = 0)", "write dv_splat(0)"),
    ("dv_real s = 1; out = s * gate * up)", "write dv_splat(0)"),
    ("out = (int)gate * up)", "this cannot be done with vectors"),
    ("gate = up; out = gate)", "an input cannot be changed"),
    ("out = gate * up * frame->out)", "frame is the struct itself"),
])
def test_mistakes_in_an_elementwise_line(project, cc, line, message):
    project.write("my_ops.c", ELEMENTWISE.replace(LINE, line, 1))
    r = project("build", "--cc", cc, code=1)
    number = next(i for i, s in enumerate(ELEMENTWISE.splitlines(), 1) if LINE in s)
    assert any(s.startswith(f"  my_ops.c:{number}: ") and message in s for s in r.err.split("What is wrong:\n")[1].splitlines()), r.err


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-ffinite-math-only"])
def test_fast_math_is_refused(project, cc, flag):
    project.write("my_ops.c", ELEMENTWISE)
    assert "-ffp-contract=fast is what they need" in project("build", "--cc", cc, "-X", flag, code=1).err


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("flags", [["-funsafe-math-optimizations"], ["-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"]])
def test_sums_are_not_broken_apart(project, cc, flags):
    """gcc says so in a macro, and the header refuses; with clang the header switches it off."""
    project.write("my_ops.c", ELEMENTWISE)
    options = [word for flag in flags for word in ("-X", flag)]
    if "clang" not in cc:
        assert "-ffp-contract=fast is what they need" in project("build", "--cc", cc, *options, code=1).err
        return
    ones, found = numpy.linspace(-9, 9, 999, dtype=numpy.float32), []
    for out, more in (("plain.so", []), ("fast.so", options)):
        project("build", "--cc", cc, *more, "-o", out)
        with package.load(project.folder / out) as library:
            found.append(library.swiglu(ones, ones))
    numpy.testing.assert_allclose(*found, rtol=1e-6)


def test_plain_errors_are_passed_on(project, source):
    project.write("my_ops.c", source.replace("return DV_OK;", "return DV_OK", 1))
    r = project("build", code=1)
    assert "error" in r.err and "my_ops.c:" in r.err and "What is wrong" not in r.err and "'my_ops.so' was not made" in r.err


def test_link_errors(project, source):
    project.write("my_ops.c", source.replace("static int swiglu_f32", "void nowhere(void);\nstatic int swiglu_f32", 1).replace("(void)ctx;", "nowhere();", 1))
    assert "nothing defines 'nowhere'" in project("build", code=1).err
    project.write("a.c", source), project.write("b.c", source)
    assert "two of the files have a DV_LIBRARY" in project("build", "a.c", "b.c", code=1).err


@pytest.mark.skipif(not shutil.which("clang"), reason="no clang here")
def test_the_runtime_of_a_sanitizer_of_clang(project):
    assert "add -X -shared-libsan" in project("build", "--cc", "clang", "-X", "-fsanitize=undefined", code=1).err


def test_exactly_one_symbol(project, source):
    project.write("my_ops.c", source.split("DV_LIBRARY(")[0])
    assert "exports no 'dovetail_library_1'" in project("build", code=1).err
    project.write("my_ops.c", source + '\n__attribute__((visibility("default"))) int mine(void);\nint mine(void) { return 1; }\n')
    r = project("build", code=1)
    assert "exports mine besides 'dovetail_library_1'" in r.err and not (project.folder / "my_ops.so").exists()


def test_a_binary_that_crashes_on_load_is_refused(project, source):
    project("build")
    before = (project.folder / "my_ops.so").read_bytes()
    project.write("my_ops.c", source + "\n__attribute__((constructor)) static void boom(void) { __builtin_trap(); }\n")
    assert "crashed while it was loaded" in project("build", code=1).err
    assert (project.folder / "my_ops.so").read_bytes() == before and not project.leftovers()


# ---- Names and places ------------------------------------------------------------------------------------------------------------------

WEIRD = ["a b.c", "it's.c", 'quote".c', "new\nline.c", "$(touch pwned).c", "`touch pwned`.c", "semi;colon.c", "-o.c", "-.c", "@file.c", "star*.c", "tab\t.c",
         "back\\slash.c", "percent%s.c", "ünïcode.c", "comma,.c", "equals=.c", "#hash.c", "&.c", "|.c", "~.c", "a" * 200 + ".c", ".hidden.c", "..c", "{}.c", "!.c"]


@pytest.mark.parametrize("name", WEIRD)
def test_any_file_name_is_safe(dovetail, source, name):
    (dovetail.folder / name).write_text(source)
    r = dovetail("build", "--json", "--", name).json
    assert r["out"] == name[:-2] + ".so"
    assert sorted(os.listdir(dovetail.folder)) == sorted([name, name[:-2] + ".so"])
    assert symbols(dovetail.folder / r["out"]) == ["dovetail_library_1"]


@pytest.mark.parametrize("name", [n[:-2] for n in WEIRD if n != "..c"])
def test_any_folder_name_is_safe(dovetail, source, name):
    folder = dovetail.folder / name
    folder.mkdir()
    (folder / "op.c").write_text(source)
    (folder / "also.h").write_text("")
    dovetail("build", f"--include={name}", f"--out={name}/op.so", "--", f"{name}/op.c")
    assert sorted(os.listdir(folder)) == ["also.h", "op.c", "op.so"] and os.listdir(dovetail.folder) == [name]


def test_a_source_name_that_is_not_utf8(dovetail, source):
    name = b"caf\xe9.c"
    (pathlib.Path(os.fsdecode(bytes(dovetail.folder) + b"/" + name))).write_text(source)
    r = dovetail("build", "--json", os.fsdecode(name))
    assert os.path.exists(bytes(dovetail.folder) + b"/caf\xe9.so") and r.json["out"] == "caf\ufffd.so"


def as_nobody():
    return {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}


def test_unwritable_folder(tmp_path, source):
    for p in (tmp_path, *tmp_path.parents):
        if p.stat().st_uid == os.getuid() and len(p.parts) > 2:
            p.chmod(p.stat().st_mode | 0o711)
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "op.c").write_text(source)
    (folder / "op.so").write_text("old")
    folder.chmod(0o555)
    r = Dovetail(folder)("build", "op.c", code=1, **as_nobody())
    assert "cannot write in folder '.': Permission denied" in r.err
    assert (folder / "op.so").read_text() == "old"
    folder.chmod(0o755)


def test_outputs_that_cannot_be(project):
    (project.folder / "dir.so").mkdir()
    assert "it is a folder" in project("build", "-o", "dir.so", code=1).err
    assert "it is a folder" in project("build", "-o", "new/", code=1).err
    assert "there is no folder 'no/where'" in project("build", "-o", "no/where/x.so", code=1).err
    assert "one of the sources" in project("build", "-o", "my_ops.c", "my_ops.c", code=2).err
    assert "cannot write" in project("build", "-o", "/proc/x.so", code=1).err


def make_link(path):
    path.with_name("target").write_text("kept")
    path.symlink_to("target")


def make_socket(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(path))
    s.close()


NOT_FILES = {"a pipe": os.mkfifo, "a symbolic link": make_link, "a symbolic link to nothing": lambda path: path.symlink_to("nowhere"),
             "a socket": make_socket, "a device": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))}


def identity(path):
    """What a write changes; the time of the last access is not part of it: a link that is read has a new one."""
    s = path.lstat()
    return s.st_ino, s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns


@pytest.mark.parametrize("kind", NOT_FILES)
def test_only_a_regular_file_is_replaced(project, kind, monkeypatch):
    monkeypatch.chdir(project.folder)
    out = pathlib.Path("out.so")
    try:
        NOT_FILES[kind](out)
    except PermissionError:
        pytest.skip("only root can make a device")
    before = identity(out)
    assert f"cannot write 'out.so': it is {kind.removesuffix(' to nothing')}" in project("build", "-o", "out.so", code=1).err
    assert identity(out) == before and not project.leftovers()
    if kind == "a symbolic link":
        assert pathlib.Path("target").read_text() == "kept"


def test_what_becomes_a_pipe_while_it_is_built(project, tmp_path):
    cc = compiler(tmp_path, "swap", f"os.mkfifo({str(project.folder / 'out.so')!r})")
    assert "it is a pipe" in project("build", "--cc", str(cc), "-o", "out.so", code=1).err
    assert stat.S_ISFIFO((project.folder / "out.so").stat().st_mode) and not project.leftovers()


def test_a_pipe_among_the_sources(project):
    os.mkfifo(project.folder / "pipe.c")
    project("build")
    assert "expected a file" in project("build", "pipe.c", code=1).err


def test_sources_that_cannot_be(project):
    assert "'no.c': No such file" in project("build", "no.c", code=1).err
    (project.folder / "dir.c").mkdir()
    assert "files in dir.c includes <dovetail_op.h>" in project("build", "dir.c", code=1).err
    project("build") # a folder in the folder is no source


def test_a_source_that_cannot_be_read(tmp_path, source):
    """Named, or found in a folder: no verb goes on without it."""
    for p in (tmp_path, *tmp_path.parents):
        if p.stat().st_uid == os.getuid() and len(p.parts) > 2:
            p.chmod(p.stat().st_mode | 0o711)
    here = Dovetail(tmp_path)
    here.write("ops/a.c", source), here.write("ops/locked.c", source.replace("DV_LIBRARY(", "// "))
    (tmp_path / "ops/locked.c").chmod(0)
    env = {"DOVETAIL_CACHE": "off", "DOVETAIL_PYTHON": ""}
    for words in (["build", "ops/locked.c", "-o", "/tmp/never.so"], ["build", "ops", "-o", "/tmp/never.so"], ["info", "ops"], ["check", "ops"],
                  ["check", "ops/locked.c"]):
        assert "cannot read 'ops/locked.c': Permission denied" in here(*words, code=1, env=env, **as_nobody()).err


def test_a_file_named_twice_is_taken_once(project):
    project("build", "my_ops.c", "./my_ops.c", "-o", "once.so")
    assert symbols(project.folder / "once.so") == ["dovetail_library_1"]
    env = {"DOVETAIL_CACHE": str(project.folder / "cache"), "DOVETAIL_PYTHON": ""}
    assert len(project("info", "--json", "my_ops.c", "./my_ops.c", env=env).json["operators"]) == 2
    assert project("check", "--only", "binding", "my_ops.c", "./my_ops.c", env=env).out.count("  pass") == 2


def test_a_folder_of_two_libraries(dovetail, source):
    dovetail.write("two/a.c", source), dovetail.write("two/b.c", source.replace("DV_LIBRARY(my_ops", "DV_LIBRARY(other"))
    assert "'two': its files define several libraries" in dovetail("check", "two", code=1).err


def test_a_refused_operator_is_explained_in_each_form(dovetail, source):
    """The reason is in the JSON document too, and "dovetail: error:" is written once."""
    dovetail.write("bad.c", source.replace("out[*s]:T; parallel", "out[*s]:double; parallel"))
    env = {"DOVETAIL_CACHE": str(dovetail.folder / "cache"), "DOVETAIL_PYTHON": ""}
    reason = "unknown name 'double': no input has such a size or dtype, and the schema no such argument; did you mean 'f64'?"
    answer = dovetail("info", "--json", "bad.c", code=1, env=env)
    assert reason in answer.json["error"] and "dovetail: error" not in answer.json["error"]
    for words in (["check", "--only", "runs", "bad.c"], ["check", "--only", "binding", "bad.c"], ["info", "bad.c"]):
        answer = dovetail(*words, code=1, env=env)
        assert reason in answer.out + answer.err and "dovetail: error: dovetail" not in answer.out + answer.err


def test_an_unknown_type_of_a_field(project, source):
    project.write("my_ops.c", source.replace("const dv_tensor *gate, *up;", "const dv_tensor *gate, *up; dv_tensor_list xs;"))
    assert "Dovetail has no type of this name" in project("build", code=1).err


def test_a_failed_build_leaves_the_old_binary(project, source):
    project("build")
    before = (project.folder / "my_ops.so").read_bytes()
    project.write("my_ops.c", source + "garbage")
    r = project("build", code=1)
    assert "'my_ops.so' was not changed" in r.err and (project.folder / "my_ops.so").read_bytes() == before


# ---- Compilers ---------------------------------------------------------------------------------------------------------------------------

def test_missing_compilers(project, tmp_path):
    (tmp_path / "empty").mkdir()
    nothing = {"PATH": str(tmp_path / "empty")}
    assert "none of cc, gcc and clang is on PATH" in project("build", env=nothing, code=1).err
    assert "no compiler 'nosuch' (from --cc)" in project("build", "--cc", "nosuch", code=1).err
    assert "no compiler 'nosuch' (from $CC)" in project("build", env={"CC": "nosuch -m64"}, code=1).err
    project.write("k.cu", "int x;\n")
    assert "no CUDA compiler 'nonvcc'" in project("build", "k.cu", "--nvcc", "nonvcc", code=1).err


def test_cc_may_have_arguments(project):
    assert "-DFROM_CC" in project("build", "-v", env={"CC": "gcc  -DFROM_CC "}).err
    assert "from-env" not in project("build", "-v", "--cc", "gcc", env={"CC": "from-env"}).err
    project("build", env={"CC": "  "})  # blank: not set


def test_a_compiler_that_crashes(project, tmp_path):
    cc = compiler(tmp_path, "crash", "os.kill(os.getpid(), 11)")
    assert "was killed by signal 11" in project("build", "--cc", str(cc), code=1).err
    (tmp_path / "notexec").write_text("")
    assert "no compiler" in project("build", "--cc", str(tmp_path / "notexec"), code=1).err
    bad = tmp_path / "badformat"
    bad.write_bytes(b"\0\1\2")
    bad.chmod(0o755)
    assert "cannot run" in project("build", "--cc", str(bad), code=1).err
    assert not project.leftovers()


def test_a_process_that_the_compiler_leaves_behind(project, tmp_path):
    """A daemon of a compiler's wrapper holds its output open: the build ends with the compiler."""
    cc = compiler(tmp_path, "daemon", "print('from the wrapper', flush=True)\nif not os.fork():\n    time.sleep(100)\n    os._exit(0)")
    started = time.monotonic()
    assert "from the wrapper" in project("build", "--cc", str(cc)).err
    assert time.monotonic() - started < 60


def test_a_process_that_the_binary_leaves_behind(project, source):
    project.write("my_ops.c", "#include <unistd.h>\n" + source
                  + "__attribute__((constructor)) static void leave(void) { if (!fork()) { close(1); close(2); sleep(100); _exit(0); } }\n")
    env = {"DOVETAIL_CACHE": str(project.folder / "cache")}
    started = time.monotonic()
    project("build", env=env)
    project("build", "--cached", "my_ops.c", env=env)
    for path in (project.folder / "cache").glob("*.deps"):
        path.unlink()
    project("build", "--cached", "my_ops.c", env=env)  # the lock is not held
    assert time.monotonic() - started < 60


def test_no_child_is_reported(project):
    """A process that ignores SIGCHLD passes this on to its children."""
    assert subprocess.run(["bash", "-c", "trap '' CHLD; exec dovetail build"], cwd=project.folder, env=project.env).returncode == 0


def test_a_binary_for_another_machine(project, tmp_path):
    """As a cross compiler makes it."""
    cc = compiler(tmp_path, "cross", """import subprocess
assert not subprocess.run(["gcc", *sys.argv[1:]]).returncode
with open(sys.argv[sys.argv.index("-o") + 1], "r+b") as f:
    f.seek(18); f.write(bytes([22, 0]))
sys.exit()""")
    err = project("build", "--cc", str(cc), code=1).err
    assert "not a usable operator binary: made for s390 (machine 22), this is " in err and "my_ops.so" in err
    assert not (project.folder / "my_ops.so").exists()


# ---- Interruption and concurrency ------------------------------------------------------------------------------------------------------

@pytest.fixture
def halfway(project, tmp_path):
    """A project with an old binary, and a build that is stuck in the compiler."""
    project("build")
    old = (project.folder / "my_ops.so").read_bytes()
    text = (project.folder / "my_ops.c").read_text()
    project.write("my_ops.c", text.replace("silu(gate) * up, elementwise", "something else"))
    cc = compiler(tmp_path, "slowcc", 'out = sys.argv[sys.argv.index("-o") + 1]; open(out, "w").write("half"); time.sleep(60)')
    p = project.popen("build", "--cc", str(cc), start_new_session=True)
    wait_until(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text() and list(project.folder.glob(".dovetail-build-*/out.so")))
    yield project, p, old, int((tmp_path / "started").read_text())
    for pid in (p.pid, int((tmp_path / "started").read_text())):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    p.wait()


def gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_clean_up(halfway, number):
    project, p, old, child = halfway
    os.kill(p.pid, number)
    out, err = p.communicate(timeout=20)
    assert p.returncode == -number, "the signal is what ends the process, for shells and make to see"
    assert (project.folder / "my_ops.so").read_bytes() == old and not project.leftovers()
    wait_until(lambda: gone(child))


def test_interrupt_from_a_terminal(halfway):
    """Control-C goes to the whole process group."""
    project, p, old, child = halfway
    os.killpg(p.pid, signal.SIGINT)
    p.communicate(timeout=20)
    assert p.returncode == -signal.SIGINT and (project.folder / "my_ops.so").read_bytes() == old and not project.leftovers()


def test_kill_9_leaves_the_old_binary_and_the_next_build_tidies(halfway):
    project, p, old, child = halfway
    os.kill(p.pid, signal.SIGKILL)
    p.communicate(timeout=20)
    assert (project.folder / "my_ops.so").read_bytes() == old
    assert len(project.leftovers()) == 1
    os.kill(child, signal.SIGKILL)
    project("build")
    assert not project.leftovers() and (project.folder / "my_ops.so").read_bytes() != old


def test_the_temporary_folder_of_a_living_build_is_kept(halfway):
    project, p, old, child = halfway
    living = project.leftovers()
    project("build")
    assert project.leftovers() == living


def test_ignored_signals_stay_ignored(project):
    """Under nohup a hangup does nothing."""
    code = f"nohup dovetail build --cc ./slow >/dev/null 2>&1 & pid=$!; sleep 0.5; kill -HUP $pid; wait $pid"
    compiler(project.folder, "slow", "time.sleep(1)")
    assert subprocess.run(["bash", "-c", code], cwd=project.folder, env=project.env).returncode == 0
    assert (project.folder / "my_ops.so").exists()


def test_concurrent_builds(project, source):
    """Many builds of one output, with readers: every look at it sees a whole binary."""
    for i in range(4):
        project.write(f"v{i}.c", source.replace("silu(gate) * up, elementwise", f"version {i} " + "x" * 1000 * i))
    project("build", "v0.c", "-o", "ops.so")
    whole = {}
    for i in range(4):
        project("build", f"v{i}.c", "-o", f"alone{i}.so")
        whole[(project.folder / f"alone{i}.so").read_bytes()] = i
    running = [project.popen("build", f"v{i % 4}.c", "-o", "ops.so") for i in range(12)]
    while any(p.poll() is None for p in running):
        assert (project.folder / "ops.so").read_bytes() in whole
    assert [p.wait() for p in running] == [0] * 12
    for p in running:
        p.communicate()
    assert (project.folder / "ops.so").read_bytes() in whole and not project.leftovers()


def test_mode_follows_umask(project):
    p = subprocess.run(["bash", "-c", "umask 027; dovetail build"], cwd=project.folder, env=project.env)
    assert p.returncode == 0 and stat.S_IMODE((project.folder / "my_ops.so").stat().st_mode) == 0o750


FAILS = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; int64_t k; dv_tensor *out; };
static int pick(dv_context *ctx, int64_t k, float *scale, int64_t *at)
{
    if (k < 0)
        return dv_error(ctx, DV_EINVAL, "k is %lld", (long long)k);
    if (k > 3)
        return k > 9 ? dv_error(ctx, DV_ELIMIT, "k is large") : dv_error(ctx, (int)-k, "k is no number for this");
    *scale = (float)k, *at = k;
    return DV_OK;
}
static int f_f32(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data, scale;
    int64_t at;
    const int status = pick(ctx, a->k, &scale, &at);
    if (status)
        return status;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = x[i] * scale + (float)at;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, k, out), .schema = "f(Tensor x, int k) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_f32)));
DV_LIBRARY(fails, &dv_op_f);
"""


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("options", [[], ["-g"], ["-X", "-O2"], ["-X", "-Os"], ["-X", "-O0"], ["-X", "-std=gnu17"]])
def test_what_an_error_leaves_unset_is_no_warning(dovetail, cc, options):
    """dv_error() gives a status that is not 0, and the compiler knows it."""
    dovetail.write("f.c", FAILS)
    assert dovetail("build", "f.c", "-W", "--json", "--cc", cc, *options).json["messages"] == ""
    for k in (-1, 5, 10):
        with pytest.raises(package.DovetailError):
            package.load(str(dovetail.folder / "f.so")).f(numpy.ones(3, "f4"), k)
