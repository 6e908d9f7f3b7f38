"""Which operators run their own kernels, and which their decomposition."""
import os
import threading

from . import _core

_here = threading.local()


def _words(text):
    return ",".join(text) if isinstance(text, (list, tuple)) else text


class policy:
    """Operators on and off: "all,-my_ops::rms_norm" or ["none", "+swiglu"] (at most one of all, none and vllm-default, then +name and
    -name).

        with dovetail.policy("none"):            # in this thread, until the block ends
            ...
        dovetail.policy.set("all,-rms_norm")     # in the process; None: back to DOVETAIL_OPS and the file named by DOVETAIL_POLICY

    An operator that is off runs its decomposition. vllm-default: operators are off in what Inductor compiles.
    """

    def __init__(self, text):
        self.text = _words(text)

    def __enter__(self):
        before = getattr(_here, "stack", [])
        _core.policy_set_thread(self.text)
        _here.stack = [*before, self.text]
        return self

    def __exit__(self, *exception):
        _here.stack = _here.stack[:-1]
        _core.policy_set_thread(_here.stack[-1] if _here.stack else None)

    @staticmethod
    def set(text):
        """The policy of the process."""
        _core.policy_set(_words(text))

    @staticmethod
    def load(path):
        """The policy of the process, from a file of such words."""
        _core.policy_load(os.fsdecode(path))

    @staticmethod
    def enabled(operator):
        """Would the operator run its own kernels now?"""
        return all(_core.policy_enabled(one) for one in operator.overloads)

    @staticmethod
    def counts():
        """How often each operator was called while on and while off since the start: {name: (on, off)}."""
        return _core.policy_counts()

    @staticmethod
    def generation():
        """A number that changes whenever a decision may: for cache keys."""
        return _core.policy_generation()
