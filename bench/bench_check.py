"""How long `dovetail check` takes for all shipped operators, PyTorch's questions included, at default effort."""
import json
import os
import subprocess
import sys

import dovetail

done = subprocess.run([dovetail.command(), "check", "--json", "dovetail", "base"], capture_output=True, text=True,
                      env={**os.environ, "DOVETAIL_PYTHON": sys.executable})
report = json.loads(done.stdout)
assert report["ok"] and any(r["property"] == "torch" and r["result"] == "pass" for r in report["results"]), report["table"]
print(json.dumps({"what": f"dovetail check of all shipped operators: {report['passed']} properties pass, {report['failed']} fail", "peer": "", "ours": report["seconds"],
                  "theirs": None, "unit": "s", "goal": "<= 60"}))
