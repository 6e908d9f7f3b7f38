"""FLOP counts from the contract."""

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import dovetail

SOURCE = """
#include <dovetail_op.h>
#include <string.h>
struct mm { const dv_tensor *a, *b; dv_tensor *out; };
static int mm(dv_context *ctx, const struct mm *a)
{
    (void)ctx;
    for (int64_t i = 0, m = a->a->shape[0], k = a->a->shape[1], n = a->b->shape[1]; i < m * n; i++) {
        float sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += ((const float *)a->a->data)[i / n * k + j] * ((const float *)a->b->data)[j * n + i % n];
        ((float *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(mm, struct mm, (a, b, out), .schema = "mm(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[m k]:f32, b[k n]:f32 -> out[m n]:f32; sum(k); parallel(m, n); flops = 2*m*n*k",
    .kernels = DV_KERNELS(DV_KERNEL(struct mm, "cpu", "f32", mm)));
struct norm { const dv_tensor *x, *w; dv_tensor *out; };
static int norm(dv_context *ctx, const struct norm *a)
{
    (void)ctx;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * 4);
    return DV_OK;
}
DV_OPERATOR(norm, struct norm, (x, w, out), .schema = "norm(Tensor x, Tensor? w=None) -> Tensor out",
    .contract = "x[*s]:f32, w[n]:f32 -> out[*s]:f32; flops = numel(x)*3/2", .kernels = DV_KERNELS(DV_KERNEL(struct norm, "cpu", "f32", norm)));
struct norm_of { const dv_tensor *x; int64_t times; dv_tensor *out; };
static int norm_of(dv_context *ctx, const struct norm_of *a) { return norm(ctx, &(struct norm){ a->x, NULL, a->out }); }
DV_OPERATOR(norm_of, struct norm_of, (x, times, out), .schema = "norm.of(Tensor x, int times) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; flops = numel(x)*times", .kernels = DV_KERNELS(DV_KERNEL(struct norm_of, "cpu", "f32", norm_of)));
DV_LIBRARY(counted, &dv_op_mm, &dv_op_norm, &dv_op_norm_of);
"""


def counts(f):
    with FlopCounterMode(display=False) as counter:
        f()
    return counter.get_total_flops()


def test_as_torch_counts(fresh):
    fresh(SOURCE, "counted")
    for m, k, n in ((2, 3, 4), (1, 5, 0), (7, 1, 2)):
        a, b = torch.randn(m, k), torch.randn(k, n)
        torch.testing.assert_close(torch.ops.counted.mm(a, b), a @ b)
        assert counts(lambda: torch.ops.counted.mm(a, b)) == counts(lambda: torch.mm(a, b)) == 2 * m * k * n
        assert counts(lambda: torch.ops.counted.mm(a, b, out=torch.empty(m, n))) == 2 * m * k * n
        with torch._subclasses.FakeTensorMode() as mode:
            a, b = mode.from_tensor(a), mode.from_tensor(b)
            assert counts(lambda: torch.ops.counted.mm(a, b)) == 2 * m * k * n


def test_overloads_real_numbers_and_unloading(fresh):
    library, registration = fresh(SOURCE, "counted")
    norm, x = torch.ops.counted.norm, torch.randn(3, 5)
    assert counts(lambda: norm(x)) == 22  # 22.5
    assert counts(lambda: norm(x, torch.randn(2))) == 22
    assert counts(lambda: norm(x, 4)) == 60
    assert counts(lambda: norm.of(x, times=2)) == 30
    from dovetail.torch import unregister
    assert norm in flop_registry
    unregister(library)
    assert norm not in flop_registry


def test_without_a_fact_nothing_is_counted(ops):
    assert dovetail.ops.swiglu
    assert counts(lambda: ops.inc_(torch.zeros(3))) == 0
    assert counts(lambda: torch.ops.dovetail.swiglu(torch.zeros(3), torch.zeros(3))) == 0


def test_shipped_facts():
    assert dovetail.ops.fused_experts
    with torch._subclasses.FakeTensorMode():
        args = torch.empty(6, 8), torch.empty(4, 10, 8), torch.empty(4, 8, 5), torch.empty(6, 2), torch.empty(6, 2, dtype=torch.int32)
        assert counts(lambda: torch.ops.dovetail.fused_experts(*args)) == 6 * 6 * 2 * 5 * 8


def test_the_counter_is_not_imported_by_us(forked):
    code = """
import sys, torch, dovetail
dovetail.ops.fused_experts
lazy = "torch.utils.flop_counter" not in sys.modules
from torch.utils.flop_counter import flop_registry
assert torch.ops.dovetail.fused_experts in flop_registry
print("lazy" if lazy else "it is there anyway")
"""
    done = forked(code)
    assert done.stdout == "lazy\n", done.stdout + done.stderr
