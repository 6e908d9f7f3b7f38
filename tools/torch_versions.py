#!/usr/bin/env python3
"""tests/torch on other versions of torch than the pinned one, and the table of versions in docs/torch.md.

    torch_versions.py test VERSION TESTS...   make the environment .venv-torch-VERSION, run these tests in it; "newest" is a version too
    torch_versions.py table                   write what the last runs found into docs/torch.md

An environment has a torch of its own and shares everything else with .venv. Torch's default builds need 3 GB of CUDA libraries to be
imported. They run on a CPU all the same, so small libraries stand in for CUDA's: they have the same names and symbols, and every
function fails with cudaErrorNoDevice.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]


# ---- environments

def environment(version):
    """The Python of .venv-torch-VERSION, which is made if it is missing."""
    shared, pip = ROOT / ".venv/bin/python", [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    folder = ROOT / f".venv-torch-{version}"
    python = folder / "bin/python"
    done = folder / "done"
    if not done.exists():
        print(f"making {folder.name}: torch alone is 0.5 GB to download", flush=True)
        subprocess.run([shared, "-m", "venv", "--without-pip", folder], check=True)
        subprocess.run([*pip, "--python", python, "install", "-q", "--no-deps", f"torch=={version}"], check=True)
        site, others = (pathlib.Path(subprocess.check_output([p, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip())
                        for p in (python, shared))
        (site / "shared.pth").write_text(f"{others}\n")  # behind this environment's own torch
        stand_in_for_cuda(site / "torch")
        done.touch()
    return python


def stand_in_for_cuda(torch):
    """Make each library that torch's libraries need and that neither torch nor the system has, with the symbols that they look for."""
    libraries = [*torch.glob("lib/*.so"), *torch.glob("_C.*.so")]
    needed, versioned, plain, defined = set(), collections.defaultdict(set), set(), set()
    for library in libraries:
        found = subprocess.check_output(["readelf", "-W", "-d", "-V", "--dyn-syms", library], text=True)
        needed.update(re.findall(r"NEEDED.*\[(.+)\]", found))
        files = dict(_versions(found))
        for section, name, version in re.findall(r"^ *\d+: \w+ +\S+ \w+ +(?:GLOBAL|WEAK) +\w+ +(\w+) ([^@\s]+)(?:@+(\S+))?", found, re.M):
            if section != "UND":
                defined.add(name)
            elif version in files:
                versioned[files[version]].add((name, version))
            else:
                plain.add(name)
    missing = sorted(n for n in needed if not (torch / "lib" / n).exists() and not n.startswith("libcuda.so") and not has_system(n))
    cuda = {(name, "") for name in plain - defined if re.match("_{0,2}(cu|nv|nccl)[a-zA-Z]", name)}  # whose library is not known
    for i, name in enumerate(missing):
        make_library(torch / "lib" / name, versioned[name] | (cuda if i == 0 else set()))


def _versions(text):
    """(version, the library that has it), of what readelf says."""
    file = None
    for kind, name in re.findall(r"(File|Name): (\S+)  (?:Cnt|Flags)", text):
        if kind == "File":
            file = name
        else:
            yield name, file


def has_system(name):
    listed = subprocess.check_output(["/sbin/ldconfig", "-p"], text=True)
    return re.search(rf"\s{re.escape(name)} ", listed) is not None


def make_library(path, symbols):
    """A library of functions that fail: those that give a text say so, all others return cudaErrorNoDevice."""
    text = ['long no_device(void) { return 100; }', 'const char *no_text(void) { return "CUDA is not installed"; }']
    nodes = collections.defaultdict(list)
    for name, version in sorted(symbols):
        target = "no_text" if re.search("String|Name", name) else "no_device"
        text.append(f'long {name}(void) __attribute__((alias("{target}")));' if target == "no_device"
                    else f'const char *{name}(void) __attribute__((alias("{target}")));')
        nodes[version].append(name)
    with tempfile.TemporaryDirectory() as folder:
        source, script = pathlib.Path(folder, "none.c"), pathlib.Path(folder, "versions")
        source.write_text("\n".join(text) + "\n")
        script.write_text("".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in nodes.items() if v))
        subprocess.run(["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{path.name}", source, "-o", path,
                        *([f"-Wl,--version-script,{script}"] if any(nodes) else [])], check=True)


def newest():
    """The newest that pip would install: a machine's constraints may allow fewer versions than there are."""
    plan = subprocess.check_output([sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-", "torch"],
                                   text=True, stderr=subprocess.DEVNULL)
    return json.loads(plan)["install"][0]["metadata"]["version"].split("+")[0]


# ---- runs

def run(version, tests):
    version = newest() if version == "newest" else version
    python = ROOT / ".venv/bin/python" if version == pinned() else environment(version)
    results = ROOT / "out/torch"
    results.mkdir(parents=True, exist_ok=True)
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(results / f"inductor-{version}"), "PYTHONPATH": str(ROOT / "build/python")}
    print(f"torch {version}: {' '.join(tests)}", flush=True)
    done = subprocess.run([python, "-m", "pytest", "-q", "-m", "not slow", "-rs", f"--junitxml={results / version}.xml", *tests],
                          cwd=ROOT, env={**os.environ, **caches})
    return done.returncode


def pinned():
    return re.search(r"^torch==([\d.]+)", (ROOT / "tools/requirements.txt").read_text(), re.M)[1]


# ---- the table

BEGIN, END = "<!-- made by tools/torch_versions.py table -->\n", "<!-- end of the table -->\n"


def table():
    """A row for each test of tests/torch/test_versions.py, a column for each version that it ran on."""
    sys.path.insert(0, str(ROOT / "tests/torch"))
    source = (ROOT / "tests/torch/test_versions.py").read_text()
    rows = dict(re.findall(r'^def (test_\w+)\(.*\n    """(.+)"""', source, re.M))
    runs = {f.stem: outcomes(f) for f in (ROOT / "out/torch").glob("*.xml")}
    runs = {v: found for v, found in sorted(runs.items(), key=lambda r: tuple(map(int, r[0].split(".")))) if found.keys() >= rows.keys()}
    lines = [f"| | {' | '.join(runs)} |", "|---|" + "---|" * len(runs)]
    for test, feature in rows.items():
        lines.append(f"| {feature} | {' | '.join(found[test] for found in runs.values())} |")
    page = ROOT / "docs/torch.md"
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


def outcomes(file):
    """test -> "yes", "no" or why it was skipped. Of several runs of a test with other arguments, the worst."""
    found = {}
    for case in xml.etree.ElementTree.parse(file).iter("testcase"):
        if case.get("classname").endswith("test_versions"):
            name = case.get("name").partition("[")[0]
            skipped = case.find("skipped")
            failed = case.find("failure") is not None or case.find("error") is not None
            answer = "no" if failed else "off" if skipped is not None else "yes"
            found[name] = min(answer, found.get(name, "yes"), key=["no", "off", "yes"].index)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["test"]:
        sys.exit(run(sys.argv[2], sys.argv[3:] or ["tests/torch"]))
    elif sys.argv[1:] == ["table"]:
        table()
    else:
        sys.exit(__doc__)
