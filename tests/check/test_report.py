"""What the command prints and writes, besides the table."""
import fcntl
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import termios
import xml.etree.ElementTree

import platform

import pytest
from conftest import COMMAND

FAULTY = pathlib.Path(__file__).resolve().parent.parent / "faulty"


def test_junit(check, tmp_path):
    report = check(FAULTY / "divides_by_zero" / "fault.c", "--junit", tmp_path / "out.xml")
    suites = xml.etree.ElementTree.parse(tmp_path / "out.xml").getroot()
    assert [s.get("name") for s in suites] == report["operators"]
    cases = suites[0].findall("testcase")
    assert len(cases) == len(report["results"])
    for case, result in zip(cases, report["results"]):
        assert case.get("name") == result["property"] + (f"[{result['kernel']}]" if result["kernel"] else "")
        assert (case.find("failure") is not None) == (result["result"] == "fail")
        assert (case.find("skipped") is not None) == (result["result"] == "not checked")
        assert (case.get("file"), case.get("line")) == (result["file"], str(result["line"]))
    assert f"declared in {report['results'][0]['file']}:" in report["table"]
    assert "SIGFPE" in suites[0].find("testcase/failure").get("message")


def test_only_and_seed(check):
    source = FAULTY / "tail_past_end" / "fault.c"
    assert {r["property"] for r in check(source, "--only", "memory,fake")["results"]} == {"memory", "fake"}
    assert check(source, "--only", "binding")["ok"]
    one, again = (check(source, "--only", "memory", "--seed", 7)["results"][0] for _ in range(2))
    assert (one["case"], one["message"]) == (again["case"], again["message"])


def test_without_a_folder_for_temporary_files(check, monkeypatch):
    """What a build and a load do then: /tmp."""
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    assert check(FAULTY / "tail_past_end" / "fault.c", "--only", "binding")["ok"]


NO_SUM = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f_any(dv_context *ctx, const struct f *a)
{
    int64_t sum = 12345678901;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        sum += ((const int32_t *)a->x->data)[i] / 16;
    return (void)ctx, *(int64_t *)a->out->data = sum, DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:i32 -> out[]:i64; sum(n)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i32", f_any)));
DV_LIBRARY(no_sum, &dv_op_f);
"""


def test_numbers_have_all_digits(check, tmp_path):
    (tmp_path / "f.c").write_text(NO_SUM)
    found, = check(tmp_path / "f.c", "--only", "parallel")["results"]
    assert found["result"] == "fail" and len(re.findall(r"\b[0-9]{11}\b", found["message"])) == 3, found


TWICE_WRONG = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f_one(dv_context *ctx, const struct f *a) { return (void)ctx, ((float *)a->out->data)[dv_numel(a->x)] = 1, DV_OK; }
static int f_two(dv_context *ctx, const struct f *a) { return f_one(ctx, a); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_one), DV_KERNEL(struct f, "cpu", "f32", f_two)));
DV_LIBRARY(twice, &dv_op_f);
"""


def test_rows_that_fail_alike_are_printed_once(check, tmp_path):
    (tmp_path / "f.c").write_text(TWICE_WRONG)
    report = check(tmp_path / "f.c", "--only", "memory")
    failed = [r for r in report["results"] if r["result"] == "fail"]
    assert {r["kernel"] for r in failed} == {"f_one", "f_two"} and all(r["message"] and r["case"] for r in failed)
    assert report["table"].count("FAIL memory") == 1
    assert "\n     other kernels that fail in this way: f_two\n" in report["table"]


IGNORED = """
#include <dovetail_op.h>
struct f { const dv_tensor *x, *prefer, *more; dv_tensor *out; };
#define KERNEL(T) \\
    static int f_##T(dv_context *ctx, const struct f *a) \\
    { \\
        (void)ctx; \\
        for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) \\
            ((int64_t *)a->out->data)[i] = ((const T *)a->x->data)[i] > 0; \\
        return DV_OK; \\
    }
KERNEL(float)
KERNEL(double)
KERNEL(int32_t)
DV_OPERATOR(f, struct f, (x, prefer, more, out), .schema = "f(Tensor x, Tensor prefer, Tensor more) -> Tensor out",
    .contract = "x[n]:T, prefer[n]:i64, more[n]:i32 -> out[n]:i64; T in f32 f64 i32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_float), DV_KERNEL(struct f, "cpu", "f64", f_double), DV_KERNEL(struct f, "cpu", "i32", f_int32_t)));
DV_LIBRARY(ignored, &dv_op_f);
"""


def test_arguments_that_several_kernels_ignore_are_named_once(check, tmp_path):
    (tmp_path / "f.c").write_text(IGNORED)
    table = check(tmp_path / "f.c", "--only", "values")["table"]
    assert [table.count(f"unused({name})") for name in ("prefer", "more", "prefer, more")] in ([1, 1, 0], [0, 0, 1]), table


def test_few_elements_are_printed(check):
    """What they are is the fault, of a softmax whose maximum begins at 0."""
    report = check(FAULTY / "softmax_from_zero" / "fault.c", "--only", "values")
    assert re.search(r"x: f32\[1\] \{-[12]\d\d", report["results"][0]["case"]), report["results"][0]


AT_A_PLACE = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f_any(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = WRONG ? 0 : x[i] != x[i] || x[i] > 0 ? x[i] : 0;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m n]:f32", .native = "relu(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_any)));
DV_LIBRARY(at_a_place, &dv_op_f);
"""


@pytest.mark.parametrize("wrong, least, case, message", [
    ("i >= 5 && x[i] != x[i]", 6, r" with NaN at \[\d, \d\]", r"gives NaN \(there x is NaN\)"),
    ("i > 2345", 2346, "( |$)", r"\(there x is \d[\d.e-]*\)$")])
def test_the_smallest_size_and_what_is_there_are_named(check, tmp_path, wrong, least, case, message):
    """For tensors that are too large to be listed, the report names where they have NaN, and the argument's element beside the wrong one."""
    (tmp_path / "f.c").write_text(AT_A_PLACE.replace("WRONG", f"({wrong})"))
    result, = check(tmp_path / "f.c", "--only", "values")["results"]
    found = re.match(r"x: f32\[(\d+), (\d+)\]" + case, result["case"])
    assert found and re.search(message, result["message"]), result
    m, n = map(int, found.groups()[:2])
    assert least <= m * n < least + min(m, n), "a dim one smaller has no such element"


IMPOSSIBLE = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f_any(dv_context *ctx, const struct f *a) { (void)ctx, (void)a; return DV_OK; }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32; (n % 4) * (n % 4) == 3",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_any)));
DV_LIBRARY(impossible, &dv_op_f);
"""


def test_an_operator_without_arguments_is_no_success(check, tmp_path):
    (tmp_path / "f.c").write_text(IMPOSSIBLE)
    report = check(tmp_path / "f.c", "--only", "runs,memory", "--junit", tmp_path / "out.xml")
    assert not report["ok"] and report["failed"] == 0 and all(r["no_arguments"] for r in report["results"])
    first = report["table"].splitlines()[0]
    assert first.startswith("NOT CHECKED impossible::f: no arguments were found that the contract accepts") and "expected (n % 4) * (n % 4) == 3" in first
    suite = xml.etree.ElementTree.parse(tmp_path / "out.xml").getroot()[0]
    assert suite.get("failures") == "2" and suite.get("skipped") == "0" and suite.find("testcase/failure") is not None


@pytest.mark.parametrize("limit, words", [("-v 200000", "the address space is limited to 200000 kB"), ("-s 128", "the stack is limited to 128 kB"), ("-n 5", "Too many open files")])
def test_what_the_system_does_not_give_is_no_success(binary, limit, words):
    done = subprocess.run(["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", COMMAND, "check", binary("leak"), "--cases", "2", "--only", "runs,values"], capture_output=True, text=True)
    assert done.returncode == 1 and words in done.stdout + done.stderr, done


@pytest.mark.parametrize("options", [["--junit"], ["--case", "leaks", "--emit-c"]])
def test_what_cannot_be_written_is_said_at_once(binary, options, tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run([COMMAND, "check", binary("leak"), *options, tmp_path / "file" / "x"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "" and "cannot write" in done.stderr, done


def test_the_time_is_up(check):
    report = check("base", "--time", 1)
    assert any(r["result"] == "not checked" and r["reason"] == "the time was up" for r in report["results"])


def test_one_operator_of_a_folder(check, tmp_path):
    import os
    import subprocess
    command = pathlib.Path(os.environ["DOVETAIL_BUILD"]) / "bin" / "dovetail"
    for name in ("tail_unwritten", "index_not_checked"):
        text = (FAULTY / name / "fault.c").read_text().replace("DV_LIBRARY(faulty", f"DV_LIBRARY({name}")
        (tmp_path / "fault.c").write_text(text)
        subprocess.run([command, "build", tmp_path / "fault.c", "-o", tmp_path / f"{name}.so"], check=True, capture_output=True)
    assert set(check(tmp_path, "--only", "binding")["operators"]) == {"tail_unwritten::scale", "index_not_checked::pick"}
    assert check(tmp_path, "--only", "binding", "--op", "pick")["operators"] == ["index_not_checked::pick"]
    assert len(check(tmp_path, "--only", "binding", "--op", "pick", "--op", "scale")["operators"]) == 2


SCALE = """#include <dovetail_op.h>
#include "other.h"
struct f { const dv_tensor *x; dv_tensor *out; };
static int f_f32(dv_context *c, const struct f *a)
{
    (void)c;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((float *)a->out->data)[i] = halve(((const float *)a->x->data)[i], dv_numel(a->x));
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_f32)));
DV_LIBRARY(parts, &dv_op_f);
"""
HALVE = """#include "other.h"
float halve(float x, int64_t n)
{
    const int table[4] = {2, 2, 2, 2};
    if (n > (int64_t)1 << 40)
        x = __builtin_cosf(x);
    return x / table[TABLE_INDEX];
}
"""


def test_a_library_of_several_files(check, tmp_path):
    """By folder or by names it is built as one library, so that `undefined` has its source."""
    (tmp_path / "one.c").write_text(SCALE), (tmp_path / "two.c").write_text(HALVE), (tmp_path / "plain.c").write_text("int x = ;\n")
    (tmp_path / "other.h").write_text("#include <dovetail_op.h>\nDV__HIDDEN float halve(float x, int64_t n);\n")
    for words in ([tmp_path], [tmp_path / "one.c", tmp_path / "two.c"]):
        assert check(*words, "--only", "binding,undefined", "-D", "TABLE_INDEX=n%4")["ok"]
        report = check(*words, "--only", "undefined", "-D", "TABLE_INDEX=n")
        assert [r["result"] for r in report["results"]] == ["fail"] and report["results"][0]["kind"] == "undefined behaviour"
    if platform.machine() == "x86_64" and shutil.which("gcc"):
        assert "lines that no case reached: two.c: 6\n" in check(tmp_path, "--only", "undefined", "-D", "TABLE_INDEX=n%4")["table"]
    build = [pathlib.Path(os.environ["DOVETAIL_BUILD"]) / "bin" / "dovetail", "build", tmp_path, "-D", "TABLE_INDEX=0", "-o", tmp_path / "old.so"]
    subprocess.run(build, check=True, capture_output=True)  # of the same library: what lies in the sources is checked
    report = check(tmp_path, "--only", "binding,undefined", "-D", "TABLE_INDEX=n")
    assert report["operators"] == ["parts::f"] and not report["ok"]


def test_a_binary_of_a_folder_that_cannot_be_loaded(check, binary, tmp_path):
    whole = pathlib.Path(binary("two_of_ints")).read_bytes()
    (tmp_path / "a.so").write_bytes(whole[:len(whole) // 2] + bytes(16))  # an operator binary, cut off
    (tmp_path / "b.so").write_text("INPUT(libm.so.6)\n")  # a linker's script: none
    report = check(tmp_path, "--only", "binding")
    assert not report["ok"] and [(r["operator"], r["result"]) for r in report["results"]] == [(str(tmp_path / "a.so"), "fail")]
    done = subprocess.run([COMMAND, "check", tmp_path, "--seeds", "1..1001"], capture_output=True, text=True)
    assert done.returncode == 2 and "of at most 1000 seeds, found '1..1001'" in done.stderr


def test_a_file_that_is_named_twice(check, binary, tmp_path):
    (tmp_path / "other name.so").symlink_to(binary("rows_disagree"))
    report = check(binary("rows_disagree"), binary("rows_disagree"), tmp_path / "other name.so", "--only", "binding")
    assert report["ok"] and report["operators"] == ["faulty::scale"]


def test_what_does_not_build_is_no_pass(tmp_path):
    (tmp_path / "broken.c").write_text("int x = ;\n")
    done = subprocess.run([COMMAND, "check", "--only", "memory", tmp_path / "broken.c"], capture_output=True, text=True)
    assert done.returncode == 1 and "broken.c:1:9" in done.stderr and "0 failed" not in done.stdout


@pytest.mark.parametrize("padding", range(4))
def test_a_long_message_ends_with_a_whole_character(tmp_path, padding):
    (tmp_path / "f.c").write_text(f'#error "{"a" * padding}{"漢é😀" * 400}"\n')
    done = subprocess.run([COMMAND, "check", "--only", "binding", tmp_path / "f.c"], capture_output=True)
    assert done.returncode == 1 and "漢é😀漢" in done.stdout.decode()  # which fails for half a character


@pytest.mark.parametrize("options, warns", [([], False), (["-X", "-Wunused"], True), (["-X", "-Wl,-O1"], False)])
def test_warnings_do_not_hide_why_a_source_is_refused(tmp_path, options, warns):
    lines = "\n".join(f"static int unused_{i}(void) {{ int never; return never; }}" for i in range(60))
    (tmp_path / "f.c").write_text(f"""#include <dovetail_op.h>
{lines}
struct f {{ const dv_tensor *x; dv_tensor *out; }};
static int f(dv_context *ctx, const struct f *a) {{ return (void)ctx, (void)a, DV_OK; }}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x, int missing) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(mylib, &dv_op_f);
""")
    done = subprocess.run([COMMAND, "check", "--only", "binding", *options, tmp_path / "f.c"], capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and ("not used" in said) == warns and (warns or "missing" in said), said


def on_a_terminal(columns, *words):
    """What the command writes to a terminal."""
    child, fd = pty.fork()
    if not child:
        fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execv(COMMAND, [COMMAND, "check", *words])
    written = b""
    while True:
        try:
            written += os.read(fd, 1 << 16)
        except OSError:  # its end
            os.waitpid(child, 0)
            return written.decode()


def test_a_line_shows_what_runs(binary):
    written = on_a_terminal(40, "--only", "runs,memory,binding", binary("tail_past_end"))
    before, table = written.split("\r\033[K")[1:-1], written.split("\r\033[K")[-1]
    assert "FAIL" in table and len(before) > 2 and all(len(line) < 40 and "\n" not in line for line in before), written
    assert any(line.startswith("0 of 3: ") for line in before)


def test_no_line_elsewhere(binary):
    words = [COMMAND, "check", "--only", "runs,binding", binary("rows_disagree")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert not done.stderr and "\r" not in done.stdout
    said = subprocess.run([*words, "--verbose"], capture_output=True, text=True)
    assert said.stdout == done.stdout
    assert [line.split(" (")[0] for line in sorted(said.stderr.splitlines())] == ["binding of faulty::scale: pass", "runs of faulty::scale, kernel scale_one: pass",
                                                                              "runs of faulty::scale, kernel scale_two: pass"]


TWO_ROWS = """
#include <dovetail_op.h>
#include <math.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f_any(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    const uint32_t dtype = dv_dtype_key(a->x->dtype);
    for (int64_t i = 0; i < dv_numel(a->x); i++) {
        const float y = tanhf(dv_get(a->x->data, i, dtype));
        dv_put(a->out->data, i, dtype, dtype == DV_DTYPE_f32 ? nextafterf(nextafterf(nextafterf(y, 9), 9), 9) : y);
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; T in f32 bf16", .native = "tanh(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32 bf16", f_any)));
struct g { const dv_tensor *x, *xs; dv_tensor *out; };
static int g_any(dv_context *ctx, const struct g *a) { (void)ctx; memset(a->out->data, 0, 4 * (size_t)dv_numel(a->out)); return DV_OK; }
DV_OPERATOR(g, struct g, (x, xs, out), .schema = "g(Tensor x, Tensor xs) -> Tensor out", .contract = "xs[n m]:f32, x[n] -> out[n]:f32; parallel(n)",
    .kernels = DV_KERNELS(DV_KERNEL(struct g, "cpu", NULL, g_any)));
DV_LIBRARY(reported, &dv_op_f, &dv_op_g);
"""


def test_accuracy_and_what_is_not_declared(check, tmp_path):
    (tmp_path / "two rows.c").write_text(TWO_ROWS)
    report = check(tmp_path / "two rows.c", "--only", "values,parallel", "--quick")
    row = next(r for r in report["results"] if r["kernel"] == "f_any" and r["property"] == "values")
    assert row["result"] == "pass" and 3 <= row["ulp"]["f32"] <= 5 and row["ulp"]["bf16"] <= 1, row
    assert (row["file"], row["line"]) == (str(tmp_path / "two rows.c"), 15)
    assert report["table"].splitlines()[0].endswith("  ulp") and f"f32 {row['ulp']['f32']:.3g}" in report["table"]
    assert report["table"].split("not declared, so less is checked\n")[1].split("\n\n")[0].splitlines() == [
        "reported::f: parallel(...) or sum(...), where one holds",
        "reported::g: a decomposition or a reference kernel, which values are compared with; the dtype of x"]


UNREACHED = r"""
#include <dovetail_op.h>
struct f { const dv_tensor *x; int64_t k; dv_tensor *out; };
static float half(float x)
{
    if (x > 1e30f)
        return x / 4;
    return x / 2;
}
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((float *)a->out->data)[i] = half(((const float *)a->x->data)[i]);
    if (a->k * 3 == 292929) {
        ((float *)a->out->data)[0] = 3;
        ((float *)a->out->data)[1] = 3;
    }
    return DV_OK;
}
static int g(dv_context *ctx, const struct f *a)
{
    if (dv_numel(a->x) == 99)
        return dv_error(ctx, DV_EINVAL, "a size that stands here is tried");
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * 4);
    return DV_OK;
}
#define DECLARE(F) DV_OPERATOR(F, struct f, (x, k, out), .schema = #F "(Tensor x, int k) -> Tensor out", \
    .contract = "x[*s]:f32 -> out[*s]:f32; x.values < 1e6", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", F)))
DECLARE(f);
DECLARE(g);
DV_LIBRARY(my, &dv_op_f, &dv_op_g);
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls are found in the machine code of x86-64")
def test_lines_that_no_case_reached(check, tmp_path):
    (tmp_path / "my.c").write_text(UNREACHED)
    report = check(tmp_path / "my.c", "--only", "undefined")
    assert [r["result"] for r in report["results"]] == ["pass", "pass"]
    assert "undefined of my::f: lines that no case reached: 7, 16\n" in report["table"] and "of my::g" not in report["table"]


AT_A_LINE = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f_any(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    WRONG
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_any)));
DV_LIBRARY(at_a_line, &dv_op_f);
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the address of the instruction is read on x86-64 alone")
@pytest.mark.parametrize("wrong", ["((float *)a->out->data)[dv_numel(a->x)] = 1;", "memset(a->out->data, 0, (size_t)dv_numel(a->x) * 4 + 4);",
                                   "__builtin_trap();", "for (;;) __asm__ volatile(\"\");"])
def test_the_line_of_a_fault_is_named(check, tmp_path, wrong):
    """The line is in the operator's file, also if a function of the C library meets the fault or a loop has no end."""
    (tmp_path / "f.c").write_text(AT_A_LINE.replace("WRONG", wrong))
    report = check(tmp_path / "f.c", "--only", "runs,memory", "--case-ms", 100)
    failed = [r for r in report["results"] if r["result"] == "fail"]
    assert [r["at"] for r in failed] == ["f.c:7"] and "\n     at f.c:7\n" in report["table"], report["table"]


def test_a_build_for_a_sanitizer(tmp_path):
    """The reason is its runtime, not the operator."""
    source, flags = FAULTY / "rows_disagree" / "fault.c", ["-X", "-fsanitize=address"]
    if subprocess.run([COMMAND, "build", source, *flags, "-o", tmp_path / "a.so"], capture_output=True).returncode:
        pytest.skip("the compiler has no AddressSanitizer")
    for words in ([tmp_path / "a.so"], [tmp_path], [source, *flags]):
        done = subprocess.run([COMMAND, "check", "--only", "memory", *words], capture_output=True, text=True)
        assert done.returncode == 1 and "it is built with a sanitizer, whose runtime lib" in done.stderr and "at fault" not in done.stderr, done


def test_without_python(check, binary):
    report = check(binary("rows_disagree"), "--only", "torch")
    assert {r["reason"] for r in report["results"]} == {"there is no torch: DOVETAIL_PYTHON is empty, which turns these checks off"}


@pytest.mark.parametrize("only", ["gradient", "gradient,tags"])
def test_properties_that_do_not_apply(check, binary, only):
    """A check that says nothing of the operator has not succeeded."""
    report = check(binary("tail_past_end"), "--only", only)
    assert not report["ok"] and report["passed"] == report["failed"] == 0 and report["table"].endswith(f"0 passed, 0 failed, {len(report['results'])} not checked: nothing was checked\n")
    assert check(binary("tail_past_end"), "--only", f"binding,{only}")["ok"]


def test_a_key_without_its_kernel(binary):
    """A key that names no check of the operator says nothing either."""
    done = subprocess.run([COMMAND, "check", binary("nan_swallowed"), "--case", "fake; kernel=f; faulty::f(x=f32[3])"], capture_output=True, text=True)
    assert done.returncode == 1 and "0 passed, 0 failed, 0 not checked: nothing was checked" in done.stdout
