from . import add_custom, npu_lightning_indexer_pto, npu_sparse_attention_pto  # noqa: F401
