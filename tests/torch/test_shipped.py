"""Every shipped operator in torch: opcheck with and without gradients, gradcheck, the fake, compilations, the decomposition."""
import os
import pathlib

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from torch.utils import _pytree as pytree

import dovetail
from conftest import ROOT
from dovetail.torch import register

OPS = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")) / "ops"


def r(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


# What to call an operator with, if not as in ops/*/cases.txt: name -> function that gives a list of argument tuples. Tensors are float64 where there is a gradient.
SAMPLES = {
    "sigmoid": lambda: [(r(3, 4),), (r(0, 2),)],
    "sigmoid_backward": lambda: [(r(3, 4), r(3, 4))],
    "swiglu": lambda: [(r(3, 4), r(3, 4)), (r(2, 1, 3), r(2, 1, 3))],
    "swiglu_backward": lambda: [(r(3, 4), r(3, 4), r(3, 4))],
    "crop": lambda: [(r(2, 3, 4), [1, 1, 3, 3]), (r(1, 2, 3), [-1, 0, 2, 4])],
    "paste": lambda: [(r(2, 3, 4), r(2, 2, 2), [2, 1])],
    "add_custom": lambda: [(r(3, 4), r(3, 4)), (r(3, 1), r(4))],
    "add_custom_backward": lambda: [(r(3, 4), [3, 1], [4])],
    "numpy_sin": lambda: [(r(3, 4), r(3, 4))],
    "crop_pil": lambda: [(torch.rand(2, 3, 4), [1, 1, 3, 3])],
    "paste_pil": lambda: [(torch.rand(2, 3, 4), torch.rand(2, 2, 2), [2, 1])],
    "rms_norm": lambda: [(r(2, 3, 4), r(4)), (r(3, 4), r(4), 0.1)],
    "rms_norm_backward": lambda: [(r(3, 4), r(3, 4), r(4))],
    "add_rms_norm": lambda: [(r(3, 4), r(3, 4), r(4)), (r(3, 4), None, r(4))],
    "rotary_embedding": lambda: [(torch.arange(3), r(3, 8), r(3, 4), 4, r(5, 4), neox) for neox in (True, False)]
        + [(torch.arange(3), r(3, 8), None, 4, r(5, 2), True)],
    "apply_rotary": lambda: [(r(3, 2, 4), torch.arange(3), r(5, 4), neox, False) for neox in (True, False)],
    "lightning_indexer": lambda: [(r(2, 3, 4, 5), r(2, 7, 2, 5), r(2, 3, 4), dict(sparse_count=4, sparse_mode=0, return_value=True))],
    "npu_lightning_indexer": lambda: [(r(2, 3, 4, 5), r(2, 7, 2, 5), r(2, 3, 4), dict(sparse_count=2, return_value=True))],
    "npu_lightning_indexer_quant": lambda: [(q8(2, 3, 4, 5), q8(2, 7, 2, 5), r(2, 3, 4, dtype=torch.float32),
                                             torch.rand(2, 3, 4), torch.rand(2, 7, 2))],
    "lightning_indexer_backward": lambda: [(r(2, 3, 2, 3), torch.randint(-1, 7, (2, 3, 2, 3)).int(), r(2, 3, 4, 5), r(2, 7, 2, 5), r(2, 3, 4),
                                            None, None, None, "BSND", "BSND")],
    "sparse_flash_attention": lambda: [(r(2, 3, 4, 5), r(2, 7, 2, 5), r(2, 7, 2, 6), chosen(), 0.5),
                                       (r(2, 3, 4, 5), r(2, 7, 2, 5), r(2, 7, 2, 6), chosen(), 0.5, dict(return_softmax_lse=True, sparse_mode=0))],
    "npu_sparse_flash_attention": lambda: [(r(2, 3, 4, 5), r(2, 7, 2, 5), r(2, 7, 2, 5), chosen(), 0.5)],
    "sparse_flash_attention_backward": lambda: [(r(2, 3, 4, 6), r(0), r(0), r(2, 3, 4, 5), r(2, 7, 2, 5), r(2, 7, 2, 6), chosen(), 0.5, None, None, None, None,
                                                 None, 1, "BSND", "BSND", 3)],
    "fused_experts": lambda: [(r(5, 6), r(3, 8, 6), r(3, 6, 4), torch.rand(5, 2).double(), torch.randint(-1, 3, (5, 2)).int(), "gelu")],
    "fused_experts_backward": lambda: [(r(5, 6), r(5, 6), r(3, 8, 6), r(3, 6, 4), torch.rand(5, 2), torch.randint(-1, 3, (5, 2)).int(), "silu", False, False,
                                        None, None, None)],
    "linear": lambda: [(r(2, 3, 4), r(5, 4), r(5)), (r(3, 4), r(5, 4))],
    "silu_and_mul": lambda: [(r(3, 4),)],
    "layer_norm": lambda: [(r(3, 4), r(4), r(4)), (r(3, 4), None, None, 0.1)],
    "layer_norm_backward": lambda: [(r(3, 4), r(3, 4), r(4)), (r(3, 4), r(3, 4), None, 0.1)],
    "softmax": lambda: [(r(2, 3, 4), 1)],
    "causal_conv1d": lambda: [(r(2, 3, 4), r(3, 3), r(3), r(2, 3, 2)), (r(2, 3, 4), r(3, 3), dict(activation="silu"))],
    "causal_conv1d_backward": lambda: [(r(2, 3, 4), r(2, 3, 4), r(3, 3), r(3), None)],
    "gelu": lambda: [(r(3, 4),), (r(3, 4), "tanh")],
    "gelu_backward": lambda: [(r(3, 4), r(3, 4))],
    **dict.fromkeys(("paged_kv_write", "reshape_and_cache"),
                    lambda: [(r(3, 2, 4), r(3, 2, 5), r(2, 4, 2, 4), r(2, 4, 2, 5), torch.tensor([7, -1, 0]))]),
    "grouped_topk": lambda: [(r(3, 8), 3, True, 4, 2), (r(3, 8), 3, False, 1, 1, "sigmoid", 2.5)],
    "grouped_topk_backward": lambda: [(r(3, 2), torch.tensor([[0, 1], [2, 3], [7, 0]]).int(), r(3, 8), True, "softmax", 1.0)],
    "fused_moe": lambda: [(r(3, 8), r(4, 10, 8), r(4, 8, 5), r(3, 4), 2, True)],
    "topk_softmax": lambda: [(torch.empty(3, 2), torch.empty(3, 2).int(), torch.empty(3, 2).int(), r(3, 8), True)],
    "adv_step_flash": lambda: [(3, 2, 4, *advance())],
    "advance_step": lambda: [(3, 2, 4, *advance())],
    "advance_step.tensors": lambda: [(*advance(), 3, 2, 4)],
    "advance_step.v2": lambda: [(*advance(), 3, 2, 4)],
}


def q8(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def chosen():
    return torch.randint(-1, 7, (2, 3, 2, 3)).int()


def advance():
    """3 sequences, of which 2 are queries, in blocks of 4."""
    return (torch.tensor([1, 2, 3]), torch.tensor([[7], [8]]), torch.tensor([4, 5, 6]), torch.tensor([5, 6, 7], dtype=torch.int32),
            torch.tensor([0, 0, 0]), torch.arange(12, dtype=torch.int32).reshape(3, 4))


def operators():
    for file in sorted(OPS.glob("*.so")):
        if file.stem != "base":  # torch has the base set itself
            library = dovetail.load(file)
            yield from register(library, strict=True).operators.items()


ALL = dict(operators())


def samples(name):
    torch.manual_seed(0)
    local = name.split("::")[1]
    if local in SAMPLES:
        return SAMPLES[local]()
    cases = [line for file in sorted(ROOT.glob("ops/*/cases.txt")) for line in file.read_text().splitlines() if line.startswith(name + "(")]
    assert cases, "expected a sample in SAMPLES, or a call site in ops/*/cases.txt"
    return [sample(ALL[name], dovetail.site(case)[1]) for case in cases]


def sample(op, args):
    args = pytree.tree_map(lambda a: torch.from_numpy(a) if isinstance(a, np.ndarray) else a, args)
    named = {a.name for a in op.overload._schema.arguments if a.kwarg_only}
    return (*(a for n, a in args.items() if n not in named), {n: a for n, a in args.items() if n in named})


def split(args):
    """A sample's positional arguments, and those by name: a dict at its end."""
    return (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})


def with_gradients(op, args):
    """Those that have a gradient by declaration require it."""
    declared = op.declaration["gradient"]
    able = {t for c in declared["clauses"] if c["value"] for t in c["targets"]} if declared else range(len(args))
    return tuple(a.detach().requires_grad_() if k in able and isinstance(a, torch.Tensor) and a.is_floating_point() else a
                 for k, a in enumerate(args))


@pytest.mark.parametrize("name", ALL)
def test_opcheck(name):
    op = ALL[name]
    for args in samples(name):
        torch.library.opcheck(op.overload, *split(args))
        first = op.overload(*split(args)[0], **split(args)[1])
        first = first[0] if isinstance(first, tuple) else first
        if op.gradient and not op.writes and first.is_floating_point():  # opcheck adds the sums of all results to the first one's
            torch.library.opcheck(op.overload, *split(with_gradients(op, args)))


@pytest.mark.parametrize("name", [n for n, op in ALL.items() if op.gradient and not op.writes])
def test_gradcheck(name):
    op = ALL[name]
    for args in samples(name):
        if not any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in args):
            pytest.skip("it has no f64 rows")
        args, named = split(with_gradients(op, args))

        def f(*args):
            found = op.overload(*args, **named)
            return tuple(x for x in found if x.requires_grad) if isinstance(found, tuple) else found

        assert torch.autograd.gradcheck(f, args)
        again = ALL.get(name.replace("npu_", "").replace("fused_moe", "fused_experts") + "_backward")
        if not again or again.gradient or again.native:
            assert torch.autograd.gradgradcheck(f, args)


@pytest.mark.parametrize("name", [n for n, op in ALL.items() if op.native and not op.writes])
def test_native_form_is_the_same_operator(name):
    op = ALL[name]
    for args in samples(name):
        expected = op.overload(*args)
        found = op.native(dict(zip([a.name for a in op.arguments], op.bind(args, {}))))
        for a, b in zip(found, expected if isinstance(expected, tuple) else (expected,)):
            torch.testing.assert_close(a, b)
            assert a.shape == b.shape


@pytest.mark.parametrize("name", ALL)
def test_policy_off_is_the_same_operator(name):
    op = ALL[name]
    if not op.native:
        pytest.skip("it has no decomposition")
    for args in samples(name):
        again = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
        expected = op.overload(*args)
        with dovetail.policy("none"):
            found = op.overload(*again)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close([a for a in again if isinstance(a, torch.Tensor)], [a for a in args if isinstance(a, torch.Tensor)])


@pytest.mark.parametrize("name", ["dovetail::swiglu", "dovetail::sigmoid"])
def test_three_sizes_one_compilation(name):
    torch._dynamo.reset()
    op = ALL[name].overload
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    n = len(op._schema.arguments)
    f = torch.compile(lambda *x: op(*[a * 2 for a in x]) + 1, backend=counter, fullgraph=True, dynamic=True)
    for shape in ((4, 6), (7, 3), (12, 5)):
        x = [torch.randn(shape) for _ in range(n)]
        torch.testing.assert_close(f(*x), op(*[a * 2 for a in x]) + 1)
    assert counter.frame_count == 1


def test_functions_of_a_library_take_tensors():
    f = dovetail.ops.swiglu
    x = torch.randn(3, 4, requires_grad=True)
    y = f(x, up=x.detach())
    torch.testing.assert_close(y, torch.nn.functional.silu(x) * x.detach())
    y.sum().backward()
    assert x.grad is not None
    numpy = pytest.importorskip("numpy")
    array = f(numpy.ones((2, 2), "float32"), numpy.ones((2, 2), "float32"))
    assert isinstance(array, numpy.ndarray) and abs(float(array[0, 0]) - 0.7310586) < 1e-6


def test_functions_of_a_library_in_a_graph():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    f = torch.compile(lambda x, y: dovetail.ops.swiglu(x * 2, y) + 1, backend=counter, fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        x, y = torch.randn(n, 4, requires_grad=True), torch.randn(n, 4)
        expected = torch.nn.functional.silu(x * 2) * y + 1
        torch.testing.assert_close(f(x, y), expected)
        torch.testing.assert_close(torch.autograd.grad(f(x, y).sum(), x), torch.autograd.grad(expected.sum(), x))
    assert counter.frame_count == 1


def test_a_library_that_was_loaded_before_torch_works_in_graphs(tmp_path):
    import subprocess
    import sys
    code = """
import dovetail
f = dovetail.ops.swiglu
import sys
assert "torch" not in sys.modules
import torch
g = torch.compile(lambda x: f(x, x) + 1, fullgraph=True, backend="aot_eager")
x = torch.randn(4)
torch.testing.assert_close(g(x), torch.nn.functional.silu(x) * x + 1)
print("ok")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "ok\n", done.stderr


# ---- fakes of large contracts ----------------------------------------------------------------------------------

def f(*shape):
    return torch.randn(shape)


def i(*shape):
    return torch.ones(shape, dtype=torch.int32)


INDEX, ATTEND, EXPERTS = (f"dovetail::{n}" for n in ("lightning_indexer", "npu_sparse_flash_attention", "fused_experts"))
FAKES = [
    (INDEX, (f(2, 5, 8, 16), f(2, 9, 2, 16), f(2, 5, 8)), dict(sparse_count=4), [(2, 5, 2, 4), (2, 5, 2, 0)]),
    (INDEX, (f(2, 5, 8, 16), f(2, 9, 2, 16), f(2, 5, 8)), dict(sparse_count=4, return_value=True), [(2, 5, 2, 4), (2, 5, 2, 4)]),
    (INDEX, (f(7, 8, 16), f(9, 1, 16), f(7, 8)), dict(layout_query="TND", layout_key="TND", actual_seq_lengths_query=i(2), actual_seq_lengths_key=i(2)),
     [(7, 1, 2048), (7, 1, 0)]),
    (INDEX, (f(2, 5, 8, 16), f(10, 4, 1, 16), f(2, 5, 8)), dict(layout_key="PA_BSND", actual_seq_lengths_key=i(2), block_table=i(2, 6), sparse_count=3),
     [(2, 5, 1, 3), (2, 5, 1, 0)]),
    (INDEX, (f(2, 5, 8, 16), f(2, 9, 2, 16), f(2, 5, 8)), dict(layout_key="TND"), r"argument 'key': expected shape \[u, n2, 16\], found \[2, 9, 2, 16\]"),
    (INDEX, (f(7, 8, 16), f(9, 1, 16), f(7, 8)), dict(layout_query="TND", layout_key="TND", actual_seq_lengths_key=i(2)),
     "argument 'actual_seq_lengths_query': expected a tensor"),
    (INDEX, (f(2, 5, 8, 16), f(2, 9, 3, 16), f(2, 5, 8)), {}, "expected n1 % n2 == 0"),
    (INDEX, (f(2, 5, 8, 16), f(2, 9, 2, 16), f(2, 5, 8)), dict(layout_query="X"), 'argument \'layout_query\': expected "BSND" or "TND", found "X"'),
    (INDEX, (f(2, 5, 8, 16), f(2, 9, 2, 16), f(2, 5, 7)), {}, r"argument 'weights': expected shape \[2, 5, 8\]"),
    (ATTEND, (f(2, 5, 8, 16), f(2, 9, 1, 16), f(2, 9, 1, 16), i(2, 5, 1, 4), 0.5), {}, [(2, 5, 8, 16), (0,), (0,)]),
    (ATTEND, (f(2, 5, 8, 16), f(2, 9, 1, 16), f(2, 9, 1, 16), i(2, 5, 1, 4), 0.5), dict(return_softmax_lse=True), [(2, 5, 8, 16), (2, 1, 5, 8), (2, 1, 5, 8)]),
    (EXPERTS, (f(6, 8), f(4, 10, 8), f(4, 8, 5), f(6, 2), i(6, 2)), {}, [(6, 8)]),
    (EXPERTS, (f(6, 8), f(4, 9, 8), f(4, 8, 5), f(6, 2), i(6, 2)), {}, r"argument 'w1': expected shape \[4, 10, 8\] with 2\*n \('n' is bound by 'w2'\), found \[4, 9, 8\]"),
]


@pytest.mark.parametrize("name, args, kwargs, expected", FAKES)
def test_fakes(name, args, kwargs, expected):
    from torch._subclasses.fake_tensor import FakeTensorMode
    if name not in ALL:
        pytest.skip(f"{name} is not built")
    with FakeTensorMode() as mode:
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        if isinstance(expected, str):
            with pytest.raises(RuntimeError, match=expected):
                ALL[name].overload(*args, **kwargs)
            return
        found = ALL[name].overload(*args, **kwargs)
    assert [tuple(t.shape) for t in (found if isinstance(found, tuple) else (found,))] == expected
