from call import call
from case import arguments, results
from memory import libc
import ctypes
import gc
import os
import pathlib
import sys
import dovetail


class mallinfo2(ctypes.Structure):
    NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES.split()]


def look():
    heap = 0
    gc.collect()
    if hasattr(libc, "mallinfo2"):
        libc.mallinfo2.restype = mallinfo2
        found = libc.mallinfo2()
        heap = found.uordblks + found.hblkhd
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), heap, pages


args, out, CALLS = arguments(), results(), 250
held = []
for stretch in range(6):
    for _ in range(CALLS):
        try:
            call(args, out)
        except dovetail.DovetailError:
            pass
    held.append(look())
for k, kind in enumerate(("file descriptors", "threads", "bytes of malloc()", "pages of mappings")):
    grown = [b[k] - a[k] for a, b in zip(held[1:], held[2:])]
    if min(grown) >= (CALLS if kind == "bytes of malloc()" else CALLS // 2):
        sys.exit(f"{kind} leak: in each {CALLS} calls {grown}")
