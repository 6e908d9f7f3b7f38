"""Programs that Inductor writes: they call operators directly, into results that Inductor allocates, and say what eager mode says."""
import contextlib
import copy
import json
import os
import subprocess
import sys

import pytest
import torch
import torch._inductor.config
from conftest import compile_ops, square_source
from torch._inductor.utils import run_and_get_code

import dovetail
import dovetail.torch

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        yield


@pytest.fixture(scope="module")
def shipped():
    dovetail.ops._load_all()
    return torch.ops.dovetail


def program(f, *args, **options):
    """(results, source): compiled, run, and equal to eager mode in values (a fused program may round once less), dtypes and strides."""
    copies = copy.deepcopy(args)  # with their strides
    with torch.no_grad():
        got, code = run_and_get_code(torch.compile(f, fullgraph=True, **options), *args)
        wanted = f(*copies)
    for a, b in zip(*(torch.utils._pytree.tree_leaves(x) for x in (got, wanted))):
        assert torch.allclose(a, b, rtol=1e-6, atol=0) and a.dtype == b.dtype and a.stride() == b.stride(), (a, b)
    for a, b in zip(args, copies):  # what was written
        assert not isinstance(a, torch.Tensor) or torch.equal(a, b)
    return got, "\n".join(code)


def test_direct_calls_into_allocated_results(shipped):
    _, code = program(lambda a, b: dovetail.ops.swiglu(torch.ops.dovetail.swiglu(a, b), b), torch.rand(8), torch.rand(8))
    assert code.count("dovetail_dovetail__swiglu.function(") == 2 and code.count(" = empty_strided_cpu(") == 2
    assert "torch.ops.dovetail" not in code


def test_memory_is_planned(shipped):
    """A chain of five needs three buffers at most: Inductor sees the results."""
    def f(a, b):
        for _ in range(5):
            a = dovetail.ops.swiglu(a, b)
        return a

    _, code = program(f, torch.rand(8), torch.rand(8))
    assert code.count(" = empty_strided_cpu(") == 2 and code.count("# reuse") == 3


def test_every_kind_of_argument(ops):
    def f(x, y):
        a = ops.everything(x + 1, None, [x, y], [None, y], 3, None, 2.5, 0.5, True, None, "text", "it's", [1, 2], None, [1.5], [True], ["a"],
                           torch.float32, None, torch.device("cpu"), layout=torch.strided, format=torch.channels_last)
        b = ops.everything(x, y * 2, [], [], -1, 7, -2.5, None, False, True, "", None, [], [4], [], [], [], torch.bfloat16, torch.int8,
                           torch.device("cpu"))
        return a, b, ops.pick(x, bias=y[0]), ops.pick(x), ops.pick(x, layout="NT"), ops.cat([x, y], 1), ops.cat([x])

    _, code = program(f, torch.rand(2, 3), torch.rand(2, 3))
    assert "torch.ops.torch_ops" not in code


def test_keyword_only_arguments_left_out(shipped):
    """Results cannot follow the positional arguments then."""
    _, code = program(lambda x, w: dovetail.ops.causal_conv1d(x, w), torch.rand(1, 2, 9), torch.rand(2, 2))
    assert "dovetail_dovetail__causal_conv1d.function(" in code


def test_several_results(ops, shipped):
    program(lambda x: [r + 1 for r in ops.halves(x * 2)], torch.rand(8))
    program(lambda g, a, b: dovetail.ops.swiglu_backward(g, a, b), torch.rand(4), torch.rand(4), torch.rand(4))
    program(lambda x: ops.halves(x)[1], torch.rand(8))  # the first one is not used


def test_strides(ops, shipped):
    def f(a, b):
        return shipped.swiglu(a, b), ops.like(a), ops.like(a.t()), ops.like((a + 1).t()), shipped.swiglu((a * 2).t(), b.t()), ops.badd(a, b[0])

    def make():
        return torch.rand(4, 6).t(), torch.rand(12, 4)[::2], torch.rand(6, 1).expand(6, 4), torch.rand(6, 4), torch.rand(30)[5:29].view(6, 4)
    program(lambda xs, ys: [f(x, y) for x, y in zip(xs, ys)], make(), make())  # one program: its compilation is what costs


def test_zero_elements_and_no_dims(ops, shipped):
    program(lambda a, b, c, d, e: (shipped.swiglu(a, b), shipped.swiglu(c, d), ops.halves(e)),
            torch.rand(0, 3), torch.rand(0, 3), torch.rand(()), torch.rand(()), torch.rand(0))


def test_symbolic_sizes(shipped):
    f = torch.compile(lambda a, b: shipped.swiglu(a[:, 1:], b[:, 1:]).sum(0), fullgraph=True, dynamic=True)
    for n, m in ((4, 5), (7, 3), (2, 9)):
        a, b = torch.rand(n, m), torch.rand(n, m)
        with torch.no_grad():
            torch.testing.assert_close(f(a, b), shipped.swiglu(a[:, 1:], b[:, 1:]).sum(0))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True)
def test_sizes_that_depend_on_data(ops):
    def f(x):
        i = ops.nonzero(x)
        return ops.like(x[i]) * 2, i, ops.halves(torch.cat([x[i], x[i]]))
    program(f, torch.tensor([0.0, 1.0, 0.0, 2.0]))


def test_writes_are_in_place(ops):
    """Functionalization's copies are taken back: nothing is cloned, and a graph input is written itself."""
    def f(x):
        y = x + 1
        ops.inc(y)
        ops.inc(x)
        return y * 2

    x = torch.rand(64)
    _, code = program(f, x)
    assert code.count("dovetail_torch_ops__inc.function(") == 2
    assert "clone" not in code and "copy" not in code.split("def call")[1].split("runner")[0]


def test_writes_to_lists(ops):
    def f(x, y):
        z = y * 2
        ops.inc_all([x, z])
        return z
    _, code = program(f, torch.rand(3), torch.rand(4))
    assert "dovetail_torch_ops__inc_all.function(" in code


def test_views_are_seen(ops):
    def f(x):
        y = ops.swapped(x + 1, 0, 1)
        return y + 1, ops.part(y, 0, 1, 2) * 2
    program(f, torch.rand(3, 4))


def test_parameters_and_training(shipped):
    def step(mode):
        torch.manual_seed(0)
        x, w = torch.rand(4, 8), torch.nn.Parameter(torch.rand(8))
        f = torch.compile(mode, fullgraph=True) if compiled else mode
        f(x, w).sum().backward()
        return w.grad

    def loss(x, w):
        return shipped.swiglu(dovetail.ops.rms_norm(x, w), w.expand(4, 8) * 2) ** 2

    compiled = False
    wanted = step(loss)
    compiled = True
    torch.testing.assert_close(step(loss), wanted)


def test_freezing(shipped):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.rand(8))

        def forward(self, x):
            return dovetail.ops.rms_norm(x, self.w + 1)

    model = Model().eval()
    x = torch.rand(2, 8)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        torch.testing.assert_close(torch.compile(model, fullgraph=True)(x), model(x))


def test_errors_are_ours(ops):
    f = torch.compile(lambda x, when: ops.fail_if(x, when, "from a graph"), fullgraph=True, dynamic=True)
    f(torch.rand(2, 2), 0)
    with pytest.raises(RuntimeError, match="the kernel says: from a graph"):
        f(torch.rand(2, 2), 3)


@pytest.mark.slow
def test_cpp_wrapper(ops, shipped):
    def f(x, y):
        x = x + 1
        ops.inc(x)
        return ops.cat([x, y], 1), shipped.swiglu(x, y), ops.pick(x, bias=y[0]), ops.halves(y[0])[1]
    with torch._inductor.config.patch(cpp_wrapper=True):
        program(f, torch.rand(2, 4), torch.rand(2, 4))


@pytest.mark.slow
def test_aot_inductor(ops, shipped, tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return ops.cat([x, y], 1), dovetail.ops.swiglu(x, y), ops.pick(x, bias=y[0])

    x, y = torch.rand(2, 4), torch.rand(2, 4)
    n = torch.export.Dim("n", min=2, max=64)
    exported = torch.export.export(Model(), (x, y), dynamic_shapes=({0: n}, {0: n}))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    run = torch._inductor.aoti_load_package(path)
    for n in (2, 5):
        x, y = torch.rand(n, 4), torch.rand(n, 4)
        for a, b in zip(run(x, y), Model()(x, y)):
            assert torch.equal(a, b)


PROCESS = """
import json, sys, torch, dovetail
from torch._dynamo.utils import counters
f = dovetail.ops.swiglu
x = torch.arange(4.0)
with torch.no_grad(), dovetail.policy(sys.argv[1]):
    right = torch.allclose(torch.compile(lambda a, b: f(a + 1, b), fullgraph=True)(x, x), f(x + 1, x))
print(json.dumps({"right": right, "hits": counters["aot_autograd"]["autograd_cache_hit"], "misses": counters["aot_autograd"]["autograd_cache_miss"]}))
"""


@pytest.mark.slow
def test_cache_across_processes(tmp_path):
    def process(policy):
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        out = subprocess.run([sys.executable, "-c", PROCESS, policy], env=env, check=True, capture_output=True, text=True).stdout
        return json.loads(out.splitlines()[-1])

    assert process("all") == {"right": True, "hits": 0, "misses": 1}
    assert process("all") == {"right": True, "hits": 1, "misses": 0}
    assert process("none") == {"right": True, "hits": 0, "misses": 1}  # another key
    assert process("none") == {"right": True, "hits": 1, "misses": 0}


CHANGED = """
import json, sys, torch, dovetail
from torch._dynamo.utils import counters
f = dovetail.load(sys.argv[1]).square
x = torch.full((3,), 5.0, requires_grad=True)
y = torch.compile(lambda a: f(a + 1), fullgraph=True)(x)
print(json.dumps({"gradient": torch.autograd.grad(y.sum(), x)[0][0].item(), "hits": counters["aot_autograd"]["autograd_cache_hit"]}))
"""


@pytest.mark.slow
def test_the_cache_knows_what_an_operator_declares(tmp_path):
    """A library that was compiled anew, with another gradient: programs on disk are of the old one."""
    def process(factor):
        (tmp_path / "square.c").write_text(square_source("cache_changed", f"{factor} * grad * x"))
        binary = compile_ops(tmp_path / "square.c", tmp_path / "square.so")
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
        out = subprocess.run([sys.executable, "-c", CHANGED, str(binary)], env=env, check=True, capture_output=True, text=True).stdout
        return json.loads(out.splitlines()[-1])

    assert process("2") == {"gradient": 12, "hits": 0}
    assert process("2") == {"gradient": 12, "hits": 1}
    assert process("3") == {"gradient": 18, "hits": 0}


# ---- the policy

def runs(name, f):
    """How often f() ran the operator's own kernels, and its decomposition."""
    before = dovetail.policy.counts().get(name, (0, 0))
    f()
    return tuple(b - a for a, b in zip(before, dovetail.policy.counts()[name]))


@contextlib.contextmanager
def process_policy(text):
    dovetail.policy.set(text)
    try:
        yield
    finally:
        dovetail.policy.set(None)


@pytest.mark.parametrize("scope", [dovetail.policy, process_policy])
def test_an_operator_that_is_off_is_fused(shipped, scope):
    with scope("none"):
        _, code = program(lambda a, b: dovetail.ops.swiglu(a + 1, b) * 2, torch.rand(8), torch.rand(8))
    assert "dovetail" not in code.split("def call")[1] and code.count("void  kernel(") + code.count("void kernel(") == 1


def test_vllm_default_means_off_for_inductor_alone(shipped):
    a, b = torch.rand(8), torch.rand(8)
    with torch.no_grad(), dovetail.policy("vllm-default"):
        f = shipped.swiglu
        for backend, count in ((None, (1, 0)), ("eager", (1, 0)), ("aot_eager", (1, 0)), ("inductor", (0, 0))):
            torch._dynamo.reset()
            g = torch.compile(lambda a, b: f(a, b), backend=backend, fullgraph=True) if backend else f
            assert runs("dovetail::swiglu", lambda: torch.testing.assert_close(g(a, b), a * torch.sigmoid(a) * b)) == count, backend


def test_changing_the_policy_compiles_again_and_back_reuses(shipped):
    compiled = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    f = torch.compile(lambda a, b: shipped.swiglu(a, b) + dovetail.ops.sigmoid(a), backend=compiled, fullgraph=True)
    a, b = torch.rand(8), torch.rand(8)
    with torch.no_grad():
        for text, count, own in (("all", 1, 1), ("none", 2, 0), ("all", 2, 1), ("all,-swiglu", 3, 0), ("none", 3, 0), ("all", 3, 1),
                                 ("all,-rms_norm", 3, 1)):
            with dovetail.policy(text):
                assert runs("dovetail::swiglu", lambda: torch.testing.assert_close(f(a, b), a * torch.sigmoid(a) * b + torch.sigmoid(a))) == (own, 0)
            assert compiled.frame_count == count, text


def test_training_under_a_policy(shipped):
    def grads(text, f):
        x, y = torch.arange(4.0).requires_grad_(), torch.ones(4, requires_grad=True)
        with dovetail.policy(text):
            f(x, y).sum().backward()
        return x.grad, y.grad

    f = torch.compile(dovetail.ops.swiglu, fullgraph=True)
    wanted = grads("all", dovetail.ops.swiglu)
    for text in ("all", "none", "all"):
        torch.testing.assert_close(grads(text, f), wanted)


def test_another_backend_has_the_native_form_too(shipped):
    seen = []

    def backend(gm, inputs):
        seen.append([str(n.target) for n in gm.graph.nodes if n.op == "call_function"])
        return gm.forward

    f = torch.compile(dovetail.ops.swiglu, backend=backend, fullgraph=True)
    a, b = torch.rand(4), torch.rand(4)
    wanted = f(a, b)
    with dovetail.policy("none"):
        torch.testing.assert_close(f(a, b), wanted)
    assert seen == [["dovetail.swiglu.default"], ["dovetail_native.dovetail_swiglu.default"]]


WRITER = """
#include <dovetail_op.h>
struct add { dv_tensor *x; const dv_tensor *y; dv_tensor *out; };
static int add(dv_context *ctx, const struct add *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->x->data)[i] += ((const float *)a->y->data)[i];
    return DV_OK;
}
DV_OPERATOR(add_, struct add, (x, y, out), .schema = "add_(Tensor(a!) x, Tensor y) -> Tensor(a!) out", .contract = "x[*s]:f32, y[*s]:f32 -> out[*s]:f32",
    .native = "add(x, y)", .kernels = DV_KERNELS(DV_KERNEL(struct add, "cpu", "f32", add)));
struct put { dv_tensor *x; const dv_tensor *y; };
static int put(dv_context *ctx, const struct put *a) { return add(ctx, &(struct add){ a->x, a->y, a->x }); }
DV_OPERATOR(put, struct put, (x, y), .schema = "put(Tensor(a!) x, Tensor y) -> ()", .contract = "x[*s]:f32, y[*s]:f32",
    .native = "add(x, y)", .kernels = DV_KERNELS(DV_KERNEL(struct put, "cpu", "f32", put)));
DV_LIBRARY(writers, &dv_op_add_, &dv_op_put);
"""


def test_an_operator_that_writes_and_is_off(fresh):
    fresh(WRITER, name="writers")

    def f(x, y):
        torch.ops.writers.put(x, y)
        return x * 2
    with dovetail.policy("none"):
        _, code = program(f, torch.rand(4), torch.rand(4))
    assert "dovetail" not in code.split("def call")[1]


# ---- the life of a library

ADD = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + %s;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(reloaded, &dv_op_f);
"""


def test_reload(fresh):
    handle, _ = fresh(ADD % 1, name="reloaded")
    op = torch.ops.reloaded.f
    f = torch.compile(lambda x: op(x) * 2, fullgraph=True)
    with torch.no_grad():
        assert f(torch.ones(2)).tolist() == [4, 4]
        dovetail.torch.unregister(handle)
        with pytest.raises(RuntimeError, match="unloaded|not loaded"):
            f(torch.ones(2))
        dovetail._core.library_free(handle)
        fresh.forget(handle)
        fresh(ADD % 2, name="reloaded")
        assert f(torch.ones(2)).tolist() == [6, 6]
