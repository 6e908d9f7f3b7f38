"""Kernels that a program gives one of our operators by torch.library: they are what runs, whichever way a call comes."""
import gc

import pytest
import torch
from conftest import one, square_source

import dovetail
from dovetail import _core

PLAIN, GRADIENT, OTHER = range(3)


def ways(f, x):
    """How a call was made; a gradient's Function makes a plain call inside."""
    before = _core.torch.taken(f)
    f(x)
    return max(way for way, (a, b) in enumerate(zip(before, _core.torch.taken(f))) if b > a)


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_kernel_for_the_device(load):
    f = load(one("override_cpu"), "override_cpu").f
    op, x, wanted = torch.ops.override_cpu.f, torch.ones(3), torch.ones(3, requires_grad=True)
    compiled = torch.compile(f, fullgraph=True)
    assert f(x).sum() == 6 and compiled(x).sum() == 6 and ways(f, x) == PLAIN
    library = torch.library.Library("override_cpu", "IMPL")
    library.impl("f", lambda x: x + 10, "CPU")
    for call in (f, op, op.default, compiled, torch.compile(op, fullgraph=True)):
        for t in (x, torch.nn.Parameter(x, False)):
            assert call(t).tolist() == [11] * 3, call
    with torch.no_grad():
        assert f(wanted).tolist() == op(wanted).tolist() == [11] * 3
    with torch.inference_mode():
        assert f(x).tolist() == op(x).tolist() == [11] * 3
    assert ways(f, x) == OTHER
    out = torch.empty(3)
    assert f(x, out) is out and out.tolist() == [11] * 3
    assert f(x, out=torch.empty(1).resize_(0)).tolist() == [11] * 3
    library._destroy()
    assert f(x).sum() == op(x).sum() == compiled(x).sum() == 6 and ways(f, x) == PLAIN


@pytest.mark.parametrize("kind", [tuple, list])
def test_several_results_of_a_kernel(kind):
    """As torch.library's kernels may: a tuple, or a list."""
    f, args = dovetail.ops.swiglu_backward, [torch.rand(4) for _ in range(3)]
    library = torch.library.Library("dovetail", "IMPL")
    try:
        library.impl("swiglu_backward", lambda grad, gate, up: kind([grad + 1, up + 1]), "CPU")
        out = torch.empty(4)
        for made in (f(*args), torch.ops.dovetail.swiglu_backward(*args), f(*args, out=(None, out))):
            assert torch.equal(made[0], args[0] + 1) and torch.equal(made[1], args[2] + 1)
    finally:
        library._destroy()


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_restored_when_the_last_library_is_collected(load):
    f, x = load(one("override_two"), "override_two").f, torch.ones(3)
    torch.library.impl("override_two::f", "CPU", lambda x: x + 5, lib=(first := torch.library.Library("override_two", "FRAGMENT")))
    second = torch.library.Library("override_two", "IMPL", "CPU")
    second.impl("f", lambda x: x + 7, allow_override=True)  # the default since torch 2.13
    assert f(x).tolist() == [8] * 3
    del second
    gc.collect()
    assert f(x).tolist() == [6] * 3 and ways(f, x) == OTHER
    del first
    gc.collect()
    assert f(x).tolist() == [2] * 3 and ways(f, x) == PLAIN


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_gradient_is_wanted(load):
    square = load(square_source("override_grad", "2 * grad * x"), "override_grad").square
    op, x = torch.ops.override_grad.square, torch.full((2,), 3.0, requires_grad=True)
    assert ways(square, x) == GRADIENT
    library = torch.library.Library("override_grad", "IMPL")
    library.impl("square", lambda x: x * 100, "CPU")
    for call in (square, op):
        y = call(x)
        assert y.tolist() == [300, 300]
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [6, 6]  # the declared gradient stays
    library.impl("square", lambda x: x * 2, "Autograd")  # no key sets: it stands for all that follows
    assert square(x).tolist() == op(x).tolist() == [6, 6] and square(x.detach()).tolist() == [6, 6]
    library._destroy()
    assert square(x).tolist() == [9, 9] and ways(square, x) == GRADIENT


def test_what_does_not_matter_to_plain_calls_changes_nothing(load):
    f, x = load(one("override_no"), "override_no").f, torch.ones(3)
    library = torch.library.Library("override_no", "IMPL")
    library.impl("f", lambda x: x, "AutocastCPU")
    assert ways(f, x) == PLAIN
    with torch.autocast("cpu", torch.bfloat16):
        assert f(x) is x
    library._destroy()


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_before_the_library_is_loaded_and_after(load):
    library = torch.library.Library("override_early", "FRAGMENT")
    library.impl("f", lambda x: x + 4, "CPU")
    first, x = load(one("override_early"), "override_early"), torch.ones(2)
    f = first.f
    assert ways(f, x) == OTHER and f(x).tolist() == torch.ops.override_early.f(x).tolist()
    first.close()
    with pytest.raises(RuntimeError):
        f(x)
    library._destroy()
    again = load(one("override_early"), "override_again").f
    assert again(x).tolist() == [2, 2] and ways(again, x) == PLAIN and isinstance(again, dovetail.Operator)


# ---- the contract holds for such kernels, too

def message(call, *args):
    with pytest.raises(RuntimeError) as error:
        call(*args)
    return str(error.value)


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("key", ["CPU", "Autograd"])
def test_its_arguments_are_checked(load, key):
    f = load(one("override_args"), "override_args").f
    op, wrong, calls = torch.ops.override_args.f, torch.ones(3, dtype=torch.float64), []
    expected = message(f, wrong)
    library = torch.library.Library("override_args", "IMPL")
    library.impl("f", lambda x: calls.append(x) or x + 10, key)
    torch._dynamo.reset()
    for call in (f, op, op.default, lambda x: f(x, torch.empty(3)), torch.compile(lambda x: op(x), backend="eager")):
        assert expected in message(call, wrong) and not calls
    with torch.no_grad():
        assert message(op, wrong) == expected and not calls
    if key == "CPU":
        with torch.inference_mode():
            assert message(op, torch.ones(3, dtype=torch.float64)) == expected and not calls
    library._destroy()


WRONG = [
    (lambda x: x.double(), "gives f64[3], but it must be f32[3]"),
    (lambda x: x.sum(), "gives f32[], but it must be f32[3]"),
    (lambda x: torch.ones(4), "gives f32[4], but it must be f32[3]"),
    (lambda x: x.to("meta"), "gives a tensor on meta, but it must be on cpu"),
]


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("kernel, expected", WRONG)
def test_its_results_are_checked(load, kernel, expected):
    f = load(one("override_results"), "override_results").f
    op, x = torch.ops.override_results.f, torch.ones(3)
    torch._dynamo.reset()
    compiled = [torch.compile(lambda x: op(x) + 1, fullgraph=True, backend=b) for b in ("eager", "aot_eager", "inductor")]
    library = torch.library.Library("override_results", "IMPL")
    library.impl("f", kernel, "CPU")
    expected = f"override_results::f: result 'out': the Python kernel {expected}"
    for call in (f, op, op.default, *compiled):
        assert expected in message(call, x)
    with torch.inference_mode():
        assert message(op, torch.ones(3)) == expected
    assert expected in message(f, torch.nn.Parameter(x))
    library._destroy()
    assert f(x).tolist() == [2] * 3


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_its_results_are_new_and_have_the_contracts_strides(load):
    f = load(one("override_new"), "override_new").f
    x = torch.ones(2, 3)
    for kernel in (lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x[:]):
        library = torch.library.Library("override_new", "IMPL")
        library.impl("f", kernel, "CPU")
        for call in (f, torch.ops.override_new.f, torch.compile(f, fullgraph=True)):
            y = call(x)
            assert torch.equal(y, x) and y.data_ptr() != x.data_ptr() and y.is_contiguous()
        library._destroy()


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_kernel_of_the_out_overload(load):
    load(one("override_out"), "override_out")
    op = torch.ops.override_out.f
    library = torch.library.Library("override_out", "IMPL")
    library.impl("f.out", lambda x, *, out: out.copy_(x + 20), "CPU")
    out = torch.empty(0)
    assert op.out(torch.ones(3), out=out) is out and out.tolist() == [21] * 3
    assert "argument 'x': expected dtype f32" in message(lambda: op.out(torch.ones(3).int(), out=out))
    assert "argument 'out': expected dtype f32, found f64" in message(lambda: op.out(torch.ones(3), out=torch.empty(3).double()))
    library._destroy()


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_sizes_that_depend_on_data(ops):
    """nonzero(x[n]:f32) -> out[u]:i64; u unbacked in 0..n"""
    x = torch.tensor([1., 0, 2])
    for kernel, expected in ((lambda x: x.nonzero()[:, 0], None), (lambda x: torch.arange(4), "gives i64[4], but it must be i64[0 to 3]"),
                             (lambda x: x.nonzero(), "gives i64[2, 1], but it must be i64[0 to 3]"),
                             (lambda x: torch.ones(1), "gives f32[1], but it must be i64[0 to 3]")):
        library = torch.library.Library("torch_ops", "IMPL")
        library.impl("nonzero", kernel, "CPU")
        if expected:
            assert expected in message(ops.nonzero, x)
        else:
            assert ops.nonzero(x).tolist() == [0, 2]
        library._destroy()


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_kernel_from_before_the_library_was_loaded(load):
    library = torch.library.Library("override_before", "FRAGMENT")
    library.impl("f", lambda x: x.double(), "CUDA")
    f = load(one("override_before"), "override_before").f
    library.m.impl("f", "CPU", lambda x: x.double(), False)  # as the one for CUDA: nothing of ours was told
    for call in (f, torch.ops.override_before.f):
        assert "argument 'x': expected dtype f32, found f64" in message(call, torch.ones(2).double())
        assert "result 'out': the Python kernel gives f64[2], but it must be f32[2]" in message(call, torch.ones(2))
    library._destroy()
