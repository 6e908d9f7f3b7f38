"""examples/document_003: a wheel with an operator for CPU tensors, by `setup.py build bdist_wheel`. Its graphs are in tests/torchair; what needs an NPU
is not here."""
import os
import subprocess
import sys
import types
import zipfile

import pytest
import torch

import dovetail


@pytest.fixture(scope="module")
def wheel(patched):
    folder = patched("003")
    done = subprocess.run([sys.executable, "setup.py", "build", "bdist_wheel"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found, = (folder / "dist").iterdir()
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        import custom_ops
        import custom_ops_lib
        yield types.SimpleNamespace(custom_ops=custom_ops, custom_ops_lib=custom_ops_lib, site=site)


def test_the_wheel(wheel):
    """Python that the document lists, and the operators with their types."""
    assert wheel.name.startswith("custom_ops-1.0-") and wheel.suffix == ".whl"
    names = [n for n in zipfile.ZipFile(wheel).namelist() if "dist-info" not in n]
    assert sorted(names) == ["custom_ops/__init__.py", "custom_ops/add_custom.py", "custom_ops_lib/__init__.py", "custom_ops_lib/__init__.pyi",
                             "custom_ops_lib/custom_ops_lib.so"]
    assert "Keywords: custom_ops\n" in zipfile.ZipFile(wheel).read("custom_ops-1.0.dist-info/METADATA").decode()


def test_both_import_names(installed):
    x, y = torch.randn(8, 2048), torch.randn(8, 2048)
    for module in (installed.custom_ops_lib, installed.custom_ops):
        assert torch.equal(module.add_custom(x, y), x + y)
        assert torch.equal(module.add_custom(x.t(), y.t()), (x + y).t())
    assert "x + y" in installed.custom_ops_lib.add_custom.__doc__ and installed.custom_ops_lib.__version__ == "1.0"


def test_the_schemas(installed):
    assert str(torch.ops.myops.my_op.default._schema) == "myops::my_op(Tensor self, Tensor other) -> Tensor"
    assert str(torch.ops.myops.my_op_backward.default._schema) == "myops::my_op_backward(Tensor self) -> (Tensor, Tensor)"


@pytest.mark.parametrize("name", ["my_op", "add_custom"])
def test_forward_and_backward(installed, name):
    f = getattr(torch.ops.myops, name)
    for call in (f, torch.compile(lambda x, y: f(x, y), fullgraph=True, backend="aot_eager", dynamic=True)):
        x, y, g = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
        z = call(x, y)
        z.backward(g)
        assert torch.equal(z, x + y) and torch.equal(x.grad, g) and torch.equal(y.grad, g)
    a, b = torch.ops.myops.my_op_backward(g)
    assert torch.equal(a, g) and torch.equal(b, g) and a.data_ptr() != b.data_ptr() != g.data_ptr()  # the document's are one tensor


def test_meta(installed):
    x = torch.empty(3, 5, device="meta")
    assert torch.ops.myops.my_op(x, x).shape == (3, 5) and torch.ops.myops.my_op(x, x).is_meta
    a, b = torch.ops.myops.my_op_backward(x)
    assert (a.shape, b.dtype, b.device.type) == ((3, 5), torch.float, "meta")
    with pytest.raises(RuntimeError, match=r"myops::my_op: argument 'other': expected shape \[3, 5\].*found \[3, 4\]"):
        torch.ops.myops.my_op(x, torch.empty(3, 4, device="meta"))  # the document's gives a wrong shape
    dovetail.opcheck(torch.ops.myops.my_op.default, (torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)))


def test_the_layout(wheel):
    there = {p.relative_to(wheel.parents[1]).as_posix() for p in wheel.parents[1].rglob("*") if p.is_file() and "build" not in p.parts}
    assert there >= {"csrc/extension_add.c", "csrc/extension_add1.c", "csrc/function.h", "csrc/register.c", "custom_ops/add_custom.py", "custom_ops/__init__.py",
                     "graph/CMakeLists.txt", "graph/custom_reg_op.h", "setup.py", "test/test_add_custom_graph.py", "test/test_add_custom.py"}


@pytest.mark.parametrize("script, said", [("test_add_custom.py", "eager is right"), ("test_add_custom_graph.py", "inductor is right")])
def test_the_scripts(wheel, installed, script, said):
    env = {**os.environ, "PYTHONPATH": f"{installed.site}{os.pathsep}{os.environ['PYTHONPATH']}"}
    done = subprocess.run([sys.executable, wheel.parents[1] / "test" / script], capture_output=True, text=True, env=env)
    assert done.stdout == f"add_custom: {said}\n", done.stderr


def test_make(patched):
    """The commands of the document; the functions are used in tests/torchair."""
    graph = patched("003") / "graph"
    env = {**os.environ, "DOVETAIL_PYTHON": sys.executable}
    done = subprocess.run(["sh", "-e", "-c", "mkdir build\ncd build\ncmake ..\nmake generate_ge_raw_custom_ops"], cwd=graph, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (graph / "auto_generated_ge_raw_custom_ops.py").read_text()
    assert "def AddCustom(x: Tensor, y: Tensor, *, dependencies=[], node_name=None):" in text and not (graph / "custom_reg_op.c").exists()


def test_in_place_and_beside_other_extensions(tmp_path):
    """`build_ext --inplace`, as `pip install -e` asks for it; in a package; an extension of C for Python; a source that does not compile."""
    (tmp_path / "op.c").write_text('''#include <dovetail_op.h>
struct twice { const dv_tensor *x; dv_tensor *out; };
DV_OPERATOR(twice, struct twice, (x, out), .schema = "twice(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "x + x");
DV_LIBRARY(in_place, &dv_op_twice);
''')
    (tmp_path / "own.c").write_text("#include <Python.h>\nstatic struct PyModuleDef d = {PyModuleDef_HEAD_INIT, \"own\"};\n"
                                    "PyMODINIT_FUNC PyInit_own(void) { return PyModule_Create(&d); }\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").touch()
    (tmp_path / "setup.py").write_text('''
from dovetail.setuptools import BuildExtension, Extension
import setuptools
setuptools.setup(name="pack", version="2", packages=["pack"], cmdclass={"build_ext": BuildExtension},
    ext_modules=[Extension("pack.ops", ["op.c"], extra_compile_args=["-D", "X=1"]), setuptools.Extension("own", ["own.c"])])
''')
    done = subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    code = "import own, numpy, pack.ops as p; print(p.twice(numpy.ones(2, 'f4')), p.__version__, p.__all__)"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env).stdout == "[2. 2.] 2 ['twice']\n"
    (tmp_path / "op.c").write_text("int f(")
    done = subprocess.run([sys.executable, "setup.py", "build"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode and "error: dovetail build of pack.ops failed" in done.stderr and "op.c:1" in done.stderr + done.stdout
