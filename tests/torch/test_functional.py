"""Functionalization equals eager: torch.func.functionalize, make_fx, and graphs."""
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

SOURCE = """
#include <dovetail_op.h>
static void add(const dv_tensor *x, float by)
{
    for (int64_t i = 0, n = x ? dv_numel(x) : 0; i < n; i++)
        ((float *)x->data)[i] += by;
}
struct maybe { dv_tensor *x; const dv_tensor *y; };
static int maybe(dv_context *ctx, const struct maybe *a) { (void)ctx; add(a->x, ((const float *)a->y->data)[0]); return DV_OK; }
DV_OPERATOR(maybe, struct maybe, (x, y), .schema = "maybe(Tensor(a!)? x, Tensor y) -> ()", .contract = "x[*s]:f32, y[...]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct maybe, "cpu", "f32", maybe)));
struct second { const dv_tensor *x; dv_tensor *y, *out; };
static int second(dv_context *ctx, const struct second *a) { (void)ctx; add(a->y, ((const float *)a->x->data)[0]); return DV_OK; }
DV_OPERATOR(second, struct second, (x, y, out), .schema = "second(Tensor x, Tensor(a!) y) -> Tensor(a!) out", .contract = "x[*s]:f32, y[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct second, "cpu", "f32", second)));
struct both { dv_tensor *x, *y, *a, *b, *n; };
static int both(dv_context *ctx, const struct both *a) { (void)ctx; add(a->x, 1); add(a->y, 2); *(float *)a->n->data = 3; return DV_OK; }
DV_OPERATOR(both, struct both, (x, y, a, b, n), .schema = "both(Tensor(a!) x, *, Tensor(b!) y) -> (Tensor(b!) a, Tensor(a!) b, Tensor n)",
    .contract = "x[*s]:f32, y[*s]:f32 -> n[]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct both, "cpu", "f32", both)));
DV_LIBRARY(functional, &dv_op_maybe, &dv_op_second, &dv_op_both);
"""


@pytest.fixture
def mine(fresh):
    fresh(SOURCE, "functional")
    return torch.ops.functional


def programs(ops, mine):
    def plain(x):
        ops.inc(x)
        return x * 1

    def of_a_view(x):
        y = x * 1
        ops.inc(y[1:])
        ops.inc(y.t()[0])
        ops.inc_all([y[0], y[1:].reshape(-1)[:2]])
        return y, x

    def in_place(x):
        y = x.clone()
        z = ops.inc_(y)
        z.mul_(2)
        return y, z, ops.inc_(x)

    def optional(x):
        mine.maybe(None, x)
        mine.maybe(x[0], x[1:].clone())
        return x + 1

    def aliases(x):
        y = x * 2
        z = mine.second(x, y)
        z.add_(1)
        a, b, n = mine.both(y, y=x)
        return y, z, a * n, b.mul_(3)

    def views(x):
        y = x * 1
        ops.swapped(y, 0, 1).mul_(2)
        ops.part(y, -1, 0, 1).zero_()
        ops.diagonal(y).add_(3)
        ops.inc_(ops.swapped(y, 0, 1)[0])
        return y, ops.swapped(x, 0, -1)

    return {f.__name__: f for f in (plain, of_a_view, in_place, optional, aliases, views)}


TORCHS = ["plain", "of_a_view", "optional"]  # what torch functionalizes itself in graphs
OURS = ["in_place", "aliases", "views"]


def compare(f, g):
    """Results, and what became of the argument."""
    x = torch.randn(3, 4)
    a, b = x.clone(), x.clone()
    torch.testing.assert_close(g(b), f(a))
    torch.testing.assert_close(b, a)


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("name", TORCHS + OURS)
def test_functionalize(ops, mine, name, remove):
    f = programs(ops, mine)[name]
    compare(f, torch.func.functionalize(f, remove=remove))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", TORCHS + OURS)
def test_traced(ops, mine, name, mode):
    """make_fx(functionalize(f)) writes to nothing but its inputs, by copy_."""
    f = programs(ops, mine)[name]
    graph = make_fx(torch.func.functionalize(f), tracing_mode=mode)(torch.randn(3, 4))
    compare(f, graph)
    for node in graph.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and node.target is not torch.ops.aten.copy_.default:
            assert not node.target._schema.is_mutable, node


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", TORCHS + OURS)
def test_graphs(ops, mine, name, backend):
    torch._dynamo.reset()
    f = programs(ops, mine)[name]
    with torch.no_grad():
        compare(f, torch.compile(f, backend=backend, fullgraph=True, dynamic=True))


def test_torch_functionalizes_what_returns_nothing(ops):
    """The operator itself stands in the graph, in auto_functionalized_v2, with its base."""
    torch._dynamo.reset()
    found = []

    def look(graph, _):
        found.extend(n for n in graph.graph.nodes if "auto_functionalized" in str(n.target))
        return graph

    from torch._dynamo.backends.common import aot_autograd

    def f(x):
        y = x * 2
        ops.inc(y[1:])
        return y

    with torch.no_grad():
        compare(f, torch.compile(f, backend=aot_autograd(fw_compiler=look), fullgraph=True))
    node, = found
    assert node.target is torch.ops.higher_order.auto_functionalized_v2 and node.args == (torch.ops.torch_ops.inc.default,)
    assert len(node.kwargs["_all_bases"]) == 1 and node.kwargs["_all_bases"][0].meta["val"].shape == (3, 4)


@pytest.mark.parametrize("name", TORCHS + OURS)
def test_export(ops, mine, name):
    class Model(torch.nn.Module):
        def forward(self, x):
            return programs(ops, mine)[name](x)

    with torch.no_grad():
        program = torch.export.export(Model(), (torch.randn(3, 4),))
        compare(programs(ops, mine)[name], program.module())
        compare(programs(ops, mine)[name], program.run_decompositions({}).module())


def has_kernel():
    return torch._C._dispatch_has_kernel_for_dispatch_key("torch_ops::inc", "Functionalize")


def test_the_kernel_is_there_while_it_is_needed(ops):
    """In a graph torch functionalizes the operator only where there is no kernel for that key."""
    seen = []

    def look():
        seen.append(has_kernel())

    def f(x, fails):
        look()
        torch.func.functionalize(look)()  # torch does not nest levels that share a tensor
        ops.inc(x)
        look()
        return 1 / 0 if fails else x * 2

    x = torch.ones(3)
    assert torch.equal(torch.func.functionalize(f)(x, False), torch.full((3,), 4.)) and torch.equal(x, torch.full((3,), 2.))
    assert seen == [True] * 3 and not has_kernel()
    with pytest.raises(ZeroDivisionError):
        torch.func.functionalize(f)(x, True)
    assert seen == [True] * 6 and not has_kernel()
    test_torch_functionalizes_what_returns_nothing(ops)


def test_a_library_that_is_loaded_and_closed_inside(fresh):
    from conftest import one
    source = one("inside", schema="f(Tensor x) -> Tensor out").replace("DV_LIBRARY", """
struct g { dv_tensor *x; };
static int g(dv_context *ctx, const struct g *a) { (void)ctx; ((float *)a->x->data)[0] = 7; return DV_OK; }
DV_OPERATOR(g, struct g, (x), .schema = "g(Tensor(a!) x) -> ()", .contract = "x[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct g, "cpu", "f32", g)));
DV_LIBRARY""").replace("&dv_op_f", "&dv_op_f, &dv_op_g")

    def f(x):
        y = x * 1
        fresh(source, "inside")
        torch.ops.inside.g(y)
        return y

    assert torch.func.functionalize(f)(torch.zeros(2)).tolist() == [7, 0]


def test_in_threads(ops):
    """One thread leaves while another is inside."""
    import threading
    barrier, found = threading.Barrier(4), []

    def f(x, k):
        for _ in range(k + 1):
            ops.inc(x)
            barrier.wait() if _ == 0 else None
        return x * 2

    def work(k):
        found.append((k, torch.func.functionalize(lambda x: f(x, k))(torch.zeros(2)).tolist()))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [(k, [2.0 * (k + 1)] * 2) for k in range(4)] and not has_kernel()


def test_writing_to_what_is_not_functional_is_an_error(ops, mine):
    outer = torch.zeros(3)
    with pytest.raises(RuntimeError, match="functional::second: argument 'y': mutating a non-functional tensor with a functional tensor"):
        torch.func.functionalize(lambda x: mine.second(x, outer))(torch.ones(3))


def test_under_vmap(ops, mine):
    def f(x):
        y = x * 2
        ops.inc_(y)
        return y

    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.func.functionalize(torch.vmap(f))(x), x * 2 + 1)
    torch.testing.assert_close(torch.vmap(torch.func.functionalize(f))(x), x * 2 + 1)
    a, b = torch.zeros(3, 2), torch.zeros(2, 3)
    y, x, n = torch.vmap(lambda a, b: mine.both(a, y=b), in_dims=(0, 1), out_dims=(1, 0, 0))(a, b)
    assert torch.equal(a, torch.ones(3, 2)) and torch.equal(b, torch.full((2, 3), 2.)) and n.tolist() == [3, 3, 3]
    assert torch.equal(y, b) and torch.equal(x, a)
