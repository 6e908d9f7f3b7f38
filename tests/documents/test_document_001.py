"""examples/document_001: the tutorial on Python custom operators."""
import inspect

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

import dovetail

BOX = (10, 10, 50, 50)
RAMP = torch.linspace(0, 1, steps=64) * torch.linspace(0, 1, steps=64).unsqueeze(-1)
BYTES = (RAMP * 255).to(torch.uint8)  # what a PIL image keeps of it


@pytest.fixture(scope="module")
def ran(stand_ins, run):
    """The document's globals, and the pictures that it shows."""
    import matplotlib.pyplot as plt
    plt.figure()
    found = run("001")
    found.shown = [np.asarray(image.get_array()) for image in plt.gca().images]
    plt.close()
    return found


def test_the_pictures(ran):
    img, part = RAMP.expand(3, 64, 64).permute(1, 2, 0), (BYTES[10:50, 10:50] / 255.).expand(3, 40, 40).permute(1, 2, 0)
    inside = torch.zeros(64, 64, 3)
    inside[10:50, 10:50] = 1
    for found, expected in zip(ran.shown, (img, part, img, part, inside), strict=True):
        assert np.array_equal(found, expected.numpy())


def test_a_plain_function_breaks_the_graph(ran):
    from torchvision.transforms.functional import pil_to_tensor, to_pil_image

    def crop(pic, box):
        img = to_pil_image(pic.cpu())
        cropped_img = img.crop(box)
        return pil_to_tensor(cropped_img).to(pic.device) / 255.

    with pytest.raises(torch._dynamo.exc.Unsupported, match="(?s)to_pil_image|numpy|PIL"):
        torch.compile(lambda img: crop(img, BOX), fullgraph=True, backend="eager")(ran.img.detach())
    graphs = CompileCounter()
    torch.compile(lambda img: ran.crop(img, BOX), fullgraph=True, backend=graphs)(ran.img.detach())
    assert graphs.frame_count == 1 and graphs.op_count == 1


def test_names_and_schemas(ran):
    assert isinstance(ran.crop, torch.library.CustomOpDef) and ran.crop._opoverload is torch.ops.mylib.crop.default
    assert str(torch.ops.mylib.crop.default._schema) == "mylib::crop(Tensor pic, SymInt[] box) -> Tensor"
    assert str(torch.ops.mylib.paste.default._schema) == "mylib::paste(Tensor im1, Tensor im2, SymInt[] coord) -> Tensor"
    assert str(torch.ops.mylib.numpy_sin.default._schema) == "mylib::numpy_sin(Tensor input, Tensor(a1!) output) -> ()"
    assert list(inspect.signature(ran.crop).parameters) == ["pic", "box"]


def test_fakes(ran):
    with torch._subclasses.FakeTensorMode():
        pic = torch.empty(3, 64, 64, dtype=torch.double)
        part = ran.crop(pic, [10, 20, 15, 50])
        whole = ran.paste(pic, part, [1, 2])
        assert (part.shape, part.dtype, whole.shape, whole.stride()) == ((3, 30, 5), torch.double, (3, 64, 64), (4096, 64, 1))
        with pytest.raises(AssertionError):
            ran.paste(pic, part.float(), [1, 2])


def test_the_compiled_crop(ran):
    """The first cropped picture came from the plain function."""
    assert torch.equal(ran.cropped_img, (BYTES[10:50, 10:50] / 255.).expand(3, 40, 40))
    assert torch.equal(ran.cropped_img, ran.crop(ran.img.detach(), BOX)) and ran.cropped_img.is_contiguous()


def test_gradients_in_compiled_code(ran):
    for f in (ran.crop, torch.compile(lambda x, box: ran.crop(x, box), fullgraph=True, backend="aot_eager")):
        x = ran.img.detach().requires_grad_()
        (f(x, BOX) * torch.arange(2.0).repeat(20)).sum().backward()
        expected = torch.zeros(3, 64, 64)
        expected[:, 10:50, 11:50:2] = 1
        assert torch.equal(x.grad, expected)


def test_paste(ran):
    assert torch.equal(ran.paste(torch.zeros(3, 4, 5), torch.ones(3, 2, 2), [3, 1])[1],
                       torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0.]]))
    with pytest.raises(AssertionError):
        ran.paste(torch.zeros(3, 4, 5), torch.ones(3, 2, 2).double(), [3, 1])


def test_the_gradient(ran):
    expected = torch.zeros(3, 64, 64)
    expected[:, 10:50, 10:50] = 1
    assert torch.equal(ran.img.grad, expected)


def test_opcheck(ran):
    assert [(a.shape[1], box, a.requires_grad, a.dtype) for a, box in ran.examples] == [
        (64, [0, 0, 10, 10], False, torch.float), (91, [10, 0, 20, 10], True, torch.float),
        (60, [3, 4, 32, 20], False, torch.double), (512, [3, 4, 32, 45], True, torch.double)]
    assert set(dovetail.opcheck(ran.crop, ran.examples[0]).values()) == {"SUCCESS"}
    assert set(dovetail.opcheck(ran.paste, (torch.rand(3, 9, 9), torch.rand(3, 4, 5), [7, 2])).values()) == {"SUCCESS"}
    assert set(dovetail.opcheck(ran.numpy_sin, (ran.x, torch.empty(3))).values()) == {"SUCCESS"}


def test_sines_under_compile(ran):
    assert torch.equal(ran.y, torch.from_numpy(np.sin(ran.x.numpy()))) and not torch.equal(ran.x, ran.y)
    with pytest.raises(NotImplementedError, match="numpy_sin"):
        ran.numpy_sin(ran.x.to_sparse(), torch.empty(3))


def test_a_forgotten_write(ran):
    @dovetail.custom_op("mylib::forgotten", mutates_args=())
    def forgotten(input: torch.Tensor, output: torch.Tensor) -> None:
        np.sin(input.numpy(), out=output.numpy())

    with pytest.raises(Exception, match="(?s)test_schema failed.*output.*mutated"):
        dovetail.opcheck(forgotten, (ran.x, torch.empty(3)))


def test_the_fake_has_other_strides(ran):
    """The defect of the document that its patch mends."""
    @dovetail.custom_op("mylib::crop_as_written", mutates_args=())
    def crop(pic: torch.Tensor, box: list[int]) -> torch.Tensor:
        return ran.pil_to_tensor(ran.to_pil_image(pic).crop(box)) / 255.

    crop.register_fake(lambda pic, box: pic.new_empty(pic.shape[0], box[3] - box[1], box[2] - box[0]))
    with pytest.raises(Exception, match=r"(?s)Stride mismatch.*dovetail.custom_op\(..., fake_strides=True\) brings results") as failed:
        dovetail.opcheck(crop, (ran.img.detach(), list(BOX)))
    assert "mylib.crop_as_written" in str(failed.value)


def test_the_declared_operators(ran):
    """Dovetail's own, written in C, give the document's pictures and gradient, to the bit."""
    img = ran.img.detach().requires_grad_()
    found = dovetail.ops.crop_pil(img, BOX)
    assert torch.equal(found, ran.cropped_img)
    found.sum().backward()
    assert torch.equal(img.grad, ran.img.grad)
    output = torch.empty(3)
    dovetail.ops.numpy_sin(ran.x, output)
    torch.testing.assert_close(output, ran.y, rtol=3e-7, atol=0)
