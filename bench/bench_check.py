"""What `dovetail check` costs for each shipped operator at default effort, PyTorch's questions included."""
import collections
import json
import os
import statistics
import subprocess
import sys

import dovetail

done = subprocess.run([dovetail.command(), "check", "--json", "dovetail", "base"], capture_output=True, text=True,
                      env={**os.environ, "DOVETAIL_PYTHON": sys.executable})
report = json.loads(done.stdout)
assert report["ok"] and any(r["property"] == "torch" and r["result"] == "pass" for r in report["results"]), report["table"]
cost = collections.Counter()
for result in report["results"]:
    cost[result["operator"]] += result["cpu"]
most, slowest = max((seconds, operator) for operator, seconds in cost.items())
what = f"dovetail check of {len(cost)} shipped operators, {report['passed']} properties pass, {report['failed']} fail"
for part, ours, goal in (("time", report["seconds"], "<= 60"), ("processor time of an operator, median", statistics.median(cost.values()), "<= 3"),
                         (f"processor time of an operator, most ({slowest})", most, "<= 12")):
    print(json.dumps({"what": f"{what}: {part}", "peer": "", "ours": ours, "theirs": None, "unit": "s", "goal": goal}))
