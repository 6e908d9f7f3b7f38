"""Calls through torch.ops: every type, mutation, errors, unusual tensors, lifetimes, threads."""
import gc
import os
import re
import subprocess
import sys
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from conftest import ROOT, one
from dovetail import _core
from dovetail.torch import native, register, registered, unregister

pytestmark = pytest.mark.quick


def everything(ops, **changed):
    x = torch.tensor([7.0])
    arguments = dict(x=x, maybe=None, list=[], holes=[], i=3, oi=None, f=2.5, of=None, b=True, ob=None, s="abc", os=None, ints=[], oints=None,
                     floats=[], bools=[], strings=[], dtype=torch.bfloat16, odtype=None, device="cpu", layout=None, format=None)
    arguments.update(changed)
    names = ["x", "maybe", "nlist", "list", "nholes", "holes", "i", "oi", "f", "of", "b", "ob", "s", "os", "nints", "ints", "oints", "floats", "bools",
             "strings", "dtype", "odtype", "device", "layout", "format"]
    return dict(zip(names, ops.everything(**arguments).tolist()))


EVERYTHING = [
    ({}, {"x": 7, "maybe": -1, "nlist": 0, "i": 3, "oi": -1, "f": 2.5, "of": -1, "b": 1, "ob": -1, "s": 3, "os": -1, "oints": -1, "dtype": 16,
          "odtype": -1, "device": 1, "layout": -1, "format": -1}),
    ({"maybe": torch.tensor([5.0])}, {"maybe": 5}),
    ({"list": [torch.tensor([1.0]), torch.tensor([2.0])]}, {"nlist": 2, "list": 2}),
    ({"holes": [None, torch.tensor([1.0])]}, {"nholes": 2, "holes": -1}),
    ({"holes": [torch.tensor([4.0]), None]}, {"nholes": 2, "holes": 4}),
    ({"i": -(2**63), "oi": 2**62}, {"i": -(2**63), "oi": 2**62}),
    ({"f": -1e300, "of": 0.0}, {"f": -1e300, "of": 0}),
    ({"b": False, "ob": False}, {"b": 0, "ob": 0}),
    ({"s": "", "os": "é"}, {"s": 0, "os": "é".encode()[0] - 256}),
    ({"ints": [1, -5], "oints": [1, 2, 3]}, {"nints": 2, "ints": -5, "oints": 3}),
    ({"floats": [0.5], "bools": [True, False, True], "strings": ["a", "long enough to be on the heap, not inside"]},
     {"floats": 0.5, "bools": 1, "strings": 41}),
    ({"dtype": torch.float8_e4m3fn, "odtype": torch.int32}, {"dtype": 8, "odtype": 0}),
    ({"layout": torch.strided, "format": torch.channels_last}, {"layout": 0, "format": 2}),
    ({"format": torch.contiguous_format}, {"format": 0}),
    ({"format": torch.preserve_format}, {"format": 1}),
]


@pytest.mark.parametrize("changed, expected", EVERYTHING)
def test_every_type(ops, changed, expected):
    found = everything(ops, **changed)
    assert {k: found[k] for k in expected} == expected


def test_results_that_are_numbers(ops):
    assert ops.stats(torch.tensor([1.0, 2.5])) == (2, 3.5, True)
    assert ops.stats(torch.empty(0)) == (0, 0.0, False)


def test_host_threads_do_not_change_the_result(ops):
    x = torch.randn(1_000_003)
    before, results = torch.get_num_threads(), []
    for n in (1, 2, 4):
        torch.set_num_threads(n)
        results.append(ops.total(x).item())
    torch.set_num_threads(before)
    assert results[0] == results[1] == results[2]
    assert abs(results[0] - x.double().sum().item()) < 1e-6


# ---- mutation ------------------------------------------------------------------------------------------------------------------

def test_mutation_bumps_the_version(ops):
    x = torch.zeros(3)
    assert ops.inc(x) is None
    assert x.tolist() == [1, 1, 1] and x._version == 1
    y = ops.inc_(x)
    assert y.data_ptr() == x.data_ptr() and x._version == 2 and x.tolist() == [2, 2, 2]
    z = torch.zeros(2)
    ops.inc_all([x, z])
    assert x.tolist() == [3, 3, 3] and z.tolist() == [1, 1] and (x._version, z._version) == (3, 1)
    with pytest.raises(RuntimeError, match="torch_ops::inc_all: argument 'xs\[0\]'.*overlap"):
        ops.inc_all([x, x[:1]])


def test_mutation_after_saving_is_an_error_in_backward(ops):
    x = torch.randn(3, requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    with torch.no_grad():
        ops.inc(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_mutating_a_leaf_that_requires_grad_is_an_error(ops):
    x = torch.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        ops.inc(x)
    assert x.tolist() == [0, 0, 0]
    with torch.no_grad():
        ops.inc(x)
    assert x.tolist() == [1, 1, 1]


def test_a_mutated_tensor_that_is_not_contiguous_is_copied_back(ops):
    base = torch.zeros(4, 3)
    ops.inc(base.t()[1:])
    assert base.tolist() == [[0, 1, 1]] * 4


def test_an_expanded_mutated_tensor_is_refused(ops):
    with pytest.raises(RuntimeError, match=r"torch_ops::inc: argument 'x'.*overlap"):
        ops.inc(torch.zeros(1).expand(4))


def test_inference_tensors(ops):
    with torch.inference_mode():
        x = torch.zeros(2)
        ops.inc(x)
    with pytest.raises(RuntimeError, match="inference tensor"):
        ops.inc(x)
    assert x.tolist() == [1, 1]


def test_views_share_memory(ops):
    x = torch.arange(12.0).reshape(3, 4)
    for view, expected in ((ops.swapped(x, 0, -1), x.t()), (ops.part(x, 1, 1, 2), x[:, 1:3]), (ops.diagonal(x), x.diagonal()),
                           (ops.part(ops.swapped(x, 0, 1), 0, 2, 2), x.t()[2:4])):
        assert torch.equal(view, expected) and view.stride() == expected.stride() and view.storage_offset() == expected.storage_offset()
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        with FakeTensorMode() as mode:
            fake = mode.from_tensor(x)
            assert ops.part(fake, 1, 1, 2).storage_offset() == 1 and ops.diagonal(fake).stride() == (5,)
    ops.diagonal(x).zero_()
    assert x.diagonal().tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="torch_ops::part"):
        ops.part(x, 1, 3, 2)


# ---- errors ------------------------------------------------------------------------------------------------------------------

ERRORS = [
    (lambda o: o.fail_if(torch.ones(2, 2), 1, "out of cheese"), "torch_ops::fail_if: the kernel says: out of cheese"),
    (lambda o: o.fail_if(torch.ones(2, 3), 0), r"torch_ops::fail_if: expected m % 2 == 0, found m = 3 \('m' is bound by 'x'\)"),
    (lambda o: o.fail_if(torch.ones(2), 0), r"torch_ops::fail_if: argument 'x': expected shape \[n, m\], found \[2\]"),
    (lambda o: o.fail_if(torch.ones(2, 2).double(), 0), "torch_ops::fail_if: argument 'x': expected dtype f32, found f64"),
    (lambda o: o.pick(torch.ones(2, 2), None, "X"), r'torch_ops::pick: argument .layout.: expected "NT" or "N", found "X"'),
    (lambda o: o.pick(torch.ones(2, 3), torch.ones(2)), r"torch_ops::pick: argument 'x': expected shape \[2, 2\] \('c' is bound by 'bias'\), found \[2, 3\]"),
]


@pytest.mark.parametrize("call, message", ERRORS)
def test_error_messages(ops, call, message):
    with pytest.raises(RuntimeError, match=message) as caught:
        call(ops)
    assert "\n" not in str(caught.value).strip()
    torch_ops_still_work = ops.fail_if(torch.ones(2, 2), 0)
    assert torch_ops_still_work.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("call, message", ERRORS[1:])
def test_the_fake_says_the_same(ops, call, message):
    with FakeTensorMode(), pytest.raises(RuntimeError, match=message):
        call(ops)


def test_mixed_devices_are_refused(ops):
    a, m = torch.ones(2), torch.ones(2, device="meta")
    for pair in ((a, m), (m, a)):
        with pytest.raises(RuntimeError, match="expected a tensor on"):
            ops.badd(*pair)


def test_schema_errors_are_torchs(ops):
    with pytest.raises(RuntimeError, match="missing value for argument 'when'"):
        ops.fail_if(torch.ones(2, 2))


# ---- tensors that are not plain ------------------------------------------------------------------------------------------------

def _torchs_inc():
    """An operator of torch.library's with the same schema."""
    library = torch.library.Library("call_inc", "FRAGMENT")  # noqa: TOR901
    if not hasattr(torch.ops.call_inc, "inc"):
        library.define("inc(Tensor(a!) x) -> ()")
        library.impl("inc", lambda x: x.add_(1) and None, "CPU")
        torch.library._keep_alive.append(library)
    return torch.ops.call_inc.inc


def test_conj_neg_and_zero_tensors_arrive_materialised(ops):
    c = torch.randn(5, dtype=torch.complex64)
    neg = c.conj().imag
    assert neg.is_neg()
    assert torch.equal(ops.like(neg), neg.resolve_neg())
    x = neg.clone()
    assert torch.equal(ops.like(torch._efficientzerotensor(3)), torch.zeros(3))
    ops.inc_(neg)  # torch resolves it, runs, and writes back
    assert torch.allclose(neg, x + 1)
    # torch's fallback for the bit needs the result that was written, and refuses its own operators, too; on 2.10 it writes ours back
    outcomes = []
    for inc in (ops.inc, _torchs_inc()):
        neg = torch.zeros(2, dtype=torch.complex64).conj().imag
        try:
            inc(neg)
            outcomes.append(neg.tolist())
        except RuntimeError:
            outcomes.append("refused")
    assert outcomes[0] in ([1, 1], outcomes[1]) and outcomes[1] in ([1, 1], "refused")
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        ops.inc(torch._efficientzerotensor(3))


@pytest.mark.parametrize("make", [
    lambda x: x.to_sparse(), lambda x: x.to_sparse_csr(), lambda x: x.to_mkldnn(),
    lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.qint8), lambda x: torch.nested.nested_tensor([x[0], x[1]])])
def test_tensors_without_strided_memory_are_refused(ops, make):
    x = torch.ones(2, 2)
    with pytest.raises(NotImplementedError, match="Could not run 'torch_ops::badd'"):
        ops.badd(make(x), x)


def test_reading_keeps_a_lazy_copy(ops):
    x = torch.randn(4)
    y = torch._lazy_clone(x)
    assert torch.equal(ops.like(y), x)
    assert torch._C._is_cow_tensor(y)
    ops.inc(y)
    assert not torch._C._is_cow_tensor(y) and torch.equal(y, x + 1)


def test_zero_sizes_and_scalars(ops):
    assert ops.like(torch.empty(0, 3)).shape == (0, 3)
    assert ops.like(torch.tensor(2.0)).item() == 2.0
    assert ops.cat([torch.empty(0, 2), torch.ones(1, 2)]).tolist() == [[1, 1]]


def test_outputs_are_ordinary(ops):
    import copy
    import pickle
    y = ops.like(torch.ones(2, 2))
    y.resize_(3, 3).requires_grad_()
    assert copy.deepcopy(y).shape == pickle.loads(pickle.dumps(y)).shape == (3, 3)


# ---- lifetimes -----------------------------------------------------------------------------------------------------------------

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_leaks(ops):
    x, s = torch.randn(64, 64), torch.randn(3)
    strings = ["a string that is long enough to live on the heap"] * 8

    def work():
        ops.like(x)
        ops.cat([x, x, x])
        everything(ops, list=[x, x], holes=[None, x], strings=strings, oints=[1] * 50, maybe=x, os="o" * 100)
        ops.stats(x)
        for bad in ((x, 1, "m" * 200, strings), (s, 1, "m", strings)):
            try:
                ops.fail_if(*bad)
                raise AssertionError("it must fail")
            except RuntimeError:
                pass

    for _ in range(500):
        work()
    gc.collect()
    before = resident()
    for _ in range(10_000):
        work()
    gc.collect()
    assert resident() - before < 2_000_000  # a leak of one 64-byte handle for each call would be 4 MB


def test_unregister_and_register_again(fresh):
    library, registration = fresh(one("torch_again"))
    x = torch.zeros(2)
    packet, overload = torch.ops.torch_again.f, torch.ops.torch_again.f.default
    assert packet(x).tolist() == [1, 1]
    assert registered(library) is registration and register(library) is registration
    unregister(library)
    assert registered(library) is None and not hasattr(torch.ops.torch_again, "f")
    for held in (packet, overload):
        with pytest.raises(RuntimeError, match="torch_again::f: its library was unloaded"):
            held(x)
    for _ in range(3):
        register(library)
        assert torch.ops.torch_again.f(x).tolist() == [1, 1]
        torch.library.opcheck(torch.ops.torch_again.f.default, (x,))
        unregister(library)


def test_a_library_that_was_freed_first_says_so(fresh):
    library, _ = fresh(one("torch_freed"))
    _core.library_free(library)
    fresh.forget(library)
    with pytest.raises(RuntimeError, match="torch_freed::f.*unloaded"):
        torch.ops.torch_freed.f(torch.zeros(2))
    unregister(library)


def test_a_changed_operator_under_the_same_name(fresh):
    first, _ = fresh(one("torch_changed"), "a")
    assert torch.ops.torch_changed.f(torch.zeros(1)).item() == 1
    unregister(first)
    _core.library_free(first)
    fresh.forget(first)
    fresh(one("torch_changed", 2, "f(Tensor x, int unused=0) -> Tensor out").replace("dv_tensor *x;", "dv_tensor *x; int64_t unused;").replace(
        "(x, out)", "(x, unused, out)"), "b")
    assert torch.ops.torch_changed.f(torch.zeros(1), unused=3).item() == 2


def test_two_libraries(fresh, ops):
    fresh(one("torch_left"), "left")
    fresh(one("torch_right", 2), "right")
    x = torch.zeros(1)
    assert torch.ops.torch_left.f(x).item() == 1 and torch.ops.torch_right.f(x).item() == 2 and ops.like(x).item() == 0


def test_many_trampolines(fresh):
    operators = "".join(f"DV_OPERATOR(f{i}, struct f, (x, out), .schema = \"f{i}(Tensor x) -> Tensor out\", .contract = \"x[*s]:f32 -> out[*s]:f32\","
                        f" .kernels = DV_KERNELS(DV_KERNEL(struct f, \"cpu\", \"f32\", f)));\n" for i in range(300))
    text = re.sub(r"DV_OPERATOR.*?\)\)\);\n", lambda m: operators, one("torch_many"), flags=re.S)
    text = text.replace("&dv_op_f)", ", ".join(f"&dv_op_f{i}" for i in range(300)) + ")")
    library, registration = fresh(text)
    assert len(registration.operators) == 300 <= native.bridge.dv_torch_capacity()
    assert torch.ops.torch_many.f299(torch.zeros(1)).item() == 1


def test_types_that_the_shims_do_not_carry_are_refused_by_name(fresh):
    text = """#include <dovetail_op.h>
        struct f { const dv_tensor *x; dv_scalar alpha; dv_tensor *out; };
        static int f(dv_context *ctx, const struct f *a) { (void)ctx, (void)a; return DV_OK; }
        DV_OPERATOR(f, struct f, (x, alpha, out), .schema = "f(Tensor x, Scalar alpha) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
            .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
        DV_LIBRARY(torch_scalar, &dv_op_f);"""
    library = fresh(text, register_it=False)
    with pytest.raises(RuntimeError, match="torch_scalar::f: argument 'alpha': torch's C shims carry no Scalar"):
        register(library)
    registration = register(library, strict=False)
    assert list(registration.operators) == ["torch_scalar::f"] and not registration.skipped


# ---- processes and threads -----------------------------------------------------------------------------------------------------

def test_threads(ops):
    x, wrong = torch.randn(1000), []

    def work():
        for _ in range(300):
            if not torch.equal(ops.like(x), x):
                wrong.append("like")
            try:
                ops.fail_if(x, 1)
                wrong.append("fail_if")
            except RuntimeError as e:
                if "expected shape" not in str(e):
                    wrong.append(str(e))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_fork(ops):
    x = torch.randn(10)
    ops.like(x)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if torch.equal(ops.like(x), x) else 1)
    assert os.waitpid(pid, 0)[1] == 0


def run_python(code, binary):
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(binary)], capture_output=True, text=True, cwd=ROOT)


def test_registration_waits_for_torch(binary):
    done = run_python("""
import sys
import dovetail.torch as bridge
from dovetail import _core
library = _core.load(sys.argv[1])
bridge.attach(library)
assert "torch" not in sys.modules and bridge.registered(library) is None
import torch
assert torch.ops.torch_ops.like(torch.ones(2)).tolist() == [1, 1]
bridge.attach(library)
bridge.detach(library)
assert not hasattr(torch.ops.torch_ops, "like")
print("ok")
""", binary)
    assert done.stdout == "ok\n", done.stderr


def test_without_torch_the_message_says_what_to_do(binary):
    done = run_python("""
import sys
from dovetail import _core
from dovetail.torch import native
import ctypes
assert native.bridge.dv_torch_register(_core.library_info(_core.load(sys.argv[1]))[2], 0, ctypes.byref(ctypes.c_void_p())) != 0
print(native.bridge.dv_last_error().decode())
""", binary)
    assert "import torch" in done.stdout, done.stderr


def test_explain_and_bench_take_tensors():
    x = torch.ones(4, 6, dtype=torch.bfloat16)
    import dovetail
    how = dovetail.ops.swiglu.explain(x, x)
    assert how.selected["name"].startswith("swiglu_") and how.bytes == 3 * 4 * 6 * 2
    assert dovetail.bench(dovetail.ops.swiglu, x, x, seconds=0.01).kernel == how.selected["name"]
    recorded = dovetail.bench(dovetail.ops.swiglu, x.float().requires_grad_(), x.float(), seconds=0.01)
    assert recorded.best > 0 and recorded.kernel.startswith("swiglu_")  # the call forward
