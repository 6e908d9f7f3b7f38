"""Samples of tensors: _core finds in them where torch keeps what its guard reads, and proves that the guard tells them apart."""
import torch
from torch.autograd import forward_ad

from .. import _core

OTHER, ORDINARY, INFERENCE, GRADIENT = range(4)  # as in tensor.c


def _sample(kind, tensor):
    storage = 0 if kind == OTHER else tensor.untyped_storage()._cdata
    return tensor, tensor._cdata, torch._C._dispatch_keys(tensor).raw_repr(), storage, kind


def run():
    """Give _core a list of (tensor, address of its TensorImpl, its key set, address of its storage, kind), the size of a tensor object in words, the
    thread's dispatch keys in inference mode and those that are excluded in kernels. False: not now."""
    if forward_ad._current_level >= 0:
        return False  # levels cannot be nested
    with torch.inference_mode():
        inference, keys = torch.ones(2, 3), _core.torch_thread_keys()
    with torch._C._AutoDispatchBelowAutograd():
        below = [_core.torch_thread_keys()[1]]
    with torch._C._AutoDispatchBelowADInplaceOrView():
        below.append(_core.torch_thread_keys()[1])
    with torch.enable_grad(), forward_ad.dual_level() as level:
        plain = torch.ones(2, 3)
        complex_one = torch.ones(2, 3, dtype=torch.complex64)
        kinds = {
            ORDINARY: [plain, torch.zeros(3, 2, dtype=torch.int64), torch.empty(0), torch.ones(()), complex_one],
            INFERENCE: [inference],
            GRADIENT: [torch.ones(2, 3, requires_grad=True), torch.nn.Parameter(torch.ones(2, 3)), torch.ones(2, 3, requires_grad=True) * 2],
            OTHER: [complex_one.conj(), torch._neg_view(plain), torch._efficientzerotensor(2, 3), plain.to_sparse(), torch.ones(2, 3, device="meta"),
                    torch._VF._make_dual(plain, torch.ones(2, 3), level=level)],  # forward_ad.make_dual would import much
        }
        samples = [_sample(kind, t) for kind, tensors in kinds.items() for t in tensors]
        _core.torch_learn(samples, torch.Tensor.__basicsize__ // 8, keys, *below)
    return True
