"""Compiled programs refer to an operator by its entry: one for each name, until the process ends."""


class Entry:
    """`function` is the current dovetail.Operator: a compiled program calls it, and Dynamo's guards compare it.

    It changes when the operator's library is unloaded and loaded again.
    """

    __slots__ = ("function", "name", "__weakref__")

    def __init__(self, name):
        self.name = name
        self.clear()

    def clear(self):
        self.function = _Missing(self.name)


class _Missing:
    _enabled = _enabled_where_fused = True

    def __init__(self, name):
        self.name = name

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self.name}: its library is not loaded")


_entries = {}


def entry(name):
    """The entry of "ns::name.overload", also before its library is loaded."""
    if name not in _entries:
        _entries[name] = Entry(name)
    return _entries[name]
