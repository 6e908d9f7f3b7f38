"""Kernels that a program gives one of our operators by torch.library: they are what runs, whichever way a call comes."""
import gc

import pytest
import torch
from conftest import one, square_source

import dovetail
from dovetail import _core

PLAIN, GRADIENT, OTHER = range(3)


def ways(f, x):
    """The way of a call; a gradient's Function makes a plain one inside."""
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


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_restored_when_the_last_library_is_collected(load):
    f, x = load(one("override_two"), "override_two").f, torch.ones(3)
    torch.library.impl("override_two::f", "CPU", lambda x: x + 5, lib=(first := torch.library.Library("override_two", "FRAGMENT")))
    second = torch.library.Library("override_two", "IMPL", "CPU")
    second.impl("f", lambda x: x + 7)
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
