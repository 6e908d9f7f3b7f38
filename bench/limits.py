"""What the machine can do at best (limits.c), measured beside the kernels: with as many threads, as many bytes, and the same streams.

    python bench/limits.py       one JSON object: GFLOP/s and GB/s with one thread, and with all
"""
import ctypes
import json
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
library = ctypes.CDLL(str(BUILD / "lib" / "bench_limits.so"))
library.limit_operations.restype = library.limit_bytes.restype = ctypes.c_double
library.limit_bytes.argtypes = [ctypes.c_int] * 4 + [ctypes.c_double, ctypes.c_int]

KINDS = ("f32", "bf16", "i8")
THREADS = sorted({1, os.cpu_count()})
sizes = [path.read_text() for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
LAST = max((int(size.strip().rstrip("K")) * 1024 for size in sizes), default=32 << 20)  # bytes of the last level
CACHE = min(LAST, 32 << 20)  # what a program can hope for, where many cores share it
COLD = min(4 * LAST, LAST + (512 << 20))  # so much that nothing of it is found in the cache


def operations(kind, threads):
    """Operations a second, in 1e9; 0 if the processor has no such instruction."""
    return library.limit_operations(KINDS.index(kind), threads) / 1e9


def speed(reads, writes, size, threads, past=False, large=False):
    """Bytes a second, in 1e9, of passes over `size` bytes."""
    return library.limit_bytes(reads, writes, past, large, size, threads) / 1e9


class Limit:
    """The least time that a kernel of so many operations and bytes can take. measure() is called in turn with the kernel, and the best counts."""

    def __init__(self, threads, kind, flops, size, reads=1, writes=0, cold=False):
        self.threads, self.kind, self.flops, self.size, self.streams = threads, kind, flops, size, (reads, writes)
        self.passes = COLD if cold else size
        if kind == "f16" or not operations(kind, 1):
            self.kind = "f32"
        self.peak = self.rate = 0

    def measure(self):
        self.peak = max(self.peak, operations(self.kind, self.threads))
        self.rate = max(self.rate, *(speed(*self.streams, self.passes, self.threads, past) for past in (False, True)))

    def row(self):
        """In microseconds, of operations and of bytes."""
        return {"threads": self.threads, "flops": self.flops, "bytes": self.size, "peak": self.kind, "memory": "cache" if self.passes <= CACHE else "DRAM",
            "gflops": self.peak, "gb": self.rate, "limits": [self.flops / self.peak / 1e3, self.size / self.rate / 1e3]}


PASSES = {"cache: read": (1, 0), "cache: copy": (1, 1), "cache: triad": (2, 1), "DRAM: read": (1, 0, True), "DRAM, pages of 2 MB: read": (1, 0, True, True),
    "DRAM: copy": (1, 1), "DRAM: copy, stores past the cache": (1, 1, True), "DRAM: triad": (2, 1), "DRAM: triad, stores past the cache": (2, 1, True)}


def table(figures=None, rounds=5):
    """{what: [with one thread, with all]}: the best of some rounds, and of `figures`."""
    figures = figures or {}
    for _ in range(rounds):
        for i, threads in enumerate(THREADS):
            now = {f"{kind}, GFLOP/s": operations(kind, threads) for kind in KINDS}
            for what, (reads, writes, *ways) in PASSES.items():
                now[f"{what}, GB/s"] = speed(reads, writes, CACHE // 4 if what.startswith("cache") else COLD, threads, *ways)
            for what, figure in now.items():
                best = figures.setdefault(what, [0] * len(THREADS))
                best[i] = max(best[i], figure)
    return {what: best for what, best in figures.items() if best[0]}


if __name__ == "__main__":
    print(json.dumps({"limits": table(), "threads": THREADS}, indent=1))
