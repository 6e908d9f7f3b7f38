"""Document 004 in Ascend's graphs: its project's converters, one of them the document's word for word, and its examples with torchair."""
import contextlib
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import types

import stand_in  # before torch; skips where torchair is not installed
import pytest
import torch
import torchair

import dovetail

PROJECT = pathlib.Path(__file__).parents[2] / "examples" / "document_004"
PROTOTYPES = """
REG_OP(LightningIndexerPto)
""" + "".join(f"    .OPTIONAL_INPUT(x{i}, TensorType::ALL())\n" for i in range(5)) + """    .OUTPUT(y0, TensorType::ALL())
    .OP_END_FACTORY_REG(LightningIndexerPto)
REG_OP(SparseAttentionPto)
    .INPUT(x, TensorType::ALL())
    .OP_END_FACTORY_REG(SparseAttentionPto)
REG_OP(NpuLightningIndexerPto)
    .INPUT(query, T) .INPUT(key, T) .INPUT(weights, T) .OPTIONAL_INPUT(actual_seq_lengths_query, T) .OPTIONAL_INPUT(actual_seq_lengths_key, T)
    .OPTIONAL_INPUT(block_table, T)
    .OUTPUT(out, T)
    .ATTR(layout_query, String, "BSND")
    .ATTR(layout_key, String, "PA_BSND")
    .ATTR(sparse_count, Int, 2048)
    .ATTR(sparse_mode, Int, 3)
    .OP_END_FACTORY_REG(NpuLightningIndexerPto)
"""


@contextlib.contextmanager
def without_npu():
    """The document imports torch_npu, which needs CANN."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
        yield


def run_converter(project):
    with without_npu():
        runpy.run_path(str(project.folder / "custom_pypto/converter/npu_lightning_indexer_pto.py"))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("document_004") / "project"
    shutil.copytree(PROJECT, folder)
    subprocess.run(["git", "apply", "document.patch"], cwd=folder, check=True)
    env = {**os.environ, "PATH": f"{pathlib.Path(os.environ['DOVETAIL_BUILD']) / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before = dict(stand_in.PROTOTYPES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.syspath_prepend(folder / "examples")
        stand_in.PROTOTYPES.clear()
        with without_npu():
            import custom_pypto  # with the converters, before GE knows any node
        stand_in.PROTOTYPES.update(before)
        stand_in.declare(PROTOTYPES)
        library = next(x for x in dovetail.libraries() if x.name == "custom_pypto")
        yield types.SimpleNamespace(folder=folder, package=custom_pypto, library=library)
    library.close()
    stand_in.PROTOTYPES.clear()
    stand_in.PROTOTYPES.update(before)


def converter(op):
    function = op.default._ge_converter
    return getattr(function, "__wrapped__", function)


def test_the_converter(project):
    """Lines 148 to 196, word for word, with both import paths of torchair: its keyword-only arguments and defaults."""
    module = sys.modules["custom_pypto.converter.npu_lightning_indexer_pto"]
    op = torch.ops.custom_pypto.npu_lightning_indexer_pto
    assert module.convert_npu_lightning_indexer_pto._aten_op is op.default
    assert converter(op).__name__ == "convert_npu_lightning_indexer_pto" and converter(op).__kwdefaults__["layout_key"] == "PA_BSND"


def test_either_order(project):
    """An author's converter wins, registered before ours or after it."""
    import dovetail.torchair
    op = torch.ops.custom_pypto.npu_lightning_indexer_pto
    dovetail.torchair.attach(project.library)  # ours would come now: GE knows NpuLightningIndexerPto
    assert "custom_pypto::npu_lightning_indexer_pto: a converter of the program\n" in dovetail.torchair.explain()
    theirs = op.default._ge_converter
    assert converter(op).__name__ == "convert_npu_lightning_indexer_pto"
    dovetail.torchair.register(project.package.npu_lightning_indexer_pto)
    assert converter(op).__module__ == "dovetail.torchair"
    run_converter(project)
    assert converter(op).__name__ == "convert_npu_lightning_indexer_pto" and op.default._ge_converter is not theirs


def test_the_examples(project, monkeypatch, capsys):
    """The examples with torchair's backend: nodes with the names of the converters, executed by the operators."""
    lightning, sparse = torch.ops.custom_pypto.npu_lightning_indexer_pto, torch.ops.custom_pypto.npu_sparse_attention_pto
    seen = {}

    def lightning_node(node, *given):
        seen["LightningIndexerPto"] = [d.name for d in node.input_desc], [x is not None for x in given], dict(node.attr).keys() & {"sparse_count", "sparse_mode"}
        return lightning(*given[:3], actual_seq_lengths_key=given[3], block_table=given[4])

    def sparse_node(node, *given):
        names = [d.name for d in node.input_desc]
        seen["SparseAttentionPto"] = names, [d.name for d in node.output_desc]
        given = {name: x.clone() if "cache" in name else x for name, x in zip(names, given)}
        out = sparse(**given)
        return [given["kv_cache"], given["kr_cache"], given["index_k_cache"], out]

    def add_node(node, x, y):
        seen["AddCustom"] = [d.name for d in node.input_desc]
        return x + y
    for name, node in (("LightningIndexerPto", lightning_node), ("SparseAttentionPto", sparse_node), ("AddCustom", add_node)):
        monkeypatch.setitem(stand_in.BUILT_IN, name, node)
        monkeypatch.delitem(stand_in.OPERATORS, name, raising=False)
    monkeypatch.setitem(stand_in.PROTOTYPES, "AddCustom", ([("x", "required"), ("y", "required")], [("z", "required")], []))
    monkeypatch.setitem(sys.modules, "graph", None)
    monkeypatch.delitem(sys.modules, "graph")
    for name in ("add_custom", "npu_lightning_indexer_pto", "npu_sparse_attention_pto"):
        torch._dynamo.reset()
        runpy.run_path(str(project.folder / f"examples/test_{name}.py"))
        assert capsys.readouterr().out == f"{name}: ok\n"
    assert seen["AddCustom"] == ["x", "y"]
    # A defect of the document: its converter drops actual_seq_lengths_query, both layouts, sparse_count and sparse_mode.
    assert seen["LightningIndexerPto"] == (["x0", "x1", "x2", "x3", "x4"], [True] * 5, set())
    assert seen["SparseAttentionPto"][1] == ["kv_cache", "kr_cache", "index_k_cache", "y0"] and seen["SparseAttentionPto"][0][10:12] == ["kv_cache", "kr_cache"]


def test_our_converter_drops_nothing(project):
    """Ours for the same operator: all arguments are in the node."""
    from torchair.ge._ge_graph import GeGraph
    op = torch.ops.custom_pypto.npu_lightning_indexer_pto
    dovetail.torchair.register(project.package.npu_lightning_indexer_pto)
    with GeGraph() as graph:
        x = torchair.ge.Const([1.0])
        converter(op)(x, x, x, block_table=x, layout_key="BSND", sparse_count=16, meta_outputs=torch.empty(1, device="meta"))
    node = graph.op[-1]
    assert [d.name for d in node.input_desc][:3] == ["query", "key", "weights"] and node.input[3:] == ["", "", x.tensor]
    assert node.attr["layout_key"].s == b"BSND" and node.attr["sparse_count"].i == 16 and node.attr["sparse_mode"].i == 3
    run_converter(project)
