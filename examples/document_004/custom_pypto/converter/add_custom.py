import torch
import torchair
from torchair.ge_concrete_graph.fx2ge_converter import register_fx_node_ge_converter
from torchair.ge_concrete_graph.utils import dtype_promote


@register_fx_node_ge_converter(torch.ops.custom_pypto.add_custom.default)
def convert_add_custom(self, other, meta_outputs=None):
    x, y = dtype_promote(self, other, target_dtype=meta_outputs.dtype)
    return torchair.ge.custom_op("AddCustom", inputs={"x": x, "y": y}, outputs=["z"])
