#!/usr/bin/env python3
"""Checks that every room includes only what it may, and that no source says what it must not.

core/: base -> lang -> tensor -> registry -> call; a file includes only its own layer and earlier ones, libc and the public headers.
Within core/call the files have an order too.
The other rooms use the public headers only. python/ names no framework: what knows one is in its bridge.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ["base", "lang", "tensor", "registry", "call"]
# The files of core/call in their order: each includes headers of those before it only, so that no two need each other.
CALL = ("call_state call_error frame bind host_tensor nesting thread_pool broadcast services results memory split eval "
    "decomposition functional_call call_cache kernel_select call infer infer_partial derivative site").split()
PUBLIC = {"dovetail.h", "dovetail_test.h", "dovetail_op.h", "dovetail_op_map.h", "dovetail_math.h", "dovetail_elementwise.h"}
BANNED = {  # a call that core may not make: why
    "abort": "the library returns a status",
    "exit": "the library returns a status",
    "printf": "the library never prints",
    "fprintf": "the library never prints",
    "strcpy": "no bound",
    "strcat": "no bound",
    "sprintf": "no bound",
    "system": "no shell is ever involved",
    "popen": "no shell is ever involved",
    "malloc": "allocate through base/memory.h",
    "calloc": "allocate through base/memory.h",
    "free": "free through base/memory.h",
}
include = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
comment = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', re.S)


def problems():
    for path in sorted((ROOT / "core").rglob("*.[ch]")):
        rel = path.relative_to(ROOT / "core")
        text = path.read_text()
        if rel.parts[0] == "call" and path.stem not in CALL:
            yield path, "has no place in the order of core/call (CALL in this script)"
            continue
        layer = LAYERS.index(rel.parts[0]) if rel.parts[0] in LAYERS else None
        if layer is None:
            yield path, f"'{rel.parts[0]}' is not one of core's layers ({', '.join(LAYERS)})"
            continue
        for name in include.findall(text):
            first = name.split("/")[0]
            if name in PUBLIC or (path.parent / name).exists() and "/" not in name:
                continue
            if first not in LAYERS:
                yield path, f'includes "{name}", which is not in core'
            elif LAYERS.index(first) > layer:
                yield path, f'includes "{name}" of a later layer ({first} comes after {rel.parts[0]})'
            elif first == rel.parts[0] == "call" and CALL.index(path.stem) < CALL.index(name[5:-2]):
                yield path, f'includes "{name}", which comes after it ({", ".join(CALL)})'
        code = comment.sub(" ", text)
        for word, why in BANNED.items():
            if str(rel) == "base/memory.c" and word in ("malloc", "free", "calloc"):
                continue
            if re.search(rf"(?<![\w.>]){word}\s*\(", code):
                yield path, f"calls {word}(): {why}"
    for room in ("ops", "check", "cli", "bridges", "python"):
        for path in sorted((ROOT / room).rglob("*.[ch]")):
            for name in include.findall(path.read_text()):
                if name.split("/")[0] in LAYERS and "/" in name and not (path.parent / name).exists():
                    yield path, f'includes "{name}" of core\'s inside'
    frameworks = re.compile("|".join(sorted(p.name for p in (ROOT / "bridges").iterdir() if p.is_dir())), re.I)
    for path in sorted(p for p in (ROOT / "python").rglob("*") if p.suffix in (".c", ".h", ".py", ".txt")):
        for word in dict.fromkeys(frameworks.findall(path.read_text().replace("vllm-default", ""))):  # a word of the policy
            yield path, f"names a framework, {word}: that is for bridges/{word.lower()}/"
    for path in sorted((ROOT / "ops").rglob("*.[ch]")):
        if re.search(r'#\s*include\s+[<"]dovetail\.h[">]', path.read_text()):
            yield path, "an operator sees dovetail_op.h, not dovetail.h"
    files = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True).stdout.split("\n")
    for name in filter(None, files):
        path = ROOT / name
        if path.suffix in (".c", ".h", ".py", ".sh", ".md", ".txt", ".toml", ".cu", ".cpp") and path.exists():
            text = path.read_text(errors="replace")
            for bad in ("/" + "work/", "/" + "root/"):
                if bad in text:
                    yield path, f"names a path of one machine: {bad}"


found = [(str(path.relative_to(ROOT)), what) for path, what in problems()]
for path, what in found:
    print(f"{path}: {what}", file=sys.stderr)
print(f"layers: {'ok' if not found else str(len(found)) + ' problems'}")
sys.exit(bool(found))
