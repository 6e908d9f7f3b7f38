"""An operator may have 64 fields; each value reaches the field of its name."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
N = 63  # arguments; the result is the 64th


def test_64_fields(tmp_path):
    names = [f"x{i}" for i in range(N)]
    weights = " + ".join(f"{i + 1} * *(const float *)a->x{i}->data" for i in range(N))
    (tmp_path / "many.c").write_text(f"""
#include <dovetail_op.h>
struct many {{ const dv_tensor {', '.join('*' + n for n in names)}; dv_tensor *out; }};
static int many(dv_context *ctx, const struct many *a)
{{
    (void)ctx;
    *(float *)a->out->data = {weights};
    return DV_OK;
}}
DV_OPERATOR(many, struct many, ({', '.join(names)}, out),
    .schema = "many({', '.join('Tensor ' + n for n in names)}) -> Tensor out",
    .contract = "{', '.join(n + '[]:f32' for n in names)} -> out[]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct many, "cpu", NULL, many)));
DV_LIBRARY(many_ops, &dv_op_many);
""")
    subprocess.run([BUILD / "bin" / "dovetail", "build", tmp_path / "many.c", "-o", tmp_path / "many.so"], check=True)
    code = f"""
import dovetail, numpy
f = dovetail.load({str(tmp_path / 'many.so')!r}).many
x = [numpy.array(float(i % 7), "float32") for i in range({N})]
assert f(*x) == sum((i + 1) * (i % 7) for i in range({N})), f(*x)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(BUILD / "python")})
