"""Operators that return int, float or bool: in a trace such a result is a symbol, by torch's own rules for Tensor.item()."""
import pytest
import torch
from torch._dynamo import config
from torch.fx.experimental.proxy_tensor import make_fx

SOURCE = """
#include <dovetail_op.h>
struct n { const dv_tensor *x; int64_t *out; };
static int n(dv_context *ctx, const struct n *a) { (void)ctx; *a->out = (int64_t)((const float *)a->x->data)[0]; return DV_OK; }
struct f { const dv_tensor *x; double *out; };
static int f(dv_context *ctx, const struct f *a) { (void)ctx; *a->out = ((const float *)a->x->data)[0]; return DV_OK; }
struct b { const dv_tensor *x; bool *out; };
static int b(dv_context *ctx, const struct b *a) { (void)ctx; *a->out = ((const float *)a->x->data)[0] > 0; return DV_OK; }
struct all { const dv_tensor *x; dv_tensor *out; int64_t *i; double *f; bool *b; };
static int all(dv_context *ctx, const struct all *a)
{
    (void)ctx;
    const float x = ((const float *)a->x->data)[0];
    ((float *)a->out->data)[0] = x, *a->i = (int64_t)x, *a->f = x, *a->b = x > 0;
    return DV_OK;
}
DV_OPERATOR(n, struct n, (x, out), .schema = "n(Tensor x) -> SymInt out", .contract = "x[s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct n, "cpu", "f32", n)));
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> float out", .contract = "x[s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_OPERATOR(b, struct b, (x, out), .schema = "b(Tensor x) -> SymBool out", .contract = "x[s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct b, "cpu", "f32", b)));
DV_OPERATOR(all, struct all, (x, out, i, f, b), .schema = "all(Tensor x) -> (Tensor out, SymInt i, float f, bool b)",
    .contract = "x[s]:f32 -> out[1]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct all, "cpu", "f32", all)));
DV_LIBRARY(numbers, &dv_op_n, &dv_op_f, &dv_op_b, &dv_op_all);
"""
KINDS = {"n": (torch.SymInt, int), "f": (None, float), "b": (torch.SymBool, bool)}


@pytest.fixture
def numbers(load):
    library = load(SOURCE, "numbers")
    with config.patch(capture_scalar_outputs=True):
        yield library


def test_results_and_opcheck(numbers):
    x = torch.tensor([-3.0, 1])
    assert [getattr(numbers, k)(x) for k in KINDS] == [-3, -3.0, False]
    assert [type(getattr(torch.ops.numbers, k)(x)) for k in KINDS] == [t for _, t in KINDS.values()]
    for k in ("n", "b"):
        torch.library.opcheck(getattr(torch.ops.numbers, k).default, (x,))
    torch.library.opcheck(torch.ops.numbers.f.default, (x,), test_utils=("test_schema", "test_autograd_registration"))


@pytest.mark.parametrize("name", ["n", "b"])
def test_a_result_is_a_symbol(numbers, name):
    op, x = getattr(torch.ops.numbers, name).default, torch.tensor([-3.0, 1])
    graph = make_fx(lambda x: op(x), tracing_mode="symbolic")(x)
    made = [n.meta["val"] for n in graph.graph.nodes if n.target is op]
    assert len(made) == 1 and isinstance(made[0], KINDS[name][0])


@pytest.mark.parametrize("name", ["n", "b"])
def test_compiled_and_exported(numbers, name):
    f = getattr(numbers, name)

    def use(x):
        found = f(x)
        return x + (torch.sym_ite(found, 1, 2) if name == "b" else found)

    compiled = torch.compile(use, backend="aot_eager", fullgraph=True)
    for x in (torch.tensor([-3.0, 1]), torch.tensor([4.0, 1])):
        assert torch.equal(compiled(x), use(x))

    class Module(torch.nn.Module):
        def forward(self, x):
            return use(x)

    exported = torch.export.export(Module(), (torch.tensor([-3.0, 1]),)).module()
    assert torch.equal(exported(torch.tensor([4.0, 1])), use(torch.tensor([4.0, 1])))


def test_by_inductor(numbers):
    compiled = torch.compile(lambda x: x * numbers.n(x), fullgraph=True)
    for x in (torch.tensor([-3.0, 1]), torch.tensor([4.0, 1])):
        assert torch.equal(compiled(x), x * x[0])


def test_a_float_cuts_the_program_as_torchs_own_do(numbers):
    """torch has no symbol for a schema's float, int or bool: its own custom operators fail there."""
    def use(x):
        out, i, f, b = numbers.all(x + 1)
        return out * 2 + i + f + b + numbers.f(x)

    x = torch.tensor([3.0, 1])
    assert torch.equal(torch.compile(use, backend="aot_eager")(x), use(x))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="numbers.f.default"):
        torch.compile(numbers.f, backend="aot_eager", fullgraph=True)(x)


def test_without_a_fake_mode_there_is_no_symbol(numbers):
    with pytest.raises(RuntimeError, match="numbers::f: its result depends on data"):
        torch.ops.numbers.f(torch.empty(2, device="meta"))
