"""dovetail build for other tools: sanitizers, coverage, profiles, static libraries, in the order given; and what a folder has to build."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from cli_helpers import BUILD, ROOT, Dovetail, symbols

COMPILERS = [c for c in ("gcc", "clang") if shutil.which(c)]
KERNEL = """
#include <dovetail_op.h>
PRELUDE
struct twice { const dv_tensor *x; dv_tensor *out; };
static int twice_f32(dv_context *ctx, const struct twice *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = VALUE;
    return DV_OK;
}
DV_OPERATOR(twice, struct twice, (x, out), .schema = "twice(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct twice, "cpu", "f32", twice_f32)));
DV_LIBRARY(tools, &dv_op_twice);
"""
CALL = """
import dovetail, numpy
f = dovetail.load({path!r}, **{more!r}).twice
assert f(numpy.ones(5, "f4")).tolist() == [2.0] * 5
"""
PROGRAM = """
#include <dovetail.h>
int main(void)
{
    const int64_t shape[1] = { 3 };
    dv_library *lib;
    dv_operator *op;
    dv_tensor *x;
    dv_value out = dv_default();
    if (dv_load("./t.so", &lib) || dv_find("tools::twice", &op) || dv_tensor_new((dv_dtype){ 2, 32, 1 }, 1, shape, &x))
        return 1;
    dv_value arg = dv_from_tensor(x);
    const int status = dv_call(op, &arg, 1, &out, 1, NULL);
    dv_tensor_unref((dv_tensor *)out.as.tensor);
    dv_tensor_unref(x);
    dv_operator_unref(op);
    dv_library_free(lib);
    return status;
}
"""


def kernel(value="2 * x[i]", prelude=""):
    return KERNEL.replace("VALUE", value).replace("PRELUDE", prelude)


@pytest.fixture
def folder(dovetail):
    dovetail.write("t.c", kernel())
    return dovetail


def run(folder, *command, code=0, **env):
    done = subprocess.run([str(c) for c in command], cwd=folder.folder, env=folder.env | env, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def program(folder, *flags):
    """Builds a C program that loads t.so and calls its operator."""
    folder.write("program/main.c", PROGRAM)
    flags = [*flags, f"-I{ROOT}/include", f"-L{BUILD}/lib", f"-Wl,-rpath,{BUILD}/lib"]
    run(folder, "cc", *flags, "program/main.c", "-o", "program/main", "-ldovetail", "-lm")
    return "program/main"


def call(folder, path="t.so", **more):
    return run(folder, sys.executable, "-c", CALL.format(path=path, more=more), PYTHONPATH=str(BUILD / "python"))


# ---- Sanitizers --------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sanitizer", ["address", "undefined", "thread", "leak", "address,undefined"])
def test_sanitizers(folder, sanitizer):
    r = folder("build", "--json", "-X", f"-fsanitize={sanitizer}").json
    assert r["operators"][0]["name"] == "tools::twice" and not folder.leftovers()
    assert "dovetail_library_1" in symbols(folder.folder / "t.so")


def test_a_sanitizer_finds_a_fault(dovetail):
    dovetail.write("t.c", kernel("x[i] + table[n + 2]", "static volatile float table[4];"))
    dovetail("build", "-X", "-fsanitize=address", "-X", "-g")
    text = run(dovetail, program(dovetail, "-fsanitize=address"), code=1, ASAN_OPTIONS="detect_leaks=0")
    assert "global-buffer-overflow" in text and re.search(r"twice_f32.*t\.c:\d+", text)  # with names and lines: not stripped


def test_symbols_of_a_sanitizer_do_not_hide_others(dovetail):
    dovetail.write("t.c", kernel(prelude='__attribute__((visibility("default"))) int more;'))
    err = dovetail("build", "-X", "-fsanitize=address", code=1).err
    assert "exports more besides" in err or "exports more, " in err
    assert "__odr_asan.dovetail" not in err


# ---- Coverage, profiles ------------------------------------------------------------------------------------------------------------------

def lines_run(folder, *arguments):
    if not shutil.which("gcov"):
        pytest.skip("no gcov")
    text = run(folder, "gcov", *arguments)
    return re.search(r"File 't\.c'\nLines executed:([\d.]+)% of", text)


@pytest.mark.parametrize("caller", ["C", "Python"])
def test_coverage(folder, caller):
    folder("build", "--cc", "gcc", "-X", "--coverage", "-X", "-O0")
    assert not list(folder.folder.glob("*.gcda"))  # loading it for its check is no run
    run(folder, program(folder)) if caller == "C" else call(folder)
    assert float(lines_run(folder, "t.c")[1]) > 90
    assert sorted(p.name for p in folder.folder.glob("*.gc[nd]*")) == ["t.gcda", "t.gcno"] and not folder.leftovers()


def test_coverage_of_several_files_beside_the_binary(folder):
    text = (folder.folder / "t.c").read_text()
    folder.write("a/t.c", text.replace("2 * x[i]", "outside(x[i])").replace("struct twice {", "float outside(float);\nstruct twice {"))
    folder.write("b/t.c", "float outside(float x);\nfloat outside(float x) { return x + x; }\n")
    folder.write("out/here", "")
    folder("build", "--cc", "gcc", "-o", "out/t.so", "-X", "--coverage", "-X", "-O0", "a/t.c", "b/t.c")
    call(folder, "./out/t.so")
    assert sorted(p.name for p in (folder.folder / "out").iterdir()) == ["b#t.gcda", "b#t.gcno", "here", "t.gcda", "t.gcno", "t.so"]
    assert lines_run(folder, "-o", "out", "a/t.c") is None and "a/t.c" in run(folder, "gcov", "-o", "out", "a/t.c")


def test_coverage_of_a_source_that_python_builds(folder):
    env = {"DOVETAIL_CACHE": str(folder.folder / "cache")}
    folder.env |= env
    call(folder, "t.c", flags=["--cc", "gcc", "-X", "--coverage", "-X", "-O0"])
    assert float(lines_run(folder, "t.c")[1]) > 90


def test_profile_of_branches(folder):
    folder("build", "--cc", "gcc", "-X", "-fprofile-generate")
    run(folder, program(folder))
    assert (folder.folder / "t.gcda").exists()
    folder("build", "--cc", "gcc", "-W", "-X", "-fprofile-use")  # -Wmissing-profile would say that it was not found


def has_lines(path):
    return ".debug_info" in subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("flag, kept", [("-g", True), ("-g3", True), ("-ggdb", True), ("-gdwarf-4", True), ("c:-g", True), ("-O2", False), ("-gencode=x", False)])
def test_debug_information_is_not_stripped(folder, flag, kept):
    folder("build", "-X", flag)
    assert has_lines(folder.folder / "t.so") == kept


def test_debug_information_of_optimized_code(folder):
    err = folder("build", "-v", "-X", "-g").err
    assert " -O3 " in err and " -s " not in err


# ---- What the linker reads, in order -----------------------------------------------------------------------------------------------------

@pytest.fixture
def archive(folder):
    """Makes libfoo.a with two(), and libbar.a that libfoo.a needs."""
    folder.write("t.c", kernel("two() * x[i]", "float two(void);"))
    for name, text in (("foo", "float one(void); float two(void) { return one() + 1; }"), ("bar", "float one(void) { return 1; }")):
        folder.write(f"lib/{name}.c", text)
        run(folder, "cc", "-fPIC", "-fvisibility=hidden", "-c", f"lib/{name}.c", "-o", f"lib/{name}.o")
        run(folder, "ar", "rcs", f"lib/lib{name}.a", f"lib/{name}.o")
    return folder


@pytest.mark.parametrize("options", [
    "-L lib -l foo -l bar", "-X -Llib -X -lfoo -X -lbar", "-L lib -X -l:libfoo.a -X -l:libbar.a", "-X lib/libfoo.a -X lib/libbar.a",
    "-L lib -l foo -X lib/bar.o", "-X -Llib -X -Wl,--start-group -X -lbar -X -lfoo -X -Wl,--end-group", "-L lib -X -Xlinker -X -lfoo -l bar",
    "-L lib -l :libfoo.a -l :libbar.a", "-X c:lib/libfoo.a -X c:lib/libbar.a"])
def test_static_libraries(archive, options):
    archive("build", "t.c", *options.split())
    call(archive)
    archive("build", "t.c", *options.split(), "-X", "--coverage")  # by an object
    archive("build", "t.c", "--cached", *options.split(), env={"DOVETAIL_CACHE": str(archive.folder / "cache")})


def test_the_order_is_the_authors(archive):
    assert "undefined reference" in archive("build", "t.c", "-L", "lib", "-l", "bar", "-l", "foo", code=1).err


def test_a_static_library_that_changes_is_built_again(archive):
    options = ["build", "--cached", "t.c", "-X", "-Llib", "-X", "-l:libfoo.a", "-l", "bar"]
    env = {"DOVETAIL_CACHE": str(archive.folder / "cache")}
    first = archive(*options, env=env).out
    assert archive(*options, env=env).out == first
    with open(archive.folder / "lib" / "libfoo.a", "ab") as file:
        file.write(b"\n")
    archive(*options, env=env)
    record, = (archive.folder / "cache").glob("*.deps")
    assert "libfoo.a" in record.read_text(errors="replace")


# ---- Verbs that build a source file ----------------------------------------------------------------------------------------------------------

@pytest.fixture
def needy(dovetail):
    """Makes a source that builds only with a macro, a header's folder and a library."""
    dovetail.write("inc/own.h", "float two(void);\n")
    dovetail.write("lib/two.c", "float two(void);\nfloat two(void) { return 2; }\n")
    run(dovetail, "cc", "-fPIC", "-c", "lib/two.c", "-o", "lib/two.o")
    run(dovetail, "ar", "rcs", "lib/libtwo.a", "lib/two.o")
    dovetail.write("t.c", kernel("FACTOR * x[i]", "#include <own.h>"))
    dovetail.env["DOVETAIL_CACHE"] = str(dovetail.folder / "cache")
    return dovetail


NEEDS = ["-D", "FACTOR=two()", "-I", "inc", "-X", "-Llib", "-l", "two", "--cc", "gcc"]


@pytest.mark.parametrize("options", [NEEDS, [*NEEDS, "-g"], [*NEEDS, "-X", "-O2"]])
def test_check_takes_the_options_of_a_build(needy, options):
    results = {r["property"]: r for r in needy("check", "t.c", "--quick", "--json", "--only", "runs,undefined", *options).json["results"]}
    assert results["runs"]["result"] == results["undefined"]["result"] == "pass" and results["undefined"]["cases"] > 0
    assert "own.h" in needy("check", "t.c", "--quick", "--only", "runs,binding", code=1).out  # without them it does not build


def test_undefined_behaviour_is_found_in_a_source_with_options(needy):
    needy.write("t.c", kernel("FACTOR * x[i] * table[n & 7]", "#include <own.h>\nstatic volatile float table[4] = { 1, 1, 1, 1 };"))
    needy("check", "t.c", "--only", "undefined", *NEEDS, code=1)


def test_what_repeats_a_failure_says_how_to_build(needy):
    needy.write("t.c", kernel("FACTOR * x[i + (n > 4)]", "#include <own.h>"))
    failure, = (r for r in needy("check", "t.c", "--json", "--only", "memory", *NEEDS, code=1).json["results"] if r["result"] == "fail")
    words = shlex.split(failure["reproduce"])
    flags = ["--define=FACTOR=two()", "--include=inc", "--flag=-Llib", "--library=two", "--cc=gcc"]
    assert words == ["dovetail", "check", *flags, "t.c", "--case", failure["key"]]
    needy(*words[1:], code=1)
    needy(*words[1:], "--emit-c", "call.c")
    assert "dovetail build '--define=FACTOR=two()' --include=inc --flag=-Llib --library=two --cc=gcc t.c -o t.so && cc " in (needy.folder / "call.c").read_text()


def test_check_watches_the_folders_of_headers(needy):
    p = needy.popen("check", "t.c", "--watch", "--quick", "--only", "runs", *NEEDS)
    try:
        for i in range(2):
            line = b""
            while b"waits for a change" not in line:
                line = p.stderr.readline()
                assert line, "it ended"
            if not i:
                needy.write("inc/own.h", "float two(void); /* changed */\n")
    finally:
        p.terminate()
        p.communicate(timeout=60)


@pytest.mark.parametrize("command", ["info t.c", "info --json t.c tools::twice", "explain t.c twice f32[4]", "bench t.c twice f32[4] --time 10", "list t.c"])
def test_other_verbs_build_a_source_file(needy, command):
    assert "tools::twice" in needy(*command.split(), *NEEDS).out
    r = needy(*command.split(), code=1)
    assert "own.h" in r.err and "'t.c' was not built" in r.err and not needy.leftovers()
    assert sorted(p.name for p in needy.folder.iterdir()) == ["cache", "inc", "lib", "t.c"]


def test_check_in_python_takes_flags(needy):
    code = f"import dovetail\nreport = dovetail.check('t.c', only='runs', flags={NEEDS!r})\nassert report, report"
    run(needy, sys.executable, "-c", code, PYTHONPATH=str(BUILD / "python"))


# ---- What a folder has to build ------------------------------------------------------------------------------------------------------------

HEADERS = sorted(p.name for p in (ROOT / "include").glob("dovetail*.h"))
HOSTS = {"dovetail.h", "dovetail_test.h", "dovetail_torch.h", "dovetail_op_map.h"}  # of programs, and a part of another


@pytest.mark.parametrize("header", HEADERS)
def test_every_header_for_authors_makes_an_operator_file(dovetail, header):
    dovetail.write("t.c", kernel().replace("dovetail_op.h", header))
    code = 1 if header in HOSTS else None
    err = dovetail("build", code=code).err
    assert ("no file to build" in err) == (header in HOSTS)


@pytest.mark.parametrize("include, where, options", [
    ('"own.h"', "own.h", []), ('"sub/own.h"', "sub/own.h", []), ('"../beside/own.h"', "beside/own.h", []),
    ("<own.h>", "inc/own.h", ["-I", "inc"]), ('"own.h"', "inc/own.h", ["-I", "inc"]), ("<own.h>", "inc/own.h", ["-X", "-Iinc"])])
def test_a_header_of_ones_own_is_followed(dovetail, include, where, options):
    there = where if where.startswith(("inc/", "beside/")) else f"ops/{where}"
    dovetail.write(there, "#pragma once\n#include \"deeper.h\"\n")
    dovetail.write(str(pathlib.Path(there).parent / "deeper.h"), "#pragma once\n#  include \"" + pathlib.Path(there).name + "\"\n#\tinclude<dovetail_op.h>\n")
    dovetail.write("ops/t.c", kernel().replace("#include <dovetail_op.h>", f"#include {include}"))
    dovetail("build", "ops", "-o", "t.so", *options)
    call(dovetail)


def test_the_cuda_example_is_found_as_a_folder(dovetail):
    """Both files include only the header that they share."""
    nvcc = dovetail.write("nvcc", '#!/bin/sh\nfor a; do o="$p"; p="$a"; case "$a" in *.cu) echo "$a" >&2;; esac; done\nexit 1\n')
    nvcc.chmod(0o755)
    err = dovetail("build", str(ROOT / "examples" / "cuda"), "--nvcc", str(nvcc), "-o", "x.so", code=1).err
    assert re.search(r"cuda/\w+\.cu\n", err) and "no file to build" not in err


def test_names_what_it_leaves_out(folder):
    folder.write("kernel.cu", "int f(void);\n")
    folder.write("other.c", "int other(void);\nint other(void) { return 1; }\n")
    folder.write("main.c", "#include <dovetail.h>\nint main(void) { return 0; }\n")
    r = folder("build", "-o", "t.so")
    assert "not compiled: kernel.cu, other.c (they do not include <dovetail_op.h>" in r.err and "main.c" not in r.err
    assert folder("build", "--json", "-o", "t.so").json["not_compiled"] == ["kernel.cu", "main.c", "other.c"]
    assert "not compiled" not in folder("build", "t.c").err  # named: nothing was searched


@pytest.mark.parametrize("name", ["launch.c", "launch.cu", "launch.cpp"])
def test_names_what_it_left_out_when_the_link_fails(dovetail, name):
    dovetail.write("t.c", kernel("launch() * x[i]", "float launch(void);"))
    dovetail.write(name, "float launch(void);\nfloat launch(void) { return 2; }\n")
    err = dovetail("build", code=1).err
    assert "nothing defines 'launch'" in err and f"not compiled: {name} (it does not include <dovetail_op.h>" in err


def test_a_project_finds_them_too(dovetail):
    """The default `sources` of pyproject.toml."""
    dovetail("new", "my_ops")
    project = Dovetail(dovetail.folder / "my_ops")
    project.write("shared.h", "#include <dovetail_op.h>\nfloat more(float x);\n")
    project.write("more.c", '#include "shared.h"\nfloat more(float x) { return x; }\n')
    project.write("left.cu", "// nothing of it is compiled\n")
    project.write("my_ops.c", '#include "shared.h"\nfloat (*const volatile used)(float) = more;\n' + (project.folder / "my_ops.c").read_text())
    (project.folder / "dist").mkdir()
    done = subprocess.run([sys.executable, "-m", "dovetail.backend", "wheel", "dist"], cwd=project.folder, capture_output=True, text=True,
                          env=project.env | {"PYTHONPATH": str(BUILD / "python")})
    assert done.returncode == 0, done.stderr
    assert "not compiled: left.cu" in done.stderr
