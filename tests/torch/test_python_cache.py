"""Keys of Inductor's caches on disk, for operators with Python kernels: another fake function or gradient is another program."""
import json
import os
import subprocess
import sys

import pytest
import torch
import torch._inductor.lowering  # noqa: F401: the keys are of Inductor

import dovetail

OPERATOR = """
import torch, dovetail, helpers
K = %(number)s
class Settings:
    factor = %(attribute)s
settings = Settings()
def helper(g):
    return g * %(helper)s
def make(k):
    def backward(ctx, g):
        def inner(x):
            return helper(x) * k * settings.factor
        return inner(g) * K * helpers.scale(1) * %(constant)s
    return backward
@dovetail.custom_op("python_cache::f", mutates_args=())
def f(x: torch.Tensor%(argument)s) -> torch.Tensor:
    return x.to(torch.%(dtype)s) * 2
f.register_fake(lambda x, k=1: torch.empty_like(x, dtype=torch.%(dtype)s))
f.register_autograd(make(%(closure)s), setup_context=lambda ctx, inputs, output: %(context)s)
"""
SAME = {"number": 1, "attribute": 1, "helper": 1, "constant": 1, "closure": 1, "dtype": "float32", "argument": "", "context": "None", "module": 1}
CHANGES = [{"number": 2}, {"attribute": 2}, {"helper": 2}, {"constant": 2}, {"closure": 2}, {"closure": "[1, 2]"}, {"dtype": "float64"}, {"argument": ", k: int = 1"},
           {"context": "0"}, {"module": 2}, {"closure": "torch.ones(3)"}, {"closure": "torch.ones(3, dtype=torch.int8)"}]


def key(values, monkeypatch):
    import types

    from dovetail.torch import inductor
    module = types.ModuleType("helpers")
    exec(f"def scale(x): return x * {values['module']}", vars(module))
    monkeypatch.setitem(sys.modules, "helpers", module)
    exec(OPERATOR % values, {"__name__": "operators_of_a_test"})
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.ops.python_cache.f.default, (graph.placeholder("x"),)))
    return inductor._declarations(torch.fx.GraphModule({}, graph))


def test_each_part_is_in_the_key(monkeypatch):
    keys = [key({**SAME, **change}, monkeypatch) for change in [{}, *CHANGES]]
    assert len(set(keys)) == len(keys) and keys == [key({**SAME, **change}, monkeypatch) for change in [{}, *CHANGES]]


STATES = """
import collections, io
class Number(float): pass
class Whole(int): pass
class Word(str): pass
class Pair(tuple): pass
class Table(dict):
    def __missing__(self, key): return self.rest
class Several(list): pass
class Slots: __slots__ = ("k",)
class Both(Slots): pass
class Bytes(io.BytesIO): pass
def with_attribute(value, name, k):
    setattr(value, name, k)
    return value
"""


@pytest.mark.parametrize("value", [
    "Number(k)", "Whole(k)", "Word(k)", "Pair([k])", "Several([k])", "Table(a=k)", "Bytes(bytes(k))", "collections.defaultdict(lambda: k)", "collections.Counter(k * 'a')",
    "collections.OrderedDict(a=k)", "collections.deque([k])", "collections.ChainMap({1: k})", "with_attribute(Table(), 'rest', k)", "with_attribute(Several(), 'k', k)",
    "with_attribute(Number(1), 'k', k)", "with_attribute(Pair(), 'k', k)", "with_attribute(Slots(), 'k', k)", "with_attribute(Both(), 'k', k)"])
def test_contents_of_subclasses_are_in_the_key(value):
    from dovetail.torch import digest
    space = {"__name__": "operators_of_a_test"}
    exec(STATES, space)

    def text(k):
        space["k"] = k
        try:
            return digest.describe(eval(value, space))
        except digest.Unknown:
            return None
    assert text(2) is None or text(2) == text(2) != text(3)


@pytest.mark.parametrize("value", ["object()", "open('/dev/null')", "iter([1])"])
def test_what_has_no_hash_is_refused(monkeypatch, value):
    from dovetail.torch import digest
    with pytest.raises(digest.Unknown):
        key({**SAME, "closure": value}, monkeypatch)


PROCESS = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from torch._dynamo.utils import counters
sys.path.insert(0, sys.argv[1])
from operators import f
x = torch.ones(3, requires_grad=True)
y = torch.compile(lambda x: f(x).sum(), fullgraph=True)(x)
y.backward()
print(json.dumps({"gradient": x.grad.tolist(), "dtype": str(y.dtype), "hits": counters["aot_autograd"]["autograd_cache_hit"]}))
"""


@pytest.mark.slow
def test_in_fresh_processes(tmp_path):
    def process(**change):
        values = {**SAME, **change}
        (tmp_path / "operators.py").write_text(OPERATOR % values)
        (tmp_path / "helpers.py").write_text(f"def scale(x): return x * {values['module']}")
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", PROCESS, str(tmp_path)], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return tuple(json.loads(done.stdout.splitlines()[-1]).values())

    one, two, f32 = [1.0] * 3, [2.0] * 3, "torch.float32"
    assert process() == (one, f32, 0)
    assert process() == (one, f32, 1)
    for name in ("number", "attribute", "helper", "constant", "closure", "module"):
        assert process(**{name: 2}) == (two, f32, 0), name
    assert process(dtype="float64") == (one, "torch.float64", 0)
    assert process(argument=", k: int = 1") == (one, f32, 0)
    assert process() == (one, f32, 1)
    assert process(number="object() and 1") == (one, f32, 1)  # a value is what counts
    assert process(attribute="1\n    other = object()") == (one, f32, 0)  # no hash: neither found nor stored
    assert process(attribute="1\n    other = object()") == (one, f32, 0)
