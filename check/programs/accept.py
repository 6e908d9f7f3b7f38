from call import call
import sys
import dovetail

try:
    call()
except dovetail.DovetailError as error:
    sys.exit(f"accepted, and then: {error}")
