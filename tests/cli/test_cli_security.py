"""Effects of another user, a signal or a full disk on a build. With two real users where the tests run as root."""
import contextlib
import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import time

import pytest
from cli_helpers import Dovetail

NOBODY = 65534
two_users = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as two users")


@pytest.fixture
def place():
    """Makes a folder directly in /tmp, which any user may enter: pytest's own folders are closed."""
    folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp", prefix="dovetail-security-"))
    folder.chmod(0o755)
    d = Dovetail(folder)
    d.write("ops.c", """#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int run(dv_context *ctx, const struct f *a) { (void)ctx; memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * 4); return DV_OK; }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", run)));
DV_LIBRARY(sec_ops, &dv_op_f);
""")
    yield d
    shutil.rmtree(folder, ignore_errors=True)


def folder_of(place, name, mode, owner=0):
    folder = place.folder / name
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, owner, owner)
    return folder


class Nobody:
    """A function that runs as another user in a child process, since that user may be unable to start this Python."""

    def __init__(self, function, *arguments):
        reader, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                function(*arguments, ready=lambda: os.write(writer, b"r"))
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writer)
        assert os.read(reader, 1) == b"r"
        os.close(reader)

    def __enter__(self):
        return self

    def running(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.01)


def program(place, name, text):
    path = place.write(name, f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# ---- Folders that others may write to --------------------------------------------------------------------------------------------------

def swap(shared, victim, ready):
    os.chdir(shared)
    os.symlink(victim, "lnk")
    os.mkdir(".dovetail-build-evil", 0o755)
    for i in range(2000):
        open(f".dovetail-build-evil/filler{i}", "w").close()
        if i % 400 == 0:
            open(f".dovetail-build-evil/file{i // 400}", "w").close()
    libc, end = ctypes.CDLL(None), time.time() + 3
    ready()
    while time.time() < end:
        libc.renameat2(-100, b".dovetail-build-evil", -100, b"lnk", 2)  # exchanges the two names


def hold_lock(path, ready):
    with open(path, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ready()
        time.sleep(100)


@two_users
@pytest.mark.parametrize("owner", [0, NOBODY], ids=["sticky", "the other user's"])
def test_another_users_folder_never_becomes_a_link(place, owner):
    """While a build looks for what dead builds left, another user puts a link to this user's files in place of a folder."""
    shared, victim = folder_of(place, "shared", 0o1777, owner), folder_of(place, "victim", 0o755)
    for i in range(5):
        (victim / f"file{i}").write_text("precious")
    with Nobody(swap, shared, victim) as attacker:
        while attacker.running():
            place("build", "ops.c", "-o", str(shared / "out.so"), code=None)
    assert sorted(p.name for p in victim.iterdir()) == [f"file{i}" for i in range(5)]
    assert list(shared.glob("*evil*")) or (shared / "lnk").exists(), "what is the other user's stays"


@two_users
def test_only_this_users_folders_are_removed(place):
    shared = folder_of(place, "shared", 0o1777)
    mine, theirs, link = shared / ".dovetail-build-mine", shared / ".dovetail-build-theirs", shared / ".dovetail-build-link"
    for folder in (mine, theirs):
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "file").write_text("")
        folder.chmod(0o700)
    os.chown(theirs, NOBODY, NOBODY)
    precious = folder_of(place, "precious", 0o700)
    (precious / "file").write_text("")
    link.symlink_to(precious)
    (mine / "out").symlink_to(precious)
    place("build", "ops.c", "-o", str(shared / "out.so"))
    assert not mine.exists() and (theirs / "inner" / "file").exists() and (precious / "file").exists()


@two_users
@pytest.mark.parametrize("mode, owner", [(0o777, 0), (0o1777, NOBODY), (0o755, NOBODY)])
def test_a_folder_in_which_others_may_rename(place, mode, owner):
    """The other user may rename what the build makes there, so it compiles elsewhere; and no folder there is taken for a left one."""
    shared, temporary = folder_of(place, "shared", mode, owner), folder_of(place, "temporary", 0o700)
    renamed = shared / ".dovetail-build-work"
    renamed.mkdir(mode=0o700)
    (renamed / "file").write_text("precious")
    cc = program(place, "cc", f'ls -d {shared}/.dovetail-build-* >{place.folder}/seen; echo "$TMPDIR" >>{place.folder}/seen; exec gcc "$@"')
    place("build", "--cc", cc, "ops.c", "-o", str(shared / "out.so"), env={"TMPDIR": str(temporary)})
    seen = (place.folder / "seen").read_text().split()
    assert seen[0] == str(renamed) and seen[1].startswith(f"{temporary}/.dovetail-build-") and len(seen) == 2
    assert (renamed / "file").read_text() == "precious"
    assert sorted(p.name for p in shared.iterdir()) == [".dovetail-build-work", "out.so"] and not list(temporary.glob(".*"))
    place("info", str(shared / "out.so"))


@two_users
def test_the_output_is_not_written_through_a_link(place):
    """A link that another user puts in place of the output while it is built."""
    shared, precious = folder_of(place, "shared", 0o777), place.write("precious", "precious")
    cc = program(place, "cc", f'gcc "$@" || exit 1\nln -sf {precious} {shared}/out.so')
    assert "a symbolic link" in place("build", "--cc", cc, "ops.c", "-o", str(shared / "out.so"), code=1).err
    assert precious.read_text() == "precious"


def test_a_copy_that_was_interrupted_is_removed(place):
    left, other = place.write(".dovetail-build-0123456789abcdef", "half"), place.write(".dovetail-building", "not one")
    place("build", "ops.c")
    assert not left.exists() and other.exists() and not place.leftovers()


WRONG = """#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int run(dv_context *ctx, const struct f *a) { (void)ctx; (void)a; return DV_OK; }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", run)));
DV_LIBRARY(sec_ops, &dv_op_f);
"""


@two_users
def test_reports_are_not_written_through_a_link(place):
    """`dovetail check` writes a program and a report to a folder in which another user has put links; this user's links are followed."""
    shared, precious = folder_of(place, "shared", 0o777), place.write("precious", "precious")
    place.write("wrong.c", WRONG)
    place("build", "wrong.c")
    failure = next(r for r in place("check", "./wrong.so", "--quick", "--json", "--only", "memory", code=1).json["results"] if r["result"] == "fail")
    writes = {"report.xml": (("check", "./wrong.so", "--quick", "--only", "memory", "--junit", "shared/report.xml"), 1),
              "call.c": (("check", "./wrong.so", "--case", failure["key"], "--emit-c", "shared/call.c"), 0)}
    for name, (arguments, code) in writes.items():
        place(*arguments, code=code)
        (shared / name).unlink()
        (shared / name).symlink_to(precious)
        os.chown(shared / name, NOBODY, NOBODY, follow_symlinks=False)
        assert f"cannot write 'shared/{name}" in place(*arguments, code=1).err
        assert precious.read_text() == "precious" and not [n for n in os.listdir(shared) if n.startswith(".")]
        (shared / name).unlink()
    arguments, code = writes["report.xml"]
    (shared / "report.xml").symlink_to(precious)
    place(*arguments, code=code)
    assert precious.read_text().startswith("<?xml")
    out = place(*arguments[:-1], "/dev/stdout", code=1).out
    assert "<?xml" in out


# ---- Builds that are kept --------------------------------------------------------------------------------------------------------------

def built(place, **env):
    return pathlib.Path(place("build", "--cached", "ops.c", env={"DOVETAIL_CACHE": str(place.folder / "cache"), **env}).out.strip())


@two_users
@pytest.mark.parametrize("suffix", [".so", ".made", ".deps", ".lock"])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_another_users_file_among_builds_that_are_kept(place, suffix, how):
    """Such a file may be from a time when others could write to the folder. Its content is right: only its owner or its mode is not."""
    binary = built(place)
    file, = (place.folder / "cache").glob(f"*{suffix}")
    if how == "owner":
        os.chown(file, NOBODY, NOBODY)
    else:
        file.chmod(0o777)
    before = binary.stat().st_ino
    assert built(place) == binary
    if suffix != ".lock":
        assert binary.stat().st_ino != before, "it was built again"
        assert file.stat().st_uid == 0 and not file.stat().st_mode & 0o022
        again = binary.stat().st_ino
        assert built(place) == binary and binary.stat().st_ino == again


@two_users
def test_a_lock_that_another_user_holds(place):
    built(place)
    lock, = (place.folder / "cache").glob("*.lock")
    os.chown(lock, NOBODY, NOBODY)
    (place.folder / "cache").chmod(0o755)
    with Nobody(hold_lock, lock):
        next((place.folder / "cache").glob("*.made")).unlink()
        assert built(place).exists()


def test_what_is_kept_is_never_for_others_to_write(place):
    done = subprocess.run(["bash", "-c", "umask 0; dovetail build --cached ops.c"], cwd=place.folder, env=place.env | {"DOVETAIL_CACHE": str(place.folder / "cache")},
                          capture_output=True, text=True, check=True)
    for path in (place.folder / "cache").iterdir():
        assert not path.stat().st_mode & 0o022, path
    inode = os.stat(done.stdout.strip()).st_ino
    assert built(place).stat().st_ino == inode


@two_users
def test_a_private_copy_of_another_user(place):
    """dv_load() loads a file in $TMPDIR/dovetail-0: one of another user, with the right content, is replaced."""
    place("build", "ops.c")
    temporary = folder_of(place, "temporary", 0o700)
    place("info", "./ops.so", env={"TMPDIR": str(temporary)})
    copy, = temporary.glob("dovetail-0/*.so")
    os.chown(copy, NOBODY, NOBODY)
    place("info", "./ops.so", env={"TMPDIR": str(temporary)})
    assert copy.stat().st_uid == 0


# ---- Signals and output ----------------------------------------------------------------------------------------------------------------

SLOW = {
    "closed output": "exec >/dev/null 2>&1\necho $$ >{mark}\nexec sleep 47",
    "ignores signals": "trap '' TERM INT HUP QUIT\necho $$ >{mark}\nsleep 47; sleep 47; sleep 47",
    "ignores signals, closed output": "exec >&- 2>&-\ntrap '' TERM INT HUP QUIT\necho $$ >{mark}\nsleep 47; sleep 47",
    "a child in a session of its own": "setsid sleep 47 &\nsetsid sh -c 'trap \"\" TERM INT HUP; setsid sleep 47; sleep 47' &\necho $$ >{mark}\nwait",
    "stopped": "echo $$ >{mark}\nkill -STOP $$\nsleep 47",
    "writes for ever": "echo $$ >{mark}\nwhile :; do echo output; done",
}


def sleepers(folder):
    """Returns the processes whose current folder is this one, without this process."""
    found = []
    for p in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if p.name.isdigit() and int(p.name) != os.getpid() and os.readlink(p / "cwd") == str(folder):
                found.append((p / "cmdline").read_bytes())
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("what", SLOW)
def test_a_signal_ends_the_build(place, what, number):
    mark = place.folder / "mark"
    p = place.popen("build", "--cc", program(place, "cc", SLOW[what].format(mark=mark)), "ops.c", preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    wait_until(lambda: mark.exists() and mark.read_text())
    time.sleep(0.1)
    started = time.monotonic()
    p.send_signal(number)
    p.communicate(timeout=20)
    assert p.returncode == -number
    assert time.monotonic() - started < 5, "1 s on a machine that is not busy"
    assert not place.leftovers() and not (place.folder / "ops.so").exists()
    wait_until(lambda: not sleepers(place.folder), 2)


def test_a_signal_while_nobody_reads_the_messages(place):
    """A pipe that is full must not keep the build from ending."""
    cc = program(place, "cc", "head -c 300000 /dev/zero | tr '\\0' x")
    p = place.popen("build", "--cc", cc, "ops.c")
    time.sleep(1)
    p.send_signal(signal.SIGTERM)
    p.wait(timeout=20)
    p.communicate()
    assert p.returncode == -signal.SIGTERM and not place.leftovers()


def test_a_reader_that_has_gone(place):
    """`dovetail build 2>&1 | head -1`."""
    cc = program(place, "cc", "head -c 300000 /dev/zero | tr '\\0' x")
    reader, writer = os.pipe()
    os.close(reader)
    p = subprocess.Popen([place.command, "build", "--cc", cc, "ops.c"], cwd=place.folder, env=place.env, stdout=writer, stderr=writer)
    os.close(writer)
    p.wait(timeout=20)
    assert not place.leftovers()


def test_a_flood_of_output(place):
    """Head and tail are kept; the memory is bounded, and the compiler is never blocked."""
    cc = program(place, "cc", "echo 'ops.c:1: first'\nhead -c 400000000 /dev/zero | tr '\\0' '\\n'\necho last >&2\nexec gcc \"$@\"")
    r = subprocess.run(["bash", "-c", f"ulimit -Sv 400000; exec dovetail build --cc {cc} ops.c"], cwd=place.folder, env=place.env, capture_output=True, timeout=120)
    assert r.returncode == 0
    assert len(r.stderr) < 2 << 20 and r.stderr.startswith(b"ops.c:1: first\n") and r.stderr.endswith(b"last\n")
    assert b"bytes of output are left out here" in r.stderr


def test_a_process_that_floods_the_output_after_the_compiler_has_ended(place):
    cc = program(place, "cc", '(setsid sh -c "while :; do echo output || exit; done" &)\nexec gcc "$@"')
    started = time.monotonic()
    place("build", "--cc", cc, "ops.c")
    assert time.monotonic() - started < 30
    wait_until(lambda: not sleepers(place.folder), 5)


# ---- Disks, folders and environments ---------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def mounted(place, options):
    folder = place.folder / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True).returncode:
        pytest.skip("this process cannot mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@two_users
def test_a_disk_mounted_noexec(place):
    with mounted(place, "noexec,size=10m") as disk:
        r = place("build", "ops.c", "-o", str(disk / "a.so"))
        assert "mounted noexec" in r.err
        place("info", str(disk / "a.so"))
        binary = place("build", "--cached", "ops.c", env={"DOVETAIL_CACHE": str(disk / "cache")}).out.strip()
        place("info", binary)
        place("build", "ops.c", "-o", str(place.folder / "b.so"), env={"TMPDIR": str(disk)})


@two_users
@pytest.mark.parametrize("kilobytes", [4, 8, 16, 24, 28, 32, 40])
def test_a_full_disk(place, kilobytes):
    place("build", "ops.c", "-o", "whole.so")
    whole = (place.folder / "whole.so").read_bytes()
    with mounted(place, f"size={kilobytes}k") as disk:
        r = place("build", "ops.c", "-o", str(disk / "a.so"), code=None)
        assert r.code in (0, 1) and (r.code == 0 or "No space left" in r.err), r.err
        assert [p.name for p in disk.iterdir()] == ["a.so"] * (r.code == 0)
        assert r.code or (disk / "a.so").read_bytes() == whole
        r = place("build", "--cached", "ops.c", env={"DOVETAIL_CACHE": str(disk / "cache")}, code=None)
        assert r.code in (0, 1) and not list(disk.rglob(".dovetail-build-*"))


@two_users
def test_a_project_on_a_full_disk(place):
    """A project that does not fit leaves no file."""
    with mounted(place, "size=24k") as disk:
        assert "No space left" in place("new", str(disk / "my_ops"), code=1).err
        assert not list(disk.iterdir())


@two_users
def test_no_folder_of_this_users_own(place):
    """Where all folders for temporary files are open to everybody, as in some images of containers."""
    script = """mount --make-rprivate / && for d in /tmp /dev/shm /var/tmp; do mount -t tmpfs -o mode=0777 none $d || exit 77; done
cd /tmp && cp "$1" ops.c && HOME=$2 dovetail build ops.c; echo $?; HOME= dovetail build ops.c; echo $?; ls -A /tmp $2"""
    home = pathlib.Path(tempfile.mkdtemp(dir="/run", prefix="dovetail-home-"))
    source = place.folder / "ops.c"
    copy = shutil.copy(source, home)
    r = subprocess.run(["unshare", "-m", "bash", "-c", script, "bash", copy, str(home)], env=place.env | {"TMPDIR": "", "XDG_RUNTIME_DIR": ""},
                       capture_output=True, text=True)
    shutil.rmtree(home)
    if r.returncode == 77 or "unshare" in r.stderr:
        pytest.skip("this process cannot make a mount namespace")
    assert "\n0\n" in r.stdout and "\n1\n" in r.stdout and ".dovetail-build-" not in r.stdout, r
    assert "in which others may rename files" in r.stderr and "TMPDIR" in r.stderr


@pytest.mark.parametrize("env", [{"TMPDIR": "/proc/no"}, {"TMPDIR": "relative"}, {"TMPDIR": ""}, {"HOME": ""}, {"HOME": "/proc/no"},
                                 {"HOME": "/proc/1"}], ids=str)
def test_strange_environments(place, env):
    place("build", "ops.c", env=env)
    binary = place("build", "--cached", "ops.c", env={"DOVETAIL_CACHE": "", "XDG_CACHE_HOME": "", **env}).out.strip()
    place("info", binary, env=env)
    if os.path.basename(os.path.dirname(binary)).startswith("dovetail-private-"):
        shutil.rmtree(os.path.dirname(binary))


@two_users
def test_a_temporary_folder_of_another_user(place):
    theirs = folder_of(place, "theirs", 0o777, NOBODY)
    place("build", "ops.c", env={"TMPDIR": str(theirs)})
    place("info", "./ops.so", env={"TMPDIR": str(theirs)})
    assert not list(theirs.iterdir())


@pytest.mark.parametrize("mask, mode", [("077", 0o700), ("022", 0o755), ("0", 0o777)])
def test_the_mode_follows_the_umask(place, mask, mode):
    subprocess.run(["bash", "-c", f"umask {mask}; dovetail build ops.c"], cwd=place.folder, env=place.env, check=True, capture_output=True)
    assert stat.S_IMODE((place.folder / "ops.so").stat().st_mode) == mode


def test_two_builds_where_others_may_write(place):
    """Both builds replace the same output by copies: a reader always sees a complete binary."""
    shared = place.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    place("build", "ops.c", "-o", "shared/ops.so")
    whole = (shared / "ops.so").read_bytes()
    running = [place.popen("build", "ops.c", "-o", "shared/ops.so") for _ in range(6)]
    while any(p.poll() is None for p in running):
        assert (shared / "ops.so").read_bytes() == whole
    assert [p.wait() for p in running] == [0] * 6
    for p in running:
        p.communicate()
    assert [p.name for p in shared.iterdir()] == ["ops.so"]
