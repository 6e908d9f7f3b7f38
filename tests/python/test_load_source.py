"""dovetail.load on source files: what is built, when it is built again, and who shares it."""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import threading

import numpy
import pytest

import dovetail

SOURCE = """
#include <dovetail_op.h>
#include "add.h"
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + ADD;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
"""
LIBRARY = "DV_LIBRARY(kept_ops, &dv_op_f);\n"
COMPILER = """#!/bin/sh
echo run >> {log}
exec cc "$@"
"""


class Place:
    """A folder with op.c, a cache of its own, and a compiler that counts its runs."""

    def __init__(self, folder):
        self.folder, self.log, self.cache = folder, folder / "runs", folder / "cache"
        self.write("op.c", SOURCE + LIBRARY)
        self.write("add.h", "#define ADD 1\n")
        self.write("compiler", COMPILER.format(log=self.log)).chmod(0o755)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 1))  # not "while it was compiled"
        return path

    def env(self, **more):
        return {**os.environ, "DOVETAIL_CACHE": str(self.cache), "CC": str(self.folder / "compiler"), **more}

    def build(self, *args, code=0, **env):
        """The path of the binary; or what went wrong."""
        done = subprocess.run([dovetail.command(), "build", "--cached", *args], cwd=self.folder, env=self.env(**env), capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else pathlib.Path(done.stdout.rstrip("\n"))

    def private(self, **env):
        """A build that cannot be kept in the usual folder: the binary, and what was said."""
        done = subprocess.run([dovetail.command(), "build", "--cached", "op.c"], cwd=self.folder, env=self.env(**env), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        binary = pathlib.Path(done.stdout.rstrip("\n"))
        assert binary.parent.name.startswith("dovetail-private-") and stat.S_IMODE(binary.parent.stat().st_mode) == 0o700
        shutil.rmtree(binary.parent)
        return binary, done.stderr

    def runs(self):
        """How often the compiler ran since the last question."""
        count = len(self.log.read_text().split()) if self.log.exists() else 0
        self.log.unlink(missing_ok=True)
        return count

    def value(self, *sources, **kwargs):
        """f(0), by dovetail.load in a fresh process."""
        code = f"import dovetail, numpy; print(dovetail.load(*{sources or ('op.c',)!r}, **{kwargs!r}).f(numpy.zeros(1, 'float32'))[0])"
        done = subprocess.run([sys.executable, "-c", code], cwd=self.folder, env=self.env(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return float(done.stdout)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_a_build_is_kept(place):
    assert [place.value(), place.value()] == [1, 1]
    assert place.runs() == 1
    assert stat.S_IMODE(place.cache.stat().st_mode) == 0o700
    assert not [p for p in place.cache.iterdir() if p.name.startswith(".dovetail-build")]


def test_what_changes_is_built_again(place):
    first = place.build("op.c")
    assert place.build("op.c") == first and place.runs() == 1
    place.write("op.c", (SOURCE + LIBRARY).replace("+ ADD", "+ ADD + ADD"))
    second = place.build("op.c")
    assert second != first and place.runs() == 1 and place.value() == 2 and place.runs() == 0
    place.write("op.c", SOURCE + LIBRARY)  # as it was
    assert place.build("op.c") == first and place.runs() == 0


def test_a_header_that_changes(place):
    assert place.value() == 1
    place.write("add.h", '#include "deep er/more.h"\n')
    place.write("deep er/more.h", "#define ADD 5\n")
    assert place.value() == 5 and place.runs() == 2
    assert place.value() == 5 and place.runs() == 0
    place.write("deep er/more.h", "#define ADD 6\n")
    assert place.value() == 6 and place.runs() == 1
    (place.folder / "deep er/more.h").unlink()
    assert "more.h" in place.build("op.c", code=1)


def test_each_state_of_a_header_has_its_binary(place):
    """A process that loaded one keeps it, and an old state that comes back is there."""
    first = place.build("op.c")
    data = first.read_bytes()
    place.write("add.h", "#define ADD 7\n")
    second = place.build("op.c")
    assert second != first and first.read_bytes() == data and place.value() == 7 and place.runs() == 2
    place.write("add.h", "#define ADD 1\n")
    assert place.build("op.c") == first and place.runs() == 0


@pytest.mark.parametrize("name", ["new\nline.c", "two\n\nlines.c", "back\\slash.c", "back\\\nslash.c", "fol\nder/op.c", "end\\.c", " a: b.c"])
def test_names_that_a_record_escapes(place, name):
    place.write("fol\nder/add.h", "#define ADD 1\n")
    place.write(name, SOURCE + LIBRARY)
    first = place.build(name)
    assert place.build(name) == first and place.runs() == 1
    header = "fol\nder/add.h" if "/" in name else "add.h"
    place.write(header, "#define ADD 2\n")
    assert place.build(name) != first and place.runs() == 1
    place.build(name)
    assert place.runs() == 0


def test_names_that_make_rules_escapes(place):
    for name in ("a b.h", "a#b.h", "a$b.h", "a\\b.h"):
        place.write("add.h", f'#include "{name}"\n')
        place.write(name, "#define ADD 2\n")
        place.build("op.c"), place.runs()
        place.build("op.c")
        assert place.runs() == 0, name
        place.write(name, "#define ADD 3\n")
        place.build("op.c")
        assert place.runs() == 1, name


def test_a_header_written_while_it_is_compiled(place):
    """What was compiled is not known then: the next one builds again."""
    place.write("compiler", COMPILER.format(log=place.log).replace("exec cc", f"echo '#define ADD 9' > {place.folder}/add.h; exec cc")).chmod(0o755)
    place.build("op.c")
    place.build("op.c")
    assert place.runs() == 2


def test_dovetails_own_headers(place):
    """They are headers like others: the record names them."""
    record = place.build("op.c").with_suffix(".made").read_text()
    names = {line.split(" ", 1)[1].rsplit("/")[-1] for line in record.splitlines()}
    assert {"op.c", "add.h", "dovetail_op.h"} <= names
    assert "stdint.h" not in names  # the system's headers belong to the compiler


def test_options_and_environment(place):
    assert place.value(flags=["-D", "EXTRA"]) == 1
    place.write("op.c", (SOURCE + LIBRARY).replace("ADD;", "ADD + MORE;"))
    assert place.value(flags=["-D", "MORE=2"]) == 3
    assert place.value(flags=["-DMORE=3"]) == 4
    assert place.value(flags=["-DMORE=2"]) == 3
    assert place.runs() == 3  # "-D MORE=2" and "-DMORE=2" are one option
    a = place.build("-D", "MORE=2", "op.c")
    assert place.build("-D", "MORE=2", "op.c", CPATH="/nowhere") != a
    assert place.build("-D", "MORE=2", "-v", "op.c") == a  # shows, changes nothing
    assert "cannot be given with --out" in place.build("-o", "x.so", "op.c", code=2)
    with pytest.raises(TypeError, match="a list of arguments"):
        dovetail.load("op.c", flags="-O2")


def test_another_compiler(place):
    first = place.build("op.c")
    place.write("compiler", COMPILER.format(log=place.log) + "# version 2\n").chmod(0o755)
    assert place.build("op.c") != first and place.runs() == 2
    os.rename(place.folder / "compiler", place.folder / "compiler2")
    assert place.build("op.c", CC=str(place.folder / "compiler2")) != first and place.runs() == 1


def test_several_sources(place):
    place.write("op.c", SOURCE.replace("f(dv_context", "f_of(dv_context").replace('"f32", f)', '"f32", f_of)'))
    place.write("library.c", "#include <dovetail_op.h>\n#include \"add.h\"\nDV__HIDDEN extern const dv_operator_decl dv_op_f;\n" + LIBRARY)
    assert place.value("op.c", "library.c") == 1 and place.runs() == 3  # two objects and the link
    assert place.value("op.c", "library.c") == 1 and place.runs() == 0
    place.write("add.h", "#define ADD 2\n")
    assert place.value("op.c", "library.c") == 2 and place.runs() == 3


def test_a_library_that_is_linked(place):
    def archive(value):
        place.write("more.c", f"int more(void); int more(void) {{ return {value}; }}\n")
        subprocess.run(["cc", "-c", "-fPIC", "more.c"], cwd=place.folder, check=True)
        (place.folder / "libmore.a").unlink(missing_ok=True)
        subprocess.run(["ar", "rcD", "libmore.a", "more.o"], cwd=place.folder, check=True)
        os.utime(place.folder / "libmore.a", (0, 0))
    archive(3)
    place.write("add.h", "int more(void);\n#define ADD (float)more()\n")
    flags = ["-L", ".", "-l", "more"]
    assert place.value(flags=flags) == 3
    archive(4)
    assert place.value(flags=flags) == 4 and place.runs() == 2
    assert place.value(flags=flags) == 4 and place.runs() == 0


@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "record cut", "record empty", "record gone", "another's"])
def test_entries_that_are_not_whole(place, harm):
    binary = place.build("op.c")
    record = binary.with_suffix(".made")
    data, text = binary.read_bytes(), record.read_text()
    place.runs()
    if harm == "cut":
        binary.write_bytes(data[:len(data) // 2])
    elif harm == "changed":
        binary.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif harm == "gone":
        binary.unlink()
    elif harm == "another's":
        place.write("op.c", (SOURCE + LIBRARY).replace("kept_ops", "other_ops"))
        binary.write_bytes(place.build("op.c").read_bytes())
        place.write("op.c", SOURCE + LIBRARY)
        place.runs()
    elif harm == "record gone":
        record.unlink()
    else:
        record.write_text(text[:len(text) // 2] if harm == "record cut" else "")
    assert place.build("op.c") == binary
    assert place.runs() == 1 and binary.read_bytes() == data and record.read_text() == text
    place.build("op.c")
    assert place.runs() == 0


def test_processes_share_one_build(place):
    """Eight at once: one compiles, all get the same binary."""
    code = "import dovetail, numpy; print(dovetail.load('op.c').f(numpy.zeros(1, 'float32'))[0])"
    those = [subprocess.Popen([sys.executable, "-c", code], cwd=place.folder, env=place.env(), stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert [p.communicate(timeout=100)[0] for p in those] == ["1.0\n"] * 8
    assert place.runs() == 1


def test_threads_share_one_build(place, monkeypatch):
    for name in ("DOVETAIL_CACHE", "CC"):
        monkeypatch.setenv(name, place.env()[name])
    place.write("op.c", (SOURCE + LIBRARY).replace("kept_ops", "thread_ops"))
    monkeypatch.chdir(place.folder)
    found, threads = [], []
    for _ in range(6):
        threads.append(threading.Thread(target=lambda: found.append(dovetail.load("op.c"))))
        threads[-1].start()
    for t in threads:
        t.join()
    assert len(found) == 6 and len({id(x) for x in found}) == 1
    assert place.runs() == 1
    found[0].close()


def test_a_builder_that_is_killed_leaves_no_lock(place):
    place.write("compiler", COMPILER.format(log=place.log).replace("exec cc", "sleep 60; exec cc")).chmod(0o755)
    p = subprocess.Popen([dovetail.command(), "build", "--cached", "op.c"], cwd=place.folder, env=place.env(), start_new_session=True)
    while not place.log.exists():
        assert p.poll() is None
    os.killpg(p.pid, 9)
    p.wait()
    assert [x for x in place.cache.iterdir() if x.name.startswith(".dovetail-build")]
    place.write("compiler", COMPILER.format(log=place.log)).chmod(0o755)
    place.build("op.c")
    assert not [x for x in place.cache.iterdir() if x.name.startswith(".dovetail-build")]


def test_errors_are_the_compilers(place, monkeypatch):
    monkeypatch.setenv("DOVETAIL_CACHE", str(place.cache))
    place.write("op.c", "#include <dovetail_op.h>\nint x = ;\n" + LIBRARY)
    with pytest.raises(dovetail.DovetailError, match=r"op.c:2:9: error: [\s\S]*failed; 'op.so' was not made"):
        dovetail.load(place.folder / "op.c")
    with pytest.raises(dovetail.DovetailError, match="none.c.*No such file"):
        dovetail.load(place.folder / "none.c")
    with pytest.raises(dovetail.DovetailError, match="expected a folder, or a file that ends in .c, .cpp, .cu or .cce"):
        dovetail.load(place.folder / "op.c", "other.so")
    place.write("op.c", SOURCE.replace("x[*s]:f32", "x[*s:f32") + LIBRARY)
    with pytest.raises(dovetail.DovetailError, match=r"op.c:\d+: library kept_ops from op.so: operator kept_ops::f: contract"):
        dovetail.load(place.folder / "op.c")


def test_warnings_and_commands_are_shown(place, monkeypatch, capsys):
    monkeypatch.setenv("DOVETAIL_CACHE", str(place.cache))
    place.write("op.c", (SOURCE + LIBRARY).replace("kept_ops", "shown_ops").replace("(void)ctx;", "int nobody;"))
    dovetail.load(place.folder / "op.c", flags=["-I", str(place.folder)], verbose=True).close()
    shown = capsys.readouterr().err
    assert "nobody" in shown and "-shared" in shown
    dovetail.load(place.folder / "op.c", flags=["-I", str(place.folder)], verbose=True).close()
    assert capsys.readouterr().err == ""


# ---- The folder ---------------------------------------------------------------------------------------------------------------------

def test_where_builds_are_kept(place):
    home = place.folder / "home"
    home.mkdir()
    assert place.build("op.c", DOVETAIL_CACHE="", XDG_CACHE_HOME="", HOME=str(home)).parent == home / ".cache/dovetail"
    assert stat.S_IMODE((home / ".cache").stat().st_mode) == 0o700
    assert place.build("op.c", DOVETAIL_CACHE="", XDG_CACHE_HOME=str(home / "xdg")).parent == home / "xdg/dovetail"
    assert place.build("op.c", DOVETAIL_CACHE="", XDG_CACHE_HOME="relative", HOME=str(home)).parent == home / ".cache/dovetail"


@pytest.mark.parametrize("home, said", [(None, "HOME is not set"), ("", "HOME is '', which is not an absolute path"),
                                        ("relative", "HOME is 'relative', which is not an absolute path")])
def test_no_usable_home(place, monkeypatch, home, said):
    """As with every other folder that cannot be used: a private folder, and one message."""
    monkeypatch.delenv("HOME", raising=False)
    assert place.private(DOVETAIL_CACHE="", XDG_CACHE_HOME="", **{} if home is None else {"HOME": home})[1].count(said) == 1


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_may_write_to(place, mode):
    place.cache.mkdir()
    place.cache.chmod(mode)
    said = place.build("op.c", code=1)
    assert f"others than its user may write to the folder '{place.cache}'" in said and "DOVETAIL_CACHE" in said
    assert place.runs() == 0
    (place.folder / "link").symlink_to(place.cache)
    assert "others than its user may write" in place.build("op.c", code=1, DOVETAIL_CACHE=str(place.folder / "link"))
    place.cache.chmod(0o755)  # to be read by others is no harm
    assert place.build("op.c", DOVETAIL_CACHE=str(place.folder / "link"))


def test_a_folder_inside_one_that_everybody_may_write_to(place):
    (place.folder / "open").mkdir()
    (place.folder / "open").chmod(0o777)
    kept, said = place.private(DOVETAIL_CACHE=str(place.folder / "open/cache"))
    assert f"everybody may write to '{place.folder / 'open'}'" in said and not (place.folder / "open/cache").exists()
    (place.folder / "open").chmod(0o775)
    assert f"a group of users may write to '{place.folder / 'open'}'" in place.private(DOVETAIL_CACHE=str(place.folder / "open/cache"))[1]
    (place.folder / "open").chmod(0o1777)  # as /tmp
    assert place.build("op.c", DOVETAIL_CACHE=str(place.folder / "open/cache")).parent == place.folder / "open/cache"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_inside_another_users(place):
    """Its owner could put another folder in its place."""
    (place.folder / "theirs/mine").mkdir(parents=True)
    os.chown(place.folder / "theirs", 12345, 12345)
    for path in ("theirs/mine", "theirs/mine/new/cache", "link/mine"):
        (place.folder / "link").exists() or (place.folder / "link").symlink_to("theirs")
        kept, said = place.private(DOVETAIL_CACHE=str(place.folder / path))
        assert f"'{place.folder / 'theirs'}' belongs to user 12345" in said
    (place.folder / "way").symlink_to(place.folder)
    os.lchown(place.folder / "way", 12345, 12345)
    assert f"'{place.folder / 'way'}' belongs to user 12345" in place.private(DOVETAIL_CACHE=str(place.folder / "way/cache"))[1]


def test_a_home_that_cannot_be_written(place):
    (place.folder / "home").write_text("")  # a file, so that root cannot either
    kept, said = place.private(DOVETAIL_CACHE="", XDG_CACHE_HOME="", HOME=str(place.folder / "home"))
    assert "is not a folder" in said


def test_a_private_folder_is_the_processs(place):
    """One message, one build, and nothing stays."""
    (place.folder / "open").mkdir()
    (place.folder / "open").chmod(0o777)
    (place.folder / "tmp").mkdir()
    code = """
import os, sys, dovetail, numpy
for i in range(2):
    with dovetail.load("op.c", flags=["-D", f"N{i}"]) as lib:
        print(lib.f(numpy.zeros(1, "f4"))[0])
    with dovetail.load("op.c", flags=["-D", f"N{i}"]) as lib:
        print(os.path.dirname(lib.path))
sys.stdout.flush()  # or the child writes it again
if not os.fork():
    sys.exit()
os.wait()
print(len(os.listdir(os.environ["TMPDIR"])))
"""
    env = place.env(DOVETAIL_CACHE=str(place.folder / "open/cache"), TMPDIR=str(place.folder / "tmp"))
    done = subprocess.run([sys.executable, "-c", code], cwd=place.folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one, folder, two, again, left = done.stdout.splitlines()
    assert [one, two, left] == ["1.0", "1.0", "2"] and folder == again and os.path.basename(folder).startswith("dovetail-private-")
    assert done.stderr.count("builds are not kept") == 1 and place.runs() == 2
    assert [p.name for p in (place.folder / "tmp").iterdir()] == [f"dovetail-{os.geteuid()}"]  # loaded code, for debuggers


def test_a_binary_that_changed_since_it_was_loaded(place, monkeypatch):
    """Never silently the old code."""
    def build(value):
        place.write("add.h", f"#define ADD {value}\n")
        place.write("op.c", (SOURCE + LIBRARY).replace("kept_ops", "changed_ops"))
        subprocess.run([dovetail.command(), "build", "op.c"], cwd=place.folder, env=place.env(), check=True, capture_output=True)
    build(1)
    x, path = numpy.zeros(1, "float32"), place.folder / "op.so"
    old = dovetail.load(path)
    assert dovetail.load(path) is old
    build(2)
    with pytest.raises(dovetail.DovetailError, match=r"op.so: this file has changed since it was loaded: [\s\S]*close\(\) its Library") as error:
        dovetail.load(path)
    assert error.value.status == "EEXIST" and old.f(x) == 1
    build(1)
    assert dovetail.load(path) is old
    build(2)
    old.close()
    with dovetail.load(path) as new:
        assert new.f(x) == 2
    # the same from sources: a header changed
    monkeypatch.setenv("DOVETAIL_CACHE", str(place.cache))
    monkeypatch.chdir(place.folder)
    with dovetail.load("op.c"):
        place.write("add.h", "#define ADD 3\n")
        with pytest.raises(dovetail.DovetailError, match=r"^op.c: this file, or one that it includes, has changed[\s\S]*close\(\) its Library") as error:
            dovetail.load("op.c")
        assert str(error.value).count(str(place.folder / "op.c")) == 2 and str(place.cache) not in str(error.value)
    with dovetail.load("op.c") as new:
        assert new.f(x) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_another_users_folder(place):
    place.cache.mkdir(0o700)
    os.chown(place.cache, 12345, 12345)
    assert f"the folder '{place.cache}' belongs to user 12345" in place.build("op.c", code=1)
    own = place.folder / "own"
    own.mkdir(0o700)
    (place.folder / "link").symlink_to(own)
    os.lchown(place.folder / "link", 12345, 12345)
    assert "belongs to user 12345" in place.build("op.c", code=1, DOVETAIL_CACHE=str(place.folder / "link"))
    assert place.runs() == 0


def test_something_that_is_no_folder(place):
    place.cache.write_text("")
    assert "File exists" in place.build("op.c", code=1) or "not a folder" in place.build("op.c", code=1)


def test_what_nobody_uses_goes(place):
    old = place.build("op.c")
    month = 31 * 24 * 3600
    def age(*paths):
        for path in paths:
            os.utime(path, (path.stat().st_mtime - month,) * 2)
    key = place.cache / old.name.partition("-")[0]
    age(old.with_suffix(".made"), key.with_suffix(".deps"), key.with_suffix(".lock"))
    assert place.build("op.c") == old  # used: it counts as new again
    place.build("-D", "A", "op.c")  # the folder was looked at less than a day ago
    age(place.cache / "swept")
    place.build("-D", "B", "op.c")
    assert old.exists()
    age(place.cache / "swept", old.with_suffix(".made"), key.with_suffix(".deps"), key.with_suffix(".lock"))
    place.build("-D", "C", "op.c")
    assert not [p for p in place.cache.iterdir() if p.name.startswith(key.name) and p.suffix != ".lock"]
    assert len([p for p in place.cache.iterdir() if p.suffix == ".so"]) == 3
    place.runs()
    assert place.build("op.c") == old and place.runs() == 1


def test_json(place):
    import json
    def run():
        done = subprocess.run([dovetail.command(), "build", "--cached", "--json", "op.c"], cwd=place.folder, env=place.env(), capture_output=True, check=True)
        return json.loads(done.stdout)
    first, second = run(), run()
    assert first["out"] == second["out"] and first["bytes"] == os.path.getsize(first["out"])
    assert first["operators"][0]["name"] == "kept_ops::f" and second == {"ok": True, "out": first["out"]}


def test_the_debug_ladder(place):
    """Each level prints what the one below prints, and more; that it builds only where it does."""
    code = "import dovetail; dovetail.load('op.c', attach=False)"
    printed = {level: subprocess.run([sys.executable, "-c", code], cwd=place.folder, env=place.env(DOVETAIL_DEBUG=level), capture_output=True,
                                     text=True, check=True).stderr for level in ("1", "", "2")}
    loaded = printed["1"].splitlines()[1]
    assert printed[""] == "" and printed["1"].splitlines() == ["dovetail: building op.c", loaded]
    assert loaded.startswith("dovetail: loaded ") and loaded.endswith(": kept_ops, with f")
    code += "; import numpy; x = numpy.ones((2, 3), 'float32'); dovetail.find('kept_ops::f')(x)"
    called = subprocess.run([sys.executable, "-c", code], cwd=place.folder, env=place.env(DOVETAIL_DEBUG="4"), capture_output=True, text=True, check=True)
    assert "dovetail: call kept_ops::f(x=f32[2, 3]): row f\n" in called.stderr
    assert printed["2"].startswith(loaded + "\n") and "dovetail:     CPU: f (kept_ops) [kernel]\n" in printed["2"]


def test_a_folder(tmp_path, monkeypatch):
    """A library of several files, by the name of its folder."""
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "ops"
    folder.mkdir()
    (folder / "op.c").write_text(SOURCE.replace("ADD;", "ADD + more();").replace("kept_ops", "folder_ops") + LIBRARY.replace("kept_ops", "folder_ops"))
    (folder / "add.h").write_text("#include <dovetail_op.h>\n#define ADD 1\nDV__HIDDEN float more(void);\n")
    (folder / "more.c").write_text('#include "add.h"\nfloat more(void) { return 4; }\n')
    with dovetail.load(folder) as ops:
        assert ops.f(numpy.zeros(2, "f")).tolist() == [5, 5]
        assert dovetail.load(str(folder)) is ops


@pytest.mark.parametrize("sources", [["nofile.c"], ["nofile.so"], ["there.c", "nofile.cu"]])
def test_a_file_that_is_missing(tmp_path, monkeypatch, sources):
    """A source is missed as a binary is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.c").write_text(SOURCE)
    with pytest.raises(OSError, match="nofile.*: cannot open: No such file or directory") as caught:
        dovetail.load(*sources)
    assert isinstance(caught.value, dovetail.DovetailError)
