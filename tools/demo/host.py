"""What the demo's hosts share: the command line, timing, reporting."""
import hashlib
import json
import sys
import time

BINARY, OUT, DIGEST = sys.argv[1:4]
if hashlib.sha256(open(BINARY, "rb").read()).hexdigest() != DIGEST:
    sys.exit(f"{BINARY} is not the binary that was built")


def microseconds(fn, seconds=0.15):
    """Best time of one call, over samples that take long enough to measure."""
    fn()
    n, best, end = 1, float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        for _ in range(n):
            fn()
        took = time.perf_counter() - start
        if took < 50e-6:
            n *= 2
        else:
            best = min(best, took / n)
    return best * 1e6


def report(where, what, result, us=None):
    print(json.dumps({"where": where, "what": what, "result": result, "us": us}), flush=True)


def check(true, message):
    if not true:
        sys.exit(f"wrong: {message}")
