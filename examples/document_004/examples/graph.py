"""The backend of graph mode: torchair's, or where there is no torchair that of torch.compile."""
import torch


def compiled(f):
    try:
        import torchair
    except ImportError:
        return torch.compile(f, fullgraph=True, backend="aot_eager")
    return torch.compile(f, fullgraph=True, backend=torchair.get_npu_backend(compiler_config=torchair.CompilerConfig()))
