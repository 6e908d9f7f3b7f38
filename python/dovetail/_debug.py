"""The debug ladder of docs/command.md: DOVETAIL_DEBUG=1..4 shows on stderr what happens, each level more than the one before (4 is in src/debug.c)."""
import os
import sys

_given = os.environ.get("DOVETAIL_DEBUG", "")
LEVEL = int(_given) if _given.isdigit() else 0


def say(level, *lines):
    if LEVEL >= level:
        for line in lines:
            print("dovetail:", line, file=sys.stderr)
