"""Whether a contract's parallel dims can take a batch or be sharded, for vmap and DTensor."""

_RANK = ("rank", "axis")
_SIZE = ("numel", "size", "stride", "shape")
_ONE = ("dim", "int", "element", "add", "sub", "mul", "div", "floordiv", "mod", "neg", "arg", "index")  # expressions that stand for one dim


def carries(dims, item):
    """Does this dim or run stand alone, exactly once, in the pattern of a tensor?"""
    return dims is not None and dims.count(item) == 1


def position(dims, item, runs):
    """The index of the item's first dim in the tensor; None: the tensor does not have it, or its position is unknown. runs: the values of
    the contract's runs."""
    at = 0
    for d in dims or ():
        if d == item:
            return at
        if d[0] != "run" and d[0] not in _ONE:
            return None
        at += len(runs[d[1]]) if d[0] == "run" else 1
    return None


def _plain(d):
    return d[0] in ("dim", "run", "int")


class Facts:
    """Where a contract uses its dims in expressions: a dim whose size is used cannot take a batch."""

    def __init__(self, tree, names):
        self.names = names
        self.used = set()    # ("dim", "n"), ("run", "s"): their sizes matter
        self.ranked = set()  # ("run", "s"): the number of its dims matters
        self.by_slot = {}    # slot -> the items in its patterns
        for p in tree["inputs"]:
            for d in p["dims"] or ():
                if _plain(d) and p["kind"] != "ints":
                    self.by_slot.setdefault(p["slot"], set()).add(tuple(d))
        for p in [*tree["inputs"], *tree["outputs"]]:
            self.note(p["dtype"])
            for d in p["dims"] or ():
                if not _plain(d) or p.get("kind") == "ints":
                    self.note(d)
        for group in tree["groups"]:
            for case in group["cases"]:
                self.note(case["when"])
        for r in tree["run_ranks"]:
            self.ranked.add(("run", r["run"]))
            self.note(r["rank"])
        for e in [*(d["value"] for d in tree["definitions"]), *(c["expr"] for c in tree["constraints"]),
                  *(u[k] for u in tree["unbacked"] for k in ("min", "max")), *(x for o in tree["outputs"] for x in (*(o["strides"] or ()), o["offset"]))]:
            self.note(e)
        self.promotes = any("promote" in str(o["dtype"]) for o in tree["outputs"])

    def note(self, e):
        if not isinstance(e, list) or not e:
            return
        if e[0] in ("dim", "element"):
            self.used.add(("dim", e[1]))
        elif e[0] == "run":
            self.used.add(("run", e[1]))
        elif e[0] == "call" and e[1] in _RANK + _SIZE:
            self.note_of_tensor(e)
        else:
            for x in e[1:]:
                self.note(x)

    def note_of_tensor(self, e):
        """rank(x), axis(dim, x), numel(x), size(*s, 0)...: the tensor or run that they refer to, then the other operands."""
        to = self.ranked if e[1] in _RANK else self.used
        for x in e[2:]:
            if x[0] == "run":
                to.add(("run", x[1]))
            elif x[0] == "arg" and x[1] in self.names and self.names.index(x[1]) in self.by_slot:
                to.update(self.by_slot[self.names.index(x[1])])
            else:
                self.note(x)

    def free(self, item, fold):
        """May the batch be folded into this dim, or be one more dim of this run?"""
        item = tuple(item)
        return item not in self.used and (fold or (item[0] == "run" and item not in self.ranked))
