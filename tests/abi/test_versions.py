"""Binaries and runtimes of different minors: this runtime with the binaries of a newer header, and a runtime built from a newer
header with the binaries of this one. The newer header is made here from the present one."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))

OPERATOR = """#include <dovetail_op.h>
struct scale { const dv_tensor *x; double by; %(field)s dv_tensor *out; };
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = (float)a->by * ((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, by, %(listed)s out), .schema = "scale(Tensor x, float by) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T" %(operator)s,
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32 %(kernel)s)));
%(library)s
"""
PLAIN = dict(field="", listed="", operator="", kernel="", library="DV_LIBRARY(LIBRARY_NAME, &dv_op_scale);")
LIBRARY = """DV__EXPORT const dv_library_decl dovetail_library_1 = { .size = sizeof(dv_library_decl), .name = "LIBRARY", .kind = DV_LIBRARY_DEF,
    .operators = (const dv_operator_decl *const[]){ &dv_op_scale, NULL }, %s };"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """include/ of minor 1: every struct of a declaration has one field more at its end, and there is one field type more."""
    folder = tmp_path_factory.mktemp("newer") / "include"
    folder.mkdir()
    for path in (ROOT / "include").glob("*.h"):
        text = path.read_text()
        if path.name == "dovetail_op.h":
            text, n = re.subn(r"#define DV_ABI_MINOR \d+", "#define DV_ABI_MINOR 99", text)
            assert n == 1
            for struct, extra in (("dv_field_decl", "uint64_t later;"), ("dv_kernel_decl", "int64_t later; const char *words;"),
                                  ("dv_operator_decl", "const char *later;"), ("dv_library_decl", "uint64_t later;")):
                assert text.count(f"}} {struct};") == 1
                text = text.replace(f"}} {struct};", f"    {extra}\n}} {struct};")
            text = text.replace("typedef struct dv_layout {", "typedef struct dv_later { int32_t value; } dv_later;\ntypedef struct dv_layout {")
            last = "X(BOOL_RESULT, 42, bool *, \"bool\", RESULT, BOOL, BOOL, b)"
            text = text.replace(last, last + ' X(LATER, 990, dv_later, "Later", ONE, LATER, LATER, later)')
            assert "LATER, 990" in text
        (folder / path.name).write_text(text)
    return folder


def binary(tmp_path, include, name, command=("cc",), **parts):
    source = tmp_path / f"{name}.c"
    source.write_text((OPERATOR % {**PLAIN, **parts}).replace("LIBRARY_NAME", name).replace('"LIBRARY"', f'"{name}"'))
    so = tmp_path / f"{name}.so"
    r = subprocess.run([*command, "-std=c11", "-O1", "-Wno-missing-field-initializers", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}",
                        str(source), "-o", str(so)], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return so


class Runtime:
    def __init__(self, path):
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.dv_last_error.restype = ctypes.c_char_p

    def load(self, path):
        """"" and the library, or the status' name and message."""
        handle = ctypes.c_void_p()
        status = self.library.dv_load(str(path).encode(), ctypes.byref(handle))
        if status == 0:
            self.library.dv_library_free(handle)
            return ""
        self.library.dv_status_name.restype = ctypes.c_char_p
        return f"{self.library.dv_status_name(status).decode()}: {self.library.dv_last_error().decode()}"


@pytest.fixture(scope="module")
def runtime():
    return Runtime(BUILD / "lib" / "libdovetail.so")


@pytest.fixture(scope="module")
def newer_runtime(newer, tmp_path_factory):
    """libdovetail compiled with the newer header."""
    out = tmp_path_factory.mktemp("runtime")
    sources = [str(p) for p in (ROOT / "core").rglob("*.c")]
    so = out / "libdovetail_newer.so"
    r = subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O0", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{newer}", f"-I{ROOT / 'core'}",
                        *sources, "-o", str(so), "-Wl,-Bsymbolic", "-pthread", "-ldl", "-lm"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return Runtime(so)


def test_same(tmp_path, runtime):
    assert runtime.load(binary(tmp_path, ROOT / "include", "same")) == ""


def test_a_binary_without_a_note(tmp_path, runtime):
    """A binary of an older header, without a note for the digest, is checked as before."""
    include = tmp_path / "include"
    shutil.copytree(ROOT / "include", include)
    header = include / "dovetail_op.h"
    text, n = re.subn(r"^ *DV__LIBRARY_NOTE *\\\n", "", header.read_text(), flags=re.M)
    assert n == 1
    header.write_text(text)
    path = binary(tmp_path, include, "noteless")
    assert b"Dovetail\0" not in path.read_bytes() and runtime.load(path) == ""
    stamp, at = ctypes.create_string_buffer(16), ctypes.c_uint64()
    assert runtime.library.dv_file_digest(str(path).encode(), ctypes.byref(at), stamp)
    assert "noteless.so: not a usable operator binary: it has no note for a digest" in runtime.library.dv_last_error().decode()


def test_newer_binary_that_asks_for_nothing_new(tmp_path, newer, runtime):
    assert runtime.load(binary(tmp_path, newer, "quiet")) == ""


@pytest.mark.parametrize("parts, words", [
    (dict(operator=', .later = "x"'), ["EABI", "scale", "dv_operator_decl", "byte 120"]),
    (dict(kernel=", .later = 1 << 9"), ["EABI", "scale", "dv_kernel_decl", "byte 89", "knows 88"]),
    (dict(kernel=', .words = "x"'), ["EABI", "scale", "dv_kernel_decl"]),
    (dict(library=LIBRARY % ".later = 1"), ["EABI", "dv_library_decl", "byte 48"]),
    (dict(field="dv_later l;", listed="l,"), ["EABI", "scale", "'l'", "990"]),
    (dict(operator=", .flags = 64"), ["EABI", "scale", "flags 0x40"]),
    (dict(kernel=", .flags = 64"), ["EABI", "scale", "scale_f32", "flags 0x40"]),
    (dict(kernel=", .flags = DV_KERNEL_FOREIGN"), ["ESYNTAX", "scale", "scale_f32", "expected function(list)"]),
    (dict(kernel=", .reserved = 1"), ["EABI", "scale", "scale_f32"]),
    (dict(library=LIBRARY % ".kind = 9"), ["EABI", "kind 9"]),
    (dict(library=LIBRARY % ".reserved = 9"), ["EABI"]),
    (dict(library=LIBRARY % ".size = 40"), ["EABI", "dv_library_decl has 40 bytes"]),
    (dict(library=LIBRARY % ".size = 100000"), ["EBINARY", "dv_library_decl of 100000 bytes"]),
    (dict(operator=", .size = 8"), ["EABI", "dv_operator_decl has 8 bytes"]),
    (dict(kernel=", .size = 84"), ["EABI", "dv_kernel_decl has 84 bytes"]),
    (dict(kernel=", .split = -1"), ["EBINARY", ".split is -1"]),
    (dict(operator=", .frame_size = 16"), ["EBINARY", "'out'", "not inside its struct of 16 bytes"]),
    (dict(operator=", .name = NULL"), ["EBINARY", "has no name"]),
    (dict(operator=", .doc = (const char *)16"), ["EBINARY", ".doc points outside the binary"]),
    (dict(operator=", .fields = (const dv_field_decl *const *)4096"), ["EBINARY", ".fields points outside the binary"]),
])
def test_refused(tmp_path, newer, runtime, parts, words):
    message = runtime.load(binary(tmp_path, newer, "refused", **parts))
    for w in words + ["refused.so"]:
        assert w in message, message


TOOLCHAINS = [["cc"], ["gcc"], ["clang"], ["cc", "-fuse-ld=gold"], ["clang", "-fuse-ld=lld"], ["cc", "-Wl,-z,noseparate-code"], ["cc", "-Wl,--hash-style=sysv"],
              ["cc", "-Wl,--hash-style=both"], ["cc", "-s"], ["cc", "-Wl,-z,now"], ["cc", "-Wl,-z,norelro"], ["cc", "-g3"], ["cc", "-nostdlib"],
              ["cc", "-flto"], ["cc", "-Wl,-Bsymbolic", "-Wl,--gc-sections"], ["cc", "-fno-plt"], ["cc", "-fvisibility=default"], ["cc", "-Wl,-z,pack-relative-relocs"]]


@pytest.mark.parametrize("command", TOOLCHAINS, ids=" ".join)
def test_toolchains(tmp_path, runtime, command):
    """Binaries of several compilers and linkers pass the checks."""
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]} here")
    probe = subprocess.run([*command, "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", str(tmp_path / "probe.so")], capture_output=True)
    if probe.returncode:
        pytest.skip("the toolchain does not know this option")
    name = "t" + str(TOOLCHAINS.index(command))
    assert runtime.load(binary(tmp_path, ROOT / "include", name, command=command)) == ""


def test_stripped_of_sections(tmp_path, runtime):
    """A binary without section headers is fine: the loader needs none."""
    so = binary(tmp_path, ROOT / "include", "bare")
    data = bytearray(so.read_bytes())
    data[0x28:0x30] = bytes(8)  # e_shoff
    data[0x3c:0x40] = bytes(4)  # e_shnum, e_shstrndx
    so.write_bytes(data)
    assert runtime.load(so) == ""


CALL = r"""#include <dovetail.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    dv_library *lib;
    dv_operator *op;
    dv_tensor *x;
    const int64_t shape[1] = { 3 };
    dv_value result = dv_default(), args[2];
    char name[256];
    snprintf(name, sizeof name, "%s::scale", argc == 3 ? argv[2] : "");
    if (dv_load(argv[1], &lib) || dv_find(name, &op) || dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f32), 1, shape, &x))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    for (int i = 0; i < 3; i++)
        ((float *)x->data)[i] = (float)i + 1;
    args[0] = dv_from_tensor(x);
    args[1] = dv_from_float(2.5);
    if (dv_call(op, args, 2, &result, 1, NULL))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    const float *y = result.as.tensor->data;
    printf("%g %g %g\n", y[0], y[1], y[2]);
    dv_tensor_unref((dv_tensor *)(uintptr_t)result.as.tensor);
    dv_tensor_unref(x);
    dv_operator_unref(op);
    dv_library_free(lib);
    return 0;
}
"""


def call(tmp_path, include, library, path, name):
    """Load and call from a C program of its own."""
    source, program = tmp_path / "call.c", tmp_path / "call"
    source.write_text(CALL)
    r = subprocess.run(["cc", "-std=c11", f"-I{include}", str(source), str(library), f"-Wl,-rpath,{pathlib.Path(library).parent}", "-o", str(program)],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    r = subprocess.run([str(program), str(path), name], capture_output=True, text=True)
    return r.stdout.strip() or r.stderr


def test_call_of_a_newer_binary(tmp_path, newer):
    so = binary(tmp_path, newer, "quiet2")
    assert call(tmp_path, ROOT / "include", BUILD / "lib" / "libdovetail.so", so, "quiet2") == "2.5 5 7.5"


def test_call_of_an_older_binary(tmp_path, newer, newer_runtime):
    so = binary(tmp_path, ROOT / "include", "older2")
    assert call(tmp_path, newer, newer_runtime.path, so, "older2") == "2.5 5 7.5"


def test_older_binary(tmp_path, newer_runtime):
    """The newer runtime takes a field that an older binary lacks as zero."""
    assert newer_runtime.load(binary(tmp_path, ROOT / "include", "older")) == ""


def test_newer_runtime_with_its_own(tmp_path, newer, newer_runtime):
    assert newer_runtime.load(binary(tmp_path, newer, "own", operator=', .later = "x"', kernel=", .later = 3")) == ""
