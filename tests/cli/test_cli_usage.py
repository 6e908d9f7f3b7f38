"""Help, options, exit codes, colour: the same for every verb."""
import os
import pty
import re
import subprocess

import pytest
from cli_helpers import COMMAND, ROOT, Dovetail

pytestmark = pytest.mark.quick

VERBS = re.findall(r"X\((\w+)\)", (ROOT / "cli" / "cli.h").read_text().split("#define CLI_VERBS(X)")[1].split("/* What the process")[0])


def options(dovetail, verb):
    text = dovetail(verb, "--help").out
    return re.findall(r"--([a-z-]+)", text.split("Options:")[1].split("Examples:")[0].replace("NO_COLOR", ""))


def test_verbs_are_the_files():
    assert sorted(VERBS) == sorted(p.stem[4:] for p in (ROOT / "cli").glob("cmd_*.c"))


def test_overview_lists_every_verb(dovetail):
    for args in (["--help"], ["-h"], ["help"]):
        out = dovetail(*args).out
        for verb in VERBS:
            assert re.search(rf"^  {verb} +\S", out, re.M)
    assert dovetail(code=2).out == out  # without a command: the same text, but not success
    assert dovetail("--version").out.startswith("dovetail 0.")


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches(dovetail, verb):
    out = dovetail(verb, "--help").out
    assert dovetail("help", verb).out == out
    assert dovetail(verb, "-h", "--no-such-thing").out == out  # help wins
    assert out.startswith(f"dovetail {verb}: ")
    assert f"Usage: dovetail {verb}" in out and "Examples:\n  $ dovetail " in out
    assert all(len(line) <= 130 for line in out.splitlines())


@pytest.mark.parametrize("verb", VERBS)
def test_documented(dovetail, verb):
    """docs/command.md has a section for each verb and names each of its options, and no option that does not exist."""
    page = (ROOT / "docs" / "command.md").read_text()
    section = re.search(rf"^## dovetail {verb}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    assert section, f"docs/command.md has no section 'dovetail {verb}'"
    there = set(options(dovetail, verb)) - {"help", "color"}
    assert there == set(re.findall(r"`(?:-\w, )?--([a-z-]+)", section[1]))


USAGE = [
    (["biuld"], "unknown command 'biuld' (did you mean 'build'?)"),
    (["frobnicate"], "unknown command 'frobnicate'"),
    (["help", "lits"], "did you mean 'list'?"),
    (["help", "INFO"], "did you mean 'info'?"),
    (["--frobnicate"], "unknown option '--frobnicate'"),
    (["--color=blue", "build"], "expected auto, always or never, found 'blue'"),
    (["build", "--color=blue"], "expected auto, always or never, found 'blue'"),
    (["build", "--jsno"], "unknown option '--jsno' (did you mean '--json'?)"),
    (["build", "-Q"], "unknown option '-Q'"),
    (["build", "--json=yes"], "option '--json' takes no value"),
    (["build", "-o"], "option '-o' needs a value: -o FILE"),
    (["build", "--out"], "option '--out' needs a value: --out FILE"),
    (["build", "--out="], "the name is empty"),
    (["build", "/dev/null"], "'/dev/null': expected a folder, or a file that ends in .c, .cpp, .cu or .cce"),
    (["new"], "expected a name"),
    (["new", "a", "b"], "expected one name, found 2 words"),
    (["info"], "expected a binary or the name of an operator"),
    (["explain"], "expected the name of an operator"),
    (["bench"], "expected the name of an operator"),
    (["check"], "expected a binary, a C file, a folder, a package or the name of an operator"),
    (["check", "--only", "", "x"], "expected the name of a property, found nothing"),
    (["check", "--only", "memory,luck", "x"], "there is no property 'luck'; there are binding"),
    (["check", "--seed", "one", "x"], "option '--seed': expected a number"),
    (["bench", "--time", "soon", "x"], "option '--time': expected a number from 1 to 1000000, found 'soon'"),
    (["bench", "--time", "0", "x"], "found '0'"),
]


@pytest.mark.parametrize("args, message", USAGE, ids=lambda x: " ".join(x) if isinstance(x, list) else "")
def test_wrong_usage_is_2_and_says_what_is_wrong(dovetail, args, message):
    r = dovetail(*args, code=2)
    assert message in r.err and "--help'" in r.err and not r.out


@pytest.mark.parametrize("path", ["nothing.c", "nothing.txt", "/no/such/folder"])
def test_nothing_to_build(dovetail, path):
    assert f"'{path}': No such file or directory" in dovetail("build", path, code=1).err


def test_json_failures_are_json_too(dovetail):
    r = dovetail("build", "--json", "nothing.c", code=1)
    assert r.json["ok"] is False and "nothing.c" in r.json["error"] and "nothing.c" in r.err


def on_a_terminal(args, env, folder):
    parent, child = pty.openpty()
    p = subprocess.Popen([COMMAND, *args], stdout=child, stderr=child, stdin=subprocess.DEVNULL, env=env, cwd=folder)
    os.close(child)
    out = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    os.close(parent)
    p.wait()
    return out


def test_colour_only_on_a_terminal(dovetail):
    plain, env = dovetail("--help").out, dovetail.env | {"TERM": "xterm"}
    assert "\033" not in plain
    assert b"\033[1m" in on_a_terminal(["--help"], env, dovetail.folder)
    assert b"\033" not in on_a_terminal(["--help"], env | {"NO_COLOR": "1"}, dovetail.folder)
    assert b"\033" in on_a_terminal(["--help"], env | {"NO_COLOR": ""}, dovetail.folder)  # empty: not set
    assert b"\033" not in on_a_terminal(["--help"], env | {"TERM": "dumb"}, dovetail.folder)
    assert b"\033" not in on_a_terminal(["--color=never", "--help"], env, dovetail.folder)
    assert "\033[1m" in dovetail("--color=always", "--help").out
    assert "\033[1;31m" in dovetail("build", "nothing.c", "--color", "always", code=1).err


def test_a_full_disk_is_not_success(dovetail):
    with open("/dev/full", "w") as full:
        r = subprocess.run([COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert r.returncode == 1 and "cannot write" in r.stderr


def test_home(dovetail, tmp_path):
    home = dovetail("--home").out.strip()
    assert os.path.exists(f"{home}/include/dovetail_op.h")
    assert dovetail("--home", env={"DOVETAIL_HOME": str(ROOT)}).out.strip() == str(ROOT)
    r = dovetail("--home", env={"DOVETAIL_HOME": str(tmp_path)}, code=1)
    assert "DOVETAIL_HOME" in r.err and "include/dovetail_op.h" in r.err
    # A command that was copied elsewhere says what to do.
    lost = tmp_path / "bin" / "dovetail"
    lost.parent.mkdir()
    lost.write_bytes(COMMAND.read_bytes())
    lost.chmod(0o755)
    r = subprocess.run([lost, "--home"], env=dovetail.env | {"LD_LIBRARY_PATH": str(COMMAND.parents[1] / "lib")}, capture_output=True, text=True)
    assert r.returncode == 1 and "set DOVETAIL_HOME" in r.stderr


def test_flags_of_a_home_with_a_space(dovetail, tmp_path):
    home = tmp_path / "my home"
    (home / "include").mkdir(parents=True)
    (home / "include" / "dovetail_op.h").write_text("")
    assert dovetail("--cflags", env={"DOVETAIL_HOME": str(home)}).out == f"'-I{home}/include'\n"
    both = dovetail("--cflags", "--libs").out
    assert both.count("\n") == 1 and "-I" in both and "-ldovetail" in both
