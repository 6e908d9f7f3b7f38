"""One C file becomes one binary, and three hosts use it. Each host is a process of its own and reports what it did as JSON lines:
{"where", "what", "result", "us"}; anything wrong makes it fail, and the demo with it."""
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parents[1] / "out" / "demo"
PROJECT = OUT / "my_ops"
console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)


def run(*command, cwd=PROJECT):
    """Show a command, run it, and give its output; the demo ends where one fails."""
    shown = " ".join(str(c) if " " not in str(c) else f"'{c}'" for c in command)
    console.print(f"[bold green]$[/] {shown.replace(str(HERE.parents[1]) + '/', '')}", soft_wrap=True)
    p = subprocess.run([str(c) for c in command], cwd=cwd, stdout=subprocess.PIPE, text=True)
    if p.returncode:
        console.print(p.stdout, end="", markup=False)
        console.print(f"[bold red]failed[/] with exit code {p.returncode}: {shown}", soft_wrap=True)
        sys.exit(1)
    return p.stdout


def show(text):
    for line in text.rstrip().splitlines():
        console.print("  " + line, markup=False, soft_wrap=True)


def main():
    start = time.perf_counter()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)

    show(run("dovetail", "new", "my_ops", cwd=OUT))
    built = json.loads(run("dovetail", "build", "--json"))
    binary = PROJECT / "my_ops.so"
    digest = hashlib.sha256(binary.read_bytes()).hexdigest()
    show(f"{built['out']}: {built['bytes']} bytes in {built['seconds']:.2f} s; needs {' '.join(built['needs']) or 'nothing'}; exports dovetail_library_1")
    rows = [{"where": "the command", "what": "compile, link, check one C file", "result": f"{built['bytes'] / 1024:.1f} KB", "us": built["seconds"] * 1e6}]

    begin = time.perf_counter()
    checked = run("dovetail", "check", "my_ops.so")
    show(checked)
    rows += [{"where": "dovetail check", "what": "the declaration executed, on inputs that it makes", "result": checked.strip().splitlines()[-1],
              "us": (time.perf_counter() - begin) * 1e6}]

    flags = shlex.split(run("dovetail", "--cflags", "--libs"))
    run("cc", "-O2", "main.c", *flags, "-o", "main")
    linked = run("ldd", "main")
    assert "libdovetail" in linked and "libpython" not in linked and "libtorch" not in linked, linked
    show(run("./main"))
    call = json.loads(run("dovetail", "bench", "--json", "--threads", "1", "./my_ops.so", "my_ops::swiglu", "f32[64,64]", "f32[64,64]"))["runs"][0]
    small = json.loads(run("dovetail", "bench", "--json", "--threads", "1", "./my_ops.so", "my_ops::swiglu", "f32[2]", "f32[2]"))["runs"][0]
    rows += [{"where": "C, no Python", "what": "swiglu, 2 x 3: main.c against its formula", "result": "equal to 1e-6", "us": None},
             {"where": "C, no Python", "what": "swiglu, 2 elements", "result": small["kernel"], "us": small["best_us"]},
             {"where": "C, no Python", "what": "swiglu, 64 x 64", "result": call["kernel"], "us": call["best_us"]}]

    for host in ("numpy_host.py", "torch_host.py", "pictures.py"):
        for line in run(sys.executable, HERE / host, binary, OUT, digest).splitlines():
            rows.append(json.loads(line))

    if hashlib.sha256(binary.read_bytes()).hexdigest() != digest:
        console.print("[bold red]the binary changed on the way[/]")
        sys.exit(1)
    table = Table(title=f"\nOne C file, one binary (my_ops.so, {built['bytes'] / 1024:.1f} KB, sha256 {digest[:12]})", title_justify="left", title_style="bold")
    table.add_column("where"), table.add_column("what"), table.add_column("result"), table.add_column("µs per call", justify="right")
    last = None  # a host's name stands once
    for r in rows:
        if last and r["where"] != last:
            table.add_section()
        us = "" if r["us"] is None else f"{r['us']:,.0f}" if r["us"] >= 1000 else f"{r['us']:.2f}"
        table.add_row(r["where"] if r["where"] != last else "", r["what"], r["result"], us)
        last = r["where"]
    console.print(table)
    for picture in sorted(OUT.glob("*.png")):
        console.print(f"  {os.path.relpath(picture)}", highlight=False)
    console.print(f"Everything agreed. {time.perf_counter() - start:.1f} s in all.")


if __name__ == "__main__":
    main()
