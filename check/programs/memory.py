from names import APART, AT_END
import ctypes
import mmap
import os
import sys

POISON = int(os.environ.setdefault("MALLOC_PERTURB_", "165"))  # what undefined memory holds
if "GLIBC_TUNABLES" not in os.environ:
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.tcache_count=0"
    os.execv(sys.executable, [sys.executable, *sys.argv])

import dovetail
import numpy

libc = ctypes.CDLL(None)
kept, tensors = [], []


def guarded(size, fill=0xc3, more=0):
    """Bytes with one end next to an inaccessible page; more: so many lie between it and the upper page."""
    more *= AT_END
    page, room = mmap.PAGESIZE, -(-(size + more) // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, room + 32 * page)
    kept.append(pages)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for at in (address, address + 16 * page + room):
        libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(16 * page), 0)
    memory = numpy.frombuffer(pages, numpy.uint8, size, 16 * page + (room - size - more if AT_END else 0))
    memory[:] = fill
    return memory


def tensor(dtype, shape, strides, first, elements, writable):
    """Strides and the first element's place are counted in elements."""
    data = numpy.array(elements, dtype) if not isinstance(elements, bytes) else numpy.frombuffer(elements, dtype)
    memory = guarded(data.nbytes, more=data.itemsize if APART and data.nbytes and data.nbytes % (2 * data.itemsize) == 0 else 0)
    memory[:] = data.view(numpy.uint8)
    address, page = memory.ctypes.data, mmap.PAGESIZE
    flat = memory.view(dtype)
    if not writable and data.nbytes:
        start = address // page * page
        libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(address + data.nbytes - start), 1)
        flat.flags.writeable = False
    size = flat.dtype.itemsize
    made = numpy.lib.stride_tricks.as_strided(flat[first:], shape, [s * size for s in strides], writeable=writable)
    tensors.append((made, memory))
    return made


def result(dtype, shape):
    size = int(numpy.prod(shape, dtype=numpy.int64)) * numpy.dtype(dtype).itemsize
    return guarded(size, POISON).view(dtype).reshape(shape)
