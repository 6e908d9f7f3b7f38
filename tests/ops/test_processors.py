"""Rows on processors that have their instructions and no others: the call sites of ops/*/cases.txt, and more, under qemu, with the same bits as
this processor gives when it is limited to that instruction set."""
import pathlib
import shutil
import subprocess
import sys

import numpy
import pytest

import dovetail

QEMU = shutil.which("qemu-x86_64")
CHILD = r"""
import itertools, pathlib, re, sys
import ml_dtypes, numpy
import dovetail
out, isa, root = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
assert isa == "here" or dovetail.set_isa(isa) is None
dovetail.set_threads(1)
found = {}
def keep(name, value):
    for k, v in enumerate(value if isinstance(value, (tuple, list)) else [value]):
        if v is not None:
            found[f"{name} {len(found)} {k}"] = numpy.frombuffer(numpy.ascontiguousarray(v).tobytes(), numpy.uint8)
for file in sorted(root.glob("ops/*/cases.txt")):
    for case in file.read_text().splitlines():
        getattr(dovetail.ops, re.match(r"dovetail::(\w+)", case)[1])
        op, args = dovetail.site(case)
        names, after = [slot[0] for slot in op._slots()[0]], re.findall(r"(\w+)[=,)]", op.schema.partition("*, ")[2].partition(" -> ")[0])
        values = list(args.values())
        at = next((i for i, name in enumerate(names) if name in after), len(names))
        keep(case, op(*values[:at], **dict(zip(names[at:], values[at:]))))
        keep(case, [v for v in values if isinstance(v, numpy.ndarray)])
draw = numpy.random.default_rng(0)
for dtype in (numpy.float32, numpy.float16, ml_dtypes.bfloat16):
    new = lambda *shape: draw.standard_normal(shape).astype(dtype)
    for rows, k in itertools.product((1, 2, 3, 4, 5, 9), (7, 16, 130)):
        x = new(rows, k)
        keep("linear", dovetail.ops.linear(x, new(13, k)))
        keep("linear int8", dovetail.ops.linear(x, draw.integers(-128, 128, (13, k), numpy.int8), None, draw.random(13, numpy.float32)))
        keep("fused_experts", dovetail.ops.fused_experts(x, new(2, 14, k), new(2, k, 7), draw.random((rows, 1), numpy.float32), draw.integers(0, 2, (rows, 1), numpy.int32)))
        for name in ("softmax", "sigmoid", "silu_and_mul", "gelu") if k % 2 == 0 else ("softmax", "sigmoid", "gelu"):
            keep(name, getattr(dovetail.ops, name)(x))
        keep("rms_norm", dovetail.ops.rms_norm(x, new(k)))
        keep("layer_norm", dovetail.ops.layer_norm(x, new(k), new(k)))
    q, key = new(1, 3, 17, 40), new(1, 30, 1, 40)
    keep("lightning_indexer", dovetail.ops.lightning_indexer(q, key, new(1, 3, 17), sparse_mode=0, sparse_count=5))
    keep("sparse_flash_attention", dovetail.ops.sparse_flash_attention(q, key, key, draw.integers(0, 30, (1, 3, 1, 9), numpy.int32), 0.2, sparse_mode=0))
numpy.savez(out, **{str(i): v for i, v in enumerate(found.values())}, names=list(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not QEMU, reason="qemu-x86_64 is not installed: tools/setup.sh wide installs it")
@pytest.mark.parametrize("processor,isa", [("Haswell", "avx2"), ("SandyBridge", "base")])
def test_rows_have_no_other_instructions(tmp_path, processor, isa):
    root = pathlib.Path(__file__).resolve().parents[2]
    for out, command, limit in (("there", [QEMU, "-cpu", processor], "here"), ("here", [], isa)):
        run = subprocess.run([*command, sys.executable, "-c", CHILD, tmp_path / out, limit, root], capture_output=True, text=True, timeout=600)
        assert run.returncode == 0, run.stderr[-2000:]
    there, here = (numpy.load(tmp_path / f"{name}.npz") for name in ("there", "here"))
    assert there["names"].tolist() == here["names"].tolist() and len(here["names"]) > 500
    for i, name in enumerate(here["names"]):
        assert numpy.array_equal(there[str(i)], here[str(i)]), (processor, name)
