"""What happens around a call: exceptions that pass through, processes, threads, lifetimes, programs that are saved, unusual tensors, memory."""
import copy
import ctypes
import gc
import io
import os
import pickle
import subprocess
import sys
import threading

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dovetail
from conftest import ROOT, compile_ops, one, square_source


@pytest.fixture
def python(forked):
    """Runs a script in a new process."""
    def run(code, *arguments, ok="ok\n"):
        done = forked(code, *arguments)
        assert done.returncode == 0 and done.stdout.endswith(ok), done.stdout + done.stderr
        return done
    return run


# ---- exceptions ------------------------------------------------------------------------------------------------------------------

class Odd(ValueError):
    def __init__(self, number):
        super().__init__(f"number {number}, très drôle")
        self.number = number


class RaisingDispatch(TorchDispatchMode):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "custom_op_db":
            raise self.error from OSError("the cause")
        return func(*args, **(kwargs or {}))


class RaisingFunction(TorchFunctionMode):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise self.error from OSError("the cause")


def raising_pack(error):
    def pack(t):
        raise error from OSError("the cause")
    return torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)


@pytest.mark.parametrize("error", [Odd(7), KeyboardInterrupt("stop"), SystemExit(3), StopIteration("enough"), torch.cuda.OutOfMemoryError("no room")],
                         ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("requires_grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("where", [RaisingDispatch, RaisingFunction, raising_pack])
def test_an_exception_keeps_its_type_text_and_cause(db, where, requires_grad, error):
    x = torch.ones(3, requires_grad=requires_grad)
    if where is raising_pack and not requires_grad:
        pytest.skip("nothing is saved")
    for f in (db.numpy_mul, torch.ops.custom_op_db.numpy_mul, torch.ops.custom_op_db.numpy_mul.default):
        with pytest.raises(type(error)) as caught, where(error):
            f(x, x)
        assert caught.value is error
        assert isinstance(caught.value.__cause__, OSError) and str(caught.value.__cause__) == "the cause"
    assert torch.equal(db.numpy_mul(x, x), x * x)


@pytest.mark.parametrize("error", [Odd(7), KeyboardInterrupt("stop")], ids=lambda e: type(e).__name__)
def test_an_exception_in_backward(db, error):
    def unpack(t):
        raise error from OSError("the cause")

    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = db.numpy_mul(x, x)
    with pytest.raises(type(error)) as caught:
        y.sum().backward()
    assert caught.value is error and str(caught.value.__cause__) == "the cause"

    def hook(grad):
        raise error

    y = db.numpy_mul(x, x)
    y.register_hook(hook)
    with pytest.raises(type(error)) as caught:
        y.sum().backward()
    assert caught.value is error


@pytest.mark.parametrize("requires_grad", [False, True])
def test_an_exception_of_a_nested_call(db, requires_grad):
    """An operator's decomposition and gradient call others, and those may raise: numpy_take in the gradient of numpy_sort."""
    x = torch.randn(3, 5, requires_grad=True)
    y = db.numpy_sort(x, 1)[0]
    with pytest.raises(Odd) as caught, RaisingDispatch(Odd(3)):
        torch.autograd.grad(y.sum(), x, create_graph=requires_grad)
    assert caught.value.number == 3 and str(caught.value.__cause__) == "the cause"


def test_kernel_errors_have_one_type_everywhere(db):
    """RuntimeError by torch.ops and by the function, with and without gradients, with our text and no C++ trace."""
    x, bad = torch.ones(2, 3, dtype=torch.float64), torch.full((2, 3), 9)
    for requires_grad in (False, True):
        x = x.detach().requires_grad_(requires_grad)
        for f in (db.numpy_take, torch.ops.custom_op_db.numpy_take):
            with pytest.raises(RuntimeError, match="^custom_op_db::numpy_take: .*argument 'ind': 9 is out of range for size 3") as caught:
                f(x, bad, bad, 1)
            assert len(str(caught.value).strip().splitlines()) == 1


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 5000, "日本語" * 3000, "a" + "😀" * 2000, "tab\tand\nline", "100%s %n %d", "\x7f\x01"], ids=range(7))
def test_long_and_foreign_messages(ops, text):
    """What does not fit is cut off, and Python can read the rest."""
    with pytest.raises(RuntimeError, match="torch_ops::fail_if") as caught:
        ops.fail_if(torch.ones(2, 2), 1, text)
    found = str(caught.value)
    assert "the kernel says: " + text[:200] in found and "\ufffd" not in found


def test_no_exception_is_left_behind(db):
    with pytest.raises(RuntimeError):
        db.numpy_nonzero(torch.zeros(3))
    try:
        raise KeyError("mine")
    except KeyError as e:
        with pytest.raises(RuntimeError) as caught:
            db.numpy_nonzero(torch.zeros(3))
        assert e.args == ("mine",) and (caught.value.__context__ is None or caught.value.__context__ is e)


BYTES = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a) { (void)a; return dv_error(ctx, DV_EKERNEL, "caf\\xe9 \\xff\\xc3"); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(robust_bytes, &dv_op_f);
"""


def test_messages_that_are_no_text(load):
    library = load(BYTES)
    numpy = pytest.importorskip("numpy")
    for call in (lambda: library.f(torch.ones(2)), lambda: torch.ops.robust_bytes.f(torch.ones(2)), lambda: library.f(numpy.ones(2, "float32"))):
        with pytest.raises(RuntimeError, match=r"robust_bytes::f.*caf\? \?\?"):
            call()


def test_signals_arrive_between_calls(db, python):
    python("""
import os, signal, sys, threading, time
import dovetail, torch
db = dovetail.load(sys.argv[1])
x, seen = torch.ones(100), []
signal.signal(signal.SIGALRM, lambda *a: seen.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while len(seen) < 50:
    assert torch.equal(db.numpy_mul(x, x), x)
signal.setitimer(signal.ITIMER_REAL, 0)
def stop(*a):
    raise KeyboardInterrupt("from the handler")
signal.signal(signal.SIGUSR1, stop)
threading.Thread(target=lambda: (time.sleep(0.05), os.kill(os.getpid(), signal.SIGUSR1))).start()
try:
    while True:
        db.numpy_mul(x, x)
except KeyboardInterrupt as e:
    assert str(e) == "from the handler"
assert torch.equal(torch.ops.custom_op_db.numpy_mul(x, x), x)
print("ok")
""", db.path)


# ---- processes and threads -------------------------------------------------------------------------------------------------------

WORKERS = """
import sys
import dovetail, torch
db = dovetail.load(sys.argv[1])

class Data(torch.utils.data.Dataset):
    f = db.numpy_mul          # pickled by name for spawn
    def __len__(self):
        return 12
    def __getitem__(self, i):
        x = torch.full((3,), float(i), requires_grad=True)
        y = self.f(x, x)
        z, = torch.autograd.grad(y.sum(), x)
        return torch.stack([y.detach(), z])

if __name__ == "__main__":
    x = torch.ones(4000)
    for _ in range(3):
        db.numpy_mul(x, x)                       # threads are running when the process forks
    db.numpy_mul(x.requires_grad_(), x).sum().backward()
    for method in ("fork", "spawn"):
        for workers in (0, 2) if method == "fork" else (1,):
            loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=workers, multiprocessing_context=method if workers else None)
            got = torch.cat(list(loader))
            n = torch.arange(12.0)
            assert torch.equal(got[:, 0, 0], n * n) and torch.equal(got[:, 1, 0], 2 * n), (method, workers)
        assert torch.equal(db.numpy_mul(x.detach(), x.detach()), x * x)
    print("ok")
"""


def test_data_loader_workers(db, tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    done = subprocess.run([sys.executable, "-W", "ignore", str(script), db.path], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


def test_fork_from_a_thread_while_others_call(db, python):
    python("""
import os, sys, threading
import dovetail, torch
db = dovetail.load(sys.argv[1])
x, stop, wrong = torch.ones(5000), [], []
def work():
    while not stop:
        db.numpy_mul(x, x)
        try:
            db.numpy_nonzero(x * 0)
            wrong.append(1)
        except RuntimeError:
            pass
threads = [threading.Thread(target=work) for _ in range(2)]
for t in threads: t.start()
def fork():
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(1)
            os._exit(0 if torch.equal(db.numpy_mul(x, x), x) else 1)
        if os.waitpid(pid, 0)[1]:
            wrong.append(2)
f = threading.Thread(target=fork)
f.start(); f.join()
stop.append(1)
for t in threads: t.join()
assert not wrong, wrong
print("ok")
""", db.path)


SHARED = """
import sys
import dovetail, torch
import torch.multiprocessing as mp

def child(path, x, y):
    dovetail.load(path).inc(x)
    y.copy_(torch.ops.torch_ops.like(x))

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        context = mp.get_context(method)
        x, y = torch.zeros(4).share_memory_(), torch.zeros(4).share_memory_()
        p = context.Process(target=child, args=(sys.argv[1], x, y))
        p.start()
        p.join()
        assert p.exitcode == 0 and x.tolist() == y.tolist() == [1, 1, 1, 1], (method, x, y)
    print("ok")
"""


def test_shared_tensors(binary, tmp_path):
    script = tmp_path / "shared.py"
    script.write_text(SHARED)
    done = subprocess.run([sys.executable, "-W", "ignore", str(script), str(binary)], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


def test_eight_threads_on_every_path(db):
    x = torch.randn(6, 7, dtype=torch.float64)
    compiled = torch.compile(lambda t: db.numpy_mul(t, t) + 1, backend="aot_eager", fullgraph=True)
    compiled(x)
    wrong = []

    def work(seed):
        try:
            torch.manual_seed(seed)
            for i in range(60):
                a = torch.randn(5, dtype=torch.float64)
                if not torch.equal(db.numpy_mul(a, a), a * a) or not torch.equal(torch.ops.custom_op_db.numpy_sort(a, 0)[0], a.sort()[0]):
                    wrong.append("value")
                b = a.clone().requires_grad_()
                g, = torch.autograd.grad(db.numpy_cube(b)[0].sum(), b)
                if not torch.allclose(g, 3 * a * a):
                    wrong.append("gradient")
                if i % 10 == 0 and not torch.equal(compiled(x), x * x + 1):
                    wrong.append("compiled")
                with torch.inference_mode(i % 2 == 0):
                    db.numpy_mul_scalar(a, scalar=2.0)
                try:
                    db.numpy_nonzero(a * 0)
                    wrong.append("no error")
                except RuntimeError as e:
                    if "fewer than two" not in str(e):
                        wrong.append(str(e))
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_replicas_in_threads_share_a_graph(db):
    """As DataParallel does it: one thread for each replica, parameters shared, gradients accumulated."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.f = torch.nn.Parameter(torch.ones(4)), db.numpy_mul

        def forward(self, x):
            return self.f(x, self.w)

    net = Net()
    inputs, outputs = [torch.full((4,), float(i)) for i in range(4)], [None] * 4

    def work(i):
        outputs[i] = net(inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sum(y.sum() for y in outputs).backward()
    assert net.w.grad.tolist() == [6.0] * 4


# ---- lifetimes -------------------------------------------------------------------------------------------------------------------

class Heap(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def allocated():
    """Bytes that malloc has given out: unlike the size of the process, these do not depend on where they lie."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Heap
    gc.collect()
    heap = libc.mallinfo2()
    return heap.uordblks + heap.hblkhd


def test_loading_and_closing_again_and_again(tmp_path):
    """The 1,024 operators that were closed last are kept, for threads that are still in a call; so many are loaded and closed first."""
    source, many = tmp_path / "again.c", tmp_path / "many.c"
    source.write_text(one("robust_again"))
    path = compile_ops(source, tmp_path / "again.so")
    first = one("robust_many").partition("DV_LIBRARY")[0]
    declared = first[first.index("DV_OPERATOR(f,"):]
    more = [declared.replace("DV_OPERATOR(f,", f"DV_OPERATOR(f{i},").replace('"f(', f'"f{i}(') for i in range(100)]
    many.write_text(first + "\n".join(more) + "DV_LIBRARY(robust_many, " + ", ".join(f"&dv_op_f{i}" for i in range(100)) + ");\n")
    all_of_them = compile_ops(many, tmp_path / "many.so")
    for _ in range(12):
        dovetail.load(all_of_them).close()
    x = torch.zeros(2, requires_grad=True)

    def known():
        return len(torch._C._dispatch_get_all_op_names()), len(torch._C._dispatch_get_registrations_for_dispatch_key("CPU"))

    def work():
        with dovetail.load(path) as library:
            assert library.f(torch.zeros(2)).tolist() == [1, 1] == torch.ops.robust_again.f(x.detach()).tolist()
            torch.ops.robust_again.f(torch.empty(3, device="meta"))

    for _ in range(50):
        work()
    before, names = allocated(), known()
    objects = len(gc.get_objects())
    for _ in range(200):
        work()
    after = allocated()
    assert known() == names
    assert len(gc.get_objects()) - objects < 200  # one object each time would be 200
    assert after - before < 200 * 2_000  # torch keeps about 100 bytes each time, for its own operators too; one of ours has 16,000


def test_two_versions_of_a_library(load):
    """A torch namespace holds one: the second is refused as long as the first is there."""
    first = load(one("robust_two"), "first")
    with pytest.raises(RuntimeError, match="robust_two"):
        load(one("robust_two", 2), "second")
    assert first.f(torch.zeros(1)).item() == torch.ops.robust_two.f(torch.zeros(1)).item() == 1
    first.close()
    second = load(one("robust_two", 2), "third")
    assert second.f(torch.zeros(1)).item() == torch.ops.robust_two.f(torch.zeros(1)).item() == 2


def test_what_holds_a_closed_library(load):
    """The function, the overload, a graph with gradients and a compiled function: an error each, and all work again after loading."""
    library = load(square_source("robust_held", "grad * 2 * square(x) / x"))
    x = torch.full((3,), 2.0, requires_grad=True)
    f, overload = library.square, torch.ops.robust_held.square.default
    y = f(x)
    compiled = torch.compile(lambda t: overload(t) + 1, backend="aot_eager")
    exported = torch.export.export(Wrap(overload), (torch.ones(3),))
    with torch.no_grad():
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
    library.close()
    for call in (lambda: f(torch.ones(3)), lambda: overload(torch.ones(3))):
        with pytest.raises(RuntimeError, match="robust_held"):
            call()
    with pytest.raises((RuntimeError, AttributeError), match="robust_held"):
        y.sum().backward()
    for call in (lambda: compiled(torch.ones(3)), lambda: exported.module()(torch.ones(3))):
        with pytest.raises((RuntimeError, AttributeError), match="robust_held"):  # a graph's code says torch.ops.robust_held.square
            call()
    again = load(square_source("robust_held", "grad * 2 * square(x) / x"))
    assert again.square(torch.ones(3)).tolist() == overload(torch.ones(3)).tolist() == [1, 1, 1]
    z = again.square(x)
    z.sum().backward()
    assert x.grad.tolist() == [4, 4, 4]


class Wrap(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *x):
        return self.f(*x)


# ---- modes -----------------------------------------------------------------------------------------------------------------------

def test_inference_mode(db, ops):
    x = torch.randn(3, requires_grad=True)
    with torch.inference_mode():
        y, z = db.numpy_mul(x, x), torch.ops.custom_op_db.numpy_mul(x, x)
        assert y.is_inference() and z.is_inference() and not y.requires_grad
        assert db.numpy_mul(y, y).is_inference()
        ops.inc(y)
    assert torch.equal(y, x * x + 1)
    w = db.numpy_mul(y, y)                       # an inference tensor outside: an ordinary result, as torch.mul gives
    assert w.is_inference() == (y * y).is_inference()
    with pytest.raises(RuntimeError, match="[Ii]nference tensor"):
        ops.inc(y)
    assert torch.equal(y, x * x + 1)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        db.numpy_mul(x, y).sum().backward()


FLAGS = """
#include <dovetail_op.h>
struct flags { const dv_tensor *x; dv_tensor *out; };
static int flags(dv_context *ctx, const struct flags *a)
{
    (void)a;
    *(int64_t *)a->out->data = (ctx->flags & DV_CTX_DETERMINISTIC) != 0;
    return DV_OK;
}
DV_OPERATOR(flags, struct flags, (x, out), .schema = "flags(Tensor x) -> Tensor out", .contract = "x[*s] -> out[]:i64",
    .kernels = DV_KERNELS(DV_KERNEL(struct flags, "cpu", NULL, flags)));
DV_LIBRARY(robust_flags, &dv_op_flags);
"""


def test_deterministic_mode_reaches_kernels(load):
    library, x = load(FLAGS), torch.ones(2)
    calls = (library.flags, torch.ops.robust_flags.flags, torch.compile(lambda x: library.flags(x), backend="aot_eager", fullgraph=True))
    try:
        for on in (False, True, False):
            torch.use_deterministic_algorithms(on)
            assert [f(x).item() for f in calls] == [on] * 3
    finally:
        torch.use_deterministic_algorithms(False)


def test_no_grad_and_grad_inside(db):
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not db.numpy_mul(x, x).requires_grad
        with torch.enable_grad():
            assert db.numpy_mul(x, x).requires_grad
    with torch.set_grad_enabled(False):
        assert db.numpy_mul(x, x).grad_fn is None


def test_profiler_names_and_shapes(db):
    x = torch.ones(3, 5)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        db.numpy_mul(x, x)
        torch.ops.custom_op_db.numpy_cube(x)
        db.numpy_mul(x.requires_grad_(), x).sum().backward()
    events = {e.name: e for e in profile.events()}
    assert events["custom_op_db::numpy_mul"].input_shapes[:2] == [[3, 5], [3, 5]] and "custom_op_db::numpy_cube" in events
    assert sum(e.name == "custom_op_db::numpy_mul" for e in profile.events()) >= 3  # backward calls it, too


# ---- programs that are traced and saved --------------------------------------------------------------------------------------------

RUN_SAVED = """
import sys
import dovetail, torch
dovetail.load(sys.argv[1])
x = torch.arange(6.0).reshape(2, 3)
expected = (x * x).sin() + 1
program = %s
assert torch.allclose(program(x), expected)
print("ok")
"""


def square_sin(x):
    return torch.ops.custom_op_db.numpy_mul(x, x).sin() + 1


def test_export_save_and_load_in_another_process(db, tmp_path, python):
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(Wrap(square_sin), (torch.ones(4, 3),), dynamic_shapes=(({0: batch},),))
    assert any(n.target is torch.ops.custom_op_db.numpy_mul.default for n in program.graph.nodes)
    torch.export.save(program, tmp_path / "program.pt2")
    python(RUN_SAVED % "torch.export.load(sys.argv[2]).module()", db.path, tmp_path / "program.pt2")
    decomposed = program.run_decompositions()
    x = torch.randn(5, 3)
    torch.testing.assert_close(decomposed.module()(x), square_sin(x))


def test_jit_trace_save_and_load_in_another_process(db, tmp_path, python):
    traced = torch.jit.trace(square_sin, (torch.ones(4, 3),))
    assert "custom_op_db::numpy_mul" in str(traced.graph)
    x = torch.randn(2, 3)
    torch.testing.assert_close(traced(x), square_sin(x))
    torch.jit.save(traced, str(tmp_path / "traced.pt"))
    python(RUN_SAVED % "torch.jit.load(sys.argv[2])", db.path, tmp_path / "traced.pt")
    by_function = torch.jit.trace(lambda x: db.numpy_mul(x, x).sin() + 1, (torch.ones(4, 3),))  # through the library's function
    assert "custom_op_db::numpy_mul" in str(by_function.graph)
    torch.testing.assert_close(by_function(x), square_sin(x))


def test_jit_script(db, tmp_path, python):
    scripted = torch.jit.script(square_sin)
    x = torch.randn(2, 3, requires_grad=True)
    for _ in range(3):  # the executor specialises after the first ones
        torch.testing.assert_close(scripted(x), square_sin(x))
    torch.testing.assert_close(torch.autograd.grad(scripted(x).sum(), x), torch.autograd.grad(square_sin(x).sum(), x))
    torch.jit.save(scripted, str(tmp_path / "scripted.pt"))
    python(RUN_SAVED % "torch.jit.load(sys.argv[2])", db.path, tmp_path / "scripted.pt")


def test_fx_tracers(db):
    from torch.fx.experimental.proxy_tensor import make_fx
    x = torch.randn(2, 3)
    symbolic = torch.fx.symbolic_trace(square_sin)
    assert any("numpy_mul" in str(n.target) for n in symbolic.graph.nodes)
    torch.testing.assert_close(symbolic(x), square_sin(x))
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(lambda x: db.numpy_mul(x, x).sin() + 1, tracing_mode=mode)(x)
        assert torch.ops.custom_op_db.numpy_mul.default in {n.target for n in graph.graph.nodes}, mode
        torch.testing.assert_close(graph(x), square_sin(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(db, reentrant):
    from torch.utils.checkpoint import checkpoint
    x = torch.randn(4, requires_grad=True)
    y = checkpoint(lambda t: db.numpy_mul(t, t).sin(), x, use_reentrant=reentrant)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() * (x.detach() ** 2).cos())


def test_saving_results(db):
    y = db.numpy_cube(torch.randn(3))[0]
    buffer = io.BytesIO()
    torch.save({"y": y, "parameter": torch.nn.Parameter(y)}, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=True)["y"], y)


def test_modules_that_hold_operators(db):
    net = Wrap(db.numpy_mul)
    x = torch.randn(3)
    for other in (copy.deepcopy(net), copy.copy(net), pickle.loads(pickle.dumps(net))):
        assert other.f is db.numpy_mul and torch.equal(other(x, x), x * x)
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False).f is db.numpy_mul
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="[Ww]eights"):
        torch.load(buffer, weights_only=True)
    holder = Wrap(db.numpy_mul)
    holder.library = db
    assert copy.deepcopy(holder).library is db and pickle.loads(pickle.dumps(holder)).library is db


@pytest.mark.slow
def test_autograd_cache_hits_in_a_second_process(db, tmp_path, python):
    code = """
import sys
import dovetail, torch
import torch._functorch.config
from torch._dynamo.utils import counters
torch._functorch.config.enable_autograd_cache = True
db = dovetail.load(sys.argv[1])
f = torch.compile(lambda x: db.numpy_mul(x, torch.ops.custom_op_db.numpy_mul(x, x) / x) + 1, fullgraph=True)
x = torch.randn(4, requires_grad=True)
y = f(x)
y.sum().backward()
torch.testing.assert_close(x.grad, 2 * x.detach())
c = counters["aot_autograd"]
print("hit" if c["autograd_cache_hit"] else "miss" if c["autograd_cache_miss"] else "bypass", dict(c))
"""
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "cache")
    try:
        found = [python(code, db.path, ok="\n").stdout for _ in range(2)]
    finally:
        os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
        if before:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
    assert found[0].startswith("miss") and found[1].startswith("hit"), found


# ---- unusual tensors ---------------------------------------------------------------------------------------------------------------

class Tagged(torch.Tensor):
    """__torch_function__ as torch.Tensor has it: results are of the subclass."""


class Plain(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Wrapper(torch.Tensor):
    """A wrapper with __torch_dispatch__ that counts."""
    calls = 0

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        Wrapper.calls += 1
        args, kwargs = torch.utils._pytree.tree_map_only(Wrapper, lambda t: t.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, Wrapper, func(*args, **kwargs))


def test_subclasses(db):
    x = torch.randn(3)
    for f in (db.numpy_mul, torch.ops.custom_op_db.numpy_mul):
        y = f(x.as_subclass(Tagged), x)
        assert type(y) is type(x.as_subclass(Tagged) * x) is Tagged and torch.equal(y.as_subclass(torch.Tensor), x * x)
        y = f(x.as_subclass(Plain), x)
        assert type(y) is torch.Tensor and torch.equal(y, x * x)
        before = Wrapper.calls
        y = f(Wrapper(x), x)
        assert type(y) is Wrapper and Wrapper.calls > before and torch.equal(y.inner, x * x)
        assert torch.equal(f(torch.nn.Parameter(x), x), x * x)
        w = Wrapper(x.clone().requires_grad_())
        assert f(w, w).requires_grad


def test_function_override_sees_the_operator(db):
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return "mine"

    x = torch.randn(3)
    assert db.numpy_mul(x, x.as_subclass(Watching)) == "mine"
    assert torch.ops.custom_op_db.numpy_mul(x, x.as_subclass(Watching)) == "mine"
    assert all("numpy_mul" in str(f) for f in seen)


def test_lists_with_a_subclass(db):
    x = torch.randn(2, 3)
    y = db.numpy_cat([x, x.as_subclass(Tagged), x], 0)
    assert y.shape == (6, 3) and torch.equal(torch.Tensor(y), torch.cat([x, x, x]))


def test_masked_and_nested_tensors_are_refused(db):
    from torch.masked import masked_tensor
    x = torch.ones(3)
    with pytest.raises((TypeError, NotImplementedError, RuntimeError), match="numpy_mul"):
        masked = masked_tensor(x, torch.tensor([True, False, True]))
        if not isinstance(db.numpy_mul(masked, masked), torch.Tensor):
            raise AssertionError("it gave something that is not a tensor")
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with pytest.raises((NotImplementedError, RuntimeError), match="numpy_mul"):
        db.numpy_mul(nested, nested)


def test_devices_that_are_not_there(db, ops):
    with pytest.raises((RuntimeError, AssertionError), match="[Cc][Uu][Dd][Aa]|NVIDIA"):
        db.numpy_mul(torch.ones(2, device="cuda"), torch.ones(2))
    x = torch.ones(2, device="meta")
    assert db.numpy_mul(x, x).device.type == "meta"
    with pytest.raises(RuntimeError, match="numpy_nonzero"):
        db.numpy_nonzero(x)


# ---- memory ------------------------------------------------------------------------------------------------------------------------

def path_eager(db):
    x = torch.randn(16)
    return lambda: db.numpy_mul(x, x)


def path_eager_torch_ops(db):
    x = torch.randn(16)
    return lambda: torch.ops.custom_op_db.numpy_cat([x, x, x], 0)


def path_gradient(db):
    x = torch.randn(16, requires_grad=True)
    return lambda: torch.autograd.grad(db.numpy_mul(x, x).sum(), x)


def path_double_gradient(db):
    x = torch.randn(16, requires_grad=True)
    return lambda: torch.autograd.grad(torch.autograd.grad(db.numpy_mul(x, x).sum(), x, create_graph=True)[0].sum(), x)


def path_compiled(db):
    x = torch.randn(16)
    return torch.compile(lambda: db.numpy_mul(x, x) + 1, backend="aot_eager", fullgraph=True)


def path_kernel_error(db):
    x = torch.zeros(16)

    def call():
        try:
            db.numpy_nonzero(x)
        except RuntimeError:
            return
        raise AssertionError("it must fail")
    return call


def path_contract_error_with_gradient(db):
    x, i = torch.zeros(16, requires_grad=True), torch.zeros(15, dtype=torch.int64)

    def call():
        try:
            db.numpy_take(x, i, i, 0)
        except RuntimeError:
            return
        raise AssertionError("it must fail")
    return call


def path_mode_error(db):
    x = torch.zeros(16, requires_grad=True)

    def call():
        try:
            with RaisingDispatch(Odd(1)):
                db.numpy_mul(x, x)
        except Odd:
            return
        raise AssertionError("it must fail")
    return call


def path_meta(db):
    x = torch.empty(16, device="meta")
    return lambda: db.numpy_cube(x)


def path_unbacked(db):
    x = torch.ones(16)
    return lambda: db.numpy_nonzero(x)


PATHS = [path_eager, path_eager_torch_ops, path_gradient, path_double_gradient, path_compiled, path_kernel_error, path_contract_error_with_gradient,
         path_mode_error, path_meta, path_unbacked]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.__name__[5:])
def test_calls_without_growth(db, path):
    """The smallest thing that a call can lose: a handle of 16 bytes, for which malloc gives 32, or one object of Python."""
    call, grown, calls = path(db), [], 2000

    def held():
        return allocated(), 32 * sys.getallocatedblocks()

    for _ in range(500):
        call()
    for _ in range(3):  # a leak in each call shows in each round
        before = held()
        for _ in range(calls):
            call()
        grown.append([now - then for now, then in zip(held(), before)])
        if max(grown[-1]) < 16 * calls:
            return
    raise AssertionError(f"grown by {grown} bytes")


# ---- several frameworks in one process -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("order", ["import package, torch", "import torch, package", *(
    pytest.param(order, marks=pytest.mark.slow) for order in ("import dovetail, torch", "import torch, dovetail"))])
def test_import_orders(db, tmp_path, forked, order):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import dovetail\n__all__ = dovetail.export(globals())\n")
    (package / "custom_op_db.so").write_bytes(open(db.path, "rb").read())
    code = f"""
import sys
sys.path.insert(0, sys.argv[1])
{order}
if "package" not in sys.modules:
    import package
x = torch.randn(4, requires_grad=True)
y = package.numpy_mul(x, x)
y.sum().backward()
assert torch.equal(x.grad, 2 * x.detach())
assert torch.equal(torch.ops.custom_op_db.numpy_mul(x, x), y)
import numpy
a = numpy.ones(3, "float32")
assert package.numpy_mul(a, a).tolist() == [1, 1, 1]
print("ok")
"""
    torch_first = order.startswith("import torch")
    done = forked(code, tmp_path) if torch_first else subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


C_THREAD = """
#include <dovetail.h>
#include <pthread.h>
static int status;
static void *work(void *n)
{
    float x[8] = { 0, 1, 2, 3, 4, 5, 6, 7 }, y[8];
    const int64_t shape[1] = { 8 };
    int64_t strides[1];
    dv_operator *op = NULL;
    dv_tensor in, out;
    status = dv_find("custom_op_db::numpy_mul", &op);
    status |= dv_tensor_init(&in, x, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, shape, NULL, strides);
    status |= dv_tensor_init(&out, y, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_CPU, 0 }, 1, shape, NULL, strides);
    for (intptr_t i = 0; !status && i < (intptr_t)n; i++) {
        dv_value args[2] = { dv_from_tensor(&in), dv_from_tensor(&in) }, result = dv_from_tensor(&out);
        memset(y, 0, sizeof y);
        status = dv_call(op, args, 2, &result, 1, NULL);
        for (int k = 0; !status && k < 8; k++)
            status = y[k] == x[k] * x[k] ? 0 : 1;
    }
    return NULL;
}
static pthread_t thread;
int begin(intptr_t n) { return pthread_create(&thread, NULL, work, (void *)n); }
int finish(void) { return pthread_join(thread, NULL) || status; }
"""


def test_numpy_torch_and_c_at_once(db, tmp_path, python):
    """One operator called from torch, NumPy and a thread of C, each with its own host, at the same time."""
    (tmp_path / "thread.c").write_text(C_THREAD)
    lib = ROOT / dovetail.library_dir()
    caller = compile_ops(tmp_path / "thread.c", tmp_path / "thread.so", "-fvisibility=default", "-pthread", "-Wl,--no-as-needed", f"-L{lib}",
                         "-l:libdovetail.so.1")
    python("""
import ctypes, sys, threading
import numpy, torch
import dovetail
db = dovetail.load(sys.argv[1])
caller = ctypes.CDLL(sys.argv[2])
caller.begin.argtypes = [ctypes.c_ssize_t]
wrong = []
def with_numpy():
    x = numpy.arange(100, dtype="float32")
    for _ in range(3000):
        y = db.numpy_mul(x, x)
        if type(y) is not numpy.ndarray or not (y == x * x).all():
            wrong.append("numpy")
def with_torch():
    x = torch.arange(100.0, requires_grad=True)
    for i in range(1000):
        y = db.numpy_mul(x, x)
        y.sum().backward()
        if type(y) is not torch.Tensor or not torch.equal(x.grad, 2 * x.detach()):
            wrong.append("torch")
        x.grad = None
        try:
            db.numpy_mul(x, numpy.ones(100, "float32"))
        except (TypeError, RuntimeError):
            pass
threads = [threading.Thread(target=f) for f in (with_numpy, with_torch, with_numpy)]
assert caller.begin(200000) == 0
for t in threads: t.start()
for t in threads: t.join()
assert caller.finish() == 0 and not wrong, wrong[:3]
print("ok")
""", db.path, caller)
