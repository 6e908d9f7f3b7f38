"""The command as a user runs it: the built binary in a fresh folder."""
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")).resolve()
COMMAND = BUILD / "bin" / "dovetail"
UNSET = {"CC", "NO_COLOR", "DOVETAIL_HOME", "DOVETAIL_OPS", "DOVETAIL_POLICY"}


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


class Dovetail:
    """Calls the command in one folder."""

    def __init__(self, folder):
        self.folder, self.command = folder, COMMAND
        self.env = {k: v for k, v in os.environ.items() if k not in UNSET} | {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}

    def popen(self, *args, env=None, cwd=None, **kwargs):
        return subprocess.Popen([self.command, *args], cwd=cwd or self.folder, env=self.env | (env or {}), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)

    def __call__(self, *args, code=0, **kwargs):
        p = self.popen(*args, **kwargs)
        try:
            out, err = p.communicate(timeout=120)
        finally:
            p.kill()  # if it did not end
        r = Result(p.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        assert code is None or r.code == code, f"exit code {r.code}, expected {code}\n{r.out}\n{r.err}"
        return r

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def leftovers(self):
        return [p.name for p in self.folder.rglob(".dovetail-build-*")]


def symbols(path):
    out = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in out.splitlines()]
