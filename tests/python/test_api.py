"""dovetail.*: libraries, what an operator tells about itself, policy, settings, shipped operators."""
import inspect
import json
import os
import pathlib
import pickle
import pydoc
import subprocess

import dovetail
import numpy as np
import pytest

pytestmark = pytest.mark.quick

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_library(ops, binary):
    assert ops.name == "py_ops" and os.path.samefile(ops.path, binary) and not ops.closed
    assert set(ops) == set(ops.operators()) >= {"scale", "pick"} and len(ops) == len(list(ops))
    assert "scale" in dir(ops) and ops["scale"] is ops.scale
    assert dovetail.load(binary) is ops  # once
    assert ops in dovetail.libraries()
    with pytest.raises(AttributeError, match="no operator 'scal'; it has: .*scale"):
        ops.scal


def test_the_base_set_that_a_formula_loaded_can_be_loaded(python):
    assert python("""
import dovetail, pathlib
assert repr(dovetail.ops.base).startswith("<operators of base: ")
path = pathlib.Path(dovetail.libraries()[0].path).with_name("base.so")
base = dovetail.load(path)
assert base.name == "base" and base in dovetail.libraries() and dovetail.load(path) is base
base.close()
assert dovetail.load(path).add is not None
""") == ""


def test_find_and_list(ops):
    assert dovetail.find("py_ops::scale") is ops.scale and dovetail.find("py_ops::pick") is ops.pick
    assert dovetail.find("py_ops::pick.two").name == "py_ops::pick.two"
    assert {"py_ops::scale", "py_ops::pick.int"} <= set(dovetail.list()) and dovetail.list() == sorted(dovetail.list())
    assert dovetail.ops.py_ops.scale is ops.scale and "scale" in dir(dovetail.ops.py_ops)
    with pytest.raises(AttributeError, match="py_ops::scal"):
        dovetail.ops.py_ops.scal


def test_close(tmp_path):
    source = tmp_path / "closing.c"
    source.write_text('#include <dovetail_op.h>\nstruct f { int64_t x; int64_t *y; };\n'
                      'static int run(dv_context *c, const struct f *a) { (void)c; *a->y = a->x + 1; return DV_OK; }\n'
                      'DV_OPERATOR(f, struct f, (x, y), .schema = "f(int x) -> int y", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, run)));\n'
                      'DV_LIBRARY(closing, &dv_op_f);\n')
    subprocess.run([dovetail.command(), "build", "-o", tmp_path / "closing.so", source], check=True, capture_output=True)
    with dovetail.load(tmp_path / "closing.so") as library:
        f = library.f
        assert f(1) == 2
    assert library.closed and "closed" in repr(library)
    library.close()
    with pytest.raises(dovetail.DovetailError) as caught:
        f(1)
    assert caught.value.status == "EUNLOADED"
    with pytest.raises(LookupError):
        dovetail.find("closing::f")
    assert dovetail.load(tmp_path / "closing.so").f(5) == 6  # and again


@pytest.mark.parametrize("content, exception", [(None, OSError), (b"", ImportError), (b"\x7fELF", ImportError), (b"text" * 1000, ImportError)])
def test_wrong_files(tmp_path, content, exception):
    path = tmp_path / "x.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(exception, match="x.so"):
        dovetail.load(path)


def test_truncated_anywhere(binary, tmp_path):
    whole = binary.read_bytes()
    path = tmp_path / "cut.so"
    for size in range(0, len(whole), len(whole) // 37):
        path.write_bytes(whole[:size])
        with pytest.raises(ImportError):
            dovetail.load(path)


def test_what_an_operator_tells(ops):
    f = ops.scale
    assert f.name == "py_ops::scale" and f.__name__ == "scale" and f.__module__ == "py_ops"
    assert f.schema == "py_ops::scale(Tensor x, float factor=2.) -> Tensor out" and f.doc == "x times factor."
    assert repr(f) == f"<operator {f.schema}>"
    assert str(inspect.signature(f)) == "(x: Array, factor: float = 2.0, *, out: Array | None = None) -> Array"
    assert f.__text_signature__ == "(x, factor=2.0, *, out=None)"
    assert str(inspect.signature(ops.keyed)) == "(x: Array, *, k: int, from_: float = 1.0) -> int"
    assert str(inspect.signature(ops.echo_tensors)) == "(xs: Sequence[Array | None]) -> tuple[int, int, int]"
    assert str(inspect.signature(ops.echo_opt)) == \
        "(i: int | None = None, f: float | None = None, b: bool | None = None, s: str | None = None) -> tuple[int, float]"
    assert str(inspect.signature(ops.fill)) == "(out: Array, value: float) -> None"
    declared = json.loads(f.json())
    assert declared["name"] == "py_ops::scale"
    assert "x" in f.describe() and "CPU" in f.dispatch_table()
    with pytest.raises(TypeError, match="several overloads"):
        ops.pick.json()


def test_help(ops):
    text = pydoc.plain(pydoc.render_doc(ops.scale))
    assert "scale(x: Array, factor: float = 2.0" in text and "x times factor." in text and "Schema: py_ops::scale" in text
    assert "pick(x: Array, k: int) -> int" in pydoc.plain(pydoc.render_doc(ops.pick))
    assert "Writes to out." in ops.fill.__doc__


def test_every_operator_can_be_described(ops):
    dir(dovetail.ops)  # loads all
    for library in dovetail.libraries():
        for f in library.operators().values():
            assert inspect.signature(f) and f.__doc__ and f.__text_signature__.startswith("(")
            for one in f.overloads:
                json.loads(one.json())


def test_explain(ops):
    rows = ops.scale.explain(X)
    assert [r["name"] for r in rows[:2]] == ["scale_run", "scale_f64"]
    assert rows.selected["name"] == "scale_run" and not rows[1]["selected"] and "f64" in rows[1]["reason"]
    assert "scale_run" in str(rows) and "* " in str(rows)
    with pytest.raises(TypeError, match="expected Tensor"):
        ops.scale.explain("x")


def test_explain_has_what_the_contract_says_of_the_call():
    x, w = np.ones((2, 8), np.float32), np.ones((4, 8), np.float32)
    how = dovetail.ops.linear.explain(x, w)
    assert how.flops == 2 * 4 * (2 * 8 + 2) and how.bytes == 4 * (2 * 8 + 4 * 8 + 2 * 4)
    assert dovetail.ops.swiglu.explain(x, x).flops is None


def test_bench(ops):
    x, w = np.ones((2, 8), np.float32), np.ones((4, 8), np.float32)
    found = dovetail.bench(dovetail.ops.linear, x, w, seconds=0.01)
    assert 0 < found.best <= found.median and found.gflop_per_s == pytest.approx(144 / found.best * 1e-9)
    assert str(found).startswith(f"dovetail::linear, {found.kernel}: best ") and " GFLOP/s" in str(found)
    assert dovetail.bench(ops.pick, x, 2, seconds=0.01).operator.startswith("py_ops::pick")  # one of its overloads
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        dovetail.bench(dovetail.ops.linear, x)
    with pytest.raises(ValueError, match="seconds: expected a positive number, found 0"):
        dovetail.bench(dovetail.ops.linear, x, w, seconds=0)


def test_shipped_operators():
    random = np.random.default_rng(0)
    gate, up = random.standard_normal((2, 5, 7)).astype(np.float32)
    np.testing.assert_allclose(dovetail.ops.swiglu(gate, up), gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-6)
    assert dovetail.ops.swiglu.name == "dovetail::swiglu" and "swiglu" in dir(dovetail.ops)
    with pytest.raises(AttributeError, match="there are .*swiglu"):
        dovetail.ops.no_such_thing


def test_a_crop_the_wrong_way_round_is_a_value_error():
    with pytest.raises(ValueError, match="crop"):
        dovetail.ops.crop(np.zeros((1, 4, 4), np.float32), [3, 0, 1, 2])


def test_policy(ops):
    f = dovetail.ops.swiglu
    assert dovetail.policy.enabled(f)
    x = np.linspace(-3, 3, 12, dtype=np.float32)
    mine = f(x, x)
    before = dovetail.policy.counts().get("dovetail::swiglu", (0, 0))
    with dovetail.policy("none"):
        assert not dovetail.policy.enabled(f)
        np.testing.assert_allclose(f(x, x), mine, rtol=1e-5, atol=1e-6)
        with dovetail.policy("none,+swiglu"):
            assert dovetail.policy.enabled(f)
        assert not dovetail.policy.enabled(f)
    assert dovetail.policy.enabled(f)
    after = dovetail.policy.counts()["dovetail::swiglu"]
    assert after[1] > before[1]
    generation = dovetail.policy.generation()
    dovetail.policy.set("all,-swiglu")
    try:
        assert not dovetail.policy.enabled(f) and dovetail.policy.generation() != generation
    finally:
        dovetail.policy.set(None)
    for bad in ("all,none", "swiglu", "+"):
        with pytest.raises(ValueError):
            dovetail.policy.set(bad)
    with pytest.raises(TypeError, match='policy: expected a str such as "all,-my_ops::rms_norm", or None, found 3'):
        dovetail.policy.set(3)
    for bad in (3, None):
        with pytest.raises(TypeError, match="expected str, bytes or os.PathLike"):
            dovetail.policy.load(bad)
    assert dovetail.policy.enabled(f)


def test_settings():
    n = dovetail.get_threads()
    dovetail.set_threads(1)
    assert dovetail.get_threads() == 1
    dovetail.set_threads(n)
    with pytest.raises(ValueError):
        dovetail.set_threads(-1)
    try:
        dovetail.set_isa("base")
        assert dovetail.get_isa() == "base"
    finally:
        dovetail.set_isa(None)
    with pytest.raises(ValueError):
        dovetail.set_isa("mmx2")


def test_rows_for_tests():
    x = np.linspace(-3, 3, 7).astype("float32")
    rows = [k for k in json.loads(dovetail.ops.sigmoid.json())["kernels"] if k["key"] == "CPU"]
    best = dovetail.ops.sigmoid(x)
    try:
        for n in (*range(1, len(rows) + 1), -1):
            if n < 0 or rows[n - 1]["isa_available"] and "f32" in rows[n - 1]["dtypes"].split():
                dovetail.set_row(n)
                np.testing.assert_allclose(dovetail.ops.sigmoid(x), best, rtol=1e-6)
        dovetail.set_row(len(rows) + 1)
        with pytest.raises(NotImplementedError, match=f"requests kernel {len(rows) + 1}"):
            dovetail.ops.sigmoid(x)
    finally:
        dovetail.set_row(0)
    with pytest.raises(ValueError):
        dovetail.set_row(-3)


def test_places(python):
    assert (pathlib.Path(dovetail.include_dir()) / "dovetail_op.h").exists()
    assert (pathlib.Path(dovetail.library_dir()) / "libdovetail.so.1").exists()
    version = subprocess.run([dovetail.command(), "--version"], capture_output=True, text=True, check=True).stdout
    assert dovetail.__version__ in version
    assert python("import subprocess, sys; subprocess.run([sys.executable, '-m', 'dovetail', '--version'], check=True)") == version


def test_the_stub_is_python_and_types_check(ops, tmp_path):
    from dovetail._stub import stub
    for library in dovetail.libraries():
        text = stub(library)
        compile(text, "stub.pyi", "exec")
    assert "def scale(x: Array, factor: float = 2.0, *, out: Array | None = None) -> Array:" in stub(ops)
    assert stub(ops).count("@overload") == 3


def test_the_page_is_true(python):
    """Every Python block of docs/numpy.md runs, and its table of statuses is the table of the code."""
    import re
    from conftest import ROOT
    from dovetail import _errors
    page = (ROOT / "docs" / "numpy.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M)
    assert len(blocks) >= 3
    for block in blocks:
        python(block)
    rows = {s: line.split("|")[2].strip() for line in page.splitlines() if line.startswith("| `E") for s in re.findall(r"`(E\w+)`", line)}
    assert set(rows) == set(_errors.BY_STATUS)
    for status, kind in rows.items():
        bases = [b.__name__ for b in _errors.BY_STATUS[status].__bases__]
        assert kind in bases if kind else _errors.BY_STATUS[status] is _errors.DovetailError


def test_functional_forms(ops):
    form = ops.add_.functional()
    assert form.schema == "py_ops::add__functional(Tensor self, Tensor other) -> Tensor self_out"
    assert json.loads(form.json())["functional_form_of"] == "py_ops::add_"
    x, y = X.copy(), np.ones_like(X)
    new = form(x, y)
    np.testing.assert_array_equal(new, X + 1)
    np.testing.assert_array_equal(x, X)
    x.flags.writeable = False  # nothing is written
    np.testing.assert_array_equal(form(x, y), X + 1)
    again = pickle.loads(pickle.dumps(form))
    assert again.schema == form.schema
    np.testing.assert_array_equal(again(x, y), X + 1)
    filled = ops.fill.functional()
    np.testing.assert_array_equal(filled(x, 3.0), np.full_like(X, 3))
    assert ops.scale.functional().name == "py_ops::scale"


@pytest.mark.parametrize("text", ["echo_places(cpu, strided, channels_last)", "echo_complex(1.5-2.0j)", "echo_dtype(f32)", "echo_dtype(bf16)",
                                  "echo_lists([1], [0.5], [true], [a, \"b c\"], [1, 2.5, true, 2.0j])"])
def test_arguments_of_a_call_site(ops, text):
    f, args = dovetail.site("py_ops::" + text)
    f(**args)
    assert f.name == "py_ops::" + text.split("(")[0]


def test_values_of_a_call_site(ops):
    assert dovetail.site("py_ops::echo_places(cuda:1, strided, channels_last)")[1] == {"device": "cuda:1", "layout": "strided", "format": "channels_last"}
    assert dovetail.site("py_ops::echo_lists([1], [0.5], [true], [a], [1, 2.5, true, 2.0j])")[1]["z"] == [1, 2.5, True, 2j]
    assert dovetail.site("py_ops::scale(i64[1] = [9007199254740993])")[1]["x"].tolist() == [9007199254740993]
