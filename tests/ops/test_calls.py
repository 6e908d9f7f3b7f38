"""The shipped operators as users call them: every call site (docs/site.md) of ops/<name>/cases.txt on NumPy arrays and on torch tensors; own kernels against
decompositions; gradients, and gradients of gradients, against differences."""
import json
import pathlib
import re

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import dovetail
from dovetail import _formula

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = [line for file in sorted((ROOT / "ops").glob("*/cases.txt")) for line in file.read_text().splitlines()]


def tensor(a):
    if not isinstance(a, np.ndarray):
        return a
    return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if a.dtype == "bfloat16" else torch.from_numpy(a)


def make(case):
    getattr(dovetail.ops, re.match(r"dovetail::(\w+)", case)[1])  # loads its binary
    op, args = dovetail.site(case)
    return op.name.split("::")[1], op, tree_map(tensor, list(args.values()))


def run(op, args):
    """With all arguments of the schema, those after `*` by name."""
    names, by_name = [slot[0] for slot in op._slots()[0]], re.findall(r"(\w+)[=,)]", op.schema.partition("*, ")[2].partition(" -> ")[0])
    at = next((i for i, name in enumerate(names) if name in by_name), len(names))
    return op(*args[:at], **dict(zip(names[at:], args[at:])))


def copies(args):
    return tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, args)


def arrays(args):
    return tree_map(lambda a: a.clone().numpy() if isinstance(a, torch.Tensor) else a, args)


def results(value, args):
    """What a call returned, and what it wrote into."""
    return [torch.as_tensor(v) for v in tree_leaves(value) + [a for a in tree_leaves(args) if isinstance(a, (torch.Tensor, np.ndarray))] if v is not None]


def close(found, expect):
    assert len(found) == len(expect)
    for f, e in zip(found, expect):
        assert f.dtype == e.dtype and f.shape == e.shape
        tolerance = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 0.06, torch.float16: 0.01}.get(f.dtype, 0)
        assert torch.allclose(f.double(), e.double(), rtol=tolerance, atol=tolerance, equal_nan=True), (f, e)


@pytest.mark.parametrize("case", CASES)
def test_torch_and_numpy_agree(case):
    name, op, args = make(case)
    if any(isinstance(a, torch.Tensor) and a.dtype == torch.bfloat16 for a in args):
        pytest.skip("NumPy has no bf16")
    on_torch = copies(args)
    on_numpy = arrays(args)
    expect = results(run(op, on_torch), on_torch)
    found = results(run(op, on_numpy), on_numpy)
    assert all(torch.equal(f, e) for f, e in zip(found, expect)) and len(found) == len(expect)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("host", ["torch", "numpy"])
def test_kernels_agree_with_native_forms(case, host):
    name, op, args = make(case)
    if host == "numpy" and any(isinstance(a, torch.Tensor) and a.dtype == torch.bfloat16 for a in args):
        pytest.skip("NumPy has no bf16")
    if name == "rotary_embedding" or not json.loads(op.json())["native"]:
        pytest.skip("has no decomposition")
    give = copies if host == "torch" else arrays
    mine, theirs = give(args), give(args)
    with dovetail.policy("all"):
        expect = results(run(op, mine), mine)
    with dovetail.policy("none"):
        found = results(run(op, theirs), theirs)
    close(found, expect)


@pytest.mark.parametrize("case", [c for c in CASES if "f64" in c and "numpy_sin" not in c])
def test_gradients(case):
    name, op, args = make(case)
    if not json.loads(op.json())["gradient"]:
        pytest.skip("declares no gradient")
    at = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.dtype == torch.float64 and not (name == "apply_rotary" and i == 2)]

    def f(*tensors):
        full = list(args)
        for i, t in zip(at, tensors):
            full[i] = t
        return run(op, full)

    tensors = [args[i].requires_grad_() for i in at]
    assert torch.autograd.gradcheck(f, tensors)
    assert torch.autograd.gradgradcheck(f, tensors)


# What a bridge gives to translate formulas, for another host than torch: NumPy arrays and Dovetail's own base operators.
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
BASE = _formula.Host(dovetail.find, lambda name: np.dtype(DTYPES[name]), {"numel": "{}.size"})


@pytest.mark.parametrize("case", [c for c in CASES if "bf16" not in c])
def test_formulas_run_on_base_operators(case):
    """Native forms and gradients as Python source over base::*, against the kernels and against torch's bridge."""
    _, op, args = make(case)
    declared, (arguments, returns) = json.loads(op.json()), op._slots()
    if not declared["native"] and not declared["gradient"]:
        pytest.skip("has no formula")
    slots, results_of = [[{"name": x[0], "type": x[1]} for x in part] for part in (arguments, returns)]
    given = arrays(args)
    with dovetail.policy("all"):
        made = run(op, given)
    made = list(made) if isinstance(made, tuple) else [] if made is None else [made]
    if declared["native"]:
        found, writes = _formula.native(BASE, declared["name"], declared["native"])(dict(zip(op_names := [s["name"] for s in slots], arrays(args))))
        close([torch.as_tensor(x) for x in found + list(writes.values())],
              [torch.as_tensor(x) for x in made + [given[op_names.index(n)] for n in writes]])
    at = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
    if declared["gradient"] and at and "!" not in op.schema:
        gradient = _formula.Gradient(BASE, declared["name"], slots, results_of, declared["gradient"])
        leaves = [a.requires_grad_() if i in at else a for i, a in enumerate(copies(args))]
        out = results(run(op, leaves), ())
        grads = [torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(i)).to(x.dtype) for i, x in enumerate(out)]
        some = [i for i, x in enumerate(out) if x.is_floating_point()]
        expect = torch.autograd.grad([out[i] for i in some], [leaves[i] for i in at], [grads[i] for i in some], allow_unused=True)
        found = gradient.vjp()(*arrays(args), *made, *(g.numpy() for g in grads))
        pairs = [(found.get(slots[i]["name"]), e) for i, e in zip(at, expect)]
        assert all((f is None) == (e is None) for f, e in pairs)
        close([torch.as_tensor(f) for f, _ in pairs if f is not None], [e for _, e in pairs if e is not None])


@pytest.mark.parametrize("isa", ["base", "avx2", "avx512", None])
def test_threads_and_isas_agree(isa):
    """The runtime splits rows: the bits must not depend on the number of threads."""
    try:
        dovetail.set_isa(isa)
        for name, args in {"swiglu": [(100003,), (100003,)], "rms_norm": [(300, 257), (257,)], "sigmoid": [(3, 50001)]}.items():
            tensors = [torch.randn(s, generator=torch.Generator().manual_seed(5)).numpy() for s in args]
            out = []
            for threads in (1, 2, 3):
                dovetail.set_threads(threads)
                out.append(getattr(dovetail.ops, name)(*tensors))
            assert all(np.array_equal(out[0], o) for o in out[1:])
    finally:
        dovetail.set_isa(None)
        dovetail.set_threads(0)


def test_all_binaries_load_and_are_small():
    build = pathlib.Path(dovetail.command()).resolve().parents[1]
    for path in sorted((build / "ops").glob("*.so")):
        assert path.stat().st_size <= {"base": 200_000, "fused_experts": 184_000, "linear": 92_000, "lightning_indexer": 112_000, "sparse_flash_attention": 120_000, "layer_norm": 96_000, "rms_norm": 132_000, "rotary_embedding": 92_000, "softmax": 84_000, "gelu": 80_000}.get(path.stem, 72_000), path


@pytest.mark.parametrize("page", sorted((ROOT / "ops").glob("*/README.md")), ids=lambda p: p.parent.name)
def test_examples_of_the_pages_run(page):
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M):
        exec(compile(code, str(page), "exec"), {})


def test_every_operator_has_a_page():
    assert all((folder / "README.md").exists() for folder in (ROOT / "ops").iterdir() if list(folder.glob("*.c")))


@pytest.mark.parametrize("dtype", ["f8_e4m3fn", "u16", "c64"])
def test_base_refuses_a_dtype_that_it_cannot_convert_to(dtype):
    dovetail.ops.swiglu  # loads the base set
    x = np.ones(3, np.float32)
    for name, args in (("to.dtype", (x, dtype)), ("sum", (x, dtype)), ("zeros_like", (x, dtype))):
        with pytest.raises(ValueError, match=f"found dtype = {dtype}"):
            dovetail.find("base::" + name)(*args[:1], dtype=args[1])
