#!/usr/bin/env python3
"""The same calls in every host, compared with a C program that makes them (host.c).

    parity.py run FILE HOST...      in the environment that runs this; the hosts are those of HOSTS
    parity.py table FILE...         write what these runs found into docs/hosts.md
    parity.py all                   all hosts whose environments exist, and the table

The calls are those of ops/*/cases.txt and cases.txt, and of each operator's first call two that are wrong. An outcome is for each check 0 (the
same), or the distance in units of the last place of the largest element; or "refused", one of REASONS; or "fault": also where a host does not
implement a call and the reason is not in that list.
"""
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

import dovetail

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FLOATS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}  # bits of the mantissa
PAGE = ROOT / "docs/hosts.md"
NEAR = 16  # more units in the last place than these are a difference


# All that a host may refuse, whole messages without the operator's name: in its own words, or in Dovetail's for it, where the framework has no such thing.
MINDSPORE = "mindspore"
TORCH = "torch"
TORCHAIR = "torchair"
REASONS = [  # (module of the host, pattern of its message, what the page says)
    (MINDSPORE, r"a primitive's results are tensors, this operator's are Tensor\[\](, Tensor\[\])*",
     "MindSpore's graphs: \"a primitive's results are tensors, this operator's are Tensor[]\" (Dovetail's message)"),
    (TORCH, r".*<built-in function getitem> is not an OpOverload.*", "Inductor, of a `Tensor(a!)?` that is None: \"<built-in function getitem> is not an OpOverload\""),
    (MINDSPORE, r"its result is a view of an argument, which MindSpore's graphs make by their own operators alone",
     "MindSpore's graphs: \"its result is a view of an argument, which MindSpore's graphs make by their own operators alone\" (Dovetail's message)"),
    (TORCH, r".*Missing `as_proxy\(\)` implementation for some arg/kwarg.*",
     "Dynamo, of a `torch.Generator` as an argument: \"Missing `as_proxy()` implementation for some arg/kwarg\""),
    (MINDSPORE, r"argument '\w+': a graph cannot hold a Generator, whose state changes with each call; leave it out",
     "MindSpore's graphs: \"a graph cannot hold a Generator, whose state changes with each call; leave it out\" (Dovetail's message)"),
    (MINDSPORE, r"sizes of its result depend on what its tensors contain, and a node of MindSpore on the CPU must know them before it runs",
     "MindSpore's graphs: \"sizes of its result depend on what its tensors contain, and a node of MindSpore on the CPU must know them before it runs\" "
     "(Dovetail's message)"),
    (TORCHAIR, r".*it writes the elements of a list: GE's graphs have no such node.*",
     "GE's graphs: \"it writes the elements of a list: GE's graphs have no such node\" (Dovetail's message)"),
    (TORCHAIR, r".*expected a tensor, found None: torchair makes no graph in which an argument that the operator writes is absent.*",
     "torchair, whose own functionalization fails there: \"expected a tensor, found None: torchair makes no graph in which an argument that the operator "
     "writes is absent\" (Dovetail's message)"),
    (TORCHAIR, r".*GuardOnDataDependentSymNode.*",
     "torchair, of a size that only the kernel knows, as of `nonzero` of its own: \"GuardOnDataDependentSymNode\"")]


def reason(host, error):
    """Which of REASONS an error is, or None."""
    text = re.sub(r"^\w+::[\w.]+: ", "", str(error))
    found = [says for module, pattern, says in REASONS if module in host.refuses and re.fullmatch(pattern, text, re.S)]
    return found[0] if found else None


class Differs(Exception):
    pass


# ---- the calls, and what C gives

def sites(all_of_them=True):
    """(a call, whether it is right)"""
    seen = set()
    for file in [*sorted(ROOT.glob("ops/*/cases.txt")), HERE / "cases.txt"]:
        for line in file.read_text().splitlines():
            name, tensor = line.partition("(")[0], re.search(r"\b([a-z]+\d*)\[([\d, ]*)\]( = -?\d+\.\.\d+)?", line)
            first = name not in seen
            if first or all_of_them:
                yield line, True
            if first:
                before, after = line[:tensor.start()], line[tensor.end():]
                yield f"{before}{tensor[1]}[{', '.join(filter(None, ['9', tensor[2]]))}]{after}", False
                yield f"{before}bool[{tensor[2]}]{after}", False
            seen.add(name)


def in_f32(call):
    """The call with each float argument as 32 bits have it, defaults too; as it is where it is none."""
    try:
        op, args = dovetail.site(call)
    except dovetail.DovetailError:
        return call
    name, text = call[:-1].split("(", 1)
    items, slots = re.findall(r"(?:\[[^][]*(?:\[[^]]*\][^][]*)*\]|\"[^\"]*\"|[^],[\"])+", text), op._slots()[0]
    given = {}
    for i, item in enumerate(items):
        key = re.match(r"\s*(\w+)=(?!=)", item)
        given[key[1] if key else slots[i][0]] = i
    for slot, type, *_ in slots:
        if type.startswith("float") and isinstance(args[slot], float):
            value = repr(float(np.float32(args[slot])))
            at = given.get(slot)
            if at is None:
                items.append(f"{slot}={value}")
            else:
                items[at] = f"{slot}={value}" if f"{slot}=" in items[at] else value
    return f"{name}({', '.join(i.strip() for i in items)})"


def reference(all_of_them=True, spelled=lambda call: call):
    """Of each call what C gives; wrong ones that are not calls are left out. spelled: how the call is written for C."""
    command, calls = dovetail.command(), list(sites(all_of_them))
    build = pathlib.Path(command).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        host, kinds = f"{folder}/host", f"{folder}/kinds.so"
        flags = subprocess.check_output([command, "--cflags", "--libs"], text=True).split()
        subprocess.run(["cc", "-std=c11", "-O1", HERE / "host.c", "-o", host, *flags], check=True)
        subprocess.run([command, "build", HERE / "kinds.c", "-o", kinds], check=True, capture_output=True)
        libraries = [f for f in sorted((build / "ops").glob("*.so")) if f.stem != "base"]
        for library in [*libraries, kinds]:
            dovetail.load(library)
        lines = "".join(f"{spelled(c)}\n" for c, _ in calls)
        out = subprocess.run([host, *libraries, kinds], input=lines, check=True, capture_output=True, text=True).stdout
    found = {call: json.loads(line) | {"right": right} for (call, right), line in zip(calls, out.splitlines(), strict=True)}
    refused = {call: f for call, f in found.items() if f["right"] and "after" not in f}
    assert not refused, f"refused by C: {refused}"
    return {call: f for call, f in found.items() if "text" not in f}


# ---- comparisons

def short(dtype):
    """f32 of float32, torch.float32, Float32"""
    name = str(dtype).lower().rpartition(".")[2]
    return re.sub("^bfloat", "bf", re.sub("^(float|u?int|complex)(?=\\d)", lambda m: m[1][:2 if m[1][0] == "u" else 1].replace("ui", "u"), name))


def numbers(dtype, data):
    if dtype == "bf16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(data, f"f{int(dtype[1:]) // 8}").astype(np.float64)


def narrowed(dtype, tensor):
    """A gradient as frameworks give it: with its argument's dtype."""
    if tensor[0] == dtype:
        return tensor
    values = numbers(tensor[0], bytes.fromhex(tensor[2])).astype(np.float32 if dtype == "bf16" else f"f{int(dtype[1:]) // 8}")
    if dtype == "bf16":
        bits = values.view(np.uint32)
        values = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return [dtype, tensor[1], values.tobytes().hex()]


def distance(found, want):
    """Of two lists of [dtype, shape, bytes]: 0 where the bits are the same, else the distance in units of the last place."""
    if [f[:2] for f in found] != [w[:2] for w in want]:
        raise Differs(f"found {[f[:2] for f in found]}, C gives {[w[:2] for w in want]}")
    worst = 0
    for (dtype, _, data), (_, _, text) in zip(found, want):
        expected = bytes.fromhex(text)
        if data != expected:
            if dtype not in FLOATS:
                raise Differs(f"other elements of {dtype}")
            f, w = numbers(dtype, data), numbers(dtype, expected)
            apart = ~((f == w) | (np.isnan(f) & np.isnan(w)))
            largest = np.abs(w[np.isfinite(w)]).max(initial=0)
            worst = max(worst, float((np.abs(f - w)[apart] / (2.0 ** (np.floor(np.log2(largest)) - FLOATS[dtype]) if largest else 0)).max(initial=0)))
    if not worst <= NEAR:
        raise Differs(f"{worst:.3g} units in the last place")
    return worst


def leaves(value):
    """All tensors of a value, in order."""
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in leaves(v)]
    return [value] if hasattr(value, "shape") else []


def rebuilt(value, tensors):
    """The same value with the next of these tensors in the place of each."""
    if isinstance(value, (list, tuple)):
        return [rebuilt(v, tensors) for v in value]
    return next(tensors) if hasattr(value, "shape") else value


def floating(x):
    return short(x.dtype) in FLOATS


def weights(x):
    """What the elements of a result are multiplied by before they are added up, as in host.c."""
    return (1 + np.arange(np.prod(x.shape, dtype=int)) % 4 / 4).reshape(x.shape)


def after(op, args, value):
    """What there is after a call, and the tensors whose weighted sum a gradient is of: results and written arguments."""
    slots, results = op._slots()
    returned = {alias for *_, flags, alias in results if flags & 8}
    written = [x for i, ((_, _, _, flags, _), a) in enumerate(zip(slots, args.values())) if flags & 8 and i not in returned for x in leaves(a)]
    return leaves(value) + leaves([*args.values()]), [x for x in leaves(value) + written if floating(x)]


# ---- the hosts: each gives what there is after a call, and the gradient

class NumPy:
    module, title = "numpy", "NumPy"
    refuses = ()  # modules of REASONS

    def spelled(self, call):
        """How C gets the call."""
        return call

    def tensor(self, array):
        return array.copy()

    def array(self, x):
        return [short(x.dtype), list(x.shape), x.tobytes()]

    def generator(self, seed):
        return dovetail.Generator(seed)

    def call(self, op, args, gradient):
        return after(op, args, op(**args))[0], None

    def message(self, error, printed):
        return str(error)

    def settle(self):
        """After an error: wait for what still runs."""


class Torch(NumPy):
    module, title = "torch", "PyTorch"

    def __init__(self):
        import torch
        self.torch = torch
        torch.set_num_threads(1)

    def tensor(self, array):
        bits = array.view(np.int16) if short(array.dtype) == "bf16" else array
        x = self.torch.from_numpy(bits.copy())
        return x.view(self.torch.bfloat16) if bits is not array else x

    def array(self, x):
        bits = x.detach().view(self.torch.int16) if x.dtype == self.torch.bfloat16 else x.detach()
        return [short(x.dtype), list(x.shape), bits.numpy().tobytes()]

    def generator(self, seed):
        return self.torch.Generator().manual_seed(seed)

    def drawn(self, seed):
        """The seed that a call draws from such a generator (bridges/torch/call.c), which C then gets."""
        return self.torch.randint(2**63 - 1, (1,), generator=self.generator(seed)).item()

    def wrap(self, f):
        return f

    def call(self, op, args, gradient):
        given = leaves([*args.values()])
        begin = [x.requires_grad_() if gradient and floating(x) else x for x in given]

        def whole(*tensors):
            copies = dict(zip(args, rebuilt([*args.values()], iter([x.clone() for x in tensors]))))
            return op(**copies), copies
        value, copies = self.wrap(whole)(*begin)
        everything, summed = after(op, copies, value)
        if not gradient:
            return everything, None
        at = [x for x in begin if floating(x)]
        found = iter(self.torch.autograd.grad(summed, at, [self.tensor(weights(x)).to(x.dtype) for x in summed], allow_unused=True))
        return everything, [next(found) if floating(x) else None for x in begin]

    def inferred(self, op, args):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv
        plain = [x.detach() for x in leaves([*args.values()])]
        with FakeTensorMode(shape_env=ShapeEnv()) as mode:
            fakes = iter([mode.from_tensor(x, static_shapes=True) for x in plain])
            return [[short(x.dtype), list(x.shape)] for x in leaves(op(**dict(zip(args, rebuilt([*args.values()], fakes)))))]


class Compiled(Torch):
    title, backend = "`torch.compile`", "inductor"
    refuses = (TORCH,)
    inferred = None

    def wrap(self, f):
        self.torch._dynamo.reset()
        return self.torch.compile(f, fullgraph=True, backend=self.backend)


class VLLM(Torch):
    """PyTorch as vLLM has it, with vLLM and its plugins imported."""
    module, title = "vllm", "vLLM"

    def __init__(self):
        import vllm.plugins
        vllm.plugins.load_general_plugins()
        super().__init__()


class CompiledVLLM(VLLM, Compiled):
    title = "vLLM, `torch.compile`"


class TorchAir(Compiled):
    """torchair's graphs, executed by tests/torchair/stand_in.py."""
    module, title, refuses = "torchair", "torchair", (TORCH, TORCHAIR)

    def __init__(self):
        sys.path.insert(0, str(ROOT / "tests/torchair"))
        import stand_in  # before torch
        import torchair
        super().__init__()
        self.stand_in, self.backend = stand_in, None
        torchair.__version__ = importlib.metadata.version("torch-npu")

    def spelled(self, call):
        return in_f32(call)  # an attribute of GE has 32 bits

    def wrap(self, f):
        if self.backend is None:
            import torchair
            for library in dovetail.libraries():
                if library.name != "base":
                    self.stand_in.known(library)
            self.backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
        return super().wrap(f)


class MindSpore(NumPy):
    module, title = "mindspore", "MindSpore"

    def __init__(self):
        import mindspore
        self.ms = mindspore

    def tensor(self, array):
        if short(array.dtype) == "bf16":
            return self.ms.Tensor(array.astype(np.float32)).astype(self.ms.bfloat16)
        return self.ms.Tensor(array.copy())

    def array(self, x):
        if short(x.dtype) == "bf16":
            return ["bf16", list(x.shape), (x.astype(self.ms.float32).asnumpy().view(np.uint32) >> 16).astype(np.uint16).tobytes()]
        a = x.asnumpy()
        return [short(a.dtype), list(a.shape), a.tobytes()]

    def function(self, op, args):
        """Of all tensors, flat: what there is after a call, and what a gradient is of."""
        def whole(*tensors):
            copies = dict(zip(args, rebuilt([*args.values()], iter([x.copy() for x in tensors]))))
            return after(op, copies, op(**copies))
        return whole

    def call(self, op, args, gradient):
        given, whole = leaves([*args.values()]), self.function(op, args)
        everything = whole(*given)[0]
        if not gradient:
            return everything, None
        at = tuple(i for i, x in enumerate(given) if floating(x))
        found = self.ms.grad(lambda *xs: tuple(x * self.tensor(weights(x)).astype(x.dtype) for x in whole(*xs)[1]), at)(*given)
        found = dict(zip(at, found if isinstance(found, tuple) else (found,)))
        return everything, [found.get(i) for i in range(len(given))]

    def message(self, error, printed):
        return f"{error}\n{printed}"

    def settle(self):
        try:  # the next call would get the error of another thread
            self.ms.runtime.synchronize()
        except RuntimeError:
            pass


class Jit(MindSpore):
    title, refuses = "`ms.jit`", (MINDSPORE,)

    def function(self, op, args):
        from dovetail.mindspore import primitive
        slots, given, fixed = op._slots()[0], [], {}
        functional = op.functional()  # the operator itself if it writes nothing
        for (name, type, *_), value in zip(slots, args.values()):
            if not type.startswith("Tensor"):
                fixed[name] = value
            elif isinstance(value, (list, tuple)):
                fixed[name] = len(value)
            elif value is not None and type.endswith("?"):
                fixed[name] = True
        node = primitive(functional, **fixed)
        written = [name for name, _, _, flags, *_ in slots if flags & 8 and args[name] is not None]
        several = len(functional._slots()[1]) > 1

        @self.ms.jit
        def run(*tensors):  # MindSpore has no gradient of a function that gives None
            return [x for x in node(*tensors) if x is not None] if several else [node(*tensors)]

        def whole(*tensors):
            out = run(*tensors)
            own = len(out) - len(written)
            copies = dict(zip(args, rebuilt([*args.values()], iter(tensors)))) | dict(zip(written, out[own:]))
            results = [*out[:own]] + [copies[slots[r[4]][0]] for r in op._slots()[1] if r[3] & 8]
            return after(op, copies, results)
        return whole


HOSTS = {"numpy": NumPy, "torch": Torch, "compile": Compiled, "torchair": TorchAir, "vllm": VLLM, "vllm-compile": CompiledVLLM, "mindspore": MindSpore, "jit": Jit}
ENVIRONMENTS = {".venv": ("numpy", "torch", "compile"), ".venv-torchair": ("torchair",), ".venv-vllm": ("vllm", "vllm-compile"), ".venv-mindspore": ("mindspore", "jit")}


class Printed:
    """What is printed on standard error meanwhile, also by C++."""
    text = ""

    def __enter__(self):
        sys.stderr.flush()
        self.file, self.kept = tempfile.TemporaryFile(), os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_):
        sys.stderr.flush()
        os.dup2(self.kept, 2)
        os.close(self.kept)
        self.file.seek(0)
        self.text += self.file.read().decode(errors="replace")


def compare(host, call, want):
    """The outcomes of one call: by check 0, a distance, or a text."""
    op, args = dovetail.site(call)
    args = {name: rebuilt(a, (host.tensor(x) for x in leaves(a))) for name, a in args.items()}
    args |= {slot[0]: host.generator(7) for slot in op._slots()[0] if slot[1].startswith("Generator")}
    wrong, printed, error, out = "error" in want, Printed(), None, {}
    try:
        with printed:
            found, gradient = host.call(op, args, "gradients" in want)
            found, gradient = [host.array(x) for x in found], gradient and [None if g is None else host.array(g) for g in gradient]
    except Exception as e:
        refused = reason(host, e)
        if refused:
            return {"refused": refused}
        if isinstance(e, NotImplementedError):
            raise
        error = e
        with printed:
            host.settle()
    text = error and host.message(error, printed.text).replace("_functional", "")
    if wrong:
        if error is None or want["error"] not in text:
            raise Differs(f"C says {want['error']!r}, here: {text or 'no error'}")
        return {"message": 0}
    if error:
        raise error
    if "Generator" in op.schema and isinstance(host, Torch):
        numpy = NumPy()
        _, given = dovetail.site(call)
        given |= {slot[0]: dovetail.Generator(host.drawn(7)) for slot in op._slots()[0] if slot[1].startswith("Generator")}
        want = want | {"after": [[*x[:2], x[2].hex()] for x in map(numpy.array, numpy.call(op, given, False)[0])]}
    out["results"] = distance(found, want["after"])
    if getattr(host, "inferred", None):
        found = host.inferred(op, args)
        expect = [w[:2] for w in want["infer"]]
        if [f[0] for f in found] != [e[0] for e in expect] or not all(w[2] or f[1] == w[1] for f, w in zip(found, want["infer"])):
            raise Differs(f"inferred {found}, C infers {expect}")
        out["inferred"] = 0
    if gradient:
        for x, g in zip(leaves([*args.values()]), gradient):
            if g is not None and g[:2] != [short(x.dtype), list(x.shape)]:
                raise Differs(f"the gradient of {short(x.dtype)} {list(x.shape)} is {g[:2]}")
        flat = iter([w for ws in want["gradients"] for w in ws if w[2].strip("0")])
        found = [g for g in gradient if g is not None and any(g[2])]
        out["gradient"] = distance(found, [narrowed(g[0], w) for g, w in zip(found, flat)] + [*flat])
    return out


def run(names, all_of_them=True):
    found = {}
    for name in names:
        host = HOSTS[name]()
        module = sys.modules[host.module]
        outcomes, found[name] = {}, {"version": f"{host.module} {module.__version__}"}
        for call, want in reference(all_of_them, host.spelled).items():
            try:
                outcomes[call] = compare(host, call, want)
            except Exception as error:
                outcomes[call] = {"fault": f"{type(error).__name__}: {error}"}
        found[name]["outcomes"] = outcomes
    return found


# ---- the page

BEGIN, END = "<!-- made by tests/parity/parity.py -->\n", "<!-- end of the tables -->\n"


def cell(outcomes, reasons):
    """Of all right calls of an operator: "results gradient", each `=`, a distance or the number of a reason."""
    out = []
    for check in ("results", "gradient"):
        values = [o[check] for o in outcomes if check in o]
        refused = [o["refused"] for o in outcomes if "refused" in o and check == "results"]
        numbers = [f"[{reasons.index(r) + 1}](#reasons)" for r in dict.fromkeys(refused)]
        out += ["=" if not max(values) else f"{max(values):.2g} ulp"] if values else []
        out += numbers
    return " ".join(["fault"] if any("fault" in o for o in outcomes) else out)


def table(found):
    hosts = [h for h in HOSTS if h in found]
    by_operator, reasons = {}, [says for *_, says in REASONS]
    for host in hosts:
        for call, outcome in found[host]["outcomes"].items():
            by_operator.setdefault(call.partition("(")[0], {}).setdefault(host, []).append(outcome)
    lines = ["| | version | calls | equal to the bit | gradients | equal to the bit | wrong calls, all with C's message | refused |", "|---|" + "---|" * 7]
    for host in hosts:
        outcomes = found[host]["outcomes"].values()
        of = {check: [o[check] for o in outcomes if check in o] for check in ("results", "gradient", "message", "refused")}
        lines.append(f"| {HOSTS[host].title} | {found[host]['version']} | {len(of['results'])} | {of['results'].count(0)} | {len(of['gradient'])} | "
                     f"{of['gradient'].count(0)} | {len(of['message'])} | {len(of['refused'])} |")
    lines += ["", f"| operator | {' | '.join(HOSTS[h].title for h in hosts)} |", "|---|" + "---|" * len(hosts)]
    for name, outcomes in sorted(by_operator.items(), key=lambda o: (o[0].startswith("kinds"), o[0])):
        right = {h: [o for o in outcomes.get(h, []) if "message" not in o] for h in hosts}
        lines.append(f"| `{name}` | {' | '.join(cell(right[h], reasons) for h in hosts)} |")
    lines += ["", "### Reasons", "", *(f"{n}. {says}" for n, says in enumerate(reasons, 1))]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])
    return sum("fault" in o for h in hosts for o in found[h]["outcomes"].values())


def report(found):
    for name, host in found.items():
        faults = {c: o["fault"] for c, o in host["outcomes"].items() if "fault" in o}
        print(f"{name}: {len(host['outcomes'])} calls, {len(faults)} faults", flush=True)
        for call, fault in faults.items():
            print(f"  {call}\n    {fault[:600]}")


def main(arguments):
    if arguments[:1] == ["run"] and len(arguments) > 2:
        found = run(arguments[2:])
        pathlib.Path(arguments[1]).write_text(json.dumps(found, indent=1))
        report(found)
        return
    folder = ROOT / "out/parity"
    files = [pathlib.Path(a) for a in arguments[1:]]
    if arguments == ["all"]:
        folder.mkdir(parents=True, exist_ok=True)
        for environment, hosts in ENVIRONMENTS.items():
            python = ROOT / environment / "bin/python"
            if python.exists():
                files.append(folder / f"{environment[1:]}.json")
                subprocess.run([python, __file__, "run", files[-1], *hosts], check=True)
            else:
                print(f"{', '.join(hosts)}: there is no {environment}")
    elif arguments[:1] != ["table"] or not files:
        sys.exit(__doc__)
    faults = table({host: outcome for file in files for host, outcome in json.loads(file.read_text()).items()})
    sys.exit(f"{faults} faults" if faults else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
