"""The checker ends when it is told to, whatever the kernel does, and says what a kernel does to its process."""
import json
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import BUILD

COMMAND = BUILD / "bin" / "dovetail"
SOURCE = """#define _DEFAULT_SOURCE
#include <dovetail_op.h>
#include <signal.h>
#include <unistd.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->out);
    BODY
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(interrupted, &dv_op_f);
"""


def build(folder, body):
    (folder / "f.c").write_text(SOURCE.replace("BODY", body))
    subprocess.run([COMMAND, "build", folder / "f.c", "-o", folder / "f.so"], check=True, capture_output=True)
    return folder / "f.so"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(tmp_path, number):
    p = subprocess.Popen([COMMAND, "check", build(tmp_path, "usleep(300000);")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))  # also where the tests run in the background
    time.sleep(1)
    assert p.poll() is None
    p.send_signal(number)
    out, err = p.communicate(timeout=30)
    assert p.returncode == -number and err == "dovetail: error: interrupted\n"
    assert "interrupted::f" in out and ": interrupted\n" in out  # the table so far


def test_what_is_written_of_an_interrupted_check(tmp_path):
    (tmp_path / "out.xml").write_text("of an earlier run")
    p = subprocess.Popen([COMMAND, "check", "--json", "--junit", tmp_path / "out.xml", build(tmp_path, "usleep(300000);")], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    time.sleep(1)
    p.send_signal(signal.SIGTERM)
    report = json.loads(p.communicate(timeout=30)[0])
    assert p.returncode == -signal.SIGTERM and report["interrupted"] and not report["ok"]
    assert any(r["reason"] == "interrupted" for r in report["results"] if r["result"] == "not checked")
    assert "skipped message=\"interrupted\"" in (tmp_path / "out.xml").read_text()


@pytest.mark.parametrize("only", ["runs", "memory", "values"])
@pytest.mark.parametrize("name,says", [("STOP", "stops its process and does not end"), ("TERM", "ended the process: signal 15 (Terminated)"),
                                       ("INT", "ended the process: signal 2 (Interrupt)"), ("HUP", "ended the process: signal 1 (Hangup)"),
                                       ("PROF", "ended the process: signal 27 (Profiling timer expired)")])
def test_a_kernel_that_stops_or_ends_its_process(tmp_path, name, says, only):
    """Whichever property is asked reports it."""
    done = subprocess.run([COMMAND, "check", "--json", "--only", only, build(tmp_path, f"if (n == 3) raise(SIG{name});")], capture_output=True, text=True, timeout=100)
    failed = [r for r in json.loads(done.stdout)["results"] if r["result"] == "fail"]
    assert done.returncode == 1 and [r["message"] for r in failed] == ["the kernel " + says]


@pytest.mark.parametrize("only", ["memory", "values"])
@pytest.mark.parametrize("body,says", [("for (volatile int on = 1; n == 3 && on;) {}", "has not ended after 0.4 s of processor time (--case-ms MS gives it more)"),
                                       ("while (n == 3) pause();", "waits and does not end")])
def test_a_kernel_that_does_not_end_where_runs_is_not_asked(tmp_path, body, says, only):
    done = subprocess.run([COMMAND, "check", "--json", "--only", only, "--case-ms", "100", build(tmp_path, body)], capture_output=True, text=True, timeout=100)
    failed = [r for r in json.loads(done.stdout)["results"] if r["result"] == "fail"]
    assert done.returncode == 1 and [r["message"] for r in failed] == ["the kernel " + says]


def test_signals_that_the_caller_blocks(tmp_path):
    """A kernel that does not end is ended, though whoever starts the command blocks every signal."""
    done = subprocess.run([COMMAND, "check", "--json", "--only", "runs", "--case-ms", "100", build(tmp_path, "for (volatile int on = 1; n && on;) {}")],
                          capture_output=True, text=True, timeout=100, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()))
    failed = [r for r in json.loads(done.stdout)["results"] if r["result"] == "fail"]
    assert len(failed) == 1 and failed[0]["message"].startswith("the kernel has not ended"), failed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("where", ["f.c", "f.so"])
def test_signals_in_one_process(tmp_path, number, where):
    """With --in-process a signal has the effect that it has without a checker: a debugger stops at it, and timeout ends an endless loop."""
    build(tmp_path, "for (volatile int on = 1; n && on;) {}")
    p = subprocess.Popen([COMMAND, "check", tmp_path / where, "--in-process", "--case", "runs; kernel=f; interrupted::f(x=f32[1])"], stdout=subprocess.PIPE, text=True,
                         preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    try:
        assert p.stdout.readline().startswith("gdb --args ")  # the last that it prints before the call
        status = dict(line.split(":\t") for line in pathlib.Path(f"/proc/{p.pid}/status").read_text().splitlines())
        assert [int(status[name], 16) for name in ("SigBlk", "SigCgt")] == [0, 0], status
        p.send_signal(number)
        assert p.wait(timeout=20) == -number
    finally:
        p.kill()


def next_report(p):
    """The next document that it prints."""
    text = ""
    while True:
        text += p.stdout.readline()
        if text.endswith("}\n"):
            return json.loads(text)


def test_watch(tmp_path):
    """It checks again when a source or a header beside it changes, and ends when it is told to."""
    folder = tmp_path / "of my own"
    folder.mkdir()
    (folder / "by.h").write_text("#define BY 1\n")
    (folder / "f.c").write_text('#include "by.h"\n' + SOURCE.replace("BODY", "if (n == BY - 1) raise(SIGABRT);"))
    p = subprocess.Popen([COMMAND, "check", "--watch", "--json", "--only", "binding,runs", folder / "f.c"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert not next_report(p)["ok"]
    (folder / "by.h").write_text("#define BY -5\n")
    assert next_report(p)["ok"]
    (folder / "f.c").write_text("int x = ;\n")
    assert next_report(p)["failed"] == 1
    p.send_signal(signal.SIGINT)
    rest, err = p.communicate(timeout=30)
    assert p.returncode == -signal.SIGINT and not rest and err.count("waits for a change") >= 2 and "interrupted" not in err


def test_what_cannot_be_watched():
    done = subprocess.run([COMMAND, "check", "--watch", "base"], capture_output=True, text=True)
    assert done.returncode == 2 and "expected files and folders, found 'base'" in done.stderr
