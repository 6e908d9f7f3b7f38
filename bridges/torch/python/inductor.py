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

from . import digest, private, registration, short
from .formula import called
from .operator import natives
from .private import inductor as _torch

ir, lowering, V = _torch.ir, _torch.lowering, _torch.V


def install(operator):
    if operator.contract and operator.contract.views:
        return  # Inductor must see that a view is one
    lowering.lowerings[operator.overload] = _Lowering(operator)
    if not _takes_contiguous(operator):
        _keep_strides(operator.overload)


def install_python(overload):
    """Installs the lowering of an operator with a Python kernel: torch's own, with _apart() before it."""
    if overload._schema.is_mutable and overload not in lowering.lowerings:
        call = lowering.fallback_handler(overload)

        def lower(*args, **kwargs):
            args, kwargs = _apart(overload, args, kwargs)
            return call(*args, **kwargs)

        lowering.lowerings[overload] = lower
        _keep_strides(overload)


def _keep_strides(overload):
    """Makes Inductor give the operator its arguments with the strides of eager mode, or as its tags say."""
    tag = _torch.get_layout_constraint_tag(overload, with_default=True)
    lowering.add_layout_constraint(overload, lowering.tag_to_layout_constraint(tag))


def _takes_contiguous(operator):
    """Does every kernel copy tensors with other strides? Then Inductor should make them contiguous, since it can fuse that."""
    tree = operator.contract and operator.contract.tree
    return (tree is not None and not operator.writes and not tree["takes"] and all(r["kind"] != "like" for r in tree["program"]["results"])
            and not any(k["takes"] for k in operator.declaration["kernels"]))


# ---- the caches on disk. Their keys have only the names of operators. Added here are the declarations of the operators, and of those that
# their formulas call, and so on; and the operators that the policy turns off. An operator with a Python kernel adds its schema and its rules,
# since its fake function and its gradient end up in the program. The files that write the calls are added, too.

_OWN = hashlib.sha256(b"".join(pathlib.Path(__file__).with_name(f"{name}.py").read_bytes() for name in ("inductor", "functionalized", "digest"))).hexdigest()


def _declarations(module):
    """Returns a hash of the declarations of the graph's operators. None: the graph has no Dovetail operator. Raises digest.Unknown if the rules of
    an operator have no hash."""
    found, described = {}, {}
    graphs = [m for m in module.modules() if isinstance(m, torch.fx.GraphModule)] if module is not None else []
    for node in (n for g in graphs for n in g.graph.nodes):
        for x in (node.target, *node.args):
            if isinstance(x, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
                _collect(x._schema.name if isinstance(x, torch._ops.OpOverload) else x._qualified_op_name, found)
                if isinstance(x, torch._ops.OpOverload) and x.name() in natives:
                    _collect(natives[x.name()].name, found)
                for overload in [x] if isinstance(x, torch._ops.OpOverload) else [getattr(x, name) for name in x.overloads()]:
                    if overload.name() not in described:
                        rules = short.rules(overload)
                        described[overload.name()] = rules and digest.describe([str(overload._schema), rules], lambda o: _rules(o, found))
    found.update((f"rules of {name}", text) for name, text in described.items() if text)
    return hashlib.sha256(json.dumps([_OWN, found], sort_keys=True).encode()).hexdigest() if found else None


def _rules(overload, found):
    """Adds the declaration of an operator that a rule calls to found. Returns its schema and rules for the key, or None."""
    _collect(overload.name(), found)
    rules = short.rules(overload)
    return rules and [str(overload._schema), rules]


def _collect(name, found):
    for op in registration.operators_of(name) or ():
        if op.name not in found:
            found[op.name] = op.declaration, bool(op.entry.function._enabled_where_fused)
            for formula in ("native", "gradient", "tangent"):
                for other in called(op.declaration[formula]):
                    _collect(other, found)


def _add_declarations(details, module, *args, **kwargs):
    try:
        declared = _declarations(module)
    except digest.Unknown as unknown:
        declared = _NoKey(unknown)
    if declared:
        details.dovetail = declared


class _NoKey:
    """Part of a key that keeps the program out of the caches."""

    def __init__(self, why):
        self.why = why

    def __reduce__(self):
        raise _torch.BypassFxGraphCache(f"a rule of an operator with a Python kernel uses a value without a hash: {self.why}")


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
        args, kwargs = _apart(self.operator.overload, args, kwargs)
        if not _torch or V.graph.cpp_wrapper or V.graph.fx_wrapper:
            return _TorchsCall.create(self.operator.overload, *args, **kwargs)
        if self.allocated:
            return _Out.create(self, args, kwargs)
        # A direct call knows by its tensors that its results are torch's.
        direct = any(isinstance(x, ir.IRNode) for x in pytree.tree_leaves((args, kwargs)))
        return (_Direct if direct else _TorchsCall).create(self.operator.overload, *args, **kwargs)


# ---- read arguments in memory that the same call writes. Inductor removes copies (`clone`, `contiguous`, equal computations) while its graph
# has no writes, and lets operators write in place afterwards. _apart() makes the copies again.

def _apart(overload, args, kwargs):
    """Returns the arguments, with a copy in the place of each read tensor that may overlap a written one, in lists too."""
    arguments = overload._schema.arguments
    if not any(_is_written(a) for a in arguments):
        return args, kwargs
    by_name = {a.name: a for a in arguments}
    given = [*zip(arguments, args), *((by_name[name], value) for name, value in kwargs.items())]
    written = [_Memory(x) for a, value in given if _is_written(a) for x in _tensors(value)]
    for memory in written:
        V.graph.mark_buffer_mutated(memory.buffer)  # computes what still has to read it. torch does so after it has added the call

    def read(argument, value):
        if _is_written(argument):
            return value
        return pytree.tree_map(lambda x: _copy(x) if isinstance(x, ir.IRNode) and any(map(_Memory(x).may_overlap, written)) else x, value,
                               is_leaf=lambda x: isinstance(x, ir.IRNode))

    return tuple(read(a, x) for a, x in zip(arguments, args)), {name: read(by_name[name], x) for name, x in kwargs.items()}


def _is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def _tensors(value):
    return [x for x in pytree.tree_leaves(value, is_leaf=lambda x: isinstance(x, ir.IRNode)) if isinstance(x, ir.IRNode)]


class _Memory:
    """Buffer of a tensor in Inductor's graph, with the offset, sizes and strides of the elements. The constructor realizes the tensor."""

    def __init__(self, x):
        x = ir.ExternKernel.realize_input(x)
        self.buffer, layout = x.get_name(), x.get_layout()
        self.dtype, self.offset, self.dims = layout.dtype, layout.offset, list(zip(layout.size, layout.stride))

    def may_overlap(self, other):
        if self.buffer != other.buffer or any(V.graph.sizevars.statically_known_leq(n, 0) for n, _ in self.dims + other.dims):
            return False
        if self.dtype != other.dtype:  # then the units differ
            return True
        return not (self._lies_before(other) or other._lies_before(self) or self._interleaves(other))

    def _lies_before(self, other):
        """True if the last element is known to come before the other's first."""
        return V.graph.sizevars.statically_known_lt(self.offset + sum((n - 1) * s for n, s in self.dims), other.offset)

    def _interleaves(self, other):
        """True if both repeat with the same period and keep to different parts of it: x[:, 0] and x[:, 1]."""
        numbers = [self.offset, other.offset, *(k for dim in self.dims + other.dims for k in dim)]
        if not all(isinstance(k, int) or getattr(k, "is_Integer", False) for k in numbers):
            return False
        for period in {int(s) for n, s in self.dims if n > 1 and s > 1}:
            parts = []
            for x in (self, other):
                first = int(x.offset) % period
                length = sum((int(n) - 1) * int(s) for n, s in x.dims if int(s) % period)
                parts.append((first, first + length))
            (a, b), (c, d) = parts
            if max(b, d) < period and (b < c or d < a):
                return True
        return False


def _copy(x):
    """Returns a copy of a tensor, with the same order of strides."""
    strides = x.get_stride()
    copy = ir.ExternKernel.copy_input(x)
    return ir.ExternKernel.require_stride_order(copy, ir.get_stride_order(strides, V.graph.sizevars.shape_env))


# ---- the offset of a view, which torch has no lowering for

def _storage_offset(x):
    """Returns the offset: a number, or the expression of a symbol."""
    offset = V.graph.current_node.meta["val"]
    return offset.node.expr if isinstance(offset, torch.SymInt) else offset


lowering.lowerings.setdefault(torch.ops.aten.sym_storage_offset.default, _storage_offset)
lowering.lowerings.setdefault(torch.ops.aten.sym_storage_offset, _storage_offset)


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
