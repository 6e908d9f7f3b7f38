"""Where the tensors of a call have the dims that a contract calls parallel or sums over, for vmap and DTensor."""


def holds(entry, cases):
    """Does an entry of the contract's JSON with a "case" count in a call that took these cases?"""
    return entry["case"] is None or cases[entry["case"][0]] == entry["case"][1]


class Item:
    """A size or a run of dims in one call. at: slot -> the index of its first dim, None if that is not known; size: of its first dim, None
    without one; count: how many dims."""

    def __init__(self, kind, place, cases, dims, runs):
        self.is_run, self.asked = kind == "run", place["asked"]
        sizes = runs.get(place["name"], ()) if self.is_run else (dims.get(place["name"]),)
        self.size, self.count = next(iter(sizes), None), len(sizes)
        holding = [p for p in place["at"] if holds(p, cases)]
        self.at = {p["slot"]: None if p["axis"] is None else p["axis"] + sum(len(runs[r]) for r in p["after"]) for p in holding}

    def free(self, fold):
        """May the batch be folded into this dim, or be one more dim of this run? Not if the contract asks for its size elsewhere."""
        return self.asked != "size" if fold else self.is_run and self.asked is None
