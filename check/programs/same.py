from names import ATOL, AT_END
from memory import tensors
from case import arguments, results
from call import call, differ
import sys

args, out = arguments(), results()
own = [(a, a.copy()) for a, memory in tensors]


def again(other=False):
    """The same call in the same memory, or with other contents."""
    for a, contents in own:
        a[...] = contents * -0.5 + 0.125 if other and a.dtype.kind not in "iub" else contents
    return call(args, out)


again(True)
first = again()
words = None
for turn in range(8):  # elsewhere, at either end of its pages
    AT_END = not AT_END
    words = words or differ(first, call(arguments()), None, 0, ATOL)
again(True)
words = words or differ(first, again())
if words:
    sys.exit(f"the same call gives {words}")
