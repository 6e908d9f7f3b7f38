import inspect

import torch
import torchair

# The caches are written: the node has their new values as outputs of the same names, and torchair takes them from there.
OPERATOR = torch.ops.custom_pypto.npu_sparse_attention_pto.default
NAMES = [a.name for a in OPERATOR._schema.arguments]
WRITTEN = ["kv_cache", "kr_cache", "index_k_cache"]


def convert_npu_sparse_attention_pto(*args, meta_outputs=None, **kwargs):
    given = dict(zip(NAMES, args)) | kwargs
    return torchair.ge.custom_op("SparseAttentionPto", inputs={name: given[name] for name in NAMES}, outputs=[*WRITTEN, "y0"])[-1]


convert_npu_sparse_attention_pto.__signature__ = inspect.Signature(
    [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in NAMES] +
    [inspect.Parameter("meta_outputs", inspect.Parameter.KEYWORD_ONLY, default=None)])
torchair.register_fx_node_ge_converter(OPERATOR)(convert_npu_sparse_attention_pto)
