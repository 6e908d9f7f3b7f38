"""info, list, explain and bench, on the project of `dovetail new` and on the shipped operators."""
import json
import re
import subprocess

import hypothesis
import hypothesis.strategies as st
import pytest
from cli_helpers import BUILD, Dovetail
from test_cli_usage import VERBS


@pytest.fixture
def built(project):
    project("build")
    return project


@pytest.mark.parametrize("verb", [pytest.param(v, marks=pytest.mark.slow) if v == "check" else v for v in VERBS])
def test_the_examples_of_the_help_work(project, verb):
    """Word for word, in a shell, in a built project."""
    project("build")
    if verb == "import":  # reads a header of the reader's; an export is one
        project("export", "--reg-op", "my_ops.so", "-o", "custom_reg_op.h")
    examples = re.findall(r"^  \$ (.*)$", project(verb, "--help").out.split("Examples:")[1], re.M)
    assert examples
    for line in examples:
        if "--torch" in line or "KEY" in line:
            continue  # a package, or a key, of the reader's
        line = line.replace("dovetail bench", "dovetail bench --time 1")
        r = subprocess.run(line, shell=True, cwd=project.folder, env=project.env, capture_output=True, text=True)
        assert r.returncode == 0 and not r.stderr, f"{line}\n{r.stdout}{r.stderr}"


# ---- Declarations that a host would refuse, found at build time -----------------------------------------------------------------------

DECLARATIONS = [
    ("a schema that does not parse", "swiglu(Tensor gate, Tensor up) -> Tensor out", "swiglu(Tensor gate, Tensr up) -> Tensor out", "swiglu", "Tensr"),
    ("an argument without its field", "swiglu(Tensor gate, Tensor up) -> Tensor out", "swiglu(Tensor gate, Tensor up, float eps) -> Tensor out", "swiglu", "eps"),
    ("a field of another type", "swiglu(Tensor gate, Tensor up) -> Tensor out", "swiglu(Tensor gate, int up) -> Tensor out", "swiglu", "up"),
    ("a contract that does not parse", "up[*s]:T -> out[*s]:T; parallel(*s)", "up[*s:T -> out[*s]:T; parallel(*s)", "swiglu", "expected"),
    ("a contract with another argument", "gate[*s]:T, up[*s]:T -> out", "gate[*s]:T, down[*s]:T -> out", "swiglu", "down"),
    ("an output that nothing binds", "-> out[*s]:T; parallel(*s)", "-> out[*s k]:T; parallel(*s)", "swiglu", "k"),
    ("a decomposition that calls nothing", "mul(silu(gate), up)", "mul(silo(gate), up)", "swiglu", "silo"),
    ("a gradient of no argument", "gate, up: swiglu_grad", "gate, upp: swiglu_grad", "swiglu", "upp"),
    ("an unknown dtype", '"cpu", "f32", swiglu_f32', '"cpu", "f23", swiglu_f32', "swiglu", "f23"),
    ("an unknown device", '"cpu", "f32", swiglu_grad_f32', '"gpu", "f32", swiglu_grad_f32', "swiglu_grad", "gpu"),
]


@pytest.mark.parametrize("what, old, new, op, word", DECLARATIONS, ids=[d[0] for d in DECLARATIONS])
def test_wrong_declarations_are_found_when_building(built, source, what, old, new, op, word):
    before = (built.folder / "my_ops.so").read_bytes()
    assert old in source
    built.write("my_ops.c", source.replace(old, new, 1))
    r = built("build", "--cc", "gcc", code=1)
    line = next(i for i, s in enumerate(source.splitlines(), 1) if s.startswith(f"DV_OPERATOR({op},"))
    assert f"my_ops.c:{line}: " in r.err and f"my_ops::{op}" in r.err and word in r.err, r.err
    assert ".dovetail-build" not in r.err
    assert (built.folder / "my_ops.so").read_bytes() == before and not built.leftovers()


# ---- What code of a library prints -----

LOUD = """
#include <dovetail_op.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    PRINT
    const float *x = a->x->data;
    float *out = a->out->data;
    for (int64_t i = 0; i < dv_numel(a->out); i++)
        out[i] = 2 * x[i];
    return DV_OK;
}
static void print_at_fork(void) { printf("loud at a fork\\n"), fflush(stdout); }
__attribute__((constructor)) static void print_at_load(void)
{
    printf("loud at load\\n");
    if (write(1, "loud below stdio\\n", 17) == 17)
        pthread_atfork(print_at_fork, NULL, print_at_fork);
}
__attribute__((destructor)) static void print_at_end(void) { printf("loud at the end\\n"), fflush(stdout); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32", .native = "add(x, x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(loud, &dv_op_f);
"""


@pytest.mark.parametrize("prints", ["", 'printf("loud in a call\\n");'], ids=["at load", "in calls"])
@pytest.mark.parametrize("words", [["info", "loud.so"], ["list", "loud.so"], ["explain", "loud.so", "loud::f", "f32[3]"],
                                   ["bench", "loud.so", "loud::f", "f32[3]"], ["check", "loud.c"]], ids=lambda w: w[0])
def test_what_a_library_prints_is_not_in_the_document(dovetail, words, prints):
    dovetail.write("loud.c", LOUD.replace("PRINT", prints))
    dovetail("build", "loud.c", "-o", "loud.so")
    result = dovetail(words[0], "--json", *words[1:], code=None)
    assert isinstance(result.json, dict) and "loud at load" in result.err
    assert result.code == (1 if prints and words[0] == "check" else 0)


def test_a_document_without_stderr(dovetail):
    """With a closed stderr what a library prints is lost; with a full one the document is right all the same."""
    dovetail.write("loud.c", LOUD.replace("PRINT", ""))
    dovetail("build", "loud.c", "-o", "loud.so")
    for words in ("2>&-", "2>/dev/full"):
        done = subprocess.run(["sh", "-c", f'exec "$0" info --json loud.so {words}', dovetail.command], cwd=dovetail.folder, capture_output=True, text=True)
        assert json.loads(done.stdout)["ok"] and done.returncode == 0, (words, done)


def test_a_library_that_ends_the_process(dovetail):
    source = LOUD.replace("PRINT", "").replace('printf("loud at load\\n");', "if (getenv(\"ENDS\")) exit(0);").replace("#include <stdio.h>", "#include <stdio.h>\n#include <stdlib.h>")
    dovetail.write("loud.c", source)
    dovetail("build", "loud.c", "-o", "loud.so")
    for words in (["info", "loud.so"], ["list", "--json", "loud.so"], ["explain", "loud.so", "loud::f", "f32[3]"]):
        assert "a library has ended the process, by exit()" in dovetail(*words, env={"ENDS": "1"}, code=1).err
    assert "it ends the process while it is loaded, by exit(0)" in dovetail("build", "loud.c", env={"ENDS": "1"}, code=1).err


# ---- info, list ---------------------------------------------------------------------------------------------------------------------------

def test_info(built):
    out = built("info", "my_ops.so").out
    for part in ("my_ops::swiglu(Tensor gate, Tensor up) -> Tensor out", "gate[*s]:T", "mul(silu(gate), up)", "swiglu_grad(grad, gate, up)", "swiglu_f32",
                 "silu(gate) * up, elementwise", "my_ops::swiglu_grad("):
        assert part in out, out
    one = built("info", "my_ops.so", "my_ops::swiglu_grad").out
    assert "my_ops::swiglu_grad(" in one and "mul(silu(gate), up)" not in one
    assert built("info", "my_ops.so", "my_ops").out == out
    assert built("info", "my_ops.so", "swiglu_grad").out == one


def test_info_json(built):
    ops = built("info", "--json", "my_ops.so").json["operators"]
    assert [op["name"] for op in ops] == ["my_ops::swiglu", "my_ops::swiglu_grad"]
    assert ops[0]["contract"]["text"] == "gate[*s]:T, up[*s]:T -> out[*s]:T; parallel(*s)"


def test_info_refuses(built):
    assert "no_such" in built("info", "my_ops.so", "my_ops::no_such", code=1).err
    assert "swiglu" in built("info", "my_ops.so", "my_ops::swiglo", code=1).err  # names what is near
    assert "none.so" in built("info", "none.so", code=1).err
    built.write("text.so", "this is not a binary")
    assert "text.so" in built("info", "text.so", code=1).err
    binary = (built.folder / "my_ops.so").read_bytes()
    (built.folder / "cut.so").write_bytes(binary[: len(binary) // 2])
    assert "cut.so" in built("info", "cut.so", code=1).err
    r = built("info", "--json", "cut.so", code=1)
    assert r.json["ok"] is False and "cut.so" in r.json["error"]


def test_list(built):
    shipped = {p.stem for p in (BUILD / "ops").glob("*.so")}
    assert shipped, "the build tree has shipped operators"
    names = {op["name"] for op in built("list", "--json").json["operators"]}
    assert {"dovetail::swiglu", "dovetail::crop"} <= names
    r = built("list", "my_ops.so")
    assert not r.err and re.search(r"^  my_ops::swiglu +silu\(gate\) \* up, elementwise", r.out, re.M)
    assert r.out.rstrip().splitlines()[-1].startswith("  my_ops::swiglu_grad"), "what was asked for comes last"
    assert all(f"  {name}" in r.out for name in names)
    assert len(built("list", "--all", "--json").json["operators"]) > len(names)


def test_an_empty_home_has_no_operators(built, tmp_path):
    (tmp_path / "h" / "include").mkdir(parents=True)
    (tmp_path / "h" / "include" / "dovetail_op.h").write_text("")
    r = built("list", "--json", env={"DOVETAIL_HOME": str(tmp_path / "h")})
    assert r.json["operators"] == [] and not r.err


# ---- explain: the syntax of arguments, and the verdicts ----------------------------------------------------------------------------------

TYPES = """
#include <dovetail_op.h>
struct every {
    const dv_tensor *x; dv_opt_tensors xs; int64_t i; double f; bool b; dv_string s; dv_scalar n; dv_complex c; dv_dtype t; dv_device d; dv_ints ii; dv_floats fs;
    dv_bools bs; dv_opt_strings ss; dv_opt_int oi; dv_opt_string os; dv_opt_ints ois; const dv_tensor *ox; dv_memory_format m; dv_layout l; dv_tensor *out;
};
static int every_any(dv_context *ctx, const struct every *a) { return dv_error(ctx, DV_EKERNEL, "this never runs"); }
DV_OPERATOR(every, struct every, (x, xs, i, f, b, s, n, c, t, d, ii, fs, bs, ss, oi, os, ois, ox, m, l, out),
    .schema = "every(Tensor x, Tensor?[]? xs=None, int i=1, float f=2.0, bool b=True, str s='a', Scalar n=1, complex c=1j, ScalarType t=float, Device d='cpu', "
              "int[] ii=[], float[] fs=[], bool[] bs=[], str[]? ss=None, int? oi=None, str? os=None, int[]? ois=None, Tensor? ox=None, "
              "MemoryFormat m=contiguous_format, Layout l=strided) -> Tensor out",
    .contract = "x[*r]:T, xs{i}[*w]:W, ox[*q]:U -> out[*r]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct every, "cpu", NULL, every_any, .takes = "strided(x)")));
DV_LIBRARY(types, &dv_op_every);
"""
SHOWN = [  # written, as explain shows it
    ("f32[2]", "x=f32[2]"), ("f32[]", "x=f32[]"), ("bf16[4,1024]", "x=bf16[4, 1024]"), (" f32 [2]", "x=f32[2]"), ("f32[2, 3 ]", "x=f32[2, 3]"), ("i64[0,5]", "x=i64[0, 5]"),
    ("f32[4,6]@[1,4]", "x=f32[4, 6] @ [1, 4]"), ("f32[4,6]@[6,1]", "x=f32[4, 6]"), ("f32[4,6]@[0,1]", "x=f32[4, 6] @ [0, 1]"), ("float32[2]", "x=f32[2]"),
    ("f32[100000,100000,1000]", "x=f32[100000, 100000, 1000]"), ("i64[2]=[-1,7]", "x=i64[2] = [-1, 7]"), ("i64[2]=0..8", "x=i64[2] = 0..8"), ("f32[2] = .5", "x=f32[2] = 0.5"),
    ("i=3", "i=3"), ("i=-3", "i=-3"), ("i=9223372036854775807", "i=9223372036854775807"), ("f=1e-5", "f=1e-05"), ("f=3", "f=3.0"), ("f=-.5", "f=-0.5"), ("f=inf", "f=inf"),
    ("b=true", "b=true"), ("b=False", "b=false"), ("s=BSND", 's="BSND"'), ('s="a b"', 's="a b"'), ("s='none'", 's="none"'), ("n=3", "n=3"), ("n=2.5", "n=2.5"),
    ("n=true", "n=true"), ("c=1+2j", "c=1.0+2.0j"), ("c=2j", "c=0.0+2.0j"), ("c=1", "c=1.0+0.0j"), ("t=bf16", "t=bf16"), ("t=int64", "t=i64"), ("d=cuda:1", "d=cuda:1"),
    ("ii=[1,2,3]", "ii=[1, 2, 3]"), ("ii=[]", "ii=[]"), ("ii=[ -1 ]", "ii=[-1]"), ("fs=[1,2.5]", "fs=[1.0, 2.5]"), ("bs=[true,false]", "bs=[true, false]"),
    ("ss=[a,\"b c\"]", 'ss=["a", "b c"]'), ("xs=[f32[2,3],none,f32[2,3]]", "xs=[f32[2, 3], none, f32[2, 3]]"), ("oi=3", "oi=3"), ("oi=none", "oi=none"),
    ("os=x", 'os="x"'), ("ois=[1]", "ois=[1]"), ("ois=none", "ois=none"), ("ox=f32[3]", "ox=f32[3]"), ("ox=None", "ox=none"), ("i=default", "i=1"),
    ("m=channels_last", "m=channels_last"), ("l=strided", "l=strided"),
    ("ii=(1,2,3)", "ii=[1, 2, 3]"), ("ii=(7,)", "ii=[7]"), ("ii=()", "ii=[]"), ("fs=(1,2.5)", "fs=[1.0, 2.5]"), ("ss=(none,None,true)", 'ss=["none", "None", "true"]'),
    ("xs=(f32[2],none)", "xs=[f32[2], none]"), ("i64[2]=(1,2)", "x=i64[2] = [1, 2]"), ("ois=(3,3)", "ois=[3, 3]"), ("s=\"none\"", 's="none"'), ("s=true", 's="true"'),
    ("os=none", "os=none"), ("os=\"none\"", 'os="none"'), ("s=default", 's="a"'),
]
REFUSED = [  # written, in the message
    ("f32[2", "argument 'x': column 19: expected ',' or ']', found ')'"), ("f32[2,x]", "expected a size, found 'x])'"), ("f23[2]", "expected an element type"),
    ("f32[2]@[1,2]", "as many strides"), ("f32[2]:gpu", "expected a device"), ("f32[2]x", "expected ',' or ')', found 'x)'"), ("f32[2]=", "expected a number"),
    ("f32[2]=[1,2,3]", "as many values as elements"), ("f32[2]=1e400", "expected a number that fits a double"), ("i=1.5", "argument 'i': expected int, found float"),
    ("i=x", "expected a number"), ("f=abc", "argument 'f': column 24: expected a number"), ("f=1e400", "expected a number that fits a double"), ("f=-1e400", "that fits a double"),
    ("b=1", "expected bool, found int"), ("c=x", "expected a number"), ("c=1+1e400j", "that fits a double"), ("fs=[1e400]", "that fits a double"),
    ("t=f23", "expected an element type"), ("d=gpu", "expected a device"), ("ii=3", "expected a list such as [1, 2]"), ("ii=[1,2.5]", "expected an integer"), ("ii=[1", "expected ',' or ']'"),
    ("ii=[[[1]]]", "expected a number"), ("s=\"open", "expected a closing quote"), ("s=3", "expected a word, or a string in quotes"), ("x=3", "argument 'x': column 16: expected an element type"),
    ("nope=1", "expected an argument's name, found 'nope=1)'"), ("f32[-1]", "-1"), ("m=upside_down", "contiguous_format"), ("i=99999999999999999999", "expected an integer of 64 bits"),
    ("ox=[f32[2]]", "expected an element type"), ("ii=(1,2", "expected ',' or ')'"), ("ii=(1]", "expected ',' or ')'"), ("ss=[1]", "a string in quotes"),
    ("s=none", "argument 's': expected str, found None; the text is written \"none\", with its quotes"), ("s=None", "written \"None\", with its quotes"), ("", "argument 'x': missing"),
]


@pytest.fixture(scope="module")
def types(tmp_path_factory):
    d = Dovetail(tmp_path_factory.mktemp("types"))
    d.write("types.c", TYPES)
    d("build", "types.c")
    return d


PARTS = """
#include <dovetail_op.h>
struct parts { const dv_tensor *x; int64_t size; dv_mut_tensors out; };
static int parts_any(dv_context *ctx, const struct parts *a) { return dv_error(ctx, DV_EKERNEL, "this never runs"); }
DV_OPERATOR(parts, struct parts, (x, size, out), .schema = "parts(Tensor x, int size) -> Tensor[] out",
    .contract = "x[n]:T -> out{i < ceildiv(n, size)}[min(size, n - i * size)]:T; size > 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct parts, "cpu", NULL, parts_any)));
struct odd { int64_t n; dv_mut_tensors out; };
static int odd_any(dv_context *ctx, const struct odd *a) { return (void)ctx, (void)a, DV_OK; }
DV_OPERATOR(odd, struct odd, (n, out), .schema = "odd(int n) -> Tensor[] out", .contract = "-> out{i < n}[1 - 2*i]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct odd, "cpu", NULL, odd_any)));
DV_LIBRARY(lists, &dv_op_parts, &dv_op_odd);
"""


def test_results_that_are_lists(tmp_path):
    p = Dovetail(tmp_path)
    p.write("parts.c", PARTS)
    p("build", "parts.c", "-o", "parts.so")
    call = ("explain", "parts.so", "lists::parts")
    assert p(*call, "f32[5]", "2").out.endswith("  out -> [f32[2], f32[2], f32[1]]\n") and p(*call, "f32[0]", "2").out.endswith("  out -> []\n")
    assert [x["shape"] for x in p(*call, "f32[5]", "2", "--json").json["results"][0]["list"]] == [[2], [2], [1]]
    assert p(*call, "f32[0]", "2", "--json").json["results"][0]["list"] == []
    assert "lists::odd: result 'out[1]': expected a size, found 1 - 2*i = -1" in p("explain", "parts.so", "lists::odd", "2", code=1).err
    assert "lists::odd: result 'out': expected a number of tensors, found -1" in p("explain", "parts.so", "lists::odd", "-1", code=1).err


@pytest.mark.parametrize("word, shown", SHOWN, ids=[w for w, _ in SHOWN])
def test_arguments(types, word, shown):
    words = [word] if "=" not in word or word.startswith(("x=", "f32", "i64")) else ["f32[2]", word]
    if shown is None:
        types("explain", "types.so", "types::every", *words, code=2)
    else:
        assert re.search(rf"[(,] ?{re.escape(shown)}[,)]", types("explain", "types.so", "types::every", *words).out)


@pytest.mark.parametrize("word, message", REFUSED, ids=[w for w, _ in REFUSED])
def test_arguments_that_cannot_be(types, word, message):
    words = [word] if "=" not in word or word.startswith(("x=", "f32")) else ["f32[2]", word]
    assert message in types("explain", "types.so", "types::every", *words, code=2).err


def test_wrong_numbers_of_arguments(types):
    assert "argument 'x': missing" in types("explain", "types.so", "types::every", code=2).err
    assert "argument 'x': missing" in types("explain", "types.so", "types::every()", code=2).err
    assert "given twice" in types("explain", "types.so", "types::every", "f32[2]", "x=f32[2]", code=2).err
    assert "there are no more arguments" in types("explain", "types.so", "types::every", *["f32[2]"] + ["default"] * 20, code=2).err


def test_explain(built):
    r = built("explain", "my_ops.so", "my_ops::swiglu", "f32[4,1024]", "f32[4,1024]")
    assert re.search(r"^\* swiglu_f32 .*selected", r.out, re.M) and "out -> f32[4, 1024]" in r.out
    j = built("explain", "--json", "my_ops.so", "my_ops::swiglu", "f32[4,1024]", "up=f32[4,1024]").json
    assert [(k["kernel"], k["selected"]) for k in j["kernels"]] == [("swiglu_f32", True), ("decomposition", False)] and j["results"] == [
        {"name": "out", "dtype": "f32", "device": "cpu", "shape": [4, 1024], "strides": [1024, 1], "unbacked": False, "view": False}]


def test_explain_a_call_that_would_be_refused(built):
    r = built("explain", "my_ops.so", "my_ops::swiglu", "f32[4]", "f32[5]", code=1)
    assert "would be refused" in r.err and "up" in r.err and "my_ops::swiglu" in r.err
    r = built("explain", "--json", "my_ops.so", "my_ops::swiglu", "f32[4]", "bf16[4]", code=1)
    assert r.json["ok"] is False and "up" in r.json["error"]


def test_explain_a_call_that_no_kernel_takes(built):
    """f64 has no row: the decomposition runs."""
    rows = built("explain", "--json", "my_ops.so", "swiglu", "f64[4]", "f64[4]").json["kernels"]
    assert [(r["kernel"], r["selected"]) for r in rows] == [("swiglu_f32", False), ("decomposition", True)]
    out = built("explain", "my_ops.so", "swiglu_grad", *["f64[4]"] * 3).out
    assert "it is for f32, and argument 'grad' is f64" in out and "selected: no kernel fits" in out
    assert "dgate -> f64[4]" in built("explain", "my_ops.so", "swiglu_grad", *["f64[4]:meta"] * 3).out  # shapes need no kernel


def test_explain_under_a_policy(built):
    r = built("explain", "my_ops.so", "swiglu", "f32[4]", "f32[4]", env={"DOVETAIL_OPS": "none"})
    assert "* decomposition" in r.out and "policy" in r.out


def test_explain_with_less_of_a_processor(built):
    rows = lambda isa: {k["kernel"]: k for k in built("explain", "--json", "--isa", isa, "dovetail::swiglu", "f32[8]", "f32[8]").json["kernels"]}
    assert [k["isa"] for k in rows("base").values() if k["selected"]] == [None]
    assert all(k["reason"] for k in rows("base").values())
    assert "option '--isa'" in built("explain", "--isa", "avx9", "dovetail::swiglu", code=2).err
    by_environment = built("explain", "--json", "dovetail::swiglu", "f32[8]", "f32[8]", env={"DOVETAIL_ISA": "base"}).json["kernels"]
    assert [k["isa"] for k in by_environment if k["selected"]] == [None]
    wrong = built("explain", "dovetail::swiglu", "f32[8]", "f32[8]", env={"DOVETAIL_ISA": "avx9+base"}, code=1).err
    assert "DOVETAIL_ISA" in wrong and "no instruction set 'avx9+base'" in wrong


# ---- bench ----------------------------------------------------------------------------------------------------------------------------------

def test_bench(built):
    r = built("bench", "--json", "--time", "20", "--isa", "base", "--threads", "1,2", "my_ops.so", "my_ops::swiglu", "f32[64,64]", "f32[64,64]").json
    assert [(run["threads"], run["isa"], run["kernel"]) for run in r["runs"]] == [(1, "base", "swiglu_f32"), (2, "base", "swiglu_f32")]
    for run in r["runs"]:
        assert 0 < run["best_us"] <= run["median_us"] and run["samples"] >= 5
        assert run["bytes"] == 3 * 64 * 64 * 4 and abs(run["gb_per_s"] - run["bytes"] / run["best_us"] / 1e3) < 0.01
    out = built("bench", "--time", "1", "my_ops.so", "swiglu", "f32[64,64]", "f32[64,64]").out
    assert re.search(r"swiglu_f32 +\S+ +\d+ +[\d.]+ +[\d.]+ +[\d.]+", out)


def test_bench_times_grow_with_the_work(built):
    time = lambda n: built("bench", "--json", "--time", "20", "--threads", "1", "my_ops.so", "swiglu", f"f32[{n}]", f"f32[{n}]").json["runs"][0]["best_us"]
    assert time(100_000) > 20 * time(100)


def test_bench_fills_tensors_as_asked(dovetail):
    """The kernel itself says what it got."""
    dovetail.write("look.c", """
#include <dovetail_op.h>
struct look { const dv_tensor *x; dv_tensor *out; };
static int look_any(dv_context *ctx, const struct look *a)
{
    int64_t low = INT64_MAX, high = INT64_MIN, n = dv_numel(a->x);
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = ((const int64_t *)a->x->data)[i];
        low = v < low ? v : low, high = v > high ? v : high;
    }
    return dv_error(ctx, DV_EKERNEL, "from %d to %d", (int)low, (int)high);
}
DV_OPERATOR(look, struct look, (x, out), .schema = "look(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct look, "cpu", "i64", look_any)));
DV_LIBRARY(lookers, &dv_op_look);
""")
    dovetail("build")
    for word, message in (("i64[1000]", "from 0 to 0"), ("i64[1000]=7", "from 7 to 7"), ("i64[1000]=0..10", "from 0 to 9"), ("i64[1000]=-3..2", "from -3 to 1"),
                          ("i64[100]@[2]=5", "from 5 to 5")):
        assert message in dovetail("bench", "look.so", "look", word, code=1).err


def test_bench_refuses(built):
    for wrong in ("1,x", "1,1000", "0"):  # nothing runs before all are checked
        r = built("bench", "--threads", wrong, "my_ops.so", "swiglu", "f32[8]", "f32[8]", code=2)
        assert "expected numbers from 1 to 256" in r.err and not r.out
    assert "option '--isa'" in built("bench", "--isa", "base,avx9", "my_ops.so", "swiglu", "f32[8]", "f32[8]", code=2).err
    assert "on the CPU" in built("bench", "my_ops.so", "swiglu", "f32[8]:cuda", "f32[8]", code=2).err
    assert "up" in built("bench", "my_ops.so", "swiglu", "f32[8]", "f32[9]", code=1).err


# ---- Anything at all ------------------------------------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.text(st.sampled_from("f32i64bool[]@:=.,\"' -+1e5jxnone\\\té"), max_size=20),
    st.lists(st.sampled_from(["f32", "[", "]", "@", "[1,2]", ":", "cuda", "=", "0..3", ",", "none", "x", "xs", "i", "ii", "-1", "1e400", '"', "9" * 30]), max_size=8).map("".join),
)


@hypothesis.settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.lists(WORDS, max_size=3))
def test_no_words_crash_it(types, words):
    r = types("explain", "types.so", "types::every", "--", *words, code=None)
    assert r.code in (0, 1, 2) and (r.code == 0) == (not r.err) and "\0" not in r.err


def test_explain_evaluates_the_workspace(project):
    """Whatever a call evaluates before its kernel runs."""
    text = (project.folder / "my_ops.c").read_text()
    project.write("my_ops.c", text.replace('; parallel(*s)"', '; workspace = numel(gate)*4611686018427387904 - 1; parallel(*s)"', 1))
    project("build")
    assert "workspace: the result does not fit 64 bits" in project("explain", "my_ops.so", "my_ops::swiglu", "f32[4]", "f32[4]", code=1).err
    project.write("my_ops.c", text.replace('; parallel(*s)"', '; workspace = 2 - numel(gate); parallel(*s)"', 1))
    project("build")
    assert "workspace: expected a size, found -2" in project("explain", "my_ops.so", "my_ops::swiglu", "f32[4]", "f32[4]", code=1).err
