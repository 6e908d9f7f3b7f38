"""For every folder of tests/: the same start everywhere, processor time for each test, reports made once."""
import fcntl
import gc
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys

import pytest

# A program started in the background, by nohup or by CI may ignore these, and so would everything that a test starts. Here they have
# a handler, which children do not inherit: they begin with the default. A process that ignored a signal keeps ignoring it.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_SETMASK, [])

gc.disable()  # while torch is imported and tests are collected: it would take a fifth of that time


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(100_000)
    gc.enable()


# Inductor asks in each process, by three compiled libraries and as many child processes, whether g++ knows the processor's instructions.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")


@pytest.fixture(scope="session")
def shared(tmp_path_factory, worker_id):
    """shared(name, make) -> a path that make(path) writes once, however many processes of pytest-xdist ask for it."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder if worker_id == "master" else folder.parent) / "shared"

    def ask(name, make):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                part = pathlib.Path(f"{path}.part")
                make(part)
                part.rename(path)
        return path
    return ask


@pytest.fixture(scope="session")
def fork_server():
    with subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("fork_server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as server:
        yield server


@pytest.fixture
def forked(fork_server, tmp_path):
    """forked(code, *arguments) -> a CompletedProcess: the script in a new process that need not import torch itself, only name it. For
    scripts that test what an import does there is subprocess.run()."""
    def run(code, *arguments, folder=os.getcwd()):
        out, err = tmp_path / "forked.out", tmp_path / "forked.err"
        for path in (out, err):
            path.write_text("")
        json.dump({"code": code, "arguments": [*map(str, arguments)], "environment": dict(os.environ), "folder": str(folder), "out": str(out),
                   "err": str(err)}, fork_server.stdin)
        print(file=fork_server.stdin, flush=True)
        status = int(fork_server.stdout.readline())
        return subprocess.CompletedProcess([code, *arguments], status, out.read_text(), err.read_text())
    return run


@pytest.fixture
def parity_in(tmp_path):
    """parity_in(host): every call of tests/parity in that host gives what a C program gives, in a process of its own."""
    def run(host):
        program = [sys.executable, pathlib.Path(__file__).with_name("parity") / "parity.py", "run", tmp_path / "found", host]
        done = subprocess.run(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout[-4000:]
        outcomes = json.loads((tmp_path / "found").read_text())[host]["outcomes"]
        assert not {call: o["fault"] for call, o in outcomes.items() if "fault" in o}
        results, gradients, messages = ([o[check] for o in outcomes.values() if check in o] for check in ("results", "gradient", "message"))
        assert len(results) > 90 and not any(results)  # to the bit
        assert len(gradients) > 40 and len(messages) > 70
    return run


# ---- Seconds of processor time, of the test and of the processes that it started: on a shared machine these are what can be compared ----

def pytest_addoption(parser):
    parser.addoption("--cpu", type=int, default=5, metavar="N", help="name the N tests that took the most processor time")


def used():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(r.ru_utime + r.ru_stime for r in both)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.began = used()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "teardown":
        report.cpu = used() - item.began
    return report


def pytest_terminal_summary(terminalreporter, config):
    tests = [(r.cpu, r.nodeid) for reports in terminalreporter.stats.values() for r in reports if hasattr(r, "cpu")]
    if tests and config.option.cpu:
        terminalreporter.write_line(f"{sum(cpu for cpu, _ in tests):.0f} s of processor time in tests; most:")
        for cpu, name in sorted(tests, reverse=True)[:config.option.cpu]:
            terminalreporter.write_line(f"{cpu:7.1f} s  {name}")
