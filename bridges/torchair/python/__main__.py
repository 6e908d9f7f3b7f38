"""What `dovetail export` and `dovetail import` run: python -m dovetail.torchair WHAT OUT FILE...; OUT may be "" (standard output, or the current folder)."""
import pathlib
import re
import shutil
import sys

from .. import load
from . import export, prototypes, reg_op, shapes


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(path)


def _one_file(text, out):
    if out:
        _write(pathlib.Path(out), text)
    else:
        sys.stdout.write(text)


def _torchair(out, files):
    _one_file(export(*_load(files)), out)


def _reg_op(out, files):
    _one_file(prototypes(*_load(files)), out)


def _ge(out, files):
    folder = pathlib.Path(out)
    for library in _load(files):
        _write(folder / f"{library.name}_proto.h", prototypes(library))
        _write(folder / f"{library.name}_infer.cpp", shapes(library))
    shutil.copyfile(pathlib.Path(__file__).with_name("dovetail_ge.h"), folder / "dovetail_ge.h")
    print(folder / "dovetail_ge.h")


def _builders(out, files):
    found = [(pathlib.Path(file), reg_op.parse(pathlib.Path(file).read_text(), file)) for file in files]
    if not any(prototypes for _, prototypes in found):
        raise ValueError(f"{', '.join(files)}: expected REG_OP, found none")
    _write(pathlib.Path(out, "auto_generated_ge_raw_custom_ops.py"), reg_op.builders([p for _, prototypes in found for p in prototypes]))
    return found


def _import(out, files):
    for file, prototypes in _builders(out, files):
        name = re.sub(r"\W", "_", file.stem)
        path = pathlib.Path(out, f"{name}.c")
        if path.exists():
            print(f"{path} is there already, and stays as it is", file=sys.stderr)
        else:
            _write(path, reg_op.declarations(prototypes, name))


def _load(files):
    return [load(file, attach=False) for file in files]


def main(what, out, *files):
    try:
        {"torchair": _torchair, "reg-op": _reg_op, "ge": _ge, "builders": _builders, "import": _import}[what](out, files)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"dovetail: error: {error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else f"dovetail: error: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
