"""docs/ascend.md: its operator is built, its program compiled and run on the stand-in, its message comes."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
CANN = BUILD / "tests/ascend/cann"
PAGE = (ROOT / "docs/ascend.md").read_text()
OPERATOR, LAUNCH, PROGRAM = re.findall(r"^```c\n(.*?)^```$", PAGE, re.S | re.M)
ENV = {**os.environ, "ASCEND_HOME_PATH": str(CANN), "ASCEND_OPP_PATH": str(CANN / "opp")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not CANN.exists():
        pytest.skip("cmake -DDOVETAIL_TESTS=ON")
    folder = tmp_path_factory.mktemp("page")
    (folder / "my_ops.c").write_text(OPERATOR)
    (folder / "main.c").write_text(PROGRAM)
    subprocess.run([BUILD / "bin/dovetail", "build", "my_ops.c", "-o", "my_ops.so"], cwd=folder, check=True)
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "main.c", f"-L{BUILD}/lib", "-ldovetail_ascend", "-ldovetail",
                    f"-Wl,-rpath,{BUILD}/lib", "-o", "main"], cwd=folder, check=True)
    return folder


def run(folder, **env):
    r = subprocess.run(["./main"], cwd=folder, env={**ENV, **env}, capture_output=True, text=True, timeout=60)
    return r.returncode, r.stderr


def test_the_program(folder):
    assert run(folder) == (0, "")


def test_without_cann(folder):
    code, said = run(folder, ASCEND_HOME_PATH="/nowhere")
    assert code == 1 and "Ascend: no libascendcl.so: /nowhere/lib64/libascendcl.so (not there); libascendcl.so (not there)" in said, said


def test_a_vendor_that_lacks_the_operator(folder):
    code, said = run(folder, ASCEND_OPP_PATH="/nowhere")
    assert code == 1 and "my_ops::my_op: no function aclnnAddCustomGetWorkspaceSize" in said and "config.ini (not there)" in said, said


def test_a_folder_that_others_may_write_is_not_used(folder):
    vendor = folder / "open/op_api/lib"
    vendor.mkdir(parents=True)
    (vendor / "libcust_opapi.so").write_bytes((CANN / "opp/vendors/v2/op_api/lib/libcust_opapi.so").read_bytes())
    vendor.chmod(0o777)
    code, said = run(folder, ASCEND_OPP_PATH="/nowhere", ASCEND_CUSTOM_OPP_PATH=str(folder / "open"))
    assert code == 1 and "open/op_api/lib (" in said and "write" in said, said
    vendor.chmod(0o755)
    assert run(folder, ASCEND_OPP_PATH="/nowhere", ASCEND_CUSTOM_OPP_PATH=f"{folder}/none:{folder}/open") == (0, "")


def test_the_places_say_why(folder):
    vendor, opp = folder / "arm/op_api/lib", folder / "opp/vendors"
    vendor.mkdir(parents=True)
    opp.mkdir(parents=True)
    library = bytearray((CANN / "opp/vendors/v2/op_api/lib/libcust_opapi.so").read_bytes())
    library[18:20] = (183 if library[18] == 62 else 62).to_bytes(2, "little")  # e_machine: aarch64 or x86-64, the other one
    (vendor / "libcust_opapi.so").write_bytes(library)
    (opp / "config.ini").write_text("priority=v1\n")
    code, said = run(folder, ASCEND_OPP_PATH=str(folder / "opp"), ASCEND_CUSTOM_OPP_PATH=str(folder / "arm"))
    assert code == 1 and "arm/op_api/lib/libcust_opapi.so (made for another processor)" in said and "config.ini (without load_priority" in said, said


def test_the_message_of_the_page(tmp_path):
    (tmp_path / "my_ops.c").write_text(OPERATOR.replace('"self, other, result"', '"self, othr, result"'))
    r = subprocess.run([BUILD / "bin/dovetail", "build", "my_ops.c", "-o", "my_ops.so"], cwd=tmp_path, capture_output=True, text=True)
    message, = (text for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.S | re.M) if not language)
    assert r.returncode == 1 and message in r.stderr and not (tmp_path / "my_ops.so").exists(), r.stderr


def test_the_launcher(folder):
    """It is built without its kernel. tests/ascend/test_document_002.py builds one with a kernel."""
    (folder / "my_launch.c").write_text(LAUNCH)
    r = subprocess.run([BUILD / "bin/dovetail", "build", "-W", "my_launch.c"], cwd=folder, capture_output=True, text=True)
    assert r.returncode == 0 and not r.stderr, r.stderr
    said = subprocess.run([BUILD / "bin/dovetail", "info", "my_launch.so"], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert "MyCustomOpKernelEntry(8, input, result, param1, param2)" in said and "npu" in said, said


def test_explain(folder):
    said = subprocess.run([BUILD / "bin/dovetail", "info", "my_ops.so"], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert "aclnnAddCustom(self, other, result)" in said and "npu" in said, said


def test_explain_of_none_for_a_number(folder):
    source = ("#include <dovetail_ascend.h>\nstruct f { const dv_tensor *x; dv_opt_dtype to; dv_tensor *y; };\n"
              'DV_OPERATOR(f, struct f, (x, to, y), .schema = "f(Tensor x, ScalarType? to=None) -> Tensor y", .contract = "x[*s]:T -> y[*s]:T",\n'
              '    .kernels = DV_KERNELS(DV_ACLNN("f32", "F", "x, LIST, y")));\nDV_LIBRARY(none_ops, &dv_op_f);\n')
    for written, verdict in (("to", "selected, but the call fails: 'to' is None, and the kernel's argument list has no 'or' for it"), ("to or f32", "selected\n")):
        (folder / "none_ops.c").write_text(source.replace("LIST", written))
        subprocess.run([BUILD / "bin/dovetail", "build", "none_ops.c"], cwd=folder, check=True, capture_output=True)
        said = subprocess.run([BUILD / "bin/dovetail", "explain", "none_ops.so", "none_ops::f", "f32[2]:npu"], cwd=folder, check=True, capture_output=True, text=True)
        assert verdict in said.stdout, said.stdout


def test_python():
    """dovetail.ascend.open() says what is missing, and opens the stand-in."""
    def opened(**env):
        r = subprocess.run([sys.executable, "-c", "import dovetail; dovetail.ascend.open()"], env={**ENV, "PYTHONPATH": f"{BUILD}/python", **env},
                           capture_output=True, text=True)
        return r.returncode, r.stderr.strip().rsplit("\n", 1)[-1]
    if not (BUILD / "python").exists():
        pytest.skip("cmake -DDOVETAIL_PYTHON=ON")
    assert opened() == (0, "")
    code, said = opened(ASCEND_HOME_PATH="/nowhere")
    assert code == 1 and said.startswith("RuntimeError: Ascend: no libascendcl.so: /nowhere/lib64/libascendcl.so (not there)"), said
