from vllm_mindspore import npu_ops
import numpy as np
import mindspore as ms

input = ms.Tensor(np.array([1, 2, 3], dtype=np.int32))
output = ms.Tensor(np.zeros_like(input))

npu_ops.my_custom_op(10, 20, input, output)
print("Output:", output)
