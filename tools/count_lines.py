"""Code lines (no comments, no blank lines) of the product, by room: what a change of structure may not let grow.

    python tools/count_lines.py            the working tree
    python tools/count_lines.py REVISION   that commit
"""
import collections
import io
import re
import subprocess
import sys
import tokenize

ROOMS = ("core", "check", "bridges", "cli", "python")


def c_lines(text):
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", "", m[0]), text, flags=re.S)
    return sum(bool(line.strip()) for line in text.split("\n"))


def python_lines(text):
    """Lines with a token other than a comment or a docstring."""
    lines, start = set(), True
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING):
            continue
        if t.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            start = True
            continue
        if not (start and t.type == tokenize.STRING):
            lines.update(range(t.start[0], t.end[0] + 1))
        start = False
    return len(lines)


def git(*words):
    return subprocess.run(("git", *words), capture_output=True, text=True, check=True).stdout


def main(revision=None):
    names = (git("ls-tree", "-r", "--name-only", revision) if revision else git("ls-files")).split("\n")
    sums = collections.Counter()
    for name in names:
        room = name.split("/")[0]
        if room not in ROOMS or not name.endswith((".c", ".h", ".def", ".py")):
            continue
        text = git("show", f"{revision}:{name}") if revision else open(name).read()
        sums[room] += python_lines(text) if name.endswith(".py") else c_lines(text)
    for room in ROOMS:
        print(f"{room:8} {sums[room]:6}")
    print(f"{'all':8} {sum(sums.values()):6}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
