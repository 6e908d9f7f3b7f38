"""Document 003: the prototype of an operator in Ascend's graphs."""
import stand_in  # before torch; skips where torchair is not installed

import dovetail
import dovetail.torchair

OPERATORS = r"""
#include <dovetail_op.h>
struct add { const dv_tensor *x, *y; dv_tensor *z; };
DV_OPERATOR(add, struct add, (x, y, z), .schema = "add_custom(Tensor x, Tensor y) -> Tensor z", .contract = "x[*s], y[*s] -> z[*s]:dtype(x)",
    .native = "base::add.Tensor(x, y)");
DV_LIBRARY(document_003, &dv_op_add);
"""

DOCUMENT_003 = """
REG_OP(AddCustom)
    .INPUT(x, ge::TensorType::ALL())
    .INPUT(y, ge::TensorType::ALL())
    .OUTPUT(z, ge::TensorType::ALL())
    .OP_END_FACTORY_REG(AddCustom)
"""


def test_the_prototype(tmp_path):
    (tmp_path / "ops.c").write_text(OPERATORS)
    library = dovetail.load(tmp_path / "ops.c")
    text = dovetail.torchair.prototypes(library)
    assert DOCUMENT_003.replace("ge::", "") in text and text.startswith('#include "graph/operator_reg.h"\n\nnamespace ge {\n')
    library.close()
