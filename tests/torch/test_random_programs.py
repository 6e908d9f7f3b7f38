"""Random programs of operators that write, views, clones and torch's own operators in place: compiled by Inductor, they give the results of
eager mode, and leave the inputs as eager mode does. Three hazards for a compiler are counted, each in at least a fifth of the programs.

A program is drawn statement by statement and run while it is drawn, at two sizes: a statement that is an error, or that gives an operator a
written argument which overlaps another one, is dropped. All numbers are small integers, so results are equal or wrong.
"""
import collections
import os
import random
import re

import pytest
import torch
import torch._inductor.config
from conftest import ROOT, compile_ops

import dovetail

pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = ((6, 4), (10, 6))  # n, m of a program: the second one runs a program of dynamic sizes again
HAZARDS = ("written view with an offset", "views of one base", "clone of what is written")


# ---- the operators: declared ones, and the same in Python

def _turned(x):
    return x.flatten().flip(0).view(x.shape)


def _python_operators():
    # written element by element, as a kernel does: an argument that is read in written memory gives other results
    def rev(src: torch.Tensor, dst: torch.Tensor) -> None:
        a, b = src.view(-1) if src.is_contiguous() else src.flatten(), dst.numpy()
        for k, value in enumerate(a.numpy()):
            b.flat[a.numel() - 1 - k] = value

    def rev_key(dst: torch.Tensor, src: torch.Tensor, more: torch.Tensor | None = None) -> None:
        a, b = src.view(-1) if src.is_contiguous() else src.flatten(), dst.numpy()
        for k, value in enumerate(a.numpy()):
            b.flat[a.numel() - 1 - k] = value + (1 if more is None else more.numpy().flat[k])

    def two(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(1)
        y.add_(2)

    def every(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> None:
        for j, (x, y) in enumerate(zip(xs, ys)):
            for i in range(y.numel()):
                x.numpy().flat[i] = y.numpy().flat[y.numel() - 1 - i] + j

    def turned(x: torch.Tensor) -> torch.Tensor:
        return _turned(x).clone()

    made = {}
    for f, written in ((rev, "dst"), (rev_key, "dst"), (two, ("x", "y")), (every, "xs"), (turned, ())):
        name = "all" if f is every else f.__name__
        made[name] = dovetail.custom_op(f"random_python::{name}", f, mutates_args=(written,) if isinstance(written, str) else written)
    made["turned"].register_fake(lambda x: torch.empty(x.shape))
    return made


@pytest.fixture(scope="module")
def operators(tmp_path_factory):
    library = dovetail.load(compile_ops(ROOT / "tests/torch/random_programs.c", tmp_path_factory.mktemp("random") / "random_programs.so"))
    _python_operators()
    yield library
    library.close()


# ---- programs

Variable = collections.namedtuple("Variable", "name values clone_of", defaults=(None,))  # values: at each size


def _elements(x):
    """Returns the addresses of a tensor's elements."""
    index = torch.zeros((), dtype=torch.int64)
    for dim, (n, s) in enumerate(zip(x.shape, x.stride())):
        index = index.unsqueeze(-1) + torch.arange(n) * s
    return index.flatten() * x.element_size() + x.data_ptr()


def _apart(written, read):
    """True if no written tensor overlaps itself, another written tensor or a read one."""
    all_written = torch.cat([_elements(x) for x in written])
    seen = set(all_written.tolist())
    return len(seen) == len(all_written) and not any(seen & set(_elements(x).tolist()) for x in read)


class Program:
    """A function of one to three tensors and its text. inputs(size) makes the tensors, which are views of `buffers`."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed, self.lines, self.variables, self.hazards, self.names, self.fresh = seed, [], [], set(), 0, set()
        self.kinds = [self.random.choice(("whole", "offset", "transposed")) for _ in range(self.random.randint(1, 2))]
        if self.random.random() < 0.4:
            self.kinds.append("part")  # of the same buffer as the first one
        self.buffers, inputs = zip(*(self.inputs(size) for size in SIZES))
        for i, values in enumerate(zip(*inputs)):
            self.variables.append(Variable(f"x{i}", list(values)))
        self.arguments = [v.name for v in self.variables]
        self.simple = set(self.arguments)  # with their views whose sizes and strides no symbol names
        wanted = self.random.randint(4, 8)
        for _ in range(60):
            if len(self.lines) >= wanted and self.called:
                break
            self.add()
        self.end()
        self.text = f"def f({', '.join(self.arguments)}):\n" + "".join(f"    {line}\n" for line in self.lines)
        space = {"torch": torch}
        exec(self.text, space)
        self.f = space["f"]

    def inputs(self, size):
        n, m = size
        buffers, views = [], []
        for i, kind in enumerate(self.kinds):
            if kind == "part":
                first = buffers[0]
                views[0] = first[:n * m].view(n, m)
                views.append(first[n * m:2 * n * m].view(n, m))
                continue
            buffers.append((torch.arange(2 * n * m + 5) * (3 + i) % 17).float())
            offset = 5 if kind == "offset" else 0
            view = buffers[-1][offset:offset + n * m].view(n, m)
            views.append(buffers[-1][offset:offset + n * m].view(m, n).t() if kind == "transposed" else view)
        return buffers, views

    # ---- statements

    called = 0

    def draw(self, condition=lambda v: True):
        found = [v for v in self.variables if condition(v)]
        if not found:
            raise LookupError
        return found[-1 - min(int(self.random.expovariate(0.5)), len(found) - 1)] if self.random.random() < 0.7 else self.random.choice(found)

    def add(self):
        kind = self.random.choice(("view", "view", "view", "new", "clone", "clone", "aten", "call", "call", "call", "call", "hazard", "part", "part"))
        before = len(self.lines), len(self.variables)
        try:
            getattr(self, kind)()
        except (RuntimeError, IndexError, ValueError, LookupError, TypeError):  # torch or an operator refused it: nothing has been written
            del self.lines[before[0]:], self.variables[before[1]:]

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def expression(self, text, *variables, clone_of=None):
        """Adds a statement `name = text`, in which {0}, {1} are variables."""
        values = [eval(text.format(*("abc"[:len(variables)])), {"torch": torch}, dict(zip("abc", at))) for at in self.at(variables)]
        if any(v.numel() == 0 or v.abs().max() > 1e5 for v in values):
            raise ValueError
        made = Variable(self.name(), values, clone_of)
        self.lines.append(f"{made.name} = {text.format(*(v.name for v in variables))}")
        self.variables.append(made)
        if variables and variables[0].name in self.simple and re.fullmatch(r"\{0\}(\[[\d:., ]*\]|\.transpose\(0, -1\))", text):
            self.simple.add(made.name)
        storages = [v.untyped_storage().data_ptr() for v in values]
        if clone_of is None and all(v.is_contiguous() and v.dim() for v in values) and not any(x.values[0].untyped_storage().data_ptr() in storages for x in variables):
            self.fresh.add(made.name)
        return made

    @staticmethod
    def at(variables):
        return [[v.values[i] for v in variables] for i in range(len(SIZES))]

    def statement(self, text, *variables):
        for at in self.at(variables):
            exec(text.format(*("abc"[:len(variables)])), {"torch": torch}, dict(zip("abc", at)))
        self.lines.append(text.format(*(v.name for v in variables)))

    def view(self, x=None):
        x = x or self.draw()
        i, d = self.random.randint(0, 2), self.random.choice((0, 0, 0, 1, -1))
        half = f"{{0}}.shape[{d}] // 2"
        text = self.random.choice((
            f"{{0}}[{i}]", f"{{0}}[{i}:]", f"{{0}}[{half}:]", f"{{0}}[:{half}]", f"{{0}}[{i}:{i + 2}]", "{0}[..., 1:]", "{0}[:, 1]", "{0}[::2]", "{0}[1::2]",
            f"{{0}}.select({d}, 1)", f"{{0}}.narrow({d}, 1, 2)", "{0}.transpose(0, -1)", "{0}.view(-1)", "{0}.unsqueeze(0)", "{0}.reshape(-1)",
            "{0}.view(2, {0}.shape[0] // 2, -1)", f"{{0}}.chunk(2, {d})[{i % 2}]", f"{{0}}.unbind({d})[{i % 2}]", "{0}.unsqueeze(-1).expand(*{0}.shape, 2)",
            f"{{0}}.flatten()[{i}:]", "{0}.diagonal()", f"{{0}}.split({{0}}.shape[{d}] // 2, {d})[1]"))
        if x.name in self.fresh and self.random.random() < 0.3:
            text = f"{{0}}.as_strided((2, {{0}}.shape[-1] // 2), ({{0}}.shape[-1] // 2, 1), {i})"
            if any(t.numel() < t.shape[-1] + i for t in x.values):
                raise ValueError
        return self.expression(text, x)

    def new(self):
        x = self.draw()
        return self.expression(self.random.choice(("torch.zeros(2 * {0}.numel() + 3)", "torch.ones({0}.shape)", "{0} * 2", "{0} + 1", "{0}.sum(0)", "torch.zeros_like({0})")), x)

    def clone(self, x=None):
        x = x or self.draw()
        text = self.random.choice(("{0}.clone()", "{0}.clone()", "{0}.clone()", "{0} * 1", "{0} + 0", "torch.cat([{0}])", "torch.empty_like({0}).copy_({0})",
                                   "{0}.to(torch.float32, copy=True)", "{0}.clone().clone()", "{0} + torch.zeros_like({0})"))
        if "cat" in text and not all(t.is_contiguous() for t in x.values):
            raise ValueError  # Inductor 2.13 gives the result the strides of x, and refuses its views
        return self.expression(text, x, clone_of=x)

    def aten(self):
        x = self.draw(lambda v: all(t.numel() > 1 for t in v.values))
        if not all(_apart([t], []) for t in x.values):
            raise ValueError
        self.statement(self.random.choice(("{0}.add_(1)", "{0}.mul_(2)", "{0}[0] = 3", "{0}.zero_()")), x)
        if any(t.abs().max() > 1e5 for t in x.values):
            self.statement("{0}.zero_()", x)

    def call(self, written=None, read=None):
        """Adds a call of an operator; with the written and read variables, if they are given."""
        x = written or self.draw()
        same = [v for v in self.variables if [t.shape for t in v.values] == [t.shape for t in x.values]]
        y = read or self.random.choice(same)
        more = self.random.choice(same)
        space = self.random.choice(("random_programs", "random_python"))
        kind = self.random.choice(("rev", "rev", "key", "key2", "two", "all", "all2", "turned", "out"))
        if written and kind in ("turned", "two"):
            kind = "rev"
        f, out = f"torch.ops.{space}", self.draw()
        writes, reads, text = {
            "rev": ([x], [y], f"{f}.rev({{1}}, {{0}})"),
            "key": ([x], [y], f"{f}.rev_key({{0}}, src={{1}})"),
            "key2": ([x], [y, more], f"{f}.rev_key({{0}}, src={{2}}, more={{1}})"),
            "two": ([x, out], [], f"{f}.two({{0}}, {{1}})"),
            "all": ([x], [y], f"{f}.all([{{0}}], [{{1}}])"),
            "all2": ([x, more], [y, y], f"{f}.all([{{0}}, {{1}}], [{{2}}, {{2}}])"),
            "turned": ([], [y], f"{f}.turned({{0}})"),
            "out": ([x], [y], "torch.ops.random_programs.turned.out({1}, out={0})"),
        }[kind]
        if kind == "turned":
            self.expression(text, y)
        else:
            if kind == "out" and not all(t.is_contiguous() for t in x.values):
                raise ValueError  # torch.compile takes no other out=
            for i in range(len(SIZES)):
                if not _apart([v.values[i] for v in writes], [v.values[i] for v in reads]):
                    raise ValueError
            self.statement(text, *writes, *reads[:1] if kind == "all2" else reads)
            self.count(writes, reads)
        self.called += 1

    def hazard(self):
        """Adds a clone of a variable and a call that writes the variable."""
        x = self.draw()
        if self.random.random() < 0.5:
            x = self.view(x)
        y = self.clone(x)
        self.call(x, y) if self.random.random() < 0.8 else self.call(y, x)

    def part(self):
        """Adds a view with an offset and a call that writes it."""
        x = self.view()
        if not x.values[0].storage_offset():
            raise ValueError
        self.call(x, self.expression("{0} * 2", x))

    # ---- the hazards

    def count(self, writes, reads):
        at = [v.values[0] for v in writes]
        storages = [t.untyped_storage().data_ptr() for t in at]
        starts = {(v.values[0].untyped_storage().data_ptr(), v.values[0].storage_offset()) for v in self.variables if v.name in self.arguments}
        if any(t.storage_offset() and (storage, t.storage_offset()) not in starts for storage, t in zip(storages, at)):
            self.hazards.add(HAZARDS[0])
        shared = [v for v in self.variables if v.name in self.arguments and v.values[0].untyped_storage().data_ptr() in storages]
        if len(set(storages)) < len(storages) or len(shared) > 1:
            self.hazards.add(HAZARDS[1])
        for v in (*reads, *writes):
            source = v.clone_of
            if source and source.values[0].untyped_storage().data_ptr() in storages:
                self.hazards.add(HAZARDS[2])

    def end(self):
        """Adds the return statement: some variables as they are, some as new tensors."""
        last = [v for v in self.variables if v.name not in self.arguments]
        chosen = self.random.sample(last, min(len(last), self.random.randint(1, 3))) or self.variables[:1]
        returned = [v.name + (self.random.choice(("", " * 1", " + 1")) or ("" if self.may_return(v) else " * 1")) for v in chosen]
        self.lines.append(f"return [{', '.join(returned)}]")

    def may_return(self, v):
        """False for some views of arguments: PyTorch 2.13 returns other elements for a view with symbolic sizes of an input that was written, also by
        x.mul_(2): docs/torch.md."""
        memory = [t.untyped_storage().data_ptr() for t in v.values]
        return v.name in self.simple or not any(buffer.untyped_storage().data_ptr() in memory for buffers in self.buffers for buffer in buffers)


# ---- comparison

def run(f, programs, size):
    """Runs f([the inputs of each program]). Returns its results and the buffers afterwards, as lists of numbers."""
    made = [p.inputs(size) for p in programs]
    with torch.no_grad():
        results = f([views for _, views in made])
    return [([r.tolist() for r in given], [b.tolist() for b in buffers]) for given, (buffers, _) in zip(results, made)]


def together(programs):
    return lambda inputs: [p.f(*x) for p, x in zip(programs, inputs)]


def wrong(programs, dynamic):
    """Returns the programs that differ from eager mode, with the difference. They are compiled together, and one by one if that is wrong."""
    torch._dynamo.reset()
    compiled = torch.compile(together(programs), fullgraph=True, dynamic=dynamic)
    found = []
    try:
        for size in SIZES[:2 if dynamic else 1]:
            expected, given = run(together(programs), programs, size), run(compiled, programs, size)
            found += [(p, size, dynamic, e, g) for p, e, g in zip(programs, expected, given) if e != g]
    except Exception as error:
        if len(programs) == 1:
            return [(programs[0], None, dynamic, None, f"{type(error).__name__}: {str(error)[:1500]}")]
        return [x for p in programs for x in wrong([p], dynamic)] or [(programs[0], None, dynamic, "together only", str(error)[:1500])]
    return found


def check(seeds, batch=10):
    programs = [Program(seed) for seed in seeds]
    failed = []
    for start in range(0, len(programs), batch):
        failed += wrong(programs[start:start + batch], dynamic=start // batch % 2 == 1)
    report = "\n".join(f"seed {p.seed}, dynamic={dynamic}, size {size}, inputs {p.kinds}:\n{p.text}expected {expected}\nfound    {found}\n"
                       for p, size, dynamic, expected, found in failed)
    assert not failed, f"{len(failed)} of {len(programs)} programs differ from eager mode:\n{report}"
    return collections.Counter(h for p in programs for h in p.hazards)


@pytest.fixture(autouse=True)
def cheap():
    """Makes compilation cheap: the tests are about the order of reads and writes, not about speed."""
    with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        yield


def test_random_programs(operators):
    counts = check(range(40))
    assert all(counts[h] >= 8 for h in HAZARDS), counts


@pytest.mark.skipif("DOVETAIL_PROGRAMS" not in os.environ, reason="DOVETAIL_PROGRAMS=1000:1500 gives the seeds: half an hour on two cores")
@pytest.mark.parametrize("start", range(*map(int, os.environ.get("DOVETAIL_PROGRAMS", "0:0").split(":")), 100))
def test_many_random_programs(operators, start):
    counts = check(range(start, start + 100))
    assert all(counts[h] >= 20 for h in HAZARDS), counts
