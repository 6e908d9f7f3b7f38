"""The headers, as those who include them see them: alone, as C11 and C++17, with gcc, clang and nvcc; and the frozen layout."""
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
HERE = pathlib.Path(__file__).parent
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wpedantic", "-Werror"]
COMPILERS = [(c, ["-std=c11", "-Wstrict-prototypes"]) for c in ("gcc", "clang")] + [(c, ["-x", "c++", "-std=c++17"]) for c in ("g++", "clang++")]


def compile_text(tmp_path, compiler, flags, text, name="t.c"):
    path = tmp_path / name
    path.write_text(text)
    return compile_file(tmp_path, compiler, flags, path)


def compile_file(tmp_path, compiler, flags, path):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    return subprocess.run([compiler, *flags, f"-I{INCLUDE}", "-c", str(path), "-o", str(tmp_path / "t.o")], capture_output=True, text=True)


@pytest.mark.parametrize("compiler, flags", COMPILERS, ids=[c for c, _ in COMPILERS])
def test_layout(tmp_path, compiler, flags):
    r = compile_file(tmp_path, compiler, flags + WARNINGS, HERE / "layout.c")
    assert r.returncode == 0, r.stderr


def test_layout_can_fail(tmp_path):
    """The static assertions work: the error names a field that moved."""
    text = (HERE / "layout.c").read_text().replace("FIELD(dv_kernel_decl, run, 64, 8)", "FIELD(dv_kernel_decl, run, 72, 8)")
    r = compile_text(tmp_path, "gcc", ["-std=c11"], text)
    assert r.returncode != 0 and "dv_kernel_decl.run moved" in r.stderr


@pytest.mark.parametrize("header", ["dovetail_op.h", "dovetail.h", "dovetail_test.h", "dovetail_torch.h", "dovetail_ascend.h"])
@pytest.mark.parametrize("compiler, flags", COMPILERS, ids=[c for c, _ in COMPILERS])
def test_alone(tmp_path, compiler, flags, header):
    r = compile_text(tmp_path, compiler, flags + [w for w in WARNINGS if w != "-Wpedantic"], f"#include <{header}>\n#include <{header}>\nint t(void);\n")
    assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_all_together(tmp_path, compiler):
    """In C, in the order of their names and in the reverse order; dovetail_elementwise.h is for C alone."""
    headers = sorted(path.name for path in INCLUDE.glob("*.h"))
    for order in (headers, headers[::-1]):
        r = compile_text(tmp_path, compiler, ["-std=c11", *(w for w in WARNINGS if w != "-Wpedantic")],
                         "".join(f"#include <{h}>\n" for h in order) + "int t(void);\n")
        assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_dialects(tmp_path, compiler):
    """An operator file compiles in every C dialect from C11 on."""
    text = ("#include <dovetail_op.h>\nstruct s { const dv_tensor *x; dv_tensor *out; };\n"
            "static int k(dv_context *c, const struct s *a) { (void)c; (void)a; return DV_OK; }\n"
            'DV_OPERATOR(f, struct s, (x, out), .kernels = DV_KERNELS(DV_KERNEL(struct s, "cpu", "f32", k)));\nDV_LIBRARY(l, &dv_op_f);\n')
    for dialect in ("c11", "gnu11", "c17", "gnu17", "c2x"):
        r = compile_text(tmp_path, compiler, [f"-std={dialect}", "-Wall", "-Wextra", "-Werror", "-fPIC"], text)
        assert r.returncode == 0, (dialect, r.stderr)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_declaring_in_cxx(tmp_path, compiler):
    for macro in ("DV_OPERATOR(f, struct s, (x))", "DV_LIBRARY(l, &x)", "DV_LIBRARY_FRAGMENT(a, b)", "DV_LIBRARY_IMPL(a, b)"):
        r = compile_text(tmp_path, compiler, ["-x", "c++", "-std=c++17"], f"#include <dovetail_op.h>\n{macro};\n")
        assert r.returncode != 0 and "declare the" in r.stderr and "in a C file" in r.stderr


def test_kernel_of_another_struct(tmp_path):
    text = ("#include <dovetail_op.h>\nstruct a { int64_t n; };\nstruct b { int64_t n; };\n"
            "static int k(dv_context *c, const struct b *a) { (void)c; (void)a; return DV_OK; }\n"
            'DV_OPERATOR(f, struct a, (n), .kernels = DV_KERNELS(DV_KERNEL(struct a, "cpu", NULL, k)));\n')
    assert compile_text(tmp_path, "gcc", ["-std=c11"], text).returncode != 0
    assert compile_text(tmp_path, "gcc", ["-std=c11"], text.replace("const struct b", "const struct a")).returncode == 0


def test_field_of_an_unknown_type(tmp_path):
    text = "#include <dovetail_op.h>\nstruct a { short n; };\nDV_OPERATOR(f, struct a, (n), .flags = 0);\n"
    r = compile_text(tmp_path, "gcc", ["-std=c11", "-Werror"], text)
    assert r.returncode != 0 and "dv__no_such_type" in r.stderr or r.returncode == 0  # where the compiler lets it pass, loading refuses it


def test_sixty_four_fields(tmp_path):
    names = [f"x{i}" for i in range(64)]
    text = "#include <dovetail_op.h>\nstruct a { %s };\nDV_OPERATOR(f, struct a, (%s), .flags = 0);\n" % (
        " ".join(f"int64_t {n};" for n in names), ", ".join(names))
    for compiler in ("gcc", "clang"):
        r = compile_text(tmp_path, compiler, ["-std=c11", "-Wall", "-Wextra", "-Werror"], text)
        assert r.returncode == 0, r.stderr


LAUNCHER = """#include <dovetail_op.h>
struct scale { const dv_tensor *x; double by; dv_tensor *out; };
static __global__ void kernel(const float *x, float by, float *out, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = by * x[i];
}
extern "C" int scale_cuda(dv_context *ctx, const struct scale *a)
{
    const int64_t n = dv_numel(a->x);
    kernel<<<(unsigned)((n + 255) / 256), 256, 0, (cudaStream_t)ctx->stream>>>((const float *)a->x->data, (float)a->by, (float *)a->out->data, n);
    const cudaError_t e = cudaGetLastError();
    return e == cudaSuccess ? DV_OK : dv_error(ctx, DV_EKERNEL, "scale: %s", cudaGetErrorString(e));
}
"""


@pytest.mark.slow
def test_cuda_launcher(tmp_path):
    r = compile_text(tmp_path, "nvcc", ["-std=c++17", "-Xcompiler", "-fPIC,-Wall,-Werror"], LAUNCHER, "t.cu")
    assert r.returncode == 0, r.stderr
    symbols = subprocess.run(["nm", str(tmp_path / "t.o")], capture_output=True, text=True).stdout
    assert " T scale_cuda" in symbols


def test_tensor_is_dlpacks(tmp_path):
    torch = pytest.importorskip("torch")
    include = pathlib.Path(torch.__file__).parent / "include"
    if not (include / "ATen" / "dlpack.h").exists():
        pytest.skip("this torch ships no dlpack.h")
    text = "#include <ATen/dlpack.h>\n#include <dovetail_op.h>\n" + "".join(
        f"static_assert(offsetof(dv_tensor, {f}) == offsetof(DLTensor, {f}) && sizeof(dv_tensor::{f}) == sizeof(DLTensor::{f}), \"{f}\");\n"
        for f in ("data", "device", "ndim", "dtype", "shape", "strides", "byte_offset")) + (
        "static_assert(sizeof(dv_tensor) == sizeof(DLTensor) && kDLCPU == DV_CPU && kDLCUDA == DV_CUDA && kDLExtDev == DV_NPU, \"\");\n"
        "static_assert(kDLInt == 0 && kDLBfloat == 4 && kDLBool == 6 && kDLFloat8_e4m3fn == 10 && kDLFloat4_e2m1fn == 17, \"\");\n")
    r = compile_text(tmp_path, "g++", ["-x", "c++", "-std=c++17", f"-I{include}"], text)
    assert r.returncode == 0, r.stderr
