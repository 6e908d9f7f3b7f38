"""Fixes of torch's code for operators that write in torch.compile's graphs. Such a node is auto_functionalized_v2(f, _all_bases=[x],
_y_storage_offset=...). It calls f(y=a view of x), and its result is the new x.

- A view's offset in the node counts from the start of the storage, but some readers count it from the start of the base. The two
  differ where the base is a graph input with an offset, `buffer[2:]`. Here the node has the distance from the base, for all readers.
- The copy of a base is as large as the base's storage up to its end, and has the base's offset. Here it has the base's elements alone.
- Inductor removes clones. A base that was a clone then becomes what was cloned, which may have another offset.
"""
import operator

import torch
from torch.utils import _pytree as pytree

from . import private

_MODULE = "torch._higher_order_ops.auto_functionalize"


def _is_zero(offset):
    """True if the offset is known to be 0, decided without a guard on a symbol."""
    return type(offset) is int and offset == 0


def _value(tensor):
    """Returns the value of a functional tensor. Once its base was written, the value has another offset than the tensor itself says."""
    private.functional_views._sync(tensor)
    return private.functional_views._from_functional_tensor(tensor.elem)


def _difference(a, b):
    """Returns a - b without a node in the graph: there b would be the offset of an input, and Inductor's base may have another one."""
    symbolic = next((x.node for x in (a, b) if isinstance(x, torch.SymInt)), None)
    return a - b if symbolic is None else symbolic.shape_env.create_symintnode(_expression(a) - _expression(b), hint=None)


def _expression(n):
    return n.node.expr if isinstance(n, torch.SymInt) else n


def _make_relative(names, types, arguments, indexes):
    """Replaces offsets in the view information of written arguments (`arguments["_y_storage_offset"]` and the like) by distances from the base."""
    for name in names:
        value = arguments[name]
        for prefix, tensor in [(f"_{name}", value)] if not isinstance(value, (list, tuple)) else [(f"_{name}_{i}", t) for i, t in enumerate(value)]:
            base = None if tensor is None else private.functional_views.get_base(tensor)
            if base is None or _is_zero(base.storage_offset()) or f"{prefix}_alias" in arguments:
                continue
            offset = _difference(_value(tensor).storage_offset(), _value(base).storage_offset())
            if f"{prefix}_slice_dim" in arguments:
                for part in ("slice_dim", "slice_start", "slice_end"):
                    del arguments[f"{prefix}_{part}"]
                arguments[f"{prefix}_size"], arguments[f"{prefix}_stride"] = tensor.size(), tensor.stride()
            arguments[f"{prefix}_storage_offset"] = offset


def _view(info, bases):
    """Makes the view that AsStridedViewInfo describes, relative to its base."""
    base = bases[info.base_index]
    return torch.as_strided(base, info.size, info.stride, base.storage_offset() + info.storage_offset)


def _clone(x):
    """Returns a copy of the elements from x's first to its last one, with offset 0. None: torch's own function does the same."""
    if _is_zero(x.storage_offset()):
        return None
    length = private.functional_views.compute_required_storage_length(x.size(), x.stride(), 0)
    return torch.as_strided(torch.as_strided(x, (length,), (1,), x.storage_offset()).clone(), x.size(), x.stride(), 0)


private.Replaced(f"{_MODULE}.write_view_information_to_args", after=_make_relative, module=_MODULE)
private.Replaced(f"{_MODULE}.AsStridedViewInfo.regenerate_view", instead=_view, module=_MODULE)
private.Replaced(f"{_MODULE}.clone_preserve_strides", instead=_clone, module=_MODULE)


# ---- Inductor's passes

def _tensors(node):
    """Returns the arguments that an operator writes, as functionalization has them: (node, its value in eager mode or None) each."""
    _, eager = node.meta.get("eager_input_vals", ((), {}))
    if node.target is torch.ops.higher_order.auto_functionalized_v2:
        names = ["_all_bases"]
    elif node.target is torch.ops.higher_order.auto_functionalized:  # torch.export's: its arguments are the views
        names = [a.name for a in node.args[0]._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    else:
        names = []
    leaves = pytree.tree_leaves
    found = leaves([node.kwargs.get(n) for n in names])
    values = leaves([eager.get(n) for n in names])
    return [*zip(found, values if len(values) == len(found) else [None] * len(found))]


def _forget_eager(graph):
    """Drops the values of eager mode of a node whose base has another offset by now. Views of the base would be made with the old offset."""
    for node in graph.nodes:
        for base, value in _tensors(node):
            now = base.meta.get("val") if isinstance(base, torch.fx.Node) else None
            if isinstance(now, torch.Tensor) and isinstance(value, torch.Tensor) and _expression(now.storage_offset()) != _expression(value.storage_offset()):
                node.meta.pop("eager_input_vals", None)


def _storage(node):
    """Returns the identity of a node's memory, or None."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) and value.layout == torch.strided else None


def _start_at_zero(module, *_):
    """Gives graph inputs the storage offset 0 within Inductor, and their views the distance from it, since a program gets the address of an
    input's first element. Then a program is right for inputs with other offsets too: neither its guards nor its keys contain an input's offset."""
    distance = {}  # node -> the offset of the input that it is a view of
    for node in module.graph.nodes:
        value = node.meta.get("val")
        source = next((x for x in node.all_input_nodes if x in distance and _storage(x) == _storage(node)), None)
        if node.target in _STRIDED and node.args[0] in distance and len(node.args) > 3 and type(node.args[3]) is type(distance[node.args[0]]) is int:
            node.args = (*node.args[:3], node.args[3] - distance[node.args[0]], *node.args[4:])
        if node.target is torch.ops.aten.sym_storage_offset.default and node.args[0] in distance:
            node.meta["val"] = _difference(value, distance[node.args[0]])
        if _storage(node) is None or source is None and (node.op != "placeholder" or _is_zero(value.storage_offset())):
            continue
        distance[node] = distance[source] if source is not None else value.storage_offset()
        with torch.no_grad():
            node.meta["val"] = value.as_strided(value.size(), value.stride(), _difference(value.storage_offset(), distance[node]))


_STRIDED = {torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default}


def _forget_offset(graph, target, *_, **__):
    """Sets the offset of a graph input to 0 for torch's lowering of as_strided, which subtracts that offset."""
    if target in getattr(graph, "graph_input_storage_offsets", ()):
        graph.graph_input_storage_offsets[target] = 0


def _hide(graph, readers):
    """Hides from a pass the nodes whose memory an operator writes, and those that read what it has written.

    If `readers`, also those that read the memory before. What an operator has written becomes the memory of its argument, which may be written
    again: a copy of it is no alias."""
    written = {_storage(x) for node in graph.nodes for x, _ in _tensors(node)} - {None}
    results = {_storage(node) for node in graph.nodes if node.target is operator.getitem and _tensors(node.args[0])} - {None}
    read = written | results if readers else results
    for node in graph.nodes if written else ():
        if isinstance(node.target, torch._ops.OpOverload) and (_storage(node) in written or any(_storage(x) in read for x in node.all_input_nodes)):
            node.target = _Hidden(node.target)


def _show(graph):
    """Restores the targets that _hide() replaced."""
    for node in graph.nodes:
        if isinstance(node.target, _Hidden):
            node.target = node.target.target


class _Hidden:
    """Placeholder for the target of a node while a pass runs."""

    def __init__(self, target):
        self.target, self.__name__ = target, "hidden"

    def __call__(self, *args, **kwargs):
        return self.target(*args, **kwargs)


_POST, _JOINT, _COMPILE, _GRAPH = (f"torch._inductor.{name}" for name in ("fx_passes.post_grad", "fx_passes.joint_graph", "compile_fx", "graph"))
private.Replaced(f"{_COMPILE}.post_grad_passes", before=_start_at_zero, module=_COMPILE)
private.Replaced(f"{_GRAPH}.GraphLowering.placeholder", after=_forget_offset, module=_GRAPH)
private.Replaced(f"{_POST}.decompose_auto_functionalized", before=_forget_eager, module=_POST)
# If the clone that made a base were removed, two bases could be the same node.
# If a copy of a result were removed, it would change with the next write to that memory.
private.Replaced(f"{_POST}.remove_noop_ops", before=lambda graph: _hide(graph, readers=False), after=_show, module=_POST)
# Where x + 0 becomes x, this pass gives x the memory that x + 0 had: a reader of x then seems to read other memory.
private.Replaced(f"{_JOINT}.remove_no_ops", before=lambda m, *_: _hide(m.graph, readers=True), after=lambda m, *_: _show(m.graph), module=_JOINT)
