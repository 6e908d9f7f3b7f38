"""Fakes from the contract: equal to what really happens, and no more compilations than native PyTorch."""
import dovetail
import pytest
import torch
import torch._dynamo.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

pytestmark = pytest.mark.quick

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
ALL = [*FLOATS, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128]


def describe(x):
    return [(tuple(t.shape), t.stride(), t.dtype, t.device.type, t.storage_offset()) for t in (x if isinstance(x, (tuple, list)) else [x])]


def attempt(f):
    try:
        return describe(f())
    except RuntimeError as e:
        return str(e).split("\n")[0]


def fake_equals_real(op, *args):
    """The same shapes, strides, dtypes, or the same message."""
    real = attempt(lambda: op(*args))
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        fake_args = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, list(args))
        fake = attempt(lambda: op(*fake_args))
    meta = attempt(lambda: op(*torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), list(args))))
    assert fake == real
    if isinstance(real, list):
        assert [(*d[:3], d[4]) for d in meta] == [(*d[:3], d[4]) for d in real]


sizes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(a=sizes, b=sizes, t=st.sampled_from(ALL), u=st.sampled_from(ALL))
def test_broadcast_and_promote(ops, a, b, t, u):
    x, y = torch.zeros(a, dtype=t), torch.zeros(b, dtype=u)
    fake_equals_real(ops.badd, x, y)
    try:
        shape, dtype = torch.broadcast_shapes(a, b), torch.result_type(x, y)
    except RuntimeError:
        return
    assert describe(ops.badd(x, y))[0][::2][:2] == (shape, dtype)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_strides_of_like(ops, data):
    shape = data.draw(sizes)
    x = torch.zeros(shape).permute(data.draw(st.permutations(range(len(shape)))))
    if x.dim() and data.draw(st.booleans()):
        x = x[..., ::2] if x.shape[-1] > 1 else x.unsqueeze(0).expand(2, *x.shape)
    with FakeTensorMode() as mode:  # torch.empty_like's own fake differs from the real one where sizes are 0 or 1
        y = mode.from_tensor(x)
        assert describe(ops.like(y)) == describe(torch.empty_like(y))
    assert ops.like(x).stride() == torch.empty_like(x).stride()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_cat(ops, data):
    shape = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    dim = data.draw(st.integers(0, len(shape) - 1))
    xs = []
    for _ in range(data.draw(st.integers(1, 3))):
        shape[dim] = data.draw(st.integers(0, 3))
        xs.append(torch.randn(shape))
    if data.draw(st.integers(0, 4)) == 0:
        xs.append(torch.randn([n + 1 for n in shape]))
    fake_equals_real(ops.cat, xs, dim)
    try:
        expected = torch.cat(xs, dim)
    except RuntimeError:
        return
    assert torch.equal(ops.cat(xs, dim), expected)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(x=sizes, bias=st.one_of(st.none(), st.integers(0, 4)), layout=st.sampled_from(["NT", "N", "?"]))
def test_cases_and_optional_tensors(ops, x, bias, layout):
    fake_equals_real(ops.pick, torch.randn(x), None if bias is None else torch.randn(bias), layout)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(n=st.integers(0, 9))
def test_a_size_that_is_solved_for(ops, n):
    fake_equals_real(ops.halves, torch.randn(n))


# ---- symbolic sizes ------------------------------------------------------------------------------------------------------------

SHAPES = [(4, 6), (8, 6), (8, 3), (1, 6), (4, 1), (1, 1), (0, 6), (5, 7), (3, 3), (2, 2)]


def compilations(f, inputs):
    """How many graphs there are after each of the calls."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    g = torch.compile(f, backend=counter, fullgraph=True, dynamic=True)
    counts = []
    for args in inputs:
        found, expected = g(*args), f(*args)
        torch.testing.assert_close(found, expected)
        counts.append(counter.frame_count)
    return counts


@pytest.mark.parametrize("ours, native, inputs", [
    (lambda o: lambda x: o.like(x) + 1, lambda x: x.clone() + 1, lambda s: (torch.randn(s),)),
    (lambda o: lambda x, y: o.badd(x, y) + 1, lambda x, y: torch.add(x, y) + 1, lambda s: (torch.zeros(s), torch.zeros(s))),
    (lambda o: lambda x, y: o.badd(x, y) + 1, lambda x, y: torch.add(x, y) + 1, lambda s: (torch.zeros(s), torch.zeros(s[1:]))),
    (lambda o: lambda x, y: o.cat([x, y], 1) + 1, lambda x, y: torch.cat([x, y], 1) + 1, lambda s: (torch.randn(s), torch.randn(s))),
    (lambda o: lambda x: o.cube(x) + 1, lambda x: x * x * x + 1, lambda s: (torch.randn(s).double(),)),
    (lambda o: lambda x: o.halves(x)[0] + 1, lambda x: x[:x.shape[0] // 2] + 1, lambda s: (torch.randn(2 * s[0]),)),
    (lambda o: lambda x: o.pick(x) + 1, lambda x: x.clone() + 1, lambda s: (torch.randn(s),)),
])
def test_no_more_compilations_than_native(ops, ours, native, inputs):
    inputs = [inputs(s) for s in SHAPES]
    found, expected = compilations(ours(ops), inputs), compilations(native, inputs)
    assert all(a <= b for a, b in zip(found, expected)), (found, expected)


def test_one_compilation_for_all_sizes(ops):
    assert compilations(lambda x, y: ops.badd(ops.like(x), y), [(torch.zeros(n, m), torch.zeros(n, m)) for n, m in ((2, 3), (5, 7), (11, 4))]) == [1, 1, 1]


def test_a_size_that_depends_on_data(ops):
    def f(x):
        return ops.nonzero(x) * 2

    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    g = torch.compile(f, backend=counter, fullgraph=True, dynamic=True)
    for x in (torch.tensor([0.0, 1, 2]), torch.tensor([1.0, 0, 0, 0, 3]), torch.tensor([0.0, 0])):
        assert torch.equal(g(x), f(x))
    assert counter.frame_count == 1
    assert ops.nonzero(torch.tensor([0.0, 1, 2])).tolist() == [1, 2]


def test_inductor(ops):
    torch._dynamo.reset()
    f = torch.compile(lambda x, y: torch.relu(ops.badd(ops.like(x * 2), y)) + 1, fullgraph=True, dynamic=True)
    for n in (3, 8, 13):
        x = torch.randn(n, 4)
        assert torch.equal(f(x, x), torch.ones(n, 4))


def test_mutation_in_a_graph(ops):
    def f(x):
        y = x + 1
        ops.inc(y)
        ops.inc_all([y, y.clone()])
        ops.inc(x)
        return y * 2

    a, b = torch.zeros(3), torch.zeros(3)
    torch._dynamo.reset()
    found = torch.compile(f, backend="aot_eager", fullgraph=True)(a)
    assert torch.equal(found, f(b)) and torch.equal(a, b)


def test_a_wrong_shape_in_a_graph_is_our_message(ops):
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"torch_ops::fail_if: argument 'x': expected shape \[n, m\]"):
        torch.compile(lambda x: ops.fail_if(x, 0), backend="aot_eager", fullgraph=True)(torch.randn(3))


def test_fake_versions(ops):
    with FakeTensorMode():
        x = torch.zeros(3)
        ops.inc(x)
        assert x._version == 1
    x = torch.zeros(3, device="meta")
    ops.inc(x)
    assert x._version == 1


def test_export(ops):
    class M(torch.nn.Module):
        def forward(self, x):
            return ops.like(x) + 1

    n = torch.export.Dim("n")
    program = torch.export.export(M(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: n}})
    assert any("torch_ops.like" in str(node.target) for node in program.graph.nodes)
    assert torch.equal(program.module()(torch.ones(7, 4)), torch.full((7, 4), 2.0))


def test_expectations_are_kept_for_plain_values_alone():
    """Native forms on an accelerator ask for them at each call. Another shape, stride, type or scalar is another question, and a mistake is one each time."""
    torch.ops.dovetail.swiglu
    operators = [o for library in dovetail.libraries() for o in dovetail.torch.registered(library).operators.values()]
    swiglu = next(o for o in operators if o.name == "dovetail::swiglu")
    contract, x = swiglu.contract, torch.randn(3, 4)
    contract._kept.clear()
    first = contract.expected([x, x])
    assert contract.expected([x.clone(), x])[0] is first[0] and len(contract._kept) == 1
    for other in (x.double(), x[:2], x.t().contiguous().t(), x.to("meta")):
        (e,) = contract.expected([other, other])
        assert (e.dtype, e.shape, e.device.type) == (other.dtype, other.shape, other.device.type)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="argument 'up'"):
            contract.expected([x, x[:2]])
    kept = len(contract._kept)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        contract.expected([fake, fake])
    torch.vmap(lambda a: torch.ops.dovetail.swiglu(a, a))(x)
    assert len(contract._kept) == kept
    for n in range(100):
        contract.expected([x.new_empty(n), x.new_empty(n)])
    assert len(contract._kept) <= 64
