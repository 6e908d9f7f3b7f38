"""How long it takes until operators can be called: dovetail.load on a source file, import of an operator package; and calls of operators
with Python kernels beside PyTorch's custom_op. One JSON line a figure (bench/run.py)."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import torch

import dovetail
from torch_calls import ROOT, in_turn, row

TIMED = """
import time
{first}
start = time.perf_counter()
{then}
print(time.perf_counter() - start)
"""


def seconds(first, then, env, repeat, before=lambda: None):
    """The best of some fresh processes."""
    best = float("inf")
    for _ in range(repeat):
        before()
        done = subprocess.run([sys.executable, "-c", TIMED.format(first=first, then=then)], env={**os.environ, **env}, capture_output=True, text=True,
                              check=True)
        best = min(best, float(done.stdout.split()[-1]))
    return best


def load(folder, quick):
    (folder / "op.c").write_text(re.search(r"^```c\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M).group(1))
    cache = folder / "cache"
    env = {"DOVETAIL_CACHE": str(cache)}
    then = f"dovetail.load({str(folder / 'op.c')!r})"

    def clear():
        for file in cache.glob("*"):
            file.unlink()

    theirs = None
    if not quick:
        code = re.search(r'EXTENSION = """(.*?)"""', (ROOT / "bench/bench_compile.py").read_text(), re.S).group(1).replace("<torch/extension.h>", "<torch/torch.h>")
        inline = f"load_inline('peer', {code!r}, is_python_module=False, build_directory={str(folder)!r})"
        theirs = seconds("import torch\nfrom torch.utils.cpp_extension import load_inline", inline, {}, 1)
    row("dovetail.load on a source file, nothing kept", seconds("import dovetail", then, env, 5, clear), "load_inline, cold", theirs, "<= 0.5", "s")
    if not quick:
        theirs = seconds("import torch\nfrom torch.utils.cpp_extension import load_inline", inline, {}, 3)
    row("dovetail.load on a source file, kept", 1e3 * seconds("import dovetail", then, env, 15), "load_inline, kept", theirs and 1e3 * theirs,
        "<= 10", "ms")


def package(folder):
    """A package as `dovetail new` and pip make it: the wheel, unpacked."""
    subprocess.run([dovetail.command(), "new", "my_ops"], cwd=folder, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "dovetail.backend", "wheel", folder], cwd=folder / "my_ops", check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "site")
    env = {"PYTHONPATH": os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])}
    row("import of an operator package, torch imported", 1e3 * seconds("import torch", "import my_ops", env, 9), "", None, "<= 20", "ms")
    row("import of an operator package, no torch", 1e3 * seconds("", "import my_ops", env, 9), "", None, None, "ms")


def fill(a: torch.Tensor, b: torch.Tensor) -> None:
    pass


def give(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return MADE


MADE = torch.ones(4)


def python_kernels():
    torch.set_num_threads(1)
    a, b = torch.ones(4), torch.ones(4)
    theirs, ours = torch.library.custom_op, dovetail.custom_op
    for what, kernel, writes in [("nothing in, nothing out", fill, ()), ("b is written", fill, ("b",)), ("a tensor out", give, ())]:
        name = what.replace(" ", "_").replace(",", "")
        mine, peer = (f(f"{space}::{name}", kernel, mutates_args=writes) for f, space in ((ours, "bench_ours"), (theirs, "bench_theirs")))
        t = in_turn(300, {"a": a, "b": b, "mine": mine, "peer": peer}, {"mine": "mine(a, b)", "peer": "peer(a, b)"})
        row(f"empty Python kernel, {what}", t["mine"], "custom_op", t["peer"], "<= 1.5")
    library = torch.library.Library("bench_theirs", "FRAGMENT")
    library.define("direct(Tensor a, Tensor b) -> Tensor")
    library.impl("direct", give, "CPU")
    mine = dovetail.torch.library.Library("bench_ours", "FRAGMENT")
    dovetail.direct_register_custom_op("direct", give, target_lib=mine, dispatch_key="CPU")
    names = {"a": a, "b": b, "mine": torch.ops.bench_ours.direct, "peer": torch.ops.bench_theirs.direct}
    t = in_turn(300, names, {"mine": "mine(a, b)", "peer": "peer(a, b)"})
    row("torch.ops call of a direct_register_custom_op", t["mine"], "Library.define/impl", t["peer"], ">= 2 x")


def main(quick):
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their bytecode
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        load(pathlib.Path(folder), quick)
        package(pathlib.Path(folder))
    python_kernels()


main("--quick" in sys.argv)
