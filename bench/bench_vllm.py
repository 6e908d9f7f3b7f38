"""vLLM with our kernels and with its own: a decode step of the small model of tests/vllm, and layers at the sizes of a model of 8 billion weights.

In eager mode, on one thread, both in turn. Without vLLM in this Python it goes on in that of .venv-vllm, which `make test-vllm` makes; without
that it prints nothing.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
QUICK = "--quick" in sys.argv
MODES = {"own": "0", "ours": "1"}  # DOVETAIL_VLLM


def row(what, ours, peer, theirs):
    print(json.dumps({"what": what, "ours": ours, "peer": peer, "theirs": theirs, "unit": "us", "goal": None, "higher": False}), flush=True)


def engine(folder):
    """Of one process: for each line of standard input, the seconds that 8 sequences take, with 64 new tokens each and with one."""
    sys.path.insert(0, str(ROOT / "tests/vllm"))
    import generate
    from vllm import LLM, SamplingParams

    import dovetail.vllm
    dovetail.vllm.register()
    if not folder.exists():
        generate.make_model(folder)
    llm = LLM(model=str(folder), skip_tokenizer_init=True, enforce_eager=True, max_model_len=128, max_num_seqs=8, dtype="float32", seed=0,
              disable_log_stats=True, enable_prefix_caching=False)
    prompts = [{"prompt_token_ids": [(7 * i + 13 * j + 3) % 250 + 3 for j in range(4)]} for i in range(8)]
    for _ in sys.stdin:
        times = []
        for tokens in (64, 1):
            begin = time.perf_counter()
            llm.generate(prompts, SamplingParams(max_tokens=tokens, temperature=0, detokenize=False, ignore_eos=True), use_tqdm=False)
            times.append(time.perf_counter() - begin)
        print("TIMES " + json.dumps(times), flush=True)


def decode():
    with tempfile.TemporaryDirectory() as folder:
        def start(mode):
            env = os.environ | {"DOVETAIL_VLLM": MODES[mode], "VLLM_PLUGINS": "", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
            return subprocess.Popen([sys.executable, __file__, "--engine", pathlib.Path(folder, "llama")], env=env, text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

        def ask(process):
            print(file=process.stdin, flush=True)
            return json.loads(next(line for line in process.stdout if line.startswith("TIMES "))[6:])

        engines = {}
        for mode in MODES:  # one after the other: the first makes the model
            engines[mode] = start(mode)
            ask(engines[mode])
        best = {mode: [float("inf")] * 2 for mode in MODES}
        for _ in range(10 if QUICK else 40):
            for mode, process in engines.items():
                best[mode] = [*map(min, best[mode], ask(process))]
        for process in engines.values():
            process.communicate()
    step = {mode: (many - one) / 63 * 1e6 for mode, (many, one) in best.items()}
    row("vLLM: decode step, llama of 2 layers, 8 sequences", step["ours"], "vLLM's kernels", step["own"])


def layers():
    import torch
    import vllm.ir
    from torch_calls import in_turn
    from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.activation import SiluAndMul
    from vllm.model_executor.layers.layernorm import RMSNorm

    import dovetail.vllm
    torch.set_num_threads(1)
    hidden, middle = 4096, 14336
    with torch.inference_mode(), vllm.ir.enable_torch_wrap(False), set_current_vllm_config(VllmConfig(compilation_config=CompilationConfig(custom_ops=["all"]))):
        own, norm = SiluAndMul(), {dtype: RMSNorm(hidden, 1e-5, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
        os.environ["DOVETAIL_VLLM"] = MODES["ours"]
        dovetail.vllm.register()
        ours = SiluAndMul()
        assert type(ours) is not type(own)

        def with_norms_of(providers, layer, x):
            with vllm.ir.ops.rms_norm.set_priority(providers):
                return layer(x)

        for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            for rows in (1, 16, 512):
                names = {"own": own, "ours": ours, "norm": norm[dtype], "of": with_norms_of, "x": torch.randn(rows, 2 * middle).to(dtype),
                         "y": torch.randn(rows, hidden).to(dtype)}
                pairs = {f"silu_and_mul, [{rows}, {2 * middle}] {name}": ("ours(x)", "own(x)"),
                         f"rms_norm, [{rows}, {hidden}] {name}": ("of(['dovetail', 'native'], norm, y)", "of(['native'], norm, y)")}
                for what, calls in pairs.items():
                    a, b = (eval(call, names) for call in calls)
                    torch.testing.assert_close(a, b, rtol=1e-5 if dtype == torch.float32 else 2e-2, atol=1e-5 if dtype == torch.float32 else 2e-2)
                    each = 512 // rows + 1
                    mine, theirs = in_turn(5 if QUICK else 40, names, dict(zip(calls, calls)), warm=each, each=each).values()
                    row(f"vLLM: {what}", mine, "vLLM's layer", theirs)


if "--engine" in sys.argv:
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")
    engine(pathlib.Path(sys.argv[-1]))
elif importlib.util.find_spec("vllm"):
    decode()
    layers()
elif (python := ROOT / ".venv-vllm/bin/python").exists():
    os.execv(python, [python, *sys.argv])
