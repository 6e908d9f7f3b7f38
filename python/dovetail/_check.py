"""`dovetail check` from Python: runs the command in a separate process, so that a crash there is a result here."""
import json
import os
import subprocess
import sys

from . import _core, command
from ._errors import DovetailError
from ._library import Library, libraries


class Result:
    """One property of one operator, of one of its kernels, or one test of a framework, such as "fake".

    result: "pass", "fail" or "not checked". message: what is wrong, why it was not checked, or what a pass leaves out. case: the smallest
    failing case in words. reproduce: the command that repeats the failure, for a shell; key: its --case.
    """

    def __init__(self, found):
        self.property, self.operator, self.kernel, self.test, self.result = (found[k] for k in ("property", "operator", "kernel", "test", "result"))
        self.message = found.get("message") or found.get("reason") or found.get("omitted", "")
        self.kind, self.case, self.key, self.reproduce = (found.get(k) for k in ("kind", "case", "key", "reproduce"))
        self.no_arguments = found.get("no_arguments", False)
        self.cases, self.refused, self.elements = found["cases"], found["refused"], found.get("elements")

    passed = property(lambda self: self.result == "pass")
    failed = property(lambda self: self.result == "fail")

    def __repr__(self):
        part = f", kernel {self.kernel}" if self.kernel else f", test {self.test}" if self.test else ""
        return f"{self.result} {self.property}: {self.operator}{part}" + (f": {self.message}" if self.message else "")


class Report:
    """The report of `dovetail check`: true when nothing failed and something was checked; its repr is the table."""

    def __init__(self, document):
        self.seed, self.seconds, self.operators, self.table = (document[k] for k in ("seed", "seconds", "operators", "table"))
        self.results = [Result(r) for r in document["results"]]
        self._ok = document["ok"]

    failures = property(lambda self: [r for r in self.results if r.failed])

    def __bool__(self):
        return self._ok

    def __iter__(self):
        return iter(self.results)

    def __len__(self):
        return len(self.results)

    def __repr__(self):
        return self.table


def _word(target):
    """A target as the command's argument, and the name of an operator in it, or None."""
    if isinstance(target, Library):
        return target.path, None
    if isinstance(target, _core.Operator) or hasattr(target, "overloads"):
        of = next((library for library in libraries() if target in library.operators().values()), None)
        return (of.path, target.name.split("::")[1]) if of else (target.name, None)
    return os.fspath(target), None


def check(target, *, op=None, only=None, seed=None, time=None, flags=()):
    """Make inputs from operators' declarations, run the operators on them, and report every difference from the declaration: `dovetail
    check`.

        report = dovetail.check("my_ops.so")    # or my_ops.c, a folder, an installed package, a Library, an operator
        assert report, report                   # the table, with the smallest failing cases
        print(report.failures[0].reproduce)     # the command that repeats the failure

    op: only this operator. only: a property or several, such as "memory" or ["memory", "fake"]. seed: draw other cases.
    time: begin no new check after this many seconds. flags: arguments of `dovetail build` for a source file, as for load(). Operators run in
    separate processes.
    """
    word, name = _word(target)
    arguments = [command(), "check", "--json"]
    for option, value in (("op", op or name), ("only", only if only is None or isinstance(only, str) else ",".join(only)), ("seed", seed), ("time", time)):
        if value is not None:
            arguments.append(f"--{option}={value}")
    done = subprocess.run([*arguments, *flags, "--", word], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment())
    try:
        document = json.loads(done.stdout)
    except ValueError:
        raise DovetailError(done.stderr.strip() or f"dovetail check ended with {done.returncode}") from None
    if "error" in document:
        raise DovetailError(document["error"])
    return Report(document)


def _environment():
    """The command uses this Python for checks of frameworks."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"DOVETAIL_PYTHON": sys.executable, "PYTHONPATH": path, **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}}
