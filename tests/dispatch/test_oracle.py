"""The dispatch table against PyTorch's own, on random sets of registrations.

Each set is a run of steps (make a library, define the operator, register a kernel or a fallthrough, a fallback, destroy a library) that
is done with torch._C's libraries and with ours. After every step that can change it, the whole table is compared: for each of the keys
that this project has, which registration is chosen, and why. PyTorch tells a registration by its library's file name, so each library
has its own; ours tells it by the kernel's user pointer.

At the end of each set the operator is called on a CPU tensor under random guards, and the kernel that ran is compared.

What is not ours to copy: PyTorch's process has backend fallbacks of its own. On autograd keys they pass on when no gradient is wanted
(ours: a fallthrough); on Meta they raise "no kernel" (ours: missing).
"""
import contextlib
import ctypes
import os
import pathlib
import random
import re

import pytest

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ.get("DOVETAIL_LIBRARY", pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")) / "lib" / "libdovetail.so")

RUNTIME = ["CPU", "CUDA", "PrivateUse1", "Meta", "AutogradCPU", "AutogradCUDA", "AutogradPrivateUse1"]
KEYS = RUNTIME + ["Autograd", "CompositeImplicitAutograd", "CompositeExplicitAutograd"]
KINDS = {"DEF": 0, "FRAGMENT": 1, "IMPL": 2}
NONE, ENOKERNEL = -1, -13
SCHEMA = "f(Tensor x) -> int"
GUARDED = [key for key in RUNTIME if key != "Meta"]  # AutogradMeta is PyTorch's only

P = ctypes.c_void_p
BOXED = ctypes.CFUNCTYPE(ctypes.c_int, P, P, P, ctypes.c_size_t, P, ctypes.c_size_t, P)


class Value(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("payload", ctypes.c_int64 * 2)]


class Guard(ctypes.Structure):
    _fields_ = [("included", ctypes.c_uint32), ("excluded", ctypes.c_uint32)]


VALUE_TENSOR, VALUE_INT = 2, 3
F32 = 2 | 32 << 8 | 1 << 16


@pytest.fixture(scope="module")
def core():
    lib = ctypes.CDLL(os.fspath(LIBRARY))
    c = ctypes
    for name, result, *args in [
            ("dv_library_new", c.c_int, c.c_int, c.c_char_p, c.c_int, c.POINTER(P)),
            ("dv_library_define", c.c_int, P, c.c_char_p, c.c_char_p, c.POINTER(P)),
            ("dv_library_impl", c.c_int, P, c.c_char_p, c.c_int, BOXED, P),
            ("dv_library_impl_fallthrough", c.c_int, P, c.c_char_p, c.c_int),
            ("dv_library_fallback", c.c_int, P, c.c_int, BOXED, P),
            ("dv_library_free", None, P),
            ("dv_find", c.c_int, c.c_char_p, c.POINTER(P)),
            ("dv_operator_unref", None, P),
            ("dv_tensor_unref", None, P),
            ("dv_operator_dump_table", c.c_int, P, c.POINTER(P)),
            ("dv_key_parse", c.c_int, c.c_char_p, c.POINTER(c.c_int)),
            ("dv_last_error", c.c_char_p),
            ("dv_guard_push", Guard, c.c_uint32, c.c_uint32),
            ("dv_guard_pop", None, Guard),
            ("dv_call", c.c_int, P, P, c.c_size_t, P, c.c_size_t, P),
            ("dv_tensor_new", c.c_int, c.c_uint32, c.c_int32, P, c.POINTER(P)),
            ("dv_free", None, P)]:
        f = getattr(lib, name)
        f.restype, f.argtypes = result, args
    return lib


@BOXED
def kernel(user, op, args, nargs, results, nresults, host):
    result = ctypes.cast(results, ctypes.POINTER(Value))[0]
    result.type, result.payload[0] = VALUE_INT, user - 1
    return 0


class Ours:
    def __init__(self, core, ns):
        self.core, self.ns, self.libraries = core, ns, {}

    def check(self, status):
        assert status == 0, self.core.dv_last_error().decode()

    def key(self, name):
        out = ctypes.c_int()
        self.check(self.core.dv_key_parse(name.encode(), ctypes.byref(out)))
        return out.value

    def library(self, i, kind, ns=None):
        out = P()
        self.check(self.core.dv_library_new(KINDS[kind], (ns or self.ns).encode(), NONE, ctypes.byref(out)))
        self.libraries[i] = out

    def define(self, i):
        self.check(self.core.dv_library_define(self.libraries[i], SCHEMA.encode(), None, None))

    def impl(self, i, key, fallthrough):
        if fallthrough:
            self.check(self.core.dv_library_impl_fallthrough(self.libraries[i], b"f", self.key(key)))
        else:
            self.check(self.core.dv_library_impl(self.libraries[i], b"f", self.key(key), kernel, i + 1))

    def fallback(self, i, key, fallthrough):
        self.check(self.core.dv_library_fallback(self.libraries[i], self.key(key), BOXED() if fallthrough else kernel, i + 1))

    def destroy(self, i):
        self.core.dv_library_free(self.libraries.pop(i))

    def call(self, include, exclude):
        """Which library's kernel runs; None: there is none."""
        op, tensor = P(), P()
        self.check(self.core.dv_find(f"{self.ns}::f".encode(), ctypes.byref(op)))
        self.check(self.core.dv_tensor_new(F32, 0, None, ctypes.byref(tensor)))
        arg, result = Value(VALUE_TENSOR), Value()
        arg.payload[0] = tensor.value
        guard = self.core.dv_guard_push(sum(1 << RUNTIME.index(k) for k in include), sum(1 << RUNTIME.index(k) for k in exclude))
        status = self.core.dv_call(op, ctypes.byref(arg), 1, ctypes.byref(result), 1, None)
        self.core.dv_guard_pop(guard)
        self.core.dv_tensor_unref(tensor)
        self.core.dv_operator_unref(op)
        assert status in (0, ENOKERNEL), self.core.dv_last_error().decode()
        return result.payload[0] if status == 0 else None

    def table(self):
        op, text = P(), P()
        self.check(self.core.dv_find(f"{self.ns}::f".encode(), ctypes.byref(op)))
        self.check(self.core.dv_operator_dump_table(op, ctypes.byref(text)))
        lines = ctypes.string_at(text).decode().splitlines()
        self.core.dv_free(text)
        self.core.dv_operator_unref(op)
        table = {}
        for line in lines:
            key, what = line.split(": ", 1)
            m = re.fullmatch(r"boxed, user (\S+) \[(.+)\]", what)
            fall = re.fullmatch(r"fallthrough \[(.+)\]", what)
            assert m or fall or what == "missing", line
            table[key] = (f"library {int(m[1], 16) - 1}", m[2]) if m else ("fallthrough", fall[1]) if fall else ("missing", "missing")
        return table


class Theirs:
    def __init__(self, ns):
        self.ns, self.libraries = ns, {}

    def library(self, i, kind, ns=None):
        self.libraries[i] = torch._C._dispatch_library(kind, ns or self.ns, "", f"library {i}", i)

    def define(self, i):
        self.libraries[i].define(SCHEMA, "")

    def impl(self, i, key, fallthrough):
        self.libraries[i].impl("f", key, torch.library.fallthrough_kernel if fallthrough else (lambda x: i), False)

    def fallback(self, i, key, fallthrough):
        self.libraries[i].fallback(key, torch.library.fallthrough_kernel if fallthrough else (lambda *args: i), False)

    def destroy(self, i):
        self.libraries.pop(i).reset()

    def call(self, include, exclude):
        # PyTorch does not refresh its autograd entries when CompositeExplicitAutograd is registered or taken back (its dump, computed
        # afresh, shows what they should be); registering for the backend refreshes them.
        refresh = torch._C._dispatch_library("IMPL", self.ns, "", "refresh", 0)
        for backend in ("CPU", "CUDA", "PrivateUse1"):
            refresh.impl("f", backend, lambda x: None, False)
        refresh.reset()
        key, f, tensor = torch._C.DispatchKey.__members__, getattr(torch.ops, self.ns).f, torch.zeros(())
        with contextlib.ExitStack() as guards:
            for name in include:
                guards.enter_context(torch._C._IncludeDispatchKeyGuard(key[name]))
            for name in exclude:
                guards.enter_context(torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key[name])))
            try:
                return f(tensor)
            except RuntimeError as e:
                assert isinstance(e, NotImplementedError) or "fallthrough_kernel was executed" in str(e)
                return None

    def table(self):
        table = dict.fromkeys(RUNTIME, ("missing", "missing"))
        for line in torch._C._dispatch_dump_table(f"{self.ns}::f").splitlines():
            m = re.fullmatch(r"(\w+): (fallthrough )?registered at (.+):\d+ \[(.+)\]", line)
            if not m or m[1] not in table:
                continue
            key, fallthrough, where, why = m.groups()
            if where.endswith("VariableFallbackKernel.cpp"):
                table[key] = ("fallthrough", why)
            elif not where.endswith("MetaFallbackKernel.cpp"):
                table[key] = ("fallthrough" if fallthrough else where, why)
        return table


def play(core, number):
    """One random set of registrations. Gives how many tables were compared and which choices were seen."""
    rnd = random.Random(number)
    ns = f"oracle_{number}"
    both = [Ours(core, ns), Theirs(ns)]
    libraries, taken, fallbacks, definer, compared, history = {}, set(), {}, None, 0, []
    seen = set()

    def do(name, *args):
        history.append((name, *args))
        for side in both:
            getattr(side, name)(*args)

    try:
        for step in range(rnd.randint(4, 14)):
            kinds = ["IMPL", "FRAGMENT"] + ([] if "DEF" in libraries.values() else ["DEF"])
            choice = rnd.random()
            if not libraries or choice < 0.2:
                libraries[step] = rnd.choice(kinds)
                do("library", step, libraries[step])
            elif choice < 0.3 and definer is None or step == 3 and definer is None:
                definer = next((i for i, kind in libraries.items() if kind != "IMPL"), None)
                if definer is None:
                    definer = step
                    libraries[step] = "DEF"
                    do("library", step, "DEF")
                do("define", definer)
            elif choice < 0.38:
                i = rnd.choice(list(libraries))
                do("destroy", i)
                del libraries[i]
                definer = None if i == definer else definer
            elif choice < 0.42:
                key = rnd.choice(["CUDA", "PrivateUse1"])
                if key not in fallbacks:
                    fallbacks[key] = 1000 + step
                    do("library", 1000 + step, "IMPL", "_")
                    do("fallback", 1000 + step, key, rnd.random() < 0.3)
                else:
                    do("destroy", fallbacks.pop(key))
            else:
                i, key = rnd.choice(list(libraries)), rnd.choice(KEYS)
                if (i, key) in taken:
                    continue
                taken.add((i, key))
                do("impl", i, key, rnd.random() < 0.2)
            if definer is not None:
                ours, theirs = both[0].table(), both[1].table()
                assert ours == theirs, (history, ours, theirs)
                compared += 1
                seen.update((key, choice, why) if choice in ("missing", "fallthrough") else (key, "kernel", why)
                            for key, (choice, why) in ours.items())
        if definer is not None:
            for _ in range(4):
                include = [key for key in GUARDED if rnd.random() < 0.15]
                exclude = [key for key in GUARDED if rnd.random() < 0.15]
                ours, theirs = (side.call(include, exclude) for side in both)
                # When every key falls through or is excluded, PyTorch has one more key, Undefined, where composite kernels stand too.
                composite = {i for i, key in taken if key.startswith("Composite")}
                assert ours == theirs or ours is None and theirs in composite, (history, include, exclude, ours, theirs, both[0].table())
                seen.add(("call", bool(include), bool(exclude), ours is None))
    finally:
        for side in both:
            for i in list(side.libraries):
                side.destroy(i)
    return compared, seen


@pytest.mark.parametrize("numbers", [range(400), pytest.param(range(400, 2000), marks=pytest.mark.slow)])
def test_oracle(core, numbers):
    compared, seen = 0, set()
    for number in numbers:
        n, choices = play(core, number)
        compared += n
        seen |= choices
    assert compared > len(numbers)  # most sets are compared after several steps
    # Every reason was seen on every key that can have it: the test would notice a change of each.
    for key in RUNTIME:
        reasons = {"kernel", "math kernel", "autograd kernel" if key.startswith("Autograd") else "default backend kernel"}
        assert {(key, "kernel", reason) for reason in reasons} <= seen, key
        assert (key, "fallthrough", "kernel") in seen
    assert {("call", i, e, none) for i in (False, True) for e in (False, True) for none in (False, True)} <= seen
    for key in ("CUDA", "PrivateUse1"):
        assert {(key, "kernel", "backend fallback"), (key, "fallthrough", "backend fallback"), (key, "missing", "missing")} <= seen
