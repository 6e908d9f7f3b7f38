"""Code written for torch.library and vLLM, with only its imports changed: PyTorch's tutorial, vLLM's direct_register_custom_op, functions
registered by name."""
import itertools
import sys
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

import dovetail
import dovetail.torch.library as lib
from test_custom_op import caller_of_kernel
from dovetail.torch.library import Library

_names = itertools.count()
_kept = []  # torch 2.10's export fails where a library is gone and torch.ops still has its operators


def space():
    return f"direct_{next(_names)}"


def is_short(f, *args):
    """Does nothing but torch's own __call__ stand between the call and the kernel? The kernel tells its caller by `told`."""
    told.clear()
    f(*args)
    return told == ["__call__"]


told = []


def tell():
    told.append(caller_of_kernel(sys._getframe(1)).f_code.co_name)


# ---- The tutorial "Python Custom Operators" ------------------------------------------------------------------------------------------

def to_pil_image(pic):
    """torchvision's, as far as the tutorial needs it: floats in [0, 1], channels first."""
    PIL = pytest.importorskip("PIL.Image")
    return PIL.fromarray((pic.detach().mul(255).byte().numpy()).transpose(1, 2, 0).copy())


def pil_to_tensor(image):
    return torch.from_numpy(np.array(image).transpose(2, 0, 1).copy())


@pytest.fixture
def tutorial():
    pytest.importorskip("PIL")
    import PIL.Image
    ns = space()

    @dovetail.custom_op(f"{ns}::crop", mutates_args=())
    def crop(pic: torch.Tensor, box: Sequence[int]) -> torch.Tensor:
        img = to_pil_image(pic.cpu())
        cropped_img = img.crop(box)
        return (pil_to_tensor(cropped_img) / 255.).to(pic.device, pic.dtype)

    @crop.register_fake
    def _(pic, box):
        channels = pic.shape[0]
        x0, y0, x1, y1 = box
        return pic.new_empty(channels, y1 - y0, x1 - x0)

    @dovetail.custom_op(f"{ns}::paste", mutates_args=())
    def paste(im1: torch.Tensor, im2: torch.Tensor, coord: Sequence[int]) -> torch.Tensor:
        assert im1.device == im2.device
        assert im1.dtype == im2.dtype
        im1_pil = to_pil_image(im1.cpu())
        im2_pil = to_pil_image(im2.cpu())
        PIL.Image.Image.paste(im1_pil, im2_pil, coord)
        return (pil_to_tensor(im1_pil) / 255.).to(im1.device, im1.dtype)

    @paste.register_fake
    def _(im1, im2, coord):
        assert im1.device == im2.device
        assert im1.dtype == im2.dtype
        return torch.empty_like(im1)

    def backward(ctx, grad_output):
        grad_input = grad_output.new_zeros(ctx.pic_shape)
        grad_input = paste(grad_input, grad_output, ctx.coords)
        return grad_input, None

    def setup_context(ctx, inputs, output):
        pic, box = inputs
        ctx.coords = box[:2]
        ctx.pic_shape = pic.shape

    crop.register_autograd(backward, setup_context=setup_context)
    img = torch.ones(3, 64, 64)
    img *= torch.linspace(0, 1, steps=64) * torch.linspace(0, 1, steps=64).unsqueeze(-1)
    return SimpleNamespace(crop=crop, paste=paste, img=img)


def test_crop_in_a_graph(tutorial):
    crop, img = tutorial.crop, tutorial.img

    @torch.compile(fullgraph=True)
    def f(img):
        return crop(img, (10, 10, 50, 50))

    cropped_img = f(img)
    assert cropped_img.shape == (3, 40, 40)
    assert torch.equal(cropped_img, crop(img, (10, 10, 50, 50)))
    assert torch.allclose(cropped_img, img[:, 10:50, 10:50], atol=1 / 255)


def test_crop_trains(tutorial):
    img = tutorial.img.requires_grad_()
    result = tutorial.crop(img, (10, 10, 50, 50))
    result.sum().backward()
    expected = torch.zeros(3, 64, 64)
    expected[:, 10:50, 10:50] = 1
    assert torch.equal(img.grad, expected)


def test_crop_passes_opcheck(tutorial):
    examples = [
        [torch.randn(3, 64, 64), [0, 0, 10, 10]],
        [torch.randn(3, 91, 91, requires_grad=True), [10, 0, 20, 10]],
        [torch.randn(3, 60, 60, dtype=torch.double), [3, 4, 32, 20]],
        [torch.randn(3, 512, 512, requires_grad=True, dtype=torch.double), [3, 4, 32, 45]],
    ]
    for example in examples:
        dovetail.opcheck(tutorial.crop, example)


def test_a_mutable_operator():
    @dovetail.custom_op(f"{space()}::numpy_sin", mutates_args={"output"}, device_types="cpu")
    def numpy_sin(input: torch.Tensor, output: torch.Tensor) -> None:
        assert input.device == output.device
        assert input.device.type == "cpu"
        input_np = input.numpy()
        output_np = output.numpy()
        np.sin(input_np, out=output_np)

    @torch.compile(fullgraph=True)
    def f(x):
        out = torch.empty(3)
        numpy_sin(x, out)
        return out

    x = torch.randn(3)
    y = f(x)
    assert torch.allclose(y, x.sin())
    dovetail.opcheck(numpy_sin, (x, torch.empty(3)))


# ---- vLLM -------------------------------------------------------------------------------------------------------------------------------

layers = {}


def moe_forward_shared(hidden_states: torch.Tensor, router_logits: torch.Tensor, layer_name: str) -> tuple[torch.Tensor, torch.Tensor]:
    tell()
    return layers[layer_name](hidden_states, router_logits)


def moe_forward_shared_fake(hidden_states: torch.Tensor, router_logits: torch.Tensor, layer_name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(hidden_states), torch.empty_like(hidden_states)


def test_vllm():
    ns = space()
    vllm_lib = Library(ns, "FRAGMENT")
    dovetail.direct_register_custom_op(
        op_name="moe_forward_shared",
        op_func=moe_forward_shared,
        mutates_args=["hidden_states"],
        fake_impl=moe_forward_shared_fake,
        target_lib=vllm_lib,
        dispatch_key="CPU",
        tags=(torch.Tag.needs_fixed_stride_order, ),
    )
    layers["layer.0"] = lambda h, r: (h * 2, h + r)
    op = getattr(torch.ops, ns).moe_forward_shared
    assert str(op.default._schema) == f"{ns}::moe_forward_shared(Tensor(a0!) hidden_states, Tensor router_logits, str layer_name) -> (Tensor, Tensor)"
    assert torch.Tag.needs_fixed_stride_order in op.default.tags
    h, r = torch.ones(2, 3), torch.full((2, 3), 3.0)
    assert is_short(op, h, r, "layer.0") and is_short(op.default, h, r, "layer.0")
    assert not is_short(op, h.requires_grad_(), r, "layer.0")

    def forward(h, r):
        a, b = op(h, r, "layer.0")
        return a + b

    with torch.no_grad():
        assert torch.equal(torch.compile(forward, fullgraph=True)(h.detach(), r), forward(h, r))


def test_the_libraries_that_it_takes():
    """torch's own; vLLM's by default; what vLLM's function gives and refuses."""
    own = torch.library.Library(space(), "FRAGMENT")

    def f(x: Tensor, y: Tensor | None = None) -> Tensor:
        tell()
        return x + 1

    assert dovetail.direct_register_custom_op("f", f, target_lib=own, dispatch_key="CPU") is None
    op = getattr(torch.ops, own.ns).f
    assert is_short(op, torch.zeros(1)) and op(torch.zeros(1), None).item() == 1
    name = f"dovetail_test_{next(_names)}"
    dovetail.direct_register_custom_op(name, f, [])
    assert getattr(torch.ops.vllm, name)(torch.zeros(1)).item() == 1
    with pytest.raises(RuntimeError, match="same name and overload name multiple times"):
        dovetail.direct_register_custom_op(name, f)
    with pytest.raises(NotImplementedError, match="CUDA"):
        dovetail.direct_register_custom_op("g", f, target_lib=own, dispatch_key="CUDA")
        torch.ops.__getattr__(own.ns).g(torch.zeros(1))
    with pytest.raises(ValueError, match="infer_schema"):
        dovetail.direct_register_custom_op("h", lambda x: x, target_lib=own)
    own._destroy()
    with pytest.raises(AttributeError):
        getattr(torch.ops, own.ns).f(torch.zeros(1))


def test_functions_by_name():
    """The sigmoid of seeds/000: define("ns::f(...) -> ..."), impl("ns::f", function, key)."""
    ns = space()

    def sigmoid_cpu(x):
        tell()
        return 1 / (1 + torch.exp(-x))

    lib.define(f"{ns}::sigmoid(Tensor x) -> Tensor")
    lib.impl(f"{ns}::sigmoid", sigmoid_cpu, "CPU")

    def sigmoid_backward(grad_output, output):
        return grad_output * output * (1 - output)

    lib.define(f"{ns}::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor")
    lib.impl(f"{ns}::sigmoid_backward", sigmoid_backward, "CPU")
    ops = getattr(torch.ops, ns)

    class Sigmoid(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            output = ops.sigmoid(x)
            ctx.save_for_backward(output)
            return output

        @staticmethod
        def backward(ctx, grad_output):
            output, = ctx.saved_tensors
            return ops.sigmoid_backward(grad_output, output)

    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    told.clear()
    y = Sigmoid.apply(x)
    assert told == ["__call__"]
    y.sum().backward()
    expected = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    torch.sigmoid(expected).sum().backward()
    assert torch.allclose(x.grad, expected.grad)


# ---- dovetail.torch.library beside torch.library -----------------------------------------------------------------------------------------

def test_every_name_is_there():
    assert set(torch.library.__all__) <= set(lib.__all__)
    assert all(getattr(lib, name) for name in lib.__all__)


def test_kernels_that_come_later():
    """Whatever key a kernel is for, calls do what torch's do."""
    def scenario(library, ns):
        mine = library.Library(ns, "DEF")
        mine.define("f(Tensor x, int n=1) -> Tensor")
        ops, x, seen = getattr(torch.ops, ns), torch.zeros(1), []
        for key, value in [("CompositeImplicitAutograd", 1), ("CompositeExplicitAutograd", 2), ("CPU", 3), ("CUDA", 4)]:
            mine.impl("f", lambda x, n=1, value=value: x + value * n, key)
            seen.append((ops.f(x).item(), ops.f.default(x, 2).item()))
        for replace in (lambda: library.impl(f"{ns}::f", "cpu")(lambda x, n=1: x + 5),
                        lambda: library.register_kernel(f"{ns}::f", "cpu", lambda x, n=1: x + 6)):
            try:
                replace()
                seen.append(ops.f(x).item())
            except RuntimeError as refused:  # torch 2.10 lets no kernel be replaced
                seen.append((str(refused).replace(ns, "SPACE"), ops.f(x).item()))

        def autograd(keyset, x, n=1):
            with torch._C._AutoDispatchBelowAutograd():
                return ops.f.default.redispatch(keyset & torch._C._after_autograd_keyset, x, n) + 100

        mine.impl("f", autograd, "AutogradCPU", with_keyset=True)
        seen.append(ops.f(x).item())
        mine.define("f.two(Tensor x, Tensor y) -> Tensor")
        mine.impl("f.two", torch.add, "CPU")
        seen.append((ops.f(x, x + 7).item(), ops.f.two(x, x + 8).item(), ops.f(x).item()))
        return seen

    assert scenario(lib, space()) == scenario(torch.library, space())


def test_a_kernel_before_its_definition():
    mine = Library(space(), "FRAGMENT")
    _kept.append(mine)
    mine.impl("f", lambda x: x + 1, "CPU")
    mine.define("f(Tensor x) -> Tensor")
    assert getattr(torch.ops, mine.ns).f(torch.zeros(1)).item() == 1


def test_torchs_operators_stay_torchs():
    before = torch.ops.aten.cosh._op, torch.ops.aten.cosh.default._op
    mine = Library("aten", "IMPL")
    mine.impl("cosh", lambda x: x + 41, "CPU")
    try:
        assert torch.cosh(torch.ones(1)).item() == torch.ops.aten.cosh(torch.ones(1)).item() == 42
        assert (torch.ops.aten.cosh._op, torch.ops.aten.cosh.default._op) == before
    finally:
        mine._destroy()
    assert torch.cosh(torch.zeros(1)).item() == 1


def test_functions_of_a_library_stand_for_operators(tmp_path):
    """What dovetail.load gives, where torch takes an operator."""
    from conftest import one
    (tmp_path / "f.c").write_text(one("dovetail_functions"))
    with dovetail.load(tmp_path / "f.c") as library:
        dovetail.opcheck(library.f, (torch.ones(2),))
        dovetail.register_autograd(library.f, lambda ctx, g: g * 7)
        x = torch.ones(2, requires_grad=True)
        torch.ops.dovetail_functions.f(x).sum().backward()
        assert torch.equal(x.grad, torch.full((2,), 7.0))


def test_fakes_by_name():
    ns = space()
    lib.define(f"{ns}::f", "(Tensor x) -> Tensor")

    @lib.impl(f"{ns}::f", "default")
    def _(x):
        return x + 1

    @lib.register_fake(f"{ns}::f")
    def _(x):
        return torch.empty_like(x)

    lib.register_autograd(f"{ns}::f", lambda ctx, g: g * 3)
    lib.register_vmap(f"{ns}::f", lambda info, in_dims, x: (getattr(torch.ops, ns).f(x), in_dims[0]))
    op = getattr(torch.ops, ns).f
    x = torch.ones(2, requires_grad=True)
    assert torch.equal(torch.autograd.grad(op(x).sum(), x)[0], torch.full((2,), 3.0))
    assert torch.equal(torch.vmap(op)(torch.zeros(2, 3)), torch.ones(2, 3))
    assert torch.equal(torch.compile(op, fullgraph=True, backend="aot_eager")(torch.zeros(2)), torch.ones(2))
    lib.opcheck(op.default, (torch.ones(2),))
