"""Loads operators from source files by `dovetail build --cached` in a separate process. That command decides what is kept, where, and
when it is built again (cli/cache.c). The subprocess module is not used: importing it takes longer than finding an existing build."""
import atexit
import os
import sys
from _signal import SIGTERM  # the same as in signal, which imports enum

from . import _debug
from ._errors import DovetailError, make


def build(sources, flags, verbose):
    """The path of the binary."""
    if isinstance(flags, str):
        raise TypeError(f"flags: expected a list of arguments of `dovetail build`, such as ['-D', 'N=4'], found the string {flags!r}")
    from . import command
    arguments = ["dovetail", "build", "--cached", *(["--verbose"] if verbose or _debug.LEVEL >= 2 else []), *flags, "--", *sources]
    code, output = _run(command(), arguments)
    if code:
        from ._library import SOURCE_ENDINGS
        for source in (source for source in sources if source.endswith(SOURCE_ENDINGS)):
            try:
                os.stat(source)
            except OSError as error:
                raise make("EIO", f"{source}: cannot open: {error.strerror}") from None
        raise DovetailError(output.decode(errors="replace").rstrip() or f"dovetail build was killed by signal {-code}")
    messages, _, path = output.rstrip(b"\n").rpartition(b"\n")
    if messages:
        print(messages.decode(errors="replace"), file=sys.stderr)
    path = os.fsdecode(path)
    _keep_private(os.path.dirname(path))
    return path


_PRIVATE = "dovetail-private-"  # cli/cli.h: a folder that the command made because the usual one is not safe
_private = None


def _keep_private(folder):
    """Later builds of this process use the same folder; it is removed when the process ends."""
    global _private
    if folder not in (_private, os.environ.get("DOVETAIL_CACHE")) and os.path.basename(folder).startswith(_PRIVATE):
        _private = folder
        atexit.register(_remove, folder, os.getpid())


def _remove(folder, process):
    if os.getpid() == process:  # not a child by fork
        import shutil
        shutil.rmtree(folder, ignore_errors=True)


def _run(program, arguments):
    """Its exit code (the negative signal that killed it), and what it wrote."""
    reader, writer = os.pipe()
    try:
        environment = {**os.environ, "DOVETAIL_CACHE": _private} if _private else os.environ
        child = os.posix_spawn(program, arguments, environment, file_actions=[(os.POSIX_SPAWN_DUP2, writer, to) for to in (1, 2)])
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    parts = []
    try:
        while part := os.read(reader, 1 << 16):
            parts.append(part)
    except BaseException:  # KeyboardInterrupt
        os.kill(child, SIGTERM)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(reader)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), b"".join(parts)
    except ChildProcessError:  # this process ignores SIGCHLD, so the exit code is unknown
        return int(not parts or not parts[-1].endswith(b".so\n")), b"".join(parts)
