from memory import tensors
from case import arguments
from call import call
import sys
import dovetail

args = arguments()
before = [a.tobytes() for a, memory in tensors]
try:
    call(args)
except dovetail.DovetailError as error:
    if before != [a.tobytes() for a, memory in tensors]:
        sys.exit(f"an argument was written, and then: {error}")
