"""Private names of torch: they stand in one module, and a feature whose names are missing is off, says so, and harms nobody."""
import ast
import re
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, square_source

import dovetail.torch
from dovetail.torch import private

ALLOWED = r"torch\._(check|dynamo|inductor|subclasses|ops\.OpOverload)"


def test_private_names_stand_in_one_module():
    found = {}
    for file in [f for f in (ROOT / "bridges/torch/python").rglob("*.py") if f.parent.name != "check"]:
        code = re.sub(r'""".*?"""', "", file.read_text(), flags=re.S)
        names = re.findall(r"(?<![\w.\"])(?:from )?torch\.(?:\w+\.)*_\w+(?:\.\w+)*", code)
        found[file.name] = [n for n in names if not re.match(ALLOWED, n.removeprefix("from ")) and "__" not in n]
    assert {f: names for f, names in found.items() if names and f != "private.py"} == {}


def test_private_attributes_are_listed():
    """Those of torch's objects: what stands after a dot with one '_', and is neither our own nor a name that a Feature looks up."""
    listed = {n for names in private.ATTRIBUTES.values() for n in names} | private.OF_INSTANCES
    ours, used = {"_core", "_initializing", "_has_rows", "_accepts"}, {}  # of our C code
    bridge = ROOT / "bridges/torch/python"
    for file in [*bridge.rglob("*.py"), *(ROOT / "python/dovetail").glob("*.py")]:
        tree = ast.parse(file.read_text())
        ours.update(n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef)))
        stored = [n for n in ast.walk(tree) if isinstance(n, (ast.Attribute, ast.Name)) and isinstance(n.ctx, ast.Store)]
        ours.update(n.id if isinstance(n, ast.Name) else n.attr for n in stored if isinstance(n, ast.Name) or ast.unparse(n.value) == "self")
        if not file.is_relative_to(bridge) or file.is_relative_to(bridge / "check") or file.name == "private.py":
            continue
        for n in ast.walk(tree):
            if isinstance(n, ast.Attribute) and re.match("_[^_]", n.attr) and not re.match(r"(_torch|private|torch|operators)\b", ast.unparse(n.value)):
                used.setdefault(n.attr, f"{file.name}: {ast.unparse(n)}")
    assert {n: where for n, where in used.items() if n not in ours | listed} == {}
    assert listed <= used.keys()


SINCE = {"reasons": (2, 13)}  # features that older versions cannot have


def test_everything_is_on_in_this_torch(db):
    text = dovetail.torch.explain()
    off = {line.split(":")[0].strip() for line in text.splitlines() if ": off" in line}
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    assert off == {feature for feature, since in SINCE.items() if version < since} and "short calls: on" in text, text


OFF = """
import sys, warnings
warnings.simplefilter("ignore")
from dovetail.torch import private
for feature in private.features.values():
    if feature.name in sys.argv[2].split():
        feature.names = (*feature.names, "torch._C._no_such_name")
import torch, dovetail
my = dovetail.load(sys.argv[1])
x = torch.ones(2, 3, requires_grad=True)
if "operators" not in sys.argv[2]:
    torch.autograd.grad(my.square(x).sum(), x)
    assert torch.vmap(my.square)(x).sum() == 6
    assert torch.compile(lambda x: torch.ops.private.square(x) + 1, fullgraph=True)(x.detach()).sum() == 12
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False):
        torch.ops.private.square(x)
@torch.library.custom_op("torchs::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x * 2
own.register_fake(torch.empty_like)
assert torch.compile(lambda x: own(x), fullgraph=True)(x.detach()).sum() == 12
@dovetail.custom_op("torchs::with_ours", mutates_args=())
def with_ours(x: torch.Tensor) -> torch.Tensor:
    return x * 3
assert with_ours(x).sum() == torch.ops.torchs.with_ours(x).sum() == 18
print(dovetail.torch.explain())
my.close()
"""


@pytest.mark.parametrize("names", [pytest.param("operators", marks=pytest.mark.slow), "fake vmap functional traced out flops sharding dynamo inductor like samples python_kernels"])
def test_a_missing_name_turns_its_feature_off(tmp_path, names):
    from conftest import compile_ops
    (tmp_path / "private.c").write_text(square_source("private", "2 * grad * x"))
    binary = compile_ops(tmp_path / "private.c", tmp_path / "private.so")
    done = subprocess.run([sys.executable, "-c", OFF, str(binary), names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    off = set(re.findall(r"(\w+): off: this torch has no torch\._C\._no_such_name: \w", done.stdout))
    asked = set(names.split()) - {"sharding"}  # not imported
    assert asked <= off, done.stdout


def test_an_error_of_ours_never_reaches_torch(db, monkeypatch):
    """A Replaced of torch.get_num_threads, for this test."""
    import torch
    own = torch.get_num_threads
    monkeypatch.setattr(private, "_replaced", [])
    monkeypatch.setattr(private.replacing, "why", "")
    replaced = private.Replaced("torch.get_num_threads", before=lambda: 1 / 0)
    try:
        assert torch.get_num_threads is not own and torch.get_num_threads() == own()
        assert "ZeroDivisionError" in str(private.replacing)
    finally:
        replaced.off()
    assert torch.get_num_threads is own
