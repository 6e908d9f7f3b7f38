from names import AT, ATOL, SIZE, SLOT
from case import arguments
from call import call, differ, part
import sys

whole, a, b = call(), call(part(arguments(), 0, AT), ()), call(part(arguments(), AT, SIZE), ())
words = differ({k: a[k].astype("float64") + b[k].astype("float64") for k in a}, whole, SLOT, 0, ATOL)
if words:
    sys.exit(f"the sum of two parts and the whole: {words}")
