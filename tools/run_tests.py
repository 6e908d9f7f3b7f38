#!/usr/bin/env python3
"""tools/run_tests.py MARKS [FOLDER ...]: the Python tests with these marks, in all folders of tests/ or in these.

Each folder is a run of pytest of its own, so that no room's imports reach another's; inside a folder pytest-xdist uses every core. Ends with a
table: tests, time, and processor time of each folder. The status is 1 when a test failed.
"""
import argparse
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NO_TESTS = 5  # pytest's exit status when the marks select none
COUNTS = ("passed", "failed", "error", "skipped")


def used():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def run(folder, marks, jobs):
    """Runs one folder and passes its output on. Gives a row of the table."""
    print(f"== tests/{folder}", flush=True)
    began, before = time.monotonic(), used()
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, "-n", str(jobs), "--dist", "worksteal", f"tests/{folder}"]
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
    last = ""
    while text := child.stdout.read(1):  # by character: the dots are how one sees that it goes on
        sys.stdout.write(text)
        sys.stdout.flush()
        last = (last + text)[-400:]
    status = child.wait()
    counts = [sum(map(int, re.findall(rf"(\d+) {word}s?\b", last.strip().rsplit("\n", 1)[-1]))) for word in COUNTS]
    ok = status in (0, NO_TESTS)
    return [f"tests/{folder}", *counts, time.monotonic() - began, used() - before], ok


def selected(marks):
    """Folders with tests; for the slow or quick ones only those in which a test has that mark."""
    words = {"slow": ("mark.slow", "seeds"), "quick": ("mark.quick",)}.get(marks.split()[0], ("",))
    for folder in sorted((ROOT / "tests").iterdir()):
        if any(word in f.read_text() for f in folder.glob("test_*.py") for word in words):
            yield folder.name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("marks")
    parser.add_argument("folders", nargs="*")
    args = parser.parse_args()
    rows, failed = [], []
    for folder in args.folders or selected(args.marks):
        row, ok = run(folder, args.marks, len(os.sched_getaffinity(0)))
        rows.append(row)
        failed += [] if ok else [row[0]]
    rows.append(["all", *map(sum, list(zip(*rows))[1:])])
    print(f"\n{'folder':16}{'passed':>8}{'failed':>8}{'errors':>8}{'skipped':>8}{'seconds':>9}{'processor':>11}")
    for name, *counts, seconds, cpu in rows:
        print(f"{name:16}" + "".join(f"{n:8}" for n in counts) + f"{seconds:9.0f}{cpu:11.0f}")
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
