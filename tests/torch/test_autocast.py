"""Autocast: the same casts, written by hand, give the same results and gradients."""
import pytest
import torch

from test_shipped import ALL

bf16, f16, f32, f64 = torch.bfloat16, torch.float16, torch.float32, torch.float64

SOURCE = """
#include <dovetail_op.h>
#include <string.h>
struct join { dv_tensors xs; const dv_tensor *w; dv_tensor *out; };
static int join(dv_context *ctx, const struct join *a)
{
    char *to = a->out->data;
    (void)ctx;
    for (size_t i = 0; i < a->xs.size; i++) {
        const size_t n = (size_t)dv_numel(a->xs.data[i]) * a->out->dtype.bits / 8;
        memcpy(to, a->xs.data[i]->data, n);
        to += n;
    }
    return DV_OK;
}
#define JOIN(NAME, TAGS)                                                                                               \\
    DV_OPERATOR(NAME, struct join, (xs, w, out), .schema = #NAME "(Tensor[] xs, *, Tensor? w=None) -> Tensor out",      \\
        .contract = "xs{i}[n{i}]:T, w[...]:i64 -> out[total(n)]:T", .tags = TAGS,                                       \\
        .kernels = DV_KERNELS(DV_KERNEL(struct join, "cpu", NULL, join)))
JOIN(join, NULL);
JOIN(join_lower, "pt2_compliant_tag autocast_lower");
JOIN(join_f32, "autocast_f32");
struct set { dv_tensor *x; const dv_tensor *y; };
static int set(dv_context *ctx, const struct set *a)
{
    (void)ctx;
    memcpy(a->x->data, a->y->data, (size_t)dv_numel(a->x) * a->x->dtype.bits / 8);
    return DV_OK;
}
DV_OPERATOR(set, struct set, (x, y), .schema = "set(Tensor(a!) x, Tensor y) -> ()", .contract = "x[*s]:T, y[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct set, "cpu", NULL, set)));
DV_LIBRARY(casts, &dv_op_join, &dv_op_join_lower, &dv_op_join_f32, &dv_op_set);
"""


@pytest.fixture
def mine(fresh):
    fresh(SOURCE, "casts")
    return torch.ops.casts


def autocast(dtype=bf16):
    return torch.autocast("cpu", dtype=dtype)


def test_differing_dtypes_become_the_widest():
    f, x, w = ALL["dovetail::rms_norm"].overload, torch.randn(3, 4, dtype=bf16), torch.randn(4)
    with pytest.raises(RuntimeError, match="expected dtype bf16"):
        f(x, w)
    with autocast():
        assert torch.equal(f(x, w), f(x.float(), w))
        assert torch.equal(f(x.half(), w.to(bf16)), f(x.float(), w.to(bf16).float()))
        assert f(x, w.to(bf16)).dtype == bf16 and f(x.float(), w).dtype == f32  # they agree
        with pytest.raises(RuntimeError, match="expected dtype bf16"):
            f(x, w.double())  # torch leaves f64 alone
        with torch.autocast("cpu", enabled=False), pytest.raises(RuntimeError, match="expected dtype bf16"):
            f(x, w)


def test_gradients_flow_through_the_casts():
    f = ALL["dovetail::rms_norm"].overload
    x, w = torch.randn(3, 4, dtype=bf16, requires_grad=True), torch.randn(4, requires_grad=True)
    expected = torch.autograd.grad(f(x.float(), w).square().sum(), (x, w))
    with autocast():
        y = f(x, w)
    found = torch.autograd.grad(y.square().sum(), (x, w))
    assert [g.dtype for g in found] == [bf16, f32]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_lists_optional_and_keyword_arguments(mine):
    xs = [torch.randn(2, dtype=bf16), torch.randn(3), torch.randn(1, dtype=f16)]
    with autocast():
        assert torch.equal(mine.join(xs, w=torch.tensor(2)), torch.cat([x.float() for x in xs]))


@pytest.mark.parametrize("to", [bf16, f16])
def test_tags(mine, to):
    xs = [torch.randn(2), torch.randn(3)]
    assert mine.join_lower(xs).dtype == f32 and mine.join_f32([x.to(to) for x in xs]).dtype == to
    with autocast(to):
        assert torch.equal(mine.join_lower(xs, w=torch.tensor(3)), torch.cat(xs).to(to))
        assert torch.equal(mine.join_f32([x.to(to) for x in xs]), torch.cat([x.to(to) for x in xs]).float())
        assert mine.join_lower([torch.randn(2, dtype=f64)]).dtype == f64
        assert mine.join_lower([torch.ones(2, dtype=torch.int32)]).dtype == torch.int32
    assert torch.Tag.pt2_compliant_tag in mine.join_lower.default.tags


def test_tags_that_exclude_each_other(fresh):
    with pytest.raises(RuntimeError, match="casts::join_f32: tags: autocast_lower and autocast_f32 exclude each other"):
        fresh(SOURCE.replace('"autocast_f32"', '"autocast_f32 autocast_lower"'), "casts")


def test_what_is_written_to_is_never_cast(mine):
    x, y = torch.zeros(3), torch.randn(3, dtype=bf16)
    with autocast():
        mine.set(x, y)
        assert torch.equal(x, y.float())
        with pytest.raises(RuntimeError, match="argument 'y': expected dtype bf16"):
            mine.set(y, x)


def test_operators_with_nothing_to_cast_have_no_kernel():
    for name, has in (("sigmoid", False), ("swiglu", True)):
        assert torch._C._dispatch_has_kernel_for_dispatch_key("dovetail::" + name, "AutocastCPU") == has
        assert torch._C._dispatch_has_kernel_for_dispatch_key("dovetail::" + name, "AutocastCUDA") == has
        assert torch._C._dispatch_has_kernel_for_dispatch_key("dovetail::" + name, "AutocastPrivateUse1") == has


@pytest.mark.parametrize("inside", [False, True])
def test_in_a_graph(inside):
    torch._dynamo.reset()
    f = ALL["dovetail::rms_norm"].overload

    def model(x, w, m):
        with autocast():
            return f(x @ m, w).sum()

    compiled = torch.compile(model if inside else lambda x, w, m: f(x @ m, w).sum(), backend="aot_eager", fullgraph=True)
    args = [torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True), torch.randn(4, 4)]
    expected = model(*args)
    with autocast():
        found = compiled(*args)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, args[:2]), torch.autograd.grad(expected, args[:2]))


def test_under_vmap_and_export():
    f = ALL["dovetail::rms_norm"].overload
    x, w = torch.randn(3, 4, dtype=bf16), torch.randn(4)
    with autocast():
        assert torch.equal(torch.vmap(f, in_dims=(0, None))(x, w), f(x, w))

    class Model(torch.nn.Module):
        def forward(self, x, w):
            with autocast():
                return f(x, w)

    torch.testing.assert_close(torch.export.export(Model(), (x, w)).module()(x, w), f(x.float(), w))


@pytest.mark.parametrize("x, w", [(f32, bf16), (bf16, f32), (f32, f32), (bf16, bf16)])
def test_linear_casts_as_torchs_does(x, w):
    x, w = torch.randn(3, 8, dtype=x, requires_grad=True), torch.randn(5, 8, dtype=w, requires_grad=True)
    with autocast():
        found, expected = torch.ops.dovetail.linear(x, w), torch.nn.functional.linear(x, w)
    assert found.dtype == expected.dtype == bf16
    torch.testing.assert_close(found, expected)
    for a, b in zip(torch.autograd.grad(found.float().sum(), (x, w)), torch.autograd.grad(expected.float().sum(), (x, w))):
        torch.testing.assert_close(a, b)
