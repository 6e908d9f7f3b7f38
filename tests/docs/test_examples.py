"""What README and docs/ quote is what runs: every C block compiles under all warnings, whole files build and run."""
import os
import pathlib
import pickle
import platform
import re
import shutil
import subprocess
import sys

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
COMMAND = BUILD / "bin" / "dovetail"
WARNINGS = "-std=c11 -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Werror".split()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return [code for name, code in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.S | re.M) if name == language]


OPERATOR_FILES = [(page.name, i, code) for page in PAGES for i, code in enumerate(blocks(page, "c")) if "DV_LIBRARY(" in code and "#include" in code]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("page, i, code", OPERATOR_FILES, ids=lambda x: str(x) if len(str(x)) < 40 else "")
def test_operator_files_compile_word_for_word(page, i, code, compiler, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    source = tmp_path / "op.c"
    source.write_text(code)
    subprocess.run([compiler, *WARNINGS, "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{ROOT}/include", source, "-o", tmp_path / "op.so", "-lm"], check=True)
    symbols = subprocess.run(["nm", "-D", "--defined-only", tmp_path / "op.so"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["dovetail_library_1"]


@pytest.mark.parametrize("page, i, code", OPERATOR_FILES, ids=lambda x: str(x) if len(str(x)) < 40 else "")
def test_operator_files_build_and_load(page, i, code, tmp_path):
    source = tmp_path / "op.c"
    source.write_text(code)
    subprocess.run([COMMAND, "build", source, "-o", tmp_path / "op.so"], check=True)
    assert "solved in this order" in subprocess.run([COMMAND, "info", tmp_path / "op.so"], check=True, capture_output=True, text=True).stdout


def test_readme_commands_and_python(tmp_path):
    readme = ROOT / "README.md"
    (tmp_path / "swiglu.c").write_text(blocks(readme, "c")[0])
    shell = next(b for b in blocks(readme, "") if "dovetail build" in b)
    env = {**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "PYTHONPATH": str(BUILD / "python")}
    for line in shell.strip().splitlines():
        subprocess.run(line, shell=True, check=True, cwd=tmp_path, env=env)
    for code in blocks(readme, "python"):
        check = "\nr = my_ops.swiglu(numpy.ones((2, 3), 'float32'), numpy.ones((2, 3), 'float32'))\nassert abs(r - 0.7310586).max() < 1e-6, r\n"
        subprocess.run([sys.executable, "-c", code + check], check=True, cwd=tmp_path, env=env)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_torch_page(tmp_path):
    """The Python of docs/torch.md runs in order, in one process, on the page's own C file."""
    page = ROOT / "docs/torch.md"
    (tmp_path / "ops.c").write_text(blocks(page, "c")[0])
    env = {**os.environ, "PYTHONPATH": str(BUILD / "python"), "DOVETAIL_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", "\n".join(blocks(page, "python"))], check=True, cwd=tmp_path, env=env)


LINES_OF_VECTORS = [*(f"out = dv_{f}(x)" for f in "exp sigmoid silu tanh log log1p sin cos sqrt abs floor ceil trunc round".split()),
    "out = x + y", "out = dv_select(x > y, dv_exp(x), y)", "dv_real m = x > 0; out = m * y", "out = (x > 0) - (x < 0)",
    "dv_real t = dv_select(x > y, dv_exp(x), y); out = frame.flag ? -t : t", "out = dv_select((x > 0) & (y < 2), dv_sin(x), dv_tanh(y))"]


@pytest.mark.skipif(platform.machine() != "x86_64" or "Free Software" not in subprocess.run(["cc", "--version"], capture_output=True, text=True).stdout, reason="gcc says what it makes vectors of")
@pytest.mark.parametrize("line", LINES_OF_VECTORS)
def test_lines_become_vectors(tmp_path, line):
    """The loop of float with AVX2, by what gcc reports. The one with AVX-512 is written as vectors; without both, rounding has no instruction."""
    source = tmp_path / "f.c"
    source.write_text(f"""#include <dovetail_elementwise.h>
struct f {{ const dv_tensor *x, *y; bool flag; dv_tensor *out; }};
DV_ELEMENTWISE(row, struct f, (x, y), (out), {line})
DV_OPERATOR(f, struct f, (x, y, flag, out), .schema = "f(Tensor x, Tensor y, bool flag=False) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; T in f32 f64 bf16 f16; parallel(*s)", .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct f, row, .split = 4096)));
DV_LIBRARY(fs, &dv_op_f);
""")
    built = subprocess.run([COMMAND, "build", source, "-o", tmp_path / "f.so", "-X", "-fopt-info-vec", "-v"], check=True, capture_output=True, text=True)
    sizes = re.findall(r"f\.c:3:.*loop vectorized using (\d+) byte", built.stdout + built.stderr)
    assert "32" in sizes, sizes


def test_the_lines_of_elementwise_operators(tmp_path):
    """The table of lines in docs/first-operator.md: each is a row, and computes what NumPy does."""
    page = (ROOT / "docs" / "first-operator.md").read_text()
    lines = dict(re.findall(r"^\| ([^|]+) \| `([^|`]+)` \|$", page, re.M))
    x, y = numpy.linspace(-3, 3, 4001, dtype="float32"), numpy.linspace(2, -1, 4001, dtype="float32")
    where = "where the tensor `mask` is not 0"
    mask = numpy.arange(4001) % 3 == 0
    exact = {
        "clamp, with attributes": numpy.clip(x, -1, 2), "leaky relu": numpy.where(x > 0, x, x * 0.01), "softplus": numpy.log1p(numpy.exp(x.astype("f8"))), "sign": numpy.sign(x),
        where: numpy.where(mask, x, y), "the result is i8": numpy.clip(numpy.rint(x / numpy.float32(0.01)), -128, 127), "two results": (x + y, x * y),
        "in place, with the lists `(p, grad), (p)`": x - numpy.float32(0.5) * y}
    assert lines.keys() == exact.keys()
    outs = {"two results": "(sum, product)", "in place, with the lists `(p, grad), (p)`": "(p)"}
    text, names = "#include <dovetail_elementwise.h>\n", []
    for i, (what, line) in enumerate(lines.items()):
        place, two, whole = "in place" in what, "two" in what, "i8" in what
        inputs = "p, grad" if place else "x, y, mask" if what == where else "x, y"
        results = "p" if place else "sum, product" if two else "out"
        typed = "".join(f"{name}[*s]:{'bool' if name == 'mask' else 'f32'}, " for name in inputs.split(", "))[:-2]
        made = "" if place else " -> " + ", ".join(f"{name}[*s]:{'i8' if whole else 'f32'}" for name in results.split(", "))
        tensors = ", ".join(f"Tensor{'(a!)' if name == 'p' else ''} {name}" for name in inputs.split(", "))
        returns = "()" if place else f"({', '.join('Tensor ' + name for name in results.split(', '))})" if two else "Tensor out"
        fields = "dv_tensor *p; const dv_tensor *grad; " if place else "".join(f"const dv_tensor *{n}; " for n in inputs.split(", "))
        text += f"""struct f{i} {{ {fields}double low, high, scale, rate; {'' if place else ''.join(f'dv_tensor *{n}; ' for n in results.split(', '))}}};
DV_ELEMENTWISE(f{i}_row, struct f{i}, ({inputs}), ({results}), {line})
DV_OPERATOR(f{i}, struct f{i}, ({inputs}, low, high, scale, rate{'' if place else ', ' + results}),
    .schema = "f{i}({tensors}, float low=-1.0, float high=2.0, float scale=0.01, float rate=0.5) -> {returns}",
    .contract = "{typed}{made}; parallel(*s)", .kernels = DV_KERNELS(DV_ELEMENTWISE_KERNELS(struct f{i}, f{i}_row, "f32", .split = 1024)));
"""
        names.append(f"&dv_op_f{i}")
    source = tmp_path / "lines.c"
    source.write_text(text + f"DV_LIBRARY(lines, {', '.join(names)});\n")
    subprocess.run([COMMAND, "build", "-W", source, "-o", tmp_path / "lines.so"], check=True)
    for isa in ("avx512", "avx2", "base"):
        code = "import dovetail, numpy, pickle, sys\nlib, calls = dovetail.load('lines.so'), pickle.load(open('calls', 'rb'))\nout = []\nfor name, args in calls:\n    r = getattr(lib, name)(*args)\n    out.append(args[0] if r is None else r)\npickle.dump(out, open('out', 'wb'))"
        calls = [(f"f{i}", [x.copy(), y, mask] if what == where else [x.copy(), y]) for i, what in enumerate(lines)]
        (tmp_path / "calls").write_bytes(pickle.dumps(calls))
        subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(BUILD / "python"), "DOVETAIL_ISA": isa})
        for what, found in zip(lines, pickle.loads((tmp_path / "out").read_bytes())):
            for a, b in zip(found if isinstance(found, (list, tuple)) else [found], exact[what] if isinstance(exact[what], tuple) else [exact[what]]):
                numpy.testing.assert_allclose(numpy.asarray(a, "f8"), numpy.asarray(b, "f8"), rtol=4e-7, atol=1e-7, err_msg=f"{what}, {isa}")
