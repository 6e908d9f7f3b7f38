"""examples/document_004: operators for Ascend's graphs, built and installed by its scripts, on CPU tensors. Its graphs are in tests/torchair."""
import os
import subprocess
import sys
import types

import pytest
import torch


@pytest.fixture(scope="module")
def installed(patched, tmp_path_factory):
    """build_and_install.sh, into a folder of its own; `python3` is this Python."""
    folder, site, programs = patched("004"), tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("bin")
    (programs / "python3").symlink_to(sys.executable)
    env = {**os.environ, "PIP_TARGET": str(site), "PIP_NO_INDEX": "1", "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
           "PYTHONPATH": f"{site}{os.pathsep}{os.environ['PYTHONPATH']}"}
    done = subprocess.run(["bash", "build_and_install.sh"], cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        import custom_pypto
        yield types.SimpleNamespace(folder=folder, site=site, env=env, package=custom_pypto)


def test_build_and_install(installed):
    wheel, = (installed.folder / "dist").iterdir()
    assert wheel.name.startswith("custom_pypto-1.0-") and wheel.suffix == ".whl"
    there = {p.relative_to(installed.site).as_posix() for p in (installed.site / "custom_pypto").rglob("*.py")}
    assert there == {"custom_pypto/__init__.py", "custom_pypto/custom_pypto_lib/__init__.py",
                     *(f"custom_pypto/converter/{n}.py" for n in ("__init__", "add_custom", "npu_lightning_indexer_pto", "npu_sparse_attention_pto"))}


def test_run(installed):
    """run.sh: each example compares eager calls and graphs with formulas written in torch."""
    done = subprocess.run(["bash", "run.sh"], cwd=installed.folder, capture_output=True, text=True, env=installed.env)
    assert done.stdout == "add_custom: ok\nnpu_lightning_indexer_pto: ok\nnpu_sparse_attention_pto: ok\n", done.stderr


def test_the_layout(installed):
    there = {p.relative_to(installed.folder).as_posix() for p in installed.folder.rglob("*") if p.is_file()}
    assert there >= {"setup.py", "README.md", "build_and_install.sh", "run.sh", "custom_pypto/__init__.py", "custom_pypto/converter/__init__.py",
                     *(f"custom_pypto/csrc/{n}" for n in ("add_custom_autograd.c", "npu_lightning_indexer_pto.c", "npu_sparse_attention_pto.c",
                                                          "ops_def_registration.c", "ops_common.h", "ops_function.h")),
                     *(f"custom_pypto/converter/{n}.py" for n in ("add_custom", "npu_lightning_indexer_pto", "npu_sparse_attention_pto"))}


def test_the_namespace(installed):
    op = torch.ops.custom_pypto.npu_lightning_indexer_pto
    assert str(op.default._schema) == (
        "custom_pypto::npu_lightning_indexer_pto(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
        "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query=\"BSND\", str layout_key=\"PA_BSND\", int sparse_count=2048, "
        "int sparse_mode=3) -> Tensor")
    assert torch._C._dispatch_has_kernel_for_dispatch_key("custom_pypto::npu_lightning_indexer_pto", "Meta")
    assert installed.package.npu_lightning_indexer_pto.__name__ == "npu_lightning_indexer_pto"


def test_meta(installed):
    """int32, [b, s, the key's heads, sparse_count], which the document's Meta function takes for 2048."""
    op = torch.ops.custom_pypto.npu_lightning_indexer_pto
    meta = lambda *shape, dtype=torch.half: torch.empty(shape, dtype=dtype, device="meta")
    query, key, weights = meta(4, 1, 64, 128), meta(32, 128, 1, 128), meta(4, 1, 64)
    paged = {"actual_seq_lengths_key": meta(4, dtype=torch.int32), "block_table": meta(4, 8, dtype=torch.int32)}
    for given, last in (({}, 2048), ({"sparse_count": 16}, 16)):
        out = op(query, key, weights, **paged, **given)
        assert (out.shape, out.dtype, out.is_meta) == ((4, 1, 1, last), torch.int32, True)
    assert op(query, meta(4, 900, 1, 128), weights, layout_key="BSND").shape == (4, 1, 1, 2048)
    with pytest.raises(RuntimeError, match="argument 'block_table': expected a tensor when layout_key == \"PA_BSND\", found None"):
        op(query, key, weights, actual_seq_lengths_key=paged["actual_seq_lengths_key"])
    with pytest.raises(RuntimeError, match=r"argument 'weights': expected shape \[4, 1, 64\].*found \[4, 1, 63\]"):
        op(query, key, meta(4, 1, 63), **paged)
