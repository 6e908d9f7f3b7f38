"""GE can compute every operator of the base set, of which decompositions and gradients are made, and its first and second gradient: torchair's own
converters, or those of bridges/torchair for ATen's operators that it lacks, make the graph."""
import os
import pathlib

import pytest
import stand_in  # before torch; skips where torchair is not installed
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import dovetail
import dovetail.torchair
from dovetail.torch import formula

A = torch.ops.aten
TENSORS = {"index": lambda: torch.tensor([2, 0, 2]), "condition": lambda: torch.arange(12).reshape(3, 4) % 3 == 0}
VALUES = {"Scalar": 2.5, "int": 1, "ScalarType": torch.float64}
CALLS = {  # arguments after the tensors, where VALUES has none that fits
    "matmul": {"other": torch.rand(4, 3)}, "constant_pad_nd": {"pad": [1, 2]}, "expand": {"size": [2, 3, 4]}, "flip": {"dims": [0]}, "mean.dim": {"dim": [0]}, "narrow": {"start": 1, "length": 2},
    "reshape": {"shape": [4, 3]}, "slice.Tensor": {"start": 1, "step": 2}, "slice_scatter": {"dim": 0}, "index_add": {"dim": 0}, "index_select": {"dim": 0},
    "sum.dim_IntList": {"dim": [1], "keepdim": True}, "sum_to_size": {"size": [4]}, "transpose.int": {"dim0": 0}, "amax": {"dim": [-1], "keepdim": True}}


def base():
    loaded = dovetail.load(pathlib.Path(os.environ["DOVETAIL_BUILD"]) / "ops" / "base.so", attach=False)
    return [o.name.partition("::")[2] for op in loaded.operators().values() for o in op.overloads]


def tensors(name, type):
    torch.manual_seed(len(name))
    if type.endswith("[]"):
        return [tensors(name, "Tensor"), tensors(name + "2", "Tensor")]
    return TENSORS.get(name, lambda: torch.rand(3, 4) + 0.5)()


def call(name):
    """(a function of the tensors that the gradient is taken of, these tensors): the call of one overload of the base set."""
    space, _, overload = name.partition(".")
    if name == "cat_backward":
        parts = [tensors("a", "Tensor")[:1], tensors("b", "Tensor")[1:]]
        return lambda grad: formula._cat_backward(grad, parts, 0), [tensors("grad", "Tensor")]
    target, given = getattr(getattr(A, space), overload or "default"), {}
    for argument in target._schema.arguments:
        type = str(argument.type).removeprefix("Optional[")
        if argument.name in CALLS.get(name, ()):
            given[argument.name] = CALLS[name][argument.name]
        elif str(argument.type).startswith(("Tensor", "List[Tensor")):
            given[argument.name] = tensors(argument.name, "Tensor[]" if "List" in type else "Tensor")
        elif not argument.has_default_value():
            given[argument.name] = VALUES.get(str(argument.type), VALUES["Scalar"] if "number" in str(argument.type).lower() else 1)
    target = formula._IN_PLACE_OF_ATEN.get(name, target)
    at = {n: x for n, x in given.items() if isinstance(x, torch.Tensor)}
    return lambda *xs: target(**{**given, **dict(zip(at, xs))}), list(at.values())


def derivatives(f, inputs):
    """f's results, their gradients, and the gradients of these."""
    def all_of_them(*given):
        given = [x.detach().requires_grad_(x.is_floating_point()) for x in given]
        level, found, at = tree_leaves(f(*given)), [], [x for x in given if x.requires_grad]
        found += level
        for _ in range(2):
            level = [x for x in level if x.requires_grad]
            if not level:
                break
            level = [g for g in torch.autograd.grad(level, at, [torch.ones_like(x) * (i + 2) * x.detach().cos() for i, x in enumerate(level)], create_graph=True,
                                                    allow_unused=True) if g is not None]
            found += level
        return found
    return all_of_them, inputs


@pytest.fixture(scope="module")
def backend():
    dovetail.ops._load_all()
    import torchair
    return torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())


@pytest.mark.parametrize("name", base())
def test_each_operator_and_its_gradients(backend, name):
    f, inputs = derivatives(*call(name))
    traced = make_fx(f)(*inputs)
    expected, found = traced(*inputs), backend(traced, inputs)(*inputs)
    torch.testing.assert_close([*found], expected, rtol=1e-5, atol=1e-5)
