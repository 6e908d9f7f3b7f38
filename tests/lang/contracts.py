"""Random contracts, and random calls of them in the form of tests/core/contract_call.h: calls that fit, nearly fit, and do not."""
import random

from program import Tensor

DTYPES = ["f32", "f64", "bf16", "i32", "i64", "bool", "u8", "c64"]
SIZES = [0, 1, 1, 2, 2, 3, 4, 6]


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, *options):
        return self.rng.choice(options)

    def chance(self, p):
        return self.rng.random() < p

    # ---- contracts

    def contract(self):
        """A schema and a contract. Not all are accepted."""
        r = self.rng
        self.args = [("x", "Tensor")]
        for name, types in (("y", ["Tensor", "Tensor?"]), ("z", ["Tensor?", "Tensor"]), ("xs", ["Tensor[]", "Tensor?[]"]), ("k", ["int", "int?"]),
                            ("ks", ["int[]", "int[]?"]), ("fs", ["float[]", "float[]?"]), ("flag", ["bool"]), ("mode", ["str", "str?"]), ("alpha", ["Scalar", "float"])):
            if self.chance(.5):
                self.args.append((name, r.choice(types)))
        if self.chance(.15):  # two lists, in whose patterns the same names stand with the index
            self.args = [a for a in self.args if a[0] != "xs"] + [("xs", "Tensor[]"), ("ys", "Tensor[]")]
        self.has = {n for n, _ in self.args}
        self.dims, self.runs, self.dtypes = set(), set(), set()
        groups, facts = [], []
        tensors = [a for a in self.args if a[1].startswith("Tensor")]
        shared = [a for a in tensors if a[0] in ("y", "z")]
        if shared and self.chance(.3):
            case = shared.pop()
            tensors.remove(case)
            groups.append(case)
        inputs = [self.pattern(*a) for a in tensors]
        if "ks" in self.has and self.chance(.4):
            inputs.append(f"ks[{self.pick('2', '3', 'n', 'm + 1')}]")
        if "fs" in self.has and self.chance(.4):
            inputs.append(f"fs[{self.pick('2', '3', 'n', 'm + 1')}]")
        text = ", ".join(inputs)
        for name, type in groups:
            when = self.condition()
            first, second = self.pattern(name, type), self.pattern(name, type)
            text += f"; when {when}: {first} / else: {second}" if when else f", {first}"
        for _ in range(r.randrange(3)):
            facts.append(self.fact())
        out = self.output()
        text = text + f" -> {out}" if not groups else text + f"; -> {out}"
        returned = "Tensor[]" if out.startswith("{") else f"Tensor{self.alias}"
        return f"f({', '.join(f'{t} {n}' for n, t in self.args)}) -> {returned}", "; ".join([text, *[f for f in facts if f]])

    def condition(self):
        options = []
        if "flag" in self.has:
            options += ["flag", "not flag"]
        if "mode" in self.has:
            options.append('mode == "A"')
        options += [f"present({n})" for n, t in self.args if t == "Tensor?"]
        options.append("rank(x) == 2")
        return self.rng.choice(options)

    def pattern(self, name, type):
        dims = []
        lists = type.endswith("[]")
        if lists and "ys" in self.has and self.chance(.8):
            dims = self.pick("*o{i}", "*o{i} l{i}", "l{i} n", "n *o{i}", "2*n *o{i} l{i}", "*o{i} (m+1) 2", "l{i} *o{i}").split()
            self.dims |= {d for d in "nm" if any(d in x for x in dims)} | ({"l"} if "l{i}" in dims else set())
        for _ in range(0 if dims else self.rng.randrange(4)):
            c = self.rng.random()
            if c < .45:
                dims.append(self.dim())
            elif c < .6 and not any(d.startswith("*") for d in dims):
                dims.append("*" + self.pick("s", "t"))
                self.runs.add(dims[-1][1:])
            elif c < .7:
                dims.append(self.pick("1", "2", "3"))
            elif c < .78 and lists and "l{i}" not in dims:
                dims.append("l{i}")
                self.dims.add("l")
            else:
                dims.append(self.solvable())
        if self.chance(.05):
            dims = ["..."]
        dtype = self.pick("", ":T", ":T", ":U", ":f32", ":f32|i64", ":any")
        self.dtypes |= {dtype[1:]} & {"T", "U"}
        suffix = " present" if type == "Tensor?" and self.chance(.1) else ""
        return f"{name}{'{i}' if lists else ''}[{' '.join(dims)}]{dtype}{suffix}"

    def dim(self):
        name = self.pick("n", "m", "h", "w")
        self.dims.add(name)
        return name

    def solvable(self):
        name = self.dim()
        forms = [f"2*{name}", f"({name} + 1)", f"{name}//2", f"{name}/2", f"-(1 - {name})", f"max({name}, 2)", f"({name} % 3)"]
        if "k" in self.has:
            forms += [f"k*{name}", f"({name} - k)", f"{name}//k"]
        return self.rng.choice(forms)

    def term(self, depth=0):
        r = self.rng
        options = ["1", "2", "3", "0"] + sorted(self.dims - {"l"}) * 2
        if "l" in self.dims:
            options += ["total(l)"]
        if "k" in self.has:
            options += ["k", "axis(k, x)", "size(x, k)"]
        if "ks" in self.has:
            options += ["len(ks)", "ks[0]", "ks[-1]", "ks[1]"]
        if "fs" in self.has:
            options += ["len(fs)"]
        if "xs" in self.has:
            options += ["len(xs)", "numel(xs)"]
        if "ys" in self.has:
            options += ["len(ys)"]
        options += ["rank(x)", "numel(x)", "size(x, 0)", "stride(x, -1)"] + [f"{f}(*{s})" for s in sorted(self.runs) for f in ("rank", "numel")]
        if self.dtypes:
            options += [f"itemsize({t})" for t in sorted(self.dtypes)]
        if depth > 2 or self.chance(.4):
            return r.choice(options)
        a, b = self.term(depth + 1), self.term(depth + 1)
        return r.choice([f"({a} + {b})", f"({a} - {b})", f"{a}*{b}", f"({a})//({b})", f"({a}) % ({b})", f"({a})/({b})", f"min({a}, {b})",
                         f"max({a}, {b})", f"abs({a} - {b})", f"ceildiv({a}, {b})", f"if({self.test(depth + 1)}, {a}, {b})",
                         f"if({b} > 0, {a}//({b}), {a})"])

    def test(self, depth=0):
        options = [f"{self.term(depth + 1)} {self.pick('==', '!=', '<', '<=', '>', '>=')} {self.term(depth + 1)}"]
        if "flag" in self.has:
            options.append("flag")
        if "mode" in self.has:
            options += ['mode == "A"', 'mode in "A" "B"', 'mode != "B"']
        if "alpha" in self.has:
            options += ["alpha > 1", "alpha == 2", "alpha*2 <= 3.5"]
        if "T" in self.dtypes:
            options += ["T == f32", "T in f32 i64"]
        options += [f"present({n})" for n, t in self.args if t.endswith("?")]
        if len(self.runs) == 2:
            options.append("*s == *t")
        if depth < 2 and self.chance(.4):
            a, b = self.test(depth + 1), self.test(depth + 1)
            return self.pick(f"({a} and {b})", f"({a} or {b})", f"not ({a})")
        return self.rng.choice(options)

    def fact(self):
        c = self.rng.random()
        if c < .2:
            name = self.pick("p", "q")
            if name in self.dims:
                return ""
            value = self.term()
            self.dims.add(name)
            return f"{name} = {value}"
        if c < .3 and self.dtypes:
            return f"{self.rng.choice(sorted(self.dtypes))} in f32 f64 i64 bf16"
        if c < .4:
            return f"workspace = {self.term()}"
        if c < .5:
            return f"flops = {self.term()}*{self.term()}"
        if c < .55:
            return f"{self.pick('rtol', 'atol', 'rounded')} = {self.pick('1e-3', '0.5', '0')}"
        return self.test()

    def output(self):
        r = self.rng
        self.alias = ""
        if self.chance(.15):
            self.alias = "(a)"
            self.args[0] = ("x", "Tensor(a)")
            if "k" in self.has:
                return r.choice(["view(x, swap(0, k))", "view(x, select(k, 0))", "view(x, narrow(0, k, 1))", "view(x)"])
            return "view(x)"
        dims, list = [], ""
        if "ys" in self.has and self.chance(.7) or self.chance(.1):
            list = "{i}" if "ys" in self.has and self.chance(.6) else f"{{j < {self.pick('3', 'k', 'len(ks)', 'rank(x)', self.term(1))}}}"
        if list and self.chance(.15):
            return list + " view(" + (self.pick("xs", "xs, swap(0, -1)", "xs, select(0, i)") if list == "{i}" else self.pick("x, select(0, j)", "x, narrow(-1, j, 1)")) + ")"
        for _ in range(r.randrange(4)):
            c = r.random()
            if list and c < .5:
                dims.append(self.pick("*o{i}", "l{i}", "i", "2*i + 1", "2*l{i} - i", "rank(xs{i})", "numel(*o{i})", "size(ys{i}, 0)") if list == "{i}" else self.pick("j", "2*j + 1", "max(3 - j, 0)", "ks[j]"))
            elif c < .5 or not self.runs:
                dims.append(self.term(1))
            elif c < .7:
                dims.append("*" + r.choice(sorted(self.runs)))
            else:
                run = r.choice(sorted(self.runs))
                forms = [f"broadcast(*{run}, shape(x))", f"swap(*{run}, 0, -1)"]
                if {"ks", "flag"} <= self.has:
                    forms += [f"reduced(*{run}, ks, flag)", f"permute(*{run}, ks)"]
                if {"k", "flag"} <= self.has:
                    forms += [f"reduced(*{run}, k, flag)"]
                dims.append(r.choice(forms))
        dtypes = ["f32", "dtype(x)"] + sorted(self.dtypes) * 3 + ["dtype(xs{i})", "promote(xs{i}, ys{i})", "promote(x, xs{i})"] * 2 * (list == "{i}")
        if self.dtypes:
            one = r.choice(sorted(self.dtypes))
            dtypes += [f"accumulate({one})", f"promote({one}, x)", f"if(rank(x) > 1, {one}, f32)"]
            if "alpha" in self.has:
                dtypes.append(f"promote({one}, alpha)")
            if len(self.dtypes) == 2:
                dtypes.append("promote(T, U)")
        return f"{list}[{' '.join(dims)}]:{r.choice(dtypes)}"

    # ---- calls

    def calls(self, contract, arguments, n):
        """Pairs of text and values for the arguments [(name, type)] of the last contract, or of another."""
        return [self.call(contract, arguments) for _ in range(n)]

    def call(self, contract, arguments):
        r = self.rng
        self.sizes = {n: r.choice(SIZES) for n in "nmhwl"}
        self.run = {n: [r.choice(SIZES) for _ in range(r.randrange(3))] for n in "st"}
        self.types = {n: r.choice(DTYPES[:5]) for n in "TU"}
        self.k = self.pick(0, 0, 1, 1, 2, -1, 3, -2)
        self.length, self.owns = r.randrange(4), [[r.choice(SIZES) for _ in range(r.randrange(3))] for _ in range(4)]
        self.own_sizes = [r.choice(SIZES) for _ in range(4)]
        texts, values = [], []
        for name, type in arguments:
            text, value = self.value(contract, name, type)
            texts.append(text)
            values.append(value)
        return " ".join(texts), values

    def value(self, contract, name, type):
        r = self.rng
        if type.endswith("?") and self.chance(.4):
            return "-", None
        type = type.removesuffix("?") if type != "Tensor?[]" else type
        if type in ("Tensor", "Tensor(a)"):
            return self.tensor(contract, name)
        if type in ("Tensor[]", "Tensor?[]"):
            n = r.randrange(4) if self.chance(.1) else self.length
            there = [self.tensor(contract, name, i) if type == "Tensor[]" or self.chance(.8) else ("-", None) for i in range(n)]
            return "{" + " ".join(t for t, _ in there) + "}", tuple(v for _, v in there)
        if type == "int":
            return str(self.k), self.k
        if type == "int[]":
            value = [r.choice([0, 1, -1, 2, 3, -2]) for _ in range(r.randrange(4))]
            return f"({','.join(map(str, value))})", value
        if type == "float[]":
            value = [self.pick(0.5, 1.5) for _ in range(r.randrange(1, 4))]
            return f"({','.join(map(str, value))})", value
        if type == "bool":
            value = self.chance(.5)
            return str(value), value
        if type == "str":
            value = self.pick("A", "B", "C")
            return f"'{value}'", value
        value = self.pick(1.5, 2.0, 0.5) if type == "float" or self.chance(.5) else self.pick(1, 2, 3)
        return repr(value), value

    def tensor(self, contract, name, i=0):
        """A tensor that fits one of the name's patterns, mostly; of a list, its element i."""
        r = self.rng
        self.i = i
        patterns = [p.split("]")[0] for p in contract.replace("{i}[", "[").split(name + "[")[1:]]
        shape = []
        for d in self.split(r.choice(patterns)) if patterns else []:
            shape += self.size(d)
        if self.chance(.1) and shape:
            shape[r.randrange(len(shape))] = r.choice(SIZES)
        if self.chance(.05):
            shape.append(1)
        after = contract.split(name + "[", 1)[-1].split("]", 1)[-1] if patterns else ""
        dtype = self.types[after[1]] if after[:2] in (":T", ":U") else "f32" if after[:4] == ":f32" else r.choice(DTYPES)
        if self.chance(.05):
            dtype = r.choice(DTYPES)
        strides, step = [], 1
        for n in reversed(shape):
            strides.insert(0, step)
            step *= max(n, 1)
        text = f"{dtype}[{','.join(map(str, shape))}]"
        device = "cpu"
        if self.chance(.03):
            device, text = "cuda", text + "@cuda"
        return text, Tensor(dtype, shape, strides, device)

    @staticmethod
    def split(dims):
        out, depth, word = [], 0, ""
        for c in dims + " ":
            depth += (c == "(") - (c == ")")
            if c == " " and not depth:
                out += [word] if word else []
                word = ""
            else:
                word += c
        return out

    def size(self, dim):
        if dim in ("*s", "*t"):
            return self.run[dim[1]]
        if dim == "...":
            return [self.rng.choice(SIZES) for _ in range(self.rng.randrange(3))]
        if dim == "l{i}":
            return [self.own_sizes[self.i]]
        if dim == "*o{i}":
            return self.owns[self.i]
        try:
            value = eval(dim.replace("/2", "//2").replace("////", "//"), {"max": max, "k": self.k, **self.sizes})
            return [value if 0 <= value < 1000 else 1]
        except (NameError, SyntaxError, ZeroDivisionError, TypeError):
            return [self.rng.choice(SIZES)]
