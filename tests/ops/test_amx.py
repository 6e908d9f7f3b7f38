"""Rows with AMX where the processor has none: C stands in the place of its instructions (amx.h), and the rows are taken for those of avx512bf16 and
avx512vnni. On a processor with AMX the other tests here run the rows themselves."""
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from kernels import BUILD, ROOT

NAMES = ("linear", "fused_experts", "lightning_indexer", "sparse_flash_attention")
HERE = pathlib.Path(__file__).resolve().parent
SWEEP = r"""
import itertools, torch, dovetail
ops, bf16 = dovetail.ops, torch.bfloat16
torch.manual_seed(0)
dovetail.set_threads(1)
def near(found, exact, size):
    limit = 2.0**-8 * exact.abs() + 2.0**-22 * size + 2.0**-130
    assert ((found.double() - exact).abs() <= limit).all(), (found.double() - exact).abs().max()
sizes = (1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 49, 97, 128, 129, 160)
for rows, n, k in itertools.chain(((r, 37, 70) for r in sizes), ((5, n, 64) for n in sizes), ((18, 50, k) for k in (*sizes, 0, 1024, 1030, 1600))):
    x, w, b = torch.randn(rows, k).to(bf16), torch.randn(n, k).to(bf16), torch.randn(n).to(bf16)
    near(ops.linear(x, w, b), x.double() @ w.double().T + b.double(), x.double().abs() @ w.double().abs().T + b.double().abs())
    q, s = torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n)
    wide = q.double() * s.double()[:, None]
    near(ops.linear(x, q, None, s), x.double() @ wide.T, x.double().abs() @ wide.abs().T)
x, w = torch.randn(16, 64).to(bf16), torch.randn(16, 64).to(bf16)
x[3], w[5, 7] = float("nan"), float("inf")  # in one row and column alone
y = ops.linear(x, w)
assert y[3].isnan().all() and not y[:3, 5].isfinite().any() and y[:3, :5].isfinite().all() and y[4:, 6:].isfinite().all()
"""


@pytest.fixture(scope="module")
def binaries(tmp_path_factory):
    if not {"avx512_bf16", "avx512_vnni"} <= set(pathlib.Path("/proc/cpuinfo").read_text().split()):
        pytest.skip("no AVX512-BF16 and AVX512-VNNI")
    folder = tmp_path_factory.mktemp("amx")
    shutil.copytree(ROOT / "ops", folder / "ops")
    for path, changes in {"squares.h": [('"amx-bf16"', '"avx512bf16"'), ("#define OPS_SQUARES_H\n", f'#define OPS_SQUARES_H\n#include "{HERE}/amx.h"\n')],
                          "lightning_indexer/lightning_indexer.c": [('"amx-int8"', '"avx512vnni"')]}.items():
        text = (folder / "ops" / path).read_text()
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (folder / "ops" / path).write_text(text)
    (folder / "built").mkdir()
    for binary in (BUILD / "ops").glob("*.so"):
        (folder / "built" / binary.name).symlink_to(binary)
    for name in NAMES:
        (folder / "built" / f"{name}.so").unlink()
        sources = sorted((folder / "ops" / name).glob("*.c"))
        subprocess.run([BUILD / "bin/dovetail", "build", *sources, "-o", folder / "built" / f"{name}.so"], check=True, capture_output=True)
    return folder / "built"


def run(binaries, code):
    begin = f"from dovetail import ops; ops._folder = {str(binaries)!r}\n"
    r = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, cwd=ROOT)
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


def test_they_are_taken(binaries):
    code = """
import dovetail, torch
dovetail.set_threads(1)
x, k = torch.ones(3, 4, dtype=torch.bfloat16), torch.ones(1, 2, 1, 4, dtype=torch.bfloat16)
bytes, one = k.to(torch.int8), torch.ones(1, 2, 1)
print(ops.linear.explain(x, x), ops.lightning_indexer.explain(k, k, k[..., 0]), ops.npu_lightning_indexer_quant.explain(bytes, bytes, one, one, one),
    ops.sparse_flash_attention.explain(k, k, k, torch.zeros(1, 2, 1, 1, dtype=torch.int32), 1.0))
"""
    said = run(binaries, code)
    assert re.search("linear_row_amx.*indexer_row_amx.*quant_row_amx_i8.*attention_row_amx", said, re.S), said


def test_sizes(binaries):
    run(binaries, SWEEP)


def test_the_other_tests(binaries):
    """With bf16 or bytes, of all instruction sets."""
    files = [f"tests/ops/test_{name}.py" for name in ("experts", "model_set", "indexer", "sparse_attention", "sparse_attention_pto")]
    words = "(test_linear or indexer or attention or test_experts) and not (base or avx2 or avx512) and (bf16 or bfloat16 or bytes or int8 or bits or sizes or ids)"
    out = run(binaries, f"import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-k', {words!r}, *{files}]))")
    assert int(re.search(r"(\d+) passed", out)[1]) > 50, out
