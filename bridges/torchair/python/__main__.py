"""What `dovetail export` and `dovetail import` run: python -m dovetail.torchair WHAT OUT FILE...; OUT may be "" (standard output, or the current folder)."""
import pathlib
import re
import shutil
import sys

from .. import load
from . import export, prototypes, refused, reg_op, shapes


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(path)


def _one_file(write, out, files):
    libraries = _load(files)
    text = write(*libraries)
    if out:
        _write(pathlib.Path(out), text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    _without(out or "standard output", refused(*libraries))


def _torchair(out, files):
    _one_file(export, out, files)


def _reg_op(out, files):
    _one_file(prototypes, out, files)


def _ge(out, files):
    folder, libraries = pathlib.Path(out), _load(files)
    alone = {name: reason for library in libraries for name, reason in refused(library).items()}
    for name, reason in refused(*libraries).items():
        if name not in alone:
            raise ValueError(f"{name}: {reason}: expected one package without two nodes of one name")
    for library in libraries:
        _write(folder / f"{library.name}_proto.h", prototypes(library))
        _write(folder / f"{library.name}_infer.cpp", shapes(library))
    shutil.copyfile(pathlib.Path(__file__).with_name("dovetail_ge.h"), folder / "dovetail_ge.h")
    print(folder / "dovetail_ge.h")
    _without(folder, alone)


def _without(path, reasons):
    for name, reason in reasons.items():
        print(f"{path}: without {name}: {reason}", file=sys.stderr)


def _builders(out, files):
    read, found = [], {}
    for file in map(pathlib.Path, files):
        prototypes = reg_op.parse(file.read_bytes().decode("utf-8-sig", "replace"), file)
        read.append((file, prototypes))
        for p in prototypes:
            if found.setdefault(p.name, (file, p))[1] != p:
                raise ValueError(f"{file}: another REG_OP({p.name}) than in {found[p.name][0]}")
    if not found:
        raise ValueError(f"{', '.join(files)}: expected REG_OP, found none")
    for file in (file for file, prototypes in read if not prototypes):
        print(f"{file}: expected REG_OP, found none", file=sys.stderr)
    path, found = pathlib.Path(out, "auto_generated_ge_raw_custom_ops.py"), [p for _, p in found.values()]
    _write(path, reg_op.builders(found))
    _without(path, {p.name: reason for p in found if (reason := reg_op.no_function(p))})
    return read


def _import(out, files):
    taken = {}
    for file in files:
        other = taken.setdefault(_library(file), file)
        if other != file:
            raise ValueError(f"{other} and {file} would both become {_library(file)}.c: import them one at a time, with --out")
    for file, prototypes in _builders(out, files):
        path = pathlib.Path(out, f"{_library(file)}.c")
        text, reasons = reg_op.declarations(prototypes, _library(file))
        if path.exists():
            print(f"{path} is there already, and stays as it is", file=sys.stderr)
        else:
            if text:
                _write(path, text)
            _without(path, reasons)


def _library(file):
    """A header's name as the name of a library: "my-ops.h" is my_ops."""
    name = re.sub(r"\W", "_", pathlib.Path(file).stem, flags=re.ASCII)
    return name if re.match("[A-Za-z]", name) and not reg_op.is_word(name) else f"ops_{name}"


def _load(files):
    return [load(file, attach=False) for file in dict.fromkeys(files)]


def main(what, out, *files):
    try:
        {"torchair": _torchair, "reg-op": _reg_op, "ge": _ge, "builders": _builders, "import": _import}[what](out, files)
    except FileExistsError as error:  # of mkdir()
        sys.exit(f"dovetail: error: {error.filename}: expected a folder, found a file")
    except OSError as error:
        sys.exit(f"dovetail: error: {error.filename or out or 'standard output'}: {error.strerror}" if error.strerror else f"dovetail: error: {error}")
    except (ValueError, RuntimeError) as error:
        sys.exit(f"dovetail: error: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
