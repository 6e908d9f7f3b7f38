"""Dynamo and export: functions of a library are traced as torch operators, sizes stay symbolic, and nothing is compiled more often than
the same expression of torch's own operators is."""
import functools
import io

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import dovetail
import dovetail.torch

pytestmark = pytest.mark.filterwarnings("ignore")
F = torch.nn.functional


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def shipped():
    dovetail.ops._load_all()
    return torch.ops.dovetail


# ---- compilations

SHAPES = [(4, 6), (5, 6), (7, 3), (1, 6), (4, 1), (0, 6), (4, 0), (1, 1), (9, 9), (2, 3, 4), (3, 5, 4), (1, 5, 4), (8,), (3,), (1,), (0,), (), (12, 2)]
f64 = functools.partial(torch.rand, dtype=torch.float64)


def cat_native(x):
    return torch.cat([x, x + 1])


PAIRS = {
    "swiglu": (lambda x: dovetail.ops.swiglu(x, x + 1), lambda x: F.silu(x) * (x + 1), torch.rand),
    "sigmoid": (lambda x: dovetail.ops.sigmoid(x), torch.sigmoid, torch.rand),
    "add_custom": (lambda x: dovetail.ops.add_custom(x, x[..., :1]), lambda x: x + x[..., :1], torch.rand),
    "rms_norm": (lambda x: dovetail.ops.rms_norm(x, x.new_ones(x.shape[-1:])), lambda x: F.rms_norm(x, x.shape[-1:], x.new_ones(x.shape[-1:])),
                 torch.rand),
    "gated": (lambda x: torch.ops.torch_ops.gated(x, x), lambda x: x * torch.sigmoid(x), f64),
    "cube": (lambda x: torch.ops.torch_ops.cube(x), lambda x: x * x * x, f64),
    "badd": (lambda x: torch.ops.torch_ops.badd(x, x[..., :1]), lambda x: x + x[..., :1], torch.rand),
    "like": (lambda x: torch.ops.torch_ops.like(x), lambda x: x.clone(), torch.rand),
    "cat": (lambda x: torch.ops.torch_ops.cat([x, x + 1]), cat_native, torch.rand),
}


MODES = ["dynamic", "automatic", "marked"]
EACH_ONCE = [pytest.param(name, mode, marks=() if i % 3 == k else pytest.mark.slow) for i, name in enumerate(PAIRS) for k, mode in enumerate(MODES)]


@pytest.mark.parametrize("name, mode", EACH_ONCE)
def test_no_more_compilations_than_torchs_own(ops, shipped, name, mode):
    ours, theirs, make = PAIRS[name]
    shapes = [s for s in SHAPES if name not in ("add_custom", "badd", "rms_norm", "cat") or s]

    def count(f):
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        g = torch.compile(f, backend=counter, fullgraph=True, dynamic=True if mode == "dynamic" else None)
        with torch._dynamo.config.patch(recompile_limit=64), torch.no_grad():
            for shape in shapes:
                x = make(shape)
                if mode == "marked":
                    for d, n in enumerate(shape):
                        if n > 1:
                            torch._dynamo.mark_dynamic(x, d)
                g(x)
        return counter.frame_count

    assert count(ours) <= count(theirs)


def test_one_compilation_for_all_sizes_from_two(shipped):
    counter = CompileCounterWithBackend("aot_eager")
    f = torch.compile(lambda x, w: dovetail.ops.swiglu(dovetail.ops.rms_norm(x, w), x), backend=counter, fullgraph=True, dynamic=True)
    for n, m in ((2, 3), (3, 2), (64, 5), (7, 129)):
        f(torch.rand(n, m), torch.rand(m))
    assert counter.frame_count == 1


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_sizes_that_depend_on_data(ops):
    counter = CompileCounterWithBackend("aot_eager")
    f = torch.compile(lambda x: ops.like(x[ops.nonzero(x)]) + 1, backend=counter, fullgraph=True)
    for x in (torch.tensor([0.0, 2.0, 3.0, 0.0]), torch.ones(4), torch.zeros(4), torch.tensor([0.0, 0.0, 0.0, 5.0])):
        assert torch.equal(f(x), x[x != 0] + 1)
    assert counter.frame_count == 1


# ---- what Dynamo traces

def targets(f, *args):
    """The calls in the graph of f, which has no break and gives what eager mode gives."""
    seen = []

    def backend(gm, inputs):
        seen.extend(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
        return gm.forward

    wanted = f(*args)
    torch.testing.assert_close(torch.compile(f, backend=backend, fullgraph=True)(*args), wanted)
    return seen


def test_functions_are_traced_as_torch_operators(shipped):
    a, b = torch.rand(4), torch.rand(4)
    one = ["dovetail.swiglu.default"]
    f = dovetail.ops.swiglu
    assert targets(lambda a, b: f(a, b), a, b) == one
    assert targets(lambda a, b: dovetail.ops.swiglu(a, b), a, b) == one
    assert targets(lambda a, b: dovetail.ops.swiglu(up=b, gate=a), a, b) == one
    assert targets(lambda a, b: torch.ops.dovetail.swiglu.default(a, up=b), a, b) == one
    assert targets(lambda a, b: dovetail.ops.dovetail.swiglu(a, b), a, b) == one
    assert targets(lambda a, b: functools.partial(f, a)(b), a, b) == one
    assert targets(lambda a, b: [g(a, b) for g in (f, f)][1], a, b) == one * 2
    assert targets(f, a, b) == one
    assert targets(lambda a, b: dovetail.ops.swiglu_backward(a, a, b)[1], a, b)[0] == "dovetail.swiglu_backward.default"


def test_functions_in_modules(shipped):
    class Model(torch.nn.Module):
        act = dovetail.ops.swiglu

        def __init__(self):
            super().__init__()
            self.norm = dovetail.ops.rms_norm
            self.linear = torch.nn.Linear(4, 8)

        def forward(self, x):
            gate, up = self.linear(self.norm(x, torch.ones(4), eps=1e-5)).chunk(2, -1)
            return self.act(gate, up)

    seen = targets(Model(), torch.rand(2, 4))
    assert "dovetail.rms_norm.default" in seen and "dovetail.swiglu.default" in seen


def test_functions_of_a_package(tmp_path, monkeypatch, binary):
    """A module whose __init__ exports a binary, as `dovetail wheel` makes it; the name is looked up in the compiled function."""
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "ops.so").write_bytes(binary.read_bytes().replace(b"torch_ops", b"packaged_"))
    (tmp_path / "a_package" / "__init__.py").write_text("import dovetail\n__all__ = dovetail.export(globals())\n")
    monkeypatch.syspath_prepend(tmp_path)
    import a_package
    assert targets(lambda x: a_package.cube(x), torch.rand(3, dtype=torch.float64)) == ["packaged_.cube.default"]


def test_out_in_a_graph(shipped):
    def f(a, b):
        out = torch.empty(4)
        dovetail.ops.swiglu(a, b, out=out)
        dovetail.ops.swiglu(out + 1, b, out)
        return out + 1
    assert targets(f, torch.rand(4), torch.rand(4)).count("dovetail.swiglu.out") == 2


def test_wrong_calls_say_so(shipped):
    with pytest.raises(RuntimeError, match=r"expected shape \[4\]"):
        torch.compile(lambda a, b: dovetail.ops.swiglu(a, b), backend="eager", fullgraph=True)(torch.rand(4), torch.rand(5))


FRESH = """
import sys, torch, dovetail
f = dovetail.ops.swiglu
f(torch.ones(4), torch.ones(4))
torch.ops.dovetail.swiglu(torch.ones(4), torch.ones(4))
print("torch._dynamo" in sys.modules, "torch._inductor" in sys.modules)
g = torch.compile(lambda a, b: f(a, b) + dovetail.ops.sigmoid(a), backend="eager", fullgraph=True)  # sigmoid was not loaded yet
print(torch.equal(g(torch.ones(4), torch.ones(4)), f(torch.ones(4), torch.ones(4)) + dovetail.ops.sigmoid(torch.ones(4))))
"""


def test_no_compiler_is_imported_before_it_is_needed(forked):
    assert forked(FRESH).stdout.split() == ["False", "False", "True"]


# ---- export

class Exported(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(6))

    def forward(self, x):
        y = dovetail.ops.rms_norm(x, self.w)
        return dovetail.ops.swiglu(y, x) + 1


@pytest.mark.parametrize("strict", [True, False])
def test_export(shipped, strict):
    model = Exported()
    n = torch.export.Dim("n", min=2, max=1024)
    program = torch.export.export(model, (torch.rand(4, 6),), dynamic_shapes=({0: n},), strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for p in (program, torch.export.load(file), program.run_decompositions(), program.run_decompositions({})):
        names = [str(node.target) for node in p.graph.nodes if node.op == "call_function"]
        assert "dovetail.swiglu.default" in names and "dovetail.rms_norm.default" in names
        for rows in (2, 9):
            x = torch.rand(rows, 6)
            torch.testing.assert_close(p.module()(x), model(x))


def test_an_exported_program_asks_the_policy_when_it_runs(shipped):
    x = torch.rand(4, 6)
    with dovetail.policy("none"):
        program = torch.export.export(Exported(), (x,), strict=True)
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert "dovetail.swiglu.default" in names
    for text, column in (("all", 0), ("none", 1)):
        before = dovetail.policy.counts()["dovetail::swiglu"]
        with dovetail.policy(text):
            program.module()(x)
        assert dovetail.policy.counts()["dovetail::swiglu"][column] == before[column] + 1


def test_export_of_a_size_that_depends_on_data(ops):
    class Model(torch.nn.Module):
        def forward(self, x):
            return ops.like(x[ops.nonzero(x)])

    program = torch.export.export(Model(), (torch.tensor([0.0, 1.0, 2.0]),))
    x = torch.tensor([3.0, 0.0, 0.0])
    assert torch.equal(program.module()(x), x[:1])


# ---- training

def test_compiled_training_steps(shipped):
    """The same losses in eager mode and compiled, by the declared gradients, over several steps."""
    def losses(wrap):
        torch.manual_seed(0)
        model = Exported()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        f = wrap(model)
        out = []
        for step in range(4):
            x = torch.rand(3 + step, 6, generator=torch.Generator().manual_seed(step))
            loss = f(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        return out

    wanted = losses(lambda m: m)
    assert wanted[0] != wanted[-1]
    assert losses(lambda m: torch.compile(m, backend="aot_eager", fullgraph=True)) == pytest.approx(wanted)


def test_every_way_to_an_operator_is_traced(shipped):
    """Its library's function, find(), a call site, and one overload of several."""
    x, step = torch.rand(3), "dovetail::advance_step.tensors(i64[3], i64[2, 1] = 4, i64[3], i64[3] = 5, i64[3], i64[3, 4] = 2, 3, 2, 4)"
    site, _ = dovetail.site("dovetail::swiglu(f32[3], f32[3])")
    assert site is dovetail.find("dovetail::swiglu") is dovetail.ops.swiglu
    for f in (dovetail.ops.swiglu, dovetail.find("dovetail::swiglu"), site):
        assert torch.equal(torch.compile(lambda x: f(x, x), fullgraph=True, backend="aot_eager")(x), f(x, x))
    overload, args = dovetail.site(step)
    assert overload is dovetail.find("dovetail::advance_step.tensors") is dovetail.ops.advance_step.tensors

    def call(*tensors):
        overload(*tensors, 3, 2, 4)
        return tensors
    given = lambda: [torch.from_numpy(a.copy()) for a in args.values() if hasattr(a, "shape")]
    found = torch.compile(call, fullgraph=True, backend="aot_eager")(*given())
    expect = call(*given())
    assert all(torch.equal(f, e) for f, e in zip(found, expect)) and not torch.equal(expect[0], given()[0])
