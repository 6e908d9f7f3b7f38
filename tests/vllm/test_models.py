"""A Llama and two mixtures of experts in vLLM with Dovetail's operators and without: the same tokens. Needs vLLM (make test-vllm); each run is a process of its own."""
import collections
import hashlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

import pytest

if "vllm" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)
HERE = pathlib.Path(__file__).parent
OURS = {"rms_norm", "add_rms_norm", "silu_and_mul", "rotary_embedding"}


@pytest.fixture(scope="module")
def generate(shared):
    """generate(DOVETAIL_VLLM, options...): the result of a run, made once for each set of options, also where tests run in several processes."""
    def make_site(site):  # the entry point, which an installed wheel has
        info = site / "dovetail_here.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dovetail-here\nVersion: 0\n")
        (info / "entry_points.txt").write_text("[vllm.general_plugins]\ndovetail = dovetail.vllm:register\n")

    def run(dovetail="", environment=(), model="llama", **options):
        def make(path):
            site = shared("vllm/site", make_site)
            cache = str(site.parent / "cache")
            env = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ['PYTHONPATH']}", "VLLM_CACHE_ROOT": cache, "XDG_CACHE_HOME": cache,
                   "DOVETAIL_VLLM": dovetail, **dict(environment)}
            done = subprocess.run([sys.executable, HERE / "generate.py", site.parent / model, json.dumps(options)], env=env, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            assert done.returncode == 0 and results, done.stdout[-4000:]
            path.write_text(json.dumps(json.loads(results[0][7:]) | {"output": done.stdout}))
        key = hashlib.sha256(json.dumps([dovetail, *map(list, environment), model, options]).encode()).hexdigest()[:16]
        return json.loads(shared(f"vllm/{key}.json", make).read_text())
    return run


def off_by(a, b):
    return max(abs(x - y) for p, q in zip(a["logprobs"], b["logprobs"]) for x, y in zip(p, q))


def same(a, b):
    return a["tokens"] == b["tokens"] and off_by(a, b) < 1e-4


def ran(run):
    """The operators that were called, in each worker the same ones, and never by their decompositions."""
    first, *others = run["calls"]
    assert all(worker.keys() == first.keys() for worker in others)
    assert all(on and not off for worker in run["calls"] for on, off in worker.values())
    return set(first)


def test_the_model_tells_tokens_apart(generate):
    plain = generate()
    assert len({t for row in plain["tokens"] for t in row}) >= 30 and [len(row) for row in plain["tokens"]] == [64] * 8
    assert ran(plain) == set() and "Dovetail" not in plain["output"]  # installed, but not asked for


def test_eager(generate):
    ours = generate("1")
    assert same(ours, generate())
    assert ran(ours) == OURS
    assert ours["output"].count("in vLLM: fused_add_rms_norm, fused_experts, grouped_topk, rms_norm, rotary_embedding, silu_and_mul, topk_softmax") == 1


@pytest.mark.parametrize("name", ["rms_norm", "fused_add_rms_norm", "silu_and_mul", "rotary_embedding"])
def test_a_wrong_kernel_is_seen(generate, name):
    """Only this one is scaled, as only it is asked for."""
    wrong = generate(name, scale=1.01)
    assert len(ran(wrong)) == 1 and not same(wrong, generate())


def test_some_operators(generate):
    ours = generate("silu_and_mul", [("VLLM_PLUGINS", "dovetail")])
    assert same(ours, generate()) and ran(ours) == {"silu_and_mul"}


def test_a_priority_that_begins_otherwise(generate):
    ours = generate("1", priority={"rms_norm": ["native"]})
    assert same(ours, generate()) and ran(ours) == OURS - {"rms_norm"}



def test_the_policy_turns_operators_off(generate):
    ours = generate("1", [("DOVETAIL_OPS", "none")])
    assert same(ours, generate())  # vLLM does not choose the provider of the norms; layers run decompositions
    assert {name for name, (on, off) in ours["calls"][0].items() if off and not on} == {"silu_and_mul", "rotary_embedding", "apply_rotary"}


def test_compiled(generate):
    """vLLM turns layers off for Inductor; the norms are operators of its IR and stay."""
    ours = generate("1", eager=False)
    assert same(ours, generate()) and ran(ours) == {"rms_norm", "add_rms_norm"}
    assert collections.Counter(ours["disabled"]).keys() >= {"silu_and_mul", "rotary_embedding"}


def test_compiled_with_the_policy_names_of_vllm(generate):
    ours = generate("1", eager=False, custom_ops=["none", "+silu_and_mul", "+rotary_embedding"])
    assert same(ours, generate()) and ran(ours) == OURS


@pytest.mark.parametrize("words", [[], ["all"]])
def test_vllm_s_rule_for_our_operators(generate, words):
    """In what Inductor compiles they are off, in whatever vLLM puts them; in eager mode they are on."""
    rule = (("DOVETAIL_OPS", "vllm-default"),)
    compiled = generate("1", rule, eager=False, custom_ops=words)
    assert same(compiled, generate(eager=False)) and compiled["calls"] == [{}]
    assert ran(generate("1", rule)) == OURS


def test_bf16(generate):
    """vLLM's native norm rounds before it multiplies by the weight, ours after: tokens may differ, the first step's log-probabilities by 0.1."""
    ours, plain = generate("1", dtype="bfloat16"), generate(dtype="bfloat16")
    assert ran(ours) == OURS
    assert max(abs(a[0] - b[0]) for a, b in zip(ours["logprobs"], plain["logprobs"]) if a and b) < 0.1


def test_tensor_parallel_workers(generate):
    ours = generate("1", [("VLLM_CPU_OMP_THREADS_BIND", "0|1")], workers=2)
    assert same(ours, generate()) and len(ours["calls"]) == 2 and ran(ours) == OURS


@pytest.mark.parametrize("model, router, more", [("mixtral", "topk_softmax", set()), ("glm4_moe", "grouped_topk", {"silu_and_mul"})])
class TestAMixture:
    """Mixtral routes by softmax; Glm4Moe by sigmoid, groups and a bias, with one dense layer and shared experts."""

    def test_it_tells_tokens_apart(self, generate, model, router, more):
        plain = generate(model=model)
        assert len({t for row in plain["tokens"] for t in row}) >= 30 and ran(plain) == set()

    def test_eager(self, generate, model, router, more):
        ours = generate("1", model=model)
        assert same(ours, generate(model=model))
        assert ran(ours) == {"rms_norm", "add_rms_norm", "rotary_embedding", "fused_experts", router} | more

    def test_a_wrong_kernel_is_seen(self, generate, model, router, more):
        for name in ("fused_experts", router):
            assert not same(generate(name, model=model, scale=1.01), generate(model=model)), name

    def test_compiled(self, generate, model, router, more):
        """vLLM turns the experts' layer off for Inductor, unless it is named; the router has no name there. What vLLM has compiled and kept without
        Dovetail is not taken."""
        plain = generate(model=model, eager=False)
        ours = generate("1", model=model, eager=False)
        assert ran(plain) == set() and same(ours, plain) and same(ours, generate(model=model)) and ran(ours) == {"rms_norm", "add_rms_norm", router}
        ours = generate("1", model=model, eager=False, custom_ops=["none", "+unquantized_fused_moe"])
        assert same(ours, generate(model=model)) and ran(ours) == {"rms_norm", "add_rms_norm", "fused_experts", router}

    def test_tensor_parallel_workers(self, generate, model, router, more):
        ours = generate("1", [("VLLM_CPU_OMP_THREADS_BIND", "0|1")], model=model, workers=2)
        assert same(ours, generate(model=model)) and len(ours["calls"]) == 2
        assert ran(ours) == {"rms_norm", "add_rms_norm", "rotary_embedding", "fused_experts", router} | more


def test_an_unknown_name(generate):
    with pytest.raises(AssertionError, match="DOVETAIL_VLLM: expected 0, 1 or some of fused_add_rms_norm, .*, topk_softmax, found nom"):
        generate("nom")
