"""What `dovetail check` costs for the shipped operators at default effort. PyTorch is asked about all of them at once: that is part of the whole only."""
import collections
import json
import os
import resource
import statistics
import subprocess
import sys

import dovetail

done = subprocess.run([dovetail.command(), "check", "--json", "dovetail", "base"], capture_output=True, text=True,
                      env={**os.environ, "DOVETAIL_PYTHON": sys.executable})
report, used = json.loads(done.stdout), resource.getrusage(resource.RUSAGE_CHILDREN)
assert report["ok"] and any(r["property"] == "torch" and r["result"] == "pass" for r in report["results"]), report["table"]
cost = collections.Counter()
for result in report["results"]:
    cost[result["operator"]] += result["cpu_seconds"]
slowest, most = cost.most_common(1)[0]
for what, ours, goal in (
        (f"{len(cost)} shipped operators, PyTorch's questions included, {report['passed']} properties pass, {report['failed']} fail", used.ru_utime + used.ru_stime, ""),
        ("a shipped operator, median", statistics.median(cost.values()), "<= 3"), (f"a shipped operator, most: {slowest}", most, "<= 12")):
    print(json.dumps({"what": f"processor time of dovetail check: {what}", "peer": "", "ours": ours, "theirs": None, "unit": "s", "goal": goal}))
