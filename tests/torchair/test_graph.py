"""Operators in torchair's graphs: the graph that the real torchair makes, executed, gives what eager gives."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
import stand_in  # before torch; skips where torchair is not installed
import numpy as np
import torch

import dovetail
import dovetail.torchair

dovetail.ops._load_all()
D = torch.ops.dovetail


def shipped():
    return [library for library in dovetail.libraries() if library.name != "base" and pathlib.Path(library.path).parent.name == "ops"]


def make_backend():
    import torchair
    return torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())


@pytest.fixture(scope="session")
def backend():
    for library in shipped():
        stand_in.known(library)
    return make_backend()


def compiler(backend):
    torch._dynamo.reset()
    stand_in.GRAPHS.clear()
    return lambda f, **options: torch.compile(f, backend=backend, fullgraph=True, **options)


@pytest.fixture
def compiled(backend):
    return compiler(backend)


def check(compiled, f, *inputs, nodes=(), **options):
    found = compiled(f, **options)(*[x.clone() for x in inputs])
    expected = f(*[x.clone() for x in inputs])
    torch.testing.assert_close(found, expected)
    for node in nodes:
        assert stand_in.GRAPHS[0].count(node) == 1, stand_in.GRAPHS


def test_a_call_is_one_node(compiled):
    check(compiled, lambda x, w: D.rms_norm(x, w, 1e-2) * 2, torch.randn(4, 6), torch.randn(6), nodes=["RmsNorm"])


def test_the_functions_of_a_library(compiled):
    check(compiled, lambda x, w: dovetail.ops.rms_norm(x, w, eps=1e-2), torch.randn(4, 6), torch.randn(6), nodes=["RmsNorm"])


def test_promotion_and_broadcast(compiled):
    check(compiled, lambda x, y: D.add_custom(x, y), torch.randn(4, 6, dtype=torch.bfloat16), torch.randn(6), nodes=["AddCustom"])


@pytest.mark.parametrize("x, y, casts", [(torch.ones(3), torch.ones(3), 0), (torch.ones(3).half(), torch.ones(3), 1), (torch.ones(3).half(), torch.tensor(0.1), 1),
                                         (torch.ones(3, dtype=torch.int32), torch.tensor(0.5), 1), (torch.ones(3).bfloat16(), torch.ones(3).half(), 2)])
def test_inputs_that_are_promoted_arrive_in_one_dtype(compiled, x, y, casts):
    """GE infers dtypes without shapes: it could not know that a 0-d tensor counts less."""
    check(compiled, lambda x, y: D.add_custom(x, y), x, y, nodes=["AddCustom"])
    assert stand_in.GRAPHS[0].count("Cast") == casts


def test_optional_inputs_and_attributes(compiled):
    x, w, b = torch.randn(4, 6), torch.randn(3, 6), torch.randn(3)
    check(compiled, lambda x, w: D.linear(x, w), x, w, nodes=["Linear"])
    check(compiled, lambda x, w, b: D.linear(x, w, b), x, w, b)


def test_several_results(compiled):
    check(compiled, lambda g, x, w: D.rms_norm_backward(g, x, w), torch.randn(5, 8), torch.randn(5, 8), torch.randn(8), nodes=["RmsNormBackward"])


def test_sizes_that_change(compiled):
    f = lambda x, w: D.rms_norm(x, w) + x
    made = compiled(f, dynamic=True)
    for n in (3, 5, 7):
        x, w = torch.randn(n, 6), torch.randn(6)
        torch.testing.assert_close(made(x, w), f(x, w))


def test_operators_that_write(compiled):
    def rotate(positions, q, k, cache):
        q, k = q * 2, k * 3
        D.rotary_embedding(positions, q, k, 8, cache, True)
        return q + k
    check(compiled, rotate, torch.arange(4), torch.randn(4, 8), torch.randn(4, 8), torch.randn(16, 8), nodes=["RotaryEmbedding"])


def test_an_input_that_is_written(compiled):
    def rotate(positions, q, k, cache):
        D.rotary_embedding(positions, q, k, 8, cache, True)
    given = lambda: [torch.arange(4), torch.ones(4, 8), torch.ones(4, 8), torch.linspace(0, 1, 128).reshape(16, 8)]
    mine, theirs = given(), given()
    compiled(rotate)(*mine)
    rotate(*theirs)
    torch.testing.assert_close(mine, theirs)
    assert not torch.equal(mine[1], given()[1])


def test_forward_and_backward(compiled):
    x, y = torch.randn(4, 8), torch.randn(4, 8)

    def gradients(f):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        (f(a, b) * b).backward(torch.ones(4, 8))
        return a.grad, b.grad
    torch.testing.assert_close(gradients(compiled(lambda a, b: D.swiglu(a, b))), gradients(lambda a, b: D.swiglu(a, b)))
    assert any("Swiglu" in g for g in stand_in.GRAPHS) and any("SwigluBackward" in g for g in stand_in.GRAPHS)


def test_a_converter_of_the_program_for_aten_stays(backend):
    """Ours takes the place of one that only raises, as torchair's for amax does."""
    import torchair
    ours, scope = torch.ops.aten.amax.default._ge_converter, {"__name__": __name__}
    again = dovetail.torchair.source.PREAMBLE + dovetail.torchair.source.ATEN
    try:
        torchair.register_fx_node_ge_converter(torch.ops.aten.amax.default)(lambda self, dim=(), keepdim=False, meta_outputs=None: self.shape)
        theirs = torch.ops.aten.amax.default._ge_converter
        exec(again, scope)
        assert theirs is torch.ops.aten.amax.default._ge_converter is not ours
    finally:
        torch.ops.aten.amax.default._ge_converter = ours


def test_torchair_refuses_sizes_that_only_the_kernel_knows(compiled):
    """As of parity.REASONS: its own operators are refused in the same words."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.raises(Exception, match="GuardOnDataDependentSymNode"):
        compiled(lambda x: x.nonzero())(torch.ones(3))


def test_the_reason_why_an_operator_is_no_node(compiled):
    """torchair's own words would be that AdamwStep is not installed."""
    x = [torch.ones(3) for _ in range(4)]
    with pytest.raises(Exception, match="dovetail::adamw_step_: it writes the elements of a list: GE's graphs have no such node"):
        compiled(lambda p, g, m, v: D.adamw_step_([p], [g], [m], [v], [], 1))(*x)


def sites():
    """The call sites of all shipped operators: ops/*/cases.txt."""
    for file in sorted((pathlib.Path(__file__).parents[2] / "ops").glob("*/cases.txt")):
        for line in file.read_text().splitlines():
            if line and not line.startswith("#"):
                yield line


def of_array(a):
    small = {2: np.int16, 1: np.int8}.get(a.itemsize) if a.dtype.kind == "V" or a.dtype.name not in vars(np) else None  # a type of ml_dtypes
    return torch.from_numpy(a) if small is None else torch.from_numpy(a.view(small)).view(getattr(torch, a.dtype.name))


class Called:
    """A call site with torch's tensors, in eager or in a graph."""

    def __init__(self, site):
        f, arguments = dovetail.site(site)
        space, name = f.name.split("::")
        name, _, overload = name.partition(".")
        self.overload = getattr(getattr(getattr(torch.ops, space), name), overload or "default")
        self.name, self.tree = f.name, json.loads(f.json())
        given = {n: [of_array(x) for x in a] if isinstance(a, list) and a and isinstance(a[0], np.ndarray) else
                 of_array(a) if isinstance(a, np.ndarray) else a for n, a in arguments.items()}
        self.tensors = {n: a for n, a in given.items() if isinstance(a, torch.Tensor)}
        self.lists = {n: a for n, a in given.items() if isinstance(a, list) and a and isinstance(a[0], torch.Tensor)}
        self.rest = {n: a for n, a in given.items() if n not in self.tensors and n not in self.lists}
        self.written = [s[0] for s in f._slots()[0] if s[3] & 8]
        self.tolerance = {"rtol": 1e-6, "atol": 1e-6} if any(isinstance(a, float) for a in self.rest.values()) else {"rtol": 0, "atol": 0}  # an attribute of GE has 32 bits
        reason = dovetail.torchair.source.refusal(self.tree)
        if reason:
            pytest.skip(reason)
        if any(arguments.get(name) is None for name in self.written):
            pytest.skip("torchair's auto_functionalized fails on a written argument that is None")

    def copies(self):
        return {n: a.clone() for n, a in self.tensors.items()}, {n: [x.clone() for x in a] for n, a in self.lists.items()}

    def call(self, tensors, lists):
        """What it gives, and the tensors after it."""
        return self.overload(**tensors, **lists, **self.rest), tensors

    def one_node(self):
        assert stand_in.GRAPHS[0].count(dovetail.torchair.source.node_name(self.name)) == 1


def same_bits(compiled, site):
    called = Called(site)
    expected = called.call(*called.copies())
    if no_elements(expected[0]):
        pytest.skip("torchair makes no node of an operator whose results are empty")
    found = compiled(called.call)(*called.copies())
    torch.testing.assert_close(found, expected, **called.tolerance, equal_nan=True)
    called.one_node()


@pytest.mark.parametrize("site", sites())
def test_the_same_bits_as_eager(compiled, site):
    same_bits(compiled, site)


def no_elements(results):
    return isinstance(results, torch.Tensor) and not results.numel()


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else [x for v in value for x in flat(v)] if isinstance(value, (list, tuple)) else []


def has_gradient(site):
    """Declared, or that of the decomposition, which an operator that writes has not."""
    tree = json.loads(dovetail.site(site)[0].json())
    return tree["gradient"] or tree["native"] and not any(a["alias"] for a in tree["schema"]["args"])


def same_gradients(compiled, site):
    """Of a weighted sum of all results and written arguments: the graph of forward and that of backward, executed."""
    called = Called(site)
    begin = [x.requires_grad_(x.dtype.is_floating_point) for x in flat([list(g.values()) for g in called.copies()])]
    at = [x for x in begin if x.requires_grad and x.numel()]
    if not at or no_elements(called.call(*called.copies())[0]):
        pytest.skip("no gradient: integers alone, or no elements")

    def whole(*given):
        given = iter([x.clone() for x in given])  # an operator may write over its arguments
        tensors = {n: next(given) for n in called.tensors}
        out, _ = called.call(tensors, {n: [next(given) for _ in a] for n, a in called.lists.items()})
        return flat(out), [tensors[n] for n in called.written]

    def gradients(f):
        results = [x for x in flat(f(*begin)) if x.requires_grad]
        assert results
        return torch.autograd.grad(results, at, [(1 + torch.arange(x.numel()) % 4 / 4).reshape(x.shape).to(x.dtype) for x in results], allow_unused=True)
    expected = gradients(whole)
    found = gradients(compiled(whole))
    assert [g is None for g in found] == [g is None for g in expected]  # an argument that nothing depends on
    torch.testing.assert_close([g for g in found if g is not None], [g for g in expected if g is not None], equal_nan=True)
    called.one_node()


@pytest.mark.parametrize("site", filter(has_gradient, sites()))
def test_the_same_gradients_as_eager(compiled, site):
    same_gradients(compiled, site)


def test_an_author_s_converter_stays(backend):
    import torchair
    given = lambda *args, **kwargs: None
    torchair.register_fx_node_ge_converter(D.gelu.default)(given)
    try:
        assert D.gelu.default._ge_converter.__wrapped__ is given  # in place of ours
        with pytest.raises(ValueError, match="dovetail::gelu: GE has no prototype NoSuchNode"):
            dovetail.torchair.register(dovetail.ops.gelu, "NoSuchNode")
        assert D.gelu.default._ge_converter.__wrapped__ is given
    finally:
        dovetail.torchair.register(dovetail.ops.gelu)
    assert D.gelu.default._ge_converter.__wrapped__ is not given


def test_another_node_of_that_name():
    stand_in.PROTOTYPES["SomebodysNorm"] = ([("x", "required"), ("gamma", "required")], [("y", "required")], [])
    with pytest.raises(ValueError, match="dovetail::rms_norm: GE's SomebodysNorm has the inputs x, gamma, expected x, weight"):
        dovetail.torchair.register(dovetail.ops.rms_norm, "SomebodysNorm")


def test_a_node_with_other_names(compiled):
    """GE's inputs in another order, one that the operator lacks, another attribute and another output."""
    import torchair
    stand_in.PROTOTYPES["SomebodysNorm"] = ([("gamma", "required"), ("beta", "optional"), ("input", "required")], [("y", "required")], [("epsilon", "float"), ("mode", "int")])
    names = {"x": "input", "weight": "gamma", "eps": "epsilon", "out": "y"}
    seen = []

    def norm(node, *given):
        seen.append(([d.name for d in node.input_desc], list(node.input), [d.name for d in node.output_desc], round(node.attr["epsilon"].f, 6)))
        return D.rms_norm(given[2], given[0], node.attr["epsilon"].f)
    stand_in.BUILT_IN["SomebodysNorm"] = norm
    try:
        dovetail.torchair.register(dovetail.ops.rms_norm, "SomebodysNorm", names)
        check(compiled, lambda x, w: D.rms_norm(x, w, 0.25), torch.randn(4, 6), torch.randn(6), nodes=["SomebodysNorm"])
        inputs, given, outputs, eps = seen[0]
        assert inputs == ["gamma", "beta", "input"] and given[1] == "" and outputs == ["y"] and eps == 0.25
        for wrong, said in [({"gama": "gamma"}, "names: expected some of x, weight, out, eps, found gama"), ({**names, "eps": "e"}, "attributes epsilon, mode, expected e"),
                            ({**names, "x": "gamma"}, "inputs gamma, beta, input, expected gamma, gamma"), ({**names, "out": "z"}, "outputs y, expected z"),
                            ({"x": "input"}, "inputs gamma, beta, input, expected input, weight")]:
            with pytest.raises(ValueError, match=f"^dovetail::rms_norm: .*{said}"):
                dovetail.torchair.register(dovetail.ops.rms_norm, "SomebodysNorm", wrong)
        check(compiled, lambda x, w: D.rms_norm(x, w, 0.25), torch.randn(4, 6), torch.randn(6), nodes=["SomebodysNorm"])  # a refusal changes nothing
    finally:
        del stand_in.PROTOTYPES["SomebodysNorm"], stand_in.BUILT_IN["SomebodysNorm"]
        dovetail.torchair.register(dovetail.ops.rms_norm)


def test_a_list_that_lacks_an_element(compiled, odd):
    stand_in.known(odd)
    x = torch.randn(4)
    check(compiled, lambda x: torch.ops.odd.first(x, [x, x * 2]), x, nodes=["First"])
    with pytest.raises(Exception, match="odd.first.default: xs: element 1 is None, and a dynamic input of a GE node has no absent elements"):
        compiled(lambda x: torch.ops.odd.first(x, [x, None]))(x)


def test_what_became_of_them(backend):
    said = dovetail.torchair.explain()
    assert "dovetail::rms_norm: the node RmsNorm\n" in said
    assert "dovetail::advance_step.v2: the node AdvanceStepV2\n" in said


def test_native_forms_where_ge_has_no_node(compiled):
    import torchair
    prototype = stand_in.PROTOTYPES.pop("Sigmoid")
    del D.sigmoid.default._ge_converter
    dovetail.torchair._said["dovetail::sigmoid"] = "no node"
    try:
        found = dovetail.torchair.decompositions()
        assert D.sigmoid.default in found and D.rms_norm.default not in found
        backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig(), custom_decompositions=found)
        x = torch.randn(4, 6)
        torch.testing.assert_close(torch.compile(lambda x: D.sigmoid(x), backend=backend, fullgraph=True)(x), x.sigmoid())
        assert stand_in.GRAPHS[0].count("Sigmoid") == 1  # GE's own: of aten.sigmoid
    finally:
        stand_in.PROTOTYPES["Sigmoid"] = prototype
        dovetail.torchair.register(dovetail.ops.sigmoid)


def test_a_size_that_is_symbolic_cannot_be_an_attribute(compiled):
    def cut(x):
        return D.crop(x, [0, 0, x.shape[2] - 1, 2])
    with pytest.raises(Exception, match="dovetail.crop.default: box: a symbolic size cannot be an attribute of a GE node"):
        compiled(cut, dynamic=True)(torch.randn(1, 2, 5, 6))


NAMES = r"""
#include <dovetail_op.h>
struct names { const dv_tensor *x, *out; dv_opt_scalar lambda; int64_t torch; dv_string _fixed; dv_opt_dtype len; dv_tensor *y; };
static int names_f32(dv_context *ctx, const struct names *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->y); i++)
        ((float *)a->y->data)[i] = ((const float *)a->x->data)[i] + ((const float *)a->out->data)[i] * (float)a->torch + (float)a->_fixed.size;
    return DV_OK;
}
#define NAMES(FUNCTION, NAME)                                                               \
    DV_OPERATOR(FUNCTION, struct names, (x, out, lambda, torch, _fixed, len, y),            \
        .schema = NAME "(Tensor x, Tensor out, Scalar? lambda, int torch=2, *, "            \
                       "str _fixed=\"a\\n\\\\\", ScalarType? len=None) -> Tensor y",        \
        .contract = "x[*s]:T, out[*s]:T -> y[*s]:T",                                        \
        .kernels = DV_KERNELS(DV_KERNEL(struct names, "cpu", "f32", names_f32)))
NAMES(some_names, "some_names");
NAMES(other_names, "Some_names");
NAMES(overload, "some.names");
NAMES(digit, "_2d");
struct unnamed { const dv_tensor *out; dv_tensor *result; };
DV_OPERATOR(unnamed, struct unnamed, (out, result), .schema = "unnamed(Tensor out) -> Tensor", .contract = "out[*s] -> [*s]:dtype(out)", .native = "mul(out, 2)");
struct first { const dv_tensor *x; dv_tensors xs; dv_tensor *y; };
static int first_f32(dv_context *ctx, const struct first *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->y); i++)
        ((float *)a->y->data)[i] = ((const float *)a->xs.data[0]->data)[i];
    return DV_OK;
}
DV_OPERATOR(first, struct first, (x, xs, y), .schema = "first(Tensor x, Tensor?[] xs) -> Tensor y", .contract = "x[*s]:T, xs{i}[*s]:T -> y[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct first, "cpu", "f32", first_f32)));
struct held { const dv_tensor *x; dv_opt_int n; dv_opt_complex c; dv_memory_format m; dv_opt_device d; dv_opt_dtype t; dv_tensor *y; };
DV_OPERATOR(held, struct held, (x, n, c, m, d, t, y),
    .schema = "held(Tensor x, int? n=5, complex? c=None, MemoryFormat m=contiguous_format, Device? d=None, ScalarType? t=float32) -> Tensor y",
    .contract = "x[*s]:T -> y[*s]:T", .native = "if(present(n), mul(x, n), x)");
struct lost { const dv_tensor *x; dv_complex c; dv_tensor *y; };
DV_OPERATOR(lost, struct lost, (x, c, y), .schema = "lost(Tensor x, complex c) -> Tensor y", .contract = "x[*s]:T -> y[*s]:T", .native = "mul(x, c)");
struct scaled { const dv_tensor *x; dv_scalar c; dv_tensor *y; };
DV_OPERATOR(scaled, struct scaled, (x, c, y), .schema = "scaled(Tensor x, Scalar c=1) -> Tensor y",
    .contract = "x[*s]:T -> y[*s]:promote(T, c)", .native = "mul(x, c)");
DV_LIBRARY(odd, &dv_op_held, &dv_op_lost, &dv_op_scaled, &dv_op_first, &dv_op_some_names, &dv_op_other_names, &dv_op_overload, &dv_op_digit, &dv_op_unnamed);
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    file = tmp_path_factory.mktemp("odd") / "odd.c"
    file.write_text(NAMES)
    return dovetail.load(file)


def test_names_that_python_or_the_converter_uses(compiled, odd):
    stand_in.known(odd)
    assert dovetail.torchair.explain().count("odd::some_names: the node SomeNames\n") == 1
    stand_in.known(odd)  # loaded again: the converter is still ours
    assert dovetail.torchair.explain().count("odd::some_names: the node SomeNames\n") == 1
    x = torch.randn(4)
    check(compiled, lambda x: torch.ops.odd.some_names(x, x, None, torch=3, _fixed="abc", len=torch.float32), x, nodes=["SomeNames"])
    check(compiled, lambda x: torch.ops.odd.some_names(x, x, 3), x, nodes=["SomeNames"])


def test_a_result_without_a_name_beside_an_argument_out(compiled, odd):
    """An input and an output of one name would be a written argument."""
    stand_in.known(odd)
    check(compiled, lambda x: torch.ops.odd.unnamed(x), torch.randn(4), nodes=["Unnamed"])


@pytest.mark.parametrize("value", [2**24 + 1, 1j])
def test_a_number_that_no_attribute_holds(compiled, odd, value):
    stand_in.known(odd)
    expected = r"odd.some_names.default: lambda: expected what an attribute of a GE node can hold \(floats have 32 bits\), found "
    with pytest.raises(Exception, match=expected + str(value)):
        compiled(lambda x: torch.ops.odd.some_names(x, x, value))(torch.randn(4))


@pytest.mark.parametrize("given, said", [({"c": 5.0}, "c: expected the default None, found .5.0j."), ({"d": torch.device("cpu")}, "d: expected the default None, found device"),
                                         ({"m": torch.channels_last}, "m: expected the default torch.contiguous_format, found torch.channels_last"),
                                         ({"n": None}, "n: expected a value, found None: a GE node without this attribute has its default, 5"),
                                         ({"t": None}, "t: expected a value, found None: a GE node without this attribute has its default, torch.float32")])
def test_a_value_that_a_node_cannot_have(compiled, odd, given, said):
    stand_in.known(odd)
    with pytest.raises(Exception, match="odd.held.default: " + said):
        compiled(lambda x: torch.ops.odd.held(x, **given))(torch.randn(4))


def test_defaults_of_arguments_that_a_node_lacks(compiled, odd):
    stand_in.known(odd)
    check(compiled, lambda x: torch.ops.odd.held(x), torch.randn(4), nodes=["Held"])
    check(compiled, lambda x: torch.ops.odd.held(x, 3, None, m=torch.contiguous_format, d=None, t=torch.float32), torch.randn(4), nodes=["Held"])
    assert "odd::lost: no node: no attribute of a GE node holds its argument 'c' of type complex, which has no default\n" in dovetail.torchair.explain()


def test_a_number_that_decides_the_dtype(compiled, odd):
    """It is a Float in a node, and GE promotes by that."""
    stand_in.known(odd)
    i, f = torch.arange(4), torch.randn(4)
    check(compiled, lambda x: torch.ops.odd.scaled(x, 2.5), i, nodes=["Scaled"])
    check(compiled, lambda x: torch.ops.odd.scaled(x, 2), f)
    check(compiled, lambda x: torch.ops.odd.scaled(x, True), f)
    for given in ((2,), (True,), ()):
        with pytest.raises(Exception, match="odd.scaled.default: c: expected a float, found (2|True|1): it is a Float in a GE node"):
            compiled(lambda x: torch.ops.odd.scaled(x, *given))(i)


def test_an_attribute_of_another_type():
    prototype = stand_in.PROTOTYPES["RmsNorm"]
    stand_in.PROTOTYPES["SomebodysNorm"] = (*prototype[:2], [(name, "int") for name, _ in prototype[2]])
    with pytest.raises(ValueError, match="dovetail::rms_norm: GE's SomebodysNorm has the attribute eps: Int, expected Float"):
        dovetail.torchair.register(dovetail.ops.rms_norm, "SomebodysNorm")


def test_a_written_argument_that_is_absent(compiled):
    with pytest.raises(Exception, match="dovetail.add_rms_norm.default: residual: expected a tensor, found None: torchair makes no graph"):
        compiled(lambda x, w: D.add_rms_norm(x, None, w))(torch.randn(2, 4), torch.randn(4))


def test_nodes_of_one_name(odd):
    """The second is left out of every file, and named; two files of one package cannot have it."""
    assert dovetail.torchair.refused(odd) == {"odd::Some_names": "SomeNames is the node of odd::some_names", "odd::some.names": "SomeNames is the node of odd::some_names",
                                              "odd::_2d": "'2d' cannot be the name of a node",
                                              "odd::lost": "no attribute of a GE node holds its argument 'c' of type complex, which has no default"}
    texts = dovetail.torchair.prototypes(odd), dovetail.torchair.export(odd), dovetail.torchair.shapes(odd)
    assert [t.count("odd::Some_names: no node: SomeNames is the node of odd::some_names\n") for t in texts] == [1, 1, 1]
    assert texts[0].count("REG_OP(") == 5 and ".INPUT(out, TensorType::ALL())\n    .OUTPUT(result," in texts[0]
    assert '.ATTR(_fixed, String, "a\\012\\\\")' in texts[0] and cann_compiles(texts[0] * 2)


ALONE = r"""
import runpy
import sys

import pytest
import stand_in
import torch
import torchair  # knows no prototypes yet: Dovetail registers nothing

import test_graph as t

for library in t.shipped():
    stand_in.declare_library(library)
ours = [op.overload for library in t.shipped() for op in t.dovetail.torch.registered(library).operators.values()
        if op.name not in t.dovetail.torchair.refused(library)]  # those have a converter that says why
assert len(ours) > 40 and not any(hasattr(overload, "_ge_converter") for overload in ours)
names = set(sys.modules)
runpy.run_path(sys.argv[1])
assert not [m for m in set(sys.modules) - names if m.startswith("dovetail")]
backend, seen, ran = t.make_backend(), set(), []
for run in t.same_bits, t.same_gradients:
    for site in filter(t.has_gradient, t.sites()) if run is t.same_gradients else t.sites():
        if (run, site.partition("(")[0]) not in seen:
            try:
                run(t.compiler(backend), site)
            except pytest.skip.Exception:
                continue
            seen.add((run, site.partition("(")[0]))
print(sum(run is t.same_bits for run, _ in seen), sum(run is t.same_gradients for run, _ in seen))
"""


def test_the_exported_converters_alone(tmp_path):
    """`dovetail export --torchair`: in a process with no other converters of ours, each operator's first call and its gradient."""
    with open(tmp_path / "converters.py", "w") as file:
        subprocess.run(["dovetail", "export", "--torchair", *(x.path for x in shipped())], check=True, stdout=file)
    assert "dovetail" not in "".join(line for line in (tmp_path / "converters.py").read_text().splitlines() if line.startswith(("import", "from")))
    env = {**os.environ, "PYTHONPATH": f"{pathlib.Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}"}
    done = subprocess.run([sys.executable, "-c", ALONE, tmp_path / "converters.py"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    nodes = {s.partition("(")[0] for s in sites()} - set(dovetail.torchair.refused(*shipped()))
    assert done.stdout.split()[-2:] == [str(len(names)) for names in (nodes, nodes & {s.partition("(")[0] for s in filter(has_gradient, sites())})]


def test_exported_files(tmp_path):
    """The prototypes are those that GE knows here."""
    done = subprocess.run([sys.executable, "-m", "dovetail.torchair", "reg-op", "", dovetail.libraries()[-1].path], capture_output=True, text=True)
    assert done.returncode == 0 and 0 < done.stdout.count("REG_OP(") == done.stdout.count("OP_END_FACTORY_REG("), done.stderr


def cann_compiles(text):
    headers = pathlib.Path(torch.__file__).parents[1] / "torch_npu/include/third_party/acl/inc"
    done = subprocess.run(["c++", "-std=c++17", "-Wall", "-Wextra", "-x", "c++", "-fsyntax-only", "-isystem", headers, "-"], input=text, capture_output=True, text=True)
    return not done.returncode and not done.stderr


def test_prototypes_compile_with_cann_s_header():
    """graph/operator_reg.h is in torch-npu's wheel."""
    text = dovetail.torchair.prototypes(*shipped())
    assert text.count("REG_OP(") > 30 and cann_compiles(text)
    assert not cann_compiles(text.replace("OPTIONAL_INPUT", "OPTION_INPUT", 1))
