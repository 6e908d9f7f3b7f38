"""A real picture, cropped and pasted by shipped operators, bit for bit what PIL makes of it."""
import pathlib

import matplotlib
import numpy as np
from PIL import Image

import dovetail
from host import OUT, check, microseconds, report

photo = Image.open(pathlib.Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg").convert("RGB")
crop, paste = dovetail.ops.crop, dovetail.ops.paste


def planes(picture):
    """[3, height, width], as a view: the operators take any strides that the runtime can make contiguous."""
    return np.asarray(picture).transpose(2, 0, 1)


def picture(planes):
    return Image.fromarray(np.ascontiguousarray(planes.transpose(1, 2, 0)))


def same(name, found, expected, where, us, pil):
    check(np.array_equal(np.asarray(found), np.asarray(expected)), f"{name}: differs from PIL")
    found.save(pathlib.Path(OUT) / f"{name}.png")
    report("pictures", f"{name} {where}", f"bit for bit PIL's, which takes {pil:.0f} µs", us)


pixels = planes(photo)
planar = np.ascontiguousarray(pixels)  # for the times: without the copy that the view costs
photo.save(pathlib.Path(OUT) / "photo.png")
face = (150, 20, 390, 320)
for name, box in (("crop", face), ("crop_beyond_the_edge", (400, 450, 620, 700))):
    same(name, picture(crop(pixels, box)), photo.crop(box), box, microseconds(lambda: crop(planar, box)), microseconds(lambda: photo.crop(box)))

small, corner = crop(pixels, face), (10, 290)
pasted, right, face_of_pil = pixels, photo.copy(), photo.crop(face)
for at in (corner, (262, 290), (-90, -60)):
    pasted = paste(pasted, small, at)
    right.paste(face_of_pil, at)
check(np.array_equal(pixels, planes(photo)), "paste changed its input")


def pil_paste():  # the operator leaves its input as it is, so PIL must copy too
    copy = photo.copy()
    copy.paste(face_of_pil, corner)


same("paste", picture(pasted), right, "at three corners, one outside", microseconds(lambda: paste(planar, small, corner)), microseconds(pil_paste))
