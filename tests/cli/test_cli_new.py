"""dovetail new: a project that works, a name that is checked, nothing overwritten."""
import os
import shutil
import subprocess
import sys

import pytest
from cli_helpers import BUILD, ROOT, Dovetail, symbols

pytestmark = pytest.mark.quick


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_makes_a_project_that_builds(dovetail):
    r = dovetail("new", "vision")
    files = tree(dovetail.folder / "vision")
    assert {"vision.c", "main.c", "README.md", "pyproject.toml", ".gitignore", "vision/__init__.py", "tests/test_vision.py"} <= set(files)
    assert all(name in r.out for name in files)
    assert not any(b"my_ops" in data for data in files.values())
    p = Dovetail(dovetail.folder / "vision")
    p("build")
    assert symbols(p.folder / "vision.so") == ["dovetail_library_1"]
    assert (p.folder / "vision.so").stat().st_size <= 72 * 1024  # two operators with rows for four instruction sets


def test_the_c_program_runs_without_python(project):
    project("build")
    flags = subprocess.run("dovetail --cflags --libs", shell=True, capture_output=True, text=True, env=project.env, check=True).stdout.split()
    for compiler in filter(shutil.which, ("gcc", "clang")):
        subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-std=c11", "main.c", *flags, "-o", "main"], cwd=project.folder, check=True)
        out = subprocess.run(["./main"], cwd=project.folder, check=True, capture_output=True, text=True).stdout
        assert "swiglu(1, 4) = 2.92423" in out
    # It finds a wrong result: the same program with a wrong operator fails.
    text = (project.folder / "my_ops.c").read_text()
    project.write("my_ops.c", text.replace("* up[i];", "+ up[i];", 1))
    project("build")
    assert subprocess.run(["./main"], cwd=project.folder, capture_output=True).returncode == 1


@pytest.mark.slow
def test_the_project_s_own_tests(project):
    """They pass, on a module as `pip install .` lays it out, and they find a wrong operator."""
    env = project.env | {"PYTHONPATH": f"{project.folder}:{BUILD / 'python'}", "DOVETAIL_BUILD": str(BUILD)}
    run = lambda: subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], cwd=project.folder, env=env, capture_output=True, text=True)
    project("build", "-o", "my_ops/my_ops.so")
    r = run()
    assert r.returncode == 0 and "8 passed" in r.stdout, r.stdout + r.stderr
    text = (project.folder / "my_ops.c").read_text()
    project.write("my_ops.c", text.replace("(1 - s));", "(1 + s));", 1))
    project("build", "-o", "my_ops/my_ops.so")
    r = run()
    assert r.returncode == 1 and "test_gradient" in r.stdout and "1 failed, 7 passed" in r.stdout


def test_the_module_in_the_project_s_folder(project):
    """What was built there, not a binary that Python takes for a module of its own; and what pip installs keeps its binary inside."""
    env = project.env | {"PYTHONPATH": str(BUILD / "python")}
    def use():
        return subprocess.run([sys.executable, "-c", "import my_ops, numpy; print(my_ops.swiglu(numpy.ones(1, 'f4'), numpy.ones(1, 'f4')), my_ops.__all__)"],
                              cwd=project.folder, env=env, capture_output=True, text=True)
    r = use()
    assert r.returncode == 1 and "in a project, `dovetail build` makes" in r.stderr
    project("build")
    r = use()
    assert r.stdout == "[0.7310586] ['swiglu', 'swiglu_grad']\n", r.stderr
    installed = project.folder / "site/my_ops"
    installed.mkdir(parents=True)
    for name in ("my_ops.so", "my_ops/__init__.py"):
        (installed / os.path.basename(name)).write_bytes((project.folder / name).read_bytes())
    (project.folder / "my_ops.so").unlink()
    env["PYTHONPATH"] += f":{project.folder / 'site'}"
    r = subprocess.run([sys.executable, "-c", "import my_ops; print(my_ops.__all__)"], cwd=project.folder / "tests", env=env, capture_output=True, text=True)
    assert r.stdout == "['swiglu', 'swiglu_grad']\n", r.stderr


def test_readme_example_is_the_template(source):
    """README.md, docs and the template show one operator: the same kernel and declaration, word for word."""
    readme = (ROOT / "README.md").read_text()
    body = lambda text: text.split("static int swiglu_f32")[1].split("\n}\n")[0]
    assert body(readme) == body(source)


BAD = ["", "9lives", "my-ops", "a b", "int", "while", "lambda", "None", "_ops", "torch", "aten", "dovetail", "json", "main", "ops.c", "naïve", "x" * 61, "..", "/", "a\nb", "-x"]


@pytest.mark.parametrize("name", BAD)
def test_bad_names(dovetail, name):
    r = dovetail("new", "--", name, code=2)
    assert "name" in r.err or "keyword" in r.err
    assert not tree(dovetail.folder) and not list(dovetail.folder.iterdir())


def test_suggests_a_name(dovetail):
    assert "such as 'my_ops'" in dovetail("new", "my-ops", code=2).err
    assert "such as 'ops_9lives'" in dovetail("new", "9lives", code=2).err
    assert "such as 'int_ops'" in dovetail("new", "int", code=2).err


def test_names_that_c_could_confuse(dovetail):
    """A library called as its operator, or as a C function, builds."""
    for name in ("swiglu", "sin", "log", "div"):
        dovetail("new", name)
        Dovetail(dovetail.folder / name)("build")


def test_never_overwrites(dovetail):
    dovetail("new", "ops")
    mine = dovetail.folder / "ops" / "ops.c"
    mine.write_text("precious")
    before = tree(dovetail.folder)
    r = dovetail("new", "ops", code=1)
    assert "exists already" in r.err and tree(dovetail.folder) == before
    (dovetail.folder / "file").write_text("")
    assert "exists already" in dovetail("new", "file", code=1).err
    os.symlink("/nonexistent", dovetail.folder / "link")
    assert "exists already" in dovetail("new", "link", code=1).err


def test_folder_with_a_path(dovetail):
    (dovetail.folder / "a b").mkdir()
    dovetail("new", "a b/ops/")
    assert (dovetail.folder / "a b" / "ops" / "ops.c").exists()
    assert "cannot create folder" in dovetail("new", "no/such/ops", code=1).err


def test_failure_in_the_middle_leaves_nothing(dovetail):
    """A limit on file size makes a write fail as a full disk would."""
    r = subprocess.run(["bash", "-c", "trap '' XFSZ; ulimit -f 1; exec dovetail new ops"], cwd=dovetail.folder, env=dovetail.env, capture_output=True, text=True)
    assert r.returncode == 1 and "cannot write" in r.stderr
    assert not list(dovetail.folder.iterdir())


@pytest.mark.parametrize("name", ["NULL", "EOF", "true", "errno", "pty", "builtins"])
def test_names_that_exist(dovetail, name):
    assert "choose another" in dovetail("new", name, code=2).err and not (dovetail.folder / name).exists()


def test_modules_of_python(dovetail):
    """None of the standard library's is accepted."""
    names = [name for name in sorted(sys.stdlib_module_names) if not name.startswith("_")]
    accepted = [name for name in names if dovetail("new", name, code=None).code != 2]
    assert len(names) > 100 and not accepted
