"""Unusual schemas and callers (more_ops.c): unlucky names, kinds of sequences, no tensors, devices without kernels, objects that are not tensors."""
import collections
import re

import numpy
import pytest
import torch

from conftest import ROOT

NAMES = re.findall(r"X\((\w+)\)", (ROOT / "tests/torch/more_ops.c").read_text().split("#define NAMES(X)")[1].split("NAMES(NAMED)")[0])


@pytest.fixture(params=["function", "torch.ops"])
def either(request, more):
    return more if request.param == "function" else torch.ops.more_ops


# ---- names

def test_unlucky_names(more):
    assert len(NAMES) == 24
    x = torch.ones(3)
    for name in NAMES:
        for f in (getattr(more, "with_" + name), getattr(torch.ops.more_ops, "with_" + name)):
            assert f(x, **{name: 2.0})[0] == 2, name
            y = x.clone().requires_grad_()
            assert torch.autograd.grad(f(y, **{name: 3.0}).sum(), y)[0][0] == 3, name
            assert torch.vmap(lambda x: f(x, **{name: 2.0}))(torch.ones(2, 3))[0, 0] == 2, name
            assert f(x.to("meta"), **{name: 2.0}).shape == (3,), name
            assert torch.func.functionalize(lambda x: f(x, **{name: 2.0}))(x)[0] == 2, name


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_unlucky_names_compiled(either, backend):
    names = [n for n in NAMES if n != "lambda"]  # no graph of torch's can call with such a keyword

    def f(x):
        return sum(getattr(either, "with_" + n)(x, **{n: 2.0}) for n in names)

    x = torch.ones(3, requires_grad=True)
    y = torch.compile(f, backend=backend, fullgraph=True)(x)
    assert y[0] == 2 * len(names) and torch.autograd.grad(y.sum(), x)[0][0] == 2 * len(names)


# ---- lists

class Own:
    def __init__(self, *xs):
        self.xs = xs

    def __len__(self):
        return len(self.xs)

    def __getitem__(self, i):
        return self.xs[i]


def test_sequences(either):
    t = torch.ones(3)
    for xs in ([t], (t,), torch.nn.ParameterList([t]), collections.deque([t]), Own(t), {0: t}.values(), {t: 0}.keys(), {t}, frozenset([t])):
        with torch.no_grad():
            assert either.first(xs).tolist() == [1, 1, 1], type(xs)
    for xs in (torch.ones(1, 3), {t: 0}, "t", b"t", 1, iter([t]) if either is torch.ops.more_ops else None, range(1), [1], [None]):
        with pytest.raises((TypeError, RuntimeError)):
            either.first(xs)


def test_sequences_of_arrays(more):
    t = numpy.ones(3, "f")
    for xs in ([t], (t,), collections.deque([t]), Own(t), {0: t}.values()):
        assert more.first(xs).tolist() == [1, 1, 1]
    for xs in (numpy.ones((1, 3), "f"), {0: t}, "t", iter([t])):
        with pytest.raises(TypeError, match=r"argument 'xs'(\[0\])?: expected Tensor"):
            more.first(xs)


# ---- no tensors

def test_no_tensors(more):
    f = torch.ops.more_ops.count
    assert f(3).tolist() == [0, 1, 2] and f(0).shape == (0,)
    with pytest.raises(RuntimeError, match="n >= 0"):
        f(-1)
    assert torch.compile(lambda n: f(n) + 1, fullgraph=True, backend="aot_eager")(3).tolist() == [1, 2, 3]
    out = torch.empty(3)
    assert f.out(3, out=out) is out and out.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="expected at least one tensor, found an empty list"):
        torch.ops.more_ops.first([])
    with torch.device("meta"):
        assert f(2).tolist() == [0, 1]  # the contract says where it is: on the CPU


# ---- objects that handle torch's functions

def test_symbolic_trace(either):
    def f(x, xs, k):
        return either.only(x, k) + either.first(xs) + either.with_mode(x, mode=k) + either.first([x])

    graph = torch.fx.symbolic_trace(f)
    x = torch.ones(3)
    assert torch.equal(graph(x, [x], 2.0), f(x, [x], 2.0)) and "more_ops.first" in graph.code
    if either is torch.ops.more_ops:
        graph = torch.fx.symbolic_trace(lambda n: either.count(n))
        assert graph(2).tolist() == [0, 1]


def test_torch_function(either):
    class Any:
        def __getattr__(self, name):  # has every attribute
            return Any()

        @classmethod
        def __torch_function__(cls, f, types, args=(), kwargs=None):
            return f, types

    assert either.only(Any())[1] == (Any,) and either.first([Any()])[1] == (Any,) and either.only(torch.ones(3), Any())[1] == (Any,)

    class Tensor(torch.Tensor):
        pass

    assert type(either.only(torch.ones(3).as_subclass(Tensor))) is Tensor


# ---- devices without a kernel

def test_a_meta_tensor_without_contract(load):
    native = load("""
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .native = "x * 2");
DV_LIBRARY(without_contract, &dv_op_f);
""")
    assert native.f(torch.ones(2, 3, device="meta")).shape == (2, 3) and native.f(torch.ones(2)).tolist() == [2, 2]


DEVICE = """
import torch, dovetail, sys
from torch.utils import backend_registration
more = dovetail.load(sys.argv[1])
backend_registration._setup_privateuseone_for_python_backend("pretend")
lib = torch.library.Library("aten", "IMPL")
seen = []
def new(shape, dtype):
    return torch._C._acc.create_empty_tensor(tuple(shape), dtype)
lib.impl("empty.memory_format", lambda size, dtype=None, **options: new(size, dtype or torch.float32), "PrivateUse1")
def mul(x, y):
    seen.append(y)
    return new(x.shape, x.dtype)
lib.impl("mul.Tensor", mul, "PrivateUse1")
x = new((3,), torch.float32)
assert x.device.type == "pretend"
for api in (more, torch.ops.more_ops):
    for f, k in ((lambda x: api.only(x, 4.0), 4), (api.native_only, 2), (lambda x: api.packed(x, 3), 3)):
        assert f(x).device == x.device and seen.pop() == k, (api, k, seen)
        with torch.no_grad():
            assert f(x.detach()).shape == (3,) and seen.pop() == k
    for f, message in ((lambda: api.only(new((3,), torch.float64)), "argument 'x': expected dtype f32, found f64"),
                       (lambda: api.asks(x), "more_ops::asks")):  # no decomposition: refused by torch
        try:
            f()
        except RuntimeError as e:
            assert message in str(e), e
        else:
            raise AssertionError(message)
y = new((3,), torch.float32).requires_grad_()
out = more.only(y, 5.0)
assert seen.pop() == 5 and out.requires_grad and out.grad_fn is not None
print("pretend ok")
"""


def test_a_device_without_rows_runs_the_native_form(forked, tmp_path):
    """PyTorch's own backend in Python, in a process of its own: there is one PrivateUse1."""
    from conftest import compile_ops
    binary = compile_ops(ROOT / "tests/torch/more_ops.c", tmp_path / "more_ops.so")
    done = forked(DEVICE, binary)
    assert "pretend ok" in done.stdout, done.stdout + done.stderr


# ---- the policy: an operator that is off is the same operator, eager and in graphs

OFF = """
#include <dovetail_op.h>
struct one { const dv_tensor *x; dv_tensor *out; };
DV_OPERATOR(same, struct one, (x, out), .schema = "same(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .native = "x", .gradient = "x: grad * 7");
DV_OPERATOR(turned, struct one, (x, out), .schema = "turned(Tensor x) -> Tensor out", .contract = "x[n m]:f32 -> out[m n]:f32",
    .native = "transpose(x, 0, 1)");
struct neg_ { dv_tensor *x; };
DV_OPERATOR(neg_, struct neg_, (x), .schema = "neg_(Tensor(a!) x) -> ()", .contract = "x[*s]:f32; parallel(*s)", .native = "-x",
    .gradient = "x: grad * -3");
DV_LIBRARY(when_off, &dv_op_same, &dv_op_turned, &dv_op_neg_);
"""


@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
def test_off_means_the_same_everywhere(load, backend):
    import dovetail
    load(OFF)
    ops = torch.ops.when_off

    def compiled(f):
        return torch.compile(f, backend=backend, fullgraph=True) if backend else f

    torch._dynamo.reset()
    with dovetail.policy("none"):
        x = torch.arange(6.0).reshape(2, 3)
        compiled(lambda x: ops.same(x))(x).add_(1)
        assert x[0].tolist() == [0, 1, 2]  # the result is no alias
        y = torch.ones(3, requires_grad=True)
        assert torch.autograd.grad(compiled(lambda y: ops.same(y).sum())(y), y)[0].tolist() == [7, 7, 7]
        assert compiled(lambda x: ops.turned(x))(x).stride() == (2, 1)
        with pytest.raises(Exception, match="when_off::same: argument 'x': expected dtype f32, found f64"):
            compiled(lambda x: ops.same(x))(x.double())

        def written(y):
            z = y * 1
            ops.neg_(z)
            return z

        z = compiled(written)(y)
        assert z.tolist() == [-1, -1, -1] and torch.autograd.grad(z.sum(), y)[0].tolist() == [-3, -3, -3]
        assert compiled(lambda x: torch.vmap(torch.func.grad(lambda r: ops.same(r).sum()))(x))(x).tolist() == [[7, 7, 7]] * 2


def test_the_cache_key_follows_formulas(load):
    """What an operator's formula calls is in the key of the caches on disk, and so is the policy."""
    from dovetail.torch import inductor
    import dovetail
    source = """
#include <dovetail_op.h>
struct one { const dv_tensor *x; dv_tensor *out; };
DV_OPERATOR(inner, struct one, (x, out), .schema = "inner(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32", .native = "x * %d");
DV_OPERATOR(middle, struct one, (x, out), .schema = "middle(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32", .native = "inner(x)");
DV_OPERATOR(outer, struct one, (x, out), .schema = "outer(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "x + 1", .gradient = "x: middle(grad)");
DV_LIBRARY(keyed, &dv_op_inner, &dv_op_middle, &dv_op_outer);
"""

    def key(native):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        op = torch.ops.keyed.outer.default
        from dovetail.torch import registration
        overload = registration.operators_of("keyed::outer")[0].native_overload() if native else op
        graph.output(graph.call_function(overload, (x,)))
        return inductor._declarations(torch.fx.GraphModule(torch.nn.Module(), graph))

    keys = []
    for k in (2, 3, 2):
        library = load(source % k, f"keyed{k}")
        keys.append((key(False), key(True)))
        with dovetail.policy("none"):
            keys.append((key(False), key(True)))
        library.close()
    assert keys[0] == keys[4] and keys[1] == keys[5] and None not in keys[0]
    assert len({keys[0][0], keys[1][0], keys[2][0], keys[3][0]}) == 4 and len({keys[0][1], keys[1][1], keys[2][1], keys[3][1]}) == 4


# ---- what comes with Dovetail

@pytest.mark.parametrize("order", ["torch, dovetail", "dovetail, torch"])
def test_the_shipped_operators_are_in_torch_ops(order, forked):
    import subprocess
    import sys
    program = (f"import {order}\nx = torch.ones(2, 4)\nassert torch.ops.dovetail.swiglu(x, x).shape == (2, 4)\n"
               "assert not hasattr(torch.ops.dovetail, 'no_such_operator') and type(torch.ops.dovetail).__name__ == '_OpNamespace'")
    done = forked(program) if order.startswith("torch") else subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- annotations without a name

@pytest.mark.parametrize("with_again", [False, True])
def test_writes_without_a_name(either, with_again):
    """vLLM's schemas write `Tensor! result`; torch prints that as `Tensor($0! -> ) result`, which it cannot read."""
    x = torch.arange(3.0)

    def f(x):
        result, again = torch.zeros_like(x), torch.zeros_like(x) if with_again else None
        either.scale_into(result, again, x, 2.0)
        return result + (again if with_again else 0)

    expected = x * 5 if with_again else x * 2
    assert torch.equal(f(x), expected)
    assert torch.equal(torch.func.functionalize(f)(x), expected)
    assert torch.equal(torch.compile(f, backend="aot_eager", fullgraph=True)(x), expected)
    result = torch.zeros(3)
    before = result._version
    either.scale_into(result, None, x, 2.0)
    assert result._version == before + 1
    schema = torch.ops.more_ops.scale_into.default._schema
    assert [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments] == [True, True, False, False]


def test_opcheck_of_writes_without_a_name(more):
    again = torch.zeros(3)
    torch.library.opcheck(torch.ops.more_ops.scale_into.default, (torch.zeros(3), again, torch.ones(3), 2.0))
