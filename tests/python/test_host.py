"""The host: results, out=, views of the world (GIL, threads, fork, interpreters), and that nothing leaks."""
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref

import dovetail
import numpy as np
import pytest

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# ---- results

def test_results_are_fresh_arrays(ops):
    a, b = ops.scale(X), ops.scale(X)
    assert type(a) is np.ndarray and a.flags.owndata and a.flags.writeable and not np.shares_memory(a, b)


def test_out_in_three_spellings(ops):
    for call in (lambda o: ops.scale(X, 2.0, o), lambda o: ops.scale(X, out=o), lambda o: ops.scale(x=X, out=(o,))):
        out = np.zeros_like(X)
        assert call(out) is out
        np.testing.assert_array_equal(out, 2 * X)


def test_out_may_be_strided(ops):
    whole = np.zeros((3, 4), np.float32)
    ops.scale(X, out=whole.T[:2, ::1][:, :3])
    np.testing.assert_array_equal(whole.T[:2, :3], 2 * X)
    assert not whole.T[2:].any()


def test_some_results_may_be_given(ops):
    hi = np.zeros((), np.float32)
    v = X.ravel()
    for call in (lambda: ops.minmax(v, out=(None, hi)), lambda: ops.minmax(v, hi=hi), lambda: ops.minmax(v, None, hi)):
        result = call()
        assert result[1] is hi and hi == 5 and result[0] == 0 and isinstance(result, tuple)
        hi[...] = 0


def test_a_mutated_argument_is_the_result(ops):
    y = X.copy()
    assert ops.add_(y, X) is y
    np.testing.assert_array_equal(y, 2 * X)
    strided = np.zeros((4, 6), np.float32)
    view = strided[::2, ::2]
    assert ops.add_(view, X) is view
    np.testing.assert_array_equal(strided[::2, ::2], X)
    assert strided.sum() == X.sum()


def test_no_result_is_none(ops):
    y = X.copy()
    assert ops.fill(y, 3) is None and (y == 3).all()


def test_sizes_that_depend_on_data(ops):
    x = np.array([0, 3, 0, 4, 5], np.float32)
    np.testing.assert_array_equal(ops.nonzero(x), [1, 3, 4])
    assert ops.nonzero(x).dtype == np.int64 and ops.nonzero(x[:1]).shape == (0,)
    long = np.ones(200_000, np.float32)  # long enough that the GIL is released while the result is made
    for _ in range(5):
        assert ops.nonzero(long).shape == (200_000,)


def test_overloads(ops):
    assert ops.pick(1) == 1 and ops.pick(X) == 2 and ops.pick(X, 3) == 3 and ops.pick(x=X, k=1) == 3
    assert ops.pick.two(X, 1) == 3 and [o.name for o in ops.pick.overloads] == ["py_ops::pick.int", "py_ops::pick.tensor", "py_ops::pick.two"]
    assert ops.scale.default is ops.scale and ops.scale.overloads == (ops.scale,)
    with pytest.raises(AttributeError, match="nothing"):
        ops.pick.nothing


def test_a_python_keyword_as_a_name(ops):
    assert ops.keyed(X, k=2, from_=5) == ops.keyed(X, k=2, **{"from": 5}) == 17


def test_slow_ways_to_call(ops):
    import functools
    assert functools.partial(ops.scale, factor=3.0)(X)[0, 1] == 3
    assert list(map(ops.echo_int, range(3))) == [0, 1, 2]
    assert ops.scale(*[X], **{"factor": 3.0})[0, 1] == 3
    assert type(ops.scale).__call__(ops.scale, X, factor=3.0)[0, 1] == 3

    class Model:
        scale = ops.scale  # not bound
    assert Model().scale(X)[0, 1] == 2


# ---- the world around

def test_the_gil_is_let_go_while_a_kernel_runs(ops):
    """A thread counts while a kernel sleeps for 300 ms. With the GIL held it could not."""
    counted = []

    def count():
        n = 0
        while not done.is_set():
            n += 1
            time.sleep(0.001)
        counted.append(n)

    for warm in (0, 20):  # the first call, and one after calls that were short
        for _ in range(warm):
            ops.wait_ms(X, 0)
        ops.wait_ms(X, 20)  # one long call may follow short ones with the GIL held; the next may not
        done = threading.Event()
        thread = threading.Thread(target=count)
        thread.start()
        ops.wait_ms(X, 300)
        done.set()
        thread.join()
        assert counted.pop() > 30


def test_a_larger_call_lets_the_gil_go_at_once(ops):
    small, large = np.zeros(4, np.float32), np.zeros(64, np.float32)
    for _ in range(20):
        ops.wait_ms(small, 0)
    ticks = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [(ticks.append(time.perf_counter()), time.sleep(0.002)) for _ in iter(stop.is_set, True)])
    thread.start()
    begin = time.perf_counter()
    ops.wait_ms(large, 200)
    end = time.perf_counter()
    stop.set()
    thread.join()
    assert sum(begin + 0.02 < t < end - 0.02 for t in ticks) > 10


def test_threads(ops):
    failures = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(300):
            x = random.standard_normal(random.integers(0, 40)).astype(np.float32)
            if not np.array_equal(ops.scale(x, 3.0), np.float32(3) * x):
                failures.append(x)
            try:
                ops.scale(x.astype("i4"))
                failures.append("no error")
            except ValueError as error:
                if "i32" not in str(error):
                    failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_calls_after_fork(python):
    assert python("""
import os, dovetail, numpy as np
lib = dovetail.load(BINARY)
x = np.ones(1 << 20, np.float32)
dovetail.set_threads(2)
f = dovetail.ops.swiglu
before = f(x, x)   # the pool of threads is running
pid = os.fork()
if not pid:
    code = 0 if np.array_equal(f(x, x), before) and (lib.scale(x) == 2).all() and dovetail.load(BINARY) is lib else 1
    os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), np.array_equal(f(x, x), before))
""") == "0 True\n"


def test_multiprocessing_and_pickle(python):
    assert python("""
import multiprocessing, pickle, sys
import numpy as np
import dovetail
def work(args):
    f, x = args
    return f(x).tolist()
if __name__ == "__main__":
    lib = dovetail.load(BINARY)
    for method in ("fork", "spawn"):
        sys.modules["__main__"].__spec__ = None
        context = multiprocessing.get_context("fork")
        with context.Pool(2) as pool:
            print(pool.map(work, [(lib.scale, np.full(2, i, np.float32)) for i in range(3)]))
""") == "[[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]\n" * 2


def test_pickle_in_another_process(ops, binary, python, tmp_path):
    file = tmp_path / "f.pickle"
    file.write_bytes(pickle.dumps([ops.scale, ops.pick, ops.pick.two]))
    assert pickle.loads(file.read_bytes())[0] is ops.scale
    assert python(f"import pickle; print(*(f.name for f in pickle.load(open({str(file)!r}, 'rb'))))") == \
        "py_ops::scale py_ops::pick py_ops::pick.two\n"


def test_import_does_not_import_numpy_or_torch(python):
    assert python("""
import sys
import dovetail
lib = dovetail.load(BINARY)
print([m for m in ("numpy", "torch", "json", "inspect", "ctypes") if m in sys.modules], lib.echo_int(3))
""") == "[] 3\n"


def test_no_numpy_is_needed_until_an_array_is(python):
    out = python("""
import sys
sys.modules["numpy"] = None   # cannot be imported
import dovetail
lib = dovetail.load(BINARY)
print(lib.echo_lists([1], [2.0], [True], ["x"], [1]))
try:
    lib.scale([1.0])
except TypeError as error:
    print(error)
""")
    assert out.splitlines() == ["(11111, 6.0)", "py_ops::scale: argument 'x': expected Tensor (an array: use numpy.asarray()), found list"]


def test_imported_again(python):
    assert python("""
import sys, dovetail, numpy as np
first = dovetail.load(BINARY)
for name in [m for m in sys.modules if m.startswith("dovetail")]:
    del sys.modules[name]
import dovetail as again
second = again.load(BINARY)
print(again is dovetail, again.find("py_ops::scale")(np.ones(1, "f4")), first.scale(np.ones(1, "f4")), second is first)
first.close()
print(second.scale(np.ones(1, "f4")), second.closed)
""") == "False [2.] [2.] False\n[2.] False\n"


def test_a_second_interpreter(python):
    assert python("""
import _xxsubinterpreters as interpreters, dovetail
lib = dovetail.load(BINARY)
second = interpreters.create()
interpreters.run_string(second, f'BINARY = {BINARY!r}' + '''
import dovetail
lib = dovetail.load(BINARY)
print(lib.echo_int(4), dovetail.list()[0])
try:
    dovetail.find("py_ops::nothing")
except dovetail.DovetailError as error:
    print(error.status)
''')
interpreters.destroy(second)
print(lib.echo_int(5))
""") == "4 py_ops::add_\nENOENT\n5\n" if sys.version_info < (3, 13) else True


# ---- leaks

def _blocks():
    gc.collect()
    return sys.getallocatedblocks()


LEAK_CASES = {
    "success": lambda ops: ops.scale(X),
    "given": lambda ops, out=X.copy(): ops.scale(X, 2.0, out),
    "named": lambda ops, out=X.copy(): ops.scale(x=X, factor=2.0, out=out),
    "strided": lambda ops: ops.scale(X.T),
    "two results": lambda ops: ops.minmax(X.ravel()),
    "mutated": lambda ops, y=X.copy(): ops.add_(y, X),
    "data-dependent": lambda ops: ops.nonzero(X.ravel()),
    "lists": lambda ops: ops.echo_lists([1, 2], (1.5,), [True], ["a"], [1]),
    "array list": lambda ops: ops.echo_tensors([X, None, np.float32(3)]),
    "scalar array": lambda ops: ops.scale(np.float32(3)),
    "long list": lambda ops: ops.echo_lists(range(1000), [], [], [], []),
    "overload": lambda ops: ops.pick(X, 2),
    "kernel fails": lambda ops: ops.fails(X),
    "wrong dtype": lambda ops: ops.scale(X.astype("i4")),
    "wrong type": lambda ops: ops.scale("x"),
    "wrong element": lambda ops: ops.echo_tensors([X, np.float32(2), 3]),
    "wrong second": lambda ops: ops.echo_lists([1], [2.0], "x", [], []),
    "missing": lambda ops: ops.scale(),
    "unexpected": lambda ops: ops.scale(X, nothing=3),
    "no overload": lambda ops: ops.pick("x"),
    "explain": lambda ops: ops.scale.explain(X),
    "find": lambda ops: dovetail.find("py_ops::scale"),
    "not found": lambda ops: dovetail.find("py_ops::nothing"),
}


@pytest.mark.parametrize("case", LEAK_CASES)
def test_nothing_leaks_over_1000_calls(ops, case):
    def run(n):
        for _ in range(n):
            try:
                LEAK_CASES[case](ops)
            except Exception:
                pass

    def growth():
        before = _blocks(), sys.getrefcount(X), sys.getrefcount(ops.scale), sys.getrefcount(None)
        run(1000)
        return [now - then for now, then in zip((_blocks(), sys.getrefcount(X), sys.getrefcount(ops.scale), sys.getrefcount(None)), before)]

    run(50)
    rounds = [growth() for _ in range(3)]  # other threads and caches allocate now and then; a leak is 1,000 or more in every round
    for most, counts in zip((400, 10, 10, 200), zip(*rounds)):
        assert min(map(abs, counts)) < most, rounds


def test_arguments_are_released_also_after_errors(ops):
    class Array(np.ndarray):
        pass

    for call in (lambda x: ops.scale(x), lambda x: ops.fails(x), lambda x: ops.scale(x, "x"), lambda x: ops.add_(x, X.ravel())):
        x = X.copy().view(Array)
        seen = weakref.ref(x)
        try:
            call(x)
        except Exception:
            pass
        del x
        gc.collect()
        assert seen() is None
