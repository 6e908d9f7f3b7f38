"""out=: the overloads that the bridge defines, against the operators themselves and against ATen's out= overloads."""
import pytest
import torch

import dovetail.torch

try:
    from torch._library._out_variant import check_out_variant, to_out_variant
except ImportError:  # they came with 2.12 and 2.13
    check_out_variant = to_out_variant = None

pytestmark = pytest.mark.filterwarnings("ignore")
X = [torch.tensor([[0.0, 1.0], [2.0, 3.0]])]


@pytest.fixture(scope="module")
def shipped():
    dovetail.ops._load_all()
    return torch.ops.dovetail


def test_which_operators_have_one(ops):
    have = {n for n in ("inc", "inc_", "inc_all", "badd", "cat", "like", "halves", "nonzero", "swapped", "part", "total", "cube", "gated",
                        "everything", "stats", "pick") if "out" in getattr(ops, n).overloads()}
    assert have == {"badd", "cat", "like", "halves", "nonzero", "pick", "total", "cube", "gated", "everything"}


def test_schemas(ops):
    assert str(ops.cube.out._schema) == "torch_ops::cube.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"
    assert str(ops.halves.out._schema) == "torch_ops::halves.out(Tensor x, *, Tensor(a!) low, Tensor(b!) high) -> (Tensor(a!), Tensor(b!))"
    tags = [torch.Tag.pt2_compliant_tag, *([torch.Tag.out_variant] if hasattr(torch.Tag, "out_variant") else [])]  # which 2.10 does not have
    assert set(tags) <= set(ops.cube.out.tags)


UNNAMED = """
#include <dovetail_op.h>
struct two { const dv_tensor *low; dv_tensor *a, *b; };
static int two(dv_context *ctx, const struct two *f)
{
    (void)ctx;
    *(float *)f->a->data = *(const float *)f->low->data + 1;
    *(float *)f->b->data = *(const float *)f->low->data + 2;
    return DV_OK;
}
#define ROWS DV_KERNELS(DV_KERNEL(struct two, "cpu", "f32", two))
#define CONTRACT "low[]:f32 -> [1]:f32, [1]:f32"
DV_OPERATOR(two, struct two, (low, a, b), .schema = "two(Tensor low) -> (Tensor, Tensor)", .contract = CONTRACT, .kernels = ROWS);
DV_OPERATOR(over, struct two, (low, a, b), .schema = "over.one(Tensor low) -> (Tensor, Tensor)", .contract = CONTRACT, .kernels = ROWS);
DV_LIBRARY(out_names, &dv_op_two, &dv_op_over);
"""


def test_names_of_results(fresh):
    fresh(UNNAMED, name="out_names")
    ops = torch.ops.out_names
    assert str(ops.two.out._schema) == "out_names::two.out(Tensor low, *, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))"
    assert ops.over.overloads() == ["one", "one_out"]
    a, b = torch.empty(1), torch.empty(1)
    got = ops.over.one_out(torch.tensor(1.0), out0=a, out1=b)
    assert got[0] is a and got[1] is b and (a.item(), b.item()) == (2, 3)
    assert to_out_variant is None or to_out_variant(ops.over.one) is ops.over.one_out


def test_an_authors_own_overload_stays(fresh):
    fresh("""
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a) { (void)ctx; memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * 4); return DV_OK; }
#define ROWS DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f))
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = ROWS);
DV_OPERATOR(f_out, struct f, (x, out), .schema = "f.out(Tensor x, Tensor(a!) out) -> ()", .contract = "x[*s]:f32, out[*s]:f32", .kernels = ROWS);
DV_LIBRARY(own_out, &dv_op_f, &dv_op_f_out);
""", name="own_out")
    assert str(torch.ops.own_out.f.out._schema) == "own_out::f.out(Tensor x, Tensor(a!) out) -> ()"


@pytest.mark.skipif(check_out_variant is None, reason="this torch does not look for out= overloads")
def test_torch_finds_them(ops, shipped):
    for space in (ops, shipped):
        for name in dir(space):
            packet = getattr(space, name)
            if "out" in getattr(packet, "overloads", list)():
                check_out_variant(packet.default, packet.out)


def test_values_version_and_identity(ops):
    x = torch.rand(3, 4, dtype=torch.float64)
    out = torch.full((3, 4), 7.0, dtype=torch.float64)
    before = out._version
    assert ops.cube(x, out=out) is out and out._version == before + 1
    assert torch.equal(out, ops.cube(x))


@pytest.mark.parametrize("make", [lambda: torch.empty(0), lambda: torch.empty(3), lambda: torch.empty(2, 2, 2), lambda: torch.empty(4, 2).t(),
                                  lambda: torch.empty(8)[::2], lambda: torch.empty(2, 4), lambda: torch.empty(16)[4:8].view(2, 2)],
                         ids=["empty", "smaller", "larger", "transposed", "strided", "wide", "part"])
def test_shapes_are_those_of_aten(ops, make):
    """An empty or differently shaped one is resized, with the strides that ATen leaves; one of the right shape keeps its strides."""
    x = torch.rand(4, 2, dtype=torch.float64)
    ours, theirs = make().double(), make().double()
    torch.ops.aten.pow.Tensor_Scalar_out(x, 3, out=theirs)
    ops.cube(x, out=ours)
    assert torch.allclose(ours, theirs) and ours.shape == theirs.shape and ours.stride() == theirs.stride()
    assert ours.storage_offset() == theirs.storage_offset()


def test_resizing_warns_as_aten(ops, capfd):
    ops.cube(torch.rand(2, dtype=torch.float64), out=torch.empty(0, dtype=torch.float64))
    assert "resized" not in capfd.readouterr().err
    ops.cube(torch.rand(2, dtype=torch.float64), out=torch.empty(3, dtype=torch.float64))
    ours = capfd.readouterr().err
    assert not ours or "An output with one or more elements was resized since it had shape [3]" in ours  # torch says it once a process


def test_a_size_that_depends_on_data(ops):
    x = torch.tensor([0.0, 2.0, 0.0, 3.0])
    for out in (torch.empty(0, dtype=torch.int64), torch.empty(2, dtype=torch.int64), torch.empty(9, dtype=torch.int64)):
        assert ops.nonzero(x, out=out) is out and torch.equal(out, ops.nonzero(x))


def test_refusals(ops):
    x = torch.rand(4, dtype=torch.float64)
    for out, text in ((torch.empty(4), "expected dtype f64, found f32"), (torch.empty(0), "expected dtype f64, found f32"),
                      (x, "overlaps argument 'x'"), (x[1:], "overlaps argument 'x'"), (x[:0], "overlaps argument 'x'"),
                      (torch.empty(4, dtype=torch.float64, device="meta"), "on cpu")):
        kept = x.clone()
        with pytest.raises(RuntimeError, match=text.replace("[", r"\[")):
            ops.cube(x, out=out)
        assert torch.equal(x, kept)
    few = torch.arange(6, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="overlaps argument 'x'"):
        ops.cube(few[2:], out=few[4:4])  # whose storage grows, and moves
    assert torch.equal(few, torch.arange(6, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="expanded|overlap|single memory location"):
        ops.cube(x, out=torch.empty(1, dtype=torch.float64).expand(4))


def test_no_gradient(ops):
    x = torch.rand(4, dtype=torch.float64)
    leaf = torch.rand(4, dtype=torch.float64, requires_grad=True)
    theirs = pytest.raises(RuntimeError, torch.mul, leaf, leaf, out=torch.empty(4, dtype=torch.float64))
    tail = "functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad"
    assert tail in str(theirs.value)
    for args, out in (((leaf,), torch.empty(4, dtype=torch.float64)), ((x,), leaf)):
        with pytest.raises(RuntimeError, match=tail.replace(".", r"\.")):
            ops.cube(*args, out=out)
        with torch.no_grad():
            ops.cube(*args, out=out)


def test_opcheck(ops, shipped):
    for op, args, kwargs in ((ops.cube, (torch.rand(3, 2, dtype=torch.float64),), {"out": torch.empty(3, 2, dtype=torch.float64)}),
                             (ops.halves, (torch.rand(6),), {"low": torch.empty(3), "high": torch.empty(3)}),
                             (ops.cat, ([torch.rand(2, 2), torch.rand(3, 2)], 0), {"out": torch.empty(5, 2)}),
                             (ops.badd, (torch.rand(3, 1), torch.rand(4).to(torch.int32)), {"out": torch.empty(3, 4)}),
                             (shipped.swiglu, (torch.rand(4), torch.rand(4)), {"out": torch.empty(4)}),
                             (shipped.rms_norm, (torch.rand(2, 4), torch.rand(4)), {"out": torch.empty(2, 4)})):
        torch.library.opcheck(op.out, args, kwargs)


def test_meta_and_fake(ops):
    out = torch.empty(0, dtype=torch.float64, device="meta")
    assert ops.cube(torch.empty(2, 3, dtype=torch.float64, device="meta"), out=out) is out and out.shape == (2, 3)
    with pytest.raises(RuntimeError, match="expected dtype f64, found f32"):
        ops.cube(torch.empty(2, dtype=torch.float64, device="meta"), out=torch.empty(2, device="meta"))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        ops.cube(torch.empty(2, dtype=torch.float64, device="meta", requires_grad=True), out=out)


@pytest.mark.parametrize("shape", [(3, 2), (0,)])
def test_functionalized(ops, shape):
    def f(x, out):
        y = out.view(-1) if shape != (0,) else x  # a tensor that has views cannot be resized here, by ATen neither
        ops.cube(x, out=out)
        return out + 1, y

    x = torch.rand(3, 2, dtype=torch.float64)
    wanted, got = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    want = f(x, wanted)
    have = torch.func.functionalize(f)(x, got)
    assert all(torch.equal(a, b) for a, b in zip(want, have)) and torch.equal(wanted, got)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(ops, backend):
    def f(x, y, out):
        ops.cube(x + 1, out=out)
        low, high = torch.empty(2), torch.empty(2)
        ops.halves(y, low=low, high=high)
        return out * 2, low + high

    x, y = torch.rand(5, dtype=torch.float64), torch.rand(4)
    a, b = torch.empty(5, dtype=torch.float64), torch.empty(5, dtype=torch.float64)
    for p, q in zip(f(x, y, a), torch.compile(f, backend=backend, fullgraph=True)(x, y, b)):
        assert torch.allclose(p, q)
    assert torch.equal(a, b)


def test_by_the_function(shipped):
    """What a library's function takes: out= a tensor or a tuple, a result's name, a position after the arguments."""
    gate, up = torch.rand(4), torch.rand(4)
    wanted = shipped.swiglu(gate, up)
    f, grad = dovetail.ops.swiglu, dovetail.ops.swiglu_backward
    for call in (lambda o: f(gate, up, out=o), lambda o: f(gate, up, o), lambda o: f(gate, up=up, out=(o,))):
        out = torch.empty(4)
        assert call(out) is out and torch.equal(out, wanted)
    assert torch.equal(f(gate, up, out=None), wanted)
    assert [len(made) for made in dovetail.ops.grouped_topk(torch.ones(2, 4), 2, True, out=None)] == [2, 2]
    a, b = torch.empty(4), torch.empty(4)
    assert grad(gate, gate, up, out=(a, b))[0] is a
    c, d = torch.empty(4), torch.empty(4)
    assert grad(gate, gate, up, grad_up=d, grad_gate=c)[1] is d and torch.equal(a, c) and torch.equal(b, d)


def profiled(f):
    def run(*args):
        with torch.autograd.profiler.profile():
            return f(*args)
    return run


HOSTS = {"eager": lambda f: f, "compiled": lambda f: torch.compile(f, backend="aot_eager", fullgraph=True), "profiled": profiled}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("call, written", [
    (lambda f, *args, out: f(*args, out=tuple(out)), (0, 1)),
    (lambda f, *args, out: f(*args, out=list(out)), (0, 1)),
    (lambda f, *args, out: f(*args, *out), (0, 1)),
    (lambda f, *args, out: f(*args, out=None), ()),
    (lambda f, *args, out: f(*args, out=(None, None)), ()),
    (lambda f, *args, out: f(*args, out=(None, out[1])), (1,)),
    (lambda f, *args, out: f(*args, out[0]), (0,)),
    (lambda f, *args, out: f(*args, grad_up=out[1]), (1,)),
])
def test_some_of_several_results(shipped, host, call, written):
    """What is not given is new; in plain calls, in traced ones, and under a mode."""
    torch._dynamo.reset()
    args, f = [torch.rand(4, 3) for _ in range(3)], dovetail.ops.swiglu_backward
    wanted, out = f(*args), [torch.zeros(4, 3) for _ in range(2)]
    made = HOSTS[host](lambda *out: call(f, *args, out=out))(*out)
    for i in range(2):
        assert torch.equal(made[i], wanted[i])
        assert (made[i] is out[i]) == (i in written) and torch.equal(out[i], wanted[i] if i in written else torch.zeros(4, 3))


def test_what_is_given_for_one_of_several_results_is_refused_if_it_does_not_fit(shipped):
    f, args, out = dovetail.ops.swiglu_backward, [torch.rand(4) for _ in range(3)], torch.empty(0)
    made = f(*args, out=(None, out))  # resized
    assert made[1] is out and torch.equal(out, f(*args)[1])
    with pytest.raises((RuntimeError, ValueError), match="'grad_up': expected dtype f32, found f64"):
        f(*args, out=(None, out.double()))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        f(*args[:2], args[2].requires_grad_(), out=(None, out))
    empty = torch.empty(0)
    with pytest.raises(RuntimeError, match="would be written, but overlaps argument"):
        f(*args[:2], args[2].detach(), out=(empty, empty))
    for wrong, text in ((out, "no tuple for 2 results"), ((out, out, out), "a tuple of 3 for 2 results")):
        with pytest.raises(TypeError, match=text):
            f(*args, out=wrong)
        with pytest.raises(Exception, match=text):
            torch.compile(lambda *args: f(*args, out=wrong), backend="eager", fullgraph=True)(*args)


COPIED = """
#include <dovetail_op.h>
struct copied { dv_tensors xs; dv_mut_tensors ys; dv_tensor *total; };
static int copied(dv_context *ctx, const struct copied *a)
{
    float sum = 0;
    (void)ctx;
    for (size_t j = 0; j < a->xs.size; j++)
        for (int64_t i = 0; i < dv_numel(a->xs.data[j]); i++)
            sum += ((float *)a->ys.data[j]->data)[i] = ((const float *)a->xs.data[j]->data)[i];
    *(float *)a->total->data = sum;
    return DV_OK;
}
DV_OPERATOR(copied, struct copied, (xs, ys, total), .schema = "copied(Tensor[] xs) -> (Tensor[] ys, Tensor total)",
    .contract = "xs{i}[*s{i}]:f32 -> ys{i}[*s{i}]:f32, total[]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct copied, "cpu", "f32", copied)));
DV_LIBRARY(out_copied, &dv_op_copied);
"""


@pytest.mark.parametrize("host", HOSTS)
def test_a_list_among_several_results(tmp_path, host):
    """One of a list and a tensor is given; the other is new."""
    torch._dynamo.reset()
    (tmp_path / "copied.c").write_text(COPIED.replace("out_copied", f"out_copied_{host}"))
    f, x, y = dovetail.load(tmp_path / "copied.c").copied, torch.rand(3), torch.rand(2)
    total, ys = torch.zeros(()), [torch.zeros(3), torch.zeros(2)]
    made = HOSTS[host](lambda total: f([x, y], total=total))(total)
    assert made[1] is total and torch.equal(total, f([x, y])[1]) and torch.equal(made[0][1], y)
    made = HOSTS[host](lambda a, b: f([x, y], ys=[a, b]))(*ys)
    assert torch.equal(ys[0], x) and torch.equal(ys[1], y) and torch.equal(made[1], total)
    with torch.autocast("cpu"):
        assert torch.equal(f([x, y], total=total)[0][0], x)
        with pytest.raises(RuntimeError, match="argument 'ys': expected 2 tensors, found None"):
            f([x, y], ys=[ys[0], None])


def test_the_memory_of_some_results(shipped):
    """One that lies in an input's memory is refused also where it is a copy, under a mode; a gradient is, in compiled code."""
    f, (a, b, c) = dovetail.ops.swiglu_backward, (torch.rand(4) for _ in range(3))
    both = torch.cat([c, torch.zeros(4)])
    wanted = f(a, b, c)[1]
    assert torch.equal(profiled(lambda: f(a, b, both[:4], out=(None, both[4:])))()[1], wanted) and torch.equal(both[4:], wanted)
    for out in (c, both[1:5]):
        with pytest.raises(RuntimeError, match="'grad_up': its memory overlaps an input's"):
            profiled(lambda out=out: f(a, b, c if out is c else both[:4], out=(None, out)))()
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.compile(lambda x, y: f(x, b, c, out=(None, y)), backend="aot_eager")(a.requires_grad_(), torch.zeros(4))


def test_inference_tensors(ops):
    x = torch.rand(4, dtype=torch.float64)
    with torch.inference_mode():
        out = torch.empty(4, dtype=torch.float64)
        assert torch.equal(ops.cube(x, out=out), ops.cube(x))


def test_after_unload_and_reload(fresh):
    handle, _ = fresh(UNNAMED.replace("out_names", "out_again"), name="out_again")
    old = torch.ops.out_again.two.out
    dovetail.torch.unregister(handle)
    with pytest.raises(RuntimeError, match="unloaded"):
        old(torch.tensor(1.0), out0=torch.empty(1), out1=torch.empty(1))
    dovetail.torch.register(handle)
    assert old is torch.ops.out_again.two.out
    assert old(torch.tensor(1.0), out0=torch.empty(1), out1=torch.empty(1))[1].item() == 3


@pytest.mark.parametrize("shape", [(0,), (3, 3)])
def test_compiled_results_of_another_shape_are_a_graph_break(shape):
    """As torch's own: in a graph no tensor changes its size."""
    def f(x, a, b):
        dovetail.ops.swiglu_backward(x, x, x, out=(a, b))
        return a + b

    def theirs(x, a, b):
        torch.aminmax(x, dim=1, out=(a, b))
        return a + b

    x = torch.rand(4, 8)
    for g, right in ((f, (4, 8)), (theirs, (4,))):
        torch._dynamo.reset()
        a, b = torch.empty(shape), torch.empty(right)
        got = torch.compile(g)(x, a, b)
        assert a.shape == right and torch.equal(got, g(x, torch.empty(right), torch.empty(right)))
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="Shape mismatch with out= list"):
            torch.compile(g, fullgraph=True)(x, torch.empty(shape), torch.empty(right))
