#!/usr/bin/env python3
"""tools/run_tests.py MARKS [FOLDER ...]: the Python tests with these marks, in all folders of tests/ or in these.

Each folder is a run of pytest of its own, so that no room's imports reach another's. pytest-xdist spreads a large folder over all cores.
The large folders come first. The others run on one core each, and beside tests/check, whose tests wait for a third of their time. Ends with
a table: tests, time, and processor time of each folder. The status is 1 when a test failed.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LARGE = ("check", "torch")  # more than half of the time. In the others the imports of further processes would cost more than they gain
WAITING = ("check",)  # its tests wait for processes that sleep, a third of their time
NO_TESTS = 5  # pytest's exit status when the marks select none
COUNTS = ("passed", "failed", "error", "skipped")


def environment():
    """The environment of the tests: the build that DOVETAIL_BUILD names, or build/, before what PATH and PYTHONPATH hold."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # pytest translates all test files: once, and not in each process
    build = pathlib.Path(env.get("DOVETAIL_BUILD") or ROOT / "build").resolve()
    env["DOVETAIL_BUILD"] = str(build)
    for name, folders in (("PATH", [build / "bin", ROOT / ".venv" / "bin"]), ("PYTHONPATH", [build / "python"])):
        given = env[name].split(os.pathsep) if env.get(name) else []
        env[name] = os.pathsep.join([folder for folder in map(str, folders) if folder not in given] + given)
    return env


def run(folder, files, marks, jobs):
    """Runs files of one folder, and passes its output on: at once if it has all cores, otherwise at its end. Gives a row of the table."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, *files]
    if jobs > 1:
        command += ["-n", str(jobs), "--dist", "worksteal"]
        print(f"== tests/{folder}", flush=True)
    child = subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
    said = []
    while character := child.stdout.read(1):  # by character: the dots show that it goes on
        said.append(character)
        if jobs > 1:
            print(character, end="", flush=True)
    text = "".join(said)
    _, status, usage = os.wait4(child.pid, 0)  # with the processes that it started
    child.returncode = os.waitstatus_to_exitcode(status)
    if jobs == 1:
        print(f"== tests/{folder}", text, sep="\n", end="", flush=True)
    counts = [sum(map(int, re.findall(rf"(\d+) {word}s?\b", text.strip().rsplit("\n", 1)[-1]))) for word in COUNTS]
    return [f"tests/{folder}", *counts, time.monotonic() - began, usage.ru_utime + usage.ru_stime], child.returncode in (0, NO_TESTS)


def selected(marks, folders):
    """The files to run, by folder, those with most tests first: for the slow or quick ones only files in which a test has that mark."""
    words = {"slow": ("mark.slow", "seeds"), "quick": ("mark.quick",)}.get(marks.split()[0], ("",))
    found = {}
    for file in sorted((ROOT / "tests").glob("*/test_*.py")):
        if file.parent.name in (folders or [file.parent.name]) and any(word in file.read_text() for word in words):
            found.setdefault(file.parent.name, []).append(file)
    return dict(sorted(found.items(), key=lambda item: -sum(file.stat().st_size for file in item[1])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("marks")
    parser.add_argument("folders", nargs="*")
    args = parser.parse_args()
    began, cores = time.monotonic(), len(os.sched_getaffinity(0))
    files = selected(args.marks, args.folders) or parser.error("no such tests")
    jobs = {f: cores if len(files) == 1 or (f in LARGE and not args.marks.startswith("quick")) else 1 for f in files}
    if args.marks == "slow":
        jobs |= {f: cores + 1 for f in WAITING if f in files}  # the slow ones wait for half of their time
    alone = [f for f in files if jobs[f] > 1 and f not in WAITING]
    done = [run(folder, files[folder], args.marks, cores) for folder in alone]
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        beside = sorted((f for f in files if f not in alone), key=lambda folder: -jobs[folder])
        done += pool.map(lambda folder: run(folder, files[folder], args.marks, jobs[folder]), beside)
    rows = sorted(row for row, _ in done)
    failed = [row[0] for row, ok in done if not ok]
    *counts, cpu = map(sum, zip(*(row[1:5] + row[6:] for row in rows)))
    rows.append(["all", *counts, time.monotonic() - began, cpu])
    print(f"\n{'folder':16}{'passed':>8}{'failed':>8}{'errors':>8}{'skipped':>8}{'seconds':>9}{'processor':>11}")
    for name, *counts, seconds, cpu in rows:
        print(f"{name:16}" + "".join(f"{n:8}" for n in counts) + f"{seconds:9.0f}{cpu:11.0f}")
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
