"""Samples of tensors: _core finds in them the offsets of the fields that its guard reads, and verifies that the guard distinguishes
them."""
import torch
from torch.autograd import forward_ad

from .. import _core
from .private import DEVICES, samples as _torch

OTHER, ORDINARY, INFERENCE, GRADIENT, CHECKED, EMPTY = range(6)  # as in tensor.c


def _sample(kind, tensor):
    storage = 0 if kind == OTHER else tensor.untyped_storage()._cdata
    return tensor, tensor._cdata, _torch._dispatch_keys(tensor).raw_repr(), storage, kind


def _memory():
    """All ranks, with sizes inside a TensorImpl and outside of it; offsets, dtypes, and memory of another owner."""
    numbers = torch.ones(300)
    shapes = [(3,), (2, 3), (4, 2, 3), (2, 3, 4, 5), (2, 3, 1, 4, 5), (2, 3, 2, 1, 4, 5), (2, 1, 2, 3, 2, 4, 2)]
    yield torch.frombuffer(bytearray(16), dtype=torch.uint8)
    for dtype in torch.bool, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float64, torch.complex128:
        yield torch.ones(5, dtype=dtype)
    for i, shape in enumerate(shapes):
        yield torch.ones(shape)
        yield torch.ones(shape).t_() if len(shape) == 2 else torch.ones(shape).transpose_(0, -1)
        yield torch.empty(0).set_(numbers.untyped_storage(), 7 * i + 1, shape)  # no view, of which autograd would know


def _checked():
    """Tensors whose address only torch may read, such as a lazy copy."""
    lazy, forbidden = torch.ones(2, 3), torch.ones(2, 3)
    _torch._set_throw_on_mutable_data_ptr(forbidden)
    return [_torch._lazy_clone(lazy), lazy, forbidden]


def _on_each_device(keys):
    """The key sets on CPU, CUDA and PrivateUse1 of tensors that on the CPU have this one: a device has a key and an autocast key."""
    def of(name):
        return _torch.DispatchKeySet(_torch._parse_dispatch_key(name)).raw_repr()

    cpu = of("CPU") | of("AutocastCPU")
    if keys & cpu != cpu:
        raise RuntimeError("the key set of tensors on the CPU was not recognised")
    return tuple(keys & ~cpu | of(d) | of("Autocast" + d) for d in DEVICES)


def run():
    """Give _core a list of (tensor, address of its TensorImpl, its key set, address of its storage, kind), the size of a tensor object in words, the
    thread's dispatch keys in inference mode, those that are excluded in kernels, and the key sets of tensors on each device. False: not now."""
    if forward_ad._current_level >= 0:
        return False  # levels cannot be nested
    with torch.inference_mode():
        inference, keys = torch.ones(2, 3), _core.torch.thread_keys()
    with _torch._AutoDispatchBelowAutograd():
        below = [_core.torch.thread_keys()[1]]
    with _torch._AutoDispatchBelowADInplaceOrView():
        below.append(_core.torch.thread_keys()[1])
    with torch.enable_grad(), forward_ad.dual_level() as level:
        plain = torch.ones(2, 3)
        complex_one = torch.ones(2, 3, dtype=torch.complex64)
        kinds = {
            ORDINARY: [plain, torch.zeros(3, 2, dtype=torch.int64), torch.ones(()), complex_one, *_memory()],
            CHECKED: _checked(),
            EMPTY: [torch.empty(0), torch.empty(2, 0)],
            INFERENCE: [inference],
            GRADIENT: [torch.ones(2, 3, requires_grad=True), torch.nn.Parameter(torch.ones(2, 3)), torch.ones(2, 3, requires_grad=True) * 2],
            OTHER: [complex_one.conj(), _torch._neg_view(plain), _torch._efficientzerotensor(2, 3), plain.to_sparse(), torch.ones(2, 3, device="meta"),
                    _torch._make_dual(plain, torch.ones(2, 3), level=level)],  # forward_ad.make_dual would import much
        }
        samples = [_sample(kind, t) for kind, tensors in kinds.items() for t in tensors]
        devices = [_on_each_device(_torch._dispatch_keys(t).raw_repr()) for t in (plain, inference)]
        _core.torch.learn(samples, torch.Tensor.__basicsize__ // 8, keys, *below, *devices)
    return True
