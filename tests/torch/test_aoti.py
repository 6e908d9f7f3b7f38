"""Models with Dovetail operators in a C++ process without Python (examples/torch_cpp): packages of AOTInductor, TorchScript files."""
import os
import pathlib
import runpy
import shutil
import subprocess

import pytest
import torch

import dovetail
from conftest import ROOT

EXAMPLE = ROOT / "examples/torch_cpp"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"),
              pytest.mark.skipif(not (shutil.which("g++") and shutil.which("cmake")), reason="a C++ compiler and cmake are needed")]


def torch_for_the_cpu(folder):
    """torch's own CMake package of a CUDA build wants CUDA's compiler. This one is enough for programs that run on the CPU."""
    root = pathlib.Path(torch.__file__).parent
    (folder / "TorchConfig.cmake").write_text(f"""
add_library(torch_for_the_cpu INTERFACE)
target_include_directories(torch_for_the_cpu INTERFACE {root}/include {root}/include/torch/csrc/api/include)
target_link_directories(torch_for_the_cpu INTERFACE {root}/lib)
target_link_options(torch_for_the_cpu INTERFACE -Wl,--no-as-needed -Wl,-rpath,{root}/lib -Wl,-rpath-link,{root}/lib)
target_link_libraries(torch_for_the_cpu INTERFACE torch torch_cpu c10)
set(TORCH_LIBRARIES torch_for_the_cpu)
""")
    return folder


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The example, built as its first lines say. Compiling torch's headers takes most of the time of this file."""
    folder = tmp_path_factory.mktemp("torch_cpp")
    where = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    if torch.version.cuda and not torch.cuda.is_available():
        where = f"-DTorch_DIR={torch_for_the_cpu(tmp_path_factory.mktemp('torch'))}"
    for command in (["-S", EXAMPLE, "-B", folder, "-G", "Ninja", where, "-DCMAKE_BUILD_TYPE=Debug"],
                    ["--build", folder]):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    needed = subprocess.run(["ldd", folder / "run_model"], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu.so" in needed and "libpython" not in needed and "libtorch_python" not in needed
    return folder / "run_model"


def run(program, *words):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DOVETAIL"))}
    return subprocess.run([program, *words], capture_output=True, text=True, env=environment, timeout=300)


def close(found, expected):
    torch.testing.assert_close(list(found), list(expected))
    return True


# ---- the example ---------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    model = runpy.run_path(str(EXAMPLE / "export.py"), run_name="export")["main"](folder)
    return folder, model, ":".join(library.path for library in dovetail.libraries() if library.name == "dovetail")


@pytest.mark.parametrize("file", ["model.pt2", "traced.pt"])
def test_the_example(program, exported, file):
    """Operators that write in place, with optional arguments, at several sizes, none of which the model was exported with but one."""
    folder, model, binaries = exported
    words, cases = [], []
    for n in (2, 5, 64):
        torch.manual_seed(n)
        inputs = [torch.randn(n, 16), torch.randperm(n)]
        torch.save(inputs, folder / f"in{n}.pt")
        words += [folder / f"in{n}.pt", folder / f"out{n}.pt"]
        cases.append((folder / f"out{n}.pt", model(*inputs)))
    done = run(program, binaries, folder / file, *words)
    assert done.returncode == 0, done.stderr
    assert all(close(torch.load(path), expected) for path, expected in cases)


# ---- every kind of argument ----------------------------------------------------------------------------------------------------

# torch 2.10's AOTInductor hands a dtype on by its number in the export format, which is another dtype's in libtorch.
CARRIES_DTYPES = torch.__version__ >= "2.13"


class Everything(torch.nn.Module):
    """No empty list: torch 2.13's AOTInductor hands them on as None."""

    def forward(self, x, bias):
        ops = torch.ops.torch_ops
        y = ops.pick(x, bias)
        z = ops.pick(y, None)
        written = y.clone()
        ops.inc(written)
        low, _ = ops.halves(x.flatten())
        seen = ops.everything(x, None, [x, y], [None, z], -2**63, 7, 2.5, None, True, False, "abc", "é" * 40, [3], [1, 2**62], [0.5], [True], ["a", "b" * 40],
                              torch.bfloat16, None, "cpu", None, torch.channels_last) if CARRIES_DTYPES else low
        return ops.cat([z, written, written]), low, seen


@pytest.fixture(scope="module")
def everything(ops, binary, tmp_path_factory):
    folder, model, inputs = tmp_path_factory.mktemp("everything"), Everything(), (torch.randn(4, 3), torch.randn(3))
    n = torch.export.Dim("n", min=2, max=512)
    program = torch.export.export(model, inputs, dynamic_shapes=({0: 2 * n}, None))
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    torch.save(list(inputs), folder / "in.pt")
    return folder, model, inputs


def test_lists_optionals_and_strings(program, everything, binary):
    folder, model, inputs = everything
    done = run(program, binary, folder / "model.pt2", folder / "in.pt", folder / "out.pt")
    assert done.returncode == 0, done.stderr
    assert close(torch.load(folder / "out.pt"), model(*inputs))


def test_a_failing_check_is_a_cxx_exception_with_our_message(program, everything, binary):
    folder, model, inputs = everything
    torch.save([torch.randn(4, 2), torch.randn(3)], folder / "bad.pt")
    done = run(program, binary, folder / "model.pt2", folder / "bad.pt", folder / "none.pt", folder / "in.pt", folder / "after.pt")
    assert done.returncode == 1
    assert "torch_ops::pick: argument 'x': expected shape [4, 3] ('c' is bound by 'bias'), found [4, 2]" in done.stderr
    assert not (folder / "none.pt").exists() and close(torch.load(folder / "after.pt"), model(*inputs))


def test_operators_and_models_come_and_go(program, everything, binary):
    folder, model, inputs = everything
    done = run(program, "--times", "3", binary, folder / "model.pt2", folder / "in.pt", folder / "again.pt")
    assert done.returncode == 0 and done.stdout.count("again.pt") == 3, done.stderr
    assert close(torch.load(folder / "again.pt"), model(*inputs))


def test_a_model_without_its_operators_says_so(program, everything, exported):
    folder = everything[0]
    done = run(program, exported[2], folder / "model.pt2", folder / "in.pt", folder / "none.pt")
    assert done.returncode == 1 and "torch_ops::" in done.stderr


def test_a_binary_that_is_none_is_refused(program, everything, tmp_path):
    (tmp_path / "no.so").write_text("not an operator binary")
    folder = everything[0]
    done = run(program, tmp_path / "no.so", folder / "model.pt2", folder / "in.pt", folder / "none.pt")
    assert done.returncode == 1 and "no.so" in done.stderr
