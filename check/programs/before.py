from memory import kept, libc, tensors
from case import other_arguments
from call import call
import contextlib
import ctypes
import dovetail

# For a fault that shows only after a call with other arguments.

with contextlib.suppress(dovetail.DovetailError):
    call(other_arguments(), ())
for pages in kept:  # all that was lent for the call is gone
    libc.mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages))), ctypes.c_size_t(len(pages)), 0)
tensors.clear()
