"""A registration that fails half way leaves nothing behind."""
import pytest
import torch

from dovetail import _core
from dovetail.torch import operator, overridden, private, register, registration, unregister
from dovetail.torch.transforms import functional, vmap

from conftest import compile_ops, one

TWO = one("halfway").replace("DV_LIBRARY(halfway, &dv_op_f);", """
DV_OPERATOR(g, struct f, (x, out), .schema = "g(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s); flops = numel(x)",
    .native = "x + 1", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
struct h { const dv_tensor *x; dv_scalar by; dv_tensor *out; };
static int h(dv_context *ctx, const struct h *a) { (void)ctx; ((float *)a->out->data)[0] = (float)a->by.as.i; return DV_OK; }
DV_OPERATOR(h, struct h, (x, by, out), .schema = "h(Tensor x, Scalar by) -> Tensor out", .contract = "x[*s]:f32 -> out[]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct h, "cpu", "f32", h)));
DV_LIBRARY(halfway, &dv_op_f, &dv_op_g, &dv_op_h);""")

# each step of a registration, by where it is looked up, and which of its calls fails: one for each operator, or all of them
STEPS = [(operator, "Contract", 1), (operator, "Contract", 3), (operator, "Autograd", 2), (operator.Autograd, "attach", 2), (operator.out, "find", 2),
         (operator, "entry", 1), (operator, "give_tags", 1), (operator, "give_tags", 2), (private, "register_fake", 1), (private, "register_fake", 4),
         (vmap, "install", 2), (functional, "install", 3), (operator.autocast, "install", 1), (operator.flops, "install", 2),
         (operator.sharding, "install", 2), (overridden, "Own", 1), (overridden, "watch", 1), (overridden, "watch", 3),
         (operator.Operator, "shorten", 2), (registration.packed, "define", 1), (registration, "_when_imported", 2)]


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("halfway")
    (folder / "halfway.c").write_text(TWO)
    return compile_ops(folder / "halfway.c", folder / "halfway.so")


def check(ops, x=torch.ones(2)):
    for f in (ops.f, ops.g):
        assert torch.equal(f(x), x + 1) and torch.equal(f.default(x), x + 1)
        out = torch.empty(0)
        assert torch.equal(f.out(x, out=out), x + 1)
        assert sorted(f.overloads()) == ["default", "out"]
        assert f.default(torch.empty(3, device="meta")).shape == (3,)
    assert ops.h(x, 5).item() == 5


@pytest.mark.parametrize("where, name, nth", STEPS, ids=[f"{where.__name__.split('.')[-1]}-{name}-{nth}" for where, name, nth in STEPS])
def test_all_or_nothing(halfway, monkeypatch, where, name, nth):
    """The nth call of a step raises: its operators are not in torch.ops, and the next load has all of them."""
    whole, calls = getattr(where, name), []

    def fail(*args, **kwargs):
        calls.append(1)
        if len(calls) == nth:
            raise ZeroDivisionError
        return whole(*args, **kwargs)

    handle = _core.load(halfway)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, fail)
            with pytest.raises(ZeroDivisionError):
                register(handle, strict=False)
        space = torch.ops.halfway
        assert not {"f", "g", "h"} & {*vars(space), *space._dir} and not any(hasattr(space, n) for n in "fgh")
        register(handle, strict=False)
        check(space)
    finally:
        unregister(handle)
        _core.library_free(handle)


def test_torch_refuses_the_second_operator(halfway):
    theirs = torch.library.Library("halfway", "FRAGMENT")  # noqa: TOR901
    theirs.define("g(Tensor x) -> Tensor")
    handle = _core.load(halfway)
    try:
        with pytest.raises(RuntimeError, match="halfway::g: torch refused the schema"):
            register(handle)
        assert not hasattr(torch.ops.halfway, "f") and not hasattr(torch.ops.halfway, "h")
        with pytest.warns(UserWarning, match="halfway::g: torch refused the schema"):
            assert list(register(handle, strict=False).operators) == ["halfway::f", "halfway::h"]
        assert torch.ops.halfway.f(torch.ones(2)).shape == (2,) and torch.ops.halfway.h(torch.ones(2), 5).item() == 5
        unregister(handle)
        theirs._destroy()
        vars(torch.ops.halfway).pop("g", None)
        register(handle, strict=False)
        check(torch.ops.halfway)
    finally:
        unregister(handle)
        _core.library_free(handle)
