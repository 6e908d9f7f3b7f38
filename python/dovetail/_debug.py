"""The debug ladder of docs/command.md: DOVETAIL_DEBUG=1..3 shows on stderr what happens, each level more than the one before."""
import os
import sys

_given = os.environ.get("DOVETAIL_DEBUG", "")
LEVEL = int(_given) if _given.isdigit() else 0


def say(level, *lines):
    if LEVEL >= level:
        for line in lines:
            print("dovetail:", line, file=sys.stderr)
