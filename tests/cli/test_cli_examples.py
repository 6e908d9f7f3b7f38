"""The examples, as their first lines say to run them."""
import shutil
import subprocess

import pytest
from cli_helpers import ROOT, Dovetail, symbols


@pytest.fixture
def example(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return lambda name: Dovetail(tmp_path / "examples" / name)


def test_every_folder_is_listed():
    folders = {p.name for p in (ROOT / "examples").iterdir() if p.is_dir()}
    page = (ROOT / "examples" / "README.md").read_text()
    assert folders and all(f"]({name})" in page for name in folders)


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_embed(example, cc):
    if not shutil.which(cc):
        pytest.skip(f"no {cc} here")
    p = example("embed")
    command = f"{cc} -Wall -Wextra -Werror -DDV_STATIC embed.c square.c $(dovetail --cflags --libs) -o embed && ./embed"
    assert subprocess.run(command, shell=True, cwd=p.folder, env=p.env, capture_output=True, text=True, check=True).stdout == "1 4 9 16\n"
    p("build", "square.c")  # the same file is a binary too
    assert symbols(p.folder / "square.so") == ["dovetail_library_1"]


def test_dispatch(example):
    p = example("dispatch")
    command = "cc -Wall -Wextra -Werror dispatch.c $(dovetail --cflags --libs) -o dispatch && ./dispatch"
    cpu = "  cpu: demo::twice\n  2 4 6\n"
    assert subprocess.run(command, shell=True, cwd=p.folder, env=p.env, capture_output=True, text=True, check=True).stdout == (
        f"one kernel:\n{cpu}a kernel on the Autograd key:\n  autograd: demo::twice, call 1\n{cpu}"
        f"with a guard that leaves autograd out:\n{cpu}its library freed:\n{cpu}")


def test_layers(example):
    p = example("layers")
    p("build", "scale_by_layer.c", "-o", "layers.so")
    command = "cc -std=c11 -Wall -Wextra -Werror layers.c $(dovetail --cflags --libs) -o layers && ./layers layers.so layers.0 layers.1 layers.2 layers.7"
    assert subprocess.run(command, shell=True, cwd=p.folder, env=p.env, capture_output=True, text=True).stdout == (
        "layers.0: 10 20 30 40 50 60\nlayers.1: 1 4 9 4 10 18\n"
        "layers::scale_by_layer: layer_name 'layers.2': expected x of 2 columns, found 3\n"
        "layers::scale_by_layer: dv_object: the host model has no 'layers.7'\n")


def test_vendor(example, project):
    project("build")
    p = example("vendor")
    p("build", "acme.c")
    call = (str(project.folder / "my_ops.so"), str(p.folder / "acme.so"), "my_ops::swiglu", "f32[8]", "f32[8]")
    rows = p("explain", "--json", *call).json["kernels"]
    assert [(r["kernel"], r["provider"], r["selected"]) for r in rows[:2]] == [("acme_swiglu_f32", "acme", True), ("swiglu_f32", "my_ops", False)]
    assert p("bench", "--json", "--time", "1", *call).json["runs"][0]["kernel"] == "acme_swiglu_f32"


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_cuda(example):
    p = example("cuda")
    r = p("build", "negate.c", "negate.cu", "--json").json
    assert symbols(p.folder / "negate_ops.so") == ["dovetail_library_1"]
    assert [k["device"] for k in r["operators"][0]["kernels"]] == ["cuda", "cpu"]
    rows = p("explain", "--json", "negate_ops.so", "negate_ops::negate", "f32[8]:cuda").json["kernels"]
    assert [(r["kernel"], r["selected"]) for r in rows] == [("negate_cuda", True), ("negate_cpu", False)]
    (p.folder / "a b.cu").write_text((p.folder / "negate.cu").read_text())
    assert "nvcc passes its arguments to a shell" in p("build", "negate.c", "a b.cu", code=1).err
