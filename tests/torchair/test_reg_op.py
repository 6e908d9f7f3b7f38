"""`dovetail import --reg-op`: against torchair's own builders of 1728 nodes, which quote the prototype that they were generated from."""
import importlib
import inspect
import os
import pathlib
import re
import subprocess
import sys

import stand_in  # before torch; skips where torchair is not installed
import pytest
import torch
import torchair
from torchair.ge._ge_graph import DataType, GeGraph

import dovetail
import dovetail.torchair
from dovetail.torchair import reg_op

RAW = importlib.import_module("torchair._ge_concrete_graph.auto_generated_ge_raw_ops")
VALUES = {"Int": 3, "Float": 2.5, "Bool": True, "String": "s", "Type": 1, "ListInt": [3, 4], "ListFloat": [1.5], "ListBool": [True, False],
          "ListString": ["a", "b"], "ListType": [1, 0], "ListListInt": [[1, 2], [3]]}


@pytest.fixture(scope="module")
def theirs():
    """(torchair's function, the prototype that its text has)."""
    found = []
    for f in vars(RAW).values():
        if (getattr(f, "__doc__", None) or "").startswith("REG_OP"):
            try:  # the texts end before OP_END_FACTORY_REG
                found.append((f, *reg_op.parse(f"{f.__doc__}.OP_END_FACTORY_REG({f.__doc__.partition('(')[2].partition(')')[0]})")))
            except ValueError:  # some of the texts are not C++
                found.append((f, None))
    return found


def build(f, p, everything):
    """The node that a function builds, without its name; and the form of what it returns."""
    with GeGraph() as graph:
        x = [torchair.ge.Const([1.0]) for _ in range(3)]
        before = len(graph.op)
        inputs = [x[:2] if kind == "dynamic" else None if kind == "optional" and not everything else x[i % 3] for i, (_, kind, _) in enumerate(p.inputs)]
        names = reg_op._parameters(p)[1]
        attributes = {n: VALUES[word] for n, (_, word, default) in zip(names, p.attributes) if everything or default is reg_op.REQUIRED}
        out = f(*inputs, **attributes, **{f"size_of_{n}": 2 for n, kind, _ in p.outputs if kind == "dynamic"})
        assert len(graph.op) == before + 1
        graph.op[-1].name = "node"
        return graph.op[-1], form(out)


def form(out):
    return type(out)(map(form, out)) if isinstance(out, (list, tuple)) else None if out is None else out.tensor.partition(":")[2]


def test_the_same_nodes_as_torchair_s_own(theirs):
    scope, same, different, none = {}, 0, [], 0
    exec(reg_op.BUILDERS, scope)
    for f, p in theirs:
        if p is None or p.refusal:
            none += 1
            continue
        exec(reg_op.builder(p), scope)
        try:
            pairs = [(build(scope[p.name], p, everything), build(f, p, everything)) for everything in (False, True)]
        except (TypeError, IndexError, AssertionError):  # the function differs from the prototype that it quotes
            none += 1
            continue
        equal = all(a == b for a, b in pairs[1:]) and ("IrDef" in inspect.getsource(inspect.unwrap(f)) or pairs[0][0] == pairs[0][1])
        same += equal
        if not equal:
            different.append(p.name)
    # The others: torchair's generator printed a default of 1e-8 as 0.000000, or the function is newer than the prototype that it quotes.
    assert same > 1640 and len(different) < 55 and none < 35, (same, different, none)
    assert {"LayerNorm", "LpNorm", "IsClose"} < set(different) and not {"LayerNormV3", "AddV2", "BatchNormV3", "SplitV"} & set(different)
    with GeGraph():
        x = torchair.ge.Const([1.0])
        with pytest.raises(AssertionError, match="can not be None as it is not optional"):
            scope["AddV2"](x, None)


def test_declarations_give_the_prototype_back(theirs, tmp_path):
    seen, prototypes = set(), []
    for _, p in theirs:
        if p and reg_op.operator_name(p.name) not in seen:
            seen.add(reg_op.operator_name(p.name))
            prototypes.append(p)
    text, without = reg_op.declarations(prototypes, "nodes")
    (tmp_path / "nodes.c").write_text(text)
    library = dovetail.load(tmp_path / "nodes.c", attach=False)
    back = {reg_op.operator_name(p.name): p for p in reg_op.parse(dovetail.torchair.prototypes(library))}
    kinds = lambda places: [(n, kind) for n, kind, _ in places]
    order, equal = 0, 0
    for p in prototypes:
        q = back.get(reg_op.operator_name(p.name).lstrip("_"))  # _IdentityN has the node IdentityN
        assert (q is not None) == (p.name not in without), p.name
        if q:
            assert kinds(q.inputs) == kinds(p.inputs) and q.attributes == p.attributes, p.name
            order += kinds(q.outputs) != kinds(p.outputs)  # Dovetail has outputs of written inputs first
            assert sorted(kinds(q.outputs)) == sorted(kinds(p.outputs)), p.name
            equal += 1
    assert equal > 1600 and order < 15
    library.close()


HEADER = r"""
#define REG_OP(x) \
    something(x)
// REG_OP(NotThis)
/* nor REG_OP(This) */
namespace ge {
REG_OP(MixThings) // a comment .INPUT(no, no)
    .INPUT(x, ge::TensorType({ge::DT_FLOAT, DT_BF16}))
    .OPTIONAL_INPUT(bias, TensorType::ALL())
    .DYNAMIC_INPUT(more, "T")
    .OUTPUT(y, TensorType::ALL())
    .DYNAMIC_OUTPUT(rest, TensorType::ALL())
    .REQUIRED_ATTR(axis, Int)
    .ATTR(text, String, "a) \"b\"")
    .ATTR(scale, Float, 1.f / 8)
    .ATTR(dims, ListInt, {-1, 2L})
    .ATTR(dst, Type, ge::DT_INT8)
    .ATTR(lambda, Bool, true)
    .DATATYPE(T, TensorType({DT_FLOAT}))
    .OP_END_FACTORY_REG(MixThings)
REG_OP(Choose).INPUT(x, TensorType::ALL()).GRAPH(body).OP_END_FACTORY_REG(Choose)
}
"""


def test_a_header():
    p, q = reg_op.parse(HEADER)
    assert p.name == "MixThings" and [(n, k) for n, k, _ in p.inputs] == [("x", "required"), ("bias", "optional"), ("more", "dynamic")]
    assert [(n, k) for n, k, _ in p.outputs] == [("y", "required"), ("rest", "dynamic")]
    assert p.attributes == [("axis", "Int", reg_op.REQUIRED), ("text", "String", 'a) "b"'), ("scale", "Float", 0.125), ("dims", "ListInt", [-1, 2]),
                            ("dst", "Type", "DT_INT8"), ("lambda", "Bool", True)]
    assert reg_op.builder(q) == "# Choose: .GRAPH has no form in Python\n"
    assert "lambda_changed_as_is_python_key: bool = True" in reg_op.builder(p) and "dst: int = DataType.DT_INT8" in reg_op.builder(p)
    assert reg_op.declarations([p, q], "ops") == ("", {"MixThings": "'lambda' cannot be a name in C", "Choose": ".GRAPH has no form in a schema"})


def test_the_headers_of_torch_npu_s_wheel(tmp_path):
    folder = pathlib.Path(torch.__file__).parents[1] / "torch_npu/include/third_party/acl/inc/op_proto"
    found = [p for file in sorted(folder.glob("*.h")) for p in reg_op.parse(file.read_text(), file.name)]
    assert {p.name for p in found} >= {"IndexPutV2", "OutfeedEnqueueOp", "OutfeedEnqueueOpV2"} and len(found) > 7
    assert {p.refusal for p in found} == {None, "attribute 'value': Tensor has no form in Python"}
    index_put = next(p for p in found if p.name == "IndexPutV2")
    assert [(n, kind) for n, kind, _ in index_put.inputs] == [("x", "required"), ("value", "required"), ("indexed_sizes", "required"),
                                                              ("indexed_strides", "required"), ("indices", "dynamic")]
    assert "index_put_v2(Tensor(a!) x, Tensor value, Tensor indexed_sizes, Tensor indexed_strides, Tensor[] indices, *, bool accumulate=False) -> ()" in \
        reg_op.declarations([index_put], "ops")[0]


@pytest.mark.parametrize("text, message", [
    ("REG_OP(A)\n.INPUT(x\n.OUTPUT(y, T)", "h:3: A: expected ')', found '.OUTPUT(y, T)'"),
    ("REG_OP(A)\n.ATTR(n, Int)", "h:2: A: expected ',', found ')'"),
    ("REG_OP(A)\n.INPUT(x, T", "h:2: A: expected ')', found the end"),
    ("REG_OP(A)\n.INPUT(x, T)\nREG_OP(B)", "h:3: A: expected '.OP_END_FACTORY_REG(A)', found 'REG_OP(B)'"),
    ("REG_OP(A)\n.INPUT(x, T)\n#ifdef Y\n.INPUT(y, T)\n#endif\n.OP_END_FACTORY_REG(A)", "h:3: A: expected '.OP_END_FACTORY_REG(A)', found '#ifdef Y'"),
    ("REG_OP(A).INPUT(x, T)\n.OP_END_FACTORY_REG(C)", "h:2: A: expected 'A', found 'C)'"),
    ("/* A\n\n/* REG_OP(A).OP_END_FACTORY_REG(A)", "h:1: expected the end of a comment, found '/* A'"),
    ("REG_OP(A).OP_END_FACTORY_REG(A)\nREG_OP(A).OP_END_FACTORY_REG(A)", "h:2: a second REG_OP(A) in this file"),
    ("\n#define ONE(N) \\\n  REG_OP(N).OP_END_FACTORY_REG(N)\nONE(A)", "h:2: the macro ONE has REG_OP: expected prototypes that no macro makes"),
    ("#if 0\nREG_OP(A)", "h:2: expected #endif, found the end"),
])
def test_a_header_that_is_wrong(text, message):
    with pytest.raises(ValueError) as error:
        reg_op.parse(text, "h")
    assert str(error.value) == message


def one(attributes="", inputs=".INPUT(x, T)", name="A"):
    p, = reg_op.parse(f"REG_OP({name}){inputs}{attributes}.OUTPUT(y, T).OP_END_FACTORY_REG({name})")
    return p


@pytest.mark.parametrize("word, text, value", [
    ("Int", "0x7fffffff", 2**31 - 1), ("Int", "-0X10L", -16), ("Int", "+3u", 3), ("Int", "010", 8), ("Int", "-9223372036854775808", -2**63), ("Float", "1.e5f", 1e5),
    ("Float", "3", 3.0), ("Bool", "0", False), ("String", '"a\\"\\n" "b"', 'a"\nb'), ("String", '"\u65e5\u00e9\\u00e9"', "\u65e5\u00e9\u00e9"),
    ("ListInt", "{1,2}", [1, 2]), ("ListFloat", "{-.5, 2}", [-0.5, 2.0]), ("ListListInt", "{{1}, {}}", [[1], []]), ("Type", "ge::DT_INT8", "DT_INT8")])
def test_a_default(word, text, value):
    p = one(f".ATTR(a, {word}, {text})")
    assert p.attributes == [("a", word, value)] and type(p.attributes[0][2]) in (type(value), reg_op.DataType) and p.refusal is None


@pytest.mark.parametrize("word, text, expected", [
    ("Int", "1.5", "an integer of 64 bits"), ("Int", "9223372036854775808", "an integer of 64 bits"), ("Int", "1 << 4", "an integer of 64 bits"),
    ("Float", '"x"', "a number"), ("Float", "1e400", "a number"), ("Float", "MY_EPS", "a number"), ("Float", "f(1)", "a number"), ("Bool", "3", "true or false"),
    ("String", "5", "a text"), ("String", '"\ufffd"', "a text"), ("Type", "0", "DT_..."), ("ListInt", "4", "an integer of 64 bits, in a list"),
    ("ListInt", "{1, 2*3}", "an integer of 64 bits, in a list"), ("Int", "{4}", "an integer of 64 bits")])
def test_a_default_that_is_not_known_leaves_one_prototype_out(word, text, expected):
    p = one(f".ATTR(a, {word}, {text})")
    reason = f"attribute 'a': the default: expected {expected}, found {text}"
    assert reg_op.builder(p) == f"# A: {reason}\n" and reg_op.declarations([p], "ops") == ("", {"A": reason})


def test_what_is_not_a_prototype():
    """Comments, texts, characters, and what #if 0 hides."""
    text = "// don't\nchar c = '\"'; const char *s = \"REG_OP(B)\";\n#if 0\n#if X\nREG_OP(C)\n#endif\n#else\n"
    assert [p.name for p in reg_op.parse(f"{text}REG_OP(A).OP_END_FACTORY_REG(A) // \"\n#endif\nREG_OP(D).OP_END_FACTORY_REG(D)")] == ["A", "D"]


def test_names(tmp_path):
    """What the functions and the declarations cannot be named is left out, with the reason; all others work."""
    twice = ".INPUT(x, T).INPUT(x, T)"
    odd = [one(name="if"), one(name="Tensor"), one(inputs=twice), one(".ATTR(node_name, Int, 1)")]
    assert [reg_op.no_function(p) for p in odd] == ["'if' cannot be the name of a function in Python", "'Tensor' cannot be the name of a function in Python",
                                                    "two parameters would have the name 'x'", "two parameters would have the name 'node_name'"]
    scope = {}
    p = one(".ATTR(ge_op, Int, 1).ATTR(Tensor, Int, 2)", ".INPUT(attr, T).INPUT(List, T)")
    exec(reg_op.builders([*odd, p]), scope)
    node, _ = build(scope["A"], p, True)
    assert [d.name for d in node.input_desc] == ["attr", "List"] and node.attr["ge_op"].i == 3
    text, without = reg_op.declarations([one(name="ABTest"), one(name="AbTest"), one(inputs=".INPUT(NULL, T)", name="N"), one(name="Größe"),
                                         one('.ATTR(s, String, "\\n\\\\\\"")')], "ops")
    assert without == {"AbTest": "ABTest has the name ab_test already", "N": "'NULL' cannot be a name in C", "Größe": "'größe' cannot be a name in C"}
    (tmp_path / "ops.c").write_text(text)
    back = reg_op.parse(dovetail.torchair.prototypes(dovetail.load(tmp_path / "ops.c", attach=False)))
    assert [p.name for p in back] == ["AbTest", "A"] and back[1].attributes == [("s", "String", '\n\\"')]


def test_the_command(tmp_path, monkeypatch):
    """Document 003's header: its builders build the node of a graph; its declaration is kept once it is there."""
    command = [pathlib.Path(os.environ["DOVETAIL_BUILD"]) / "bin/dovetail", "import", "--reg-op"]
    environment = {**os.environ, "DOVETAIL_PYTHON": sys.executable}
    header = """#include "operator_reg.h"

namespace ge {
REG_OP(AddCustom)
    .INPUT(x, ge::TensorType::ALL())
    .INPUT(y, ge::TensorType::ALL())
    .OUTPUT(z, ge::TensorType::ALL())
    .OP_END_FACTORY_REG(AddCustom);
}
"""
    (tmp_path / "custom_reg_op.h").write_text(header)
    done = subprocess.run([*command, "custom_reg_op.h"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["auto_generated_ge_raw_custom_ops.py", "custom_reg_op.c"], done.stderr
    monkeypatch.syspath_prepend(tmp_path)
    from auto_generated_ge_raw_custom_ops import AddCustom
    node, out = build(AddCustom, reg_op.parse(header)[0], True)
    assert node.type == "AddCustom" and [d.name for d in node.input_desc] == ["x", "y"] and [d.name for d in node.output_desc] == ["z"] and out == "0"
    subprocess.run(["dovetail", "build", "custom_reg_op.c"], cwd=tmp_path, check=True)
    completed = '"x[*s]:T, y[*s]:T -> z[*s]:T", .kernels = DV_KERNELS(DV_ACLNN("f32 f16", "AddCustom", "")));'  # docs/torchair.md
    text = re.sub(r'(?<=\.contract = )".*?;', completed, (tmp_path / "custom_reg_op.c").read_text())
    assert completed in text
    (tmp_path / "custom_reg_op.c").write_text(text)
    subprocess.run(["dovetail", "build", "custom_reg_op.c"], cwd=tmp_path, check=True)
    (tmp_path / "custom_reg_op.c").write_text("mine")
    done = subprocess.run([*command, "custom_reg_op.h", "-o", "."], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "custom_reg_op.c is there already, and stays as it is" in done.stderr and (tmp_path / "custom_reg_op.c").read_text() == "mine"
    (tmp_path / "empty.h").touch()
    done = subprocess.run([*command, "empty.h"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "dovetail: error: empty.h: expected REG_OP, found none\n"


def test_several_files(tmp_path):
    """GBK in comments, CR LF, a byte order mark; stderr has what is left out; files that do not go together are refused before anything is written."""
    def run(*files, out="out"):
        done = subprocess.run([pathlib.Path(os.environ["DOVETAIL_BUILD"]) / "bin/dovetail", "import", "--reg-op", *files, "--out", out], cwd=tmp_path,
                              env={**os.environ, "DOVETAIL_PYTHON": sys.executable}, capture_output=True, text=True)
        return done.returncode, done.stderr
    a = b"// \xc4\xe3\xba\xc3\r\nREG_OP(A)\r\n    .INPUT(x, T)\r\n    .OP_END_FACTORY_REG(A)\r\n"
    (tmp_path / "3 a.h").write_bytes(a)
    (tmp_path / "b.h").write_bytes(b"\xef\xbb\xbf" + a + b'REG_OP(B).INPUT(x, T).ATTR(e, Float, EPS).OP_END_FACTORY_REG(B)')
    (tmp_path / "c.h").write_bytes(a.replace(b"x", b"y"))
    (tmp_path / "d").mkdir()
    (tmp_path / "d/b.h").write_bytes(a)
    (tmp_path / "none.h").write_bytes(bytes(range(256)).replace(b"/*", b"").replace(b"\"", b"").replace(b"'", b""))
    assert run("b.h", "c.h") == (1, "dovetail: error: c.h: another REG_OP(A) than in b.h\n")
    assert run("b.h", "d/b.h") == (1, "dovetail: error: b.h and d/b.h would both become b.c: import them one at a time, with --out\n")
    assert run("none.h") == (1, "dovetail: error: none.h: expected REG_OP, found none\n")
    assert run("b.h", out="c.h") == (1, "dovetail: error: c.h: expected a folder, found a file\n")
    assert not (tmp_path / "out").exists()
    reason = "without B: attribute 'e': the default: expected a number, found EPS\n"
    assert run("3 a.h", "b.h", "none.h") == (0, f"none.h: expected REG_OP, found none\nout/auto_generated_ge_raw_custom_ops.py: {reason}out/b.c: {reason}")
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == ["auto_generated_ge_raw_custom_ops.py", "b.c", "ops_3_a.c"]
    assert (tmp_path / "out/auto_generated_ge_raw_custom_ops.py").read_text().count("def A(") == 1
    subprocess.run(["dovetail", "build", "out/ops_3_a.c"], cwd=tmp_path, check=True)
