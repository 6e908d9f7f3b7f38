"""Runs every benchmark and shows a table: ours, the peer's, the ratio, the goal.

A benchmark is bench/bench_*.py, or a program bench_* that the build put into build/bin; it prints one JSON object a line:
    {"what": ..., "peer": ..., "ours": 0.12, "theirs": 0.34 or null, "unit": "us", "goal": "<= 0.3", "higher": false}
`bench/run.py --write` also puts the table into docs/performance.md; `--only NAME` runs one file; --quick leaves out slow peers.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

from rich.console import Console
from rich.table import Table

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))


def verdict(row):
    """Does the figure reach the goal? None when it cannot be told from the text."""
    goal = re.match(r"(<=|>=)\s*([\d.]+)\s*(x)?", row.get("goal") or "")
    if not goal:
        return None
    value = ratio(row) if goal[3] else row["ours"]
    if value is None:
        return None
    return value <= float(goal[2]) if goal[1] == "<=" else value >= float(goal[2])


def ratio(row):
    """How many times better than the peer."""
    if not row.get("theirs") or not row["ours"]:
        return None
    return row["ours"] / row["theirs"] if row.get("higher") else row["theirs"] / row["ours"]


def number(x):
    return "" if x is None else f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    rows, failed = [], []
    programs = [p for p in sorted((BUILD / "bin").glob("bench_*")) if p.is_file()] + sorted((ROOT / "bench").glob("bench_*.py"))
    console = Console()
    for program in programs:
        if options.only and options.only not in program.name:
            continue
        command = [sys.executable, program] if program.suffix == ".py" else [program]
        with console.status(program.name):
            done = subprocess.run([*command, *(["--quick"] if options.quick else [])], capture_output=True, text=True)
        if done.returncode:
            failed.append(program.name)
            console.print(f"[red]{program.name} failed[/]\n{done.stderr[-2000:]}")
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                rows.append(json.loads(line))
    table = Table(title=f"Dovetail beside its peers, {datetime.date.today()}")
    for heading in ("what", "unit", "ours", "peer", "theirs", "times better", "goal", ""):
        table.add_column(heading, justify="right" if heading in ("ours", "theirs", "times better") else "left")
    cells = []
    for row in rows:
        met = verdict(row)
        cells.append([row["what"], row["unit"], number(row["ours"]), row["peer"], number(row.get("theirs")), number(ratio(row)),
            row.get("goal") or "", "" if met is None else "met" if met else "short"])
        table.add_row(*cells[-1])
    console.print(table)
    if options.write and rows:
        page = ROOT / "docs" / "performance.md"
        cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
        flags = next((l for l in open("/proc/cpuinfo") if l.startswith("flags")), "")
        isa = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "base"
        lines = [f"Measured {datetime.date.today()} on {os.cpu_count()} cores of {cpu} ({isa}), {platform.python_implementation()} {platform.python_version()}.", "",
            "| what | unit | ours | peer | theirs | times better | goal | |", "|---|---|---|---|---|---|---|---|", *("| " + " | ".join(c) + " |" for c in cells)]
        text = page.read_text()
        text = re.sub(r"<!-- figures -->.*?<!-- end -->", lambda _: "<!-- figures -->\n" + "\n".join(lines) + "\n<!-- end -->", text, flags=re.S)
        page.write_text(text)
    (BUILD / "bench.json").write_text(json.dumps(rows, indent=1))
    sys.exit(bool(failed))


main()
