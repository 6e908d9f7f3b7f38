#!/usr/bin/env python3
"""Calls each shipped operator in NumPy, as ops/*/cases.txt says.

    shipped_calls.py FILE [FOLDER]    writes the results to FILE; FOLDER: of the binaries there, which may be older: calls that they refuse are left out
    shipped_calls.py --compare A B    compares two such files; calls that only one has are left out"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/parity"))
import parity

import dovetail

if sys.argv[1] != "--compare":
    older = len(sys.argv) > 2
    if older:
        for file in sorted(pathlib.Path(sys.argv[2]).glob("*.so")):
            dovetail.load(file)
    else:
        dovetail.ops._load_all()
    host, found = parity.NumPy(), {}
    for call, right in parity.sites():
        if right and not call.startswith("kinds::"):
            try:
                op, args = dovetail.site(call)
                results = host.call(op, args, False)[0]
            except dovetail.DovetailError:
                if not older:
                    raise
            else:
                found[call] = [[*host.array(x)[:2], host.array(x)[2].hex()] for x in results]
    pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
else:
    a, b = (json.loads(pathlib.Path(file).read_text()) for file in sys.argv[2:])
    both = [call for call in a if call in b]
    for call in both:
        try:
            parity.distance([[*x[:2], bytes.fromhex(x[2])] for x in a[call]], b[call])
        except parity.Differs as e:
            sys.exit(f"{call}: {e}")
    print(f"{len(both)} calls of {len({call.partition('(')[0] for call in both})} operators: the same, or {parity.NEAR} units in the last place apart")
