"""generate.py FOLDER OPTIONS: a model of two layers with random weights generates 64 tokens for each of 8 prompts. The result is JSON.

The folder's name is the model: one of MODELS. OPTIONS is JSON: eager (bool), custom_ops (list), priority (of IR operators: a dict), dtype, workers
(tensor parallel size), scale (each kernel's result is multiplied by it). "calls" of the result has the counts of each worker.
"""
import json
import os
import pathlib
import shutil
import sys

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="INFO")
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 10000.0}
MODELS = {  # what a model has beside or instead of that, the place of its experts, and their names for gate, up and down
    "llama": ({}, None, ()),
    "mixtral": ({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2}, "block_sparse_moe", ("w1", "w3", "w2")),
    "glm4_moe": ({"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
                  "norm_topk_prob": True, "routed_scaling_factor": 1.5, "n_shared_experts": 1, "moe_intermediate_size": 96, "first_k_dense_replace": 1,
                  "partial_rotary_factor": 1.0, "attention_bias": False, "use_qk_norm": False}, "mlp", ("gate_proj", "up_proj", "down_proj"))}


def make_model(folder):
    """Weights from a seed with standard deviation 1 / sqrt(fan-in): with vLLM's dummy weights, of 1e-3, a wrong kernel changes no token."""
    import torch
    from safetensors.torch import save_file
    generator = torch.Generator().manual_seed(1)

    def random(rows, columns):
        return torch.randn(rows, columns, generator=generator) / columns ** 0.5

    def scale(n):
        return 1 + torch.randn(n, generator=generator) / 4

    more, place, parts = MODELS[folder.name]
    config = CONFIG | more
    h, middle, heads, vocabulary = config["hidden_size"], config["intermediate_size"], config["head_dim"], config["vocab_size"]
    queries, keys = config["num_attention_heads"] * heads, config["num_key_value_heads"] * heads
    experts = config.get("num_local_experts", config.get("n_routed_experts", 0))
    small = config.get("moe_intermediate_size", middle)

    def mlp(prefix, middle, names=("gate_proj", "up_proj", "down_proj")):
        return dict(zip((f"{prefix}.{name}" for name in names), ((middle, h), (middle, h), (h, middle))))
    weights = {"model.embed_tokens.weight": random(vocabulary, h) * h ** 0.5, "model.norm.weight": scale(h), "lm_head.weight": random(vocabulary, h)}
    for i in range(config["num_hidden_layers"]):
        shapes = {"self_attn.q_proj": (queries, h), "self_attn.k_proj": (keys, h), "self_attn.v_proj": (keys, h), "self_attn.o_proj": (h, queries)}
        if place and i >= config.get("first_k_dense_replace", 0):
            shapes[f"{place}.gate"] = experts, h
            for e in range(experts):
                shapes |= mlp(f"{place}.experts.{e}", small, parts)
            if "n_shared_experts" in config:
                shapes |= mlp(f"{place}.shared_experts", small)
                weights[f"model.layers.{i}.{place}.gate.e_score_correction_bias"] = random(1, experts)[0]
        else:
            shapes |= mlp("mlp", middle)
        weights |= {f"model.layers.{i}.{name}.weight": random(*shape) for name, shape in shapes.items()}
        weights |= {f"model.layers.{i}.{name}.weight": scale(h) for name in ("input_layernorm", "post_attention_layernorm")}
    part = folder.with_suffix(f".{os.getpid()}")
    part.mkdir(parents=True)
    save_file(weights, part / "model.safetensors")
    (part / "config.json").write_text(json.dumps(config))
    try:
        part.rename(folder)
    except OSError:  # another process has made it meanwhile
        shutil.rmtree(part)


def scale_kernels(scale):
    """Planted fault: each result of our operators is multiplied."""
    import torch

    from dovetail.vllm import plugin

    class Scaled:
        def __getattr__(self, name):
            op = getattr(torch.ops.dovetail, name)

            def call(*args, **more):
                result = op(*args, **more)
                if result is None:
                    args[name == "rotary_embedding"].mul_(scale)  # it writes the query, and topk_softmax the weights
                return result if result is None else (result[0] * scale, *result[1:]) if isinstance(result, tuple) else result * scale
            return call

    plugin._ops = Scaled


def counts(worker):
    """Runs in each worker: [by our kernel, by the decomposition] for each operator that was called there."""
    dovetail = sys.modules.get("dovetail")
    return {name.partition("::")[2]: n for name, n in dovetail.policy.counts().items() if any(n)} if dovetail else {}


def main(folder, eager=True, custom_ops=(), priority=None, dtype="float32", workers=1, scale=None):
    from vllm import LLM, SamplingParams
    if scale:
        scale_kernels(scale)
    compilation = {"custom_ops": custom_ops} if custom_ops else {}
    llm = LLM(model=str(folder), skip_tokenizer_init=True, enforce_eager=eager, max_model_len=128, max_num_seqs=8, dtype=dtype, seed=0,
              disable_log_stats=True, tensor_parallel_size=workers, compilation_config=compilation, kernel_config={"ir_op_priority": priority or {}})
    prompts = [{"prompt_token_ids": [(7 * i + 13 * j + 3) % 250 + 3 for j in range(4 + i)]} for i in range(8)]
    out = llm.generate(prompts, SamplingParams(max_tokens=64, temperature=0, detokenize=False, ignore_eos=True, logprobs=1), use_tqdm=False)
    config = llm.llm_engine.vllm_config.compilation_config
    found = {"tokens": [list(o.outputs[0].token_ids) for o in out],
             "logprobs": [[step[t].logprob for t, step in zip(o.outputs[0].token_ids, o.outputs[0].logprobs)] for o in out],
             "enabled": config.enabled_custom_ops, "disabled": config.disabled_custom_ops, "calls": llm.collective_rpc(counts)}
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    if not folder.exists():
        make_model(folder)
    main(folder, **json.loads(sys.argv[2]))
