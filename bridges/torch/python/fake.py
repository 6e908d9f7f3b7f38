"""Registering fakes."""
import torch
import torch.library
from torch._library import simple_registry


def register(name, fn, library):
    """torch.library.register_fake, without its search through all modules for the caller's name: 5 ms for each operator at import."""
    fakes = getattr(simple_registry.singleton.find(name), "fake_impl", None)
    if fakes is None or not hasattr(library, "_registration_handles"):
        torch.library.register_fake(name, fn, lib=library)
    else:
        library._registration_handles.append(fakes.register(fn, "the operator's declaration", lib=library))
