"""Document 002's launcher of an AscendC kernel: the header and the launcher word for word, as a kernel, on the stand-in for CANN. In the place of
Ascend's compiler is a script that makes C++ of `f<<<blocks, l2ctrl, stream>>>(...)`."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
CANN = BUILD / "tests/ascend/cann"
DOCUMENT = next((d for p in ROOT.parents for d in (p / "shared" / "seeds").glob("002_*.txt")), None)

HEADER = """\
#ifndef VLLM_MINDSPORE_OPS_ASCENDC_MY_CUSTOM_OP_H
#define VLLM_MINDSPORE_OPS_ASCENDC_MY_CUSTOM_OP_H

extern void MyCustomOpKernelEntry(uint32_t blockDims, void *l2ctrl, void *aclStream,
                                  uint8_t *input, uint8_t *output, int32_t param1, int32_t param2);

#endif  // VLLM_MINDSPORE_OPS_ASCENDC_MY_CUSTOM_OP_H
"""
LAUNCHER = """\
#ifndef __CCE_KT_TEST__
void MyCustomOpKernelEntry(uint32_t blockDims, void *l2ctrl, void *aclStream,
                           uint8_t *input, uint8_t *output, int32_t param1, int32_t param2) {
  my_custom_op_impl<<<blockDims, l2ctrl, aclStream>>>(input, output, param1, param2);
}
#endif
"""
# the document leaves the computation open, and its header is for C++ files too: extern "C" is ours
KERNEL = """\
#include <stdint.h>
extern "C" {
#include "my_custom_op.h"
}
#include "kernel_operator.h"

extern "C" __global__ __aicore__ void my_custom_op_impl(GM_ADDR input, GM_ADDR output,
                                                        int32_t param1, int32_t param2) {
  for (int i = 0; i < 3; i++) {
    int64_t at = 3 * GetBlockIdx() + i;
    GM(int32_t, output)[at] = param1 * GM(int32_t, input)[at] + param2;
  }
}

""" + LAUNCHER
OPERATOR = """\
#include <dovetail_ascend.h>
#include "my_custom_op.h"

struct my_custom_op { int64_t param1, param2; const dv_tensor *input; dv_tensor *output; };

DV_ASCENDC_LAUNCHER(MyCustomOpKernelEntry)

DV_OPERATOR(my_custom_op, struct my_custom_op, (param1, param2, input, output),
    .schema = "my_custom_op(int param1, int param2, Tensor input, Tensor(a!) output) -> ()",
    .contract = "input[*s]:i32, output[*s]:i32",
    .kernels = DV_KERNELS(DV_ASCENDC("i32", MyCustomOpKernelEntry, 8, "input, output, param1, param2")));

DV_LIBRARY(npu_ops, &dv_op_my_custom_op);
"""
KERNEL_OPERATOR_H = r"""
#include <string.h>
#include <tuple>
#include "stand_in.h"
#define __global__
#define __aicore__
typedef uint8_t *GM_ADDR;
static thread_local uint32_t this_block;
static inline uint32_t GetBlockIdx() { return this_block; }
#define GM(T, p) ((T *)stand_in_touch(__func__, p, 24 * sizeof(T)))
template <class... A> struct launch {
    typedef void kernel(A...);
    struct call { kernel *f; std::tuple<A...> args; };
    static void block(uint32_t i, const void *p) { this_block = i; std::apply(((const call *)p)->f, ((const call *)p)->args); }
};
template <class... A> void stand_in_launch_(const char *name, void (*f)(A...), uint32_t blocks, void *l2ctrl, void *stream, A... a)
{
    const typename launch<A...>::call c = { f, { a... } };
    stand_in_kernel(name, blocks, l2ctrl, stream, launch<A...>::block, &c, sizeof c);
}
"""
CCEC = r"""#!/bin/sh
for last; do :; done
sed -E 's/(\w+)<<<(.*)>>>\((.*)\);/stand_in_launch_(#\1, \1, \2, \3);/; s/\(#(\w+)/("\1"/' "$last" > "$last.cpp" && exec c++ -fno-exceptions -I. -I@TESTS@ "$@.cpp"
"""
PROGRAM = r"""
#include <dovetail.h>
#include <dovetail_ascend.h>
#include <stdio.h>
#include "stand_in.h"

#define DO(call) do if (call) return fprintf(stderr, "%s\n", dv_last_error()), 1; while (0)
int main(int argc, char **argv)
{
    const int64_t shape[] = { 24 }, strides[] = { 1 };
    dv_library *lib;
    dv_operator *op;
    dv_tensor *x, *y;
    (void)argc;
    DO(dv_ascend_open(NULL) || dv_load(argv[1], &lib) || dv_find("npu_ops::my_custom_op", &op));
    const dv_host *host = dv_ascend_host();
    DO(host->new_tensor(host, -1, dv_dtype_from_key(DV_DTYPE_i32), (dv_device){ DV_NPU, 0 }, 1, shape, strides, &x));
    DO(host->new_tensor(host, -1, dv_dtype_from_key(DV_DTYPE_i32), (dv_device){ DV_NPU, 0 }, 1, shape, strides, &y));
    for (int i = 0; i < 24; i++)
        ((int32_t *)stand_in_memory(x->data))[i] = i;
    const dv_value args[4] = { dv_from_int(10), dv_from_int(20), dv_from_tensor(x), dv_from_tensor(y) };
    DO(dv_call(op, args, 4, NULL, 0, host) || dv_ascend_wait(0));
    for (int i = 0; i < 24; i++)
        printf("%d ", ((const int32_t *)stand_in_memory(y->data))[i]);
    fprintf(stderr, "%s", stand_in_faults());
    return 0;
}
"""
RIGHT = "".join(f"{10 * i + 20} " for i in range(24))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not CANN.exists():
        pytest.skip("cmake -DDOVETAIL_TESTS=ON")
    folder = tmp_path_factory.mktemp("document_002")
    for name, text in {"my_custom_op.h": HEADER, "my_custom_op.cce": KERNEL, "my_ops.c": OPERATOR, "kernel_operator.h": KERNEL_OPERATOR_H,
                       "ccec": CCEC.replace("@TESTS@", f"{ROOT}/tests/ascend"), "main.c": PROGRAM}.items():
        (folder / name).write_text(text)
    (folder / "ccec").chmod(0o755)
    subprocess.run(["cc", "-std=c11", f"-I{ROOT}/include", f"-I{ROOT}/tests/ascend", "main.c", f"-L{BUILD}/lib", f"-L{CANN}/lib64", "-ldovetail_ascend",
                    "-ldovetail", "-lascendcl", f"-Wl,-rpath,{BUILD}/lib:{CANN}/lib64", "-o", "main"], cwd=folder, check=True)
    return folder


def build(folder, out, *words):
    """As CANN's set_env.sh leaves a shell: its libraries are found."""
    env = {**os.environ, "LD_LIBRARY_PATH": f"{CANN}/lib64"}
    return subprocess.run([BUILD / "bin/dovetail", "build", "-o", out, *words], cwd=folder, env=env, capture_output=True, text=True)


def run(folder, binary):
    env = {**os.environ, "ASCEND_HOME_PATH": str(CANN), "ASCEND_OPP_PATH": str(CANN / "opp")}
    r = subprocess.run(["./main", f"./{binary}"], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    return r.returncode, r.stdout, r.stderr


def test_the_header(folder):
    """No word of it is changed."""
    assert (folder / "my_custom_op.h").read_text() == HEADER
    if DOCUMENT:
        assert f"```cpp\n{HEADER}```" in DOCUMENT.read_text()
    weak = OPERATOR.replace("\n\nstruct", "\n#pragma weak MyCustomOpKernelEntry\n\nstruct", 1)
    (folder / "weak.c").write_text(weak)
    r = build(folder, "alone.so", "weak.c", "-W")
    assert r.returncode == 0, r.stderr
    code, _, said = run(folder, "alone.so")
    assert code == 1 and "npu_ops::my_custom_op: no launcher MyCustomOpKernelEntry in this binary: build it with the file that has it" in said, said
    r = build(folder, "none.so", "my_ops.c")
    assert r.returncode == 1 and "nothing defines 'MyCustomOpKernelEntry': name the file that does, or its library with -l" in r.stderr, r.stderr


def test_the_launcher(folder):
    if DOCUMENT:
        assert LAUNCHER in DOCUMENT.read_text()
    r = build(folder, "npu_ops.so", "my_ops.c", "my_custom_op.cce", "--ccec", "./ccec", "-L", CANN / "lib64", "-l", "ascendcl", "-W")
    assert r.returncode == 0, r.stderr
    assert run(folder, "npu_ops.so") == (0, RIGHT, "")


def test_a_linked_object(folder):
    """An object or an archive that was made elsewhere."""
    made = [folder / "ccec", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-O2", "-c", "-o", "kernel.o", "my_custom_op.cce"]
    subprocess.run(made, cwd=folder, check=True)
    subprocess.run(["ar", "rcs", "libkernel.a", "kernel.o"], cwd=folder, check=True)
    for out, *words in (("object.so", "-X", f"{folder}/kernel.o"), ("archive.so", "-L", ".", "-l", "kernel")):
        r = build(folder, out, "my_ops.c", *words, "-L", CANN / "lib64", "-l", "ascendcl")
        assert r.returncode == 0, r.stderr
        assert run(folder, out) == (0, RIGHT, "")


def test_a_launcher_with_a_mangled_name(folder):
    """A function of C++ is found under another name: the build says so, also where the launcher is declared weak."""
    weak, launcher = "#pragma weak MyCustomOpKernelEntry\n", "MyCustomOpKernelEntry(uint32_t, void *, void *, uint8_t *, uint8_t *, int32_t, int32_t)"
    (folder / "weak.c").write_text(OPERATOR.replace("\n\nstruct", f"\n{weak}\nstruct", 1))
    (folder / "mangled.cpp").write_text(f"#include <stdint.h>\nvoid {launcher} {{}}\n")
    (folder / "fine.cpp").write_text(f'#include <stdint.h>\nextern "C" void {launcher} {{}}\nvoid other(int) {{}}\n')
    for name, *options in (("visible.o",), ("hidden.o", "-fvisibility=hidden")):
        subprocess.run(["c++", "-c", "-fPIC", *options, "mangled.cpp", "-o", name], cwd=folder, check=True)
    expected = "'MyCustomOpKernelEntry' is a function of C++ where it is defined ('_Z21MyCustomOpKernelEntryjPvS_PhS0_ii'), and C does not find it: " \
               'declare it extern "C" there\n'
    for words in (["mangled.cpp"], ["-X", "visible.o"], ["-X", "hidden.o"]):
        r = build(folder, "mangled.so", "weak.c", *words)
        assert r.returncode == 1 and r.stderr.endswith(expected), r.stderr
        r = build(folder, "mangled.so", "my_ops.c", *words)
        assert r.returncode == 1 and 'a file of C++ must declare it extern "C"' in r.stderr, r.stderr
    assert build(folder, "fine.so", "weak.c", "fine.cpp").returncode == 0
