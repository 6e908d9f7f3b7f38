"""Frameworks: the Python of bridges/<name> is the package dovetail.<name>, found here by its folder. It has

    attach(library), detach(library)    a library was loaded; it is about to be unloaded
    OFFERS, offer(name)                 names that stand in `dovetail` as well, and what they are
    settle()                            wait for what the framework still runs; where a call may end before its kernel does
"""
import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
names = sorted(name for name in os.listdir(_folder) if name != "ops" and os.path.isfile(os.path.join(_folder, name, "__init__.py")))


def module(name):
    full = f"{__package__}.{name}"
    __import__(full)
    return sys.modules[full]


def attach(library):
    for name in names:
        module(name).attach(library)


def detach(library):
    for name in names:
        loaded = sys.modules.get(f"{__package__}.{name}")
        if loaded:
            loaded.detach(library)


def settle():
    for name in names:
        wait = getattr(sys.modules.get(f"{__package__}.{name}"), "settle", None)
        if wait:
            wait()


def offered(name):
    """The bridge that offers this name for `dovetail`, or None."""
    return next((bridge for bridge in map(module, names) if name in bridge.OFFERS), None)
