"""The binary on NumPy arrays, in a process where torch cannot be imported."""
import sys

sys.modules["torch"] = None  # an import of it would fail

import numpy as np

import dovetail
from host import BINARY, check, microseconds, report

my_ops = dovetail.load(BINARY)
random = np.random.default_rng(0)
for shape in ((), (2, 3), (64, 64), (1000, 1000)):
    gate, up = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
    right = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * up
    found = my_ops.swiglu(gate, up)
    check(isinstance(found, np.ndarray) and found.dtype == np.float32 and found.shape == shape, f"swiglu gave {type(found)} for shape {shape}")
    error = float(np.max(np.abs(found - right) / (1 + np.abs(right))))
    check(error < 1e-6, f"swiglu on NumPy, shape {shape}: error {error}")

gate, up, out = (random.standard_normal((64, 64)).astype(np.float32) for _ in range(3))
expected = my_ops.swiglu(gate, up)
report("NumPy, no torch", "swiglu, 64 x 64", f"error {error:.0e}", microseconds(lambda: my_ops.swiglu(gate, up)))
my_ops.swiglu(gate, up, out=out)
check(np.array_equal(out, expected), "swiglu with out=")
a, b, c = (np.ones(2, np.float32) for _ in range(3))
report("NumPy, no torch", "swiglu(a, b, out=c), 2 elements", "equal", microseconds(lambda: my_ops.swiglu(a, b, out=c)))
# A view with strides is taken as it should be: the runtime makes it contiguous for this kernel.
check(np.array_equal(my_ops.swiglu(gate.T, up.T), expected.T), "swiglu on transposed views")
try:
    my_ops.swiglu(gate, up[:3])
    check(False, "swiglu accepted shapes that differ")
except Exception as e:
    check("up" in str(e), f"the message does not name the argument: {e}")
    report("NumPy, no torch", "swiglu of 64 x 64 and 3 x 64", f"refused: {e}".replace("my_ops::swiglu: ", ""))
check(not any(m == "torch" or m.startswith("torch.") for m in sys.modules if sys.modules[m] is not None), "torch was imported")
