"""The operators that come with Dovetail, loaded when they are first used: dovetail.ops.swiglu. Other libraries' operators, once they
are loaded, by namespace: dovetail.ops.my_ops.swiglu."""
import difflib as _difflib
import os as _os

from .. import _core, _library

_folder = _os.path.join(_os.path.dirname(_os.path.realpath(_os.path.join(_os.path.dirname(__file__), "..", "bin"))), "ops")
_shipped = sorted(f[:-3] for f in _os.listdir(_folder) if f.endswith(".so") and f != "base.so") if _os.path.isdir(_folder) else []


class Namespace:
    """The operators of one namespace, from all libraries."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return _library.find(f"{self.__name__}::{name}")
        except LookupError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self):
        return sorted(n.split("::")[1].split(".")[0] for n in _core.names() if n.startswith(self.__name__ + "::"))

    def __repr__(self):
        return f"<operators of {self.__name__}: {', '.join(dict.fromkeys(dir(self)))}>"


def _load(file):
    globals().update(_library.load(_os.path.join(_folder, file + ".so")).operators())


def _load_all():
    for file in _shipped:
        _load(file)


def __getattr__(name):
    if name in _shipped:  # an operator usually has the name of its folder
        _load(name)
        if name in globals():
            return globals()[name]
    is_namespace = lambda: any(n.startswith(name + "::") for n in _core.names())
    if is_namespace():
        return Namespace(name)
    if not name.startswith("_") or name == "_":  # who will look in vars(), by "from dovetail.ops import _"
        _load_all()
        if name in globals():
            return globals()[name]
        if is_namespace():  # the base set, which their formulas need
            return Namespace(name)
    known = {n.lower(): n for n in __dir__()}
    near = [known[n] for n in _difflib.get_close_matches(name.lower(), known, 3, 0.5)]
    said = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(__dir__())}"
    raise AttributeError(f"module 'dovetail.ops' has no operator or namespace '{name}'; {said}")


def __dir__():
    _load_all()
    return sorted({*(n.split("::")[1].split(".")[0] for n in _core.names() if n.startswith("dovetail::")),
                   *(n.split("::")[0] for n in _core.names())} - {"dovetail"})
