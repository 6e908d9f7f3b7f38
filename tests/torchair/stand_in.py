"""torchair without CANN: the real converters, graph builder and torch.compile backend. What stands in for the C++ below them is here: prototypes
come from the text that dovetail.torchair.prototypes() writes, and a graph is executed node by node, its own operators by torch.ops."""
import importlib.util
import os
import pathlib
import re
import sys
import types

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch-npu does not load without CANN

import pytest

if importlib.util.find_spec("torch_npu") is None:
    pytest.skip("torchair comes with torch-npu", allow_module_level=True)

import torch

from dovetail.torchair import reg_op

sys.path.insert(0, str(pathlib.Path(importlib.util.find_spec("torch").origin).parents[1] / "torch_npu" / "dynamo"))

PROTOTYPES = {}  # node -> (inputs, outputs, attributes), each (name, kind)
REQUIRED = {}    # node -> the attributes that each node has
OPERATORS = {}   # node -> (torch's overload, [schema argument]): who runs it
GRAPHS = []      # the types of the nodes of each graph that was made


def declare(text):
    """Prototypes, from REG_OP."""
    for p in reg_op.parse(text):
        PROTOTYPES[p.name] = [(n, kind) for n, kind, _ in p.inputs], [(n, kind) for n, kind, _ in p.outputs], [(n, word.lower()) for n, word, _ in p.attributes]
        REQUIRED[p.name] = {n for n, _, default in p.attributes if default is reg_op.REQUIRED}


class Graph:
    def __init__(self, name):
        self.name = name

    def load(self, data, *rest):
        from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef
        model = ModelDef()
        model.ParseFromString(data)
        self.graph = model.graph[0]
        GRAPHS.append([node.type for node in self.graph.op])

    def run(self, arguments):
        values, (inputs, assigned, _) = {}, arguments  # assigned: for each result None, or the tensor that it is written to
        for node in self.graph.op:
            given = [values[name] if name and not name.endswith(":-1") else None for name in node.input if not name.startswith("^")]
            if node.type == "Data":
                out = [inputs[node.attr["index"].i]]
            elif node.type == "NetOutput":
                return [x if to is None else to.copy_(x) for x, to in zip(given, assigned or [None] * len(given))]
            elif node.type in OPERATORS and node.type in PROTOTYPES and not built_in(node):
                out = run_operator(node, given)
            else:
                out = BUILT_IN[node.type](node, *given)
                out = out if isinstance(out, list) else [out]
            values.update((f"{node.name}:{i}", x) for i, x in enumerate(out))

    def set_hint_shape(self, *shapes):
        pass

    def compile(self):
        pass

    def auto_tune(self, *inputs):
        pass


def built_in(node):
    """GE's own operator of a name that one of ours has too: its output is y."""
    return node.type in BUILT_IN and [d.name for d in node.output_desc] == ["y"]


FIELDS = {"int": "i", "float": "f", "bool": "b", "string": "s", "type": "dt"}  # of ge_ir.proto's AttrDef
LISTS = {"listint": 2, "listfloat": 3, "listbool": 4, "listtype": 10}  # its list types; torchair.ge.attr gives lists of strings none


def validate(node):
    """A node against its prototype: names, order, what may be absent, types of attributes. -> how many tensors each input has."""
    def numbered(descs, name):
        return sum(bool(re.fullmatch(re.escape(name) + r"\d+", d.name)) for d in descs)

    def expect(what, expected, found):
        assert expected == found, f"node {node.type}: {what}: expected {expected}, found {found}"
    inputs, outputs, attributes = PROTOTYPES[node.type]
    counts = {name: numbered(node.input_desc, name) if kind == "dynamic" else 1 for name, kind in inputs}
    spelled = lambda name, kind: [f"{name}{i}" for i in range(counts[name])] if kind == "dynamic" else [name]
    expect("inputs", [n for i in inputs for n in spelled(*i)], [d.name for d in node.input_desc])
    given = iter(node.input)
    for name, kind in inputs:
        values = [next(given) for _ in range(counts[name])]
        assert kind == "optional" or all(v and not v.endswith(":-1") for v in values), f"node {node.type}: input {name} is missing"
    absent = {name for (name, kind), value in zip(inputs, node.input) if not value or value.endswith(":-1")}
    counts.update((name, numbered(node.output_desc, name)) for name, kind in outputs if kind == "dynamic")
    expect("outputs", [n for o in outputs if o[0] not in absent for n in spelled(*o)], [d.name for d in node.output_desc])
    expect("attributes that GE does not know", set(), {a for a in node.attr if not a.startswith("_")} - {a for a, _ in attributes})
    for name, kind in attributes:
        if name in node.attr:
            value = node.attr[name]
            expect(f"attribute {name}", "list" if kind.startswith("list") else FIELDS[kind], value.WhichOneof("value"))
            if kind in LISTS:
                expect(f"attribute {name}", LISTS[kind], value.list.val_type)
        else:
            assert name not in REQUIRED[node.type], f"node {node.type}: attribute {name} is missing"
    return counts


def run_operator(node, given):
    """One of ours, with the arguments that the node has."""
    inputs, outputs, attributes = PROTOTYPES[node.type]
    overload, slots = OPERATORS[node.type]
    counts, named, at = validate(node), {}, 0
    for name, kind in inputs:
        n = counts[name]
        named[name], at = given[at:at + n] if kind == "dynamic" else given[at], at + n
    assert at == len(given), node.type
    named.update((name, attribute(node.attr[name], kind)) for name, kind in attributes if name in node.attr)
    named.update((a.name, None) for a in slots if a.name not in named and not a.has_default_value())
    written = [a.name for a in slots if a.alias_info is not None and a.alias_info.is_write and named.get(a.name) is not None]
    named.update((w, named[w].clone()) for w in written)
    results = overload(**named)
    results = [] if results is None else list(results) if isinstance(results, (tuple, list)) else [results]
    fresh = [x for x in results if not any(x is named[w] for w in written)]
    flat = [named[w] for w in written] + [y for x in fresh for y in (x if isinstance(x, (list, tuple)) else [x]) if y is not None]
    assert len(flat) == len(node.output_desc), node.type
    return flat


def attribute(a, kind):
    value = {"int": lambda: a.i, "float": lambda: a.f, "bool": lambda: a.b, "string": lambda: a.s.decode(), "type": lambda: CAST[a.dt],
             "listint": lambda: list(a.list.i), "listfloat": lambda: list(a.list.f), "listbool": lambda: list(a.list.b),
             "liststring": lambda: [s.decode() for s in a.list.s]}[kind]
    return value()


TYPES = {1: torch.float32, 2: torch.float16, 3: torch.int8, 4: torch.uint8, 5: torch.int16, 7: torch.int32, 8: torch.int64, 11: torch.bool,
         12: torch.float64, 27: torch.bfloat16}  # ge_ir.proto's numbers, of tensors
CAST = {0: torch.float32, 1: torch.float16, 2: torch.int8, 3: torch.int32, 4: torch.uint8, 6: torch.int16, 9: torch.int64, 11: torch.float64,
        12: torch.bool, 27: torch.bfloat16}  # GE's own, in attributes


def constant(node):
    desc = node.attr["value"].t
    if not desc.data:
        return torch.empty(list(desc.desc.shape.dim), dtype=TYPES[desc.desc.dtype])
    return torch.frombuffer(bytearray(desc.data), dtype=TYPES[desc.desc.dtype]).reshape(list(desc.desc.shape.dim)).clone()


def reduce(of):
    def run(node, x, axes):
        axes = axes.reshape(-1).tolist()
        return of(x, dim=axes, keepdim=node.attr["keep_dims"].b) if axes else x
    return run


def unsqueeze(node, x):
    for axis in sorted(node.attr["axes"].list.i):
        x = x.unsqueeze(axis)
    return x


def squeeze(node, x):
    return x.squeeze(tuple(node.attr["axis"].list.i))


def strided_slice(node, x, begin, end, axes, strides):
    at = [slice(None)] * x.dim()
    for axis, *part in zip(*(t.reshape(-1).tolist() for t in (axes, begin, end, strides))):
        at[axis] = slice(*part)
    return x[tuple(at)]


def pad(node, x, sizes, value):
    assert node.attr["mode"].s in (b"", b"constant")
    return torch.nn.functional.pad(x, sizes.reshape(-1, 2).flip(0).reshape(-1).tolist(), value=value.item())


def split(node, x, sizes, axis):
    return list(x.split(sizes.tolist(), int(axis)))


def matmul(node, x, y, *absent):
    turned = (node.attr[name].b for name in ("transpose_x1", "transpose_x2"))
    return torch.matmul(*(t.mT if turn else t for t, turn in zip((x, y), turned)))


BUILT_IN = {
    "Const": constant,
    "Add": lambda n, x, y: x + y, "Sub": lambda n, x, y: x - y, "Mul": lambda n, x, y: x * y, "RealDiv": lambda n, x, y: x / y,
    "Relu": lambda n, x: x.relu(), "Sigmoid": lambda n, x: x.sigmoid(), "Sin": lambda n, x: x.sin(), "Cos": lambda n, x: x.cos(),
    "Neg": lambda n, x: -x, "Rsqrt": lambda n, x: x.rsqrt(), "Sqrt": lambda n, x: x.sqrt(), "Square": lambda n, x: x * x, "Sxpy": lambda n, x, y, alpha: x - y * alpha, "Exp": lambda n, x: x.exp(),
    "Pow": lambda n, x, y: x ** y, "Swish": lambda n, x: torch.nn.functional.silu(x),
    "Identity": lambda n, x: x, "TensorMove": lambda n, x: x.clone(), "Assign": lambda n, x, y: x.copy_(y),
    "Cast": lambda n, x: x.to(CAST[n.attr["dst_type"].i]), "Reshape": lambda n, x, s: x.reshape(s.tolist()),
    "BroadcastTo": lambda n, x, s: x.expand(s.tolist()), "ReduceSum": reduce(torch.sum), "ReduceMean": reduce(torch.mean), "Unsqueeze": unsqueeze, "Squeeze": squeeze,
    "Transpose": lambda n, x, perm: x.permute(perm.tolist()), "StridedSliceV2": strided_slice, "MatMul": matmul,
    "ConcatV2": lambda n, *given: torch.cat(given[:-1], int(given[-1])), "Shape": lambda n, x: torch.tensor(x.shape),
    "AsStrided": lambda n, x, size, stride, offset: x.as_strided(size.tolist(), stride.tolist(), int(offset)),
    "OnesLike": lambda n, x: torch.ones_like(x), "Log": lambda n, x: x.log(), "Sign": lambda n, x: x.sign(), "Tanh": lambda n, x: x.tanh(),
    "Reciprocal": lambda n, x: x.reciprocal(), "Abs": lambda n, x: x.abs(), "Equal": lambda n, x, y: x == y, "NotEqual": lambda n, x, y: x != y,
    "Greater": lambda n, x, y: x > y, "GreaterEqual": lambda n, x, y: x >= y, "Less": lambda n, x, y: x < y, "LessEqual": lambda n, x, y: x <= y,
    "SelectV2": lambda n, c, x, y: torch.where(c, x, y), "ReduceMax": reduce(torch.amax), "ReverseV2": lambda n, x, axes: x.flip(axes.reshape(-1).tolist()),
    "Gather": lambda n, x, index: x[index], "Range": lambda n, begin, end, step: torch.arange(begin.item(), end.item(), step.item(), dtype=begin.dtype),
    "ReluGrad": lambda n, g, x: g * (x > 0), "SigmoidGrad": lambda n, y, g: g * y * (1 - y), "TanhGrad": lambda n, y, g: g * (1 - y * y),
    "Pack": lambda n, *given: torch.stack(given, n.attr["axis"].i), "Expand": lambda n, x, s: x.expand(s.tolist()),
    "InplaceIndexAdd": lambda n, x, index, y, alpha=torch.tensor(1): x.index_add_(n.attr["axis"].i, index, y * alpha),
    "ScatterElements": lambda n, x, index, y: x.scatter(n.attr["axis"].i, index.long(), y),
    "GatherV2": lambda n, x, index, axis: x.index_select(int(axis), index), "PadV3": pad, "SplitV": split,
    "ZerosLike": lambda n, x: torch.zeros_like(x), "Fill": lambda n, s, x: torch.full(s.tolist(), x.item(), dtype=x.dtype),
}


class _Types:
    def __getattr__(self, name):
        return name


_module = types.ModuleType("torchair.core._torchair")
_module.TorchDataType = _Types()
_module.TorchNpuGraphBase = Graph
TAGS = {"type": "DATA_TYPE", "listtype": "LIST_DATA_TYPE"}  # GE's words for the types of attributes


def registered(node):
    if node not in PROTOTYPES:
        return "ERROR", [], [], []
    inputs, outputs, attributes = PROTOTYPES[node]
    return "SUCCESS", inputs, outputs, [(name, "VT_" + TAGS.get(kind, kind.replace("list", "LIST_").upper())) for name, kind in attributes]


_module.get_registered_ir_def = registered
_module.check_cann_compat = lambda *args: ""
_module.GetSocName = lambda: "Ascend910B1"
for name in ("SetDebugLogPath", "InitializeGraphEngine", "FinalizeGraphEngine", "InitDeviceStdoutChannel"):
    setattr(_module, name, lambda *args: None)
sys.modules["torchair.core._torchair"] = _module


class _WithoutNpu:
    """torch_npu itself needs CANN's libraries."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch_npu":
            raise ImportError("torch_npu: no CANN here")


sys.meta_path.insert(0, _WithoutNpu())


def declare_library(library):
    """GE gets the prototypes of a library, and this file its operators."""
    import dovetail.torch
    import dovetail.torchair
    declare(dovetail.torchair.prototypes(library))
    for op in dovetail.torch.registered(library).operators.values():
        OPERATORS.setdefault(dovetail.torchair.source.node_name(op.name), (op.overload, op.arguments))


def known(library):
    """GE gets the prototypes of a library, and the library looks again."""
    import dovetail.torchair
    declare_library(library)
    dovetail.torchair.attach(library)
