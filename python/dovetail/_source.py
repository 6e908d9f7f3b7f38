"""Operators from their source files: `dovetail build --cached` in a process of its own. What is kept, where, and when it is built again
is that command's business (cli/cache.c). No subprocess module: importing it takes longer than finding a build that is there."""
import os
import sys
from _signal import SIGTERM  # what signal has; signal itself imports enum

from . import _debug
from ._errors import DovetailError


def build(sources, flags, verbose):
    """The path of the binary."""
    if isinstance(flags, str):
        raise TypeError(f"flags: expected a list of arguments of `dovetail build`, such as ['-D', 'N=4'], found the string {flags!r}")
    from . import command
    _debug.say(1, f"building {' '.join(sources)}")
    arguments = ["dovetail", "build", "--cached", *(["--verbose"] if verbose or _debug.LEVEL >= 2 else []), *flags, "--", *sources]
    code, output = _run(command(), arguments)
    if code:
        raise DovetailError(output.decode(errors="replace").rstrip() or f"dovetail build was killed by signal {-code}")
    messages, _, path = output.rstrip(b"\n").rpartition(b"\n")
    if messages:
        print(messages.decode(errors="replace"), file=sys.stderr)
    return os.fsdecode(path)


def _run(program, arguments):
    """Its exit code (the negative signal that killed it), and what it wrote."""
    reader, writer = os.pipe()
    try:
        child = os.posix_spawn(program, arguments, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, to) for to in (1, 2)])
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
    except ChildProcessError:  # this process ignores SIGCHLD: nobody knows the code
        return int(not parts or not parts[-1].endswith(b".so\n")), b"".join(parts)
