from names import ATOL, RTOL, SLOT
from case import arguments
from call import call, differ, part
import sys

found = call(None, ())
words = differ(found, call(part(arguments(), None, None), ()), SLOT, RTOL, ATOL)
if words:
    sys.exit(f"as it is and contiguous it gives {words}")
