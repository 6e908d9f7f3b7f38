"""Calls of operators in the programs that Inductor writes. By default these are `buf0 = torch.ops.ns.f.default(x)`, through the
dispatcher. With this module a program calls the dovetail.Operator directly, and if the operator only returns new tensors, Inductor
allocates them in its memory plan: `f.function(x, buf0)`. The C++ wrapper and AOTInductor, which have no Python, keep torch's default, and
so do results whose size depends on data.

Imported only after torch._inductor.lowering.
"""
import contextlib
import hashlib
import json
import pathlib
import unittest.mock

import torch
from torch.utils import _pytree as pytree

from . import private, registration
from .formula import called
from .operator import natives
from .private import inductor as _torch

ir, lowering, V = _torch.ir, _torch.lowering, _torch.V


def install(operator):
    if operator.contract and operator.contract.views:
        return  # Inductor must see that a view is one
    lowering.lowerings[operator.overload] = _Lowering(operator)
    if not _takes_contiguous(operator):
        tag = _torch.get_layout_constraint_tag(operator.overload, with_default=True)
        lowering.add_layout_constraint(operator.overload, lowering.tag_to_layout_constraint(tag))


def _takes_contiguous(operator):
    """Does every kernel copy tensors with other strides? Then Inductor should make them contiguous, since it can fuse that."""
    tree = operator.contract and operator.contract.tree
    return (tree is not None and not operator.writes and not tree["takes"] and all(r["kind"] != "like" for r in tree["program"]["results"])
            and not any(k["takes"] for k in operator.declaration["kernels"]))


# ---- the caches on disk. Their keys have an operator's name: also what it declares must be the same, and what the operators declare that
# its formulas call, and so on; which of them the policy turns off; and this file, which writes the calls.

_OWN = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()


def _declarations(module):
    """A hash of the declarations of the graph's operators; None: the graph has no Dovetail operator."""
    found = {}
    graphs = [m for m in module.modules() if isinstance(m, torch.fx.GraphModule)] if module is not None else []
    for node in (n for g in graphs for n in g.graph.nodes):
        for x in (node.target, *node.args):
            if isinstance(x, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
                _collect(x._schema.name if isinstance(x, torch._ops.OpOverload) else x._qualified_op_name, found)
                if isinstance(x, torch._ops.OpOverload) and x.name() in natives:
                    _collect(natives[x.name()].name, found)
    return hashlib.sha256(json.dumps([_OWN, found], sort_keys=True).encode()).hexdigest() if found else None


def _collect(name, found):
    for op in registration.operators_of(name) or ():
        if op.name not in found:
            found[op.name] = op.declaration, bool(op.entry.function._enabled_where_fused)
            for formula in ("native", "gradient", "tangent"):
                for other in called(op.declaration[formula]):
                    _collect(other, found)


def _add_declarations(details, module, *args, **kwargs):
    declared = _declarations(module)
    if declared:
        details.dovetail = declared


private.Replaced("torch._inductor.codecache.FxGraphHashDetails.__init__", after=_add_declarations, module="torch._inductor.codecache")


class _Lowering:
    def __init__(self, operator):
        self.operator = operator
        self.contiguous = _takes_contiguous(operator)
        self.allocated = operator.out is not None and not operator.out.lists and operator.contract is not None and not operator.contract.tree["unbacked"]
        self.defaults = [None if a["kwarg_only"] else _literal(a) for a in operator.declaration["schema"]["args"]]

    def __call__(self, *args, **kwargs):
        return pytree.tree_map(lambda x: _wrapped(x) if isinstance(x, ir.IRNode) else x, self.create(args, kwargs))

    def create(self, args, kwargs):
        """The call in Inductor's graph, added once: an operator that writes must not occur twice."""
        if not _torch or V.graph.cpp_wrapper or V.graph.fx_wrapper:
            return _TorchsCall.create(self.operator.overload, *args, **kwargs)
        if self.allocated:
            return _Out.create(self, args, kwargs)
        # A direct call knows by its tensors that its results are torch's.
        direct = any(isinstance(x, ir.IRNode) for x in pytree.tree_leaves((args, kwargs)))
        return (_Direct if direct else _TorchsCall).create(self.operator.overload, *args, **kwargs)


def _wrapped(x):
    """Does the same as fallback_handler() in each version of torch."""
    return x.wrap_for_lowering() if hasattr(x, "wrap_for_lowering") else ir.TensorBox.create(x)


def _literal(argument):
    """An argument's default as Python source; None if no source has the same meaning."""
    kind, value = argument["type"][0], argument.get("default_value", ...)
    return repr(value) if value is None or kind in ("int", "symint", "float", "bool", "str") and value is not ... else None


@contextlib.contextmanager
def _torchs_own_out_off():
    """torch 2.13 itself lowers an operator to its out= overload, in a form that its C++ wrapper cannot compile and that assumes tensors
    before all other arguments."""
    if private.out_variant is None:
        yield
        return
    with unittest.mock.patch.object(private.out_variant, "to_out_variant", lambda op: None):
        yield


def _import(wrapper, name):
    """The name of an operator's entry in the program: "ns::f" is dovetail_ns_f."""
    variable = "dovetail_" + "".join(c if c.isalnum() else "_" for c in name)
    wrapper.add_import_once("from dovetail.torch.entry import entry as dovetail_entry")
    wrapper.add_import_once(f"{variable} = dovetail_entry({name!r})")
    return variable + ".function"


class _TorchsCall(ir.FallbackKernel):
    """As torch does for a custom operator."""

    @classmethod
    def create(cls, kernel, *args, **kwargs):
        with _torchs_own_out_off():
            return super().create(kernel, *args, **kwargs)


class _Direct(_TorchsCall):
    def codegen(self, wrapper):
        self.python_kernel_name = _import(wrapper, self.op_overload.name())
        super().codegen(wrapper)


class _Out(ir.FallbackKernel):
    """A call that writes its results to tensors that Inductor allocates."""

    @classmethod
    def create(cls, lowered, args, kwargs):
        operator = lowered.operator
        if lowered.contiguous:
            args, kwargs = pytree.tree_map(_contiguous, (args, kwargs), is_leaf=lambda x: isinstance(x, ir.IRNode))
        with V.graph.fake_mode:
            example, tensors, others, unflatten = _processed(cls.process_kernel(operator.overload, *args, **kwargs))
        examples = example if isinstance(example, (tuple, list)) else [example]
        call = cls(ir.MultiOutputLayout(device=cls.find_device(tensors, example)), operator.overload, tensors, others, unflatten)
        call.defaults = lowered.defaults
        call.outputs = call.allocated = [_Result(cls.tensor_to_layout(x), call, [(type(example), i)]) for i, x in enumerate(examples)]
        return type(example)(call.outputs) if isinstance(example, (tuple, list)) else call.outputs[0]

    def codegen(self, wrapper):
        self.codegen_comment(wrapper)
        unused = [result for result in self.allocated if result.get_name() in V.graph.removed_buffers]
        for result in self.allocated:
            if result in unused:  # read by all that follows, but written by this call
                wrapper.writeline(wrapper.make_buffer_allocation(result))
            else:
                wrapper.codegen_allocation(result)
        f = _import(wrapper, self.op_overload.name())
        args = self.codegen_args()
        kwargs = self.codegen_kwargs()
        results = [result.get_name() for result in self.allocated]
        missing = self.defaults[len(args):]
        if not kwargs and None not in missing:  # the fastest form: results follow the arguments, of which none is keyword-only
            args += missing + results
        else:
            kwargs.append(f"out={results[0]}" if len(results) == 1 else f"out=({', '.join(results)})")
        wrapper.writeline(f"{self.get_name()} = {f}({', '.join([*args, *kwargs])})")  # a name that Inductor deletes later
        for result in unused:
            wrapper.writeline(f"del {result.get_name()}")


def _processed(found):
    """A tuple until torch 2.13, an object since."""
    if isinstance(found, tuple):
        return found[:4]
    return found.example_output, found.tensor_args, found.non_tensor_args, found.unflatten_args


class _Result(ir.MultiOutput):
    def should_allocate(self):
        return True

    def codegen(self, wrapper):
        """Written by the call."""


def _contiguous(x):
    return ir.ExternKernel.require_contiguous(x) if isinstance(x, ir.TensorBox) else x
