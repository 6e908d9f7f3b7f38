from names import AT, ATOL, AXIS, SIZE, SLOT
from case import arguments
from call import call, differ, part
import sys

whole = call()
for low, high in ((0, AT), (AT, SIZE)):
    found = call(part(arguments(), low, high), ())
    expected = {k: a[(slice(None),) * AXIS + (slice(low, high),)] for k, a in whole.items() if k[0] == SLOT}
    words = differ(expected, found, SLOT, 0, ATOL)
    if words:
        sys.exit(f"[{low}, {high}) of the whole and of the slice alone: {words}")
