"""The command that a failure shows: alone, it fails in the same way while the fault is there, and passes when it is gone."""
import json
import os
import re
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys

import pytest
from conftest import BUILD, COMMAND, ENDLESS, FAULTY, FROM_SOURCE, LOADS_NOT, ROOT, build, failure

HERE = ROOT / "tests" / "check"
SHAPE_FUNCTION_FAILS = {"shape_looks_inside"}  # it ends a process that makes a plan
LUCK = {"writes_later", "writes_last_result",  # a thread of theirs writes at another time in each run
        "table_of_another_call"}  # a race that gives wrong results, or damages the heap
LIMIT = {name: ["--case-ms", "200"] for name in ENDLESS}


def check(*words):
    return subprocess.run([COMMAND, "check", *map(str, words)], cwd=ROOT, capture_output=True, text=True)


def repeat(line, *more):
    """Runs the line of a report as it stands."""
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    return subprocess.run(" ".join([line, *map(shlex.quote, map(str, more))]), shell=True, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PATH": path})


def failures(done):
    return {(r["property"], r["kind"]) for r in json.loads(done.stdout)["results"] if r["result"] == "fail"}


@pytest.mark.parametrize("name", sorted(p.parent.name for p in FAULTY.glob("*/fault.c")))
def test_it_fails_again(faulty, name):
    for found in (r for r in faulty(name)["results"] if r["result"] == "fail"):
        expected = (found["key"].split(";")[0], found["kind"])  # the property whose calls met it
        done = repeat(found["reproduce"], "--json")
        for _ in range(9 if name in LUCK or "repeats" in found else 0):
            done = done if expected in failures(done) else repeat(found["reproduce"], "--json")
        assert expected in failures(done) and done.returncode == 1, (found["reproduce"], done)


def test_most_failures_are_of_one_call(faulty):
    """The others depend on many cases of their plan, or on tensors that are too large: these run again."""
    found = [failure(faulty(p.parent.name)) for p in FAULTY.glob("*/fault.c")]
    assert sum("(" in f["key"] for f in found) > 0.9 * len(found)
    assert sum("repeats" in f for f in found) < 5


def test_the_smallest_inputs_are_small(faulty):
    """Half of all faults, at least, are shown with 8 elements in the largest tensor or fewer."""
    found = [failure(faulty(p.parent.name)) for p in FAULTY.glob("*/fault.c")]
    assert statistics.median(f.get("elements", 0) for f in found) <= 8


# A change that takes the fault away.
MENDED = {
    "index_not_checked": ("    for (", "    for (int64_t i = 0; i < dv_numel(a->ids); i++)\n        if (ids[i] < 0 || ids[i] >= a->table->shape[0])\n            return dv_error(ctx, DV_EINVAL, \"no such row\");\n    for ("),
    "tail_past_end": ("k < 8; k++", "k < 8 && i + k < n; k++"),
    "input_written": ("x[i] = x[i] > 0 ? x[i] : 0;\n        out[i] = x[i];", "out[i] = x[i] > 0 ? x[i] : 0;"),
    "tail_unwritten": ("n / 8 * 8", "n"),
    "malloc_not_cleared": ("malloc((size_t)n * sizeof *sum + 1)", "calloc((size_t)n + 1, sizeof *sum)"),
    "divides_by_zero": ("sum / n", "(n ? sum / n : 0)"),
    "result_is_input": ("if (n == 1)", "if (n == -1)"),
    "workspace_too_small": ("workspace = 4*n", "workspace = 4*n + 4"),
    "refuses_what_is_accepted": ("% 4)", "% 1)"),
    "nan_swallowed": ("x[i] > 0 ? x[i] : 0", "x[i] < 0 ? 0 : x[i]"),
    "not_parallel": ("sum += x[i]", "sum * 0 + x[i]"),
    "not_a_sum": ("most = x[i] > most ? x[i] : most", "most += x[i]"),
    "counts_calls": ("calls++", "(void)calls"),
    "stale_cache": ("x != last ||", "1 ||"),
    "static_buffer": ("    static float", "    static _Thread_local float"),
    "racy_parallel_for": ("dv_parallel_for(ctx, 0, dv_numel(a->x), 64, piece, &job)", "((void)ctx, piece(&job, 0, dv_numel(a->x)))"),
    "address_in_result": ("/ 64 % 5", "/ 64 % 1"),
    "leak": ("out[i] = copy[n - 1 - i];", "out[i] = copy[n - 1 - i];\n    free(copy);"),
    "leaked_file": ('fopen("/dev/null", "w")', "NULL"),
    "unchecked_allocation": (", 64);", ", 64);\n    if (!copy)\n        return dv_error(ctx, DV_ENOMEM, \"out of memory\");"),
    "gradient_sign": ("y: grad * 1", "y: -grad"),
    "gradient_of_list": ("grad[0];", "if(len(ys) == 1, grad[0], grad[0] + grad[1]);"),
    "gradient_needs_ignored": ("mask.data[0] ? grad[i] * x", "mask.data[1] ? grad[i] * x"),
    "flops_wrong": ("flops = m * n", "flops = 2 * m * n * k"),
    "bytes_of_half": ("bytes = 4 * n", "bytes = 12 * n"),
    "zero_dims": ("a->x->shape[0]", "n"),
    "two_of_a_list": ("a->xs.data[1]", "a->xs.data[a->xs.size - 1]"),
    "two_of_ints": ("a->by.data[1]", "a->by.data[a->by.size - 1]"),
    "unchecked_malloc": ("    for (", "    if (!copy)\n        return dv_error(ctx, DV_ENOMEM, \"out of memory\");\n    for ("),
    "leak_when_second_fails": ("if (!sums)", "if (!sums)\n        free(copy);\n    if (!sums)"),
    "signal_blocked": ("if (n == 1)", "if (n == -1)"),
    "handler_left": ("signal(SIGFPE, ignore);", "(void)ignore;"),
    "errno_trusted": ("    const float by", "    errno = 0;\n    const float by"),
    "variable_unset": ("int l = 1", "int l = 0"),
    "cut_off_to_bf16": ("(uint16_t)(bits >> 16)", "dv_f32_to_bf16(y)"),
    "rows_disagree": ("? 3", "? 2"),
    "overlap_copied_forward": ("    for (int64_t i = 0, n = dv_numel(a->to); i < n; i++)", "    for (int64_t i = dv_numel(a->to); i-- > 0 && to > from;)\n        to[i] = from[i] / 2;\n    for (int64_t i = 0, n = to > from ? 0 : dv_numel(a->to); i < n; i++)"),
    "places_in_order_taken": ("n, 700,", "n, n,"),
    "pieces_count_at_once": ("((int64_t *)a->counts->data)[((const uint8_t *)a->x->data)[i] % 4]++", "__atomic_fetch_add(&((int64_t *)a->counts->data)[((const uint8_t *)a->x->data)[i] % 4], 1, __ATOMIC_RELAXED)"),
    "locale_changed": ('setlocale(LC_ALL, "C.UTF-8")', "setlocale(LC_ALL, NULL)"),
    "workspace_of_nothing": ("sums[0] = 0", "if (n)\n        sums[0] = 0"),
    "kept_pointer": ("last = x", "last = NULL"),
    "table_of_first_size": ("if (!table)", "free(table);\n    table = NULL;\n    if (n >= 0)"),
    "half_written": ("return dv_error", "while (i > 0)\n                x[ids[--i]] -= 1;\n            return dv_error"),
    "int_index": ("(int i = 0; i < (int)n; i++)", "(int64_t i = 0; i < n; i++)"),
    "result_order_ignored": ("[i * n + k]", "[i * a->out->strides[0] + k * a->out->strides[1]]"),
    "tangent_wrong": ("x_t * y + y_t", "x_t * y + y_t * x"),
}


@pytest.fixture(scope="session")
def mended(shared):
    """mended(name) -> the binary of an operator of tests/faulty without its fault."""
    def make(name, path):
        text = (FAULTY / name / "fault.c").read_text()
        assert MENDED[name][0] in text
        path.with_suffix(".c").write_text(text.replace(*MENDED[name]))
        build(path.with_suffix(".c"), path)
    return lambda name: shared(f"{name}/mended.so", lambda path: make(name, path))


@pytest.mark.parametrize("name", sorted(MENDED))
def test_it_passes_when_the_fault_is_gone(faulty, mended, name):
    done = check(mended(name), *LIMIT.get(name, []), "--case", failure(faulty(name))["key"])
    assert done.returncode == 0 and ", 0 failed" in done.stdout, done


# ---- In one process

def test_a_debugger_sees_the_fault(faulty, mended):
    found = failure(faulty("index_not_checked"))
    done = repeat(f"exec {found['reproduce']}", "--in-process")
    assert done.returncode == -signal.SIGSEGV and done.stdout == f"gdb --args {found['reproduce'].replace(' --case', ' --in-process --case')}\n", done
    assert check(mended("index_not_checked"), "--in-process", "--case", found["key"]).returncode == 0


@pytest.mark.parametrize("name", ["nan_swallowed", "not_a_sum", "gradient_sign", "refuses_what_is_accepted", "mean_of_neighbour_past_4096", "weight_of_the_first"])
def test_what_does_not_crash_is_reported_in_one_process(faulty, name):
    found = failure(faulty(name))
    done = repeat(found["reproduce"], "--in-process", "--json")
    assert done.returncode == 1 and failures(done) == {(found["property"], found["kind"])}, done


def test_valgrind_runs_the_kernel(faulty, binary, mended):
    valgrind = shutil.which("valgrind") or pytest.skip("valgrind is not installed")
    found = failure(faulty("tail_past_end"))
    words = [valgrind, "--quiet", COMMAND, "check"], ["--in-process", "--case", found["key"]]
    for target in (binary("tail_past_end"), FAULTY / "tail_past_end" / "fault.c"):
        done = subprocess.run([*words[0], target, *words[1]], cwd=ROOT, capture_output=True, text=True)
        assert "Invalid " in done.stderr and done.returncode == -signal.SIGSEGV, done
    done = subprocess.run([*words[0], mended("tail_past_end"), *words[1]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "refuses" not in done.stdout and "1 passed, 0 failed" in done.stdout, done


@pytest.mark.parametrize("more", [[], ["--in-process"], ["--emit-c", "call.c"]])
def test_a_source_that_does_not_build_says_so(tmp_path, more):
    """Not that its operator is not there."""
    (tmp_path / "f.c").write_text((FAULTY / "nan_swallowed" / "fault.c").read_text() + "#error is here\n")
    done = subprocess.run([COMMAND, "check", "f.c", "--case", KEY, *more], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "error: #error is here" in done.stderr and "expected an operator" not in done.stderr and not done.stdout, done


# ---- Calls that the checker cannot make

@pytest.mark.parametrize("more", [[], ["--in-process"]])
@pytest.mark.parametrize("only", ["runs", "memory", "parallel", "leaks", "fake", "shapes"])
def test_no_memory_for_the_call(mended, only, more):
    """What the checker cannot make is neither a refusal by the kernel nor a pass."""
    limit = 256 << 20
    done = subprocess.run([COMMAND, "check", mended("nan_swallowed"), "--max-elements", str(1 << 26), *more, "--case", f"{only}; {'' if only in ('shapes', 'fake') else 'kernel=f; '}faulty::f(x=f32[66000000])"],
                          capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
    assert done.returncode == 1 and "0 passed, 0 failed, 1 not checked" in done.stdout and "the system gives the checker no memory for the tensors of this call" in done.stdout, done
    assert done.stdout.count("NOT CHECKED") == 1 and "refuse" not in done.stdout, done


@pytest.mark.parametrize("more", [[], ["--in-process"]])
@pytest.mark.parametrize("size, limit", [(300000000, []), (400001, []), (9, ["--max-elements", "8"])])
def test_a_call_beyond_max_elements(binary, size, limit, more):
    done = check(binary("nan_swallowed"), *limit, *more, "--case", f"values; kernel=f; faulty::f(x=f32[{size}])")
    assert done.returncode == 1 and "0 passed, 0 failed, 1 not checked" in done.stdout and "(--max-elements)" in done.stdout, done
    assert done.stdout.count("NOT CHECKED") == 1 and "refuse" not in done.stdout, done


CONDITION = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->out); i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f, .when = "n % 2 == 0")));
DV_LIBRARY(even, &dv_op_f);
"""


@pytest.mark.parametrize("only", ["runs", "memory", "values", "parallel", "leaks"])
def test_a_call_that_is_not_the_kernels(tmp_path, only):
    """A condition of the kernel refuses it, which may mend a fault; and it is no pass."""
    (tmp_path / "f.c").write_text(CONDITION)
    done = check(tmp_path / "f.c", "--case", f"{only}; kernel=f; even::f(x=f32[3])")
    assert done.returncode == 0 and "0 passed, 0 failed, 1 not checked" in done.stdout and "a condition of the kernel" in done.stdout, done
    assert "1 passed, 0 failed" in check(tmp_path / "f.c", "--case", f"{only}; kernel=f; even::f(x=f32[4])").stdout


def test_values_of_large_contiguous_tensors(binary):
    done = check(binary("nan_swallowed"), "--case", "values; kernel=f; faulty::f(x=f32[300000])")
    assert done.returncode == 1 and "NOT CHECKED" in done.stdout and "0 passed, 0 failed, 1 not checked" in done.stdout, done


# ---- Programs of the call

KEY = "values; kernel=f; faulty::f(x=f32[3]); x: special(-2, 2); seed=7; number=0"

def program(line, folder):
    """Writes both programs, and gives the commands that run them, without the binary."""
    flags = subprocess.run([COMMAND, "--cflags", "--libs"], check=True, capture_output=True, text=True).stdout.split()
    done = repeat(line, "--emit-c", folder / "call.c", "--emit-python", folder / "call.py")
    assert done.returncode == 0 and not done.stdout, done
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", folder / "call.c", *flags, "-o", folder / "call"], check=True)
    return [folder / "call"], [sys.executable, folder / "call.py"]


def run(command, binary):
    return subprocess.run([*command, binary], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["nan_swallowed", "input_written", "two_of_ints", "places_in_order_taken", "kept_pointer", "overlap_copied_forward", "malloc_not_cleared"])
def test_a_program_makes_the_call(faulty, mended, tmp_path, name):
    """Both print the call, with the contents of its tensors, and what it gives."""
    found = failure(faulty(name))
    space = found["operator"].split(".")[0]
    for done in (run(command, mended(name)) for command in program(found["reproduce"], tmp_path)):
        assert done.returncode == 0 and done.stdout.startswith(f"{space}(") and " = [" in done.stdout.splitlines()[0] and len(done.stdout.splitlines()) > 1, done


def test_a_program_shows_the_elements(faulty, binary, mended, tmp_path):
    c, python = program(failure(faulty("nan_swallowed"))["reproduce"], tmp_path)
    call = "faulty::f(x=f32[] = [nan])\n"
    assert [run(c, of("nan_swallowed")).stdout for of in (binary, mended)] == [call + "  f32[] = [0]\n", call + "  f32[] = [nan]\n"]
    assert [run(python, of("nan_swallowed")).stdout for of in (binary, mended)] == [call + "0.0\n", call + "nan\n"]


@pytest.mark.parametrize("source", [True, False])
@pytest.mark.parametrize("name, file", [("my ops", "of mine"), ("it's", "a 'call' \\\"\"\""), ("my_ops", "call"), ("-o", "-c")])
def test_the_first_lines_of_a_program_run_it(tmp_path, name, file, source):
    """Whatever the files are called: in their folder, word for word."""
    (tmp_path / f"{name}.c").write_text((FAULTY / "nan_swallowed" / "fault.c").read_text())
    build(tmp_path / f"{name}.c", tmp_path / f"{name}.so")
    env = os.environ | {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
    for option, path in (("--emit-c", f"{file}.c"), ("--emit-c", file), ("--emit-python", f"{file}.py")):
        done = subprocess.run([COMMAND, "check", f"./{name}.c" if source else f"./{name}.so", "--case", KEY, f"{option}={path}"], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done
        lines = (tmp_path / path).read_text().splitlines()
        line = lines[2].lstrip("/#").strip()
        assert path.removesuffix(".c").replace("'", "'\\''") in line and ("dovetail build" in line) == source, line
        done = subprocess.run(line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and "faulty::f(x=f32[3] = [" in done.stdout, (line, done)
        if source:
            (tmp_path / f"{name}.so").unlink()


@pytest.mark.parametrize("source", [True, False])
@pytest.mark.parametrize("folder", ["a folder", "-f", "two\nlines"])
def test_the_first_lines_of_a_program_in_another_folder_run_it(tmp_path, folder, source):
    """From the folder in which the check ran; whatever the folders and files are called."""
    env = os.environ | {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "f.c").write_text((FAULTY / "nan_swallowed" / "fault.c").read_text())
    build(tmp_path / folder / "f.c", tmp_path / folder / "f.so")
    target = f"./{folder}/f.c" if source else f"./{folder}/f.so"
    for option, path in (("--emit-c", f"{folder}/call.c"), ("--emit-c", str(tmp_path / folder / "a\nb")), ("--emit-python", f"{folder}/call.py")):
        done = subprocess.run([COMMAND, "check", target, "--case", KEY, f"{option}={path}"], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done
        line = (tmp_path / path).read_text().splitlines()[2].lstrip("/#").strip()
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and "faulty::f(x=f32[3] = [" in done.stdout, (line, done)


COMPLEX = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    const bool wide = a->x->dtype.bits == 128;
    for (int64_t i = 0, n = 2 * dv_numel(a->x); i < n; i++)
        if (wide)
            ((double *)a->out->data)[i] = i < 2 ? i - 1.5 : -((const double *)a->x->data)[i];
        else
            ((float *)a->out->data)[i] = i < 2 ? (float)i - 1.5f : -((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T; T in c64 c128",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(complex, &dv_op_f);
"""


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_a_program_shows_complex_numbers(tmp_path, dtype):
    (tmp_path / "f.c").write_text(COMPLEX)
    binary = build(tmp_path / "f.c", tmp_path / "f.so")
    c, python = program(f"dovetail check {binary} --case 'runs; kernel=f; complex::f(x={dtype}[2])'", tmp_path)
    call, result = run(c, binary).stdout.splitlines()
    first, second = map(complex, result.split("= [")[1].rstrip("]").split(", "))
    given = complex(call.split("= [")[1].split("]")[0].split(", ")[1])
    assert result.startswith(f"  {dtype}[2] = [-1.5-0.5j, ") and first == -1.5 - 0.5j and given.imag and second == -given, (call, result)
    assert "-1.5-0.5j" in run(python, binary).stdout.replace(" ", "")


DOUBLES = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    static long long calls;
    (void)ctx;
    calls++;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        if (a->x->dtype.code == 0)
            ((int64_t *)a->out->data)[i] = (1LL << 60) + calls;
        else
            ((double *)a->out->data)[i] = 0.7 + (double)calls * 0x1p-52;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T; T in f64 i64; n > 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(doubles, &dv_op_f);
"""


@pytest.mark.parametrize("dtype, kind, first", [("f64", float, 0.7 + 2**-52), ("i64", int, 2**60 + 1)])
def test_numbers_are_printed_with_all_digits(tmp_path, dtype, kind, first):
    """In the program of a call and in messages, so that numbers one bit apart do not look equal."""
    (tmp_path / "f.c").write_text(DOUBLES)
    binary = build(tmp_path / "f.c", tmp_path / "f.so")
    c, _ = program(f"dovetail check {binary} --case 'runs; kernel=f; doubles::f(x={dtype}[1])'", tmp_path)
    assert kind(run(c, binary).stdout.split("= [")[2].split("]")[0]) == first
    message = failure(json.loads(check("--json", "--case", f"parallel; kernel=f; doubles::f(x={dtype}[1])", binary).stdout))["message"]
    numbers = re.search(r" is (\S+) and then (\S+)", message)
    assert numbers and kind(numbers[1]) != kind(numbers[2]), message


LARGE = """
#include <dovetail_op.h>
struct f { const dv_tensor *x, *by; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    const uint32_t dtype = dv_dtype_key(a->x->dtype);
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        dv_put_f64(a->out->data, i, dtype, dv_get_f64(a->x->data, i < 4500 ? i : i - 4001, dtype) * ((const int16_t *)a->by->data)[i]);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, by, out), .schema = "f(Tensor x, Tensor by) -> Tensor out",
    .contract = "x[n]:T, by[n]:i16 -> out[n]:T; T in DTYPE; by.values > 0; by.values < 40", .native = "x * by", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(large, &dv_op_f);
"""


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64"])
def test_many_elements_are_a_short_key(tmp_path, dtype):
    (tmp_path / "f.c").write_text(LARGE.replace("DTYPE", dtype))
    (tmp_path / "mended.c").write_text(LARGE.replace("DTYPE", dtype).replace("i - 4001", "i"))
    found = failure(json.loads(check("--json", "--only", "values", tmp_path / "f.c").stdout))
    assert found["elements"] > 4500 and len(found["key"]) < 300
    assert failures(repeat(found["reproduce"], "--json")) == {("values", "other value")}
    assert check(tmp_path / "mended.c", "--case", found["key"]).returncode == 0
    mended = build(tmp_path / "mended.c", tmp_path / "f.so")
    for command in program(found["reproduce"], tmp_path):
        assert run(command, mended).returncode == 0


# ---- Keys

@pytest.mark.parametrize("cases, mutants, step", [(3, 2, 4), pytest.param(100, 20, 1, marks=pytest.mark.slow)])
def test_a_key_is_read_as_it_was_printed(binary, cases, mutants, step):
    """Cases of each fourth operator, in the slow suite of all; and keys with random changes are read or refused with a message (keys.c)."""
    names = sorted({p.parent.name for p in FAULTY.glob("*/fault.c")} - FROM_SOURCE - SHAPE_FUNCTION_FAILS)[::step]
    done = subprocess.run([BUILD / "bin" / "keys", str(cases), str(mutants), *map(binary, names), *sorted((BUILD / "ops").glob("*.so"))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 300 / step


@pytest.mark.parametrize("key, words", [
    ("value", "column 1: expected the name of a property, found 'value'"),
    ("values; kernel=f; faulty::g(x=f32[3])", "column 19: expected an operator that is here (faulty::f), found 'faulty::g("),
    ("values; kernel=g; faulty::f(x=f32[3])", "faulty::f: expected kernel=NAME of one of its kernels (f), found 'g'"),
    ("values; faulty::f(x=f32[3])", "expected kernel=NAME of one of its kernels (f), found none"),
    ("values; kernel=f; faulty::f(y=f32[3])", "expected an argument's name, found 'y"),
    ("values; kernel=f; faulty::f(x=3)", "argument 'x': column 13: expected an element type such as f32, found '3)'"),
    ("values; kernel=f; faulty::f(x=f32[2, 2] @ [7, 5])", "argument 'x': no layout of the checker has these strides"),
    ("values; kernel=f; faulty::f()", "x"),
    (KEY.replace("special", "specials"), "expected contents such as random(-2, 2), found 'specials"),
    (KEY.replace("x: special", "x: transposed/0 special").replace("[3]", "[3, 2]"), "expected the layout that the tensor's strides have"),
    (KEY.replace("(-2, 2)", "(-2, nan)"), "expected a number that bounds the elements, found 'nan"),
    (KEY.replace("x:", "y:"), "expected the name of a tensor and ':', 'seed=', 'number=', 'broken' or 'before='"),
    (KEY.replace("=7", "=-7"), "expected an integer from 0 to 18446744073709551615, found '-7"),
    (KEY + "; before=middle", "expected 'end' or 'begin'"),
    (KEY + ") more", "expected ';' or the end, found ')"),
    ("binding; faulty::f(x=f32[3])", "expected no call"),
])
def test_a_key_that_does_not_fit(binary, key, words):
    done = check(binary("nan_swallowed"), "--case", key)
    assert done.returncode == 2 and done.stderr.startswith("dovetail: error: option '--case': ") and words in done.stderr, done


def test_a_key_that_the_contract_refuses(binary):
    done = check(binary("nan_swallowed"), "--case", KEY.replace("f32", "i8").replace("special", "random"))
    assert done.returncode == 0 and "the case is refused: faulty::f: " in done.stdout, done


def test_a_key_from_a_file(faulty, binary, tmp_path):
    (tmp_path / "key").write_text(failure(faulty("nan_swallowed"))["key"] + "\n")
    assert check(binary("nan_swallowed"), "--case", f"@{tmp_path}/key").returncode == 1
    done = check(binary("nan_swallowed"), "--case", f"@{tmp_path}/none")
    assert done.returncode == 1 and "No such file" in done.stderr


def test_a_key_is_edited_by_hand(binary):
    """What it leaves out has a default."""
    assert check(binary("nan_swallowed"), "--case", "values; kernel=f; faulty::f(f32[2])").returncode == 0
    assert check(binary("nan_swallowed"), "--case", "values; kernel=f; faulty::f(f32[2, 5] @ [1, 2]); x: special(-2, 2)").returncode == 1


def test_a_binary_that_does_not_load_says_so(tmp_path):
    (tmp_path / "f.so").write_bytes(b"\x7fELF")
    done = check(tmp_path / "f.so", "--case", "binding", "--json")
    assert done.returncode == 1 and failures(done) == {("binding", "refused")}
    done = check(tmp_path / "f.so", "--case", KEY)
    assert done.returncode in (1, 2) and "f.so" in done.stderr, done
    assert failures(repeat(failure(json.loads(check("--json", f"tests/faulty/{LOADS_NOT}/fault.c").stdout))["reproduce"], "--json")) == {("binding", "refused")}


@pytest.mark.parametrize("words, says", [
    (["--repro", "out"], "option '--repro' is gone: each failure shows the command that repeats it (--case)"),
    (["--in-process"], "option '--in-process': expected '--case KEY' beside it"),
    (["--case", KEY, "--only", "memory"], "option '--case': expected no '--only' beside it"),
])
def test_options_that_do_not_fit(binary, words, says):
    done = check(binary("nan_swallowed"), *words)
    assert done.returncode == 2 and says in done.stderr, done
