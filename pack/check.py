#!/usr/bin/env python3
"""Checks built binaries: what they export, what they need, and for a wheel its tags. `check.py BUILD-FOLDER | WHEEL`; README.md has the rules."""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

LIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
WEAK = {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize"}
CORE = {"libdovetail.so.1"}

# (path inside the package, exports, needed libraries, where undefined symbols without a glibc version may come from)
RULES = [
    ("lib/libdovetail.so.1", r"dv_\w+", LIBC, None),
    ("lib/libdovetail_*.so", r"dv_\w+", LIBC | CORE | {"libgcc_s.so.1"}, r"dv_\w+|_Unwind_Resume|__gcc_personality_v0"),
    ("ops/*.so", r"dovetail_library_1", {"libc.so.6", "libm.so.6"}, None),
    ("_core.abi3.so", r"PyInit__core", LIBC | CORE | {"libgcc_s.so.1"}, r"dv_\w+|_?Py\w+|_Unwind_Resume|__gcc_personality_v0"),
    ("bin/dovetail", None, LIBC | CORE, r"dv_\w+"),
]


class Binary:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            elf = ELFFile(file)
            dynamic = elf.get_section_by_name(".dynamic")
            self.needed = {t.needed for t in dynamic.iter_tags("DT_NEEDED")}
            self.exports, self.undefined = set(), {}
            versions = {}
            for section in elf.iter_sections():
                if isinstance(section, GNUVerNeedSection):
                    for _, auxiliaries in section.iter_versions():
                        versions.update({a["vna_other"]: a.name for a in auxiliaries})
            symbols, numbers = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".gnu.version")
            for i, symbol in enumerate(symbols.iter_symbols()):
                if not symbol.name or symbol["st_info"]["bind"] == "STB_LOCAL":
                    continue
                if symbol["st_shndx"] == "SHN_UNDEF":
                    number = numbers.get_symbol(i)["ndx"] if numbers else 0
                    self.undefined[symbol.name] = versions.get(number & 0x7FFF if isinstance(number, int) else number, "")
                elif symbol["st_other"]["visibility"] == "STV_DEFAULT":
                    self.exports.add(symbol.name)
        self.glibc = max((int(v[8:].split(".")[0]) for v in self.undefined.values() if re.match(r"GLIBC_2\.\d+", v)), default=17)


def problems_of(binary, exports, needed, elsewhere):
    extra = {name for name in binary.exports if not exports or not re.fullmatch(exports, name)}
    if extra and exports is not None:
        yield f"exports {', '.join(sorted(extra))}; expected only {exports}"
    if exports and not binary.exports:
        yield f"exports nothing; expected {exports}"
    if exports and "\\" not in exports and binary.exports != {exports}:
        yield f"exports {sorted(binary.exports)}; expected exactly {exports}"
    for name in sorted(binary.needed - needed):
        yield f"needs {name}; expected only {', '.join(sorted(needed))}"
    for name, version in sorted(binary.undefined.items()):
        if not version.startswith("GLIBC_") and name not in WEAK and not (elsewhere and re.fullmatch(elsewhere, name)):
            yield f"needs symbol {name}, which nobody gives"


def check_package(folder):
    """(problems, newest glibc) of the binaries in a package or a build tree."""
    found, newest = [], 17
    for pattern, exports, needed, elsewhere in RULES:
        paths = sorted(p for p in folder.glob(pattern) if not p.is_symlink() or pattern.endswith(".1"))
        if not paths:
            found.append(f"{pattern}: not there")
        for path in paths:
            binary = Binary(path)
            newest = max(newest, binary.glibc)
            found += [f"{path.relative_to(folder)}: {what}" for what in problems_of(binary, exports, needed, elsewhere)]
    return found, newest


def run(*command):
    done = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def audit(wheel):
    """Returns the platform tag that auditwheel finds, or '', and auditwheel's text."""
    code, text = run("auditwheel", "show", wheel)
    policy = re.search(r'platform\s+tag:\s+"(\w+)"', text)
    return policy[1] if policy and not code else "", f"auditwheel: {text.strip()}"


def check_wheel(wheel):
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        found, newest = check_package(pathlib.Path(folder) / "dovetail")
        code, text = run("abi3audit", "--strict", "--assume-minimum-abi3", "3.11", pathlib.Path(folder) / "dovetail" / "_core.abi3.so")
        if code:
            found.append(f"abi3audit: {text.strip()}")
    tags = wheel.name[:-4].split("-")[-3:]
    if tags[:2] != ["cp311", "abi3"]:
        found.append(f"tagged {'-'.join(tags)}; expected cp311-abi3")
    policy, text = audit(wheel)
    if tags[2] != policy or not policy.startswith("manylinux_"):
        found.append(f"tagged {tags[2]}: {text}")
    return found, newest


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = pathlib.Path(sys.argv[1])
    if path.suffix == ".whl":
        found, newest = check_wheel(path)
    else:
        found, newest = check_package(path / "python" / "dovetail" if (path / "python").exists() else path)
        if (path / "python").exists():  # the shipped operators of a build tree are in build/ops
            for op in sorted((path / "ops").glob("*.so")):
                found += [f"ops/{op.name}: {what}" for what in problems_of(Binary(op), *RULES[2][1:])]
            found = [f for f in found if f != "ops/*.so: not there"]
    for what in found:
        print(f"{path}: {what}", file=sys.stderr)
    print(f"{path.name}: {'ok' if not found else str(len(found)) + ' problems'}, needs glibc 2.{newest}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
