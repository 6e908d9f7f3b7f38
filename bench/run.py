"""Runs every benchmark and shows tables: ours, the peer's, the ratio, the goal.

A benchmark is bench/bench_*.py, or a program bench_* that the build put into build/bin; it prints one JSON object a line:
    {"what": ..., "peer": ..., "ours": 0.12, "theirs": 0.34 or null, "unit": "us", "goal": "<= 0.3", "higher": false}
or an operator's case, in microseconds, with the least times that its operations and its bytes allow (limits.py), and goals: the share of the
greater of them in percent, or how many times as fast as a peer, or as the best of them:
    {"case": ..., "threads": 1, "ours": 250, "peers": {"torch eager": 420}, "limits": [36, 92], "peak": "f32", "memory": "cache", "flops": ...,
     "bytes": ..., "gflops": ..., "gb": ..., "goals": {"share": 90, "torch eager": 1.5}}
or those limits by themselves: {"limits": {"DRAM: read, GB/s": [36, 38]}, "threads": [1, 2]}.
`bench/run.py --write` also writes the tables and a roofline to the page of this processor in docs/figures/; `--only NAME` runs one
file; --quick leaves out slow peers and large cases.
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
FIGURES = ROOT / "docs" / "figures"


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


ALWAYS = {"best": 0.95}  # goals of each case: nowhere more than 5 % slower than the best peer


def share(row):
    return 100 * max(row["limits"]) / row["ours"]


def times(row, peer):
    """How many times as fast as it; None if it was not measured."""
    peers = {**row["peers"], "best": min(row["peers"].values())}
    return peers[peer] / row["ours"] if peer in peers else None


def judged(rows):
    """Whether a case reaches its goals: met, or those that it misses, each with the numbers of threads; nothing if some were not measured."""
    short, all_measured = [], True
    for goal, least in {**ALWAYS, **rows[0]["goals"]}.items():
        values = {row["threads"]: share(row) if goal == "share" else times(row, goal) for row in rows}
        at = [str(threads) for threads, value in values.items() if value is not None and value < least]
        all_measured &= None not in values.values()
        short += [f"{goal} ({', '.join(at)})"] if at else []
    return f"short: {'; '.join(short)}" if short else "met" if all_measured else ""


def case_table(rows):
    """Headings and cells: a line for each case, with what each number of threads gives."""
    cases, threads = {}, sorted({row["threads"] for row in rows})
    for row in rows:
        cases.setdefault(row["case"], []).append(row)
    headings = ["case"]
    for n in threads:
        headings += [f"{n} thread{'s' * (n > 1)}, us", "limits, us", "share, %", "x eager", "x Inductor"]
    headings += ["goals", ""]
    cells = []
    for case, some in cases.items():
        cells.append([case])
        for row in some:
            operations, memory = (f"{number(limit)} {name}" for limit, name in zip(row["limits"], (row["peak"], row["memory"])))
            cells[-1] += [number(row["ours"]), f"{operations}, {memory}", number(share(row)), *(number(times(row, peer)) for peer in ("torch eager", "Inductor"))]
        cells[-1] += [", ".join(f"{goal} {least}" for goal, least in some[0]["goals"].items()), judged(some)]
    return headings, cells


def tables(rows):
    """(title, headings, cells) of each table that has lines."""
    plain, cases = [row for row in rows if "what" in row], [row for row in rows if "case" in row]
    yield "Dovetail beside its peers", ["what", "unit", "ours", "peer", "theirs", "times better", "goal", ""], [
        [row["what"], row["unit"], number(row["ours"]), row["peer"], number(row.get("theirs")), number(ratio(row)), row.get("goal") or "",
         {None: "", True: "met", False: "short"}[verdict(row)]] for row in plain]
    for row in rows:
        if "limits" in row and "case" not in row:
            yield "Limits of the machine", ["", *(f"{n} thread{'s' * (n > 1)}" for n in row["threads"])], [
                [what, *map(number, figures)] for what, figures in row["limits"].items()]
    if cases:
        yield "Operators beside the limits", *case_table(cases)


def processor():
    """Its name, and the instruction sets that matter here."""
    facts = dict(re.findall(r"^(model name|flags)\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M))
    flags = facts.get("flags", "").split()
    name = " ".join(re.sub(r"\((R|TM)\)|Processor|CPU|@.*", "", facts.get("model name", platform.machine())).split())
    has = [isa for flag, isa in (("avx512f", "AVX-512"), ("amx_tile", "AMX")) if flag in flags] or ["AVX2" if "avx2" in flags else "base"]
    return f"{name} ({', '.join(has)})"


def write(rows):
    """Writes the page of this processor in docs/figures/, and its roofline."""
    import roofline

    name = processor()
    page = FIGURES / f"{'-'.join(re.findall('[a-z0-9]+', name.lower()))}.md"
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip() or "unknown"
    lines = [f"# Figures: {name}", "", "How to read and repeat these tables: [performance.md](../performance.md).", "",
             f"Measured {datetime.date.today()} at commit {commit} on {os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()}."]
    for title, headings, cells in tables(rows):
        lines += ["", f"## {title}", "", "| " + " | ".join(headings) + " |", "|" + "---|" * len(headings), *("| " + " | ".join(line) + " |" for line in cells)]
    if roofline.draw(rows, page.with_suffix(".svg")):
        lines += ["", f"![each case beneath the limits of the machine]({page.stem}.svg)"]
    page.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write replaces the whole page of this processor: it cannot be combined with --only")
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
        rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    (BUILD / "bench.json").write_text(json.dumps(rows, indent=1))
    for title, headings, cells in tables(rows):
        table = Table(title=f"{title}, {datetime.date.today()}")
        for heading in headings:
            table.add_column(heading, justify="left" if heading in ("", "what", "case", "unit", "peer", "goal", "goals") else "right")
        for line in cells:
            table.add_row(*line)
        console.print(table)
    if options.write and rows:
        write(rows)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
