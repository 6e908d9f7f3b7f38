"""MindSpore's compile cache: a second process takes the graph from a file. Needs MindSpore (make test-mindspore)."""
import os
import subprocess
import sys

import pytest
from test_eager import ms  # skips where MindSpore is not installed

SOURCE = """
#include <dovetail_op.h>
struct times {{ const dv_tensor *x; dv_tensor *out; }};
static int times(dv_context *ctx, const struct times *a)
{{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->out); i++)
        ((double *)a->out->data)[i] = {by} * ((const double *)a->x->data)[i % dv_numel(a->x)];
    return DV_OK;
}}
DV_OPERATOR(times, struct times, (x, out), .schema = "times(Tensor x) -> Tensor out", .contract = "x[n]:f64 -> out[{size}]:f64",
    .gradient = "x: {by} * grad", .kernels = DV_KERNELS(DV_KERNEL(struct times, "cpu", "f64", times)));
DV_LIBRARY(mscached, &dv_op_times);
"""
SCRIPT = """
import sys
import dovetail
import mindspore as ms
import numpy as np
from dovetail.mindspore import primitive

times = primitive(dovetail.load(sys.argv[1]).times)

@ms.jit
def graph(x):
    return (times(x) * x).sum()

value, gradient = ms.value_and_grad(graph)(ms.Tensor(np.array([1.0, 2])))
print(value, gradient)
"""
USED = "Use the compilation cache"


@pytest.mark.parametrize("file", ["times.c", "times.so"])  # compiled when it is loaded, or before
def test_a_second_process_uses_it(file, tmp_path):
    env = {**os.environ, "MS_COMPILER_CACHE_ENABLE": "1", "MS_COMPILER_CACHE_PATH": str(tmp_path / "cache")}
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(by, size="n"):
        (tmp_path / "times.c").write_text(SOURCE.format(by=by, size=size))
        if file == "times.so":
            subprocess.run(["dovetail", "build", tmp_path / "times.c", "-o", tmp_path / "times.so"], check=True, capture_output=True)
        return subprocess.run([sys.executable, "script.py", file], cwd=tmp_path, env=env, capture_output=True, text=True)

    first, second, changed = run(3), run(3), run(7)
    assert first.stdout == second.stdout == "15.0 [ 6. 12.]\n" and USED not in first.stderr and USED in second.stderr
    # the kernel and the gradient are those of the binary of today, though the graph is the old one
    assert changed.stdout == "35.0 [14. 28.]\n" and USED in changed.stderr
    stale = run(3, "2 * n")
    assert stale.returncode and USED in stale.stderr
    assert ("mscached::times: result 'out': expected shape [4], found [2] (the graph was made before the operator's declaration changed: "
            "delete MindSpore's compile cache") in stale.stderr
