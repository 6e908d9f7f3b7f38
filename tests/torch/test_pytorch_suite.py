"""PyTorch's own tests of custom operators (test/test_custom_ops.py, torch.testing._internal.custom_op_db), case by case, on declared operators.

docs/torch-suite.md lists every test there is in that file, and which test here answers it, or why none can. The last test checks the list.
"""
import collections.abc
import pathlib
import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal import custom_op_db, optests
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import dovetail
from conftest import ROOT, one

RETURN = "(void)ctx, (void)a; return DV_OK;"


def operator(name, fields, arguments, schema, contract=None, body=RETURN, row='"cpu", NULL', more=""):
    """C source of one operator. fields: of its struct; arguments: their names."""
    contract = f'.contract = "{contract}",' if contract else ""
    kernels = f".kernels = DV_KERNELS(DV_KERNEL(struct {name}, {row}, {name}))" if row else ""
    schema = f'.schema = "{schema}",' if schema else ""
    kernel = f"static int {name}(dv_context *ctx, const struct {name} *a) {{ {body} }}" if row else ""
    return f"struct {name} {{ {fields} }};\n{kernel}\nDV_OPERATOR({name}, struct {name}, ({arguments}), {schema} {contract} {more} {kernels});\n"


def library(namespace, *operators):
    names = re.findall(r"^DV_OPERATOR\((\w+)", "".join(operators), re.M)
    return "#include <dovetail_op.h>\n" + "".join(operators) + f"DV_LIBRARY({namespace}, {', '.join('&dv_op_' + n for n in names)});\n"


UNARY = "const dv_tensor *x; dv_tensor *out;"
SAME = "x[*s]:f32 -> out[*s]:f32"
COPY = "(void)ctx; memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * 4); return DV_OK;"
EACH = "(void)ctx; for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) ((float *)a->out->data)[i] = %s; return DV_OK;"
SQUARE = EACH % "((const float *)a->x->data)[i] * ((const float *)a->x->data)[i]"


def foo(body=COPY, schema="foo(Tensor x) -> Tensor out", contract=SAME, more="", row='"cpu", "f32"'):
    return operator("foo", UNARY, "x, out", schema, contract, body, row, more)


# ---- the operators of custom_op_db ---------------------------------------------------------------------------------------------------

def name_of(info):
    return getattr(info.op, "_qualified_op_name", getattr(info.op, "__name__", "")).split("::")[-1].split(".")[0] or str(info.op)


OURS = [i for i in custom_op_db.custom_op_db if "split" not in name_of(i)]  # a returned Tensor[] has no length in a contract
DIFFERENTIABLE = [i for i in OURS if i.supports_autograd]


def samples(info, dtype, requires_grad):
    torch.manual_seed(0)
    return [((s.input, *s.args), s.kwargs) for s in info.sample_inputs("cpu", dtype, requires_grad=requires_grad)]


def of(info):
    return getattr(torch.ops.custom_op_db, name_of(info)).default


def over_tensors(f, args, kwargs):
    """f as a function of the tensors that require grad alone, and these."""
    leaves, spec = tree_flatten(args)
    free = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]

    def g(*tensors):
        tensors = iter(tensors)
        return f(*tree_unflatten([next(tensors) if isinstance(x, torch.Tensor) and x.requires_grad else x for x in leaves], spec), **kwargs)
    return g, free


def test_there_are_operators(db):
    assert len(OURS) == 9 and {name_of(i) for i in OURS} == set(db)


@pytest.mark.parametrize("info", OURS, ids=name_of)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32, torch.uint8], ids=str)
def test_db_values(db, info, dtype):
    """The same values as PyTorch's operator of that name gives."""
    if "nms" in name_of(info) and dtype not in (torch.float32, torch.float64):
        pytest.skip("equal scores, which the two sort in different orders")
    for args, kwargs in samples(info, dtype, False):
        torch.testing.assert_close(of(info)(*args, **kwargs), info.op(*args, **kwargs), check_dtype=dtype.is_floating_point)


@pytest.mark.parametrize("info", OURS, ids=name_of)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_db_opcheck(db, info, dtype):
    for args, kwargs in samples(info, dtype, info.supports_autograd and dtype.is_floating_point):
        torch.library.opcheck(of(info), args, kwargs)


@pytest.mark.parametrize("info", DIFFERENTIABLE, ids=name_of)
def test_db_gradients(db, info):
    for args, kwargs in samples(info, torch.float64, True):
        f, free = over_tensors(of(info), args, kwargs)
        assert torch.autograd.gradcheck(f, free) and torch.autograd.gradgradcheck(f, free)


@pytest.mark.parametrize("info", OURS, ids=name_of)
def test_db_aot_autograd_and_fake(db, info):
    """The checks that PyTorch's OpInfo suite runs on them: fake_check, aot_autograd_check with symbolic and static sizes."""
    if "nonzero" in name_of(info) or "nms" in name_of(info):
        pytest.skip("the two checks allow no sizes that depend on data; test_compile_of_a_data_dependent_size does")
    for args, kwargs in samples(info, torch.float32, info.supports_autograd):
        optests.fake_check(of(info), args, kwargs)
        for dynamic in (True, False):
            optests.aot_autograd_check(of(info), args, kwargs, dynamic=dynamic, check_gradients="auto")


@pytest.mark.parametrize("info", [i for i in OURS if name_of(i) not in ("numpy_nonzero", "numpy_nms")], ids=name_of)
def test_db_compile(db, info):
    torch._dynamo.reset()
    op = of(info)
    for args, kwargs in samples(info, torch.float32, False):
        f = torch.compile(lambda *a: op(*a, **kwargs), backend="aot_eager", fullgraph=True, dynamic=True)
        torch.testing.assert_close(f(*args), op(*args, **kwargs))


@pytest.mark.parametrize("info", [i for i in OURS if name_of(i) not in ("numpy_nonzero", "numpy_nms", "numpy_cat")], ids=name_of)
def test_db_vmap(db, info):
    """Over the first tensor, in dims 0 and -1, and nested; as PyTorch's vmap of its own operator, and as a loop."""
    torch.manual_seed(0)
    for (x, *args), kwargs in samples(info, torch.float64, False):
        xs = torch.stack([x, x + 1, x * 2])
        f = lambda x: of(info)(x, *args, **kwargs)  # noqa: E731
        loop = [tree_leaves(f(x)) for x in xs]
        expected = [torch.stack(column) for column in zip(*loop)]
        assert_close = torch.testing.assert_close
        assert_close(tree_leaves(torch.vmap(f)(xs)), expected)
        assert_close(tree_leaves(torch.vmap(f, in_dims=-1)(xs.movedim(0, -1).contiguous())), expected)
        assert_close(tree_leaves(torch.vmap(torch.vmap(f))(torch.stack([xs, xs]))), [torch.stack([e, e]) for e in expected])


@pytest.mark.parametrize("name", ["numpy_nonzero", "numpy_nms"])
def test_db_vmap_of_a_data_dependent_size_is_refused(db, name):
    x, scores = torch.rand(3, 8, 4), torch.rand(8)
    f = {"numpy_nonzero": lambda x: db.numpy_nonzero(x), "numpy_nms": lambda x: db.numpy_nms(x, scores, 0.5)}[name]
    with pytest.raises((RuntimeError, NotImplementedError), match=name):
        torch.vmap(f)(x)


# ---- what opcheck finds -----------------------------------------------------------------------------------------------------------------

def test_opcheck_finds_an_undeclared_write(load):
    load(library("suite_write", foo("((float *)(uintptr_t)a->x->data)[0] = 7; " + COPY, more='.gradient = "x: grad",')))
    with pytest.raises(optests.OpCheckError, match="Argument x is not defined as mutable but was mutated"):
        torch.library.opcheck(torch.ops.suite_write.foo.default, (torch.randn(3, requires_grad=True),))


def test_opcheck_finds_state(load):
    body = "static float count; count++; " + EACH % "((const float *)a->x->data)[i] * count"
    load(library("suite_state", foo(body)))
    op, x = torch.ops.suite_state.foo.default, torch.tensor([1.0])
    with pytest.raises(optests.OpCheckError, match="eager-mode PyTorch vs AOTDispatcher"):
        torch.library.opcheck(op, (x,))
    torch.library.opcheck(op, (x,), atol=100, rtol=0.01)


def test_opcheck_names_an_operator_without_fake(load):
    """No contract, and results: there is nothing to make a fake from."""
    shape = ("static int foo_shape(dv_context *ctx, const void *frame) { const struct foo *a = frame; "
             "return dv_set_output(ctx, a->out, a->x->dtype, a->x->ndim, a->x->shape); }\n")
    text = library("suite_shape", foo(contract=None, more=".shape = foo_shape,", row='"cpu", NULL'))
    load(text.replace("DV_OPERATOR(foo", shape + "DV_OPERATOR(foo"))
    with pytest.raises(optests.OpCheckError, match="suite_shape.foo"):
        torch.library.opcheck(torch.ops.suite_shape.foo.default, (torch.randn(3),))


def test_a_kernel_cannot_give_another_shape_than_the_fake(load):
    body = "int64_t n[1] = { dv_numel(a->x) + 1 }; return dv_set_output(ctx, a->out, a->x->dtype, 1, n);"
    load(library("suite_bound", foo(body, contract="x[n]:f32 -> out[u]:f32; u unbacked in 0..n")))
    with pytest.raises(RuntimeError, match="suite_bound::foo.*out"):
        torch.ops.suite_bound.foo(torch.randn(3))


def test_opcheck_unbacked_size(load):
    body = "int64_t n[2] = { a->x->shape[0], 18 }; int s = dv_set_output(ctx, a->out, a->x->dtype, 2, n); if (!s) memset(a->out->data, 0, (size_t)n[0] * 72); return s;"
    load(library("suite_unbacked", foo(body, contract="x[n m]:f32 -> out[n u]:f32; u unbacked in 0..18")))
    torch.library.opcheck(torch.ops.suite_unbacked.foo.default, (torch.zeros(10, 20),))


@pytest.mark.parametrize("gradient", [".gradient = \"x: grad\",", ".native = \"sin(x)\","])
def test_autograd_registration_is_right(load, gradient):
    load(library("suite_registered", foo(EACH % "((const float *)a->x->data)[i]", more=gradient)))
    optests.autograd_registration_check(torch.ops.suite_registered.foo.default, (torch.randn(3, requires_grad=True),), {})


def test_opcheck_reports(db):
    op, x = torch.ops.custom_op_db.numpy_mul.default, torch.randn(3, requires_grad=True)
    everything = dict.fromkeys(["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"], "SUCCESS")
    assert torch.library.opcheck(op, (x, x)) == everything
    assert torch.library.opcheck(op, (x, x), test_utils="test_schema") == {"test_schema": "SUCCESS"}
    with pytest.raises(ValueError, match="test_utils to be subset of"):
        torch.library.opcheck(op, (x, x), test_utils="blah")


# ---- declarations that are refused -----------------------------------------------------------------------------------------------------

REFUSED = [  # what is wrong, source, message
    ("schema that does not end", foo(schema="foo(Tensor x"), r"column \d+"),
    ("no schema at all", foo(schema="("), r"column \d+"),
    ("unknown result type", foo(schema="foo(Tensor x) -> asdfasdf out"), "asdfasdf"),
    ("unknown argument type", foo(schema="foo(asdf x) -> Tensor out"), "asdf"),
    ("int64_t", foo(schema="foo(int64_t x) -> Tensor out"), "int64_t"),
    ("double", foo(schema="foo(double x) -> Tensor out"), "double"),
    ("a field that the schema lacks", foo(schema="foo(Tensor y) -> Tensor out"), "foo.*'[xy]'"),
    ("an argument without field", foo(schema="foo(Tensor x, int n) -> Tensor out"), "foo.*'n'"),
    ("a field of another type", foo(schema="foo(int x) -> Tensor out"), "foo.*'x'"),
    ("an argument that is written, and a const field", foo(schema="foo(Tensor(a!) x) -> Tensor out"), "foo.*'x'"),
    ("optional numbers in a list", operator("foo", "const dv_tensor *x; dv_ints y; dv_tensor *out;", "x, y, out", "foo(Tensor x, int?[] y) -> Tensor out",
                                            SAME), "'y'"),
    ("a dict", operator("foo", "const dv_tensor *x; int64_t y; dv_tensor *out;", "x, y, out", "foo(Tensor x, Dict(str, int) y) -> Tensor out", SAME), "'?y"),
    ("a list of layouts", operator("foo", "const dv_tensor *x; dv_ints y; dv_tensor *out;", "x, y, out", "foo(Tensor x, Layout[] y) -> Tensor out", SAME), "'y'"),
    ("a device that is not known", foo(row='"hip9", NULL'), "hip9"),
    ("a gradient for an unknown argument", foo(more='.gradient = "y: grad",'), "gradient.*y"),
    ("a gradient for a number", operator("foo", "const dv_tensor *x; int64_t dim; dv_tensor *out;", "x, dim, out", "foo(Tensor x, int dim) -> Tensor out", SAME,
                                         more='.gradient = "x: grad; dim: grad",'), "gradient.*dim"),
    ("a gradient that is not a tensor", foo(more='.gradient = "x: 2",'), "gradient"),
    ("three gradients, two given", operator("foo", "const dv_tensor *x, *y, *z; dv_tensor *out;", "x, y, z, out",
                                            "foo(Tensor x, Tensor y, Tensor z) -> Tensor out", "x[*s]:f32, y[*s]:f32, z[*s]:f32 -> out[*s]:f32",
                                            more='.gradient = "x, y, z: [grad, grad]",'), "gradient"),
    ("a tensor for a list", operator("foo", "dv_tensors xs; dv_tensor *out;", "xs, out", "foo(Tensor[] xs) -> Tensor out", "xs{i}[*s]:f32 -> out[*s]:f32",
                                     more='.gradient = "xs: grad",'), "gradient.*xs"),
    ("a gradient by an unknown name", foo(more='.gradient = "x: undefined_name",'), "undefined_name"),
    ("two gradients for one argument", foo(more='.gradient = "x: grad; x: grad",'), "gradient.*x"),
    ("an argument without pattern", operator("foo", "const dv_tensor *x, *y; dv_tensor *out;", "x, y, out", "foo(Tensor x, Tensor y) -> Tensor out", SAME), "'?y"),
    ("a namespace of torch's own", foo(), "prim"),
]


@pytest.mark.parametrize("what, text, message", REFUSED, ids=[r[0] for r in REFUSED])
def test_declarations_that_are_refused(load, what, text, message):
    """Before anything is registered, by the operator's name and the place."""
    with pytest.raises(Exception, match=message) as caught:
        load(library("prim" if "own" in what else "suite_refused", text))
    assert isinstance(caught.value, (ValueError, TypeError, RuntimeError, LookupError))
    assert not hasattr(torch.ops.suite_refused, "foo")


def test_one_operator_cannot_be_defined_twice(load):
    first = load(library("suite_once", foo()), "a")
    with pytest.raises(RuntimeError, match="suite_once"):
        load(library("suite_once", foo(SQUARE)), "b")
    first.close()
    load(library("suite_once", foo(SQUARE)), "c")
    assert torch.ops.suite_once.foo(torch.tensor([3.0])).item() == 9


def test_a_library_that_is_not_there():
    with pytest.raises((OSError, LookupError), match="libnoexist.so"):
        dovetail.load("libnoexist.so")


def test_operators_cannot_be_made_by_hand():
    with pytest.raises(TypeError):
        dovetail.Operator()


SCHEMAS = [  # schema, fields, arguments, contract
    ("(Tensor x) -> Tensor", "const dv_tensor *x; dv_tensor *o;", "x, o", "x[*s]:f32 -> [*s]:f32"),
    ("(Tensor x) -> Tensor y", "const dv_tensor *x; dv_tensor *y;", "x, y", "x[*s]:f32 -> y[*s]:f32"),
    ("(Tensor[] x) -> Tensor y", "dv_tensors x; dv_tensor *y;", "x, y", "x{i}[*s]:f32 -> y[*s]:f32"),
    ("(Tensor x) -> (Tensor, Tensor)", "const dv_tensor *x; dv_tensor *o, *p;", "x, o, p", "x[*s]:f32 -> [*s]:f32, [*s]:f32"),
    ("(Tensor x) -> (Tensor y, Tensor z)", "const dv_tensor *x; dv_tensor *y, *z;", "x, y, z", "x[*s]:f32 -> y[*s]:f32, z[*s]:f32"),
    ("(Tensor x, Tensor w) -> Tensor", "const dv_tensor *x, *w; dv_tensor *o;", "x, w, o", "x[*s]:f32, w[...] -> [*s]:f32"),
    ("(Tensor? x, Tensor w) -> Tensor", "const dv_tensor *x, *w; dv_tensor *o;", "x, w, o", "x[...], w[*s]:f32 -> [*s]:f32"),
    ("(Tensor? x, Tensor[] w) -> Tensor", "const dv_tensor *x; dv_tensors w; dv_tensor *o;", "x, w, o", "x[...], w{i}[*s]:f32 -> [*s]:f32"),
    ("(Tensor x, int[] w) -> Tensor", "const dv_tensor *x; dv_ints w; dv_tensor *o;", "x, w, o", "x[*s]:f32 -> [*s]:f32"),
    ("(Tensor x, SymInt[] w) -> Tensor", "const dv_tensor *x; dv_ints w; dv_tensor *o;", "x, w, o", "x[*s]:f32 -> [*s]:f32"),
    ("(Tensor x, float w) -> Tensor", "const dv_tensor *x; double w; dv_tensor *o;", "x, w, o", "x[*s]:f32 -> [*s]:f32"),
    ("(Tensor x, float? w) -> Tensor", "const dv_tensor *x; dv_opt_float w; dv_tensor *o;", "x, w, o", "x[*s]:f32 -> [*s]:f32"),
    ("(Tensor x, bool[] w) -> Tensor", "const dv_tensor *x; dv_bools w; dv_tensor *o;", "x, w, o", "x[*s]:f32 -> [*s]:f32"),
    ("(Tensor x, ScalarType[] w) -> Tensor", "const dv_tensor *x; dv_dtypes w; dv_tensor *o;", "x, w, o", "x[*s]:f32 -> [*s]:f32"),
    ("(Tensor(a!) x) -> Tensor(a!)", "dv_tensor *x, *o;", "x, o", "x[*s]:f32 -> [*s]:f32"),
    ("(Tensor(a) x) -> Tensor(a)", "const dv_tensor *x; dv_tensor *o;", "x, o", "x[*s]:f32 -> view(x)"),
    ("(Tensor x) -> ()", "const dv_tensor *x;", "x", "x[*s]:f32"),
    ("(Tensor self) -> ()", "const dv_tensor *self;", "self", "self[*s]:f32"),
    ("(Tensor x, *, Tensor y) -> Tensor", "const dv_tensor *x, *y; dv_tensor *o;", "x, y, o", "x[*s]:f32, y[...] -> [*s]:f32"),
]
EXAMPLE = {"Tensor": lambda: torch.ones(2), "Tensor?": lambda: None, "Tensor[]": lambda: [torch.ones(2)], "int[]": lambda: [1], "SymInt[]": lambda: [1],
           "float": lambda: 0.5, "float?": lambda: None, "bool[]": lambda: [True], "ScalarType[]": lambda: [torch.float32, torch.bfloat16]}


def test_supported_schemas(load):
    """Views and writes too, which PyTorch's first API refused."""
    operators = [operator(f"f{i}", fields, arguments, f"f{i}{schema}", contract, row=None if "view" in contract else '"cpu", NULL')
                 for i, (schema, fields, arguments, contract) in enumerate(SCHEMAS)]
    load(library("suite_schemas", *operators))
    for i, (schema, *_) in enumerate(SCHEMAS):
        op = getattr(torch.ops.suite_schemas, f"f{i}").default
        assert str(op._schema) == str(torch._C.parse_schema(f"suite_schemas::f{i}{schema}"))
        types = [t for t in re.findall(r"([\w?\[\]]+)(?:\(a!?\))? \w+", schema.split("->")[0])]
        positional = {a.name: EXAMPLE[t]() for a, t in zip(op._schema.arguments, types)}
        result = op(**positional)
        assert (result is None) == schema.endswith("()")
        assert isinstance(result, tuple) == (schema.split("->")[1].count("Tensor") > 1)


INFERRED = [  # struct, .mutates, the schema that follows
    ("const dv_tensor *x; dv_tensor *out;", "x, out", "", "(Tensor x) -> Tensor"),
    ("const dv_tensor *x; int64_t y; bool z; double w; dv_dtype b; dv_device c; dv_tensor *out;", "x, y, z, w, b, c, out", "",
     "(Tensor x, SymInt y, bool z, float w, ScalarType b, Device c) -> Tensor"),
    ("dv_tensors y; dv_opt_int i; dv_string mode; dv_tensor *out;", "y, i, mode, out", "", "(Tensor[] y, SymInt? i, str mode) -> Tensor"),
    ("dv_tensor *x; const dv_tensor *y;", "x, y", "x", "(Tensor(a!) x, Tensor y) -> ()"),
    ("const dv_tensor *x; dv_tensor *a, *b;", "x, a, b", "", "(Tensor x) -> (Tensor, Tensor)"),
    ("const dv_tensor *x; dv_tensor *out; int64_t *n; double *f; bool *b;", "x, out, n, f, b", "", "(Tensor x) -> (Tensor, SymInt, float, bool)"),
]


@pytest.mark.parametrize("fields, arguments, mutates, expected", INFERRED)
def test_schema_inferred_from_the_struct(load, fields, arguments, mutates, expected):
    """infer_schema's cases, from a struct instead of a signature."""
    # shapes play no part
    more = f'.mutates = "{mutates}", ' if mutates else ""
    tensors = [n for group in re.findall(r"(?:const )?dv_tensors? \*?([^;]+);", fields) for n in re.findall(r"\w+", group)]
    inputs = [n for n in tensors if re.search(rf"const dv_tensor [^;]*\b{n}\b|dv_tensors [^;]*\b{n}\b", fields) or n in mutates.split(", ")]
    outputs = [n for n in tensors if n not in inputs]
    contract = ", ".join(f"{n}{'{i}' if f'dv_tensors {n}' in fields else ''}[*s]:f32" for n in inputs)
    contract += " -> " + ", ".join(f"{n}[*s]:f32" for n in outputs) if outputs else ""
    load(library("suite_infer", operator("foo", fields, arguments, None, contract, more=more)))
    found = str(torch.ops.suite_infer.foo.default._schema)
    types = re.sub(r"Tensor\(\w+!\)", "Tensor(a!)", found.partition("foo")[2])
    returns = re.sub(r"(?<=\w) \w+(?=[,)]|$)", "", types.split("->")[1])
    assert types.split("->")[0] + "->" + returns == expected


# ---- calls ---------------------------------------------------------------------------------------------------------------------------------

def test_sequences_that_are_no_lists(db):
    class Sizes(collections.abc.Sequence):
        def __getitem__(self, i):
            return [2, 3][i]

        def __len__(self):
            return 2

    x = torch.arange(6.0)
    for f in (torch.ops.custom_op_db.numpy_view_copy, db.numpy_view_copy):
        assert f(x, Sizes()).shape == f(x, (2, 3)).shape == f(x, torch.Size([2, 3])).shape == (2, 3)


def test_defaults(load):
    text = operator("foo", "const dv_tensor *x; dv_opt_int a; double b; bool c; int64_t d; dv_string e; dv_dtype f; dv_device g; dv_tensor *out;",
                    "x, a, b, c, d, e, f, g, out",
                    "foo(Tensor x, SymInt? a=None, float b=3.14, bool c=True, SymInt d=3, str e='foo', ScalarType f=float32, Device g='cpu') -> Tensor out",
                    "x[...]:f32 -> out[7]:f64",
                    "(void)ctx; double *o = a->out->data; o[0] = a->a.has; o[1] = a->b; o[2] = a->c; o[3] = (double)a->d; o[4] = (double)a->e.size; "
                    "o[5] = a->f.bits; o[6] = a->g.type; return DV_OK;")
    mine = load(library("suite_defaults", text))
    for f in (torch.ops.suite_defaults.foo, mine.foo):
        assert f(torch.ones(1)).tolist() == [0, 3.14, 1, 3, 3, 32, 1]
        assert f(torch.ones(1), 5, d=4).tolist() == [1, 3.14, 1, 4, 3, 32, 1]
    values = [a.default_value for a in torch.ops.suite_defaults.foo.default._schema.arguments]
    assert values == [None, None, 3.14, True, 3, "foo", 6, torch.device("cpu")]


def test_writes_raise_versions(ops):
    x, xs = torch.zeros(3), [torch.zeros(2), torch.zeros(2)]
    versions = [t._version for t in (x, *xs)]
    ops.inc(x)
    ops.inc_all(xs)
    assert [t._version for t in (x, *xs)] == [v + 1 for v in versions] and x.tolist() == [1, 1, 1]


def test_written_optional_argument(load):
    text = operator("foo", "const dv_tensor *x; dv_tensor *acc, *out;", "x, acc, out", "foo(Tensor x, Tensor(a!)? acc=None) -> Tensor out",
                    "x[*s]:f32, acc[*s]:f32 -> out[*s]:f32", "if (a->acc) memcpy(a->acc->data, a->x->data, (size_t)dv_numel(a->x) * 4); " + COPY)
    load(library("suite_optional", text))
    x, acc = torch.randn(3), torch.zeros(3)
    version = acc._version
    assert torch.equal(torch.ops.suite_optional.foo(x), x)
    torch.ops.suite_optional.foo(x, acc=acc)
    assert torch.equal(acc, x) and acc._version > version


def test_overloads(load):
    two = operator("bar", "const dv_tensor *x, *y; dv_tensor *out;", "x, y, out", "foo.two(Tensor x, Tensor y) -> Tensor out",
                   "x[*s]:f32, y[*s]:f32 -> out[*s]:f32", COPY)
    load(library("suite_overloads", foo(SQUARE), two))
    x = torch.full((2,), 3.0)
    packet = torch.ops.suite_overloads.foo
    assert packet(x).tolist() == [9, 9] and packet(x, x).tolist() == [3, 3]
    assert torch._C._jit_resolve_packet("suite_overloads::foo", x) == "default"
    assert torch._C._jit_resolve_packet("suite_overloads::foo", x, x) == "two"
    with pytest.raises(RuntimeError, match="failed to match any schema"):
        torch._C._jit_resolve_packet("suite_overloads::foo", x, x, x)
    assert packet.two(x.to("meta"), x.to("meta")).shape == (2,)  # the fake of an overload
    assert not packet.default._defined_in_python and not packet.two._defined_in_python


def test_tags(load):
    for i, tags in enumerate(["pointwise", "pointwise, pt2_compliant_tag", "pt2_compliant_tag pointwise"]):
        load(library(f"suite_tags{i}", foo(more=f'.tags = "{tags}",')), f"tags{i}")
        found = getattr(torch.ops, f"suite_tags{i}").foo.default.tags
        assert found.count(torch.Tag.pt2_compliant_tag) == 1 and torch.Tag.pointwise in found


@pytest.mark.parametrize("tags, expected", [("needs_fixed_stride_order", "needs_fixed_stride_order"), ("flexible_layout", "flexible_layout"),
                                            ("", "needs_exact_strides"), ("flexible_layout needs_fixed_stride_order", "needs_fixed_stride_order")])
def test_layout_constraint_tags(load, tags, expected):
    from torch._library.utils import get_layout_constraint_tag
    load(library("suite_layout", foo(more=f'.tags = "{tags}",')))
    assert get_layout_constraint_tag(torch.ops.suite_layout.foo.default) == getattr(torch.Tag, expected)


def test_a_kernel_by_its_key(db):
    """torch.library.get_kernel: the C kernel, boxed; gone with the library is another test's."""
    kernel = torch.library.get_kernel("custom_op_db::numpy_mul", "CPU")
    x = torch.randn(3)
    assert torch.equal(kernel.call_boxed(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), x, x), x * x)
    with pytest.raises(RuntimeError, match="no kernel for XPU for custom_op_db::numpy_mul"):
        torch.library.get_kernel("custom_op_db::numpy_mul", "XPU")


# ---- fakes and data-dependent sizes ------------------------------------------------------------------------------------------------------------

def test_meta_and_fake(load):
    load(library("suite_meta", operator("foo", "const dv_tensor *x; int64_t dim; dv_tensor *out;", "x, dim, out", "foo(Tensor x, int dim) -> Tensor out",
                                        "x[*s]:f32 -> out[reduced(*s, dim, False)]:f32")))
    x = torch.randn(2, 3, device="meta")
    assert torch.ops.suite_meta.foo(x, 1).shape == (2,) and torch.ops.suite_meta.foo(x, 0).shape == (3,)
    with FakeTensorMode():
        y = torch.randn(2, 3)
        assert torch.ops.suite_meta.foo(y, -1).shape == (2,) and torch.ops.suite_meta.foo(y, 1).device.type == "cpu"


def test_no_kernel_says_so(load):
    load(library("suite_empty", foo(row=None), operator("bar", "dv_ints sizes; dv_tensor *out;", "sizes, out", "bar(int[] sizes) -> Tensor out",
                                                         "-> out[*sizes]:f32", row='"cuda", NULL')))
    with pytest.raises(RuntimeError, match="suite_empty::foo.*no kernel"):
        torch.ops.suite_empty.foo(torch.randn(3))
    assert torch.ops.suite_empty.foo(torch.randn(3, device="meta")).shape == (3,)
    with pytest.raises(RuntimeError, match="suite_empty::bar"):
        torch.ops.suite_empty.bar((1, 2, 3))


def test_meta_of_a_data_dependent_size(db):
    with pytest.raises(RuntimeError, match="data-dependent|depends on data"):
        torch.ops.custom_op_db.numpy_nonzero(torch.randn(10, device="meta"))


@pytest.mark.parametrize("mode", ["symbolic", "fake"])
def test_make_fx_of_a_data_dependent_size(db, mode):
    x = torch.randn(5, 5)
    graph = make_fx(torch.ops.custom_op_db.numpy_nonzero, tracing_mode=mode)(x)
    assert "custom_op_db.numpy_nonzero" in graph.code and torch.equal(graph(x), x.nonzero())


def test_make_fx_keeps_symbols(db):
    x = torch.randn(2, 3, 4)
    graph = make_fx(lambda x: torch.ops.custom_op_db.numpy_view_copy(x, x.shape), tracing_mode="symbolic")(x)
    assert "numpy_view_copy.default(x_1, [sym_size_int, sym_size_int_1, sym_size_int_2])" in graph.code
    y = torch.randn(5, 6, 7)
    assert torch.equal(graph(y), y)


def test_compile_of_a_data_dependent_size(db):
    """One graph break that says why, and none when Dynamo may capture such sizes."""
    from torch._dynamo.testing import CompileCounter
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    f = lambda x: torch.ops.custom_op_db.numpy_nonzero(x.clone()).clone()  # noqa: E731
    x = torch.randn(10)
    assert torch.equal(torch.compile(f, backend=CompileCounter())(x), x.nonzero())
    (reason, times), = counters["graph_break"].items()
    assert times == 1 and "custom_op_db.numpy_nonzero" in reason and "output shape depends on input Tensor data" in reason
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(torch.compile(f, backend="aot_eager", fullgraph=True)(x), x.nonzero())
        torch._dynamo.reset()
        boxes, scores = torch.rand(20, 4), torch.rand(20)
        nms = torch.compile(lambda b, s: torch.ops.custom_op_db.numpy_nms(b.clone(), s, 0.1).clone(), backend="aot_eager", dynamic=True, fullgraph=True)
        assert torch.equal(nms(boxes, scores), torch.ops.custom_op_db.numpy_nms(boxes, scores, 0.1))


LINEAR = operator("linear", "const dv_tensor *x, *weight, *bias; dv_tensor *out;", "x, weight, bias, out",
                  "linear(Tensor x, Tensor weight, Tensor bias) -> Tensor out", "x[n k]:f32, weight[m k]:f32, bias[m]:f32 -> out[n m]:f32",
                  "(void)ctx; const float *x = a->x->data, *w = a->weight->data, *b = a->bias->data; float *o = a->out->data; "
                  "const int64_t n = a->x->shape[0], k = a->x->shape[1], m = a->out->shape[1]; "
                  "for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < m; j++) { float s = b[j]; "
                  "for (int64_t l = 0; l < k; l++) s += x[i * k + l] * w[j * k + l]; o[i * m + j] = s; } return DV_OK;")


def test_compile_of_a_whole_operator(load):
    mine = load(library("suite_linear", LINEAR))
    x, w, b = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4)
    expected = torch.nn.functional.linear(x, w, b)
    for f in (torch.ops.suite_linear.linear, mine.linear):
        torch.testing.assert_close(torch.compile(lambda *a: f(*a), backend="eager", fullgraph=True)(x, w, b), expected)
    with pytest.raises(Exception, match="argument 'weight': expected shape"):
        torch.compile(lambda *a: mine.linear(*a), backend="eager", fullgraph=True)(x, torch.randn(4, 2), b)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_writes_through_a_graph(ops, backend):
    torch._dynamo.reset()
    x, y = torch.zeros(3), torch.zeros(3)

    def f(x, y):
        ops.inc(x)
        ops.inc_all([x, y])
        return x + y

    assert torch.compile(f, backend=backend, fullgraph=True)(x, y).tolist() == [3, 3, 3]
    assert x.tolist() == [2, 2, 2] and y.tolist() == [1, 1, 1]


def test_results_that_are_arguments_or_views_in_a_graph(ops):
    """PyTorch refuses to functionalize such operators."""
    torch._dynamo.reset()
    x = torch.randn(2, 3)
    torch.library.opcheck(ops.inc_.default, (x.clone(),))
    for f in (lambda x: ops.inc_(x.clone()) * 2, lambda x: ops.swapped(x, 0, 1) * 2):
        torch.testing.assert_close(torch.compile(f, backend="aot_eager", fullgraph=True)(x), f(x))


# ---- gradients -----------------------------------------------------------------------------------------------------------------------------------

def test_gradient_of_sin(load):
    text = "#include <math.h>\n" + library("suite_sin", foo(EACH % "sinf(((const float *)a->x->data)[i])", more='.gradient = "x: grad * cos(x)",'))
    load(text)
    x = torch.randn(3, requires_grad=True)
    y = torch.ops.suite_sin.foo(x)
    assert torch.equal(torch.autograd.grad(y, x, torch.ones(3))[0], x.cos())


def test_no_grad_needs_nothing_of_autograd(load):
    load(library("suite_nograd", foo(SQUARE, more='.gradient = "x: grad * 2 * x",')))
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        y = torch.ops.suite_nograd.foo(x)
    assert y.grad_fn is None and torch.equal(y, x * x) and torch.ops.suite_nograd.foo(x.detach()).grad_fn is None
    assert torch.ops.suite_nograd.foo(x).grad_fn is not None


def test_results_that_are_not_differentiable(db):
    x = torch.randn(3, 5, requires_grad=True)
    out, ind, inverse = torch.ops.custom_op_db.numpy_sort(x, 1)
    assert out.requires_grad and not ind.requires_grad and not inverse.requires_grad


def test_gradient_of_a_list(db):
    xs = [torch.randn(2, 3, requires_grad=True), torch.randn(4, 3), torch.randn(1, 3, requires_grad=True)]
    y = torch.ops.custom_op_db.numpy_cat(xs, 0)
    weight = torch.arange(21.0).reshape(7, 3)
    (y * weight).sum().backward()
    assert torch.equal(xs[0].grad, weight[:2]) and xs[1].grad is None and torch.equal(xs[2].grad, weight[6:])
    for _ in range(2):  # the graph again
        z = torch.ops.custom_op_db.numpy_cat(xs, 0)
        first = torch.autograd.grad(z.sum(), [xs[0], xs[2]], retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(first, torch.autograd.grad(z.sum(), [xs[0], xs[2]])))


def test_gradient_with_keyword_arguments_and_defaults(load):
    text = operator("foo", "const dv_tensor *w; int64_t x, y, z; dv_tensor *out;", "w, x, y, z, out", "foo(Tensor w, int x=2, *, int y=3, int z) -> Tensor out",
                    "w[*s]:f32 -> out[*s]:f32", "(void)ctx; for (int64_t i = 0, n = dv_numel(a->w); i < n; i++) "
                    "((float *)a->out->data)[i] = ((const float *)a->w->data)[i] * (float)(a->x * a->y * a->z); return DV_OK;",
                    more='.gradient = "w: grad * (x * y * z)",')
    load(library("suite_keyword", text))
    w = torch.randn(3, requires_grad=True)
    y = torch.ops.suite_keyword.foo(w, z=42)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), w.detach() * 252)
    assert w.grad.tolist() == [252.0] * 3


# ---- dispatch by subclasses and modes ---------------------------------------------------------------------------------------------------------------

def test_dispatch_rules(db):
    """torch.library's rules for a subclass and for a mode are asked, as for any operator."""
    from torch.testing._internal.two_tensor import TwoTensor, TwoTensorMode
    x, seen = torch.randn(3), []
    with torch.library._scoped_library("custom_op_db", "FRAGMENT") as lib:
        lib._register_torch_dispatch_rule("numpy_cube", TwoTensor, lambda cls, func, types, args, kwargs: seen.append(cls) or (x.sin(), x))
        lib._register_torch_dispatch_rule("numpy_cube", TwoTensorMode, lambda mode, func, types, args, kwargs: seen.append("mode") or (x.cos(), x))
        for f in (torch.ops.custom_op_db.numpy_cube, db.numpy_cube):
            assert torch.equal(f(TwoTensor(x, x))[0], x.sin())
            with TwoTensorMode():
                assert torch.equal(f(x)[0], x.cos())
    assert seen == [TwoTensor, "mode"] * 2
    two = torch.ops.custom_op_db.numpy_mul(TwoTensor(x, x + 1), TwoTensor(x, x))
    assert torch.equal(two.a, x * x) and torch.equal(two.b, (x + 1) * x)


# ---- the list --------------------------------------------------------------------------------------------------------------------------------------------

def test_the_table_is_whole():
    """Every row of docs/torch-suite.md names a test that is here (or in another file of this folder), or a reason."""
    page = (ROOT / "docs/torch-suite.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \|$", page, re.M)
    names = [name for name, _ in rows]
    assert len(names) == len(set(names)) == 239
    there = {n for f in pathlib.Path(__file__).parent.glob("test_*.py") for n in re.findall(r"^def (test_\w+)", f.read_text(), re.M)}
    cited = {n for _, answer in rows for n in re.findall(r"`(test_\w+)`", answer)}
    assert cited <= there, cited - there
    for name, answer in rows:
        assert "`test_" in answer or re.match(r"(PyTorch's own|only Python|cannot)", answer), name
    passing = sum("`test_" in answer for _, answer in rows)
    assert f"| PyTorch's tests | {len(rows)} |" in page and f"| pass, adapted | {passing} |" in page
    mine = {n for n in re.findall(r"^def (test_\w+)", pathlib.Path(__file__).read_text(), re.M)} - {"test_the_table_is_whole", "test_there_are_operators"}
    assert mine <= cited, mine - cited
