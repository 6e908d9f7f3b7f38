#!/usr/bin/env python3
"""Refuses the phrases of tools/phrases.txt in the lines of these rooms: comments, messages, pages. Prints each line and what to write instead."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ["README.md", "bench", "bridges", "check", "cli", "core", "docs", "examples", "include", "ops", "pack", "python", "tests", "tools"]
TEXTS = (".c", ".h", ".def", ".py", ".sh", ".md", ".cu", ".cpp", ".txt", ".cmake")
EXCEPT = ("tools/phrases.txt", "tests/fuzz/corpus/")

rows = [line.split("\t") for line in (ROOT / "tools/phrases.txt").read_text().splitlines() if line and line[0] != "#"]
any_of = re.compile("|".join(phrase for phrase, _ in rows), re.I)
found = 0
for name in subprocess.run(["git", "-C", ROOT, "ls-files", *ROOMS], capture_output=True, text=True, check=True).stdout.splitlines():
    path = ROOT / name
    if not name.endswith(TEXTS) or name.startswith(EXCEPT) or not path.exists():
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if any_of.search(line):
            instead = next(words for phrase, words in rows if re.search(phrase, line, re.I))
            print(f"{name}:{number}: {line.strip()}\n    instead: {instead}", file=sys.stderr)
            found += 1
print(f"phrases: {f'{found} to rewrite' if found else 'ok'}")
sys.exit(bool(found))
