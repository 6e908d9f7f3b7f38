from memory import POISON
from call import call
import os
import subprocess
import sys

found = b"".join(r.tobytes() for r in call().values())
if POISON != 165:
    sys.stdout.buffer.write(found)
else:  # the same in a process whose undefined memory holds something else
    env = {**os.environ, "MALLOC_PERTURB_": "90"}
    other = subprocess.run([sys.executable, *sys.argv], env=env, stdout=subprocess.PIPE).stdout
    if other != found:
        sys.exit("the result depends on what undefined memory held")
