"""The check of a hostile kernel ends by itself with a report, ends at SIGTERM with the table so far, and leaves no process and no file."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import uuid

import pytest
from conftest import COMMAND

SOURCE = r"""
#define _GNU_SOURCE
#include <dovetail_op.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static void spin(void) { for (;;) __asm__ volatile(""); }
static void *spin_in_thread(void *p) { sigset_t s; sigfillset(&s); pthread_sigmask(SIG_BLOCK, &s, NULL); spin(); return p; }
static void *wait_in_thread(void *p) { for (;;) pause(); return p; }
static void block_all(void) { sigset_t s; sigfillset(&s); sigprocmask(SIG_BLOCK, &s, NULL); }
static void ignore(int number) { (void)number; }
static jmp_buf back;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void take_lock(void) { pthread_mutex_lock(&lock); }
static void free_lock(void) { pthread_mutex_unlock(&lock); }
static void exit_now(void) { _exit(0); }
static void wait_for_ever(void) { for (;;) pause(); }
static void jump(int number) { (void)number; siglongjmp(back, 1); }
static void refuse_system_call(int number, unsigned action)
{
    struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1), BPF_STMT(BPF_RET | BPF_K, action), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
static void scribble(void) /* on all memory that is shared with other processes */
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from, to;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx rw-s", &from, &to) == 2 && strstr(line, "rw-s") && to - from < 1ul << 30)
            memset((void *)from, 0xA5, to - from);
    fclose(maps);
}
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx, (void)spin_in_thread, (void)wait_in_thread, (void)block_all, (void)ignore, (void)jump, (void)refuse_system_call, (void)scribble, (void)take_lock, (void)free_lock, (void)exit_now, (void)wait_for_ever;
    const float *x = a->x->data;
    float *out = a->out->data;
    { CALL }
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = 2 * x[i];
    return DV_OK;
}
__attribute__((constructor)) static void at_load(void) { LOAD }
__attribute__((destructor)) static void at_end(void) { END }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T", .native = "add(x, x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(hostile, &dv_op_f);
"""

# What a kernel does in each call
CALLS = {
    "forks": "if (!fork()) { sleep(100); _exit(0); }",
    "forks and returns twice": "fork();",
    "vfork": "vfork();",
    "vfork that waits": "if (!vfork()) { sleep(100); _exit(0); }",
    "many sessions": "for (int i = 0; i < 40; i++) if (!fork()) { setsid(); sleep(100); _exit(0); }",
    "daemon": "if (!fork()) { setsid(); if (!fork()) { block_all(); sleep(100); } _exit(0); } else wait(NULL);",
    "child without death signal": "prctl(PR_SET_PDEATHSIG, 0); if (!fork()) for (;;) pause();",
    "tree of processes": "if (!fork()) { for (int i = 0; i < 9; i++) fork(); sleep(100); _exit(0); }",
    "runs another program": 'execlp("sleep", "sleep", "100", NULL);',
    "runs another program that ends": 'execlp("true", "true", NULL);',
    "closes descriptors, waits": "for (int i = 3; i < 1024; i++) close(i); for (;;) pause();",
    "closes all descriptors": "for (int i = 0; i < 1024; i++) close(i);",
    "closes the standard ones": "close(0); close(1); close(2);",
    "garbage in descriptors": 'for (int i = 0; i < 64; i++) { ftruncate(i, 0); lseek(i, 0, 0); write(i, "GARBAGE", 7); }',
    "shuts descriptors down": 'for (int i = 3; i < 64; i++) { shutdown(i, SHUT_RDWR); dup2(open("/dev/zero", O_RDWR), i); }',
    "garbage in shared memory": "scribble();",
    "garbage in shared memory, crash": "scribble(); raise(SIGKILL);",
    "no more descriptors": 'while (open("/dev/null", O_RDONLY) >= 0) {}',
    "writes without end": 'char b[4096] = "x"; for (;;) write(1, b, sizeof b);',
    "no profiling timer": "struct itimerval t = { { 0, 0 }, { 0, 0 } }; setitimer(ITIMER_PROF, &t, NULL); spin();",
    "blocks signals, loops": "block_all(); spin();",
    "blocks signals, sleeps a little": "block_all(); for (;;) sched_yield(), usleep(1000);",
    "blocks signals": "block_all();",
    "ignores SIGPROF": "signal(SIGPROF, SIG_IGN); spin();",
    "handles every signal": "for (int i = 1; i < NSIG; i++) signal(i, ignore); spin();",
    "jumps out of a handler": "for (int i = 1; i < NSIG; i++) signal(i, jump); sigsetjmp(back, 1); spin();",
    "ignores its crash": "signal(SIGSEGV, SIG_IGN); signal(SIGTERM, SIG_IGN); *(volatile int *)0 = 1;",
    "sleeps a little": "for (;;) usleep(2000);",
    "alarm": "alarm(1);",
    "kills its parent": "kill(getppid(), SIGKILL);",
    "stops its parent": "kill(getppid(), SIGSTOP);",
    "terminates its parent": "kill(getppid(), SIGTERM);",
    "interrupts its parent": "kill(getppid(), SIGINT);",
    "kills the checker": 'int pid = 0; char s[64]; snprintf(s, sizeof s, "/proc/%d/stat", getppid()); FILE *stat = fopen(s, "r"); if (stat && fscanf(stat, "%*d %*s %*c %d", &pid) == 1 && pid > 1) kill(pid, SIGKILL); if (stat) fclose(stat);',
    "kills its group": "kill(0, SIGKILL);",
    "stops its group": "kill(0, SIGSTOP);",
    "stops itself": "raise(SIGSTOP);",
    "is traced": "ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP);",
    "traces its parent": "if (!ptrace(PTRACE_SEIZE, getppid(), 0, 0)) { ptrace(PTRACE_INTERRUPT, getppid(), 0, 0); for (;;) pause(); }",
    "a child stops its parent again and again": "pid_t p = getppid(); if (!fork()) for (;;) { kill(p, SIGSTOP); usleep(100); }",
    "limits of 0": "struct rlimit r = { 0, 0 }; setrlimit(RLIMIT_AS, &r); setrlimit(RLIMIT_NOFILE, &r); setrlimit(RLIMIT_CPU, &(struct rlimit){ 1, 1 }); setrlimit(RLIMIT_STACK, &r);",
    "limits raised": "for (int i = 0; i < RLIM_NLIMITS; i++) setrlimit(i, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });",
    "thread that spins": "pthread_t t; pthread_create(&t, NULL, spin_in_thread, NULL);",
    "thread that waits": "pthread_t t; pthread_create(&t, NULL, wait_in_thread, NULL);",
    "ends its thread": "pthread_exit(NULL);",
    "ends its thread, another waits": "pthread_t t; pthread_create(&t, NULL, wait_in_thread, NULL); pthread_exit(NULL);",
    "much memory": "for (size_t i = 0; i < 12; i++) { char *p = malloc(50 << 20); if (p) memset(p, 1, 50 << 20); }",
    "unmaps its argument": "munmap((void *)((uintptr_t)x & ~4095ul), 4096);",
    "unmaps its stack": "munmap((void *)((uintptr_t)__builtin_frame_address(0) & ~4095ul), 4096);",
    "much stack": "stack_t s = { .ss_flags = SS_DISABLE }; sigaltstack(&s, NULL); volatile char big[1 << 23]; for (size_t i = 0; i < sizeof big; i += 512) big[i] = 1;",
    "removes its folder": 'char b[4096]; if (getcwd(b, sizeof b) && strstr(b, "to-be-removed")) rmdir(b);',
    "another folder": 'chdir("/"); umask(0777);',
    "personality": "personality(ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC); prctl(PR_SET_DUMPABLE, 0); prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);",
    "gives up new privileges": "prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);",
    "no exit": "refuse_system_call(SYS_exit_group, SECCOMP_RET_ERRNO | EPERM);",
    "no system call to wait with": "refuse_system_call(SYS_wait4, SECCOMP_RET_KILL_PROCESS); refuse_system_call(SYS_close, SECCOMP_RET_KILL_PROCESS);",
    "no write": "refuse_system_call(SYS_write, SECCOMP_RET_KILL_PROCESS);",
    "sleeps for three seconds": "sleep(3);",
    "exit": "exit(0);", "_exit": "_exit(0);", "quick_exit": "quick_exit(0);", "abort": "abort();",
    "exit with a handler that waits": "atexit((void (*)(void))pause); exit(0);",
}
# What its library does when it is loaded, and when the process ends
LOADS = {
    "waits at load": "for (;;) pause();",
    "loops at load": "block_all(); spin();",
    "exits at load": "exit(0);",
    "crashes at load": "raise(SIGSEGV);",
    "kills its parent at load": "kill(getppid(), SIGKILL);",
    "stops at load": "raise(SIGSTOP);",
    "forks at load": "if (!fork()) { setsid(); sleep(100); _exit(0); }",
    "blocks signals at load": "block_all(); signal(SIGTERM, SIG_IGN); alarm(2);",
    "closes descriptors at load": "for (int i = 0; i < 64; i++) close(i);",
    "waits before a fork": "pthread_atfork((void (*)(void))pause, NULL, NULL);",
    "loops before a fork": "pthread_atfork(spin, NULL, NULL);",
    "waits after a fork": "pthread_atfork(NULL, wait_for_ever, NULL);",
    "waits in a new process": "pthread_atfork(NULL, NULL, wait_for_ever);",
    "loops in a new process": "pthread_atfork(NULL, NULL, spin);",
    "ends a new process": "pthread_atfork(NULL, NULL, exit_now);",
    "takes a lock at a fork and keeps it": "pthread_atfork(take_lock, NULL, NULL);",
    "takes a lock at a fork and frees it": "pthread_atfork(take_lock, free_lock, free_lock);",
}
ENDS = {"waits at its end": "for (;;) pause();", "exits at its end": "_exit(0);", "crashes at its end": "abort();"}
ALL = {**{k: ("CALL", v) for k, v in CALLS.items()}, **{k: ("LOAD", v) for k, v in LOADS.items()}, **{k: ("END", v) for k, v in ENDS.items()}}
HEALTHY = {"kills the checker", "much memory", "blocks signals at load", "another folder", "personality", "removes its folder", "no write", "no system call to wait with", "thread that waits", "takes a lock at a fork and frees it", "sleeps for three seconds", *ENDS}  # may pass, some of them because of the processor's speed
if os.geteuid():
    HEALTHY.add("gives up new privileges")  # a checker without privileges has given them up itself
QUICK = {"forks", "kills the checker", "daemon", "closes descriptors, waits", "blocks signals, loops", "garbage in shared memory", "kills its parent", "stops its parent", "is traced", "exits at load", "waits before a fork", "ends a new process", "takes a lock at a fork and frees it"}


def cases(names):
    return [pytest.param(n, id=n.replace(" ", "-"), marks=[] if n in QUICK else pytest.mark.slow) for n in names]


def kill_all(processes):
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.kill(pid, signal.SIGKILL)


class Run:
    """A check in its own session, whose processes are found by a variable of their environment."""

    def __init__(self, folder, name, *words, container=(), **options):
        self.mark = f"DOVETAIL_HOSTILE={uuid.uuid4()}"
        place, body = (ALL | ({"kills every process": ("CALL", "kill(-1, SIGKILL);")} if container else {}))[name]
        bodies = {"CALL": "", "LOAD": "", "END": "", place: body}
        source = SOURCE
        for key, text in bodies.items():
            source = source.replace("{ %s }" % key, "{ %s }" % text)
        (folder / "f.c").write_text(source)
        flags = subprocess.run([COMMAND, "--cflags"], check=True, capture_output=True, text=True).stdout.split()
        # not by dovetail build, which loads it
        subprocess.run(["cc", "-std=gnu11", "-w", "-O1", "-shared", "-fPIC", "-pthread", *flags, folder / "f.c", "-o", folder / "f.so"], check=True)
        self.temporary, where = folder / "tmp", folder / "to-be-removed"
        self.temporary.mkdir()
        where.mkdir()
        key, value = self.mark.split("=")
        self.began = time.monotonic()
        self.process = subprocess.Popen([*container, COMMAND, "check", "--json", *words, folder / "f.so"], cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True, env=os.environ | {key: value, "TMPDIR": str(self.temporary)}, **options)

    def processes(self):
        """Returns the ids of the live processes of the check, without the command."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and int(entry.name) != self.process.pid and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def end(self, seconds):
        """Returns the exit status and the report. Fails if a process or a file is left."""
        try:
            out, err = self.process.communicate(timeout=seconds)
            left = self.processes()
        finally:
            self.process.kill()
            kill_all(self.processes())
        files = [p for p in self.temporary.rglob("*") if not p.is_dir() and not p.parent.name.startswith("dovetail-")]  # but copies of binaries, which dv_load() keeps for a day
        assert not left and not files, (left, files, err)
        return self.process.returncode, json.loads(out), err


@pytest.mark.parametrize("name", cases(ALL))
def test_it_ends_with_a_report(tmp_path, name):
    limit = ["--case-ms", "300"] if "spin()" in ALL[name][1] else []  # it uses all the time that a case may take, several times
    status, report, err = Run(tmp_path, name, *limit).end(100)
    failed = [r for r in report["results"] if r["result"] == "fail"]
    assert status == (1 if failed else 0) and (failed or name in HEALTHY), (report["results"], err)
    if "fork" in name and LOADS.get(name, "").startswith("pthread_atfork"):
        assert not failed or "pthread_atfork" in failed[0]["message"]


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("verb", ["info", "list"])
def test_commands_end_without_code_of_the_library(tmp_path, name, verb):
    Run(tmp_path, name, "--op", "none").process.communicate(timeout=100)
    done = subprocess.run([COMMAND, verb, tmp_path / "f.so"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and "hostile::f" in done.stdout, done.stderr


def test_what_kills_every_process_needs_a_container(tmp_path):
    """The line of docs/check.md. What this kernel does is never tried without it."""
    container = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*container, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no user and process namespaces")
    status, report, err = Run(tmp_path, "kills every process", container=container).end(100)
    assert status == 1 and [r["message"] for r in report["results"] if r["result"] == "fail"] == ["the kernel kills the parent of its process"], err


@pytest.mark.parametrize("name", cases(ALL))
def test_a_signal_ends_it(tmp_path, name):
    run = Run(tmp_path, name)
    time.sleep(1)
    run.process.terminate()
    sent = time.monotonic()
    status, report, err = run.end(20)
    assert time.monotonic() - sent < 10  # 1 s on a quiet machine
    assert status in (0, 1, -signal.SIGTERM) and report["interrupted"] == err.endswith("interrupted\n")
    assert status == -signal.SIGTERM or not report["interrupted"]


@pytest.mark.parametrize("name", cases(ALL))
def test_kill_leaves_nothing(tmp_path, name):
    """SIGKILL of the command: nothing outlives it, unless the kernel killed the supervisor."""
    run = Run(tmp_path, name)
    time.sleep(1)
    run.process.kill()
    run.process.wait()
    end = time.monotonic() + 20  # 1 s on a quiet machine
    while (left := run.processes()) and time.monotonic() < end:
        time.sleep(0.05)
    kill_all(left)
    assert not left or "parent" in name


def test_a_kernel_that_sleeps_is_slow(tmp_path):
    """What ends after three seconds of sleep is not endless. Each case is dropped, and the report says so."""
    status, report, err = Run(tmp_path, "sleeps for three seconds", "--only", "runs,memory").end(100)
    results = [(r["result"], r["reason"]) for r in report["results"]]
    assert status == 1 and all(result == "not checked" and "take longer than 2 s (--case-ms)" in why for result, why in results), results


@pytest.mark.parametrize("killer", ["the system", "the kernel"])
def test_an_end_by_the_oom_killer_is_no_failure(tmp_path, killer):
    """The OOM killer sends SIGKILL, as a kernel may. /proc/vmstat counts what it ends; here a file in its place does."""
    counts = tmp_path / "vmstat"
    counts.write_text("nr_free_pages 1\noom_kill 7\noom_kill_disable 0\n")
    container = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'mount --bind {counts} /proc/vmstat && exec "$@"', "sh"]
    if subprocess.run([*container, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no user and mount namespaces")
    count = f'FILE *o = fopen("{counts}", "r+"); if (o) fputs("nr_free_pages 1\\noom_kill 8", o), fclose(o);'
    says_so = (count if killer == "the system" else "") + " raise(SIGKILL);"
    ALL["is killed"] = ("CALL", says_so)
    status, report, err = Run(tmp_path, "is killed", "--only", "memory", container=container).end(100)
    results = [(r["result"], r.get("reason") or r["message"]) for r in report["results"]]
    if killer == "the system":
        assert results == [("not checked", "the system had too little memory, and its OOM killer ended the process")] and status == 1
    else:
        assert results[0][0] == "fail" and "signal 9 (Killed)" in results[0][1] and status == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("words", [[], ["nohup"], ["setsid", "--wait"], ["sh", "-c", 'exec "$@" &\nwait', "sh"]], ids=["alone", "nohup", "setsid", "background"])
def test_signals_wherever_it_runs(tmp_path, number, words):
    """A signal that the parent ignores stays ignored; any other ends the check."""
    run = Run(tmp_path, "blocks signals, sleeps a little", "--only", "runs,memory", container=words)
    time.sleep(1)
    ignored = (number == signal.SIGHUP and words == ["nohup"]) or (number == signal.SIGINT and "sh" in words)
    for pid in [run.process.pid, *run.processes()]:
        try:
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(COMMAND)) and os.getpgid(pid) in (run.process.pid, pid) and parent_is_outside(run, pid):
                os.kill(pid, number)
        except OSError:
            pass
    sent = time.monotonic()
    status, report, err = run.end(100)
    assert report["interrupted"] is not ignored and (ignored or time.monotonic() - sent < 3)


def parent_is_outside(run, pid):
    """True if a process is the command itself, whose parent is none of the processes of the check."""
    parent = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    try:
        return not pathlib.Path(f"/proc/{parent}/cmdline").read_bytes().startswith(os.fsencode(COMMAND))
    except OSError:
        return True


@pytest.mark.parametrize("how", ["closed", "not read"])
def test_output_that_nobody_reads(tmp_path, how):
    run = Run(tmp_path, "kills its parent")
    if how == "closed":
        run.process.stdout.close()
        run.process.stdout = None
    else:
        time.sleep(2)
        run.process.send_signal(signal.SIGTERM)
    run.process.wait(timeout=100)
    assert not run.processes() and run.process.returncode in (1, -signal.SIGPIPE, -signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["waits at load", "stops at load", "kills its parent at load"])
def test_a_source_whose_library_does_not_load(tmp_path, name):
    """Building a source loads its binary, too."""
    Run(tmp_path, name, "--op", "none").process.communicate(timeout=100)
    done = subprocess.run([COMMAND, "check", "--json", tmp_path / "f.c"], capture_output=True, text=True, timeout=100)
    failed = [r for r in json.loads(done.stdout)["results"] if r["result"] == "fail"]
    assert done.returncode == 1 and [r["property"] for r in failed] == ["binding"]


RIGHT = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f_any(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_any)));
DV_LIBRARY(right, &dv_op_f);
"""


@pytest.mark.parametrize("processes", range(1, 6))
def test_too_few_processes_blame_no_operator(tmp_path, processes):
    """A user's limit of processes, as containers have one, counts for each user but root."""
    if os.getuid():
        pytest.skip("only root can become a user who has no processes")
    source = tmp_path / "right.c"
    source.write_text(RIGHT)
    subprocess.run([COMMAND, "build", source, "-o", tmp_path / "right.so"], check=True, capture_output=True)
    limited = ["setpriv", "--reuid", str(40000 + os.getpid() % 10000), "--clear-groups", "prlimit", f"--nproc={processes}"]
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is closed to other users
        os.chmod(place, 0o755)
        shutil.copy(tmp_path / "right.so", place)
        p = subprocess.run([*limited, COMMAND, "check", "--quick", "--json", "--seed", "1", pathlib.Path(place) / "right.so"], capture_output=True,
                           text=True, timeout=100, cwd="/", env={**os.environ, "HOME": "/", "TMPDIR": "/tmp"})
    report = json.loads(p.stdout)
    if "results" not in report:  # the binary could not be loaded in a process
        assert p.returncode == 1 and "no process could be started" in p.stdout, p
        return
    assert not [r for r in report["results"] if r["result"] == "fail"], report
    started = not any("no process could be started" in r.get("reason", "") for r in report["results"])
    assert report["ok"] == started == (not p.returncode), report
