"""The operator, its rows, arguments and results: in a real program the checker writes this part."""
AT_END, APART, ROW, OTHER_ROW, RTOL, ATOL = True, False, 0, 1, 1e-6, 1e-6
BINARY, OPERATOR = "my_ops.so", "my_ops::scale"
NARGS, SLOT, AXIS, AT, SIZE = 1, 1, 0, 2, 4
WRITTEN = {}
AXES = {"x": (0,)}
