"""What `dovetail check` asks of torch: `python -m dovetail.torch.check QUESTION ANSWER SHOWN [MODULE]`, two files of JSON.

QUESTION has operators with arguments that their contracts accept (those of a module that says nothing: trial.py finds some). Each operator is
asked in a process of its own, so that what crashes or does not end is an answer. An answer is the smallest case that fails, with a script.
Its progress goes to the descriptor SHOWN (-1: nowhere).

`--schemas FILE MODULE [NAME]` writes the schemas of the operators that torch knows after a module was imported, one a line.
"""
import functools
import gc
import importlib
import importlib.util
import inspect
import json
import os
import select
import signal
import sys
import time

gc.disable()  # it takes a fifth of an import's time, and finds little
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # what asks for a GPU before a fork would make it unusable after
import torch

from . import questions, trial
from .questions import Broken, Contents, Stricter, Unsure, copy, each, with_tensors
from ..types import DTYPES, default_of

gc.freeze()
gc.set_threshold(100_000)  # a process is short
gc.enable()

# For Dovetail's own operators; the command checks the other properties without torch.
OURS = ("writes", "aliases", "fake", "opcheck", "gradcheck", "gradgradcheck", "functional", "vmapped", "sharded", "compiled", "on_device")
CASES = {"opcheck": 2, "gradcheck": 2, "gradgradcheck": 1, "runs": 12, "sharded": 2, "on_device": 24}  # of other questions: MOST
MOST, TAKEN, WORKERS, CRASHES = 6, 24, 2, 5
OURS_SECONDS, FOREIGN_SECONDS, LOOP_SECONDS = 30, 90, 20  # seconds of processor time: for an operator, for a check
WAIT_SECONDS = 300  # of anything
# Questions whose answers say nothing where these have failed.
SURE = {"bounds": ("writes",), "unwritten": ("bounds",), "same_answer": ("bounds", "unwritten"), "layouts": ("bounds", "unwritten", "same_answer"),
        **dict.fromkeys(("opcheck", "gradcheck", "gradgradcheck", "functional", "vmapped", "sharded", "compiled", "on_device"),
                        ("runs", "writes", "aliases", "unwritten", "same_answer", "bounds", "layouts", "fake"))}


# ---- Operators and their arguments

def load(module):
    """Import a module by name or file, or load a library of operators."""
    if module.endswith(".so"):
        torch.ops.load_library(module)
    elif module.endswith(".py"):
        spec = importlib.util.spec_from_file_location(os.path.basename(module)[:-3], module)
        made = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = made
        spec.loader.exec_module(made)
    else:
        importlib.import_module(module)


def find(name):
    space, local = name.split("::")
    local, _, overload = local.partition(".")
    return getattr(getattr(getattr(torch.ops, space), local), overload or "default")


def schemas(module, name):
    before = set(torch._C._dispatch_get_all_op_names())
    load(module)
    if name is None:
        names = sorted(n for n in set(torch._C._dispatch_get_all_op_names()) - before if not _is_torchs_own(n))
    elif "." in name.partition("::")[2]:
        names = [name.removesuffix(".default")]
    elif "::" not in name:
        raise SystemExit(f"--op {name}: with --torch an operator is named as torch does, 'ns::name'")
    else:
        space, local = name.split("::")
        try:
            packet = getattr(getattr(torch.ops, space), local)
        except AttributeError:
            raise SystemExit(f"torch knows no operator {name} after importing {module}") from None
        names = [name if o == "default" else f"{name}.{o}" for o in packet.overloads()]
    return "".join(f"{_named_results(find(n)._schema)}\n" for n in names)


def _is_torchs_own(name):
    """Is it defined by a Python module of torch that something imported? An operator of custom_op() belongs to its function's module."""
    from torch._library.custom_ops import OPDEFS
    if name in OPDEFS:
        return OPDEFS[name]._init_fn.__module__.startswith("torch.")
    place = next((line for line in torch._C._dispatch_dump(name).splitlines() if line.startswith("debug: ")), "")
    return os.path.dirname(torch.__file__) + os.sep in place and torch.library.__file__ not in place


def _named_results(schema):
    """The schema as text, with names for unnamed results, which a contract needs: `out`, or `out0`, `out1`, ..."""
    head, _, tail = str(schema).rpartition(" -> ")
    several = tail.startswith("(")
    types = tail[1:-1].split(", ") if several and tail != "()" else [] if several else [tail]
    if len(types) != len(schema.returns):
        return str(schema)
    named = [t if r.name else f"{t} out{i if len(types) > 1 else ''}" for i, (t, r) in enumerate(zip(types, schema.returns))]
    return f"{head} -> {'(' + ', '.join(named) + ')' if several else named[0]}"


def _tensor(dtype, shape, strides, first, memory):
    dtype = getattr(torch, dtype)
    flat = torch.frombuffer(bytearray.fromhex(memory), dtype=dtype) if memory else torch.empty(0, dtype=dtype)
    return flat.as_strided(shape, strides, first)


# The names that the command's argument texts use (check/property_torch.c).
_NAMES = {"tensor": _tensor, "nan": float("nan"), "inf": float("inf"), "complex": complex, "True": True, "False": False, "None": None, "__builtins__": {}}


def _convert(a, value):
    kind = str(a.type)
    if isinstance(value, str) and value in DTYPES and a.real_type is not None and "ScalarType" in str(a.real_type):
        return DTYPES[value]
    if isinstance(value, str) and "Device" in kind:
        return torch.device(value)
    if isinstance(value, str) and str(a.real_type) in ("Layout", "Optional[Layout]", "MemoryFormat", "Optional[MemoryFormat]"):
        return getattr(torch, value)
    return value


def read(op, text):
    """Arguments in the schema's order; None where torch has no such tensor."""
    try:
        given = eval(text, dict(_NAMES))  # what our own command wrote
    except (AttributeError, RuntimeError, ValueError, OverflowError):
        return None
    return [_convert(a, given[a.name]) if a.name in given else default_of(a) for a in op._schema.arguments]


def size(values):
    """Sort key of cases: small ones first, but empty ones last."""
    counts = [t.numel() for t in each(list(values))]
    return (any(n == 0 for n in counts), sum(counts), sum(t.dim() + (not t.is_contiguous()) for t in each(list(values))))


def group(op, cases):
    """For the compiler: at most four cases that differ only in sizes."""
    def kind(values):
        return [(str(v.dtype), v.dim(), v.is_contiguous()) if isinstance(v, torch.Tensor) else kind(v) if isinstance(v, (list, tuple)) else repr(v) for v in values]
    groups = {}
    for values in cases:
        if all(n > 1 for t in each(list(values)) for n in t.shape) and all(t.is_contiguous() for t in each(list(values))):
            groups.setdefault(repr(kind(values)), []).append(values)
    best = max(groups.values(), key=len, default=cases[:1])
    return sorted(best, key=size)[:4]


# ---- In a process of its own

class Asker:
    """Asks the questions from number `begin` on, and writes findings as lines of JSON to a pipe."""

    def __init__(self, worker, to):
        self.entry, self.module, self.seed, self.crashes, self.to = worker.entry, worker.module, worker.seed, worker.crashes, to
        self.end = worker.end
        self.name = self.entry["name"]
        questions.DECLARED.update(rtol=self.entry["rtol"], atol=self.entry["atol"])
        self.failures = {a["check"] for a in worker.answers if a["result"] == "fail"} - ({"runs"} if self.crashes else set())  # see find_cases()

    def say(self, **words):
        os.write(self.to, (json.dumps(words) + "\n").encode())

    def find_cases(self):
        """Arguments that the operator accepts, small ones first."""
        taken, self.refused, self.why = [], 0, ""
        if self.entry["contract"]:
            given = [v for v in (read(self.op, text) for text in self.entry["cases"]) if v is not None]
        else:
            given = trial.candidates(self.op, self.seed)
        tried, end, answer, kinds = 0, time.monotonic() + 5, None, {}
        source = iter(given)
        while tried < 3000 and len(taken) < TAKEN and (self.entry["contract"] or time.monotonic() < end):
            try:
                values = given.send(answer) if answer is not None else next(source)
            except StopIteration:
                break
            if not self.entry["contract"]:
                answer = False
                kind = repr([(t.dtype, t.shape) for t in each(values)])
                if kind in kinds:
                    continue
            tried += 1
            if tried in self.crashes:
                continue
            self.say(trying=tried, **({"case": self.describe(questions.runs, (values,), "it ends the process", None)} if self.entry["contract"] else {}))
            try:
                questions.call(self.op, copy(values))
                if not self.entry["contract"]:
                    kinds[kind] = answer = True
                taken.append(values)
            except Exception as error:
                self.refused, self.why = self.refused + 1, str(error).splitlines()[0] if str(error) else type(error).__name__
        return sorted(taken, key=size)

    def run(self, begin):
        torch.set_num_threads(1)
        load(self.module) if self.module else _load_ours(self.entry["file"])
        self.op = find(self.name)
        self.cases = self.find_cases()
        for i, question in enumerate(asked(self.entry)):
            if i >= begin:
                self.say(begin=i)
                answer = self.ask(question)
                if answer["result"] == "fail":
                    self.failures.add(question.__name__)
                self.say(end=i, answer=answer)

    def ask(self, question):
        name = question.__name__
        if self.end and time.monotonic() > self.end:
            return {"result": "not checked", "message": "the time was up"}
        if not self.cases:
            return {"result": "not checked", "message": f"no arguments were found that it takes; the last was refused: {self.why}"}
        if see := [w for w in SURE.get(name, ()) if w in self.failures]:
            return {"result": "not checked", "message": f"it says nothing until {see[0]} is right"}
        if name == "compiled":
            return self.judge(question, [group(self.op, self.cases)])
        wanted = CASES.get(name, MOST)
        some = self.cases
        if name in ("gradcheck", "gradgradcheck"):
            some = [c for c in some if all(t.numel() for t in each(c))] or some
        elif name == "sharded":
            some = [c for c in some if all(t.numel() for t in each(c)) and any(n > 1 for t in each(c) for n in t.shape)] or some
        step = max(1, len(some) / wanted)
        return self.judge(question, [(some[int(k * step)],) for k in range(min(wanted, len(some)))])

    def judge(self, question, some):
        native = self.native() if question is questions.compiled else None
        unsure, passed = None, 0
        for k, values in enumerate(some):
            self.say(case=self.describe(question, values, "it ends the process", native))
            try:
                question(self.op, *values, **({"native": native} if native else {}))
                passed += 1
            except Unsure as error:
                unsure = str(error)
            except Broken as error:
                if doubt := self.doubt(question, values[0], error):
                    unsure = doubt
                    if isinstance(error, Contents):
                        self.failures.add(question.__name__)  # questions that would fail for the same reason are skipped
                else:
                    values, message = self.smallest(question, values, str(error))
                    return self.failure(question, values, message, native, k + 1)
            except Exception as error:
                unsure = f"{type(error).__name__}: {error}"
        if not passed:
            return {"result": "not checked", "message": unsure[:600], "cases": len(some)}
        return {"result": "pass", "cases": passed}

    def failure(self, question, values, message, native, cases):
        return {"result": "fail", "cases": cases, "message": message, **self.describe(question, values, message, native)}

    def doubt(self, question, values, error):
        """Why a failure may not be the operator's fault; None: it is. With a contract it always is."""
        if self.entry["contract"]:
            return None
        whole = any(not t.dtype.is_floating_point and not t.dtype.is_complex for t in each(values))
        try:
            if isinstance(error, Contents) and whole:
                return f"the contents of tensors, found by trial, may be to blame: give a contract ({error})"
            if isinstance(error, Stricter):
                return f"arguments found by trial may be to blame: give a contract ({error})"
            if question is questions.bounds:  # zero is a valid index, offset and length
                questions.bounds(self.op, with_tensors(copy(values), torch.Tensor.zero_))
                return f"the contents of tensors, found by trial, may be to blame: give a contract ({error})"
            if question is questions.opcheck:
                questions.fake(self.op, values)
        except Stricter:
            return "it says nothing where the fake function refuses arguments that were found by trial"
        except (Broken, Unsure):
            pass
        return None

    def smallest(self, question, values, message):
        """The smallest case that fails this question."""
        if question is questions.compiled:
            return values, message
        for smaller in self.cases:
            if size(smaller) >= size(values[0]):
                break
            try:
                question(self.op, smaller)
            except Broken as error:
                if self.doubt(question, smaller, error):
                    continue
                return (smaller,), str(error)
            except Exception:
                continue
        return values, message

    def native(self):
        if self.entry["foreign"]:
            return None
        import dovetail
        from .. import registered
        for library in dovetail.libraries():
            operator = registered(library) and registered(library).operators.get(self.name)
            if operator and operator.native:
                overload = operator.native_overload()
                positional = sum(not a.kwarg_only for a in operator.arguments)
                keywords = [a.name for a in operator.arguments if a.kwarg_only]
                return lambda *v: overload(*v[:positional], **dict(zip(keywords, v[positional:])))
        return None

    def describe(self, question, some, message, native):
        words = []
        for a, value in zip(self.op._schema.arguments, some[0]):
            shown = [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" + ("" if t.is_contiguous() else f" with strides {t.stride()}") for t in each(value)]
            words.append(f"{a.name}: " + (shown[0] if isinstance(value, torch.Tensor) else f"[{', '.join(shown)}]" if shown else repr(value)))
        return {"case": ", ".join(words) + (f" (and {len(some) - 1} more calls)" if len(some) > 1 else ""), "elements": max((t.numel() for t in each(list(some[0]))), default=0),
                "python": script(self, question, some, message, native)}


def _load_ours(file):
    import dovetail
    if file and not any(os.path.samefile(library.path, file) for library in dovetail.libraries() if library.path):
        dovetail.load(file)
    dovetail.ops  # noqa: B018: the shipped ones


# ---- Scripts that show a failure alone

source = functools.cache(inspect.getsource)  # it reads and parses the whole file


@functools.cache
def sources(function):
    """The source of a function and of everything that it uses in questions.py."""
    wanted, queue = {}, [function]
    while queue:
        f = queue.pop()
        if f in wanted:
            continue
        wanted[f] = source(f)
        codes = [f.__code__] if inspect.isfunction(f) else []
        while codes:
            code = codes.pop()
            codes += [c for c in code.co_consts if inspect.iscode(c)]
            queue += [g for n in code.co_names if (g := vars(questions).get(n)) is not None and getattr(g, "__module__", None) == questions.__name__]
    order = list(vars(questions).values())
    return "\n\n".join(wanted[f] for f in sorted(wanted, key=order.index))


def literal(value):
    if isinstance(value, torch.Tensor):
        flat = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
        kind = value.dtype if value.dtype.is_complex else torch.float64 if value.dtype.is_floating_point else value.dtype
        plain = str(flat.to(kind).tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")
        return f"torch.tensor({plain}, dtype={value.dtype}).as_strided({tuple(value.shape)}, {value.stride()}, {value.storage_offset()})"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(literal(v) for v in value)}]"
    return f"torch.device('{value}')" if isinstance(value, torch.device) else f"float('{value!r}')" if isinstance(value, float) else repr(value)


def script(asker, question, some, message, native):
    imports = source(questions).split('"""', 2)[2].split("class ")[0].strip()
    name, file = asker.name, os.path.basename(asker.entry["file"] or "my_ops.so")
    space, local = name.split("::")
    local, _, overload = local.partition(".")
    if asker.module and asker.module.endswith(".so"):
        loading = f"torch.ops.load_library({asker.module!r})"
    elif asker.module and asker.module.endswith(".py"):
        loading = f"sys.path.insert(0, {os.path.dirname(os.path.abspath(asker.module))!r})\nimport {os.path.basename(asker.module)[:-3]}  # noqa"
    elif asker.module:
        loading = f"import {asker.module}  # noqa"
    else:
        loading = f"import dovetail\ndovetail.load(sys.argv[1] if len(sys.argv) > 1 else {file!r})"
    lines = [f"# {question.__name__} of {name} in torch:", *("# " + line for line in message.splitlines()), "#",
             "# It ends with a signal or with 1 while the fault is there, with 0 when it is gone.", "import sys", imports, loading, "",
             f"DECLARED = {questions.DECLARED}  # the contract's tolerance, beside rounding",
             sources(question), *([] if question is questions.runs else [source(c) for c in (Broken, Contents, Stricter, Unsure) if f"class {c.__name__}" not in sources(question)]),
             f"op = torch.ops.{space}.{local}.{overload or 'default'}",
             "cases = [" + ",\n    ".join(literal(list(values)) for values in some) + "]", "signal.alarm(60)  # it must end",
             "try:", f"    {question.__name__}(op, *cases)"]
    if question is not questions.runs:
        lines += ["except Unsure as reason:", "    print(reason)", "except Broken as fault:", "    sys.exit(str(fault))"]
    else:
        lines += ["except RuntimeError as refused:", "    print(refused)"]
    return "\n".join(lines) + "\n"


# ---- All of them

def asked(entry):
    return [q for q in questions.QUESTIONS if (entry["foreign"] or q.__name__ in OURS) and (entry["devices"] or q is not questions.on_device)]


def processor_time(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # with children that it waited for


class Worker:
    """Checks one operator; if a question ends its process, a new process continues with the next question."""

    def __init__(self, entry, module, seed, end):
        self.entry, self.module, self.seed, self.end = entry, module, seed, end
        self.answers, self.begin, self.crashes = [], 0, []
        self.left = FOREIGN_SECONDS if entry["foreign"] else OURS_SECONDS
        self.start()

    def start(self):
        reader, writer = os.pipe()
        self.buffer, self.current, self.case, self.trying = b"", None, None, 0
        self.since, self.used = time.monotonic(), 0
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            try:
                Asker(self, writer).run(self.begin)
                status = 0
            except BaseException as error:
                os.write(writer, (json.dumps({"failed": f"{type(error).__name__}: {error}"}) + "\n").encode())
                status = 1
            os._exit(status)
        os.close(writer)
        self.fd, self.failed = reader, None

    def add(self, i, answer):
        self.answers.append({"operator": self.entry["name"], "check": asked(self.entry)[i].__name__, **answer})
        self.begin = i + 1

    def note(self, line):
        words = json.loads(line)
        self.failed = words.get("failed", self.failed)
        self.trying = words.get("trying", self.trying)
        self.case = words.get("case", self.case)
        if "begin" in words:
            self.current, self.case, self.since, self.used = words["begin"], None, time.monotonic(), processor_time(self.pid)
        if "end" in words:
            self.add(words["end"], words["answer"])
            self.current = None

    def read(self):
        """False: its process has ended."""
        part = os.read(self.fd, 1 << 16)
        *lines, self.buffer = (self.buffer + part).split(b"\n")
        for line in lines:
            self.note(line)
        return bool(part)

    def late(self):
        used = processor_time(self.pid)
        if used > self.left:
            return "the time for this operator was up"
        return "it took too long" if used - self.used > LOOP_SECONDS or time.monotonic() - self.since > WAIT_SECONDS else None

    def finish(self, late):
        """Called after its process has ended, or to end it. True: no question is left."""
        self.left -= processor_time(self.pid)
        if late:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.fd)
        status = os.waitpid(self.pid, 0)[1]
        left = range(self.begin, len(asked(self.entry)))
        if self.failed or (late and self.left <= 0):
            for i in left:
                self.add(i, {"result": "not checked", "message": self.failed or late})
        elif self.current is not None:
            name = asked(self.entry)[self.current].__name__
            crashed = not late and os.WIFSIGNALED(status)
            if crashed or (late and name == "runs"):
                message = f"it ends the process: {signal.Signals(os.WTERMSIG(status)).name}" if crashed else f"it does not end in {LOOP_SECONDS} s"
                self.add(self.current, {"result": "fail", "message": message, **(self.case or {})})
            else:
                self.add(self.current, {"result": "not checked", "message": late or f"the process ended with {os.waitstatus_to_exitcode(status)}"})
        elif self.begin < len(asked(self.entry)):  # it ended while arguments were tried: exclude these
            self.crashes.append(self.trying)
            contract = self.entry["contract"]
            if contract and self.begin == 0:
                self.add(0, {"result": "fail", "message": "it ends the process" if not late else "it does not end", **(self.case or {})})
            if len(self.crashes) > CRASHES or (contract and not self.entry["foreign"]):
                for i in range(self.begin, len(asked(self.entry))):
                    self.add(i, {"result": "not checked", "message": "it ends the process (see runs)" if self.entry["foreign"] else "it ends the process" if contract else
                                 "arguments found by trial end the process: give a contract"})
        if self.begin >= len(asked(self.entry)):
            return True
        self.start()
        return False


def ask_all(question, module, shown):
    waiting, running, answers = list(question["operators"]), [], {}
    end = time.monotonic() + question["seconds"] if question["seconds"] else None
    while waiting or running:
        while waiting and len(running) < WORKERS:
            entry = waiting.pop(0)
            why = "the time was up" if end and time.monotonic() > end else \
                "the contract accepts no arguments that torch could have" if entry["contract"] and not entry["cases"] else None
            if why:
                answers[entry["name"]] = [{"operator": entry["name"], "result": "not checked", "message": why}]
            else:
                running.append(Worker(entry, module, question["seed"], end))
                if shown >= 0:
                    line = f"{len(answers)} of {len(question['operators'])} in torch: {entry['name']}"
                    os.write(shown, f"\r\033[K{line[:(os.get_terminal_size(shown).columns or 80) - 1]}".encode())
        ready = select.select([w.fd for w in running], [], [], 0.2)[0] if running else []
        for worker in list(running):
            ended = worker.fd in ready and not worker.read()
            if (ended or worker.late()) and worker.finish(None if ended else worker.late()):
                running.remove(worker)
                answers[worker.entry["name"]] = worker.answers
    return [a for entry in question["operators"] for a in answers[entry["name"]]]


def main(words):
    if words[0] == "--schemas":
        text = schemas(words[2], words[3] if len(words) > 3 else None)
        path = words[1]
    else:
        with open(words[0]) as file:
            question = json.load(file)
        import torch._dynamo  # noqa: F401: imported once, before the operators' processes start
        import torch.testing._internal.optests  # noqa: F401
        text, path = json.dumps(ask_all(question, words[3] if len(words) > 3 else None, int(words[2]))), words[1]
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    sys.path.append(os.getcwd())  # last, and python -P: a file of the folder is no module of Python's or torch's
    main(sys.argv[1:])
