"""examples/document_002: an operator for vLLM MindSpore, installed by `pip install .`, on MindSpore's tensors. Needs MindSpore (make test-mindspore)."""
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

if "mindspore" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("MindSpore is not installed here: make test-mindspore", allow_module_level=True)
import mindspore as ms
import numpy as np

import dovetail

PROJECT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "document_002"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where pip put the project, in a folder of its own. pip is told that dovetail is installed, as it is for a user."""
    folder = tmp_path_factory.mktemp("document_002")
    shutil.copytree(PROJECT, folder / "project", ignore=shutil.ignore_patterns("*.so"))
    known = folder / "known" / f"dovetail-{dovetail.__version__}.dist-info"
    known.mkdir(parents=True)
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dovetail\nVersion: {dovetail.__version__}\n")
    env = {**os.environ, "PYTHONPATH": f"{known.parent}", "DOVETAIL_PYTHONPATH": os.environ["PYTHONPATH"]}
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--prefix", folder / "prefix", "."], cwd=folder / "project", env=env,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found, = (folder / "prefix").glob("lib/python*/site-packages")
    return found


@pytest.fixture(scope="module")
def npu_ops(site):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        from vllm_mindspore import npu_ops
        yield npu_ops


def test_the_script(site):
    """Word for word, by README's command in the project's folder."""
    program, *options = re.search(r"^    (python .*\.py)", (PROJECT / "README.md").read_text(), re.M)[1].split()
    assert program == "python"
    env = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ['PYTHONPATH']}"}
    done = subprocess.run([sys.executable, *options], cwd=PROJECT, env=env, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["Output: [30 40 50]"], done.stdout + done.stderr


def test_pip_install(site):
    assert "Version: 0.1.0\n" in (site / "vllm_mindspore-0.1.0.dist-info" / "METADATA").read_text()
    assert (site / "vllm_mindspore" / "vllm_mindspore.so").read_bytes()[:4] == b"\x7fELF"


def test_the_layout(site):
    """ops/ascendc has the operator. ops/module has nothing to do: the interface follows from the declaration."""
    assert [p.relative_to(PROJECT / "vllm_mindspore" / "ops").as_posix() for p in (PROJECT / "vllm_mindspore" / "ops").rglob("*.*")] == [
        "ascendc/my_custom_op.c"]
    library = dovetail.load(site / "vllm_mindspore" / "vllm_mindspore.so")
    assert library.name == "npu_ops" and [*library.operators()] == ["my_custom_op"]


@pytest.mark.parametrize("shape", [(3,), (2, 5), (0,), (), (300, 70)])
def test_in_eager_mode(npu_ops, shape):
    assert ms.get_context("mode") == ms.PYNATIVE_MODE
    a = np.random.default_rng(0).integers(-2**31, 2**31, shape, dtype=np.int32)
    output = ms.Tensor(np.zeros(shape, np.int32))
    assert npu_ops.my_custom_op(-7, 2**31 - 1, ms.Tensor(a), output) is None
    expected = (a.astype(np.int64) * -7 + 2**31 - 1).astype(np.int32)
    assert np.array_equal(output.asnumpy(), expected)
    assert np.array_equal(ms.mint.add(output, 1).asnumpy(), expected + np.int32(1))  # a later operator of MindSpore sees it


def test_the_names_of_arguments(npu_ops):
    a, output = ms.Tensor(np.array([1, 2, 3], np.int32)), ms.Tensor(np.zeros(3, np.int32))
    npu_ops.my_custom_op(output=output, input=a, param2=1, param1=2)
    assert output.asnumpy().tolist() == [3, 5, 7] and a.asnumpy().tolist() == [1, 2, 3]
    assert "My custom operator" in npu_ops.my_custom_op.__doc__
    assert str(npu_ops.my_custom_op.__signature__).startswith("(param1: int, param2: int, input: Array, output: Array)")


def test_wrong_arguments(npu_ops):
    a, output = ms.Tensor(np.array([1, 2, 3], np.int32)), ms.Tensor(np.zeros(3, np.int32))
    for args, error, message in (
            ((a, output, 10, 20), TypeError, "argument 'param1': expected int"),
            ((10, 2**31, a, output), ValueError, "param2 <= 2147483647"),
            ((10, 20, a, ms.Tensor(np.zeros(2, np.int32))), ValueError, r"argument 'output': expected shape \[3\]"),
            ((10, 20, a, ms.Tensor(np.zeros(3, np.int64))), ValueError, "argument 'output': expected dtype i32"),
            ((10, 20, a), TypeError, "output")):
        with pytest.raises(error, match=message):
            npu_ops.my_custom_op(*args)
    assert output.asnumpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("dims", [1, 2])  # of sampled_token_ids: vllm-mindspore 0.5.1's own call has 1, its caller in vLLM 2
@pytest.mark.parametrize("seqs, queries, size", [(5, 3, 4), (64, 64, 16), (1, 0, 1)])
def test_adv_step_flash(npu_ops, seqs, queries, size, dims):
    random = np.random.default_rng(seqs)
    lengths, tables = random.integers(0, 7 * size, seqs, np.int32), random.integers(0, 1000, (seqs, 8), np.int32)
    sampled = random.integers(0, 32000, (queries, 1), np.int32)
    tokens, positions, lens, slots = [ms.Tensor(x) for x in (np.full(seqs, 7, np.int32), np.full(seqs, 7, np.int32), lengths, np.full(seqs, 7, np.int32))]
    npu_ops.adv_step_flash(num_seqs=seqs, num_queries=queries, block_size=size, input_tokens=tokens,
                           sampled_token_ids=ms.Tensor(sampled if dims == 2 else sampled[:, 0]), input_positions=positions, seq_lens=lens, slot_mapping=slots,
                           block_tables=ms.Tensor(tables))
    rest, p = seqs - queries, lengths[:queries]
    assert tokens.asnumpy().tolist() == [*sampled[:, 0], *[0] * rest]
    assert positions.asnumpy().tolist() == [*p, *[0] * rest]
    assert lens.asnumpy().tolist() == [*(p + 1), *lengths[queries:]]
    assert slots.asnumpy().tolist() == [*(tables[np.arange(queries), p // size] * size + p % size), *[-1] * rest]
