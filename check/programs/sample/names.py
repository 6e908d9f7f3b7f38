"""Which operator and rows, and what is known of arguments and results: the checker writes its own."""
AT_END, ROW, OTHER_ROW, RTOL, ATOL = True, 0, 1, 1e-6, 1e-6
BINARY, OPERATOR = "my_ops.so", "my_ops::scale"
NARGS, SLOT, AXIS, AT, SIZE = 1, 1, 0, 2, 4
WRITTEN = {}
AXES = {"x": (0,)}
