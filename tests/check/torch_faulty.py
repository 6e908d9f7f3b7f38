"""Operators of torch's, each with one fault of a kind that people make. None is written with Dovetail."""
import ctypes

import torch
import torch.distributed.tensor.experimental
from torch.distributed.tensor import Replicate, Shard

library = torch.library.Library("torch_faulty", "DEF")


def operator(schema, fake=None):
    def keep(kernel):
        name = schema.partition("(")[0]
        library.define(schema)
        library.impl(name, kernel, "CPU")
        if fake:
            torch.library.register_fake(f"torch_faulty::{name}", fake, lib=library)
        return kernel
    return keep


def floats(t):
    return (ctypes.c_float * t.numel()).from_address(t.data_ptr())


@operator("right(Tensor x) -> Tensor", torch.empty_like)
def right(x):
    return x * 2


@operator("wrong_fake(Tensor x) -> Tensor", lambda x: x.new_empty(x.shape[::-1]))
def wrong_fake(x):
    return x * 2


@operator("wrong_fake_dtype(Tensor x) -> Tensor", torch.empty_like)
def wrong_fake_dtype(x):
    return (x * 2).double() if x.dtype == torch.float32 else x * 2


@operator("undeclared_write(Tensor x) -> Tensor", torch.empty_like)
def undeclared_write(x):
    y = x * 2
    x.zero_()
    return y


@operator("unseen_write(Tensor(a!) x) -> ()", lambda x: None)
def unseen_write(x):
    if x.dtype != torch.float32 or not x.is_contiguous():
        raise RuntimeError("expected contiguous f32")
    for i, v in enumerate(data := floats(x)):
        data[i] = 2 * v


@operator("right_fill(Tensor(a!) counts) -> ()", lambda counts: None)
def right_fill(counts):
    """No version counter is raised, which is harmless: integers have no gradients."""
    if counts.dtype != torch.int64 or not counts.is_contiguous():
        raise RuntimeError("expected contiguous i64")
    ctypes.memset(counts.data_ptr(), 7, counts.numel() * 8)


@operator("stride_ignored(Tensor x) -> Tensor", lambda x: torch.empty(x.shape))
def stride_ignored(x):
    if x.dtype != torch.float32:
        raise RuntimeError("expected f32")
    y = torch.empty(x.shape)
    out = floats(y)
    for i, v in enumerate(floats(x)):
        out[i] = 2 * v
    return y


@operator("alias(Tensor x) -> Tensor", torch.empty_like)
def alias(x):
    return x.view_as(x)


@operator("size_hard_coded(Tensor x) -> Tensor", torch.empty_like)
def size_hard_coded(x):
    if x.dtype != torch.float32 or x.dim() != 1 or not x.is_contiguous():
        raise RuntimeError("expected a contiguous vector of f32")
    y = torch.zeros_like(x)
    source = (ctypes.c_float * 2048).from_address(x.data_ptr())
    total = sum(source)
    out = floats(y)
    for i in range(x.numel()):
        out[i] = source[i] + 0 * total
    return y


@operator("tail_unwritten(Tensor x) -> Tensor", lambda x: torch.empty(x.shape))
def tail_unwritten(x):
    if x.dtype != torch.float32:
        raise RuntimeError("expected f32")
    y = torch.empty(x.shape)
    y.view(-1)[:x.numel() // 4 * 4] = x.reshape(-1)[:x.numel() // 4 * 4]
    return y


@operator("random(Tensor x) -> Tensor", torch.empty_like)
def random(x):
    return torch.rand(x.shape).to(x.dtype) + x


@operator("crash(Tensor x) -> Tensor", torch.empty_like)
def crash(x):
    if x.dim() == 2 and x.shape[0] == 1:
        ctypes.string_at(0)
    return x.clone()


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.torch_faulty.wrong_gradient(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


@operator("wrong_gradient(Tensor x) -> Tensor", torch.empty_like)
def wrong_gradient(x):
    return x * x


library.impl("wrong_gradient", WrongGradient.apply, "Autograd")


@operator("silent_gradient(Tensor x) -> Tensor", torch.empty_like)
def silent_gradient(x):
    return (x.detach() * 2).requires_grad_(False)


@operator("wrong_sharding(Tensor x) -> Tensor", torch.empty_like)
def wrong_sharding(x):
    return x - x.mean()


@torch.distributed.tensor.experimental.register_sharding(torch.ops.torch_faulty.wrong_sharding.default)
def as_if_elementwise(x):
    return [([Shard(0)], [Shard(0)]), ([Replicate()], [Replicate()])]


@operator("lost_write(Tensor(a!) x) -> ()", lambda x: None)
def lost_write(x):
    x.mul_(2)


library.impl("lost_write", lambda x: None, "Functionalize")  # the copy that it should have written is forgotten


def straight_through(name, forward):
    """An operator whose declared gradient is that of doing nothing."""
    operator(f"{name}(Tensor x) -> Tensor", torch.empty_like)(forward)

    class Gradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch._C._AutoDispatchBelowAutograd():
                return getattr(torch.ops.torch_faulty, name)(x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    library.impl(name, Gradient.apply, "Autograd")


straight_through("right_in_f32", lambda x: (x.float() + 3).to(x.dtype))  # at small steps all differences are roundings
straight_through("right_rounding", lambda x: (x * 2).round() / 2)
