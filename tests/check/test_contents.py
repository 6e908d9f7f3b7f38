"""Contents of index-like arguments: those that a kernel accepts are found, with a fact and without; the report counts the others."""
from test_plan import operator

FIELDS = "const dv_tensor *offsets, *x; dv_tensor *out;"
SCHEMA = "f(Tensor offsets, Tensor x) -> Tensor out"
BODY = """
const int64_t *o = a->offsets->data, m = a->offsets->shape[0] - 1, n = a->x->shape[0];
CHECKS
for (int64_t i = 0; i < m; i++) {
    float sum = 0;
    for (int64_t k = o[i]; k < o[i + 1]; k++)
        sum += ((const float *)a->x->data)[k];
    ((float *)a->out->data)[i] = sum;
}"""
SPAN = """
if (o[0] != 0 || o[m] != n)
    return dv_error(ctx, DV_EINVAL, "the offsets do not span all");
for (int64_t i = 0; i < m; i++)
    if (o[i] > o[i + 1])
        return dv_error(ctx, DV_EINVAL, "offsets[%lld] is larger than the next", (long long)i);"""
INSIDE = SPAN.replace('if (o[0] != 0 || o[m] != n)', 'if (o[0] < 0 || o[m] > n)')
CONTRACT = "offsets[m + 1]:i64, x[n]:f32 -> out[m]:f32"


def segments(tmp_path, contract, checks):
    return operator(tmp_path, contract, BODY.replace("CHECKS", checks), SCHEMA, FIELDS, "offsets, x, out")


def counts(report, prop="runs"):
    return next((r["cases"], r["refused"]) for r in report["results"] if r["property"] == prop)


def test_offsets_are_found_without_a_fact(check, tmp_path):
    report = check(segments(tmp_path, CONTRACT, SPAN))
    cases, refused = counts(report)
    assert report["ok"] and refused < cases * 0.6, (cases, refused)
    assert f"cases of planned::f, kernel f_any: {cases - refused} accepted, {refused} refused by the kernel" in report["table"]


def test_sorted_makes_what_the_kernel_takes(check, tmp_path):
    report = check(segments(tmp_path, CONTRACT + "; sorted(offsets); 0 <= offsets.values <= n", INSIDE))
    cases, refused = counts(report)
    assert report["ok"] and cases > 60 and refused == 0


def test_a_fault_in_long_segments_is_found_with_the_fact(check, tmp_path):
    faulty = INSIDE + "\nif (m > 0 && o[m] - o[m - 1] > 8)\n    ((float *)a->out->data)[m] = 0;"
    report = check(segments(tmp_path, CONTRACT + "; sorted(offsets); 0 <= offsets.values <= n", faulty), "--only", "memory")
    assert [r["result"] for r in report["results"]] == ["fail"]


def test_a_loop_that_no_contents_reach_fails_the_check(check, tmp_path):
    never = 'if (n && (m < 1 || o[0] != 123456))\n    return dv_error(ctx, DV_EINVAL, "offsets[0] is not 123456");'
    body = BODY.replace("CHECKS", never).replace("o[i]; k < o[i + 1]", "0; k < n")
    report = check(operator(tmp_path, CONTRACT, body, SCHEMA, FIELDS, "offsets, x, out"), "--only", "runs,undefined")
    assert not report["ok"]
    runs, undefined = (next(r for r in report["results"] if r["property"] == p) for p in ("runs", "undefined"))
    assert runs["result"] == "not checked" and "in which no tensor is empty" in runs["reason"]
    assert undefined["result"] == "not checked" and "no case reached the loop in line" in undefined["reason"]
    assert "sorted(offsets)" in report["table"]
