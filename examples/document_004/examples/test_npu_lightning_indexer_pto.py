import custom_pypto  # noqa: F401
import torch
from graph import compiled

op = torch.ops.custom_pypto.npu_lightning_indexer_pto
torch.manual_seed(0)
b, s, n, d, size = 2, 3, 4, 16, 4
query, weights = torch.randn(b, s, n, d), torch.randn(b, s, n)
key = torch.randn(5, size, 1, d)  # five pages of four keys
table = torch.tensor([[4, 1, 0], [2, 3, 3]], dtype=torch.int32)
lengths = torch.tensor([11, 6], dtype=torch.int32)


def expected(count, mode):
    out = torch.full((b, s, 1, count), -1, dtype=torch.int32)
    for i in range(b):
        keys = key[table[i].long()].reshape(-1, d)
        for t in range(s):
            seen = int(lengths[i]) - s + t + 1 if mode == 3 else int(lengths[i])
            scores = weights[i, t] @ torch.relu(query[i, t] @ keys[:seen].T)
            best = scores.argsort(descending=True, stable=True)[:count].int()
            out[i, t, 0, :len(best)] = best
    return out


for count, mode in ((2048, 3), (5, 3), (5, 0)):
    def call(query, key, weights):
        return op(query, key, weights, actual_seq_lengths_key=lengths, block_table=table, sparse_count=count, sparse_mode=mode)
    assert torch.equal(call(query, key, weights), expected(count, mode))

f = compiled(lambda query, key, weights, lengths, table: op(query, key, weights, actual_seq_lengths_key=lengths, block_table=table))
assert torch.equal(f(query, key, weights, lengths, table), expected(2048, 3))
print("npu_lightning_indexer_pto: ok")
