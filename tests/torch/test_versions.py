"""One test for each feature of the bridge, on every torch from 2.10 on: `make test-torch TORCH=2.10.0`. The table of docs/torch.md
(tools/torch_versions.py) is made from these tests, a row each: the docstring is the row's name."""

import pytest
import torch

import dovetail
import dovetail.torch
from conftest import one

OPS = """
#include <dovetail_op.h>
struct square { const dv_tensor *x; dv_tensor *out; };
static int square(dv_context *ctx, const struct square *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * ((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(square, struct square, (x, out), .schema = "square(Tensor x) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s); flops = numel(*s)", .native = "x * x", .gradient = "x: 2 * grad * x",
    .kernels = DV_KERNELS(DV_KERNEL(struct square, "cpu", "f32", square)));
struct plain { const dv_tensor *x; dv_tensor *out; };
static int plain(dv_context *ctx, const struct plain *a) { return square(ctx, (const struct square *)a); }
DV_OPERATOR(plain, struct plain, (x, out), .schema = "plain(Tensor x) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .gradient = "x: 2 * grad * x",
    .kernels = DV_KERNELS(DV_KERNEL(struct plain, "cpu", "f32", plain)));
struct inc { dv_tensor *x; };
static int inc(dv_context *ctx, const struct inc *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->x->data)[i] += 1;
    return DV_OK;
}
DV_OPERATOR(inc_, struct inc, (x), .schema = "inc_(Tensor(a!) x) -> ()", .contract = "x[*s]:f32; parallel(*s)",
    .gradient = "x: grad", .kernels = DV_KERNELS(DV_KERNEL(struct inc, "cpu", "f32", inc)));
struct both { const dv_tensor *x; const dv_tensor *y; dv_tensor *out; };
static int both(dv_context *ctx, const struct both *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + ((const float *)a->y->data)[i];
    return DV_OK;
}
DV_OPERATOR(both, struct both, (x, y, out), .schema = "both(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct both, "cpu", "f32", both)));
struct scaled { const dv_tensor *x; dv_scalar by; dv_tensor *out; };
static int scaled(dv_context *ctx, const struct scaled *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * (a->by.kind == DV_SCALAR_INT ? (float)a->by.as.i : (float)a->by.as.f);
    return DV_OK;
}
DV_OPERATOR(scaled, struct scaled, (x, by, out), .schema = "scaled(Tensor x, Scalar by) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct scaled, "cpu", "f32", scaled)));
DV_LIBRARY(versions, &dv_op_square, &dv_op_plain, &dv_op_inc_, &dv_op_both, &dv_op_scaled);
"""


@pytest.fixture
def my(load):
    return load(OPS, "versions")


@pytest.fixture
def x():
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def test_calls(my, x):
    """calls, `torch.ops`, `out=`, messages of the contract"""
    assert torch.equal(my.square(x), x * x) and torch.equal(torch.ops.versions.square(x), x * x)
    out = torch.empty(2, 2)
    assert my.square(x, out=out) is out and torch.equal(out, x * x)
    assert torch.equal(torch.ops.versions.square.out(x, out=torch.empty(0)), x * x)
    with pytest.raises(RuntimeError, match="versions::both: argument 'y': expected shape"):
        torch.ops.versions.both(x, x[0])
    assert my.scaled(x, 3).sum() == 30 and torch.ops.versions.scaled(x, 2.0).sum() == 20


def test_autograd(my, x):
    """gradients, again differentiated; written arguments"""
    x.requires_grad_()
    for f in my.square, torch.ops.versions.square, my.plain:
        first, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        second, = torch.autograd.grad(first.sum(), x)
        assert torch.equal(first, 2 * x) and torch.equal(second, torch.full((2, 2), 2.0))
    z = x * 2
    version = z._version
    my.inc_(z)
    assert z._version == version + 1 and torch.equal(torch.autograd.grad(z.sum(), x)[0], torch.full((2, 2), 2.0))
    with pytest.raises(RuntimeError, match="leaf"):
        my.inc_(x)


def test_forward_mode_and_func(my, x):
    """forward mode, `torch.func`: `grad`, `jvp`, `hessian`"""
    t = torch.ones(2, 2)
    for f in my.square, torch.ops.versions.square:
        value, tangent = torch.func.jvp(f, (x,), (t,))
        assert torch.equal(tangent, 2 * x)
        assert torch.equal(torch.func.grad(lambda y: f(y).sum())(x), 2 * x)
    assert torch.equal(torch.func.hessian(lambda y: my.square(y).sum())(x[0]), 2 * torch.eye(2))


def test_opcheck(my, x):
    """`torch.library.opcheck`"""
    for op in torch.ops.versions.square, torch.ops.versions.square.default, torch.ops.versions.plain.default:
        torch.library.opcheck(op, (x,))
        torch.library.opcheck(op, (x.clone().requires_grad_(),))
    torch.library.opcheck(torch.ops.versions.inc_.default, (x.clone(),))


def test_vmap(my, x):
    """`torch.vmap`"""
    assert torch.equal(torch.vmap(my.square)(x), x * x)
    assert torch.equal(torch.vmap(torch.ops.versions.plain)(x), x * x)  # a loop
    y = x.clone()
    torch.vmap(torch.ops.versions.inc_, out_dims=None)(y)
    assert torch.equal(y, x + 1)


def test_functionalize(my, x):
    """`torch.func.functionalize` of operators that write"""
    def f(x):
        y = x * 1
        my.inc_(y)
        return y
    assert torch.equal(torch.func.functionalize(f)(x), x + 1)


def test_fake(my):
    """meta and fake tensors, symbolic sizes"""
    assert torch.ops.versions.square(torch.empty(3, 4, device="meta")).shape == (3, 4)
    with torch._subclasses.FakeTensorMode():
        assert my.square(torch.empty(5)).shape == (5,)


def test_export(my, x):
    """`torch.export`"""
    class Model(torch.nn.Module):
        def forward(self, x):
            y = my.square(x)
            my.inc_(y)
            return my.both(y, x)
    program = torch.export.export(Model(), (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    y = torch.ones(5, 2)
    assert torch.equal(program.module()(y), y * y + 1 + y)
    assert any("versions.square" in str(n.target) for n in program.graph.nodes)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(my, x, backend):
    """`torch.compile(fullgraph=True, dynamic=True)`, with gradients"""
    def f(x):
        y = my.square(x) + 1
        my.inc_(y)
        return torch.ops.versions.plain(y)
    compiled = torch.compile(f, fullgraph=True, dynamic=True, backend=backend)
    for n in 2, 3:
        a = torch.randn(n, 2, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        with torch.no_grad():
            torch.testing.assert_close(compiled(a), f(a))
        compiled(a).sum().backward()
        f(b).sum().backward()
        torch.testing.assert_close(a.grad, b.grad)


def test_program_of_inductor(my, x):
    """programs of Inductor call the operator directly, into memory that Inductor plans"""
    from torch._inductor.utils import run_and_get_code
    torch._dynamo.reset()
    result, codes = run_and_get_code(torch.compile(lambda x: my.square(x + 1) * 2, fullgraph=True), x)
    torch.testing.assert_close(result, (x + 1) ** 2 * 2)
    assert "dovetail_versions__square.function(" in codes[0], codes[0]


def test_native_in_graphs(my, x):
    """an operator that the policy turns off is its decomposition in graphs"""
    seen = []

    def backend(graph, inputs):
        seen.append(str(graph.graph))
        return graph
    f = torch.compile(lambda x: my.square(x), fullgraph=True, backend=backend)
    f(x)
    with dovetail.policy("-versions::square"):
        assert torch.equal(f(x), x * x)
    assert len(seen) == 2 and seen[0] != seen[1]


def test_autocast(my, x):
    """`torch.autocast`: mixed dtypes of one variable become the widest"""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ops.versions.both(x, x.bfloat16()).dtype == torch.float32


def test_flops(my, x):
    """`FlopCounterMode`"""
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False) as counter:
        torch.ops.versions.square(x)
    assert counter.get_total_flops() == 4


SHARDED = """
import sys, torch, dovetail, torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
my = dovetail.load(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
x = torch.ones(4, 2)
y = torch.ops.versions.square(distribute_tensor(x, init_device_mesh("cpu", (1,)), [Shard(0)]))
assert y.placements == (Shard(0),), y.placements
assert torch.equal(y.full_tensor(), x)
dist.destroy_process_group()
"""


def test_sharding(my, forked, tmp_path):
    """DTensor"""
    done = forked(SHARDED, my.path, tmp_path / "store")
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_program_gives_a_kernel(my, x):
    """kernels that a program registers are what runs"""
    library = torch.library.Library("versions", "IMPL")
    library.impl("square", lambda x: x + 10, "CPU")
    assert torch.equal(my.square(x), x + 10) and torch.equal(torch.ops.versions.square(x), x + 10)
    library._destroy()
    assert torch.equal(my.square(x), x * x)


def test_custom_op(x):
    """`dovetail.custom_op`, `dovetail.torch.library`"""
    @dovetail.custom_op("versions_py::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    triple.register_fake(torch.empty_like)
    triple.register_autograd(lambda ctx, g: g * 3)
    assert torch.equal(triple(x), x * 3) and torch.equal(torch.ops.versions_py.triple(x), x * 3)
    x.requires_grad_()
    assert torch.equal(torch.autograd.grad(triple(x).sum(), x)[0], torch.full((2, 2), 3.0))
    assert torch.equal(torch.compile(lambda x: triple(x), fullgraph=True, backend="aot_eager")(x), x * 3)


UNHARMED = """
import sys, torch, torch._inductor.lowering, torch.testing._internal.optests
from torch._functorch import eager_transforms
def held():
    owners = [torch.library.Library, torch.library, eager_transforms, torch._ops.OpOverload, torch._ops.OpOverloadPacket,
              torch._inductor.codecache, torch._inductor.codecache.FxGraphHashDetails, torch._inductor.ir.FallbackKernel,
              torch.testing._internal.optests.generate_tests, torch.autograd, torch.Tensor, torch, torch._C]
    return {(str(o), k): v for o in owners for k, v in vars(o).items() if callable(v)}
before = held()
import dovetail
my = dovetail.load(sys.argv[1])
x = torch.ones(3)
assert my.square(x).sum() == 3 and torch.compile(my.square, fullgraph=True)(x).sum() == 3
changed = {k for k, v in held().items() if before.get(k) is not v and k in before}
library = torch.library.Library("unharmed", "DEF")  # torch's own, beside ours
library.define("f(Tensor x) -> Tensor")
library.impl("f", lambda x: x + 1, "CompositeExplicitAutograd")
library.impl(torch.ops.unharmed.f.default, torch.empty_like, "Meta")
assert torch.ops.unharmed.f(x).sum() == 6 and torch.vmap(torch.ops.unharmed.f)(torch.ones(2, 3)).sum() == 12
@torch.library.custom_op("unharmed::g", mutates_args=())
def g(x: torch.Tensor) -> torch.Tensor:
    return x * 2
g.register_fake(torch.empty_like)
torch.library.opcheck(g, (x,))
assert torch.compile(lambda x: g(x), fullgraph=True, backend="aot_eager")(x).sum() == 6
assert torch.func.functionalize(lambda x: x.clone().add_(1))(x).sum() == 6
my.close()
dovetail.close() if hasattr(dovetail, "close") else None
left = {k for k, v in held().items() if before.get(k) is not v and k in before}
print(sorted(k for _, k in changed), sorted(k for _, k in left))
"""


def test_torch_is_unharmed(my, forked):
    """torch itself: its own operators, and its functions as they were once libraries are closed"""
    done = forked(UNHARMED, my.path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("[]"), done.stdout
