"""dovetail.vllm.CustomOp without vLLM: registration, platforms, policy, counters; the oracle for the rules is vLLM's documentation."""
import collections
import importlib.metadata
import pathlib
import re
import subprocess
import sys
import warnings

import pytest
import torch

import dovetail
from dovetail.vllm import CompilationConfig, CustomOp


@pytest.fixture(autouse=True)
def no_registrations(monkeypatch):
    monkeypatch.setattr(CustomOp, "op_registry", {})
    monkeypatch.setattr(CustomOp, "op_registry_oot", {})
    monkeypatch.delenv("DOVETAIL_OPS", raising=False)


@pytest.fixture
def norm():
    @CustomOp.register("rms_norm")
    class RMSNorm(CustomOp):
        def forward_native(self, x):
            return "native", x

        def forward_cuda(self, x):
            return "cuda", x

        def forward_cpu(self, x):
            return "cpu", x

        def forward_npu(self, x):
            return "npu", x

    return RMSNorm


@pytest.mark.parametrize("words, backend, on", [
    ([], "", True), ([], "eager", True), ([], "aot_eager", True), ([], "inductor", False),
    (["all"], "inductor", True), (["none"], "", False),
    (["none", "+rms_norm"], "inductor", True), ("none,+rms_norm", "", True), (["+rms_norm"], "inductor", True), (["-rms_norm"], "", False),
    ("all,-rms_norm", "", False), ("all,-op1", "", True), ("none,+op1,+op2", "", False), (["vllm-default"], "inductor", False),
])
def test_rules(norm, words, backend, on):
    with CompilationConfig(words, backend) as config:
        assert norm.enabled() is on
        assert norm()("x")[0] == ("cpu" if on else "native")
    assert config.enabled_custom_ops == collections.Counter({"rms_norm": 1} if on else {})
    assert config.disabled_custom_ops == collections.Counter({} if on else {"rms_norm": 1})


@pytest.mark.parametrize("words, message", [
    ("all,none", "'none' after 'all'"), (["+f", "-f"], "both"), ("rms_norm", "expected all, none, vllm-default, +name or -name, found 'rms_norm'")])
def test_a_mistake_is_an_error_at_once(words, message):
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        CompilationConfig(words)


@pytest.mark.parametrize("word", ["", " ", "\n", ",", "all ", " +f", "+f,+g", "+f\0", "+", "-", "+ ", "++f", "+-f", "+f-", "f", "ALL", "+f::", "+*"])
def test_malformed_words(word):
    with pytest.raises(ValueError, match="expected|is not"):
        CompilationConfig([word])
    with pytest.raises(ValueError, match="expected|is not"):
        CompilationConfig(["all", word])


def test_a_word_without_a_layer_is_a_warning(norm):
    with pytest.warns(UserWarning, match="custom_ops: '\\+rms_nrom' has no effect"), CompilationConfig("none,+rms_nrom"):
        norm()
    with warnings.catch_warnings(), CompilationConfig("none,+rms_norm"):
        warnings.simplefilter("error")
        norm()


@pytest.mark.parametrize("given, message", [
    ({"custom_ops": ["+f", 3]}, r"custom_ops: expected words as of dovetail.policy, found \['\+f', 3\]"), ({"custom_ops": 3}, "custom_ops: .* found 3"),
    ({"platform": "gpu"}, "platform: expected cpu, cuda, hip, xpu, tpu, npu, oot or another device of torch, found 'gpu'"),
    ({"backend": "induktor"}, "backend: .* found 'induktor'"), ({"backend": 3}, "backend: .* found 3")])
def test_fields_that_mean_nothing(given, message):
    with pytest.raises((TypeError, ValueError), match=f"^CompilationConfig: {message}"):
        CompilationConfig(**given)


def test_only_layers_are_registered():
    with pytest.raises(TypeError, match="^CustomOp.register: 'plain': expected a class derived from CustomOp, found <class .*Plain'>"):
        @CustomOp.register("plain")
        class Plain:
            pass


def test_the_policy_of_declared_operators_serves_where_no_words_are_given(norm):
    with dovetail.policy("none"):
        assert not norm.enabled() and not norm.default_on()
        with CompilationConfig("all"):
            assert norm.enabled()
    with dovetail.policy(["none", "+rms_norm"]):
        assert norm.enabled() and not norm.default_on()
    assert norm.enabled() and norm.default_on()


@pytest.mark.parametrize("platform, form", [("cpu", "cpu"), ("cuda", "cuda"), ("hip", "cuda"), ("npu", "npu"), ("xpu", "native"), ("tpu", "native"),
                                            ("oot", "native"), ("mps", "native")])
def test_platforms(norm, platform, form):
    with CompilationConfig(platform=platform):
        assert norm()("x") == (form, "x")


def test_enforced(norm):
    class Forced(norm):
        def __init__(self):
            super().__init__(enforce_enable=True)

    with CompilationConfig("none"):
        assert Forced()("x")[0] == "cpu" and norm()("x")[0] == "native"


@pytest.mark.parametrize("backend, compiled", [("", False), ("eager", False), ("aot_eager", True)])
def test_a_native_form_that_is_compiled_on_its_own(backend, compiled):
    @CustomOp.register("shift")
    class Shift(CustomOp):
        def __init__(self):
            super().__init__(compile_native=True)

        def forward_native(self, x):
            return x + 1, torch.compiler.is_compiling()

    with CompilationConfig("none", backend) as config:
        layer = Shift()
    x, was_compiled = layer(torch.ones(2))
    assert x.tolist() == [2, 2] and was_compiled is compiled and config.disabled_custom_ops["shift"] == 1
    with CompilationConfig("all", backend):
        assert Shift().maybe_compile(len, enable=False) is len


def test_nested_blocks_and_errors_leave_the_outer_one(norm):
    with CompilationConfig("none"):
        with pytest.raises(KeyError), CompilationConfig("all"):
            raise KeyError
        assert not norm.enabled()
    assert norm.enabled()


def test_another_class_in_its_place(norm):
    @norm.register_oot
    class Mine(norm):
        def forward_cpu(self, x):
            return "mine", x

    assert norm()("x")[0] == "mine" and isinstance(norm(), Mine)
    with CompilationConfig("all,-rms_norm"):  # by the name that the policy knows
        assert norm()("x")[0] == "native"
    with pytest.raises(ValueError, match="RMSNorm is replaced by .*Mine already"):
        CustomOp.register_oot(name="RMSNorm")(Mine)


def test_calls_of_register_oot(norm):
    """register_oot takes what vLLM's own method takes: keywords, positions, a class that derives from another one."""
    class Other(CustomOp):
        def forward_native(self, x):
            return "native of other", x

        def forward_cpu(self, x):
            return "other", x

    for call in (lambda: CustomOp.register_oot(_decorated_op_cls=Other, name="RMSNorm"), lambda: CustomOp.register_oot(Other, "RMSNorm"),
                 lambda: CustomOp.register_oot(name="RMSNorm")(Other), lambda: norm.register_oot(Other), lambda: norm.register_oot()(Other)):
        CustomOp.op_registry_oot.clear()
        assert call() is Other
        for words, form in (("all", "other"), ("none", "native of other"), ("none,+rms_norm", "other"), ("all,-rms_norm", "native of other")):
            with CompilationConfig(words) as config:
                made = torch.nn.Module.__new__(Other)
                Other.__init__(made)
                assert made("x")[0] == form and norm.__new__(norm).__class__ is Other
            assert {*config.enabled_custom_ops, *config.disabled_custom_ops} == {"rms_norm"}
    with pytest.raises(TypeError, match="CustomOp.register_oot: 'RMSNorm': expected a class derived from CustomOp, found 3"):
        CustomOp.register_oot(3, "RMSNorm")


def test_a_name_belongs_to_one_class(norm):
    with pytest.raises(ValueError, match="'rms_norm' belongs to .*RMSNorm already"):
        CustomOp.register("rms_norm")(type("Other", (CustomOp,), {}))


def test_a_class_that_was_not_registered_follows_the_base_word():
    class Plain(CustomOp):
        def forward_native(self):
            return "native"

        def forward_cpu(self):
            return "cpu"

    with CompilationConfig("none"):
        assert Plain()() == "native"
    assert Plain()() == "cpu"


def test_no_form():
    with pytest.raises(NotImplementedError, match="Empty has no forward_native"):
        type("Empty", (CustomOp,), {})()(1)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_in_compiled_models(norm, backend):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = Act()
            self.weight = torch.nn.Parameter(torch.ones(8))

        def forward(self, x):
            return self.act(x * self.weight)

    @CustomOp.register("act")
    class Act(CustomOp):
        def forward_native(self, x):
            return torch.nn.functional.silu(x) * x

        def forward_cpu(self, x):
            return torch.ops.dovetail.swiglu(x, x)

    dovetail.ops.swiglu  # noqa: B018  registers it
    x = torch.randn(4, 8)
    for words in ([], ["all"], ["none"]):
        torch._dynamo.reset()
        with CompilationConfig(words, backend) as config:
            model = Model()
        before = dovetail.policy.counts().get("dovetail::swiglu", (0, 0))[0]
        assert torch.allclose(torch.compile(model, backend=backend, fullgraph=True)(x), torch.nn.functional.silu(x) * x, atol=1e-6)
        ran = dovetail.policy.counts()["dovetail::swiglu"][0] - before
        on = words == ["all"] or not words and backend != "inductor"
        assert (ran == 1) == on == bool(config.enabled_custom_ops)


def test_the_page(tmp_path):
    root = pathlib.Path(__file__).resolve().parents[2]
    blocks = re.findall(r"^```python\n(.*?)^```$", (root / "docs/vllm.md").read_text(), re.S | re.M)
    in_vllm, = [b for b in blocks if "from vllm." in b]
    blocks.remove(in_vllm)
    out = subprocess.run([sys.executable, "-c", "".join(blocks)], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert out == "tensor([0., 0.]) Counter({'scaled_silu': 1})\ntensor([1.4621, 1.4621])\n"
    if "vllm" in importlib.metadata.packages_distributions():  # an operator of one's own in vLLM's layer
        subprocess.run([dovetail.command(), "new", "my_ops"], check=True, capture_output=True, cwd=tmp_path)
        subprocess.run([dovetail.command(), "build", "my_ops.c"], check=True, capture_output=True, cwd=tmp_path / "my_ops")
        made = in_vllm + """
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
x = torch.randn(3, 8)
for words in (["all"], ["none", "+silu_and_mul"], ["all", "-silu_and_mul"], ["none"], ["none", "+SiluAndMul"], ["all", "-SiluAndMul"]):
    with set_current_vllm_config(VllmConfig(compilation_config=CompilationConfig(custom_ops=words))) as config:
        layer = SiluAndMul()
    torch.testing.assert_close(layer(x), layer.forward_native(x))
    print(type(layer).__name__, layer.name, dovetail.policy.counts()["my_ops::swiglu"])
"""
        done = subprocess.run([sys.executable, "-c", made], check=True, capture_output=True, text=True, cwd=tmp_path / "my_ops")
        # By the name that vLLM's own layer has in words, and by the one that vLLM gives to a class that replaces it.
        assert done.stdout.splitlines()[-6:] == [f"MySiluAndMul silu_and_mul ({n}, 0)" for n in (1, 2, 2, 2, 3, 3)]
        assert "MySiluAndMul is registered in vLLM from __main__" in done.stderr
