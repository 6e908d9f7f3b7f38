"""Programs of Inductor in which an operator writes a view with an offset, several views of one tensor, or what was cloned before."""
import contextlib

import pytest
import torch
import torch._inductor.config
from test_random_programs import operators  # noqa: F401: a fixture

import dovetail

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("operators")]
declared, python = torch.ops.random_programs, torch.ops.random_python  # rev, rev_key, two, all, turned


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        yield


# ---- each a function of an operator set and tensors of 6 x 4, or of as many as it has parameters

CASES = []


def case(f):
    CASES.append(f)
    return f


@case
def clone_of_what_is_written(ops, x):
    y = x.clone()
    ops.rev(y, x)
    return x * 1


@case
def clone_by_keyword(ops, x):
    y, z = x.clone(), x * 1
    ops.rev_key(x, src=y, more=z)


@case
def clones_in_lists(ops, x, z):
    ops.all([x, z], [z.clone(), x.clone()])


@case
def clone_of_a_view(ops, x):
    y = x[2:4].clone()
    ops.rev(y, x[2:4])
    return y + 1


@case
def both_are_written(ops, x):
    y = x.clone()
    ops.two(y, x)
    return y


@case
def sum_with_zeros(ops, x):
    y = x + torch.zeros_like(x)
    ops.rev(y, x)
    ops.rev(y, x)
    return y


@case
def read_after_the_write(ops, x):
    y = x * 2
    ops.rev_key(x, src=y)
    return y.unsqueeze(0) + 1


@case
def part_of_a_buffer(ops, x):
    n, d = x.shape
    buffer = torch.zeros(4 * n * d)
    ops.rev(x, buffer[2 * n * d:3 * n * d].view(n, d))
    return buffer * 1


@case
def rows(ops, x):
    ops.two(x[0], x[1])
    ops.rev(x[2], x[3])
    return x * 1


@case
def columns(ops, x):
    ops.two(x[:, 0], x[:, 2])
    ops.rev(x[:, 1], x[:, 3])


@case
def two_views(ops, x, y):
    ops.two(x, y)
    ops.rev(x, y)


@case
def parts_of_a_view(ops, x):
    ops.two(x[1:3], x[4:])
    ops.rev(x[:, 1:].clone(), x[:, :-1])
    return x * 1


@case
def copy_of_a_view(ops, x):
    y = x.clone()
    ops.two(y[1:3], y.view(-1)[20:])
    return y


@case
def written_by_torch_before(ops, x):
    y = x[2:]
    y.unsqueeze(0).mul_(2)
    z = y[::2].transpose(0, -1)
    ops.rev(z.clone(), z)
    return z


@case
def copies_of_a_result(ops, x):
    """What the operator has written is copied, and written again."""
    ops.rev(x.clone(), x)
    y, z, v = x.clone(), x + 0, x.to(torch.float32, copy=True)
    x[0] = 3
    ops.rev(v[:2], x[1:3])
    w = x[1:].clone()
    x.add_(1)
    return torch.stack((y, z, v)).sum(0) + w.sum()


@case
def copy_of_a_result_is_the_result(ops, x):
    ops.rev(x.clone(), x)
    y = x.clone()
    x[0] = 3
    return y


def inputs(f, offset):
    """Returns (buffer, a tensor for each parameter): two views of one buffer, `offset` elements after its start."""
    buffer = torch.arange(60.0)
    return buffer, [buffer[offset + k * 24:][:24].view(6, 4) for k in range(f.__code__.co_argcount - 1)]


def run(call, offset):
    made = [inputs(f, offset) for f in CASES for _ in range(2)]
    results = call([views for _, views in made])
    return {(f.__name__, ops): (None if r is None else r.tolist(), buffer.tolist())
            for (f, ops), r, (buffer, _) in zip([(f, ops) for f in CASES for ops in ("declared", "Python")], results, made)}


@pytest.mark.parametrize("dynamic", [False, True])
def test_as_in_eager_mode(dynamic):
    """All cases in one program, for inputs with and without an offset, in this order: neither is compiled for the other."""
    def together(given):
        return [f(ops, *views) for (f, ops), views in zip([(f, ops) for f in CASES for ops in (declared, python)], given)]

    compiled = torch.compile(together, fullgraph=True, dynamic=dynamic)
    for offset in (5, 0):
        expected, found = run(together, offset), run(compiled, offset)
        assert {case: found[case] for case in expected if found[case] != expected[case]} == {}


def test_no_copies_of_apart_views():
    """The read and the written view are disjoint parts of one buffer: nothing is copied."""
    from torch._inductor.utils import run_and_get_code

    def f(x):
        declared.rev(x[0], x[1])
        declared.rev(x[:, 0], x[:, 2])
        python.rev(x[2:4], x[4:6])

    _, code = run_and_get_code(torch.compile(f, fullgraph=True), torch.ones(6, 4))
    assert "empty_strided" not in code[0].split("def call")[1].split("runner =")[0]


def test_without_a_library(tmp_path):
    """A process with an operator in Python only."""
    import subprocess
    import sys
    program = """
import torch, dovetail
@dovetail.custom_op("only_python::rev", mutates_args=("dst",))
def rev(src: torch.Tensor, dst: torch.Tensor) -> None:
    for k in range(len(src)):
        dst[len(src) - 1 - k] = src[k]
def f(x):
    y = x.clone()
    rev(y, x)
    return x * 1
print(torch.compile(f)(torch.arange(4.0)[1:]).tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[3.0, 2.0, 1.0]\n", done.stderr


def test_defined_again():
    """As in a notebook's cell that runs again."""
    def f(x):
        torch.ops.compiled_again.rev(x.clone(), x)
        return x * 1

    for more in (0, 1):
        @dovetail.custom_op("compiled_again::rev", mutates_args=("dst",))
        def rev(src: torch.Tensor, dst: torch.Tensor) -> None:
            for k in range(len(src)):
                dst[len(src) - 1 - k] = src[k] + more  # noqa: B023

        assert torch.ops.compiled_again.rev.default is rev._opoverload
        torch._dynamo.reset()
        assert torch.compile(f)(torch.arange(4.0)[1:]).tolist() == [3 + more, 2 + more, 1 + more]


class Parts(torch.nn.Module):
    def forward(self, x):
        return part_of_a_buffer(declared, x), copy_of_a_view(declared, x), clone_of_a_view(declared, x * 1)


@pytest.mark.slow
def test_aot_inductor(tmp_path):
    n = torch.export.Dim("n", min=6, max=64)  # the views need more than 21 elements of 4 * n
    with torch.no_grad():
        program = torch.export.export(Parts(), (torch.rand(6, 4),), dynamic_shapes=({0: n},))
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "parts.pt2"))
        compiled = torch._inductor.aoti_load_package(path)
        for n in (6, 9):
            x = torch.arange(n * 4.0).view(n, 4)
            for a, b in zip(compiled(x.clone()), Parts()(x.clone())):
                assert torch.equal(a, b)


def test_training():
    """Inductor joins equal computations in training graphs: y and z are one tensor there."""
    @dovetail.custom_op("compiled_writes::reversed_sum", mutates_args=("dst",))
    def reversed_sum(src: torch.Tensor, dst: torch.Tensor) -> None:
        for k in range(len(src)):
            dst[len(src) - 1 - k] = src[k]

    def f(w, x):
        y, z = x * 2, x * 2
        with torch.no_grad():
            reversed_sum(y, z)
        return (w * z + y).sum()

    x = torch.arange(4.0)
    w = torch.ones(4, requires_grad=True)
    with contextlib.suppress(AttributeError):
        torch._functorch.config.cse = True
    torch.compile(f, fullgraph=True)(w, x).backward()
    assert w.grad.tolist() == (x * 2).flip(0).tolist()
