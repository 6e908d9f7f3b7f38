"""examples/document_000: vLLM's registration of operators, a layer with shared experts, its policy; a sigmoid with torch.library."""
import collections
import inspect
import pathlib
import sys

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.torch.library import Library
from dovetail.vllm import ForwardContext, get_forward_context

FAKE = torch._subclasses.FakeTensorMode


@pytest.fixture(scope="module")
def ran(run):
    """Once in this process: the document defines operators for good."""
    dovetail.ops.fused_experts  # noqa: B018  what programs of torch.compile call must be loaded
    from dovetail.vllm import CustomOp
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CustomOp, "op_registry", {})
        yield run("000")


@pytest.fixture(scope="module")
def layer(ran):
    torch.manual_seed(0)
    return ran.FusedMoE("layers.0", torch.nn.Linear(8, 8).requires_grad_(False), torch.randn(4, 12, 8), torch.randn(4, 8, 6), 2)


def by_definition(layer, x, logits):
    weights, ids = logits.softmax(-1).topk(2)
    weights = weights / weights.sum(-1, keepdim=True)
    out = []
    for t in range(len(x)):
        parts = [(layer.w13[e] @ x[t]).chunk(2) for e in ids[t]]
        out.append(sum(w * (layer.w2[e] @ (F.silu(g) * u)) for w, e, (g, u) in zip(weights[t], ids[t], parts)))
    return layer.shared_experts(x), torch.stack(out)


def test_the_function_that_dovetail_has(ran):
    """The document's arguments in the document's order, and the same operator."""
    theirs, ours = (inspect.signature(f).parameters for f in (ran.direct_register_custom_op, dovetail.direct_register_custom_op))
    assert list(theirs) == list(ours) and {n: p.default for n, p in theirs.items() if p.default is not p.empty} == {
        "fake_impl": None, "target_lib": None, "dispatch_key": "CUDA", "tags": ()}
    made = []
    for register in (ran.direct_register_custom_op, dovetail.direct_register_custom_op):
        library = Library(f"document_000_{len(made)}", "FRAGMENT")
        register("moe", ran.moe_forward_shared, ["hidden_states"], ran.moe_forward_shared_fake, library, "CPU", (torch.Tag.needs_fixed_stride_order,))
        op = getattr(torch.ops, library.ns).moe.default
        made.append((str(op._schema).partition("::")[2], op.tags, torch._C._dispatch_dump(op.name()).count("CPU")))
    assert made[0] == made[1] and made[0][0] == "moe(Tensor(a0!) hidden_states, Tensor router_logits, str layer_name) -> (Tensor, Tensor)"


def test_the_library(ran):
    def one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert ran.vllm_lib.ns == "vllm" and "vllm::moe_forward_shared" in ran.vllm_lib._op_defs
    ran.direct_register_custom_op("document_000", one, [], dispatch_key="CPU")
    assert torch.ops.vllm.document_000(torch.zeros(1)).item() == 1
    own = Library("document_000_own", "FRAGMENT")
    ran.direct_register_custom_op("one", one, [], target_lib=own, dispatch_key="CPU")
    assert torch.ops.document_000_own.one(torch.zeros(1)).item() == 1
    own._destroy()
    with pytest.raises(AttributeError, match="one"):
        torch.ops.document_000_own.one(torch.zeros(1))


def test_a_call_goes_straight_to_the_function(ran):
    """A call of torch's custom_op goes through functions of torch/_library."""
    between = []

    def look(x: torch.Tensor) -> torch.Tensor:
        frame, files = sys._getframe(1), set()
        while frame.f_code.co_filename != __file__:
            files.add(pathlib.Path(frame.f_code.co_filename).parent.name)
            frame = frame.f_back
        between.append("_library" in files)
        return x + 1

    ran.direct_register_custom_op("document_000_look", look, [], dispatch_key="CPU")
    torch.ops.vllm.document_000_look(torch.zeros(1))
    torch.library.custom_op("document_000::look", look, mutates_args=())(torch.zeros(1))
    assert between == [False, True]


def test_the_schema_and_the_tag(ran):
    op = torch.ops.vllm.moe_forward_shared.default
    assert str(op._schema) == "vllm::moe_forward_shared(Tensor(a0!) hidden_states, Tensor router_logits, str layer_name) -> (Tensor, Tensor)"
    assert torch.Tag.needs_fixed_stride_order in op.tags


def test_the_dispatch_key(ran):
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = "CPU", "CUDA", "AutogradCPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"
    assert [has("vllm::moe_forward_shared", key) for key in keys] == [True, False, False, False, False]
    from dovetail.vllm import CompilationConfig, current_platform
    for platform, key in {"cpu": "CPU", "cuda": "CUDA", "hip": "CUDA", "xpu": "XPU", "npu": "PrivateUse1"}.items():
        with CompilationConfig(platform=platform):
            assert current_platform.dispatch_key == key


def test_the_fake(ran):
    with FAKE():
        shared, fused = torch.ops.vllm.moe_forward_shared(torch.empty(3, 8), torch.empty(3, 4), "layers.0")
        assert shared.shape == fused.shape == (3, 8)
        ran.direct_register_custom_op("document_000_no_fake", ran.moe_forward_shared, [], dispatch_key="CPU")
        with pytest.raises(torch._subclasses.fake_tensor.UnsupportedOperatorException, match="document_000_no_fake"):
            torch.ops.vllm.document_000_no_fake(torch.empty(3, 8), torch.empty(3, 4), "layers.0")


@pytest.mark.parametrize("tokens", [1, 5])
def test_the_layer(ran, layer, tokens):
    assert layer.name == "fused_moe"
    x, logits = torch.randn(tokens, 8), torch.randn(tokens, 4)
    shared, fused = by_definition(layer, x, logits)
    with ForwardContext({"layers.0": layer}):
        found = torch.ops.vllm.moe_forward_shared(x, logits, "layers.0")
        torch.testing.assert_close(found[0], shared)
        torch.testing.assert_close(found[1], fused, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(layer(x, logits), shared + fused, rtol=1e-5, atol=1e-5)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
        assert torch.equal(compiled(x, logits), layer(x, logits))


def test_the_forward_context(layer):
    x, logits = torch.ones(1, 8), torch.ones(1, 4)
    with pytest.raises(AssertionError, match="get_forward_context: expected a block"):
        layer(x, logits)
    other = type(layer)("layers.1", lambda x: x * 0, layer.w13, layer.w2, 2)
    with ForwardContext({"layers.0": layer}) as outer:
        with ForwardContext({"layers.0": other}):  # the name decides, not the object that was called
            assert (torch.ops.vllm.moe_forward_shared(x, logits, "layers.0")[0] == 0).all()
        assert get_forward_context() is outer
        with pytest.raises(KeyError, match="layers.1"):
            other(x, logits)
        layer.shared_experts, kept = None, layer.shared_experts
        with pytest.raises(AssertionError):
            layer(x, logits)
        layer.shared_experts = kept


@pytest.mark.parametrize("words, backend, on", [
    ([], "", True), ([], "inductor", False), (["all"], "inductor", True), (["none"], "", False), ("all,-fused_moe", "", False),
    ("all,-op1", "", True), ("none,+op1,+op2", "", False), ("none,+op1,+fused_moe", "inductor", True), (["none", "+fused_moe"], "", True)])
def test_the_words(ran, words, backend, on):
    """With the document's own class."""
    config = ran.CompilationConfig(custom_ops=words)
    assert ran.CompilationConfig().custom_ops == [] and config.enabled_custom_ops == config.disabled_custom_ops == collections.Counter()
    config.backend = backend
    with config:
        for i in range(3):
            ran.FusedMoE(f"layers.{i}", None, None, None, 2)
        assert ran.FusedMoE.enabled() is on
    assert (config.enabled_custom_ops, config.disabled_custom_ops) == (
        collections.Counter(fused_moe=3 * on) + collections.Counter(), collections.Counter(fused_moe=3 * (not on)) + collections.Counter())
    with pytest.raises(TypeError, match="enabled_custom_ops"):
        ran.CompilationConfig(enabled_custom_ops={})


def test_functions_by_name(ran):
    x = torch.randn(5, dtype=torch.double)
    torch.testing.assert_close(torch.ops.myns.sigmoid(x), torch.sigmoid(x))
    y = torch.sigmoid(x)
    torch.testing.assert_close(torch.ops.myns.sigmoid_backward(x, y), x * y * (1 - y))
    assert str(torch.ops.myns.sigmoid_backward.default._schema) == "myns::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor"
    torch.testing.assert_close(dovetail.ops.sigmoid(x), torch.ops.myns.sigmoid(x))  # Dovetail's own, in C


def test_the_gradient(ran, capsys):
    expected = torch.sigmoid(torch.tensor([1.0, 2.0, 3.0]))
    expected = expected * (1 - expected)
    torch.testing.assert_close(ran.loss.item(), torch.sigmoid(torch.tensor([1.0, 2.0, 3.0])).sum().item())
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    ran.Sigmoid.apply(x).sum().backward()
    torch.testing.assert_close(x.grad, expected)
    assert torch.autograd.gradcheck(ran.Sigmoid.apply, x.detach().double().requires_grad_())


def test_the_module(ran):
    torch.testing.assert_close(ran.y, torch.sigmoid(torch.tensor([1.0, 2.0, 3.0])))
    ran.y.sum().backward()
    torch.testing.assert_close(ran.x.grad, ran.y.detach() * (1 - ran.y.detach()))
    assert isinstance(ran.model, torch.nn.Module) and list(ran.model.parameters()) == []
