#!/usr/bin/env python3
"""Refuses new circles of files that need each other: check_circles.py BUILD.

C: file a needs file b of the same component if a's object has an undefined symbol that b's defines. Python: if a imports b at module level. A circle is
a strongly connected component of this graph (Tarjan 1972). KNOWN has the number of files in circles for each component: it may fall, never rise.
"""
import ast
import collections
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KNOWN = {"core": 26}


def circles(graph):
    """The strongly connected components with more than one node."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def objects(folder, sources):
    """{file: files that it needs} of the objects below a folder of the build, without those that are left from sources that are gone."""
    defined, undefined = {}, {}
    for path in sorted(folder.rglob("*.o")):
        name = str(path.relative_to(folder)).removesuffix(".o")
        if not (sources / name.split(".dir/")[-1].replace("__/", "../")).exists():
            continue
        undefined[name] = set()
        for line in subprocess.run(["gcc-nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            *_, kind, symbol = line.split()
            if kind == "U":
                undefined[name].add(symbol)
            elif kind.isupper():
                defined[symbol] = name
    return {name: {defined[s] for s in symbols if defined.get(s, name) != name} for name, symbols in undefined.items()}


def modules(folder):
    """{module: modules that it imports} of the Python package in a folder."""
    names = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in sorted(folder.rglob("*.py"))}
    graph = collections.defaultdict(set, {name: set() for name in names})
    for name, path in names.items():
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            package = name.split(".")[:-node.level] + (node.module.split(".") if node.module else [])
            for alias in node.names:  # a module of the package, or a name in it; `from . import a`: always a module
                words = [*package, alias.name]
                found = [m for parts in ([words, package] if node.module else [words]) for m in (".".join(parts), ".".join([*parts, "__init__"])) if m in names]
                graph[name] |= set(found[:1]) - {name}
    return graph


build = pathlib.Path(sys.argv[1])
names = ["check", "cli", "python", *(f"bridges/{path.name}" for path in (build / "bridges").iterdir())]
graphs = {"core": objects(build / "core/CMakeFiles/dovetail_shared.dir", ROOT / "core")}
graphs |= {name: objects(build / name / "CMakeFiles", ROOT / name) for name in names}
graphs |= {str(folder.relative_to(ROOT)): modules(folder) for folder in [ROOT / "python/dovetail", *ROOT.glob("bridges/*/python")]}
worse = False
for component, graph in graphs.items():
    found = circles(graph)
    files = sum(map(len, found))
    if files > KNOWN.get(component, 0):
        worse = True
        print(f"{component}: {files} files are in circles, {KNOWN.get(component, 0)} were known: {found}", file=sys.stderr)
print(f"circles: {'new ones' if worse else 'ok'}")
sys.exit(worse)
