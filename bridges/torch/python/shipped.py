"""torch.ops.dovetail: the operators that come with Dovetail are loaded when torch.ops is first asked for one."""
import threading

import torch

_lock = threading.RLock()


def offer():
    """Make torch.ops.dovetail load them. Operators that are loaded already are found before."""
    space = torch.ops.dovetail
    plain = type(space)

    class Shipped(plain):
        __module__, __qualname__ = plain.__module__, plain.__qualname__  # torch names operators after them

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name.startswith("__") or type(self) is plain:
                    raise
            with _lock:
                self.__class__ = plain  # from here on it is torch's own
                from ..ops import _load_all
                _load_all()
            return getattr(self, name)

    space.__class__ = Shipped
