"""Time to compile one operator file, and the size of the binary, beside PyTorch's own ways. One JSON line a figure (bench/run.py)."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMAND = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")) / "bin" / "dovetail"
INCLUDE = pathlib.Path(torch.__file__).parent / "include"

EXTENSION = """
#include <torch/extension.h>
at::Tensor swiglu(const at::Tensor &gate, const at::Tensor &up) {
  auto out = at::empty_like(gate);
  const float *g = gate.data_ptr<float>(), *u = up.data_ptr<float>(); float *o = out.data_ptr<float>();
  for (int64_t i = 0; i < gate.numel(); i++) o[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
  return out;
}
TORCH_LIBRARY(peer, m) { m.def("swiglu(Tensor gate, Tensor up) -> Tensor"); m.impl("swiglu", c10::DispatchKey::CPU, &swiglu); }
"""
STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/csrc/stable/ops.h>
#include <cmath>
using torch::stable::Tensor;
Tensor swiglu(const Tensor &gate, const Tensor &up) {
  auto out = torch::stable::empty_like(gate);
  const float *g = (const float *)gate.data_ptr(), *u = (const float *)up.data_ptr(); float *o = (float *)out.data_ptr();
  for (int64_t i = 0; i < gate.numel(); i++) o[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
  return out;
}
STABLE_TORCH_LIBRARY(peer, m) { m.def("swiglu(Tensor gate, Tensor up) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(peer, CPU, m) { m.impl("swiglu", TORCH_BOX(&swiglu)); }
"""


def seconds(command, repeat):
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - start)
    return best


def main():
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "op.c").write_text(re.search(r"^```c\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M).group(1))
        ours = seconds([COMMAND, "build", folder / "op.c", "-o", folder / "op.so"], 5)
        rows = [("torch/extension.h", EXTENSION, 1), ("stable C++ headers", STABLE, 3)]
        for name, code, repeat in rows[1:] if quick else rows:
            (folder / "peer.cpp").write_text(code)
            try:
                theirs = seconds(["g++", "-std=c++20", "-O3", "-fPIC", "-shared", f"-I{INCLUDE}", f"-I{INCLUDE}/torch/csrc/api/include",
                    "-I" + __import__("sysconfig").get_path("include"), folder / "peer.cpp", "-o", folder / "peer.so"], repeat)
            except subprocess.CalledProcessError as error:
                print(f"{name} did not compile: {error}", file=sys.stderr)
                continue
            print(json.dumps({"what": "compile one operator file (dovetail build, checks and load included)", "peer": f"{name}, torch {torch.__version__}",
                "ours": ours, "theirs": theirs, "unit": "s", "goal": "<= 0.1"}))
        ours = seconds([COMMAND, "build", ROOT / "ops/swiglu/swiglu.c", "-o", folder / "rows.so"], 3)
        print(json.dumps({"what": "compile swiglu and its gradient, elementwise, with rows for each instruction set and dtype", "peer": "",
            "ours": ours, "theirs": None, "unit": "s", "goal": "<= 0.5"}))
        size = (folder / "op.so").stat().st_size / 1000
        print(json.dumps({"what": "a one-operator binary", "peer": "the torch/extension.h one" if not quick else "the stable C++ one",
            "ours": size, "theirs": (folder / "peer.so").stat().st_size / 1000, "unit": "kB", "goal": "<= 40"}))


main()
