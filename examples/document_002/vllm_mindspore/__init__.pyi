from . import npu_ops as npu_ops
