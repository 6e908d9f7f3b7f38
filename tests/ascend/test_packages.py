"""DV_ACLNN with real packages of operators from PyPI, made by CANN's tools: fbgemm-ascend and ops-rec. Each header aclnn_*.h gives a declaration,
whose call goes through the package's libcust_opapi.so to libnnopbase.so. nnopbase.c replaces that library: it prints each input, attribute and output
with its index in the node. ops-rec's libraries need more of CANN when they are loaded: its headers alone are compared. Runs in the environment of make test-ascend."""
import collections
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

if importlib.util.find_spec("torch_npu") is None:
    pytest.skip("no environment for packages here: make test-ascend", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
CANN = BUILD / "tests/ascend/cann"
PACKAGES = pathlib.Path(sys.prefix) / "packages"
WHEELS = ["fbgemm-ascend==1.5.0", "ops-rec==2.10.0"]  # for Python 3.11 alone, which nothing of them here needs

PROGRAM = r"""
#include <dovetail.h>
#include <dovetail_ascend.h>
#include <stdio.h>
#include <string.h>
#define DO(call) do if (call) return printf("error %s\n", dv_last_error()), 1; while (0)
static const int64_t shape[] = { 2 }, strides[] = { 1 }, ints[] = { 11, -12, 13 };
static const dv_tensor *tensors[256];
static size_t ntensors;
static int add(const dv_host *host)
{
    dv_tensor *t;
    DO(host->new_tensor(host, -1, dv_dtype_from_key(DV_DTYPE_f32), (dv_device){ DV_NPU, 0 }, 1, shape, strides, &t));
    tensors[ntensors++] = t;
    return 0;
}
static int call(const char *name, bool without_optional)
{
    dv_operator *op;
    dv_value args[128], results[16];
    static char texts[128][32];
    ntensors = 0;
    DO(dv_find(name, &op));
    const dv_host *host = dv_ascend_host();
    printf("call %s\n", name);
    for (size_t i = 0; i < dv_operator_nargs(op); i++) {
        dv_slot_info slot;
        DO(dv_operator_slot(op, i, &slot));
        if (slot.type == DV_FIELD_TENSOR && without_optional && slot.flags & DV_SLOT_OPTIONAL) {
            args[i] = dv_none();
            printf("argument %s (nil)\n", slot.name);
        } else if (slot.type == DV_FIELD_TENSOR || slot.type == DV_FIELD_TENSORS) {
            const size_t n = slot.type == DV_FIELD_TENSORS ? 3 : 1;
            for (size_t k = 0; k < n; k++) {
                DO(add(host));
                printf("argument %s %p\n", slot.name, tensors[ntensors - 1]->data);
            }
            args[i] = n == 3 ? dv_from_tensors(tensors + ntensors - 3, 3) : dv_from_tensor(tensors[ntensors - 1]);
        } else if (slot.type == DV_FIELD_INT) {
            args[i] = dv_from_int(1000000000000 + (int64_t)i);
        } else if (slot.type == DV_FIELD_FLOAT) {
            args[i] = dv_from_float(0.25 + (double)i);
        } else if (slot.type == DV_FIELD_BOOL) {
            args[i] = dv_from_bool(i % 2);
        } else if (slot.type == DV_FIELD_INTS) {
            args[i] = dv_from_ints(ints, 3);
        } else if (slot.type == DV_FIELD_STRING) {
            snprintf(texts[i], sizeof texts[i], "the text %zu", i);
            args[i] = dv_from_string(texts[i]);
        } else {
            return printf("error: type of %s\n", slot.name), 1;
        }
    }
    for (size_t i = 0; i < dv_operator_nresults(op); i++)
        results[i] = dv_default();
    DO(dv_call(op, args, dv_operator_nargs(op), results, dv_operator_nresults(op), host));
    DO(dv_ascend_wait(0));
    for (size_t i = 0; i < dv_operator_nresults(op); i++)
        printf("result %p\n", results[i].as.tensor->data);
    dv_operator_unref(op);
    return 0;
}
int main(int argc, char **argv)
{
    int status = 0;
    dv_library *library;
    DO(dv_ascend_open(NULL) || dv_load(argv[1], &library));
    for (int i = 2; i < argc; i++)
        for (int k = 0; k < 2; k++)
            status |= call(argv[i], k);
    return status;
}
"""

Header = collections.namedtuple("Header", "name, parameters, function, library")  # parameters: (type, name) in aclnn's order, without the last two


@pytest.fixture(scope="module")
def headers():
    """Returns every header of the two packages."""
    if not PACKAGES.exists():
        folder = PACKAGES.with_name("packages.part")
        download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--platform",
                    "manylinux_2_34_x86_64", "-d", folder, *WHEELS]
        subprocess.run(download, check=True)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as z:
                z.extractall(folder, [n for n in z.namelist() if n.endswith("libcust_opapi.so") or re.search(r"/aclnn\w*\.h$", n)])
            wheel.unlink()
        folder.rename(PACKAGES)
    found = [header(path) for path in sorted(PACKAGES.rglob("aclnn*.h"))]
    assert len(found) == 77
    return found


def header(path):
    function, parameters = re.search(r"aclnnStatus (aclnn\w+)GetWorkspaceSize\(([^)]*)\)", path.read_text()).groups()
    words = [re.fullmatch(r"\s*((?:const )?\w+) ?(\*\*|\*)?\s*(\w+)\s*", p).groups() for p in parameters.split(",")]
    assert [w[2] for w in words[-2:]] == ["workspaceSize", "executor"]
    library, = path.parents[1 if path.parent.name == "include" else 2].glob("lib/libcust_opapi.so")
    return Header(f"{path.relative_to(PACKAGES).parts[2].lower()}_{path.stem}", [(w[0].split()[-1], w[2]) for w in words[:-2]], function, library)


TYPES = {"aclTensor": ("Tensor", "const dv_tensor *"), "aclTensorList": ("Tensor[]", "dv_tensors "), "int64_t": ("int", "int64_t "),
         "double": ("float", "double "), "bool": ("bool", "bool "), "char": ("str", "dv_string "), "aclIntArray": ("int[]", "dv_ints ")}


def is_output(h, i):
    """True if parameter i is an output: CANN's generator puts outputs last, after the attributes."""
    numbers = [k for k, (type, _) in enumerate(h.parameters) if not type.startswith("aclTensor")]
    name = h.parameters[i][1]
    return i > numbers[-1] if numbers else bool(re.search("(^out|Out)(Optional)?$", name))


def declaration(h):
    """Returns the declaration that an author would write. An empty list of names stands for the generator's order. An output list is a written argument."""
    fields, args, results, dims, made, order = [], [], [], [], [], []
    lists = any(type == "aclTensorList" and is_output(h, i) for i, (type, _) in enumerate(h.parameters))
    for i, (type, name) in enumerate(h.parameters):
        schema, c = TYPES[type]
        output = is_output(h, i)
        order.append(name)
        if output and type == "aclTensor":
            results.append(f"Tensor {name}")
            made.append(f"{name}[2]:f32")
            c = "dv_tensor *"
        else:
            if output:
                schema, c = "Tensor(a!)[]", "dv_mut_tensors "
            elif name.endswith("Optional") and type == "aclTensor":
                schema += "?"
            args.append(f"{schema} {name}")
            dims += [f"{name}{'{i}' if type == 'aclTensorList' else ''}[...]:f32"] if type.startswith("aclTensor") else []
        fields.append((c, name))
    returns = f"({', '.join(results)})" if len(results) != 1 else results[0]
    return f"""struct {h.name} {{ {' '.join(f'{c}{name};' for c, name in fields)} }};
DV_OPERATOR({h.name}, struct {h.name}, ({', '.join(n for _, n in fields)}), .schema = "{h.name}({', '.join(args)}) -> {returns}",
    .contract = "{', '.join(dims)} -> {', '.join(made) or '()'}",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "{h.function.removeprefix('aclnn')}", "{', '.join(order) if lists else ''}")));
"""


@pytest.fixture(scope="module")
def folder(headers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    (folder / "all.c").write_text("#include <dovetail_ascend.h>\n" + "".join(map(declaration, headers)) +
                                  f"DV_LIBRARY(packages, {', '.join(f'&dv_op_{h.name}' for h in headers)});\n")
    subprocess.run([BUILD / "bin/dovetail", "build", "all.c", "-o", "all.so", "-W"], cwd=folder, check=True)
    (folder / "main.c").write_text(PROGRAM)
    common = ["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}/include", f"-I{ROOT}/tests/ascend", f"-L{BUILD}/lib", f"-L{CANN}/lib64"]
    subprocess.run([*common, "-shared", "-fPIC", "-o", "libnnopbase.so", ROOT / "tests/ascend/nnopbase.c", "-lascendcl"], cwd=folder, check=True)
    subprocess.run([*common, "-o", "main", "main.c", "-ldovetail_ascend", "-ldovetail", f"-Wl,-rpath,{BUILD}/lib"], cwd=folder, check=True)
    return folder


def test_every_header_has_a_declaration(folder, headers):
    """The library has the functions of each declaration, whose lists `dovetail build` has checked against the schema."""
    for h in headers:
        symbols = subprocess.run(["nm", "-D", "--defined-only", h.library], capture_output=True, text=True, check=True).stdout.split()
        assert {h.function, f"{h.function}GetWorkspaceSize"} <= set(symbols)


def calls(folder, library, headers):
    """Runs each operator twice, with its optional tensors and without. Returns the lines of each call."""
    env = {**os.environ, "ASCEND_HOME_PATH": str(CANN), "ASCEND_CUSTOM_OPP_PATH": ":".join(sorted({str(h.library.parents[2]) for h in headers})),
           "LD_LIBRARY_PATH": f"{folder}:{CANN}/lib64"}
    done = subprocess.run(["./main", library, *(f"packages::{h.name}" for h in headers)], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    return [text.splitlines()[1:] for text in done.stdout.split("call packages::")[1:]]


@pytest.mark.parametrize("chip, operators", [("A2", 12), ("A3", 9), ("A5", 50)])
def test_calls_through_the_real_libraries(folder, headers, chip, operators):
    mine = [h for h in headers if h.name.startswith(f"{chip.lower()}_")]
    found = calls(folder, "./all.so", mine)
    assert len(mine) == operators and len(found) == 2 * operators
    for i, lines in enumerate(found):
        check(mine[i // 2], lines)


@pytest.mark.parametrize("a, b", [("devWeights", "uvmWeights"), ("maxD", "poolMode"), ("eps", "beta2"), ("optimType", "iter"), ("outOut", "weightsDevOutOut")])
def test_two_that_are_exchanged_are_found(folder, headers, a, b):
    """The check finds a list in another order than the library's."""
    h = next(h for h in headers if h.name == "a2_aclnn_backward_codegen_adagrad_unweighted_exact")
    order = ", ".join({a: b, b: a}.get(name, name) for _, name in h.parameters)
    text = declaration(h).replace('Exact", ""', f'Exact", "{order}"')
    assert order in text
    (folder / "wrong.c").write_text(f"#include <dovetail_ascend.h>\n{text}DV_LIBRARY(packages, &dv_op_{h.name});\n")
    subprocess.run([BUILD / "bin/dovetail", "build", "wrong.c", "-o", "wrong.so", "-W"], cwd=folder, check=True)
    with pytest.raises(AssertionError):
        check(h, calls(folder, "./wrong.so", [h])[0])


def check(h, lines):
    """Each input, attribute and output of the header reaches its position in the node."""
    words = [line.split(" ") for line in lines]  # a text may have spaces
    of = lambda kind: [w[1:] for w in words if w[0] == kind]
    given, results = {}, iter(w[0] for w in of("result"))
    for name, address in of("argument"):
        given.setdefault(name, []).append(address)
    expected = {"input": [], "output": []}
    for i, (type, name) in enumerate(h.parameters):
        if type.startswith("aclTensor"):
            expected["output" if is_output(h, i) else "input"].append(given.get(name) or [next(results)])
    for kind, wanted in expected.items():
        found = collections.defaultdict(list)
        for index, address in of(kind):
            found[int(index)].append(address)
        assert [found[k] for k in range(len(wanted))] == wanted and len(found) == len(wanted), (h, kind)
    attributes = {int(w[0]): w[1:] for w in of("attribute")}
    tensors = sum(type.startswith("aclTensor") for type, _ in h.parameters)
    assert sorted(attributes) == [*range(len(h.parameters) - tensors)], h
    arguments = [(i, type) for i, (type, _) in enumerate(h.parameters) if not (type == "aclTensor" and is_output(h, i))]
    place = 0
    for i, (_, type) in enumerate(arguments):  # i: the argument's place in the schema, from which main.c makes its value
        if type.startswith("aclTensor"):
            continue
        dtype, *rest = attributes[place]
        place += 1
        if type == "aclIntArray":
            assert rest == ["11", "-12", "13"], h
            continue
        size, integer, as_float, as_double, *text = rest
        if type == "int64_t":
            assert (size, integer) == ("8", str(1000000000000 + i)), h
        elif type == "bool":
            assert (size, integer) == ("1", str(i % 2)), h
        elif type == "double":
            assert float(as_float if size == "4" else as_double) == 0.25 + i, h
        else:
            assert " ".join(text).rstrip("\0") == f"the text {i}", h
    node, = of("node")
    assert [int(n) for n in node[1:]] == [len(expected["input"]), len(expected["output"]), len(attributes)], h
    assert of("run") == [["1", "1", "512"]] and not of("log"), h
