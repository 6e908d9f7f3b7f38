"""`dovetail export --ge`: InferShape and InferDataType of GE, called through contexts as CANN makes them."""
import json
import pathlib
import subprocess

import ge_context
import numpy as np
import pytest
from ge_context import UNKNOWN_RANK, infer

import dovetail
from dovetail.torchair import source

OPERATORS = r"""
#include <dovetail_op.h>
struct mix { const dv_tensor *x, *w, *b; dv_string mode; int64_t groups; double scale; dv_dtype to; dv_ints pads; bool keep; dv_tensor *y; };
DV_OPERATOR(mix, struct mix, (x, w, b, mode, groups, scale, to, pads, keep, y),
    .schema = "mix_things(Tensor x, Tensor w, Tensor? b=None, *, str mode=\"same\", int groups=2, float scale=0.1, ScalarType to=float16, "
              "int[] pads=[1, 2], bool keep=False) -> Tensor y",
    .contract = "x[n k], w[m k], b[m] -> y[n if(mode == \"same\", m, groups*m) len(pads) if(scale == 0.1, 1, 2) if(keep, 3, 4)]:to");
struct pieces { dv_tensors xs; dv_tensor *acc; dv_opt_int dim; dv_mut_tensors ys; dv_tensor *total; };
DV_OPERATOR(pieces, struct pieces, (xs, acc, dim, ys, total),
    .schema = "pieces(Tensor[] xs, Tensor(a!) acc, int? dim=None) -> (Tensor[] ys, Tensor total)",
    .contract = "xs{i}[n{i} d], acc[d] -> ys{i}[2*n{i} d]:dtype(xs{i}), total[total(n) d]:f32; if(present(dim), d >= 0, d > 0)");
struct halves { const dv_tensor *x; int64_t size; dv_mut_tensors ys; };
DV_OPERATOR(halves, struct halves, (x, size, ys), .schema = "halves(Tensor x, int size) -> Tensor[] ys",
    .contract = "x[n d] -> ys{i < ceildiv(n, size)}[min(size, n - i*size) d]:dtype(x); size > 0");
struct lists { const dv_tensor *x; dv_floats scales; dv_bools flags; dv_strings words; dv_dtypes types; dv_scalars numbers; dv_opt_floats more; dv_tensor *y; };
DV_OPERATOR(lists, struct lists, (x, scales, flags, words, types, numbers, more, y),
    .schema = "lists(Tensor x, float[] scales, bool[] flags, str[] words, ScalarType[] types, Scalar[] numbers, float[]? more=None) -> Tensor y",
    .contract = "x[n] -> y[n len(scales) len(flags) len(words) len(types) len(numbers) if(present(more), len(more), 9)]:f32");
DV_LIBRARY(ge_ops, &dv_op_mix, &dv_op_pieces, &dv_op_halves, &dv_op_lists);
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    (folder / "ge_ops.c").write_text(OPERATORS)
    subprocess.run(["dovetail", "build", "ge_ops.c"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return ge_context.build(folder, folder / "ge_ops.so")


F, H = "DT_FLOAT", "DT_FLOAT16"
MIX = ["same", 2, 0.1, H, [1, 2], False]


@pytest.mark.parametrize("x, w, b, attrs, expected", [
    ([5, 8], [7, 8], [], MIX, [5, 7, 2, 1, 4]),
    ([5, 8], [7, 8], [(F, [7])], ["wide", 3, 0.5, F, [], True], [5, 21, 0, 2, 3]),
    ([-1, 8], [-1, 8], [], MIX, [-1, -1, 2, 1, 4]),
    ([-1, -1], [7, 8], [], MIX, [-1, 7, 2, 1, 4]),
    (UNKNOWN_RANK, [-1, 8], [(F, [7])], MIX, [-1, 7, 2, 1, 4]),  # m follows from b
    (UNKNOWN_RANK, UNKNOWN_RANK, [(F, UNKNOWN_RANK)], MIX, [-1, -1, 2, 1, 4]),
])
def test_shapes(package, x, w, b, attrs, expected):
    assert infer(package, "shape", "MixThings", [[(F, x)], [(F, w)], b], attrs, 1) == [expected]
    assert infer(package, "dtype", "MixThings", [[(F, x)], [(F, w)], b], attrs, 1) == [attrs[3]]


def test_a_contradiction_is_said(package, capfd):
    assert infer(package, "shape", "MixThings", [[(F, [5, 8])], [(F, [7, 9])], []], MIX, 1) is None
    assert "dovetail: node a_node (MixThings): ge_ops::mix_things: argument 'w': expected shape [7, 8] ('k' is bound by 'x'), found [7, 9]" in capfd.readouterr().err
    assert infer(package, "shape", "MixThings", [[(F, [5, 8])], [(F, [7, 8])], []], MIX, 2) is None
    assert "the node has 2 outputs, expected 1" in capfd.readouterr().err
    assert infer(package, "shape", "MixThings", [[(F, [5, 8])] * 2, [(F, [7, 8])], []], MIX, 1) is None
    assert "argument 'x': expected one tensor, found 2" in capfd.readouterr().err


def test_lists_and_written_inputs(package):
    """The written input first, then the list's tensors, then the rest."""
    inputs = [[(H, [2, 4]), (H, [-1, 4])], [(F, [-1])]]
    assert infer(package, "shape", "Pieces", inputs, [0], 4) == [[4], [4, 4], [-1, 4], [-1, 4]]
    assert infer(package, "dtype", "Pieces", inputs, [0], 4) == [F, H, H, F]
    known = [[(H, [2, 4]), (H, [3, 4])], [(F, [4])]]
    assert infer(package, "shape", "Pieces", known, [1], 4) == [[4], [4, 4], [6, 4], [5, 4]]


def test_attributes_that_are_lists(package):
    """An empty list may stand for None where an attribute is optional."""
    given = [[0.5, 1.5], [True, False, True], ["a", "", "abc", "d"], [F, H, "DT_INT8", F, F], [1.0] * 6, [0.1]]
    assert infer(package, "shape", "Lists", [[(F, [3])]], given, 1) == [[3, 2, 3, 4, 5, 6, 1]]
    assert infer(package, "shape", "Lists", [[(F, [3])]], [[]] * 6, 1) == [[3, 0, 0, 0, 0, 0, -1]]


def test_a_list_of_unknown_length(package):
    """How many outputs there are says the node."""
    assert infer(package, "shape", "Halves", [[(F, [7, 3])]], [3], 3) == [[3, 3], [3, 3], [1, 3]]
    assert infer(package, "shape", "Halves", [[(F, [-1, 3])]], [3], 3) == [[-1, 3]] * 3
    assert infer(package, "shape", "Halves", [[(F, [7, 3])]], [3], 2) is None


def sites():
    for file in sorted((ge_context.ROOT / "ops").glob("*/cases.txt")):
        yield from (line for line in file.read_text().splitlines() if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    made = {}

    def get(library):
        if library.path not in made:
            folder = tmp_path_factory.mktemp(library.name)
            (folder / pathlib.Path(library.path).name).symlink_to(library.path)
            made[library.path] = ge_context.build(folder, library.path)
        return made[library.path]
    return get


def test_shipped_operators(shipped):
    """What GE is told is what dv_infer() and a call give; with a size unknown, nothing else."""
    dovetail.ops._load_all()
    libraries, n, blurred = {op.name: (lib, op) for lib in dovetail.libraries() for o in lib.operators().values() for op in o.overloads}, 0, 0
    for site in sites():
        f, arguments = dovetail.site(site)
        library, op = libraries[f.name]
        tree = json.loads(op.json())
        if source.refusal(tree):
            continue
        n += 1
        names = source.names(tree)
        dtype = lambda a: source._TYPES[dovetail_name(a.dtype)]
        listed = lambda a: [] if a is None else a if isinstance(a, list) else [a]
        try:
            inputs = [[(dtype(x), list(x.shape)) for x in listed(arguments[name])] for name in names[0]]
        except KeyError:  # a type that GE lacks
            continue
        attrs = [value(a, word, arguments[a["name"]]) for a, _, word in source._attributes(tree)]
        if any(a is Ellipsis for a in attrs):
            continue
        results = f(**{k: [x.copy() for x in v] if isinstance(v, list) and v and hasattr(v[0], "copy") else v.copy() if hasattr(v, "copy") and hasattr(v, "shape") else v
                       for k, v in arguments.items()})
        results = [] if results is None else list(results) if isinstance(results, (tuple, list)) else [results]
        written, fresh = source.outputs(tree)
        expected = [i for name, i in zip(names[0], inputs) if name in written and i]
        expected = [t for i in expected for t in i] + [(dtype(y), list(y.shape)) for y in (flat(results) if fresh else [])]
        node = source.node_name(op.name)
        assert infer(shipped(library), "dtype", node, inputs, attrs, len(expected)) == [t for t, _ in expected], site
        found = infer(shipped(library), "shape", node, inputs, attrs, len(expected))
        unbacked = [r.get("unbacked") for r in (tree["contract"] or {"program": {"results": []}})["program"]["results"]]
        if not any(unbacked):
            assert found == [s for _, s in expected], site
        for k, i in enumerate(inputs):  # blur one input at a time: each size stays or becomes -1
            for j, (t, shape) in enumerate(i):
                for less in (UNKNOWN_RANK, [-1] * len(shape)):
                    other = [list(x) for x in inputs]
                    other[k][j] = (t, less)
                    partly = infer(shipped(library), "shape", node, other, attrs, len(expected))
                    for a, b in zip(partly, found):
                        assert a == UNKNOWN_RANK or len(a) == len(b) and all(p in (-1, q) for p, q in zip(a, b)), (site, other, partly)
                        blurred += a != b
    assert n > 60 and blurred > 60


def flat(results):
    return [y for x in results for y in (x if isinstance(x, (list, tuple)) else [x]) if y is not None]


def dovetail_name(dtype):
    kind = {"f": "f", "i": "i", "u": "u", "b": "bool", "c": "c"}.get(np.dtype(dtype).kind)
    return "bf16" if np.dtype(dtype).name == "bfloat16" else kind if kind == "bool" else f"{kind}{np.dtype(dtype).itemsize * 8}"


def value(a, word, given):
    """An attribute as GE has it; Ellipsis: a type that GE lacks."""
    if given is None:
        return {"Int": 0, "Float": 0.0, "Bool": False, "String": "", "Type": "DT_UNDEFINED"}.get(word, [])
    if word.startswith("List"):
        return [value(a, word.removeprefix("List"), g) for g in given]
    return float(given) if word == "Float" else source._TYPES.get(str(given), ...) if word == "Type" else given
