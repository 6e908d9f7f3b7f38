"""The same sequences in each layout: packed (TND), padded (BSND) and paged (PA_BSND), for operators on tokens."""
import torch

INT = torch.int32


def draw(shape, dtype, g):
    return torch.randint(-100, 100, shape, generator=g).to(dtype) if dtype == torch.int8 else torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)


class Sequences:
    """lengths[b] tokens of sequence b. Padding and pages that nothing refers to hold NaN where the dtype has it: nobody may read them."""

    def __init__(self, lengths, g):
        self.lengths, self.g, self.block = lengths, g, 4
        pages = [-(-n // self.block) for n in lengths]
        order = torch.randperm(sum(pages) + 3, generator=g).tolist()
        self.table = torch.full((len(lengths), max([*pages, 1]) + 1), -1, dtype=INT)
        self.pages = len(order)
        for b, n in enumerate(pages):
            for p in range(n):
                self.table[b, p] = order.pop()

    def bad(self, shape, like):
        return torch.full(shape, float("nan") if like.is_floating_point() else 99).to(like.dtype)

    def place(self, parts, layout, size=None):
        """parts[b]: [lengths[b], ...]"""
        if layout == "TND":
            return torch.cat(parts)
        rest = parts[0].shape[1:]
        if layout == "BSND":
            out = self.bad((len(parts), (size or max(self.lengths)), *rest), parts[0])
            for b, part in enumerate(parts):
                out[b, :len(part)] = part
            return out
        out = self.bad((self.pages, self.block, *rest), parts[0])
        for b, part in enumerate(parts):
            for s in range(len(part)):
                out[self.table[b, s // self.block], s % self.block] = part[s]
        return out

    def actual(self, layout):
        n = torch.tensor(self.lengths, dtype=INT)
        return n.cumsum(0).to(INT) if layout == "TND" else n

    def parts(self, placed, layout):
        """The reverse of place."""
        if layout == "TND":
            return list(placed.split(self.lengths))
        if layout == "BSND":
            return [placed[b, :n] for b, n in enumerate(self.lengths)]
        return [torch.stack([placed[self.table[b, s // self.block], s % self.block] for s in range(n)]) if n else placed[:0, 0]
                for b, n in enumerate(self.lengths)]


LAYOUTS = [("BSND", "BSND"), ("TND", "TND"), ("BSND", "PA_BSND"), ("TND", "PA_BSND")]
LENGTHS = [([3], [9]), ([1, 4, 2], [7, 4, 12]), ([2, 5], [3, 1]), ([1, 0, 2], [0, 5, 6])]  # queries, keys; also fewer keys than queries


def visible(act_q, act_k, s, mode):
    return max(0, act_k if mode == 0 else act_k - act_q + s + 1)
