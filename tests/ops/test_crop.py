"""crop and paste: exactly against slices, and the PIL forms against PIL itself, bit for bit."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

from kernels import Kernels

pytestmark = pytest.mark.quick

crop = Kernels("crop")
PIL_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def to_pil(pic):
    """As torchvision's to_pil_image does for float tensors."""
    array = pic.mul(255).byte().permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(array[:, :, 0] if pic.shape[0] == 1 else array, PIL_MODES[pic.shape[0]])


def from_pil(image):
    array = torch.from_numpy(np.array(image, copy=True))
    array = array[:, :, None] if array.dim() == 2 else array
    return array.permute(2, 0, 1).contiguous().to(torch.float32).div(255)


def exact_crop(pic, box):
    x0, y0, x1, y1 = box
    out = torch.zeros(pic.shape[0], y1 - y0, x1 - x0, dtype=pic.dtype)
    for i in range(y1 - y0):
        for j in range(x1 - x0):
            if 0 <= y0 + i < pic.shape[1] and 0 <= x0 + j < pic.shape[2]:
                out[:, i, j] = pic[:, y0 + i, x0 + j]
    return out


@st.composite
def pictures(draw, wild=True):
    """Of floats in [0, 1], and some outside."""
    c = draw(st.sampled_from([1, 3, 4]))
    h, w = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    pic = torch.rand(c, h, w, generator=g)
    if wild and draw(st.booleans()):
        pic = (pic - 0.4) * draw(st.sampled_from([3.0, 300.0, 1e7]))
    return pic


@st.composite
def boxes(draw):
    x0, y0 = draw(st.integers(-12, 12)), draw(st.integers(-12, 12))
    return [x0, y0, x0 + draw(st.integers(0, 14)), y0 + draw(st.integers(0, 14))]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(pictures(), boxes())
def test_crop(pic, box):
    want = exact_crop(pic, box)
    for row in crop.runnable("crop"):
        out = torch.full_like(want, 7)
        crop.run("crop", row, pic=pic, box=box, out=out)
        assert torch.equal(out, want)
    through_pil = from_pil(to_pil(pic).crop(box)) if want.numel() else want
    for row in crop.runnable("crop_pil"):
        out = torch.full_like(want, 7)
        crop.run("crop_pil", row, pic=pic, box=box, out=out)
        assert torch.equal(out, through_pil)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(pictures(), pictures(), st.integers(-12, 12), st.integers(-12, 12))
def test_paste(im1, im2, x, y):
    im2 = im2[:1].expand(im1.shape[0], -1, -1).contiguous()
    want = im1.clone()
    x0, y0, x1, y1 = max(x, 0), max(y, 0), min(x + im2.shape[2], im1.shape[2]), min(y + im2.shape[1], im1.shape[1])
    if x0 < x1 and y0 < y1:
        want[:, y0:y1, x0:x1] = im2[:, y0 - y:y1 - y, x0 - x:x1 - x]
    for row in crop.runnable("paste"):
        out = torch.full_like(im1, 7)
        crop.run("paste", row, im1=im1, im2=im2, coord=[x, y], out=out)
        assert torch.equal(out, want)
    below = to_pil(im1)
    below.paste(to_pil(im2), (x, y))
    for row in crop.runnable("paste_pil"):
        out = torch.full_like(im1, 7)
        crop.run("paste_pil", row, im1=im1, im2=im2, coord=[x, y], out=out)
        assert torch.equal(out, from_pil(below))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -0.0, 1.0, 1.0 + 1e-6, -1e-9, 8421504.5, -8421504.5, 1e38, 0.999999])
def test_pil_of_extremes(value):
    pic = torch.full((3, 2, 20), value)
    out = torch.empty_like(pic)
    crop.run("crop_pil", None, pic=pic, box=[0, 0, 20, 2], out=out)
    assert torch.equal(out, from_pil(to_pil(pic)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8, torch.int64, torch.bool], ids=str)
def test_other_types_and_far_boxes(dtype):
    pic = (torch.arange(2 * 5 * 6) % 7).reshape(2, 5, 6).to(dtype)
    for box in ([1, 1, 4, 3], [-3, 2, 2, 9], [2**62, 0, 2**62 + 2, 2], [-2**63, -2**63, -2**63 + 2, -2**63 + 2]):
        want = exact_crop(pic, box)
        for row in crop.runnable("crop"):
            out = torch.ones_like(want)
            crop.run("crop", row, pic=pic, box=box, out=out)
            assert torch.equal(out, want)
    out = torch.empty_like(pic)
    for far in (2**63 - 1, -2**63):
        for row in crop.runnable("paste"):
            crop.run("paste", row, im1=pic, im2=pic, coord=[far, 0], out=out)
            assert torch.equal(out, pic)
