"""Runs scripts in forks of one process that has imported torch, which takes seconds. Standard input has a request a line, a JSON object with
code, arguments, environment, folder, and the files out and err; the answer is the script's exit status. conftest.py's `forked` starts it."""
import json
import os
import sys
import warnings

import numpy  # noqa: F401
import torch  # noqa: F401


def wait_for_a_request():
    """Returns in a fork for each request; in this process at the end of input, with None."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


request = wait_for_a_request()
if request:
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = ""
    sys.argv = ["-c", *request["arguments"]]
    for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, request["out"], os.O_WRONLY), (2, request["err"], os.O_WRONLY)):
        os.dup2(os.open(name, flags | os.O_CREAT), number)
    warnings.simplefilter("ignore")
    exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
