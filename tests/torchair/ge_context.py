"""The contexts that CANN gives to InferShape and InferDataType, laid out in memory as its public headers have them, and the calls."""
import ctypes
import os
import pathlib
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
HEADERS = os.environ.get("DOVETAIL_CANN_HEADERS")  # CANN's own: folders, with ':' between
NUMBERS = {"DT_FLOAT": 0, "DT_FLOAT16": 1, "DT_INT8": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 6, "DT_INT64": 9, "DT_DOUBLE": 11, "DT_BOOL": 12,
           "DT_BF16": 27, "DT_UNDEFINED": 28}
UNKNOWN_RANK = [-2]


def build(folder, library):
    """`dovetail export --ge`, compiled as a package of CANN would; beside the binary."""
    home = pathlib.Path(os.environ["DOVETAIL_BUILD"])
    subprocess.run([home / "bin/dovetail", "export", "--ge", library, "-o", folder], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "DOVETAIL_PYTHON": sys.executable})
    cpp, = folder.glob("*_infer.cpp")
    out = folder / f"{cpp.stem}.so"
    include = [f"-isystem{f}" for f in HEADERS.split(":")] if HEADERS else [f"-I{HERE / 'cann'}"]
    done = subprocess.run(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", out, cpp, HERE / "cann/registry.cpp", *include,
                           f"-I{ROOT / 'include'}", f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}", "-ldovetail_torchair", "-ldovetail"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = ctypes.CDLL(str(out))
    found.registered.restype = ctypes.c_void_p
    return found


def attributes(values):
    """RuntimeAttrs: [count, reserved, offsets, the values]. A float has 32 bits; a type is its name."""
    data, offsets, at = b"", [], 48 + 8 * len(values)
    for v in values:
        offsets.append(at + len(data))
        if isinstance(v, str) and v in NUMBERS:
            item = struct.pack("<i", NUMBERS[v])
        elif isinstance(v, str):
            item = v.encode() + b"\0"
        elif isinstance(v, bool):
            item = struct.pack("<?", v)
        elif isinstance(v, float):
            item = struct.pack("<f", v)
        elif isinstance(v, list):
            if v and isinstance(v[0], str):
                content = struct.pack(f"<{len(v)}i", *(NUMBERS[x] for x in v)) if v[0] in NUMBERS else b"".join(x.encode() + b"\0" for x in v)
            else:
                content = struct.pack(f"<{len(v)}{'?' if v and isinstance(v[0], bool) else 'f' if v and isinstance(v[0], float) else 'q'}", *v)
            item = struct.pack("<QQ40x", len(v), len(v)) + content
        else:
            item = struct.pack("<q", v)
        data += item + bytes(-len(item) % 8)
    return struct.pack("<Q40x", len(values)) + struct.pack(f"<{len(values)}Q", *offsets) + data


def infer(package, what, node, inputs, attrs, outputs):
    """inputs: for each of the prototype's, a list of (dtype, shape). outputs: how many. -> their shapes, or their dtypes; None: it failed."""
    keep, tensors = [], [t for i in inputs for t in i]

    def block(data):
        keep.append(ctypes.create_string_buffer(data, len(data)))
        return ctypes.addressof(keep[-1])

    def value(dtype, shape):
        content = struct.pack("<i4x", NUMBERS[dtype]) if what == "dtype" else struct.pack(
            "<Q", block(struct.pack("<Q25q40x", len(shape), *shape, *[0] * (25 - len(shape)))))
        return block(content + bytes(8))
    start, anchors = 0, b""
    for i in inputs:
        anchors += struct.pack("<II40x", start, len(i))
        start += len(i)
    descs = b"".join(struct.pack("<i140x", NUMBERS[dtype]) for dtype, _ in tensors + [("DT_UNDEFINED", [])] * outputs)
    attrs = attributes(attrs)
    info = block(struct.pack("<QQ5Q24x", block(node.encode() + b"\0"), block(b"a_node\0"), len(inputs), len(tensors), outputs, 0, len(attrs)) + anchors + descs + attrs)
    given = [value(*t) for t in tensors]
    made = [value("DT_UNDEFINED", []) for _ in range(outputs)]
    context = block(struct.pack("<QQQQQ", len(given), outputs, info, 0, 0) + struct.pack(f"<{len(given + made)}Q", *given, *made))
    ctypes.c_uint64.from_address(context + 32).value = context + 40 + 8 * len(given)
    function = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(package.registered(f"{what} {node}".encode()))
    if function(context):
        return None
    if what == "dtype":
        names = {n: name for name, n in NUMBERS.items()}
        return [names[ctypes.c_int32.from_address(m).value] for m in made]
    shapes = [struct.unpack("<26q", ctypes.string_at(ctypes.c_uint64.from_address(m).value, 208)) for m in made]
    return [list(s[1:1 + s[0]]) for s in shapes]
