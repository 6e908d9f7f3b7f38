"""Operators in MindSpore's graphs (`ms.jit`): a primitive of MindSpore for each call site. Its kernel and its inference are C
(../graph.c), for all operators the same; the call site is text, so that a graph that was saved works in another process."""
import ctypes
import functools
import inspect
import json
import linecache
import math
import os
import re
import threading

import mindspore
import numpy as np
from mindspore import Tensor, ops
from mindspore.common import dtype as mstype

from .. import _core, _describe, _library
from . import refusal

_C = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib", "libdovetail_mindspore.so")


_MADE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "made.py")
_lines, _lock = linecache.getlines(_MADE), threading.Lock()


class _Outside:
    """A function that is not for graphs."""

    __ms_class__ = refusal(lambda f: f"dovetail.mindspore.{f.__name__}: a graph of MindSpore cannot call it: make the primitive outside, and call that")

    def __init__(self, function):
        functools.update_wrapper(self, function)

    def __call__(self, *args, **kwargs):
        return self.__wrapped__(*args, **kwargs)

    def __reduce__(self):  # for pickle: by its name
        return self.__name__


@_Outside
def primitive(operator, **fixed):
    """A function that calls an operator in graphs and in eager mode, with its tensors as arguments.

    fixed: the arguments that are not tensors; those with a default may be left out. For a `Tensor?`: True if calls give it, or False, the
    default. For a `Tensor[]`: how many tensors it has. For a `Tensor?[]`: that, or a list of True and False. The function takes all tensors in
    the schema's order, those of a list one by one (xs_0, xs_1), and gives the results as the operator does.
    """
    if not hasattr(operator, "overloads"):
        raise TypeError(f"expected an operator, such as dovetail.ops.rms_norm, found {operator!r}")
    if len(operator.overloads) > 1:
        raise TypeError(f"{operator.name}: it has several overloads; give one of them: {', '.join(o.name for o in operator.overloads)}")
    tree, (slots, results) = json.loads(operator.json()), operator._slots()
    name = operator.name
    target = mindspore.get_context("device_target")
    reason = _refusal(tree, results) if target == "CPU" else f"MindSpore's graphs here run on {target}, and a primitive's kernel on the CPU: call the operator in eager mode, or mindspore.set_device('CPU') first"
    if reason:
        raise NotImplementedError(f"{name}: {reason}")
    parameters, words, given = _describe.signature(operator).parameters, [], []
    unknown = set(fixed) - {_describe.python_name(s[0]) for s in slots}
    if unknown:
        raise TypeError(f"{name}: no argument is called {', '.join(sorted(unknown))}")
    for slot in slots:
        key = _describe.python_name(slot[0])
        if slot[1].startswith("Tensor"):
            words.append(_tensors(name, slot, fixed.get(key), given))
        elif slot[1].startswith("Generator") and fixed.get(key) is not None:
            raise NotImplementedError(f"{name}: argument '{key}': a graph cannot hold a Generator, whose state changes with each call; leave it out")
        elif key in fixed:
            try:
                words.append(_text(fixed[key], slot[1]))
            except (TypeError, UnicodeError) as error:
                raise TypeError(f"{name}: argument '{key}' of type {slot[1]}: {error}") from None
        elif parameters[key].default is inspect.Parameter.empty:
            raise TypeError(f"{name}: argument '{key}' of type {slot[1]} is missing: primitive(operator, {key}=...)")
        else:
            words.append("default")
    writing = tree["functional_form_of"]
    site = f"{writing or name}({', '.join(f'{s[0]}={w}' for s, w in zip(slots, words))})"
    _core.site(site)  # an error now is better than one in a graph
    newest = _core.find(writing or name)
    if not writing and newest._pointer != operator._pointer:
        raise ValueError(f"{name}: another version of its library was loaded after it, and primitives call the operator that was loaded last")
    library = _library.library_of(newest)
    node = ("functional " if writing else "") + site, "\n".join([library.path, *library._sources, *library._flags]) if library else ""
    kinds = _kinds(node, len(results))
    there = sum(kind != ABSENT for kind in kinds)
    if not there:
        raise NotImplementedError(f"{name}: with these arguments it has no result")
    random = "nondeterministic_seeded" in tree["tags"] or any(s[1].startswith("Generator") for s in slots)
    forward = _node("dv_node", there, node, _gradient(len(given), there, node) if given else None, random)
    made = iter(["dv_out"] if there == 1 else [f"dv_out[{i}]" for i in range(there)])
    out = ["None" if kind == ABSENT else f"dv_squeeze({next(made)})" if kind == LIFTED else next(made) for kind in kinds]
    lines = [f"dv_tensor({x}, {f'{name}: argument {x!r}: expected a mindspore.Tensor'!r})" for x in given]
    return _function(given, [*lines, f"dv_out = dv_node({', '.join(given)})", f"return {', '.join(out) if any(kinds) else 'dv_out'}"],
                     name, f"{operator.schema}\n\nA primitive of MindSpore for calls {node[0]}", dv_node=forward, dv_squeeze=_squeeze, dv_tensor=_tensor)


def _refusal(tree, results):
    """Why an operator cannot be a node, or None."""
    alias = [x["alias"] for x in tree["schema"]["args"] + tree["schema"]["returns"] if x["alias"]]
    if any(a["write"] or (a["element"] or {}).get("write") for a in alias):
        return "it writes an argument, which MindSpore's graphs do not order with other operators: make a primitive of operator.functional()"
    if any(slot[1] not in ("Tensor", "Tensor?") for slot in results) or not results:
        return f"a primitive's results are tensors, this operator's are {', '.join(s[1] for s in results) or 'none'}"
    if alias:
        return "its result is a view of an argument, which MindSpore's graphs make by their own operators alone"
    if (tree["contract"] or {"unbacked": ()})["unbacked"]:
        return "sizes of its result depend on what its tensors contain, and a node of MindSpore on the CPU must know them before it runs"
    return None


PLAIN, LIFTED, ABSENT = 0, 1, 2


def _kinds(node, results):
    """Of each result. One that may have no dims is lifted: the node gives it with a last dim of 1 (../graph.c)."""
    kinds = (ctypes.c_byte * results)()
    bridge = ctypes.CDLL(_C)
    bridge.dv_mindspore_error.restype = ctypes.c_char_p
    if bridge.dv_mindspore_prepare_node(node[0].encode("utf-8", "surrogateescape"), os.fsencode(node[1]), kinds, ctypes.c_size_t(results)):
        raise ValueError(bridge.dv_mindspore_error().decode("utf-8", "replace"))
    return list(kinds)


def _tensor(x, message):
    """What is not a tensor would end the process in MindSpore."""
    if not isinstance(x, Tensor):
        raise TypeError(message)


def _squeeze(x):
    if x.dtype == mstype.bfloat16:  # no operator of MindSpore on a CPU changes its shape
        return ops.cast(ops.reshape(ops.cast(x, mstype.float32), x.shape[:-1]), mstype.bfloat16)
    return ops.reshape(x, x.shape[:-1])


def _node(function, outputs, node, bprop=None, random=False):
    made = ops.Custom(f"{_C}:{function}{'_several' if outputs > 1 else ''}", func_type="aot", bprop=bprop)
    made.multi_output = outputs > 1
    made.add_prim_attr("multi_output", made.multi_output)
    made.add_prim_attr("output_names", [f"out{i}" for i in range(outputs)])
    made.add_prim_attr("reg_op_name", "dovetail")
    made.add_prim_attr("dv_site", node[0])
    made.add_prim_attr("dv_file", node[1])
    if random:
        made.add_prim_attr("side_effect_hidden", True)  # or MindSpore makes one of two equal calls
    return made


def _gradient(tensors, results, node):
    given = [f"x_{i}" for i in range(tensors)]
    call = f"dv_backward({', '.join(given)}, {'*out, *grad' if results > 1 else 'out, grad'})"
    return _function([*given, "out", "grad"], [f"found = {call if tensors > 1 else f'({call},)'}",
                     f"return {', '.join(f'dv_squeeze(found[{i}])' for i in range(tensors))},"], "bprop", f"The gradient of {node[0]}",
                     dv_backward=_node("dv_node_gradient", tensors, node), dv_squeeze=_squeeze)


def _function(parameters, lines, title, doc, **names):
    """MindSpore reads the source of a function, and wants a parameter for each tensor. It also looks for the source's file, and complains
    where there is none: all sources are lines of one file that exists, for Python alone."""
    name = re.sub(r"\W", "_", title.split("::")[-1])
    body = "".join(f"        {line}\n" for line in lines)
    source = f"def make({', '.join(names)}):\n    def {name}({', '.join(parameters)}):\n{body}    return {name}\n"
    with _lock:
        before = len(_lines)
        _lines.extend(source.splitlines(True))
        linecache.cache[_MADE] = 0, None, _lines, _MADE
    scope = {"__name__": __name__}
    exec(compile("\n" * before + source, _MADE, "exec"), scope)  # our own source
    made = scope["make"](**names)
    made.__qualname__, made.__doc__ = title, doc
    return made


def _tensors(name, slot, value, given):
    """The word of an argument, and in `given` the parameters for its tensors."""
    key, type = _describe.python_name(slot[0]), slot[1]
    if type == "Tensor" and value is not None:
        raise TypeError(f"{name}: argument '{key}' of type Tensor: each call of the primitive gives the tensor; leave it out here")
    if "[" in type:
        there = [True] * value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else value
        if not isinstance(there, (list, tuple)) or not all(isinstance(x, bool) for x in there) or not (all(there) or "?[" in type):
            raise TypeError(f"{name}: argument '{key}' of type {type}: expected how many tensors it has, found {_shown(value)}; "
                            "each call of the primitive gives the tensors themselves")
        given.extend(f"{key}_{i}" for i, x in enumerate(there) if x)
        return f"[{', '.join('f32[1]' if x else 'none' for x in there)}]"
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{name}: argument '{key}' of type {type}: expected True if calls give a tensor, else False, found {_shown(value)}")
    if type.endswith("?") and not value:
        return "none"
    given.append(key)
    return "f32[1]"


def _shown(value):
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return "a mindspore.Tensor" if isinstance(value, Tensor) else repr(value)


def _text(value, type):
    """A value as docs/site.md writes it."""
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        value = value.tolist()
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type.startswith("ScalarType") and not isinstance(value, (str, list, tuple)):
        return str(value).lower() if isinstance(value, mstype.Type) else np.dtype(value).name
    if isinstance(value, str) and type.startswith(("ScalarType", "Device", "Layout", "MemoryFormat")):
        return value
    if isinstance(value, str) and type.startswith("str"):
        return _quoted(value)
    if isinstance(value, (list, tuple, range)):
        return f"[{', '.join(_text(v, type) for v in value)}]"
    if isinstance(value, complex):
        return f"{value.real!r}{'+' if math.copysign(1, value.imag) > 0 else '-'}{abs(value.imag)!r}j"
    if not isinstance(value, (int, float)):
        raise TypeError(f"found {_shown(value)}")
    return repr(value)


def _quoted(text):
    return '"' + "".join(f"\\x{b:02x}" if not 32 <= b < 127 or b in b'"\\' else chr(b) for b in text.encode("utf-8", "surrogateescape")) + '"'
