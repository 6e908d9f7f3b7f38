from names import BINARY, OPERATOR, ROW
import sys
import dovetail

# The library and the operator.

try:
    library = dovetail.load(sys.argv[1] if len(sys.argv) > 1 else BINARY)
    op = dovetail.find(OPERATOR)
except Exception as error:
    print(error, file=sys.stderr)
    sys.exit(2)
dovetail.set_threads(1)
dovetail.set_row(ROW)
