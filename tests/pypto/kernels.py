"""Small kernels in PyPTO of document 004's two operators: the indexer, and the attention over the chosen keys. They run on the CPU, where PyPTO verifies
its kernels. Each is called from an operator of dovetail.custom_op, and compared with Dovetail's own operator. Prints the distances as JSON.

The program is a separate process, since PyPTO replaces os.environ, and compiles its calculator in each process."""
import json
import os
import sys

import pypto
import torch
from pypto import pypto_impl
from pypto._utils import BuildOnlineManager
from pypto.frontend.parser import entry

import dovetail

F32, I32 = pypto.DT_FP32, pypto.DT_INT32
HEADS, KEYS, DIM, CHOSEN, SCALE = 16, 32, 64, 8, 0.125


def set_data(tensors):
    """Verifies as PyPTO's own function does, but writes the results instead of comparing them."""
    BuildOnlineManager().build_and_load_calculator()
    pypto_impl.SetVerifyData(entry._pto_to_tensor_data(tensors), [], entry._pto_verify_datas.get_data())


entry.JitCallableWrapper._setup_verify_data = staticmethod(set_data)
jit = pypto.frontend.jit(runtime_options={"run_mode": pypto.RunMode.SIM}, verify_options={"enable_pass_verify": True, "pass_verify_pass_filter": []})


@jit
def indexer_kernel(query: pypto.Tensor([HEADS, DIM], F32), key: pypto.Tensor([KEYS, DIM], F32), weights: pypto.Tensor([HEADS, 1], F32),
                   values: pypto.Tensor([1, CHOSEN], F32), indices: pypto.Tensor([1, CHOSEN], I32)):
    pypto.set_cube_tile_shapes([16, 16], [64, 64], [32, 32])
    pypto.set_vec_tile_shapes(16, 32)
    scores = pypto.matmul(query, key, F32, b_trans=True)
    summed = pypto.sum(pypto.relu(scores) * weights, 0, True)
    best, places = pypto.topk(summed, CHOSEN, -1, True)
    values[:] = best
    indices[:] = places


@jit
def attention_kernel(query: pypto.Tensor([HEADS, DIM], F32), key: pypto.Tensor([CHOSEN, DIM], F32), out: pypto.Tensor([HEADS, DIM], F32)):
    pypto.set_cube_tile_shapes([16, 16], [64, 64], [32, 32])
    pypto.set_vec_tile_shapes(16, 64)
    scores = pypto.matmul(query, key, F32, b_trans=True)
    out[:] = pypto.matmul(pypto.softmax(scores * SCALE, -1), key, F32)


@dovetail.custom_op("custom_pypto::lightning_indexer", mutates_args=(), device_types="cpu")
def lightning_indexer(query: torch.Tensor, key: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    values, indices = torch.zeros(1, CHOSEN), torch.full((1, CHOSEN), -1, dtype=torch.int32)
    indexer_kernel(query.reshape(HEADS, DIM), key.reshape(KEYS, DIM), weights.reshape(HEADS, 1), values, indices)
    return indices.reshape(1, 1, 1, CHOSEN)


@lightning_indexer.register_fake
def _(query, key, weights):
    return query.new_empty((1, 1, 1, CHOSEN), dtype=torch.int32)


@dovetail.custom_op("custom_pypto::sparse_attention", mutates_args=(), device_types="cpu")
def sparse_attention(query: torch.Tensor, key: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(HEADS, DIM)
    attention_kernel(query.reshape(HEADS, DIM), key.reshape(KEYS, DIM)[indices.flatten().long()].contiguous(), out)
    return out.reshape(query.shape)


@sparse_attention.register_fake
def _(query, key, indices):
    return torch.empty_like(query)


def main(seed, out):
    torch.manual_seed(seed)
    query, key, weights = torch.randn(1, 1, HEADS, DIM), torch.randn(1, KEYS, 1, DIM), torch.rand(1, 1, HEADS)
    ours = dovetail.ops.npu_lightning_indexer_pto(query, key, weights, layout_key="BSND", sparse_count=CHOSEN, sparse_mode=0)
    theirs = torch.ops.custom_pypto.lightning_indexer(query, key, weights)
    found = {"indices": theirs.flatten().tolist(), "ours": ours.flatten().tolist()}
    ours = dovetail.ops.npu_sparse_flash_attention(query, key, key, ours, SCALE, sparse_mode=0)[0]
    theirs = torch.ops.custom_pypto.sparse_attention(query, key, theirs)
    found |= {"attention": (theirs - ours).abs().max().item(), "largest": ours.abs().max().item(), "shape": list(theirs.shape)}
    with open(out, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    out = os.path.abspath(sys.argv[2])
    main(int(sys.argv[1]), out)
