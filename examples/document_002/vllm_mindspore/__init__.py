"""In the place of vLLM MindSpore: its module npu_ops, and nothing else."""
