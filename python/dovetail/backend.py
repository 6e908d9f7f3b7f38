"""Builds the wheel of an operator project: its C files compiled by `dovetail build`, and a module with typed, documented functions.

A project's pyproject.toml names the small `dovetail_build.py` beside it as its build backend (`dovetail new` writes both). That runs
this module, `python -m dovetail.backend HOOK OUT [--editable]`, in the Python where dovetail is installed: pip's build environment is
empty, and dovetail need not be on any index. The wheel holds MODULE/__init__.py, __init__.pyi, py.typed and MODULE.so, and depends
on dovetail. The same sources give the same bytes.

    [project]                   name, version, description, readme, dependencies... as usual
    [tool.dovetail]
    module = "my_ops"           default: the project's name
    sources = ["my_ops.c"]      default: every operator file of the folder, as `dovetail build` finds them
    flags = ["-l", "m"]         more arguments of `dovetail build`
"""
import base64
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile

_EPOCH = (1980, 1, 1, 0, 0, 0)


class Project:
    """What pyproject.toml says."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        try:
            with open(self.folder / "pyproject.toml", "rb") as file:
                self.toml = tomllib.load(file)
        except (OSError, tomllib.TOMLDecodeError) as error:
            sys.exit(f"dovetail.backend: pyproject.toml: {error}")
        self.project = self.toml.get("project", {})
        for key in ("name", "version"):
            if not isinstance(self.project.get(key), str):
                sys.exit(f"dovetail.backend: pyproject.toml: [project] needs a {key}")
        dynamic = self.project.get("dynamic")
        if dynamic:
            sys.exit(f"dovetail.backend: pyproject.toml: dynamic fields are not supported: {', '.join(dynamic)}")
        self.name, self.version = self.project["name"], self.project["version"]
        self.file_name = re.sub(r"[-_.]+", "_", self.name).lower()
        tool = self.toml.get("tool", {}).get("dovetail", {})
        unknown = set(tool) - {"module", "sources", "flags"}
        if unknown:
            sys.exit(f"dovetail.backend: pyproject.toml: [tool.dovetail] has unknown keys {', '.join(sorted(unknown))}; "
                     "known: module, sources, flags")
        self.module = tool.get("module", self.file_name)
        if not self.module.isidentifier():
            sys.exit(f"dovetail.backend: pyproject.toml: module '{self.module}' is not a Python identifier")
        self.sources, self.flags = tool.get("sources", []), tool.get("flags", [])

    def metadata(self):
        p, lines = self.project, ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}"]
        if p.get("description"):
            lines.append("Summary: " + " ".join(p["description"].split()))
        if p.get("keywords"):
            lines.append("Keywords: " + ",".join(p["keywords"]))
        for kind in ("author", "maintainer"):
            people = p.get(kind + "s", [])
            names = [a["name"] for a in people if "name" in a and "email" not in a]
            mails = [f"{a['name']} <{a['email']}>" if "name" in a else a["email"] for a in people if "email" in a]
            lines.extend([f"{kind.title()}: {', '.join(names)}"] if names else [])
            lines.extend([f"{kind.title()}-email: {', '.join(mails)}"] if mails else [])
        if p.get("license"):
            lines.append("License: " + (p["license"] if isinstance(p["license"], str) else p["license"].get("text", "")))
        lines.extend("Classifier: " + c for c in p.get("classifiers", []))
        lines.extend(f"Project-URL: {label}, {url}" for label, url in p.get("urls", {}).items())
        lines.append("Requires-Python: " + p.get("requires-python", ">=3.11"))
        dependencies = list(p.get("dependencies", []))
        if not any(re.match(r"dovetail\b(?![-_.])", d) for d in dependencies):
            dependencies.append(f"dovetail>={_version()}")
        lines.extend("Requires-Dist: " + d for d in dependencies)
        for extra, those in p.get("optional-dependencies", {}).items():
            lines.append("Provides-Extra: " + extra)
            lines.extend(f"Requires-Dist: {d}; extra == '{extra}'" for d in those)
        readme = p.get("readme")
        readme = readme.get("file") if isinstance(readme, dict) else readme
        if readme:
            kind = "text/x-rst" if readme.endswith(".rst") else "text/markdown"
            lines += ["Description-Content-Type: " + kind, "", (self.folder / readme).read_text("utf-8")]
        return "\n".join(lines) + "\n"

    def entry_points(self):
        sections = [("console_scripts", self.project.get("scripts", {})), ("gui_scripts", self.project.get("gui-scripts", {})),
                    *self.project.get("entry-points", {}).items()]
        return "".join(f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for name, entries in sections if entries)


def _version():
    import dovetail
    return dovetail.__version__


def compile_operators(project, out):
    """`dovetail build` in the project's folder."""
    import dovetail
    done = subprocess.run([dovetail.command(), "build", "-o", str(out), *project.flags, *project.sources], cwd=project.folder)
    if done.returncode:
        sys.exit("dovetail.backend: the operators do not build")


def init(summary, version, binary=None):
    """The __init__.py of a package with a binary in its folder, or elsewhere."""
    summary = summary.replace("\\", "").replace('"""', "'''").rstrip('"')
    where = f", {str(binary)!r}" if binary else ""
    return f'"""{summary}"""\nimport dovetail as _dovetail\n\n__version__ = {version!r}\n__all__ = _dovetail.export(globals(){where})\n'


def stub_of(path):
    """The .pyi text of a binary. In a separate process, so that loading the operators does not affect this one."""
    code = "import sys, dovetail, dovetail._stub as s; sys.stdout.write(s.stub(dovetail.load(sys.argv[1], attach=False)))"
    done = subprocess.run([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("dovetail.backend: the operators do not load")
    return done.stdout


_MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file


def linux_tag(binary):
    """Returns linux_ARCH, the tag that promises nothing but the binary's architecture."""
    machine = int.from_bytes(binary[18:20], sys.byteorder)
    return f"linux_{_MACHINES.get(machine) or os.uname().machine}"


def audit(path):
    """Returns (platform, reason) of a wheel by auditwheel's policies. platform: its tag, or None. reason: why it is no manylinux tag, else ''."""
    try:
        from auditwheel.wheel_abi import analyze_wheel_abi
    except ImportError as error:
        return None, f"auditwheel cannot be imported in {sys.executable} ({error})"
    try:
        found = analyze_wheel_abi(None, None, path, frozenset(), disable_isa_ext_check=False, allow_graft=False)
        tag, policies = found.overall_policy, found.policies
        if tag != policies.linux:
            return tag.name, ""
        libraries = sorted(found.external_refs[policies.lowest.name].libs)
        versions = sorted(v for names in found.versioned_symbols.values() for v in names)
        return tag.name, ("it needs " + ", ".join(libraries) + ", which a Linux need not have" if libraries
                          else "no manylinux policy has the instruction set that it needs" if found.machine_policy == policies.linux
                          else "no manylinux policy has its symbol versions " + ", ".join(versions))
    except Exception as error:  # one of auditwheel's own, or of another version's interface
        return None, f"auditwheel cannot audit it ({type(error).__name__}: {error})"


def platform_tag(path, fallback):
    """Returns the platform tag of a wheel that is tagged with `fallback`. Prints the reason to stderr if that is not a manylinux tag."""
    tag, reason = audit(path)
    if reason:
        print(f"dovetail.backend: {path.name} keeps the tag {tag or fallback}, which package indexes do not take: {reason}. "
              f"To publish it, run `auditwheel repair` on it", file=sys.stderr)
    return tag or fallback


def files_of_module(project, binary, editable):
    """(name in the wheel, content, is it code) of everything in the module."""
    own = project.folder / project.module
    if editable and (own / "__init__.py").exists():  # it finds the binary beside it
        return {f"{project.module}.pth": f"{project.folder.resolve()}\n".encode()}
    files = {}
    if (own / "__init__.py").exists():  # a package written by the author, which calls dovetail.export itself
        for file in sorted(own.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                files[file.relative_to(own).as_posix()] = file.read_bytes()
    files.setdefault("__init__.py", init(project.project.get("description", "Operators"), project.version, binary if editable else None).encode())
    files.setdefault("__init__.pyi", stub_of(binary).encode())
    files.setdefault("py.typed", b"")
    if not editable:
        files[binary.name] = binary.read_bytes()
    return {f"{project.module}/{name}": content for name, content in sorted(files.items())}


def write_wheel(project, out, platform, files):
    """Writes a wheel, in which nothing depends on the machine or the time. Returns its name."""
    tag, info, record = f"py3-none-{platform}", f"{project.file_name}-{project.version}.dist-info", []
    path = pathlib.Path(out) / f"{project.file_name}-{project.version}-{tag}.whl"
    files = {**files, f"{info}/METADATA": project.metadata().encode(),
             f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: dovetail {_version()}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()}
    if project.entry_points():
        files[f"{info}/entry_points.txt"] = project.entry_points().encode()
    for file, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{file},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            entry = zipfile.ZipInfo(file, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if file.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, content)
    return path.name


def wheel(project, out, editable=False):
    with tempfile.TemporaryDirectory() as folder:
        binary = (project.folder if editable else pathlib.Path(folder)).resolve() / f"{project.module}.so"
        compile_operators(project, binary)
        files = files_of_module(project, binary, editable)
        tag = linux_tag(binary.read_bytes())
        if not editable:  # the tag follows from the wheel's binaries: the audit reads them in a wheel
            tag = platform_tag(pathlib.Path(folder) / write_wheel(project, folder, tag, files), tag)
    return write_wheel(project, out, tag, files)


def sdist(project, out):
    """The project's files, without what building leaves behind."""
    base = f"{project.file_name}-{project.version}"
    skip = {"__pycache__", "build", "dist", ".git", ".venv", ".pytest_cache"}
    path = pathlib.Path(out) / f"{base}.tar.gz"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        def add(name, content):
            info = tarfile.TarInfo(f"{base}/{name}")
            info.size, info.mode = len(content), 0o644
            archive.addfile(info, io.BytesIO(content))
        for file in sorted(project.folder.rglob("*")):
            parts = file.relative_to(project.folder).parts
            if file.is_file() and not file.is_symlink() and not skip & set(parts) and file.suffix not in (".so", ".whl", ".pyc") and file != path:
                add("/".join(parts), file.read_bytes())
        add("PKG-INFO", project.metadata().encode())
    import gzip
    path.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return path.name


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("wheel", "editable", "sdist"):
        sys.exit("usage: python -m dovetail.backend wheel|editable|sdist OUT-FOLDER")
    project = Project(".")
    if sys.argv[1] == "sdist":
        name = sdist(project, sys.argv[2])
    else:
        name = wheel(project, sys.argv[2], editable=sys.argv[1] == "editable")
    (pathlib.Path(sys.argv[2]) / ".dovetail-built").write_text(name) if os.environ.get("DOVETAIL_BACKEND") else print(name)


if __name__ == "__main__":
    main()
