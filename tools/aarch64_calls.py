#!/usr/bin/env python3
"""aarch64_calls.py FILE: all calls of ops/*/cases.txt in NumPy, with what comes out written to FILE. aarch64_calls.py FILE OTHER: compares two."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/parity"))
import parity

import dovetail

if len(sys.argv) == 2:
    dovetail.ops._load_all()
    host, found = parity.NumPy(), {}
    for call, right in parity.sites():
        if right and not call.startswith("kinds::"):
            op, args = dovetail.site(call)
            found[call] = [[*host.array(x)[:2], host.array(x)[2].hex()] for x in host.call(op, args, False)[0]]
    pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
else:
    a, b = (json.loads(pathlib.Path(file).read_text()) for file in sys.argv[1:])
    assert a.keys() == b.keys()
    for call in a:
        try:
            parity.distance([[*x[:2], bytes.fromhex(x[2])] for x in a[call]], b[call])
        except parity.Differs as e:
            sys.exit(f"{call}: {e}")
    print(f"{len(a)} calls of {len({call.partition('(')[0] for call in a})} operators: the same, or {parity.NEAR} units in the last place apart")
