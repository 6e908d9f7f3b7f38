"""Document 003: an operator in Ascend's graphs. The prototype, and the project's converter with the functions made from its header."""
import os
import pathlib
import runpy
import shutil
import subprocess
import sys

import stand_in  # before torch; skips where torchair is not installed
import pytest
import torch

import dovetail
import dovetail.torchair

PROJECT = pathlib.Path(__file__).parents[2] / "examples" / "document_003"
OPERATORS = r"""
#include <dovetail_op.h>
struct add { const dv_tensor *x, *y; dv_tensor *z; };
DV_OPERATOR(add, struct add, (x, y, z), .schema = "add_custom(Tensor x, Tensor y) -> Tensor z", .contract = "x[*s], y[*s] -> z[*s]:dtype(x)",
    .native = "base::add.Tensor(x, y)");
DV_LIBRARY(document_003, &dv_op_add);
"""


def test_the_prototype(tmp_path):
    (tmp_path / "ops.c").write_text(OPERATORS)
    library = dovetail.load(tmp_path / "ops.c")
    text = dovetail.torchair.prototypes(library)
    header = (PROJECT / "graph/custom_reg_op.h").read_text()
    assert header[header.index("REG_OP"):header.index(";\n}")].replace("ge::", "") in text and '\n#include "graph/operator_reg.h"\n\nnamespace ge {\n' in text
    library.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("document_003") / "setup"
    shutil.copytree(PROJECT, folder)
    subprocess.run(["git", "apply", "document.patch"], cwd=folder, check=True)
    home = pathlib.Path(os.environ["DOVETAIL_BUILD"]) / "bin"
    env = {**os.environ, "DOVETAIL_PYTHON": sys.executable, "PATH": f"{home}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    subprocess.run(["dovetail", "import", "--reg-op", "--builders", "custom_reg_op.h"], cwd=folder / "graph", env=env, check=True)
    yield folder
    for library in [x for x in dovetail.libraries() if x.name == "myops"]:
        library.close()


def test_graph_mode(project, monkeypatch, capsys):
    """test/test_add_custom_graph.py with torchair: the document's converter, its promotion, its generated function, one node in the graph."""
    stand_in.declare((project / "graph/custom_reg_op.h").read_text())
    seen = []
    monkeypatch.setitem(stand_in.BUILT_IN, "AddCustom", lambda node, x, y: seen.append([d.name for d in node.input_desc]) or x + y)
    monkeypatch.delitem(stand_in.OPERATORS, "AddCustom", raising=False)
    monkeypatch.syspath_prepend(project)
    monkeypatch.syspath_prepend(project / "graph")
    torch._dynamo.reset()
    stand_in.GRAPHS.clear()
    runpy.run_path(str(project / "test/test_add_custom_graph.py"))
    assert capsys.readouterr().out == "add_custom: torchair is right\n"
    assert [g.count("AddCustom") for g in stand_in.GRAPHS] == [1] and seen == [["x", "y"]]
    import torchair
    from torchair.ge._ge_graph import GeGraph
    function = torch.ops.myops.my_op.default._ge_converter.__wrapped__
    assert function.__name__ == "conveter_custom_op"
    for dtypes, casts in (((torch.float, torch.float), 0), ((torch.float, torch.half), 1)):  # dtype_promote
        with GeGraph() as graph:
            given = [torchair.ge.Const([1.0]) for _ in dtypes]
            for tensor, dtype in zip(given, dtypes):
                tensor.set_meta(torch.empty(1, dtype=dtype, device="meta"))
            function(*given, meta_outputs=torch.empty(1, device="meta"))
        assert [node.type for node in graph.op] == ["Const", "Const"] + ["Cast"] * casts + ["AddCustom"]
        assert list(graph.op[-1].input) == [f"{graph.op[0].name}:0", f"{graph.op[1 + casts].name}:0"]
