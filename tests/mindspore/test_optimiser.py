"""Operators that write Parameters: optimisers, in eager mode and in graphs. Needs MindSpore (make test-mindspore). The oracle is AdamW in NumPy."""
import pytest
from test_eager import ms, np  # skips where MindSpore is not installed

import dovetail
from dovetail.mindspore import primitive
from mindspore import Parameter, Tensor, mint, ops

LR, DECAY = 0.1, 0.01
START = np.array([[1.0, -2, 3], [0.5, 0, -0.25]])


def parameter(name, value=START):
    return Parameter(Tensor(np.array(value, dtype=np.float64)), name=name)


def state(name="x"):
    """A parameter and its two averages."""
    return parameter(name), parameter(f"{name}_mean", 0 * START), parameter(f"{name}_square", 0 * START)


class AdamW:
    """In NumPy."""

    def __init__(self, param):
        self.param, self.mean, self.square, self.t = param.copy(), 0 * param, 0 * param, 0

    def step(self, grad):
        self.t += 1
        self.mean = 0.9 * self.mean + 0.1 * grad
        self.square = 0.999 * self.square + 0.001 * grad**2
        self.param -= LR * (DECAY * self.param + self.mean / (1 - 0.9**self.t) / (np.sqrt(self.square / (1 - 0.999**self.t)) + 1e-8))
        return self.param, self.mean, self.square


def same(found, expect):
    for f, e in zip(found, expect):
        np.testing.assert_allclose(f.asnumpy(), e, rtol=1e-12, atol=1e-15)


def gradients(n=5):
    return np.random.default_rng(3).standard_normal((n, *START.shape))


def number(t):
    return Tensor(np.array(float(t)))


def eager_own(own):
    x = state()
    assert own.adamw_(*x, Tensor(START), number(1), lr=0.0) is None and np.array_equal(x[1].asnumpy(), 0.1 * START)
    for average in x[1:]:
        average.set_data(Tensor(0 * START))  # the memory that a Parameter has now is what counts
    return x, lambda grad, t: own.adamw_(*x, grad, number(t), lr=LR)


def eager_shipped(own):
    x, y = state("x"), state("y")

    def step(grad, t):
        dovetail.ops.adamw_step_([x[0], y[0]], [grad, grad * 0], [x[1], y[1]], [x[2], y[2]], [], t, lr=LR, weight_decay=DECAY)
    return x, step


def in_a_graph(own):
    """The functional form gives the new values, and MindSpore's assign() puts them into the Parameters."""
    node, x = primitive(own.adamw_.functional(), lr=LR), state()

    class Step(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            self.param, self.mean, self.square = x

        @ms.jit
        def construct(self, grad, step):
            param, mean, square = node(self.param, self.mean, self.square, grad, step)
            ops.assign(self.param, param)
            ops.assign(self.mean, mean)
            ops.assign(self.square, square)
            return param

    cell = Step()

    def step(grad, t):
        assert np.array_equal(cell(grad, number(t)).asnumpy(), x[0].asnumpy())
    return x, step


@pytest.mark.parametrize("made", [eager_own, eager_shipped, in_a_graph])
def test_steps(made, own):
    (param, mean, square), step = made(own)
    reference = AdamW(START)
    for t, grad in enumerate(gradients(), 1):
        step(Tensor(grad), t)
        same((param, mean, square), reference.step(grad))
    assert isinstance(param, Parameter) and param.name == "x"


def test_reads_before_and_after_a_write_in_a_graph(own):
    """Also three nodes, each with what the one before it wrote."""
    node = primitive(own.scale_.functional(), by=2.0)

    class Net(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            self.x = parameter("x", [1, 2])

        @ms.jit
        def construct(self, y):
            before = self.x * y
            for _ in range(3):
                ops.assign(self.x, node(self.x))
            return before, self.x * y

    net, one = Net(), Tensor(np.ones(2))
    for _ in range(2):
        start = net.x.asnumpy().copy()
        same(net(one), (start, 8 * start))
        same([net.x], [8 * start])


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("shipped", [False, True])
def test_training(own, graph, shipped):
    """A network with an operator of ours, its gradient, and an operator that writes the Parameters, until the weights are those that made the data;
    compared with the same loop in NumPy."""
    random = np.random.default_rng(0)
    data, weights = random.standard_normal((64, 3)), np.array([[0.5, -1, 2], [1, 0, -0.5]])
    target = 1 / (1 + np.exp(-data @ weights.T))
    sigmoid = primitive(dovetail.ops.sigmoid) if graph else dovetail.ops.sigmoid

    class Net(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight, self.mean, self.square = state("weight")

        def construct(self, x):
            return sigmoid(mint.matmul(x, self.weight.T))

    net = Net()
    x, y = Tensor(data), Tensor(target)

    def loss(x, y):
        return mint.mean((net(x) - y) ** 2)

    run = ms.value_and_grad(ms.jit(loss) if graph else loss, None, [net.weight])
    reference, first = AdamW(START), None
    for t in range(1, 201):
        value, (grad,) = run(x, y)
        first = first or float(value)
        if shipped:
            dovetail.ops.adamw_step_([net.weight], [grad], [net.mean], [net.square], [], t, lr=LR, weight_decay=DECAY)
        else:
            own.adamw_(net.weight, net.mean, net.square, grad, number(t), lr=LR)
        found = 1 / (1 + np.exp(-data @ reference.param.T))
        reference.step((2 * (found - target) * found * (1 - found) / found.size).T @ data)
    np.testing.assert_allclose(net.weight.asnumpy(), reference.param, rtol=1e-6, atol=1e-9)
    assert float(value) < first / 100
    np.testing.assert_allclose(net.weight.asnumpy(), weights, atol=0.1)


def test_lists_in_graphs(own):
    with pytest.raises(NotImplementedError, match=r"adamw_step__functional: a primitive's results are tensors, this operator's are Tensor\[\], "):
        primitive(dovetail.ops.adamw_step_.functional(), params=1, grads=1, exp_avgs=1, exp_avg_sqs=1, max_exp_avg_sqs=0, step=1)
