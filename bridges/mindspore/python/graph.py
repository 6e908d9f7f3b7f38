"""Operators in MindSpore's graphs (`ms.jit`): a primitive of MindSpore for each call site. Its kernel and its inference are C
(../graph.c), for all operators the same; the call site is text, so that a graph that was saved works in another process."""
import inspect
import json
import linecache
import math
import os

from mindspore import ops

from .. import _core, _describe, _library

_C = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib", "libdovetail_mindspore.so")


def primitive(operator, **fixed):
    """A primitive that calls an operator in graphs and in eager mode, with its tensors by position.

    fixed: the arguments that are not tensors; those with a default may be left out. Of a `Tensor?` it is given whether it is there (True or
    False, the default), of a `Tensor[]` how many tensors it has. The primitive takes all tensors in the schema's order, those of a list one by
    one, and gives the results as the operator does.
    """
    if len(operator.overloads) > 1:
        raise TypeError(f"{operator.name}: it has several overloads; give one of them: {', '.join(o.name for o in operator.overloads)}")
    tree, (slots, results) = json.loads(operator.json()), operator._slots()
    name = operator.name
    if any(a["alias"] and a["alias"]["write"] for a in tree["schema"]["args"]):
        raise NotImplementedError(f"{name}: it writes an argument, which MindSpore's graphs do not order with other operators: "
                                  "make a primitive of operator.functional()")
    if any(slot[1] != "Tensor" for slot in results) or not results:
        raise NotImplementedError(f"{name}: a primitive's results are tensors, this operator's are {', '.join(s[1] for s in results) or 'none'}")
    parameters, words, count = _describe.signature(operator).parameters, [], 0
    unknown = set(fixed) - {_describe.python_name(s[0]) for s in slots}
    if unknown:
        raise TypeError(f"{name}: no argument is called {', '.join(sorted(unknown))}")
    for slot in slots:
        key = _describe.python_name(slot[0])
        if slot[1].startswith("Tensor"):
            words.append(text := _tensors(name, slot, fixed.get(key)))
            count += text.count("f32")
        elif key in fixed:
            words.append(_text(fixed[key], slot[1]))
        elif parameters[key].default is inspect.Parameter.empty:
            raise TypeError(f"{name}: argument '{key}' of type {slot[1]} is missing: primitive(operator, {key}=...)")
        else:
            words.append("default")
    writing = tree["functional_form_of"]
    site = f"{writing or name}({', '.join(f'{s[0]}={w}' for s, w in zip(slots, words))})"
    _core.site(site)  # an error now is better than one in a graph
    node = ("functional " if writing else "") + site, _file_of(writing or name)
    return _node("dovetail", len(results), node, _gradient(count, len(results), node))


def _node(function, outputs, node, bprop=None):
    made = ops.Custom(f"{_C}:{function}{'_several' if outputs > 1 else ''}", func_type="aot", bprop=bprop)
    made.multi_output = outputs > 1
    made.add_prim_attr("multi_output", made.multi_output)
    made.add_prim_attr("output_names", [f"out{i}" for i in range(outputs)])
    made.add_prim_attr("reg_op_name", "dovetail")
    made.add_prim_attr("dv_site", node[0])
    made.add_prim_attr("dv_file", node[1])
    return made


def _file_of(name):
    """The binary that defines an operator, for a process that has not loaded it."""
    return next((library.path for library in _library.libraries() for o in library.operators().values() if name in (x.name for x in o.overloads)), "")


def _gradient(tensors, results, node):
    """MindSpore reads the source of a bprop, and wants a parameter for each tensor."""
    given = ", ".join(f"x_{i}" for i in range(tensors))
    call = f"backward({given}, {'*out, *grad' if results > 1 else 'out, grad'})"
    source = f"def make(backward):\n    def bprop({given}, out, grad):\n        return {call if tensors > 1 else f'({call},)'}\n    return bprop\n"
    file = f"<gradient of {node[0]}>"
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    scope = {"__name__": __name__}
    exec(compile(source, file, "exec"), scope)  # our own source
    return scope["make"](_node("dovetail_gradient", tensors, node))


def _tensors(name, slot, given):
    key, type = slot[:2]
    if "[" in type:
        if not isinstance(given, int) or isinstance(given, bool) or given < 0:
            raise TypeError(f"{name}: argument '{key}' of type {type}: expected how many tensors it has, found {given!r}")
        return f"[{', '.join(['f32[1]'] * given)}]"
    return "none" if type.endswith("?") and not given else "f32[1]"


def _text(value, type):
    """A value as docs/site.md writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if type.startswith(("ScalarType", "Device", "Layout", "MemoryFormat")) else _quoted(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(v, type) for v in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return repr(value)


def _quoted(text):
    return '"' + "".join(f"\\x{b:02x}" if b < 32 or b in b'"\\' else chr(b) for b in text.encode("latin-1", "strict")) + '"'
