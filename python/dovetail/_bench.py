"""dovetail.bench(): the time of a call with the arrays or tensors of any host, as `dovetail bench` measures it in C."""
import statistics
import time

from . import _bridges
from ._errors import DovetailError


class Timing:
    """`best` and `median`: seconds of one call; `gb_per_s` and `gflop_per_s` of the best, from the contract's bytes and flops, or None; `kernel`: the kernel
    that ran, or None: a decomposition ran, or a mode of the host is on. str() is a line."""

    def __init__(self, operator, how, samples):
        self.operator, self.kernel = how.operator if how else operator, how and how.selected and how.selected["name"]
        self.best, self.median = min(samples), statistics.median(samples)
        self.gflop_per_s, self.gb_per_s = (x and x / self.best * 1e-9 for x in ((how.flops, how.bytes) if how else (None, None)))

    def __repr__(self):
        rates = "".join(f", {x:.1f} {unit}" for x, unit in ((self.gb_per_s, "GB/s"), (self.gflop_per_s, "GFLOP/s")) if x)
        return f"{self.operator}{', ' + self.kernel if self.kernel else ''}: best {self.best * 1e6:.3f} us, median {self.median * 1e6:.3f} us{rates}"


def bench(operator, /, *args, seconds=0.3, **kwargs):
    """The time of operator(*args, **kwargs): a Timing, from calls that go on for `seconds`. Any function can be timed; the rates and the kernel are
    known of an operator of Dovetail. A sample is as many calls as take 20 us or more. The host's overhead counts, and the allocation of results unless
    they are given (out=). All calls have the same arguments: one that an operator writes to has the values that the call before left."""
    if not seconds > 0:
        raise ValueError(f"dovetail.bench: seconds: expected a positive number, found {seconds!r}")

    def sample(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            operator(*args, **kwargs)
        _bridges.settle()
        return time.perf_counter() - begin
    operator(*args, **kwargs)  # its own error, if it takes no such arguments
    how = _explanation(operator, args, kwargs)
    calls, begin, samples = 1, time.perf_counter(), []
    while (taken := sample(calls)) < 20e-6 or time.perf_counter() - begin < seconds / 10:  # warm up
        calls *= 2 if taken < 20e-6 else 1
    begin = time.perf_counter()
    while len(samples) < 5 or time.perf_counter() - begin < seconds:
        samples.append(sample(calls) / calls)
    name = getattr(operator, "name", None)
    return Timing(name if isinstance(name, str) else getattr(operator, "__name__", str(operator)), how, samples)


def _explanation(operator, args, kwargs):
    """Of the overload that takes these arguments; None: a mode of the host is on, or it is a function that Dovetail does not know."""
    overloads = getattr(operator, "overloads", ())
    for overload in () if callable(overloads) else overloads:
        try:
            return overload.explain(*args, **kwargs)
        except (DovetailError, TypeError):
            continue
    return None
