"""Everything private of torch that the bridge uses: one Feature each, with the names that it needs and what is lost without it.

torch promises nothing about these names, and each version has others. A feature looks its names up when it is first asked for. Where one
is missing the feature is off, and torch is left alone: `if feature:` asks, `feature.name` gives. `dovetail.torch.explain()` lists them all,
and DOVETAIL_DEBUG=1 says so when one turns out to be off.
"""
import functools
import importlib
import os
import sys
import threading

_DEBUG = int(os.environ.get("DOVETAIL_DEBUG") or 0)
_lock = threading.RLock()
features = {}  # name -> Feature, in the order of the table below


class Feature:
    """A group of private names of torch, under the last part of each. `works`: a function of the feature that raises where the names are
    there but do something else. `module`: the feature matters from its import on, so nobody asks before."""

    def __init__(self, name, lost, *names, works=None, module=None):
        self.name, self.lost, self.names, self.works, self.module = name, lost, names, works, module
        self.why = None  # not asked yet; "": it is there; else why it is off
        features[name] = self

    def __bool__(self):
        if self.why is None:
            self.why = self._missing()
            if self.why and _DEBUG >= 1:
                print(f"dovetail: torch: {self}", file=sys.stderr)
        return not self.why

    def __getattr__(self, name):  # only what is not looked up yet comes here
        if name.startswith("__") or not self:
            raise AttributeError(f"{name}: {self}")
        return object.__getattribute__(self, name)

    def _missing(self):
        for path in self.names:
            try:
                setattr(self, path.rpartition(".")[2], find(path))
            except ImportError:
                return f"this torch has no {path}"
        try:
            if self.works:
                self.works(self)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def off(self, why):
        """It was found not to work."""
        self.why = why
        if _DEBUG >= 1:
            print(f"dovetail: torch: {self}", file=sys.stderr)

    def __str__(self):
        if self.why is None:
            return f"{self.name}: not asked for yet"
        return f"{self.name}: off: {self.why}: {self.lost}" if self.why else f"{self.name}: on"


def find(path):
    """What stands at a dotted path, of which a part may be modules that are not imported yet."""
    found, so_far = importlib.import_module("torch"), "torch"
    for part in path.split(".")[1:]:
        so_far += "." + part
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(so_far)
    return found


# ---- functions of torch that are replaced while libraries are registered, where torch has no other way to tell us

class Replaced:
    """A function of torch (an attribute of `owner`) that also calls ours, as long as a library is registered. It always calls on, unless
    `instead` gives something. An error of ours turns this off; torch never sees it."""

    def __init__(self, path, before=None, instead=None, after=None, module="torch"):
        self.path, self.before, self.instead, self.after, self.module = path, before, instead, after, module
        self.owner = self.ours = self._original = None
        _replaced.append(self)
        if _registered:
            self.expect()

    def expect(self):
        """on(), as soon as its module is there."""
        from . import _when_imported
        _when_imported(self.module, self._on_if_registered)

    def _on_if_registered(self):
        with _lock:
            if _registered:
                self.on()

    @property
    def original(self):
        """torch's own, replaced or not."""
        return self._original or find(self.path)

    def on(self):
        if self.ours is None:
            try:
                self.owner = find(self.path.rpartition(".")[0])
                self._original = original = vars(self.owner)[self.path.rpartition(".")[2]]
            except (ImportError, KeyError):
                return replacing.off(f"this torch has no {self.path}")

            @functools.wraps(original)
            def calls_on(*args, **kwargs):
                self._ask(self.before, *args, **kwargs)
                found = self._ask(self.instead, *args, **kwargs)
                if found is not None:
                    return found
                result = original(*args, **kwargs)
                self._ask(self.after, *args, **kwargs)
                return result

            self.ours = calls_on
            setattr(self.owner, self.path.rpartition(".")[2], calls_on)

    def off(self):
        """If somebody else has replaced ours by now, it stays below theirs and only calls on."""
        name = self.path.rpartition(".")[2]
        if self.ours is not None and vars(self.owner).get(name) is self.ours:
            setattr(self.owner, name, self._original)
            self.ours = self._original = None

    def _ask(self, f, *args, **kwargs):
        if f is None or not _registered:
            return None
        try:
            return f(*args, **kwargs)
        except Exception as error:
            replacing.off(f"{self.path}: {type(error).__name__}: {error}")
            return None


_replaced = []
_registered = 0


def registered():
    """A library is about to be registered. Is it the first?"""
    global _registered
    with _lock:
        _registered += 1
        if _registered == 1:
            for x in _replaced:
                x.expect()
        return _registered == 1


def unregistered():
    global _registered
    with _lock:
        _registered -= 1
        if not _registered:
            for x in _replaced:
                x.off()


replacing = Feature("notice of what torch does", "kernels that a program registers on an operator are not seen by calls of its function")
