"""Contracts against PyTorch itself: dtypes against promote_types and result_type, shapes against meta tensors."""
import itertools
import json
import os
import pathlib
import random
import re
import subprocess

import pytest

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")) / "bin" / "test_contract"

NAMES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
         "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64, "f16": torch.float16, "bf16": torch.bfloat16,
         "f32": torch.float32, "f64": torch.float64, "c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128,
         "f8_e4m3fn": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2, "f8_e4m3fnuz": torch.float8_e4m3fnuz,
         "f8_e5m2fnuz": torch.float8_e5m2fnuz, "f8_e8m0fnu": torch.float8_e8m0fnu}
TEXTS = {v: k for k, v in NAMES.items()}


def answers(schema, contract, calls):
    text = f"{schema}|{contract}\n" + "".join(f"  {c}\n" for c in calls)
    out = subprocess.run([PROGRAM, "--answer"], input=text, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    lines = out.stdout.splitlines()
    assert len(lines) == len(calls)
    return ["error" if line.startswith("error: ") else line for line in lines]


def test_json_has_the_documented_keys():
    """docs/json.md's object: the keys of every part, for every contract of tests/core/contract_operators.h."""
    page = (ROOT / "docs" / "json.md").read_text()
    form = page[page.index("\n## contract"):]
    program = form[form.index("\n## program"):form.index("\n### Two programs")]
    form = form[form.index("{\n"):form.index("\n}")]
    documented = set(re.findall(r'"(\w+)":', form + program))
    rows = subprocess.run([PROGRAM, "--json"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(rows) > 40
    seen = set()

    def walk(value):
        if isinstance(value, dict):
            seen.update(value)
            for v in value.values():
                walk(v)
        elif isinstance(value, list):
            if value and isinstance(value[0], str) and value[0] in ("call", "name"):
                assert value[0] != "name", value  # everything is resolved
            for v in value:
                walk(v)
    for row in rows:
        walk(json.loads(row))
    assert seen == documented


def tensor(dtype, shape):
    return f"{TEXTS.get(dtype, dtype)}[{','.join(map(str, shape))}]"


def ints(values):
    return "(" + ",".join(map(str, values)) + ")"


def attempt(fn):
    try:
        return fn()
    except (RuntimeError, IndexError, TypeError, ValueError):
        return "error"


def same(calls, got, expected):
    wrong = [f"{c}: torch {e}, here {g}" for c, g, e in zip(calls, got, expected) if g != e]
    assert not wrong, "\n".join(wrong[:20])


def test_promote_types_over_all_dtypes():
    pairs = list(itertools.product(NAMES, NAMES))
    calls = [f"{a}[2] {b}[2]" for a, b in pairs]
    expected = [attempt(lambda: tensor(torch.promote_types(NAMES[a], NAMES[b]), [2])) for a, b in pairs]
    assert expected.count("error") > 100 and expected.count("error") < 300
    same(calls, answers("f(Tensor x, Tensor y) -> Tensor", "x[n]:T, y[n]:U -> [n]:promote(T, U)", calls), expected)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("names", ["T, U, V", "x, y, z"])
def test_result_type_of_tensors_and_0d_tensors(names):
    rng = random.Random(1)
    plain = [n for n in NAMES if not n.startswith(("f8", "u16", "u32", "u64"))]
    calls, expected = [], []
    for _ in range(4000):
        dtypes = [rng.choice(plain) for _ in range(3)]
        ranks = [rng.choice([0, 1]) for _ in range(3)]
        tensors = [torch.empty([2] * r, dtype=NAMES[d], device="meta") for d, r in zip(dtypes, ranks)]
        calls.append(" ".join(tensor(t.dtype, t.shape) for t in tensors))
        expected.append(tensor(result_type(tensors), []))
    same(calls, answers("f(Tensor x, Tensor y, Tensor z) -> Tensor", f"x[*a]:T, y[*b]:U, z[*c]:V -> []:promote({names})", calls), expected)


def result_type(tensors):
    """torch.result_type of more than two: tensors with dims among themselves, 0-d ones among themselves, then the two."""
    groups = {True: None, False: None}
    for t in tensors:
        key = t.dim() > 0
        groups[key] = t.dtype if groups[key] is None else torch.promote_types(groups[key], t.dtype)
    if groups[True] is None or groups[False] is None:
        return groups[True] or groups[False]
    return torch.result_type(torch.empty(2, dtype=groups[True], device="meta"), torch.empty((), dtype=groups[False], device="meta"))


def test_result_type_with_numbers():
    plain = [n for n in NAMES if not n.startswith(("f8", "u16", "u32", "u64"))]
    calls, expected = [], []
    for name, rank, number in itertools.product(plain, [0, 1], ["3", "2.5", "True"]):
        t = torch.empty([2] * rank, dtype=NAMES[name], device="meta")
        calls.append(f"{tensor(t.dtype, t.shape)} {number}")
        expected.append(tensor(torch.result_type(t, {"3": 3, "2.5": 2.5, "True": True}[number]), t.shape))
    same(calls, answers("f(Tensor x, Scalar k) -> Tensor", "x[*s]:T -> [*s]:promote(T, k)", calls), expected)


def run(schema, contract, cases):
    """cases: (arguments as text, function that gives the tensor)."""
    calls = [c for c, _ in cases]

    def expected(fn):
        t = attempt(fn)
        return t if t == "error" else tensor(t.dtype, t.shape)
    want = [expected(fn) for _, fn in cases]
    assert want.count("error") < len(want)
    same(calls, answers(schema, contract, calls), want)


def shapes(rng, most=4, sizes=(0, 1, 2, 3, 5)):
    return [rng.choice(sizes) for _ in range(rng.randrange(most + 1))]


def meta(shape, dtype=torch.float32, device="meta"):
    return torch.empty(shape, dtype=dtype, device=device)


def near(rng, shape):
    """A shape that has good chances to broadcast with this one."""
    out = [s if rng.random() < .7 else rng.choice([1, 1, 2, 0]) for s in shape[rng.randrange(len(shape) + 1):]]
    return out


def test_broadcast():
    rng, cases = random.Random(2), []
    for _ in range(1500):
        a = shapes(rng)
        b, c = near(rng, a), near(rng, a)
        cases.append((f"f32{a} f32{b} f32{c}".replace(" ", "").replace("]f", "] f"),
                      lambda a=a, b=b, c=c: meta(torch.broadcast_shapes(a, b, c))))
    run("f(Tensor x, Tensor y, Tensor z) -> Tensor", "x[*a]:T, y[*b]:T, z[*c]:T -> [broadcast(*a, *b, *c)]:T", cases)


def test_matmul():
    rng, cases = random.Random(3), []
    for _ in range(1500):
        p = shapes(rng, 3, (1, 2, 3))
        m, k, n = (rng.choice([0, 1, 2, 3]) for _ in range(3))
        a, b = p + [m, k], near(rng, p) + [k if rng.random() < .9 else 4, n]
        cases.append((f"{tensor('f32', a)} {tensor('f32', b)}", lambda a=a, b=b: torch.matmul(meta(a), meta(b))))
    run("f(Tensor a, Tensor b) -> Tensor", "a[*p m k]:T, b[*q k n]:T -> [broadcast(*p, *q) m n]:T; sum(k)", cases)


def test_cat():
    rng, cases = random.Random(4), []
    for _ in range(1500):
        base = [rng.choice([0, 1, 2, 3]) for _ in range(rng.randrange(2, 5))]  # torch lets 1-d empty tensors pass
        dim = rng.randrange(-len(base) - 1, len(base) + 1)
        parts = []
        for _ in range(rng.randrange(1, 4)):
            part = list(base)
            if -len(base) <= dim < len(base):
                part[dim] = rng.choice([0, 1, 2, 7])
            if rng.random() < .05:
                part[rng.randrange(len(part))] += 1
            parts.append(part)
        cases.append(("{" + " ".join(tensor("f32", p) for p in parts) + "} " + str(dim), lambda parts=parts, dim=dim: torch.cat([meta(p) for p in parts], dim)))
    run("f(Tensor[] xs, int dim) -> Tensor", "xs{i}[*a n{i} *b]:T -> [*a total(n) *b]:T; rank(*a) == axis(dim, xs)", cases)


def test_sum():
    rng, cases = random.Random(5), []
    for _ in range(2000):
        s, keep = shapes(rng), rng.random() < .5
        dim = None if rng.random() < .1 else [rng.randrange(-len(s) - 1, len(s) + 1) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
        dtype = rng.choice(["f32", "i8", "bool", "u8", "bf16", "c64", "i64"])
        cases.append((f"{tensor(dtype, s)} {'-' if dim is None else ints(dim)} {keep}",
                      lambda s=s, dim=dim, keep=keep, dtype=dtype: torch.sum(meta(s, NAMES[dtype]), dim, keep)))
    run("f(Tensor x, int[]? dim, bool keepdim) -> Tensor", "x[*s]:T -> [reduced(*s, dim, keepdim)]:accumulate(T)", cases)


def test_conv2d():
    rng, cases = random.Random(6), []
    for _ in range(1000):
        groups = rng.choice([1, 1, 2, 3])
        ci = groups * rng.choice([1, 2]) + (rng.random() < .05)
        co = groups * rng.choice([1, 2])  # on meta tensors torch does not look at co % groups
        x = [rng.choice([1, 2]), ci, rng.randrange(1, 12), rng.randrange(1, 12)]
        w = [co, ci // groups, rng.randrange(1, 5), rng.randrange(1, 5)]
        stride, padding, dilation = ([rng.randrange(lo, 4) for _ in range(2)] for lo in (1, 0, 1))
        cases.append((f"{tensor('f32', x)} {tensor('f32', w)} {ints(stride)} {ints(padding)} {ints(dilation)} {groups}",
                      lambda x=x, w=w, s=stride, p=padding, d=dilation, g=groups: torch.nn.functional.conv2d(meta(x), meta(w), None, s, p, d, g)))
    run("f(Tensor x, Tensor w, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor",
        "x[n ci h v]:T, w[co ci//groups kh kw]:T -> [n co oh ow]:T; ci % groups == 0; co % groups == 0; oh > 0; ow > 0;"
        "oh = (h + 2*padding[0] - dilation[0]*(kh-1) - 1)//stride[0] + 1; ow = (v + 2*padding[1] - dilation[1]*(kw-1) - 1)//stride[1] + 1", cases)


def strided(rng, rank):
    """A tensor with strides in some order, gaps, and sometimes size 1 or expanded dims."""
    shape = [rng.choice([1, 2, 3, 4]) for _ in range(rank)]
    t = meta([n + rng.choice([0, 0, 1]) for n in shape], device="cpu")  # on meta, strides of dims of size 1 come out otherwise
    for d, n in enumerate(shape):
        t = t.narrow(d, 0, n)
    order = list(range(rank))
    rng.shuffle(order)
    t = t.permute(order)
    return t.expand([5 if n == 1 and rng.random() < .1 else n for n in t.shape])


def with_strides(t):
    return f"f32{list(t.shape)}/({','.join(map(str, t.stride()))})".replace(" ", "") if t.dim() else "f32[]"


def text_of(t, offset=0, view=False):
    standard = meta(t.shape).stride()
    text = tensor(t.dtype, t.shape)
    if t.stride() != standard:
        text += "/(" + ",".join(map(str, t.stride())) + ")"
    return text + ("&0" if view else "") + (f"+{offset}" if offset else "")


def test_empty_like_strides():
    rng = random.Random(7)
    tensors = [strided(rng, rng.randrange(5)) for _ in range(2000)]
    calls = [with_strides(t) for t in tensors]
    got = answers("f(Tensor x) -> Tensor", "x[*s]:T -> like(x)", calls)
    same(calls, got, [text_of(torch.empty_like(t)) for t in tensors])


@pytest.mark.parametrize("transform, fn, arguments", [
    ("swap(a, b)", lambda t, a, b: t.transpose(a, b), lambda rng, t: (rng.randrange(-t.dim() - 1, t.dim() + 1), rng.randrange(-t.dim(), t.dim() + 1))),
    ("select(a, b)", lambda t, a, b: t.select(a, b), lambda rng, t: (rng.randrange(-t.dim(), t.dim() + 1), rng.randrange(-4, 4))),
    ("narrow(a, 0, b)", lambda t, a, b: t.narrow(a, 0, b), lambda rng, t: (rng.randrange(-t.dim(), t.dim() + 1), rng.randrange(-1, 5))),
])
def test_views(transform, fn, arguments):
    rng = random.Random(8)
    calls, expected = [], []
    for _ in range(600):
        t = strided(rng, rng.randrange(1, 4)).clone(memory_format=torch.preserve_format)
        args = arguments(rng, t)
        calls.append(f"{with_strides(t)} {args[0]} {args[1]}")
        r = attempt(lambda: fn(t, *args))
        expected.append("error" if isinstance(r, str) else text_of(r, r.storage_offset(), True))
    assert expected.count("error") < len(expected)
    same(calls, answers("f(Tensor(a) x, int a, int b) -> Tensor(a)", f"x[*s]:T -> view(x, {transform})", calls), expected)


def test_floor_division_is_pythons():
    rng = random.Random(9)
    pairs = [(rng.randrange(-50, 50), rng.randrange(-7, 8)) for _ in range(500)]
    calls = [f"{a} {b}" for a, b in pairs]
    expected = ["error" if not b or a // b + 60 < 0 or a % b + 60 < 0 else tensor("f32", [a // b + 60, a % b + 60, -(-a // b) + 60]) for a, b in pairs]
    same(calls, answers("f(int a, int b) -> Tensor", "-> [a//b + 60 a%b + 60 ceildiv(a, b) + 60]:f32", calls), expected)
