"""Native forms that write: every clause has the values from before the call, in NumPy, eager and compiled, as the kernel has."""
import dovetail
import numpy
import pytest
import torch

SOURCE = r"""
#include <dovetail_op.h>
struct two { dv_tensor *x, *y; };
#define EACH(...) \
    float *x = a->x->data, *y = a->y->data; \
    (void)ctx; \
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) { const float old = x[i]; (void)old; __VA_ARGS__; } \
    return DV_OK;
#define TWO(NAME, NATIVE, ...) \
    static int NAME##_f32(dv_context *ctx, const struct two *a) { EACH(__VA_ARGS__) } \
    DV_OPERATOR(NAME, struct two, (x, y), .schema = #NAME "(Tensor(a!) x, Tensor(b!) y) -> ()", .contract = "x[*s]:f32, y[*s]:f32", \
        .native = NATIVE, .kernels = DV_KERNELS(DV_KERNEL(struct two, "cpu", "f32", NAME##_f32)));
TWO(swap_, "x: y; y: x", x[i] = y[i]; y[i] = old)
TWO(keep_, "x: x * 2; y: x", x[i] = old * 2; y[i] = old)
TWO(copy_, "x: x * 2; y: reshape(x, y.shape)", x[i] = old * 2; y[i] = old)
TWO(same_, "x: x * 2; y: to(x, f32)", x[i] = old * 2; y[i] = old)
struct after { dv_tensor *x, *y; };
static int after_f32(dv_context *ctx, const struct after *a) { EACH(y[i] = old; x[i] = old + 1) }
DV_OPERATOR(after_, struct after, (x, y), .schema = "after_(Tensor(a!) x) -> Tensor y", .contract = "x[*s]:f32 -> y[*s]:f32",
    .native = "y: x; x: x + 1", .kernels = DV_KERNELS(DV_KERNEL(struct after, "cpu", "f32", after_f32)));
struct square { dv_tensor *x; };
static int turn_f32(dv_context *ctx, const struct square *a)
{
    float *x = a->x->data;
    const int64_t n = a->x->shape[0];
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            const float old = x[i * n + j];
            x[i * n + j] = x[j * n + i], x[j * n + i] = old;
        }
    return DV_OK;
}
DV_OPERATOR(turn_, struct square, (x), .schema = "turn_(Tensor(a!) x) -> ()", .contract = "x[n n]:f32", .native = "transpose(x, 0, 1)",
    .kernels = DV_KERNELS(DV_KERNEL(struct square, "cpu", "f32", turn_f32)));
struct list { dv_mut_tensors xs; };
static int turn_list_f32(dv_context *ctx, const struct list *a)
{
    float *x = a->xs.data[0]->data, *y = a->xs.data[1]->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->xs.data[0]); i < n; i++) {
        const float old = x[i];
        x[i] = y[i] + 1, y[i] = old;
    }
    return DV_OK;
}
DV_OPERATOR(turn_list_, struct list, (xs), .schema = "turn_list_(Tensor(a!)[] xs) -> ()", .contract = "xs{i}[*b]:f32; len(xs) == 2",
    .native = "xs: [xs[1] + 1, xs[0]]", .kernels = DV_KERNELS(DV_KERNEL(struct list, "cpu", "f32", turn_list_f32)));
DV_LIBRARY(native_writes, &dv_op_swap_, &dv_op_keep_, &dv_op_copy_, &dv_op_same_, &dv_op_after_, &dv_op_turn_, &dv_op_turn_list_);
"""
NAMES = ["swap_", "keep_", "copy_", "same_", "after_", "turn_", "turn_list_"]


@pytest.fixture(scope="module")
def ops(tmp_path_factory):
    source = tmp_path_factory.mktemp("native") / "native_writes.c"
    source.write_text(SOURCE)
    library = dovetail.load(source)
    yield library
    library.close()


def given(name):
    x, y = torch.arange(9.0).reshape(3, 3), torch.arange(9.0).reshape(3, 3) * 10 + 5
    return [[x, y]] if name == "turn_list_" else [x] if name in ("after_", "turn_") else [x, y]


def flat(args, result):
    tensors = [t for a in args for t in (a if isinstance(a, list) else [a])] + ([] if result is None else [result])
    return [torch.as_tensor(t) for t in tensors]


def arrays(args):
    return [[t.numpy() for t in a] if isinstance(a, list) else a.numpy() for a in args]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["numpy", "eager", "overload", "compile eager", "aot_eager", "inductor"])
def test_old_values(ops, name, how):
    expect = given(name)
    with dovetail.policy("all"):
        right = flat(expect, getattr(ops, name)(*expect))
    args = arrays(given(name)) if how == "numpy" else given(name)
    f = getattr(torch.ops.native_writes, name) if how not in ("numpy", "eager") else getattr(ops, name)
    if how in ("compile eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        inner = f
        f = torch.compile(lambda *a: inner(*a), fullgraph=True, backend=how.rpartition(" ")[2])
    with dovetail.policy("none"):
        result = f(*args)
        found = flat(args, None if name != "after_" else result)
    right = flat(expect, None if name != "after_" else right[-1])
    assert all(torch.equal(a, b) for a, b in zip(found, right)) and len(found) == len(right), (found, right)
