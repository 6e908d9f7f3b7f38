"""`dovetail export` and `dovetail import`. What they write is tested with torchair, in tests/torchair."""
import sys

import pytest

OPERATOR = r"""
#include <dovetail_op.h>
struct add { const dv_tensor *x, *y; double alpha; dv_tensor *z; };
DV_OPERATOR(add, struct add, (x, y, alpha, z), .schema = "add_custom(Tensor x, Tensor? y, float alpha=1.5) -> Tensor z",
    .contract = "x[*s]:f32, y[*s]:f32 -> z[*s]:f32");
DV_LIBRARY(my_ops, &dv_op_add);
"""


@pytest.fixture
def made(dovetail):
    dovetail.env["DOVETAIL_PYTHON"] = sys.executable
    dovetail.write("my_ops.c", OPERATOR)
    dovetail("build", "my_ops.c")
    return dovetail


def test_the_files(made):
    assert "@torchair.register_fx_node_ge_converter(torch.ops.my_ops.add_custom.default)" in made("export", "--torchair", "my_ops.so").out
    header = made("export", "--reg-op", "my_ops.so").out
    assert "    .OPTIONAL_INPUT(y, TensorType::ALL())\n" in header and "    .ATTR(alpha, Float, 1.5)\n" in header
    made("export", "--reg-op", "my_ops.so", "-o", "one.h")
    assert (made.folder / "one.h").read_text() == header
    assert made("export", "--ge", "my_ops.so", "-o", "proto").out.split() == ["proto/my_ops_proto.h", "proto/my_ops_infer.cpp", "proto/dovetail_ge.h"]
    assert (made.folder / "proto/my_ops_infer.cpp").read_text().endswith('\nDOVETAIL_GE(AddCustom, "my_ops::add_custom")\n')
    assert (made.folder / "proto/my_ops_proto.h").read_text() == header
    made("import", "--reg-op", "one.h", "-o", "back")
    assert 'add_custom(Tensor x, Tensor? y, *, float alpha=1.5) -> Tensor z"' in (made.folder / "back/one.c").read_text()
    assert "def AddCustom(x: Tensor, y: Optional[Tensor], *, alpha: float = 1.5," in (made.folder / "back/auto_generated_ge_raw_custom_ops.py").read_text()


def test_only_the_functions(made):
    made("export", "--reg-op", "my_ops.so", "-o", "one.h")
    assert made("import", "--reg-op", "--builders", "one.h", "-o", "back").out.split() == ["back/auto_generated_ge_raw_custom_ops.py"]


@pytest.mark.parametrize("words, code, message", [
    (["export", "my_ops.so"], 2, "expected --torchair, --reg-op or --ge"),
    (["export", "--ge", "--reg-op", "my_ops.so"], 2, "expected one of --reg-op and --ge"),
    (["export", "--ge"], 2, "expected a binary, or a source file"),
    (["export", "--ge", "no.so"], 1, "no.so: cannot open"),
    (["import", "a.h"], 2, "expected --reg-op"),
    (["import", "--reg-op"], 2, "expected a header with REG_OP"),
    (["import", "--reg-op", "my_ops.c"], 1, "my_ops.c: expected REG_OP, found none"),
    (["import", "--reg-op", "no.h"], 1, "no.h: No such file or directory"),
])
def test_messages(made, words, code, message):
    assert message in made(*words, code=code).err
