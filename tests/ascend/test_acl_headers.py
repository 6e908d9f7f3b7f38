"""bridges/ascend's tables against the headers that torch-npu ships: numbers of element types, formats and enumerations, and the functions' types."""
import importlib.util
import pathlib
import re
import subprocess

import pytest

if importlib.util.find_spec("torch_npu") is None:
    pytest.skip("no torch_npu here: make test-ascend", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BRIDGE = ROOT / "bridges/ascend"
ACL = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1] / "torch_npu/include"
NAMES = {"f32": "FLOAT", "f16": "FLOAT16", "i8": "INT8", "i32": "INT32", "u8": "UINT8", "i16": "INT16", "u16": "UINT16", "u32": "UINT32", "i64": "INT64",
         "u64": "UINT64", "f64": "DOUBLE", "bool": "BOOL", "c64": "COMPLEX64", "c128": "COMPLEX128", "bf16": "BF16", "i4": "INT4", "u1": "UINT1",
         "c32": "COMPLEX32", "f8_e5m2": "FLOAT8_E5M2", "f8_e4m3fn": "FLOAT8_E4M3FN", "f8_e8m0fnu": "FLOAT8_E8M0", "f6_e3m2fn": "FLOAT6_E3M2",
         "f6_e2m3fn": "FLOAT6_E2M3", "f4_e2m1fn": "FLOAT4_E2M1"}

PASSES_ALIKE = r"""
#include <type_traits>
template <class A, class B> constexpr bool alike() {
    using X = std::decay_t<A>; using Y = std::decay_t<B>;
    if (std::is_pointer_v<X> != std::is_pointer_v<Y> || std::is_floating_point_v<X> != std::is_floating_point_v<Y>) return false;
    return std::is_void_v<X> || sizeof(std::conditional_t<std::is_void_v<X>, int, X>) == sizeof(std::conditional_t<std::is_void_v<Y>, int, Y>);
}
template <class F, class G> struct same : std::false_type {};
template <class R, class... A, class S, class... B> struct same<R (*)(A...), S (*)(B...)> {
    static constexpr bool all() { if constexpr (sizeof...(A) != sizeof...(B)) return false; else return alike<R, S>() && (alike<A, B>() && ...); }
    static constexpr bool value = all();
};
"""


def compiles(tmp_path, text, *flags):
    (tmp_path / "t.cpp").write_text(text)
    return subprocess.run(["g++", "-std=c++17", "-fsyntax-only", "-w", f"-I{ACL}", f"-I{BRIDGE}", *flags, tmp_path / "t.cpp"], capture_output=True, text=True)


def numbers(text):
    rows = re.findall(r"^DTYPE\((\w+), (\d+)\)", text, re.M)
    checks = "".join(f'static_assert({number} == ACL_{NAMES[name]}, "{name}");\n' for name, number in rows)
    for ours in re.findall(r"DV_(ACL_\w+) = \d", (BRIDGE / "abi.h").read_text()):
        checks += f'static_assert((int)DV_{ours} == (int){ours}, "{ours}");\n'
    return '#include "acl/acl.h"\n#include "acl/acl_base.h"\n#include "abi.h"\n' + checks, len(rows)


def test_numbers(tmp_path):
    text, n = numbers((BRIDGE / "dtypes.def").read_text())
    assert n == len(NAMES)
    r = compiles(tmp_path, text)
    assert r.returncode == 0, r.stderr


def test_numbers_can_differ(tmp_path):
    text, _ = numbers((BRIDGE / "dtypes.def").read_text().replace("DTYPE(bf16, 27)", "DTYPE(bf16, 26)"))
    assert "bf16" in compiles(tmp_path, text).stderr


def functions(library):
    return re.findall(rf"^ACL\({library}, \w+, [^,]+, (\w+),", (BRIDGE / "acl.def").read_text(), re.M)


def test_functions_of_the_runtime(tmp_path):
    names = functions("RUNTIME")
    text = '#include "acl/acl.h"\n#include "abi.h"\n' + PASSES_ALIKE + "".join(
        f'static_assert(same<decltype(dv_acl::{n}), decltype(&{n})>::value, "{n}");\n' for n in names)
    r = compiles(tmp_path, text)
    assert len(names) == 10 and r.returncode == 0, r.stderr
    wrong = text.replace("decltype(&aclrtFree)", "decltype(&aclrtMalloc)")
    assert "aclrtFree" in compiles(tmp_path, wrong).stderr


def test_functions_of_descriptors(tmp_path):
    """From torch_npu's own declarations, as far as it has them; without torch's headers, by the text."""
    header = (ACL / "third_party/op-plugin/op_plugin/utils/op_api_common_base.h").read_text()
    types = re.findall(r"^typedef [^;]*?\(\*_acl\w+\)\([^;]*?\);", header, re.M | re.S)
    declared = {re.search(r"\(\*_(\w+)\)", t)[1] for t in types}
    names = [n for n in functions("NN") if n in declared]
    assert len(names) >= 14 and {"aclCreateTensor", "aclDestroyTensorList", "aclCreateFloatArray"} <= set(names)
    opaque = "".join(f"struct {n};\n" for n in sorted(set(re.findall(r"^typedef struct (acl\w+) ", header, re.M))))
    text = '#include "acl/acl.h"\n#include "abi.h"\n' + opaque + PASSES_ALIKE + "\n".join(types) + "\n" + "".join(
        f'static_assert(same<decltype(dv_acl::{n}), _{n}>::value, "{n}");\n' for n in names)
    r = compiles(tmp_path, text)
    assert r.returncode == 0, r.stderr


def stand_in():
    """The functions of CANN that tests/ascend has place-holders for: (result, name, parameters)."""
    folder = ROOT / "tests/ascend"
    own = (folder / "stand_in.c").read_text()
    device = re.sub(r"\b(attributes|event) \*", "void *", (folder / "device.c").read_text())
    found = re.findall(r"^API ([^;{}()]*?)\b(acl\w+)\(([^;{}]*?)\);", own + device, re.M)
    found += [(f"struct acl{name}Array *", f"aclCreate{name}Array", f"const {of} *values, uint64_t n") for name, of in re.findall(r"^ARRAY\((\w+), [A-Z]+, (\w+),", own, re.M)]
    found += [("int32_t", f"aclDestroy{name}", f"const struct acl{name} *p") for name in re.findall(r"^DESTROY(?:_LIST)?\((\w+), [A-Z]+\)$", own, re.M)]
    found += [("int32_t", name, parameters) for name, parameters in re.findall(r"^CALL\((acl\w+), ([^{}]*?)\)\s*\{", device, re.M)]
    return found


def place_holders():
    """Static assertions for those that a header of the wheel declares, and the names of the others."""
    header = (ACL / "third_party/op-plugin/op_plugin/utils/op_api_common_base.h").read_text()
    types = {re.search(r"\(\*_(\w+)\)", t)[1]: t for t in re.findall(r"^typedef [^;]*?\(\*_acl\w+\)\([^;]*?\);", header, re.M | re.S)}
    runtime = "".join(f.read_text(errors="replace") for f in [*ACL.glob("acl/*.h"), *ACL.glob("third_party/acl/inc/acl/*.h")])
    rows = stand_in()
    opaque = "".join(f"struct {n};\n" for n in sorted(set(re.findall(r"^typedef struct (acl\w+) ", header, re.M))))
    text = '#include "acl/acl.h"\n#include "acl/acl_mdl.h"\n#include "abi.h"\n' + opaque + PASSES_ALIKE + "namespace ours {\n" + "".join(
        f"{result} {name}({parameters});\n" for result, name, parameters in rows) + "}\n" + "\n".join(types.values()) + "\n"
    unknown, n = [], 0
    for _, name, _ in rows:
        theirs = f"_{name}" if name in types else f"decltype(&::{name})" if re.search(rf"ACL_FUNC_VISIBILITY[^;]*\b{name}\(", runtime) else None
        if theirs:
            text, n = text + f'static_assert(same<decltype(&ours::{name}), {theirs}>::value, "{name}");\n', n + 1
        else:
            unknown.append(name)
    return text, n, unknown


def test_the_stand_in_has_cann_s_functions(tmp_path):
    text, n, unknown = place_holders()
    r = compiles(tmp_path, text, f"-I{ACL}/third_party/acl/inc")
    assert r.returncode == 0 and n > 45 and unknown == ["aclSetAclOpExecutorRepeatable", "aclDestroyAclOpExecutor"], (r.stderr[:2000], n, unknown)
    assert '"aclrtMalloc"' in text and '"aclCreateTensor"' in text
    wrong = text.replace("aclrtMalloc(void **out, size_t size, int32_t policy)", "aclrtMalloc(void **out, int32_t size, int32_t policy)")
    assert "aclrtMalloc" in compiles(tmp_path, wrong, f"-I{ACL}/third_party/acl/inc").stderr
