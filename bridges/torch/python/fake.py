"""Registering fakes."""
import torch
import torch.library

from .private import fake as _torch


def register(name, fn, library):
    """torch.library.register_fake, without its search through all modules for the caller's name: 5 ms for each operator at import."""
    if _torch:
        fakes = _torch.singleton.find(name).fake_impl
        library._registration_handles.append(fakes.register(fn, "the operator's declaration", lib=library))
    else:
        torch.library.register_fake(name, fn, lib=library)
