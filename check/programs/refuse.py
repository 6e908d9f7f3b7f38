from load import op
from call import call
import sys
import dovetail

try:
    call()
except (dovetail.DovetailError, TypeError) as error:
    if op.name.split(".")[0].split("::")[1] not in str(error) or "no message" in str(error):
        sys.exit(f"an error that says nothing: {error}")
else:
    sys.exit("this is outside of what the contract accepts, and it was run")
