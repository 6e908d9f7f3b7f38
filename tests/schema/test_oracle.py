"""PyTorch's own parser is the oracle: what it accepts, prints and understands, libdovetail does.

The exceptions are the predicates below; docs/schema.md explains them."""
import random
import re

import pytest

torch = pytest.importorskip("torch")

from .library import compatible, corpus, error, normalize, structure

parse = torch._C.parse_schema


def oracle(schema):
    try:
        return parse(schema)
    except (RuntimeError, ValueError, IndexError):
        return None


# ---- What we accept or print otherwise, on purpose --------------------------------------------------------------------------------

def class_unknown_to_this_process(schema):
    """__torch__.torch.classes.ns.Name: whether such a class exists only a PyTorch process can know. We take any name."""
    return "__torch__" in schema


def an_opaque_type_as_printed(schema):
    """PyTorch prints PyObject for a type that was registered as opaque, and reads only its name. We read both."""
    return re.search(r"\bPyObject\b", schema) is not None


def size_beyond_31_bits(schema):
    """int[4294967298] is int[2] for PyTorch, which keeps 32 bits of the number, and int[1000000000]=1 a list of as many numbers. We refuse."""
    return re.search(r"\[\s*\d{7,}", schema) is not None


WE_ACCEPT, WE_REFUSE = (class_unknown_to_this_process, an_opaque_type_as_printed), (size_beyond_31_bits,)


def set_of_three(schema):
    """(a|b|c) prints in the order of PyTorch's hash table, which depends on what was parsed before."""
    return re.search(r"[|].*[|]", schema) is not None


def bytes_in_strings(schema):
    """Bytes above 127 and carriage returns in a string: PyTorch prints escapes that it cannot read. We print octal ones."""
    return "\r" in schema or "\\" in schema or not schema.isascii()


def union_with_scalar(schema):
    """PyTorch prints a union that has Scalar among its members as Union(, bool, Scalar), and Scalar?? as Union(Scalar)?."""
    return re.search(r"Union|Scalar\s*\?\s*\?", schema) is not None


PRINT_EXCEPTIONS = (set_of_three, bytes_in_strings, union_with_scalar)


# ---- The corpus ------------------------------------------------------------------------------------------------------------------

def test_corpus_is_large():
    assert len(corpus()) > 5000


def test_text():
    wrong = [s for s in corpus() if normalize(s) != str(parse(s))]
    assert not wrong, (wrong[0], normalize(wrong[0]), error())


class Opaque(torch._opaque_base.OpaqueBase):
    pass


def test_an_opaque_type():
    """As vLLM's moe_forward_shared has one: the text that PyTorch prints of such an operator."""
    torch._library.opaque_object.register_opaque_type(Opaque, typ="reference")
    name = torch._library.opaque_object.get_opaque_type_name(Opaque)
    printed = str(parse(f"f(Tensor x, Tensor? y, {name} layer_name, {name}? other, {name}[] more, SymInt n) -> (Tensor, Tensor)"))
    assert printed == "f(Tensor x, Tensor? y, PyObject layer_name, PyObject? other, PyObject[] more, SymInt n) -> (Tensor, Tensor)"
    assert oracle(printed) is None and normalize(printed) == printed
    assert structure(printed)["args"][2]["type"] == ["other", "PyObject"]


def type_of(t, n):
    """Our JSON of a type, from PyTorch's type object; n: what is between the brackets of the argument's list."""
    kind = t.kind()
    simple = {"TensorType": "tensor", "IntType": "int", "SymIntType": "symint", "FloatType": "float", "BoolType": "bool",
              "SymBoolType": "symbool", "StringType": "str", "NumberType": "scalar", "ComplexType": "complex", "ScalarTypeType": "dtype",
              "DeviceObjType": "device", "LayoutType": "layout", "MemoryFormatType": "memory_format", "GeneratorType": "generator"}
    if kind in simple:
        return [simple[kind]]
    if kind == "OptionalType":
        return ["optional", type_of(t.getElementType(), n)]
    if kind == "ListType":
        return ["list", type_of(t.getElementType(), None), -1 if n is None else n]
    if kind == "TupleType":
        return ["tuple"] + [type_of(e, None) for e in t.elements()]
    return ["other", text_of(t)]


def text_of(t):
    """A type in schema's spelling; t.str() is not always."""
    inner = [text_of(c) for c in t.containedTypes()]
    wrap = {"OptionalType": "{}?", "ListType": "{}[]", "TupleType": "({})", "FutureType": "Future({})", "AwaitType": "Await({})",
            "RRefType": "RRef({})", "DictType": "Dict({})"}.get(t.kind())
    return wrap.format(", ".join(inner)) if wrap else t.str()


def alias_of(a):
    if a is None:
        return None
    strip = lambda names: sorted(s.removeprefix("alias::") for s in names)
    return {"write": a.is_write, "before": strip(a.before_set), "after": strip(a.after_set)}


def value_of(v):
    """A default as our JSON has it, from PyTorch's Python value."""
    if isinstance(v, torch.device):
        return {"device": [{"cpu": 1, "cuda": 2}[v.type], v.index if v.index is not None else 0 if v.type == "cpu" else -1]}
    if isinstance(v, complex):
        return {"complex": [v.real, v.imag]}
    if isinstance(v, (list, tuple)):
        return [value_of(x) for x in v]
    return v


def is_kind(t, kind):
    return t[0] == kind or t[0] == "optional" and is_kind(t[1], kind)


DTYPES = {6: "f32", 4: "i64", 7: "f64", 3: "i32", 0: "u8", 11: "bool", 5: "f16", 15: "bf16"}


def check_argument(schema, ours, theirs):
    where = (schema, theirs.name)
    assert ours["name"] == theirs.name, where
    t = ours["type"]
    assert t == type_of(theirs.real_type, theirs.N), where
    assert ours["kwarg_only"] == theirs.kwarg_only, where
    alias = ours["alias"]
    if alias is not None:
        alias = {"write": alias["write"], "before": sorted(alias["before"]), "after": sorted(alias["after"])}
    assert alias == alias_of(theirs.alias_info), where
    assert ("default" in ours) == theirs.has_default_value(), where
    if "default" not in ours:
        return
    value, expected = ours["default_value"], value_of(theirs.default_value)
    number = type(expected) is int
    if is_kind(t, "dtype") and number and expected in DTYPES:
        expected = {"dtype": DTYPES[expected]}
    elif (is_kind(t, "layout") or is_kind(t, "memory_format")) and number and 0 <= expected < 16:
        expected = {(t[1][0] if t[0] == "optional" else t[0]): expected}
    elif t[0] == "optional" and t[1][0] == "list" and t[1][2] >= 0 and number and t[1][1][0] in ("int", "symint"):
        expected = [expected] * t[1][2]  # int[2]? x=1: PyTorch keeps one number
    if is_kind(t, "dtype") and number and theirs.default_value not in DTYPES:
        return
    assert value == expected, where
    if is_kind(t, "float") and type(expected) in (int, float):
        assert type(value) is float, where


def check_structure(schema):
    ours, theirs = structure(schema), parse(schema)
    name = (ours["ns"] + "::" if ours["ns"] else "") + ours["name"]
    assert (name, ours["overload"]) == (theirs.name, theirs.overload_name), schema
    assert (len(ours["args"]), len(ours["returns"])) == (len(theirs.arguments), len(theirs.returns)), schema
    for a, b in zip(ours["args"] + ours["returns"], theirs.arguments + theirs.returns):
        check_argument(schema, a, b)


def test_structure():
    for s in corpus():
        check_structure(s)


def test_reading_back():
    """The canonical text is read exactly when PyTorch reads it (it prints some schemas that it cannot read)."""
    for s in corpus():
        text = normalize(s)
        again = normalize(text)
        assert (again is None) == (oracle(text) is None), (text, error())


# ---- Mutations -------------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"\s+|[A-Za-z_][A-Za-z_0-9]*|\d+\.?\d*|->|\.\.\.|::|'[^']*'|\"[^\"]*\"|.", re.S)
EXTRA = ["Union(", "Future(", "Await(", "RRef(", "Dict(str, ", "Tensor!", "(a!)", "(a|b)", "(*)", "(a -> *)", "(a! -> a|b)", "[]", "[2]", "?", "??",
         "...", "*", "**", "None", "True", "False", "NoneType", "=1", "=1.5", "=-1", "=1e5", "=1E5", "=0x1F", "=2j", "='x'", '="x"', "='''x'''", "=[]",
         "=[1, 2]", "=[True]", "=[0.5]", "=None", "=float", "=half", "=strided", "='cpu'", "='cuda:1'", "SymBool", "SymFloat", "Dimname", "complex",
         "Layout", "MemoryFormat", "ScalarType", "Device", "Stream", "Storage", "QScheme", "Quantizer", "Generator", "Any", "number", "double",
         "in", "is", "not", "lambda", "def", "#", "# type: ", "\n", "\\\n", "\t", "\r", "\f", "$", ";", "\\", "'", '"', ".default", ".__x", "::", ":", "||",
         "|", "!", "é", "1.", ".5", "1..", "0x", "1e", "1e400", "1e-400", "9223372036854775808", "-9223372036854775808", "'\\n'", "'\\x41'", "'\\q'"]
CHARACTERS = "abcTZ_019 \t\n()[]{}<>,;:=+-*/%!?|.@&^~#$'\"\\`"


def mutations(n, seed):
    rng = random.Random(seed)
    schemas = [s for s in corpus() if len(s) < 400]
    tokens = [TOKEN.findall(s) for s in schemas]
    pool = sorted({t for ts in tokens for t in ts}) + EXTRA * 8

    def mutate(ts):
        i, what = rng.randrange(len(ts)), rng.randrange(9)
        if what == 0:
            del ts[i]
        elif what == 1:
            ts.insert(i, rng.choice(pool))
        elif what == 2:
            ts[i] = rng.choice(pool)
        elif what == 3:
            ts.insert(i, ts[rng.randrange(len(ts))])
        elif what == 4:
            j = rng.randrange(len(ts))
            ts[i], ts[j] = ts[j], ts[i]
        elif what == 5:  # the tail of another schema
            other = rng.choice(tokens)
            ts[i:] = other[rng.randrange(len(other)):]
        else:  # one character
            text = "".join(ts)
            k = rng.randrange(len(text))
            c = rng.choice(CHARACTERS)
            ts[:] = TOKEN.findall(text[:k] + (c if what != 6 else "") + text[k + (what != 7):])
        if not ts:
            ts.append("f")

    for _ in range(n):
        ts = list(rng.choice(tokens))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            mutate(ts)
        yield "".join(ts)


def compare(schemas):
    accepted, excepted, wrong = 0, 0, []
    for s in schemas:
        theirs, ours = oracle(s), normalize(s)
        accepted += theirs is not None
        if (theirs is None) != (ours is None):
            if any(f(s) for f in (WE_ACCEPT if theirs is None else WE_REFUSE)):
                excepted += 1
            else:
                wrong.append((s, "PyTorch refuses" if theirs is None else "we refuse: " + error()))
        elif ours is not None and not any(f(s) for f in PRINT_EXCEPTIONS):
            if ours != str(theirs):
                wrong.append((s, ours, str(theirs)))
            check_structure(s)
    return accepted, excepted, wrong


@pytest.mark.parametrize("n, seed", [(20_000, 2025), pytest.param(100_000, 2026, marks=pytest.mark.slow)])
def test_mutations(n, seed):
    """Accepted or refused alike, and what is accepted prints alike and has the same structure."""
    accepted, excepted, wrong = compare(mutations(n, seed))
    print(f"{accepted} of {n} mutated schemas accepted by PyTorch, {excepted} exceptions, {len(wrong)} wrong")
    assert not wrong, wrong[:20]
    assert accepted > n // 5 and excepted < n // 100


# ---- Compatibility ---------------------------------------------------------------------------------------------------------------

def stricter(new, old):
    """PyTorch takes int, ScalarType, Layout and MemoryFormat for one type; we do not. (It also looks at no argument after the last
    out argument of the old schema: test_new_argument_after_out_needs_a_default.)"""
    kinds = {"int", "ScalarType", "Layout", "MemoryFormat"}
    words = lambda s: [w for w in re.findall(r"\w+", s) if w in kinds | {"SymInt"}]
    return any(k in new + old for k in ("ScalarType", "Layout", "MemoryFormat")) and words(new) != words(old)


VERSIONS = [  # (new, old): pairs that touch each rule
    ("f(Tensor a, int b=1) -> Tensor", "f(Tensor a) -> Tensor"),
    ("f(Tensor a, int b) -> Tensor", "f(Tensor a) -> Tensor"),
    ("f(Tensor a, *, int b=1) -> Tensor", "f(Tensor a) -> Tensor"),
    ("f(Tensor a) -> Tensor", "f(Tensor a, int b=1) -> Tensor"),
    ("f(Tensor a, int b=2) -> Tensor", "f(Tensor a, int b=1) -> Tensor"),
    ("f(Tensor a, int b) -> Tensor", "f(Tensor a, int b=1) -> Tensor"),
    ("f(Tensor a, int b=1) -> Tensor", "f(Tensor a, int b) -> Tensor"),
    ("f(Tensor a, SymInt b) -> Tensor", "f(Tensor a, int b) -> Tensor"),
    ("f(Tensor a, int b) -> Tensor", "f(Tensor a, SymInt b) -> Tensor"),
    ("f(Tensor? a) -> Tensor", "f(Tensor a) -> Tensor"),
    ("f(Tensor a) -> Tensor", "f(Tensor? a) -> Tensor"),
    ("f(Tensor a) -> Tensor?", "f(Tensor a) -> Tensor"),
    ("f(Tensor a) -> Tensor", "f(Tensor a) -> Tensor?"),
    ("f(Scalar a) -> Tensor", "f(int a) -> Tensor"),
    ("f(Scalar a) -> Tensor", "f(float a) -> Tensor"),
    ("f(Scalar a) -> Tensor", "f(bool a) -> Tensor"),
    ("f(int a) -> Tensor", "f(Scalar a) -> Tensor"),
    ("f(Scalar? a) -> Tensor", "f(int a) -> Tensor"),
    ("f(Any a) -> Tensor", "f(int a) -> Tensor"),
    ("f(int[] a) -> ()", "f(int[2] a) -> ()"),
    ("f(int[2] a) -> ()", "f(int[] a) -> ()"),
    ("f(int?[] a) -> ()", "f(int[] a) -> ()"),
    ("f(int[]? a) -> ()", "f(int[] a) -> ()"),
    ("f(SymInt[] a) -> ()", "f(int[] a) -> ()"),
    ("f(Tensor?[] a) -> ()", "f(Tensor[] a) -> ()"),
    ("f(Tensor(a!) a) -> ()", "f(Tensor a) -> ()"),
    ("f(Tensor a) -> ()", "f(Tensor(a!) a) -> ()"),
    ("f(Tensor(b) a) -> Tensor(b)", "f(Tensor(a) a) -> Tensor(a)"),
    ("f(Tensor a, *, int b) -> ()", "f(Tensor a, int b) -> ()"),
    ("f(Tensor a, int b) -> ()", "f(Tensor a, *, int b) -> ()"),
    ("f(int b, Tensor a) -> ()", "f(Tensor a, int b) -> ()"),
    ("f(Tensor c) -> ()", "f(Tensor a) -> ()"),
    ("g(Tensor a) -> ()", "f(Tensor a) -> ()"),
    ("f.x(Tensor a) -> ()", "f(Tensor a) -> ()"),
    ("n::f(Tensor a) -> ()", "f(Tensor a) -> ()"),
    ("f(Tensor a) -> (Tensor, Tensor)", "f(Tensor a) -> Tensor"),
    ("f(Tensor a) -> Tensor x", "f(Tensor a) -> Tensor"),
    ("f(Tensor a, int k=1, *, Tensor(a!) out) -> Tensor(a!)", "f(Tensor a, *, Tensor(a!) out) -> Tensor(a!)"),
    ("f(Tensor a, *, int k=1, Tensor(a!) out) -> Tensor(a!)", "f(Tensor a, *, Tensor(a!) out) -> Tensor(a!)"),
    ("f(Tensor a, *, int k, Tensor(a!) out) -> Tensor(a!)", "f(Tensor a, *, Tensor(a!) out) -> Tensor(a!)"),
    ("f(Tensor a, *, Tensor(a!) out, int k=1) -> Tensor(a!)", "f(Tensor a, *, Tensor(a!) out) -> Tensor(a!)"),
    ("f(Tensor a, ...) -> ()", "f(Tensor a) -> ()"),
    ("f(float a=1) -> ()", "f(float a=1.0) -> ()"),
    ("f(str a='x') -> ()", 'f(str a="x") -> ()'),
    ("f(int[2] a=1) -> ()", "f(int[2] a=[1, 1]) -> ()"),
    ("f((Tensor, int?) a) -> ()", "f((Tensor, int) a) -> ()"),
    ("f(Dict(str, int) a) -> ()", "f(Dict(str, Tensor) a) -> ()"),
    ("f(t a) -> ()", "f(int a) -> ()"),
]


def agree(new, old):
    theirs = parse(new).is_backward_compatible_with(parse(old))
    ours = compatible(new, old)
    if ours and not theirs:
        return False
    return ours == theirs or stricter(new, old)


@pytest.mark.parametrize("new, old", VERSIONS)
def test_versions(new, old):
    assert compatible(new, new) and compatible(old, old)
    assert agree(new, old), error()


def test_new_argument_after_out_needs_a_default():
    new, old = "f(Tensor a, *, Tensor(a!) out, Tensor(b!) more) -> ()", "f(Tensor a, *, Tensor(a!) out) -> ()"
    assert parse(new).is_backward_compatible_with(parse(old)) and not compatible(new, old)


def test_dtype_is_no_int():
    new, old = "f(ScalarType a) -> ()", "f(int a) -> ()"
    assert parse(new).is_backward_compatible_with(parse(old)) and not compatible(new, old)


def test_overloads_of_the_corpus():
    """All pairs of overloads of one name, given one overload name."""
    groups = {}
    for s in corpus():
        head, tail = s.split("(", 1)
        if "__torch__" not in s:
            groups.setdefault(head.split(".")[0], []).append("f(" + tail)
    pairs = wrong = positive = 0
    for schemas in groups.values():
        for new in schemas[:12]:
            for old in schemas[:12]:
                pairs += 1
                positive += compatible(new, old)
                if not agree(new, old):
                    wrong += 1
                    print(new, "|", old, "|", error())
    assert pairs > 10_000 and positive > 3000 and not wrong


# ---- docs/schema.md --------------------------------------------------------------------------------------------------------------

def test_examples_of_the_docs():
    from .library import ROOT
    blocks = [text for language, text in re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / "docs" / "schema.md").read_text(), re.S | re.M) if not language]
    example, message = blocks[0].strip(), blocks[1].rstrip("\n")
    assert normalize(example) == str(parse(example)) == example
    assert normalize(message.splitlines()[1].strip()) is None
    assert error() == message
