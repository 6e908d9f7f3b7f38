"""How Dynamo traces operators: a call of a library's function becomes a call of the torch operator, and if the policy turns an
operator off, its decomposition is put into the graph, so that a compiler can fuse it. Every such decision is guarded. Imported only after
torch._dynamo, and if that has the names used here (private.py): otherwise functions are leaves of the graph, and the policy is asked at
every call.
"""
import inspect

import torch
import torch._dynamo

import dovetail

from . import out, registration
from .formula import called, rule_of
from .private import dynamo as _torch

_handlers = _torch._get_handlers()
_variables = torch._dynamo.variables

if torch.__version__ >= "2.13":  # torch 2.15's Dynamo follows only a __get__ written in Python; torch 2.11's fails on one
    dovetail.Operator.__get__ = lambda self, instance, owner=None: self
for function in (registration.call, out.call, out.Out.copy):  # after a graph break they run as they are: Dynamo need not compile them
    _torch.skip_code(function.__code__)


def install(operator):
    """torch.ops.ns.name, its overload and its out= overload."""
    _handlers[operator.overload] = lambda variable, tx, /, *args, **kwargs: _call(tx, operator, args, kwargs)
    _handlers[operator.packet] = _packet_handler(operator.packet, operator.name.split(".")[0])
    if operator.out:
        _handlers[operator.out.overload] = lambda variable, tx, /, *args, **kwargs: _guard(tx, operator) and None


def trace_function(function):
    """A dovetail.Operator."""
    torch._dynamo.allow_in_graph(function)

    def handler(variable, tx, /, *args, **kwargs):
        operators = registration.operators_of(function.name.partition(".")[0])
        if operators is None or registration.is_incomplete(function):
            return None  # not registered in torch, or not each overload: the call says why
        if len(function.overloads) == 1:
            operators = [o for o in operators if o.name == function.name]
        if len(operators) > 1:
            return _torch.VariableTracker.build(tx, operators[0].packet).call_function(tx, list(args), dict(kwargs))
        if len(operators[0].returns) > 1 and isinstance(kwargs.get("out"), _variables.ListVariable):
            kwargs = {**kwargs, "out": _variables.TupleVariable(kwargs["out"].items)}
        f, args, kwargs, given = out.target(operators[0], args, kwargs, _read)
        if given is not None and f is operators[0].overload:
            constants = [_torch.VariableTracker.build(tx, x) for x in (f, operators[0].name, tuple(operators[0].out.names))]
            some = _variables.TupleVariable([_variables.ConstantVariable.create(None) if x is None else x for x in given])
            return _torch.VariableTracker.build(tx, out.fill).call_function(tx, [*constants, some, *args], dict(kwargs))
        before = _shapes(given or ())
        returned = _torch.VariableTracker.build(tx, f).call_function(tx, list(args), dict(kwargs))
        for shape, after in zip(before, _shapes(given or ())):
            if shape != after:  # as Dynamo has it for torch's own: outside of the graph, in eager mode, the tensor is resized
                _torch.unimplemented(gb_type="Shape mismatch with out= list of tensor variants", context=function.name, hints=[],
                                     explanation=f"{function.name}: expected a tensor of shape {tuple(after)} for a result, found {tuple(shape)}")
        if given is None or not operators[0].out.lists:
            return returned
        return given[0] if len(given) == 1 else _variables.TupleVariable(given)

    _handlers[function] = handler


def _shapes(given):
    """Of the tensors that are given for results, also in lists."""
    tensors = [x for g in given for x in (g.items if isinstance(g, _variables.BaseListVariable) else [g])]
    return [x.as_proxy().node.meta["example_value"].shape for x in tensors if isinstance(x, _variables.TensorVariable)]


def _read(given):
    """What is given for results, of a variable: a tuple of variables, None, or itself."""
    if isinstance(given, _variables.TupleVariable):
        return tuple(map(_read, given.items))
    return None if isinstance(given, _variables.ConstantVariable) and given.value is None else given


def forget_function(function):
    """Its library is being closed; otherwise Dynamo's table would keep it for ever."""
    _handlers.pop(function, None)


def trace_as(function, overload):
    """Trace a call of the function as a call of the torch operator."""
    torch._dynamo.allow_in_graph(function)
    _handlers[function] = lambda variable, tx, /, *args, **kwargs: _torch.VariableTracker.build(tx, overload).call_function(tx, list(args), dict(kwargs))


def _packet_handler(packet, name):
    def handler(variable, tx, /, *args, **kwargs):
        operators = registration.operators_of(name)
        if operators is None:
            raise RuntimeError(f"{name}: its library is not loaded")
        if len(operators) != 1:
            return None  # torch picks the overload, at every call
        written = operators[0].out.names if operators[0].out else ()
        return _guard(tx, operators[0]) and None if any(n in kwargs for n in written) else _call(tx, operators[0], args, kwargs)
    return handler


def _guard(tx, operator):
    """The program is valid for this operator only, not for one of the same name that is loaded later."""
    if not isinstance(operator.entry.function, dovetail.Operator):
        raise RuntimeError(f"{operator.name}: its library is not loaded")
    source = _torch.AttrSource(_torch.GlobalSource(tx.output.install_global_by_id("dovetail", operator.entry)), "function")
    _torch.install_guard(source.make_guard(_torch.GuardBuilder.ID_MATCH))
    return source


def _fuses(backend):
    """Is it Inductor, also inside vLLM's?"""
    if getattr(backend, "__name__", "") == "fullgraph_compiler":  # ahead of time: a frame above has the backend, and Dynamo gets what keeps the graph
        frame = inspect.currentframe()
        while frame and frame.f_code.co_name != "aot_compile_fullgraph":
            frame = frame.f_back
        backend = frame and frame.f_locals.get("backend")
    while hasattr(backend, "_torchdynamo_orig_backend"):  # wrapped by Dynamo
        backend = backend._torchdynamo_orig_backend
    config = getattr(getattr(backend, "compiler_fn", backend), "compilation_config", None)
    return "inductor" in (getattr(backend, "compiler_name", None), getattr(config, "backend", None))


def _guard_called(tx, operator, seen):
    """The operators that a decomposition calls are expanded with it, if they are off too."""
    for name in called(operator.declaration["native"]):
        for one in registration.operators_of(name) or ():
            if one.name not in seen:
                seen.add(one.name)
                source, rule = _guard(tx, one), rule_of(operator)
                _torch.install_guard(_torch.AttrSource(source, rule).make_guard(_torch.GuardBuilder.CONSTANT_MATCH))
                _guard_called(tx, one, seen)


def _call(tx, operator, args, kwargs):
    """None: Dynamo puts the call into the graph as it is. An exported program always contains the operator, which asks the policy when it
    runs."""
    source = _guard(tx, operator)
    if operator.native is None or torch.compiler.is_exporting():
        return None
    enabled = "_enabled_where_fused" if _fuses(tx.output.compiler_fn) else "_enabled"
    _torch.install_guard(_torch.AttrSource(source, enabled).make_guard(_torch.GuardBuilder.CONSTANT_MATCH))
    if getattr(operator.entry.function, enabled):
        return None
    _guard_called(tx, operator, {operator.name})
    return _torch.VariableTracker.build(tx, operator.native_overload()).call_function(tx, list(args), dict(kwargs))
