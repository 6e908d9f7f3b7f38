"""The cases of a row: planned, the same for all properties and seeds; the report counts what was not tried."""
import subprocess

import pytest
from conftest import COMMAND, FAULTY, ROOT, seeds

KERNEL = """
#include <dovetail_op.h>
#include <time.h>
struct f { FIELDS };
static int f_any(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    BODY
    return DV_OK;
}
DV_OPERATOR(f, struct f, (NAMES), .schema = "SCHEMA", .contract = "CONTRACT",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f_any)));
DV_LIBRARY(planned, &dv_op_f);
"""
COPY = "float *out = a->out->data; const float *x = a->x->data; for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) out[i] = x[i];"


def operator(folder, contract, body=COPY, schema="f(Tensor x) -> Tensor out", fields="const dv_tensor *x; dv_tensor *out;", names="x, out"):
    text = KERNEL.replace("FIELDS", fields).replace("BODY", body).replace("NAMES", names).replace("SCHEMA", schema).replace("CONTRACT", contract)
    (folder / "f.c").write_text(text)
    return folder / "f.c"


def test_all_pairs_are_met_or_proved_infeasible(check, tmp_path):
    report = check(operator(tmp_path, "x[n]:f32 -> out[n]:f32"), "--only", "runs,memory,shapes")
    for result in report["results"]:
        assert result["pairs"]["covered"] > 150 and result["pairs"]["uncovered"] == result["pairs"]["too_large"] == result["pairs"]["infeasible"] == 0
    assert "pairs of planned::f: " in report["table"] and "infeasible" not in report["table"]


def test_infeasible_is_what_core_proves(check, tmp_path):
    report = check(operator(tmp_path, "x[m n]:f32 -> out[m n]:f32; n == 2 * m"), "--only", "runs")
    pairs = report["results"][0]["pairs"]
    assert pairs["infeasible"] > 20, pairs


def test_what_is_too_large_is_named(check, tmp_path):
    report = check(operator(tmp_path, "x[m n]:f32 -> out[m n]:f32"), "--only", "runs")
    assert "12 larger than --max-elements (as m 7, 15, 31 with n past 32768)" in report["table"]
    assert check(tmp_path / "f.c", "--only", "runs", "--max-elements", 100)["results"][0]["pairs"]["too_large"] > 4


def test_the_structure_does_not_depend_on_the_seed_or_on_what_else_is_checked(check, tmp_path):
    source = operator(tmp_path, "x[m n]:f32 -> out[m n]:f32")
    plans = [check(source, "--only", only, "--seed", seed)["results"][0] for only, seed in (("runs", 1), ("memory", 1), ("runs", 99))]
    assert len({(p["cases"], str(p["pairs"])) for p in plans}) == 1


@pytest.mark.parametrize("size", [7, 8, 16, 32, 33, 64])
def test_the_element_behind_a_tensor_is_inaccessible_at_each_size(check, tmp_path, size):
    """Also where the end of a tensor is aligned better than its elements."""
    body = COPY.replace("out[i] = x[i]", f"out[i] = x[i + (n == {size} && i + 1 == n)]")
    report = check(operator(tmp_path, "x[n]:f32 -> out[n]:f32", body), "--only", "memory")
    failure, = (r for r in report["results"] if r["result"] == "fail")
    assert "reads past the end of argument 'x'" in failure["message"]


@pytest.mark.parametrize("contract, sizes", [("x[m]:f32 -> out[m k]:f32; k >= 1", (5, 15, 33, 65, 4099)),
                                             ("x[m n]:f32 -> out[m k]:f32; k >= 1; k <= n", (4, 9, 31, 64)),
                                             ("x[m n]:f32 -> out[m n]:f32; n % k == 0; k >= 1", (7, 17, 63)),
                                             ("x[m]:f32 -> out[m*k]:f32; k >= 1; k <= 64", (8, 13, 32, 49, 50, 51))])
def test_an_int_argument_that_is_a_size_gets_the_sizes_of_names(check, tmp_path, contract, sizes):
    """Sizes of vectors, their neighbours, and numbers that the source compares with."""
    body = (f"static const int64_t of[] = {{ {', '.join(map(str, sizes))} }}; static uint32_t found; int at; float *out = a->out->data;"
            "for (int64_t i = 0; i < dv_numel(a->out); i++) out[i] = a->k > 50;"
            "for (at = 0; at < (int)(sizeof of / sizeof *of); at++) found |= (uint32_t)(a->k == of[at]) << at;"
            "if (found + 1 == UINT32_C(1) << at) __builtin_trap();")
    source = operator(tmp_path, contract, body, "f(Tensor x, SymInt k) -> Tensor out", "const dv_tensor *x; int64_t k; dv_tensor *out;", "x, k, out")
    found, = check(source, "--only", "runs")["results"]
    assert found["result"] == "fail" and "SIGILL" in found["message"] + found["kind"], found


def test_each_number_of_the_source_is_a_size_of_each_name(check, tmp_path):
    body = ("static const int64_t of[] = { 511, 512, 513, 2047, 2048, 2049, 4097 }; static uint32_t found; int at;"
            "if (dv_numel(a->x) > 512 || a->x->shape[0] == 2048) __asm__ volatile(\"\");"
            "for (at = 0; at < 14; at++) found |= (uint32_t)(a->x->shape[at / 7] == of[at % 7]) << at;"
            "if (found + 1 == UINT32_C(1) << at) __builtin_trap();") + COPY
    found, = check(operator(tmp_path, "x[m n]:f32 -> out[m n]:f32", body), "--only", "runs")["results"]
    assert found["result"] == "fail", found


def test_tensors_without_names_get_different_shapes(check, tmp_path):
    """A kernel that takes the shape of one for that of the other reads out of bounds."""
    body = "float *out = a->out->data; const float *y = a->y->data; for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) out[i] = y[i];"
    source = operator(tmp_path, "x[*s]:f32, y[...]:f32 -> out[*s]:f32", body, "f(Tensor x, Tensor y) -> Tensor out",
                      "const dv_tensor *x, *y; dv_tensor *out;", "x, y, out")
    report = check(source, "--only", "memory")
    assert [r["property"] for r in report["results"] if r["result"] == "fail"] == ["memory"]


@pytest.mark.parametrize("by_default, refused", [("halve", True), ("half", False)])
def test_defaults_that_are_always_refused_are_named(check, tmp_path, by_default, refused):
    """The words that it takes are in the source only."""
    body = 'if (strcmp(a->how.data, "half") && strcmp(a->how.data, "double")) return dv_error(ctx, DV_EINVAL, "no such word"); ' + COPY
    source = operator(tmp_path, "x[n]:f32 -> out[n]:f32", body, f'f(Tensor x, str how=\\"{by_default}\\") -> Tensor out',
                      "const dv_tensor *x; dv_string how; dv_tensor *out;", "x, how, out")
    report = check(source, "--only", "runs")
    assert report["ok"] and ("a call with all defaults" in report["table"]) == refused


def test_lengths_of_lists_of_strings_fit_the_contract(check, tmp_path):
    body = "for (int64_t i = 0; i < a->x->shape[0]; i++) ((float *)a->out->data)[i] = (float)(a->names.data[i].size + a->more.data[i].size);"
    source = operator(tmp_path, "x[n], names[n] -> out[n]:f32; len(more) == n", body, "f(Tensor x, str[] names, str[] more) -> Tensor out",
                      "const dv_tensor *x; dv_strings names, more; dv_tensor *out;", "x, names, more, out")
    report = check(source, "--only", "runs,memory")
    assert report["ok"] and all(r["cases"] > 20 for r in report["results"])


def test_a_slow_case_is_dropped_and_counted(check, tmp_path):
    body = "for (clock_t end = clock() + (a->x->shape[0] > 30000 ? CLOCKS_PER_SEC / 4 : 0); clock() < end;) {}" + COPY
    report = check(operator(tmp_path, "x[n]:f32 -> out[n]:f32", body), "--only", "runs,memory", "--case-ms", 150)
    assert report["ok"] and all(r["result"] == "pass" for r in report["results"]), report["table"]
    assert any("take longer than 0.15 s (--case-ms), as does x: f32[" in r.get("dropped_cases", "") for r in report["results"])


@pytest.mark.parametrize("size, ok", [(-1, True), (4097, False)])
def test_slow_is_not_endless(check, tmp_path, size, ok):
    """A kernel whose time is quadratic in a size, far past the limit, with and without a loop that has no end at one size."""
    body = ("float count; const float *in = a->x->data; for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {"
            f"count = 0; for (int64_t k = 0; k < n; k += 4) count += in[k] > in[i]; while (n == {size}) __asm__ volatile(\"\");"
            "((float *)a->out->data)[i] = count; }")
    report = check(operator(tmp_path, "x[n]:f32 -> out[n]:f32", body), "--only", "runs,memory", "--case-ms", 250)  # a limit that 4,097 elements are far from, also on a busy machine
    assert report["ok"] == ok, report["table"]
    runs = next(r for r in report["results"] if r["property"] == "runs")
    if ok:
        assert "--case-ms" in runs["dropped_cases"]
    else:
        assert runs["kind"] == "endless loop" and runs["case"] == f"x: f32[{size}]"


LOOP = """static int piece(void *arg, int64_t begin, int64_t end)
{
    const struct f *a = arg;
    for (int64_t i = begin; i < end; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i];
    return DV_OK;
}
static int f_any("""


@pytest.mark.parametrize("grain, result", [("1500", "pass"), ("dv_numel(a->x)", "not checked")])
def test_a_loop_gets_several_pieces_or_that_is_said(check, tmp_path, grain, result):
    source = operator(tmp_path, "x[m n]:f32 -> out[m n]:f32", f"return dv_parallel_for(ctx, 0, dv_numel(a->x), {grain}, piece, (void *)(uintptr_t)a);")
    source.write_text(source.read_text().replace("static int f_any(", LOOP))
    found, = check(source, "--only", "parallel", "--cases", 3)["results"]
    assert found["result"] == result and ("no case had two chunks" in found.get("reason", "")) == (result != "pass"), found


def test_contents_that_a_kernel_refuses_are_tried_again(check, tmp_path):
    refusal = 'const float *x0 = a->x->data; for (int64_t i = 0; i < dv_numel(a->x); i++) if (!(x0[i] > 0)) return dv_error(ctx, DV_EINVAL, "not positive");'
    report = check(operator(tmp_path, "x[n]:f32 -> out[n]:f32", refusal + COPY), "--only", "memory")
    assert report["ok"] and report["results"][0]["refused"] < report["results"][0]["cases"] / 2, report


def test_an_operator_that_refuses_everything_is_no_success(check, tmp_path):
    report = check(operator(tmp_path, "x[n]:f32 -> out[n]:f32", 'if (a->x) return dv_error(ctx, DV_EINVAL, "never");' + COPY), "--only", "memory")
    assert not report["ok"] and report["results"][0]["all_refused"] and ".values" in report["results"][0]["reason"]
    assert report["table"].startswith("NOT CHECKED planned::f: the kernel refused all")


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("fact, size, at", [("n <= 1000", "n", 999), ("2 * n <= 1000", "n", 500), ("n * m <= 3000", "n * m", 3000),
                                            ("n + m <= 700", "n + m", 700), ("n + 8 <= 700", "n", 692)])
def test_a_bound_of_the_contract_is_tried_whatever_numbers_the_source_has(check, tmp_path, seed, fact, size, at):
    """At that size the last element is wrong, by a test whose numbers do not tell it; 20 others are compared with sizes."""
    others = "".join(f"n == {37 * k + 11} || " for k in range(20))
    last = ("const int64_t m = a->x->shape[1]; n = a->x->shape[0]; volatile int64_t five = 5;"
            f"if ((({size}) ^ five) == {at ^ 5} && n * m) out[n * m - 1] += 1; else if (({others}0) && m) out[0] += 0;")
    source = operator(tmp_path, f"x[n m]:f32, {fact} -> out[n m]:f32", COPY.replace("for (int64_t i = 0, n =", "int64_t n; for (int64_t i = 0, n =") + last)
    reference = "static int right(dv_context *ctx, const struct f *a) { (void)ctx; " + COPY + " return DV_OK; }\nDV_OPERATOR("
    text = source.read_text().replace("DV_OPERATOR(", reference).replace("f_any))", 'f_any), DV_KERNEL(struct f, "cpu", "f32", right, .flags = DV_KERNEL_REFERENCE))')
    source.write_text(text)
    failed, = (r for r in check(source, "--only", "values", "--seed", seed)["results"] if r["result"] == "fail")
    assert "element [" in failed["message"] and "kernel right gives" in failed["message"], failed


def test_cases_and_seeds(check, tmp_path):
    source = operator(tmp_path, "x[n]:f32 -> out[n]:f32")
    assert check(source, "--only", "runs", "--cases", 10)["results"][0]["cases"] == 10
    assert check(source, "--only", "runs", "--quick", "--seeds", "1..3")["results"][0]["cases"] == 72


def test_quick_ends_the_plan_and_counts_what_is_left(check, tmp_path):
    source = operator(tmp_path, "x[m n]:f32 -> out[m n]:f32")
    whole, quick = check(source, "--only", "runs"), check(source, "--only", "runs", "--quick")
    pairs, left = whole["results"][0]["pairs"], quick["results"][0]["pairs"]
    assert sum(left.values()) == sum(pairs.values()) and left["covered"] < pairs["covered"]
    assert "uncovered (24 cases)" in quick["table"]


@pytest.mark.parametrize("words", [["--seeds", "3"], ["--seeds", "3..1"], ["--seeds", "1..2", "--seed", "1"], ["--cases", "0"]])
def test_wrong_numbers(words):
    done = subprocess.run([COMMAND, "check", *words, FAULTY / "leak" / "fault.c"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and words[0] in done.stderr


@pytest.mark.parametrize("contract", ["x[m n]:f32 -> out[m n]:f32; m - n == 7; m + n == 31", "x[m n]:f32 -> out[m n]:f32; m*n == 65536; m == n",
                                      "x[n]:f32 -> out[n]:f32; n*n == 1225", "x[n]:f32 -> out[n]:f32; 4294967296 % n == 0; n > 1000; n < 1100",
                                      "x[m n k]:f32 -> out[m n k]:f32; m*m + n*n == k*k; m > 0; n > 0"])
def test_sizes_that_only_a_search_finds(check, tmp_path, contract):
    report = check(operator(tmp_path, contract), "--only", "runs,memory", "--quick")
    assert report["ok"] and all(r["cases"] >= 20 for r in report["results"]), report["table"]


def test_the_smallest_sizes_are_too_large(check, tmp_path):
    report = check(operator(tmp_path, "x[m n]:f32 -> out[m n]:f32; m % n == 0; m // n == 5; n > 1000"), "--only", "runs", "--quick")
    assert not report["ok"] and "a tensor of 5010005 elements, and --max-elements is 400000" in report["table"]


SCALAR = ("const dv_scalar s = a->sc; const double v = s.kind == DV_SCALAR_INT ? (double)s.as.i : s.kind == DV_SCALAR_BOOL ? s.as.b : s.kind == DV_SCALAR_FLOAT ? s.as.f : s.as.c.re;"
          + COPY.replace("x[i]", "(float)(x[i] * v)"))


@pytest.mark.parametrize("kind", ["INT", "FLOAT", "BOOL", "COMPLEX"])
def test_a_scalar_is_of_each_kind(check, tmp_path, kind):
    body = f"if (a->sc.kind == DV_SCALAR_{kind}) __builtin_trap();" + SCALAR
    source = operator(tmp_path, "x[n]:f32 -> out[n]:f32", body, "f(Tensor x, Scalar sc) -> Tensor out", "const dv_tensor *x; dv_scalar sc; dv_tensor *out;", "x, sc, out")
    found, = check(source, "--only", "runs")["results"]
    assert found["result"] == "fail" and "SIGILL" in found["message"], found


def test_a_kernel_may_refuse_a_complex_scalar(check, tmp_path):
    body = 'if (a->sc.kind == DV_SCALAR_COMPLEX) return dv_error(ctx, DV_EINVAL, "expected a real number");' + SCALAR
    source = operator(tmp_path, "x[n]:f32 -> out[n]:f32; parallel(n)", body, "f(Tensor x, Scalar sc) -> Tensor out", "const dv_tensor *x; dv_scalar sc; dv_tensor *out;", "x, sc, out")
    report = check(source)
    assert report["ok"], report["table"]


@pytest.mark.parametrize("bounds", ["", "; 0 <= p <= 1; k > 0", "; p >= 0; k >= 1; k <= 4096", "; k < 9 or p > 0"])
def test_bounds_do_not_hide_that_an_argument_is_never_read(check, tmp_path, bounds):
    report = check(operator(tmp_path, "x[n]:f32 -> out[n]:f32" + bounds, COPY, "f(Tensor x, float p=0.5, int k=1) -> Tensor out",
                            "const dv_tensor *x; double p; int64_t k; dv_tensor *out;", "x, p, k, out"), "--only", "values")
    found, = report["results"]
    assert found["result"] == "fail" and "never reads argument 'p'" in found["message"], found


@pytest.mark.parametrize("contract", ["x[n]:f32 -> out[n]:f32; n % k == 0; k >= 1", "x[n]:f32 -> out[n]:f32; k == 2 * n",
                                      "x[k]:f32 -> out[k]:f32", "x[n]:f32 -> out[n]:f32; 0 <= k <= 5; unused(k)"])
def test_an_argument_that_the_contract_ties_to_sizes_may_be_unread(check, tmp_path, contract):
    report = check(operator(tmp_path, contract, COPY, "f(Tensor x, int k) -> Tensor out", "const dv_tensor *x; int64_t k; dv_tensor *out;", "x, k, out"),
                   "--only", "values")
    assert report["results"][0]["result"] != "fail", report["table"]


@pytest.mark.parametrize("contract", ["x[n]:f32 -> out[n]:f32; not training", "x[n]:f32 -> out[n]:f32; training == false"])
def test_a_flag_that_the_contract_fixes_may_be_unread(check, tmp_path, contract):
    report = check(operator(tmp_path, contract, COPY, "f(Tensor x, bool training=False) -> Tensor out", "const dv_tensor *x; bool training; dv_tensor *out;",
                            "x, training, out"), "--only", "values")
    assert report["results"][0]["result"] != "fail", report["table"]
